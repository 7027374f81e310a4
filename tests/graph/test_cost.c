/*
 * test_cost.c - what graphs cost by figures of devices that do not exist, round ones; and figures of real devices: measured, kept, read, refused.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "graph/graph_rig.h"
#include "support/folder.h"

static char folder[512], cache[600];

/* Products at 100 operations a ns and small ones at 10, 10 bytes a ns. */
static const mica_calibration round_figures = {.device = "round",
                                               .matmul_large = 100,
                                               .matmul_small = 10,
                                               .attention = 50,
                                               .memory = 10,
                                               .reduce = 20,
                                               .transfer = 4,
                                               .roundtrip = 5000,
                                               .launch = 1000};

static double cost_of(mica_graph *graph, const mica_calibration *by)
{
    double ns = -1;
    must(mica_graph_status(graph));
    must(mica_graph_cost(graph, by, &ns));
    return ns;
}

static void costs(mica_graph *graph, double wanted)
{
    const double ns = cost_of(graph, &round_figures);
    if (fabs(ns - wanted) > 1e-9 * wanted) {
        print_error("it costs %.17g ns, not %.17g\n", ns, wanted);
        fail();
    }
    mica_graph_release(graph);
}

static mica_graph *new_graph(void)
{
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    return graph;
}

static mica_graph *product_graph(mica_dtype dtype, uint64_t m, uint64_t k, uint64_t n, bool parameter)
{
    mica_graph *graph = new_graph();
    const mica_tensor a = mica_graph_input(graph, "a", dtype, 2, SHAPE(m, k));
    const mica_tensor b = parameter ? mica_graph_parameter(graph, "b", dtype, 2, SHAPE(k, n))
                                    : mica_graph_input(graph, "b", dtype, 2, SHAPE(k, n));
    mica_graph_output(graph, "y", mica_graph_matmul(graph, a, b));
    return graph;
}

static mica_status own(void *context, mica_custom_call *call)
{
    (void)context;
    (void)call;
    return MICA_OK;
}

static void test_product(void **state)
{
    (void)state;
    /* Large: 2 * 1000^3 operations at 100 a ns are 2e7 ns; 12e6 bytes at 10 a ns only 1.2e6. All of them travel. */
    costs(product_graph(MICA_DTYPE_F32, 1000, 1000, 1000, false), 5000 + 12e6 / 4 + 1000 + 2e7);
    /* A parameter is there already. */
    costs(product_graph(MICA_DTYPE_F32, 1000, 1000, 1000, true), 5000 + 8e6 / 4 + 1000 + 2e7);
    /* Half the bytes of f16. */
    costs(product_graph(MICA_DTYPE_F16, 1000, 1000, 1000, false), 5000 + 6e6 / 4 + 1000 + 2e7);
    /* Small: 2 * 10 * 20 * 30 operations at 10 a ns are 1200, longer than (200 + 600 + 300) * 4 bytes at 10, which are 440. */
    costs(product_graph(MICA_DTYPE_F32, 10, 20, 30, false), 5000 + 4400.0 / 4 + 1000 + 1200);
    /* One row: bytes are what counts. */
    costs(product_graph(MICA_DTYPE_F32, 1, 100, 100, true), 5000 + 800.0 / 4 + 1000 + 10200 * 4 / 10.0);
    /* In the middle of the two sizes, in logarithms, the rate is in the middle of the two rates. */
    mica_calibration by = round_figures;
    by.memory = by.transfer = 1e15;
    by.roundtrip = by.launch = 0;
    const double middle = sqrt(65536.0 * 1207959552.0), flops = 2.0 * 203 * 206 * 106;
    assert_true(fabs(flops / middle - 1) < 0.01);
    mica_graph *graph = product_graph(MICA_DTYPE_F32, 203, 206, 106, true);
    assert_true(fabs(cost_of(graph, &by) / (flops / sqrt(1000)) - 1) < 0.01);
    mica_graph_release(graph);
}

