/*
 * test_matrix.c - products that are made of several ops, against plain C: of integers with zero points and requantised, a convolution of such, of codes
 * with scales, with an adapter of low rank, of rows with weights of their own, of a column and a row; the transposed product against differences; and
 * what is refused. On every device.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "oracle/oracle_codes.h"
#include "support/devices.h"
#include "support/random.h"
#include "support/status.h"

enum { MOST = 32 };
static mica_device *device;
static mica_encoder *encoder;
static mica_buffer *made[MOST];
static int made_count;

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
}

static void end(void)
{
    mica_encoder_release(encoder);
    encoder = NULL;
    while (made_count > 0)
        mica_buffer_release(made[--made_count]);
}

/* A buffer, which end() releases, with these bytes; NULL: none. */
static mica_buffer *buffer_of(mica_dtype dtype, uint32_t ndim, const uint64_t *shape, const void *bytes)
{
    uint64_t blocks = 1;
    mica_buffer *buffer;

    for (uint32_t d = 0; d < ndim; d++)
        blocks *= shape[d] / (d + 1 == ndim ? mica_dtype_block_elements(dtype) : 1);
    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    if (bytes != NULL)
        must(mica_buffer_write(buffer, 0, bytes, blocks * mica_dtype_block_bytes(dtype)));
    return made[made_count++] = buffer;
}
#define BUFFER(dtype, bytes, ...)                                                       \
    buffer_of(MICA_DTYPE_##dtype, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), \
              (uint64_t[]){__VA_ARGS__}, bytes)

static void fill_bytes(test_random *random, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)test_random_below(random, 256);
}

static void fill_floats(test_random *random, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)test_random_normal(random);
}

/* f32 sums of n terms of so large a sum of sizes: the bound of the conformance table for dot products, and `more` roundings of each term. */
static void near(const char *what, size_t at, double got, double wanted, double size, double n, double more)
{
    const double most = 2 * (1 + more + 0.25 * sqrt(n)) * size * 0x1p-24 + fabs(wanted) * 0x1p-24 + 1e-30;

    if (!(fabs(got - wanted) <= most))
        fail_msg("%s: element %zu is %.9g, not %.9g (%g off, %g allowed)", what, at, got, wanted,
                 got - wanted, most);
}

/* ---- integers ---- */

/* As ops_quantize.h has it, in f32. */
static int code_of(int64_t sum, float multiplier, int zero, int low, int high)
{
    volatile float product = (float)sum * multiplier; /* rounded by itself */
    const float near_one = nearbyintf(product) + (float)zero;

    return near_one < (float)low ? low : near_one > (float)high ? high : (int)near_one;
}

enum { M = 7, N = 19, K = 700 };

/* i8 rows with a zero point of the tensor times u8 columns with their own; sums beyond 2^24, halves, and codes beyond both ends. */
static void test_requantized_product(void **state)
{
    (void)state;
    test_random random = test_random_from(5);
    static uint8_t a[M * K], b[K * N], b_zero[N], codes[M * N];
    static float multiplier[N];
    static int32_t bias[N];
    const int8_t a_zero = -3;
    const int32_t y_zero = 11;

    fill_bytes(&random, a, sizeof a);
    fill_bytes(&random, b, sizeof b);
    fill_bytes(&random, b_zero, sizeof b_zero);
    for (uint32_t i = 0; i < N; i++) {
        bias[i] = (int32_t)test_random_below(&random, 100000) - 50000;
        multiplier[i] = ldexpf(i % 3 == 0 ? 1.0f : (float)(1 + test_random_below(&random, 100)) / 77.0f,
                               -12 - (int)(i % 5));
    }
    ON_EACH()
    {
        for (uint32_t u8 = 0; u8 < 2; u8++) {
            mica_buffer *sums = BUFFER(I32, NULL, M, N),
                        *y = u8 != 0 ? BUFFER(U8, NULL, M, N) : BUFFER(I8, NULL, M, N);
            must(mica_product_codes(encoder, BUFFER(I8, a, M, K), BUFFER(I8, &a_zero, 1), BUFFER(U8, b, K, N),
                                    BUFFER(U8, b_zero, N), BUFFER(I32, bias, N), sums));
            must(mica_requantize(encoder, sums,
                                 &(mica_quantizer){.scales = BUFFER(F32, multiplier, N),
                                                   .zero_points = BUFFER(I32, &y_zero, 1)},
                                 y));
            run();
            must(mica_buffer_read(y, 0, codes, sizeof codes));
            for (uint32_t i = 0; i < M * N; i++) {
                int64_t sum = bias[i % N];
                for (uint32_t k = 0; k < K; k++)
                    sum += ((int8_t)a[i / N * K + k] - a_zero) * ((int)b[k * N + i % N] - b_zero[i % N]);
                const int wanted = u8 != 0 ? code_of(sum, multiplier[i % N], y_zero, 0, 255)
                                           : code_of(sum, multiplier[i % N], y_zero, -128, 127);
                assert_int_equal(u8 != 0 ? (int)codes[i] : (int8_t)codes[i], wanted);
            }
            end();
            begin(device);
        }
        end();
    }
}

