/*
 * test_context_calls.c - what the calls of a context promise each other: a cancel is kept until it is obeyed or cleared, and
 * obeyed wherever a feed is; one thread at a time; forks; memory that recordings give back.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mica/work.h"
#include "model_rig.h"
#include "support/folder.h"
#include "support/model_file.h"
#include "support/sanitizer.h"
#include "support/tiny_model.h"

static mica_status feed_some(mica_context *context, uint32_t sequence, uint32_t count)
{
    static const uint32_t tokens[64] = {1, 2, 3, 4, 5, 6, 7};
    return mica_context_feed(context, &(mica_feed){sequence, tokens, count, MICA_WANT_LAST}, 1);
}

static uint32_t length_of(const mica_context *context, uint32_t sequence)
{
    uint32_t count;
    must(mica_sequence_tokens(context, sequence, NULL, 0, &count));
    return count;
}

/* ---- cancels between calls ------------------------------------------------------------------------------ */

typedef struct trial {
    rig r;
    mica_context *context;
    mica_sampler *sampler;
    uint32_t sequence;
    char folder[256], path[300];
} trial;

static mica_status try_feed(trial *t)
{
    return feed_some(t->context, t->sequence, 3);
}

static mica_status try_next(trial *t)
{
    const uint32_t token = 1;
    mica_next item = {.sequence = t->sequence, .tokens = &token, .count = 1, .sampler = t->sampler};
    const mica_status status = mica_context_next(t->context, &item, 1);
    assert_int_equal(item.status, status);
    return status;
}

static mica_status try_embed(trial *t)
{
    const uint32_t tokens[3] = {1, 2, 3};
    float vector[256];
    return mica_context_embed(t->context, tokens, 3, MICA_POOLING_DEFAULT, 1, vector);
}

static mica_status try_save(trial *t)
{
    return mica_sequence_save(t->context, t->sequence, t->path);
}

static mica_status try_load(trial *t)
{
    uint32_t sequence;
    const mica_status status = mica_sequence_load(t->context, t->path, &sequence);
    if (status == MICA_OK)
        must(mica_sequence_remove(t->context, sequence));
    return status;
}

static mica_status (*const feeds[])(trial *) = {try_feed, try_next, try_embed, try_save, try_load};
static const char *const feed_names[] = {"context_feed: cancelled", "context_next: cancelled",
                                         "context_embed: cancelled", "sequence_save: cancelled",
                                         "sequence_load: "};

static trial trial_open(void)
{
    trial t = {.r = rig_open("llama", 2)};
    mica_sampling sampling;
    mica_sampling_default(&sampling);
    t.context = rig_context(&t.r, 256, 4, 16);
    t.sequence = rig_sequence(t.context);
    must(mica_sampler_create(&sampling, t.r.info.vocabulary, NULL, NULL, &t.sampler));
    assert_int_equal(test_folder_make(t.folder, sizeof t.folder, "calls"), 0);
    (void)snprintf(t.path, sizeof t.path, "%s/state", t.folder);
    for (size_t i = 0; i < 5; i++)
        must(feeds[i](&t));
    return t;
}

static void trial_close(trial *t)
{
    mica_sampler_release(t->sampler);
    mica_context_release(t->context);
    rig_close(&t->r);
    assert_int_equal(test_folder_remove(t->folder), 0);
}

static void a_cancel_is_kept_until_it_is_obeyed(void **state)
{
    trial t = trial_open();
    mica_context_info info;
    uint32_t forked;
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        must(mica_context_cancel(t.context));
        must(mica_context_cancel(t.context));
        /* What is no feed neither obeys it nor takes it away. */
        const uint32_t before = length_of(t.context, t.sequence);
        must(mica_sequence_fork(t.context, t.sequence, 1, &forked));
        must(mica_sequence_trim(t.context, forked, 0));
        must(mica_sequence_remove(t.context, forked));
        must(mica_context_get_info(t.context, &info));
        refused(feeds[i](&t), MICA_ERR_CANCELLED, feed_names[i]);
        assert_int_equal(length_of(t.context, t.sequence), before);
        must(feeds[i](&t)); /* it was obeyed, once */
    }
    trial_close(&t);
}

