/*
 * test_experts_backward.c - the gradient of a mixture of experts out of its ops, with respect to x, to the router's logits and to the experts' weights, against central
 * differences of the formula in double, for every way of scoring; experts of limited capacity: rows dispatched, multiplied and combined by places in
 * line, against the formula; and what is refused. On every device.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "oracle/oracle_ops.h"
#include "support/each_device.h"
#include "support/random.h"
#include "support/status.h"

enum { T = 9, E = 5, S = 2, N = 7, K = 6, MOST = 48 };

static mica_buffer *made[MOST];
static int made_count;

static mica_buffer *made_of(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                            const double *x)
{
    uint64_t count = 1;
    mica_buffer *buffer;

    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    for (uint64_t i = 0; x != NULL && i < count; i++) {
        const float value = (float)x[i];

        must(mica_buffer_write(buffer, i * sizeof value, &value, sizeof value));
    }
    return made[made_count++] = buffer;
}
#define MADE(dtype, x, ...)                                                                   \
    made_of(device, MICA_DTYPE_##dtype, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), \
            (uint64_t[]){__VA_ARGS__}, x)

/* A view with these strides in elements; NULL: contiguous. */
static mica_buffer *seen(mica_buffer *buffer, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                         const uint64_t *elements)
{
    uint64_t stride[MICA_MAX_DIMS];
    mica_buffer *view;

    for (uint32_t d = 0; elements != NULL && d < ndim; d++)
        stride[d] = elements[d] * 4;
    must(mica_buffer_view(buffer, dtype, ndim, shape, elements != NULL ? stride : NULL, 0, &view));
    return made[made_count++] = view;
}
#define SEEN(dtype, buffer, elements, ...)                                                 \
    seen(buffer, MICA_DTYPE_##dtype, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), \
         (uint64_t[]){__VA_ARGS__}, elements)
#define STRIDES(...) ((const uint64_t[]){__VA_ARGS__})

static void release(void)
{
    while (made_count > 0)
        mica_buffer_release(made[--made_count]);
}

/* ---- the formula ---- */

typedef struct mixture {
    double x[T * K], logits[T * E], weight[E * N * K], dy[T * N];
    double ids[T * S]; /* chosen once: differences do not choose anew */
    mica_route_params params;
} mixture;

static oracle_route route_of(const mixture *m)
{
    return (oracle_route){.rows = T,
                          .experts = E,
                          .slots = S,
                          .logits = m->logits,
                          .softmax_first = m->params.softmax_first != 0,
                          .sigmoid = m->params.scoring == MICA_ROUTE_SIGMOID,
                          .normalise = m->params.normalise != 0,
                          .groups = 1,
                          .top_groups = 1,
                          .group_best = 1,
                          .scale = m->params.scale};
}

static double answer(const mixture *m, uint32_t t, uint32_t e, uint32_t n)
{
    double sum = 0;

    for (uint32_t k = 0; k < K; k++)
        sum += m->weight[(e * N + n) * K + k] * m->x[t * K + k];
    return sum;
}

/* sum dy y */
static double loss(const mixture *m)
{
    const oracle_route route = route_of(m);
    double weights[T * S], error[T * S], sum = 0;

    oracle_route_weights(&route, m->ids, weights, error);
    for (uint32_t i = 0; i < T * S; i++)
        for (uint32_t n = 0; n < N; n++)
            sum += m->dy[i / S * N + n] * weights[i] * answer(m, i / S, (uint32_t)m->ids[i], n);
    return sum;
}

static void draw(mixture *m, test_random *random, const mica_route_params *params)
{
    double *const part[] = {m->x, m->logits, m->weight, m->dy};
    static const uint32_t count[] = {T * K, T * E, E * N * K, T * N};

    m->params = *params;
    for (uint32_t p = 0; p < 4; p++)
        for (uint32_t i = 0; i < count[p]; i++) /* as floats have them */
            part[p][i] = (double)(float)test_random_normal(random);
    const oracle_route route = route_of(m);
    oracle_route_ids(&route, m->ids);
}

/* The slope of the loss along *at. The loss curves by no more than some units around 1, so that the difference is right to 1e-8. */
static double slope(const mixture *m, double *at)
{
    const double step = 0x1p-14, was = *at;

    *at = was + step;
    const double above = loss(m);
    *at = was - step;
    const double below = loss(m);
    *at = was;
    return (above - below) / (2 * step);
}

static void compare(const char *what, const mixture *m, double *at, mica_buffer *buffer, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        float got;

        must(mica_buffer_read(buffer, i * sizeof got, &got, sizeof got));
        const double wanted = slope(m, &at[i]);
        /* Sums of at most 9 * 7 products of values around one, each of which went through softmax: a hundred roundings of the ten that they come to. */
        if (!(fabs(got - wanted) < 100 * 0x1p-24 * (10 + fabs(wanted))))
            fail_msg("%s: element %u is %.9g, not %.9g", what, i, (double)got, wanted);
    }
}

