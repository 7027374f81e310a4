/*
 * record.h - what an op says: operands by slot, parameters by struct.
 *
 * Ops fill a record, fusion rewrites records, kernel rows plan them. Nothing here knows a grid, a tile or a
 * backend. Slots marked "?" may be absent (memory == NULL, dtype NONE).
 */
#ifndef MICA_BACKEND_RECORD_H
#define MICA_BACKEND_RECORD_H

#include "mica/ops.h"
#include "mica/types.h"

typedef struct mica__memory mica__memory; /* a backend's allocation */

#define MICA__MAX_WEIGHTS 4
#define MICA__MAX_OPERANDS (3 + 4 * MICA__MAX_WEIGHTS)
#define MICA__MAX_PARAM_BYTES 128

typedef struct mica__operand {
    mica__memory *memory;                                 /* NULL: absent */
    void *storage;                                        /* the device room's owner of `memory` */
    uint64_t offset, length;                              /* bytes in `memory`: first byte, hull */
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS]; /* stride in bytes */
    uint16_t dtype;                                       /* mica_dtype */
    uint8_t ndim, access, layout, temporary;              /* access: MICA_ACCESS_*; layout: mica_layout */
    uint32_t group_size;                                  /* affine weights */
} mica__operand;

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

/* Slots. */
enum {
    MICA__COPY_X,
    MICA__COPY_SCALES,
    MICA__COPY_BIASES,
    MICA__COPY_Y,
    MICA__COPY_SLOTS
}; /* scales?, biases? */
enum { MICA__FILL_Y, MICA__FILL_SLOTS };
enum { MICA__ADVANCE_COUNTERS, MICA__ADVANCE_SLOTS };
enum { MICA__BINARY_A, MICA__BINARY_B, MICA__BINARY_Y, MICA__BINARY_SLOTS }; /* add mul silu_mul gelu_mul */
enum { MICA__UNARY_X, MICA__UNARY_Y, MICA__UNARY_SLOTS }; /* gelu gelu_erf softcap softmax */
/* v = x; step i: v = op(v, other_i?), or op(other_i, v) where it is swapped; y = v. Others of steps with one operand
 * and of steps that are not there are absent. All have y's shape; v stays f32. y may be the view of any input. */
#define MICA__CHAIN_STEPS 4
enum {
    MICA__CHAIN_X,
    MICA__CHAIN_OTHER, /* of step 0; step i's is i slots on */
    MICA__CHAIN_Y = MICA__CHAIN_OTHER + MICA__CHAIN_STEPS,
    MICA__CHAIN_SLOTS
};
/* s = x (+ residual?); n = s / rms(s) (* weight?) (* mul?) (+ add?); sum? = s; y = n */
enum {
    MICA__NORM_X,
    MICA__NORM_WEIGHT,
    MICA__NORM_RESIDUAL,
    MICA__NORM_MUL,
    MICA__NORM_ADD,
    MICA__NORM_SUM,
    MICA__NORM_Y,
    MICA__NORM_SLOTS
};
/* weight?, bias? */
enum {
    MICA__LAYER_NORM_X,
    MICA__LAYER_NORM_WEIGHT,
    MICA__LAYER_NORM_BIAS,
    MICA__LAYER_NORM_Y,
    MICA__LAYER_NORM_SLOTS
};
/* r = rope(head_norm? x); y? = r; cache? gets r at positions (then sequences?, pages? as kv_write) */
enum {
    MICA__ROPE_X,
    MICA__ROPE_POSITIONS,
    MICA__ROPE_FACTORS,
    MICA__ROPE_NORM_WEIGHT,
    MICA__ROPE_SEQUENCES,
    MICA__ROPE_PAGES,
    MICA__ROPE_Y,
    MICA__ROPE_CACHE,
    MICA__ROPE_SLOTS
};
enum { MICA__KV_X, MICA__KV_POSITIONS, MICA__KV_SEQUENCES, MICA__KV_PAGES, MICA__KV_CACHE, MICA__KV_SLOTS };
enum {
    MICA__ATTENTION_Q,
    MICA__ATTENTION_K,
    MICA__ATTENTION_V,
    MICA__ATTENTION_POSITIONS,
    MICA__ATTENTION_LENGTHS,
    MICA__ATTENTION_SEQUENCES,
    MICA__ATTENTION_PAGES,
    MICA__ATTENTION_MASK,
    MICA__ATTENTION_Y,
    MICA__ATTENTION_SLOTS,
    /* Only with mica__attention_record: q and new_k are turned first, with factors?, then new_k and new_v go into k and v. */
    MICA__ATTENTION_NEW_K = MICA__ATTENTION_SLOTS,
    MICA__ATTENTION_NEW_V,
    MICA__ATTENTION_FACTORS,
    MICA__ATTENTION_TURNED_SLOTS
};
/* n = rms_norm? x; o_i = n . w_i^T; gate NONE: y_0 = softcap?(o_0) + residual?, y_i = o_i;
 * gate SILU/GELU: y_0 = act(o_0) * o_1, y_1 absent. operand_count = MATMUL_SLOTS(weight_count). */
