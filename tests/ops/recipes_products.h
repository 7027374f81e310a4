/*
 * recipes_products.h - forwards and their gradients: rotations, transforms, products, and gradients of gradients.
 */
#ifndef TEST_RECIPES_PRODUCTS_H
#define TEST_RECIPES_PRODUCTS_H

#include "ops/recipe_rig.h"

/* ---- rotations, transforms ---- */

static const int32_t places[] = {0, 7, 2000};

static mica_rope_params turning(const recipe *r)
{
    return (mica_rope_params){
        .mode = (mica_rope_mode)r->mode, .rotary_dims = r->kind, .theta = 10000, .attention_scale = 1.25f};
}
FORWARD(rope_forward)
{
    const mica_rope_params params = turning(r);

    must(mica_rope(E, in[0], ids(t, S1(3), places), NULL, &params, y));
}
BACKWARD(rope_backward)
{
    const mica_rope_params params = turning(r);

    UNUSED(in, y);
    must(mica_rope_backward(E, dy, ids(t, S1(3), places), NULL, &params, d[0]));
}

/* in: x, signs. */
FORWARD(hadamard_forward)
{
    const mica_hadamard_params params = {.scale = 0.3f, .undo = r->mode};

    must(mica_hadamard(E, in[0], in[1], &params, y));
}
BACKWARD(hadamard_backward)
{
    const mica_hadamard_params back = {.scale = 0.3f, .undo = r->mode ^ 1}, bare = {.scale = 0.3f};
    const mica_reduce_params rows = {.axes = 2};
    mica_buffer *turned = room(t, r->in[0]);

    UNUSED(y);
    must(mica_hadamard(E, dy, in[1], &back, d[0]));
    must(mica_hadamard(E, r->mode == 0 ? dy : in[0], NULL, &bare, turned));
    must(mica_mul(E, turned, r->mode == 0 ? in[0] : dy, turned));
    must(mica_reduce(E, turned, &rows, d[1]));
}

/* r->kind is the norm, r->mode the direction. Pairs of f64. */
static uint32_t norm_back(uint32_t norm)
{
    return norm == MICA_FFT_ORTHO ? norm : MICA_FFT_FORWARD - norm;
}
FORWARD(fft_forward)
{
    const mica_fft_params params = {.inverse = r->mode, .norm = r->kind};

    must(mica_fft(E, in[0], &params, y));
}
BACKWARD(fft_backward)
{
    const mica_fft_params back = {.inverse = r->mode ^ 1, .norm = norm_back(r->kind)};

    UNUSED(in, y);
    must(mica_fft(E, dy, &back, d[0]));
}
FORWARD(rfft_forward)
{
    const mica_fft_params params = {.kind = MICA_FFT_REAL, .norm = r->kind};

    must(mica_fft(E, in[0], &params, y));
}
/* The numbers that are not there are zeros; of what comes back the real parts. */
BACKWARD(rfft_backward)
{
    const uint64_t n = r->in[0].size[1], half = r->y.size[1];
    const mica_fft_params back = {.inverse = 1, .norm = norm_back(r->kind)};
    const mica_pad_params behind = {.high = {0, (int64_t)(n - half), 0}};
    mica_buffer *all = room(t, S3(r->y.size[0], n, 2)), *real = NULL;

    UNUSED(in, y);
    must(mica_pad(E, dy, &behind, all));
    must(mica_fft(E, all, &back, all));
    must(mica_buffer_slice(all, 2, 0, 1, &real));
    must(mica_copy(E, keep(t, real), as_shape(t, d[0], S3(r->in[0].size[0], n, 1))));
}
FORWARD(irfft_forward)
{
    const mica_fft_params params = {
        .kind = MICA_FFT_HERMITIAN, .inverse = 1, .norm = r->kind, .length = (uint32_t)r->y.size[1]};

    must(mica_fft(E, in[0], &params, y));
}
/* Each number but the first, and the last of an even length, stands for two; imaginary parts of those are not looked at. */
BACKWARD(irfft_backward)
{
    const uint64_t n = r->y.size[1], half = r->in[0].size[1];
    const mica_fft_params back = {.kind = MICA_FFT_REAL, .norm = norm_back(r->kind)};
    mica_buffer *weight = filled(t, S2(half, 2), 2), *part = NULL;

    UNUSED(in, y);
    must(mica_fft(E, dy, &back, d[0]));
    for (uint64_t k = 0; k < half; k += n % 2 == 0 ? half - 1 : half)
        for (uint64_t imag = 0; imag < 2; imag++) {
            mica_buffer *row = NULL;

            must(mica_buffer_slice(weight, 0, k, 1, &row));
            must(mica_buffer_slice(keep(t, row), 1, imag, 1, &part));
            must(mica_fill(E, imag != 0 ? 0 : 1, keep(t, part)));
        }
    must(mica_mul(E, d[0], weight, d[0]));
}

