/*
 * value.c - metadata values: their names, their sizes, and copies that own all they point to.
 */
#include <string.h>

#include "base/checked.h"
#include "format/writer.h"

static const char *const format_names[] = {"none", "gguf", "safetensors", "mlx", "npy", "npz"};

static const struct {
    const char *name;
    uint32_t bytes;
} types[MICA_VALUE_TYPE_COUNT] = {
    [MICA_VALUE_U8] = {"u8", 1},       [MICA_VALUE_I8] = {"i8", 1},     [MICA_VALUE_U16] = {"u16", 2},
    [MICA_VALUE_I16] = {"i16", 2},     [MICA_VALUE_U32] = {"u32", 4},   [MICA_VALUE_I32] = {"i32", 4},
    [MICA_VALUE_F32] = {"f32", 4},     [MICA_VALUE_BOOL] = {"bool", 1}, [MICA_VALUE_STRING] = {"string", 0},
    [MICA_VALUE_ARRAY] = {"array", 0}, [MICA_VALUE_U64] = {"u64", 8},   [MICA_VALUE_I64] = {"i64", 8},
    [MICA_VALUE_F64] = {"f64", 8},
};

const char *mica_format_name(mica_format format)
{
    const uint32_t index = (uint32_t)format; /* the caller may pass any number */
    return format_names[index < sizeof format_names / sizeof format_names[0] ? index : 0];
}

const char *mica_value_type_name(mica_value_type type)
{
    return (uint32_t)type < MICA_VALUE_TYPE_COUNT ? types[type].name : "none";
}

uint32_t mica__value_type_bytes(mica_value_type type)
{
    return (uint32_t)type < MICA_VALUE_TYPE_COUNT ? types[type].bytes : 0;
}

static mica_status copy_string(struct mica__chunk **chunks, const char *key, mica_string string,
                               mica_string *out)
{
    if (string.data == NULL && string.length != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "value of \"%s\": a string of %llu bytes is NULL", key,
                          (unsigned long long)string.length);
    char *text = mica__chunks_alloc(chunks, string.length < SIZE_MAX ? (size_t)string.length + 1 : SIZE_MAX);
    if (text == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (string.length != 0)
        memcpy(text, string.data, (size_t)string.length);
    text[string.length] = '\0';
    *out = (mica_string){text, string.length};
    return MICA_OK;
}

/* Strings get memory of their own; numbers and values are copied flat. */
static mica_status copy_items(struct mica__chunk **chunks, const char *key, mica_value *value)
{
    const bool strings = value->item_type == MICA_VALUE_STRING;
    const size_t each = strings                                ? sizeof(mica_string)
                        : value->item_type == MICA_VALUE_ARRAY ? sizeof(mica_value)
                                                               : mica__value_type_bytes(value->item_type);
    const void *from = value->as.items;
    uint64_t bytes;
    if (each == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "value of \"%s\": an array of unknown item type %d", key,
                          (int)value->item_type);
    if (from == NULL && value->count != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "value of \"%s\": an array of %llu items is NULL", key,
                          (unsigned long long)value->count);
    if (!mica__mul_u64(value->count, each, &bytes) || bytes > SIZE_MAX)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "value of \"%s\": an array of %llu items is too large",
                          key, (unsigned long long)value->count);
    void *items = mica__chunks_alloc(chunks, (size_t)bytes);
    if (items == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (bytes != 0)
        memcpy(items, from, (size_t)bytes);
    value->as.items = items;
    mica_status status = MICA_OK;
    for (uint64_t i = 0; strings && i < value->count && status == MICA_OK; i++)
        status = copy_string(chunks, key, ((mica_string *)items)[i], &((mica_string *)items)[i]);
    return status;
}

static mica_status copy_one(struct mica__chunk **chunks, const char *key, mica_value *value)
{
    if (value->type == MICA_VALUE_STRING)
        return copy_string(chunks, key, value->as.string, &value->as.string);
    if (value->type == MICA_VALUE_ARRAY)
        return copy_items(chunks, key, value);
    if (mica__value_type_bytes(value->type) == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "value of \"%s\": unknown type %d", key,
                          (int)value->type);
    return MICA_OK;
}

/* An array of arrays whose items are being copied. */
typedef struct value_level {
    mica_value *items;
    uint64_t left;
} value_level;

mica_status mica__value_copy(struct mica__chunk **chunks, const char *key, const mica_value *value,
                             mica_value *out_value)
{
    value_level levels[MICA__VALUE_DEPTH];
    uint32_t depth = 0;
    mica_value *next = out_value;
    *out_value = *value;
    for (;;) {
        const mica_status status = copy_one(chunks, key, next);
        if (status != MICA_OK)
            return status;
        if (next->type == MICA_VALUE_ARRAY && depth == MICA__VALUE_DEPTH)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "value of \"%s\": arrays deeper than %d", key,
                              MICA__VALUE_DEPTH);
        if (next->type ==
            MICA_VALUE_ARRAY) { /* a level for every array, so that the depth is counted alike */
            mica_value *items = (mica_value *)(uintptr_t)next->as.items;
            levels[depth++] =
                (value_level){items, items != NULL && next->item_type == MICA_VALUE_ARRAY ? next->count : 0};
        }
        while (depth != 0 && levels[depth - 1].left == 0)
            depth--;
        if (depth == 0)
            return MICA_OK;
        next = levels[depth - 1].items++;
        levels[depth - 1].left--;
        if (next->type != MICA_VALUE_ARRAY)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "value of \"%s\": %s among the items of an array of arrays", key,
                              mica_value_type_name(next->type));
    }
}
