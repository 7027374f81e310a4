/* sample.c: picking: logits, bias, grammar and history come together, the filters take away, one is drawn. */
#include "sample/sample.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/work.h"
#include "grammar/vocabulary.h"

#define LONGEST_TOKEN 1024u /* bytes of a token that breakers are looked for in */
#define DRAW 0u             /* streams of random numbers: one of each per pick, whoever needs it */
#define XTC 1u

/* ---- random numbers ------------------------------------------------------------------------------------- */

/* A full avalanche over 64 bits: each output bit depends on each input bit. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

double mica__random_at(uint64_t seed, uint64_t index, uint32_t stream)
{
    const uint64_t step = 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio, odd: visits every number */
    const uint64_t bits = mix(mix(seed + step) + step * (2 * index + stream + 1));
    return (double)(bits >> 11) * 0x1p-53;
}

/* ---- what changes logits -------------------------------------------------------------------------------- */

static mica_status apply_grammar(mica_sampler *sampler)
{
    float *logits = sampler->logits;
    const mica_status status = mica_grammar_mask(sampler->grammar, sampler->mask, sampler->words);
    if (status != MICA_OK)
        return status;
    for (uint32_t id = 0; id < sampler->vocabulary; id++)
        logits[id] = sampler->mask[id / 32] >> id % 32 & 1 ? logits[id] : -INFINITY;
    return MICA_OK;
}

static void apply_penalties(mica_sampler *sampler)
{
    const mica_sampling *s = &sampler->sampling;
    const mica__history *history = &sampler->history;
    const uint32_t last = s->penalty_last < history->count ? s->penalty_last : history->count;
    if (s->repeat_penalty == 1.0f && s->presence_penalty == 0.0f && s->frequency_penalty == 0.0f)
        return;
    for (uint32_t back = 0; back < last; back++)
        sampler->counts[mica__history_at(history, back)]++;
    for (uint32_t back = 0; back < last; back++) {
        const uint32_t id = mica__history_at(history, back);
        float *logit = &sampler->logits[id];
        if (sampler->counts[id] != 0 && *logit > -INFINITY)
            *logit = mica__penalty(s, *logit, sampler->counts[id]);
        sampler->counts[id] = 0; /* each token once, and all 0 again */
    }
}

/* The bytes of a token, the first LONGEST_TOKEN of them; none if nobody looks for breakers. */
static mica_string token_bytes(const mica_sampler *sampler, uint32_t id)
{
    mica_string bytes = {"", 0};
    if (sampler->breakers.nodes != NULL)
        bytes = mica__token_bytes(sampler->tokenizer, id);
    if (bytes.length > LONGEST_TOKEN)
        bytes.length = LONGEST_TOKEN;
    return bytes;
}

/* Whether a breaker ends inside of a token; asked of the same ones again and again. */
static bool is_breaker(mica_sampler *sampler, uint32_t id)
{
    uint32_t node = 0;
    if (sampler->is_breaker == NULL)
        return false;
    if (sampler->is_breaker[id] == 0)
        sampler->is_breaker[id] =
            mica__breakers_read(&sampler->breakers, token_bytes(sampler, id), &node) ? 2 : 1;
    return sampler->is_breaker[id] == 2;
}

static void apply_dry(mica_sampler *sampler)
{
    const mica_sampling *s = &sampler->sampling;
    uint32_t found;
    if (s->dry_multiplier == 0.0f)
        return;
    found = mica__dry_search(&sampler->history, s->dry_last, s->dry_allowed, sampler->lengths,
                             sampler->counts, sampler->found);
    for (uint32_t i = 0; i < found; i++) {
        const uint32_t id = sampler->found[i];
        float *logit = &sampler->logits[id];
        if (*logit > -INFINITY && !is_breaker(sampler, id)) {
            const float lower = *logit - mica__dry_penalty(s, sampler->counts[id]);
            *logit = lower > -FLT_MAX ? lower : -FLT_MAX;
        }
        sampler->counts[id] = 0;
    }
}

