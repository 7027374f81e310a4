/* test_gradient_kinds.c - gradients of ops whose parameters have many kinds: every mode of positions, windows, places and routes, against central differences. */
#include "gradient_rig.h"
#include "support/only_cpu.h"

#define BUILD(name) static mica_tensor name(mica_graph *g, const mica_tensor *x)
#define D(...) MICA_DTYPE_F64, __VA_ARGS__
#define F(...) MICA_DTYPE_F32, __VA_ARGS__
#define I(...) MICA_DTYPE_I32, __VA_ARGS__
#define COUNT(rows) (sizeof(rows) / sizeof(rows)[0])
#define NARROW 2e-3 /* f32: steps of 2^-7 */

static mica_tensor one(mica_graph *g, mica_op op, const void *params, const mica_tensor *x, uint32_t count)
{
    return mica_graph_op(g, op, params, x, count, 1, NULL, NULL, 0);
}

/* ---- copies, variances, places ---- */

BUILD(copied)
{
    return mica_graph_square(
        g, one(g, MICA_OP_COPY, NULL, (mica_tensor[]){mica_graph_permute(g, x[0], (uint32_t[]){1, 0})}, 1));
}
BUILD(variance)
{
    return mica_graph_square(g, mica_graph_variance(g, x[0], (int32_t[]){1}, 1, 1, 0));
}
BUILD(scatter_nd_min)
{
    return mica_graph_square(g, mica_graph_scatter_nd(g, x[0], x[1], x[2], MICA_SCATTER_MIN));
}

static void others(void **state)
{
    (void)state;
    static const rig_case rows[] = {{"copy", copied, 1, 0, {{D(2, {3, 5}, -1, 1)}}},
                                    {"variance of a sample", variance, 1, 0, {{D(2, {3, 5}, -1, 1)}}},
                                    {"scatter_nd, min",
                                     scatter_nd_min,
                                     1,
                                     0,
                                     {{D(2, {4, 3}, -1, 1)}, {I(2, {5, 1}, 0, 4)}, {D(2, {5, 3}, -1, 1)}}}};
    assert_int_equal(rig_check(rows, COUNT(rows), cpu), 0);
}

/* ---- positions ---- */

static mica_rope_params rope_of_case;

BUILD(rope)
{
    return mica_graph_square(g, one(g, MICA_OP_ROPE, &rope_of_case, (mica_tensor[]){x[0], x[1], 0}, 3));
}

static void ropes(void **state)
{
    (void)state;
    static const rig_case plain = {"rope", rope, 1, NARROW, {{F(3, {3, 2, 6}, -1, 1)}, {I(1, {3}, 0, 9)}}},
                          axes = {"rope, axes",
                                  rope,
                                  1,
                                  NARROW,
                                  {{F(3, {3, 2, 6}, -1, 1)}, {I(2, {3, 3}, 0, 9)}}};
    int wrong = 0;
    for (uint32_t mode = MICA_ROPE_STANDARD; mode <= MICA_ROPE_NEOX; mode++) {
        rope_of_case = (mica_rope_params){.mode = (mica_rope_mode)mode,
                                          .theta = 100,
                                          .frequency_dims = 8,
                                          .position_scale = mode == 0 ? 0.5f : 0,
                                          .rotary_dims = mode == 0 ? 4 : 0};
        wrong += rig_check(&plain, 1, cpu);
        for (uint32_t a = MICA_ROPE_AXES_SECTIONS; a <= MICA_ROPE_AXES_SEPARATE; a++) {
            rope_of_case = (mica_rope_params){
                .mode = (mica_rope_mode)mode, .theta = 100, .axes = a, .sections = {1, 1, 1}};
            wrong += rig_check(&axes, 1, cpu);
        }
    }
    assert_int_equal(wrong, 0);
}

/* ---- images ---- */

static mica_resize_params resize_of_case;
static mica_grid_params grid_of_case;
static mica_pool_windows_params pool_of_case;
static mica_im2col_params columns_of_case;
static mica_conv_params conv_of_case;

