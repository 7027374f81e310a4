/*
 * test_placement.c - graphs whose nodes belong to several devices: the same bits as on one, whatever runs where, and what goes wrong on one of them.
 */
#include "mica/host.h"
#include "mica/train.h"
#include "graph/graph_rig.h"

enum { PLACES = 3, ROWS = 6, COLUMNS = 16, ELEMENTS = ROWS * COLUMNS };

static mica_device *cpus[PLACES], *opencl;

static int open_all(void **state)
{
    const mica_device_options few = {.threads = 2};
    (void)state;
    for (int i = 0; i < PLACES; i++)
        if (mica_device_open("cpu", &few, &cpus[i]) != MICA_OK)
            return -1;
    return mica_device_open("opencl", NULL, &opencl) != MICA_OK && test_is_needed("opencl") ? -1 : 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < PLACES; i++)
        mica_device_release(cpus[i]);
    mica_device_release(opencl);
    return mica_host_bytes() == 0 ? 0 : -1;
}

static mica_executable *compile(const mica_graph *graph, mica_device *const *list, uint32_t count,
                                mica_graph_mode mode, uint32_t flags, uint32_t in_flight)
{
    mica_executable *run = NULL;
    must(mica_graph_compile(
        graph, NULL,
        &(mica_compile_options){
            .mode = mode, .flags = flags, .in_flight = in_flight, .devices = list, .device_count = count},
        &run));
    return run;
}

/* ---- graphs that chance draws ---- */

enum { VALUES = 24, OUTPUTS = 4, WEIGHTS = 3 };
static const char *const output_names[OUTPUTS] = {"a", "b", "c", "d"};
static const char *const weight_names[WEIGHTS] = {"w0", "w1", "w2"};

/* A value of two drawn ones, [ROWS, COLUMNS] like all of them. */
static mica_tensor draw_node(mica_graph *g, uint64_t kind, mica_tensor x, mica_tensor y, mica_tensor w)
{
    static const uint32_t turn[] = {1, 0};
    mica_tensor half[2];
    switch (kind) {
    case 0: return mica_graph_tanh(g, mica_graph_add(g, x, y));
    case 1: return mica_graph_mul(g, x, mica_graph_sigmoid(g, y));
    case 2: return mica_graph_matmul(g, x, w);
    case 3: return mica_graph_softmax(g, mica_graph_sub(g, x, y), 1, -1);
    case 4: /* what is turned crosses, or what is below it */
        return mica_graph_reshape(g, mica_graph_permute(g, mica_graph_add(g, x, y), turn), 2,
                                  SHAPE(ROWS, COLUMNS));
    case 5: /* parts change places */
        half[0] = mica_graph_slice(g, x, 1, COLUMNS / 2, COLUMNS / 2, 1);
        half[1] = mica_graph_slice(g, y, 1, 0, COLUMNS / 2, 1);
        return mica_graph_concat(g, half, 2, 1);
    case 6:
        return mica_graph_sub(g, x, mica_graph_reduce(g, MICA_REDUCE_MEAN, y, (const int32_t[]){-1}, 1, 1));
    case 7: return mica_graph_cast(g, mica_graph_cast(g, x, MICA_DTYPE_F16), MICA_DTYPE_F32);
    default: return mica_graph_max(g, x, mica_graph_number(g, MICA_DTYPE_F32, -0.25));
    }
}

/* The same graph for the same seed, at drawn places or all at one. */
static mica_graph *draw_graph(uint64_t seed, uint32_t places)
{
    mica_graph *g = NULL;
    mica_tensor value[VALUES], w[WEIGHTS];
    test_random random = test_random_from(seed), where = test_random_from(seed + 1000);
    must(mica_graph_create(&g));
    value[0] = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(ROWS, COLUMNS));
    value[1] = mica_graph_input(g, "y", MICA_DTYPE_F32, 2, SHAPE(ROWS, COLUMNS));
    for (int i = 0; i < WEIGHTS; i++) {
        must(mica_graph_place(g, (uint32_t)test_random_below(&where, places)));
        w[i] = mica_graph_parameter(g, weight_names[i], MICA_DTYPE_F32, 2, SHAPE(COLUMNS, COLUMNS));
    }
    for (uint32_t i = 2; i < VALUES; i++) {
        const uint64_t kind = test_random_below(&random, 9), a = test_random_below(&random, i),
                       b = test_random_below(&random, i), c = test_random_below(&random, WEIGHTS);
        must(mica_graph_place(g, (uint32_t)test_random_below(&where, places)));
        value[i] = draw_node(g, kind, value[a], value[b], w[c]);
    }
    for (int i = 0; i < OUTPUTS; i++)
        mica_graph_output(g, output_names[i], value[i == 3 ? 5 : VALUES - 1 - i]);
    must(mica_graph_status(g));
    return g;
}

