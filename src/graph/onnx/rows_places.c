/*
 * rows_places.c - rows of which the run finds how many, where elements move: by index, into other shapes, one behind another; and shapes in which their number stands.
 *
 * An index that reads rows must be below their number, which only the run can see: else it is made one that leaves the table, a FAULT as any other. An index that is itself
 * of a row that is not there reads the first place, and writes behind the table.
 */
#include <string.h>

#include "base/work.h"
#include "graph/onnx/operators.h"
#include "graph/onnx/rows.h"

/* ---- where rows are found ------------------------------------------------------------------------------- */

mica_status mica__ox_places_found(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const mica__ox_found *inside = o->in[0].rows, *rows = NULL;
    const uint64_t room = mica__type_elements(&type);
    mica_tensor count = 0, holds = x;
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    if (type.ndim == 0 || room == 0 || room > INT32_MAX)
        return mica__ox_fail(o, "of %u dimensions and %llu elements, which the run alone knows", type.ndim,
                             (unsigned long long)room);
    if (inside != NULL)
        holds = mica__ox_masked(o, x, inside, o->in[0].axis, mica__ox_number(o, x, 0));
    const mica_tensor places = holds == 0 ? 0 : mica_graph_nonzero(o->graph, holds, room, &count);
    MICA__TRY(mica__ox_rows_counted(o, x, inside, room, count, &rows));
    mica__ox_out(o, 0, mica__ox_swap(o, mica__ox_cast(o, places, MICA_DTYPE_I64), 0, 1));
    mica__ox_out_rows(o, 0, rows, 1);
    return MICA_OK;
}

mica_status mica__ox_compressed(mica__ox_op *o, const mica__onnx_attribute *axis)
{
    mica_tensor x = mica__ox_in(o, 0), holds = mica__ox_in(o, 1), count = 0;
    const mica__ox_found *inside = o->in[1].rows, *rows = NULL;
    const mica_tensor key = holds;
    const mica__type condition = mica__ox_type(o, holds);
    mica__type type = mica__ox_type(o, x);
    uint32_t at = 0;
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    MICA__TRY(mica__ox_need_shape(o, holds, "input 1"));
    if (axis != NULL)
        MICA__TRY(mica__ox_axis(o, axis->i, type.ndim, &at));
    if (o->in[0].rows != NULL &&
        (o->in[0].rows != inside || o->in[0].axis != at || (axis == NULL && type.ndim != 1)))
        return mica__ox_rows_refuse(o, 0, ", and not those of the condition");
    if (condition.ndim != 1 || condition.shape[0] == 0)
        return mica__ox_fail(o, "such a condition");
    if (axis == NULL)
        x = mica__ox_reshape(o, x, 1, (const uint64_t[]){MICA_SIZE_REST});
    type = mica__ox_type(o, x);
    if (condition.shape[0] > type.shape[at])
        return mica__ox_fail(o, "a condition of %llu, of %llu places", (unsigned long long)condition.shape[0],
                             (unsigned long long)type.shape[at]);
    if (inside != NULL)
        holds = mica__ox_masked(o, holds, inside, 0, mica__ox_number(o, holds, 0));
    const mica_tensor y =
        x == 0 || holds == 0 ? 0 : mica_graph_compress(o->graph, x, holds, (int32_t)at, &count);
    MICA__TRY(mica__ox_rows_counted(o, key, inside, condition.shape[0], count, &rows));
    mica__ox_out(o, 0, y);
    mica__ox_out_rows(o, 0, rows, at);
    return MICA_OK;
}

/* ---- indices -------------------------------------------------------------------------------------------- */

/* Indices into a dimension, counted from the first: of `rows`, those that are there, else of `size` places. One that leaves them becomes `outside`. */
static mica_tensor counted_ids(const mica__ox_op *o, mica_tensor ids, const mica__ox_found *rows,
                               uint64_t size, uint64_t outside)
{
    const mica_tensor id = mica__ox_cast(o, ids, MICA_DTYPE_I64);
    const mica_tensor n = rows != NULL ? mica__ox_cast(o, rows->count, MICA_DTYPE_I64)
                                       : mica__ox_number(o, id, (double)size),
                      zero = mica__ox_number(o, id, 0);
    const mica_tensor low = mica__ox_scalar(o, MICA_SCALAR_LESS, id, zero);
    const mica_tensor from = mica__ox_select(o, low, mica__ox_scalar(o, MICA_SCALAR_ADD, id, n), id);
    const mica_tensor inside =
        mica__ox_scalar(o, MICA_SCALAR_BIT_AND, mica__ox_scalar(o, MICA_SCALAR_GREATER_EQUAL, from, zero),
                        mica__ox_scalar(o, MICA_SCALAR_LESS, from, n));
    return mica__ox_select(o, inside, from, mica__ox_number(o, from, (double)outside));
}

