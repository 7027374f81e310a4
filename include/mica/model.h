/*
 * model.h - models that talk: a model file in, logits, text or embeddings out; of the library libmica-model.
 *
 * A model is its weights on a device, immutable and shared. A context is the memory of one conversation or of many:
 * it holds sequences, each a list of tokens with what the model keeps about them, in pages of a cache. A sequence
 * that was forked from another shares the pages of their common beginning; two that were fed the same tokens do not.
 * Feeding tokens runs the model; a decode step is recorded once and replayed.
 *
 * The logits of a token depend on the tokens before it in its sequence alone: not on threads, on how its prompt was
 * cut into calls, or on what other sequences are fed in the same call; on the cpu bit for bit.
 *
 * Ownership and failure as in device.h. Threads: a model, any thread; a context, one thread at a time: a call that
 * finds another one in the same context fails with STATE. mica_context_cancel and mica_context_cancel_clear are for
 * any thread at any time. Every call obeys the work that its thread uses (work.h).
 *
 * Files that are mapped must not be made shorter while a model of them lives: reading what is gone ends the
 * process (SIGBUS). Matrices stay mapped that the device reads as the file has them (with keep_layout all of
 * them), and the token embedding where the model has a head of its own; vectors never do.
 * MICA_WEIGHTS_NO_MAP in `flags` maps nothing.
 */
#ifndef MICA_MODEL_H
#define MICA_MODEL_H

#include "mica/adapter.h"
#include "mica/sample.h"
#include "mica/text.h"
#include "mica/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- models --------------------------------------------------------------------------------------------- */

typedef struct mica_model_options {
    uint64_t size;  /* sizeof(mica_model_options); 0 = this version's */
    uint32_t flags; /* MICA_WEIGHTS_*, for files that are opened by path */
    /* 1: weights stay in the file's layout, mapped where the device can, instead of being packed for
     * speed: less memory that is this process's own, slower */
    uint32_t keep_layout;
    mica_progress progress; /* over the bytes of the weights; may be NULL */
    void *context;
    const char *const *accept_keys; /* [accept_key_count] keys of config.json: as in mica_weights_options */
    uint32_t accept_key_count;
} mica_model_options;

typedef struct mica_model_info {
    char family[32]; /* "llama", "qwen3moe", .. as GGUF's general.architecture */
    char name[128];  /* the model's own name, "" if it has none */
    char type[32];   /* of its weights, as mica_weights_info has it: "q4_k_m" */
    uint64_t parameters, weight_bytes;
    uint32_t layers, width, heads, kv_heads, head_size;
    uint32_t vocabulary;     /* length of a row of logits; 0 for encoders */
    uint32_t context_length; /* that it was trained for */
    uint32_t experts, experts_used;
    uint32_t window;  /* of its sliding layers; 0: it has none */
    uint32_t encoder; /* 1: gives embeddings, no logits */
} mica_model_info;

/* Opens a GGUF file, an HF folder or an MLX folder and loads it. `options` may be NULL. UNSUPPORTED: a family that is
 * not known (the sentence lists those that are), a key of config.json that is not known or whose value mica does not
 * run; MALFORMED_FILE names the first tensor that is missing or of the wrong shape, or the key; BUDGET also past the
 * limits of mica_work: layers, vocabulary, steps; OUT_OF_MEMORY, CANCELLED. The caller releases *out_model. */
MICA_API mica_status mica_model_open(const char *path, mica_device *device, const mica_model_options *options,
                                     mica_model **out_model);
/* The same from weights that are open already (MICA_WEIGHTS_AS_GGUF), which need not live on. */
MICA_API mica_status mica_model_create(mica_weights *weights, mica_device *device,
                                       const mica_model_options *options, mica_model **out_model);
/* NULL is fine. Contexts keep the model. */
MICA_API void mica_model_release(mica_model *model);
/* INVALID_ARGUMENT for NULL. */
MICA_API mica_status mica_model_get_info(const mica_model *model, mica_model_info *out);
/* The tokenizer of the model file, borrowed; NULL where it has none (mica_status_message says why). */
MICA_API const mica_tokenizer *mica_model_tokenizer(const mica_model *model);
/* The chat template of the model file, NUL after it, borrowed; NULL where it has none. */
MICA_API const char *mica_model_template(const mica_model *model, uint64_t *out_length);
/* The names of the families, for messages: NULL after the last one. Lives for ever. */
MICA_API const char *const *mica_model_families(void);

/* ---- contexts ------------------------------------------------------------------------------------------- */

typedef struct mica_context mica_context;

