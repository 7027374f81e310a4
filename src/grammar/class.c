/* class.c: a set of code points as an automaton over the bytes of their UTF-8.
 *
 * Equal classes and equal states are kept once. What the automaton takes is UTF-8 and nothing else: no overlong form,
 * no surrogate, nothing past U+10FFFF. */
#include <string.h>

#include "base/hash.h"
#include "base/sort.h"
#include "base/status.h"
#include "base/work.h"
#include "grammar/grammar.h"

#define LAST_CODE 0x10ffffu
#define MOST_STATES 0xffffu

typedef struct class_key {
    const mica__grammar_range *ranges;
    uint32_t count;
} class_key;

static uint64_t hash_class(const void *context, uint32_t index)
{
    const mica_grammar *grammar = context;
    const mica__grammar_class *it = &grammar->classes[index];
    return mica__hash_bytes(grammar->ranges + it->first, it->count * sizeof *grammar->ranges, grammar->seed);
}

static uint64_t hash_state(const void *context, uint32_t index)
{
    const mica_grammar *grammar = context;
    return mica__hash_bytes(&grammar->states[index], sizeof *grammar->states, grammar->seed);
}

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the character classes of the grammar");
}

/* The state with these transitions, an old one if there is one. */
static mica_status intern_state(mica_grammar *grammar, const mica__grammar_bytes *bytes, uint32_t *out_state)
{
    uint32_t slot;
    mica__grammar_bytes *states;
    if (!mica__table_grow(&grammar->state_table, &grammar->state_slots, grammar->state_count, hash_state,
                          grammar))
        return no_memory();
    slot = (uint32_t)mica__hash_bytes(bytes, sizeof *bytes, grammar->seed) & (grammar->state_slots - 1);
    MICA__TRY(mica__spend(16));
    for (; grammar->state_table[slot] != 0; slot = (slot + 1) & (grammar->state_slots - 1)) {
        *out_state = grammar->state_table[slot] - 1;
        if (*out_state > MICA__GRAMMAR_ACCEPT &&
            memcmp(&grammar->states[*out_state], bytes, sizeof *bytes) == 0)
            return MICA_OK;
    }
    if (grammar->state_count == MOST_STATES)
        return mica__fail(MICA_ERR_BUDGET, "the character classes of the grammar need more than %u states",
                          MOST_STATES);
    states = mica__grown(grammar->states, &grammar->state_capacity, grammar->state_count + 1, sizeof *states);
    if (states == NULL)
        return no_memory();
    grammar->states = states;
    states[grammar->state_count] = *bytes;
    *out_state = grammar->state_count++;
    grammar->state_table[slot] = *out_state + 1;
    return MICA_OK;
}

/* Does [low, high] lie inside the class (2), touch it (1), or miss it (0)? */
static int cover(class_key key, uint32_t low, uint32_t high)
{
    uint32_t from = 0, to = key.count; /* the first range that does not end before low */
    while (from < to) {
        const uint32_t middle = from + (to - from) / 2;
        if (key.ranges[middle].high < low)
            from = middle + 1;
        else
            to = middle;
    }
    if (from == key.count || key.ranges[from].low > high)
        return 0;
    return key.ranges[from].low <= low && key.ranges[from].high >= high ? 2 : 1;
}

/* What follows a byte after which the codes [base, base + 64^left) are still open, of which those below `floor` would
 * be overlong. Recurses at most three deep. */
static mica_status tail_state(mica_grammar *grammar, class_key key, uint32_t base, uint32_t floor, int left,
                              uint32_t *out_state)
{
    const uint32_t last = base + (1u << (6 * left)) - 1;
    const int covered = last < floor ? 0 : cover(key, base < floor ? floor : base, last);
    mica__grammar_bytes bytes = {{0}};
    uint32_t next = MICA__GRAMMAR_DEAD;
    *out_state = covered == 0 ? MICA__GRAMMAR_DEAD : MICA__GRAMMAR_ACCEPT;
    if (covered == 0 || left == 0)
        return MICA_OK;
    MICA__TRY(mica__spend(64));
    for (uint32_t i = 0; i < 64; i++) {
        if (i == 0 || covered == 1 || base < floor) { /* else all 64 go where the first goes */
            const uint32_t inner = base + (i << (6 * (left - 1)));
            const mica_status status = tail_state(grammar, key, inner, floor, left - 1, &next);
            if (status != MICA_OK)
                return status;
        }
        bytes.next[0x80 + i] = (uint16_t)next;
    }
    return intern_state(grammar, &bytes, out_state);
}

static mica_status first_state(mica_grammar *grammar, class_key key, uint32_t *out_state)
{
    static const struct {
        uint32_t first, last, floor;
        int left;
    } leads[] = {{0xc2, 0xdf, 0x80, 1}, {0xe0, 0xef, 0x800, 2}, {0xf0, 0xf4, 0x10000, 3}};
    mica__grammar_bytes bytes = {{0}};
    MICA__TRY(mica__spend(128));
    for (uint32_t code = 0; code < 0x80; code++)
        bytes.next[code] = cover(key, code, code) != 0 ? MICA__GRAMMAR_ACCEPT : MICA__GRAMMAR_DEAD;
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
        const uint32_t mask = 0x3fu >> leads[i].left;
        for (uint32_t byte = leads[i].first; byte <= leads[i].last; byte++) {
            uint32_t next;
            const mica_status status = tail_state(grammar, key, (byte & mask) << (6 * leads[i].left),
                                                  leads[i].floor, leads[i].left, &next);
            if (status != MICA_OK)
                return status;
            bytes.next[byte] = (uint16_t)next;
        }
    }
    return intern_state(grammar, &bytes, out_state);
}

