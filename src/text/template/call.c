/* call.c: calls: finding a row by its name, giving arguments to parameters, calling what can be called. */
#include <string.h>

#include "text/template/builtin.h"

const mica__jinja_builtin *mica__jinja_find(const mica__jinja_builtin *table, size_t count, const char *name,
                                            size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0)
            return &table[i];
    return NULL;
}

const mica__jinja_builtin *mica__jinja_find_filter(const char *name, size_t length)
{
    const mica__jinja_builtin *row =
        mica__jinja_find(mica__jinja_text_filters, mica__jinja_text_filter_count, name, length);
    if (row == NULL)
        row = mica__jinja_find(mica__jinja_list_filters, mica__jinja_list_filter_count, name, length);
    return row != NULL
               ? row
               : mica__jinja_find(mica__jinja_pick_filters, mica__jinja_pick_filter_count, name, length);
}

const mica__jinja_builtin *mica__jinja_find_test(const char *name, size_t length)
{
    return mica__jinja_find(mica__jinja_tests, mica__jinja_test_count, name, length);
}

const mica__jinja_builtin *mica__jinja_find_global(const char *name, size_t length)
{
    return mica__jinja_find(mica__jinja_globals, mica__jinja_global_count, name, length);
}

/* Calls `visit` for every name between blanks of a row's parameters; the number of the one that is `name`, or -1. */
static int parameter_index(const char *parameters, const char *name, size_t length)
{
    int index = 0;
    for (const char *at = parameters; *at != '\0'; index++) {
        const size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, name, length) == 0)
            return index;
        at += word + strspn(at + word, " ");
    }
    return -1;
}

static size_t parameter_count(const char *parameters)
{
    size_t count = *parameters == '\0' ? 0 : 1;
    for (const char *at = parameters; *at != '\0'; at++)
        count += *at == ' ';
    return count;
}

static mica_status bind_arguments(const mica__jinja_run *run, mica__jinja_call *call)
{
    const mica__jinja_arguments *all = call->all;
    const char *name = call->row->name;
    const size_t most = parameter_count(call->row->parameters);
    for (size_t i = 0; i < MICA__JINJA_MOST_PARAMETERS; i++)
        call->argument[i] = (mica__jinja_value){.kind = MICA__JINJA_UNSET};
    for (size_t i = 0; i < all->count; i++) {
        const mica__jinja_argument *given = &all->items[i];
        const int index = given->name == NULL
                              ? (i < most ? (int)i : -1)
                              : parameter_index(call->row->parameters, given->name, given->name_length);
        if (index < 0 && given->name == NULL)
            return mica__jinja_raise(run, "%s() takes at most %zu arguments, %zu were given", name, most,
                                     all->placed);
        if (index < 0)
            return mica__jinja_raise(run, "%s() has no parameter '%.*s'", name,
                                     given->name_length > 60 ? 60 : (int)given->name_length, given->name);
        if (call->argument[index].kind != MICA__JINJA_UNSET)
            return mica__jinja_raise(run, "%s() was given '%.*s' twice", name, (int)given->name_length,
                                     given->name);
        call->argument[index] = given->value;
    }
    for (size_t i = 0; i < call->row->required; i++)
        if (call->argument[i].kind == MICA__JINJA_UNSET)
            return mica__jinja_raise(run, "%s() needs %u arguments, %zu were given", name,
                                     call->row->required, all->count);
    return MICA_OK;
}

mica_status mica__jinja_invoke(mica__jinja_run *run, const mica__jinja_builtin *row,
                               const mica__jinja_value *self, const mica__jinja_arguments *arguments,
                               mica__jinja_value *out)
{
    mica__jinja_call call;
    mica_status status = mica__jinja_spend(run, 1);
    if (status != MICA_OK)
        return status;
    if (row->function == NULL)
        return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED, "\"%s\" is not known here", row->name);
    call.row = row;
    call.self = *self;
    call.all = arguments;
    if (row->parameters[0] != '*')
        status = bind_arguments(run, &call);
    return status != MICA_OK ? status : row->function(run, &call, out);
}

/* A joiner gives nothing at first and then its text. */
static mica_status call_joiner(const mica__jinja_value *joiner, mica__jinja_value *out)
{
    *out = joiner->iterator->at == 0 ? mica__jinja_text("", 0) : joiner->iterator->items[0];
    joiner->iterator->at = 1;
    return MICA_OK;
}

mica_status mica__jinja_call_value(mica__jinja_run *run, const mica__jinja_value *callee,
                                   const mica__jinja_arguments *arguments, mica__jinja_value *out)
{
    const mica__jinja_value none = mica__jinja_none();
    switch (callee->kind) {
    case MICA__JINJA_UNDEFINED: return mica__jinja_raise_undefined(run, callee);
    case MICA__JINJA_FUNCTION: return mica__jinja_invoke(run, callee->builtin, &none, arguments, out);
    case MICA__JINJA_METHOD:
        return mica__jinja_invoke(run, callee->method->builtin, &callee->method->self, arguments, out);
    case MICA__JINJA_MACRO: return mica__jinja_call_macro(run, callee->macro, arguments, out);
    case MICA__JINJA_JOINER: return call_joiner(callee, out);
    case MICA__JINJA_LOOP:
        return mica__jinja_raise(run, "The loop must have the 'recursive' marker to be called recursively.");
    default: return mica__jinja_raise(run, "'%s' object is not callable", mica__jinja_type(callee));
    }
}

bool mica__jinja_is_given(const mica__jinja_call *call, size_t index)
{
    return call->argument[index].kind != MICA__JINJA_UNSET && call->argument[index].kind != MICA__JINJA_NONE;
}

mica_status mica__jinja_take_int(const mica__jinja_run *run, const mica__jinja_call *call, size_t index,
                                 int64_t *out)
{
    const mica__jinja_value *v = &call->argument[index];
    if (v->kind == MICA__JINJA_UNSET || mica__jinja_as_int(v, out))
        return MICA_OK;
    if (v->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, v);
    return mica__jinja_raise(run, "%s(): argument %zu must be an integer, not %s", call->row->name, index + 1,
                             mica__jinja_type(v));
}

mica_status mica__jinja_take_text(const mica__jinja_run *run, const mica__jinja_call *call, size_t index,
                                  mica__jinja_value *out)
{
    const mica__jinja_value *v = &call->argument[index];
    if (v->kind == MICA__JINJA_UNSET)
        return MICA_OK;
    if (v->kind != MICA__JINJA_STRING)
        return mica__jinja_raise(run, "%s(): argument %zu must be a str, not %s", call->row->name, index + 1,
                                 mica__jinja_type(v));
    *out = *v;
    return MICA_OK;
}

bool mica__jinja_take_truth(const mica__jinja_call *call, size_t index)
{
    return call->argument[index].kind != MICA__JINJA_UNSET && mica__jinja_truth(&call->argument[index]);
}