static void a_cancel_can_be_cleared(void **state)
{
    trial t = trial_open();
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        must(mica_context_cancel(t.context));
        must(mica_context_cancel_clear(t.context));
        must(feeds[i](&t));
        must(mica_context_cancel_clear(t.context)); /* there is none */
    }
    refused(mica_context_cancel_clear(NULL), MICA_ERR_INVALID_ARGUMENT, "context_cancel_clear: context");
    refused(mica_context_cancel(NULL), MICA_ERR_INVALID_ARGUMENT, "context_cancel: context");
    trial_close(&t);
}

/* The work of the thread stops calls of any context, until it is cleared. */
static void a_work_cancels_too(void **state)
{
    trial t = trial_open();
    mica_work *work;
    mica_model *model;
    mica_context *context;
    (void)state;
    must(mica_work_create(NULL, &work));
    mica_work *before = mica_work_use(work);
    mica_work_cancel(work);
    for (size_t i = 0; i < 10; i++)
        refused(feeds[i % 5](&t), MICA_ERR_CANCELLED, feed_names[i % 5]);
    refused(mica_model_open("tests/model/golden/llama", t.r.device, NULL, &model), MICA_ERR_CANCELLED,
            "model_open: ");
    refused(mica_context_create(t.r.model, NULL, &context), MICA_ERR_CANCELLED, "context_create: cancelled");
    mica_work_clear(work);
    for (size_t i = 0; i < 5; i++)
        must(feeds[i](&t));
    mica_work_use(before);
    mica_work_release(work);
    trial_close(&t);
}

/* ---- cancels while it works ----------------------------------------------------------------------------- */

typedef struct stopper {
    mica_context *context; /* cancelled after a while; NULL: */
    mica_work *work;       /* this one is */
    long after_ns;
    clockid_t clock; /* of the thread that is stopped */
    double at;       /* what it showed then */
} stopper;

