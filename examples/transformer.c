/* transformer.c - a layer of a transformer as a graph, in each of the three modes: transformer [DEVICE [TOKENS]]. RMS norms, grouped-query attention with rope, gated
 * feed-forward. Prints the time of a run in each mode and how far the results lie apart: lazy and compiled give the same bits. */
#include <math.h>
#include <mica/mica.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 256, HEADS = 8, KV_HEADS = 2, HEAD = WIDTH / HEADS, INNER = 688, WEIGHTS = 9, RUNS = 8 };

static void check(mica_status status)
{
    if (status == MICA_OK)
        return;
    fprintf(stderr, "transformer: %s\n", mica_status_message());
    exit(1);
}

static const struct {
    const char *name;
    uint64_t out, in; /* in 0: a vector */
} weights[WEIGHTS] = {{"norm1", WIDTH, 0},          {"q", WIDTH, WIDTH},   {"k", KV_HEADS *HEAD, WIDTH},
                      {"v", KV_HEADS *HEAD, WIDTH}, {"out", WIDTH, WIDTH}, {"norm2", WIDTH, 0},
                      {"gate", INNER, WIDTH},       {"up", INNER, WIDTH},  {"down", WIDTH, INNER}};

/* "y" of "x" [1, n, WIDTH], for any n. */
static mica_graph *build(void)
{
    const mica_rope_params rope = {.mode = MICA_ROPE_NEOX, .theta = 10000};
    const mica_graph_attention_desc causal = {.layout = MICA_HEADS_TOGETHER, .heads = HEADS, .causal = 1};
    mica_graph *g = NULL;
    mica_tensor w[WEIGHTS];
    check(mica_graph_create(&g));
    for (int i = 0; i < WEIGHTS; i++)
        w[i] = mica_graph_parameter(g, weights[i].name, MICA_DTYPE_F32, weights[i].in == 0 ? 1 : 2,
                                    (uint64_t[]){weights[i].out, weights[i].in});
    const uint64_t n = mica_graph_symbol(g, "n");
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 3, (uint64_t[]){1, n, WIDTH});
    mica_tensor h = mica_graph_rms_norm(g, x, w[0], 1e-5f);
    mica_tensor q = mica_graph_linear(g, h, w[1], 0), k = mica_graph_linear(g, h, w[2], 0);
    const mica_tensor v = mica_graph_linear(g, h, w[3], 0);
    q = mica_graph_rope_heads(g, q, MICA_HEADS_TOGETHER, HEADS, 0, 0, &rope);
    k = mica_graph_rope_heads(g, k, MICA_HEADS_TOGETHER, KV_HEADS, 0, 0, &rope);
    const mica_tensor seen = mica_graph_attention(g, q, k, v, &causal, NULL);
    const mica_tensor x1 = mica_graph_add(g, x, mica_graph_linear(g, seen, w[4], 0));
    h = mica_graph_rms_norm(g, x1, w[5], 1e-5f);
    const mica_tensor gate = mica_graph_linear(g, h, w[6], 0), up = mica_graph_linear(g, h, w[7], 0);
    h = mica_graph_linear(g, mica_graph_silu_mul(g, gate, up), w[8], 0);
    mica_graph_output(g, "y", mica_graph_add(g, x1, h));
    check(mica_graph_status(g));
    return g;
}

static float *random_values(uint64_t seed, uint64_t count, float scale)
{
    float *values = malloc(count * sizeof *values);
    for (uint64_t i = 0; values != NULL && i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        values[i] = ((float)(seed >> 40) * 0x1p-23f - 1) * scale;
    }
    return values;
}

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Runs the layer; ms of the quickest run behind the first, which makes the plan. */
static double run_mode(const mica_graph *graph, mica_device *device, mica_graph_mode mode, float *x, float *y,
                       uint64_t tokens)
{
    mica_executable *run = NULL;
    double least = (double)INFINITY;
    check(mica_graph_compile(graph, device, &(mica_compile_options){.mode = mode}, &run));
    for (uint64_t i = 0; i < WEIGHTS; i++) {
        const uint64_t in = weights[i].in == 0 ? 1 : weights[i].in, count = weights[i].out * in;
        float *values = random_values(i + 1, count, weights[i].in == 0 ? 1 : 1 / sqrtf((float)in));
        mica_array array = {.name = weights[i].name,
                            .ndim = weights[i].in == 0 ? 1 : 2,
                            .shape = {weights[i].out, in},
                            .data = values,
                            .bytes = count * sizeof *values};
        check(mica_executable_set(run, &array));
        free(values);
    }
    for (int i = 0; i <= RUNS; i++) {
        mica_array in = {
            .name = "x", .ndim = 3, .shape = {1, tokens, WIDTH}, .data = x, .bytes = tokens * WIDTH * 4};
        mica_array out = {.name = "y", .data = y, .bytes = tokens * WIDTH * 4};
        const double begin = now();
        check(mica_executable_run(run, &in, 1, &out, 1));
        if (i > 0 && now() - begin < least)
            least = now() - begin;
    }
    mica_executable_release(run);
    return least * 1000;
}

int main(int count, char **arguments)
{
    static const char *const names[] = {"eager", "lazy", "compiled"};
    const uint64_t tokens = count > 2 ? strtoull(arguments[2], NULL, 10) : 128, values = tokens * WIDTH;
    mica_device *device = NULL;
    float *y[3], *x = random_values(99, values, 1);
    double apart = 0;
    check(mica_device_open(count > 1 ? arguments[1] : "auto", NULL, &device));
    mica_graph *graph = build();
    for (int i = 0; i < 3; i++) {
        y[i] = malloc(values * sizeof *y[i]);
        const double ms = run_mode(graph, device, (mica_graph_mode)(MICA_MODE_EAGER + i), x, y[i], tokens);
        printf("%s: %.3f ms\n", names[i], ms);
    }
    for (uint64_t i = 0; i < values; i++)
        apart = fmax(apart, fabs((double)y[0][i] - (double)y[2][i]));
    printf("lazy and compiled: %s bits\n",
           memcmp(y[1], y[2], values * sizeof *x) == 0 ? "the same" : "OTHER");
    printf("eager and compiled: %.1e apart, of %.3f\n", apart, (double)y[2][values - 1]);
    for (int i = 0; i < 3; i++)
        free(y[i]);
    free(x);
    mica_graph_release(graph);
    mica_device_release(device);
    return 0;
}
