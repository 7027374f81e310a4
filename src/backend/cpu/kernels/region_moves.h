/*
 * region_moves.h - how elements come into tiles and out of them: a function for every type of memory.
 *
 * Loads widen to the register of the type, stores round or wrap to it. Slots never lie where operands do.
 */
#ifndef MICA_CPU_REGION_MOVES_H
#define MICA_CPU_REGION_MOVES_H

#include "backend/cpu/kernels/region_steps.h"
#include "backend/cpu/kernels/rows.h"

typedef void (*region_load)(void *restrict to, const unsigned char *restrict from, uint64_t stride,
                            uint64_t n);
typedef void (*region_store)(unsigned char *restrict to, uint64_t stride, const void *restrict from,
                             uint64_t n);
typedef void (*region_index)(void *to, uint64_t start, uint64_t by, uint64_t n);

/* M in memory, R in registers. */
#define REGION_MOVE(D, M, R, widened, narrowed)                                                              \
    static void load_##D(void *restrict to, const unsigned char *restrict from, uint64_t stride, uint64_t n) \
    {                                                                                                        \
        REGION_C_##R *value = to;                                                                            \
        if (stride == sizeof(M)) /* a constant, so that these are whole vectors */                           \
            for (uint64_t i = 0; i < n; i++) {                                                               \
                const M a = ((const M *)(const void *)from)[i];                                              \
                value[i] = (REGION_C_##R)(widened);                                                          \
            }                                                                                                \
        else                                                                                                 \
            for (uint64_t i = 0; i < n; i++) {                                                               \
                const M a = *(const M *)(const void *)(from + i * stride);                                   \
                value[i] = (REGION_C_##R)(widened);                                                          \
            }                                                                                                \
    }                                                                                                        \
    static void store_##D(unsigned char *restrict to, uint64_t stride, const void *restrict from,            \
                          uint64_t n)                                                                        \
    {                                                                                                        \
        const REGION_C_##R *value = from;                                                                    \
        if (stride == sizeof(M))                                                                             \
            for (uint64_t i = 0; i < n; i++) {                                                               \
                const REGION_C_##R a = value[i];                                                             \
                ((M *)(void *)to)[i] = (M)(narrowed);                                                        \
            }                                                                                                \
        else                                                                                                 \
            for (uint64_t i = 0; i < n; i++) {                                                               \
                const REGION_C_##R a = value[i];                                                             \
                *(M *)(void *)(to + i * stride) = (M)(narrowed);                                             \
            }                                                                                                \
    }
REGION_MOVE(F32, float, F32, a, a)
REGION_MOVE(F64, double, F64, a, a)
REGION_MOVE(F8_E4M3, uint8_t, F32, mica__f8_e4m3_to_f32(a), mica__f32_to_f8_e4m3(a))
REGION_MOVE(F8_E5M2, uint8_t, F32, mica__f8_e5m2_to_f32(a), mica__f32_to_f8_e5m2(a))
REGION_MOVE(E8M0, uint8_t, F32, mica__e8m0_to_f32(a), mica__f32_to_e8m0(a))
REGION_MOVE(I8, int8_t, I32, a, a)
REGION_MOVE(I16, int16_t, I32, a, a)
REGION_MOVE(I32, int32_t, I32, a, a)
REGION_MOVE(I64, int64_t, I64, a, a)
REGION_MOVE(U8, uint8_t, U32, a, a)
REGION_MOVE(U16, uint16_t, U32, a, a)
REGION_MOVE(U32, uint32_t, U32, a, a)
REGION_MOVE(U64, uint64_t, U64, a, a)
REGION_MOVE(BOOL, uint8_t, BOOL, a != 0, a)

/* f16 and bf16 have instructions of their own. */
#define REGION_MOVE_HALF(D)                                                                                  \
    static void load_##D(void *restrict to, const unsigned char *restrict from, uint64_t stride, uint64_t n) \
    {                                                                                                        \
        row_f32_strided(from, MICA_DTYPE_##D, stride, n, to);                                                \
    }                                                                                                        \
    static void store_##D(unsigned char *restrict to, uint64_t stride, const void *restrict from,            \
                          uint64_t n)                                                                        \
    {                                                                                                        \
        row_store_strided(to, MICA_DTYPE_##D, stride, from, n);                                              \
    }
REGION_MOVE_HALF(F16)
REGION_MOVE_HALF(BF16)

#define REGION_TYPES(M) \
    M(F32)              \
    M(F64)              \
    M(F16) M(BF16) M(F8_E4M3) M(F8_E5M2) M(E8M0) M(I8) M(I16) M(I32) M(I64) M(U8) M(U16) M(U32) M(U64) M(BOOL)
static const region_load region_loads[MICA_DTYPE_COUNT] = {
#define REGION_TYPE(D) [MICA_DTYPE_##D] = load_##D,
    REGION_TYPES(REGION_TYPE)[MICA_DTYPE_C64] = load_F32};
#undef REGION_TYPE
static const region_store region_stores[MICA_DTYPE_COUNT] = {
#define REGION_TYPE(D) [MICA_DTYPE_##D] = store_##D,
    REGION_TYPES(REGION_TYPE)[MICA_DTYPE_C64] = store_F32};
#undef REGION_TYPE

/* ---- what is no operand ---- */

#define REGION_INDEX(R)                                                      \
    static void index_##R(void *to, uint64_t start, uint64_t by, uint64_t n) \
    {                                                                        \
        REGION_C_##R *value = to;                                            \
        for (uint64_t i = 0; i < n; i++)                                     \
            value[i] = (REGION_C_##R)(start + i * by);                       \
    }
REGION_INDEX(I32)
REGION_INDEX(U32)
REGION_INDEX(I64)
REGION_INDEX(U64)
REGION_INDEX(BOOL)

/* A constant is an index that does not grow: of its bits. */
static const region_index region_indices[MICA_REGISTER_COUNT] = {
    [MICA_REGISTER_F32] = index_U32,  [MICA_REGISTER_F64] = index_U64, [MICA_REGISTER_I32] = index_I32,
    [MICA_REGISTER_U32] = index_U32,  [MICA_REGISTER_I64] = index_I64, [MICA_REGISTER_U64] = index_U64,
    [MICA_REGISTER_BOOL] = index_BOOL};

#endif
