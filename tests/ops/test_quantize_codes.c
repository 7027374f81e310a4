/*
 * test_quantize_codes.c - codes with scales of tensors, axes and blocks against plain C, and against what PyTorch gave (tests/golden/train.txt); on every device. Scales
 * are powers of two where codes must be met to the bit, so that halves are halves.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "ops/golden_lines.h"
#include "mica/mica.h"
#include "oracle/oracle_codes.h"
#include "oracle/oracle_number.h"
#include "support/devices.h"
#include "support/random.h"
#include "support/status.h"

enum { A = 3, B = 5, C = 10, ALL = A * B * C };
static mica_device *device;
static mica_encoder *encoder;
static mica_buffer *made[64];
static int made_count;

/* ---- buffers, which end() releases ---- */

static bool begin(mica_device *on)
{
    device = on;
    must(mica_encoder_begin(device, NULL, &encoder));
    return true;
}
#define ON_EACH()                        \
    for (int d_ = 0; d_ < DEVICES; d_++) \
        if (devices[d_] != NULL && begin(devices[d_]))

static void run(void)
{
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    encoder = NULL;
}

static void end(void)
{
    mica_encoder_release(encoder);
    encoder = NULL;
    while (made_count > 0)
        mica_buffer_release(made[--made_count]);
}

/* Of small floats powers of two alone. */
static void put(mica_dtype dtype, double x, uint8_t *element)
{
    if (dtype == MICA_DTYPE_E8M0)
        element[0] = (uint8_t)(127 + ilogb(x));
    else if (dtype == MICA_DTYPE_F8_E4M3)
        element[0] = (uint8_t)((7 + ilogb(x)) << 3);
    else
        oracle_put(dtype, x, element);
}

static double get(mica_dtype dtype, const uint8_t *element)
{
    int16_t small;

    memcpy(&small, element, sizeof small);
    switch (dtype) {
    case MICA_DTYPE_I8: return (int8_t)element[0];
    case MICA_DTYPE_I16: return small;
    case MICA_DTYPE_F8_E4M3: return (double)oracle_e4m3(element[0]);
    default: return oracle_get(dtype, element);
    }
}

static mica_buffer *buffer_of(mica_dtype dtype, uint32_t ndim, const uint64_t *shape, const double *x)
{
    const uint64_t bytes = oracle_block_bytes(dtype);
    uint64_t count = 1;
    mica_buffer *buffer;
    uint8_t element[8];

    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    for (uint64_t i = 0; x != NULL && i < count; i++) {
        put(dtype, x[i], element);
        must(mica_buffer_write(buffer, i * bytes, element, bytes));
    }
    return made[made_count++] = buffer;
}
#define BUFFER(dtype, x, ...)                                                           \
    buffer_of(MICA_DTYPE_##dtype, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), \
              (uint64_t[]){__VA_ARGS__}, x)

static void read_all(mica_buffer *buffer, uint64_t count, double *x)
{
    mica_buffer_info info;
    uint8_t element[8];

    must(mica_buffer_get_info(buffer, &info));
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bytes = oracle_block_bytes(info.dtype);

        must(mica_buffer_read(buffer, i * bytes, element, bytes));
        x[i] = get(info.dtype, element);
    }
}

/* ---- integers ---- */

typedef struct setting {
    const char *name;
    mica_dtype dtype;
    int32_t low, high;
    uint32_t block, axis, away, packed;
    int points;         /* 0 none, 1 zero points, 2 biases */
    bool global, whole; /* whole: one scale for all */
} setting;

