/*
 * rewrite_rig.h - what the tests of quantise and convert share: a folder of their own, model files with random values,
 * and the values of a tensor as doubles by the oracle's decoders.
 */
#ifndef TEST_FORMAT_REWRITE_RIG_H
#define TEST_FORMAT_REWRITE_RIG_H

#include <unistd.h>

#include "format_rig.h"
#include "oracle/oracle_blocks.h"
#include "oracle/oracle_number.h"
#include "support/folder.h"
#include "support/model_file.h"
#include "support/random.h"

static char rewrite_folder[256];

/* A path in the folder; some live at once. */
static inline const char *rewrite_path(const char *name)
{
    static char paths[64][512];
    static int next;
    char *path = paths[next++ % 64];
    snprintf(path, sizeof paths[0], "%s/%.200s", rewrite_folder, name);
    return path;
}

static inline int rewrite_setup(void **state)
{
    (void)state;
    return test_folder_make(rewrite_folder, sizeof rewrite_folder, "rewrite");
}

static inline int rewrite_teardown(void **state)
{
    (void)state;
    return test_folder_remove(rewrite_folder);
}

/* One tensor of a model file. */
typedef struct rewrite_tensor {
    const char *name;
    mica_dtype dtype; /* f32, f16 or bf16 */
    uint32_t ndim;
    uint64_t shape[4];
} rewrite_tensor;

static inline uint64_t rewrite_elements(const rewrite_tensor *tensor)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor->ndim; i++)
        elements *= tensor->shape[i];
    return elements;
}

/* Random values of the tensor's type; the caller frees them. */
static inline void *rewrite_values(const rewrite_tensor *tensor, test_random *random)
{
    const uint64_t n = rewrite_elements(tensor);
    uint8_t *bytes = malloc(n * 4);
    assert_non_null(bytes);
    for (uint64_t i = 0; i < n; i++) {
        const float value = (float)test_random_normal(random);
        const uint16_t half =
            tensor->dtype == MICA_DTYPE_F16 ? oracle_to_f16((double)value) : oracle_to_bf16((double)value);
        if (tensor->dtype == MICA_DTYPE_F32)
            memcpy(bytes + 4 * i, &value, 4);
        else
            memcpy(bytes + 2 * i, &half, 2);
    }
    return bytes;
}

/* Writes a GGUF whose metadata is in `gguf` already, with random values from the seed; frees `gguf`. */
static inline void rewrite_gguf(test_gguf *gguf, const char *path, const rewrite_tensor *tensors,
                                uint32_t count, uint64_t seed)
{
    test_random random = test_random_from(seed);
    for (uint32_t i = 0; i < count; i++)
        test_gguf_tensor(gguf, tensors[i].name, tensors[i].dtype, tensors[i].ndim, tensors[i].shape);
    test_gguf_write(gguf, path);
    for (uint32_t i = 0; i < count; i++) {
        void *values = rewrite_values(&tensors[i], &random);
        test_gguf_put(gguf, path, i, values,
                      test_tensor_bytes_of(tensors[i].dtype, tensors[i].ndim, tensors[i].shape));
        free(values);
    }
    test_gguf_free(gguf);
}

static inline mica__archive *rewrite_open(const char *path)
{
    mica__archive *archive = NULL;
    if (mica__archive_open(path, &archive) != MICA_OK)
        fail_msg("%s", mica_status_message());
    return archive;
}

/* Value i of plain floats. */
static inline double rewrite_value(uint16_t dtype, const uint8_t *bytes, uint64_t i)
{
    float wide;
    uint16_t half;
    if (dtype == MICA_DTYPE_F32) {
        memcpy(&wide, bytes + 4 * i, 4);
        return (double)wide;
    }
    memcpy(&half, bytes + 2 * i, 2);
    return dtype == MICA_DTYPE_F16 ? oracle_from_f16(half) : oracle_from_bf16(half);
}

/* All values of a tensor, by the oracle's decoder; the caller frees them. */
static inline double *rewrite_decode(const mica__archive *archive, const char *name, uint64_t *out_count)
{
    const mica__tensor *tensor = rig_tensor(archive, name);
    uint64_t count = 1;
    for (uint32_t i = 0; i < tensor->ndim; i++)
        count *= tensor->shape[i];
    uint8_t *bytes = malloc((size_t)tensor->bytes + 1);
    double *values = malloc((size_t)(count + 1) * 2 * sizeof *values);
    assert_int_equal(mica__archive_read(archive, tensor, 0, bytes, tensor->bytes), MICA_OK);
    if (oracle_is_block((mica_dtype)tensor->dtype))
        oracle_decode_row((mica_dtype)tensor->dtype, bytes, (size_t)count, NULL, values, values + count);
    else
        for (uint64_t i = 0; i < count; i++)
            values[i] = rewrite_value(tensor->dtype, bytes, i);
    free(bytes);
    *out_count = count;
    return values;
}

/* Whether two files have the same bytes. */
static inline bool rewrite_same_bytes(const char *a, const char *b)
{
    rig_bytes x = rig_load(a), y = rig_load(b);
    const bool same = x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
    rig_free(&x);
    rig_free(&y);
    return same;
}

static inline void rewrite_refused(mica_status status, mica_status code, const char *part)
{
    if (status != code || strstr(mica_status_message(), part) == NULL)
        fail_msg("expected %s with \"%s\", got %s: %s", mica_status_name(code), part,
                 mica_status_name(status), status == MICA_OK ? "" : mica_status_message());
    assert_int_equal(mica_host_bytes(), 0);
}

#endif
