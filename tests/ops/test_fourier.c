/*
 * test_fourier.c - Fourier transforms beside numpy's, along several axes, with NaN in a row; complex arithmetic; the log-mel spectrum beside a plain
 * one. On every device that there is; f64 on the cpu.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "model/golden_file.h"
#include "oracle/oracle_fourier.h"
#include "support/each_device.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

enum { MOST = 4096 };

static uint64_t reals_of(mica_buffer *buffer)
{
    mica_buffer_info info;

    must(mica_buffer_get_info(buffer, &info));
    return info.byte_length / (info.dtype == MICA_DTYPE_F64 ? 8 : 4);
}

static void put(mica_buffer *buffer, const double *values)
{
    const uint64_t count = reals_of(buffer);
    mica_buffer_info info;
    float narrow[MOST];

    must(mica_buffer_get_info(buffer, &info));
    if (info.dtype == MICA_DTYPE_F64) {
        must(mica_buffer_write(buffer, 0, values, count * 8));
        return;
    }
    assert_true(count <= MOST);
    for (uint64_t i = 0; i < count; i++)
        narrow[i] = (float)values[i];
    must(mica_buffer_write(buffer, 0, narrow, count * 4));
}

/* A buffer of these values; NULL: of nothing yet. */
static mica_buffer *made(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                         const double *values)
{
    mica_buffer *buffer;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    if (values != NULL)
        put(buffer, values);
    return buffer;
}

/* Reads the values and gives the buffer back. */
static void take(mica_buffer *buffer, double *values)
{
    const uint64_t count = reals_of(buffer);
    mica_buffer_info info;
    float narrow[MOST];

    must(mica_buffer_get_info(buffer, &info));
    if (info.dtype == MICA_DTYPE_F64) {
        must(mica_buffer_read(buffer, 0, values, count * 8));
    } else {
        assert_true(count <= MOST);
        must(mica_buffer_read(buffer, 0, narrow, count * 4));
        for (uint64_t i = 0; i < count; i++)
            values[i] = (double)narrow[i];
    }
    mica_buffer_release(buffer);
}

/* ---- beside numpy ---- */

static char *golden;

static uint32_t list(const char *name, uint64_t n, double *out)
{
    char key[64];

    snprintf(key, sizeof key, n > 0 ? "\"%s %llu \"" : "\"%s \"", name, (unsigned long long)n);
    const uint32_t count = golden_list(golden, key, out, MOST);
    assert_true(count > 0);
    return count;
}

/* Numbers of about 1, written with 9 digits behind the point; up to 64 points, so that log2 n roundings are below 1e-5. */
static void near(const char *what, uint64_t n, mica_buffer *y, bool wide)
{
    double got[MOST], want[MOST];
    const uint32_t count = list(what, n, want);

    assert_int_equal(reals_of(y), count);
    take(y, got);
    for (uint32_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= (wide ? 2e-9 : 1e-5)))
            fail_msg("%s of %llu: %u is %.9g, numpy has %.9g", what, (unsigned long long)n, i, got[i],
                     want[i]);
}

typedef struct numpy_function {
    const char *name, *from;
    uint32_t kind, inverse;
} numpy_function;

static void one_of_numpy(mica_device *device, const numpy_function *f, uint64_t n, uint32_t norm, bool wide)
{
    const bool from_complex = f->kind != MICA_FFT_REAL, to_complex = f->kind != MICA_FFT_HERMITIAN;
    const uint64_t bins = n / 2 + 1, from[2] = {f->kind == MICA_FFT_HERMITIAN ? bins : n, 2};
    const uint64_t to[2] = {f->kind == MICA_FFT_REAL ? bins : n, 2};
    const mica_dtype real = wide ? MICA_DTYPE_F64 : MICA_DTYPE_F32, complex = wide ? real : MICA_DTYPE_C64;
    const mica_fft_params params = {.kind = f->kind,
                                    .inverse = f->inverse,
                                    .norm = norm,
                                    .length = f->kind == MICA_FFT_HERMITIAN ? (uint32_t)n : 0};
    double values[MOST];

    list(f->from, n, values);
    must(mica_encoder_begin(device, NULL, &encoder));
    mica_buffer *x = made(device, from_complex ? complex : real, 1 + (wide && from_complex), from, values);
    mica_buffer *y = made(device, to_complex ? complex : real, 1 + (wide && to_complex), to, NULL);
    must(mica_fft(encoder, x, &params, y));
    end();
    near(f->name, n, y, wide);
    mica_buffer_release(x);
}

