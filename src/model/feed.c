/* feed.c - tokens into sequences: checked, cut into passes, run, and the logits of those that were wanted. */
#include <string.h>

#include "base/alloc.h"
#include "model/context.h"

/* How far a feed has come. */
typedef struct progress {
    const mica_feed *feeds;
    uint32_t count;
    uint32_t feed, token; /* the next token to run */
} progress;

/* What is done with what passes give. */
typedef struct feed_plan {
    mica_next *items; /* NULL: no tokens are chosen */
    mica__picking picking;
    bool reads; /* logits are read back */
} feed_plan;

/* ---- checking ------------------------------------------------------------------------------------------- */

static mica_status check_feed(mica_context *context, const mica_feed *feeds, uint32_t index)
{
    const mica_feed *feed = &feeds[index];
    MICA__TRY(mica__sequence_check(context, feed->sequence));
    if (feed->tokens == NULL || feed->count == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "feed %u has no tokens", index);
    if ((uint32_t)feed->want > MICA_WANT_ALL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "feed %u: want is %u, no mica_want", index,
                          (uint32_t)feed->want);
    mica__sequence *sequence = &context->sequence[feed->sequence];
    if (sequence->fed == context->feed_count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sequence %u is fed twice", feed->sequence);
    sequence->fed = context->feed_count;
    for (uint32_t i = 0; i < feed->count; i++)
        if (feed->tokens[i] >= context->model->h.vocabulary)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "token %u of feed %u is %u, the vocabulary has %u",
                              i, index, feed->tokens[i], context->model->h.vocabulary);
    if (feed->count > context->longest)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "feed %u has %u tokens, the context holds %u", index,
                          feed->count, context->longest);
    return MICA_OK;
}

/* All of them, the last first: the sentence is that of the first that is wrong. */
static mica_status check_feeds(mica_context *context, const mica_feed *feeds, uint32_t count,
                               mica_next *items)
{
    mica_status first = MICA_OK;
    context->feed_count++;
    for (uint32_t i = count; i-- > 0;) {
        const mica_status status = check_feed(context, feeds, i);
        if (items != NULL && items[i].status == MICA_OK)
            items[i].status = status;
        first = status != MICA_OK ? status : first;
        MICA__TRY(mica__spend(8 + feeds[i].count));
    }
    return first;
}

/* Whether one more feed finds room beside those that want `before` pages. */
static mica_status check_one_room(const mica_context *context, const mica_feed *feed, uint64_t before,
                                  uint64_t *out_wanted)
{
    const mica__pages *pages = &context->pages[0];
    const uint32_t from = context->sequence[feed->sequence].length;
    *out_wanted = 0;
    if (feed->count > context->longest - from)
        return mica__fail(MICA_ERR_FULL,
                          "the context is full: sequence %u has %u tokens and gets %u more, it holds %u",
                          feed->sequence, from, feed->count, context->longest);
    *out_wanted = mica__pages_wanted(pages, feed->sequence, from, from + feed->count);
    if (before + *out_wanted > pages->free_count)
        return mica__fail(MICA_ERR_FULL,
                          "the context is full: with the %u tokens of sequence %u %llu pages of %u tokens "
                          "are wanted, %u of %u are free",
                          feed->count, feed->sequence, (unsigned long long)(before + *out_wanted),
                          pages->tokens, pages->free_count, pages->count);
    return MICA_OK;
}

/* Whether all feeds find room; only the pages that keep everything can run out. */
static mica_status check_room(const mica_context *context, const mica_feed *feeds, uint32_t count,
                              mica_next *items)
{
    mica_status all = MICA_OK;
    uint64_t wanted = 0, more;
    for (uint32_t i = 0; i < count; i++) {
        const mica_status status = check_one_room(context, &feeds[i], wanted, &more);
        if (status == MICA_OK)
            wanted += more;
        if (items != NULL)
            items[i].status = status;
        else if (status != MICA_OK)
            return status;
        all = status != MICA_OK ? status : all;
    }
    return all;
}

/* ---- logits --------------------------------------------------------------------------------------------- */

static mica_status reserve_logits(mica_context *context, const mica_feed *feeds, uint32_t count)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < context->sequences; i++)
        context->sequence[i].row_count = 0;
    context->logit_rows = 0;
    for (uint32_t i = 0; i < count; i++)
        rows += feeds[i].want == MICA_WANT_ALL ? feeds[i].count : feeds[i].want == MICA_WANT_LAST ? 1 : 0;
    if (rows <= context->logit_capacity)
        return MICA_OK;
    const uint64_t bytes = rows * context->model->h.vocabulary * sizeof(float);
    float *logits = bytes < SIZE_MAX ? mica__alloc((size_t)bytes) : NULL;
    if (logits == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %llu rows of logits",
                          (unsigned long long)rows);
    mica__free(context->logits);
    context->logits = logits;
    context->logit_capacity = (uint32_t)rows;
    return MICA_OK;
}

