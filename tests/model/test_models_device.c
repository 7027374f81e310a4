/*
 * test_models_device.c - the model layer on a device that is no cpu: the golden checkpoints, trained weights, and everything
 * that a context does, against what the cpu or the host gives.
 *
 *   test_models_device                          a short form on the first OpenCL device
 *   test_models_device DEVICE [CHECKPOINT...]   all checkpoints, or these: 'make test-gpu' calls it so
 */
#include <math.h>
#include <stdatomic.h>

#include "golden_models.h"
#include "mica/format.h"
#include "stories_rig.h"
#include "support/meter.h"
#include "support/model_file.h"
#include "support/need.h"

#define NEAR 1e-4 /* f32 on both sides, as in golden_models.h */
#define PICKS 40u

/* What the arguments say; cmocka hands tests one pointer, which is a checkpoint or the stories. */
static struct {
    const char *id;
    bool is_short;
} device;

/* Of the short form: experts and head norms. What a device compiles for it the tests below need as well. */
static const char *const short_form[] = {"qwen3moe"};

static rig open_model(const char *path, const char *id)
{
    rig r = {0};
    must(mica_device_open(id, NULL, &r.device));
    must(mica_model_open(path, r.device, NULL, &r.model));
    must(mica_model_get_info(r.model, &r.info));
    return r;
}

static rig open_llama(const char *id)
{
    return open_model(GOLDEN_HOME "llama", id);
}

static mica_sampler *sampler_of(const rig *r, const mica_sampling *sampling, mica_grammar *grammar)
{
    mica_sampler *sampler = NULL;
    must(
        mica_sampler_create(sampling, r->info.vocabulary, mica_model_tokenizer(r->model), grammar, &sampler));
    return sampler;
}

static mica_counters counters_of(const rig *r)
{
    mica_counters counters;
    must(mica_counters_get(r->device, &counters));
    return counters;
}

/* ---- what others computed ------------------------------------------------------------------------------- */

static void agrees(void **state)
{
    golden_agrees(*state, device.id);
}

static void stories_are_the_expected_ones(void **state)
{
    static const char *const files[] = {"stories260K-f32.gguf", "stories260K-h256-Q8_0.gguf",
                                        "stories260K-f16.gguf", "stories260K-as-moe-4x2-f32.gguf"};
    const stories *s = stories_need(state);
    for (size_t f = 0; f < (device.is_short ? 1 : sizeof files / sizeof files[0]); f++) {
        rig r = stories_open(s, device.id, files[f], 0);
        stories_check_text(s, files[f], &r, 1);
        stories_check_text(s, files[f], &r, STORIES_CAPACITY);
        rig_close(&r);
    }
}

/* ---- choosing tokens ------------------------------------------------------------------------------------ */

/* Of each kind one: greedy, filtered, typical, penalised, and three that the host does. */
static mica_sampling kind_of(uint32_t kind, const mica_logit_bias *bias)
{
    mica_sampling s;
    mica_sampling_default(&s);
    s.seed = 1000 + kind;
    s.temperature = kind == 0 ? 0.0f : 1.3f;
    s.typical_p = kind == 2 ? 0.7f : 1.0f;
    s.repeat_penalty = kind == 3 ? 1.4f : 1.0f;
    s.frequency_penalty = kind == 3 ? 0.3f : 0.0f;
    s.bias = bias;
    s.bias_count = kind == 3;
    s.mirostat = kind == 4 ? 2 : 0;
    s.dry_multiplier = kind == 5 ? 0.8f : 0.0f;
    s.xtc_probability = kind == 6 ? 0.5f : 0.0f;
    return s;
}

/* The token of a step on the device, and the one that the host picks from the same logits. */
static bool step_agrees(mica_context *context, mica_next *item, mica_sampler *host)
{
    const float *logits;
    uint32_t rows, id;
    must(mica_context_next(context, item, 1));
    must(mica_context_logits(context, item->sequence, &logits, &rows));
    assert_int_equal(rows, 1);
    must(mica_sampler_pick(host, logits, &id));
    must(mica_sampler_accept(item->sampler, id, 1)); /* both go on with the host's */
    must(mica_sampler_accept(host, id, 1));
    const bool same = item->id == id;
    item->id = id;
    return same;
}

