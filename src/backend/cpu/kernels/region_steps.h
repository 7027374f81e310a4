/*
 * region_steps.h - one function for every scalar and register type: scalars.def written out as loops over a tile.
 *
 * f32 goes through whole vectors where the table has a vector formula; everything else is a plain loop, which the compiler
 * makes vectors of. A result may lie where one of its values lies, if their elements have one size. Registers of bool
 * are bytes of 0 or 1. Integers wrap: the file is compiled so.
 */
#ifndef MICA_CPU_REGION_STEPS_H
#define MICA_CPU_REGION_STEPS_H

#include <math.h>

#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/philox.h"
#include "backend/cpu/kernels/simd/functions.h"
#include "backend/cpu/kernels/simd/simd.h"

typedef void (*region_step)(void *to, const void *x, const void *y, const void *z, uint64_t n);

/* Iterations do not depend on one another: what is written at i was read at i alone. */
#if defined(__clang__)
#define REGION_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define REGION_LOOP _Pragma("GCC ivdep")
#endif

/* ---- what plain formulas call ---- */

/* `negative`: whether a is, which an unsigned one never is. U is T without a sign. */
#define REGION_INTEGER(T, U, name, negative)                                       \
    static inline T name##_div(T a, T b)                                           \
    {                                                                              \
        return b == 0 ? 0 : (T)-1 < (T)1 && b == (T)-1 ? (T)(0 - a) : (T)(a / b);  \
    }                                                                              \
    static inline T name##_rem(T a, T b)                                           \
    {                                                                              \
        return b == 0 || ((T)-1 < (T)1 && b == (T)-1) ? 0 : (T)(a % b);            \
    }                                                                              \
    static inline T name##_mod(T a, T b)                                           \
    {                                                                              \
        const T r = name##_rem(a, b);                                              \
        const U apart = ((U)r ^ (U)b) >> (8 * sizeof(T) - 1);                      \
        return (T)-1 < (T)1 && r != 0 && apart != 0 ? (T)(r + b) : r;              \
    }                                                                              \
    static inline T name##_max(T a, T b)                                           \
    {                                                                              \
        return a > b ? a : b;                                                      \
    }                                                                              \
    static inline T name##_min(T a, T b)                                           \
    {                                                                              \
        return a < b ? a : b;                                                      \
    }                                                                              \
    static inline T name##_not(T a)                                                \
    {                                                                              \
        return ~a;                                                                 \
    }                                                                              \
    static inline T name##_shift_left(T a, T b)                                    \
    {                                                                              \
        const U bits = 8 * sizeof(T), by = (U)b;                                   \
        return by < bits ? (T)((U)a << (by & (bits - 1))) : 0;                     \
    }                                                                              \
    static inline T name##_shift_right(T a, T b)                                   \
    {                                                                              \
        const U bits = 8 * sizeof(T), by = (U)b;                                   \
        return by < bits ? (T)(a >> (by & (bits - 1))) : (T)((negative) ? -1 : 0); \
    }
/* Of what is below 0 both compilers shift the sign in. */
// cppcheck-suppress shiftTooManyBitsSigned
REGION_INTEGER(int32_t, uint32_t, plain_i32, a < 0)
// cppcheck-suppress shiftTooManyBitsSigned
REGION_INTEGER(int64_t, uint64_t, plain_i64, a < 0)
REGION_INTEGER(uint32_t, uint32_t, plain_u32, 0)
REGION_INTEGER(uint64_t, uint64_t, plain_u64, 0)

static inline int32_t plain_i32_abs(int32_t a)
{
    return a < 0 ? -a : a;
}

static inline int64_t plain_i64_abs(int64_t a)
{
    return a < 0 ? -a : a;
}

static inline double plain_f64_div(double a, double b)
{
    return a / b;
}

static inline double plain_f64_max(double a, double b)
{
    return a > b || (a == b && !signbit(a)) ? a : b >= a ? b : a + b;
}

static inline double plain_f64_min(double a, double b)
{
    return a < b || (a == b && signbit(a)) ? a : b <= a ? b : a + b;
}