enum { IMAGES = 2, IN = 3, OUT = 5, SIDE = 6, KERNEL = 3, TAPS = IN * KERNEL * KERNEL, PLACES = SIDE * SIDE };

/* Padded taps are zero points: they add nothing. */
static int64_t conv_at(const uint8_t *x, const int8_t *w, int x_zero, const int8_t *w_zero, uint32_t image,
                       uint32_t out, int row, int column)
{
    int64_t sum = 0;

    for (uint32_t t = 0; t < TAPS; t++) {
        const int r = row + (int)(t / KERNEL % KERNEL) - 1, c = column + (int)(t % KERNEL) - 1;

        if (r >= 0 && r < SIDE && c >= 0 && c < SIDE)
            sum += (x[((image * IN + t / 9) * SIDE + (uint32_t)r) * SIDE + (uint32_t)c] - x_zero) *
                   (w[out * TAPS + t] - w_zero[out]);
    }
    return sum;
}

static void test_quantized_conv(void **state)
{
    (void)state;
    test_random random = test_random_from(6);
    static uint8_t x[IMAGES * IN * PLACES];
    static int8_t w[OUT * TAPS], w_zero[OUT], codes[IMAGES * OUT * PLACES];
    static float multiplier[OUT];
    static int32_t bias[OUT];
    const uint8_t x_zero = 131;
    const mica_pad_params around = {
        .low = {0, 0, 1, 1}, .high = {0, 0, 1, 1}, .value = 131, .mode = MICA_PAD_CONSTANT};
    const mica_im2col_params windows = {.dims = 2, .kernel = {KERNEL, KERNEL}};

    fill_bytes(&random, x, sizeof x);
    fill_bytes(&random, (uint8_t *)w, sizeof w);
    fill_bytes(&random, (uint8_t *)w_zero, sizeof w_zero);
    for (uint32_t i = 0; i < OUT; i++) {
        bias[i] = (int32_t)test_random_below(&random, 2000) - 1000;
        multiplier[i] = (float)(1 + i) / 2048.0f;
    }
    ON_EACH()
    {
        mica_buffer *wide = BUFFER(U8, NULL, IMAGES, IN, SIDE + 2, SIDE + 2),
                    *columns = BUFFER(U8, NULL, IMAGES, TAPS, PLACES),
                    *sums = BUFFER(I32, NULL, IMAGES, OUT, PLACES),
                    *y = BUFFER(I8, NULL, IMAGES, OUT, PLACES);
        must(mica_pad(encoder, BUFFER(U8, x, IMAGES, IN, SIDE, SIDE), &around, wide));
        must(mica_im2col(encoder, wide, &windows, columns));
        must(mica_product_codes(encoder, BUFFER(I8, w, OUT, TAPS), BUFFER(I8, w_zero, OUT, 1), columns,
                                BUFFER(U8, &x_zero, 1), BUFFER(I32, bias, OUT, 1), sums));
        must(mica_requantize(encoder, sums, &(mica_quantizer){.scales = BUFFER(F32, multiplier, OUT, 1)}, y));
        run();
        must(mica_buffer_read(y, 0, codes, sizeof codes));
        for (uint32_t i = 0; i < IMAGES * OUT * PLACES; i++) {
            const uint32_t out = i / PLACES % OUT;
            const int64_t sum = bias[out] + conv_at(x, w, x_zero, w_zero, i / PLACES / OUT, out,
                                                    (int)(i % PLACES / SIDE), (int)(i % SIDE));

            assert_int_equal(codes[i], code_of(sum, multiplier[out], 0, -128, 127));
        }
        end();
    }
}

