/*
 * Cancel: texts, files and ids large enough that a call takes a while, stopped by another thread. A call that nobody
 * counts would run to its end.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/sanitizer.h"
#include "../model/tokenizer_rig.h"
#include "mica/work.h"

#define MOST_SECONDS 0.5 /* of the stopped thread's processor time; a tenth is promised */
/* Where stages are told apart: one that nobody can stop takes longer. Sanitizers make it twenty times as slow. */
#define MOST_MIDWAY (TEST_ANY_SANITIZER ? 1.0 : 0.05)
#define MOST_STEPS 1000000

static const mica_limits wide = {.steps = UINT64_MAX, .pattern_steps = UINT64_MAX, .token_bytes = UINT64_MAX};

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

typedef struct canceller {
    mica_work *work;
    clockid_t clock;    /* of the thread that is stopped */
    double after, when; /* on it: when to cancel, and when that was */
} canceller;

static void *cancel_soon(void *context)
{
    canceller *c = context;
    do
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    while (now(c->clock) < c->after);
    mica_work_cancel(c->work);
    c->when = now(
        c->clock); /* behind it: on a busy machine this thread may have waited long before it came to cancel */
    return NULL;
}

typedef mica_status (*job)(void);

/* Runs the job again and again until it is stopped after so many seconds, and sees how long that takes. */
static void stop_after(double seconds, double most, const char *name, job run)
{
    canceller c = {0};
    pthread_t thread;
    mica_status status;
    must(mica_work_create(&wide, &c.work));
    assert_int_equal(pthread_getcpuclockid(pthread_self(), &c.clock), 0);
    c.after = now(c.clock) + seconds;
    mica_work_use(c.work);
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &c), 0);
    do
        status = run();
    while (status == MICA_OK);
    const double end = now(c.clock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    mica_work_use(NULL);
    mica_work_release(c.work);
    print_message("%-40s stopped after %.1f ms\n", name, (end - c.when) * 1e3);
    if (status != MICA_ERR_CANCELLED || strstr(mica_status_message(), "cancelled") == NULL)
        fail_msg("%s: %s", name, mica_status_message());
    if (end - c.when > most)
        fail_msg("%s: %g s from the cancel to the end", name, end - c.when);
}

static void stop_from_outside(const char *name, job run)
{
    stop_after(0.02, MOST_SECONDS, name, run);
}

/* At each eighth of the job, so that every stage of it is met. */
static void stop_midway(const char *name, job run)
{
    const double start = now(CLOCK_THREAD_CPUTIME_ID);
    must(run());
    const double whole = now(CLOCK_THREAD_CPUTIME_ID) - start;
    for (int eighth = 1; eighth < 8; eighth++)
        stop_after(whole * eighth / 8, MOST_MIDWAY, name, run);
}

/* Cancelled before it begins, the job ends within the first million steps. */
static void stop_at_once(const char *name, job run)
{
    mica_work *work = NULL;
    uint64_t steps = 0;
    must(mica_work_create(&wide, &work));
    mica_work_cancel(work);
    mica_work_use(work);
    const mica_status status = run();
    mica_work_use(NULL);
    must(mica_work_spent(work, &steps, NULL));
    mica_work_release(work);
    if (status != MICA_ERR_CANCELLED || steps > MOST_STEPS)
        fail_msg("%s: %s after %llu steps", name, mica_status_name(status), (unsigned long long)steps);
}

/* ---- what is run ------------------------------------------------------------------------------------------- */

#define TEXT_BYTES (4u << 20)
#define LONG_BYTES (9u << 20)
#define TOKENS 100000u

static mica_tokenizer *tokenizer;
static mica_weights *weights;
static char *text;
static uint32_t *ids;

static mica_status encode(void)
{
    uint64_t count = 0;
    return mica_tokenizer_encode(tokenizer, text, TEXT_BYTES, 0, NULL, 0, &count);
}

static mica_status encode_long(void)
{
    uint64_t count = 0;
    return mica_tokenizer_encode(tokenizer, text, LONG_BYTES, 0, NULL, 0, &count);
}

static mica_status decode(void)
{
    uint64_t length = 0;
    return mica_tokenizer_decode(tokenizer, ids, TEXT_BYTES, 0, NULL, 0, &length);
}

static mica_status open_tokenizer(void)
{
    mica_tokenizer *made = NULL;
    const mica_status status = mica_tokenizer_create(weights, &made);
    mica_tokenizer_release(made);
    return status;
}

static char file_path[300];

static mica_status open_file(void)
{
    mica_weights *made = NULL;
    const mica_status status = mica_weights_open(file_path, NULL, &made);
    mica_weights_release(made);
    return status;
}

/* ---- tests -------------------------------------------------------------------------------------------------- */

static void make_text(const char *piece)
{
    const size_t length = strlen(piece);
    for (size_t i = 0; i < LONG_BYTES; i++)
        text[i] = piece[i % length];
}

