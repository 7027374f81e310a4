/*
 * region_blocks.h - programs of f32 alone, in registers: a block is some vectors that go from one function to the next.
 *
 * A function works on the block with what it finds in memory, and jumps to the function of the next entry: a value that the
 * next step takes is never stored. Where steps work on tiles, each is a pass over the cache, and memory waits meanwhile.
 */
#ifndef MICA_CPU_REGION_BLOCKS_H
#define MICA_CPU_REGION_BLOCKS_H

#include "backend/cpu/kernels/region_steps.h"

/* The vectors are arguments of their own, so that they stay in registers. M(j) of each vector j. */
#if MICA__ISA_LEVEL == 3
#define BLOCK (8 * VW) /* elements */
#define BLOCK_EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define BLOCK_PARAMETERS vf v0, vf v1, vf v2, vf v3, vf v4, vf v5, vf v6, vf v7
#define BLOCK_ARGUMENTS v0, v1, v2, v3, v4, v5, v6, v7
#define BLOCK_VECTORS
#elif MICA__ISA_LEVEL == 2
#define BLOCK (4 * VW)
#define BLOCK_EACH(M) M(0) M(1) M(2) M(3)
#define BLOCK_PARAMETERS vf v0, vf v1, vf v2, vf v3
#define BLOCK_ARGUMENTS v0, v1, v2, v3
#define BLOCK_VECTORS
#else
#define BLOCK (4 * VW)
#define BLOCK_EACH(M) M(0) M(1) M(2) M(3)
#define BLOCK_PARAMETERS \
    mica__f4 l0, mica__f4 h0, mica__f4 l1, mica__f4 h1, mica__f4 l2, mica__f4 h2, mica__f4 l3, mica__f4 h3
#define BLOCK_ARGUMENTS v0.lo, v0.hi, v1.lo, v1.hi, v2.lo, v2.hi, v3.lo, v3.hi
#define BLOCK_VECTORS vf v0 = {l0, h0}, v1 = {l1, h1}, v2 = {l2, h2}, v3 = {l3, h3};
#endif

typedef struct region_block region_block;
typedef void (*region_block_run)(const region_block *entry, unsigned char *const *place, BLOCK_PARAMETERS);
struct region_block {
    region_block_run run;
    uint64_t place;
};

/* A function that does `each` to every vector of the block; `at` is the place in memory, `formula` what is called with it. */
#define BLOCK_FUNCTION(name, types, called, each)                                              \
    static void name(const region_block *entry, unsigned char *const *place, BLOCK_PARAMETERS) \
    {                                                                                          \
        BLOCK_VECTORS                                                                          \
        unsigned char *const at = place[entry->place];                                         \
        vf(*const formula) types = called;                                                     \
        (void)at, (void)formula;                                                               \
        BLOCK_EACH(each)                                                                       \
        entry[1].run(entry + 1, place, BLOCK_ARGUMENTS);                                       \
    }
#define BLOCK_MOVE(name, each) BLOCK_FUNCTION(name, (void), NULL, each)

/* Loads run ahead of the functions that come before them: a block's rows would come too late by themselves. Once a line: what the
 * block has met is in the first-level cache. */
#define BLOCK_AHEAD 2048 /* bytes */
#define BLOCK_NEAR(j, bytes) \
    ((bytes)*VW * (j) % 64 == 0 ? __builtin_prefetch(at + BLOCK_AHEAD + (bytes)*VW * (j)) : (void)0)