static mica_status take_logits(mica_context *context, mica_buffer *result, uint32_t rows)
{
    const uint64_t row = (uint64_t)context->model->h.vocabulary * sizeof(float);
    if (rows == 0)
        return MICA_OK;
    return mica_buffer_read(
        result, 0, context->logits + (size_t)context->logit_rows * context->model->h.vocabulary, rows * row);
}

mica_status mica__context_logits(const mica_context *context, uint32_t sequence, const float **out_logits,
                                 uint32_t *out_rows)
{
    MICA__TRY(mica__sequence_check(context, sequence));
    const mica__sequence *s = &context->sequence[sequence];
    if (s->row_count == 0)
        return mica__fail(MICA_ERR_STATE, "the last feed wanted no logits of sequence %u", sequence);
    *out_logits = context->logits + (size_t)s->first_row * context->model->h.vocabulary;
    *out_rows = s->row_count;
    return MICA_OK;
}

mica_status mica_context_logits(mica_context *context, uint32_t sequence, const float **out_logits,
                                uint32_t *out_rows)
{
    mica__call call;
    if (out_logits == NULL || out_rows == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "context_logits: %s is NULL",
                          out_logits == NULL ? "out_logits" : "out_rows");
    *out_logits = NULL;
    *out_rows = 0;
    MICA__TRY(mica__context_enter(context, "context_logits", &call));
    return mica__context_leave(context, &call, mica__context_logits(context, sequence, out_logits, out_rows));
}

/* ---- passes --------------------------------------------------------------------------------------------- */

static bool is_wanted(const mica_feed *feed, uint32_t token)
{
    return feed->want == MICA_WANT_ALL || (feed->want == MICA_WANT_LAST && token + 1 == feed->count);
}

/* The shape of the next pass, and where it ends. */
static mica__pass_shape measure(const mica_context *context, const feed_plan *plan, const progress *from,
                                progress *out_end)
{
    mica__pass_shape shape = {.gives = MICA__GIVES_LOGITS};
    progress p = *from;
    while (p.feed < p.count && shape.rows < context->batch) {
        const mica_feed *feed = &p.feeds[p.feed];
        const bool wanted = is_wanted(feed, p.token);
        if (wanted && shape.outputs == context->most_outputs)
            break;
        shape.outputs += wanted;
        shape.rows++;
        if (++p.token == feed->count) {
            p.token = 0;
            p.feed++;
        }
    }
    if (shape.outputs != 0)
        shape.picking = plan->picking;
    *out_end = p;
    return shape;
}

/* Writes the tokens of the pass into its input and makes room for them. */
static mica_status place_tokens(mica_context *context, const mica__pass_shape *shape, const feed_plan *plan,
                                const progress *from)
{
    mica__pass_input input;
    progress p = *from;
    uint32_t row = 0, outputs = 0;
    MICA__TRY(mica__pass_place(context, shape, &input));
    for (uint32_t i = 0; i < context->sequences; i++)
        input.lengths[i] = context->sequence[i].used ? context->sequence[i].length : 0;
    while (row < shape->rows) {
        const mica_feed *feed = &p.feeds[p.feed];
        mica__sequence *sequence = &context->sequence[feed->sequence];
        const uint32_t left = feed->count - p.token, room = shape->rows - row,
                       take = left < room ? left : room;
        MICA__TRY(mica__context_extend(context, feed->sequence, sequence->length, sequence->length + take));
        for (uint32_t i = 0; i < take; i++, row++) {
            input.tokens[row] = sequence->tokens[sequence->length + i] = feed->tokens[p.token + i];
            input.positions[row] = sequence->length + i;
            input.sequences[row] = feed->sequence;
            if (!is_wanted(feed, p.token + i))
                continue;
            if (shape->picking.on) {
                mica_next *item = &plan->items[p.feed];
                item->status = mica__next_place(context, &shape->picking, &input, outputs, item);
                MICA__TRY(item->status);
            }
            input.wanted[outputs++] = row;
        }
        input.lengths[feed->sequence] = sequence->length + take;
        p.feed++;
        p.token = 0;
    }
    return MICA_OK;
}

/* The pass is done: its tokens are part of their sequences. `reads`: so are their logits of `logits`. */
static void keep_tokens(mica_context *context, bool reads, const progress *from, const progress *end)
{
    for (progress p = *from; p.feed < end->feed || (p.feed == end->feed && p.token < end->token);
         p.feed++, p.token = 0) {
        const mica_feed *feed = &p.feeds[p.feed];
        mica__sequence *sequence = &context->sequence[feed->sequence];
        const uint32_t last = p.feed == end->feed ? end->token : feed->count;
        for (uint32_t i = p.token; reads && i < last; i++)
            if (is_wanted(feed, i) && sequence->row_count++ == 0)
                sequence->first_row = context->logit_rows;
        sequence->length += last - p.token;
        for (uint32_t i = p.token; reads && i < last; i++)
            context->logit_rows += is_wanted(feed, i);
        if (context->pages[1].count != 0)
            mica__pages_forget(&context->pages[1], feed->sequence, sequence->length);
    }
}

