/*
 * test_context.c - what a context promises: the same bits whatever the threads, the chunks and the company, no allocation
 * per token, cancelling, shifting, and refusals.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "model_rig.h"
#include "support/meter.h"

#define PROMPT 90u

/* Families that differ in what they do with positions, windows and experts. */
static const char *const names[] = {"llama", "gemma3", "mixtral", "gpt2", "mistral"};
#define NAMES (sizeof names / sizeof names[0])

/* ---- bits ----------------------------------------------------------------------------------------------- */

/* [PROMPT, vocabulary] of a prompt fed `chunk` tokens at a time by `threads` threads. */
static float *logits_of(const char *name, uint32_t threads, uint32_t chunk, uint64_t seed,
                        uint64_t *out_bytes)
{
    uint32_t tokens[PROMPT];
    rig r = rig_open(name, threads);
    mica_context *context = rig_context(&r, 128, 1, 64);
    float *logits = test_alloc((size_t)PROMPT * r.info.vocabulary, sizeof *logits);
    rig_tokens(&r, seed, tokens, PROMPT);
    rig_logits(context, &r, rig_sequence(context), tokens, PROMPT, chunk, logits);
    *out_bytes = (uint64_t)PROMPT * r.info.vocabulary * sizeof *logits;
    mica_context_release(context);
    rig_close(&r);
    return logits;
}

static void bits_do_not_depend_on_threads_and_chunks(void **state)
{
    static const uint32_t threads[] = {1, 2, 3}, chunks[] = {1, 7, 64, PROMPT};
    (void)state;
    for (size_t n = 0; n < NAMES; n++) {
        uint64_t bytes;
        float *first = logits_of(names[n], 1, PROMPT, n, &bytes);
        for (size_t i = 0; i < 12; i++) {
            float *other = logits_of(names[n], threads[i / 4], chunks[i % 4], n, &bytes);
            if (memcmp(first, other, bytes) != 0)
                fail_msg("%s: %u threads and chunks of %u give other bits", names[n], threads[i / 4],
                         chunks[i % 4]);
            free(other);
        }
        free(first);
    }
}

/* Chunks of 40 are prompts, which run once in stages, however often the same length comes; 3 tokens are recorded. */
static void prompts_run_in_stages(void **state)
{
    static const uint32_t lengths[] = {40, 40, 40, 50, 40, 3}, kept[] = {0, 0, 0, 0, 0, 1};
    uint32_t tokens[213], at = 0;
    rig r = rig_open("llama", 2);
    mica_context *whole = rig_context(&r, 256, 1, 256), *parts = rig_context(&r, 256, 1, 64);
    const uint32_t a = rig_sequence(whole), b = rig_sequence(parts);
    float *want = test_alloc((size_t)213 * r.info.vocabulary, sizeof *want);
    float *got = test_alloc((size_t)213 * r.info.vocabulary, sizeof *got);
    mica_context_info info;
    (void)state;
    rig_tokens(&r, 3, tokens, 213);
    rig_logits(whole, &r, a, tokens, 213, 213, want);
    for (size_t i = 0; i < 6; at += lengths[i++]) {
        rig_logits(parts, &r, b, tokens + at, lengths[i], lengths[i], got + (size_t)at * r.info.vocabulary);
        must(mica_context_get_info(parts, &info));
        assert_int_equal(info.recordings, kept[i]);
    }
    assert_memory_equal(got, want, (size_t)213 * r.info.vocabulary * sizeof *got);
    free(want);
    free(got);
    mica_context_release(whole);
    mica_context_release(parts);
    rig_close(&r);
}

