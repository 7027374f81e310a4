/* next.c - the token that follows: samplers into the inputs of a pass, tokens out of it, or picked here from logits. */
#include <string.h>

#include "model/context.h"
#include "sample/sample.h"

/* ---- into a pass ---------------------------------------------------------------------------------------- */

mica__picking mica__next_picking(const mica_next *items, uint32_t count, bool *out_reads)
{
    mica__picking picking = {0};
    *out_reads = false;
    for (uint32_t i = 0; i < count; i++) {
        const bool here = !mica__sampler_in_ops(items[i].sampler);
        *out_reads = *out_reads || here || (items[i].flags & MICA_NEXT_LOGITS) != 0;
        if (here)
            continue;
        const mica__sampler_needs needs = mica__sampler_measure(items[i].sampler);
        picking.on = 1;
        picking.history = needs.history > picking.history ? needs.history : picking.history;
        picking.bias = needs.bias > picking.bias ? needs.bias : picking.bias;
        picking.masked |= needs.mask;
        picking.chances |= (items[i].flags & MICA_NEXT_LOG_PROBABILITY) != 0;
    }
    picking.logits = picking.on && *out_reads;
    return picking;
}

mica_status mica__next_place(const mica_context *context, const mica__picking *picking,
                             const mica__pass_input *input, uint32_t row, const mica_next *item)
{
    const uint32_t words = mica__mask_words(context);
    const bool in_ops = mica__sampler_in_ops(item->sampler);
    mica_sample_settings settings = {.repeat_penalty = 1.0f}; /* of a row that nobody looks at */
    if (in_ops)
        mica__sampler_settings(item->sampler, picking->history, &settings);
    memcpy(input->settings + (size_t)row * MICA_SAMPLE_WORDS, &settings, sizeof settings);
    mica__sampler_write(in_ops ? item->sampler : NULL, input->history + (size_t)row * picking->history,
                        picking->history, input->bias_ids + (size_t)row * picking->bias,
                        input->bias + (size_t)row * picking->bias, picking->bias);
    if ((settings.flags & MICA_SAMPLE_MASKED) == 0)
        return MICA_OK;
    return mica__sampler_mask(item->sampler, input->mask + (size_t)row * words, words);
}

/* ---- out of it ------------------------------------------------------------------------------------------ */

static mica_status pick_here(const mica_context *context, const float *logits, mica_next *item)
{
    MICA__TRY(mica_sampler_pick(item->sampler, logits, &item->id));
    if ((item->flags & MICA_NEXT_LOG_PROBABILITY) != 0)
        item->log_probability = mica__log_probability(logits, context->model->h.vocabulary, item->id);
    return MICA_OK;
}

static mica_status take_pick(const mica_context *context, uint32_t row, uint32_t rows, mica_next *item)
{
    const uint32_t id = context->picks[row];
    if (id == MICA_NO_TOKEN)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "logits of sequence %u: each of the %u is NaN, -infinity or forbidden",
                          item->sequence, context->model->h.vocabulary);
    mica__sampler_picked(item->sampler, id);
    item->id = id;
    if ((item->flags & MICA_NEXT_LOG_PROBABILITY) != 0)
        memcpy(&item->log_probability, &context->picks[rows + row], sizeof item->log_probability);
    return MICA_OK;
}

mica_status mica__next_take(mica_context *context, const mica__pass_result *result, const float *logits,
                            mica_next *items, uint32_t count)
{
    mica_status status = MICA_OK;
    uint64_t words = count; /* the tokens, and behind them the chances where somebody asked */
    for (uint32_t i = 0; i < count && words == count; i++)
        words += (items[i].flags & MICA_NEXT_LOG_PROBABILITY) != 0 ? count : 0;
    if (result->picks != NULL)
        MICA__TRY(mica_buffer_read(result->picks, 0, context->picks, words * sizeof(uint32_t)));
    for (uint32_t i = count; i-- > 0;) { /* all of them, whatever one says; the first has the last word */
        items[i].status =
            mica__sampler_in_ops(items[i].sampler)
                ? take_pick(context, i, count, &items[i])
                : pick_here(context, logits + (size_t)i * context->model->h.vocabulary, &items[i]);
        status = items[i].status != MICA_OK ? items[i].status : status;
    }
    return status;
}

