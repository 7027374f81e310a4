/*
 * pass.c - one pass of a model over some tokens. What changes from pass to pass (tokens, positions, whose they are, which give
 * something, how long the sequences are) is one small buffer; so passes of one shape are the same work, recorded once
 * and replayed.
 */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "model/context.h"

#define POLL_NS 20000000u /* how long a wait for the device goes without a look whether it was cancelled */

/* ---- inputs --------------------------------------------------------------------------------------------- */

/* Words that picking adds for each output. */
static uint64_t picking_words(const mica_context *context, const mica__picking *picking)
{
    if (!picking->on)
        return 0;
    return MICA_SAMPLE_WORDS + (uint64_t)picking->history + 2 * (uint64_t)picking->bias +
           (picking->masked ? mica__mask_words(context) : 0);
}

static uint64_t input_words(const mica_context *context, const mica__pass_shape *shape)
{
    return 3 * (uint64_t)shape->rows + context->sequences +
           shape->outputs * (1 + picking_words(context, &shape->picking));
}

static mica_status reserve_input(mica_context *context, uint64_t words)
{
    if (words <= context->input_capacity)
        return MICA_OK;
    uint32_t *input = words < SIZE_MAX / sizeof *input ? mica__alloc((size_t)words * sizeof *input) : NULL;
    if (input == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the %llu words that a pass reads",
                          (unsigned long long)words);
    mica__free(context->input);
    context->input = input;
    context->input_capacity = words;
    return MICA_OK;
}

mica_status mica__pass_place(mica_context *context, const mica__pass_shape *shape, mica__pass_input *out)
{
    const size_t rows = shape->rows, outputs = shape->outputs;
    const mica__picking *picking = &shape->picking;
    MICA__TRY(reserve_input(context, input_words(context, shape)));
    uint32_t *at = context->input, *rest = at + 3 * rows + outputs + context->sequences;
    *out = (mica__pass_input){.tokens = at,
                              .positions = at + rows,
                              .sequences = at + 2 * rows,
                              .wanted = at + 3 * rows,
                              .lengths = at + 3 * rows + outputs};
    out->settings = rest;
    out->history = out->settings + outputs * MICA_SAMPLE_WORDS;
    out->bias_ids = out->history + outputs * picking->history;
    out->bias = out->bias_ids + outputs * picking->bias;
    out->mask = out->bias + outputs * picking->bias;
    return MICA_OK;
}

static mica_status send_inputs(mica_context *context, const mica__pass_shape *shape, mica_buffer *inputs)
{
    MICA__TRY(mica_buffer_write(inputs, 0, context->input, input_words(context, shape) * sizeof(uint32_t)));
    for (uint32_t kind = 0; kind < MICA__KINDS; kind++) {
        mica__pages *pages = &context->pages[kind];
        if (!pages->changed)
            continue;
        MICA__TRY(mica_buffer_write(context->table[kind], 0, pages->table,
                                    (uint64_t)pages->sequences * pages->row * sizeof(uint32_t)));
        pages->changed = false;
    }
    return MICA_OK;
}

/* ---- buffers -------------------------------------------------------------------------------------------- */

mica_status mica__pass_keep(mica__pass *pass, mica_status made, mica_buffer *const *view)
{
    if (made != MICA_OK)
        return made;
    if (pass->handle_count == MICA__PASS_HANDLES) {
        mica_buffer_release(*view);
        return mica__fail(MICA_ERR_INTERNAL, "a layer has more than %u values and views", MICA__PASS_HANDLES);
    }
    pass->handle[pass->handle_count++] = *view;
    return MICA_OK;
}

void mica__pass_drop(mica__pass *pass)
{
    for (uint32_t i = 0; i < pass->handle_count; i++)
        mica_buffer_release(pass->handle[i]);
    pass->handle_count = 0;
}

mica_status mica__pass_value(mica__pass *pass, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                             mica_buffer **out)
{
    return mica__pass_keep(pass, mica_session_temp(pass->session, dtype, ndim, shape, out), out);
}

