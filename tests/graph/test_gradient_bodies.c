/* Gradients through sub-graphs: calls, choices, loops; and what is refused, by name. */
#include "gradient_rig.h"
#include "graph/gradient/rules.h"
#include "support/sanitizer.h"
#include "support/only_cpu.h"

#define BUILD(name) static mica_tensor name(mica_graph *g, const mica_tensor *x)
#define D(...) MICA_DTYPE_F64, __VA_ARGS__
#define COUNT(rows) (sizeof(rows) / sizeof(rows)[0])

/* ---- calls ---- */

/* a, b -> a exp(b) , a + b */
static mica_graph *pair_body(void)
{
    mica_graph *body;
    must(mica_graph_create(&body));
    const uint64_t n = mica_graph_symbol(body, "n");
    const mica_tensor a = mica_graph_input(body, "a", MICA_DTYPE_F64, 2, (uint64_t[]){n, 3});
    const mica_tensor b = mica_graph_input(body, "b", MICA_DTYPE_F64, 1, (uint64_t[]){3});
    mica_graph_output(body, "p", mica_graph_mul(body, a, mica_graph_exp(body, b)));
    mica_graph_output(body, "s", mica_graph_add(body, a, b));
    must(mica_graph_status(body));
    return body;
}

static mica_tensor called(mica_graph *g, const mica_tensor *x, uint32_t flags, const mica_graph *gradient)
{
    mica_graph *body = pair_body();
    mica_tensor y[2];
    (void)mica_graph_call(g, body, gradient, flags, x, 2, y, 2);
    mica_graph_release(body);
    return mica_graph_mul(g, y[0], y[1]);
}
BUILD(call)
{
    return called(g, x, 0, NULL);
}
BUILD(checkpoint)
{
    return called(g, x, MICA_CALL_CHECKPOINT, NULL);
}
/* The same gradient, written by hand: of a, b, p, s, dp, ds. */
BUILD(custom)
{
    mica_graph *made;
    must(mica_graph_create(&made));
    const uint64_t shape[] = {4, 3};
    mica_tensor v[6];
    static const char *const names[] = {"a", "b", "p", "s", "dp", "ds"};
    for (int i = 0; i < 6; i++)
        v[i] = mica_graph_input(made, names[i], MICA_DTYPE_F64, i == 1 ? 1 : 2, i == 1 ? shape + 1 : shape);
    const int32_t rows = 0;
    const mica_tensor da = mica_graph_add(made, mica_graph_mul(made, v[4], mica_graph_exp(made, v[1])), v[5]);
    const mica_tensor db = mica_graph_add(made, mica_graph_mul(made, v[4], v[2]), v[5]);
    mica_graph_output(made, "da", da);
    mica_graph_output(made, "db", mica_graph_reduce(made, MICA_REDUCE_SUM, db, &rows, 1, 0));
    const mica_tensor y = called(g, x, 0, made);
    mica_graph_release(made);
    return y;
}

/* ---- choices ---- */

static mica_graph *scaled_body(double factor)
{
    mica_graph *body;
    must(mica_graph_create(&body));
    const mica_tensor a = mica_graph_input(body, "a", MICA_DTYPE_F64, 1, (uint64_t[]){3});
    const mica_tensor b = mica_graph_input(body, "b", MICA_DTYPE_F64, 1, (uint64_t[]){3});
    const mica_tensor k = mica_graph_number(body, MICA_DTYPE_F64, factor);
    mica_graph_output(body, "y",
                      mica_graph_mul(body, mica_graph_mul(body, mica_graph_square(body, a), k), b));
    return body;
}
BUILD(choice)
{
    mica_graph *yes = scaled_body(2), *no = scaled_body(-3);
    mica_tensor y = 0, z = 0;
    const mica_tensor sum = mica_graph_reduce(g, MICA_REDUCE_SUM, x[0], NULL, 0, 0);
    const mica_tensor more = mica_graph_greater(g, sum, mica_graph_number(g, MICA_DTYPE_F64, 0));
    const mica_tensor less = mica_graph_bit_not(g, more);
    (void)mica_graph_if(g, more, yes, no, x, 2, &y, 1);
    (void)mica_graph_if(g, less, yes, no, x, 2, &z, 1);
    mica_graph_release(yes);
    mica_graph_release(no);
    return mica_graph_concat(g, (mica_tensor[]){y, z}, 2, 0);
}

/* ---- loops ---- */

