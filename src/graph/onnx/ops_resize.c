/*
 * ops_resize.c - images at other places: Resize and Upsample, grids. What the op resize of mica says is that op; every other way to say where places lie becomes one product with
 * a matrix of weights for each axis, or of the nearest place a gather.
 */
#include <math.h>
#include <string.h>

#include "base/work.h"
#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"

enum { HALF_PIXEL, PYTORCH_HALF_PIXEL, HALF_PIXEL_SYMMETRIC, ALIGN_CORNERS, ASYMMETRIC, TF_CROP };
enum { NEAREST, LINEAR, CUBIC };
enum { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL };
#define MOST_WEIGHTS (1ull << 22) /* of one axis: a small file may ask for no more memory than this */

typedef struct resize {
    uint32_t mode, corners, nearest;
    bool antialias, exclude_outside;
    double a, extrapolation;
    uint32_t axes; /* that change */
    double scale[MICA_MAX_DIMS], begin[MICA_MAX_DIMS], end[MICA_MAX_DIMS];
    uint64_t size[MICA_MAX_DIMS];
} resize;

/* ---- weights of one axis -------------------------------------------------------------------------------- */

/* Where place `i` of `out` lies in `in` places. */
static double source(const resize *r, uint32_t axis, uint64_t i, uint64_t in)
{
    const double x = (double)i, n = (double)in, scale = r->scale[axis], width = scale * n;
    const double half = (x + 0.5) / scale - 0.5;
    switch (r->corners) {
    case PYTORCH_HALF_PIXEL: return width == 1.0 ? -0.5 : half;
    case HALF_PIXEL_SYMMETRIC: return n / 2 * (1 - (double)r->size[axis] / width) + half;
    case ALIGN_CORNERS: return width == 1.0 ? 0 : x * (n - 1) / (width - 1);
    case ASYMMETRIC: return x / scale;
    case TF_CROP: {
        const double span = (r->end[axis] - r->begin[axis]) * (n - 1);
        return r->begin[axis] * (n - 1) + (width == 1.0 ? span / 2 : x * span / (width - 1));
    }
    default: return half;
    }
}

static double cubic(double x, double a)
{
    x = fabs(x);
    return x < 1   ? ((a + 2) * x - (a + 3)) * x * x + 1
           : x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
                   : 0;
}

/* The row of weights for a place; what lies outside counts for the edge, or not at all. */
static void weigh(const resize *r, uint32_t axis, double at, uint64_t in, float *row)
{
    const double shrink = r->antialias && r->scale[axis] < 1 ? r->scale[axis] : 1,
                 reach = r->mode == LINEAR ? 1 : 2;
    const double low = ceil(at) - 1, ratio = at - low; /* in (0, 1] */
    const int64_t first = (int64_t)floor(-reach / shrink) + 1, count = 2 - 2 * first;
    double total = 0;
    for (int64_t k = 0; k < count; k++) {
        const double away = ((double)(first + k) - ratio) * shrink;
        const double weight = r->mode == LINEAR ? fmax(1 - fabs(away), 0) : cubic(away, r->a);
        const int64_t place = (int64_t)low + first + k;
        if (!r->exclude_outside || (place >= 0 && place < (int64_t)in))
            total += weight;
    }
    for (int64_t k = 0; k < count; k++) {
        const double away = ((double)(first + k) - ratio) * shrink;
        const double weight = r->mode == LINEAR ? fmax(1 - fabs(away), 0) : cubic(away, r->a);
        const int64_t place = (int64_t)low + first + k;
        const int64_t held = place < 0 ? 0 : place >= (int64_t)in ? (int64_t)in - 1 : place;
        if (!r->exclude_outside || place == held)
            row[held] += (float)(weight / total);
    }
}

static bool is_outside(const resize *r, double at, uint64_t in)
{
    return r->corners == TF_CROP && (at < 0 || at > (double)(in - 1));
}

