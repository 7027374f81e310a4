/* gpu_plan_sample.c - plans of the end of a decode step: penalize and sample. */
#include <stddef.h>
#include <string.h>

#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define MOST_TOKENS (1u << 24) /* sample counts in f32 */
#define SAMPLE_GROUP 1024u     /* work-items to a row on CUDA; OpenCL drivers let this kernel have 256 */

_Static_assert(offsetof(mica_sample_settings, temperature) == MK_SETTINGS_TEMPERATURE &&
                   offsetof(mica_sample_settings, keep) == MK_SETTINGS_KEEP &&
                   offsetof(mica_sample_settings, repeat_penalty) == MK_SETTINGS_REPEAT &&
                   offsetof(mica_sample_settings, flags) == MK_SETTINGS_FLAGS,
               "kernels know the places of the settings");

static bool is_there(const mica__record *record, uint32_t slot)
{
    return mica__operand_present(&record->operand[slot]);
}

static uint64_t row_stride(const mica__record *record, uint32_t slot)
{
    return is_there(record, slot) ? record->operand[slot].stride[0] : 0;
}

/* How many a row of the operand has; 0 without it. */
static uint32_t row_length(const mica__record *record, uint32_t slot)
{
    return is_there(record, slot) ? (uint32_t)record->operand[slot].shape[1] : 0;
}

static uint32_t type_of(const mica__record *record, uint32_t slot)
{
    return mica__gpu_type(record->operand[slot].dtype);
}

/* `slots`: the widths that kernels count in 32 bits. */
static mica_status check_widths(const mica__record *record, uint32_t slots)
{
    for (uint32_t slot = 0; slot < record->operand_count; slot++) {
        const mica__operand *operand = &record->operand[slot];
        if ((slots >> slot & 1) != 0 && mica__operand_present(operand) && operand->shape[1] > MOST_TOKENS)
            return mica__fail(MICA_ERR_UNSUPPORTED, "%s: operand %u has rows of %llu, at most %u are served",
                              mica_op_name((mica_op)record->op), slot, (unsigned long long)operand->shape[1],
                              MOST_TOKENS);
    }
    return MICA_OK;
}

mica_status mica__gpu_plan_penalize(const mica__record *record, const mica__device_info *info,
                                    mica__plan *plan)
{
    const mica__operand *y = &record->operand[MICA__PENALIZE_Y];
    const uint64_t tiles = (y->shape[1] + MK_PENALIZE_TILE - 1) / MK_PENALIZE_TILE;
    mk_penalize_params params;
    (void)info;
    memset(&params, 0, sizeof params);
    mica_status status = mica__gpu_check_floats(
        record, 1u << MICA__PENALIZE_LOGITS | 1u << MICA__PENALIZE_BIAS | 1u << MICA__PENALIZE_Y);
    if (status == MICA_OK)
        status = check_widths(record, UINT32_MAX);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "penalize/penalize", y->shape[0] * tiles);
    if (status != MICA_OK)
        return status;
    params.logits_row = row_stride(record, MICA__PENALIZE_LOGITS);
    params.settings_row = row_stride(record, MICA__PENALIZE_SETTINGS);
    params.bias_ids_row = row_stride(record, MICA__PENALIZE_BIAS_IDS);
    params.bias_row = row_stride(record, MICA__PENALIZE_BIAS);
    params.mask_row = row_stride(record, MICA__PENALIZE_MASK);
    params.history_row = row_stride(record, MICA__PENALIZE_HISTORY);
    params.y_row = row_stride(record, MICA__PENALIZE_Y);
    params.n = row_length(record, MICA__PENALIZE_Y);
    params.tiles = (uint32_t)tiles;
    params.bias_slots = row_length(record, MICA__PENALIZE_BIAS_IDS);
    params.width = row_length(record, MICA__PENALIZE_HISTORY);
    params.logits_type = type_of(record, MICA__PENALIZE_LOGITS);
    params.bias_type = type_of(record, MICA__PENALIZE_BIAS);
    params.y_type = type_of(record, MICA__PENALIZE_Y);
    params.flags = (is_there(record, MICA__PENALIZE_BIAS_IDS) ? MK_HAS_BIAS : 0) |
                   (is_there(record, MICA__PENALIZE_MASK) ? MK_HAS_BAN : 0) |
                   (is_there(record, MICA__PENALIZE_HISTORY) ? MK_HAS_HISTORY : 0);
    params.fault_code = mica__gpu_fault_code(record);
    for (uint32_t o = 0; o < MICA__PENALIZE_SLOTS; o++)
        mica__gpu_plan_operand(plan, record, o, 0);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}

mica_status mica__gpu_plan_sample(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    mk_sample_params params;
    memset(&params, 0, sizeof params);
    mica_status status = mica__gpu_check_floats(record, 1u << MICA__SAMPLE_LOGITS | 1u << MICA__SAMPLE_RAW |
                                                            1u << MICA__SAMPLE_LOG_PROBABILITIES);
    if (status == MICA_OK)
        status = check_widths(record, 1u << MICA__SAMPLE_LOGITS | 1u << MICA__SAMPLE_HISTORY);
    if (status == MICA_OK)
        status = mica__gpu_plan_next(plan, "sample/sample", record->operand[MICA__SAMPLE_LOGITS].shape[0]);
    if (status != MICA_OK)
        return status;
    if ((info->features & MICA__FEATURE_SLOW_BARRIER) != 0)
        mica__gpu_plan_constant(plan, "MK_WG", 1);
    else if (info->compute != 0)
        mica__gpu_plan_constant(plan, "MK_WG", SAMPLE_GROUP);
    params.logits_row = row_stride(record, MICA__SAMPLE_LOGITS);
    params.raw_row = row_stride(record, MICA__SAMPLE_RAW);
    params.settings_row = row_stride(record, MICA__SAMPLE_SETTINGS);
    params.history_row = row_stride(record, MICA__SAMPLE_HISTORY);
    params.ids_row = row_stride(record, MICA__SAMPLE_IDS);
    params.chances_row = row_stride(record, MICA__SAMPLE_LOG_PROBABILITIES);
    params.n = row_length(record, MICA__SAMPLE_LOGITS);
    params.width = row_length(record, MICA__SAMPLE_HISTORY);
    params.logits_type = type_of(record, MICA__SAMPLE_LOGITS);
    params.raw_type = type_of(record, MICA__SAMPLE_RAW);
    params.chances_type = type_of(record, MICA__SAMPLE_LOG_PROBABILITIES);
    params.flags = (is_there(record, MICA__SAMPLE_RAW) ? MK_HAS_RAW : 0) |
                   (is_there(record, MICA__SAMPLE_HISTORY) ? MK_HAS_HISTORY : 0) |
                   (is_there(record, MICA__SAMPLE_LOG_PROBABILITIES) ? MK_HAS_CHANCES : 0);
    for (uint32_t o = 0; o < MICA__SAMPLE_SLOTS; o++)
        mica__gpu_plan_operand(plan, record, o, 0);
    mica__gpu_plan_params(plan, &params, sizeof params);
    return MICA_OK;
}
