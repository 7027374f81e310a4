/* access.c: attributes and items, with Jinja's rule that each stands in for the other, inside of the sandbox:
 * nothing but data, listed methods, and never what would change a list or a dict. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text/template/builtin.h"
#include "text/template/chars.h"

static bool is_one_of(const char *const *names, const char *name, size_t length)
{
    for (; *names != NULL; names++)
        if (strlen(*names) == length && memcmp(*names, name, length) == 0)
            return true;
    return false;
}

/* What Python has and the sandbox refuses: methods that change their object, and names with two underscores. */
static bool is_unsafe(uint8_t kind, const char *name, size_t length)
{
    static const char *const of_list[] = {"append", "clear",   "extend", "insert", "pop",
                                          "remove", "reverse", "sort",   NULL};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    if (length > 4 && memcmp(name, "__", 2) == 0 && memcmp(name + length - 2, "__", 2) == 0)
        return true;
    return (kind == MICA__JINJA_LIST && is_one_of(of_list, name, length)) ||
           (kind == MICA__JINJA_DICT && is_one_of(of_dict, name, length));
}

static mica_status bind(mica__jinja_run *run, const mica__jinja_value *self, const mica__jinja_builtin *row,
                        mica__jinja_value *out)
{
    mica__jinja_method *method = mica__jinja_alloc(&run->arena, sizeof *method);
    if (method == NULL)
        return mica__jinja_arena_failure(&run->arena);
    *method = (mica__jinja_method){*self, row};
    *out = (mica__jinja_value){.kind = MICA__JINJA_METHOD, .method = method};
    return MICA_OK;
}

/* A field of a value that is no dict; *out_some says whether there is one. */
static mica_status field(mica__jinja_run *run, const mica__jinja_value *v, const char *name, size_t length,
                         mica__jinja_value *out, bool *out_some)
{
    const mica__jinja_value key = mica__jinja_text(name, length);
    const mica__jinja_value *found = NULL;
    mica_status status = MICA_OK;
    *out_some = false;
    if (v->kind == MICA__JINJA_NAMESPACE) {
        status = mica__jinja_dict_get(run, v->dict, &key, &found);
        if (found != NULL)
            *out = *found;
        *out_some = found != NULL;
    } else if (v->kind == MICA__JINJA_LOOP) {
        return mica__jinja_loop_field(run, v->loop, &key, out, out_some);
    } else if (v->kind == MICA__JINJA_TUPLE && v->mark != 0) {
        const bool grouper = mica__jinja_same_text(&key, "grouper");
        *out_some = grouper || mica__jinja_same_text(&key, "list");
        if (*out_some)
            *out = v->items[grouper ? 0 : 1];
    } else if (v->kind == MICA__JINJA_MACRO && mica__jinja_same_text(&key, "name")) {
        *out = v->macro->node->value;
        *out_some = true;
    } else if (v->kind == MICA__JINJA_CYCLER && mica__jinja_same_text(&key, "current")) {
        *out = v->iterator->items[v->iterator->at];
        *out_some = true;
    }
    return status;
}

mica_status mica__jinja_attribute(mica__jinja_run *run, const mica__jinja_value *v, const char *name,
                                  size_t length, const mica__jinja_builtin **out_method,
                                  mica__jinja_value *out)
{
    bool some = false;
    if (v->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, v);
    mica_status status = field(run, v, name, length, out, &some);
    if (status != MICA_OK || some)
        return status;
    const mica__jinja_builtin *method = mica__jinja_find_method(v->kind, name, length);
    if (method != NULL) {
        if (out_method == NULL)
            return bind(run, v, method, out);
        *out_method = method;
        return MICA_OK;
    }
    *out = mica__jinja_missing(is_unsafe(v->kind, name, length) ? MICA__JINJA_UNSAFE
                                                                : MICA__JINJA_MISSING_ATTRIBUTE,
                               v->kind, name, length);
    if (v->kind != MICA__JINJA_DICT || out->mark == MICA__JINJA_UNSAFE)
        return MICA_OK;
    const mica__jinja_value key = mica__jinja_text(name, length);
    const mica__jinja_value *found = NULL;
    status = mica__jinja_dict_get(run, v->dict, &key, &found);
    if (found != NULL)
        *out = *found;
    return status;
}

