/*
 * golden_models.h - the families against transformers, and quantised folders against MLX, on any device: tiny checkpoints with
 * random weights in tests/model/golden, and the logits (of encoders the embedding) that the other gives for a prompt,
 * made by scripts/golden.py and scripts/golden_mlx.py.
 *
 * Each is opened as the folder that it is and as the GGUF that mica_convert makes of it, and fed in one chunk, one by one,
 * and by sevens: on the cpu the bits are the same.
 */
#ifndef TEST_GOLDEN_MODELS_H
#define TEST_GOLDEN_MODELS_H

#include <stdbool.h>

#include "mica/format.h"
#include "mica/model.h"

#include "golden_file.h"
#include "support/folder.h"

#define GOLDEN_HOME "tests/model/golden/"
#define GOLDEN_TOKENS 64
#define GOLDEN_ROWS 8
#define GOLDEN_VOCABULARY 128

/* Of the largest |logit| of the row. Both sides compute in float32, in orders of their own: 2 to 7 layers of sums
 * over at most 100 terms, each good to 2^-24, through norms and softmax, are some 1e-6 apart (1.7e-6 was seen).
 * A factor of 60 is left for other instruction sets; leaving out a window, a cap or a scaling costs 0.05 and
 * more. */
#define GOLDEN_NEAR 1e-4

/* Weights of fp4 meet activations of 8 bits, which costs half a percent of each product. The GGUF form has the same
 * values as bf16 and is held to GOLDEN_NEAR. */
#define GOLDEN_NEAR_8_BITS 0.1

/* The matrix units of a GPU take activations in the 16 bits of the weights: 2^-9 of each in bf16, which sums of so many
 * terms keep about that size, through 2 to 7 layers. Of a GPU's logits from 16-bit weights alone. */
#define GOLDEN_NEAR_16_BITS 0.02

typedef struct golden {
    const char *name;
    const char *family; /* as the model says it */
    uint32_t window;
    double near; /* for its folder */
} golden;

static const golden golden_checkpoints[] = {
    {"llama", "llama", 0, GOLDEN_NEAR},
    {"llama-llama3", "llama", 0, GOLDEN_NEAR},
    {"llama-linear", "llama", 0, GOLDEN_NEAR},
    {"llama-yarn", "llama", 0, GOLDEN_NEAR},
    {"smollm", "llama", 0, GOLDEN_NEAR},
    {"mistral", "llama", 16, GOLDEN_NEAR},
    {"mixtral", "llama", 0, GOLDEN_NEAR},
    {"qwen2", "qwen2", 0, GOLDEN_NEAR},
    {"qwen3", "qwen3", 0, GOLDEN_NEAR},
    {"qwen3moe", "qwen3moe", 0, GOLDEN_NEAR},
    {"gemma2", "gemma2", 16, GOLDEN_NEAR},
    {"gemma2-scalar", "gemma2", 16, GOLDEN_NEAR},
    {"gemma3", "gemma3", 16, GOLDEN_NEAR},
    {"gemma3-linear", "gemma3", 16, GOLDEN_NEAR},
    {"phi3", "phi3", 16, GOLDEN_NEAR},
    {"phi3-longrope", "phi3", 0, GOLDEN_NEAR},
    {"gpt2", "gpt2", 0, GOLDEN_NEAR},
    {"bert", "bert", 0, GOLDEN_NEAR},
    {"gemma3-layers", "gemma3", 16, GOLDEN_NEAR},
    {"qwen2-window", "qwen2", 16, GOLDEN_NEAR},
    {"qwen3moe-raw", "qwen3moe", 16, GOLDEN_NEAR},
    {"gpt2-scales", "gpt2", 0, GOLDEN_NEAR},
    {"bert-tanh", "bert", 0, GOLDEN_NEAR},
    {"mlx-4bit", "qwen3", 0, GOLDEN_NEAR},
    {"mlx-6bit", "qwen3", 0, GOLDEN_NEAR},
    {"mlx-8bit", "qwen3", 0, GOLDEN_NEAR},
    {"mlx-mixed", "llama", 0, GOLDEN_NEAR},
    {"mlx-moe", "qwen3moe", 0, GOLDEN_NEAR},
    {"mlx-mxfp4", "qwen3", 0, GOLDEN_NEAR_8_BITS},
    {"mlx-nvfp4", "qwen3moe", 0, GOLDEN_NEAR_8_BITS},
    {"mlx-mxfp8", "qwen3", 0, GOLDEN_NEAR},
};

#define GOLDEN_COUNT (sizeof golden_checkpoints / sizeof golden_checkpoints[0])

