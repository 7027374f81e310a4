/*
 * test_executable.c - graphs run: on every device, in every mode, against plain C in double.
 */
#include "graph/graph_rig.h"

/* ---- a layer with a symbolic batch ---- */

enum { BATCH = 5, IN = 37, OUT = 11 };

static mica_graph *layer_graph(void)
{
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const uint64_t batch = mica_graph_symbol(graph, "batch");
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(batch, IN));
    const mica_tensor w = mica_graph_parameter(graph, "w", MICA_DTYPE_F32, 2, SHAPE(IN, OUT));
    const mica_tensor b = mica_graph_parameter(graph, "b", MICA_DTYPE_F32, 1, SHAPE(OUT));
    const mica_tensor y = mica_graph_tanh(graph, mica_graph_add(graph, mica_graph_matmul(graph, x, w), b));
    mica_graph_output(graph, "y", y);
    mica_graph_output(graph, "sum",
                      mica_graph_reduce(graph, MICA_REDUCE_SUM, y, (const int32_t[]){-1}, 1, 0));
    must(mica_graph_status(graph));
    return graph;
}

static void layer_answer(const float *x, const float *w, const float *b, uint32_t batch, double *y,
                         double *sum)
{
    for (uint32_t r = 0; r < batch; r++) {
        sum[r] = 0;
        for (uint32_t c = 0; c < OUT; c++) {
            double total = (double)b[c];
            for (uint32_t k = 0; k < IN; k++)
                total += (double)x[r * IN + k] * (double)w[k * OUT + c];
            y[r * OUT + c] = tanh(total);
            sum[r] += y[r * OUT + c];
        }
    }
}

