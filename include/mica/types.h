/*
 * types.h - the words the other headers share: element types, ops, views.
 *
 * Shapes are written slowest dimension first; the last dimension is the fastest. There are 0 to MICA_MAX_DIMS of
 * them: none is a scalar, which has one element. A dimension of 0 makes a buffer empty: it has no elements and no
 * bytes. Strides are in BYTES, one per dimension, and may be 0 for a dimension that repeats (reads only). A block
 * type (q4_0 ...) packs `block_elements` values of the last dimension into `block_bytes`; its last dimension must be
 * a multiple of the block and contiguous.
 */
#ifndef MICA_TYPES_H
#define MICA_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "mica/op_list.h"
#include "mica/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MICA_MAX_DIMS 8

/*
 * Every element type: X(NAME, "text", block_elements, block_bytes).
 * The affine types are MLX's packed words; their scales and biases are buffers of their own (mica_buffer_affine). fp4
 * is MLX's e2m1 pairs, low nibble first, with scales of e8m0 (mxfp4, groups of 32) or f8_e4m3 (nvfp4, groups of 16)
 * and no biases; f8_e4m3 with scales of e8m0 in groups of 32 is mxfp8. The turbo types are mica's own form of
 * TurboQuant, for caches (docs/turbo.md): 64 values, rotated by a Walsh-Hadamard transform, of 2 to 8 bits each.
 */
#define MICA_DTYPE_LIST(X)          \
    X(F32, "f32", 1, 4)             \
    X(F16, "f16", 1, 2)             \
    X(BF16, "bf16", 1, 2)           \
    X(F64, "f64", 1, 8)             \
    X(F8_E4M3, "f8_e4m3", 1, 1)     \
    X(F8_E5M2, "f8_e5m2", 1, 1)     \
    X(E8M0, "e8m0", 1, 1)           \
    X(C64, "c64", 1, 8)             \
    X(I8, "i8", 1, 1)               \
    X(I16, "i16", 1, 2)             \
    X(I32, "i32", 1, 4)             \
    X(I64, "i64", 1, 8)             \
    X(U8, "u8", 1, 1)               \
    X(U16, "u16", 1, 2)             \
    X(U32, "u32", 1, 4)             \
    X(U64, "u64", 1, 8)             \
    X(BOOL, "bool", 1, 1)           \
    X(Q4_0, "q4_0", 32, 18)         \
    X(Q4_1, "q4_1", 32, 20)         \
    X(Q5_0, "q5_0", 32, 22)         \
    X(Q5_1, "q5_1", 32, 24)         \
    X(Q8_0, "q8_0", 32, 34)         \
    X(Q8_1, "q8_1", 32, 36)         \
    X(Q2_K, "q2_k", 256, 84)        \
    X(Q3_K, "q3_k", 256, 110)       \
    X(Q4_K, "q4_k", 256, 144)       \
    X(Q5_K, "q5_k", 256, 176)       \
    X(Q6_K, "q6_k", 256, 210)       \
    X(Q8_K, "q8_k", 256, 292)       \
    X(IQ1_S, "iq1_s", 256, 50)      \
    X(IQ1_M, "iq1_m", 256, 56)      \
    X(IQ2_XXS, "iq2_xxs", 256, 66)  \
    X(IQ2_XS, "iq2_xs", 256, 74)    \
    X(IQ2_S, "iq2_s", 256, 82)      \
    X(IQ3_XXS, "iq3_xxs", 256, 98)  \
    X(IQ3_S, "iq3_s", 256, 110)     \
    X(IQ4_NL, "iq4_nl", 32, 18)     \
    X(IQ4_XS, "iq4_xs", 256, 136)   \
    X(TQ1_0, "tq1_0", 256, 54)      \
    X(TQ2_0, "tq2_0", 256, 66)      \
    X(MXFP4, "mxfp4", 32, 17)       \
    X(NVFP4, "nvfp4", 64, 36)       \
    X(AFFINE2, "affine2", 16, 4)    \
    X(AFFINE3, "affine3", 8, 3)     \
    X(AFFINE4, "affine4", 8, 4)     \
    X(AFFINE5, "affine5", 8, 5)     \
    X(AFFINE6, "affine6", 4, 3)     \
    X(AFFINE8, "affine8", 4, 4)     \
    X(FP4, "fp4", 2, 1)             \
    X(TURBO2, "turbo2", 64, 18)     \
    X(TURBO2_5, "turbo2_5", 64, 22) \
    X(TURBO3, "turbo3", 64, 26)     \
    X(TURBO4, "turbo4", 64, 34)     \
    X(TURBO5, "turbo5", 64, 42)     \
    X(TURBO6, "turbo6", 64, 50)     \
    X(TURBO8, "turbo8", 64, 66)

typedef enum mica_dtype {
    MICA_DTYPE_NONE = 0,
#define MICA_DTYPE_ENUM(name, text, elements, bytes) MICA_DTYPE_##name,
    MICA_DTYPE_LIST(MICA_DTYPE_ENUM)
#undef MICA_DTYPE_ENUM
        MICA_DTYPE_COUNT
} mica_dtype;

/* Facts about a type. For an unknown value: "none", 0, 0. Any thread. */
MICA_API const char *mica_dtype_name(mica_dtype dtype);
/* Values in one block: 1 for plain types, 0 for an unknown value. Any thread. */
MICA_API uint32_t mica_dtype_block_elements(mica_dtype dtype);
/* Bytes of one block, 0 for an unknown value. Any thread. */
MICA_API uint32_t mica_dtype_block_bytes(mica_dtype dtype);
/* The type with that name, or MICA_DTYPE_NONE. */
MICA_API mica_dtype mica_dtype_from_name(const char *name);

/*
 * How a buffer's bytes are arranged. Canonical is what files hold. Rows8 interleaves eight rows of a weight matrix
 * block by block so that one vector holds the same position of eight rows (docs/architecture.md): for the CPU. Planes
 * puts the fields of all blocks of a row one after the other, codes first, rows at multiples of 16 bytes: for GPUs.
 * matmul and embedding read each. Made by mica_buffer_pack.
 */
typedef enum mica_layout {
    MICA_LAYOUT_CANONICAL = 0,
    MICA_LAYOUT_ROWS8,
    MICA_LAYOUT_PLANES,
    MICA_LAYOUT_COUNT
} mica_layout;

/* Name of an op ("rms_norm"), "none" for an unknown value. Any thread. */
MICA_API const char *mica_op_name(mica_op op);

#define MICA_ACCESS_READ 1u
#define MICA_ACCESS_WRITE 2u

#ifdef __cplusplus
}
#endif
#endif