/* x with `axis` last, times the weights; places outside become `extrapolation`. */
static mica_status weighted(mica__ox_op *o, const resize *r, uint32_t axis, mica_tensor *x)
{
    const mica__type t = mica__ox_type(o, *x);
    const uint64_t in = t.shape[axis], out = r->size[axis];
    if (in == 0 || out == 0 || in > MOST_WEIGHTS / out)
        return mica__ox_fail(o, "from %llu to %llu places", (unsigned long long)in, (unsigned long long)out);
    MICA__TRY(mica__spend(in * out + out));
    float *weights = mica__ox_memory(o->im, in * out, sizeof *weights),
          *beyond = mica__ox_memory(o->im, out, sizeof *beyond);
    bool any = false;
    if (weights == NULL || beyond == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < out; i++) {
        const double at = source(r, axis, i, in);
        if (is_outside(r, at, in)) {
            beyond[i] = (float)r->extrapolation;
            any = true;
        } else {
            weigh(r, axis, at, in, weights + i * in);
        }
    }
    const mica_tensor w = mica__ox_constant(o, MICA_DTYPE_F32, 2, (const uint64_t[]){out, in}, weights);
    mica_tensor y = mica__ox_move(o, *x, axis, t.ndim - 1);
    y = y == 0 ? 0 : mica_graph_matmul(o->graph, y, mica__ox_swap(o, mica__ox_cast(o, w, t.dtype), 0, 1));
    if (any)
        y = mica__ox_scalar(o, MICA_SCALAR_ADD, y,
                            mica__ox_cast(o, mica__ox_constant(o, MICA_DTYPE_F32, 1, &out, beyond), t.dtype));
    *x = mica__ox_move(o, y, t.ndim - 1, axis);
    return MICA_OK;
}

static int64_t nearest_place(const resize *r, double at)
{
    switch (r->nearest) {
    case PREFER_CEIL: return (int64_t)floor(at + 0.5);
    case FLOOR: return (int64_t)floor(at);
    case CEIL: return (int64_t)ceil(at);
    default: return (int64_t)ceil(at - 0.5);
    }
}

static mica_status gathered(mica__ox_op *o, const resize *r, uint32_t axis, mica_tensor *x)
{
    const mica__type t = mica__ox_type(o, *x);
    const uint64_t in = t.shape[axis], out = r->size[axis];
    const mica_gather_params params = {.axis = axis};
    if (in == 0 || in > INT32_MAX || out > MOST_WEIGHTS)
        return mica__ox_fail(o, "from %llu to %llu places", (unsigned long long)in, (unsigned long long)out);
    MICA__TRY(mica__spend(out));
    int32_t *ids = mica__ox_memory(o->im, out, sizeof *ids);
    if (ids == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < out; i++) {
        const double at = source(r, axis, i, in);
        if (is_outside(r, at, in))
            return mica__ox_fail(o, "places outside, of the nearest");
        const int64_t place = nearest_place(r, at);
        ids[i] = (int32_t)(place < 0 ? 0 : place >= (int64_t)in ? (int64_t)in - 1 : place);
    }
    const mica_tensor at = mica__ox_constant(o, MICA_DTYPE_I32, 1, &out, ids);
    *x = mica__ox_op1(o, MICA_OP_GATHER, &params, (const mica_tensor[]){*x, at}, 2);
    return MICA_OK;
}

/* ---- the operator --------------------------------------------------------------------------------------- */

static mica_status read_words(mica__ox_op *o, resize *r)
{
    static const char *const corners[] = {"half_pixel",
                                          "pytorch_half_pixel",
                                          "half_pixel_symmetric",
                                          "align_corners",
                                          "asymmetric",
                                          "tf_crop_and_resize",
                                          NULL};
    static const char *const modes[] = {"nearest", "linear", "cubic", NULL};
    static const char *const nearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", NULL};
    r->corners = mica__ox_word(o, "coordinate_transformation_mode", HALF_PIXEL, corners);
    r->mode = mica__ox_word(o, "mode", NEAREST, modes);
    r->nearest = mica__ox_word(o, "nearest_mode", PREFER_FLOOR, nearest);
    r->antialias = mica__ox_int(o, "antialias", 0) != 0;
    r->exclude_outside = mica__ox_int(o, "exclude_outside", 0) != 0;
    r->a = (double)mica__ox_float(o, "cubic_coeff_a", -0.75f);
    r->extrapolation = (double)mica__ox_float(o, "extrapolation_value", 0);
    return r->corners != UINT32_MAX && r->mode != UINT32_MAX && r->nearest != UINT32_MAX
               ? MICA_OK
               : mica__ox_fail(o, "such a mode");
}

/* Sizes that keep the ratio of the sides: all by the least, or the greatest, of the factors. */
static void keep_ratio(resize *r, const mica__type *t, const uint32_t *axis, uint32_t count, bool least)
{
    double scale = r->scale[axis[0]];
    for (uint32_t i = 1; i < count; i++)
        scale = least ? fmin(scale, r->scale[axis[i]]) : fmax(scale, r->scale[axis[i]]);
    for (uint32_t i = 0; i < count; i++) {
        r->scale[axis[i]] = scale;
        r->size[axis[i]] = (uint64_t)floor(scale * (double)t->shape[axis[i]] + 0.5);
    }
}

