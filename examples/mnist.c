/* mnist.c - a small convolutional network, or one of two dense layers, trained on MNIST with graphs: mnist FOLDER conv|dense [DEVICE [EPOCHS]].
 * FOLDER holds the four idx files, unpacked. Prints the loss, the accuracy on the test images and the time of the steps after each epoch. With a safetensors
 * file in the place of conv: what that network, trained elsewhere, makes of the first 16 test images, and its accuracy. */
#include <mica/mica.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 100, SIDE = 28, PIXELS = SIDE * SIDE, DIGITS = 10, MOST = 8, SHOWN = 16 };

typedef struct images {
    float *pixels; /* [count, 784], 0 to 1 */
    int32_t *labels;
    uint32_t count;
} images;

static void check(mica_status status)
{
    if (status == MICA_OK)
        return;
    fprintf(stderr, "mnist: %s\n", mica_status_message());
    exit(1);
}

/* ---- files ---- */

static uint8_t *read_file(const char *folder, const char *name, uint32_t header, uint32_t *out_bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "mnist: %s cannot be opened\n", path);
        exit(1);
    }
    uint8_t *bytes = malloc(64u << 20);
    const size_t length = bytes == NULL ? 0 : fread(bytes, 1, 64u << 20, file);
    fclose(file);
    if (length < header) {
        fprintf(stderr, "mnist: %s has no header\n", path);
        exit(1);
    }
    *out_bytes = (uint32_t)length - header;
    return bytes;
}

static images read_images(const char *folder, const char *pictures, const char *labels)
{
    uint32_t bytes = 0, count = 0;
    uint8_t *picture = read_file(folder, pictures, 16, &bytes), *label = read_file(folder, labels, 8, &count);
    images all = {.count = bytes / PIXELS < count ? bytes / PIXELS : count};
    all.pixels = malloc((size_t)all.count * PIXELS * sizeof *all.pixels);
    all.labels = malloc(all.count * sizeof *all.labels);
    for (size_t i = 0; i < (size_t)all.count * PIXELS; i++)
        all.pixels[i] = (float)picture[16 + i] / 255.0f;
    for (uint32_t i = 0; i < all.count; i++)
        all.labels[i] = label[8 + i];
    free(picture);
    free(label);
    return all;
}

/* ---- the network ---- */

typedef struct network {
    mica_graph *graph;
    mica_tensor parameter[MOST];
    char name[MOST][16];
    uint32_t count;
} network;

static mica_tensor parameter(network *net, const char *layer, const char *part, uint32_t ndim,
                             const uint64_t *shape)
{
    char *name = net->name[net->count];
    snprintf(name, sizeof net->name[0], "%s.%s", layer, part);
    net->parameter[net->count] = mica_graph_parameter(net->graph, name, MICA_DTYPE_F32, ndim, shape);
    return net->parameter[net->count++];
}

static mica_tensor dense(network *net, const char *name, mica_tensor x, uint64_t in, uint64_t out)
{
    const mica_tensor weight = parameter(net, name, "weight", 2, (uint64_t[]){out, in});
    return mica_graph_linear(net->graph, x, weight, parameter(net, name, "bias", 1, &out));
}

/* 3x3, then relu, then the greatest of each 2x2. */
static mica_tensor convolution(network *net, const char *name, mica_tensor x, uint64_t in, uint64_t out)
{
    const mica_conv_params conv = {.low = {1, 1}, .high = {1, 1}};
    const mica_pool_windows_params pool = {.kind = MICA_POOL_MAX, .kernel = {2, 2}, .stride = {2, 2}};
    const mica_tensor weight = parameter(net, name, "weight", 4, (uint64_t[]){out, in, 3, 3}),
                      bias = parameter(net, name, "bias", 1, &out);
    const mica_tensor y = mica_graph_relu(net->graph, mica_graph_conv(net->graph, x, weight, bias, &conv));
    return mica_graph_pool(net->graph, y, &pool, NULL);
}