static void test_layer(void **state)
{
    (void)state;
    static float x[BATCH * IN], w[IN * OUT], b[OUT], y[BATCH * OUT], sum[BATCH];
    double right[BATCH * OUT], right_sum[BATCH];
    test_random random = test_random_from(7);
    rig_fill(&random, x, BATCH * IN);
    rig_fill(&random, w, IN * OUT);
    rig_fill(&random, b, OUT);
    mica_graph *graph = layer_graph();
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = rig_compile(graph, device, mode);
        must(rig_set(run, F32_ARRAY("w", w, IN, OUT)));
        must(rig_set(run, F32_ARRAY("b", b, OUT)));
        for (uint32_t batch = 1; batch <= BATCH; batch++)
            for (int again = 0; again < 2; again++) {
                memset(y, 0xff, sizeof y);
                mica_array in = F32_ARRAY("x", x, batch, IN);
                mica_array out[] = {OUT_ARRAY("y", y), OUT_ARRAY("sum", sum)};
                in.bytes = batch * IN * 4ull;
                must(mica_executable_run(run, &in, 1, out, 2));
                assert_int_equal(out[0].shape[0], batch);
                layer_answer(x, w, b, batch, right, right_sum);
                rig_near(y, right, batch * OUT, 1e-5);
                rig_near(sum, right_sum, batch, 1e-5);
            }
        mica_executable_stats stats;
        must(mica_executable_get_stats(run, &stats));
        assert_int_equal(stats.plans, BATCH); /* each size once, though the first was dropped for the last */
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

/* ---- states ---- */

/* count' = count + step; history' has count at place i. */
static void test_states(void **state)
{
    (void)state;
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const mica_tensor count = mica_graph_input(graph, "count", MICA_DTYPE_F32, 1, SHAPE(1));
    const mica_tensor history = mica_graph_input(graph, "history", MICA_DTYPE_F32, 1, SHAPE(8));
    const mica_tensor at = mica_graph_input(graph, "at", MICA_DTYPE_I32, 1, SHAPE(1));
    const mica_tensor next = mica_graph_add(graph, count, mica_graph_number(graph, MICA_DTYPE_F32, 1.5));
    const mica_scatter_params params = {.axis = 0};
    const mica_tensor kept = mica_graph_op(graph, MICA_OP_SCATTER, &params,
                                           (const mica_tensor[]){next, at, history}, 3, 1, NULL, NULL, 0);
    mica_graph_output(graph, "next", next);
    mica_graph_output(graph, "kept", kept);
    mica_graph_output(graph, "old", count); /* what it was before */
    must(mica_graph_status(graph));
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = rig_compile(graph, device, mode);
        must(mica_executable_link(run, "next", "count"));
        must(mica_executable_link(run, "kept", "history"));
        for (int32_t i = 0; i < 6; i++) {
            float old[1] = {-1}, all[8];
            mica_array in = rig_array("at", MICA_DTYPE_I32, &i, 4, 1, SHAPE(1));
            mica_array out[] = {OUT_ARRAY("old", old), OUT_ARRAY("kept", all)};
            must(mica_executable_run(run, &in, 1, out, 2));
            assert_true(old[0] == 1.5f * (float)i);
            for (int32_t j = 0; j < 8; j++)
                assert_true(all[j] == (j <= i ? 1.5f * (float)(j + 1) : 0.0f));
        }
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

/* Two states that change places: neither is overwritten before it was read. */
static void test_swap(void **state)
{
    (void)state;
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const mica_tensor a = mica_graph_input(graph, "a", MICA_DTYPE_F32, 1, SHAPE(3));
    const mica_tensor b = mica_graph_input(graph, "b", MICA_DTYPE_F32, 1, SHAPE(3));
    mica_graph_output(graph, "to_a", b);
    mica_graph_output(graph, "to_b", mica_graph_add(graph, a, b));
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        float one[3] = {1, 1, 1}, x[3], y[3];
        mica_executable *run = rig_compile(graph, device, mode);
        must(mica_executable_link(run, "to_a", "a"));
        must(mica_executable_link(run, "to_b", "b"));
        must(rig_set(run, F32_ARRAY("b", one, 3)));
        float fib[2] = {0, 1};
        for (int i = 0; i < 9; i++) {
            mica_array out[] = {OUT_ARRAY("to_a", x), OUT_ARRAY("to_b", y)};
            must(mica_executable_run(run, NULL, 0, out, 2));
            const float sum = fib[0] + fib[1];
            fib[0] = fib[1];
            fib[1] = sum;
            assert_true(x[1] == fib[0] && y[2] == fib[1]);
        }
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

/* ---- what follows from parameters alone ---- */

/* y = x times w turned, w [IN, OUT] as it is trained, plus twice b. */
static void test_prepared(void **state)
{
    (void)state;
    static float x[BATCH * IN], w[IN * OUT], b[OUT], y[BATCH * OUT];
    double right[BATCH * OUT], sum[BATCH];
    test_random random = test_random_from(11);
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const mica_tensor in = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(BATCH, IN));
    const mica_tensor weight = mica_graph_parameter(graph, "w", MICA_DTYPE_F32, 2, SHAPE(IN, OUT));
    const mica_tensor bias = mica_graph_parameter(graph, "b", MICA_DTYPE_F32, 1, SHAPE(OUT));
    const mica_tensor rows = mica_graph_permute(graph, weight, (const uint32_t[]){1, 0});
    const mica_tensor twice = mica_graph_add(graph, bias, bias);
    mica_graph_output(graph, "y", mica_graph_tanh(graph, mica_graph_linear(graph, in, rows, twice)));
    must(mica_graph_status(graph));
    for (uint32_t flags = 0; flags <= MICA_COMPILE_TRAINING; flags += MICA_COMPILE_TRAINING)
        EACH_DEVICE(device) EACH_MODE(mode)
        {
            mica_executable *run = NULL;
            must(mica_graph_compile(graph, device, &(mica_compile_options){.mode = mode, .flags = flags},
                                    &run));
            for (int again = 0; again < 3;
                 again++) { /* parameters change, and so does what was prepared of them */
                rig_fill(&random, x, BATCH * IN);
                rig_fill(&random, w, IN * OUT);
                rig_fill(&random, b, OUT);
                must(rig_set(run, F32_ARRAY("w", w, IN, OUT)));
                must(rig_set(run, F32_ARRAY("b", b, OUT)));
                mica_array fed = F32_ARRAY("x", x, BATCH, IN), got = OUT_ARRAY("y", y);
                must(mica_executable_run(run, &fed, 1, &got, 1));
                for (int i = 0; i < OUT; i++)
                    b[i] *= 2;
                layer_answer(x, w, b, BATCH, right, sum);
                rig_near(y, right, BATCH * OUT, 1e-5);
            }
            mica_executable_release(run);
        }
    mica_graph_release(graph);
}

/* Runs in flight, each with memory of its own; buffers in place of bytes. */
static void test_in_flight(void **state)
{
    (void)state;
    enum { RUNS = 7, N = 1000 };
    static float x[RUNS][N], y[RUNS][N];
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const mica_tensor in = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, SHAPE(N));
    mica_graph_output(graph, "y", mica_graph_square(graph, mica_graph_add(graph, in, in)));
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = NULL;
        mica_run *runs[RUNS];
        mica_array got[RUNS];
        must(mica_graph_compile(graph, device, &(mica_compile_options){.mode = mode, .in_flight = 3}, &run));
        for (int r = 0; r < RUNS; r++) {
            for (int i = 0; i < N; i++)
                x[r][i] = (float)(r + i);
            mica_array fed = F32_ARRAY("x", x[r], N);
            got[r] = OUT_ARRAY("y", y[r]);
            must(mica_executable_commit(run, &fed, 1, &got[r], 1, &runs[r]));
        }
        for (int r = RUNS; r-- > 0;)
            must(mica_run_wait(runs[r]));
        for (int r = 0; r < RUNS; r++)
            for (int i = 0; i < N; i++)
                assert_true(y[r][i] == 4.0f * (float)(r + i) * (float)(r + i));
        mica_array fed = {.name = "x"}, out = {.name = "y"};
        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, SHAPE(N), &fed.buffer));
        must(mica_buffer_write(fed.buffer, 0, x[2], sizeof x[2]));
        must(mica_executable_run(run, &fed, 1, &out, 1));
        must(mica_buffer_read(out.buffer, 0, y[0], sizeof y[0]));
        assert_memory_equal(y[0], y[2], sizeof y[0]);
        mica_array bytes = F32_ARRAY("x", x[4], N); /* not into the caller's buffer */
        must(mica_executable_run(run, &bytes, 1, &got[5], 1));
        must(mica_buffer_read(fed.buffer, 0, y[1], sizeof y[1]));
        assert_memory_equal(y[1], x[2], sizeof y[1]);
        assert_memory_equal(y[5], y[4], sizeof y[5]);
        mica_buffer_release(fed.buffer);
        mica_buffer_release(out.buffer);
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

