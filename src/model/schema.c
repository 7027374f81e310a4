/* schema.c: the way from a JSON schema to a grammar: one rule for each view, until no view is left. */
#include "model/schema.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "mica/sample.h"

#define MOST_BYTES (16u << 20)
#define MOST_NODES (1u << 20)
#define APART_DEPTH 3

static const mica__json_node *node_of(const mica__schema *schema, mica__schema_view view, uint32_t index)
{
    return schema->json->nodes + schema->items[view.first + index].node;
}

/* ---- choices -------------------------------------------------------------------------------------------- */

/* Types that the items' "type" leave. */
static mica_status stated_types(const mica__schema *schema, mica__schema_view view, uint32_t *out_types)
{
    *out_types = MICA__SCHEMA_ALL;
    for (uint32_t i = 0; i < view.count; i++) {
        uint32_t types;
        const mica_status status = mica__schema_types(schema, node_of(schema, view, i), &types);
        if (status != MICA_OK)
            return status;
        *out_types &= types;
    }
    return MICA_OK;
}

/* oneOf is anyOf where its members exclude each other; where they are not known to, it cannot be kept. */
static mica_status check_apart(const mica__schema *schema, mica__schema_view view,
                               const mica__json_node *list)
{
    uint32_t types;
    const mica_status status = stated_types(schema, view, &types);
    if (status != MICA_OK)
        return status;
    for (const mica__json_node *a = mica__json_first(list); a != NULL; a = mica__json_next(schema->json, a))
        for (const mica__json_node *b = mica__json_next(schema->json, a); b != NULL;
             b = mica__json_next(schema->json, b))
            if (!mica__schema_apart(schema, a, b, types, APART_DEPTH))
                return mica__schema_refuse(schema, b, MICA_ERR_UNSUPPORTED, "oneOf",
                                           "is not supported where two members may hold at once; anyOf is");
    return MICA_OK;
}

/* The view with one member of a choice taken in. */
static mica_status choose(mica__schema *schema, mica__schema_view view, uint32_t index, uint32_t done,
                          const mica__json_node *member, uint32_t *out_view)
{
    mica__schema_list list = {0};
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < view.count && status == MICA_OK; i++) {
        const mica__schema_item item = schema->items[view.first + i];
        status = mica__schema_add_item(&list, item.node, i == index ? item.done | done : item.done);
    }
    if (status == MICA_OK)
        status = mica__schema_add(schema, &list, member);
    if (status == MICA_OK)
        status = mica__schema_view_of(schema, &list, out_view);
    mica__free(list.items);
    return status;
}

/* Writes the alternatives of the first anyOf or oneOf that is left to choose from; *out_found: whether there was one. */
static mica_status put_choice(mica__schema *schema, mica__schema_view view, bool *out_found)
{
    static const struct {
        const char *keyword;
        uint32_t done;
    } kinds[] = {{"anyOf", MICA__SCHEMA_ANY_DONE}, {"oneOf", MICA__SCHEMA_ONE_DONE}};
    *out_found = true;
    for (uint32_t i = 0; i < view.count; i++) {
        for (size_t k = 0; k < 2; k++) {
            const mica__json_node *list = mica__schema_member(schema, view, i, kinds[k].keyword);
            mica_status status = MICA_OK;
            if (list == NULL || (schema->items[view.first + i].done & kinds[k].done) != 0)
                continue;
            if (list->type != MICA__JSON_ARRAY || list->child_count == 0)
                return mica__schema_refuse(schema, list, MICA_ERR_INVALID_ARGUMENT, kinds[k].keyword,
                                           "is no array of schemas");
            if (kinds[k].done == MICA__SCHEMA_ONE_DONE)
                status = check_apart(schema, view, list);
            for (const mica__json_node *member = mica__json_first(list); member != NULL && status == MICA_OK;
                 member = mica__json_next(schema->json, member)) {
                uint32_t chosen = 0;
                status = choose(schema, view, i, kinds[k].done, member, &chosen);
                mica__schema_put(&schema->text, "%sv%u", member == mica__json_first(list) ? "" : " | ",
                                 chosen);
            }
            mica__schema_put(&schema->text, "\n");
            return status;
        }
    }
    *out_found = false;
    return MICA_OK;
}

/* ---- values --------------------------------------------------------------------------------------------- */