static void bits_do_not_depend_on_company(void **state)
{
    static const uint32_t companies[] = {2, 8, 17};
    uint32_t tokens[17][PROMPT];
    (void)state;
    for (size_t n = 0; n < NAMES; n++) {
        uint64_t bytes;
        float *alone = logits_of(names[n], 2, PROMPT, 100, &bytes);
        for (size_t c = 0; c < 3; c++) {
            rig r = rig_open(names[n], 2);
            mica_context *context = rig_context(&r, 128 * 17, 17, 50);
            uint32_t sequence[17], mine = companies[c] / 2;
            for (uint32_t i = 0; i < companies[c]; i++) {
                sequence[i] = rig_sequence(context);
                rig_tokens(&r, i == mine ? 100 : 200 + i, tokens[i], PROMPT);
            }
            for (uint32_t done = 0; done < PROMPT;
                 done += 10) { /* all of them, some tokens each, of different lengths */
                mica_feed feeds[17];
                const float *logits;
                uint32_t rows;
                for (uint32_t i = 0; i < companies[c]; i++)
                    feeds[i] = (mica_feed){sequence[i], tokens[i] + done, i == mine ? 10 : 1 + i % 10,
                                           MICA_WANT_ALL};
                must(mica_context_feed(context, feeds, companies[c]));
                must(mica_context_logits(context, sequence[mine], &logits, &rows));
                assert_int_equal(rows, 10);
                if (memcmp(logits, alone + (size_t)done * r.info.vocabulary,
                           10 * (size_t)r.info.vocabulary * sizeof *logits) != 0)
                    fail_msg("%s: other bits among %u sequences", names[n], companies[c]);
            }
            mica_context_release(context);
            rig_close(&r);
        }
        free(alone);
    }
}

/* ---- memory --------------------------------------------------------------------------------------------- */

static void a_token_allocates_nothing(void **state)
{
    test_meter meter = {0};
    (void)state;
    must(test_meter_set(&meter));
    for (size_t n = 0; n < NAMES; n++) {
        rig r = rig_open(names[n], 2);
        mica_context *context = rig_context(&r, 128, 1, 64);
        const uint32_t sequence = rig_sequence(context);
        uint32_t token = 5;
        for (uint32_t i = 0; i < 3; i++)
            token = rig_step(context, &r, sequence, token);
        const uint64_t before = atomic_load(&meter.calls);
        for (uint32_t i = 0; i < 100; i++)
            token = rig_step(context, &r, sequence, token);
        if (atomic_load(&meter.calls) != before)
            fail_msg("%s: 100 tokens made %llu allocations", names[n],
                     (unsigned long long)(atomic_load(&meter.calls) - before));
        mica_context_release(context);
        rig_close(&r);
    }
    must(mica_set_allocator(NULL));
}

static void windows_keep_only_what_they_need(void **state)
{
    uint32_t tokens[120];
    mica_context_info info;
    rig r = rig_open("mistral", 1);
    mica_context *context = rig_context(&r, 128, 1, 8);
    const uint32_t sequence = rig_sequence(context);
    (void)state;
    assert_int_equal(r.info.window, 16);
    rig_tokens(&r, 1, tokens, 120);
    for (uint32_t i = 0; i < 120; i++) {
        (void)rig_step(context, &r, sequence, tokens[i]);
        must(mica_context_get_info(context, &info));
        assert_true(info.window_pages_used <= 2);
    }
    /* What the window has forgotten cannot come back; what it still sees can. */
    refused(mica_sequence_trim(context, sequence, 40), MICA_ERR_UNSUPPORTED, "window");
    must(mica_sequence_trim(context, sequence, 118));
    must(mica_sequence_trim(context, sequence, 0));
    mica_context_release(context);
    rig_close(&r);
}

/* ---- cancelling ----------------------------------------------------------------------------------------- */

static void cancel_stops_a_feed(void **state)
{
    uint32_t tokens[40];
    rig r = rig_open("llama", 2);
    mica_context *context = rig_context(&r, 64, 1, 8);
    const uint32_t sequence = rig_sequence(context);
    uint32_t count;
    (void)state;
    rig_tokens(&r, 3, tokens, 40);
    const mica_feed feed = {sequence, tokens, 40, MICA_WANT_LAST};
    must(mica_context_cancel(context));
    refused(mica_context_feed(context, &feed, 1), MICA_ERR_CANCELLED, "cancelled");
    must(mica_sequence_tokens(context, sequence, NULL, 0, &count));
    assert_int_equal(count, 0);
    must(mica_context_feed(context, &feed, 1)); /* and it goes on as if nothing had been */
    mica_context_release(context);
    rig_close(&r);
}

typedef struct spoiler {
    mica_context *context;
    _Atomic bool enough;
} spoiler;

