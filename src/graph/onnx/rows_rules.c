/*
 * rows_rules.c - what each operator does with rows of which the run finds how many: it works on each of them alone, sees those that are not there masked, or is refused.
 * What only moves elements has its rules in rows_places.c.
 */
#include <math.h>
#include <string.h>

#include "graph/onnx/operators.h"
#include "graph/onnx/rows.h"

mica_status mica__ox_rows_refuse(const mica__ox_op *o, uint32_t input, const char *why)
{
    return mica__ox_fail(o, "input \"%.200s\" has as many rows as the run finds%s", o->node->input[input],
                         why);
}

void mica__ox_put(mica__ox_op *o, uint32_t i, mica_tensor tensor)
{
    o->in[i].tensor = tensor;
    o->in[i].host = NULL;
}

void mica__ox_out_rows(mica__ox_op *o, uint32_t i, const mica__ox_found *rows, uint32_t axis)
{
    if (i < o->output_count && (o->out[i].tensor != 0 || o->out[i].host != NULL)) {
        o->out[i].rows = rows;
        o->out[i].axis = axis;
    }
}

mica_tensor mica__ox_extreme(const mica__ox_op *o, mica_dtype dtype, bool high)
{
    const uint32_t bits = 8u * (uint32_t)mica_dtype_block_bytes(dtype);
    const bool floats =
        mica_register_of(dtype) == MICA_REGISTER_F32 || mica_register_of(dtype) == MICA_REGISTER_F64;
    const bool whole = dtype == MICA_DTYPE_I8 || dtype == MICA_DTYPE_I16 || dtype == MICA_DTYPE_I32 ||
                       dtype == MICA_DTYPE_I64;
    const uint64_t top = 1ull << (bits - 1), all = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
    if (floats)
        return mica_graph_number(o->graph, dtype, high ? (double)INFINITY : -(double)INFINITY);
    if (dtype == MICA_DTYPE_BOOL)
        return mica_graph_number(o->graph, dtype, high);
    const uint64_t value = whole  ? (high ? top - 1 : all & ~(top - 1))
                           : high ? all
                                  : 0; /* little-endian, cut */
    return mica__ox_constant(o, dtype, 0, NULL, &value);
}

/* ---- kinds of rules ------------------------------------------------------------------------------------- */

/* No input but the first has rows that the run finds. */
static mica_status only_first(const mica__ox_op *o)
{
    for (uint32_t i = 1; i < o->input_count; i++)
        if (o->in[i].rows != NULL)
            return mica__ox_rows_refuse(o, i, ", and is not the first input");
    return MICA_OK;
}

static void carry(mica__ox_op *o, const mica__ox_found *rows, uint32_t axis)
{
    for (uint32_t i = 0; i < o->output_count; i++)
        mica__ox_out_rows(o, i, rows, axis);
}

/* Element by element over inputs that broadcast. */
static mica_status each(mica__ox_op *o)
{
    const mica__ox_found *rows = NULL;
    uint32_t behind = 0; /* the dimension, from the last on */
    for (uint32_t i = 0; i < o->input_count; i++) {
        if (!mica__ox_has(o, i) || o->in[i].rows == NULL)
            continue;
        const uint32_t at = mica__ox_in_type(o, i).ndim - o->in[i].axis;
        if (rows != NULL && (rows != o->in[i].rows || at != behind))
            return mica__ox_rows_refuse(o, i, ", and not those of another input");
        rows = o->in[i].rows;
        behind = at;
    }
    for (uint32_t i = 0; i < o->input_count; i++) {
        const mica__type type = mica__ox_in_type(o, i);
        if (mica__ox_has(o, i) && o->in[i].rows == NULL && type.ndim >= behind &&
            type.shape[type.ndim - behind] != 1)
            return mica__ox_fail(
                o, "input \"%.200s\" has a size where another one has as many rows as the run finds",
                o->node->input[i]);
    }
    MICA__TRY(o->row->build(o));
    for (uint32_t i = 0; i < o->output_count; i++)
        if (o->out[i].tensor != 0)
            mica__ox_out_rows(o, i, rows, mica__ox_type(o, o->out[i].tensor).ndim - behind);
    return MICA_OK;
}

