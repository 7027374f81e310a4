/*
 * op.h - any op by its number: what the table of ops says of it, shapes that follow from others, whether and how a
 * device serves it. For programs that hold ops as data (graphs, bindings, benchmarks); docs/ops.md lists the table.
 *
 * Operands are in the order of docs/ops.md: inputs, then outputs. Slots of one op may repeat: then the operands of a
 * group follow one another as often as there are groups. Parameters are the op's struct of ops.h (mica_rope_params
 * ..), NULL where it has none, or for all zeros. Threads: any, but for mica_op_apply: as the encoder.
 */
#ifndef MICA_OP_H
#define MICA_OP_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A size that is not known yet; greater ones are symbols: equal where they are the same. */
#define MICA_SIZE_UNKNOWN (1ull << 63)
#define MICA_RANK_UNKNOWN 0xffu

typedef enum mica_op_gradient {
    MICA_GRADIENT_NONE = 0,   /* there is none */
    MICA_GRADIENT_SCALARS,    /* that of its scalars, step by step */
    MICA_GRADIENT_DECOMPOSED, /* that of other ops that say the same */
    MICA_GRADIENT_BACKWARD    /* the op <name>_backward */
} mica_op_gradient;

/* What a device must have, beside what the op's kernels say of types and sizes. */
typedef enum mica_op_needs {
    MICA_NEEDS_ANYWHERE = 0, /* nothing */
    MICA_NEEDS_F64,          /* arithmetic in f64, for operands of f64 */
    MICA_NEEDS_CPU_F64,      /* to be the cpu, for operands of f64 */
    MICA_NEEDS_CPU           /* to be the cpu */
} mica_op_needs;

typedef struct mica_op_info {
    const char *name;
    uint32_t operands;    /* fixed ones; 0 for ops that are not called through this header (custom, region) */
    uint32_t grouped;     /* operands of a group; 0: none repeat */
    uint32_t params_size; /* bytes of its parameters */
    mica_op_gradient gradient;
    mica_op_needs needs;
} mica_op_info;

/* INVALID_ARGUMENT for a number that is no op. */
MICA_API mica_status mica_op_get_info(mica_op op, mica_op_info *out_info);

typedef struct mica_op_operand {
    const char *name;
    uint32_t access;   /* MICA_ACCESS_* */
    uint32_t optional; /* 1: may be absent */
    uint32_t part;     /* 1: only some of its elements are written */
    uint64_t types;    /* bit d: mica_dtype d; 0: the type of operand `same_as` */
    uint32_t same_as;
    uint32_t rows; /* 1: the last dimension must be contiguous; 2: all must */
    /* "[.., d]": letters are sizes, equal ones equal; "..": any dimensions; "h?": may be missing; "any": broadcasts;
     * "ruled": as the op says */
    char shape[64];
} mica_op_operand;

/* Operand `index`, groups counted once. INVALID_ARGUMENT beyond the last. */
MICA_API mica_status mica_op_get_operand(mica_op op, uint32_t index, mica_op_operand *out_operand);

/* An operand that need not exist. All zero: absent. */
typedef struct mica_operand_desc {
    mica_dtype dtype; /* NONE: absent, or in mica_op_infer an output whose type is asked for */
    uint32_t ndim;    /* MICA_RANK_UNKNOWN: asked for */
    uint64_t shape[MICA_MAX_DIMS];
    uint64_t stride[MICA_MAX_DIMS]; /* bytes; all zero: contiguous */
    mica_layout layout;
    uint32_t group_size;    /* weights with tables of scales; else 0 */
    mica_dtype scale_dtype; /* of these tables */
} mica_operand_desc;

/* Completes `operands`: an operand with ndim MICA_RANK_UNKNOWN gets the shape that follows from the others, an output
 * with dtype NONE and that rank its type (that of the operand that it must be, else of the first input of such types,
 * else the first that it may have). Sizes may be unknown or symbols, and come out as such where they decide. Then
 * everything that mica_op_apply would check of types and shapes is checked as far as it is known: INVALID_ARGUMENT
 * names op, operand and sizes. An optional input stays absent only with ndim 0. */
MICA_API mica_status mica_op_infer(mica_op op, const void *params, mica_operand_desc *operands,
                                   uint32_t count);

typedef struct mica_op_route {
    const char
        *kernels; /* name of the kernel row that serves it; static; "" where there is nothing to compute */
    uint32_t dispatches;
    uint64_t scratch_bytes;
    double bytes, operations; /* that it moves and takes at the least */
} mica_op_route;

/* Whether the device serves the op on such operands, and how; encodes nothing and compiles nothing. OK; UNSUPPORTED
 * with a sentence; INVALID_ARGUMENT where the op would refuse them. `out_route` may be NULL. */
MICA_API mica_status mica_op_supported(mica_device *device, mica_op op, const void *params,
                                       const mica_operand_desc *operands, uint32_t count,
                                       mica_op_route *out_route);

/* Adds the op as its own function would: same checks, same record. Absent operands are NULL. */
MICA_API mica_status mica_op_apply(mica_encoder *encoder, mica_op op, const void *params,
                                   mica_buffer *const *operands, uint32_t count);

#ifdef __cplusplus
}
#endif
#endif
