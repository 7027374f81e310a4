/*
 * pass.c - one pass of a model over some tokens. What changes from pass to pass (tokens, positions, whose they are, which give
 * something, how long the sequences are) is one small buffer; so passes of one shape are the same work, recorded once
 * and replayed.
 */
#include <string.h>

#include "model/context.h"

/* ---- inputs --------------------------------------------------------------------------------------------- */

mica__pass_input mica__pass_place(mica_context *context, const mica__pass_shape *shape)
{
    uint32_t *at = context->input;
    return (mica__pass_input){.tokens = at,
                              .positions = at + shape->rows,
                              .sequences = at + 2 * (size_t)shape->rows,
                              .wanted = at + 3 * (size_t)shape->rows,
                              .lengths = at + 3 * (size_t)shape->rows + shape->outputs};
}

static mica_status send_inputs(mica_context *context, const mica__pass_shape *shape)
{
    const uint64_t words = 3 * (uint64_t)shape->rows + shape->outputs + context->sequences;
    MICA__TRY(mica_buffer_write(context->inputs, 0, context->input, words * sizeof(uint32_t)));
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
    if (pass->view_count == MICA__PASS_VIEWS) {
        mica_buffer_release(*view);
        return mica__fail(MICA_ERR_INTERNAL, "a pass has more than %u views", MICA__PASS_VIEWS);
    }
    pass->view[pass->view_count++] = *view;
    return MICA_OK;
}

mica_status mica__pass_buffer(mica__pass *pass, uint32_t which, mica_dtype dtype, uint32_t ndim,
                              const uint64_t *shape, mica_buffer **out)
{
    mica_status status = MICA_OK;
    if (pass->buffer[which] == NULL)
        status = mica_session_temp(pass->session, dtype, ndim, shape, &pass->buffer[which]);
    *out = pass->buffer[which];
    return status;
}

static mica_status input_view(mica__pass *pass, uint64_t *at, uint64_t count, mica_buffer **out)
{
    if (count == 0)
        return MICA_OK;
    MICA__TRY(mica_buffer_slice(pass->context->inputs, 0, *at, count, out));
    *at += count;
    return MICA_OK;
}

static mica_status make_ends(mica__pass *pass)
{
    const mica__hparams *h = &pass->model->h;
    const mica__pass_shape *shape = &pass->shape;
    uint64_t at = 0;
    MICA__TRY(input_view(pass, &at, shape->rows, &pass->tokens));
    MICA__TRY(input_view(pass, &at, shape->rows, &pass->positions));
    MICA__TRY(input_view(pass, &at, shape->rows, &pass->sequences));
    MICA__TRY(input_view(pass, &at, shape->outputs, &pass->wanted));
    MICA__TRY(input_view(pass, &at, pass->context->sequences, &pass->lengths));
    const bool states = shape->gives == MICA__GIVES_STATES;
    const uint64_t result[2] = {states ? shape->rows : shape->outputs, states ? h->width : h->vocabulary};
    return result[0] == 0 ? MICA_OK
                          : mica_buffer_alloc(pass->model->device, MICA_DTYPE_F32, 2, result, &pass->result);
}

static void release_pass(mica__pass *pass)
{
    mica_buffer *const ends[] = {pass->tokens, pass->positions, pass->sequences,
                                 pass->wanted, pass->lengths,   pass->result};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        mica_buffer_release(ends[i]);
    for (uint32_t i = 0; i < pass->view_count; i++)
        mica_buffer_release(pass->view[i]);
    for (uint32_t i = 0; i < MICA__B_COUNT; i++)
        mica_buffer_release(pass->buffer[i]);
    mica_session_release(pass->session);
}

static mica_status encode(mica_context *context, const mica__pass_shape *shape, mica__pass *pass)
{
    *pass = (mica__pass){.context = context, .model = context->model, .shape = *shape};
    MICA__TRY(mica_session_begin(context->model->device, NULL, MICA_SESSION_RECORD, &pass->session));
    pass->encoder = mica_session_encoder(pass->session);
    MICA__TRY(make_ends(pass));
    return context->model->family->encoder ? mica__encoder_forward(pass) : mica__decoder_forward(pass);
}

