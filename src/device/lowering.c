/*
 * lowering.c - records become dispatches.
 *
 * For each record: plan it, give it scratch, find what it must wait for, hand its dispatches to the backend. Scratch is
 * bumped through a few chunks and then starts over: ranges in it are tracked like any other memory, so reuse orders
 * itself.
 */
#include <string.h>

#include "backend/op_table.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/status.h"
#include "device/custom.h"
#include "device/plan_cache.h"
#include "device/preparation.h"
#include "device/registry.h"
#include "device/work_object.h"

#define SCRATCH_FIRST_CHUNK ((uint64_t)1 << 20)
#define SCRATCH_ROUND ((uint64_t)64 << 20) /* after this much, start over in the first chunk that fits */
#define MAX_DEPENDENCIES 256

/* Of the dispatch being added. */
typedef struct bindings {
    mica__binding *binding;
    mica__range *range;
    uint32_t range_count; /* absent operands have a binding and no range */
    uint32_t capacity;
} bindings;

struct mica__lowering {
    mica_device *device;
    mica__encoding *encoding;
    mica__work *work;
    mica__scratch *shared; /* scratch of works before and after this one; NULL: its own */
    bool manual, serial, timed, traced;
    bool costed; /* a profile may ask what its dispatches cost: it is running, or they are submitted again */
    uint32_t chunk;      /* scratch: current chunk in work->scratch */
    uint64_t chunk_used; /* bytes of it */
    uint64_t round_used; /* bytes since the last start over */
    uint32_t group_size; /* dispatches since the last barrier */
    /* of the record being added: its dispatches, the group of the first */
    uint32_t record_dispatches, record_group;
    mica_encoder_stats stats;
    /* What follows is kept for the next encoder of the device. */
    mica__tracker tracker;
    mica__plan_cache plans;
    bindings bound;
};

/* The device's spare one, or a new one: its own state is zero, what it kept is not. */
static mica__lowering *take_lowering(mica_device *device)
{
    mica__lowering *lowering = atomic_exchange(&device->spare_lowering, NULL);
    if (lowering == NULL) {
        lowering = mica__alloc(sizeof *lowering);
        if (lowering == NULL)
            return NULL;
        memset(&lowering->tracker, 0, sizeof lowering->tracker);
        memset(&lowering->bound, 0, sizeof lowering->bound);
        mica__plan_cache_init(&lowering->plans);
    }
    memset(lowering, 0, offsetof(mica__lowering, tracker));
    mica__tracker_reset(&lowering->tracker);
    lowering->tracker.checks = 0;
    return lowering;
}

void mica__lowering_free(mica__lowering *lowering)
{
    if (lowering == NULL)
        return;
    mica__tracker_free(&lowering->tracker);
    mica__plan_cache_free(&lowering->plans);
    mica__free(lowering->bound.binding);
    mica__free(lowering->bound.range);
    mica__free(lowering);
}

