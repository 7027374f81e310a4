/* gpt.c - trains a GPT of any size from nothing and times its steps: gpt [--layers N] [--width N] [--heads N] [--vocabulary N] [--length N] [--batch N] [--steps N] [--every N]
 * [--precision f32|bf16|f16] [--device ID]. GPT-2's layers: learned positions, layer norms with bias, one product for q, k and v, gelu, the table of tokens also as head. Its
 * text is drawn: three tokens of four follow from the one before. `--layers 12 --width 768 --heads 12 --vocabulary 50257 --length 1024 --batch 8` is the one of 124M. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <mica/mica.h>
#include <mica/train.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 4 + 48 * 12, NAME = 32 };

static void check(mica_status status)
{
    if (status == MICA_OK)
        return;
    fprintf(stderr, "gpt: %s\n", mica_status_message());
    exit(1);
}

/* ---- the model ---- */

typedef struct gpt {
    long layers, width, heads, vocabulary, length, batch;
    mica_graph *graph;
    mica_tensor parameter[MOST];
    double deviation[MOST]; /* of what it begins with; below 0: all ones */
    char name[MOST][NAME];
    uint32_t count;
} gpt;

/* Parameter "layer.part", or "part" of no layer; [out, in], or [out] where `in` is 0. */
static mica_tensor parameter(gpt *m, long layer, const char *part, long out, long in, double deviation)
{
    const uint32_t at = m->count++;
    if (layer < 0)
        snprintf(m->name[at], NAME, "%s", part);
    else
        snprintf(m->name[at], NAME, "%ld.%s", layer, part);
    m->deviation[at] = deviation;
    m->parameter[at] = mica_graph_parameter(m->graph, m->name[at], MICA_DTYPE_F32, in == 0 ? 1 : 2,
                                            (uint64_t[]){(uint64_t)out, (uint64_t)in});
    return m->parameter[at];
}

static mica_tensor norm(gpt *m, long layer, const char *weight, const char *bias, mica_tensor x)
{
    const mica_tensor w = parameter(m, layer, weight, m->width, 0, -1);
    return mica_graph_layer_norm(m->graph, x, w, parameter(m, layer, bias, m->width, 0, 0), 1e-5f);
}

static mica_tensor linear(gpt *m, long layer, const char *weight, const char *bias, mica_tensor x, long out,
                          long in, double deviation)
{
    const mica_tensor w = parameter(m, layer, weight, out, in, deviation);
    return mica_graph_linear(m->graph, x, w, parameter(m, layer, bias, out, 0, 0));
}

/* x [batch, length, width] through one layer. */
static mica_tensor layer(gpt *m, long i, mica_tensor x)
{
    const uint64_t width = (uint64_t)m->width;
    const double last = 0.02 / sqrt(2.0 * (double)m->layers); /* of what is added to x */
    const mica_graph_attention_desc causal = {
        .layout = MICA_HEADS_TOGETHER, .heads = (uint32_t)m->heads, .causal = 1};
    mica_graph *g = m->graph;
    mica_tensor h = norm(m, i, "norm1.weight", "norm1.bias", x), part[3];
    h = linear(m, i, "qkv.weight", "qkv.bias", h, 3 * m->width, m->width, 0.02);
    for (uint32_t p = 0; p < 3; p++)
        part[p] = mica_graph_slice(g, h, 2, p * width, width, 1);
    h = mica_graph_attention(g, part[0], part[1], part[2], &causal, NULL);
    x = mica_graph_add(g, x, linear(m, i, "out.weight", "out.bias", h, m->width, m->width, last));
    h = norm(m, i, "norm2.weight", "norm2.bias", x);
    h = mica_graph_gelu(g, linear(m, i, "up.weight", "up.bias", h, 4 * m->width, m->width, 0.02));
    return mica_graph_add(g, x, linear(m, i, "down.weight", "down.bias", h, m->width, 4 * m->width, last));
}

