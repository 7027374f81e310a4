/*
 * transformer_model.c - shapes and random weights.
 */
#include "support/transformer_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_blocks.h"
#include "oracle/oracle_number.h"
#include "support/random.h"
#include "support/tensor.h"

/* A contiguous buffer of random values: plain types normal around `middle`, block types in blocks. */
static mica_status random_buffer(test_model *model, mica_dtype dtype, uint64_t rows, uint64_t columns,
                                 double middle, double spread, mica_buffer **out)
{
    uint64_t shape[2] = {rows, columns};
    mica_status status = mica_buffer_alloc(model->device, dtype, rows ? 2 : 1, rows ? shape : shape + 1, out);
    uint64_t count = (rows ? rows : 1) * columns;
    void *data = NULL;

    if (status == MICA_OK)
        status = mica_buffer_map(*out, MICA_ACCESS_WRITE, &data);
    if (status != MICA_OK)
        return status;
    if (oracle_is_block(dtype))
        test_blocks_fill(dtype, data, count / oracle_block_values(dtype), &model->random, spread);
    for (uint64_t i = 0; !oracle_is_block(dtype) && i < count; i++)
        oracle_put(dtype, middle + spread * test_random_normal(&model->random),
                   (uint8_t *)data + i * oracle_block_bytes(dtype));
    return mica_buffer_unmap(*out);
}

static mica_status affine_buffer(test_model *model, uint64_t rows, uint64_t columns, double spread,
                                 mica_buffer **out)
{
    mica_buffer *data = NULL, *scales = NULL, *biases = NULL;
    double levels = model->shape.weight == MICA_DTYPE_AFFINE4   ? 15
                    : model->shape.weight == MICA_DTYPE_AFFINE6 ? 63
                                                                : 255;
    mica_status status = random_buffer(model, model->shape.weight, rows, columns, 0, 1, &data);

    if (status == MICA_OK)
        status = random_buffer(model, MICA_DTYPE_BF16, rows, columns / 32, 4 * spread / levels,
                               spread / levels, &scales);
    if (status == MICA_OK)
        status = random_buffer(model, MICA_DTYPE_BF16, rows, columns / 32, -2 * spread, spread, &biases);
    if (status == MICA_OK)
        status = mica_buffer_affine(data, scales, biases, 32, out);
    mica_buffer_release(data);
    mica_buffer_release(scales);
    mica_buffer_release(biases);
    return status;
}

/* A matrix whose products keep the size of their input. */
static mica_status matrix(test_model *model, uint64_t rows, uint64_t columns, mica_buffer **out)
{
    double spread = 1 / sqrt((double)columns);
    mica_buffer *plain = NULL;
    mica_status status;

    if (oracle_is_affine(model->shape.weight))
        status = affine_buffer(model, rows, columns, spread, &plain);
    else
        status = random_buffer(model, model->shape.weight, rows, columns, 0, spread, &plain);
    if (status != MICA_OK || !model->shape.packed) {
        *out = plain;
        return status;
    }
    status = mica_buffer_pack(plain, out);
    mica_buffer_release(plain);
    return status;
}

static mica_status norm(test_model *model, uint64_t size, mica_buffer **out)
{
    return random_buffer(model, MICA_DTYPE_F32, 0, size, 1, 0.1, out);
}

static mica_status create_layer(test_model *model, test_layer *layer)
{
    const test_shape *s = &model->shape;
    uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;

    TEST_TRY(norm(model, s->dim, &layer->weight[ATTENTION_NORM]));
    TEST_TRY(matrix(model, q, s->dim, &layer->weight[Q_WEIGHT]));
    TEST_TRY(matrix(model, kv, s->dim, &layer->weight[K_WEIGHT]));
    TEST_TRY(matrix(model, kv, s->dim, &layer->weight[V_WEIGHT]));
    TEST_TRY(matrix(model, s->dim, q, &layer->weight[O_WEIGHT]));
    TEST_TRY(norm(model, s->dim, &layer->weight[FFN_NORM]));
    TEST_TRY(matrix(model, s->ffn, s->dim, &layer->weight[GATE_WEIGHT]));
    TEST_TRY(matrix(model, s->ffn, s->dim, &layer->weight[UP_WEIGHT]));
    TEST_TRY(matrix(model, s->dim, s->ffn, &layer->weight[DOWN_WEIGHT]));
    if (s->head_norm) {
        TEST_TRY(norm(model, s->head_dim, &layer->weight[Q_NORM]));
        TEST_TRY(norm(model, s->head_dim, &layer->weight[K_NORM]));
    }
    if (s->bias) {
        TEST_TRY(norm(model, q, &layer->weight[Q_BIAS]));
        TEST_TRY(norm(model, kv, &layer->weight[K_BIAS]));
        TEST_TRY(norm(model, kv, &layer->weight[V_BIAS]));
    }
    return MICA_OK;
}

static mica_status create_weights(test_model *model)
{
    for (uint32_t i = 0; i < model->shape.layers; i++)
        TEST_TRY(create_layer(model, &model->layer[i]));
    TEST_TRY(matrix(model, model->shape.vocab, model->shape.dim, &model->embedding));
    TEST_TRY(norm(model, model->shape.dim, &model->final_norm));
    return matrix(model, model->shape.vocab, model->shape.dim, &model->head);
}

mica_status test_model_create(mica_device *device, const test_shape *shape, uint64_t seed,
                              test_model **out_model)
{
    test_model *model = test_alloc(1, sizeof *model);
    mica_status status;

    *out_model = NULL;
    model->device = device;
    model->shape = *shape;
    model->random = test_random_from(seed);
    model->layer = test_alloc(shape->layers, sizeof *model->layer);
    if (!shape->activation)
        model->shape.activation = MICA_DTYPE_F32;
    if (!shape->cache)
        model->shape.cache = MICA_DTYPE_F16;
    status = create_weights(model);
    if (status != MICA_OK) {
        test_model_release(model);
        return status;
    }
    *out_model = model;
    return MICA_OK;
}

void test_model_release(test_model *model)
{
    if (!model)
        return;
    for (uint32_t i = 0; i < model->shape.layers * LAYER_WEIGHTS; i++)
        mica_buffer_release(model->layer[i / LAYER_WEIGHTS].weight[i % LAYER_WEIGHTS]);
    mica_buffer_release(model->embedding);
    mica_buffer_release(model->final_norm);
    mica_buffer_release(model->head);
    free(model->layer);
    free(model);
}