static const setting settings[] = {
    {"i8 of a tensor", MICA_DTYPE_I8, 0, 0, 0, 0, 0, 0, 0, false, true},
    {"i8 of an axis", MICA_DTYPE_I8, 0, 0, 0, 0, 0, 0, 1, false, false},
    {"u8 of an axis, halves away", MICA_DTYPE_U8, 0, 0, 0, 0, 1, 0, 1, false, false},
    {"i8 of blocks of the last", MICA_DTYPE_I8, -127, 127, 4, 0, 0, 0, 0, false, false},
    {"u8 of blocks with biases", MICA_DTYPE_U8, 0, 0, 3, 0, 1, 0, 2, false, false},
    {"u16 of blocks of the middle", MICA_DTYPE_U16, 0, 1000, 2, 1, 0, 0, 1, true, false},
    {"i16 of blocks of the first", MICA_DTYPE_I16, -20, 20, 2, 2, 0, 0, 0, false, false},
    {"i32 of one block", MICA_DTYPE_I32, -3, 9, 64, 0, 0, 0, 1, false, false},
    {"4 bits", MICA_DTYPE_U8, 0, 15, 4, 0, 0, 1, 1, false, false},
    {"4 bits with a sign", MICA_DTYPE_U8, -8, 7, 6, 0, 0, 1, 0, true, false},
    {"4 bits, blocks of the middle", MICA_DTYPE_U8, 0, 0, 2, 1, 1, 1, 2, false, false},
    {"4 bits of a tensor", MICA_DTYPE_U8, -7, 7, 0, 0, 0, 1, 0, false, true},
};

/* The element of scales [shape] that element i of x has. */
static uint64_t share_of(const setting *s, const uint64_t *shape, uint64_t i)
{
    uint64_t index[3] = {i / (B * C), i / C % B, i % C};

    for (uint32_t d = 0; d < 3; d++) {
        if (s->block != 0 && d == 2 - s->axis)
            index[d] /= s->block;
        if (shape[d] == 1)
            index[d] = 0;
    }
    return (index[0] * shape[1] + index[1]) * shape[2] + index[2];
}

static double rounded(double v, bool away)
{
    return away ? copysign(floor(fabs(v) + 0.5), v) : nearbyint(v);
}

static double code_of(const setting *s, double x, double scale, double point, double low, double high)
{
    const double v = s->points == 2 ? rounded((x - point) / scale, s->away)
                                    : rounded(x / scale, s->away) + (s->points == 1 ? point : 0);

    return fmin(fmax(v, low), high);
}

static void shape_of(const setting *s, uint64_t *shape)
{
    const uint64_t full[3] = {A, B, C};

    for (uint32_t d = 0; d < 3; d++)
        shape[d] = s->whole ? 1 : full[d];
    if (s->block == 0 && !s->whole)
        shape[0] = shape[2] = 1; /* of the middle axis */
    else if (s->block != 0)
        shape[2 - s->axis] = (full[2 - s->axis] + s->block - 1) / s->block;
}

static void check_setting(const setting *s, test_random *random)
{
    static const double ends[][2] = {{-128, 127}, {0, 255}};
    uint64_t shape[3];
    double x[ALL], scales[ALL], points[ALL], codes[ALL], y[ALL], fake[ALL];

    shape_of(s, shape);
    for (int i = 0; i < ALL; i++) { /* eighths: halves of codes are met where scales are 1/4 */
        x[i] = (double)test_random_below(random, 801) / 8 - 50;
        scales[i] = ldexp(1, -(int)test_random_below(random, 4));
        points[i] = (double)test_random_below(random, 7);
    }
    const uint64_t half = s->packed ? 2 : 1;
    mica_buffer *from = BUFFER(F32, x, A, B, C), *out = BUFFER(F32, NULL, A, B, C),
                *same = BUFFER(F32, NULL, A, B, C);
    mica_buffer *to = buffer_of(s->dtype, 3, (uint64_t[]){A, B, C / half}, NULL);
    const double two = 2;
    const mica_quantizer by = {.scales = buffer_of(MICA_DTYPE_F32, 3, shape, scales),
                               .zero_points =
                                   s->points == 1 ? buffer_of(MICA_DTYPE_I8, 3, shape, points) : NULL,
                               .biases = s->points == 2 ? buffer_of(MICA_DTYPE_F16, 3, shape, points) : NULL,
                               .global = s->global ? BUFFER(F32, &two, 1) : NULL,
                               .low = s->low,
                               .high = s->high,
                               .block = s->block,
                               .axis = s->axis,
                               .away = s->away,
                               .packed = s->packed};
    mica_quantizer loose = by;
    loose.packed = 0;
    const bool given = s->low != 0 || s->high != 0;
    const double low = given ? s->low : s->packed ? 0 : ends[s->dtype == MICA_DTYPE_U8][0];
    const double high = given ? s->high : s->packed ? 15 : ends[s->dtype == MICA_DTYPE_U8][1];
    loose.low = (int32_t)low;
    loose.high = (int32_t)high;
    must(mica_quantize_codes(encoder, from, &by, to));
    must(mica_dequantize_codes(encoder, to, &by, out));
    must(mica_fake_quantize(encoder, from, &loose, same));
    run();
    read_all(to, ALL / half, codes);
    read_all(out, ALL, y);
    read_all(same, ALL, fake);
    for (int i = 0; i < ALL; i++) {
        const uint64_t at = share_of(s, shape, (uint64_t)i);
        const double scale = scales[at] * (s->global ? 2 : 1),
                     wanted = code_of(s, x[i], scale, points[at], low, high);
        const double value = s->points == 2 ? wanted * scale + points[at]
                                            : (wanted - (s->points == 1 ? points[at] : 0)) * scale;
        const int pair = s->packed ? (int)codes[i / 2] >> (i % 2 * 4) & 15 : 0;
        const double got = !s->packed ? codes[i] : low < 0 && pair >= 8 ? pair - 16 : pair;

        if (got != wanted || y[i] != value || fake[i] != value)
            fail_msg("%s: element %d is %g: code %g, not %g; value %g and %g, not %g", s->name, i, x[i], got,
                     wanted, y[i], fake[i], value);
    }
}

