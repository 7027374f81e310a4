/* weights.h - buffers of random values in any weight type: speed does not depend on what a model has learned. */
#ifndef TOOL_BENCH_WEIGHTS_H
#define TOOL_BENCH_WEIGHTS_H

#include "mica/mica.h"

/* Leaves the function with the status of a call that failed. */
#define TOOL_TRY(call)                   \
    do {                                 \
        mica_status try_status = (call); \
        if (try_status != MICA_OK)       \
            return try_status;           \
    } while (0)

/* A matrix or vector with values of about `spread`; affine types in groups of 32. Values repeat after some MiB. */
mica_status tool_weight_create(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                               double spread, mica_buffer **out_buffer);
/* The same in the layout that the device's matmul likes best. */
mica_status tool_weight_packed(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                               double spread, mica_buffer **out_buffer);
/* Every element the same; any type that mica_fill takes. */
mica_status tool_constant_create(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                                 double value, mica_buffer **out_buffer);
/* u32: 0, 1, 2 .. */
mica_status tool_positions_create(mica_device *device, uint64_t count, mica_buffer **out_buffer);
/* u32: all over 0 to below - 1, some twice. */
mica_status tool_ids_create(mica_device *device, uint32_t ndim, const uint64_t *shape, uint64_t below,
                            mica_buffer **out_buffer);
/* Bytes that all of the weight takes. */
uint64_t tool_buffer_bytes(const mica_buffer *buffer);

#endif