/* The host adds up in f64 and the op in f32: where a sum meets its bound to seven digits they may part. */
static void tokens_are_those_of_the_host(void **state)
{
    rig r = open_llama(device.id);
    uint32_t differ = 0;
    (void)state;
    for (uint32_t kind = 0; kind < 7; kind++) {
        mica_context *context = rig_context(&r, 128, 1, 64);
        const mica_logit_bias bias = {7, 4.0f};
        const mica_sampling s = kind_of(kind, &bias);
        mica_sampler *sampler = sampler_of(&r, &s, NULL), *host = sampler_of(&r, &s, NULL);
        uint32_t prompt[9], token;
        mica_next item = {.sequence = rig_sequence(context),
                          .tokens = prompt,
                          .count = 9,
                          .flags = MICA_NEXT_LOGITS,
                          .sampler = sampler};
        rig_tokens(&r, kind, prompt, 9);
        for (uint32_t i = 0; i < PICKS; i++) {
            differ += !step_agrees(context, &item, host);
            token = item.id;
            item.tokens = &token;
            item.count = 1;
        }
        mica_sampler_release(sampler);
        mica_sampler_release(host);
        mica_context_release(context);
    }
    rig_close(&r);
    assert_true(differ <= 1);
}

/* A grammar's mask is an operand: the model inside the tool, which has a tokenizer, writes what the grammar says. */
static void grammars_hold(void **state)
{
    static const char text[] = "root ::= [a-z]+ (\" \" [a-z]+){2,3} \".\"";
    rig r = open_model("models/demo.gguf", device.id);
    mica_context *context = rig_context(&r, 128, 1, 64);
    mica_grammar *grammar = NULL;
    mica_sampling s;
    (void)state;
    mica_sampling_default(&s);
    must(mica_grammar_create(text, strlen(text), NULL, &grammar));
    mica_sampler *sampler = sampler_of(&r, &s, grammar), *host = sampler_of(&r, &s, grammar);
    uint32_t token = 1;
    mica_next item = {.sequence = rig_sequence(context),
                      .tokens = &token,
                      .count = 1,
                      .flags = MICA_NEXT_LOGITS,
                      .sampler = sampler};
    uint32_t differ = 0, told = 0;
    do {
        differ +=
            !step_agrees(context, &item, host); /* whose accept refuses what the grammar does not admit */
        token = item.id;
    } while (++told < PICKS && !mica_tokenizer_is_end(mica_model_tokenizer(r.model), token));
    assert_true(told > 3 && differ <= 1);
    mica_sampler_release(sampler);
    mica_sampler_release(host);
    mica_grammar_release(grammar);
    mica_context_release(context);
    rig_close(&r);
}

/* A decode step of a kept recording: one submission, a few words up, the token down, and no memory of the host. */
static void a_step_reads_back_the_token_alone(void **state)
{
    test_meter meter = {0};
    must(test_meter_set(&meter));
    rig r = open_llama(device.id);
    mica_context *context = rig_context(&r, 128, 1, 64);
    mica_sampling s;
    uint32_t token = 3;
    mica_context_info info;
    (void)state;
    mica_sampling_default(&s);
    mica_sampler *sampler = sampler_of(&r, &s, NULL);
    mica_next item = {.sequence = rig_sequence(context), .tokens = &token, .count = 1, .sampler = sampler};
    for (uint32_t i = 0; i < 3; i++)
        must(mica_context_next(context, &item, 1));
    const mica_counters before = counters_of(&r);
    const uint64_t made = atomic_load(&meter.calls);
    for (uint32_t i = 0; i < 20; i++)
        must(mica_context_next(context, &item, 1));
    const mica_counters after = counters_of(&r);
    assert_int_equal(atomic_load(&meter.calls), made);
    assert_int_equal(after.bytes_downloaded - before.bytes_downloaded, 20 * sizeof(uint32_t));
    assert_int_equal(after.replays - before.replays, 20);
    assert_int_equal(after.submissions - before.submissions, 20);
    assert_true(after.bytes_uploaded - before.bytes_uploaded <= 20 * 1024);
    must(mica_context_get_info(context, &info));
    assert_int_equal(info.recordings, 1);
    mica_sampler_release(sampler);
    mica_context_release(context);
    rig_close(&r);
    must(mica_set_allocator(NULL));
}

