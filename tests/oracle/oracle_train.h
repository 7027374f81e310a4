/* oracle_train.h - losses, from their formulas, in long double; `error` as oracle_ops.h has it. */
#ifndef ORACLE_TRAIN_H
#define ORACLE_TRAIN_H

#include <stdbool.h>
#include <stddef.h>

/* Log of the sum of e^x. */
double oracle_log_sum(size_t n, const double *x, double *error);
/* lse - (1 - smoothing) x[label] - smoothing mean(x) */
double oracle_cross_entropy(size_t n, const double *x, size_t label, double smoothing, double *error);

#endif
