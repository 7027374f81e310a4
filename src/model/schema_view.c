/* schema_view.c: what holds at one place of a value: keywords, references, and the lists of nodes that hold together. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "model/grammar.h"
#include "model/schema.h"

#define MOST_VIEWS 20000u
#define MOST_TOGETHER 1000u
#define MOST_STEPS 200 /* from $ref to $ref and allOf to allOf */

typedef enum keyword_kind { KEPT, REMARK } keyword_kind;

static const struct {
    const char *name;
    uint32_t types; /* that it speaks of */
    keyword_kind kind;
} keywords[] = {
    {"$ref", 0, KEPT},
    {"allOf", 0, KEPT},
    {"anyOf", 0, KEPT},
    {"oneOf", 0, KEPT},
    {"type", 0, KEPT},
    {"enum", 0, KEPT},
    {"const", 0, KEPT},
    {"properties", MICA__SCHEMA_OBJECT, KEPT},
    {"required", MICA__SCHEMA_OBJECT, KEPT},
    {"additionalProperties", MICA__SCHEMA_OBJECT, KEPT},
    {"items", MICA__SCHEMA_ARRAY, KEPT},
    {"prefixItems", MICA__SCHEMA_ARRAY, KEPT},
    {"additionalItems", MICA__SCHEMA_ARRAY, KEPT},
    {"minItems", MICA__SCHEMA_ARRAY, KEPT},
    {"maxItems", MICA__SCHEMA_ARRAY, KEPT},
    {"minLength", MICA__SCHEMA_STRING, KEPT},
    {"maxLength", MICA__SCHEMA_STRING, KEPT},
    {"pattern", MICA__SCHEMA_STRING, KEPT},
    {"format", MICA__SCHEMA_STRING, KEPT},
    {"minimum", MICA__SCHEMA_NUMBER | MICA__SCHEMA_INTEGER, KEPT},
    {"maximum", MICA__SCHEMA_NUMBER | MICA__SCHEMA_INTEGER, KEPT},
    {"exclusiveMinimum", MICA__SCHEMA_NUMBER | MICA__SCHEMA_INTEGER, KEPT},
    {"exclusiveMaximum", MICA__SCHEMA_NUMBER | MICA__SCHEMA_INTEGER, KEPT},
    {"$schema", 0, REMARK},
    {"$comment", 0, REMARK},
    {"$defs", 0, REMARK},
    {"definitions", 0, REMARK},
    {"title", 0, REMARK},
    {"description", 0, REMARK},
    {"default", 0, REMARK},
    {"examples", 0, REMARK},
    {"deprecated", 0, REMARK},
    {"readOnly", 0, REMARK},
    {"writeOnly", 0, REMARK},
};

uint32_t mica__schema_keyword_types(const char *keyword)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, keyword) == 0)
            return keywords[i].types;
    return 0;
}

/* ---- places --------------------------------------------------------------------------------------------- */

/* "#/properties/a": the way from the root to a node, cut where it gets long. */
static void place_of(const mica__schema *schema, const mica__json_node *node, char *out, size_t capacity)
{
    const mica__json_node *at = mica__json_root(schema->json);
    size_t used = (size_t)snprintf(out, capacity, "#");
    while (at != node && used < capacity) {
        const mica__json_node *child = mica__json_first(at);
        uint32_t index = 0;
        if (child == NULL)
            return;
        /* Nodes stand in the order of the text: the child before the first sibling that comes after the node. */
        for (const mica__json_node *next = mica__json_next(schema->json, child); next != NULL && next <= node;
             next = mica__json_next(schema->json, child)) {
            child = next;
            index++;
        }
        if (child->key != NULL)
            used += (size_t)snprintf(out + used, capacity - used, "/%.40s", child->key);
        else
            used += (size_t)snprintf(out + used, capacity - used, "/%u", index);
        at = child;
    }
}

mica_status mica__schema_refuse(const mica__schema *schema, const mica__json_node *node, mica_status code,
                                const char *keyword, const char *why)
{
    char place[200];
    place_of(schema, node, place, sizeof place);
    return mica__fail(code, "schema, at %s: %.60s %s", place, keyword, why);
}

