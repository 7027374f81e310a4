/*
 * test_random.c - random numbers: the generator by its published answers, every draw against the oracle on every device that there is, also in
 * views, with other numbers of threads and in recordings that are replayed; their distributions; and what is refused.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "oracle/oracle_number.h"
#include "oracle/oracle_random.h"
#include "support/devices.h"
#include "support/status.h"
#include "support/tensor.h"

/* ---- the generator ---- */

/* The answers that its authors publish (kat_vectors of Random123). */
static void test_known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], wanted[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t got[4];

        oracle_philox(known[i].counter, known[i].key, got);
        assert_memory_equal(got, known[i].wanted, sizeof got);
    }
}

/* ---- draws against the oracle ---- */

typedef enum kind { BITS, UNIFORM, NORMAL, BERNOULLI, INTEGERS, KINDS } kind;

typedef struct trial {
    kind kind;
    mica_dtype dtype;
    double a, b; /* low and high, mean and deviation, p */
    uint64_t seed, offset;
} trial;

static mica_status draw(mica_encoder *encoder, const trial *t, mica_buffer *state, mica_buffer *y)
{
    const mica_random random = {t->seed, t->offset, state};

    switch (t->kind) {
    case BITS: return mica_random_bits(encoder, &random, y);
    case UNIFORM: return mica_random_uniform(encoder, t->a, t->b, &random, y);
    case NORMAL: return mica_random_normal(encoder, t->a, t->b, &random, y);
    case BERNOULLI: return mica_random_bernoulli(encoder, NULL, t->a, &random, y);
    default: return mica_random_integers(encoder, (int64_t)t->a, (int64_t)t->b, &random, y);
    }
}

/* floor(bits n / 2^64), by long division. */
static uint64_t scaled(uint64_t bits, uint64_t n)
{
    uint64_t high = 0, low = 0;

    for (int i = 63; i >= 0; i--) { /* (high, low) = 2 (high, low) + bit i of n times bits */
        high = high << 1 | low >> 63;
        low <<= 1;
        if ((n >> i & 1) != 0) {
            low += bits;
            high += low < bits;
        }
    }
    return high;
}

/* The value of one element, and how far it may be off. */
static double wanted_of(const trial *t, uint64_t bits, double *error)
{
    uint8_t element[8];

    *error = 0;
    switch (t->kind) {
    case BITS:
        memcpy(element, &bits, 8);
        return oracle_get(t->dtype, element); /* the lower bytes, on machines that have them first */
    case UNIFORM: return oracle_random_uniform(t->dtype, bits, t->a, t->b);
    case NORMAL: return oracle_random_normal(t->dtype, bits, t->a, t->b, error);
    case BERNOULLI: return oracle_random_u24(bits) < (double)(float)t->a ? 1 : 0;
    default: return t->a + (double)scaled(bits, (uint64_t)(t->b - t->a));
    }
}

/* A rounding of the store. */
static double store_error(mica_dtype dtype, double value)
{
    switch (dtype) {
    case MICA_DTYPE_F16: return fmax(fabs(value) * 0x1p-11, 0x1p-25);
    case MICA_DTYPE_BF16: return fabs(value) * 0x1p-8;
    case MICA_DTYPE_F32: return fabs(value) * 0x1p-24;
    default: return 0;
    }
}

static void compare(const trial *t, const test_tensor *y, uint64_t seed, uint64_t offset)
{
    for (uint64_t i = 0; i < y->count; i++) {
        double error, got;
        const double wanted = wanted_of(t, oracle_random(seed, offset + i), &error);

        got = oracle_get(y->dtype, y->after + test_tensor_place(y, i));
        if (t->kind == NORMAL)
            error += store_error(t->dtype, wanted);
        if (!(fabs(got - wanted) <= error))
            fail_msg("kind %d of %s: element %llu is %.17g, not %.17g within %g", (int)t->kind,
                     mica_dtype_name(t->dtype), (unsigned long long)i, got, wanted, error);
    }
}

/* Whether the device has no f64, or not this formula in it. */
static bool lacks(mica_device *device, const trial *t)
{
    return device != devices[0] && t->dtype == MICA_DTYPE_F64;
}

