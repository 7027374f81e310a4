/* machine.c: making the sets and nodes of a grammar at work. */
#include "grammar/machine.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/work.h"

#define MOST_SETS 60000u       /* their numbers have 16 bits in the tables, of 512 bytes each */
#define MOST_PLACES (1u << 24) /* so that 24 bits of a thread name one */
#define MOST_THREADS (1u << 30)
#define THREADS_PER_STATE 10u /* of the limit 'states' */

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to follow the text");
}

/* BUDGET when there are `count` already; `times` as many as the limit 'states' are allowed, no more than `most`. */
static mica_status room_for(const char *what, uint32_t count, uint64_t times, uint32_t most)
{
    const uint64_t states = mica__limits()->states;
    const uint64_t limit = states < most / times ? states * times : most;
    if (count < limit)
        return MICA_OK;
    return mica__fail(
        MICA_ERR_BUDGET,
        "more than %llu %s to follow the text (the limit 'states' of mica_work); it can be read "
        "in too many ways",
        (unsigned long long)limit, what);
}

/* ---- nodes ---------------------------------------------------------------------------------------------- */

static uint64_t hash_node(const void *context, uint32_t index)
{
    const mica__machine *machine = context;
    const mica__machine_node *node = &machine->nodes[index];
    const uint32_t key[3] = {node->position, node->parent, node->repeats};
    return mica__hash_bytes(key, sizeof key, machine->seed);
}

/* The node with this content, an old one if there is one. */
static mica_status intern_node(mica__machine *machine, uint32_t position, uint32_t parent, uint32_t repeats,
                               uint32_t *out_node)
{
    const uint32_t key[3] = {position, parent, repeats};
    mica__machine_node *nodes;
    uint32_t slot;
    if (!mica__table_grow(&machine->node_table, &machine->node_slots, machine->node_count, hash_node,
                          machine))
        return no_memory();
    slot = (uint32_t)mica__hash_bytes(key, sizeof key, machine->seed) & (machine->node_slots - 1);
    for (; machine->node_table[slot] != 0; slot = (slot + 1) & (machine->node_slots - 1)) {
        const mica__machine_node *node = &machine->nodes[machine->node_table[slot] - 1];
        if (node->position == position && node->parent == parent && node->repeats == repeats) {
            *out_node = machine->node_table[slot] - 1;
            return MICA_OK;
        }
    }
    MICA__TRY(room_for("places", machine->node_count, 1, MOST_PLACES));
    MICA__TRY(mica__spend(8));
    nodes = mica__grown(machine->nodes, &machine->node_capacity, machine->node_count + 1, sizeof *nodes);
    if (nodes == NULL)
        return no_memory();
    machine->nodes = nodes;
    memset(&nodes[machine->node_count], 0, sizeof *nodes);
    nodes[machine->node_count].position = position;
    nodes[machine->node_count].parent = parent;
    nodes[machine->node_count].repeats = repeats;
    *out_node = machine->node_count++;
    machine->node_table[slot] = *out_node + 1;
    return MICA_OK;
}

/* The node that goes on at `position` inside `parent`; at the end of an alternative that is the parent itself, so that
 * a call in last place leaves nothing on the stack. */
static mica_status continue_at(mica__machine *machine, uint32_t position, uint32_t parent, uint32_t *out_node)
{
    *out_node = parent;
    if (machine->grammar->elements[position].kind == MICA__GRAMMAR_END)
        return MICA_OK;
    return intern_node(machine, position, parent, 0, out_node);
}

/* ---- threads that begin at a node ----------------------------------------------------------------------- */

static uint32_t node_of(uint64_t thread)
{
    return (uint32_t)thread & (MOST_PLACES - 1);
}

static uint32_t position_of(uint64_t thread)
{
    return (uint32_t)(thread >> 24) & (MICA__GRAMMAR_ELEMENTS - 1);
}

static mica_status add_thread(mica__machine *machine, uint64_t state, uint64_t position, uint32_t node)
{
    uint64_t *threads;
    if (machine->thread_count % 64 == 0) /* so that a thread costs little */
        MICA__TRY(room_for("threads", machine->thread_count, THREADS_PER_STATE, MOST_THREADS));
    threads =
        mica__grown(machine->threads, &machine->thread_capacity, machine->thread_count + 1, sizeof *threads);
    if (threads == NULL)
        return no_memory();
    machine->threads = threads;
    threads[machine->thread_count++] = state << 48 | position << 24 | node;
    return MICA_OK;
}

/* The thread that begins with the class at a position. */
static mica_status add_class(mica__machine *machine, uint32_t position, uint32_t after)
{
    const mica_grammar *grammar = machine->grammar;
    return add_thread(machine, grammar->classes[grammar->elements[position].value].state, position, after);
}

