/*
 * tokenizer_back.h - a GGUF's tokenizer on its way to files, shared by the two that write them.
 */
#ifndef MICA_FORMAT_CONFIG_TOKENIZER_BACK_H
#define MICA_FORMAT_CONFIG_TOKENIZER_BACK_H

#include "base/json/json.h"
#include "base/split_rules.h"
#include "format/config/token_list.h"

typedef struct mica__tokenizer_back {
    const mica__archive *archive;
    mica__token_list words;
    mica__json_writer json;
    const char *kind, *pre; /* tokenizer.ggml.model and .pre */
    bool prefix;            /* a blank is put before the text */
    uint32_t begin, end;    /* tokens that are put around it; the count of words: none */
    uint32_t bos, unknown;  /* the same */
} mica__tokenizer_back;

bool mica__tokenizer_is_kind(const mica__tokenizer_back *b, const char *kind);
/* UNSUPPORTED says why tokenizer.json cannot hold it. */
mica_status mica__tokenizer_check(const mica__tokenizer_back *b);
/* The text of a tokenizer.json, which the caller frees with mica__free. OUT_OF_MEMORY. */
mica_status mica__tokenizer_make_json(mica__tokenizer_back *b, char **out_text);

#endif
