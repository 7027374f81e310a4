/*
 * ssm_conv_backward.c - gradients of causal depthwise convolutions: a block of channels over all sequences, channels beside each other in vectors of f64.
 *
 * Tokens go by in tiles. Of a tile stand in the thread's memory its inputs, those that it reaches back to in front of them, and what reaches its sums;
 * the gradient of an input is added up once all sums that it reached are known, in rising token.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/lanes.h"

#define TOKENS MICA__CPU_CONV_TOKENS

/* Rows of `room` numbers, of which `count` are channels from `first` on. */
typedef struct channels {
    const mica__cpu_view *view;
    uint64_t first, count, room, width; /* width: taps */
    uint32_t activation;
    double *bias, *dbias;
    double *weight, *dweight; /* [width] */
    double *in, *ds;          /* [width - 1 + TOKENS], the last are the tile's */
    double *row;
} channels;

/* ---- rows of channels ---- */

static void load_row(const channels *h, const mica__cpu_view *view, const unsigned char *from,
                     uint64_t stride, double *to)
{
    from += h->first * stride;
    for (uint64_t c = 0; c < h->count; c += VD)
        vd_store(to + c, lanes_at(view, from + c * stride, stride, h->count - c < VD ? h->count - c : VD));
}

/* Nothing where the view is absent. */
static void put_row(const channels *h, const mica__cpu_view *view, uint64_t offset, uint64_t stride,
                    const double *row)
{
    offset += h->first * stride;
    for (uint64_t c = 0; c < h->count; c += VD)
        lanes_put(view, offset + c * stride, stride, h->count - c < VD ? h->count - c : VD, vd_load(row + c));
}

/* Rows lie further apart than what prefetches by itself follows: the same row of the next tile is asked for. */
static void load_token(const channels *h, uint32_t slot, uint64_t t, double *to)
{
    const mica__cpu_view *view = &h->view[slot];
    const unsigned char *from = view->data + t * view->stride[0];
    for (uint64_t c = 0; c < h->count; c += 64 / sizeof(float))
        __builtin_prefetch(from + TOKENS * view->stride[0] + (h->first + c) * view->stride[1]);
    load_row(h, view, from, view->stride[1], to);
}

/* What the sequence begins with. */
static void load_state(const channels *h, const stretch *s)
{
    const mica__cpu_view *state = &h->view[MICA__SSM_CONV_BACKWARD_STATE];
    for (uint64_t j = 0; j + 1 < h->width; j++)
        if (s->from != NULL)
            load_row(h, state, s->from + j * state->stride[2], state->stride[1], h->in + j * h->room);
        else
            memset(h->in + j * h->room, 0, h->room * sizeof *h->in);
}

/* ---- a tile ---- */

/* The slope of silu. */
VD_INLINE vd slope_of(vd sum)
{
    const vd e = vd_exp(-vd_abs(sum)), part = vd_select(vl_negative((vl)sum), e, vd_set1(1)) / (1 + e);
    return part * vd_fma(sum, 1 - part, vd_set1(1));
}

/* What reaches the sums of `count` tokens becomes what goes through their activation, and bias and weight get theirs. `width` is a constant where taps
 * are to stay in registers. */
VD_INLINE void add_tokens(const channels *h, uint64_t c, uint64_t count, uint64_t width, bool silu)
{
    vd bias, dbias, weight[MICA__CPU_CONV_BACKWARD_TAPS], dweight[MICA__CPU_CONV_BACKWARD_TAPS];
    bias = vd_load(h->bias + c);
    dbias = vd_load(h->dbias + c);
    for (uint64_t k = 0; k < width; k++) {
        weight[k] = vd_load(h->weight + k * h->room + c);
        dweight[k] = vd_load(h->dweight + k * h->room + c);
    }
    for (uint64_t i = 0; i < count; i++) {
        const double *in = h->in + i * h->room + c;
        double *at = h->ds + (h->width - 1 + i) * h->room + c;
        vd sum = bias, ds, x[MICA__CPU_CONV_BACKWARD_TAPS];
        for (uint64_t k = 0; k < width; k++) {
            x[k] = vd_load(in + k * h->room);
            sum = vd_fma(weight[k], x[k], sum);
        }
        ds = vd_load(at);
        if (silu)
            ds = slope_of(sum) * ds;
        vd_store(at, ds);
        dbias += ds;
        for (uint64_t k = 0; k < width; k++)
            dweight[k] = vd_fma(ds, x[k], dweight[k]);
    }
    vd_store(h->dbias + c, dbias);
    for (uint64_t k = 0; k < width; k++)
        vd_store(h->dweight + k * h->room + c, dweight[k]);
}

