/* schema_enum.c: the values that enum and const leave, as grammar: few of them in place, many as a tree of what they begin
 * with, so that a text stands at one place of it and not at as many as there are values.
 *
 *   v5    ::= v5-e0
 *   v5-e0 ::= "\"a" v5-e1 | "\"bcd\""      each rule: what follows texts that begin alike
 *   v5-e1 ::= "\"" | "b\"" */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/sort.h"
#include "base/utf8.h"
#include "base/work.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"

#define FEW 8u /* values that are written in place */

typedef struct value {
    char *text; /* compact JSON */
    size_t length;
    uint32_t lists; /* that have it */
    uint32_t last;  /* of them */
} value;

typedef struct values {
    mica__schema *schema;
    mica__schema_view view;
    uint32_t number, types;
    value *items; /* of the first enum or const, once each */
    uint32_t count, capacity;
    uint32_t *table; /* by text, index + 1 */
    uint32_t slots;
    uint32_t lists; /* enums and consts so far */
    uint32_t asked; /* types whose keywords were looked for */
} values;

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the values of an enum");
}

/* ---- which values --------------------------------------------------------------------------------------- */

static uint64_t hash_value(const void *context, uint32_t index)
{
    const values *v = context;
    return mica__hash_bytes(v->items[index].text, v->items[index].length, v->schema->seed);
}

/* The slot of a text: of the value that has it, else a free one. */
static uint32_t slot_of(const values *v, const char *text, size_t length)
{
    uint32_t slot = (uint32_t)mica__hash_bytes(text, length, v->schema->seed) & (v->slots - 1);
    for (; v->table[slot] != 0; slot = (slot + 1) & (v->slots - 1)) {
        const value *it = &v->items[v->table[slot] - 1];
        if (it->length == length && memcmp(it->text, text, length) == 0)
            break;
    }
    return slot;
}

/* Keywords that speak of a type and cannot be kept beside a value of it. */
static mica_status ask_keywords(values *v, uint32_t type)
{
    mica__schema *schema = v->schema;
    if ((v->asked & type) != 0)
        return MICA_OK;
    v->asked |= type;
    for (uint32_t i = 0; i < v->view.count; i++) {
        const mica__json_node *item = schema->json->nodes + schema->items[v->view.first + i].node;
        MICA__TRY(mica__spend(8));
        for (const mica__json_node *key = mica__json_first(item); key != NULL;
             key = mica__json_next(schema->json, key))
            if ((mica__schema_keyword_types(key->key) & type) != 0)
                return mica__schema_refuse(schema, item, MICA_ERR_UNSUPPORTED, key->key,
                                           "is not supported beside enum or const");
    }
    return MICA_OK;
}

/* Takes one more value of a list in: the first list's are kept, those of others count. */
static mica_status take_value(values *v, const mica__json_node *node)
{
    const uint32_t type = mica__schema_value_type(node);
    value *items, fresh = {.lists = 1, .last = v->lists};
    uint32_t slot;
    if ((v->types & type) == 0)
        return MICA_OK;
    if (v->lists == 1)
        MICA__TRY(ask_keywords(v, type));
    if (!mica__table_grow(&v->table, &v->slots, v->count, hash_value, v))
        return no_memory();
    MICA__TRY(mica__schema_compact(v->schema, node, &fresh.text, &fresh.length));
    slot = slot_of(v, fresh.text, fresh.length);
    if (v->table[slot] != 0 || v->lists != 1) {
        value *it = v->table[slot] != 0 ? &v->items[v->table[slot] - 1] : NULL;
        if (it != NULL && it->last != v->lists) {
            it->last = v->lists;
            it->lists++;
        }
        mica__free(fresh.text);
        return MICA_OK;
    }
    items = mica__grown(v->items, &v->capacity, v->count + 1, sizeof *items);
    if (items == NULL) {
        mica__free(fresh.text);
        return no_memory();
    }
    v->items = items;
    items[v->count++] = fresh;
    v->table[slot] = v->count;
    return MICA_OK;
}

static mica_status take_lists(values *v)
{
    for (uint32_t i = 0; i < v->view.count; i++) {
        const mica__json_node *one = mica__schema_member(v->schema, v->view, i, "const");
        const mica__json_node *list = mica__schema_member(v->schema, v->view, i, "enum");
        MICA__TRY(mica__spend(4));
        if (list != NULL && list->type != MICA__JSON_ARRAY)
            return mica__schema_refuse(v->schema, list, MICA_ERR_INVALID_ARGUMENT, "enum", "is no array");
        if (one != NULL) {
            v->lists++;
            MICA__TRY(take_value(v, one));
        }
        v->lists += list != NULL;
        for (const mica__json_node *node = list != NULL ? mica__json_first(list) : NULL; node != NULL;
             node = mica__json_next(v->schema->json, node))
            MICA__TRY(take_value(v, node));
    }
    return MICA_OK;
}

