/*
 * transformer.c - a sequence, and one pass over it.
 */
#include "support/transformer_parts.h"

#include <stdlib.h>

#include "support/tensor.h"

static mica_status create_pages(test_stream *stream, uint32_t pages)
{
    uint64_t shape[2] = {1, pages};
    uint32_t *order = test_alloc(pages, sizeof *order);
    test_random random = test_random_from(pages);
    mica_status status;

    for (uint32_t i = 0; i < pages; i++) {
        uint32_t other = (uint32_t)test_random_below(&random, i + 1u);

        order[i] = order[other];
        order[other] = i;
    }
    status = mica_buffer_alloc(stream->model->device, MICA_DTYPE_U32, 2, shape, &stream->pages);
    if (status == MICA_OK)
        status = mica_buffer_write(stream->pages, 0, order, pages * sizeof *order);
    free(order);
    return status;
}

static mica_status create_stream(test_stream *stream)
{
    const test_shape *s = &stream->model->shape;
    mica_device *device = stream->model->device;
    uint32_t pages = s->page_slots ? (s->positions + s->page_slots - 1) / s->page_slots : 0;
    uint64_t paged[4] = {pages, s->page_slots, s->kv_heads, s->head_dim};
    uint64_t flat[3] = {s->positions, s->kv_heads, s->head_dim}, one = 1, row[2] = {1, s->vocab};

    for (uint32_t i = 0; i < s->layers; i++) {
        TEST_TRY(mica_buffer_alloc(device, s->cache, pages ? 4 : 3, pages ? paged : flat, &stream->k[i]));
        TEST_TRY(mica_buffer_alloc(device, s->cache, pages ? 4 : 3, pages ? paged : flat, &stream->v[i]));
    }
    if (pages)
        TEST_TRY(create_pages(stream, pages));
    TEST_TRY(mica_buffer_alloc(device, MICA_DTYPE_U32, 1, &one, &stream->token));
    TEST_TRY(mica_buffer_alloc(device, MICA_DTYPE_U32, 1, &one, &stream->position));
    TEST_TRY(mica_buffer_alloc(device, MICA_DTYPE_U32, 1, &one, &stream->length));
    TEST_TRY(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, row, &stream->logits));
    return test_stream_set(stream, 0, 0);
}

mica_status test_stream_create(const test_model *model, test_stream **out_stream)
{
    test_stream *stream = test_alloc(1, sizeof *stream);
    mica_status status;

    *out_stream = NULL;
    stream->model = model;
    stream->k = test_alloc(model->shape.layers, sizeof *stream->k);
    stream->v = test_alloc(model->shape.layers, sizeof *stream->v);
    status = create_stream(stream);
    if (status != MICA_OK) {
        test_stream_release(stream);
        return status;
    }
    *out_stream = stream;
    return MICA_OK;
}

void test_stream_release(test_stream *stream)
{
    if (!stream)
        return;
    for (uint32_t i = 0; i < stream->model->shape.layers; i++) {
        mica_buffer_release(stream->k[i]);
        mica_buffer_release(stream->v[i]);
    }
    mica_buffer_release(stream->pages);
    mica_buffer_release(stream->token);
    mica_buffer_release(stream->position);
    mica_buffer_release(stream->length);
    mica_buffer_release(stream->logits);
    free(stream->k);
    free(stream->v);
    free(stream);
}

mica_status test_stream_set(test_stream *stream, uint32_t token, uint32_t position)
{
    uint32_t length = position + 1;

    TEST_TRY(mica_buffer_write(stream->token, 0, &token, sizeof token));
    TEST_TRY(mica_buffer_write(stream->position, 0, &position, sizeof position));
    return mica_buffer_write(stream->length, 0, &length, sizeof length);
}

mica_status test_stream_read(test_stream *stream, uint32_t *out_token, float *out_logits)
{
    if (out_token)
        TEST_TRY(mica_buffer_read(stream->token, 0, out_token, sizeof *out_token));
    if (out_logits)
        TEST_TRY(
            mica_buffer_read(stream->logits, 0, out_logits, stream->model->shape.vocab * sizeof *out_logits));
    return MICA_OK;
}

