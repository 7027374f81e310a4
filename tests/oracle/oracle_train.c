/* oracle_train.c - the loss of one row of logits, and its derivative. */
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

/* Differences of lse and a logit round thrice, with products; what is more than one part is added up, and in f32 walks by sqrt(n), of logits too where their
 * mean is taken. */
double oracle_cross_entropy(size_t n, const double *x, const double *part, double *error)
{
    double own, parts = 0;
    const double lse = oracle_log_sum(n, x, &own), walk = 2 + 0.25 * sqrt((double)n);
    long double loss = 0;

    *error = 0;
    for (size_t i = 0; i < n; i++)
        parts += part[i] != 0;
    for (size_t i = 0; i < n; i++) {
        if (part[i] == 0)
            continue;
        const long double term = (long double)part[i] * ((long double)lse - (long double)x[i]);

        loss += term;
        *error += fabs(part[i]) * (own + fabs(x[i])) + 4 * fabs((double)term);
        if (parts > 1)
            *error += walk * (fabs((double)term) + fabs(part[i] * x[i]));
    }
    return (double)loss;
}

/* e^(x - lse) strays by the rounding of its argument and two of its own, the sum of parts by its walk. */
void oracle_cross_entropy_backward(size_t n, const double *x, const double *part, double lse, double dloss,
                                   double *dx, double *error)
{
    long double whole = 0;
    double size = 0;

    for (size_t i = 0; i < n; i++) {
        whole += (long double)part[i];
        size += fabs(part[i]);
    }
    for (size_t i = 0; i < n; i++) {
        const double away = x[i] - lse, e = exp(away);

        dx[i] = dloss * (e * (double)whole - part[i]);
        error[i] = fabs(dloss) *
                   (e * size * (fmin(fabs(away), 1e4) + 6 + 0.25 * sqrt((double)n)) + 4 * fabs(part[i]));
    }
}