typedef struct golden_expected {
    uint32_t tokens[GOLDEN_TOKENS], token_count;
    uint32_t rows[GOLDEN_ROWS], row_count;          /* positions */
    double logits[GOLDEN_ROWS * GOLDEN_VOCABULARY]; /* [row_count, vocabulary] */
    uint32_t value_count;                           /* of all rows */
    double embedding[GOLDEN_VOCABULARY];
    uint32_t width; /* of the embedding; 0: it is no encoder */
    uint32_t near;  /* tokens that a short context holds, where that makes a difference; else 0 */
    double near_logits[GOLDEN_VOCABULARY];
} golden_expected;

/* ---- expected.json -------------------------------------------------------------------------------------- */

static inline golden_expected *golden_read(const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof path, GOLDEN_HOME "%s/expected.json", name);
    char *text = golden_text(path);
    if (text == NULL)
        fail_msg("%s is not there: scripts/golden.py makes it, tests run in the root of the repository",
                 path);
    golden_expected *made = test_alloc(1, sizeof *made);
    made->token_count = golden_ids(text, "\"tokens\"", made->tokens, GOLDEN_TOKENS);
    made->row_count = golden_ids(text, "\"rows\"", made->rows, GOLDEN_ROWS);
    made->value_count = golden_list(text, "\"logits\"", made->logits, GOLDEN_ROWS * GOLDEN_VOCABULARY);
    made->width = golden_list(text, "\"embedding\"", made->embedding, GOLDEN_VOCABULARY);
    if (golden_ids(text, "\"near_rows\"", &made->near, 1) == 1)
        made->near++;
    (void)golden_list(text, "\"near_logits\"", made->near_logits, GOLDEN_VOCABULARY);
    assert_true(made->token_count > 32 && (made->width != 0) == (made->row_count == 0));
    free(text);
    return made;
}

/* ---- what mica gives ------------------------------------------------------------------------------------ */

/* A checkpoint that is open. */
typedef struct golden_open {
    const char *name, *form;
    const golden_expected *want;
    mica_model *model;
    uint32_t vocabulary;
    double near;
    bool bits; /* chunks must not change them */
} golden_open;

/* Logits of all tokens, [tokens, vocabulary], fed `chunk` at a time. The caller frees. */
static inline float *golden_feed(const golden_open *o, uint32_t chunk)
{
    const mica_context_options options = {
        .capacity = 128, .cache_k = MICA_DTYPE_F32, .cache_v = MICA_DTYPE_F32};
    const uint32_t all = o->want->token_count;
    mica_context *context;
    uint32_t sequence;
    float *out = test_alloc((size_t)all * o->vocabulary, sizeof *out);
    must(mica_context_create(o->model, &options, &context));
    must(mica_sequence_create(context, &sequence));
    for (uint32_t at = 0; at < all; at += chunk) {
        const uint32_t count = all - at < chunk ? all - at : chunk;
        const mica_feed feed = {sequence, o->want->tokens + at, count, MICA_WANT_ALL};
        const float *logits;
        uint32_t rows;
        must(mica_context_feed(context, &feed, 1));
        must(mica_context_logits(context, sequence, &logits, &rows));
        assert_int_equal(rows, count);
        memcpy(out + (size_t)at * o->vocabulary, logits, (size_t)rows * o->vocabulary * sizeof *out);
    }
    mica_context_release(context);
    return out;
}

/* A context that holds no more than the model was first made for, and one that holds one token more: the first is another
 * model's, so to speak, and so are its states. */
static inline void golden_check_near(const golden_open *o)
{
    char folder[256], path[300];
    assert_int_equal(test_folder_make(folder, sizeof folder, "near"), 0);
    (void)snprintf(path, sizeof path, "%s/state", folder);
    for (uint32_t more = 0; more < 2; more++) {
        const mica_context_options options = {
            .capacity = o->want->near + more, .cache_k = MICA_DTYPE_F32, .cache_v = MICA_DTYPE_F32};
        mica_context *context;
        uint32_t sequence, rows;
        const float *logits;
        must(mica_context_create(o->model, &options, &context));
        must(mica_sequence_create(context, &sequence));
        const mica_feed feed = {sequence, o->want->tokens, o->want->near, MICA_WANT_LAST};
        must(mica_context_feed(context, &feed, 1));
        must(mica_context_logits(context, sequence, &logits, &rows));
        const double apart = golden_distance(logits, o->want->near_logits, o->vocabulary);
        if ((apart <= o->near) != (more == 0))
            fail_msg("%s from %s in a context of %u: the logits are %.3g of the largest away", o->name,
                     o->form, options.capacity, apart);
        if (more == 0)
            must(mica_sequence_save(context, sequence, path));
        else
            refused(mica_sequence_load(context, path, &sequence), MICA_ERR_INVALID_ARGUMENT, "mica.rope");
        mica_context_release(context);
    }
    assert_int_equal(test_folder_remove(folder), 0);
}

