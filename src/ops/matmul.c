/* matmul.c - dense and expert-routed matrix products; the weight's type decides the kernel. */
#include "ops/check.h"

static void check_params(mica__op_builder *op, uint32_t weights)
{
    mica__matmul_record *record = op->record.params;
    mica__op_require(op, record->precision <= MICA_PRECISION_Q8, "params.precision is %u", record->precision);
    record->weight_count = weights;
}

static mica__matmul_record record_of(const mica_matmul_params *params)
{
    return (mica__matmul_record){.precision =
                                     params != NULL ? (uint32_t)params->precision : MICA_PRECISION_DEFAULT};
}

/* A batched weight: x has three dimensions, and as many batches as it or a multiple. Several weights of one x
 * are of one type, which one kernel walks. */
void mica__rule_matmul(mica__op_builder *op)
{
    const uint64_t batches = mica__op_size(op, 'B'), weights = mica__op_size(op, 'E');
    const uint32_t rank = op->record.operand[MICA__MATMUL_X].ndim,
                   count = (op->record.operand_count - MICA__MATMUL_SLOTS) / MICA__MATMUL_GROUPED;
    const mica__operand *first = &op->record.operand[MICA__MATMUL_WEIGHT];
    for (uint32_t i = 1; i < count && mica__op_ok(op); i++) {
        const mica__operand *weight = &op->record.operand[MICA__MATMUL_SLOT(i, MICA__WEIGHT_DATA)];
        mica__op_require(op, weight->ndim == 2 && first->ndim == 2 && weight->dtype == first->dtype,
                         "weight %u: several weights have one type and two dimensions", i);
    }
    if (first->ndim == 3) {
        mica__op_require(op, rank == 3, "x has %u dimensions; a batched weight needs 3", rank);
        mica__op_require(op,
                         !mica__size_known(batches) || !mica__size_known(weights) || weights == 0 ||
                             batches % weights == 0,
                         "x: shape[0] is %llu, no multiple of weight's %llu", (unsigned long long)batches,
                         (unsigned long long)weights);
    }
    check_params(op, count);
}

mica_status mica_matmul(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                        const mica_matmul_params *params, mica_buffer *y)
{
    mica__matmul_record record = record_of(params);
    return mica__op_call(encoder, MICA_OP_MATMUL, &record, (mica_buffer *const[]){x, weight, y});
}

void mica__rule_experts(mica__op_builder *op)
{
    const mica__operand *o = op->record.operand;
    const bool wide = o[MICA__EXPERTS_WEIGHT].dtype == MICA_DTYPE_F64;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t slot = i == 0 ? MICA__EXPERTS_X : MICA__EXPERTS_Y;
        mica__op_require(op, (o[slot].dtype == MICA_DTYPE_F64) == wide,
                         "%s is %s, but weight is %s: all operands are f64 or none",
                         mica__op_argument(op, slot), mica_dtype_name((mica_dtype)o[slot].dtype),
                         mica_dtype_name((mica_dtype)o[MICA__EXPERTS_WEIGHT].dtype));
    }
    check_params(op, 1);
}

mica_status mica_matmul_experts(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *ids,
                                const mica_matmul_params *params, mica_buffer *y)
{
    mica__matmul_record record = record_of(params);
    return mica__op_call(encoder, MICA_OP_MATMUL_EXPERTS, &record, (mica_buffer *const[]){x, ids, weight, y});
}

/* Rows of x are numbered over its leading dimensions; ids need two of them, a batched weight as mica_matmul. */
void mica__rule_transposed(mica__op_builder *op)
{
    const mica__operand *weight = &op->record.operand[MICA__TRANSPOSED_WEIGHT];
    const uint32_t rank = op->record.operand[MICA__TRANSPOSED_X].ndim;
    const uint64_t batches = mica__op_size(op, 'T'), weights = mica__op_size(op, 'E');
    const bool routed = mica__op_has(op, MICA__TRANSPOSED_IDS);
    mica__op_require(op, !routed || weight->ndim == 3, "weight has %u dimensions; with ids it has 3",
                     weight->ndim);
    mica__op_require(op, weight->ndim == 2 || rank == 3,
                     "x has %u dimensions; with ids or a batched weight it has 3", rank);
    mica__op_require(op,
                     routed || weight->ndim == 2 || !mica__size_known(batches) ||
                         !mica__size_known(weights) || weights == 0 || batches % weights == 0,
                     "x: shape[0] is %llu, no multiple of weight's %llu", (unsigned long long)batches,
                     (unsigned long long)weights);
}

mica_status mica_matmul_transposed(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                   mica_buffer *ids, mica_buffer *y)
{
    return mica__op_call(encoder, MICA_OP_MATMUL_TRANSPOSED, NULL, (mica_buffer *const[]){x, ids, weight, y});
}