/* Input 1 as indices of which rows of theirs that are not there are `otherwise`. */
static void put_ids(mica__ox_op *o, mica_tensor ids, uint64_t otherwise)
{
    if (o->in[1].rows != NULL)
        ids =
            mica__ox_masked(o, ids, o->in[1].rows, o->in[1].axis, mica__ox_number(o, ids, (double)otherwise));
    mica__ox_put(o, 1, ids);
}

mica_status mica__ox_rows_gather(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0), ids = mica__ox_in_type(o, 1);
    const mica__ox_value x = o->in[0], at = o->in[1];
    uint32_t axis = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), type.ndim, &axis));
    const bool along = x.rows != NULL && x.axis == axis;
    const uint64_t size = type.shape[axis];
    if (x.rows != NULL && at.rows != NULL && !along)
        return mica__ox_rows_refuse(o, 1, ", and so has the table in another dimension");
    if (along || at.rows != NULL)
        put_ids(o, along ? counted_ids(o, mica__ox_in(o, 1), x.rows, size, size) : mica__ox_in(o, 1), 0);
    MICA__TRY(o->row->build(o));
    if (at.rows != NULL)
        mica__ox_out_rows(o, 0, at.rows, axis + at.axis);
    else if (!along)
        mica__ox_out_rows(o, 0, x.rows, x.axis < axis ? x.axis : x.axis + ids.ndim - 1);
    return MICA_OK;
}

mica_status mica__ox_rows_gather_elements(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const mica__ox_value x = o->in[0], at = o->in[1];
    uint32_t axis = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), type.ndim, &axis));
    const bool along = x.rows != NULL && x.axis == axis;
    const uint64_t size = type.shape[axis];
    if (x.rows != NULL && !along && (x.rows != at.rows || x.axis != at.axis))
        return mica__ox_rows_refuse(o, 0, ", and not those of the indices");
    if (x.rows == NULL && at.axis != axis && at.rows->most > type.shape[at.axis])
        return mica__ox_rows_refuse(o, 1, ", perhaps more than there are elements");
    put_ids(o, along ? counted_ids(o, mica__ox_in(o, 1), x.rows, size, size) : mica__ox_in(o, 1), 0);
    MICA__TRY(o->row->build(o));
    mica__ox_out_rows(o, 0, at.rows, at.axis);
    return MICA_OK;
}

/* Index tuples [.., k] with their numbers of column `c` replaced. */
static mica_tensor with_column(const mica__ox_op *o, mica_tensor tuples, uint32_t c,
                               const mica__ox_found *rows, uint64_t size, uint64_t outside)
{
    const mica__type type = mica__ox_type(o, tuples);
    uint64_t shape[MICA_MAX_DIMS] = {0};
    if (tuples == 0)
        return 0;
    for (uint32_t d = 0; d < type.ndim; d++)
        shape[d] = d + 1 == type.ndim ? type.shape[d] : 1;
    const mica_tensor column = mica__ox_iota(o, type.ndim, shape, type.ndim - 1, MICA_DTYPE_I32);
    const mica_tensor is = mica__ox_scalar(o, MICA_SCALAR_EQUAL, column, mica__ox_number(o, column, c));
    return mica__ox_select(o, is, counted_ids(o, tuples, rows, size, outside),
                           mica__ox_cast(o, tuples, MICA_DTYPE_I64));
}

