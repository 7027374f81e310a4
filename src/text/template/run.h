/* run.h: one rendering: its limits, its output, its scopes, and what all operations on values share.
 *
 * Functions that can fail return a mica_status; the sentence begins with line and column of the node that runs. Texts
 * are built at the end of the output and then cut off it (put ... cut): building nests as calls do. */
#ifndef MICA_TEXT_TEMPLATE_RUN_H
#define MICA_TEXT_TEMPLATE_RUN_H

#include "base/status.h"
#include "text/template/arena.h"
#include "text/template/node.h"
#include "text/template/number.h"
#include "text/template/value.h"

#define MICA__JINJA_RUN_DEPTH 500   /* nodes and macros inside each other; a stack of 128 KB holds them */
#define MICA__JINJA_MACRO_DEPTH 3   /* what a macro counts as there, beside its nodes */
#define MICA__JINJA_VALUE_DEPTH 100 /* lists inside each other, where something walks into them */
#define MICA__JINJA_MAX_RANGE 100000
#define MICA__JINJA_STEP_BYTES 64 /* bytes that an operation may touch for one step */

typedef struct mica__jinja_binding {
    uint32_t symbol;
    mica__jinja_value value;
} mica__jinja_binding;

typedef struct mica__jinja_scope {
    struct mica__jinja_scope *parent;
    mica__jinja_binding *bindings;
    /* [slots] by symbol, number + 1, 0 = free; right while there are more than a few bindings */
    uint32_t *index;
    size_t slots; /* a power of two */
    uint32_t count, capacity;
} mica__jinja_scope;

typedef enum mica__jinja_jump {
    MICA__JINJA_JUMP_NONE = 0,
    MICA__JINJA_JUMP_BREAK,
    MICA__JINJA_JUMP_CONTINUE
} mica__jinja_jump;

typedef struct mica__jinja_run {
    const struct mica_template *of;
    mica__jinja_arena arena;
    uint64_t steps;   /* left */
    uint64_t touched; /* bytes that are not a step yet */
    char *out;        /* [out_capacity] */
    size_t out_length, out_capacity;
    uint64_t out_limit;
    mica__jinja_value *globals; /* [symbols]: variables and global functions */
    mica__jinja_scope *scope;   /* the innermost */
    mica__jinja_value input;    /* of a filter block */
    mica__jinja_jump jump;
    uint32_t depth;
    struct mica__jinja_few *few; /* room for arguments that no call uses now (eval.c) */
    uint32_t at;                 /* place in the text of what runs */
    uint64_t seed;
    int64_t now;
} mica__jinja_run;

typedef struct mica__jinja_macro {
    const mica__jinja_node *node; /* MACRO or CALL_BLOCK */
    mica__jinja_scope *scope;     /* where it was defined */
} mica__jinja_macro;

/* ---- limits, errors, output (run.c) ---- */

/* INVALID_ARGUMENT with line, column and the text. */
mica_status mica__jinja_raise(const mica__jinja_run *run, const char *format, ...) MICA__PRINTF(2, 3);
/* The same with another code. */
mica_status mica__jinja_stop(const mica__jinja_run *run, mica_status code, const char *format, ...)
    MICA__PRINTF(3, 4);
/* The sentence of an undefined value that was used. */
mica_status mica__jinja_raise_undefined(const mica__jinja_run *run, const mica__jinja_value *v);
/* Takes steps away; BUDGET when there are none left. */
mica_status mica__jinja_spend(mica__jinja_run *run, uint64_t steps);
/* The steps of an operation that copies or compares so many bytes; a few are kept for the next time. */
mica_status mica__jinja_spend_bytes(mica__jinja_run *run, uint64_t bytes);
/* The same for one that looks at each character of so many bytes. */
mica_status mica__jinja_spend_chars(mica__jinja_run *run, uint64_t bytes);

mica_status mica__jinja_put(mica__jinja_run *run, const char *text, size_t length);
mica_status mica__jinja_puts(mica__jinja_run *run, const char *text);
mica_status mica__jinja_put_char(mica__jinja_run *run, uint32_t code);
mica_status mica__jinja_put_many(mica__jinja_run *run, char c, size_t count);
/* What was put since `mark` (an earlier out_length) becomes a text of the arena. */
mica_status mica__jinja_cut(mica__jinja_run *run, size_t mark, mica__jinja_value *out);
/* `count` values of the arena, to be filled; NULL with arena.status. */
mica__jinja_value *mica__jinja_values(mica__jinja_run *run, size_t count);
/* A one-pass iterator over values; `type` as Python names it. */
mica_status mica__jinja_generator(mica__jinja_run *run, const mica__jinja_value *items, size_t count,
                                  const char *type, mica__jinja_value *out);

/* ---- scopes (run.c) ---- */

mica_status mica__jinja_scope_push(mica__jinja_run *run, mica__jinja_scope *parent,
                                   mica__jinja_scope **out_scope);
mica_status mica__jinja_assign(mica__jinja_run *run, mica__jinja_scope *scope, uint32_t symbol,
                               mica__jinja_value value);
mica_status mica__jinja_lookup(mica__jinja_run *run, uint32_t symbol, mica__jinja_value *out);

/* ---- values (value.c, dict.c) ---- */

