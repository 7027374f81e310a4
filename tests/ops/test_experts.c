/*
 * test_experts.c - a whole mixture of experts out of its ops, against the formula in double: routing of each kind, two products,
 * a gate, a product back, the weighted sum with a shared expert and the residual; two weights by one routing; and the parameters that routing refuses.
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
#include "oracle/oracle_ops.h"
#include "support/random.h"
#include "support/status.h"

enum { TOKENS = 5, EXPERTS = 6, SLOTS = 2, WIDE = 32, INNER = 24 };

typedef struct tensor {
    mica_buffer *buffer;
    float *value;
    uint64_t count;
} tensor;

static tensor make(mica_device *device, test_random *random, mica_dtype dtype, uint32_t ndim,
                   const uint64_t *shape)
{
    tensor t = {.count = 1};
    must(mica_buffer_alloc(device, dtype, ndim, shape, &t.buffer));
    for (uint32_t d = 0; d < ndim; d++)
        t.count *= shape[d];
    t.value = calloc(t.count, sizeof *t.value);
    for (uint64_t i = 0; random != NULL && i < t.count; i++)
        t.value[i] = (float)(test_random_normal(random) * 0.4);
    if (random != NULL)
        must(mica_buffer_write(t.buffer, 0, t.value, t.count * sizeof *t.value));
    return t;
}

static void done(tensor *t)
{
    mica_buffer_release(t->buffer);
    free(t->value);
}

static double dot(const float *a, const double *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

/* What one expert says of a token. */
static void expert(const tensor *gate, const tensor *up, const tensor *down, uint32_t e, const float *x,
                   double *out)
{
    double wide[WIDE], inner[INNER];
    for (uint32_t i = 0; i < WIDE; i++)
        wide[i] = x[i];
    for (uint32_t i = 0; i < INNER; i++)
        inner[i] = gelu(dot(gate->value + (e * INNER + i) * WIDE, wide, WIDE)) *
                   dot(up->value + (e * INNER + i) * WIDE, wide, WIDE);
    for (uint32_t i = 0; i < WIDE; i++)
        out[i] = dot(down->value + (e * WIDE + i) * INNER, inner, INNER);
}

typedef struct mixture {
    mica_device *device;
    tensor x, logits, gate, up, down, shared, shared_gate;
} mixture;

static void play(const mixture *m, const mica_route_params *params, float *out)
{
    mica_encoder *e = NULL;
    tensor ids = make(m->device, NULL, MICA_DTYPE_U32, 2, (uint64_t[]){TOKENS, SLOTS});
    tensor weights = make(m->device, NULL, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, SLOTS});
    tensor a = make(m->device, NULL, MICA_DTYPE_F32, 3, (uint64_t[]){TOKENS, SLOTS, INNER});
    tensor b = make(m->device, NULL, MICA_DTYPE_F32, 3, (uint64_t[]){TOKENS, SLOTS, INNER});
    tensor c = make(m->device, NULL, MICA_DTYPE_F32, 3, (uint64_t[]){TOKENS, SLOTS, WIDE});
    tensor y = make(m->device, NULL, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, WIDE});
    must(mica_encoder_begin(m->device, NULL, &e));
    must(mica_route(e, m->logits.buffer, NULL, NULL, params, ids.buffer, weights.buffer));
    must(mica_matmul_experts(e, m->x.buffer, m->gate.buffer, ids.buffer, NULL, a.buffer));
    must(mica_matmul_experts(e, m->x.buffer, m->up.buffer, ids.buffer, NULL, b.buffer));
    must(mica_gelu_mul(e, a.buffer, b.buffer, a.buffer));
    must(mica_matmul_experts(e, a.buffer, m->down.buffer, ids.buffer, NULL, c.buffer));
    must(mica_expert_sum(e, c.buffer, weights.buffer, m->shared.buffer, m->shared_gate.buffer, m->x.buffer,
                         y.buffer));
    must(mica_encoder_commit_and_wait(e));
    must(mica_buffer_read(y.buffer, 0, out, TOKENS * WIDE * sizeof *out));
    mica_encoder_release(e);
    done(&ids);
    done(&weights);
    done(&a);
    done(&b);
    done(&c);
    done(&y);
}

