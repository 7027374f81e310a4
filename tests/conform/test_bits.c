/*
 * test_bits.c - a whole transformer pass gives the same bits whatever the threads, the rows at a time, direct dispatch
 * or replay, fused or not, alone or beside another.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conform/conform_suite.h"
#include "support/sanitizer.h"
#include "support/transformer.h"
#include "support/status.h"

#define PROMPT 70u
#define STEPS (TEST_THREAD_SANITIZER ? 40u : 300u)
#define FUSED (MICA_FINISH_FUSE | MICA_FINISH_REORDER)

/* Odd sizes where the weight type allows them; every cache kind; every optional part. */
static const struct {
    const char *name;
    test_shape shape;
} variants[] = {
    {"f32, flat",
     {.dim = 60,
      .layers = 2,
      .ffn = 101,
      .heads = 6,
      .kv_heads = 3,
      .head_dim = 10,
      .vocab = 257,
      .positions = 310,
      .weight = MICA_DTYPE_F32}},
    {"f16, paged, window, head norm",
     {.dim = 66,
      .layers = 2,
      .ffn = 90,
      .heads = 4,
      .kv_heads = 2,
      .head_dim = 16,
      .vocab = 127,
      .positions = 310,
      .weight = MICA_DTYPE_F16,
      .page_slots = 16,
      .window = 40,
      .head_norm = 1,
      .packed = 1}},
    {"bf16, f16 between, bias, gelu, softcap",
     {.dim = 66,
      .layers = 2,
      .ffn = 90,
      .heads = 4,
      .kv_heads = 4,
      .head_dim = 18,
      .vocab = 127,
      .positions = 310,
      .weight = MICA_DTYPE_BF16,
      .activation = MICA_DTYPE_F16,
      .cache = MICA_DTYPE_BF16,
      .bias = 1,
      .gelu = 1,
      .softcap = 20}},
    {"q4_0, packed, paged",
     {.dim = 96,
      .layers = 2,
      .ffn = 160,
      .heads = 4,
      .kv_heads = 2,
      .head_dim = 24,
      .vocab = 257,
      .positions = 310,
      .weight = MICA_DTYPE_Q4_0,
      .page_slots = 8,
      .packed = 1}},
    {"q8_0, window, f32 cache",
     {.dim = 96,
      .layers = 2,
      .ffn = 160,
      .heads = 4,
      .kv_heads = 1,
      .head_dim = 24,
      .vocab = 257,
      .positions = 310,
      .weight = MICA_DTYPE_Q8_0,
      .window = 33,
      .cache = MICA_DTYPE_F32}},
    {"q4_k, packed, head norm",
     {.dim = 256,
      .layers = 1,
      .ffn = 256,
      .heads = 8,
      .kv_heads = 2,
      .head_dim = 32,
      .vocab = 131,
      .positions = 310,
      .weight = MICA_DTYPE_Q4_K,
      .head_norm = 1,
      .packed = 1}},
    {"f16, q8_0 cache, paged, window",
     {.dim = 66,
      .layers = 2,
      .ffn = 90,
      .heads = 6,
      .kv_heads = 2,
      .head_dim = 32,
      .vocab = 127,
      .positions = 310,
      .weight = MICA_DTYPE_F16,
      .cache = MICA_DTYPE_Q8_0,
      .page_slots = 8,
      .window = 100}},
    {"q6_k, ring",
     {.dim = 256,
      .layers = 1,
      .ffn = 256,
      .heads = 8,
      .kv_heads = 4,
      .head_dim = 32,
      .vocab = 131,
      .positions = 150,
      .weight = MICA_DTYPE_Q6_K,
      .ring = 1,
      .window = 70}},
    {"affine4, packed",
     {.dim = 96,
      .layers = 2,
      .ffn = 160,
      .heads = 4,
      .kv_heads = 2,
      .head_dim = 24,
      .vocab = 127,
      .positions = 310,
      .weight = MICA_DTYPE_AFFINE4,
      .packed = 1}},
    {"affine8, bias",
     {.dim = 96,
      .layers = 1,
      .ffn = 160,
      .heads = 4,
      .kv_heads = 2,
      .head_dim = 24,
      .vocab = 127,
      .positions = 310,
      .weight = MICA_DTYPE_AFFINE8,
      .bias = 1}},
};
#define VARIANTS (sizeof variants / sizeof *variants)

static conform_suite suite;

static int open_devices(void **state)
{
    (void)state;
    return conform_suite_open(&suite, "cpu") == MICA_OK ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    conform_suite_close(&suite);
    return mica_host_bytes() == 0 ? 0 : -1;
}

/* Sanitizers look at kernels in the conformance table, with every instruction set; here at what is around them, with one. */
static bool runs(uint32_t isa)
{
    return suite.device[isa][0] && (!TEST_ANY_SANITIZER || isa == conform_suite_widest(&suite));
}