bool mica__jinja_truth(const mica__jinja_value *v);
/* Python's len(); an error for what has none. */
mica_status mica__jinja_length(mica__jinja_run *run, const mica__jinja_value *v, size_t *out_length);
bool mica__jinja_has_length(const mica__jinja_value *v);
bool mica__jinja_is_iterable(const mica__jinja_value *v);

/* A walk over anything that can be walked; an iterator's place moves with it. */
typedef struct mica__jinja_cursor {
    mica__jinja_value of;
    size_t at;
} mica__jinja_cursor;
mica_status mica__jinja_walk(const mica__jinja_run *run, const mica__jinja_value *v,
                             mica__jinja_cursor *out_cursor);
mica_status mica__jinja_next(mica__jinja_run *run, mica__jinja_cursor *cursor, mica__jinja_value *out,
                             bool *out_some);
/* All (remaining) items; those of a list without a copy. */
mica_status mica__jinja_items(mica__jinja_run *run, const mica__jinja_value *v,
                              const mica__jinja_value **out_items, size_t *out_count);

mica_status mica__jinja_equal(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                              bool *out_equal);
/* Below 0, 0, above 0; an error when the two have no order. `sign` is the operator for the sentence. */
mica_status mica__jinja_order(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                              const char *sign, int *out_order);
mica_status mica__jinja_contains(mica__jinja_run *run, const mica__jinja_value *all,
                                 const mica__jinja_value *one, bool *out_has);

mica_status mica__jinja_dict_new(mica__jinja_run *run, size_t capacity, mica__jinja_dict **out_dict);
/* Replaces the value of a key that is there and keeps its place. */
mica_status mica__jinja_dict_put(mica__jinja_run *run, mica__jinja_dict *dict, const mica__jinja_value *key,
                                 const mica__jinja_value *value);
/* *out_value is NULL when the key is not there. A key that cannot be one (a list) is an error. */
mica_status mica__jinja_dict_get(mica__jinja_run *run, const mica__jinja_dict *dict,
                                 const mica__jinja_value *key, const mica__jinja_value **out_value);
bool mica__jinja_is_key(const mica__jinja_value *v);

/* ---- values as text (print.c, json.c) ---- */

/* Python's str() and repr() at the end of the output. */
mica_status mica__jinja_put_str(mica__jinja_run *run, const mica__jinja_value *v);
mica_status mica__jinja_put_repr(mica__jinja_run *run, const mica__jinja_value *v);
/* A value as text: a text itself, else str(). */
mica_status mica__jinja_str(mica__jinja_run *run, const mica__jinja_value *v, mica__jinja_value *out);
/* JSON as json.dumps writes it. */
typedef struct mica__jinja_json_style {
    bool ascii, sort;
    const mica__jinja_value *indent; /* NULL: all on one line; else a number of blanks or a text */
    mica__jinja_value comma, colon;
} mica__jinja_json_style;
mica_status mica__jinja_put_json(mica__jinja_run *run, const mica__jinja_value *v,
                                 const mica__jinja_json_style *style);

/* ---- operations (operator.c, access.c, format.c) ---- */

mica_status mica__jinja_binary(mica__jinja_run *run, mica__jinja_operator op, const mica__jinja_value *a,
                               const mica__jinja_value *b, mica__jinja_value *out);
mica_status mica__jinja_unary(mica__jinja_run *run, mica__jinja_operator op, const mica__jinja_value *a,
                              mica__jinja_value *out);
mica_status mica__jinja_compare(mica__jinja_run *run, mica__jinja_operator op, const mica__jinja_value *a,
                                const mica__jinja_value *b, bool *out);
mica_status mica__jinja_concat(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                               mica__jinja_value *out);
/* value[a:b:c]; bounds may be none. */
mica_status mica__jinja_slice(mica__jinja_run *run, const mica__jinja_value *v,
                              const mica__jinja_value bounds[3], mica__jinja_value *out);
/* value.name: an attribute, else an item; undefined when there is neither. A method is given as its row when
 * out_method is not NULL, and bound to the value otherwise. */
mica_status mica__jinja_attribute(mica__jinja_run *run, const mica__jinja_value *v, const char *name,
                                  size_t length, const struct mica__jinja_builtin **out_method,
                                  mica__jinja_value *out);
/* value[key]: an item, else an attribute. */
mica_status mica__jinja_item(mica__jinja_run *run, const mica__jinja_value *v, const mica__jinja_value *key,
                             mica__jinja_value *out);
/* "a.b.0" from a value, step by step, as filters name attributes. */
mica_status mica__jinja_path(mica__jinja_run *run, const mica__jinja_value *v, const mica__jinja_value *path,
                             mica__jinja_value *out);
/* text % values */
mica_status mica__jinja_percent(mica__jinja_run *run, const mica__jinja_value *text,
                                const mica__jinja_value *values, mica__jinja_value *out);

/* ---- nodes (eval.c, exec.c) ---- */

mica_status mica__jinja_eval(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out);
mica_status mica__jinja_exec(mica__jinja_run *run, const mica__jinja_node *list);
mica_status mica__jinja_store(mica__jinja_run *run, const mica__jinja_node *target,
                              const mica__jinja_value *value);

/* ---- JSON in (json.c) ---- */

/* Variables from a JSON object; texts point into the document, which must outlive the run. */
struct mica__json;
mica_status mica__jinja_from_json(mica__jinja_run *run, const struct mica__json *json,
                                  mica__jinja_value *out);

#endif
