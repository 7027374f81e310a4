/*
 * experts_wide.c - routing, the sum of what experts gave and routed products in f64, in plain C: for gradients that are checked in double, not for speed.
 */
#include <math.h>

#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"

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

static double sigmoid(double x)
{
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

/* ---- routing ---- */

static bool is_better(double a, double b)
{
    return a > b || (b != b && a == a);
}

/* The best so far in order: ids, and what they were chosen by. */
typedef struct ranking {
    uint32_t *ids;
    double *best;
    uint64_t count, slots;
} ranking;

static void choose(ranking *r, const double *values, uint64_t first, uint64_t last)
{
    for (uint64_t e = first; e < last; e++) {
        if (r->count == r->slots && !is_better(values[e], r->best[r->count - 1]))
            continue;
        uint64_t at = r->count < r->slots ? r->count++ : r->count - 1;
        for (; at > 0 && is_better(values[e], r->best[at - 1]); at--) {
            r->best[at] = r->best[at - 1];
            r->ids[at] = r->ids[at - 1];
        }
        r->best[at] = values[e];
        r->ids[at] = (uint32_t)e;
    }
}

/* A token's work memory: logits or scores, what is chosen by, weights, groups with a ranking of them, the ranking. */
typedef struct wide_work {
    double *logits, *score, *by, *weights, *groups;
    ranking open, chosen;
} wide_work;

static wide_work work_of(void *local, uint64_t n, uint64_t slots, uint64_t groups)
{
    wide_work w = {.logits = local};
    w.score = w.logits + n;
    w.by = w.score + n;
    w.weights = w.by + n;
    w.groups = w.weights + slots;
    w.open = (ranking){(uint32_t *)(void *)(w.groups + groups), w.groups + 2 * groups, 0, 0};
    w.chosen =
        (ranking){(uint32_t *)(void *)(w.groups + 3 * groups), w.groups + 3 * groups + slots, 0, slots};
    return w;
}

static void choose_of_groups(const mica_route_params *route, uint64_t n, wide_work *w)
{
    const uint64_t size = n / route->groups;
    for (uint64_t g = 0; g < route->groups; g++) {
        uint32_t ids[2];
        double best[2];
        ranking two = {ids, best, 0, size < route->group_best ? size : route->group_best};
        choose(&two, w->by, g * size, (g + 1) * size);
        w->groups[g] = two.count == 2 ? best[0] + best[1] : best[0];
    }
    w->open.count = 0;
    w->open.slots = route->top_groups;
    choose(&w->open, w->groups, 0, route->groups);
    for (uint64_t g = 0; g < route->groups; g++) /* in their order, so that the lower id wins among equals */
        for (uint64_t i = 0; i < w->open.count; i++)
            if (w->open.ids[i] == g)
                choose(&w->chosen, w->by, g * size, (g + 1) * size);
}

/* A row of only -inf gives zeros, one with NaN NaN. */
static void softmax(const double *x, uint64_t n, double *y)
{
    double greatest = (double)-INFINITY, sum = 0;
    for (uint64_t i = 0; i < n; i++)
        greatest = x[i] != x[i] || greatest != greatest ? x[i] + greatest : fmax(greatest, x[i]);
    for (uint64_t i = 0; i < n; i++)
        sum += y[i] = greatest == (double)-INFINITY ? 0.0 : exp(x[i] - greatest);
    for (uint64_t i = 0; i < n; i++)
        y[i] = sum == 0.0 ? 0.0 : y[i] / sum;
}

/* Softmax keeps the order of logits, so that without biases and sums of two the logits themselves are chosen by. */
static void route_token(const mica__cpu_args *args, const mica_route_params *route, uint64_t token,
                        wide_work *w)
{
    const mica__cpu_view *logits = &args->view[MICA__ROUTE_LOGITS], *bias = &args->view[MICA__ROUTE_BIAS];
    const uint64_t n = logits->shape[1];
    const bool sigmoids = route->scoring == MICA_ROUTE_SIGMOID, scored = sigmoids || route->softmax_first,
               by_score = sigmoids || bias->data != NULL || route->group_best == 2;
    for (uint64_t e = 0; e < n; e++) {
        w->logits[e] = load(logits->data + token * logits->stride[0] + e * logits->stride[1]);
        w->score[e] = sigmoids ? sigmoid(w->logits[e]) : w->logits[e];
    }
    if (route->softmax_first && !sigmoids)
        softmax(w->logits, n, w->score);
    for (uint64_t e = 0; e < n; e++)
        w->by[e] = (by_score ? w->score[e] : w->logits[e]) +
                   (bias->data != NULL ? load(bias->data + e * bias->stride[0]) : 0.0);
    w->chosen.count = 0;
    if (route->groups > 1)
        choose_of_groups(route, n, w);
    else
        choose(&w->chosen, w->by, 0, n);
    for (uint64_t s = 0; s < w->chosen.slots; s++)
        w->chosen.best[s] = w->score[w->chosen.ids[s]];
    if (scored)
        memcpy(w->weights, w->chosen.best, w->chosen.slots * sizeof *w->weights);
    else
        softmax(w->chosen.best, w->chosen.slots, w->weights);
}

void MICA__ISA(route_wide)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_route *params = args->params;
    const mica_route_params *route = &params->route;
    const mica__cpu_view *ids = &args->view[MICA__ROUTE_IDS], *weights = &args->view[MICA__ROUTE_WEIGHTS],
                         *scale = &args->view[MICA__ROUTE_SCALE];
    const uint64_t n = args->view[MICA__ROUTE_LOGITS].shape[1], slots = ids->shape[1],
                   end = mica__cpu_rows_end(&params->range, last);
    wide_work w = work_of(args->local, n, slots, route->groups);
    for (uint64_t token = mica__cpu_rows_begin(&params->range, first); token < end; token++) {
        double sum = 0;
        route_token(args, route, token, &w);
        for (uint64_t s = 0; s < slots; s++)
            sum += w.weights[s];
        for (uint64_t s = 0; s < slots; s++) {
            const uint32_t id = w.chosen.ids[s];
            const double weight =
                (route->normalise && sum != 0 ? w.weights[s] / sum : w.weights[s]) * (double)route->scale;
            store(weights->data + token * weights->stride[0] + s * weights->stride[1],
                  scale->data != NULL ? weight * load(scale->data + id * scale->stride[0]) : weight);
            memcpy(ids->data + token * ids->stride[0] + s * ids->stride[1], &id, sizeof id);
        }
    }
}

