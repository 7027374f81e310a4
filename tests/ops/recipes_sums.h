/*
 * recipes_sums.h - forwards and their gradients: copies, reductions, scans, orders, what is gathered, scattered and padded.
 */
#ifndef TEST_RECIPES_SUMS_H
#define TEST_RECIPES_SUMS_H

#include "ops/recipe_rig.h"

/* ---- copies and sums ---- */

FORWARD(copy_forward)
{
    (void)r;
    must(mica_copy(E, in[0], y));
}
/* What repeats is added up. */
BACKWARD(copy_backward)
{
    const mica_reduce_params rows = {.axes = 5, .keep_dims = 1};

    UNUSED(r, in, y);
    must(mica_reduce(E, dy, &rows, d[0]));
}

static mica_reduce_params reduction(const recipe *r)
{
    return (mica_reduce_params){.kind = r->kind, .axes = 5, .keep_dims = 1, .correction = r->mode};
}
FORWARD(reduce_forward)
{
    const mica_reduce_params params = reduction(r);

    must(mica_reduce(E, in[0], &params, y));
}
/* dy times the derivative, both of x's shape. */
BACKWARD(sum_backward)
{
    UNUSED(in, y);
    must(mica_mul(E, dy, filled(t, S1(1), r->kind == MICA_REDUCE_MEAN ? 1.0 / 12 : 1), d[0]));
}
BACKWARD(extreme_backward)
{
    mica_buffer *size = in[0], *taken = room_of(t, MICA_DTYPE_BOOL, r->in[0]), *one = room(t, r->in[0]);

    if (r->kind == MICA_REDUCE_MAX_ABS) {
        size = room(t, r->in[0]);
        must(mica_abs(E, in[0], size));
    }
    must(mica_equal(E, size, y, taken));
    must(mica_cast(E, taken, one));
    if (r->kind == MICA_REDUCE_MAX_ABS) {
        mica_buffer *sign = room(t, r->in[0]);

        must(mica_sign(E, in[0], sign));
        must(mica_mul(E, one, sign, one));
    }
    must(mica_mul(E, one, dy, d[0]));
}
/* The product of the ones before and of those behind, which is right where x is 0. */
BACKWARD(prod_backward)
{
    const mica_scan_params before = {.exclusive = 1}, behind = {.exclusive = 1, .reverse = 1};
    mica_buffer *low = room(t, r->in[0]), *high = room(t, r->in[0]);

    UNUSED(y);
    must(mica_cumprod(E, in[0], &before, low));
    must(mica_cumprod(E, in[0], &behind, high));
    must(mica_mul(E, low, high, low));
    must(mica_mul(E, low, dy, d[0]));
}
FORWARD(row_prod_forward)
{
    const mica_reduce_params params = {.kind = MICA_REDUCE_PROD, .axes = 1, .keep_dims = 1};

    (void)r;
    must(mica_reduce(E, in[0], &params, y));
}
BACKWARD(var_backward)
{
    const mica_reduce_params mean = {.kind = MICA_REDUCE_MEAN, .axes = 5, .keep_dims = 1};
    mica_buffer *middle = room(t, r->y), *off = room(t, r->in[0]);

    UNUSED(y);
    must(mica_reduce(E, in[0], &mean, middle));
    must(mica_sub(E, in[0], middle, off));
    must(mica_mul(E, off, filled(t, S1(1), 2.0 / (12 - r->mode)), off));
    must(mica_mul(E, off, dy, d[0]));
}
BACKWARD(logsumexp_backward)
{
    mica_buffer *share = room(t, r->in[0]);

    must(mica_sub(E, in[0], y, share));
    must(mica_exp(E, share, share));
    must(mica_mul(E, share, dy, d[0]));
}
BACKWARD(squares_backward)
{
    mica_buffer *twice = room(t, r->in[0]);

    UNUSED(y);
    must(mica_add(E, in[0], in[0], twice));
    must(mica_mul(E, twice, dy, d[0]));
}

/* ---- scans ---- */

