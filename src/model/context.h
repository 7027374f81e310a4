/*
 * context.h - a context: its sequences, its cache, the passes it runs.
 *
 * context.c makes it and keeps its sequences; feed.c turns tokens into passes; pass.c runs one, recorded or once;
 * decoder.c and encoder.c are the forward functions; embed.c and state.c use them for vectors and files.
 */
#ifndef MICA_MODEL_CONTEXT_H
#define MICA_MODEL_CONTEXT_H

#include <pthread.h>

#include "model/pages.h"
#include "model/parts.h"

#define MICA__PAGE_TOKENS 32u /* divides the chunk of keys that attention adds up at a time */
#define MICA__KINDS 2u        /* of layers: see everything, have a window */

typedef struct mica__sequence {
    bool used;
    uint32_t length;
    uint32_t *tokens;              /* [capacity] */
    uint32_t first_row, row_count; /* of the last feed's logits */
} mica__sequence;

/* What a pass gives. */
typedef enum mica__gives { MICA__GIVES_LOGITS = 0, MICA__GIVES_STATES } mica__gives;

/* A pass over `rows` tokens of which `outputs` give something. States: all rows do. */
typedef struct mica__pass_shape {
    uint32_t rows, outputs;
    mica__gives gives;
} mica__pass_shape;

#define MICA__RECORDED 24u /* recordings that are kept */
#define MICA__RECORDED_ROWS \
    32u /* of passes up to so many tokens: longer ones are prompts, each of its own length */

typedef struct mica__recorded {
    mica__pass_shape shape;
    mica_recording *recording; /* NULL: free */
    mica_buffer *result;
    uint64_t used; /* the pass that used it last */
} mica__recorded;

struct mica_context {
    mica_model *model;
    uint32_t capacity, sequences, batch, most_outputs;
    bool shift;
    uint32_t keep;
    mica_dtype cache_k, cache_v;
    mica__pages pages[MICA__KINDS]; /* the second only for models with a window */
    mica_buffer *table[MICA__KINDS];
    mica_buffer **k, **v; /* [layers]: [pages, page, kv heads, head] */
    uint64_t cache_bytes;
    mica__sequence *sequence; /* [sequences] */
    uint32_t *input;          /* host copy of what a pass reads, laid out as in pass.c */
    mica_buffer *inputs;
    float *logits; /* [logit_capacity, vocabulary] of the last feed */
    uint32_t logit_rows, logit_capacity;
    mica__recorded recorded[MICA__RECORDED];
    mica_buffer *once; /* result of the last pass that was not recorded */
    uint64_t passes, tokens;
    pthread_mutex_t lock; /* guards `running` and `cancelled` */
    mica_fence *running;
    bool cancelled;
};

/* Words of `input` for a pass of this shape, in this order: tokens, positions and sequences [rows], rows that give
 * something [outputs], lengths [sequences]. */
typedef struct mica__pass_input {
    uint32_t *tokens, *positions, *sequences, *wanted, *lengths;
} mica__pass_input;
mica__pass_input mica__pass_place(mica_context *context, const mica__pass_shape *shape);
/* Runs it over `input`; *out_result [outputs or rows, ..] is borrowed until the next pass, f32. CANCELLED. */
mica_status mica__pass_run(mica_context *context, const mica__pass_shape *shape, mica_buffer **out_result);
/* Drops all recordings and results. */
void mica__pass_forget(mica_context *context);

/* What forward functions work on. Buffers are session temporaries, made when first asked for. */
enum {
    MICA__B_HIDDEN,
    MICA__B_NORMED,
    MICA__B_QKV,
    MICA__B_Q,
    MICA__B_K,
    MICA__B_V,
    MICA__B_MIXED,
    MICA__B_ADDED,
    MICA__B_GATE_UP,
    MICA__B_GATE,
    MICA__B_UP,
    MICA__B_ROUTER,
    MICA__B_EXPERTS,
    MICA__B_EXPERT_WEIGHTS,
    MICA__B_EXPERT_GATE,
    MICA__B_EXPERT_UP,
    MICA__B_EXPERT_OUT,
    MICA__B_CHOSEN,
    MICA__B_CHOSEN_NORMED,
    MICA__B_COUNT
};

#define MICA__PASS_VIEWS 24u

typedef struct mica__pass {
    mica_context *context;
    const mica_model *model;
    mica_session *session;
    mica_encoder *encoder;
    mica__pass_shape shape;
    mica_buffer *tokens, *positions, *sequences, *wanted, *lengths;
    mica_buffer *result;
    mica_buffer *buffer[MICA__B_COUNT];
    mica_buffer *view[MICA__PASS_VIEWS]; /* released with the pass */
    uint32_t view_count;
} mica__pass;

/* The buffer [rows, columns] of that number. */
mica_status mica__pass_buffer(mica__pass *pass, uint32_t which, mica_dtype dtype, uint32_t ndim,
                              const uint64_t *shape, mica_buffer **out);
/* The pass keeps a view that was `made`, and releases it at its end. */
mica_status mica__pass_keep(mica__pass *pass, mica_status made, mica_buffer *const *view);

/* The forward functions: encode the pass. */
mica_status mica__decoder_forward(mica__pass *pass);
mica_status mica__encoder_forward(mica__pass *pass);

/* y = x . w^T + bias; bias may be NULL. */
mica_status mica__linear(mica__pass *pass, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                         mica_buffer *y);
/* The norm of the family. */
mica_status mica__norm(mica__pass *pass, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                       mica_buffer *y);

/* Appends nothing, runs the model over tokens of a text alone: its states [count, width] in `out`, f32. */
mica_status mica__context_states(mica_context *context, const uint32_t *tokens, uint32_t count, float *out);
/* INVALID_ARGUMENT unless the sequence is in use. */
mica_status mica__sequence_check(const char *call, const mica_context *context, uint32_t sequence);
/* Copies a page of a kind of layers in all of them. */
mica_status mica__context_copy_page(mica_context *context, uint32_t kind, const mica__page_copy *copy);
/* Makes room for positions [from, to) of a sequence, in all kinds of pages; BUDGET if there is none. */
mica_status mica__context_extend(mica_context *context, uint32_t sequence, uint32_t from, uint32_t to);

#endif