/* Ops of the table with weights in blocks, a group for each weight, and with absent operands. */
static void test_ops(void **state)
{
    (void)state;
    mica_graph *graph = new_graph();
    mica_tensor y[2], in[11] = {mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(1, 1024))};
    in[1] = mica_graph_parameter(graph, "one", MICA_DTYPE_Q8_0, 2, SHAPE(512, 1024));
    in[2] = mica_graph_parameter(graph, "two", MICA_DTYPE_Q8_0, 2, SHAPE(512, 1024));
    mica_graph_op(graph, MICA_OP_MATMUL, NULL, in, 3, 3, NULL, y, 2);
    mica_graph_output(graph, "y", y[0]);
    mica_graph_output(graph, "z", y[1]);
    mica_calibration by = round_figures;
    by.matmul_small = by.matmul_large = 100;
    /* Bytes: 34 for 32 numbers. */
    const double wanted = 5000 + 8192 / 4.0 + 1000 + (4096 + 2 * (512 * 1024 / 32 * 34 + 2048)) / 10.0;
    assert_true(fabs(cost_of(graph, &by) - wanted) < 1e-6);
    by.matmul_small = by.matmul_large = 1; /* operations: 2 for each number of both */
    assert_true(fabs(cost_of(graph, &by) - (5000 + 8192 / 4.0 + 1000 + 2 * 2 * 512 * 1024.0)) < 1e-6);
    mica_graph_release(graph);
    graph = new_graph(); /* 4 * 128 * 4 * 128 * 64 operations at 50 */
    in[0] = mica_graph_parameter(graph, "q", MICA_DTYPE_F32, 3, SHAPE(128, 4, 64));
    in[1] = mica_graph_parameter(graph, "k", MICA_DTYPE_F16, 3, SHAPE(128, 4, 64));
    in[2] = mica_graph_parameter(graph, "v", MICA_DTYPE_F16, 3, SHAPE(128, 4, 64));
    in[3] = mica_graph_parameter(graph, "at", MICA_DTYPE_U32, 1, SHAPE(128));
    in[4] = mica_graph_parameter(graph, "length", MICA_DTYPE_U32, 1, SHAPE(1));
    const mica_attention_params params = {.bidirectional = 1};
    mica_graph_output(graph, "y", mica_graph_op(graph, MICA_OP_ATTENTION, &params, in, 11, 1, NULL, NULL, 0));
    costs(graph, 5000 + 131072 / 4.0 + 1000 + 4 * 128 * 4 * 128 * 64 / 50.0);
}

/* A chain is one kernel: 4 MB in, 4 MB out, whatever lies between. */
static void test_chain(void **state)
{
    (void)state;
    const uint64_t n = 1000000;
    for (uint32_t length = 1; length <= 5; length++) {
        mica_graph *graph = new_graph();
        mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, &n);
        for (uint32_t i = 0; i < length; i++)
            x = mica_graph_neg(graph, x);
        mica_graph_output(graph, "y", x);
        (void)mica_graph_exp(graph, x); /* nobody asks for it */
        costs(graph, 5000 + 8e6 / 4 + 1000 + 8e6 / 10);
    }
    /* x counts once though it is read twice; a row that repeats counts as the row; of f16 comes half. */
    mica_graph *graph = new_graph();
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(1000, 1000));
    const mica_tensor row = mica_graph_parameter(graph, "row", MICA_DTYPE_F16, 1, SHAPE(1000));
    const mica_tensor wide = mica_graph_expand(graph, row, 2, SHAPE(1000, 1000));
    mica_tensor y = mica_graph_mul(graph, mica_graph_add(graph, x, wide), x);
    y = mica_graph_cast(graph, mica_graph_reshape(graph, y, 1, &n), MICA_DTYPE_F16);
    mica_graph_output(graph, "y", y);
    costs(graph, 5000 + 6e6 / 4 + 1000 + (4e6 + 2000 + 2e6) / 10);
}

/* Where another kernel stands between two elementwise nodes they are not one, though the first feeds the second. */
static void test_between(void **state)
{
    (void)state;
    mica_graph *graph = new_graph();
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(1000, 1000));
    const mica_tensor a = mica_graph_neg(graph, x);
    const mica_tensor sum = mica_graph_reduce(graph, MICA_REDUCE_SUM, a, (const int32_t[]){1}, 1, 1);
    mica_graph_output(graph, "y", mica_graph_sub(graph, a, sum));
    /* neg: 4e6 in, 4e6 out. Sum: 4e6 + 4000 at 20. sub: 4e6 + 4000 in, 4e6 out. */
    costs(graph, 5000 + 8e6 / 4 + 3000 + 8e6 / 10 + 4004000 / 20.0 + 8004000 / 10.0);
    /* A view alone moves nothing but what travels. */
    graph = new_graph();
    const mica_tensor v = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(100, 200));
    mica_graph_output(graph, "y", mica_graph_permute(graph, v, (const uint32_t[]){1, 0}));
    costs(graph, 5000 + 160000 / 4.0);
    /* Pieces one behind another: all is read and written. */
    graph = new_graph();
    const mica_tensor p = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, SHAPE(5000));
    mica_graph_output(graph, "y", mica_graph_concat(graph, (const mica_tensor[]){p, p}, 2, 0));
    costs(graph, 5000 + 60000 / 4.0 + 1000 + 80000 / 10.0);
}

