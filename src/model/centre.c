/*
 * centre.c - the mean key of each head, which is taken off the keys before a cache of few bits codes them. Moving all keys of a head by one
 * vector moves all scores of a query by one number, which softmax does not see; and what is left of keys without their mean is a third to a half of their
 * energy, so as many bits err by that much less.
 *
 * The means are of tokens drawn from the vocabulary: what all keys have in common does not hang on the text. Heads rotate before they
 * are stored, so each row is measured as it would be stored somewhere in a sequence: places up to what the model was trained for, the more the nearer.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "model/context.h"

#define ROWS MICA__CENTRE_ROWS
#define NEAR \
    256.0 /* places are equally likely up to about here, and equally likely in each doubling beyond */
#define FAR 32768u /* further ones do not count */

/* Types that err by more than a thousandth of a key's energy. */
static bool is_coarse(mica_dtype type)
{
    static const mica_dtype coarse[] = {
        MICA_DTYPE_Q4_0,   MICA_DTYPE_Q4_1,     MICA_DTYPE_Q5_0,   MICA_DTYPE_Q5_1,   MICA_DTYPE_IQ4_NL,
        MICA_DTYPE_TURBO2, MICA_DTYPE_TURBO2_5, MICA_DTYPE_TURBO3, MICA_DTYPE_TURBO4, MICA_DTYPE_TURBO5};
    for (size_t i = 0; i < sizeof coarse / sizeof coarse[0]; i++)
        if (type == coarse[i])
            return true;
    return false;
}

mica_status mica__centre_choose(const mica_context *context, mica_centre asked, bool *out)
{
    const mica__hparams *h = &context->model->h;
    const bool may = !context->model->family->encoder && h->attention_softcap == 0;
    if (asked == MICA_CENTRE_ALWAYS && !may)
        return mica__fail(MICA_ERR_UNSUPPORTED, "options.centre_keys is ALWAYS for a model whose %s",
                          h->attention_softcap != 0 ? "scores are capped: that is not blind to their mean"
                                                    : "keys are in no cache");
    *out = asked == MICA_CENTRE_ALWAYS || (asked == MICA_CENTRE_AUTO && may && is_coarse(context->cache_k));
    return MICA_OK;
}

/* What the pass reads: tokens of the whole vocabulary, where they are in their text, and where their keys are measured. */
static void draw(const mica_model *model, uint32_t *tokens, uint32_t *places)
{
    const uint32_t trained = model->h.context_length;
    const double last = trained == 0 || trained > FAR ? FAR : trained, steps = log1p(last / NEAR) / ROWS;
    uint64_t state = 1;
    for (uint32_t i = 0; i < ROWS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (uint32_t)(((state >> 32) * model->h.vocabulary) >> 32);
        places[i] = (uint32_t)(NEAR * expm1((i + 0.5) * steps));
    }
}

static mica_status make_means(mica_context *context)
{
    const mica_model *model = context->model;
    const uint64_t shape[3] = {1, model->h.kv_heads, model->h.head_k};
    context->mean_key = mica__calloc(model->h.layers, sizeof *context->mean_key);
    if (context->mean_key == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the mean keys of %u layers",
                          model->h.layers);
    for (uint32_t i = 0; i < model->h.layers; i++)
        MICA__TRY(mica_buffer_alloc(model->device, MICA_DTYPE_F32, 3, shape, &context->mean_key[i]));
    return MICA_OK;
}

mica_status mica__centre_measure(mica_context *context)
{
    const uint64_t rows = ROWS;
    uint32_t tokens[ROWS], places[ROWS];
    mica__pass pass;
    mica_fence *fence = NULL;
    MICA__TRY(make_means(context));
    draw(context->model, tokens, places);
    mica__spend_allow(context->model->info.weight_bytes);
    mica_status status = mica__whole_begin(context->model, &context->adapters, 1, ROWS, &pass);
    pass.capacity = context->capacity;
    pass.mean_key = context->mean_key;
    if (status == MICA_OK)
        status = mica_buffer_write(pass.tokens, 0, tokens, sizeof tokens);
    if (status == MICA_OK)
        status = mica_buffer_alloc(context->model->device, MICA_DTYPE_U32, 1, &rows, &pass.places);
    if (status == MICA_OK)
        status = mica_buffer_write(pass.places, 0, places, sizeof places);
    if (status == MICA_OK)
        status = mica__decoder_forward(&pass);
    if (status == MICA_OK)
        status = mica_session_commit(pass.session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, NULL, &fence);
    if (status == MICA_OK)
        status = mica__pass_wait(context, fence);
    mica__whole_end(&pass);
    return status;
}
