/* sample.c - the end of a decode step: logits changed by what was said before, and one token picked of them. */
#include "base/status.h"
#include "ops/check.h"

_Static_assert(sizeof(mica_sample_settings) == MICA_SAMPLE_WORDS * sizeof(uint32_t),
               "a row of settings is its words");

/* The operands that both ops have: logits or what stands for them in `logits`, settings, maybe a history. */
static void check_rows(mica__op_builder *op, uint32_t logits, uint32_t settings, uint32_t history)
{
    const uint64_t rows = mica__op_size(op, logits, 0);
    mica__op_require(op, mica__op_size(op, logits, 1) < UINT32_MAX,
                     "logits: shape[1] is over 2^32 - 2, ids have 32 bits");
    mica__op_dim(op, settings, 0, rows, "the number of rows of logits");
    mica__op_dim(op, settings, 1, MICA_SAMPLE_WORDS, "the words of mica_sample_settings");
    mica__op_dim(op, history, 0, rows, "the number of rows of logits");
    mica__op_require(op, !mica__op_ok(op) || op->operand[settings].dtype == MICA_DTYPE_U32,
                     "settings: is i32, expected u32");
    mica__op_require(op,
                     op->operand[history].memory == NULL || mica__op_size(op, history, 1) <= UINT32_MAX / 2,
                     "history: shape[1] is over 2^31");
    mica__op_rows(op, logits);
    mica__op_rows(op, settings);
    mica__op_rows(op, history);
}

mica_status mica_penalize(mica_encoder *encoder, const mica_penalize_operands *operands, mica_buffer *y)
{
    mica__op_builder op;
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "penalize: operands is NULL");
    mica__op_begin(&op, encoder, MICA_OP_PENALIZE, MICA__PENALIZE_SLOTS, op.operand, 0);
    mica__op_read(&op, MICA__PENALIZE_LOGITS, "logits", operands->logits, MICA__KIND_ACTIVATION, 2, 2);
    mica__op_read(&op, MICA__PENALIZE_SETTINGS, "settings", operands->settings, MICA__KIND_INDEX, 2, 2);
    mica__op_read_optional(&op, MICA__PENALIZE_BIAS_IDS, "bias_ids", operands->bias_ids, MICA__KIND_INDEX, 2,
                           2);
    mica__op_read_optional(&op, MICA__PENALIZE_BIAS, "bias", operands->bias, MICA__KIND_ACTIVATION, 2, 2);
    mica__op_read_optional(&op, MICA__PENALIZE_MASK, "mask", operands->mask, MICA__KIND_INDEX, 2, 2);
    mica__op_read_optional(&op, MICA__PENALIZE_HISTORY, "history", operands->history, MICA__KIND_INDEX, 2, 2);
    mica__op_write(&op, MICA__PENALIZE_Y, "y", y, MICA__KIND_ACTIVATION, 2, 2);
    mica__op_require(&op, (operands->bias == NULL) == (operands->bias_ids == NULL),
                     "%s is NULL: bias_ids and bias go together",
                     operands->bias == NULL ? "bias" : "bias_ids");
    mica__op_same_shape(&op, MICA__PENALIZE_LOGITS, MICA__PENALIZE_Y);
    check_rows(&op, MICA__PENALIZE_LOGITS, MICA__PENALIZE_SETTINGS, MICA__PENALIZE_HISTORY);
    const uint64_t rows = mica__op_size(&op, MICA__PENALIZE_LOGITS, 0);
    if (mica__op_ok(&op) && operands->bias_ids != NULL) {
        mica__op_dim(&op, MICA__PENALIZE_BIAS_IDS, 0, rows, "the number of rows of logits");
        mica__op_same_shape(&op, MICA__PENALIZE_BIAS, MICA__PENALIZE_BIAS_IDS);
    }
    mica__op_dim(&op, MICA__PENALIZE_MASK, 0, rows, "the number of rows of logits");
    if (mica__op_ok(&op) && operands->mask != NULL) {
        const uint64_t words = mica__op_size(&op, MICA__PENALIZE_MASK, 1),
                       vocabulary = mica__op_size(&op, MICA__PENALIZE_LOGITS, 1);
        mica__op_require(&op, words >= (vocabulary + 31) / 32,
                         "mask: shape[1] is %llu, expected at least %llu words for %llu logits",
                         (unsigned long long)words, (unsigned long long)((vocabulary + 31) / 32),
                         (unsigned long long)vocabulary);
    }
    mica__op_rows(&op, MICA__PENALIZE_BIAS_IDS);
    mica__op_rows(&op, MICA__PENALIZE_BIAS);
    mica__op_rows(&op, MICA__PENALIZE_MASK);
    mica__op_rows(&op, MICA__PENALIZE_Y);
    mica__op_in_place(&op, MICA__PENALIZE_LOGITS);
    return mica__op_add(&op);
}

mica_status mica_sample(mica_encoder *encoder, const mica_sample_operands *operands, mica_buffer *ids,
                        mica_buffer *log_probabilities)
{
    mica__op_builder op;
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sample: operands is NULL");
    mica__op_begin(&op, encoder, MICA_OP_SAMPLE, MICA__SAMPLE_SLOTS, op.operand, 0);
    mica__op_read(&op, MICA__SAMPLE_LOGITS, "logits", operands->logits, MICA__KIND_ACTIVATION, 2, 2);
    mica__op_read_optional(&op, MICA__SAMPLE_RAW, "raw", operands->raw, MICA__KIND_ACTIVATION, 2, 2);
    mica__op_update(&op, MICA__SAMPLE_SETTINGS, "settings", operands->settings, MICA__KIND_INDEX, 2, 2);
    if (operands->history != NULL)
        mica__op_update(&op, MICA__SAMPLE_HISTORY, "history", operands->history, MICA__KIND_INDEX, 2, 2);
    mica__op_write(&op, MICA__SAMPLE_IDS, "ids", ids, MICA__KIND_INDEX, 1, 1);
    if (log_probabilities != NULL)
        mica__op_write(&op, MICA__SAMPLE_LOG_PROBABILITIES, "log_probabilities", log_probabilities,
                       MICA__KIND_ACTIVATION, 1, 1);
    check_rows(&op, MICA__SAMPLE_LOGITS, MICA__SAMPLE_SETTINGS, MICA__SAMPLE_HISTORY);
    const uint64_t rows = mica__op_size(&op, MICA__SAMPLE_LOGITS, 0);
    if (mica__op_ok(&op) && operands->raw != NULL)
        mica__op_same_shape(&op, MICA__SAMPLE_RAW, MICA__SAMPLE_LOGITS);
    mica__op_dim(&op, MICA__SAMPLE_IDS, 0, rows, "the number of rows of logits");
    mica__op_dim(&op, MICA__SAMPLE_LOG_PROBABILITIES, 0, rows, "the number of rows of logits");
    mica__op_rows(&op, MICA__SAMPLE_RAW);
    mica__op_rows(&op, MICA__SAMPLE_LOG_PROBABILITIES);
    return mica__op_add(&op);
}