/* ---- products ---- */

/* in: a [2, 3, 4], b [4, 5] for all, what is added. */
static mica_buffer *turned(tape *t, mica_buffer *of, uint32_t ndim)
{
    static const uint32_t two[] = {1, 0}, three[] = {0, 2, 1};
    mica_buffer *view = NULL;

    must(mica_buffer_permute(of, ndim == 2 ? two : three, &view));
    return keep(t, view);
}
FORWARD(product_forward)
{
    (void)r;
    must(mica_product(E, in[0], in[1], in[2], y));
}
BACKWARD(product_backward)
{
    mica_buffer *each = room(t, S3(2, 4, 5));

    UNUSED(r, y);
    must(mica_product(E, dy, turned(t, in[1], 2), NULL, d[0]));
    must(mica_product(E, turned(t, in[0], 3), dy, NULL, each));
    must(mica_reduce(E, each, &(mica_reduce_params){.axes = 4}, d[1]));
    must(mica_reduce(E, dy, &(mica_reduce_params){.axes = 6}, d[2]));
}
/* in: x, weight; f32 alone. */
FORWARD(matmul_forward)
{
    (void)r;
    must(mica_matmul(E, in[0], in[1], &(mica_matmul_params){MICA_PRECISION_F32}, y));
}
BACKWARD(matmul_backward)
{
    UNUSED(r, y);
    must(mica_matmul_transposed(E, dy, in[1], NULL, d[0]));
    must(mica_product(E, turned(t, dy, 2), in[0], NULL, d[1]));
}
FORWARD(transposed_forward)
{
    (void)r;
    must(mica_matmul_transposed(E, in[0], in[1], NULL, y));
}
BACKWARD(transposed_backward)
{
    UNUSED(r, y);
    must(mica_matmul(E, dy, in[1], &(mica_matmul_params){MICA_PRECISION_F32}, d[0]));
    must(mica_product(E, turned(t, in[0], 2), dy, NULL, d[1]));
}
/* in: x [tokens, slots, k], weight. */
static const int32_t chosen[] = {1, 0, 2, 1, 0, 0};

FORWARD(experts_forward)
{
    (void)r;
    must(mica_matmul_experts(E, in[0], in[1], ids(t, S2(3, 2), chosen),
                             &(mica_matmul_params){MICA_PRECISION_F32}, y));
}
/* Each slot by the weight that it chose, in double; of each weight the outer products of those that chose it. */
BACKWARD(experts_backward)
{
    const shape outer = S3(6, 2, 4);
    mica_buffer *at = ids(t, S2(3, 2), chosen), *each = room(t, outer);

    UNUSED(r, y);
    must(mica_gather(E, in[1], as_shape(t, at, S1(6)), NULL, each));
    must(mica_product(E, as_shape(t, dy, S3(6, 1, 2)), each, NULL, as_shape(t, d[0], S3(6, 1, 4))));
    must(mica_product(E, as_shape(t, dy, S3(6, 2, 1)), as_shape(t, in[0], S3(6, 1, 4)), NULL, each));
    must(mica_fill(E, 0, d[1]));
    must(mica_scatter(E, each, as_shape(t, at, S1(6)), &(mica_scatter_params){.mode = MICA_SCATTER_ADD},
                      d[1]));
}

/* ---- gradients of gradients ---- */

