/*
 * writer.c - the writer of format.h up to the first data: what is declared, checked and copied. Streaming is in
 * writer_stream.c, the formats in their own files.
 */
#include "format/writer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/checked.h"
#include "base/utf8.h"

#define NAME_BYTES 65535 /* of a key or a tensor's name: GGUF's limit for keys */

static const mica__writer_format *const formats[] = {&mica__gguf_format, &mica__safetensors_format,
                                                     &mica__npy_format, &mica__npz_format};

#define FORMAT_COUNT (sizeof formats / sizeof formats[0])

/* ---- create --------------------------------------------------------------------------------------------- */

static bool ends_with(const char *path, const char *ending)
{
    const size_t length = strlen(path), tail = strlen(ending);
    return length > tail && memcmp(path + length - tail, ending, tail) == 0;
}

static mica_status find_format(const char *path, mica_format format, const mica__writer_format **out)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (format == MICA_FORMAT_NONE ? ends_with(path, formats[i]->ending) : formats[i]->format == format) {
            *out = formats[i];
            return MICA_OK;
        }
    if (format == MICA_FORMAT_NONE)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "path: \"%s\" does not say a format, expected .gguf, .safetensors, .npy or .npz",
                          path);
    return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                      "options.format: %s (%d), expected gguf, safetensors, npy or npz",
                      mica_format_name(format), (int)format);
}

static mica_status check_options(mica_writer_options *options, const mica__writer_format *format)
{
    if (options->alignment == 0)
        options->alignment = 32;
    if (options->alignment < 8 || (options->alignment & (options->alignment - 1)) != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "options.alignment: %u, expected a power of two of 8 and up", options->alignment);
    if (options->split_bytes != 0 && !format->can_split)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "options.split_bytes: %llu, but %s is always one file",
                          (unsigned long long)options->split_bytes, mica_format_name(format->format));
    return MICA_OK;
}

/* Finds out now whether the place can be written, not after hours of work. */
static mica_status probe_place(const char *path, const mica_writer_options *options)
{
    mica__file_writer *probe;
    const mica__file_kind kind = mica__file_look(path);
    if (kind == MICA__FILE_KIND_FOLDER || kind == MICA__FILE_KIND_OTHER)
        return mica__fail(MICA_ERR_IO, "cannot write \"%s\": it is %s, expected a file or nothing there",
                          path, mica__file_kind_name(path));
    if (!options->overwrite && options->split_bytes == 0 && mica__file_exists(path))
        return mica__fail(MICA_ERR_IO, "cannot write \"%s\": it exists and overwrite is not set", path);
    mica__file_sweep(path);
    const mica_status status = mica__file_writer_open(path, &probe);
    mica__file_writer_discard(probe);
    return status;
}

mica_status mica_writer_create(const char *path, const mica_writer_options *options, mica_writer **out_writer)
{
    mica_writer_options used;
    const mica__writer_format *format = NULL;
    if (out_writer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_writer: NULL");
    *out_writer = NULL;
    if (path == NULL || path[0] == '\0')
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "path: %s, expected a file to write",
                          path == NULL ? "NULL" : "empty");
    mica_status status = mica__take_options("writer_create: options", options, sizeof used, &used);
    if (status == MICA_OK)
        status =
            mica__check_enum("writer_create: options.format", (uint32_t)used.format, MICA_FORMAT_NPZ + 1);
    if (status == MICA_OK)
        status = find_format(path, used.format, &format);
    if (status == MICA_OK)
        status = check_options(&used, format);
    if (status == MICA_OK)
        status = probe_place(path, &used);
    if (status != MICA_OK)
        return status;
    mica_writer *writer = mica__calloc(1, sizeof *writer);
    char *copy = mica__strdup(path);
    if (writer == NULL || copy == NULL) {
        mica__free(writer);
        mica__free(copy);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the writer of \"%s\"", path);
    }
    writer->format = format;
    writer->path = copy;
    writer->options = used;
    *out_writer = writer;
    return MICA_OK;
}

