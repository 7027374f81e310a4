/*
 * test_stories.c - a trained model that others made, against the text that llama.cpp writes with it and the ids and logits
 * of an independent numpy program: from GGUF in several types, as experts, and from the Hugging Face folder; in one chunk
 * and in many, with one thread and with two.
 *
 * The data is not in the repository: MICA_TEST_DATA names its folder, else it is ../shared/data.
 */
#include "golden_file.h"
#include "model_rig.h"

#define TEXT_TOKENS 100u
#define MOST_TOKENS 256u
#define VOCABULARY 512u
#define CAPACITY 512u

/* Of the largest |logit| of a row. Float32 on both sides, 5 layers of sums over at most 172 terms; 1e-6 was seen. The
 * numpy program wrote five digits behind the point, which is 5e-6 / 10. */
#define NEAR 1e-4

typedef struct stories {
    char folder[512];
    char *wanted;              /* prompt, text, newline */
    uint32_t ids[MOST_TOKENS]; /* greedy from the first token, which begins a text */
    uint32_t count;
    double logits[4 * VOCABULARY]; /* of the first four */
    uint32_t rows;
} stories;

static const char prompt[] = "Once upon a time";
static const char *const files[] = {"stories260K-f32.gguf", "stories260K-f16.gguf",
                                    "stories260K-h256-Q8_0.gguf", "stories260K-as-moe-4x2-f32.gguf"};
static const uint32_t chunks[] = {1, 7, CAPACITY}, threads[] = {1, 2};

/* Without the data the state is NULL, and each test says that it was skipped. */
static int setup(void **state)
{
    const char *given = getenv("MICA_TEST_DATA");
    char path[640];
    stories *s = test_alloc(1, sizeof *s);
    snprintf(s->folder, sizeof s->folder, "%s/stories260K", given != NULL ? given : "../shared/data");
    snprintf(path, sizeof path, "%s/expected-greedy.txt", s->folder);
    s->wanted = golden_text(path);
    snprintf(path, sizeof path, "%s/hf/reference.json", s->folder);
    char *reference = golden_text(path);
    if (s->wanted == NULL || reference == NULL) {
        print_message("skipped: there is no %s (MICA_TEST_DATA names the folder above it)\n", s->folder);
        free(reference);
        free(s->wanted);
        free(s);
        *state = NULL;
        return 0;
    }
    s->count = golden_ids(reference, "\"tokens\"", s->ids, MOST_TOKENS);
    s->rows = golden_list(reference, "\"logits\"", s->logits, 4 * VOCABULARY) / VOCABULARY;
    free(reference);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    stories *s = *state;
    if (s != NULL)
        free(s->wanted);
    free(s);
    return 0;
}

static const stories *need(void **state)
{
    if (*state == NULL)
        skip();
    return *state;
}

static rig open_file(const stories *s, const char *name, uint32_t thread_count)
{
    const mica_device_options options = {.threads = thread_count};
    char path[640];
    rig r = {0};
    snprintf(path, sizeof path, "%s/%s", s->folder, name);
    must(mica_device_open("cpu", &options, &r.device));
    must(mica_model_open(path, r.device, NULL, &r.model));
    must(mica_model_get_info(r.model, &r.info));
    assert_int_equal(r.info.vocabulary, VOCABULARY);
    return r;
}

/* Feeds `ids`, `chunk` at a time, and goes on with the likeliest until there are `total` ids. */
static void go_on(const rig *r, uint32_t *ids, uint32_t count, uint32_t total, uint32_t chunk)
{
    mica_context *context = rig_context(r, CAPACITY, 1, 0);
    const uint32_t sequence = rig_sequence(context);
    const float *logits;
    uint32_t rows;
    for (uint32_t at = 0; at < count; at += chunk) {
        const mica_feed feed = {sequence, ids + at, count - at < chunk ? count - at : chunk, MICA_WANT_LAST};
        must(mica_context_feed(context, &feed, 1));
    }
    must(mica_context_logits(context, sequence, &logits, &rows));
    ids[count] = rig_best(logits, VOCABULARY);
    for (uint32_t i = count + 1; i < total; i++)
        ids[i] = rig_step(context, r, sequence, ids[i - 1]);
    mica_context_release(context);
}

