/*
 * region.h - elementwise work of any size as one record: a small typed register program that runs for every element
 * of its outputs.
 *
 * A program has values. Value i, for i below input_count, is element i of input i, widened to the register type of
 * its dtype; value input_count + s is the result of step s. A step names a scalar function (scalars.h) and the values
 * it reads, all of them earlier ones. Output o is one value, rounded or wrapped to the dtype of its buffer.
 *
 *   register   loaded from                       stored to
 *   f32        f32 f16 bf16 f8_e4m3 f8_e5m2      the same, to nearest even; what is too large becomes infinite,
 *              e8m0 c64                          in f8_e4m3 NaN; c64 from two values
 *   f64        f64                               f64
 *   i32        i8 i16 i32                        the same, wrapping
 *   u32        u8 u16 u32                        the same, wrapping
 *   i64 u64    i64 u64                           the same
 *   bool       bool (any byte but 0 is true)     bool (0 or 1)
 *
 * A c64 input gives its real part as value i; the step `imag` of it gives the other. A c64 output takes two values.
 * Casts between register types are steps. A constant's value is a parameter: two programs that differ in constants
 * alone run the same compiled kernel. Steps in their order, each rounded on its own: joining regions changes no bit.
 */
#ifndef MICA_REGION_H
#define MICA_REGION_H

#include "mica/device.h"
#include "mica/op.h"
#include "mica/scalars.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MICA_REGION_INPUTS 16u
#define MICA_REGION_OUTPUTS 8u
#define MICA_REGION_STEPS 64u
#define MICA_REGION_NONE 0xffu /* a value that is not there */

typedef enum mica_register {
    MICA_REGISTER_NONE = 0,
    MICA_REGISTER_F32,
    MICA_REGISTER_F64,
    MICA_REGISTER_I32,
    MICA_REGISTER_U32,
    MICA_REGISTER_I64,
    MICA_REGISTER_U64,
    MICA_REGISTER_BOOL,
    MICA_REGISTER_COUNT
} mica_register;

/* "add", "none" for a number that is no mica_scalar. Any thread. */
MICA_API const char *mica_scalar_name(uint32_t scalar);

/* What the table says of a scalar. Sets have bit r for mica_register r. */
typedef struct mica_scalar_info {
    uint32_t values; /* that it takes */
    /* types that they may have, all of one step the same; select: of the last two, the first is bool */
    uint32_t in;
    uint32_t out;        /* types that it may give; 0: the one that went in */
    uint32_t operations; /* about how many an element takes */
    uint32_t is_op;      /* 1: a function mica_<name> of scalars.h */
    uint32_t derivative; /* 1: it has one (ops_train.h) */
} mica_scalar_info;

/* INVALID_ARGUMENT for a number that is no mica_scalar. Any thread. */
MICA_API mica_status mica_scalar_get_info(uint32_t scalar, mica_scalar_info *out_info);
/* The register type that elements of `dtype` are loaded to and stored from; NONE for a block type. Any thread. */
MICA_API mica_register mica_register_of(mica_dtype dtype);
/* "f32", "none" for an unknown value. Any thread. */
MICA_API const char *mica_register_name(mica_register type);

/* One step. Values that the scalar does not take are MICA_REGION_NONE. */
typedef struct mica_region_step {
    uint8_t scalar;   /* mica_scalar */
    uint8_t type;     /* mica_register of the result; of polymorphic scalars also the type they compute in */
    uint8_t value[3]; /* what it reads */
    uint8_t axis;     /* index: the axis, counted from the last one (0), below MICA_MAX_DIMS; else 0 */
    uint8_t reserved[2]; /* 0 */
    /* constant: its value, in the member of its type; i32 in i64, u32 and bool (0 or 1) in u64, within their range.
     * Other steps: not looked at. Scalars with a parameter (softcap) have it as an f32 constant among their
     * values. */
    union {
        float f32;
        double f64;
        int64_t i64;
        uint64_t u64;
    } constant;
} mica_region_step;

typedef struct mica_region_desc {
    uint32_t input_count, output_count, step_count;
    uint8_t input[MICA_REGION_INPUTS];        /* mica_register that each input gives */
    uint8_t output[MICA_REGION_OUTPUTS];      /* the value of each output */
    uint8_t output_imag[MICA_REGION_OUTPUTS]; /* c64: its second value; else MICA_REGION_NONE */
    const mica_region_step *step;
} mica_region_desc;

typedef struct mica_region mica_region;

/* A checked copy of the description. INVALID_ARGUMENT names the step or output and what is wrong: a value nobody gave
 * yet, types that do not fit the scalar, counts over the limits. No steps at all is fine: inputs go to outputs,
 * converted. Owned by the caller. Any thread. */
MICA_API mica_status mica_region_create(const mica_region_desc *desc, mica_region **out_region);
/* NULL is fine. Records made with it keep their own copy. */
MICA_API void mica_region_release(mica_region *region);
/* Adds one record: `inputs` and `outputs` as many as the region has. All outputs have one shape; inputs
 * broadcast to it as in mica_add. Any strides. An output may be the very view of an input of its shape,
 * element for element; any other overlap, and two outputs that overlap, are INVALID_ARGUMENT; so are buffers
 * whose dtype is not of the register that the region has there, `imag` of what is not c64, and an index along
 * an axis that the outputs do not have. */
MICA_API mica_status mica_region_apply(mica_encoder *encoder, const mica_region *region,
                                       mica_buffer *const *inputs, mica_buffer *const *outputs);

/* Completes `outputs` as mica_op_infer does: one with ndim MICA_RANK_UNKNOWN gets the shape that the inputs broadcast
 * to (of none: [], a scalar), with dtype NONE the type of the first input of its register, else the register's own,
 * and c64 where it takes two values. Sizes may be unknown or symbols; a size that is not known is taken not to be 1
 * beside one that is. Then all that mica_region_apply would check of types and shapes. */
MICA_API mica_status mica_region_infer(const mica_region *region, const mica_operand_desc *inputs,
                                       mica_operand_desc *outputs);
/* Whether the device runs the region on such operands, and how: mica_op_supported of a region. */
MICA_API mica_status mica_region_supported(mica_device *device, const mica_region *region,
                                           const mica_operand_desc *inputs, const mica_operand_desc *outputs,
                                           mica_op_route *out_route);

#ifdef __cplusplus
}
#endif
#endif
