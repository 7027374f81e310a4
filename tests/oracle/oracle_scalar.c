/*
 * oracle_scalar.c - one formula for each scalar function, by name: of integers in 64 bits; of floats in oracle_float.c.
 */
#include "oracle/oracle_scalar.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "oracle/oracle_codes.h"
#include "oracle/oracle_number.h"
#include "oracle/oracle_random.h"

/* ---- small floats ---- */

/* To nearest, ties to even, with so many bits of fraction and exponents from `least` on. */
static long double round_to(long double value, int fraction_bits, int least)
{
    int exponent;

    if (value == 0 || isnan(value) || isinf(value))
        return value;
    exponent = ilogbl(value) < least ? least : ilogbl(value);
    return ldexpl(nearbyintl(ldexpl(value, fraction_bits - exponent)), exponent - fraction_bits);
}

/* The power of two that is nearest, the larger of two; 2^-127 at least. */
static long double round_e8m0(long double value)
{
    long double below;

    if (isnan(value) || value < 0 || value >= ldexpl(1.5L, 127))
        return NAN;
    if (value < ldexpl(1, -127))
        return ldexpl(1, -127);
    below = ldexpl(1, ilogbl(value));
    return value >= 1.5L * below ? 2 * below : below;
}

long double oracle_float_round(mica_dtype dtype, long double value)
{
    long double small;

    switch (dtype) {
    case MICA_DTYPE_F32: return (float)value;
    case MICA_DTYPE_F64: return (double)value;
    case MICA_DTYPE_F16:
        small = round_to(value, 10, -14);
        return fabsl(small) > 65504 ? copysignl(INFINITY, value) : small;
    case MICA_DTYPE_BF16:
        small = round_to(value, 7, -126);
        return fabsl(small) > 3.39e38L ? copysignl(INFINITY, value) : small;
    case MICA_DTYPE_F8_E4M3:
        small = round_to(value, 3, -6);
        return fabsl(small) > 448 ? (long double)NAN : small;
    case MICA_DTYPE_F8_E5M2:
        small = round_to(value, 2, -14);
        return fabsl(small) > 57344 ? copysignl(INFINITY, value) : small;
    default: return round_e8m0(value);
    }
}

static long double e5m2(int code)
{
    return oracle_from_f16((uint16_t)(code << 8));
}

long double oracle_float_of(mica_dtype dtype, uint64_t bits)
{
    const uint32_t half = (uint32_t)bits;
    float f32;
    double f64;

    switch (dtype) {
    case MICA_DTYPE_F32: memcpy(&f32, &half, sizeof f32); return f32;
    case MICA_DTYPE_F64: memcpy(&f64, &bits, sizeof f64); return f64;
    case MICA_DTYPE_F16: return oracle_from_f16((uint16_t)bits);
    case MICA_DTYPE_BF16: return oracle_from_bf16((uint16_t)bits);
    case MICA_DTYPE_F8_E4M3: return oracle_e4m3((int)bits);
    case MICA_DTYPE_F8_E5M2: return e5m2((int)bits);
    default: return oracle_e8m0((int)bits);
    }
}

/* ---- integers ---- */

static unsigned width(uint8_t type)
{
    return type == MICA_REGISTER_BOOL ? 1 : type == MICA_REGISTER_I64 || type == MICA_REGISTER_U64 ? 64 : 32;
}

static bool signed_type(uint8_t type)
{
    return type == MICA_REGISTER_I32 || type == MICA_REGISTER_I64;
}

/* The low bits of a word as the type has them, widened again. */
static uint64_t keep(uint64_t word, unsigned bits, bool by_sign)
{
    if (bits == 64)
        return word;
    word &= (UINT64_C(1) << bits) - 1;
    return by_sign && (word >> (bits - 1)) != 0 ? word | ~((UINT64_C(1) << bits) - 1) : word;
}

static int compare(uint8_t type, uint64_t a, uint64_t b)
{
    if (signed_type(type))
        return (int64_t)a < (int64_t)b ? -1 : a != b;
    return a < b ? -1 : a != b;
}

