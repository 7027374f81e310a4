/* json_keys.c: finds a key that comes twice in one object. Knows no text but the keys it is given.
 *
 * The keys of the open objects are a stack: those of an object are compared when it ends, which is always the one that
 * began last. A few are compared in pairs, which costs less than hashing, and most objects have no more. Many are dealt
 * out by their hash into parts that fit a cache, because a table of a million keys would miss it at every key. */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/json/json_reader.h"
#include "base/work.h"

#define FEW 8
/* About, so that a part's table of twice as many indices stays in a first-level cache. */
#define PART_KEYS 2048u
#define MOST_PARTS 65536u
#define FIRST_RECORDS 64
#define FIRST_TEXT 4096

typedef struct mica__json_key {
    uint32_t text; /* where it begins in keys->text */
    uint32_t length;
    uint32_t offset; /* in the document, for the sentence */
} record;

/* A key while many are compared. */
typedef struct dealt {
    uint32_t hash, index; /* of its record */
} dealt;

static mica_status no_memory(uint32_t count)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to compare %u JSON keys", (unsigned)count);
}

static mica_status grow_text(mica__json_keys *keys, size_t length)
{
    size_t capacity = keys->text_capacity == 0 ? FIRST_TEXT : keys->text_capacity;
    while (capacity - keys->text_length <= length)
        capacity *= 2; /* a document is shorter than 4 GiB, and so are its keys */
    char *grown = mica__realloc(keys->text, capacity);
    if (grown == NULL)
        return no_memory(keys->count);
    keys->text = grown;
    keys->text_capacity = capacity;
    return MICA_OK;
}

mica_status mica__json_keys_add(mica__json_keys *keys, const char *text, size_t length, uint64_t offset)
{
    if (keys->count == keys->capacity) {
        const uint32_t capacity = keys->capacity == 0 ? FIRST_RECORDS : keys->capacity * 2;
        record *grown = mica__realloc(keys->record, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return no_memory(capacity);
        keys->record = grown;
        keys->capacity = capacity;
    }
    if (length >= keys->text_capacity - keys->text_length) { /* so that there is text even for an empty key */
        const mica_status status = grow_text(keys, length);
        if (status != MICA_OK)
            return status;
    }
    memcpy(keys->text + keys->text_length, text, length);
    keys->record[keys->count++] = (record){(uint32_t)keys->text_length, (uint32_t)length, (uint32_t)offset};
    keys->text_length += length;
    return MICA_OK;
}

static bool same_key(const mica__json_keys *keys, const record *a, const record *b)
{
    return a->length == b->length && memcmp(keys->text + a->text, keys->text + b->text, a->length) == 0;
}

static mica_status duplicate_key(const mica__json_keys *keys, const record *r)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE, "JSON at byte %u: the key \"%.*s\" comes twice in one object",
                      (unsigned)r->offset, r->length < 100 ? (int)r->length : 100, keys->text + r->text);
}

static mica_status check_few(const mica__json_keys *keys, uint32_t first)
{
    for (uint32_t b = first + 1; b < keys->count; b++)
        for (uint32_t a = first; a < b; a++)
            if (same_key(keys, &keys->record[a], &keys->record[b]))
                return duplicate_key(keys, &keys->record[b]);
    return MICA_OK;
}

/* The keys of one part through a table of `slots` indices, all of which are 0 before and after. */
static mica_status check_part(const mica__json_keys *keys, const dealt *part, uint32_t count, uint32_t *table,
                              uint32_t slots)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < count && status == MICA_OK; i++) {
        uint32_t at = part[i].hash & (slots - 1);
        for (; table[at] != 0 && status == MICA_OK; at = (at + 1) & (slots - 1)) {
            const dealt *other = &part[table[at] - 1];
            if (other->hash == part[i].hash &&
                same_key(keys, &keys->record[other->index], &keys->record[part[i].index]))
                status = duplicate_key(keys, &keys->record[part[i].index]);
        }
        table[at] = i + 1;
    }
    memset(table, 0, (size_t)slots * sizeof *table);
    return status;
}

/* Hashes all keys from `first` on into `hashed`, and counts those of each part: part p has end[p] of them. */
static void hash_keys(const mica__json_keys *keys, uint32_t first, uint32_t shift, dealt *hashed,
                      uint32_t *end)
{
    const uint64_t seed = mica__hash_seed();
    for (uint32_t i = first; i < keys->count; i++) {
        const record *r = &keys->record[i];
        const uint32_t hash = (uint32_t)mica__hash_bytes(keys->text + r->text, r->length, seed);
        hashed[i - first] = (dealt){hash, i};
        end[(uint64_t)hash >> shift]++;
    }
}

/* Deals `hashed` into parts and checks each. memory: [2 * count] dealt; end: [parts] from hash_keys. */
static mica_status check_parts(const mica__json_keys *keys, dealt *memory, uint32_t count, uint32_t *end,
                               uint32_t parts, uint32_t shift)
{
    dealt *const hashed = memory, *const sorted = memory + count;
    uint32_t largest = 0, slots = 2 * FEW, at = 0;
    mica_status status = MICA_OK;
    for (uint32_t p = 0; p < parts; p++) {
        const uint32_t size = end[p];
        largest = size > largest ? size : largest;
        end[p] = at;
        at += size;
    }
    for (uint32_t i = 0; i < count; i++)
        sorted[end[(uint64_t)hashed[i].hash >> shift]++] = hashed[i];
    while (slots / 2 < largest)
        slots *= 2;
    uint32_t *table = mica__calloc(slots, sizeof *table);
    if (table == NULL)
        return no_memory(count);
    for (uint32_t p = 0, begin = 0; p < parts && status == MICA_OK; begin = end[p++])
        status = check_part(keys, sorted + begin, end[p] - begin, table, slots);
    mica__free(table);
    return status;
}

static mica_status check_many(const mica__json_keys *keys, uint32_t first)
{
    const uint32_t count = keys->count - first;
    uint32_t parts = 1, shift = 32; /* the part is the top of the hash */
    for (; parts < MOST_PARTS && count / parts > PART_KEYS; shift--)
        parts *= 2;
    dealt *memory = mica__alloc(2 * (size_t)count * sizeof *memory);
    if (memory == NULL)
        return no_memory(count);
    uint32_t *end = mica__calloc(parts, sizeof *end);
    if (end == NULL) {
        mica__free(memory);
        return no_memory(count);
    }
    hash_keys(keys, first, shift, memory, end);
    const mica_status status = check_parts(keys, memory, count, end, parts, shift);
    mica__free(memory);
    mica__free(end);
    return status;
}

mica_status mica__json_keys_drop(mica__json_keys *keys, uint32_t first)
{
    const uint32_t count = keys->count - first;
    if (count == 0)
        return MICA_OK;
    mica_status status = count > FEW ? mica__spend((uint64_t)count * 4) : MICA_OK;
    if (status == MICA_OK)
        status = count > FEW ? check_many(keys, first) : check_few(keys, first);
    keys->text_length = keys->record[first].text;
    keys->count = first;
    return status;
}

void mica__json_keys_free(mica__json_keys *keys)
{
    mica__free(keys->text);
    mica__free(keys->record);
    memset(keys, 0, sizeof *keys);
}