/* Element by element, whatever other inputs there are. */
static mica_status first(mica__ox_op *o)
{
    const mica__ox_found *rows = o->in[0].rows;
    const uint32_t axis = o->in[0].axis;
    if (o->row->build == mica__ox_cast_like)
        o->in[1].rows = NULL; /* it says a type */
    if (o->in[0].rows != NULL)
        MICA__TRY(only_first(o));
    MICA__TRY(o->row->build(o));
    carry(o, rows, axis);
    return MICA_OK;
}

/* Each element of a batch alone: the rows are dimension 0. */
static mica_status batch(mica__ox_op *o)
{
    MICA__TRY(only_first(o));
    if (o->in[0].axis != 0)
        return mica__ox_rows_refuse(o, 0, " and not as its batch");
    if (o->row->build == mica__ox_batch_norm &&
        (o->output_count > 1 || mica__ox_int(o, "training_mode", 0) != 0))
        return mica__ox_rows_refuse(o, 0, ", over which training takes means");
    return first(o);
}

/* An operator that mixes the elements along axes: those from `axis` on where it says so (`behind`). */
static mica_status beside(mica__ox_op *o, int64_t axis, bool behind)
{
    uint32_t at = 0;
    MICA__TRY(only_first(o));
    MICA__TRY(mica__ox_axis(o, axis, mica__ox_in_type(o, 0).ndim, &at));
    if (behind ? o->in[0].axis >= at : o->in[0].axis == at)
        return mica__ox_rows_refuse(o, 0, " along its axis");
    return first(o);
}

static mica_status layer_norm(mica__ox_op *o)
{
    return beside(o, mica__ox_int(o, "axis", -1), true);
}

static mica_status lp_norm(mica__ox_op *o)
{
    return beside(o, mica__ox_int(o, "axis", -1), false);
}

/* Codes: of one scale, or of one for each place of an axis that is another one. */
static mica_status codes(mica__ox_op *o)
{
    const mica__type scale = mica__ox_in_type(o, 1);
    if (mica__type_elements(&scale) == 1)
        return first(o);
    if (mica__ox_int(o, "block_size", 0) != 0)
        return mica__ox_rows_refuse(o, 0, ", and its codes lie in blocks");
    return beside(o, mica__ox_int(o, "axis", 1), false);
}

/* ---- along rows ----------------------------------------------------------------------------------------- */

static mica_status softmax(mica__ox_op *o)
{
    const bool old = o->row->domain[0] == '\0' && o->version < 13;
    const mica__type type = mica__ox_in_type(o, 0);
    const mica__ox_found *rows = o->in[0].rows;
    const uint32_t axis = o->in[0].axis;
    uint32_t at = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", old ? 1 : -1), type.ndim, &at));
    if (old ? axis < at : axis != at)
        return first(o);
    if (old && axis > at)
        return mica__ox_rows_refuse(o, 0, " and is made flat");
    mica__ox_put(o, 0,
                 mica__ox_masked(o, mica__ox_in(o, 0), rows, axis, mica__ox_extreme(o, type.dtype, false)));
    return first(o);
}

static mica_status cumulative(mica__ox_op *o)
{
    const mica__ox_found *rows = o->in[0].rows;
    const uint32_t axis = o->in[0].axis;
    MICA__TRY(only_first(o));
    const mica_tensor x = mica__ox_in(o, 0); /* backwards, the first thing that is met is what is not there */
    mica__ox_put(
        o, 0, mica__ox_masked(o, x, rows, axis, mica__ox_number(o, x, o->row->argument == MICA_SCAN_PROD)));
    return first(o);
}

