/*
 * rebind.c - other buffers in the same recording.
 *
 * Hazards were found when the recording was lowered, so a rebind may not bring two operands together that
 * were apart. Records and work are changed in step: first the work, which can fail, then the records, which
 * cannot. Plans were chosen then as well, and some ask where an operand begins: where that changes, the work is made anew.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "device/plan_cache.h"
#include "session/dataflow.h"
#include "session/passes.h"
#include "session/recording.h"

/* One view that is replaced by another; an affine weight brings its scales and biases along. */
typedef struct swap {
    mica__operand from, to;
    bool read_only;
} swap;

/* Is the operand the view `from`, or `from` repeated as broadcasting ops do it? */
static bool is_use(const mica__operand *operand, const mica__operand *from)
{
    if (operand->memory == NULL || operand->storage != from->storage || operand->offset != from->offset ||
        operand->dtype != from->dtype || operand->layout != from->layout || operand->ndim < from->ndim)
        return false;
    uint32_t extra = (uint32_t)(operand->ndim - from->ndim);
    for (uint32_t d = 0; d < extra; d++)
        if (operand->stride[d] != 0 && operand->shape[d] != 1)
            return false;
    for (uint32_t d = 0; d < from->ndim; d++) {
        uint64_t shape = operand->shape[d + extra], stride = operand->stride[d + extra];
        bool same = shape == from->shape[d] && stride == from->stride[d];
        bool repeated = from->shape[d] == 1 && (stride == 0 || shape == 1);
        if (!same && !repeated)
            return false;
    }
    return true;
}

static mica__operand moved(const mica__operand *operand, const swap *s)
{
    mica__operand result = *operand;
    result.memory = s->to.memory;
    result.storage = s->to.storage;
    result.offset = s->to.offset;
    result.temporary = s->to.temporary;
    return result;
}

static const swap *find_swap(const swap *swaps, uint32_t count, const mica__operand *operand)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_use(operand, &swaps[i].from))
            return &swaps[i];
    return NULL;
}

/* ---- checks ---- */

static mica_status check_alike(const swap *s)
{
    const mica__operand *from = &s->from, *to = &s->to;
    const char *what = NULL;
    if (from->dtype != to->dtype)
        what = "dtype";
    else if (from->layout != to->layout || from->group_size != to->group_size)
        what = "layout";
    else if (from->ndim != to->ndim ||
             memcmp(from->shape, to->shape, from->ndim * sizeof from->shape[0]) != 0)
        what = "shape";
    else if (memcmp(from->stride, to->stride, from->ndim * sizeof from->stride[0]) != 0)
        what = "strides";
    if (what != NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "to has another %s than from", what);
    return MICA_OK;
}

/* `from` and `to` with what hangs on them, as operands. */
static mica_status gather(const mica_recording *recording, const mica_buffer *from, const mica_buffer *to,
                          swap *swaps, uint32_t *out_count)
{
    const mica_buffer *pair[3][2] = {{from, to}, {from->scales, to->scales}, {from->biases, to->biases}};
    *out_count = 0;
    if (from->storage->device != recording->device || to->storage->device != recording->device)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is on another device than the recording",
                          from->storage->device != recording->device ? "from" : "to");
    for (uint32_t i = 0; i < 3; i++) {
        if (pair[i][0] == NULL || pair[i][1] == NULL)
            continue;
        swap *s = &swaps[(*out_count)++];
        mica__operand_from(pair[i][0], MICA_ACCESS_READ, &s->from);
        mica__operand_from(pair[i][1], MICA_ACCESS_READ, &s->to);
        s->read_only = pair[i][1]->read_only;
        mica_status status = check_alike(s);
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

/* An operand that stays must not meet `to` unless it met `from`; one that is replaced must be writable if
 * written. */
static mica_status check_operand(const mica__record *record, uint32_t index, const mica__operand *operand,
                                 const swap *swaps, uint32_t count)
{
    const swap *own = find_swap(swaps, count, operand);
    if (own != NULL) {
        if (own->read_only && (operand->access & MICA_ACCESS_WRITE))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "to is read-only and record %u (%s) writes from",
                              index, mica_op_name((mica_op)record->op));
        return MICA_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        if (mica__operands_overlap(operand, &swaps[i].to) && !mica__operands_overlap(operand, &swaps[i].from))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "to overlaps an operand of record %u (%s) that from did not overlap", index,
                              mica_op_name((mica_op)record->op));
    return MICA_OK;
}

static mica_status check_all(const mica__record_list *list, const swap *swaps, uint32_t count)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const mica__record *record = list->record[i];
        for (uint32_t k = 0; k < record->operand_count; k++) {
            mica_status status = check_operand(record, i, &record->operand[k], swaps, count);
            if (status != MICA_OK)
                return status;
        }
    }
    return MICA_OK;
}

