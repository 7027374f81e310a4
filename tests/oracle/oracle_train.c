/* oracle_train.c - the loss of one row of logits. */
#include "oracle/oracle_train.h"

#include <math.h>

/* An exponent's argument is off by a rounding of itself, which moves its term by as much; a sum in f32 walks by sqrt(n); the result is rounded. */
double oracle_log_sum(size_t n, const double *x, double *error)
{
    long double greatest = -(long double)INFINITY, sum = 0, moved = 0;

    for (size_t i = 0; i < n; i++)
        if ((long double)x[i] > greatest)
            greatest = (long double)x[i];
    if (greatest == (long double)INFINITY || greatest == -(long double)INFINITY)
        sum = greatest;
    for (size_t i = 0; i < n; i++) {
        const long double away = (long double)x[i] - greatest;

        if (isnan(x[i]))
            sum = NAN;
        else if (!isinf(greatest) && !isinf(x[i])) {
            sum += expl(away);
            moved += expl(away) * fabsl(away);
        }
    }
    if (isinf(greatest) || isnan(sum)) {
        *error = 1;
        return (double)sum;
    }
    const long double lse = logl(sum) + greatest;
    *error = (double)(moved / sum + 2 + fabsl(lse) + fabsl(logl(sum))) + 0.25 * sqrt((double)n);
    return (double)lse;
}

double oracle_cross_entropy(size_t n, const double *x, size_t label, double smoothing, double *error)
{
    double own, size = 0;
    const double lse = oracle_log_sum(n, x, &own);
    long double mean = 0;

    for (size_t i = 0; i < n; i++) {
        mean += (long double)x[i] / (long double)n;
        size += fabs(x[i]) / (double)n;
    }
    *error = own + fabs(x[label]) + 3 * fabs(lse - x[label]);
    if (smoothing == 0)
        return lse - x[label];
    *error += smoothing * (size * (2 + 0.25 * sqrt((double)n)) + 3 * fabs(lse - (double)mean));
    return (double)((1 - (long double)smoothing) * ((long double)lse - (long double)x[label]) +
                    (long double)smoothing * ((long double)lse - mean));
}
