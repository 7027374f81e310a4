/* charlm.c - a language model of characters, trained from nothing on a text file: charlm FILE [--device ID] [--steps N] [--every N] [--keep FILE] [--write N].
 * A transformer of two layers: grouped-query attention with rope, gated feed-forward, RMS norms. Prints the loss every so many steps, then writes
 * N characters of its own. --keep: a safetensors file that a run which was ended goes on from. */
#include <math.h>
#include <mica/mica.h>
#include <mica/train.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256, WIDTH = 64, HEADS = 4, KV_HEADS = 2, HEAD = WIDTH / HEADS, INNER = 160, LAYERS = 2 };
enum { LENGTH = 64, BATCH = 8, MOST = 3 + LAYERS * 9 };

static void check(mica_status status)
{
    if (status == MICA_OK)
        return;
    fprintf(stderr, "charlm: %s\n", mica_status_message());
    exit(1);
}

/* ---- the model ---- */

typedef struct model {
    mica_graph *graph;
    mica_tensor parameter[MOST];
    char name[MOST][24];
    uint32_t count;
} model;

/* A weight [out, in], or a vector [out] where `in` is 0. */
static mica_tensor weight(model *m, int layer, const char *part, uint64_t out, uint64_t in)
{
    char *name = m->name[m->count];
    if (layer < 0)
        snprintf(name, sizeof m->name[0], "%s", part);
    else
        snprintf(name, sizeof m->name[0], "%d.%s", layer, part);
    m->parameter[m->count] =
        mica_graph_parameter(m->graph, name, MICA_DTYPE_F32, in == 0 ? 1 : 2, (uint64_t[]){out, in});
    return m->parameter[m->count++];
}

static mica_tensor norm(model *m, int layer, const char *part, mica_tensor x)
{
    return mica_graph_rms_norm(m->graph, x, weight(m, layer, part, WIDTH, 0), 1e-5f);
}

static mica_tensor linear(model *m, int layer, const char *part, mica_tensor x, uint64_t out, uint64_t in)
{
    return mica_graph_linear(m->graph, x, weight(m, layer, part, out, in), 0);
}

/* x [batch, LENGTH, WIDTH] through one layer. */
static mica_tensor layer(model *m, int i, mica_tensor x)
{
    const mica_rope_params rope = {.mode = MICA_ROPE_NEOX, .theta = 10000};
    const mica_graph_attention_desc causal = {.layout = MICA_HEADS_TOGETHER, .heads = HEADS, .causal = 1};
    mica_graph *g = m->graph;
    mica_tensor h = norm(m, i, "norm1", x);
    mica_tensor q = linear(m, i, "q", h, WIDTH, WIDTH), k = linear(m, i, "k", h, KV_HEADS * HEAD, WIDTH);
    const mica_tensor v = linear(m, i, "v", h, KV_HEADS * HEAD, WIDTH);
    q = mica_graph_rope_heads(g, q, MICA_HEADS_TOGETHER, HEADS, 0, 0, &rope);
    k = mica_graph_rope_heads(g, k, MICA_HEADS_TOGETHER, KV_HEADS, 0, 0, &rope);
    const mica_tensor seen = mica_graph_attention(g, q, k, v, &causal, NULL);
    x = mica_graph_add(g, x, linear(m, i, "out", seen, WIDTH, WIDTH));
    h = norm(m, i, "norm2", x);
    const mica_tensor gate = linear(m, i, "gate", h, INNER, WIDTH);
    h = mica_graph_silu_mul(g, gate, linear(m, i, "up", h, INNER, WIDTH));
    return mica_graph_add(g, x, linear(m, i, "down", h, WIDTH, INNER));
}

/* Logits [batch LENGTH, BYTES] of the character behind each of "tokens" [batch, LENGTH]. */
static mica_tensor build(model *m, uint64_t batch)
{
    check(mica_graph_create(&m->graph));
    mica_graph *g = m->graph;
    const mica_tensor tokens = mica_graph_input(g, "tokens", MICA_DTYPE_I32, 2, (uint64_t[]){batch, LENGTH});
    mica_tensor x = mica_graph_embedding(g, weight(m, -1, "table", BYTES, WIDTH), tokens, MICA_DTYPE_NONE);
    for (int i = 0; i < LAYERS; i++)
        x = layer(m, i, x);
    x = linear(m, -1, "head", norm(m, -1, "norm", x), BYTES, WIDTH);
    return mica_graph_reshape(g, x, 2, (uint64_t[]){batch * LENGTH, BYTES});
}

