/*
 * words.c - a text that grows, and numbers and names in it. Knows nothing of graphs but what their nodes are called.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "graph/text/text.h"
#include "mica/ops.h"

/* ---- a text that grows ---- */

void mica__words_add(mica__words *words, const char *text, size_t length)
{
    if (words->capacity - words->length <= length) {
        size_t capacity = words->capacity < 4096 ? 4096 : words->capacity * 2;
        if (capacity <= words->length + length)
            capacity = words->length + length + 1;
        char *data = words->failed ? NULL : mica__realloc(words->data, capacity);
        if (data == NULL) {
            words->failed = true;
            return;
        }
        words->data = data;
        words->capacity = capacity;
    }
    memcpy(words->data + words->length, text, length);
    words->length += length;
    words->data[words->length] = 0;
}

void mica__words_text(mica__words *words, const char *text)
{
    mica__words_add(words, text, strlen(text));
}

void mica__words_uint(mica__words *words, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    mica__words_add(words, digits + at, sizeof digits - at);
}

void mica__words_int(mica__words *words, int64_t value)
{
    if (value < 0)
        mica__words_add(words, "-", 1);
    mica__words_uint(words, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void mica__words_quoted(mica__words *words, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    const size_t length = strlen(text);
    mica__words_add(words, "\"", 1);
    for (size_t at = 0; at < length;) {
        const unsigned char c = (unsigned char)text[at];
        const size_t bytes = mica__utf8_length(text + at, length - at);
        const char code[] = {'\\', 'x', hex[c >> 4], hex[c & 15]};
        if (c == '"' || c == '\\')
            mica__words_add(words, (const char[]){'\\', (char)c}, 2);
        else if (bytes == 0 || c < 0x20 || c == 0x7f)
            mica__words_add(words, code, sizeof code);
        else
            mica__words_add(words, text + at, bytes);
        at += bytes == 0 ? 1 : bytes;
    }
    mica__words_add(words, "\"", 1);
}

void mica__words_free(mica__words *words)
{
    mica__free(words->data);
    *words = (mica__words){.data = NULL};
}

/* ---- numbers ---- */

/* The locale's decimal point, of whatever bytes, becomes a point. */
static void set_point(char *text)
{
    char *out = text;
    for (const char *at = text; *at != 0; at++) {
        if (strchr("0123456789+-e", *at) != NULL)
            *out++ = *at;
        else if (out == text || out[-1] != '.')
            *out++ = '.';
    }
    *out = 0;
}

/* inf, -inf, nan; false for a number. */
static bool put_special(mica__words *words, double value, bool usual, uint64_t bits)
{
    char text[32] = "nan";
    if (isinf(value))
        snprintf(text, sizeof text, value > 0 ? "inf" : "-inf");
    else if (isnan(value) && !usual)
        snprintf(text, sizeof text, "nan:%llx", (unsigned long long)bits);
    else if (!isnan(value))
        return false;
    mica__words_text(words, text);
    return true;
}

static bool put_whole(mica__words *words, double value)
{
    const int64_t whole = value >= -1e6 && value <= 1e6 ? (int64_t)value : INT64_MAX;
    if ((double)whole != value || (whole == 0 && signbit(value)))
        return false;
    mica__words_int(words, whole);
    return true;
}

void mica__words_f32(mica__words *words, float value)
{
    uint32_t bits;
    char text[40];
    memcpy(&bits, &value, sizeof bits);
    if (put_special(words, (double)value, bits == 0x7fc00000u, bits) || put_whole(words, (double)value))
        return;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (digits == 9 || strtof(text, NULL) == value)
            break;
    }
    set_point(text);
    mica__words_text(words, text);
}

void mica__words_f64(mica__words *words, double value)
{
    uint64_t bits;
    char text[40];
    memcpy(&bits, &value, sizeof bits);
    if (put_special(words, value, bits == 0x7ff8000000000000ull, bits) || put_whole(words, value))
        return;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (digits == 17 || strtod(text, NULL) == value)
            break;
    }
    set_point(text);
    mica__words_text(words, text);
}

/* The digits of a number without its point, for strtod, whose point is the locale's. */
static bool take_digits(const char *text, size_t length, char digits[static 64])
{
    size_t at = 0, out = 0;
    long exponent = 0, stated = 0;
    bool any = false, point = false, negative = false;
    if (length > 40)
        return false;
    if (at < length && text[at] == '-')
        digits[out++] = text[at++];
    for (; at < length && (text[at] == '.' || (text[at] >= '0' && text[at] <= '9')); at++) {
        if (text[at] == '.' && point)
            return false;
        point |= text[at] == '.';
        any |= text[at] != '.';
        exponent -= point && text[at] != '.';
        if (text[at] != '.')
            digits[out++] = text[at];
    }
    if (at < length && text[at] == 'e') {
        at++;
        negative = at < length && text[at] == '-';
        at += at < length && (text[at] == '-' || text[at] == '+');
        if (at == length)
            return false;
        for (; at < length && text[at] >= '0' && text[at] <= '9' && stated < 100000; at++)
            stated = stated * 10 + (text[at] - '0');
    }
    snprintf(digits + out, 64 - out, "e%ld", exponent + (negative ? -stated : stated));
    return any && at == length;
}

