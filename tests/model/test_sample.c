/* test_sample.c: the sampler: each filter's draws against exact probabilities, worked out here in double from the
 * definitions; penalties by hand; bad fields and bad logits. */
#include "model/grammar_rig.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "sample/sample.h"
#include "support/sanitizer.h"

#define DRAWS (TEST_ANY_SANITIZER ? 10000 : 100000)
#define TOKENS 61u

static mica_sampling neutral(void)
{
    mica_sampling s;
    mica_sampling_default(&s);
    s.temperature = 1.0f;
    s.top_k = 0;
    s.top_p = 1.0f;
    s.min_p = 0.0f;
    return s;
}

static mica_sampler *make(const mica_sampling *sampling, uint32_t vocabulary)
{
    mica_sampler *sampler = NULL;
    must(mica_sampler_create(sampling, vocabulary, NULL, NULL, &sampler));
    return sampler;
}

/* ---- the oracle ----------------------------------------------------------------------------------------- */

/* In order of falling logit, equal ones by id; `p` is 0 for what was taken away. */
typedef struct choice {
    uint32_t id;
    double logit, p, distance;
    int alive;
} choice;

static int by_logit(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

static int by_distance(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    return (x->distance > y->distance) - (x->distance < y->distance);
}

static void chances(choice *c, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += c[i].alive ? exp(c[i].logit) : 0;
    for (uint32_t i = 0; i < n; i++)
        c[i].p = c[i].alive ? exp(c[i].logit) / sum : 0;
}

static uint32_t alive(const choice *c, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += c[i].alive != 0;
    return count;
}

/* The definitions, one after the other; `xtc`: whether XTC strikes. out[id] is the probability of each token. */
static void oracle(const mica_sampling *s, const float *logits, uint32_t n, int xtc, double *out)
{
    choice *c = calloc(n, sizeof *c);
    const uint32_t least = s->keep_at_least == 0 ? 1 : s->keep_at_least;
    for (uint32_t i = 0; i < n; i++) {
        c[i].id = i;
        c[i].logit = logits[i];
        c[i].alive = 1;
    }
    qsort(c, n, sizeof *c, by_logit);
    for (uint32_t i = 0; s->top_k != 0 && i < n; i++)
        c[i].alive = i < s->top_k || i < least;
    if (s->typical_p < 1) {
        double entropy = 0, sum = 0;
        uint32_t kept = 0;
        chances(c, n);
        for (uint32_t i = 0; i < n; i++)
            entropy -= c[i].alive ? c[i].p * log(c[i].p) : 0;
        for (uint32_t i = 0; i < n; i++)
            c[i].distance = c[i].alive ? fabs(-log(c[i].p) - entropy) : INFINITY;
        qsort(c, n, sizeof *c, by_distance);
        for (uint32_t i = 0; i < n; i++) {
            c[i].alive = c[i].alive && (sum <= (double)s->typical_p || kept < least);
            sum += c[i].p;
            kept += c[i].alive != 0;
        }
        qsort(c, n, sizeof *c, by_logit);
    }
    if (s->top_p < 1) {
        double sum = 0;
        uint32_t kept = 0;
        chances(c, n);
        for (uint32_t i = 0; i < n; i++) {
            if (!c[i].alive)
                continue;
            c[i].alive = kept == 0 || kept < least || sum < (double)s->top_p;
            sum += c[i].p;
            kept += c[i].alive != 0;
        }
    }
    if (s->min_p > 0) {
        double most = 0;
        uint32_t kept = 0;
        chances(c, n);
        for (uint32_t i = 0; i < n; i++)
            most = c[i].p > most ? c[i].p : most;
        for (uint32_t i = 0; i < n; i++) {
            c[i].alive = c[i].alive && (c[i].p >= (double)s->min_p * most || kept < least);
            kept += c[i].alive != 0;
        }
    }
    if (xtc && s->xtc_threshold <= 0.5f) {
        uint32_t above = 0, taken = 0;
        chances(c, n);
        for (uint32_t i = 0; i < n; i++)
            above += c[i].alive && c[i].p >= (double)s->xtc_threshold;
        for (uint32_t i = 0; i < n && above >= 2 && alive(c, n) - taken - (above - 1 - taken) >= least; i++)
            if (c[i].alive && taken < above - 1) {
                c[i].alive = 0;
                taken++;
                if (taken == above - 1)
                    break;
            }
    }
    for (uint32_t i = 0; i < n; i++)
        c[i].logit /= (double)s->temperature;
    chances(c, n);
    for (uint32_t i = 0; i < n; i++)
        out[c[i].id] = c[i].p;
    free(c);
}

/* Upper end of chi-square that is passed once in 30,000 times (Wilson and Hilferty, 4 deviations). */
static double chi_limit(double freedom)
{
    const double a = 2 / (9 * freedom);
    return freedom * pow(1 - a + 4 * sqrt(a), 3);
}

/* Draws and compares. Tokens that are expected fewer than 8 times are counted together. */
static void check_draws(const char *what, mica_sampler *sampler, const float *logits, const double *p,
                        uint32_t n)
{
    uint32_t *seen = calloc(n, sizeof *seen);
    double chi = 0, rare_expected = 0, rare_seen = 0, freedom = -1;
    for (uint32_t i = 0; i < DRAWS; i++) {
        uint32_t id = MICA_NO_TOKEN;
        must(mica_sampler_pick(sampler, logits, &id));
        assert_true(id < n);
        seen[id]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        const double expected = p[i] * DRAWS;
        if (p[i] == 0 && seen[i] != 0)
            fail_msg("%s: token %u was drawn, its probability is 0", what, i);
        if (expected < 8) {
            rare_expected += expected;
            rare_seen += seen[i];
            continue;
        }
        chi += (seen[i] - expected) * (seen[i] - expected) / expected;
        freedom++;
    }
    if (rare_expected >= 8) {
        chi += (rare_seen - rare_expected) * (rare_seen - rare_expected) / rare_expected;
        freedom++;
    }
    if (freedom > 0 && chi > chi_limit(freedom))
        fail_msg("%s: chi-square %.1f over %.0f degrees, the limit is %.1f", what, chi, freedom,
                 chi_limit(freedom));
    free(seen);
}

static void random_logits(test_random *random, float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        logits[i] = (float)(2.0 * test_random_normal(random));
}

static void check_chain(const char *what, mica_sampling s, uint64_t seed, uint32_t n)
{
    test_random random = test_random_from(seed);
    float *logits = malloc(n * sizeof *logits);
    double *without = malloc(n * sizeof *without), *with = malloc(n * sizeof *with);
    mica_sampler *sampler;
    s.seed = seed * 77;
    random_logits(&random, logits, n);
    oracle(&s, logits, n, 0, without);
    oracle(&s, logits, n, 1, with);
    for (uint32_t i = 0; i < n; i++)
        without[i] = (double)s.xtc_probability * with[i] + (1 - (double)s.xtc_probability) * without[i];
    sampler = make(&s, n);
    check_draws(what, sampler, logits, without, n);
    mica_sampler_release(sampler);
    free(logits);
    free(without);
    free(with);
}

static void draws_follow_probabilities(void **state)
{
    const mica_sampling plain = neutral();
    mica_sampling s;
    (void)state;
    s = plain, s.top_k = 530;
    check_chain("large top-k", s, 3, 700);
    s = plain, s.top_p = 0.8f;
    check_chain("top-p of many", s, 3, 600);
    for (uint64_t seed = 1; seed <= 2; seed++) {
        check_chain("neutral", plain, seed, TOKENS);
        s = plain, s.temperature = 0.7f;
        check_chain("temperature 0.7", s, seed, TOKENS);
        s = plain, s.temperature = 1.6f;
        check_chain("temperature 1.6", s, seed, TOKENS);
        s = plain, s.top_k = 7;
        check_chain("top-k", s, seed, TOKENS);
        s = plain, s.typical_p = 0.4f;
        check_chain("typical", s, seed, TOKENS);
        s = plain, s.top_p = 0.6f;
        check_chain("top-p", s, seed, TOKENS);
        s = plain, s.min_p = 0.15f;
        check_chain("min-p", s, seed, TOKENS);
        s = plain, s.xtc_probability = 0.4f, s.xtc_threshold = 0.05f;
        check_chain("XTC", s, seed, TOKENS);
        s = plain, s.xtc_probability = 1.0f, s.xtc_threshold = 0.01f, s.keep_at_least = 5;
        check_chain("XTC that keeps 5", s, seed, TOKENS);
        s = plain, s.top_p = 0.01f, s.keep_at_least = 4;
        check_chain("top-p that keeps 4", s, seed, TOKENS);
        s = plain, s.min_p = 1.0f, s.keep_at_least = 3;
        check_chain("min-p that keeps 3", s, seed, TOKENS);
        mica_sampling_default(&s);
        check_chain("the default chain", s, seed, 300);
        s.typical_p = 0.9f, s.xtc_probability = 0.5f;
        check_chain("everything at once", s, seed, 300);
    }
}

/* ---- mirostat ------------------------------------------------------------------------------------------- */

/* The tokens whose surprise is at most mu. */
static double mirostat_oracle(const float *logits, uint32_t n, double mu, double *p)
{
    mica_sampling s = neutral();
    double sum = 0, most = 0;
    oracle(&s, logits, n, 0, p);
    for (uint32_t i = 0; i < n; i++)
        most = p[i] > most ? p[i] : most;
    for (uint32_t i = 0; i < n; i++) {
        if (-log2(p[i]) > mu && p[i] != most)
            p[i] = 0;
        sum += p[i];
    }
    for (uint32_t i = 0; i < n; i++)
        p[i] /= sum;
    return sum;
}

static void mirostat_follows_surprise(void **state)
{
    test_random random = test_random_from(5);
    mica_sampling s = neutral();
    float logits[TOKENS];
    double p[TOKENS], mu;
    mica_sampler *sampler;
    (void)state;
    s.mirostat = 2;
    s.mirostat_tau = 1.6f;
    s.mirostat_eta = 0.3f;
    random_logits(&random, logits, TOKENS);
    sampler = make(&s, TOKENS);
    mu = 2 * (double)s.mirostat_tau;
    (void)mirostat_oracle(logits, TOKENS, mu, p);
    check_draws("mirostat", sampler, logits, p, TOKENS); /* nothing is accepted, so mu stays */
    for (uint32_t step = 0; step < 200; step++) {
        uint32_t id, count, expected = 0;
        must(mica_sampler_pick(sampler, logits, &id));
        (void)mirostat_oracle(logits, TOKENS, mu, p);
        for (uint32_t i = 0; i < TOKENS; i++)
            expected += p[i] > 0;
        must(mica_sampler_candidates(sampler, NULL, 0, &count));
        assert_int_equal(count, expected);
        assert_true(p[id] > 0);
        must(mica_sampler_accept(sampler, id, 1));
        mu -= (double)s.mirostat_eta * (-log2(p[id]) - (double)s.mirostat_tau);
        random_logits(&random, logits, TOKENS);
    }
    mica_sampler_release(sampler);
}

/* ---- order and choice ----------------------------------------------------------------------------------- */

static void greedy_takes_the_highest(void **state)
{
    test_random random = test_random_from(9);
    mica_sampling s = neutral();
    mica_sampler *sampler;
    float logits[1000];
    uint32_t id;
    (void)state;
    s.temperature = 0;
    sampler = make(&s, 1000);
    for (uint32_t round = 0; round < 500; round++) {
        uint32_t best = 0;
        for (uint32_t i = 0; i < 1000; i++) { /* few values, so that many are equal */
            logits[i] = (float)test_random_below(&random, 40);
            if (test_random_one_in(&random, 10))
                logits[i] = NAN;
            if (isnan(logits[best]) || logits[i] > logits[best])
                best = i;
        }
        must(mica_sampler_pick(sampler, logits, &id));
        assert_int_equal(id, best);
    }
    mica_sampler_release(sampler);
}

static void odd_logits_are_survived(void **state)
{
    static const float temperatures[] = {0, 0.5f, 1};
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        for (uint32_t mirostat = 0; mirostat <= 2; mirostat += 2) {
            mica_sampling s;
            mica_sampler *sampler;
            uint32_t id;
            float logits[5] = {NAN, NAN, NAN, NAN, NAN};
            mica_sampling_default(&s);
            s.temperature = temperatures[t];
            s.mirostat = mirostat;
            s.repeat_penalty = 1.5f;
            sampler = make(&s, 5);
            must(mica_sampler_accept(sampler, 1, 0));
            refused(mica_sampler_pick(sampler, logits, &id), MICA_ERR_INVALID_ARGUMENT, "NaN");
            assert_int_equal(id, MICA_NO_TOKEN);
            logits[2] = -INFINITY;
            refused(mica_sampler_pick(sampler, logits, &id), MICA_ERR_INVALID_ARGUMENT, "logits");
            logits[1] = -FLT_MAX; /* the only one, even when the penalty takes it beyond a float */
            must(mica_sampler_pick(sampler, logits, &id));
            assert_int_equal(id, 1);
            logits[3] = INFINITY;
            must(mica_sampler_pick(sampler, logits, &id));
            assert_int_equal(id, 3);
            mica_sampler_release(sampler);
        }
    }
}

