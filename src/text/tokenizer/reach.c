/* reach.c: where the long words of a list begin in a text, in a time that does not depend on how long they are.
 *
 * A word of thousands of bytes costs that much wherever a text nearly holds it, if it is walked from each place. Here
 * the text is read once, from its end. */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/work.h"
#include "text/tokenizer/words.h"

#define PIECE 16384  /* bytes between two looks at the limits */
#define BYTE_STEPS 4 /* of a byte that goes into a tree, or through one */

static uint32_t slot_of(const mica__reach_tree *t, uint32_t parent, unsigned char byte)
{
    uint64_t hash = ((uint64_t)parent << 8 | byte) * t->seed;
    hash = (hash ^ hash >> 29) * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(hash >> 32) & t->mask;
    while (t->slots[at] != 0 && (t->parent[t->slots[at]] != parent || t->byte[t->slots[at]] != byte))
        at = (at + 1) & t->mask;
    return at;
}

/* The child, 0 if there is none. */
static uint32_t child_of(const mica__reach_tree *t, uint32_t parent, unsigned char byte)
{
    return t->slots[slot_of(t, parent, byte)];
}

static uint32_t add_child(mica__reach_tree *t, uint32_t parent, unsigned char byte)
{
    const uint32_t at = slot_of(t, parent, byte);
    if (t->slots[at] != 0)
        return t->slots[at];
    const uint32_t node = t->count++;
    t->parent[node] = parent;
    t->byte[node] = byte;
    t->word[node] = MICA__NO_WORD;
    return t->slots[at] = node;
}

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the long tokens of a tokenizer");
}

static mica_status reserve(mica__reach_tree *t, uint64_t nodes)
{
    size_t slots = 16;
    while (slots < nodes * 2)
        slots *= 2;
    if (nodes >= UINT32_MAX / 4)
        return no_memory();
    t->mask = (uint32_t)(slots - 1);
    t->slots = mica__calloc(slots, sizeof *t->slots);
    uint32_t **const lists[] = {&t->parent, &t->fail, &t->word, &t->next};
    bool whole = t->slots != NULL;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        *lists[i] = mica__calloc((size_t)nodes, sizeof **lists[i]);
        whole = whole && *lists[i] != NULL;
    }
    t->byte = mica__calloc((size_t)nodes, 1);
    return whole && t->byte != NULL ? MICA_OK : no_memory();
}

static mica_status add_words(mica__reach_tree *t, const mica__word *words, uint32_t count)
{
    t->count = 1;
    t->word[0] = MICA__NO_WORD;
    for (uint32_t i = 0; i < count; i++) {
        const mica_status status = mica__spend((uint64_t)words[i].length * BYTE_STEPS);
        uint32_t node = 0;
        if (status != MICA_OK)
            return status;
        for (uint32_t k = words[i].length; k-- > 0;)
            node = add_child(t, node, (unsigned char)words[i].text[k]);
        if (t->word[node] == MICA__NO_WORD) /* of equal ones the first counts */
            t->word[node] = i;
    }
    return MICA_OK;
}

/* Where to go on from `node` with one more byte. */
static uint32_t step(const mica__reach_tree *t, uint32_t node, unsigned char byte)
{
    for (;; node = t->fail[node]) {
        const uint32_t child = child_of(t, node, byte);
        if (child != 0 || node == 0)
            return child;
    }
}

/* Nodes in the order of their depths; a node comes after its parent in any case. */
static void order_nodes(const mica__reach_tree *t, uint32_t *depth, uint32_t *start, uint32_t *order)
{
    uint32_t deepest = 0, at = 0;
    for (uint32_t i = 1; i < t->count; i++) {
        depth[i] = depth[t->parent[i]] + 1;
        deepest = depth[i] > deepest ? depth[i] : deepest;
        start[depth[i]]++;
    }
    for (uint32_t i = 1; i <= deepest; i++) {
        const uint32_t size = start[i];
        start[i] = at;
        at += size;
    }
    for (uint32_t i = 1; i < t->count; i++)
        order[start[depth[i]]++] = i;
}

static mica_status link_nodes(mica__reach_tree *t)
{
    uint32_t *memory = mica__calloc((size_t)t->count * 3 + 1, sizeof *memory), *order = memory;
    mica_status status = MICA_OK;
    if (memory == NULL)
        return no_memory();
    order_nodes(t, memory + t->count, memory + 2 * (size_t)t->count, order);
    for (uint32_t i = 0; i + 1 < t->count && status == MICA_OK; i++) {
        const uint32_t node = order[i], parent = t->parent[node];
        t->fail[node] = parent == 0 ? 0 : step(t, t->fail[parent], t->byte[node]);
        const uint32_t fail = t->fail[node];
        t->next[node] = t->word[fail] != MICA__NO_WORD ? fail : t->next[fail];
        if (i % PIECE == 0)
            status = mica__spend((uint64_t)(t->count - i < PIECE ? t->count - i : PIECE) * BYTE_STEPS);
    }
    mica__free(memory);
    return status;
}

mica_status mica__reach_tree_create(mica__reach_tree *tree, const mica__word *words, uint32_t count)
{
    uint64_t nodes = 1;
    for (uint32_t i = 0; i < count; i++)
        nodes += words[i].length;
    *tree = (mica__reach_tree){.seed = mica__hash_seed() | 1};
    mica_status status = reserve(tree, nodes);
    if (status == MICA_OK)
        status = add_words(tree, words, count);
    return status == MICA_OK ? link_nodes(tree) : status;
}

void mica__reach_tree_release(mica__reach_tree *tree)
{
    mica__free(tree->slots);
    mica__free(tree->parent);
    mica__free(tree->fail);
    mica__free(tree->word);
    mica__free(tree->next);
    mica__free(tree->byte);
    memset(tree, 0, sizeof *tree);
}

mica_status mica__reach_find(mica__reach *reach, const mica__wordlist *list, const char *text, size_t length)
{
    const mica__reach_tree *tree = &list->tree;
    uint32_t node = 0;
    if (list->long_count == 0)
        return MICA_OK;
    if (length > reach->room) {
        uint32_t *grown = mica__realloc(reach->node, (length + length / 2) * sizeof *grown);
        if (grown == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to look for long tokens");
        reach->node = grown;
        reach->room = length + length / 2;
    }
    for (size_t i = length; i-- > 0;) {
        if (i % PIECE == 0) {
            const mica_status status =
                mica__spend((uint64_t)(length - i < PIECE ? length - i : PIECE) * BYTE_STEPS);
            if (status != MICA_OK)
                return status;
        }
        node = step(tree, node, (unsigned char)text[i]);
        reach->node[i] = tree->word[node] != MICA__NO_WORD ? node : tree->next[node];
    }
    return MICA_OK;
}

void mica__reach_release(mica__reach *reach)
{
    mica__free(reach->node);
    *reach = (mica__reach){0};
}
