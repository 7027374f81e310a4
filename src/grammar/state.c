/* state.c: where a text stands in a grammar, in tokens: masks, and moving on.
 *
 * A mask is a walk through the trie of the vocabulary with the machine; the last masks are kept by state. */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/work.h"
#include "grammar/machine.h"
#include "grammar/vocabulary.h"

#define KEPT_MASKS 32u
#define PLACES 1024u /* of the trie, between two looks at the steps left */

struct mica_grammar_state {
    mica_grammar *grammar;
    mica__vocabulary *vocabulary;
    mica__machine machine;
    uint32_t set;                  /* all ways to read the text so far */
    bool finished;                 /* an end token was accepted */
    uint32_t *path;                /* [deepest + 1] sets from the root of the trie to where the walk is */
    uint32_t words;                /* of one mask */
    uint32_t *masks;               /* [KEPT_MASKS][words] */
    uint32_t mask_set[KEPT_MASKS]; /* whose mask it is; UNKNOWN: none */
    uint32_t oldest;
};

/* Makes room in the machine by forgetting everything but where the text stands. */
static void forget(mica_grammar_state *state)
{
    state->set = mica__machine_forget(&state->machine, state->set);
    memset(state->mask_set, 0, sizeof state->mask_set);
}

/* ---- life ----------------------------------------------------------------------------------------------- */

