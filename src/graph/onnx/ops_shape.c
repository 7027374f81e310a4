/*
 * ops_shape.c - shapes as values, and operators that place elements: reshapes, slices, pads, joins, ranges.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/work.h"
#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"

#define MOST_ELEMENTS (1u << 24) /* of what is made while importing */

/* ---- shapes as values ----------------------------------------------------------------------------------- */

static mica_status known_size(const mica__ox_op *o, uint64_t size)
{
    return mica__size_known(size)
               ? MICA_OK
               : mica__ox_fail(o,
                               "of a size that is not known while importing: give the shapes of the inputs");
}

mica_status mica__ox_shape(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    int64_t start = mica__ox_int(o, "start", 0), end = mica__ox_int(o, "end", type.ndim),
            sizes[MICA_MAX_DIMS];
    uint64_t count = 0;
    start = start < 0 ? start + type.ndim : start;
    end = end < 0 ? end + type.ndim : end > (int64_t)type.ndim ? (int64_t)type.ndim : end;
    for (int64_t d = start < 0 ? 0 : start; d < end; d++) {
        MICA__TRY(known_size(o, type.shape[d]));
        sizes[count++] = (int64_t)type.shape[d];
    }
    return mica__ox_out_host(o, 0, MICA_DTYPE_I64, 1, &count, sizes);
}

mica_status mica__ox_size(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    int64_t count = 1;
    for (uint32_t d = 0; d < type.ndim; d++) {
        MICA__TRY(known_size(o, type.shape[d]));
        count *= (int64_t)type.shape[d];
    }
    return mica__ox_out_host(o, 0, MICA_DTYPE_I64, 0, NULL, &count);
}

mica_status mica__ox_constant_op(mica__ox_op *o)
{
    const mica__onnx_attribute *a = o->node->attribute_count == 1 ? &o->node->attribute[0] : NULL;
    const mica__ox_host *host = NULL;
    if (a != NULL && a->refers[0] != '\0')
        a = mica__ox_attribute(o, a->name, MICA__ONNX_KIND_TENSOR);
    if (a == NULL)
        return mica__ox_fail(o, "has not one value");
    const uint64_t count = a->count;
    o->seen = 1;
    switch (a->kind) {
    case MICA__ONNX_KIND_TENSOR:
        MICA__TRY(mica__ox_tensor_host(o->im, a->tensors, &host));
        o->out[0] = (mica__ox_value){.host = host};
        return MICA_OK;
    case MICA__ONNX_KIND_FLOAT: return mica__ox_out_host(o, 0, MICA_DTYPE_F32, 0, NULL, &a->f);
    case MICA__ONNX_KIND_INT: return mica__ox_out_host(o, 0, MICA_DTYPE_I64, 0, NULL, &a->i);
    case MICA__ONNX_KIND_FLOATS: return mica__ox_out_host(o, 0, MICA_DTYPE_F32, 1, &count, a->floats);
    case MICA__ONNX_KIND_INTS: return mica__ox_out_host(o, 0, MICA_DTYPE_I64, 1, &count, a->ints);
    default: return mica__ox_fail(o, "attribute \"%.100s\" holds no numbers", a->name);
    }
}

/* Sizes out of a known input. */
static mica_status read_shape(const mica__ox_op *o, uint32_t i, uint64_t *shape, uint32_t *ndim)
{
    int64_t *sizes = NULL;
    MICA__TRY(mica__ox_need_ints(o, i, &sizes, ndim));
    if (*ndim > MICA_MAX_DIMS)
        return mica__ox_fail(o, "%u dimensions, more than %u", *ndim, MICA_MAX_DIMS);
    for (uint32_t d = 0; d < *ndim; d++) {
        if (sizes[d] < 0 || sizes[d] > (1ll << 48))
            return mica__ox_fail(o, "size %lld", (long long)sizes[d]);
        shape[d] = (uint64_t)sizes[d];
    }
    return MICA_OK;
}

