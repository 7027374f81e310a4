/* model.c - `mica bench --model`: tokens a second of whole models, in the columns of llama-bench. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "mica/mica.h"
#include "model/model.h"
#include "terminal/output.h"

/* One line of the table. */
typedef struct bench_test {
    uint32_t prompt, text, depth; /* tokens; prompt or text is 0 */
} bench_test;

typedef struct bench_run {
    const tool_call *call;
    const char *path;
    tool_model model;
    mica_device_properties device;
    mica_context *context;
    mica_sampler *sampler; /* greedy */
    uint32_t *tokens;      /* random */
    uint32_t repetitions, batch;
    double *rate;         /* [repetitions] tokens a second */
    double first_seconds; /* the run before those that count: kernels are compiled or come from the disk */
    tool_json json;
    int as_json, as_markdown;
    int has_head;          /* 1: the head of the table, or the bracket of the list, is printed */
    bench_profile profile; /* of one more prompt or step, where asked for */
} bench_run;

static const tool_column columns[] = {
    {"model", "model", TOOL_TEXT, 24},    {"size", "size", TOOL_TEXT, 10}, {"params", "params", TOOL_TEXT, 9},
    {"backend", "backend", TOOL_TEXT, 7}, {"threads", "threads", 0, 7},    {"test", "test", TOOL_TEXT, 14},
    {"t/s", "t/s", TOOL_TEXT, 18},
};
#define COLUMNS (sizeof columns / sizeof *columns)

static void count_text(uint64_t count, char *out, size_t capacity)
{
    static const char *const units[] = {"", " K", " M", " B", " T"};
    double number = (double)count;
    size_t unit = 0;
    for (; number >= 1000 && unit < 4; unit++)
        number /= 1000;
    snprintf(out, capacity, "%.2f%s", number, units[unit]);
}

static void test_text(const bench_test *test, char *out, size_t capacity)
{
    int used = snprintf(out, capacity, test->prompt > 0 ? "pp%u" : "tg%u",
                        test->prompt > 0 ? test->prompt : test->text);
    if (test->depth > 0 && used > 0 && (size_t)used < capacity)
        snprintf(out + used, capacity - (size_t)used, " @ d%u", test->depth);
}

static void mean_of(const bench_run *run, double *out_mean, double *out_deviation)
{
    double sum = 0, squares = 0, n = run->repetitions;
    for (uint32_t i = 0; i < run->repetitions; i++)
        sum += run->rate[i];
    for (uint32_t i = 0; i < run->repetitions; i++)
        squares += (run->rate[i] - sum / n) * (run->rate[i] - sum / n);
    *out_mean = sum / n;
    *out_deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
}

/* ---- measuring ---- */

/* A step as a program does it, up to the token that follows; the next step goes on with another. */
static mica_status step(bench_run *run, uint32_t sequence, const uint32_t *tokens, uint32_t count)
{
    mica_next what = {.sequence = sequence, .tokens = tokens, .count = count, .sampler = run->sampler};
    return mica_context_next(run->context, &what, 1);
}

/* The timed part: the prompt at once, or the text token by token. */
static mica_status run_timed(bench_run *run, uint32_t sequence, const bench_test *test, uint32_t text)
{
    if (test->prompt > 0)
        return step(run, sequence, run->tokens, test->prompt);
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < text && status == MICA_OK; i++)
        status = step(run, sequence, run->tokens + i, 1);
    return status;
}

/* A sequence on top of the `base` sequence, which holds the depth. */
static mica_status begin_sequence(bench_run *run, uint32_t base, const bench_test *test, uint32_t *out)
{
    return test->depth > 0 ? mica_sequence_fork(run->context, base, test->depth, out)
                           : mica_sequence_create(run->context, out);
}

/* One run on a sequence of its own, gone afterwards. */
static mica_status run_once(bench_run *run, uint32_t base, const bench_test *test, uint32_t text,
                            double *out_rate)
{
    uint32_t sequence = 0;
    mica_status status = begin_sequence(run, base, test, &sequence);
    if (status != MICA_OK)
        return status;
    uint64_t start = tool_clock_ns();
    status = run_timed(run, sequence, test, text);
    uint64_t ns = tool_clock_ns() - start;
    *out_rate = (double)(test->prompt > 0 ? test->prompt : text) * 1e9 / (double)(ns > 0 ? ns : 1);
    mica_status removed = mica_sequence_remove(run->context, sequence);
    return status != MICA_OK ? status : removed;
}

/* The prompt once more, or one more step behind one that is not seen (it copies what the sequence shared), with the time of
 * each kernel. */
static mica_status profile_once(bench_run *run, uint32_t base, const bench_test *test)
{
    uint32_t sequence = 0;
    mica_status status = begin_sequence(run, base, test, &sequence);
    if (status != MICA_OK)
        return status;
    if (test->prompt == 0)
        status = run_timed(run, sequence, test, 1);
    if (status == MICA_OK)
        status = mica_profile_begin(run->model.device);
    if (status == MICA_OK)
        status = run_timed(run, sequence, test, 1);
    if (status == MICA_OK)
        status = bench_profile_end(run->model.device, &run->profile);
    mica_status removed = mica_sequence_remove(run->context, sequence);
    return status != MICA_OK ? status : removed;
}

