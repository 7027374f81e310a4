/*
 * test_choose_places.c - where the cost model puts nodes, by figures of devices that do not exist: what follows by hand, against every placement of small graphs, and never
 * worse than one device.
 */
#include "graph/graph_rig.h"

enum { SIDE = 512, LAYERS = 6 };

/* Devices that differ in what they are good at. */
static mica_calibration device_of(double products, double reading, double way)
{
    return (mica_calibration){.device = "drawn",
                              .matmul_large = products,
                              .matmul_small = products,
                              .attention = products,
                              .memory = reading,
                              .reduce = reading,
                              .transfer = way,
                              .roundtrip = 10,
                              .launch = 1};
}

static double cost_on(const mica_graph *graph, const mica_calibration *c)
{
    double ns = 0;
    must(mica_graph_cost(graph, c, &ns));
    return ns;
}

/* Products and walks over much memory by turns: a chain. */
static mica_graph *chain(void)
{
    mica_graph *g = NULL;
    char name[8];
    must(mica_graph_create(&g));
    mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(SIDE, SIDE));
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "w%d", i);
        x = mica_graph_matmul(g, x, mica_graph_parameter(g, name, MICA_DTYPE_F32, 2, SHAPE(SIDE, SIDE)));
        x = mica_graph_softmax(g, x, 1, -1);
    }
    mica_graph_output(g, "y", x);
    must(mica_graph_status(g));
    return g;
}

static uint32_t place_of_kind(const mica_graph *g, mica_op op, uint32_t nth)
{
    for (uint32_t i = 0; i < mica_graph_node_count(g); i++) {
        mica_graph_node_info info;
        must(mica_graph_get_node(g, i, &info));
        if (info.kind == MICA_NODE_OP && info.code == (uint32_t)op && nth-- == 0)
            return info.place;
    }
    fail_msg("there is no such node");
    return 0;
}

/* What a kernel takes on a device, without what travels: of a graph of it alone. */
static double own_ns(mica_op op, uint64_t side, const mica_calibration *c)
{
    mica_graph *one = NULL;
    must(mica_graph_create(&one));
    const mica_tensor in = mica_graph_input(one, "x", MICA_DTYPE_F32, 2, SHAPE(side, side));
    const mica_tensor w = mica_graph_parameter(one, "w", MICA_DTYPE_F32, 2, SHAPE(side, side));
    mica_graph_output(
        one, "y", op == MICA_OP_SOFTMAX ? mica_graph_softmax(one, in, 1, -1) : mica_graph_matmul(one, in, w));
    const double ns = cost_on(one, c) - c->roundtrip - 2 * (double)(side * side * 4) / c->transfer;
    mica_graph_release(one);
    return ns;
}

/* One device multiplies fast, the other reads fast: each gets its own where the way is short, and one gets all where it is long. */
static void test_chain(void **state)
{
    (void)state;
    mica_graph *g = chain();
    double ns = 0;
    mica_calibration c[] = {device_of(1000, 1, 100), device_of(20, 1000, 100)};
    must(mica_graph_choose_places(g, c, NULL, 2, &ns));
    for (uint32_t i = 0; i < LAYERS; i++) {
        assert_int_equal(place_of_kind(g, MICA_OP_PRODUCT, i), 0);
        assert_int_equal(place_of_kind(g, MICA_OP_SOFTMAX, i), 1);
    }
    /* In and out at 100 bytes a ns, and 11 times from one to the other: a round trip of 10, and both ways of the host. */
    const double bytes = SIDE * SIDE * 4, kernels = LAYERS * (own_ns(MICA_OP_PRODUCT, SIDE, &c[0]) +
                                                              own_ns(MICA_OP_SOFTMAX, SIDE, &c[1]));
    const double wanted = bytes / 100 + kernels + 11 * (10 + 2 * bytes / 100) + bytes / 100 + 10;
    assert_true(fabs(ns - wanted) < 1e-6 * wanted);
    assert_true(ns < cost_on(g, &c[0]) && ns < cost_on(g, &c[1]));
    c[0].transfer = c[1].transfer = 0.0001;
    must(mica_graph_choose_places(g, c, NULL, 2, &ns));
    for (uint32_t i = 0; i < LAYERS; i++)
        assert_int_equal(place_of_kind(g, MICA_OP_SOFTMAX, i), place_of_kind(g, MICA_OP_PRODUCT, 0));
    mica_graph_release(g);
}