BUILD(resize)
{
    return mica_graph_square(g, one(g, MICA_OP_RESIZE, &resize_of_case, x, 1));
}
BUILD(grid)
{
    return mica_graph_square(g, one(g, MICA_OP_GRID_SAMPLE, &grid_of_case, x, 2));
}
BUILD(pool)
{
    return mica_graph_square(g, one(g, MICA_OP_POOL_WINDOWS, &pool_of_case, x, 1));
}
BUILD(im2col)
{
    return mica_graph_square(g, one(g, MICA_OP_IM2COL, &columns_of_case, x, 1));
}
BUILD(col2im)
{
    return mica_graph_square(g, one(g, MICA_OP_COL2IM, &columns_of_case, x, 1));
}
BUILD(conv)
{
    return mica_graph_square(g, one(g, MICA_OP_CONV, &conv_of_case, (mica_tensor[]){x[0], x[1], 0}, 3));
}

static void resizes(void **state)
{
    (void)state;
    static const rig_case row = {"resize", resize, 1, 0, {{D(4, {1, 2, 4, 5}, -1, 1)}}};
    int wrong = 0;
    for (uint32_t mode = MICA_RESIZE_NEAREST; mode <= MICA_RESIZE_CUBIC; mode++)
        for (uint32_t corners = MICA_RESIZE_HALF_PIXEL; corners <= MICA_RESIZE_ASYMMETRIC; corners++)
            for (uint32_t dims = 1; dims <= 3; dims++) {
                const uint32_t antialias =
                    mode != MICA_RESIZE_NEAREST && corners == MICA_RESIZE_HALF_PIXEL && dims != 2;
                resize_of_case = (mica_resize_params){mode, corners, antialias, dims, {3, 7, 2}};
                wrong += rig_check(&row, 1, cpu);
            }
    assert_int_equal(wrong, 0);
}

static void grids(void **state)
{
    (void)state;
    static const rig_case inside = {"grid_sample",
                                    grid,
                                    1,
                                    3e-5,
                                    {{D(4, {1, 2, 4, 5}, -1, 1)}, {D(4, {1, 3, 2, 2}, -0.7, 0.7)}}},
                          outside = {"grid_sample, outside",
                                     grid,
                                     1,
                                     3e-5,
                                     {{D(4, {1, 2, 4, 5}, -1, 1)}, {D(4, {1, 3, 2, 2}, 1.3, 1.7)}}},
                          nearest = {"grid_sample, nearest",
                                     grid,
                                     1,
                                     3e-5,
                                     {{D(4, {1, 2, 4, 5}, -1, 1)}, {D(4, {1, 3, 2, 2}, 0.3, 0.3)}}};
    int wrong = 0;
    for (uint32_t mode = MICA_RESIZE_NEAREST; mode <= MICA_RESIZE_CUBIC; mode++)
        for (uint32_t padding = MICA_GRID_ZEROS; padding <= MICA_GRID_REFLECTION; padding++)
            for (uint32_t align = 0; align < 2; align++) {
                grid_of_case = (mica_grid_params){mode, padding, align};
                wrong += rig_check(mode == MICA_RESIZE_NEAREST ? &nearest : &inside, 1, cpu);
                if (mode != MICA_RESIZE_NEAREST)
                    wrong += rig_check(&outside, 1, cpu);
            }
    assert_int_equal(wrong, 0);
}