/* ---- the ops ---- */

/* Rows [T, S, width] in the lines of their experts: [E, T, width], zeros where nobody stands. */
static mica_buffer *dispatched(mica_device *device, mica_buffer *rows, mica_buffer *places, uint64_t capacity,
                               uint64_t width)
{
    mica_buffer *lines = MADE(F32, NULL, E * capacity + 1, width), *flat = MADE(F32, NULL, T, S, width);

    must(mica_fill(encoder, 0, lines));
    must(mica_copy(encoder, rows, flat));
    must(mica_scatter(encoder, SEEN(F32, flat, NULL, T * S, width), SEEN(U32, places, NULL, T * S), NULL,
                      lines));
    return lines;
}

static void check_gradients(mica_device *device, mixture *m)
{
    mica_buffer *x = MADE(F32, m->x, T, K), *logits = MADE(F32, m->logits, T, E),
                *weight = MADE(F32, m->weight, E, N, K), *dy = MADE(F32, m->dy, T, N),
                *ids = MADE(U32, NULL, T, S), *weights = MADE(F32, NULL, T, S),
                *said = MADE(F32, NULL, T, S, N), *dsaid = MADE(F32, NULL, T, S, N),
                *dweights = MADE(F32, NULL, T, S), *dslots = MADE(F32, NULL, T, S, K),
                *dx = MADE(F32, NULL, T, K), *dlogits = MADE(F32, NULL, T, E),
                *places = MADE(U32, NULL, T, S), *counts = MADE(U32, NULL, E),
                *dweight = MADE(F32, NULL, E, N, K);

    must(mica_route(encoder, logits, NULL, NULL, &m->params, ids, weights));
    must(mica_matmul_experts(encoder, x, weight, ids, NULL, said));
    /* said' = weights dy, weights' = said . dy */
    must(mica_mul(encoder, SEEN(F32, weights, NULL, T, S, 1), SEEN(F32, dy, NULL, T, 1, N), dsaid));
    must(mica_product(encoder, said, SEEN(F32, dy, NULL, T, N, 1), NULL, SEEN(F32, dweights, NULL, T, S, 1)));
    must(mica_matmul_transposed(encoder, dsaid, weight, ids, dslots));
    must(mica_reduce(encoder, dslots, &(mica_reduce_params){.kind = MICA_REDUCE_SUM, .axes = 2}, dx));
    must(mica_route_backward(encoder, logits, NULL, ids, dweights, &m->params, dlogits));
    /* weight' of an expert = said'^T . x over those in its line, in which all tokens have room */
    must(mica_expert_places(encoder, ids, &(mica_expert_places_params){.capacity = T}, places, counts));
    mica_buffer *from = dispatched(device, dsaid, places, T, N),
                *to = dispatched(device, SEEN(F32, x, STRIDES(K, 0, 1), T, S, K), places, T, K);
    must(mica_product(encoder, SEEN(F32, from, STRIDES(T * N, 1, N), E, N, T),
                      SEEN(F32, to, STRIDES(T * K, K, 1), E, T, K), NULL, dweight));
    end();
    compare("dx", m, m->x, dx, T * K);
    compare("dlogits", m, m->logits, dlogits, T * E);
    compare("dweight", m, m->weight, dweight, E * N * K);
    release();
}

static void test_whole_gradient(void **state)
{
    (void)state;
    static const mica_route_params kinds[] = {
        {.softmax_first = 1, .scale = 1},
        {.softmax_first = 1, .normalise = 1, .scale = 1.5f},
        {.softmax_first = 0, .scale = 1},
        {.softmax_first = 0, .normalise = 1, .scale = 1},
        {.scoring = MICA_ROUTE_SIGMOID, .scale = 1},
        {.scoring = MICA_ROUTE_SIGMOID, .normalise = 1, .scale = 2.5f},
    };
    test_random random = test_random_from(21);

    for (uint32_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        static mixture m;
        draw(&m, &random, &kinds[k]);
        ON_EACH(device) check_gradients(device, &m);
    }
}

/* ---- limited capacity ---- */

enum { CAPACITY = 2 };

/* Which slots find room, in plain words: the line is walked through, by tokens or by choices. */
static void admit(const mixture *m, bool by_choice, bool *taken)
{
    uint32_t standing[E] = {0};

    for (uint32_t i = 0; i < T * S; i++) {
        const uint32_t slot = by_choice ? i % T * S + i / T : i, e = (uint32_t)m->ids[slot];

        taken[slot] = standing[e]++ < CAPACITY;
    }
}

