/*
 * gguf_write.c - GGUF version 3, little endian: header and padding. The data is streamed by writer_stream.c.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "format/gguf.h"
#include "format/writer.h"

/* ggml reads no more; the specification leaves room for more later. */
#define MOST_DIMS 4

/* The header of one file, built in memory. */
typedef struct gguf_header {
    uint8_t *bytes;
    size_t size, capacity;
    bool failed; /* no memory */
} gguf_header;

static void put(gguf_header *h, const void *bytes, size_t size)
{
    if (size > h->capacity - h->size) {
        size_t wanted;
        const bool fits = mica__add_size(h->capacity < 4096 ? 4096 : h->capacity, h->capacity, &wanted) &&
                          mica__add_size(wanted, size, &wanted);
        uint8_t *larger = h->failed || !fits ? NULL : mica__realloc(h->bytes, wanted);
        if (larger == NULL) {
            h->failed = true;
            return;
        }
        h->bytes = larger;
        h->capacity = wanted;
    }
    if (size != 0)
        memcpy(h->bytes + h->size, bytes, size);
    h->size += size;
}

static void put_number(gguf_header *h, uint64_t number, uint32_t size)
{
    uint8_t bytes[8];
    for (uint32_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(number >> 8 * i);
    put(h, bytes, size);
}

static void put_string(gguf_header *h, const char *text, uint64_t length)
{
    put_number(h, length, 8);
    put(h, text, (size_t)length);
}

/* ---- metadata ------------------------------------------------------------------------------------------- */

static void put_scalar(gguf_header *h, const mica_value *value)
{
    uint64_t bits = value->as.u; /* signed ones have the same low bytes */
    if (value->type == MICA_VALUE_F32) {
        const float narrow = (float)value->as.f;
        uint32_t word;
        memcpy(&word, &narrow, sizeof word);
        bits = word;
    } else if (value->type == MICA_VALUE_BOOL) {
        bits = value->as.u != 0;
    }
    put_number(h, bits, mica__value_type_bytes(value->type));
}

/* Item type, count and items; those of an array of arrays come after. */
static void put_array(gguf_header *h, const mica_value *value)
{
    put_number(h, (uint64_t)value->item_type, 4);
    put_number(h, value->count, 8);
    if (value->item_type == MICA_VALUE_STRING) {
        const mica_string *items = value->as.items;
        for (uint64_t i = 0; i < value->count; i++)
            put_string(h, items[i].data, items[i].length);
    } else if (value->item_type == MICA_VALUE_BOOL) {
        const uint8_t *items = value->as.items;
        for (uint64_t i = 0; i < value->count; i++)
            put_number(h, items[i] != 0, 1);
    } else {
        put(h, value->as.items, (size_t)(value->count * mica__value_type_bytes(value->item_type)));
    }
}

typedef struct written_level {
    const mica_value *items;
    uint64_t left;
} written_level;

/* The depth was checked when the value was copied. */
static void put_nested(gguf_header *h, const mica_value *value)
{
    written_level levels[MICA__VALUE_DEPTH];
    uint32_t depth = 0;
    for (;;) {
        put_array(h, value);
        if (value->item_type == MICA_VALUE_ARRAY)
            levels[depth++] = (written_level){value->as.items, value->count};
        while (depth != 0 && levels[depth - 1].left == 0)
            depth--;
        if (depth == 0)
            return;
        levels[depth - 1].left--;
        value = levels[depth - 1].items++;
    }
}

static void put_meta(gguf_header *h, const char *key, uint64_t length, const mica_value *value)
{
    put_string(h, key, length);
    put_number(h, (uint64_t)value->type, 4);
    if (value->type == MICA_VALUE_STRING)
        put_string(h, value->as.string.data, value->as.string.length);
    else if (value->type == MICA_VALUE_ARRAY)
        put_nested(h, value);
    else
        put_scalar(h, value);
}

/* The entries that are the writer's own; returns how many. With h NULL it only counts. */
static uint32_t put_own(gguf_header *h, const mica_writer *writer)
{
    const struct {
        const char *key;
        mica_value value;
        bool wanted;
    } own[] = {
        {"general.alignment",
         {.type = MICA_VALUE_U32, .as.u = writer->options.alignment},
         writer->options.alignment != MICA__GGUF_ALIGNMENT},
        {"split.no", {.type = MICA_VALUE_U16, .as.u = writer->at_part}, writer->split_count > 1},
        {"split.count", {.type = MICA_VALUE_U16, .as.u = writer->split_count}, writer->split_count > 1},
        {"split.tensors.count",
         {.type = MICA_VALUE_I32, .as.i = writer->tensor_count},
         writer->split_count > 1},
    };
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (own[i].wanted && h != NULL)
            put_meta(h, own[i].key, strlen(own[i].key), &own[i].value);
        count += own[i].wanted;
    }
    return count;
}

