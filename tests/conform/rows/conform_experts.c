/*
 * conform_experts.c - cases of route, which has two outputs, of expert_sum, of route_backward and of expert_places.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"

enum { LOGITS, BIAS, SCALE, IDS, WEIGHTS };
enum { SUM_X, SUM_WEIGHTS, SUM_SHARED, SUM_GATE, SUM_RESIDUAL, SUM_Y };

static mica_dtype draw_type(const conform_case *c, test_random *random)
{
    return conform_is_wide(c) ? MICA_DTYPE_F64 : c->typical ? MICA_DTYPE_F32 : conform_float(random);
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

static void add_outputs(conform_case *c, test_random *random, uint64_t tokens, uint64_t slots)
{
    conform_add(c, random, "ids", conform_index(random), 2, (uint64_t[]){tokens, slots}, TEST_ROWS)->written =
        true;
    conform_add(c, random, "weights", draw_type(c, random), 2, (uint64_t[]){tokens, slots}, TEST_ROWS)
        ->written = true;
    c->output = WEIGHTS;
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
        *route = (mica_route_params){.softmax_first = 1, .normalise = 1};
    }
    conform_add(c, random, "logits", draw_type(c, random), 2, (uint64_t[]){tokens, experts},
                TEST_ROWS_REPEAT);
    draw_logits(c, random);
    conform_add_absent(c);
    conform_add_absent(c);
    add_outputs(c, random, tokens, slots);
    c->flops = (double)(tokens * experts) * 8;
    c->bytes = conform_bytes(c, LOGITS) + conform_bytes(c, IDS) + conform_bytes(c, WEIGHTS);
}

/* The routing of the case as the oracle takes it; whoever asks frees the values. */
static oracle_route route_of(conform_case *c)
{
    const mica_route_params *p = &c->params.route;
    const test_tensor *x = conform_tensor(c, LOGITS);

    return (oracle_route){
        .rows = x->shape[0],
        .experts = x->shape[1],
        .slots = c->operand_count > IDS ? conform_tensor(c, IDS)->shape[1] : 0,
        .logits = conform_values(c, LOGITS),
        .bias = conform_values(c, BIAS),
        .expert_scale = conform_values(c, SCALE),
        .softmax_first = p->softmax_first != 0,
        .sigmoid = p->scoring == MICA_ROUTE_SIGMOID,
        .normalise = p->normalise != 0,
        .groups = p->groups > 1 ? p->groups : 1,
        .top_groups = p->groups > 1 ? p->top_groups : 1,
        .group_best = p->group_best == 2 ? 2 : 1,
        .scale = p->scale == 0 ? 1 : p->scale,
    };
}

static void free_route(oracle_route *route)
{
    free((void *)(uintptr_t)route->logits);
    free((void *)(uintptr_t)route->bias);
    free((void *)(uintptr_t)route->expert_scale);
}

/* Are two of these so near to each other that a rounding decides which is first, though their inputs differ? */
static bool is_near(const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (values[i] != values[k] && fabs(values[i] - values[k]) < 2e-6 * (1 + fabs(values[i])))
                return true;
    return false;
}

static bool row_is_near(const oracle_route *route, size_t row)
{
    double values[512], group[512];

    oracle_route_values(route, row, values);
    for (size_t g = 0; route->groups > 1 && g < route->groups; g++)
        group[g] = oracle_route_group(route, values, g);
    return is_near(values, route->experts) || (route->groups > 1 && is_near(group, route->groups));
}

/* Draws rows anew until nothing in them is decided by a rounding. */
static void part_rows(conform_case *c, test_random *random)
{
    test_tensor *x = conform_tensor(c, LOGITS);

    for (uint64_t row = 0; row < x->shape[0]; row++) {
        for (uint32_t turn = 0; turn < 200; turn++) {
            oracle_route route = route_of(c);
            const bool near = row_is_near(&route, row);

            free_route(&route);
            if (!near)
                break;
            for (uint64_t e = 0; e < x->shape[1]; e++)
                test_tensor_set(x, row * x->shape[1] + e, 2 * test_random_normal(random));
        }
    }
}

