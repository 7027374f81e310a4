/* schema.h: from a JSON schema to the text of a grammar.
 *
 * The unit is a view: schema nodes that must all hold at once (a node, what its $ref and allOf bring, the choices taken
 * from its anyOf). Each view becomes one rule, v0, v1 ...; views are kept once each, so recursion ends. The text that
 * comes out is GBNF, read by the parser that reads everybody's. Knows nothing of a grammar's inside. */
#ifndef MICA_GRAMMAR_SCHEMA_H
#define MICA_GRAMMAR_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json/json.h"
#include "base/status.h"

/* ---- text ----------------------------------------------------------------------------------------------- */

/* GBNF as it is written. The first failure stays and stops the rest. */
typedef struct mica__schema_text {
    char *data;
    uint32_t length, capacity;
    mica_status error;
} mica__schema_text;

void mica__schema_put(mica__schema_text *text, const char *format, ...) MICA__PRINTF(2, 3);
/* These bytes of UTF-8 as a literal, with quotes. */
void mica__schema_put_literal(mica__schema_text *text, const char *bytes, size_t length);
/* A code point as it stands in a class. */
void mica__schema_put_code(mica__schema_text *text, uint32_t code);

/* The whole numbers from low to high as alternatives, digits only; bounds are at least 0, high INT64_MAX: no end but
 * that of 16 digits. Nothing in it: the empty class. */
void mica__schema_put_digits(mica__schema_text *text, int64_t low, int64_t high);

/* What a string must look like, without its quotes, from a regular expression. UNSUPPORTED names what it cannot keep. */
mica_status mica__schema_put_pattern(mica__schema_text *text, const char *pattern, size_t length);

/* The grammar of a format, without quotes; NULL if it is not known. */
const char *mica__schema_format(const char *name);

/* The rules that all schemas share. */
extern const char mica__schema_basics[];

/* ---- views ---------------------------------------------------------------------------------------------- */

#define MICA__SCHEMA_ANY_DONE 1u /* one of its anyOf is in the view */
#define MICA__SCHEMA_ONE_DONE 2u /* one of its oneOf is in the view */

typedef struct mica__schema_item {
    uint32_t node, done;
} mica__schema_item;

typedef struct mica__schema_list {
    mica__schema_item *items; /* apart, in the order they were added */
    uint32_t count, capacity;
    uint32_t number; /* in schema->listed */
} mica__schema_list;

typedef struct mica__schema_view {
    uint32_t first, count; /* in schema->items */
} mica__schema_view;

/* What schema_index.c finds nodes by: tables of index + 1. */
typedef struct mica__schema_index {
    uint32_t *parent, *place; /* [nodes]: the container, and which of its children */
    uint32_t *members;        /* [slots] by container and key or place */
    uint32_t *texts;          /* [slots] strings of arrays, by array and text, once each */
    uint32_t slots;
} mica__schema_index;

typedef struct mica__schema {
    const mica__json *json;
    mica__schema_index index;
    mica__schema_text text;
    mica__schema_item *items;
    mica__schema_view *views;
    uint32_t item_count, item_capacity, view_count, view_capacity;
    uint32_t unlike[4];   /* bits: ASCII characters whose rule of names that differ there is needed */
    uint32_t *view_table; /* by content, index + 1 */
    uint32_t view_slots;
    uint64_t seed;
    uint32_t *listed; /* [nodes][4]: the last list that has the node with this `done` */
    uint32_t *met;    /* [nodes]: the last search that met the node, twice; one more when it is through */
    bool *checked;    /* [nodes]: its keywords are known */
    uint32_t lists, searches;      /* numbers of the last ones */
    struct mica__schema_step *way; /* of the running search */
    uint32_t way_capacity;
} mica__schema;

/* The tables of the schema's JSON, and room for one mark per node. */
mica_status mica__schema_index_make(mica__schema *schema);
void mica__schema_index_free(mica__schema *schema);
/* The member of that name, as mica__json_get. */
const mica__json_node *mica__schema_get(const mica__schema *schema, const mica__json_node *object,
                                        const char *key);
/* The child of an array at a place; NULL if it has fewer. */
const mica__json_node *mica__schema_at(const mica__schema *schema, const mica__json_node *array,
                                       uint32_t place);
