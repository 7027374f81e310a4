/*
 * oracle_experts.c - which experts a token goes to, with which weights, and the sum of what they give; the gradient of the weights, and places in line.
 */
#include "oracle/oracle_ops.h"

#include <math.h>

/* exp(logit - largest) / sum over the members; zeros where all members are -inf. Gives the widest finite logit. */
static double soften(size_t count, const double *logits, double *out)
{
    double largest = -INFINITY, widest = 0, sum = 0;

    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, logits[i]);
        if (isfinite(logits[i]))
            widest = fmax(widest, fabs(logits[i]));
    }
    for (size_t i = 0; i < count; i++) {
        out[i] = largest == -INFINITY && !isnan(logits[i]) ? 0 : exp(logits[i] - largest);
        sum += out[i];
    }
    for (size_t i = 0; i < count; i++)
        out[i] = sum == 0 ? 0 : out[i] / sum;
    return widest;
}

/* Softmax keeps the order of logits, so without biases and sums of two the logits are the values: a NaN among them is not all there is. */
void oracle_route_values(const oracle_route *route, size_t row, double *values)
{
    const double *logits = route->logits + row * route->experts;
    bool soft = route->softmax_first && !route->sigmoid && (route->bias != NULL || route->group_best == 2);

    if (soft)
        soften(route->experts, logits, values);
    for (size_t e = 0; e < route->experts; e++) {
        double value = soft ? values[e] : route->sigmoid ? 1 / (1 + exp(-logits[e])) : logits[e];

        values[e] = value + (route->bias != NULL ? route->bias[e] : 0);
    }
}

/* Does value i stand before value e? */
static bool is_before(const double *values, size_t i, size_t e)
{
    bool equal = values[i] == values[e] || (isnan(values[i]) && isnan(values[e]));
    bool greater = values[i] > values[e] || (isnan(values[e]) && !isnan(values[i]));

    return greater || (equal && i < e);
}

double oracle_route_group(const oracle_route *route, const double *values, size_t group)
{
    size_t size = route->experts / route->groups, first = group * size;
    double sum = 0;

    for (size_t e = first; e < first + size; e++) {
        size_t before = 0;

        for (size_t i = first; i < first + size; i++)
            before += is_before(values, i, e);
        if (before < route->group_best)
            sum += values[e];
    }
    return sum;
}

static void route_row_ids(const oracle_route *route, size_t row, double *ids)
{
    size_t experts = route->experts, size = experts / route->groups;
    double values[4096], group[4096];
    bool open[4096];

    oracle_route_values(route, row, values);
    for (size_t g = 0; g < route->groups; g++)
        group[g] = route->groups == 1 ? 0 : oracle_route_group(route, values, g);
    for (size_t e = 0; e < experts; e++) {
        size_t before = 0;

        for (size_t g = 0; g < route->groups; g++)
            before += is_before(group, g, e / size);
        open[e] = before < route->top_groups;
    }
    for (size_t e = 0; e < experts; e++) {
        size_t before = 0;

        for (size_t i = 0; i < experts; i++)
            before += open[i] && is_before(values, i, e);
        if (open[e] && before < route->slots)
            ids[before] = (double)e;
    }
}

void oracle_route_ids(const oracle_route *route, double *ids)
{
    for (size_t r = 0; r < route->rows; r++)
        route_row_ids(route, r, ids + r * route->slots);
}

static void route_row(const oracle_route *route, size_t row, const double *ids, double *weights,
                      double *error)
{
    const double *logits = route->logits + row * route->experts;
    double members[4096] = {0}, soft[4096] = {0}, widest, sum = 0, roundings;
    size_t count = route->softmax_first ? route->experts : route->slots;

    for (size_t i = 0; i < count; i++)
        members[i] = logits[route->softmax_first ? i : (size_t)ids[i]];
    widest = soften(count, members, soft);
    roundings = 4 + widest + 0.25 * sqrt((double)count);
    for (size_t s = 0; s < route->slots; s++) {
        weights[s] = soft[route->softmax_first ? (size_t)ids[s] : s];
        if (route->sigmoid)
            weights[s] = 1 / (1 + exp(-logits[(size_t)ids[s]]));
        sum += weights[s];
    }
    for (size_t s = 0; s < route->slots; s++) {
        if (route->normalise && sum != 0)
            weights[s] /= sum;
        weights[s] *= route->scale * (route->expert_scale != NULL ? route->expert_scale[(size_t)ids[s]] : 1);
        error[s] = fabs(weights[s]) * roundings * (route->normalise ? 2 : 1);
    }
}

void oracle_route_weights(const oracle_route *route, const double *ids, double *weights, double *error)
{
    for (size_t r = 0; r < route->rows; r++) {
        size_t at = r * route->slots;

        route_row(route, r, ids + at, weights + at, error + at);
    }
}

