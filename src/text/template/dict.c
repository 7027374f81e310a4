/* dict.c: dicts: keys in the order of insertion, found by a hash from 9 entries on. */
#include <string.h>

#include "base/hash.h"
#include "text/template/run.h"

#define KEY_BYTES 32u /* what hashing a key is counted as, beside its bytes */
#define SMALL 8       /* so many entries are looked through one by one */

bool mica__jinja_is_key(const mica__jinja_value *v)
{
    return v->kind <= MICA__JINJA_STRING || v->kind == MICA__JINJA_TUPLE || v->kind >= MICA__JINJA_RANGE;
}

static mica_status hash_at(mica__jinja_run *run, const mica__jinja_value *v, uint32_t depth,
                           uint64_t *out_hash)
{
    const mica_status spent =
        mica__jinja_spend_bytes(run, v->kind == MICA__JINJA_STRING ? KEY_BYTES + v->length : KEY_BYTES);
    if (spent != MICA_OK)
        return spent;
    if (!mica__jinja_is_key(v))
        return mica__jinja_raise(run, "unhashable type: '%s'", mica__jinja_type(v));
    if (depth > MICA__JINJA_VALUE_DEPTH)
        return mica__jinja_stop(run, MICA_ERR_BUDGET, "a value has more than %d tuples inside each other",
                                MICA__JINJA_VALUE_DEPTH);
    if (v->kind == MICA__JINJA_STRING) {
        *out_hash = mica__hash_bytes(v->text, v->length, run->seed);
    } else if (v->kind == MICA__JINJA_TUPLE) {
        uint64_t sum = run->seed, part = 0;
        for (size_t i = 0; i < v->length; i++) {
            const mica_status status = hash_at(run, &v->items[i], depth + 1, &part);
            if (status != MICA_OK)
                return status;
            sum = mica__hash_bytes(&part, sizeof part, sum);
        }
        *out_hash = sum;
    } else if (mica__jinja_is_number(v)) { /* 1, 1.0 and true are equal, so all are hashed as one kind */
        const double real = mica__jinja_as_double(v) + 0.0;
        *out_hash = mica__hash_bytes(&real, sizeof real, run->seed);
    } else if (v->kind == MICA__JINJA_RANGE) {
        const int64_t start = v->length == 0 ? 0 : v->range->start, step = v->length < 2 ? 0 : v->range->step;
        const int64_t key[] = {start, step, (int64_t)v->length};
        *out_hash = mica__hash_bytes(key, sizeof key, run->seed);
    } else { /* undefined and none equal their like; what is behind a pointer is equal to itself alone */
        const void *key = v->kind <= MICA__JINJA_NONE ? NULL : v->items;
        *out_hash = mica__hash_bytes(&key, sizeof key, run->seed + v->kind);
    }
    return MICA_OK;
}

mica_status mica__jinja_dict_new(mica__jinja_run *run, size_t capacity, mica__jinja_dict **out_dict)
{
    mica__jinja_dict *dict = mica__jinja_calloc(&run->arena, 1, sizeof *dict);
    *out_dict = dict;
    if (dict == NULL)
        return mica__jinja_arena_failure(&run->arena);
    if (capacity == 0)
        return MICA_OK;
    dict->entries = mica__jinja_calloc(&run->arena, capacity, sizeof *dict->entries);
    dict->capacity = capacity;
    return dict->entries == NULL ? mica__jinja_arena_failure(&run->arena) : MICA_OK;
}

/* Makes or enlarges the index, so that at least half of it stays free. */
static mica_status index_all(mica__jinja_run *run, mica__jinja_dict *dict)
{
    size_t slots = 32;
    while (slots < dict->capacity * 2)
        slots *= 2;
    dict->index = mica__jinja_calloc(&run->arena, slots, sizeof *dict->index);
    if (dict->index == NULL)
        return mica__jinja_arena_failure(&run->arena);
    dict->slots = slots;
    for (size_t i = 0; i < dict->count; i++) {
        uint64_t hash = 0;
        const mica_status status = hash_at(run, &dict->entries[i].key, 0, &hash);
        if (status != MICA_OK)
            return status;
        size_t slot = hash & (slots - 1);
        while (dict->index[slot] != 0)
            slot = (slot + 1) & (slots - 1);
        dict->index[slot] = (uint32_t)i + 1;
    }
    return mica__jinja_spend(run, dict->count / 4);
}

static mica_status find(mica__jinja_run *run, const mica__jinja_dict *dict, const mica__jinja_value *key,
                        size_t *out_entry)
{
    uint64_t hash = 0;
    bool equal = false;
    *out_entry = SIZE_MAX;
    mica_status status = hash_at(run, key, 0, &hash);
    if (dict->index == NULL) {
        for (size_t i = 0; status == MICA_OK && !equal && i < dict->count; i++) {
            status = mica__jinja_equal(run, &dict->entries[i].key, key, &equal);
            if (equal)
                *out_entry = i;
        }
        return status;
    }
    for (size_t slot = hash & (dict->slots - 1); status == MICA_OK && !equal && dict->index[slot] != 0;
         slot = (slot + 1) & (dict->slots - 1)) {
        status = mica__jinja_equal(run, &dict->entries[dict->index[slot] - 1].key, key, &equal);
        if (equal)
            *out_entry = dict->index[slot] - 1;
    }
    return status;
}

static mica_status grow(mica__jinja_run *run, mica__jinja_dict *dict)
{
    const size_t capacity = dict->capacity == 0 ? 4 : dict->capacity * 2;
    mica__jinja_entry *entries = mica__jinja_calloc(&run->arena, capacity, sizeof *entries);
    if (entries == NULL)
        return mica__jinja_arena_failure(&run->arena);
    if (dict->count != 0)
        memcpy(entries, dict->entries, dict->count * sizeof *entries);
    dict->entries = entries;
    dict->capacity = capacity;
    return dict->index != NULL ? index_all(run, dict) : MICA_OK;
}

mica_status mica__jinja_dict_put(mica__jinja_run *run, mica__jinja_dict *dict, const mica__jinja_value *key,
                                 const mica__jinja_value *value)
{
    size_t entry;
    mica_status status = find(run, dict, key, &entry);
    if (status != MICA_OK)
        return status;
    if (entry != SIZE_MAX) {
        dict->entries[entry].value = *value;
        return MICA_OK;
    }
    if (dict->count == dict->capacity)
        status = grow(run, dict);
    if (status != MICA_OK)
        return status;
    dict->entries[dict->count++] = (mica__jinja_entry){*key, *value};
    if (dict->index == NULL)
        return dict->count > SMALL ? index_all(run, dict) : MICA_OK;
    uint64_t hash = 0;
    status = hash_at(run, key, 0, &hash);
    size_t slot = hash & (dict->slots - 1);
    while (dict->index[slot] != 0)
        slot = (slot + 1) & (dict->slots - 1);
    dict->index[slot] = (uint32_t)dict->count;
    return status;
}

mica_status mica__jinja_dict_get(mica__jinja_run *run, const mica__jinja_dict *dict,
                                 const mica__jinja_value *key, const mica__jinja_value **out_value)
{
    size_t entry;
    const mica_status status = find(run, dict, key, &entry);
    *out_value = entry == SIZE_MAX ? NULL : &dict->entries[entry].value;
    return status;
}
