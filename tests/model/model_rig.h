/* model_rig.h - what the tests of models share: the tiny checkpoints of tests/model/golden, opened, fed and asked. */
#ifndef TEST_MODEL_RIG_H
#define TEST_MODEL_RIG_H

#include <stdio.h>
#include <stdlib.h>

#include "mica/mica.h"
#include "mica/model.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

typedef struct rig {
    mica_device *device;
    mica_model *model;
    mica_model_info info;
} rig;

static inline rig rig_open(const char *name, uint32_t threads)
{
    const mica_device_options options = {.threads = threads};
    char path[256];
    rig r = {0};
    snprintf(path, sizeof path, "tests/model/golden/%s", name);
    must(mica_device_open("cpu", &options, &r.device));
    must(mica_model_open(path, r.device, NULL, &r.model));
    must(mica_model_get_info(r.model, &r.info));
    return r;
}

static inline void rig_close(rig *r)
{
    mica_model_release(r->model);
    mica_device_release(r->device);
}

static inline mica_context *rig_context(const rig *r, uint32_t capacity, uint32_t sequences, uint32_t batch)
{
    const mica_context_options options = {.capacity = capacity, .sequences = sequences, .batch = batch};
    mica_context *context = NULL;
    must(mica_context_create(r->model, &options, &context));
    return context;
}

static inline uint32_t rig_sequence(mica_context *context)
{
    uint32_t sequence = 0;
    must(mica_sequence_create(context, &sequence));
    return sequence;
}

/* Random tokens of the model's vocabulary. */
static inline void rig_tokens(const rig *r, uint64_t seed, uint32_t *tokens, uint32_t count)
{
    test_random random = test_random_from(seed);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (uint32_t)test_random_below(&random, r->info.vocabulary);
}

/* Feeds all tokens, `chunk` at a time, and copies the logits of each: [count, vocabulary]. */
static inline void rig_logits(mica_context *context, const rig *r, uint32_t sequence, const uint32_t *tokens,
                              uint32_t count, uint32_t chunk, float *out)
{
    for (uint32_t done = 0; done < count;) {
        const uint32_t take = count - done < chunk ? count - done : chunk;
        const mica_feed feed = {sequence, tokens + done, take, MICA_WANT_ALL};
        const float *logits;
        uint32_t rows;
        must(mica_context_feed(context, &feed, 1));
        must(mica_context_logits(context, sequence, &logits, &rows));
        assert_int_equal(rows, take);
        memcpy(out + (size_t)done * r->info.vocabulary, logits,
               (size_t)take * r->info.vocabulary * sizeof *out);
        done += take;
    }
}

static inline uint32_t rig_best(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Feeds one token and gives the likeliest next one. */
static inline uint32_t rig_step(mica_context *context, const rig *r, uint32_t sequence, uint32_t token)
{
    const mica_feed feed = {sequence, &token, 1, MICA_WANT_LAST};
    const float *logits;
    uint32_t rows;
    must(mica_context_feed(context, &feed, 1));
    must(mica_context_logits(context, sequence, &logits, &rows));
    return rig_best(logits, r->info.vocabulary);
}

#endif
