/*
 * test_custom.c - ops of the caller's: over the host's memory and encoded, in every mode on every device, between other nodes and inside loops; their gradients against
 * central differences of the formula; failures, and what texts and files have of them.
 */
#include <stdlib.h>
#include <unistd.h>

#include "graph_rig.h"
#include "support/folder.h"
#include "support/meter.h"

enum { ROWS = 4, COLUMNS = 7, COUNT = ROWS * COLUMNS };

static mica_status say(mica_custom_call *call, mica_status status, const char *text)
{
    snprintf(call->sentence, sizeof call->sentence, "%s", text);
    return status;
}

/* ---- bend(x, slope) = x^3 slope + factor, and the greatest of each row: a function of the host ---- */

typedef struct bending {
    float factor;
    uint32_t refuse; /* 1: as it runs */
} bending;

static uint64_t elements(const mica_operand_desc *desc)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < desc->ndim; d++)
        count *= desc->shape[d];
    return count;
}

static mica_status bend_infer(void *context, mica_custom_call *call)
{
    (void)context;
    if (call->input_count != 2 || call->output_count != 2 || call->input[0].dtype != MICA_DTYPE_F32 ||
        call->input[0].ndim != 2)
        return say(call, MICA_ERR_INVALID_ARGUMENT, "x must be a matrix of f32");
    call->output[0] = call->input[0];
    call->output[1].dtype = MICA_DTYPE_F32;
    call->output[1].ndim = 1;
    call->output[1].shape[0] = call->input[0].shape[0];
    return MICA_OK;
}

static mica_status bend_host(void *context, mica_custom_call *call)
{
    uint32_t *calls = context;
    const bending *p = call->params;
    const float *x = call->input_data[0], *slope = call->input_data[1];
    float *y = call->output_data[0], *most = call->output_data[1];
    const uint64_t rows = call->input[0].shape[0], columns = call->input[0].shape[1];
    assert_int_equal(call->params_bytes, sizeof *p);
    assert_int_equal(elements(&call->output[0]), rows * columns);
    ++*calls;
    if (p->refuse != 0)
        return say(call, MICA_ERR_CANCELLED, "the spring is broken");
    for (uint64_t r = 0; r < rows; r++) {
        most[r] = -INFINITY;
        for (uint64_t c = 0; c < columns; c++) {
            const float value = x[r * columns + c];
            y[r * columns + c] = value * value * value * *slope + p->factor;
            most[r] = value > most[r] ? value : most[r];
        }
    }
    return MICA_OK;
}

/* Of x, slope, y, most, and what reaches y and most: 3 x^2 slope dy, and sum x^3 dy. */
static mica_graph *bend_gradient(void)
{
    mica_graph *g;
    must(mica_graph_create(&g));
    const uint64_t rows = mica_graph_symbol(g, "rows");
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(rows, COLUMNS));
    const mica_tensor slope = mica_graph_input(g, "slope", MICA_DTYPE_F32, 0, NULL);
    mica_graph_input(g, "y", MICA_DTYPE_F32, 2, SHAPE(rows, COLUMNS));
    mica_graph_input(g, "most", MICA_DTYPE_F32, 1, SHAPE(rows));
    const mica_tensor dy = mica_graph_input(g, "dy", MICA_DTYPE_F32, 2, SHAPE(rows, COLUMNS));
    mica_graph_input(g, "dmost", MICA_DTYPE_F32, 1, SHAPE(rows));
    const mica_tensor square = mica_graph_mul(g, mica_graph_square(g, x), dy);
    const mica_tensor three = mica_graph_mul(g, slope, mica_graph_number(g, MICA_DTYPE_F32, 3));
    mica_graph_output(g, "to x", mica_graph_mul(g, square, three));
    mica_graph_output(g, "to slope",
                      mica_graph_reduce(g, MICA_REDUCE_SUM, mica_graph_mul(g, square, x), NULL, 0, 0));
    must(mica_graph_status(g));
    return g;
}

static mica_custom bend_op(const bending *params, uint32_t *calls)
{
    return (mica_custom){.name = "bend",
                         .context = calls,
                         .params = params,
                         .params_bytes = sizeof *params,
                         .infer = bend_infer,
                         .host = bend_host};
}

