/* tour.c - what graphs can do, a screen for each thing: tour [DEVICE [FILE.onnx [TO_SAVE]]]. The code of docs/graph.md; what it prints follows from arithmetic that can be
 * done by hand. */
#include <mica/mica.h>
#include <mica/train.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(mica_status status)
{
    if (status == MICA_OK)
        return;
    fprintf(stderr, "tour: %s\n", mica_status_message());
    exit(1);
}

/* ---- building ---- */

static mica_graph *build(void)
{
    mica_graph *graph;
    check(mica_graph_create(&graph));
    const uint64_t batch = mica_graph_symbol(graph, "batch");
    mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, (uint64_t[]){batch, 3});
    mica_tensor w = mica_graph_parameter(graph, "w", MICA_DTYPE_F32, 2, (uint64_t[]){3, 2});
    mica_tensor b = mica_graph_parameter(graph, "b", MICA_DTYPE_F32, 1, (uint64_t[]){2});
    mica_tensor y = mica_graph_relu(graph, mica_graph_add(graph, mica_graph_matmul(graph, x, w), b));
    mica_graph_output(graph, "y", y);
    check(mica_graph_status(graph)); /* the first thing that did not fit, if there was one */
    return graph;
}

static void print(const mica_graph *graph)
{
    char text[2000];
    check(mica_graph_print(graph, text, sizeof text, NULL));
    fputs(text, stdout);
}

/* ---- running ---- */

static mica_executable *make_ready(const mica_graph *graph, mica_device *device)
{
    float w[] = {1, 0, 0, 1, 2, 2}, b[] = {10, -10};
    mica_executable *run;
    check(mica_graph_compile(graph, device, NULL, &run));
    check(mica_executable_set(
        run, &(mica_array){.name = "w", .ndim = 2, .shape = {3, 2}, .data = w, .bytes = sizeof w}));
    check(mica_executable_set(
        run, &(mica_array){.name = "b", .ndim = 1, .shape = {2}, .data = b, .bytes = sizeof b}));
    return run;
}

static void run_once(mica_executable *run)
{
    float x[] = {1, 2, 3}, y[2];
    mica_array in = {.name = "x", .ndim = 2, .shape = {1, 3}, .data = x, .bytes = sizeof x};
    mica_array out = {.name = "y", .data = y, .bytes = sizeof y};
    check(mica_executable_run(run, &in, 1, &out, 1));
    printf("run: %g %g\n", y[0], y[1]);
}

/* ---- symbols ---- */

static void run_batches(mica_executable *run)
{
    float x[4 * 3] = {0}, y[4 * 2];
    for (uint64_t batch = 1; batch <= 4; batch++) {
        mica_array in = {.name = "x", .ndim = 2, .shape = {batch, 3}, .data = x, .bytes = batch * 12};
        mica_array out = {.name = "y", .data = y, .bytes = sizeof y}; /* its shape is filled in */
        check(mica_executable_run(run, &in, 1, &out, 1));
        printf("batch %g: %g x %g\n", (double)batch, (double)out.shape[0], (double)out.shape[1]);
    }
    mica_executable_stats stats;
    check(mica_executable_get_stats(run, &stats));
    printf("plans: %g\n", (double)stats.plans); /* one for each size */
}

/* ---- states ---- */

static void keep_a_sum(mica_device *device)
{
    mica_graph *graph;
    mica_executable *run;
    float total = 0;
    check(mica_graph_create(&graph));
    mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 0, NULL);
    mica_tensor sum = mica_graph_input(graph, "sum", MICA_DTYPE_F32, 0, NULL);
    mica_graph_output(graph, "next sum", mica_graph_add(graph, sum, x));
    check(mica_graph_compile(graph, device, NULL, &run));
    check(mica_executable_link(run, "next sum", "sum")); /* stays on the device, begins as 0 */
    for (float value = 1; value <= 4; value++) {
        mica_array in = {.name = "x", .data = &value, .bytes = sizeof value};
        mica_array out = {.name = "next sum", .data = &total, .bytes = sizeof total};
        check(mica_executable_run(run, &in, 1, &out, 1));
    }
    printf("state: %g\n", total);
    mica_executable_release(run);
    mica_graph_release(graph);
}

/* ---- loops ---- */