/* Leaves those that every list has, in their order. */
static void keep_common(values *v)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < v->count; i++) {
        if (v->items[i].lists == v->lists)
            v->items[kept++] = v->items[i];
        else
            mica__free(v->items[i].text);
    }
    v->count = kept;
}

/* ---- the tree ------------------------------------------------------------------------------------------- */

/* Values from `first` up to `end` begin alike, `depth` bytes long. */
typedef struct value_branch {
    uint32_t first, end;
    size_t depth;
} value_branch;

typedef struct value_branches {
    value_branch *list;
    uint32_t count, capacity;
} value_branches;

static int compare_values(const void *a, const void *b)
{
    const value *left = a, *right = b;
    const int order =
        memcmp(left->text, right->text, left->length < right->length ? left->length : right->length);
    return order != 0 ? order : (left->length > right->length) - (left->length < right->length);
}

static mica_status add_branch(value_branches *work, uint32_t first, uint32_t end, size_t depth)
{
    value_branch *list = mica__grown(work->list, &work->capacity, work->count + 1, sizeof *list);
    if (list == NULL)
        return no_memory();
    work->list = list;
    list[work->count++] = (value_branch){first, end, depth};
    return MICA_OK;
}

/* How long the whole characters are that sorted values share from `depth` on: those of the first and the last. */
static size_t shared(const value *first, const value *last, size_t depth)
{
    const size_t most = first->length < last->length ? first->length : last->length;
    size_t at = depth;
    while (at < most && first->text[at] == last->text[at])
        at++;
    while (at < first->length && at > depth && ((unsigned char)first->text[at] & 0xc0) == 0x80)
        at--;
    return at - depth;
}

/* The rule of a branch: for each character that a value has next, what is shared from there on and the branch behind. */
static mica_status put_branch(values *v, value_branches *work, value_branch at)
{
    mica__schema_text *text = &v->schema->text;
    const char *bar = "";
    for (uint32_t i = at.first; i < at.end;) {
        const value *it = &v->items[i];
        const size_t size = mica__utf8_length(it->text + at.depth, it->length - at.depth);
        uint32_t end = i + 1;
        while (end < at.end && size != 0 && v->items[end].length - at.depth >= size &&
               memcmp(v->items[end].text + at.depth, it->text + at.depth, size) == 0)
            end++;
        MICA__TRY(mica__spend(end - i));
        const size_t length = shared(it, &v->items[end - 1], at.depth);
        mica__schema_put(text, "%s", bar);
        mica__schema_put_literal(text, it->text + at.depth, length);
        if (end - i > 1) {
            mica__schema_put(text, " v%u-e%u", v->number, work->count);
            MICA__TRY(add_branch(work, i, end, at.depth + length));
        }
        bar = " | ";
        i = end;
    }
    mica__schema_put(text, "\n");
    return text->error;
}

static mica_status put_tree(values *v)
{
    value_branches work = {0};
    mica_status status = mica__sort(v->items, v->count, sizeof *v->items, compare_values);
    if (status == MICA_OK)
        status = add_branch(&work, 0, v->count, 0);
    for (uint32_t i = 0; i < work.count && status == MICA_OK; i++) {
        mica__schema_put(&v->schema->text, "v%u-e%u ::= ", v->number, i);
        status = put_branch(v, &work, work.list[i]);
    }
    mica__free(work.list);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

static mica_status put_kept(values *v)
{
    mica__schema_text *text = &v->schema->text;
    if (v->count > FEW) {
        mica__schema_put(text, "v%u-e0\n", v->number);
        return put_tree(v);
    }
    mica__schema_put(text, "[]");
    for (uint32_t i = 0; i < v->count; i++) {
        mica__schema_put(text, " | ");
        mica__schema_put_literal(text, v->items[i].text, v->items[i].length);
    }
    mica__schema_put(text, "\n");
    return text->error;
}

mica_status mica__schema_put_values(mica__schema *schema, mica__schema_view view, uint32_t number,
                                    uint32_t types, bool *out_found)
{
    values v = {.schema = schema, .view = view, .number = number, .types = types};
    mica_status status = take_lists(&v);
    *out_found = v.lists != 0;
    if (status == MICA_OK && *out_found) {
        keep_common(&v);
        status = put_kept(&v);
    }
    for (uint32_t i = 0; i < v.count; i++)
        mica__free(v.items[i].text);
    mica__free(v.items);
    mica__free(v.table);
    return status;
}