static void seeds_repeat(void **state)
{
    test_random random = test_random_from(3);
    mica_sampling s = neutral();
    float logits[TOKENS];
    mica_sampler *a, *b, *c;
    uint32_t first[200], same = 0;
    (void)state;
    /* The generator's bits, worked out apart. */
    assert_true(mica__random_at(0, 0, 0) == 0x1.4e0dba5e9a32fp-1);
    assert_true(mica__random_at(1, 0, 0) == 0x1.7906ac21d0e58p-2);
    assert_true(mica__random_at(1, 0, 1) == 0x1.e31ad9d27ad9ep-1);
    assert_true(mica__random_at(1, 1, 0) == 0x1.72becda64fd10p-5);
    assert_true(mica__random_at(UINT64_MAX, 12345678901u, 1) == 0x1.69b495e8d719cp-1);
    random_logits(&random, logits, TOKENS);
    s.seed = 42;
    a = make(&s, TOKENS);
    b = make(&s, TOKENS);
    s.seed = 43;
    c = make(&s, TOKENS);
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t other;
        must(mica_sampler_pick(a, logits, &first[i]));
        must(mica_sampler_pick(b, logits, &other));
        assert_int_equal(first[i], other);
        must(mica_sampler_pick(c, logits, &other));
        same += first[i] == other;
    }
    assert_true(same < 100);
    mica_sampler_reset(a);
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t again;
        must(mica_sampler_pick(a, logits, &again));
        assert_int_equal(again, first[i]);
    }
    mica_sampler_release(a);
    mica_sampler_release(b);
    mica_sampler_release(c);
}