/* ---- codes with scales ---- */

enum { SM = 5, SN = 9, SK = 96 };

static double e5m2(uint8_t code)
{
    const int exponent = code >> 2 & 31, mantissa = code & 3;
    const double size = exponent == 0 ? ldexp(mantissa, -16) : ldexp(4 + mantissa, exponent - 15 - 2);

    return code & 0x80 ? -size : size;
}

static double e2m1(uint8_t code)
{
    static const double size[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

    return code & 8 ? -size[code & 7] : size[code & 7];
}

typedef enum scaled_kind { MXFP8, TENSOR_E5M2, ROWS_E4M3, NVFP4, KINDS } scaled_kind;

/* Codes of one side [rows, SK], what they stand for, and the buffers. */
typedef struct side {
    double value[SN * SK];
    mica_quantizer by;
    mica_scaled scaled;
} side;

static uint8_t finite_code(test_random *random, scaled_kind kind)
{
    for (;;) {
        const uint8_t code = (uint8_t)test_random_below(random, 256);

        if (kind == TENSOR_E5M2 ? (code >> 2 & 31) < 24 : (code & 0x7f) != 0x7f)
            return code;
    }
}

static void make_side(side *s, test_random *random, scaled_kind kind, uint64_t rows)
{
    uint8_t codes[SN * SK], scale[SN * SK / 16];
    float plain[SN], global = 0.37f;

    s->by = (mica_quantizer){0};
    for (uint32_t i = 0; i < SN; i++)
        plain[i] = 0.1f + (float)test_random_below(random, 100) / 64.0f;
    for (uint32_t i = 0; i < sizeof scale; i++) /* e8m0 around 1; e4m3 above 0 */
        scale[i] = kind == NVFP4 ? (uint8_t)(1 + test_random_below(random, 126))
                                 : (uint8_t)(120 + test_random_below(random, 12));
    for (uint64_t i = 0; i < rows * SK; i++) {
        const uint8_t code =
            kind == NVFP4 ? (uint8_t)test_random_below(random, 16) : finite_code(random, kind);
        double factor = plain[0];

        if (kind == NVFP4) {
            codes[i / 2] = (uint8_t)(i % 2 == 0 ? code : codes[i / 2] | code << 4);
            factor = (float)((double)oracle_e4m3(scale[i / 16]) * global);
        } else {
            codes[i] = code;
        }
        if (kind == MXFP8)
            factor = oracle_e8m0(scale[i / 32]);
        if (kind == ROWS_E4M3)
            factor = plain[i / SK];
        s->value[i] = factor * (kind == NVFP4         ? e2m1(code)
                                : kind == TENSOR_E5M2 ? e5m2(code)
                                                      : (double)oracle_e4m3(code));
    }
    s->scaled = (mica_scaled){.by = &s->by, .values = BUFFER(F32, NULL, rows, SK)};
    if (kind == NVFP4) {
        s->scaled.codes = BUFFER(U8, codes, rows, SK / 2);
        s->by.code = MICA_CODE_FP4;
        s->by.packed = 1;
        s->by.block = 16;
        s->by.scales = BUFFER(F8_E4M3, scale, rows, SK / 16);
        s->by.global = BUFFER(F32, &global, 1);
    } else {
        s->scaled.codes =
            kind == TENSOR_E5M2 ? BUFFER(F8_E5M2, codes, rows, SK) : BUFFER(F8_E4M3, codes, rows, SK);
        s->by.block = kind == MXFP8 ? 32 : 0;
        s->by.scales = kind == MXFP8         ? BUFFER(E8M0, scale, rows, SK / 32)
                       : kind == TENSOR_E5M2 ? BUFFER(F32, plain, 1)
                                             : BUFFER(F32, plain, rows, 1);
    }
}

static void test_scaled_products(void **state)
{
    (void)state;
    test_random random = test_random_from(7);

    ON_EACH()
    {
        for (uint32_t kind = 0; kind < KINDS * KINDS; kind++) {
            static side a, b;
            float bias[SN], got[SM * SN];
            fill_floats(&random, bias, SN);
            make_side(&a, &random, (scaled_kind)(kind / KINDS), SM);
            make_side(&b, &random, (scaled_kind)(kind % KINDS), SN);
            mica_buffer *y = BUFFER(F32, NULL, SM, SN);
            must(mica_product_scaled(encoder, &a.scaled, &b.scaled, BUFFER(F32, bias, SN), y));
            run();
            must(mica_buffer_read(y, 0, got, sizeof got));
            for (uint32_t i = 0; i < SM * SN; i++) {
                double sum = bias[i % SN], size = fabs(sum);
                for (uint32_t k = 0; k < SK; k++) {
                    const double term = a.value[i / SN * SK + k] * b.value[i % SN * SK + k];
                    sum += term;
                    size += fabs(term);
                }
                near("scaled", i, got[i], sum, size, SK, 2); /* each factor is rounded once */
            }
            end();
            begin(device);
        }
        end();
    }
}

/* ---- adapters, groups, outer products, gradients ---- */

enum { LM = 12, LN = 40, LK = 64, LR = 4, EXPERTS = 3 };

/* q8_0: blocks of an f16 scale, here 2^-6, and 32 bytes. */
static void fill_q8_0(test_random *random, uint8_t *blocks, double *value, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t *block = blocks + i / 32 * 34;
        const int8_t code = (int8_t)((int)test_random_below(random, 255) - 127);

        block[0] = 0x00;
        block[1] = 0x24;
        block[2 + i % 32] = (uint8_t)code;
        value[i] = code / 64.0;
    }
}

