/*
 * rebind.c - other buffers in the same recording.
 *
 * Hazards were found when the recording was lowered, so a rebind may not bring two operands together that
 * were apart. Records and work are changed in step: first the work, which can fail, then the records, which
 * cannot. Plans were chosen then as well, and some ask where an operand begins: where that changes, the work is made anew.
 * Operands are found by their storages (uses.h): what others use is not looked at.
 */
#include <string.h>

#include "base/status.h"
#include "base/work.h"
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
    if (!mica__operand_present(operand) || operand->storage != from->storage ||
        operand->offset != from->offset || operand->dtype != from->dtype || operand->layout != from->layout ||
        operand->ndim < from->ndim)
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
        if (pair[i][1]->storage->memory == NULL)
            return mica__fail(MICA_ERR_STATE, "to is a temporary of a recording session, without memory");
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

/* Walks the uses of a storage: true while there is one more. */
typedef struct walk {
    const mica_recording *recording;
    uint32_t at;
    uint32_t record, slot; /* the use */
    mica__operand *operand;
} walk;

static walk uses_of(mica_recording *recording, const void *storage)
{
    return (walk){.recording = recording, .at = *mica__uses_of(&recording->uses, storage)};
}

static bool more(walk *w)
{
    if (w->at == MICA__USES_END)
        return false;
    const mica__use_node *node = &w->recording->uses.node[w->at];
    w->record = node->record;
    w->slot = node->slot;
    w->operand = &w->recording->pass.list.record[node->record]->operand[node->slot];
    w->at = node->next;
    (void)mica__spend(1);
    return true;
}

/* One that is replaced must be writable if written. */
static mica_status check_written(mica_recording *recording, const swap *swaps, uint32_t count, const swap *s,
                                 bool *out_used)
{
    for (walk w = uses_of(recording, s->from.storage); more(&w);) {
        if (find_swap(swaps, count, w.operand) != s)
            continue;
        *out_used = true;
        if (s->read_only && (w.operand->access & MICA_ACCESS_WRITE))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "to is read-only and record %u (%s) writes from",
                              w.record, mica_op_name((mica_op)recording->pass.list.record[w.record]->op));
    }
    return MICA_OK;
}

/* An operand that stays must not meet `to` unless it met `from`. */
static mica_status check_apart(mica_recording *recording, const swap *swaps, uint32_t count, const swap *s)
{
    for (walk w = uses_of(recording, s->to.storage); more(&w);)
        if (find_swap(swaps, count, w.operand) == NULL && mica__operands_overlap(w.operand, &s->to) &&
            !mica__operands_overlap(w.operand, &s->from))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "to overlaps an operand of record %u (%s) that from did not overlap", w.record,
                              mica_op_name((mica_op)recording->pass.list.record[w.record]->op));
    return MICA_OK;
}

static mica_status check_all(mica_recording *recording, const swap *swaps, uint32_t count, bool *out_used)
{
    *out_used = false;
    for (uint32_t i = 0; i < count; i++)
        MICA__TRY(check_written(recording, swaps, count, &swaps[i], out_used));
    for (uint32_t i = 0; *out_used && i < count; i++)
        MICA__TRY(check_apart(recording, swaps, count, &swaps[i]));
    return MICA_OK;
}

/* ---- changes ---- */

static mica_status rebind_work(mica_recording *recording, const swap *swaps, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (walk w = uses_of(recording, swaps[i].from.storage); more(&w);) {
            if (find_swap(swaps, count, w.operand) != &swaps[i])
                continue;
            const mica__operand to = moved(w.operand, &swaps[i]);
            MICA__TRY(mica__work_rebind(recording->work, &recording->lowered[w.record], w.operand, &to));
        }
    return MICA_OK;
}

/* Changes one operand, and the list that its use is in: `*link` leads to it. */
static void rebind_operand(mica_recording *recording, const swap *s, uint32_t *link)
{
    mica__use_node *node = &recording->uses.node[*link];
    mica__operand *operand = &recording->pass.list.record[node->record]->operand[node->slot];
    mica__storage *old = operand->storage;
    *operand = moved(operand, s);
    mica__storage_retain(operand->storage);
    if (old != operand->storage) {
        uint32_t *first = mica__uses_of(&recording->uses, operand->storage);
        const uint32_t at = *link;
        *link = node->next;
        node->next = *first;
        *first = at;
    }
    mica__storage_release(old);
}

static uint32_t rebind_records(mica_recording *recording, const swap *swaps, uint32_t count)
{
    uint32_t uses = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *link = mica__uses_of(&recording->uses, swaps[i].from.storage);
        while (*link != MICA__USES_END) {
            mica__use_node *node = &recording->uses.node[*link];
            const mica__operand *operand = &recording->pass.list.record[node->record]->operand[node->slot];
            const bool stays = swaps[i].from.storage == swaps[i].to.storage;
            const bool own = find_swap(swaps, count, operand) == &swaps[i];
            if (own)
                rebind_operand(recording, &swaps[i], link);
            if (!own || stays)
                link = &node->next;
            uses += own && i == 0;
        }
    }
    return uses;
}

