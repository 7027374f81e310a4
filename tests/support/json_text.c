/* json_text.c - from nodes to text. */
#include "support/json_text.h"

static void write_leaf(mica__json_writer *writer, const mica__json_node *node)
{
    switch ((mica__json_type)node->type) {
    case MICA__JSON_FALSE:
    case MICA__JSON_TRUE: mica__json_bool(writer, node->type == MICA__JSON_TRUE); break;
    case MICA__JSON_STRING: mica__json_string_n(writer, node->string.data, node->string.length); break;
    case MICA__JSON_NUMBER:
        if (node->exact == MICA__JSON_EXACT_UINT)
            mica__json_uint(writer, node->number.uint_value);
        else if (node->exact == MICA__JSON_EXACT_NEGATIVE)
            mica__json_int(writer, node->number.int_value);
        else
            mica__json_double(writer, node->number.real);
        break;
    default: mica__json_null(writer); break;
    }
}

/* Depth is limited by the reader, so recursion is fine here. */
static void write_node(mica__json_writer *writer, const mica__json *json, const mica__json_node *node)
{
    const int object = node->type == MICA__JSON_OBJECT;
    if (node->key != NULL)
        mica__json_key_n(writer, node->key, node->key_length);
    if (node->type < MICA__JSON_ARRAY) {
        write_leaf(writer, node);
        return;
    }
    object ? mica__json_begin_object(writer) : mica__json_begin_array(writer);
    for (const mica__json_node *child = mica__json_first(node); child != NULL;
         child = mica__json_next(json, child))
        write_node(writer, json, child);
    object ? mica__json_end_object(writer) : mica__json_end_array(writer);
}

mica_status test_json_text(const mica__json *json, char **out_text, size_t *out_length)
{
    mica__json_writer writer;
    mica__json_writer_init(&writer);
    write_node(&writer, json, mica__json_root(json));
    return mica__json_writer_finish(&writer, out_text, out_length);
}
