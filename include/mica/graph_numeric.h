/*
 * graph_numeric.h - nodes of transforms and complex numbers, random numbers and sampling, codes with scales, linear
 * algebra, losses and optimisers. As graph_ops.h says of its functions, which includes this.
 */
#ifndef MICA_GRAPH_NUMERIC_H
#define MICA_GRAPH_NUMERIC_H

#include "mica/graph.h"
#include "mica/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- transforms. Complex numbers are c64, or of f64 pairs in a last dimension of 2, which axes do not count ---- */

/* mica_fft along `axis` of n points: x is cut there, or followed by zeros; 0: as many as x has (HERMITIAN: twice
 * those less one). With n x has a size that is a number along the axis. Real x of COMPLEX becomes complex first. */
MICA_API mica_tensor mica_graph_fourier(mica_graph *graph, mica_tensor x, mica_fft_kind kind,
                                        uint32_t inverse, mica_fft_norm norm, uint64_t n, int32_t axis);
/* The same along `count` axes, one after another; of REAL the last one listed is the real one, of HERMITIAN it is the
 * last to be done. sizes may be NULL. */
MICA_API mica_tensor mica_graph_fourier_axes(mica_graph *graph, mica_tensor x, mica_fft_kind kind,
                                             uint32_t inverse, mica_fft_norm norm, const uint64_t *sizes,
                                             const int32_t *axes, uint32_t count);
/* numpy's fft, ifft, rfft, irfft, fft2 and ifft2, with its norms. */
static inline mica_tensor mica_graph_fft(mica_graph *graph, mica_tensor x, int32_t axis, mica_fft_norm norm)
{
    return mica_graph_fourier(graph, x, MICA_FFT_COMPLEX, 0, norm, 0, axis);
}
static inline mica_tensor mica_graph_ifft(mica_graph *graph, mica_tensor x, int32_t axis, mica_fft_norm norm)
{
    return mica_graph_fourier(graph, x, MICA_FFT_COMPLEX, 1, norm, 0, axis);
}
static inline mica_tensor mica_graph_rfft(mica_graph *graph, mica_tensor x, int32_t axis, mica_fft_norm norm)
{
    return mica_graph_fourier(graph, x, MICA_FFT_REAL, 0, norm, 0, axis);
}
static inline mica_tensor mica_graph_irfft(mica_graph *graph, mica_tensor x, uint64_t n, int32_t axis,
                                           mica_fft_norm norm)
{
    return mica_graph_fourier(graph, x, MICA_FFT_HERMITIAN, 1, norm, n, axis);
}
static inline mica_tensor mica_graph_fft2(mica_graph *graph, mica_tensor x, mica_fft_norm norm)
{
    const int32_t last[] = {-2, -1};
    return mica_graph_fourier_axes(graph, x, MICA_FFT_COMPLEX, 0, norm, NULL, last, 2);
}
static inline mica_tensor mica_graph_ifft2(mica_graph *graph, mica_tensor x, mica_fft_norm norm)
{
    const int32_t last[] = {-2, -1};
    return mica_graph_fourier_axes(graph, x, MICA_FFT_COMPLEX, 1, norm, NULL, last, 2);
}
/* Frames of x [.., T], `hop` apart, times window [n], each transformed: [.., frames, n / 2 + 1]. T is a number.
 * `centered` 1: x is mirrored by n / 2 at its ends first. */
MICA_API mica_tensor mica_graph_stft(mica_graph *graph, mica_tensor x, mica_tensor window, uint64_t hop,
                                     uint32_t centered, mica_fft_norm norm);
/* All of x [.., T] convolved with kernel [.., K], by spectra: [.., T + K - 1]. f32; T and K are numbers. */
MICA_API mica_tensor mica_graph_fft_convolve(mica_graph *graph, mica_tensor x, mica_tensor kernel);
/* Whisper's spectrum (mica_log_mel) of audio [.., T], T a number: [.., M, frames], `frames` 0: all of them. */
MICA_API mica_tensor mica_graph_log_mel(mica_graph *graph, mica_tensor audio, mica_tensor window,
                                        mica_tensor filters, uint64_t hop, uint64_t frames);

