/* bench_quantize.c - rewriting a model file from f16 to fewer bits: read, decode, encode, write, with the file in memory. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/model_file.h"

#define COLUMNS 2048u

/* `count` matrices of 8 M values each, all alike: the encoders' speed does not depend on which values. */
static void make_model(const char *path, uint32_t count)
{
    const uint64_t shape[] = {4096, COLUMNS}, values = shape[0] * shape[1];
    test_random random = test_random_from(1);
    uint16_t *data = bench_alloc(values * sizeof *data);
    test_gguf gguf = {0};
    char name[64];

    for (uint64_t i = 0; i < values; i++) /* of either sign, between 2^-7 and 2^-3 */
        data[i] =
            (uint16_t)((test_random_next(&random) & 0x8fff) | (8u + test_random_below(&random, 4)) << 10);
    test_gguf_string(&gguf, "general.architecture", "llama");
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "blk.%u.ffn_up.weight", i);
        test_gguf_tensor(&gguf, name, MICA_DTYPE_F16, 2, shape);
    }
    test_gguf_write(&gguf, path);
    for (uint32_t i = 0; i < count; i++)
        test_gguf_put(&gguf, path, i, data, (size_t)values * sizeof *data);
    test_gguf_free(&gguf);
    free(data);
}

typedef struct rewriting {
    char in[64], out[64];
    mica_quantize_options options;
    mica_quantize_report report;
} rewriting;

static void rewrite(void *argument)
{
    rewriting *r = argument;

    bench_must(mica_quantize(r->in, r->out, &r->options, &r->report));
}

void bench_quantize(void)
{
    static const char *const types[] = {"q4_0", "q8_0", "q4_k", "q6_k", "iq4_xs", "bf16"};
    rewriting r = {.options = {.overwrite = 1, .pure = 1, .threads = 2}};

    snprintf(r.in, sizeof r.in, "%s/mica_bench_%ld_in.gguf", P_tmpdir, (long)getpid());
    snprintf(r.out, sizeof r.out, "%s/mica_bench_%ld_out.gguf", P_tmpdir, (long)getpid());
    bench_section("quantize");
    make_model(r.in, bench_settings.quick ? 2 : 8);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char name[32];

        r.options.type = types[i];
        double seconds = bench_time(rewrite, &r, 1.0);
        snprintf(name, sizeof name, "quantize f16 to %s", types[i]);
        bench_row(name, (double)r.report.bytes_in / seconds / 1e6, "MB/s",
                  "of f16, two threads, %.0f MB in %.2f s", (double)r.report.bytes_in / 1e6, seconds);
    }
    unlink(r.in);
    unlink(r.out);
}
