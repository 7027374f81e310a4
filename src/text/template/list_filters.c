/* list_filters.c: filters on lists and dicts: order, groups, parts, sums. */
#include <string.h>

#include "base/sort.h"
#include "text/template/builtin.h"

/* ---- keys ---- */

/* What an item is compared by: an attribute of it if one is named, in lower case unless case counts. */
static mica_status key_of(mica__jinja_run *run, const mica__jinja_value *item,
                          const mica__jinja_value *attribute, bool fold, mica__jinja_value *out)
{
    mica__jinja_value key = *item;
    mica_status status = MICA_OK;
    if (attribute->kind != MICA__JINJA_UNSET && attribute->kind != MICA__JINJA_NONE)
        status = mica__jinja_path(run, item, attribute, &key);
    if (status != MICA_OK || !fold) {
        *out = key;
        return status;
    }
    return mica__jinja_lower_key(run, &key, out);
}

/* "a,b": the keys of several attributes as one list; also where there is but one, since lists of things that have no
 * order have one as long as they are equal. */
static mica_status keys_of(mica__jinja_run *run, const mica__jinja_value *item,
                           const mica__jinja_value *attribute, bool fold, mica__jinja_value *out)
{
    mica__jinja_value *keys = NULL;
    size_t count = 0, capacity = 0;
    mica_status status = MICA_OK;
    if (attribute->kind != MICA__JINJA_STRING) {
        keys = mica__jinja_values(run, 1);
        if (keys == NULL)
            return mica__jinja_arena_failure(&run->arena);
        *out = mica__jinja_list(keys, 1);
        return key_of(run, item, attribute, fold, keys);
    }
    for (size_t at = 0; status == MICA_OK && at <= attribute->length;) {
        const char *comma =
            at == attribute->length ? NULL : memchr(attribute->text + at, ',', attribute->length - at);
        const size_t end = comma == NULL ? attribute->length : (size_t)(comma - attribute->text);
        const mica__jinja_value part = mica__jinja_text(attribute->text + at, end - at);
        mica__jinja_value key;
        status = key_of(run, item, &part, fold, &key);
        if (status == MICA_OK)
            status = mica__jinja_push(run, &keys, &count, &capacity, &key);
        at = end + 1;
    }
    *out = mica__jinja_list(keys, count);
    return status;
}

typedef mica_status (*key_function)(mica__jinja_run *run, const mica__jinja_value *item,
                                    const mica__jinja_value *attribute, bool fold, mica__jinja_value *out);

typedef struct sort_item {
    mica__jinja_value key, item;
    mica__jinja_run *run;
    mica_status *status; /* the first failure of a comparison; nothing is compared after it */
    bool reverse;
} sort_item;

static int compare_items(const void *a, const void *b)
{
    const sort_item *left = a, *right = b;
    int order = 0;
    if (*left->status == MICA_OK)
        *left->status = mica__jinja_order(left->run, &right->key, &left->key, "<", &order);
    return left->reverse ? order : -order;
}

static mica_status sort_values(mica__jinja_run *run, const mica__jinja_value *items, size_t count,
                               const mica__jinja_value *attribute, key_function key, bool fold, bool reverse,
                               sort_item **out_sorted)
{
    mica_status compared = MICA_OK, status = MICA_OK;
    sort_item *sorted = mica__jinja_calloc(&run->arena, count, sizeof *sorted);
    *out_sorted = sorted;
    if (sorted == NULL)
        return mica__jinja_arena_failure(&run->arena);
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        sorted[i] = (sort_item){mica__jinja_none(), items[i], run, &compared, reverse};
        status = key(run, &items[i], attribute, fold, &sorted[i].key);
    }
    if (status == MICA_OK)
        status = mica__sort(sorted, count, sizeof *sorted, compare_items);
    return status != MICA_OK ? status : compared;
}

static mica_status self_items(mica__jinja_run *run, const mica__jinja_call *call,
                              const mica__jinja_value **out_items, size_t *out_count)
{
    return mica__jinja_items(run, &call->self, out_items, out_count);
}

/* ---- order ---- */

static mica_status sorted_list(mica__jinja_run *run, const mica__jinja_value *items, size_t count,
                               const mica__jinja_value *attribute, key_function key, bool fold, bool reverse,
                               mica__jinja_value *out)
{
    sort_item *sorted = NULL;
    const mica_status status = sort_values(run, items, count, attribute, key, fold, reverse, &sorted);
    mica__jinja_value *list = status != MICA_OK ? NULL : mica__jinja_values(run, count);
    if (list == NULL)
        return status != MICA_OK ? status : mica__jinja_arena_failure(&run->arena);
    for (size_t i = 0; i < count; i++)
        list[i] = sorted[i].item;
    *out = mica__jinja_list(list, count);
    return mica__jinja_spend(run, count);
}

