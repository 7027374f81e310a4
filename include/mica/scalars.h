/*
 * scalars.h - scalar functions: the steps of regions (region.h), and one op for each that works on buffers alone.
 * Made by scripts/generate out of src/backend/scalars.def; change it there.
 *
 * The ops: inputs of one call load to one register type (region.h), which is among those that the op takes, and y is
 * stored from the type of the result. Any plain dtypes but c64, any strides; inputs broadcast to y's shape (dimensions
 * aligned at the last one, size 1 repeats). In place on an input of y's own shape and type. In f32 every function
 * rounds about as the formula would in f32; y rounds once more where it is smaller. Otherwise as ops.h says of all ops.
 */
#ifndef MICA_SCALARS_H
#define MICA_SCALARS_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif
/* clang-format off */

typedef enum mica_scalar {
    MICA_SCALAR_NONE = 0,
    /* the step's constant. */
    MICA_SCALAR_CONSTANT,
    /* the element's index along the step's axis, counted from the last axis. */
    MICA_SCALAR_INDEX,
    /* the imaginary part of a c64 input, which is the value it names. */
    MICA_SCALAR_IMAG,
    /* 64 random bits of counter a under key b: words 0 and 1 of Philox 4x32-10 with counter (a, 0) and key b. */
    MICA_SCALAR_RANDOM,
    /* a in another register type (from floats to integers: towards 0, NaN gives 0, the nearest end of the range
     * beyond it; between integers: the low bits, widened by the sign that a has; to bool: a != 0). */
    MICA_SCALAR_CAST,
    /* the bits of a as another register type of the same size. */
    MICA_SCALAR_BITS,
    /* a rounded to f16, to nearest even. */
    MICA_SCALAR_ROUND_F16,
    /* a rounded to bf16, to nearest even. */
    MICA_SCALAR_ROUND_BF16,
    /* a rounded to f8_e4m3, to nearest even (beyond 464: NaN). */
    MICA_SCALAR_ROUND_F8_E4M3,
    /* a rounded to f8_e5m2, to nearest even. */
    MICA_SCALAR_ROUND_F8_E5M2,
    /* a rounded as a store to e8m0 does. */
    MICA_SCALAR_ROUND_E8M0,
    /* a as a store to i8 keeps it. */
    MICA_SCALAR_WRAP_I8,
    /* a as a store to i16 keeps it. */
    MICA_SCALAR_WRAP_I16,
    /* a as a store to u8 keeps it. */
    MICA_SCALAR_WRAP_U8,
    /* a as a store to u16 keeps it. */
    MICA_SCALAR_WRAP_U16,
    /* a + b (integers wrap). */
    MICA_SCALAR_ADD,
    /* a - b (integers wrap). */
    MICA_SCALAR_SUB,
    /* a * b (integers wrap). */
    MICA_SCALAR_MUL,
    /* a / b (integers: towards 0; x / 0 is 0; the least one / -1 is itself). */
    MICA_SCALAR_DIV,
    /* the greater of a and b (NaN if either is; 0 is above -0). */
    MICA_SCALAR_MAX,
    /* the lesser of a and b (NaN if either is; -0 is below 0). */
    MICA_SCALAR_MIN,
    /* a - b trunc(a / b), exact (the sign of a, as fmod of C; x rem 0: NaN, of integers 0). */
    MICA_SCALAR_REM,
    /* a - b floor(a / b) (the sign of b, as % of Python; x mod 0: NaN, of integers 0). */
    MICA_SCALAR_MOD,
    /* a^b (special values as C's annex F has them: a^0 and 1^b are 1; below 0 with a fraction: NaN). */
    MICA_SCALAR_POW,
    /* -a (integers wrap). */
    MICA_SCALAR_NEG,
    /* |a| (integers wrap). */
    MICA_SCALAR_ABS,
    /* 1, -1 or a itself where it is 0 (NaN: NaN). */
    MICA_SCALAR_SIGN,
    /* a a (integers wrap). */
    MICA_SCALAR_SQUARE,
    /* 1 / a. */
    MICA_SCALAR_RECIPROCAL,
    /* the whole number nearest to a, of two the even one. */
    MICA_SCALAR_ROUND,
    /* the greatest whole number not above a. */
    MICA_SCALAR_FLOOR,
    /* the least whole number not below a. */
    MICA_SCALAR_CEIL,
    /* a without its fraction. */
    MICA_SCALAR_TRUNC,
    /* the square root of a (below 0: NaN). */
    MICA_SCALAR_SQRT,
    /* 1 / sqrt(a) (0: inf, of its sign; below: NaN). */
    MICA_SCALAR_RSQRT,
    /* e^a. */
    MICA_SCALAR_EXP,
    /* 2^a. */
    MICA_SCALAR_EXP2,
    /* e^a - 1, exact near 0. */
    MICA_SCALAR_EXPM1,
    /* the natural logarithm of a (0: -inf; below 0: NaN). */
    MICA_SCALAR_LOG,
    /* log(1 + a), exact near 0 (-1: -inf; below: NaN). */
    MICA_SCALAR_LOG1P,
    /* the logarithm of a to base 2 (0: -inf; below 0: NaN). */
    MICA_SCALAR_LOG2,
    /* the logarithm of a to base 10 (0: -inf; below 0: NaN). */
    MICA_SCALAR_LOG10,
    /* log(e^a + e^b) (two infinities of one sign: that one). */
    MICA_SCALAR_LOGADDEXP,
    /* the sine of a (infinite: NaN). */
    MICA_SCALAR_SIN,
    /* the cosine of a (infinite: NaN). */
    MICA_SCALAR_COS,
    /* the tangent of a (infinite: NaN). */
    MICA_SCALAR_TAN,
    /* the angle from -pi/2 to pi/2 whose sine is a (beyond 1: NaN). */
    MICA_SCALAR_ASIN,
    /* the angle from 0 to pi whose cosine is a (beyond 1: NaN). */
    MICA_SCALAR_ACOS,
    /* the angle from -pi/2 to pi/2 whose tangent is a. */
    MICA_SCALAR_ATAN,
    /* the angle from -pi to pi of the point (b, a) (zeros and infinities as in C). */
    MICA_SCALAR_ATAN2,
    /* the hyperbolic sine of a. */
    MICA_SCALAR_SINH,
    /* the hyperbolic cosine of a. */
    MICA_SCALAR_COSH,
    /* the hyperbolic tangent of a. */
    MICA_SCALAR_TANH,
    /* the inverse of sinh. */
    MICA_SCALAR_ASINH,
    /* the inverse of cosh (below 1: NaN). */
    MICA_SCALAR_ACOSH,
    /* the inverse of tanh (1 and -1: infinite; beyond: NaN). */
    MICA_SCALAR_ATANH,
    /* 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to a. */
    MICA_SCALAR_ERF,
    /* 1 - erf(a), exact where it is small. */
    MICA_SCALAR_ERFC,
    /* a / (1 + exp(-a)). */
    MICA_SCALAR_SILU,
    /* 0.5 a (1 + tanh(clamp(0.7978845608 (a + 0.044715 a^3), -15, 15))). */
    MICA_SCALAR_GELU,
    /* 0.5 a (1 + erf(a / sqrt(2))). */
    MICA_SCALAR_GELU_ERF,
    /* the greater of a and 0 (NaN: NaN). */
    MICA_SCALAR_RELU,
    /* relu(a)^2 (NaN: NaN). */
    MICA_SCALAR_RELU_SQUARED,
    /* clamp(a + 3, 0, 6) / 6 (NaN: NaN). */
    MICA_SCALAR_HARD_SIGMOID,
    /* a clamp(a + 3, 0, 6) / 6 (-inf: NaN). */
    MICA_SCALAR_HARD_SWISH,
    /* clamp(a, -1, 1) (NaN: NaN). */
    MICA_SCALAR_HARD_TANH,
    /* a / (1 + |a|) (infinite: NaN). */
    MICA_SCALAR_SOFTSIGN,
    /* log(1 + e^a). */
    MICA_SCALAR_SOFTPLUS,
    /* 1 / (1 + exp(-a)). */
    MICA_SCALAR_SIGMOID,
    /* log(sigmoid(a)). */
    MICA_SCALAR_LOG_SIGMOID,
    /* a sigmoid(1.702 a) (-inf: NaN). */
    MICA_SCALAR_QUICK_GELU,
    /* a tanh(softplus(a)) (-inf: NaN). */
    MICA_SCALAR_MISH,
    /* 1.0507009873554805 (a > 0 ? a : 1.6732632423543772 (e^a - 1)). */
    MICA_SCALAR_SELU,
    /* a > 0 ? a : a b. */
    MICA_SCALAR_LEAKY_RELU,
    /* a > 0 ? a : b (e^a - 1). */
    MICA_SCALAR_ELU,
    /* b tanh(a / b) (b > 0 and finite). */
    MICA_SCALAR_SOFTCAP,
    /* a == b. */
    MICA_SCALAR_EQUAL,
    /* a != b (NaN: true). */
    MICA_SCALAR_NOT_EQUAL,
    /* a < b (NaN: false). */
    MICA_SCALAR_LESS,
    /* a <= b (NaN: false). */
    MICA_SCALAR_LESS_EQUAL,
    /* a > b (NaN: false). */
    MICA_SCALAR_GREATER,
    /* a >= b (NaN: false). */
    MICA_SCALAR_GREATER_EQUAL,
    /* whether a is NaN. */
    MICA_SCALAR_ISNAN,
    /* whether a is infinite, of either sign. */
    MICA_SCALAR_ISINF,
    /* whether a is neither infinite nor NaN. */
    MICA_SCALAR_ISFINITE,
    /* a ? b : c (a is bool, b and c of one type, which is the result's). */
    MICA_SCALAR_SELECT,
    /* a and b, bit by bit (bool: both). */
    MICA_SCALAR_BIT_AND,
    /* a or b, bit by bit (bool: either). */
    MICA_SCALAR_BIT_OR,
    /* a or b but not both, bit by bit. */
    MICA_SCALAR_BIT_XOR,
    /* not a, bit by bit (bool: not a). */
    MICA_SCALAR_BIT_NOT,
    /* a * 2^b, wrapping (b outside [0, bits): 0). */
    MICA_SCALAR_SHIFT_LEFT,
    /* floor(a / 2^b) (b outside [0, bits): all copies of the sign). */
    MICA_SCALAR_SHIFT_RIGHT,
    MICA_SCALAR_COUNT
} mica_scalar;

