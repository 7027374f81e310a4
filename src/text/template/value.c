/* value.c: truth, length, iteration, equality and order of values. */
#include <string.h>

#include "text/template/builtin.h"
#include "text/template/chars.h"

const char *mica__jinja_kind_name(uint8_t kind)
{
    static const char *const names[] = {
        [MICA__JINJA_UNDEFINED] = "Undefined", [MICA__JINJA_NONE] = "NoneType",
        [MICA__JINJA_BOOL] = "bool",           [MICA__JINJA_INT] = "int",
        [MICA__JINJA_FLOAT] = "float",         [MICA__JINJA_STRING] = "str",
        [MICA__JINJA_LIST] = "list",           [MICA__JINJA_TUPLE] = "tuple",
        [MICA__JINJA_DICT] = "dict",           [MICA__JINJA_VIEW] = "dict_items",
        [MICA__JINJA_RANGE] = "range",         [MICA__JINJA_ITERATOR] = "generator",
        [MICA__JINJA_NAMESPACE] = "Namespace", [MICA__JINJA_MACRO] = "Macro",
        [MICA__JINJA_FUNCTION] = "function",   [MICA__JINJA_METHOD] = "method",
        [MICA__JINJA_LOOP] = "LoopContext",    [MICA__JINJA_CYCLER] = "Cycler",
        [MICA__JINJA_JOINER] = "Joiner",       [MICA__JINJA_UNSET] = "nothing",
    };
    return names[kind];
}

const char *mica__jinja_type(const mica__jinja_value *v)
{
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    if (v->kind == MICA__JINJA_VIEW)
        return views[v->mark];
    return v->kind == MICA__JINJA_ITERATOR ? v->iterator->type : mica__jinja_kind_name(v->kind);
}

bool mica__jinja_has_length(const mica__jinja_value *v)
{
    return v->kind == MICA__JINJA_UNDEFINED ||
           (v->kind >= MICA__JINJA_STRING && v->kind <= MICA__JINJA_RANGE) || v->kind == MICA__JINJA_LOOP;
}

bool mica__jinja_is_iterable(const mica__jinja_value *v)
{
    return v->kind == MICA__JINJA_UNDEFINED ||
           (v->kind >= MICA__JINJA_STRING && v->kind <= MICA__JINJA_ITERATOR);
}

bool mica__jinja_truth(const mica__jinja_value *v)
{
    switch (v->kind) {
    case MICA__JINJA_UNDEFINED:
    case MICA__JINJA_NONE: return false;
    case MICA__JINJA_BOOL: return v->truth;
    case MICA__JINJA_INT: return v->integer != 0;
    case MICA__JINJA_FLOAT: return v->real != 0;
    case MICA__JINJA_STRING:
    case MICA__JINJA_LIST:
    case MICA__JINJA_TUPLE:
    case MICA__JINJA_RANGE: return v->length != 0;
    case MICA__JINJA_DICT:
    case MICA__JINJA_VIEW: return v->dict->count != 0;
    default: return true;
    }
}

mica_status mica__jinja_length(mica__jinja_run *run, const mica__jinja_value *v, size_t *out_length)
{
    switch (v->kind) {
    case MICA__JINJA_UNDEFINED: *out_length = 0; return MICA_OK;
    case MICA__JINJA_STRING:
        *out_length = mica__jinja_char_count(v->text, v->length);
        return mica__jinja_spend_bytes(run, v->length);
    case MICA__JINJA_LIST:
    case MICA__JINJA_TUPLE:
    case MICA__JINJA_RANGE: *out_length = v->length; return MICA_OK;
    case MICA__JINJA_DICT:
    case MICA__JINJA_VIEW: *out_length = v->dict->count; return MICA_OK;
    default: return mica__jinja_raise(run, "object of type '%s' has no len()", mica__jinja_type(v));
    }
}

/* ---- iteration ---- */

