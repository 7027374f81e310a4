/* schema_object.c: objects of a schema as grammar: properties in their order, each there or left out, then others.
 *
 *   v5-object ::= "{" ws (v5-o0 ws)? "}"     without ( )? where one is required
 *   v5-oI ::= PROPERTY_I v5-rJ | v5-oJ       this one or a later one, J = I + 1; no later one where it is required
 *   v5-rJ ::= ("," ws v5-oJ)?                what follows it; without ( )? where a later one is required
 *   v5-a ::= "\"" v5-k0 "\":" ws VALUE           another property; v5-kN are the names that are none of the others' */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/sort.h"
#include "base/utf8.h"
#include "base/work.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"

#define NESTED 32u /* characters of a name whose rules stand inside each other */

/* What one item says of a property, or of others. */
typedef struct use {
    const mica__json_node *says;
    uint32_t item, next; /* next: the one after it of the same property, NONE after the last */
} use;

typedef struct property {
    const char *name;
    size_t length;
    uint32_t first, last; /* its uses, NONE: no item has a schema for it */
    uint32_t view;        /* what its value must hold */
    bool required;
} property;

typedef struct object {
    mica__schema *schema;
    mica__schema_view view;
    uint32_t number;
    property *properties;
    uint32_t *table;    /* by name, index + 1 */
    use *uses, *others; /* others: of the items with additionalProperties */
    uint32_t count, capacity, slots, use_count, use_capacity, other_count, other_capacity;
    bool open; /* other properties may follow */
    uint32_t other_view;
} object;

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for an object of the schema");
}

/* ---- what the items say --------------------------------------------------------------------------------- */

/* What all items say of a property: its own schema where they have one, else that of others; in the order of the items.
 * NULL: of a property that none of them names. */
static mica_status view_of_property(object *o, const property *p, uint32_t *out_view)
{
    mica__schema_list list = mica__schema_list_new(o->schema);
    uint32_t own = p != NULL ? p->first : MICA__GRAMMAR_NONE, other = 0;
    mica_status status = MICA_OK;
    while (status == MICA_OK && (own != MICA__GRAMMAR_NONE || other < o->other_count)) {
        const use *mine = own != MICA__GRAMMAR_NONE ? &o->uses[own] : NULL;
        const use *theirs = other < o->other_count ? &o->others[other] : NULL;
        const bool take_mine = mine != NULL && (theirs == NULL || mine->item <= theirs->item);
        if (mine != NULL && theirs != NULL && mine->item == theirs->item)
            other++; /* the item names it */
        status = mica__schema_add(o->schema, &list, take_mine ? mine->says : theirs->says);
        if (take_mine)
            own = mine->next;
        else
            other++;
    }
    if (status == MICA_OK)
        status = mica__schema_view_of(o->schema, &list, out_view);
    mica__free(list.items);
    return status;
}

static uint64_t hash_property(const void *context, uint32_t index)
{
    const object *o = context;
    return mica__hash_bytes(o->properties[index].name, o->properties[index].length, o->schema->seed);
}

/* The property of that name, added if it is not there yet. */
static mica_status find(object *o, const char *name, size_t length, property **out_property)
{
    property *properties;
    MICA__TRY(mica__spend(8 + length / 8));
    if (strlen(name) != length)
        return mica__fail(MICA_ERR_UNSUPPORTED, "a property whose name has a NUL is not supported");
    if (!mica__table_grow(&o->table, &o->slots, o->count, hash_property, o))
        return no_memory();
    uint32_t slot = (uint32_t)mica__hash_bytes(name, length, o->schema->seed) & (o->slots - 1);
    for (; o->table[slot] != 0; slot = (slot + 1) & (o->slots - 1)) {
        *out_property = &o->properties[o->table[slot] - 1];
        if ((*out_property)->length == length && memcmp((*out_property)->name, name, length) == 0)
            return MICA_OK;
    }
    properties = mica__grown(o->properties, &o->capacity, o->count + 1, sizeof *properties);
    if (properties == NULL)
        return no_memory();
    o->properties = properties;
    *out_property = &properties[o->count];
    properties[o->count++] =
        (property){.name = name, .length = length, .first = MICA__GRAMMAR_NONE, .last = MICA__GRAMMAR_NONE};
    o->table[slot] = o->count;
    return MICA_OK;
}

