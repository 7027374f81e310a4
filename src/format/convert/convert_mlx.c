/* convert_mlx.c - targets for MLX folders with affine words, and what config.json says of them. */
#include <string.h>

#include "base/alloc.h"
#include "format/convert/convert.h"
#include "quant/dtype.h"

#define MOST_DEPTH 64 /* of config.json, by the reader's limit */

/* ---- config.json ---------------------------------------------------------------------------------------- */

static void put_leaf(mica__json_writer *out, const mica__json_node *node)
{
    switch ((mica__json_type)node->type) {
    case MICA__JSON_NULL: mica__json_null(out); break;
    case MICA__JSON_FALSE:
    case MICA__JSON_TRUE: mica__json_bool(out, node->type == MICA__JSON_TRUE); break;
    case MICA__JSON_STRING: mica__json_string_n(out, node->string.data, node->string.length); break;
    case MICA__JSON_NUMBER:
        if (node->exact == MICA__JSON_EXACT_UINT)
            mica__json_uint(out, node->number.uint_value);
        else if (node->exact == MICA__JSON_EXACT_NEGATIVE)
            mica__json_int(out, node->number.int_value);
        else
            mica__json_double(out, node->number.real);
        break;
    case MICA__JSON_ARRAY: mica__json_begin_array(out); break;
    case MICA__JSON_OBJECT: mica__json_begin_object(out); break;
    }
}

/* A node and all in it. Nodes lie in the order of the text, so this is one walk. */
static void put_tree(mica__json_writer *out, const mica__json_node *node)
{
    struct {
        uint32_t left;
        bool object;
    } levels[MOST_DEPTH + 1] = {{0, false}};
    uint32_t depth = 0;
    for (bool first = true; first || depth != 0; first = false, node++) {
        if (!first && levels[depth - 1].object)
            mica__json_key_n(out, node->key, node->key_length);
        put_leaf(out, node);
        if (!first)
            levels[depth - 1].left--;
        if (node->type >= MICA__JSON_ARRAY && depth <= MOST_DEPTH) {
            levels[depth].left = node->child_count;
            levels[depth++].object = node->type == MICA__JSON_OBJECT;
        }
        while (depth != 0 && levels[depth - 1].left == 0) {
            if (levels[--depth].object)
                mica__json_end_object(out);
            else
                mica__json_end_array(out);
        }
    }
}

static void put_quantization(mica__json_writer *out, uint32_t bits, uint32_t group)
{
    mica__json_key(out, "quantization");
    mica__json_begin_object(out);
    mica__json_key(out, "group_size");
    mica__json_uint(out, group);
    mica__json_key(out, "bits");
    mica__json_uint(out, bits);
    mica__json_key(out, "mode");
    mica__json_string(out, "affine");
    mica__json_end_object(out);
}

mica_status mica__convert_set_bits(mica__target *target, uint32_t bits, uint32_t group,
                                   const char **inout_config)
{
    const char *text = *inout_config != NULL ? *inout_config : "{}";
    mica__json *json = NULL;
    mica__json_writer out;
    char *made = NULL;
    size_t length = 0;
    mica_status status = mica__json_parse(text, strlen(text), NULL, &json);
    if (status != MICA_OK)
        return mica__fail(status, "config.json: %s", mica_status_message());
    mica__json_writer_init(&out);
    mica__json_begin_object(&out);
    const mica__json_node *node = mica__json_first(mica__json_root(json));
    for (; node != NULL && node->key != NULL; node = mica__json_next(json, node))
        if (strcmp(node->key, "quantization") != 0 && strcmp(node->key, "quantization_config") != 0) {
            mica__json_key_n(&out, node->key, node->key_length);
            put_tree(&out, node);
        }
    if (bits != 0)
        put_quantization(&out, bits, group);
    mica__json_end_object(&out);
    status = mica__json_writer_finish(&out, &made, &length);
    mica__json_release(json);
    if (status != MICA_OK)
        return status;
    *inout_config = mica__target_text(target, "%s\n", made);
    mica__free(made);
    return *inout_config == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

/* Layers that are matrices, but neither norms nor routers, whose rows groups divide. */
static bool is_wanted(const mica__target *target, const mica__target_tensor *tensor, uint32_t group)
{
    const size_t length = strlen(tensor->name);
    return tensor->ndim >= 2 && tensor->rows > 1 && tensor->row % group == 0 && length > 7 &&
           strcmp(tensor->name + length - 7, ".weight") == 0 && strstr(tensor->name, "norm") == NULL &&
           strstr(tensor->name, ".gate.weight") == NULL && tensor->constant == NULL &&
           mica__convert_has_values(target, tensor->source[0]);
}

/* One of the three tensors that a matrix becomes: its ending and type, and how long its rows are. */
static mica_status add_part(mica__target *target, const mica__target_tensor *tensor, mica__target_part part,
                            mica_dtype dtype, uint64_t row)
{
    static const char *const endings[] = {"", "weight", "scales", "biases"};
    mica__target_tensor made = *tensor;
    made.part = (uint8_t)part;
    made.dtype = dtype;
    made.shape[made.ndim - 1] = row;
    made.name =
        mica__target_text(target, "%.*s%s", (int)(strlen(tensor->name) - 6), tensor->name, endings[part]);
    return made.name == NULL ? MICA_ERR_OUT_OF_MEMORY : mica__target_add(target, &made);
}

static mica_status split(mica__target *target, mica__target_tensor *tensor, mica_dtype type, uint32_t group)
{
    const uint64_t groups = tensor->row / group;
    const uint64_t words =
        tensor->row / mica__dtype_elements((uint32_t)type) * mica__dtype_bytes((uint32_t)type) / 4;
    tensor->coding = type;
    tensor->group = group;
    tensor->scales = mica__convert_plain_type(target, tensor->source[0]);
    mica_status status = add_part(target, tensor, MICA__TARGET_WORDS, MICA_DTYPE_U32, words);
    if (status == MICA_OK)
        status = add_part(target, tensor, MICA__TARGET_SCALES, tensor->scales, groups);
    return status == MICA_OK ? add_part(target, tensor, MICA__TARGET_BIASES, tensor->scales, groups) : status;
}

mica_status mica__convert_to_mlx(mica__target *target, mica_dtype type, uint32_t group,
                                 const char **inout_config)
{
    const uint32_t bits = mica__dtype_bytes((uint32_t)type) * 8 / mica__dtype_elements((uint32_t)type);
    mica__target_tensor *list = target->tensor;
    const uint32_t count = target->tensor_count;
    mica_status status = MICA_OK;
    target->tensor = NULL;
    target->tensor_count = target->tensor_capacity = 0;
    for (uint32_t i = 0; i < count && status == MICA_OK; i++)
        status = is_wanted(target, &list[i], group) ? split(target, &list[i], type, group)
                                                    : mica__target_add(target, &list[i]);
    mica__free(list);
    return status == MICA_OK ? mica__convert_set_bits(target, bits, group, inout_config) : status;
}