mica_status mica__jinja_walk(const mica__jinja_run *run, const mica__jinja_value *v,
                             mica__jinja_cursor *out_cursor)
{
    *out_cursor = (mica__jinja_cursor){*v, 0};
    return mica__jinja_is_iterable(v)
               ? MICA_OK
               : mica__jinja_raise(run, "'%s' object is not iterable", mica__jinja_type(v));
}

static mica_status next_entry(mica__jinja_run *run, const mica__jinja_cursor *cursor, mica__jinja_value *out)
{
    const mica__jinja_entry *entry = &cursor->of.dict->entries[cursor->at];
    const int part = cursor->of.kind == MICA__JINJA_DICT ? MICA__JINJA_VIEW_KEYS : cursor->of.mark;
    if (part != MICA__JINJA_VIEW_ITEMS) {
        *out = part == MICA__JINJA_VIEW_KEYS ? entry->key : entry->value;
        return MICA_OK;
    }
    mica__jinja_value *both = mica__jinja_values(run, 2);
    if (both == NULL)
        return mica__jinja_arena_failure(&run->arena);
    both[0] = entry->key;
    both[1] = entry->value;
    *out = mica__jinja_tuple(both, 2);
    return MICA_OK;
}

mica_status mica__jinja_next(mica__jinja_run *run, mica__jinja_cursor *cursor, mica__jinja_value *out,
                             bool *out_some)
{
    const mica__jinja_value *of = &cursor->of;
    mica_status status = MICA_OK;
    *out_some = false;
    switch (of->kind) {
    case MICA__JINJA_STRING: {
        size_t bytes;
        if (cursor->at >= of->length)
            return MICA_OK;
        (void)mica__jinja_char(of->text + cursor->at, of->length - cursor->at, &bytes);
        *out = mica__jinja_text(of->text + cursor->at, bytes);
        cursor->at += bytes;
        break;
    }
    case MICA__JINJA_LIST:
    case MICA__JINJA_TUPLE:
        if (cursor->at >= of->length)
            return MICA_OK;
        *out = of->items[cursor->at++];
        break;
    case MICA__JINJA_RANGE:
        if (cursor->at >= of->length)
            return MICA_OK;
        *out = mica__jinja_int(mica__jinja_range_at(of->range, cursor->at++));
        break;
    case MICA__JINJA_DICT:
    case MICA__JINJA_VIEW:
        if (cursor->at >= of->dict->count)
            return MICA_OK;
        status = next_entry(run, cursor, out);
        cursor->at++;
        break;
    case MICA__JINJA_ITERATOR:
        if (of->iterator->at >= of->iterator->count)
            return MICA_OK;
        *out = of->iterator->items[of->iterator->at++];
        break;
    default: return MICA_OK;
    }
    *out_some = true;
    return status;
}

mica_status mica__jinja_push(mica__jinja_run *run, mica__jinja_value **items, size_t *count, size_t *capacity,
                             const mica__jinja_value *v)
{
    if (*count == *capacity) {
        const size_t more = *capacity == 0 ? 8 : *capacity * 2;
        mica__jinja_value *grown = mica__jinja_values(run, more);
        if (grown == NULL)
            return mica__jinja_arena_failure(&run->arena);
        if (*count != 0)
            memcpy(grown, *items, *count * sizeof *grown);
        *items = grown;
        *capacity = more;
    }
    (*items)[(*count)++] = *v;
    return mica__jinja_spend(run, 1);
}

mica_status mica__jinja_items(mica__jinja_run *run, const mica__jinja_value *v,
                              const mica__jinja_value **out_items, size_t *out_count)
{
    mica__jinja_cursor cursor;
    mica__jinja_value *items = NULL, item;
    size_t count = 0, capacity = 0;
    bool some = false;
    if (v->kind == MICA__JINJA_LIST || v->kind == MICA__JINJA_TUPLE) {
        *out_items = v->items;
        *out_count = v->length;
        return MICA_OK;
    }
    mica_status status = mica__jinja_walk(run, v, &cursor);
    while (status == MICA_OK) {
        status = mica__jinja_next(run, &cursor, &item, &some);
        if (status != MICA_OK || !some)
            break;
        status = mica__jinja_push(run, &items, &count, &capacity, &item);
    }
    *out_items = items;
    *out_count = count;
    return status;
}

