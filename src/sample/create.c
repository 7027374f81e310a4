/* create.c: what a caller may ask of a sampler, and the memory it needs for its whole life. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/status.h"
#include "base/work.h"
#include "grammar/vocabulary.h"
#include "sample/sample.h"
#include "text/tokenizer/tokenizer.h"

#define MOST_VOCABULARY (1u << 26)
#define MOST_LAST (1u << 20) /* tokens looked back on, by every pick */
#define ALL_LAST 4096u       /* what dry_last 0 means */
#define MOST_BREAKERS 1024u

/* ---- fields --------------------------------------------------------------------------------------------- */

void mica_sampling_default(mica_sampling *out)
{
    const mica_sampling values = {.size = sizeof *out,
                                  .temperature = 0.8f,
                                  .top_k = 40,
                                  .top_p = 0.95f,
                                  .min_p = 0.05f,
                                  .typical_p = 1.0f,
                                  .xtc_threshold = 0.1f,
                                  .repeat_penalty = 1.0f,
                                  .penalty_last = 64,
                                  .dry_base = 1.75f,
                                  .dry_allowed = 2,
                                  .mirostat_tau = 5.0f,
                                  .mirostat_eta = 0.1f};
    if (out != NULL)
        *out = values;
}

/* The fields that are numbers within bounds. */
static mica_status check_numbers(const mica_sampling *s)
{
    const struct {
        const char *name;
        float value, low, high;
    } fields[] = {{"temperature", s->temperature, 0, FLT_MAX},
                  {"top_p", s->top_p, 0, 1},
                  {"min_p", s->min_p, 0, 1},
                  {"typical_p", s->typical_p, 0, 1},
                  {"xtc_probability", s->xtc_probability, 0, 1},
                  {"xtc_threshold", s->xtc_threshold, 0, 1},
                  {"repeat_penalty", s->repeat_penalty, FLT_MIN, FLT_MAX},
                  {"presence_penalty", s->presence_penalty, -FLT_MAX, FLT_MAX},
                  {"frequency_penalty", s->frequency_penalty, -FLT_MAX, FLT_MAX},
                  {"dry_multiplier", s->dry_multiplier, 0, FLT_MAX},
                  {"dry_base", s->dry_base, 1, FLT_MAX},
                  {"mirostat_tau", s->mirostat_tau, 0, FLT_MAX},
                  {"mirostat_eta", s->mirostat_eta, 0, FLT_MAX}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!(fields[i].value >= fields[i].low && fields[i].value <= fields[i].high)) /* NaN too */
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sampling.%s is %g, it must be from %g to %g",
                              fields[i].name, (double)fields[i].value, (double)fields[i].low,
                              (double)fields[i].high);
    return MICA_OK;
}

static mica_status check_lists(const mica_sampling *s, uint32_t vocabulary)
{
    if (s->mirostat != 0 && s->mirostat != 2)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sampling.mirostat is %u, it must be 0 or 2",
                          s->mirostat);
    if (s->penalty_last > MOST_LAST || s->dry_last > MOST_LAST)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sampling.%s is %u, the most is %u",
                          s->penalty_last > MOST_LAST ? "penalty_last" : "dry_last",
                          s->penalty_last > MOST_LAST ? s->penalty_last : s->dry_last, MOST_LAST);
    if (s->bias == NULL && s->bias_count != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sampling.bias is NULL, bias_count is %u",
                          s->bias_count);
    for (uint32_t i = 0; i < s->bias_count; i++) {
        if (s->bias[i].id >= vocabulary)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "sampling.bias[%u].id is %u, the vocabulary has %u tokens", i, s->bias[i].id,
                              vocabulary);
        if (isnan(s->bias[i].bias))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sampling.bias[%u].bias is not a number", i);
    }
    if (s->dry_breakers == NULL)
        return MICA_OK;
    if (s->dry_breaker_count > MOST_BREAKERS)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sampling.dry_breaker_count is %u, the most is %u",
                          s->dry_breaker_count, MOST_BREAKERS);
    for (uint32_t i = 0; i < s->dry_breaker_count; i++) {
        const size_t length = s->dry_breakers[i] == NULL ? 0 : strlen(s->dry_breakers[i]);
        if (length == 0 || length > MICA__SAMPLE_LONGEST_BREAKER)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "sampling.dry_breakers[%u] has %zu bytes, it must have 1 to %u", i, length,
                              MICA__SAMPLE_LONGEST_BREAKER);
    }
    return MICA_OK;
}