static inline double plain_f64_mod(double a, double b)
{
    const double r = fmod(a, b);
    return r == 0 ? copysign(0, b) : (r < 0) != (b < 0) ? r + b : r;
}

static inline double plain_within(double a, double low, double high)
{
    return a < low ? low : a > high ? high : a;
}

static inline double plain_sigmoid(double a)
{
    const double e = exp(-fabs(a));
    return (a < 0 ? e : 1) / (1 + e);
}

static inline double plain_f64_abs(double a)
{
    return fabs(a);
}

static inline uint8_t plain_bool_not(uint8_t a)
{
    return !a;
}

#define PLAIN_INTEGER(name) \
    int32_t:                \
    plain_i32_##name, int64_t : plain_i64_##name, uint32_t : plain_u32_##name, uint64_t : plain_u64_##name
#define plain_div(a, b) _Generic((a), double : plain_f64_div, PLAIN_INTEGER(div))(a, b)
#define plain_rem(a, b) _Generic((a), double : fmod, PLAIN_INTEGER(rem))(a, b)
#define plain_mod(a, b) _Generic((a), double : plain_f64_mod, PLAIN_INTEGER(mod))(a, b)
#define plain_sign(a) (a > 0 ? 1 : a < 0 ? -1 : a)
#define plain_max(a, b) _Generic((a), double : plain_f64_max, PLAIN_INTEGER(max))(a, b)
#define plain_min(a, b) _Generic((a), double : plain_f64_min, PLAIN_INTEGER(min))(a, b)
#define plain_abs(a) \
    _Generic((a), double : plain_f64_abs, int32_t : plain_i32_abs, int64_t : plain_i64_abs)(a)
#define plain_not(a) _Generic((a), uint8_t : plain_bool_not, PLAIN_INTEGER(not ))(a)
#define plain_shift_left(a, b) _Generic((a), PLAIN_INTEGER(shift_left))(a, b)
#define plain_shift_right(a, b) _Generic((a), PLAIN_INTEGER(shift_right))(a, b)

/* ---- the loops ---- */

#define REGION_C_F32 float
#define REGION_C_F64 double
#define REGION_C_I32 int32_t
#define REGION_C_U32 uint32_t
#define REGION_C_I64 int64_t
#define REGION_C_U64 uint64_t
#define REGION_C_BOOL uint8_t
/* The type of a result, where R is what went in. */
#define REGION_OUT_SAME(R) REGION_C_##R
#define REGION_OUT_BOOL(R) uint8_t
#define REGION_SECOND(a, b, ...) b
#define REGION_PICK(...) REGION_SECOND(__VA_ARGS__)
/* The type of the first value: bool where a choice is made by it. Picked apart, as what REGION_PICK picks asks for it. */
#define REGION_TYPE_SECOND(a, b, ...) b
#define REGION_TYPE_PICK(...) REGION_TYPE_SECOND(__VA_ARGS__)
#define REGION_CHOICE_select ~, uint8_t
#define REGION_FIRST_TYPE(name, R) REGION_TYPE_PICK(REGION_CHOICE_##name, REGION_C_##R, ~)

#define REGION_PLAIN_1(name, R) const REGION_C_##R a = ((const REGION_C_##R *)x)[i];
#define REGION_PLAIN_2(name, R)                                                      \
    const REGION_FIRST_TYPE(name, R) a = ((const REGION_FIRST_TYPE(name, R) *)x)[i]; \
    const REGION_C_##R b = ((const REGION_C_##R *)y)[i];
#define REGION_PLAIN_3(name, R) \
    REGION_PLAIN_2(name, R)     \
    const REGION_C_##R c = ((const REGION_C_##R *)z)[i];

#define REGION_MAKE_PLAIN(name, R, arity, out, vector, plain)                                           \
    static void step_##name##_##R(void *to, const void *x, const void *y, const void *z, uint64_t n)    \
    {                                                                                                   \
        (void)y, (void)z;                                                                               \
        REGION_LOOP for (uint64_t i = 0; i < n; i++)                                                    \
        {                                                                                               \
            REGION_PLAIN_##arity(name, R)((REGION_OUT_##out(R) *)to)[i] = (REGION_OUT_##out(R))(plain); \
        }                                                                                               \
    }