void mica_writer_discard(mica_writer *writer)
{
    if (writer == NULL)
        return;
    for (uint32_t i = 0; i < writer->part_count; i++)
        mica__file_writer_discard(writer->part[i].file);
    mica__name_set_free(&writer->names);
    mica__name_set_free(&writer->keys);
    mica__chunks_free(&writer->chunks);
    mica__free(writer->meta);
    mica__free(writer->tensor);
    mica__free(writer->part);
    mica__free(writer->path);
    mica__free(writer);
}

void *mica__writer_alloc(mica_writer *writer, size_t bytes)
{
    return mica__chunks_alloc(&writer->chunks, bytes);
}

/* ---- declarations --------------------------------------------------------------------------------------- */

static mica_status check_declaring(const mica_writer *writer)
{
    if (writer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "writer: NULL");
    if (writer->started)
        return mica__fail(MICA_ERR_STATE,
                          "\"%s\": data was written already, nothing can be declared any more", writer->path);
    return MICA_OK;
}

static mica_status check_name(const mica_writer *writer, const char *what, const char *name,
                              size_t *out_length)
{
    const size_t length = name == NULL ? 0 : strlen(name);
    *out_length = length;
    if (name == NULL || length == 0 || length > NAME_BYTES)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "\"%s\": a %s of %zu bytes, expected 1 to %d",
                          writer->path, what, length, NAME_BYTES);
    for (size_t i = 0; i < length;) {
        const size_t next = mica__utf8_length(name + i, length - i);
        if (next == 0)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "\"%s\": the %s at hand is not UTF-8 at byte %zu",
                              writer->path, what, i);
        i += next;
    }
    return MICA_OK;
}

/* A copy of the name that is also in the set; NULL with the status set. */
static mica_status take_name(mica_writer *writer, const char *what, const char *name, size_t length,
                             mica__name_set *set, const char **out_name)
{
    bool is_new = false;
    char *copy = mica__writer_alloc(writer, length + 1);
    *out_name = copy;
    if (copy == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    memcpy(copy, name, length + 1);
    const mica_status status = mica__name_set_add(set, copy, length, &is_new);
    if (status != MICA_OK)
        return status;
    return is_new ? MICA_OK
                  : mica__fail(MICA_ERR_INVALID_ARGUMENT, "\"%s\": the %s \"%s\" is there already",
                               writer->path, what, name);
}

/* Room for one more item in a list that doubles. */
static mica_status reserve(void **list, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return MICA_OK;
    const uint32_t grown = *capacity == 0 ? 16 : *capacity * 2;
    void *larger = grown <= *capacity ? NULL : mica__realloc(*list, (size_t)grown * size);
    if (larger == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u declarations of a writer", grown);
    *list = larger;
    *capacity = grown;
    return MICA_OK;
}

mica_status mica_writer_metadata(mica_writer *writer, const char *key, const mica_value *value)
{
    size_t length;
    mica__meta meta;
    MICA__TRY(check_declaring(writer));
    if (value == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "value: NULL");
    MICA__TRY(mica__check_enum("writer_metadata: value.type", (uint32_t)value->type, MICA_VALUE_TYPE_COUNT));
    if (value->type == MICA_VALUE_ARRAY)
        MICA__TRY(mica__check_enum("writer_metadata: value.item_type", (uint32_t)value->item_type,
                                   MICA_VALUE_TYPE_COUNT));
    MICA__TRY(check_name(writer, "key", key, &length));
    if (writer->format->check_meta == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": %s holds no metadata such as \"%s\"", writer->path,
                          mica_format_name(writer->format->format), key);
    mica_status status = writer->format->check_meta(writer, key, value);
    if (status == MICA_OK)
        status = mica__value_copy(&writer->chunks, key, value, &meta.value);
    if (status == MICA_OK)
        status = reserve((void **)&writer->meta, writer->meta_count, &writer->meta_capacity, sizeof meta);
    if (status == MICA_OK)
        status = take_name(writer, "key", key, length, &writer->keys, &meta.key.data);
    if (status != MICA_OK)
        return status;
    meta.key.length = length;
    writer->meta[writer->meta_count++] = meta;
    return MICA_OK;
}

mica_status mica_writer_string(mica_writer *writer, const char *key, const char *text)
{
    const mica_value value = {.type = MICA_VALUE_STRING,
                              .as.string = {text, text == NULL ? 0 : strlen(text)}};
    if (text == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "text: NULL");
    return mica_writer_metadata(writer, key, &value);
}

mica_status mica_writer_u32(mica_writer *writer, const char *key, uint32_t number)
{
    const mica_value value = {.type = MICA_VALUE_U32, .as.u = number};
    return mica_writer_metadata(writer, key, &value);
}

/* Shape and size of a declared tensor; dimensions of 0 make it empty, but the others must fit all the same. */
static mica_status measure_tensor(const mica_writer *writer, mica__writer_tensor *tensor,
                                  const uint64_t *shape)
{
    const uint32_t block = mica_dtype_block_elements(tensor->dtype);
    uint64_t elements = 1, row = 1;
    bool empty = false, fits = true;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        tensor->shape[i] = row = shape[i];
        empty = empty || row == 0;
        fits = fits && mica__mul_u64(elements, row == 0 ? 1 : row, &elements);
    }
    if (block == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "\"%s\": tensor \"%s\" of unknown dtype %d",
                          writer->path, tensor->name, (int)tensor->dtype);
    if (row % block != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "\"%s\": tensor \"%s\" has rows of %llu values, expected a multiple of %u for %s",
                          writer->path, tensor->name, (unsigned long long)row, block,
                          mica_dtype_name(tensor->dtype));
    if (!fits || elements > INT64_MAX ||
        !mica__mul_u64(elements / block, mica_dtype_block_bytes(tensor->dtype), &tensor->bytes) ||
        tensor->bytes > INT64_MAX)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "\"%s\": tensor \"%s\" is of more than 2^63 bytes",
                          writer->path, tensor->name);
    if (empty)
        tensor->bytes = 0;
    return MICA_OK;
}