mica_status mica__schema_check_keywords(const mica__schema *schema, const mica__json_node *node)
{
    for (const mica__json_node *child = mica__json_first(node); child != NULL;
         child = mica__json_next(schema->json, child)) {
        bool known = node == mica__json_root(schema->json) && strcmp(child->key, "$id") == 0;
        for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
            known |= strcmp(keywords[i].name, child->key) == 0;
        if (strcmp(child->key, "uniqueItems") == 0 && child->type == MICA__JSON_FALSE)
            known = true;
        if (!known)
            return mica__schema_refuse(schema, node, MICA_ERR_UNSUPPORTED, child->key, "is not supported");
    }
    return MICA_OK;
}

/* ---- references ----------------------------------------------------------------------------------------- */

/* One step of a JSON pointer, up to the next '/', decoded (%41, ~0, ~1). Returns what follows it; NULL if it is too
 * long. */
static const char *next_step(const char *at, char *out, size_t capacity)
{
    size_t used = 0;
    while (*at != '\0' && *at != '/') {
        char c = *at++;
        unsigned code;
        if (c == '%' && at[0] != '\0' && at[1] != '\0' && sscanf(at, "%2x", &code) == 1) {
            c = (char)code;
            at += 2;
        }
        if (c == '~' && (*at == '0' || *at == '1'))
            c = *at++ == '0' ? '~' : '/';
        if (used + 1 >= capacity)
            return NULL;
        out[used++] = c;
    }
    out[used] = '\0';
    return at;
}

static const mica__json_node *step_into(const mica__schema *schema, const mica__json_node *node,
                                        const char *step)
{
    unsigned index;
    char tail;
    if (node->type == MICA__JSON_OBJECT)
        return mica__json_get(schema->json, node, step);
    if (node->type != MICA__JSON_ARRAY || sscanf(step, "%9u%c", &index, &tail) != 1)
        return NULL;
    for (node = mica__json_first(node); node != NULL && index > 0; index--)
        node = mica__json_next(schema->json, node);
    return node;
}

mica_status mica__schema_resolve(const mica__schema *schema, const mica__json_node *reference,
                                 const mica__json_node **out_node)
{
    const mica__json_node *node = mica__json_root(schema->json);
    const char *at;
    char step[256];
    if (reference->type != MICA__JSON_STRING)
        return mica__schema_refuse(schema, reference, MICA_ERR_INVALID_ARGUMENT, "$ref", "is no string");
    at = reference->string.data;
    if (at[0] != '#' || (at[1] != '\0' && at[1] != '/'))
        return mica__schema_refuse(schema, reference, MICA_ERR_UNSUPPORTED, "$ref",
                                   "is not supported unless it points into this schema (#/...)");
    for (at++; *at == '/' && node != NULL;) {
        at = next_step(at + 1, step, sizeof step);
        if (at == NULL)
            return mica__schema_refuse(schema, reference, MICA_ERR_UNSUPPORTED, "$ref",
                                       "has a name of 256 bytes or more");
        node = step_into(schema, node, step);
    }
    if (node == NULL)
        return mica__schema_refuse(schema, reference, MICA_ERR_INVALID_ARGUMENT, "$ref", "points to nothing");
    *out_node = node;
    return MICA_OK;
}

/* ---- lists ---------------------------------------------------------------------------------------------- */

mica_status mica__schema_add_item(mica__schema_list *list, uint32_t node, uint32_t done)
{
    mica__schema_item *items;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].node == node && list->items[i].done == done)
            return MICA_OK;
    if (list->count == MOST_TOGETHER)
        return mica__fail(MICA_ERR_BUDGET, "schema: more than %u parts of it hold at one place",
                          MOST_TOGETHER);
    items = mica__grown(list->items, &list->capacity, list->count + 1, sizeof *items);
    if (items == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "schema: no memory for it");
    list->items = items;
    items[list->count].node = node;
    items[list->count++].done = done;
    return MICA_OK;
}