/* in: y, dy of softmax. */
FORWARD(softmax_back_forward)
{
    (void)r;
    must(mica_softmax_backward(E, in[0], in[1], 0.7f, y));
}
/* Of u: to dy the same of u, to y scale (u dy - u sum(y dy) - dy sum(u y)). */
BACKWARD(softmax_back_backward)
{
    const mica_reduce_params row = {.axes = 1, .keep_dims = 1};
    mica_buffer *sum = room(t, S2(3, 1)), *other = room(t, r->y), *term = room(t, r->y);

    UNUSED(y);
    must(mica_softmax_backward(E, in[0], dy, 0.7f, d[1]));
    must(mica_mul(E, in[0], in[1], term));
    must(mica_reduce(E, term, &row, sum));
    must(mica_sub(E, in[1], sum, term));
    must(mica_mul(E, term, dy, term));
    must(mica_mul(E, in[0], dy, other));
    must(mica_reduce(E, other, &row, sum));
    must(mica_mul(E, in[1], sum, other));
    must(mica_sub(E, term, other, term));
    must(mica_mul(E, term, filled(t, S1(1), (double)0.7f), d[0]));
}
/* in: dy, weight, of a norm of fixed x: linear in both. */
static const double fixed[] = {0.3, -1.1, 0.8, 1.9, -0.4, 0.6, -1.6, 0.2, 1.3, -0.7, 0.9, 0.1};

static mica_buffer *fixed_x(tape *t)
{
    mica_buffer *x = room(t, S2(3, 4));

    must(mica_buffer_write(x, 0, fixed, sizeof fixed));
    return x;
}
static mica_normalize_params norm_params(const recipe *r)
{
    return (mica_normalize_params){.kind = r->kind, .eps = 0.01f};
}
FORWARD(normalize_back_forward)
{
    const mica_normalize_params params = norm_params(r);

    must(mica_normalize_backward(E, fixed_x(t), in[0], in[1], &params, y, NULL, NULL));
}
/* M (w dy) with a symmetric M: w M u to dy, the sum of dy M u to w. */
BACKWARD(normalize_back_backward)
{
    const mica_normalize_params params = norm_params(r);
    mica_buffer *back = room(t, r->y), *term = room(t, r->y);

    UNUSED(y);
    must(mica_normalize_backward(E, fixed_x(t), dy, NULL, &params, back, NULL, NULL));
    must(mica_mul(E, back, in[1], d[0]));
    must(mica_mul(E, back, in[0], term));
    must(mica_reduce(E, term, &(mica_reduce_params){.axes = 2}, d[1]));
}
/* in: x, dy of a convolution. */
static const mica_conv_params conv = {.stride = {2}, .low = {1}, .high = {1}, .kernel = {3}};

FORWARD(conv_weight_forward)
{
    (void)r;
    must(mica_conv_weight_backward(E, in[0], in[1], &conv, y));
}
BACKWARD(conv_weight_backward)
{
    mica_conv_params back = conv;

    UNUSED(r, y);
    back.transposed = 1;
    must(mica_conv(E, in[1], dy, NULL, &back, d[0]));
    must(mica_conv(E, in[0], dy, NULL, &conv, d[1]));
}
/* in: dy of pools over fixed x. */
static const mica_pool_windows_params pool = {
    .kind = MICA_POOL_MEAN, .dims = 1, .kernel = {2}, .stride = {1}};

static mica_pool_windows_params pool_of(const recipe *r)
{
    mica_pool_windows_params params = pool;

    params.kind = r->kind;
    return params;
}
FORWARD(pool_back_forward)
{
    const mica_pool_windows_params params = pool_of(r);

    must(mica_pool_windows_backward(E, fixed_x(t), in[0], &params, y));
}
/* The transpose of what a pool gives back is the pool, with the elements that it took. */
BACKWARD(pool_back_backward)
{
    const mica_pool_windows_params params = pool_of(r);
    mica_buffer *at = room_of(t, MICA_DTYPE_I32, r->in[0]), *y_of_x = room(t, r->in[0]);

    UNUSED(in, y);
    if (r->kind != MICA_POOL_MAX) {
        must(mica_pool_windows(E, dy, &params, d[0], NULL));
        return;
    }
    must(mica_pool_windows(E, fixed_x(t), &params, y_of_x, at));
    must(mica_gather(E, dy, at, &(mica_gather_params){.axis = 1}, d[0]));
}
static const mica_im2col_params windows = {
    .dims = 1, .kernel = {3}, .stride = {2}, .low = {1}, .high = {1}, .size = {7}};