static mica_scan_params scan_of(const recipe *r)
{
    return (mica_scan_params){.kind = r->kind, .exclusive = r->mode & 1, .reverse = r->mode >> 1};
}
FORWARD(scan_forward)
{
    const mica_scan_params params = scan_of(r);

    must(mica_scan(E, in[0], &params, y));
}
/* Sums go back the other way. */
BACKWARD(cumsum_backward)
{
    const mica_scan_params back = {.exclusive = r->mode & 1, .reverse = (r->mode >> 1) ^ 1};

    UNUSED(in, y);
    must(mica_cumsum(E, dy, &back, d[0]));
}
BACKWARD(cumprod_backward)
{
    const mica_scan_params back = {.exclusive = r->mode & 1, .reverse = (r->mode >> 1) ^ 1};
    mica_buffer *terms = room(t, r->y);

    must(mica_mul(E, dy, y, terms));
    must(mica_cumsum(E, terms, &back, terms));
    must(mica_div(E, terms, in[0], d[0]));
}
/* Where the running extreme was set last: the greatest place up to here whose element is the extreme. */
BACKWARD(cummax_backward)
{
    mica_buffer *taken = room_of(t, MICA_DTYPE_BOOL, r->in[0]), *place = room_of(t, MICA_DTYPE_I32, r->in[0]),
                *zero = room_of(t, MICA_DTYPE_I32, S1(1));
    const mica_scatter_params add = {.axis = 1, .mode = MICA_SCATTER_ADD};

    must(mica_fill(E, 0, zero));
    must(mica_arange(E, 0, 1, place));
    must(mica_equal(E, in[0], y, taken));
    must(mica_select(E, taken, place, zero, place));
    must(mica_cummax(E, place, NULL, place));
    must(mica_fill(E, 0, d[0]));
    must(mica_scatter(E, dy, place, &add, d[0]));
}

/* ---- order and places ---- */

FORWARD(sort_forward)
{
    mica_buffer *at = room_of(t, MICA_DTYPE_I32, r->y);

    if (r->mode != 0)
        must(mica_top_k(E, in[0], y, at));
    else
        must(mica_sort(E, in[0], NULL, y));
}
/* Each goes back to where it stood. */
BACKWARD(sort_backward)
{
    const mica_scatter_params add = {.axis = 1, .mode = MICA_SCATTER_ADD};
    mica_buffer *at = room_of(t, MICA_DTYPE_I32, r->y);

    UNUSED(y);
    if (r->mode != 0)
        must(mica_top_k(E, in[0], NULL, at));
    else
        must(mica_argsort(E, in[0], NULL, at));
    must(mica_fill(E, 0, d[0]));
    must(mica_scatter(E, dy, at, &add, d[0]));
}

static const int32_t repeated[] = {3, 0, 3, 1}, single[] = {4, 0, 2};

FORWARD(gather_forward)
{
    (void)r;
    must(mica_gather(E, in[0], ids(t, S1(4), repeated), &(mica_gather_params){.axis = 1}, y));
}
BACKWARD(gather_backward)
{
    UNUSED(r, in, y);
    must(mica_fill(E, 0, d[0]));
    must(mica_scatter(E, dy, ids(t, S1(4), repeated),
                      &(mica_scatter_params){.axis = 1, .mode = MICA_SCATTER_ADD}, d[0]));
}
/* in: updates, what lay there. */
FORWARD(scatter_forward)
{
    must(mica_copy(E, in[1], y));
    must(
        mica_scatter(E, in[0], ids(t, S1(3), single), &(mica_scatter_params){.axis = 1, .mode = r->mode}, y));
}
/* One where a and b are equal. */
static mica_buffer *where_equal(tape *t, shape s, mica_buffer *a, mica_buffer *b)
{
    mica_buffer *same = room_of(t, MICA_DTYPE_BOOL, s), *one = room(t, s);

    must(mica_equal(E, a, b, same));
    must(mica_cast(E, same, one));
    return one;
}
BACKWARD(scatter_backward)
{
    const mica_gather_params along = {.axis = 1};
    mica_buffer *at = ids(t, S1(3), single), *here = room(t, r->in[0]);

    must(mica_gather(E, dy, at, &along, d[0]));
    must(mica_copy(E, dy, d[1]));
    if (r->mode == MICA_SCATTER_SET) {
        must(mica_scatter(E, filled(t, r->in[0], 0), at, &(mica_scatter_params){.axis = 1}, d[1]));
    } else if (r->mode == MICA_SCATTER_MUL) {
        must(mica_gather(E, in[1], at, &along, here));
        must(mica_mul(E, d[0], here, d[0]));
        must(mica_scatter(E, in[0], at, &(mica_scatter_params){.axis = 1, .mode = MICA_SCATTER_MUL}, d[1]));
    } else if (r->mode != MICA_SCATTER_ADD) {
        must(mica_gather(E, y, at, &along, here));
        must(mica_mul(E, d[0], where_equal(t, r->in[0], in[0], here), d[0]));
        must(mica_mul(E, d[1], where_equal(t, r->in[1], in[1], y), d[1]));
    }
}