static void run_trial(mica_device *device, const trial *t, uint32_t ndim, const uint64_t *shape,
                      test_layout layout, test_random *random)
{
    mica_encoder *encoder;
    test_tensor y;

    if (lacks(device, t))
        return;
    test_tensor_init(&y, random, "y", t->dtype, ndim, shape, layout);
    must(test_tensor_upload(&y, device));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(draw(encoder, t, NULL, y.view));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(test_tensor_fetch(&y));
    assert_true(test_tensor_stray(&y, true) == UINT64_MAX);
    compare(t, &y, t->seed, t->offset);
    test_tensor_unload(&y);
    test_tensor_free(&y);
}

static const trial trials[] = {
    {BITS, MICA_DTYPE_U32, 0, 0, 1, 0},
    {BITS, MICA_DTYPE_U64, 0, 0, 0x123456789abcdef0u, UINT64_MAX - 100},
    {BITS, MICA_DTYPE_I32, 0, 0, 2, 0xfffffff0u},
    {BITS, MICA_DTYPE_U8, 0, 0, 3, 7},
    {BITS, MICA_DTYPE_I16, 0, 0, 4, 0},
    {UNIFORM, MICA_DTYPE_F32, 0, 1, 5, 0},
    {UNIFORM, MICA_DTYPE_F32, -3.7, 1000.1, 5, 1},
    {UNIFORM, MICA_DTYPE_F32, 1, 1.0000003, 6, 1}, /* a few numbers */
    {UNIFORM, MICA_DTYPE_F32, -3e38, 1e37, 6, 1},
    {UNIFORM, MICA_DTYPE_F16, 0, 1, 7, 0},
    {UNIFORM, MICA_DTYPE_F16, -0.1, 0.1, 7, 0},
    {UNIFORM, MICA_DTYPE_F16, 65000, 66000, 7, 0}, /* ends at the last finite one */
    {UNIFORM, MICA_DTYPE_F16, 100, 100.3, 7, 0},
    {UNIFORM, MICA_DTYPE_F16, -1e-7, 0, 7, 0},
    {UNIFORM, MICA_DTYPE_BF16, 0, 1, 8, 0},
    {UNIFORM, MICA_DTYPE_BF16, -2, 2.01, 8, 0},
    {UNIFORM, MICA_DTYPE_F64, 0, 1, 9, 0},
    {UNIFORM, MICA_DTYPE_F64, -0.1, 0.7, 9, 0},
    {NORMAL, MICA_DTYPE_F32, 0, 1, 10, 0},
    {NORMAL, MICA_DTYPE_F32, -100, 0.5, 10, 0},
    {NORMAL, MICA_DTYPE_F32, 2, 0, 10, 0},
    {NORMAL, MICA_DTYPE_F16, 0, 1, 11, 0},
    {NORMAL, MICA_DTYPE_BF16, 1, 3, 12, 0},
    {NORMAL, MICA_DTYPE_F64, 0, 1, 13, 0},
    {BERNOULLI, MICA_DTYPE_BOOL, 0.3, 0, 14, 0},
    {BERNOULLI, MICA_DTYPE_F32, 0.999, 0, 15, 0},
    {BERNOULLI, MICA_DTYPE_U8, 1, 0, 16, 0},
    {BERNOULLI, MICA_DTYPE_I64, 0, 0, 17, 0},
    {BERNOULLI, MICA_DTYPE_F16, (double)NAN, 0, 18, 0},
    {INTEGERS, MICA_DTYPE_I32, -5, 12, 19, 0},
    {INTEGERS, MICA_DTYPE_U8, 0, 256, 20, 0},
    {INTEGERS, MICA_DTYPE_U32, 0, 4294967296.0, 21, 0},
    {INTEGERS, MICA_DTYPE_I64, -1099511627776.0, -1099511627776.0 + 4294967295.0, 22, 0},
    {INTEGERS, MICA_DTYPE_I8, 7, 8, 23, 0},
    {INTEGERS, MICA_DTYPE_U64, 5, 1000, 24, 0},
};
enum { TRIALS = sizeof trials / sizeof *trials };

