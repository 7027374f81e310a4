/* sort.c - scans, and what asks for an order: argmax, argmin, sorting, the best of each row. */
#include "ops/check.h"

static bool is_float(uint32_t dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

/* ---- scans ---- */

void mica__rule_scan(mica__op_builder *op)
{
    const mica_scan_params *params = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__SCAN_X], *y = &op->record.operand[MICA__SCAN_Y];
    mica__op_require(op, params->kind <= MICA_SCAN_MIN, "params.kind is %u, which is no mica_scan_kind",
                     params->kind);
    mica__op_require(op, params->exclusive <= 1, "params.exclusive is %u, not 0 or 1", params->exclusive);
    mica__op_require(op, params->reverse <= 1, "params.reverse is %u, not 0 or 1", params->reverse);
    if (mica__op_has(op, MICA__SCAN_Y))
        mica__op_require(op, y->dtype == x->dtype || (is_float(x->dtype) && is_float(y->dtype)),
                         "y is %s, but x is %s", mica_dtype_name((mica_dtype)y->dtype),
                         mica_dtype_name((mica_dtype)x->dtype));
}

mica_status mica_scan(mica_encoder *encoder, mica_buffer *x, const mica_scan_params *params, mica_buffer *y)
{
    mica_scan_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_SCAN, &record, (mica_buffer *const[]){x, y});
}

static mica_status scan_of(mica_encoder *encoder, mica_scan_kind kind, mica_buffer *x,
                           const mica_scan_params *params, mica_buffer *y)
{
    mica_scan_params record = {0};
    if (params != NULL)
        record = *params;
    record.kind = kind;
    return mica__op_call(encoder, MICA_OP_SCAN, &record, (mica_buffer *const[]){x, y});
}

mica_status mica_cumsum(mica_encoder *encoder, mica_buffer *x, const mica_scan_params *params, mica_buffer *y)
{
    return scan_of(encoder, MICA_SCAN_SUM, x, params, y);
}

mica_status mica_cumprod(mica_encoder *encoder, mica_buffer *x, const mica_scan_params *params,
                         mica_buffer *y)
{
    return scan_of(encoder, MICA_SCAN_PROD, x, params, y);
}

mica_status mica_cummax(mica_encoder *encoder, mica_buffer *x, const mica_scan_params *params, mica_buffer *y)
{
    return scan_of(encoder, MICA_SCAN_MAX, x, params, y);
}

mica_status mica_cummin(mica_encoder *encoder, mica_buffer *x, const mica_scan_params *params, mica_buffer *y)
{
    return scan_of(encoder, MICA_SCAN_MIN, x, params, y);
}

/* ---- order ---- */

static void require_ids(mica__op_builder *op, uint64_t n)
{
    mica__op_require(op, n <= UINT32_MAX || !mica__size_known(n), "x: its last dimension is over 2^32");
}

void mica__rule_argmax(mica__op_builder *op)
{
    const mica_argmax_params *params = op->record.params;
    mica__op_require(op, params->least <= 1, "params.least is %u, not 0 or 1", params->least);
    require_ids(op, mica__op_size(op, 'N'));
}

mica_status mica_argmax(mica_encoder *encoder, mica_buffer *x, mica_buffer *ids)
{
    mica_argmax_params params = {0};
    return mica__op_call(encoder, MICA_OP_ARGMAX, &params, (mica_buffer *const[]){x, ids});
}

mica_status mica_argmin(mica_encoder *encoder, mica_buffer *x, mica_buffer *ids)
{
    mica_argmax_params params = {.least = 1};
    return mica__op_call(encoder, MICA_OP_ARGMAX, &params, (mica_buffer *const[]){x, ids});
}

void mica__rule_sort(mica__op_builder *op)
{
    const mica_sort_params *params = op->record.params;
    const uint64_t n = mica__op_size(op, 'N'), k = mica__op_size(op, 'K');
    const bool known = mica__size_known(n) && mica__size_known(k);
    mica__op_require(op, params->descending <= 1, "params.descending is %u, not 0 or 1", params->descending);
    mica__op_require(op, mica__op_has(op, MICA__SORT_VALUES) || mica__op_has(op, MICA__SORT_IDS),
                     "values and ids are both NULL");
    mica__op_require(op, !known || k <= n,
                     "the last dimension of values or ids is %llu, but that of x is %llu",
                     (unsigned long long)k, (unsigned long long)n);
    require_ids(op, n);
}

/* All of the row: what is shorter is no sorted row. */
static mica_status sort_of(mica_encoder *encoder, const char *call, const char *name, mica_buffer *x,
                           const mica_sort_params *params, mica_buffer *values, mica_buffer *ids)
{
    const mica_buffer *y = values != NULL ? values : ids;
    mica_sort_params record = {0};
    if (params != NULL)
        record = *params;
    if (y == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call, name);
    if (x != NULL && x->ndim != 0 && y->ndim == x->ndim && y->shape[y->ndim - 1] != x->shape[x->ndim - 1])
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT, "%s: %s: its last dimension is %llu, but that of x is %llu", call,
            name, (unsigned long long)y->shape[y->ndim - 1], (unsigned long long)x->shape[x->ndim - 1]);
    return mica__op_call(encoder, MICA_OP_SORT, &record, (mica_buffer *const[]){x, values, ids});
}

mica_status mica_sort(mica_encoder *encoder, mica_buffer *x, const mica_sort_params *params, mica_buffer *y)
{
    return sort_of(encoder, "sort", "y", x, params, y, NULL);
}

mica_status mica_argsort(mica_encoder *encoder, mica_buffer *x, const mica_sort_params *params,
                         mica_buffer *ids)
{
    return sort_of(encoder, "argsort", "ids", x, params, NULL, ids);
}

mica_status mica_top_k(mica_encoder *encoder, mica_buffer *x, mica_buffer *values, mica_buffer *ids)
{
    mica_sort_params params = {.descending = 1};
    return mica__op_call(encoder, MICA_OP_SORT, &params, (mica_buffer *const[]){x, values, ids});
}
