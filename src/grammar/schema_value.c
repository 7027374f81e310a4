/* schema_value.c: values that stand in a schema (enum, const), the types they have, and which schemas exclude each
 * other, so that oneOf is as good as anyOf. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/work.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"

#define MOST_PAIRS 65536u /* of enum values compared */
#define MOST_TYPES 7u
#define MOST_TRIES 8u /* properties that may tell all members apart */

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
    const mica__json_node *type = mica__schema_get(schema, node, "type");
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
    if (type->child_count > MOST_TYPES)
        return mica__schema_refuse(schema, node, MICA_ERR_INVALID_ARGUMENT, "type",
                                   "names one of seven twice");
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
    const mica__json_node *list = mica__schema_get(schema, node, "enum");
    const mica__json_node *one = mica__schema_get(schema, node, "const");
    return one != NULL ? one : list != NULL ? mica__json_first(list) : NULL;
}

static const mica__json_node *next_value(const mica__schema *schema, const mica__json_node *node,
                                         const mica__json_node *value)
{
    return mica__schema_get(schema, node, "const") == NULL ? mica__json_next(schema->json, value) : NULL;
}

/* What a node's own keywords leave of the types, enum and const included. */
static uint32_t types_of(const mica__schema *schema, const mica__json_node *node)
{
    uint32_t types = MICA__SCHEMA_ALL, values = 0;
    const mica__json_node *value = first_value(schema, node);
    (void)mica__schema_types(schema, node, &types);
    for (const mica__json_node *at = value; at != NULL; at = next_value(schema, node, at)) {
        (void)mica__spend(2); /* all are looked at: what is left out would seem apart */
        values |= mica__schema_value_type(at);
    }
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
            if (!values_differ(x, y) || ++pairs > MOST_PAIRS || mica__spend(2) != MICA_OK)
                return false;
    return true;
}

static bool is_required(const mica__schema *schema, const mica__json_node *node, const char *name,
                        size_t length)
{
    return mica__schema_lists(schema, mica__schema_get(schema, node, "required"), name, length);
}

/* The first of a node's properties; NULL also where "properties" is no object, which is refused when it is read. */
static const mica__json_node *first_property(const mica__schema *schema, const mica__json_node *node)
{
    const mica__json_node *properties = mica__schema_get(schema, node, "properties");
    return properties != NULL && properties->type == MICA__JSON_OBJECT ? mica__json_first(properties) : NULL;
}