/* Every kind in shapes of one to four dimensions, contiguous and not. */
static void test_draws(void **state)
{
    static const uint64_t shapes[][4] = {{1}, {777}, {3, 45}, {2, 1, 65, 3}, {1, 1}};
    static const uint32_t ranks[] = {1, 1, 2, 4, 2};
    test_random random;

    (void)state;
    random = test_random_from(1);
    for (int d = 0; d < DEVICES; d++)
        for (uint32_t i = 0; i < TRIALS && devices[d] != NULL; i++)
            for (uint32_t s = 0; s < 5; s++)
                if (d == 0 || (i + s) % 5 == 0 || s == 2)
                    run_trial(devices[d], &trials[i], ranks[s], shapes[s],
                              s % 2 == 0 ? TEST_ANY : TEST_CONTIGUOUS, &random);
}

/* Pieces, threads: an element's number is a function of its place alone. */
static void test_threads(void **state)
{
    enum { COUNT = 70001 };
    const uint64_t shape[1] = {COUNT};
    float *first = test_alloc(COUNT, 4), *other = test_alloc(COUNT, 4);

    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        mica_device_options options = {.size = sizeof options, .threads = threads};
        mica_device *device;
        mica_encoder *encoder;
        mica_buffer *y, *tail;

        must(mica_device_open("cpu", &options, &device));
        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, shape, &y));
        must(mica_buffer_slice(y, 0, 1000, COUNT - 1000, &tail));
        must(mica_encoder_begin(device, NULL, &encoder));
        must(mica_random_normal(encoder, 0, 1, &(mica_random){7, 40, NULL}, y));
        if (threads == 3)
            must(mica_random_normal(encoder, 0, 1, &(mica_random){7, 1040, NULL}, tail));
        must(mica_encoder_commit_and_wait(encoder));
        mica_encoder_release(encoder);
        must(mica_buffer_read(y, 0, threads == 1 ? first : other, (uint64_t)COUNT * 4));
        if (threads > 1)
            assert_memory_equal(first, other, COUNT * sizeof *first);
        mica_buffer_release(tail);
        mica_buffer_release(y);
        mica_device_release(device);
    }
    free(first);
    free(other);
}

/* A recording draws anew each time, from a state that it moves on itself. */
static void test_replay(void **state)
{
    enum { COUNT = 300, TIMES = 3 };
    const trial t = {UNIFORM, MICA_DTYPE_F32, 0, 1, 5, 11};
    const uint64_t shape[1] = {COUNT}, two[1] = {2}, start[2] = {3, UINT64_MAX - 4};

    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        mica_session *session;
        mica_recording *recording;
        mica_buffer *place, *offset;
        test_random random;
        test_tensor y;

        if (devices[d] == NULL)
            continue;
        random = test_random_from(2);
        test_tensor_init(&y, &random, "y", MICA_DTYPE_F32, 1, shape, TEST_CONTIGUOUS);
        must(test_tensor_upload(&y, devices[d]));
        must(mica_buffer_alloc(devices[d], MICA_DTYPE_U64, 1, two, &place));
        must(mica_buffer_write(place, 0, start, sizeof start));
        must(mica_buffer_slice(place, 0, 1, 1, &offset));
        must(mica_session_begin(devices[d], NULL, MICA_SESSION_RECORD, &session));
        must(draw(mica_session_encoder(session), &t, place, y.view));
        must(mica_advance(mica_session_encoder(session), COUNT, offset));
        must(mica_session_record(session, MICA_FINISH_FUSE, NULL, &recording));
        for (uint64_t i = 0; i < TIMES; i++) {
            must(mica_recording_replay_and_wait(recording));
            must(test_tensor_fetch(&y));
            compare(&t, &y, t.seed + start[0], t.offset + start[1] + i * COUNT);
        }
        mica_recording_release(recording);
        mica_session_release(session);
        mica_buffer_release(offset);
        mica_buffer_release(place);
        test_tensor_unload(&y);
        test_tensor_free(&y);
    }
}

/* ---- probabilities in a buffer, dropout, categories ---- */

