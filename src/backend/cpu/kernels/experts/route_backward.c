/*
 * route_backward.c - what reaches the logits of a router from the weights of the experts that it chose. In double, for all types: a token has few
 * experts, and what cancels here is what training follows.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/lanes.h"

enum {
    LOGITS = MICA__ROUTE_BACKWARD_LOGITS,
    SCALE = MICA__ROUTE_BACKWARD_SCALE,
    IDS = MICA__ROUTE_BACKWARD_IDS,
    DWEIGHTS = MICA__ROUTE_BACKWARD_DWEIGHTS,
    DLOGITS = MICA__ROUTE_BACKWARD_DLOGITS
};

/* The logits of a token, and their gradient back. */
static void load_all(const mica__cpu_view *view, uint64_t token, uint64_t n, double *to)
{
    const unsigned char *from = view->data + token * view->stride[0];
    const uint64_t stride = view->stride[1];
    uint64_t e = 0;
    for (; e + VD <= n; e += VD)
        vd_store(to + e, lanes_at(view, from + e * stride, stride, VD));
    for (; e < n; e++)
        to[e] = real_at(view, from + e * stride);
}

static void store_all(const mica__cpu_view *view, uint64_t token, uint64_t n, const double *from)
{
    const uint64_t offset = token * view->stride[0], stride = view->stride[1];
    uint64_t e = 0;
    for (; e + VD <= n; e += VD)
        lanes_put(view, offset + e * stride, stride, VD, vd_load(from + e));
    for (; e < n; e++)
        put_real(view, offset + e * stride, from[e]);
}

/* x becomes e^(x - greatest); gives the sum. */
static double powers(double *x, uint64_t n, double greatest, bool f64)
{
    vd sum = vd_set1(0);
    double rest = 0;
    uint64_t i = 0;
    for (; i + VD <= n; i += VD) {
        const vd power = lanes_exp(vd_load(x + i) - greatest, f64);
        vd_store(x + i, power);
        sum += power;
    }
    for (; i < n; i++) {
        x[i] = exp(x[i] - greatest);
        rest += x[i];
    }
    return vd_sum(sum) + rest;
}

/* As route has it: zeros where there is nothing but -inf. */
static void soften(double *x, uint64_t n, bool f64)
{
    double greatest = -INFINITY;
    for (uint64_t i = 0; i < n; i++)
        greatest = x[i] > greatest ? x[i] : greatest;
    if (greatest == -INFINITY) {
        double nothing = 0; /* or NaN, if one is */
        for (uint64_t i = 0; i < n; i++)
            nothing += x[i] == x[i] ? 0 : x[i];
        for (uint64_t i = 0; i < n; i++)
            x[i] = nothing;
        return;
    }
    const double total = powers(x, n, greatest, f64);
    for (uint64_t i = 0; i < n; i++)
        x[i] /= total;
}

/* A token's memory: all scores, which become the result; of the slots their logits, scores, and what reaches these; ids, n where one leads outside. */
typedef struct token_work {
    double *all, *logit, *score, *reach;
    uint64_t *id;
    bool f64;
} token_work;

static void load_slots(const mica__cpu_args *args, const mica_route_params *route, uint64_t token, uint64_t n,
                       uint64_t slots, token_work *w)
{
    const mica__cpu_view *ids = &args->view[IDS], *dweights = &args->view[DWEIGHTS],
                         *scale = &args->view[SCALE];
    for (uint64_t s = 0; s < slots; s++) {
        const int64_t id = index_at(ids, token * ids->stride[0] + s * ids->stride[1]);
        const bool inside = id >= 0 && (uint64_t)id < n;
        w->id[s] = inside ? (uint64_t)id : n;
        w->logit[s] = inside ? w->all[id] : -INFINITY;
        w->reach[s] = inside ? real2(dweights, token, s, 0.0) * (double)route->scale : 0;
        if (inside)
            w->reach[s] *= real1(scale, (uint64_t)id, 1.0);
        if (!inside)
            mica__cpu_fault(args);
    }
}

/* Through the division by their sum: d(v / sum). */
static void through_sum(const double *score, uint64_t slots, double *reach)
{
    double sum = 0, common = 0;
    for (uint64_t s = 0; s < slots; s++)
        sum += score[s];
    for (uint64_t s = 0; s < slots; s++)
        common += reach[s] * (score[s] / sum);
    for (uint64_t s = 0; s < slots && sum != 0; s++)
        reach[s] = (reach[s] - common) / sum;
}

/* From the logits in w->all to their gradient there. */
static void token_gradient(const mica_route_params *route, uint64_t n, uint64_t slots, token_work *w)
{
    const bool by_sigmoid = route->scoring == MICA_ROUTE_SIGMOID, first = !by_sigmoid && route->softmax_first;
    double common = 0;
    memcpy(w->score, w->logit, slots * sizeof *w->score);
    if (first)
        soften(w->all, n, w->f64);
    if (!first && !by_sigmoid)
        soften(w->score, slots, w->f64);
    for (uint64_t s = 0; s < slots; s++) {
        if (by_sigmoid)
            w->score[s] = w->id[s] == n ? 0 : sigmoid(w->logit[s]);
        else if (first)
            w->score[s] = w->id[s] == n ? 0 : w->all[w->id[s]];
    }
    if (route->normalise)
        through_sum(w->score, slots, w->reach);
    for (uint64_t s = 0; s < slots; s++)
        common += w->reach[s] * w->score[s];
    for (uint64_t e = 0; e < n; e++)
        w->all[e] = first ? -common * w->all[e] : 0;
    for (uint64_t s = 0; s < slots; s++) {
        if (w->id[s] == n)
            continue;
        const double slope = by_sigmoid ? sigmoid(-w->logit[s]) * w->reach[s]
                             : first    ? w->reach[s]
                                        : w->reach[s] - common;
        w->all[w->id[s]] += w->score[s] * slope;
    }
}

void MICA__ISA(route_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_route *params = args->params;
    const mica__cpu_view *logits = &args->view[LOGITS], *dlogits = &args->view[DLOGITS];
    const uint64_t n = logits->shape[1], slots = args->view[IDS].shape[1],
                   end = mica__cpu_rows_end(&params->range, last);
    token_work w = {.all = args->local, .f64 = logits->dtype == MICA_DTYPE_F64};
    w.logit = w.all + n;
    w.score = w.logit + slots;
    w.reach = w.score + slots;
    w.id = (uint64_t *)(void *)(w.reach + slots);
    for (uint64_t token = mica__cpu_rows_begin(&params->range, first); token < end; token++) {
        load_all(logits, token, n, w.all);
        load_slots(args, &params->route, token, n, slots, &w);
        token_gradient(&params->route, n, slots, &w);
        store_all(dlogits, token, n, w.all);
    }
}
