/* adapter_file.c - adapters in and out of GGUF files, by llama.cpp's convention: keys, then NAME.lora_a and NAME.lora_b. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file/file.h"
#include "base/work.h"
#include "model/adapter.h"

#define TENSOR_STEPS 64u

static bool is_text(const mica_value *value, const char *text)
{
    return value->type == MICA_VALUE_STRING && value->as.string.length == strlen(text) &&
           memcmp(value->as.string.data, text, strlen(text)) == 0;
}

/* The value of a key must be this text. */
static mica_status expect(const mica_weights *weights, const char *key, const char *wanted)
{
    const mica_value *value = NULL;
    if (mica_weights_get(weights, key, &value) != MICA_OK)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "the file has no \"%s\", which is \"%s\" in an adapter for this model", key,
                          wanted);
    if (is_text(value, wanted))
        return MICA_OK;
    const bool text = value->type == MICA_VALUE_STRING;
    return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\" is \"%.60s\", expected \"%s\"", key,
                      text ? value->as.string.data : mica_value_type_name(value->type), wanted);
}

/* Keys that change nothing of what an adapter computes, or that are read. */
static bool is_known(const mica_string *key)
{
    static const char *const known[] = {"adapter.type", "adapter.lora.alpha", "adapter.lora.task_name",
                                        "adapter.lora.prompt_prefix"};
    static const char general[] = "general.";
    if (key->length >= sizeof general - 1 && memcmp(key->data, general, sizeof general - 1) == 0)
        return true;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (key->length == strlen(known[i]) && memcmp(key->data, known[i], strlen(known[i])) == 0)
            return true;
    return false;
}

static mica_status read_keys(mica_adapter *adapter, const mica_weights *weights,
                             const mica_weights_info *info)
{
    const mica_value *value = NULL;
    if (info->format != MICA_FORMAT_GGUF)
        return mica__fail(MICA_ERR_UNSUPPORTED, "the file is %s, an adapter is a gguf file",
                          mica_format_name(info->format));
    MICA__TRY(expect(weights, "general.type", "adapter"));
    MICA__TRY(expect(weights, "adapter.type", "lora"));
    MICA__TRY(expect(weights, "general.architecture", adapter->model->family->name));
    for (uint64_t i = 0; i < info->metadata_count; i++) {
        mica_string key;
        MICA__TRY(mica__spend(1));
        MICA__TRY(mica_weights_metadata(weights, i, &key, &value));
        if (!is_known(&key))
            return mica__fail(MICA_ERR_UNSUPPORTED,
                              "key \"%.160s\" is not known: it may change what the adapter does", key.data);
    }
    if (mica_weights_get(weights, "adapter.lora.alpha", &value) != MICA_OK || value->type != MICA_VALUE_F32 ||
        !isfinite(value->as.f))
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"adapter.lora.alpha\" is no finite number of type f32");
    adapter->alpha = (float)value->as.f;
    return MICA_OK;
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

/* Length of the name of the matrix that a tensor belongs to, and which part of it is; 0: none. */
static size_t matrix_name(const char *name, uint32_t *out_part)
{
    static const char end[] = ".lora_";
    const size_t length = strlen(name), tail = sizeof end; /* its NUL stands for the letter */
    if (length <= tail || memcmp(name + length - tail, end, tail - 1) != 0 ||
        (name[length - 1] != 'a' && name[length - 1] != 'b'))
        return 0;
    *out_part = name[length - 1] == 'b';
    return length - tail;
}

/* A matrix of the file against what the model and the rank want, before memory is taken for it. */
static mica_status check_shape(const mica_tensor_info *info, uint32_t ndim, const uint64_t *shape)
{
    const uint64_t *wanted = shape + ndim - 2;
    if (info->ndim == ndim && memcmp(info->shape, shape, ndim * sizeof *shape) == 0)
        return MICA_OK;
    return mica__fail(
        MICA_ERR_MALFORMED_FILE,
        "tensor \"%.120s\" has %u dimensions and ends with [%llu, %llu], the model and the rank of "
        "its other half want %u and [%llu, %llu]",
        info->name, info->ndim, (unsigned long long)(info->ndim > 1 ? info->shape[info->ndim - 2] : 1),
        (unsigned long long)(info->ndim > 0 ? info->shape[info->ndim - 1] : 1), ndim,
        (unsigned long long)wanted[0], (unsigned long long)wanted[1]);
}