static void log_probabilities_are_those_of_the_logits(void **state)
{
    rig r = open_llama(device.id);
    mica_context *context = rig_context(&r, 128, 1, 64);
    mica_token_chance *all = test_alloc(r.info.vocabulary, sizeof *all);
    mica_sampling s;
    uint32_t token = 3, rows;
    const float *logits;
    (void)state;
    mica_sampling_default(&s);
    s.repeat_penalty = 1.5f;
    mica_sampler *sampler = sampler_of(&r, &s, NULL);
    mica_next item = {.sequence = rig_sequence(context),
                      .tokens = &token,
                      .count = 1,
                      .flags = MICA_NEXT_LOG_PROBABILITY | MICA_NEXT_LOGITS,
                      .sampler = sampler};
    for (uint32_t i = 0; i < 10; i++) {
        float wanted = NAN;
        must(mica_context_next(context, &item, 1));
        must(mica_context_logits(context, item.sequence, &logits, &rows));
        must(mica_sampler_chances(sampler, logits, r.info.vocabulary, all));
        for (uint32_t k = 0; k < r.info.vocabulary; k++)
            wanted = all[k].id == item.id ? all[k].log_probability : wanted;
        assert_true(fabsf(item.log_probability - wanted) < 1e-4f);
        token = item.id;
        must(mica_sampler_accept(sampler, token, 1));
    }
    free(all);
    mica_sampler_release(sampler);
    mica_context_release(context);
    rig_close(&r);
}

/* ---- sequences ------------------------------------------------------------------------------------------ */

static double apart(const float *got, const float *want, uint32_t count)
{
    double worst = 0, top = 0;
    for (uint32_t i = 0; i < count; i++) {
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
        top = fmax(top, fabs((double)want[i]));
    }
    return worst / top;
}

/* The logits after one more token, copied. */
static void step_logits(mica_context *context, const rig *r, uint32_t sequence, uint32_t token, float *out)
{
    const mica_feed feed = {sequence, &token, 1, MICA_WANT_LAST};
    const float *logits;
    uint32_t rows;
    must(mica_context_feed(context, &feed, 1));
    must(mica_context_logits(context, sequence, &logits, &rows));
    memcpy(out, logits, r->info.vocabulary * sizeof *out);
}

/* Forked, trimmed, saved and loaded sequences go on with the bits of the first; a state goes to the cpu and back. */
static void sequences_fork_trim_and_travel(void **state)
{
    rig r = open_llama(device.id), on_cpu = open_llama("cpu");
    mica_context *context = rig_context(&r, 512, 4, 64), *other = rig_context(&on_cpu, 512, 4, 64);
    uint32_t tokens[70], first = rig_sequence(context), forked, loaded;
    float *want = test_alloc(r.info.vocabulary, sizeof *want),
          *got = test_alloc(r.info.vocabulary, sizeof *got);
    char folder[256], path[300];
    (void)state;
    assert_int_equal(test_folder_make(folder, sizeof folder, "device"), 0);
    (void)snprintf(path, sizeof path, "%s/state", folder);
    rig_tokens(&r, 5, tokens, 70);
    must(mica_context_feed(context, &(mica_feed){first, tokens, 70, MICA_WANT_NONE}, 1));
    must(mica_sequence_save(context, first, path));
    must(mica_sequence_fork(context, first, 70, &forked));
    step_logits(context, &r, first, 9, want);
    step_logits(context, &r, forked, 9, got);
    assert_memory_equal(got, want, r.info.vocabulary * sizeof *got);
    must(mica_sequence_trim(context, first, 70));
    step_logits(context, &r, first, 9, got);
    assert_memory_equal(got, want, r.info.vocabulary * sizeof *got);
    must(mica_sequence_load(context, path, &loaded));
    step_logits(context, &r, loaded, 9, got);
    assert_memory_equal(got, want, r.info.vocabulary * sizeof *got);

    must(mica_sequence_load(other, path, &loaded));
    step_logits(other, &on_cpu, loaded, 9, got);
    assert_true(apart(got, want, r.info.vocabulary) <= NEAR);
    must(mica_sequence_trim(other, loaded, 70));
    must(mica_sequence_save(other, loaded, path));
    must(mica_sequence_load(context, path, &loaded));
    step_logits(context, &r, loaded, 9, got);
    assert_memory_equal(got, want, r.info.vocabulary * sizeof *got);
    assert_int_equal(test_folder_remove(folder), 0);
    free(want);
    free(got);
    mica_context_release(context);
    mica_context_release(other);
    rig_close(&r);
    rig_close(&on_cpu);
}

