/* encoder.c - the front of encoding: checks the state, labels records, lowers them or keeps them. */
#include "device/encoder.h"

#include <stdio.h>
#include <string.h>

#include "backend/planning.h"
#include "base/alloc.h"
#include "base/argument.h"
#include "base/status.h"
#include "device/custom.h"
#include "device/inflight.h"
#include "device/registry.h"

#define LABEL_DEPTH 8
#define LABEL_BYTES 64

struct mica_encoder {
    mica_device *device;      /* counted */
    mica_queue *queue;        /* counted like any handle; NULL: the first */
    mica__lowering *lowering; /* direct encoders, begun with the first record of a stage */
    mica__record_list records;
    mica__plan room;          /* for plans of records that are kept: whether some kernel serves them */
    mica_encoder_stats stats; /* of the stages submitted so far */
    bool capturing, spent, manual, barrier_next;
    uint32_t label_depth;
    char label[LABEL_DEPTH][LABEL_BYTES];
};

static mica_status begin(mica_device *device, mica_queue *queue, bool capturing, mica_encoder **out)
{
    if (out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "encoder_begin: out_encoder is NULL");
    *out = NULL;
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "encoder_begin: device is NULL");
    if (queue != NULL && queue->device != device)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "encoder_begin: queue is of another device");
    mica_encoder *encoder = mica__calloc(1, sizeof *encoder);
    if (encoder == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for an encoder");
    encoder->device = mica_device_retain(device);
    if (queue != NULL) {
        atomic_fetch_add(&queue->references, 1);
        encoder->queue = queue;
    }
    encoder->capturing = capturing;
    *out = encoder;
    return MICA_OK;
}

mica_status mica_encoder_begin(mica_device *device, mica_queue *queue, mica_encoder **out_encoder)
{
    return begin(device, queue, false, out_encoder);
}

mica_status mica__encoder_begin_capture(mica_device *device, mica_queue *queue, mica_encoder **out)
{
    return begin(device, queue, true, out);
}

void mica_encoder_release(mica_encoder *encoder)
{
    if (encoder == NULL)
        return;
    mica_device *device = encoder->device;
    mica__lowering_discard(encoder->lowering);
    mica__record_list_free(&encoder->records);
    mica__planning_end(&encoder->room);
    mica__queue_unref(encoder->queue);
    mica__free(encoder);
    mica_device_release(device);
}

mica_device *mica_encoder_device(const mica_encoder *encoder)
{
    return encoder == NULL ? NULL : encoder->device;
}

mica_queue *mica__encoder_queue(const mica_encoder *encoder)
{
    return encoder->queue;
}