typedef float values[ELEMENTS];

static void run_drawn(mica_executable *run, uint64_t seed, values out[OUTPUTS])
{
    static float x[ELEMENTS], y[ELEMENTS], w[COLUMNS * COLUMNS];
    test_random random = test_random_from(seed + 7);
    rig_fill(&random, x, ELEMENTS);
    rig_fill(&random, y, ELEMENTS);
    for (int i = 0; i < WEIGHTS; i++) {
        rig_fill(&random, w, COLUMNS * COLUMNS);
        for (int k = 0; k < COLUMNS * COLUMNS; k++)
            w[k] *= 0.25f;
        must(rig_set(run, F32_ARRAY(weight_names[i], w, COLUMNS, COLUMNS)));
    }
    mica_array in[] = {F32_ARRAY("x", x, ROWS, COLUMNS), F32_ARRAY("y", y, ROWS, COLUMNS)}, got[OUTPUTS];
    for (int i = 0; i < OUTPUTS; i++)
        got[i] = OUT_ARRAY(output_names[i], out[i]);
    memset(out, 0xff, OUTPUTS * sizeof(values));
    must(mica_executable_run(run, in, 2, got, OUTPUTS));
}

/* Any cut over devices of one kind gives the bits of one device; what is printed and read back does too. */
static void test_cuts(void **state)
{
    (void)state;
    static values right[OUTPUTS], got[OUTPUTS];
    for (uint64_t seed = 1; seed <= 12; seed++)
        for (uint32_t flags = 0; flags <= 2; flags++)
            EACH_MODE(mode)
            {
                mica_graph *whole = draw_graph(seed, 1), *parted = draw_graph(seed, PLACES), *again = NULL;
                static char text[32768];
                uint64_t length = 0;
                mica_executable *one = compile(whole, cpus, 1, mode, flags, 1);
                run_drawn(one, seed, right);
                mica_executable_release(one);
                must(mica_graph_print(parted, text, sizeof text, &length));
                assert_true(length < sizeof text && strstr(text, " place=2") != NULL);
                must(mica_graph_parse(text, length, &again));
                const mica_graph *both[] = {parted, again};
                for (int k = 0; k < 2; k++) {
                    mica_executable *run = compile(both[k], cpus, PLACES, mode, flags, 1);
                    for (int twice = 0; twice < 2; twice++) {
                        run_drawn(run, seed, got);
                        assert_memory_equal(got, right, sizeof right);
                    }
                    mica_executable_release(run);
                }
                mica_graph_release(whole);
                mica_graph_release(parted);
                mica_graph_release(again);
            }
}

/* Between kinds of devices the numbers are those of f32. */
static void test_kinds(void **state)
{
    (void)state;
    if (opencl == NULL)
        skip();
    static values right[OUTPUTS], got[OUTPUTS];
    mica_device *const mixed[] = {cpus[0], opencl, cpus[1]};
    for (uint64_t seed = 1; seed <= 3; seed++)
        EACH_MODE(mode)
        {
            mica_graph *whole = draw_graph(seed, 1), *parted = draw_graph(seed, PLACES);
            mica_executable *one = compile(whole, cpus, 1, mode, 0, 1),
                            *run = compile(parted, mixed, PLACES, mode, 0, 1);
            run_drawn(one, seed, right);
            run_drawn(run, seed, got);
            for (int o = 0; o < OUTPUTS; o++)
                for (int i = 0; i < ELEMENTS; i++) /* f16 on the way: half a unit of its last place at 4 */
                    assert_true(fabsf(got[o][i] - right[o][i]) <= 2e-3f * (1 + fabsf(right[o][i])));
            mica_executable_release(run);
            mica_executable_release(one);
            mica_graph_release(whole);
            mica_graph_release(parted);
        }
}

/* ---- what is copied ---- */

