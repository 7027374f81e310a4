/*
 * conform_frames.c - cases of pooling, im2col, resizing and sampling by a grid: one to three dimensions, any dimensions in front, any strides, windows over
 * padding alone, sizes of 1, NaN and infinities.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_image.h"
#include "oracle/oracle_ops.h"

/* One type for all, f64 or floats of each operand's own; GPUs have no f64 here. */
static mica_dtype draw_type(const conform_case *c, test_random *random, bool wide)
{
    return c->typical ? MICA_DTYPE_F32 : wide ? MICA_DTYPE_F64 : conform_float(random);
}

static bool draw_wide(test_random *random)
{
    return !conform_kernels && test_random_one_in(random, 6);
}

/* Roundings of f64 where operands are. */
static void scale_errors(conform_case *c, mica_dtype dtype, uint64_t count)
{
    for (uint64_t i = 0; dtype == MICA_DTYPE_F64 && i < count; i++)
        c->error[i] *= c->error[i] > 0 ? 0x1p-29 : 1;
}

/* Dimensions in front of `dims` spatial ones. */
static uint32_t draw_front(const conform_case *c, test_random *random, uint64_t *shape)
{
    const uint32_t front = c->typical ? 2 : (uint32_t)test_random_below(random, 4);

    for (uint32_t d = 0; d < front; d++)
        shape[d] = c->typical ? (d == 0 ? 1 : 64) : 1 + test_random_below(random, 3);
    return front;
}

static const uint64_t most_places[] = {150, 14, 6};

static void add_odd(test_tensor *x, test_random *random)
{
    static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};

    for (uint64_t i = 0; i < 1 + x->count / 40; i++)
        test_tensor_set(x, test_random_below(random, x->count), odd[test_random_below(random, 3)]);
}

/* ---- pooling ---- */

enum { POOL_X, POOL_Y, INDICES };
enum { BACK_X, BACK_DY, BACK_DX };

/* Parameters, the shape of x in `shape` from `front` on, that of y. The strides of operands: those of networks are in a row, with whole windows side by side, which
 * kernels have ways of their own for. */
static test_layout draw_pool(conform_case *c, test_random *random, uint32_t front, uint64_t *shape,
                             uint64_t *out)
{
    mica_pool_windows_params *p = &c->params.pool;
    const bool usual = c->typical || test_random_one_in(random, 3);

    *p = (mica_pool_windows_params){.kind = MICA_POOL_MAX, .dims = 2, .kernel = {3, 3}, .stride = {2, 2}};
    if (!c->typical) {
        p->kind = (uint32_t)test_random_below(random, MICA_POOL_PROD + 1);
        p->dims = 1 + (uint32_t)test_random_below(random, 3);
        p->ceil_mode = (uint32_t)test_random_below(random, 2);
        p->count_padding = (uint32_t)test_random_below(random, 2);
    }
    for (uint32_t d = 0; d < front; d++)
        out[d] = shape[d];
    for (uint32_t d = 0; d < p->dims; d++) {
        shape[front + d] = 112;
        if (!c->typical) {
            p->kernel[d] = 1 + (uint32_t)test_random_below(random, 4);
            p->stride[d] = (uint32_t)test_random_below(random, 4);
            p->dilation[d] = (uint32_t)test_random_below(random, 3);
            p->low[d] = usual && d + 1 == p->dims ? 0 : (uint32_t)test_random_below(random, 4);
            p->high[d] = usual && d + 1 == p->dims ? 0 : (uint32_t)test_random_below(random, 4);
            const uint64_t covered = (p->dilation[d] == 2 ? 2 : 1) * (p->kernel[d] - 1) + 1;
            const uint64_t least = covered > p->low[d] + p->high[d] ? covered - p->low[d] - p->high[d] : 1;
            shape[front + d] = least + test_random_below(random, most_places[p->dims - 1]);
        }
        const uint64_t stride = p->stride[d] != 0 ? p->stride[d] : p->kernel[d], n = shape[front + d];
        const uint64_t rest =
            n + p->low[d] + p->high[d] - (p->dilation[d] == 2 ? 2 : 1) * (p->kernel[d] - 1) - 1;
        const uint64_t windows = (p->ceil_mode != 0 ? (rest + stride - 1) / stride : rest / stride) + 1;
        const bool outside = p->ceil_mode != 0 && windows > 1 && (windows - 1) * stride >= n + p->low[d];
        out[front + d] = windows - outside; /* the last one would begin behind x */
    }
    return usual ? TEST_CONTIGUOUS : TEST_ANY;
}