static uint64_t product(uint32_t ndim, const uint64_t *shape)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < ndim; d++)
        count = shape[d] != 0 && count > UINT64_MAX / shape[d] ? UINT64_MAX : count * shape[d];
    return count;
}

mica_status mica__ox_constant_of_shape(mica__ox_op *o)
{
    const mica__onnx_attribute *a = mica__ox_attribute(o, "value", MICA__ONNX_KIND_TENSOR);
    static const float zero = 0;
    const mica__ox_host plain = {.dtype = MICA_DTYPE_F32, .elements = 1, .bytes = 4, .data = &zero};
    const mica__ox_host *value = &plain;
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = 0;
    MICA__TRY(read_shape(o, 0, shape, &ndim));
    if (a != NULL)
        MICA__TRY(mica__ox_tensor_host(o->im, a->tensors, &value));
    if (value->elements != 1)
        return mica__ox_fail(o, "value has not one element");
    if (product(ndim, shape) > MICA__OX_FOLD) {
        mica__ox_value one = {.host = value};
        mica_tensor x = mica__ox_reshape(o, mica__ox_materialise(o->graph, &one), 0, NULL);
        mica__ox_out(o, 0, x == 0 ? 0 : mica_graph_expand(o->graph, x, ndim, shape));
        return MICA_OK;
    }
    const uint64_t count = product(ndim, shape);
    uint8_t *data = mica__ox_memory(o->im, count + 1, (size_t)value->bytes);
    if (data == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < count; i++)
        memcpy(data + i * value->bytes, value->data, (size_t)value->bytes);
    return mica__ox_out_host(o, 0, value->dtype, ndim, shape, data);
}

mica_status mica__ox_range(mica__ox_op *o)
{
    const mica_dtype dtype = mica__ox_in_type(o, 0).dtype;
    const bool whole =
        mica_register_of(dtype) != MICA_REGISTER_F32 && mica_register_of(dtype) != MICA_REGISTER_F64;
    double part[3], count = 0;
    for (uint32_t i = 0; i < 3; i++)
        MICA__TRY(mica__ox_need_number(o, i, &part[i]));
    if (part[2] == 0)
        return mica__ox_fail(o, "delta is 0");
    count = ceil((part[1] - part[0]) / part[2]);
    if (!(count < MOST_ELEMENTS))
        return mica__ox_fail(o, "has %g elements", count);
    const uint64_t n = count > 0 ? (uint64_t)count : 0;
    const mica_dtype inside = whole                     ? MICA_DTYPE_I64
                              : dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64
                                                        : MICA_DTYPE_F32;
    mica_tensor y = mica__ox_cast(o, mica__ox_iota(o, 1, &n, 0, MICA_DTYPE_I64), inside);
    y = mica__ox_scalar(o, MICA_SCALAR_MUL, y, mica__ox_number(o, y, part[2]));
    y = mica__ox_scalar(o, MICA_SCALAR_ADD, y, mica__ox_number(o, y, part[0]));
    mica__ox_out(o, 0, mica__ox_cast(o, y, dtype));
    return MICA_OK;
}

/* ---- the same elements ---------------------------------------------------------------------------------- */

