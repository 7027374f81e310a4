/* schema_view.c: what holds at one place of a value: keywords, references, and the lists of nodes that hold together. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/work.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"

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
    return mica__fail(code, "at %s of the schema: %.60s %s", place, keyword, why);
}

mica_status mica__schema_check_keywords(mica__schema *schema, const mica__json_node *node)
{
    bool *checked = &schema->checked[node - schema->json->nodes];
    if (*checked)
        return MICA_OK;
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
    *checked = true;
    return mica__spend(64);
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
        return mica__schema_get(schema, node, step);
    if (node->type != MICA__JSON_ARRAY || sscanf(step, "%9u%c", &index, &tail) != 1)
        return NULL;
    return mica__schema_at(schema, node, index);
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
    MICA__TRY(mica__spend(reference->string.length));
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

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the schema");
}

mica__schema_list mica__schema_list_new(mica__schema *schema)
{
    return (mica__schema_list){.number = ++schema->lists};
}

mica_status mica__schema_add_item(mica__schema *schema, mica__schema_list *list, uint32_t node, uint32_t done)
{
    uint32_t *listed = &schema->listed[(size_t)node * 4 + done];
    mica__schema_item *items;
    MICA__TRY(mica__spend(4));
    if (*listed == list->number)
        return MICA_OK;
    *listed = list->number;
    items = mica__grown(list->items, &list->capacity, list->count + 1, sizeof *items);
    if (items == NULL)
        return no_memory();
    list->items = items;
    items[list->count].node = node;
    items[list->count++].done = done;
    return MICA_OK;
}

/* A node on the way of a search, and what of its allOf comes next. */
typedef struct mica__schema_step {
    const mica__json_node *node, *child;
    bool referred; /* its $ref is through */
} mica__schema_step;

/* Adds a node and puts it on the way, unless this search met it before. */
static mica_status enter(mica__schema *schema, mica__schema_list *list, const mica__json_node *node,
                         uint32_t *depth)
{
    const uint32_t index = (uint32_t)(node - schema->json->nodes), open = schema->searches * 2;
    mica__schema_step *way;
    if (node->type == MICA__JSON_TRUE)
        return MICA_OK;
    if (node->type != MICA__JSON_FALSE && node->type != MICA__JSON_OBJECT)
        return mica__schema_refuse(schema, node, MICA_ERR_INVALID_ARGUMENT, mica__json_type_name(node),
                                   "stands where a schema should be");
    if (schema->met[index] == open)
        return mica__schema_refuse(schema, node, MICA_ERR_INVALID_ARGUMENT, "$ref", "leads back to itself");
    if (schema->met[index] == open + 1)
        return mica__spend(1);
    way = mica__grown(schema->way, &schema->way_capacity, *depth + 1, sizeof *way);
    if (way == NULL)
        return no_memory();
    schema->way = way;
    schema->met[index] = open;
    way[(*depth)++] = (mica__schema_step){.node = node};
    MICA__TRY(mica__spend(16));
    return mica__schema_add_item(schema, list, index, 0);
}

/* What the node at the end of the way asks for next: its $ref, then what stands in its allOf; NULL: nothing more. */
static mica_status next_of(mica__schema *schema, mica__schema_step *at, const mica__json_node **out_next)
{
    *out_next = at->child;
    if (at->referred) {
        if (at->child != NULL)
            at->child = mica__json_next(schema->json, at->child);
        return MICA_OK;
    }
    const mica__json_node *reference = mica__schema_get(schema, at->node, "$ref");
    const mica__json_node *all = mica__schema_get(schema, at->node, "allOf");
    if (all != NULL && all->type != MICA__JSON_ARRAY)
        return mica__schema_refuse(schema, at->node, MICA_ERR_INVALID_ARGUMENT, "allOf", "is no array");
    at->referred = true;
    at->child = all != NULL ? mica__json_first(all) : NULL;
    return reference != NULL ? mica__schema_resolve(schema, reference, out_next)
                             : next_of(schema, at, out_next);
}

mica_status mica__schema_add(mica__schema *schema, mica__schema_list *list, const mica__json_node *node)
{
    uint32_t depth = 0;
    schema->searches++;
    MICA__TRY(enter(schema, list, node, &depth));
    while (depth > 0) {
        const mica__json_node *next = NULL;
        const mica__json_node *here = schema->way[depth - 1].node;
        MICA__TRY(next_of(schema, &schema->way[depth - 1], &next));
        if (next != NULL) {
            MICA__TRY(enter(schema, list, next, &depth));
        } else {
            schema->met[here - schema->json->nodes] = schema->searches * 2 + 1;
            depth--;
        }
    }
    return MICA_OK;
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
    MICA__TRY(mica__limit_check("different places of the schema", mica__limits()->states,
                                (uint64_t)schema->view_count + 1));
    MICA__TRY(mica__spend(8 + list->count));
    views = mica__grown(schema->views, &schema->view_capacity, schema->view_count + 1, sizeof *views);
    if (views != NULL)
        schema->views = views;
    items = mica__grown(schema->items, &schema->item_capacity, (uint64_t)schema->item_count + list->count + 1,
                        sizeof *items);
    if (items != NULL)
        schema->items = items;
    if (views == NULL || items == NULL)
        return no_memory();
    if (list->count != 0)
        memcpy(items + schema->item_count, list->items, list->count * sizeof *items);
    views[schema->view_count].first = schema->item_count;
    views[schema->view_count].count = list->count;
    return MICA_OK;
}

mica_status mica__schema_view_of(mica__schema *schema, const mica__schema_list *list, uint32_t *out_view)
{
    uint32_t slot;
    if (!mica__table_grow(&schema->view_table, &schema->view_slots, schema->view_count, hash_view, schema))
        return no_memory();
    MICA__TRY(append(schema, list));
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
    return mica__schema_get(schema, schema->json->nodes + schema->items[view.first + index].node, key);
}