static mica_graph *negative_body(uint64_t n)
{
    mica_graph *body = new_graph();
    mica_graph_output(body, "y", mica_graph_neg(body, mica_graph_input(body, "x", MICA_DTYPE_F32, 1, &n)));
    return body;
}

static void test_control(void **state)
{
    (void)state;
    const uint64_t n = 1000;
    mica_graph *one = negative_body(n), *none = new_graph(), *always = new_graph();
    mica_graph_output(none, "y", mica_graph_input(none, "x", MICA_DTYPE_F32, 1, &n));
    (void)mica_graph_input(always, "x", MICA_DTYPE_F32, 1, &n);
    mica_graph_output(always, "on", mica_graph_number(always, MICA_DTYPE_BOOL, 1));
    mica_graph *graph = new_graph();
    mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, &n), y = 0;
    const mica_tensor on = mica_graph_input(graph, "on", MICA_DTYPE_BOOL, 0, NULL);
    mica_graph_if(graph, on, none, one, &x, 1, &y, 1);
    mica_graph_output(graph, "y", y);
    costs(graph, 5000 + 8001 / 4.0 + 5000 + 1000 + 800);
    for (uint64_t most = 0; most < 4; most += 3) {
        graph = new_graph();
        x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, &n);
        mica_graph_while(graph, always, one, most, &x, 1, 1, &y);
        mica_graph_output(graph, "y", y);
        if (most != 0) {
            costs(graph, 5000 + 8000 / 4.0 + 3 * (5000 + 1000 + 800.0));
            continue;
        }
        double ns = 7;
        refused(mica_graph_cost(graph, &round_figures, &ns), MICA_ERR_UNSUPPORTED, "states no bound");
        assert_true(ns == 0);
        mica_graph_release(graph);
    }
    for (int encoded = 0; encoded < 2;
         encoded++) { /* an op of the caller's: by its bytes alone, with two outputs */
        const mica_custom op = {.name = "own", .host = encoded ? NULL : own, .encode = encoded ? own : NULL};
        graph = new_graph();
        x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, &n);
        mica_tensor two[2];
        mica_graph_custom(graph, &op, &x, 1, NULL, two, 2);
        mica_graph_output(graph, "y", two[0]);
        costs(graph, 5000 + 8000 / 4.0 + (encoded ? 1000 + 12000 / 10.0 : 5000 + 12000 / 4.0));
    }
    graph = new_graph(); /* seven slices of a matrix, negated */
    x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(7, n));
    mica_graph_scan(graph, one, &(mica_scan_desc){.scanned = 1}, &x, &y, 1);
    mica_graph_output(graph, "y", y);
    costs(graph, 5000 + 56000 / 4.0 + 7 * (5000 + 1000 + 800.0));
    mica_graph_release(one);
    mica_graph_release(none);
    mica_graph_release(always);
}

