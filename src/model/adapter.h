/*
 * adapter.h - adapters inside of the room: their matrices, and what a pass applies of them.
 */
#ifndef MICA_MODEL_ADAPTER_H
#define MICA_MODEL_ADAPTER_H

#include "mica/adapter.h"
#include "model/parts.h"

#define MICA__ADAPTER_NAME 64 /* "blk.4294967295.attn_output.weight.lora_a" and its NUL */

/* What stands beside one matrix of the model. */
typedef struct mica__low_rank {
    const mica_buffer *weight; /* the model's */
    char name[2][MICA__ADAPTER_NAME];
    mica_buffer *part[2]; /* A [rank, in], B [out, rank], of experts [experts, ..] each; f32 */
    uint32_t rank;
} mica__low_rank;

struct mica_adapter {
    _Atomic uint32_t references;
    mica_model *model;      /* counted */
    mica__low_rank *matrix; /* [count] */
    uint32_t count, capacity;
    float alpha;
    uint64_t fingerprint; /* of names and values */
};

/* Of those that are applied together. */
typedef struct mica__applied {
    mica_adapter *adapter; /* counted */
    mica_buffer **factor;  /* [adapter->count] f32 [1]: scale alpha / rank */
} mica__applied;

typedef struct mica__adapters {
    mica__applied *list;
    uint32_t count;
    uint64_t fingerprint; /* 0: there are none */
} mica__adapters;

/* Checks and keeps what a caller wants applied to the model. `field` names it in sentences. Frees nothing on failure: mica__adapters_free. */
mica_status mica__adapters_take(mica_model *model, const char *field, const mica_adapter_use *uses,
                                uint32_t count, mica__adapters *out);
void mica__adapters_free(mica__adapters *adapters);
/* What the adapter has beside a weight; NULL: nothing. */
const mica__low_rank *mica__adapter_find(const mica_adapter *adapter, const mica_buffer *weight);

/* ---- adapter.c, for adapter_file.c ---- */

mica_status mica__adapter_new(mica_model *model, mica_adapter **out);
/* The matrix of that name. UNSUPPORTED: there is none, or it may have no adapter. */
mica_status mica__adapter_weight(const mica_model *model, const char *name, mica_buffer **out);
/* UNSUPPORTED: the rows of that matrix lie in another order than in a GGUF. */
mica_status mica__adapter_order(const mica_model *model, const char *name);
/* The shape of A (part 0) or B beside a weight, of two dimensions, of experts' three. */
void mica__adapter_shape(const mica_buffer_info *weight, uint64_t rank, uint32_t part, uint64_t shape[3]);
/* The folder of an adapter as peft saves it (adapter_peft.c). */
mica_status mica__adapter_read_peft(mica_adapter *adapter, const char *folder);
/* A tensor of `count` values as f32, all of them finite; freed by the caller (mica__free). */
mica_status mica__adapter_values(mica_weights *weights, uint64_t index, uint64_t count, float **out);
/* Room for A and B beside it, zeroed. */
mica_status mica__adapter_add(mica_adapter *adapter, const char *name, uint32_t rank, mica__low_rank **out);
mica_status mica__adapter_write(mica__low_rank *matrix, uint32_t part, const float *values);
/* All matrices have their values: who compares adapters by their fingerprints sees these. */
mica_status mica__adapter_ready(mica_adapter *adapter);

#endif