mica_status mica_writer_tensor(mica_writer *writer, const char *name, mica_dtype dtype, uint32_t ndim,
                               const uint64_t *shape)
{
    mica__writer_tensor tensor = {.name = name, .dtype = dtype, .ndim = ndim};
    size_t length;
    mica_status status = check_declaring(writer);
    if (status == MICA_OK)
        status = mica__check_enum("writer_tensor: dtype", (uint32_t)dtype, MICA_DTYPE_COUNT);
    if (status == MICA_OK)
        status = check_name(writer, "tensor name", name, &length);
    if (status != MICA_OK)
        return status;
    if (ndim > MICA_MAX_DIMS || (shape == NULL && ndim != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "tensor \"%s\": %s", name,
                          ndim > MICA_MAX_DIMS ? "too many dimensions" : "shape is NULL");
    tensor.name_length = (uint32_t)length;
    status = measure_tensor(writer, &tensor, shape);
    if (status == MICA_OK && !mica__add_u64(writer->left, tensor.bytes, &(uint64_t){0}))
        status =
            mica__fail(MICA_ERR_INVALID_ARGUMENT, "tensor \"%s\": all together more than 2^64 bytes", name);
    if (status == MICA_OK)
        status = writer->format->check_tensor(writer, &tensor);
    if (status == MICA_OK)
        status =
            reserve((void **)&writer->tensor, writer->tensor_count, &writer->tensor_capacity, sizeof tensor);
    if (status == MICA_OK)
        status = take_name(writer, "tensor", name, length, &writer->names, &tensor.name);
    if (status != MICA_OK)
        return status;
    writer->left += tensor.bytes;
    writer->tensor[writer->tensor_count++] = tensor;
    return MICA_OK;
}