static mica_status measure(bench_run *run, const bench_test *test)
{
    uint32_t base = 0;
    double warm = 0;
    mica_status status = mica_sequence_create(run->context, &base);
    const mica_feed depth = {base, run->tokens, test->depth, MICA_WANT_NONE};
    if (status == MICA_OK && test->depth > 0)
        status = mica_context_feed(run->context, &depth, 1);
    const uint64_t start = tool_clock_ns();
    if (status == MICA_OK)
        status = run_once(run, base, test, 2, &warm);
    run->first_seconds = (double)(tool_clock_ns() - start) * 1e-9;
    for (uint32_t i = 0; i < run->repetitions && status == MICA_OK; i++)
        status = run_once(run, base, test, test->text, &run->rate[i]);
    if (status == MICA_OK && run->profile.wanted)
        status = profile_once(run, base, test);
    return status;
}

/* ---- printing ---- */

static void print_object(bench_run *run, const bench_test *test, double mean, double deviation)
{
    tool_json *json = &run->json;
    const mica_model_info *info = &run->model.info;
    tool_json_open(json, NULL, '{');
    tool_json_text(json, "build_number", mica_version());
    tool_json_text(json, "cpu_info", run->device.name);
    tool_json_text(json, "backends", run->device.backend);
    tool_json_text(json, "device", run->device.id);
    tool_json_text(json, "model_filename", run->path);
    tool_json_text(json, "model_family", info->family);
    tool_json_text(json, "model_type", info->type);
    tool_json_uint(json, "model_size", info->weight_bytes);
    tool_json_uint(json, "model_n_params", info->parameters);
    tool_json_uint(json, "n_batch", run->batch);
    tool_json_text(json, "type_k", tool_word(run->call, "cache-type-k"));
    tool_json_text(json, "type_v", tool_word(run->call, "cache-type-v"));
    tool_json_uint(json, "n_threads", run->device.threads);
    tool_json_uint(json, "n_prompt", test->prompt);
    tool_json_uint(json, "n_gen", test->text);
    tool_json_uint(json, "n_depth", test->depth);
    tool_json_real(json, "open_seconds", run->model.open_seconds);
    tool_json_real(json, "load_seconds", run->model.load_seconds);
    tool_json_real(json, "first_seconds", run->first_seconds);
    tool_json_real(json, "avg_ts", mean);
    tool_json_real(json, "stddev_ts", deviation);
    tool_json_open(json, "samples_ts", '[');
    for (uint32_t i = 0; i < run->repetitions; i++)
        tool_json_real(json, NULL, run->rate[i]);
    tool_json_close(json, ']');
    if (run->profile.wanted)
        bench_profile_list(&run->profile, json);
    tool_json_close(json, '}');
}

/* Only when there is a row to stand under it. */
static void print_head(bench_run *run)
{
    if (run->has_head)
        return;
    run->has_head = 1;
    if (run->as_json) {
        tool_json_open(&run->json, NULL, '[');
        return;
    }
    if (run->as_markdown)
        tool_markdown_head(columns, COLUMNS);
    else
        tool_table_head(columns, COLUMNS);
}

/* Behind the row of a test: what its kernels take. A step of a dense model reads every weight once, but of a table of tokens
 * that is not the output's too only a row. */
static void print_profile(bench_run *run, const bench_test *test, const char *what, double mean)
{
    const mica_model_info *info = &run->model.info;
    if (test->prompt > 0)
        printf("\nthe prompt of %s: %.1f us", what, test->prompt / mean * 1e6);
    else
        printf("\na step of %s: %.1f us", what, 1e6 / mean);
    if (test->prompt == 0 && info->experts == 0)
        printf(", all weights in it: %.1f GB/s", (double)info->weight_bytes * mean * 1e-9);
    puts("");
    bench_profile_print(&run->profile, run->as_markdown);
    run->has_head = 0; /* the next row is far from the last head */
}

static void print_test(bench_run *run, const bench_test *test)
{
    const mica_model_info *info = &run->model.info;
    char name[96], size[TOOL_SIZE_BYTES], parameters[32], what[48], rate[48];
    double mean = 0, deviation = 0;
    mean_of(run, &mean, &deviation);
    print_head(run);
    if (run->as_json) {
        print_object(run, test, mean, deviation);
        return;
    }
    count_text(info->parameters, parameters, sizeof parameters);
    snprintf(name, sizeof name, "%s %s", info->family, info->type);
    snprintf(rate, sizeof rate, "%.2f ± %.2f", mean, deviation);
    test_text(test, what, sizeof what);
    tool_cell cells[COLUMNS] = {{.text = name},
                                {.text = tool_size_text(info->weight_bytes, size)},
                                {.text = parameters},
                                {.text = run->device.backend},
                                {.number = run->device.threads},
                                {.text = what},
                                {.text = rate}};
    if (run->as_markdown)
        tool_markdown_row(columns, COLUMNS, cells);
    else
        tool_table_row(columns, COLUMNS, cells);
    if (run->profile.wanted)
        print_profile(run, test, what, mean);
}