static uint32_t count_of(const char *text, const char *what)
{
    uint32_t count = 0;
    for (; (text = strstr(text, what)) != NULL; text++)
        count++;
    return count;
}

/* A value crosses once for each place, a part of one alone; constants do not, parameters lie where they are used. */
static void test_copies(void **state)
{
    (void)state;
    static char text[8192];
    uint64_t length = 0;
    mica_graph *g = NULL;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(ROWS, COLUMNS));
    const mica_tensor w = mica_graph_parameter(g, "w", MICA_DTYPE_F32, 1, SHAPE(COLUMNS));
    const mica_tensor y = mica_graph_tanh(g, x), three = mica_graph_number(g, MICA_DTYPE_F32, 3);
    must(mica_graph_place(g, 1));
    const mica_tensor a = mica_graph_mul(g, y, w), b = mica_graph_exp(g, y);
    const mica_tensor part = mica_graph_slice(g, y, 1, 2, 3, 1);
    const mica_tensor c = mica_graph_add(g, mica_graph_reshape(g, part, 1, SHAPE(ROWS * 3)), three);
    const mica_tensor d = mica_graph_neg(g, mica_graph_reshape(g, part, 2, SHAPE(3, ROWS)));
    mica_graph_output(g, "a", a);
    mica_graph_output(g, "b", b);
    mica_graph_output(g, "c", c);
    mica_graph_output(g, "d", d);
    must(mica_graph_place(g, 0));
    mica_graph_output(g, "e", mica_graph_mul(g, y, three));
    must(mica_graph_status(g));
    mica_executable *run = compile(g, cpus, 2, MICA_MODE_COMPILED, 0, 1);
    must(mica_executable_print(run, text, sizeof text, &length));
    assert_true(length < sizeof text);
    assert_int_equal(count_of(text, " = copy("), 3);               /* y; the part in a row, and there */
    assert_int_equal(count_of(text, " place=1 : f32 [6, 16]"), 3); /* the copy, a, b */
    assert_non_null(strstr(text, "parameter(\"w\") place=1"));
    assert_int_equal(count_of(text, "constant(3"), 2);
    mica_executable_release(run);
    mica_graph_release(g);
}

/* Buffers of the caller's on whatever device, for inputs, parameters and outputs. */
static void test_buffers(void **state)
{
    (void)state;
    static values right[OUTPUTS];
    static float x[ELEMENTS], got[ELEMENTS];
    mica_graph *whole = draw_graph(3, 1), *parted = draw_graph(3, PLACES);
    mica_executable *one = compile(whole, cpus, 1, MICA_MODE_COMPILED, 0, 1),
                    *run = compile(parted, cpus, PLACES, MICA_MODE_COMPILED, 0, 1);
    for (int from = 0; from < PLACES; from++) {
        run_drawn(one, 3, right);
        run_drawn(run, 3, right);
        mica_array w = {.name = "w1"}, in[2] = {{.name = "x"}, {.name = "y"}}, out = {.name = "b"};
        test_random random = test_random_from((uint64_t)from);
        rig_fill(&random, x, ELEMENTS);
        must(mica_buffer_alloc(cpus[from], MICA_DTYPE_F32, 2, SHAPE(COLUMNS, COLUMNS), &w.buffer));
        must(mica_buffer_alloc(cpus[from], MICA_DTYPE_F32, 2, SHAPE(ROWS, COLUMNS), &out.buffer));
        for (int i = 0; i < 2; i++) {
            must(mica_buffer_alloc(cpus[from], MICA_DTYPE_F32, 2, SHAPE(ROWS, COLUMNS), &in[i].buffer));
            must(mica_buffer_write(in[i].buffer, 0, x, sizeof x));
        }
        must(mica_executable_set(run, &w));
        must(mica_executable_run(run, in, 2, &out, 1));
        must(mica_buffer_read(out.buffer, 0, got, sizeof got));
        static float zero[COLUMNS * COLUMNS];
        must(rig_set(one, F32_ARRAY("w1", zero, COLUMNS, COLUMNS)));
        mica_array bytes[] = {F32_ARRAY("x", x, ROWS, COLUMNS), F32_ARRAY("y", x, ROWS, COLUMNS)};
        mica_array wanted = OUT_ARRAY("b", right[0]);
        must(mica_executable_run(one, bytes, 2, &wanted, 1));
        assert_memory_equal(got, right[0], sizeof got);
        static float ones[COLUMNS * COLUMNS], kept[COLUMNS * COLUMNS];
        for (int i = 0; i < COLUMNS * COLUMNS; i++)
            ones[i] = 1;
        must(rig_set(run, F32_ARRAY("w1", ones, COLUMNS, COLUMNS))); /* not into the caller's buffer */
        must(mica_buffer_read(w.buffer, 0, kept, sizeof kept));
        assert_memory_equal(kept, zero, sizeof zero);
        mica_buffer_release(w.buffer);
        mica_buffer_release(out.buffer);
        mica_buffer_release(in[0].buffer);
        mica_buffer_release(in[1].buffer);
    }
    mica_executable_release(one);
    mica_executable_release(run);
    mica_graph_release(whole);
    mica_graph_release(parted);
}