/* carried h, scanned u, other w: h' = tanh(h w + u), and the slice h' u */
static mica_graph *step_body(void)
{
    mica_graph *body;
    must(mica_graph_create(&body));
    const mica_tensor h = mica_graph_input(body, "h", MICA_DTYPE_F64, 1, (uint64_t[]){3});
    const mica_tensor n = mica_graph_input(body, "n", MICA_DTYPE_I32, 0, NULL);
    const mica_tensor u = mica_graph_input(body, "u", MICA_DTYPE_F64, 1, (uint64_t[]){3});
    const mica_tensor w = mica_graph_input(body, "w", MICA_DTYPE_F64, 1, (uint64_t[]){3});
    const mica_tensor next = mica_graph_tanh(body, mica_graph_add(body, mica_graph_mul(body, h, w), u));
    mica_graph_output(body, "h", next);
    mica_graph_output(body, "n", mica_graph_add(body, n, mica_graph_number(body, MICA_DTYPE_I32, 1)));
    mica_graph_output(body, "y", mica_graph_mul(body, next, u));
    must(mica_graph_status(body));
    return body;
}

static uint32_t reverse_of_case;

BUILD(scan)
{
    mica_graph *body = step_body();
    const mica_scan_desc desc = {.carried = 2, .scanned = 1, .others = 1, .reverse = reverse_of_case};
    mica_tensor y[3];
    (void)mica_graph_scan(g, body, &desc,
                          (mica_tensor[]){x[0], mica_graph_number(g, MICA_DTYPE_I32, 0), x[1], x[2]}, y, 3);
    mica_graph_release(body);
    return mica_graph_mul(g, y[2], y[0]);
}
/* What is carried at the end alone. */
BUILD(scan_end)
{
    mica_graph *body = step_body();
    const mica_scan_desc desc = {.carried = 2, .scanned = 1, .others = 1, .reverse = reverse_of_case};
    mica_tensor y[3];
    (void)mica_graph_scan(g, body, &desc,
                          (mica_tensor[]){x[0], mica_graph_number(g, MICA_DTYPE_I32, 0), x[1], x[2]}, y, 3);
    mica_graph_release(body);
    return y[0];
}

/* carried h [3], other w: while sum h < 3 w0: h = h w + 0.1 */
BUILD(loop)
{
    mica_graph *condition, *body;
    must(mica_graph_create(&condition));
    must(mica_graph_create(&body));
    const uint64_t three = 3;
    const mica_tensor ch = mica_graph_input(condition, "h", MICA_DTYPE_F64, 1, &three);
    (void)mica_graph_input(condition, "w", MICA_DTYPE_F64, 1, &three);
    const mica_tensor sum = mica_graph_reduce(condition, MICA_REDUCE_SUM, ch, NULL, 0, 0);
    mica_graph_output(condition, "c",
                      mica_graph_less(condition, sum, mica_graph_number(condition, MICA_DTYPE_F64, 8)));
    const mica_tensor h = mica_graph_input(body, "h", MICA_DTYPE_F64, 1, &three);
    const mica_tensor w = mica_graph_input(body, "w", MICA_DTYPE_F64, 1, &three);
    mica_graph_output(
        body, "h",
        mica_graph_add(body, mica_graph_mul(body, h, w), mica_graph_number(body, MICA_DTYPE_F64, 0.1)));
    mica_tensor y = 0;
    (void)mica_graph_while(g, condition, body, 20, x, 2, 1, &y);
    mica_graph_release(condition);
    mica_graph_release(body);
    return mica_graph_square(g, y);
}

static void bodies(void **state)
{
    (void)state;
    static const rig_case rows[] = {
        {"call", call, 1, 0, {{D(2, {4, 3}, -1, 1)}, {D(1, {3}, -1, 1)}}},
        {"call, checkpoint", checkpoint, 1, 0, {{D(2, {4, 3}, -1, 1)}, {D(1, {3}, -1, 1)}}},
        {"call, gradient of its own", custom, 1, 0, {{D(2, {4, 3}, -1, 1)}, {D(1, {3}, -1, 1)}}},
        {"if", choice, 1, 0, {{D(1, {3}, 0, 1)}, {D(1, {3}, -1, 1)}}},
        {"while", loop, 1, 0, {{D(1, {3}, 0.5, 1)}, {D(1, {3}, 1.2, 1.4)}}},
    };
    int wrong = rig_check(rows, COUNT(rows), cpu);
    for (reverse_of_case = 0; reverse_of_case < 2; reverse_of_case++) {
        static const rig_case loops[] = {
            {"scan", scan, 1, 0, {{D(1, {3}, -1, 1)}, {D(2, {5, 3}, -1, 1)}, {D(1, {3}, -1, 1)}}},
            {"scan, its end",
             scan_end,
             1,
             0,
             {{D(1, {3}, -1, 1)}, {D(2, {5, 3}, -1, 1)}, {D(1, {3}, -1, 1)}}},
        };
        wrong += rig_check(loops, COUNT(loops), cpu);
    }
    assert_int_equal(wrong, 0);
}