mica_status mica__pass_rows(mica__pass *pass, uint64_t columns, mica_buffer **out)
{
    return mica__pass_value(pass, MICA_DTYPE_F32, 2, (uint64_t[]){pass->shape.rows, columns}, out);
}

mica_status mica__pass_like(mica__pass *pass, const mica_buffer *like, mica_buffer **out)
{
    mica_buffer_info info;
    MICA__TRY(mica_buffer_get_info(like, &info));
    return mica__pass_value(pass, MICA_DTYPE_F32, info.ndim, info.shape, out);
}

mica_status mica__pass_stage(mica__pass *pass)
{
    return pass->once ? mica_session_stage(pass->session, MICA_FINISH_FUSE | MICA_FINISH_REORDER) : MICA_OK;
}

static mica_status input_view(mica__pass *pass, uint64_t *at, uint64_t count, mica_buffer **out)
{
    if (count == 0)
        return MICA_OK;
    MICA__TRY(mica_buffer_slice(pass->inputs, 0, *at, count, out));
    *at += count;
    return MICA_OK;
}

/* Whether the host looks at logits or states, and not only at the tokens that were chosen. */
static bool is_read(const mica__pass_shape *shape)
{
    return !shape->picking.on || shape->picking.logits;
}

static void drop_result(mica__pass_result *result)
{
    mica_buffer_release(result->rows);
    mica_buffer_release(result->picks);
    *result = (mica__pass_result){0};
}

/* Those that no recording has. */
static void drop_results(mica_context *context)
{
    drop_result(&context->once);
    mica_buffer_release(context->rows);
    context->rows = NULL;
}

/* Rows that the host reads: passes never run at once and are read before the next, so all write the same memory. Recordings that
 * were made before it grew keep what they had; since it doubles, that is less than it has now. */
static mica_status share_rows(mica_context *context, const uint64_t shape[2], mica_buffer **out)
{
    const uint64_t count = shape[0] * shape[1], most = context->batch * shape[1];
    mica_buffer_info have = {0};
    if (context->rows != NULL)
        MICA__TRY(mica_buffer_get_info(context->rows, &have));
    if (have.element_count < count) {
        uint64_t wanted = 2 * have.element_count < most ? 2 * have.element_count : most;
        if (wanted < count)
            wanted = count;
        drop_results(context);
        MICA__TRY(mica_buffer_alloc(context->model->device, MICA_DTYPE_F32, 1, &wanted, &context->rows));
    }
    return mica_buffer_view(context->rows, MICA_DTYPE_F32, 2, shape, NULL, 0, out);
}

static mica_status make_ends(mica__pass *pass)
{
    const mica__hparams *h = &pass->model->h;
    const mica__pass_shape *shape = &pass->shape;
    const uint64_t words = input_words(pass->context, shape);
    uint64_t at = 0;
    MICA__TRY(mica_buffer_alloc(pass->model->device, MICA_DTYPE_U32, 1, &words, &pass->inputs));
    MICA__TRY(input_view(pass, &at, shape->rows, &pass->tokens));
    MICA__TRY(input_view(pass, &at, shape->rows, &pass->positions));
    MICA__TRY(input_view(pass, &at, shape->rows, &pass->sequences));
    MICA__TRY(input_view(pass, &at, shape->outputs, &pass->wanted));
    MICA__TRY(input_view(pass, &at, pass->context->sequences, &pass->lengths));
    pass->rest = at;
    const bool states = shape->gives == MICA__GIVES_STATES;
    const uint64_t result[2] = {states ? shape->rows : shape->outputs, states ? h->width : h->vocabulary};
    if (result[0] == 0)
        return MICA_OK;
    return is_read(shape) ? share_rows(pass->context, result, &pass->result)
                          : mica_session_temp(pass->session, MICA_DTYPE_F32, 2, result, &pass->result);
}

