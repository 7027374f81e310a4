/* image.c - pooling, im2col and its inverse, resizing and sampling by a grid. */
#include "backend/windows.h"
#include "ops/check.h"
#include "quant/dtype.h"

#define ULL(x) ((unsigned long long)(x))
#define MOST_SIZE (1u << 24) /* of a dimension that is resized: positions are exact in 64 bits */

/* f64 is alone: all floats are, or none. */
static void check_types(mica__op_builder *op, uint32_t slots)
{
    const mica__operand *first = &op->record.operand[0];
    for (uint32_t s = 1; s < slots; s++) {
        const mica__operand *o = &op->record.operand[s];
        mica__op_require(
            op, !mica__op_has(op, s) || (o->dtype == MICA_DTYPE_F64) == (first->dtype == MICA_DTYPE_F64),
            "%s is %s, but %s is %s", mica__op_argument(op, s), mica_dtype_name((mica_dtype)o->dtype),
            mica__op_argument(op, 0), mica_dtype_name((mica_dtype)first->dtype));
    }
}

/* How many dimensions are spatial. */
static void check_dims(mica__op_builder *op, uint32_t *dims, uint32_t slot, uint32_t least)
{
    *dims = *dims != 0 ? *dims : 2;
    mica__op_require(op, *dims <= MICA_SPATIAL_DIMS, "params.dims is %u, not 1 to 3", *dims);
    mica__op_require(op, op->record.operand[slot].ndim >= *dims + least,
                     "%s has %u dimensions, but params.dims is %u", mica__op_argument(op, slot),
                     op->record.operand[slot].ndim, *dims);
}

/* One dimension of windows: defaults, then bounds. */
static void check_window(mica__op_builder *op, uint32_t d, uint32_t kernel, uint32_t *stride,
                         uint32_t default_stride, uint32_t *dilation, uint32_t low, uint32_t high)
{
    *stride = *stride != 0 ? *stride : default_stride;
    *dilation = *dilation != 0 ? *dilation : 1;
    mica__op_require(op, kernel > 0 && kernel <= MICA__WINDOW_MOST, "params.kernel[%u] is %u, not 1 to 2^24",
                     d, kernel);
    mica__op_require(op, *stride <= MICA__WINDOW_MOST, "params.stride[%u] is %u, over 2^24", d, *stride);
    mica__op_require(op, *dilation <= MICA__WINDOW_MOST, "params.dilation[%u] is %u, over 2^24", d,
                     *dilation);
    mica__op_require(op, low <= MICA__WINDOW_MOST, "params.low[%u] is %u, over 2^24", d, low);
    mica__op_require(op, high <= MICA__WINDOW_MOST, "params.high[%u] is %u, over 2^24", d, high);
}

/* ---- pooling ---- */

static void check_pool(mica__op_builder *op, mica_pool_windows_params *p)
{
    mica__op_require(op, p->kind <= MICA_POOL_PROD, "params.kind is %u, which is no mica_pool_kind", p->kind);
    mica__op_require(op, p->ceil_mode <= 1, "params.ceil_mode is %u, not 0 or 1", p->ceil_mode);
    mica__op_require(op, p->count_padding <= 1, "params.count_padding is %u, not 0 or 1", p->count_padding);
    check_dims(op, &p->dims, MICA__POOL_X, 0);
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        if (d < p->dims)
            check_window(op, d, p->kernel[d], &p->stride[d], p->kernel[d], &p->dilation[d], p->low[d],
                         p->high[d]);
        else
            p->kernel[d] = p->stride[d] = p->dilation[d] = p->low[d] = p->high[d] = 0;
    }
}

/* The shape of what is pooled, for slot `slot`. */
static void give_pooled(mica__op_builder *op, const mica_pool_windows_params *p, uint32_t slot)
{
    const mica__operand *x = &op->record.operand[MICA__POOL_X];
    uint64_t shape[MICA_MAX_DIMS] = {0};
    for (uint32_t i = 0; i < x->ndim && mica__op_ok(op); i++) {
        const uint32_t front = x->ndim - p->dims, d = i - front;
        shape[i] = x->shape[i];
        if (i < front || !mica__size_known(x->shape[i]))
            continue;
        mica__op_require(op, x->shape[i] < 1ull << 32, "x: shape[%u] is %llu, over 2^32 - 1", i,
                         ULL(x->shape[i]));
        if (!mica__op_ok(op))
            return;
        shape[i] = (p->ceil_mode != 0 ? mica__windows_count_ceil : mica__windows_count)(
            x->shape[i], p->kernel[d], p->stride[d], p->dilation[d], p->low[d], p->high[d]);
        mica__op_require(op, shape[i] > 0,
                         "params.kernel[%u] is %u, which does not fit into shape[%u] of x, %llu", d,
                         p->kernel[d], i, ULL(x->shape[i]));
    }
    mica__op_shape(op, slot, x->ndim, shape);
}

