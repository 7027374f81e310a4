/* matmul.c - dense and expert-routed matrix products; the weight's type decides the kernel. */
#include "base/status.h"
#include "ops/check.h"

static mica__matmul_record record_params(const mica_matmul_params *params)
{
    mica__matmul_record record = {.precision = MICA_PRECISION_DEFAULT, .weight_count = 1};
    if (params != NULL)
        record.precision = (uint32_t)params->precision;
    return record;
}

/* Leading dimensions of x and y: equal, and the batch of x a multiple of the weight's. */
static void check_batches(mica__op_builder *op, uint32_t x, uint32_t weight, uint32_t y)
{
    if (!mica__op_ok(op))
        return;
    const mica__operand *a = &op->operand[x], *w = &op->operand[weight], *b = &op->operand[y];
    mica__op_require(op, a->ndim == b->ndim, "y has %u dimensions, x %u", b->ndim, a->ndim);
    for (uint32_t d = 0; d + 1 < a->ndim && mica__op_ok(op); d++)
        mica__op_dim(op, y, (int)d, a->shape[d], "that of x");
    if (w->ndim == 3 && mica__op_ok(op)) {
        mica__op_require(op, a->ndim == 3, "x has %u dimensions; a batched weight needs 3", a->ndim);
        mica__op_require(op, a->shape[0] % w->shape[0] == 0,
                         "x: shape[0] is %llu, no multiple of weight's %llu", (unsigned long long)a->shape[0],
                         (unsigned long long)w->shape[0]);
    }
}

mica_status mica_matmul(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                        const mica_matmul_params *params, mica_buffer *y)
{
    mica__op_builder op;
    mica__matmul_record record = record_params(params);
    uint32_t w = MICA__MATMUL_SLOT(0, MICA__WEIGHT_DATA), out = MICA__MATMUL_SLOT(0, MICA__WEIGHT_Y);
    mica__op_begin(&op, encoder, MICA_OP_MATMUL, MICA__MATMUL_SLOTS(1), &record, sizeof record);
    mica__op_read(&op, MICA__MATMUL_X, "x", x, MICA__KIND_ACTIVATION, 2, 4);
    mica__op_weight(&op, w, "weight", weight, 2, 3);
    mica__op_write(&op, out, "y", y, MICA__KIND_ACTIVATION, 2, 4);
    mica__op_require(&op, record.precision <= MICA_PRECISION_Q8, "params.precision is %u", record.precision);
    mica__op_dim(&op, w, -1, mica__op_size(&op, MICA__MATMUL_X, -1), "the last dimension of x");
    mica__op_dim(&op, out, -1, mica__op_size(&op, w, -2), "the number of rows of weight");
    check_batches(&op, MICA__MATMUL_X, w, out);
    mica__op_rows(&op, MICA__MATMUL_X);
    mica__op_rows(&op, w);
    mica__op_rows(&op, out);
    return mica__op_add(&op);
}

mica_status mica_matmul_experts(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *ids,
                                const mica_matmul_params *params, mica_buffer *y)
{
    mica__op_builder op;
    mica__matmul_record record = record_params(params);
    mica__op_begin(&op, encoder, MICA_OP_MATMUL_EXPERTS, MICA__EXPERTS_SLOTS, &record, sizeof record);
    mica__op_read(&op, MICA__EXPERTS_X, "x", x, MICA__KIND_ACTIVATION, 2, 3);
    mica__op_weight(&op, MICA__EXPERTS_WEIGHT, "weight", weight, 3, 3);
    mica__op_read(&op, MICA__EXPERTS_IDS, "ids", ids, MICA__KIND_INDEX, 2, 2);
    mica__op_write(&op, MICA__EXPERTS_Y, "y", y, MICA__KIND_ACTIVATION, 3, 3);
    mica__op_require(&op, record.precision <= MICA_PRECISION_Q8, "params.precision is %u", record.precision);
    mica__op_dim(&op, MICA__EXPERTS_IDS, 0, mica__op_size(&op, MICA__EXPERTS_X, 0),
                 "the number of tokens of x");
    if (mica__op_ok(&op) && x->ndim == 3)
        mica__op_dim(&op, MICA__EXPERTS_X, 1, mica__op_size(&op, MICA__EXPERTS_IDS, 1),
                     "the number of slots of ids");
    mica__op_dim(&op, MICA__EXPERTS_WEIGHT, 2, mica__op_size(&op, MICA__EXPERTS_X, -1),
                 "the last dimension of x");
    mica__op_dim(&op, MICA__EXPERTS_Y, 0, mica__op_size(&op, MICA__EXPERTS_IDS, 0), "the number of tokens");
    mica__op_dim(&op, MICA__EXPERTS_Y, 1, mica__op_size(&op, MICA__EXPERTS_IDS, 1),
                 "the number of slots of ids");
    mica__op_dim(&op, MICA__EXPERTS_Y, 2, mica__op_size(&op, MICA__EXPERTS_WEIGHT, 1),
                 "the number of rows of weight");
    mica__op_rows(&op, MICA__EXPERTS_X);
    mica__op_rows(&op, MICA__EXPERTS_WEIGHT);
    mica__op_rows(&op, MICA__EXPERTS_Y);
    return mica__op_add(&op);
}
