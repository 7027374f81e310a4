/* gpu_plan_attention.h - attention records as all attention kernels for GPUs see them. Knows no driver. */
#ifndef MICA_GPU_PLAN_ATTENTION_H
#define MICA_GPU_PLAN_ATTENTION_H

#include "backend/gpu/gpu_plan.h"

/* UNSUPPORTED for types of operands and sizes of heads that no kernel takes. */
mica_status mica__gpu_attention_check(const mica__record *record);
/* Everything of the parameters that the record says; tiles, parts and splits are zero. */
void mica__gpu_attention_describe(const mica__record *record, mk_attention_params *out);

#endif