static void release_pass(mica__pass *pass)
{
    mica_buffer *const ends[] = {pass->inputs, pass->tokens,  pass->positions, pass->sequences,
                                 pass->wanted, pass->lengths, pass->result,    pass->picks};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        mica_buffer_release(ends[i]);
    mica__pass_drop(pass);
    mica_session_release(pass->session);
}

/* `once`: a pass in stages, which begin to run; else one that is recorded whole. */
static mica_status encode(mica_context *context, const mica__pass_shape *shape, bool once, mica__pass *pass)
{
    *pass = (mica__pass){.context = context,
                         .texts = context->model->family->encoder,
                         .capacity = context->capacity,
                         .adapters = &context->adapters,
                         .model = context->model,
                         .shape = *shape,
                         .once = once};
    MICA__TRY(mica_session_begin(context->model->device, NULL, MICA_SESSION_RECORD, &pass->session));
    if (context->arena == NULL)
        MICA__TRY(mica_arena_create(context->model->device, &context->arena));
    MICA__TRY(mica_session_use_arena(pass->session, context->arena));
    pass->encoder = mica_session_encoder(pass->session);
    MICA__TRY(make_ends(pass));
    if (once)
        MICA__TRY(send_inputs(context, shape, pass->inputs));
    MICA__TRY(context->model->family->encoder ? mica__encoder_forward(pass) : mica__decoder_forward(pass));
    return shape->picking.on ? mica__pass_pick(pass) : MICA_OK;
}

/* ---- recordings ----------------------------------------------------------------------------------------- */

static mica__pass_result keep_result(const mica__pass *pass)
{
    return (mica__pass_result){is_read(&pass->shape) ? mica_buffer_retain(pass->result) : NULL,
                               mica_buffer_retain(pass->picks)};
}

static void drop(mica__recorded *recorded)
{
    mica_recording_release(recorded->recording);
    mica_buffer_release(recorded->inputs);
    drop_result(&recorded->result);
    *recorded = (mica__recorded){0};
}

void mica__pass_forget(mica_context *context)
{
    for (uint32_t i = 0; i < MICA__RECORDED; i++)
        drop(&context->recorded[i]);
    drop_results(context);
    mica_arena_release(context->arena);
    context->arena = NULL;
}

static bool same_picking(const mica__picking *a, const mica__picking *b)
{
    return a->on == b->on && a->history == b->history && a->bias == b->bias && a->masked == b->masked &&
           a->chances == b->chances && a->logits == b->logits;
}

static bool same_shape(const mica__pass_shape *a, const mica__pass_shape *b)
{
    return a->rows == b->rows && a->outputs == b->outputs && a->gives == b->gives &&
           same_picking(&a->picking, &b->picking);
}

/* Rows that mostly give nothing: the next pass will be of another shape. A step of many sequences gives a token a row, and
 * comes again. */
static bool is_prompt(const mica__pass_shape *shape)
{
    const bool step = shape->picking.on && shape->outputs == shape->rows;
    return shape->rows > MICA__RECORDED_ROWS && !step;
}

/* The recording of that shape, NULL if there is none. */
static mica__recorded *find_recorded(mica_context *context, const mica__pass_shape *shape)
{
    for (uint32_t i = 0; i < MICA__RECORDED; i++)
        if (context->recorded[i].recording != NULL && same_shape(&context->recorded[i].shape, shape))
            return &context->recorded[i];
    return NULL;
}

/* The place that was not used for the longest time. */
static mica__recorded *find_oldest(mica_context *context)
{
    mica__recorded *oldest = &context->recorded[0];
    for (uint32_t i = 1; i < MICA__RECORDED; i++)
        if (context->recorded[i].used < oldest->used)
            oldest = &context->recorded[i];
    return oldest;
}

