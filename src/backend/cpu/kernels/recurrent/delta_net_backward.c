/*
 * delta_net_backward.c - gradients of the delta rule: a key head of a sequence with its value heads, one by one. States go forward once and are kept every so
 * many tokens; from the last of these on each stretch is gone through again, all its states kept, and then back.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/lanes.h"

typedef struct head {
    const mica__cpu_view *view;
    const mica_delta_params *delta;
    uint64_t h, group, dim, columns, stride;
    uint64_t share;                       /* value heads of the key head */
    double *kept, *window;                /* states [.., D, V] */
    double *state, *dstate;               /* [D, V] */
    double *q, *k, *decay, *dq, *dk;      /* [D] */
    double *dy, *rest, *change, *dchange; /* [V] */
    double *all_dq, *all_dk;              /* [tokens, D], of the value heads until now */
    double q_length, k_length, beta, skip;
} head;

/* x over its length, times scale; the length. */
static double load_vector(const head *h, const mica__cpu_view *x, uint64_t t, double scale, double *to)
{
    double length = 0;
    for (uint64_t j = 0; j < h->dim; j++) {
        to[j] = real3(x, t, h->group, j);
        length += to[j] * to[j];
    }
    length = h->delta->normalise != 0 ? sqrt(length + (double)h->delta->eps) : 1.0;
    for (uint64_t j = 0; j < h->dim; j++)
        to[j] *= scale / length;
    return length;
}

/* What a token brings besides the state. */
static void load_token(head *h, uint64_t t)
{
    const mica__cpu_view *g = &h->view[MICA__DELTA_BACKWARD_G];
    h->q_length = load_vector(h, &h->view[MICA__DELTA_BACKWARD_Q], t, (double)h->delta->scale, h->q);
    h->k_length = load_vector(h, &h->view[MICA__DELTA_BACKWARD_K], t, 1.0, h->k);
    h->beta = real2(&h->view[MICA__DELTA_BACKWARD_BETA], t, h->h, 1.0);
    const double all = g->data == NULL || g->ndim > 2 ? 1.0 : exp(real2(g, t, h->h, 0.0));
    for (uint64_t j = 0; j < h->dim; j++)
        h->decay[j] = g->data != NULL && g->ndim > 2 ? exp(real3(g, t, h->h, j)) : all;
}

/* A row of the state times `decay`; `rest`, where there is one, loses k times it. */
static void decay_row(double *row, double *rest, uint64_t n, double decay, double k)
{
    uint64_t c = 0;
    for (; c + VD <= n; c += VD) {
        const vd all = vd_load(row + c) * decay;
        vd_store(row + c, all);
        if (rest != NULL)
            vd_store(rest + c, vd_load(rest + c) - k * all);
    }
    for (; c < n; c++) {
        row[c] *= decay;
        if (rest != NULL)
            rest[c] -= k * row[c];
    }
}

/* `state` decays; rest = v - S^T k, or v; change = beta rest. */
static void decay_state(const head *h, uint64_t t, double *state)
{
    const bool correct = h->delta->rule == MICA_DELTA_CORRECT;
    for (uint64_t c = 0; c < h->columns; c++)
        h->rest[c] = real3(&h->view[MICA__DELTA_BACKWARD_V], t, h->h, c);
    for (uint64_t j = 0; j < h->dim; j++)
        decay_row(state + j * h->columns, correct ? h->rest : NULL, h->columns, h->decay[j], h->k[j]);
    for (uint64_t c = 0; c < h->columns; c++)
        h->change[c] = h->beta * h->rest[c];
}

static void add_row(double *row, const double *more, uint64_t n, double k)
{
    uint64_t c = 0;
    for (; c + VD <= n; c += VD)
        vd_store(row + c, vd_fma(vd_set1(k), vd_load(more + c), vd_load(row + c)));
    for (; c < n; c++)
        row[c] += k * more[c];
}

static void advance(head *h, uint64_t t)
{
    load_token(h, t);
    decay_state(h, t, h->state);
    for (uint64_t j = 0; j < h->dim; j++)
        add_row(h->state + j * h->columns, h->change, h->columns, h->k[j]);
}

/* Row j of dS gets what comes through y, and dchange gets dS^T k; gives (S^T q)'s share of dq. `before` is the state's row, decayed. */
static double reach_row(const head *h, uint64_t j, const double *before)
{
    const double q = h->q[j], k = h->k[j];
    double *row = h->dstate + j * h->columns, rest = 0;
    vd sum = vd_set1(0);
    uint64_t c = 0;
    for (; c + VD <= h->columns; c += VD) {
        const vd dy = vd_load(h->dy + c), reach = vd_fma(vd_set1(q), dy, vd_load(row + c));
        const vd state = vd_fma(vd_set1(k), vd_load(h->change + c), vd_load(before + c));
        vd_store(row + c, reach);
        vd_store(h->dchange + c, vd_fma(vd_set1(k), reach, vd_load(h->dchange + c)));
        sum = vd_fma(state, dy, sum);
    }
    for (; c < h->columns; c++) {
        row[c] += q * h->dy[c];
        h->dchange[c] += k * row[c];
        rest += (before[c] + k * h->change[c]) * h->dy[c];
    }
    return vd_sum(sum) + rest;
}

