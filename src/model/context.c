/* context.c - making a context, and its sequences: new, removed, forked, trimmed. */
#include "model/context.h"

#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/thread.h"

#define DEFAULT_CAPACITY 4096u
#define DEFAULT_BATCH 512u
#define DEFAULT_BATCH_WIDE 2048u /* on devices that run thousands of rows at once */
#define MOST_CAPACITY (1u << 24)
#define MOST_SEQUENCES 4096u
#define MOST_BATCH 8192u
#define MOST_LOGIT_BYTES ((uint64_t)64 << 20) /* of one pass */
#define LAYER_STEPS 500u                      /* of the buffers of a layer */
#define SEQUENCE_STEPS 20u

/* ---- making ------------------------------------------------------------------------------------------------ */

static mica_status check_type(const char *field, mica_dtype given, mica_dtype *out)
{
    static const mica_dtype known[] = {
        MICA_DTYPE_F32,    MICA_DTYPE_F16,    MICA_DTYPE_BF16,     MICA_DTYPE_Q8_0,
        MICA_DTYPE_Q4_0,   MICA_DTYPE_Q4_1,   MICA_DTYPE_Q5_0,     MICA_DTYPE_Q5_1,
        MICA_DTYPE_IQ4_NL, MICA_DTYPE_TURBO2, MICA_DTYPE_TURBO2_5, MICA_DTYPE_TURBO3,
        MICA_DTYPE_TURBO4, MICA_DTYPE_TURBO5, MICA_DTYPE_TURBO6,   MICA_DTYPE_TURBO8};
    *out = given == MICA_DTYPE_NONE ? MICA_DTYPE_F16 : given;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (*out == known[i])
            return MICA_OK;
    return mica__fail(
        MICA_ERR_UNSUPPORTED,
        "options.%s is %s, expected f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl or a turbo type",
        field, mica_dtype_name(given));
}

static mica_status check_number(const char *field, uint32_t given, uint32_t otherwise, uint32_t most,
                                uint32_t *out)
{
    *out = given == 0 ? otherwise : given;
    if (*out <= most)
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "options.%s is %u, at most %u is possible", field, given,
                      most);
}

/* A device with threads of this process. */
static bool is_host(const mica_device *device)
{
    mica_device_properties properties;
    return mica_device_get_properties(device, &properties) != MICA_OK || properties.threads != 0;
}

static mica_status take_options(mica_context *context, const mica_context_options *options, bool *centres)
{
    mica_context_options o;
    const mica__hparams *h = &context->model->h;
    MICA__TRY(mica__take_options("options", options, sizeof o, &o));
    MICA__TRY(mica__check_enum("options.cache_k", (uint32_t)o.cache_k, MICA_DTYPE_COUNT));
    MICA__TRY(mica__check_enum("options.cache_v", (uint32_t)o.cache_v, MICA_DTYPE_COUNT));
    const uint32_t trained =
        h->longest != 0 && h->longest < h->context_length ? h->longest : h->context_length;
    const uint32_t usual = trained < DEFAULT_CAPACITY ? trained : DEFAULT_CAPACITY;
    MICA__TRY(check_number("capacity", o.capacity, usual, MOST_CAPACITY, &context->capacity));
    MICA__TRY(check_number("sequences", o.sequences, 1, MOST_SEQUENCES, &context->sequences));
    context->longest = h->longest != 0 && h->longest < context->capacity ? h->longest : context->capacity;
    if (context->longest < context->capacity / context->sequences)
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT,
            "options.capacity is %u for %u sequences, the model has positions for %u tokens each",
            context->capacity, context->sequences, h->longest);
    context->stoppable = is_host(context->model->device);
    MICA__TRY(check_number("batch", o.batch, context->stoppable ? DEFAULT_BATCH : DEFAULT_BATCH_WIDE,
                           MOST_BATCH, &context->batch));
    MICA__TRY(check_type("cache_k", o.cache_k, &context->cache_k));
    MICA__TRY(check_type("cache_v", o.cache_v, &context->cache_v));
    MICA__TRY(mica__check_enum("options.centre_keys", (uint32_t)o.centre_keys, MICA_CENTRE_ALWAYS + 1));
    MICA__TRY(mica__centre_choose(context, o.centre_keys, centres));
    context->shift = o.shift != 0;
    context->keep = o.keep;
    if (context->shift && o.keep >= context->longest / 2)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "options.keep is %u, it must be under half of the capacity of %u", o.keep,
                          context->longest);
    const uint64_t row = (uint64_t)h->vocabulary * sizeof(float);
    context->most_outputs =
        MOST_LOGIT_BYTES / row < context->batch ? (uint32_t)(MOST_LOGIT_BYTES / row) : context->batch;
    if (context->most_outputs < context->sequences)
        context->most_outputs = context->sequences;
    return MICA_OK;
}

