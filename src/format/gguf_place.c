/*
 * gguf_place.c - what a walked header must still prove: that keys are unique, that each tensor lies in the file where
 * no other does, and that the parts of a split file belong together.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/sort.h"
#include "format/gguf.h"

const mica_value *mica__gguf_meta(const mica__gguf_part *part, const char *key)
{
    const size_t length = strlen(key);
    for (uint64_t i = 0; i < part->meta_count; i++)
        if (part->meta[i].key.length == length && memcmp(part->meta[i].key.data, key, length) == 0)
            return &part->meta[i].value;
    return NULL;
}

/* ---- keys ----------------------------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
    const mica_string *x = a, *y = b;
    const int order = memcmp(x->data, y->data, (size_t)(x->length < y->length ? x->length : y->length));
    return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

static mica_status check_keys(const mica__gguf_part *part)
{
    const size_t count = (size_t)part->meta_count;
    mica_status status;
    if (count == 0)
        return MICA_OK;
    mica_string *keys = mica__alloc(count * sizeof *keys);
    if (keys == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to sort %zu keys", count);
    for (size_t i = 0; i < count; i++)
        keys[i] = part->meta[i].key;
    status = mica__sort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count && status == MICA_OK; i++)
        if (compare_keys(&keys[i - 1], &keys[i]) == 0)
            status = mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "the key \"%.64s\" is there twice",
                                     keys[i].data);
    mica__free(keys);
    return status;
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

typedef struct span {
    uint64_t offset, bytes; /* in the data */
    uint64_t index;
} span;

static int compare_spans(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static mica_status read_alignment(const mica__gguf_part *part, uint64_t *out_alignment)
{
    const mica_value *value = mica__gguf_meta(part, "general.alignment");
    *out_alignment = MICA__GGUF_ALIGNMENT;
    if (value == NULL)
        return MICA_OK;
    if (value->type != MICA_VALUE_U32)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "general.alignment is of type %s, expected u32",
                               mica_value_type_name(value->type));
    if (value->as.u == 0 || value->as.u % 8 != 0) /* the specification's rule */
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                               "general.alignment is %" PRIu64 ", expected a multiple of 8", value->as.u);
    *out_alignment = value->as.u;
    return MICA_OK;
}

static mica_status check_tensor(const mica__gguf_part *part, const mica__tensor *tensor, uint64_t alignment,
                                uint64_t data_bytes)
{
    if (tensor->offset % alignment != 0)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                               "tensor \"%.64s\" at offset %" PRIu64 ", expected a multiple of %" PRIu64,
                               tensor->name, tensor->offset, alignment);
    if (tensor->offset > data_bytes || tensor->bytes > data_bytes - tensor->offset)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                               "tensor \"%.64s\" of %" PRIu64 " bytes at offset %" PRIu64
                               " leaves the file, which has %" PRIu64 " bytes of data",
                               tensor->name, tensor->bytes, tensor->offset, data_bytes);
    return MICA_OK;
}

/* In the order of offsets: unknown types get the bytes up to the next tensor, and nothing may overlap. */
static mica_status check_spans(mica__gguf_part *part, const span *spans, uint64_t data_bytes)
{
    const span *last = NULL; /* that has bytes */
    for (uint64_t i = 0; i < part->tensor_count; i++) {
        mica__tensor *tensor = &part->tensor[spans[i].index];
        if (tensor->dtype == MICA_DTYPE_NONE)
            tensor->bytes = (i + 1 < part->tensor_count ? spans[i + 1].offset : data_bytes) - spans[i].offset;
        if (last != NULL && tensor->bytes != 0) {
            const mica__tensor *before = &part->tensor[last->index];
            if (last->offset + before->bytes > spans[i].offset)
                return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                                       "the tensors \"%.64s\" and \"%.64s\" overlap at offset %" PRIu64,
                                       before->name, tensor->name, spans[i].offset);
        }
        if (tensor->bytes != 0)
            last = &spans[i];
    }
    return MICA_OK;
}

