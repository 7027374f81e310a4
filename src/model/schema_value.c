/* schema_value.c: values that stand in a schema (enum, const), the types they have, and which schemas exclude each
 * other, so that oneOf is as good as anyOf. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "model/schema.h"

#define MOST_PAIRS 65536u /* of enum values compared */

static const struct {
    const char *name;
    uint32_t types;
} type_names[] = {{"null", MICA__SCHEMA_NULL},       {"boolean", MICA__SCHEMA_BOOLEAN},
                  {"integer", MICA__SCHEMA_INTEGER}, {"number", MICA__SCHEMA_INTEGER | MICA__SCHEMA_NUMBER},
                  {"string", MICA__SCHEMA_STRING},   {"array", MICA__SCHEMA_ARRAY},
                  {"object", MICA__SCHEMA_OBJECT}};

static uint32_t named_type(const mica__json_node *name)
{
    for (size_t i = 0; name->type == MICA__JSON_STRING && i < sizeof type_names / sizeof *type_names; i++)
        if (strcmp(type_names[i].name, name->string.data) == 0)
            return type_names[i].types;
    return 0;
}

mica_status mica__schema_types(const mica__schema *schema, const mica__json_node *node, uint32_t *out_types)
{
    const mica__json_node *type = mica__json_get(schema->json, node, "type");
    uint32_t types = 0;
    *out_types = MICA__SCHEMA_ALL;
    if (type == NULL)
        return MICA_OK;
    if (type->type != MICA__JSON_ARRAY) {
        types = named_type(type);
        if (types == 0)
            return mica__schema_refuse(schema, node, MICA_ERR_INVALID_ARGUMENT, "type",
                                       "is none of the seven types");
    }
    for (const mica__json_node *name = mica__json_first(type); name != NULL;
         name = mica__json_next(schema->json, name)) {
        if (named_type(name) == 0)
            return mica__schema_refuse(schema, node, MICA_ERR_INVALID_ARGUMENT, "type",
                                       "is none of the seven types");
        types |= named_type(name);
    }
    *out_types = types;
    return MICA_OK;
}

uint32_t mica__schema_value_type(const mica__json_node *value)
{
    static const uint32_t types[] = {MICA__SCHEMA_NULL,   MICA__SCHEMA_BOOLEAN, MICA__SCHEMA_BOOLEAN,
                                     MICA__SCHEMA_NUMBER, MICA__SCHEMA_STRING,  MICA__SCHEMA_ARRAY,
                                     MICA__SCHEMA_OBJECT};
    if (value->type == MICA__JSON_NUMBER &&
        (value->exact != MICA__JSON_EXACT_NONE || floor(value->number.real) == value->number.real))
        return MICA__SCHEMA_INTEGER;
    return types[value->type];
}

/* ---- compact text --------------------------------------------------------------------------------------- */

/* Recurses as deep as the reader lets values nest. */
static void write_value(mica__json_writer *writer, const mica__schema *schema, const mica__json_node *value,
                        bool keyed)
{
    if (keyed && value->key != NULL)
        mica__json_key_n(writer, value->key, value->key_length);
    switch ((mica__json_type)value->type) {
    case MICA__JSON_NULL: mica__json_null(writer); return;
    case MICA__JSON_FALSE:
    case MICA__JSON_TRUE: mica__json_bool(writer, value->type == MICA__JSON_TRUE); return;
    case MICA__JSON_STRING: mica__json_string_n(writer, value->string.data, value->string.length); return;
    case MICA__JSON_NUMBER:
        if (value->exact == MICA__JSON_EXACT_UINT)
            mica__json_uint(writer, value->number.uint_value);
        else if (value->exact == MICA__JSON_EXACT_NEGATIVE)
            mica__json_int(writer, value->number.int_value);
        else
            mica__json_double(writer, value->number.real);
        return;
    case MICA__JSON_ARRAY: mica__json_begin_array(writer); break;
    case MICA__JSON_OBJECT: mica__json_begin_object(writer); break;
    }
    for (const mica__json_node *child = mica__json_first(value); child != NULL;
         child = mica__json_next(schema->json, child))
        write_value(writer, schema, child, true);
    if (value->type == MICA__JSON_ARRAY)
        mica__json_end_array(writer);
    else
        mica__json_end_object(writer);
}

mica_status mica__schema_compact(const mica__schema *schema, const mica__json_node *value, char **out_text,
                                 size_t *out_length)
{
    mica__json_writer writer;
    *out_text = NULL;
    mica__json_writer_init(&writer);
    write_value(&writer, schema, value, false);
    return mica__json_writer_finish(&writer, out_text, out_length);
}

/* ---- apart ---------------------------------------------------------------------------------------------- */

static const mica__json_node *first_value(const mica__schema *schema, const mica__json_node *node)
{
    const mica__json_node *list = mica__json_get(schema->json, node, "enum");
    const mica__json_node *one = mica__json_get(schema->json, node, "const");
    return one != NULL ? one : list != NULL ? mica__json_first(list) : NULL;
}