/* dS gets what comes through y; dchange = dS^T k; dq = S dy. `before` is the state, decayed. */
static void reach_state(const head *h, const double *before)
{
    memset(h->dchange, 0, h->columns * sizeof *h->dchange);
    for (uint64_t j = 0; j < h->dim; j++)
        h->dq[j] = reach_row(h, j, before + j * h->columns);
}

/* Row j of dS as it goes on to the token before; gives dk, and in `out_through` what reaches the decay. */
static double leave_row(const head *h, uint64_t j, const double *before, double correct, double *out_through)
{
    const double k = correct * h->k[j], decay = h->decay[j];
    double *row = h->dstate + j * h->columns, rest = 0, rest_through = 0;
    vd sum = vd_set1(0), through = vd_set1(0);
    uint64_t c = 0;
    for (; c + VD <= h->columns; c += VD) {
        const vd kept = vd_load(before + c), dchange = vd_load(h->dchange + c), all = vd_load(row + c);
        const vd left = all - k * dchange;
        sum = vd_fma(all, vd_load(h->change + c), sum) - correct * kept * dchange;
        through = vd_fma(left, kept, through);
        vd_store(row + c, left * decay);
    }
    for (; c < h->columns; c++) {
        rest += row[c] * h->change[c] - correct * before[c] * h->dchange[c];
        row[c] -= k * h->dchange[c];
        rest_through += row[c] * before[c];
        row[c] *= decay;
    }
    *out_through = vd_sum(through) + rest_through;
    return vd_sum(sum) + rest;
}

/* dk, dg, and dS as it goes on to the token before. */
static void leave_state(const head *h, uint64_t t, const double *before)
{
    const mica__cpu_view *dg = &h->view[MICA__DELTA_BACKWARD_DG];
    const double correct = h->delta->rule == MICA_DELTA_CORRECT ? h->beta : 0.0;
    double all = 0, through;
    for (uint64_t j = 0; j < h->dim; j++) {
        h->dk[j] = leave_row(h, j, before + j * h->columns, correct, &through);
        all += through;
        if (dg->ndim > 2)
            put3(dg, t, h->h, j, through);
    }
    if (dg->ndim == 2)
        put2(dg, t, h->h, all);
}

/* Through the division by the length, added to what other value heads gave; the last one writes. `x` is the vector divided and scaled. */
static void put_vector(const head *h, const mica__cpu_view *out, const stretch *s, uint64_t t,
                       const double *x, double length, double scale, double *dx, double *all)
{
    double along = 0;
    for (uint64_t j = 0; j < h->dim && h->delta->normalise != 0; j++)
        along += dx[j] * x[j];
    for (uint64_t j = 0; j < h->dim; j++) {
        double *sum = all + (t - s->first) * h->dim + j;
        const double value = scale / length * dx[j] - (scale != 0.0 ? along * x[j] / scale / length : 0.0);
        *sum = (h->h % h->share != 0 ? *sum : 0.0) + value;
        if (h->h % h->share + 1 == h->share)
            put3(out, t, h->group, j, *sum);
    }
}

static void back(head *h, const stretch *s, uint64_t t, double *before)
{
    double dbeta = 0;
    load_token(h, t);
    decay_state(h, t, before);
    for (uint64_t c = 0; c < h->columns; c++)
        h->dy[c] = real3(&h->view[MICA__DELTA_BACKWARD_DY], t, h->h, c);
    reach_state(h, before);
    for (uint64_t c = 0; c < h->columns; c++) {
        dbeta += h->dchange[c] * h->rest[c];
        put3(&h->view[MICA__DELTA_BACKWARD_DV], t, h->h, c, h->skip * h->dy[c] + h->beta * h->dchange[c]);
    }
    put2(&h->view[MICA__DELTA_BACKWARD_DBETA], t, h->h, dbeta);
    leave_state(h, t, before);
    put_vector(h, &h->view[MICA__DELTA_BACKWARD_DQ], s, t, h->q, h->q_length, (double)h->delta->scale, h->dq,
               h->all_dq);
    put_vector(h, &h->view[MICA__DELTA_BACKWARD_DK], s, t, h->k, h->k_length, 1.0, h->dk, h->all_dk);
}

static double state_at(const head *h, const mica__cpu_view *state, const unsigned char *slot, uint64_t i)
{
    return slot != NULL ? real_at(state, slot + h->h * state->stride[1] + i / h->columns * state->stride[2] +
                                             i % h->columns * state->stride[3])
                        : 0.0;
}