/* ---- control ---- */

static mica_graph *scaled_body(double factor)
{
    mica_graph *body = NULL;
    must(mica_graph_create(&body));
    const uint64_t n = mica_graph_symbol(body, "n");
    const mica_tensor x = mica_graph_input(body, "x", MICA_DTYPE_F32, 1, &n);
    mica_graph_output(body, "y", mica_graph_mul(body, x, mica_graph_number(body, MICA_DTYPE_F32, factor)));
    must(mica_graph_status(body));
    return body;
}

static void test_if(void **state)
{
    (void)state;
    mica_graph *graph = NULL, *twice = scaled_body(2), *half = scaled_body(0.5);
    must(mica_graph_create(&graph));
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, SHAPE(7));
    const mica_tensor zero = mica_graph_number(graph, MICA_DTYPE_F32, 0);
    const mica_tensor sum = mica_graph_reduce(graph, MICA_REDUCE_SUM, x, NULL, 0, 0);
    const mica_tensor up = mica_graph_greater(graph, sum, zero);
    const mica_tensor shifted = mica_graph_slice(graph, mica_graph_add(graph, x, sum), 0, 2, 5, 1);
    const mica_tensor y = mica_graph_if(graph, up, twice, half, &shifted, 1, NULL, 0);
    mica_graph_output(graph, "y", mica_graph_neg(graph, y));
    must(mica_graph_status(graph));
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = rig_compile(graph, device, mode);
        for (int sign = -1; sign <= 1; sign += 2) {
            float in[7], out[5];
            double right[5], total = 0;
            for (int i = 0; i < 7; i++)
                total += (double)(in[i] = (float)(sign * (i + 1)));
            for (int i = 0; i < 5; i++)
                right[i] = -((double)in[i + 2] + total) * (sign > 0 ? 2 : 0.5);
            mica_array fed = F32_ARRAY("x", in, 7), got = OUT_ARRAY("y", out);
            must(mica_executable_run(run, &fed, 1, &got, 1));
            rig_near(out, right, 5, 1e-6);
        }
        mica_executable_release(run);
    }
    mica_graph_release(graph);
    mica_graph_release(twice);
    mica_graph_release(half);
}

