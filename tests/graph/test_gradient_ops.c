/* Gradients of the ops of the catalogue against central differences: in f64 on the cpu, those that have no f64 in f32 (bounds of their own). */
#include "gradient_rig.h"
#include "support/only_cpu.h"

#define BUILD(name) static mica_tensor name(mica_graph *g, const mica_tensor *x)
#define D(...) MICA_DTYPE_F64, __VA_ARGS__
#define F(...) MICA_DTYPE_F32, __VA_ARGS__
#define I(...) MICA_DTYPE_I32, __VA_ARGS__
#define COUNT(rows) (sizeof(rows) / sizeof(rows)[0])
/* f32: steps of 2^-7, whose cubes and whose roundings, of 2^-24 / 2^-7, are below it */
#define NARROW 2e-3

static mica_tensor one(mica_graph *g, mica_op op, const void *params, const mica_tensor *x, uint32_t count)
{
    return mica_graph_op(g, op, params, x, count, 1, NULL, NULL, 0);
}

/* ---- products ---- */

BUILD(product)
{
    return one(g, MICA_OP_PRODUCT, NULL, (mica_tensor[]){x[0], x[1], x[2], 0, 0}, 5);
}
BUILD(product_plain)
{
    return mica_graph_square(g, mica_graph_matmul(g, x[0], x[1]));
}
BUILD(product_turned)
{
    const uint32_t order[] = {0, 2, 1};
    return mica_graph_matmul(g, mica_graph_permute(g, x[0], order), mica_graph_permute(g, x[1], order));
}
BUILD(matmul)
{
    return mica_graph_square(g, one(g, MICA_OP_MATMUL, NULL, x, 2));
}
BUILD(matmuls)
{
    mica_tensor y[2];
    (void)mica_graph_op(g, MICA_OP_MATMUL, NULL, x, 3, 3, NULL, y, 2);
    return mica_graph_mul(g, y[0], y[1]);
}
BUILD(transposed)
{
    return mica_graph_square(g, one(g, MICA_OP_MATMUL_TRANSPOSED, NULL, (mica_tensor[]){x[0], 0, x[1]}, 3));
}
BUILD(transposed_experts)
{
    return mica_graph_square(g,
                             one(g, MICA_OP_MATMUL_TRANSPOSED, NULL, (mica_tensor[]){x[0], x[2], x[1]}, 3));
}
BUILD(experts)
{
    return mica_graph_square(g, one(g, MICA_OP_MATMUL_EXPERTS, NULL, (mica_tensor[]){x[0], x[2], x[1]}, 3));
}
BUILD(expert_sum)
{
    return mica_graph_square(g, one(g, MICA_OP_EXPERT_SUM, NULL, x, 5));
}
BUILD(embedding)
{
    return mica_graph_square(g, one(g, MICA_OP_EMBEDDING, NULL, x, 2));
}

/* Experts stand apart, so that a step of a difference changes no choice. */
static mica_tensor routed(mica_graph *g, const mica_tensor *x, mica_route_params params)
{
    const mica_operand_desc asked[2] = {{.dtype = MICA_DTYPE_I32, .ndim = 2, .shape = {5, 3}},
                                        {.dtype = MICA_DTYPE_F32, .ndim = 2, .shape = {5, 3}}};
    mica_tensor y[2];
    static const float apart[] = {2.1f, 0.3f, 1.2f, -0.7f, 3, -1.8f};
    const mica_tensor by = mica_graph_constant(g, MICA_DTYPE_F32, 1, (uint64_t[]){6}, apart, sizeof apart);
    const mica_tensor logits = mica_graph_add(g, x[0], by);
    (void)mica_graph_op(g, MICA_OP_ROUTE, &params, (mica_tensor[]){logits, 0, x[1]}, 3, 3, asked, y, 2);
    return mica_graph_square(g, y[1]);
}
BUILD(route)
{
    return routed(g, x, (mica_route_params){.scale = 1.5f});
}
BUILD(route_first)
{
    return routed(g, x, (mica_route_params){.softmax_first = 1, .normalise = 1});
}
BUILD(route_sigmoid)
{
    return routed(g, x, (mica_route_params){.scoring = MICA_ROUTE_SIGMOID, .normalise = 1, .scale = 2});
}