static void *cancel_now_and_then(void *argument)
{
    const struct timespec pause = {.tv_nsec = 100000};
    spoiler *s = argument;
    while (!atomic_load(&s->enough)) {
        (void)mica_context_cancel(s->context);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Feeds the prompt, again and again from where it was stopped; how often that was. */
static uint32_t feed_stubbornly(mica_context *context, uint32_t sequence, const uint32_t *tokens)
{
    uint32_t count = 0, stopped = 0;
    mica_status status = MICA_OK;
    while (count < PROMPT || status != MICA_OK) {
        if (count == PROMPT) /* stopped after the last token, whose logits are wanted */
            must(mica_sequence_trim(context, sequence, --count));
        const mica_feed feed = {sequence, tokens + count, PROMPT - count, MICA_WANT_LAST};
        status = mica_context_feed(context, &feed, 1);
        stopped += status == MICA_ERR_CANCELLED;
        assert_true(status == MICA_OK || status == MICA_ERR_CANCELLED);
        must(mica_sequence_tokens(context, sequence, NULL, 0, &count));
    }
    return stopped;
}

/* Whatever a feed was doing when it was stopped, the sequence goes on from what it has. */
static void cancelled_sequences_go_on(void **state)
{
    uint32_t tokens[PROMPT], stopped = 0, rows;
    uint64_t bytes;
    pthread_t thread;
    const float *logits;
    float *whole = logits_of("llama", 2, PROMPT, 9, &bytes);
    rig r = rig_open("llama", 2);
    spoiler s = {.context = rig_context(&r, 128, 1, 4)};
    (void)state;
    rig_tokens(&r, 9, tokens, PROMPT);
    assert_int_equal(pthread_create(&thread, NULL, cancel_now_and_then, &s), 0);
    while (stopped < 20) {
        const uint32_t sequence = rig_sequence(s.context);
        stopped += feed_stubbornly(s.context, sequence, tokens);
        must(mica_context_logits(s.context, sequence, &logits, &rows));
        assert_memory_equal(logits, whole + (size_t)(PROMPT - 1) * r.info.vocabulary,
                            r.info.vocabulary * sizeof *logits);
        must(mica_sequence_remove(s.context, sequence));
    }
    atomic_store(&s.enough, true);
    pthread_join(thread, NULL);
    free(whole);
    mica_context_release(s.context);
    rig_close(&r);
}

/* ---- shifting ------------------------------------------------------------------------------------------- */

/* After a shift the sequence is what feeding the kept tokens from the beginning gives. */
static void shifting_is_feeding_again(void **state)
{
    static const char *const kinds[] = {"llama", "gemma3"};
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        rig r = rig_open(kinds[n], 2);
        const mica_context_options options = {.capacity = 64, .batch = 16, .shift = 1, .keep = 5};
        uint32_t tokens[100], kept[64], count;
        const float *a, *b;
        uint32_t rows;
        mica_context *shifting = NULL, *plain = rig_context(&r, 64, 1, 16);
        must(mica_context_create(r.model, &options, &shifting));
        const uint32_t s = rig_sequence(shifting), p = rig_sequence(plain);
        rig_tokens(&r, 4, tokens, 100);
        for (uint32_t i = 0; i < 100; i++)
            (void)rig_step(shifting, &r, s, tokens[i]);
        must(mica_sequence_tokens(shifting, s, kept, 64, &count));
        assert_true(count < 64);
        assert_memory_equal(kept, tokens, 5 * sizeof *kept);
        assert_memory_equal(kept + 5, tokens + 100 - (count - 5), (count - 5) * sizeof *kept);
        const mica_feed feed = {p, kept, count, MICA_WANT_LAST};
        must(mica_context_feed(plain, &feed, 1));
        must(mica_context_logits(plain, p, &a, &rows));
        must(mica_context_logits(shifting, s, &b, &rows));
        assert_memory_equal(a, b, r.info.vocabulary * sizeof *a);
        mica_context_release(shifting);
        mica_context_release(plain);
        rig_close(&r);
    }
}

/* ---- refusals ------------------------------------------------------------------------------------------- */

static void bad_feeds_are_refused(void **state)
{
    uint32_t tokens[200] = {0}, sequence, rows, other;
    const float *logits;
    rig r = rig_open("llama", 1);
    mica_context *context = rig_context(&r, 64, 2, 16);
    (void)state;
    sequence = rig_sequence(context);
    const mica_feed good = {sequence, tokens, 1, MICA_WANT_NONE};
    mica_feed feed = good;
    refused(mica_context_feed(NULL, &feed, 1), MICA_ERR_INVALID_ARGUMENT, "context");
    refused(mica_context_feed(context, NULL, 1), MICA_ERR_INVALID_ARGUMENT, "feeds");
    feed.sequence = 1;
    refused(mica_context_feed(context, &feed, 1), MICA_ERR_INVALID_ARGUMENT, "no sequence 1");
    feed = good;
    feed.count = 0;
    refused(mica_context_feed(context, &feed, 1), MICA_ERR_INVALID_ARGUMENT, "no tokens");
    feed.count = 65;
    refused(mica_context_feed(context, &feed, 1), MICA_ERR_INVALID_ARGUMENT, "65 tokens");
    feed.count = 3;
    tokens[2] = r.info.vocabulary;
    refused(mica_context_feed(context, &feed, 1), MICA_ERR_INVALID_ARGUMENT, "token 2");
    tokens[2] = 0;
    refused(mica_context_feed(context, (mica_feed[]){good, good}, 2), MICA_ERR_INVALID_ARGUMENT, "twice");
    must(mica_context_feed(context, &good, 1));
    refused(mica_context_logits(context, sequence, &logits, &rows), MICA_ERR_STATE, "no logits");
    feed.count = 64;
    refused(mica_context_feed(context, &feed, 1), MICA_ERR_FULL, "full");
    must(mica_sequence_create(context, &other));
    refused(mica_sequence_create(context, &rows), MICA_ERR_FULL, "2 sequences");
    refused(mica_sequence_fork(context, sequence, 2, &rows), MICA_ERR_INVALID_ARGUMENT, "1 tokens");
    refused(mica_sequence_trim(context, 9, 0), MICA_ERR_INVALID_ARGUMENT, "no sequence 9");
    must(mica_sequence_remove(context, other));
    refused(mica_sequence_remove(context, other), MICA_ERR_INVALID_ARGUMENT, "no sequence");
    mica_context_release(context);
    rig_close(&r);
}

static void bad_contexts_are_refused(void **state)
{
    rig r = rig_open("llama", 1), encoder = rig_open("bert", 1);
    mica_context *context = NULL;
    uint32_t sequence;
    (void)state;
    mica_context_options options = {.cache_k = MICA_DTYPE_Q4_K};
    refused(mica_context_create(r.model, &options, &context), MICA_ERR_UNSUPPORTED, "cache_k");
    options = (mica_context_options){.sequences = 100000};
    refused(mica_context_create(r.model, &options, &context), MICA_ERR_INVALID_ARGUMENT, "sequences");
    options = (mica_context_options){.batch = 1000000};
    refused(mica_context_create(r.model, &options, &context), MICA_ERR_INVALID_ARGUMENT, "batch");
    options = (mica_context_options){.capacity = 20, .shift = 1, .keep = 10};
    refused(mica_context_create(r.model, &options, &context), MICA_ERR_INVALID_ARGUMENT, "keep");
    refused(mica_context_create(NULL, NULL, &context), MICA_ERR_INVALID_ARGUMENT, "model");
    must(mica_device_set_budget(r.device, 4096));
    refused(mica_context_create(r.model, NULL, &context), MICA_ERR_BUDGET, "budget");
    assert_null(context);
    must(mica_context_create(encoder.model, NULL, &context));
    refused(mica_sequence_create(context, &sequence), MICA_ERR_UNSUPPORTED, "bert");
    mica_context_release(context);
    rig_close(&encoder);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_threads_and_chunks),
        cmocka_unit_test(prompts_run_in_stages),
        cmocka_unit_test(bits_do_not_depend_on_company),
        cmocka_unit_test(a_token_allocates_nothing),
        cmocka_unit_test(windows_keep_only_what_they_need),
        cmocka_unit_test(cancel_stops_a_feed),
        cmocka_unit_test(cancelled_sequences_go_on),
        cmocka_unit_test(shifting_is_feeding_again),
        cmocka_unit_test(bad_feeds_are_refused),
        cmocka_unit_test(bad_contexts_are_refused),
    };
    return cmocka_run_group_tests_name("context", tests, NULL, NULL);
}
