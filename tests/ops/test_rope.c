/*
 * test_rope.c - rotary embeddings by several axes, of halves of a head, turned back, to several outputs; wrong parameters, by name. On the cpu.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/random.h"
#include "support/status.h"

enum { TOKENS = 3, HEADS = 2, DIM = 16, PAIRS = DIM / 2, ALL = TOKENS * HEADS * DIM };
#define THETA 100.0f
#define ROOM 1e-5 /* angles up to 40 in f32, of values of about 1 */
#define SHAPE(...) ((const uint64_t[]){__VA_ARGS__})

static mica_device *device;
static test_random source;

static int open_device(void **state)
{
    (void)state;
    source = test_random_from(9);
    return mica_device_open("cpu", NULL, &device) == MICA_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    mica_device_release(device);
    return mica_host_bytes() == 0 ? 0 : -1;
}

static mica_buffer *empty(mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

static mica_buffer *drawn(float *values)
{
    mica_buffer *x = empty(MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, DIM));

    for (size_t i = 0; i < ALL; i++)
        values[i] = (float)test_random_normal(&source);
    must(mica_buffer_write(x, 0, values, ALL * sizeof *values));
    return x;
}

static mica_buffer *drawn_positions(uint64_t axes, int32_t *values)
{
    mica_buffer *positions = empty(MICA_DTYPE_I32, 2, SHAPE(axes, TOKENS));

    for (size_t i = 0; i < axes * TOKENS; i++)
        values[i] = (int32_t)test_random_below(&source, 40);
    must(mica_buffer_write(positions, 0, values, axes * TOKENS * sizeof *values));
    return positions;
}

static mica_encoder *begin(void)
{
    mica_encoder *encoder = NULL;

    must(mica_encoder_begin(device, NULL, &encoder));
    return encoder;
}

static void run(mica_encoder *encoder)
{
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
}

/* One pair by one angle: elements a and b of x. */
static void is_turned(const float *x, const float *y, size_t a, size_t b, double angle)
{
    const double c = cos(angle), s = sin(angle), xa = (double)x[a], xb = (double)x[b];

    if (fabs((double)y[a] - (xa * c - xb * s)) > ROOM || fabs((double)y[b] - (xa * s + xb * c)) > ROOM)
        fail_msg("elements %zu and %zu are %g and %g, wanted %g and %g", a, b, (double)y[a], (double)y[b],
                 xa * c - xb * s, xa * s + xb * c);
}

/* ---- axes ---- */

/* Eight pairs by hand: sections of 3, 2, 3 pairs; interleaved ones of 3, 2, 2, whose last pair is nobody's; separate ones of 4 and 4. */
static void test_axes(void **state)
{
    static const struct {
        mica_rope_axes axes;
        uint32_t sections[4], count, axis[PAIRS];
        double exponent[PAIRS]; /* of theta, negative */
    } cases[] = {
        {MICA_ROPE_AXES_SECTIONS,
         {3, 2, 3},
         3,
         {0, 0, 0, 1, 1, 2, 2, 2},
         {0, .125, .25, .375, .5, .625, .75, .875}},
        {MICA_ROPE_AXES_INTERLEAVED,
         {3, 2, 2, 1},
         4,
         {0, 1, 2, 0, 1, 2, 0, 3},
         {0, .125, .25, .375, .5, .625, .75, .875}},
        {MICA_ROPE_AXES_INTERLEAVED,
         {4, 2, 2},
         3,
         {0, 1, 2, 0, 1, 2, 0, 0},
         {0, .125, .25, .375, .5, .625, .75, .875}},
        {MICA_ROPE_AXES_SEPARATE, {4, 4}, 2, {0, 0, 0, 0, 1, 1, 1, 1}, {0, .25, .5, .75, 0, .25, .5, .75}},
    };

    (void)state;
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        const size_t i = k / 2;
        float x[ALL], y[ALL];
        int32_t at[4 * TOKENS];
        mica_rope_params params = {
            .mode = k % 2 != 0 ? MICA_ROPE_NEOX : MICA_ROPE_STANDARD, .theta = THETA, .axes = cases[i].axes};
        mica_buffer *bx = drawn(x), *positions = drawn_positions(cases[i].count, at);
        mica_encoder *e = begin();

        memcpy(params.sections, cases[i].sections, sizeof params.sections);
        must(mica_rope(e, bx, positions, NULL, &params, bx));
        run(e);
        must(mica_buffer_read(bx, 0, y, sizeof y));
        for (size_t row = 0; row < TOKENS * HEADS; row++)
            for (size_t pair = 0; pair < PAIRS; pair++) {
                const double position = at[cases[i].axis[pair] * TOKENS + row / HEADS];
                const size_t first = k % 2 != 0 ? pair : 2 * pair,
                             second = k % 2 != 0 ? pair + PAIRS : 2 * pair + 1;

                is_turned(x + row * DIM, y + row * DIM, first, second,
                          position * pow((double)THETA, -cases[i].exponent[pair]));
            }
        mica_buffer_release(bx);
        mica_buffer_release(positions);
    }
}

