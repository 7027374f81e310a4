/*
 * test_spectra_golden.c - transforms of long rows against PyTorch, the log-mel spectrum against the feature extractor of transformers' Whisper:
 * tests/golden/spectra.txt, made by scripts/golden_spectra.py, which says how it is written. On every device, and of f64 on the cpu.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ops/golden_lines.h"
#include "mica/mica.h"
#include "support/devices.h"
#include "support/status.h"
#include "support/tensor.h"

enum { KIND, INVERSE, NORM, LENGTH, STEP };
enum { WINDOW, HOP, BANDS, SAMPLES, FRAMES };

static mica_buffer *made(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

static void put(mica_buffer *buffer, bool wide, const double *values, uint64_t count)
{
    float *narrow = test_alloc(count, sizeof *narrow);

    for (uint64_t i = 0; i < count; i++)
        narrow[i] = (float)values[i];
    must(mica_buffer_write(buffer, 0, wide ? (const void *)values : narrow, count * (wide ? 8 : 4)));
    free(narrow);
}

static double *get(mica_buffer *buffer, bool wide, uint64_t count)
{
    double *values = test_alloc(count, sizeof *values);
    float *narrow = test_alloc(count, sizeof *narrow);

    must(mica_buffer_read(buffer, 0, wide ? (void *)values : narrow, count * (wide ? 8 : 4)));
    for (uint64_t i = 0; i < count && !wide; i++)
        values[i] = (double)narrow[i];
    free(narrow);
    return values;
}

/* Real numbers of one row, or pairs: of f64 in a dimension of their own. */
static mica_buffer *row(mica_device *device, bool wide, bool complex, uint64_t count)
{
    const uint64_t pairs[2] = {count, 2};

    if (wide)
        return made(device, MICA_DTYPE_F64, complex ? 2 : 1, pairs);
    return made(device, complex ? MICA_DTYPE_C64 : MICA_DTYPE_F32, 1, &count);
}

/* A result strays by some roundings of the root of all squares (ops_fourier.h): four for each of log2(n) levels, and those of the file. */
static void check_transform(mica_device *device, const golden_line *line, bool wide)
{
    const mica_fft_params params = {.kind = (uint32_t)line->number[KIND],
                                    .inverse = (uint32_t)line->number[INVERSE],
                                    .norm = (uint32_t)line->number[NORM],
                                    .length = line->number[KIND] == 2 ? (uint32_t)line->number[LENGTH] : 0};
    const uint64_t n = (uint64_t)line->number[LENGTH], half = n / 2 + 1, step = (uint64_t)line->number[STEP],
                   count = params.kind == MICA_FFT_HERMITIAN ? half : n,
                   out = params.kind == MICA_FFT_REAL ? half : n;
    const bool from_pairs = params.kind != MICA_FFT_REAL, to_pairs = params.kind != MICA_FFT_HERMITIAN;
    double *x = test_alloc(2 * count, sizeof *x), squares = 0;
    mica_buffer *in = row(device, wide, from_pairs, count), *y = row(device, wide, to_pairs, out);
    mica_encoder *encoder = NULL;

    for (uint64_t i = 0; i < count * (from_pairs ? 2 : 1); i++) {
        x[i] = from_pairs ? golden_value((uint32_t)(i % 2), i / 2) : golden_value(0, i);
        squares += x[i] * x[i];
    }
    put(in, wide, x, count * (from_pairs ? 2 : 1));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_fft(encoder, in, &params, y));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    const uint32_t each = to_pairs ? 2 : 1;
    double *got = get(y, wide, out * each);
    const bool scaled =
        params.norm ==
        (params.inverse != 0 || params.kind == MICA_FFT_HERMITIAN ? MICA_FFT_BACKWARD : MICA_FFT_FORWARD);
    const double scale = params.norm == MICA_FFT_ORTHO ? 1 / sqrt((double)n) : scaled ? 1.0 / (double)n : 1;
    const double room = 4 * log2((double)n) * (wide ? 0x1p-53 : 0x1p-24) * scale * sqrt(2 * squares);
    for (int i = 0; i < line->results; i++) {
        const double value = got[(uint64_t)i / each * step * each + (uint64_t)i % each];

        if (!(fabs(value - line->result[i]) <= room + 1e-11 * fabs(line->result[i])))
            fail_msg("kind %u of %llu: result %d is %.12g, theirs %.12g, allowed %.3g", params.kind,
                     (unsigned long long)n, i, value, line->result[i], room);
    }
    free(got);
    free(x);
    mica_buffer_release(in);
    mica_buffer_release(y);
}

/* Their window, a periodic one of Hann. f32 logarithms of sums of squares that stray by 2^-24 of the greatest: 1e-4 of those 8 decades above the floor. */
static void check_log_mel(mica_device *device, const golden_line *line)
{
    const uint64_t n = (uint64_t)line->number[WINDOW], bands = (uint64_t)line->number[BANDS],
                   samples = (uint64_t)line->number[SAMPLES], frames = (uint64_t)line->number[FRAMES],
                   bins = n / 2 + 1, of = bands * bins;
    const uint64_t filters[2] = {bands, bins}, spectrum[2] = {bands, frames},
                   room = mica_log_mel_work(1, samples, n, frames);
    double *x = test_alloc(samples + n, sizeof *x), *w = test_alloc(n, sizeof *w);
    mica_buffer *audio = made(device, MICA_DTYPE_F32, 1, &samples),
                *window = made(device, MICA_DTYPE_F32, 1, &n),
                *mel = made(device, MICA_DTYPE_F32, 2, filters),
                *work = made(device, MICA_DTYPE_F32, 1, &room),
                *y = made(device, MICA_DTYPE_F32, 2, spectrum);
    mica_encoder *encoder = NULL;

    assert_int_equal(line->results, of + bands * frames);
    for (uint64_t i = 0; i < samples; i++)
        x[i] = golden_value(2, i) / 4;
    for (uint64_t i = 0; i < n; i++)
        w[i] = 0.5 - 0.5 * cos(2 * 3.14159265358979323846 * (double)i / (double)n);
    put(audio, false, x, samples);
    put(window, false, w, n);
    put(mel, false, line->result, of);
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_log_mel(encoder, audio, window, mel, (uint32_t)line->number[HOP], work, y));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    double *got = get(y, false, bands * frames);
    for (uint64_t i = 0; i < bands * frames; i++)
        if (!(fabs(got[i] - line->result[of + i]) <= 1e-4))
            fail_msg("log-mel: result %llu is %.9g, theirs %.9g", (unsigned long long)i, got[i],
                     line->result[of + i]);
    free(got);
    free(x);
    free(w);
    mica_buffer *const all[] = {audio, window, mel, work, y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_spectra(void **state)
{
    static golden_line line;
    FILE *file = fopen("tests/golden/spectra.txt", "r");
    uint32_t transforms = 0, spectra = 0;
    int more;

    (void)state;
    assert_non_null(file);
    while ((more = golden_next(file, &line)) == 1) {
        const bool transform = strcmp(line.name, "fft") == 0;

        transforms += transform;
        spectra += !transform;
        for (int d = 0; d < DEVICES; d++) {
            if (devices[d] != NULL && transform)
                check_transform(devices[d], &line, false);
            if (devices[d] != NULL && !transform)
                check_log_mel(devices[d], &line);
        }
        if (transform)
            check_transform(devices[0], &line, true);
    }
    assert_int_equal(more, 0);
    assert_int_equal(transforms, 75);
    assert_int_equal(spectra, 3);
    (void)fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spectra)};

    return cmocka_run_group_tests_name("spectra_golden", tests, open_devices, close_devices);
}