static mica_status check_open(const mica_encoder *encoder, const char *call)
{
    if (encoder == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: encoder is NULL", call);
    if (encoder->spent)
        return mica__fail(MICA_ERR_STATE, "%s: encoder was committed already", call);
    return MICA_OK;
}

/* The lowering of the current stage. */
static mica_status open_stage(mica_encoder *encoder)
{
    if (encoder->lowering != NULL)
        return MICA_OK;
    mica_status status = mica__lowering_begin(encoder->device, false, &encoder->lowering);
    if (status == MICA_OK)
        mica__lowering_set_manual(encoder->lowering, encoder->manual);
    return status;
}

/* ---- records ---- */

mica_status mica__encoder_add(mica_encoder *encoder, mica__record *record)
{
    mica_status status = check_open(encoder, mica_op_name((mica_op)record->op));
    if (status != MICA_OK)
        return status;
    record->label = encoder->label_depth > 0 ? encoder->label[encoder->label_depth - 1] : "";
    record->fused = "";
    if (encoder->capturing) {
        record->barrier_before = encoder->barrier_next;
        record->original_index = encoder->records.count;
        status = mica__record_check(encoder->device, record, false, &encoder->room);
        if (status == MICA_OK)
            status = mica__record_list_add(&encoder->records, record);
        if (status == MICA_OK)
            encoder->barrier_next = false;
        return status;
    }
    record->barrier_before = 0;
    status = open_stage(encoder);
    if (status == MICA_OK)
        status = mica__lowering_add(encoder->lowering, record, NULL);
    return status;
}

mica_status mica__encoder_take(mica_encoder *encoder, mica__record_list *out)
{
    mica_status status = check_open(encoder, "session");
    memset(out, 0, sizeof *out);
    if (status != MICA_OK)
        return status;
    *out = encoder->records;
    memset(&encoder->records, 0, sizeof encoder->records);
    return MICA_OK;
}

static mica_status check_dispatch(const mica_encoder *encoder, const mica_dispatch_desc *desc)
{
    if (desc == NULL || desc->kernel == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "encoder_dispatch: %s is NULL",
                          desc == NULL ? "desc" : "desc.kernel");
    if (desc->kernel->device != encoder->device)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "encoder_dispatch: desc.kernel is of another device");
    if (desc->binding_count > MICA__CUSTOM_BINDINGS || (desc->bindings == NULL && desc->binding_count > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "encoder_dispatch: desc.bindings is NULL or has over %d entries",
                          MICA__CUSTOM_BINDINGS);
    if (desc->params_size > MICA__CUSTOM_PARAM_BYTES || (desc->params == NULL && desc->params_size > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "encoder_dispatch: desc.params is NULL or over %d bytes",
                          MICA__CUSTOM_PARAM_BYTES);
    uint64_t groups = (uint64_t)desc->groups[0] * desc->groups[1];
    if (groups == 0 || desc->groups[2] == 0 || groups > UINT32_MAX || groups * desc->groups[2] > UINT32_MAX)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "encoder_dispatch: desc.groups: the product is 0 or over 2^32");
    for (uint32_t i = 0; i < desc->binding_count; i++) {
        const mica_binding *binding = &desc->bindings[i];
        if (binding->buffer == NULL || binding->buffer->storage->device != encoder->device)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "encoder_dispatch: desc.bindings[%u].buffer is %s",
                              i, binding->buffer == NULL ? "NULL" : "on another device");
        if (binding->access == 0)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "encoder_dispatch: desc.bindings[%u].access is 0",
                              i);
        MICA__TRY(mica__check_flags("encoder_dispatch: desc.bindings.access", binding->access,
                                    MICA_ACCESS_READ | MICA_ACCESS_WRITE));
        if (binding->buffer->read_only && (binding->access & MICA_ACCESS_WRITE) != 0)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "encoder_dispatch: desc.bindings[%u].buffer is read-only", i);
    }
    return MICA_OK;
}

mica_status mica_encoder_dispatch(mica_encoder *encoder, const mica_dispatch_desc *desc)
{
    mica_status status = check_open(encoder, "encoder_dispatch");
    if (status == MICA_OK)
        status = check_dispatch(encoder, desc);
    if (status != MICA_OK)
        return status;
    mica__operand operands[MICA__CUSTOM_BINDINGS];
    _Alignas(16) unsigned char params[sizeof(mica__custom) + MICA__CUSTOM_PARAM_BYTES];
    mica__custom *custom = (mica__custom *)(void *)params;
    memset(custom, 0, sizeof *custom);
    custom->kernel = desc->kernel;
    for (int i = 0; i < 3; i++) {
        custom->groups[i] = desc->groups[i];
        custom->local[i] = desc->local[i] == 0 ? 1 : desc->local[i];
    }
    custom->params_size = desc->params_size;
    if (desc->params_size > 0)
        memcpy(custom + 1, desc->params, desc->params_size);
    for (uint32_t i = 0; i < desc->binding_count; i++)
        mica__operand_from(desc->bindings[i].buffer, desc->bindings[i].access, &operands[i]);
    mica__record record = {.op = MICA_OP_CUSTOM,
                           .operand_count = (uint16_t)desc->binding_count,
                           .params_size = (uint16_t)(sizeof(mica__custom) + desc->params_size),
                           .operand = operands,
                           .params = params};
    return mica__encoder_add(encoder, &record);
}

/* ---- ordering by hand ---- */