/* y = bend(x^T^T + 1, slope) 2; loss = sum of y^2; and its gradients where there is a gradient. */
static mica_graph *bend_graph(const mica_custom *op, const mica_graph *gradient)
{
    mica_graph *g;
    mica_tensor out[2], d[2];
    must(mica_graph_create(&g));
    const uint64_t rows = mica_graph_symbol(g, "n");
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(COLUMNS, rows));
    const mica_tensor slope = mica_graph_parameter(g, "slope", MICA_DTYPE_F32, 0, NULL);
    const mica_tensor turned = mica_graph_permute(g, x, (const uint32_t[]){1, 0}); /* a view goes in */
    mica_graph_custom(g, op, (mica_tensor[]){turned, slope}, 2, gradient, out, 2);
    const mica_tensor y = mica_graph_mul(g, out[0], mica_graph_number(g, MICA_DTYPE_F32, 2));
    mica_graph_output(g, "y", y);
    mica_graph_output(g, "most", out[1]);
    const mica_tensor loss = mica_graph_reduce(g, MICA_REDUCE_SUM_SQUARES, y, NULL, 0, 0);
    mica_graph_output(g, "loss", loss);
    must(mica_graph_status(g));
    if (gradient == NULL)
        return g;
    must(mica_graph_gradient(g, loss, 0, (mica_tensor[]){x, slope}, 2, d));
    mica_graph_output(g, "dx", d[0]);
    mica_graph_output(g, "dslope", d[1]);
    must(mica_graph_status(g));
    return g;
}

/* In double, of x [COLUMNS, ROWS]. */
static double bend_loss(const double *x, double slope, double factor)
{
    double loss = 0;
    for (int i = 0; i < COUNT; i++) {
        const double y = 2 * (x[i] * x[i] * x[i] * slope + factor);
        loss += y * y;
    }
    return loss;
}

typedef struct numbers {
    float x[COUNT], slope, y[COUNT], most[ROWS], loss, dx[COUNT], dslope;
} numbers;

static void draw(numbers *n)
{
    test_random random = test_random_from(11);
    rig_fill(&random, n->x, COUNT);
    n->slope = 0.75f;
}

static void run_bend(mica_executable *run, numbers *n, uint32_t outputs)
{
    mica_array in = F32_ARRAY("x", n->x, COLUMNS, ROWS);
    mica_array out[] = {OUT_ARRAY("y", n->y),
                        OUT_ARRAY("most", n->most),
                        {.name = "loss", .data = &n->loss, .bytes = 4},
                        OUT_ARRAY("dx", n->dx),
                        {.name = "dslope", .data = &n->dslope, .bytes = 4}};
    must(mica_executable_set(run, &(mica_array){.name = "slope", .data = &n->slope, .bytes = 4}));
    must(mica_executable_run(run, &in, 1, out, outputs));
}

static void check_bend(const numbers *n, double factor)
{
    const double h = 1e-5;
    double x[COUNT], y[COUNT], dx[COUNT], most[ROWS];
    for (int i = 0; i < COUNT; i++)
        x[i] = (double)n->x[i];
    for (int r = 0; r < ROWS; r++) {
        most[r] = (double)-INFINITY;
        for (int c = 0; c < COLUMNS; c++) {
            const double value = x[c * ROWS + r];
            y[r * COLUMNS + c] = 2 * (value * value * value * (double)n->slope + factor);
            most[r] = fmax(most[r], value);
        }
    }
    rig_near(n->y, y, COUNT, 1e-6);
    rig_near(n->most, most, ROWS, 0);
    for (int i = 0; i < COUNT; i++) {
        const double at = x[i];
        x[i] = at + h;
        const double above = bend_loss(x, (double)n->slope, factor);
        x[i] = at - h;
        dx[i] = (above - bend_loss(x, (double)n->slope, factor)) / (2 * h);
        x[i] = at;
    }
    rig_near(n->dx, dx, COUNT, 1e-5);
    const double dslope =
        (bend_loss(x, (double)n->slope + h, factor) - bend_loss(x, (double)n->slope - h, factor)) / (2 * h);
    rig_near(&n->dslope, &dslope, 1, 1e-5);
}