/* The highest k, whatever way they are found, against a full sort. */
static void selection_is_exact(void **state)
{
    static const uint32_t ks[] = {1, 2, 40, 511, 512, 513, 2000, 4999, 5000};
    test_random random = test_random_from(21);
    float *logits = malloc(5000 * sizeof *logits);
    choice *sorted = malloc(5000 * sizeof *sorted);
    mica_token_chance *got = malloc(5000 * sizeof *got);
    (void)state;
    for (size_t k = 0; k < sizeof ks / sizeof *ks; k++) {
        mica_sampling s = neutral();
        mica_sampler *sampler;
        uint32_t id, count;
        for (uint32_t i = 0; i < 5000; i++) {
            logits[i] = (float)(0.01 * floor(100 * test_random_normal(&random))); /* many are equal */
            if (logits[i] == 0 && test_random_one_in(&random, 2))
                logits[i] = -0.0f;
            sorted[i].id = i;
            sorted[i].logit = logits[i];
        }
        qsort(sorted, 5000, sizeof *sorted, by_logit);
        s.top_k = ks[k];
        sampler = make(&s, 5000);
        must(mica_sampler_pick(sampler, logits, &id));
        must(mica_sampler_candidates(sampler, got, 5000, &count));
        assert_int_equal(count, ks[k]);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(got[i].id, sorted[i].id);
        mica_sampler_release(sampler);
    }
    free(logits);
    free(sorted);
    free(got);
}