static bool has_kind(const mica_model *model, uint32_t kind)
{
    for (uint32_t i = 0; i < model->h.layers; i++)
        if (model->layer[i].slides == (kind == 1))
            return true;
    return false;
}

static uint32_t count_pages(const mica_context *context, uint32_t kind)
{
    const uint32_t all =
        (context->capacity + MICA__PAGE_TOKENS - 1) / MICA__PAGE_TOKENS + context->sequences - 1;
    if (kind == 0)
        return all;
    const uint64_t each =
        ((uint64_t)context->model->h.window + context->batch + MICA__PAGE_TOKENS - 1) / MICA__PAGE_TOKENS + 2;
    return each * context->sequences < all ? (uint32_t)(each * context->sequences) : all;
}

static mica_status make_cache(mica_context *context, uint32_t layer)
{
    const mica_model *model = context->model;
    const uint32_t kind = model->layer[layer].slides;
    const uint64_t k[4] = {context->pages[kind].count, MICA__PAGE_TOKENS, model->h.kv_heads, model->h.head_k};
    const uint64_t v[4] = {k[0], k[1], k[2], model->h.head_v};
    mica_buffer_info info;
    MICA__TRY(mica_buffer_alloc(model->device, context->cache_k, 4, k, &context->k[layer]));
    MICA__TRY(mica_buffer_alloc(model->device, context->cache_v, 4, v, &context->v[layer]));
    MICA__TRY(mica_buffer_get_info(context->k[layer], &info));
    uint64_t bytes = info.storage_bytes;
    MICA__TRY(mica_buffer_get_info(context->v[layer], &info));
    bytes += info.storage_bytes;
    context->cache_bytes += bytes;
    mica__spend_allow(bytes); /* as many as the caller asked for */
    return mica__spend(LAYER_STEPS + bytes / 64);
}

static mica_status make_tables(mica_context *context)
{
    const mica_model *model = context->model;
    for (uint32_t kind = 0; kind < MICA__KINDS; kind++) {
        mica__pages *pages = &context->pages[kind];
        if (kind == 1 && !has_kind(model, 1))
            continue;
        MICA__TRY(mica__pages_create(pages, MICA__PAGE_TOKENS, count_pages(context, kind), context->sequences,
                                     context->capacity, kind == 1 ? model->h.window : 0));
        const uint64_t shape[2] = {context->sequences, pages->row};
        MICA__TRY(mica_buffer_alloc(model->device, MICA_DTYPE_U32, 2, shape, &context->table[kind]));
    }
    return MICA_OK;
}

static mica_status make_sequences(mica_context *context)
{
    for (uint32_t i = 0; i < context->sequences; i++) {
        MICA__TRY(mica__spend(SEQUENCE_STEPS));
        context->sequence[i].tokens = mica__alloc((size_t)context->capacity * sizeof(uint32_t));
        if (context->sequence[i].tokens == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a sequence of %u tokens",
                              context->capacity);
    }
    return MICA_OK;
}