static void test_host(void **state)
{
    (void)state;
    const bending params = {.factor = 0.5f};
    uint32_t calls = 0;
    const mica_custom op = bend_op(&params, &calls);
    mica_graph *gradient = bend_gradient(), *graph = bend_graph(&op, gradient);
    mica_graph_release(gradient);
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = rig_compile(graph, device, mode);
        for (int again = 0; again < 2; again++) {
            numbers n;
            memset(&n, 0xff, sizeof n);
            draw(&n);
            calls = 0;
            run_bend(run, &n, 5);
            assert_int_equal(calls, 1);
            check_bend(&n, (double)params.factor);
        }
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

/* The caller's gradient is nodes: it is differentiated again, and forward mode goes through it. */
static void test_second(void **state)
{
    (void)state;
    const bending params = {.factor = 0.5f};
    uint32_t calls = 0;
    const mica_custom op = bend_op(&params, &calls);
    mica_graph *gradient = bend_gradient(), *g;
    mica_tensor out[2], first, second, forward;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(ROWS, COLUMNS)),
                      slope = mica_graph_input(g, "slope", MICA_DTYPE_F32, 0, NULL);
    mica_graph_custom(g, &op, (mica_tensor[]){x, slope}, 2, gradient, out, 2);
    mica_graph_release(gradient);
    must(mica_graph_gradient(g, out[0], 0, &x, 1, &first));
    must(mica_graph_gradient(g, first, 0, &x, 1, &second));
    const mica_tensor two = mica_graph_fill(g, MICA_DTYPE_F32, 2, SHAPE(ROWS, COLUMNS), 2);
    must(mica_graph_jvp(g, out, 1, &x, &two, 1, &forward));
    mica_graph_output(g, "second", second);
    mica_graph_output(g, "forward", forward);
    EACH_DEVICE(device)
    {
        numbers n;
        float bent[COUNT], along[COUNT];
        double right[COUNT], right_along[COUNT];
        draw(&n);
        for (int i = 0; i < COUNT; i++) { /* 6 x slope; 3 x^2 slope times 2 */
            right[i] = 6 * (double)n.x[i] * (double)n.slope;
            right_along[i] = 6 * (double)n.x[i] * (double)n.x[i] * (double)n.slope;
        }
        mica_executable *run = rig_compile(g, device, MICA_MODE_COMPILED);
        mica_array in[] = {F32_ARRAY("x", n.x, ROWS, COLUMNS),
                           {.name = "slope", .data = &n.slope, .bytes = 4}};
        mica_array outs[] = {OUT_ARRAY("second", bent), OUT_ARRAY("forward", along)};
        must(mica_executable_run(run, in, 2, outs, 2));
        rig_near(bent, right, COUNT, 1e-6);
        rig_near(along, right_along, COUNT, 1e-6);
        mica_executable_release(run);
    }
    mica_graph_release(g);
}

/* ---- y = a x + b with a kernel of the caller's and an op of mica's ---- */

enum { GROUP = 256 }; /* MK_WG */

typedef struct axpy_params {
    uint32_t count;
    float a;
} axpy_params;

static const char axpy_text[] = "typedef struct axpy_params { mk_u32 count; mk_f32 a; } axpy_params;\n"
                                "MK_KERNEL(test_axpy) MK_IN(x), MK_OUT(y), MK_PARAM(axpy_params, p) MK_END\n"
                                "{\n"
                                "    MK_BIND(x);\n"
                                "    MK_BIND(y);\n"
                                "    const mk_u32 i = MK_GROUP_X * MK_WG + MK_LID;\n"
                                "    if (i < p.count)\n"
                                "        mk_st_f32(y, i * 4u, mk_ld_f32(x, i * 4u) * p.a);\n"
                                "}\n";

static void axpy_kernel(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                        uint32_t last)
{
    const axpy_params *p = params;
    const float *x = bindings[0].data;
    float *y = bindings[1].data;
    assert_int_equal(count, 2);
    for (uint32_t i = first * GROUP; i < last * GROUP && i < p->count; i++)
        y[i] = x[i] * p->a;
}

