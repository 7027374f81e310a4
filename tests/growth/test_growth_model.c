/*
 * test_growth_model.c - opening a model, making a context, recording, feeding, choosing, saving and loading, over everything
 * that a file or a caller can make large: layers, tokens, experts, sequences, pages. No row is excused: recording, fusing,
 * reordering and lowering grow with the number of layers.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "mica/mica.h"
#include "mica/model.h"
#include "support/growth.h"
#include "support/model_file.h"
#include "support/tiny_model.h"

static char model_path[300], state_path[300];
static mica_device *device;

/* What a stage stands on, made while nothing is charged. */
typedef struct stage {
    mica_work *work; /* that was used before */
    mica_model *model;
    mica_context *context;
    uint32_t *tokens; /* [count] */
    uint32_t sequence;
} stage;

static mica_model *open_tiny(const test_tiny *tiny)
{
    mica_model *model = NULL;
    test_tiny_write(tiny, model_path);
    must(mica_model_open(model_path, device, NULL, &model));
    return model;
}

/* Nobody counts until stage_begin. */
static stage stage_make(const test_tiny *tiny, const mica_context_options *options, uint64_t tokens)
{
    const mica_limits wide = {.steps = UINT64_MAX, .layers = UINT64_MAX, .vocabulary = UINT64_MAX};
    mica_work *before = mica_work_use(NULL), *free_of_limits;
    must(mica_work_create(&wide, &free_of_limits));
    mica_work_use(free_of_limits);
    stage s = {.work = before, .model = open_tiny(tiny)};
    if (options != NULL) {
        must(mica_context_create(s.model, options, &s.context));
        must(mica_sequence_create(s.context, &s.sequence));
    }
    s.tokens = calloc(tokens + 1, sizeof *s.tokens);
    assert_non_null(s.tokens);
    mica_work_use(NULL);
    mica_work_release(free_of_limits);
    return s;
}

static void stage_begin(const stage *s)
{
    mica_work_use(s->work);
}

static mica_status stage_end(stage *s, mica_status status)
{
    mica_context_release(s->context);
    mica_model_release(s->model);
    free(s->tokens);
    return status;
}

/* ---- opening -------------------------------------------------------------------------------------------- */

static mica_status open_one(const test_tiny *tiny)
{
    mica_model *model = NULL;
    test_tiny_write(tiny, model_path);
    const mica_status status = mica_model_open(model_path, device, NULL, &model);
    mica_model_release(model);
    return status;
}

static mica_status open_layers(uint64_t size)
{
    return open_one(&(test_tiny){.layers = (uint32_t)size});
}

static mica_status open_vocabulary(uint64_t size)
{
    return open_one(&(test_tiny){.vocabulary = (uint32_t)size});
}

static mica_status open_experts(uint64_t size)
{
    return open_one(&(test_tiny){.experts = (uint32_t)size});
}

/* The file states layers that it does not have: refused, and nothing is asked for by that number. */
static mica_status open_stated(uint64_t size)
{
    const mica_status status = open_one(&(test_tiny){.layers = 2, .stated = 1 + (uint32_t)size});
    return size < 2 ? status : status == MICA_ERR_MALFORMED_FILE ? MICA_OK : MICA_ERR_INTERNAL;
}

/* ---- contexts ------------------------------------------------------------------------------------------- */

static mica_status create(const test_tiny *tiny, const mica_context_options *options)
{
    stage s = stage_make(tiny, NULL, 0);
    stage_begin(&s);
    return stage_end(&s, mica_context_create(s.model, options, &s.context));
}

static mica_status create_layers(uint64_t size)
{
    return create(&(test_tiny){.layers = (uint32_t)size}, &(mica_context_options){.capacity = 64});
}

static mica_status create_sequences(uint64_t size)
{
    return create(&(test_tiny){0}, &(mica_context_options){.capacity = 64, .sequences = (uint32_t)size});
}

