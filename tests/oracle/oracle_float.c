/*
 * oracle_float.c - the scalar functions of floats, by name, in long double, and how far rounding may take one from them.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "oracle/oracle_scalar.h"

/* y of a, b, c, and how far one that rounds as it goes may be from it, in roundings: of y itself, of a, of 1. It is monotone in each
 * of its values, or has its least value where a is `turn`. */
typedef struct float_formula {
    const char *name;
    long double (*of)(const long double *v);
    double of_y, of_a, of_one, turn;
    bool jumps; /* what errors of values do to it is not seen from their ends */
} float_formula;

static long double f_add(const long double *v)
{
    return v[0] + v[1];
}
static long double f_sub(const long double *v)
{
    return v[0] - v[1];
}
static long double f_mul(const long double *v)
{
    return v[0] * v[1];
}
static long double f_div(const long double *v)
{
    return v[0] / v[1];
}
static long double f_max(const long double *v)
{
    if (isnan(v[0]) || isnan(v[1]))
        return NAN;
    if (v[0] == v[1])
        return signbit(v[0]) ? v[1] : v[0];
    return v[0] > v[1] ? v[0] : v[1];
}
static long double f_min(const long double *v)
{
    if (isnan(v[0]) || isnan(v[1]))
        return NAN;
    if (v[0] == v[1])
        return signbit(v[0]) ? v[0] : v[1];
    return v[0] < v[1] ? v[0] : v[1];
}
static long double f_neg(const long double *v)
{
    return -v[0];
}
static long double f_abs(const long double *v)
{
    return fabsl(v[0]);
}
static long double f_sqrt(const long double *v)
{
    return sqrtl(v[0]);
}
static long double f_exp(const long double *v)
{
    return expl(v[0]);
}
static long double f_log(const long double *v)
{
    return logl(v[0]);
}
static long double f_log1p(const long double *v)
{
    return log1pl(v[0]);
}
static long double f_tanh(const long double *v)
{
    return tanhl(v[0]);
}
static long double f_silu(const long double *v)
{
    return v[0] / (1 + expl(-v[0]));
}
static long double f_gelu(const long double *v)
{
    long double inner = 0.7978845608L * (v[0] + 0.044715L * v[0] * v[0] * v[0]);

    return 0.5L * v[0] * (1 + tanhl(fminl(fmaxl(inner, -15), 15)));
}
static long double f_gelu_erf(const long double *v)
{
    return 0.5L * v[0] * (1 + erfl(v[0] / sqrtl(2)));
}
static long double f_logaddexp(const long double *v)
{
    const long double apart = v[0] == v[1] ? 0 : -fabsl(v[0] - v[1]);

    return (v[0] > v[1] || isnan(v[0]) ? v[0] : v[1]) + log1pl(expl(apart));
}
static long double f_softplus(const long double *v)
{
    return (v[0] > 0 ? v[0] : 0) + log1pl(expl(-fabsl(v[0])));
}
static long double f_sign(const long double *v)
{
    return v[0] > 0 ? 1 : v[0] < 0 ? -1 : v[0];
}
static long double f_square(const long double *v)
{
    return v[0] * v[0];
}
static long double f_reciprocal(const long double *v)
{
    return 1 / v[0];
}
static long double f_rsqrt(const long double *v)
{
    return 1 / sqrtl(v[0]);
}
static long double f_round(const long double *v)
{
    return rintl(v[0]);
}
static long double f_floor(const long double *v)
{
    return floorl(v[0]);
}
static long double f_ceil(const long double *v)
{
    return ceill(v[0]);
}
static long double f_trunc(const long double *v)
{
    return truncl(v[0]);
}
static long double f_rem(const long double *v)
{
    return fmodl(v[0], v[1]);
}
static long double f_mod(const long double *v)
{
    const long double r = fmodl(v[0], v[1]);

    if (r == 0)
        return copysignl(0, v[1]);
    return (r < 0) == (v[1] < 0) || isnan(r) ? r : r + v[1];
}
static long double within(long double x, long double low, long double high)
{
    return x < low ? low : x > high ? high : x;
}
static long double f_relu(const long double *v)
{
    return isnan(v[0]) || v[0] > 0 ? v[0] : 0;
}
static long double f_relu_squared(const long double *v)
{
    return f_relu(v) * f_relu(v);
}
static long double f_leaky_relu(const long double *v)
{
    return v[0] > 0 ? v[0] : v[0] * v[1];
}
static long double f_hard_sigmoid(const long double *v)
{
    return within(v[0] + 3, 0, 6) / 6;
}
static long double f_hard_swish(const long double *v)
{
    return v[0] * f_hard_sigmoid(v);
}
static long double f_hard_tanh(const long double *v)
{
    return within(v[0], -1, 1);
}
static long double f_softsign(const long double *v)
{
    return v[0] / (1 + fabsl(v[0]));
}
static long double f_pow(const long double *v)
{
    return powl(v[0], v[1]);
}
static long double f_exp2(const long double *v)
{
    return exp2l(v[0]);
}
static long double f_expm1(const long double *v)
{
    return expm1l(v[0]);
}
static long double f_log2(const long double *v)
{
    return log2l(v[0]);
}
static long double f_log10(const long double *v)
{
    return log10l(v[0]);
}
static long double f_sin(const long double *v)
{
    return sinl(v[0]);
}
static long double f_cos(const long double *v)
{
    return cosl(v[0]);
}
static long double f_tan(const long double *v)
{
    return tanl(v[0]);
}
static long double f_asin(const long double *v)
{
    return asinl(v[0]);
}
static long double f_acos(const long double *v)
{
    return acosl(v[0]);
}
static long double f_atan(const long double *v)
{
    return atanl(v[0]);
}
static long double f_atan2(const long double *v)
{
    return atan2l(v[0], v[1]);
}
static long double f_sinh(const long double *v)
{
    return sinhl(v[0]);
}
static long double f_cosh(const long double *v)
{
    return coshl(v[0]);
}
static long double f_asinh(const long double *v)
{
    return asinhl(v[0]);
}
static long double f_acosh(const long double *v)
{
    return acoshl(v[0]);
}
static long double f_atanh(const long double *v)
{
    return atanhl(v[0]);
}
static long double f_erf(const long double *v)
{
    return erfl(v[0]);
}
static long double f_erfc(const long double *v)
{
    return erfcl(v[0]);
}
static long double f_sigmoid(const long double *v)
{
    return 1 / (1 + expl(-v[0]));
}
static long double f_log_sigmoid(const long double *v)
{
    return (v[0] < 0 ? v[0] : 0) - log1pl(expl(-fabsl(v[0])));
}
static long double f_quick_gelu(const long double *v)
{
    return v[0] / (1 + expl(-1.702L * v[0]));
}
static long double f_mish(const long double *v)
{
    return v[0] * tanhl((v[0] > 0 ? v[0] : 0) + log1pl(expl(-fabsl(v[0]))));
}
static long double f_elu(const long double *v)
{
    return v[0] > 0 ? v[0] : v[1] * expm1l(v[0]);
}
static long double f_selu(const long double *v)
{
    return 1.0507009873554805L * (v[0] > 0 ? v[0] : 1.6732632423543772L * expm1l(v[0]));
}
static long double f_softcap(const long double *v)
{
    return v[1] * tanhl(v[0] / v[1]);
}