static mica_status record(mica_context *context, const mica__pass_shape *shape, mica__recorded *out)
{
    mica__pass pass;
    mica_status status = encode(context, shape, false, &pass);
    if (status == MICA_OK)
        status =
            mica_session_record(pass.session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, NULL, &out->recording);
    if (status == MICA_OK) {
        out->shape = *shape;
        out->inputs = mica_buffer_retain(pass.inputs);
        out->result = keep_result(&pass);
    }
    release_pass(&pass);
    return status;
}

/* ---- running -------------------------------------------------------------------------------------------- */

/* A device that cannot stop what it was given ends the pass, and no other is begun. */
mica_status mica__pass_wait(const mica_context *context, mica_fence *fence)
{
    mica_status status;
    bool stopped = !context->stoppable;
    do {
        if (!stopped && mica__is_cancelled()) {
            (void)mica_fence_cancel(fence);
            stopped = true;
        }
        status = mica_fence_wait(fence, stopped ? MICA_WAIT_FOREVER : POLL_NS);
    } while (status == MICA_ERR_TIMEOUT);
    mica_fence_release(fence);
    const mica_status cancelled = mica__spend(0);
    return cancelled != MICA_OK ? cancelled : status;
}

/* A pass that will not come again in this shape: encoded, fused and run stage by stage. */
static mica_status run_once(mica_context *context, const mica__pass_shape *shape, mica__pass_result *out)
{
    mica__pass pass;
    mica_fence *fence = NULL;
    mica_status status = encode(context, shape, true, &pass);
    if (status == MICA_OK)
        status = mica_session_commit(pass.session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, NULL, &fence);
    if (status == MICA_OK)
        status = mica__pass_wait(context, fence);
    if (status == MICA_OK) {
        drop_result(&context->once);
        *out = context->once = keep_result(&pass);
    }
    release_pass(&pass);
    return status;
}

static mica_status run_recorded(mica_context *context, const mica__pass_shape *shape, mica__pass_result *out)
{
    mica_fence *fence = NULL;
    mica__recorded *recorded = find_recorded(context, shape);
    if (recorded == NULL) {
        recorded = find_oldest(context);
        drop(recorded);
        MICA__TRY(record(context, shape, recorded));
    }
    MICA__TRY(send_inputs(context, shape, recorded->inputs));
    recorded->used = context->passes;
    MICA__TRY(mica_recording_replay(recorded->recording, &fence));
    MICA__TRY(mica__pass_wait(context, fence));
    *out = recorded->result;
    return MICA_OK;
}

/* Gives back memory that the next passes can do without: recordings, the one that was not used for the longest time first, then
 * results and the arena, once: whatever a pass has of them afterwards it made itself. False: there is none. */
static bool make_room(mica_context *context, bool *forgot)
{
    mica__recorded *oldest = NULL;
    for (uint32_t i = 0; i < MICA__RECORDED; i++)
        if (context->recorded[i].recording != NULL &&
            (oldest == NULL || context->recorded[i].used < oldest->used))
            oldest = &context->recorded[i];
    if (oldest != NULL) {
        drop(oldest);
        return true;
    }
    if (*forgot || (context->rows == NULL && mica_arena_bytes(context->arena) == 0))
        return false;
    mica__pass_forget(context);
    *forgot = true;
    return true;
}

static bool is_for_memory(mica_status status)
{
    return status == MICA_ERR_OUT_OF_MEMORY || status == MICA_ERR_BUDGET;
}

mica_status mica__pass_run(mica_context *context, const mica__pass_shape *shape, mica__pass_result *out)
{
    mica_status status;
    bool forgot = false;
    *out = (mica__pass_result){0};
    context->passes++;
    context->tokens += shape->rows;
    mica__spend_allow(context->model->info.weight_bytes); /* which the pass reads */
    do {
        MICA__TRY(mica__spend(1)); /* a limit of steps: more room would not help */
        status = is_prompt(shape) ? run_once(context, shape, out) : run_recorded(context, shape, out);
    } while (is_for_memory(status) && make_room(context, &forgot));
    return status;
}