mica_status mica__ox_reshape_op(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const bool allow_zero = mica__ox_int(o, "allowzero", 0) != 0;
    uint64_t shape[MICA_MAX_DIMS], known = 1, elements = 1;
    int64_t *sizes = NULL;
    uint32_t ndim = 0, open = MICA_MAX_DIMS;
    MICA__TRY(mica__ox_need_ints(o, 1, &sizes, &ndim));
    if (ndim > MICA_MAX_DIMS)
        return mica__ox_fail(o, "to %u dimensions, more than %u", ndim, MICA_MAX_DIMS);
    bool all = true;
    for (uint32_t d = 0; d < type.ndim; d++) {
        all = all && mica__size_known(type.shape[d]);
        elements *= all ? type.shape[d] : 1;
    }
    for (uint32_t d = 0; d < ndim; d++) {
        shape[d] = (uint64_t)sizes[d];
        if (sizes[d] == 0 && !allow_zero) {
            if (d >= type.ndim)
                return mica__ox_fail(o, "size %u is to be kept, but there is none", d);
            shape[d] = type.shape[d];
        } else if (sizes[d] < 0) {
            if (sizes[d] != -1 || open != MICA_MAX_DIMS)
                return mica__ox_fail(o, "size %lld", (long long)sizes[d]);
            open = d;
            shape[d] = MICA_SIZE_REST;
        }
        known *= d != open && mica__size_known(shape[d]) ? shape[d] : 1;
    }
    if (open != MICA_MAX_DIMS && all && known != 0)
        shape[open] = elements / known;
    mica__ox_out(o, 0, mica__ox_reshape(o, mica__ox_in(o, 0), ndim, shape));
    return MICA_OK;
}

mica_status mica__ox_flatten(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    int64_t axis = mica__ox_int(o, "axis", 1);
    uint64_t shape[2] = {1, 1};
    axis = axis < 0 ? axis + type.ndim : axis;
    if (axis < 0 || axis > (int64_t)type.ndim)
        return mica__ox_fail(o, "axis %lld", (long long)axis);
    for (uint32_t d = 0; d < type.ndim; d++) {
        uint64_t *side = &shape[d >= axis];
        const bool known = mica__size_known(*side) && mica__size_known(type.shape[d]);
        *side = known ? *side * type.shape[d] : *side == 1 ? type.shape[d] : MICA_SIZE_UNKNOWN;
    }
    if (!mica__size_known(shape[0]) && mica__size_known(shape[1]))
        shape[0] = MICA_SIZE_REST;
    else if (!mica__size_known(shape[1]))
        shape[1] = MICA_SIZE_REST;
    mica__ox_out(o, 0, mica__ox_reshape(o, mica__ox_in(o, 0), 2, shape));
    return MICA_OK;
}

/* Axes of an input, or before opset 13 of an attribute, as a set over `ndim` dimensions. */
/* A list that is input `i`, or before opset 13 an attribute; NULL: there is none. */
static mica_status read_list(mica__ox_op *o, uint32_t i, const char *name, const int64_t **out,
                             uint32_t *out_count)
{
    int64_t *list = NULL;
    *out = NULL;
    *out_count = 0;
    if (o->version < 13)
        *out = mica__ox_ints(o, name, out_count);
    else if (mica__ox_has(o, i)) {
        MICA__TRY(mica__ox_need_ints(o, i, &list, out_count));
        *out = list;
    }
    return MICA_OK;
}

static mica_status read_axes(mica__ox_op *o, uint32_t i, uint32_t ndim, uint32_t *out, bool *out_given)
{
    uint32_t count = 0, axis = 0;
    const int64_t *axes = NULL;
    *out = 0;
    MICA__TRY(read_list(o, i, "axes", &axes, &count));
    *out_given = axes != NULL;
    for (uint32_t k = 0; k < count; k++) {
        MICA__TRY(mica__ox_axis(o, axes[k], ndim, &axis));
        *out |= 1u << axis;
    }
    return MICA_OK;
}

mica_status mica__ox_squeeze(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t axes = 0, ndim = 0;
    bool given = false;
    MICA__TRY(read_axes(o, 1, type.ndim, &axes, &given));
    for (uint32_t d = 0; d < type.ndim; d++) {
        if (!given) {
            MICA__TRY(known_size(o, type.shape[d]));
            axes |= (type.shape[d] == 1) << d;
        } else if ((axes >> d & 1) != 0 && mica__size_known(type.shape[d]) && type.shape[d] != 1) {
            return mica__ox_fail(o, "axis %u has size %llu", d, (unsigned long long)type.shape[d]);
        }
        if ((axes >> d & 1) == 0)
            shape[ndim++] = type.shape[d];
    }
    mica__ox_out(o, 0, mica__ox_reshape(o, mica__ox_in(o, 0), ndim, shape));
    return MICA_OK;
}

