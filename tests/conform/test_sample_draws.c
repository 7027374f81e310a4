/*
 * test_sample_draws.c - what mica_sample draws, over 10^5 draws for each filter, against the exact chances: a chi-square
 * test, and nothing that a filter takes away is ever drawn. The draws are those of one recording that is replayed and moves its own pick
 * numbers on.
 *
 *   test_sample_draws [DEVICE]
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "oracle/oracle_sample.h"
#include "support/random.h"
#include "support/sanitizer.h"
#include "support/status.h"
#include "support/tensor.h"

#define ROWS 1000u
#define REPLAYS (TEST_ANY_SANITIZER ? 10u : 100u)
#define TOKENS 61u

static const char *device_id = "cpu";

typedef struct filter_case {
    const char *name;
    mica_sample_settings settings;
} filter_case;

static const filter_case filters[] = {
    {"none", {.temperature = 1, .top_p = 1, .typical_p = 1}},
    {"temperature 0.5", {.temperature = 0.5f, .top_p = 1, .typical_p = 1}},
    {"temperature 2", {.temperature = 2, .top_p = 1, .typical_p = 1}},
    {"top_k", {.temperature = 1, .top_k = 9, .top_p = 1, .typical_p = 1}},
    {"top_p", {.temperature = 1, .top_p = 0.8f, .typical_p = 1}},
    {"min_p", {.temperature = 1, .top_p = 1, .min_p = 0.1f, .typical_p = 1}},
    {"typical_p", {.temperature = 1, .top_p = 1, .typical_p = 0.7f}},
    {"keep", {.temperature = 3, .top_k = 1, .top_p = 0, .min_p = 1, .typical_p = 0, .keep = 7}},
    {"all", {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.02f, .typical_p = 0.95f}},
};

/* The counts of REPLAYS times ROWS draws. */
static void count_draws(mica_device *device, const filter_case *filter, const float *logits, uint64_t *counts)
{
    const uint64_t all[2] = {ROWS, TOKENS}, one = TOKENS, stride[2] = {0, 4}, rows = ROWS,
                   words[2] = {ROWS, MICA_SAMPLE_WORDS};
    mica_sample_settings *settings = test_alloc(ROWS, sizeof *settings);
    uint32_t *drawn = test_alloc(ROWS, sizeof *drawn);
    mica_buffer *row, *repeated, *state, *ids;
    mica_session *session;
    mica_recording *recording;

    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, &one, &row));
    must(mica_buffer_write(row, 0, logits, TOKENS * sizeof *logits));
    must(mica_buffer_view(row, MICA_DTYPE_F32, 2, all, stride, 0, &repeated));
    must(mica_buffer_alloc(device, MICA_DTYPE_U32, 2, words, &state));
    must(mica_buffer_alloc(device, MICA_DTYPE_U32, 1, &rows, &ids));
    for (uint32_t i = 0; i < ROWS; i++) {
        settings[i] = filter->settings;
        settings[i].seed_low = i;
        settings[i].pick_low = UINT32_MAX - 5; /* over the carry */
    }
    must(mica_buffer_write(state, 0, settings, ROWS * sizeof *settings));
    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    const mica_sample_operands operands = {.logits = repeated, .settings = state};
    must(mica_sample(mica_session_encoder(session), &operands, ids, NULL));
    must(mica_session_record(session, 0, NULL, &recording));
    for (uint32_t trial = 0; trial < REPLAYS; trial++) {
        must(mica_recording_replay_and_wait(recording));
        must(mica_buffer_read(ids, 0, drawn, ROWS * sizeof *drawn));
        for (uint32_t i = 0; i < ROWS; i++) {
            assert_true(drawn[i] < TOKENS);
            counts[drawn[i]]++;
        }
    }
    must(mica_buffer_read(state, 0, settings, ROWS * sizeof *settings));
    assert_int_equal(settings[ROWS - 1].pick_low, (uint32_t)(UINT32_MAX - 5 + REPLAYS));
    assert_int_equal(settings[ROWS - 1].pick_high, REPLAYS > 5);
    mica_recording_release(recording);
    mica_session_release(session);
    mica_buffer_release(ids);
    mica_buffer_release(state);
    mica_buffer_release(repeated);
    mica_buffer_release(row);
    free(settings);
    free(drawn);
}

/* The chance that the sum of that many squares is greater is under 1e-6 (Wilson and Hilferty). */
static double limit_of(double freedom)
{
    const double part = 2.0 / (9 * freedom);

    return freedom * pow(1 - part + 4.75 * sqrt(part), 3);
}