#define REGION_LOAD_1(load) const vf a = load(x)
#define REGION_LOAD_2(load) \
    REGION_LOAD_1(load);    \
    const vf b = load(y)
#define REGION_WHOLE(p) vf_load((const float *)p + i)
#define REGION_PART(p) vf_load_n((const float *)p + i, n - i)

#define REGION_MAKE_VECTOR(name, R, arity, out, vector, plain)                                       \
    static void step_##name##_##R(void *to, const void *x, const void *y, const void *z, uint64_t n) \
    {                                                                                                \
        (void)y, (void)z;                                                                            \
        uint64_t i = 0;                                                                              \
        for (; i + VW <= n; i += VW) {                                                               \
            REGION_LOAD_##arity(REGION_WHOLE);                                                       \
            vf_store((float *)to + i, vector);                                                       \
        }                                                                                            \
        if (i < n) {                                                                                 \
            REGION_LOAD_##arity(REGION_PART);                                                        \
            vf_store_n((float *)to + i, vector, n - i);                                              \
        }                                                                                            \
    }

/* f32 has a vector formula, unless the table says NONE. */
#define REGION_WAY_NONE ~, REGION_MAKE_PLAIN
#define REGION_MAKE_F32(name, arity, out, vector, plain) \
    REGION_PICK(REGION_WAY_##vector, REGION_MAKE_VECTOR, ~)(name, F32, arity, out, vector, plain)
#define REGION_MAKE_F64(...) REGION_MAKE_OTHER(F64, __VA_ARGS__)
#define REGION_MAKE_I32(...) REGION_MAKE_OTHER(I32, __VA_ARGS__)
#define REGION_MAKE_U32(...) REGION_MAKE_OTHER(U32, __VA_ARGS__)
#define REGION_MAKE_I64(...) REGION_MAKE_OTHER(I64, __VA_ARGS__)
#define REGION_MAKE_U64(...) REGION_MAKE_OTHER(U64, __VA_ARGS__)
#define REGION_MAKE_BOOL(...) REGION_MAKE_OTHER(BOOL, __VA_ARGS__)
#define REGION_MAKE_OTHER(R, name, arity, out, vector, plain) \
    REGION_MAKE_PLAIN(name, R, arity, out, vector, plain)

/* The sets of types that scalars.def names. */
#define REGION_EACH_F32(M, ...) M##_F32(__VA_ARGS__)
#define REGION_EACH_FLOAT(M, ...) M##_F32(__VA_ARGS__) M##_F64(__VA_ARGS__)
#define REGION_EACH_REAL(M, ...) REGION_EACH_FLOAT(M, __VA_ARGS__)
#define REGION_EACH_SIGNED(M, ...) REGION_EACH_FLOAT(M, __VA_ARGS__) M##_I32(__VA_ARGS__) M##_I64(__VA_ARGS__)
#define REGION_EACH_INTEGER(M, ...) \
    M##_I32(__VA_ARGS__) M##_U32(__VA_ARGS__) M##_I64(__VA_ARGS__) M##_U64(__VA_ARGS__)
#define REGION_EACH_WORD(M, ...) REGION_EACH_INTEGER(M, __VA_ARGS__) M##_BOOL(__VA_ARGS__)
#define REGION_EACH_NUMBER(M, ...) REGION_EACH_FLOAT(M, __VA_ARGS__) REGION_EACH_INTEGER(M, __VA_ARGS__)
#define REGION_EACH_ANY(M, ...) REGION_EACH_NUMBER(M, __VA_ARGS__) M##_BOOL(__VA_ARGS__)

/* f32 scalars of one value, times another value: gates are such, and one loop is quicker than two. */
#define REGION_PRODUCT_1(name, vector) REGION_MAKE_VECTOR(name, PRODUCT, 2, SAME, vf_mul(vector, b), NONE)
#define REGION_PRODUCT_ROW_1(name, vector) \
    [MICA__CPU_REGION_PRODUCT_OF(MICA__SCALAR_##name)] = step_##name##_PRODUCT,
#define REGION_NOTHING(name, vector)
#define REGION_PRODUCT_2 REGION_NOTHING
#define REGION_PRODUCT_3 REGION_NOTHING
#define REGION_PRODUCT_ROW_2 REGION_NOTHING
#define REGION_PRODUCT_ROW_3 REGION_NOTHING
#define REGION_VECTOR_WAY_NONE ~, REGION_NOTHING
/* M_arity of a row that has a vector formula. */
#define REGION_IF_VECTOR(M, name, arity, vector) \
    REGION_PICK(REGION_VECTOR_WAY_##vector, M##_##arity, ~)(name, vector)

#define STEP(...)
#define STEP_OF(name, arity, in, out, operations, vector, plain, kernel, formula, domain, derivative)    \
    REGION_EACH_##in(REGION_MAKE, name, arity, out, vector, plain)REGION_IF_VECTOR(REGION_PRODUCT, name, \
                                                                                   arity, vector)
#define PUBLIC STEP_OF
#include "backend/scalars.def"
#undef STEP
#undef STEP_OF
#undef PUBLIC

/* ---- the rows of the table without formulas ---- */

static inline vf vf_round_f16(vf a)
{
    uint16_t half[VW];
    vf_store_f16(half, a);
    return vf_load_f16(half);
}

static inline vf vf_round_bf16(vf a)
{
    uint16_t half[VW];
    vf_store_bf16(half, a);
    return vf_load_bf16(half);
}

REGION_MAKE_VECTOR(round_f16, F32, 1, SAME, vf_round_f16(a), NONE)
REGION_MAKE_VECTOR(round_bf16, F32, 1, SAME, vf_round_bf16(a), NONE)
REGION_MAKE_PLAIN(round_f8_e4m3, F32, 1, SAME, NONE, mica__f8_e4m3_to_f32(mica__f32_to_f8_e4m3(a)))
REGION_MAKE_PLAIN(round_f8_e5m2, F32, 1, SAME, NONE, mica__f8_e5m2_to_f32(mica__f32_to_f8_e5m2(a)))
REGION_MAKE_PLAIN(round_e8m0, F32, 1, SAME, NONE, mica__e8m0_to_f32(mica__f32_to_e8m0(a)))
REGION_MAKE_PLAIN(wrap_i8, I32, 1, SAME, NONE, (int8_t)a)
REGION_MAKE_PLAIN(wrap_i16, I32, 1, SAME, NONE, (int16_t)a)
REGION_MAKE_PLAIN(wrap_u8, U32, 1, SAME, NONE, (uint8_t)a)
REGION_MAKE_PLAIN(wrap_u16, U32, 1, SAME, NONE, (uint16_t)a)
REGION_MAKE_PLAIN(random, U64, 2, SAME, NONE, philox_bits(a, b))

/* ---- casts ---- */

/* Towards 0, NaN to 0, the nearest end of the range beyond it. `top` is the first power of two above the range. */
#define REGION_TO_INTEGER(from, T, name, least, most, top)                      \
    static inline T name(from a)                                                \
    {                                                                           \
        const from in = a >= (from)(least) && a < (from)(top) ? a : 0;          \
        return a >= (from)(top) ? (most) : a < (from)(least) ? (least) : (T)in; \
    }
REGION_TO_INTEGER(float, int32_t, f32_to_I32, INT32_MIN, INT32_MAX, 0x1p31)
REGION_TO_INTEGER(float, uint32_t, f32_to_U32, 0, UINT32_MAX, 0x1p32)
REGION_TO_INTEGER(float, int64_t, f32_to_I64, INT64_MIN, INT64_MAX, 0x1p63)
REGION_TO_INTEGER(float, uint64_t, f32_to_U64, 0, UINT64_MAX, 0x1p64)
REGION_TO_INTEGER(double, int32_t, f64_to_I32, INT32_MIN, INT32_MAX, 0x1p31)
REGION_TO_INTEGER(double, uint32_t, f64_to_U32, 0, UINT32_MAX, 0x1p32)
REGION_TO_INTEGER(double, int64_t, f64_to_I64, INT64_MIN, INT64_MAX, 0x1p63)
REGION_TO_INTEGER(double, uint64_t, f64_to_U64, 0, UINT64_MAX, 0x1p64)

#define REGION_INTEGER_OF(R) \
    _Generic((a), float : f32_to_##R(a), double : f64_to_##R(a), default : (REGION_C_##R)a)

#define REGION_CAST(from, R, value)                                                                  \
    static void cast_##from##_##R(void *to, const void *x, const void *y, const void *z, uint64_t n) \
    {                                                                                                \
        (void)y, (void)z;                                                                            \
        REGION_LOOP for (uint64_t i = 0; i < n; i++)                                                 \
        {                                                                                            \
            const REGION_C_##from a = ((const REGION_C_##from *)x)[i];                               \
            ((REGION_C_##R *)to)[i] = (REGION_C_##R)(value);                                         \
        }                                                                                            \
    }
#define REGION_CASTS(R, value) \
    REGION_CAST(F32, R, value) \
    REGION_CAST(F64, R, value) \
    REGION_CAST(I32, R, value) \
    REGION_CAST(U32, R, value) \
    REGION_CAST(I64, R, value) REGION_CAST(U64, R, value) REGION_CAST(BOOL, R, value)
REGION_CASTS(F32, a)
REGION_CASTS(F64, a)
REGION_CASTS(I32, REGION_INTEGER_OF(I32))
REGION_CASTS(U32, REGION_INTEGER_OF(U32))
REGION_CASTS(I64, REGION_INTEGER_OF(I64))
REGION_CASTS(U64, REGION_INTEGER_OF(U64))
REGION_CASTS(BOOL, a != 0)

/* ---- all of them by number: cpu_params.h has the order ---- */

#define REGION_ROW(name, R) \
    [MICA__CPU_REGION_STEP_OF(MICA__SCALAR_##name, MICA_REGISTER_##R)] = step_##name##_##R,
#define REGION_ROW_F32(name) REGION_ROW(name, F32)
#define REGION_ROW_F64(name) REGION_ROW(name, F64)
#define REGION_ROW_I32(name) REGION_ROW(name, I32)
#define REGION_ROW_U32(name) REGION_ROW(name, U32)
#define REGION_ROW_I64(name) REGION_ROW(name, I64)
#define REGION_ROW_U64(name) REGION_ROW(name, U64)
#define REGION_ROW_BOOL(name) REGION_ROW(name, BOOL)
#define REGION_CAST_ROW(from, R) \
    [MICA__CPU_REGION_CAST_OF(MICA_REGISTER_##from, MICA_REGISTER_##R)] = cast_##from##_##R,
#define REGION_CAST_ROWS(R) \
    REGION_CAST_ROW(F32, R) \
    REGION_CAST_ROW(F64, R) \
    REGION_CAST_ROW(I32, R) \
    REGION_CAST_ROW(U32, R) \
    REGION_CAST_ROW(I64, R) REGION_CAST_ROW(U64, R) REGION_CAST_ROW(BOOL, R)

static const region_step region_steps[MICA__CPU_REGION_CAST_OF(MICA_REGISTER_COUNT, 0)] = {
#define STEP(...)
#define STEP_OF(name, arity, in, out, operations, vector, plain, kernel, formula, domain, derivative) \
    REGION_EACH_##in(REGION_ROW, name)REGION_IF_VECTOR(REGION_PRODUCT_ROW, name, arity, vector)
#define PUBLIC STEP_OF
#include "backend/scalars.def"
#undef STEP
#undef STEP_OF
#undef PUBLIC
    REGION_ROW(round_f16, F32) REGION_ROW(round_bf16, F32) REGION_ROW(round_f8_e4m3, F32)
        REGION_ROW(round_f8_e5m2, F32) REGION_ROW(round_e8m0, F32) REGION_ROW(wrap_i8, I32)
            REGION_ROW(wrap_i16, I32) REGION_ROW(wrap_u8, U32) REGION_ROW(wrap_u16, U32)
                REGION_ROW(random, U64) REGION_CAST_ROWS(F32) REGION_CAST_ROWS(F64) REGION_CAST_ROWS(I32)
                    REGION_CAST_ROWS(U32) REGION_CAST_ROWS(I64) REGION_CAST_ROWS(U64) REGION_CAST_ROWS(BOOL)};

#endif
