/* pick_filters.c: map, select and reject: filters that call another filter or a test for every item. */
#include <string.h>

#include "text/template/builtin.h"

/* The arguments after the first `skip` by place. */
static mica__jinja_arguments rest_of(const mica__jinja_arguments *all, size_t skip)
{
    return (mica__jinja_arguments){all->items + skip, all->count - skip, all->placed - skip};
}

static const mica__jinja_argument *named(const mica__jinja_arguments *all, const char *name)
{
    for (size_t i = all->placed; i < all->count; i++)
        if (all->items[i].name_length == strlen(name) && memcmp(all->items[i].name, name, strlen(name)) == 0)
            return &all->items[i];
    return NULL;
}

/* The row of a filter or test that is named by an argument. */
static mica_status find_row(const mica__jinja_run *run, const mica__jinja_value *name, bool test,
                            const mica__jinja_builtin **out_row)
{
    if (name->kind != MICA__JINJA_STRING)
        return mica__jinja_raise(run, "the name of a %s must be a str, not %s", test ? "test" : "filter",
                                 mica__jinja_type(name));
    *out_row = test ? mica__jinja_find_test(name->text, name->length)
                    : mica__jinja_find_filter(name->text, name->length);
    if (*out_row == NULL)
        return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED, "the %s \"%.*s\" is not known",
                                test ? "test" : "filter", name->length > 60 ? 60 : (int)name->length,
                                name->text);
    return MICA_OK;
}

static mica_status map_attribute(mica__jinja_run *run, const mica__jinja_call *call,
                                 const mica__jinja_value *attribute, mica__jinja_value *out)
{
    const mica__jinja_argument *standard = named(call->all, "default");
    const mica__jinja_value *items;
    size_t count;
    mica_status status = mica__jinja_items(run, &call->self, &items, &count);
    mica__jinja_value *list = status != MICA_OK ? NULL : mica__jinja_values(run, count);
    if (list == NULL)
        return status != MICA_OK ? status : mica__jinja_arena_failure(&run->arena);
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        status = mica__jinja_path(run, &items[i], attribute, &list[i]);
        if (standard != NULL && standard->value.kind != MICA__JINJA_NONE &&
            list[i].kind == MICA__JINJA_UNDEFINED)
            list[i] = standard->value;
    }
    return status != MICA_OK ? status : mica__jinja_generator(run, list, count, "generator", out);
}

static mica_status filter_map(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_argument *attribute = named(call->all, "attribute");
    const mica__jinja_builtin *row = NULL;
    const mica__jinja_value *items;
    size_t count;
    if (!mica__jinja_truth(&call->self))
        return mica__jinja_generator(run, NULL, 0, "generator", out);
    if (call->all->placed == 0 && attribute != NULL)
        return map_attribute(run, call, &attribute->value, out);
    if (call->all->placed == 0)
        return mica__jinja_raise(run, "map requires a filter argument");
    const mica__jinja_arguments rest = rest_of(call->all, 1);
    mica_status status = find_row(run, &call->all->items[0].value, false, &row);
    if (status == MICA_OK)
        status = mica__jinja_items(run, &call->self, &items, &count);
    mica__jinja_value *list = status != MICA_OK ? NULL : mica__jinja_values(run, count);
    if (list == NULL)
        return status != MICA_OK ? status : mica__jinja_arena_failure(&run->arena);
    if (run->depth >= MICA__JINJA_RUN_DEPTH)
        return mica__jinja_stop(run, MICA_ERR_BUDGET, "more than %d calls inside each other",
                                MICA__JINJA_RUN_DEPTH);
    run->depth++; /* map('map', 'map', ...) */
    for (size_t i = 0; status == MICA_OK && i < count; i++)
        status = mica__jinja_invoke(run, row, &items[i], &rest, &list[i]);
    run->depth--;
    return status != MICA_OK ? status : mica__jinja_generator(run, list, count, "generator", out);
}

/* variant: bit 0 rejects what passes, bit 1 looks at an attribute. */
static mica_status filter_select(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const bool reject = (call->row->variant & 1) != 0, by_attribute = (call->row->variant & 2) != 0;
    const size_t name_at = by_attribute ? 1 : 0;
    const mica__jinja_builtin *row = NULL;
    const mica__jinja_value *items = NULL;
    mica__jinja_arguments rest = {0};
    mica__jinja_value *kept = NULL;
    size_t count = 0, kept_count = 0, capacity = 0;
    mica_status status = MICA_OK;
    if (!mica__jinja_truth(&call->self))
        return mica__jinja_generator(run, NULL, 0, "generator", out);
    if (by_attribute && call->all->placed == 0)
        return mica__jinja_raise(run, "Missing parameter for attribute name");
    if (call->all->placed > name_at) {
        status = find_row(run, &call->all->items[name_at].value, true, &row);
        rest = rest_of(call->all, name_at + 1);
    }
    if (status == MICA_OK)
        status = mica__jinja_items(run, &call->self, &items, &count);
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        mica__jinja_value v = items[i], verdict;
        status = mica__jinja_spend(run, 1);
        if (status == MICA_OK && by_attribute)
            status = mica__jinja_path(run, &items[i], &call->all->items[0].value, &v);
        verdict = v;
        if (status == MICA_OK && row != NULL)
            status = mica__jinja_invoke(run, row, &v, &rest, &verdict);
        if (status == MICA_OK && mica__jinja_truth(&verdict) != reject)
            status = mica__jinja_push(run, &kept, &kept_count, &capacity, &items[i]);
    }
    return status != MICA_OK ? status : mica__jinja_generator(run, kept, kept_count, "generator", out);
}

const mica__jinja_builtin mica__jinja_pick_filters[] = {
    {"map", filter_map, "*", 0, 0},           {"select", filter_select, "*", 0, 0},
    {"reject", filter_select, "*", 0, 1},     {"selectattr", filter_select, "*", 0, 2},
    {"rejectattr", filter_select, "*", 0, 3},
};
const size_t mica__jinja_pick_filter_count =
    sizeof mica__jinja_pick_filters / sizeof *mica__jinja_pick_filters;