mica_status mica__ox_unsqueeze_op(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t axes = 0, from = 0, count = 0;
    const int64_t *given_axes = NULL;
    bool given = false;
    MICA__TRY(read_list(o, 1, "axes", &given_axes, &count));
    if (given_axes == NULL)
        return mica__ox_fail(o, "without axes");
    if (type.ndim + count > MICA_MAX_DIMS)
        return mica__ox_fail(o, "to %u dimensions", type.ndim + count);
    MICA__TRY(read_axes(o, 1, type.ndim + count, &axes, &given));
    for (uint32_t d = 0; d < type.ndim + count; d++)
        if ((axes >> d & 1) != 0)
            shape[d] = 1;
        else if (from < type.ndim)
            shape[d] = type.shape[from++];
        else
            return mica__ox_fail(o, "an axis twice");
    mica__ox_out(o, 0, mica__ox_reshape(o, mica__ox_in(o, 0), type.ndim + count, shape));
    return MICA_OK;
}

mica_status mica__ox_transpose(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    uint32_t count = 0, order[MICA_MAX_DIMS];
    const int64_t *perm = mica__ox_ints(o, "perm", &count);
    if (perm != NULL && count != type.ndim)
        return mica__ox_fail(o, "perm has %u entries for %u dimensions", count, type.ndim);
    for (uint32_t d = 0; d < type.ndim; d++) {
        order[d] = type.ndim - 1 - d;
        if (perm != NULL)
            MICA__TRY(mica__ox_axis(o, perm[d], type.ndim, &order[d]));
    }
    mica__ox_out(o, 0, x == 0 ? 0 : mica_graph_permute(o->graph, x, order));
    return MICA_OK;
}

/* DepthToSpace and SpaceToDepth: six dimensions in another order. */
mica_status mica__ox_depth_to_space(mica__ox_op *o)
{
    static const char *const words[] = {"DCR", "CRD", NULL};
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type t = mica__ox_type(o, x);
    const uint64_t b = (uint64_t)mica__ox_int(o, "blocksize", 0);
    const uint32_t mode = mica__ox_word(o, "mode", 0, words);
    if (t.ndim != 4 || mode == UINT32_MAX || b == 0 || b > 65536)
        return mica__ox_fail(o, "of such a shape, mode or blocksize");
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    const uint64_t *s = t.shape, c = s[1] / (b * b);
    if (o->row->argument == 0) {
        const uint64_t split[2][6] = {{s[0], b, b, c, s[2], s[3]}, {s[0], c, b, b, s[2], s[3]}};
        static const uint32_t order[2][6] = {{0, 3, 4, 1, 5, 2}, {0, 1, 4, 2, 5, 3}};
        const mica_tensor y =
            mica_graph_permute(o->graph, mica__ox_reshape(o, x, 6, split[mode]), order[mode]);
        mica__ox_out(o, 0, mica__ox_reshape(o, y, 4, (const uint64_t[]){s[0], c, s[2] * b, s[3] * b}));
        return MICA_OK;
    }
    const uint64_t split[6] = {s[0], s[1], s[2] / b, b, s[3] / b, b};
    static const uint32_t orders[2][6] = {{0, 3, 5, 1, 2, 4}, {0, 1, 3, 5, 2, 4}};
    const mica_tensor y = mica_graph_permute(o->graph, mica__ox_reshape(o, x, 6, split), orders[mode]);
    mica__ox_out(o, 0, mica__ox_reshape(o, y, 4, (const uint64_t[]){s[0], s[1] * b * b, s[2] / b, s[3] / b}));
    return MICA_OK;
}

