/* sample.c - the end of a decode step: logits changed by what was said before, and one token picked of them. */
#include "base/status.h"
#include "ops/check.h"

_Static_assert(sizeof(mica_sample_settings) == MICA_SAMPLE_WORDS * sizeof(uint32_t),
               "a row of settings is its words");

/* Ids have 32 bits, and both ops may have a history. */
static void check_ids(mica__op_builder *op)
{
    const uint64_t vocabulary = mica__op_size(op, 'V'), history = mica__op_size(op, 'H');
    mica__op_require(op, vocabulary < UINT32_MAX || !mica__size_known(vocabulary),
                     "logits: shape[1] is over 2^32 - 2, ids have 32 bits");
    mica__op_require(op, history <= UINT32_MAX / 2 || !mica__size_known(history),
                     "history: shape[1] is over 2^31");
}

void mica__rule_penalize(mica__op_builder *op)
{
    const bool ids = mica__op_has(op, MICA__PENALIZE_BIAS_IDS), bias = mica__op_has(op, MICA__PENALIZE_BIAS);
    const uint64_t words = mica__op_size(op, 'W'), vocabulary = mica__op_size(op, 'V');
    check_ids(op);
    mica__op_require(op, ids == bias, "%s is NULL: bias_ids and bias go together", ids ? "bias" : "bias_ids");
    mica__op_require(op,
                     !mica__op_has(op, MICA__PENALIZE_MASK) || !mica__size_known(vocabulary) ||
                         words >= (vocabulary + 31) / 32,
                     "mask: shape[1] is %llu, expected at least %llu words for %llu logits",
                     (unsigned long long)words, (unsigned long long)((vocabulary + 31) / 32),
                     (unsigned long long)vocabulary);
}

mica_status mica_penalize(mica_encoder *encoder, const mica_penalize_operands *operands, mica_buffer *y)
{
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "penalize: operands is NULL");
    return mica__op_call(encoder, MICA_OP_PENALIZE, NULL,
                         (mica_buffer *const[]){operands->logits, operands->settings, operands->bias_ids,
                                                operands->bias, operands->mask, operands->history, y});
}

void mica__rule_sample(mica__op_builder *op)
{
    check_ids(op);
}

mica_status mica_sample(mica_encoder *encoder, const mica_sample_operands *operands, mica_buffer *ids,
                        mica_buffer *log_probabilities)
{
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sample: operands is NULL");
    return mica__op_call(encoder, MICA_OP_SAMPLE, NULL,
                         (mica_buffer *const[]){operands->logits, operands->raw, operands->settings,
                                                operands->history, ids, log_probabilities});
}
