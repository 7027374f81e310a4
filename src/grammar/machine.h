/* machine.h: a grammar at work on bytes: a pushdown automaton whose states are made as text needs them.
 *
 * A thread of reading is a state of a class automaton, the class's place among the elements, and the node where reading
 * goes on after the alternative; nodes are continuations with a parent, kept once each, so stacks share their tails, and
 * the characters of a literal need none. A set of threads is all the ways to read the text so far; sets are kept once each
 * too, with a table of where each byte leads. Knows no tokens.
 *
 * Memory grows with the sets that were met, up to the limit 'states' of the call's work for nodes and sets, ten times that
 * for threads; `forget` throws away all but two sets. */
#ifndef MICA_GRAMMAR_MACHINE_H
#define MICA_GRAMMAR_MACHINE_H

#include "grammar/grammar.h"

#define MICA__SET_UNKNOWN 0u /* in the table: nobody asked yet */
#define MICA__SET_DEAD 1u    /* no text goes on this way */
#define MICA__SET_FIRST 2u   /* the set before any text */

/* Where a reading goes on: element `position`, then the parent. Node 0 is the end of the text. */
typedef struct mica__machine_node {
    uint32_t position, parent;
    uint32_t repeats; /* of a repetition, done so far; no higher than counts */
    uint32_t met;     /* the last search that met it */
    uint32_t moved;   /* while forgetting: the new number of the node that had this one's */
} mica__machine_node;

typedef struct mica__machine_set {
    uint32_t first, size; /* in machine->threads, ascending */
    bool may_end;
} mica__machine_set;

typedef struct mica__machine {
    const mica_grammar *grammar;
    mica__machine_node *nodes;
    mica__machine_set *sets; /* [0] and [1] are UNKNOWN and DEAD */
    uint16_t *next;          /* [set_capacity][256] */
    uint64_t *threads;       /* state of a class << 48 | its element << 24 | the node after the alternative */
    uint32_t *work;          /* nodes of the running search */
    uint32_t *node_table, *set_table;
    uint32_t node_count, set_count, thread_count, work_count;
    uint32_t node_capacity, set_capacity, next_capacity, thread_capacity, work_capacity;
    uint32_t node_slots, set_slots, search;
    uint64_t seed;
} mica__machine;

mica_status mica__machine_init(mica__machine *machine, const mica_grammar *grammar);
void mica__machine_free(mica__machine *machine);

/* Makes the set before any text, which must be the first: SET_FIRST is its number. BUDGET past the limits, as from `step`. */
mica_status mica__machine_start(mica__machine *machine);

/* The set after one more byte, DEAD if there is none. BUDGET: the limits are reached; after `forget` there may be room
 * again. */
mica_status mica__machine_step(mica__machine *machine, uint32_t set, uint8_t byte, uint32_t *out_set);

/* Throws away all sets but the first and this one, which gets a new number. Allocates nothing. */
uint32_t mica__machine_forget(mica__machine *machine, uint32_t set);

static inline uint32_t mica__machine_next(const mica__machine *machine, uint32_t set, uint8_t byte)
{
    return machine->next[(size_t)set * 256 + byte];
}

#endif