/* ---- more of them --------------------------------------------------------------------------------------- */

mica_status mica__ox_expand(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim = 0;
    MICA__TRY(read_shape(o, 1, shape, &ndim));
    mica__type out = type; /* both broadcast to each other */
    if (!mica__broadcast(&out.ndim, out.shape, ndim, shape))
        return mica__ox_fail(o, "the shapes do not broadcast");
    mica__ox_out(o, 0, mica__ox_expand_like(o, mica__ox_in(o, 0), &out));
    return MICA_OK;
}

mica_status mica__ox_tile(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    mica_pad_params params = {.mode = MICA_PAD_WRAP};
    int64_t *repeats = NULL;
    uint32_t count = 0;
    MICA__TRY(mica__ox_need_ints(o, 1, &repeats, &count));
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    if (count != type.ndim)
        return mica__ox_fail(o, "%u repeats for %u dimensions", count, type.ndim);
    for (uint32_t d = 0; d < count; d++) {
        if (repeats[d] < 0 || repeats[d] > (1 << 30))
            return mica__ox_fail(o, "repeats %lld", (long long)repeats[d]);
        params.high[d] = (int64_t)type.shape[d] * (repeats[d] - 1);
    }
    mica__ox_out(o, 0, mica__ox_op1(o, MICA_OP_PAD, &params, &x, 1));
    return MICA_OK;
}

mica_status mica__ox_concat(mica__ox_op *o)
{
    mica_tensor *parts = mica__ox_memory(o->im, o->input_count, sizeof *parts);
    uint32_t axis = 0, count = 0;
    if (parts == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), mica__ox_in_type(o, 0).ndim, &axis));
    for (uint32_t i = 0; i < o->input_count; i++)
        parts[count++] = mica__ox_in(o, i);
    mica__ox_out(o, 0, mica_graph_concat(o->graph, parts, count, axis));
    return MICA_OK;
}

mica_status mica__ox_split(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const int64_t parts = mica__ox_int(o, "num_outputs", o->output_count);
    const int64_t *sizes = NULL;
    uint32_t axis = 0, count = 0;
    uint64_t start = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), type.ndim, &axis));
    MICA__TRY(read_list(o, 1, "split", &sizes, &count));
    if (sizes == NULL)
        MICA__TRY(known_size(o, type.shape[axis]));
    if (parts <= 0 || (sizes != NULL && count != o->output_count))
        return mica__ox_fail(o, "other sizes than outputs");
    const uint64_t each = (type.shape[axis] + (uint64_t)parts - 1) / (uint64_t)parts;
    for (uint32_t i = 0; i < o->output_count; i++) {
        const uint64_t left = type.shape[axis] - start;
        const uint64_t size = sizes != NULL ? (uint64_t)sizes[i] : each < left ? each : left;
        if (sizes != NULL && sizes[i] < 0)
            return mica__ox_fail(o, "size %lld", (long long)sizes[i]);
        mica__ox_out(o, i, mica__ox_slice(o, x, axis, start, size));
        start += size;
    }
    return !mica__size_known(type.shape[axis]) || start == type.shape[axis]
               ? MICA_OK
               : mica__ox_fail(o, "the sizes do not add up to that of the axis");
}

