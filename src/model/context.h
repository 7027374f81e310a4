/*
 * context.h - a context: its sequences, its cache, the passes it runs.
 *
 * context.c makes it and keeps its sequences; feed.c turns tokens into passes; pass.c runs one, recorded or once;
 * decoder.c and encoder.c are the forward functions, pick.c is the end of a pass that also chooses the tokens that
 * follow, next.c what samplers give it and get from it; embed.c and state.c use passes for vectors and files.
 */
#ifndef MICA_MODEL_CONTEXT_H
#define MICA_MODEL_CONTEXT_H

#include "base/work.h"
#include "model/adapter.h"
#include "model/pages.h"
#include "model/parts.h"

#define MICA__PAGE_TOKENS 32u /* divides the chunk of keys that attention adds up at a time */
#define MICA__KINDS 2u        /* of layers: see everything, have a window */

typedef struct mica__sequence {
    bool used;
    uint32_t length;
    uint32_t *tokens;              /* [capacity] */
    uint32_t first_row, row_count; /* of the last feed's logits */
    uint64_t fed;                  /* the last feed that it was in, by feed_count */
} mica__sequence;

/* What a pass gives. */
typedef enum mica__gives { MICA__GIVES_LOGITS = 0, MICA__GIVES_STATES } mica__gives;

/* What the end of a pass does to choose a token for each output. */
typedef struct mica__picking {
    uint32_t on;      /* 1: tokens are chosen */
    uint32_t history; /* width of the histories; 0: none */
    uint32_t bias;    /* slots of biases; 0: none */
    uint32_t masked;  /* 1: with masks of tokens */
    uint32_t chances; /* 1: their log-probabilities too */
    uint32_t logits;  /* 1: logits are left as they were */
} mica__picking;

/* A pass over `rows` tokens of which `outputs` give something. States: all rows do. */
typedef struct mica__pass_shape {
    uint32_t rows, outputs;
    mica__gives gives;
    mica__picking picking;
} mica__pass_shape;

/* What came out of a pass, borrowed until the next one. */
typedef struct mica__pass_result {
    /* Logits [outputs, vocabulary] or states [rows, width], f32; NULL: no outputs, or nobody reads them. */
    mica_buffer *rows;
    mica_buffer *picks; /* u32 [2, outputs]: chosen tokens, the bits of their log-probabilities; NULL: none */
} mica__pass_result;

#define MICA__RECORDED 24u /* recordings that are kept */
/* Of passes up to so many tokens: longer ones are prompts, or steps of many sequences. */
#define MICA__RECORDED_ROWS 32u

typedef struct mica__recorded {
    mica__pass_shape shape;
    mica_recording *recording; /* NULL: free */
    mica_buffer *inputs;       /* what the host writes before each replay */
    mica__pass_result result;
    uint64_t used; /* the pass that used it last */
} mica__recorded;

struct mica_context {
    mica_model *model;
    uint32_t capacity, sequences, batch, most_outputs;
    uint32_t longest; /* tokens of one sequence: the capacity, or fewer where the model's positions end */
    bool shift;
    uint32_t keep;
    mica_dtype cache_k, cache_v;
    mica__pages pages[MICA__KINDS]; /* the second only for models with a window */
    mica_buffer *table[MICA__KINDS];
    mica_buffer **k, **v; /* [layers]: [pages, page, kv heads, head] */
    /* [layers]: [1, kv heads, head], which the keys in the cache are without; NULL: they are whole */
    mica_buffer **mean_key;
    uint64_t cache_bytes;
    mica__sequence *sequence; /* [sequences] */
    uint32_t lowest;          /* those before it are in use */
    uint32_t *input;          /* [input_capacity] host copy of what a pass reads, laid out as in pass.c */
    uint64_t input_capacity;
    mica_feed *feeds; /* [sequences] of mica_context_next */
    uint32_t *picks;  /* [2, sequences] host copy of a pass's picks */
    float *logits;    /* [logit_capacity, vocabulary] of the last feed */
    uint32_t logit_rows, logit_capacity;
    mica_arena *arena; /* of what passes keep meanwhile: they never run at once */
    mica_buffer *rows; /* f32 [elements] that rows of results lie in; NULL: none was made */
    mica__recorded recorded[MICA__RECORDED];
    mica__pass_result once; /* of the last pass that was not recorded */
    uint64_t passes, tokens, feed_count;
    /* [seen_mask + 1] of mica_context_next: by their addresses, at most half full */
    const mica_sampler **seen;
    uint32_t seen_mask;
    mica__adapters adapters;
    mica_work own; /* mica_context_cancel cancels it */
    /* a call has the context: mica__fork_generation() + 1 of its process; 0: none has */
    _Atomic uint32_t busy;
    bool stoppable; /* the device can stop what it runs */
};