static void test_numpy(void **state)
{
    static const uint64_t lengths[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  11, 12, 13,
                                       15, 16, 17, 19, 24, 27, 31, 32, 35, 48, 60, 64};
    static const numpy_function functions[] = {
        {"fft", "x", MICA_FFT_COMPLEX, 0},        {"ifft", "x", MICA_FFT_COMPLEX, 1},
        {"rfft", "real", MICA_FFT_REAL, 0},       {"ihfft", "real", MICA_FFT_REAL, 1},
        {"irfft", "half", MICA_FFT_HERMITIAN, 1}, {"hfft", "half", MICA_FFT_HERMITIAN, 0}};

    (void)state;
    for (int d = 0; d < DEVICES; d++)
        for (uint32_t i = 0; devices[d] != NULL && i < 24; i++)
            for (uint32_t f = 0; f < 6; f++)
                for (int wide = 0; wide <= (d == 0); wide++)
                    one_of_numpy(devices[d], &functions[f], lengths[i], i % 3, wide != 0);
}

static void test_axes(void **state)
{
    double z[MOST], r[MOST], back[MOST];

    (void)state;
    list("x3", 0, z);
    list("real3", 0, r);
    ON_EACH(device)
    {
        const mica_fft_params inverse = {.inverse = 1, .norm = MICA_FFT_ORTHO},
                              real = {.kind = MICA_FFT_REAL};
        const mica_fft_params again = {.kind = MICA_FFT_HERMITIAN, .inverse = 1};
        mica_buffer *x = made(device, MICA_DTYPE_C64, 3, SHAPE(3, 4, 5), z),
                    *a = made(device, MICA_DTYPE_C64, 3, SHAPE(3, 4, 5), NULL);
        mica_buffer *b = made(device, MICA_DTYPE_C64, 3, SHAPE(3, 4, 5), NULL),
                    *u = made(device, MICA_DTYPE_F32, 3, SHAPE(3, 4, 6), r);
        mica_buffer *v = made(device, MICA_DTYPE_C64, 3, SHAPE(3, 4, 4), NULL),
                    *w = made(device, MICA_DTYPE_C64, 3, SHAPE(3, 4, 4), NULL);
        mica_buffer *t = made(device, MICA_DTYPE_F32, 3, SHAPE(3, 4, 6), NULL);

        must(mica_fft_axes(encoder, x, NULL, 7, NULL, a));
        must(mica_fft_axes(encoder, x, &inverse, 6, NULL, b));
        must(mica_fft_axes(encoder, u, &real, 7, NULL, v));
        must(mica_fft_axes(encoder, v, &again, 7, w, t));
        refused(mica_fft_axes(encoder, x, NULL, 0, NULL, a), MICA_ERR_INVALID_ARGUMENT, "axes");
        refused(mica_fft_axes(encoder, x, NULL, 8, NULL, a), MICA_ERR_INVALID_ARGUMENT, "axes");
        refused(mica_fft_axes(encoder, v, &again, 7, NULL, t), MICA_ERR_INVALID_ARGUMENT, "work");
        end();
        near("fftn", 0, a, false);
        near("ifft2", 0, b, false);
        near("rfftn", 0, v, false);
        take(t, back);
        for (int i = 0; i < 72; i++)
            assert_true(fabs(back[i] - r[i]) < 1e-5);
        mica_buffer_release(x);
        mica_buffer_release(u);
        mica_buffer_release(w);
    }
}