static void products(void **state)
{
    (void)state;
    static const rig_case rows[] = {
        {"product", product, 1, 0, {{D(3, {2, 3, 4}, -1, 1)}, {D(3, {2, 4, 5}, -1, 1)}, {D(1, {5}, -1, 1)}}},
        {"product, b for many", product_plain, 1, 0, {{D(3, {2, 3, 4}, -1, 1)}, {D(2, {4, 5}, -1, 1)}}},
        {"product, a for many", product_plain, 1, 0, {{D(2, {3, 4}, -1, 1)}, {D(3, {2, 4, 5}, -1, 1)}}},
        {"product, both repeat",
         product_plain,
         1,
         0,
         {{D(4, {2, 1, 3, 4}, -1, 1)}, {D(3, {3, 4, 2}, -1, 1)}}},
        {"product of a row", product_plain, 1, 0, {{D(1, {4}, -1, 1)}, {D(2, {4, 5}, -1, 1)}}},
        {"product, turned", product_turned, 1, 0, {{D(3, {2, 4, 3}, -1, 1)}, {D(3, {2, 5, 4}, -1, 1)}}},
        {"matmul", matmul, 1, NARROW, {{F(2, {3, 4}, -1, 1)}, {F(2, {5, 4}, -1, 1)}}},
        {"matmul of rows", matmul, 1, NARROW, {{F(4, {2, 2, 3, 4}, -1, 1)}, {F(2, {5, 4}, -1, 1)}}},
        {"matmul of batches", matmul, 1, NARROW, {{F(3, {4, 3, 4}, -1, 1)}, {F(3, {2, 5, 4}, -1, 1)}}},
        {"matmuls of one x",
         matmuls,
         1,
         NARROW,
         {{F(2, {3, 4}, -1, 1)}, {F(2, {5, 4}, -1, 1)}, {F(2, {5, 4}, -1, 1)}}},
        {"matmul_transposed", transposed, 1, NARROW, {{F(2, {3, 5}, -1, 1)}, {F(2, {5, 4}, -1, 1)}}},
        {"matmul_transposed, experts",
         transposed_experts,
         1,
         NARROW,
         {{F(3, {4, 2, 5}, -1, 1)}, {F(3, {3, 5, 4}, -1, 1)}, {I(2, {4, 2}, 0, 3)}}},
        {"matmul_experts",
         experts,
         1,
         NARROW,
         {{F(2, {4, 4}, -1, 1)}, {F(3, {3, 5, 4}, -1, 1)}, {I(2, {4, 2}, 0, 3)}}},
        {"matmul_experts by slot",
         experts,
         1,
         NARROW,
         {{F(3, {4, 2, 4}, -1, 1)}, {F(3, {3, 5, 4}, -1, 1)}, {I(2, {4, 2}, 0, 3)}}},
        {"expert_sum",
         expert_sum,
         1,
         NARROW,
         {{F(3, {4, 2, 3}, -1, 1)},
          {F(2, {4, 2}, -1, 1)},
          {F(2, {4, 3}, -1, 1)},
          {F(1, {4}, -1, 1)},
          {F(2, {4, 3}, -1, 1)}}},
        {"route", route, 1, NARROW, {{F(2, {5, 6}, -0.4, 0.4)}, {F(1, {6}, 0.5, 1.5)}}},
        {"route, softmax first", route_first, 1, NARROW, {{F(2, {5, 6}, -0.4, 0.4)}, {F(1, {6}, 0.5, 1.5)}}},
        {"route, sigmoid", route_sigmoid, 1, NARROW, {{F(2, {5, 6}, -0.4, 0.4)}, {F(1, {6}, 0.5, 1.5)}}},
        {"embedding", embedding, 1, NARROW, {{F(2, {5, 3}, -1, 1)}, {I(1, {7}, 0, 5)}}},
    };
    assert_int_equal(rig_check(rows, COUNT(rows), cpu), 0);
}

/* ---- norms ---- */

static mica_normalize_params norm_of_case;

