/* cpu_plan_quant.h - what the plans of matmul and of its expert-routed form share when weights are quantised. */
#ifndef MICA_CPU_PLAN_QUANT_H
#define MICA_CPU_PLAN_QUANT_H

#include "backend/cpu/cpu_plan.h"
#include "backend/cpu/kernels/quant/matmul_quant.h"

mica_status mica__cpu_plan_matmul_quant(const mica__record *, const mica__device_info *, mica__plan *);

/* UNSUPPORTED unless the operand is absent or f32, f16, bf16. */
mica_status mica__cpu_quant_check_float(const mica__record *record, uint32_t slot, const char *name);
/* `weight` is followed by its scales and biases, as in every record. */
mica_status mica__cpu_quant_check_weight(const mica__record *record, const mica__operand *weight);
/* MICA__QUANT_Q8 where the caller's precision and the weight allow it, else MICA__QUANT_F32. */
uint32_t mica__cpu_quant_form(const mica__operand *weight, uint32_t precision);
/* Sets local_bytes, or UNSUPPORTED if it is too much. */
mica_status mica__cpu_quant_local(const mica__record *record, const mica__device_info *info,
                                  mica__plan_dispatch *dispatch, uint64_t bytes);
/* Adds the dispatch that writes activation rows to the start of scratch. */
mica_status mica__cpu_plan_activation(const mica__record *record, const mica__device_info *info,
                                      const mica__quant_activation *a, uint64_t rows, mica__plan *plan);

#endif