static int compare_ranges(const void *a, const void *b)
{
    const mica__grammar_range *left = a, *right = b;
    return left->low < right->low ? -1 : left->low > right->low;
}

/* Appends [low, high] to the grammar's ranges, without surrogates. */
static bool add_range(mica_grammar *grammar, uint32_t low, uint32_t high)
{
    static const mica__grammar_range legal[] = {{0, 0xd7ff}, {0xe000, LAST_CODE}};
    for (size_t i = 0; i < 2; i++) {
        const uint32_t from = low > legal[i].low ? low : legal[i].low;
        const uint32_t to = high < legal[i].high ? high : legal[i].high;
        mica__grammar_range *ranges;
        if (from > to)
            continue;
        ranges =
            mica__grown(grammar->ranges, &grammar->range_capacity, grammar->range_count + 1, sizeof *ranges);
        if (ranges == NULL)
            return false;
        grammar->ranges = ranges;
        ranges[grammar->range_count].low = from;
        ranges[grammar->range_count++].high = to;
    }
    return true;
}

/* Appends sorted ranges, joined where they touch, or the gaps between them. */
static bool add_ranges(mica_grammar *grammar, const mica__grammar_range *ranges, uint32_t count, bool negated)
{
    uint32_t gap = 0; /* the first code that no range so far has */
    for (uint32_t i = 0; i < count;) {
        uint32_t high = ranges[i].high;
        const uint32_t low = ranges[i].low;
        for (i++; i < count && ranges[i].low <= high + 1; i++)
            high = ranges[i].high > high ? ranges[i].high : high;
        if (negated ? gap < low && !add_range(grammar, gap, low - 1) : !add_range(grammar, low, high))
            return false;
        gap = high + 1;
    }
    return !negated || gap > LAST_CODE || add_range(grammar, gap, LAST_CODE);
}

static mica_status new_class(mica_grammar *grammar, uint32_t first, uint32_t slot, uint32_t *out_class)
{
    const class_key key = {grammar->ranges + first, grammar->range_count - first};
    uint32_t state;
    const mica_status status = first_state(grammar, key, &state);
    mica__grammar_class *classes;
    if (status != MICA_OK)
        return status;
    classes =
        mica__grown(grammar->classes, &grammar->class_capacity, grammar->class_count + 1, sizeof *classes);
    if (classes == NULL)
        return no_memory();
    grammar->classes = classes;
    classes[grammar->class_count].first = first;
    classes[grammar->class_count].count = key.count;
    classes[grammar->class_count].state = state;
    *out_class = grammar->class_count++;
    grammar->class_table[slot] = *out_class + 1;
    return MICA_OK;
}

mica_status mica__grammar_class_of(mica_grammar *grammar, mica__grammar_range *ranges, uint32_t count,
                                   bool negated, uint32_t *out_class)
{
    const uint32_t first = grammar->range_count;
    mica__grammar_range *room =
        mica__grown(grammar->ranges, &grammar->range_capacity, grammar->range_count + 1, sizeof *room);
    uint32_t slot, size;
    if (room == NULL)
        return no_memory();
    grammar->ranges = room;
    MICA__TRY(mica__spend(8 + (uint64_t)count * 4));
    if (grammar->state_count == 0) { /* the two that have no transitions */
        grammar->states = mica__grown(NULL, &grammar->state_capacity, 2, sizeof *grammar->states);
        if (grammar->states == NULL)
            return no_memory();
        memset(grammar->states, 0, 2 * sizeof *grammar->states);
        grammar->state_count = 2;
    }
    MICA__TRY(mica__sort(ranges, count, sizeof *ranges, compare_ranges));
    if (!add_ranges(grammar, ranges, count, negated))
        return no_memory();
    if (!mica__table_grow(&grammar->class_table, &grammar->class_slots, grammar->class_count, hash_class,
                          grammar))
        return no_memory();
    size = grammar->range_count - first;
    slot = (uint32_t)mica__hash_bytes(grammar->ranges + first, size * sizeof *ranges, grammar->seed) &
           (grammar->class_slots - 1);
    for (; grammar->class_table[slot] != 0; slot = (slot + 1) & (grammar->class_slots - 1)) {
        const mica__grammar_class *it = &grammar->classes[grammar->class_table[slot] - 1];
        if (it->count == size &&
            memcmp(grammar->ranges + it->first, grammar->ranges + first, size * sizeof *ranges) == 0) {
            *out_class = grammar->class_table[slot] - 1;
            grammar->range_count = first;
            return MICA_OK;
        }
    }
    return new_class(grammar, first, slot, out_class);
}
