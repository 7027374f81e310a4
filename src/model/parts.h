/*
 * parts.h - what a model is made of: the numbers that its file states, its tensors, its family.
 *
 * One convention, GGUF's: checkpoints of other kinds come in through MICA_WEIGHTS_AS_GGUF. Knows no backend: a forward
 * function calls ops on an encoder.
 */
#ifndef MICA_MODEL_PARTS_H
#define MICA_MODEL_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"
#include "mica/model.h"
#include "mica/ops.h"
#include "mica/session.h"

/* ---- tensors -------------------------------------------------------------------------------------------- */

typedef enum mica__tensor_id {
#define MICA__MODEL_TENSOR(id, name, rows, columns) MICA__T_##id,
#include "model/tensors.def"
    MICA__T_WHOLE_COUNT,
    MICA__T_BEFORE_LAYERS = MICA__T_WHOLE_COUNT - 1,
#define MICA__LAYER_TENSOR(id, name, rows, columns) MICA__T_##id,
#include "model/tensors.def"
    MICA__T_COUNT
} mica__tensor_id;

#define MICA__BIT(id) ((uint64_t)1 << MICA__T_##id)

/* ---- numbers -------------------------------------------------------------------------------------------- */

/* How the heads of a layer rotate: layers with a sliding window may have another way than the others. */
typedef struct mica__rope {
    float theta;
    float position_scale, attention_scale;
    mica_buffer *factors; /* [rotary / 2], or NULL */
    mica_buffer *near; /* the same for contexts of at most `original` tokens; NULL: there is no difference */
    uint32_t original;
} mica__rope;

/* Whether heads rotate as in short contexts. It hangs on what the context can hold, not on what it holds: the keys that are
 * there keep their rotation as a sequence grows, and the same prompt gives the same bits whatever follows. */
static inline bool mica__rope_is_near(const mica__rope *rope, uint32_t capacity)
{
    return rope->near != NULL && capacity <= rope->original;
}

typedef struct mica__hparams {
    uint32_t layers, width, heads, kv_heads, head_k, head_v, rotary;
    uint32_t ffn, expert_ffn, experts, experts_used;
    uint32_t vocabulary, context_length;
    uint32_t window; /* tokens that sliding layers see; 0: there are none */
    /* tokens of a sequence: positions that the model has learned, or its rope is good for; 0: any */
    uint32_t longest;
    float eps;
    float attention_scale, attention_softcap, final_softcap;
    float embedding_scale; /* 1: none */
    float expert_scale;
    bool expert_normalise;
    bool scale_by_layer;  /* scores of layer i are divided by i + 1 once more */
    uint8_t activation;   /* mica__activation */
    bool rope_halves;     /* partners lie half a head apart, whatever the family says */
    mica_pooling pooling; /* of embeddings; DEFAULT if the file says nothing */
} mica__hparams;

/* ---- families ------------------------------------------------------------------------------------------- */

typedef enum mica__activation { MICA__SILU = 0, MICA__GELU, MICA__GELU_ERF } mica__activation;

typedef struct mica__family {
    const char *name; /* GGUF's general.architecture */
    uint8_t neox;     /* heads rotate with partners half a head apart */
    uint8_t no_rope;  /* positions are learned vectors */
    uint8_t layer_norm;
    uint8_t activation;       /* mica__activation, where the file says nothing */
    uint8_t ungated;          /* the feed-forward part has no gate */
    uint8_t scaled_embedding; /* the embedding is multiplied by the root of the width */
    uint8_t encoder;          /* sees in both directions, gives embeddings */
    /* where the file has a window and no pattern: layer i slides unless (i + 1) % pattern is 0; 0: all do */
    uint8_t pattern;
    float attention_softcap, final_softcap; /* where the file says nothing */
    uint64_t needs;                         /* MICA__BITs of what must be there */
} mica__family;

/* The family of that name; UNSUPPORTED lists those that are known. */
mica_status mica__family_find(const char *name, size_t length, const mica__family **out);

/* ---- the model ------------------------------------------------------------------------------------------ */

typedef struct mica__layer {
    mica_buffer *tensor[MICA__T_COUNT - MICA__T_WHOLE_COUNT];
    bool slides; /* has the window */
} mica__layer;

struct mica_model {
    _Atomic uint32_t references;
    mica_device *device;
    const mica__family *family;
    mica__hparams h;
    mica_model_info info;
    mica_buffer *tensor[MICA__T_WHOLE_COUNT];
    mica__layer *layer;
    mica__rope rope[2];           /* of layers that see everything, of sliding ones */
    mica_buffer *embedding_scale; /* [1] f32, or NULL */
    uint64_t fingerprint;         /* of the file: states of another model are refused */
    mica_tokenizer *tokenizer;    /* NULL: none */
    char *tokenizer_trouble;      /* why */
    char *chat_template;
    uint64_t chat_template_length;
};

/* A tensor of a layer, or NULL. */
static inline mica_buffer *mica__of_layer(const mica__layer *layer, mica__tensor_id id)
{
    return layer->tensor[id - MICA__T_WHOLE_COUNT];
}

/* Which tensor of which layer has this name: "blk.12.attn_q.weight" is Q of layer 12. False: none. */
bool mica__tensor_place(const char *name, mica__tensor_id *out_id, uint32_t *out_layer);
/* "attn_q.weight", "output.weight": of tensors of layers what stands behind "blk.N.". */
const char *mica__tensor_word(mica__tensor_id id);
/* Which layers slide: fills `slides` of h->layers layers. */
mica_status mica__layers_read(const mica_weights *weights, const mica__family *family, const mica__hparams *h,
                              mica__layer *layers);
/* Reads the numbers of the metadata. UNSUPPORTED names a key whose value mica does not run. */
mica_status mica__hparams_read(const mica_weights *weights, const mica__family *family, mica__hparams *h);
/* How heads rotate; makes the factors where the file has none but says how. Needs the tensors. */
mica_status mica__rope_setup(mica_model *model, const mica_weights *weights);
/* Whether the file can have the layers that it states: before memory is asked for by that number. */
mica_status mica__tensors_check_layers(const mica_model *model, const mica_weights *weights);
/* Loads every tensor of the file into its place. MALFORMED_FILE names the first that is missing or wrong. */
mica_status mica__tensors_load(mica_model *model, mica_weights *weights, const mica_model_options *options);

/* A key of this architecture: "llama." and the rest; false if the file does not have it or it is of another kind. */
bool mica__key_u32(const mica_weights *weights, const char *arch, const char *key, uint32_t *out);
bool mica__key_f32(const mica_weights *weights, const char *arch, const char *key, float *out);
bool mica__key_text(const mica_weights *weights, const char *arch, const char *key, mica_string *out);

mica_model *mica__model_retain(mica_model *model);

#endif
