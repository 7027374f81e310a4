/*
 * test_weights.c - opening, listing, reading and decoding through the public calls, and what they refuse.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>

#include "weights/scene.h"

static scene the;

static mica_weights *open_the(uint32_t flags)
{
    mica_weights *weights = NULL;
    mica_weights_options options = {.size = sizeof options, .flags = flags};

    if (mica_weights_open(the.path, &options, &weights) != MICA_OK)
        fail_msg("%s", mica_status_message());
    return weights;
}

static void test_listing(void **state)
{
    mica_weights *weights = open_the(0);
    mica_weights_info info;
    mica_tensor_info tensor;
    uint64_t index, bytes = 0;

    (void)state;
    assert_int_equal(mica_weights_get_info(weights, &info), MICA_OK);
    assert_int_equal(info.format, MICA_FORMAT_GGUF);
    assert_int_equal(info.version, 3);
    assert_int_equal(info.file_count, 1);
    assert_int_equal(info.tensor_count, SCENE_TENSORS);
    assert_int_equal(info.metadata_count, 3);
    for (uint32_t i = 0; i < SCENE_TENSORS; i++) {
        assert_int_equal(mica_weights_tensor(weights, i, &tensor), MICA_OK);
        assert_string_equal(tensor.name, scene_table[i].name);
        assert_int_equal(tensor.dtype, scene_table[i].dtype);
        assert_int_equal(tensor.ndim, scene_table[i].ndim);
        assert_memory_equal(tensor.shape, scene_table[i].shape, tensor.ndim * sizeof(uint64_t));
        assert_int_equal(tensor.bytes, the.bytes[i]);
        assert_int_equal(tensor.file, 0);
        assert_int_equal(mica_weights_find(weights, tensor.name, &index), MICA_OK);
        assert_int_equal(index, i);
        bytes += tensor.bytes;
    }
    assert_int_equal(info.tensor_bytes, bytes);
    assert_true(info.file_bytes > bytes);
    mica_weights_release(weights);
}

static void test_metadata(void **state)
{
    mica_weights *weights = open_the(0);
    const mica_value *value;
    mica_string key;
    const char *json;
    uint64_t length;

    (void)state;
    assert_int_equal(mica_weights_get(weights, "llama.block_count", &value), MICA_OK);
    assert_int_equal(value->type, MICA_VALUE_U32);
    assert_int_equal(value->as.u, 1);
    assert_int_equal(mica_weights_metadata(weights, 2, &key, &value), MICA_OK);
    assert_string_equal(key.data, "tokenizer.ggml.tokens");
    assert_int_equal(value->count, 301);
    assert_string_equal(((const mica_string *)value->as.items)[300].data, "tok300");
    refused(mica_weights_get(weights, "no.such.key", &value), MICA_ERR_NOT_FOUND, "no.such.key");
    assert_null(value);
    refused(mica_weights_metadata(weights, 3, &key, &value), MICA_ERR_INVALID_ARGUMENT, "index");
    refused(mica_weights_config(weights, &json, &length), MICA_ERR_NOT_FOUND, "config.json");
    assert_null(json);
    mica_weights_release(weights);
}

static void test_read(void **state)
{
    mica_weights *weights = open_the(0);
    test_random random = test_random_from(3);
    unsigned char *bytes = test_alloc(the.bytes[6], 1);

    (void)state;
    for (int round = 0; round < 200; round++) {
        uint64_t i = test_random_below(&random, SCENE_TENSORS);
        uint64_t offset = test_random_below(&random, the.bytes[i] + 1);
        uint64_t size = test_random_below(&random, the.bytes[i] - offset + 1);
        assert_int_equal(mica_weights_read(weights, i, offset, bytes, size), MICA_OK);
        assert_memory_equal(bytes, the.data[i] + offset, size);
    }
    refused(mica_weights_read(weights, 1, the.bytes[1] - 1, bytes, 2), MICA_ERR_INVALID_ARGUMENT, "");
    refused(mica_weights_read(weights, 1, UINT64_MAX, bytes, 2), MICA_ERR_INVALID_ARGUMENT, "");
    refused(mica_weights_read(weights, SCENE_TENSORS, 0, bytes, 1), MICA_ERR_INVALID_ARGUMENT, "index");
    refused(mica_weights_read(weights, 0, 0, NULL, 1), MICA_ERR_INVALID_ARGUMENT, "out_bytes");
    free(bytes);
    mica_weights_release(weights);
}

static float half(uint16_t bits)
{
    int exponent = (bits >> 10) & 31;
    double value = exponent == 0 ? ldexp(bits & 1023, -24) : ldexp((bits & 1023) | 1024, exponent - 25);

    return (float)((bits & 0x8000) != 0 ? -value : value);
}

/* Value i of tensor t, by the format's definition. */
static float expected(uint32_t t, uint64_t i)
{
    const unsigned char *data = the.data[t];
    uint16_t bits;
    uint32_t word;
    float value;

    if (scene_table[t].dtype == MICA_DTYPE_F32) {
        memcpy(&value, data + 4 * i, 4);
    } else if (scene_table[t].dtype == MICA_DTYPE_F16) {
        memcpy(&bits, data + 2 * i, 2);
        value = half(bits);
    } else if (scene_table[t].dtype == MICA_DTYPE_BF16) {
        memcpy(&bits, data + 2 * i, 2);
        word = (uint32_t)bits << 16;
        memcpy(&value, &word, 4);
    } else { /* q4_0 */
        const unsigned char *block = data + i / 32 * 18;
        int at = (int)(i % 32);
        memcpy(&bits, block, 2);
        value = half(bits) * (float)((at < 16 ? block[2 + at] & 15 : block[2 + at - 16] >> 4) - 8);
    }
    return value;
}