/* One step over and over on a model as it is, or of the type that it is quantised to. */
static void repeat_step(const char *type, uint32_t rounds)
{
    const mica_quantize_options options = {.type = type, .overwrite = 1, .threads = 2};
    char path[512] = "models/demo.gguf";
    uint32_t tokens[20];
    if (type != NULL) {
        test_file_path(path, sizeof path, "repeated.gguf");
        must(mica_quantize("models/demo.gguf", path, &options, NULL));
    }
    rig r = open_model(path, device.id);
    mica_context *context = rig_context(&r, 128, 1, 64);
    const uint32_t sequence = rig_sequence(context);
    const size_t bytes = r.info.vocabulary * sizeof(float);
    float *want = test_alloc(1, bytes), *got = test_alloc(1, bytes);
    rig_tokens(&r, 3, tokens, 20);
    must(mica_context_feed(context, &(mica_feed){sequence, tokens, 20, MICA_WANT_NONE}, 1));
    step_logits(context, &r, sequence, 9, want);
    for (uint32_t i = 0; i < rounds; i++) {
        must(mica_sequence_trim(context, sequence, 20));
        step_logits(context, &r, sequence, 9, got);
        if (memcmp(got, want, bytes) != 0)
            fail_msg("%s: round %u gives other bits than the first", type != NULL ? type : "as it is", i);
    }
    free(want);
    free(got);
    mica_context_release(context);
    rig_close(&r);
    if (type != NULL)
        remove(path);
}

/* Kernels that start before those they depend on are over, or write what another still reads, would be seen here. */
static void a_step_gives_the_same_bits_each_time(void **state)
{
    static const char *const types[] = {"f32", "f16", "bf16", "q4_0", "q8_0", "q4_k", "q6_k"};
    (void)state;
    repeat_step(NULL, device.is_short ? 30 : 2000);
    for (size_t i = 0; !device.is_short && i < sizeof types / sizeof types[0]; i++)
        repeat_step(types[i], 500);
}

static void embeddings_are_those_of_the_cpu(void **state)
{
    const mica_context_options exact = {.capacity = 64, .cache_k = MICA_DTYPE_F32, .cache_v = MICA_DTYPE_F32};
    float vector[2][GOLDEN_VOCABULARY];
    uint32_t tokens[40];
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        rig r = open_llama(i == 0 ? "cpu" : device.id);
        mica_context *context = NULL;
        must(mica_context_create(r.model, &exact, &context));
        assert_true(r.info.width <= GOLDEN_VOCABULARY);
        rig_tokens(&r, 2, tokens, 40);
        must(mica_context_embed(context, tokens, 40, MICA_POOLING_MEAN, 1, vector[i]));
        if (i == 1)
            assert_true(apart(vector[1], vector[0], r.info.width) <= NEAR);
        mica_context_release(context);
        rig_close(&r);
    }
}

static void cancelling_stops_a_feed(void **state)
{
    rig r = open_llama(device.id);
    mica_context *context = rig_context(&r, 64, 1, 64);
    const uint32_t token = 3, sequence = rig_sequence(context);
    const mica_feed feed = {sequence, &token, 1, MICA_WANT_LAST};
    (void)state;
    must(mica_context_cancel(context));
    refused(mica_context_feed(context, &feed, 1), MICA_ERR_CANCELLED, "cancelled");
    must(mica_context_feed(context, &feed, 1));
    mica_context_release(context);
    rig_close(&r);
}

/* ---- loading -------------------------------------------------------------------------------------------- */

typedef struct watch {
    uint64_t calls, done, total, stop_at; /* stop_at: the call that says stop; 0: none */
} watch;

static int look(void *context, const char *what, uint64_t done, uint64_t total)
{
    watch *w = context;
    assert_non_null(what);
    assert_true(done >= w->done && done <= total);
    w->done = done;
    w->total = total;
    return ++w->calls == w->stop_at;
}

/* Every byte of the weights goes up once, and somebody is told. */
static void weights_go_up_once_with_progress(void **state)
{
    watch w = {0};
    mica_model_options options = {.progress = look, .context = &w};
    rig r = {0};
    (void)state;
    must(mica_device_open(device.id, NULL, &r.device));
    const mica_counters before = counters_of(&r);
    must(mica_model_open(GOLDEN_HOME "llama", r.device, &options, &r.model));
    must(mica_model_get_info(r.model, &r.info));
    assert_true(w.calls > 1 && w.done == w.total && w.total == r.info.weight_bytes);
    const uint64_t sent = counters_of(&r).bytes_uploaded - before.bytes_uploaded;
    assert_true(sent <= w.total + 4096); /* and a few factors of rotations */
    mica_model_release(r.model);
    w = (watch){.stop_at = 2};
    refused(mica_model_open(GOLDEN_HOME "llama", r.device, &options, &r.model), MICA_ERR_CANCELLED,
            "stopped");
    mica_device_memory memory;
    must(mica_device_get_memory(r.device, &memory));
    assert_int_equal(memory.owned_bytes, 0);
    mica_device_release(r.device);
}

