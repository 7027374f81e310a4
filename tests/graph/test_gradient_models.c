/*
 * test_gradient_models.c - whole models against PyTorch's gradients (tests/golden/gradient.safetensors, made by scripts/golden_gradient.py, which has the models in
 * Python), in f32 on every device. Weights have the names of the file; the gradient of "w" is "w.gradient" there.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mica/mica.h"
#include "support/devices.h"
#include "support/status.h"

#define FILE_NAME "tests/golden/gradient.safetensors"

enum { MOST = 24, ELEMENTS = 2048 };

/* A model that is written as a graph, with the weights it has so far. */
typedef struct model {
    const char *name;
    mica_weights *file;
    mica_graph *graph;
    mica_tensor weight[MOST];
    char names[MOST][64];
    uint32_t count;
} model;

static mica_tensor leaf(model *m, const char *name)
{
    char full[64];
    mica_tensor_info info;
    uint64_t index;
    snprintf(full, sizeof full, "%s.%s", m->name, name);
    must(mica_weights_find(m->file, full, &index));
    must(mica_weights_tensor(m->file, index, &info));
    const mica_tensor x = mica_graph_parameter(m->graph, full, info.dtype, info.ndim, info.shape);
    if (info.dtype == MICA_DTYPE_F32) {
        assert_true(m->count < MOST);
        snprintf(m->names[m->count], sizeof m->names[0], "%s", full);
        m->weight[m->count++] = x;
    }
    return x;
}

static mica_tensor op(model *m, mica_op code, const void *params, const mica_tensor *in, uint32_t count)
{
    return mica_graph_op(m->graph, code, params, in, count, 1, NULL, NULL, 0);
}

static mica_tensor mean_loss(model *m, mica_tensor logits, float smoothing)
{
    const mica_cross_entropy_params params = {.smoothing = smoothing};
    const mica_tensor each =
        op(m, MICA_OP_CROSS_ENTROPY, &params, (mica_tensor[]){logits, leaf(m, "labels"), 0, 0}, 4);
    return mica_graph_reduce(m->graph, MICA_REDUCE_MEAN, each, NULL, 0, 0);
}

static mica_tensor half_square(model *m, mica_tensor x)
{
    const mica_tensor sum = mica_graph_reduce(m->graph, MICA_REDUCE_SUM_SQUARES, x, NULL, 0, 0);
    return mica_graph_mul(m->graph, sum, mica_graph_number(m->graph, MICA_DTYPE_F32, 0.5));
}

static mica_tensor mlp(model *m)
{
    mica_graph *g = m->graph;
    const mica_tensor x = leaf(m, "x"), w1 = leaf(m, "w1"), b1 = leaf(m, "b1"), w2 = leaf(m, "w2"),
                      b2 = leaf(m, "b2");
    return mean_loss(m, mica_graph_linear(g, mica_graph_gelu_erf(g, mica_graph_linear(g, x, w1, b1)), w2, b2),
                     0);
}

static mica_tensor conv(model *m)
{
    static const mica_conv_params same = {.low = {1, 1}, .high = {1, 1}},
                                  halved = {.stride = {2, 2}, .low = {1, 1}, .high = {1, 1}};
    static const mica_pool_windows_params pool = {.kind = MICA_POOL_MAX, .kernel = {2, 2}};
    mica_graph *g = m->graph;
    const mica_tensor x = leaf(m, "x"), w1 = leaf(m, "w1"), b1 = leaf(m, "b1"), w2 = leaf(m, "w2"),
                      b2 = leaf(m, "b2");
    const mica_tensor w3 = leaf(m, "w3"), b3 = leaf(m, "b3");
    mica_tensor h = mica_graph_relu(g, op(m, MICA_OP_CONV, &same, (mica_tensor[]){x, w1, b1}, 3));
    h = op(m, MICA_OP_POOL_WINDOWS, &pool, &h, 1);
    h = mica_graph_relu(g, op(m, MICA_OP_CONV, &halved, (mica_tensor[]){h, w2, b2}, 3));
    h = mica_graph_reduce(g, MICA_REDUCE_MEAN, h, (int32_t[]){2, 3}, 2, 0);
    h = mica_graph_concat(g, (mica_tensor[]){h, mica_graph_square(g, h)}, 2, 1);
    return mean_loss(m, mica_graph_linear(g, h, w3, b3), 0.1f);
}

