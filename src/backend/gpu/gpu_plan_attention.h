/* gpu_plan_attention.h - attention records as all attention kernels for GPUs see them. Knows no driver. */
#ifndef MICA_GPU_PLAN_ATTENTION_H
#define MICA_GPU_PLAN_ATTENTION_H

#include "backend/gpu/gpu_plan.h"

/* Whether the record has nothing that only the portable kernel knows: no sinks, slopes, lists of keys or lse, no mask of bool. Native kernels
 * serve no others. */
bool mica__gpu_attention_is_simple(const mica__record *record);
/* The same, and caches of f32, f16, bf16 or q8_0. */
bool mica__gpu_attention_is_plain(const mica__record *record);
/* UNSUPPORTED for types of operands and sizes of heads that no kernel takes. */
mica_status mica__gpu_attention_check(const mica__record *record);
/* Everything of the parameters that the record says; tiles, parts and splits are zero. */
void mica__gpu_attention_describe(const mica__record *record, mk_attention_params *out);

#endif
