/*
 * selective_scan_backward.c - gradients of selective scans: a channel over all sequences, whose states are kept from the first token to the last. What channels
 * of a group give to b and c is added up block by block, and the blocks in their order by a pass of its own.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/gradient.h"

typedef struct scan_line {
    const mica__cpu_view *view;
    uint64_t c, group, places;
    double bias, skip, dbias, dskip;
    bool softplus;
    double *kept;           /* [tokens + 1, P], the first is what the sequence begins with */
    double *rate, *da, *dh; /* [P] */
    double *partial;        /* of this block: [tokens, groups, 2, P] */
    uint64_t groups;
} scan_line;

/* The step of a token, and its slope. */
static double step_of(const scan_line *h, uint64_t t, double *slope)
{
    const double raw = real2(&h->view[MICA__SELECTIVE_BACKWARD_DT], t, h->c, 0.0) + h->bias;
    *slope = h->softplus ? sigmoid(raw) : 1.0;
    return h->softplus ? fmax(raw, 0.0) + log1p(exp(-fabs(raw))) : raw;
}

static void go_forward(const scan_line *h, const stretch *s)
{
    const mica__cpu_view *state = &h->view[MICA__SELECTIVE_BACKWARD_STATE],
                         *b = &h->view[MICA__SELECTIVE_BACKWARD_B];
    for (uint64_t p = 0; p < h->places; p++)
        h->kept[p] =
            s->from != NULL ? real_at(state, s->from + h->c * state->stride[1] + p * state->stride[2]) : 0.0;
    for (uint64_t i = 0; i < s->count; i++) {
        const double x = real2(&h->view[MICA__SELECTIVE_BACKWARD_X], s->first + i, h->c, 0.0);
        const double *from = h->kept + i * h->places;
        double *to = h->kept + (i + 1) * h->places, slope;
        const double step = step_of(h, s->first + i, &slope);
        for (uint64_t p = 0; p < h->places; p++)
            to[p] = exp(step * h->rate[p]) * from[p] + step * x * real3(b, s->first + i, h->group, p);
    }
}

/* What reaches the sum of a token, through its gate. */
static double through_gate(const scan_line *h, uint64_t t, double sum)
{
    const mica__cpu_view *z = &h->view[MICA__SELECTIVE_BACKWARD_Z];
    const double dy = real2(&h->view[MICA__SELECTIVE_BACKWARD_DY], t, h->c, 0.0);
    if (z->data == NULL)
        return dy;
    const double value = real2(z, t, h->c, 0.0), part = sigmoid(value);
    put2(&h->view[MICA__SELECTIVE_BACKWARD_DZ], t, h->c, dy * sum * part * (1.0 + value * (1.0 - part)));
    return dy * value * part;
}

/* `before` and `after`: the states around it. */
static void go_back(scan_line *h, uint64_t t, const double *before, const double *after)
{
    const mica__cpu_view *b = &h->view[MICA__SELECTIVE_BACKWARD_B], *c = &h->view[MICA__SELECTIVE_BACKWARD_C];
    double *db = h->partial + (t * h->groups + h->group) * 2 * h->places, *dc = db + h->places;
    const double x = real2(&h->view[MICA__SELECTIVE_BACKWARD_X], t, h->c, 0.0);
    double slope, sum = h->skip * x, dstep = 0;
    const double step = step_of(h, t, &slope);
    for (uint64_t p = 0; p < h->places; p++)
        sum += after[p] * real3(c, t, h->group, p);
    const double dsum = through_gate(h, t, sum);
    double dx = dsum * h->skip;
    h->dskip += dsum * x;
    for (uint64_t p = 0; p < h->places; p++) {
        const double in = real3(b, t, h->group, p), decay = exp(step * h->rate[p]);
        const double dh = h->dh[p] + dsum * real3(c, t, h->group, p), ddecay = dh * before[p] * decay;
        dc[p] += dsum * after[p];
        db[p] += dh * step * x;
        dx += dh * step * in;
        dstep += dh * x * in + ddecay * h->rate[p];
        h->da[p] += ddecay * step;
        h->dh[p] = dh * decay;
    }
    h->dbias += dstep * slope;
    put2(&h->view[MICA__SELECTIVE_BACKWARD_DX], t, h->c, dx);
    put2(&h->view[MICA__SELECTIVE_BACKWARD_DDT], t, h->c, dstep * slope);
}

