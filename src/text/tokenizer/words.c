/* words.c: the hash maps are open-addressed with a random seed, because their keys come from a file. */
#include "text/tokenizer/words.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/sort.h"
#include "base/work.h"

#define MAP_STEPS 8    /* of one key */
#define MAP_PIECE 8192 /* keys between two looks at the limits */

/* The power of two that leaves `count` keys half of the slots or more. */
static size_t slots_for(size_t count)
{
    size_t slots = 16;
    while (slots < count * 2)
        slots *= 2;
    return slots;
}

mica_status mica__token_map_create(mica__token_map *map, const mica_string *keys, uint32_t count)
{
    const size_t slots = slots_for(count);
    *map = (mica__token_map){.keys = keys, .mask = (uint32_t)(slots - 1), .seed = mica__hash_seed()};
    map->slots = mica__alloc(slots * sizeof *map->slots);
    if (map->slots == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a table of %u tokens", count);
    memset(map->slots, 0xff, slots * sizeof *map->slots);
    for (uint32_t i = 0; i < count; i++) {
        if (i % MAP_PIECE == 0) {
            const mica_status status = mica__spend(MAP_PIECE * MAP_STEPS < (uint64_t)(count - i) * MAP_STEPS
                                                       ? MAP_PIECE * MAP_STEPS
                                                       : (uint64_t)(count - i) * MAP_STEPS);
            if (status != MICA_OK)
                return status;
        }
        if (keys[i].length == 0 ||
            mica__token_map_find(map, keys[i].data, (size_t)keys[i].length) != MICA__NO_WORD)
            continue;
        const uint64_t hash = mica__hash_bytes(keys[i].data, (size_t)keys[i].length, map->seed);
        uint32_t at = (uint32_t)hash & map->mask;
        while (map->slots[at].id != MICA__NO_WORD)
            at = (at + 1) & map->mask;
        map->slots[at] = (mica__token_slot){(uint32_t)(hash >> 32), i};
    }
    return MICA_OK;
}

uint32_t mica__token_map_find(const mica__token_map *map, const char *text, size_t length)
{
    if (map->slots == NULL)
        return MICA__NO_WORD;
    const uint64_t hash = mica__hash_bytes(text, length, map->seed);
    const uint32_t tag = (uint32_t)(hash >> 32);
    for (uint32_t at = (uint32_t)hash & map->mask;; at = (at + 1) & map->mask) {
        const mica__token_slot slot = map->slots[at];
        if (slot.id == MICA__NO_WORD)
            return MICA__NO_WORD;
        if (slot.tag == tag && map->keys[slot.id].length == length &&
            memcmp(map->keys[slot.id].data, text, length) == 0)
            return slot.id;
    }
}

void mica__token_map_release(mica__token_map *map)
{
    mica__free(map->slots);
    map->slots = NULL;
}

mica_status mica__wordlist_create(mica__wordlist *list, size_t most)
{
    memset(list, 0, sizeof *list);
    list->words = mica__calloc(most + 1, sizeof *list->words);
    return list->words != NULL
               ? MICA_OK
               : mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a list of %zu tokens", most);
}

static int compare_words(const void *a, const void *b)
{
    const mica__word *left = a, *right = b;
    const uint32_t common = left->length < right->length ? left->length : right->length;
    const int order = memcmp(left->text, right->text, common);
    if (order != 0)
        return order;
    if (left->length != right->length)
        return left->length < right->length ? -1 : 1;
    return left->id < right->id ? -1 : left->id > right->id;
}

/* Long words go behind the others, in the same order. */
static mica_status move_long(mica__wordlist *list)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++)
        list->long_count += list->words[i].length > MICA__SHORT_WORD;
    if (list->long_count == 0)
        return MICA_OK;
    mica__word *longer = mica__alloc((size_t)list->long_count * sizeof *longer);
    if (longer == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u long tokens", list->long_count);
    for (uint32_t i = 0; i < list->count; i++)
        if (list->words[i].length > MICA__SHORT_WORD)
            longer[i - kept] = list->words[i];
        else
            list->words[kept++] = list->words[i];
    memcpy(list->words + kept, longer, (size_t)list->long_count * sizeof *longer);
    list->count = kept;
    mica__free(longer);
    return MICA_OK;
}