/* Two threads of the widest instruction set: for what is above the kernels. */
static mica_device *pair(void)
{
    return suite.device[conform_suite_widest(&suite)][1];
}

static void run_prompt(mica_device *device, const test_shape *shape, uint32_t rows, float *logits)
{
    uint32_t tokens[PROMPT];
    test_model *model;
    test_stream *stream;

    for (uint32_t i = 0; i < PROMPT; i++)
        tokens[i] = (i * 37 + 5) % shape->vocab;
    must(test_model_create(device, shape, 11, &model));
    must(test_stream_create(model, &stream));
    must(test_prefill(stream, tokens, PROMPT, rows, logits));
    test_stream_release(stream);
    test_model_release(model);
}

/* 1, 2, 3 threads with all rows at once; 1, 7, 64 rows at a time on two threads; per instruction set. */
static void test_threads_and_rows(void **state)
{
    static const struct {
        uint32_t threads, rows;
    } ways[] = {{1, PROMPT}, {3, PROMPT}, {2, 7}, {2, PROMPT}, {2, 1}, {3, 64}};
    const test_shape *shape = &variants[(uintptr_t)*state].shape;
    size_t bytes = (size_t)PROMPT * shape->vocab * sizeof(float);
    float *first = test_alloc(bytes, 1), *other = test_alloc(bytes, 1);

    for (uint32_t isa = 0; isa < CONFORM_ISAS; isa++) {
        if (!runs(isa))
            continue;
        for (size_t way = 0; way < (TEST_THREAD_SANITIZER ? 3 : sizeof ways / sizeof *ways); way++) {
            run_prompt(suite.device[isa][ways[way].threads - 1], shape, ways[way].rows, way ? other : first);
            if (way && memcmp(first, other, bytes) != 0)
                fail_msg("%s: %u threads, %u rows at a time: other bits", conform_isa_names[isa],
                         ways[way].threads, ways[way].rows);
        }
        for (size_t i = 0; i < bytes / sizeof *first; i++)
            assert_true(first[i] == first[i] && first[i] < 1e6f && first[i] > -1e6f);
    }
    free(first);
    free(other);
}

/* Does any record come from a fusion that may change bits? */
static int is_exact(mica_recording *recording)
{
    const mica_fusion_info *table;
    uint32_t fusions = mica_fusion_list(&table);

    for (uint32_t i = 0; i < mica_recording_count(recording); i++) {
        mica_record_info info;

        must(mica_recording_inspect(recording, i, &info));
        for (uint32_t f = 0; f < fusions; f++) {
            if (strcmp(info.fused, table[f].name) == 0 && !table[f].exact)
                return 0;
        }
    }
    return 1;
}

