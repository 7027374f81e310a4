/*
 * safetensors_write.c - writes safetensors, in one file or in several with an index.
 *
 * Tensors lie in the order they were declared, because they are streamed and the format allows no gap. The header is
 * filled with spaces to a multiple of 8, so that data begins aligned; it stays so if wide types are declared before
 * narrow ones, which is the order of the format's reference writer.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "format/safetensors.h"
#include "format/writer.h"

#define HEADER_ALIGN 8

static bool is_utf8(const char *text, uint64_t length)
{
    for (uint64_t at = 0; at < length;) {
        const size_t size = mica__utf8_length(text + at, (size_t)(length - at));
        if (size == 0)
            return false;
        at += size;
    }
    return true;
}

static mica_status check_meta(const mica_writer *writer, const char *key, const mica_value *value)
{
    if (value->type != MICA_VALUE_STRING)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\": the metadata \"%s\" is of type %s; safetensors hold strings alone",
                          writer->path, key, mica_value_type_name(value->type));
    if (value->as.string.data != NULL && !is_utf8(value->as.string.data, value->as.string.length))
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\": the metadata \"%s\" is not UTF-8, which safetensors demand", writer->path,
                          key);
    return MICA_OK;
}

static mica_status check_tensor(const mica_writer *writer, const mica__writer_tensor *tensor)
{
    if (mica__safetensors_type_of((uint16_t)tensor->dtype) == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\": tensor \"%s\" is of type %s, which safetensors do not have", writer->path,
                          tensor->name, mica_dtype_name(tensor->dtype));
    if (strcmp(tensor->name, MICA__SAFETENSORS_METADATA) == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "\"%s\": tensor \"%s\" has a name that safetensors do not allow", writer->path,
                          tensor->name);
    return MICA_OK;
}

static void write_entry(mica__json_writer *json, const mica__writer_tensor *tensor, uint64_t *offset)
{
    mica__json_key_n(json, tensor->name, tensor->name_length);
    mica__json_begin_object(json);
    mica__json_key(json, "dtype");
    mica__json_string(json, mica__safetensors_type_of((uint16_t)tensor->dtype)->name);
    mica__json_key(json, "shape");
    mica__json_begin_array(json);
    for (uint32_t d = 0; d < tensor->ndim; d++)
        mica__json_uint(json, tensor->shape[d]);
    mica__json_end_array(json);
    mica__json_key(json, "data_offsets");
    mica__json_begin_array(json);
    mica__json_uint(json, *offset);
    *offset += tensor->bytes;
    mica__json_uint(json, *offset);
    mica__json_end_array(json);
    mica__json_end_object(json);
}

static void write_metadata(mica__json_writer *json, const mica_writer *writer)
{
    mica__json_key(json, MICA__SAFETENSORS_METADATA);
    mica__json_begin_object(json);
    for (uint32_t i = 0; i < writer->meta_count; i++) {
        const mica__meta *meta = &writer->meta[i];
        mica__json_key_n(json, meta->key.data, (size_t)meta->key.length);
        mica__json_string_n(json, meta->value.as.string.data, (size_t)meta->value.as.string.length);
    }
    mica__json_end_object(json);
}

/* The length, the header and the spaces behind it. */
static mica_status put_header(mica_writer *writer, const char *text, size_t length)
{
    static const char spaces[HEADER_ALIGN + 1] = "        ";
    const size_t padding = (HEADER_ALIGN - length % HEADER_ALIGN) % HEADER_ALIGN;
    const uint64_t total = (uint64_t)length + padding;
    uint8_t raw[8];
    mica_status status;
    if (total > MICA__SAFETENSORS_MAX_HEADER)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\": a header of %llu bytes, more than the %u that safetensors allow",
                          writer->path, (unsigned long long)total, MICA__SAFETENSORS_MAX_HEADER);
    for (int i = 0; i < 8; i++)
        raw[i] = (uint8_t)(total >> 8 * i);
    status = mica__writer_put(writer, raw, sizeof raw);
    if (status == MICA_OK)
        status = mica__writer_put(writer, text, length);
    return status == MICA_OK ? mica__writer_put(writer, spaces, padding) : status;
}

static mica_status begin(mica_writer *writer, const mica__writer_file *part)
{
    mica__json_writer json;
    uint64_t offset = 0;
    size_t length = 0;
    char *text = NULL;
    mica_status status;
    mica__json_writer_init(&json);
    mica__json_begin_object(&json);
    if (writer->meta_count != 0)
        write_metadata(&json, writer);
    for (uint32_t i = 0; i < part->count; i++)
        write_entry(&json, &writer->tensor[part->first + i], &offset);
    mica__json_end_object(&json);
    status = mica__json_writer_finish(&json, &text, &length);
    if (status != MICA_OK)
        return mica__fail(status, "\"%s\": its header: %s", part->path, mica_status_message());
    status = put_header(writer, text, length);
    mica__free(text);
    return status;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static mica_status build_index(const mica_writer *writer, char **out_text, size_t *out_length)
{
    mica__json_writer json;
    uint64_t total = 0;
    for (uint32_t i = 0; i < writer->tensor_count; i++)
        total += writer->tensor[i].bytes;
    mica__json_writer_init(&json);
    mica__json_begin_object(&json);
    mica__json_key(&json, "metadata");
    mica__json_begin_object(&json);
    mica__json_key(&json, "total_size");
    mica__json_uint(&json, total);
    mica__json_end_object(&json);
    mica__json_key(&json, "weight_map");
    mica__json_begin_object(&json);
    for (uint32_t p = 0; p < writer->split_count; p++) {
        const mica__writer_file *part = &writer->part[p];
        for (uint32_t i = 0; i < part->count; i++) {
            const mica__writer_tensor *tensor = &writer->tensor[part->first + i];
            mica__json_key_n(&json, tensor->name, tensor->name_length);
            mica__json_string(&json, base_name(part->path));
        }
    }
    mica__json_end_object(&json);
    mica__json_end_object(&json);
    return mica__json_writer_finish(&json, out_text, out_length);
}

/* model.safetensors in several files gets model.safetensors.index.json. */
static mica_status finish(mica_writer *writer)
{
    static const char ending[] = ".index.json";
    const size_t before = strlen(writer->path);
    size_t length = 0;
    char *text = NULL, *path;
    mica_status status;
    if (writer->split_count < 2)
        return MICA_OK;
    path = mica__writer_alloc(writer, before + sizeof ending);
    if (path == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    memcpy(path, writer->path, before);
    memcpy(path + before, ending, sizeof ending);
    status = build_index(writer, &text, &length);
    if (status != MICA_OK)
        return mica__fail(status, "\"%s\": %s", path, mica_status_message());
    status = mica__writer_add_file(writer, path);
    if (status == MICA_OK)
        status = mica__writer_put(writer, text, length);
    mica__free(text);
    return status;
}

const mica__writer_format mica__safetensors_format = {
    .format = MICA_FORMAT_SAFETENSORS,
    .ending = ".safetensors",
    .can_split = true,
    .check_meta = check_meta,
    .check_tensor = check_tensor,
    .begin = begin,
    .finish = finish,
};
