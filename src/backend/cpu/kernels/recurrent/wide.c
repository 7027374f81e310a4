/*
 * wide.c - the same in f64, in plain C: for gradients that are checked in double, not for speed. A unit is a whole head, or a channel block.
 */
#include <math.h>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/sequences.h"

static double load(const unsigned char *from)
{
    double value;
    memcpy(&value, from, sizeof value);
    return value;
}

static void store(unsigned char *to, double value)
{
    memcpy(to, &value, sizeof value);
}

/* Input `at` of channel c, counted from the first of the state on. */
static double conv_input(const mica__cpu_view *view, const sequence *s, uint64_t kept, uint64_t c,
                         uint64_t at)
{
    const mica__cpu_view *x = &view[MICA__SSM_CONV_X], *state = &view[MICA__SSM_CONV_STATE];
    if (at >= kept)
        return load(x->data + (s->first + at - kept) * x->stride[0] + c * x->stride[1]);
    return s->from != NULL ? load(s->from + c * state->stride[1] + at * state->stride[2]) : 0.0;
}

static void conv_channel(const mica__cpu_view *view, const sequence *s, uint64_t c, uint32_t activation)
{
    const mica__cpu_view *weight = &view[MICA__SSM_CONV_WEIGHT], *bias = &view[MICA__SSM_CONV_BIAS];
    const mica__cpu_view *y = &view[MICA__SSM_CONV_Y], *next = &view[MICA__SSM_CONV_NEXT_STATE];
    const uint64_t width = weight->shape[1], kept = width - 1;
    for (uint64_t t = 0; t < s->count; t++) {
        double sum = bias->data != NULL ? load(bias->data + c * bias->stride[0]) : 0.0;
        for (uint64_t k = 0; k < width; k++)
            sum += load(weight->data + c * weight->stride[0] + k * weight->stride[1]) *
                   conv_input(view, s, kept, c, t + k);
        if (activation == MICA_SSM_SILU) {
            const double e = exp(-fabs(sum));
            sum = (sum < 0 ? sum * e : sum) / (1 + e);
        }
        store(y->data + (s->first + t) * y->stride[0] + c * y->stride[1], sum);
    }
    for (uint64_t j = 0; s->to != NULL && j < kept;
         j++) /* in place: what is read lies not before what is written */
        store(s->to + c * next->stride[1] + j * next->stride[2], conv_input(view, s, kept, c, s->count + j));
}

void MICA__ISA(ssm_conv_wide)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_ssm_conv *params = args->params;
    const mica__cpu_sequences *of = &params->sequences;
    const uint64_t channels = args->view[MICA__SSM_CONV_WEIGHT].shape[0];
    const uint64_t blocks = (channels + params->channels - 1) / params->channels;
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == of->count * blocks) {
            sequence_gaps(args, of);
            continue;
        }
        const sequence s = sequence_of(args, of, row % of->count);
        const uint64_t begin = row / of->count * params->channels;
        for (uint64_t c = begin; s.fine && c < channels && c < begin + params->channels; c++)
            conv_channel(args->view, &s, c, params->activation);
    }
}

/* A head of a sequence; the state [D, V] in the thread's memory. */
typedef struct wide_head {
    const mica__cpu_view *view;
    const mica_delta_params *delta;
    uint64_t head, dim, columns;
    double *q, *k, *state;
} wide_head;

static void load_wide(const mica__cpu_view *x, uint64_t token, uint64_t group, const mica_delta_params *delta,
                      double scale, double *to)
{
    double length = 0;
    for (uint64_t j = 0; j < x->shape[2]; j++) {
        to[j] = load(x->data + token * x->stride[0] + group * x->stride[1] + j * x->stride[2]);
        length += to[j] * to[j];
    }
    for (uint64_t j = 0; j < x->shape[2]; j++)
        to[j] *= delta->normalise != 0 ? scale / sqrt(length + (double)delta->eps) : scale;
}