#define BLOCK_MEMORY_MET(j) vf_load(at + 4 * VW * (j))
#define BLOCK_MEMORY_F32(j) (BLOCK_NEAR(j, 4), vf_load(at + 4 * VW * (j)))
#define BLOCK_MEMORY_F16(j) (BLOCK_NEAR(j, 2), vf_load_f16(at + 2 * VW * (j)))
#define BLOCK_MEMORY_BF16(j) (BLOCK_NEAR(j, 2), vf_load_bf16(at + 2 * VW * (j)))
#define BLOCK_LOAD_MET(j) v##j = BLOCK_MEMORY_MET(j);
#define BLOCK_LOAD_F32(j) v##j = BLOCK_MEMORY_F32(j);
#define BLOCK_LOAD_F16(j) v##j = BLOCK_MEMORY_F16(j);
#define BLOCK_LOAD_BF16(j) v##j = BLOCK_MEMORY_BF16(j);
#define BLOCK_STORE_F32(j) vf_store(at + 4 * VW * (j), v##j);
#define BLOCK_STORE_F16(j) vf_store_f16(at + 2 * VW * (j), v##j);
#define BLOCK_STORE_BF16(j) vf_store_bf16(at + 2 * VW * (j), v##j);
/* Past the caches, whole lines that are not read before: for outputs of which nothing would be left there. */
#if MICA__ISA_LEVEL == 3
#define BLOCK_STREAM_F32(j) _mm512_stream_ps((float *)(void *)(at + 4 * VW * (j)), v##j);
#elif MICA__ISA_LEVEL == 2
#define BLOCK_STREAM_F32(j) _mm256_stream_ps((float *)(void *)(at + 4 * VW * (j)), v##j);
#else
#define BLOCK_STREAM_F32 BLOCK_STORE_F32
#endif
BLOCK_MOVE(block_load_met, BLOCK_LOAD_MET)
BLOCK_MOVE(block_load_f32, BLOCK_LOAD_F32)
BLOCK_MOVE(block_load_f16, BLOCK_LOAD_F16)
BLOCK_MOVE(block_load_bf16, BLOCK_LOAD_BF16)
BLOCK_MOVE(block_store_f32, BLOCK_STORE_F32)
BLOCK_MOVE(block_store_f16, BLOCK_STORE_F16)
BLOCK_MOVE(block_store_bf16, BLOCK_STORE_BF16)

static void block_store_far(const region_block *entry, unsigned char *const *place, BLOCK_PARAMETERS)
{
    BLOCK_VECTORS
    unsigned char *const at = place[entry->place];
    if ((uintptr_t)at % (4 * VW) == 0) {
        BLOCK_EACH(BLOCK_STREAM_F32)
    } else {
        BLOCK_EACH(BLOCK_STORE_F32)
    }
    entry[1].run(entry + 1, place, BLOCK_ARGUMENTS);
}

/* Stores past the caches come late: whoever is told that a unit is done must find them there. */
static inline void block_fence(void)
{
#if MICA__ISA_LEVEL > 0
    _mm_sfence();
#endif
}

#define BLOCK_UNUSED(j) (void)v##j;
static void block_end(const region_block *entry, unsigned char *const *place, BLOCK_PARAMETERS)
{
    BLOCK_VECTORS(void) entry, (void)place;
    BLOCK_EACH(BLOCK_UNUSED)
}