/* A row with NaN or an infinity has no finite number; its neighbours, which share vectors with it, know nothing of it. */
static void test_not_finite(void **state)
{
    static const uint64_t lengths[] = {8, 19, 60, 700};

    (void)state;
    for (int odd = 0; odd < 2; odd++)
        for (int i = 0; i < 4; i++)
            ON_EACH(device)
            {
                const uint64_t n = lengths[i];
                double x[MOST], y[MOST];
                for (uint64_t k = 0; k < 4 * n; k++)
                    x[k] = (double)(k % 7);
                x[2 * n + 4] = odd != 0 ? (double)INFINITY : (double)NAN;
                mica_buffer *in = made(device, MICA_DTYPE_C64, 2, SHAPE(2, n), x),
                            *out = made(device, MICA_DTYPE_C64, 2, SHAPE(2, n), NULL);

                must(mica_fft(encoder, in, NULL, out));
                end();
                take(out, y);
                for (uint64_t k = 0; k < n; k++) {
                    assert_true(isfinite(y[2 * k]) && isfinite(y[2 * k + 1]));
                    assert_false(isfinite(y[2 * (n + k)]) && isfinite(y[2 * (n + k) + 1]));
                }
                mica_buffer_release(in);
            }
}

static void test_refused(void **state)
{
    (void)state;
    ON_EACH(device)
    {
        mica_buffer *x = made(device, MICA_DTYPE_C64, 2, SHAPE(2, 5), NULL),
                    *y = made(device, MICA_DTYPE_C64, 2, SHAPE(2, 5), NULL);
        mica_buffer *r = made(device, MICA_DTYPE_F32, 2, SHAPE(2, 8), NULL),
                    *wide = made(device, MICA_DTYPE_F64, 2, SHAPE(2, 2), NULL);
        const mica_fft_params kind = {.kind = 3}, inverse = {.inverse = 2}, norm = {.norm = 3},
                              axis = {.axis = 2};
        const mica_fft_params length = {.length = 5}, odd = {.kind = MICA_FFT_HERMITIAN, .length = 7};
        const mica_fft_params half = {.kind = MICA_FFT_HERMITIAN};

        refused(mica_fft(encoder, x, &kind, y), MICA_ERR_INVALID_ARGUMENT, "params.kind");
        refused(mica_fft(encoder, x, &inverse, y), MICA_ERR_INVALID_ARGUMENT, "params.inverse");
        refused(mica_fft(encoder, x, &norm, y), MICA_ERR_INVALID_ARGUMENT, "params.norm");
        refused(mica_fft(encoder, x, &axis, y), MICA_ERR_INVALID_ARGUMENT, "params.axis");
        refused(mica_fft(encoder, x, &length, y), MICA_ERR_INVALID_ARGUMENT, "params.length");
        refused(mica_fft(encoder, x, &odd, r), MICA_ERR_INVALID_ARGUMENT, "params.length");
        refused(mica_fft(encoder, r, NULL, y), MICA_ERR_INVALID_ARGUMENT, "x is f32");
        must(mica_fft(encoder, x, &half, r));
        if (device != devices[0])
            refused(mica_fft(encoder, wide, NULL, wide), MICA_ERR_UNSUPPORTED, "f64");
        end();
        mica_buffer_release(x);
        mica_buffer_release(y);
        mica_buffer_release(r);
        mica_buffer_release(wide);
    }
}

/* ---- complex numbers ---- */

enum { NUMBERS = 40 };

static void check_numbers(const char *what, const double *got, uint64_t i, double re, double im)
{
    const double size = hypot(re, im);

    if (!(fabs(got[2 * i] - re) <= 5e-7 * size + 1e-37) ||
        !(fabs(got[2 * i + 1] - im) <= 5e-7 * size + 1e-37))
        fail_msg("%s %llu is %g + %gi, not %g + %gi", what, (unsigned long long)i, got[2 * i], got[2 * i + 1],
                 re, im);
}

