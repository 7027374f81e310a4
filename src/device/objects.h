/*
 * objects.h - what stands behind the public handles of device.h.
 *
 * Counted objects: device <- buffer -> storage. Storage owns one backend allocation and its ledger entry; a buffer is
 * a view of storage and keeps the device too. Storage itself keeps no device: whoever releases it last (a buffer, an
 * encoder, a recording, the device's own list of work in flight) has the device alive. Nothing here knows an op.
 */
#ifndef MICA_DEVICE_OBJECTS_H
#define MICA_DEVICE_OBJECTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "base/thread.h"
#include "mica/device.h"

typedef struct mica__registry mica__registry;
typedef struct mica__work mica__work;

/* A submission not yet known to be done. */
typedef struct mica__inflight {
    mica_queue *queue; /* NULL: queue 0; counted */
    uint64_t value;
    mica__work *work;  /* one-shot work is owned, reusable work borrowed */
    mica_fence *fence; /* counted; may be NULL */
} mica__inflight;

#define MICA__INFLIGHT_MAX 48 /* below the 64 results a backend keeps */

struct mica_device {
    _Atomic uint32_t references;
    const mica__backend *backend;
    const mica__backend_table *table;
    mica__device *impl;
    mica__device_info info;
    mica__registry *registry;
    mica_pool *scratch; /* kernels' scratch; the one pool that holds no device reference */
    struct mica__lowering *_Atomic spare_lowering; /* of the last encoder, with its plans; for the next one */
    /* the last one that was released, for the next: a replay allocates nothing */
    mica_fence *_Atomic spare_fence;

    pthread_mutex_t lock; /* guards the ledger, residency, in-flight list and profile below */
    mica__fork_guard guard;
    uint32_t generation; /* of the process that `inflight_reserved` counts threads of */
    uint64_t budget, owned, owned_peak, mapped, buffer_count;
    uint64_t resident, residency_commits, residency_pending;
    mica__inflight inflight[MICA__INFLIGHT_MAX];
    uint32_t inflight_count, inflight_reserved;
    mica__profile profile; /* of the last mica_profile_end, buckets most time first */
    _Atomic uint32_t profiling;
    _Atomic uint64_t counters[sizeof(mica_counters) / sizeof(uint64_t)];
};

typedef struct mica__storage {
    _Atomic uint32_t references;
    mica_device *device;  /* not counted */
    mica__memory *memory; /* NULL: of a session temporary, which has a place only where recordings run */
    uint64_t bytes;
    mica_import_release release;
    void *release_context, *import_pointer;
    uint8_t imported, read_only;
    uint8_t evicted; /* taken out of the residency set by hand; under the device's lock */
} mica__storage;

/* How a weight's bytes are arranged beyond its shape; all zero is canonical. */
typedef struct mica__packing {
    mica_layout layout;
    uint32_t group_size; /* affine weights, else 0 */
} mica__packing;

struct mica_buffer {
    _Atomic uint32_t references;
    mica__storage *storage;
    uint64_t offset, length; /* length 0: it is empty */
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    mica_dtype dtype;
    mica__packing packing;
    uint32_t ndim;
    uint8_t temporary, read_only;
    mica_buffer *scales, *biases; /* affine weights in canonical layout */
    /* Where the device cannot map: the host's copy while `maps` maps of this handle are open; the device's lock. */
    void *staged;
    uint32_t maps, maps_access;
};

struct mica_queue {
    _Atomic uint32_t references;
    mica_device *device;
    mica__queue *impl;
};

/* Counter `field` of the device and of the process grows by n. */
#define MICA__COUNT(device, field, n) \
    mica__counters_add((device), offsetof(mica_counters, field) / sizeof(uint64_t), (n))
void mica__counters_add(mica_device *device, size_t index, uint64_t n);

/* Storage of `bytes` under the ledger, zeroed if asked. One reference. */
mica_status mica__storage_create(mica_device *device, uint64_t bytes, bool zero, mica__storage **out);
mica_status mica__storage_import(mica_device *device, void *pointer, uint64_t bytes, bool read_only,
                                 mica__storage **out);
/* Storage without memory, which the ledger does not know: what names a session temporary until it is placed. One reference. */
mica_status mica__storage_promise(mica_device *device, uint64_t bytes, mica__storage **out);
mica__storage *mica__storage_retain(mica__storage *storage);
void mica__storage_release(mica__storage *storage);
/* Shape of `desc` from a caller's. */
mica_status mica__shape_take(uint32_t ndim, const uint64_t *shape, mica_buffer_desc *desc);
/* A contiguous buffer over existing storage (reference taken). `packing` NULL: canonical. */
mica_status mica__buffer_over(mica__storage *storage, const mica_buffer_desc *desc,
                              const mica__packing *packing, mica_buffer **out);
/* The same over fresh storage. */
mica_status mica__buffer_new(mica_device *device, const mica_buffer_desc *desc, const mica__packing *packing,
                             mica_buffer **out);
/* Checks dtype, dims and products; bytes of the contiguous form in `out_bytes` (0: it is empty), strides if not NULL. */
mica_status mica__desc_check(const mica_buffer_desc *desc, const mica__packing *packing, uint64_t *out_stride,
                             uint64_t *out_bytes);
bool mica__buffer_contiguous(const mica_buffer *buffer);
/* STATE for a session temporary without memory; `call` names who asks. */
mica_status mica__buffer_placed(const char *call, const mica_buffer *buffer);
/* Whether mica_buffer_affine joins data with such scales, and with biases or without. */
bool mica__affine_joins(mica_dtype data, mica_dtype scales, bool biases);
/* How mica_buffer_pack would arrange the weight; its own layout if there is none better. `scales`: NONE, or the type
 * of the scales of an affine weight. Only dtype, shape, layout and group size of the operand matter. */
mica__packing mica__pack_target(const mica_device *device, const mica__operand *weight, mica_dtype scales);
/* Packs a weight, or some of its rows, into a packed buffer of the same shape, and waits. */
mica_status mica__pack_into(mica_buffer *weight, mica_buffer *packed);
/* mica_buffer_write and mica_buffer_read without waiting: for whoever knows that nothing in flight touches the buffer, which is contiguous and has these bytes. */
mica_status mica__buffer_put(mica_buffer *buffer, uint64_t offset, const void *source, uint64_t bytes);
mica_status mica__buffer_take(mica_buffer *buffer, uint64_t offset, void *target, uint64_t bytes);
/* The operand that stands for the buffer in a record. Borrowed: no references are taken. */
void mica__operand_from(const mica_buffer *buffer, uint32_t access, mica__operand *out);

/* Storage of at least `bytes` from the pool, recycled once nobody else holds it. One reference for the caller. */
mica_status mica__pool_take(mica_pool *pool, uint64_t bytes, mica__storage **out);
mica_status mica__pool_open(mica_device *device, bool keep_device, mica_pool **out);

/* Changes to the residency set; flushed before a submission. */
void mica__residency_change(mica_device *device, int64_t delta);
void mica__residency_flush(mica_device *device);
/* Waits for all submissions on the device; the first error among those not yet waited for. */
mica_status mica__device_wait_idle(mica_device *device);

#endif