/* Products stay finite; equal values are not rare, so that the first of them must be found. */
static void fill_pool(conform_case *c, test_random *random)
{
    test_tensor *x = conform_tensor(c, POOL_X);

    test_tensor_normal(x, random, 1);
    for (uint64_t i = 0; c->params.pool.kind <= MICA_POOL_MIN && i < x->count; i++)
        test_tensor_set(x, i, rint(2 * test_tensor_get(x, i)));
}

void conform_make_pool_windows(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS] = {0}, out[MICA_MAX_DIMS] = {0};
    const bool wide = draw_wide(random);
    const uint32_t front = draw_front(c, random, shape);

    const test_layout layout = draw_pool(c, random, front, shape, out);
    const uint32_t ndim = front + c->params.pool.dims;
    conform_add(c, random, "x", draw_type(c, random, wide), ndim, shape, layout);
    fill_pool(c, random);
    if (!c->typical && test_random_one_in(random, 4))
        add_odd(conform_tensor(c, POOL_X), random);
    conform_add_output(c, random, "y", draw_type(c, random, wide), ndim, out, layout, false, 0);
    if (!c->typical && c->params.pool.kind <= MICA_POOL_MIN && test_random_one_in(random, 2))
        conform_add(c, random, "indices", conform_index(random), ndim, out, TEST_ANY)->written = true;
    else
        conform_add_absent(c);
    c->bytes = conform_bytes(c, POOL_X) + conform_bytes(c, POOL_Y);
    c->flops = (double)conform_tensor(c, POOL_Y)->count * 9;
}

mica_status conform_encode_pool_windows(const conform_case *c, mica_encoder *encoder)
{
    return mica_pool_windows(encoder, conform_buffer(c, POOL_X), &c->params.pool, conform_buffer(c, POOL_Y),
                             conform_buffer(c, INDICES));
}

static size_t spatial(const test_tensor *t, uint32_t dims, uint32_t d)
{
    return d + dims < 3 ? 1 : (size_t)t->shape[t->ndim - 3 + d];
}

static oracle_pooling describe_pool(conform_case *c, const test_tensor *x, const test_tensor *y)
{
    const mica_pool_windows_params *p = &c->params.pool;
    oracle_pooling pool = {.kind = (oracle_pool)p->kind, .count_padding = p->count_padding != 0};

    for (uint32_t d = 0; d < 3; d++) {
        const bool here = d + p->dims >= 3;
        const uint32_t from = here ? d + p->dims - 3 : 0;

        pool.windows.in[d] = spatial(x, p->dims, d);
        pool.windows.out[d] = spatial(y, p->dims, d);
        pool.windows.kernel[d] = here ? p->kernel[from] : 1;
        pool.windows.stride[d] = !here ? 1 : p->stride[from] != 0 ? p->stride[from] : p->kernel[from];
        pool.windows.dilation[d] = here && p->dilation[from] != 0 ? p->dilation[from] : 1;
        pool.windows.low[d] = here ? p->low[from] : 0;
        pool.high[d] = here ? p->high[from] : 0;
    }
    return pool;
}

void conform_oracle_pool_windows(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, POOL_X), *y = conform_tensor(c, POOL_Y);
    const oracle_pooling pool = describe_pool(c, x, y);
    const size_t in = pool.windows.in[0] * pool.windows.in[1] * pool.windows.in[2],
                 out = pool.windows.out[0] * pool.windows.out[1] * pool.windows.out[2];
    double *xs = conform_values(c, POOL_X), *places = test_alloc(y->count + 1, sizeof *places), *also = NULL,
           *exact = NULL;

    for (uint64_t frame = 0; frame < x->count / in; frame++)
        oracle_pool_run(&pool, xs + frame * in, c->expected + frame * out, places + frame * out,
                        c->error + frame * out);
    if (c->operand[INDICES].present)
        conform_expect_also(c, INDICES, &also, &exact);
    for (uint64_t i = 0; also != NULL && i < y->count; i++) {
        const bool whole = conform_tensor(c, INDICES)->dtype == MICA_DTYPE_U32;

        also[i] = places[i] < 0 && whole ? 4294967295.0 : places[i];
        exact[i] = ORACLE_EXACT;
    }
    scale_errors(c, x->dtype, y->count);
    free(xs);
    free(places);
}