enum { MICA__MATMUL_X, MICA__MATMUL_NORM_WEIGHT, MICA__MATMUL_RESIDUAL, MICA__MATMUL_FIRST };
enum { MICA__WEIGHT_DATA, MICA__WEIGHT_SCALES, MICA__WEIGHT_BIASES, MICA__WEIGHT_Y, MICA__WEIGHT_SLOTS };
#define MICA__MATMUL_SLOT(i, part) (MICA__MATMUL_FIRST + (i)*MICA__WEIGHT_SLOTS + (part))
#define MICA__MATMUL_SLOTS(count) (MICA__MATMUL_FIRST + (count)*MICA__WEIGHT_SLOTS)
enum {
    MICA__EXPERTS_X,
    MICA__EXPERTS_IDS,
    MICA__EXPERTS_WEIGHT,
    MICA__EXPERTS_SCALES,
    MICA__EXPERTS_BIASES,
    MICA__EXPERTS_Y,
    MICA__EXPERTS_SLOTS,
    /* Only with a gate: y = act(x . weight^T) * (x . up^T), as matmul has it; three operands, as the weight's. */
    MICA__EXPERTS_UP = MICA__EXPERTS_SLOTS,
    MICA__EXPERTS_GATED_SLOTS = MICA__EXPERTS_UP + MICA__WEIGHT_Y
};
enum { MICA__ROUTE_LOGITS, MICA__ROUTE_IDS, MICA__ROUTE_WEIGHTS, MICA__ROUTE_SLOTS };
enum { MICA__EXPERT_SUM_X, MICA__EXPERT_SUM_WEIGHTS, MICA__EXPERT_SUM_Y, MICA__EXPERT_SUM_SLOTS };
enum {
    MICA__EMBEDDING_TABLE,
    MICA__EMBEDDING_SCALES,
    MICA__EMBEDDING_BIASES,
    MICA__EMBEDDING_IDS,
    MICA__EMBEDDING_Y,
    MICA__EMBEDDING_SLOTS
};
enum { MICA__ARGMAX_X, MICA__ARGMAX_IDS, MICA__ARGMAX_SLOTS };
/* bias_ids? with bias?, mask?, history?; y may be the view of logits */
enum {
    MICA__PENALIZE_LOGITS,
    MICA__PENALIZE_SETTINGS,
    MICA__PENALIZE_BIAS_IDS,
    MICA__PENALIZE_BIAS,
    MICA__PENALIZE_MASK,
    MICA__PENALIZE_HISTORY,
    MICA__PENALIZE_Y,
    MICA__PENALIZE_SLOTS
};
/* raw?, history?, log_probabilities?; settings and history are read and written */
enum {
    MICA__SAMPLE_LOGITS,
    MICA__SAMPLE_RAW,
    MICA__SAMPLE_SETTINGS,
    MICA__SAMPLE_HISTORY,
    MICA__SAMPLE_IDS,
    MICA__SAMPLE_LOG_PROBABILITIES,
    MICA__SAMPLE_SLOTS
};

/* Parameters. attention: mica_attention_params or, where fused, mica__attention_record; kv_write: mica_kv_params; route: mica_route_params.
 * penalize and sample have none: what they need lies in their settings operand. */
typedef struct mica__fill_params {
    double value;
} mica__fill_params;
typedef struct mica__advance_params {
    int32_t delta;
} mica__advance_params;
typedef struct mica__scalar_params {
    float value; /* softcap: cap; softmax: scale; unused by the other elementwise ops */
} mica__scalar_params;
typedef struct mica__chain_step {
    uint16_t op;      /* add mul silu_mul gelu_mul gelu gelu_erf softcap */
    uint16_t swapped; /* 1: v is the second operand */
    float value;      /* as in mica__scalar_params */
} mica__chain_step;
typedef struct mica__chain_record {
    uint32_t step_count;
    mica__chain_step step[MICA__CHAIN_STEPS];
} mica__chain_record;
typedef struct mica__norm_params {
    float eps;
} mica__norm_params;
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
