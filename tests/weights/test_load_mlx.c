/*
 * test_load_mlx.c - safetensors and MLX folders on a device: data that is not aligned is copied, scalars and empty
 * tensors, packed words come with their scales, modes that no matmul serves yet are refused by the op.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/model_file.h"
#include "support/random.h"
#include "support/tensor.h"
#include "support/status.h"

static mica_device *device;

/* Data begins at an odd address: what needs alignment is copied, bytes are not. */
static void test_unaligned(void **state)
{
    static const struct {
        const char *name;
        mica_placement placement;
        uint64_t bytes, offset;
    } rows[] = {{"b", MICA_PLACEMENT_COPY, 6, 0},
                {"u", MICA_PLACEMENT_IMPORT, 3, 6},
                {"f", MICA_PLACEMENT_IMPORT, 8, 9},
                {"s", MICA_PLACEMENT_IMPORT, 4, 17},
                {"e", MICA_PLACEMENT_COPY, 0, 21}};
    static const uint32_t ndim[] = {1, 1, 1, 0, 2};
    const char *json = "{\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]},"
                       "\"u\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[6,9]},"
                       "\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[9,17]},"
                       "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[17,21]},"
                       "\"e\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[21,21]}}";
    char path[128], header[512];
    unsigned char data[21], bytes[8];
    mica_weights *weights;

    (void)state;
    test_file_path(path, sizeof path, "unaligned.safetensors");
    for (int i = 0; i < 21; i++)
        data[i] = (unsigned char)(i * 11 + 1);
    snprintf(header, sizeof header, "%s", json);
    while ((8 + strlen(header)) % 4 != 3) /* then f is aligned, b is not */
        strcat(header, " ");
    test_safetensors_write(path, header, data, sizeof data);
    must(mica_weights_open(path, NULL, &weights));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mica_placement placement;
        mica_buffer *buffer;
        mica_buffer_info info;
        uint64_t size, index;
        must(mica_weights_find(weights, rows[i].name, &index));
        must(mica_weights_place(weights, index, device, 0, &placement, &size));
        assert_int_equal(placement, rows[i].placement);
        assert_int_equal(size, rows[i].bytes);
        must(mica_weights_load(weights, index, device, 0, &buffer));
        must(mica_buffer_get_info(buffer, &info));
        assert_int_equal(info.imported, placement == MICA_PLACEMENT_IMPORT);
        assert_int_equal(info.ndim, ndim[i]);
        assert_int_equal(info.byte_length, size);
        must(mica_buffer_read(buffer, 0, bytes, size));
        assert_memory_equal(bytes, data + rows[i].offset, size);
        mica_buffer_release(buffer);
    }
    mica_weights_release(weights);
    unlink(path);
}

/* One MLX folder: a matrix [n, k] named m.weight with scales and, for affine, biases. */
typedef struct folder {
    char path[128], config[160], model[160];
    unsigned char *data;
    size_t bytes;
} folder;

static void make_folder(folder *f, const char *name, const char *config, const char *header, size_t bytes)
{
    test_random random = test_random_from(bytes);

    test_file_path(f->path, sizeof f->path, name);
    snprintf(f->config, sizeof f->config, "%s/config.json", f->path);
    snprintf(f->model, sizeof f->model, "%s/model.safetensors", f->path);
    assert_int_equal(mkdir(f->path, 0755), 0);
    f->bytes = bytes;
    f->data = test_alloc(bytes, 1);
    for (size_t i = 0; i < bytes; i++)
        f->data[i] = (unsigned char)test_random_below(&random, 0x70);
    test_text_write(f->config, config);
    test_safetensors_write(f->model, header, f->data, bytes);
}

static void free_folder(folder *f)
{
    unlink(f->config);
    unlink(f->model);
    rmdir(f->path);
    free(f->data);
}

static float bf16(const unsigned char *at)
{
    uint32_t word = (uint32_t)at[1] << 24 | (uint32_t)at[0] << 16;
    float value;

    memcpy(&value, &word, sizeof value);
    return value;
}