static mica_status axpy_encode(void *context, mica_custom_call *call)
{
    (void)context;
    const mica_kernel_desc desc = {.name = "test_axpy", .host = axpy_kernel, .source = axpy_text};
    const axpy_params params = {(uint32_t)elements(&call->input[0]), *(const float *)call->params};
    mica_device *device = mica_encoder_device(call->encoder);
    mica_kernel *kernel = NULL;
    mica_status status = mica_kernel_register(device, &desc);
    if (status == MICA_OK)
        status = mica_kernel_get(device, "test_axpy", NULL, 0, &kernel);
    const mica_binding bindings[] = {{call->input_buffer[0], MICA_ACCESS_READ},
                                     {call->output_buffer[0], MICA_ACCESS_WRITE}};
    const mica_dispatch_desc dispatch = {.kernel = kernel,
                                         .groups = {(params.count + GROUP - 1) / GROUP, 1, 1},
                                         .local = {GROUP, 1, 1},
                                         .bindings = bindings,
                                         .binding_count = 2,
                                         .params = &params,
                                         .params_size = sizeof params};
    if (status == MICA_OK)
        status = mica_encoder_dispatch(call->encoder, &dispatch);
    if (status == MICA_OK)
        status =
            mica_add(call->encoder, call->output_buffer[0], call->input_buffer[1], call->output_buffer[0]);
    mica_kernel_release(kernel);
    return status == MICA_OK ? status : say(call, status, mica_status_message());
}

static const float axpy_factor = 3;
static const mica_custom axpy = {
    .name = "axpy", .params = &axpy_factor, .params_bytes = sizeof axpy_factor, .encode = axpy_encode};

static void test_encoded(void **state)
{
    (void)state;
    mica_graph *g;
    must(mica_graph_create(&g));
    const uint64_t n = mica_graph_symbol(g, "n");
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, SHAPE(n)),
                      b = mica_graph_input(g, "b", MICA_DTYPE_F32, 1, SHAPE(n));
    const mica_tensor before =
        mica_graph_mul(g, x, x); /* what comes before and behind it is in the same recording */
    const mica_tensor y = mica_graph_custom(g, &axpy, (mica_tensor[]){before, b}, 2, NULL, NULL, 1);
    mica_graph_output(g, "y", mica_graph_sub(g, y, x));
    must(mica_graph_status(g));
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = rig_compile(g, device, mode);
        for (uint64_t count = 1; count <= 1000; count += 333) {
            static float xs[1000], bs[1000], ys[1000];
            double right[1000];
            test_random random = test_random_from(count);
            rig_fill(&random, xs, count);
            rig_fill(&random, bs, count);
            memset(ys, 0xff, sizeof ys);
            for (uint64_t i = 0; i < count; i++)
                right[i] = 3 * (double)xs[i] * (double)xs[i] + (double)bs[i] - (double)xs[i];
            mica_array in[] = {rig_array("x", MICA_DTYPE_F32, xs, count * 4, 1, &count),
                               rig_array("b", MICA_DTYPE_F32, bs, count * 4, 1, &count)};
            mica_array out = OUT_ARRAY("y", ys);
            must(mica_executable_run(run, in, 2, &out, 1));
            rig_near(ys, right, count, 1e-6);
        }
        mica_executable_stats stats;
        must(mica_executable_get_stats(run, &stats));
        mica_executable_release(run);
    }
    mica_graph_release(g);
}

/* ---- inside loops, over slices, as the next value of a state ---- */

static mica_status halve(void *context, mica_custom_call *call)
{
    (void)context;
    for (uint64_t i = 0; i < elements(&call->input[0]); i++)
        ((float *)call->output_data[0])[i] = ((const float *)call->input_data[0])[i] / 2;
    return MICA_OK;
}

static const mica_custom half = {.name = "half", .host = halve};

static mica_graph *half_body(const uint64_t *shape, uint32_t ndim, int outputs)
{
    mica_graph *g;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, ndim, shape);
    const mica_tensor one = mica_graph_number(g, MICA_DTYPE_F32, 1);
    const mica_tensor y = mica_graph_add(g, mica_graph_custom(g, &half, &x, 1, NULL, NULL, 1), one);
    mica_graph_output(g, "y", y);
    if (outputs > 1)
        mica_graph_output(g, "again", y);
    must(mica_graph_status(g));
    return g;
}