/* x doubles until its sum is over a bound; the number of rounds is counted. */
static void test_while(void **state)
{
    (void)state;
    mica_graph *graph = NULL, *condition = NULL, *body = NULL;
    must(mica_graph_create(&condition));
    mica_tensor x = mica_graph_input(condition, "x", MICA_DTYPE_F32, 1, SHAPE(3));
    (void)mica_graph_input(condition, "n", MICA_DTYPE_I32, 0, NULL);
    mica_tensor bound = mica_graph_input(condition, "bound", MICA_DTYPE_F32, 0, NULL);
    mica_graph_output(
        condition, "go",
        mica_graph_less(condition, mica_graph_reduce(condition, MICA_REDUCE_SUM, x, NULL, 0, 0), bound));
    must(mica_graph_create(&body));
    x = mica_graph_input(body, "x", MICA_DTYPE_F32, 1, SHAPE(3));
    const mica_tensor n = mica_graph_input(body, "n", MICA_DTYPE_I32, 0, NULL);
    (void)mica_graph_input(body, "bound", MICA_DTYPE_F32, 0, NULL);
    mica_graph_output(body, "x2", mica_graph_add(body, x, x));
    mica_graph_output(body, "n2", mica_graph_add(body, n, mica_graph_number(body, MICA_DTYPE_I32, 1)));
    must(mica_graph_create(&graph));
    mica_tensor in[3] = {mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, SHAPE(3)),
                         mica_graph_number(graph, MICA_DTYPE_I32, 0),
                         mica_graph_input(graph, "bound", MICA_DTYPE_F32, 0, NULL)};
    mica_tensor out[2];
    (void)mica_graph_while(graph, condition, body, 0, in, 3, 2, out);
    mica_graph_output(graph, "y", out[0]);
    mica_graph_output(graph, "rounds", out[1]);
    must(mica_graph_status(graph));
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = NULL;
        const mica_compile_options options = {.mode = mode, .most_rounds = 40};
        must(mica_graph_compile(graph, device, &options, &run));
        float start[3] = {1, 2, 3}, limit = 1000, y[3];
        int32_t rounds = -1;
        mica_array fed[] = {F32_ARRAY("x", start, 3), {.name = "bound", .data = &limit, .bytes = 4}};
        mica_array got[] = {OUT_ARRAY("y", y), {.name = "rounds", .data = &rounds, .bytes = 4}};
        for (int again = 0; again < 2; again++) {
            must(mica_executable_run(run, fed, 2, got, 2));
            assert_int_equal(rounds, 8);
            assert_true(y[0] == 256 && y[1] == 512 && y[2] == 768);
        }
        limit = INFINITY;
        start[0] = start[1] = start[2] = 0; /* never ends */
        refused(mica_executable_run(run, fed, 2, got, 2), MICA_ERR_BUDGET, "40 rounds");
        mica_executable_release(run);
    }
    mica_graph_release(graph);
    mica_graph_release(condition);
    mica_graph_release(body);
}

/* carry = carry * 0.5 + x[t]; slices are the carries, and their squares. */
static mica_graph *scan_graph(uint32_t reverse)
{
    mica_graph *graph = NULL, *body = NULL;
    must(mica_graph_create(&body));
    mica_tensor c = mica_graph_input(body, "c", MICA_DTYPE_F32, 1, SHAPE(4));
    const mica_tensor x = mica_graph_input(body, "x", MICA_DTYPE_F32, 1, SHAPE(4));
    const mica_tensor k = mica_graph_input(body, "k", MICA_DTYPE_F32, 0, NULL);
    c = mica_graph_add(body, mica_graph_mul(body, c, k), x);
    mica_graph_output(body, "c2", c);
    mica_graph_output(body, "kept", c);
    mica_graph_output(body, "square", mica_graph_square(body, c));
    must(mica_graph_create(&graph));
    const uint64_t length = mica_graph_symbol(graph, "length");
    mica_tensor in[3], out[3];
    in[1] = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(length, 4));
    in[0] = mica_graph_constant(graph, MICA_DTYPE_F32, 1, SHAPE(4), (const float[]){1, 1, 1, 1}, 16);
    in[2] = mica_graph_number(graph, MICA_DTYPE_F32, 0.5);
    const mica_scan_desc desc = {.carried = 1, .scanned = 1, .others = 1, .reverse = reverse};
    (void)mica_graph_scan(graph, body, &desc, in, out, 3);
    mica_graph_output(graph, "end", out[0]);
    mica_graph_output(graph, "all", out[1]);
    mica_graph_output(graph, "squares", out[2]);
    must(mica_graph_status(graph));
    mica_graph_release(body);
    return graph;
}