/* The same, of any width. */
static void add_tokens_of_any(const channels *h, uint64_t count)
{
    const bool silu = h->activation == MICA_SSM_SILU;
    for (uint64_t i = 0; i < count; i++) {
        const double *in = h->in + i * h->room;
        double *ds = h->ds + (h->width - 1 + i) * h->room;
        for (uint64_t c = 0; c < h->room && silu; c += VD) {
            vd sum, x, weight;
            sum = vd_load(h->bias + c);
            for (uint64_t k = 0; k < h->width; k++) {
                x = vd_load(in + k * h->room + c);
                weight = vd_load(h->weight + k * h->room + c);
                sum = vd_fma(weight, x, sum);
            }
            x = vd_load(ds + c);
            x = slope_of(sum) * x;
            vd_store(ds + c, x);
        }
        for (uint64_t c = 0; c < h->room; c++)
            h->dbias[c] += ds[c];
        for (uint64_t k = 0; k < h->width; k++)
            for (uint64_t c = 0; c < h->room; c++)
                h->dweight[k * h->room + c] += ds[c] * in[k * h->room + c];
    }
}

static void add_tile(const channels *h, uint64_t count)
{
    const bool silu = h->activation == MICA_SSM_SILU;
    if (h->width != 4) {
        add_tokens_of_any(h, count);
        return;
    }
    for (uint64_t c = 0; c < h->room; c += VD)
        if (silu)
            add_tokens(h, c, count, 4, true);
        else
            add_tokens(h, c, count, 4, false);
}

/* Inputs whose sums are all of this tile or before it: input i of the tile lies width - 1 tokens before sum i. */
static void put_inputs(const channels *h, uint64_t first, uint64_t count, const double *ds)
{
    const mica__cpu_view *dx = &h->view[MICA__SSM_CONV_BACKWARD_DX];
    for (uint64_t c = 0; c < h->count; c += VD) {
        const uint64_t lanes = h->count - c < VD ? h->count - c : VD, stride = dx->stride[1];
        vd weight[4];
        for (uint64_t k = 0; k < 4; k++)
            weight[k] = vd_load(h->weight + k * h->room + c);
        for (uint64_t i = 0; i < count; i++) {
            const double *from = ds + i * h->room + c;
            vd sum = vd_load(from - 3 * h->room) * weight[3];
            sum = vd_fma(vd_load(from - 2 * h->room), weight[2], sum);
            sum = vd_fma(vd_load(from - h->room), weight[1], sum);
            sum = vd_fma(vd_load(from), weight[0], sum);
            lanes_put(dx, (first + i) * dx->stride[0] + (h->first + c) * stride, stride, lanes, sum);
        }
    }
}

/* The gradient of input `at` of sequence n, counted from the state's first on: by taps [begin, end). `ds` is the row of the sum that it is the newest
 * input of. */
static void put_input(const channels *h, uint64_t n, const stretch *s, uint64_t at, const double *ds)
{
    const mica__cpu_view *dnext = &h->view[MICA__SSM_CONV_BACKWARD_DNEXT],
                         *dstate = &h->view[MICA__SSM_CONV_BACKWARD_DSTATE],
                         *dx = &h->view[MICA__SSM_CONV_BACKWARD_DX];
    const uint64_t kept = h->width - 1, begin = at < s->count ? 0 : at - s->count + 1,
                   end = at < kept ? at + 1 : h->width;
    if (at >= s->count && dnext->data != NULL)
        load_row(h, dnext, dnext->data + n * dnext->stride[0] + (at - s->count) * dnext->stride[2],
                 dnext->stride[1], h->row);
    else
        memset(h->row, 0, h->room * sizeof *h->row);
    for (uint64_t c = 0; c < h->room; c += VD) {
        vd sum = vd_load(h->row + c);
        for (uint64_t k = end; k-- > begin;)
            sum = vd_fma(vd_load(ds - k * h->room + c), vd_load(h->weight + k * h->room + c), sum);
        vd_store(h->row + c, sum);
    }
    if (at < kept)
        put_row(h, dstate, n * dstate->stride[0] + at * dstate->stride[2], dstate->stride[1], h->row);
    else
        put_row(h, dx, (s->first + at - kept) * dx->stride[0], dx->stride[1], h->row);
}