static void test_integers(void **state)
{
    test_random random = test_random_from(1);

    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        ON_EACH()
        {
            check_setting(&settings[i], &random);
            end();
        }
}

/* NaN is 0, what is infinite or too large the nearest end; f8 saturates as well. */
static void test_ends(void **state)
{
    const double x[6] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 1e30, -1e30, 0.4}, one = 1;
    static const double i8[6] = {0, 127, -128, 127, -128, 0}, f8[6] = {NAN, 448, -448, 448, -448, 0.40625};
    double got[6];

    (void)state;
    ON_EACH()
    {
        mica_buffer *from = BUFFER(F32, x, 6), *to = BUFFER(I8, NULL, 6), *small = BUFFER(F8_E4M3, NULL, 6);
        const mica_quantizer by = {.scales = BUFFER(F32, &one, 1)};

        must(mica_quantize_codes(encoder, from, &by, to));
        must(mica_quantize_codes(encoder, from, &by, small));
        run();
        read_all(to, 6, got);
        for (int i = 0; i < 6; i++)
            assert_true(got[i] == i8[i]);
        read_all(small, 6, got);
        for (int i = 0; i < 6; i++)
            assert_true(got[i] == f8[i] || (isnan(got[i]) && isnan(f8[i])));
        end();
    }
}

/* ---- E2M1 ---- */

