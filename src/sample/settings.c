/* settings.c: a sampler as mica_penalize and mica_sample read it, where they can do what it asks for. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "grammar/vocabulary.h"
#include "sample/sample.h"

#define MOST_HISTORY 4096u
#define MOST_BIAS 1024u

bool mica__sampler_in_ops(const mica_sampler *sampler)
{
    const mica_sampling *s = &sampler->sampling;
    return s->mirostat == 0 && s->dry_multiplier == 0.0f && s->xtc_probability == 0.0f &&
           sampler->history.capacity <= MOST_HISTORY && s->bias_count <= MOST_BIAS;
}

/* A power of two, so that few recordings serve all; 0 for 0. */
static uint32_t round_up(uint32_t count, uint32_t least)
{
    uint32_t size = least;
    while (size < count)
        size *= 2;
    return count == 0 ? 0 : size;
}

mica__sampler_needs mica__sampler_measure(const mica_sampler *sampler)
{
    return (mica__sampler_needs){.history = round_up(sampler->history.capacity, 64),
                                 .bias = round_up(sampler->sampling.bias_count, 16),
                                 .mask = sampler->grammar != NULL};
}

void mica__sampler_settings(const mica_sampler *sampler, uint32_t history_width, mica_sample_settings *out)
{
    const mica_sampling *s = &sampler->sampling;
    *out = (mica_sample_settings){.seed_low = (uint32_t)s->seed,
                                  .seed_high = (uint32_t)(s->seed >> 32),
                                  .pick_low = (uint32_t)sampler->picks,
                                  .pick_high = (uint32_t)(sampler->picks >> 32),
                                  .temperature = s->temperature,
                                  .top_k = s->top_k,
                                  .top_p = s->top_p,
                                  .min_p = s->min_p,
                                  .typical_p = s->typical_p,
                                  .keep = s->keep_at_least,
                                  .repeat_penalty = s->repeat_penalty,
                                  .presence_penalty = s->presence_penalty,
                                  .frequency_penalty = s->frequency_penalty,
                                  .history_last = s->penalty_last,
                                  .history_next =
                                      history_width == 0 ? 0 : sampler->history.count % history_width,
                                  .flags = sampler->grammar != NULL ? MICA_SAMPLE_MASKED : 0};
}

void mica__sampler_write(const mica_sampler *sampler, uint32_t *history, uint32_t width, uint32_t *bias_ids,
                         uint32_t *bias, uint32_t slots)
{
    const uint32_t count = sampler == NULL ? 0 : sampler->history.count,
                   biases = sampler == NULL ? 0 : sampler->sampling.bias_count;
    for (uint32_t i = 0; i < width; i++)
        history[i] = i < count ? mica__history_at(&sampler->history, count - 1 - i) : MICA_NO_TOKEN;
    for (uint32_t i = 0; i < slots; i++) {
        bias_ids[i] = i < biases ? sampler->bias[i].id : MICA_NO_TOKEN;
        bias[i] = 0;
        if (i < biases)
            memcpy(&bias[i], &sampler->bias[i].bias, sizeof bias[i]);
    }
}

mica_status mica__sampler_mask(mica_sampler *sampler, uint32_t *mask, uint64_t words)
{
    return mica_grammar_mask(sampler->grammar, mask, words);
}

void mica__sampler_picked(mica_sampler *sampler, uint32_t id)
{
    sampler->picks++;
    sampler->picked = id;
    sampler->list.count = 0;
}

float mica__log_probability(const float *logits, uint32_t count, uint32_t id)
{
    float most = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        most = logits[i] > most ? logits[i] : most;
    if (most > FLT_MAX)
        most = FLT_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (logits[i] > -INFINITY)
            sum += exp((logits[i] < FLT_MAX ? (double)logits[i] : (double)FLT_MAX) - (double)most);
    return (float)((logits[id] < FLT_MAX ? (double)logits[id] : (double)FLT_MAX) - (double)most - log(sum));
}