static mica_status check_meta(const mica_writer *writer, const char *key, const mica_value *value)
{
    (void)value;
    if (strcmp(key, "general.alignment") == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "\"%s\": general.alignment is the writer's own, expected options.alignment",
                          writer->path);
    if (strcmp(key, "split.no") == 0 || strcmp(key, "split.count") == 0 ||
        strcmp(key, "split.tensors.count") == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "\"%s\": %s is the writer's own, expected options.split_bytes", writer->path, key);
    return MICA_OK;
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

static mica_status check_tensor(const mica_writer *writer, const mica__writer_tensor *tensor)
{
    if (mica__gguf_type_by_dtype(tensor->dtype) == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\": tensor \"%s\" is of type %s, which GGUF does not have", writer->path,
                          tensor->name, mica_dtype_name(tensor->dtype));
    if (tensor->ndim > MOST_DIMS)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\": tensor \"%s\" has %u dimensions, GGUF takes at most %d", writer->path,
                          tensor->name, tensor->ndim, MOST_DIMS);
    return MICA_OK;
}

static mica_status put_tensor(gguf_header *h, const mica_writer *writer, const mica__writer_tensor *tensor,
                              uint64_t *inout_offset)
{
    put_string(h, tensor->name, tensor->name_length);
    put_number(h, tensor->ndim, 4);
    for (uint32_t i = tensor->ndim; i-- > 0;)
        put_number(h, tensor->shape[i], 8);
    put_number(h, mica__gguf_type_by_dtype(tensor->dtype)->id, 4);
    put_number(h, *inout_offset, 8);
    if (mica__add_u64(*inout_offset, tensor->bytes, inout_offset) &&
        mica__align_up_u64(*inout_offset, writer->options.alignment, inout_offset))
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "\"%s\": tensor \"%s\" would end past 2^64 bytes",
                      writer->path, tensor->name);
}

static mica_status pad(mica_writer *writer)
{
    const uint64_t rest = mica__writer_position(writer) % writer->options.alignment;
    return mica__writer_pad(writer, rest == 0 ? 0 : writer->options.alignment - rest);
}

/* Metadata is in the first file alone. */
static mica_status begin(mica_writer *writer, const mica__writer_file *part)
{
    const uint32_t meta_count = writer->at_part == 0 ? writer->meta_count : 0;
    gguf_header h = {0};
    uint64_t offset = 0;
    mica_status status = MICA_OK;
    put(&h, MICA__GGUF_MAGIC, 4);
    put_number(&h, MICA__GGUF_VERSION, 4);
    put_number(&h, part->count, 8);
    put_number(&h, (uint64_t)meta_count + put_own(NULL, writer), 8);
    for (uint32_t i = 0; i < meta_count; i++)
        put_meta(&h, writer->meta[i].key.data, writer->meta[i].key.length, &writer->meta[i].value);
    put_own(&h, writer);
    for (uint32_t i = 0; i < part->count && status == MICA_OK; i++)
        status = put_tensor(&h, writer, &writer->tensor[part->first + i], &offset);
    if (h.failed)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the header of \"%s\"", part->path);
    if (status == MICA_OK)
        status = mica__writer_put(writer, h.bytes, h.size);
    mica__free(h.bytes);
    return status == MICA_OK ? pad(writer) : status;
}

static mica_status after(mica_writer *writer, const mica__writer_tensor *tensor)
{
    (void)tensor;
    return pad(writer);
}

const mica__writer_format mica__gguf_format = {
    .format = MICA_FORMAT_GGUF,
    .ending = ".gguf",
    .can_split = true,
    .check_meta = check_meta,
    .check_tensor = check_tensor,
    .begin = begin,
    .after = after,
};
