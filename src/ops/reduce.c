/* reduce.c - reductions over any axes. */
#include "ops/check.h"
#include "quant/dtype.h"

static bool is_float(uint32_t dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

static bool takes(uint32_t kind, uint32_t dtype)
{
    switch (kind) {
    case MICA_REDUCE_MEAN:
    case MICA_REDUCE_VAR:
    case MICA_REDUCE_SUM_SQUARES:
    case MICA_REDUCE_MAX_ABS:
    case MICA_REDUCE_LOGSUMEXP: return is_float(dtype) || dtype == MICA_DTYPE_F64;
    case MICA_REDUCE_ANY:
    case MICA_REDUCE_ALL: return dtype == MICA_DTYPE_BOOL;
    default: return dtype != MICA_DTYPE_BOOL;
    }
}

static void check_params(mica__op_builder *op, const mica_reduce_params *params)
{
    static const char *const types[] = {"a number", "a float", "bool"};
    const mica__operand *x = &op->record.operand[MICA__REDUCE_X], *y = &op->record.operand[MICA__REDUCE_Y];
    const uint32_t kind = params->kind;
    mica__op_require(op, kind <= MICA_REDUCE_MAX_ABS, "params.kind is %u, which is no mica_reduce_kind",
                     kind);
    mica__op_require(op, params->keep_dims <= 1, "params.keep_dims is %u, not 0 or 1", params->keep_dims);
    mica__op_require(op, params->correction <= 1, "params.correction is %u, not 0 or 1", params->correction);
    mica__op_require(op, params->axes >> x->ndim == 0, "params.axes is 0x%x, but x has %u dimensions",
                     params->axes, x->ndim);
    const uint32_t wanted = kind == MICA_REDUCE_ANY || kind == MICA_REDUCE_ALL ? 2
                            : takes(kind, MICA_DTYPE_I32)                      ? 0
                                                                               : 1;
    mica__op_require(op, takes(kind, x->dtype), "x is %s, not %s as params.kind %u takes it",
                     mica_dtype_name((mica_dtype)x->dtype), types[wanted], kind);
    if (mica__op_has(op, MICA__REDUCE_Y))
        mica__op_require(op, y->dtype == x->dtype || (is_float(x->dtype) && is_float(y->dtype)),
                         "y is %s, but x is %s", mica_dtype_name((mica_dtype)y->dtype),
                         mica_dtype_name((mica_dtype)x->dtype));
}

void mica__rule_reduce(mica__op_builder *op)
{
    mica_reduce_params *params = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__REDUCE_X];
    uint64_t shape[MICA_MAX_DIMS] = {0};
    uint32_t ndim = 0;
    check_params(op, params);
    if (!mica__op_ok(op))
        return;
    if (params->axes == 0)
        params->axes = (1u << x->ndim) - 1;
    for (uint32_t d = 0; d < x->ndim; d++) {
        if ((params->axes >> (x->ndim - 1 - d) & 1) == 0)
            shape[ndim++] = x->shape[d];
        else if (params->keep_dims != 0)
            shape[ndim++] = 1;
    }
    mica__op_shape(op, MICA__REDUCE_Y, ndim, shape);
}

mica_status mica_reduce(mica_encoder *encoder, mica_buffer *x, const mica_reduce_params *params,
                        mica_buffer *y)
{
    mica_reduce_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_REDUCE, &record, (mica_buffer *const[]){x, y});
}