/* The sentence of an item that is not there names its key. */
static mica_status missing_item(mica__jinja_run *run, const mica__jinja_value *v,
                                const mica__jinja_value *key, mica__jinja_value *out)
{
    char number[24];
    mica__jinja_value name = mica__jinja_text("", 0);
    int64_t index;
    if (mica__jinja_as_int(key, &index)) {
        const int length = snprintf(number, sizeof number, "%" PRId64, index);
        char *text = mica__jinja_alloc(&run->arena, (size_t)length);
        if (text == NULL)
            return mica__jinja_arena_failure(&run->arena);
        memcpy(text, number, (size_t)length);
        name = mica__jinja_text(text, (size_t)length);
    } else {
        const size_t mark = run->out_length;
        mica_status status = mica__jinja_put_repr(run, key);
        if (status == MICA_OK)
            status = mica__jinja_cut(run, mark, &name);
        if (status != MICA_OK)
            return status;
    }
    *out = mica__jinja_missing(MICA__JINJA_MISSING_ITEM, v->kind, name.text, name.length);
    return MICA_OK;
}

/* An item by number; *out_some says whether there is one. */
static mica_status indexed(mica__jinja_run *run, const mica__jinja_value *v, int64_t index,
                           mica__jinja_value *out, bool *out_some)
{
    size_t length = v->length;
    mica_status status = MICA_OK;
    *out_some = false;
    if (v->kind == MICA__JINJA_STRING)
        status = mica__jinja_length(run, v, &length);
    if (index < 0)
        index += (int64_t)length;
    if (status != MICA_OK || index < 0 || index >= (int64_t)length)
        return status;
    *out_some = true;
    if (v->kind == MICA__JINJA_STRING) {
        if (length != v->length)
            status = mica__jinja_spend(run, v->length / 16);
        const size_t at =
            length == v->length ? (size_t)index : mica__jinja_char_offset(v->text, v->length, (size_t)index);
        size_t bytes;
        (void)mica__jinja_char(v->text + at, v->length - at, &bytes);
        *out = mica__jinja_text(v->text + at, bytes);
    } else if (v->kind == MICA__JINJA_RANGE) {
        *out = mica__jinja_int(mica__jinja_range_at(v->range, (uint64_t)index));
    } else {
        *out = v->items[index];
    }
    return status;
}

mica_status mica__jinja_item(mica__jinja_run *run, const mica__jinja_value *v, const mica__jinja_value *key,
                             mica__jinja_value *out)
{
    mica_status status = MICA_OK;
    int64_t index;
    bool some = false;
    if (v->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, v);
    if (v->kind == MICA__JINJA_DICT && mica__jinja_is_key(key)) {
        const mica__jinja_value *found = NULL;
        status = mica__jinja_dict_get(run, v->dict, key, &found);
        if (found != NULL)
            *out = *found;
        some = found != NULL;
    } else if ((v->kind == MICA__JINJA_STRING || v->kind == MICA__JINJA_LIST ||
                v->kind == MICA__JINJA_TUPLE || v->kind == MICA__JINJA_RANGE) &&
               mica__jinja_as_int(key, &index)) {
        status = indexed(run, v, index, out, &some);
    }
    if (status != MICA_OK || some)
        return status;
    return key->kind == MICA__JINJA_STRING ? mica__jinja_attribute(run, v, key->text, key->length, NULL, out)
                                           : missing_item(run, v, key, out);
}

mica_status mica__jinja_path(mica__jinja_run *run, const mica__jinja_value *v, const mica__jinja_value *path,
                             mica__jinja_value *out)
{
    *out = *v;
    MICA__TRY(mica__jinja_spend(run, 1));
    if (path->kind != MICA__JINJA_STRING)
        return mica__jinja_item(run, v, path, out);
    mica_status status = mica__jinja_spend_chars(run, path->length);
    for (size_t at = 0; status == MICA_OK && at <= path->length;) {
        const char *dot = path->length == at ? NULL : memchr(path->text + at, '.', path->length - at);
        const size_t end = dot == NULL ? path->length : (size_t)(dot - path->text);
        mica__jinja_value key = mica__jinja_text(path->text + at, end - at);
        bool digits = end > at;
        for (size_t i = at; i < end; i++)
            digits = digits && path->text[i] >= '0' && path->text[i] <= '9';
        int64_t index;
        if (digits && mica__jinja_parse_int(key.text, key.length, 10, &index))
            key = mica__jinja_int(index);
        const mica__jinja_value from = *out;
        status = mica__jinja_item(run, &from, &key, out);
        at = end + 1;
    }
    return status;
}