void oracle_expert_sum(size_t rows, size_t slots, size_t dim, const double *x, const double *weights,
                       const oracle_sum_rest *rest, double *y, double *error)
{
    for (size_t i = 0; i < rows * dim; i++) {
        size_t row = i / dim;
        double size = 0;

        y[i] = 0;
        for (size_t s = 0; s < slots; s++) {
            double term = weights[row * slots + s] * x[(row * slots + s) * dim + i % dim];

            y[i] += term;
            size += fabs(term);
        }
        if (rest->shared != NULL) {
            double term = rest->shared[i] * (rest->gate != NULL ? 1 / (1 + exp(-rest->gate[row])) : 1);

            y[i] += term;
            size += 4 * fabs(term); /* exp, a sum, a quotient before it */
        }
        if (rest->residual != NULL) {
            y[i] += rest->residual[i];
            size += fabs(rest->residual[i]);
        }
        error[i] = size * (1 + 0.25 * sqrt((double)slots));
    }
}

/* Of one token; `score` are those of the chosen, `all` those that softmax is over. Sizes are what the terms would come to without signs. */
static void route_row_backward(const oracle_route *route, size_t row, const double *ids,
                               const double *dweights, double *dlogits, double *error)
{
    const double *logits = route->logits + row * route->experts;
    double all[4096] = {0}, score[4096] = {0}, reach[4096] = {0}, size[4096] = {0};
    double sum = 0, common = 0, common_size = 0, widest;
    bool first = route->softmax_first && !route->sigmoid;
    size_t count = first ? route->experts : route->slots;

    for (size_t i = 0; i < count; i++)
        all[i] = first                                            ? logits[i]
                 : ids[i] >= 0 && ids[i] < (double)route->experts ? logits[(size_t)ids[i]]
                                                                  : -INFINITY;
    widest = soften(count, all, all);
    for (size_t s = 0; s < route->slots; s++) {
        if (!(ids[s] >= 0 && ids[s] < (double)route->experts))
            continue;
        score[s] = route->sigmoid ? 1 / (1 + exp(-logits[(size_t)ids[s]])) : all[first ? (size_t)ids[s] : s];
        reach[s] = dweights[s] * route->scale *
                   (route->expert_scale != NULL ? route->expert_scale[(size_t)ids[s]] : 1);
        size[s] = fabs(reach[s]);
        sum += score[s];
    }
    for (size_t s = 0; s < route->slots && sum != 0; s++) {
        common += reach[s] * score[s] / sum;
        common_size += size[s] * score[s] / sum;
    }
    for (size_t s = 0; s < route->slots && route->normalise && sum != 0; s++) {
        reach[s] = (reach[s] - common) / sum;
        size[s] = (size[s] + common_size) / sum;
    }
    common = common_size = 0;
    for (size_t s = 0; s < route->slots; s++) {
        common += reach[s] * score[s];
        common_size += size[s] * score[s];
    }
    for (size_t e = 0; e < route->experts; e++) {
        dlogits[e] = first ? -all[e] * common : 0;
        error[e] = first ? all[e] * common_size : 0;
    }
    for (size_t s = 0; s < route->slots; s++) {
        size_t e = (size_t)ids[s];

        if (!(ids[s] >= 0 && ids[s] < (double)route->experts))
            continue;
        if (route->sigmoid) {
            dlogits[e] += reach[s] / (2 + exp(logits[e]) + exp(-logits[e]));
            error[e] += size[s] / (2 + exp(logits[e]) + exp(-logits[e]));
        } else {
            dlogits[e] += score[s] * (reach[s] - (first ? 0 : common));
            error[e] += score[s] * (size[s] + (first ? 0 : common_size));
        }
    }
    for (size_t e = 0; e < route->experts; e++)
        error[e] = error[e] == 0 ? ORACLE_EXACT : error[e] * (4 + widest + 0.25 * sqrt((double)count));
}

void oracle_route_backward(const oracle_route *route, const double *ids, const double *dweights,
                           double *dlogits, double *error)
{
    for (size_t r = 0; r < route->rows; r++)
        route_row_backward(route, r, ids + r * route->slots, dweights + r * route->slots,
                           dlogits + r * route->experts, error + r * route->experts);
}

void oracle_expert_places(size_t rows, size_t slots, size_t experts, size_t capacity, bool by_choice,
                          const double *ids, double *places, double *counts)
{
    for (size_t e = 0; e < experts; e++)
        counts[e] = 0;
    for (size_t i = 0; i < rows * slots; i++)
        for (size_t e = 0; e < experts; e++)
            counts[e] += ids[i] == (double)e;
    for (size_t i = 0; i < rows * slots; i++) {
        size_t before = 0;

        for (size_t k = 0; k < rows * slots; k++) {
            bool earlier = by_choice ? k % slots < i % slots || (k % slots == i % slots && k < i) : k < i;

            before += earlier && ids[k] == ids[i];
        }
        places[i] = ids[i] >= 0 && ids[i] < (double)experts && before < capacity
                        ? ids[i] * (double)capacity + (double)before
                        : (double)(experts * capacity);
    }
}
