/* mamba.c - a Mamba block as a graph: mamba [DEVICE]. Projection, causal convolution, selective scan, gate, projection; beside it the same as loops
 * in double, token by token, which say what the nodes mean. Prints the greatest difference. */
#include <math.h>
#include <mica/mica.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 50, WIDTH = 16, INNER = 32, STATE = 8, RANK = 4, TAPS = 4, MIXED = RANK + 2 * STATE };

static void check(mica_status status)
{
    if (status == MICA_OK)
        return;
    fprintf(stderr, "mamba: %s\n", mica_status_message());
    exit(1);
}

/* The block's weights, and what goes in. */
static struct {
    float x[TOKENS * WIDTH], in[2 * INNER * WIDTH], conv[INNER * TAPS], conv_bias[INNER], mix[MIXED * INNER],
        to_dt[INNER * RANK], dt_bias[INNER], a_log[INNER * STATE], skip[INNER], out[WIDTH * INNER];
} w;

static const struct {
    const char *name;
    float *values;
    uint64_t out, in; /* in 0: a vector */
} weights[] = {
    {"in", w.in, 2 * INNER, WIDTH},   {"conv", w.conv, INNER, TAPS},   {"conv bias", w.conv_bias, INNER, 0},
    {"mix", w.mix, MIXED, INNER},     {"to dt", w.to_dt, INNER, RANK}, {"dt bias", w.dt_bias, INNER, 0},
    {"a log", w.a_log, INNER, STATE}, {"skip", w.skip, INNER, 0},      {"out", w.out, WIDTH, INNER}};
enum { WEIGHTS = sizeof weights / sizeof weights[0] };

static mica_graph *build(void)
{
    mica_graph *g = NULL;
    mica_tensor p[WEIGHTS], u, z, parts[3];
    check(mica_graph_create(&g));
    const uint64_t n = mica_graph_symbol(g, "n");
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, (uint64_t[]){n, WIDTH});
    for (int i = 0; i < WEIGHTS; i++)
        p[i] = mica_graph_parameter(g, weights[i].name, MICA_DTYPE_F32, weights[i].in == 0 ? 1 : 2,
                                    (uint64_t[]){weights[i].out, weights[i].in});
    mica_tensor halves[2];
    mica_graph_split(g, mica_graph_linear(g, x, p[0], 0), -1, NULL, 2, halves);
    z = halves[1];
    u = mica_graph_ssm_conv(g, halves[0], p[1], p[2], NULL,
                            &(mica_ssm_conv_params){.activation = MICA_SSM_SILU}, NULL);
    mica_graph_split(g, mica_graph_linear(g, u, p[3], 0), -1, (uint64_t[]){RANK, STATE, STATE}, 3, parts);
    const mica_graph_selective_operands operands = {
        .x = u,
        .dt = mica_graph_linear(g, parts[0], p[4], 0),
        .a = mica_graph_neg(g, mica_graph_exp(g, p[6])),
        .b = mica_graph_unsqueeze(g, parts[1], 1), /* one group for all channels */
        .c = mica_graph_unsqueeze(g, parts[2], 1),
        .skip = p[7],
        .dt_bias = p[5],
        .z = z};
    const mica_tensor y =
        mica_graph_selective_scan(g, &operands, NULL, &(mica_selective_params){.softplus = 1}, NULL);
    mica_graph_output(g, "y", mica_graph_linear(g, y, p[8], 0));
    check(mica_graph_status(g));
    return g;
}

/* ---- what it means ---- */

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* Row `row` of a weight [.., in] times a vector. */
static double dot(const float *weight, int row, const double *x, int in)
{
    double sum = 0;
    for (int i = 0; i < in; i++)
        sum += (double)weight[row * in + i] * x[i];
    return sum;
}

static void by_loops(double *y)
{
    static double before[TOKENS][INNER], state[INNER][STATE];
    for (int t = 0; t < TOKENS; t++) {
        double x[WIDTH], u[INNER], z[INNER], mixed[MIXED], gated[INNER];
        for (int i = 0; i < WIDTH; i++)
            x[i] = (double)w.x[t * WIDTH + i];
        for (int c = 0; c < INNER; c++) {
            before[t][c] = dot(w.in, c, x, WIDTH);
            z[c] = dot(w.in, INNER + c, x, WIDTH);
            double sum = (double)w.conv_bias[c];
            for (int k = 0; k < TAPS; k++) /* the last weight is that of the token itself */
                if (t - (TAPS - 1 - k) >= 0)
                    sum += (double)w.conv[c * TAPS + k] * before[t - (TAPS - 1 - k)][c];
            u[c] = silu(sum);
        }
        for (int i = 0; i < MIXED; i++)
            mixed[i] = dot(w.mix, i, u, INNER);
        for (int c = 0; c < INNER; c++) {
            const double step = log1p(exp(dot(w.to_dt, c, mixed, RANK) + (double)w.dt_bias[c]));
            double sum = (double)w.skip[c] * u[c];
            for (int s = 0; s < STATE;
                 s++) { /* how long it remembers, and what is added, follow from the token */
                state[c][s] = state[c][s] * exp(-step * exp((double)w.a_log[c * STATE + s])) +
                              step * mixed[RANK + s] * u[c];
                sum += mixed[RANK + STATE + s] * state[c][s];
            }
            gated[c] = sum * silu(z[c]);
        }
        for (int i = 0; i < WIDTH; i++)
            y[t * WIDTH + i] = dot(w.out, i, gated, INNER);
    }
}

int main(int count, char **arguments)
{
    static float y[TOKENS * WIDTH];
    static double wanted[TOKENS * WIDTH];
    mica_device *device = NULL;
    mica_executable *run = NULL;
    uint64_t state = 1;
    float *all = (float *)&w;
    double apart = 0, size = 0;
    for (size_t i = 0; i < sizeof w / sizeof *all; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        all[i] = ((float)(state >> 40) * 0x1p-23f - 1) * 0.5f;
    }
    check(mica_device_open(count > 1 ? arguments[1] : "auto", NULL, &device));
    mica_graph *graph = build();
    check(mica_graph_compile(graph, device, NULL, &run));
    for (int i = 0; i < WEIGHTS; i++) {
        const uint64_t in = weights[i].in == 0 ? 1 : weights[i].in;
        check(mica_executable_set(run, &(mica_array){.name = weights[i].name,
                                                     .ndim = weights[i].in == 0 ? 1 : 2,
                                                     .shape = {weights[i].out, in},
                                                     .data = weights[i].values,
                                                     .bytes = weights[i].out * in * sizeof(float)}));
    }
    mica_array in = {.name = "x", .ndim = 2, .shape = {TOKENS, WIDTH}, .data = w.x, .bytes = sizeof w.x};
    mica_array out = {.name = "y", .data = y, .bytes = sizeof y};
    check(mica_executable_run(run, &in, 1, &out, 1));
    by_loops(wanted);
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        apart = fmax(apart, fabs((double)y[i] - wanted[i]));
        size = fmax(size, fabs(wanted[i]));
    }
    printf("graph and loops: %.1e apart, of %.3f\n", apart, size);
    mica_executable_release(run);
    mica_graph_release(graph);
    mica_device_release(device);
    return 0;
}
