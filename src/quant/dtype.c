/* dtype.c - the facts about element types, from the one list in types.h. */
#include "quant/dtype.h"

#include <string.h>

const mica__dtype_facts mica__dtypes[MICA_DTYPE_COUNT] = {[MICA_DTYPE_NONE] = {"none", 0, 0},
#define MICA_DTYPE_FACTS(name, text, elements, bytes) [MICA_DTYPE_##name] = {text, elements, bytes},
                                                          MICA_DTYPE_LIST(MICA_DTYPE_FACTS)
#undef MICA_DTYPE_FACTS
};

static const mica__dtype_facts *facts_of(mica_dtype dtype)
{
    const uint32_t index = (uint32_t)dtype; /* the caller may pass any number */
    return &mica__dtypes[index < MICA_DTYPE_COUNT ? index : MICA_DTYPE_NONE];
}

const char *mica_dtype_name(mica_dtype dtype)
{
    return facts_of(dtype)->name;
}

uint32_t mica_dtype_block_elements(mica_dtype dtype)
{
    return facts_of(dtype)->block_elements;
}

uint32_t mica_dtype_block_bytes(mica_dtype dtype)
{
    return facts_of(dtype)->block_bytes;
}

mica_dtype mica_dtype_from_name(const char *name)
{
    for (uint32_t i = 1; name != NULL && i < MICA_DTYPE_COUNT; i++)
        if (strcmp(mica__dtypes[i].name, name) == 0)
            return (mica_dtype)i;
    return MICA_DTYPE_NONE;
}