void conform_make_route_scored(conform_case *c, test_random *random)
{
    mica_route_params *route = &c->params.route;
    const bool many = test_random_one_in(random, 6); /* more groups than work-items that share a token */
    const uint64_t groups = many ? 33 + test_random_below(random, 40)
                                 : 1 + test_random_below(random, test_random_one_in(random, 2) ? 1 : 9),
                   size = 1 + test_random_below(random, many ? 6 : 12), tokens = test_random_size(random, 12),
                   top = 1 + test_random_below(random, groups),
                   slots = 1 + test_random_below(random, top * size < 8 ? top * size : 8);

    route->scoring = (uint32_t)test_random_below(random, 2);
    route->softmax_first = (uint32_t)test_random_below(random, 2);
    route->normalise = (uint32_t)test_random_below(random, 2);
    route->scale = test_random_one_in(random, 2) ? 0 : 2.5f;
    route->groups = (uint32_t)groups;
    route->top_groups = (uint32_t)top;
    route->group_best = (uint32_t)test_random_below(random, 3);
    /* Rows stand apart from each other, as each is drawn on its own. */
    conform_add(c, random, "logits", draw_type(c, random), 2, (uint64_t[]){tokens, groups * size}, TEST_ROWS);
    test_tensor_normal(conform_tensor(c, LOGITS), random, 2);
    for (uint32_t slot = BIAS; slot <= SCALE; slot++) {
        if (test_random_one_in(random, 3)) {
            conform_add_absent(c);
            continue;
        }
        conform_add(c, random, slot == BIAS ? "bias" : "expert_scale", draw_type(c, random), 1,
                    (uint64_t[]){groups * size}, TEST_ROWS);
        test_tensor_uniform(conform_tensor(c, slot), random, -1, 1);
    }
    part_rows(c, random);
    add_outputs(c, random, tokens, slots);
}

mica_status conform_encode_route(const conform_case *c, mica_encoder *encoder)
{
    return mica_route(encoder, conform_buffer(c, LOGITS), conform_buffer(c, BIAS), conform_buffer(c, SCALE),
                      &c->params.route, conform_buffer(c, IDS), conform_buffer(c, WEIGHTS));
}

void conform_oracle_route(conform_case *c)
{
    const test_tensor *y = conform_tensor(c, WEIGHTS);
    oracle_route route = route_of(c);
    double *ids, *ids_error;

    conform_expect_also(c, IDS, &ids, &ids_error);
    for (uint64_t i = 0; i < y->count; i++)
        ids_error[i] = ORACLE_EXACT;
    oracle_route_ids(&route, ids);
    oracle_route_weights(&route, ids, c->expected, c->error);
    conform_narrow(c);
    free_route(&route);
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
    for (uint32_t slot = SUM_SHARED; slot <= SUM_RESIDUAL; slot++) {
        static const char *const names[] = {"shared", "shared_gate", "residual"};
        const bool gate = slot == SUM_GATE;

        if (c->typical || test_random_one_in(random, 2) || (gate && !c->operand[SUM_SHARED].present)) {
            conform_add_absent(c);
            continue;
        }
        conform_add(c, random, names[slot - SUM_SHARED], draw_type(c, random), gate ? 1 : 2,
                    (uint64_t[]){tokens, dim}, gate ? TEST_REPEAT : TEST_ROWS);
        test_tensor_normal(conform_tensor(c, slot), random, 2);
    }
    const uint32_t under = c->operand[SUM_RESIDUAL].present ? SUM_RESIDUAL : SUM_SHARED;
    const bool in_place = c->operand[under].present && test_random_one_in(random, 3);
    conform_add_output(c, random, "y", in_place ? conform_tensor(c, under)->dtype : draw_type(c, random), 2,
                       (uint64_t[]){tokens, dim}, TEST_ROWS, in_place, under);
    c->flops = 2.0 * (double)(tokens * slots * dim);
    c->bytes = conform_bytes(c, SUM_X) + conform_bytes(c, SUM_WEIGHTS) + conform_bytes(c, SUM_Y);
}

mica_status conform_encode_expert_sum(const conform_case *c, mica_encoder *encoder)
{
    return mica_expert_sum(encoder, conform_buffer(c, SUM_X), conform_buffer(c, SUM_WEIGHTS),
                           conform_buffer(c, SUM_SHARED), conform_buffer(c, SUM_GATE),
                           conform_buffer(c, SUM_RESIDUAL), conform_buffer(c, SUM_Y));
}

