/*
 * adapter.h - adapters of low rank (LoRA) for models: what was learned after a model, in a small file of its own; of
 * the library libmica-model.
 *
 * Beside a matrix W of the model stand A [rank, in] and B [out, rank]: y = W x + scale (alpha / rank) B (A x), where
 * an alpha of 0 stands for the rank. The model's own weights stay as they are, of whatever type. A file is a GGUF in
 * llama.cpp's convention: general.type "adapter", adapter.type "lora", adapter.lora.alpha, general.architecture, and
 * for each tensor NAME of the model NAME.lora_a and NAME.lora_b; or a folder as peft saves it, adapter_config.json
 * with adapter_model.safetensors.
 *
 * Matrices that an adapter may have: those of attention, of feed-forward parts, of experts (A [experts, rank, in] and
 * B [experts, out, rank]), of the router, and output.weight; embeddings are refused by name.
 *
 * Ownership and failure as in device.h. Threads: an adapter is immutable but for mica_adapter_take: any thread.
 */
#ifndef MICA_ADAPTER_H
#define MICA_ADAPTER_H

#include "mica/executable.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mica_model mica_model; /* model.h */
typedef struct mica_adapter mica_adapter;

typedef struct mica_adapter_info {
    uint32_t matrices;   /* of the model that it is for */
    uint32_t rank, most; /* the least and the greatest of their ranks */
    float alpha;
    uint64_t parameters;
} mica_adapter_info;

/* An adapter and how much of it counts: a context or a graph takes several. */
typedef struct mica_adapter_use {
    mica_adapter *adapter;
    float scale;
} mica_adapter_use;

/* Reads an adapter for this model. UNSUPPORTED: another kind of file or adapter, another architecture, a key that is
 * not known, a tensor that no matrix of the model stands behind; MALFORMED_FILE: shapes that are not the matrix's,
 * ranks of A and B that differ, one without the other, an alpha or a value that is not finite. IO, BUDGET,
 * OUT_OF_MEMORY. The adapter keeps the model; the caller releases it. */
MICA_API mica_status mica_adapter_open(const char *path, mica_model *model, mica_adapter **out_adapter);

/* What a new adapter is like. All zero is fine. */
typedef struct mica_adapter_desc {
    uint64_t size; /* sizeof this struct, or 0 */
    uint32_t rank; /* 0: 8 */
    float alpha;   /* 0: twice the rank */
    /* [target_count] matrices of every layer: "attn_q" for blk.N.attn_q.weight. None: all that it may have, but the
     * router and experts */
    const char *const *targets;
    uint32_t target_count;
    uint64_t seed;
} mica_adapter_desc;

/* A new adapter, which changes nothing yet: B is zeros, A drawn from [-1 / sqrt(in), 1 / sqrt(in)].
 * INVALID_ARGUMENT: a target that is no matrix which an adapter may have, a rank over 4096; NOT_FOUND: one that no
 * layer has. `desc` may be NULL. */
MICA_API mica_status mica_adapter_create(mica_model *model, const mica_adapter_desc *desc,
                                         mica_adapter **out_adapter);
/* NULL is fine. Contexts keep what they use. */
MICA_API void mica_adapter_release(mica_adapter *adapter);
/* INVALID_ARGUMENT for NULL. */
MICA_API mica_status mica_adapter_get_info(const mica_adapter *adapter, mica_adapter_info *out);
/* Tensor `index`, A of matrix 0, B of matrix 0, A of matrix 1, ..: its name in the file, and its values as f32 on the
 * model's device. Both borrowed. INVALID_ARGUMENT past the last. */
MICA_API mica_status mica_adapter_tensor(const mica_adapter *adapter, uint32_t index, const char **out_name,
                                         mica_buffer **out_buffer);
/* Takes over what the parameters of these names hold in an executable: what was trained (model_graph.h). Nothing
 * else may use the adapter meanwhile. */
MICA_API mica_status mica_adapter_take(mica_adapter *adapter, mica_executable *executable);
/* Writes it as a GGUF, in f32, whole or not at all; a file that is there is replaced. */
MICA_API mica_status mica_adapter_save(const mica_adapter *adapter, const char *path);

#ifdef __cplusplus
}
#endif
#endif
