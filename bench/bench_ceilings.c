/*
 * bench_ceilings.c - the machine's own limits: fused multiply-adds a second and bytes read a second, by loops that do
 * nothing else, on one and on two threads.
 */
#include "bench.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define FMA_ROUNDS 1000000u /* of one turn for the ceiling, some milliseconds */
#define TURNS 8
#define CHAINS 12 /* enough to hide the latency of an fma on two ports */

bench_ceilings bench_machine;

typedef struct work {
    const uint64_t *memory; /* reading: this part */
    uint64_t words;
    uint32_t rounds; /* multiplying: this often through all chains */
    double flops;
    float sum; /* keeps the loops alive */
} work;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void fma_512(work *w)
{
    __m512 chain[CHAINS], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);

    for (int i = 0; i < CHAINS; i++)
        chain[i] = _mm512_set1_ps((float)i);
    for (uint32_t r = 0; r < w->rounds; r++) {
        for (int i = 0; i < CHAINS; i++)
            chain[i] = _mm512_fmadd_ps(chain[i], a, b);
    }
    for (int i = 1; i < CHAINS; i++)
        chain[0] = _mm512_add_ps(chain[0], chain[i]);
    w->sum = _mm512_reduce_add_ps(chain[0]);
    _mm256_zeroupper(); /* what follows must not pay for wide registers */
    w->flops = 2.0 * 16 * CHAINS * w->rounds;
}

__attribute__((target("avx2,fma"))) static void fma_256(work *w)
{
    __m256 chain[CHAINS], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);

    for (int i = 0; i < CHAINS; i++)
        chain[i] = _mm256_set1_ps((float)i);
    for (uint32_t r = 0; r < w->rounds; r++) {
        for (int i = 0; i < CHAINS; i++)
            chain[i] = _mm256_fmadd_ps(chain[i], a, b);
    }
    for (int i = 1; i < CHAINS; i++)
        chain[0] = _mm256_add_ps(chain[0], chain[i]);
    w->sum = _mm256_cvtss_f32(chain[0]);
    w->flops = 2.0 * 8 * CHAINS * w->rounds;
    _mm256_zeroupper();
}
#endif

static void fma_plain(work *w)
{
    float chain[CHAINS * 4];

    for (int i = 0; i < CHAINS * 4; i++)
        chain[i] = (float)i;
    for (uint32_t r = 0; r < w->rounds / 4; r++) {
        for (int i = 0; i < CHAINS * 4; i++)
            chain[i] = fmaf(chain[i], 0.999f, 0.001f);
    }
    for (int i = 0; i < CHAINS * 4; i++)
        w->sum += chain[i];
    w->flops = 2.0 * CHAINS * 4 * (w->rounds / 4);
}

static void *run_fma(void *argument)
{
    work *w = argument;

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        fma_512(w);
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        fma_256(w);
    else
        fma_plain(w);
#else
    fma_plain(w);
#endif
    return NULL;
}

/* `streams` places at once, eight words a step from each, so that the loop becomes wide loads. */
static void read_streams(work *w, uint64_t streams)
{
    uint64_t sum[8] = {0}, each = w->words / streams;

    for (uint64_t i = 0; i + 8 <= each; i += 8) {
        for (uint64_t s = 0; s < streams; s++) {
            for (uint64_t j = 0; j < 8; j++)
                sum[j] += w->memory[s * each + i + j];
        }
    }
    w->sum = (float)(sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7]);
}

static void *read_one(void *argument)
{
    read_streams(argument, 1);
    return NULL;
}

static void *read_four(void *argument)
{
    read_streams(argument, 4);
    return NULL;
}

/* Seconds that `threads` threads take together, the caller among them. */
static double together(void *(*run)(void *), work *works, uint32_t threads)
{
    pthread_t other;
    double start = bench_seconds();
    bool begun = threads > 1 && pthread_create(&other, NULL, run, &works[1]) == 0;

    run(&works[0]);
    if (begun)
        pthread_join(other, NULL);
    return bench_seconds() - start;
}

/* Best of many: a ceiling. */
static double best_together(void *(*run)(void *), work *works, uint32_t threads)
{
    double best = together(run, works, threads);

    for (int turn = 1; turn < TURNS; turn++)
        best = fmin(best, together(run, works, threads));
    return best;
}

double bench_fma_slice(uint32_t threads, double seconds)
{
    work works[2] = {{.rounds = 4 * FMA_ROUNDS}, {.rounds = 4 * FMA_ROUNDS}};
    double took = 0, flops = 0;

    while (took < seconds) {
        took += together(run_fma, works, threads);
        flops += works[0].flops * threads;
    }
    return flops / took;
}

void bench_measure_ceilings(void)
{
    uint64_t bytes = bench_settings.quick ? 256u << 20 : 1024u << 20;
    uint64_t *memory = bench_alloc(bytes);

    bench_section("ceilings of this machine");
    memset(memory, 1, bytes);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        work works[2];

        memset(works, 0, sizeof works);
        for (uint32_t t = 0; t < threads; t++) {
            works[t].rounds = FMA_ROUNDS;
            works[t].words = bytes / 8 / threads;
            works[t].memory = memory + t * works[t].words;
        }
        bench_machine.bytes[threads - 1] = (double)bytes / fmin(best_together(read_one, works, threads),
                                                                best_together(read_four, works, threads));
        bench_machine.flops[threads - 1] = 1 / best_together(run_fma, works, threads);
        bench_machine.flops[threads - 1] *= works[0].flops * threads;
        bench_row("f32 fused multiply-add", bench_machine.flops[threads - 1] * 1e-9, "GFLOP/s", "%u threads",
                  threads);
        bench_row("read", bench_machine.bytes[threads - 1] * 1e-9, "GB/s", "%u threads, %llu MB", threads,
                  (unsigned long long)(bytes >> 20));
    }
    free(memory);
}
