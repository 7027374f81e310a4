/* target.c - a target's tables. How it is carried out is in target_stream.c. */
#include "format/convert/target.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "format/convert/piece.h"
#include "quant/dtype.h"
#include "quant/quant.h"

#define MOST_SIDE_BYTES ((size_t)128 << 20)

void mica__target_free(mica__target *target)
{
    mica__free(target->tensor);
    mica__free(target->meta);
    mica__name_set_free(&target->keys);
    mica__chunks_free(&target->chunks);
    *target = (mica__target){0};
}

static mica_status reserve(void **items, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return MICA_OK;
    const uint32_t larger = *capacity == 0 ? 64 : *capacity * 2;
    void *grown = larger > *capacity ? mica__realloc(*items, larger * size) : NULL;
    if (grown == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the tables of %u tensors", count);
    *items = grown;
    *capacity = larger;
    return MICA_OK;
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

mica_status mica__target_same(mica__target *target, const mica__tensor *source,
                              mica__target_tensor *out_tensor)
{
    const mica__tensor **list;
    mica_status status = mica__archive_usable(target->archive, source);
    *out_tensor = (mica__target_tensor){.name = source->name,
                                        .dtype = (mica_dtype)source->dtype,
                                        .ndim = source->ndim,
                                        .source_count = 1,
                                        .rows = 1,
                                        .row = 1};
    if (status != MICA_OK)
        return status;
    list = mica__chunks_alloc(&target->chunks, sizeof(const mica__tensor *));
    if (list == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    list[0] = source;
    out_tensor->source = list;
    for (uint32_t i = 0; i < source->ndim; i++) {
        out_tensor->shape[i] = source->shape[i];
        out_tensor->rows *= i + 1 < source->ndim ? source->shape[i] : 1;
    }
    if (source->ndim != 0)
        out_tensor->row = source->shape[source->ndim - 1];
    return MICA_OK;
}

mica_status mica__target_pair(mica__target_tensor *tensor, mica__transform transform, uint32_t heads)
{
    tensor->transform = (uint8_t)transform;
    tensor->heads = heads;
    if (tensor->ndim == 1) {
        tensor->rows = tensor->row;
        tensor->row = 1;
    }
    if (heads == 0 || tensor->rows % (2 * (uint64_t)heads) != 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "tensor \"%s\" has %llu rows, which the %u heads of the model do not divide",
                          tensor->source[0]->name, (unsigned long long)tensor->rows, heads);
    return MICA_OK;
}

mica_status mica__target_transpose(mica__target_tensor *tensor)
{
    if (tensor->ndim != 2)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"%s\" has %u dimensions, expected 2",
                          tensor->source[0]->name, tensor->ndim);
    tensor->transform = MICA__TRANSFORM_TRANSPOSE;
    tensor->rows = tensor->shape[1];
    tensor->row = tensor->shape[0];
    tensor->shape[0] = tensor->rows;
    tensor->shape[1] = tensor->row;
    return MICA_OK;
}

mica_dtype mica__target_source_type(const mica__target_tensor *tensor)
{
    return tensor->constant != NULL ? MICA_DTYPE_F32 : (mica_dtype)tensor->source[0]->dtype;
}

mica_status mica__target_add(mica__target *target, const mica__target_tensor *tensor)
{
    mica_status status = mica__spend(8);
    if (status == MICA_OK)
        status = reserve((void **)&target->tensor, target->tensor_count, &target->tensor_capacity,
                         sizeof *target->tensor);
    if (status == MICA_OK)
        target->tensor[target->tensor_count++] = *tensor;
    return status;
}

static bool can_decode(const mica__archive *archive, const mica__tensor *source)
{
    if (source->scales == MICA__NO_TENSOR)
        return mica__quant_can_decode(source->dtype);
    return mica__affine_serves(source->dtype, archive->tensor[source->scales].dtype);
}

static mica_status check_tensor(const mica__archive *archive, const mica__target_tensor *tensor)
{
    if (mica__piece_is_copy(tensor))
        return MICA_OK;
    const mica__tensor *source = tensor->source[0];
    if (!can_decode(archive, source))
        return mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"%s\" is of type %s, which has no values as floats",
                          source->name, source->type_name);
    if (tensor->part == MICA__TARGET_WHOLE && !mica__quant_can_encode((uint16_t)tensor->dtype))
        return mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"%s\": type %s can be read but not made",
                          tensor->name, mica_dtype_name(tensor->dtype));
    if (tensor->transform == MICA__TRANSFORM_TRANSPOSE &&
        (source->scales != MICA__NO_TENSOR || mica__dtype_elements(source->dtype) != 1))
        return mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"%s\" of type %s cannot be transposed", source->name,
                          source->type_name);
    return MICA_OK;
}