static const mica__json_node *next_value(const mica__schema *schema, const mica__json_node *node,
                                         const mica__json_node *value)
{
    return mica__json_get(schema->json, node, "const") == NULL ? mica__json_next(schema->json, value) : NULL;
}

/* What a node's own keywords leave of the types, enum and const included. */
static uint32_t types_of(const mica__schema *schema, const mica__json_node *node)
{
    uint32_t types = MICA__SCHEMA_ALL, values = 0;
    const mica__json_node *value = first_value(schema, node);
    (void)mica__schema_types(schema, node, &types);
    for (const mica__json_node *at = value; at != NULL; at = next_value(schema, node, at))
        values |= mica__schema_value_type(at);
    return value != NULL ? types & values : types;
}

/* Whether two values surely differ. Only plain ones are looked at. */
static bool values_differ(const mica__json_node *a, const mica__json_node *b)
{
    if (mica__schema_value_type(a) != mica__schema_value_type(b))
        return true;
    if (a->type == MICA__JSON_STRING)
        return a->string.length != b->string.length ||
               memcmp(a->string.data, b->string.data, a->string.length) != 0;
    if (a->type == MICA__JSON_NUMBER)
        return a->number.real != b->number.real;
    return a->type < MICA__JSON_NUMBER && a->type != b->type;
}

static bool value_lists_apart(const mica__schema *schema, const mica__json_node *a, const mica__json_node *b)
{
    uint32_t pairs = 0;
    if (first_value(schema, a) == NULL || first_value(schema, b) == NULL)
        return false;
    for (const mica__json_node *x = first_value(schema, a); x != NULL; x = next_value(schema, a, x))
        for (const mica__json_node *y = first_value(schema, b); y != NULL; y = next_value(schema, b, y))
            if (!values_differ(x, y) || ++pairs > MOST_PAIRS)
                return false;
    return true;
}

static bool is_required(const mica__schema *schema, const mica__json_node *node, const char *name)
{
    const mica__json_node *list = mica__json_get(schema->json, node, "required");
    for (list = list != NULL ? mica__json_first(list) : NULL; list != NULL;
         list = mica__json_next(schema->json, list))
        if (list->type == MICA__JSON_STRING && strcmp(list->string.data, name) == 0)
            return true;
    return false;
}

/* A property that one has and whose values the other's exclude, or that one needs and the other forbids. */
static bool properties_apart(const mica__schema *schema, const mica__json_node *a, const mica__json_node *b,
                             int depth)
{
    const mica__json_node *mine = mica__json_get(schema->json, a, "properties");
    const mica__json_node *theirs = mica__json_get(schema->json, b, "properties");
    const mica__json_node *others = mica__json_get(schema->json, b, "additionalProperties");
    for (mine = mine != NULL ? mica__json_first(mine) : NULL; mine != NULL;
         mine = mica__json_next(schema->json, mine)) {
        const mica__json_node *same = mica__json_get(schema->json, theirs, mine->key);
        const bool mine_needed = is_required(schema, a, mine->key);
        if (same == NULL && mine_needed && others != NULL && others->type == MICA__JSON_FALSE)
            return true;
        if (same != NULL && (mine_needed || is_required(schema, b, mine->key)) &&
            mica__schema_apart(schema, mine, same, MICA__SCHEMA_ALL, depth - 1))
            return true;
    }
    return false;
}

/* By the keywords of the two nodes alone. What more they say only leaves fewer values. */
static bool nodes_apart(const mica__schema *schema, const mica__json_node *a, const mica__json_node *b,
                        uint32_t types, int depth)
{
    if (a->type == MICA__JSON_FALSE || b->type == MICA__JSON_FALSE)
        return true;
    if (a->type != MICA__JSON_OBJECT || b->type != MICA__JSON_OBJECT)
        return false;
    types &= types_of(schema, a) & types_of(schema, b);
    if (types == 0 || value_lists_apart(schema, a, b))
        return true;
    return types == MICA__SCHEMA_OBJECT && depth > 0 &&
           (properties_apart(schema, a, b, depth) || properties_apart(schema, b, a, depth));
}

bool mica__schema_apart(const mica__schema *schema, const mica__json_node *a, const mica__json_node *b,
                        uint32_t types, int depth)
{
    const mica__json_node *as[2] = {a, NULL}, *bs[2] = {b, NULL};
    const mica__json_node *reference = mica__json_get(schema->json, a, "$ref");
    if (reference != NULL)
        (void)mica__schema_resolve(schema, reference, &as[1]);
    reference = mica__json_get(schema->json, b, "$ref");
    if (reference != NULL)
        (void)mica__schema_resolve(schema, reference, &bs[1]);
    for (int i = 0; i < 4; i++)
        if (as[i / 2] != NULL && bs[i % 2] != NULL && nodes_apart(schema, as[i / 2], bs[i % 2], types, depth))
            return true;
    return false;
}
