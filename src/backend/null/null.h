/*
 * null.h - the device that computes nothing: it checks, records, counts, and fails on demand.
 *
 * null:0 asks for barriers, null:1 for dependencies. Memory is host memory and starts zeroed; dispatches and
 * copies are written down and never run. What follows is for tests.
 */
#ifndef MICA_NULL_H
#define MICA_NULL_H

#include "backend/backend.h"

typedef enum mica__null_kind { MICA__NULL_DISPATCH = 0, MICA__NULL_COPY } mica__null_kind;

/* One thing that was encoded. */
typedef struct mica__null_entry {
    mica__null_kind kind;
    uint32_t group; /* barriers before it */
    uint16_t op;    /* mica_op */
    float bytes, operations;
    uint32_t binding_count;
    uint32_t first_dependency, dependency_count; /* in the log's list */
    char kernel[48], label[64];
} mica__null_entry;

/* What a submission held. */
typedef struct mica__null_log {
    const mica__null_entry *entry;
    uint32_t entry_count;
    const uint32_t *dependency;
    uint32_t dependency_count;
    uint32_t barrier_count;
} mica__null_log;

/* Calls of each kind that succeeded, since the device was opened. */
typedef struct mica__null_counts {
    uint64_t buffers, programs, encodings, dispatches, copies, barriers, submissions, updates;
    uint64_t bytes_uploaded, bytes_downloaded;
    uint64_t buffers_live, commands_live;
} mica__null_counts;

/* Fails calls from now on as it says; replaces what was asked before. */
mica_status mica__null_inject(mica__device *device, const mica_null_faults *faults);
void mica__null_get_counts(mica__device *device, mica__null_counts *out);
/* The last submission; all zero if there was none. Valid until the next one. */
void mica__null_get_log(mica__device *device, mica__null_log *out);

#endif
