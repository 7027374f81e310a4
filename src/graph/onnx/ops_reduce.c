/*
 * ops_reduce.c - reductions, softmax and its kin, running sums, order.
 */
#include <string.h>

#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"

/* The axes of a reduction as a set: an attribute until opset 17 (of ReduceSum 12), then an input. None at all is all, or nothing where the node says so. */
static mica_status reduced_axes(mica__ox_op *o, uint32_t ndim, uint32_t *out, bool *out_nothing)
{
    uint32_t count = 0, axis = 0;
    const int64_t *axes = mica__ox_ints(o, "axes", &count);
    int64_t *given = NULL;
    const bool noop = mica__ox_int(o, "noop_with_empty_axes", 0) != 0;
    *out = 0;
    if (mica__ox_has(o, 1)) {
        MICA__TRY(mica__ox_need_ints(o, 1, &given, &count));
        axes = given;
    }
    for (uint32_t i = 0; i < count; i++) {
        MICA__TRY(mica__ox_axis(o, axes[i], ndim, &axis));
        *out |= 1u << axis;
    }
    *out_nothing = count == 0 && noop;
    if (count == 0 && !noop)
        *out = (1u << ndim) - 1;
    return MICA_OK;
}

/* Types that reductions have not are computed in one that holds them. */
static mica_dtype reduced_in(mica_dtype dtype)
{
    switch (dtype) {
    case MICA_DTYPE_I8:
    case MICA_DTYPE_I16:
    case MICA_DTYPE_U8:
    case MICA_DTYPE_U16: return MICA_DTYPE_I32;
    default: return dtype;
    }
}

/* Even a set without elements has a result, as the axes say; of no axes the elements themselves. */
static mica_tensor reduced(const mica__ox_op *o, mica_reduce_kind kind, mica_tensor x, uint32_t axes,
                           bool keep)
{
    return axes == 0 ? x : mica__ox_reduce(o, kind, x, axes, keep);
}

static mica_tensor after(const mica__ox_op *o, uint32_t what, mica_tensor y)
{
    return what == MICA__OX_REDUCE_L2        ? mica__ox_scalar(o, MICA_SCALAR_SQRT, y, 0)
           : what == MICA__OX_REDUCE_LOG_SUM ? mica__ox_scalar(o, MICA_SCALAR_LOG, y, 0)
                                             : y;
}

mica_status mica__ox_reduction(mica__ox_op *o)
{
    static const mica_reduce_kind kinds[] = {[MICA__OX_REDUCE_SUM] = MICA_REDUCE_SUM,
                                             [MICA__OX_REDUCE_MEAN] = MICA_REDUCE_MEAN,
                                             [MICA__OX_REDUCE_MAX] = MICA_REDUCE_MAX,
                                             [MICA__OX_REDUCE_MIN] = MICA_REDUCE_MIN,
                                             [MICA__OX_REDUCE_PROD] = MICA_REDUCE_PROD,
                                             [MICA__OX_REDUCE_L1] = MICA_REDUCE_SUM,
                                             [MICA__OX_REDUCE_L2] = MICA_REDUCE_SUM,
                                             [MICA__OX_REDUCE_LOG_SUM] = MICA_REDUCE_SUM,
                                             [MICA__OX_REDUCE_LOG_SUM_EXP] = MICA_REDUCE_LOGSUMEXP,
                                             [MICA__OX_REDUCE_SQUARES] = MICA_REDUCE_SUM};
    const uint32_t what = (uint32_t)o->row->argument;
    mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const bool keep = mica__ox_int(o, "keepdims", 1) != 0;
    const bool half = type.dtype == MICA_DTYPE_F16 || type.dtype == MICA_DTYPE_BF16;
    uint32_t axes = 0;
    bool nothing = false;
    MICA__TRY(reduced_axes(o, type.ndim, &axes, &nothing));
    const mica_dtype inside = half ? MICA_DTYPE_F32 : reduced_in(type.dtype);
    mica_reduce_kind kind = kinds[what];
    if (type.dtype == MICA_DTYPE_BOOL)
        kind = kind == MICA_REDUCE_MAX ? MICA_REDUCE_ANY : MICA_REDUCE_ALL;
    if (nothing && what <= MICA__OX_REDUCE_PROD) {
        mica__ox_out(o, 0, x);
        return MICA_OK;
    }
    x = mica__ox_cast(o, x, inside);
    if (what == MICA__OX_REDUCE_L1)
        x = mica__ox_scalar(o, MICA_SCALAR_ABS, x, 0);
    if (what == MICA__OX_REDUCE_L2 || what == MICA__OX_REDUCE_SQUARES)
        x = mica__ox_scalar(o, MICA_SCALAR_SQUARE, x, 0);
    if (what == MICA__OX_REDUCE_MEAN && mica_register_of(inside) > MICA_REGISTER_F64)
        return mica__ox_fail(o, "means of integers");
    mica__ox_out(o, 0, mica__ox_cast(o, after(o, what, reduced(o, kind, x, axes, keep)), type.dtype));
    return MICA_OK;
}

