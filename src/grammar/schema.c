/* schema.c: the way from a JSON schema to a grammar: one rule for each view, until no view is left. */
#include "grammar/schema.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/work.h"
#include "grammar/grammar.h"

#define MOST_BYTES (16u << 20)
#define MOST_NODES (1u << 20)

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
        MICA__TRY(mica__schema_types(schema, node_of(schema, view, i), &types));
        *out_types &= types;
    }
    return MICA_OK;
}

/* oneOf is anyOf where its members exclude each other; where they are not known to, it cannot be kept. */
static mica_status check_apart(const mica__schema *schema, mica__schema_view view,
                               const mica__json_node *list)
{
    uint32_t types;
    MICA__TRY(stated_types(schema, view, &types));
    if (mica__schema_all_apart(schema, list, types))
        return MICA_OK;
    for (const mica__json_node *a = mica__json_first(list); a != NULL; a = mica__json_next(schema->json, a)) {
        for (const mica__json_node *b = mica__json_next(schema->json, a); b != NULL;
             b = mica__json_next(schema->json, b)) {
            const bool apart = mica__schema_apart(schema, a, b, types, MICA__SCHEMA_APART_DEPTH);
            MICA__TRY(mica__spend(8));
            if (!apart)
                return mica__schema_refuse(schema, b, MICA_ERR_UNSUPPORTED, "oneOf",
                                           "is not supported where two members may hold at once; anyOf is");
        }
    }
    return MICA_OK;
}

/* The view with one member of a choice taken in. */
static mica_status choose(mica__schema *schema, mica__schema_view view, uint32_t index, uint32_t done,
                          const mica__json_node *member, uint32_t *out_view)
{
    mica__schema_list list = mica__schema_list_new(schema);
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < view.count && status == MICA_OK; i++) {
        const mica__schema_item item = schema->items[view.first + i];
        status = mica__schema_add_item(schema, &list, item.node, i == index ? item.done | done : item.done);
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

/* ---- types ---------------------------------------------------------------------------------------------- */

/* The types a view means: what "type" leaves, and where nothing states one, those its keywords speak of. */
static mica_status find_types(const mica__schema *schema, mica__schema_view view, uint32_t *out_types)
{
    uint32_t spoken = 0;
    bool stated = false;
    const mica_status status = stated_types(schema, view, out_types);
    for (uint32_t i = 0; i < view.count; i++) {
        const mica__json_node *item = node_of(schema, view, i);
        stated |= mica__schema_get(schema, item, "type") != NULL;
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
    mica_status status = mica__spend(32 + (uint64_t)view.count * 16);
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
        status = mica__schema_put_values(schema, view, number, types, &found);
    if (status != MICA_OK || found)
        return status;
    MICA__TRY(find_types(schema, view, &types));
    return put_types(schema, view, number, types);
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

static mica_status translate(mica__schema *schema)
{
    mica__schema_list list = mica__schema_list_new(schema);
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
    mica__schema_put_unlike(schema);
    mica__schema_put(&schema->text, "%s", mica__schema_basics);
    return status != MICA_OK ? status : schema->text.error;
}

/* The grammar's own refusals, told of the schema. */
static mica_status make_grammar(const mica__schema_text *text, mica_grammar **out_grammar)
{
    const mica_status status = mica__grammar_make(text->data, text->length, NULL, out_grammar);
    if (status == MICA_ERR_UNSUPPORTED)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "a $ref leads back to itself through anyOf or oneOf with nothing between");
    if (status == MICA_ERR_INVALID_ARGUMENT)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "no value satisfies the schema (%s)",
                          mica_status_message());
    return status;
}

/* Marks for every node of the schema. */
static mica_status make_marks(mica__schema *schema)
{
    const size_t count = schema->json->node_count;
    schema->listed = mica__calloc(count, 4 * sizeof *schema->listed);
    schema->met = mica__calloc(count, sizeof *schema->met);
    schema->checked = mica__calloc(count, sizeof *schema->checked);
    if (schema->listed == NULL || schema->met == NULL || schema->checked == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu values of the schema", count);
    return mica__schema_index_make(schema);
}

static void release(mica__schema *schema)
{
    mica__schema_index_free(schema);
    mica__free(schema->listed);
    mica__free(schema->met);
    mica__free(schema->checked);
    mica__free(schema->way);
    mica__free(schema->text.data);
    mica__free(schema->items);
    mica__free(schema->views);
    mica__free(schema->view_table);
}

static mica_status from_schema(const char *text, uint64_t length, mica_grammar **out_grammar)
{
    const mica__json_limits limits = {.max_bytes = MOST_BYTES, .max_nodes = MOST_NODES};
    mica__schema schema = {.seed = mica__hash_seed()};
    mica__json *json = NULL;
    mica_status status;
    if (out_grammar == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_grammar is NULL");
    *out_grammar = NULL;
    if (text == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "schema is NULL");
    mica__spend_allow(length);
    status = mica__json_parse(text, (size_t)length, &limits, &json);
    if (status == MICA_ERR_MALFORMED_FILE)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "the schema is no JSON: %s", mica_status_message());
    if (status != MICA_OK)
        return status;
    schema.json = json;
    status = make_marks(&schema);
    if (status == MICA_OK)
        status = translate(&schema);
    if (status == MICA_OK)
        status = make_grammar(&schema.text, out_grammar);
    release(&schema);
    mica__json_release(json);
    return status;
}

mica_status mica_grammar_from_schema(const char *schema, uint64_t length, mica_grammar **out_grammar)
{
    mica__call call;
    mica__call_begin(&call, "grammar_from_schema");
    return mica__call_end(&call, from_schema(schema, length, out_grammar));
}