mica_status mica__lowering_begin(mica_device *device, bool reusable, mica__lowering **out)
{
    *out = NULL;
    mica__lowering *lowering = take_lowering(device);
    if (lowering == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to encode");
    lowering->device = device;
    lowering->serial = mica__env_debug(MICA__DEBUG_SERIAL);
    lowering->traced = mica__env_debug(MICA__DEBUG_TRACE);
    lowering->timed = atomic_load_explicit(&device->profiling, memory_order_relaxed) != 0;
    lowering->costed = lowering->timed || reusable;
    lowering->plans.fresh.reusable = reusable;
    mica_status status = mica__work_create(device, reusable, &lowering->work);
    if (status == MICA_OK)
        status = device->table->encoder_begin(device->impl, reusable ? MICA__ENCODE_REUSABLE : 0,
                                              &lowering->encoding);
    if (status != MICA_OK) {
        mica__lowering_discard(lowering);
        return status;
    }
    *out = lowering;
    return MICA_OK;
}

void mica__lowering_discard(mica__lowering *lowering)
{
    if (lowering == NULL)
        return;
    mica__commands *commands = NULL;
    if (lowering->encoding != NULL)
        lowering->device->table->encoder_end(lowering->encoding, true, &commands);
    mica__work_release(lowering->work);
    mica__lowering_free(atomic_exchange(&lowering->device->spare_lowering, lowering));
}

mica_status mica__lowering_share(mica__lowering *lowering, mica__scratch *scratch)
{
    lowering->shared = scratch;
    return scratch == NULL ? MICA_OK : mica__scratch_share(scratch, &lowering->work->scratch);
}

/* Counted once a lowering: two atomic additions a record would be a tenth of encoding it. */
static void count_encoded(const mica__lowering *lowering)
{
    MICA__COUNT(lowering->device, records, lowering->stats.records);
    MICA__COUNT(lowering->device, dispatches, lowering->stats.dispatches);
    MICA__COUNT(lowering->device, barriers, lowering->stats.barriers);
    MICA__COUNT(lowering->device, barriers_elided, lowering->stats.barriers_elided);
}

mica_status mica__lowering_end(mica__lowering *lowering, mica__work **out)
{
    mica__work *work = lowering->work;
    *out = NULL;
    mica_status status = lowering->device->table->encoder_end(lowering->encoding, false, &work->commands);
    lowering->encoding = NULL;
    if (status == MICA_OK && lowering->shared != NULL)
        status = mica__scratch_share(&work->scratch, lowering->shared);
    if (status == MICA_OK) {
        count_encoded(lowering);
        lowering->work = NULL;
        *out = work;
    }
    mica__lowering_discard(lowering);
    return status;
}

/* ---- barriers ---- */

static void close_group(mica__lowering *lowering)
{
    uint32_t n = lowering->group_size;
    if (n > 0)
        lowering->stats.group_sizes[n > 8 ? 7 : n - 1]++;
    lowering->group_size = 0;
}

static void emit_barrier(mica__lowering *lowering)
{
    close_group(lowering);
    lowering->device->table->barrier(lowering->encoding);
    mica__tracker_reset(&lowering->tracker);
    lowering->stats.barriers++;
}

mica_status mica__lowering_barrier(mica__lowering *lowering)
{
    if (lowering->group_size > 0)
        emit_barrier(lowering);
    return MICA_OK;
}

mica_status mica__lowering_barrier_between(mica__lowering *lowering, const mica__range *ranges,
                                           uint32_t count, bool *out_emitted)
{
    *out_emitted = mica__tracker_conflicts(&lowering->tracker, ranges, count);
    if (*out_emitted)
        emit_barrier(lowering);
    return MICA_OK;
}

mica_status mica__lowering_track(mica__lowering *lowering, const mica__range *ranges, uint32_t count)
{
    uint32_t owner = lowering->stats.dispatches > 0 ? (uint32_t)lowering->stats.dispatches - 1 : 0;
    return mica__tracker_record(&lowering->tracker, ranges, count, owner);
}

void mica__lowering_set_manual(mica__lowering *lowering, bool manual)
{
    lowering->manual = manual;
}

/* Orders one dispatch by its ranges: a barrier, or a list of dependencies where the device takes them; nothing where the
 * order of encoding is kept anyway. */
static mica_status order_dispatch(mica__lowering *lowering, const mica__range *ranges, uint32_t count,
                                  uint32_t *dependencies, uint32_t *out_count)
{
    uint64_t start = lowering->timed ? mica__clock_ns() : 0;
    *out_count = 0;
    if (lowering->device->info.in_order && !lowering->work->reusable)
        return MICA_OK;
    if (!lowering->manual && lowering->device->info.edges) {
        *out_count =
            mica__tracker_dependencies(&lowering->tracker, ranges, count, dependencies, MAX_DEPENDENCIES);
        if (*out_count > MAX_DEPENDENCIES) {
            *out_count = 0;
            emit_barrier(lowering);
        }
    } else if (!lowering->manual &&
               (lowering->serial || mica__tracker_conflicts(&lowering->tracker, ranges, count))) {
        if (lowering->group_size > 0)
            emit_barrier(lowering);
    } else if (lowering->group_size > 0) {
        lowering->stats.barriers_elided++;
    }
    mica_status status =
        mica__tracker_record(&lowering->tracker, ranges, count, (uint32_t)lowering->stats.dispatches);
    if (lowering->timed)
        lowering->stats.tracker_ns += mica__clock_ns() - start;
    return status;
}

/* ---- scratch ---- */

/* A place for `bytes`, 64-byte aligned, as storage and offset. */
static mica_status take_scratch(mica__lowering *lowering, uint64_t bytes, mica__storage **out,
                                uint64_t *out_offset)
{
    mica__work *work = lowering->work;
    bytes = (bytes + 63) & ~(uint64_t)63;
    if (lowering->round_used + bytes > SCRATCH_ROUND && lowering->round_used > 0) {
        lowering->round_used = 0;
        lowering->chunk = 0;
        lowering->chunk_used = 0;
    }
    const mica__scratch *scratch = &work->scratch;
    while (lowering->chunk < scratch->count &&
           lowering->chunk_used + bytes > scratch->chunk[lowering->chunk]->bytes) {
        lowering->chunk++;
        lowering->chunk_used = 0;
    }
    if (lowering->chunk == scratch->count) {
        uint64_t size = SCRATCH_FIRST_CHUNK << (scratch->count < 4 ? scratch->count : 4);
        mica_status status = mica__work_add_scratch(work, bytes > size ? bytes : size);
        if (status != MICA_OK)
            return status;
        lowering->chunk_used = 0;
    }
    *out = scratch->chunk[lowering->chunk];
    *out_offset = lowering->chunk_used;
    lowering->chunk_used += bytes;
    lowering->round_used += bytes;
    return MICA_OK;
}

/* ---- dispatches ---- */

static mica_status grow_bindings(bindings *b, uint32_t count)
{
    mica__binding *binding = mica__realloc(b->binding, 2 * count * sizeof *binding);
    if (binding != NULL)
        b->binding = binding;
    mica__range *range = mica__realloc(b->range, 2 * count * sizeof *range);
    if (range != NULL)
        b->range = range;
    if (binding == NULL || range == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to encode %u bindings", count);
    b->capacity = 2 * count;
    return MICA_OK;
}

/* Room for `count` of them. */
static inline mica_status reserve_bindings(mica__lowering *lowering, uint32_t count)
{
    bindings *b = &lowering->bound;
    b->range_count = 0; /* the rest is written as it is used */
    return count <= b->capacity ? MICA_OK : grow_bindings(b, count);
}

/* Binding `index`: binds the operand; holds its storage, or remembers where it went where whoever keeps the work keeps the
 * records too, and may change them. */
static inline mica_status bind_operand(mica__lowering *lowering, const mica__operand *operand,
                                       uint32_t access, uint32_t index)
{
    bindings *b = &lowering->bound;
    mica__binding *binding = &b->binding[index];
    binding->memory = operand->memory;
    if (!mica__operand_present(operand)) {
        binding->offset = binding->length = binding->access = 0;
        return MICA_OK;
    }
    if (operand->memory == NULL)
        return mica__fail(
            MICA_ERR_STATE,
            "operand is a temporary of a recording session, which has memory only inside its pass");
    binding->offset = operand->offset;
    binding->length = operand->length;
    binding->access = access;
    mica__range *range = &b->range[b->range_count++];
    mica__range_of(operand, range);
    range->access = access;
    if (!lowering->work->reusable)
        return mica__work_hold(lowering->work, operand->storage);
    return mica__work_note(lowering->work, (uint32_t)lowering->stats.dispatches, index, operand);
}

static void bind_scratch(mica__lowering *lowering, const mica__storage *scratch, uint64_t offset,
                         const mica__plan_binding *part, uint32_t index)
{
    bindings *b = &lowering->bound;
    b->binding[index] = (mica__binding){scratch->memory, offset + part->offset, part->length, part->access};
    b->range[b->range_count++] = (mica__range){
        scratch, offset + part->offset, offset + part->offset + part->length, 0, 0, part->access, 0};
}

static void count_dispatch(mica__lowering *lowering)
{
    if (lowering->record_dispatches++ == 0)
        lowering->record_group = (uint32_t)lowering->stats.barriers;
    lowering->group_size++;
    lowering->stats.dispatches++;
}

static mica_status send(mica__lowering *lowering, mica__dispatch *dispatch, const mica__record *record)
{
    const bindings *b = &lowering->bound;
    uint32_t dependencies[MAX_DEPENDENCIES];
    mica_status status =
        order_dispatch(lowering, b->range, b->range_count, dependencies, &dispatch->dependency_count);
    if (status != MICA_OK)
        return status;
    dispatch->dependencies = dependencies;
    dispatch->bindings = b->binding;
    dispatch->op = record->op;
    dispatch->label = record->label;
    lowering->device->table->dispatch(lowering->encoding, dispatch);
    count_dispatch(lowering);
    return MICA_OK;
}

/* One solid run of bytes. */
static bool is_solid(const mica__operand *operand)
{
    mica__range range;
    mica__range_of(operand, &range);
    uint64_t bytes = mica_dtype_block_bytes((mica_dtype)operand->dtype), elements = 1;
    for (uint32_t d = 0; d < operand->ndim; d++)
        elements *= operand->shape[d];
    bytes *= elements / mica_dtype_block_elements((mica_dtype)operand->dtype);
    return operand->layout == MICA_LAYOUT_CANONICAL && range.stride == 0 && bytes == operand->length;
}

/* The same bytes in the same order, and some of them: the backend's own copy, no kernel. */
static bool is_plain_copy(const mica__record *record)
{
    if (record->op != MICA_OP_COPY)
        return false;
    const mica__operand *x = &record->operand[MICA__COPY_X], *y = &record->operand[MICA__COPY_Y];
    bool same_order = x->ndim == y->ndim;
    for (uint32_t d = 0; d < x->ndim && same_order; d++)
        same_order = x->shape[d] == 1 || x->stride[d] == y->stride[d];
    return same_order && x->dtype == y->dtype && x->length == y->length && x->length != 0 && is_solid(x) &&
           is_solid(y);
}

static void set_cost(const mica__record *record, mica__dispatch *dispatch)
{
    double bytes = 0, operations = 0;
    mica__op_cost(record, &bytes, &operations);
    dispatch->bytes = (float)bytes;
    dispatch->operations = (float)operations;
}

static mica_status add_plain_copy(mica__lowering *lowering, const mica__record *record)
{
    const mica__operand *part[2] = {&record->operand[MICA__COPY_X], &record->operand[MICA__COPY_Y]};
    mica__dispatch dispatch = {.binding_count = 2};
    if (lowering->costed)
        set_cost(record, &dispatch);
    mica_status status = reserve_bindings(lowering, 2);
    for (uint32_t i = 0; i < 2 && status == MICA_OK; i++)
        status = bind_operand(lowering, part[i], part[i]->access, i);
    if (status == MICA_OK)
        status = send(lowering, &dispatch, record);
    if (status == MICA_OK)
        MICA__COUNT(lowering->device, bytes_copied, part[0]->length);
    return status;
}

/* Binding `index` of a planned dispatch, which is no operand. */
static mica_status bind_other(mica__lowering *lowering, const mica__plan_dispatch *step,
                              const mica__plan_binding *part, uint32_t index, const mica__storage *scratch,
                              uint64_t scratch_offset)
{
    if (part->source != MICA__SCRATCH)
        lowering->bound.binding[index] = (mica__binding){NULL, 0, part->length, part->access};
    else if (scratch != NULL)
        bind_scratch(lowering, scratch, scratch_offset, part, index);
    else
        return mica__fail(MICA_ERR_INTERNAL, "kernel %s binds scratch it did not ask for", step->kernel);
    return MICA_OK;
}

/* The dispatch of the plan that binds the most bytes: the record's cost is counted as its. */
static uint32_t main_dispatch(const mica__record *record, const mica__planned *plan)
{
    uint64_t most = 0;
    uint32_t found = 0;
    for (uint32_t i = 0; i < plan->dispatch_count && plan->dispatch_count > 1; i++) {
        const mica__plan_binding *part = plan->binding + plan->dispatch[i].first_binding;
        uint64_t bytes = 0;
        for (uint32_t b = 0; b < plan->dispatch[i].binding_count; b++, part++)
            bytes += part->source < MICA__PARAMS ? record->operand[part->source].length : part->length;
        found = bytes > most ? i : found;
        most = bytes > most ? bytes : most;
    }
    return found;
}

static mica_status send_planned(mica__lowering *lowering, const mica__record *record,
                                const mica__planned *plan, const mica__plan_dispatch *step,
                                const mica__storage *scratch, uint64_t scratch_offset)
{
    mica__dispatch dispatch = {.kernel = step->found,
                               .grain = step->grain,
                               .local_bytes = step->local_bytes,
                               .binding_count = step->binding_count};
    const mica__plan_binding *part = plan->binding + step->first_binding;
    mica_status status = reserve_bindings(lowering, step->binding_count);
    for (uint32_t i = 0; i < step->binding_count && status == MICA_OK; i++, part++)
        status = part->source < MICA__PARAMS
                     ? bind_operand(lowering, &record->operand[part->source], part->access, i)
                     : bind_other(lowering, step, part, i, scratch, scratch_offset);
    if (status != MICA_OK)
        return status;
    memcpy(dispatch.groups, step->groups, sizeof dispatch.groups);
    memcpy(dispatch.local, step->local, sizeof dispatch.local);
    dispatch.params = plan->params + step->params_offset;
    dispatch.params_size = step->params_size;
    if (lowering->costed && step == &plan->dispatch[main_dispatch(record, plan)])
        set_cost(record, &dispatch);
    return send(lowering, &dispatch, record);
}

static mica_status add_planned(mica__lowering *lowering, const mica__record *record)
{
    mica__storage *scratch = NULL;
    uint64_t offset = 0;
    mica__planned plan;
    mica_status status = mica__plan_cache_get(&lowering->plans, lowering->device, record, &plan);
    if (status == MICA_OK && plan.scratch_bytes > 0)
        status = take_scratch(lowering, plan.scratch_bytes, &scratch, &offset);
    for (uint32_t i = 0; status == MICA_OK && i < plan.dispatch_count; i++)
        status = send_planned(lowering, record, &plan, &plan.dispatch[i], scratch, offset);
    return status;
}

static mica_status add_custom(mica__lowering *lowering, const mica__record *record)
{
    const mica__custom *custom = record->params;
    mica_status status = mica__work_hold_kernel(lowering->work, custom->kernel);
    if (status == MICA_OK)
        status = reserve_bindings(lowering, record->operand_count);
    for (uint32_t i = 0; i < record->operand_count && status == MICA_OK; i++)
        status = bind_operand(lowering, &record->operand[i], record->operand[i].access, i);
    if (status != MICA_OK)
        return status;
    mica__dispatch dispatch = {
        .kernel = custom->kernel->kernel, .grain = 1, .binding_count = record->operand_count};
    memcpy(dispatch.groups, custom->groups, sizeof dispatch.groups);
    memcpy(dispatch.local, custom->local, sizeof dispatch.local);
    dispatch.params = custom + 1;
    dispatch.params_size = custom->params_size;
    return send(lowering, &dispatch, record);
}

void mica__lowering_prepare(mica__lowering *lowering, const mica__record *const *records, uint32_t count)
{
    mica__preparation *preparation = NULL;
    if (lowering->device->info.target == NULL)
        return;
    for (uint32_t i = 0; i < count; i++) {
        if (records[i]->op == MICA_OP_CUSTOM || is_plain_copy(records[i]) ||
            mica__plan_cache_has(&lowering->plans, records[i]))
            continue;
        if (preparation == NULL)
            preparation = mica__preparation_begin(lowering->device, lowering->work->reusable);
        if (preparation == NULL)
            return;
        mica__preparation_add(preparation, records[i]);
    }
    mica__preparation_end(preparation);
}

mica_status mica__lowering_add(mica__lowering *lowering, const mica__record *record, mica__lowered *out)
{
    mica_status status = MICA_OK;
    mica__lowered place = {(uint32_t)lowering->stats.dispatches, 0, 0};
    lowering->record_dispatches = 0;
    if (record->barrier_before)
        mica__lowering_barrier(lowering);
    if (record->op == MICA_OP_CUSTOM)
        status = add_custom(lowering, record);
    else
        status = is_plain_copy(record) ? add_plain_copy(lowering, record) : add_planned(lowering, record);
    if (status != MICA_OK)
        return status;
    lowering->stats.records++;
    place.dispatch_count = lowering->record_dispatches;
    place.group = lowering->record_group;
    if (out != NULL)
        *out = place;
    if (lowering->traced)
        mica__log(MICA_LOG_DEBUG, "record %s \"%s\": %u dispatches, group %u",
                  mica_op_name((mica_op)record->op), record->label, place.dispatch_count, place.group);
    return MICA_OK;
}

void mica__lowering_stats(const mica__lowering *lowering, mica_encoder_stats *out)
{
    *out = lowering->stats;
    uint32_t n = lowering->group_size; /* the group that is still open counts */
    if (n > 0)
        out->group_sizes[n > 8 ? 7 : n - 1]++;
    out->tracker_checks = lowering->tracker.checks;
    out->scratch_bytes = mica__work_scratch(lowering->work);
}