/* ---- equality and order ---- */

static mica_status equal_at(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                            uint32_t depth, bool *out);

static mica_status too_deep(const mica__jinja_run *run)
{
    return mica__jinja_stop(run, MICA_ERR_BUDGET, "a value has more than %d lists inside each other",
                            MICA__JINJA_VALUE_DEPTH);
}

static mica_status equal_items(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                               uint32_t depth, bool *out)
{
    mica_status status = MICA_OK;
    *out = a->length == b->length;
    for (size_t i = 0; status == MICA_OK && *out && i < a->length; i++)
        status = equal_at(run, &a->items[i], &b->items[i], depth + 1, out);
    return status;
}

static mica_status equal_dicts(mica__jinja_run *run, const mica__jinja_dict *a, const mica__jinja_dict *b,
                               uint32_t depth, bool *out)
{
    mica_status status = MICA_OK;
    *out = a->count == b->count;
    for (size_t i = 0; status == MICA_OK && *out && i < a->count; i++) {
        const mica__jinja_value *other = NULL;
        status = mica__jinja_dict_get(run, b, &a->entries[i].key, &other);
        *out = other != NULL;
        if (status == MICA_OK && other != NULL)
            status = equal_at(run, &a->entries[i].value, other, depth + 1, out);
    }
    return status;
}

static bool equal_numbers(const mica__jinja_value *a, const mica__jinja_value *b)
{
    int64_t left, right;
    if (mica__jinja_as_int(a, &left) && mica__jinja_as_int(b, &right))
        return left == right;
    if (a->kind != MICA__JINJA_FLOAT && b->kind != MICA__JINJA_FLOAT)
        return a->mark == b->mark && a->natural == b->natural;
    return mica__jinja_as_double(a) == mica__jinja_as_double(b);
}

static bool equal_ranges(const mica__jinja_value *a, const mica__jinja_value *b)
{
    return a->length == b->length && (a->length == 0 || a->range->start == b->range->start) &&
           (a->length < 2 || a->range->step == b->range->step);
}

static mica_status equal_at(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                            uint32_t depth, bool *out)
{
    const mica_status status = mica__jinja_spend(run, 1);
    if (status != MICA_OK)
        return status;
    if (depth > MICA__JINJA_VALUE_DEPTH)
        return too_deep(run);
    *out = false;
    if (mica__jinja_is_number(a) && mica__jinja_is_number(b)) {
        *out = equal_numbers(a, b);
        return MICA_OK;
    }
    if (a->kind != b->kind)
        return MICA_OK;
    switch (a->kind) {
    case MICA__JINJA_UNDEFINED:
    case MICA__JINJA_NONE: *out = true; return MICA_OK;
    case MICA__JINJA_STRING:
        if (a->length != b->length)
            return MICA_OK;
        *out = memcmp(a->text, b->text, a->length) == 0;
        return mica__jinja_spend_bytes(run, a->length);
    case MICA__JINJA_LIST:
    case MICA__JINJA_TUPLE: return equal_items(run, a, b, depth, out);
    case MICA__JINJA_DICT: return equal_dicts(run, a->dict, b->dict, depth, out);
    case MICA__JINJA_RANGE: *out = equal_ranges(a, b); return MICA_OK;
    default: *out = a->items == b->items; return MICA_OK;
    }
}

mica_status mica__jinja_equal(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                              bool *out_equal)
{
    return equal_at(run, a, b, 0, out_equal);
}