/* A fast device at the end of a slow wire: not for small graphs, nor for large ones that do little with much. */
static void test_choice(void **state)
{
    (void)state;
    mica_calibration sides[2] = {round_figures, round_figures};
    sides[0].transfer = 10, sides[0].roundtrip = 2000, sides[0].launch = 300;
    sides[1].matmul_large = 20000, sides[1].matmul_small = 40, sides[1].memory = 1000;
    sides[1].roundtrip = 20000;
    mica_graph *small = product_graph(MICA_DTYPE_F32, 8, 64, 64, true);
    mica_graph *large = product_graph(MICA_DTYPE_F32, 2048, 2048, 2048, true);
    mica_graph *moving = new_graph();
    mica_graph_output(
        moving, "y",
        mica_graph_neg(moving, mica_graph_input(moving, "x", MICA_DTYPE_F32, 1, SHAPE(1u << 24))));
    for (uint32_t turned = 0; turned < 2; turned++) {
        uint32_t index = 9;
        must(mica_graph_choose(small, sides, 2, &index));
        assert_int_equal(index, turned);
        must(mica_graph_choose(large, sides, 2, &index));
        assert_int_equal(index, !turned);
        must(mica_graph_choose(moving, sides, 2, &index));
        assert_int_equal(index, turned);
        const mica_calibration first = sides[0];
        sides[0] = sides[1];
        sides[1] = first;
    }
    sides[1] = sides[0]; /* of equals the first */
    uint32_t index = 9;
    must(mica_graph_choose(large, sides, 2, &index));
    assert_int_equal(index, 0);
    refused(mica_graph_choose(large, sides, 0, &index), MICA_ERR_INVALID_ARGUMENT, "count is 0");
    mica_graph_release(small);
    mica_graph_release(large);
    mica_graph_release(moving);
}

static void test_refused(void **state)
{
    (void)state;
    double ns = 0;
    mica_graph *graph = new_graph();
    const uint64_t batch = mica_graph_symbol(graph, "batch");
    mica_graph_output(graph, "y",
                      mica_graph_neg(graph, mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, &batch)));
    refused(mica_graph_cost(graph, &round_figures, &ns), MICA_ERR_INVALID_ARGUMENT, "'x' is [batch]");
    refused(mica_graph_cost(NULL, &round_figures, &ns), MICA_ERR_INVALID_ARGUMENT, "graph is NULL");
    refused(mica_graph_cost(graph, NULL, &ns), MICA_ERR_INVALID_ARGUMENT, "calibration is NULL");
    refused(mica_graph_cost(graph, &round_figures, NULL), MICA_ERR_INVALID_ARGUMENT, "out_ns");
    mica_calibration by = round_figures;
    by.memory = 0;
    refused(mica_graph_cost(graph, &by, &ns), MICA_ERR_INVALID_ARGUMENT, "memory is 0");
    by = round_figures, by.attention = NAN;
    refused(mica_graph_cost(graph, &by, &ns), MICA_ERR_INVALID_ARGUMENT, "attention is");
    by = round_figures, by.launch = -1;
    refused(mica_graph_cost(graph, &by, &ns), MICA_ERR_INVALID_ARGUMENT, "launch is -1");
    mica_graph_release(graph);
}

/* ---- real devices ---- */

static char *only_file(char *path, size_t size)
{
    char command[1400];
    snprintf(command, sizeof command, "ls %s/calibration-*.json", cache);
    FILE *list = popen(command, "r");
    assert_non_null(list);
    path[0] = 0;
    assert_non_null(fgets(path, (int)size, list));
    path[strcspn(path, "\n")] = 0;
    pclose(list);
    return path;
}

static size_t read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t length = fread(text, 1, size - 1, file);
    fclose(file);
    text[length] = 0;
    return length;
}

static void write_text(const char *path, const char *text, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    fclose(file);
}