/* Inputs "x" and "label"; outputs "logits", "loss" and "right". */
static void build(network *net, int with_convolution)
{
    check(mica_graph_create(&net->graph));
    mica_graph *g = net->graph;
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, (uint64_t[]){BATCH, PIXELS});
    const mica_tensor label = mica_graph_input(g, "label", MICA_DTYPE_I32, 1, (uint64_t[]){BATCH});
    mica_tensor y = x;
    if (with_convolution) {
        y = mica_graph_reshape(g, y, 4, (uint64_t[]){BATCH, 1, SIDE, SIDE});
        y = convolution(net, "conv2", convolution(net, "conv1", y, 1, 8), 8, 16);
        y = dense(net, "fc1", mica_graph_reshape(g, y, 2, (uint64_t[]){BATCH, 16 * 49}), 16 * 49, DIGITS);
    } else {
        y = dense(net, "fc2", mica_graph_relu(g, dense(net, "fc1", y, PIXELS, 128)), 128, DIGITS);
    }
    mica_graph_output(g, "logits", y);
    const mica_tensor losses = mica_graph_cross_entropy(g, y, label, 0, 0, NULL, NULL);
    const mica_tensor loss = mica_graph_reduce(g, MICA_REDUCE_MEAN, losses, NULL, 0, 0);
    const mica_tensor found = mica_graph_argmax(g, y, -1, 0);
    const mica_tensor right = mica_graph_cast(g, mica_graph_equal(g, found, label), MICA_DTYPE_F32);
    mica_graph_output(g, "loss", loss);
    mica_graph_output(g, "right", mica_graph_reduce(g, MICA_REDUCE_SUM, right, NULL, 0, 0));
    check(mica_graph_status(g));
}

/* What a step of gradient descent with momentum makes of the parameters and their momenta: outputs "next fc1.weight", "next momentum 0" .. (train.h does
 * this and more; here it is written out) */
static void add_training(network *net)
{
    mica_graph *g = net->graph;
    mica_tensor gradient[MOST];
    const mica_tensor rate = mica_graph_input(g, "rate", MICA_DTYPE_F32, 0, NULL);
    check(mica_graph_gradient(g, mica_graph_find(g, "loss"), 0, net->parameter, net->count, gradient));
    for (uint32_t i = 0; i < net->count; i++) {
        char name[32];
        mica_graph_tensor_info info;
        check(mica_graph_get_tensor(g, net->parameter[i], &info));
        snprintf(name, sizeof name, "momentum %u", i);
        const mica_tensor old = mica_graph_input(g, name, MICA_DTYPE_F32, info.ndim, info.shape);
        const mica_tensor kept = mica_graph_mul(g, old, mica_graph_number(g, MICA_DTYPE_F32, 0.9));
        const mica_tensor momentum = mica_graph_add(g, kept, gradient[i]);
        snprintf(name, sizeof name, "next momentum %u", i);
        mica_graph_output(g, name, momentum);
        snprintf(name, sizeof name, "next %s", net->name[i]);
        mica_graph_output(g, name, mica_graph_sub(g, net->parameter[i], mica_graph_mul(g, momentum, rate)));
    }
    check(mica_graph_status(g));
}

/* ---- training ---- */

/* Small random weights, biases of 0. */
static void begin(mica_executable *run, const network *net)
{
    uint64_t state = 1;
    for (uint32_t p = 0; p < net->count; p++) {
        mica_graph_tensor_info info;
        check(mica_graph_get_tensor(net->graph, net->parameter[p], &info));
        mica_array array = {.name = net->name[p], .ndim = info.ndim};
        uint64_t count = 1, in = info.ndim == 4 ? info.shape[1] * 9 : info.shape[1];
        for (uint32_t d = 0; d < info.ndim; d++)
            count *= array.shape[d] = info.shape[d];
        float *values = malloc(count * sizeof *values);
        for (uint64_t i = 0; i < count; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            values[i] = info.ndim == 1 ? 0 : ((float)(state >> 40) * 0x1p-23f - 1) / (float)in * 8;
        }
        array.data = values;
        array.bytes = count * sizeof *values;
        check(mica_executable_set(run, &array));
        free(values);
    }
}

static float run_batch(mica_executable *run, const images *all, uint32_t at, float rate, float *out_right)
{
    float loss = 0;
    mica_array in[] = {
        {.name = "x",
         .ndim = 2,
         .shape = {BATCH, PIXELS},
         .data = all->pixels + (size_t)at * PIXELS,
         .bytes = BATCH * PIXELS * 4},
        {.name = "label", .ndim = 1, .shape = {BATCH}, .data = all->labels + at, .bytes = BATCH * 4},
        {.name = "rate", .data = &rate, .bytes = 4}};
    mica_array out[] = {{.name = "loss", .data = &loss, .bytes = 4},
                        {.name = "right", .data = out_right, .bytes = 4}};
    check(mica_executable_run(run, in, rate > 0 ? 3 : 2, out, 2));
    return loss;
}