mica_status mica__adapter_values(mica_weights *weights, uint64_t index, uint64_t count, float **out)
{
    mica_tensor_info info;
    *out = NULL;
    MICA__TRY(mica_weights_tensor(weights, index, &info));
    MICA__TRY(mica__spend(TENSOR_STEPS + count / 4));
    float *values = mica__alloc((size_t)count * sizeof *values);
    if (values == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %llu values of an adapter",
                          (unsigned long long)count);
    mica_status status = mica_weights_decode(weights, index, 0, count, values);
    for (uint64_t i = 0; i < count && status == MICA_OK; i++)
        if (!isfinite(values[i]))
            status = mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"%.120s\" has a value that is not finite",
                                info.name);
    if (status == MICA_OK)
        *out = values;
    else
        mica__free(values);
    return status;
}

static mica_status read_values(mica_weights *weights, uint64_t index, mica__low_rank *matrix, uint32_t part)
{
    mica_buffer_info info;
    float *values = NULL;
    MICA__TRY(mica_buffer_get_info(matrix->part[part], &info));
    MICA__TRY(mica__adapter_values(weights, index, info.element_count, &values));
    const mica_status status = mica__adapter_write(matrix, part, values);
    mica__free(values);
    return status;
}

/* The matrix whose A is tensor `index`, with both. */
static mica_status read_matrix(mica_adapter *adapter, mica_weights *weights, uint64_t index)
{
    mica_tensor_info a, b;
    mica_buffer *weight = NULL;
    mica_buffer_info w;
    char name[MICA__ADAPTER_NAME];
    uint32_t part = 0;
    uint64_t other = 0;
    mica__low_rank *matrix = NULL;
    MICA__TRY(mica__spend(TENSOR_STEPS));
    MICA__TRY(mica_weights_tensor(weights, index, &a));
    const size_t length = matrix_name(a.name, &part);
    if (length == 0 || length + sizeof ".lora_a" > sizeof name)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "tensor \"%.160s\" is neither .lora_a nor .lora_b of a matrix", a.name);
    snprintf(name, sizeof name, "%.*s.lora_%c", (int)length, a.name, "ba"[part]);
    if (mica_weights_find(weights, name, &other) != MICA_OK)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"%.160s\" is there without \"%s\"", a.name, name);
    if (part == 1)
        return MICA_OK; /* comes with its A */
    name[length] = '\0';
    MICA__TRY(mica__adapter_weight(adapter->model, name, &weight));
    MICA__TRY(mica__adapter_order(adapter->model, name));
    MICA__TRY(mica_buffer_get_info(weight, &w));
    MICA__TRY(mica_weights_tensor(weights, other, &b));
    const bool fits = a.ndim == w.ndim && b.ndim == w.ndim;
    const uint64_t rank = fits ? a.shape[w.ndim - 2] : 0, second = fits ? b.shape[w.ndim - 1] : 0;
    uint64_t shape[2][3] = {{0}};
    if (rank != second || rank == 0 || rank > UINT32_MAX)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"%.120s\" is of rank %llu, \"%.120s\" of %llu",
                          a.name, (unsigned long long)rank, b.name, (unsigned long long)second);
    for (uint32_t half = 0; half < 2; half++) {
        mica__adapter_shape(&w, rank, half, shape[half]);
        MICA__TRY(check_shape(half == 0 ? &a : &b, w.ndim, shape[half]));
    }
    MICA__TRY(mica__adapter_add(adapter, name, (uint32_t)rank, &matrix));
    MICA__TRY(read_values(weights, index, matrix, 0));
    return read_values(weights, other, matrix, 1);
}