/* ---- what experts gave ---- */

/* A row is a token. */
void MICA__ISA(expert_sum_wide)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_range *range = args->params;
    const mica__cpu_view *x = &args->view[MICA__EXPERT_SUM_X], *y = &args->view[MICA__EXPERT_SUM_Y],
                         *weights = &args->view[MICA__EXPERT_SUM_WEIGHTS],
                         *shared = &args->view[MICA__EXPERT_SUM_SHARED],
                         *gate = &args->view[MICA__EXPERT_SUM_GATE],
                         *residual = &args->view[MICA__EXPERT_SUM_RESIDUAL];
    const uint64_t end = mica__cpu_rows_end(range, last);
    for (uint64_t t = mica__cpu_rows_begin(range, first); t < end; t++) {
        const double part = gate->data != NULL ? sigmoid(load(gate->data + t * gate->stride[0])) : 1.0;
        for (uint64_t i = 0; i < x->shape[2]; i++) {
            double sum = 0;
            for (uint64_t s = 0; s < x->shape[1]; s++)
                sum += load(weights->data + t * weights->stride[0] + s * weights->stride[1]) *
                       load(x->data + t * x->stride[0] + s * x->stride[1] + i * x->stride[2]);
            if (shared->data != NULL)
                sum += part * load(shared->data + t * shared->stride[0] + i * shared->stride[1]);
            if (residual->data != NULL)
                sum += load(residual->data + t * residual->stride[0] + i * residual->stride[1]);
            store(y->data + t * y->stride[0] + i * y->stride[1], sum);
        }
    }
}

/* ---- routed products ---- */

/* A row is a slot of a token. */
void MICA__ISA(experts_wide)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_range *range = args->params;
    const mica__cpu_view *x = &args->view[MICA__EXPERTS_X], *ids = &args->view[MICA__EXPERTS_IDS],
                         *w = &args->view[MICA__EXPERTS_WEIGHT], *y = &args->view[MICA__EXPERTS_Y];
    const uint64_t slots = ids->shape[1], end = mica__cpu_rows_end(range, last);
    for (uint64_t row = mica__cpu_rows_begin(range, first); row < end; row++) {
        const uint64_t t = row / slots, s = row % slots;
        const int64_t id = index_at(ids, t * ids->stride[0] + s * ids->stride[1]);
        const bool fine = id >= 0 && (uint64_t)id < w->shape[0];
        const unsigned char *from = x->data + t * x->stride[0] + (x->ndim == 3 ? s * x->stride[1] : 0);
        if (!fine)
            mica__cpu_fault(args);
        for (uint64_t n = 0; n < w->shape[1]; n++) {
            double sum = 0;
            for (uint64_t k = 0; fine && k < w->shape[2]; k++)
                sum += load(from + k * x->stride[x->ndim - 1u]) *
                       load(w->data + (uint64_t)id * w->stride[0] + n * w->stride[1] + k * w->stride[2]);
            store(y->data + t * y->stride[0] + s * y->stride[1] + n * y->stride[2], sum);
        }
    }
}