/* Whether an item's enum and const have this value too, as compact text; an item with neither has all. */
static mica_status item_has(const mica__schema *schema, const mica__json_node *item, const char *text,
                            size_t length, bool *out_has)
{
    const mica__json_node *one = mica__json_get(schema->json, item, "const");
    const mica__json_node *list = mica__json_get(schema->json, item, "enum");
    *out_has = true;
    for (int k = 0; k < 2 && *out_has; k++) {
        const mica__json_node *value = k == 0 ? one : list != NULL ? mica__json_first(list) : NULL;
        if ((k == 0 ? one : list) == NULL)
            continue;
        *out_has = false;
        for (; value != NULL && !*out_has; value = k == 0 ? NULL : mica__json_next(schema->json, value)) {
            char *other;
            size_t other_length;
            const mica_status status = mica__schema_compact(schema, value, &other, &other_length);
            if (status != MICA_OK)
                return status;
            *out_has = other_length == length && memcmp(other, text, length) == 0;
            mica__free(other);
        }
    }
    return MICA_OK;
}

/* Writes a value that an enum or const gives, if nothing else in the view forbids it. */
static mica_status put_value(mica__schema *schema, mica__schema_view view, const mica__json_node *value,
                             uint32_t types)
{
    const uint32_t type = mica__schema_value_type(value);
    char *text;
    size_t length;
    bool held = true;
    mica_status status;
    if ((types & type) == 0)
        return MICA_OK;
    status = mica__schema_compact(schema, value, &text, &length);
    for (uint32_t i = 0; i < view.count && status == MICA_OK && held; i++) {
        const mica__json_node *item = node_of(schema, view, i);
        for (const mica__json_node *key = mica__json_first(item); key != NULL && status == MICA_OK;
             key = mica__json_next(schema->json, key))
            if ((mica__schema_keyword_types(key->key) & type) != 0)
                status = mica__schema_refuse(schema, item, MICA_ERR_UNSUPPORTED, key->key,
                                             "is not supported beside enum or const");
        if (status == MICA_OK)
            status = item_has(schema, item, text, length, &held);
    }
    if (status == MICA_OK && held) {
        mica__schema_put(&schema->text, " | ");
        mica__schema_put_literal(&schema->text, text, length);
    }
    mica__free(text);
    return status;
}

/* Writes the values of the first enum or const of the view; *out_found: whether there was one. */
static mica_status put_values(mica__schema *schema, mica__schema_view view, uint32_t types, bool *out_found)
{
    *out_found = true;
    for (uint32_t i = 0; i < view.count; i++) {
        const mica__json_node *one = mica__schema_member(schema, view, i, "const");
        const mica__json_node *list = mica__schema_member(schema, view, i, "enum");
        mica_status status = MICA_OK;
        if (one == NULL && list == NULL)
            continue;
        if (list != NULL && list->type != MICA__JSON_ARRAY)
            return mica__schema_refuse(schema, list, MICA_ERR_INVALID_ARGUMENT, "enum", "is no array");
        mica__schema_put(&schema->text, "[]");
        if (one != NULL)
            status = put_value(schema, view, one, types);
        for (const mica__json_node *value = one == NULL ? mica__json_first(list) : NULL;
             value != NULL && status == MICA_OK; value = mica__json_next(schema->json, value))
            status = put_value(schema, view, value, types);
        mica__schema_put(&schema->text, "\n");
        return status;
    }
    *out_found = false;
    return MICA_OK;
}

/* ---- types ---------------------------------------------------------------------------------------------- */

/* The types a view means: what "type" leaves, and where nothing states one, those its keywords speak of. */
static mica_status find_types(const mica__schema *schema, mica__schema_view view, uint32_t *out_types)
{
    uint32_t spoken = 0;
    bool stated = false;
    const mica_status status = stated_types(schema, view, out_types);
    for (uint32_t i = 0; i < view.count; i++) {
        const mica__json_node *item = node_of(schema, view, i);
        stated |= mica__json_get(schema->json, item, "type") != NULL;
        for (const mica__json_node *key = mica__json_first(item); key != NULL;
             key = mica__json_next(schema->json, key))
            spoken |= mica__schema_keyword_types(key->key);
    }
    if (!stated && spoken != 0)
        *out_types = spoken;
    return status;
}