static const double levels[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

static int nearest(double a)
{
    int best = 0;

    for (int k = 1; k < 8; k++) {
        const double d = fabs(a - levels[k]), e = fabs(a - levels[best]);

        if (d < e || (d == e && k % 2 == 0))
            best = k;
    }
    return best;
}

/* Sixteenths from -8 to 8, with a scale of e8m0 or f8_e4m3 and a global one: every tie is met. Two levels of it, added up, are nearer. */
static void test_fp4(void **state)
{
    enum { N = 256 };
    const double global = 0.5;
    double x[N], scales[N / 16], codes[N / 2], y[N];

    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = (i - 128) / 16.0;
    for (int i = 0; i < N / 16; i++)
        scales[i] = i % 3 == 0 ? 2 : i % 3 == 1 ? 4 : 1;
    for (int kind = 0; kind < 2; kind++)
        ON_EACH()
        {
            mica_buffer *from = BUFFER(F32, x, 1, N), *to = BUFFER(U8, NULL, 1, N / 2),
                        *out = BUFFER(F32, NULL, 1, N);
            const mica_quantizer by = {.scales = kind == 0 ? BUFFER(E8M0, scales, 1, N / 16)
                                                           : BUFFER(F8_E4M3, scales, 1, N / 16),
                                       .global = BUFFER(F32, &global, 1),
                                       .block = 16,
                                       .packed = 1,
                                       .code = MICA_CODE_FP4};

            must(mica_quantize_codes(encoder, from, &by, to));
            must(mica_dequantize_codes(encoder, to, &by, out));
            run();
            read_all(to, N / 2, codes);
            read_all(out, N, y);
            for (int i = 0; i < N; i++) {
                const double scale = scales[i / 16] * global, v = x[i] / scale;
                const int wanted = nearest(fabs(v)) + (v < 0 ? 8 : 0),
                          got = (int)codes[i / 2] >> (i % 2 * 4) & 15;

                if (got != wanted || y[i] != copysign(levels[wanted % 8], v) * scale)
                    fail_msg("%g / %g: code %d, not %d; value %g", x[i], scale, got, wanted, y[i]);
            }
            end();
        }
}

/* ---- backward ---- */

/* Each way through the rounding, and what reaches the scale, from the formulas; zero points and blocks that end early. */
static void test_backward(void **state)
{
    enum { N = 22, BLOCK = 8, LOW = -3, HIGH = 4 };
    double x[N], dy[N], scales[3] = {0.5, 0.25, 1}, points[3] = {0, 1, -1}, dx[N], ds[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        x[i] = golden_value(50, (uint64_t)i) * 1.03;
        dy[i] = golden_value(51, (uint64_t)i);
    }
    for (uint32_t straight = 0; straight <= MICA_STRAIGHT_HARD_TANH; straight++)
        ON_EACH()
        {
            mica_buffer *from = BUFFER(F32, x, N), *reaches = BUFFER(F32, dy, N),
                        *terms = BUFFER(F32, NULL, N);
            const mica_quantizer by = {.scales = BUFFER(F32, scales, 3),
                                       .zero_points = BUFFER(I32, points, 3),
                                       .low = LOW,
                                       .high = HIGH,
                                       .block = BLOCK};

            must(mica_fake_quantize_backward(encoder, from, &by, reaches, (mica_straight)straight, from,
                                             terms));
            run();
            read_all(from, N, dx);
            read_all(terms, N, ds);
            for (int i = 0; i < N; i++) {
                const double s = scales[i / BLOCK], z = points[i / BLOCK], u = (double)(float)x[i] / s,
                             r = nearbyint(u);
                const double v = (straight == MICA_STRAIGHT_ROUNDED ? r : u) + z;
                const bool inside = v >= LOW && v <= HIGH;
                const double by_x[] = {inside, inside, 1, 1 - tanh(u) * tanh(u), fmax(0, 1 - fabs(u) / HIGH)};
                const double by_s = inside ? r - u : (v < LOW ? LOW : HIGH) - z;

                /* a handful of f32 steps on numbers of some units */
                if (fabs(dx[i] - dy[i] * by_x[straight]) > 8 * 0x1p-24 * 2 ||
                    fabs(ds[i] - dy[i] * by_s) > 8 * 0x1p-24 * 8)
                    fail_msg("straight %u, element %d: %g and %g, not %g and %g", straight, i, dx[i], ds[i],
                             dy[i] * by_x[straight], dy[i] * by_s);
            }
            end();
        }
}

/* ---- scales ---- */

static void test_scales(void **state)
{
    double x[ALL], scales[ALL], biases[ALL];

    (void)state;
    for (int i = 0; i < ALL; i++)
        x[i] = i < 4 ? 0 : golden_value(60, (uint64_t)i);
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
        for (int affine = 0; affine < 2; affine++)
            ON_EACH()
            {
                const setting *s = &settings[k];
                const int32_t low = affine ? (s->low < 0 ? s->low : 0) : -127, high = affine ? 15 : 127;
                uint64_t shape[3], count;
                double most[ALL], least[ALL], size[ALL];

                shape_of(s, shape);
                count = shape[0] * shape[1] * shape[2];
                mica_buffer *from = BUFFER(F32, x, A, B, C), *to = buffer_of(MICA_DTYPE_F32, 3, shape, NULL),
                            *off = buffer_of(MICA_DTYPE_F32, 3, shape, NULL);
                const mica_quantizer by = {.scales = to,
                                           .biases = affine ? off : NULL,
                                           .low = low,
                                           .high = high,
                                           .block = s->block,
                                           .axis = s->axis};
                must(mica_quantize_scales(encoder, from, &by));
                run();
                read_all(to, count, scales);
                read_all(off, count, biases);
                for (uint64_t i = 0; i < count; i++) {
                    most[i] = -(double)INFINITY;
                    least[i] = (double)INFINITY;
                    size[i] = 0;
                }
                for (int i = 0; i < ALL; i++) {
                    const uint64_t at = share_of(s, shape, (uint64_t)i);

                    most[at] = fmax(most[at], x[i]);
                    least[at] = fmin(least[at], x[i]);
                    size[at] = fmax(size[at], fabs(x[i]));
                }
                for (uint64_t i = 0; i < count; i++) {
                    double wanted =
                        affine ? (most[i] - least[i]) / (high - low) : fmax(size[i] / high, 1e-12);

                    wanted = affine && !(wanted > 0) ? 1 : wanted;
                    if (fabs(scales[i] - wanted) > 2 * 0x1p-24 * wanted ||
                        (affine && fabs(biases[i] - (least[i] - low * wanted)) > 4 * 0x1p-24 * 2))
                        fail_msg("%s%s: %llu: %g and %g, not %g and %g", s->name, affine ? ", affine" : "",
                                 (unsigned long long)i, scales[i], biases[i], wanted,
                                 least[i] - low * wanted);
                }
                end();
            }
}

static void test_follow(void **state)
{
    const double now[4] = {1, 2, 3, 4}, before[4] = {0, 4, -1, 8};
    static const double wanted[4] = {1, 3.5, 3, 7};
    double got[4];

    (void)state;
    ON_EACH()
    {
        mica_buffer *scales = BUFFER(F32, now, 4), *kept = BUFFER(F32, before, 4);

        must(mica_scales_follow(encoder, scales, 0.75, kept));
        run();
        read_all(kept, 4, got);
        for (int i = 0; i < 4; i++)
            assert_true(got[i] == wanted[i]);
        end();
    }
}

/* The affine coding of groups and its derivatives: q s + b; sum of q dy for a scale, of dy for a bias. */
static void test_affine_training(void **state)
{
    enum { ROWS = 3, GROUP = 8 };
    double w[ROWS * GROUP], dy[ROWS * GROUP], codes[ROWS * GROUP], ds[ROWS], db[ROWS];
    const mica_reduce_params rows = {.kind = MICA_REDUCE_SUM, .axes = 1, .keep_dims = 1};

    (void)state;
    for (int i = 0; i < ROWS * GROUP; i++) {
        w[i] = golden_value(70, (uint64_t)i);
        dy[i] = golden_value(71, (uint64_t)i);
    }
    ON_EACH()
    {
        mica_buffer *x = BUFFER(F32, w, ROWS, GROUP), *q = BUFFER(U8, NULL, ROWS, GROUP),
                    *y = BUFFER(F32, NULL, ROWS, GROUP), *wide = BUFFER(F32, NULL, ROWS, GROUP),
                    *reaches = BUFFER(F32, dy, ROWS, GROUP), *by_scale = BUFFER(F32, NULL, ROWS, 1),
                    *by_bias = BUFFER(F32, NULL, ROWS, 1);
        const mica_quantizer by = {.scales = BUFFER(F32, NULL, ROWS, 1),
                                   .biases = BUFFER(F32, NULL, ROWS, 1),
                                   .low = 0,
                                   .high = 15,
                                   .away = 1};

        must(mica_quantize_scales(encoder, x, &by));
        must(mica_quantize_codes(encoder, x, &by, q));
        must(mica_dequantize_codes(encoder, q, &by, y));
        must(mica_cast(encoder, q, wide));
        must(mica_mul(encoder, wide, reaches, wide));
        must(mica_reduce(encoder, wide, &rows, by_scale));
        must(mica_reduce(encoder, reaches, &rows, by_bias));
        run();
        read_all(q, ROWS * GROUP, codes);
        read_all(by_scale, ROWS, ds);
        read_all(by_bias, ROWS, db);
        for (int r = 0; r < ROWS; r++) {
            double sum = 0, all = 0, low = 15, high = 0;

            for (int i = r * GROUP; i < (r + 1) * GROUP; i++) {
                sum += codes[i] * dy[i];
                all += dy[i];
                low = fmin(low, codes[i]);
                high = fmax(high, codes[i]);
            }
            assert_true(low == 0 && high == 15 && sum == ds[r] && all == db[r]);
        }
        end();
    }
}

/* ---- what PyTorch gave ---- */

static golden_line line;

static void same(mica_buffer *buffer, uint64_t count, int first)
{
    double got[GOLDEN_RESULTS];

    read_all(buffer, count, got);
    for (uint64_t i = 0; i < count; i++) /* products of f32 */
        if (fabs(got[i] - line.result[first + (int)i]) > 2 * 0x1p-24 * fabs(line.result[first + (int)i]))
            fail_msg("%s %g %g %g: result %llu is %.9g, PyTorch has %.9g", line.name, line.number[0],
                     line.number[1], line.number[2], (unsigned long long)i + (unsigned long long)first,
                     got[i], line.result[first + (int)i]);
}

static void fill(uint32_t slot, int count, double *x)
{
    for (int i = 0; i < count; i++)
        x[i] = golden_value(slot, (uint64_t)i);
}

static void golden_fake(void)
{
    const uint64_t rows = (uint64_t)line.number[0], columns = (uint64_t)line.number[1], all = rows * columns;
    const uint64_t count = line.number[2] == 0 ? rows : 1;
    double x[GOLDEN_RESULTS], dy[GOLDEN_RESULTS], scales[8], points[8];

    fill(30, (int)all, x);
    fill(31, (int)all, dy);
    for (int c = 0; c < 8; c++) {
        scales[c] = 0.0217 * (1 + c);
        points[c] = c + 1;
    }
    mica_buffer *from = BUFFER(F32, x, rows, columns), *y = BUFFER(F32, NULL, rows, columns),
                *reaches = BUFFER(F32, dy, rows, columns);
    const mica_quantizer by = {.scales = BUFFER(F32, scales, count, 1),
                               .zero_points = BUFFER(I32, points, count, 1),
                               .low = (int32_t)line.number[3],
                               .high = (int32_t)line.number[4]};
    must(mica_fake_quantize(encoder, from, &by, y));
    must(mica_fake_quantize_backward(encoder, from, &by, reaches, MICA_STRAIGHT_ROUNDED, reaches, NULL));
    run();
    same(y, all, 0);
    same(reaches, all, (int)all);
}

static void golden_learned(void)
{
    const uint64_t n = (uint64_t)line.number[0];
    const double scale = 0.0519;
    double x[GOLDEN_RESULTS], dy[GOLDEN_RESULTS], got;

    fill(32, (int)n, x);
    fill(33, (int)n, dy);
    mica_buffer *from = BUFFER(F32, x, n), *y = BUFFER(F32, NULL, n), *reaches = BUFFER(F32, dy, n),
                *terms = BUFFER(F32, NULL, n), *sum = BUFFER(F32, NULL, 1);
    const mica_quantizer by = {
        .scales = BUFFER(F32, &scale, 1), .low = (int32_t)line.number[1], .high = (int32_t)line.number[2]};
    must(mica_fake_quantize(encoder, from, &by, y));
    must(mica_fake_quantize_backward(encoder, from, &by, reaches, MICA_STRAIGHT_ROUNDED, reaches, terms));
    must(mica_reduce(encoder, terms, &(mica_reduce_params){.axes = 1, .keep_dims = 1}, sum));
    run();
    same(y, n, 0);
    same(reaches, n, (int)n);
    read_all(sum, 1, &got);
    /* PyTorch takes round(v) - v as (y - x) / scale, which cancels: n terms, each a few roundings of x / scale, some 40 */
    const double wanted = line.result[2 * n];
    if (fabs(got - wanted) > 2 * 40 * 0x1p-24 * (double)n)
        fail_msg("learned: the scale gets %.9g, PyTorch has %.9g", got, wanted);
}

static void golden_codes(void)
{
    const uint64_t rows = (uint64_t)line.number[0], columns = (uint64_t)line.number[1], all = rows * columns;
    const uint64_t count = line.number[2] == 0 ? rows : 1;
    double x[GOLDEN_RESULTS], scales[8], points[8];

    fill(34, (int)all, x);
    for (int c = 0; c < 8; c++) {
        scales[c] = 0.0113 * (1 + c);
        points[c] = 3 + c;
    }
    mica_buffer *from = BUFFER(F32, x, rows, columns), *y = BUFFER(F32, NULL, rows, columns);
    mica_buffer *codes =
        line.number[3] != 0 ? BUFFER(I8, NULL, rows, columns) : BUFFER(U8, NULL, rows, columns);
    const mica_quantizer by = {.scales = BUFFER(F32, scales, count, 1),
                               .zero_points = BUFFER(I32, points, count, 1)};
    must(mica_quantize_codes(encoder, from, &by, codes));
    must(mica_dequantize_codes(encoder, codes, &by, y));
    run();
    same(codes, all, 0);
    same(y, all, (int)all);
}

static void test_golden(void **state)
{
    FILE *file = fopen("tests/golden/train.txt", "r");
    int seen = 0, more;

    (void)state;
    assert_non_null(file);
    while ((more = golden_next(file, &line)) == 1) {
        void (*body)(void) = strcmp(line.name, "fake_quantize") == 0 ? golden_fake
                             : strcmp(line.name, "learned") == 0     ? golden_learned
                             : strcmp(line.name, "quantize") == 0    ? golden_codes
                                                                     : NULL;

        if (body == NULL)
            continue;
        seen++;
        ON_EACH()
        {
            body();
            end();
        }
    }
    fclose(file);
    assert_int_equal(more, 0);
    assert_int_equal(seen, 4 + 4 + 2);
}

static void test_refused(void **state)
{
    const mica_status bad = MICA_ERR_INVALID_ARGUMENT;

    (void)state;
    begin(devices[0]);
    mica_buffer *x = BUFFER(F32, NULL, 4, 6), *q = BUFFER(I8, NULL, 4, 6), *s = BUFFER(F32, NULL, 1),
                *n = BUFFER(I32, NULL, 1), *odd = BUFFER(F32, NULL, 5), *half = BUFFER(U8, NULL, 4, 3),
                *two = BUFFER(F32, NULL, 4, 2);
    refused(mica_quantize_codes(encoder, x, NULL, q), bad, "by is NULL");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){0}, q), bad, "by.scales is NULL");
    refused(mica_quantize_codes(encoder, q, &(mica_quantizer){.scales = s}, q), bad, "is i8, not a float");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = s, .low = 3, .high = 2}, q), bad,
            "by.low is 3");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = s, .low = 0, .high = 255}, q), bad,
            "codes is i8");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = s, .zero_points = n, .biases = s}, q),
            bad, "both there");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = odd}, q), bad,
            "shape[0] of by.scales is 5");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = s, .block = 3}, q), bad,
            "expected as many");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = two, .block = 4, .axis = 2}, q), bad,
            "by.axis is 2");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = two, .block = 2}, q), bad,
            "not 1 or 3");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = s, .packed = 1}, q), bad,
            "differ in shape");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = s, .packed = 1, .low = -9, .high = 0},
                                half),
            bad, "4 bits");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = s, .packed = 2}, half), bad,
            "by.packed");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = two, .packed = 1, .block = 3}, half),
            bad, "not even");
    refused(mica_quantize_codes(encoder, x, &(mica_quantizer){.scales = s}, x), bad, "codes is f32");
    refused(mica_dequantize_codes(encoder, q, &(mica_quantizer){.scales = s}, q), bad, "not a float");
    refused(mica_fake_quantize(encoder, x, &(mica_quantizer){.scales = s, .packed = 1}, half), bad,
            "by.packed");
    refused(mica_fake_quantize_backward(encoder, x, &(mica_quantizer){.scales = s}, x, 0, NULL, NULL), bad,
            "dx and dscale");
    refused(
        mica_fake_quantize_backward(encoder, x, &(mica_quantizer){.scales = s}, x, (mica_straight)9, x, NULL),
        bad, "straight is 9");
    refused(
        mica_fake_quantize_backward(encoder, x, &(mica_quantizer){.scales = s, .biases = s}, x, 0, x, NULL),
        bad, "by.biases");
    refused(mica_quantize_scales(encoder, x, &(mica_quantizer){.scales = s}), bad,
            "by.scales has 1 dimensions");
    refused(
        mica_quantize_scales(encoder, x, &(mica_quantizer){.scales = two, .block = 3, .low = -5, .high = -1}),
        bad, "by.high is -1");
    refused(mica_scales_follow(encoder, s, 2, s), bad, "decay is 2");
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),        cmocka_unit_test(test_ends),   cmocka_unit_test(test_fp4),
        cmocka_unit_test(test_backward),        cmocka_unit_test(test_scales), cmocka_unit_test(test_follow),
        cmocka_unit_test(test_affine_training), cmocka_unit_test(test_golden), cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
