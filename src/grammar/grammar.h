/* grammar.h: a grammar inside: rules over classes of characters, each class an automaton over UTF-8 bytes.
 *
 * A rule is a list of alternatives, an alternative is a run of elements up to an END. Groups are rules without a name.
 * A grammar is immutable once made, but for the vocabulary it remembers. Knows tokens only as bytes, and no sampler. */
#ifndef MICA_GRAMMAR_GRAMMAR_H
#define MICA_GRAMMAR_GRAMMAR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/thread.h"
#include "mica/sample.h"

#define MICA__GRAMMAR_MANY UINT32_MAX /* a repetition without end */
#define MICA__GRAMMAR_NONE UINT32_MAX
#define MICA__GRAMMAR_ELEMENTS (1u << 24) /* the most that a grammar has, so that 24 bits name one */

typedef enum mica__grammar_kind {
    MICA__GRAMMAR_END = 0,
    MICA__GRAMMAR_CLASS,
    MICA__GRAMMAR_RULE,
    MICA__GRAMMAR_REPEAT
} mica__grammar_kind;

typedef struct mica__grammar_element {
    uint32_t kind;
    uint32_t value;    /* CLASS: its index; RULE, REPEAT: the rule */
    uint32_t min, max; /* REPEAT: how often; max may be MANY */
} mica__grammar_element;

typedef struct mica__grammar_rule {
    uint32_t name, name_length; /* in names; NONE for a group */
    uint32_t first, count;      /* in alternatives; count 0: it matches nothing and nothing mentions it */
    uint32_t line, column;      /* where it was first mentioned */
    bool defined, nullable, productive;
} mica__grammar_rule;

typedef struct mica__grammar_range {
    uint32_t low, high; /* code points, both included */
} mica__grammar_range;

typedef struct mica__grammar_class {
    uint32_t first, count; /* in ranges: ascending, apart, no surrogates */
    uint32_t state;        /* where its automaton begins */
} mica__grammar_class;

/* Automaton of a class: from a state and a byte to a state, to ACCEPT (the character is whole) or to DEAD. */
#define MICA__GRAMMAR_DEAD 0u
#define MICA__GRAMMAR_ACCEPT 1u
typedef struct mica__grammar_bytes {
    uint16_t next[256];
} mica__grammar_bytes;

struct mica__vocabulary;

struct mica_grammar {
    _Atomic uint32_t references;
    uint32_t root;
    mica__grammar_rule *rules;
    mica__grammar_element *elements;
    uint32_t *alternatives; /* where each begins in elements */
    mica__grammar_class *classes;
    mica__grammar_range *ranges;
    mica__grammar_bytes *states; /* [0] dead, [1] accept, both unused */
    char *names;
    uint32_t rule_count, element_count, alternative_count, class_count, range_count, state_count, name_bytes;
    uint32_t rule_capacity, element_capacity, alternative_capacity, class_capacity, range_capacity,
        state_capacity, name_capacity;
    /* Tables by content, of index + 1, 0 = free; only while the grammar is made. */
    uint32_t *class_table, *state_table;
    uint32_t class_slots, state_slots;
    uint64_t seed;
    pthread_mutex_t lock; /* over vocabulary */
    mica__fork_guard guard;
    struct mica__vocabulary *vocabulary; /* of the last tokenizer */
};

/* Room for `needed` items of `size` bytes: the block itself, or a larger one with the items moved; *capacity follows.
 * NULL (the old block is intact) when there is no memory. */
void *mica__grown(void *items, uint32_t *capacity, uint64_t needed, size_t size);

/* Doubles a table of index + 1 when it is half full, putting every index below `count` in its place again. false when
 * there is no memory. */
bool mica__table_grow(uint32_t **table, uint32_t *slots, uint32_t count,
                      uint64_t (*hash)(const void *context, uint32_t index), const void *context);

/* mica_grammar_create inside of a call that allowed steps for what it reads. */
mica_status mica__grammar_make(const char *gbnf, uint64_t length, const char *root,
                               mica_grammar **out_grammar);
/* An empty grammar, for the parser to fill. */
mica_status mica__grammar_new(mica_grammar **out_grammar);
mica_grammar *mica__grammar_retain(mica_grammar *grammar);

/* Reads GBNF into an empty grammar; `root` names the rule to start with. */
mica_status mica__grammar_parse(mica_grammar *grammar, const char *text, size_t length, const char *root);

/* The class of these ranges, in any order and overlapping; `negated`: of all other characters. Sorts them in place. */
mica_status mica__grammar_class_of(mica_grammar *grammar, mica__grammar_range *ranges, uint32_t count,
                                   bool negated, uint32_t *out_class);

/* Finds what can be empty and what can never end, takes away the alternatives that cannot be finished, and refuses
 * left recursion and a root that matches nothing. */
mica_status mica__grammar_check(mica_grammar *grammar);

/* The name of a rule for a sentence: "item", or "a group" where it has none; cut to 60 bytes. */
typedef struct mica__grammar_name {
    char text[64];
} mica__grammar_name;
mica__grammar_name mica__grammar_rule_name(const mica_grammar *grammar, uint32_t rule);

#endif