static int order_texts(const mica__jinja_value *a, const mica__jinja_value *b)
{
    const size_t shorter = a->length < b->length ? a->length : b->length;
    const int order = shorter == 0 ? 0 : memcmp(a->text, b->text, shorter);
    return order != 0 ? order : (a->length > b->length) - (a->length < b->length);
}

static int order_numbers(const mica__jinja_value *a, const mica__jinja_value *b)
{
    int64_t left, right;
    if (mica__jinja_as_int(a, &left) && mica__jinja_as_int(b, &right))
        return (left > right) - (left < right);
    const double x = mica__jinja_as_double(a), y = mica__jinja_as_double(b);
    return (x > y) - (x < y);
}

static mica_status order_at(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                            const char *sign, uint32_t depth, int *out_order)
{
    mica_status status = mica__jinja_spend(run, 1);
    if (status != MICA_OK)
        return status;
    if (depth > MICA__JINJA_VALUE_DEPTH)
        return too_deep(run);
    if (mica__jinja_is_number(a) && mica__jinja_is_number(b)) {
        *out_order = order_numbers(a, b);
        return MICA_OK;
    }
    if (a->kind == MICA__JINJA_STRING && b->kind == MICA__JINJA_STRING) {
        *out_order = order_texts(a, b);
        return mica__jinja_spend_bytes(run, a->length < b->length ? a->length : b->length);
    }
    if (a->kind == MICA__JINJA_UNDEFINED || b->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, a->kind == MICA__JINJA_UNDEFINED ? a : b);
    if (a->kind != b->kind || (a->kind != MICA__JINJA_LIST && a->kind != MICA__JINJA_TUPLE))
        return mica__jinja_raise(run, "'%s' not supported between instances of '%s' and '%s'", sign,
                                 mica__jinja_type(a), mica__jinja_type(b));
    for (size_t i = 0; i < a->length && i < b->length; i++) {
        bool equal = false;
        status = equal_at(run, &a->items[i], &b->items[i], depth + 1, &equal);
        if (status != MICA_OK)
            return status;
        if (!equal)
            return order_at(run, &a->items[i], &b->items[i], sign, depth + 1, out_order);
    }
    *out_order = (a->length > b->length) - (a->length < b->length);
    return MICA_OK;
}

mica_status mica__jinja_order(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                              const char *sign, int *out_order)
{
    *out_order = 0;
    return order_at(run, a, b, sign, 0, out_order);
}

mica_status mica__jinja_contains(mica__jinja_run *run, const mica__jinja_value *all,
                                 const mica__jinja_value *one, bool *out_has)
{
    *out_has = false;
    if (all->kind == MICA__JINJA_STRING) {
        int64_t at = -1;
        if (one->kind != MICA__JINJA_STRING)
            return mica__jinja_raise(run, "'in <string>' requires string as left operand, not %s",
                                     mica__jinja_type(one));
        const mica_status found = mica__jinja_search(run, all, one, false, &at);
        *out_has = at >= 0;
        return found;
    }
    if (all->kind == MICA__JINJA_DICT ||
        (all->kind == MICA__JINJA_VIEW && all->mark == MICA__JINJA_VIEW_KEYS)) {
        const mica__jinja_value *value = NULL;
        const mica_status found = mica__jinja_dict_get(run, all->dict, one, &value);
        *out_has = value != NULL;
        return found;
    }
    if (!mica__jinja_is_iterable(all))
        return mica__jinja_raise(run, "argument of type '%s' is not iterable", mica__jinja_type(all));
    mica__jinja_cursor cursor;
    mica__jinja_value item;
    bool some = true;
    mica_status status = mica__jinja_walk(run, all, &cursor);
    while (status == MICA_OK && some && !*out_has) {
        status = mica__jinja_next(run, &cursor, &item, &some);
        if (status == MICA_OK && some)
            status = mica__jinja_equal(run, &item, one, out_has);
    }
    return status;
}