mica_status mica__wordlist_sort(mica__wordlist *list)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->words[i].length != 0)
            list->words[kept++] = list->words[i];
    list->count = kept;
    MICA__TRY(mica__sort(list->words, kept, sizeof *list->words, compare_words));
    mica_status status = move_long(list);
    for (uint32_t i = 0; i < list->count; i++)
        list->first[(unsigned char)list->words[i].text[0] + 1]++;
    for (uint32_t byte = 0; byte < 256; byte++)
        list->first[byte + 1] += list->first[byte];
    return status == MICA_OK && list->long_count != 0
               ? mica__reach_tree_create(&list->tree, list->words + list->count, list->long_count)
               : status;
}

void mica__wordlist_release(mica__wordlist *list)
{
    mica__free(list->words);
    mica__reach_tree_release(&list->tree);
    memset(list, 0, sizeof *list);
}

/* The first word of [low, high) whose byte at `depth` is not below `byte`; one that ends there comes before all. */
static uint32_t lower_bound(const mica__wordlist *list, uint32_t low, uint32_t high, uint32_t depth,
                            unsigned byte)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const mica__word *word = &list->words[middle];
        if (word->length == depth || (unsigned char)word->text[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool mica__walk_step(const mica__wordlist *list, mica__walk *walk, unsigned char byte)
{
    if (walk->depth == 0) {
        walk->low = list->first[byte];
        walk->high = list->first[byte + 1];
    } else {
        walk->low = lower_bound(list, walk->low, walk->high, walk->depth, byte);
        walk->high = lower_bound(list, walk->low, walk->high, walk->depth, byte + 1u);
    }
    walk->depth++;
    return walk->low < walk->high;
}

const mica__word *mica__wordlist_longest(const mica__wordlist *list, const char *text, size_t length,
                                         size_t *out_walked)
{
    const mica__word *longest = NULL;
    mica__walk walk = {0};
    size_t i = 0;
    for (; i < length && mica__walk_step(list, &walk, (unsigned char)text[i]); i++) {
        const mica__word *word = mica__walk_word(list, &walk);
        longest = word != NULL ? word : longest;
    }
    *out_walked = i;
    return longest;
}

mica_status mica__merge_map_create(mica__merge_map *map, size_t count)
{
    const size_t slots = slots_for(count);
    *map = (mica__merge_map){.mask = (uint32_t)(slots - 1), .seed = mica__hash_seed() | 1};
    map->slots = mica__alloc(slots * sizeof *map->slots);
    if (map->slots == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a table of %zu merges", count);
    memset(map->slots, 0xff, slots * sizeof *map->slots);
    return MICA_OK;
}

/* Where the pair is, or the free slot where it would go. */
static mica__merge *merge_slot(const mica__merge_map *map, uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * map->seed;
    hash = (hash ^ hash >> 29) * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(hash >> 32) & map->mask;
    while (map->slots[at].left != MICA__NO_WORD &&
           (map->slots[at].left != left || map->slots[at].right != right))
        at = (at + 1) & map->mask;
    return &map->slots[at];
}

void mica__merge_map_add(mica__merge_map *map, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    mica__merge *slot = merge_slot(map, left, right);
    if (slot->left == MICA__NO_WORD)
        *slot = (mica__merge){left, right, rank, id};
}

const mica__merge *mica__merge_map_find(const mica__merge_map *map, uint32_t left, uint32_t right)
{
    if (map->slots == NULL)
        return NULL;
    const mica__merge *slot = merge_slot(map, left, right);
    return slot->left != MICA__NO_WORD ? slot : NULL;
}

void mica__merge_map_release(mica__merge_map *map)
{
    mica__free(map->slots);
    map->slots = NULL;
}