static mica_status create_capacity(uint64_t size)
{
    return create(&(test_tiny){0}, &(mica_context_options){.capacity = 32 * (uint32_t)size});
}

/* ---- feeding -------------------------------------------------------------------------------------------- */

static mica_status feed(const test_tiny *tiny, const mica_context_options *options, uint64_t tokens)
{
    stage s = stage_make(tiny, options, tokens);
    stage_begin(&s);
    return stage_end(
        &s, mica_context_feed(s.context, &(mica_feed){s.sequence, s.tokens, (uint32_t)tokens, MICA_WANT_LAST},
                              1));
}

/* The first step: recorded, fused, reordered, lowered. */
static mica_status record_layers(uint64_t size)
{
    return feed(&(test_tiny){.layers = (uint32_t)size}, &(mica_context_options){.capacity = 64}, 1);
}

static mica_status record_windows(uint64_t size)
{
    return feed(&(test_tiny){.layers = (uint32_t)size, .window = 16}, &(mica_context_options){.capacity = 64},
                1);
}

static mica_status record_routed(uint64_t size)
{
    return feed(&(test_tiny){.layers = (uint32_t)size, .experts = 4}, &(mica_context_options){.capacity = 64},
                1);
}

/* Tokens that are no step any more but a prompt: so are all sizes. */
#define PROMPT 40

/* A prompt: encoded and run in stages. */
static mica_status prompt_layers(uint64_t size)
{
    return feed(&(test_tiny){.layers = (uint32_t)size}, &(mica_context_options){.capacity = 64}, PROMPT);
}

static mica_status prompt_tokens(uint64_t size)
{
    return feed(&(test_tiny){.context = 1u << 20},
                &(mica_context_options){.capacity = 16 * (uint32_t)size, .batch = 64}, 16 * size);
}

static mica_status rows_of_a_pass(uint64_t size)
{
    size += PROMPT;
    return feed(&(test_tiny){.context = 1u << 20},
                &(mica_context_options){.capacity = (uint32_t)size, .batch = 8192}, size);
}

static mica_status feed_sequences(uint64_t size)
{
    size += PROMPT;
    stage s =
        stage_make(&(test_tiny){0},
                   &(mica_context_options){.capacity = 64, .sequences = (uint32_t)size, .batch = 8192}, 1);
    mica_feed *feeds = calloc(size, sizeof *feeds);
    mica_status status = MICA_OK;
    assert_non_null(feeds);
    stage_begin(&s);
    for (uint64_t i = 0; i < size && status == MICA_OK; i++) {
        feeds[i] = (mica_feed){s.sequence, s.tokens, 1, MICA_WANT_NONE};
        if (i + 1 < size)
            status = mica_sequence_create(s.context, &s.sequence);
    }
    if (status == MICA_OK)
        status = mica_context_feed(s.context, feeds, (uint32_t)size);
    free(feeds);
    return stage_end(&s, status);
}

static mica_status next_items(uint64_t size)
{
    size += PROMPT;
    stage s =
        stage_make(&(test_tiny){0},
                   &(mica_context_options){.capacity = 64, .sequences = (uint32_t)size, .batch = 8192}, 1);
    mica_next *items = calloc(size, sizeof *items);
    mica_sampling sampling;
    mica_status status = MICA_OK;
    assert_non_null(items);
    mica_sampling_default(&sampling);
    for (uint64_t i = 0; i < size; i++) {
        items[i] = (mica_next){.sequence = s.sequence, .tokens = s.tokens, .count = 1};
        must(mica_sampler_create(&sampling, 8, NULL, NULL, &items[i].sampler));
        if (i + 1 < size)
            must(mica_sequence_create(s.context, &s.sequence));
    }
    stage_begin(&s);
    status = mica_context_next(s.context, items, (uint32_t)size);
    for (uint64_t i = 0; i < size; i++)
        mica_sampler_release(items[i].sampler);
    free(items);
    return stage_end(&s, status);
}

