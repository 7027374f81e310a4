/* region.h - how ops of this room become region records. */
#ifndef MICA_OPS_REGION_H
#define MICA_OPS_REGION_H

#include "backend/region.h"
#include "ops/check.h"

/* Adds a record of a checked program. Inputs broadcast, or have the shape of the outputs where `equal_shapes` is true. */
mica_status mica__region_add(mica_encoder *encoder, const mica__region_names *names,
                             const mica__region_program *program, mica_buffer *const *inputs,
                             bool equal_shapes, mica_buffer *const *outputs);

/* The program of a caller's region; a region of a checked program, which the caller owns. */
const mica__region_program *mica__region_program_of(const mica_region *region);
mica_status mica__region_copy(const char *who, const mica__region_program *program, mica_region **out_region);

/* The program of mica_clipped_swiglu: inputs gate and up. */
mica_status mica__clipped_swiglu(const char *who, mica_register type, float alpha, float limit,
                                 mica__region_room *out);

/* The constant that `value` is in a type; false where it does not fit. */
bool mica__constant_of(double value, mica_dtype dtype, mica__scalar_value *out);

#endif