static void test_inside(void **state)
{
    (void)state;
    mica_graph *g, *round = half_body(SHAPE(3), 1, 2), *slice = half_body(SHAPE(3), 1, 1);
    mica_tensor out[2], each;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, SHAPE(3)),
                      many = mica_graph_input(g, "many", MICA_DTYPE_F32, 2, SHAPE(5, 3)),
                      old = mica_graph_input(g, "old", MICA_DTYPE_F32, 1, SHAPE(3));
    mica_graph_scan(g, round, &(mica_scan_desc){.carried = 1, .length = 4}, &x, out, 2);
    mica_graph_vmap(g, slice, (const uint8_t[]){1}, &many, 1, &each, 1);
    mica_graph_output(g, "end", out[0]);
    mica_graph_output(g, "rounds", out[1]);
    mica_graph_output(g, "each", each);
    mica_graph_output(g, "new", mica_graph_custom(g, &half, &old, 1, NULL, NULL, 1));
    must(mica_graph_status(g));
    must(mica_graph_verify(g));
    mica_graph_release(round);
    mica_graph_release(slice);
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        float xs[3] = {8, -4, 1}, all[15], end[3], rounds[12], eaches[15];
        double right[15], values[3] = {8, -4, 1};
        mica_executable *run = rig_compile(g, device, mode);
        must(mica_executable_link(run, "new", "old"));
        must(rig_set(run, F32_ARRAY("old", xs, 3)));
        for (int i = 0; i < 15; i++)
            all[i] = (float)i;
        for (int again = 1; again <= 2; again++) {
            mica_array in[] = {F32_ARRAY("x", xs, 3), F32_ARRAY("many", all, 5, 3)};
            mica_array outs[] = {OUT_ARRAY("end", end), OUT_ARRAY("rounds", rounds),
                                 OUT_ARRAY("each", eaches)};
            must(mica_executable_run(run, in, 2, outs, 3));
        }
        for (int t = 0; t < 4; t++)
            for (int i = 0; i < 3; i++)
                right[t * 3 + i] = values[i] = values[i] / 2 + 1;
        rig_near(rounds, right, 12, 0);
        rig_near(end, right + 9, 3, 0);
        for (int i = 0; i < 15; i++)
            right[i] = i / 2.0 + 1;
        rig_near(eaches, right, 15, 0);
        mica_buffer *kept = NULL;
        must(mica_executable_get(run, "old", &kept));
        must(mica_buffer_read(kept, 0, end, sizeof end));
        rig_near(end, ((double[]){2, -1, 0.25}), 3, 0);
        mica_buffer_release(kept);
        mica_executable_release(run);
    }
    mica_graph_release(g);
}

/* ---- failures ---- */

static mica_status refuse(void *context, mica_custom_call *call)
{
    (void)context;
    return say(call, MICA_ERR_UNSUPPORTED, "not on a Monday");
}

/* Says nothing itself: the sentence is that of the op, if one failed. */
static mica_status refuse_by_op(void *context, mica_custom_call *call)
{
    return context != NULL ? MICA_ERR_IO
                           : mica_add(call->encoder, NULL, call->input_buffer[0], call->output_buffer[0]);
}

static void test_silent_failures(void **state)
{
    (void)state;
    static const char *const words[] = {"'silent': add", "'silent': its function failed"};
    float x[3] = {0}, y[3];
    for (int i = 0; i < 2; i++) {
        const mica_custom op = {.name = "silent", .context = i == 0 ? NULL : x, .encode = refuse_by_op};
        mica_graph *g;
        must(mica_graph_create(&g));
        const mica_tensor in = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, SHAPE(3));
        mica_graph_output(g, "y", mica_graph_custom(g, &op, &in, 1, NULL, NULL, 1));
        mica_executable *run = rig_compile(g, devices[0], MICA_MODE_COMPILED);
        mica_array array = F32_ARRAY("x", x, 3), out = OUT_ARRAY("y", y);
        refused(mica_executable_run(run, &array, 1, &out, 1),
                i == 0 ? MICA_ERR_INVALID_ARGUMENT : MICA_ERR_IO, words[i]);
        mica_executable_release(run);
        mica_graph_release(g);
    }
}

