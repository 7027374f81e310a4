/*
 * record.h - what an op says: operands by slot, parameters by struct.
 *
 * Ops fill a record, fusion rewrites records, kernel rows plan them. Nothing here knows a grid, a tile or a
 * backend. Slots marked "?" may be absent (mica__operand_present).
 */
#ifndef MICA_BACKEND_RECORD_H
#define MICA_BACKEND_RECORD_H

#include <stdbool.h>

#include "mica/ops.h"
#include "mica/types.h"

typedef struct mica__memory mica__memory; /* a backend's allocation */

#define MICA__MAX_WEIGHTS 4
#define MICA__MAX_OPERANDS 24      /* a region's; only ops whose slots repeat without end have more */
#define MICA__MAX_PARAM_BYTES 1072 /* a region's: MICA__REGION_MOST_BYTES */

typedef struct mica__operand {
    mica__memory *memory;    /* NULL: absent, or a temporary that has no place yet */
    void *storage;           /* the device room's owner of `memory` */
    uint64_t offset, length; /* bytes in `memory`: first byte, hull */
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS]; /* stride in bytes */
    uint16_t dtype;                                       /* mica_dtype */
    uint8_t ndim, access, layout, temporary;              /* access: MICA_ACCESS_*; layout: mica_layout */
    uint32_t group_size;                                  /* affine weights */
} mica__operand;

/* An optional operand that was not given has no type; one without memory is a temporary that was not placed. */
static inline bool mica__operand_present(const mica__operand *operand)
{
    return operand->dtype != MICA_DTYPE_NONE;
}

typedef struct mica__record {
    uint16_t op; /* mica_op */
    uint16_t operand_count;
    uint16_t params_size;
    uint16_t barrier_before; /* the caller asked for a barrier here */
    uint32_t original_index;
    const char *label; /* "" if none; lives as long as the record */
    const char *fused; /* name of the fusion that made it, "" if none; static */
    mica__operand *operand;
    void *params;
} mica__record;

/* Slots, by op: MICA__ROPE_X .., MICA__ROPE_SLOTS of them in every record; ALL_SLOTS with those that only some have. */
#define OP(op, name, prefix, ...) enum {
#define SLOT(prefix, slot, ...) MICA__##prefix##_##slot,
#define MORE_OF(prefix) MICA__##prefix##_SLOTS, MICA__##prefix##_BEFORE = MICA__##prefix##_SLOTS - 1,
#define GROUP_OF(prefix) MORE_OF(prefix)
#define END(prefix)                                      \
    MICA__##prefix##_SLOTS, MICA__##prefix##_GROUPED = 0 \
    }                                                    \
    ;
#define END_MORE(prefix)                                     \
    MICA__##prefix##_ALL_SLOTS, MICA__##prefix##_GROUPED = 0 \
    }                                                        \
    ;
#define END_GROUP(prefix)                                                              \
    MICA__##prefix##_ALL_SLOTS,                                                        \
        MICA__##prefix##_GROUPED = MICA__##prefix##_ALL_SLOTS - MICA__##prefix##_SLOTS \
    }                                                                                  \
    ;
#include "backend/ops.def"

/* A weight's operands, wherever they stand: itself, its tables, and in matmul the output that it is for. */
enum { MICA__WEIGHT_DATA, MICA__WEIGHT_SCALES, MICA__WEIGHT_BIASES, MICA__WEIGHT_Y, MICA__WEIGHT_SLOTS };
#define MICA__MATMUL_SLOT(i, part) (MICA__MATMUL_WEIGHT + (i)*MICA__WEIGHT_SLOTS + (part))
#define MICA__MATMUL_OPERANDS(count) (MICA__MATMUL_WEIGHT + (count)*MICA__WEIGHT_SLOTS)
/* Of regions with two inputs and one output, and with one of each. */
enum { MICA__BINARY_A, MICA__BINARY_B, MICA__BINARY_Y, MICA__BINARY_SLOTS };
enum { MICA__UNARY_X, MICA__UNARY_Y, MICA__UNARY_SLOTS };

/* Parameters of records that have more than callers give (ops.def says which): what callers give comes first. */
typedef struct mica__rope_record {
    mica_rope_params rope; /* defaults filled in: no zeros left */
    uint32_t norm;         /* 1: head norm first (weight optional) */
    float eps;
    uint32_t ring; /* of the cache */
} mica__rope_record;
typedef struct mica__attention_record {
    mica_attention_params attention; /* first: kernels of plain attention read this alone */
    mica_rope_params rope;           /* defaults filled in */
} mica__attention_record;
/* Fusion sets `relu`, and adds the residual's slot. */
typedef struct mica__conv_record {
    mica_conv_params conv; /* defaults filled in */
    uint32_t relu;
} mica__conv_record;
/* Of ops over sequences: how many there are. */
typedef struct mica__ssm_conv_record {
    mica_ssm_conv_params conv;
    uint32_t sequences;
} mica__ssm_conv_record;
typedef struct mica__delta_record {
    mica_delta_params delta; /* defaults filled in */
    uint32_t sequences;
} mica__delta_record;
typedef struct mica__selective_record {
    mica_selective_params selective;
    uint32_t sequences;
} mica__selective_record;
typedef struct mica__rnn_record {
    mica_rnn_params rnn;
    uint32_t sequences;
} mica__rnn_record;
/* Blocks of rows of a cell's weight: its gates. */
static inline uint64_t mica__rnn_gates(uint32_t kind)
{
    return kind == MICA_RNN_LSTM ? 4 : kind == MICA_RNN_GRU ? 3 : 1;
}
typedef struct mica__pad_record {
    mica_pad_params pad;
    uint64_t bits; /* the element that `value` is */
} mica__pad_record;
typedef enum mica__gate { MICA__GATE_NONE = 0, MICA__GATE_SILU, MICA__GATE_GELU } mica__gate;
typedef struct mica__matmul_record {
    uint32_t precision; /* mica_precision */
    uint32_t weight_count;
    uint32_t norm; /* 1: rms norm of x first, with eps and the optional norm weight */
    float eps;
    uint32_t gate; /* mica__gate */
    float softcap; /* 0 = none; applied to y_0 */
} mica__matmul_record;

#endif