/* Two branches of equal devices go on at the same time. */
static void test_branches(void **state)
{
    (void)state;
    mica_graph *g = NULL;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(SIDE, SIDE));
    const mica_tensor a = mica_graph_parameter(g, "a", MICA_DTYPE_F32, 2, SHAPE(SIDE, SIDE));
    const mica_tensor b = mica_graph_parameter(g, "b", MICA_DTYPE_F32, 2, SHAPE(SIDE, SIDE));
    mica_tensor left = x, right = x;
    for (int i = 0; i < 3; i++) {
        left = mica_graph_matmul(g, left, a);
        right = mica_graph_matmul(g, right, b);
    }
    mica_graph_output(g, "left", left);
    mica_graph_output(g, "right", right);
    must(mica_graph_status(g));
    const mica_calibration c[] = {device_of(100, 100, 1000), device_of(100, 100, 1000)};
    double ns = 0;
    must(mica_graph_choose_places(g, c, NULL, 2, &ns));
    assert_true(ns < 0.55 * cost_on(g, &c[0]));
    assert_true(place_of_kind(g, MICA_OP_PRODUCT, 0) != place_of_kind(g, MICA_OP_PRODUCT, 1));
    mica_graph_release(g);
}

/* Alone it takes what mica_graph_cost says; of several it is never worse than one; a chain's is the least of all placements, which are tried. */
static void test_least(void **state)
{
    (void)state;
    test_random random = test_random_from(3);
    for (int r = 0; r < 12; r++) {
        mica_graph *g = NULL;
        mica_calibration c[3];
        double ns = 0, least = INFINITY, all[3];
        char name[8];
        enum { N = 5 };
        must(mica_graph_create(&g));
        const uint64_t side = 32 + test_random_below(&random, 200);
        mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(side, side));
        for (int i = 0; i < N; i++) {
            snprintf(name, sizeof name, "w%d", i);
            x = test_random_below(&random, 2) == 0
                    ? mica_graph_softmax(g, x, 1, -1)
                    : mica_graph_matmul(g, x,
                                        mica_graph_parameter(g, name, MICA_DTYPE_F32, 2, SHAPE(side, side)));
        }
        mica_graph_output(g, "y", x);
        must(mica_graph_status(g));
        for (int d = 0; d < 3; d++) {
            c[d] = device_of(1 + (double)test_random_below(&random, 1000),
                             1 + (double)test_random_below(&random, 100),
                             1 + (double)test_random_below(&random, 100));
            must(mica_graph_choose_places(g, &c[d], NULL, 1, &ns));
            all[d] = cost_on(g, &c[d]);
            assert_true(fabs(ns - all[d]) <= 1e-9 * ns);
            least = fmin(least, all[d]);
        }
        must(mica_graph_choose_places(g, c, NULL, 3, &ns));
        assert_true(ns <= least * (1 + 1e-12));
        /* All placements, by hand. */
        double own[3][N], moved = (double)(side * side * 4), best = INFINITY;
        for (int d = 0; d < 3; d++)
            for (int i = 0; i < N; i++) {
                mica_graph_node_info info;
                uint32_t at = 0, nth = 0;
                for (;; at++) {
                    must(mica_graph_get_node(g, at, &info));
                    if (info.kind == MICA_NODE_OP && nth++ == (uint32_t)i)
                        break;
                }
                own[d][i] = own_ns((mica_op)info.code, side, &c[d]);
            }
        for (int code = 0; code < 243; code++) {
            int at[N], rest = code;
            for (int i = 0; i < N; i++, rest /= 3)
                at[i] = rest % 3;
            double time = moved / c[at[0]].transfer + own[at[0]][0];
            for (int i = 1; i < N; i++)
                time += own[at[i]][i] + (at[i] == at[i - 1]
                                             ? 0
                                             : c[at[i - 1]].roundtrip + moved / c[at[i - 1]].transfer +
                                                   moved / c[at[i]].transfer);
            time += moved / c[at[N - 1]].transfer + c[at[N - 1]].roundtrip;
            best = fmin(best, time);
        }
        assert_true(ns <= best * (1 + 1e-6) +
                              30); /* the ends, their ways and round trips, are not the cut's to weigh */
        mica_graph_release(g);
    }
}

/* Parameters that one device has no room for go to both; and where there is none a status. */
static void test_budget(void **state)
{
    (void)state;
    mica_graph *g = chain();
    const mica_calibration c[] = {device_of(1000, 1000, 1), device_of(10, 10, 1)};
    const uint64_t weight = SIDE * SIDE * 4, some[] = {7 * weight, 12 * weight}, none[] = {weight, weight};
    double ns = 0;
    uint32_t first = 0;
    must(mica_graph_choose_places(g, c, NULL, 2, &ns));
    for (uint32_t i = 0; i < LAYERS; i++)
        first += place_of_kind(g, MICA_OP_PRODUCT, i) == 0;
    assert_int_equal(first, LAYERS);
    must(mica_graph_choose_places(g, c, some, 2, &ns));
    first = 0;
    for (uint32_t i = 0; i < LAYERS; i++)
        first += place_of_kind(g, MICA_OP_PRODUCT, i) == 0;
    assert_true(first > 0 && first < LAYERS); /* six weights and four values are more than seven */
    refused(mica_graph_choose_places(g, c, none, 2, &ns), MICA_ERR_BUDGET, "no placement");
    mica_graph_release(g);
}

