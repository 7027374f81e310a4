/* linear.c - dense linear algebra. */
#include "ops/check.h"

static void check_flag(mica__op_builder *op, const char *name, uint32_t flag)
{
    mica__op_require(op, flag <= 1, "params.%s is %u, not 0 or 1", name, flag);
}

void mica__rule_triangular_solve(mica__op_builder *op)
{
    const mica_triangular_params *params = op->record.params;
    check_flag(op, "upper", params->upper);
    check_flag(op, "unit", params->unit);
    check_flag(op, "transpose", params->transpose);
}

mica_status mica_triangular_solve(mica_encoder *encoder, mica_buffer *a, mica_buffer *b,
                                  const mica_triangular_params *params, mica_buffer *x)
{
    mica_triangular_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_TRIANGULAR_SOLVE, &record, (mica_buffer *const[]){a, b, x});
}

void mica__rule_cholesky(mica__op_builder *op)
{
    const mica_cholesky_params *params = op->record.params;
    check_flag(op, "upper", params->upper);
}

mica_status mica_cholesky(mica_encoder *encoder, mica_buffer *a, const mica_cholesky_params *params,
                          mica_buffer *y)
{
    mica_cholesky_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_CHOLESKY, &record, (mica_buffer *const[]){a, y});
}

mica_status mica_solve(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *x)
{
    return mica__op_call(encoder, MICA_OP_SOLVE, NULL, (mica_buffer *const[]){a, b, x});
}

mica_status mica_inverse(mica_encoder *encoder, mica_buffer *a, mica_buffer *y)
{
    return mica__op_call(encoder, MICA_OP_INVERSE, NULL, (mica_buffer *const[]){a, y});
}

/* The shape of an output: the dimensions of a that count matrices, then these sizes. */
static void give_shape(mica__op_builder *op, uint32_t slot, uint32_t count, uint64_t first, uint64_t second)
{
    const mica__operand *a = &op->record.operand[0];
    uint64_t shape[MICA_MAX_DIMS + 2];
    const uint32_t outer = a->ndim - 2u;
    for (uint32_t d = 0; d < outer; d++)
        shape[d] = a->shape[d];
    shape[outer] = first;
    shape[outer + 1] = second;
    const mica__operand *y = &op->record.operand[slot];
    const char *name = mica__op_argument(op, slot);
    if (y->ndim != MICA_RANK_UNKNOWN) {
        mica__op_require(op, y->ndim == outer + count,
                         "%s has %u dimensions, but a has %u, for which it is to have %u", name, y->ndim,
                         a->ndim, outer + count);
        for (uint32_t d = 0; d < outer + count && mica__op_ok(op); d++)
            mica__op_require(op, mica__sizes_agree(y->shape[d], shape[d]),
                             "%s: shape[%u] is %llu, but a has matrices for which it is to be %llu", name, d,
                             (unsigned long long)y->shape[d], (unsigned long long)shape[d]);
    }
    if (!mica__op_ok(op))
        return;
    mica__op_shape(op, slot, outer + count, shape);
}

void mica__rule_determinant(mica__op_builder *op)
{
    const mica_determinant_params *params = op->record.params;
    check_flag(op, "log", params->log);
    if (mica__op_ok(op))
        give_shape(op, MICA__DETERMINANT_Y, params->log, 2, 0);
}

mica_status mica_determinant(mica_encoder *encoder, mica_buffer *a, const mica_determinant_params *params,
                             mica_buffer *y)
{
    mica_determinant_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_DETERMINANT, &record, (mica_buffer *const[]){a, y});
}

static uint64_t lesser(uint64_t m, uint64_t n)
{
    if (!mica__size_known(m) || !mica__size_known(n))
        return MICA_SIZE_UNKNOWN;
    return m < n ? m : n;
}

void mica__rule_qr(mica__op_builder *op)
{
    const uint64_t m = mica__op_size(op, 'M'), n = mica__op_size(op, 'N');
    give_shape(op, MICA__QR_Q, 2, m, lesser(m, n));
    give_shape(op, MICA__QR_R, 2, lesser(m, n), n);
}

mica_status mica_qr(mica_encoder *encoder, mica_buffer *a, mica_buffer *q, mica_buffer *r)
{
    return mica__op_call(encoder, MICA_OP_QR, NULL, (mica_buffer *const[]){a, q, r});
}

mica_status mica_eigh(mica_encoder *encoder, mica_buffer *a, mica_buffer *w, mica_buffer *v)
{
    return mica__op_call(encoder, MICA_OP_EIGH, NULL, (mica_buffer *const[]){a, w, v});
}

void mica__rule_svd(mica__op_builder *op)
{
    const uint64_t m = mica__op_size(op, 'M'), n = mica__op_size(op, 'N');
    give_shape(op, MICA__SVD_U, 2, m, lesser(m, n));
    give_shape(op, MICA__SVD_S, 1, lesser(m, n), 0);
    give_shape(op, MICA__SVD_VT, 2, lesser(m, n), n);
}

mica_status mica_svd(mica_encoder *encoder, mica_buffer *a, mica_buffer *u, mica_buffer *s, mica_buffer *vt)
{
    return mica__op_call(encoder, MICA_OP_SVD, NULL, (mica_buffer *const[]){a, u, s, vt});
}
