/*
 * test_next.c - the decode step that chooses its token on the device: against the sampler on the host, alone and in company,
 * over threads, without allocation, and with everything that a caller can get wrong.
 */
#include <math.h>
#include <stdatomic.h>

#include "grammar_rig.h"
#include "model_rig.h"
#include "support/sanitizer.h"

#define CAPACITY 256u
#define SETTINGS 40u
#define PICKS (TEST_ANY_SANITIZER ? 12u : 60u)

static mica_sampling plain(uint64_t seed)
{
    mica_sampling s;
    mica_sampling_default(&s);
    s.seed = seed;
    return s;
}

static mica_sampler *sampler_of(const rig *r, const mica_sampling *sampling)
{
    mica_sampler *sampler = NULL;
    must(mica_sampler_create(sampling, r->info.vocabulary, NULL, NULL, &sampler));
    return sampler;
}

static uint32_t next(mica_context *context, uint32_t sequence, mica_sampler *sampler, const uint32_t *tokens,
                     uint32_t count)
{
    mica_next item = {.sequence = sequence, .tokens = tokens, .count = count, .sampler = sampler};
    must(mica_context_next(context, &item, 1));
    assert_true(item.id != MICA_NO_TOKEN);
    return item.id;
}

/* Filters of every kind, several at once; `bias` is [3]. Every fifth is greedy. */
static mica_sampling draw_sampling(const rig *r, uint32_t number, mica_logit_bias *bias)
{
    test_random random = test_random_from(100 + number);
    mica_sampling s = plain(number * 7919u);
    s.temperature = number % 5 == 0 ? 0.0f : (float)test_random_uniform(&random, 0.2, 2);
    s.top_k = test_random_one_in(&random, 2) ? 0 : 1 + (uint32_t)test_random_below(&random, 50);
    s.top_p = test_random_one_in(&random, 2) ? 1.0f : (float)test_random_uniform(&random, 0.3, 1);
    s.min_p = test_random_one_in(&random, 2) ? 0.0f : (float)test_random_uniform(&random, 0, 0.3);
    s.typical_p = test_random_one_in(&random, 3) ? (float)test_random_uniform(&random, 0.3, 1) : 1.0f;
    s.keep_at_least = (uint32_t)test_random_below(&random, 4);
    if (test_random_one_in(&random, 2)) {
        s.repeat_penalty = (float)test_random_uniform(&random, 0.8, 1.5);
        s.presence_penalty = (float)test_random_uniform(&random, -0.5, 1);
        s.frequency_penalty = (float)test_random_uniform(&random, -0.2, 0.5);
        s.penalty_last = 1 + (uint32_t)test_random_below(&random, 90);
    }
    for (uint32_t i = 0; i < 3; i++)
        bias[i] = (mica_logit_bias){(uint32_t)test_random_below(&random, r->info.vocabulary),
                                    i == 0 ? -INFINITY : (float)test_random_normal(&random)};
    s.bias = bias;
    s.bias_count = test_random_one_in(&random, 3) ? 3 : 0;
    return s;
}

/* The host adds up in f64 and the op in f32: where a sum meets its bound to seven digits they may part. Greedy texts
 * never do: their penalties are the same arithmetic. */
