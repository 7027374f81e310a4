/*
 * test_cuda_embedded.c - a machine with a driver and no NVRTC: everything that a model asks for, from the prompt to the token
 * that is chosen on the device, is in the code that was embedded when mica was built (src/kernels/portable.txt).
 *
 * The stand-in for the driver computes nothing, so only what is asked for counts. The model is the one inside the tool, in each
 * type that the list promises; under the thread sanitizer in a few, since threads do the same for each.
 */
#include <stdio.h>

#include "cuda_rig.h"
#include "kernels/kernels.h"
#include "mica/format.h"
#include "mica/model.h"
#include "support/model_file.h"
#include "support/sanitizer.h"

#define CAPACITY 256u
#define PROMPT 40u /* more rows than mat-vec takes */

static const char *const types[] = {"f32",  "f16",  "bf16", "q4_0", "q5_0",
                                    "q8_0", "q4_k", "q5_k", "q6_k", "q4_k_m"};

/* One pass over `count` tokens, whose last one the device goes on with. */
static void step(mica_context *context, uint32_t sequence, mica_sampler *sampler, uint32_t count)
{
    uint32_t tokens[PROMPT];
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = i;
    mica_next item = {.sequence = sequence, .tokens = tokens, .count = count, .sampler = sampler};
    must(mica_context_next(context, &item, 1));
}

/* A prompt, a few tokens and single ones; greedy and by chance; and the logits on the host. */
static void talk(const mica_model *model, uint32_t vocabulary)
{
    const mica_context_options options = {.capacity = CAPACITY, .sequences = 1};
    const float temperatures[] = {0.0f, 0.8f};
    mica_context *context = NULL;
    uint32_t sequence = 0, id = 0;
    must(mica_context_create((mica_model *)model, &options, &context));
    must(mica_sequence_create(context, &sequence));
    for (uint32_t i = 0; i < 2; i++) {
        mica_sampling sampling;
        mica_sampler *sampler = NULL;
        mica_sampling_default(&sampling);
        sampling.temperature = temperatures[i];
        must(mica_sampler_create(&sampling, vocabulary, NULL, NULL, &sampler));
        step(context, sequence, sampler, PROMPT);
        step(context, sequence, sampler, 3);
        step(context, sequence, sampler, 1);
        mica_sampler_release(sampler);
    }
    const mica_feed feed = {sequence, &id, 1, MICA_WANT_LAST};
    must(mica_context_feed(context, &feed, 1));
    mica_context_release(context);
}

static void check_type(mica_device *device, const char *type)
{
    const mica_quantize_options options = {.type = type, .overwrite = 1, .threads = 2};
    char path[512], name[64];
    mica_model *model = NULL;
    mica_model_info info;
    snprintf(name, sizeof name, "embedded-%s.gguf", type);
    test_file_path(path, sizeof path, name);
    must(mica_quantize("models/demo.gguf", path, &options, NULL));
    must(mica_model_open(path, device, NULL, &model));
    must(mica_model_get_info(model, &info));
    talk(model, info.vocabulary);
    mica_model_release(model);
    remove(path);
}

static void test_models(void **state)
{
    mica_device *device = NULL;
    (void)state;
    fake_reset();
    must(mica_device_open("cuda:0", NULL, &device));
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i += TEST_THREAD_SANITIZER ? 4 : 1)
        check_type(device, types[i]);
    mica_device_release(device);
    assert_int_equal(fake_get_counts().compiled, 0);
    assert_true(fake_get_counts().loaded > 0);
    rig_check_clean();
}

/* The list is empty where mica was built without a clang that knows NVIDIA's machines: then there is nothing to test. */
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models)};
    const char *needs = getenv("MICA_TEST_NEEDS");
    uint64_t bytes = 0;
    setenv("MICA_DEBUG", "nonvrtc,nocublas", 1);
    if (mica__kernel_portable("copy", &bytes) == NULL && (needs == NULL || needs[0] != '1')) {
        printf("skipped: no code for NVIDIA's machines was embedded\n");
        return 77;
    }
    return cmocka_run_group_tests_name("models without NVRTC", tests, NULL, NULL);
}