static void chances_are_of_raw_logits(void **state)
{
    test_random random = test_random_from(8);
    mica_sampling s;
    mica_sampler *sampler;
    float logits[TOKENS];
    double p[TOKENS];
    mica_token_chance out[TOKENS];
    (void)state;
    mica_sampling_default(&s);
    sampler = make(&s, TOKENS);
    random_logits(&random, logits, TOKENS);
    s = neutral();
    oracle(&s, logits, TOKENS, 0, p);
    must(mica_sampler_chances(sampler, logits, TOKENS, out));
    for (uint32_t i = 0; i < TOKENS; i++) {
        assert_true(fabs((double)out[i].log_probability - log(p[out[i].id])) <
                    1e-6 * (1 + fabs(log(p[out[i].id]))));
        assert_true(i == 0 || logits[out[i].id] <= logits[out[i - 1].id]);
    }
    logits[out[0].id] = NAN;
    must(mica_sampler_chances(sampler, logits, TOKENS, out));
    assert_int_equal(out[TOKENS - 1].id, MICA_NO_TOKEN);
    refused(mica_sampler_chances(sampler, logits, 0, out), MICA_ERR_INVALID_ARGUMENT, "count");
    refused(mica_sampler_chances(sampler, logits, TOKENS + 1, out), MICA_ERR_INVALID_ARGUMENT, "count");
    mica_sampler_release(sampler);
}