/* y = a + b (integers wrap). Types: any numbers. */
MICA_API mica_status mica_add(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a - b (integers wrap). Types: any numbers. */
MICA_API mica_status mica_sub(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a * b (integers wrap). Types: any numbers. */
MICA_API mica_status mica_mul(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a / b (integers: towards 0; x / 0 is 0; the least one / -1 is itself). Types: any numbers. */
MICA_API mica_status mica_div(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = the greater of a and b (NaN if either is; 0 is above -0). Types: any numbers. */
MICA_API mica_status mica_max(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = the lesser of a and b (NaN if either is; -0 is below 0). Types: any numbers. */
MICA_API mica_status mica_min(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a - b trunc(a / b), exact (the sign of a, as fmod of C; x rem 0: NaN, of integers 0). Types: any numbers. */
MICA_API mica_status mica_rem(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a - b floor(a / b) (the sign of b, as % of Python; x mod 0: NaN, of integers 0). Types: any numbers. */
MICA_API mica_status mica_mod(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a^b (special values as C's annex F has them: a^0 and 1^b are 1; below 0 with a fraction: NaN). Types: f32,
 * on the cpu also f64. */
MICA_API mica_status mica_pow(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = -a (integers wrap). Types: f32, f64, i32 or i64. */
MICA_API mica_status mica_neg(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = |a| (integers wrap). Types: f32, f64, i32 or i64. */
MICA_API mica_status mica_abs(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = 1, -1 or a itself where it is 0 (NaN: NaN). Types: f32, f64, i32 or i64. */
MICA_API mica_status mica_sign(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = a a (integers wrap). Types: any numbers. */
MICA_API mica_status mica_square(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = 1 / a. Types: f32 or f64. */
MICA_API mica_status mica_reciprocal(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the whole number nearest to a, of two the even one. Types: f32 or f64. */
MICA_API mica_status mica_round(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the greatest whole number not above a. Types: f32 or f64. */
MICA_API mica_status mica_floor(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the least whole number not below a. Types: f32 or f64. */
MICA_API mica_status mica_ceil(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = a without its fraction. Types: f32 or f64. */
MICA_API mica_status mica_trunc(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the square root of a (below 0: NaN). Types: f32 or f64. */
MICA_API mica_status mica_sqrt(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = 1 / sqrt(a) (0: inf, of its sign; below: NaN). Types: f32 or f64. */
MICA_API mica_status mica_rsqrt(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = e^a. Types: f32 or f64. */
MICA_API mica_status mica_exp(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = 2^a. Types: f32, on the cpu also f64. */
MICA_API mica_status mica_exp2(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = e^a - 1, exact near 0. Types: f32 or f64. */
MICA_API mica_status mica_expm1(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the natural logarithm of a (0: -inf; below 0: NaN). Types: f32 or f64. */
MICA_API mica_status mica_log(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = log(1 + a), exact near 0 (-1: -inf; below: NaN). Types: f32 or f64. */
MICA_API mica_status mica_log1p(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the logarithm of a to base 2 (0: -inf; below 0: NaN). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_log2(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the logarithm of a to base 10 (0: -inf; below 0: NaN). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_log10(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = log(e^a + e^b) (two infinities of one sign: that one). Types: f32 or f64. */
MICA_API mica_status mica_logaddexp(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = the sine of a (infinite: NaN). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_sin(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the cosine of a (infinite: NaN). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_cos(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the tangent of a (infinite: NaN). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_tan(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the angle from -pi/2 to pi/2 whose sine is a (beyond 1: NaN). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_asin(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the angle from 0 to pi whose cosine is a (beyond 1: NaN). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_acos(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the angle from -pi/2 to pi/2 whose tangent is a. Types: f32, on the cpu also f64. */
MICA_API mica_status mica_atan(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the angle from -pi to pi of the point (b, a) (zeros and infinities as in C). Types: f32, on the cpu also
 * f64. */
MICA_API mica_status mica_atan2(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = the hyperbolic sine of a. Types: f32, on the cpu also f64. */
MICA_API mica_status mica_sinh(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the hyperbolic cosine of a. Types: f32, on the cpu also f64. */
MICA_API mica_status mica_cosh(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the hyperbolic tangent of a. Types: f32 or f64. */
MICA_API mica_status mica_tanh(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the inverse of sinh. Types: f32, on the cpu also f64. */
MICA_API mica_status mica_asinh(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the inverse of cosh (below 1: NaN). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_acosh(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the inverse of tanh (1 and -1: infinite; beyond: NaN). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_atanh(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to a. Types: f32, on the cpu also f64. */
MICA_API mica_status mica_erf(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = 1 - erf(a), exact where it is small. Types: f32, on the cpu also f64. */
MICA_API mica_status mica_erfc(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = a / (1 + exp(-a)). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_silu(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = 0.5 a (1 + tanh(clamp(0.7978845608 (a + 0.044715 a^3), -15, 15))). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_gelu(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = 0.5 a (1 + erf(a / sqrt(2))). Types: f32, on the cpu also f64. */
MICA_API mica_status mica_gelu_erf(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = the greater of a and 0 (NaN: NaN). Types: f32, f64, i32 or i64. */
MICA_API mica_status mica_relu(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = relu(a)^2 (NaN: NaN). Types: f32 or f64. */
MICA_API mica_status mica_relu_squared(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = clamp(a + 3, 0, 6) / 6 (NaN: NaN). Types: f32 or f64. */
MICA_API mica_status mica_hard_sigmoid(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = a clamp(a + 3, 0, 6) / 6 (-inf: NaN). Types: f32 or f64. */
MICA_API mica_status mica_hard_swish(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = clamp(a, -1, 1) (NaN: NaN). Types: f32 or f64. */
MICA_API mica_status mica_hard_tanh(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = a / (1 + |a|) (infinite: NaN). Types: f32 or f64. */
MICA_API mica_status mica_softsign(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = log(1 + e^a). Types: f32 or f64. */
MICA_API mica_status mica_softplus(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = 1 / (1 + exp(-a)). Types: f32 or f64. */
MICA_API mica_status mica_sigmoid(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = log(sigmoid(a)). Types: f32 or f64. */
MICA_API mica_status mica_log_sigmoid(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = a sigmoid(1.702 a) (-inf: NaN). Types: f32 or f64. */
MICA_API mica_status mica_quick_gelu(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = a tanh(softplus(a)) (-inf: NaN). Types: f32 or f64. */
MICA_API mica_status mica_mish(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = 1.0507009873554805 (a > 0 ? a : 1.6732632423543772 (e^a - 1)). Types: f32 or f64. */
MICA_API mica_status mica_selu(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = a == b. Types: any type; y bool. */
MICA_API mica_status mica_equal(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a != b (NaN: true). Types: any type; y bool. */
MICA_API mica_status mica_not_equal(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a < b (NaN: false). Types: any numbers; y bool. */
MICA_API mica_status mica_less(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a <= b (NaN: false). Types: any numbers; y bool. */
MICA_API mica_status mica_less_equal(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a > b (NaN: false). Types: any numbers; y bool. */
MICA_API mica_status mica_greater(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a >= b (NaN: false). Types: any numbers; y bool. */
MICA_API mica_status mica_greater_equal(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = whether a is NaN. Types: f32 or f64; y bool. */
MICA_API mica_status mica_isnan(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = whether a is infinite, of either sign. Types: f32 or f64; y bool. */
MICA_API mica_status mica_isinf(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = whether a is neither infinite nor NaN. Types: f32 or f64; y bool. */
MICA_API mica_status mica_isfinite(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = a ? b : c (a is bool, b and c of one type, which is the result's). Types: a bool, b and c any type. */
MICA_API mica_status mica_select(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *c,
                                 mica_buffer *y);
/* y = a and b, bit by bit (bool: both). Types: any integers or bool. */
MICA_API mica_status mica_bit_and(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a or b, bit by bit (bool: either). Types: any integers or bool. */
MICA_API mica_status mica_bit_or(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a or b but not both, bit by bit. Types: any integers or bool. */
MICA_API mica_status mica_bit_xor(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = not a, bit by bit (bool: not a). Types: any integers or bool. */
MICA_API mica_status mica_bit_not(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);
/* y = a * 2^b, wrapping (b outside [0, bits): 0). Types: any integers. */
MICA_API mica_status mica_shift_left(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = floor(a / 2^b) (b outside [0, bits): all copies of the sign). Types: any integers. */
MICA_API mica_status mica_shift_right(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);

/* clang-format on */
#ifdef __cplusplus
}
#endif
#endif