static void judge(const mixture *m, const mica_route_params *params, const float *out)
{
    double logits[TOKENS * EXPERTS], ids[TOKENS * SLOTS], weights[TOKENS * SLOTS], error[TOKENS * SLOTS];
    for (uint32_t i = 0; i < TOKENS * EXPERTS; i++)
        logits[i] = m->logits.value[i];
    const oracle_route route = {.rows = TOKENS,
                                .experts = EXPERTS,
                                .slots = SLOTS,
                                .logits = logits,
                                .softmax_first = params->softmax_first != 0,
                                .sigmoid = params->scoring == MICA_ROUTE_SIGMOID,
                                .normalise = params->normalise != 0,
                                .groups = params->groups,
                                .top_groups = params->top_groups,
                                .group_best = params->group_best,
                                .scale = params->scale};
    oracle_route_ids(&route, ids);
    oracle_route_weights(&route, ids, weights, error);
    for (uint32_t t = 0; t < TOKENS; t++) {
        double sum[WIDE] = {0}, said[WIDE];
        const double open = 1 / (1 + exp(-(double)m->shared_gate.value[t]));
        for (uint32_t s = 0; s < SLOTS; s++) {
            expert(&m->gate, &m->up, &m->down, (uint32_t)ids[t * SLOTS + s], m->x.value + t * WIDE, said);
            for (uint32_t i = 0; i < WIDE; i++)
                sum[i] += weights[t * SLOTS + s] * said[i];
        }
        for (uint32_t i = 0; i < WIDE; i++) {
            const uint32_t at = t * WIDE + i;
            const double wanted = sum[i] + open * m->shared.value[at] + m->x.value[at];
            /* Two products of 32 and 24 terms and a gate: a hundred roundings of values around one. */
            if (!(fabs(out[at] - wanted) < 100 * 0x1p-24 * (1 + fabs(wanted))))
                fail_msg("token %u, element %u: %g, not %g", t, i, (double)out[at], wanted);
        }
    }
}

static void whole_mixtures(void **state)
{
    (void)state;
    static const mica_route_params kinds[] = {
        {.softmax_first = 1, .normalise = 1, .scale = 1, .groups = 1, .top_groups = 1, .group_best = 1},
        {.softmax_first = 0, .scale = 1, .groups = 1, .top_groups = 1, .group_best = 1},
        {.scoring = MICA_ROUTE_SIGMOID,
         .normalise = 1,
         .scale = 2.5f,
         .groups = 3,
         .top_groups = 2,
         .group_best = 2},
    };
    test_random random = test_random_from(11);
    for (uint32_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        mixture m = {0};
        float out[TOKENS * WIDE];
        must(mica_device_open("cpu", NULL, &m.device));
        m.x = make(m.device, &random, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, WIDE});
        m.logits = make(m.device, &random, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, EXPERTS});
        m.gate = make(m.device, &random, MICA_DTYPE_F32, 3, (uint64_t[]){EXPERTS, INNER, WIDE});
        m.up = make(m.device, &random, MICA_DTYPE_F32, 3, (uint64_t[]){EXPERTS, INNER, WIDE});
        m.down = make(m.device, &random, MICA_DTYPE_F32, 3, (uint64_t[]){EXPERTS, WIDE, INNER});
        m.shared = make(m.device, &random, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, WIDE});
        m.shared_gate = make(m.device, &random, MICA_DTYPE_F32, 1, (uint64_t[]){TOKENS});
        play(&m, &kinds[k], out);
        judge(&m, &kinds[k], out);
        tensor *all[] = {&m.x, &m.logits, &m.gate, &m.up, &m.down, &m.shared, &m.shared_gate};
        for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
            done(all[i]);
        mica_device_release(m.device);
    }
}

