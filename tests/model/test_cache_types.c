/*
 * test_cache_types.c - contexts with caches of every type on the demo model, whose heads of 64 are two blocks: the bits do not depend on chunks, and logits
 * are as far from those over a cache of f32 as the type is coarse; and keys without their mean, which a cache that is exact does not notice.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "model_rig.h"

#define TOKENS 40u
#define CAPACITY 64u

/* The root of the mean square of the difference, in parts of that of the logits: about twice what was seen. */
static const struct {
    mica_dtype k, v;
    double most;
} kinds[] = {
    {MICA_DTYPE_F16, MICA_DTYPE_F16, 0.05},   {MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, 0.08},
    {MICA_DTYPE_Q5_0, MICA_DTYPE_Q5_1, 0.25}, {MICA_DTYPE_Q5_1, MICA_DTYPE_Q5_0, 0.25},
    {MICA_DTYPE_Q4_0, MICA_DTYPE_Q4_0, 0.5},  {MICA_DTYPE_Q4_1, MICA_DTYPE_IQ4_NL, 0.5},
    {MICA_DTYPE_IQ4_NL, MICA_DTYPE_F16, 0.5},
};

/* Logits of all tokens, fed `chunk` at a time. */
static float *logits_of(const rig *r, mica_dtype k, mica_dtype v, mica_centre centre, uint32_t chunk)
{
    const mica_context_options options = {
        .capacity = CAPACITY, .cache_k = k, .cache_v = v, .centre_keys = centre};
    mica_context *context = NULL;
    uint32_t tokens[TOKENS];
    float *logits = malloc(sizeof *logits * TOKENS * r->info.vocabulary);

    assert_non_null(logits);
    rig_tokens(r, 3, tokens, TOKENS);
    must(mica_context_create(r->model, &options, &context));
    rig_logits(context, r, rig_sequence(context), tokens, TOKENS, chunk, logits);
    mica_context_release(context);
    return logits;
}

static double apart(const rig *r, const float *a, const float *b)
{
    double difference = 0, size = 0;

    for (uint64_t i = 0; i < (uint64_t)TOKENS * r->info.vocabulary; i++) {
        difference += pow((double)a[i] - (double)b[i], 2);
        size += pow((double)b[i], 2);
    }
    return sqrt(difference / size);
}

static void types_are_as_exact_as_they_can_be(void **state)
{
    rig r = rig_open("../../../models/demo.gguf", 2);
    float *exact = logits_of(&r, MICA_DTYPE_F32, MICA_DTYPE_F32, MICA_CENTRE_AUTO, TOKENS);

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        float *whole = logits_of(&r, kinds[i].k, kinds[i].v, MICA_CENTRE_AUTO, TOKENS),
              *parts = logits_of(&r, kinds[i].k, kinds[i].v, MICA_CENTRE_AUTO, 7);
        const double far = apart(&r, whole, exact);

        print_message("%s and %s: %.4f\n", mica_dtype_name(kinds[i].k), mica_dtype_name(kinds[i].v), far);
        assert_memory_equal(whole, parts, sizeof *whole * TOKENS * r.info.vocabulary);
        if (!(far > 0 && far <= kinds[i].most))
            fail_msg("%s and %s: %g of the logits away", mica_dtype_name(kinds[i].k),
                     mica_dtype_name(kinds[i].v), far);
        free(whole);
        free(parts);
    }
    free(exact);
    rig_close(&r);
}

/* Scores move by one number for all keys, which softmax does not see: what is left is rounding. */
static void centred_keys_say_what_whole_ones_say(void **state)
{
    static const char *const models[] = {"llama", "gemma3", "gpt2", "phi3-longrope", "mixtral"};

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        rig r = rig_open(models[i], 2);
        float *whole = logits_of(&r, MICA_DTYPE_F32, MICA_DTYPE_F32, MICA_CENTRE_NEVER, 7),
              *centred = logits_of(&r, MICA_DTYPE_F32, MICA_DTYPE_F32, MICA_CENTRE_ALWAYS, 7);
        const double far = apart(&r, centred, whole);

        print_message("%s: %.2e\n", models[i], far);
        if (!(far > 0 && far < 1e-5))
            fail_msg("%s: %g of the logits away", models[i], far);
        free(whole);
        free(centred);
        rig_close(&r);
    }
}

static bool same(const rig *r, mica_dtype k, mica_centre centre)
{
    float *a = logits_of(r, k, MICA_DTYPE_F16, MICA_CENTRE_AUTO, TOKENS),
          *b = logits_of(r, k, MICA_DTYPE_F16, centre, TOKENS);
    const bool alike = memcmp(a, b, sizeof *a * TOKENS * r->info.vocabulary) == 0;

    free(a);
    free(b);
    return alike;
}

static void few_bits_are_centred(void **state)
{
    static const mica_dtype coarse[] = {MICA_DTYPE_Q4_0, MICA_DTYPE_Q5_1, MICA_DTYPE_TURBO4};
    rig r = rig_open("../../../models/demo.gguf", 2);
    float *exact = logits_of(&r, MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_CENTRE_NEVER, TOKENS);

    (void)state;
    assert_true(same(&r, MICA_DTYPE_F16, MICA_CENTRE_NEVER));
    assert_true(same(&r, MICA_DTYPE_Q8_0, MICA_CENTRE_NEVER));
    for (size_t i = 0; i < sizeof coarse / sizeof *coarse; i++) {
        float *whole = logits_of(&r, coarse[i], MICA_DTYPE_F16, MICA_CENTRE_NEVER, TOKENS),
              *centred = logits_of(&r, coarse[i], MICA_DTYPE_F16, MICA_CENTRE_AUTO, TOKENS);
        const double far = apart(&r, whole, exact), near = apart(&r, centred, exact);

        print_message("%s: %.4f whole, %.4f centred\n", mica_dtype_name(coarse[i]), far, near);
        assert_true(same(&r, coarse[i], MICA_CENTRE_ALWAYS));
        if (!(near < far))
            fail_msg("%s: %g of the logits away, %g with whole keys", mica_dtype_name(coarse[i]), near, far);
        free(whole);
        free(centred);
    }
    free(exact);
    rig_close(&r);
}

/* A cap bends scores: that they all moved would be seen. */
static void capped_scores_keep_whole_keys(void **state)
{
    rig r = rig_open("gemma2", 1);
    mica_context_options options = {.capacity = CAPACITY, .centre_keys = MICA_CENTRE_ALWAYS};
    mica_context *context = NULL;

    (void)state;
    refused(mica_context_create(r.model, &options, &context), MICA_ERR_UNSUPPORTED, "capped");
    assert_null(context);
    options.centre_keys = (mica_centre)3;
    refused(mica_context_create(r.model, &options, &context), MICA_ERR_INVALID_ARGUMENT, "centre_keys");
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(types_are_as_exact_as_they_can_be),
                                       cmocka_unit_test(centred_keys_say_what_whole_ones_say),
                                       cmocka_unit_test(few_bits_are_centred),
                                       cmocka_unit_test(capped_scores_keep_whole_keys)};
    return cmocka_run_group_tests_name("cache types", tests, NULL, NULL);
}