/* Places of two dimensions in x [4, 5, 3]. */
static const int32_t pairs[] = {3, 1, 0, 4, 3, 1}, lone_pairs[] = {3, 1, 0, 4, 2, 2};

FORWARD(gather_nd_forward)
{
    (void)r;
    must(mica_gather_nd(E, in[0], ids(t, S2(3, 2), pairs), NULL, y));
}
BACKWARD(gather_nd_backward)
{
    UNUSED(r, in, y);
    must(mica_fill(E, 0, d[0]));
    must(mica_scatter_nd(E, dy, ids(t, S2(3, 2), pairs), &(mica_scatter_nd_params){MICA_SCATTER_ADD}, d[0]));
}
/* in: updates, what lay there. */
FORWARD(scatter_nd_forward)
{
    must(mica_copy(E, in[1], y));
    must(mica_scatter_nd(E, in[0], ids(t, S2(3, 2), lone_pairs), &(mica_scatter_nd_params){r->mode}, y));
}
BACKWARD(scatter_nd_backward)
{
    mica_buffer *at = ids(t, S2(3, 2), lone_pairs);

    UNUSED(in, y);
    must(mica_gather_nd(E, dy, at, NULL, d[0]));
    must(mica_copy(E, dy, d[1]));
    if (r->mode == MICA_SCATTER_SET)
        must(mica_scatter_nd(E, filled(t, r->in[0], 0), at, NULL, d[1]));
}
static const int32_t condition[] = {1, 0, 0, 1, 1};

FORWARD(compress_forward)
{
    must(mica_compress(E, in[0], ids(t, S1(5), condition), &(mica_compress_params){.axis = 1}, y,
                       room_of(t, MICA_DTYPE_I32, S1(1))));
    (void)r;
}
/* The places where the condition holds. */
BACKWARD(compress_backward)
{
    mica_buffer *at = room_of(t, MICA_DTYPE_I32, S2(3, 1));

    UNUSED(r, in, y);
    must(mica_nonzero(E, ids(t, S1(5), condition), at, room_of(t, MICA_DTYPE_I32, S1(1))));
    must(mica_fill(E, 0, d[0]));
    must(mica_scatter(E, dy, as_shape(t, at, S1(3)),
                      &(mica_scatter_params){.axis = 1, .mode = MICA_SCATTER_ADD}, d[0]));
}

static const mica_pad_params pads = {.low = {2, 3}, .high = {1, 4}};

FORWARD(pad_forward)
{
    mica_pad_params params = pads;

    params.mode = r->mode;
    must(mica_pad(E, in[0], &params, y));
}
/* Numbers of places padded alike say where each element comes from; of a constant nowhere. */
BACKWARD(pad_backward)
{
    mica_pad_params params = pads;
    mica_buffer *from = room_of(t, MICA_DTYPE_I32, r->in[0]), *number = room_of(t, MICA_DTYPE_I32, r->y);
    const uint64_t n = count_of(r->in[0]), m = count_of(r->y);

    UNUSED(in, y);
    params.mode = r->mode;
    if (r->mode == MICA_PAD_CONSTANT) {
        for (uint32_t k = 0; k < 2; k++) {
            params.low[k] = -pads.low[k];
            params.high[k] = -pads.high[k];
        }
        must(mica_pad(E, dy, &params, d[0]));
        return;
    }
    must(mica_arange(E, 0, 1, as_shape(t, from, S1(n))));
    must(mica_pad(E, from, &params, number));
    must(mica_fill(E, 0, d[0]));
    must(mica_scatter(E, as_shape(t, dy, S1(m)), as_shape(t, number, S1(m)),
                      &(mica_scatter_params){.mode = MICA_SCATTER_ADD}, as_shape(t, d[0], S1(n))));
}

/* in: the table. f32 alone. */
static const int32_t tokens[] = {2, 4, 2, 0};

FORWARD(embedding_forward)
{
    (void)r;
    must(mica_embedding(E, in[0], ids(t, S1(4), tokens), y));
}
BACKWARD(embedding_backward)
{
    UNUSED(r, in, y);
    must(mica_fill(E, 0, d[0]));
    must(mica_scatter(E, dy, ids(t, S1(4), tokens), &(mica_scatter_params){.mode = MICA_SCATTER_ADD}, d[0]));
}

#endif
