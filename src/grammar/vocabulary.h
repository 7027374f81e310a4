/* vocabulary.h: the tokens of a tokenizer as bytes, and a trie over them that a grammar walks.
 *
 * Immutable and counted: any thread. */
#ifndef MICA_GRAMMAR_VOCABULARY_H
#define MICA_GRAMMAR_VOCABULARY_H

#include "mica/sample.h"

#include <stdatomic.h>
#include <stdbool.h>

#define MICA__VOCABULARY_LONGEST 4096u /* bytes of a token; longer ones are in no mask */

/* A place in the trie. Places stand in preorder, so the places below one follow it. */
typedef struct mica__trie_place {
    uint32_t skip;  /* the first place that is not below this one */
    uint32_t rank;  /* tokens that end here: ranks from this to the next place's */
    uint16_t depth; /* bytes from the root to here, at least 1 */
    uint8_t byte;   /* the last of them */
} mica__trie_place;

typedef struct mica__vocabulary {
    _Atomic uint32_t references;
    const mica_tokenizer *tokenizer; /* kept; NULL for one made of bytes */
    uint32_t count;
    char *bytes;
    uint32_t *offsets;        /* [count + 1] into bytes */
    uint8_t *ends;            /* [count] 1: an end token */
    uint32_t *ranks;          /* ids of tokens with text that are no end tokens, by their bytes */
    mica__trie_place *places; /* [place_count + 1], the last one a fence */
    uint32_t rank_count, place_count, deepest;
} mica__vocabulary;

/* The vocabulary of a tokenizer, which it keeps. */
mica_status mica__vocabulary_of(const mica_tokenizer *tokenizer, mica__vocabulary **out_vocabulary);

/* One made of byte strings: token i is bytes[offsets[i] .. offsets[i + 1]), all copied. ends may be NULL. */
mica_status mica__vocabulary_create(uint32_t count, const char *bytes, const uint32_t *offsets,
                                    const uint8_t *ends, mica__vocabulary **out_vocabulary);

mica__vocabulary *mica__vocabulary_retain(mica__vocabulary *vocabulary);
/* NULL is fine. */
void mica__vocabulary_release(mica__vocabulary *vocabulary);

/* The bytes of a token as they stand in text, which may be parts of characters; none for one that is not text. Borrowed
 * from the tokenizer. */
mica_string mica__token_bytes(const mica_tokenizer *tokenizer, uint32_t id);

/* The same as mica_grammar_begin, over a vocabulary that is there already; it is kept. */
mica_status mica__grammar_begin(mica_grammar *grammar, mica__vocabulary *vocabulary,
                                mica_grammar_state **out_state);

#endif