static mica_status argmax(mica__ox_op *o)
{
    const mica__ox_found *rows = o->in[0].rows;
    const uint32_t axis = o->in[0].axis;
    uint32_t at = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), mica__ox_in_type(o, 0).ndim, &at));
    MICA__TRY(beside(o, at, false));
    if (mica__ox_int(o, "keepdims", 1) == 0)
        mica__ox_out_rows(o, 0, rows, axis - (at < axis));
    return MICA_OK;
}

/* What changes nothing in a reduction. */
static mica_tensor nothing_of(const mica__ox_op *o, mica_dtype dtype)
{
    switch (o->row->argument) {
    case MICA__OX_REDUCE_MAX:
    case MICA__OX_REDUCE_LOG_SUM_EXP: return mica__ox_extreme(o, dtype, false);
    case MICA__OX_REDUCE_MIN: return mica__ox_extreme(o, dtype, true);
    case MICA__OX_REDUCE_PROD: return mica_graph_number(o->graph, dtype, 1);
    default: return mica_graph_number(o->graph, dtype, 0);
    }
}

/* The mean over all places there may be, as one over those that are there. */
static mica_tensor mean_of(const mica__ox_op *o, mica_tensor mean, const mica__ox_found *rows)
{
    const mica_tensor wide = mica__ox_cast(
        o, mean, mica__ox_type(o, mean).dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32);
    const mica_tensor sum =
        mica__ox_scalar(o, MICA_SCALAR_MUL, wide, mica__ox_number(o, wide, (double)rows->most));
    const mica_tensor y =
        mica__ox_scalar(o, MICA_SCALAR_DIV, sum, mica__ox_cast(o, rows->count, mica__ox_type(o, wide).dtype));
    return mica__ox_cast(o, y, mica__ox_type(o, mean).dtype);
}

/* The axes of a reduction; all where there are none. */
static mica_status axes_of(mica__ox_op *o, uint32_t ndim, uint32_t *out)
{
    uint32_t count = 0, axis = 0;
    const int64_t *axes = mica__ox_ints(o, "axes", &count);
    int64_t *given = NULL;
    *out = 0;
    if (mica__ox_has(o, 1)) {
        MICA__TRY(mica__ox_need_ints(o, 1, &given, &count));
        axes = given;
    }
    for (uint32_t i = 0; i < count; i++) {
        MICA__TRY(mica__ox_axis(o, axes[i], ndim, &axis));
        *out |= 1u << axis;
    }
    if (count == 0 && mica__ox_int(o, "noop_with_empty_axes", 0) == 0)
        *out = (1u << ndim) - 1;
    return MICA_OK;
}

static mica_status reduction(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const mica__ox_found *rows = o->in[0].rows;
    const uint32_t axis = o->in[0].axis;
    const bool keep = mica__ox_int(o, "keepdims", 1) != 0;
    const bool mean = o->row->argument == MICA__OX_REDUCE_MEAN;
    uint32_t axes = 0, before = 0;
    MICA__TRY(only_first(o));
    MICA__TRY(axes_of(o, type.ndim, &axes));
    for (uint32_t d = 0; d < axis; d++)
        before += axes >> d & 1;
    if ((axes >> axis & 1) == 0) {
        MICA__TRY(o->row->build(o));
        mica__ox_out_rows(o, 0, rows, keep ? axis : axis - before);
        return MICA_OK;
    }
    mica__ox_put(o, 0, mica__ox_masked(o, mica__ox_in(o, 0), rows, axis, nothing_of(o, type.dtype)));
    MICA__TRY(o->row->build(o));
    if (mean)
        mica__ox_out(o, 0, mean_of(o, o->out[0].tensor, rows));
    return MICA_OK;
}

/* x as a sort may have it: rows that are not there last, behind NaNs, whose order among them is their own. */
static mica_tensor sorted_last(const mica__ox_op *o, mica_tensor x, const mica__ox_found *rows, uint32_t axis,
                               bool largest)
{
    const mica_dtype dtype = mica__ox_type(o, x).dtype;
    const mica_tensor least = mica__ox_extreme(o, dtype, !largest);
    if (mica_register_of(dtype) == MICA_REGISTER_F32 || mica_register_of(dtype) == MICA_REGISTER_F64)
        x = mica__ox_select(o, mica__ox_scalar(o, MICA_SCALAR_ISNAN, x, 0), least, x);
    return mica__ox_masked(o, x, rows, axis, least);
}

