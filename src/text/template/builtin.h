/* builtin.h: functions that templates call: filters, tests, methods and globals, as rows of tables. */
#ifndef MICA_TEXT_TEMPLATE_BUILTIN_H
#define MICA_TEXT_TEMPLATE_BUILTIN_H

#include "text/template/run.h"

#define MICA__JINJA_MOST_PARAMETERS 6
#define MICA__JINJA_FEW_ARGUMENTS 6 /* so many need no memory */

/* One argument as it was given; a name is NULL for one given by place. Those by place come first. */
typedef struct mica__jinja_argument {
    mica__jinja_value value;
    const char *name;
    size_t name_length;
} mica__jinja_argument;

typedef struct mica__jinja_arguments {
    mica__jinja_argument *items; /* [count] */
    size_t count, placed;
} mica__jinja_arguments;

typedef struct mica__jinja_call {
    const struct mica__jinja_builtin *row;
    mica__jinja_value self; /* what is filtered or tested, or the object of a method */
    mica__jinja_value argument[MICA__JINJA_MOST_PARAMETERS]; /* by parameter; UNSET where not given */
    const mica__jinja_arguments *all;                        /* as given */
} mica__jinja_call;

typedef mica_status (*mica__jinja_function)(mica__jinja_run *run, const mica__jinja_call *call,
                                            mica__jinja_value *out);

typedef struct mica__jinja_builtin {
    const char *name;
    mica__jinja_function function; /* NULL: Python has it, the sandbox does not */
    const char *parameters; /* "length end": names between blanks; "*": takes what comes, from call->all */
    uint8_t required;       /* how many of them must be given */
    uint8_t variant;        /* for functions that serve several rows */
} mica__jinja_builtin;

const mica__jinja_builtin *mica__jinja_find(const mica__jinja_builtin *table, size_t count, const char *name,
                                            size_t length);
const mica__jinja_builtin *mica__jinja_find_filter(const char *name, size_t length);
const mica__jinja_builtin *mica__jinja_find_test(const char *name, size_t length);
const mica__jinja_builtin *mica__jinja_find_global(const char *name, size_t length);
const mica__jinja_builtin *mica__jinja_find_method(uint8_t kind, const char *name, size_t length);

/* Tables of the files that hold the functions. */
extern const mica__jinja_builtin mica__jinja_text_filters[], mica__jinja_list_filters[],
    mica__jinja_pick_filters[], mica__jinja_tests[], mica__jinja_globals[], mica__jinja_string_methods[],
    mica__jinja_loop_methods[];
extern const size_t mica__jinja_text_filter_count, mica__jinja_list_filter_count,
    mica__jinja_pick_filter_count, mica__jinja_test_count, mica__jinja_global_count,
    mica__jinja_string_method_count, mica__jinja_loop_method_count;

/* Gives the arguments their parameters and calls. */
mica_status mica__jinja_invoke(mica__jinja_run *run, const mica__jinja_builtin *row,
                               const mica__jinja_value *self, const mica__jinja_arguments *arguments,
                               mica__jinja_value *out);
/* Calls whatever can be called: a function, a method, a macro, a joiner. */
mica_status mica__jinja_call_value(mica__jinja_run *run, const mica__jinja_value *callee,
                                   const mica__jinja_arguments *arguments, mica__jinja_value *out);
/* A CALL node; `caller` (may be NULL) is given besides its arguments (eval.c). */
mica_status mica__jinja_eval_call(mica__jinja_run *run, const mica__jinja_node *node,
                                  const mica__jinja_value *caller, mica__jinja_value *out);
/* Runs a macro's body (exec.c). */
mica_status mica__jinja_call_macro(mica__jinja_run *run, const mica__jinja_macro *macro,
                                   const mica__jinja_arguments *arguments, mica__jinja_value *out);

/* Arguments of a call, checked; what was not given leaves *out as it is. */
mica_status mica__jinja_take_int(const mica__jinja_run *run, const mica__jinja_call *call, size_t index,
                                 int64_t *out);
mica_status mica__jinja_take_text(const mica__jinja_run *run, const mica__jinja_call *call, size_t index,
                                  mica__jinja_value *out);
bool mica__jinja_take_truth(const mica__jinja_call *call, size_t index);
bool mica__jinja_is_given(const mica__jinja_call *call, size_t index); /* and not none */

/* Texts (text.c). */
bool mica__jinja_same_text(const mica__jinja_value *v, const char *text);
/* Where `what` stands in text[from..), from the left or the right, as a byte offset; -1: nowhere. */
mica_status mica__jinja_search(mica__jinja_run *run, const mica__jinja_value *text,
                               const mica__jinja_value *what, bool from_right, int64_t *out_at);
mica_status mica__jinja_replace(mica__jinja_run *run, const mica__jinja_value *text,
                                const mica__jinja_value *old_text, const mica__jinja_value *new_text,
                                int64_t most, mica__jinja_value *out);
/* chars: NONE strips white space. */
mica_status mica__jinja_strip(mica__jinja_run *run, const mica__jinja_value *text,
                              const mica__jinja_value *chars, bool left, bool right, mica__jinja_value *out);
typedef enum mica__jinja_case {
    MICA__JINJA_CASE_LOWER,
    MICA__JINJA_CASE_UPPER,
    MICA__JINJA_CASE_CAPITAL,
    MICA__JINJA_CASE_TITLE,
    MICA__JINJA_CASE_SWAP
} mica__jinja_case;
mica_status mica__jinja_put_case(mica__jinja_run *run, const char *text, size_t length, mica__jinja_case how);
mica_status mica__jinja_lower_key(mica__jinja_run *run, const mica__jinja_value *v, mica__jinja_value *out);
/* With &, <, >, ' and " as HTML writes them, at the end of the output. */
mica_status mica__jinja_put_escaped(mica__jinja_run *run, const char *text, size_t length);
/* Lines without their ends, or with them. */
mica_status mica__jinja_lines(mica__jinja_run *run, const mica__jinja_value *text, bool keep,
                              mica__jinja_value *out);
/* Appends to a list under construction that doubles; *items, *count and *capacity begin as zero. */
mica_status mica__jinja_push(mica__jinja_run *run, mica__jinja_value **items, size_t *count, size_t *capacity,
                             const mica__jinja_value *v);

/* loop.index and its like; *out_some: it is one of them (loop.c). */
mica_status mica__jinja_loop_field(mica__jinja_run *run, struct mica__jinja_loop *loop,
                                   const mica__jinja_value *name, mica__jinja_value *out, bool *out_some);

/* str.format (format.c). */
mica_status mica__jinja_format(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out);
/* strftime of seconds since 1970 in UTC, at the end of the output (time.c). */
mica_status mica__jinja_put_time(mica__jinja_run *run, int64_t seconds, const char *format, size_t length);

#endif