static mica_tensor heads(model *m, mica_tensor x, mica_tensor weight, uint64_t count, mica_tensor positions)
{
    static const mica_rope_params params = {.mode = MICA_ROPE_NEOX, .theta = 100};
    const mica_tensor y =
        mica_graph_reshape(m->graph, mica_graph_linear(m->graph, x, weight, 0), 3, (uint64_t[]){7, count, 4});
    return positions == 0 ? y : op(m, MICA_OP_ROPE, &params, (mica_tensor[]){y, positions, 0}, 3);
}

static mica_tensor transformer(model *m)
{
    static const mica_norm_params norm = {1e-5f};
    static const mica_attention_params attention = {.scale = 0};
    mica_graph *g = m->graph;
    const mica_tensor x = leaf(m, "x"), n1 = leaf(m, "n1"), n2 = leaf(m, "n2"), wq = leaf(m, "wq"),
                      wk = leaf(m, "wk"), wv = leaf(m, "wv"), wo = leaf(m, "wo");
    const mica_tensor gate = leaf(m, "gate"), up = leaf(m, "up"), down = leaf(m, "down"),
                      at = leaf(m, "positions"), keys = leaf(m, "lengths");
    mica_tensor h = op(m, MICA_OP_RMS_NORM, &norm, (mica_tensor[]){x, n1}, 2);
    const mica_tensor in[] = {
        heads(m, h, wq, 4, at), heads(m, h, wk, 2, at), heads(m, h, wv, 2, 0), at, keys, 0, 0, 0, 0, 0, 0};
    const mica_tensor y =
        mica_graph_reshape(g, op(m, MICA_OP_ATTENTION, &attention, in, 11), 2, (uint64_t[]){7, 16});
    const mica_tensor x1 = mica_graph_add(g, x, mica_graph_linear(g, y, wo, 0));
    h = op(m, MICA_OP_RMS_NORM, &norm, (mica_tensor[]){x1, n2}, 2);
    h = mica_graph_mul(g, mica_graph_silu(g, mica_graph_linear(g, h, gate, 0)),
                       mica_graph_linear(g, h, up, 0));
    return half_square(m, mica_graph_add(g, x1, mica_graph_linear(g, h, down, 0)));
}

static mica_tensor experts(model *m)
{
    mica_graph *g = m->graph;
    const mica_tensor x = leaf(m, "x"), router = leaf(m, "router"), gate = leaf(m, "gate"),
                      up = leaf(m, "up"), down = leaf(m, "down");
    const mica_operand_desc asked[2] = {{.dtype = MICA_DTYPE_I32, .ndim = 2, .shape = {9, 2}},
                                        {.dtype = MICA_DTYPE_F32, .ndim = 2, .shape = {9, 2}}};
    mica_tensor route[2];
    (void)mica_graph_op(g, MICA_OP_ROUTE, NULL, (mica_tensor[]){mica_graph_linear(g, x, router, 0), 0, 0}, 3,
                        3, asked, route, 2);
    const mica_tensor a = op(m, MICA_OP_MATMUL_EXPERTS, NULL, (mica_tensor[]){x, route[0], gate}, 3);
    const mica_tensor b = op(m, MICA_OP_MATMUL_EXPERTS, NULL, (mica_tensor[]){x, route[0], up}, 3);
    const mica_tensor h = mica_graph_mul(g, mica_graph_silu(g, a), b);
    const mica_tensor y = op(m, MICA_OP_MATMUL_EXPERTS, NULL, (mica_tensor[]){h, route[0], down}, 3);
    return half_square(m, op(m, MICA_OP_EXPERT_SUM, NULL, (mica_tensor[]){y, route[1], 0, 0, 0}, 5));
}