static void test_probability(void **state)
{
    static const double p[6] = {0, 1, 0.25, (double)NAN, -1, 2};
    const uint64_t columns[1] = {6}, shape[2] = {50, 6};

    (void)state;
    for (int d = 0; d < DEVICES; d++)
        for (int type = 0; type < 3 && devices[d] != NULL; type++) {
            const mica_dtype dtype = type == 0   ? MICA_DTYPE_F32
                                     : type == 1 ? MICA_DTYPE_BF16
                                                 : MICA_DTYPE_F64;
            mica_buffer *probability, *y;
            mica_encoder *encoder;
            uint8_t got[300];

            if (d > 0 && type == 2)
                continue;
            must(mica_buffer_alloc(devices[d], dtype, 1, columns, &probability));
            must(mica_buffer_alloc(devices[d], MICA_DTYPE_BOOL, 2, shape, &y));
            for (uint64_t i = 0, bytes = oracle_block_bytes(dtype); i < 6; i++) {
                uint8_t element[8];

                oracle_put(dtype, p[i], element);
                must(mica_buffer_write(probability, i * bytes, element, bytes));
            }
            must(mica_encoder_begin(devices[d], NULL, &encoder));
            must(mica_random_bernoulli(encoder, probability, 0, &(mica_random){3, 0, NULL}, y));
            must(mica_encoder_commit_and_wait(encoder));
            mica_encoder_release(encoder);
            must(mica_buffer_read(y, 0, got, sizeof got));
            for (uint64_t i = 0; i < 300; i++)
                assert_int_equal(got[i], oracle_random_u24(oracle_random(3, i)) < p[i % 6]);
            mica_buffer_release(probability);
            mica_buffer_release(y);
        }
}

/* y, then the same of dy: what was dropped has no gradient, what stayed has 1 / (1 - p). */
static void drop(mica_device *device, double p, mica_dtype from, mica_dtype to)
{
    enum { COUNT = 500 };
    const uint64_t shape[2] = {20, 25};
    test_tensor x, y, dx;
    test_random random;
    mica_encoder *encoder;
    const mica_random numbers = {9, 100, NULL};

    random = test_random_from(4);
    test_tensor_init(&x, &random, "x", from, 2, shape, TEST_ANY);
    test_tensor_normal(&x, &random, 1);
    test_tensor_set(&x, 3, (double)INFINITY);
    test_tensor_init(&y, &random, "y", to, 2, shape, TEST_ANY);
    test_tensor_init(&dx, &random, "dx", to, 2, shape, TEST_CONTIGUOUS);
    for (uint64_t i = 0; i < COUNT; i++)
        test_tensor_set(&dx, i, 1);
    must(test_tensor_upload(&x, device));
    must(test_tensor_upload(&y, device));
    must(test_tensor_upload(&dx, device));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_dropout(encoder, x.view, p, &numbers, y.view));
    must(mica_dropout(encoder, dx.view, p, &numbers, dx.view));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(test_tensor_fetch(&y));
    must(test_tensor_fetch(&dx));
    for (uint64_t i = 0; i < COUNT; i++) {
        const bool stays = p < 1 && oracle_random_u24(oracle_random(9, 100 + i)) >= (double)(float)p;
        const double factor = stays ? 1 / (1 - p) : 0, wanted = stays ? test_tensor_get(&x, i) * factor : 0,
                     got = oracle_get(to, y.after + test_tensor_place(&y, i)),
                     slope = oracle_get(to, dx.after + test_tensor_place(&dx, i));

        if (got != wanted && !(fabs(got - wanted) <= fabs(wanted) * 0x1p-22 + store_error(to, wanted)))
            fail_msg("element %llu of dropout is %g, not %g", (unsigned long long)i, got, wanted);
        if (!(fabs(slope - factor) <= factor * 0x1p-23 + store_error(to, factor)))
            fail_msg("its gradient is %g, not %g", slope, factor);
    }
    test_tensor_unload(&x), test_tensor_unload(&y), test_tensor_unload(&dx);
    test_tensor_free(&x), test_tensor_free(&y), test_tensor_free(&dx);
}

static void test_dropout(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        if (devices[d] == NULL)
            continue;
        drop(devices[d], 0.1, MICA_DTYPE_F32, MICA_DTYPE_F32);
        drop(devices[d], 0.5, MICA_DTYPE_F16, MICA_DTYPE_F32);
        drop(devices[d], 0.75, MICA_DTYPE_F32, MICA_DTYPE_BF16);
        drop(devices[d], 0, MICA_DTYPE_F32, MICA_DTYPE_F32);
        drop(devices[d], 1, MICA_DTYPE_BF16, MICA_DTYPE_F16);
        if (d == 0)
            drop(devices[d], 0.3, MICA_DTYPE_F64, MICA_DTYPE_F64);
    }
}

