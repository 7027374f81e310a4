/*
 * ops_regions.c - images sampled between their places: grids, regions of interest, convolutions whose taps are bent; and boxes that are chosen.
 */
#include <string.h>

#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"
#include "graph/onnx/windows.h"
#include "graph/ops_sample.h"

static mica_tensor binary(const mica__ox_op *o, mica_scalar scalar, mica_tensor a, mica_tensor b)
{
    return b == 0 ? 0 : mica__ox_scalar(o, scalar, a, b);
}

static mica_tensor by_number(const mica__ox_op *o, mica_scalar scalar, mica_tensor a, double number)
{
    return binary(o, scalar, a, mica__ox_number(o, a, number));
}

static mica_tensor flat(const mica__ox_op *o, mica_tensor x)
{
    return mica__ox_reshape(o, x, 1, (const uint64_t[]){MICA_SIZE_REST});
}

static mica_tensor expanded(const mica__ox_op *o, mica_tensor x, uint32_t ndim, const uint64_t *shape)
{
    return x == 0 ? 0 : mica_graph_expand(o->graph, x, ndim, shape);
}

/* Sampled in f32, and f64 where the image is. */
static mica_dtype inside_of(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
}

/* ---- grids ---------------------------------------------------------------------------------------------- */

mica_status mica__ox_grid_sample(mica__ox_op *o)
{
    static const char *const modes[] = {"nearest", "bilinear", "linear", "bicubic", "cubic", NULL};
    static const uint32_t kinds[] = {MICA_RESIZE_NEAREST, MICA_RESIZE_LINEAR, MICA_RESIZE_LINEAR,
                                     MICA_RESIZE_CUBIC, MICA_RESIZE_CUBIC};
    static const char *const paddings[] = {"zeros", "border", "reflection", NULL};
    const uint32_t mode = mica__ox_word(o, "mode", 1, modes),
                   padding = mica__ox_word(o, "padding_mode", 0, paddings);
    const bool corners = mica__ox_int(o, "align_corners", 0) != 0;
    const mica_tensor x = mica__ox_in(o, 0), grid = mica__ox_in(o, 1);
    const mica__type type = mica__ox_type(o, x);
    if (mode == UINT32_MAX || padding == UINT32_MAX || type.ndim < 3 || type.ndim > 5)
        return mica__ox_fail(o, "such a mode, or of %u dimensions", type.ndim);
    const mica_grid_params params = {.mode = kinds[mode], .padding = padding, .align_corners = corners};
    mica_tensor y = 0;
    if (type.ndim == 4) {
        y = mica__ox_op1(o, MICA_OP_GRID_SAMPLE, &params, (const mica_tensor[]){x, grid}, 2);
    } else {
        const mica_dtype inside = inside_of(type.dtype);
        MICA__TRY(mica__ox_need_shape(o, x, "X"));
        MICA__TRY(mica__ox_need_shape(o, grid, "grid"));
        y = mica__sample_grid(o->graph, mica__ox_cast(o, x, inside), mica__ox_cast(o, grid, inside), &params);
        y = mica__ox_cast(o, y, type.dtype);
    }
    mica__ox_out(o, 0, y);
    return MICA_OK;
}

/* ---- regions -------------------------------------------------------------------------------------------- */

typedef struct regions {
    uint64_t count, out[2], samples; /* regions; cells of each; samples of a cell along a dimension */
    double scale, shift;
    bool least_one; /* a region is at least one place long */
    mica_dtype inside;
} regions;

/* Where region r is sampled along a dimension (0: down), [count, 1, 1] of its begin and end: [P]. */
static mica_tensor region_places(const mica__ox_op *o, const regions *r, mica_tensor rois, uint32_t d)
{
    const uint64_t cells = r->out[d] * r->samples,
                   shape[] = {r->count, r->out[0] * r->samples, r->out[1] * r->samples};
    mica_tensor edge[2];
    for (uint32_t i = 0; i < 2; i++) {
        const mica_tensor column = mica__ox_slice(o, rois, 1, 2 * i + 1 - d, 1);
        edge[i] = by_number(o, MICA_SCALAR_SUB, by_number(o, MICA_SCALAR_MUL, column, r->scale), r->shift);
    }
    mica_tensor size = binary(o, MICA_SCALAR_SUB, edge[1], edge[0]);
    if (r->least_one)
        size = by_number(o, MICA_SCALAR_MAX, size, 1);
    size = by_number(o, MICA_SCALAR_DIV, size, (double)r->out[d]);
    const mica_tensor index = mica__ox_cast(o, mica__ox_iota(o, 1, &cells, 0, MICA_DTYPE_I32), r->inside);
    const mica_tensor cell =
        mica__ox_scalar(o, MICA_SCALAR_FLOOR, by_number(o, MICA_SCALAR_DIV, index, (double)r->samples), 0);
    mica_tensor within =
        binary(o, MICA_SCALAR_SUB, index, by_number(o, MICA_SCALAR_MUL, cell, (double)r->samples));
    within = binary(o, MICA_SCALAR_MUL, by_number(o, MICA_SCALAR_ADD, within, 0.5), size);
    within = by_number(o, MICA_SCALAR_DIV, within, (double)r->samples);
    mica_tensor at = binary(o, MICA_SCALAR_ADD, edge[0], binary(o, MICA_SCALAR_MUL, cell, size));
    at = binary(o, MICA_SCALAR_ADD, at, within);
    at = mica__ox_unsqueeze(o, at, d == 0 ? 2 : 1);
    return flat(o, expanded(o, at, 3, shape));
}