void conform_oracle_expert_sum(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, SUM_X);
    double *values = conform_values(c, SUM_X), *weights = conform_values(c, SUM_WEIGHTS);

    double *shared = conform_values(c, SUM_SHARED), *gate = conform_values(c, SUM_GATE),
           *residual = conform_values(c, SUM_RESIDUAL);
    oracle_expert_sum(x->shape[0], x->shape[1], x->shape[2], values, weights,
                      &(oracle_sum_rest){shared, gate, residual}, c->expected, c->error);
    conform_narrow(c);
    free(shared);
    free(gate);
    free(residual);
    free(values);
    free(weights);
}

/* ---- the gradient of routing, and places in line ---- */

enum { BACK_LOGITS, BACK_SCALE, BACK_IDS, BACK_DWEIGHTS, BACK_DLOGITS };
enum { PLACE_IDS, PLACE_PLACES, PLACE_COUNTS };

/* Each token gets experts that stand side by side, from the one or the other end: none of them twice. */
static void draw_ids(conform_case *c, test_random *random, uint32_t slot, uint64_t experts)
{
    test_tensor *ids = conform_tensor(c, slot);

    for (uint64_t row = 0; row < ids->shape[0]; row++) {
        const uint64_t begin = test_random_below(random, experts), turned = test_random_below(random, 2);

        for (uint64_t s = 0; s < ids->shape[1]; s++)
            test_tensor_set(ids, row * ids->shape[1] + s,
                            (double)((begin + (turned ? experts - s : s)) % experts));
    }
}

void conform_make_route_backward(conform_case *c, test_random *random)
{
    uint64_t tokens = test_random_size(random, 40), experts = test_random_size(random, 200),
             slots = 1 + test_random_below(random, experts < 9 ? experts : 9);
    const mica_dtype wide =
        !conform_kernels && !c->typical && test_random_one_in(random, 4) ? MICA_DTYPE_F64 : MICA_DTYPE_NONE;
    mica_route_params *route = &c->params.route;

    route->scoring = (uint32_t)test_random_below(random, 2);
    route->softmax_first = (uint32_t)test_random_below(random, 2);
    route->normalise = (uint32_t)test_random_below(random, 2);
    route->scale = test_random_one_in(random, 2) ? 0 : 2.5f;
    if (c->typical) {
        tokens = 64;
        experts = 128;
        slots = 8;
    }
    conform_add(c, random, "logits", wide ? wide : draw_type(c, random), 2, (uint64_t[]){tokens, experts},
                TEST_REPEAT);
    test_tensor_normal(conform_tensor(c, BACK_LOGITS), random, 2);
    for (uint64_t i = 0; !c->typical && i < tokens * experts; i++) /* some tokens have some of these */
        if (i / experts % 5 == 3 && test_random_one_in(random, 4))
            test_tensor_set(conform_tensor(c, BACK_LOGITS), i,
                            i / experts % 2 == 0 ? (double)NAN : -(double)INFINITY);
    if (test_random_one_in(random, 2)) {
        conform_add_absent(c);
    } else {
        conform_add(c, random, "expert_scale", wide ? wide : draw_type(c, random), 1, &experts, TEST_REPEAT);
        test_tensor_uniform(conform_tensor(c, BACK_SCALE), random, -2, 2);
    }
    conform_add(c, random, "ids", conform_index(random), 2, (uint64_t[]){tokens, slots}, TEST_ANY);
    draw_ids(c, random, BACK_IDS, experts);
    if (!c->typical && test_random_one_in(random, 5)) {
        test_tensor_set(conform_tensor(c, BACK_IDS), test_random_below(random, tokens * slots),
                        conform_tensor(c, BACK_IDS)->dtype == MICA_DTYPE_I32 ? -1 : (double)experts);
        c->wanted = MICA_ERR_FAULT;
    }
    conform_add(c, random, "dweights", wide ? wide : draw_type(c, random), 2, (uint64_t[]){tokens, slots},
                TEST_REPEAT);
    test_tensor_normal(conform_tensor(c, BACK_DWEIGHTS), random, 1);
    conform_add_output(c, random, "dlogits", wide ? wide : draw_type(c, random), 2,
                       (uint64_t[]){tokens, experts}, TEST_ANY, false, 0);
    c->flops = (double)(tokens * experts) * 20;
    c->bytes = conform_bytes(c, BACK_LOGITS) + conform_bytes(c, BACK_DLOGITS);
}