static double wide_element(const mica__cpu_view *x, uint64_t token, uint64_t head, double absent)
{
    return x->data != NULL ? load(x->data + token * x->stride[0] + head * x->stride[1]) : absent;
}

/* Where g has a decay for each row, the state decays before the token, which then has none. */
static double decay_of(const wide_head *h, uint64_t t)
{
    const mica__cpu_view *g = &h->view[MICA__DELTA_G];
    if (g->ndim != 3)
        return exp(wide_element(g, t, h->head, 0.0));
    for (uint64_t j = 0; j < h->dim; j++) {
        const double decay =
            exp(load(g->data + t * g->stride[0] + h->head * g->stride[1] + j * g->stride[2]));
        for (uint64_t c = 0; c < h->columns; c++)
            h->state[j * h->columns + c] *= decay;
    }
    return 1.0;
}

static void run_wide(const wide_head *h, uint64_t t)
{
    const mica__cpu_view *v = &h->view[MICA__DELTA_V], *y = &h->view[MICA__DELTA_Y],
                         *skip = &h->view[MICA__DELTA_SKIP];
    const uint64_t group = h->head / (v->shape[1] / h->view[MICA__DELTA_Q].shape[1]);
    const double decay = decay_of(h, t);
    const double beta = wide_element(&h->view[MICA__DELTA_BETA], t, h->head, 1.0);
    const double through = skip->data != NULL ? load(skip->data + h->head * skip->stride[0]) : 0.0;
    const double scale = h->delta->scale;
    load_wide(&h->view[MICA__DELTA_Q], t, group, h->delta, scale, h->q);
    load_wide(&h->view[MICA__DELTA_K], t, group, h->delta, 1.0, h->k);
    for (uint64_t c = 0; c < h->columns; c++) {
        const double value = load(v->data + t * v->stride[0] + h->head * v->stride[1] + c * v->stride[2]);
        double known = 0, out = 0;
        for (uint64_t j = 0; j < h->dim; j++)
            known += h->state[j * h->columns + c] * h->k[j];
        const double change = beta * (h->delta->rule == MICA_DELTA_CORRECT ? value - decay * known : value);
        for (uint64_t j = 0; j < h->dim; j++) {
            double *s = &h->state[j * h->columns + c];
            *s = decay * *s + h->k[j] * change;
            out += *s * h->q[j];
        }
        store(y->data + t * y->stride[0] + h->head * y->stride[1] + c * y->stride[2], out + through * value);
    }
}

static void run_head(const wide_head *h, const sequence *s)
{
    const mica__cpu_view *state = &h->view[MICA__DELTA_STATE], *next = &h->view[MICA__DELTA_NEXT_STATE];
    const uint64_t row = h->columns * sizeof(double);
    for (uint64_t j = 0; j < h->dim; j++) {
        memset(h->state + j * h->columns, 0, row);
        if (s->from != NULL)
            memcpy(h->state + j * h->columns, s->from + h->head * state->stride[1] + j * state->stride[2],
                   row);
    }
    for (uint64_t t = s->first; t < s->first + s->count; t++)
        run_wide(h, t);
    for (uint64_t j = 0; s->to != NULL && j < h->dim; j++)
        memcpy(s->to + h->head * next->stride[1] + j * next->stride[2], h->state + j * h->columns, row);
}

void MICA__ISA(delta_net_wide)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_delta *params = args->params;
    const mica__cpu_sequences *of = &params->sequences;
    const mica__cpu_view *q = &args->view[MICA__DELTA_Q], *v = &args->view[MICA__DELTA_V];
    const uint64_t heads = v->shape[1], end = mica__cpu_rows_end(&params->range, last);
    wide_head h = {.view = args->view, .delta = &params->delta, .dim = q->shape[2], .columns = v->shape[2]};
    h.q = args->local;
    h.k = h.q + h.dim;
    h.state = h.k + h.dim;
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == of->count * heads) {
            sequence_gaps(args, of);
            continue;
        }
        const sequence s = sequence_of(args, of, row / heads);
        h.head = row % heads;
        if (s.fine && s.count < params->chunk_from)
            run_head(&h, &s);
    }
}
/* ---- selective scan ---- */

