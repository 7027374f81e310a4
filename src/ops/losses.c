/* losses.c - cross-entropy and its derivative. */
#include "device/objects.h"
#include "ops/check.h"

#define ULL(x) ((unsigned long long)(x))

/* Both ops begin with logits, labels, targets and weight. */
_Static_assert((int)MICA__CROSS_ENTROPY_WEIGHT == (int)MICA__CROSS_ENTROPY_BACKWARD_WEIGHT,
               "the slots of the derivative begin as those of the loss");

void mica__rule_cross_entropy(mica__op_builder *op)
{
    const mica_cross_entropy_params *params = op->record.params;
    const mica__operand *logits = &op->record.operand[MICA__CROSS_ENTROPY_LOGITS];
    const uint64_t classes = mica__op_size(op, 'N');
    mica__op_require(op, params->smoothing >= 0.0f && params->smoothing <= 1.0f,
                     "params.smoothing is %g, not from 0 to 1", (double)params->smoothing);
    mica__op_require(op, params->ignore <= 1, "params.ignore is %u, not 0 or 1", params->ignore);
    mica__op_require(op, !mica__size_known(classes) || classes <= INT32_MAX,
                     "logits: %llu classes, over 2^31", ULL(classes));
    mica__op_require(
        op, mica__op_has(op, MICA__CROSS_ENTROPY_LABELS) != mica__op_has(op, MICA__CROSS_ENTROPY_TARGETS),
        "labels and targets are %s, one of them is to be there",
        mica__op_has(op, MICA__CROSS_ENTROPY_LABELS) ? "both there" : "NULL");
    for (uint32_t slot = MICA__CROSS_ENTROPY_TARGETS; slot < op->record.operand_count; slot++)
        if (mica__op_has(op, slot))
            mica__op_require(
                op, (op->record.operand[slot].dtype == MICA_DTYPE_F64) == (logits->dtype == MICA_DTYPE_F64),
                "%s is %s, but logits is %s", mica__op_argument(op, slot),
                mica_dtype_name((mica_dtype)op->record.operand[slot].dtype),
                mica_dtype_name((mica_dtype)logits->dtype));
}

void mica__rule_cross_entropy_backward(mica__op_builder *op)
{
    mica__rule_cross_entropy(op);
}

mica_status mica_cross_entropy(mica_encoder *encoder, mica_buffer *logits, mica_buffer *labels,
                               mica_buffer *targets, mica_buffer *weight,
                               const mica_cross_entropy_params *params, mica_buffer *loss, mica_buffer *lse)
{
    mica_cross_entropy_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_CROSS_ENTROPY, &record,
                         (mica_buffer *const[]){logits, labels, targets, weight, loss, lse});
}

/* One element, repeated to a number for each row; anything else stays as it is, with one more reference. */
static mica_status for_each_row(mica_buffer *dloss, const mica_buffer *logits, mica_buffer **out)
{
    mica_buffer *single;
    for (uint32_t d = 0; d < dloss->ndim; d++)
        if (dloss->shape[d] != 1) {
            *out = mica_buffer_retain(dloss);
            return MICA_OK;
        }
    MICA__TRY(mica_buffer_view(dloss, dloss->dtype, 0, NULL, NULL, 0, &single));
    const mica_status status = mica_buffer_expand(single, logits->ndim - 1u, logits->shape, out);
    mica_buffer_release(single);
    return status;
}

mica_status mica_cross_entropy_backward(mica_encoder *encoder, mica_buffer *logits, mica_buffer *labels,
                                        mica_buffer *targets, mica_buffer *weight, mica_buffer *lse,
                                        mica_buffer *dloss, const mica_cross_entropy_params *params,
                                        mica_buffer *dlogits)
{
    mica_buffer *repeated = NULL;
    mica_cross_entropy_params record = {0};
    if (params != NULL)
        record = *params;
    if (dloss != NULL && logits != NULL && logits->ndim > 0)
        MICA__TRY(for_each_row(dloss, logits, &repeated));
    const mica_status status =
        mica__op_call(encoder, MICA_OP_CROSS_ENTROPY_BACKWARD, &record,
                      (mica_buffer *const[]){logits, labels, targets, weight, lse, repeated, dlogits});
    mica_buffer_release(repeated);
    return status;
}