/* The logits with everything that changes them; the caller's own if nothing does. */
static mica_status prepare(mica_sampler *sampler, const float *logits, const float **out_logits)
{
    mica_status status = MICA_OK;
    *out_logits = logits;
    if (sampler->logits == NULL)
        return MICA_OK;
    MICA__TRY(mica__spend((uint64_t)sampler->vocabulary / 4 + sampler->sampling.bias_count +
                          (uint64_t)sampler->history.count * 4));
    memcpy(sampler->logits, logits, sampler->vocabulary * sizeof *logits);
    for (uint32_t i = 0; i < sampler->sampling.bias_count; i++)
        sampler->logits[sampler->bias[i].id] += sampler->bias[i].bias;
    if (sampler->grammar != NULL)
        status = apply_grammar(sampler);
    apply_penalties(sampler);
    apply_dry(sampler);
    *out_logits = sampler->logits;
    return status;
}

/* ---- picking -------------------------------------------------------------------------------------------- */

/* Everything from top-k to the temperature. */
static void filter(mica_sampler *sampler, const float *logits)
{
    const mica_sampling *s = &sampler->sampling;
    mica__candidates *list = &sampler->list;
    const uint32_t k = s->top_k != 0 && s->top_k < s->keep_at_least ? s->keep_at_least : s->top_k;
    const bool greedy = s->temperature == 0.0f;
    mica__candidates_gather(list, logits, sampler->vocabulary, greedy ? 1 : s->mirostat != 0 ? 0 : k);
    if (list->count == 0 || greedy)
        return;
    if (s->mirostat != 0) {
        mica__filter_temperature(list, s->temperature);
        mica__filter_surprise(list, sampler->mu);
        return;
    }
    mica__filter_typical(list, s->typical_p);
    mica__filter_top_p(list, s->top_p);
    mica__filter_min_p(list, s->min_p);
    if (s->xtc_probability > 0.0f && mica__random_at(s->seed, sampler->picks, XTC) < s->xtc_probability)
        mica__filter_xtc(list, s->xtc_threshold);
    mica__filter_temperature(list, s->temperature);
}

/* The place in the list that a number in [0, 1) falls on. 24 of its bits count, as in mica_sample. */
static uint32_t draw(const mica__candidates *list, double number)
{
    uint32_t last = 0; /* the last with a chance at all, where rounding leaves the sum below the number */
    number = floor(number * 0x1p24) * 0x1p-24;
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->chance[i] > 0)
            last = i;
        number -= list->chance[i];
        if (number < 0)
            return i;
    }
    return last;
}

static mica_status pick(mica_sampler *sampler, const float *logits, uint32_t *out_id)
{
    const float *changed = NULL;
    uint32_t at;
    if (sampler == NULL || logits == NULL || out_id == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          sampler == NULL  ? "sampler"
                          : logits == NULL ? "logits"
                                           : "out_id");
    *out_id = MICA_NO_TOKEN;
    sampler->list.count = 0;
    MICA__TRY(prepare(sampler, logits, &changed));
    filter(sampler, changed);
    if (sampler->list.count == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "logits: each of the %u is NaN, -infinity or forbidden%s", sampler->vocabulary,
                          sampler->grammar != NULL ? " by the bias or the grammar" : "");
    mica__candidates_order(&sampler->list);
    (void)mica__candidates_softmax(&sampler->list);
    at = draw(&sampler->list, mica__random_at(sampler->sampling.seed, sampler->picks, DRAW));
    sampler->picks++;
    sampler->picked = *out_id = sampler->list.items[at].id;
    sampler->surprise = -log2(sampler->list.chance[at]);
    return MICA_OK;
}

mica_status mica_sampler_pick(mica_sampler *sampler, const float *logits, uint32_t *out_id)
{
    mica__call call;
    mica__call_begin(&call, "sampler_pick");
    return mica__call_end(&call, pick(sampler, logits, out_id));
}

/* ---- moving on ------------------------------------------------------------------------------------------ */

/* Notes a token and whether a breaker ends in it. */
static void remember(mica_sampler *sampler, uint32_t id)
{
    const bool breaks = mica__breakers_read(&sampler->breakers, token_bytes(sampler, id), &sampler->broken);
    mica__history_push(&sampler->history, id, breaks);
}