BUILD(normalize)
{
    return mica_graph_square(g, one(g, MICA_OP_NORMALIZE, &norm_of_case, x, 3));
}
BUILD(normalize_bare)
{
    return mica_graph_square(g, one(g, MICA_OP_NORMALIZE, &norm_of_case, (mica_tensor[]){x[0], 0, 0}, 3));
}
BUILD(statistics)
{
    mica_tensor y[3];
    (void)mica_graph_op(g, MICA_OP_NORMALIZE, &norm_of_case, (mica_tensor[]){x[0], 0, 0}, 3, 7, NULL, y, 3);
    const mica_tensor row =
        mica_graph_reduce(g, MICA_REDUCE_SUM, mica_graph_mul(g, y[0], y[0]), (int32_t[]){-1}, 1, 0);
    return mica_graph_add(g, row, mica_graph_mul(g, y[1], mica_graph_exp(g, y[2])));
}
BUILD(rms_norm)
{
    return mica_graph_square(g, one(g, MICA_OP_RMS_NORM, &(mica_norm_params){1e-3f}, x, 2));
}
BUILD(layer_norm)
{
    return mica_graph_square(g, one(g, MICA_OP_LAYER_NORM, &(mica_norm_params){1e-3f}, x, 3));
}

static void norms(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint32_t kind = 0; kind < 3; kind++)
        for (uint32_t dims = 1; dims < 3; dims++) {
            const rig_case rows[] = {
                {"normalize",
                 normalize,
                 1,
                 0,
                 {{D(3, {3, 2, 4}, -1, 1)}, {D(1, {4}, -1, 1)}, {D(1, {4}, -1, 1)}}},
                {"normalize, weight of its own",
                 normalize,
                 1,
                 0,
                 {{D(3, {3, 2, 4}, -1, 1)}, {D(2, {2, 1}, -1, 1)}, {D(3, {3, 1, 4}, -1, 1)}}},
                {"normalize, bare", normalize_bare, 1, 0, {{D(3, {3, 2, 4}, -1, 1)}}},
            };
            norm_of_case = (mica_normalize_params){kind, dims, 0.01f, dims == 2 ? 1.0f : 0.0f};
            wrong += rig_check(rows, COUNT(rows), cpu);
        }
    norm_of_case = (mica_normalize_params){MICA_NORMALIZE_LAYER, 1, 0.01f, 0};
    const rig_case rows[] = {
        {"normalize, statistics", statistics, 1, 0, {{D(2, {3, 5}, -1, 1)}}},
        {"rms_norm", rms_norm, 1, NARROW, {{F(2, {3, 5}, -1, 1)}, {F(1, {5}, -1, 1)}}},
        {"layer_norm",
         layer_norm,
         1,
         NARROW,
         {{F(2, {3, 5}, -1, 1)}, {F(1, {5}, -1, 1)}, {F(1, {5}, -1, 1)}}},
    };
    wrong += rig_check(rows, COUNT(rows), cpu);
    assert_int_equal(wrong, 0);
}

/* ---- softmax and losses ---- */

BUILD(softmax)
{
    return mica_graph_square(g, one(g, MICA_OP_SOFTMAX, &(mica_softmax_params){0.7f, 0}, x, 2));
}
BUILD(softmax_bare)
{
    return mica_graph_square(
        g, one(g, MICA_OP_SOFTMAX, &(mica_softmax_params){1, 0}, (mica_tensor[]){x[0], 0}, 2));
}
BUILD(log_softmax)
{
    return mica_graph_square(
        g, one(g, MICA_OP_SOFTMAX, &(mica_softmax_params){0.7f, 1}, (mica_tensor[]){x[0], 0}, 2));
}
BUILD(cross_entropy)
{
    const mica_cross_entropy_params params = {.smoothing = 0.1f, .ignore = 1, .ignored_label = 2};
    return mica_graph_square(g,
                             one(g, MICA_OP_CROSS_ENTROPY, &params, (mica_tensor[]){x[0], x[1], 0, x[2]}, 4));
}
BUILD(cross_entropy_plain)
{
    return one(g, MICA_OP_CROSS_ENTROPY, NULL, (mica_tensor[]){x[0], x[1], 0, 0}, 4);
}
BUILD(cross_entropy_targets)
{
    return mica_graph_square(g, one(g, MICA_OP_CROSS_ENTROPY, NULL, (mica_tensor[]){x[0], 0, x[1], x[2]}, 4));
}
BUILD(cross_entropy_lse)
{
    mica_tensor y[2];
    (void)mica_graph_op(g, MICA_OP_CROSS_ENTROPY, NULL, (mica_tensor[]){x[0], x[1], 0, 0}, 4, 3, NULL, y, 2);
    return mica_graph_mul(g, y[0], y[1]);
}

