/* print.c: values as text: str() and repr() of Python. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text/template/builtin.h"
#include "text/template/chars.h"

#define FLOAT_STEPS 16 /* to find the shortest text of one */
#define INT_STEPS 2

static mica_status repr_at(mica__jinja_run *run, const mica__jinja_value *v, uint32_t depth);

static mica_status put_number(mica__jinja_run *run, const mica__jinja_value *v)
{
    char text[MICA__JINJA_NUMBER_BYTES];
    if (v->kind == MICA__JINJA_BOOL)
        return mica__jinja_puts(run, v->truth ? "True" : "False");
    MICA__TRY(mica__jinja_spend(run, v->kind == MICA__JINJA_FLOAT ? FLOAT_STEPS : INT_STEPS));
    if (v->kind == MICA__JINJA_FLOAT)
        return mica__jinja_put(run, text, mica__jinja_real_text(v->real, text));
    const int length = v->mark != 0 ? snprintf(text, sizeof text, "%" PRIu64, v->natural)
                                    : snprintf(text, sizeof text, "%" PRId64, v->integer);
    return mica__jinja_put(run, text, (size_t)length);
}

/* One character of a quoted text. */
static mica_status put_quoted_char(mica__jinja_run *run, uint32_t code, char quote)
{
    static const char names[] = "\\nrt", values[] = "\\\n\r\t";
    char text[12] = "";
    const char *found = code != 0 && code < 0x80 ? strchr(values, (int)code) : NULL;
    if (found != NULL || code == (uint32_t)quote)
        snprintf(text, sizeof text, "\\%c", found != NULL ? names[found - values] : quote);
    else if (mica__jinja_is_printable(code))
        return mica__jinja_put_char(run, code);
    else if (mica__jinja_spend(run, INT_STEPS) == MICA_OK) /* else the put below fails too */
        snprintf(text, sizeof text,
                 code < 0x100     ? "\\x%02x"
                 : code < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                 (unsigned)code);
    return mica__jinja_puts(run, text);
}

static mica_status put_quoted(mica__jinja_run *run, const mica__jinja_value *v)
{
    const bool apostrophe = v->length != 0 && memchr(v->text, '\'', v->length) != NULL;
    const char quote = apostrophe && memchr(v->text, '"', v->length) == NULL ? '"' : '\'';
    mica_status status = mica__jinja_put(run, &quote, 1);
    for (size_t at = 0, bytes; status == MICA_OK && at < v->length; at += bytes)
        status = put_quoted_char(run, mica__jinja_char(v->text + at, v->length - at, &bytes), quote);
    if (status == MICA_OK)
        status = mica__jinja_spend_chars(run, v->length);
    return status != MICA_OK ? status : mica__jinja_put(run, &quote, 1);
}

static mica_status put_items(mica__jinja_run *run, const mica__jinja_value *items, size_t count,
                             uint32_t depth)
{
    mica_status status = MICA_OK;
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        if (i != 0)
            status = mica__jinja_puts(run, ", ");
        if (status == MICA_OK)
            status = repr_at(run, &items[i], depth + 1);
    }
    return status;
}

static mica_status put_entries(mica__jinja_run *run, const mica__jinja_value *v, uint32_t depth)
{
    const int part = v->kind == MICA__JINJA_VIEW ? v->mark : -1; /* -1: key: value */
    mica_status status = MICA_OK;
    for (size_t i = 0; status == MICA_OK && i < v->dict->count; i++) {
        const mica__jinja_entry *entry = &v->dict->entries[i];
        if (i != 0)
            status = mica__jinja_puts(run, ", ");
        if (status == MICA_OK && part == MICA__JINJA_VIEW_ITEMS)
            status = mica__jinja_puts(run, "(");
        if (status == MICA_OK && part != MICA__JINJA_VIEW_VALUES)
            status = repr_at(run, &entry->key, depth + 1);
        if (status == MICA_OK && (part == -1 || part == MICA__JINJA_VIEW_ITEMS))
            status = mica__jinja_puts(run, part == -1 ? ": " : ", ");
        if (status == MICA_OK && part != MICA__JINJA_VIEW_KEYS)
            status = repr_at(run, &entry->value, depth + 1);
        if (status == MICA_OK && part == MICA__JINJA_VIEW_ITEMS)
            status = mica__jinja_puts(run, ")");
    }
    return status;
}

static mica_status put_range(mica__jinja_run *run, const mica__jinja_range *range)
{
    char text[96];
    if (range->step == 1)
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", range->start, range->stop);
    else
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", range->start, range->stop,
                 range->step);
    return mica__jinja_puts(run, text);
}