mica_status mica_encoder_set_hazards(mica_encoder *encoder, mica_hazards mode)
{
    mica_status status = check_open(encoder, "encoder_set_hazards");
    if (status != MICA_OK)
        return status;
    MICA__TRY(mica__check_enum("encoder_set_hazards: mode", (uint32_t)mode, MICA_HAZARDS_MANUAL + 1));
    if (encoder->capturing && mode == MICA_HAZARDS_MANUAL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "encoder_set_hazards: mode: a recording finds its own order");
    encoder->manual = mode == MICA_HAZARDS_MANUAL;
    if (encoder->lowering != NULL)
        mica__lowering_set_manual(encoder->lowering, encoder->manual);
    return MICA_OK;
}

mica_status mica_encoder_barrier(mica_encoder *encoder)
{
    mica_status status = check_open(encoder, "encoder_barrier");
    if (status != MICA_OK)
        return status;
    if (encoder->capturing)
        encoder->barrier_next = true;
    else if (encoder->lowering != NULL)
        status = mica__lowering_barrier(encoder->lowering);
    return status;
}

#define MAX_RANGES 64

/* The ranges of two lists of buffers, marked read and write. */
static mica_status gather_ranges(const char *call, const mica_encoder *encoder, mica_buffer *const *reads,
                                 uint32_t read_count, mica_buffer *const *writes, uint32_t write_count,
                                 mica__range *ranges)
{
    if ((uint64_t)read_count + write_count > MAX_RANGES)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: read_count and write_count are over %d together",
                          call, MAX_RANGES);
    if ((reads == NULL && read_count > 0) || (writes == NULL && write_count > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call,
                          reads == NULL && read_count > 0 ? "reads" : "writes");
    for (uint32_t i = 0; i < read_count + write_count; i++) {
        const mica_buffer *buffer = i < read_count ? reads[i] : writes[i - read_count];
        mica__operand operand;
        if (buffer == NULL || buffer->storage->device != encoder->device)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "%s: %s holds a buffer that is NULL or on another device", call,
                              i < read_count ? "reads" : "writes");
        mica__operand_from(buffer, i < read_count ? MICA_ACCESS_READ : MICA_ACCESS_WRITE, &operand);
        mica__range_of(&operand, &ranges[i]);
    }
    return MICA_OK;
}

mica_status mica_encoder_barrier_between(mica_encoder *encoder, mica_buffer *const *reads,
                                         uint32_t read_count, mica_buffer *const *writes,
                                         uint32_t write_count, int *out_emitted)
{
    mica__range ranges[MAX_RANGES];
    bool emitted = false;
    mica_status status = check_open(encoder, "encoder_barrier_between");
    if (out_emitted != NULL)
        *out_emitted = 0;
    if (status == MICA_OK)
        status =
            gather_ranges("encoder_barrier_between", encoder, reads, read_count, writes, write_count, ranges);
    /* A recording orders its records by the same ranges later on. */
    if (status == MICA_OK && encoder->lowering != NULL)
        status =
            mica__lowering_barrier_between(encoder->lowering, ranges, read_count + write_count, &emitted);
    if (out_emitted != NULL)
        *out_emitted = emitted;
    return status;
}

mica_status mica_encoder_track(mica_encoder *encoder, mica_buffer *const *reads, uint32_t read_count,
                               mica_buffer *const *writes, uint32_t write_count)
{
    mica__range ranges[MAX_RANGES];
    mica_status status = check_open(encoder, "encoder_track");
    if (status == MICA_OK && encoder->capturing)
        return mica__fail(MICA_ERR_UNSUPPORTED, "encoder_track: foreign work cannot be part of a recording");
    if (status == MICA_OK)
        status = gather_ranges("encoder_track", encoder, reads, read_count, writes, write_count, ranges);
    if (status == MICA_OK)
        status = open_stage(encoder);
    if (status == MICA_OK)
        status = mica__lowering_track(encoder->lowering, ranges, read_count + write_count);
    return status;
}

mica_status mica_encoder_label_push(mica_encoder *encoder, const char *label)
{
    mica_status status = check_open(encoder, "encoder_label_push");
    if (status != MICA_OK)
        return status;
    if (label == NULL || encoder->label_depth == LABEL_DEPTH)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "encoder_label_push: label is %s",
                          label == NULL ? "NULL" : "the ninth on top of eight");
    snprintf(encoder->label[encoder->label_depth++], LABEL_BYTES, "%s", label);
    return MICA_OK;
}