static void run_stretch(scan_line *h, uint64_t n, const stretch *s)
{
    const mica__cpu_view *dnext = &h->view[MICA__SELECTIVE_BACKWARD_DNEXT];
    go_forward(h, s);
    for (uint64_t p = 0; p < h->places; p++)
        h->dh[p] = dnext->data != NULL ? real3(dnext, n, h->c, p) : 0.0;
    for (uint64_t i = s->count; i-- > 0;)
        go_back(h, s->first + i, h->kept + i * h->places, h->kept + (i + 1) * h->places);
}

static void run_channel(const mica__cpu_args *args, scan_line *h)
{
    const mica__cpu_split *split = &((const mica__cpu_selective_backward *)args->params)->split;
    const mica__cpu_view *view = h->view;
    h->bias = real1(&view[MICA__SELECTIVE_BACKWARD_DT_BIAS], h->c, 0.0);
    h->skip = real1(&view[MICA__SELECTIVE_BACKWARD_SKIP], h->c, 0.0);
    h->dbias = h->dskip = 0;
    for (uint64_t p = 0; p < h->places; p++) {
        h->rate[p] = real2(&view[MICA__SELECTIVE_BACKWARD_A], h->c, p, 0.0);
        h->da[p] = 0;
    }
    for (uint64_t n = 0; n < split->count; n++) {
        const stretch s = stretch_of(args, split, n);
        if (s.fine)
            run_stretch(h, n, &s);
        for (uint64_t p = 0; p < h->places; p++)
            put3(&view[MICA__SELECTIVE_BACKWARD_DSTATE], n, h->c, p, s.fine ? h->dh[p] : 0.0);
    }
    for (uint64_t p = 0; p < h->places; p++)
        put2(&view[MICA__SELECTIVE_BACKWARD_DA], h->c, p, h->da[p]);
    put1(&view[MICA__SELECTIVE_BACKWARD_DSKIP], h->c, h->dskip);
    put1(&view[MICA__SELECTIVE_BACKWARD_DDT_BIAS], h->c, h->dbias);
}

#define CHANNELS 64u /* of a block: MICA__CPU_SELECTIVE_CHANNELS */

void MICA__ISA(selective_scan_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_selective_backward *params = args->params;
    const mica__cpu_split *split = &params->split;
    const uint64_t end = mica__cpu_rows_end(&params->range, last),
                   places = args->view[MICA__SELECTIVE_BACKWARD_A].shape[1];
    double *partial = (double *)(void *)args->view[MICA__SELECTIVE_BACKWARD_SLOTS].data;
    scan_line h = {.view = args->view, .places = places, .softplus = params->softplus != 0};
    h.groups = params->groups;
    h.rate = args->local;
    h.da = h.rate + places;
    h.dh = h.da + places;
    h.kept = h.dh + places;
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == params->groups * params->blocks) {
            clear_gaps(args, split, MICA__SELECTIVE_BACKWARD_DX, MICA__SELECTIVE_BACKWARD_DDT);
            clear_gaps(args, split, MICA__SELECTIVE_BACKWARD_DZ, MICA__SELECTIVE_BACKWARD_DZ);
            continue;
        }
        const uint64_t block = row % params->blocks, begin = block * CHANNELS;
        h.group = row / params->blocks;
        h.partial = partial + block * split->tokens * params->groups * 2 * places;
        for (uint64_t t = 0; t < split->tokens; t++)
            memset(h.partial + (t * params->groups + h.group) * 2 * places, 0, 2 * places * sizeof(double));
        for (uint64_t c = begin; c < params->channels && c < begin + CHANNELS; c++) {
            h.c = h.group * params->channels + c;
            run_channel(args, &h);
        }
    }
}

/* db and dc of tokens: sums over the blocks, in their order. */
void MICA__ISA(selective_scan_sums)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_selective_backward *params = args->params;
    const mica__cpu_view *db = &args->view[0], *dc = &args->view[1];
    const double *partial = (const double *)(const void *)args->view[2].data;
    const uint64_t places = db->shape[2], size = params->split.tokens * params->groups * 2 * places;
    for (uint64_t t = first; t < last; t++)
        for (uint64_t g = 0; g < params->groups; g++)
            for (uint64_t p = 0; p < 2 * places; p++) {
                const double *from = partial + (t * params->groups + g) * 2 * places + p;
                double sum = 0;
                for (uint64_t block = 0; block < params->blocks; block++)
                    sum += from[block * size];
                put3(p < places ? db : dc, t, g, p % places, sum);
            }
}
