/*
 * adapter_rig.h - tests of adapters: golden checkpoints as GGUF files, logits of their graphs and of contexts, and values of the matrices of low rank.
 */
#ifndef TEST_ADAPTER_RIG_H
#define TEST_ADAPTER_RIG_H

#include <math.h>

#include "golden_models.h"
#include "mica/model_graph.h"
#include "model_rig.h"

enum { LENGTH = 20, TEXTS = 3 };

/* The golden checkpoint as a GGUF, opened. */
static inline rig open_gguf(const char *name, uint32_t threads)
{
    const mica_device_options options = {.threads = threads};
    char source[256], folder[256], path[300];
    rig r = {0};
    snprintf(source, sizeof source, GOLDEN_HOME "%s", name);
    assert_int_equal(test_folder_make(folder, sizeof folder, "adapter"), 0);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    must(mica_convert(source, path, NULL));
    must(mica_device_open("cpu", &options, &r.device));
    must(mica_model_open(path, r.device, &(mica_model_options){.flags = MICA_WEIGHTS_NO_MAP}, &r.model));
    must(mica_model_get_info(r.model, &r.info));
    assert_int_equal(test_folder_remove(folder), 0);
    return r;
}

/* Logits (or states) of the graph: [TEXTS * LENGTH, columns], to be freed. */
static inline float *graph_rows(const rig *r, const mica_model_graph_desc *desc, const uint32_t *tokens,
                                uint32_t columns, mica_status (*change)(mica_executable *, void *),
                                void *context)
{
    const uint32_t rows = desc->batch * desc->length;
    mica_graph *graph = NULL;
    mica_executable *run = NULL;
    float *got = test_alloc((size_t)rows * columns, sizeof *got);
    must(mica_model_graph(r->model, desc, &graph));
    must(mica_graph_verify(graph));
    must(mica_graph_compile(graph, r->device, NULL, &run));
    must(mica_model_graph_set(r->model, desc, graph, run));
    if (change != NULL)
        must(change(run, context));
    mica_array in = {.name = "tokens",
                     .dtype = MICA_DTYPE_U32,
                     .ndim = 1,
                     .shape = {rows},
                     .data = (void *)(uintptr_t)tokens,
                     .bytes = (uint64_t)rows * 4};
    mica_array out = {.name = r->info.encoder ? "states" : "logits",
                      .data = got,
                      .bytes = (uint64_t)rows * columns * sizeof *got};
    must(mica_executable_run(run, &in, 1, &out, 1));
    mica_executable_release(run);
    mica_graph_release(graph);
    return got;
}

/* Logits of a context over the same texts, one after the other. */
static inline float *context_rows(const rig *r, const mica_context_options *given, const uint32_t *tokens,
                                  uint32_t texts, uint32_t length, uint32_t chunk)
{
    mica_context_options options = *given;
    mica_context *context = NULL;
    float *got = test_alloc((size_t)texts * length * r->info.vocabulary, sizeof *got);
    options.capacity = length;
    options.cache_k = options.cache_v = MICA_DTYPE_F32;
    must(mica_context_create(r->model, &options, &context));
    for (uint32_t t = 0; t < texts; t++) {
        const uint32_t sequence = rig_sequence(context);
        rig_logits(context, r, sequence, tokens + (size_t)t * length, length, chunk,
                   got + (size_t)t * length * r->info.vocabulary);
        must(mica_sequence_remove(context, sequence));
    }
    mica_context_release(context);
    return got;
}

/* The greatest distance, of the greatest value. */
static inline double distance(const float *a, const float *b, size_t count)
{
    double most = 0, apart = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)b[i]));
        apart = fmax(apart, fabs((double)a[i] - (double)b[i]));
    }
    return apart / most;
}

typedef struct part {
    const char *matrix;
    uint32_t rank, rows, columns;
} part;

static inline float value_of(uint64_t seed, uint32_t matrix, uint32_t half, uint64_t i)
{
    test_random random = test_random_from(seed * 1000003 + matrix * 97 + half * 31 + i * 7919);
    return (float)test_random_uniform(&random, -0.4, 0.4);
}

#endif