/* Parts up to 2^60 and down to 2^-60, whose squares leave the range of f32. */
static void draw_numbers(double *a, double *b)
{
    test_random random = test_random_from(3);

    for (int i = 0; i < 2 * NUMBERS; i++) {
        const double spread = exp2((double)test_random_below(&random, 121) - 60);

        a[i] = (double)(float)(test_random_normal(&random));
        b[i] = (double)(float)(i % 4 < 2 ? test_random_normal(&random) + 4
                                         : spread * (test_random_normal(&random) + 4));
    }
}

static void test_complex(void **state)
{
    double a[2 * NUMBERS], b[2 * NUMBERS], got[6][2 * NUMBERS], one[4][NUMBERS];

    (void)state;
    draw_numbers(a, b);
    ON_EACH(device)
    {
        mica_buffer *x = made(device, MICA_DTYPE_C64, 1, SHAPE(NUMBERS), a),
                    *z = made(device, MICA_DTYPE_C64, 1, SHAPE(NUMBERS), b);
        mica_buffer *y[6], *r[4], *re, *im;

        for (int i = 0; i < 6; i++)
            y[i] = made(device, MICA_DTYPE_C64, 1, SHAPE(NUMBERS), NULL);
        for (int i = 0; i < 4; i++)
            r[i] = made(device, MICA_DTYPE_F32, 1, SHAPE(NUMBERS), NULL);
        must(mica_complex_add(encoder, x, z, y[0]));
        must(mica_complex_sub(encoder, x, z, y[1]));
        must(mica_complex_mul(encoder, x, z, y[2]));
        must(mica_complex_div(encoder, x, z, y[3]));
        must(mica_complex_conj(encoder, x, y[4]));
        must(mica_complex_abs(encoder, z, r[0]));
        must(mica_complex_norm(encoder, x, r[1]));
        must(mica_complex_angle(encoder, z, r[2]));
        must(mica_complex_part(z, 0, &re));
        must(mica_complex_part(z, 1, &im));
        must(mica_complex_join(encoder, im, re, y[5]));
        must(mica_copy(encoder, im, r[3]));
        refused(mica_complex_add(encoder, r[0], z, y[0]), MICA_ERR_INVALID_ARGUMENT, "a is f32");
        refused(mica_complex_abs(encoder, z, y[0]), MICA_ERR_INVALID_ARGUMENT, "y is c64");
        end();
        for (int i = 0; i < 6; i++)
            take(y[i], got[i]);
        for (int i = 0; i < 4; i++)
            take(r[i], one[i]);
        for (uint64_t i = 0; i < NUMBERS; i++) {
            const double ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * i], bi = b[2 * i + 1],
                         size = br * br + bi * bi;

            check_numbers("add", got[0], i, ar + br, ai + bi);
            check_numbers("sub", got[1], i, ar - br, ai - bi);
            check_numbers("mul", got[2], i, ar * br - ai * bi, ar * bi + ai * br);
            check_numbers("div", got[3], i, (ar * br + ai * bi) / size, (ai * br - ar * bi) / size);
            check_numbers("conj", got[4], i, ar, -ai);
            check_numbers("join", got[5], i, bi, br);
            assert_true(fabs(one[0][i] - hypot(br, bi)) <= 4e-7 * hypot(br, bi));
            assert_true(fabs(one[1][i] - (ar * ar + ai * ai)) <= 3e-7 * (ar * ar + ai * ai));
            assert_true(fabs(one[2][i] - atan2(bi, br)) <= 1e-6);
            assert_true(one[3][i] == bi);
        }
        mica_buffer_release(x);
        mica_buffer_release(z);
        mica_buffer_release(re);
        mica_buffer_release(im);
    }
}

/* 0, infinities and NaN. */
static void test_magnitudes(void **state)
{
    const double z[] = {0, 0, (double)INFINITY, 1, 3, -(double)INFINITY, (double)NAN, 1, 3e38, 0, 1e-40, 0};

    (void)state;
    ON_EACH(device)
    {
        double size[6];
        mica_buffer *x = made(device, MICA_DTYPE_C64, 1, SHAPE(6), z),
                    *y = made(device, MICA_DTYPE_F32, 1, SHAPE(6), NULL);

        must(mica_complex_abs(encoder, x, y));
        end();
        take(y, size);
        assert_true(size[0] == 0 && isinf(size[1]) && isinf(size[2]) && isnan(size[3]));
        assert_true(fabs(size[4] - 3e38) < 1e32 && size[5] < 2e-40);
        mica_buffer_release(x);
    }
}