static bool is_used(const mica__record_list *list, const swap *swaps, uint32_t count)
{
    for (uint32_t i = 0; i < list->count; i++)
        for (uint32_t k = 0; k < list->record[i]->operand_count; k++)
            if (find_swap(swaps, count, &list->record[i]->operand[k]) != NULL)
                return true;
    return false;
}

/* ---- changes ---- */

static mica_status rebind_work(mica_recording *recording, const swap *swaps, uint32_t count)
{
    for (uint32_t i = 0; i < recording->list.count; i++) {
        const mica__record *record = recording->list.record[i];
        for (uint32_t k = 0; k < record->operand_count; k++) {
            const swap *s = find_swap(swaps, count, &record->operand[k]);
            if (s == NULL)
                continue;
            uint32_t bindings = 0;
            mica__operand to = moved(&record->operand[k], s);
            mica_status status = mica__work_rebind(recording->work, &record->operand[k], &to, &bindings);
            if (status != MICA_OK)
                return status;
        }
    }
    return MICA_OK;
}

static uint32_t rebind_records(mica__record_list *list, const swap *swaps, uint32_t count)
{
    uint32_t uses = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        mica__record *record = list->record[i];
        for (uint32_t k = 0; k < record->operand_count; k++) {
            const swap *s = find_swap(swaps, count, &record->operand[k]);
            if (s == NULL)
                continue;
            mica__storage *old = record->operand[k].storage;
            record->operand[k] = moved(&record->operand[k], s);
            mica__storage_retain(record->operand[k].storage);
            mica__storage_release(old);
            uses += s == &swaps[0];
        }
    }
    return uses;
}

/* The work was changed in part: makes it anew from the records, which were not. */
static void restore_work(mica_recording *recording)
{
    mica_session_stats ignored = {0};
    mica__work_release(recording->work);
    recording->work = NULL;
    (void)mica__passes_lower(recording->device, &recording->list, recording->lowered, &ignored,
                             &recording->work);
}

/* Whether a plan may have been chosen that is wrong for what comes now. */
static bool moves_between_multiples(const swap *swaps, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (swaps[i].from.offset % MICA__PLAN_ALIGNMENT != swaps[i].to.offset % MICA__PLAN_ALIGNMENT)
            return true;
    return false;
}

/* The records first, then work for them; the records go back where none can be made. */
static mica_status rebind_anew(mica_recording *recording, const swap *swaps, uint32_t count,
                               uint32_t *out_uses)
{
    swap back[3];
    mica__work *work = NULL;
    mica_session_stats ignored = {0};
    const uint32_t uses = rebind_records(&recording->list, swaps, count);
    const mica_status status =
        mica__passes_lower(recording->device, &recording->list, recording->lowered, &ignored, &work);
    if (status == MICA_OK) {
        mica__work_release(recording->work);
        recording->work = work;
        *out_uses = uses;
        return MICA_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        back[i] = (swap){swaps[i].to, swaps[i].from, false};
    rebind_records(&recording->list, back, count);
    restore_work(recording);
    return status;
}

static mica_status rebind(mica_recording *recording, const mica_buffer *from, const mica_buffer *to,
                          uint32_t *out_uses)
{
    swap swaps[3];
    uint32_t count = 0;
    mica_status status = gather(recording, from, to, swaps, &count);
    if (status != MICA_OK || !is_used(&recording->list, swaps, count))
        return status;
    status = check_all(&recording->list, swaps, count);
    if (status == MICA_OK && recording->work == NULL)
        status = mica__fail(MICA_ERR_STATE, "recording was left without commands by a failed rebind");
    if (status != MICA_OK)
        return status;
    (void)mica__work_wait(recording->work, NULL, NULL);
    mica__storages_free(&recording->storages);
    if (moves_between_multiples(swaps, count))
        return rebind_anew(recording, swaps, count, out_uses);
    status = rebind_work(recording, swaps, count);
    if (status != MICA_OK) {
        restore_work(recording);
        return status;
    }
    *out_uses = rebind_records(&recording->list, swaps, count);
    return MICA_OK;
}

mica_status mica_recording_rebind(mica_recording *recording, mica_buffer *from, mica_buffer *to,
                                  uint32_t *out_uses)
{
    uint32_t uses = 0;
    if (out_uses != NULL)
        *out_uses = 0;
    if (recording == NULL || from == NULL || to == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_rebind: %s is NULL",
                          recording == NULL ? "recording"
                          : from == NULL    ? "from"
                                            : "to");
    mica__call call;
    mica__passes_begin(&call, "recording_rebind");
    mica__recording_lock(recording);
    const mica_status status = rebind(recording, from, to, &uses);
    mica__recording_unlock(recording);
    if (out_uses != NULL)
        *out_uses = uses;
    return mica__call_end(&call, status);
}