static void test_decode(void **state)
{
    static const uint32_t rows_of[] = {2, 4, 5, 8};
    mica_weights *weights = open_the(0);
    test_random random = test_random_from(5);
    float *values = test_alloc(6001 * 1600, sizeof *values);

    (void)state;
    for (int round = 0; round < 60; round++) {
        uint32_t t = rows_of[test_random_below(&random, 4)];
        uint64_t row = scene_table[t].shape[scene_table[t].ndim - 1], rows = 1;
        for (uint32_t d = 0; d + 1 < scene_table[t].ndim; d++)
            rows *= scene_table[t].shape[d];
        uint64_t first = test_random_below(&random, rows),
                 count = test_random_below(&random, rows - first + 1);
        assert_int_equal(mica_weights_decode(weights, t, first * row, count * row, values), MICA_OK);
        for (uint64_t i = 0; i < count * row; i++)
            assert_true(values[i] == expected(t, first * row + i));
    }
    for (int round = 0; round < 60; round++) { /* any part of a vector */
        uint64_t first = test_random_below(&random, 257), count = test_random_below(&random, 257 - first + 1);
        assert_int_equal(mica_weights_decode(weights, 1, first, count, values), MICA_OK);
        for (uint64_t i = 0; i < count; i++)
            assert_true(values[i] == expected(1, first + i));
    }
    refused(mica_weights_decode(weights, 2, 95, 96, values), MICA_ERR_INVALID_ARGUMENT, "row");
    refused(mica_weights_decode(weights, 2, 96 * 67, 96, values), MICA_ERR_INVALID_ARGUMENT, "6432");
    refused(mica_weights_decode(weights, 7, 0, 7, values), MICA_ERR_UNSUPPORTED, "blk.0.ids");
    free(values);
    mica_weights_release(weights);
}

/* A vector of blocks may be cut anywhere. */
static void test_decode_block_vector(void **state)
{
    char path[128];
    test_gguf gguf = {0};
    test_random random = test_random_from(11);
    const uint64_t shape[] = {160};
    unsigned char data[90];
    float all[160], some[160];
    mica_weights *weights;

    (void)state;
    test_file_path(path, sizeof path, "vector.gguf");
    test_blocks_fill(MICA_DTYPE_Q4_0, data, 5, &random, 1.0);
    test_gguf_tensor(&gguf, "v", MICA_DTYPE_Q4_0, 1, shape);
    test_gguf_write(&gguf, path);
    test_gguf_put(&gguf, path, 0, data, sizeof data);
    assert_int_equal(mica_weights_open(path, NULL, &weights), MICA_OK);
    assert_int_equal(mica_weights_decode(weights, 0, 0, 160, all), MICA_OK);
    for (uint64_t first = 0; first < 160; first += 7)
        for (uint64_t count = 0; count <= 160 - first; count += 5) {
            assert_int_equal(mica_weights_decode(weights, 0, first, count, some), MICA_OK);
            assert_memory_equal(some, all + first, count * sizeof *some);
        }
    mica_weights_release(weights);
    test_gguf_free(&gguf);
    unlink(path);
}

static void test_refusals(void **state)
{
    mica_weights *weights = NULL;
    mica_weights_options wrong = {.flags = 64};
    uint64_t index;
    mica_tensor_info tensor;
    mica_weights_info info;

    (void)state;
    refused(mica_weights_open(NULL, NULL, &weights), MICA_ERR_INVALID_ARGUMENT, "path");
    refused(mica_weights_open(the.path, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "out_weights");
    refused(mica_weights_open(the.path, &wrong, &weights), MICA_ERR_INVALID_ARGUMENT, "flags");
    assert_int_not_equal(mica_weights_open("no such file.gguf", NULL, &weights), MICA_OK);
    assert_null(weights);
    mica_weights_release(NULL);
    weights = open_the(0);
    refused(mica_weights_find(weights, "blk.0.attn_q.weigth", &index), MICA_ERR_NOT_FOUND,
            "blk.0.attn_q.weight");
    refused(mica_weights_find(weights, NULL, &index), MICA_ERR_INVALID_ARGUMENT, "name");
    refused(mica_weights_tensor(weights, SCENE_TENSORS, &tensor), MICA_ERR_INVALID_ARGUMENT, "index");
    refused(mica_weights_tensor(NULL, 0, &tensor), MICA_ERR_INVALID_ARGUMENT, "weights");
    refused(mica_weights_get_info(NULL, &info), MICA_ERR_INVALID_ARGUMENT, "weights");
    mica_weights_release(weights);
}

static int make(void **state)
{
    (void)state;
    scene_make(&the, "weights.gguf");
    return 0;
}

static int unmake(void **state)
{
    (void)state;
    scene_free(&the);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_listing),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_decode_block_vector),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("weights", tests, make, unmake);
}