/* ---- log-mel ---- */

enum { SAMPLES = 700, WINDOW = 40, HOP = 16, MELS = 8, FRAMES = SAMPLES / HOP, BINS = WINDOW / 2 + 1 };

/* One item, from the definition. */
static void plain_log_mel(const double *audio, const double *window, const double *filters, double *y)
{
    double greatest = -100;

    for (int f = 0; f < FRAMES; f++) {
        double frame[2 * WINDOW] = {0}, spectrum[2 * WINDOW];

        for (int i = 0; i < WINDOW; i++) {
            int at = f * HOP - WINDOW / 2 + i;

            at = at < 0 ? -at : at >= SAMPLES ? 2 * (SAMPLES - 1) - at : at;
            frame[2 * i] = window[i] * audio[at];
        }
        oracle_dft(WINDOW, false, frame, spectrum);
        for (int m = 0; m < MELS; m++) {
            double sum = 0;

            for (int k = 0; k < BINS; k++)
                sum += filters[m * BINS + k] *
                       (spectrum[2 * k] * spectrum[2 * k] + spectrum[2 * k + 1] * spectrum[2 * k + 1]);
            y[m * FRAMES + f] = log10(fmax(sum, 1e-10));
            greatest = fmax(greatest, y[m * FRAMES + f]);
        }
    }
    for (int i = 0; i < MELS * FRAMES; i++)
        y[i] = (fmax(y[i], greatest - 8) + 4) / 4;
}

/* Two sounds, one of them silent in the middle, so that both floors are met. */
static void make_sounds(double *audio, double *window, double *filters)
{
    for (int i = 0; i < 2 * SAMPLES; i++) {
        const int t = i % SAMPLES;

        audio[i] = (double)(float)((i < SAMPLES ? 0.5 : 30) *
                                   (t > 300 && t < 450 ? 0 : sin(0.3 * t) + 0.2 * sin(1.7 * t)));
    }
    for (int i = 0; i < WINDOW; i++)
        window[i] = (double)(float)(0.5 - 0.5 * cos(2 * 3.14159265358979 * i / WINDOW));
    for (int m = 0; m < MELS; m++)
        for (int k = 0; k < BINS; k++)
            filters[m * BINS + k] = (double)(float)fmax(0, 1 - fabs(k - 2.5 * m - 1) / 2.5);
}

static void test_log_mel(void **state)
{
    static double audio[2 * SAMPLES], window[WINDOW], filters[MELS * BINS], want[2 * MELS * FRAMES],
        got[2 * MELS * FRAMES];

    (void)state;
    make_sounds(audio, window, filters);
    for (int i = 0; i < 2; i++)
        plain_log_mel(audio + i * SAMPLES, window, filters, want + i * MELS * FRAMES);
    ON_EACH(device)
    {
        const uint64_t size = mica_log_mel_work(2, SAMPLES, WINDOW, FRAMES);
        mica_buffer *x = made(device, MICA_DTYPE_F32, 2, SHAPE(2, SAMPLES), audio),
                    *w = made(device, MICA_DTYPE_F32, 1, SHAPE(WINDOW), window);
        mica_buffer *f = made(device, MICA_DTYPE_F32, 2, SHAPE(MELS, BINS), filters),
                    *work = made(device, MICA_DTYPE_F32, 1, SHAPE(size), NULL);
        mica_buffer *y = made(device, MICA_DTYPE_F32, 3, SHAPE(2, MELS, FRAMES), NULL),
                    *less = made(device, MICA_DTYPE_F32, 1, SHAPE(size - 1), NULL);

        refused(mica_log_mel(encoder, x, w, f, HOP, less, y), MICA_ERR_INVALID_ARGUMENT, "work");
        refused(mica_log_mel(encoder, x, w, f, 0, work, y), MICA_ERR_INVALID_ARGUMENT, "hop");
        refused(mica_log_mel(encoder, x, w, f, 2 * HOP, work, y), MICA_ERR_INVALID_ARGUMENT, "frames");
        refused(mica_log_mel(encoder, x, f, f, HOP, work, y), MICA_ERR_INVALID_ARGUMENT, "filters");
        must(mica_log_mel(encoder, x, w, f, HOP, work, y));
        end();
        take(y, got);
        for (
            int i = 0; i < 2 * MELS * FRAMES;
            i++) /* a hundred roundings of the power, or of the loudest one 8 decades below it, a quarter log10 */
            if (!(fabs(got[i] - want[i]) < 2e-3))
                fail_msg("element %d is %g, not %g", i, got[i], want[i]);
        mica_buffer_release(x);
        mica_buffer_release(w);
        mica_buffer_release(f);
        mica_buffer_release(work);
        mica_buffer_release(less);
    }
}