/* The chosen one is the greatest, to the rounding of the noise. */
static void check_choices(const test_tensor *logits, const test_tensor *ids, const mica_random *random)
{
    const uint64_t n = logits->shape[1];

    for (uint64_t r = 0; r < logits->shape[0]; r++) {
        double best = -(double)INFINITY, chosen = -(double)INFINITY, slack = 0;
        const uint32_t id = (uint32_t)oracle_get(MICA_DTYPE_U32, ids->after + test_tensor_place(ids, r));

        assert_true(id < n);
        for (uint64_t j = 0; j < n; j++) {
            double error;
            const double noise = oracle_random_gumbel(
                logits->dtype, oracle_random(random->seed, random->offset + r * n + j), &error);
            const double score = test_tensor_get(logits, r * n + j) + noise;

            error += fabs(score) * (logits->dtype == MICA_DTYPE_F64 ? 0x1p-52 : 0x1p-24);
            if (j == id)
                chosen = score;
            if (score > best)
                best = score;
            if (isfinite(score))
                slack = fmax(slack, 2 * error);
        }
        if (best == -(double)INFINITY)
            assert_int_equal(id, 0);
        else if (!(chosen >= best - slack))
            fail_msg("row %llu chose %u, whose score is %g, the best %g", (unsigned long long)r, id, chosen,
                     best);
    }
}

static void choose(mica_device *device, mica_dtype dtype, bool in_place)
{
    const uint64_t shape[2] = {40, 33};
    const mica_random numbers = {77, 5, NULL};
    test_tensor logits, work, ids;
    test_random random;
    mica_encoder *encoder;

    random = test_random_from(6);
    test_tensor_init(&logits, &random, "logits", dtype, 2, shape, in_place ? TEST_CONTIGUOUS : TEST_ANY);
    test_tensor_init(&work, &random, "work", dtype == MICA_DTYPE_F64 ? dtype : MICA_DTYPE_F32, 2, shape,
                     TEST_ANY);
    test_tensor_init(&ids, &random, "ids", MICA_DTYPE_U32, 1, shape, TEST_ANY);
    test_tensor_normal(&logits, &random, 2);
    for (uint64_t j = 0; j < 33; j++) {
        test_tensor_set(&logits, 33 + j, j == 20 ? 0 : -(double)INFINITY);
        test_tensor_set(&logits, 66 + j, -(double)INFINITY);
        test_tensor_set(&logits, 99 + j, j % 2 == 0 ? (double)NAN : 1);
    }
    must(test_tensor_upload(&logits, device));
    must(test_tensor_upload(&work, device));
    must(test_tensor_upload(&ids, device));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_random_categorical(encoder, logits.view, &numbers, in_place ? logits.view : work.view,
                                 ids.view));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(test_tensor_fetch(&ids));
    check_choices(&logits, &ids, &numbers);
    assert_int_equal(oracle_get(MICA_DTYPE_U32, ids.after + test_tensor_place(&ids, 1)), 20);
    test_tensor_unload(&logits), test_tensor_unload(&work), test_tensor_unload(&ids);
    test_tensor_free(&logits), test_tensor_free(&work), test_tensor_free(&ids);
}

static void test_categorical(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++) {
        if (devices[d] == NULL)
            continue;
        choose(devices[d], MICA_DTYPE_F32, false);
        choose(devices[d], MICA_DTYPE_F32, true);
        choose(devices[d], MICA_DTYPE_BF16, false);
        if (d == 0)
            choose(devices[d], MICA_DTYPE_F64, false);
    }
}

/* ---- distributions ---- */

enum { SAMPLES = 1 << 16 };

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return x < y ? -1 : x > y;
}

static double normal_cdf(double z)
{
    return 0.5 * erfc(-z / sqrt(2));
}

static double uniform_cdf(double u)
{
    return u;
}

/* Greatest distance of the two distributions (Kolmogorov and Smirnov): over 2.5 / sqrt(n) with probability 2 e^-12.5, below 1e-5. */
static void check_distribution(float *value, double (*cdf)(double))
{
    double most = 0;

    qsort(value, SAMPLES, sizeof *value, by_value);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        const double at = cdf((double)value[i]);

        most = fmax(most, fmax(at - i / (double)SAMPLES, (i + 1) / (double)SAMPLES - at));
    }
    if (!(most < 2.5 / sqrt(SAMPLES)))
        fail_msg("the distributions are %g apart", most);
}

