/* weights.c - opening, listing and reading: thin over the archive. Devices come in load.c. */
#include "weights/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/status.h"
#include "base/work.h"

static mica_status check_options(const mica_weights_options *options, uint32_t *out_flags,
                                 mica__accepted *out_accepted)
{
    mica_weights_options chosen;
    const uint32_t known = MICA_WEIGHTS_NO_MAP | MICA_WEIGHTS_LOCK | MICA_WEIGHTS_AS_GGUF;
    MICA__TRY(mica__take_options("options", options, sizeof chosen, &chosen));
    MICA__TRY(mica__check_flags("options.flags", chosen.flags, known));
    if (chosen.accept_key_count != 0 && chosen.accept_keys == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "options.accept_keys is NULL, options.accept_key_count is %u",
                          chosen.accept_key_count);
    *out_flags = chosen.flags;
    *out_accepted = (mica__accepted){chosen.accept_keys, chosen.accept_key_count};
    return MICA_OK;
}

/* Takes the archive over, also on failure. */
static mica_status make_weights(mica__archive *archive, uint32_t flags, mica_weights **out)
{
    mica_weights *weights = mica__calloc(1, sizeof *weights);
    mica__weights_map **map = mica__calloc(archive->file_count + 1, sizeof *map);
    if (weights == NULL || map == NULL || mica__lock_init(&weights->lock, &weights->guard, true) != MICA_OK) {
        mica__free(weights);
        mica__free(map);
        mica__archive_close(archive);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the handle");
    }
    weights->archive = archive;
    weights->flags = flags;
    weights->map = map;
    *out = weights;
    return MICA_OK;
}

