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

/* Feeds `ids`, `chunk` at a time, and goes on with the likeliest until there are `total` ids. */
static inline void stories_go_on(const rig *r, uint32_t *ids, uint32_t count, uint32_t total, uint32_t chunk)
{
    mica_context *context = rig_context(r, STORIES_CAPACITY, 1, 0);
    const uint32_t sequence = rig_sequence(context);
    const float *logits;
    uint32_t rows;
    for (uint32_t at = 0; at < count; at += chunk) {
        const mica_feed feed = {sequence, ids + at, count - at < chunk ? count - at : chunk, MICA_WANT_LAST};
        must(mica_context_feed(context, &feed, 1));
    }
    must(mica_context_logits(context, sequence, &logits, &rows));
    ids[count] = rig_best(logits, STORIES_VOCABULARY);
    for (uint32_t i = count + 1; i < total; i++)
        ids[i] = rig_step(context, r, sequence, ids[i - 1]);
    mica_context_release(context);
}

/* The text after the prompt, greedy. */
static inline void stories_check_text(const stories *s, const char *name, const rig *r, uint32_t chunk)
{
    const mica_tokenizer *tokenizer = mica_model_tokenizer(r->model);
    uint32_t ids[STORIES_MOST];
    uint64_t count, length;
    char text[4096];
    must(mica_tokenizer_encode(tokenizer, STORIES_PROMPT, strlen(STORIES_PROMPT), MICA_ENCODE_ADD, ids,
                               STORIES_MOST, &count));
    assert_true(count > 1 && count + STORIES_TEXT <= STORIES_MOST);
    stories_go_on(r, ids, (uint32_t)count, (uint32_t)count + STORIES_TEXT, chunk);
    must(mica_tokenizer_decode(tokenizer, ids, count + STORIES_TEXT, MICA_DECODE_START, text, sizeof text - 1,
                               &length));
    assert_true(length < sizeof text - 1);
    text[length] = '\n';
    if (length + 1 != strlen(s->wanted) || memcmp(text, s->wanted, length + 1) != 0)
        fail_msg("%s in chunks of %u writes \"%.*s\"", name, chunk, (int)length, text);
}

#endif