FORWARD(col2im_forward)
{
    (void)r;
    must(mica_col2im(E, in[0], &windows, y));
}
BACKWARD(col2im_backward)
{
    UNUSED(r, in, y);
    must(mica_im2col(E, dy, &windows, d[0]));
}
FORWARD(im2col_forward)
{
    (void)r;
    must(mica_im2col(E, in[0], &windows, y));
}
BACKWARD(im2col_backward)
{
    UNUSED(r, in, y);
    must(mica_col2im(E, dy, &windows, d[0]));
}
static mica_resize_params resizing(const recipe *r)
{
    return (mica_resize_params){.mode = r->mode, .dims = 1};
}
FORWARD(resize_back_forward)
{
    const mica_resize_params params = resizing(r);

    must(mica_resize_backward(E, in[0], &params, y));
}
BACKWARD(resize_back_backward)
{
    const mica_resize_params params = resizing(r);

    UNUSED(in, y);
    must(mica_resize(E, dy, &params, d[0]));
}
/* in: dloss, of fixed logits. */
static const int32_t labels[] = {2, 0, 3};

FORWARD(loss_back_forward)
{
    mica_buffer *x = fixed_x(t), *at = ids(t, S1(3), labels), *loss = room(t, S1(3)), *lse = room(t, S1(3));

    (void)r;
    must(mica_cross_entropy(E, x, at, NULL, NULL, NULL, loss, lse));
    must(mica_cross_entropy_backward(E, x, at, NULL, NULL, lse, in[0], NULL, y));
}
BACKWARD(loss_back_backward)
{
    mica_buffer *x = fixed_x(t), *at = ids(t, S1(3), labels), *loss = room(t, S1(3)), *lse = room(t, S1(3)),
                *each = room(t, r->y);

    UNUSED(in, y);
    must(mica_cross_entropy(E, x, at, NULL, NULL, NULL, loss, lse));
    must(mica_cross_entropy_backward(E, x, at, NULL, NULL, lse, filled(t, S1(3), 1), NULL, each));
    must(mica_mul(E, each, dy, each));
    must(mica_reduce(E, each, &(mica_reduce_params){.axes = 1}, d[0]));
}
/* in: dweights of a router of fixed logits, softmax first: the transpose of what it gives back is softmax's own gradient, at the chosen. */
static const int32_t routed[] = {3, 0, 1, 2, 0, 3};

FORWARD(route_back_forward)
{
    (void)r;
    must(mica_route_backward(E, fixed_x(t), NULL, ids(t, S2(3, 2), routed), in[0],
                             &(mica_route_params){.softmax_first = 1, .scale = 2}, y));
}
BACKWARD(route_back_backward)
{
    mica_buffer *share = room(t, r->y);

    UNUSED(in, y);
    must(mica_softmax(E, fixed_x(t), 1, share));
    must(mica_softmax_backward(E, share, dy, 2, share));
    must(mica_gather(E, share, ids(t, S2(3, 2), routed), &(mica_gather_params){.axis = 1}, d[0]));
}
/* in: x, weight of the convolution of state-space models, which is a depthwise one of the tokens, two zeros before them. */
FORWARD(ssm_conv_forward)
{
    (void)r;
    must(mica_ssm_conv(E, in[0], in[1], in[2], NULL, NULL, y));
}
BACKWARD(ssm_conv_backward)
{
    mica_conv_params params = {.low = {2}, .groups = 2, .kernel = {3}, .transposed = 1};
    mica_buffer *x = as_shape(t, room(t, S2(2, 5)), S3(1, 2, 5)),
                *of = as_shape(t, room(t, S2(2, 5)), S3(1, 2, 5)), *back = room(t, S3(1, 2, 5));

    UNUSED(r, y);
    must(mica_copy(E, turned(t, in[0], 2), as_shape(t, x, S2(2, 5))));
    must(mica_copy(E, turned(t, dy, 2), as_shape(t, of, S2(2, 5))));
    must(mica_conv(E, of, as_shape(t, in[1], S3(2, 1, 3)), NULL, &params, back));
    must(mica_copy(E, turned(t, as_shape(t, back, S2(2, 5)), 2), d[0]));
    params.transposed = 0;
    must(mica_conv_weight_backward(E, x, of, &params, as_shape(t, d[1], S3(2, 1, 3))));
    must(mica_reduce(E, dy, &(mica_reduce_params){.axes = 2}, d[2]));
}

#endif