static double read_clock(clockid_t clock)
{
    struct timespec now;
    assert_int_equal(clock_gettime(clock, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *stop_later(void *argument)
{
    stopper *s = argument;
    const struct timespec pause = {.tv_nsec = s->after_ns};
    nanosleep(&pause, NULL);
    if (s->context != NULL)
        (void)mica_context_cancel(s->context);
    mica_work_cancel(s->work);
    s->at = read_clock(s->clock); /* afterwards: this thread may not have run for a while */
    return NULL;
}

/* Processor time, so that a busy machine does not matter; sanitizers make all of it slower. */
#define OBEYED (TEST_ANY_SANITIZER ? 2.0 : 0.1)

/* Feeds one token or a prompt, is stopped after `after_ns`, and is so in time. 0: it was done before. */
static int stopped_in_time(mica_context *context, uint32_t tokens, long after_ns, bool by_work)
{
    pthread_t thread;
    mica_work *work;
    stopper s = {.after_ns = after_ns};
    const uint32_t sequence = rig_sequence(context);
    must(mica_work_create(NULL, &work));
    s.work = by_work ? work : NULL;
    s.context = by_work ? NULL : context;
    assert_int_equal(pthread_getcpuclockid(pthread_self(), &s.clock), 0);
    mica_work_use(work);
    assert_int_equal(pthread_create(&thread, NULL, stop_later, &s), 0);
    const mica_status status = feed_some(context, sequence, tokens);
    const double ended = read_clock(s.clock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    mica_work_use(NULL);
    mica_work_release(work);
    if (status == MICA_ERR_CANCELLED && ended - s.at > OBEYED)
        fail_msg("cancelled by %s after %ld ms: obeyed %g s later", by_work ? "the work" : "the context",
                 after_ns / 1000000, ended - s.at);
    assert_true(status == MICA_OK || status == MICA_ERR_CANCELLED);
    assert_int_equal(length_of(context, sequence), status == MICA_OK ? tokens : 0);
    must(mica_sequence_remove(context, sequence));
    must(mica_context_cancel_clear(context));
    return status == MICA_ERR_CANCELLED;
}

/* Recording, fusing, reordering and lowering of thousands of layers, wherever the cancel finds them; and prompts, which are
 * encoded while they run. */
static void layers_without_end_are_stopped(void **state)
{
    const test_tiny tiny = {.layers = TEST_ANY_SANITIZER ? 400 : 4000};
    const mica_device_options options = {.threads = 1};
    char path[300];
    rig r = {0};
    int stopped = 0;
    (void)state;
    test_file_path(path, sizeof path, "layers.gguf");
    test_tiny_write(&tiny, path);
    must(mica_device_open("cpu", &options, &r.device));
    must(mica_model_open(path, r.device, NULL, &r.model));
    for (long i = 0; i < 8; i++) {
        mica_context *context = rig_context(&r, 128, 1, 64); /* a fresh one: nothing is recorded */
        stopped += stopped_in_time(context, i % 4 == 3 ? 40 : 1, 1000000 + i * 40000000, i % 2 == 0);
        mica_context_release(context);
    }
    assert_true(stopped > 0);
    mica_model_release(r.model);
    mica_device_release(r.device);
    (void)remove(path);
}

/* One pass over 64 tokens of a wide model: kernels are running, and no one but the fence can be asked. */
static void kernels_are_stopped(void **state)
{
    const test_tiny tiny = {.layers = 24, .width = 768};
    const mica_device_options options = {.threads = 1};
    char path[300];
    rig r = {0};
    int stopped = 0;
    (void)state;
    test_file_path(path, sizeof path, "wide.gguf");
    test_tiny_write(&tiny, path);
    must(mica_device_open("cpu", &options, &r.device));
    must(mica_model_open(path, r.device, NULL, &r.model));
    mica_context *context = rig_context(&r, 128, 1, 64);
    for (long i = 0; i < 8; i++)
        stopped += stopped_in_time(context, i % 2 == 0 ? 64 : 32, 2000000 + i * 4000000, i % 4 < 2);
    assert_true(stopped > 0);
    mica_context_release(context);
    mica_model_release(r.model);
    mica_device_release(r.device);
    (void)remove(path);
}

/* ---- one thread at a time ------------------------------------------------------------------------------- */

typedef struct intruder {
    mica_context *context;
    mica_sampler *sampler;
    uint32_t sequence;
    _Atomic bool enough;
    uint32_t refused;
} intruder;

static void *intrude(void *argument)
{
    intruder *n = argument;
    const uint32_t token = 1;
    while (!atomic_load(&n->enough)) {
        mica_next item = {.sequence = n->sequence, .tokens = &token, .count = 1, .sampler = n->sampler};
        mica_context_info info;
        uint32_t sequence, count, ids[4];
        const float *logits;
        float vector[256];
        const mica_status got[] = {
            mica_context_get_info(n->context, &info),
            mica_sequence_tokens(n->context, n->sequence, ids, 4, &count),
            mica_context_next(n->context, &item, 1),
            feed_some(n->context, n->sequence, 1),
            mica_context_logits(n->context, n->sequence, &logits, &count),
            mica_context_embed(n->context, ids, 0, MICA_POOLING_MEAN, 0, vector), /* no tokens */
            mica_sequence_trim(n->context, n->sequence, 0),
            mica_sequence_fork(n->context, n->sequence, 0, &sequence),
        };
        if (got[7] == MICA_OK)
            while (mica_sequence_remove(n->context, sequence) == MICA_ERR_STATE)
                ;
        for (size_t i = 0; i < sizeof got / sizeof got[0]; i++)
            n->refused += got[i] == MICA_ERR_STATE && (i != 4 || count == 0);
    }
    return NULL;
}

static void two_threads_are_told(void **state)
{
    trial t = trial_open();
    intruder n = {.context = t.context, .sampler = NULL, .sequence = rig_sequence(t.context)};
    mica_sampling sampling;
    pthread_t thread;
    uint32_t met = 0, fed = 0;
    (void)state;
    mica_sampling_default(&sampling);
    must(mica_sampler_create(&sampling, t.r.info.vocabulary, NULL, NULL, &n.sampler));
    assert_int_equal(pthread_create(&thread, NULL, intrude, &n), 0);
    while (met < 3 || fed < 200) { /* either is told, and what was refused did nothing */
        const mica_status status = feed_some(t.context, t.sequence, 2);
        assert_true(status == MICA_OK || status == MICA_ERR_STATE);
        met += status == MICA_ERR_STATE;
        fed += status == MICA_OK;
        while (fed % 50 == 49 && mica_sequence_trim(t.context, t.sequence, 0) != MICA_OK)
            ;
    }
    atomic_store(&n.enough, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(n.refused > 0);
    mica_sampler_release(n.sampler);
    trial_close(&t);
}

/* ---- forks ---------------------------------------------------------------------------------------------- */

static void *cancel_always(void *argument)
{
    intruder *n = argument;
    while (!atomic_load(&n->enough))
        (void)mica_context_cancel(n->context);
    return NULL;
}

static void *feed_always(void *argument)
{
    intruder *n = argument;
    while (!atomic_load(&n->enough)) {
        (void)feed_some(n->context, n->sequence, 2);
        (void)mica_sequence_trim(n->context, n->sequence, 0);
    }
    return NULL;
}

/* In a child: feeds, and says whether that went as it should. */
static int feed_in_child(mica_context *context, uint32_t sequence, bool busy)
{
    (void)alarm(60); /* a child that hangs ends so */
    (void)mica_context_cancel_clear(context);
    const mica_status fed = feed_some(context, sequence, 1);
    if (fed == MICA_OK || (busy && fed == MICA_ERR_DEVICE_LOST)) /* the work that ran is not the child's */
        return 0;
    print_error("in the child: %s\n", mica_status_message());
    return 1;
}

/* A child feeds although the threads that cancelled, and in the second round fed, when it was born are not there. The address
 * sanitizer has no second round: it forks without its allocator's locks, and what a thread that feeds holds of them nobody gives back
 * in the child. */
static void children_feed(void **state)
{
    (void)state;
    for (int busy = 0; busy < (TEST_ANY_SANITIZER && !TEST_THREAD_SANITIZER ? 1 : 2); busy++) {
        trial t = trial_open();
        intruder n = {.context = t.context, .sequence = rig_sequence(t.context)};
        pthread_t cancels, feeding;
        assert_int_equal(pthread_create(&cancels, NULL, cancel_always, &n), 0);
        if (busy)
            assert_int_equal(pthread_create(&feeding, NULL, feed_always, &n), 0);
        for (int i = 0; i < 10; i++) {
            int status = 0;
            const pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0)
                _exit(feed_in_child(t.context, t.sequence, busy != 0));
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        atomic_store(&n.enough, true);
        assert_int_equal(pthread_join(cancels, NULL), 0);
        if (busy)
            assert_int_equal(pthread_join(feeding, NULL), 0);
        must(mica_context_cancel_clear(t.context));
        trial_close(&t);
    }
}

/* ---- memory --------------------------------------------------------------------------------------------- */

/* Steps of 1 to 24 tokens, each with a recording of its own, in a budget for a few of them; then a prompt. All run, and give
 * what they give with all the memory of the machine. */
static void recordings_give_way(void **state)
{
    uint32_t tokens[40], rows;
    rig r = rig_open("llama", 1);
    mica_context *wide = rig_context(&r, 1024, 1, 64), *narrow = rig_context(&r, 1024, 1, 64);
    const uint32_t a = rig_sequence(wide), b = rig_sequence(narrow);
    mica_context_info info;
    mica_device_memory memory;
    const float *first, *second;
    (void)state;
    rig_tokens(&r, 3, tokens, 40);
    for (uint32_t width = 1; width <= 24; width++)
        must(mica_context_feed(wide, &(mica_feed){a, tokens, width, MICA_WANT_ALL}, 1));
    must(mica_context_feed(wide, &(mica_feed){a, tokens, 40, MICA_WANT_LAST}, 1));
    must(mica_context_logits(wide, a, &first, &rows));
    must(mica_device_get_memory(r.device, &memory));
    must(mica_device_set_budget(r.device, memory.owned_bytes + 36000));
    for (uint32_t width = 1; width <= 24; width++)
        must(mica_context_feed(narrow, &(mica_feed){b, tokens, width, MICA_WANT_ALL}, 1));
    must(mica_context_get_info(narrow, &info));
    assert_true(info.recordings < 24);
    must(mica_context_feed(narrow, &(mica_feed){b, tokens, 40, MICA_WANT_LAST}, 1));
    must(mica_context_logits(narrow, b, &second, &rows));
    assert_memory_equal(first, second, r.info.vocabulary * sizeof *first);
    /* No memory, and no room: two things. */
    must(mica_device_set_budget(r.device, 0));
    mica_context *empty = rig_context(&r, 512, 1, 64);
    const uint32_t c = rig_sequence(empty);
    must(mica_context_feed(empty, &(mica_feed){c, tokens, 2, MICA_WANT_ALL}, 1));
    must(mica_device_get_memory(r.device, &memory));
    must(mica_device_set_budget(r.device, memory.owned_bytes));
    refused(mica_context_feed(empty, &(mica_feed){c, tokens, 32, MICA_WANT_ALL}, 1), MICA_ERR_BUDGET,
            "context_feed: ");
    must(mica_context_get_info(empty, &info));
    assert_int_equal(info.recordings, 0); /* all were given back for it */
    mica_status status = MICA_ERR_BUDGET;
    for (uint64_t room = 0; status == MICA_ERR_BUDGET; room += 256) { /* whatever part of it finds room */
        must(mica_device_set_budget(r.device, memory.owned_bytes + room));
        status = mica_context_feed(empty, &(mica_feed){c, tokens, 32, MICA_WANT_ALL}, 1);
    }
    must(status);
    must(mica_device_set_budget(r.device, 0));
    must(mica_context_feed(empty, &(mica_feed){c, tokens, 32, MICA_WANT_ALL}, 1));
    mica_context_release(empty);
    while (length_of(narrow, b) + 40 <= 1024)
        must(mica_context_feed(narrow, &(mica_feed){b, tokens, 40, MICA_WANT_NONE}, 1));
    refused(mica_context_feed(narrow, &(mica_feed){b, tokens, 40, MICA_WANT_NONE}, 1), MICA_ERR_FULL,
            "context_feed: the context is full");
    mica_context_release(wide);
    mica_context_release(narrow);
    rig_close(&r);
}

/* What the device owns more than before after feeds of `width` to `end` tokens, that one left out, whose logits are all read. */
static uint64_t widths_cost(const rig *r, mica_context *context, uint32_t sequence, uint32_t width,
                            uint32_t end)
{
    uint32_t tokens[16], rows;
    mica_device_memory before, after;
    const float *logits;
    rig_tokens(r, 3, tokens, 16);
    must(mica_device_get_memory(r->device, &before));
    for (; width != end; width += width < end ? 1u : -1u) {
        must(mica_sequence_trim(context, sequence, 0));
        must(mica_context_feed(context, &(mica_feed){sequence, tokens, width, MICA_WANT_ALL}, 1));
        must(mica_context_logits(context, sequence, &logits, &rows));
        assert_int_equal(rows, width);
    }
    must(mica_device_get_memory(r->device, &after));
    return after.owned_bytes - before.owned_bytes;
}

/* Recordings of all widths write their logits into the same memory, which is as large as the widest needs; where they came
 * upwards, what is left of smaller ones adds less than that. */
static void recordings_share_rows(void **state)
{
    rig r = rig_open("llama", 1);
    mica_context *context = rig_context(&r, 512, 1, 64), *upwards = rig_context(&r, 512, 1, 64);
    const uint32_t a = rig_sequence(context), b = rig_sequence(upwards);
    const uint64_t row = r.info.vocabulary * sizeof(float);
    mica_context_info info;
    (void)state;
    const uint64_t widest = widths_cost(&r, context, a, 16, 15);
    const uint64_t others = widths_cost(&r, context, a, 15, 0);
    assert_true(others < 16 * row); /* what each reads; rows of their own would be 120 */
    assert_true(widths_cost(&r, upwards, b, 1, 17) < widest + others + 16 * row);
    must(mica_context_get_info(context, &info));
    assert_int_equal(info.recordings, 16);
    mica_context_release(context);
    mica_context_release(upwards);
    rig_close(&r);
}

/* ---- sentences ------------------------------------------------------------------------------------------ */

static void begins(mica_status status, const char *with)
{
    assert_int_not_equal(status, MICA_OK);
    if (strncmp(mica_status_message(), with, strlen(with)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", mica_status_message(), with);
}

/* A sentence begins with the call that the program made, whoever inside found the fault, and names no other. */
static void sentences_name_the_call(void **state)
{
    trial t = trial_open();
    const uint32_t bad = 1u << 30;
    mica_next item = {.sequence = t.sequence, .tokens = &bad, .count = 1, .sampler = t.sampler};
    mica_model *model;
    mica_context *context;
    uint32_t other;
    float vector[256];
    (void)state;
    begins(mica_model_open("/nowhere", t.r.device, NULL, &model), "model_open: cannot open");
    begins(mica_model_open("tests", t.r.device, NULL, &model), "model_open: \"tests");
    begins(mica_context_create(t.r.model, &(mica_context_options){.size = 3}, &context),
           "context_create: options");
    begins(mica_context_next(t.context, &item, 1), "context_next: token 0 of feed 0");
    item.sequence = 77;
    begins(mica_context_next(t.context, &item, 1), "context_next: there is no sequence 77");
    begins(mica_context_feed(t.context, &(mica_feed){t.sequence, &bad, 1, MICA_WANT_LAST}, 1),
           "context_feed: token 0");
    begins(mica_context_embed(t.context, &bad, 1, MICA_POOLING_MEAN, 1, vector), "context_embed: token 0");
    begins(mica_sequence_fork(t.context, t.sequence, 500, &other), "sequence_fork: length is 500");
    begins(mica_sequence_trim(t.context, t.sequence, 500), "sequence_trim: length is 500");
    begins(mica_sequence_load(t.context, "/nowhere", &other), "sequence_load: cannot open");
    begins(mica_sequence_save(t.context, t.sequence, "/nowhere/state"), "sequence_save: cannot");
    trial_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancel_is_kept_until_it_is_obeyed),
        cmocka_unit_test(a_cancel_can_be_cleared),
        cmocka_unit_test(a_work_cancels_too),
        cmocka_unit_test(layers_without_end_are_stopped),
        cmocka_unit_test(kernels_are_stopped),
        cmocka_unit_test(two_threads_are_told),
        cmocka_unit_test(children_feed),
        cmocka_unit_test(recordings_give_way),
        cmocka_unit_test(recordings_share_rows),
        cmocka_unit_test(sentences_name_the_call),
    };
    return cmocka_run_group_tests_name("context calls", tests, NULL, NULL);
}