void mica__rule_pool_windows(mica__op_builder *op)
{
    mica_pool_windows_params *p = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__POOL_X];
    uint64_t places = 1;
    check_types(op, MICA__POOL_INDICES);
    check_pool(op, p);
    if (!mica__op_ok(op))
        return;
    give_pooled(op, p, MICA__POOL_Y);
    if (!mica__op_has(op, MICA__POOL_INDICES))
        return;
    mica__op_require(op, p->kind <= MICA_POOL_MIN, "indices are of max and min, but params.kind is %u",
                     p->kind);
    for (uint32_t i = x->ndim - p->dims; i < x->ndim; i++)
        places = mica__size_known(x->shape[i]) && places < 1ull << 32 ? places * x->shape[i] : places;
    mica__op_require(op, places < UINT32_MAX, "x has %llu places in a frame, over 2^32 - 2 for indices",
                     ULL(places));
    give_pooled(op, p, MICA__POOL_INDICES);
}

mica_status mica_pool_windows(mica_encoder *encoder, mica_buffer *x, const mica_pool_windows_params *params,
                              mica_buffer *y, mica_buffer *indices)
{
    mica_pool_windows_params record = {.kind = 0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_POOL_WINDOWS, &record, (mica_buffer *const[]){x, y, indices});
}

void mica__rule_pool_windows_backward(mica__op_builder *op)
{
    mica_pool_windows_params *p = op->record.params;
    check_types(op, MICA__POOL_BACKWARD_SLOTS);
    check_pool(op, p);
    if (mica__op_ok(op))
        give_pooled(op, p, MICA__POOL_BACKWARD_DY);
}

mica_status mica_pool_windows_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *dy,
                                       const mica_pool_windows_params *params, mica_buffer *dx)
{
    mica_pool_windows_params record = {.kind = 0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_POOL_WINDOWS_BACKWARD, &record, (mica_buffer *const[]){x, dy, dx});
}

/* ---- im2col ---- */

/* Taps of a kernel and windows over an image of these sizes; UNKNOWN where one is. */
static void check_im2col(mica__op_builder *op, mica_im2col_params *p, const char *image, const uint64_t *size,
                         uint64_t *taps, uint64_t *windows)
{
    *taps = *windows = 1;
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS && mica__op_ok(op); d++) {
        if (d >= p->dims) {
            p->kernel[d] = p->stride[d] = p->dilation[d] = p->low[d] = p->high[d] = p->size[d] = 0;
            continue;
        }
        check_window(op, d, p->kernel[d], &p->stride[d], 1, &p->dilation[d], p->low[d], p->high[d]);
        *taps *= p->kernel[d];
        mica__op_require(op, *taps < 1ull << 32, "params.kernel has over 2^32 places");
        if (!mica__op_ok(op) || !mica__size_known(size[d]) || !mica__size_known(*windows)) {
            *windows = MICA_SIZE_UNKNOWN;
            continue;
        }
        mica__op_require(op, p->size[d] == 0 || p->size[d] == size[d],
                         "%s: shape[%u] is %llu, but params.size[%u] is %u", image, 2 + d, ULL(size[d]), d,
                         p->size[d]);
        mica__op_require(op, size[d] < 1ull << 31, "%s: shape[%u] is %llu, over 2^31 - 1", image, 2 + d,
                         ULL(size[d]));
        if (!mica__op_ok(op))
            return;
        p->size[d] = (uint32_t)size[d];
        const uint64_t count =
            mica__windows_count(size[d], p->kernel[d], p->stride[d], p->dilation[d], p->low[d], p->high[d]);
        mica__op_require(op, count > 0,
                         "params.kernel[%u] is %u, which does not fit into the %llu places of %s", d,
                         p->kernel[d], ULL(size[d]), image);
        mica__op_require(op, *windows < (1ull << 56) / (count + 1), "%s: so many windows are not served",
                         image);
        *windows *= count;
    }
}