/* Samples [P, C] in [count, C, out..]. */
static mica_tensor pooled_regions(const mica__ox_op *o, const regions *r, mica_tensor samples, bool greatest)
{
    const uint64_t shape[] = {r->count,  r->out[0],  r->samples,
                              r->out[1], r->samples, mica__ox_type(o, samples).shape[1]};
    samples = mica__ox_reshape(o, samples, 6, shape);
    samples =
        mica__ox_reduce(o, greatest ? MICA_REDUCE_MAX : MICA_REDUCE_MEAN, samples, 1u << 2 | 1u << 4, false);
    return mica__ox_move(o, samples, 3, 1);
}

static mica_status sample_regions(mica__ox_op *o, const regions *r, bool greatest)
{
    static const mica_grid_params params = {.mode = MICA_RESIZE_LINEAR, .padding = MICA_GRID_BORDER};
    mica__taps taps[2];
    mica_tensor within = 0, samples = 0;
    const mica_tensor x = mica__ox_cast(o, mica__ox_in(o, 0), r->inside),
                      rois = mica__ox_cast(o, mica__ox_in(o, 1), r->inside);
    const mica__type type = mica__ox_type(o, x);
    const uint64_t shape[] = {r->count, r->out[0] * r->samples, r->out[1] * r->samples},
                   places = type.shape[2] * type.shape[3];
    for (uint32_t d = 0; d < 2; d++) {
        const mica_tensor at = region_places(o, r, rois, d);
        const mica_tensor near =
            mica__ox_scalar(o, MICA_SCALAR_BIT_AND, by_number(o, MICA_SCALAR_GREATER_EQUAL, at, -1),
                            by_number(o, MICA_SCALAR_LESS_EQUAL, at, (double)type.shape[2 + d]));
        within = within == 0 ? near : binary(o, MICA_SCALAR_BIT_AND, within, near);
        MICA__TRY(mica_graph_status(o->graph));
        mica__sample_taps(o->graph, at, type.shape[2 + d], &params, &taps[d]);
    }
    taps[0].inside[0] = taps[0].inside[1] = within;
    mica_tensor first = mica__ox_cast(o, mica__ox_in(o, 2), MICA_DTYPE_I32);
    first = mica__ox_reshape(o, by_number(o, MICA_SCALAR_MUL, first, (double)places), 3,
                             (const uint64_t[]){r->count, 1, 1});
    first = flat(o, expanded(o, first, 3, shape));
    MICA__TRY(mica_graph_status(o->graph));
    const mica_tensor table = mica__sample_table(o->graph, x);
    for (uint32_t i = 0; i < 4 && greatest; i++) { /* of the weighted places, as ONNX has it */
        const mica_tensor term = mica__sample_term(o->graph, table, first, taps, 2, i);
        samples = samples == 0 ? term : binary(o, MICA_SCALAR_MAX, samples, term);
    }
    if (!greatest)
        samples = mica__sample_sum(o->graph, table, first, taps, 2);
    MICA__TRY(mica_graph_status(o->graph));
    mica__ox_out(o, 0,
                 mica__ox_cast(o, pooled_regions(o, r, samples, greatest), mica__ox_in_type(o, 0).dtype));
    return MICA_OK;
}

