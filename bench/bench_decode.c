/*
 * bench_decode.c - a recorded decode pass against direct dispatch, in the same run and turn by turn, so that both see
 * the same machine.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/transformer.h"

#define MOST_ROUNDS 400u
#define MOST_BUCKETS 64

/* The ways a step is run. Way 0 encodes each step anew. */
static const struct {
    const char *name;
    uint32_t flags;
} ways[] = {
    {"direct", 0},
    {"replayed", 0},
    {"replayed, fused", MICA_FINISH_FUSE},
    {"replayed, reordered", MICA_FINISH_REORDER},
    {"replayed, fused and reordered", MICA_FINISH_FUSE | MICA_FINISH_REORDER},
};
#define WAYS (sizeof ways / sizeof *ways)

typedef struct runner {
    test_stream *stream[WAYS];
    test_pass *pass;
    mica_recording *recording[WAYS];
    double samples[WAYS][MOST_ROUNDS];
} runner;

static void step(runner *r, size_t way)
{
    if (way == 0)
        bench_must(test_decode_direct(r->stream[0], r->pass));
    else
        bench_must(mica_recording_replay_and_wait(r->recording[way]));
}

static void run_rounds(runner *r, uint32_t rounds)
{
    for (size_t way = 0; way < WAYS; way++)
        step(r, way);
    for (uint32_t round = 0; round < rounds; round++) {
        for (size_t way = 0; way < WAYS; way++) {
            double start = bench_seconds();

            step(r, way);
            r->samples[way][round] = bench_seconds() - start;
        }
    }
}

/* All five streams took the same tokens; did they come out the same? */
static const char *compare(runner *r, uint32_t vocab, size_t way)
{
    float *want = bench_alloc(vocab * sizeof *want), *got = bench_alloc(vocab * sizeof *got);
    bool same;

    bench_must(test_stream_read(r->stream[0], NULL, want));
    bench_must(test_stream_read(r->stream[way], NULL, got));
    same = memcmp(want, got, vocab * sizeof *want) == 0;
    free(want);
    free(got);
    return same ? "same bits" : "other bits";
}

/* Sums of one replay's dispatches, which run one at a time under the profile: mat-vecs apart from the rest. */
static void profile_once(mica_device *device, mica_recording *recording, double *matvec, double *rest)
{
    mica_profile_bucket buckets[MOST_BUCKETS];
    uint64_t count;

    *matvec = *rest = 0;
    bench_must(mica_profile_begin(device));
    bench_must(mica_recording_replay_and_wait(recording));
    bench_must(mica_profile_end(device));
    bench_must(mica_profile_buckets(device, buckets, MOST_BUCKETS, &count));
    for (uint64_t i = 0; i < count && i < MOST_BUCKETS; i++)
        *(buckets[i].op == MICA_OP_MATMUL ? matvec : rest) += (double)buckets[i].total_ns;
}

static void profile(mica_device *device, const char *shape, runner *r, size_t way, uint32_t rounds)
{
    double *matvec = bench_alloc(rounds * sizeof *matvec), *rest = bench_alloc(rounds * sizeof *rest);
    mica_session_stats stats;
    char name[80];

    for (uint32_t i = 0; i < rounds; i++)
        profile_once(device, r->recording[way], &matvec[i], &rest[i]);
    bench_must(mica_recording_get_stats(r->recording[way], &stats));
    snprintf(name, sizeof name, "%s, %s, outside mat-vecs", shape, ways[way].name);
    bench_row(name, bench_median(rest, rounds) * 1e-3, "us",
              "mat-vecs %.1f us; %llu dispatches, %llu barriers", bench_median(matvec, rounds) * 1e-3,
              (unsigned long long)stats.dispatches, (unsigned long long)stats.barriers);
    free(matvec);
    free(rest);
}

static void list_fusions(const char *shape, mica_recording *recording)
{
    const mica_fusion_info *table;
    uint32_t fusions = mica_fusion_list(&table);

    for (uint32_t f = 0; f < fusions; f++) {
        uint32_t uses = 0;
        char name[80];

        for (uint32_t i = 0; i < mica_recording_count(recording); i++) {
            mica_record_info info;

            bench_must(mica_recording_inspect(recording, i, &info));
            uses += strcmp(info.fused, table[f].name) == 0;
        }
        snprintf(name, sizeof name, "%s, records from %s", shape, table[f].name);
        if (uses > 0)
            bench_row(name, uses, "records", "%s", table[f].exact ? "exact" : "changes bits");
    }
}

static void report(mica_device *device, const char *name, const test_shape *shape, runner *r, uint32_t rounds,
                   uint64_t weight_bytes)
{
    double direct = bench_median(r->samples[0], rounds);

    for (size_t way = 0; way < WAYS; way++) {
        double seconds = bench_median(r->samples[way], rounds);
        char text[80];

        snprintf(text, sizeof text, "%s, %s", name, ways[way].name);
        bench_row(text, seconds * 1e6, "us/token", "%.1f tok/s, %.2fx direct, %.1f GB/s, %s", 1 / seconds,
                  direct / seconds, (double)weight_bytes / seconds * 1e-9, compare(r, shape->vocab, way));
    }
    profile(device, name, r, 1, rounds / 5);
    profile(device, name, r, WAYS - 1, rounds / 5);
    list_fusions(name, r->recording[WAYS - 1]);
}

static void time_shape(const char *name, mica_dtype weight, uint32_t rounds)
{
    mica_device *device = bench_device(2);
    runner *r = bench_alloc(sizeof *r);
    test_shape shape;
    test_model *model;
    char text[64];

    memset(r, 0, sizeof *r);
    test_shape_named(name, &shape);
    shape.weight = weight;
    shape.positions = 512;
    shape.packed = 1;
    bench_must(test_model_create(device, &shape, 1, &model));
    for (size_t way = 0; way < WAYS; way++) {
        bench_must(test_stream_create(model, &r->stream[way]));
        if (way == 0)
            bench_must(test_pass_create(r->stream[0], 1, NULL, &r->pass));
        else
            bench_must(test_decode_record(r->stream[way], ways[way].flags, NULL, &r->recording[way]));
    }
    run_rounds(r, rounds);
    snprintf(text, sizeof text, "%s %s", name, mica_dtype_name(weight));
    report(device, text, &shape, r, rounds, test_model_weight_bytes(model));
    for (size_t way = 0; way < WAYS; way++) {
        mica_recording_release(r->recording[way]);
        test_stream_release(r->stream[way]);
    }
    test_pass_release(r->pass);
    test_model_release(model);
    free(r);
    mica_device_release(device);
}

void bench_decode(void)
{
    bench_section("decode pass, one token, 2 threads (goal: tiny at 1.5x direct, 1B not slower)");
    time_shape("tiny", MICA_DTYPE_Q4_0, bench_settings.quick ? 100 : 400);
    time_shape("tiny", MICA_DTYPE_F32, bench_settings.quick ? 100 : 400);
    if (!bench_settings.quick)
        time_shape("llama-1b", MICA_DTYPE_Q4_0, 15);
}