static void device_and_host_choose_the_same(void **state)
{
    static const char *const names[] = {"llama", "qwen3moe"};
    uint32_t differ = 0, all = 0;
    (void)state;
    for (uint32_t n = 0; n < SETTINGS; n++) {
        rig r = rig_open(names[n % 2], 2);
        mica_context *device = rig_context(&r, CAPACITY, 1, 64), *host = rig_context(&r, CAPACITY, 1, 64);
        const uint32_t d = rig_sequence(device), h = rig_sequence(host);
        mica_logit_bias bias[3];
        const mica_sampling s = draw_sampling(&r, n, bias);
        mica_sampler *on_device = sampler_of(&r, &s), *on_host = sampler_of(&r, &s);
        uint32_t prompt[50], count = n % 2 == 0 ? 50 : 9, *tokens = prompt, token = 0;
        rig_tokens(&r, n, prompt, 50);
        for (uint32_t i = 0; i < PICKS; i++, all++, tokens = &token, count = 1) {
            const mica_feed feed = {h, tokens, count, MICA_WANT_LAST};
            const uint32_t got = next(device, d, on_device, tokens, count);
            must(mica_context_feed(host, &feed, 1));
            must(mica_context_sample(host, h, on_host, &token));
            differ += got != token;
            if (got != token && s.temperature == 0.0f)
                fail_msg("settings %u, pick %u: greedy took %u and %u", n, i, got, token);
            must(mica_sampler_accept(on_device, token, 1)); /* both go on with the host's */
            must(mica_sampler_accept(on_host, token, 1));
        }
        mica_sampler_release(on_device);
        mica_sampler_release(on_host);
        mica_context_release(device);
        mica_context_release(host);
        rig_close(&r);
    }
    print_message("%u of %u picks differ\n", differ, all);
    assert_true(differ <= all / 1000);
}

/* The model inside the tool has a tokenizer. The grammar of each sampler moves on by itself and refuses what it does not
 * admit. */
static void grammars_give_masks(void **state)
{
    static const char text[] = "root ::= [a-z]+ (\" \" [a-z]+){2,3} \".\"";
    rig r = {0};
    mica_grammar *grammar = NULL;
    mica_sampler *sampler[2];
    uint32_t token = 1, id = 0, told = 0;
    (void)state;
    must(mica_device_open("cpu", NULL, &r.device));
    must(mica_model_open("models/demo.gguf", r.device, NULL, &r.model));
    must(mica_model_get_info(r.model, &r.info));
    must(mica_grammar_create(text, strlen(text), NULL, &grammar));
    for (uint32_t seed = 0; seed < 5; seed++) {
        mica_context *context = rig_context(&r, CAPACITY, 1, 64);
        const uint32_t sequence = rig_sequence(context);
        const mica_sampling s = plain(seed);
        const float *logits;
        uint32_t rows;
        for (uint32_t i = 0; i < 2; i++)
            must(mica_sampler_create(&s, r.info.vocabulary, mica_model_tokenizer(r.model), grammar,
                                     &sampler[i]));
        for (uint32_t i = 0; i < 30; i++, told++) {
            mica_next item = {.sequence = sequence,
                              .tokens = &token,
                              .count = 1,
                              .flags = MICA_NEXT_LOGITS,
                              .sampler = sampler[0]};
            must(mica_context_next(context, &item, 1));
            must(mica_context_logits(context, sequence, &logits, &rows));
            must(mica_sampler_pick(sampler[1], logits, &id));
            assert_int_equal(item.id, id);
            if (mica_tokenizer_is_end(mica_model_tokenizer(r.model), id))
                break;
            must(mica_sampler_accept(sampler[0], id, 1));
            must(mica_sampler_accept(sampler[1], id, 1));
            token = id;
        }
        mica_sampler_release(sampler[0]);
        mica_sampler_release(sampler[1]);
        mica_context_release(context);
    }
    assert_true(told > 25);
    mica_grammar_release(grammar);
    rig_close(&r);
}

/* ---- company -------------------------------------------------------------------------------------------- */

enum { COMPANY = 7 };

/* Of each kind one: greedy, filtered, penalised, biased, and three that the host does. */
static mica_sampling kind_of(uint32_t kind, mica_logit_bias *bias)
{
    mica_sampling s = plain(1000 + kind);
    *bias = (mica_logit_bias){7, 4.0f};
    s.temperature = kind == 0 ? 0.0f : 1.3f;
    s.repeat_penalty = kind == 2 ? 1.4f : 1.0f;
    s.frequency_penalty = kind == 2 ? 0.3f : 0.0f;
    s.bias = bias;
    s.bias_count = kind == 3;
    s.mirostat = kind == 4 ? 2 : 0;
    s.dry_multiplier = kind == 5 ? 0.8f : 0.0f;
    s.xtc_probability = kind == 6 ? 0.5f : 0.0f;
    return s;
}