mica_status mica_encoder_label_pop(mica_encoder *encoder)
{
    mica_status status = check_open(encoder, "encoder_label_pop");
    if (status != MICA_OK)
        return status;
    if (encoder->label_depth == 0)
        return mica__fail(MICA_ERR_STATE, "encoder_label_pop: encoder has no label");
    encoder->label_depth--;
    return MICA_OK;
}

/* ---- submission ---- */

static void add_stats(mica_encoder_stats *sum, const mica_encoder_stats *part)
{
    sum->records += part->records;
    sum->dispatches += part->dispatches;
    sum->barriers += part->barriers;
    sum->barriers_elided += part->barriers_elided;
    sum->tracker_checks += part->tracker_checks;
    sum->tracker_ns += part->tracker_ns;
    for (int i = 0; i < 8; i++)
        sum->group_sizes[i] += part->group_sizes[i];
    if (part->scratch_bytes > sum->scratch_bytes)
        sum->scratch_bytes = part->scratch_bytes;
}

mica_status mica_encoder_get_stats(const mica_encoder *encoder, mica_encoder_stats *out)
{
    if (encoder == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "encoder_get_stats: %s is NULL",
                          encoder == NULL ? "encoder" : "out");
    *out = encoder->stats;
    if (encoder->lowering != NULL) {
        mica_encoder_stats open_stage_stats;
        mica__lowering_stats(encoder->lowering, &open_stage_stats);
        add_stats(out, &open_stage_stats);
    }
    if (encoder->capturing)
        out->records = encoder->records.count;
    return MICA_OK;
}

/* In-order queues make the next stage wait for this one. */
static mica_status submit_stage(mica_encoder *encoder, mica_fence **out_fence)
{
    mica__work *work = NULL;
    mica_encoder_stats part;
    if (out_fence != NULL)
        *out_fence = NULL;
    mica__lowering_stats(encoder->lowering, &part);
    add_stats(&encoder->stats, &part);
    mica_status status = mica__lowering_end(encoder->lowering, &work);
    encoder->lowering = NULL;
    if (status == MICA_OK)
        status = mica__work_submit(work, encoder->queue, out_fence);
    if (status == MICA_OK)
        encoder->stats.stages++;
    return status;
}

mica_status mica_encoder_commit_stage(mica_encoder *encoder, mica_fence **out_fence)
{
    mica_status status = check_open(encoder, "encoder_commit_stage");
    if (out_fence != NULL)
        *out_fence = NULL;
    if (status != MICA_OK)
        return status;
    if (encoder->capturing)
        return mica__fail(MICA_ERR_STATE,
                          "encoder_commit_stage: encoder is recording; finish its session instead");
    return encoder->lowering == NULL ? MICA_OK : submit_stage(encoder, out_fence);
}

mica_status mica_encoder_commit(mica_encoder *encoder, mica_fence **out_fence)
{
    if (out_fence != NULL)
        *out_fence = NULL;
    mica_status status = check_open(encoder, "encoder_commit");
    if (status != MICA_OK)
        return status;
    if (encoder->capturing)
        return mica__fail(MICA_ERR_STATE, "encoder_commit: encoder is recording; finish its session instead");
    status = open_stage(encoder); /* an empty commit still gives a fence */
    if (status == MICA_OK)
        status = submit_stage(encoder, out_fence);
    encoder->spent = true;
    return status;
}

mica_status mica_encoder_commit_and_wait(mica_encoder *encoder)
{
    mica_fence *fence = NULL;
    mica_status status = mica_encoder_commit(encoder, &fence);
    if (status == MICA_OK)
        status = mica_fence_wait(fence, MICA_WAIT_FOREVER);
    mica_fence_release(fence);
    return status;
}

mica_status mica_encoder_wait_fence(mica_encoder *encoder, mica_fence *fence)
{
    mica_status status = check_open(encoder, "encoder_wait_fence");
    if (status != MICA_OK)
        return status;
    if (fence == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "encoder_wait_fence: fence is NULL");
    if (encoder->lowering != NULL) {
        status = submit_stage(encoder, NULL);
        if (status != MICA_OK)
            return status;
    }
    return mica__inflight_order(encoder->device, encoder->queue, fence);
}