static mica_status add_use(use **list, uint32_t *count, uint32_t *capacity, const mica__json_node *says,
                           uint32_t item)
{
    use *grown = mica__grown(*list, capacity, *count + 1, sizeof *grown);
    if (grown == NULL)
        return no_memory();
    *list = grown;
    grown[(*count)++] = (use){says, item, MICA__GRAMMAR_NONE};
    return MICA_OK;
}

static mica_status read_properties(object *o, uint32_t item)
{
    const mica__json_node *properties = mica__schema_member(o->schema, o->view, item, "properties");
    if (properties == NULL)
        return MICA_OK;
    if (properties->type != MICA__JSON_OBJECT)
        return mica__schema_refuse(o->schema, properties, MICA_ERR_INVALID_ARGUMENT, "properties",
                                   "is no object");
    for (const mica__json_node *p = mica__json_first(properties); p != NULL;
         p = mica__json_next(o->schema->json, p)) {
        property *found = NULL;
        MICA__TRY(find(o, p->key, p->key_length, &found));
        MICA__TRY(add_use(&o->uses, &o->use_count, &o->use_capacity, p, item));
        if (found->last != MICA__GRAMMAR_NONE)
            o->uses[found->last].next = o->use_count - 1;
        else
            found->first = o->use_count - 1;
        found->last = o->use_count - 1;
    }
    return MICA_OK;
}

static mica_status read_required(object *o, uint32_t item)
{
    const mica__json_node *names = mica__schema_member(o->schema, o->view, item, "required");
    if (names == NULL)
        return MICA_OK;
    if (names->type != MICA__JSON_ARRAY)
        return mica__schema_refuse(o->schema, names, MICA_ERR_INVALID_ARGUMENT, "required", "is no array");
    for (const mica__json_node *name = mica__json_first(names); name != NULL;
         name = mica__json_next(o->schema->json, name)) {
        property *found = NULL;
        if (name->type != MICA__JSON_STRING)
            return mica__schema_refuse(o->schema, name, MICA_ERR_INVALID_ARGUMENT, "required",
                                       "holds what is no string");
        MICA__TRY(find(o, name->string.data, name->string.length, &found));
        found->required = true;
    }
    return MICA_OK;
}

static mica_status read_items(object *o)
{
    bool named = false;
    for (uint32_t i = 0; i < o->view.count; i++) {
        const mica__json_node *others = mica__schema_member(o->schema, o->view, i, "additionalProperties");
        named |= mica__schema_member(o->schema, o->view, i, "properties") != NULL;
        if (others != NULL)
            MICA__TRY(add_use(&o->others, &o->other_count, &o->other_capacity, others, i));
        MICA__TRY(read_properties(o, i));
    }
    for (uint32_t i = 0; i < o->view.count; i++)
        MICA__TRY(read_required(o, i));
    o->open = o->other_count != 0 || !named;
    MICA__TRY(view_of_property(o, NULL, &o->other_view));
    for (uint32_t i = 0; i < o->count; i++) {
        property *p = &o->properties[i];
        p->view = o->other_view;
        if (p->first != MICA__GRAMMAR_NONE)
            MICA__TRY(view_of_property(o, p, &p->view));
    }
    return MICA_OK;
}

/* ---- names that are taken by nobody --------------------------------------------------------------------- */

/* Names from `first` up to `end` begin alike, `depth` bytes long. */
typedef struct key_branch {
    uint32_t first, end, number;
    size_t depth;
} key_branch;

typedef struct key_branches {
    key_branch *list;
    uint32_t count, capacity;
} key_branches;

static mica_status add_branch(key_branches *work, uint32_t first, uint32_t end, size_t depth)
{
    key_branch *list = mica__grown(work->list, &work->capacity, work->count + 1, sizeof *list);
    const key_branch item = {first, end, work->count, depth};
    if (list == NULL)
        return no_memory();
    work->list = list;
    list[work->count++] = item;
    return MICA_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const property *)a)->name, ((const property *)b)->name);
}