/* Neighbours, and the same places of two seeds: a correlation is over 5 / sqrt(n) with probability 6e-7. */
static void check_independent(const float *a, const float *b, double mean, double variance)
{
    double sum = 0;

    for (uint32_t i = 0; i < SAMPLES; i++)
        sum += ((double)a[i] - mean) * ((double)b[i] - mean);
    if (!(fabs(sum / SAMPLES / variance) < 5 / sqrt(SAMPLES)))
        fail_msg("the correlation is %g", sum / SAMPLES / variance);
}

static void draw_samples(const trial *t, float *out)
{
    const uint64_t shape[1] = {SAMPLES + 1};
    mica_encoder *encoder;
    mica_buffer *y;

    must(mica_buffer_alloc(devices[0], MICA_DTYPE_F32, 1, shape, &y));
    must(mica_encoder_begin(devices[0], NULL, &encoder));
    must(draw(encoder, t, NULL, y));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_buffer_read(y, 0, out, (SAMPLES + 1) * sizeof *out));
    mica_buffer_release(y);
}

static void test_distributions(void **state)
{
    float *a = test_alloc(SAMPLES + 1, 4), *b = test_alloc(SAMPLES + 1, 4);
    const trial normal = {NORMAL, MICA_DTYPE_F32, 0, 1, 1, 0},
                uniform = {UNIFORM, MICA_DTYPE_F32, 0, 1, 1, 0},
                other = {UNIFORM, MICA_DTYPE_F32, 0, 1, 2, 0},
                rare = {BERNOULLI, MICA_DTYPE_F32, 0.01, 0, 3, 0};
    double hits = 0;

    (void)state;
    draw_samples(&uniform, a);
    draw_samples(&other, b);
    check_independent(a, a + 1, 0.5, 1.0 / 12);
    check_independent(a, b, 0.5, 1.0 / 12);
    check_distribution(a, uniform_cdf);
    draw_samples(&normal, a);
    check_independent(a, a + 1, 0, 1);
    check_distribution(a, normal_cdf);
    draw_samples(&rare, b);
    for (uint32_t i = 0; i < SAMPLES; i++)
        hits += (double)b[i];
    assert_true(fabs(hits - 0.01 * SAMPLES) < 5 * sqrt(0.01 * 0.99 * SAMPLES));
    free(a);
    free(b);
}

/* Chi-square of 7 categories of which 6 are free: over 42 with probability 2e-7. */
static void test_categories(void **state)
{
    enum { N = 7, ROWS = 4096 };
    static const float logit[N] = {0, 1, 2, -1, 0.5f, -3, -INFINITY};
    const uint64_t shape[2] = {ROWS, N};
    double total = 0, square = 0;
    uint32_t *ids = test_alloc(ROWS, 4), count[N] = {0};
    float *rows = test_alloc((size_t)ROWS * N, 4);
    mica_buffer *logits, *chosen;
    mica_encoder *encoder;

    (void)state;
    for (uint32_t i = 0; i < ROWS * N; i++)
        rows[i] = logit[i % N];
    must(mica_buffer_alloc(devices[0], MICA_DTYPE_F32, 2, shape, &logits));
    must(mica_buffer_alloc(devices[0], MICA_DTYPE_U32, 1, shape, &chosen));
    must(mica_buffer_write(logits, 0, rows, (uint64_t)ROWS * N * 4));
    must(mica_encoder_begin(devices[0], NULL, &encoder));
    must(mica_random_categorical(encoder, logits, NULL, logits, chosen));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_buffer_read(chosen, 0, ids, ROWS * sizeof *ids));
    for (uint32_t i = 0; i < ROWS; i++)
        count[ids[i]]++;
    for (uint32_t j = 0; j < N; j++)
        total += exp((double)logit[j]);
    for (uint32_t j = 0; j + 1 < N; j++) {
        const double wanted = ROWS * exp((double)logit[j]) / total;

        square += (count[j] - wanted) * (count[j] - wanted) / wanted;
    }
    assert_int_equal(count[N - 1], 0);
    assert_true(square < 42);
    mica_buffer_release(logits);
    mica_buffer_release(chosen);
    free(ids);
    free(rows);
}

/* ---- refused ---- */