void conform_make_pool_windows_backward(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS] = {0}, out[MICA_MAX_DIMS] = {0};
    const bool wide = draw_wide(random);
    const uint32_t front = draw_front(c, random, shape);

    const test_layout layout = draw_pool(c, random, front, shape, out);
    const uint32_t ndim = front + c->params.pool.dims;
    conform_add(c, random, "x", draw_type(c, random, wide), ndim, shape, layout);
    fill_pool(c, random);
    conform_add(c, random, "dy", draw_type(c, random, wide), ndim, out, layout);
    test_tensor_normal(conform_tensor(c, BACK_DY), random, 1);
    conform_add_output(c, random, "dx", draw_type(c, random, wide), ndim, shape, layout, false, 0);
    c->bytes = conform_bytes(c, BACK_X) + conform_bytes(c, BACK_DY) + conform_bytes(c, BACK_DX);
    c->flops = (double)conform_tensor(c, BACK_DY)->count * 9;
}

mica_status conform_encode_pool_windows_backward(const conform_case *c, mica_encoder *encoder)
{
    return mica_pool_windows_backward(encoder, conform_buffer(c, BACK_X), conform_buffer(c, BACK_DY),
                                      &c->params.pool, conform_buffer(c, BACK_DX));
}

void conform_oracle_pool_windows_backward(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, BACK_X), *dy = conform_tensor(c, BACK_DY);
    const oracle_pooling pool = describe_pool(c, x, dy);
    const size_t in = pool.windows.in[0] * pool.windows.in[1] * pool.windows.in[2],
                 out = pool.windows.out[0] * pool.windows.out[1] * pool.windows.out[2];
    double *xs = conform_values(c, BACK_X), *dys = conform_values(c, BACK_DY);

    for (uint64_t frame = 0; frame < x->count / in; frame++)
        oracle_pool_backward(&pool, xs + frame * in, dys + frame * out, c->expected + frame * in,
                             c->error + frame * in);
    scale_errors(c, x->dtype, x->count);
    free(xs);
    free(dys);
}

/* ---- im2col ---- */

/* The image in `image` [batch, channels, ..], the columns in `columns`. */
static void draw_im2col(conform_case *c, test_random *random, uint64_t *image, uint64_t *columns)
{
    mica_im2col_params *p = &c->params.im2col;

    *p = (mica_im2col_params){.dims = 2};
    if (!c->typical)
        p->dims = 1 + (uint32_t)test_random_below(random, 3);
    image[0] = columns[0] = c->typical ? 1 : 1 + test_random_below(random, 3);
    image[1] = columns[1] = c->typical ? 64 : 1 + test_random_below(random, 4);
    columns[2] = 1;
    for (uint32_t d = 0; d < p->dims; d++) {
        p->kernel[d] = c->typical ? 3 : 1 + (uint32_t)test_random_below(random, 3);
        p->stride[d] = c->typical ? 1 : (uint32_t)test_random_below(random, 4);
        p->dilation[d] = c->typical ? 1 : (uint32_t)test_random_below(random, 3);
        p->low[d] = c->typical ? 1 : (uint32_t)test_random_below(random, 3);
        p->high[d] = c->typical ? 1 : (uint32_t)test_random_below(random, 3);
        const uint64_t covered = (p->dilation[d] == 2 ? 2 : 1) * (p->kernel[d] - 1) + 1,
                       padding = p->low[d] + p->high[d];
        image[2 + d] = c->typical ? 56
                                  : (covered > padding ? covered - padding : 1) +
                                        test_random_below(random, most_places[p->dims - 1]);
        columns[1] *= p->kernel[d];
        columns[2] *= (image[2 + d] + padding - covered) / (p->stride[d] + (p->stride[d] == 0)) + 1;
    }
}

