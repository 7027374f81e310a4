/*
 * cpu_plan_recurrent.h - how the plans of cells and of their gradients cut sequences and units.
 */
#ifndef MICA_CPU_PLAN_RECURRENT_H
#define MICA_CPU_PLAN_RECURRENT_H

#include "backend/cpu/cpu_recurrent.h"

/* `count` sequences, of `pieces` pieces of units; `sum_ns`: a product and its sum, per element of the weight and sequence. */
mica__cpu_rnn_cut mica__cpu_rnn_cut_of(const mica__operand *weight, uint64_t count, uint32_t pieces,
                                       double sum_ns, uint32_t threads);

#endif
