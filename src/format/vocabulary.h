/*
 * vocabulary.h - the tokenizer of a GGUF as its metadata has it: texts, kinds and scores, found by text, and the merges
 * that scores stand for. Knows GGUF's keys, no JSON.
 */
#ifndef MICA_FORMAT_VOCABULARY_H
#define MICA_FORMAT_VOCABULARY_H

#include "format/archive.h"
#include "format/sentencepiece.h"

typedef struct mica__merge {
    uint32_t left, right, whole; /* tokens */
} mica__merge;

typedef struct mica__vocabulary {
    const mica_string *token; /* [count], the archive's */
    const int32_t *kind;      /* [count] mica__piece_kind, the archive's; NULL: all are normal */
    const float *score;       /* [count], the archive's; NULL: there are none */
    uint32_t count;
    uint32_t *slot; /* [slot_count] a hash table of token + 1, 0 = free; of equal texts the first */
    uint32_t slot_count;
    bool *lengths; /* [longest + 1]: whether a token has so many bytes */
    uint64_t seed;
} mica__vocabulary;

/* *out_usable is false, and there is nothing to free, where the archive has no list of tokens, or one of them is no UTF-8
 * text. The archive must outlive it. OUT_OF_MEMORY. */
mica_status mica__vocabulary_open(const mica__archive *archive, mica__vocabulary *out, bool *out_usable);
void mica__vocabulary_close(mica__vocabulary *vocabulary);

/* The token of that text, or the count. */
uint32_t mica__vocabulary_find(const mica__vocabulary *vocabulary, const char *text, size_t length);
mica__piece_kind mica__vocabulary_kind(const mica__vocabulary *vocabulary, uint32_t token);

/* Every way to make a normal token of two others, best score first: what merging pairs by score does. The caller frees
 * *out_merges with mica__free. OUT_OF_MEMORY. */
mica_status mica__vocabulary_merges(const mica__vocabulary *vocabulary, mica__merge **out_merges,
                                    uint32_t *out_count);

#endif
