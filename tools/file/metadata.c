/* metadata.c - what a file says of itself. Arrays nest at most eight deep: the library opens no others. */
#include "file/metadata.h"

#include <string.h>

#include "terminal/text.h"

#define SHOWN_ITEMS 8       /* of a list; a longer one is counted */
#define SHOWN_CHARACTERS 72 /* of a text */

static int is_signed(mica_value_type type)
{
    return type == MICA_VALUE_I8 || type == MICA_VALUE_I16 || type == MICA_VALUE_I32 ||
           type == MICA_VALUE_I64;
}

static int is_real(mica_value_type type)
{
    return type == MICA_VALUE_F32 || type == MICA_VALUE_F64;
}

mica_value tool_value_item(const mica_value *array, uint64_t index)
{
    mica_value item = {.type = array->item_type};
    const void *items = array->as.items;
    switch (array->item_type) {
    case MICA_VALUE_U8:
    case MICA_VALUE_BOOL: item.as.u = ((const uint8_t *)items)[index]; break;
    case MICA_VALUE_I8: item.as.i = (int64_t)((const int8_t *)items)[index]; break;
    case MICA_VALUE_U16: item.as.u = ((const uint16_t *)items)[index]; break;
    case MICA_VALUE_I16: item.as.i = ((const int16_t *)items)[index]; break;
    case MICA_VALUE_U32: item.as.u = ((const uint32_t *)items)[index]; break;
    case MICA_VALUE_I32: item.as.i = ((const int32_t *)items)[index]; break;
    case MICA_VALUE_U64: item.as.u = ((const uint64_t *)items)[index]; break;
    case MICA_VALUE_I64: item.as.i = ((const int64_t *)items)[index]; break;
    case MICA_VALUE_F32: item.as.f = ((const float *)items)[index]; break;
    case MICA_VALUE_F64: item.as.f = ((const double *)items)[index]; break;
    case MICA_VALUE_STRING: item.as.string = ((const mica_string *)items)[index]; break;
    default: item = ((const mica_value *)items)[index]; break;
    }
    return item;
}

int tool_value_uint(const mica_value *value, uint64_t *out_number)
{
    if (is_signed(value->type) && value->as.i >= 0)
        *out_number = (uint64_t)value->as.i;
    else if (is_signed(value->type) || is_real(value->type) || value->type == MICA_VALUE_STRING ||
             value->type == MICA_VALUE_ARRAY)
        return 0;
    else
        *out_number = value->as.u;
    return 1;
}

static void print_scalar(const mica_value *value)
{
    char text[TOOL_REAL_BYTES];
    if (value->type == MICA_VALUE_STRING)
        tool_text_print(stdout, value->as.string.data, (size_t)value->as.string.length, SHOWN_CHARACTERS);
    else if (value->type == MICA_VALUE_BOOL)
        fputs(value->as.u != 0 ? "true" : "false", stdout);
    else if (is_real(value->type))
        fputs(tool_real_text(value->as.f, value->type == MICA_VALUE_F32, text), stdout);
    else if (is_signed(value->type))
        printf("%lld", (long long)value->as.i);
    else
        printf("%llu", (unsigned long long)value->as.u);
}

void tool_value_print(const mica_value *value)
{
    static const char *const plural[] = {[MICA_VALUE_STRING] = "strings", [MICA_VALUE_ARRAY] = "lists"};
    if (value->type != MICA_VALUE_ARRAY) {
        print_scalar(value);
        return;
    }
    if (value->count > SHOWN_ITEMS || value->item_type == MICA_VALUE_ARRAY) {
        const char *word =
            value->item_type < sizeof plural / sizeof *plural ? plural[value->item_type] : NULL;
        printf("[%llu %s]", (unsigned long long)value->count,
               word != NULL ? word : mica_value_type_name(value->item_type));
        return;
    }
    putchar('[');
    for (uint64_t i = 0; i < value->count; i++) {
        mica_value item = tool_value_item(value, i);
        fputs(i > 0 ? ", " : "", stdout);
        print_scalar(&item);
    }
    putchar(']');
}

static void json_value(tool_json *json, const char *key, const mica_value *value)
{
    if (value->type == MICA_VALUE_ARRAY) {
        tool_json_open(json, key, '[');
        for (uint64_t i = 0; i < value->count; i++) {
            mica_value item = tool_value_item(value, i);
            json_value(json, NULL, &item);
        }
        tool_json_close(json, ']');
    } else if (value->type == MICA_VALUE_STRING)
        tool_json_bytes(json, key, value->as.string.data, (size_t)value->as.string.length);
    else if (value->type == MICA_VALUE_BOOL)
        tool_json_bool(json, key, value->as.u != 0);
    else if (is_real(value->type))
        tool_json_exact(json, key, value->as.f, value->type == MICA_VALUE_F32);
    else if (is_signed(value->type))
        tool_json_int(json, key, value->as.i);
    else
        tool_json_uint(json, key, value->as.u);
}

void tool_value_json(tool_json *json, const char *key, const mica_value *value)
{
    tool_json_open(json, key, '{');
    tool_json_text(json, "type", mica_value_type_name(value->type));
    if (value->type == MICA_VALUE_ARRAY)
        tool_json_text(json, "item_type", mica_value_type_name(value->item_type));
    json_value(json, "value", value);
    tool_json_close(json, '}');
}

int tool_value_equal(const mica_value *a, const mica_value *b)
{
    if (a->type != b->type)
        return 0;
    if (a->type == MICA_VALUE_STRING)
        return a->as.string.length == b->as.string.length &&
               memcmp(a->as.string.data, b->as.string.data, (size_t)a->as.string.length) == 0;
    if (a->type != MICA_VALUE_ARRAY)
        return a->as.u == b->as.u; /* numbers by their bits, so that a NaN equals itself */
    if (a->item_type != b->item_type || a->count != b->count)
        return 0;
    for (uint64_t i = 0; i < a->count; i++) {
        mica_value x = tool_value_item(a, i), y = tool_value_item(b, i);
        if (!tool_value_equal(&x, &y))
            return 0;
    }
    return 1;
}

const char *tool_shape_text(const mica_tensor_info *tensor, char out[TOOL_SHAPE_BYTES])
{
    size_t used = 0;
    snprintf(out, TOOL_SHAPE_BYTES, "scalar");
    for (uint32_t i = 0; i < tensor->ndim && i < MICA_MAX_DIMS; i++)
        used += (size_t)snprintf(out + used, TOOL_SHAPE_BYTES - used, "%s%llu", i > 0 ? " x " : "",
                                 (unsigned long long)tensor->shape[i]);
    return out;
}

const char *tool_type_text(const mica_tensor_info *tensor, char out[TOOL_TYPE_BYTES])
{
    if (tensor->dtype == MICA_DTYPE_NONE)
        snprintf(out, TOOL_TYPE_BYTES, "%s", tensor->type_name != NULL ? tensor->type_name : "?");
    else if (tensor->group_size != 0)
        snprintf(out, TOOL_TYPE_BYTES, "%s/%u", mica_dtype_name(tensor->dtype), tensor->group_size);
    else
        snprintf(out, TOOL_TYPE_BYTES, "%s", mica_dtype_name(tensor->dtype));
    return out;
}

uint64_t tool_tensor_values(const mica_tensor_info *tensor)
{
    uint64_t values = 1;
    for (uint32_t i = 0; i < tensor->ndim && i < MICA_MAX_DIMS; i++) {
        if (tensor->shape[i] != 0 && values > UINT64_MAX / tensor->shape[i])
            return UINT64_MAX;
        values *= tensor->shape[i];
    }
    return values;
}