mica_status test_stream_rebind(mica_recording *recording, test_stream *from, test_stream *to)
{
    mica_buffer *pairs[][2] = {{from->token, to->token},
                               {from->position, to->position},
                               {from->length, to->length},
                               {from->logits, to->logits}};
    uint32_t uses;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        TEST_TRY(mica_recording_rebind(recording, pairs[i][0], pairs[i][1], &uses));
    for (uint32_t i = 0; i < from->model->shape.layers; i++) {
        TEST_TRY(mica_recording_rebind(recording, from->k[i], to->k[i], &uses));
        TEST_TRY(mica_recording_rebind(recording, from->v[i], to->v[i], &uses));
    }
    return MICA_OK;
}

static mica_status create_flat(test_pass *pass, mica_session *session, uint32_t which, uint64_t columns)
{
    const test_model *model = pass->stream->model;
    uint64_t shape[2] = {pass->tokens, columns};

    if (session)
        return mica_session_temp(session, model->shape.activation, 2, shape, &pass->buffer[which]);
    return mica_buffer_alloc(model->device, model->shape.activation, 2, shape, &pass->buffer[which]);
}

static mica_status create_heads(test_pass *pass, uint32_t flat, uint32_t heads, uint64_t count)
{
    uint64_t shape[3] = {pass->tokens, count, pass->stream->model->shape.head_dim};

    return mica_buffer_reshape(pass->buffer[flat], 3, shape, &pass->buffer[heads]);
}

/* A decode step works on the stream's own buffers, a longer pass on its own. */
static mica_status create_ends(test_pass *pass)
{
    test_stream *stream = pass->stream;
    mica_device *device = stream->model->device;
    uint64_t tokens = pass->tokens, rows[2] = {pass->tokens, stream->model->shape.vocab};

    if (pass->tokens == 1) {
        pass->ids = mica_buffer_retain(stream->token);
        pass->positions = mica_buffer_retain(stream->position);
        pass->logits = mica_buffer_retain(stream->logits);
        pass->chosen = mica_buffer_retain(stream->token);
        return MICA_OK;
    }
    TEST_TRY(mica_buffer_alloc(device, MICA_DTYPE_U32, 1, &tokens, &pass->ids));
    TEST_TRY(mica_buffer_alloc(device, MICA_DTYPE_U32, 1, &tokens, &pass->positions));
    TEST_TRY(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, rows, &pass->logits));
    return mica_buffer_alloc(device, MICA_DTYPE_U32, 1, &tokens, &pass->chosen);
}

static mica_status create_pass(test_pass *pass, mica_session *session)
{
    const test_shape *s = &pass->stream->model->shape;
    uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;
    const uint64_t columns[FLAT_BUFFERS] = {s->dim, s->dim, q, kv, kv, q, s->ffn, s->ffn, s->dim};

    for (uint32_t i = 0; i < FLAT_BUFFERS; i++)
        TEST_TRY(create_flat(pass, session, i, columns[i]));
    TEST_TRY(create_heads(pass, Q_FLAT, Q_HEADS, s->heads));
    TEST_TRY(create_heads(pass, K_FLAT, K_HEADS, s->kv_heads));
    TEST_TRY(create_heads(pass, V_FLAT, V_HEADS, s->kv_heads));
    TEST_TRY(create_heads(pass, MIXED_FLAT, MIXED_HEADS, s->heads));
    return create_ends(pass);
}

mica_status test_pass_create(test_stream *stream, uint32_t tokens, mica_session *session,
                             test_pass **out_pass)
{
    test_pass *pass = test_alloc(1, sizeof *pass);
    mica_status status;

    *out_pass = NULL;
    pass->stream = stream;
    pass->tokens = tokens;
    status = create_pass(pass, session);
    if (status != MICA_OK) {
        test_pass_release(pass);
        return status;
    }
    *out_pass = pass;
    return MICA_OK;
}

void test_pass_release(test_pass *pass)
{
    if (!pass)
        return;
    for (uint32_t i = 0; i < PASS_BUFFERS; i++)
        mica_buffer_release(pass->buffer[i]);
    mica_buffer_release(pass->ids);
    mica_buffer_release(pass->positions);
    mica_buffer_release(pass->logits);
    mica_buffer_release(pass->chosen);
    free(pass);
}