/* X [N, C, H, W], rois [R, 4], batch_indices [R] */
mica_status mica__ox_roi_align(mica__ox_op *o)
{
    static const char *const corners[] = {"half_pixel", "output_half_pixel", NULL};
    static const char *const modes[] = {"avg", "max", NULL};
    const mica__type x = mica__ox_in_type(o, 0), rois = mica__ox_in_type(o, 1),
                     image = mica__ox_in_type(o, 2);
    const uint32_t corner =
                       o->version < 16 ? 1 : mica__ox_word(o, "coordinate_transformation_mode", 0, corners),
                   mode = mica__ox_word(o, "mode", 0, modes);
    const int64_t height = mica__ox_int(o, "output_height", 1), width = mica__ox_int(o, "output_width", 1),
                  samples = mica__ox_int(o, "sampling_ratio", 0);
    regions r = {.scale = (double)mica__ox_float(o, "spatial_scale", 1),
                 .shift = corner == 0 ? 0.5 : 0,
                 .least_one = corner != 0,
                 .inside = inside_of(x.dtype)};
    if (corner == UINT32_MAX || mode == UINT32_MAX || x.ndim != 4 || rois.ndim != 2 || image.ndim != 1)
        return mica__ox_fail(o, "such a mode or shapes");
    if (samples <= 0)
        return mica__ox_fail(o, "sampling_ratio %lld: how many samples there are depends on the regions",
                             (long long)samples);
    if (height < 1 || width < 1 || height > 4096 || width > 4096 || samples > 256)
        return mica__ox_fail(o, "such an output or sampling_ratio");
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 0), "X"));
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 1), "rois"));
    r.count = rois.shape[0];
    r.out[0] = (uint64_t)height;
    r.out[1] = (uint64_t)width;
    r.samples = (uint64_t)samples;
    const uint64_t places = x.shape[0] * x.shape[2] * x.shape[3];
    if (rois.shape[1] != 4 || image.shape[0] != r.count || places == 0 || places > INT32_MAX ||
        r.count > INT32_MAX / (r.out[0] * r.out[1] * r.samples * r.samples))
        return mica__ox_fail(o, "of such shapes");
    return sample_regions(o, &r, mode == 1);
}

/* ---- bent convolutions ------------------------------------------------------------------------------------ */

typedef struct bent {
    mica__ox_windows w;
    uint64_t images, channels, filters, groups, parts; /* parts: groups of channels that are bent alike */
    uint64_t taps, windows, out[MICA_SPATIAL_DIMS];
    mica_dtype inside;
} bent;

static mica_status read_bent(mica__ox_op *o, bent *b)
{
    const mica__type x = mica__ox_in_type(o, 0), weight = mica__ox_in_type(o, 1),
                     offset = mica__ox_in_type(o, 2);
    const int64_t groups = mica__ox_int(o, "group", 1), parts = mica__ox_int(o, "offset_group", 1);
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 0), "X"));
    if (weight.ndim != x.ndim || offset.ndim != x.ndim || groups < 1 || parts < 1 || x.ndim < 3)
        return mica__ox_fail(o, "of such shapes or groups");
    MICA__TRY(mica__ox_read_windows(o, &x, weight.shape + 2, &b->w));
    b->images = x.shape[0];
    b->channels = x.shape[1];
    b->filters = weight.shape[0];
    b->groups = (uint64_t)groups;
    b->parts = (uint64_t)parts;
    b->inside = inside_of(x.dtype);
    b->taps = b->windows = 1;
    for (uint32_t d = 0; d < b->w.dims; d++) {
        const uint64_t reach = (uint64_t)b->w.dilation[d] * (b->w.kernel[d] - 1) + 1,
                       size = b->w.in[d] + b->w.low[d] + b->w.high[d];
        if (size < reach || b->w.in[d] == 0)
            return mica__ox_fail(o, "the kernel does not fit");
        b->out[d] = (size - reach) / b->w.stride[d] + 1;
        if (offset.shape[2 + d] != b->out[d])
            return mica__ox_fail(o, "offset is not of the output's sizes");
        b->taps *= b->w.kernel[d];
        b->windows *= b->out[d];
    }
    if (b->channels % b->groups != 0 || b->channels % b->parts != 0 || b->filters % b->groups != 0 ||
        weight.shape[1] * b->groups != b->channels || offset.shape[0] != b->images ||
        offset.shape[1] != b->parts * b->taps * b->w.dims || b->images == 0)
        return mica__ox_fail(o, "of such shapes or groups");
    return MICA_OK;
}