static void test_failures(void **state)
{
    (void)state;
    const bending broken = {.refuse = 1};
    uint32_t calls = 0;
    const mica_custom op = bend_op(&broken, &calls);
    mica_graph *graph = bend_graph(&op, NULL), *g;
    float y[COUNT], x[COUNT] = {0}, slope = 1;
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = rig_compile(graph, device, mode);
        mica_array in = F32_ARRAY("x", x, COLUMNS, ROWS), out = OUT_ARRAY("y", y);
        must(mica_executable_set(run, &(mica_array){.name = "slope", .data = &slope, .bytes = 4}));
        refused(mica_executable_run(run, &in, 1, &out, 1), MICA_ERR_CANCELLED, "the spring is broken");
        refused(mica_executable_run(run, &in, 1, &out, 1), MICA_ERR_CANCELLED, "'bend'");
        mica_executable_release(run);
    }
    mica_tensor d;
    const mica_tensor loss = mica_graph_find(graph, "loss"), of = mica_graph_find(graph, "x");
    refused(mica_graph_gradient(graph, loss, 0, &of, 1, &d), MICA_ERR_UNSUPPORTED, "custom");
    mica_graph_release(graph);

    must(mica_graph_create(&g));
    const mica_tensor flat = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, SHAPE(3));
    assert_int_equal(mica_graph_custom(g, &op, (mica_tensor[]){flat, flat}, 2, NULL, NULL, 2), 0);
    refused(mica_graph_status(g), MICA_ERR_INVALID_ARGUMENT, "'bend': x must be a matrix of f32");
    mica_graph_release(g);

    static const struct {
        mica_custom op;
        uint32_t inputs, outputs;
        const char *word;
    } bad[] = {{{.name = "two words", .host = halve}, 1, 1, "'two words'"},
               {{.name = NULL, .host = halve}, 1, 1, "op.name"},
               {{.name = "nothing"}, 1, 1, "neither encode nor host"},
               {{.name = "half", .host = halve, .params_bytes = 4}, 1, 1, "NULL"},
               {{.name = "half", .host = halve, .size = 3}, 1, 1, "size"},
               {{.name = "half", .host = halve}, 0, 1, "takes nothing"},
               {{.name = "half", .host = halve}, 1, 0, "gives 0"},
               {{.name = "half", .host = halve}, 25, 1, "takes 25"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        mica_tensor in[25];
        must(mica_graph_create(&g));
        const mica_tensor one = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, SHAPE(3));
        for (int k = 0; k < 25; k++)
            in[k] = one;
        assert_int_equal(mica_graph_custom(g, &bad[i].op, in, bad[i].inputs, NULL, NULL, bad[i].outputs), 0);
        refused(mica_graph_status(g), MICA_ERR_INVALID_ARGUMENT, bad[i].word);
        mica_graph_release(g);
    }

    const mica_custom monday = {.name = "monday", .encode = refuse};
    must(mica_graph_create(&g));
    const mica_tensor one = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, SHAPE(3));
    mica_graph_output(g, "y", mica_graph_custom(g, &monday, &one, 1, NULL, NULL, 1));
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = rig_compile(g, device, mode);
        mica_array in = rig_array("x", MICA_DTYPE_F32, x, 12, 1, SHAPE(3)), out = OUT_ARRAY("y", y);
        refused(mica_executable_run(run, &in, 1, &out, 1), MICA_ERR_UNSUPPORTED, "'monday': not on a Monday");
        mica_executable_release(run);
    }
    mica_graph_release(g);
}

/* Two nodes that say the same are two, since they may draw, count or read something; one that nobody needs does not run. */
static mica_status count_up(void *context, mica_custom_call *call)
{
    uint32_t *calls = context;
    *(float *)call->output_data[0] = (float)++*calls;
    return MICA_OK;
}

static void test_not_merged(void **state)
{
    (void)state;
    uint32_t calls = 0;
    const mica_custom op = {.name = "count", .context = &calls, .host = count_up};
    mica_graph *g;
    float sum = 0;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_number(g, MICA_DTYPE_F32, 5);
    mica_tensor y[3];
    for (int i = 0; i < 3; i++)
        y[i] = mica_graph_custom(g, &op, &x, 1, NULL, NULL, 1);
    mica_graph_output(g, "sum", mica_graph_add(g, y[0], y[2]));
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = rig_compile(g, device, mode);
        mica_array out = {.name = "sum", .data = &sum, .bytes = 4};
        calls = 0;
        must(mica_executable_run(run, NULL, 0, &out, 1));
        assert_int_equal(calls, 2);
        assert_true(sum == 3);
        mica_executable_release(run);
    }
    mica_graph_release(g);
}

/* ---- texts and files ---- */