#define MODEL(type, more, vocab) "\"model\":{\"type\":\"" type "\"," more "\"vocab\":" vocab "}}"
#define PAIRS MODEL("BPE", "\"merges\":[\"a a\"],", "{\"a\":0,\"aa\":1,\" \":2}")

static void texts_stop(void **state)
{
    static const struct {
        const char *name, *json, *piece;
    } rows[] = {
        {"one word of pairs", "{" PAIRS, "a"},
        {"a pattern",
         "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+|\\\\w+\"},\"behavior\":"
         "\"Isolated\"}," PAIRS,
         "a aa "},
        {"a pattern without end",
         "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a|aa)+$|b\"},"
         "\"behavior\":\"Isolated\"}," PAIRS,
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa "},
        {"unigram", "{" MODEL("Unigram", "\"unk_id\":0,", "[[\"a\",-1],[\"aa\",-2]]"), "a"},
        {"wordpiece",
         "{" MODEL("WordPiece", "\"unk_token\":\"a\",\"max_input_chars_per_word\":99999999,",
                   "{\"a\":0,\"##a\":1}"),
         "a"},
        {"normal forms",
         "{\"normalizer\":{\"type\":\"NFKC\"}," MODEL("Unigram", "\"unk_id\":0,", "[[\"a\",-1]]"),
         "e\xcc\x81"},
        {"bert",
         "{\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"
         "," MODEL("WordPiece", "\"unk_token\":\"a\",", "{\"a\":0}"),
         "A b, "},
        {"added tokens", "{\"added_tokens\":[{\"id\":3,\"content\":\"ab\",\"special\":false}]," PAIRS,
         "aaab"},
        {"no UTF-8", "{" PAIRS, "\xff"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        must(rig_json(rows[i].json, &tokenizer));
        make_text(rows[i].piece);
        stop_at_once(rows[i].name, encode);
        stop_from_outside(rows[i].name, encode);
        mica_tokenizer_release(tokenizer);
    }
}

/* One run without ASCII, which nothing but the normal form looks at: letters with a mark behind each. */
static void forms_stop(void **state)
{
    (void)state;
    must(rig_json(
        "{\"normalizer\":{\"type\":\"NFC\"}," MODEL("WordLevel", "\"unk_token\":\"a\",", "{\"a\":0}"),
        &tokenizer));
    make_text("\xd0\xb8\xcc\x86");
    stop_midway("a run of normal forms", encode_long);
    mica_tokenizer_release(tokenizer);
}

static void ids_stop(void **state)
{
    (void)state;
    must(rig_json("{" PAIRS, &tokenizer));
    stop_at_once("decode", decode);
    stop_from_outside("decode", decode);
    mica_tokenizer_release(tokenizer);
}

/* A GGUF with many tokens. */
static void files_stop(void **state)
{
    rig_file file = {0};
    char folder[256];
    mica_string *items = malloc(TOKENS * sizeof *items);
    char(*words)[16] = malloc(TOKENS * sizeof *words);
    float *scores = calloc(TOKENS, sizeof *scores);
    (void)state;
    assert_true(items != NULL && words != NULL && scores != NULL);
    for (uint32_t i = 0; i < TOKENS; i++)
        items[i] =
            (mica_string){words[i], (uint64_t)snprintf(words[i], sizeof words[i], "t%x", i * 2654435761u)};
    rig_set(&file, "tokenizer.ggml.model", rig_text("t5"));
    rig_set(&file, "tokenizer.ggml.tokens", rig_array(MICA_VALUE_STRING, TOKENS, items));
    rig_set(&file, "tokenizer.ggml.scores", rig_array(MICA_VALUE_F32, TOKENS, scores));
    assert_int_equal(test_folder_make(folder, sizeof folder, "cancel"), 0);
    snprintf(file_path, sizeof file_path, "%s/a.gguf", folder);
    rig_write(&file, file_path);
    stop_at_once("opening a file", open_file);
    stop_from_outside("opening a file", open_file);
    must(mica_weights_open(file_path, NULL, &weights));
    stop_at_once("opening a tokenizer", open_tokenizer);
    stop_from_outside("opening a tokenizer", open_tokenizer);
    mica_weights_release(weights);
    assert_int_equal(test_folder_remove(folder), 0);
    free(items);
    free(words);
    free(scores);
}

static int take_memory(void **state)
{
    (void)state;
    text = malloc(LONG_BYTES);
    ids = calloc(TEXT_BYTES, sizeof *ids);
    return text != NULL && ids != NULL ? 0 : -1;
}

static int give_memory(void **state)
{
    (void)state;
    free(text);
    free(ids);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_stop),
        cmocka_unit_test(forms_stop),
        cmocka_unit_test(ids_stop),
        cmocka_unit_test(files_stop),
    };
    return cmocka_run_group_tests(tests, take_memory, give_memory);
}