/* ---- sequences and files -------------------------------------------------------------------------------- */

/* Fed while nobody counts; `tokens` of them. */
static stage fed(const test_tiny *tiny, uint32_t capacity, uint32_t tokens)
{
    stage s = stage_make(tiny, &(mica_context_options){.capacity = capacity, .sequences = 2}, tokens);
    must(mica_context_feed(s.context, &(mica_feed){s.sequence, s.tokens, tokens, MICA_WANT_NONE}, 1));
    return s;
}

static mica_status save_and_load(stage *s)
{
    uint32_t loaded;
    stage_begin(s);
    mica_status status = mica_sequence_save(s->context, s->sequence, state_path);
    if (status == MICA_OK)
        status = mica_sequence_load(s->context, state_path, &loaded);
    return stage_end(s, status);
}

static mica_status state_tokens(uint64_t size)
{
    stage s = fed(&(test_tiny){.context = 1u << 20}, 64 * (uint32_t)size + 64, 32 * (uint32_t)size);
    return save_and_load(&s);
}

static mica_status state_layers(uint64_t size)
{
    stage s = fed(&(test_tiny){.layers = (uint32_t)size}, 128, 40);
    return save_and_load(&s);
}

static mica_status embed_tokens(uint64_t size)
{
    stage s = stage_make(
        &(test_tiny){.context = 1u << 20},
        &(mica_context_options){.capacity = 16 * (uint32_t)size, .sequences = 2, .batch = 64}, 16 * size);
    float vector[8];
    stage_begin(&s);
    return stage_end(
        &s, mica_context_embed(s.context, s.tokens, 16 * (uint32_t)size, MICA_POOLING_MEAN, 1, vector));
}

static int long_run;

static void models_grow(void **state)
{
    static const struct {
        growth_row row;
        /* times as large in the long run; 0: not in it, for attention looks at all earlier tokens */
        uint64_t more;
    } rows[] = {
        {{"open: layers", open_layers, 64, 3}, 32},
        {{"open: vocabulary", open_vocabulary, 1024, 3}, 16},
        {{"open: experts", open_experts, 64, 3}, 8},
        {{"open: layers that are not there", open_stated, 64, 3}, 1024},
        {{"context: layers", create_layers, 64, 3}, 32},
        {{"context: sequences", create_sequences, 64, 3}, 8},
        {{"context: pages", create_capacity, 64, 3}, 1},
        {{"first step: layers", record_layers, 64, 3}, 16},
        {{"first step: layers with a window", record_windows, 64, 3}, 16},
        {{"first step: layers with experts", record_routed, 64, 3}, 16},
        {{"prompt: layers", prompt_layers, 64, 3}, 16},
        {{"prompt: tokens", prompt_tokens, 16, 3}, 0},
        {{"prompt: rows of a pass", rows_of_a_pass, 64, 3}, 8},
        {{"feed: sequences", feed_sequences, 256, 3}, 1},
        {{"next: items", next_items, 256, 3}, 1},
        {{"state: tokens", state_tokens, 16, 3}, 4},
        {{"state: layers", state_layers, 64, 3}, 8},
        {{"embed: tokens", embed_tokens, 16, 3}, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        growth_row row = rows[i].row;
        row.first *= long_run ? rows[i].more : 1;
        if (row.first != 0)
            growth_check(&row, long_run);
    }
}

static int open_device(void **state)
{
    const mica_device_options options = {.threads = 1};
    (void)state;
    test_file_path(model_path, sizeof model_path, "growth.gguf");
    test_file_path(state_path, sizeof state_path, "growth.state");
    return mica_device_open("cpu", &options, &device) == MICA_OK ? 0 : 1;
}

static int close_device(void **state)
{
    (void)state;
    mica_device_release(device);
    (void)remove(model_path);
    (void)remove(state_path);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_grow)};
    long_run = argc > 1 && strcmp(argv[1], "long") == 0;
    return cmocka_run_group_tests(tests, open_device, close_device);
}