/* `way` are the nodes on the way here, `steps` of them. */
static mica_status add_node(mica__schema *schema, mica__schema_list *list, const mica__json_node *node,
                            const mica__json_node **way, int steps)
{
    const mica__json_node *reference, *all, *target = NULL;
    mica_status status;
    if (node->type == MICA__JSON_TRUE)
        return MICA_OK;
    if (node->type != MICA__JSON_FALSE && node->type != MICA__JSON_OBJECT)
        return mica__schema_refuse(schema, node, MICA_ERR_INVALID_ARGUMENT, mica__json_type_name(node),
                                   "stands where a schema should be");
    for (int i = 0; i < steps; i++)
        if (way[i] == node)
            return mica__schema_refuse(schema, node, MICA_ERR_INVALID_ARGUMENT, "$ref",
                                       "leads back to itself");
    if (steps == MOST_STEPS)
        return mica__schema_refuse(schema, node, MICA_ERR_BUDGET, "$ref", "leads more than 200 steps far");
    way[steps] = node;
    status = mica__schema_add_item(list, (uint32_t)(node - schema->json->nodes), 0);
    reference = mica__json_get(schema->json, node, "$ref");
    if (status == MICA_OK && reference != NULL) {
        status = mica__schema_resolve(schema, reference, &target);
        if (status == MICA_OK)
            status = add_node(schema, list, target, way, steps + 1);
    }
    all = mica__json_get(schema->json, node, "allOf");
    if (status == MICA_OK && all != NULL && all->type != MICA__JSON_ARRAY)
        return mica__schema_refuse(schema, node, MICA_ERR_INVALID_ARGUMENT, "allOf", "is no array");
    for (const mica__json_node *child = all != NULL ? mica__json_first(all) : NULL;
         child != NULL && status == MICA_OK; child = mica__json_next(schema->json, child))
        status = add_node(schema, list, child, way, steps + 1);
    return status;
}

mica_status mica__schema_add(mica__schema *schema, mica__schema_list *list, const mica__json_node *node)
{
    const mica__json_node *way[MOST_STEPS + 1];
    return add_node(schema, list, node, way, 0);
}

/* ---- views ---------------------------------------------------------------------------------------------- */

static uint64_t hash_view(const void *context, uint32_t index)
{
    const mica__schema *schema = context;
    const mica__schema_view *view = &schema->views[index];
    return mica__hash_bytes(schema->items + view->first, view->count * sizeof *schema->items, schema->seed);
}

/* Appends a list to the items; the place of a view that is new. */
static mica_status append(mica__schema *schema, const mica__schema_list *list)
{
    mica__schema_view *views;
    mica__schema_item *items;
    if (schema->view_count == MOST_VIEWS)
        return mica__fail(MICA_ERR_BUDGET, "schema: it has more than %u different places", MOST_VIEWS);
    views = mica__grown(schema->views, &schema->view_capacity, schema->view_count + 1, sizeof *views);
    if (views != NULL)
        schema->views = views;
    items = mica__grown(schema->items, &schema->item_capacity, (uint64_t)schema->item_count + list->count + 1,
                        sizeof *items);
    if (items != NULL)
        schema->items = items;
    if (views == NULL || items == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "schema: no memory for it");
    if (list->count != 0)
        memcpy(items + schema->item_count, list->items, list->count * sizeof *items);
    views[schema->view_count].first = schema->item_count;
    views[schema->view_count].count = list->count;
    return MICA_OK;
}

mica_status mica__schema_view_of(mica__schema *schema, const mica__schema_list *list, uint32_t *out_view)
{
    uint32_t slot;
    mica_status status;
    if (!mica__table_grow(&schema->view_table, &schema->view_slots, schema->view_count, hash_view, schema))
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "schema: no memory for it");
    status = append(schema, list);
    if (status != MICA_OK)
        return status;
    slot = (uint32_t)hash_view(schema, schema->view_count) & (schema->view_slots - 1);
    for (; schema->view_table[slot] != 0; slot = (slot + 1) & (schema->view_slots - 1)) {
        const mica__schema_view *old = &schema->views[schema->view_table[slot] - 1];
        if (old->count == list->count &&
            memcmp(schema->items + old->first, schema->items + schema->item_count,
                   list->count * sizeof *schema->items) == 0) {
            *out_view = schema->view_table[slot] - 1;
            return MICA_OK;
        }
    }
    schema->item_count += list->count;
    *out_view = schema->view_count++;
    schema->view_table[slot] = *out_view + 1;
    return MICA_OK;
}

const mica__json_node *mica__schema_member(const mica__schema *schema, mica__schema_view view, uint32_t index,
                                           const char *key)
{
    return mica__json_get(schema->json, schema->json->nodes + schema->items[view.first + index].node, key);
}