/* u64 as i64 in the same order, and back: the highest bit is another one. */
static mica_tensor flipped(const mica__ox_op *o, mica_tensor x, mica_dtype to)
{
    static const uint64_t high = 1ull << 63;
    x = x == 0 ? 0 : mica_graph_bits(o->graph, x, MICA_DTYPE_U64);
    x = mica__ox_scalar(o, MICA_SCALAR_BIT_XOR, x, mica__ox_constant(o, MICA_DTYPE_U64, 0, NULL, &high));
    return x == 0 ? 0 : mica_graph_bits(o->graph, x, to);
}

/* x with `axis` last, for ops along the last dimension; integers of 8 and 16 bits as i32. */
static mica_tensor last(const mica__ox_op *o, mica_tensor x, uint32_t axis)
{
    const mica__type type = mica__ox_type(o, x);
    return mica__ox_move(o, mica__ox_cast(o, x, reduced_in(type.dtype)), axis, type.ndim - 1);
}

mica_status mica__ox_argmax(mica__ox_op *o)
{
    mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const bool keep = mica__ox_int(o, "keepdims", 1) != 0;
    const bool select_last = mica__ox_int(o, "select_last_index", 0) != 0;
    const mica_argmax_params params = {.least = (uint32_t)o->row->argument};
    uint32_t axis = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), type.ndim, &axis));
    if (type.dtype == MICA_DTYPE_U64)
        x = flipped(o, x, MICA_DTYPE_I64);
    mica_tensor rows = last(o, x, axis);
    const uint64_t n = type.shape[axis];
    if (select_last && n > 1) {
        if (!mica__size_known(n))
            return mica__ox_fail(o, "the last index along a size that is not known");
        rows = mica_graph_slice(o->graph, rows, type.ndim - 1, n - 1, n, -1);
    }
    mica_tensor ids =
        mica_graph_op(o->graph, MICA_OP_ARGMAX, &params, &rows, 1, 1,
                      &(mica_operand_desc){.dtype = MICA_DTYPE_I32, .ndim = MICA_RANK_UNKNOWN}, NULL, 0);
    ids = mica__ox_cast(o, ids, MICA_DTYPE_I64);
    if (select_last && n > 1)
        ids = mica__ox_scalar(o, MICA_SCALAR_SUB, mica__ox_number(o, ids, (double)(n - 1)), ids);
    mica__ox_out(o, 0, keep ? mica__ox_unsqueeze(o, ids, axis) : ids);
    return MICA_OK;
}

/* Softmax, LogSoftmax, Hardmax. */
/* Of rows along the last dimension. */
static mica_tensor softmax_rows(const mica__ox_op *o, mica_tensor rows)
{
    const mica_softmax_params params = {.scale = 1, .log = o->row->argument == MICA__OX_SOFTMAX_LOG};
    const mica__type type = mica__ox_type(o, rows);
    if (o->row->argument != MICA__OX_HARDMAX)
        return mica__ox_op1(o, MICA_OP_SOFTMAX, &params, (const mica_tensor[]){rows, 0}, 2);
    const mica_tensor best = mica__ox_op1(o, MICA_OP_ARGMAX, NULL, &rows, 1);
    const mica_tensor at = mica__ox_iota(o, type.ndim, type.shape, type.ndim - 1, MICA_DTYPE_I32);
    const mica_tensor holds =
        mica__ox_scalar(o, MICA_SCALAR_EQUAL, at,
                        mica__ox_unsqueeze(o, mica__ox_cast(o, best, MICA_DTYPE_I32), type.ndim - 1));
    return mica__ox_cast(o, holds, type.dtype);
}

