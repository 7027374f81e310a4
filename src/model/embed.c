/* embed.c - the embedding of a text: the states of its tokens, pooled and made of length one. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "model/context.h"

/* An encoder sees a text as a whole: one pass. */
static mica_status encoder_states(mica_context *context, const uint32_t *tokens, uint32_t count, float *out)
{
    const mica__pass_shape shape = {.rows = count, .gives = MICA__GIVES_STATES};
    mica__pass_input input;
    mica__pass_result result;
    if (count > context->batch)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "the text has %u tokens, the batch %u", count,
                          context->batch);
    MICA__TRY(mica__pass_place(context, &shape, &input));
    memcpy(input.tokens, tokens, count * sizeof *tokens);
    for (uint32_t i = 0; i < count; i++) {
        input.positions[i] = i;
        input.sequences[i] = 0;
    }
    input.lengths[0] = count;
    MICA__TRY(mica__pass_run(context, &shape, &result));
    return mica_buffer_read(result.rows, 0, out, (uint64_t)count * context->model->h.width * sizeof *out);
}

/* A decoder reads it in pieces, through a sequence that is removed afterwards. */
static mica_status decoder_states(mica_context *context, uint32_t sequence, const uint32_t *tokens,
                                  uint32_t count, float *out)
{
    for (uint32_t done = 0; done < count;) {
        const uint32_t take = count - done < context->batch ? count - done : context->batch;
        const mica__pass_shape shape = {.rows = take, .gives = MICA__GIVES_STATES};
        mica__pass_input input;
        mica__pass_result result;
        MICA__TRY(mica__pass_place(context, &shape, &input));
        MICA__TRY(mica__context_extend(context, sequence, done, done + take));
        for (uint32_t i = 0; i < context->sequences; i++)
            input.lengths[i] = context->sequence[i].used ? context->sequence[i].length : 0;
        for (uint32_t i = 0; i < take; i++) {
            input.tokens[i] = tokens[done + i];
            input.positions[i] = done + i;
            input.sequences[i] = sequence;
        }
        done += take;
        input.lengths[sequence] = context->sequence[sequence].length = done;
        MICA__TRY(mica__pass_run(context, &shape, &result));
        MICA__TRY(mica_buffer_read(result.rows, 0, out + (size_t)(done - take) * context->model->h.width,
                                   (uint64_t)take * context->model->h.width * sizeof *out));
        if (context->pages[1].count != 0)
            mica__pages_forget(&context->pages[1], sequence, done);
    }
    return MICA_OK;
}

mica_status mica__context_states(mica_context *context, const uint32_t *tokens, uint32_t count, float *out)
{
    uint32_t sequence;
    if (context->model->family->encoder)
        return encoder_states(context, tokens, count, out);
    MICA__TRY(mica__sequence_create(context, &sequence));
    const mica_status status = decoder_states(context, sequence, tokens, count, out);
    mica__sequence_remove(context, sequence);
    return status;
}

static void pool(const float *states, uint32_t count, uint32_t width, mica_pooling pooling, float *out)
{
    const uint32_t row = pooling == MICA_POOLING_CLS ? 0 : count - 1;
    if (pooling != MICA_POOLING_MEAN) {
        memcpy(out, states + (size_t)row * width, width * sizeof *out);
        return;
    }
    for (uint32_t i = 0; i < width; i++) {
        double sum = 0;
        for (uint32_t t = 0; t < count; t++)
            sum += states[(size_t)t * width + i];
        out[i] = (float)(sum / count);
    }
}

static void scale_to_one(float *vector, uint32_t width)
{
    double sum = 0;
    for (uint32_t i = 0; i < width; i++)
        sum += (double)vector[i] * vector[i];
    const double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (uint32_t i = 0; i < width; i++)
        vector[i] = (float)(vector[i] * scale);
}

static mica_status check_text(const mica_context *context, const uint32_t *tokens, uint32_t count,
                              mica_pooling pooling, const float *out_vector)
{
    if (tokens == NULL || out_vector == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", tokens == NULL ? "tokens" : "out_vector");
    if ((uint32_t)pooling > MICA_POOLING_LAST)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "pooling is %u, no mica_pooling", (uint32_t)pooling);
    const mica__hparams *h = &context->model->h;
    if (count == 0 || count > context->longest || count > h->context_length)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "the text has %u tokens, the context holds 1 to %u, the model %u", count,
                          context->longest, h->context_length);
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] >= h->vocabulary)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "token %u is %u, the vocabulary has %u", i,
                              tokens[i], h->vocabulary);
    return MICA_OK;
}

static mica_status embed(mica_context *context, const uint32_t *tokens, uint32_t count, mica_pooling pooling,
                         int normalise, float *out_vector)
{
    MICA__TRY(check_text(context, tokens, count, pooling, out_vector));
    const mica_model *model = context->model;
    const uint32_t width = model->h.width;
    if (pooling == MICA_POOLING_DEFAULT)
        pooling = model->h.pooling != MICA_POOLING_DEFAULT ? model->h.pooling
                  : model->family->encoder                 ? MICA_POOLING_MEAN
                                                           : MICA_POOLING_LAST;
    float *states = mica__alloc((size_t)count * width * sizeof *states);
    if (states == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the states of %u tokens", count);
    const mica_status status = mica__context_states(context, tokens, count, states);
    if (status == MICA_OK) {
        pool(states, count, width, pooling, out_vector);
        if (normalise)
            scale_to_one(out_vector, width);
    }
    mica__free(states);
    return status;
}

mica_status mica_context_embed(mica_context *context, const uint32_t *tokens, uint32_t count,
                               mica_pooling pooling, int normalise, float *out_vector)
{
    mica__call call;
    MICA__TRY(mica__context_enter_work(context, "context_embed", &call));
    return mica__context_leave(context, &call, embed(context, tokens, count, pooling, normalise, out_vector));
}
