/*
 * graph_scalars.h - a node of a graph for each scalar function (graph.h: mica_graph_scalar says what all of them take
 * and give).
 * Made by scripts/generate out of src/backend/scalars.def; change it there.
 */
#ifndef MICA_GRAPH_SCALARS_H
#define MICA_GRAPH_SCALARS_H

#include "mica/graph.h"

#ifdef __cplusplus
extern "C" {
#endif
/* clang-format off */

/* a + b (integers wrap). */
static inline mica_tensor mica_graph_add(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ADD, a, b, 0);
}
/* a - b (integers wrap). */
static inline mica_tensor mica_graph_sub(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SUB, a, b, 0);
}
/* a * b (integers wrap). */
static inline mica_tensor mica_graph_mul(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_MUL, a, b, 0);
}
/* a / b (integers: towards 0; x / 0 is 0; the least one / -1 is itself). */
static inline mica_tensor mica_graph_div(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_DIV, a, b, 0);
}
/* the greater of a and b (NaN if either is; 0 is above -0). */
static inline mica_tensor mica_graph_max(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_MAX, a, b, 0);
}
/* the lesser of a and b (NaN if either is; -0 is below 0). */
static inline mica_tensor mica_graph_min(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_MIN, a, b, 0);
}
/* a - b trunc(a / b), exact (the sign of a, as fmod of C; x rem 0: NaN, of integers 0). */
static inline mica_tensor mica_graph_rem(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_REM, a, b, 0);
}
/* a - b floor(a / b) (the sign of b, as % of Python; x mod 0: NaN, of integers 0). */
static inline mica_tensor mica_graph_mod(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_MOD, a, b, 0);
}
/* a^b (special values as C's annex F has them: a^0 and 1^b are 1; below 0 with a fraction: NaN). */
static inline mica_tensor mica_graph_pow(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_POW, a, b, 0);
}
/* -a (integers wrap). */
static inline mica_tensor mica_graph_neg(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_NEG, a, 0, 0);
}
/* |a| (integers wrap). */
static inline mica_tensor mica_graph_abs(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ABS, a, 0, 0);
}
/* 1, -1 or a itself where it is 0 (NaN: NaN). */
static inline mica_tensor mica_graph_sign(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SIGN, a, 0, 0);
}
/* a a (integers wrap). */
static inline mica_tensor mica_graph_square(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SQUARE, a, 0, 0);
}
/* 1 / a. */
static inline mica_tensor mica_graph_reciprocal(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_RECIPROCAL, a, 0, 0);
}
/* the whole number nearest to a, of two the even one. */
static inline mica_tensor mica_graph_round(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ROUND, a, 0, 0);
}
/* the greatest whole number not above a. */
static inline mica_tensor mica_graph_floor(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_FLOOR, a, 0, 0);
}
/* the least whole number not below a. */
static inline mica_tensor mica_graph_ceil(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_CEIL, a, 0, 0);
}
/* a without its fraction. */
static inline mica_tensor mica_graph_trunc(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_TRUNC, a, 0, 0);
}
/* the square root of a (below 0: NaN). */
static inline mica_tensor mica_graph_sqrt(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SQRT, a, 0, 0);
}
/* 1 / sqrt(a) (0: inf, of its sign; below: NaN). */
static inline mica_tensor mica_graph_rsqrt(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_RSQRT, a, 0, 0);
}
/* e^a. */
static inline mica_tensor mica_graph_exp(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_EXP, a, 0, 0);
}
/* 2^a. */
static inline mica_tensor mica_graph_exp2(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_EXP2, a, 0, 0);
}
/* e^a - 1, exact near 0. */
static inline mica_tensor mica_graph_expm1(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_EXPM1, a, 0, 0);
}
/* the natural logarithm of a (0: -inf; below 0: NaN). */
static inline mica_tensor mica_graph_log(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_LOG, a, 0, 0);
}
/* log(1 + a), exact near 0 (-1: -inf; below: NaN). */
static inline mica_tensor mica_graph_log1p(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_LOG1P, a, 0, 0);
}
/* the logarithm of a to base 2 (0: -inf; below 0: NaN). */
static inline mica_tensor mica_graph_log2(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_LOG2, a, 0, 0);
}
/* the logarithm of a to base 10 (0: -inf; below 0: NaN). */
static inline mica_tensor mica_graph_log10(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_LOG10, a, 0, 0);
}
/* log(e^a + e^b) (two infinities of one sign: that one). */
static inline mica_tensor mica_graph_logaddexp(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_LOGADDEXP, a, b, 0);
}
/* the sine of a (infinite: NaN). */
static inline mica_tensor mica_graph_sin(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SIN, a, 0, 0);
}
/* the cosine of a (infinite: NaN). */
static inline mica_tensor mica_graph_cos(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_COS, a, 0, 0);
}
/* the tangent of a (infinite: NaN). */
static inline mica_tensor mica_graph_tan(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_TAN, a, 0, 0);
}
/* the angle from -pi/2 to pi/2 whose sine is a (beyond 1: NaN). */
static inline mica_tensor mica_graph_asin(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ASIN, a, 0, 0);
}
/* the angle from 0 to pi whose cosine is a (beyond 1: NaN). */
static inline mica_tensor mica_graph_acos(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ACOS, a, 0, 0);
}
/* the angle from -pi/2 to pi/2 whose tangent is a. */
static inline mica_tensor mica_graph_atan(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ATAN, a, 0, 0);
}
/* the angle from -pi to pi of the point (b, a) (zeros and infinities as in C). */
static inline mica_tensor mica_graph_atan2(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ATAN2, a, b, 0);
}
/* the hyperbolic sine of a. */
static inline mica_tensor mica_graph_sinh(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SINH, a, 0, 0);
}
/* the hyperbolic cosine of a. */
static inline mica_tensor mica_graph_cosh(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_COSH, a, 0, 0);
}
/* the hyperbolic tangent of a. */
static inline mica_tensor mica_graph_tanh(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_TANH, a, 0, 0);
}
/* the inverse of sinh. */
static inline mica_tensor mica_graph_asinh(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ASINH, a, 0, 0);
}
/* the inverse of cosh (below 1: NaN). */
static inline mica_tensor mica_graph_acosh(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ACOSH, a, 0, 0);
}
/* the inverse of tanh (1 and -1: infinite; beyond: NaN). */
static inline mica_tensor mica_graph_atanh(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ATANH, a, 0, 0);
}
/* 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to a. */
static inline mica_tensor mica_graph_erf(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ERF, a, 0, 0);
}
/* 1 - erf(a), exact where it is small. */
static inline mica_tensor mica_graph_erfc(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ERFC, a, 0, 0);
}
/* a / (1 + exp(-a)). */
static inline mica_tensor mica_graph_silu(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SILU, a, 0, 0);
}
/* 0.5 a (1 + tanh(clamp(0.7978845608 (a + 0.044715 a^3), -15, 15))). */
static inline mica_tensor mica_graph_gelu(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_GELU, a, 0, 0);
}
/* 0.5 a (1 + erf(a / sqrt(2))). */
static inline mica_tensor mica_graph_gelu_erf(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_GELU_ERF, a, 0, 0);
}
/* the greater of a and 0 (NaN: NaN). */
static inline mica_tensor mica_graph_relu(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_RELU, a, 0, 0);
}
/* relu(a)^2 (NaN: NaN). */
static inline mica_tensor mica_graph_relu_squared(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_RELU_SQUARED, a, 0, 0);
}
/* clamp(a + 3, 0, 6) / 6 (NaN: NaN). */
static inline mica_tensor mica_graph_hard_sigmoid(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_HARD_SIGMOID, a, 0, 0);
}
/* a clamp(a + 3, 0, 6) / 6 (-inf: NaN). */
static inline mica_tensor mica_graph_hard_swish(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_HARD_SWISH, a, 0, 0);
}
/* clamp(a, -1, 1) (NaN: NaN). */
static inline mica_tensor mica_graph_hard_tanh(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_HARD_TANH, a, 0, 0);
}
/* a / (1 + |a|) (infinite: NaN). */
static inline mica_tensor mica_graph_softsign(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SOFTSIGN, a, 0, 0);
}
/* log(1 + e^a). */
static inline mica_tensor mica_graph_softplus(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SOFTPLUS, a, 0, 0);
}
/* 1 / (1 + exp(-a)). */
static inline mica_tensor mica_graph_sigmoid(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SIGMOID, a, 0, 0);
}
/* log(sigmoid(a)). */
static inline mica_tensor mica_graph_log_sigmoid(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_LOG_SIGMOID, a, 0, 0);
}
/* a sigmoid(1.702 a) (-inf: NaN). */
static inline mica_tensor mica_graph_quick_gelu(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_QUICK_GELU, a, 0, 0);
}
/* a tanh(softplus(a)) (-inf: NaN). */
static inline mica_tensor mica_graph_mish(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_MISH, a, 0, 0);
}
/* 1.0507009873554805 (a > 0 ? a : 1.6732632423543772 (e^a - 1)). */
static inline mica_tensor mica_graph_selu(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SELU, a, 0, 0);
}
/* a == b. */
static inline mica_tensor mica_graph_equal(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_EQUAL, a, b, 0);
}
/* a != b (NaN: true). */
static inline mica_tensor mica_graph_not_equal(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_NOT_EQUAL, a, b, 0);
}
/* a < b (NaN: false). */
static inline mica_tensor mica_graph_less(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_LESS, a, b, 0);
}
/* a <= b (NaN: false). */
static inline mica_tensor mica_graph_less_equal(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_LESS_EQUAL, a, b, 0);
}
/* a > b (NaN: false). */
static inline mica_tensor mica_graph_greater(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_GREATER, a, b, 0);
}
/* a >= b (NaN: false). */
static inline mica_tensor mica_graph_greater_equal(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_GREATER_EQUAL, a, b, 0);
}
/* whether a is NaN. */
static inline mica_tensor mica_graph_isnan(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ISNAN, a, 0, 0);
}
/* whether a is infinite, of either sign. */
static inline mica_tensor mica_graph_isinf(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ISINF, a, 0, 0);
}
/* whether a is neither infinite nor NaN. */
static inline mica_tensor mica_graph_isfinite(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_ISFINITE, a, 0, 0);
}
/* a ? b : c (a is bool, b and c of one type, which is the result's). */
static inline mica_tensor mica_graph_select(mica_graph *graph, mica_tensor a, mica_tensor b, mica_tensor c)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SELECT, a, b, c);
}
/* a and b, bit by bit (bool: both). */
static inline mica_tensor mica_graph_bit_and(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_BIT_AND, a, b, 0);
}
/* a or b, bit by bit (bool: either). */
static inline mica_tensor mica_graph_bit_or(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_BIT_OR, a, b, 0);
}
/* a or b but not both, bit by bit. */
static inline mica_tensor mica_graph_bit_xor(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_BIT_XOR, a, b, 0);
}
/* not a, bit by bit (bool: not a). */
static inline mica_tensor mica_graph_bit_not(mica_graph *graph, mica_tensor a)
{
    return mica_graph_scalar(graph, MICA_SCALAR_BIT_NOT, a, 0, 0);
}
/* a * 2^b, wrapping (b outside [0, bits): 0). */
static inline mica_tensor mica_graph_shift_left(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SHIFT_LEFT, a, b, 0);
}
/* floor(a / 2^b) (b outside [0, bits): all copies of the sign). */
static inline mica_tensor mica_graph_shift_right(mica_graph *graph, mica_tensor a, mica_tensor b)
{
    return mica_graph_scalar(graph, MICA_SCALAR_SHIFT_RIGHT, a, b, 0);
}

/* clang-format on */
#ifdef __cplusplus
}
#endif
#endif