static void test_scan(void **state)
{
    (void)state;
    enum { MOST = 19 };
    for (uint32_t reverse = 0; reverse < 2; reverse++) {
        mica_graph *graph = scan_graph(reverse);
        EACH_DEVICE(device) EACH_MODE(mode)
        {
            mica_executable *run = rig_compile(graph, device, mode);
            for (uint64_t length = 1; length <= MOST; length += 6) {
                static float x[MOST * 4], all[MOST * 4], squares[MOST * 4];
                float end[4];
                double c[4] = {1, 1, 1, 1}, right[MOST * 4];
                test_random random = test_random_from(length);
                rig_fill(&random, x, length * 4);
                mica_array fed = rig_array("x", MICA_DTYPE_F32, x, length * 16, 2, SHAPE(length, 4));
                mica_array got[] = {OUT_ARRAY("end", end), OUT_ARRAY("all", all),
                                    OUT_ARRAY("squares", squares)};
                must(mica_executable_run(run, &fed, 1, got, 3));
                for (uint64_t i = 0; i < length; i++) {
                    const uint64_t t = reverse ? length - 1 - i : i;
                    for (int j = 0; j < 4; j++)
                        right[t * 4 + j] = c[j] = c[j] * 0.5 + (double)x[t * 4 + j];
                }
                rig_near(all, right, length * 4, 1e-6);
                rig_near(end, c, 4, 1e-6);
                for (uint64_t i = 0; i < length * 4; i++)
                    right[i] *= right[i];
                rig_near(squares, right, length * 4, 1e-6);
            }
            mica_executable_release(run);
        }
        mica_graph_release(graph);
    }
}

/* ---- views, concatenation, constants as outputs ---- */

static void test_views(void **state)
{
    (void)state;
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(4, 6));
    const mica_tensor turned = mica_graph_permute(graph, x, (const uint32_t[]){1, 0});
    const mica_tensor flat = mica_graph_reshape(graph, turned, 1, SHAPE(24));
    const mica_tensor parts[] = {mica_graph_slice(graph, flat, 0, 1, 5, 3),
                                 mica_graph_slice(graph, flat, 0, 22, 8, -2),
                                 mica_graph_mul(graph, mica_graph_slice(graph, flat, 0, 0, 3, 1),
                                                mica_graph_number(graph, MICA_DTYPE_F32, 10))};
    mica_graph_output(graph, "y", mica_graph_concat(graph, parts, 3, 0));
    mica_graph_output(graph, "turned", turned);
    mica_graph_output(graph, "x", x);
    mica_graph_output(graph, "seven", mica_graph_number(graph, MICA_DTYPE_F32, 7));
    must(mica_graph_status(graph));
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        float in[24], y[16], t[24], same[24], seven[1];
        double flat_right[24], right[16];
        for (int i = 0; i < 24; i++)
            in[i] = (float)i;
        for (int c = 0; c < 6; c++)
            for (int r = 0; r < 4; r++)
                flat_right[c * 4 + r] = r * 6 + c;
        for (int i = 0; i < 5; i++)
            right[i] = flat_right[1 + 3 * i];
        for (int i = 0; i < 8; i++)
            right[5 + i] = flat_right[22 - 2 * i];
        for (int i = 0; i < 3; i++)
            right[13 + i] = 10 * flat_right[i];
        mica_executable *run = rig_compile(graph, device, mode);
        mica_array fed = F32_ARRAY("x", in, 4, 6);
        mica_array got[] = {OUT_ARRAY("y", y), OUT_ARRAY("turned", t), OUT_ARRAY("x", same),
                            OUT_ARRAY("seven", seven)};
        must(mica_executable_run(run, &fed, 1, got, 4));
        rig_near(y, right, 16, 0);
        rig_near(t, flat_right, 24, 0);
        assert_memory_equal(same, in, sizeof in);
        assert_true(seven[0] == 7);
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

/* ---- facts ---- */