void mica__rule_im2col(mica__op_builder *op)
{
    mica_im2col_params *p = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__IM2COL_X];
    uint64_t taps = 0, windows = 0;
    p->dims = p->dims != 0 ? p->dims : 2;
    mica__op_require(op, p->dims + 2 == x->ndim, "x has %u dimensions, but params.dims is %u", x->ndim,
                     p->dims);
    check_im2col(op, p, "x", x->shape + 2, &taps, &windows);
    if (!mica__op_ok(op))
        return;
    const uint64_t rows = mica__size_known(x->shape[1]) ? x->shape[1] * taps : MICA_SIZE_UNKNOWN;
    mica__op_shape(op, MICA__IM2COL_Y, 3, (uint64_t[]){x->shape[0], rows, windows});
}

mica_status mica_im2col(mica_encoder *encoder, mica_buffer *x, const mica_im2col_params *params,
                        mica_buffer *y)
{
    mica_im2col_params record = {.dims = 0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_IM2COL, &record, (mica_buffer *const[]){x, y});
}

void mica__rule_col2im(mica__op_builder *op)
{
    mica_im2col_params *p = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__COL2IM_X], *y = &op->record.operand[MICA__COL2IM_Y];
    uint64_t taps = 0, windows = 0, shape[MICA__WINDOW_DIMS] = {x->shape[0], MICA_SIZE_UNKNOWN};
    check_types(op, MICA__COL2IM_SLOTS);
    p->dims = p->dims != 0 ? p->dims : 2;
    mica__op_require(op, p->dims <= MICA_SPATIAL_DIMS, "params.dims is %u, not 1 to 3", p->dims);
    const bool asked = y->ndim == MICA_RANK_UNKNOWN;
    mica__op_require(op, asked || y->ndim == p->dims + 2, "y has %u dimensions, but params.dims is %u",
                     y->ndim, p->dims);
    if (!mica__op_ok(op))
        return;
    for (uint32_t d = 0; d < p->dims; d++)
        shape[2 + d] = !asked ? y->shape[2 + d] : p->size[d] != 0 ? p->size[d] : MICA_SIZE_UNKNOWN;
    check_im2col(op, p, "y", shape + 2, &taps, &windows);
    if (!mica__op_ok(op))
        return;
    mica__op_require(op, !mica__size_known(x->shape[1]) || x->shape[1] % taps == 0,
                     "x: shape[1] is %llu, not a multiple of the %llu places of params.kernel",
                     ULL(x->shape[1]), ULL(taps));
    mica__op_require(op, mica__sizes_agree(x->shape[2], windows),
                     "x: shape[2] is %llu, but y has %llu windows", ULL(x->shape[2]), ULL(windows));
    if (mica__size_known(x->shape[1]))
        shape[1] = x->shape[1] / taps;
    mica__op_shape(op, MICA__COL2IM_Y, p->dims + 2, shape);
}

mica_status mica_col2im(mica_encoder *encoder, mica_buffer *x, const mica_im2col_params *params,
                        mica_buffer *y)
{
    mica_im2col_params record = {.dims = 0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_COL2IM, &record, (mica_buffer *const[]){x, y});
}

/* ---- resizing ---- */