static double wide_channel(const mica__cpu_view *x, uint64_t c)
{
    return x->data != NULL ? load(x->data + c * x->stride[0]) : 0.0;
}

/* One token of channel c, whose state is `h`. */
static void scan_token(const mica__cpu_view *view, uint64_t t, uint64_t c, bool softplus, double *h)
{
    const mica__cpu_view *a = &view[MICA__SELECTIVE_A], *y = &view[MICA__SELECTIVE_Y];
    const double x = wide_element(&view[MICA__SELECTIVE_X], t, c, 0.0);
    const double raw =
        wide_element(&view[MICA__SELECTIVE_DT], t, c, 0.0) + wide_channel(&view[MICA__SELECTIVE_DT_BIAS], c);
    const double dt = softplus ? fmax(raw, 0.0) + log1p(exp(-fabs(raw))) : raw;
    const mica__cpu_view *b = &view[MICA__SELECTIVE_B], *k = &view[MICA__SELECTIVE_C];
    const uint64_t group = c / (a->shape[0] / b->shape[1]);
    const double z = wide_element(&view[MICA__SELECTIVE_Z], t, c, 0.0), e = exp(-fabs(z));
    const double gate = view[MICA__SELECTIVE_Z].data != NULL ? (z < 0 ? z * e : z) / (1 + e) : 1.0;
    double sum = 0;
    for (uint64_t p = 0; p < a->shape[1]; p++) {
        const double rate = load(a->data + c * a->stride[0] + p * a->stride[1]);
        h[p] = exp(dt * rate) * h[p] +
               dt * x * load(b->data + t * b->stride[0] + group * b->stride[1] + p * b->stride[2]);
        sum += h[p] * load(k->data + t * k->stride[0] + group * k->stride[1] + p * k->stride[2]);
    }
    store(y->data + t * y->stride[0] + c * y->stride[1],
          gate * (sum + wide_channel(&view[MICA__SELECTIVE_SKIP], c) * x));
}

static void scan_channel(const mica__cpu_view *view, const sequence *s, uint64_t c, bool softplus, double *h)
{
    const mica__cpu_view *state = &view[MICA__SELECTIVE_STATE], *next = &view[MICA__SELECTIVE_NEXT_STATE];
    const uint64_t places = view[MICA__SELECTIVE_A].shape[1];
    for (uint64_t p = 0; p < places; p++)
        h[p] = s->from != NULL ? load(s->from + c * state->stride[1] + p * state->stride[2]) : 0.0;
    for (uint64_t t = s->first; t < s->first + s->count; t++)
        scan_token(view, t, c, softplus, h);
    for (uint64_t p = 0; s->to != NULL && p < places; p++)
        store(s->to + c * next->stride[1] + p * next->stride[2], h[p]);
}

void MICA__ISA(selective_scan_wide)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_selective *params = args->params;
    const mica__cpu_sequences *of = &params->sequences;
    const uint64_t channels = params->channels,
                   blocks = (channels + MICA__CPU_SELECTIVE_CHANNELS - 1) / MICA__CPU_SELECTIVE_CHANNELS;
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == of->count * params->groups * blocks) {
            sequence_gaps(args, of);
            continue;
        }
        const sequence s = sequence_of(args, of, row % of->count);
        const uint64_t begin = row / of->count % blocks * MICA__CPU_SELECTIVE_CHANNELS,
                       group = row / of->count / blocks;
        for (uint64_t c = begin; s.fine && c < channels && c < begin + MICA__CPU_SELECTIVE_CHANNELS; c++)
            scan_channel(args->view, &s, group * channels + c, params->softplus != 0, args->local);
    }
}