/* The rule of a view of given types, and the rules below it. */
static mica_status put_types(mica__schema *schema, mica__schema_view view, uint32_t number, uint32_t types)
{
    mica__schema_text *text = &schema->text;
    mica_status status = MICA_OK;
    mica__schema_put(text, "[]");
    if ((types & MICA__SCHEMA_NULL) != 0)
        mica__schema_put(text, " | \"null\"");
    if ((types & MICA__SCHEMA_BOOLEAN) != 0)
        mica__schema_put(text, " | \"true\" | \"false\"");
    if ((types & MICA__SCHEMA_OBJECT) != 0)
        mica__schema_put(text, " | v%u-object", number);
    if ((types & MICA__SCHEMA_ARRAY) != 0)
        mica__schema_put(text, " | v%u-array", number);
    if ((types & (MICA__SCHEMA_INTEGER | MICA__SCHEMA_NUMBER)) != 0) {
        mica__schema_put(text, " | ");
        status = mica__schema_put_number(schema, view, (types & MICA__SCHEMA_NUMBER) == 0);
    }
    if (status == MICA_OK && (types & MICA__SCHEMA_STRING) != 0) {
        mica__schema_put(text, " | ");
        status = mica__schema_put_string(schema, view);
    }
    mica__schema_put(text, "\n");
    if (status == MICA_OK && (types & MICA__SCHEMA_OBJECT) != 0)
        status = mica__schema_put_object(schema, view, number);
    if (status == MICA_OK && (types & MICA__SCHEMA_ARRAY) != 0)
        status = mica__schema_put_array(schema, view, number);
    return status;
}

static mica_status put_view(mica__schema *schema, uint32_t number)
{
    const mica__schema_view view = schema->views[number];
    uint32_t types;
    bool found = false;
    mica_status status = MICA_OK;
    mica__schema_put(&schema->text, "v%u ::= ", number);
    if (view.count == 0) {
        mica__schema_put(&schema->text, "value\n");
        return MICA_OK;
    }
    for (uint32_t i = 0; i < view.count && status == MICA_OK; i++) {
        if (node_of(schema, view, i)->type == MICA__JSON_FALSE) {
            mica__schema_put(&schema->text, "[]\n");
            return MICA_OK;
        }
        status = mica__schema_check_keywords(schema, node_of(schema, view, i));
    }
    if (status == MICA_OK)
        status = put_choice(schema, view, &found);
    if (status != MICA_OK || found)
        return status;
    status = stated_types(schema, view, &types);
    if (status == MICA_OK)
        status = put_values(schema, view, types, &found);
    if (status != MICA_OK || found)
        return status;
    status = find_types(schema, view, &types);
    if (status != MICA_OK)
        return status;
    return put_types(schema, view, number, types);
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

static mica_status translate(mica__schema *schema)
{
    mica__schema_list list = {0};
    uint32_t root;
    mica_status status = mica__schema_add(schema, &list, mica__json_root(schema->json));
    if (status == MICA_OK)
        status = mica__schema_view_of(schema, &list, &root);
    mica__free(list.items);
    mica__schema_put(&schema->text, "root ::= v0\n");
    for (uint32_t i = 0; status == MICA_OK && i < schema->view_count; i++) {
        status = put_view(schema, i);
        if (status == MICA_OK)
            status = schema->text.error;
    }
    mica__schema_put(&schema->text, "%s", mica__schema_basics);
    return status != MICA_OK ? status : schema->text.error;
}

/* The grammar's own refusals, told of the schema. */
static mica_status make_grammar(const mica__schema_text *text, mica_grammar **out_grammar)
{
    const mica_status status = mica_grammar_create(text->data, text->length, NULL, out_grammar);
    if (status == MICA_ERR_UNSUPPORTED)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "schema: a $ref leads back to itself through anyOf or oneOf with nothing between");
    if (status == MICA_ERR_INVALID_ARGUMENT)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "schema: no value satisfies it (%s)",
                          mica_status_message());
    return status;
}

mica_status mica_grammar_from_schema(const char *text, uint64_t length, mica_grammar **out_grammar)
{
    const mica__json_limits limits = {.max_bytes = MOST_BYTES, .max_nodes = MOST_NODES};
    mica__schema schema = {.seed = mica__hash_seed()};
    mica__json *json = NULL;
    mica_status status;
    if (out_grammar == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "mica_grammar_from_schema: out_grammar is NULL");
    *out_grammar = NULL;
    if (text == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "mica_grammar_from_schema: schema is NULL");
    status = mica__json_parse(text, (size_t)length, &limits, &json);
    if (status == MICA_ERR_MALFORMED_FILE)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "schema: %s", mica_status_message());
    if (status != MICA_OK)
        return status;
    schema.json = json;
    status = translate(&schema);
    if (status == MICA_OK)
        status = make_grammar(&schema.text, out_grammar);
    mica__free(schema.text.data);
    mica__free(schema.items);
    mica__free(schema.views);
    mica__free(schema.view_table);
    mica__json_release(json);
    return status;
}