/* Begins a call that needs the context alone, as a frame of that name: STATE while another call has it. After a failure
 * there is nothing to leave. */
mica_status mica__context_enter(const mica_context *context, const char *name, mica__call *call);
/* The same for a call that mica_context_cancel stops. */
mica_status mica__context_enter_work(mica_context *context, const char *name, mica__call *call);
/* Ends either of them and gives `status` back. A cancel that was obeyed is over. */
mica_status mica__context_leave(const mica_context *context, mica__call *call, mica_status status);

/* Words of `input` for a pass of this shape, in this order: tokens, positions and sequences [rows], rows that give
 * something [outputs], lengths [sequences]; where tokens are chosen also [outputs] rows of settings, of a history, of
 * ids with a bias, of the bits of these biases, of a mask. */
typedef struct mica__pass_input {
    uint32_t *tokens, *positions, *sequences, *wanted, *lengths;
    uint32_t *settings, *history, *bias_ids, *bias, *mask;
} mica__pass_input;
/* Grows `input` where it must: OUT_OF_MEMORY. */
mica_status mica__pass_place(mica_context *context, const mica__pass_shape *shape, mica__pass_input *out);
/* Words of a row of a mask. */
static inline uint32_t mica__mask_words(const mica_context *context)
{
    return (context->model->h.vocabulary + 31) / 32;
}
/* Runs it over `input`. CANCELLED. */
mica_status mica__pass_run(mica_context *context, const mica__pass_shape *shape, mica__pass_result *out);
/* Drops all recordings and results. */
void mica__pass_forget(mica_context *context);

#define MICA__PASS_HANDLES 64u /* of a layer, or of what comes before and after all of them */

/* What forward functions work on. Every value is a temporary of its own: the passes find places for them. */
typedef struct mica__pass {
    mica_context *context; /* NULL: nothing is kept, and each of `texts` sees itself alone */
    uint32_t texts;        /* without a cache: of as many rows each; else 0 */
    uint32_t capacity;     /* tokens that a sequence can have */
    const mica__adapters *adapters;
    const mica_model *model;
    mica_session *session;
    mica_encoder *encoder;
    mica__pass_shape shape;
    bool once; /* runs in stages while it is encoded, and never again */
    mica_buffer *inputs;
    mica_buffer *tokens, *positions, *sequences, *wanted, *lengths; /* parts of it */
    uint64_t rest;       /* the word of `inputs` where what picking reads begins */
    mica_buffer *result; /* logits or states */
    mica_buffer *
        *mean_key; /* [layers] where means of keys go, the rows being at `places`; NULL: nobody asked */
    mica_buffer *places;
    mica_buffer *picks;
    mica_buffer *handle[MICA__PASS_HANDLES]; /* of values and views, until mica__pass_drop */
    uint32_t handle_count;
} mica__pass;

/* A new value. The pass keeps the handle. */
mica_status mica__pass_value(mica__pass *pass, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                             mica_buffer **out);
/* One of f32 with as many columns for each of the pass's tokens. */
mica_status mica__pass_rows(mica__pass *pass, uint64_t columns, mica_buffer **out);
/* One of f32, shaped as `like`. */
mica_status mica__pass_like(mica__pass *pass, const mica_buffer *like, mica_buffer **out);
/* The pass keeps a view that was `made`, until mica__pass_drop. */
mica_status mica__pass_keep(mica__pass *pass, mica_status made, mica_buffer *const *view);
/* Lets go of all handles that it keeps: records that use what is behind them go on. */
void mica__pass_drop(mica__pass *pass);
/* Between layers: no value is read afterwards, other buffers are. */
mica_status mica__pass_stage(mica__pass *pass);