/* ---- life ----------------------------------------------------------------------------------------------- */

static bool has_penalties(const mica_sampling *s)
{
    return s->penalty_last != 0 &&
           (s->repeat_penalty != 1.0f || s->presence_penalty != 0.0f || s->frequency_penalty != 0.0f);
}

static mica_status read_breakers(mica_sampler *sampler, const mica_sampling *from)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    const char *const *texts = from->dry_breakers != NULL ? from->dry_breakers : usual;
    const uint32_t count = from->dry_breakers != NULL ? from->dry_breaker_count : 4;
    sampler->sampling.dry_breaker_count = 0;
    if (from->dry_multiplier == 0.0f || sampler->tokenizer == NULL || count == 0)
        return MICA_OK;
    sampler->is_breaker = mica__calloc(sampler->vocabulary, sizeof *sampler->is_breaker);
    if (sampler->is_breaker == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u breakers", count);
    return mica__breakers_make(&sampler->breakers, texts, count);
}

/* Zeroed room; NULL for none, and then *all tells whether that was a failure. */
static void *room(size_t count, size_t size, bool *all)
{
    void *block = count == 0 ? NULL : mica__calloc(count, size);
    *all = *all && (count == 0 || block != NULL);
    return block;
}

static mica_status allocate(mica_sampler *sampler)
{
    const mica_sampling *s = &sampler->sampling;
    const size_t vocabulary = sampler->vocabulary, words = (vocabulary + 31) / 32;
    const bool dry = s->dry_multiplier != 0.0f;
    const bool changes = s->bias_count != 0 || dry || has_penalties(s) || sampler->grammar != NULL;
    uint32_t last = has_penalties(s) ? s->penalty_last : 0;
    bool all = true;
    if (dry && s->dry_last > last)
        last = s->dry_last;
    sampler->words = words;
    sampler->history.capacity = last;
    sampler->list.items = room(vocabulary, sizeof *sampler->list.items, &all);
    sampler->list.scratch = room(vocabulary, sizeof *sampler->list.scratch, &all);
    sampler->list.chance = room(vocabulary, sizeof *sampler->list.chance, &all);
    sampler->bias = room(s->bias_count, sizeof *sampler->bias, &all);
    sampler->logits = room(changes ? vocabulary : 0, sizeof *sampler->logits, &all);
    sampler->mask = room(sampler->grammar != NULL ? words : 0, sizeof *sampler->mask, &all);
    sampler->counts = room(last != 0 ? vocabulary : 0, sizeof *sampler->counts, &all);
    sampler->history.ids = room(last, sizeof *sampler->history.ids, &all);
    sampler->history.breaks = room(last, sizeof *sampler->history.breaks, &all);
    sampler->lengths = room(last, sizeof *sampler->lengths, &all);
    sampler->found = room(last, sizeof *sampler->found, &all);
    return all ? MICA_OK : mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu tokens", vocabulary);
}

/* The tokenizer must have no more tokens than there are logits; models may pad theirs. */
static mica_status check_tokenizer(const mica_tokenizer *tokenizer, uint32_t vocabulary)
{
    mica_tokenizer_info info;
    const mica_status status = mica_tokenizer_get_info(tokenizer, &info);
    if (status == MICA_OK && info.count > vocabulary)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "vocabulary is %u, the tokenizer has %u tokens",
                          vocabulary, info.count);
    return status;
}