/* Of c64: sum, difference, product, quotient, conjugate; then of c64 in f32: size, its square, angle; re + i im;
 * parts. */
MICA_API mica_tensor mica_graph_complex_add(mica_graph *graph, mica_tensor a, mica_tensor b);
/* a - b. */
MICA_API mica_tensor mica_graph_complex_sub(mica_graph *graph, mica_tensor a, mica_tensor b);
/* a b. */
MICA_API mica_tensor mica_graph_complex_mul(mica_graph *graph, mica_tensor a, mica_tensor b);
/* a / b. */
MICA_API mica_tensor mica_graph_complex_div(mica_graph *graph, mica_tensor a, mica_tensor b);
/* The conjugate. */
MICA_API mica_tensor mica_graph_complex_conj(mica_graph *graph, mica_tensor x);
/* The magnitude, f32. */
MICA_API mica_tensor mica_graph_complex_abs(mica_graph *graph, mica_tensor x);
/* Its square, f32. */
MICA_API mica_tensor mica_graph_complex_norm(mica_graph *graph, mica_tensor x);
/* The angle, f32. */
MICA_API mica_tensor mica_graph_complex_angle(mica_graph *graph, mica_tensor x);
/* Of two real ones, c64. */
MICA_API mica_tensor mica_graph_complex_join(mica_graph *graph, mica_tensor re, mica_tensor im);
/* The real part, f32. */
MICA_API mica_tensor mica_graph_real(mica_graph *graph, mica_tensor x);
/* The imaginary part, f32. */
MICA_API mica_tensor mica_graph_imag(mica_graph *graph, mica_tensor x);

/* ---- random numbers (ops_random.h). seed and offset are one u64 each, fed or computed; 0: 0. A draw of n
 * elements uses up n offsets ---- */

typedef struct mica_graph_draw {
    mica_tensor seed, offset;
} mica_graph_draw;
/* Of a shape of which all but the first size are numbers. `draw` may be NULL. */
MICA_API mica_tensor mica_graph_uniform(mica_graph *graph, mica_dtype dtype, uint32_t ndim,
                                        const uint64_t *shape, double low, double high,
                                        const mica_graph_draw *draw);
/* mica_random_normal. */
MICA_API mica_tensor mica_graph_normal(mica_graph *graph, mica_dtype dtype, uint32_t ndim,
                                       const uint64_t *shape, double mean, double deviation,
                                       const mica_graph_draw *draw);
/* mica_random_integers. */
MICA_API mica_tensor mica_graph_random_integers(mica_graph *graph, mica_dtype dtype, uint32_t ndim,
                                                const uint64_t *shape, int64_t low, int64_t high,
                                                const mica_graph_draw *draw);
/* 1 with the probability of each element, in `dtype`. */
MICA_API mica_tensor mica_graph_bernoulli(mica_graph *graph, mica_dtype dtype, mica_tensor probability,
                                          const mica_graph_draw *draw);
/* One index (i32) of each row of logits [.., n]. */
MICA_API mica_tensor mica_graph_categorical(mica_graph *graph, mica_tensor logits,
                                            const mica_graph_draw *draw);
/* Each element stays with probability 1 - p, times 1 / (1 - p). */
MICA_API mica_tensor mica_graph_dropout(mica_graph *graph, mica_tensor x, double p,
                                        const mica_graph_draw *draw);

/* ---- sampling ---- */

/* mica_penalize: bias_ids with bias, mask and history may be 0. */
typedef struct mica_graph_penalize_operands {
    mica_tensor logits, settings, bias_ids, bias, mask, history;
} mica_graph_penalize_operands;
/* mica_penalize. */
MICA_API mica_tensor mica_graph_penalize(mica_graph *graph, const mica_graph_penalize_operands *operands);
/* mica_sample with settings u32 [rows, MICA_SAMPLE_WORDS] that are fed or linked: raw and history may be 0. */
typedef struct mica_graph_sample_outputs {
    mica_tensor ids, log_probabilities, settings, history;
} mica_graph_sample_outputs;
/* mica_sample: ids, and what settings and history become. */
MICA_API mica_tensor mica_graph_sample(mica_graph *graph, mica_tensor logits, mica_tensor raw,
                                       mica_tensor settings, mica_tensor history,
                                       mica_graph_sample_outputs *out);