/* ---- sequences ---- */

static void run_stretch(const channels *h, uint64_t n, const stretch *s)
{
    const uint64_t kept = h->width - 1;
    double *in = h->in + kept * h->room, *ds = h->ds + kept * h->room;
    load_state(h, s);
    for (uint64_t t = 0; t < s->count;) {
        const uint64_t count = s->count - t < TOKENS ? s->count - t : TOKENS;
        for (uint64_t i = 0; i < count; i++) {
            load_token(h, MICA__SSM_CONV_BACKWARD_X, s->first + t + i, in + i * h->room);
            load_token(h, MICA__SSM_CONV_BACKWARD_DY, s->first + t + i, ds + i * h->room);
        }
        add_tile(h, count);
        const uint64_t early = h->width != 4 ? count : t < kept ? (kept - t < count ? kept - t : count) : 0;
        for (uint64_t i = 0; i < early; i++)
            put_input(h, n, s, t + i, ds + i * h->room);
        if (early < count)
            put_inputs(h, s->first + t + early - kept, count - early, ds + early * h->room);
        memmove(h->in, h->in + count * h->room, kept * h->room * sizeof *h->in);
        memmove(h->ds, h->ds + count * h->room, kept * h->room * sizeof *h->ds);
        t += count;
    }
    for (uint64_t i = 0; i < kept; i++)
        put_input(h, n, s, s->count + i, ds + i * h->room);
}

static void clear_state(const channels *h, uint64_t n)
{
    const mica__cpu_view *dstate = &h->view[MICA__SSM_CONV_BACKWARD_DSTATE];
    memset(h->row, 0, h->room * sizeof *h->row);
    for (uint64_t j = 0; j + 1 < h->width; j++)
        put_row(h, dstate, n * dstate->stride[0] + j * dstate->stride[2], dstate->stride[1], h->row);
}

static void run_block(const mica__cpu_args *args, const channels *h)
{
    const mica__cpu_conv_backward *params = args->params;
    const mica__cpu_view *weight = &h->view[MICA__SSM_CONV_BACKWARD_WEIGHT],
                         *bias = &h->view[MICA__SSM_CONV_BACKWARD_BIAS],
                         *dweight = &h->view[MICA__SSM_CONV_BACKWARD_DWEIGHT],
                         *dbias = &h->view[MICA__SSM_CONV_BACKWARD_DBIAS];
    memset(args->local, 0, mica__cpu_conv_backward_room(h->room, h->width) * sizeof(double));
    if (bias->data != NULL)
        load_row(h, bias, bias->data, bias->stride[0], h->bias);
    for (uint64_t k = 0; k < h->width; k++)
        load_row(h, weight, weight->data + k * weight->stride[1], weight->stride[0], h->weight + k * h->room);
    for (uint64_t n = 0; n < params->split.count; n++) {
        const stretch s = stretch_of(args, &params->split, n);
        if (s.fine)
            run_stretch(h, n, &s);
        else
            clear_state(h, n);
    }
    for (uint64_t k = 0; k < h->width; k++)
        put_row(h, dweight, k * dweight->stride[1], dweight->stride[0], h->dweight + k * h->room);
    put_row(h, dbias, 0, dbias->stride[0], h->dbias);
}

void MICA__ISA(ssm_conv_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_conv_backward *params = args->params;
    const mica__cpu_view *weight = &args->view[MICA__SSM_CONV_BACKWARD_WEIGHT];
    const uint64_t end = mica__cpu_rows_end(&params->range, last), all = weight->shape[0];
    channels h = {.view = args->view,
                  .room = params->channels,
                  .width = weight->shape[1],
                  .activation = params->activation};
    h.bias = args->local;
    h.dbias = h.bias + h.room;
    h.weight = h.dbias + h.room;
    h.dweight = h.weight + h.width * h.room;
    h.in = h.dweight + h.width * h.room;
    h.ds = h.in + (h.width - 1 + TOKENS) * h.room;
    h.row = h.ds + (h.width - 1 + TOKENS) * h.room;
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        h.first = row * h.room;
        h.count = h.first < all ? (all - h.first < h.room ? all - h.first : h.room) : 0;
        if (h.count > 0)
            run_block(args, &h);
        else
            clear_gaps(args, &params->split, MICA__SSM_CONV_BACKWARD_DX, MICA__SSM_CONV_BACKWARD_DX);
    }
}