mica_status mica__ox_rows_gather_nd(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0), ids = mica__ox_in_type(o, 1);
    const mica__ox_value x = o->in[0], at = o->in[1];
    const int64_t given = mica__ox_int(o, "batch_dims", 0);
    if (given < 0 || given >= ids.ndim || (at.rows != NULL && at.axis + 1 == ids.ndim))
        return mica__ox_fail(o, "such batch_dims, or places of as many numbers as the run finds");
    const uint32_t b = (uint32_t)given, k = (uint32_t)ids.shape[ids.ndim - 1];
    const bool along = x.rows != NULL && x.axis >= b && x.axis - b < k;
    if ((x.rows != NULL && (x.axis < b || (!along && at.rows != NULL))) || (at.rows != NULL && at.axis < b))
        return mica__ox_rows_refuse(o, x.rows == NULL, " in other dimensions than are picked");
    mica_tensor tuples = mica__ox_in(o, 1);
    if (along)
        tuples = with_column(o, tuples, x.axis - b, x.rows, type.shape[x.axis], type.shape[x.axis]);
    put_ids(o, tuples, 0);
    MICA__TRY(o->row->build(o));
    if (at.rows != NULL)
        mica__ox_out_rows(o, 0, at.rows, at.axis);
    else if (!along)
        mica__ox_out_rows(o, 0, x.rows, ids.ndim - 1 + x.axis - (b + k));
    return MICA_OK;
}

/* ---- scattering ------------------------------------------------------------------------------------------ */

/* x with one more place along an axis, where rows that are not there may write. */
static mica_tensor with_spare(const mica__ox_op *o, mica_tensor x, uint32_t axis)
{
    const mica__type type = mica__ox_type(o, x);
    uint64_t shape[MICA_MAX_DIMS];
    if (x == 0)
        return 0;
    memcpy(shape, type.shape, sizeof shape);
    shape[axis] = 1;
    const mica_tensor zero = mica_graph_expand(o->graph, mica__ox_number(o, x, 0), type.ndim, shape);
    return mica_graph_concat(o->graph, (const mica_tensor[]){x, zero}, 2, axis);
}

/* The node over data with a spare place along `axis`, which goes again. */
static mica_status scatter_spared(mica__ox_op *o, uint32_t axis, const mica__ox_value *data)
{
    const uint64_t size = mica__ox_in_type(o, 0).shape[axis];
    mica__ox_put(o, 0, with_spare(o, mica__ox_in(o, 0), axis));
    o->in[0].rows = o->in[1].rows = o->in[2].rows = NULL;
    MICA__TRY(o->row->build(o));
    mica__ox_out(o, 0, mica__ox_slice(o, o->out[0].tensor, axis, 0, size));
    mica__ox_out_rows(o, 0, data->rows, data->axis);
    return MICA_OK;
}

/* data, tuples [.., k], updates [.., rest]: the rows of tuples and updates are the same. */
mica_status mica__ox_rows_scatter_nd(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0), ids = mica__ox_in_type(o, 1);
    const mica__ox_value data = o->in[0], at = o->in[1], updates = o->in[2];
    if (ids.ndim == 0 || type.ndim == 0)
        return mica__ox_fail(o, "such shapes");
    if (at.rows != updates.rows || (at.rows != NULL && (at.axis != updates.axis || at.axis + 1 == ids.ndim)))
        return mica__ox_rows_refuse(o, at.rows != NULL ? 1 : 2, ", and tuples and updates not the same");
    if (data.rows != NULL && data.axis >= ids.shape[ids.ndim - 1])
        return mica__ox_rows_refuse(o, 0, " in a dimension that the tuples do not pick");
    mica_tensor tuples = mica__ox_in(o, 1);
    for (uint32_t c = 0; c < ids.shape[ids.ndim - 1] && c < type.ndim; c++)
        if (c == 0 ||
            (data.rows != NULL && c == data.axis)) /* the dimension with the spare place, and that of rows */
            tuples = with_column(o, tuples, c, data.rows != NULL && c == data.axis ? data.rows : NULL,
                                 type.shape[c], type.shape[c] + (c == 0));
    if (at.rows == NULL) {
        mica__ox_put(o, 1, tuples);
        return scatter_spared(o, 0, &data);
    }
    /* a row that is not there writes to the spare place, wherever that is */
    uint64_t shape[MICA_MAX_DIMS] = {0};
    const mica__type wide = mica__ox_type(o, tuples);
    for (uint32_t d = 0; d < wide.ndim; d++)
        shape[d] = d + 1 == wide.ndim ? wide.shape[d] : 1;
    const mica_tensor column = mica__ox_iota(o, wide.ndim, shape, wide.ndim - 1, MICA_DTYPE_I32);
    const mica_tensor spare =
        mica__ox_select(o, mica__ox_scalar(o, MICA_SCALAR_EQUAL, column, mica__ox_number(o, column, 0)),
                        mica_graph_number(o->graph, MICA_DTYPE_I64, (double)type.shape[0]),
                        mica_graph_number(o->graph, MICA_DTYPE_I64, 0));
    mica__ox_put(o, 1, mica__ox_masked(o, tuples, at.rows, at.axis, spare));
    return scatter_spared(o, 0, &data);
}