/* ---- control ---- */

/* x -> x * factor + 1, at places of its own; `count` of carried tensors. */
static mica_graph *round_body(double factor, uint32_t first, uint32_t second)
{
    mica_graph *body = NULL;
    must(mica_graph_create(&body));
    const mica_tensor x = mica_graph_input(body, "x", MICA_DTYPE_F32, 1, SHAPE(5));
    must(mica_graph_place(body, first));
    const mica_tensor y = mica_graph_mul(body, x, mica_graph_number(body, MICA_DTYPE_F32, factor));
    must(mica_graph_place(body, second));
    mica_graph_output(body, "y", mica_graph_add(body, y, mica_graph_number(body, MICA_DTYPE_F32, 1)));
    must(mica_graph_status(body));
    return body;
}

static mica_graph *below_body(uint32_t place)
{
    mica_graph *body = NULL;
    must(mica_graph_create(&body));
    const mica_tensor x = mica_graph_input(body, "x", MICA_DTYPE_F32, 1, SHAPE(5));
    must(mica_graph_place(body, place));
    const mica_tensor sum = mica_graph_reduce(body, MICA_REDUCE_SUM, x, NULL, 0, 0);
    mica_graph_output(body, "on", mica_graph_less(body, sum, mica_graph_number(body, MICA_DTYPE_F32, 1000)));
    must(mica_graph_status(body));
    return body;
}

/* A choice, a loop and a scan one behind another, each at a place, with sub-graphs at two others; p 0: all at one. */
static mica_graph *control_graph(uint32_t p)
{
    mica_graph *g = NULL, *up = round_body(2, 2 * p, p), *down = round_body(0.5, p, 0),
               *on = below_body(2 * p), *slice = NULL;
    mica_tensor out[2];
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, SHAPE(5));
    must(mica_graph_place(g, p));
    const mica_tensor sum = mica_graph_reduce(g, MICA_REDUCE_SUM, x, NULL, 0, 0);
    const mica_tensor yes = mica_graph_greater(g, sum, mica_graph_number(g, MICA_DTYPE_F32, 0));
    must(mica_graph_place(g, 0));
    const mica_tensor chosen = mica_graph_if(g, yes, up, down, &x, 1, NULL, 0);
    must(mica_graph_place(g, 2 * p));
    const mica_tensor looped = mica_graph_while(g, on, up, 0, &chosen, 1, 1, NULL);
    must(mica_graph_create(&slice));
    const mica_tensor carried = mica_graph_input(slice, "c", MICA_DTYPE_F32, 1, SHAPE(5));
    const mica_tensor row = mica_graph_input(slice, "r", MICA_DTYPE_F32, 1, SHAPE(5));
    const mica_tensor next = mica_graph_add(slice, carried, row);
    must(mica_graph_place(slice, 2 * p));
    mica_graph_output(slice, "next", next);
    mica_graph_output(slice, "twice", mica_graph_add(slice, next, next));
    must(mica_graph_place(g, p));
    const mica_tensor rows = mica_graph_add(g, mica_graph_expand(g, looped, 2, SHAPE(4, 5)), x);
    const mica_scan_desc desc = {.carried = 1, .scanned = 1};
    mica_graph_scan(g, slice, &desc, (const mica_tensor[]){x, rows}, out, 2);
    must(mica_graph_place(g, 0));
    mica_graph_output(g, "carried", mica_graph_neg(g, out[0]));
    mica_graph_output(g, "stacked", out[1]);
    mica_graph_output(g, "looped", looped);
    must(mica_graph_status(g));
    mica_graph *const all[] = {up, down, on, slice};
    for (int i = 0; i < 4; i++)
        mica_graph_release(all[i]);
    return g;
}