/* Slot 0 is read, slot 1 written; params.size are sizes of the latter. */
void mica__rule_resize(mica__op_builder *op)
{
    mica_resize_params *p = op->record.params;
    const mica__operand *from = &op->record.operand[0], *to = &op->record.operand[1];
    const char *names[] = {mica__op_argument(op, 0), mica__op_argument(op, 1)};
    uint64_t shape[MICA_MAX_DIMS] = {0};
    check_types(op, 2);
    mica__op_require(op, p->mode <= MICA_RESIZE_CUBIC, "params.mode is %u, which is no mica_resize_mode",
                     p->mode);
    mica__op_require(op, p->corners <= MICA_RESIZE_ASYMMETRIC,
                     "params.corners is %u, which is no mica_resize_corners", p->corners);
    mica__op_require(op, p->antialias <= 1, "params.antialias is %u, not 0 or 1", p->antialias);
    mica__op_require(
        op, p->antialias == 0 || (p->mode != MICA_RESIZE_NEAREST && p->corners == MICA_RESIZE_HALF_PIXEL),
        "params.antialias is of LINEAR and CUBIC with HALF_PIXEL");
    check_dims(op, &p->dims, 0, 0);
    const bool asked = to->ndim == MICA_RANK_UNKNOWN;
    mica__op_require(op, asked || !mica__op_has(op, 1) || to->ndim == from->ndim,
                     "%s has %u dimensions, not the %u of %s", names[1], to->ndim, from->ndim, names[0]);
    for (uint32_t i = 0; i < from->ndim && mica__op_ok(op); i++) {
        const uint32_t front = from->ndim - p->dims;
        const uint32_t size = i >= front ? p->size[i - front] : 0;
        shape[i] = i < front ? from->shape[i] : size != 0 ? size : asked ? MICA_SIZE_UNKNOWN : to->shape[i];
        if (i < front)
            continue;
        for (uint32_t s = 0; s < 2; s++) {
            const uint64_t n = s == 0 ? from->shape[i] : shape[i];
            mica__op_require(op, !mica__size_known(n) || (n > 0 && n <= MOST_SIZE),
                             "%s: shape[%u] is %llu, not 1 to 2^24", names[s], i, ULL(n));
        }
    }
    for (uint32_t d = p->dims; d < MICA_SPATIAL_DIMS; d++)
        p->size[d] = 0;
    mica__op_shape(op, 1, from->ndim, shape);
}

void mica__rule_resize_backward(mica__op_builder *op)
{
    mica__rule_resize(op);
}

mica_status mica_resize(mica_encoder *encoder, mica_buffer *x, const mica_resize_params *params,
                        mica_buffer *y)
{
    mica_resize_params record = {.mode = 0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_RESIZE, &record, (mica_buffer *const[]){x, y});
}

mica_status mica_resize_backward(mica_encoder *encoder, mica_buffer *dy, const mica_resize_params *params,
                                 mica_buffer *dx)
{
    mica_resize_params record = {.mode = 0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_RESIZE_BACKWARD, &record, (mica_buffer *const[]){dy, dx});
}

/* ---- sampling by a grid ---- */

static void check_grid(mica__op_builder *op, uint32_t slots)
{
    const mica_grid_params *p = op->record.params;
    const mica__operand *x = &op->record.operand[MICA__GRID_X];
    check_types(op, slots);
    mica__op_require(op, p->mode <= MICA_RESIZE_CUBIC, "params.mode is %u, which is no mica_resize_mode",
                     p->mode);
    mica__op_require(op, p->padding <= MICA_GRID_REFLECTION,
                     "params.padding is %u, which is no mica_grid_padding", p->padding);
    mica__op_require(op, p->align_corners <= 1, "params.align_corners is %u, not 0 or 1", p->align_corners);
    for (uint32_t d = 2; d < 4; d++)
        mica__op_require(op, !mica__size_known(x->shape[d]) || x->shape[d] <= MOST_SIZE,
                         "x: shape[%u] is %llu, over 2^24", d, ULL(x->shape[d]));
}

void mica__rule_grid_sample(mica__op_builder *op)
{
    check_grid(op, MICA__GRID_SLOTS);
}

mica_status mica_grid_sample(mica_encoder *encoder, mica_buffer *x, mica_buffer *grid,
                             const mica_grid_params *params, mica_buffer *y)
{
    mica_grid_params record = {.mode = 0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_GRID_SAMPLE, &record, (mica_buffer *const[]){x, grid, y});
}

void mica__rule_grid_sample_backward(mica__op_builder *op)
{
    check_grid(op, MICA__GRID_BACKWARD_SLOTS);
    mica__op_require(op,
                     mica__op_has(op, MICA__GRID_BACKWARD_DX) || mica__op_has(op, MICA__GRID_BACKWARD_DGRID),
                     "dx and dgrid are NULL: nothing is asked for");
}

mica_status mica_grid_sample_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *grid,
                                      mica_buffer *dy, const mica_grid_params *params, mica_buffer *dx,
                                      mica_buffer *dgrid)
{
    mica_grid_params record = {.mode = 0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_GRID_SAMPLE_BACKWARD, &record,
                         (mica_buffer *const[]){x, grid, dy, dx, dgrid});
}