static mica_status read_file(mica_adapter *adapter, mica_weights *weights)
{
    mica_weights_info info;
    MICA__TRY(mica_weights_get_info(weights, &info));
    MICA__TRY(read_keys(adapter, weights, &info));
    if (info.tensor_count == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the adapter has no tensors");
    for (uint64_t i = 0; i < info.tensor_count; i++)
        MICA__TRY(read_matrix(adapter, weights, i));
    return mica__adapter_ready(adapter);
}

static mica_status open_adapter(const char *path, mica_model *model, mica_adapter **out_adapter)
{
    mica_weights *weights = NULL;
    mica_adapter *adapter = NULL;
    if (path == NULL || model == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", path == NULL ? "path" : "model");
    const bool folder = mica__file_look(path) == MICA__FILE_KIND_FOLDER;
    if (!folder)
        MICA__TRY(mica_weights_open(path, &(mica_weights_options){.flags = MICA_WEIGHTS_NO_MAP}, &weights));
    mica_status status = mica__adapter_new(model, &adapter);
    if (status == MICA_OK)
        status = folder ? mica__adapter_read_peft(adapter, path) : read_file(adapter, weights);
    mica_weights_release(weights);
    if (status == MICA_OK) {
        *out_adapter = adapter;
        return MICA_OK;
    }
    mica_adapter_release(adapter);
    return mica__fail(status, "%.200s: %s", path, mica_status_message());
}

mica_status mica_adapter_open(const char *path, mica_model *model, mica_adapter **out_adapter)
{
    mica__call call;
    if (out_adapter == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "adapter_open: out_adapter is NULL");
    *out_adapter = NULL;
    mica__call_begin(&call, "adapter_open");
    return mica__call_end(&call, open_adapter(path, model, out_adapter));
}

/* ---- writing -------------------------------------------------------------------------------------------- */

static mica_status declare(const mica_adapter *adapter, mica_writer *writer)
{
    const mica_value alpha = {.type = MICA_VALUE_F32, .as.f = (double)adapter->alpha};
    MICA__TRY(mica_writer_string(writer, "general.architecture", adapter->model->family->name));
    MICA__TRY(mica_writer_string(writer, "general.type", "adapter"));
    MICA__TRY(mica_writer_string(writer, "adapter.type", "lora"));
    MICA__TRY(mica_writer_metadata(writer, "adapter.lora.alpha", &alpha));
    for (uint32_t i = 0; i < 2 * adapter->count; i++) {
        const mica__low_rank *matrix = &adapter->matrix[i / 2];
        mica_buffer_info info;
        char name[MICA__ADAPTER_NAME];
        snprintf(name, sizeof name, "%.*s", (int)(strlen(matrix->name[0]) - strlen(".lora_a")),
                 matrix->name[0]);
        MICA__TRY(mica__adapter_order(adapter->model, name));
        MICA__TRY(mica_buffer_get_info(matrix->part[i % 2], &info));
        MICA__TRY(mica_writer_tensor(writer, matrix->name[i % 2], MICA_DTYPE_F32, info.ndim, info.shape));
    }
    return MICA_OK;
}

static mica_status write_part(const mica__low_rank *matrix, uint32_t part, mica_writer *writer)
{
    mica_buffer_info info;
    MICA__TRY(mica_buffer_get_info(matrix->part[part], &info));
    void *bytes = mica__alloc((size_t)info.byte_length);
    if (bytes == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a matrix of an adapter");
    mica_status status = mica_buffer_read(matrix->part[part], 0, bytes, info.byte_length);
    if (status == MICA_OK)
        status = mica_writer_write(writer, bytes, info.byte_length);
    mica__free(bytes);
    return status;
}

static mica_status save(const mica_adapter *adapter, const char *path)
{
    const mica_writer_options options = {.format = MICA_FORMAT_GGUF, .overwrite = 1};
    mica_writer *writer = NULL;
    if (adapter == NULL || path == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", adapter == NULL ? "adapter" : "path");
    MICA__TRY(mica_writer_create(path, &options, &writer));
    mica_status status = declare(adapter, writer);
    for (uint32_t i = 0; i < 2 * adapter->count && status == MICA_OK; i++)
        status = write_part(&adapter->matrix[i / 2], i % 2, writer);
    if (status == MICA_OK)
        return mica_writer_finish(writer);
    mica_writer_discard(writer);
    return status;
}

mica_status mica_adapter_save(const mica_adapter *adapter, const char *path)
{
    mica__call call;
    mica__call_begin(&call, "adapter_save");
    return mica__call_end(&call, save(adapter, path));
}