static oracle_windows describe_im2col(conform_case *c, const test_tensor *image)
{
    const mica_im2col_params *p = &c->params.im2col;
    oracle_windows w;

    for (uint32_t d = 0; d < 3; d++) {
        const bool here = d + p->dims >= 3;
        const uint32_t from = here ? d + p->dims - 3 : 0;

        w.in[d] = spatial(image, p->dims, d);
        w.kernel[d] = here ? p->kernel[from] : 1;
        w.stride[d] = here && p->stride[from] != 0 ? p->stride[from] : 1;
        w.dilation[d] = here && p->dilation[from] != 0 ? p->dilation[from] : 1;
        w.low[d] = here ? p->low[from] : 0;
        w.out[d] = (w.in[d] + w.low[d] + (here ? p->high[from] : 0) - w.dilation[d] * (w.kernel[d] - 1) - 1) /
                       w.stride[d] +
                   1;
    }
    return w;
}

void conform_make_im2col(conform_case *c, test_random *random)
{
    static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16, MICA_DTYPE_F64,
                                       MICA_DTYPE_I32, MICA_DTYPE_I64, MICA_DTYPE_U8};
    uint64_t image[5] = {0}, columns[3] = {0};
    const mica_dtype dtype = types[c->typical ? 0 : test_random_below(random, 7)];
    const test_layout layout = c->typical ? TEST_CONTIGUOUS : TEST_ANY;

    draw_im2col(c, random, image, columns);
    conform_add(c, random, "x", dtype, 2 + c->params.im2col.dims, image, layout);
    test_tensor_indices(conform_tensor(c, 0), random, 100);
    conform_add_output(c, random, "y", dtype, 3, columns, layout, false, 0);
    c->bytes = conform_bytes(c, 0) + conform_bytes(c, 1);
}

mica_status conform_encode_im2col(const conform_case *c, mica_encoder *encoder)
{
    return mica_im2col(encoder, conform_buffer(c, 0), &c->params.im2col, conform_buffer(c, 1));
}

void conform_oracle_im2col(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, 0), *y = conform_tensor(c, 1);
    const oracle_windows w = describe_im2col(c, x);
    const size_t in = w.in[0] * w.in[1] * w.in[2], frames = (size_t)x->count / in,
                 out = (size_t)y->count / frames;
    double *xs = conform_values(c, 0);

    for (size_t frame = 0; frame < frames; frame++)
        oracle_im2col(&w, xs + frame * in, c->expected + frame * out);
    for (uint64_t i = 0; i < y->count; i++)
        c->error[i] = ORACLE_EXACT;
    free(xs);
}

void conform_make_col2im(conform_case *c, test_random *random)
{
    uint64_t image[5] = {0}, columns[3] = {0};
    const bool wide = draw_wide(random);
    const test_layout layout = c->typical ? TEST_CONTIGUOUS : TEST_ANY;

    draw_im2col(c, random, image, columns);
    for (uint32_t d = 0; d < c->params.im2col.dims; d++)
        c->params.im2col.size[d] = (uint32_t)image[2 + d];
    conform_add(c, random, "x", draw_type(c, random, wide), 3, columns, layout);
    test_tensor_normal(conform_tensor(c, 0), random, 1);
    conform_add_output(c, random, "y", draw_type(c, random, wide), 2 + c->params.im2col.dims, image, layout,
                       false, 0);
    c->bytes = conform_bytes(c, 0) + conform_bytes(c, 1);
    c->flops = (double)conform_tensor(c, 0)->count;
}

mica_status conform_encode_col2im(const conform_case *c, mica_encoder *encoder)
{
    return mica_col2im(encoder, conform_buffer(c, 0), &c->params.im2col, conform_buffer(c, 1));
}

void conform_oracle_col2im(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, 0), *y = conform_tensor(c, 1);
    const oracle_windows w = describe_im2col(c, y);
    const size_t in = w.in[0] * w.in[1] * w.in[2], frames = (size_t)y->count / in,
                 out = (size_t)x->count / frames;
    double *xs = conform_values(c, 0);

    for (size_t frame = 0; frame < frames; frame++)
        oracle_col2im(&w, xs + frame * out, c->expected + frame * in, c->error + frame * in);
    scale_errors(c, x->dtype, y->count);
    free(xs);
}

/* ---- resizing ---- */