/* One token (i32) of each row of logits [rows, vocabulary] by settings that are the same for all; each row draws by
 * itself. `pick`, one u32 or 0, is added to the number of the draw of every row: rows use up as many as there are. */
MICA_API mica_tensor mica_graph_sample_rows(mica_graph *graph, mica_tensor logits,
                                            const mica_sample_settings *settings, mica_tensor pick);

/* ---- codes with scales (ops_quantize.h) ---- */

/* A mica_quantizer whose operands are tensors; 0: absent. */
typedef struct mica_graph_quantizer {
    mica_tensor scales, zero_points, biases, global;
    int32_t low, high;
    uint32_t block, axis, away, packed;
    mica_code code;
} mica_graph_quantizer;
/* Sizes along by->axis are numbers where there are blocks, the last one where codes are packed. */
MICA_API mica_tensor mica_graph_quantize(mica_graph *graph, mica_tensor x, const mica_graph_quantizer *by,
                                         mica_dtype dtype);
/* The way back: mica_dequantize_codes. */
MICA_API mica_tensor mica_graph_dequantize(mica_graph *graph, mica_tensor codes,
                                           const mica_graph_quantizer *by, mica_dtype dtype);
/* mica_requantize: codes of i32 sums by multipliers. */
MICA_API mica_tensor mica_graph_requantize(mica_graph *graph, mica_tensor sums,
                                           const mica_graph_quantizer *by, mica_dtype dtype);
/* mica_fake_quantize. */
MICA_API mica_tensor mica_graph_fake_quantize(mica_graph *graph, mica_tensor x,
                                              const mica_graph_quantizer *by);
/* What reaches x, and (out_dscale) what each element sends to its scale; not of blocks. */
MICA_API mica_tensor mica_graph_fake_quantize_backward(mica_graph *graph, mica_tensor x,
                                                       const mica_graph_quantizer *by, mica_tensor dy,
                                                       mica_straight straight, mica_tensor *out_dscale);
/* A fake-quantise that is trained through: its gradient is mica_graph_fake_quantize_backward's, for x as
 * `straight` says, and for scales (LSQ), which are of the tensor (one element) or repeat to x. zero_points,
 * biases, global and blocks are absent. */
MICA_API mica_tensor mica_graph_fake_quantize_trained(mica_graph *graph, mica_tensor x, mica_tensor scales,
                                                      int32_t low, int32_t high, mica_straight straight);
/* mica_quantize_scales: scales, and with out_biases also those, of what shares them: the axes of the bit mask `axes`,
 * counted from the last (0: all), or blocks. Dimensions stay. by->low, high, block and axis are looked at. */
MICA_API mica_tensor mica_graph_quantize_scales(mica_graph *graph, mica_tensor x,
                                                const mica_graph_quantizer *by, uint32_t axes,
                                                mica_tensor *out_biases);
/* mica_scales_follow: what `state` becomes. */
MICA_API mica_tensor mica_graph_scales_follow(mica_graph *graph, mica_tensor scales, double decay,
                                              mica_tensor state);
/* mica_product_scaled: a [.., M, K] times b [.., N, K] turned, both codes, plus add or 0; numbers are
 * decoded to `dtype` (NONE: f32). */
MICA_API mica_tensor mica_graph_product_scaled(mica_graph *graph, mica_tensor a,
                                               const mica_graph_quantizer *a_by, mica_tensor b,
                                               const mica_graph_quantizer *b_by, mica_tensor add,
                                               mica_dtype dtype);

/* ---- linear algebra (ops_linear.h): the last two dimensions are matrices ---- */

/* b is [.., N, M], or a vector [N] with a [N, N]. */
MICA_API mica_tensor mica_graph_triangular_solve(mica_graph *graph, mica_tensor a, mica_tensor b,
                                                 const mica_triangular_params *params);