static void test_lora(void **state)
{
    (void)state;
    test_random random = test_random_from(8);
    static uint8_t blocks[LN * LK / 32 * 34];
    static double weight[LN * LK];
    static float x[LM * LK], a[LR * LK], b[LN * LR], got[LM * LN];
    const float scale = 0.375f;

    fill_q8_0(&random, blocks, weight, LN * LK);
    fill_floats(&random, a, LR * LK);
    fill_floats(&random, b, LN * LR);
    for (uint32_t i = 0; i < LM * LK; i++) /* whole numbers that 8 bits hold: activations lose nothing */
        x[i] = i % 32 == 0 ? 127.0f : (float)((int)test_random_below(&random, 255) - 127);
    ON_EACH()
    {
        mica_buffer *low = BUFFER(F32, NULL, LM, LR), *y = BUFFER(F32, NULL, LM, LN);
        must(mica_matmul_lora(encoder, BUFFER(F32, x, LM, LK), BUFFER(Q8_0, blocks, LN, LK),
                              BUFFER(F32, a, LR, LK), BUFFER(F32, b, LN, LR), scale, low, y));
        run();
        must(mica_buffer_read(y, 0, got, sizeof got));
        for (uint32_t i = 0; i < LM * LN; i++) {
            double sum = 0, size = 0;
            for (uint32_t k = 0; k < LK; k++) {
                double adapted = 0, adapted_size = 0;
                for (uint32_t r = 0; r < LR; r++) {
                    adapted += (double)scale * a[r * LK + k] * b[i % LN * LR + r];
                    adapted_size += fabs((double)scale * a[r * LK + k] * b[i % LN * LR + r]);
                }
                sum += x[i / LN * LK + k] * (weight[i % LN * LK + k] + adapted);
                size += fabs((double)x[i / LN * LK + k]) * (fabs(weight[i % LN * LK + k]) + adapted_size);
            }
            near("lora", i, got[i], sum, size, LK, 3); /* low is rounded and scaled; the sum, twice */
        }
        end();
    }
}