/* Puts a node on the list of the running search, once. */
static mica_status search_node(mica__machine *machine, uint32_t node)
{
    uint32_t *work;
    if (machine->nodes[node].met == machine->search)
        return MICA_OK;
    machine->nodes[node].met = machine->search;
    work = mica__grown(machine->work, &machine->work_capacity, machine->work_count + 1, sizeof *work);
    if (work == NULL)
        return no_memory();
    machine->work = work;
    work[machine->work_count++] = node;
    return MICA_OK;
}

/* Searches what the alternatives of a rule begin with, to go on at `after`. */
static mica_status search_rule(mica__machine *machine, uint32_t rule, uint32_t after)
{
    const mica_grammar *grammar = machine->grammar;
    const mica__grammar_rule *it = &grammar->rules[rule];
    for (uint32_t a = it->first; a < it->first + it->count; a++) {
        const uint32_t position = grammar->alternatives[a];
        uint32_t node;
        MICA__TRY(mica__spend(2));
        if (grammar->elements[position].kind == MICA__GRAMMAR_CLASS) {
            MICA__TRY(add_class(machine, position, after));
            continue;
        }
        MICA__TRY(continue_at(machine, position, after, &node));
        MICA__TRY(search_node(machine, node));
    }
    return MICA_OK;
}

static mica_status search_repeat(mica__machine *machine, const mica__grammar_element *element,
                                 mica__machine_node at)
{
    uint32_t node, repeats = at.repeats + 1;
    mica_status status = MICA_OK;
    if (at.repeats >= element->min) {
        status = continue_at(machine, at.position + 1, at.parent, &node);
        if (status == MICA_OK)
            status = search_node(machine, node);
    }
    if (status != MICA_OK || at.repeats >= element->max)
        return status;
    if (element->max == MICA__GRAMMAR_MANY && repeats > element->min)
        repeats = element->min; /* from here on repeats need no counting */
    status = intern_node(machine, at.position, at.parent, repeats, &node);
    return status != MICA_OK ? status : search_rule(machine, element->value, node);
}

static mica_status search_step(mica__machine *machine, uint32_t node, bool *ends)
{
    const mica_grammar *grammar = machine->grammar;
    const mica__machine_node at = machine->nodes[node]; /* a copy: the array may move */
    const mica__grammar_element *element = &grammar->elements[at.position];
    uint32_t after;
    MICA__TRY(mica__spend(4));
    if (node == 0) {
        *ends = true;
        return MICA_OK;
    }
    if (element->kind == MICA__GRAMMAR_REPEAT)
        return search_repeat(machine, element, at);
    if (element->kind == MICA__GRAMMAR_CLASS)
        return add_class(machine, at.position, at.parent);
    mica_status status = continue_at(machine, at.position + 1, at.parent, &after);
    return status != MICA_OK ? status : search_rule(machine, element->value, after);
}

static void sift(uint64_t *items, uint32_t root, uint32_t count)
{
    const uint64_t item = items[root];
    for (uint32_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count && items[child + 1] > items[child])
            child++;
        if (items[child] <= item)
            break;
        items[root] = items[child];
        root = child;
    }
    items[root] = item;
}

/* Steps to sort so many. */
static uint64_t sorting(uint32_t count)
{
    uint64_t levels = 1;
    while (count >> levels != 0)
        levels++;
    return count * levels;
}

/* Sorts and drops doubles; returns how many are left. */
static uint32_t sort_threads(uint64_t *items, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = count / 2; i > 0; i--)
        sift(items, i - 1, count);
    for (uint32_t left = count; left > 1; left--) {
        const uint64_t top = items[0];
        items[0] = items[left - 1];
        items[left - 1] = top;
        sift(items, 0, left - 1);
    }
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || items[i] != items[kept - 1])
            items[kept++] = items[i];
    return kept;
}

/* ---- sets ----------------------------------------------------------------------------------------------- */

static uint64_t hash_threads(const mica__machine *machine, const mica__machine_set *set)
{
    return mica__hash_bytes(machine->threads + set->first, set->size * sizeof *machine->threads,
                            machine->seed + set->may_end);
}

static uint64_t hash_set(const void *context, uint32_t index)
{
    const mica__machine *machine = context;
    return index < MICA__SET_FIRST ? index : hash_threads(machine, &machine->sets[index]);
}

