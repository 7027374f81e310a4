/* Forward mode against central differences along a line, and Hessians times vectors; the same gradients in f32 on every device against f64. */
#include "gradient_rig.h"
#include "support/devices.h"

enum { ROWS = 3, IN = 4, OUT = 5 };

/* softmax(tanh(x w) v) and the norm of what lies between */
static void model(mica_graph *g, mica_tensor x, mica_tensor w, mica_tensor v, mica_tensor *out)
{
    const mica_tensor hidden = mica_graph_tanh(g, mica_graph_matmul(g, x, w));
    const mica_softmax_params plain = {.scale = 1};
    const mica_tensor in[] = {mica_graph_matmul(g, hidden, v), 0};
    out[0] = mica_graph_op(g, MICA_OP_SOFTMAX, &plain, in, 2, 1, NULL, NULL, 0);
    out[1] = mica_graph_reduce(g, MICA_REDUCE_SUM_SQUARES, hidden, NULL, 0, 0);
}

typedef struct numbers {
    double x[ROWS * IN], w[IN * IN], v[IN * OUT], t[IN * IN];
} numbers;

static void run_model(mica_executable *run, numbers *n, mica_array *out, uint32_t count)
{
    mica_array in[] = {{.name = "x",
                        .dtype = MICA_DTYPE_F64,
                        .ndim = 2,
                        .shape = {ROWS, IN},
                        .data = n->x,
                        .bytes = sizeof n->x},
                       {.name = "w",
                        .dtype = MICA_DTYPE_F64,
                        .ndim = 2,
                        .shape = {IN, IN},
                        .data = n->w,
                        .bytes = sizeof n->w},
                       {.name = "v",
                        .dtype = MICA_DTYPE_F64,
                        .ndim = 2,
                        .shape = {IN, OUT},
                        .data = n->v,
                        .bytes = sizeof n->v},
                       {.name = "t",
                        .dtype = MICA_DTYPE_F64,
                        .ndim = 2,
                        .shape = {IN, IN},
                        .data = n->t,
                        .bytes = sizeof n->t}};
    must(mica_executable_run(run, in, 4, out, count));
}

static void along_a_line(void **state)
{
    (void)state;
    mica_graph *g;
    mica_executable *run;
    numbers n;
    double p[2][ROWS * OUT], s[2], dp[ROWS * OUT], ds, hv[IN * IN], gradient[2][IN * IN];
    const double h = 1e-5;
    test_random random = test_random_from(5);
    for (size_t i = 0; i < sizeof n / sizeof(double); i++)
        ((double *)(void *)&n)[i] = test_random_uniform(&random, -1, 1);
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F64, 2, (uint64_t[]){ROWS, IN});
    const mica_tensor w = mica_graph_input(g, "w", MICA_DTYPE_F64, 2, (uint64_t[]){IN, IN});
    const mica_tensor v = mica_graph_input(g, "v", MICA_DTYPE_F64, 2, (uint64_t[]){IN, OUT});
    const mica_tensor t = mica_graph_input(g, "t", MICA_DTYPE_F64, 2, (uint64_t[]){IN, IN});
    const mica_tensor of[] = {w, x}, tangents[] = {t, 0};
    mica_tensor y[2], dy[2], dw, d2;
    model(g, x, w, v, y);
    must(mica_graph_jvp(g, y, 2, of, tangents, 2, dy));
    const mica_tensor loss =
        mica_graph_add(g, y[1], mica_graph_reduce(g, MICA_REDUCE_SUM_SQUARES, y[0], NULL, 0, 0));
    must(mica_graph_gradient(g, loss, 0, &w, 1, &dw));
    must(mica_graph_jvp(g, &dw, 1, &w, &t, 1, &d2)); /* the Hessian times t */
    mica_graph_output(g, "p", y[0]);
    mica_graph_output(g, "s", y[1]);
    mica_graph_output(g, "dp", dy[0]);
    mica_graph_output(g, "ds", dy[1]);
    mica_graph_output(g, "gradient", dw);
    mica_graph_output(g, "hv", d2);
    must(mica_graph_compile(g, devices[0], NULL, &run));
    run_model(run, &n,
              (mica_array[]){{.name = "dp", .data = dp, .bytes = sizeof dp},
                             {.name = "ds", .data = &ds, .bytes = 8},
                             {.name = "hv", .data = hv, .bytes = sizeof hv}},
              3);
    for (int side = 0; side < 2; side++) {
        numbers moved = n;
        for (int i = 0; i < IN * IN; i++)
            moved.w[i] += (side == 0 ? h : -h) * n.t[i];
        run_model(run, &moved,
                  (mica_array[]){{.name = "p", .data = p[side], .bytes = sizeof p[0]},
                                 {.name = "s", .data = &s[side], .bytes = 8},
                                 {.name = "gradient", .data = gradient[side], .bytes = sizeof gradient[0]}},
                  3);
    }
    for (int i = 0; i < ROWS * OUT; i++)
        assert_true(fabs(dp[i] - (p[0][i] - p[1][i]) / (2 * h)) < 1e-8);
    assert_true(fabs(ds - (s[0] - s[1]) / (2 * h)) < 1e-8);
    for (int i = 0; i < IN * IN; i++)
        assert_true(fabs(hv[i] - (gradient[0][i] - gradient[1][i]) / (2 * h)) < 1e-7);
    mica_executable_release(run);
    mica_graph_release(g);
}