/* On devices that there are: what was chosen runs, and gives what one device gives. */
static void test_devices(void **state)
{
    (void)state;
    static float x[SIDE * SIDE], w[SIDE * SIDE], y[2][64];
    mica_device *list[2] = {NULL, NULL};
    const mica_device_options one = {.threads = 1};
    const mica_calibration c[] = {device_of(1000, 1, 100), device_of(1, 1000, 100)};
    must(mica_device_open("cpu", &one, &list[0]));
    must(mica_device_open("cpu", &one, &list[1]));
    mica_graph *g = NULL;
    must(mica_graph_create(&g));
    const mica_tensor in = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(8, SIDE));
    const mica_tensor weight = mica_graph_parameter(g, "w", MICA_DTYPE_F32, 2, SHAPE(SIDE, 8));
    mica_graph_output(g, "y", mica_graph_softmax(g, mica_graph_matmul(g, in, weight), 1, -1));
    must(mica_graph_status(g));
    test_random random = test_random_from(1);
    rig_fill(&random, x, 8 * SIDE);
    rig_fill(&random, w, 8 * SIDE);
    for (uint32_t count = 1; count <= 2; count++) {
        mica_executable *run = NULL;
        must(mica_graph_choose_places(g, c, NULL, count, NULL));
        must(mica_graph_compile(g, NULL, &(mica_compile_options){.devices = list, .device_count = count},
                                &run));
        mica_array p = rig_array("w", MICA_DTYPE_F32, w, SIDE * 8 * 4, 2, SHAPE(SIDE, 8));
        mica_array fed = rig_array("x", MICA_DTYPE_F32, x, SIDE * 8 * 4, 2, SHAPE(8, SIDE));
        mica_array out = OUT_ARRAY("y", y[count - 1]);
        must(mica_executable_set(run, &p));
        must(mica_executable_run(run, &fed, 1, &out, 1));
        mica_executable_release(run);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    mica_graph_release(g);
    mica_device_release(list[0]);
    mica_device_release(list[1]);
}

static void test_refused(void **state)
{
    (void)state;
    mica_graph *g = chain(), *open = NULL;
    mica_calibration c[] = {device_of(1, 1, 1), device_of(1, 1, 0)};
    mica_device *null = NULL, *const hole[] = {NULL};
    must(mica_device_open("null", NULL, &null));
    refused(mica_graph_choose_places(NULL, c, NULL, 1, NULL), MICA_ERR_INVALID_ARGUMENT, "graph is NULL");
    refused(mica_graph_choose_places(g, NULL, NULL, 1, NULL), MICA_ERR_INVALID_ARGUMENT,
            "calibrations is NULL");
    refused(mica_graph_choose_places(g, c, NULL, 0, NULL), MICA_ERR_INVALID_ARGUMENT, "count is 0");
    refused(mica_graph_choose_places(g, c, NULL, 65, NULL), MICA_ERR_INVALID_ARGUMENT, "count is over");
    refused(mica_graph_choose_places(g, c, NULL, 2, NULL), MICA_ERR_INVALID_ARGUMENT, "transfer");
    refused(mica_graph_choose_device_places(g, hole, 1, NULL), MICA_ERR_INVALID_ARGUMENT,
            "devices[0] is NULL");
    refused(mica_graph_choose_device_places(NULL, hole, 1, NULL), MICA_ERR_INVALID_ARGUMENT, "graph is NULL");
    refused(mica_graph_choose_device_places(g, NULL, 1, NULL), MICA_ERR_INVALID_ARGUMENT, "devices is NULL");
    refused(mica_graph_choose_device_places(g, &null, 1, NULL), MICA_ERR_UNSUPPORTED, "device null:0");
    must(mica_graph_create(&open));
    const uint64_t n = mica_graph_symbol(open, "n");
    mica_graph_output(open, "y", mica_graph_tanh(open, mica_graph_input(open, "x", MICA_DTYPE_F32, 1, &n)));
    refused(mica_graph_choose_places(open, c, NULL, 1, NULL), MICA_ERR_INVALID_ARGUMENT, "input 'x'");
    mica_graph_release(open);
    mica_graph_release(g);
    mica_device_release(null);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chain),   cmocka_unit_test(test_branches),
                                       cmocka_unit_test(test_least),   cmocka_unit_test(test_budget),
                                       cmocka_unit_test(test_devices), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