/* A property that one has and whose values the other's exclude, or that one needs and the other forbids. */
static bool properties_apart(const mica__schema *schema, const mica__json_node *a, const mica__json_node *b,
                             int depth)
{
    const mica__json_node *theirs = mica__schema_get(schema, b, "properties");
    const mica__json_node *others = mica__schema_get(schema, b, "additionalProperties");
    for (const mica__json_node *mine = first_property(schema, a); mine != NULL && mica__spend(8) == MICA_OK;
         mine = mica__json_next(schema->json, mine)) {
        const mica__json_node *same = mica__schema_get(schema, theirs, mine->key);
        const bool mine_needed = is_required(schema, a, mine->key, mine->key_length);
        if (same == NULL && mine_needed && others != NULL && others->type == MICA__JSON_FALSE)
            return true;
        if (same != NULL && (mine_needed || is_required(schema, b, mine->key, mine->key_length)) &&
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
    const mica__json_node *reference = mica__schema_get(schema, a, "$ref");
    if (reference != NULL)
        (void)mica__schema_resolve(schema, reference, &as[1]);
    reference = mica__schema_get(schema, b, "$ref");
    if (reference != NULL)
        (void)mica__schema_resolve(schema, reference, &bs[1]);
    for (int i = 0; i < 4; i++)
        if (as[i / 2] != NULL && bs[i % 2] != NULL && nodes_apart(schema, as[i / 2], bs[i % 2], types, depth))
            return true;
    return false;
}

/* ---- all apart ------------------------------------------------------------------------------------------ */

/* Values of some members, none of them twice. */
typedef struct seen {
    const mica__schema *schema;
    const mica__json_node **values;
    uint32_t *owners;
    uint32_t count, capacity, owner_capacity;
    uint32_t *table; /* index + 1 */
    uint32_t slots;
} seen;

static uint64_t hash_plain(const mica__schema *schema, const mica__json_node *value)
{
    const uint32_t type = mica__schema_value_type(value);
    /* -0 is 0 */
    const double real = value->type == MICA__JSON_NUMBER ? value->number.real + 0.0 : value->type;
    return value->type == MICA__JSON_STRING
               ? mica__hash_bytes(value->string.data, value->string.length, schema->seed)
               : mica__hash_bytes(&real, sizeof real, schema->seed + type);
}

static uint64_t hash_seen(const void *context, uint32_t index)
{
    const seen *s = context;
    return hash_plain(s->schema, s->values[index]);
}

/* Remembers a value of a member; false if another member has it, or it is none that can be compared. */
static bool see(seen *s, const mica__json_node *value, uint32_t owner)
{
    if (value->type >= MICA__JSON_ARRAY || mica__spend(16) != MICA_OK ||
        !mica__table_grow(&s->table, &s->slots, s->count, hash_seen, s))
        return false;
    uint32_t slot = (uint32_t)hash_plain(s->schema, value) & (s->slots - 1);
    for (; s->table[slot] != 0; slot = (slot + 1) & (s->slots - 1))
        if (!values_differ(s->values[s->table[slot] - 1], value))
            return s->owners[s->table[slot] - 1] == owner;
    const mica__json_node **values = mica__grown(s->values, &s->capacity, s->count + 1, sizeof *values);
    if (values != NULL)
        s->values = values;
    uint32_t *owners = mica__grown(s->owners, &s->owner_capacity, s->count + 1, sizeof *owners);
    if (owners != NULL)
        s->owners = owners;
    if (values == NULL || owners == NULL)
        return false;
    values[s->count] = value;
    owners[s->count++] = owner;
    s->table[slot] = s->count;
    return true;
}

/* A member itself, or what its $ref names where it says nothing of `keyword` itself. */
static const mica__json_node *face(const mica__schema *schema, const mica__json_node *member,
                                   const char *keyword)
{
    const mica__json_node *reference = mica__schema_get(schema, member, "$ref"), *target = member;
    if (reference != NULL && mica__schema_get(schema, member, keyword) == NULL)
        (void)mica__schema_resolve(schema, reference, &target);
    return target;
}

/* Whether the members have values that are all different: their own, or with a name, those of a property of that name
 * which each of them needs. */
static bool differ_by(const mica__schema *schema, const mica__json_node *list, const char *name,
                      uint32_t types)
{
    seen s = {.schema = schema};
    bool apart = true;
    uint32_t owner = 0;
    for (const mica__json_node *member = mica__json_first(list); member != NULL && apart;
         member = mica__json_next(schema->json, member), owner++) {
        const mica__json_node *at = member;
        if (name != NULL) {
            const mica__json_node *whole = face(schema, member, "properties");
            at = mica__schema_get(schema, mica__schema_get(schema, whole, "properties"), name);
            if (at == NULL || (types & types_of(schema, whole)) != MICA__SCHEMA_OBJECT ||
                !is_required(schema, whole, name, strlen(name)))
                at = NULL;
        }
        if (at != NULL)
            at = face(schema, at, mica__schema_get(schema, at, "const") != NULL ? "const" : "enum");
        const mica__json_node *value = at != NULL ? first_value(schema, at) : NULL;
        apart = value != NULL;
        for (; value != NULL && apart; value = next_value(schema, at, value))
            apart = see(&s, value, owner);
    }
    mica__free(s.values);
    mica__free(s.owners);
    mica__free(s.table);
    return apart;
}

bool mica__schema_all_apart(const mica__schema *schema, const mica__json_node *list, uint32_t types)
{
    const mica__json_node *whole = face(schema, mica__json_first(list), "properties");
    uint32_t tries = 0;
    if (differ_by(schema, list, NULL, types))
        return true;
    for (const mica__json_node *property = first_property(schema, whole);
         property != NULL && tries < MOST_TRIES; property = mica__json_next(schema->json, property)) {
        if (first_value(schema, property) == NULL)
            continue;
        tries++;
        if (differ_by(schema, list, property->key, types))
            return true;
    }
    return false;
}
