/*
 * tokenizer_map.h - a checkpoint's tokenizer on its way to GGUF, shared by the two files that carry it over.
 */
#ifndef MICA_FORMAT_CONFIG_TOKENIZER_MAP_H
#define MICA_FORMAT_CONFIG_TOKENIZER_MAP_H

#include "format/convert/convert.h"
#include "format/config/sentencepiece.h"

#define MICA__MOST_TOKENS ((uint64_t)1 << 22)

typedef struct mica__tokenizer {
    mica__target *target;
    const mica__json *config;
    const mica__name_family *family;
    mica__json *json;             /* tokenizer.json, or NULL */
    mica__json *settings;         /* tokenizer_config.json, or NULL */
    mica__json *added;            /* added_tokens.json, or NULL */
    const mica__json_node *model; /* of tokenizer.json */
    mica__sentencepiece pieces;   /* of tokenizer.model; none: count is 0 */
    const char *kind;             /* GGUF's: "gpt2", "llama", "t5", "bert" */
    bool failed;                  /* no memory for a token */
    uint64_t count, seen;         /* ids; tokens that the files name */
    mica_string *token;           /* [count] */
    float *score;                 /* [count] */
    int32_t *type;                /* [count] mica__piece_kind */
} mica__tokenizer;

/* The text of a node, "" if it is no string. */
const char *mica__tokenizer_text(const mica__json_node *node);
bool mica__tokenizer_is_true(const mica__json *json, const mica__json_node *object, const char *key);
/* A number that can be a token's, or MICA__MOST_TOKENS. */
uint64_t mica__tokenizer_id(const mica__json_node *node);
mica_status mica__tokenizer_set_array(mica__tokenizer *t, const char *key, mica_value_type type,
                                      uint64_t count, const void *items);
/* Makes the tokens, scores and kinds, and sets them. */
mica_status mica__tokenizer_set_tokens(mica__tokenizer *t);

#endif
