/*
 * split_rules.h - the table of split_rules.def: how byte pair tokenizers cut a text before they merge, by the names that GGUF
 * has for it. Facts alone; who tokenizes and who writes tokenizer.json read it.
 */
#ifndef MICA_BASE_SPLIT_RULES_H
#define MICA_BASE_SPLIT_RULES_H

#include <stdint.h>

/* What byte-level tokenizers cut by where nothing else is said. */
#define MICA__GPT2_PATTERN \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

typedef struct mica__rule {
    const char *name;
    uint32_t flags;
    const char *const *patterns; /* ends with NULL */
} mica__rule;
#define MICA__RULE_IGNORE_MERGES 1u
#define MICA__RULE_ADD_BOS 2u
#define MICA__RULE_ADD_SEP 4u
#define MICA__RULE_TEXT 8u   /* not byte-level: characters, and <0x0A> for what has no token */
#define MICA__RULE_MARKS 16u /* blanks are U+2581 */
/* NULL if there is none of that name. */
const mica__rule *mica__rule_find(const char *name);

#endif