static void draws_follow_the_chances(void **state)
{
    mica_device *device;
    test_random random = test_random_from(7);

    (void)state;
    must(mica_device_open(device_id, NULL, &device));
    for (size_t f = 0; f < sizeof filters / sizeof *filters; f++) {
        const mica_sample_settings *s = &filters[f].settings;
        const oracle_sampling sampling = {.temperature = (double)s->temperature,
                                          .top_p = (double)s->top_p,
                                          .min_p = (double)s->min_p,
                                          .typical_p = (double)s->typical_p,
                                          .top_k = s->top_k,
                                          .keep = s->keep};
        float logits[TOKENS];
        double wide[TOKENS], chance[TOKENS], sum = 0, rest = 0, got_rest = 0, total = (double)ROWS * REPLAYS;
        uint64_t counts[TOKENS] = {0};
        uint32_t freedom = 0;

        do { /* sets that f32 and f64 agree on */
            for (uint32_t i = 0; i < TOKENS; i++)
                wide[i] = (double)(logits[i] = (float)(2 * test_random_normal(&random)));
        } while (oracle_sample_chances(&sampling, TOKENS, wide, chance) < 1e-4);
        count_draws(device, &filters[f], logits, counts);
        for (uint32_t i = 0; i < TOKENS; i++) {
            const double expected = chance[i] * total, off = (double)counts[i] - expected;

            if (chance[i] == 0 && counts[i] != 0)
                fail_msg("%s: token %u was drawn, a filter takes it away", filters[f].name, i);
            if (expected < 5) {
                rest += expected;
                got_rest += (double)counts[i];
                continue;
            }
            sum += off * off / expected;
            freedom++;
        }
        if (rest >= 5) {
            sum += (got_rest - rest) * (got_rest - rest) / rest;
            freedom++;
        }
        if (freedom > 1 && sum > limit_of(freedom - 1))
            fail_msg("%s: chi-square is %.1f over %u tokens, the limit %.1f", filters[f].name, sum, freedom,
                     limit_of(freedom - 1));
        assert_true(freedom > 1);
    }
    mica_device_release(device);
}

/* Long rows take other ways than short ones: bins instead of a heap, ties of thousands. */
static void long_rows_are_as_exact(void **state)
{
    static const uint32_t sizes[] = {1024, 1025, 20011, 151936};
    mica_device *device;
    test_random random = test_random_from(8);

    (void)state;
    must(mica_device_open(device_id, NULL, &device));
    for (uint32_t trial = 0; trial < 48; trial++) {
        const uint32_t n = sizes[trial % 4];
        const uint64_t shape[2] = {1, n}, words[2] = {1, MICA_SAMPLE_WORDS}, one = 1;
        const bool ties = trial / 4 % 3 == 0;
        float *logits = test_alloc(n, sizeof *logits);
        double *wide = test_alloc(n, sizeof *wide), margin;
        mica_buffer *x, *settings, *ids;
        mica_encoder *encoder;
        uint32_t got;
        int64_t wanted;
        mica_sample_settings s = {.temperature = 1.1f, .top_p = 1, .typical_p = 1, .seed_low = trial};

        s.top_k = trial % 5 == 0 ? n / 3 : trial % 5 == 1 ? 300 : 0;
        s.top_p = trial % 3 == 0 ? 0.9f : 1;
        s.typical_p = trial % 4 == 3 ? 0.6f : 1;
        s.min_p = trial % 7 == 3 ? 0.01f : 0;
        for (uint32_t i = 0; i < n; i++) {
            logits[i] = (float)(4 * test_random_normal(&random));
            if (ties)
                logits[i] = floorf(logits[i]);
            wide[i] = (double)logits[i];
        }
        do { /* a draw whose answer does not hang on the rounding of a sum of 10^5 terms */
            s.pick_low++;
            const oracle_sampling sampling = {.seed = trial,
                                              .pick = s.pick_low,
                                              .temperature = (double)s.temperature,
                                              .top_p = (double)s.top_p,
                                              .min_p = (double)s.min_p,
                                              .typical_p = (double)s.typical_p,
                                              .top_k = s.top_k};

            wanted = oracle_sample_pick(&sampling, n, wide, &margin);
        } while (margin < 1e-6 && s.pick_low < 8);
        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, shape, &x));
        must(mica_buffer_write(x, 0, logits, n * sizeof *logits));
        must(mica_buffer_alloc(device, MICA_DTYPE_U32, 2, words, &settings));
        must(mica_buffer_write(settings, 0, &s, sizeof s));
        must(mica_buffer_alloc(device, MICA_DTYPE_U32, 1, &one, &ids));
        must(mica_encoder_begin(device, NULL, &encoder));
        const mica_sample_operands operands = {.logits = x, .settings = settings};
        must(mica_sample(encoder, &operands, ids, NULL));
        must(mica_encoder_commit_and_wait(encoder));
        must(mica_buffer_read(ids, 0, &got, sizeof got));
        if (margin >= 1e-6)
            assert_int_equal(got, wanted);
        mica_encoder_release(encoder);
        mica_buffer_release(ids);
        mica_buffer_release(settings);
        mica_buffer_release(x);
        free(logits);
        free(wide);
    }
    mica_device_release(device);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(draws_follow_the_chances),
                                       cmocka_unit_test(long_rows_are_as_exact)};

    if (argc > 1)
        device_id = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