/* Row i of x meets the weight that ids name: [N, K] each, and as [K, N]. */
static void test_grouped(void **state)
{
    (void)state;
    test_random random = test_random_from(9);
    static float x[LM * LK], w[EXPERTS * LN * LK], turned[EXPERTS * LK * LN], got[2][LM * LN];
    uint32_t ids[LM];

    fill_floats(&random, x, LM * LK);
    fill_floats(&random, w, EXPERTS * LN * LK);
    for (uint32_t i = 0; i < EXPERTS * LN * LK; i++)
        turned[(i / LK / LN * LK + i % LK) * LN + i / LK % LN] = w[i];
    for (uint32_t i = 0; i < LM; i++) /* groups of rows: 5, 0 and 7 of them */
        ids[i] = i < 5 ? 0 : 2;
    ON_EACH()
    {
        mica_buffer *rows = BUFFER(F32, x, LM, 1, LK), *named = BUFFER(U32, ids, LM, 1),
                    *y = BUFFER(F32, NULL, LM, 1, LN), *z = BUFFER(F32, NULL, LM, 1, LN);
        must(mica_matmul_experts(encoder, rows, BUFFER(F32, w, EXPERTS, LN, LK), named, NULL, y));
        must(mica_matmul_transposed(encoder, rows, BUFFER(F32, turned, EXPERTS, LK, LN), named, z));
        run();
        must(mica_buffer_read(y, 0, got[0], sizeof got[0]));
        must(mica_buffer_read(z, 0, got[1], sizeof got[1]));
        for (uint32_t i = 0; i < LM * LN; i++) {
            double sum = 0, size = 0;
            for (uint32_t k = 0; k < LK; k++) {
                const double term = (double)x[i / LN * LK + k] * w[(ids[i / LN] * LN + i % LN) * LK + k];
                sum += term;
                size += fabs(term);
            }
            near("grouped", i, got[0][i], sum, size, LK, 0);
            near("grouped, turned", i, got[1][i], sum, size, LK, 0);
        }
        end();
    }
}

static void test_outer(void **state)
{
    (void)state;
    test_random random = test_random_from(10);
    float a[LM], b[LN], got[LM * LN];

    fill_floats(&random, a, LM);
    fill_floats(&random, b, LN);
    ON_EACH()
    {
        mica_buffer *y = BUFFER(F32, NULL, LM, LN);
        must(mica_product(encoder, BUFFER(F32, a, LM, 1), BUFFER(F32, b, 1, LN), NULL, y));
        run();
        must(mica_buffer_read(y, 0, got, sizeof got));
        for (uint32_t i = 0; i < LM * LN; i++)
            assert_true(got[i] == a[i / LN] * b[i % LN]); /* one rounding */
        end();
    }
}

/* sum dy (x . W^T), in double */
static double loss_of(const double *x, const double *w, const float *dy)
{
    double loss = 0;

    for (uint32_t i = 0; i < LM * LN; i++)
        for (uint32_t k = 0; k < LK; k++)
            loss += dy[i] * x[i / LN * LK + k] * w[i % LN * LK + k];
    return loss;
}

static void test_gradient_of_matmul(void **state)
{
    (void)state;
    test_random random = test_random_from(11);
    static uint8_t blocks[LN * LK / 32 * 34];
    static double weight[LN * LK], x[LM * LK];
    static float dy[LM * LN], dx[LM * LK];

    fill_q8_0(&random, blocks, weight, LN * LK);
    fill_floats(&random, dy, LM * LN);
    for (uint32_t i = 0; i < LM * LK; i++)
        x[i] = test_random_normal(&random);
    ON_EACH()
    {
        mica_buffer *to = BUFFER(F32, NULL, LM, LK);
        must(
            mica_matmul_transposed(encoder, BUFFER(F32, dy, LM, LN), BUFFER(Q8_0, blocks, LN, LK), NULL, to));
        run();
        must(mica_buffer_read(to, 0, dx, sizeof dx));
        for (uint32_t i = 0; i < LM * LK; i += 41) {
            const double step = 0x1p-10, was = x[i];
            x[i] = was + step;
            const double above = loss_of(x, weight, dy);
            x[i] = was - step;
            const double below = loss_of(x, weight, dy), slope = (above - below) / (2 * step);
            x[i] = was;
            /* The loss is linear in x; its sums of some 30,000 terms around 1 cost the difference 1e-10. */
            near("gradient", i, dx[i], slope, 80, LN, 0);
        }
        end();
    }
}