/* Whether a cache has keys without the mean of their head, which attention does not miss: a cache of few bits errs by
 * less then. The means are found when the context is created, by a pass over 64 tokens. */
typedef enum mica_centre {
    MICA_CENTRE_AUTO = 0, /* where keys have at most 5 bits and the model's scores are not capped */
    MICA_CENTRE_NEVER = 1,
    MICA_CENTRE_ALWAYS = 2 /* UNSUPPORTED where scores are capped */
} mica_centre;

typedef struct mica_context_options {
    uint64_t size; /* sizeof(mica_context_options); 0 = this version's */
    /* tokens that all sequences together can hold; 0 = 4096, or what the model was trained for if less */
    uint32_t capacity;
    uint32_t sequences;          /* that can live at once; 0 = 1 */
    uint32_t batch;              /* most tokens in one pass over the weights; 0 = 512, on GPUs 2048 */
    mica_dtype cache_k, cache_v; /* f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl turbo; NONE = f16 */
    /* 0: a sequence that has no room ends with FULL. 1: its first `keep` tokens and the newer half of
     * the others are kept and fed again, the rest is forgotten */
    uint32_t shift;
    uint32_t keep; /* tokens at the beginning that shifting never forgets */
    /* [adapter_count] of this model (adapter.h), all of which are applied; the context keeps them */
    const mica_adapter_use *adapters;
    uint32_t adapter_count;
    mica_centre centre_keys;
} mica_context_options;

typedef struct mica_context_info {
    uint32_t capacity, sequences, sequences_used;
    uint32_t page_tokens;                     /* tokens a page holds */
    uint32_t pages, pages_used;               /* of the layers that see everything */
    uint32_t window_pages, window_pages_used; /* of the layers with a sliding window */
    uint64_t cache_bytes;                     /* of all pages */
    uint64_t passes, tokens;                  /* since it was created */
    uint64_t recordings;                      /* decode steps that are kept */
    uint32_t batch;                           /* most tokens in one pass over the weights */
} mica_context_info;

/* `options` may be NULL. INVALID_ARGUMENT: among others a capacity of more than `sequences` times the positions that
 * the model has, where it has so many and no more (learned positions, dynamic rope scaling). BUDGET, OUT_OF_MEMORY;
 * UNSUPPORTED for cache types that the device has no kernel for. */
MICA_API mica_status mica_context_create(mica_model *model, const mica_context_options *options,
                                         mica_context **out_context);
/* NULL is fine. */
MICA_API void mica_context_release(mica_context *context);
/* INVALID_ARGUMENT for NULL. */
MICA_API mica_status mica_context_get_info(const mica_context *context, mica_context_info *out);
/* Stops the feed that is running with CANCELLED, or the next one if none is: on the cpu within 100 ms, on GPUs
 * after the pass of at most `batch` tokens that runs; while a pass is recorded within 100 ms on all. Its tokens
 * that were not done are not in the sequence. A feed is mica_context_feed, _next and _embed, mica_sequence_save
 * and _load. The cancel stays set until one of them obeyed it or it is cleared. Never fails but for NULL. Any
 * thread at any time, signal handlers too. */
MICA_API mica_status mica_context_cancel(mica_context *context);
/* Takes back a cancel that was not obeyed, as one that came after the feed it was meant for: for the start of a
 * request. Never fails but for NULL. Any thread, signal handlers too. */
MICA_API mica_status mica_context_cancel_clear(mica_context *context);

/* A new, empty sequence. FULL if all are in use. */
MICA_API mica_status mica_sequence_create(mica_context *context, uint32_t *out_sequence);
/* Its number and pages are free again. */
MICA_API mica_status mica_sequence_remove(mica_context *context, uint32_t sequence);
/* A new sequence with the first `length` tokens of another, whose pages it shares until one of them writes there.
 * INVALID_ARGUMENT if it is longer than that, FULL; UNSUPPORTED where a sliding window has forgotten what is needed. */
MICA_API mica_status mica_sequence_fork(mica_context *context, uint32_t sequence, uint32_t length,
                                        uint32_t *out_sequence);
/* Forgets everything after the first `length` tokens. As fork. */
MICA_API mica_status mica_sequence_trim(mica_context *context, uint32_t sequence, uint32_t length);
/* How many tokens it has; `ids` (may be NULL) gets the first `capacity` of them. */
MICA_API mica_status mica_sequence_tokens(const mica_context *context, uint32_t sequence, uint32_t *ids,
                                          uint32_t capacity, uint32_t *out_count);

