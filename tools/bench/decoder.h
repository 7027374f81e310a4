/*
 * decoder.h - a transformer of a real shape with random weights, and one decode step of it written with ops.
 *
 * Beside src/model, which records its passes, always fused, and shows no step of them: `mica pass` runs the same step directly,
 * replayed and fused, and says what each is worth. What a model does is timed by `mica bench -m`.
 */
#ifndef TOOL_BENCH_DECODER_H
#define TOOL_BENCH_DECODER_H

#include "mica/mica.h"

typedef struct decoder_shape {
    const char *name;
    uint32_t dim, layers, ffn, heads, kv_heads, head_dim, vocab;
} decoder_shape;

enum {
    DECODER_ATTENTION_NORM,
    DECODER_Q,
    DECODER_K,
    DECODER_V,
    DECODER_O,
    DECODER_FFN_NORM,
    DECODER_GATE,
    DECODER_UP,
    DECODER_DOWN,
    DECODER_K_CACHE,
    DECODER_V_CACHE,
    DECODER_LAYER_BUFFERS
};

typedef struct decoder {
    decoder_shape shape;
    mica_device *device;
    mica_buffer *embedding; /* [vocab, dim], the output matrix too */
    mica_buffer *final_norm;
    mica_buffer *(*layer)[DECODER_LAYER_BUFFERS]; /* [layers] */
    mica_buffer *token, *position, *length;       /* u32 [1]: the state that a step moves on by itself */
    uint64_t weight_bytes;
} decoder;

/* What a step computes on its way; temporaries of a session, or buffers of the caller. */
enum {
    STEP_HIDDEN,
    STEP_NORMED,
    STEP_Q,
    STEP_K,
    STEP_V,
    STEP_MIXED,
    STEP_GATE,
    STEP_UP,
    STEP_ADDED,
    STEP_LOGITS,
    STEP_FLAT,
    STEP_Q_HEADS = STEP_FLAT,
    STEP_K_HEADS,
    STEP_V_HEADS,
    STEP_MIXED_HEADS,
    STEP_BUFFERS
};
typedef struct decoder_step {
    mica_buffer *buffer[STEP_BUFFERS];
} decoder_step;

/* NULL when there is no shape of that name. */
const decoder_shape *decoder_shape_find(const char *name);
/* Weights of `type`, norms f32, caches f16 for `positions` tokens. */
mica_status decoder_create(mica_device *device, const decoder_shape *shape, mica_dtype type,
                           uint32_t positions, decoder **out_decoder);
void decoder_release(decoder *d);
/* Back to the first token of a sequence. */
mica_status decoder_restart(decoder *d);
/* `session` NULL: ordinary buffers. */
mica_status decoder_step_create(const decoder *d, mica_session *session, decoder_step *out_step);
void decoder_step_release(decoder_step *step);
/* Adds the ops of one token. */
mica_status decoder_encode(const decoder *d, const decoder_step *step, mica_encoder *encoder);

#endif