static void jvp_refusals(void **state)
{
    (void)state;
    mica_graph *g;
    mica_tensor out = 9;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, (uint64_t[]){3});
    const mica_tensor t = mica_graph_input(g, "t", MICA_DTYPE_F32, 1, (uint64_t[]){4});
    const mica_tensor y = mica_graph_exp(g, x);
    refused(mica_graph_jvp(g, &y, 1, &x, &t, 1, &out), MICA_ERR_INVALID_ARGUMENT, "tangents[0] is f32 [4]");
    assert_int_equal(out, 0);
    mica_graph_release(g);
    refused(mica_graph_jvp(NULL, &y, 1, &x, &t, 1, &out), MICA_ERR_INVALID_ARGUMENT, "graph is NULL");
}

/* ---- f32 against f64 ---- */

/* A block of the kinds of ops that devices have in f32: conv, norm, attention, gelu, products, cross entropy. */
static mica_tensor block(mica_graph *g, const mica_tensor *x)
{
    const mica_conv_params conv = {.low = {1, 1}, .high = {1, 1}};
    const mica_pool_windows_params pool = {.kind = MICA_POOL_MAX, .kernel = {2, 2}};
    const mica_normalize_params norm = {.kind = MICA_NORMALIZE_RMS, .dims = 1, .eps = 1e-3f};
    const mica_attention_params attention = {.scale = 0};
    static const int32_t positions[] = {0, 1, 2, 3, 4, 5, 6, 7}, length[] = {8},
                         labels[] = {1, 0, 3, 2, 1, 1, 0, 3};
    mica_tensor h =
        mica_graph_op(g, MICA_OP_CONV, &conv, (mica_tensor[]){x[0], x[1], x[2]}, 3, 1, NULL, NULL, 0);
    h = mica_graph_op(g, MICA_OP_POOL_WINDOWS, &pool, &h, 1, 1, NULL, NULL, 0);
    h = mica_graph_permute(g, mica_graph_reshape(g, h, 2, (uint64_t[]){12, 8}),
                           (uint32_t[]){1, 0}); /* [8 places, 12] */
    h = mica_graph_op(g, MICA_OP_NORMALIZE, &norm, (mica_tensor[]){h, x[3], 0}, 3, 1, NULL, NULL, 0);
    const mica_tensor heads = mica_graph_reshape(g, h, 3, (uint64_t[]){8, 4, 3});
    const mica_tensor two = mica_graph_slice(g, heads, 1, 0, 2, 1);
    const mica_tensor at =
        mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){8}, positions, sizeof positions);
    const mica_tensor keys =
        mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){1}, length, sizeof length);
    const mica_tensor in[] = {heads, two, mica_graph_slice(g, heads, 1, 2, 2, 1), at, keys, 0, 0, 0, 0, 0, 0};
    mica_tensor y = mica_graph_op(g, MICA_OP_ATTENTION, &attention, in, 11, 1, NULL, NULL, 0);
    y = mica_graph_gelu(g, mica_graph_add(g, mica_graph_reshape(g, y, 2, (uint64_t[]){8, 12}), h));
    y = mica_graph_matmul(g, y, x[4]);
    const mica_tensor class =
        mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){8}, labels, sizeof labels);
    return mica_graph_op(g, MICA_OP_CROSS_ENTROPY, NULL, (mica_tensor[]){y, class, 0, 0}, 4, 1, NULL, NULL,
                         0);
}

