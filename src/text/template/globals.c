/* globals.c: the functions that every template has by name. */
#include "text/template/builtin.h"

static mica_status global_range(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    int64_t first = 0, second = 0, step = 1;
    mica_status status = mica__jinja_take_int(run, call, 0, &first);
    if (status == MICA_OK)
        status = mica__jinja_take_int(run, call, 1, &second);
    if (status == MICA_OK)
        status = mica__jinja_take_int(run, call, 2, &step);
    if (status != MICA_OK)
        return status;
    if (step == 0)
        return mica__jinja_raise(run, "range() arg 3 must not be zero");
    const bool alone = call->argument[1].kind == MICA__JINJA_UNSET;
    const int64_t start = alone ? 0 : first, stop = alone ? first : second;
    const uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t count = 0;
    if (step > 0 && start < stop)
        count = ((uint64_t)stop - (uint64_t)start - 1) / stride + 1;
    else if (step < 0 && start > stop)
        count = ((uint64_t)start - (uint64_t)stop - 1) / stride + 1;
    if (count > MICA__JINJA_MAX_RANGE)
        return mica__jinja_stop(run, MICA_ERR_BUDGET,
                                "Range too big. The sandbox blocks ranges larger than %d.",
                                MICA__JINJA_MAX_RANGE);
    mica__jinja_range *range = mica__jinja_alloc(&run->arena, sizeof *range);
    if (range == NULL)
        return mica__jinja_arena_failure(&run->arena);
    *range = (mica__jinja_range){start, stop, step};
    *out = (mica__jinja_value){.kind = MICA__JINJA_RANGE, .length = (size_t)count, .range = range};
    return MICA_OK;
}

/* What dict() takes by place: a dict, or pairs. */
static mica_status put_pairs(mica__jinja_run *run, mica__jinja_dict *dict, const mica__jinja_value *from)
{
    const mica__jinja_value *items, *pair;
    size_t count, length;
    mica_status status = MICA_OK;
    if (from->kind == MICA__JINJA_DICT) {
        for (size_t i = 0; status == MICA_OK && i < from->dict->count; i++)
            status =
                mica__jinja_dict_put(run, dict, &from->dict->entries[i].key, &from->dict->entries[i].value);
        return status;
    }
    status = mica__jinja_items(run, from, &items, &count);
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        status = mica__jinja_items(run, &items[i], &pair, &length);
        if (status == MICA_OK && length != 2)
            return mica__jinja_raise(
                run, "dictionary update sequence element #%zu has length %zu; 2 is required", i, length);
        if (status == MICA_OK)
            status = mica__jinja_dict_put(run, dict, &pair[0], &pair[1]);
    }
    return status;
}

/* dict and, with names that may not begin with an underscore, namespace (variant 1). */
static mica_status global_dict(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_arguments *all = call->all;
    mica__jinja_dict *dict = NULL;
    mica_status status = mica__jinja_dict_new(run, all->count, &dict);
    if (status == MICA_OK && all->placed > 1)
        return mica__jinja_raise(run, "%s expected at most 1 argument, got %zu", call->row->name,
                                 all->placed);
    if (status == MICA_OK && all->placed == 1)
        status = put_pairs(run, dict, &all->items[0].value);
    for (size_t i = all->placed; status == MICA_OK && i < all->count; i++) {
        const mica__jinja_value name = mica__jinja_text(all->items[i].name, all->items[i].name_length);
        status = mica__jinja_dict_put(run, dict, &name, &all->items[i].value);
    }
    for (size_t i = 0; status == MICA_OK && call->row->variant != 0 && i < dict->count; i++) {
        const mica__jinja_value *key = &dict->entries[i].key;
        if (key->kind == MICA__JINJA_STRING && key->length != 0 && key->text[0] == '_')
            return mica__jinja_raise(
                run, "the name of an attribute of a namespace must not begin with an underscore");
    }
    *out = (mica__jinja_value){.kind = call->row->variant != 0 ? MICA__JINJA_NAMESPACE : MICA__JINJA_DICT,
                               .dict = dict};
    return status;
}

static mica_status global_cycler(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const size_t count = call->all->placed;
    mica__jinja_value *items = mica__jinja_values(run, count);
    if (items == NULL)
        return mica__jinja_arena_failure(&run->arena);
    if (count == 0)
        return mica__jinja_raise(run, "at least one item has to be provided");
    for (size_t i = 0; i < count; i++)
        items[i] = call->all->items[i].value;
    const mica_status status = mica__jinja_generator(run, items, count, "Cycler", out);
    out->kind = MICA__JINJA_CYCLER;
    return status;
}

static mica_status global_joiner(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value *text = mica__jinja_values(run, 1);
    if (text == NULL)
        return mica__jinja_arena_failure(&run->arena);
    *text = call->argument[0].kind == MICA__JINJA_UNSET ? mica__jinja_text(", ", 2) : call->argument[0];
    const mica_status status = mica__jinja_generator(run, text, 1, "Joiner", out);
    out->kind = MICA__JINJA_JOINER;
    return status;
}

static mica_status global_raise(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value text;
    const mica_status status = mica__jinja_str(run, &call->argument[0], &text);
    *out = mica__jinja_none();
    return status != MICA_OK
               ? status
               : mica__jinja_raise(run, "%.*s", text.length > 380 ? 380 : (int)text.length, text.text);
}

static mica_status global_time(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    mica__jinja_value format = mica__jinja_text("", 0);
    mica_status status = mica__jinja_take_text(run, call, 0, &format);
    if (status == MICA_OK)
        status = mica__jinja_put_time(run, run->now, format.text, format.length);
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

const mica__jinja_builtin mica__jinja_globals[] = {
    {"range", global_range, "start stop step", 1, 0},
    {"dict", global_dict, "*", 0, 0},
    {"namespace", global_dict, "*", 0, 1},
    {"cycler", global_cycler, "*", 0, 0},
    {"joiner", global_joiner, "sep", 0, 0},
    {"raise_exception", global_raise, "message", 1, 0},
    {"strftime_now", global_time, "format", 1, 0},
    {"lipsum", NULL, "*", 0, 0},
};
const size_t mica__jinja_global_count = sizeof mica__jinja_globals / sizeof *mica__jinja_globals;
