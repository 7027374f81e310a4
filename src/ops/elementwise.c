/* elementwise.c - ops that take any strides: copy, fill, advance, add, mul, gates, softcap. */
#include <math.h>

#include "base/status.h"
#include "ops/check.h"

mica_status mica_copy(mica_encoder *encoder, mica_buffer *x, mica_buffer *y)
{
    mica__op_builder op;
    mica__op_begin(&op, encoder, MICA_OP_COPY, MICA__COPY_SLOTS, op.operand, 0);
    mica__op_read(&op, MICA__COPY_X, "x", x, MICA__KIND_ANY, 1, MICA_MAX_DIMS);
    mica__op_write(&op, MICA__COPY_Y, "y", y, MICA__KIND_ANY, 1, MICA_MAX_DIMS);
    if (!mica__op_ok(&op))
        return op.status;
    mica__op_require(&op,
                     x->packing.layout == MICA_LAYOUT_CANONICAL && y->packing.layout == MICA_LAYOUT_CANONICAL,
                     "x or y is packed; use mica_buffer_pack");
    mica__op_broadcast(&op, MICA__COPY_X, MICA__COPY_Y);
    if (x->dtype != y->dtype) {
        bool converts = x->dtype <= MICA_DTYPE_BF16 && y->dtype <= MICA_DTYPE_BF16;
        mica__op_require(&op, converts, "y is %s, which x (%s) does not convert to",
                         mica_dtype_name(y->dtype), mica_dtype_name(x->dtype));
    }
    if (mica_dtype_block_elements(x->dtype) > 1) {
        mica__op_contiguous(&op, MICA__COPY_X);
        mica__op_contiguous(&op, MICA__COPY_Y);
        mica__op_same_shape(&op, MICA__COPY_X, MICA__COPY_Y);
    }
    return mica__op_add(&op);
}

mica_status mica_fill(mica_encoder *encoder, double value, mica_buffer *y)
{
    mica__op_builder op;
    mica__fill_params params = {value};
    mica__op_begin(&op, encoder, MICA_OP_FILL, MICA__FILL_SLOTS, &params, sizeof params);
    mica__op_write(&op, MICA__FILL_Y, "y", y, MICA__KIND_NUMBER, 1, MICA_MAX_DIMS);
    if (!mica__op_ok(&op))
        return op.status;
    if (y->dtype == MICA_DTYPE_U32)
        mica__op_require(&op, value >= 0.0 && value <= 4294967295.0, "value %g does not fit u32", value);
    if (y->dtype == MICA_DTYPE_I32)
        mica__op_require(&op, value >= -2147483648.0 && value <= 2147483647.0, "value %g does not fit i32",
                         value);
    return mica__op_add(&op);
}

mica_status mica_advance(mica_encoder *encoder, int32_t delta, mica_buffer *counters)
{
    mica__op_builder op;
    mica__advance_params params = {delta};
    mica__op_begin(&op, encoder, MICA_OP_ADVANCE, MICA__ADVANCE_SLOTS, &params, sizeof params);
    mica__op_update(&op, MICA__ADVANCE_COUNTERS, "counters", counters, MICA__KIND_INDEX, 1, MICA_MAX_DIMS);
    return mica__op_add(&op);
}

static mica_status binary(mica_encoder *encoder, mica_op id, const char *name_a, mica_buffer *a,
                          const char *name_b, mica_buffer *b, bool broadcasts, mica_buffer *y)
{
    mica__op_builder op;
    mica__scalar_params params = {0.0f};
    mica__op_begin(&op, encoder, id, MICA__BINARY_SLOTS, &params, sizeof params);
    mica__op_read(&op, MICA__BINARY_A, name_a, a, MICA__KIND_ACTIVATION, 1, MICA_MAX_DIMS);
    mica__op_read(&op, MICA__BINARY_B, name_b, b, MICA__KIND_ACTIVATION, 1, MICA_MAX_DIMS);
    mica__op_write(&op, MICA__BINARY_Y, "y", y, MICA__KIND_ACTIVATION, 1, MICA_MAX_DIMS);
    mica__op_in_place(&op, MICA__BINARY_A);
    mica__op_in_place(&op, MICA__BINARY_B);
    if (broadcasts) {
        mica__op_broadcast(&op, MICA__BINARY_A, MICA__BINARY_Y);
        mica__op_broadcast(&op, MICA__BINARY_B, MICA__BINARY_Y);
    } else {
        mica__op_same_shape(&op, MICA__BINARY_A, MICA__BINARY_Y);
        mica__op_same_shape(&op, MICA__BINARY_B, MICA__BINARY_Y);
    }
    return mica__op_add(&op);
}

mica_status mica_add(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y)
{
    return binary(encoder, MICA_OP_ADD, "a", a, "b", b, true, y);
}

mica_status mica_mul(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y)
{
    return binary(encoder, MICA_OP_MUL, "a", a, "b", b, true, y);
}

mica_status mica_silu_mul(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up, mica_buffer *y)
{
    return binary(encoder, MICA_OP_SILU_MUL, "gate", gate, "up", up, false, y);
}

mica_status mica_gelu_mul(mica_encoder *encoder, mica_buffer *gate, mica_buffer *up, mica_buffer *y)
{
    return binary(encoder, MICA_OP_GELU_MUL, "gate", gate, "up", up, false, y);
}

static mica_status unary(mica_encoder *encoder, mica_op id, mica_buffer *x, mica__scalar_params *params,
                         mica_buffer *y)
{
    mica__op_builder op;
    mica__op_begin(&op, encoder, id, MICA__UNARY_SLOTS, params, sizeof *params);
    mica__op_read(&op, MICA__UNARY_X, "x", x, MICA__KIND_ACTIVATION, 1, MICA_MAX_DIMS);
    mica__op_write(&op, MICA__UNARY_Y, "y", y, MICA__KIND_ACTIVATION, 1, MICA_MAX_DIMS);
    mica__op_same_shape(&op, MICA__UNARY_X, MICA__UNARY_Y);
    mica__op_in_place(&op, MICA__UNARY_X);
    return mica__op_add(&op);
}

mica_status mica_gelu(mica_encoder *encoder, mica_buffer *x, mica_buffer *y)
{
    mica__scalar_params params = {0.0f};
    return unary(encoder, MICA_OP_GELU, x, &params, y);
}

mica_status mica_gelu_erf(mica_encoder *encoder, mica_buffer *x, mica_buffer *y)
{
    mica__scalar_params params = {0.0f};
    return unary(encoder, MICA_OP_GELU_ERF, x, &params, y);
}

mica_status mica_softcap(mica_encoder *encoder, mica_buffer *x, float cap, mica_buffer *y)
{
    mica__scalar_params params = {cap};
    if (!(cap > 0.0f) || !isfinite(cap))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "softcap: cap is %g, not above 0 and finite",
                          (double)cap);
    return unary(encoder, MICA_OP_SOFTCAP, x, &params, y);
}