static mica_graph *square_root(void)
{
    mica_graph *graph, *goes_on, *round;
    mica_tensor root;
    check(mica_graph_create(&goes_on)); /* of the guess and of a: whether guess^2 - a > a 10^-6 */
    mica_tensor guess = mica_graph_input(goes_on, "guess", MICA_DTYPE_F32, 0, NULL);
    mica_tensor a = mica_graph_input(goes_on, "a", MICA_DTYPE_F32, 0, NULL);
    mica_tensor off = mica_graph_sub(goes_on, mica_graph_mul(goes_on, guess, guess), a);
    mica_tensor far = mica_graph_mul(goes_on, a, mica_graph_number(goes_on, MICA_DTYPE_F32, 1e-6));
    mica_graph_output(goes_on, "goes on", mica_graph_greater(goes_on, off, far));

    check(mica_graph_create(&round)); /* (guess + a / guess) / 2 */
    guess = mica_graph_input(round, "guess", MICA_DTYPE_F32, 0, NULL);
    a = mica_graph_input(round, "a", MICA_DTYPE_F32, 0, NULL);
    mica_tensor sum = mica_graph_add(round, guess, mica_graph_div(round, a, guess));
    mica_graph_output(round, "next",
                      mica_graph_mul(round, sum, mica_graph_number(round, MICA_DTYPE_F32, 0.5)));

    check(mica_graph_create(&graph));
    a = mica_graph_input(graph, "a", MICA_DTYPE_F32, 0, NULL);
    mica_graph_while(graph, goes_on, round, 0, (mica_tensor[]){a, a}, 2, 1,
                     &root); /* one of both is carried */
    mica_graph_output(graph, "root", root);
    mica_graph_release(goes_on); /* the node has copies */
    mica_graph_release(round);
    return graph;
}

static mica_graph *interest(void)
{
    mica_graph *graph, *year;
    mica_tensor out[2];
    check(mica_graph_create(&year)); /* what is carried comes first, then the slice of this round */
    mica_tensor money = mica_graph_input(year, "money", MICA_DTYPE_F32, 0, NULL);
    mica_tensor rate = mica_graph_input(year, "rate", MICA_DTYPE_F32, 0, NULL);
    money = mica_graph_add(year, money, mica_graph_mul(year, money, rate));
    mica_graph_output(year, "money", money);
    mica_graph_output(year, "seen", money); /* outputs behind what is carried are stacked */

    check(mica_graph_create(&graph));
    mica_tensor begin = mica_graph_input(graph, "begin", MICA_DTYPE_F32, 0, NULL);
    mica_tensor rates = mica_graph_input(graph, "rates", MICA_DTYPE_F32, 1, (uint64_t[]){3});
    mica_graph_scan(graph, year, &(mica_scan_desc){.carried = 1, .scanned = 1}, (mica_tensor[]){begin, rates},
                    out, 2);
    mica_graph_output(graph, "end", out[0]);
    mica_graph_output(graph, "years", out[1]);
    mica_graph_release(year);
    return graph;
}

static void run_loops(mica_device *device)
{
    mica_graph *graph = square_root();
    mica_executable *run;
    float a = 2, root, begin = 100, rates[] = {1, 0.5f, 0.1f}, years[3];
    mica_array in[] = {{.name = "a", .data = &a, .bytes = sizeof a}};
    mica_array out[] = {{.name = "root", .data = &root, .bytes = sizeof root}};
    check(mica_graph_compile(graph, device, NULL, &run));
    check(mica_executable_run(run, in, 1, out, 1));
    printf("while: %.4f\n", root);
    mica_executable_release(run);
    mica_graph_release(graph);

    graph = interest();
    check(mica_graph_compile(graph, device, NULL, &run));
    mica_array begins[] = {{.name = "begin", .data = &begin, .bytes = sizeof begin},
                           {.name = "rates", .ndim = 1, .shape = {3}, .data = rates, .bytes = sizeof rates}};
    mica_array ends[] = {{.name = "years", .data = years, .bytes = sizeof years}};
    check(mica_executable_run(run, begins, 2, ends, 1));
    printf("scan: %g %g %g\n", years[0], years[1], years[2]);
    mica_executable_release(run);
    mica_graph_release(graph);
}

/* ---- gradients ---- */

static void differentiate(mica_device *device)
{
    mica_graph *graph;
    mica_executable *run;
    mica_tensor slope, bend;
    float x = 3, d1, d2;
    check(mica_graph_create(&graph));
    mica_tensor in = mica_graph_input(graph, "x", MICA_DTYPE_F32, 0, NULL);
    mica_tensor cube = mica_graph_mul(graph, mica_graph_mul(graph, in, in), in);
    check(mica_graph_gradient(graph, cube, 0, &in, 1, &slope)); /* 3 x^2, as nodes of the same graph */
    check(mica_graph_gradient(graph, slope, 0, &in, 1, &bend)); /* 6 x: of these nodes in turn */
    mica_graph_output(graph, "slope", slope);
    mica_graph_output(graph, "bend", bend);
    check(mica_graph_compile(graph, device, NULL, &run));
    mica_array at = {.name = "x", .data = &x, .bytes = sizeof x};
    mica_array out[] = {{.name = "slope", .data = &d1, .bytes = sizeof d1},
                        {.name = "bend", .data = &d2, .bytes = sizeof d2}};
    check(mica_executable_run(run, &at, 1, out, 2));
    printf("gradients: %g %g\n", d1, d2);
    mica_executable_release(run);
    mica_graph_release(graph);
}

