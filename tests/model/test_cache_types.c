/*
 * test_cache_types.c - contexts with caches of every type on the demo model, whose heads of 64 are two blocks: the bits do not depend on chunks, and logits
 * are as far from those over a cache of f32 as the type is coarse.
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
static float *logits_of(const rig *r, mica_dtype k, mica_dtype v, uint32_t chunk)
{
    const mica_context_options options = {.capacity = CAPACITY, .cache_k = k, .cache_v = v};
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
    float *exact = logits_of(&r, MICA_DTYPE_F32, MICA_DTYPE_F32, TOKENS);

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        float *whole = logits_of(&r, kinds[i].k, kinds[i].v, TOKENS),
              *parts = logits_of(&r, kinds[i].k, kinds[i].v, 7);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(types_are_as_exact_as_they_can_be)};
    return cmocka_run_group_tests_name("cache types", tests, NULL, NULL);
}
