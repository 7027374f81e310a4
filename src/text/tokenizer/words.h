/* words.h: texts with numbers, looked up whole (a hash map) or byte by byte (a sorted list that is walked like a
 * tree). Both borrow the texts. Immutable once made: any thread. */
#ifndef MICA_TEXT_TOKENIZER_WORDS_H
#define MICA_TEXT_TOKENIZER_WORDS_H

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

/* Words longer than this are not walked: a text that nearly holds one at every place would cost its length at each. */
#define MICA__SHORT_WORD 128

/* Long words read from their ends, as the tree of Aho and Corasick: a text that goes through it from its end tells at every
 * byte which of them begin there. Node 0 is the root (reach.c). */
typedef struct mica__reach_tree {
    uint32_t *slots;         /* [mask + 1]: the nodes, by their parent and byte; 0: free */
    uint32_t *parent, *fail; /* [count]; fail: the longest end of what is here that is a node too */
    /* [count]: the word that is here, or none; the next node towards the root that has one */
    uint32_t *word, *next;
    unsigned char *byte; /* [count] */
    uint32_t count, mask;
    uint64_t seed;
} mica__reach_tree;

typedef struct mica__wordlist {
    mica__word *words; /* [count], by their bytes once sorted; behind them the long ones */
    uint32_t count;    /* empty ones are dropped by the sort */
    uint32_t long_count;
    uint32_t first[257]; /* words[first[b]] .. words[first[b + 1] - 1] begin with byte b */
    mica__reach_tree tree;
} mica__wordlist;

/* Room for `most` words; fill words and count, then sort. */
mica_status mica__wordlist_create(mica__wordlist *list, size_t most);
mica_status mica__wordlist_sort(mica__wordlist *list);
void mica__wordlist_release(mica__wordlist *list);

/* The long words that begin at each byte of a text. */
typedef struct mica__reach {
    uint32_t *node; /* [room]: of the longest; 0: none begins here */
    size_t room;
} mica__reach;

mica_status mica__reach_tree_create(mica__reach_tree *tree, const mica__word *words, uint32_t count);
void mica__reach_tree_release(mica__reach_tree *tree);
/* Fills reach for a text. Nothing to do where the list has no long words. */
mica_status mica__reach_find(mica__reach *reach, const mica__wordlist *list, const char *text, size_t length);
void mica__reach_release(mica__reach *reach);
/* The longest word that begins at `at`, then shorter ones; NULL after the last. *node is 0 at first. */
static inline const mica__word *mica__reach_next(const mica__reach *reach, const mica__wordlist *list,
                                                 size_t at, uint32_t *node)
{
    if (list->long_count == 0)
        return NULL;
    *node = *node == 0 ? reach->node[at] : list->tree.next[*node];
    return *node == 0 ? NULL : &list->words[list->count + list->tree.word[*node]];
}

/* The short words that begin with the bytes walked so far; start from zero. */
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

/* The longest short word at the beginning of a text, NULL if there is none, and how many bytes were looked at. */
const mica__word *mica__wordlist_longest(const mica__wordlist *list, const char *text, size_t length,
                                         size_t *out_walked);

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
