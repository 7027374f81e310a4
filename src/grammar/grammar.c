/* grammar.c: the life of a grammar, and the growing arrays it is made of. */
#include "grammar/grammar.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/work.h"
#include "grammar/vocabulary.h"

#define MOST_TEXT (16u << 20) /* bytes of GBNF; so that every index fits 32 bits */

void *mica__grown(void *items, uint32_t *capacity, uint64_t needed, size_t size)
{
    uint64_t wanted = *capacity < 16 ? 16 : *capacity;
    void *larger;
    if (items != NULL && needed <= *capacity)
        return items;
    while (wanted < needed)
        wanted *= 2;
    if (wanted > UINT32_MAX / 2 || wanted > SIZE_MAX / size)
        return NULL;
    larger = mica__realloc(items, (size_t)wanted * size);
    if (larger != NULL)
        *capacity = (uint32_t)wanted;
    return larger;
}

bool mica__table_grow(uint32_t **table, uint32_t *slots, uint32_t count,
                      uint64_t (*hash)(const void *context, uint32_t index), const void *context)
{
    uint32_t *larger, wanted = *slots == 0 ? 64 : *slots;
    if (*table != NULL && count + 1 <= *slots / 2)
        return true;
    while (count + 1 > wanted / 2)
        wanted *= 2;
    larger = mica__calloc(wanted, sizeof *larger);
    if (larger == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = (uint32_t)hash(context, i) & (wanted - 1);
        while (larger[slot] != 0)
            slot = (slot + 1) & (wanted - 1);
        larger[slot] = i + 1;
    }
    mica__free(*table);
    *table = larger;
    *slots = wanted;
    return true;
}

mica_status mica__grammar_new(mica_grammar **out_grammar)
{
    mica_grammar *grammar = mica__calloc(1, sizeof *grammar);
    *out_grammar = NULL;
    if (grammar == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the grammar");
    const mica_status status = mica__lock_init(&grammar->lock, &grammar->guard, true);
    if (status != MICA_OK) {
        mica__free(grammar);
        return status;
    }
    atomic_init(&grammar->references, 1);
    grammar->seed = mica__hash_seed();
    *out_grammar = grammar;
    return MICA_OK;
}

mica_grammar *mica__grammar_retain(mica_grammar *grammar)
{
    atomic_fetch_add_explicit(&grammar->references, 1, memory_order_relaxed);
    return grammar;
}

void mica_grammar_release(mica_grammar *grammar)
{
    if (grammar == NULL || atomic_fetch_sub_explicit(&grammar->references, 1, memory_order_acq_rel) != 1)
        return;
    mica__vocabulary_release(grammar->vocabulary);
    mica__lock_destroy(&grammar->lock, &grammar->guard);
    mica__free(grammar->rules);
    mica__free(grammar->elements);
    mica__free(grammar->alternatives);
    mica__free(grammar->classes);
    mica__free(grammar->ranges);
    mica__free(grammar->states);
    mica__free(grammar->names);
    mica__free(grammar->class_table);
    mica__free(grammar->state_table);
    mica__free(grammar);
}

mica__grammar_name mica__grammar_rule_name(const mica_grammar *grammar, uint32_t rule)
{
    mica__grammar_name name = {"a group"};
    const mica__grammar_rule *it = &grammar->rules[rule];
    uint32_t length = it->name_length < 60 ? it->name_length : 60;
    if (it->name == MICA__GRAMMAR_NONE)
        return name;
    memcpy(name.text, grammar->names + it->name, length);
    name.text[length] = '\0';
    return name;
}

mica_status mica__grammar_make(const char *gbnf, uint64_t length, const char *root,
                               mica_grammar **out_grammar)
{
    mica_grammar *grammar = NULL;
    mica_status status;
    if (out_grammar == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_grammar is NULL");
    *out_grammar = NULL;
    if (gbnf == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "gbnf is NULL");
    if (length > MOST_TEXT)
        return mica__fail(MICA_ERR_BUDGET, "the grammar has %llu bytes, the most is %u",
                          (unsigned long long)length, MOST_TEXT);
    status = mica__grammar_new(&grammar);
    if (status == MICA_OK)
        status = mica__grammar_parse(grammar, gbnf, (size_t)length, root == NULL ? "root" : root);
    if (status == MICA_OK)
        status = mica__grammar_check(grammar);
    if (status != MICA_OK) {
        mica_grammar_release(grammar);
        return status;
    }
    mica__free(grammar->class_table);
    mica__free(grammar->state_table);
    grammar->class_table = grammar->state_table = NULL;
    *out_grammar = grammar;
    return MICA_OK;
}

mica_status mica_grammar_create(const char *gbnf, uint64_t length, const char *root,
                                mica_grammar **out_grammar)
{
    mica__call call;
    mica__call_begin(&call, "grammar_create");
    mica__spend_allow(length);
    return mica__call_end(&call, mica__grammar_make(gbnf, length, root, out_grammar));
}
