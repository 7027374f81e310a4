/* null_device.h - the objects of the null backend, shared by its files. */
#ifndef MICA_NULL_DEVICE_H
#define MICA_NULL_DEVICE_H

#include <pthread.h>

#include "backend/encode.h"
#include "backend/null/null.h"
#include "backend/times.h"
#include "base/status.h"
#include "base/thread.h"

#define MICA__NULL_RESULTS 64u /* completions kept per queue */

struct mica__kernel {
    char name[48];
};

struct mica__program {
    mica__kernel kernel;
};

/* A submission is over when the clock passes its end. */
struct mica__queue {
    uint64_t submitted;
    uint64_t end_ns; /* of the last submission */
    struct {
        uint64_t value;
        mica__completion completion;
    } result[MICA__NULL_RESULTS]; /* value % MICA__NULL_RESULTS */
};

struct mica__encoding {
    mica__device *device;
    mica__commands *commands;
    mica__latch latch;
};

struct mica__commands {
    uint32_t references; /* guarded by the device's lock */
    bool reusable;
    mica__null_entry *entry;
    uint32_t entry_count, dependency_count;
    uint64_t entry_capacity, dependency_capacity;
    uint32_t *dependency;
    uint32_t barrier_count;
    bool barrier_open; /* something was encoded since the last barrier */
    mica__encoding encoding;
};

struct mica__device {
    uint32_t index;
    mica__kernel kernel[MICA_OP_COUNT]; /* by op */
    pthread_mutex_t lock;               /* guards what follows and the queues */
    mica__fork_guard guard;
    mica_null_faults faults;
    bool lost;
    mica__null_counts counts;
    mica__queue queue;
    mica__commands *last; /* counted; NULL before the first submission */
    mica__times times;
};

/* ---- null_kernel_rows.c ---- */

const mica__kernel_row *mica__null_kernel_rows(uint32_t *out_count);
mica_layout mica__null_weight_layout(const mica__operand *weight, const mica__device_info *info);

/* ---- null_commands.c ---- */

mica_status mica__null_encoder_begin(mica__device *device, uint32_t flags, mica__encoding **out);
void mica__null_dispatch(mica__encoding *encoding, const mica__dispatch *dispatch);
void mica__null_barrier(mica__encoding *encoding);
mica_status mica__null_encoder_end(mica__encoding *encoding, bool discard, mica__commands **out);
mica_status mica__null_commands_update(mica__commands *commands, uint32_t dispatch, uint32_t binding,
                                       const mica__binding *to);
/* Gives a reference back. NULL is fine. */
void mica__null_commands_destroy(mica__device *device, mica__commands *commands);
/* The same with the device's lock held. */
void mica__null_commands_drop(mica__device *device, mica__commands *commands);

/* ---- null_queue.c ---- */

mica_status mica__null_submit(mica__device *device, mica__queue *queue, mica__commands *commands,
                              uint64_t *out_value);
mica_status mica__null_wait(mica__device *device, mica__queue *queue, uint64_t value, uint64_t timeout_ns,
                            mica__completion *out);
mica_status mica__null_cancel(mica__device *device, mica__queue *queue, uint64_t value);
mica_status mica__null_queue_order(mica__device *device, mica__queue *queue, mica__queue *after,
                                   uint64_t value);
mica_status mica__null_queue_create(mica__device *device, mica__queue **out);
void mica__null_queue_destroy(mica__device *device, mica__queue *queue);
mica_status mica__null_timestamps(mica__device *device, bool enable, mica__profile *out);

/* ---- null.c ---- */

/* Lock held. Counts a fault down: true when this call is the one to fail. */
bool mica__null_fails(uint32_t *countdown);
/* DEVICE_LOST once that fault has struck. Takes the lock. */
mica_status mica__null_check_lost(mica__device *device);
mica_status mica__null_lost(void);

#endif