/* y[n] of a vector of ones against the weight, and the status of the op. */
static mica_status row_sums(mica_buffer *weight, uint64_t n, uint64_t k, float *y)
{
    mica_buffer *in, *out;
    mica_encoder *encoder;
    mica_matmul_params exact = {.precision = MICA_PRECISION_F32};
    float *ones = test_alloc(k, sizeof *ones);

    for (uint64_t i = 0; i < k; i++)
        ones[i] = 1;
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){1, k}, &in));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){1, n}, &out));
    must(mica_buffer_write(in, 0, ones, k * sizeof *ones));
    must(mica_encoder_begin(device, NULL, &encoder));
    mica_status status = mica_matmul(encoder, in, weight, &exact, out);
    if (status == MICA_OK)
        status = mica_encoder_commit_and_wait(encoder);
    must(mica_buffer_read(out, 0, y, n * sizeof *y));
    mica_encoder_release(encoder);
    mica_buffer_release(in);
    mica_buffer_release(out);
    free(ones);
    return status;
}

static void test_affine(void **state)
{
    enum { N = 19, K = 128, WORDS = N * K / 2, SCALES = N * 2 * 2 };
    folder f;
    mica_weights *weights;
    mica_tensor_info tensor;
    mica_device_memory memory;

    (void)state;
    make_folder(&f, "affine", "{\"quantization\":{\"group_size\":64,\"bits\":4}}",
                "{\"m.weight\":{\"dtype\":\"U32\",\"shape\":[19,16],\"data_offsets\":[0,1216]},"
                "\"m.scales\":{\"dtype\":\"BF16\",\"shape\":[19,2],\"data_offsets\":[1216,1292]},"
                "\"m.biases\":{\"dtype\":\"BF16\",\"shape\":[19,2],\"data_offsets\":[1292,1368]}}  ",
                WORDS + 2 * SCALES);
    for (size_t i = WORDS + 1; i < f.bytes; i += 2)
        f.data[i] = (unsigned char)(0x3c + i % 4); /* scales of about 1 */
    test_safetensors_write(
        f.model,
        "{\"m.weight\":{\"dtype\":\"U32\",\"shape\":[19,16],\"data_offsets\":[0,1216]},"
        "\"m.scales\":{\"dtype\":\"BF16\",\"shape\":[19,2],\"data_offsets\":[1216,1292]},"
        "\"m.biases\":{\"dtype\":\"BF16\",\"shape\":[19,2],\"data_offsets\":[1292,1368]}}  ",
        f.data, f.bytes);
    for (uint32_t way = 0; way < 4; way++) { /* mapped or not, packed or not */
        mica_weights_options options = {.flags = way / 2 == 1 ? MICA_WEIGHTS_NO_MAP : 0};
        mica_buffer *buffer;
        mica_buffer_info info;
        mica_fit fit;
        float y[N];
        must(mica_weights_open(f.path, &options, &weights));
        must(mica_weights_tensor(weights, 0, &tensor));
        assert_string_equal(tensor.name, "m.weight");
        assert_int_equal(tensor.bytes, f.bytes);
        must(mica_weights_fit(weights, device, way % 2, &fit));
        must(mica_weights_load(weights, 0, device, way % 2, &buffer));
        mica_weights_release(weights);
        must(mica_device_get_memory(device, &memory));
        assert_int_equal(memory.owned_bytes, fit.owned_bytes);
        assert_int_equal(memory.mapped_bytes, fit.mapped_bytes);
        must(mica_buffer_get_info(buffer, &info));
        assert_int_equal(info.dtype, MICA_DTYPE_AFFINE4);
        assert_int_equal(info.layout, way % 2 == 1 ? MICA_LAYOUT_ROWS8 : MICA_LAYOUT_CANONICAL);
        assert_int_equal(info.group_size, 64);
        assert_int_equal(info.shape[0], N);
        assert_int_equal(info.shape[1], K);
        must(row_sums(buffer, N, K, y));
        for (uint32_t n = 0; n < N; n++) {
            double sum = 0, size = 0;
            for (uint32_t k = 0; k < K; k++) {
                uint32_t at = n * K + k, group = n * 2 + k / 64;
                uint32_t code = f.data[at / 2] >> (at % 2 * 4) & 15;
                double w = (double)bf16(f.data + WORDS + 2 * group) * code +
                           bf16(f.data + WORDS + SCALES + 2 * group);
                sum += w;
                size += w < 0 ? -w : w;
            }
            assert_true(y[n] - sum < 1e-5 * size && sum - y[n] < 1e-5 * size); /* 128 sums in f32 */
        }
        mica_buffer_release(buffer);
    }
    free_folder(&f);
}

