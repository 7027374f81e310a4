/*
 * route_backward.c - what reaches the logits of a router from the weights of the experts that it chose. In double, for all types: a token has few
 * experts, and what cancels here is what training follows.
 */
#include <math.h>

#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"

enum {
    LOGITS = MICA__ROUTE_BACKWARD_LOGITS,
    SCALE = MICA__ROUTE_BACKWARD_SCALE,
    IDS = MICA__ROUTE_BACKWARD_IDS,
    DWEIGHTS = MICA__ROUTE_BACKWARD_DWEIGHTS,
    DLOGITS = MICA__ROUTE_BACKWARD_DLOGITS
};

static double load(const mica__cpu_view *view, uint64_t offset)
{
    double value;
    if (view->dtype != MICA_DTYPE_F64)
        return (double)row_element(view->data + offset, view->dtype);
    memcpy(&value, view->data + offset, sizeof value);
    return value;
}

static void store(const mica__cpu_view *view, uint64_t offset, double value)
{
    const float rounded = (float)value;
    if (view->dtype == MICA_DTYPE_F64)
        memcpy(view->data + offset, &value, sizeof value);
    else
        row_store(view->data + offset, view->dtype, &rounded, 1);
}

static double sigmoid(double x)
{
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* As route has it: zeros where there is nothing but -inf. */
static void soften(double *x, uint64_t n)
{
    double greatest = -INFINITY, total = 0;
    for (uint64_t i = 0; i < n; i++)
        greatest = fmax(greatest, x[i]);
    for (uint64_t i = 0; i < n; i++) {
        x[i] = greatest == -INFINITY && x[i] == x[i] ? 0 : exp(x[i] - greatest);
        total += x[i];
    }
    for (uint64_t i = 0; i < n; i++)
        x[i] = total == 0 ? 0 : x[i] / total;
}

/* A token's memory: all scores, which become the result; of the slots their logits, scores, and what reaches these; ids, n where one leads outside. */
typedef struct token_work {
    double *all, *logit, *score, *reach;
    uint64_t *id;
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
        w->reach[s] = inside ? load(dweights, token * dweights->stride[0] + s * dweights->stride[1]) *
                                   (double)route->scale
                             : 0;
        if (inside && scale->data != NULL)
            w->reach[s] *= load(scale, (uint64_t)id * scale->stride[0]);
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
        soften(w->all, n);
    if (!first && !by_sigmoid)
        soften(w->score, slots);
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
    token_work w = {.all = args->local};
    w.logit = w.all + n;
    w.score = w.logit + slots;
    w.reach = w.score + slots;
    w.id = (uint64_t *)(void *)(w.reach + slots);
    for (uint64_t token = mica__cpu_rows_begin(&params->range, first); token < end; token++) {
        for (uint64_t e = 0; e < n; e++)
            w.all[e] = load(logits, token * logits->stride[0] + e * logits->stride[1]);
        load_slots(args, &params->route, token, n, slots, &w);
        token_gradient(&params->route, n, slots, &w);
        for (uint64_t e = 0; e < n; e++)
            store(dlogits, token * dlogits->stride[0] + e * dlogits->stride[1], w.all[e]);
    }
}