static void run_head(head *h, uint64_t n, const stretch *s)
{
    const mica__cpu_view *state = &h->view[MICA__DELTA_BACKWARD_STATE],
                         *dnext = &h->view[MICA__DELTA_BACKWARD_DNEXT],
                         *dstate = &h->view[MICA__DELTA_BACKWARD_DSTATE];
    const uint64_t size = h->dim * h->columns, end = s->first + s->count;
    const unsigned char *last = dnext->data != NULL && s->fine ? dnext->data + n * dnext->stride[0] : NULL;
    h->skip = real1(&h->view[MICA__DELTA_BACKWARD_SKIP], h->h, 0.0);
    for (uint64_t i = 0; i < size; i++) {
        h->state[i] = state_at(h, state, s->from, i);
        h->dstate[i] = state_at(h, dnext, last, i);
    }
    for (uint64_t t = s->first; t < end; t++) {
        if ((t - s->first) % h->stride == 0)
            memcpy(h->kept + (t - s->first) / h->stride * size, h->state, size * sizeof *h->state);
        advance(h, t);
    }
    for (uint64_t part = (s->count + h->stride - 1) / h->stride; part-- > 0;) {
        const uint64_t begin = s->first + part * h->stride,
                       stop = end - begin < h->stride ? end : begin + h->stride;
        memcpy(h->state, h->kept + part * size, size * sizeof *h->state);
        for (uint64_t t = begin; t < stop; t++) {
            memcpy(h->window + (t - begin) * size, h->state, size * sizeof *h->state);
            advance(h, t);
        }
        for (uint64_t t = stop; t-- > begin;)
            back(h, s, t, h->window + (t - begin) * size);
    }
    for (uint64_t i = 0; i < size; i++)
        put_real(dstate,
                 n * dstate->stride[0] + h->h * dstate->stride[1] + i / h->columns * dstate->stride[2] +
                     i % h->columns * dstate->stride[3],
                 h->dstate[i]);
}

/* dskip of a value head: dy . v over all tokens of sequences. */
static void run_skip(const mica__cpu_args *args, const head *h)
{
    const mica__cpu_split *split = &((const mica__cpu_delta_backward *)args->params)->split;
    double sum = 0;
    for (uint64_t n = 0; n < split->count; n++) {
        const stretch s = stretch_of(args, split, n);
        for (uint64_t t = s.first; t < s.first + s.count; t++)
            for (uint64_t c = 0; c < h->columns; c++)
                sum += real3(&h->view[MICA__DELTA_BACKWARD_DY], t, h->h, c) *
                       real3(&h->view[MICA__DELTA_BACKWARD_V], t, h->h, c);
    }
    put1(&h->view[MICA__DELTA_BACKWARD_DSKIP], h->h, sum);
}

/* The thread's memory, as the plan has counted it. */
static void lay(head *h, const mica__cpu_delta_backward *params, double *room)
{
    const uint64_t size = h->dim * h->columns, longest = params->split.longest;
    double **vector[] = {&h->q, &h->k, &h->decay, &h->dq, &h->dk},
           **column[] = {&h->dy, &h->rest, &h->change, &h->dchange};
    h->stride = params->stride;
    h->kept = room;
    h->window = h->kept + (longest + h->stride - 1) / h->stride * size;
    h->state = h->window + h->stride * size;
    h->dstate = h->state + size;
    room = h->dstate + size;
    for (uint32_t i = 0; i < 5; i++, room += h->dim)
        *vector[i] = room;
    for (uint32_t i = 0; i < 4; i++, room += h->columns)
        *column[i] = room;
    h->all_dq = room;
    h->all_dk = room + longest * h->dim;
}

void MICA__ISA(delta_net_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_delta_backward *params = args->params;
    const mica__cpu_split *split = &params->split;
    const mica__cpu_view *q = &args->view[MICA__DELTA_BACKWARD_Q], *v = &args->view[MICA__DELTA_BACKWARD_V];
    const uint64_t groups = q->shape[1], heads = v->shape[1], sequences = split->count * groups,
                   end = mica__cpu_rows_end(&params->range, last);
    head h = {.view = args->view, .delta = &params->delta, .dim = q->shape[2], .columns = v->shape[2]};
    h.share = groups > 0 ? heads / groups : 1;
    lay(&h, params, args->local);
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == sequences + heads) {
            clear_gaps(args, split, MICA__DELTA_BACKWARD_DQ, MICA__DELTA_BACKWARD_DBETA);
        } else if (row >= sequences) {
            h.h = row - sequences;
            run_skip(args, &h);
        } else {
            const stretch s = stretch_of(args, split, row / groups);
            h.group = row % groups;
            for (h.h = h.group * h.share; h.h < (h.group + 1) * h.share; h.h++)
                run_head(&h, row / groups, &s);
        }
    }
}
