/* schema_array.c: arrays of a schema as grammar: the elements that have a place of their own, then the rest.
 *
 *   v5-array ::= "[" ws (ELEMENT_0 v5-i1 ws)? "]"
 *   v5-iN    ::= ("," ws ELEMENT_N v5-iM)?      M = N + 1; without ( )? below minItems */
#include "base/alloc.h"
#include "grammar/schema.h"

#define MOST_ITEMS 1000000000u
#define NO_END UINT64_MAX

typedef struct array {
    mica__schema *schema;
    mica__schema_view view;
    uint32_t number;
    uint64_t least, most;
    uint32_t places; /* elements with a place of their own */
    bool open;       /* others may follow */
} array;

/* The schemas by place of an item: prefixItems, or items where that is a list, as it was in older drafts. */
static const mica__json_node *prefix_of(const array *a, uint32_t item)
{
    const mica__json_node *prefix = mica__schema_member(a->schema, a->view, item, "prefixItems");
    const mica__json_node *items = mica__schema_member(a->schema, a->view, item, "items");
    if (prefix != NULL && prefix->type == MICA__JSON_ARRAY)
        return prefix;
    return items != NULL && items->type == MICA__JSON_ARRAY ? items : NULL;
}

/* The schema of what follows these; NULL if the item says nothing of it. */
static const mica__json_node *rest_of(const array *a, uint32_t item)
{
    const mica__json_node *items = mica__schema_member(a->schema, a->view, item, "items");
    if (items != NULL && items->type != MICA__JSON_ARRAY)
        return items;
    return items != NULL ? mica__schema_member(a->schema, a->view, item, "additionalItems") : NULL;
}

/* What all items say of the element at a place. */
static mica_status view_of_element(array *a, uint32_t place, uint32_t *out_view)
{
    mica__schema_list list = mica__schema_list_new(a->schema);
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < a->view.count && status == MICA_OK; i++) {
        const mica__json_node *prefix = prefix_of(a, i), *says = NULL;
        says = prefix != NULL && place < prefix->child_count ? mica__schema_at(a->schema, prefix, place)
                                                             : rest_of(a, i);
        if (says != NULL)
            status = mica__schema_add(a->schema, &list, says);
    }
    if (status == MICA_OK)
        status = mica__schema_view_of(a->schema, &list, out_view);
    mica__free(list.items);
    return status;
}

static mica_status read_bound(array *a, uint32_t item, const char *key, uint64_t *out)
{
    const mica__json_node *value = mica__schema_member(a->schema, a->view, item, key);
    *out = NO_END;
    if (value == NULL || mica__json_as_uint(value, key, 0, MOST_ITEMS, out) == MICA_OK)
        return MICA_OK;
    return mica__schema_refuse(a->schema, value, MICA_ERR_INVALID_ARGUMENT, key,
                               "is no whole number up to 10^9");
}

static mica_status read_items(array *a)
{
    bool listed = false, rest = false;
    a->most = NO_END;
    for (uint32_t i = 0; i < a->view.count; i++) {
        const mica__json_node *prefix = prefix_of(a, i);
        uint64_t least, most;
        mica_status status = read_bound(a, i, "minItems", &least);
        if (status == MICA_OK)
            status = read_bound(a, i, "maxItems", &most);
        if (status != MICA_OK)
            return status;
        if (least != NO_END && least > a->least)
            a->least = least;
        if (most < a->most)
            a->most = most;
        if (prefix != NULL && prefix->child_count > a->places)
            a->places = prefix->child_count;
        listed |= prefix != NULL;
        rest |= rest_of(a, i) != NULL;
    }
    a->open = rest || !listed || a->least > a->places;
    if (a->places >= a->most) {
        a->places = (uint32_t)a->most;
        a->open = false;
    }
    return MICA_OK;
}

/* `count` elements of the rest, each after a comma, as many as are still asked for. */
static void put_more(array *a, uint32_t view, uint64_t before)
{
    const uint64_t least = a->least > before ? a->least - before : 0;
    mica__schema_put(&a->schema->text, "(\",\" ws v%u){%llu,", view, (unsigned long long)least);
    if (a->most != NO_END)
        mica__schema_put(&a->schema->text, "%llu", (unsigned long long)(a->most - before));
    mica__schema_put(&a->schema->text, "}");
}

static mica_status put_places(array *a)
{
    mica__schema_text *text = &a->schema->text;
    mica_status status = MICA_OK;
    uint32_t view;
    for (uint32_t i = 1; i < a->places && status == MICA_OK; i++) {
        status = view_of_element(a, i, &view);
        if (status == MICA_OK)
            mica__schema_put(text, "v%u-i%u ::= (\",\" ws v%u v%u-i%u)%s\n", a->number, i, view, a->number,
                             i + 1, i < a->least ? "" : "?");
    }
    mica__schema_put(text, "v%u-i%u ::= ", a->number, a->places);
    if (status == MICA_OK && a->open) {
        status = view_of_element(a, a->places, &view);
        if (status == MICA_OK)
            put_more(a, view, a->places);
    } else {
        mica__schema_put(text, "\"\"");
    }
    mica__schema_put(text, "\n");
    return status;
}

mica_status mica__schema_put_array(mica__schema *schema, mica__schema_view view, uint32_t number)
{
    array a = {.schema = schema, .view = view, .number = number};
    uint32_t first = 0;
    MICA__TRY(read_items(&a));
    mica__schema_put(&schema->text, "v%u-array ::= \"[\" ws ", number);
    if (a.least > a.most) {
        mica__schema_put(&schema->text, "[]\n");
        return MICA_OK;
    }
    if (a.most == 0 || (a.places == 0 && !a.open)) {
        mica__schema_put(&schema->text, "\"]\"\n");
        return MICA_OK;
    }
    MICA__TRY(view_of_element(&a, 0, &first));
    mica__schema_put(&schema->text, "(v%u ", first);
    if (a.places != 0)
        mica__schema_put(&schema->text, "v%u-i1", number);
    else
        put_more(&a, first, 1);
    mica__schema_put(&schema->text, " ws)%s \"]\"\n", a.least == 0 ? "?" : "");
    return a.places != 0 ? put_places(&a) : MICA_OK;
}
