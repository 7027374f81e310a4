/*
 * test_experts_golden.c - routing and its gradient against the routers of transformers and PyTorch's gradients: tests/golden/experts.txt, made by
 * scripts/golden_experts.py. On every device.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "ops/golden_lines.h"
#include "mica/mica.h"
#include "support/each_device.h"
#include "support/status.h"

enum { TOKENS = 6, EXPERTS = 12, SLOTS = 3, CHOSEN = TOKENS * SLOTS, ALL = TOKENS * EXPERTS };
enum { SOFTMAX_FIRST, NORMALISE, SCALE, SCORING, GROUPS, TOP_GROUPS, GROUP_BEST, BIASED, SCALED, NUMBERS };

static mica_buffer *made(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                         const float *x, uint64_t count)
{
    mica_buffer *buffer;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    if (x != NULL)
        must(mica_buffer_write(buffer, 0, x, count * sizeof *x));
    return buffer;
}

static void compare(const char *name, const char *what, mica_buffer *buffer, const double *wanted,
                    uint32_t count)
{
    float got[ALL];

    must(mica_buffer_read(buffer, 0, got, count * sizeof *got));
    for (uint32_t i = 0; i < count; i++) /* both in f32: some dozens of roundings of values around one */
        if (!(fabs(got[i] - wanted[i]) < 64 * 0x1p-24 * (1 + fabs(wanted[i]))))
            fail_msg("%s: %s %u is %.9g, not %.9g", name, what, i, (double)got[i], wanted[i]);
}

static void check(mica_device *device, const golden_line *line)
{
    const double *n = line->number;
    const mica_route_params params = {.softmax_first = (uint32_t)n[SOFTMAX_FIRST],
                                      .normalise = (uint32_t)n[NORMALISE],
                                      .scale = (float)n[SCALE],
                                      .scoring = (uint32_t)n[SCORING],
                                      .groups = (uint32_t)n[GROUPS],
                                      .top_groups = (uint32_t)n[TOP_GROUPS],
                                      .group_best = (uint32_t)n[GROUP_BEST]};
    float logit[ALL], reach[CHOSEN], bias[EXPERTS], own[EXPERTS];
    uint32_t id[CHOSEN];

    for (uint32_t i = 0; i < ALL; i++)
        logit[i] = (float)(golden_value(0, i) + i % EXPERTS / 1024.0);
    for (uint32_t i = 0; i < CHOSEN; i++)
        reach[i] = (float)golden_value(1, i);
    for (uint32_t i = 0; i < EXPERTS; i++) {
        bias[i] = (float)(golden_value(2, i) / 4);
        own[i] = (float)(1 + golden_value(3, i) / 4);
    }
    mica_buffer *logits = made(device, MICA_DTYPE_F32, 2, SHAPE(TOKENS, EXPERTS), logit, ALL),
                *biases = made(device, MICA_DTYPE_F32, 1, SHAPE(EXPERTS), bias, EXPERTS),
                *scales =
                    n[SCALED] != 0 ? made(device, MICA_DTYPE_F32, 1, SHAPE(EXPERTS), own, EXPERTS) : NULL,
                *dweights = made(device, MICA_DTYPE_F32, 2, SHAPE(TOKENS, SLOTS), reach, CHOSEN),
                *ids = made(device, MICA_DTYPE_U32, 2, SHAPE(TOKENS, SLOTS), NULL, 0),
                *weights = made(device, MICA_DTYPE_F32, 2, SHAPE(TOKENS, SLOTS), NULL, 0),
                *dlogits = made(device, MICA_DTYPE_F32, 2, SHAPE(TOKENS, EXPERTS), NULL, 0);
    must(mica_route(encoder, logits, n[BIASED] != 0 ? biases : NULL, scales, &params, ids, weights));
    must(mica_route_backward(encoder, logits, scales, ids, dweights, &params, dlogits));
    end();
    must(mica_buffer_read(ids, 0, id, sizeof id));
    for (uint32_t i = 0; i < CHOSEN; i++)
        if (id[i] != (uint32_t)line->result[i])
            fail_msg("%s: id %u is %u, not %g", line->name, i, id[i], line->result[i]);
    compare(line->name, "weight", weights, line->result + CHOSEN, CHOSEN);
    compare(line->name, "gradient", dlogits, line->result + 2 * CHOSEN, ALL);
    mica_buffer *const all[] = {logits, biases, scales, dweights, ids, weights, dlogits};
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_routers(void **state)
{
    (void)state;
    FILE *file = fopen("tests/golden/experts.txt", "r");
    static golden_line line;
    uint32_t cases = 0;
    int more;

    assert_non_null(file);
    while ((more = golden_next(file, &line)) == 1) {
        assert_int_equal(line.numbers, NUMBERS);
        assert_int_equal(line.results, 2 * CHOSEN + ALL);
        ON_EACH(device) check(device, &line);
        cases++;
    }
    assert_int_equal(more, 0);
    assert_int_equal(cases, 8);
    (void)fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_routers)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