static mica_status read_sizes(mica__ox_op *o, const mica__type *t, resize *r)
{
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller", NULL};
    const uint32_t policy = mica__ox_word(o, "keep_aspect_ratio_policy", 0, policies);
    uint32_t count = 0, axis[MICA_MAX_DIMS];
    const int64_t *axes = mica__ox_ints(o, "axes", &count);
    const mica__ox_host *scales = mica__ox_known(o, 2), *sizes = mica__ox_known(o, 3),
                        *roi = mica__ox_known(o, 1);
    const bool by_size = mica__ox_has(o, 3) && (sizes == NULL || sizes->elements != 0);
    const mica__ox_host *given = by_size ? sizes : scales;
    count = axes == NULL ? t->ndim : count;
    if (given == NULL)
        return mica__ox_fail(o, "scales or sizes must be known while importing");
    if (policy == UINT32_MAX || count > t->ndim || given->elements != count ||
        (r->corners == TF_CROP && (roi == NULL || roi->elements != 2ull * count)))
        return mica__ox_fail(o, "scales, sizes or roi of another length");
    for (uint32_t i = 0; i < count; i++) {
        MICA__TRY(mica__ox_axis(o, axes == NULL ? i : axes[i], t->ndim, &axis[i]));
        const uint32_t d = axis[i];
        const double n = (double)t->shape[d], number = mica__ox_host_number(given, i);
        if (!(number > 0) || number > 1e9 || n == 0)
            return mica__ox_fail(o, "a scale or size of %g", number);
        r->scale[d] = by_size ? number / n : number;
        r->size[d] = by_size ? (uint64_t)number : (uint64_t)floor(n * number);
        r->begin[d] = r->corners == TF_CROP ? mica__ox_host_number(roi, i) : 0;
        r->end[d] = r->corners == TF_CROP ? mica__ox_host_number(roi, i + count) : 1;
        r->axes |= 1u << d;
    }
    if (by_size && policy != 0 && count != 0)
        keep_ratio(r, t, axis, count, policy == 1);
    return MICA_OK;
}

/* Whether the op of mica says the same. */
static bool is_plain(const resize *r, const mica__type *t, mica_resize_params *out)
{
    uint32_t first = MICA_MAX_DIMS;
    if (r->mode == NEAREST || r->antialias || r->exclude_outside || (r->mode == CUBIC && r->a != -0.75) ||
        r->corners == TF_CROP || r->corners == HALF_PIXEL_SYMMETRIC)
        return false;
    for (uint32_t d = 0; d < t->ndim; d++)
        if ((r->axes >> d & 1) != 0 && (r->size[d] != t->shape[d] || r->scale[d] != 1)) {
            first = first == MICA_MAX_DIMS ? d : first;
            if (r->scale[d] != (double)r->size[d] / (double)t->shape[d] || r->size[d] > 1 << 24 ||
                (r->corners == PYTORCH_HALF_PIXEL && r->size[d] == 1))
                return false;
        }
    if (first == MICA_MAX_DIMS || t->ndim - first > MICA_SPATIAL_DIMS)
        return false;
    *out = (mica_resize_params){.mode = r->mode == LINEAR ? MICA_RESIZE_LINEAR : MICA_RESIZE_CUBIC,
                                .dims = t->ndim - first};
    out->corners = r->corners == ALIGN_CORNERS ? MICA_RESIZE_ALIGN_CORNERS
                   : r->corners == ASYMMETRIC  ? MICA_RESIZE_ASYMMETRIC
                                               : MICA_RESIZE_HALF_PIXEL;
    for (uint32_t d = first; d < t->ndim; d++)
        out->size[d - first] = (uint32_t)((r->axes >> d & 1) != 0 ? r->size[d] : t->shape[d]);
    return true;
}

static mica_status resized(mica__ox_op *o, const resize *r)
{
    mica_tensor x = mica__ox_in(o, 0);
    const mica__type t = mica__ox_type(o, x);
    mica_resize_params params;
    const bool wide = r->mode != NEAREST && t.dtype != MICA_DTYPE_F64 && t.dtype != MICA_DTYPE_F32;
    x = wide ? mica__ox_cast(o, x, MICA_DTYPE_F32) : x;
    if (is_plain(r, &t, &params))
        x = mica__ox_op1(o, MICA_OP_RESIZE, &params, &x, 1);
    else
        for (uint32_t d = 0; d < t.ndim; d++)
            if ((r->axes >> d & 1) != 0 &&
                (r->size[d] != t.shape[d] || r->scale[d] != 1 || r->corners == TF_CROP))
                MICA__TRY(r->mode == NEAREST ? gathered(o, r, d, &x) : weighted(o, r, d, &x));
    mica__ox_out(o, 0, wide ? mica__ox_cast(o, x, t.dtype) : x);
    return MICA_OK;
}

