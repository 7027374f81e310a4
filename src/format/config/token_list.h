/*
 * token_list.h - the tokens of a GGUF as its metadata has them: texts, kinds and scores, found by text, and the merges
 * that scores stand for. Knows GGUF's keys, no JSON.
 */
#ifndef MICA_FORMAT_CONFIG_TOKEN_LIST_H
#define MICA_FORMAT_CONFIG_TOKEN_LIST_H

#include "format/archive.h"
#include "format/config/sentencepiece.h"

typedef struct mica__merge_rule {
    uint32_t left, right, whole; /* tokens */
} mica__merge_rule;

typedef struct mica__token_list {
    const mica_string *token; /* [count], the archive's */
    const int32_t *kind;      /* [count] mica__piece_kind, the archive's; NULL: all are normal */
    const float *score;       /* [count], the archive's; NULL: there are none */
    uint32_t count;
    uint32_t *slot; /* [slot_count] a hash table of token + 1, 0 = free; of equal texts the first */
    uint32_t slot_count;
    bool *lengths; /* [longest + 1]: whether a token has so many bytes */
    uint64_t seed;
} mica__token_list;

/* *out_usable is false, and there is nothing to free, where the archive has no list of tokens, or one of them is no UTF-8
 * text. The archive must outlive it. OUT_OF_MEMORY. */
mica_status mica__token_list_open(const mica__archive *archive, mica__token_list *out, bool *out_usable);
void mica__token_list_close(mica__token_list *list);

/* The token of that text, or the count. */
uint32_t mica__token_list_find(const mica__token_list *list, const char *text, size_t length);
mica__piece_kind mica__token_list_kind(const mica__token_list *list, uint32_t token);

/* Every way to make a normal token of two others, best score first: what merging pairs by score does. The caller frees
 * *out_merges with mica__free. OUT_OF_MEMORY. */
mica_status mica__token_list_merges(const mica__token_list *list, mica__merge_rule **out_merges,
                                    uint32_t *out_count);

#endif
