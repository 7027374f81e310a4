/* test_sample_text.c: samplers that know the text of tokens: DRY breakers, and grammars inside a sampler. */
#include "model/grammar_rig.h"

#include <math.h>

#include "text/tokenizer/tokenizer.h"

enum { A, B, C, LINE, QUOTE, AB, STOP, NOTE_A, NOTE_B, HALF, OTHER_HALF, END, TOKENS };

/* A byte-level vocabulary of twelve tokens, two of them halves of a character. */
static mica_tokenizer *tokens(void)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":11,\"content\":\"<|im_end|>\",\"single_word\":false,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false,\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":{"
        "\"type\":"
        "\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},\"post_"
        "processor\":null,"
        "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":"
        "true},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"\\u010a\":3,\"\\\"\":4,\"ab\":5,"
        "\".\":6,\"#\":7,\"!c\":8,\"\\u00c3\":9,\"\\u00a9\":10,\"<|im_end|>\":11},\"merges\":[[\"a\",\"b\"]]}"
        "}";
    mica_tokenizer *tokenizer = NULL;
    must(mica__tokenizer_from_json(NULL, json, sizeof json - 1, &tokenizer));
    return tokenizer;
}

static mica_sampling dry(void)
{
    mica_sampling s;
    mica_sampling_default(&s);
    s.temperature = 1.0f;
    s.top_k = 0;
    s.top_p = 1.0f;
    s.min_p = 0.0f;
    s.dry_multiplier = 1.0f;
    s.dry_base = 2.0f;
    s.dry_allowed = 1;
    return s;
}

/* What DRY takes off each token after a text, all logits being 0 and END never taken off. */
static void check_dry(const mica_sampling *s, const mica_tokenizer *tokenizer, const uint32_t *text,
                      size_t count, const double *expected)
{
    const float logits[TOKENS] = {0};
    mica_token_chance got[TOKENS];
    double end = 0;
    mica_sampler *sampler = NULL;
    uint32_t id, left;
    must(mica_sampler_create(s, TOKENS, tokenizer, NULL, &sampler));
    for (size_t i = 0; i < count; i++)
        must(mica_sampler_accept(sampler, text[i], 0));
    must(mica_sampler_pick(sampler, logits, &id));
    must(mica_sampler_candidates(sampler, got, TOKENS, &left));
    assert_int_equal(left, TOKENS);
    for (uint32_t i = 0; i < TOKENS; i++)
        end = got[i].id == END ? (double)got[i].log_probability : end;
    for (uint32_t i = 0; i < TOKENS; i++)
        if (fabs(end - (double)got[i].log_probability - expected[got[i].id]) > 1e-5)
            fail_msg("token %u: %g taken off, expected %g", got[i].id, end - (double)got[i].log_probability,
                     expected[got[i].id]);
    mica_sampler_release(sampler);
}

static void breakers_end_a_repetition(void **state)
{
    static const char *const custom[] = {"#!"};
    mica_sampling s = dry();
    mica_tokenizer *tokenizer = tokens();
    const uint32_t plain[] = {A, B, C, A, B};
    const uint32_t broken[] = {A, B, C, A, LINE, B, A, LINE, B};
    const uint32_t breaker_next[] = {A, LINE, C, A};
    const uint32_t spans[] = {A, NOTE_A, NOTE_B, B, A, NOTE_A, NOTE_B, B};
    const uint32_t not_spans[] = {A, NOTE_B, B, C, A, NOTE_B, B};
    (void)state;
    check_dry(&s, tokenizer, plain, 5, (double[TOKENS]){[C] = 2});
    /* Only the B after the line counts: it was followed by C, and by A. */
    check_dry(&s, tokenizer, broken, 9, (double[TOKENS]){[C] = 1, [A] = 1});
    /* A line end would continue the repetition, but is a breaker itself. */
    check_dry(&s, tokenizer, breaker_next, 4, (double[TOKENS]){0});
    /* A breaker over two tokens breaks where it ends. */
    s.dry_breakers = custom;
    s.dry_breaker_count = 1;
    check_dry(&s, tokenizer, spans, 8, (double[TOKENS]){[A] = 1});
    check_dry(&s, tokenizer, not_spans, 7, (double[TOKENS]){[C] = 4});
    check_dry(&s, tokenizer, breaker_next, 4, (double[TOKENS]){[LINE] = 1});
    /* None at all. */
    s.dry_breaker_count = 0;
    check_dry(&s, tokenizer, breaker_next, 4, (double[TOKENS]){[LINE] = 1});
    mica_tokenizer_release(tokenizer);
}