static void windows(void **state)
{
    (void)state;
    static const rig_case line = {"pool of a line", pool, 1, 0, {{D(3, {2, 3, 9}, -1.5, 1.5)}}},
                          plane = {"pool", pool, 1, 0, {{D(4, {1, 2, 5, 6}, -1.5, 1.5)}}},
                          volume = {"pool of a volume", pool, 1, 0, {{D(5, {1, 2, 3, 4, 3}, -1.5, 1.5)}}};
    int wrong = 0;
    for (uint32_t kind = MICA_POOL_MAX; kind <= MICA_POOL_PROD; kind++)
        for (uint32_t more = 0; more < 2; more++) {
            pool_of_case = (mica_pool_windows_params){.kind = kind,
                                                      .kernel = {2, 3},
                                                      .stride = {2, 2},
                                                      .low = {0, 1},
                                                      .high = {1, 1},
                                                      .dilation = {2, 1},
                                                      .ceil_mode = more,
                                                      .count_padding = more};
            wrong += rig_check(&plane, 1, cpu);
            pool_of_case = (mica_pool_windows_params){
                .kind = kind, .dims = 1, .kernel = {3}, .low = {1}, .high = {1}, .ceil_mode = more};
            wrong += rig_check(&line, 1, cpu);
            pool_of_case = (mica_pool_windows_params){.kind = kind,
                                                      .dims = 3,
                                                      .kernel = {2, 2, 2},
                                                      .stride = {1, 2, 1},
                                                      .count_padding = more,
                                                      .high = {0, 0, 1}};
            wrong += rig_check(&volume, 1, cpu);
        }
    assert_int_equal(wrong, 0);
}

static void columns(void **state)
{
    (void)state;
    static const rig_case rows[] = {{"im2col", im2col, 1, 0, {{D(3, {2, 3, 7}, -1, 1)}}},
                                    {"col2im", col2im, 1, 0, {{D(3, {2, 6, 5}, -1, 1)}}}};
    static const rig_case volumes[] = {{"im2col of volumes", im2col, 1, 0, {{D(5, {1, 2, 3, 4, 3}, -1, 1)}}}};
    static const rig_case convs[] = {
        {"conv of volumes", conv, 1, 0, {{D(5, {1, 2, 3, 4, 3}, -1, 1)}, {D(5, {2, 2, 2, 2, 1}, -1, 1)}}}};
    int wrong = 0;
    columns_of_case = (mica_im2col_params){.dims = 1, .kernel = {2}, .dilation = {2}, .size = {7}};
    wrong += rig_check(rows, COUNT(rows), cpu);
    columns_of_case =
        (mica_im2col_params){.dims = 3, .kernel = {2, 1, 2}, .stride = {1, 2, 1}, .high = {0, 0, 1}};
    wrong += rig_check(volumes, COUNT(volumes), cpu);
    conv_of_case = (mica_conv_params){.stride = {1, 2, 1}, .high = {1, 0, 0}};
    wrong += rig_check(convs, COUNT(convs), cpu);
    assert_int_equal(wrong, 0);
}

/* ---- experts ---- */

static mica_route_params route_of_case;

/* Experts stand apart, so that a step of a difference changes no choice. */
BUILD(route)
{
    const mica_operand_desc asked[2] = {{.dtype = MICA_DTYPE_I32, .ndim = 2, .shape = {5, 3}},
                                        {.dtype = MICA_DTYPE_F32, .ndim = 2, .shape = {5, 3}}};
    static const float apart[] = {2.1f, 0.3f, 1.2f, -0.7f, 3, -1.8f};
    mica_tensor y[2];
    const mica_tensor by = mica_graph_constant(g, MICA_DTYPE_F32, 1, (uint64_t[]){6}, apart, sizeof apart);
    const mica_tensor logits = mica_graph_add(g, x[0], by);
    (void)mica_graph_op(g, MICA_OP_ROUTE, &route_of_case, (mica_tensor[]){logits, 0, x[1]}, 3, 3, asked, y,
                        2);
    return mica_graph_square(g, y[1]);
}

static void routes(void **state)
{
    (void)state;
    static const rig_case row = {
        "route", route, 1, NARROW, {{F(2, {5, 6}, -0.2, 0.2)}, {F(1, {6}, 0.5, 1.5)}}};
    int wrong = 0;
    for (uint32_t v = 0; v < 16; v++) {
        route_of_case = (mica_route_params){.scoring = v & 1,
                                            .softmax_first = (v & 3) == 2,
                                            .normalise = v >> 2 & 1,
                                            .groups = 3,
                                            .top_groups = 2,
                                            .group_best = v >> 3 == 0 ? 0 : 2};
        wrong += rig_check(&row, 1, cpu);
    }
    assert_int_equal(wrong, 0);
}