/* ---- training ---- */

/* Points of the line 2 x + 1. */
static mica_status next_batch(void *context, uint64_t step, mica_array *inputs, uint32_t count)
{
    float *x = context, *y = x + 8;
    for (int i = 0; i < 8; i++) {
        x[i] = (float)((step + (uint64_t)i) % 8) / 4 - 1;
        y[i] = 2 * x[i] + 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        inputs[i].data = strcmp(inputs[i].name, "x") == 0 ? x : y;
        inputs[i].bytes = 8 * sizeof *x;
        inputs[i].ndim = 1;
        inputs[i].shape[0] = 8;
    }
    return MICA_OK;
}

static void train(mica_device *device)
{
    mica_graph *graph;
    mica_trainer *trainer;
    float data[16], slope = 0, shift = 0;
    check(mica_graph_create(&graph));
    mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, (uint64_t[]){8});
    mica_tensor y = mica_graph_input(graph, "y", MICA_DTYPE_F32, 1, (uint64_t[]){8});
    mica_tensor p[] = {mica_graph_parameter(graph, "slope", MICA_DTYPE_F32, 0, NULL),
                       mica_graph_parameter(graph, "shift", MICA_DTYPE_F32, 0, NULL)};
    mica_tensor line = mica_graph_add(graph, mica_graph_mul(graph, x, p[0]), p[1]);
    mica_tensor loss = mica_graph_mean(graph, mica_graph_square(graph, mica_graph_sub(graph, line, y)), 0);
    mica_optimizer adam = mica_optimizer_of(MICA_OPTIMIZER_ADAM);
    adam.learning_rate = 0.05;
    check(mica_graph_optimize(graph, loss, p, NULL, 2, &adam)); /* gradients, moments, next values */
    check(mica_trainer_create(graph, device, &(mica_trainer_desc){.batch = next_batch, .context = data},
                              &trainer));
    mica_executable *run = mica_trainer_executable(trainer);
    check(mica_executable_set(run, &(mica_array){.name = "slope", .data = &slope, .bytes = sizeof slope}));
    check(mica_executable_set(run, &(mica_array){.name = "shift", .data = &shift, .bytes = sizeof shift}));
    check(mica_trainer_run(trainer, 500));
    mica_buffer *learned;
    check(mica_executable_get(run, "slope", &learned));
    check(mica_buffer_read(learned, 0, &slope, sizeof slope));
    printf("training: %.2f\n", slope);
    mica_buffer_release(learned);
    mica_trainer_release(trainer);
    mica_graph_release(graph);
}

/* ---- several devices ---- */

static void run_on_two(mica_device *device)
{
    mica_graph *graph;
    mica_executable *run;
    check(mica_graph_create(&graph));
    mica_device *both[] = {device, NULL};
    check(mica_device_open("cpu", NULL, &both[1]));
    mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, (uint64_t[]){3});
    mica_tensor y = mica_graph_square(graph, x); /* of place 0 */
    check(mica_graph_place(graph, 1));
    mica_graph_output(graph, "y", mica_graph_add(graph, y, y)); /* of place 1, which takes y of place 0 */
    check(mica_graph_compile(graph, NULL, &(mica_compile_options){.devices = both, .device_count = 2}, &run));
    float values[] = {1, 2, 3}, twice[3];
    mica_array in = {.name = "x", .ndim = 1, .shape = {3}, .data = values, .bytes = sizeof values};
    mica_array out = {.name = "y", .data = twice, .bytes = sizeof twice};
    check(mica_executable_run(run, &in, 1, &out, 1));
    printf("two devices: %g %g %g\n", twice[0], twice[1], twice[2]);
    mica_executable_release(run);
    mica_graph_release(graph);
    mica_device_release(both[1]);
}

/* ---- an op of one's own ---- */

static mica_status cube(void *context, mica_custom_call *call)
{
    const float *x = call->input_data[0];
    float *y = call->output_data[0];
    (void)context;
    if (call->input[0].ndim != 1 || call->input[0].dtype != MICA_DTYPE_F32) {
        snprintf(call->sentence, sizeof call->sentence, "x must be f32 with one dimension");
        return MICA_ERR_INVALID_ARGUMENT;
    }
    for (uint64_t i = 0; i < call->input[0].shape[0]; i++)
        y[i] = x[i] * x[i] * x[i];
    return MICA_OK;
}

static mica_status cube_encoded(void *context, mica_custom_call *call)
{
    mica_buffer *x = call->input_buffer[0], *y = call->output_buffer[0];
    (void)context;
    const mica_status status = mica_mul(call->encoder, x, x, y);
    return status == MICA_OK ? mica_mul(call->encoder, y, x, y) : status;
}