static void losses(void **state)
{
    (void)state;
    static const rig_case rows[] = {
        {"softmax", softmax, 1, 0, {{D(3, {2, 3, 5}, -1, 1)}, {D(2, {3, 1}, -1, 1)}}},
        {"softmax, mask", softmax, 1, 0, {{D(3, {2, 3, 5}, -1, 1)}, {D(2, {3, 5}, -1, 1)}}},
        {"softmax, bool mask", softmax, 1, 0, {{D(3, {2, 3, 5}, -1, 1)}, {MICA_DTYPE_BOOL, 2, {3, 5}, 0, 2}}},
        {"softmax, bare", softmax_bare, 1, 0, {{D(2, {3, 5}, -1, 1)}}},
        {"log softmax", log_softmax, 1, 0, {{D(2, {3, 5}, -1, 1)}}},
        {"cross_entropy", cross_entropy, 1, 0, {{D(2, {6, 5}, -1, 1)}, {I(1, {6}, 0, 5)}, {D(1, {5}, 1, 1)}}},
        {"cross_entropy, weight",
         cross_entropy,
         1,
         0,
         {{D(2, {6, 5}, -1, 1)}, {I(1, {6}, 0, 5)}, {D(1, {5}, 0.5, 2)}}},
        {"cross_entropy, plain", cross_entropy_plain, 1, 0, {{D(2, {6, 5}, -1, 1)}, {I(1, {6}, 0, 5)}}},
        {"cross_entropy, targets",
         cross_entropy_targets,
         1,
         0,
         {{D(2, {6, 5}, -1, 1)}, {D(2, {6, 5}, 0, 1)}, {D(1, {5}, 0.5, 2)}}},
        {"cross_entropy, lse", cross_entropy_lse, 1, 0, {{D(2, {6, 5}, -1, 1)}, {I(1, {6}, 0, 5)}}},
    };
    assert_int_equal(rig_check(rows, COUNT(rows), cpu), 0);
}

/* ---- attention ---- */

static mica_attention_params attention_of_case;

/* x: q [T, 4, D], k [S, 2, D], v [S, 2, V], then by the case: a mask, sinks, slopes. */
static mica_tensor attended(mica_graph *g, const mica_tensor *x, mica_tensor mask, mica_tensor sinks,
                            mica_tensor slopes)
{
    static const int32_t positions[] = {1, 4, 2, 0, 3}, length[] = {5};
    const mica_tensor at =
        mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){5}, positions, sizeof positions);
    const mica_tensor keys =
        mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){1}, length, sizeof length);
    const mica_tensor in[] = {x[0], x[1], x[2], at, keys, 0, 0, mask, sinks, slopes, 0};
    return mica_graph_square(g, one(g, MICA_OP_ATTENTION, &attention_of_case, in, 11));
}
BUILD(attention)
{
    return attended(g, x, 0, 0, 0);
}
BUILD(attention_sinks)
{
    return attended(g, x, 0, x[3], 0);
}
BUILD(attention_mask)
{
    return attended(g, x, x[3], 0, 0);
}
BUILD(attention_all)
{
    return attended(g, x, x[3], x[4], x[5]);
}

#define QKV                                             \
    {D(3, {5, 4, 3}, -1, 1)}, {D(3, {6, 2, 3}, -1, 1)}, \
    {                                                   \
        D(3, {6, 2, 2}, -1, 1)                          \
    }