static mica_status encode_qkv(test_pass *pass, const test_layer *layer, mica_encoder *encoder)
{
    const test_shape *s = &pass->stream->model->shape;
    mica_buffer *const *b = pass->buffer;

    TEST_TRY(mica_rms_norm(encoder, b[HIDDEN], layer->weight[ATTENTION_NORM], 1e-5f, b[NORMED]));
    TEST_TRY(mica_matmul(encoder, b[NORMED], layer->weight[Q_WEIGHT], NULL, b[Q_FLAT]));
    TEST_TRY(mica_matmul(encoder, b[NORMED], layer->weight[K_WEIGHT], NULL, b[K_FLAT]));
    TEST_TRY(mica_matmul(encoder, b[NORMED], layer->weight[V_WEIGHT], NULL, b[V_FLAT]));
    if (s->bias) {
        TEST_TRY(mica_add(encoder, b[Q_FLAT], layer->weight[Q_BIAS], b[Q_FLAT]));
        TEST_TRY(mica_add(encoder, b[K_FLAT], layer->weight[K_BIAS], b[K_FLAT]));
        TEST_TRY(mica_add(encoder, b[V_FLAT], layer->weight[V_BIAS], b[V_FLAT]));
    }
    if (s->head_norm) {
        TEST_TRY(mica_rms_norm(encoder, b[Q_HEADS], layer->weight[Q_NORM], 1e-6f, b[Q_HEADS]));
        TEST_TRY(mica_rms_norm(encoder, b[K_HEADS], layer->weight[K_NORM], 1e-6f, b[K_HEADS]));
    }
    return MICA_OK;
}

static mica_status encode_attention(test_pass *pass, uint32_t index, mica_encoder *encoder)
{
    test_stream *stream = pass->stream;
    const test_shape *s = &stream->model->shape;
    mica_buffer *const *b = pass->buffer;
    mica_rope_params rope = {.mode = s->head_norm ? MICA_ROPE_NEOX : MICA_ROPE_STANDARD, .theta = 10000};
    mica_kv_params kv = {.ring = s->ring};
    mica_attention_params params = {.window = s->window, .ring = s->ring};
    mica_attention_operands operands = {.q = b[Q_HEADS],
                                        .k = stream->k[index],
                                        .v = stream->v[index],
                                        .positions = pass->positions,
                                        .lengths = stream->length,
                                        .pages = stream->pages};

    TEST_TRY(mica_rope(encoder, b[Q_HEADS], pass->positions, NULL, &rope, b[Q_HEADS]));
    TEST_TRY(mica_rope(encoder, b[K_HEADS], pass->positions, NULL, &rope, b[K_HEADS]));
    TEST_TRY(mica_kv_write(encoder, b[K_HEADS], pass->positions, NULL, stream->pages, &kv, stream->k[index]));
    TEST_TRY(mica_kv_write(encoder, b[V_HEADS], pass->positions, NULL, stream->pages, &kv, stream->v[index]));
    return mica_attention(encoder, &operands, &params, b[MIXED_HEADS]);
}

static mica_status encode_ffn(test_pass *pass, const test_layer *layer, mica_encoder *encoder)
{
    mica_buffer *const *b = pass->buffer;

    TEST_TRY(mica_matmul(encoder, b[MIXED_FLAT], layer->weight[O_WEIGHT], NULL, b[ADDED]));
    TEST_TRY(mica_add(encoder, b[HIDDEN], b[ADDED], b[HIDDEN]));
    TEST_TRY(mica_rms_norm(encoder, b[HIDDEN], layer->weight[FFN_NORM], 1e-5f, b[NORMED]));
    TEST_TRY(mica_matmul(encoder, b[NORMED], layer->weight[GATE_WEIGHT], NULL, b[GATE]));
    TEST_TRY(mica_matmul(encoder, b[NORMED], layer->weight[UP_WEIGHT], NULL, b[UP]));
    if (pass->stream->model->shape.gelu) {
        TEST_TRY(mica_gelu(encoder, b[GATE], b[GATE]));
        TEST_TRY(mica_mul(encoder, b[GATE], b[UP], b[GATE]));
    } else {
        TEST_TRY(mica_silu_mul(encoder, b[GATE], b[UP], b[GATE]));
    }
    TEST_TRY(mica_matmul(encoder, b[GATE], layer->weight[DOWN_WEIGHT], NULL, b[ADDED]));
    return mica_add(encoder, b[HIDDEN], b[ADDED], b[HIDDEN]);
}