/* Whether an array has this string; false where it is NULL or no array. */
bool mica__schema_lists(const mica__schema *schema, const mica__json_node *array, const char *text,
                        size_t length);

/* An empty list, to be filled before another one is begun; its items are freed with mica__free. */
mica__schema_list mica__schema_list_new(mica__schema *schema);
/* Adds one item, once. */
mica_status mica__schema_add_item(mica__schema *schema, mica__schema_list *list, uint32_t node,
                                  uint32_t done);
/* Adds what a schema node says, with what its $ref and allOf bring. */
mica_status mica__schema_add(mica__schema *schema, mica__schema_list *list, const mica__json_node *node);
/* The number of the view of a list, an old one if there is one. */
mica_status mica__schema_view_of(mica__schema *schema, const mica__schema_list *list, uint32_t *out_view);
/* The node that a $ref names. */
mica_status mica__schema_resolve(const mica__schema *schema, const mica__json_node *reference,
                                 const mica__json_node **out_node);
/* Refuses keywords that are not known, by name. */
mica_status mica__schema_check_keywords(mica__schema *schema, const mica__json_node *node);
/* UNSUPPORTED or INVALID_ARGUMENT about a keyword of a node, with the node's place in the schema. */
mica_status mica__schema_refuse(const mica__schema *schema, const mica__json_node *node, mica_status code,
                                const char *keyword, const char *why);

/* ---- types ---------------------------------------------------------------------------------------------- */

#define MICA__SCHEMA_NULL 1u
#define MICA__SCHEMA_BOOLEAN 2u
#define MICA__SCHEMA_INTEGER 4u
#define MICA__SCHEMA_NUMBER 8u /* those that are no integers */
#define MICA__SCHEMA_STRING 16u
#define MICA__SCHEMA_ARRAY 32u
#define MICA__SCHEMA_OBJECT 64u
#define MICA__SCHEMA_ALL 127u

/* The types that a "type" keyword names, ALL where there is none. */
mica_status mica__schema_types(const mica__schema *schema, const mica__json_node *node, uint32_t *out_types);
/* The types that a keyword speaks of, 0 for one that speaks of none. */
uint32_t mica__schema_keyword_types(const char *keyword);
/* The type of a value: one bit. */
uint32_t mica__schema_value_type(const mica__json_node *value);
/* A value as compact JSON, to be freed with mica__free. */
mica_status mica__schema_compact(const mica__schema *schema, const mica__json_node *value, char **out_text,
                                 size_t *out_length);
#define MICA__SCHEMA_APART_DEPTH 3 /* properties of properties that are looked at */
/* Whether of the members of a oneOf no two have a value in common, found in one pass; false: perhaps. */
bool mica__schema_all_apart(const mica__schema *schema, const mica__json_node *list, uint32_t types);
/* Whether two schema nodes surely have no value in common; `types` is what is known of the value's type already. Says
 * no when the call has no steps left. */
bool mica__schema_apart(const mica__schema *schema, const mica__json_node *a, const mica__json_node *b,
                        uint32_t types, int depth);

/* Writes the values that the enum and const of a view leave, as a rule of its own or in place, with the end of the line;
 * *out_found: whether there was one. */
mica_status mica__schema_put_values(mica__schema *schema, mica__schema_view view, uint32_t number,
                                    uint32_t types, bool *out_found);

/* Each writes the right side for one type of a view, whose items hold with no choice left. */
mica_status mica__schema_put_object(mica__schema *schema, mica__schema_view view, uint32_t number);
/* The rules that the names of other properties share, at the end. */
void mica__schema_put_unlike(mica__schema *schema);
mica_status mica__schema_put_array(mica__schema *schema, mica__schema_view view, uint32_t number);
mica_status mica__schema_put_string(mica__schema *schema, mica__schema_view view);
mica_status mica__schema_put_number(mica__schema *schema, mica__schema_view view, bool whole);

/* The member `key` of item `index` of a view, NULL if there is none. */
const mica__json_node *mica__schema_member(const mica__schema *schema, mica__schema_view view, uint32_t index,
                                           const char *key);

#endif