static void positive(const mica_calibration *c)
{
#define POSITIVE(name, unit, meaning)                             \
    if (!(c->name > 0 || (unit)[0] == 'n') || !isfinite(c->name)) \
        fail_msg("%s is %g", #name, c->name);
    MICA_CALIBRATION_LIST(POSITIVE)
#undef POSITIVE
}

static void test_kept(void **state)
{
    (void)state;
    static const char *const damages[][2] = {{"\"processors\":", "\"processors\":1"},
                                             {"\"device\":\"", "\"device\":\"Another "},
                                             {"\"driver\":\"", "\"driver\":\"another "},
                                             {"\"version\":\"", "\"version\":\"9"},
                                             {"\"format\":", "\"format\":2"},
                                             {"\"memory\":", "\"memory\":-"},
                                             {"\"reduce\":", "\"reduced\":"},
                                             {"{", "["}};
    mica_device *device = devices[0];
    mica_calibration measured, kept;
    char path[700], text[2000], damaged[2100];
    refused(mica_device_calibration(device, MICA_CALIBRATION_KEPT, &kept), MICA_ERR_NOT_FOUND, "kept");
    must(mica_device_calibration(device, 0, &measured));
    positive(&measured);
    must(mica_device_calibration(device, MICA_CALIBRATION_KEPT, &kept));
    assert_memory_equal(&measured, &kept, sizeof kept); /* to the last bit */
    const size_t length = read_text(only_file(path, sizeof path), text, sizeof text);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const char *at = strstr(text, damages[i][0]);
        assert_non_null(at);
        snprintf(damaged, sizeof damaged, "%.*s%s%s", (int)(at - text), text, damages[i][1],
                 at + strlen(damages[i][0]));
        write_text(path, damaged, strlen(damaged));
        refused(mica_device_calibration(device, MICA_CALIBRATION_KEPT, &kept), MICA_ERR_NOT_FOUND, "kept");
    }
    for (size_t cut = 0; cut < length; cut += 7) {
        write_text(path, text, cut);
        refused(mica_device_calibration(device, MICA_CALIBRATION_KEPT, &kept), MICA_ERR_NOT_FOUND, "kept");
    }
    must(mica_device_calibration(device, 0, &measured)); /* anew, over what was damaged */
    must(mica_device_calibration(device, 0, &kept));
    assert_memory_equal(&measured, &kept, sizeof kept);
    must(mica_device_calibration(device, MICA_CALIBRATION_ANEW, &kept));
    assert_memory_not_equal(&measured.matmul_large, &kept.matmul_large, 8 * sizeof(double));
    refused(mica_device_calibration(device, 4, &kept), MICA_ERR_INVALID_ARGUMENT, "flags");
    refused(mica_device_calibration(NULL, 0, &kept), MICA_ERR_INVALID_ARGUMENT, "device is NULL");
}

static void *cancel_soon(void *work)
{
    usleep(5000);
    mica_work_cancel(work);
    return NULL;
}

static void test_cancel(void **state)
{
    (void)state;
    mica_work *work = NULL;
    mica_calibration c;
    must(mica_work_create(NULL, &work));
    mica_work_use(work);
    mica_work_cancel(work);
    refused(mica_device_calibrate(devices[0], &c), MICA_ERR_CANCELLED, "device_calibrate");
    assert_true(c.memory == 0 && c.device[0] == 0);
    mica_work_clear(work);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, work), 0);
    refused(mica_device_calibrate(devices[0], &c), MICA_ERR_CANCELLED, "device_calibrate");
    assert_int_equal(pthread_join(thread, NULL), 0);
    mica_work_clear(work);
    must(mica_device_calibrate(devices[0], &c));
    positive(&c);
    mica_work_use(NULL);
    mica_work_release(work);
    mica_device *null = NULL;
    must(mica_device_open("null", NULL, &null));
    refused(mica_device_calibrate(null, &c), MICA_ERR_UNSUPPORTED, "computes nothing");
    mica_device_release(null);
}

/* What a device does not serve is not chosen, however fast it would be. */
static void test_devices(void **state)
{
    (void)state;
    mica_device *list[DEVICES];
    uint32_t count = 0, index = 9;
    for (int i = DEVICES; i-- > 0;)
        if (devices[i] != NULL)
            list[count++] = devices[i];
    mica_graph *graph = product_graph(MICA_DTYPE_F64, 8, 8, 8, true); /* of f64, which only the cpu has */
    must(mica_graph_choose_device(graph, list, count, &index));
    assert_ptr_equal(list[index], devices[0]);
    refused(mica_graph_choose_device(graph, list, 0, &index), MICA_ERR_INVALID_ARGUMENT, "count is 0");
    refused(mica_graph_choose_device(graph, (mica_device *[]){NULL}, 1, &index), MICA_ERR_INVALID_ARGUMENT,
            "devices[0] is NULL");
    mica_graph_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_product), cmocka_unit_test(test_ops),
                                       cmocka_unit_test(test_chain),   cmocka_unit_test(test_between),
                                       cmocka_unit_test(test_control), cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_kept),
                                       cmocka_unit_test(test_cancel),  cmocka_unit_test(test_devices)};
    if (test_folder_make(folder, sizeof folder, "cost") != 0)
        return 1;
    snprintf(cache, sizeof cache, "%s/cache", folder);
    setenv("MICA_CACHE_DIR", cache, 1); /* before the environment is read */
    const int failed = cmocka_run_group_tests(tests, open_devices, close_devices);
    test_folder_remove(folder);
    return failed;
}