static mica_status fill(mica_context *context, const mica_context_options *options)
{
    const mica_model *model = context->model;
    bool centres;
    MICA__TRY(take_options(context, options, &centres));
    if (options != NULL)
        MICA__TRY(mica__adapters_take(context->model, "options.adapters", options->adapters,
                                      options->adapter_count, &context->adapters));
    context->k = mica__calloc(model->h.layers, sizeof(mica_buffer *));
    context->v = mica__calloc(model->h.layers, sizeof(mica_buffer *));
    context->sequence = mica__calloc(context->sequences, sizeof *context->sequence);
    context->feeds = mica__calloc(context->sequences, sizeof *context->feeds);
    context->picks = mica__calloc(2 * (size_t)context->sequences, sizeof *context->picks);
    for (context->seen_mask = 1; context->seen_mask < 2 * context->sequences;)
        context->seen_mask = 2 * context->seen_mask + 1;
    context->seen = mica__calloc((size_t)context->seen_mask + 1, sizeof(mica_sampler *));
    if (context->k == NULL || context->v == NULL || context->sequence == NULL || context->feeds == NULL ||
        context->picks == NULL || context->seen == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a context");
    if (model->family->encoder)
        return MICA_OK;
    MICA__TRY(make_sequences(context));
    MICA__TRY(make_tables(context));
    for (uint32_t i = 0; i < model->h.layers; i++)
        MICA__TRY(make_cache(context, i));
    return centres ? mica__centre_measure(context) : MICA_OK;
}

void mica_context_release(mica_context *context)
{
    if (context == NULL)
        return;
    mica__pass_forget(context);
    for (uint32_t i = 0; context->k != NULL && context->v != NULL && i < context->model->h.layers; i++) {
        mica_buffer_release(context->k[i]);
        mica_buffer_release(context->v[i]);
        if (context->mean_key != NULL)
            mica_buffer_release(context->mean_key[i]);
    }
    for (uint32_t i = 0; context->sequence != NULL && i < context->sequences; i++)
        mica__free(context->sequence[i].tokens);
    for (uint32_t kind = 0; kind < MICA__KINDS; kind++) {
        mica__pages_free(&context->pages[kind]);
        mica_buffer_release(context->table[kind]);
    }
    mica__free(context->k);
    mica__free(context->v);
    mica__free(context->mean_key);
    mica__free(context->sequence);
    mica__free(context->input);
    mica__free(context->feeds);
    mica__free(context->picks);
    mica__free(context->seen);
    mica__free(context->logits);
    mica__adapters_free(&context->adapters);
    mica_model_release(context->model);
    mica__free(context);
}

static mica_status create(mica_model *model, const mica_context_options *options, mica_context **out_context)
{
    if (out_context == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_context is NULL");
    *out_context = NULL;
    if (model == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "model is NULL");
    mica_context *context = mica__calloc(1, sizeof *context);
    if (context == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a context");
    mica__work_init(&context->own, NULL);
    context->model = mica__model_retain(model);
    const mica_status status = fill(context, options);
    if (status == MICA_OK)
        *out_context = context;
    else
        mica_context_release(context);
    return status;
}

mica_status mica_context_create(mica_model *model, const mica_context_options *options,
                                mica_context **out_context)
{
    mica__call call;
    mica__call_begin(&call, "context_create");
    return mica__call_end(&call, create(model, options, out_context));
}

/* ---- calls --------------------------------------------------------------------------------------------------- */

/* A thread that had the context when the process was forked is not there in the child. */
mica_status mica__context_enter(const mica_context *context, const char *name, mica__call *call)
{
    mica_context *open = (mica_context *)context;
    const uint32_t mine = mica__fork_generation() + 1;
    uint32_t busy = 0;
    mica__call_begin(call, name);
    if (context == NULL)
        return mica__call_end(call, mica__fail(MICA_ERR_INVALID_ARGUMENT, "context is NULL"));
    while (!atomic_compare_exchange_strong(&open->busy, &busy, mine))
        if (busy == mine)
            return mica__call_end(
                call,
                mica__fail(MICA_ERR_STATE, "another call has the context: it is for one thread at a time"));
    return MICA_OK;
}

mica_status mica__context_enter_work(mica_context *context, const char *name, mica__call *call)
{
    MICA__TRY(mica__context_enter(context, name, call));
    mica__call_cancelled_by(call, &context->own);
    return MICA_OK;
}

mica_status mica__context_leave(const mica_context *context, mica__call *call, mica_status status)
{
    mica_context *open = (mica_context *)context;
    if (status == MICA_ERR_CANCELLED && call->own != NULL)
        mica_work_clear(&open->own);
    atomic_store(&open->busy, 0);
    return mica__call_end(call, status);
}

static void describe(const mica_context *context, mica_context_info *out)
{
    const mica__pages *all = &context->pages[0], *sliding = &context->pages[1];
    *out = (mica_context_info){.capacity = context->capacity,
                               .sequences = context->sequences,
                               .page_tokens = MICA__PAGE_TOKENS,
                               .pages = all->count,
                               .pages_used = all->count - all->free_count,
                               .window_pages = sliding->count,
                               .window_pages_used = sliding->count - sliding->free_count,
                               .cache_bytes = context->cache_bytes,
                               .passes = context->passes,
                               .tokens = context->tokens};
    for (uint32_t i = 0; i < context->sequences; i++)
        out->sequences_used += context->sequence[i].used;
    for (uint32_t i = 0; i < MICA__RECORDED; i++)
        out->recordings += context->recorded[i].recording != NULL;
    out->batch = context->batch;
}

mica_status mica_context_get_info(const mica_context *context, mica_context_info *out)
{
    mica__call call;
    if (out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "context_get_info: out is NULL");
    MICA__TRY(mica__context_enter(context, "context_get_info", &call));
    describe(context, out);
    return mica__context_leave(context, &call, MICA_OK);
}

mica_status mica_context_cancel(mica_context *context)
{
    if (context == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "context_cancel: context is NULL");
    mica_work_cancel(&context->own);
    return MICA_OK;
}

mica_status mica_context_cancel_clear(mica_context *context)
{
    if (context == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "context_cancel_clear: context is NULL");
    mica_work_clear(&context->own);
    return MICA_OK;
}

/* ---- pages --------------------------------------------------------------------------------------------------- */

/* One page of a cache as a buffer. */
static mica_status page_view(mica_buffer *cache, uint32_t page, mica_buffer **out)
{
    return mica_buffer_slice(cache, 0, page, 1, out);
}

static mica_status copy_one(mica_encoder *encoder, mica_buffer *cache, const mica__page_copy *copy)
{
    mica_buffer *from = NULL, *to = NULL;
    mica_status status = page_view(cache, copy->from, &from);
    if (status == MICA_OK)
        status = page_view(cache, copy->to, &to);
    if (status == MICA_OK)
        status = mica_copy(encoder, from, to);
    mica_buffer_release(from);
    mica_buffer_release(to);
    return status;
}

mica_status mica__context_copy_page(mica_context *context, uint32_t kind, const mica__page_copy *copy)
{
    const mica_model *model = context->model;
    mica_encoder *encoder = NULL;
    mica_status status = mica_encoder_begin(model->device, NULL, &encoder);
    for (uint32_t i = 0; i < model->h.layers && status == MICA_OK; i++) {
        if (model->layer[i].slides != (kind == 1))
            continue;
        status = copy_one(encoder, context->k[i], copy);
        if (status == MICA_OK)
            status = copy_one(encoder, context->v[i], copy);
    }
    if (status == MICA_OK)
        status = mica_encoder_commit_and_wait(encoder);
    mica_encoder_release(encoder);
    return status;
}

mica_status mica__context_extend(mica_context *context, uint32_t sequence, uint32_t from, uint32_t to)
{
    for (uint32_t kind = 0; kind < MICA__KINDS; kind++) {
        const mica__pages *pages = &context->pages[kind];
        if (pages->count != 0 && mica__pages_wanted(pages, sequence, from, to) > pages->free_count)
            return mica__fail(
                MICA_ERR_FULL,
                "the context is full: sequence %u wants %u pages for %u tokens, %u of %u are free", sequence,
                mica__pages_wanted(pages, sequence, from, to), to - from, pages->free_count, pages->count);
    }
    for (uint32_t kind = 0; kind < MICA__KINDS; kind++) {
        mica__page_copy copy;
        if (context->pages[kind].count == 0)
            continue;
        mica__pages_extend(&context->pages[kind], sequence, from, to, &copy);
        if (copy.from != copy.to)
            MICA__TRY(mica__context_copy_page(context, kind, &copy));
    }
    return MICA_OK;
}

/* ---- sequences ------------------------------------------------------------------------------------------------- */

mica_status mica__sequence_check(const mica_context *context, uint32_t sequence)
{
    if (sequence >= context->sequences || !context->sequence[sequence].used)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "there is no sequence %u", sequence);
    return MICA_OK;
}

mica_status mica__sequence_create(mica_context *context, uint32_t *out_sequence)
{
    if (context->model->family->encoder)
        return mica__fail(MICA_ERR_UNSUPPORTED, "a %s model gives embeddings and keeps no sequences",
                          context->model->family->name);
    for (uint32_t i = context->lowest; i < context->sequences; i++) {
        mica__sequence *sequence = &context->sequence[i];
        if (sequence->used)
            continue;
        sequence->used = true;
        sequence->length = sequence->row_count = 0;
        context->lowest = i + 1;
        *out_sequence = i;
        return MICA_OK;
    }
    return mica__fail(MICA_ERR_FULL, "all %u sequences of the context are in use", context->sequences);
}

mica_status mica_sequence_create(mica_context *context, uint32_t *out_sequence)
{
    mica__call call;
    if (out_sequence == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sequence_create: out_sequence is NULL");
    MICA__TRY(mica__context_enter(context, "sequence_create", &call));
    return mica__context_leave(context, &call, mica__sequence_create(context, out_sequence));
}

static void trim(mica_context *context, uint32_t sequence, uint32_t length)
{
    for (uint32_t kind = 0; kind < MICA__KINDS; kind++)
        if (context->pages[kind].count != 0)
            mica__pages_trim(&context->pages[kind], sequence, length);
    context->sequence[sequence].length = length;
    context->sequence[sequence].row_count = 0;
}

void mica__sequence_remove(mica_context *context, uint32_t sequence)
{
    trim(context, sequence, 0);
    context->sequence[sequence].used = false;
    context->lowest = sequence < context->lowest ? sequence : context->lowest;
}

mica_status mica_sequence_remove(mica_context *context, uint32_t sequence)
{
    mica__call call;
    MICA__TRY(mica__context_enter(context, "sequence_remove", &call));
    const mica_status status = mica__sequence_check(context, sequence);
    if (status == MICA_OK)
        mica__sequence_remove(context, sequence);
    return mica__context_leave(context, &call, status);
}

/* Whether the sequence can go on from its first `length` tokens. */
static mica_status check_length(const mica_context *context, uint32_t sequence, uint32_t length)
{
    MICA__TRY(mica__sequence_check(context, sequence));
    if (length > context->sequence[sequence].length)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "length is %u, sequence %u has %u tokens", length,
                          sequence, context->sequence[sequence].length);
    for (uint32_t kind = 0; kind < MICA__KINDS; kind++)
        if (context->pages[kind].count != 0 && !mica__pages_hold(&context->pages[kind], sequence, length))
            return mica__fail(
                MICA_ERR_UNSUPPORTED,
                "what the window of %u tokens saw before token %u is forgotten; feed the sequence anew",
                context->model->h.window, length);
    return MICA_OK;
}

static mica_status fork_sequence(mica_context *context, uint32_t sequence, uint32_t length,
                                 uint32_t *out_sequence)
{
    MICA__TRY(check_length(context, sequence, length));
    MICA__TRY(mica__sequence_create(context, out_sequence));
    for (uint32_t kind = 0; kind < MICA__KINDS; kind++)
        if (context->pages[kind].count != 0)
            mica__pages_share(&context->pages[kind], sequence, *out_sequence, length);
    mica__sequence *to = &context->sequence[*out_sequence];
    memcpy(to->tokens, context->sequence[sequence].tokens, length * sizeof *to->tokens);
    to->length = length;
    return MICA_OK;
}

mica_status mica_sequence_fork(mica_context *context, uint32_t sequence, uint32_t length,
                               uint32_t *out_sequence)
{
    mica__call call;
    if (out_sequence == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sequence_fork: out_sequence is NULL");
    MICA__TRY(mica__context_enter(context, "sequence_fork", &call));
    return mica__context_leave(context, &call, fork_sequence(context, sequence, length, out_sequence));
}

mica_status mica__sequence_trim(mica_context *context, uint32_t sequence, uint32_t length)
{
    MICA__TRY(check_length(context, sequence, length));
    trim(context, sequence, length);
    return MICA_OK;
}

mica_status mica_sequence_trim(mica_context *context, uint32_t sequence, uint32_t length)
{
    mica__call call;
    MICA__TRY(mica__context_enter(context, "sequence_trim", &call));
    return mica__context_leave(context, &call, mica__sequence_trim(context, sequence, length));
}

mica_status mica_sequence_tokens(const mica_context *context, uint32_t sequence, uint32_t *ids,
                                 uint32_t capacity, uint32_t *out_count)
{
    mica__call call;
    if (out_count == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sequence_tokens: out_count is NULL");
    *out_count = 0;
    MICA__TRY(mica__context_enter(context, "sequence_tokens", &call));
    const mica_status status = mica__sequence_check(context, sequence);
    if (status == MICA_OK) {
        const mica__sequence *s = &context->sequence[sequence];
        if (ids != NULL)
            memcpy(ids, s->tokens, (capacity < s->length ? capacity : s->length) * sizeof *ids);
        *out_count = s->length;
    }
    return mica__context_leave(context, &call, status);
}