/* The mean loss of "next" [batch length] behind "tokens" [batch, length]. */
static mica_tensor build(gpt *m)
{
    const uint64_t batch = (uint64_t)m->batch, length = (uint64_t)m->length;
    check(mica_graph_create(&m->graph));
    mica_graph *g = m->graph;
    const mica_tensor tokens = mica_graph_input(g, "tokens", MICA_DTYPE_I32, 2, (uint64_t[]){batch, length});
    const mica_tensor next = mica_graph_input(g, "next", MICA_DTYPE_I32, 1, (uint64_t[]){batch * length});
    const mica_tensor table = parameter(m, -1, "tokens.weight", m->vocabulary, m->width, 0.02);
    const mica_tensor places = parameter(m, -1, "places.weight", m->length, m->width, 0.01);
    mica_tensor x = mica_graph_add(g, mica_graph_embedding(g, table, tokens, MICA_DTYPE_NONE), places);
    for (long i = 0; i < m->layers; i++)
        x = layer(m, i, x);
    x = norm(m, -1, "norm.weight", "norm.bias", x);
    x = mica_graph_linear(g, mica_graph_reshape(g, x, 2, (uint64_t[]){batch * length, (uint64_t)m->width}),
                          table, 0);
    return mica_graph_mean(g, mica_graph_cross_entropy(g, x, next, 0, 0, NULL, NULL), 0);
}

/* Of one step: two for each weight of a product and token, twice that on the way back; scores and what they weigh, of the half that is seen. */
static double operations(const gpt *m)
{
    const double width = (double)m->width, tokens = (double)m->batch * (double)m->length;
    const double weights = (double)m->layers * 12 * width * width + (double)m->vocabulary * width;
    return 6 * tokens * (weights + (double)m->layers * width * (double)m->length);
}

/* ---- data ---- */

/* 31 bits. */
static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Uniform numbers of the deviation that is asked for, ones, or zeros. */
static void begin(mica_executable *run, const gpt *m)
{
    uint64_t state = 1;
    for (uint32_t p = 0; p < m->count; p++) {
        mica_graph_tensor_info info;
        check(mica_graph_get_tensor(m->graph, m->parameter[p], &info));
        const uint64_t in = info.ndim == 2 ? info.shape[1] : 1, count = info.shape[0] * in;
        float *values = malloc(count * sizeof *values);
        mica_array array = {.name = m->name[p],
                            .ndim = info.ndim,
                            .shape = {info.shape[0], in},
                            .data = values,
                            .bytes = count * sizeof *values};
        const double scale = m->deviation[p] * sqrt(3.0);
        for (uint64_t i = 0; values != NULL && i < count; i++)
            values[i] = m->deviation[p] < 0   ? 1
                        : m->deviation[p] > 0 ? (float)(((double)draw(&state) / 1073741824.0 - 1) * scale)
                                              : 0;
        check(mica_executable_set(run, &array));
        free(values);
    }
}