/* Each half of a head by its own axis, pairs (i, i + DIM / 4) within it. */
static void test_2d(void **state)
{
    const mica_rope_params params = {.mode = MICA_ROPE_NEOX, .theta = THETA};
    float x[ALL], y[ALL];
    int32_t at[2 * TOKENS];
    mica_buffer *bx = drawn(x), *positions = drawn_positions(2, at),
                *by = empty(MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, DIM));
    mica_encoder *e = begin();

    (void)state;
    must(mica_rope_2d(e, bx, positions, &params, by));
    run(e);
    must(mica_buffer_read(by, 0, y, sizeof y));
    for (size_t row = 0; row < TOKENS * HEADS; row++)
        for (size_t half = 0; half < 2; half++)
            for (size_t i = 0; i < DIM / 4; i++)
                is_turned(x + row * DIM + half * PAIRS, y + row * DIM + half * PAIRS, i, i + DIM / 4,
                          at[half * TOKENS + row / HEADS] * pow((double)THETA, -2.0 * (double)i / PAIRS));
    mica_buffer_release(bx);
    mica_buffer_release(by);
    mica_buffer_release(positions);
}

/* ---- the gradient: a rotation is linear, so sum(dy rope(x)) = sum(rope_backward(dy) x) ---- */

static void test_backward(void **state)
{
    const mica_rope_params params = {.mode = MICA_ROPE_NEOX,
                                     .theta = THETA,
                                     .rotary_dims = 12,
                                     .attention_scale = 1.25f,
                                     .position_scale = 0.5f,
                                     .axes = MICA_ROPE_AXES_SECTIONS,
                                     .sections = {2, 2, 1}};
    float x[ALL], y[ALL], dy[ALL], dx[ALL];
    int32_t at[3 * TOKENS];
    double forward = 0, back = 0;
    mica_buffer *bx = drawn(x), *bdy = drawn(dy), *positions = drawn_positions(3, at),
                *by = empty(MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, DIM));
    mica_encoder *e = begin();

    (void)state;
    must(mica_rope(e, bx, positions, NULL, &params, by));
    must(mica_rope_backward(e, bdy, positions, NULL, &params, bdy));
    run(e);
    must(mica_buffer_read(by, 0, y, sizeof y));
    must(mica_buffer_read(bdy, 0, dx, sizeof dx));
    for (size_t i = 0; i < ALL; i++) {
        forward += (double)dy[i] * (double)y[i];
        back += (double)dx[i] * (double)x[i];
    }
    assert_true(fabs(forward - back) < 1e-4);
    mica_buffer_release(bx);
    mica_buffer_release(by);
    mica_buffer_release(bdy);
    mica_buffer_release(positions);
}

/* ---- a norm of heads, then three outputs: f32, bf16 with the heads first, f32 with the heads first ---- */