static void attentions(void **state)
{
    (void)state;
    static const mica_attention_params kinds[] = {{.scale = 0},
                                                  {.scale = 0.8f, .window = 2},
                                                  {.scale = 0.9f, .bidirectional = 1},
                                                  {.scale = 1, .softcap = 1.5f}};
    static const rig_case rows[] = {
        {"attention", attention, 1, 0, {QKV}},
        {"attention, sinks", attention_sinks, 1, 0, {QKV, {D(1, {4}, -1, 1)}}},
        {"attention, bool mask", attention_mask, 1, 0, {QKV, {MICA_DTYPE_BOOL, 2, {5, 6}, 0, 2}}},
        {"attention, narrow mask", attention_mask, 1, 0, {QKV, {D(3, {4, 5, 4}, -1, 1)}}},
        {"attention, held mask", attention_mask, 1, 0, {QKV, {D(2, {5, 6}, 0.5, 0.5)}}},
        {"attention, all",
         attention_all,
         1,
         0,
         {QKV, {D(2, {5, 6}, -1, 1)}, {D(1, {4}, -1, 1)}, {D(1, {4}, -1, 1)}}},
    };
    int wrong = 0;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        attention_of_case = kinds[i];
        wrong += rig_check(rows, COUNT(rows), cpu);
    }
    assert_int_equal(wrong, 0);
}

BUILD(rope)
{
    const mica_rope_params params = {
        .mode = MICA_ROPE_NEOX, .rotary_dims = 4, .theta = 100, .attention_scale = 1.25f};
    return mica_graph_square(g, one(g, MICA_OP_ROPE, &params, (mica_tensor[]){x[0], x[1], x[2]}, 3));
}

static void ropes(void **state)
{
    (void)state;
    static const rig_case rows[] = {
        {"rope", rope, 1, NARROW, {{F(3, {3, 2, 6}, -1, 1)}, {I(1, {3}, 0, 9)}, {F(1, {2}, 1.5, 1.5)}}}};
    assert_int_equal(rig_check(rows, COUNT(rows), cpu), 0);
}

/* ---- images ---- */

static mica_conv_params conv_of_case;

BUILD(conv)
{
    return mica_graph_square(g, one(g, MICA_OP_CONV, &conv_of_case, x, 3));
}

static void convolutions(void **state)
{
    (void)state;
    static const rig_case rows[] = {
        {"conv", conv, 1, 0, {{D(4, {2, 4, 7, 6}, -1, 1)}, {D(4, {4, 2, 3, 2}, -1, 1)}, {D(1, {4}, -1, 1)}}},
        {"conv of one dimension",
         conv,
         1,
         0,
         {{D(3, {2, 4, 9}, -1, 1)}, {D(3, {6, 2, 3}, -1, 1)}, {D(1, {6}, -1, 1)}}}};
    static const rig_case turned[] = {
        {"conv, transposed",
         conv,
         1,
         0,
         {{D(4, {2, 4, 4, 5}, -1, 1)}, {D(4, {4, 3, 3, 2}, -1, 1)}, {D(1, {6}, -1, 1)}}}};
    int wrong = 0;
    for (uint32_t stride = 1; stride < 4; stride++) {
        conv_of_case = (mica_conv_params){.stride = {stride, 1, 1},
                                          .dilation = {1, 2, 1},
                                          .low = {1, 0, 0},
                                          .high = {0, 1, 0},
                                          .groups = 2};
        wrong += rig_check(rows, COUNT(rows), cpu);
        conv_of_case.transposed = 1;
        conv_of_case.output_padding[0] = stride - 1;
        wrong += rig_check(turned, COUNT(turned), cpu);
    }
    assert_int_equal(wrong, 0);
}

static mica_pool_windows_params pool_of_case;

BUILD(pool)
{
    return mica_graph_square(g, one(g, MICA_OP_POOL_WINDOWS, &pool_of_case, x, 1));
}