static mica_status check_overlap(mica__gguf_part *part, uint64_t data_bytes)
{
    const size_t count = (size_t)part->tensor_count;
    if (count == 0)
        return MICA_OK;
    span *spans = mica__alloc(count * sizeof *spans);
    if (spans == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to sort %zu tensors", count);
    for (size_t i = 0; i < count; i++)
        spans[i] = (span){part->tensor[i].offset, part->tensor[i].bytes, i};
    mica_status status = mica__sort(spans, count, sizeof *spans, compare_spans);
    if (status == MICA_OK)
        status = check_spans(part, spans, data_bytes);
    mica__free(spans);
    return status;
}

mica_status mica__gguf_place(mica__gguf_part *part)
{
    const uint64_t file_bytes = mica__file_size(part->cursor.file);
    uint64_t alignment, start, data_bytes;
    part->what = NULL;
    mica_status status = check_keys(part);
    if (status == MICA_OK)
        status = read_alignment(part, &alignment);
    if (status != MICA_OK)
        return status;
    if (!mica__align_up_u64(part->header_bytes, alignment, &start) || start > file_bytes)
        start = file_bytes; /* no data, so only tensors without bytes can follow */
    data_bytes = file_bytes - start;
    for (uint64_t i = 0; i < part->tensor_count && status == MICA_OK; i++)
        status = check_tensor(part, &part->tensor[i], alignment, data_bytes);
    if (status == MICA_OK)
        status = check_overlap(part, data_bytes);
    for (uint64_t i = 0; i < part->tensor_count && status == MICA_OK; i++)
        part->tensor[i].offset += start;
    return status;
}

/* ---- split files ---------------------------------------------------------------------------------------- */

/* A whole number that is not negative, of any integer type; `fallback` where the key is missing. */
static mica_status read_count(const mica__gguf_part *part, const char *key, uint64_t fallback,
                              uint64_t *out_count)
{
    const mica_value *value = mica__gguf_meta(part, key);
    *out_count = fallback;
    if (value == NULL)
        return MICA_OK;
    switch (value->type) {
    case MICA_VALUE_U8:
    case MICA_VALUE_U16:
    case MICA_VALUE_U32:
    case MICA_VALUE_U64: *out_count = value->as.u; return MICA_OK;
    case MICA_VALUE_I8:
    case MICA_VALUE_I16:
    case MICA_VALUE_I32:
    case MICA_VALUE_I64:
        if (value->as.i < 0)
            return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "%s is %" PRId64 ", expected a count", key,
                                   value->as.i);
        *out_count = (uint64_t)value->as.i;
        return MICA_OK;
    default:
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "%s is of type %s, expected an integer", key,
                               mica_value_type_name(value->type));
    }
}

static mica_status check_part(const mica__gguf_part *part, uint32_t index, uint32_t count,
                              uint64_t tensor_count)
{
    uint64_t parts, number, tensors;
    mica_status status = read_count(part, "split.count", count == 1 ? 1 : 0, &parts);
    if (status == MICA_OK)
        status = read_count(part, "split.no", index, &number);
    if (status == MICA_OK)
        status = read_count(part, "split.tensors.count", tensor_count, &tensors);
    if (status != MICA_OK)
        return status;
    if (count == 1 && parts > 1)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                               "split.count is %" PRIu64 ": the file is a part, but its name does not end in "
                               "-00001-of-%05" PRIu64 ".gguf",
                               parts, parts);
    if (count > 1 && parts != count)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "split.count is %" PRIu64 ", the name says %u",
                               parts, count);
    if (number != index)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE, "split.no is %" PRIu64 ", expected %u", number,
                               index);
    if (count > 1 && tensors != tensor_count)
        return mica__gguf_fail(part, MICA_ERR_MALFORMED_FILE,
                               "split.tensors.count is %" PRIu64 ", but the %u parts have %" PRIu64, tensors,
                               count, tensor_count);
    return MICA_OK;
}

mica_status mica__gguf_check_split(const mica__gguf_part *parts, uint32_t count, uint64_t tensor_count)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < count && status == MICA_OK; i++)
        status = check_part(&parts[i], i, count, tensor_count);
    return status;
}