static mica_status new_set(mica__machine *machine, mica__machine_set set, uint32_t slot, uint32_t *out_set)
{
    mica__machine_set *sets;
    uint16_t *next;
    MICA__TRY(room_for("states", machine->set_count, 1, MOST_SETS));
    MICA__TRY(mica__spend(64));
    sets = mica__grown(machine->sets, &machine->set_capacity, machine->set_count + 1, sizeof *sets);
    if (sets != NULL)
        machine->sets = sets;
    next = mica__grown(machine->next, &machine->next_capacity, machine->set_count + 1, 256 * sizeof *next);
    if (next != NULL)
        machine->next = next;
    if (sets == NULL || next == NULL)
        return no_memory();
    memset(next + (size_t)machine->set_count * 256, 0, 256 * sizeof *next);
    sets[machine->set_count] = set;
    *out_set = machine->set_count++;
    machine->set_table[slot] = *out_set + 1;
    return MICA_OK;
}

/* The set of the threads from `first` to the end of the pool, which leave the pool if the set is an old one. */
static mica_status intern_set(mica__machine *machine, uint32_t first, bool may_end, uint32_t *out_set)
{
    mica__machine_set set = {first, 0, may_end};
    uint32_t slot;
    if (machine->thread_count == first && !may_end) {
        *out_set = MICA__SET_DEAD;
        return MICA_OK;
    }
    MICA__TRY(mica__spend(sorting(machine->thread_count - first)));
    set.size = sort_threads(machine->threads + first, machine->thread_count - first);
    machine->thread_count = first + set.size;
    if (!mica__table_grow(&machine->set_table, &machine->set_slots, machine->set_count, hash_set, machine))
        return no_memory();
    slot = (uint32_t)hash_threads(machine, &set) & (machine->set_slots - 1);
    for (; machine->set_table[slot] != 0; slot = (slot + 1) & (machine->set_slots - 1)) {
        const uint32_t index = machine->set_table[slot] - 1;
        const mica__machine_set *old = &machine->sets[index];
        if (index >= MICA__SET_FIRST && old->size == set.size && old->may_end == may_end &&
            memcmp(machine->threads + old->first, machine->threads + first,
                   set.size * sizeof *machine->threads) == 0) {
            machine->thread_count = first;
            *out_set = index;
            return MICA_OK;
        }
    }
    return new_set(machine, set, slot, out_set);
}

/* Searches what begins at a position, to go on at `after`. */
static mica_status search_at(mica__machine *machine, uint32_t position, uint32_t after)
{
    uint32_t node;
    if (machine->grammar->elements[position].kind == MICA__GRAMMAR_CLASS)
        return add_class(machine, position, after);
    MICA__TRY(continue_at(machine, position, after, &node));
    return search_node(machine, node);
}

/* The threads of a set after a byte, with nodes of the search that begin more. */
static mica_status move_on(mica__machine *machine, mica__machine_set from, uint8_t byte)
{
    for (uint32_t i = 0; i < from.size; i++) {
        const uint64_t thread = machine->threads[from.first + i];
        const uint32_t state = machine->grammar->states[thread >> 48].next[byte];
        if (state == MICA__GRAMMAR_ACCEPT)
            MICA__TRY(search_at(machine, position_of(thread) + 1, node_of(thread)));
        else if (state != MICA__GRAMMAR_DEAD)
            MICA__TRY(add_thread(machine, state, position_of(thread), node_of(thread)));
    }
    return MICA_OK;
}

/* Ends a search for all its nodes at once, so that what several of them lead to is looked at once, and makes the threads
 * from `first` on a set; *out_set when that failed is DEAD, and the threads are gone. */
static mica_status end_search(mica__machine *machine, mica_status status, uint32_t first, uint32_t *out_set)
{
    bool ends = false;
    for (uint32_t i = 0; status == MICA_OK && i < machine->work_count; i++)
        status = search_step(machine, machine->work[i], &ends);
    *out_set = MICA__SET_DEAD;
    if (status == MICA_OK)
        status = intern_set(machine, first, ends, out_set);
    if (status != MICA_OK)
        machine->thread_count = first;
    return status;
}

mica_status mica__machine_step(mica__machine *machine, uint32_t set, uint8_t byte, uint32_t *out_set)
{
    const mica__machine_set from = machine->sets[set];
    const uint32_t first = machine->thread_count;
    mica_status status;
    *out_set = machine->next[(size_t)set * 256 + byte];
    if (*out_set != MICA__SET_UNKNOWN)
        return MICA_OK;
    status = mica__spend(32 + (uint64_t)from.size);
    machine->search++;
    machine->work_count = 0;
    if (status == MICA_OK)
        status = move_on(machine, from, byte);
    MICA__TRY(end_search(machine, status, first, out_set));
    machine->next[(size_t)set * 256 + byte] = (uint16_t)*out_set;
    return MICA_OK;
}

mica_status mica__machine_start(mica__machine *machine)
{
    const uint32_t first = machine->thread_count;
    uint32_t set;
    machine->search++;
    machine->work_count = 0;
    return end_search(machine, search_rule(machine, machine->grammar->root, 0), first, &set);
}