static mica_status accept(mica_sampler *sampler, uint32_t id, int in_grammar)
{
    const mica_sampling *s;
    if (sampler == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sampler is NULL");
    if (id >= sampler->vocabulary)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "id is %u, the vocabulary has %u tokens", id,
                          sampler->vocabulary);
    if (in_grammar != 0 && sampler->grammar != NULL) {
        const mica_status status = mica_grammar_accept(sampler->grammar, id);
        if (status != MICA_OK)
            return status;
    }
    s = &sampler->sampling;
    if (s->mirostat != 0 && sampler->picked == id)
        sampler->mu -= (double)s->mirostat_eta * (sampler->surprise - (double)s->mirostat_tau);
    sampler->picked = MICA_NO_TOKEN;
    remember(sampler, id);
    return MICA_OK;
}

mica_status mica_sampler_accept(mica_sampler *sampler, uint32_t id, int in_grammar)
{
    mica__call call;
    mica__call_begin(&call, "sampler_accept");
    return mica__call_end(&call, accept(sampler, id, in_grammar));
}

void mica_sampler_reset(mica_sampler *sampler)
{
    if (sampler == NULL)
        return;
    sampler->history.count = sampler->history.head = 0;
    sampler->broken = 0;
    sampler->picks = 0;
    sampler->picked = MICA_NO_TOKEN;
    sampler->mu = 2 * (double)sampler->sampling.mirostat_tau;
    sampler->list.count = 0;
    mica_grammar_reset(sampler->grammar);
}

/* ---- telling -------------------------------------------------------------------------------------------- */

static mica_status chances(mica_sampler *sampler, const float *logits, uint32_t count, mica_token_chance *out)
{
    double sum = 0, most;
    if (sampler == NULL || logits == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          sampler == NULL  ? "sampler"
                          : logits == NULL ? "logits"
                                           : "out");
    if (count == 0 || count > sampler->vocabulary)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "count is %u, it must be from 1 to %u", count,
                          sampler->vocabulary);
    mica__candidates_gather(&sampler->list, logits, sampler->vocabulary, count);
    mica__candidates_sort(&sampler->list);
    most = sampler->list.count != 0 ? (double)sampler->list.items[0].logit : 0;
    for (uint32_t id = 0; id < sampler->vocabulary; id++)
        if (logits[id] > -INFINITY)
            sum += exp((logits[id] < FLT_MAX ? (double)logits[id] : (double)FLT_MAX) - most);
    for (uint32_t i = 0; i < count; i++) {
        const bool there = i < sampler->list.count;
        out[i].id = there ? sampler->list.items[i].id : MICA_NO_TOKEN;
        out[i].log_probability =
            there ? (float)((double)sampler->list.items[i].logit - most - log(sum)) : -INFINITY;
    }
    sampler->list.count = 0;
    return MICA_OK;
}

mica_status mica_sampler_chances(mica_sampler *sampler, const float *logits, uint32_t count,
                                 mica_token_chance *out)
{
    mica__call call;
    mica__call_begin(&call, "sampler_chances");
    return mica__call_end(&call, chances(sampler, logits, count, out));
}

static mica_status candidates(mica_sampler *sampler, mica_token_chance *out, uint32_t capacity,
                              uint32_t *out_count)
{
    if (sampler == NULL || out_count == NULL || (out == NULL && capacity != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          sampler == NULL     ? "sampler"
                          : out_count == NULL ? "out_count"
                                              : "out");
    *out_count = sampler->list.count;
    if (sampler->list.count == 0)
        return MICA_OK;
    mica__candidates_sort(&sampler->list);
    (void)mica__candidates_softmax(&sampler->list);
    for (uint32_t i = 0; i < capacity && i < sampler->list.count; i++) {
        out[i].id = sampler->list.items[i].id;
        out[i].log_probability = (float)log(sampler->list.chance[i]);
    }
    return MICA_OK;
}

mica_status mica_sampler_candidates(mica_sampler *sampler, mica_token_chance *out, uint32_t capacity,
                                    uint32_t *out_count)
{
    mica__call call;
    mica__call_begin(&call, "sampler_candidates");
    return mica__call_end(&call, candidates(sampler, out, capacity, out_count));
}
