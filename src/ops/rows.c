/* rows.c - ops over rows: norms, softmax, argmax, embedding. */
#include <math.h>

#include "base/status.h"
#include "ops/check.h"

mica_status mica_rms_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, float eps,
                          mica_buffer *y)
{
    mica__op_builder op;
    mica__norm_params params = {eps};
    mica__op_begin(&op, encoder, MICA_OP_RMS_NORM, MICA__NORM_SLOTS, &params, sizeof params);
    mica__op_read(&op, MICA__NORM_X, "x", x, MICA__KIND_ACTIVATION, 1, MICA_MAX_DIMS);
    mica__op_read_optional(&op, MICA__NORM_WEIGHT, "weight", weight, MICA__KIND_ACTIVATION, 1, 1);
    mica__op_write(&op, MICA__NORM_Y, "y", y, MICA__KIND_ACTIVATION, 1, MICA_MAX_DIMS);
    mica__op_require(&op, eps >= 0.0f && isfinite(eps), "eps is %g, not 0 or above and finite", (double)eps);
    mica__op_same_shape(&op, MICA__NORM_X, MICA__NORM_Y);
    mica__op_dim(&op, MICA__NORM_WEIGHT, 0, mica__op_size(&op, MICA__NORM_X, -1), "the last dimension of x");
    mica__op_rows(&op, MICA__NORM_X);
    mica__op_rows(&op, MICA__NORM_WEIGHT);
    mica__op_rows(&op, MICA__NORM_Y);
    mica__op_in_place(&op, MICA__NORM_X);
    return mica__op_add(&op);
}

mica_status mica_layer_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                            float eps, mica_buffer *y)
{
    mica__op_builder op;
    mica__norm_params params = {eps};
    mica__op_begin(&op, encoder, MICA_OP_LAYER_NORM, MICA__LAYER_NORM_SLOTS, &params, sizeof params);
    mica__op_read(&op, MICA__LAYER_NORM_X, "x", x, MICA__KIND_ACTIVATION, 1, MICA_MAX_DIMS);
    mica__op_read_optional(&op, MICA__LAYER_NORM_WEIGHT, "weight", weight, MICA__KIND_ACTIVATION, 1, 1);
    mica__op_read_optional(&op, MICA__LAYER_NORM_BIAS, "bias", bias, MICA__KIND_ACTIVATION, 1, 1);
    mica__op_write(&op, MICA__LAYER_NORM_Y, "y", y, MICA__KIND_ACTIVATION, 1, MICA_MAX_DIMS);
    mica__op_require(&op, eps >= 0.0f && isfinite(eps), "eps is %g, not 0 or above and finite", (double)eps);
    mica__op_same_shape(&op, MICA__LAYER_NORM_X, MICA__LAYER_NORM_Y);
    const uint64_t dim = mica__op_size(&op, MICA__LAYER_NORM_X, -1);
    mica__op_dim(&op, MICA__LAYER_NORM_WEIGHT, 0, dim, "the last dimension of x");
    mica__op_dim(&op, MICA__LAYER_NORM_BIAS, 0, dim, "the last dimension of x");
    for (uint32_t slot = 0; slot < MICA__LAYER_NORM_SLOTS; slot++)
        mica__op_rows(&op, slot);
    mica__op_in_place(&op, MICA__LAYER_NORM_X);
    return mica__op_add(&op);
}

mica_status mica_softmax(mica_encoder *encoder, mica_buffer *x, float scale, mica_buffer *y)
{
    mica__op_builder op;
    mica__scalar_params params = {scale};
    mica__op_begin(&op, encoder, MICA_OP_SOFTMAX, MICA__UNARY_SLOTS, &params, sizeof params);
    mica__op_read(&op, MICA__UNARY_X, "x", x, MICA__KIND_ACTIVATION, 1, MICA_MAX_DIMS);
    mica__op_write(&op, MICA__UNARY_Y, "y", y, MICA__KIND_ACTIVATION, 1, MICA_MAX_DIMS);
    mica__op_require(&op, isfinite(scale), "scale is not finite");
    mica__op_same_shape(&op, MICA__UNARY_X, MICA__UNARY_Y);
    mica__op_rows(&op, MICA__UNARY_X);
    mica__op_rows(&op, MICA__UNARY_Y);
    mica__op_in_place(&op, MICA__UNARY_X);
    return mica__op_add(&op);
}

mica_status mica_argmax(mica_encoder *encoder, mica_buffer *x, mica_buffer *ids)
{
    mica__op_builder op;
    mica__op_begin(&op, encoder, MICA_OP_ARGMAX, MICA__ARGMAX_SLOTS, op.operand, 0);
    mica__op_read(&op, MICA__ARGMAX_X, "x", x, MICA__KIND_ACTIVATION, 2, 2);
    mica__op_write(&op, MICA__ARGMAX_IDS, "ids", ids, MICA__KIND_INDEX, 1, 1);
    mica__op_dim(&op, MICA__ARGMAX_IDS, 0, mica__op_size(&op, MICA__ARGMAX_X, 0), "the number of rows of x");
    mica__op_require(&op, mica__op_size(&op, MICA__ARGMAX_X, 1) <= UINT32_MAX, "x: shape[1] is over 2^32");
    mica__op_rows(&op, MICA__ARGMAX_X);
    return mica__op_add(&op);
}

mica_status mica_embedding(mica_encoder *encoder, mica_buffer *table, mica_buffer *ids, mica_buffer *y)
{
    mica__op_builder op;
    mica__op_begin(&op, encoder, MICA_OP_EMBEDDING, MICA__EMBEDDING_SLOTS, op.operand, 0);
    mica__op_weight(&op, MICA__EMBEDDING_TABLE, "table", table, 2, 2);
    mica__op_read(&op, MICA__EMBEDDING_IDS, "ids", ids, MICA__KIND_INDEX, 1, 1);
    mica__op_write(&op, MICA__EMBEDDING_Y, "y", y, MICA__KIND_ACTIVATION, 2, 2);
    mica__op_dim(&op, MICA__EMBEDDING_Y, 0, mica__op_size(&op, MICA__EMBEDDING_IDS, 0), "the number of ids");
    mica__op_dim(&op, MICA__EMBEDDING_Y, 1, mica__op_size(&op, MICA__EMBEDDING_TABLE, 1), "the row of table");
    mica__op_rows(&op, MICA__EMBEDDING_TABLE);
    mica__op_rows(&op, MICA__EMBEDDING_Y);
    return mica__op_add(&op);
}
