/* breakers.c: where the texts end that DRY looks at no run across: an automaton over their bytes (Aho and Corasick),
 * so that a byte of the text costs the same whether there are four breakers or a thousand. */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/work.h"
#include "sample/sample.h"

struct mica__breaker_node {
    uint32_t parent, fail; /* fail: the longest proper end of this beginning that is a beginning too */
    uint8_t byte;          /* the last */
    bool ends;             /* a breaker ends here */
};

static uint32_t slot_of(const mica__breakers *all, uint32_t parent, uint8_t byte)
{
    const uint32_t key[2] = {parent, byte};
    uint32_t slot = (uint32_t)mica__hash_bytes(key, sizeof key, all->seed) & (all->slots - 1);
    for (; all->table[slot] != 0; slot = (slot + 1) & (all->slots - 1)) {
        const struct mica__breaker_node *node = &all->nodes[all->table[slot]];
        if (node->parent == parent && node->byte == byte)
            break;
    }
    return slot;
}

/* The node of a beginning with one byte more; 0, which is the empty one, where there is none. */
static uint32_t child_of(const mica__breakers *all, uint32_t parent, uint8_t byte)
{
    return all->table[slot_of(all, parent, byte)];
}

static uint32_t step(const mica__breakers *all, uint32_t node, uint8_t byte)
{
    uint32_t next;
    while ((next = child_of(all, node, byte)) == 0 && node != 0)
        node = all->nodes[node].fail;
    return next;
}

/* Adds the beginnings of all texts, the shorter ones first, so that each one's ends stand before it. */
static mica_status add_beginnings(mica__breakers *all, const char *const *texts, uint32_t count,
                                  size_t longest)
{
    uint32_t *at = mica__calloc((size_t)count + 1, sizeof *at); /* the node of each text so far */
    mica_status status = MICA_OK;
    if (at == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u breakers", count);
    for (size_t depth = 0; depth < longest && status == MICA_OK; depth++) {
        status = mica__spend((uint64_t)count * 16);
        for (uint32_t i = 0; i < count && status == MICA_OK; i++) {
            if (at[i] == UINT32_MAX || texts[i][depth] == '\0') {
                at[i] = UINT32_MAX;
                continue;
            }
            const uint8_t byte = (uint8_t)texts[i][depth];
            const uint32_t slot = slot_of(all, at[i], byte);
            if (all->table[slot] == 0) {
                const uint32_t fail = at[i] == 0 ? 0 : step(all, all->nodes[at[i]].fail, byte);
                all->nodes[all->count] =
                    (struct mica__breaker_node){at[i], fail, byte, all->nodes[fail].ends};
                all->table[slot] = all->count++;
            }
            at[i] = all->table[slot];
            all->nodes[at[i]].ends |= texts[i][depth + 1] == '\0';
        }
    }
    mica__free(at);
    return status;
}

mica_status mica__breakers_make(mica__breakers *all, const char *const *texts, uint32_t count)
{
    size_t bytes = 0, longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        const size_t length = strlen(texts[i]);
        bytes += length;
        longest = length > longest ? length : longest;
    }
    all->seed = mica__hash_seed();
    all->slots = 16;
    while (all->slots < bytes * 2)
        all->slots *= 2;
    all->nodes = mica__calloc(bytes + 1, sizeof *all->nodes);
    all->table = mica__calloc(all->slots, sizeof *all->table);
    if (all->nodes == NULL || all->table == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u breakers", count);
    all->count = 1;
    return add_beginnings(all, texts, count, longest);
}

void mica__breakers_free(mica__breakers *all)
{
    mica__free(all->nodes);
    mica__free(all->table);
}

bool mica__breakers_read(const mica__breakers *all, mica_string bytes, uint32_t *node)
{
    bool found = false;
    if (all->nodes == NULL)
        return false;
    for (uint64_t i = 0; i < bytes.length; i++) {
        *node = step(all, *node, (uint8_t)bytes.data[i]);
        found |= all->nodes[*node].ends;
    }
    return found;
}