/* ---- recordings ----------------------------------------------------------------------------------------- */

static void drop(mica__recorded *recorded)
{
    mica_recording_release(recorded->recording);
    mica_buffer_release(recorded->result);
    *recorded = (mica__recorded){0};
}

void mica__pass_forget(mica_context *context)
{
    for (uint32_t i = 0; i < MICA__RECORDED; i++)
        drop(&context->recorded[i]);
    mica_buffer_release(context->once);
    context->once = NULL;
}

static bool same_shape(const mica__pass_shape *a, const mica__pass_shape *b)
{
    return a->rows == b->rows && a->outputs == b->outputs && a->gives == b->gives;
}

/* The recording of that shape, else the place that was not used for the longest time, emptied. */
static mica__recorded *find_recorded(mica_context *context, const mica__pass_shape *shape)
{
    mica__recorded *oldest = &context->recorded[0];
    for (uint32_t i = 0; i < MICA__RECORDED; i++) {
        mica__recorded *r = &context->recorded[i];
        if (r->recording != NULL && same_shape(&r->shape, shape))
            return r;
        if (r->used < oldest->used)
            oldest = r;
    }
    drop(oldest);
    return oldest;
}

static mica_status record(mica_context *context, const mica__pass_shape *shape, mica__recorded *out)
{
    mica__pass pass;
    mica_status status = encode(context, shape, &pass);
    if (status == MICA_OK)
        status =
            mica_session_record(pass.session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, NULL, &out->recording);
    if (status == MICA_OK) {
        out->shape = *shape;
        out->result = mica_buffer_retain(pass.result);
    }
    release_pass(&pass);
    return status;
}

/* ---- running -------------------------------------------------------------------------------------------- */

static mica_status wait_for(mica_context *context, mica_fence *fence)
{
    mica_status status = MICA_OK;
    pthread_mutex_lock(&context->lock);
    context->running = fence;
    if (context->cancelled)
        status = mica_fence_cancel(fence);
    pthread_mutex_unlock(&context->lock);
    const mica_status waited = mica_fence_wait(fence, UINT64_MAX);
    pthread_mutex_lock(&context->lock);
    context->running = NULL;
    pthread_mutex_unlock(&context->lock);
    mica_fence_release(fence);
    return waited != MICA_OK ? waited : status;
}

/* A pass that will not come again in this shape: encoded, fused, run. */
static mica_status run_once(mica_context *context, const mica__pass_shape *shape, mica_buffer **out_result)
{
    mica__pass pass;
    mica_fence *fence = NULL;
    mica_status status = encode(context, shape, &pass);
    if (status == MICA_OK)
        status = mica_session_commit(pass.session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, NULL, &fence);
    if (status == MICA_OK)
        status = wait_for(context, fence);
    if (status == MICA_OK) {
        mica_buffer_release(context->once);
        *out_result = context->once = mica_buffer_retain(pass.result);
    }
    release_pass(&pass);
    return status;
}

mica_status mica__pass_run(mica_context *context, const mica__pass_shape *shape, mica_buffer **out_result)
{
    mica_fence *fence = NULL;
    *out_result = NULL;
    MICA__TRY(send_inputs(context, shape));
    context->passes++;
    context->tokens += shape->rows;
    if (shape->rows > MICA__RECORDED_ROWS)
        return run_once(context, shape, out_result);
    mica__recorded *recorded = find_recorded(context, shape);
    if (recorded->recording == NULL)
        MICA__TRY(record(context, shape, recorded));
    recorded->used = context->passes;
    MICA__TRY(mica_recording_replay(recorded->recording, &fence));
    MICA__TRY(wait_for(context, fence));
    *out_result = recorded->result;
    return MICA_OK;
}