/* Rows `first` to `first + rows` of x, transformed on the device, to out. */
static void transform_rows(mica_device *device, const float *x, uint64_t n, uint64_t first, uint64_t rows,
                           uint32_t inverse, float *out)
{
    const uint64_t shape[2] = {rows, n}, bytes = rows * n * 8;
    const mica_fft_params params = {.kind = MICA_FFT_COMPLEX, .inverse = inverse};
    mica_encoder *own;
    mica_buffer *from, *to;

    must(mica_buffer_alloc(device, MICA_DTYPE_C64, 2, shape, &from));
    must(mica_buffer_alloc(device, MICA_DTYPE_C64, 2, shape, &to));
    must(mica_buffer_write(from, 0, x + first * n * 2, bytes));
    must(mica_encoder_begin(device, NULL, &own));
    must(mica_fft(own, from, &params, to));
    must(mica_encoder_commit_and_wait(own));
    mica_encoder_release(own);
    must(mica_buffer_read(to, 0, out, bytes));
    mica_buffer_release(from);
    mica_buffer_release(to);
}

/* The bits of a row do not depend on how many threads there are, nor on how many rows. */
static void test_rows(void **state)
{
    static const uint64_t lengths[] = {243, 256, 512, 521, 8192, 9000, 10007, 16384, 20000, 32768, 65536};
    enum { ROWS = 3, LONGEST = 65536, ALL = 180000 };
    float *x = test_alloc(ROWS * LONGEST, 8), *got = test_alloc(ROWS * LONGEST, 8),
          *want = test_alloc(ROWS * ALL, 8); /* of one thread, row by row */
    test_random random = test_random_from(5);

    (void)state;
    for (uint64_t i = 0; i < (uint64_t)ROWS * LONGEST * 2; i++)
        x[i] = (float)test_random_normal(&random);
    for (uint32_t threads = 1; threads <= 4; threads++) {
        const mica_device_options options = {.size = sizeof options, .threads = threads};
        mica_device *device;
        float *to = want;

        must(mica_device_open("cpu", &options, &device));
        for (uint32_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            const uint64_t n = lengths[l];
            for (uint64_t row = 0; row < ROWS; row++) {
                transform_rows(device, x, n, row, 1, l % 2, threads == 1 ? to + row * n * 2 : got);
                if (threads > 1)
                    assert_memory_equal(got, to + row * n * 2, n * 8);
            }
            transform_rows(device, x, n, 0, ROWS, l % 2, got);
            assert_memory_equal(got, to, ROWS * n * 8);
            to += ROWS * n * 2;
        }
        assert_true(to <= want + (uint64_t)ROWS * ALL * 2);
        mica_device_release(device);
    }
    free(x);
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numpy),   cmocka_unit_test(test_axes),    cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_complex), cmocka_unit_test(test_magnitudes),
        cmocka_unit_test(test_log_mel), cmocka_unit_test(test_rows),
    };

    golden = golden_text("tests/golden/fourier.json");
    if (golden == NULL)
        return 1;
    const int failed = cmocka_run_group_tests_name("fourier", tests, open_devices, close_devices);
    free(golden);
    return failed;
}