static uint64_t i_div(uint8_t type, uint64_t a, uint64_t b)
{
    if (b == 0)
        return 0;
    if (!signed_type(type))
        return a / b;
    return b == UINT64_MAX ? 0 - a : (uint64_t)((int64_t)a / (int64_t)b);
}

static uint64_t i_rem(uint8_t type, uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : a - i_div(type, a, b) * b;
}

static uint64_t i_mod(uint8_t type, uint64_t a, uint64_t b)
{
    const uint64_t r = i_rem(type, a, b);

    return r != 0 && signed_type(type) && ((int64_t)r < 0) != ((int64_t)b < 0) ? r + b : r;
}

static uint64_t i_shift_left(uint8_t type, uint64_t a, uint64_t b)
{
    return b < width(type) ? a << b : 0;
}

static uint64_t i_shift_right(uint8_t type, uint64_t a, uint64_t b)
{
    const bool negative = signed_type(type) && (int64_t)a < 0;

    if (b >= width(type))
        return negative ? UINT64_MAX : 0;
    return negative ? ~(~a >> b) : a >> b;
}

static uint64_t i_add(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    return a + b;
}
static uint64_t i_sub(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    return a - b;
}
static uint64_t i_mul(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    return a * b;
}
static uint64_t i_square(uint8_t type, uint64_t a, uint64_t b)
{
    (void)b;
    return i_mul(type, a, a);
}
static uint64_t i_sign(uint8_t type, uint64_t a, uint64_t b)
{
    (void)b;
    return (uint64_t)(int64_t)compare(type, a, 0);
}
static uint64_t i_relu(uint8_t type, uint64_t a, uint64_t b)
{
    (void)b;
    return compare(type, a, 0) < 0 ? 0 : a;
}
static uint64_t i_max(uint8_t type, uint64_t a, uint64_t b)
{
    return compare(type, a, b) < 0 ? b : a;
}
static uint64_t i_min(uint8_t type, uint64_t a, uint64_t b)
{
    return compare(type, a, b) < 0 ? a : b;
}
static uint64_t i_neg(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    (void)b;
    return 0 - a;
}
static uint64_t i_abs(uint8_t type, uint64_t a, uint64_t b)
{
    (void)b;
    return signed_type(type) && (int64_t)a < 0 ? 0 - a : a;
}
static uint64_t i_and(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    return a & b;
}
static uint64_t i_or(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    return a | b;
}
static uint64_t i_xor(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    return a ^ b;
}
static uint64_t i_not(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    (void)b;
    return ~a;
}
static uint64_t i_wrap_i8(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    (void)b;
    return keep(a, 8, true);
}
static uint64_t i_wrap_i16(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    (void)b;
    return keep(a, 16, true);
}
static uint64_t i_wrap_u8(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    (void)b;
    return keep(a, 8, false);
}
static uint64_t i_wrap_u16(uint8_t type, uint64_t a, uint64_t b)
{
    (void)type;
    (void)b;
    return keep(a, 16, false);
}

static uint64_t i_random(uint8_t type, uint64_t counter, uint64_t key)
{
    (void)type;
    return oracle_random(key, counter);
}

static const struct {
    const char *name;
    uint64_t (*of)(uint8_t type, uint64_t a, uint64_t b);
} word_formulas[] = {
    {"add", i_add},
    {"sub", i_sub},
    {"mul", i_mul},
    {"div", i_div},
    {"rem", i_rem},
    {"mod", i_mod},
    {"square", i_square},
    {"sign", i_sign},
    {"relu", i_relu},
    {"max", i_max},
    {"min", i_min},
    {"neg", i_neg},
    {"abs", i_abs},
    {"bit_and", i_and},
    {"bit_or", i_or},
    {"bit_xor", i_xor},
    {"bit_not", i_not},
    {"shift_left", i_shift_left},
    {"shift_right", i_shift_right},
    {"random", i_random},
    {"wrap_i8", i_wrap_i8},
    {"wrap_i16", i_wrap_i16},
    {"wrap_u8", i_wrap_u8},
    {"wrap_u16", i_wrap_u16},
};

/* ---- what goes from one type to another ---- */