/* Whether a plan may have been chosen that is wrong for what comes now, or the commands show a temporary, which they know by its
 * place alone. */
static bool wants_new_work(const swap *swaps, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (swaps[i].from.memory == NULL ||
            swaps[i].from.offset % MICA__PLAN_ALIGNMENT != swaps[i].to.offset % MICA__PLAN_ALIGNMENT)
            return true;
    return false;
}

/* The work was changed in part: makes it anew from the records, which were not. */
static void restore_work(mica_recording *recording)
{
    mica__work_release(recording->work);
    recording->work = NULL;
    (void)mica__recording_lower(recording);
}

/* The records first, then work for them; the records go back where none can be made. */
static mica_status rebind_anew(mica_recording *recording, const swap *swaps, uint32_t count,
                               uint32_t *out_uses)
{
    swap back[3];
    const uint32_t uses = rebind_records(recording, swaps, count);
    const mica_status status = mica__recording_lower(recording);
    if (status == MICA_OK) {
        *out_uses = uses;
        return MICA_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        back[i] = (swap){swaps[i].to, swaps[i].from, false};
    rebind_records(recording, back, count);
    restore_work(recording);
    return status;
}

/* Slots that showed `from` show `to`. */
static void rebind_slots(mica_recording *recording, mica_buffer *from, mica_buffer *to)
{
    mica__operand shown_by, gone;
    mica__operand_from(from, MICA_ACCESS_READ, &gone);
    for (uint32_t i = 0; i < recording->pass.slots.count; i++) {
        mica__slot *slot = &recording->pass.slots.slot[i];
        mica__operand_from(slot->buffer, MICA_ACCESS_READ, &shown_by);
        if (!mica__operand_same(&shown_by, &gone))
            continue;
        mica_buffer *old = slot->buffer;
        slot->buffer = mica_buffer_retain(to);
        mica_buffer_release(old);
    }
}

/* Where uses are found, with room for what comes. */
static mica_status find_uses(mica_recording *recording)
{
    if (recording->uses.node != NULL && mica__uses_room(&recording->uses, 6))
        return MICA_OK;
    mica__uses_free(&recording->uses);
    return mica__uses_build(&recording->pass.list, &recording->uses);
}

static mica_status change(mica_recording *recording, const swap *swaps, uint32_t count, uint32_t *out_uses)
{
    if (recording->work == NULL)
        return mica__fail(MICA_ERR_STATE, "recording was left without commands by a failed rebind");
    (void)mica__work_wait(recording->work, NULL, NULL);
    mica__storages_free(&recording->storages);
    if (wants_new_work(swaps, count))
        return rebind_anew(recording, swaps, count, out_uses);
    const mica_status status = rebind_work(recording, swaps, count);
    if (status != MICA_OK) {
        restore_work(recording);
        return status;
    }
    *out_uses = rebind_records(recording, swaps, count);
    return MICA_OK;
}

/* Lock held. */
static mica_status rebind(mica_recording *recording, mica_buffer *from, mica_buffer *to, uint32_t *out_uses)
{
    swap swaps[3];
    uint32_t count = 0;
    bool used = false;
    MICA__TRY(gather(recording, from, to, swaps, &count));
    MICA__TRY(find_uses(recording));
    MICA__TRY(check_all(recording, swaps, count, &used));
    if (used)
        MICA__TRY(change(recording, swaps, count, out_uses));
    rebind_slots(recording, from, to);
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

static mica_status bind(mica_recording *recording, const char *name, mica_buffer *buffer)
{
    uint32_t uses = 0;
    const mica__slot *slot = mica__slots_find(&recording->pass.slots, name);
    if (slot == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "name is \"%.63s\", which the recording has no slot of",
                          name);
    mica_buffer *from = mica_buffer_retain(slot->buffer);
    const mica_status status = rebind(recording, from, buffer, &uses);
    mica_buffer_release(from);
    return status;
}

mica_status mica_recording_bind(mica_recording *recording, const char *name, mica_buffer *buffer)
{
    if (recording == NULL || name == NULL || buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_bind: %s is NULL",
                          recording == NULL ? "recording"
                          : name == NULL    ? "name"
                                            : "buffer");
    mica__call call;
    mica__passes_begin(&call, "recording_bind");
    mica__recording_lock(recording);
    const mica_status status = bind(recording, name, buffer);
    mica__recording_unlock(recording);
    return mica__call_end(&call, status);
}