/* `from` is what is read, of either op. */
static void make_resize(conform_case *c, test_random *random, const char *read, const char *written)
{
    mica_resize_params *p = &c->params.resize;
    uint64_t from[MICA_MAX_DIMS] = {0}, to[MICA_MAX_DIMS] = {0};
    const bool wide = draw_wide(random);
    const uint32_t front = draw_front(c, random, from);
    const test_layout layout = c->typical ? TEST_CONTIGUOUS : TEST_ANY;

    *p = (mica_resize_params){.mode = MICA_RESIZE_LINEAR, .dims = 2};
    if (!c->typical) {
        p->mode = (uint32_t)test_random_below(random, 3);
        p->corners = (uint32_t)test_random_below(random, 3);
        p->dims = 1 + (uint32_t)test_random_below(random, 3);
        p->antialias = p->mode != MICA_RESIZE_NEAREST && p->corners == 0 && test_random_one_in(random, 2);
    }
    for (uint32_t d = 0; d < front; d++)
        to[d] = from[d];
    for (uint32_t d = 0; d < p->dims; d++) {
        from[front + d] = c->typical ? 112 : 1 + test_random_below(random, most_places[p->dims - 1]);
        to[front + d] = c->typical ? 224 : 1 + test_random_below(random, most_places[p->dims - 1]);
        p->size[d] = (uint32_t)to[front + d];
    }
    conform_add(c, random, read, draw_type(c, random, wide), front + p->dims, from, layout);
    test_tensor_normal(conform_tensor(c, 0), random, 1);
    if (!c->typical && test_random_one_in(random, 5))
        add_odd(conform_tensor(c, 0), random);
    conform_add_output(c, random, written, draw_type(c, random, wide), front + p->dims, to, layout, false, 0);
    c->bytes = conform_bytes(c, 0) + conform_bytes(c, 1);
    c->flops = 8 * (double)conform_tensor(c, 1)->count;
}

static void oracle_of_resize(conform_case *c, bool back)
{
    const mica_resize_params *p = &c->params.resize;
    const test_tensor *from = conform_tensor(c, 0), *to = conform_tensor(c, 1);
    oracle_resize r = {.mode = p->mode,
                       .corners = p->corners,
                       .antialias = p->antialias != 0,
                       .wide = from->dtype == MICA_DTYPE_F64};
    double *xs = conform_values(c, 0);

    for (uint32_t d = 0; d < 3; d++) {
        r.in[d] = spatial(back ? to : from, p->dims, d);
        r.out[d] = spatial(back ? from : to, p->dims, d);
    }
    const size_t read = spatial(from, p->dims, 0) * spatial(from, p->dims, 1) * spatial(from, p->dims, 2),
                 written = spatial(to, p->dims, 0) * spatial(to, p->dims, 1) * spatial(to, p->dims, 2);
    for (uint64_t frame = 0; frame < from->count / read; frame++)
        (back ? oracle_resize_backward : oracle_resize_run)(
            &r, xs + frame * read, c->expected + frame * written, c->error + frame * written);
    scale_errors(c, from->dtype, to->count);
    free(xs);
}

void conform_make_resize(conform_case *c, test_random *random)
{
    make_resize(c, random, "x", "y");
}

mica_status conform_encode_resize(const conform_case *c, mica_encoder *encoder)
{
    return mica_resize(encoder, conform_buffer(c, 0), &c->params.resize, conform_buffer(c, 1));
}

void conform_oracle_resize(conform_case *c)
{
    oracle_of_resize(c, false);
}

void conform_make_resize_backward(conform_case *c, test_random *random)
{
    make_resize(c, random, "dy", "dx");
}

mica_status conform_encode_resize_backward(const conform_case *c, mica_encoder *encoder)
{
    return mica_resize_backward(encoder, conform_buffer(c, 0), &c->params.resize, conform_buffer(c, 1));
}

void conform_oracle_resize_backward(conform_case *c)
{
    oracle_of_resize(c, true);
}

/* ---- sampling by a grid ---- */

enum { GRID_X, GRID, GRID_Y };

/* Places from -3 to n + 2 that are not near the middle between two, where the nearest one hangs on a rounding; with `apart` not near a place
 * either, where slopes change. */