static void test_control(void **state)
{
    (void)state;
    mica_graph *whole = control_graph(0), *parted = control_graph(1);
    EACH_MODE(mode)
    for (uint32_t flags = 0; flags < 2; flags++) {
        mica_executable *one = compile(whole, cpus, 1, mode, flags, 1),
                        *run = compile(parted, cpus, PLACES, mode, flags, 1);
        for (int i = 0; i < 4; i++) {
            float x[5] = {1, 2, (float)(i % 2 == 0 ? -20 : 20), 0.5f, 3}, got[2][35];
            memset(got, 0, sizeof got);
            mica_executable *const both[] = {one, run};
            for (int k = 0; k < 2; k++) {
                mica_array in = F32_ARRAY("x", x, 5);
                mica_array out[] = {{.name = "carried", .data = got[k], .bytes = 20},
                                    {.name = "stacked", .data = got[k] + 5, .bytes = 80},
                                    {.name = "looped", .data = got[k] + 25, .bytes = 20}};
                must(mica_executable_run(both[k], &in, 1, out, 3));
            }
            assert_memory_equal(got[0], got[1], sizeof got[0]);
            assert_true(got[0][25] + got[0][26] + got[0][27] + got[0][28] + got[0][29] >= 1000);
        }
        mica_executable_release(one);
        mica_executable_release(run);
    }
    mica_graph_release(whole);
    mica_graph_release(parted);
}

/* ---- derivatives and training ---- */

enum { BATCH = 8, IN = 5, WIDTH = 7 };

/* Two layers at places 0 and p, trained. */
static mica_graph *net(uint32_t p)
{
    mica_graph *g = NULL;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(BATCH, IN));
    const mica_tensor t = mica_graph_input(g, "t", MICA_DTYPE_F32, 2, SHAPE(BATCH, 1));
    const mica_tensor w0 = mica_graph_parameter(g, "w0", MICA_DTYPE_F32, 2, SHAPE(IN, WIDTH));
    const mica_tensor hidden = mica_graph_tanh(g, mica_graph_matmul(g, x, w0));
    must(mica_graph_place(g, p));
    const mica_tensor w1 = mica_graph_parameter(g, "w1", MICA_DTYPE_F32, 2, SHAPE(WIDTH, 1));
    const mica_tensor far = mica_graph_sub(g, mica_graph_matmul(g, hidden, w1), t);
    const mica_tensor loss = mica_graph_reduce(g, MICA_REDUCE_MEAN, mica_graph_square(g, far), NULL, 0, 0);
    mica_graph_output(g, "loss", loss);
    must(mica_graph_place(g, 0));
    const mica_optimizer by = mica_optimizer_of(MICA_OPTIMIZER_ADAM);
    must(mica_graph_optimize(g, loss, (const mica_tensor[]){w0, w1}, NULL, 2, &by));
    return g;
}

static void train(mica_graph *g, uint32_t count, mica_graph_mode mode, float losses[8])
{
    static float x[BATCH * IN], t[BATCH], w[IN * WIDTH];
    test_random random = test_random_from(5);
    mica_executable *run = compile(g, cpus, count, mode, MICA_COMPILE_TRAINING, 2);
    must(mica_executable_link_states(run, g));
    rig_fill(&random, w, IN * WIDTH);
    must(rig_set(run, F32_ARRAY("w0", w, IN, WIDTH)));
    mica_array second = rig_array("w1", MICA_DTYPE_F32, w, WIDTH * 4, 2, SHAPE(WIDTH, 1));
    must(mica_executable_set(run, &second));
    rig_fill(&random, x, BATCH * IN);
    rig_fill(&random, t, BATCH);
    for (int i = 0; i < 8; i++) {
        mica_array in[] = {F32_ARRAY("x", x, BATCH, IN), F32_ARRAY("t", t, BATCH, 1)};
        mica_array out = {.name = "loss", .data = &losses[i], .bytes = 4};
        must(mica_executable_run(run, in, 2, &out, 1));
    }
    mica_executable_release(run);
}