/* ---- tests ---------------------------------------------------------------------------------------------- */

static void check_text(const stories *s, const char *name, const rig *r, uint32_t chunk)
{
    const mica_tokenizer *tokenizer = mica_model_tokenizer(r->model);
    uint32_t ids[MOST_TOKENS];
    uint64_t count, length;
    char text[4096];
    must(mica_tokenizer_encode(tokenizer, prompt, strlen(prompt), MICA_ENCODE_ADD, ids, MOST_TOKENS, &count));
    assert_true(count > 1 && count + TEXT_TOKENS <= MOST_TOKENS);
    go_on(r, ids, (uint32_t)count, (uint32_t)count + TEXT_TOKENS, chunk);
    must(mica_tokenizer_decode(tokenizer, ids, count + TEXT_TOKENS, MICA_DECODE_START, text, sizeof text - 1,
                               &length));
    assert_true(length < sizeof text - 1);
    text[length] = '\n';
    if (length + 1 != strlen(s->wanted) || memcmp(text, s->wanted, length + 1) != 0)
        fail_msg("%s in chunks of %u writes \"%.*s\"", name, chunk, (int)length, text);
}

static void text_is_the_expected_one(void **state)
{
    const stories *s = need(state);
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++)
        for (size_t t = 0; t < 2; t++) {
            rig r = open_file(s, files[f], threads[t]);
            for (size_t c = 0; c < 3; c++)
                check_text(s, files[f], &r, chunks[c]);
            rig_close(&r);
        }
}

static void check_ids(const stories *s, const char *name, const rig *r, uint32_t given, uint32_t chunk)
{
    uint32_t ids[MOST_TOKENS];
    memcpy(ids, s->ids, given * sizeof *ids);
    go_on(r, ids, given, s->count, chunk);
    for (uint32_t i = given; i < s->count; i++)
        if (ids[i] != s->ids[i])
            fail_msg("%s in chunks of %u: token %u is %u, expected %u", name, chunk, i, ids[i], s->ids[i]);
}

/* The folder has no tokenizer: by ids, from the first one and from the middle of the text. */
static void ids_are_those_of_the_reference(void **state)
{
    static const char *const forms[] = {"hf", "stories260K-f32.gguf", "stories260K-as-moe-4x2-f32.gguf"};
    const stories *s = need(state);
    assert_true(s->count >= 200);
    for (size_t f = 0; f < 3; f++)
        for (size_t t = 0; t < 2; t++) {
            rig r = open_file(s, forms[f], threads[t]);
            check_ids(s, forms[f], &r, 1, 1);
            for (size_t c = 0; c < 3; c++)
                check_ids(s, forms[f], &r, 90, chunks[c]);
            rig_close(&r);
        }
}

static void logits_are_those_of_the_reference(void **state)
{
    static const char *const forms[] = {"hf", "stories260K-f32.gguf", "stories260K-as-moe-4x2-f32.gguf"};
    const mica_context_options exact = {.capacity = 64, .cache_k = MICA_DTYPE_F32, .cache_v = MICA_DTYPE_F32};
    const stories *s = need(state);
    assert_int_equal(s->rows, 4);
    for (size_t f = 0; f < 3; f++) {
        rig r = open_file(s, forms[f], 2);
        mica_context *context;
        float logits[4 * VOCABULARY];
        must(mica_context_create(r.model, &exact, &context));
        rig_logits(context, &r, rig_sequence(context), s->ids, 4, 4, logits);
        for (uint32_t row = 0; row < 4; row++) {
            const double apart =
                golden_distance(logits + row * VOCABULARY, s->logits + row * VOCABULARY, VOCABULARY);
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
    return cmocka_run_group_tests_name("stories", tests, setup, teardown);
}
