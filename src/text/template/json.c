/* json.c: JSON in, as the variables of a template, and out, as Python's json.dumps writes it. */
#include <string.h>

#include "base/json/json.h"
#include "base/sort.h"
#include "text/template/builtin.h"
#include "text/template/chars.h"

/* ---- in ---- */

static mica__jinja_value from_leaf(const mica__json_node *node)
{
    switch (node->type) {
    case MICA__JSON_FALSE:
    case MICA__JSON_TRUE: return mica__jinja_bool(node->type == MICA__JSON_TRUE);
    case MICA__JSON_STRING: return mica__jinja_text(node->string.data, node->string.length);
    case MICA__JSON_NUMBER:
        if (node->exact == MICA__JSON_EXACT_NONE)
            return mica__jinja_float(node->number.real);
        if (node->exact == MICA__JSON_EXACT_UINT && node->number.uint_value > (uint64_t)INT64_MAX)
            return (mica__jinja_value){
                .kind = MICA__JINJA_INT, .mark = 1, .natural = node->number.uint_value};
        return mica__jinja_int(node->number.int_value);
    default: return mica__jinja_none();
    }
}

/* Recursion is as deep as the document, which its reader has limited. */
static mica_status from_node(mica__jinja_run *run, const mica__json *json, const mica__json_node *node,
                             mica__jinja_value *out)
{
    const mica__json_node *child = mica__json_first(node);
    mica__jinja_value *items = NULL;
    mica__jinja_dict *dict = NULL;
    mica_status status = mica__jinja_spend_bytes(run, MICA__JINJA_STEP_BYTES);
    if (status != MICA_OK)
        return status;
    if (node->type < MICA__JSON_ARRAY) {
        *out = from_leaf(node);
        return MICA_OK;
    }
    if (node->type == MICA__JSON_ARRAY) {
        items = mica__jinja_values(run, node->child_count);
        if (items == NULL)
            return mica__jinja_arena_failure(&run->arena);
        *out = mica__jinja_list(items, node->child_count);
    } else {
        status = mica__jinja_dict_new(run, node->child_count, &dict);
        *out = (mica__jinja_value){.kind = MICA__JINJA_DICT, .dict = dict};
    }
    for (size_t i = 0; status == MICA_OK && child != NULL; child = mica__json_next(json, child), i++) {
        mica__jinja_value value;
        status = from_node(run, json, child, &value);
        if (status != MICA_OK || dict == NULL) {
            if (items != NULL)
                items[i] = value;
            continue;
        }
        const mica__jinja_value key = mica__jinja_text(child->key, child->key_length);
        status = mica__jinja_dict_put(run, dict, &key, &value);
    }
    return status;
}

mica_status mica__jinja_from_json(mica__jinja_run *run, const struct mica__json *json, mica__jinja_value *out)
{
    return from_node(run, json, mica__json_root(json), out);
}

/* ---- out ---- */

static mica_status json_at(mica__jinja_run *run, const mica__jinja_value *v,
                           const mica__jinja_json_style *style, uint32_t depth);

static size_t write_unit(uint32_t unit, char *out)
{
    static const char hex[] = "0123456789abcdef";
    out[0] = '\\';
    out[1] = 'u';
    for (int i = 0; i < 4; i++)
        out[2 + i] = hex[unit >> (12 - 4 * i) & 15];
    return 6;
}