static void test_training(void **state)
{
    (void)state;
    mica_graph *whole = net(0), *parted = net(1);
    uint32_t derived = 0;
    for (uint32_t i = 0; i < mica_graph_node_count(parted); i++) {
        mica_graph_node_info info;
        must(mica_graph_get_node(parted, i, &info));
        derived += info.place == 1;
    }
    assert_true(derived > 12); /* the layer, its derivative, and the states of its parameter */
    EACH_MODE(mode)
    {
        float right[8], got[8];
        train(whole, 1, mode, right);
        train(parted, 2, mode, got);
        assert_true(right[7] < right[0]);
        assert_memory_equal(got, right, sizeof right);
    }
    mica_graph_release(whole);
    mica_graph_release(parted);
}

/* States that change places: what one place makes is what another holds. */
static void test_states(void **state)
{
    (void)state;
    mica_graph *g = NULL;
    must(mica_graph_create(&g));
    const mica_tensor a = mica_graph_input(g, "a", MICA_DTYPE_F32, 1, SHAPE(3));
    const mica_tensor old = mica_graph_mul(g, a, mica_graph_number(g, MICA_DTYPE_F32, 1));
    must(mica_graph_place(g, 1));
    const mica_tensor b = mica_graph_input(g, "b", MICA_DTYPE_F32, 1, SHAPE(3));
    mica_graph_output(g, "to_b", mica_graph_add(g, old, b));
    mica_graph_output(g, "to_a", b);
    must(mica_graph_status(g));
    EACH_MODE(mode)
    {
        float one[3] = {1, 1, 1}, x[3], y[3], fib[2] = {0, 1};
        mica_executable *run = compile(g, cpus, 2, mode, 0, 4);
        must(mica_executable_link(run, "to_a", "a"));
        must(mica_executable_link(run, "to_b", "b"));
        must(rig_set(run, F32_ARRAY("b", one, 3)));
        for (int i = 0; i < 9; i++) {
            mica_array out[] = {OUT_ARRAY("to_a", x), OUT_ARRAY("to_b", y)};
            must(mica_executable_run(run, NULL, 0, out, 2));
            const float sum = fib[0] + fib[1];
            fib[0] = fib[1];
            fib[1] = sum;
            assert_true(x[1] == fib[0] && y[2] == fib[1]);
        }
        mica_buffer *held = NULL;
        must(mica_executable_get(run, "b", &held));
        assert_ptr_equal(mica_buffer_device(held), cpus[1]);
        mica_buffer_release(held);
        mica_executable_release(run);
    }
    mica_graph_release(g);
}

/* ---- several at once ---- */

static void test_in_flight(void **state)
{
    (void)state;
    enum { RUNS = 9 };
    static values x[RUNS], y[RUNS];
    mica_graph *g = NULL;
    must(mica_graph_create(&g));
    const mica_tensor in = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, SHAPE(ELEMENTS));
    const mica_tensor twice = mica_graph_add(g, in, in);
    must(mica_graph_place(g, 1));
    mica_graph_output(g, "y", mica_graph_square(g, twice));
    EACH_MODE(mode)
    {
        mica_executable *run = compile(g, cpus, 2, mode, 0, 3);
        mica_run *runs[RUNS];
        mica_array got[RUNS];
        for (int r = 0; r < RUNS; r++) {
            for (int i = 0; i < ELEMENTS; i++)
                x[r][i] = (float)(r + i);
            mica_array fed = F32_ARRAY("x", x[r], ELEMENTS);
            got[r] = OUT_ARRAY("y", y[r]);
            must(mica_executable_commit(run, &fed, 1, &got[r], 1, &runs[r]));
        }
        for (int r = RUNS; r-- > 0;)
            must(mica_run_wait(runs[r]));
        for (int r = 0; r < RUNS; r++)
            for (int i = 0; i < ELEMENTS; i++)
                assert_true(y[r][i] == 4.0f * (float)(r + i) * (float)(r + i));
        mica_executable_release(run);
    }
    mica_graph_release(g);
}

static uint64_t syncs_of(mica_device *device)
{
    mica_counters counters;
    must(mica_counters_get(device, &counters));
    return counters.syncs;
}

static uint64_t submissions_of(mica_device *device)
{
    mica_counters counters;
    must(mica_counters_get(device, &counters));
    return counters.submissions;
}