/* A router whose weights are divided by their sum behind the scales of the experts, not before: the choice and its softmax by mica_route, the quotient behind it. */
static void scaled_then_normalised(void **state)
{
    (void)state;
    test_random random = test_random_from(13);
    mica_device *device = NULL;
    mica_encoder *e = NULL;
    must(mica_device_open("cpu", NULL, &device));
    tensor x = make(device, &random, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, WIDE}),
           norm = make(device, &random, MICA_DTYPE_F32, 1, (uint64_t[]){WIDE}),
           router = make(device, &random, MICA_DTYPE_F32, 2, (uint64_t[]){EXPERTS, WIDE}),
           scale = make(device, &random, MICA_DTYPE_F32, 1, (uint64_t[]){EXPERTS}),
           h = make(device, NULL, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, WIDE}),
           logits = make(device, NULL, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, EXPERTS}),
           ids = make(device, NULL, MICA_DTYPE_U32, 2, (uint64_t[]){TOKENS, SLOTS}),
           weights = make(device, NULL, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, SLOTS}),
           sum = make(device, NULL, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, 1});
    uint32_t id[TOKENS * SLOTS];
    float got[TOKENS * SLOTS];
    for (uint32_t i = 0; i < EXPERTS; i++)
        scale.value[i] = (float)(0.5 + test_random_uniform(&random, 0, 1));
    must(mica_buffer_write(scale.buffer, 0, scale.value, EXPERTS * sizeof *scale.value));
    must(mica_encoder_begin(device, NULL, &e));
    must(mica_rms_norm(e, x.buffer, norm.buffer, 1e-6f, h.buffer));
    must(mica_matmul(e, h.buffer, router.buffer, NULL, logits.buffer));
    must(mica_route(e, logits.buffer, NULL, scale.buffer, NULL, ids.buffer, weights.buffer));
    must(mica_reduce(e, weights.buffer,
                     &(mica_reduce_params){.kind = MICA_REDUCE_SUM, .axes = 1, .keep_dims = 1}, sum.buffer));
    must(mica_div(e, weights.buffer, sum.buffer, weights.buffer));
    must(mica_encoder_commit_and_wait(e));
    must(mica_buffer_read(ids.buffer, 0, id, sizeof id));
    must(mica_buffer_read(weights.buffer, 0, got, sizeof got));
    for (uint32_t t = 0; t < TOKENS; t++) {
        double square = 1e-6, score[EXPERTS], right[SLOTS], all = 0;
        for (uint32_t i = 0; i < WIDE; i++)
            square += pow((double)x.value[t * WIDE + i], 2) / WIDE;
        for (uint32_t k = 0; k < EXPERTS; k++) {
            score[k] = 0;
            for (uint32_t i = 0; i < WIDE; i++)
                score[k] += (double)x.value[t * WIDE + i] / sqrt(square) * (double)norm.value[i] *
                            (double)router.value[k * WIDE + i];
        }
        for (uint32_t s = 0; s < SLOTS; s++) {
            uint32_t better = 0;
            for (uint32_t k = 0; k < EXPERTS; k++)
                better += score[k] > score[id[t * SLOTS + s]];
            assert_int_equal(better, s);
            right[s] = exp(score[id[t * SLOTS + s]]) * (double)scale.value[id[t * SLOTS + s]];
            all += right[s];
        }
        for (uint32_t s = 0; s < SLOTS; s++) /* a product of 32 terms goes through exp */
            assert_true(fabs((double)got[t * SLOTS + s] - right[s] / all) < 200 * 0x1p-24);
    }
    mica_encoder_release(e);
    tensor *every[] = {&x, &norm, &router, &scale, &h, &logits, &ids, &weights, &sum};
    for (uint32_t i = 0; i < sizeof every / sizeof *every; i++)
        done(every[i]);
    mica_device_release(device);
}