mica_status conform_encode_route_backward(const conform_case *c, mica_encoder *encoder)
{
    return mica_route_backward(encoder, conform_buffer(c, BACK_LOGITS), conform_buffer(c, BACK_SCALE),
                               conform_buffer(c, BACK_IDS), conform_buffer(c, BACK_DWEIGHTS),
                               &c->params.route, conform_buffer(c, BACK_DLOGITS));
}

void conform_oracle_route_backward(conform_case *c)
{
    const mica_route_params *p = &c->params.route;
    const test_tensor *x = conform_tensor(c, BACK_LOGITS);
    double *ids = conform_values(c, BACK_IDS), *dweights = conform_values(c, BACK_DWEIGHTS);
    oracle_route route = {.rows = x->shape[0],
                          .experts = x->shape[1],
                          .slots = conform_tensor(c, BACK_IDS)->shape[1],
                          .logits = conform_values(c, BACK_LOGITS),
                          .expert_scale = conform_values(c, BACK_SCALE),
                          .softmax_first = p->softmax_first != 0,
                          .sigmoid = p->scoring == MICA_ROUTE_SIGMOID,
                          .normalise = p->normalise != 0,
                          .scale = p->scale == 0 ? 1 : p->scale};

    oracle_route_backward(&route, ids, dweights, c->expected, c->error);
    for (uint64_t i = 0; x->dtype == MICA_DTYPE_F64 && i < x->count; i++)
        if (c->error[i] != ORACLE_EXACT) /* the measure counts roundings of f32 */
            c->error[i] *= 0x1p-29;
    free_route(&route);
    free(ids);
    free(dweights);
}

void conform_make_expert_places(conform_case *c, test_random *random)
{
    uint64_t tokens = test_random_size(random, 60), slots = 1 + test_random_below(random, 6),
             experts = test_random_one_in(random, 4) ? 200 + test_random_below(random, 200)
                                                     : 1 + test_random_below(random, 9);
    mica_expert_places_params *p = &c->params.expert_places;

    p->capacity = (uint32_t)(1 + test_random_below(random, 12));
    p->by_choice = (uint32_t)test_random_below(random, 2);
    if (c->typical) {
        tokens = 512;
        slots = 8;
        experts = 128;
        p->capacity = 40;
    }
    conform_add(c, random, "ids", conform_index(random), 2, (uint64_t[]){tokens, slots}, TEST_REPEAT);
    test_tensor_indices(conform_tensor(c, PLACE_IDS), random, experts);
    if (!c->typical && test_random_one_in(random, 5)) {
        test_tensor_set(conform_tensor(c, PLACE_IDS), test_random_below(random, tokens * slots),
                        conform_tensor(c, PLACE_IDS)->dtype == MICA_DTYPE_I32 ? -1 : (double)experts);
        c->wanted = MICA_ERR_FAULT;
    }
    conform_add(c, random, "places", conform_index(random), 2, (uint64_t[]){tokens, slots}, TEST_ANY)
        ->written = true;
    conform_add(c, random, "counts", conform_index(random), 1, &experts, TEST_ANY)->written = true;
    c->output = PLACE_COUNTS;
    c->bytes = conform_bytes(c, PLACE_IDS) + conform_bytes(c, PLACE_PLACES);
}

mica_status conform_encode_expert_places(const conform_case *c, mica_encoder *encoder)
{
    return mica_expert_places(encoder, conform_buffer(c, PLACE_IDS), &c->params.expert_places,
                              conform_buffer(c, PLACE_PLACES), conform_buffer(c, PLACE_COUNTS));
}

void conform_oracle_expert_places(conform_case *c)
{
    const mica_expert_places_params *p = &c->params.expert_places;
    const test_tensor *x = conform_tensor(c, PLACE_IDS);
    double *ids = conform_values(c, PLACE_IDS), *places, *places_error;

    conform_expect_also(c, PLACE_PLACES, &places, &places_error);
    oracle_expert_places(x->shape[0], x->shape[1], conform_tensor(c, PLACE_COUNTS)->count, p->capacity,
                         p->by_choice != 0, ids, places, c->expected);
    for (uint64_t i = 0; i < x->count; i++)
        places_error[i] = ORACLE_EXACT;
    for (uint64_t i = 0; i < conform_tensor(c, PLACE_COUNTS)->count; i++)
        c->error[i] = ORACLE_EXACT;
    free(ids);
}
