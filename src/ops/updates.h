/*
 * updates.h - a step of an optimiser as steps of a region (ops_train.h says what it computes). optimisers.c has them.
 */
#ifndef MICA_OPS_UPDATES_H
#define MICA_OPS_UPDATES_H

#include "ops/steps.h"

/* What goes in; parameters and moments become what comes out. st_none: absent, as in the operands of a call. */
typedef struct mica__sgd_values {
    st_value parameters, gradients, rate, scale, momentum, step;
} mica__sgd_values;
typedef struct mica__adam_values {
    st_value parameters, gradients, m, v, rate, step, greatest_v, scale;
} mica__adam_values;

mica_status mica__sgd_check(const mica_sgd_params *params);
void mica__sgd_steps(const mica_sgd_params *params, mica__sgd_values *v);
mica_status mica__adam_check(const mica_adam_params *params);
void mica__adam_steps(const mica_adam_params *params, mica__adam_values *a);
/* By what gradients of this norm are multiplied. */
st_value mica__clip_scale(st_value norm, double max_norm);

#endif
