/* turbo.c - rotations. */
#include <math.h>

#include "ops/check.h"

static bool is_f64(const mica__op_builder *op, uint32_t slot)
{
    return op->record.operand[slot].dtype == MICA_DTYPE_F64;
}

void mica__rule_hadamard(mica__op_builder *op)
{
    const mica_hadamard_params *params = op->record.params;
    const uint64_t d = mica__op_size(op, 'D');
    mica__op_require(op, isfinite(params->scale), "params.scale is %g, not finite", (double)params->scale);
    mica__op_require(op, params->undo <= 1, "params.undo is %u, not 0 or 1", params->undo);
    mica__op_require(op, !mica__size_known(d) || (d & (d - 1)) == 0,
                     "x: the last dimension is %llu, not a power of two", (unsigned long long)d);
    for (uint32_t slot = MICA__HADAMARD_SIGNS; slot <= MICA__HADAMARD_Y; slot++)
        if (mica__op_has(op, slot))
            mica__op_require(op, is_f64(op, slot) == is_f64(op, MICA__HADAMARD_X), "%s is %s, but x is %s",
                             mica__op_argument(op, slot),
                             mica_dtype_name((mica_dtype)op->record.operand[slot].dtype),
                             mica_dtype_name((mica_dtype)op->record.operand[MICA__HADAMARD_X].dtype));
}

mica_status mica_hadamard(mica_encoder *encoder, mica_buffer *x, mica_buffer *signs,
                          const mica_hadamard_params *params, mica_buffer *y)
{
    mica_hadamard_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_HADAMARD, &record, (mica_buffer *const[]){x, signs, y});
}