static bool is_text(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

/* inf, -inf, nan, nan:BITS. */
static bool read_special(const char *text, size_t length, double *out, uint64_t *out_bits)
{
    *out_bits = 0;
    *out = is_text(text, length, "inf")    ? (double)INFINITY
           : is_text(text, length, "-inf") ? -(double)INFINITY
                                           : 0;
    if (*out != 0)
        return true;
    *out = (double)NAN;
    if (is_text(text, length, "nan"))
        return true;
    if (length < 5 || length > 20 || memcmp(text, "nan:", 4) != 0)
        return false;
    for (size_t i = 4; i < length; i++) {
        const int digit = mica__hex_digit(text[i]);
        if (digit < 0)
            return false;
        *out_bits = *out_bits << 4 | (uint64_t)digit;
    }
    return true;
}

bool mica__number_read(const char *text, size_t length, double *out)
{
    char digits[64];
    const bool fits = take_digits(text, length, digits);
    *out = fits ? strtod(digits, NULL) : 0;
    return fits && isfinite(*out);
}

bool mica__f32_read(const char *text, size_t length, float *out)
{
    double special;
    uint64_t bits;
    char digits[64];
    if (read_special(text, length, &special, &bits)) {
        const uint32_t code = bits == 0 ? 0x7fc00000u : (uint32_t)bits;
        *out = (float)special;
        if (isnan(special))
            memcpy(out, &code, sizeof code);
        return bits <= UINT32_MAX && isnan(*out) == isnan(special);
    }
    const bool fits = take_digits(text, length, digits);
    *out = fits ? strtof(digits, NULL) : 0;
    return fits && isfinite(*out);
}

bool mica__f64_read(const char *text, size_t length, double *out)
{
    uint64_t bits;
    if (!read_special(text, length, out, &bits))
        return mica__number_read(text, length, out);
    if (bits == 0 && isnan(*out))
        bits = 0x7ff8000000000000ull;
    if (bits != 0)
        memcpy(out, &bits, sizeof bits);
    return bits == 0 || isnan(*out);
}

/* ---- fields of parameters ---- */

#define PARAMS(type) static const mica__field fields_##type[] = {
#define FIELD(type, name, form, count) {#name, offsetof(type, name), count, MICA__FORM_##form},
#define END_PARAMS(type) \
    {                    \
        NULL, 0, 0, 0    \
    }                    \
    }                    \
    ;
#include "graph/text/fields.def"
#undef PARAMS
#undef FIELD
#undef END_PARAMS
/* Nothing of a struct is without a field. */
#define PARAMS(type) _Static_assert(sizeof(type) == 0
#define FIELD(type, name, form, count) +sizeof(((type *)0)->name)
#define END_PARAMS(type) , "fields of " #type);
#include "graph/text/fields.def"
#undef PARAMS
#undef FIELD
#undef END_PARAMS
static const mica__field fields_NO_PARAMS[] = {{NULL, 0, 0, 0}};

const mica__field *mica__fields_of(mica_op op)
{
    static const mica__field *const fields[MICA_OP_COUNT] = {
#define OP(NAME, name, PREFIX, call_params, ...) [MICA_OP_##NAME] = fields_##call_params,
#include "backend/ops.def"
    };
    return op > MICA_OP_CUSTOM && op < MICA_OP_COUNT ? fields[op] : fields_NO_PARAMS;
}

/* ---- names ---- */

bool mica__node_named(const char *name, size_t length, mica_node_kind *out_kind, uint32_t *out_code)
{
    *out_code = 0;
    for (uint32_t i = 0; i < MICA_NODE_COUNT; i++)
        if (length != 0 && is_text(name, length, mica__kind_name((mica_node_kind)i))) {
            *out_kind = (mica_node_kind)i;
            return true;
        }
    *out_kind = MICA_NODE_OP;
    for (*out_code = MICA_OP_CUSTOM + 1; *out_code < MICA_OP_COUNT; ++*out_code)
        if (*out_code != MICA_OP_REGION && is_text(name, length, mica_op_name((mica_op)*out_code)))
            return true;
    *out_kind = MICA_NODE_SCALAR;
    for (*out_code = 1; *out_code < MICA_SCALAR_COUNT; ++*out_code)
        if (is_text(name, length, mica_scalar_name(*out_code)))
            return true;
    return false;
}
