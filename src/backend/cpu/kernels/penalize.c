/*
 * penalize.c - logits changed by a bias, a mask of admitted tokens, and the tokens of a history.
 */
#include <float.h>

#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/select.h"

#define NONE UINT32_MAX

static uint32_t word_at(const mica__cpu_view *view, uint64_t row, uint64_t column)
{
    uint32_t word;
    memcpy(&word, view->data + row * view->stride[0] + column * sizeof word, sizeof word);
    return word;
}

/* Whether it is a token; a number that is neither that nor NONE is a fault. */
static bool is_token(const mica__cpu_args *args, uint32_t id, uint32_t n)
{
    if (id >= n && id != NONE)
        mica__cpu_fault(args);
    return id < n;
}

static void add_bias(const mica__cpu_args *args, uint64_t row, float *y, uint32_t n)
{
    const mica__cpu_view *ids = &args->view[MICA__PENALIZE_BIAS_IDS],
                         *bias = &args->view[MICA__PENALIZE_BIAS];
    if (ids->data == NULL)
        return;
    for (uint64_t slot = 0; slot < ids->shape[1]; slot++) {
        const uint32_t id = word_at(ids, row, slot);
        const unsigned char *from =
            bias->data + row * bias->stride[0] + slot * row_element_bytes(bias->dtype);
        if (is_token(args, id, n))
            y[id] += row_element(from, bias->dtype);
    }
}

static void apply_mask(const mica__cpu_args *args, uint64_t row, float *y, uint32_t n)
{
    const mica__cpu_view *mask = &args->view[MICA__PENALIZE_MASK];
    for (uint32_t first = 0; first < n; first += 32) {
        const uint32_t word = word_at(mask, row, first / 32), count = n - first < 32 ? n - first : 32;
        if (word == UINT32_MAX)
            continue;
        for (uint32_t bit = 0; bit < count; bit++)
            y[first + bit] = word >> bit & 1 ? y[first + bit] : -INFINITY;
    }
}

static float penalized(const mica_sample_settings *s, float logit, uint32_t times)
{
    const float scaled = logit <= 0 ? logit * s->repeat_penalty : logit / s->repeat_penalty;
    const float off = s->frequency_penalty * (float)times + s->presence_penalty;
    const float less = scaled - off;
    return less < -FLT_MAX ? -FLT_MAX : less > FLT_MAX ? FLT_MAX : less;
}

/* The tokens that count, through a heap: equal ones come out together. */
static void apply_history(const mica__cpu_args *args, const mica_sample_settings *s, uint64_t row, float *y,
                          uint32_t n, uint64_t *heap)
{
    const mica__cpu_view *history = &args->view[MICA__PENALIZE_HISTORY];
    const uint32_t width = (uint32_t)history->shape[1], next = s->history_next % width,
                   last = s->history_last < width ? s->history_last : width;
    uint32_t count = 0, times = 0;
    for (uint32_t back = 0; back < last; back++) {
        const uint32_t id = word_at(history, row, (next + width - 1 - back) % width);
        if (is_token(args, id, n))
            heap[count++] = id;
    }
    heap_make(heap, count);
    for (; count > 0; count--) {
        const uint32_t id = (uint32_t)heap_pop(heap, count);
        times++;
        if (count > 1 && heap[0] == id)
            continue;
        if (y[id] > -INFINITY)
            y[id] = penalized(s, y[id], times);
        times = 0;
    }
}

static bool has_penalties(const mica_sample_settings *s)
{
    return s->repeat_penalty != 1.0f || s->presence_penalty != 0.0f || s->frequency_penalty != 0.0f;
}

void MICA__ISA(penalize)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_range *range = args->params;
    const mica__cpu_view *logits = &args->view[MICA__PENALIZE_LOGITS], *y = &args->view[MICA__PENALIZE_Y];
    const mica__cpu_view *settings = &args->view[MICA__PENALIZE_SETTINGS];
    const mica__cpu_view *history = &args->view[MICA__PENALIZE_HISTORY];
    const uint32_t n = (uint32_t)logits->shape[1];
    const uint64_t end = mica__cpu_rows_end(range, last);
    float *tmp = args->local;
    uint64_t *heap = (uint64_t *)(void *)(tmp + (n + 1) / 2 * 2);
    for (uint64_t row = mica__cpu_rows_begin(range, first); row < end; row++) {
        unsigned char *to = y->data + row * y->stride[0];
        const unsigned char *from = logits->data + row * logits->stride[0];
        const bool direct = y->dtype == MICA_DTYPE_F32 && (uintptr_t)to % sizeof(float) == 0;
        float *work = direct ? (float *)(void *)to : tmp;
        mica_sample_settings s;
        memcpy(&s, settings->data + row * settings->stride[0], sizeof s);
        const float *x = row_f32(from, logits->dtype, n, work);
        if (x != work)
            memcpy(work, x, n * sizeof *work);
        add_bias(args, row, work, n);
        if (args->view[MICA__PENALIZE_MASK].data != NULL && (s.flags & MICA_SAMPLE_MASKED) != 0)
            apply_mask(args, row, work, n);
        if (history->data != NULL && has_penalties(&s))
            apply_history(args, &s, row, work, n, heap);
        row_store(to, y->dtype, work, n);
    }
}