mica_status mica__ox_rows_scatter_elements(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const mica__ox_value data = o->in[0], at = o->in[1], updates = o->in[2];
    uint32_t axis = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), type.ndim, &axis));
    if (at.rows != updates.rows || (at.rows != NULL && at.axis != updates.axis))
        return mica__ox_rows_refuse(o, at.rows != NULL ? 1 : 2, ", and indices and updates not the same");
    if (data.rows != NULL && data.axis != axis)
        return mica__ox_rows_refuse(o, 0, " in a dimension that the indices do not pick");
    if (at.rows != NULL && at.axis != axis && at.rows->most > type.shape[at.axis])
        return mica__ox_rows_refuse(o, 1, ", perhaps more than there are elements");
    const uint64_t size = type.shape[axis];
    /* an index out of the rows leaves the spare place too */
    put_ids(o, counted_ids(o, mica__ox_in(o, 1), data.rows, size, size + 1), size);
    return scatter_spared(o, axis, &data);
}

/* ---- pieces ---------------------------------------------------------------------------------------------- */

/* The places of an axis that stay: from the first, in steps of one. */
static mica_status sliced_rows(mica__ox_op *o, const mica__ox_value *x, int64_t start, int64_t end,
                               int64_t step, const mica__ox_found **out)
{
    if (step != 1 || start < 0 || end <= start)
        return mica__ox_rows_refuse(o, 0, ", and is cut from its end or in steps");
    return mica__ox_rows_slice(o, x->rows, start, end, out);
}

/* starts, ends, axes, steps; an end may be a number of rows, and is all of them then. */
mica_status mica__ox_rows_slice_op(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const mica__ox_value x = o->in[0];
    const mica__ox_found *rows = x.rows;
    const mica__ox_host *ends = mica__ox_known(o, 2);
    uint32_t count = 0, axis = x.axis, at = 0, list = 0;
    int64_t *start = NULL, *end = NULL, *axes = NULL, *steps = NULL;
    MICA__TRY(mica__ox_need_ints(o, 1, &start, &count));
    MICA__TRY(mica__ox_need_ints(o, 2, &end, &list));
    bool fits = list == count;
    if (mica__ox_has(o, 3)) {
        MICA__TRY(mica__ox_need_ints(o, 3, &axes, &list));
        fits = fits && list == count;
    }
    if (mica__ox_has(o, 4)) {
        MICA__TRY(mica__ox_need_ints(o, 4, &steps, &list));
        fits = fits && list == count;
    }
    if (!fits)
        return mica__ox_fail(o, "starts, ends, axes and steps of other lengths");
    for (uint32_t i = 0; i < count; i++) {
        const mica__ox_found *last = mica__ox_size_rows(o->im, ends, i);
        const int64_t step = steps == NULL ? 1 : steps[i];
        MICA__TRY(mica__ox_axis(o, axes == NULL ? (int64_t)i : axes[i], type.ndim, &at));
        if (last != NULL && x.rows != NULL && (last != x.rows || at != x.axis))
            return mica__ox_rows_refuse(o, 0, ", and is cut at another number of them");
        if (last != NULL && x.rows == NULL &&
            (rows != NULL || start[i] != 0 || step != 1 || last->most > type.shape[at]))
            return mica__ox_fail(o, "to a number of rows that the run finds");
        if (last != NULL) {
            rows = last;
            axis = at;
            end[i] = x.rows == NULL ? (int64_t)last->most : INT64_MAX;
        }
        if (x.rows != NULL && at == x.axis)
            MICA__TRY(sliced_rows(o, &x, start[i], end[i], step, &rows));
    }
    mica__ox_host *numbers = mica__ox_memory(o->im, 1, sizeof *numbers);
    if (numbers == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    *numbers = (mica__ox_host){
        .dtype = MICA_DTYPE_I64, .ndim = 1, .elements = count, .bytes = count * sizeof *end, .data = end};
    numbers->shape[0] = count;
    o->in[2] = (mica__ox_value){.host = numbers};
    MICA__TRY(o->row->build(o));
    mica__ox_out_rows(o, 0, rows, axis);
    return MICA_OK;
}

/* Along the rows: what is there of each closes up behind what is there of the one before. */
static mica_status join(mica__ox_op *o, uint32_t axis)
{
    const mica__ox_found **rows = mica__ox_memory(o->im, o->input_count, sizeof *rows), *all = NULL;
    uint64_t *size = mica__ox_memory(o->im, o->input_count, sizeof *size);
    mica_tensor *there = mica__ox_memory(o->im, o->input_count, sizeof *there), count = 0;
    uint32_t parts = 0;
    if (rows == NULL || size == NULL || there == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < o->input_count; i++) {
        const mica__type type = mica__ox_in_type(o, i);
        if (o->in[i].rows != NULL && o->in[i].axis != axis)
            return mica__ox_rows_refuse(o, i, ", and another input in another dimension");
        if (type.ndim <= axis || !mica__size_known(type.shape[axis]))
            return mica__ox_fail(o, "of sizes that are not known while importing");
        if (type.shape[axis] == 0)
            continue;
        rows[parts] = o->in[i].rows;
        size[parts] = type.shape[axis];
        const mica_tensor yes = mica_graph_number(o->graph, MICA_DTYPE_BOOL, 1);
        there[parts] = rows[parts] != NULL ? mica__ox_there(o, rows[parts], 1, 0)
                                           : mica_graph_expand(o->graph, yes, 1, &size[parts]);
        parts++;
    }
    MICA__TRY(mica__ox_rows_join(o, rows, size, parts, &all));
    MICA__TRY(o->row->build(o));
    const mica_tensor holds = mica_graph_concat(o->graph, there, parts, 0);
    mica__ox_out(o, 0,
                 o->out[0].tensor == 0 || holds == 0
                     ? 0
                     : mica_graph_compress(o->graph, o->out[0].tensor, holds, (int32_t)axis, &count));
    mica__ox_out_rows(o, 0, all, axis);
    return MICA_OK;
}

mica_status mica__ox_rows_concat(mica__ox_op *o)
{
    const mica__ox_found *rows = o->in[0].rows;
    uint32_t axis = 0;
    bool along = false;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), mica__ox_in_type(o, 0).ndim, &axis));
    for (uint32_t i = 0; i < o->input_count; i++)
        along = along || (o->in[i].rows != NULL && o->in[i].axis == axis);
    if (along)
        return join(o, axis);
    for (uint32_t i = 0; i < o->input_count; i++)
        if (o->in[i].rows != rows || (rows != NULL && o->in[i].axis != o->in[0].axis))
            return mica__ox_rows_refuse(o, o->in[i].rows != NULL ? i : 0, ", and not those of another input");
    MICA__TRY(o->row->build(o));
    mica__ox_out_rows(o, 0, rows, o->in[0].axis);
    return MICA_OK;
}