static mica_status filter_sort(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *items;
    size_t count;
    const mica_status status = self_items(run, call, &items, &count);
    if (status != MICA_OK)
        return status;
    return sorted_list(run, items, count, &call->argument[2], keys_of, !mica__jinja_take_truth(call, 1),
                       mica__jinja_take_truth(call, 0), out);
}

static mica_status filter_dictsort(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value by = mica__jinja_text("key", 3);
    const mica__jinja_value *items;
    size_t count;
    MICA__TRY(mica__jinja_take_text(run, call, 1, &by));
    if (call->self.kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, &call->self);
    if (call->self.kind != MICA__JINJA_DICT)
        return mica__jinja_raise(run, "dictsort needs a dict, not %s", mica__jinja_type(&call->self));
    if (!mica__jinja_same_text(&by, "key") && !mica__jinja_same_text(&by, "value"))
        return mica__jinja_raise(run, "You can only sort by either \"key\" or \"value\"");
    const mica__jinja_value pairs = {
        .kind = MICA__JINJA_VIEW, .mark = MICA__JINJA_VIEW_ITEMS, .dict = call->self.dict};
    const mica__jinja_value part = mica__jinja_int(by.text[0] == 'k' ? 0 : 1);
    MICA__TRY(mica__jinja_items(run, &pairs, &items, &count));
    return sorted_list(run, items, count, &part, key_of, !mica__jinja_take_truth(call, 0),
                       mica__jinja_take_truth(call, 2), out);
}

static mica_status filter_groupby(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const bool fold = !mica__jinja_take_truth(call, 2);
    const mica__jinja_value *items;
    mica__jinja_value *groups = NULL, *list = NULL;
    sort_item *sorted = NULL;
    size_t count, groups_count = 0, capacity = 0, start = 0;
    mica_status status = self_items(run, call, &items, &count);
    if (status == MICA_OK && mica__jinja_is_given(call, 1))
        return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED, "groupby with a default is not known");
    if (status == MICA_OK)
        status = sort_values(run, items, count, &call->argument[0], key_of, fold, false, &sorted);
    if (status == MICA_OK) {
        list = mica__jinja_values(run, count);
        status = list == NULL ? mica__jinja_arena_failure(&run->arena) : MICA_OK;
    }
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        bool same = false;
        list[i] = sorted[i].item;
        if (i + 1 < count)
            status = mica__jinja_equal(run, &sorted[i].key, &sorted[i + 1].key, &same);
        if (status != MICA_OK || same)
            continue;
        mica__jinja_value *pair = mica__jinja_values(run, 2);
        if (pair == NULL)
            return mica__jinja_arena_failure(&run->arena);
        /* in the case of the first */
        status = key_of(run, &list[start], &call->argument[0], false, &pair[0]);
        pair[1] = mica__jinja_list(list + start, i + 1 - start);
        const mica__jinja_value group = {.kind = MICA__JINJA_TUPLE, .mark = 1, .length = 2, .items = pair};
        if (status == MICA_OK)
            status = mica__jinja_push(run, &groups, &groups_count, &capacity, &group);
        start = i + 1;
    }
    *out = mica__jinja_list(groups, groups_count);
    return status;
}

static mica_status filter_unique(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const bool fold = !mica__jinja_take_truth(call, 0);
    const mica__jinja_value *items, *seen;
    const mica__jinja_value yes = mica__jinja_bool(true);
    mica__jinja_value *list = NULL, key;
    mica__jinja_dict *keys = NULL;
    size_t count, kept = 0, capacity = 0;
    mica_status status = self_items(run, call, &items, &count);
    if (status == MICA_OK)
        status = mica__jinja_dict_new(run, 0, &keys);
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        status = key_of(run, &items[i], &call->argument[1], fold, &key);
        if (status == MICA_OK)
            status = mica__jinja_dict_get(run, keys, &key, &seen);
        if (status != MICA_OK || seen != NULL)
            continue;
        status = mica__jinja_dict_put(run, keys, &key, &yes);
        if (status == MICA_OK)
            status = mica__jinja_push(run, &list, &kept, &capacity, &items[i]);
    }
    return status != MICA_OK ? status : mica__jinja_generator(run, list, kept, "generator", out);
}