/* ---- data ---- */

typedef struct text {
    uint8_t *bytes;
    uint64_t length, every;
    int32_t tokens[BATCH * LENGTH], next[BATCH * LENGTH];
} text;

static text read_text(const char *path)
{
    text t = {.bytes = malloc(64u << 20)};
    FILE *file = fopen(path, "rb");
    if (file == NULL || t.bytes == NULL || (t.length = fread(t.bytes, 1, 64u << 20, file)) <= LENGTH) {
        fprintf(stderr, "charlm: %s cannot be read, or has no more than %d bytes\n", path, LENGTH);
        exit(1);
    }
    fclose(file);
    return t;
}

/* Pieces of the text whose places follow from the step alone, so that a run which goes on sees what it would have seen. */
static mica_status next_batch(void *context, uint64_t step, mica_array *inputs, uint32_t count)
{
    text *t = context;
    for (uint64_t b = 0; b < BATCH; b++) {
        const uint64_t at = (step * BATCH + b) * 7919 % (t->length - LENGTH);
        for (uint64_t i = 0; i < LENGTH; i++) {
            t->tokens[b * LENGTH + i] = t->bytes[at + i];
            t->next[b * LENGTH + i] = t->bytes[at + i + 1];
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        const int tokens = strcmp(inputs[i].name, "tokens") == 0;
        inputs[i].data = tokens ? t->tokens : t->next;
        inputs[i].bytes = sizeof t->tokens;
        inputs[i].ndim = tokens ? 2 : 1;
        inputs[i].shape[0] = tokens ? BATCH : BATCH * LENGTH;
        inputs[i].shape[1] = LENGTH;
    }
    return MICA_OK;
}

static int report(void *context, const mica_train_progress *progress)
{
    const text *t = context;
    if (progress->step % t->every == 0 || progress->step == progress->steps) {
        printf("step %llu: loss %.7f\n", (unsigned long long)progress->step, progress->loss);
        fflush(stdout);
    }
    return 0;
}

/* ---- weights ---- */

static double draw(uint64_t *state) /* -1 to 1 */
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-52 - 1;
}

/* Norms of 1, weights whose products keep the size of what goes in. */
static void begin(mica_executable *run, const model *m)
{
    uint64_t state = 1;
    for (uint32_t p = 0; p < m->count; p++) {
        mica_graph_tensor_info info;
        check(mica_graph_get_tensor(m->graph, m->parameter[p], &info));
        const uint64_t in = info.ndim == 2 ? info.shape[1] : 1, count = info.shape[0] * in;
        mica_array array = {.name = m->name[p], .ndim = info.ndim, .shape = {info.shape[0], in}};
        float *values = malloc(count * sizeof *values);
        for (uint64_t i = 0; values != NULL && i < count; i++)
            values[i] = info.ndim == 1 ? 1 : (float)(draw(&state) / sqrt((double)in));
        array.data = values;
        array.bytes = count * sizeof *values;
        check(mica_executable_set(run, &array));
        free(values);
    }
}

/* ---- writing ---- */

/* One of the characters, by their probabilities made sharper. */
static int32_t choose(const float *logits, uint64_t *state)
{
    double most = (double)-INFINITY, sum = 0, weights[BYTES];
    for (int i = 0; i < BYTES; i++)
        most = fmax(most, (double)logits[i]);
    for (int i = 0; i < BYTES; i++)
        sum += weights[i] = exp(((double)logits[i] - most) / 0.7);
    double left = (draw(state) + 1) / 2 * sum;
    int32_t at = 0;
    while (at + 1 < BYTES && (left -= weights[at]) >= 0)
        at++;
    return at;
}