mica_status mica__ox_rows_split(mica__ox_op *o)
{
    uint32_t axis = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), mica__ox_in_type(o, 0).ndim, &axis));
    if (axis == o->in[0].axis)
        return mica__ox_rows_refuse(o, 0, " along its axis");
    MICA__TRY(o->row->build(o));
    for (uint32_t i = 0; i < o->output_count; i++)
        mica__ox_out_rows(o, i, o->in[0].rows, o->in[0].axis);
    return MICA_OK;
}

/* ---- other shapes ---------------------------------------------------------------------------------------- */

static mica_status build_at(mica__ox_op *o, uint32_t axis)
{
    const mica__ox_found *rows = o->in[0].rows;
    MICA__TRY(o->row->build(o));
    mica__ox_out_rows(o, 0, rows, axis);
    return MICA_OK;
}

mica_status mica__ox_rows_transpose(mica__ox_op *o)
{
    const uint32_t ndim = mica__ox_in_type(o, 0).ndim;
    uint32_t count = 0, from = 0, to = 0;
    const int64_t *perm = mica__ox_ints(o, "perm", &count);
    for (uint32_t d = 0; d < ndim; d++) {
        from = ndim - 1 - d;
        if (perm != NULL && d < count)
            MICA__TRY(mica__ox_axis(o, perm[d], ndim, &from));
        to = from == o->in[0].axis ? d : to;
    }
    return build_at(o, to);
}

/* Axes that are an attribute or input 1, as a set; false where there are none. */
static mica_status axes_of(mica__ox_op *o, uint32_t ndim, uint32_t *out, uint32_t *out_count)
{
    const int64_t *axes = mica__ox_ints(o, "axes", out_count);
    int64_t *given = NULL;
    uint32_t axis = 0;
    *out = 0;
    if (mica__ox_has(o, 1)) {
        MICA__TRY(mica__ox_need_ints(o, 1, &given, out_count));
        axes = given;
    }
    const uint32_t all = ndim + (o->row->build == mica__ox_unsqueeze_op ? *out_count : 0);
    for (uint32_t i = 0; i < *out_count; i++) {
        MICA__TRY(mica__ox_axis(o, axes[i], all, &axis));
        *out |= axis < 32 ? 1u << axis : 0;
    }
    return MICA_OK;
}

