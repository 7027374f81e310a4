/* copy.c - copies and conversions, blocks included. */
#include "ops/check.h"
#include "quant/dtype.h"

void mica__rule_copy(mica__op_builder *op)
{
    const mica__operand *x = &op->record.operand[MICA__COPY_X], *y = &op->record.operand[MICA__COPY_Y];
    const bool converts = x->dtype <= MICA_DTYPE_BF16 && y->dtype <= MICA_DTYPE_BF16;
    mica__op_require(op, x->dtype == y->dtype || converts, "y is %s, which x (%s) does not convert to",
                     mica_dtype_name((mica_dtype)y->dtype), mica_dtype_name((mica_dtype)x->dtype));
    if (mica__dtype_elements(x->dtype) > 1) {
        mica__op_same_shape(op, MICA__COPY_X, MICA__COPY_Y);
        mica__op_contiguous(op, MICA__COPY_X);
        mica__op_contiguous(op, MICA__COPY_Y);
    }
    mica__op_broadcast(op, MICA__COPY_X, MICA__COPY_Y);
}

mica_status mica_copy(mica_encoder *encoder, mica_buffer *x, mica_buffer *y)
{
    return mica__op_call(encoder, MICA_OP_COPY, NULL, (mica_buffer *const[]){x, y});
}