/* Two weights by one routing, each to a result of its own, recorded together; so many slots that experts get several each, and an id outside. */
static void pooled_pair(void **state)
{
    (void)state;
    enum { MANY = 40, BAD = 17 };
    test_random random = test_random_from(12);
    mica_device *device = NULL;
    mica_encoder *e = NULL;
    must(mica_device_open("cpu", NULL, &device));
    tensor x = make(device, &random, MICA_DTYPE_F32, 2, (uint64_t[]){MANY, WIDE});
    tensor ids = make(device, NULL, MICA_DTYPE_U32, 2, (uint64_t[]){MANY, SLOTS});
    uint32_t id[MANY * SLOTS];
    float got[MANY * SLOTS * INNER];
    tensor weight[2], y[2];
    for (uint32_t i = 0; i < MANY * SLOTS; i++)
        id[i] =
            i == BAD ? EXPERTS : (uint32_t)test_random_below(&random, EXPERTS - 1); /* the last gets none */
    must(mica_buffer_write(ids.buffer, 0, id, sizeof id));
    must(mica_encoder_begin(device, NULL, &e));
    for (uint32_t i = 0; i < 2; i++) {
        weight[i] = make(device, &random, MICA_DTYPE_F32, 3, (uint64_t[]){EXPERTS, INNER, WIDE});
        y[i] = make(device, NULL, MICA_DTYPE_F32, 3, (uint64_t[]){MANY, SLOTS, INNER});
        must(mica_matmul_experts(e, x.buffer, weight[i].buffer, ids.buffer, NULL, y[i].buffer));
    }
    assert_int_equal(mica_encoder_commit_and_wait(e), MICA_ERR_FAULT);
    for (uint32_t w = 0; w < 2; w++) {
        must(mica_buffer_read(y[w].buffer, 0, got, sizeof got));
        for (uint32_t i = 0; i < MANY * SLOTS * INNER; i++) {
            const uint32_t slot = i / INNER;
            double wide[WIDE], wanted = 0;
            for (uint32_t k = 0; k < WIDE; k++)
                wide[k] = x.value[slot / SLOTS * WIDE + k];
            if (slot != BAD)
                wanted = dot(weight[w].value + (id[slot] * INNER + i % INNER) * WIDE, wide, WIDE);
            /* 32 products of values around one half. */
            if (!(fabs(got[i] - wanted) < 40 * 0x1p-24 * (1 + fabs(wanted))))
                fail_msg("weight %u, slot %u: %g, not %g", w, slot, (double)got[i], wanted);
        }
    }
    mica_encoder_release(e);
    tensor *all[] = {&x, &ids, &weight[0], &weight[1], &y[0], &y[1]};
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        done(all[i]);
    mica_device_release(device);
}

static void refused_routes(void **state)
{
    (void)state;
    static const struct {
        mica_route_params params;
        const char *word;
    } bad[] = {
        {{.scoring = 2}, "params.scoring"},
        {{.groups = 4, .top_groups = 1}, "params.groups"},
        {{.groups = 3}, "params.top_groups"},
        {{.groups = 3, .top_groups = 4}, "params.top_groups"},
        {{.groups = 3, .top_groups = 2, .group_best = 3}, "params.group_best"},
        {{.groups = 6, .top_groups = 1}, "ids: shape[1] is 2, more than the 1 experts"},
        {{.scale = INFINITY}, "params.scale"},
    };
    mica_device *device = NULL;
    mica_encoder *e = NULL;
    must(mica_device_open("cpu", NULL, &device));
    tensor logits = make(device, NULL, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, EXPERTS});
    tensor ids = make(device, NULL, MICA_DTYPE_U32, 2, (uint64_t[]){TOKENS, SLOTS});
    tensor weights = make(device, NULL, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, SLOTS});
    tensor x = make(device, NULL, MICA_DTYPE_F32, 3, (uint64_t[]){TOKENS, SLOTS, WIDE});
    tensor gate = make(device, NULL, MICA_DTYPE_F32, 1, (uint64_t[]){TOKENS});
    tensor y = make(device, NULL, MICA_DTYPE_F32, 2, (uint64_t[]){TOKENS, WIDE});
    must(mica_encoder_begin(device, NULL, &e));
    for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(mica_route(e, logits.buffer, NULL, NULL, &bad[i].params, ids.buffer, weights.buffer),
                         MICA_ERR_INVALID_ARGUMENT);
        if (strstr(mica_status_message(), bad[i].word) == NULL)
            fail_msg("%s: not in: %s", bad[i].word, mica_status_message());
    }
    assert_int_equal(mica_expert_sum(e, x.buffer, weights.buffer, NULL, gate.buffer, NULL, y.buffer),
                     MICA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(mica_status_message(), "shared_gate"));
    mica_encoder_release(e);
    tensor *all[] = {&logits, &ids, &weights, &x, &gate, &y};
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        done(all[i]);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_mixtures),
        cmocka_unit_test(scaled_then_normalised),
        cmocka_unit_test(pooled_pair),
        cmocka_unit_test(refused_routes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