/* Parts that do not need each other are on their way together: nobody waits for one before the other is submitted. */
static void test_together(void **state)
{
    (void)state;
    mica_device *null[2] = {NULL, NULL};
    mica_graph *g = NULL;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, SHAPE(ELEMENTS));
    const mica_tensor stem = mica_graph_tanh(g, x), left = mica_graph_cumsum(g, stem, 0);
    must(mica_graph_place(g, 1));
    const mica_tensor right = mica_graph_exp(g, stem);
    mica_graph_output(g, "left", left);
    mica_graph_output(g, "right", right);
    must(mica_graph_status(g));
    for (int i = 0; i < 2; i++)
        must(mica_device_open("null", NULL, &null[i]));
    static float data[ELEMENTS];
    mica_array in = F32_ARRAY("x", data, ELEMENTS);
    mica_run *one = NULL;
    mica_executable *run = compile(g, null, 2, MICA_MODE_COMPILED, 0, 1);
    must(mica_executable_run(run, &in, 1, NULL, 0));
    must(mica_null_inject(null[0], &(mica_null_faults){.slow_ns = 20000000}));
    must(mica_null_inject(null[1], &(mica_null_faults){.slow_ns = 20000000}));
    const uint64_t waits[] = {syncs_of(null[0]), syncs_of(null[1])};
    const uint64_t before[] = {submissions_of(null[0]), submissions_of(null[1])};
    must(mica_executable_commit(run, &in, 1, NULL, 0, &one));
    assert_int_equal(submissions_of(null[0]) - before[0], 2); /* the stem, then what only this place needs */
    assert_int_equal(submissions_of(null[1]) - before[1], 1);
    assert_int_equal(syncs_of(null[0]) - waits[0], 1); /* for the stem, not for what is behind it */
    assert_int_equal(syncs_of(null[1]) - waits[1], 0);
    must(mica_run_wait(one));
    mica_executable_release(run);
    mica_graph_release(g);
    mica_device_release(null[0]);
    mica_device_release(null[1]);
}

/* ---- what goes wrong ---- */

static mica_graph *two_layers(void)
{
    mica_graph *g = NULL;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(ROWS, COLUMNS));
    const mica_tensor w = mica_graph_parameter(g, "w", MICA_DTYPE_F32, 2, SHAPE(COLUMNS, COLUMNS));
    const mica_tensor y = mica_graph_tanh(g, mica_graph_matmul(g, x, w));
    must(mica_graph_place(g, 1));
    must(mica_graph_label(g, "layer 2"));
    mica_graph_output(g, "y", mica_graph_softmax(g, mica_graph_matmul(g, y, w), 1, -1));
    must(mica_graph_status(g));
    return g;
}

/* `sentence`: what is told of a failure, before anything is given back. */
static mica_status run_layers(const mica_graph *g, mica_device *const *list, mica_graph_mode mode,
                              char sentence[512])
{
    static float x[ELEMENTS], w[COLUMNS * COLUMNS], y[ELEMENTS];
    const mica_compile_options options = {.mode = mode, .devices = list, .device_count = 2};
    mica_executable *run = NULL;
    mica_array in = F32_ARRAY("x", x, ROWS, COLUMNS), out = OUT_ARRAY("y", y);
    mica_status status = mica_graph_compile(g, NULL, &options, &run);
    if (status == MICA_OK)
        status = rig_set(run, F32_ARRAY("w", w, COLUMNS, COLUMNS));
    for (int i = 0; i < 2 && status == MICA_OK; i++)
        status = mica_executable_run(run, &in, 1, &out, 1);
    snprintf(sentence, 512, "%s", status == MICA_OK ? "" : mica_status_message());
    mica_executable_release(run);
    return status;
}

