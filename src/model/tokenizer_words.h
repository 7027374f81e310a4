/* tokenizer_words.h: texts with numbers, looked up whole (a hash map) or byte by byte (a sorted list that is walked like a
 * tree). Both borrow the texts. Immutable once made: any thread. */
#ifndef MICA_MODEL_TOKENIZER_WORDS_H
#define MICA_MODEL_TOKENIZER_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "mica/format.h"

#define MICA__NO_WORD 0xFFFFFFFFu

typedef struct mica__token_slot {
    uint32_t tag, id; /* id MICA__NO_WORD: free */
} mica__token_slot;

typedef struct mica__token_map {
    const mica_string *keys; /* [count] */
    mica__token_slot *slots; /* [mask + 1], at most half full */
    uint32_t mask;
    uint64_t seed;
} mica__token_map;

/* Maps keys[i] to i. Of equal keys the first counts, empty ones do not. OUT_OF_MEMORY. */
mica_status mica__token_map_create(mica__token_map *map, const mica_string *keys, uint32_t count);
/* The index of a key, MICA__NO_WORD if it is not there. */
uint32_t mica__token_map_find(const mica__token_map *map, const char *text, size_t length);
void mica__token_map_release(mica__token_map *map);

typedef struct mica__word {
    const char *text;
    uint32_t length, id;
} mica__word;

typedef struct mica__wordlist {
    mica__word *words;   /* [count], by their bytes once sorted */
    uint32_t count;      /* empty ones are dropped by the sort */
    uint32_t first[257]; /* words[first[b]] .. words[first[b + 1] - 1] begin with byte b */
    uint32_t longest;
} mica__wordlist;

/* Room for `most` words; fill words and count, then sort. */
mica_status mica__wordlist_create(mica__wordlist *list, size_t most);
mica_status mica__wordlist_sort(mica__wordlist *list);
void mica__wordlist_release(mica__wordlist *list);

/* The words that begin with the bytes walked so far; start from zero. */
typedef struct mica__walk {
    uint32_t low, high, depth;
} mica__walk;

/* One byte on. False: no word begins so. */
bool mica__walk_step(const mica__wordlist *list, mica__walk *walk, unsigned char byte);

/* The word that is exactly the bytes walked, NULL if none is. */
static inline const mica__word *mica__walk_word(const mica__wordlist *list, const mica__walk *walk)
{
    const mica__word *word = &list->words[walk->low];
    return word->length == walk->depth ? word : NULL;
}

/* The longest word at the beginning of a text, NULL if there is none. */
const mica__word *mica__wordlist_longest(const mica__wordlist *list, const char *text, size_t length);

/* Pairs of tokens that merge into one. */
typedef struct mica__merge {
    uint32_t left, right; /* left MICA__NO_WORD: free */
    uint32_t rank, id;
} mica__merge;

typedef struct mica__merge_map {
    mica__merge *slots; /* [mask + 1], at most half full */
    uint32_t mask;
    uint64_t seed;
} mica__merge_map;

mica_status mica__merge_map_create(mica__merge_map *map, size_t count);
/* A pair that is there already keeps its first rank. */
void mica__merge_map_add(mica__merge_map *map, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);
/* NULL if the pair does not merge. */
const mica__merge *mica__merge_map_find(const mica__merge_map *map, uint32_t left, uint32_t right);
void mica__merge_map_release(mica__merge_map *map);

#endif