/* 0, 0, 0: one rounding of the right result. Quotients and roots of GPUs may be 2.5 roundings off; tanh from exp is off by
 * roundings of 1 near 0, and so are those made of it, times their factor. */
static const float_formula float_formulas[] = {
    {"add", f_add, 0, 0, 0, 0, false},
    {"sub", f_sub, 0, 0, 0, 0, false},
    {"mul", f_mul, 0, 0, 0, 0, false},
    {"div", f_div, 3, 0, 0, 0, false},
    {"max", f_max, 0, 0, 0, 0, false},
    {"min", f_min, 0, 0, 0, 0, false},
    {"neg", f_neg, 0, 0, 0, 0, false},
    {"abs", f_abs, 0, 0, 0, 0, false},
    {"sqrt", f_sqrt, 3, 0, 0, 0, false},
    {"exp", f_exp, 4, 0, 0, 0, false},
    {"log", f_log, 4, 0, 0, 0, false},
    {"log1p", f_log1p, 4, 0, 0, 0, false},
    {"logaddexp", f_logaddexp, 2, 0, 8, 0, false}, /* near 0 what cancels is at most log 2 */
    {"tanh", f_tanh, 6, 0, 1.5, 0, false},
    {"silu", f_silu, 6, 0, 0, -1.2784645, false},
    {"gelu", f_gelu, 0, 3, 0, -0.7524614, false},
    {"gelu_erf", f_gelu_erf, 0, 4, 0, -0.7517915, false},
    {"softcap", f_softcap, 6, 0, 1.5, 0, false},
    {"softplus", f_softplus, 9, 0, 0, 0, false},
    {"sign", f_sign, 0, 0, 0, 0, false},
    {"square", f_square, 0, 0, 0, 0, false},
    {"reciprocal", f_reciprocal, 3, 0, 0, 0, true},
    {"rsqrt", f_rsqrt, 6, 0, 0, 0, false},
    {"round", f_round, 0, 0, 0, 0, false},
    {"floor", f_floor, 0, 0, 0, 0, false},
    {"ceil", f_ceil, 0, 0, 0, 0, false},
    {"trunc", f_trunc, 0, 0, 0, 0, false},
    {"rem", f_rem, 0, 0, 0, 0, true},
    {"mod", f_mod, 0, 0, 0, 0, true},
    {"relu", f_relu, 0, 0, 0, 0, false},
    {"relu_squared", f_relu_squared, 0, 0, 0, 0, false},
    {"leaky_relu", f_leaky_relu, 0, 0, 0, 0, false},
    {"hard_sigmoid", f_hard_sigmoid, 4, 0, 0, 0, false},
    {"hard_swish", f_hard_swish, 5, 0, 0, -1.5, false},
    {"hard_tanh", f_hard_tanh, 0, 0, 0, 0, false},
    {"softsign", f_softsign, 4, 0, 0, 0, false},
    {"pow", f_pow, 8, 0, 0, 0, true},
    {"exp2", f_exp2, 4, 0, 0, 0, false},
    {"expm1", f_expm1, 5, 0, 0, 0, false},
    {"log2", f_log2, 5, 0, 0, 0, false},
    {"log10", f_log10, 5, 0, 0, 0, false},
    {"sin", f_sin, 5, 0, 0, 0, true},
    {"cos", f_cos, 5, 0, 0, 0, true},
    {"tan", f_tan, 9, 0, 0, 0, true},
    {"asin", f_asin, 6, 0, 0, 0, false},
    {"acos", f_acos, 6, 0, 0, 0, false},
    {"atan", f_atan, 6, 0, 0, 0, false},
    {"atan2", f_atan2, 6, 0, 0, 0, false},
    {"sinh", f_sinh, 7, 0, 0, 0, false},
    {"cosh", f_cosh, 6, 0, 0, 0, false},
    {"asinh", f_asinh, 8, 0, 0, 0, false},
    {"acosh", f_acosh, 8, 0, 0, 0, false},
    {"atanh", f_atanh, 8, 0, 0, 0, false},
    {"erf", f_erf, 5, 0, 0, 0, false},
    {"erfc", f_erfc, 10, 0, 0, 0, false},
    {"sigmoid", f_sigmoid, 6, 0, 0, 0, false},
    {"log_sigmoid", f_log_sigmoid, 9, 0, 0, 0, false},
    {"quick_gelu", f_quick_gelu, 0, 3, 0, -0.7511542, false},
    {"mish", f_mish, 10, 0, 0, -1.1924312, false},
    {"elu", f_elu, 7, 0, 0, 0, false},
    {"selu", f_selu, 9, 0, 0, 0, false},
};