/* ---- recurrence ---- */

static mica_delta_params delta_of_case;
static mica_selective_params selective_of_case;
static mica_rnn_params rnn_of_case;

BUILD(delta)
{
    mica_tensor in[16] = {x[0], x[1], x[2], x[3], x[4]};
    return mica_graph_square(g, one(g, MICA_OP_DELTA_NET, &delta_of_case, in, 11));
}
BUILD(selective)
{
    mica_tensor in[16] = {x[0], x[1], x[2], x[3], x[4]};
    return mica_graph_square(g, one(g, MICA_OP_SELECTIVE_SCAN, &selective_of_case, in, 13));
}

/* Two sequences of three tokens, side by side, with states: what they end with counts too. */
static mica_tensor batched(mica_graph *g, mica_op op, const void *params, const mica_tensor *x,
                           uint32_t given, uint32_t operands)
{
    mica_tensor in[16] = {0}, y[2];
    memcpy(in, x, given * sizeof *in);
    in[operands] = x[given];
    in[operands + 4] = x[given + 1];
    (void)mica_graph_op(g, op, params, in, operands + 5, 3, NULL, y, 2);
    const mica_tensor sum = mica_graph_reduce(g, MICA_REDUCE_SUM_SQUARES, y[1], NULL, 0, 0);
    return mica_graph_add(g, mica_graph_square(g, y[0]), sum);
}
BUILD(rnn)
{
    return batched(g, MICA_OP_RNN, &rnn_of_case, x, 3, 3);
}
BUILD(ssm_conv_batch)
{
    return batched(g, MICA_OP_SSM_CONV, &(mica_ssm_conv_params){.activation = MICA_SSM_SILU}, x, 3, 3);
}
BUILD(delta_batch)
{
    return batched(g, MICA_OP_DELTA_NET, &delta_of_case, x, 5, 6);
}
BUILD(selective_batch)
{
    return batched(g, MICA_OP_SELECTIVE_SCAN, &selective_of_case, x, 5, 8);
}

/* Two sequences that only the slots which they end in tell of, which the backward op does not have. */
BUILD(rnn_ends)
{
    static const int32_t to[] = {1, 0};
    mica_tensor in[16] = {x[0], x[1], x[2]}, y[2];
    in[6] = mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){2}, to, sizeof to);
    in[7] = x[3];
    (void)mica_graph_op(g, MICA_OP_RNN, &rnn_of_case, in, 8, 3, NULL, y, 2);
    return mica_graph_square(g, y[0]);
}

