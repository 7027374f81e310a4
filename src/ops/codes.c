/*
 * codes.c - the formulas of codes with scales.
 */
#include "ops/codes.h"

void mica__scaling_finish(mica__scaling *s, st_value global, mica_register type)
{
    s->scale = st_cast(s->scale, type);
    if (global.of != NULL)
        s->scale = st_mul(s->scale, st_cast(global, type));
    if (s->point.of != NULL)
        s->point = st_cast(s->point, type);
    if (s->bias.of != NULL)
        s->bias = st_cast(s->bias, type);
}

/* ---- which codes there are ---- */

bool mica__codes_complete(mica_quantizer *by, mica_dtype dtype)
{
    static const struct {
        mica_dtype dtype;
        int32_t low, high;
    } ends[] = {{MICA_DTYPE_I8, -128, 127},
                {MICA_DTYPE_U8, 0, 255},
                {MICA_DTYPE_I16, -32768, 32767},
                {MICA_DTYPE_U16, 0, 65535},
                {MICA_DTYPE_I32, -16777216, 16777216},
                {MICA_DTYPE_U32, 0, 16777216},
                {MICA_DTYPE_F8_E4M3, -448, 448},
                {MICA_DTYPE_F8_E5M2, -57344, 57344}};
    if (by->packed != 0 && dtype != MICA_DTYPE_U8)
        return false;
    if (by->code == MICA_CODE_FP4)
        return dtype == MICA_DTYPE_U8 || dtype == MICA_DTYPE_I8;
    for (uint32_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i].dtype == dtype) {
            const bool given = by->low != 0 || by->high != 0;
            by->low = given ? by->low : ends[i].low;
            by->high = given ? by->high : by->packed != 0 ? 15 : ends[i].high;
            return by->low >= ends[i].low - (by->packed != 0 ? 8 : 0) && by->high <= ends[i].high;
        }
    return false;
}

bool mica__codes_complete_fake(mica_quantizer *by)
{
    if (by->low == 0 && by->high == 0) {
        by->low = -128;
        by->high = 127;
    }
    return by->packed == 0;
}

/* ---- codes and what they stand for ---- */

static st_value rounded(st_value v, bool away)
{
    if (!away)
        return st_round(v);
    const st_value size = st_abs(v), whole = st_floor(size);
    const st_value up = st_greater_equal(st_sub(size, whole), st_number(v, 0.5));
    const st_value near = st_select(up, st_shift(whole, 1), whole);
    return st_select(st_less(v, st_number(v, 0)), st_neg(near), near);
}

/* The code of E2M1 that is nearest, as a number from 0 to 15. */
static st_value fp4_code(st_value v)
{
    const st_value a = st_abs(v);
    const st_value small = st_round(st_scale(a, 2)), middle = st_shift(st_round(a), 2);
    const st_value large = st_least(st_shift(st_round(st_scale(a, 0.5)), 4), 7);
    const st_value code =
        st_select(st_less(a, st_number(a, 2)), small, st_select(st_less(a, st_number(a, 4)), middle, large));
    return st_select(st_less(v, st_number(v, 0)), st_shift(code, 8), code);
}

static st_value fp4_value(st_value code)
{
    const st_value negative = st_greater_equal(code, st_number(code, 8));
    const st_value k = st_select(negative, st_shift(code, -8), code);
    const st_value large =
        st_select(st_less(k, st_number(k, 6)), st_shift(k, -2), st_shift(st_scale(k, 2), -8));
    const st_value a = st_select(st_less(k, st_number(k, 4)), st_scale(k, 0.5), large);
    return st_select(negative, st_neg(a), a);
}

/* x / scale (- bias before it), before any rounding. */
static st_value in_units(st_value x, const mica__scaling *s)
{
    return st_div(s->bias.of != NULL ? st_sub(x, s->bias) : x, s->scale);
}

st_value mica__code_of(const mica_quantizer *by, st_value x, const mica__scaling *s, bool whole)
{
    const st_value v = in_units(x, s);
    if (by->code == MICA_CODE_FP4)
        return fp4_code(v);
    const st_value near = whole ? rounded(v, by->away != 0) : v;
    return st_clamp(s->point.of != NULL ? st_add(near, s->point) : near, by->low, by->high);
}

