/* gpu_plan_experts.h - the map of a routed matmul (kernels/experts.kc), for plans that take their tiles from it. */
#ifndef MICA_GPU_PLAN_EXPERTS_H
#define MICA_GPU_PLAN_EXPERTS_H

#include "backend/gpu/gpu_plan.h"

/* Tiles that the map has room for, and its bytes, for a matmul_experts record. */
uint32_t mica__gpu_experts_tiles(const mica__record *record);
uint64_t mica__gpu_experts_map_bytes(const mica__record *record);
/* Slots that share a row of x. */
uint32_t mica__gpu_experts_x_slots(const mica__record *record);
/* The dispatch that builds it at `offset` of the scratch. */
mica_status mica__gpu_plan_experts_map(const mica__record *record, const mica__device_info *info,
                                       uint64_t offset, mica__plan *plan);

#endif