static bool is_float(uint8_t type)
{
    return type == MICA_REGISTER_F32 || type == MICA_REGISTER_F64;
}

/* Towards 0, NaN to 0, the nearest end of the range beyond it. */
static uint64_t whole(uint8_t type, long double x)
{
    const long double top = ldexpl(1, (int)width(type) - (signed_type(type) ? 1 : 0));
    const long double bottom = signed_type(type) ? -top : 0;

    if (isnan(x))
        return 0;
    if (x >= top)
        return keep(signed_type(type) ? (UINT64_C(1) << (width(type) - 1)) - 1 : UINT64_MAX, width(type),
                    false);
    if (x <= bottom)
        return signed_type(type) ? 0 - (UINT64_C(1) << (width(type) - 1)) : 0;
    return x < 0 ? 0 - (uint64_t)-x : (uint64_t)x;
}

static oracle_value cast(uint8_t type, const oracle_value *in)
{
    oracle_value out = {.type = type, .open = in->open};
    const long double low = in->x - in->error, high = in->x + in->error;

    if (is_float(in->type) && is_float(type)) {
        out.x = in->error != 0 || type == MICA_REGISTER_F64 ? in->x : (long double)(float)in->x;
        out.error = in->error != 0 && type == MICA_REGISTER_F32
                        ? in->error + ldexpl(fabsl(in->x), -24) + FLT_MIN
                        : in->error;
        if (type == MICA_REGISTER_F32 && in->error == 0 && in->x != 0 && fabsl(in->x) < FLT_MIN)
            out.error = FLT_MIN;
        if (in->error != 0 && type == MICA_REGISTER_F32 && !(fabsl(in->x) + out.error < 0.999L * FLT_MAX))
            out.open = true;
    } else if (is_float(type)) {
        const bool negative = signed_type(in->type) && (int64_t)in->word < 0;
        const uint64_t size = negative ? 0 - in->word : in->word;

        out.x = type == MICA_REGISTER_F32 ? (long double)(float)size : (long double)(double)size;
        out.x = negative ? -out.x : out.x;
    } else if (is_float(in->type)) {
        out.word = type == MICA_REGISTER_BOOL ? in->x != 0 : whole(type, in->x);
        if (in->error != 0 &&
            (type == MICA_REGISTER_BOOL ? low <= 0 && high >= 0 : whole(type, low) != whole(type, high)))
            out.open = true;
    } else {
        out.word =
            type == MICA_REGISTER_BOOL ? in->word != 0 : keep(in->word, width(type), signed_type(type));
    }
    return out;
}

static oracle_value bits(uint8_t type, const oracle_value *in)
{
    oracle_value out = {.type = type, .open = in->open || in->error != 0 || isnan(in->x)};
    uint64_t word = in->word;
    const double f64 = (double)in->x;
    const float f32 = (float)in->x;

    if (in->type == MICA_REGISTER_F64)
        memcpy(&word, &f64, sizeof word);
    if (in->type == MICA_REGISTER_F32)
        memcpy(&word, &f32, sizeof f32);
    if (is_float(type))
        out.x = oracle_float_of(type == MICA_REGISTER_F32 ? MICA_DTYPE_F32 : MICA_DTYPE_F64, word);
    else
        out.word = keep(word, width(type), signed_type(type));
    return out;
}

/* Both ends of the bound round to the value, or lie apart by what the rounding may make of it: at least as 0 and -0 do, which are one
 * number with two signs. */
static oracle_value round_as(mica_dtype dtype, const oracle_value *in)
{
    oracle_value out = {.type = in->type, .open = in->open, .x = oracle_float_round(dtype, in->x)};
    const long double low = oracle_float_round(dtype, in->x - in->error);
    const long double high = oracle_float_round(dtype, in->x + in->error);

    if (in->error == 0 || (low == high && low == out.x && !signbit(low) == !signbit(high)))
        return out;
    out.error = fmaxl(fmaxl(high - out.x, out.x - low), LDBL_MIN);
    out.open = out.open || isnan(low) || isnan(high) || isinf(out.error);
    return out;
}