/* ---- all of them ---- */

/* A context that holds the depth, what is measured, and the page that both share. */
static mica_status open_context(bench_run *run, const bench_test *test)
{
    uint32_t most = test->prompt > test->text ? test->prompt : test->text;
    mica_context_options options = {
        .size = sizeof options,
        .capacity = test->depth + (most > 2 ? most : 2) + 256,
        .sequences = 2,
        .batch = tool_batch(run->call),
        .cache_k = tool_cache_type(run->call, "cache-type-k"),
        .cache_v = tool_cache_type(run->call, "cache-type-v"),
        .centre_keys = tool_centre(run->call),
    };
    mica_context_info info = {0};
    mica_status status = mica_context_create(run->model.model, &options, &run->context);
    if (status == MICA_OK)
        status = mica_context_get_info(run->context, &info);
    run->batch = info.batch;
    return status;
}

static int run_test(bench_run *run, const bench_test *test)
{
    mica_status status = open_context(run, test);
    if (status == MICA_OK)
        status = measure(run, test);
    mica_context_release(run->context);
    run->context = NULL;
    if (status != MICA_OK)
        return tool_fail_status();
    print_test(run, test);
    return tool_output_flush();
}

static int run_tests(bench_run *run, const bench_plan *plan)
{
    int result = 0;
    for (size_t d = 0; d < plan->depths.count; d++) {
        uint32_t depth = plan->depths.number[d];
        for (size_t i = 0; i < plan->prompts.count && result == 0; i++)
            if (plan->prompts.number[i] > 0)
                result = run_test(run, &(bench_test){.prompt = plan->prompts.number[i], .depth = depth});
        for (size_t i = 0; i < plan->texts.count && result == 0; i++)
            if (plan->texts.number[i] > 0)
                result = run_test(run, &(bench_test){.text = plan->texts.number[i], .depth = depth});
    }
    return result;
}

static int run_model(bench_run *run, const bench_plan *plan, uint32_t threads)
{
    tool_model_source source = {
        .path = run->path, .device = tool_word(run->call, "device"), .threads = threads};
    tool_accepted_keys(run->call, &source.accepted);
    int result = tool_model_open_source(&source, &run->model);
    if (result != 0)
        return result;
    mica_sampling greedy;
    mica_sampling_default(&greedy);
    greedy.temperature = 0;
    if (run->model.info.encoder)
        result = tool_fail("%s models give embeddings; their speed is not measured", run->model.info.family);
    else if (mica_device_get_properties(run->model.device, &run->device) != MICA_OK ||
             mica_sampler_create(&greedy, run->model.info.vocabulary, NULL, NULL, &run->sampler) != MICA_OK)
        result = tool_fail_status();
    uint64_t state = 1;
    for (uint32_t i = 0; i < 1u << 20 && result == 0; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        run->tokens[i] = (uint32_t)((state >> 33) % run->model.info.vocabulary);
    }
    if (result == 0)
        result = run_tests(run, plan);
    mica_sampler_release(run->sampler);
    run->sampler = NULL;
    tool_model_close(&run->model);
    return result;
}

/* Each path of "a.gguf,b.gguf" with each number of threads. */
static int run_models(bench_run *run, const bench_plan *plan, char *paths)
{
    int result = 0;
    while (paths != NULL && result == 0) {
        char *comma = strchr(paths, ',');
        if (comma != NULL)
            *comma = '\0';
        run->path = paths;
        for (size_t t = 0; t < plan->threads.count && result == 0; t++)
            result = run_model(run, plan, plan->threads.number[t]);
        paths = comma != NULL ? comma + 1 : NULL;
    }
    return result;
}

int bench_models(const tool_call *call, const bench_plan *plan)
{
    bench_run run = {
        .call = call,
        .repetitions = (uint32_t)tool_number(call, "repetitions"),
        .as_json = tool_flag(call, "json"),
        .as_markdown = tool_flag(call, "md"),
        .profile.wanted = tool_flag(call, "profile"),
    };
    const char *names = tool_word(call, "model");
    char *paths = malloc(strlen(names) + 1);
    run.tokens = malloc(((size_t)1 << 20) * sizeof *run.tokens);
    run.rate = calloc(run.repetitions, sizeof *run.rate);
    int result = 0;
    if (paths == NULL || run.tokens == NULL || run.rate == NULL) {
        result = tool_fail("there is no memory left");
    } else {
        strcpy(paths, names);
        result = run_models(&run, plan, paths);
        if (run.as_json && run.has_head)
            tool_json_close(&run.json, ']');
    }
    free(paths);
    free(run.tokens);
    free(run.rate);
    free(run.profile.kernel);
    return result;
}
