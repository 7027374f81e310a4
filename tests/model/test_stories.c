/*
 * test_stories.c - the trained model of stories_rig.h on the cpu: from GGUF in several types, as experts, and from the Hugging
 * Face folder; in one chunk and in many, with one thread and with two.
 */
#include "stories_rig.h"

/* Of the largest |logit| of a row. Float32 on both sides, 5 layers of sums over at most 172 terms; 1e-6 was seen. The
 * numpy program wrote five digits behind the point, which is 5e-6 / 10. */
#define NEAR 1e-4

static const char *const files[] = {"stories260K-f32.gguf", "stories260K-f16.gguf",
                                    "stories260K-h256-Q8_0.gguf", "stories260K-as-moe-4x2-f32.gguf"};
static const uint32_t chunks[] = {1, 7, STORIES_CAPACITY}, threads[] = {1, 2};

static void text_is_the_expected_one(void **state)
{
    const stories *s = stories_need(state);
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++)
        for (size_t t = 0; t < 2; t++) {
            rig r = stories_open(s, "cpu", files[f], threads[t]);
            for (size_t c = 0; c < 3; c++)
                stories_check_text(s, files[f], &r, chunks[c]);
            rig_close(&r);
        }
}

/* The folder has no tokenizer: by ids, from the first one and from the middle of the text. */
static void ids_are_those_of_the_reference(void **state)
{
    static const char *const forms[] = {"hf", "stories260K-f32.gguf", "stories260K-as-moe-4x2-f32.gguf"};
    const stories *s = stories_need(state);
    assert_true(s->count >= 200);
    for (size_t f = 0; f < 3; f++)
        for (size_t t = 0; t < 2; t++) {
            rig r = stories_open(s, "cpu", forms[f], threads[t]);
            stories_check_ids(&r, forms[f], s->ids, 1, s->count, 1, STORIES_LIKELIEST);
            for (size_t c = 0; c < 3; c++)
                stories_check_ids(&r, forms[f], s->ids, 90, s->count, chunks[c], STORIES_LIKELIEST);
            rig_close(&r);
        }
}

static void logits_are_those_of_the_reference(void **state)
{
    static const char *const forms[] = {"hf", "stories260K-f32.gguf", "stories260K-as-moe-4x2-f32.gguf"};
    const mica_context_options exact = {.capacity = 64, .cache_k = MICA_DTYPE_F32, .cache_v = MICA_DTYPE_F32};
    const stories *s = stories_need(state);
    assert_int_equal(s->rows, 4);
    for (size_t f = 0; f < 3; f++) {
        rig r = stories_open(s, "cpu", forms[f], 2);
        mica_context *context;
        float logits[4 * STORIES_VOCABULARY];
        must(mica_context_create(r.model, &exact, &context));
        rig_logits(context, &r, rig_sequence(context), s->ids, 4, 4, logits);
        for (uint32_t row = 0; row < 4; row++) {
            const double apart = golden_distance(logits + row * STORIES_VOCABULARY,
                                                 s->logits + row * STORIES_VOCABULARY, STORIES_VOCABULARY);
            if (!(apart <= NEAR))
                fail_msg("%s: the logits at %u are %.3g of the largest away", forms[f], row, apart);
        }
        mica_context_release(context);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_the_expected_one),
        cmocka_unit_test(ids_are_those_of_the_reference),
        cmocka_unit_test(logits_are_those_of_the_reference),
    };
    return cmocka_run_group_tests_name("stories", tests, stories_setup, stories_teardown);
}
