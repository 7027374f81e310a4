/*
 * ops_fourier.h - Fourier transforms, arithmetic of complex numbers, log-mel spectra.
 *
 * Complex numbers are c64, pairs of f32. Where f64 is wanted they are pairs of f64: an f64 buffer with
 * one more dimension, the last, of 2 (real, imaginary); axes are counted without it. f64 is the cpu's
 * alone: GPUs refuse it (UNSUPPORTED).
 */
#ifndef MICA_OPS_FOURIER_H
#define MICA_OPS_FOURIER_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mica_fft_kind {
    MICA_FFT_COMPLEX = 0, /* complex x [.., n, ..] to complex y [.., n, ..] */
    /* real x [.., n, ..] to the first n / 2 + 1 of the n complex numbers, which say the rest: numpy's rfft */
    MICA_FFT_REAL,
    MICA_FFT_HERMITIAN /* back: x has n / 2 + 1 complex numbers, y n real ones: numpy's irfft, with inverse 1 */
} mica_fft_kind;

/* By what the sum over n points is multiplied, as numpy names it: ifft(fft(x)) is x under each of them. */
typedef enum mica_fft_norm {
    MICA_FFT_BACKWARD = 0, /* forward 1, inverse 1 / n */
    MICA_FFT_ORTHO,        /* 1 / sqrt(n) both ways */
    MICA_FFT_FORWARD       /* forward 1 / n, inverse 1 */
} mica_fft_norm;

typedef struct mica_fft_params {
    uint32_t kind;    /* mica_fft_kind */
    uint32_t inverse; /* 0: e^(-2 pi i j k / n); 1: e^(+2 pi i j k / n) */
    uint32_t norm;    /* mica_fft_norm */
    uint32_t axis;    /* counted from the last one, which is 0 */
    uint32_t length; /* HERMITIAN: n, of which x has n / 2 + 1; 0: the even one, 1 where x has 1. Others: 0 */
} mica_fft_params;

/*
 * y_k = scale times the sum over j of x_j e^(-+2 pi i j k / n), along one axis, for every row of the other ones; of
 * any length n from 1 to 2^28. NULL params: all 0.
 *
 * c64, and f32 for real numbers; or f64 for both. In HERMITIAN transforms the missing half of x is taken as
 * the conjugate of what is there, and imaginary parts that would have to be 0 (of the first number, for even n
 * of the last) are not looked at.
 *
 * Off by some log2(n) roundings of scale sqrt(sum |x_j|^2), and some of the greatest result. A row that holds NaN or
 * an infinity has no finite number in its result; other rows are not touched by it. Any strides. In place: complex
 * ones. The gradient of an fft is one: of dy the transform with the other `inverse` and the other norm of BACKWARD
 * and FORWARD, ORTHO staying, where complex numbers are pairs of independent reals.
 */
MICA_API mica_status mica_fft(mica_encoder *encoder, mica_buffer *x, const mica_fft_params *params,
                              mica_buffer *y);

/*
 * The same along each axis of the mask `axes`, bit a being axis a counted from the last one; params.axis is not
 * looked at. REAL: along the last axis of the mask real, along the others complex. HERMITIAN: the other way round,
 * which needs `work`, of the type and shape of x, where there are several axes; else it may be NULL. A record for
 * each axis. INVALID_ARGUMENT without any axis.
 */
MICA_API mica_status mica_fft_axes(mica_encoder *encoder, mica_buffer *x, const mica_fft_params *params,
                                   uint32_t axes, mica_buffer *work, mica_buffer *y);

/* ---- complex numbers, c64: regions, as all of scalars.h. Inputs broadcast, any strides, in place ---- */

/* y = a + b. a, b and y are c64, as in the three that follow. */
MICA_API mica_status mica_complex_add(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a - b. */
MICA_API mica_status mica_complex_sub(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a b, by its four products. */
MICA_API mica_status mica_complex_mul(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = a / b, whose parts are scaled so that nothing overflows before the quotient does:
 * division by 0 has no finite parts. */
MICA_API mica_status mica_complex_div(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *y);
/* y = the conjugate of x, both c64. */
MICA_API mica_status mica_complex_conj(mica_encoder *encoder, mica_buffer *x, mica_buffer *y);
/* y = |x|, without overflow before it is. x is c64, y f32, f16 or bf16, as in the two that follow. */
MICA_API mica_status mica_complex_abs(mica_encoder *encoder, mica_buffer *x, mica_buffer *y);
/* y = |x|^2. */
MICA_API mica_status mica_complex_norm(mica_encoder *encoder, mica_buffer *x, mica_buffer *y);
/* y = the angle of x from -pi to pi, as atan2 has it. */
MICA_API mica_status mica_complex_angle(mica_encoder *encoder, mica_buffer *x, mica_buffer *y);
/* y = re + i im; y is c64, re and im load to f32. */
MICA_API mica_status mica_complex_join(mica_encoder *encoder, mica_buffer *re, mica_buffer *im,
                                       mica_buffer *y);
/* The real or (imag 1) the imaginary parts of a c64 buffer, as an f32 view with its shape. Owned by the caller. */
MICA_API mica_status mica_complex_part(mica_buffer *x, uint32_t imag, mica_buffer **out_view);

/* ---- spectra of sound ---- */

/*
 * The log-mel spectrum that Whisper takes: frame f is the window times samples f hop - n / 2 .. of the audio,
 * mirrored at its ends (the end itself once); power |rfft|^2, mel = filters . power, l = log10(max(mel, 1e-10)), y =
 * (max(l, greatest l of all - 8) + 4) / 4.
 *
 * audio f32 [.., T], window f32 [n], filters f32 [M, n / 2 + 1], y f32 [.., M, F] with F from 1 to 1 + T / hop
 * (Whisper drops the last); all contiguous; hop 1 and up, n / 2 below T. The greatest is that of each item of the
 * leading dimensions. `work` is f32, contiguous, of mica_log_mel_work elements or more, and overwritten. A
 * composition of records: pad, regions, fft, matmul in f32, reduce.
 */
MICA_API mica_status mica_log_mel(mica_encoder *encoder, mica_buffer *audio, mica_buffer *window,
                                  mica_buffer *filters, uint32_t hop, mica_buffer *work, mica_buffer *y);
/* Elements of `work` for `items` items (the product of the leading dimensions) of T samples, windows of n and F
 * frames. */
MICA_API uint64_t mica_log_mel_work(uint64_t items, uint64_t samples, uint64_t window, uint64_t frames);

#ifdef __cplusplus
}
#endif
#endif