static mica_status put_container(mica__jinja_run *run, const mica__jinja_value *v, uint32_t depth)
{
    static const char *const opening[] = {
        [MICA__JINJA_LIST] = "[", [MICA__JINJA_TUPLE] = "(", [MICA__JINJA_DICT] = "{"};
    static const char *const closing[] = {
        [MICA__JINJA_LIST] = "]", [MICA__JINJA_TUPLE] = ")", [MICA__JINJA_DICT] = "}"};
    mica_status status;
    if (v->kind == MICA__JINJA_NAMESPACE || v->kind == MICA__JINJA_VIEW) {
        status =
            mica__jinja_puts(run, v->kind == MICA__JINJA_NAMESPACE ? "<Namespace {" : mica__jinja_type(v));
        if (status == MICA_OK && v->kind == MICA__JINJA_VIEW)
            status = mica__jinja_puts(run, "([");
    } else {
        status = mica__jinja_puts(run, opening[v->kind]);
    }
    if (status == MICA_OK)
        status = v->kind == MICA__JINJA_LIST || v->kind == MICA__JINJA_TUPLE
                     ? put_items(run, v->items, v->length, depth)
                     : put_entries(run, v, depth);
    if (status == MICA_OK && v->kind == MICA__JINJA_TUPLE && v->length == 1)
        status = mica__jinja_puts(run, ",");
    if (status != MICA_OK)
        return status;
    return mica__jinja_puts(run, v->kind == MICA__JINJA_NAMESPACE ? "}>"
                                 : v->kind == MICA__JINJA_VIEW    ? "])"
                                                                  : closing[v->kind]);
}

/* What has no text of its own in Python but an address, which no two runs share. */
static mica_status put_object(mica__jinja_run *run, const mica__jinja_value *v)
{
    mica_status status = mica__jinja_puts(run, "<");
    if (status == MICA_OK)
        status = mica__jinja_puts(run, mica__jinja_type(v));
    if (status == MICA_OK && v->kind == MICA__JINJA_MACRO)
        status = mica__jinja_puts(run, " ");
    if (status == MICA_OK && v->kind == MICA__JINJA_MACRO)
        status = put_quoted(run, &v->macro->node->value);
    return status != MICA_OK ? status
                             : mica__jinja_puts(run, v->kind == MICA__JINJA_MACRO ? ">" : " object>");
}

static mica_status repr_at(mica__jinja_run *run, const mica__jinja_value *v, uint32_t depth)
{
    mica_status status = mica__jinja_spend(run, 1);
    if (status != MICA_OK)
        return status;
    if (depth > MICA__JINJA_VALUE_DEPTH)
        return mica__jinja_stop(run, MICA_ERR_BUDGET, "a value has more than %d lists inside each other",
                                MICA__JINJA_VALUE_DEPTH);
    switch (v->kind) {
    case MICA__JINJA_UNDEFINED: return mica__jinja_puts(run, "Undefined");
    case MICA__JINJA_NONE: return mica__jinja_puts(run, "None");
    case MICA__JINJA_BOOL:
    case MICA__JINJA_INT:
    case MICA__JINJA_FLOAT: return put_number(run, v);
    case MICA__JINJA_STRING:
        if (v->mark != 0)
            status = mica__jinja_puts(run, "Markup(");
        if (status == MICA_OK)
            status = put_quoted(run, v);
        return status != MICA_OK || v->mark == 0 ? status : mica__jinja_puts(run, ")");
    case MICA__JINJA_RANGE: return put_range(run, v->range);
    case MICA__JINJA_LIST:
    case MICA__JINJA_TUPLE:
    case MICA__JINJA_DICT:
    case MICA__JINJA_VIEW:
    case MICA__JINJA_NAMESPACE: return put_container(run, v, depth);
    default: return put_object(run, v);
    }
}

mica_status mica__jinja_put_repr(mica__jinja_run *run, const mica__jinja_value *v)
{
    return repr_at(run, v, 0);
}

mica_status mica__jinja_put_str(mica__jinja_run *run, const mica__jinja_value *v)
{
    if (v->kind == MICA__JINJA_STRING)
        return mica__jinja_put(run, v->text, v->length);
    return v->kind == MICA__JINJA_UNDEFINED ? MICA_OK : repr_at(run, v, 0);
}

mica_status mica__jinja_str(mica__jinja_run *run, const mica__jinja_value *v, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    if (v->kind == MICA__JINJA_STRING) {
        *out = mica__jinja_text(v->text, v->length);
        return MICA_OK;
    }
    const mica_status status = mica__jinja_put_str(run, v);
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}