mica_status test_pass_encode(test_pass *pass, mica_encoder *encoder)
{
    const test_model *model = pass->stream->model;
    mica_buffer *const *b = pass->buffer;

    TEST_TRY(mica_embedding(encoder, model->embedding, pass->ids, b[HIDDEN]));
    for (uint32_t i = 0; i < model->shape.layers; i++) {
        TEST_TRY(encode_qkv(pass, &model->layer[i], encoder));
        TEST_TRY(encode_attention(pass, i, encoder));
        TEST_TRY(encode_ffn(pass, &model->layer[i], encoder));
    }
    TEST_TRY(mica_rms_norm(encoder, b[HIDDEN], model->final_norm, 1e-5f, b[NORMED]));
    TEST_TRY(mica_matmul(encoder, b[NORMED], model->head, NULL, pass->logits));
    if (model->shape.softcap > 0)
        TEST_TRY(mica_softcap(encoder, pass->logits, model->shape.softcap, pass->logits));
    TEST_TRY(mica_argmax(encoder, pass->logits, pass->chosen));
    if (pass->tokens > 1)
        return MICA_OK;
    TEST_TRY(mica_advance(encoder, 1, pass->stream->position));
    return mica_advance(encoder, 1, pass->stream->length);
}

mica_status test_decode_record(test_stream *stream, uint32_t flags, mica_session_stats *out_stats,
                               mica_recording **out_recording)
{
    mica_session *session = NULL;
    test_pass *pass = NULL;
    mica_status status = mica_session_begin(stream->model->device, NULL, MICA_SESSION_RECORD, &session);

    *out_recording = NULL;
    if (status == MICA_OK)
        status = test_pass_create(stream, 1, session, &pass);
    if (status == MICA_OK)
        status = test_pass_encode(pass, mica_session_encoder(session));
    if (status == MICA_OK)
        status = mica_session_record(session, flags, out_stats, out_recording);
    test_pass_release(pass);
    mica_session_release(session);
    return status;
}

mica_status test_decode_direct(test_stream *stream, test_pass *pass)
{
    mica_encoder *encoder = NULL;
    mica_status status = mica_encoder_begin(stream->model->device, NULL, &encoder);

    if (status == MICA_OK)
        status = test_pass_encode(pass, encoder);
    if (status == MICA_OK)
        status = mica_encoder_commit_and_wait(encoder);
    mica_encoder_release(encoder);
    return status;
}

/* One chunk of a prompt: `count` tokens at position `first`. */
static mica_status prefill_chunk(test_stream *stream, const uint32_t *tokens, uint32_t first, uint32_t count,
                                 float *out_logits)
{
    uint32_t *positions = test_alloc(count, sizeof *positions), length = first + count;
    test_pass *pass = NULL;
    mica_status status = test_pass_create(stream, count, NULL, &pass);

    for (uint32_t i = 0; i < count; i++)
        positions[i] = first + i;
    if (status == MICA_OK)
        status = mica_buffer_write(pass->ids, 0, tokens + first, count * sizeof *tokens);
    if (status == MICA_OK)
        status = mica_buffer_write(pass->positions, 0, positions, count * sizeof *positions);
    if (status == MICA_OK)
        status = mica_buffer_write(stream->length, 0, &length, sizeof length);
    if (status == MICA_OK)
        status = test_decode_direct(stream, pass);
    if (status == MICA_OK)
        status = mica_buffer_read(pass->logits, 0, out_logits + (uint64_t)first * stream->model->shape.vocab,
                                  (uint64_t)count * stream->model->shape.vocab * sizeof *out_logits);
    test_pass_release(pass);
    free(positions);
    return status;
}

mica_status test_prefill(test_stream *stream, const uint32_t *tokens, uint32_t count, uint32_t rows,
                         float *out_logits)
{
    for (uint32_t first = 0; first < count; first += rows)
        TEST_TRY(
            prefill_chunk(stream, tokens, first, count - first < rows ? count - first : rows, out_logits));
    return MICA_OK;
}
