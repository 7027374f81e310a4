/* rows.c - ops over rows: norms, softmax, embedding. */
#include <math.h>

#include "device/objects.h"
#include "ops/norm.h"

void mica__rule_norm(mica__op_builder *op)
{
    const mica_norm_params *params = op->record.params;
    mica__op_require(op, params->eps >= 0.0f && isfinite(params->eps), "eps is %g, not 0 or above and finite",
                     (double)params->eps);
}

mica_status mica_rms_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, float eps,
                          mica_buffer *y)
{
    mica_norm_params params = {eps};
    if (x != NULL && x->dtype == MICA_DTYPE_F64)
        return mica__norm_of_doubles(encoder, MICA_NORMALIZE_RMS, x, weight, NULL, eps, y);
    return mica__op_call(encoder, MICA_OP_RMS_NORM, &params, (mica_buffer *const[]){x, weight, y});
}

mica_status mica_layer_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                            float eps, mica_buffer *y)
{
    mica_norm_params params = {eps};
    if (x != NULL && x->dtype == MICA_DTYPE_F64)
        return mica__norm_of_doubles(encoder, MICA_NORMALIZE_LAYER, x, weight, bias, eps, y);
    return mica__op_call(encoder, MICA_OP_LAYER_NORM, &params, (mica_buffer *const[]){x, weight, bias, y});
}

void mica__rule_softmax_backward(mica__op_builder *op)
{
    const mica_softmax_params *params = op->record.params;
    mica__op_require(op, isfinite(params->scale), "scale is not finite");
    mica__op_require(op, params->log <= 1, "params.log is %u, not 0 or 1", params->log);
    mica__op_all_double(op);
}

void mica__rule_softmax(mica__op_builder *op)
{
    mica__rule_softmax_backward(op);
    if (mica__op_has(op, MICA__SOFTMAX_MASK))
        mica__op_broadcast(op, MICA__SOFTMAX_MASK, MICA__SOFTMAX_X);
}

mica_status mica_softmax(mica_encoder *encoder, mica_buffer *x, float scale, mica_buffer *y)
{
    mica_softmax_params params = {.scale = scale};
    return mica__op_call(encoder, MICA_OP_SOFTMAX, &params, (mica_buffer *const[]){x, NULL, y});
}

mica_status mica_masked_softmax(mica_encoder *encoder, mica_buffer *x, mica_buffer *mask, float scale,
                                mica_buffer *y)
{
    mica_softmax_params params = {.scale = scale};
    return mica__op_call(encoder, MICA_OP_SOFTMAX, &params, (mica_buffer *const[]){x, mask, y});
}

mica_status mica_embedding(mica_encoder *encoder, mica_buffer *table, mica_buffer *ids, mica_buffer *y)
{
    return mica__op_call(encoder, MICA_OP_EMBEDDING, NULL, (mica_buffer *const[]){table, ids, y});
}
