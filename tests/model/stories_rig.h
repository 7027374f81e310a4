/*
 * stories_rig.h - a trained model that others made, with the text that llama.cpp writes with it and the ids and logits of an
 * independent numpy program, on any device.
 *
 * The data is not in the repository: MICA_TEST_DATA names its folder, else it is ../shared/data.
 */
#ifndef TEST_STORIES_RIG_H
#define TEST_STORIES_RIG_H

#include "golden_file.h"
#include "model_rig.h"

#define STORIES_TEXT 100u
#define STORIES_MOST 256u
#define STORIES_VOCABULARY 512u
#define STORIES_CAPACITY 512u

typedef struct stories {
    char folder[512];
    char *wanted;               /* prompt, text, newline */
    uint32_t ids[STORIES_MOST]; /* greedy from the first token, which begins a text */
    uint32_t count;
    double logits[4 * STORIES_VOCABULARY]; /* of the first four */
    uint32_t rows;
} stories;

#define STORIES_PROMPT "Once upon a time"

/* Without the data the state is NULL, and each test says that it was skipped. */
static inline int stories_setup(void **state)
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
    s->count = golden_ids(reference, "\"tokens\"", s->ids, STORIES_MOST);
    s->rows = golden_list(reference, "\"logits\"", s->logits, 4 * STORIES_VOCABULARY) / STORIES_VOCABULARY;
    free(reference);
    *state = s;
    return 0;
}

static inline int stories_teardown(void **state)
{
    stories *s = *state;
    if (s != NULL)
        free(s->wanted);
    free(s);
    return 0;
}

static inline const stories *stories_need(void **state)
{
    if (*state == NULL)
        skip();
    return *state;
}

static inline rig stories_open(const stories *s, const char *id, const char *name, uint32_t thread_count)
{
    const mica_device_options options = {.threads = thread_count};
    char path[640];
    rig r = {0};
    snprintf(path, sizeof path, "%s/%s", s->folder, name);
    must(mica_device_open(id, &options, &r.device));
    must(mica_model_open(path, r.device, NULL, &r.model));
    must(mica_model_get_info(r.model, &r.info));
    assert_int_equal(r.info.vocabulary, STORIES_VOCABULARY);
    return r;
}

/* How far below the likeliest a token of the text may be. Weights of f32 and f16 meet f32 sums here, which differ by some 1e-5
 * from one instruction set to the next; the least distance of a second token is 0.003. */
#define STORIES_LIKELIEST 0.0f
/* Weights of q8_0 meet activations of 8 bits. Where the last bit of a sum rounds one of them the other way, all that follows is
 * as far away as 8 bits are from f32: 0.07 of a logit by the root of the mean square, where two tokens of the text are 0.05
 * apart. Five times what that makes of a distance between two. */
#define STORIES_NEAR_8_BITS 0.5f

/* Feeds the first `given` of `count` ids, `chunk` at a time, then the others one by one: each is the likeliest after those
 * before it, or no further below than `near`. Caches of f32: what f16 rounds the other way moves a logit by up to 0.009. */
static inline void stories_check_ids(const rig *r, const char *name, const uint32_t *ids, uint32_t given,
                                     uint32_t count, uint32_t chunk, float near)
{
    const mica_context_options options = {
        .capacity = STORIES_CAPACITY, .cache_k = MICA_DTYPE_F32, .cache_v = MICA_DTYPE_F32};
    mica_context *context = NULL;
    must(mica_context_create(r->model, &options, &context));
    const uint32_t sequence = rig_sequence(context);
    for (uint32_t at = 0; at < count - 1;) {
        const uint32_t left = given > at ? given - at : 1;
        const mica_feed feed = {sequence, ids + at, left < chunk ? left : chunk, MICA_WANT_LAST};
        const float *logits;
        uint32_t rows;
        must(mica_context_feed(context, &feed, 1));
        must(mica_context_logits(context, sequence, &logits, &rows));
        at += feed.count;
        const uint32_t best = rig_best(logits, STORIES_VOCABULARY);
        if (at >= given && logits[ids[at]] < logits[best] - near)
            fail_msg("%s in chunks of %u: token %u is %u, expected %u", name, chunk, at, best, ids[at]);
    }
    mica_context_release(context);
}

/* The text after the prompt. */
static inline void stories_check_text(const stories *s, const char *name, const rig *r, uint32_t chunk)
{
    const mica_tokenizer *tokenizer = mica_model_tokenizer(r->model);
    uint32_t ids[STORIES_MOST];
    uint64_t given, count;
    must(mica_tokenizer_encode(tokenizer, STORIES_PROMPT, strlen(STORIES_PROMPT), MICA_ENCODE_ADD, ids,
                               STORIES_MOST, &given));
    must(mica_tokenizer_encode(tokenizer, s->wanted, strlen(s->wanted) - 1, MICA_ENCODE_ADD, ids,
                               STORIES_MOST, &count));
    assert_true(given > 1 && count == given + STORIES_TEXT);
    stories_check_ids(r, name, ids, (uint32_t)given, (uint32_t)count, chunk,
                      strstr(r->info.type, "q8_0") != NULL ? STORIES_NEAR_8_BITS : STORIES_LIKELIEST);
}

#endif
