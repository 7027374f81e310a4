/* tokenizer_rules.c: the table of tokenizer_rules.def. */
#include <string.h>

#include "model/tokenizer.h"

#define PATTERNS(list, ...) static const char *const list##_patterns[] = {__VA_ARGS__, NULL};
#include "model/tokenizer_rules.def"

static const mica__rule rules[] = {
#define RULE(name, flags, list) {name, flags, list##_patterns},
#include "model/tokenizer_rules.def"
};

const mica__rule *mica__rule_find(const char *name)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(name, rules[i].name) == 0)
            return &rules[i];
    return NULL;
}