static mica_status run_passes(mica_context *context, const mica_feed *feeds, uint32_t count,
                              const feed_plan *plan)
{
    progress at = {.feeds = feeds, .count = count}, end;
    while (at.feed < count) {
        mica__pass_result result;
        const mica__pass_shape shape = measure(context, plan, &at, &end);
        MICA__TRY(place_tokens(context, &shape, plan, &at));
        MICA__TRY(mica__pass_run(context, &shape, &result));
        const float *logits = NULL;
        if (plan->reads) {
            MICA__TRY(take_logits(context, result.rows, shape.outputs));
            if (shape.outputs != 0)
                logits = context->logits + (size_t)context->logit_rows * context->model->h.vocabulary;
        }
        keep_tokens(context, plan->reads, &at, &end);
        if (plan->items != NULL) /* each feed that ended here gave one output */
            MICA__TRY(mica__next_take(context, &result, logits, plan->items + at.feed, end.feed - at.feed));
        at = end;
    }
    return MICA_OK;
}

/* ---- shifting ------------------------------------------------------------------------------------------- */

/* A sequence that would be too long is made anew of its first tokens and the newer half of the others: what was
 * computed for those saw tokens that are gone, and stood at other positions, so they are fed again. */
static mica_status shift(mica_context *context, const mica_feed *feed)
{
    mica__sequence *sequence = &context->sequence[feed->sequence];
    const uint32_t others = sequence->length - context->keep;
    uint32_t newer = others / 2;
    if (sequence->length <= context->keep || feed->count > context->longest - context->keep)
        return mica__fail(MICA_ERR_FULL,
                          "the context is full: %u tokens do not fit beside the %u that it keeps",
                          feed->count, context->keep);
    if (context->keep + newer + feed->count > context->longest)
        newer = context->longest - context->keep - feed->count;
    uint32_t *again = mica__alloc(((size_t)newer + 1) * sizeof *again);
    if (again == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to shift a sequence");
    memcpy(again, sequence->tokens + sequence->length - newer, newer * sizeof *again);
    /* A window may have forgotten what the first tokens need: then those are fed again too. */
    mica_status status = mica__sequence_trim(context, feed->sequence, context->keep);
    if (status == MICA_ERR_UNSUPPORTED) {
        uint32_t *all = mica__alloc(((size_t)context->keep + newer + 1) * sizeof *all);
        if (all != NULL) {
            memcpy(all, sequence->tokens, context->keep * sizeof *all);
            memcpy(all + context->keep, again, newer * sizeof *all);
            newer += context->keep;
        }
        mica__free(again);
        again = all;
        status = all == NULL ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to shift a sequence")
                             : mica__sequence_trim(context, feed->sequence, 0);
    }
    const mica_feed part = {
        .sequence = feed->sequence, .tokens = again, .count = newer, .want = MICA_WANT_NONE};
    if (status == MICA_OK && newer != 0)
        status = run_passes(context, &part, 1, &(feed_plan){.reads = true});
    mica__free(again);
    return status;
}

/* A failure that is no item's own stands in all that have no token. */
static mica_status tell_items(mica_next *items, uint32_t count, mica_status status)
{
    bool own = status == MICA_OK;
    for (uint32_t i = 0; i < count && !own; i++)
        own = items[i].status != MICA_OK;
    for (uint32_t i = 0; i < count && !own; i++)
        if (items[i].id == MICA_NO_TOKEN)
            items[i].status = status;
    return status;
}

static mica_status feed_all(mica_context *context, const mica_feed *feeds, uint32_t count, feed_plan *plan)
{
    MICA__TRY(check_feeds(context, feeds, count, plan->items));
    if (plan->items != NULL)
        plan->picking = mica__next_picking(plan->items, count, &plan->reads);
    MICA__TRY(reserve_logits(context, feeds, plan->reads ? count : 0));
    for (uint32_t i = 0; context->shift && i < count; i++) {
        if (feeds[i].count <= context->longest - context->sequence[feeds[i].sequence].length)
            continue;
        const mica_status status = shift(context, &feeds[i]);
        if (plan->items != NULL && status == MICA_ERR_FULL)
            plan->items[i].status = status;
        MICA__TRY(status);
    }
    MICA__TRY(check_room(context, feeds, count, plan->items));
    return run_passes(context, feeds, count, plan);
}

mica_status mica__context_feed(mica_context *context, const mica_feed *feeds, uint32_t count,
                               mica_next *items)
{
    feed_plan plan = {.items = items, .reads = true};
    const mica_status status = feed_all(context, feeds, count, &plan);
    return items != NULL ? tell_items(items, count, status) : status;
}

mica_status mica_context_feed(mica_context *context, const mica_feed *feeds, uint32_t count)
{
    mica__call call;
    MICA__TRY(mica__context_enter_work(context, "context_feed", &call));
    const mica_status status = feeds == NULL && count != 0
                                   ? mica__fail(MICA_ERR_INVALID_ARGUMENT, "feeds is NULL")
                                   : mica__context_feed(context, feeds, count, NULL);
    return mica__context_leave(context, &call, status);
}