static inline void golden_check_rows(const golden_open *o, uint32_t chunk, const float *all)
{
    for (uint32_t r = 0; r < o->want->row_count; r++) {
        const double apart = golden_distance(all + (size_t)o->want->rows[r] * o->vocabulary,
                                             o->want->logits + (size_t)r * o->vocabulary, o->vocabulary);
        if (!(apart <= o->near))
            fail_msg("%s from %s in chunks of %u: the logits at %u are %.3g of the largest away, %.3g is "
                     "allowed",
                     o->name, o->form, chunk, o->want->rows[r], apart, o->near);
    }
}

static inline void golden_check_logits(const golden_open *o)
{
    static const uint32_t chunks[] = {GOLDEN_TOKENS, 1, 7};
    float *all[3];
    assert_int_equal(o->want->value_count, o->want->row_count * o->vocabulary);
    for (uint32_t c = 0; c < 3; c++) {
        all[c] = golden_feed(o, chunks[c]);
        golden_check_rows(o, chunks[c], all[c]);
        if (o->bits)
            assert_memory_equal(all[c], all[0],
                                (size_t)o->want->token_count * o->vocabulary * sizeof *all[c]);
    }
    for (uint32_t c = 0; c < 3; c++)
        free(all[c]);
}

static inline void golden_check_embedding(const golden_open *o)
{
    mica_context *context;
    float got[GOLDEN_VOCABULARY];
    must(mica_context_create(o->model, NULL, &context));
    must(mica_context_embed(context, o->want->tokens, o->want->token_count, MICA_POOLING_MEAN, 1, got));
    const double apart = golden_distance(got, o->want->embedding, o->want->width);
    if (!(apart <= o->near))
        fail_msg("%s from %s: the embedding is %.3g of its largest away", o->name, o->form, apart);
    mica_context_release(context);
}

static inline void golden_check_model(const golden *g, const char *id, const char *form, double near,
                                      const char *path, const golden_expected *want)
{
    golden_open o = {.name = g->name, .form = form, .want = want, .near = near};
    mica_device *device;
    mica_model_info info;
    must(mica_device_open(id, NULL, &device));
    must(mica_model_open(path, device, NULL, &o.model));
    must(mica_model_get_info(o.model, &info));
    assert_string_equal(info.family, g->family);
    assert_int_equal(info.window, g->window);
    assert_int_equal(info.encoder, want->width != 0);
    assert_true(info.vocabulary <= GOLDEN_VOCABULARY && info.width <= GOLDEN_VOCABULARY);
    o.vocabulary = info.vocabulary;
    o.bits = strcmp(id, "cpu") == 0;
    if (!o.bits && strstr(info.type, "f16") != NULL && o.near < GOLDEN_NEAR_16_BITS)
        o.near = GOLDEN_NEAR_16_BITS;
    if (info.encoder)
        golden_check_embedding(&o);
    else
        golden_check_logits(&o);
    if (want->near != 0)
        golden_check_near(&o);
    mica_model_release(o.model);
    mica_device_release(device);
}

/* The folder, the GGUF that it becomes, and on the cpu the folder that this becomes. */
static inline void golden_agrees(const golden *g, const char *device)
{
    char source[256], folder[256], converted[300], back[300];
    golden_expected *want = golden_read(g->name);
    (void)snprintf(source, sizeof source, GOLDEN_HOME "%s", g->name);
    golden_check_model(g, device, "its folder", g->near, source, want);
    assert_int_equal(test_folder_make(folder, sizeof folder, "golden"), 0);
    (void)snprintf(converted, sizeof converted, "%s/model.gguf", folder);
    must(mica_convert(source, converted, NULL));
    golden_check_model(g, device, "GGUF", GOLDEN_NEAR, converted, want);
    if (strcmp(device, "cpu") == 0) {
        (void)snprintf(back, sizeof back, "%s/back", folder);
        must(mica_convert(converted, back, NULL));
        golden_check_model(g, device, "the folder that the GGUF became", GOLDEN_NEAR, back, want);
    }
    assert_int_equal(test_folder_remove(folder), 0);
    free(want);
}

#endif