/* ---- looking back --------------------------------------------------------------------------------------- */

/* The logits that a sampler draws from, measured from that of `base`, which nothing changes. */
static void effective(mica_sampler *sampler, const float *logits, uint32_t n, uint32_t base, double *out)
{
    mica_token_chance got[64];
    uint32_t id, count;
    double zero = 0;
    must(mica_sampler_pick(sampler, logits, &id));
    must(mica_sampler_candidates(sampler, got, 64, &count));
    assert_int_equal(count, n);
    for (uint32_t i = 0; i < n; i++)
        out[got[i].id] = got[i].log_probability;
    zero = out[base] - (double)logits[base];
    for (uint32_t i = 0; i < n; i++)
        out[i] -= zero;
}

static void near(double a, double b)
{
    if (fabs(a - b) > 1e-5)
        fail_msg("%.9g is not %.9g", a, b);
}

static void penalties_by_hand(void **state)
{
    const float logits[6] = {2.0f, -1.0f, 0.5f, 0.0f, 1.0f, -2.0f};
    const uint32_t text[] = {4, 0, 1, 0, 2, 0, 1};
    mica_sampling s = neutral();
    mica_sampler *sampler;
    double got[6];
    (void)state;
    s.repeat_penalty = 1.25f;
    s.presence_penalty = 0.5f;
    s.frequency_penalty = 0.25f;
    s.penalty_last = 6; /* the 4 is too long ago */
    sampler = make(&s, 6);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        must(mica_sampler_accept(sampler, text[i], 0));
    effective(sampler, logits, 6, 5, got);
    near(got[0], 2.0 / 1.25 - 3 * 0.25 - 0.5);
    near(got[1], -1.0 * 1.25 - 2 * 0.25 - 0.5);
    near(got[2], 0.5 / 1.25 - 0.25 - 0.5);
    near(got[3], 0.0);
    near(got[4], 1.0);
    mica_sampler_reset(sampler);
    effective(sampler, logits, 6, 5, got);
    for (uint32_t i = 0; i < 6; i++)
        near(got[i], (double)logits[i]);
    mica_sampler_release(sampler);
}

static void dry_by_hand(void **state)
{
    const float logits[8] = {0, 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f};
    const uint32_t text[] = {5, 1, 2, 3, 4, 7,
                             2, 3, 6, 1, 2, 3}; /* ends with 1 2 3: then 4 (3 long), 6 (2 long) */
    mica_sampling s = neutral();
    mica_sampler *sampler;
    double got[8];
    (void)state;
    s.dry_multiplier = 0.8f;
    s.dry_base = 1.75f;
    s.dry_allowed = 2;
    sampler = make(&s, 8);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        must(mica_sampler_accept(sampler, text[i], 0));
    effective(sampler, logits, 8, 0, got);
    for (uint32_t i = 0; i < 8; i++)
        near(got[i], (double)logits[i] - (i == 4 ? 0.8 * 1.75 : i == 6 ? 0.8 : 0));
    mica_sampler_release(sampler);
    s.dry_last = 7; /* 7 2 3 6 1 2 3: only 2 3 stands before */
    sampler = make(&s, 8);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        must(mica_sampler_accept(sampler, text[i], 0));
    effective(sampler, logits, 8, 0, got);
    for (uint32_t i = 0; i < 8; i++)
        near(got[i], (double)logits[i] - (i == 6 ? 0.8 : 0));
    mica_sampler_release(sampler);
}