#define MICA__LAYER_STEPS 1000u /* of encoding a layer */

/* The forward functions: encode the pass. */
mica_status mica__decoder_forward(mica__pass *pass);
mica_status mica__encoder_forward(mica__pass *pass);
/* The end of a pass whose logits are in `result`: chooses tokens. */
mica_status mica__pass_pick(mica__pass *pass);

/* Attention of each text over its own keys and values: rows of q, k and v as heads, to `mixed`. */
mica_status mica__attend_texts(mica__pass *pass, mica_buffer *q, mica_buffer *k, mica_buffer *v,
                               const mica_attention_params *params, mica_buffer *mixed);
/* Begins a pass over `texts` texts of `length` tokens each, of which nothing is kept: its session, `tokens` to be written, positions and
 * lengths. mica__whole_end also after a failure. */
mica_status mica__whole_begin(const mica_model *model, const mica__adapters *adapters, uint32_t texts,
                              uint32_t length, mica__pass *out);
void mica__whole_end(mica__pass *pass);
/* Until the fence ends, which is gone then. CANCELLED. */
mica_status mica__pass_wait(const mica_context *context, mica_fence *fence);

#define MICA__CENTRE_ROWS 64u
/* Whether keys lose their mean: UNSUPPORTED where it was asked for and the model would notice. */
mica_status mica__centre_choose(const mica_context *context, mica_centre asked, bool *out);
/* Makes context->mean_key. */
mica_status mica__centre_measure(mica_context *context);

/* What the pass's adapters add to y = x . w^T: y itself where there is none for the weight. */
mica_status mica__adapt(mica__pass *pass, mica_buffer *x, const mica_buffer *weight, mica_buffer *y,
                        mica_buffer **out);
/* A value x . w^T + bias, with what adapters add; bias may be NULL. */
mica_status mica__linear(mica__pass *pass, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                         mica_buffer **out);
/* The gelu that the model has. */
mica_status mica__gelu(mica__pass *pass, mica_buffer *x, mica_buffer **out);
/* y = the norm of the family. */
mica_status mica__norm(mica__pass *pass, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                       mica_buffer *y);

/* Appends nothing, runs the model over tokens of a text alone: its states [count, width] in `out`, f32. */
mica_status mica__context_states(mica_context *context, const uint32_t *tokens, uint32_t count, float *out);
/* Feeds, and where `items` is not NULL chooses the token that follows each of the feeds: they are its feeds, with
 * WANT_LAST, in the same order. */
mica_status mica__context_feed(mica_context *context, const mica_feed *feeds, uint32_t count,
                               mica_next *items);
/* The logits of the last feed: STATE if it wanted none. */
mica_status mica__context_logits(const mica_context *context, uint32_t sequence, const float **out_logits,
                                 uint32_t *out_rows);
/* next.c: what the passes of such a feed do at their end; *out_reads: the host needs logits. */
mica__picking mica__next_picking(const mica_next *items, uint32_t count, bool *out_reads);
/* Writes what the sampler of an item knows into row `row` of a pass's input. */
mica_status mica__next_place(const mica_context *context, const mica__picking *picking,
                             const mica__pass_input *input, uint32_t row, const mica_next *item);
/* Gives `count` items the tokens of a pass: outputs 0 to count - 1 of it. `logits` is [count, vocabulary] or NULL. */
mica_status mica__next_take(mica_context *context, const mica__pass_result *result, const float *logits,
                            mica_next *items, uint32_t count);
/* INVALID_ARGUMENT unless the sequence is in use. */
mica_status mica__sequence_check(const mica_context *context, uint32_t sequence);
/* What the calls of these names do, for those that have the context already. */
mica_status mica__sequence_create(mica_context *context, uint32_t *out_sequence);
void mica__sequence_remove(mica_context *context, uint32_t sequence);
mica_status mica__sequence_trim(mica_context *context, uint32_t sequence, uint32_t length);
/* Copies a page of a kind of layers in all of them. */
mica_status mica__context_copy_page(mica_context *context, uint32_t kind, const mica__page_copy *copy);
/* Makes room for positions [from, to) of a sequence, in all kinds of pages; FULL if there is none. */
mica_status mica__context_extend(mica_context *context, uint32_t sequence, uint32_t from, uint32_t to);

#endif