/* One axis of Slice: numpy's rules for where it begins and ends. */
static mica_status slice_axis(const mica__ox_op *o, mica_tensor *x, uint32_t axis, int64_t start, int64_t end,
                              int64_t step)
{
    const mica__type type = mica__ox_type(o, *x);
    const uint64_t size = type.shape[axis];
    if (step == 0)
        return mica__ox_fail(o, "a step of 0");
    if (start == 0 && step == 1 && end >= INT32_MAX)
        return MICA_OK; /* all of it, whatever the size */
    if (!mica__size_known(size) && start >= 0 && end > start && end < INT32_MAX && step > 0) {
        *x = mica_graph_slice(o->graph, *x, axis, (uint64_t)start,
                              (uint64_t)((end - start + step - 1) / step), step);
        return MICA_OK;
    }
    MICA__TRY(known_size(o, size));
    const int64_t n = (int64_t)size, low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    start = start < 0 ? start + n : start;
    start = start < (step > 0 ? 0 : -1) ? low : start > high ? high : start;
    end = end < 0 && end > -n - 1 ? end + n : end < 0 ? low : end > n ? n : end;
    const int64_t span = step > 0 ? end - start : start - end, by = step > 0 ? step : -(step + 1);
    const uint64_t count = span <= 0  ? 0
                           : step > 0 ? (uint64_t)((span - 1) / by + 1)
                                      : (uint64_t)(span - 1) / ((uint64_t)by + 1) + 1;
    /* far steps that take one element alone */
    const int64_t near_step = count <= 1 ? 1 : step;
    *x = *x == 0 ? 0
                 : mica_graph_slice(o->graph, *x, axis, count == 0 ? 0 : (uint64_t)start, count, near_step);
    return MICA_OK;
}

mica_status mica__ox_slice_op(mica__ox_op *o)
{
    mica_tensor x = mica__ox_in(o, 0);
    const uint32_t ndim = mica__ox_type(o, x).ndim;
    int64_t *starts = NULL, *ends = NULL, *axes = NULL, *steps = NULL;
    uint32_t count = 0, ends_count = 0, axes_count = 0, steps_count = 0, axis = 0;
    MICA__TRY(mica__ox_need_ints(o, 1, &starts, &count));
    MICA__TRY(mica__ox_need_ints(o, 2, &ends, &ends_count));
    if (mica__ox_has(o, 3))
        MICA__TRY(mica__ox_need_ints(o, 3, &axes, &axes_count));
    if (mica__ox_has(o, 4))
        MICA__TRY(mica__ox_need_ints(o, 4, &steps, &steps_count));
    if (ends_count != count || (axes != NULL && axes_count != count) ||
        (steps != NULL && steps_count != count))
        return mica__ox_fail(o, "starts, ends, axes and steps of different lengths");
    for (uint32_t i = 0; i < count; i++) {
        MICA__TRY(mica__ox_axis(o, axes == NULL ? i : axes[i], ndim, &axis));
        MICA__TRY(slice_axis(o, &x, axis, starts[i], ends[i], steps == NULL ? 1 : steps[i]));
    }
    mica__ox_out(o, 0, x);
    return MICA_OK;
}

/* ---- pads ----------------------------------------------------------------------------------------------- */

static mica_status pad_value(const mica__ox_op *o, mica_pad_params *params)
{
    if (mica__ox_has(o, 2) && params->mode == MICA_PAD_CONSTANT)
        return mica__ox_need_number(o, 2, &params->value);
    return MICA_OK;
}

mica_status mica__ox_pad(mica__ox_op *o)
{
    static const char *const words[] = {"constant", "edge", "reflect", "wrap", NULL};
    static const uint32_t modes[] = {MICA_PAD_CONSTANT, MICA_PAD_EDGE, MICA_PAD_REFLECT, MICA_PAD_WRAP};
    mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const uint32_t mode = mica__ox_word(o, "mode", 0, words);
    int64_t *pads = NULL, *axes = NULL;
    uint32_t count = 0, axes_count = type.ndim, axis = 0;
    if (mode == UINT32_MAX)
        return mica__ox_fail(o, "attribute \"mode\" is not known");
    mica_pad_params cut = {.mode = MICA_PAD_CONSTANT}, params = {.mode = modes[mode]};
    MICA__TRY(mica__ox_need_ints(o, 1, &pads, &count));
    if (mica__ox_has(o, 3))
        MICA__TRY(mica__ox_need_ints(o, 3, &axes, &axes_count));
    if (count != 2 * axes_count)
        return mica__ox_fail(o, "%u pads for %u axes", count, axes_count);
    MICA__TRY(pad_value(o, &params));
    bool cuts = false;
    for (uint32_t i = 0; i < axes_count; i++) {
        MICA__TRY(mica__ox_axis(o, axes == NULL ? i : axes[i], type.ndim, &axis));
        const int64_t low = pads[i], high = pads[i + axes_count];
        cuts = cuts || low < 0 || high < 0;
        params.low[axis] = low > 0 ? low : 0;
        params.high[axis] = high > 0 ? high : 0;
        cut.low[axis] = low < 0 ? low : 0;
        cut.high[axis] = high < 0 ? high : 0;
    }
    if (cuts)
        x = mica__ox_op1(o, MICA_OP_PAD, &cut, &x, 1);
    mica__ox_out(o, 0, mica__ox_op1(o, MICA_OP_PAD, &params, &x, 1));
    return MICA_OK;
}