static mica_status weights_open(const char *path, const mica_weights_options *options,
                                mica_weights **out_weights)
{
    uint32_t flags = 0;
    mica__archive *archive = NULL;
    mica__accepted accepted = {0};
    if (out_weights == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_weights is NULL");
    *out_weights = NULL;
    if (path == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "path is NULL");
    mica_status status = check_options(options, &flags, &accepted);
    if (status == MICA_OK)
        status = mica__archive_open(path, &archive);
    if (status == MICA_OK && (flags & MICA_WEIGHTS_AS_GGUF) != 0)
        status = mica__archive_as_gguf(archive, path, &accepted);
    if (status != MICA_OK) {
        mica__archive_close(archive);
        return status;
    }
    return make_weights(archive, flags, out_weights);
}

mica_status mica_weights_open(const char *path, const mica_weights_options *options,
                              mica_weights **out_weights)
{
    mica__call call;
    mica__call_begin(&call, "weights_open");
    return mica__call_end(&call, weights_open(path, options, out_weights));
}

static mica_status weights_open_bytes(const void *bytes, uint64_t size, const mica_weights_options *options,
                                      mica_weights **out_weights)
{
    uint32_t flags = 0;
    mica__archive *archive = NULL;
    mica__accepted accepted = {0};
    if (out_weights == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_weights is NULL");
    *out_weights = NULL;
    if (bytes == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "bytes is NULL");
    mica_status status = check_options(options, &flags, &accepted);
    if (status == MICA_OK)
        status = mica__archive_open_bytes(bytes, size, &archive);
    return status == MICA_OK ? make_weights(archive, flags, out_weights) : status;
}

mica_status mica_weights_open_bytes(const void *bytes, uint64_t size, const mica_weights_options *options,
                                    mica_weights **out_weights)
{
    mica__call call;
    mica__call_begin(&call, "weights_open_bytes");
    return mica__call_end(&call, weights_open_bytes(bytes, size, options, out_weights));
}

void mica_weights_release(mica_weights *weights)
{
    if (weights == NULL)
        return;
    for (uint32_t i = 0; i < weights->archive->file_count; i++)
        mica__weights_map_give(weights->map[i]);
    mica__free(weights->map);
    mica__lock_destroy(&weights->lock, &weights->guard);
    mica__archive_close(weights->archive);
    mica__free(weights);
}

/* What people call the type of a file. The number that it gives itself counts only if it is not plainly wrong. */
static void find_type(const mica_weights *weights, mica_weights_info *info)
{
    uint64_t bytes[MICA_DTYPE_COUNT] = {0};
    mica_dtype most = MICA_DTYPE_NONE;
    for (uint64_t i = 0; i < info->tensor_count; i++) {
        mica_tensor_info tensor;
        if (mica_weights_tensor(weights, i, &tensor) == MICA_OK && tensor.ndim > 1)
            bytes[tensor.dtype] += tensor.bytes;
    }
    for (int t = 0; t < MICA_DTYPE_COUNT; t++)
        if (bytes[t] > bytes[most])
            most = (mica_dtype)t;
    const mica_value *value = mica__archive_meta(weights->archive, "general.file_type");
    const char *name = NULL;
    mica_dtype type = MICA_DTYPE_NONE;
    if (value != NULL && value->type == MICA_VALUE_U32)
        name = mica__file_type_name(value->as.u, &type);
    snprintf(info->type, sizeof info->type, "%s",
             name != NULL && bytes[type] > 0 ? name : mica_dtype_name(most));
}

static mica_status weights_get_info(const mica_weights *weights, mica_weights_info *out)
{
    if (weights == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", weights == NULL ? "weights" : "out");
    const mica__archive *archive = weights->archive;
    *out = (mica_weights_info){.format = archive->format,
                               .version = archive->version,
                               .big_endian = archive->big_endian,
                               .file_count = archive->file_count,
                               .tensor_count = archive->visible_count,
                               .metadata_count = archive->meta_count};
    for (uint32_t i = 0; i < archive->tensor_count; i++)
        out->tensor_bytes += archive->tensor[i].bytes;
    for (uint32_t i = 0; i < archive->file_count; i++)
        out->file_bytes += mica__file_size(archive->file[i]);
    find_type(weights, out);
    return MICA_OK;
}

mica_status mica_weights_get_info(const mica_weights *weights, mica_weights_info *out)
{
    mica__call call;
    mica__call_begin(&call, "weights_get_info");
    return mica__call_end(&call, weights_get_info(weights, out));
}

mica_status mica__weights_check(const mica_weights *weights, const mica_device *device, uint32_t flags)
{
    if (weights == NULL || device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", weights == NULL ? "weights" : "device");
    return mica__check_flags("flags", flags, MICA_LOAD_PACK);
}

mica_status mica__weights_tensor(const mica_weights *weights, uint64_t index, const mica__tensor **out)
{
    *out = NULL;
    if (weights == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "weights is NULL");
    if (index >= weights->archive->visible_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "index is %llu, there are %u tensors",
                          (unsigned long long)index, weights->archive->visible_count);
    *out = &weights->archive->tensor[index];
    return MICA_OK;
}

static mica_status weights_tensor(const mica_weights *weights, uint64_t index, mica_tensor_info *out)
{
    const mica__tensor *tensor;
    if (out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out is NULL");
    memset(out, 0, sizeof *out);
    const mica_status status = mica__weights_tensor(weights, index, &tensor);
    if (tensor == NULL)
        return status;
    out->name = tensor->name;
    out->dtype = (mica_dtype)tensor->dtype;
    out->type_name = tensor->type_name;
    out->ndim = tensor->ndim;
    memcpy(out->shape, tensor->shape, sizeof out->shape);
    out->bytes = tensor->bytes;
    if (tensor->scales != MICA__NO_TENSOR)
        out->bytes += weights->archive->tensor[tensor->scales].bytes;
    if (tensor->biases != MICA__NO_TENSOR)
        out->bytes += weights->archive->tensor[tensor->biases].bytes;
    out->group_size = tensor->group_size;
    out->file = tensor->file;
    out->file_offset = tensor->offset;
    return MICA_OK;
}

mica_status mica_weights_tensor(const mica_weights *weights, uint64_t index, mica_tensor_info *out)
{
    mica__call call;
    mica__call_begin(&call, "weights_tensor");
    return mica__call_end(&call, weights_tensor(weights, index, out));
}

static mica_status weights_find(const mica_weights *weights, const char *name, uint64_t *out_index)
{
    if (weights == NULL || name == NULL || out_index == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          weights == NULL ? "weights"
                          : name == NULL  ? "name"
                                          : "out_index");
    *out_index = 0;
    const uint32_t index = mica__archive_find(weights->archive, name, strlen(name));
    if (index == MICA__NO_TENSOR)
        return mica__archive_not_found(weights->archive, name);
    *out_index = index;
    return MICA_OK;
}

mica_status mica_weights_find(const mica_weights *weights, const char *name, uint64_t *out_index)
{
    mica__call call;
    mica__call_begin(&call, "weights_find");
    return mica__call_end(&call, weights_find(weights, name, out_index));
}

static mica_status weights_metadata(const mica_weights *weights, uint64_t index, mica_string *out_key,
                                    const mica_value **out_value)
{
    if (weights == NULL || out_key == NULL || out_value == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          weights == NULL   ? "weights"
                          : out_key == NULL ? "out_key"
                                            : "out_value");
    *out_key = (mica_string){NULL, 0};
    *out_value = NULL;
    if (index >= weights->archive->meta_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "index is %llu, there are %u entries",
                          (unsigned long long)index, weights->archive->meta_count);
    *out_key = weights->archive->meta[index].key;
    *out_value = &weights->archive->meta[index].value;
    return MICA_OK;
}

mica_status mica_weights_metadata(const mica_weights *weights, uint64_t index, mica_string *out_key,
                                  const mica_value **out_value)
{
    mica__call call;
    mica__call_begin(&call, "weights_metadata");
    return mica__call_end(&call, weights_metadata(weights, index, out_key, out_value));
}

static mica_status weights_get(const mica_weights *weights, const char *key, const mica_value **out_value)
{
    if (weights == NULL || key == NULL || out_value == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          weights == NULL ? "weights"
                          : key == NULL   ? "key"
                                          : "out_value");
    *out_value = mica__archive_meta(weights->archive, key);
    if (*out_value == NULL)
        return mica__fail(MICA_ERR_NOT_FOUND, "no metadata of the key \"%.200s\"", key);
    return MICA_OK;
}

mica_status mica_weights_get(const mica_weights *weights, const char *key, const mica_value **out_value)
{
    mica__call call;
    mica__call_begin(&call, "weights_get");
    return mica__call_end(&call, weights_get(weights, key, out_value));
}

static mica_status weights_config(const mica_weights *weights, const char **out_json, uint64_t *out_length)
{
    if (weights == NULL || out_json == NULL || out_length == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          weights == NULL    ? "weights"
                          : out_json == NULL ? "out_json"
                                             : "out_length");
    *out_json = weights->archive->config;
    *out_length = weights->archive->config_length;
    if (*out_json == NULL)
        return mica__fail(MICA_ERR_NOT_FOUND, "these weights have no config.json");
    return MICA_OK;
}

mica_status mica_weights_config(const mica_weights *weights, const char **out_json, uint64_t *out_length)
{
    mica__call call;
    mica__call_begin(&call, "weights_config");
    return mica__call_end(&call, weights_config(weights, out_json, out_length));
}

static mica_status weights_read(const mica_weights *weights, uint64_t index, uint64_t offset, void *out_bytes,
                                uint64_t bytes)
{
    const mica__tensor *tensor;
    const mica_status status = mica__weights_tensor(weights, index, &tensor);
    if (tensor == NULL)
        return status;
    if (out_bytes == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_bytes is NULL");
    return mica__archive_read(weights->archive, tensor, offset, out_bytes, bytes);
}

mica_status mica_weights_read(const mica_weights *weights, uint64_t index, uint64_t offset, void *out_bytes,
                              uint64_t bytes)
{
    mica__call call;
    mica__call_begin(&call, "weights_read");
    return mica__call_end(&call, weights_read(weights, index, offset, out_bytes, bytes));
}

/* Values of a vector as one row of their own; a range that cuts blocks goes through memory. */
static mica_status decode_vector(const mica__archive *archive, const mica__tensor *tensor, uint64_t first,
                                 uint64_t count, float *out_values)
{
    const uint64_t block = mica_dtype_block_elements((mica_dtype)tensor->dtype);
    const uint64_t before = first % block, after = (block - (first + count) % block) % block;
    const uint64_t whole = before + count + after;
    mica__tensor window = *tensor;
    window.shape[0] = whole;
    window.offset += first / block * mica_dtype_block_bytes((mica_dtype)tensor->dtype);
    window.bytes = whole / block * mica_dtype_block_bytes((mica_dtype)tensor->dtype);
    if (whole == count)
        return mica__archive_decode_rows(archive, &window, 0, 1, out_values);
    float *values = whole <= SIZE_MAX / sizeof *values ? mica__alloc((size_t)whole * sizeof *values) : NULL;
    if (values == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %llu values", (unsigned long long)whole);
    const mica_status status = mica__archive_decode_rows(archive, &window, 0, 1, values);
    if (status == MICA_OK)
        memcpy(out_values, values + before, (size_t)count * sizeof *values);
    mica__free(values);
    return status;
}

static mica_status check_range(const mica__tensor *tensor, uint64_t first, uint64_t count)
{
    uint64_t all = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++)
        all *= tensor->shape[d];
    if (first > all || count > all - first)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "\"%.200s\" has %llu values; first %llu and count %llu leave them", tensor->name,
                          (unsigned long long)all, (unsigned long long)first, (unsigned long long)count);
    const uint64_t row = tensor->ndim > 1 ? tensor->shape[tensor->ndim - 1] : 1;
    if (count != 0 && (first % row != 0 || count % row != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "\"%.200s\": first %llu and count %llu must be multiples of its row, %llu",
                          tensor->name, (unsigned long long)first, (unsigned long long)count,
                          (unsigned long long)row);
    return MICA_OK;
}

static mica_status weights_decode(const mica_weights *weights, uint64_t index, uint64_t first, uint64_t count,
                                  float *out_values)
{
    const mica__tensor *tensor;
    mica_status status = mica__weights_tensor(weights, index, &tensor);
    if (tensor == NULL)
        return status;
    if (out_values == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_values is NULL");
    status = mica__archive_usable(weights->archive, tensor);
    if (status == MICA_OK)
        status = check_range(tensor, first, count);
    if (status != MICA_OK || count == 0)
        return status;
    if (tensor->ndim == 1)
        return decode_vector(weights->archive, tensor, first, count, out_values);
    const uint64_t row = tensor->ndim > 1 ? tensor->shape[tensor->ndim - 1] : 1;
    return mica__archive_decode_rows(weights->archive, tensor, first / row, count / row, out_values);
}

mica_status mica_weights_decode(const mica_weights *weights, uint64_t index, uint64_t first, uint64_t count,
                                float *out_values)
{
    mica__call call;
    mica__call_begin(&call, "weights_decode");
    return mica__call_end(&call, weights_decode(weights, index, first, count, out_values));
}