st_value mica__value_of(const mica_quantizer *by, st_value code, const mica__scaling *s)
{
    if (by->code == MICA_CODE_FP4)
        code = fp4_value(code);
    if (s->bias.of != NULL)
        return st_add(st_mul(code, s->scale), s->bias);
    return st_mul(s->point.of != NULL ? st_sub(code, s->point) : code, s->scale);
}

st_value mica__code_of_sum(const mica_quantizer *by, st_value sum, const mica__scaling *s)
{
    const st_value near = rounded(st_mul(st_cast(sum, MICA_REGISTER_F32), s->scale), by->away != 0);
    return st_clamp(s->point.of != NULL ? st_add(near, s->point) : near, by->low, by->high);
}

/* Numbers below 0 as two's complement. */
static st_value in_four_bits(const mica_quantizer *by, st_value code)
{
    if (by->low >= 0 || by->code != MICA_CODE_INTEGER)
        return code;
    return st_select(st_less(code, st_number(code, 0)), st_shift(code, 16), code);
}

st_value mica__codes_pack(const mica_quantizer *by, st_value low, st_value high)
{
    return st_add(in_four_bits(by, low), st_scale(in_four_bits(by, high), 16));
}

st_value mica__codes_unpack(const mica_quantizer *by, st_value both, uint32_t half, mica_register type)
{
    const st_value bits =
        half == 0 ? st_bit_and(both, st_number(both, 15)) : st_shift_right(both, st_number(both, 4));
    const st_value code = st_cast(bits, type);
    if (by->low >= 0 || by->code != MICA_CODE_INTEGER)
        return code;
    return st_select(st_greater_equal(code, st_number(code, 8)), st_shift(code, -16), code);
}

/* ---- backward ---- */

/* What reaches x. `inside`: where the code is not an end that it was brought back to. */
static st_value straight_through(const mica_quantizer *by, mica_straight straight, st_value dy,
                                 st_value units, st_value inside)
{
    switch (straight) {
    case MICA_STRAIGHT_IDENTITY: return dy;
    case MICA_STRAIGHT_TANH: {
        const st_value t = st_tanh(units);
        return st_mul(dy, st_sub(st_number(t, 1), st_square(t)));
    }
    case MICA_STRAIGHT_HARD_TANH: {
        const st_value part = st_scale(st_abs(units), 1.0 / by->high);
        return st_mul(dy, st_greatest(st_sub(st_number(part, 1), part), 0));
    }
    default: return st_where(inside, dy);
    }
}

void mica__code_slopes(const mica_quantizer *by, mica_straight straight, st_value x, st_value dy,
                       const mica__scaling *s, st_value *out_dx, st_value *out_dscale)
{
    const st_value units = in_units(x, s), near = rounded(units, by->away != 0);
    const st_value judged = straight == MICA_STRAIGHT_ROUNDED ? near : units;
    const st_value v = s->point.of != NULL ? st_add(judged, s->point) : judged;
    const st_value below = st_less(v, st_number(v, by->low)), above = st_greater(v, st_number(v, by->high));
    const st_value inside = st_bit_not(st_bit_or(below, above));
    const st_value end = st_select(below, st_number(v, by->low), st_number(v, by->high));
    const st_value far = s->point.of != NULL ? st_sub(end, s->point) : end;
    const st_value slope = st_select(inside, st_sub(near, units), far);
    if (out_dx != NULL)
        *out_dx = straight_through(by, straight, dy, units, inside);
    if (out_dscale != NULL)
        *out_dscale = st_mul(dy, slope);
}

/* ---- scales ---- */

st_value mica__scale_of_most(const mica_quantizer *by, st_value most)
{
    return st_greatest(st_div(most, st_number(most, by->high)), 1e-12);
}

void mica__scale_of_ends(const mica_quantizer *by, st_value most, st_value least, st_value *out_scale,
                         st_value *out_bias)
{
    const st_value step = st_div(st_sub(most, least), st_number(most, (double)by->high - by->low));
    *out_scale = st_select(st_greater(step, st_number(step, 0)), step, st_number(step, 1));
    *out_bias = by->low != 0 ? st_sub(least, st_scale(*out_scale, by->low)) : least;
}

st_value mica__scale_that_follows(st_value before, st_value now, double decay)
{
    const st_value mean = st_add(st_scale(before, decay), st_scale(now, 1 - decay));
    return st_select(st_greater(before, st_number(before, 0)), mean, now);
}
