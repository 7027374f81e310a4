/*
 * conform_experts.c - cases of route, which has two outputs, and of expert_sum.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"

enum { LOGITS, IDS, WEIGHTS };
enum { SUM_X, SUM_WEIGHTS, SUM_Y };

static mica_dtype draw_type(const conform_case *c, test_random *random)
{
    return c->typical ? MICA_DTYPE_F32 : conform_float(random);
}

/* Some rows with many equals, some with NaN, some with nothing but -inf or NaN. */
static void draw_logits(conform_case *c, test_random *random)
{
    test_tensor *x = conform_tensor(c, LOGITS);

    test_tensor_normal(x, random, 3);
    for (uint64_t i = 0; !c->typical && i < x->count; i++) {
        uint64_t kind = i / x->shape[1] % 7;

        if (kind == 1)
            test_tensor_set(x, i, floor(test_tensor_get(x, i)));
        if (kind == 3 || (kind == 2 && test_random_one_in(random, 4)))
            test_tensor_set(x, i, (double)NAN);
        if (kind == 4 || (kind == 5 && test_random_one_in(random, 2)))
            test_tensor_set(x, i, -(double)INFINITY);
    }
}

void conform_make_route(conform_case *c, test_random *random)
{
    uint64_t tokens = test_random_size(random, 40), experts = test_random_size(random, 300),
             slots = 1 + test_random_below(random, experts < 12 ? experts : 12);
    mica_route_params *route = &c->params.route;

    route->softmax_first = (uint32_t)test_random_below(random, 2);
    route->normalise = (uint32_t)test_random_below(random, 2);
    route->scale = test_random_one_in(random, 2) ? 0 : 2.5f;
    if (c->typical) {
        tokens = 64;
        experts = 128;
        slots = 8;
        *route = (mica_route_params){1, 1, 0};
    }
    conform_add(c, random, "logits", draw_type(c, random), 2, (uint64_t[]){tokens, experts},
                TEST_ROWS_REPEAT);
    draw_logits(c, random);
    conform_add(c, random, "ids", conform_index(random), 2, (uint64_t[]){tokens, slots}, TEST_ROWS)->written =
        true;
    conform_add(c, random, "weights", draw_type(c, random), 2, (uint64_t[]){tokens, slots}, TEST_ROWS)
        ->written = true;
    c->output = WEIGHTS;
    c->flops = (double)(tokens * experts) * 8;
    c->bytes = conform_bytes(c, LOGITS) + conform_bytes(c, IDS) + conform_bytes(c, WEIGHTS);
}

mica_status conform_encode_route(const conform_case *c, mica_encoder *encoder)
{
    return mica_route(encoder, conform_buffer(c, LOGITS), &c->params.route, conform_buffer(c, IDS),
                      conform_buffer(c, WEIGHTS));
}

void conform_oracle_route(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, LOGITS), *y = conform_tensor(c, WEIGHTS);
    double *logits = conform_values(c, LOGITS), *ids, *ids_error;

    conform_expect_also(c, IDS, &ids, &ids_error);
    for (uint64_t i = 0; i < y->count; i++)
        ids_error[i] = ORACLE_EXACT;
    oracle_route route = {x->shape[0], x->shape[1], y->shape[1], logits, ids, false, false, 1};

    oracle_route_ids(route.rows, route.experts, route.slots, logits, ids);
    route.softmax_first = c->params.route.softmax_first != 0;
    route.normalise = c->params.route.normalise != 0;
    route.scale = c->params.route.scale == 0 ? 1 : c->params.route.scale;
    oracle_route_weights(&route, c->expected, c->error);
    free(logits);
}

void conform_make_expert_sum(conform_case *c, test_random *random)
{
    uint64_t tokens = test_random_size(random, 20), slots = 1 + test_random_below(random, 9),
             dim = test_random_size(random, test_random_one_in(random, 4) ? 2000 : 200);

    if (c->typical) {
        tokens = 64;
        slots = 8;
        dim = 2048;
    }
    conform_add(c, random, "x", draw_type(c, random), 3, (uint64_t[]){tokens, slots, dim}, TEST_ROWS_REPEAT);
    test_tensor_normal(conform_tensor(c, SUM_X), random, 2);
    conform_add(c, random, "weights", draw_type(c, random), 2, (uint64_t[]){tokens, slots}, TEST_ROWS_REPEAT);
    test_tensor_uniform(conform_tensor(c, SUM_WEIGHTS), random, 0, 1);
    conform_add_output(c, random, "y", draw_type(c, random), 2, (uint64_t[]){tokens, dim}, TEST_ROWS, false,
                       0);
    c->flops = 2.0 * (double)(tokens * slots * dim);
    c->bytes = conform_bytes(c, SUM_X) + conform_bytes(c, SUM_WEIGHTS) + conform_bytes(c, SUM_Y);
}

mica_status conform_encode_expert_sum(const conform_case *c, mica_encoder *encoder)
{
    return mica_expert_sum(encoder, conform_buffer(c, SUM_X), conform_buffer(c, SUM_WEIGHTS),
                           conform_buffer(c, SUM_Y));
}

void conform_oracle_expert_sum(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, SUM_X);
    double *values = conform_values(c, SUM_X), *weights = conform_values(c, SUM_WEIGHTS);

    oracle_expert_sum(x->shape[0], x->shape[1], x->shape[2], values, weights, c->expected, c->error);
    free(values);
    free(weights);
}