static const char text[] =
    "symbols n\n"
    "%1 = input(\"x\") : f32 [7, n]\n"
    "%2 = parameter(\"slope\") : f32 []\n"
    "%3 = permute(%1) order=(1, 0) : f32 [n, 7]\n"
    "%4, %5 = custom(%3, %2) name=bend params=x0000003f00000000 : f32 [n, 7], f32 [n]\n"
    "%6 = constant(2) : f32 []\n"
    "%7 = mul(%4, %6) : f32 [n, 7]\n"
    "%8 = reduce(%7) kind=9 : f32 []\n"
    "output \"y\" = %7\n"
    "output \"most\" = %5\n"
    "output \"loss\" = %8\n";

/* A graph from outside: refused by name, bound, and run. */
static void check_outside(mica_graph *graph, const bending *params)
{
    mica_executable *run = NULL;
    numbers n;
    char out[2000];
    uint32_t calls = 0, bound = 7;
    must(mica_graph_verify(graph));
    refused(mica_graph_compile(graph, devices[0], NULL, &run), MICA_ERR_UNSUPPORTED, "'bend'");
    mica_custom op = bend_op(params, &calls);
    op.infer = NULL; /* as many dimensions as x, which is not what "most" has */
    refused(mica_graph_custom_bind(graph, &op, &bound), MICA_ERR_INVALID_ARGUMENT, "output 1");
    assert_int_equal(bound, 0);
    refused(mica_graph_compile(graph, devices[0], NULL, &run), MICA_ERR_UNSUPPORTED, "'bend'");
    must(mica_graph_custom_bind(graph, &half, &bound));
    assert_int_equal(bound, 0);
    op.infer = bend_infer;
    op.params = NULL; /* the node has its own */
    op.params_bytes = 0;
    must(mica_graph_custom_bind(graph, &op, &bound));
    assert_int_equal(bound, 1);
    must(mica_graph_print(graph, out, sizeof out, NULL));
    assert_string_equal(out, text);
    draw(&n);
    run = rig_compile(graph, devices[0], MICA_MODE_COMPILED);
    run_bend(run, &n, 3);
    assert_int_equal(calls, 1);
    for (int i = 0; i < COUNT; i++) {
        const float x = n.x[(i % COLUMNS) * ROWS + i / COLUMNS];
        assert_true(fabsf(n.y[i] - 2 * (x * x * x * n.slope + params->factor)) < 1e-4f);
    }
    mica_executable_release(run);
    mica_graph_release(graph);
}

static void test_texts(void **state)
{
    (void)state;
    const bending params = {.factor = 0.5f};
    uint32_t calls = 0;
    const mica_custom op = bend_op(&params, &calls);
    mica_graph *graph = bend_graph(&op, NULL), *again = NULL;
    char out[2000], folder[512], path[600];
    must(mica_graph_print(graph, out, sizeof out, NULL));
    assert_string_equal(out, text);
    must(mica_graph_parse(out, strlen(out), &again));
    check_outside(again, &params);
    assert_int_equal(test_folder_make(folder, sizeof folder, "custom"), 0);
    snprintf(path, sizeof path, "%s/graph.safetensors", folder);
    must(mica_graph_save(graph, path));
    must(mica_graph_load(path, &again));
    check_outside(again, &params);
    assert_int_equal(test_folder_remove(folder), 0);
    mica_graph_release(graph);
}

static void test_bad_texts(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "%2 = custom(%1) : f32 [3]",
        "%2 = custom(%1) name=a\"b : f32 [3]",
        "%2 = custom(%1) name=half",
        "%2, %3 = custom(%1) name=half : f32 [3]",
        "%2 = custom(%1) name=half params=x : f32 [3]",
        "%2 = custom(%1) name=half params=x012 : f32 [3]",
        "%2 = custom(%1) name=half params=0102 : f32 [3]",
        "%2 = custom(%1) name=half sound=loud : f32 [3]",
        "%2 = custom(%1) name=half : q4_0 [32]",
        "%2 = custom(%1, %9) name=half : f32 [3]",
        "%2 = custom(%1, -) name=half : f32 [3]",
        "_ = custom(%1) name=half : f32 [3]",
        "%2 = custom(%1) name=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa : f32 [3]"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char whole[300];
        mica_graph *graph = NULL;
        snprintf(whole, sizeof whole, "%%1 = input(\"x\") : f32 [3]\n%s\n", lines[i]);
        refused(mica_graph_parse(whole, strlen(whole), &graph), MICA_ERR_MALFORMED_FILE, "line 2");
        assert_null(graph);
    }
}