typedef struct work {
    const gpt *model;
    int32_t *tokens, *next;
    double *seconds; /* of each step */
    double began;
    long every;
} work;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sequences that follow from the step alone. */
static mica_status next_batch(void *context, uint64_t step, mica_array *inputs, uint32_t count)
{
    work *w = context;
    const gpt *m = w->model;
    const uint64_t batch = (uint64_t)m->batch, length = (uint64_t)m->length;
    const uint32_t vocabulary = (uint32_t)m->vocabulary;
    uint64_t state = step;
    for (uint64_t b = 0; b < batch; b++) {
        uint32_t token = draw(&state) % vocabulary;
        for (uint64_t i = 0; i < length; i++) {
            w->tokens[b * length + i] = (int32_t)token;
            token = draw(&state) % 4 != 0 ? (token * 31 + 7) % vocabulary : draw(&state) % vocabulary;
            w->next[b * length + i] = (int32_t)token;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        const int is_tokens = strcmp(inputs[i].name, "tokens") == 0;
        inputs[i].data = is_tokens ? w->tokens : w->next;
        inputs[i].bytes = batch * length * sizeof *w->tokens;
        inputs[i].ndim = is_tokens ? 2 : 1;
        inputs[i].shape[0] = is_tokens ? batch : batch * length;
        inputs[i].shape[1] = length;
    }
    w->began = now();
    return MICA_OK;
}

static int report(void *context, const mica_train_progress *progress)
{
    work *w = context;
    w->seconds[progress->step - 1] = now() - w->began;
    if (progress->step % (uint64_t)w->every == 0 || progress->step == progress->steps) {
        printf("step %llu: loss %.6f\n", (unsigned long long)progress->step, progress->loss);
        fflush(stdout);
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- the program ---- */

static void train(gpt *m, const char *device_id, mica_graph_precision precision, long steps, long every)
{
    const size_t tokens = (size_t)m->batch * (size_t)m->length * sizeof(int32_t);
    const mica_compile_options compile = {.precision = precision};
    mica_optimizer adam = mica_optimizer_of(MICA_OPTIMIZER_ADAMW);
    mica_device *device = NULL;
    mica_trainer *trainer = NULL;
    work w = {.model = m, .every = every, .tokens = malloc(tokens), .next = malloc(tokens)};
    w.seconds = malloc((size_t)steps * sizeof *w.seconds);
    if (w.tokens == NULL || w.next == NULL || w.seconds == NULL)
        exit(1);
    const mica_tensor loss = build(m);
    adam.learning_rate = 1e-3;
    adam.weight_decay = 0.1;
    adam.clip_norm = 1;
    adam.schedule = MICA_RATE_COSINE;
    adam.warmup = 20;
    adam.steps = 1000;
    check(mica_graph_optimize(m->graph, loss, m->parameter, NULL, m->count, &adam));
    check(mica_device_open(device_id, NULL, &device));
    const mica_trainer_desc desc = {
        .batch = next_batch, .report = report, .context = &w, .compile = &compile};
    check(mica_trainer_create(m->graph, device, &desc, &trainer));
    begin(mica_trainer_executable(trainer), m);
    check(mica_trainer_run(trainer, (uint64_t)steps));
    qsort(w.seconds, (size_t)steps, sizeof *w.seconds, by_value);
    const double median = w.seconds[steps / 2];
    printf("%.2f ms a step, %.1f GFLOP/s\n", 1e3 * median, 1e-9 * operations(m) / median);
    mica_trainer_release(trainer);
    mica_device_release(device);
    mica_graph_release(m->graph);
    free(w.tokens);
    free(w.next);
    free(w.seconds);
}

int main(int count, char **arguments)
{
    static gpt m = {
        .layers = 2, .width = 64, .heads = 4, .vocabulary = 256, .length = 64, .batch = 4, .count = 0};
    static const char *const precisions[] = {"f32", "f16", "bf16"}; /* in the order of mica_graph_precision */
    const char *device = "auto";
    long steps = 20, every = 1, precision = 0;
    const struct {
        const char *name;
        long *value, most;
    } numbers[] = {{"--layers", &m.layers, 48},      {"--width", &m.width, 16384},
                   {"--heads", &m.heads, 1024},      {"--vocabulary", &m.vocabulary, 1 << 20},
                   {"--length", &m.length, 1 << 16}, {"--batch", &m.batch, 1 << 12},
                   {"--steps", &steps, 1000},        {"--every", &every, 1000}};
    int fine = count % 2;
    for (int i = 1; i + 1 < count; i += 2) {
        const char *name = arguments[i], *value = arguments[i + 1];
        int known = 0;
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
            if (strcmp(name, numbers[n].name) == 0) {
                *numbers[n].value = atol(value);
                known = *numbers[n].value > 0 && *numbers[n].value <= numbers[n].most;
            }
        for (long p = 0; p < 3 && strcmp(name, "--precision") == 0; p++)
            if (strcmp(value, precisions[p]) == 0) {
                precision = p;
                known = 1;
            }
        if (strcmp(name, "--device") == 0) {
            device = value;
            known = 1;
        }
        fine = fine && known;
    }
    if (!fine || m.width % m.heads != 0) {
        fprintf(stderr,
                "usage: gpt [--layers N] [--width N] [--heads N] [--vocabulary N] [--length N] [--batch N] "
                "[--steps N] [--every N] [--precision f32|bf16|f16] [--device ID]\n"
                "N above 0; at most 48 layers and 1000 steps; heads divide the width\n");
        return 2;
    }
    train(&m, device, (mica_graph_precision)precision, steps, every);
    return 0;
}