static bool is_plain(char c)
{
    return c != '"' && c != '\\' && (unsigned char)c >= 0x20;
}

/* What differs from a name at this character: the end, or another character and anything behind it. Those of ASCII are
 * rules that all names share. */
static void put_unlike(object *o, const char *next, size_t size)
{
    const unsigned char c = (unsigned char)*next;
    if (size > 1) {
        mica__schema_put(&o->schema->text, "\"\" | [^\"\\\\\\x00-\\x1F%.*s] plain*", (int)size, next);
        return;
    }
    mica__schema_put(&o->schema->text, "n%02X", c);
    o->schema->unlike[c / 32] |= 1u << c % 32;
}

void mica__schema_put_unlike(mica__schema *schema)
{
    for (uint32_t c = 0; c < 128; c++) {
        if ((schema->unlike[c / 32] >> c % 32 & 1) == 0)
            continue;
        mica__schema_put(&schema->text, "n%02X ::= \"\" | [^\"\\\\\\x00-\\x1F", c);
        mica__schema_put_code(&schema->text, c);
        mica__schema_put(&schema->text, "] plain*\n");
    }
}

/* A place in the trie below which there is one name only, and the next ones, inside each other. */
static mica_status put_single(object *o, const property *names, key_branches *work, key_branch at)
{
    mica__schema_text *text = &o->schema->text;
    const property *name = &names[at.first];
    uint32_t depth = 0;
    mica__schema_put(text, "v%u-k%u ::= ", o->number, at.number);
    for (; depth < NESTED && at.depth < name->length && is_plain(name->name[at.depth]); depth++) {
        const char *next = name->name + at.depth;
        const size_t size = mica__utf8_length(next, name->length - at.depth);
        put_unlike(o, next, size);
        mica__schema_put(text, " | ");
        mica__schema_put_literal(text, next, size);
        mica__schema_put(text, " (");
        at.depth += size;
    }
    if (at.depth == name->length) {
        mica__schema_put(text, "plain plain*");
    } else if (!is_plain(name->name[at.depth])) {
        mica__schema_put(text, "plain*");
    } else {
        mica__schema_put(text, "v%u-k%u", o->number, work->count);
        MICA__TRY(add_branch(work, at.first, at.end, at.depth));
    }
    while (depth-- > 0)
        mica__schema_put(text, ")");
    mica__schema_put(text, "\n");
    return text->error;
}

/* One place in the trie of the names: end here if no name does, go another way, or go on with some name. */
static mica_status put_branch(object *o, const property *names, key_branches *work, key_branch at)
{
    mica__schema_text *text = &o->schema->text;
    mica_status status = MICA_OK;
    uint32_t first = at.first;
    mica__schema_put(text, "v%u-k%u ::= ", o->number, at.number);
    if (names[first].length == at.depth)
        first++;
    else
        mica__schema_put(text, "\"\" | ");
    mica__schema_put(text, "[^\"\\\\\\x00-\\x1F");
    for (uint32_t pass = 0; pass < 2 && status == MICA_OK; pass++) {
        for (uint32_t i = first; i < at.end && status == MICA_OK;) {
            const char *next = names[i].name + at.depth;
            const size_t size = mica__utf8_length(next, names[i].length - at.depth);
            uint32_t end = i + 1;
            while (end < at.end && strncmp(names[end].name + at.depth, next, size) == 0)
                end++;
            MICA__TRY(mica__spend(end - i));
            if (is_plain(*next) && pass == 0 && (unsigned char)*next < 0x80) {
                mica__schema_put_code(text, (unsigned char)*next);
            } else if (is_plain(*next) && pass == 0) {
                mica__schema_put(text, "%.*s", (int)size, next);
            } else if (is_plain(*next)) {
                mica__schema_put(text, " | ");
                mica__schema_put_literal(text, next, size);
                mica__schema_put(text, " v%u-k%u", o->number, work->count);
                status = add_branch(work, i, end, at.depth + size);
            }
            i = end;
        }
        if (pass == 0)
            mica__schema_put(text, "] plain*");
    }
    mica__schema_put(text, "\n");
    return status;
}