static void check_capacity(mica_device *device, const mixture *m, bool by_choice)
{
    const oracle_route route = route_of(m);
    double share[T * S], error[T * S];
    bool taken[T * S];
    mica_buffer *x = MADE(F32, m->x, T, K), *logits = MADE(F32, m->logits, T, E),
                *weight = MADE(F32, m->weight, E, N, K), *ids = MADE(U32, NULL, T, S),
                *weights = MADE(F32, NULL, T, S), *places = MADE(U32, NULL, T, S),
                *counts = MADE(U32, NULL, E), *said = MADE(F32, NULL, E * CAPACITY + 1, N),
                *back = MADE(F32, NULL, T, S, N), *y = MADE(F32, NULL, T, N);

    must(mica_route(encoder, logits, NULL, NULL, &m->params, ids, weights));
    must(mica_expert_places(encoder, ids,
                            &(mica_expert_places_params){.capacity = CAPACITY, .by_choice = by_choice},
                            places, counts));
    mica_buffer *lines = dispatched(device, SEEN(F32, x, STRIDES(K, 0, 1), T, S, K), places, CAPACITY, K);
    must(mica_fill(encoder, 0, said));
    must(mica_matmul(encoder, SEEN(F32, lines, NULL, E, CAPACITY, K), weight, NULL,
                     SEEN(F32, said, NULL, E, CAPACITY, N)));
    must(mica_gather(encoder, said, SEEN(U32, places, NULL, T * S), NULL, SEEN(F32, back, NULL, T * S, N)));
    must(mica_expert_sum(encoder, back, weights, NULL, NULL, NULL, y));
    end();
    admit(m, by_choice, taken);
    oracle_route_weights(&route, m->ids, share, error);
    for (uint32_t i = 0; i < T * N; i++) {
        double wanted = 0;
        float got;

        for (uint32_t s = i / N * S; s < (i / N + 1) * S; s++)
            wanted += taken[s] ? share[s] * answer(m, i / N, (uint32_t)m->ids[s], i % N) : 0;
        must(mica_buffer_read(y, i * sizeof got, &got, sizeof got));
        if (!(fabs(got - wanted) <
              40 * 0x1p-24 * (10 + fabs(wanted)))) /* two sums of six products around one */
            fail_msg("element %u is %.9g, not %.9g", i, (double)got, wanted);
    }
    for (uint32_t e = 0; e < E; e++) {
        uint32_t got, wanted = 0;

        for (uint32_t i = 0; i < T * S; i++)
            wanted += m->ids[i] == e;
        must(mica_buffer_read(counts, e * sizeof got, &got, sizeof got));
        assert_int_equal(got, wanted);
    }
    release();
}

static void test_capacity(void **state)
{
    (void)state;
    static mixture m;
    test_random random = test_random_from(22);
    uint32_t full = 0;
    bool taken[2][T * S];

    draw(&m, &random, &(mica_route_params){.softmax_first = 1, .normalise = 1, .scale = 1});
    for (uint32_t by = 0; by < 2; by++)
        admit(&m, by != 0, taken[by]);
    for (uint32_t i = 0; i < T * S; i++)
        full += !taken[0][i];
    assert_true(full > 0 && memcmp(taken[0], taken[1], sizeof taken[0]) != 0); /* else nothing is tested */
    ON_EACH(device)
    {
        check_capacity(device, &m, false);
        begin(device);
        check_capacity(device, &m, true);
    }
}

static void test_refused(void **state)
{
    (void)state;
    mica_device *device = devices[0];
    begin(device);
    mica_buffer *ids = MADE(U32, NULL, T, S), *places = MADE(U32, NULL, T, S), *counts = MADE(U32, NULL, E),
                *logits = MADE(F32, NULL, T, E), *dweights = MADE(F32, NULL, T, S),
                *dlogits = MADE(F32, NULL, T, E);

    refused(mica_expert_places(encoder, ids, NULL, places, counts), MICA_ERR_INVALID_ARGUMENT,
            "params.capacity is 0");
    refused(
        mica_expert_places(encoder, ids, &(mica_expert_places_params){.capacity = 1u << 30}, places, counts),
        MICA_ERR_INVALID_ARGUMENT, "params.capacity");
    refused(mica_route_backward(encoder, logits, NULL, ids, dweights, &(mica_route_params){.scoring = 2},
                                dlogits),
            MICA_ERR_INVALID_ARGUMENT, "params.scoring");
    refused(mica_route_backward(encoder, logits, NULL, ids, dweights, &(mica_route_params){.scale = INFINITY},
                                dlogits),
            MICA_ERR_INVALID_ARGUMENT, "params.scale");
    mica_encoder_release(encoder);
    encoder = NULL;
    release();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_gradient),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