static void fill_grid(conform_case *c, test_random *random, bool apart)
{
    test_tensor *grid = conform_tensor(c, GRID);
    const test_tensor *x = conform_tensor(c, GRID_X);

    for (uint64_t i = 0; i < grid->count; i++) {
        const double n = (double)x->shape[i % 2 == 0 ? 3 : 2];
        const double drawn = 0.8 * ((double)test_random_below(random, 1001) / 1000 - 0.5);
        const double off = !apart || fabs(drawn) >= 0.1 ? drawn : 0.1 + fabs(drawn);
        const double at = (double)test_random_below(random, (uint64_t)n + 6) - 3 + off;

        test_tensor_set(grid, i,
                        c->params.grid.align_corners != 0 ? (n > 1 ? 2 * at / (n - 1) - 1 : 0)
                                                          : (2 * at + 1) / n - 1);
    }
}

static test_layout grid_layout(const conform_case *c)
{
    return c->typical ? TEST_CONTIGUOUS : TEST_ANY;
}

/* x and grid, and their shapes. */
static void add_grid(conform_case *c, test_random *random, bool wide, bool apart, uint64_t *x, uint64_t *grid)
{
    c->params.grid = (mica_grid_params){.mode = MICA_RESIZE_LINEAR};
    if (!c->typical) {
        c->params.grid =
            (mica_grid_params){(uint32_t)test_random_below(random, 3), (uint32_t)test_random_below(random, 3),
                               (uint32_t)test_random_below(random, 2)};
        for (uint32_t d = 0; d < 4; d++) {
            x[d] = 1 + test_random_below(random, d < 2 ? 3 : 16);
            grid[d] = d == 0 ? x[0] : d < 3 ? 1 + test_random_below(random, 12) : 2;
        }
    }
    conform_add(c, random, "x", draw_type(c, random, wide), 4, x, grid_layout(c));
    test_tensor_normal(conform_tensor(c, GRID_X), random, 1);
    conform_add(c, random, "grid", draw_type(c, random, wide), 4, grid, grid_layout(c));
    fill_grid(c, random, apart);
}

void conform_make_grid_sample(conform_case *c, test_random *random)
{
    uint64_t x[4] = {1, 64, 112, 112}, grid[4] = {1, 112, 112, 2};
    const bool wide = draw_wide(random);

    add_grid(c, random, wide, false, x, grid);
    conform_add_output(c, random, "y", draw_type(c, random, wide), 4,
                       (uint64_t[]){x[0], x[1], grid[1], grid[2]}, grid_layout(c), false, 0);
    c->bytes = conform_bytes(c, GRID_X) + conform_bytes(c, GRID) + conform_bytes(c, GRID_Y);
    c->flops = 16 * (double)conform_tensor(c, GRID_Y)->count;
}

mica_status conform_encode_grid_sample(const conform_case *c, mica_encoder *encoder)
{
    return mica_grid_sample(encoder, conform_buffer(c, GRID_X), conform_buffer(c, GRID), &c->params.grid,
                            conform_buffer(c, GRID_Y));
}

void conform_oracle_grid_sample(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, GRID_X), *y = conform_tensor(c, GRID_Y);
    const mica_grid_params *p = &c->params.grid;
    const oracle_grid grid = {(size_t)x->shape[2], (size_t)x->shape[3], p->mode, p->padding,
                              p->align_corners != 0};
    double *xs = conform_values(c, GRID_X), *at = conform_values(c, GRID);
    const uint64_t places = y->shape[2] * y->shape[3];

    for (uint64_t i = 0; i < y->count; i++) {
        const uint64_t image = i / places / y->shape[1], place = image * places + i % places;

        c->expected[i] = oracle_grid_sample(&grid, xs + i / places * grid.height * grid.width, at[2 * place],
                                            at[2 * place + 1], &c->error[i]);
    }
    scale_errors(c, x->dtype, y->count);
    free(xs);
    free(at);
}

enum { GRID_DY = GRID_Y, GRID_DX, GRID_DGRID };