static void test_refused(void **state)
{
    const mica_status bad = MICA_ERR_INVALID_ARGUMENT;
    const uint64_t shape[2] = {2, 3};
    mica_device *device = devices[0];
    mica_buffer *f32, *f16, *u8, *u64, *ids, *truth;
    mica_encoder *encoder;
    mica_encoder_stats stats;

    (void)state;
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, shape, &f32));
    must(mica_buffer_alloc(device, MICA_DTYPE_F16, 2, shape, &f16));
    must(mica_buffer_alloc(device, MICA_DTYPE_U8, 2, shape, &u8));
    must(mica_buffer_alloc(device, MICA_DTYPE_U64, 1, shape, &u64));
    must(mica_buffer_alloc(device, MICA_DTYPE_U32, 1, shape, &ids));
    must(mica_buffer_alloc(device, MICA_DTYPE_BOOL, 2, shape, &truth));
    must(mica_encoder_begin(device, NULL, &encoder));
    refused(mica_random_bits(encoder, NULL, f32), bad, "y is f32");
    refused(mica_random_bits(encoder, NULL, truth), bad, "y is bool");
    refused(mica_random_bits(encoder, NULL, NULL), bad, "y is NULL");
    refused(mica_random_bits(NULL, NULL, u8), bad, "encoder");
    refused(mica_random_bits(encoder, &(mica_random){0, 0, f32}, u8), bad, "random.state");
    refused(mica_random_bits(encoder, &(mica_random){0, 0, u64}, u64), bad, "overlaps");
    refused(mica_random_uniform(encoder, 1, 1, NULL, f32), bad, "low");
    refused(mica_random_uniform(encoder, (double)NAN, 1, NULL, f32), bad, "low");
    refused(mica_random_uniform(encoder, -3e38, 3e38, NULL, f32), bad, "high");
    refused(mica_random_uniform(encoder, 0, (double)INFINITY, NULL, f32), bad, "high");
    refused(mica_random_uniform(encoder, 1.0001, 1.0002, NULL, f16), bad, "no number of f16");
    refused(mica_random_uniform(encoder, 0, 1, NULL, u8), bad, "y is u8");
    refused(mica_random_normal(encoder, (double)NAN, 1, NULL, f32), bad, "mean");
    refused(mica_random_normal(encoder, 0, -1, NULL, f32), bad, "deviation");
    refused(mica_random_normal(encoder, 0, 1e39, NULL, f32), bad, "deviation");
    refused(mica_random_normal(encoder, 0, 1, NULL, u8), bad, "y is u8");
    refused(mica_random_bernoulli(encoder, u8, 0, NULL, f32), bad, "probability is u8");
    refused(mica_random_bernoulli(encoder, f32, 0, NULL, u64), bad, "probability");
    refused(mica_random_integers(encoder, 3, 3, NULL, u8), bad, "high");
    refused(mica_random_integers(encoder, -1, 3, NULL, u8), bad, "low -1");
    refused(mica_random_integers(encoder, 0, 257, NULL, u8), bad, "high 257");
    refused(mica_random_integers(encoder, INT64_MIN, INT64_MAX, NULL, u64), bad, "2^32");
    refused(mica_random_integers(encoder, 0, 4, NULL, f32), bad, "y is f32");
    refused(mica_dropout(encoder, f32, 1.5, NULL, f32), bad, "p is 1.5");
    refused(mica_dropout(encoder, f32, (double)NAN, NULL, f32), bad, "p is");
    refused(mica_dropout(encoder, u8, 0.5, NULL, f32), bad, "x is u8");
    refused(mica_dropout(encoder, NULL, 0.5, NULL, f32), bad, "x is NULL");
    refused(mica_random_categorical(encoder, f32, NULL, f16, ids), bad, "work is f16");
    refused(mica_random_categorical(encoder, f32, NULL, NULL, ids), bad, "work is NULL");
    refused(mica_random_categorical(encoder, f32, NULL, f32, f32), bad, "ids is f32");
    refused(mica_random_categorical(encoder, u8, NULL, f32, ids), bad, "logits is u8");
    must(mica_encoder_get_stats(encoder, &stats));
    assert_int_equal(stats.records, 0);
    mica_encoder_release(encoder);
    mica_buffer *all[] = {f32, f16, u8, u64, ids, truth};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers), cmocka_unit_test(test_draws),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_replay),
        cmocka_unit_test(test_probability),   cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_categorical),   cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_categories),    cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
