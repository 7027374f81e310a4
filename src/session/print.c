/*
 * print.c - what a recording looks like: per record, per operand, as text.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/region.h"
#include "backend/op_table.h"
#include "base/status.h"
#include "session/recording.h"

uint32_t mica_recording_count(const mica_recording *recording)
{
    if (recording == NULL)
        return 0;
    mica_recording *locked = mica__recording_lock(recording);
    uint32_t count = locked->pass.list.count;
    mica__recording_unlock(locked);
    return count;
}

mica_status mica_recording_get_stats(const mica_recording *recording, mica_session_stats *out)
{
    if (recording == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_get_stats: %s is NULL",
                          recording == NULL ? "recording" : "out");
    mica_recording *locked = mica__recording_lock(recording);
    *out = locked->stats;
    mica__recording_unlock(locked);
    return MICA_OK;
}

/* ---- one record, one operand ---- */

static mica_status check_index(const char *call, const mica_recording *recording, uint32_t index)
{
    if (index >= recording->pass.list.count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: index is %u of %u records", call, index,
                          recording->pass.list.count);
    return MICA_OK;
}

static void fill_record(const mica_recording *recording, uint32_t index, mica_record_info *out)
{
    const mica__record *record = recording->pass.list.record[index];
    memset(out, 0, sizeof *out);
    out->op = (mica_op)record->op;
    snprintf(out->label, sizeof out->label, "%s", record->label);
    snprintf(out->fused, sizeof out->fused, "%s", record->fused);
    out->operand_count = record->operand_count;
    out->dispatches = recording->lowered[index].dispatch_count;
    out->group = recording->lowered[index].group;
    out->original_index = record->original_index;
    mica__op_cost(record, &out->bytes, &out->operations);
}

static void fill_operand(const mica_recording *recording, const mica__operand *operand,
                         mica_operand_info *out)
{
    const mica__placement *placement = &recording->pass.placement;
    memset(out, 0, sizeof *out);
    if (!mica__operand_present(operand))
        return;
    out->dtype = (mica_dtype)operand->dtype;
    out->access = operand->access;
    out->ndim = operand->ndim;
    memcpy(out->shape, operand->shape, operand->ndim * sizeof out->shape[0]);
    memcpy(out->stride, operand->stride, operand->ndim * sizeof out->stride[0]);
    out->storage = mica__storages_find(&recording->storages, operand->storage);
    out->byte_begin = operand->offset;
    out->byte_end = operand->offset + operand->length;
    out->temporary = operand->temporary;
    out->placed = operand->memory == NULL;
    if (out->placed)
        out->place = placement->offset[mica__storages_find(&placement->storages, operand->storage)];
}

mica_status mica_recording_inspect(const mica_recording *recording, uint32_t index, mica_record_info *out)
{
    if (recording == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_inspect: %s is NULL",
                          recording == NULL ? "recording" : "out");
    mica_recording *locked = mica__recording_lock(recording);
    mica_status status = check_index("recording_inspect", locked, index);
    if (status == MICA_OK)
        fill_record(locked, index, out);
    mica__recording_unlock(locked);
    return status;
}

mica_status mica_recording_operand(const mica_recording *recording, uint32_t index, uint32_t operand,
                                   mica_operand_info *out)
{
    if (recording == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_operand: %s is NULL",
                          recording == NULL ? "recording" : "out");
    mica_recording *locked = mica__recording_lock(recording);
    mica_status status = check_index("recording_operand", locked, index);
    if (status == MICA_OK && operand >= locked->pass.list.record[index]->operand_count)
        status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_operand: operand is %u of %u", operand,
                            (unsigned)locked->pass.list.record[index]->operand_count);
    if (status == MICA_OK)
        status = mica__recording_number(locked);
    if (status == MICA_OK)
        fill_operand(locked, &locked->pass.list.record[index]->operand[operand], out);
    mica__recording_unlock(locked);
    return status;
}

/* ---- text ---- */

typedef struct text {
    char *out;
    uint64_t capacity, length; /* length counts on past the capacity */
} text;

static void put(text *t, const char *format, ...) MICA__PRINTF(2, 3);
static void put(text *t, const char *format, ...)
{
    va_list arguments;
    uint64_t room = t->length < t->capacity ? t->capacity - t->length : 0;
    va_start(arguments, format);
    int n = vsnprintf(room > 0 ? t->out + t->length : NULL, room, format, arguments);
    va_end(arguments);
    t->length += n > 0 ? (uint64_t)n : 0;
}

/* "r f32[1,64] #3+0..256", a temporary's number followed by t and where it lies in the arena (#3t@512), an absent operand
 * "-". */
static void put_operand(text *t, const mica_operand_info *operand)
{
    static const char *const marks[] = {"", "r", "w", "rw"};
    if (operand->dtype == MICA_DTYPE_NONE) {
        put(t, "-");
        return;
    }
    put(t, "%s %s[", marks[operand->access & 3], mica_dtype_name(operand->dtype));
    for (uint32_t d = 0; d < operand->ndim; d++)
        put(t, d == 0 ? "%llu" : ",%llu", (unsigned long long)operand->shape[d]);
    put(t, "] #%llu%s", (unsigned long long)operand->storage, operand->temporary ? "t" : "");
    if (operand->placed)
        put(t, "@%llu", (unsigned long long)operand->place);
    put(t, "+%llu..%llu", (unsigned long long)operand->byte_begin, (unsigned long long)operand->byte_end);
}

/* The scalars of a region, in the order of its steps. */
static void put_steps(text *t, const mica__region_program *program)
{
    for (uint32_t s = 0; s < program->step_count; s++)
        put(t, "%s%s", s == 0 ? " (" : " ", mica_scalar_name(program->step[s].scalar));
    if (program->step_count > 0)
        put(t, ")");
}

static void put_record(text *t, const mica_recording *recording, uint32_t index)
{
    const mica__record *record = recording->pass.list.record[index];
    const mica__lowered *place = &recording->lowered[index];
    put(t, "%u: group %u, %u %s: %s", index, place->group, place->dispatch_count,
        place->dispatch_count == 1 ? "dispatch" : "dispatches", mica_op_name((mica_op)record->op));
    if (mica__region_of(record) != NULL)
        put_steps(t, mica__region_of(record));
    if (record->fused[0] != '\0')
        put(t, " {%s}", record->fused);
    if (record->label[0] != '\0')
        put(t, " \"%s\"", record->label);
    put(t, " (");
    for (uint32_t k = 0; k < record->operand_count; k++) {
        mica_operand_info operand;
        fill_operand(recording, &record->operand[k], &operand);
        put(t, "%s", k == 0 ? "" : ", ");
        put_operand(t, &operand);
    }
    put(t, ")\n");
}

mica_status mica_recording_print(const mica_recording *recording, char *out_text, uint64_t capacity,
                                 uint64_t *out_length)
{
    text t = {out_text, capacity, 0};
    if (out_length != NULL)
        *out_length = 0;
    if (recording == NULL || (out_text == NULL && capacity > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "recording_print: %s is NULL",
                          recording == NULL ? "recording" : "text");
    if (capacity > 0)
        out_text[0] = '\0';
    mica_recording *locked = mica__recording_lock(recording);
    mica_status status = mica__recording_number(locked);
    for (uint32_t i = 0; status == MICA_OK && i < locked->pass.list.count; i++)
        put_record(&t, locked, i);
    mica__recording_unlock(locked);
    if (out_length != NULL)
        *out_length = t.length;
    return status;
}
