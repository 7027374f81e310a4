/* methods.c: the methods of dicts, lists, tuples and numbers, and the table of all methods. Methods that would
 * change their object are not here: the sandbox has none. */
#include "text/template/builtin.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static mica_status dict_get(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *found = NULL;
    const mica_status status = mica__jinja_dict_get(run, call->self.dict, &call->argument[0], &found);
    *out = found != NULL                                 ? *found
           : call->argument[1].kind == MICA__JINJA_UNSET ? mica__jinja_none()
                                                         : call->argument[1];
    return status;
}

/* keys, values, items: variant says which. */
static mica_status dict_view(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    (void)run;
    *out = (mica__jinja_value){.kind = MICA__JINJA_VIEW, .mark = call->row->variant, .dict = call->self.dict};
    return MICA_OK;
}

/* Nothing changes it, so the copy may be the same. */
static mica_status method_copy(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    (void)run;
    *out = call->self;
    return MICA_OK;
}

/* count, index (variant 1) */
static mica_status list_find(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    int64_t count = 0;
    mica_status status = MICA_OK;
    for (size_t i = 0; status == MICA_OK && i < call->self.length; i++) {
        bool equal = false;
        status = mica__jinja_equal(run, &call->self.items[i], &call->argument[0], &equal);
        if (equal && call->row->variant != 0) {
            *out = mica__jinja_int((int64_t)i);
            return status;
        }
        count += equal;
    }
    *out = mica__jinja_int(count);
    return status == MICA_OK && call->row->variant != 0
               ? mica__jinja_raise(run, "the value is not in the list")
               : status;
}

static mica_status real_is_integer(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    (void)run;
    const double real = call->self.real;
    *out = mica__jinja_bool(real - real == 0 &&
                            (real >= 9e15 || real <= -9e15 || (double)(int64_t)real == real));
    return MICA_OK;
}

/* next, reset (variant 1) of a cycler */
static mica_status cycler_step(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    (void)run;
    mica__jinja_iterator *cycle = call->self.iterator;
    *out = call->row->variant != 0 ? mica__jinja_none() : cycle->items[cycle->at];
    cycle->at = call->row->variant != 0 ? 0 : (cycle->at + 1) % cycle->count;
    return MICA_OK;
}

static const mica__jinja_builtin dict_methods[] = {
    {"copy", method_copy, "", 0, 0},
    {"fromkeys", NULL, "*", 0, 0},
    {"get", dict_get, "key default", 1, 0},
    {"items", dict_view, "", 0, MICA__JINJA_VIEW_ITEMS},
    {"keys", dict_view, "", 0, MICA__JINJA_VIEW_KEYS},
    {"values", dict_view, "", 0, MICA__JINJA_VIEW_VALUES},
};

static const mica__jinja_builtin list_methods[] = {
    {"copy", method_copy, "", 0, 0},
    {"count", list_find, "value", 1, 0},
    {"index", list_find, "value", 1, 1},
};

static const mica__jinja_builtin float_methods[] = {{"is_integer", real_is_integer, "", 0, 0}};

static const mica__jinja_builtin cycler_methods[] = {
    {"next", cycler_step, "", 0, 0},
    {"reset", cycler_step, "", 0, 1},
};

const mica__jinja_builtin *mica__jinja_find_method(uint8_t kind, const char *name, size_t length)
{
    switch (kind) {
    case MICA__JINJA_STRING:
        return mica__jinja_find(mica__jinja_string_methods, mica__jinja_string_method_count, name, length);
    case MICA__JINJA_DICT: return mica__jinja_find(dict_methods, COUNT(dict_methods), name, length);
    case MICA__JINJA_LIST: return mica__jinja_find(list_methods, COUNT(list_methods), name, length);
    case MICA__JINJA_TUPLE: return mica__jinja_find(list_methods + 1, COUNT(list_methods) - 1, name, length);
    case MICA__JINJA_FLOAT: return mica__jinja_find(float_methods, COUNT(float_methods), name, length);
    case MICA__JINJA_CYCLER: return mica__jinja_find(cycler_methods, COUNT(cycler_methods), name, length);
    case MICA__JINJA_LOOP:
        return mica__jinja_find(mica__jinja_loop_methods, mica__jinja_loop_method_count, name, length);
    default: return NULL;
    }
}