/* Before opset 13 rows are all dimensions from the axis on. */
mica_status mica__ox_softmax(mica__ox_op *o)
{
    const bool old = o->row->domain[0] == '\0' && o->version < 13;
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    uint32_t axis = 0;
    if (type.ndim == 0)
        return mica__ox_fail(o, "of a tensor without dimensions");
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", old ? 1 : -1), type.ndim, &axis));
    if (!old || axis + 1 == type.ndim) {
        const mica_tensor y = softmax_rows(o, mica__ox_move(o, x, axis, type.ndim - 1));
        mica__ox_out(o, 0, mica__ox_move(o, y, type.ndim - 1, axis));
        return MICA_OK;
    }
    uint64_t shape[MICA_MAX_DIMS + 1], width = 1;
    for (uint32_t d = 0; d < type.ndim; d++) {
        if (d >= axis && !mica__size_known(type.shape[d]))
            return mica__ox_fail(o, "of sizes that are not known while importing, in opset %llu",
                                 (unsigned long long)o->version);
        width *= d >= axis ? type.shape[d] : 1;
        shape[d] = type.shape[d];
    }
    shape[axis] = width;
    const mica_tensor y = softmax_rows(o, mica__ox_reshape(o, x, axis + 1, shape));
    mica__ox_out(o, 0, mica__ox_reshape(o, y, type.ndim, type.shape));
    return MICA_OK;
}

/* CumSum, CumProd. */
mica_status mica__ox_cumulative(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const mica_scan_params params = {.kind = (uint32_t)o->row->argument,
                                     .exclusive = mica__ox_int(o, "exclusive", 0) != 0,
                                     .reverse = mica__ox_int(o, "reverse", 0) != 0};
    int64_t given = 0;
    uint32_t axis = 0;
    MICA__TRY(mica__ox_need_int(o, 1, &given));
    MICA__TRY(mica__ox_axis(o, given, type.ndim, &axis));
    const mica_tensor rows = last(o, x, axis);
    const mica_tensor y = mica__ox_op1(o, MICA_OP_SCAN, &params, &rows, 1);
    mica__ox_out(o, 0, mica__ox_cast(o, mica__ox_move(o, y, type.ndim - 1, axis), type.dtype));
    return MICA_OK;
}

mica_status mica__ox_top_k(mica__ox_op *o)
{
    mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const mica_sort_params params = {.descending = mica__ox_int(o, "largest", 1) != 0};
    (void)mica__ox_int(o, "sorted", 1); /* sorted is one of the orders that are allowed without it */
    uint32_t axis = 0;
    int64_t k = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", -1), type.ndim, &axis));
    MICA__TRY(mica__ox_need_int(o, 1, &k));
    if (type.dtype == MICA_DTYPE_U64)
        x = flipped(o, x, MICA_DTYPE_I64);
    if (k < 0 || (mica__size_known(type.shape[axis]) && (uint64_t)k > type.shape[axis]))
        return mica__ox_fail(o, "k is %lld", (long long)k);
    const mica_tensor rows = last(o, x, axis);
    const mica__type moved = mica__ox_type(o, rows);
    mica_operand_desc asked[2] = {{.dtype = moved.dtype, .ndim = moved.ndim},
                                  {.dtype = MICA_DTYPE_I32, .ndim = moved.ndim}};
    for (uint32_t i = 0; i < 2; i++) {
        memcpy(asked[i].shape, moved.shape, sizeof asked[i].shape);
        asked[i].shape[moved.ndim - 1] = (uint64_t)k;
    }
    mica_tensor y[2] = {0};
    (void)mica_graph_op(o->graph, MICA_OP_SORT, &params, &rows, 1, 3, asked, y, 2);
    if (type.dtype == MICA_DTYPE_U64)
        y[0] = flipped(o, y[0], MICA_DTYPE_U64);
    mica__ox_out(o, 0, mica__ox_cast(o, mica__ox_move(o, y[0], type.ndim - 1, axis), type.dtype));
    mica__ox_out(o, 1, mica__ox_cast(o, mica__ox_move(o, y[1], type.ndim - 1, axis), MICA_DTYPE_I64));
    return MICA_OK;
}