/* The search against comparing every pair of places. */
static void dry_search_is_exact(void **state)
{
    test_random random = test_random_from(31);
    (void)state;
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t ids[64], lengths[64], found[64], longest[4] = {0}, expected[4] = {0};
        uint8_t breaks[64];
        mica__history history = {ids, breaks, 1 + (uint32_t)test_random_below(&random, 64), 0, 0};
        const uint32_t pushed = (uint32_t)test_random_below(&random, 100);
        const uint32_t last = 1 + (uint32_t)test_random_below(&random, 70);
        const uint32_t allowed = (uint32_t)test_random_below(&random, 4);
        uint32_t seen, limit, listed = 0;
        for (uint32_t i = 0; i < pushed; i++)
            mica__history_push(&history, (uint32_t)test_random_below(&random, 1 + round % 4),
                               test_random_one_in(&random, 12) != 0);
        seen = last < history.count ? last : history.count;
        for (limit = 0; limit < seen; limit++)
            if (breaks[(history.head + history.capacity - 1 - limit) % history.capacity])
                break;
        for (uint32_t back = 1; back < seen; back++) {
            uint32_t length = 0;
            while (back + length < seen && length < limit &&
                   mica__history_at(&history, length) == mica__history_at(&history, back + length))
                length++;
            const uint32_t next = mica__history_at(&history, back - 1);
            if (length > 0 && length >= allowed && limit >= allowed && length > expected[next])
                expected[next] = length;
        }
        const uint32_t count = mica__dry_search(&history, last, allowed, lengths, longest, found);
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(longest[i], expected[i]);
            listed += expected[i] != 0;
        }
        assert_int_equal(count, listed);
    }
}

static void bias_is_added(void **state)
{
    const mica_logit_bias bias[] = {{0, 2.5f}, {3, -INFINITY}, {0, -1.0f}};
    const float logits[4] = {0, 1, 2, 9};
    mica_sampling s = neutral();
    mica_sampler *sampler;
    mica_token_chance got[4];
    uint32_t id, count;
    (void)state;
    s.bias = bias;
    s.bias_count = 3;
    sampler = make(&s, 4);
    must(mica_sampler_pick(sampler, logits, &id));
    must(mica_sampler_candidates(sampler, got, 4, &count));
    assert_int_equal(count, 3);
    assert_int_equal(got[0].id, 2);
    assert_int_equal(got[1].id, 0);
    near((double)got[1].log_probability - (double)got[0].log_probability, 1.5 - 2);
    mica_sampler_release(sampler);
}

/* ---- bad input, memory ---------------------------------------------------------------------------------- */