static void test_facts(void **state)
{
    (void)state;
    static const uint64_t first_words =
        0xe169c58d6627e8d5u; /* of Philox 4x32-10 with counter and key 0, as published */
    mica_graph *graph = layer_graph();
    const char *name = NULL;
    assert_int_equal(mica_graph_parameter_count(graph), 2);
    assert_int_equal(mica_graph_input_count(graph), 1);
    assert_int_equal(mica_graph_output_count(graph), 2);
    assert_int_equal(mica_graph_get_output(graph, 1, &name), mica_graph_find(graph, "sum"));
    assert_string_equal(name, "sum");
    assert_int_equal(mica_graph_get_output(graph, 2, &name), 0);
    assert_null(name);
    assert_int_equal(mica_graph_find(graph, "nobody"), 0);
    const mica_tensor zero = mica_graph_number(graph, MICA_DTYPE_U64, 0);
    mica_graph_output(graph, "bits", mica_graph_random_bits(graph, zero, zero));
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        float x[IN] = {0}, w[IN * OUT] = {0}, b[OUT] = {0};
        uint64_t bits = 0, length = 0;
        char text[4096];
        mica_executable *run = rig_compile(graph, device, mode);
        must(mica_executable_print(run, text, sizeof text, &length));
        assert_true(length < sizeof text && strstr(text, "tanh") != NULL);
        must(rig_set(run, F32_ARRAY("w", w, IN, OUT)));
        must(rig_set(run, F32_ARRAY("b", b, OUT)));
        mica_array in = F32_ARRAY("x", x, 1, IN), out = {.name = "bits", .data = &bits, .bytes = 8};
        mica_run *one = NULL;
        must(mica_executable_commit(run, &in, 1, &out, 1, &one));
        must(mica_executable_sync(run));
        assert_true(bits == first_words);
        must(mica_run_wait(one));
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

/* ---- what is refused ---- */

static void test_refused(void **state)
{
    (void)state;
    float x[BATCH * IN] = {0}, w[IN * OUT] = {0}, y[BATCH * OUT];
    mica_graph *graph = layer_graph(), *empty = NULL;
    mica_executable *run = NULL;
    mica_device *device = devices[0];
    must(mica_graph_create(&empty));
    refused(mica_graph_compile(empty, device, NULL, &run), MICA_ERR_INVALID_ARGUMENT, "no outputs");
    refused(mica_graph_compile(NULL, device, NULL, &run), MICA_ERR_INVALID_ARGUMENT, "graph is NULL");
    refused(mica_graph_compile(graph, device, &(mica_compile_options){.flags = 64}, &run),
            MICA_ERR_INVALID_ARGUMENT, "options.flags");
    refused(mica_graph_compile(graph, device, &(mica_compile_options){.in_flight = 65}, &run),
            MICA_ERR_INVALID_ARGUMENT, "in_flight");
    must(mica_graph_compile(graph, device, NULL, &run));
    mica_array in = F32_ARRAY("x", x, BATCH, IN), out = OUT_ARRAY("y", y);
    refused(mica_executable_run(run, &in, 1, &out, 1), MICA_ERR_STATE, "'w' was not set");
    must(rig_set(run, F32_ARRAY("w", w, IN, OUT)));
    refused(rig_set(run, F32_ARRAY("w", w, OUT, IN)), MICA_ERR_INVALID_ARGUMENT, "[37, 11]");
    refused(rig_set(run, F32_ARRAY("v", w, OUT, IN)), MICA_ERR_NOT_FOUND, "'v'");
    refused(rig_set(run, F32_ARRAY("x", x, BATCH, IN)), MICA_ERR_INVALID_ARGUMENT, "is an input");
    refused(mica_executable_run(run, NULL, 0, &out, 1), MICA_ERR_INVALID_ARGUMENT, "'x' is missing");
    in.bytes--;
    refused(mica_executable_run(run, &in, 1, &out, 1), MICA_ERR_INVALID_ARGUMENT, "bytes");
    in.bytes++;
    in.shape[1]++;
    refused(mica_executable_run(run, &in, 1, &out, 1), MICA_ERR_INVALID_ARGUMENT, "[batch, 37]");
    in.shape[1]--;
    mica_array wrong = OUT_ARRAY("z", y);
    float b[OUT] = {0};
    must(rig_set(run, F32_ARRAY("b", b, OUT)));
    refused(mica_executable_run(run, &in, 1, &wrong, 1), MICA_ERR_NOT_FOUND, "'z'");
    out.bytes = 4;
    refused(mica_executable_run(run, &in, 1, &out, 1), MICA_ERR_INVALID_ARGUMENT, "takes");
    refused(mica_executable_link(run, "y", "b"), MICA_ERR_INVALID_ARGUMENT, "differ");
    refused(mica_executable_link(run, "y", "q"), MICA_ERR_NOT_FOUND, "'q'");
    mica_executable_release(run);
    mica_graph_release(graph);
    mica_graph_release(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer),     cmocka_unit_test(test_states), cmocka_unit_test(test_swap),
        cmocka_unit_test(test_if),        cmocka_unit_test(test_while),  cmocka_unit_test(test_scan),
        cmocka_unit_test(test_views),     cmocka_unit_test(test_facts),  cmocka_unit_test(test_prepared),
        cmocka_unit_test(test_in_flight), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