mica_status mica__ox_rows_unsqueeze_op(mica__ox_op *o)
{
    const uint32_t ndim = mica__ox_in_type(o, 0).ndim;
    uint32_t axes = 0, count = 0, from = 0, to = 0;
    MICA__TRY(axes_of(o, ndim, &axes, &count));
    for (uint32_t d = 0; d < ndim + count && d < 32; d++)
        if ((axes >> d & 1) == 0) {
            to = from == o->in[0].axis ? d : to;
            from++;
        }
    return build_at(o, to);
}

mica_status mica__ox_rows_squeeze(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    uint32_t axes = 0, count = 0, before = 0;
    MICA__TRY(axes_of(o, type.ndim, &axes, &count));
    for (uint32_t d = 0; d < type.ndim && count == 0; d++)
        axes |= (type.shape[d] == 1) << d;
    if ((axes >> o->in[0].axis & 1) != 0)
        return mica__ox_rows_refuse(o, 0, " in a dimension that is to go");
    for (uint32_t d = 0; d < o->in[0].axis; d++)
        before += axes >> d & 1;
    return build_at(o, o->in[0].axis - before);
}

static uint64_t product(const uint64_t *shape, uint32_t from, uint32_t to)
{
    uint64_t all = 1;
    for (uint32_t d = from; d < to; d++)
        all *= shape[d];
    return all;
}

/* Input 0 in another shape of known sizes, in which dimension `to` is that of the rows: what is before them is as before, so that those that are there come first again. */
static mica_status regroup(mica__ox_op *o, uint32_t ndim, const uint64_t *shape, uint32_t to,
                           const mica__ox_found **out)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const uint32_t axis = o->in[0].axis;
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 0), "input 0"));
    const uint64_t before = product(type.shape, 0, axis), behind = product(type.shape, axis + 1, type.ndim);
    if (to >= ndim || product(shape, 0, to) != before ||
        product(shape, 0, ndim) != mica__type_elements(&type))
        return mica__ox_rows_refuse(o, 0, ", which the new shape cuts or joins");
    return mica__ox_rows_scale(o, o->in[0].rows, behind, product(shape, to + 1, ndim), out);
}

mica_status mica__ox_rows_flatten(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const mica__ox_found *rows = NULL;
    int64_t axis = mica__ox_int(o, "axis", 1);
    axis = axis < 0 ? axis + type.ndim : axis;
    if (axis < 0 || axis > (int64_t)type.ndim)
        return mica__ox_fail(o, "axis %lld", (long long)axis);
    const uint64_t shape[] = {product(type.shape, 0, (uint32_t)axis),
                              product(type.shape, (uint32_t)axis, type.ndim)};
    const uint32_t to = o->in[0].axis >= axis;
    MICA__TRY(regroup(o, 2, shape, to, &rows));
    MICA__TRY(o->row->build(o));
    mica__ox_out_rows(o, 0, rows, to);
    return MICA_OK;
}

/* A shape in which rows stand, with the most that there may be; `to` is where they stand, of one dimension at most. */
static mica_status most_of_shape(mica__ox_op *o, uint32_t input, uint64_t *shape, uint32_t *ndim,
                                 uint32_t *to, const mica__ox_found **rows)
{
    const mica__ox_host *host = NULL;
    int64_t *sizes = NULL;
    *to = MICA_MAX_DIMS;
    *rows = NULL;
    MICA__TRY(mica__ox_need(o, input, &host));
    MICA__TRY(mica__ox_need_ints(o, input, &sizes, ndim));
    if (*ndim > MICA_MAX_DIMS)
        return mica__ox_fail(o, "%u dimensions, more than %u", *ndim, MICA_MAX_DIMS);
    for (uint32_t d = 0; d < *ndim; d++) {
        const mica__ox_found *stands = mica__ox_size_rows(o->im, host, d);
        shape[d] = (uint64_t)sizes[d];
        if (stands == NULL)
            continue;
        if (*rows != NULL)
            return mica__ox_fail(o, "a shape of which the run finds two sizes");
        *rows = stands;
        *to = d;
        shape[d] = stands->most;
    }
    return MICA_OK;
}

