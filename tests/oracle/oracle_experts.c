/*
 * oracle_experts.c - which experts a token goes to, with which weights, and the sum of what they give.
 */
#include "oracle/oracle_ops.h"

#include <math.h>

/* How many experts stand before expert e. */
static size_t rank_of(size_t experts, const double *logits, size_t e)
{
    size_t before = 0;

    for (size_t i = 0; i < experts; i++) {
        bool equal = logits[i] == logits[e] || (isnan(logits[i]) && isnan(logits[e]));
        bool greater = logits[i] > logits[e] || (isnan(logits[e]) && !isnan(logits[i]));

        before += greater || (equal && i < e);
    }
    return before;
}

void oracle_route_ids(size_t rows, size_t experts, size_t slots, const double *logits, double *ids)
{
    for (size_t r = 0; r < rows; r++) {
        for (size_t e = 0; e < experts; e++) {
            size_t rank = rank_of(experts, logits + r * experts, e);

            if (rank < slots)
                ids[r * slots + rank] = (double)e;
        }
    }
}

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

static void route_row(const oracle_route *route, size_t row, double *weights, double *error)
{
    const double *logits = route->logits + row * route->experts, *ids = route->ids + row * route->slots;
    double members[4096], soft[4096], widest, sum = 0, roundings;
    size_t count = route->softmax_first ? route->experts : route->slots;

    for (size_t i = 0; i < count; i++)
        members[i] = logits[route->softmax_first ? i : (size_t)ids[i]];
    widest = soften(count, members, soft);
    roundings = 4 + widest + 0.25 * sqrt((double)count);
    for (size_t s = 0; s < route->slots; s++) {
        weights[s] = soft[route->softmax_first ? (size_t)ids[s] : s];
        sum += weights[s];
    }
    for (size_t s = 0; s < route->slots; s++) {
        if (route->normalise && sum != 0)
            weights[s] /= sum;
        weights[s] *= route->scale;
        error[s] = fabs(weights[s]) * roundings * (route->normalise ? 2 : 1);
    }
}

void oracle_route_weights(const oracle_route *route, double *weights, double *error)
{
    for (size_t r = 0; r < route->rows; r++)
        route_row(route, r, weights + r * route->slots, error + r * route->slots);
}

void oracle_expert_sum(size_t rows, size_t slots, size_t dim, const double *x, const double *weights,
                       double *y, double *error)
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
        error[i] = size * (1 + 0.25 * sqrt((double)slots));
    }
}