/* The share of test images that are told right, with the parameters as they are now. */
static double test(mica_executable *trained, mica_executable *run, const network *net, const images *all)
{
    double right = 0;
    for (uint32_t p = 0; p < net->count; p++) {
        mica_array array = {.name = net->name[p]};
        check(mica_executable_get(trained, net->name[p], &array.buffer));
        check(mica_executable_set(run, &array));
        mica_buffer_release(array.buffer);
    }
    for (uint32_t at = 0; at + BATCH <= all->count; at += BATCH) {
        float found = 0;
        (void)run_batch(run, all, at, 0, &found);
        right += (double)found;
    }
    return right / (double)(all->count - all->count % BATCH);
}

static void link_states(mica_executable *run, const network *net)
{
    for (uint32_t p = 0; p < net->count; p++) {
        char from[32], to[32];
        snprintf(from, sizeof from, "next %s", net->name[p]);
        check(mica_executable_link(run, from, net->name[p]));
        snprintf(from, sizeof from, "next momentum %u", p);
        snprintf(to, sizeof to, "momentum %u", p);
        check(mica_executable_link(run, from, to));
    }
}

/* ---- a network that was trained elsewhere ---- */

static void show(mica_executable *run, const images *all)
{
    static float logits[BATCH * DIGITS];
    double right = 0;
    for (uint32_t at = 0; at + BATCH <= all->count; at += BATCH) {
        float found = 0;
        mica_array in[] = {{.name = "x", .ndim = 2, .shape = {BATCH, PIXELS}, .bytes = BATCH * PIXELS * 4},
                           {.name = "label", .ndim = 1, .shape = {BATCH}, .bytes = BATCH * 4}};
        mica_array out[] = {{.name = "right", .data = &found, .bytes = 4},
                            {.name = "logits", .data = logits, .bytes = sizeof logits}};
        in[0].data = all->pixels + (size_t)at * PIXELS;
        in[1].data = all->labels + at;
        check(mica_executable_run(run, in, 2, out, 2));
        right += (double)found;
        for (int i = 0; at == 0 && i < SHOWN * DIGITS; i++)
            printf("%.9g%c", (double)logits[i], i % DIGITS == DIGITS - 1 ? '\n' : ' ');
    }
    printf("%.2f %% of the test images right\n", 100 * right / (double)(all->count - all->count % BATCH));
}

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Epochs of training, and what each of them has reached. */
static void train_network(mica_device *device, network *net, mica_executable *tester, const images *tests,
                          const char *folder, int epochs)
{
    const images train = read_images(folder, "train-images-idx3-ubyte", "train-labels-idx1-ubyte");
    mica_executable *trainer = NULL;
    add_training(net);
    check(mica_graph_compile(net->graph, device, &(mica_compile_options){.flags = MICA_COMPILE_TRAINING},
                             &trainer));
    link_states(trainer, net);
    begin(trainer, net);
    for (int epoch = 1; epoch <= epochs; epoch++) {
        double loss = 0;
        const float rate = 0.05f / (float)epoch;
        const double start = now();
        for (uint32_t at = 0; at + BATCH <= train.count; at += BATCH) {
            float right = 0;
            loss += (double)run_batch(trainer, &train, at, rate, &right);
        }
        const uint32_t batches = train.count / BATCH;
        const double steps = batches, ms = (now() - start) * 1000 / steps;
        printf("epoch %d: loss %.4f, %.2f %% of the test images right, %.3f ms a step\n", epoch, loss / steps,
               100 * test(trainer, tester, net, tests), ms);
        fflush(stdout);
    }
    mica_executable_release(trainer);
    free(train.pixels);
    free(train.labels);
}

int main(int count, char **arguments)
{
    if (count < 3) {
        fprintf(stderr, "usage: mnist FOLDER conv|dense|FILE.safetensors [DEVICE [EPOCHS]]\n");
        return 2;
    }
    const char *folder = arguments[1], *kind = arguments[2];
    const images tests = read_images(folder, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte");
    mica_device *device = NULL;
    mica_executable *tester = NULL;
    network net = {.count = 0};
    check(mica_device_open(count > 3 ? arguments[3] : "auto", NULL, &device));
    build(&net, strcmp(kind, "dense") != 0);
    check(mica_graph_compile(net.graph, device, &(mica_compile_options){.flags = MICA_COMPILE_TRAINING},
                             &tester));
    if (strcmp(kind, "conv") == 0 || strcmp(kind, "dense") == 0) {
        train_network(device, &net, tester, &tests, folder, count > 4 ? atoi(arguments[4]) : 2);
    } else {
        uint32_t found = 0;
        check(mica_executable_set_from(tester, kind, &found));
        show(tester, &tests);
    }
    mica_executable_release(tester);
    mica_graph_release(net.graph);
    mica_device_release(device);
    free(tests.pixels);
    free(tests.labels);
    return 0;
}
