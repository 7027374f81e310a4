/* longfilter.c - a long filter over a signal, as a convolution and by spectra: longfilter [DEVICE [SAMPLES [TAPS]]]. Prints the time of a run of each, and how far
 * both lie from the sum in double. */
#include <math.h>
#include <mica/mica.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RUNS = 5 };

static void check(mica_status status)
{
    if (status == MICA_OK)
        return;
    fprintf(stderr, "longfilter: %s\n", mica_status_message());
    exit(1);
}

/* "y" [samples + taps - 1] of "signal" [samples] and "filter" [taps]. */
static mica_graph *build(uint64_t samples, uint64_t taps, int by_spectra)
{
    mica_graph *g = NULL;
    check(mica_graph_create(&g));
    const mica_tensor signal = mica_graph_input(g, "signal", MICA_DTYPE_F32, 1, &samples);
    const mica_tensor filter = mica_graph_input(g, "filter", MICA_DTYPE_F32, 1, &taps);
    mica_tensor y;
    if (by_spectra) {
        y = mica_graph_fft_convolve(g, signal, filter);
    } else { /* networks do not turn the kernel: turned here it is the convolution of signals */
        const mica_conv_params params = {.low = {(uint32_t)taps - 1}, .high = {(uint32_t)taps - 1}};
        const mica_tensor x = mica_graph_reshape(g, signal, 3, (uint64_t[]){1, 1, samples});
        const mica_tensor w =
            mica_graph_reshape(g, mica_graph_flip(g, filter, NULL, 0), 3, (uint64_t[]){1, 1, taps});
        y = mica_graph_reshape(g, mica_graph_conv(g, x, w, 0, &params), 1, (uint64_t[]){samples + taps - 1});
    }
    mica_graph_output(g, "y", y);
    check(mica_graph_status(g));
    return g;
}

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ms of the quickest run behind the first. */
static double filter_by(mica_device *device, int by_spectra, float *signal, uint64_t samples, float *filter,
                        uint64_t taps, float *y)
{
    mica_graph *graph = build(samples, taps, by_spectra);
    mica_executable *run = NULL;
    double least = (double)INFINITY;
    check(mica_graph_compile(graph, device, NULL, &run));
    for (int i = 0; i <= RUNS; i++) {
        mica_array in[] = {
            {.name = "signal",
             .ndim = 1,
             .shape = {samples},
             .data = signal,
             .bytes = samples * sizeof *signal},
            {.name = "filter", .ndim = 1, .shape = {taps}, .data = filter, .bytes = taps * sizeof *filter}};
        mica_array out = {.name = "y", .data = y, .bytes = (samples + taps - 1) * sizeof *y};
        const double begin = now();
        check(mica_executable_run(run, in, 2, &out, 1));
        if (i > 0 && now() - begin < least)
            least = now() - begin;
    }
    mica_executable_release(run);
    mica_graph_release(graph);
    return least * 1000;
}

/* The greatest distance from the sum itself, at some hundred places and both ends. */
static double distance(const float *signal, uint64_t samples, const float *filter, uint64_t taps,
                       const float *y)
{
    const uint64_t length = samples + taps - 1, stride = length / 101 + 1;
    double worst = 0;
    for (uint64_t i = 0; i < length + stride; i += stride) {
        const uint64_t at = i < length ? i : length - 1;
        double sum = 0;
        for (uint64_t k = 0; k < taps; k++)
            if (at >= k && at - k < samples)
                sum += (double)filter[k] * (double)signal[at - k];
        worst = fmax(worst, fabs((double)y[at] - sum));
    }
    return worst;
}

int main(int count, char **arguments)
{
    static const char *const names[] = {"convolution", "spectra"};
    const uint64_t samples = count > 2 ? strtoull(arguments[2], NULL, 10) : 100000;
    const uint64_t taps = count > 3 ? strtoull(arguments[3], NULL, 10) : 4001;
    if (samples < 1 || samples > 1u << 24 || taps < 1 || taps > 1u << 20) {
        fprintf(stderr, "usage: longfilter [DEVICE [SAMPLES [TAPS]]]\n");
        return 2;
    }
    float *values = malloc((2 * samples + 2 * taps) * sizeof *values);
    float *signal = values, *filter = signal + samples, *y = filter + taps;
    mica_device *device = NULL;
    uint64_t state = 1;
    for (uint64_t i = 0; values != NULL && i < samples + taps; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)(state >> 40) * 0x1p-23f - 1;
    }
    for (uint64_t k = 0; k < taps; k++) /* fades as an echo does */
        filter[k] *= expf(-4 * (float)k / (float)taps);
    check(mica_device_open(count > 1 ? arguments[1] : "auto", NULL, &device));
    for (int by_spectra = 0; by_spectra < 2; by_spectra++) {
        const double ms = filter_by(device, by_spectra, signal, samples, filter, taps, y);
        printf("%s: %.3f ms, %.1e from the sum in double\n", names[by_spectra], ms,
               distance(signal, samples, filter, taps, y));
    }
    mica_device_release(device);
    free(values);
    return 0;
}