/* The last LENGTH characters go in again for each one that comes out: what stands behind the last one is not seen by it. */
static void write_text(mica_device *device, mica_executable *trained, const text *t, long count)
{
    static float logits[LENGTH * BYTES];
    int32_t seen[LENGTH] = {0};
    uint32_t length = 1;
    uint64_t state = 7;
    model m = {.count = 0};
    mica_executable *run = NULL;
    const mica_tensor y = build(&m, 1);
    mica_graph_output(m.graph, "logits", y);
    check(mica_graph_compile(m.graph, device, NULL, &run));
    for (uint32_t p = 0; p < m.count; p++) {
        mica_array array = {.name = m.name[p]};
        check(mica_executable_get(trained, m.name[p], &array.buffer));
        check(mica_executable_set(run, &array));
        mica_buffer_release(array.buffer);
    }
    for (seen[0] = t->bytes[0]; count-- > 0;) {
        mica_array in = {
            .name = "tokens", .ndim = 2, .shape = {1, LENGTH}, .data = seen, .bytes = sizeof seen};
        mica_array out = {.name = "logits", .data = logits, .bytes = sizeof logits};
        check(mica_executable_run(run, &in, 1, &out, 1));
        const int32_t next = choose(logits + (size_t)(length - 1) * BYTES, &state);
        putchar(next);
        if (length == LENGTH)
            memmove(seen, seen + 1, sizeof seen - sizeof seen[0]);
        else
            length++;
        seen[length - 1] = next;
    }
    putchar('\n');
    mica_executable_release(run);
    mica_graph_release(m.graph);
}

int main(int count, char **arguments)
{
    const char *device_id = "auto", *keep = NULL;
    long steps = 200, every = 20, characters = 0;
    for (int i = 2; i + 1 < count; i += 2) {
        const char *name = arguments[i], *value = arguments[i + 1];
        if (strcmp(name, "--device") == 0)
            device_id = value;
        else if (strcmp(name, "--keep") == 0)
            keep = value;
        else if (strcmp(name, "--steps") == 0)
            steps = atol(value);
        else if (strcmp(name, "--every") == 0)
            every = atol(value);
        else if (strcmp(name, "--write") == 0)
            characters = atol(value);
        else
            count = 0;
    }
    if (count < 2 || count % 2 != 0 || steps < 0 || every < 1) {
        fprintf(stderr,
                "usage: charlm FILE [--device ID] [--steps N] [--every N] [--keep FILE] [--write N]\n");
        return 2;
    }
    text t = read_text(arguments[1]);
    t.every = (uint64_t)every;
    model m = {.count = 0};
    mica_device *device = NULL;
    mica_trainer *trainer = NULL;
    uint64_t done = 0;
    check(mica_device_open(device_id, NULL, &device));
    const mica_tensor logits = build(&m, BATCH);
    const mica_tensor next =
        mica_graph_input(m.graph, "next", MICA_DTYPE_I32, 1, (uint64_t[]){BATCH * LENGTH});
    const mica_tensor losses = mica_graph_cross_entropy(m.graph, logits, next, 0, 0, NULL, NULL);
    mica_optimizer adam = mica_optimizer_of(MICA_OPTIMIZER_ADAMW);
    adam.learning_rate = 3e-3;
    check(
        mica_graph_optimize(m.graph, mica_graph_mean(m.graph, losses, 0), m.parameter, NULL, m.count, &adam));
    const mica_trainer_desc desc = {.batch = next_batch, .report = report, .context = &t, .checkpoint = keep};
    check(mica_trainer_create(m.graph, device, &desc, &trainer));
    begin(mica_trainer_executable(trainer), &m);
    if (keep != NULL)
        check(mica_trainer_resume(trainer, &done));
    check(mica_trainer_run(trainer, (uint64_t)steps));
    if (keep != NULL && steps == 0)
        check(mica_trainer_save(trainer));
    if (characters > 0)
        write_text(device, mica_trainer_executable(trainer), &t, characters);
    mica_trainer_release(trainer);
    mica_graph_release(m.graph);
    mica_device_release(device);
    free(t.bytes);
    return 0;
}