/* variant 1: the largest. */
static mica_status filter_extreme(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    static const char hint[] = "No aggregated item, sequence was empty.";
    const bool fold = !mica__jinja_take_truth(call, 0);
    const mica__jinja_value *items;
    mica__jinja_value best = mica__jinja_none(), key;
    size_t count;
    mica_status status = self_items(run, call, &items, &count);
    *out = mica__jinja_missing(MICA__JINJA_MISSING_HINT, 0, hint, sizeof hint - 1);
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        int order = -1;
        status = key_of(run, &items[i], &call->argument[1], fold, &key);
        if (status == MICA_OK && i != 0)
            status = mica__jinja_order(run, &key, &best, call->row->variant == 0 ? "<" : ">", &order);
        if (call->row->variant != 0)
            order = i == 0 ? -1 : -order;
        if (status == MICA_OK && order < 0) {
            best = key;
            *out = items[i];
        }
    }
    return status;
}

static mica_status filter_reverse(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value bounds[3] = {mica__jinja_none(), mica__jinja_none(), mica__jinja_int(-1)};
    const mica__jinja_value *items;
    size_t count;
    if (call->self.kind == MICA__JINJA_STRING)
        return mica__jinja_slice(run, &call->self, bounds, out);
    const mica_status status = self_items(run, call, &items, &count);
    mica__jinja_value *list = status != MICA_OK ? NULL : mica__jinja_values(run, count);
    if (list == NULL)
        return status != MICA_OK ? status : mica__jinja_arena_failure(&run->arena);
    for (size_t i = 0; i < count; i++)
        list[i] = items[count - 1 - i];
    MICA__TRY(mica__jinja_spend_bytes(run, count * sizeof *list));
    if (call->self.kind == MICA__JINJA_ITERATOR) {
        *out = mica__jinja_list(list, count);
        return MICA_OK;
    }
    return mica__jinja_generator(run, list, count, "list_reverseiterator", out);
}

/* ---- parts ---- */

/* variant 1: the last. */
static mica_status filter_end(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const bool last = call->row->variant != 0;
    const char *hint = last ? "No last item, sequence was empty." : "No first item, sequence was empty.";
    mica__jinja_cursor cursor;
    bool some = false;
    if (last && call->self.kind == MICA__JINJA_ITERATOR)
        return mica__jinja_raise(run, "'%s' object is not reversible", mica__jinja_type(&call->self));
    mica_status status = mica__jinja_walk(run, &call->self, &cursor);
    if (status == MICA_OK && last && call->self.kind != MICA__JINJA_UNDEFINED) {
        const mica__jinja_value *items;
        size_t count;
        status = self_items(run, call, &items, &count);
        some = status == MICA_OK && count != 0;
        if (some)
            *out = items[count - 1];
    } else if (status == MICA_OK) {
        status = mica__jinja_next(run, &cursor, out, &some);
    }
    if (status == MICA_OK && !some)
        *out = mica__jinja_missing(MICA__JINJA_MISSING_HINT, 0, hint, strlen(hint));
    return status;
}

static mica_status filter_list(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *items;
    size_t count;
    const mica_status status = self_items(run, call, &items, &count);
    *out = mica__jinja_list(items, status == MICA_OK ? count : 0);
    return status;
}

static mica_status filter_items(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *items = NULL;
    size_t count = 0;
    mica_status status = MICA_OK;
    const mica__jinja_value pairs = {
        .kind = MICA__JINJA_VIEW, .mark = MICA__JINJA_VIEW_ITEMS, .dict = call->self.dict};
    if (call->self.kind == MICA__JINJA_DICT)
        status = mica__jinja_items(run, &pairs, &items, &count);
    else if (call->self.kind != MICA__JINJA_UNDEFINED)
        return mica__jinja_raise(run, "Can only get item pairs from a mapping.");
    return status != MICA_OK ? status : mica__jinja_generator(run, items, count, "generator", out);
}

/* Lists of so many items each; the last one filled up if that is asked for. */
static mica_status filter_batch(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *items;
    mica__jinja_value *lists = NULL;
    size_t count, lists_count = 0, capacity = 0;
    int64_t size = 0;
    mica_status status = mica__jinja_take_int(run, call, 0, &size);
    if (status == MICA_OK)
        status = self_items(run, call, &items, &count);
    if (status == MICA_OK && size <= 0)
        return mica__jinja_raise(run, "batch: the number of items must be above 0");
    for (size_t at = 0; status == MICA_OK && at < count; at += (size_t)size) {
        const size_t left = count - at, have = left < (size_t)size ? left : (size_t)size;
        mica__jinja_value list = mica__jinja_list(items + at, have);
        if (have < (size_t)size && mica__jinja_is_given(call, 1)) {
            mica__jinja_value *full = mica__jinja_values(run, (size_t)size);
            if (full == NULL)
                return mica__jinja_arena_failure(&run->arena);
            MICA__TRY(mica__jinja_spend(run, (uint64_t)size));
            for (size_t i = 0; i < (size_t)size; i++)
                full[i] = i < have ? items[at + i] : call->argument[1];
            list = mica__jinja_list(full, (size_t)size);
        }
        status = mica__jinja_push(run, &lists, &lists_count, &capacity, &list);
        if (left <= (size_t)size)
            break;
    }
    return status != MICA_OK ? status : mica__jinja_generator(run, lists, lists_count, "generator", out);
}