/* ---- the calls ------------------------------------------------------------------------------------------ */

static mica_status check_sampler(const mica_context *context, const mica_sampler *sampler)
{
    if (sampler == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sampler is NULL");
    if (sampler->vocabulary != context->model->h.vocabulary)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "sampler is for a vocabulary of %u tokens, the model has %u", sampler->vocabulary,
                          context->model->h.vocabulary);
    return MICA_OK;
}

/* Whether the sampler was seen in this call before; it is from now on. */
static bool is_seen(mica_context *context, const mica_sampler *sampler)
{
    uint32_t at =
        (uint32_t)(((uint64_t)(uintptr_t)sampler * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & context->seen_mask;
    while (context->seen[at] != NULL && context->seen[at] != sampler)
        at = (at + 1) & context->seen_mask;
    const bool seen = context->seen[at] != NULL;
    context->seen[at] = sampler;
    return seen;
}

static mica_status check_item(mica_context *context, const mica_next *item, uint32_t index)
{
    if ((item->flags & ~(MICA_NEXT_LOG_PROBABILITY | MICA_NEXT_LOGITS)) != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "item %u: flags is 0x%x, known bits are 0x%x", index,
                          item->flags, MICA_NEXT_LOG_PROBABILITY | MICA_NEXT_LOGITS);
    const mica_status status = check_sampler(context, item->sampler);
    if (status != MICA_OK)
        return mica__fail(status, "item %u: %s", index, mica_status_message());
    if (is_seen(context, item->sampler))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "item %u has the same sampler as another item", index);
    return MICA_OK;
}

static mica_status next(mica_context *context, mica_next *items, uint32_t count)
{
    mica_status wrong = MICA_OK;
    if (items == NULL && count != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "items is NULL");
    for (uint32_t i = 0; i < count; i++) {
        items[i].id = MICA_NO_TOKEN;
        items[i].log_probability = 0;
        items[i].status = MICA_OK;
    }
    if (count > context->sequences)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "count is %u, the context has %u sequences", count,
                          context->sequences);
    memset(context->seen, 0, ((size_t)context->seen_mask + 1) * sizeof *context->seen);
    for (uint32_t i = count; i-- > 0;) { /* the sentence is that of the first that is wrong */
        items[i].status = check_item(context, &items[i], i);
        wrong = items[i].status != MICA_OK ? items[i].status : wrong;
        context->feeds[i] = (mica_feed){items[i].sequence, items[i].tokens, items[i].count, MICA_WANT_LAST};
    }
    return wrong != MICA_OK ? wrong : mica__context_feed(context, context->feeds, count, items);
}

mica_status mica_context_next(mica_context *context, mica_next *items, uint32_t count)
{
    mica__call call;
    MICA__TRY(mica__context_enter_work(context, "context_next", &call));
    return mica__context_leave(context, &call, next(context, items, count));
}

static mica_status sample(mica_context *context, uint32_t sequence, mica_sampler *sampler, uint32_t *out_id)
{
    const float *logits;
    uint32_t rows;
    MICA__TRY(mica__context_logits(context, sequence, &logits, &rows));
    MICA__TRY(check_sampler(context, sampler));
    return mica_sampler_pick(sampler, logits + (size_t)(rows - 1) * context->model->h.vocabulary, out_id);
}

mica_status mica_context_sample(mica_context *context, uint32_t sequence, mica_sampler *sampler,
                                uint32_t *out_id)
{
    mica__call call;
    if (out_id == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "context_sample: out_id is NULL");
    *out_id = MICA_NO_TOKEN;
    MICA__TRY(mica__context_enter(context, "context_sample", &call));
    return mica__context_leave(context, &call, sample(context, sequence, sampler, out_id));
}