/* ---- life ----------------------------------------------------------------------------------------------- */

/* Node 0 and the two numbers that are no sets. */
static mica_status begin(mica__machine *machine)
{
    const mica__machine_set none = {0, 0, false};
    uint32_t number = 0;
    mica_status status;
    machine->threads = mica__grown(NULL, &machine->thread_capacity, 1, sizeof *machine->threads);
    if (machine->threads == NULL ||
        !mica__table_grow(&machine->set_table, &machine->set_slots, 0, hash_set, machine))
        return no_memory();
    status = intern_node(machine, 0, MICA__GRAMMAR_NONE, 0, &number);
    for (uint32_t i = 0; status == MICA_OK && i < MICA__SET_FIRST; i++)
        status = new_set(machine, none, i, &number);
    return status;
}

mica_status mica__machine_init(mica__machine *machine, const mica_grammar *grammar)
{
    memset(machine, 0, sizeof *machine);
    machine->grammar = grammar;
    machine->seed = mica__hash_seed();
    return begin(machine);
}

void mica__machine_free(mica__machine *machine)
{
    mica__free(machine->nodes);
    mica__free(machine->sets);
    mica__free(machine->next);
    mica__free(machine->threads);
    mica__free(machine->work);
    mica__free(machine->node_table);
    mica__free(machine->set_table);
    memset(machine, 0, sizeof *machine);
}

/* Moves the nodes that the first `count` threads need together. A parent is older than its children, so one pass in
 * order is enough. */
static void keep_nodes(mica__machine *machine, uint32_t count)
{
    mica__machine_node *nodes = machine->nodes;
    uint32_t kept = 0;
    nodes[0].met = ++machine->search;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t n = node_of(machine->threads[i]); nodes[n].met != machine->search; n = nodes[n].parent)
            nodes[n].met = machine->search;
    for (uint32_t n = 0; n < machine->node_count; n++) {
        mica__machine_node node = nodes[n];
        if (node.met != machine->search)
            continue;
        nodes[n].moved = kept;
        if (n != 0)
            node.parent = nodes[node.parent].moved;
        node.moved = nodes[kept].moved;
        nodes[kept++] = node;
    }
    machine->node_count = kept;
}

/* Fills the table of nodes anew, which is large enough. */
static void index_nodes(mica__machine *machine)
{
    memset(machine->node_table, 0, machine->node_slots * sizeof *machine->node_table);
    for (uint32_t n = 0; n < machine->node_count; n++) {
        uint32_t slot = (uint32_t)hash_node(machine, n) & (machine->node_slots - 1);
        while (machine->node_table[slot] != 0)
            slot = (slot + 1) & (machine->node_slots - 1);
        machine->node_table[slot] = n + 1;
    }
}

/* Makes the `size` threads from thread_count on, with the old numbers of their nodes, a set. */
static void keep_set(mica__machine *machine, uint32_t size, bool may_end)
{
    const mica__machine_set set = {machine->thread_count, size, may_end};
    uint64_t *threads = machine->threads + set.first;
    uint32_t slot;
    for (uint32_t i = 0; i < size; i++)
        threads[i] = (threads[i] >> 24 << 24) | machine->nodes[node_of(threads[i])].moved;
    machine->thread_count += sort_threads(threads, size);
    slot = (uint32_t)hash_threads(machine, &set) & (machine->set_slots - 1);
    while (machine->set_table[slot] != 0)
        slot = (slot + 1) & (machine->set_slots - 1);
    memset(machine->next + (size_t)machine->set_count * 256, 0, 256 * sizeof *machine->next);
    machine->sets[machine->set_count++] = set;
    machine->set_table[slot] = machine->set_count;
}

uint32_t mica__machine_forget(mica__machine *machine, uint32_t set)
{
    const mica__machine_set start = machine->sets[MICA__SET_FIRST], here = machine->sets[set];
    const bool both = set != MICA__SET_FIRST;
    if (start.size != 0) /* the older one lies before the other, so neither overwrites the other */
        memmove(machine->threads, machine->threads + start.first, start.size * sizeof *machine->threads);
    if (both && here.size != 0)
        memmove(machine->threads + start.size, machine->threads + here.first,
                here.size * sizeof *machine->threads);
    keep_nodes(machine, start.size + (both ? here.size : 0));
    index_nodes(machine);
    memset(machine->set_table, 0, machine->set_slots * sizeof *machine->set_table);
    machine->set_count = MICA__SET_FIRST;
    machine->thread_count = 0;
    keep_set(machine, start.size, start.may_end);
    if (both)
        keep_set(machine, here.size, here.may_end);
    return machine->set_count - 1;
}