/* More rounds than are kept one by one: the loop is split, and a rest is left. */
static void long_loops(void **state)
{
    (void)state;
    for (reverse_of_case = 0; reverse_of_case < (TEST_ANY_SANITIZER ? 1 : 2); reverse_of_case++) {
        static const rig_case row = {"scan of many rounds",
                                     scan,
                                     0,
                                     0,
                                     {{D(1, {3}, -1, 1)}, {D(2, {301, 3}, -1, 1)}, {D(1, {3}, -1, 1)}}};
        assert_int_equal(rig_check(&row, 1, cpu), 0);
    }
}

/* ---- what is refused ---- */

static void every_op_has_a_rule(void **state)
{
    (void)state;
    int missing = 0;
    for (int op = MICA_OP_CUSTOM + 1; op < MICA_OP_COUNT; op++) {
        mica_op_info info;
        must(mica_op_get_info((mica_op)op, &info));
        if (info.gradient == MICA_GRADIENT_NONE || op == MICA_OP_REGION ||
            mica__rule_of_op((mica_op)op) != NULL)
            continue;
        print_error("%s has no rule in src/graph/gradient/table.c\n", info.name);
        missing++;
    }
    assert_int_equal(missing, 0);
}

typedef struct asked {
    mica_graph *graph;
    mica_tensor x, whole, y, d[2];
} asked;

static asked ask(void)
{
    asked a = {.graph = NULL};
    must(mica_graph_create(&a.graph));
    a.x = mica_graph_input(a.graph, "x", MICA_DTYPE_F64, 1, (uint64_t[]){3});
    a.whole = mica_graph_input(a.graph, "n", MICA_DTYPE_I32, 1, (uint64_t[]){3});
    a.y = mica_graph_exp(a.graph, a.x);
    a.d[0] = a.d[1] = 7;
    must(mica_graph_status(a.graph));
    return a;
}

static void refusals(void **state)
{
    (void)state;
    asked a = ask();
    refused(mica_graph_gradient(a.graph, a.y, 0, &a.whole, 1, a.d), MICA_ERR_INVALID_ARGUMENT,
            "of[0] is i32");
    assert_int_equal(a.d[0], 0);
    refused(mica_graph_status(a.graph), MICA_ERR_INVALID_ARGUMENT, "of[0]"); /* the graph keeps it */
    mica_graph_release(a.graph);

    a = ask();
    refused(mica_graph_gradient(a.graph, a.whole, 0, &a.x, 1, a.d), MICA_ERR_INVALID_ARGUMENT,
            "values[0] is i32");
    mica_graph_release(a.graph);

    a = ask();
    refused(mica_graph_gradient(a.graph, a.y, 0, &(mica_tensor){99}, 1, a.d), MICA_ERR_INVALID_ARGUMENT,
            "of[0] is 99");
    mica_graph_release(a.graph);

    a = ask();
    refused(mica_graph_gradient(a.graph, 0, 0, &a.x, 1, a.d), MICA_ERR_INVALID_ARGUMENT, "values[0] is 0");
    mica_graph_release(a.graph);

    a = ask();
    const mica_tensor scalar = mica_graph_number(a.graph, MICA_DTYPE_F64, 1);
    refused(mica_graph_gradient(a.graph, a.y, scalar, &a.x, 1, a.d), MICA_ERR_INVALID_ARGUMENT,
            "seeds[0] is f64 []");
    mica_graph_release(a.graph);

    a = ask();
    const mica_tensor narrow = mica_graph_cast(a.graph, a.y, MICA_DTYPE_F32);
    refused(mica_graph_gradient(a.graph, a.y, narrow, &a.x, 1, a.d), MICA_ERR_INVALID_ARGUMENT,
            "seeds[0] is f32");
    mica_graph_release(a.graph);

    a = ask();
    refused(mica_graph_gradient(a.graph, a.y, 0, NULL, 0, a.d), MICA_ERR_INVALID_ARGUMENT, "no tensors");
    mica_graph_release(a.graph);

    a = ask();
    refused(mica_graph_gradient(a.graph, a.y, 0, &a.x, 1, NULL), MICA_ERR_INVALID_ARGUMENT, "out_gradients");
    mica_graph_release(a.graph);
    refused(mica_graph_gradient(NULL, 1, 0, &(mica_tensor){1}, 1, a.d), MICA_ERR_INVALID_ARGUMENT,
            "graph is NULL");
}