/* Windows with a factor that is 0. */
BUILD(pool_zero)
{
    static const double zeros[10] = {0};
    const mica_tensor none = mica_graph_constant(g, MICA_DTYPE_F64, 4, (uint64_t[]){1, 2, 5, 1}, zeros, 80);
    const mica_tensor both = mica_graph_concat(g, (mica_tensor[]){x[0], none}, 2, 3);
    return mica_graph_square(g, mica_graph_add(g, one(g, MICA_OP_POOL_WINDOWS, &pool_of_case, &both, 1),
                                               mica_graph_number(g, MICA_DTYPE_F64, 1)));
}

static void pools(void **state)
{
    (void)state;
    static const char *const names[] = {"max", "min", "mean", "sum", "prod"};
    int wrong = 0;
    for (uint32_t kind = 0; kind <= MICA_POOL_PROD; kind++) {
        const rig_case row = {names[kind], pool, 1, 0, {{D(4, {2, 3, 5, 6}, -1.5, 1.5)}}};
        pool_of_case = (mica_pool_windows_params){
            .kind = kind, .kernel = {3, 2}, .stride = {2, 1}, .low = {1, 0}, .high = {1, 1}};
        wrong += rig_check(&row, 1, cpu);
    }
    static const rig_case zero = {"prod, zeros", pool_zero, 1, 0, {{D(4, {1, 2, 5, 4}, -1.5, 1.5)}}};
    wrong += rig_check(&zero, 1, cpu);
    assert_int_equal(wrong, 0);
}

static const mica_im2col_params columns_of_case = {
    .kernel = {3, 2}, .stride = {2, 1}, .low = {1, 0}, .high = {0, 1}, .size = {5, 4}};

BUILD(im2col)
{
    return mica_graph_square(g, one(g, MICA_OP_IM2COL, &columns_of_case, x, 1));
}
BUILD(col2im)
{
    return mica_graph_square(g, one(g, MICA_OP_COL2IM, &columns_of_case, x, 1));
}

static mica_resize_params resize_of_case;

BUILD(resize)
{
    return mica_graph_square(g, one(g, MICA_OP_RESIZE, &resize_of_case, x, 1));
}
static mica_grid_params grid_of_case;
BUILD(grid)
{
    return mica_graph_square(g, one(g, MICA_OP_GRID_SAMPLE, &grid_of_case, x, 2));
}

static void places(void **state)
{
    (void)state;
    static const rig_case rows[] = {{"im2col", im2col, 1, 0, {{D(4, {2, 3, 5, 4}, -1, 1)}}},
                                    {"col2im", col2im, 1, 0, {{D(3, {2, 12, 8}, -1, 1)}}}};
    int wrong = rig_check(rows, COUNT(rows), cpu);
    for (uint32_t mode = 0; mode <= MICA_RESIZE_CUBIC; mode++) {
        const rig_case row = {"resize", resize, 1, 0, {{D(4, {1, 2, 4, 5}, -1, 1)}}};
        resize_of_case = (mica_resize_params){.mode = mode, .size = {7, 3}};
        wrong += rig_check(&row, 1, cpu);
        const rig_case sample = {
            "grid_sample", grid, 1, 3e-5, {{D(4, {1, 2, 4, 5}, -1, 1)}, {D(4, {1, 3, 2, 2}, -0.7, 0.7)}}};
        grid_of_case = (mica_grid_params){.mode = mode};
        if (mode != MICA_RESIZE_NEAREST)
            wrong += rig_check(&sample, 1, cpu);
    }
    assert_int_equal(wrong, 0);
}

/* ---- recurrence ---- */