static const uint64_t block_shapes[5][4] = {{1, 2, 4, 8}, {12, 2, 3, 3}, {12, 0}, {12, 0}, {12, 4}};
static const uint32_t block_ranks[5] = {4, 4, 1, 1, 2};
enum { BLOCK_MOST = 256 };

/* All five gradients in f32 or f64, one behind the other. */
static uint64_t block_gradients(mica_device *device, mica_dtype dtype, double *out)
{
    static double full[5][BLOCK_MOST];
    static float narrow[5][BLOCK_MOST], got[BLOCK_MOST];
    static double wide[BLOCK_MOST];
    static const char *const names[] = {"a", "b", "c", "d", "e"}, *const results[] = {"da", "db", "dc", "dd",
                                                                                      "de"};
    test_random random = test_random_from(99);
    mica_graph *g;
    mica_executable *run;
    mica_tensor x[5], d[5];
    mica_array feed[5];
    uint64_t total = 0;
    const int f64 = dtype == MICA_DTYPE_F64;
    must(mica_graph_create(&g));
    for (int i = 0; i < 5; i++) {
        uint64_t count = 1;
        for (uint32_t k = 0; k < block_ranks[i]; k++)
            count *= block_shapes[i][k];
        for (uint64_t e = 0; e < count; e++)
            narrow[i][e] = (float)(full[i][e] = (double)(float)test_random_uniform(&random, -1, 1));
        x[i] = mica_graph_input(g, names[i], dtype, block_ranks[i], block_shapes[i]);
        feed[i] = (mica_array){.name = names[i],
                               .dtype = dtype,
                               .ndim = block_ranks[i],
                               .data = f64 ? (void *)full[i] : (void *)narrow[i],
                               .bytes = count * (f64 ? 8 : 4)};
        memcpy(feed[i].shape, block_shapes[i], block_ranks[i] * 8);
    }
    must(mica_graph_gradient(g, block(g, x), 0, x, 5, d));
    for (int i = 0; i < 5; i++)
        mica_graph_output(g, results[i], d[i]);
    must(mica_graph_compile(g, device, NULL, &run));
    for (int i = 0; i < 5; i++) {
        mica_array y = {.name = results[i], .data = f64 ? (void *)wide : (void *)got, .bytes = feed[i].bytes};
        must(mica_executable_run(run, feed, 5, &y, 1));
        for (uint64_t e = 0; e < feed[i].bytes / (f64 ? 8 : 4); e++)
            out[total++] = f64 ? wide[e] : (double)got[e];
    }
    mica_executable_release(run);
    mica_graph_release(g);
    return total;
}

static void narrow_on_every_device(void **state)
{
    (void)state;
    static double wanted[5 * BLOCK_MOST], got[5 * BLOCK_MOST];
    const uint64_t count = block_gradients(devices[0], MICA_DTYPE_F64, wanted);
    double scale = 0;
    for (uint64_t e = 0; e < count; e++)
        scale = fmax(scale, fabs(wanted[e]));
    for (int i = 0; i < DEVICES; i++) {
        if (devices[i] == NULL)
            continue;
        double worst = 0;
        assert_int_equal(block_gradients(devices[i], MICA_DTYPE_F32, got), count);
        for (uint64_t e = 0; e < count; e++)
            worst = fmax(worst, fabs(got[e] - wanted[e]));
        if (!(worst <=
              1e-5 * scale)) { /* a dozen of sums of at most 216 terms, each off by some roundings of 2^-24 */
            print_error("%s: off by %g of %g\n", device_names[i], worst, scale);
            fail();
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(along_a_line), cmocka_unit_test(jvp_refusals),
                                       cmocka_unit_test(narrow_on_every_device)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