static void test_several_outputs(void **state)
{
    const mica_rope_params params = {.mode = MICA_ROPE_NEOX, .theta = THETA};
    const uint32_t order[] = {1, 0, 2};
    float x[ALL], y[ALL], permuted[ALL], half[ALL];
    int32_t at[TOKENS] = {3, 0, 17};
    mica_buffer *bx = drawn(x), *n = empty(MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, DIM)),
                *by = empty(MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, DIM)),
                *wide = empty(MICA_DTYPE_F32, 3, SHAPE(HEADS, TOKENS, DIM)),
                *narrow = empty(MICA_DTYPE_BF16, 3, SHAPE(HEADS, TOKENS, DIM)),
                *again = empty(MICA_DTYPE_F32, 3, SHAPE(HEADS, TOKENS, DIM)),
                *positions = empty(MICA_DTYPE_I32, 1, SHAPE(TOKENS)), *wide_view = NULL, *narrow_view = NULL;
    mica_encoder *e = begin();

    (void)state;
    must(mica_buffer_write(positions, 0, at, sizeof at));
    must(mica_buffer_permute(wide, order, &wide_view));
    must(mica_buffer_permute(narrow, order, &narrow_view));
    must(mica_rms_norm(e, bx, NULL, 1e-6f, n));
    must(mica_rope(e, n, positions, NULL, &params, by));
    must(mica_rope(e, n, positions, NULL, &params, narrow_view));
    must(mica_rope(e, n, positions, NULL, &params, wide_view));
    must(mica_copy(e, narrow, again));
    run(e);
    must(mica_buffer_read(by, 0, y, sizeof y));
    must(mica_buffer_read(wide, 0, permuted, sizeof permuted));
    must(mica_buffer_read(again, 0, half, sizeof half));
    for (size_t row = 0; row < TOKENS * HEADS; row++) {
        const size_t t = row / HEADS, h = row % HEADS, other = (h * TOKENS + t) * DIM;
        double squares = 0;
        float normed[DIM];

        for (size_t i = 0; i < DIM; i++)
            squares += (double)x[row * DIM + i] * (double)x[row * DIM + i];
        for (size_t i = 0; i < DIM; i++)
            normed[i] = (float)((double)x[row * DIM + i] / sqrt(squares / DIM + 1e-6));
        for (size_t i = 0; i < PAIRS; i++)
            is_turned(normed, y + row * DIM, i, i + PAIRS, at[t] * pow((double)THETA, -(double)i / PAIRS));
        assert_memory_equal(permuted + other, y + row * DIM, DIM * sizeof *y);
        for (size_t i = 0; i < DIM; i++)
            assert_true(fabs((double)half[other + i] - (double)y[row * DIM + i]) <=
                        0x1p-8 * fabs((double)y[row * DIM + i]));
    }
    mica_buffer *const all[] = {bx, n, by, wide, narrow, again, positions, wide_view, narrow_view};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

/* ---- what is refused ---- */

static void refuse(mica_encoder *e, mica_buffer *x, mica_buffer *positions, mica_rope_params params,
                   const char *word)
{
    params.theta = THETA;
    refused(mica_rope(e, x, positions, NULL, &params, x), MICA_ERR_INVALID_ARGUMENT, word);
}

static void test_refused(void **state)
{
    int32_t at[5 * TOKENS];
    float values[ALL];
    mica_buffer *x = drawn(values), *one = empty(MICA_DTYPE_I32, 1, SHAPE(TOKENS)),
                *two = drawn_positions(2, at), *five = drawn_positions(5, at);
    mica_encoder *e = begin();
    const mica_rope_params plain = {.theta = THETA}, partial = {.theta = THETA, .rotary_dims = 8};

    (void)state;
    refuse(e, x, two, (mica_rope_params){.axes = 4, .sections = {4, 4}}, "params.axes");
    refuse(e, x, two, (mica_rope_params){.axes = 0}, "positions has 2");
    refuse(e, x, one, (mica_rope_params){.axes = 1, .sections = {4, 4}}, "positions has 1");
    refuse(e, x, one, (mica_rope_params){.sections = {4, 4}}, "params.sections");
    refuse(e, x, two, (mica_rope_params){.axes = 1}, "params.sections have 0 pairs");
    refuse(e, x, two, (mica_rope_params){.axes = 1, .sections = {4, 5}}, "params.sections have 9 pairs");
    refuse(e, x, two, (mica_rope_params){.axes = 1, .sections = {4, 2, 1}}, "params.sections[2]");
    refuse(e, x, two, (mica_rope_params){.axes = 2, .sections = {4, 4}}, "3 or 4");
    refuse(e, x, five, (mica_rope_params){.axes = 1, .sections = {4, 4}}, "positions has 5 axes");
    refused(mica_rope_2d(e, x, one, &plain, x), MICA_ERR_INVALID_ARGUMENT, "positions");
    refused(mica_rope_2d(e, x, two, &partial, x), MICA_ERR_INVALID_ARGUMENT, "rotary_dims");
    refused(mica_rope_2d(e, x, two, NULL, x), MICA_ERR_INVALID_ARGUMENT, "params");
    refused(mica_rope_backward(e, x, one, NULL, NULL, x), MICA_ERR_INVALID_ARGUMENT, "params");
    mica_encoder_release(e);
    mica_buffer_release(x);
    mica_buffer_release(one);
    mica_buffer_release(two);
    mica_buffer_release(five);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_axes),
        cmocka_unit_test(test_2d),
        cmocka_unit_test(test_several_outputs),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests_name("rope", tests, open_device, close_device);
}