static mica_status put_shape(mica__ox_op *o, uint32_t input, uint32_t ndim, const uint64_t *shape)
{
    int64_t *sizes = mica__ox_memory(o->im, ndim, sizeof *sizes);
    mica__ox_host *host = mica__ox_memory(o->im, 1, sizeof *host);
    if (sizes == NULL || host == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint32_t d = 0; d < ndim; d++)
        sizes[d] = (int64_t)shape[d];
    *host = (mica__ox_host){
        .dtype = MICA_DTYPE_I64, .ndim = 1, .elements = ndim, .bytes = ndim * sizeof *sizes, .data = sizes};
    host->shape[0] = ndim;
    o->in[input] = (mica__ox_value){.host = host};
    return MICA_OK;
}

/* The rows stand where the shape says their number, else where it keeps their size, else where it leaves one open. */
mica_status mica__ox_rows_reshape_op(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const mica__ox_found *stated = NULL, *rows = NULL;
    const bool allow_zero = mica__ox_int(o, "allowzero", 0) != 0;
    uint64_t shape[MICA_MAX_DIMS], known = 1;
    uint32_t ndim = 0, to = 0, rest = MICA_MAX_DIMS;
    MICA__TRY(most_of_shape(o, 1, shape, &ndim, &to, &stated));
    if (o->in[0].rows == NULL)
        return mica__ox_fail(o, "to as many rows as the run finds");
    for (uint32_t d = 0; d < ndim; d++) {
        if (shape[d] == (uint64_t)-1 && rest == MICA_MAX_DIMS) {
            rest = d;
            continue;
        }
        if (shape[d] == 0 && !allow_zero && d < type.ndim) {
            shape[d] = type.shape[d];
            to = to == MICA_MAX_DIMS && d == o->in[0].axis ? d : to;
        }
        if (shape[d] == 0 || shape[d] > (1ull << 48))
            return mica__ox_fail(o, "size %lld", (long long)shape[d]);
        known = known > (1ull << 48) / shape[d] ? 0 : known * shape[d];
        if (known == 0)
            return mica__ox_fail(o, "a shape of over 2^48 elements");
    }
    to = to == MICA_MAX_DIMS ? rest : to;
    if (to == MICA_MAX_DIMS)
        return mica__ox_rows_refuse(o, 0, ", and the new shape has numbers");
    if (rest != MICA_MAX_DIMS)
        shape[rest] = mica__type_elements(&type) / known;
    MICA__TRY(regroup(o, ndim, shape, to, &rows));
    if (stated != NULL && stated != rows)
        return mica__ox_rows_refuse(o, 0, ", and the new shape another number of them");
    MICA__TRY(put_shape(o, 1, ndim, shape));
    MICA__TRY(o->row->build(o));
    mica__ox_out_rows(o, 0, rows, to);
    return MICA_OK;
}

mica_status mica__ox_rows_expand(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const mica__ox_value x = o->in[0];
    const mica__ox_found *stated = NULL, *rows = x.rows;
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = 0, to = 0,
             behind = x.rows != NULL ? type.ndim - x.axis : 0; /* the dimension, from the last on */
    MICA__TRY(most_of_shape(o, 1, shape, &ndim, &to, &stated));
    const bool meets = x.rows != NULL && behind <= ndim; /* the shape has a number for the rows */
    if (stated != NULL && x.rows != NULL && (stated != x.rows || ndim - to != behind))
        return mica__ox_rows_refuse(o, 0, ", and the new shape other ones");
    if (stated == NULL && meets && shape[ndim - behind] != 1)
        return mica__ox_rows_refuse(o, 0, ", and the new shape a number");
    if (stated != NULL && x.rows == NULL) {
        rows = stated;
        behind = ndim - to;
        if (behind <= type.ndim && type.shape[type.ndim - behind] != 1)
            return mica__ox_fail(o, "to as many rows as the run finds, of another number");
    }
    MICA__TRY(put_shape(o, 1, ndim, shape));
    MICA__TRY(o->row->build(o));
    mica__ox_out_rows(o, 0, rows, mica__ox_type(o, o->out[0].tensor).ndim - behind);
    return MICA_OK;
}