/* mica_solve. */
MICA_API mica_tensor mica_graph_solve(mica_graph *graph, mica_tensor a, mica_tensor b);
/* mica_cholesky. */
MICA_API mica_tensor mica_graph_cholesky(mica_graph *graph, mica_tensor a, uint32_t upper);
/* mica_inverse. */
MICA_API mica_tensor mica_graph_inverse(mica_graph *graph, mica_tensor a);
/* mica_determinant. */
MICA_API mica_tensor mica_graph_determinant(mica_graph *graph, mica_tensor a);
/* The logarithm of |det|; `out_sign`: 1, -1 or 0. */
MICA_API mica_tensor mica_graph_log_determinant(mica_graph *graph, mica_tensor a, mica_tensor *out_sign);
/* q, and (out_r) r; eigenvalues, and (out_v) eigenvectors; singular values, and (out_u, out_vt) their vectors. */
MICA_API mica_tensor mica_graph_qr(mica_graph *graph, mica_tensor a, mica_tensor *out_r);
/* mica_eigh: eigenvalues, and the vectors where they are asked for. */
MICA_API mica_tensor mica_graph_eigh(mica_graph *graph, mica_tensor a, mica_tensor *out_v);
/* mica_svd: singular values, and the factors where they are asked for. */
MICA_API mica_tensor mica_graph_svd(mica_graph *graph, mica_tensor a, mica_tensor *out_u,
                                    mica_tensor *out_vt);

/* ---- losses ---- */

/* mica_cross_entropy of each row of logits [.., classes]: labels (any integers) or targets, weight or 0. `out_lse`
 * [..]. */
MICA_API mica_tensor mica_graph_cross_entropy(mica_graph *graph, mica_tensor logits, mica_tensor labels,
                                              mica_tensor targets, mica_tensor weight,
                                              const mica_cross_entropy_params *params, mica_tensor *out_lse);
/* What reaches the logits: mica_cross_entropy_backward. */
MICA_API mica_tensor mica_graph_cross_entropy_backward(mica_graph *graph, mica_tensor logits,
                                                       mica_tensor labels, mica_tensor targets,
                                                       mica_tensor weight, mica_tensor lse, mica_tensor dloss,
                                                       const mica_cross_entropy_params *params);
/* The mean of (x - target)^2, one number. */
MICA_API mica_tensor mica_graph_mean_square(mica_graph *graph, mica_tensor x, mica_tensor target);
/* -(target log sigmoid(x) + (1 - target) log sigmoid(-x)) of each element. */
MICA_API mica_tensor mica_graph_logistic_loss(mica_graph *graph, mica_tensor logits, mica_tensor target);

/* ---- steps of optimisers (ops_train.h): what parameters and moments become. Numbers of one element are tensors;
 * what may be NULL there may be 0 ---- */

typedef struct mica_graph_sgd {
    mica_tensor parameters, gradients, momentum, learning_rate, gradient_scale, step;
} mica_graph_sgd;
/* The parameters behind a step of mica_sgd_update; `out_momentum` as well. */
MICA_API mica_tensor mica_graph_sgd_update(mica_graph *graph, const mica_graph_sgd *operands,
                                           const mica_sgd_params *params, mica_tensor *out_momentum);
typedef struct mica_graph_adam {
    mica_tensor parameters, gradients, m, v, greatest_v, learning_rate, gradient_scale, step;
} mica_graph_adam;
typedef struct mica_graph_adam_outputs {
    mica_tensor parameters, m, v, greatest_v;
} mica_graph_adam_outputs;
/* The parameters behind a step of mica_adam_update; `out` has the moments. */
MICA_API mica_tensor mica_graph_adam_update(mica_graph *graph, const mica_graph_adam *operands,
                                            const mica_adam_params *params, mica_graph_adam_outputs *out);
/* The root of the sum of all squares of all gradients; and by what they are multiplied to be no longer than
 * max_norm. */
MICA_API mica_tensor mica_graph_gradient_norm(mica_graph *graph, const mica_tensor *gradients,
                                              uint32_t count);
/* What gradients of that norm are multiplied by: min(1, max_norm / (norm + 1e-6)). */
MICA_API mica_tensor mica_graph_gradient_scale(mica_graph *graph, mica_tensor norm, double max_norm);

#ifdef __cplusplus
}
#endif
#endif
