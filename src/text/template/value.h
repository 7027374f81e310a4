/* value.h: what a template computes with: the values of Python that Jinja shows.
 *
 * Lists, tuples and dicts never change once made (the sandbox allows no method that would), so values share them and
 * slices are views. Texts are UTF-8 and point into the variables, the template or the arena; none ends with a NUL.
 * Namespaces, iterators and loops have a state and are behind a pointer. */
#ifndef MICA_TEXT_TEMPLATE_VALUE_H
#define MICA_TEXT_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mica__jinja_kind {
    MICA__JINJA_UNDEFINED = 0, /* text: what has no value; mark: how it was looked for; of: in what kind */
    MICA__JINJA_NONE,
    MICA__JINJA_BOOL,
    MICA__JINJA_INT,
    MICA__JINJA_FLOAT,
    MICA__JINJA_STRING, /* mark 1: markup, made by 'safe' or 'escape' */
    MICA__JINJA_LIST,
    MICA__JINJA_TUPLE, /* mark 1: of groupby, with the names grouper and list */
    MICA__JINJA_DICT,
    MICA__JINJA_VIEW,     /* of a dict: mark says keys, values or items */
    MICA__JINJA_RANGE,    /* length: how many numbers */
    MICA__JINJA_ITERATOR, /* what Python calls a generator: can be walked once, is always true, has no length */
    MICA__JINJA_NAMESPACE,
    MICA__JINJA_MACRO,
    MICA__JINJA_FUNCTION, /* a global function */
    MICA__JINJA_METHOD,   /* a function with the value it belongs to */
    MICA__JINJA_LOOP,
    MICA__JINJA_CYCLER,
    MICA__JINJA_JOINER,
    MICA__JINJA_UNSET /* an argument that was not given; no template sees it */
} mica__jinja_kind;

/* Marks of an undefined value: which sentence its use gives. */
enum {
    MICA__JINJA_MISSING_NAME = 0,
    MICA__JINJA_MISSING_HINT,
    MICA__JINJA_MISSING_ATTRIBUTE,
    MICA__JINJA_MISSING_ITEM,
    MICA__JINJA_UNSAFE
};
enum { MICA__JINJA_VIEW_KEYS = 0, MICA__JINJA_VIEW_VALUES, MICA__JINJA_VIEW_ITEMS };

typedef struct mica__jinja_value {
    uint8_t kind; /* mica__jinja_kind */
    uint8_t mark, of;
    size_t length; /* bytes of a text, items of a list, tuple or range */
    union {
        bool truth;
        int64_t integer;
        uint64_t natural; /* an INT with mark 1: above 2^63 - 1, for printing alone */
        double real;
        const char *text;
        const struct mica__jinja_value *items;
        struct mica__jinja_dict *dict; /* of DICT, VIEW and NAMESPACE */
        const struct mica__jinja_range *range;
        struct mica__jinja_iterator *iterator; /* also of CYCLER and JOINER, for their place */
        const struct mica__jinja_macro *macro;
        const struct mica__jinja_builtin *builtin;
        const struct mica__jinja_method *method;
        struct mica__jinja_loop *loop;
    };
} mica__jinja_value;

typedef struct mica__jinja_entry {
    mica__jinja_value key, value;
} mica__jinja_entry;

/* In the order of insertion. From 9 entries on there is an index: open addressing, entry number + 1, 0 = free. */
typedef struct mica__jinja_dict {
    mica__jinja_entry *entries;
    size_t count, capacity;
    uint32_t *index; /* [slots] */
    size_t slots;    /* a power of two, at least twice the entries */
} mica__jinja_dict;

typedef struct mica__jinja_range {
    int64_t start, stop, step;
} mica__jinja_range;

typedef struct mica__jinja_iterator {
    const mica__jinja_value *items;
    size_t count, at;
    const char *type; /* as Python names it */
} mica__jinja_iterator;

typedef struct mica__jinja_method {
    mica__jinja_value self;
    const struct mica__jinja_builtin *builtin;
} mica__jinja_method;

static inline mica__jinja_value mica__jinja_none(void)
{
    return (mica__jinja_value){.kind = MICA__JINJA_NONE};
}

static inline mica__jinja_value mica__jinja_bool(bool truth)
{
    return (mica__jinja_value){.kind = MICA__JINJA_BOOL, .truth = truth};
}

static inline mica__jinja_value mica__jinja_int(int64_t integer)
{
    return (mica__jinja_value){.kind = MICA__JINJA_INT, .integer = integer};
}

static inline mica__jinja_value mica__jinja_float(double real)
{
    return (mica__jinja_value){.kind = MICA__JINJA_FLOAT, .real = real};
}

static inline mica__jinja_value mica__jinja_text(const char *text, size_t length)
{
    return (mica__jinja_value){.kind = MICA__JINJA_STRING, .length = length, .text = text};
}

static inline mica__jinja_value mica__jinja_list(const mica__jinja_value *items, size_t count)
{
    return (mica__jinja_value){.kind = MICA__JINJA_LIST, .length = count, .items = items};
}

static inline mica__jinja_value mica__jinja_tuple(const mica__jinja_value *items, size_t count)
{
    return (mica__jinja_value){.kind = MICA__JINJA_TUPLE, .length = count, .items = items};
}

static inline mica__jinja_value mica__jinja_missing(uint8_t mark, uint8_t of, const char *text, size_t length)
{
    return (mica__jinja_value){
        .kind = MICA__JINJA_UNDEFINED, .mark = mark, .of = of, .length = length, .text = text};
}

static inline bool mica__jinja_is_number(const mica__jinja_value *v)
{
    return v->kind == MICA__JINJA_BOOL || v->kind == MICA__JINJA_INT || v->kind == MICA__JINJA_FLOAT;
}

/* The integer of a bool or an INT that 63 bits hold. */
static inline bool mica__jinja_as_int(const mica__jinja_value *v, int64_t *out)
{
    if (v->kind != MICA__JINJA_BOOL && (v->kind != MICA__JINJA_INT || v->mark != 0))
        return false;
    *out = v->kind == MICA__JINJA_BOOL ? v->truth : v->integer;
    return true;
}

/* Any number as a double. */
static inline double mica__jinja_as_double(const mica__jinja_value *v)
{
    return v->kind == MICA__JINJA_FLOAT  ? v->real
           : v->kind == MICA__JINJA_BOOL ? (double)v->truth
           : v->mark != 0                ? (double)v->natural
                                         : (double)v->integer;
}

/* A number of a range that has so many. What lies between may be beyond 64 bits; the number itself is not. */
static inline int64_t mica__jinja_range_at(const mica__jinja_range *range, uint64_t index)
{
    return (int64_t)((uint64_t)range->start + index * (uint64_t)range->step);
}

/* The name of a value's type, as Python has it. Lives for ever. */
const char *mica__jinja_type(const mica__jinja_value *v);
/* The name of a kind. */
const char *mica__jinja_kind_name(uint8_t kind);

#endif