/* Whatever the logits want, the text matches, and the end comes only where it may. */
static void grammar_rules(void **state)
{
    static const char gbnf[] = "root ::= \"\\\"\" ([abc]{2} \"\\n\")* \"ab\"? \"\\\"\"";
    test_random random = test_random_from(12);
    mica_tokenizer *tokenizer = tokens();
    mica_grammar *grammar = NULL;
    mica_sampler *sampler = NULL;
    mica_sampling s;
    (void)state;
    must(mica_grammar_create(gbnf, sizeof gbnf - 1, NULL, &grammar));
    mica_sampling_default(&s);
    must(mica_sampler_create(&s, TOKENS + 5, tokenizer, grammar, &sampler)); /* logits are padded */
    for (uint32_t round = 0; round < 300; round++) {
        static const char *const pieces[] = {"a", "b", "c", "\n", "\"", "ab", ".", "#", "!c"};
        char text[512] = "";
        uint32_t id = 0;
        for (uint32_t step = 0; step < 100 && id != END; step++) {
            float logits[TOKENS + 5];
            for (uint32_t i = 0; i < TOKENS + 5; i++)
                logits[i] =
                    (float)(3 * test_random_normal(&random)) + (i == STOP || i >= TOKENS ? 20.0f : 0.0f);
            must(mica_sampler_pick(sampler, logits, &id));
            must(mica_sampler_accept(sampler, id, 1));
            if (id != END)
                strcat(text, pieces[id]);
        }
        const size_t length = strlen(text);
        size_t at = 1;
        assert_true(length >= 2 && text[0] == '"');
        while (at + 3 <= length && text[at + 2] == '\n') {
            assert_true(strchr("abc", text[at]) != NULL && strchr("abc", text[at + 1]) != NULL);
            at += 3;
        }
        if (strncmp(text + at, "ab", 2) == 0)
            at += 2;
        if (id == END)
            assert_string_equal(text + at, "\"");
        mica_sampler_reset(sampler);
    }
    refused(mica_sampler_accept(sampler, STOP, 1), MICA_ERR_INVALID_ARGUMENT, "does not admit");
    must(mica_sampler_accept(sampler, STOP, 0)); /* outside the grammar anything goes */
    mica_sampler_release(sampler);
    refused(mica_sampler_create(&s, TOKENS - 1, tokenizer, NULL, &sampler), MICA_ERR_INVALID_ARGUMENT,
            "vocabulary");
    refused(mica_sampler_create(&s, TOKENS, NULL, grammar, &sampler), MICA_ERR_INVALID_ARGUMENT, "tokenizer");
    mica_grammar_release(grammar);
    mica_tokenizer_release(tokenizer);
    assert_int_equal(mica_host_bytes(), 0);
}

/* A grammar remembers the vocabulary of the last tokenizer, whoever releases what first. */
static void vocabularies_are_kept(void **state)
{
    mica_tokenizer *first = tokens(), *second = tokens();
    mica_grammar *grammar = NULL;
    mica_grammar_state *states[3] = {NULL};
    uint32_t mask[1];
    (void)state;
    must(mica_grammar_create("root ::= \"ab\"", 13, NULL, &grammar));
    must(mica_grammar_begin(grammar, first, &states[0]));
    must(mica_grammar_begin(grammar, first, &states[1]));
    refused(mica_grammar_begin(grammar, NULL, &states[2]), MICA_ERR_INVALID_ARGUMENT, "tokenizer");
    must(mica_grammar_begin(grammar, second, &states[2]));
    mica_grammar_release(grammar);
    mica_tokenizer_release(first);
    mica_tokenizer_release(second);
    for (size_t i = 0; i < 3; i++) {
        must(mica_grammar_mask(states[i], mask, 1));
        assert_int_equal(mask[0], 1u << A | 1u << AB);
        mica_grammar_state_release(states[i]);
    }
}

/* Halves of a character are admitted in their order, and only where the character is. */
static void halves_of_characters(void **state)
{
    mica_tokenizer *tokenizer = tokens();
    mica_grammar *grammar = NULL;
    mica_grammar_state *s = NULL;
    uint32_t mask[1];
    (void)state;
    must(mica_grammar_create("root ::= \"\\u00e9\" \"c\"", 21, NULL, &grammar));
    must(mica_grammar_begin(grammar, tokenizer, &s));
    must(mica_grammar_mask(s, mask, 1));
    assert_int_equal(mask[0], 1u << HALF);
    must(mica_grammar_accept(s, HALF));
    must(mica_grammar_mask(s, mask, 1));
    assert_int_equal(mask[0], 1u << OTHER_HALF);
    refused(mica_grammar_accept(s, C), MICA_ERR_INVALID_ARGUMENT, "does not admit");
    must(mica_grammar_accept(s, OTHER_HALF));
    must(mica_grammar_accept(s, C));
    must(mica_grammar_mask(s, mask, 1));
    assert_int_equal(mask[0], 1u << END);
    mica_grammar_state_release(s);
    mica_grammar_release(grammar);
    mica_tokenizer_release(tokenizer);
}

static mica_status play(void *context)
{
    const mica_sampling s = dry();
    const float logits[TOKENS] = {0};
    mica_sampler *sampler = NULL;
    mica_grammar *grammar = NULL;
    mica_tokenizer *tokenizer = context;
    uint32_t id;
    mica_status status = mica_grammar_create("root ::= [ abc]{3}", 18, NULL, &grammar);
    if (status == MICA_OK)
        status = mica_sampler_create(&s, TOKENS, tokenizer, grammar, &sampler);
    if (status == MICA_OK)
        status = mica_sampler_pick(sampler, logits, &id);
    if (status == MICA_OK)
        status = mica_sampler_accept(sampler, id, 1);
    mica_sampler_release(sampler);
    mica_grammar_release(grammar);
    return status;
}

static mica_status play_all(void *context)
{
    static const char json[] = "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":"
                               "3,\"e\":4,\"f\":5,\"g\":6,\"h\":7,"
                               "\"i\":8,\"j\":9,\"k\":10,\"l\":11},\"unk_token\":\"a\"}}";
    mica_tokenizer *tokenizer = NULL;
    mica_status status = mica__tokenizer_from_json(NULL, json, sizeof json - 1, &tokenizer);
    (void)context;
    if (status == MICA_OK)
        status = play(tokenizer);
    mica_tokenizer_release(tokenizer);
    return status;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    assert_true(rig_fail_allocations(play_all, NULL) > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(breakers_end_a_repetition), cmocka_unit_test(grammar_rules),
        cmocka_unit_test(vocabularies_are_kept),     cmocka_unit_test(halves_of_characters),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