/* The rule of a property that is none of the named ones; names that JSON must escape are never written by it. */
static mica_status put_other(object *o)
{
    mica__schema_text *text = &o->schema->text;
    property *names;
    key_branches work = {0};
    mica_status status;
    if (o->count == 0) {
        mica__schema_put(text, "v%u-a ::= string \":\" ws v%u\n", o->number, o->other_view);
        return MICA_OK;
    }
    mica__schema_put(text, "v%u-a ::= \"\\\"\" v%u-k0 \"\\\":\" ws v%u\n", o->number, o->number,
                     o->other_view);
    names = mica__alloc(o->count * sizeof *names);
    if (names == NULL)
        return no_memory();
    memcpy(names, o->properties, o->count * sizeof *names);
    status = mica__sort(names, o->count, sizeof *names, compare_names);
    if (status == MICA_OK)
        status = add_branch(&work, 0, o->count, 0);
    for (uint32_t i = 0; i < work.count && status == MICA_OK; i++)
        status = work.list[i].end - work.list[i].first == 1 ? put_single(o, names, &work, work.list[i])
                                                            : put_branch(o, names, &work, work.list[i]);
    mica__free(names);
    mica__free(work.list);
    return status;
}

/* ---- rules ---------------------------------------------------------------------------------------------- */

/* "name": value */
static mica_status put_property(object *o, const property *p)
{
    mica__json_writer writer;
    char *name = NULL;
    size_t length;
    mica__json_writer_init(&writer);
    mica__json_string_n(&writer, p->name, p->length);
    MICA__TRY(mica__json_writer_finish(&writer, &name, &length));
    mica__schema_put_literal(&o->schema->text, name, length);
    mica__schema_put(&o->schema->text, " \":\" ws v%u", p->view);
    mica__free(name);
    return MICA_OK;
}

/* The rules of the properties. A property asks for a comma only behind another one, and all that may stand behind a comma
 * stand behind the same one. */
static mica_status put_properties(object *o)
{
    mica__schema_text *text = &o->schema->text;
    uint32_t needed = 0; /* properties up to the last required one */
    for (uint32_t i = 0; i < o->count; i++)
        needed = o->properties[i].required ? i + 1 : needed;
    const uint32_t last = o->open ? o->count : o->count - 1; /* the last that something may begin with */
    for (uint32_t i = 0; i < o->count; i++) {
        mica__schema_put(text, "v%u-o%u ::= ", o->number, i);
        MICA__TRY(put_property(o, &o->properties[i]));
        mica__schema_put(text, " v%u-r%u", o->number, i + 1);
        if (!o->properties[i].required && i < last)
            mica__schema_put(text, " | v%u-o%u", o->number, i + 1);
        if (i < last)
            mica__schema_put(text, "\nv%u-r%u ::= (\",\" ws v%u-o%u)%s", o->number, i + 1, o->number, i + 1,
                             i + 1 < needed ? "" : "?");
        mica__schema_put(text, "\n");
    }
    if (o->open)
        mica__schema_put(text, "v%u-o%u ::= v%u-a (\",\" ws v%u-a)*\n", o->number, o->count, o->number,
                         o->number);
    else
        mica__schema_put(text, "v%u-r%u ::= \"\"\n", o->number, o->count);
    return text->error;
}

mica_status mica__schema_put_object(mica__schema *schema, mica__schema_view view, uint32_t number)
{
    object o = {.schema = schema, .view = view, .number = number};
    mica_status status = read_items(&o);
    if (status == MICA_OK) {
        bool needed = false;
        for (uint32_t i = 0; i < o.count; i++)
            needed |= o.properties[i].required;
        mica__schema_put(&schema->text, "v%u-object ::= \"{\" ws ", number);
        if (o.count != 0 || o.open)
            mica__schema_put(&schema->text, "(v%u-o0 ws)%s ", number, needed ? "" : "?");
        mica__schema_put(&schema->text, "\"}\"\n");
        if (o.count != 0 || o.open)
            status = put_properties(&o);
    }
    if (status == MICA_OK && o.open)
        status = put_other(&o);
    mica__free(o.properties);
    mica__free(o.table);
    mica__free(o.uses);
    mica__free(o.others);
    return status;
}