/* TopK along rows, or with a k that the run finds: as many as there may be, of which the first k are. */
static mica_status top_k(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const mica__ox_found *rows = o->in[0].rows, *found = NULL;
    const uint32_t axis = o->in[0].axis;
    const bool known = mica__ox_known(o, 1) != NULL;
    uint32_t at = 0;
    int64_t k = 0;
    if (o->in[1].rows != NULL)
        return mica__ox_rows_refuse(o, 1, ", and is no number");
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", -1), type.ndim, &at));
    if (rows != NULL && axis != at && !known)
        return mica__ox_rows_refuse(o, 0, ", and k is known to the run alone");
    if (rows != NULL && axis != at)
        return first(o);
    const mica_tensor x = mica__ox_in(o, 0), most = known ? 0 : mica__ox_in(o, 1);
    if (!known && mica__ox_need_shape(o, x, "input 0") != MICA_OK)
        return MICA_ERR_UNSUPPORTED;
    if (known)
        MICA__TRY(mica__ox_need_int(o, 1, &k));
    if (known && (k < 1 || (uint64_t)k > type.shape[at]))
        return mica__ox_fail(o, "k is %lld, of at most %llu rows", (long long)k,
                             (unsigned long long)type.shape[at]);
    MICA__TRY(mica__ox_rows_at_most(o, rows, type.shape[at], most, k, &found));
    const uint64_t one = 1;
    const int64_t all = (int64_t)found->most;
    int64_t *number = mica__ox_memory(o->im, 1, sizeof *number);
    mica__ox_host *host = mica__ox_memory(o->im, 1, sizeof *host);
    if (number == NULL || host == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    *number = all;
    *host = (mica__ox_host){
        .dtype = MICA_DTYPE_I64, .ndim = 1, .elements = one, .bytes = sizeof *number, .data = number};
    host->shape[0] = one;
    o->in[1] = (mica__ox_value){.host = host};
    if (rows != NULL)
        mica__ox_put(o, 0, sorted_last(o, x, rows, at, mica__ox_int(o, "largest", 1) != 0));
    o->in[0].rows = NULL;
    MICA__TRY(o->row->build(o));
    if (rows != NULL && o->out[1].tensor != 0 && o->output_count > 1)
        mica__ox_out(o, 0, mica_graph_take_along_axis(o->graph, x, o->out[1].tensor, (int32_t)at));
    carry(o, found, at);
    return MICA_OK;
}

/* ---- products ------------------------------------------------------------------------------------------- */

/* The rows of one factor, which are no terms of a sum; those of a batch, where the other factor has none. */
static mica_status matmul(mica__ox_op *o)
{
    const mica__type a = mica__ox_in_type(o, 0), b = mica__ox_in_type(o, 1);
    const mica__ox_value *const x = &o->in[0], *const y = &o->in[1];
    const bool left = x->rows != NULL;
    const mica__ox_found *rows = left ? x->rows : y->rows;
    const uint32_t axis = left ? x->axis : y->axis, ndim = left ? a.ndim : b.ndim,
                   other = left ? b.ndim : a.ndim;
    if (x->rows != NULL && y->rows != NULL)
        return mica__ox_rows_refuse(o, 1, ", and so has the other factor");
    if (ndim < 2 || (left ? axis == ndim - 1 : axis == ndim - 2))
        return mica__ox_rows_refuse(o, !left, ", over which the product sums");
    if (axis + 2 < ndim && other > 2)
        return mica__ox_rows_refuse(o, !left, ", and the other factor is a batch too");
    MICA__TRY(o->row->build(o));
    const uint32_t behind = ndim - axis, drop = other == 1 && behind > 1; /* a vector is a dimension less */
    mica__ox_out_rows(o, 0, rows, mica__ox_type(o, o->out[0].tensor).ndim - (behind - drop));
    return MICA_OK;
}

static mica_status gemm(mica__ox_op *o)
{
    const mica__type c = mica__ox_in_type(o, 2);
    const mica__ox_found *rows = o->in[0].rows;
    const bool alone = !mica__ox_has(o, 2) || c.ndim < 2 || c.shape[0] == 1;
    MICA__TRY(only_first(o));
    if (o->in[0].axis != (mica__ox_int(o, "transA", 0) != 0))
        return mica__ox_rows_refuse(o, 0, ", over which the product sums");
    if (!alone)
        return mica__ox_rows_refuse(o, 0, ", and input 2 other ones");
    MICA__TRY(o->row->build(o));
    mica__ox_out_rows(o, 0, rows, 0);
    return MICA_OK;
}

/* ---- regions and boxes ---------------------------------------------------------------------------------- */

/* x, regions [R, 4] and their images [R]: regions that are not there are empty ones of the first image. */
static mica_status roi_align(mica__ox_op *o)
{
    const mica__ox_found *rows = o->in[1].rows;
    if (o->in[0].rows != NULL)
        return mica__ox_rows_refuse(o, 0, ", and is the images");
    for (uint32_t i = 1; i < 3; i++) {
        const mica_tensor x = mica__ox_in(o, i);
        if (rows == NULL || o->in[i].rows != rows || o->in[i].axis != 0)
            return mica__ox_fail(o, "regions of as many rows as the run finds, and images of others");
        mica__ox_put(o, i, mica__ox_masked(o, x, rows, 0, mica__ox_number(o, x, 0)));
    }
    MICA__TRY(o->row->build(o));
    mica__ox_out_rows(o, 0, rows, 0);
    return MICA_OK;
}

/* boxes [batch, count, 4], scores [batch, classes, count]: masked where they are ranked. */
static mica_status non_max_suppression(mica__ox_op *o)
{
    const mica__ox_found *rows = o->in[0].rows;
    for (uint32_t i = 2; i < o->input_count; i++)
        if (o->in[i].rows != NULL)
            return mica__ox_rows_refuse(o, i, ", and is no number");
    if (rows == NULL || rows != o->in[1].rows || o->in[0].axis != 1 || o->in[1].axis != 2)
        return mica__ox_fail(o, "boxes of as many rows as the run finds, and scores of others");
    return o->row->build(o);
}

static mica_status own(mica__ox_op *o)
{
    return o->row->build(o);
}

/* ---- the table ------------------------------------------------------------------------------------------ */

static const mica__ox_rule rules[] = {
    {mica__ox_unary, first, 0},
    {mica__ox_identity, first, 0},
    {mica__ox_is_inf, first, 0},
    {mica__ox_elu, first, 0},
    {mica__ox_leaky, first, 0},
    {mica__ox_thresholded, first, 0},
    {mica__ox_shrink, first, 0},
    {mica__ox_hard_sigmoid, first, 0},
    {mica__ox_gelu, first, 0},
    {mica__ox_swish, first, 0},
    {mica__ox_cast_op, first, 0},
    {mica__ox_cast_like, first, 0},
    {mica__ox_bit_cast, first, 0},
    {mica__ox_dropout, first, 0},
    {mica__ox_prelu, each, 0},
    {mica__ox_clip, each, 0},
    {mica__ox_binary, each, 0},
    {mica__ox_mod, each, 0},
    {mica__ox_pow, each, 0},
    {mica__ox_shift, each, 0},
    {mica__ox_variadic, each, 0},
    {mica__ox_where, each, 0},
    {mica__ox_quantize, codes, 0},
    {mica__ox_dequantize, codes, 0},
    {mica__ox_reduction, reduction, 0},
    {mica__ox_argmax, argmax, 0},
    {mica__ox_softmax, softmax, 0},
    {mica__ox_cumulative, cumulative, 0},
    {mica__ox_top_k, top_k, 0},
    {mica__ox_layer_norm, layer_norm, 0},
    {mica__ox_lp_norm, lp_norm, 0},
    {mica__ox_batch_norm, batch, 0},
    {mica__ox_instance_norm, batch, 0},
    {mica__ox_group_norm, batch, 0},
    {mica__ox_lrn, batch, 0},
    {mica__ox_conv, batch, 0},
    {mica__ox_conv_transpose, batch, 0},
    {mica__ox_max_pool, batch, 0},
    {mica__ox_average_pool, batch, 0},
    {mica__ox_lp_pool, batch, 0},
    {mica__ox_global_pool, batch, 0},
    {mica__ox_global_lp_pool, batch, 0},
    {mica__ox_depth_to_space, batch, 0},
    {mica__ox_matmul, matmul, 0},
    {mica__ox_gemm, gemm, 0},
    {mica__ox_roi_align, roi_align, 0},
    {mica__ox_non_max_suppression, non_max_suppression, 0},
    {mica__ox_non_zero, own, 0},
    {mica__ox_compress, own, 0},
    {mica__ox_gather, mica__ox_rows_gather, 0},
    {mica__ox_gather_elements, mica__ox_rows_gather_elements, 0},
    {mica__ox_gather_nd, mica__ox_rows_gather_nd, 0},
    {mica__ox_scatter_nd, mica__ox_rows_scatter_nd, 0},
    {mica__ox_scatter_elements, mica__ox_rows_scatter_elements, 0},
    {mica__ox_slice_op, mica__ox_rows_slice_op, 4},
    {mica__ox_concat, mica__ox_rows_concat, 0},
    {mica__ox_split, mica__ox_rows_split, 0},
    {mica__ox_transpose, mica__ox_rows_transpose, 0},
    {mica__ox_unsqueeze_op, mica__ox_rows_unsqueeze_op, 0},
    {mica__ox_squeeze, mica__ox_rows_squeeze, 0},
    {mica__ox_flatten, mica__ox_rows_flatten, 0},
    {mica__ox_reshape_op, mica__ox_rows_reshape_op, 2},
    {mica__ox_expand, mica__ox_rows_expand, 2},
    {mica__ox_tile, mica__ox_rows_tile, 0},
    {mica__ox_pad, mica__ox_rows_pad, 0},
    {mica__ox_one_hot, mica__ox_rows_one_hot, 0},
    {mica__ox_shape, mica__ox_rows_shape, 0},
    {mica__ox_size, mica__ox_rows_size, 0},
    {mica__ox_constant_of_shape, mica__ox_rows_constant_of_shape, 1},
    {mica__ox_range, mica__ox_rows_range, 2},
};

const mica__ox_rule *mica__ox_rule_of(const mica__ox_op *o)
{
    for (uint32_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].build == o->row->build)
            return &rules[i];
    return NULL;
}

bool mica__ox_is_open(const mica__ox_op *o)
{
    const mica__ox_rule *rule = mica__ox_rule_of(o);
    for (uint32_t i = 0; i < o->input_count; i++) {
        const mica__ox_host *host = o->in[i].host;
        if (mica__ox_has(o, i) && (o->in[i].rows != NULL || (host != NULL && host->sized && rule != NULL &&
                                                             i < 32 && (rule->sizes >> i & 1) != 0)))
            return true;
    }
    return o->row->build == mica__ox_top_k && mica__ox_has(o, 1) && o->in[1].host == NULL;
}

mica_status mica__ox_build_open(mica__ox_op *o)
{
    const mica__ox_rule *rule = mica__ox_rule_of(o);
    if (rule != NULL)
        return rule->rule(o);
    for (uint32_t i = 0; i < o->input_count; i++)
        if (o->in[i].rows != NULL)
            return mica__ox_rows_refuse(o, i, ", which this operator does not read");
    return MICA_OK;
}
