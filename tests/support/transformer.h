/*
 * transformer.h - a small transformer with random weights: what tests run as a whole pass.
 *
 * Beside src/model on purpose. Its passes are always recorded and fused, in types that files have; what is tested here lies below
 * it: direct sessions and replays of one pass against each other, recordings that are not fused, clones bound to other buffers,
 * activations of 16 bits, every kind of cache, and each allocation of all that failing. Whole models are tested in tests/model.
 *
 * A model owns the weights, a stream one sequence (its cache, token, position, logits), a pass the buffers between
 * ops. Position, length and token live on the device; a decode step reads them and moves them on by itself.
 */
#ifndef TEST_SUPPORT_TRANSFORMER_H
#define TEST_SUPPORT_TRANSFORMER_H

#include <stdint.h>

#include "mica/mica.h"

typedef struct test_shape {
    uint32_t dim, layers, ffn, heads, kv_heads, head_dim, vocab;
    mica_dtype weight;              /* of all matrices and the embedding */
    mica_dtype activation, cache;   /* NONE: f32, f16 */
    uint32_t positions;             /* room in the cache */
    uint32_t page_slots;            /* 0: one flat cache */
    uint32_t window;                /* 0: all keys */
    uint32_t ring;                  /* 1: the flat cache is a ring of `positions` slots */
    uint32_t packed;                /* 1: weights in the layout that the device likes best */
    uint32_t head_norm, bias, gelu; /* norm of each q and k head; bias on q, k, v; gelu instead of silu */
    float softcap;                  /* of the logits; 0: none */
} test_shape;

typedef struct test_model test_model;
typedef struct test_stream test_stream;
typedef struct test_pass test_pass;

mica_status test_model_create(mica_device *device, const test_shape *shape, uint64_t seed,
                              test_model **out_model);
void test_model_release(test_model *model);

/* One sequence with an empty cache. */
mica_status test_stream_create(const test_model *model, test_stream **out_stream);
void test_stream_release(test_stream *stream);
/* The next decode step takes `token` at `position`. */
mica_status test_stream_set(test_stream *stream, uint32_t token, uint32_t position);
/* Token that the last step chose, and its logits (vocab floats); either may be NULL. */
mica_status test_stream_read(test_stream *stream, uint32_t *out_token, float *out_logits);
/* Every use of `from` in the recording becomes that of `to`: the recording now works on another sequence. */
mica_status test_stream_rebind(mica_recording *recording, test_stream *from, test_stream *to);

/* Buffers for `tokens` rows. With a session they are its temporaries, else plain ones. `tokens` 1 is a decode step that
 * works on the stream's own token and position. */
mica_status test_pass_create(test_stream *stream, uint32_t tokens, mica_session *session,
                             test_pass **out_pass);
void test_pass_release(test_pass *pass);
/* Encodes the pass; a decode step also feeds its choice back and advances. */
mica_status test_pass_encode(test_pass *pass, mica_encoder *encoder);

/* A decode step recorded with MICA_FINISH_* flags. */
mica_status test_decode_record(test_stream *stream, uint32_t flags, mica_session_stats *out_stats,
                               mica_recording **out_recording);
/* A decode step encoded, run and waited for. */
mica_status test_decode_direct(test_stream *stream, test_pass *pass);
/* Runs `count` tokens from position 0 on, `rows` at a time, each chunk directly; logits [count, vocab]. */
mica_status test_prefill(test_stream *stream, const uint32_t *tokens, uint32_t count, uint32_t rows,
                         float *out_logits);

#endif