mica_status mica__ox_center_crop_pad(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    mica_pad_params params = {.mode = MICA_PAD_CONSTANT};
    int64_t *sizes = NULL;
    uint32_t count = 0, axes_count = 0, axis = 0;
    const int64_t *axes = mica__ox_ints(o, "axes", &axes_count);
    MICA__TRY(mica__ox_need_ints(o, 1, &sizes, &count));
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    if (count != (axes == NULL ? type.ndim : axes_count))
        return mica__ox_fail(o, "%u sizes", count);
    for (uint32_t i = 0; i < count; i++) {
        MICA__TRY(mica__ox_axis(o, axes == NULL ? i : axes[i], type.ndim, &axis));
        const int64_t more = sizes[i] - (int64_t)type.shape[axis];
        params.low[axis] = more >= 0 ? more / 2 : -(-more / 2);
        params.high[axis] = more - params.low[axis];
    }
    mica__ox_out(o, 0, mica__ox_op1(o, MICA_OP_PAD, &params, &x, 1));
    return MICA_OK;
}

/* ---- patterns ------------------------------------------------------------------------------------------- */

/* Where column - row stands to k, as a bool of the last two dimensions. */
static mica_tensor diagonal(const mica__ox_op *o, uint64_t rows, uint64_t columns, int64_t k,
                            mica_scalar compare)
{
    const uint64_t shape[2] = {rows, columns};
    const mica_tensor row = mica__ox_iota(o, 2, shape, 0, MICA_DTYPE_I64);
    const mica_tensor column = mica__ox_iota(o, 2, shape, 1, MICA_DTYPE_I64);
    const mica_tensor at = mica__ox_scalar(o, MICA_SCALAR_SUB, column, row);
    const mica_tensor bound = mica_graph_constant(o->graph, MICA_DTYPE_I64, 0, NULL, &k, sizeof k);
    return mica__ox_scalar(o, compare, at, bound);
}

mica_status mica__ox_trilu(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const bool upper = mica__ox_int(o, "upper", 1) != 0;
    int64_t k = 0;
    if (mica__ox_has(o, 1))
        MICA__TRY(mica__ox_need_int(o, 1, &k));
    if (type.ndim < 2)
        return mica__ox_fail(o, "of %u dimensions", type.ndim);
    const mica_tensor keep = diagonal(o, type.shape[type.ndim - 2], type.shape[type.ndim - 1], k,
                                      upper ? MICA_SCALAR_GREATER_EQUAL : MICA_SCALAR_LESS_EQUAL);
    mica__ox_out(o, 0, mica__ox_select(o, keep, x, mica__ox_number(o, x, 0)));
    return MICA_OK;
}