/* Of x, of y, and of what reaches y: what reaches x. */
static mica_graph *cube_gradient(void)
{
    mica_graph *graph;
    check(mica_graph_create(&graph));
    const uint64_t n = mica_graph_symbol(graph, "n");
    mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, &n);
    mica_graph_input(graph, "y", MICA_DTYPE_F32, 1, &n);
    mica_tensor dy = mica_graph_input(graph, "dy", MICA_DTYPE_F32, 1, &n);
    mica_tensor three = mica_graph_number(graph, MICA_DTYPE_F32, 3);
    mica_graph_output(graph, "dx",
                      mica_graph_mul(graph, dy, mica_graph_mul(graph, three, mica_graph_mul(graph, x, x))));
    return graph;
}

static void run_own_op(const mica_custom *op, mica_device *device)
{
    mica_graph *graph, *gradient = cube_gradient();
    mica_executable *run;
    mica_tensor dx;
    float values[] = {1, 2, 3}, y[3], slopes[3];
    check(mica_graph_create(&graph));
    mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, (uint64_t[]){3});
    mica_tensor out = mica_graph_custom(graph, op, &x, 1, gradient, NULL, 1);
    check(mica_graph_gradient(graph, out, 0, &x, 1, &dx));
    mica_graph_output(graph, "y", out);
    mica_graph_output(graph, "dx", dx);
    check(mica_graph_compile(graph, device, NULL, &run));
    mica_array in = {.name = "x", .ndim = 1, .shape = {3}, .data = values, .bytes = sizeof values};
    mica_array outs[] = {{.name = "y", .data = y, .bytes = sizeof y},
                         {.name = "dx", .data = slopes, .bytes = sizeof slopes}};
    check(mica_executable_run(run, &in, 1, outs, 2));
    printf("%s: %g %g %g, %g %g %g\n", op->name, y[0], y[1], y[2], slopes[0], slopes[1], slopes[2]);
    mica_executable_release(run);
    mica_graph_release(gradient);
    mica_graph_release(graph);
}

static void run_own_ops(mica_device *device)
{
    run_own_op(&(mica_custom){.name = "cube", .host = cube}, device);
    run_own_op(&(mica_custom){.name = "cube_encoded", .encode = cube_encoded}, device);
}

/* ---- ONNX ---- */

static void open_onnx(const char *path, mica_device *device)
{
    mica_onnx *model;
    mica_graph *graph;
    mica_executable *run;
    mica_onnx_info info;
    check(mica_onnx_open(path, &model));
    check(mica_onnx_get_input(model, 0, &info));
    mica_onnx_tensor shape = {.name = info.name, .ndim = 2, .shape = {4, info.shape[1]}};
    check(mica_onnx_graph(model, &shape, 1, &graph)); /* sizes that are not given stay symbols */
    check(mica_graph_compile(graph, device, NULL, &run));
    float *x = calloc(4 * info.shape[1], sizeof *x);
    mica_array in = {.name = info.name, .ndim = 2, .shape = {4, info.shape[1]}};
    in.data = x;
    in.bytes = 4 * info.shape[1] * sizeof *x;
    mica_array out = {0}; /* neither memory nor a buffer: it becomes one */
    mica_graph_get_output(graph, 0, &out.name);
    check(mica_executable_run(run, &in, 1, &out, 1));
    printf("onnx: %s has %u dimensions, the first %g\n", out.name, out.ndim, (double)out.shape[0]);
    mica_buffer_release(out.buffer);
    mica_executable_release(run);
    mica_graph_release(graph);
    mica_onnx_release(model);
    free(x);
}

/* ---- saving ---- */

static void save_and_load(const mica_graph *graph, const char *path)
{
    mica_graph *again;
    check(mica_graph_save(graph, path)); /* safetensors: structure in the metadata, constants as tensors */
    check(mica_graph_load(path, &again));
    printf("saved: %s nodes\n",
           mica_graph_node_count(again) == mica_graph_node_count(graph) ? "the same" : "OTHER");
    mica_graph_release(again);
}

int main(int count, char **arguments)
{
    mica_device *device;
    check(mica_device_open(count > 1 ? arguments[1] : "auto", NULL, &device));
    mica_graph *graph = build();
    mica_executable *run = make_ready(graph, device);
    print(graph);
    run_once(run);
    run_batches(run);
    keep_a_sum(device);
    run_loops(device);
    differentiate(device);
    train(device);
    run_on_two(device);
    run_own_ops(device);
    if (count > 2)
        open_onnx(arguments[2], device);
    if (count > 3)
        save_and_load(graph, arguments[3]);
    mica_executable_release(run);
    mica_graph_release(graph);
    mica_device_release(device);
    return 0;
}
