/* decoder.c - a Llama-shaped decoder: weights and one step. */
#include "bench/decoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/weights.h"

static const decoder_shape shapes[] = {
    {"tiny", 256, 4, 768, 8, 4, 32, 1024},
    {"1b", 2048, 16, 8192, 32, 8, 64, 128256},
};

const decoder_shape *decoder_shape_find(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

/* [rows, columns], with values that keep the size of what goes through. */
static mica_status matrix(decoder *d, mica_dtype type, uint64_t rows, uint64_t columns, mica_buffer **out)
{
    uint64_t shape[2] = {rows, columns};
    TOOL_TRY(tool_weight_packed(d->device, type, 2, shape, 1 / sqrt((double)columns), out));
    d->weight_bytes += tool_buffer_bytes(*out);
    return MICA_OK;
}

static mica_status create_layer(decoder *d, mica_dtype type, uint32_t positions, mica_buffer **layer)
{
    const decoder_shape *s = &d->shape;
    uint64_t dim = s->dim, q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;
    uint64_t cache[3] = {positions, s->kv_heads, s->head_dim};
    TOOL_TRY(tool_constant_create(d->device, MICA_DTYPE_F32, 1, &dim, 1, &layer[DECODER_ATTENTION_NORM]));
    TOOL_TRY(tool_constant_create(d->device, MICA_DTYPE_F32, 1, &dim, 1, &layer[DECODER_FFN_NORM]));
    TOOL_TRY(matrix(d, type, q, dim, &layer[DECODER_Q]));
    TOOL_TRY(matrix(d, type, kv, dim, &layer[DECODER_K]));
    TOOL_TRY(matrix(d, type, kv, dim, &layer[DECODER_V]));
    TOOL_TRY(matrix(d, type, dim, q, &layer[DECODER_O]));
    TOOL_TRY(matrix(d, type, s->ffn, dim, &layer[DECODER_GATE]));
    TOOL_TRY(matrix(d, type, s->ffn, dim, &layer[DECODER_UP]));
    TOOL_TRY(matrix(d, type, dim, s->ffn, &layer[DECODER_DOWN]));
    TOOL_TRY(mica_buffer_alloc(d->device, MICA_DTYPE_F16, 3, cache, &layer[DECODER_K_CACHE]));
    return mica_buffer_alloc(d->device, MICA_DTYPE_F16, 3, cache, &layer[DECODER_V_CACHE]);
}

static mica_status create_parts(decoder *d, mica_dtype type, uint32_t positions)
{
    uint64_t dim = d->shape.dim, one = 1;
    for (uint32_t i = 0; i < d->shape.layers; i++)
        TOOL_TRY(create_layer(d, type, positions, d->layer[i]));
    TOOL_TRY(matrix(d, type, d->shape.vocab, dim, &d->embedding));
    TOOL_TRY(tool_constant_create(d->device, MICA_DTYPE_F32, 1, &dim, 1, &d->final_norm));
    TOOL_TRY(mica_buffer_alloc(d->device, MICA_DTYPE_U32, 1, &one, &d->token));
    TOOL_TRY(mica_buffer_alloc(d->device, MICA_DTYPE_U32, 1, &one, &d->position));
    TOOL_TRY(mica_buffer_alloc(d->device, MICA_DTYPE_U32, 1, &one, &d->length));
    return decoder_restart(d);
}

mica_status decoder_create(mica_device *device, const decoder_shape *shape, mica_dtype type,
                           uint32_t positions, decoder **out_decoder)
{
    decoder *d = calloc(1, sizeof *d);
    *out_decoder = NULL;
    if (d != NULL)
        d->layer = calloc(shape->layers, sizeof *d->layer);
    if (d == NULL || d->layer == NULL) {
        free(d);
        return MICA_ERR_OUT_OF_MEMORY;
    }
    d->shape = *shape;
    d->device = mica_device_retain(device);
    mica_status status = create_parts(d, type, positions);
    if (status != MICA_OK)
        decoder_release(d);
    else
        *out_decoder = d;
    return status;
}

void decoder_release(decoder *d)
{
    if (d == NULL)
        return;
    for (uint32_t i = 0; i < d->shape.layers; i++)
        for (int b = 0; b < DECODER_LAYER_BUFFERS; b++)
            mica_buffer_release(d->layer[i][b]);
    mica_buffer_release(d->embedding);
    mica_buffer_release(d->final_norm);
    mica_buffer_release(d->token);
    mica_buffer_release(d->position);
    mica_buffer_release(d->length);
    mica_device_release(d->device);
    free(d->layer);
    free(d);
}

mica_status decoder_restart(decoder *d)
{
    uint32_t token = 1, position = 0, length = 1;
    TOOL_TRY(mica_buffer_write(d->token, 0, &token, sizeof token));
    TOOL_TRY(mica_buffer_write(d->position, 0, &position, sizeof position));
    return mica_buffer_write(d->length, 0, &length, sizeof length);
}

mica_status decoder_step_create(const decoder *d, mica_session *session, decoder_step *out_step)
{
    const decoder_shape *s = &d->shape;
    uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;
    const uint64_t columns[STEP_FLAT] = {s->dim, s->dim, q, kv, kv, q, s->ffn, s->ffn, s->dim, s->vocab};
    const int flat[4] = {STEP_Q, STEP_K, STEP_V, STEP_MIXED};
    memset(out_step, 0, sizeof *out_step);
    for (int i = 0; i < STEP_FLAT; i++) {
        uint64_t shape[2] = {1, columns[i]};
        mica_buffer **buffer = &out_step->buffer[i];
        TOOL_TRY(session != NULL ? mica_session_temp(session, MICA_DTYPE_F32, 2, shape, buffer)
                                 : mica_buffer_alloc(d->device, MICA_DTYPE_F32, 2, shape, buffer));
    }
    for (int i = 0; i < 4; i++) {
        uint64_t shape[3] = {1, columns[flat[i]] / s->head_dim, s->head_dim};
        TOOL_TRY(
            mica_buffer_reshape(out_step->buffer[flat[i]], 3, shape, &out_step->buffer[STEP_Q_HEADS + i]));
    }
    return MICA_OK;
}

void decoder_step_release(decoder_step *step)
{
    for (int i = 0; i < STEP_BUFFERS; i++)
        mica_buffer_release(step->buffer[i]);
    memset(step, 0, sizeof *step);
}

static mica_status encode_attention(const decoder *d, mica_buffer *const *layer, mica_buffer *const *b,
                                    mica_encoder *e)
{
    const mica_rope_params rope = {.mode = MICA_ROPE_STANDARD, .theta = 10000};
    const mica_kv_params kv = {0};
    const mica_attention_params params = {0};
    const mica_attention_operands operands = {.q = b[STEP_Q_HEADS],
                                              .k = layer[DECODER_K_CACHE],
                                              .v = layer[DECODER_V_CACHE],
                                              .positions = d->position,
                                              .lengths = d->length};
    TOOL_TRY(mica_rms_norm(e, b[STEP_HIDDEN], layer[DECODER_ATTENTION_NORM], 1e-5f, b[STEP_NORMED]));
    TOOL_TRY(mica_matmul(e, b[STEP_NORMED], layer[DECODER_Q], NULL, b[STEP_Q]));
    TOOL_TRY(mica_matmul(e, b[STEP_NORMED], layer[DECODER_K], NULL, b[STEP_K]));
    TOOL_TRY(mica_matmul(e, b[STEP_NORMED], layer[DECODER_V], NULL, b[STEP_V]));
    TOOL_TRY(mica_rope(e, b[STEP_Q_HEADS], d->position, NULL, &rope, b[STEP_Q_HEADS]));
    TOOL_TRY(mica_rope(e, b[STEP_K_HEADS], d->position, NULL, &rope, b[STEP_K_HEADS]));
    TOOL_TRY(mica_kv_write(e, b[STEP_K_HEADS], d->position, NULL, NULL, &kv, layer[DECODER_K_CACHE]));
    TOOL_TRY(mica_kv_write(e, b[STEP_V_HEADS], d->position, NULL, NULL, &kv, layer[DECODER_V_CACHE]));
    TOOL_TRY(mica_attention(e, &operands, &params, b[STEP_MIXED_HEADS]));
    TOOL_TRY(mica_matmul(e, b[STEP_MIXED], layer[DECODER_O], NULL, b[STEP_ADDED]));
    return mica_add(e, b[STEP_HIDDEN], b[STEP_ADDED], b[STEP_HIDDEN]);
}

static mica_status encode_ffn(mica_buffer *const *layer, mica_buffer *const *b, mica_encoder *e)
{
    TOOL_TRY(mica_rms_norm(e, b[STEP_HIDDEN], layer[DECODER_FFN_NORM], 1e-5f, b[STEP_NORMED]));
    TOOL_TRY(mica_matmul(e, b[STEP_NORMED], layer[DECODER_GATE], NULL, b[STEP_GATE]));
    TOOL_TRY(mica_matmul(e, b[STEP_NORMED], layer[DECODER_UP], NULL, b[STEP_UP]));
    TOOL_TRY(mica_silu_mul(e, b[STEP_GATE], b[STEP_UP], b[STEP_GATE]));
    TOOL_TRY(mica_matmul(e, b[STEP_GATE], layer[DECODER_DOWN], NULL, b[STEP_ADDED]));
    return mica_add(e, b[STEP_HIDDEN], b[STEP_ADDED], b[STEP_HIDDEN]);
}

mica_status decoder_encode(const decoder *d, const decoder_step *step, mica_encoder *encoder)
{
    mica_buffer *const *b = step->buffer;
    TOOL_TRY(mica_embedding(encoder, d->embedding, d->token, b[STEP_HIDDEN]));
    for (uint32_t i = 0; i < d->shape.layers; i++) {
        TOOL_TRY(encode_attention(d, d->layer[i], b, encoder));
        TOOL_TRY(encode_ffn(d->layer[i], b, encoder));
    }
    TOOL_TRY(mica_rms_norm(encoder, b[STEP_HIDDEN], d->final_norm, 1e-5f, b[STEP_NORMED]));
    TOOL_TRY(mica_matmul(encoder, b[STEP_NORMED], d->embedding, NULL, b[STEP_LOGITS]));
    TOOL_TRY(mica_argmax(encoder, b[STEP_LOGITS], d->token));
    TOOL_TRY(mica_advance(encoder, 1, d->position));
    return mica_advance(encoder, 1, d->length);
}