mica_status mica__target_check(const mica__target *target)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < target->tensor_count && status == MICA_OK; i++) {
        const mica__target_tensor *tensor = &target->tensor[i];
        for (uint32_t s = 0; s < tensor->source_count && status == MICA_OK; s++)
            status = mica__archive_usable(target->archive, tensor->source[s]);
        if (status == MICA_OK)
            status = check_tensor(target->archive, tensor);
    }
    return status;
}

/* ---- metadata ------------------------------------------------------------------------------------------- */

static mica__meta *find(const mica__target *target, const char *key)
{
    const size_t length = strlen(key);
    for (uint32_t i = 0; i < target->meta_count; i++)
        if (target->meta[i].key.length == length && memcmp(target->meta[i].key.data, key, length) == 0)
            return &target->meta[i];
    return NULL;
}

mica_status mica__target_set(mica__target *target, const char *key, const mica_value *value)
{
    mica__meta *meta;
    if (key == NULL) /* of mica__target_text, which had no memory */
        return MICA_ERR_OUT_OF_MEMORY;
    bool fresh = false;
    mica_status status = mica__spend(4);
    if (status == MICA_OK)
        status = mica__name_set_add(&target->keys, key, strlen(key), &fresh);
    if (status != MICA_OK)
        return status;
    meta = fresh ? NULL : find(target, key);
    if (meta == NULL) {
        status =
            reserve((void **)&target->meta, target->meta_count, &target->meta_capacity, sizeof *target->meta);
        if (status != MICA_OK)
            return status;
        meta = &target->meta[target->meta_count++];
        meta->key = (mica_string){key, strlen(key)};
    }
    meta->value = *value;
    return MICA_OK;
}

mica_status mica__target_set_u32(mica__target *target, const char *key, uint64_t number)
{
    return mica__target_set(target, key, &(mica_value){.type = MICA_VALUE_U32, .as.u = number});
}

mica_status mica__target_set_f32(mica__target *target, const char *key, double number)
{
    return mica__target_set(target, key, &(mica_value){.type = MICA_VALUE_F32, .as.f = number});
}

mica_status mica__target_set_bool(mica__target *target, const char *key, bool truth)
{
    return mica__target_set(target, key, &(mica_value){.type = MICA_VALUE_BOOL, .as.u = truth});
}

mica_status mica__target_set_string(mica__target *target, const char *key, const char *text)
{
    if (text == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    return mica__target_set(target, key,
                            &(mica_value){.type = MICA_VALUE_STRING, .as.string = {text, strlen(text)}});
}

void mica__target_unset(mica__target *target, const char *key)
{
    mica__meta *meta = find(target, key);
    if (meta == NULL)
        return;
    target->meta_count--;
    memmove(meta, meta + 1, (size_t)(target->meta + target->meta_count - meta) * sizeof *meta);
}

const mica_value *mica__target_get(const mica__target *target, const char *key)
{
    const mica__meta *meta = find(target, key);
    return meta == NULL ? NULL : &meta->value;
}

uint64_t mica__target_get_number(const mica__target *target, const char *key, uint64_t otherwise)
{
    const mica_value *value = mica__target_get(target, key);
    if (value == NULL)
        return otherwise;
    switch (value->type) {
    case MICA_VALUE_U8:
    case MICA_VALUE_U16:
    case MICA_VALUE_U32:
    case MICA_VALUE_U64: return value->as.u;
    case MICA_VALUE_I8:
    case MICA_VALUE_I16:
    case MICA_VALUE_I32:
    case MICA_VALUE_I64: return value->as.i < 0 ? otherwise : (uint64_t)value->as.i;
    case MICA_VALUE_ARRAY:
        if (value->count == 0)
            return otherwise;
        if (value->item_type == MICA_VALUE_U32)
            return ((const uint32_t *)value->as.items)[0];
        if (value->item_type == MICA_VALUE_I32 && ((const int32_t *)value->as.items)[0] >= 0)
            return (uint64_t)((const int32_t *)value->as.items)[0];
        return otherwise;
    default: return otherwise;
    }
}

char *mica__target_text(mica__target *target, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = mica__chunks_alloc(&target->chunks, length < 0 ? 1 : (size_t)length + 1);
    if (text == NULL)
        return NULL;
    va_start(arguments, format);
    vsnprintf(text, length < 0 ? 1 : (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

mica_status mica__target_read_side(mica__target *target, const char *folder, const char *name,
                                   mica__side_file *out)
{
    *out = (mica__side_file){.path = mica__target_text(target, "%s/%s", folder, name)};
    if (out->path == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    return mica__file_read_inside(folder, out->path, MOST_SIDE_BYTES, &out->data, &out->size);
}