/* Where the taps of all windows stand along dimension d without an offset: [taps, windows]. */
static mica_tensor straight(const mica__ox_op *o, const bent *b, uint32_t d)
{
    uint64_t shape[2 * MICA_SPATIAL_DIMS];
    const uint32_t dims = b->w.dims;
    for (uint32_t i = 0; i < dims; i++) {
        shape[i] = b->w.kernel[i];
        shape[dims + i] = b->out[i];
    }
    mica_tensor tap = mica__ox_iota(o, 2 * dims, shape, d, MICA_DTYPE_I32),
                window = mica__ox_iota(o, 2 * dims, shape, dims + d, MICA_DTYPE_I32);
    tap = by_number(o, MICA_SCALAR_MUL, tap, b->w.dilation[d]);
    window = by_number(o, MICA_SCALAR_MUL, window, b->w.stride[d]);
    const mica_tensor at =
        by_number(o, MICA_SCALAR_SUB, binary(o, MICA_SCALAR_ADD, tap, window), b->w.low[d]);
    return mica__ox_reshape(o, mica__ox_cast(o, at, b->inside), 2, (const uint64_t[]){b->taps, b->windows});
}

/* What each tap of each window reads, [images, groups, channels / groups taps, windows]. */
static mica_status bent_columns(mica__ox_op *o, const bent *b, mica_tensor *out)
{
    static const mica_grid_params params = {.mode = MICA_RESIZE_LINEAR, .padding = MICA_GRID_ZEROS};
    mica__taps taps[MICA_SPATIAL_DIMS];
    const uint64_t all = b->images * b->parts, each = b->taps * b->windows, some = b->channels / b->parts;
    uint64_t shape[2 + MICA_SPATIAL_DIMS] = {all, some}, places = 1;
    const mica_tensor offset = mica__ox_reshape(o, mica__ox_cast(o, mica__ox_in(o, 2), b->inside), 4,
                                                (const uint64_t[]){all, b->taps, b->w.dims, b->windows});
    for (uint32_t d = 0; d < b->w.dims; d++) {
        mica_tensor moved = mica__ox_slice(o, offset, 2, d, 1);
        moved = mica__ox_reshape(o, moved, 3, (const uint64_t[]){all, b->taps, b->windows});
        const mica_tensor at = flat(o, binary(o, MICA_SCALAR_ADD, moved, straight(o, b, d)));
        MICA__TRY(mica_graph_status(o->graph));
        mica__sample_taps(o->graph, at, b->w.in[d], &params, &taps[d]);
        places *= shape[2 + d] = b->w.in[d];
    }
    if (all * places > INT32_MAX || all * each > INT32_MAX)
        return mica__ox_fail(o, "of more than 2^31 places");
    const mica_tensor x =
        mica__ox_reshape(o, mica__ox_cast(o, mica__ox_in(o, 0), b->inside), 2 + b->w.dims, shape);
    MICA__TRY(mica_graph_status(o->graph));
    mica_tensor y = mica__sample_sum(o->graph, mica__sample_table(o->graph, x),
                                     mica__sample_first(o->graph, all, each, places), taps, b->w.dims);
    if (mica__ox_has(o, 4))
        y = binary(o, MICA_SCALAR_MUL, y,
                   mica__ox_reshape(o, mica__ox_cast(o, mica__ox_in(o, 4), b->inside), 2,
                                    (const uint64_t[]){all * each, 1}));
    y = mica__ox_reshape(o, y, 3, (const uint64_t[]){all, each, some});
    *out = mica__ox_reshape(
        o, mica__ox_swap(o, y, 1, 2), 4,
        (const uint64_t[]){b->images, b->groups, b->channels / b->groups * b->taps, b->windows});
    return mica_graph_status(o->graph);
}

/* X, W, offset [N, parts taps dims, out..], B, mask [N, parts taps, out..] */
mica_status mica__ox_deform_conv(mica__ox_op *o)
{
    bent b = {.images = 0};
    uint64_t shape[2 + MICA_SPATIAL_DIMS];
    mica_tensor columns = 0;
    MICA__TRY(read_bent(o, &b));
    MICA__TRY(bent_columns(o, &b, &columns));
    const mica_tensor weight = mica__ox_reshape(
        o, mica__ox_cast(o, mica__ox_in(o, 1), b.inside), 4,
        (const uint64_t[]){1, b.groups, b.filters / b.groups, b.channels / b.groups * b.taps});
    mica_tensor y = weight == 0 ? 0 : mica_graph_matmul(o->graph, weight, columns);
    shape[0] = b.images;
    shape[1] = b.filters;
    memcpy(shape + 2, b.out, sizeof b.out);
    y = mica__ox_reshape(o, y, 2 + b.w.dims, shape);
    if (mica__ox_has(o, 3))
        y = binary(o, MICA_SCALAR_ADD, y,
                   mica__ox_along(o, mica__ox_cast(o, mica__ox_in(o, 3), b.inside), 2 + b.w.dims, 1));
    mica__ox_out(o, 0, mica__ox_cast(o, y, mica__ox_in_type(o, 0).dtype));
    return MICA_OK;
}