static mica_tensor mamba(model *m)
{
    static const mica_norm_params norm = {1e-5f};
    static const mica_ssm_conv_params silu = {.activation = MICA_SSM_SILU};
    static const mica_selective_params softplus = {.softplus = 1};
    mica_graph *g = m->graph;
    const mica_tensor x = leaf(m, "x"), weight = leaf(m, "norm"), into = leaf(m, "in"), out = leaf(m, "out"),
                      conv = leaf(m, "conv"), conv_bias = leaf(m, "conv_bias");
    const mica_tensor to_x = leaf(m, "to_x"), to_dt = leaf(m, "to_dt"), dt_bias = leaf(m, "dt_bias"),
                      a_log = leaf(m, "a_log"), skip = leaf(m, "skip");
    const mica_tensor h =
        mica_graph_linear(g, op(m, MICA_OP_RMS_NORM, &norm, (mica_tensor[]){x, weight}, 2), into, 0);
    const mica_tensor z = mica_graph_slice(g, h, 1, 10, 10, 1);
    const mica_tensor u =
        op(m, MICA_OP_SSM_CONV, &silu,
           (mica_tensor[]){mica_graph_slice(g, h, 1, 0, 10, 1), conv, conv_bias, 0, 0, 0, 0, 0}, 8);
    const mica_tensor p = mica_graph_linear(g, u, to_x, 0), low = mica_graph_slice(g, p, 1, 0, 3, 1);
    const mica_tensor b = mica_graph_reshape(g, mica_graph_slice(g, p, 1, 3, 4, 1), 3, (uint64_t[]){8, 1, 4});
    const mica_tensor c = mica_graph_reshape(g, mica_graph_slice(g, p, 1, 7, 4, 1), 3, (uint64_t[]){8, 1, 4});
    const mica_tensor a = mica_graph_neg(g, mica_graph_exp(g, a_log)),
                      dt = mica_graph_linear(g, low, to_dt, 0);
    const mica_tensor in[] = {u, dt, a, b, c, skip, dt_bias, z, 0, 0, 0, 0, 0};
    const mica_tensor y = op(m, MICA_OP_SELECTIVE_SCAN, &softplus, in, 13);
    return half_square(m, mica_graph_add(g, x, mica_graph_linear(g, y, out, 0)));
}

static void wanted_of(const model *m, const char *name, float *out, uint64_t *out_count)
{
    mica_tensor_info info;
    uint64_t index;
    must(mica_weights_find(m->file, name, &index));
    must(mica_weights_tensor(m->file, index, &info));
    assert_true(info.bytes <= ELEMENTS * sizeof *out);
    must(mica_weights_read(m->file, index, 0, out, info.bytes));
    *out_count = info.bytes / sizeof *out;
}

/* The greatest distance of a gradient, relative to its greatest element. */
static int compare(const model *m, mica_executable *run, const char *output, const char *name,
                   const char *device)
{
    static float got[ELEMENTS], wanted[ELEMENTS];
    uint64_t count;
    double worst = 0, scale = 0;
    wanted_of(m, name, wanted, &count);
    mica_array y = {.name = output, .data = got, .bytes = count * sizeof *got};
    must(mica_executable_run(run, NULL, 0, &y, 1));
    for (uint64_t i = 0; i < count; i++) {
        worst = fmax(worst, fabs((double)got[i] - (double)wanted[i]));
        scale = fmax(scale, fabs((double)wanted[i]));
        if (!isfinite(got[i]))
            worst = HUGE_VAL;
    }
    if (worst <= 2e-5 * scale) /* sums of some dozens of terms behind each other, in f32 */
        return 0;
    print_error("%s on %s: off by %g of %g\n", name, device, worst, scale);
    return 1;
}

static int check(const char *name, mica_tensor (*build)(model *m), int device)
{
    model m = {.name = name};
    mica_tensor gradient[MOST];
    mica_executable *run;
    char text[96];
    int wrong = 0;
    must(mica_weights_open(FILE_NAME, NULL, &m.file));
    must(mica_graph_create(&m.graph));
    const mica_tensor loss = build(&m);
    must(mica_graph_status(m.graph));
    must(mica_graph_gradient(m.graph, loss, 0, m.weight, m.count, gradient));
    mica_graph_output(m.graph, "loss", loss);
    for (uint32_t i = 0; i < m.count; i++) {
        snprintf(text, sizeof text, "g%u", i);
        mica_graph_output(m.graph, text, gradient[i]);
    }
    const mica_compile_options options = {.flags = MICA_COMPILE_TRAINING};
    must(mica_graph_compile(m.graph, devices[device], &options, &run));
    must(mica_executable_set_from(run, FILE_NAME, NULL));
    snprintf(text, sizeof text, "%s.loss", name);
    wrong += compare(&m, run, "loss", text, device_names[device]);
    for (uint32_t i = 0; i < m.count; i++) {
        char output[16];
        snprintf(output, sizeof output, "g%u", i);
        snprintf(text, sizeof text, "%s.gradient", m.names[i]);
        wrong += compare(&m, run, output, text, device_names[device]);
    }
    mica_executable_release(run);
    mica_graph_release(m.graph);
    mica_weights_release(m.file);
    return wrong;
}

static void models(void **state)
{
    (void)state;
    int wrong = 0;
    for (int d = 0; d < DEVICES; d++)
        if (devices[d] != NULL)
            wrong += check("mlp", mlp, d) + check("conv", conv, d) + check("transformer", transformer, d) +
                     check("experts", experts, d);
    wrong += check("mamba", mamba, 0); /* gradients of recurrences are the cpu's */
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