/* So many lists, as even as can be. */
static mica_status filter_slice(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *items;
    size_t count, at = 0;
    int64_t slices = 0;
    mica_status status = mica__jinja_take_int(run, call, 0, &slices);
    if (status == MICA_OK)
        status = self_items(run, call, &items, &count);
    if (status == MICA_OK && (slices <= 0 || slices > MICA__JINJA_MAX_RANGE))
        return mica__jinja_raise(run, "slice: the number of slices must be 1 to %d", MICA__JINJA_MAX_RANGE);
    mica__jinja_value *lists = status != MICA_OK ? NULL : mica__jinja_values(run, (size_t)slices);
    if (lists == NULL)
        return status != MICA_OK ? status : mica__jinja_arena_failure(&run->arena);
    const size_t each = count / (size_t)slices, extra = count % (size_t)slices;
    MICA__TRY(mica__jinja_spend(run, count + (size_t)slices));
    for (size_t i = 0; i < (size_t)slices; i++) {
        const size_t have = each + (i < extra);
        lists[i] = mica__jinja_list(items + at, have);
        if (mica__jinja_is_given(call, 1) && i >= extra) {
            mica__jinja_value *full = mica__jinja_values(run, have + 1);
            if (full == NULL)
                return mica__jinja_arena_failure(&run->arena);
            if (have != 0)
                memcpy(full, items + at, have * sizeof *full);
            full[have] = call->argument[1];
            lists[i] = mica__jinja_list(full, have + 1);
        }
        at += have;
    }
    return mica__jinja_generator(run, lists, (size_t)slices, "generator", out);
}

/* ---- sums ---- */

static mica_status filter_join(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    const mica__jinja_value *items;
    mica__jinja_value glue = mica__jinja_text("", 0), item;
    size_t count;
    mica_status status = MICA_OK;
    if (call->argument[0].kind != MICA__JINJA_UNSET)
        status = mica__jinja_str(run, &call->argument[0], &glue);
    if (status == MICA_OK)
        status = self_items(run, call, &items, &count);
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        status = key_of(run, &items[i], &call->argument[1], false, &item);
        if (status == MICA_OK && i != 0)
            status = mica__jinja_put(run, glue.text, glue.length);
        if (status == MICA_OK)
            status = mica__jinja_put_str(run, &item);
        if (status == MICA_OK)
            status = mica__jinja_spend(run, 1);
    }
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

static mica_status filter_sum(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *items;
    mica__jinja_value sum = call->argument[1].kind == MICA__JINJA_UNSET ? mica__jinja_int(0)
                                                                        : call->argument[1],
                      item;
    size_t count;
    mica_status status = self_items(run, call, &items, &count);
    if (status == MICA_OK && sum.kind == MICA__JINJA_STRING)
        return mica__jinja_raise(run, "sum() can't sum strings");
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        status = key_of(run, &items[i], &call->argument[0], false, &item);
        if (status == MICA_OK)
            status = mica__jinja_spend(run, 1);
        if (status == MICA_OK)
            status = mica__jinja_binary(run, MICA__JINJA_OP_ADD, &sum, &item, &sum);
    }
    *out = sum;
    return status;
}

const mica__jinja_builtin mica__jinja_list_filters[] = {
    {"batch", filter_batch, "linecount fill_with", 1, 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0, 0},
    {"first", filter_end, "", 0, 0},
    {"groupby", filter_groupby, "attribute default case_sensitive", 1, 0},
    {"items", filter_items, "", 0, 0},
    {"join", filter_join, "d attribute", 0, 0},
    {"last", filter_end, "", 0, 1},
    {"list", filter_list, "", 0, 0},
    {"max", filter_extreme, "case_sensitive attribute", 0, 1},
    {"min", filter_extreme, "case_sensitive attribute", 0, 0},
    {"reverse", filter_reverse, "", 0, 0},
    {"slice", filter_slice, "slices fill_with", 1, 0},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0, 0},
    {"sum", filter_sum, "attribute start", 0, 0},
    {"unique", filter_unique, "case_sensitive attribute", 0, 0},
};
const size_t mica__jinja_list_filter_count =
    sizeof mica__jinja_list_filters / sizeof *mica__jinja_list_filters;