mica_status mica__ox_rows_tile(mica__ox_op *o)
{
    int64_t *repeats = NULL;
    uint32_t count = 0;
    MICA__TRY(mica__ox_need_ints(o, 1, &repeats, &count));
    if (o->in[0].axis >= count || repeats[o->in[0].axis] != 1)
        return mica__ox_rows_refuse(o, 0, " and is repeated along them");
    return build_at(o, o->in[0].axis);
}

mica_status mica__ox_rows_pad(mica__ox_op *o)
{
    const uint32_t ndim = mica__ox_in_type(o, 0).ndim;
    int64_t *pads = NULL;
    uint32_t count = 0;
    MICA__TRY(mica__ox_need_ints(o, 1, &pads, &count));
    if (mica__ox_has(o, 3) || count != 2 * ndim || pads[o->in[0].axis] != 0 ||
        pads[o->in[0].axis + ndim] != 0)
        return mica__ox_rows_refuse(o, 0, ", and may be padded along them");
    return build_at(o, o->in[0].axis);
}

mica_status mica__ox_rows_one_hot(mica__ox_op *o)
{
    uint32_t axis = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", -1), mica__ox_in_type(o, 0).ndim + 1, &axis));
    for (uint32_t i = 1; i < o->input_count; i++)
        if (o->in[i].rows != NULL)
            return mica__ox_rows_refuse(o, i, ", and is no list of indices");
    return build_at(o, o->in[0].axis + (axis <= o->in[0].axis));
}

/* ---- their number ---------------------------------------------------------------------------------------- */

mica_status mica__ox_rows_shape(mica__ox_op *o)
{
    const int64_t ndim = mica__ox_in_type(o, 0).ndim;
    int64_t start = mica__ox_int(o, "start", 0);
    MICA__TRY(o->row->build(o));
    start = start < 0 ? start + ndim : start;
    start = start < 0 ? 0 : start;
    mica__ox_host *host = mica__ox_memory(o->im, 1, sizeof *host);
    int64_t *sizes = mica__ox_memory(o->im, o->out[0].host->elements, sizeof *sizes);
    if (host == NULL || sizes == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    *host = *o->out[0].host;
    memcpy(sizes, host->data, (size_t)host->bytes);
    host->data = sizes;
    const int64_t at = (int64_t)o->in[0].axis - start;
    if (at >= 0 && (uint64_t)at < host->elements) {
        sizes[at] = mica__ox_size_of(o->in[0].rows);
        host->sized = true;
    }
    o->out[0] = (mica__ox_value){.host = host};
    return MICA_OK;
}

mica_status mica__ox_rows_size(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const mica__ox_found *rows = o->in[0].rows;
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 0), "input 0"));
    const mica_tensor count = mica__ox_cast(o, rows->count, MICA_DTYPE_I64);
    const uint64_t each = rows->most != 0 ? mica__type_elements(&type) / rows->most : 0;
    mica__ox_out(o, 0, mica__ox_scalar(o, MICA_SCALAR_MUL, count, mica__ox_number(o, count, (double)each)));
    return MICA_OK;
}

mica_status mica__ox_rows_constant_of_shape(mica__ox_op *o)
{
    const mica__ox_found *rows = NULL;
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = 0, to = 0;
    MICA__TRY(most_of_shape(o, 0, shape, &ndim, &to, &rows));
    MICA__TRY(put_shape(o, 0, ndim, shape));
    MICA__TRY(o->row->build(o));
    if (o->out[0].host != NULL) /* no constant: what it is made into has its rows */
        mica__ox_out(o, 0, mica__ox_materialise(o->graph, &o->out[0]));
    o->out[0].host = NULL;
    mica__ox_out_rows(o, 0, rows, to);
    return MICA_OK;
}

/* From 0 in steps of 1 to a number of rows. */
mica_status mica__ox_rows_range(mica__ox_op *o)
{
    const mica__ox_host *limit = mica__ox_known(o, 1);
    double start = 0, step = 0;
    MICA__TRY(mica__ox_need_number(o, 0, &start));
    MICA__TRY(mica__ox_need_number(o, 2, &step));
    const mica__ox_found *rows =
        limit != NULL && limit->elements == 1 ? mica__ox_size_rows(o->im, limit, 0) : NULL;
    if (rows == NULL || start != 0 || step != 1)
        return mica__ox_fail(o, "to a number of rows that the run finds, but not from 0 in steps of 1");
    mica__ox_out(o, 0, mica__ox_iota(o, 1, &rows->most, 0, MICA_DTYPE_I64));
    mica__ox_out_rows(o, 0, rows, 0);
    return MICA_OK;
}