mica_status mica__ox_eye_like(mica__ox_op *o)
{
    const mica__type type = mica__ox_in_type(o, 0);
    const mica__onnx_type like = mica__onnx_type_of(type.dtype);
    const mica_dtype dtype = mica__ox_dtype(o, mica__ox_int(o, "dtype", (int64_t)like));
    const int64_t k = mica__ox_int(o, "k", 0);
    if (dtype == MICA_DTYPE_NONE)
        return MICA_ERR_UNSUPPORTED;
    if (type.ndim != 2)
        return mica__ox_fail(o, "of %u dimensions", type.ndim);
    mica__ox_out(o, 0,
                 mica__ox_cast(o, diagonal(o, type.shape[0], type.shape[1], k, MICA_SCALAR_EQUAL), dtype));
    return MICA_OK;
}

mica_status mica__ox_one_hot(mica__ox_op *o)
{
    const mica_tensor ids = mica__ox_cast(o, mica__ox_in(o, 0), MICA_DTYPE_I64), values = mica__ox_in(o, 2);
    const mica__type type = mica__ox_type(o, ids);
    uint64_t shape[MICA_MAX_DIMS + 1];
    double number = 0;
    uint32_t axis = 0;
    MICA__TRY(mica__ox_need_number(o, 1, &number));
    const int64_t depth = (int64_t)number;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", -1), type.ndim + 1, &axis));
    if (depth < 1 || depth > (1ll << 40) || type.ndim == MICA_MAX_DIMS)
        return mica__ox_fail(o, "depth %lld", (long long)depth);
    for (uint32_t d = 0; d <= type.ndim; d++)
        shape[d] = d == axis ? (uint64_t)depth : type.shape[d > axis ? d - 1 : d];
    const mica_tensor low = mica__ox_scalar(o, MICA_SCALAR_LESS, ids, mica__ox_number(o, ids, 0));
    mica_tensor id = mica__ox_select(
        o, low, mica__ox_scalar(o, MICA_SCALAR_ADD, ids, mica__ox_number(o, ids, (double)depth)), ids);
    id = mica__ox_unsqueeze(o, id, axis);
    const mica_tensor at = mica__ox_iota(o, type.ndim + 1, shape, axis, MICA_DTYPE_I64);
    const mica_tensor off = mica__ox_reshape(o, mica__ox_slice(o, values, 0, 0, 1), 0, NULL);
    const mica_tensor on = mica__ox_reshape(o, mica__ox_slice(o, values, 0, 1, 1), 0, NULL);
    mica__ox_out(o, 0, mica__ox_select(o, mica__ox_scalar(o, MICA_SCALAR_EQUAL, at, id), on, off));
    return MICA_OK;
}

/* Element t of a sequence of length n becomes n - 1 - t, where t < n: a gather with ids that are computed. */
mica_status mica__ox_reverse_sequence(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    uint32_t batch = 0, time = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "batch_axis", 1), type.ndim, &batch));
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "time_axis", 0), type.ndim, &time));
    if (batch == time)
        return mica__ox_fail(o, "batch_axis and time_axis are one");
    uint64_t shape[MICA_MAX_DIMS];
    for (uint32_t d = 0; d < type.ndim; d++)
        shape[d] = d == batch || d == time ? type.shape[d] : 1;
    const mica_tensor at = mica__ox_iota(o, type.ndim, shape, time, MICA_DTYPE_I32);
    const mica_tensor n =
        mica__ox_along(o, mica__ox_cast(o, mica__ox_in(o, 1), MICA_DTYPE_I32), type.ndim, batch);
    mica_tensor back = mica__ox_scalar(o, MICA_SCALAR_SUB, n, mica__ox_number(o, n, 1));
    back = mica__ox_scalar(o, MICA_SCALAR_SUB, back, at);
    const mica_tensor inside = mica__ox_scalar(o, MICA_SCALAR_LESS, at, n);
    const mica_tensor ids = mica__ox_select(o, inside, back, at);
    const mica_gather_params params = {.axis = time};
    mica__ox_out(o, 0, mica__ox_op1(o, MICA_OP_GATHER, &params, (const mica_tensor[]){x, ids}, 2));
    return MICA_OK;
}