static void compare_step(const test_shape *shape, test_stream *direct, test_stream *replayed,
                         uint32_t position, int exact)
{
    float *want = test_alloc(shape->vocab, sizeof *want), *got = test_alloc(shape->vocab, sizeof *got);
    uint32_t want_token, got_token;
    double distance = 0, size = 0;

    must(test_stream_read(direct, &want_token, want));
    must(test_stream_read(replayed, &got_token, got));
    for (uint32_t i = 0; i < shape->vocab; i++) {
        distance += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    if (exact && (memcmp(want, got, shape->vocab * sizeof *want) != 0 || want_token != got_token))
        fail_msg("position %u: replay differs from direct dispatch, normalised error %g", position,
                 distance / size);
    /* A fusion that says it changes bits may move a rounding in each op, not more. */
    if (!exact && distance > 1e-8 * size)
        fail_msg("position %u: replay is far from direct dispatch, normalised error %g", position,
                 distance / size);
    if (!exact)
        must(test_stream_set(replayed, want_token, position + 1));
    free(want);
    free(got);
}

static void follow(mica_device *device, const test_shape *shape, uint32_t flags)
{
    mica_session_stats stats;
    mica_recording *recording;
    test_model *model;
    test_stream *direct, *replayed;
    test_pass *pass;
    int exact;

    must(test_model_create(device, shape, 5, &model));
    must(test_stream_create(model, &direct));
    must(test_stream_create(model, &replayed));
    must(test_pass_create(direct, 1, NULL, &pass));
    must(test_decode_record(replayed, flags, &stats, &recording));
    if (flags & MICA_FINISH_FUSE)
        assert_true(stats.fusions > 0 && stats.records_out < stats.records_in);
    exact = is_exact(recording);
    for (uint32_t position = 0; position < STEPS; position++) {
        must(test_decode_direct(direct, pass));
        must(mica_recording_replay_and_wait(recording));
        compare_step(shape, direct, replayed, position, exact);
    }
    mica_recording_release(recording);
    test_pass_release(pass);
    test_stream_release(direct);
    test_stream_release(replayed);
    test_model_release(model);
}

/* One recording over 300 positions, across page, window and ring edges, equals direct dispatch at each. */
static void test_replay(void **state)
{
    follow(pair(), &variants[(uintptr_t)*state].shape, 0);
}

static void test_fused_replay(void **state)
{
    for (uint32_t isa = 0; isa < CONFORM_ISAS; isa++) {
        if (runs(isa))
            follow(suite.device[isa][1], &variants[(uintptr_t)*state].shape, FUSED);
    }
}

/* A thread that decodes on its own stream and keeps every token. */
typedef struct walker {
    mica_recording *recording; /* NULL: direct */
    test_stream *stream;
    test_pass *pass;
    uint32_t tokens[60];
    float *logits;
    mica_status status;
} walker;

static void *walk(void *argument)
{
    walker *w = argument;

    for (uint32_t i = 0; i < 60 && w->status == MICA_OK; i++) {
        w->status = w->recording ? mica_recording_replay_and_wait(w->recording)
                                 : test_decode_direct(w->stream, w->pass);
        if (w->status == MICA_OK)
            w->status = test_stream_read(w->stream, &w->tokens[i], w->logits);
    }
    return NULL;
}

static void walk_side_by_side(walker *walkers, uint32_t count)
{
    pthread_t thread[8];

    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(0, pthread_create(&thread[i], NULL, walk, &walkers[i]));
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(0, pthread_join(thread[i], NULL));
}

static void compare_walkers(const test_shape *shape, const walker *want, const walker *got)
{
    must(got->status);
    assert_memory_equal(want->tokens, got->tokens, sizeof want->tokens);
    assert_memory_equal(want->logits, got->logits, shape->vocab * sizeof(float));
}

/* Two clones of one recording, rebound to sequences of their own, run beside it. */
static void test_clones(void **state)
{
    const test_shape *shape = &variants[3].shape;
    test_model *model;
    walker w[4];

    (void)state;
    memset(w, 0, sizeof w);
    must(test_model_create(pair(), shape, 5, &model));
    for (uint32_t i = 0; i < 4; i++) {
        must(test_stream_create(model, &w[i].stream));
        w[i].logits = test_alloc(shape->vocab, sizeof(float));
    }
    must(test_pass_create(w[0].stream, 1, NULL, &w[0].pass));
    must(test_decode_record(w[1].stream, FUSED, NULL, &w[1].recording));
    must(mica_recording_clone(w[1].recording, &w[2].recording));
    must(mica_recording_clone(w[1].recording, &w[3].recording));
    must(test_stream_rebind(w[2].recording, w[1].stream, w[2].stream));
    must(test_stream_rebind(w[3].recording, w[1].stream, w[3].stream));
    walk(&w[0]);
    must(w[0].status);
    walk_side_by_side(&w[1], 3);
    for (uint32_t i = 1; i < 4; i++)
        compare_walkers(shape, &w[0], &w[i]);
    for (uint32_t i = 0; i < 4; i++) {
        mica_recording_release(w[i].recording);
        test_pass_release(w[i].pass);
        test_stream_release(w[i].stream);
        free(w[i].logits);
    }
    test_model_release(model);
}

/* Two threads encode and submit on one device, a third replays there. */
static void test_two_encoders(void **state)
{
    const test_shape *shape = &variants[1].shape;
    test_model *model;
    walker w[4];

    (void)state;
    memset(w, 0, sizeof w);
    must(test_model_create(pair(), shape, 5, &model));
    for (uint32_t i = 0; i < 4; i++) {
        must(test_stream_create(model, &w[i].stream));
        w[i].logits = test_alloc(shape->vocab, sizeof(float));
        must(test_pass_create(w[i].stream, 1, NULL, &w[i].pass));
    }
    must(test_decode_record(w[3].stream, 0, NULL, &w[3].recording));
    walk(&w[0]);
    must(w[0].status);
    walk_side_by_side(&w[1], 3);
    for (uint32_t i = 1; i < 4; i++)
        compare_walkers(shape, &w[0], &w[i]);
    for (uint32_t i = 0; i < 4; i++) {
        mica_recording_release(w[i].recording);
        test_pass_release(w[i].pass);
        test_stream_release(w[i].stream);
        free(w[i].logits);
    }
    test_model_release(model);
}

int main(void)
{
    struct CMUnitTest tests[3 * VARIANTS + 2];
    char names[3 * VARIANTS][96];
    size_t count = 0;
    static const struct {
        const char *name;
        CMUnitTestFunction function;
    } kinds[] = {{"threads and rows", test_threads_and_rows},
                 {"replay", test_replay},
                 {"fused replay", test_fused_replay}};

    for (size_t kind = 0; kind < 3; kind++) {
        for (uintptr_t v = 0; v < VARIANTS; v++, count++) {
            snprintf(names[count], sizeof names[count], "%s: %s", kinds[kind].name, variants[v].name);
            tests[count] = (struct CMUnitTest){names[count], kinds[kind].function, NULL, NULL, (void *)v};
        }
    }
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_clones);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_two_encoders);
    return _cmocka_run_group_tests("bits", tests, count, open_devices, close_devices);
}