mica_status mica__ox_resize(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type t = mica__ox_type(o, x);
    resize r = {.axes = 0};
    MICA__TRY(mica__ox_need_shape(o, x, "X"));
    MICA__TRY(read_words(o, &r));
    MICA__TRY(read_sizes(o, &t, &r));
    return resized(o, &r);
}

/* Upsample of opset 9: asymmetric places, the one below. */
mica_status mica__ox_upsample(mica__ox_op *o)
{
    static const char *const modes[] = {"nearest", "linear", NULL};
    const mica__type t = mica__ox_in_type(o, 0);
    resize r = {.corners = ASYMMETRIC, .nearest = FLOOR, .mode = mica__ox_word(o, "mode", NEAREST, modes)};
    const mica__ox_host *scales = NULL;
    MICA__TRY(mica__ox_need(o, 1, &scales));
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 0), "X"));
    if (r.mode == UINT32_MAX || scales->elements != t.ndim)
        return mica__ox_fail(o, "such a mode or scales");
    for (uint32_t d = 0; d < t.ndim; d++) {
        r.scale[d] = mica__ox_host_number(scales, d);
        if (!(r.scale[d] > 0) || r.scale[d] > 1e6)
            return mica__ox_fail(o, "a scale of %g", r.scale[d]);
        r.size[d] = (uint64_t)floor(r.scale[d] * (double)t.shape[d]);
        r.axes |= 1u << d;
    }
    return resized(o, &r);
}

/* ---- grids ---------------------------------------------------------------------------------------------- */

/* Coordinate `i` of `n` from -1 to 1. */
static float coordinate(uint64_t i, uint64_t n, bool corners)
{
    const double at = (double)i, size = (double)n;
    return (float)(corners ? (n == 1 ? 0 : -1 + 2 * at / (size - 1)) : (2 * at + 1) / size - 1);
}

mica_status mica__ox_affine_grid(mica__ox_op *o)
{
    const bool corners = mica__ox_int(o, "align_corners", 0) != 0;
    const mica_tensor theta = mica__ox_in(o, 0);
    const mica__type t = mica__ox_type(o, theta);
    int64_t *size = NULL;
    uint32_t count = 0;
    uint64_t places = 1, shape[6];
    MICA__TRY(mica__ox_need_ints(o, 1, &size, &count));
    if ((count != 4 && count != 5) || t.ndim != 3)
        return mica__ox_fail(o, "of %u sizes", count);
    const uint32_t dims = count - 2;
    shape[0] = (uint64_t)size[0];
    for (uint32_t d = 0; d < dims; d++) {
        if (size[2 + d] < 1 || size[2 + d] > 1 << 20)
            return mica__ox_fail(o, "size %lld", (long long)size[2 + d]);
        shape[1 + d] = (uint64_t)size[2 + d];
        places *= (uint64_t)size[2 + d];
    }
    shape[1 + dims] = dims;
    if (places > MOST_WEIGHTS)
        return mica__ox_fail(o, "of %llu places", (unsigned long long)places);
    MICA__TRY(mica__spend(places * (dims + 1)));
    float *base = mica__ox_memory(o->im, places * (dims + 1), sizeof *base);
    if (base == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < places; i++) {
        uint64_t rest = i;
        for (uint32_t d = dims; d-- > 0; rest /= shape[1 + d]) /* the last dimension comes first */
            base[i * (dims + 1) + (dims - 1 - d)] = coordinate(rest % shape[1 + d], shape[1 + d], corners);
        base[i * (dims + 1) + dims] = 1;
    }
    const mica_tensor grid = mica__ox_cast(
        o, mica__ox_constant(o, MICA_DTYPE_F32, 2, (const uint64_t[]){places, dims + 1}, base), t.dtype);
    const mica_tensor y =
        grid == 0 || theta == 0 ? 0 : mica_graph_matmul(o->graph, grid, mica__ox_swap(o, theta, 1, 2));
    mica__ox_out(o, 0, mica__ox_reshape(o, y, dims + 2, shape));
    return MICA_OK;
}