static mica_status check(const mica_sampling *sampling, uint32_t vocabulary, const mica_tokenizer *tokenizer,
                         const mica_grammar *grammar)
{
    mica_status status;
    if (sampling == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sampling is NULL");
    mica_sampling taken;
    MICA__TRY(mica__take_options("sampling", sampling, sizeof taken, &taken));
    if (vocabulary == 0 || vocabulary > MOST_VOCABULARY)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "vocabulary is %u, it must be from 1 to %u", vocabulary,
                          MOST_VOCABULARY);
    if (grammar != NULL && tokenizer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "tokenizer is NULL, a grammar needs one");
    status = tokenizer != NULL ? check_tokenizer(tokenizer, vocabulary) : MICA_OK;
    if (status == MICA_OK)
        status = check_numbers(sampling);
    return status == MICA_OK ? check_lists(sampling, vocabulary) : status;
}

static mica_status fill(mica_sampler *sampler, const mica_sampling *sampling, mica_grammar *grammar)
{
    mica_sampling *s = &sampler->sampling;
    mica_status status = MICA_OK;
    *s = *sampling;
    s->dry_breakers = NULL;
    s->bias = NULL;
    if (s->keep_at_least == 0)
        s->keep_at_least = 1;
    if (s->dry_last == 0)
        s->dry_last = ALL_LAST;
    if (grammar != NULL)
        status = mica_grammar_begin(grammar, sampler->tokenizer, &sampler->grammar);
    if (status == MICA_OK)
        status = allocate(sampler);
    if (status == MICA_OK)
        status = read_breakers(sampler, sampling);
    if (status != MICA_OK)
        return status;
    if (s->bias_count != 0)
        memcpy(sampler->bias, sampling->bias, s->bias_count * sizeof *sampler->bias);
    sampler->list.least = s->keep_at_least;
    mica_sampler_reset(sampler);
    return MICA_OK;
}

static mica_status create(const mica_sampling *sampling, uint32_t vocabulary, const mica_tokenizer *tokenizer,
                          mica_grammar *grammar, mica_sampler **out_sampler)
{
    mica_sampler *sampler;
    mica_status status;
    if (out_sampler == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_sampler is NULL");
    *out_sampler = NULL;
    MICA__TRY(check(sampling, vocabulary, tokenizer, grammar));
    sampler = mica__calloc(1, sizeof *sampler);
    if (sampler == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the sampler");
    sampler->vocabulary = vocabulary;
    if (tokenizer != NULL)
        sampler->tokenizer = mica__tokenizer_retain(tokenizer);
    status = fill(sampler, sampling, grammar);
    if (status != MICA_OK) {
        mica_sampler_release(sampler);
        return status;
    }
    *out_sampler = sampler;
    return MICA_OK;
}

mica_status mica_sampler_create(const mica_sampling *sampling, uint32_t vocabulary,
                                const mica_tokenizer *tokenizer, mica_grammar *grammar,
                                mica_sampler **out_sampler)
{
    mica__call call;
    mica__call_begin(&call, "sampler_create");
    return mica__call_end(&call, create(sampling, vocabulary, tokenizer, grammar, out_sampler));
}

void mica_sampler_release(mica_sampler *sampler)
{
    if (sampler == NULL)
        return;
    mica__breakers_free(&sampler->breakers);
    mica__free(sampler->is_breaker);
    mica__free(sampler->list.items);
    mica__free(sampler->list.scratch);
    mica__free(sampler->list.chance);
    mica__free(sampler->bias);
    mica__free(sampler->logits);
    mica__free(sampler->mask);
    mica__free(sampler->counts);
    mica__free(sampler->history.ids);
    mica__free(sampler->history.breaks);
    mica__free(sampler->lengths);
    mica__free(sampler->found);
    mica_grammar_state_release(sampler->grammar);
    mica_tokenizer_release((mica_tokenizer *)sampler->tokenizer);
    mica__free(sampler);
}