/* How far the result may be from y by the errors of the values that went in: at the corners of what they may be. NaN: anywhere. */
static long double carried(const float_formula *formula, const oracle_value *in, long double y)
{
    const bool turns = formula->turn != 0 && fabsl(in[0].x - formula->turn) < in[0].error;
    long double most = 0;

    for (int corner = 0; corner < (turns ? 5 : 4); corner++) {
        const long double v[3] = {corner == 4  ? formula->turn
                                  : corner & 1 ? in[0].x + in[0].error
                                               : in[0].x - in[0].error,
                                  corner & 2 ? in[1].x + in[1].error : in[1].x - in[1].error};
        const long double far = fabsl(formula->of(v) - y);

        if (isnan(far) || far > most)
            most = far;
    }
    return most;
}

/* Outside of the domain, or perhaps so: softcap's b is above 0 and finite; a divisor that was rounded, and may have been rounded to 0,
 * may give anything, 0 / 0 too. */
static bool outside(const float_formula *formula, const oracle_value *in, long double most)
{
    const long double b = in[1].x, error = in[1].error;

    if (formula->of == f_softcap)
        return !(b - error > 0 && b + error <= most);
    return formula->of == f_div && error != 0 && fabsl(b) <= error;
}

static const float_formula *float_formula_of(const char *name)
{
    for (size_t i = 0; i < sizeof float_formulas / sizeof *float_formulas; i++) {
        if (strcmp(float_formulas[i].name, name) == 0)
            return &float_formulas[i];
    }
    return NULL;
}

bool oracle_float_known(const char *name)
{
    return float_formula_of(name) != NULL;
}

oracle_value oracle_float_run(const char *name, uint8_t type, const oracle_value *in)
{
    const float_formula *formula = float_formula_of(name);
    const bool single = type == MICA_REGISTER_F32;
    const long double eps = single ? ldexpl(1, -24) : ldexpl(1, -53), least = single ? FLT_MIN : DBL_MIN;
    const long double most = single ? FLT_MAX : DBL_MAX;
    const long double v[3] = {in[0].x, in[1].x, in[2].x}, y = formula->of(v);
    const long double rounded = single ? (long double)(float)y : (long double)(double)y;
    const long double moved = carried(formula, in, y), reach = fabsl(y) + moved;
    const long double own = formula->of_y * reach + formula->of_a * (fabsl(v[0]) + in[0].error) +
                            formula->of_one * (formula->of == f_softcap ? fabsl(v[1]) + in[1].error : 1);
    oracle_value out = {.type = type, .x = y};

    if (outside(formula, in, most)) {
        out.open = true;
        return out;
    }
    if (formula->jumps && (in[0].error != 0 || in[1].error != 0)) {
        out.open = true;
        return out;
    }
    if (in[0].error == 0 && in[1].error == 0) {
        const bool exact = own == 0 || (v[0] == 0 && y == 0); /* 0 of 0, with its sign */
        if (isnan(y) || isinf(y) || (exact && (single || rounded == y) && (y == 0 || fabsl(y) >= least))) {
            out.x = rounded;
            return out;
        }
    }
    out.error = moved + eps * own + eps * reach + least;
    out.open = isnan(y) || isnan(out.error) || !(fabsl(y) + out.error < 0.999L * most);
    return out;
}