/* Behind a tensor of a file lies another one: NaN there, for instance, and rows of 24 end in the middle of a tile. */
static void weights_are_not_read_past_their_end(void **state)
{
    enum { ROWS = 64, COLUMNS = 24, OUTPUTS = 16, ALL = OUTPUTS * COLUMNS + 256 };
    const uint64_t x_shape[2] = {ROWS, COLUMNS}, w_shape[2] = {OUTPUTS, COLUMNS},
                   y_shape[2] = {ROWS, OUTPUTS}, all = ALL;
    mica_buffer *x = NULL, *file = NULL, *w = NULL, *y = NULL;
    mica_device *opened = NULL;
    mica_encoder *encoder = NULL;
    float numbers[ALL], ones[ROWS * COLUMNS], out[ROWS * OUTPUTS];
    (void)state;
    for (uint32_t i = 0; i < ALL; i++)
        numbers[i] = i < OUTPUTS * COLUMNS ? (float)(i / COLUMNS) : NAN;
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
        ones[i] = 1.0f;
    must(mica_device_open(device.id, NULL, &opened));
    must(mica_buffer_alloc(opened, MICA_DTYPE_F32, 2, x_shape, &x));
    must(mica_buffer_alloc(opened, MICA_DTYPE_F32, 1, &all, &file));
    must(mica_buffer_alloc(opened, MICA_DTYPE_F32, 2, y_shape, &y));
    must(mica_buffer_view(file, MICA_DTYPE_F32, 2, w_shape, NULL, 0, &w));
    must(mica_buffer_write(x, 0, ones, sizeof ones));
    must(mica_buffer_write(file, 0, numbers, sizeof numbers));
    must(mica_encoder_begin(opened, NULL, &encoder));
    must(mica_matmul(encoder, x, w, NULL, y));
    must(mica_encoder_commit_and_wait(encoder));
    must(mica_buffer_read(y, 0, out, sizeof out));
    for (uint32_t i = 0; i < ROWS * OUTPUTS; i++)
        assert_true(out[i] == (float)(COLUMNS * (i % OUTPUTS)));
    mica_encoder_release(encoder);
    mica_buffer_release(x);
    mica_buffer_release(file);
    mica_buffer_release(w);
    mica_buffer_release(y);
    mica_device_release(opened);
}

/* ---- which ---------------------------------------------------------------------------------------------- */

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return count == 0;
}

static int run_golden(const char *const *names, size_t count)
{
    struct CMUnitTest tests[GOLDEN_COUNT];
    size_t used = 0;
    for (size_t i = 0; i < GOLDEN_COUNT; i++)
        if (is_among(golden_checkpoints[i].name, names, count))
            tests[used++] = (struct CMUnitTest){golden_checkpoints[i].name, agrees, NULL, NULL,
                                                (void *)(uintptr_t)&golden_checkpoints[i]};
    return used == 0 ? 1 : _cmocka_run_group_tests("golden", tests, used, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories_are_the_expected_ones),
        cmocka_unit_test(tokens_are_those_of_the_host),
        cmocka_unit_test(grammars_hold),
        cmocka_unit_test(a_step_reads_back_the_token_alone),
        cmocka_unit_test(log_probabilities_are_those_of_the_logits),
        cmocka_unit_test(sequences_fork_trim_and_travel),
        cmocka_unit_test(a_step_gives_the_same_bits_each_time),
        cmocka_unit_test(embeddings_are_those_of_the_cpu),
        cmocka_unit_test(cancelling_stops_a_feed),
        cmocka_unit_test(weights_go_up_once_with_progress),
        cmocka_unit_test(weights_are_not_read_past_their_end),
    };
    device.id = argc > 1 ? argv[1] : "opencl";
    device.is_short = argc < 2;
    const int missing = test_need(device.id);
    if (missing != 0)
        return missing;
    if (argc > 2)
        return run_golden((const char *const *)argv + 2, (size_t)argc - 2);
    const int failed = run_golden(short_form, device.is_short ? sizeof short_form / sizeof short_form[0] : 0);
    return failed + cmocka_run_group_tests_name("device", tests, stories_setup, stories_teardown);
}
