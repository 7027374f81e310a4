/* split_rules.c: the table of split_rules.def. */
#include "base/split_rules.h"

#include <string.h>

#define PATTERNS(list, ...) static const char *const list##_patterns[] = {__VA_ARGS__, NULL};
#include "base/split_rules.def"

static const mica__rule rules[] = {
#define RULE(name, flags, list) {name, flags, list##_patterns},
#include "base/split_rules.def"
};

const mica__rule *mica__rule_find(const char *name)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(name, rules[i].name) == 0)
            return &rules[i];
    return NULL;
}