static void bad_fields_are_named(void **state)
{
    const mica_logit_bias far = {9, 1.0f}, nan = {1, NAN};
    const char *const empty = "";
    mica_sampler *sampler = NULL;
    mica_sampling s;
    float logits[4] = {0};
    uint32_t id;
    (void)state;
#define BAD(field, value, word) \
    s = neutral();              \
    s.field = (value);          \
    refused(mica_sampler_create(&s, 8, NULL, NULL, &sampler), MICA_ERR_INVALID_ARGUMENT, word)
    BAD(size, 8, "size");
    BAD(temperature, -1, "temperature");
    BAD(temperature, NAN, "temperature");
    BAD(temperature, INFINITY, "temperature");
    BAD(top_p, 1.5f, "top_p");
    BAD(min_p, -0.1f, "min_p");
    BAD(typical_p, NAN, "typical_p");
    BAD(xtc_probability, 2, "xtc_probability");
    BAD(xtc_threshold, -1, "xtc_threshold");
    BAD(repeat_penalty, 0, "repeat_penalty");
    BAD(presence_penalty, NAN, "presence_penalty");
    BAD(frequency_penalty, INFINITY, "frequency_penalty");
    BAD(penalty_last, 0xffffffffu, "penalty_last");
    BAD(dry_multiplier, -1, "dry_multiplier");
    BAD(dry_base, 0.5f, "dry_base");
    BAD(dry_last, 0xffffffffu, "dry_last");
    BAD(mirostat, 1, "mirostat");
    BAD(mirostat_tau, -1, "mirostat_tau");
    BAD(bias_count, 1, "bias");
    s = neutral();
    s.bias_count = 1;
    s.bias = &far;
    refused(mica_sampler_create(&s, 8, NULL, NULL, &sampler), MICA_ERR_INVALID_ARGUMENT, "bias[0].id");
    s.bias = &nan;
    refused(mica_sampler_create(&s, 8, NULL, NULL, &sampler), MICA_ERR_INVALID_ARGUMENT, "bias[0].bias");
    s = neutral();
    s.dry_breakers = &empty;
    s.dry_breaker_count = 1;
    refused(mica_sampler_create(&s, 8, NULL, NULL, &sampler), MICA_ERR_INVALID_ARGUMENT, "dry_breakers[0]");
    s = neutral();
    refused(mica_sampler_create(&s, 0, NULL, NULL, &sampler), MICA_ERR_INVALID_ARGUMENT, "vocabulary");
    refused(mica_sampler_create(NULL, 8, NULL, NULL, &sampler), MICA_ERR_INVALID_ARGUMENT, "sampling");
    refused(mica_sampler_create(&s, 8, NULL, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "out_sampler");
    assert_null(sampler);
    sampler = make(&s, 4);
    refused(mica_sampler_accept(sampler, 4, 0), MICA_ERR_INVALID_ARGUMENT, "id is 4");
    refused(mica_sampler_pick(sampler, NULL, &id), MICA_ERR_INVALID_ARGUMENT, "logits");
    refused(mica_sampler_pick(NULL, logits, &id), MICA_ERR_INVALID_ARGUMENT, "sampler");
    mica_sampler_release(sampler);
    mica_sampler_release(NULL);
}

static mica_sampling busy(void)
{
    static const mica_logit_bias bias = {3, 1.0f};
    mica_sampling s;
    mica_sampling_default(&s);
    s.bias = &bias;
    s.bias_count = 1;
    s.repeat_penalty = 1.1f;
    s.dry_multiplier = 0.8f;
    s.typical_p = 0.9f;
    s.xtc_probability = 0.5f;
    return s;
}

static mica_status play(void *context)
{
    const float logits[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const mica_sampling s = busy();
    mica_sampler *sampler = NULL;
    uint32_t id;
    mica_status status = mica_sampler_create(&s, 9, NULL, NULL, &sampler);
    (void)context;
    if (status == MICA_OK)
        status = mica_sampler_pick(sampler, logits, &id);
    mica_sampler_release(sampler);
    return status;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    assert_true(rig_fail_allocations(play, NULL) > 5);
}

static void picking_allocates_nothing(void **state)
{
    test_random random = test_random_from(77);
    test_meter f = {0};
    float logits[TOKENS];
    const mica_sampling s = busy();
    mica_sampler *sampler;
    uint64_t before;
    (void)state;
    must(test_meter_set(&f));
    sampler = make(&s, TOKENS);
    before = f.calls;
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t id;
        random_logits(&random, logits, TOKENS);
        must(mica_sampler_pick(sampler, logits, &id));
        must(mica_sampler_accept(sampler, id, 1));
    }
    assert_int_equal(f.calls, before);
    mica_sampler_release(sampler);
    must(mica_set_allocator(NULL));
    assert_int_equal(f.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_probabilities),
        cmocka_unit_test(mirostat_follows_surprise),
        cmocka_unit_test(greedy_takes_the_highest),
        cmocka_unit_test(odd_logits_are_survived),
        cmocka_unit_test(seeds_repeat),
        cmocka_unit_test(selection_is_exact),
        cmocka_unit_test(chances_are_of_raw_logits),
        cmocka_unit_test(penalties_by_hand),
        cmocka_unit_test(dry_by_hand),
        cmocka_unit_test(dry_search_is_exact),
        cmocka_unit_test(bias_is_added),
        cmocka_unit_test(bad_fields_are_named),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(picking_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