/* ---- what is refused ---- */

static void test_refused(void **state)
{
    (void)state;
    begin(devices[0]);
    mica_buffer *x = BUFFER(F32, NULL, 4, 8), *w = BUFFER(F32, NULL, 8, 6), *y = BUFFER(F32, NULL, 4, 6),
                *x3 = BUFFER(F32, NULL, 2, 2, 8), *y3 = BUFFER(F32, NULL, 2, 2, 6),
                *w3 = BUFFER(F32, NULL, 3, 8, 6), *ids = BUFFER(U32, NULL, 2, 2),
                *bytes = BUFFER(I8, NULL, 4, 8), *more = BUFFER(I8, NULL, 8, 6),
                *sums = BUFFER(I32, NULL, 4, 6), *row = BUFFER(I8, NULL, 6), *column = BUFFER(I8, NULL, 4, 1),
                *codes = BUFFER(I8, NULL, 4, 6), *one = BUFFER(F32, NULL, 1), *a = BUFFER(F32, NULL, 2, 8),
                *b = BUFFER(F32, NULL, 6, 2), *low = BUFFER(F32, NULL, 4, 2);
    const mica_quantizer by = {.scales = one};

    refused(mica_matmul_transposed(encoder, x3, w, ids, y3), MICA_ERR_INVALID_ARGUMENT,
            "weight has 2 dimensions");
    refused(mica_matmul_transposed(encoder, x, w3, NULL, y), MICA_ERR_INVALID_ARGUMENT, "x has 2 dimensions");
    refused(mica_matmul_transposed(encoder, x3, w3, NULL, y3), MICA_ERR_INVALID_ARGUMENT,
            "no multiple of weight's 3");
    refused(mica_product_codes(encoder, x, column, w, NULL, NULL, y), MICA_ERR_INVALID_ARGUMENT,
            "a_zero is given, but a is f32");
    refused(mica_product_codes(encoder, bytes, row, more, NULL, NULL, sums), MICA_ERR_INVALID_ARGUMENT,
            "a_zero: shape[0] is 6");
    refused(mica_product_codes(encoder, bytes, NULL, more, column, NULL, sums), MICA_ERR_INVALID_ARGUMENT,
            "b_zero: shape[0] is 4");
    refused(mica_requantize(encoder, y, &by, codes), MICA_ERR_INVALID_ARGUMENT, "sums is f32");
    refused(mica_requantize(encoder, sums, &by, y), MICA_ERR_INVALID_ARGUMENT, "codes is f32");
    refused(mica_requantize(encoder, sums, &(mica_quantizer){.scales = one, .low = -200}, codes),
            MICA_ERR_INVALID_ARGUMENT, "codes is i8");
    refused(mica_requantize(encoder, sums, &(mica_quantizer){.scales = one, .global = one}, codes),
            MICA_ERR_INVALID_ARGUMENT, "global");
    refused(mica_matmul_lora(encoder, x, b, a, b, INFINITY, low, y), MICA_ERR_INVALID_ARGUMENT,
            "scale is inf");
    refused(mica_matmul_lora(encoder, x, b, a, b, 1, NULL, y), MICA_ERR_INVALID_ARGUMENT, "low is NULL");
    refused(mica_product_scaled(encoder, NULL, NULL, NULL, y), MICA_ERR_INVALID_ARGUMENT, "a is NULL");
    refused(mica_product_scaled(encoder, &(mica_scaled){bytes, &by, NULL}, NULL, NULL, y),
            MICA_ERR_INVALID_ARGUMENT, "a.values is NULL");
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requantized_product),
        cmocka_unit_test(test_quantized_conv),
        cmocka_unit_test(test_scaled_products),
        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_grouped),
        cmocka_unit_test(test_outer),
        cmocka_unit_test(test_gradient_of_matmul),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