/* A character that is not written as it is. */
static mica_status put_json_char(mica__jinja_run *run, uint32_t code)
{
    static const char names[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t";
    char text[12] = {'\\'};
    const char *found = code != 0 && code < 0x80 ? strchr(values, (int)code) : NULL;
    size_t length = 2;
    if (found != NULL)
        text[1] = names[found - values];
    else if (code < 0x10000)
        length = write_unit(code, text);
    else
        length = write_unit(0xd800 + ((code - 0x10000) >> 10), text) +
                 write_unit(0xdc00 + (code & 0x3ff), text + 6);
    return mica__jinja_put(run, text, length);
}

/* How many bytes at `at` are written as they are. */
static size_t plain_run(const mica__jinja_value *v, size_t at, bool ascii)
{
    size_t end = at;
    while (end < v->length && (unsigned char)v->text[end] >= 0x20 && v->text[end] != '"' &&
           v->text[end] != '\\' && (!ascii || (unsigned char)v->text[end] < 0x7f))
        end++;
    return end - at;
}

static mica_status put_json_text(mica__jinja_run *run, const mica__jinja_value *v, bool ascii)
{
    mica_status status = mica__jinja_puts(run, "\"");
    if (status == MICA_OK)
        status = mica__jinja_spend_bytes(run, v->length);
    for (size_t at = 0, bytes; status == MICA_OK && at < v->length; at += bytes) {
        bytes = plain_run(v, at, ascii);
        status = bytes != 0 ? mica__jinja_put(run, v->text + at, bytes)
                            : put_json_char(run, mica__jinja_char(v->text + at, v->length - at, &bytes));
    }
    return status != MICA_OK ? status : mica__jinja_puts(run, "\"");
}

static mica_status put_json_number(mica__jinja_run *run, const mica__jinja_value *v)
{
    if (v->kind == MICA__JINJA_BOOL)
        return mica__jinja_puts(run, v->truth ? "true" : "false");
    if (v->kind == MICA__JINJA_FLOAT && v->real != v->real)
        return mica__jinja_puts(run, "NaN");
    if (v->kind == MICA__JINJA_FLOAT && v->real - v->real != 0)
        return mica__jinja_puts(run, v->real < 0 ? "-Infinity" : "Infinity");
    return mica__jinja_put_str(run, v);
}

/* A key is written as a string, whatever it is. */
static mica_status put_json_key(mica__jinja_run *run, const mica__jinja_value *key,
                                const mica__jinja_json_style *style)
{
    if (key->kind == MICA__JINJA_STRING)
        return put_json_text(run, key, style->ascii);
    if (key->kind != MICA__JINJA_NONE && !mica__jinja_is_number(key))
        return mica__jinja_raise(run, "keys must be str, int, float, bool or None, not %s",
                                 mica__jinja_type(key));
    mica_status status = mica__jinja_puts(run, "\"");
    if (status == MICA_OK)
        status = key->kind == MICA__JINJA_NONE ? mica__jinja_puts(run, "null") : put_json_number(run, key);
    return status != MICA_OK ? status : mica__jinja_puts(run, "\"");
}

static mica_status put_break(mica__jinja_run *run, const mica__jinja_json_style *style, uint32_t depth)
{
    if (style->indent == NULL)
        return MICA_OK;
    mica_status status = mica__jinja_puts(run, "\n");
    if (style->indent->kind != MICA__JINJA_STRING) {
        int64_t blanks = 0;
        (void)mica__jinja_as_int(style->indent, &blanks);
        if (blanks < 0)
            blanks = 0;
        if (blanks > 1000)
            return mica__jinja_raise(run, "tojson: an indent of more than 1000 blanks");
        return status != MICA_OK ? status : mica__jinja_put_many(run, ' ', (size_t)blanks * depth);
    }
    for (uint32_t i = 0; status == MICA_OK && i < depth; i++)
        status = mica__jinja_put(run, style->indent->text, style->indent->length);
    return status;
}

/* Before an item: a comma unless it is the first, and a new line where there are lines. */
static mica_status put_separator(mica__jinja_run *run, const mica__jinja_json_style *style, uint32_t depth,
                                 bool first)
{
    const mica_status status = first ? MICA_OK : mica__jinja_put(run, style->comma.text, style->comma.length);
    return status != MICA_OK ? status : put_break(run, style, depth);
}

/* An entry while they are sorted. */
typedef struct ordered_entry {
    mica__jinja_entry entry;
    mica__jinja_run *run;
    mica_status *status; /* the first failure of a comparison; nothing is compared after it */
} ordered_entry;

static int compare_entries(const void *a, const void *b)
{
    const ordered_entry *left = a, *right = b;
    int order = 0;
    if (*left->status == MICA_OK)
        *left->status = mica__jinja_order(left->run, &left->entry.key, &right->entry.key, "<", &order);
    return order;
}

/* The entries in the order in which they are written. */
static mica_status ordered(mica__jinja_run *run, const mica__jinja_dict *dict, bool sort,
                           const mica__jinja_entry **out)
{
    mica_status compared = MICA_OK;
    *out = dict->entries;
    if (!sort || dict->count < 2)
        return MICA_OK;
    ordered_entry *list = mica__jinja_calloc(&run->arena, dict->count, sizeof *list);
    mica__jinja_entry *copy =
        list == NULL ? NULL : mica__jinja_calloc(&run->arena, dict->count, sizeof *copy);
    if (copy == NULL)
        return mica__jinja_arena_failure(&run->arena);
    for (size_t i = 0; i < dict->count; i++)
        list[i] = (ordered_entry){dict->entries[i], run, &compared};
    MICA__TRY(mica__sort(list, dict->count, sizeof *list, compare_entries));
    for (size_t i = 0; i < dict->count; i++)
        copy[i] = list[i].entry;
    *out = copy;
    return compared;
}

static mica_status put_json_dict(mica__jinja_run *run, const mica__jinja_dict *dict,
                                 const mica__jinja_json_style *style, uint32_t depth)
{
    const mica__jinja_entry *entries = NULL;
    mica_status status = ordered(run, dict, style->sort, &entries);
    if (status == MICA_OK)
        status = mica__jinja_puts(run, "{");
    for (size_t i = 0; status == MICA_OK && i < dict->count; i++) {
        status = put_separator(run, style, depth + 1, i == 0);
        if (status == MICA_OK)
            status = put_json_key(run, &entries[i].key, style);
        if (status == MICA_OK)
            status = mica__jinja_put(run, style->colon.text, style->colon.length);
        if (status == MICA_OK)
            status = json_at(run, &entries[i].value, style, depth + 1);
    }
    if (status == MICA_OK && dict->count != 0)
        status = put_break(run, style, depth);
    return status != MICA_OK ? status : mica__jinja_puts(run, "}");
}

static mica_status put_json_list(mica__jinja_run *run, const mica__jinja_value *v,
                                 const mica__jinja_json_style *style, uint32_t depth)
{
    mica_status status = mica__jinja_puts(run, "[");
    for (size_t i = 0; status == MICA_OK && i < v->length; i++) {
        status = put_separator(run, style, depth + 1, i == 0);
        if (status == MICA_OK)
            status = json_at(run, &v->items[i], style, depth + 1);
    }
    if (status == MICA_OK && v->length != 0)
        status = put_break(run, style, depth);
    return status != MICA_OK ? status : mica__jinja_puts(run, "]");
}

static mica_status json_at(mica__jinja_run *run, const mica__jinja_value *v,
                           const mica__jinja_json_style *style, uint32_t depth)
{
    const mica_status status = mica__jinja_spend(run, 1);
    if (status != MICA_OK)
        return status;
    if (depth > MICA__JINJA_VALUE_DEPTH)
        return mica__jinja_stop(run, MICA_ERR_BUDGET, "tojson: more than %d lists inside each other",
                                MICA__JINJA_VALUE_DEPTH);
    switch (v->kind) {
    case MICA__JINJA_NONE: return mica__jinja_puts(run, "null");
    case MICA__JINJA_BOOL:
    case MICA__JINJA_INT:
    case MICA__JINJA_FLOAT: return put_json_number(run, v);
    case MICA__JINJA_STRING: return put_json_text(run, v, style->ascii);
    case MICA__JINJA_LIST:
    case MICA__JINJA_TUPLE: return put_json_list(run, v, style, depth);
    case MICA__JINJA_DICT: return put_json_dict(run, v->dict, style, depth);
    default: return mica__jinja_raise(run, "Object of type %s is not JSON serializable", mica__jinja_type(v));
    }
}

mica_status mica__jinja_put_json(mica__jinja_run *run, const mica__jinja_value *v,
                                 const mica__jinja_json_style *style)
{
    return json_at(run, v, style, 0);
}