/* y and the states that sequences end with, of `operands` operands that are x, then the state; three sequences in two slots of four. */
static mica_tensor recurred(mica_graph *g, mica_op op, const void *params, const mica_tensor *x,
                            uint32_t operands)
{
    static const int32_t starts[] = {0, 2, 3, 6}, from[] = {1, 0, 1}, to[] = {2, 0, 3};
    mica_tensor in[16] = {0}, y[2];
    memcpy(in, x, (operands + 1) * sizeof *in);
    in[operands + 1] = mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){4}, starts, sizeof starts);
    in[operands + 2] = mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){3}, from, sizeof from);
    in[operands + 3] = mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){3}, to, sizeof to);
    in[operands + 4] = x[operands + 1];
    (void)mica_graph_op(g, op, params, in, operands + 5, 3, NULL, y, 2);
    const mica_tensor sum = mica_graph_reduce(g, MICA_REDUCE_SUM_SQUARES, y[1], NULL, 0, 0);
    return mica_graph_add(g, mica_graph_square(g, y[0]), sum);
}
/* Four sequences from zeros, of which one has no tokens; the first and the last token are nobody's. */
static mica_tensor recurred_apart(mica_graph *g, mica_op op, const void *params, const mica_tensor *x,
                                  uint32_t operands)
{
    static const int32_t starts[] = {1, 3, 3, 4, 5};
    mica_tensor in[16] = {0}, y[2];
    memcpy(in, x, operands * sizeof *in);
    in[operands + 1] = mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){5}, starts, sizeof starts);
    in[operands + 4] = x[operands];
    (void)mica_graph_op(g, op, params, in, operands + 5, 3, NULL, y, 2);
    const mica_tensor sum = mica_graph_reduce(g, MICA_REDUCE_SUM_SQUARES, y[1], NULL, 0, 0);
    return mica_graph_add(g, mica_graph_square(g, y[0]), sum);
}
/* One sequence from zeros. */
static mica_tensor recurred_plain(mica_graph *g, mica_op op, const void *params, const mica_tensor *x,
                                  uint32_t operands)
{
    mica_tensor in[16] = {0};
    memcpy(in, x, operands * sizeof *in);
    return mica_graph_square(g, one(g, op, params, in, operands + 5));
}
static const mica_ssm_conv_params silu_of_case = {.activation = MICA_SSM_SILU};
static const mica_selective_params softplus_of_case = {.softplus = 1};
static mica_rnn_params rnn_of_case;

BUILD(ssm_conv)
{
    return recurred(g, MICA_OP_SSM_CONV, &silu_of_case, x, 3);
}
BUILD(ssm_conv_plain)
{
    return recurred_plain(g, MICA_OP_SSM_CONV, NULL, x, 3);
}
BUILD(delta_net)
{
    return recurred_plain(g, MICA_OP_DELTA_NET, NULL, x, 6);
}
BUILD(delta_net_states)
{
    const mica_tensor all[] = {x[0], x[1], x[2], x[3], x[4], 0, x[5], x[6]};
    return recurred(g, MICA_OP_DELTA_NET, NULL, all, 6);
}
BUILD(selective_scan)
{
    return recurred_plain(g, MICA_OP_SELECTIVE_SCAN, &softplus_of_case, x, 8);
}
BUILD(selective_scan_states)
{
    const mica_tensor all[] = {x[0], x[1], x[2], x[3], x[4], 0, 0, x[5], x[6], x[7]};
    return recurred(g, MICA_OP_SELECTIVE_SCAN, &softplus_of_case, all, 8);
}
BUILD(rnn)
{
    return recurred(g, MICA_OP_RNN, &rnn_of_case, x, 3);
}
BUILD(rnn_apart)
{
    return recurred_apart(g, MICA_OP_RNN, &rnn_of_case, x, 3);
}
BUILD(ssm_conv_apart)
{
    return recurred_apart(g, MICA_OP_SSM_CONV, &silu_of_case, x, 3);
}
/* Keys that are the queries: one tensor, twice among the operands; and values that are made of them. */
BUILD(delta_net_tied)
{
    const mica_tensor all[] = {x[0], x[0], mica_graph_mul(g, x[0], x[1]), 0, 0, 0};
    return recurred_plain(g, MICA_OP_DELTA_NET, NULL, all, 6);
}

