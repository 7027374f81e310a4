/* plan_cache.c - a small hash table from what a plan depends on to the plan. Knows no op and no backend. */
#include "device/plan_cache.h"

#include <string.h>

#include "backend/planning.h"
#include "base/alloc.h"

#define PROBES 4
#define OPERAND_WORDS (3 + 2 * MICA_MAX_DIMS)

/* Everything that a plan may look at, and its hash. */
typedef struct key {
    uint64_t hash;
    uint32_t count;
    const uint64_t *word;
} key;

/* One block: this, the parameters, the dispatches, their bindings, the words of the key. */
struct mica__cached_plan {
    uint64_t hash;
    uint32_t key_count;
    uint64_t *word;
    mica__planned planned;
};

static uint64_t *put_operand(uint64_t *to, const mica__operand *o)
{
    if (!mica__operand_present(o)) {
        *to = 0;
        return to + 1;
    }
    to[0] = 1 | (uint64_t)o->dtype << 8 | (uint64_t)o->ndim << 24 | (uint64_t)o->access << 32 |
            (uint64_t)o->layout << 40;
    to[1] = o->group_size | (o->offset % MICA__PLAN_ALIGNMENT) << 32;
    to[2] = o->length;
    to += 3;
    for (uint32_t d = 0; d < o->ndim; d++, to += 2) {
        to[0] = o->shape[d];
        to[1] = o->stride[d];
    }
    return to;
}

/* The products do not wait for one another, so a long key costs little. */
static uint64_t hash_words(const uint64_t *word, uint32_t count)
{
    uint64_t hash = 0, factor = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < count; i++, factor += 0x6a09e667f3bcc908u)
        hash += word[i] * factor;
    return hash ^ hash >> 32;
}

static bool grow_key(mica__plan_cache *cache, uint32_t words)
{
    uint64_t *grown = mica__realloc(cache->word, 2 * words * sizeof *grown);
    if (grown == NULL)
        return false;
    cache->word = grown;
    cache->word_capacity = 2 * words;
    return true;
}

/* False: no memory for one so long. */
static bool make_key(mica__plan_cache *cache, const mica__record *record, key *out)
{
    const uint32_t params = (record->params_size + 7u) / 8;
    const uint32_t most = 1 + record->operand_count * OPERAND_WORDS + params;
    if (most > cache->word_capacity && !grow_key(cache, most))
        return false;
    uint64_t *word = cache->word, *to = &word[1];
    word[0] = (uint64_t)cache->fresh.reusable << 63 | (uint64_t)record->op << 32 |
              (uint64_t)record->operand_count << 16 | record->params_size;
    for (uint32_t i = 0; i < record->operand_count; i++)
        to = put_operand(to, &record->operand[i]);
    if (params > 0) {
        to[params - 1] = 0;
        memcpy(to, record->params, record->params_size);
        to += params;
    }
    out->word = word;
    out->count = (uint32_t)(to - word);
    out->hash = hash_words(word, out->count);
    return true;
}

static bool has_key(const mica__cached_plan *entry, const key *k)
{
    return entry->hash == k->hash && entry->key_count == k->count &&
           memcmp(entry->word, k->word, k->count * sizeof k->word[0]) == 0;
}

static size_t round_up(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

static mica__cached_plan *new_entry(const key *k, const mica__plan *plan)
{
    const size_t head = round_up(sizeof(mica__cached_plan)), params = round_up(plan->params_used);
    const size_t dispatches = plan->dispatch_count * sizeof plan->dispatch[0],
                 bindings = plan->binding_count * sizeof plan->binding[0],
                 words = k->count * sizeof k->word[0];
    unsigned char *block = mica__alloc(head + params + dispatches + bindings + words);
    if (block == NULL)
        return NULL;
    mica__cached_plan *entry = (mica__cached_plan *)(void *)block;
    entry->hash = k->hash;
    entry->key_count = k->count;
    entry->planned.dispatch_count = plan->dispatch_count;
    entry->planned.scratch_bytes = plan->scratch_bytes;
    block += head;
    entry->planned.params = memcpy(block, plan->params, plan->params_used);
    block += params;
    entry->planned.dispatch = memcpy(block, plan->dispatch, dispatches);
    block += dispatches;
    entry->planned.binding = memcpy(block, plan->binding, bindings);
    block += bindings;
    entry->word = memcpy(block, k->word, words);
    return entry;
}

/* The entry of that key; NULL if there is none, with the slot that its plan may take. */
static const mica__cached_plan *find(mica__plan_cache *cache, const key *k, mica__cached_plan ***out_slot)
{
    for (uint32_t i = 0; i < PROBES; i++) {
        mica__cached_plan **slot = &cache->slot[(k->hash + i) % MICA__PLAN_CACHE_SLOTS];
        *out_slot = slot;
        if (*slot == NULL || has_key(*slot, k))
            return *slot;
    }
    return NULL;
}

void mica__plan_cache_init(mica__plan_cache *cache)
{
    memset(cache, 0, sizeof *cache);
}

void mica__plan_cache_free(mica__plan_cache *cache)
{
    for (uint32_t i = 0; i < MICA__PLAN_CACHE_SLOTS; i++)
        mica__free(cache->slot[i]);
    mica__free(cache->word);
    mica__planning_end(&cache->fresh);
}

bool mica__plan_cache_has(mica__plan_cache *cache, const mica__record *record)
{
    key k = {0};
    mica__cached_plan **slot = NULL;
    return make_key(cache, record, &k) && find(cache, &k, &slot) != NULL;
}

/* Plans it; kept in the slot, if there is one and memory for it. */
static mica_status plan_fresh(mica__plan_cache *cache, mica_device *device, const mica__record *record,
                              const key *k, mica__cached_plan **slot, mica__planned *out)
{
    mica__plan *fresh = &cache->fresh;
    const mica_status status = mica__registry_plan(device, record, fresh);
    if (status != MICA_OK)
        return status;
    mica__cached_plan *entry = slot != NULL ? new_entry(k, fresh) : NULL;
    if (entry == NULL) {
        *out = (mica__planned){fresh->dispatch_count, fresh->scratch_bytes, fresh->dispatch, fresh->binding,
                               fresh->params};
        return MICA_OK;
    }
    mica__free(*slot);
    *slot = entry;
    *out = entry->planned;
    return MICA_OK;
}

mica_status mica__plan_cache_get(mica__plan_cache *cache, mica_device *device, const mica__record *record,
                                 mica__planned *out)
{
    key k = {0};
    mica__cached_plan **slot = NULL;
    const mica__cached_plan *known = make_key(cache, record, &k) ? find(cache, &k, &slot) : NULL;
    if (known == NULL)
        return plan_fresh(cache, device, record, &k, slot, out);
    *out = known->planned;
    return MICA_OK;
}