/* The formulas of scalars.def: of the block, and of what lies in memory: (block, memory) or, swapped, (memory, block). */
#define BLOCK_OF_BLOCK(j) v##j = formula(v##j);
#define BLOCK_OF_MET(j) v##j = formula(v##j, BLOCK_MEMORY_MET(j));
#define BLOCK_OF_F32(j) v##j = formula(v##j, BLOCK_MEMORY_F32(j));
#define BLOCK_OF_F16(j) v##j = formula(v##j, BLOCK_MEMORY_F16(j));
#define BLOCK_OF_BF16(j) v##j = formula(v##j, BLOCK_MEMORY_BF16(j));
#define BLOCK_SWAPPED_MET(j) v##j = formula(BLOCK_MEMORY_MET(j), v##j);
#define BLOCK_SWAPPED_F32(j) v##j = formula(BLOCK_MEMORY_F32(j), v##j);
#define BLOCK_SWAPPED_F16(j) v##j = formula(BLOCK_MEMORY_F16(j), v##j);
#define BLOCK_SWAPPED_BF16(j) v##j = formula(BLOCK_MEMORY_BF16(j), v##j);
#define BLOCK_MAKE_1(name, vector)              \
    static inline vf block_formula_##name(vf a) \
    {                                           \
        return vector;                          \
    }                                           \
    BLOCK_FUNCTION(block_##name, (vf), block_formula_##name, BLOCK_OF_BLOCK)
#define BLOCK_MAKE_BOTH(name, M)                                                     \
    BLOCK_FUNCTION(block_##name##_##M, (vf, vf), block_formula_##name, BLOCK_OF_##M) \
    BLOCK_FUNCTION(block_##name##_swapped_##M, (vf, vf), block_formula_##name, BLOCK_SWAPPED_##M)
#define BLOCK_MAKE_2(name, vector)                    \
    static inline vf block_formula_##name(vf a, vf b) \
    {                                                 \
        return vector;                                \
    }                                                 \
    BLOCK_MAKE_BOTH(name, MET)                        \
    BLOCK_MAKE_BOTH(name, F32) BLOCK_MAKE_BOTH(name, F16) BLOCK_MAKE_BOTH(name, BF16)
#define BLOCK_ROW_1(name, vector) [MICA__CPU_BLOCK_OF(MICA__SCALAR_##name, 0u, 0u)] = block_##name,
#define BLOCK_ROW_BOTH(name, type, M)                                                                    \
    [MICA__CPU_BLOCK_OF(MICA__SCALAR_##name, type, 0u)] = block_##name##_##M,                            \
                                                   [MICA__CPU_BLOCK_OF(MICA__SCALAR_##name, type, 1u)] = \
                                                       block_##name##_swapped_##M,
#define BLOCK_ROW_2(name, vector)             \
    BLOCK_ROW_BOTH(name, 0u, MET)             \
    BLOCK_ROW_BOTH(name, MICA_DTYPE_F32, F32) \
    BLOCK_ROW_BOTH(name, MICA_DTYPE_F16, F16) BLOCK_ROW_BOTH(name, MICA_DTYPE_BF16, BF16)

#define STEP(...)
#define STEP_OF(name, arity, in, out, operations, vector, plain, kernel, formula, domain, derivative) \
    REGION_IF_VECTOR(BLOCK_MAKE, name, arity, vector)
#define PUBLIC STEP_OF
#include "backend/scalars.def"
#undef STEP_OF
BLOCK_MAKE_1(round_f16, vf_round_f16(a))
BLOCK_MAKE_1(round_bf16, vf_round_bf16(a))

static const region_block_run region_blocks[MICA__CPU_BLOCK_COUNT] = {
#define STEP_OF(name, arity, in, out, operations, vector, plain, kernel, formula, domain, derivative) \
    REGION_IF_VECTOR(BLOCK_ROW, name, arity, vector)
#include "backend/scalars.def"
    BLOCK_ROW_1(round_f16, ) BLOCK_ROW_1(round_bf16, )[MICA__CPU_BLOCK_LOAD] = block_load_met,
    [MICA__CPU_BLOCK_LOAD + MICA_DTYPE_F32] = block_load_f32,
    [MICA__CPU_BLOCK_LOAD + MICA_DTYPE_F16] = block_load_f16,
    [MICA__CPU_BLOCK_LOAD + MICA_DTYPE_BF16] = block_load_bf16,
    [MICA__CPU_BLOCK_STORE + MICA_DTYPE_F32] = block_store_f32,
    [MICA__CPU_BLOCK_STORE + MICA_DTYPE_F16] = block_store_f16,
    [MICA__CPU_BLOCK_STORE + MICA_DTYPE_BF16] = block_store_bf16,
    [MICA__CPU_BLOCK_STORE + 4u + MICA_DTYPE_F32] = block_store_far,
    [MICA__CPU_BLOCK_END] = block_end};
#undef STEP
#undef STEP_OF
#undef PUBLIC

#endif