/* `count` sequences from kind `first` on in one context, 30 tokens of each. */
static void tell(uint32_t threads, uint32_t first, uint32_t count, uint32_t out[][30], float chances[][30])
{
    rig r = rig_open("llama", threads);
    mica_context *context = rig_context(&r, 1024, COMPANY, 64);
    mica_next items[COMPANY] = {0};
    uint32_t tokens[COMPANY][20];
    for (uint32_t i = 0; i < count; i++) {
        mica_logit_bias bias;
        const mica_sampling s = kind_of(first + i, &bias);
        rig_tokens(&r, first + i, tokens[i], 20);
        items[i] = (mica_next){.sequence = rig_sequence(context),
                               .tokens = tokens[i],
                               .count = 10 + first + i,
                               .flags = MICA_NEXT_LOG_PROBABILITY,
                               .sampler = sampler_of(&r, &s)};
    }
    for (uint32_t t = 0; t < 30; t++) {
        must(mica_context_next(context, items, count));
        for (uint32_t i = 0; i < count; i++) {
            must(mica_sampler_accept(items[i].sampler, items[i].id, 1));
            out[i][t] = tokens[i][0] = items[i].id;
            chances[i][t] = items[i].log_probability;
            items[i].count = 1;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        mica_sampler_release(items[i].sampler);
    mica_context_release(context);
    rig_close(&r);
}

static void company_and_threads_change_nothing(void **state)
{
    static uint32_t alone[COMPANY][30], together[COMPANY][30];
    static float alone_chances[COMPANY][30], together_chances[COMPANY][30];
    (void)state;
    for (uint32_t i = 0; i < COMPANY; i++)
        tell(1, i, 1, &alone[i], &alone_chances[i]);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        tell(threads, 0, COMPANY, together, together_chances);
        assert_memory_equal(alone, together, sizeof alone);
        for (uint32_t i = 0; i < 4; i++) /* the ops'; the host's are of f64 sums, whatever the company */
            assert_memory_equal(alone_chances[i], together_chances[i], sizeof alone_chances[i]);
    }
}

/* ---- what else comes back ------------------------------------------------------------------------------- */

static void log_probabilities_are_of_the_raw_logits(void **state)
{
    rig r = rig_open("llama", 2);
    mica_context *context = rig_context(&r, 128, 1, 64);
    mica_sampling s = plain(3);
    const uint32_t sequence = rig_sequence(context);
    uint32_t token = 5;
    (void)state;
    s.temperature = 2.0f;
    s.repeat_penalty = 1.5f;
    for (uint32_t trial = 0; trial < 2; trial++) {
        s.xtc_probability = trial == 0 ? 0.0f : 0.3f;
        mica_sampler *sampler = sampler_of(&r, &s);
        mica_token_chance *all = test_alloc(r.info.vocabulary, sizeof *all);
        for (uint32_t i = 0; i < 30; i++) {
            const float *logits;
            uint32_t rows;
            float wanted = 0;
            mica_next item = {.sequence = sequence,
                              .tokens = &token,
                              .count = 1,
                              .flags = MICA_NEXT_LOG_PROBABILITY | MICA_NEXT_LOGITS,
                              .sampler = sampler};
            must(mica_context_next(context, &item, 1));
            must(mica_context_logits(context, sequence, &logits, &rows));
            assert_int_equal(rows, 1);
            must(mica_sampler_chances(sampler, logits, r.info.vocabulary, all));
            for (uint32_t k = 0; k < r.info.vocabulary; k++)
                if (all[k].id == item.id)
                    wanted = all[k].log_probability;
            assert_true(fabsf(item.log_probability - wanted) < 1e-4f);
            token = item.id;
            must(mica_sampler_accept(sampler, token, 1));
        }
        free(all);
        mica_sampler_release(sampler);
    }
    mica_context_release(context);
    rig_close(&r);
}

static void without_the_flag_no_logits_are_read(void **state)
{
    rig r = rig_open("llama", 1);
    mica_context *context = rig_context(&r, 64, 1, 64);
    const mica_sampling s = plain(1);
    mica_sampler *sampler = sampler_of(&r, &s);
    const uint32_t sequence = rig_sequence(context), token = 3;
    const float *logits;
    uint32_t rows;
    mica_context_info info;
    (void)state;
    for (uint32_t i = 0; i < 5; i++)
        (void)next(context, sequence, sampler, &token, 1);
    refused(mica_context_logits(context, sequence, &logits, &rows), MICA_ERR_STATE, "no logits");
    must(mica_context_get_info(context, &info));
    assert_int_equal(info.recordings, 1); /* the same for every step */
    mica_sampler_release(sampler);
    mica_context_release(context);
    rig_close(&r);
}

/* ---- memory --------------------------------------------------------------------------------------------- */

static void a_step_allocates_nothing(void **state)
{
    test_meter meter = {0};
    (void)state;
    must(test_meter_set(&meter));
    for (uint32_t kind = 0; kind < COMPANY; kind++) {
        rig r = rig_open("llama", 2);
        mica_context *context = rig_context(&r, 256, 1, 64);
        const uint32_t sequence = rig_sequence(context);
        mica_logit_bias bias;
        const mica_sampling s = kind_of(kind, &bias);
        mica_sampler *sampler = sampler_of(&r, &s);
        uint32_t token = 5;
        uint64_t before = 0;
        for (uint32_t i = 0; i < 103; i++) {
            if (i == 3)
                before = atomic_load(&meter.calls);
            token = next(context, sequence, sampler, &token, 1);
            must(mica_sampler_accept(sampler, token, 1));
        }
        if (atomic_load(&meter.calls) != before)
            fail_msg("kind %u: 100 tokens made %llu allocations", kind,
                     (unsigned long long)(atomic_load(&meter.calls) - before));
        mica_sampler_release(sampler);
        mica_context_release(context);
        rig_close(&r);
    }
    must(mica_set_allocator(NULL));
}

static mica_status use(const rig *r)
{
    const mica_context_options options = {.capacity = 64, .sequences = 1, .batch = 64};
    mica_logit_bias bias = {3, 1.0f};
    mica_sampling s = plain(2);
    mica_context *context = NULL;
    mica_sampler *sampler = NULL;
    uint32_t sequence = 0, tokens[40] = {1, 2, 3};
    s.repeat_penalty = 1.2f;
    s.bias = &bias;
    s.bias_count = 1;
    mica_status status = mica_context_create(r->model, &options, &context);
    if (status == MICA_OK)
        status = mica_sampler_create(&s, r->info.vocabulary, NULL, NULL, &sampler);
    if (status == MICA_OK)
        status = mica_sequence_create(context, &sequence);
    for (uint32_t i = 0; i < 2 && status == MICA_OK; i++) { /* a pass that is kept, and one that is not */
        mica_next item = {.sequence = sequence,
                          .tokens = tokens,
                          .count = i == 0 ? 1 : 40,
                          .flags = MICA_NEXT_LOG_PROBABILITY | MICA_NEXT_LOGITS,
                          .sampler = sampler};
        status = mica_context_next(context, &item, 1);
        assert_true((status == MICA_OK) == (item.id != MICA_NO_TOKEN));
    }
    mica_sampler_release(sampler);
    mica_context_release(context);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    test_meter meter = {0};
    (void)state;
    must(test_meter_set(&meter));
    rig r = rig_open("llama", 1);
    test_meter_allow(&meter, UINT64_MAX);
    must(use(&r));
    const uint64_t all = atomic_load(&meter.calls);
    const uint64_t step =
        TEST_THREAD_SANITIZER ? 16 : 1; /* with one thread there is nothing that it could see */
    for (uint64_t i = 0; i < all; i += step) {
        test_meter_allow(&meter, i);
        const mica_status status = use(&r);
        test_meter_allow(&meter, UINT64_MAX);
        if (status != MICA_OK)
            assert_int_equal(status, MICA_ERR_OUT_OF_MEMORY);
    }
    rig_close(&r);
    assert_int_equal(mica_host_allocations(), 0);
    must(mica_set_allocator(NULL));
}

/* ---- wrong calls ---------------------------------------------------------------------------------------- */

static void wrong_calls_are_refused(void **state)
{
    rig r = rig_open("llama", 1);
    mica_context *context = rig_context(&r, 64, 2, 64);
    mica_sampling s = plain(1);
    mica_sampler *sampler = sampler_of(&r, &s), *narrow = NULL, *none = NULL;
    mica_logit_bias *forbidden = test_alloc(r.info.vocabulary, sizeof *forbidden);
    const uint32_t sequence = rig_sequence(context), other = rig_sequence(context), token = 3;
    uint32_t count, id;
    mica_next item = {.sequence = sequence, .tokens = &token, .count = 1, .sampler = sampler};
    mica_next twice[3] = {item, item, item};
    (void)state;
    must(mica_sampler_create(&s, r.info.vocabulary - 1, NULL, NULL, &narrow));
    refused(mica_context_next(NULL, &item, 1), MICA_ERR_INVALID_ARGUMENT, "context");
    refused(mica_context_next(context, NULL, 1), MICA_ERR_INVALID_ARGUMENT, "items");
    refused(mica_context_next(context, twice, 3), MICA_ERR_INVALID_ARGUMENT, "count");
    twice[1].sequence = other;
    refused(mica_context_next(context, twice, 2), MICA_ERR_INVALID_ARGUMENT, "same sampler");
    item.sampler = NULL;
    refused(mica_context_next(context, &item, 1), MICA_ERR_INVALID_ARGUMENT, "sampler");
    item.sampler = narrow;
    refused(mica_context_next(context, &item, 1), MICA_ERR_INVALID_ARGUMENT, "vocabulary");
    item.sampler = sampler;
    item.count = 0;
    refused(mica_context_next(context, &item, 1), MICA_ERR_INVALID_ARGUMENT, "no tokens");
    item.count = 1;
    item.sequence = 9;
    refused(mica_context_next(context, &item, 1), MICA_ERR_INVALID_ARGUMENT, "sequence 9");
    item.sequence = sequence;
    must(mica_sequence_tokens(context, sequence, NULL, 0, &count));
    assert_int_equal(count, 0);
    must(mica_context_next(context, &item, 0)); /* nothing to do */

    for (uint32_t i = 0; i < r.info.vocabulary; i++)
        forbidden[i] = (mica_logit_bias){i, -INFINITY};
    s.bias = forbidden;
    s.bias_count = r.info.vocabulary;
    none = sampler_of(&r, &s);
    item.sampler = none;
    refused(mica_context_next(context, &item, 1), MICA_ERR_INVALID_ARGUMENT, "forbidden");
    assert_int_equal(item.id, MICA_NO_TOKEN);
    must(mica_sequence_tokens(context, sequence, NULL, 0, &count));
    assert_int_equal(count, 1); /* fed, though nothing followed */

    must(mica_context_feed(context, &(mica_feed){other, &token, 1, MICA_WANT_LAST}, 1));
    refused(mica_context_sample(context, other, narrow, &id), MICA_ERR_INVALID_ARGUMENT, "vocabulary");
    refused(mica_context_sample(context, other, NULL, &id), MICA_ERR_INVALID_ARGUMENT, "sampler");
    must(mica_context_cancel(context));
    item.sampler = sampler;
    refused(mica_context_next(context, &item, 1), MICA_ERR_CANCELLED, "cancelled");
    free(forbidden);
    mica_sampler_release(sampler);
    mica_sampler_release(narrow);
    mica_sampler_release(none);
    mica_context_release(context);
    rig_close(&r);
}

/* Which of the items failed is told by their own statuses; the others get their tokens where anything was fed. */
static void items_have_statuses(void **state)
{
    rig r = rig_open("llama", 1);
    mica_context *context = rig_context(&r, 64, 4, 64);
    mica_sampling s = plain(1), nothing = plain(2);
    mica_logit_bias *forbidden = test_alloc(r.info.vocabulary, sizeof *forbidden);
    const uint32_t good = 3, bad = r.info.vocabulary;
    uint32_t long_one[60] = {0}, count;
    mica_next items[4];
    (void)state;
    for (uint32_t i = 0; i < r.info.vocabulary; i++)
        forbidden[i] = (mica_logit_bias){i, -INFINITY};
    nothing.bias = forbidden;
    nothing.bias_count = r.info.vocabulary;
    for (uint32_t i = 0; i < 4; i++)
        items[i] = (mica_next){.sequence = rig_sequence(context),
                               .tokens = &good,
                               .count = 1,
                               .sampler = sampler_of(&r, i == 2 ? &nothing : &s)};
    /* Wrong tokens, unknown flags, a wrong sampler: all are marked, nothing is fed. */
    mica_sampler *kept = items[3].sampler;
    items[1].tokens = &bad;
    items[3].sampler = NULL;
    refused(mica_context_next(context, items, 4), MICA_ERR_INVALID_ARGUMENT, "item 3: sampler is NULL");
    assert_int_equal(items[3].status, MICA_ERR_INVALID_ARGUMENT);
    items[3].sampler = kept;
    items[3].flags = 64;
    refused(mica_context_next(context, items, 4), MICA_ERR_INVALID_ARGUMENT, "item 3: flags is 0x40");
    items[3].flags = 0;
    items[2].count = 0;
    refused(mica_context_next(context, items, 4), MICA_ERR_INVALID_ARGUMENT, "token 0 of feed 1");
    assert_int_equal(items[0].status, MICA_OK);
    assert_int_equal(items[1].status, MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(items[2].status, MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(items[3].status, MICA_OK);
    items[2].count = 1;
    items[1].tokens = &good;
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(items[i].id, MICA_NO_TOKEN);
        must(mica_sequence_tokens(context, items[i].sequence, NULL, 0, &count));
        assert_int_equal(count, 0);
    }
    /* One that has nothing to choose: the others have their tokens. */
    refused(mica_context_next(context, items, 4), MICA_ERR_INVALID_ARGUMENT, "forbidden");
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(items[i].status, i == 2 ? MICA_ERR_INVALID_ARGUMENT : MICA_OK);
        assert_int_equal(items[i].id == MICA_NO_TOKEN, i == 2);
    }
    /* No room for one: it is told so, and the call without it succeeds. */
    items[1].tokens = long_one;
    items[1].count = 60;
    must(mica_context_feed(context, &(mica_feed){items[1].sequence, long_one, 50, MICA_WANT_NONE}, 1));
    refused(mica_context_next(context, items, 2), MICA_ERR_FULL, "full");
    assert_int_equal(items[0].status, MICA_OK);
    assert_int_equal(items[1].status, MICA_ERR_FULL);
    must(mica_context_next(context, items, 1));
    /* What is no item's own stands in all. */
    items[1].count = 1;
    must(mica_context_cancel(context));
    refused(mica_context_next(context, items, 2), MICA_ERR_CANCELLED, "context_next: cancelled");
    assert_int_equal(items[0].status, MICA_ERR_CANCELLED);
    assert_int_equal(items[1].status, MICA_ERR_CANCELLED);
    for (uint32_t i = 0; i < 4; i++)
        mica_sampler_release(items[i].sampler);
    free(forbidden);
    mica_context_release(context);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_and_host_choose_the_same),
        cmocka_unit_test(grammars_give_masks),
        cmocka_unit_test(company_and_threads_change_nothing),
        cmocka_unit_test(log_probabilities_are_of_the_raw_logits),
        cmocka_unit_test(without_the_flag_no_logits_are_read),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(items_have_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