/* A loop without a bound has none, and neither has what the table says so of. */
static void no_derivative(void **state)
{
    (void)state;
    mica_graph *condition, *body;
    asked a = ask();
    const uint64_t three = 3;
    must(mica_graph_create(&condition));
    must(mica_graph_create(&body));
    const mica_tensor h = mica_graph_input(condition, "h", MICA_DTYPE_F64, 1, &three);
    const mica_tensor sum = mica_graph_reduce(condition, MICA_REDUCE_SUM, h, NULL, 0, 0);
    mica_graph_output(condition, "c",
                      mica_graph_less(condition, sum, mica_graph_number(condition, MICA_DTYPE_F64, 8)));
    mica_graph_output(body, "h",
                      mica_graph_exp(body, mica_graph_input(body, "h", MICA_DTYPE_F64, 1, &three)));
    const mica_tensor y = mica_graph_while(a.graph, condition, body, 0, &a.x, 1, 1, NULL);
    refused(mica_graph_gradient(a.graph, y, 0, &a.x, 1, a.d), MICA_ERR_UNSUPPORTED, "(while) has no bound");
    mica_graph_release(a.graph);
    mica_graph_release(condition);
    mica_graph_release(body);

    a = ask();
    must(mica_graph_label(a.graph, "layer 3"));
    const mica_tensor logits = mica_graph_input(a.graph, "l", MICA_DTYPE_F32, 2, (uint64_t[]){2, 5});
    const mica_tensor settings =
        mica_graph_input(a.graph, "s", MICA_DTYPE_U32, 2, (uint64_t[]){2, MICA_SAMPLE_WORDS});
    const mica_tensor in[] = {logits, settings, 0, 0, 0, 0};
    const mica_tensor z = mica_graph_op(a.graph, MICA_OP_PENALIZE, NULL, in, 6, 1, NULL, NULL, 0);
    refused(mica_graph_gradient(a.graph, z, 0, &logits, 1, a.d), MICA_ERR_UNSUPPORTED,
            "(penalize) has no derivative");
    assert_non_null(strstr(mica_status_message(), "layer 3"));
    mica_graph_release(a.graph);
}

/* Sizes that are known when the graph runs: where a part lies is computed then. */
static void symbols(void **state)
{
    (void)state;
    mica_graph *g;
    mica_executable *run;
    must(mica_graph_create(&g));
    const uint64_t n = mica_graph_symbol(g, "n"), m = mica_graph_symbol(g, "m");
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F64, 2, (uint64_t[]){n, 3});
    const mica_tensor z = mica_graph_input(g, "z", MICA_DTYPE_F64, 2, (uint64_t[]){m, 3});
    /* both joined, the mean over rows, of which there are as many as come */
    const mica_tensor both = mica_graph_concat(g, (mica_tensor[]){x, z}, 2, 0);
    const mica_tensor mean = mica_graph_reduce(g, MICA_REDUCE_MEAN, mica_graph_square(g, both), NULL, 0, 0);
    const mica_tensor of[] = {x, z};
    mica_tensor d[2];
    must(mica_graph_gradient(g, mean, 0, of, 2, d));
    mica_graph_output(g, "dx", d[0]);
    mica_graph_output(g, "dz", d[1]);
    must(mica_graph_compile(g, cpu, NULL, &run));
    for (uint64_t rows = 1; rows < 4; rows++) {
        double xs[9], zs[18], dx[9], dz[18];
        for (uint32_t i = 0; i < 18; i++)
            zs[i] = 0.5 * i - (i < 9 ? xs[i] = 1.0 - i : 0);
        mica_array in[] = {{.name = "x",
                            .dtype = MICA_DTYPE_F64,
                            .ndim = 2,
                            .shape = {rows, 3},
                            .data = xs,
                            .bytes = rows * 24},
                           {.name = "z",
                            .dtype = MICA_DTYPE_F64,
                            .ndim = 2,
                            .shape = {2 * rows, 3},
                            .data = zs,
                            .bytes = rows * 48}};
        mica_array out[] = {{.name = "dx", .data = dx, .bytes = sizeof dx},
                            {.name = "dz", .data = dz, .bytes = sizeof dz}};
        must(mica_executable_run(run, in, 2, out, 2));
        for (uint64_t i = 0; i < 3 * rows; i++)
            assert_true(fabs(dx[i] - 2 * xs[i] / (9.0 * (double)rows)) < 1e-14);
        for (uint64_t i = 0; i < 6 * rows; i++)
            assert_true(fabs(dz[i] - 2 * zs[i] / (9.0 * (double)rows)) < 1e-14);
    }
    mica_executable_release(run);
    mica_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bodies),   cmocka_unit_test(long_loops),
                                       cmocka_unit_test(symbols),  cmocka_unit_test(every_op_has_a_rule),
                                       cmocka_unit_test(refusals), cmocka_unit_test(no_derivative)};
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
