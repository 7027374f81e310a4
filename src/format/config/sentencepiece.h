/*
 * sentencepiece.h - tokenizer.model, as SentencePiece writes it: a protocol buffer of pieces with score and kind.
 *
 * Reads bytes that nobody vouches for, and of them only what a vocabulary is made of; fields it does not know are
 * passed over. Knows no GGUF.
 */
#ifndef MICA_FORMAT_CONFIG_SENTENCEPIECE_H
#define MICA_FORMAT_CONFIG_SENTENCEPIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MICA__SENTENCEPIECE_MOST (1u << 22) /* pieces */

/* The kinds of pieces; GGUF counts its tokens' kinds alike. */
typedef enum mica__piece_kind {
    MICA__PIECE_NONE = 0,
    MICA__PIECE_NORMAL,
    MICA__PIECE_UNKNOWN,
    MICA__PIECE_CONTROL,
    MICA__PIECE_USER,
    MICA__PIECE_UNUSED,
    MICA__PIECE_BYTE
} mica__piece_kind;

typedef struct mica__token_list_piece {
    const char *text; /* UTF-8 without NUL, into the bytes; no NUL follows */
    uint32_t length;
    float score;
    mica__piece_kind kind;
} mica__token_list_piece;

typedef struct mica__sentencepiece {
    mica__token_list_piece *piece; /* [count] */
    uint32_t count;
    bool unigram;      /* else pairs are merged */
    bool prefix;       /* a blank is put before the text */
    bool trim;         /* blanks that repeat, lead or trail are removed */
    const char *chars; /* [chars_length] the compiled rules of normalisation, or NULL */
    uint32_t chars_length;
} mica__sentencepiece;

/* Reads a whole file; `path` names it in sentences. The bytes must live as long as *out, whose pieces the caller frees
 * with mica__sentencepiece_free. MALFORMED_FILE, UNSUPPORTED (models of words or characters), OUT_OF_MEMORY. */
mica_status mica__sentencepiece_parse(const char *path, const void *bytes, size_t size,
                                      mica__sentencepiece *out);
/* The bytes of a file with these pieces, which the caller frees with mica__free. OUT_OF_MEMORY. */
mica_status mica__sentencepiece_write(const mica__sentencepiece *model, char **out_bytes, size_t *out_size);
/* A zeroed one is fine. */
void mica__sentencepiece_free(mica__sentencepiece *model);

#endif