mica_status mica__grammar_begin(mica_grammar *grammar, mica__vocabulary *vocabulary,
                                mica_grammar_state **out_state)
{
    mica_grammar_state *state = mica__calloc(1, sizeof *state);
    mica_status status;
    *out_state = NULL;
    if (state == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a state of the grammar");
    state->grammar = mica__grammar_retain(grammar);
    state->vocabulary = mica__vocabulary_retain(vocabulary);
    state->set = MICA__SET_FIRST;
    state->words = vocabulary->count / 32 + 1;
    state->path = mica__calloc((size_t)vocabulary->deepest + 1, sizeof *state->path);
    state->masks = mica__calloc(KEPT_MASKS, state->words * sizeof *state->masks);
    status = mica__machine_init(&state->machine, grammar);
    if (status == MICA_OK && (state->path == NULL || state->masks == NULL))
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the masks of the grammar");
    if (status == MICA_OK)
        status = mica__machine_start(&state->machine);
    if (status != MICA_OK) {
        mica_grammar_state_release(state);
        return status;
    }
    *out_state = state;
    return MICA_OK;
}

/* The vocabulary of a tokenizer, retained: the one that the grammar remembers, or a new one that it remembers now. */
static mica_status find_vocabulary(mica_grammar *grammar, const mica_tokenizer *tokenizer,
                                   mica__vocabulary **out_vocabulary)
{
    mica__vocabulary *made = NULL, *old = NULL;
    *out_vocabulary = NULL;
    pthread_mutex_lock(&grammar->lock);
    if (grammar->vocabulary != NULL && grammar->vocabulary->tokenizer == tokenizer)
        *out_vocabulary = mica__vocabulary_retain(grammar->vocabulary);
    pthread_mutex_unlock(&grammar->lock);
    if (*out_vocabulary != NULL)
        return MICA_OK;
    MICA__TRY(mica__vocabulary_of(tokenizer, &made));
    pthread_mutex_lock(&grammar->lock);
    old = grammar->vocabulary;
    grammar->vocabulary = mica__vocabulary_retain(made);
    pthread_mutex_unlock(&grammar->lock);
    mica__vocabulary_release(old);
    *out_vocabulary = made;
    return MICA_OK;
}

static mica_status begin(mica_grammar *grammar, const mica_tokenizer *tokenizer,
                         mica_grammar_state **out_state)
{
    mica__vocabulary *vocabulary = NULL;
    mica_status status;
    if (out_state == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_state is NULL");
    *out_state = NULL;
    if (grammar == NULL || tokenizer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", grammar == NULL ? "grammar" : "tokenizer");
    status = find_vocabulary(grammar, tokenizer, &vocabulary);
    if (status == MICA_OK)
        status = mica__grammar_begin(grammar, vocabulary, out_state);
    mica__vocabulary_release(vocabulary);
    return status;
}

mica_status mica_grammar_begin(mica_grammar *grammar, const mica_tokenizer *tokenizer,
                               mica_grammar_state **out_state)
{
    mica__call call;
    mica__call_begin(&call, "grammar_begin");
    return mica__call_end(&call, begin(grammar, tokenizer, out_state));
}

void mica_grammar_state_release(mica_grammar_state *state)
{
    if (state == NULL)
        return;
    mica__machine_free(&state->machine);
    mica__free(state->path);
    mica__free(state->masks);
    mica__vocabulary_release(state->vocabulary);
    mica_grammar_release(state->grammar);
    mica__free(state);
}

void mica_grammar_reset(mica_grammar_state *state)
{
    if (state == NULL)
        return;
    state->set = MICA__SET_FIRST;
    state->finished = false;
}

int mica_grammar_may_end(const mica_grammar_state *state)
{
    return state != NULL && (state->finished || state->machine.sets[state->set].may_end);
}

/* ---- masks ---------------------------------------------------------------------------------------------- */

/* Sets the bits of all tokens that the text may go on with. */
static mica_status walk(mica_grammar_state *state, uint32_t *mask)
{
    const mica__vocabulary *v = state->vocabulary;
    uint32_t *path = state->path;
    memset(mask, 0, state->words * sizeof *mask);
    path[0] = state->set;
    for (uint32_t i = 0, looked = 0; i < v->place_count; looked++) {
        const mica__trie_place *place = &v->places[i];
        if (looked % PLACES == 0)
            MICA__TRY(mica__spend(PLACES));
        const uint32_t from = path[place->depth - 1];
        uint32_t to = mica__machine_next(&state->machine, from, place->byte);
        if (to == MICA__SET_UNKNOWN) {
            const mica_status status = mica__machine_step(&state->machine, from, place->byte, &to);
            if (status != MICA_OK)
                return status;
        }
        if (to == MICA__SET_DEAD) {
            i = place->skip;
            continue;
        }
        path[place->depth] = to;
        for (uint32_t r = place->rank; r < v->places[i + 1].rank; r++)
            mask[v->ranks[r] / 32] |= 1u << v->ranks[r] % 32;
        i++;
    }
    return MICA_OK;
}

static mica_status make_mask(mica_grammar_state *state, const uint32_t **out_mask)
{
    const mica__vocabulary *v = state->vocabulary;
    uint32_t slot;
    uint32_t *mask;
    mica_status status;
    for (slot = 0; slot < KEPT_MASKS; slot++) {
        if (state->mask_set[slot] == state->set) {
            *out_mask = state->masks + (size_t)slot * state->words;
            return MICA_OK;
        }
    }
    slot = state->oldest++ % KEPT_MASKS;
    state->mask_set[slot] = MICA__SET_UNKNOWN;
    mask = state->masks + (size_t)slot * state->words;
    status = walk(state, mask);
    if (status == MICA_ERR_BUDGET) {
        forget(state);
        status = walk(state, mask);
    }
    if (status != MICA_OK)
        return status;
    for (uint32_t id = 0; state->machine.sets[state->set].may_end && id < v->count; id++)
        mask[id / 32] |= (uint32_t)v->ends[id] << id % 32;
    state->mask_set[slot] = state->set;
    *out_mask = mask;
    return MICA_OK;
}

static mica_status fill_mask(mica_grammar_state *state, uint32_t *mask, uint64_t words)
{
    const uint32_t *made = NULL;
    uint64_t needed;
    mica_status status;
    if (state == NULL || mask == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", state == NULL ? "state" : "mask");
    needed = ((uint64_t)state->vocabulary->count + 31) / 32;
    if (words < needed)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "words is %llu, %llu are needed for %u tokens",
                          (unsigned long long)words, (unsigned long long)needed, state->vocabulary->count);
    MICA__TRY(mica__spend(8 + words / 4));
    memset(mask, 0, words * sizeof *mask);
    if (state->finished) {
        for (uint32_t id = 0; id < state->vocabulary->count; id++)
            mask[id / 32] |= (uint32_t)state->vocabulary->ends[id] << id % 32;
        return MICA_OK;
    }
    status = make_mask(state, &made);
    if (status == MICA_OK)
        memcpy(mask, made, needed * sizeof *mask);
    return status;
}

mica_status mica_grammar_mask(mica_grammar_state *state, uint32_t *mask, uint64_t words)
{
    mica__call call;
    mica__call_begin(&call, "grammar_mask");
    return mica__call_end(&call, fill_mask(state, mask, words));
}

/* ---- moving on ------------------------------------------------------------------------------------------ */

static mica_status read_token(mica_grammar_state *state, uint32_t id, uint32_t *out_set)
{
    const mica__vocabulary *v = state->vocabulary;
    mica_status status = MICA_OK;
    *out_set = state->set;
    for (uint32_t i = v->offsets[id];
         i < v->offsets[id + 1] && status == MICA_OK && *out_set != MICA__SET_DEAD; i++)
        status = mica__machine_step(&state->machine, *out_set, (uint8_t)v->bytes[i], out_set);
    return status;
}

static mica_status accept(mica_grammar_state *state, uint32_t id)
{
    uint32_t set = MICA__SET_DEAD, length;
    mica_status status = MICA_OK;
    if (state == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "state is NULL");
    if (id >= state->vocabulary->count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "id is %u, the vocabulary has %u tokens", id,
                          state->vocabulary->count);
    MICA__TRY(mica__spend(8));
    if (state->vocabulary->ends[id]) {
        if (!mica_grammar_may_end(state))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "token %u ends the text, which may not end here",
                              id);
        state->finished = true;
        return MICA_OK;
    }
    length = state->vocabulary->offsets[id + 1] - state->vocabulary->offsets[id];
    if (!state->finished && length != 0 && length <= MICA__VOCABULARY_LONGEST) {
        status = read_token(state, id, &set);
        if (status == MICA_ERR_BUDGET) {
            forget(state);
            status = read_token(state, id, &set);
        }
    }
    if (status != MICA_OK)
        return status;
    if (set == MICA__SET_DEAD)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "the grammar does not admit token %u here", id);
    state->set = set;
    return MICA_OK;
}

mica_status mica_grammar_accept(mica_grammar_state *state, uint32_t id)
{
    mica__call call;
    mica__call_begin(&call, "grammar_accept");
    return mica__call_end(&call, accept(state, id));
}
