/* plan_cache.c - a small hash table from what a plan depends on to the plan. Knows no op and no backend. */
#include "device/plan_cache.h"

#include <string.h>

#include "base/alloc.h"

#define PROBES 4
#define OPERAND_WORDS (3 + 2 * MICA_MAX_DIMS)
#define KEY_WORDS (1 + MICA__MAX_OPERANDS * OPERAND_WORDS + MICA__MAX_PARAM_BYTES / 8)

/* Everything that a plan may look at, and its hash. */
typedef struct key {
    uint64_t hash;
    uint32_t count;
    uint64_t word[KEY_WORDS];
} key;

/* One block: this, the parameters, the dispatches, the words of the key. */
struct mica__cached_plan {
    uint64_t hash;
    uint32_t key_count;
    uint64_t *word;
    mica__planned planned;
};

static uint64_t *put_operand(uint64_t *to, const mica__operand *o)
{
    if (o->memory == NULL) {
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

static void make_key(const mica__record *record, key *out)
{
    uint64_t *to = &out->word[1];
    out->word[0] = (uint64_t)record->op << 32 | (uint64_t)record->operand_count << 16 | record->params_size;
    for (uint32_t i = 0; i < record->operand_count; i++)
        to = put_operand(to, &record->operand[i]);
    if (record->params_size > 0) {
        const uint32_t words = (record->params_size + 7u) / 8;
        to[words - 1] = 0;
        memcpy(to, record->params, record->params_size);
        to += words;
    }
    out->count = (uint32_t)(to - out->word);
    out->hash = hash_words(out->word, out->count);
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
                 words = k->count * sizeof k->word[0];
    unsigned char *block = mica__alloc(head + params + dispatches + words);
    if (block == NULL)
        return NULL;
    mica__cached_plan *entry = (mica__cached_plan *)(void *)block;
    entry->hash = k->hash;
    entry->key_count = k->count;
    entry->planned.dispatch_count = plan->dispatch_count;
    entry->planned.scratch_bytes = plan->scratch_bytes;
    entry->planned.params = memcpy(block + head, plan->params, plan->params_used);
    entry->planned.dispatch = memcpy(block + head + params, plan->dispatch, dispatches);
    entry->word = memcpy(block + head + params + dispatches, k->word, words);
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
    memset(cache->slot, 0, sizeof cache->slot);
}

void mica__plan_cache_free(mica__plan_cache *cache)
{
    for (uint32_t i = 0; i < MICA__PLAN_CACHE_SLOTS; i++)
        mica__free(cache->slot[i]);
}

bool mica__plan_cache_has(mica__plan_cache *cache, const mica__record *record)
{
    key k;
    mica__cached_plan **slot = NULL;
    make_key(record, &k);
    return find(cache, &k, &slot) != NULL;
}

mica_status mica__plan_cache_get(mica__plan_cache *cache, mica_device *device, const mica__record *record,
                                 mica__planned *out)
{
    key k;
    mica__plan *fresh = &cache->fresh;
    mica__cached_plan **slot = NULL;
    make_key(record, &k);
    const mica__cached_plan *known = find(cache, &k, &slot);
    if (known != NULL) {
        *out = known->planned;
        return MICA_OK;
    }
    mica_status status = mica__registry_plan(device, record, fresh);
    if (status != MICA_OK)
        return status;
    mica__cached_plan *entry = new_entry(&k, fresh);
    if (entry == NULL) {
        *out = (mica__planned){fresh->dispatch_count, fresh->scratch_bytes, fresh->dispatch, fresh->params};
        return MICA_OK;
    }
    mica__free(*slot);
    *slot = entry;
    *out = entry->planned;
    return MICA_OK;
}