static void recurrences(void **state)
{
    (void)state;
    static const rig_case rows[] = {
        {"ssm_conv",
         ssm_conv,
         1,
         0,
         {{D(2, {6, 3}, -1, 1)},
          {D(2, {3, 4}, -1, 1)},
          {D(1, {3}, -1, 1)},
          {D(3, {4, 3, 3}, -1, 1)},
          {D(3, {4, 3, 3}, -1, 1)}}},
        {"ssm_conv, plain",
         ssm_conv_plain,
         1,
         0,
         {{D(2, {6, 3}, -1, 1)}, {D(2, {3, 4}, -1, 1)}, {D(1, {3}, -1, 1)}}},
        {"delta_net",
         delta_net,
         1,
         0,
         {{D(3, {5, 2, 3}, -1, 1)},
          {D(3, {5, 2, 3}, -1, 1)},
          {D(3, {5, 4, 2}, -1, 1)},
          {D(2, {5, 4}, -1, 0)},
          {D(2, {5, 4}, 0, 1)},
          {D(1, {4}, -1, 1)}}},
        {"ssm_conv, sequences apart",
         ssm_conv_apart,
         1,
         0,
         {{D(2, {6, 3}, -1, 1)}, {D(2, {3, 4}, -1, 1)}, {D(1, {3}, -1, 1)}, {D(3, {4, 3, 3}, -1, 1)}}},
        {"delta_net, tied", delta_net_tied, 1, 0, {{D(3, {5, 2, 3}, -1, 1)}, {D(3, {5, 2, 3}, -1, 1)}}},
        {"delta_net, states",
         delta_net_states,
         1,
         0,
         {{D(3, {6, 2, 3}, -1, 1)},
          {D(3, {6, 2, 3}, -1, 1)},
          {D(3, {6, 2, 2}, -1, 1)},
          {D(2, {6, 2}, -1, 0)},
          {D(2, {6, 2}, 0, 1)},
          {D(4, {4, 2, 3, 2}, -1, 1)},
          {D(4, {4, 2, 3, 2}, -1, 1)}}},
        {"selective_scan",
         selective_scan,
         1,
         0,
         {{D(2, {5, 4}, -1, 1)},
          {D(2, {5, 4}, -1, 1)},
          {D(2, {4, 3}, -1, 0)},
          {D(3, {5, 2, 3}, -1, 1)},
          {D(3, {5, 2, 3}, -1, 1)},
          {D(1, {4}, -1, 1)},
          {D(1, {4}, -1, 1)},
          {D(2, {5, 4}, -1, 1)}}},
        {"selective_scan, states",
         selective_scan_states,
         1,
         0,
         {{D(2, {6, 2}, -1, 1)},
          {D(2, {6, 2}, -1, 1)},
          {D(2, {2, 3}, -1, 0)},
          {D(3, {6, 1, 3}, -1, 1)},
          {D(3, {6, 1, 3}, -1, 1)},
          {D(2, {6, 2}, -1, 1)},
          {D(3, {4, 2, 3}, -1, 1)},
          {D(3, {4, 2, 3}, -1, 1)}}},
    };
    int wrong = rig_check(rows, COUNT(rows), cpu);
    for (uint32_t v = 0; v < 8; v++) {
        const uint64_t gates = v / 2 == MICA_RNN_GRU    ? 3
                               : v / 2 == MICA_RNN_LSTM ? 4
                                                        : 1,
                       parts = v / 2 == MICA_RNN_LSTM ? 2 : 1;
        const rig_case row = {"rnn",
                              rnn,
                              1,
                              0,
                              {{D(2, {6, gates * 2}, -1, 1)},
                               {D(2, {gates * 2, 2}, -1, 1)},
                               {D(1, {gates * 2}, -1, 1)},
                               {D(3, {4, parts, 2}, -1, 1)},
                               {D(3, {4, parts, 2}, -1, 1)}}};
        rnn_of_case = (mica_rnn_params){.kind = v / 2, .reverse = v & 1};
        wrong += rig_check(&row, 1, cpu);
        const rig_case far = {"rnn, sequences apart",
                              rnn_apart,
                              1,
                              0,
                              {{D(2, {6, gates * 2}, -1, 1)},
                               {D(2, {gates * 2, 2}, -1, 1)},
                               {D(1, {gates * 2}, -1, 1)},
                               {D(3, {4, parts, 2}, -1, 1)}}};
        wrong += rig_check(&far, 1, cpu);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),   cmocka_unit_test(norms),  cmocka_unit_test(losses),
        cmocka_unit_test(attentions), cmocka_unit_test(ropes),  cmocka_unit_test(convolutions),
        cmocka_unit_test(pools),      cmocka_unit_test(places), cmocka_unit_test(recurrences)};
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