/* The comparisons: bit order + 1 says whether they hold for a below, equal to and above b. */
static const struct {
    const char *name;
    uint8_t holds;
} orders[] = {{"equal", 2},      {"not_equal", 5}, {"less", 1},
              {"less_equal", 3}, {"greater", 4},   {"greater_equal", 6}};

static bool is_order(const char *name)
{
    bool found = false;

    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        found = found || strcmp(orders[i].name, name) == 0;
    return found;
}

static oracle_value decide(const char *name, const oracle_value *a, const oracle_value *b)
{
    oracle_value out = {.type = MICA_REGISTER_BOOL, .open = a->open || b->open};
    int order;

    if (is_float(a->type)) {
        out.open = out.open || (a->error + b->error != 0 && fabsl(a->x - b->x) <= a->error + b->error);
        out.word = strcmp(name, "not_equal") == 0;
        if (isnan(a->x) || isnan(b->x))
            return out;
        order = a->x < b->x ? -1 : a->x != b->x;
    } else {
        order = compare(a->type, a->word, b->word);
    }
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        if (strcmp(name, orders[i].name) == 0)
            out.word = (unsigned)orders[i].holds >> (order + 1) & 1;
    }
    return out;
}

/* isnan, isinf or isfinite. */
static oracle_value classify(const char *name, const oracle_value *a)
{
    oracle_value out = {.type = MICA_REGISTER_BOOL, .open = a->open};

    out.word = strcmp(name, "isnan") == 0   ? isnan(a->x) != 0
               : strcmp(name, "isinf") == 0 ? isinf(a->x) != 0
                                            : isfinite(a->x) != 0;
    return out;
}

static const struct {
    const char *name;
    mica_dtype dtype;
} roundings[] = {{"round_f16", MICA_DTYPE_F16},
                 {"round_bf16", MICA_DTYPE_BF16},
                 {"round_f8_e4m3", MICA_DTYPE_F8_E4M3},
                 {"round_f8_e5m2", MICA_DTYPE_F8_E5M2},
                 {"round_e8m0", MICA_DTYPE_E8M0}};
/* Those without a formula of numbers: the program's own, casts and choices. */
static const char *const others[] = {"constant", "index", "imag",     "cast",  "bits",
                                     "isnan",    "isinf", "isfinite", "select"};

#define COUNT(table) (sizeof(table) / sizeof *(table))

bool oracle_scalar_known(const char *name)
{
    bool known = oracle_float_known(name) || is_order(name);

    for (size_t i = 0; i < COUNT(word_formulas); i++)
        known = known || strcmp(word_formulas[i].name, name) == 0;
    for (size_t i = 0; i < COUNT(roundings); i++)
        known = known || strcmp(roundings[i].name, name) == 0;
    for (size_t i = 0; i < COUNT(others); i++)
        known = known || strcmp(others[i], name) == 0;
    return known;
}

oracle_value oracle_scalar_run(const char *name, uint8_t type, const oracle_value *in)
{
    oracle_value out = {.type = type, .open = true};

    if (strcmp(name, "select") == 0) {
        out = in[0].word != 0 ? in[1] : in[2];
        out.open = out.open || in[0].open;
        return out;
    }
    if (strcmp(name, "cast") == 0)
        return cast(type, &in[0]);
    if (strcmp(name, "bits") == 0)
        return bits(type, &in[0]);
    if (is_order(name))
        return decide(name, &in[0], &in[1]);
    if (strncmp(name, "is", 2) == 0)
        return classify(name, &in[0]);
    for (size_t i = 0; i < COUNT(roundings); i++) {
        if (strcmp(roundings[i].name, name) == 0)
            return round_as(roundings[i].dtype, &in[0]);
    }
    if (in[0].open || in[1].open)
        return out;
    if (is_float(type))
        return oracle_float_known(name) ? oracle_float_run(name, type, in) : out;
    for (size_t i = 0; i < COUNT(word_formulas); i++) {
        if (strcmp(word_formulas[i].name, name) == 0)
            return (oracle_value){.type = type,
                                  .word = keep(word_formulas[i].of(type, in[0].word, in[1].word), width(type),
                                               signed_type(type))};
    }
    return out;
}