/* Which tokens of a feed give logits (encoders: embeddings). */
typedef enum mica_want { MICA_WANT_LAST = 0, MICA_WANT_NONE, MICA_WANT_ALL } mica_want;

typedef struct mica_feed {
    uint32_t sequence;
    const uint32_t *tokens;
    uint32_t count; /* at least 1 */
    mica_want want;
} mica_feed;

/* Appends tokens to sequences, each sequence at most once, and runs the model over them in passes of at most
 * `batch` tokens. INVALID_ARGUMENT: no such sequence, an id out of range, a prompt longer than the context. FULL:
 * no room in the context (then nothing was fed): a sequence must be trimmed or removed. BUDGET, OUT_OF_MEMORY: no
 * memory on the device for a pass, although the recordings of earlier ones were given back; a smaller `batch`
 * needs less. BUDGET also past the steps of mica_work. CANCELLED. After a failure of the device a sequence has the
 * tokens of the passes that were done. */
MICA_API mica_status mica_context_feed(mica_context *context, const mica_feed *feeds, uint32_t count);
/* The logits that the last feed (or mica_context_next) wanted of this sequence: [out_rows, vocabulary], borrowed until
 * the next one. STATE if it wanted none. */
MICA_API mica_status mica_context_logits(mica_context *context, uint32_t sequence, const float **out_logits,
                                         uint32_t *out_rows);

#define MICA_NEXT_LOG_PROBABILITY 1u /* log_probability is wanted */
#define MICA_NEXT_LOGITS 2u          /* mica_context_logits afterwards */

/* Tokens for a sequence, and the one that follows them. */
typedef struct mica_next {
    uint32_t sequence;
    const uint32_t *tokens; /* fed first; not the `id` of an item, which is an output */
    uint32_t count;         /* at least 1 */
    uint32_t flags;         /* MICA_NEXT_* */
    mica_sampler *sampler;  /* each in one item alone, for the model's vocabulary; not NULL */
    uint32_t id;            /* out: the token that follows; MICA_NO_TOKEN after a failure */
    float log_probability;  /* out, with that flag: natural, of the softmax of the raw logits */
    mica_status status;     /* out: what failed with this item, OK where nothing did */
} mica_next;

/* A decode step: feeds as mica_context_feed does and picks as mica_sampler_pick does, in one pass over the device
 * that gives back the token and nothing else. Samplers with mirostat, DRY or XTC, a bias for more than 1024 tokens or
 * penalties on more than 4096 pick on the host, from logits that are read back; the caller sees no difference. The
 * token is neither accepted nor fed: mica_sampler_accept, then the next call. INVALID_ARGUMENT also where a sampler
 * has nothing to choose: then the tokens were fed, and the other items have theirs.
 *
 * After a failure the status of each item tells whose it was. Wrong items (INVALID_ARGUMENT) and those for
 * which there is no room (FULL) are all marked, and nothing was fed; leave them out, and the call succeeds. A
 * failure that is no item's own (CANCELLED, memory, the device) stands in every item that got no token. The
 * call gives the status of the first. */
MICA_API mica_status mica_context_next(mica_context *context, mica_next *items, uint32_t count);

/* The token that follows, by the last row of those logits: mica_sampler_pick. It is neither accepted nor fed. */
MICA_API mica_status mica_context_sample(mica_context *context, uint32_t sequence, mica_sampler *sampler,
                                         uint32_t *out_id);

/* How the vectors of a text become one. */
typedef enum mica_pooling {
    MICA_POOLING_DEFAULT = 0, /* what the file or folder says; else mean for encoders, last for others */
    MICA_POOLING_MEAN,
    MICA_POOLING_CLS, /* the first token's */
    MICA_POOLING_LAST
} mica_pooling;
/* The embedding of a text: [width] floats. Encoders and others alike; sequences are not touched. `normalise` 1: to
 * length one. INVALID_ARGUMENT for a text longer than the context. */
MICA_API mica_status mica_context_embed(mica_context *context, const uint32_t *tokens, uint32_t count,
                                        mica_pooling pooling, int normalise, float *out_vector);

/* Writes a sequence and its part of the cache to a file, whole or not at all (safetensors). */
MICA_API mica_status mica_sequence_save(mica_context *context, uint32_t sequence, const char *path);
/* A new sequence from such a file. MALFORMED_FILE; INVALID_ARGUMENT if it is of another model or another cache type, or
 * longer than the context; FULL if it finds no room now. */
MICA_API mica_status mica_sequence_load(mica_context *context, const char *path, uint32_t *out_sequence);

#ifdef __cplusplus
}
#endif
#endif