/* ---- each allocation fails in turn ---- */

static mica_status build_and_run(mica_device *device, const mica_custom *op, numbers *n)
{
    mica_graph *g = NULL, *gradient = NULL;
    mica_executable *run = NULL;
    mica_tensor out[2], d;
    mica_status status = mica_graph_create(&g);
    if (status == MICA_OK)
        status = mica_graph_create(&gradient);
    if (status == MICA_OK) {
        static const char *const names[] = {"x", "slope", "y", "most", "dy", "dmost"};
        for (int i = 0; i < 6; i++)
            mica_graph_input(gradient, names[i], MICA_DTYPE_F32,
                             i == 1       ? 0
                             : i % 2 == 0 ? 2
                                          : 1,
                             SHAPE(ROWS, COLUMNS));
        mica_graph_output(gradient, "to x", mica_graph_find(gradient, "dy"));
        mica_graph_output(gradient, "to slope", mica_graph_find(gradient, "slope"));
        const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, SHAPE(ROWS, COLUMNS)),
                          slope = mica_graph_input(g, "slope", MICA_DTYPE_F32, 0, NULL);
        mica_graph_custom(g, op, (mica_tensor[]){x, slope}, 2, gradient, out, 2);
        status = mica_graph_gradient(g, out[0], 0, &x, 1, &d);
        mica_graph_output(g, "y", out[0]);
        mica_graph_output(g, "dx", d);
    }
    if (status == MICA_OK)
        status = mica_graph_compile(g, device, NULL, &run);
    if (status == MICA_OK) {
        mica_array in[] = {F32_ARRAY("x", n->x, ROWS, COLUMNS),
                           {.name = "slope", .data = &n->slope, .bytes = 4}};
        mica_array outs[] = {OUT_ARRAY("y", n->y), OUT_ARRAY("dx", n->dx)};
        status = mica_executable_run(run, in, 2, outs, 2);
    }
    mica_executable_release(run);
    mica_graph_release(g);
    mica_graph_release(gradient);
    return status;
}

static void test_no_memory(void **state)
{
    (void)state;
    test_meter meter = {.calls = 0};
    const bending params = {.factor = 0.5f};
    uint32_t calls = 0, refusals = 0;
    const mica_custom op = bend_op(&params, &calls);
    mica_device *device = NULL;
    numbers n;
    draw(&n);
    must(test_meter_set(&meter));
    must(mica_device_open("cpu", &(mica_device_options){.threads = 1}, &device));
    must(build_and_run(device, &op, &n)); /* what the device keeps is there */
    const uint64_t live = atomic_load(&meter.live);
    for (uint64_t at = 1;; at++) {
        atomic_store(&meter.calls, 0);
        atomic_store(&meter.fail_at, at);
        const mica_status status = build_and_run(device, &op, &n);
        const bool met = atomic_load(&meter.calls) >= at;
        atomic_store(&meter.fail_at, 0);
        if (status != MICA_OK && status != MICA_ERR_OUT_OF_MEMORY)
            fail_msg("allocation %llu: %s", (unsigned long long)at, mica_status_message());
        assert_int_equal(atomic_load(&meter.live), live);
        refusals += status != MICA_OK;
        if (!met)
            break;
    }
    assert_in_range(refusals, 50, 100000);
    mica_device_release(device);
    assert_int_equal(atomic_load(&meter.live), 0);
    must(mica_set_allocator(NULL));
}

int main(void)
{
    const struct CMUnitTest alone[] = {cmocka_unit_test(test_no_memory)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host),       cmocka_unit_test(test_second),
        cmocka_unit_test(test_encoded),    cmocka_unit_test(test_inside),
        cmocka_unit_test(test_failures),   cmocka_unit_test(test_silent_failures),
        cmocka_unit_test(test_not_merged), cmocka_unit_test(test_texts),
        cmocka_unit_test(test_bad_texts)};
    return cmocka_run_group_tests(tests, open_devices, close_devices) +
           cmocka_run_group_tests(alone, NULL, NULL);
}