/* e2m1: 0 0.5 1 1.5 2 3 4 6 and their negatives. */
static double fp4(uint32_t code)
{
    static const double size[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code & 8 ? -size[code & 7] : size[code & 7];
}

static void test_fp4(void **state)
{
    enum { N = 9, K = 64, WORDS = N * K / 2 };
    static const char header[] =
        "{\"m.weight\":{\"dtype\":\"U32\",\"shape\":[9,8],\"data_offsets\":[0,288]},"
        "\"m.scales\":{\"dtype\":\"U8\",\"shape\":[9,2],\"data_offsets\":[288,306]}}  ";
    folder f;
    mica_weights *weights;
    mica_device_memory memory;

    (void)state;
    make_folder(&f, "mxfp4", "{\"quantization\":{\"group_size\":32,\"bits\":4,\"mode\":\"mxfp4\"}}", header,
                306);
    for (size_t i = WORDS; i < f.bytes; i++)
        f.data[i] = (unsigned char)(120 + i % 9); /* 2^-7 to 2 */
    test_safetensors_write(f.model, header, f.data, f.bytes);
    for (uint32_t way = 0; way < 4; way++) { /* mapped or not, packed or not */
        mica_weights_options options = {.flags = way / 2 == 1 ? MICA_WEIGHTS_NO_MAP : 0};
        mica_buffer *buffer, *rows;
        mica_buffer_info info;
        float y[N];
        must(mica_weights_open(f.path, &options, &weights));
        must(mica_weights_load(weights, 0, device, way % 2, &buffer));
        mica_weights_release(weights);
        must(mica_buffer_get_info(buffer, &info));
        assert_int_equal(info.dtype, MICA_DTYPE_FP4);
        assert_int_equal(info.layout, way % 2 == 1 ? MICA_LAYOUT_ROWS8 : MICA_LAYOUT_CANONICAL);
        assert_int_equal(info.group_size, 32);
        assert_int_equal(info.shape[1], K);
        must(row_sums(buffer, N, K, y));
        for (uint32_t n = 0; n < N; n++) { /* of few bits: exact */
            double sum = 0;
            for (uint32_t k = 0; k < K; k++) {
                const uint32_t at = n * K + k, e = f.data[WORDS + n * 2 + k / 32];
                sum += ldexp(fp4(f.data[at / 2] >> (at % 2 * 4) & 15), (int)e - 127);
            }
            assert_true(y[n] == (float)sum);
        }
        if (way % 2 == 0) { /* scales follow, biases there are none */
            float part[4];
            must(mica_buffer_slice(buffer, 0, 3, 4, &rows));
            must(row_sums(rows, 4, K, part));
            assert_memory_equal(part, y + 3, sizeof part);
            mica_buffer_release(rows);
        }
        mica_buffer_release(buffer);
        must(mica_device_get_memory(device, &memory));
        assert_int_equal(memory.owned_bytes + memory.mapped_bytes, 0);
    }
    free_folder(&f);
}

static int make(void **state)
{
    (void)state;
    return mica_device_open("cpu", NULL, &device) == MICA_OK ? 0 : -1;
}

static int unmake(void **state)
{
    (void)state;
    mica_device_release(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unaligned), cmocka_unit_test(test_affine),
                                       cmocka_unit_test(test_fp4)};
    return cmocka_run_group_tests_name("load_mlx", tests, make, unmake);
}