static void batches(void **state)
{
    (void)state;
    static const rig_case rows[] = {{"ssm_conv of a batch",
                                     ssm_conv_batch,
                                     1,
                                     0,
                                     {{D(2, {6, 3}, -1, 1)},
                                      {D(2, {3, 3}, -1, 1)},
                                      {D(1, {3}, -1, 1)},
                                      {D(3, {2, 3, 2}, -1, 1)},
                                      {D(3, {2, 3, 2}, -1, 1)}}},
                                    {"delta_net of a batch",
                                     delta_batch,
                                     1,
                                     0,
                                     {{D(3, {6, 1, 2}, -1, 1)},
                                      {D(3, {6, 1, 2}, 0.2, 1)},
                                      {D(3, {6, 2, 2}, -1, 1)},
                                      {D(2, {6, 2}, -1, 0)},
                                      {D(2, {6, 2}, 0, 1)},
                                      {D(4, {2, 2, 2, 2}, -1, 1)},
                                      {D(4, {2, 2, 2, 2}, -1, 1)}}},
                                    {"selective_scan of a batch",
                                     selective_batch,
                                     1,
                                     0,
                                     {{D(2, {6, 2}, -1, 1)},
                                      {D(2, {6, 2}, 0.1, 1)},
                                      {D(2, {2, 3}, -1, 0)},
                                      {D(3, {6, 1, 3}, -1, 1)},
                                      {D(3, {6, 1, 3}, -1, 1)},
                                      {D(3, {2, 2, 3}, -1, 1)},
                                      {D(3, {2, 2, 3}, -1, 1)}}}};
    int wrong = 0;
    delta_of_case = (mica_delta_params){.normalise = 1, .eps = 1e-3f};
    wrong += rig_check(rows, COUNT(rows), cpu);
    for (uint32_t v = 0; v < 8; v++) {
        const uint64_t gates = v / 2 == MICA_RNN_GRU ? 3 : v / 2 == MICA_RNN_LSTM ? 4 : 1;
        const uint64_t parts = v / 2 == MICA_RNN_LSTM ? 2 : 1;
        const rig_case row = {"rnn of a batch",
                              rnn,
                              1,
                              0,
                              {{D(2, {6, gates * 2}, -1, 1)},
                               {D(2, {gates * 2, 2}, -1, 1)},
                               {D(1, {gates * 2}, -1, 1)},
                               {D(3, {2, parts, 2}, -1, 1)},
                               {D(3, {2, parts, 2}, -1, 1)}}};
        rnn_of_case = (mica_rnn_params){.kind = v / 2, .reverse = v & 1};
        wrong += rig_check(&row, 1, cpu);
    }
    static const rig_case ends = {
        "rnn, ends",
        rnn_ends,
        0,
        0,
        {{D(2, {6, 2}, -1, 1)}, {D(2, {2, 2}, -1, 1)}, {D(1, {2}, -1, 1)}, {D(3, {3, 1, 2}, -1, 1)}}};
    rnn_of_case = (mica_rnn_params){.kind = MICA_RNN_TANH};
    wrong += rig_check(&ends, 1, cpu);
    assert_int_equal(wrong, 0);
}

static void recurrences(void **state)
{
    (void)state;
    static const rig_case shared = {"delta_net",
                                    delta,
                                    1,
                                    0,
                                    {{D(3, {5, 2, 3}, -1, 1)},
                                     {D(3, {5, 2, 3}, 0.2, 1)},
                                     {D(3, {5, 4, 2}, -1, 1)},
                                     {D(2, {5, 4}, -1, 0)},
                                     {D(2, {5, 4}, 0, 1)}}},
                          rows = {"delta_net, decays of rows",
                                  delta,
                                  1,
                                  0,
                                  {{D(3, {5, 2, 3}, -1, 1)},
                                   {D(3, {5, 2, 3}, 0.2, 1)},
                                   {D(3, {5, 2, 2}, -1, 1)},
                                   {D(3, {5, 2, 3}, -1, 0)},
                                   {D(2, {5, 2}, 0, 1)}}},
                          scan = {"selective_scan",
                                  selective,
                                  1,
                                  0,
                                  {{D(2, {5, 4}, -1, 1)},
                                   {D(2, {5, 4}, 0.1, 1)},
                                   {D(2, {4, 3}, -1, 0)},
                                   {D(3, {5, 2, 3}, -1, 1)},
                                   {D(3, {5, 2, 3}, -1, 1)}}};
    int wrong = 0;
    for (uint32_t v = 0; v < 12; v++) {
        delta_of_case =
            (mica_delta_params){v & 1, v >> 1 & 1, (v & 2) != 0 ? 1e-3f : 0, v < 6 ? 0 : 0.7f, v % 3};
        wrong += rig_check(&shared, 1, cpu);
        if (delta_of_case.form != MICA_DELTA_CHUNKED)
            wrong += rig_check(&rows, 1, cpu);
    }
    for (uint32_t softplus = 0; softplus < 2; softplus++) {
        selective_of_case = (mica_selective_params){softplus};
        wrong += rig_check(&scan, 1, cpu);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(others), cmocka_unit_test(ropes),       cmocka_unit_test(resizes),
        cmocka_unit_test(grids),  cmocka_unit_test(windows),     cmocka_unit_test(columns),
        cmocka_unit_test(routes), cmocka_unit_test(recurrences), cmocka_unit_test(batches)};
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