/* The second device is lost, or has no memory, at each call in turn: a status that names it, and nothing leaks. */
static void test_faults(void **state)
{
    (void)state;
    mica_graph *g = two_layers();
    for (int kind = 0; kind < 3; kind++)
        EACH_MODE(mode)
        {
            mica_status status = MICA_ERR_INTERNAL;
            uint32_t at = 0;
            for (; status != MICA_OK; at++) {
                char sentence[512];
                mica_device *list[2] = {NULL, NULL};
                assert_true(at < 200);
                must(mica_device_open("null", NULL, &list[0]));
                must(mica_device_open("null:1", NULL, &list[1]));
                const mica_null_faults faults = {.fail_alloc = kind == 0 ? at + 1 : 0,
                                                 .fail_submit = kind == 1 ? at + 1 : 0,
                                                 .fail_wait = kind == 2 ? at + 1 : 0};
                must(mica_null_inject(list[1], &faults));
                status = run_layers(g, list, mode, sentence);
                const bool named = status == MICA_OK || (strstr(sentence, "place 1 (null:1)") != NULL &&
                                                         strstr(sentence, "node") != NULL);
                if (!named)
                    print_error("fault %u of kind %d: %s\n", at, kind, sentence);
                assert_true(named);
                if (kind == 0)
                    assert_true(status == MICA_OK || status == MICA_ERR_OUT_OF_MEMORY);
                else
                    assert_true(status == MICA_OK || status == MICA_ERR_DEVICE_LOST ||
                                status == MICA_ERR_SUBMISSION);
                mica_device_release(list[0]);
                mica_device_release(list[1]);
            }
            assert_true(at > 2);
        }
    mica_graph_release(g);
}

static void test_refused(void **state)
{
    (void)state;
    mica_graph *g = two_layers(), *bad = NULL;
    mica_executable *run = NULL;
    mica_device *const twice[] = {cpus[0], cpus[0]}, *const hole[] = {cpus[0], NULL};
#define COMPILED(device, ...) mica_graph_compile(g, device, &(mica_compile_options){__VA_ARGS__}, &run)
    refused(mica_graph_compile(g, cpus[0], NULL, &run), MICA_ERR_INVALID_ARGUMENT,
            "in layer 2, belongs to place 1, but there is 1 device");
    refused(COMPILED(NULL, .devices = twice, .device_count = 2), MICA_ERR_INVALID_ARGUMENT,
            "devices[1] is there already");
    refused(COMPILED(NULL, .devices = hole, .device_count = 2), MICA_ERR_INVALID_ARGUMENT,
            "devices[1] is NULL");
    refused(COMPILED(cpus[1], .devices = cpus, .device_count = 2), MICA_ERR_INVALID_ARGUMENT,
            "neither NULL nor options.devices[0]");
    refused(COMPILED(NULL, .devices = cpus, .device_count = 0), MICA_ERR_INVALID_ARGUMENT, "device is NULL");
    refused(COMPILED(cpus[0], .devices = cpus, .device_count = 0), MICA_ERR_INVALID_ARGUMENT,
            "device_count 0");
    refused(COMPILED(cpus[0], .device_count = 2), MICA_ERR_INVALID_ARGUMENT, "options.devices is NULL");
    refused(COMPILED(cpus[0], .devices = cpus, .device_count = 65), MICA_ERR_INVALID_ARGUMENT, "at most 64");
    refused(mica_graph_place(NULL, 0), MICA_ERR_INVALID_ARGUMENT, "graph is NULL");
    must(mica_graph_create(&bad));
    refused(mica_graph_place(bad, MICA_GRAPH_PLACES), MICA_ERR_INVALID_ARGUMENT, "place is 64");
    mica_graph_release(bad);
    static const char line[] = "%1 = input(\"x\") place=64 : f32 [2]\noutput \"y\" = %1\n";
    refused(mica_graph_parse(line, sizeof line - 1, &bad), MICA_ERR_MALFORMED_FILE, "up to 63");
    mica_buffer *foreign = NULL;
    must(mica_buffer_alloc(cpus[2], MICA_DTYPE_F32, 2, SHAPE(COLUMNS, COLUMNS), &foreign));
    run = compile(g, cpus, 2, MICA_MODE_COMPILED, 0, 1);
    refused(mica_executable_set(run, &(mica_array){.name = "w", .buffer = foreign}),
            MICA_ERR_INVALID_ARGUMENT, "lies on another device");
    mica_buffer_release(foreign);
    mica_executable_release(run);
    mica_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),    cmocka_unit_test(test_kinds),     cmocka_unit_test(test_copies),
        cmocka_unit_test(test_buffers), cmocka_unit_test(test_control),   cmocka_unit_test(test_training),
        cmocka_unit_test(test_states),  cmocka_unit_test(test_in_flight), cmocka_unit_test(test_together),
        cmocka_unit_test(test_faults),  cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