void conform_make_grid_sample_backward(conform_case *c, test_random *random)
{
    uint64_t x[4] = {1, 64, 112, 112}, grid[4] = {1, 112, 112, 2};
    const bool wide = draw_wide(random);
    const uint32_t which = c->typical ? 0 : (uint32_t)test_random_below(random, 3);

    add_grid(c, random, wide, true, x, grid);
    conform_add(c, random, "dy", draw_type(c, random, wide), 4, (uint64_t[]){x[0], x[1], grid[1], grid[2]},
                c->typical ? TEST_CONTIGUOUS : TEST_REPEAT);
    test_tensor_normal(conform_tensor(c, GRID_DY), random, 1);
    if (which == 1)
        conform_add_absent(c);
    else
        conform_add_output(c, random, "dx", draw_type(c, random, wide), 4, x, grid_layout(c), false, 0);
    if (which == 2) {
        conform_add_absent(c);
    } else if (which == 1) {
        conform_add_output(c, random, "dgrid", draw_type(c, random, wide), 4, grid, grid_layout(c), false, 0);
    } else {
        conform_add(c, random, "dgrid", draw_type(c, random, wide), 4, grid, grid_layout(c));
        c->operand[GRID_DGRID].written = true;
    }
    c->bytes = 2 * conform_bytes(c, GRID_X) + conform_bytes(c, GRID) + conform_bytes(c, GRID_DY);
    c->flops = 64 * (double)conform_tensor(c, GRID_DY)->count;
}

mica_status conform_encode_grid_sample_backward(const conform_case *c, mica_encoder *encoder)
{
    return mica_grid_sample_backward(encoder, conform_buffer(c, GRID_X), conform_buffer(c, GRID),
                                     conform_buffer(c, GRID_DY), &c->params.grid, conform_buffer(c, GRID_DX),
                                     conform_buffer(c, GRID_DGRID));
}

typedef struct grid_sums {
    double *dx, *dx_error, *terms, *by, *by_error;
} grid_sums;

static void run_grid_oracle(conform_case *c, const grid_sums *s)
{
    const test_tensor *x = conform_tensor(c, GRID_X), *dy = conform_tensor(c, GRID_DY);
    const mica_grid_params *p = &c->params.grid;
    const oracle_grid grid = {(size_t)x->shape[2], (size_t)x->shape[3], p->mode, p->padding,
                              p->align_corners != 0};
    double *xs = conform_values(c, GRID_X), *at = conform_values(c, GRID), *dys = conform_values(c, GRID_DY);
    const uint64_t places = dy->shape[2] * dy->shape[3];

    for (uint64_t i = 0; i < dy->count; i++) {
        const uint64_t plane = i / places * grid.height * grid.width,
                       place = i / places / dy->shape[1] * places + i % places;

        oracle_grid_backward(&grid, xs + plane, at[2 * place], at[2 * place + 1], dys[i], s->dx + plane,
                             s->dx_error + plane, s->terms + plane, s->by + 2 * place,
                             s->by_error + 2 * place);
    }
    free(xs);
    free(at);
    free(dys);
}

/* Sums in a fixed order walk by the root of how many terms they have. */
void conform_oracle_grid_sample_backward(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, GRID_X), *grid = conform_tensor(c, GRID);
    const double unit = x->dtype == MICA_DTYPE_F64 ? 0x1p-29 : 1;
    const uint64_t sizes[2] = {x->count, grid->count};
    grid_sums s = {test_alloc(x->count + 1, sizeof(double)), test_alloc(x->count + 1, sizeof(double)),
                   test_alloc(x->count + 1, sizeof(double)), test_alloc(grid->count + 1, sizeof(double)),
                   test_alloc(grid->count + 1, sizeof(double))};
    double *const value[2] = {s.dx, s.by}, *const error[2] = {s.dx_error, s.by_error};

    run_grid_oracle(c, &s);
    for (uint32_t o = 0; o < 2; o++) {
        double *expected = c->expected, *allowed = c->error;

        if (!c->operand[GRID_DX + o].present)
            continue;
        if (c->output != GRID_DX + o)
            conform_expect_also(c, GRID_DX + o, &expected, &allowed);
        for (uint64_t i = 0; i < sizes[o]; i++) {
            const double terms = o == 0 ? s.terms[i] : (double)(x->shape[1] + 16);

            expected[i] = value[o][i];
            allowed[i] = error[o][i] > 0 ? error[o][i] * (1 + 0.25 * sqrt(terms)) * unit : ORACLE_EXACT;
        }
    }
    free(s.dx);
    free(s.dx_error);
    free(s.terms);
    free(s.by);
    free(s.by_error);
}
