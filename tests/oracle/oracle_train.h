/* oracle_train.h - losses, from their formulas, in long double; `error` as oracle_ops.h has it. */
#ifndef ORACLE_TRAIN_H
#define ORACLE_TRAIN_H

#include <stdbool.h>
#include <stddef.h>

/* Log of the sum of e^x. */
double oracle_log_sum(size_t n, const double *x, double *error);
/* The sum over classes of part (lse - x); classes without a part have none in the result. */
double oracle_cross_entropy(size_t n, const double *x, const double *part, double *error);
/* dx = dloss (e^(x - lse) times the sum of parts, less part) */
void oracle_cross_entropy_backward(size_t n, const double *x, const double *part, double lse, double dloss,
                                   double *dx, double *error);

#endif
