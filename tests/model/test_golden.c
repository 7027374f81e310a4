/*
 * test_golden.c - the families against transformers, and quantised folders against MLX: tiny checkpoints with random
 * weights in tests/model/golden, and the logits (of encoders the embedding) that the other gives for a prompt, made by
 * scripts/golden.py and scripts/golden_mlx.py.
 *
 * Each is opened as the folder that it is and as the GGUF that mica_convert makes of it, and fed in one chunk, one by one,
 * and by sevens.
 */
#include "mica/format.h"
#include "mica/model.h"

#include "golden_file.h"
#include "support/folder.h"

#define HOME "tests/model/golden/"
#define MOST_TOKENS 64
#define MOST_ROWS 8
#define MOST_VOCABULARY 128

/* Of the largest |logit| of the row. Both sides compute in float32, in orders of their own: 2 to 7 layers of sums
 * over at most 100 terms, each good to 2^-24, through norms and softmax, are some 1e-6 apart (1.7e-6 was seen).
 * A factor of 60 is left for other instruction sets; leaving out a window, a cap or a scaling costs 0.05 and
 * more. */
#define NEAR 1e-4

/* Weights of fp4 meet activations of 8 bits, which costs half a percent of each product. The GGUF form has the same
 * values as bf16 and is held to NEAR. */
#define NEAR_8_BITS 0.1

typedef struct golden {
    const char *name;
    const char *family; /* as the model says it */
    uint32_t window;
    double near; /* for its folder */
} golden;

static const golden checkpoints[] = {
    {"llama", "llama", 0, NEAR},
    {"llama-llama3", "llama", 0, NEAR},
    {"llama-linear", "llama", 0, NEAR},
    {"llama-yarn", "llama", 0, NEAR},
    {"smollm", "llama", 0, NEAR},
    {"mistral", "llama", 16, NEAR},
    {"mixtral", "llama", 0, NEAR},
    {"qwen2", "qwen2", 0, NEAR},
    {"qwen3", "qwen3", 0, NEAR},
    {"qwen3moe", "qwen3moe", 0, NEAR},
    {"gemma2", "gemma2", 16, NEAR},
    {"gemma2-scalar", "gemma2", 16, NEAR},
    {"gemma3", "gemma3", 16, NEAR},
    {"gemma3-linear", "gemma3", 16, NEAR},
    {"phi3", "phi3", 16, NEAR},
    {"phi3-longrope", "phi3", 0, NEAR},
    {"gpt2", "gpt2", 0, NEAR},
    {"bert", "bert", 0, NEAR},
    {"mlx-4bit", "qwen3", 0, NEAR},
    {"mlx-6bit", "qwen3", 0, NEAR},
    {"mlx-8bit", "qwen3", 0, NEAR},
    {"mlx-mixed", "llama", 0, NEAR},
    {"mlx-moe", "qwen3moe", 0, NEAR},
    {"mlx-mxfp4", "qwen3", 0, NEAR_8_BITS},
    {"mlx-nvfp4", "qwen3moe", 0, NEAR_8_BITS},
    {"mlx-mxfp8", "qwen3", 0, NEAR},
};

#define CHECKPOINT_COUNT (sizeof checkpoints / sizeof checkpoints[0])

typedef struct expected {
    uint32_t tokens[MOST_TOKENS], token_count;
    uint32_t rows[MOST_ROWS], row_count;        /* positions */
    double logits[MOST_ROWS * MOST_VOCABULARY]; /* [row_count, vocabulary] */
    uint32_t value_count;                       /* of all rows */
    double embedding[MOST_VOCABULARY];
    uint32_t width; /* of the embedding; 0: it is no encoder */
    uint32_t near;  /* tokens that a short context holds, where that makes a difference; else 0 */
    double near_logits[MOST_VOCABULARY];
} expected;

/* ---- expected.json -------------------------------------------------------------------------------------- */

static expected *read_expected(const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof path, HOME "%s/expected.json", name);
    char *text = golden_text(path);
    if (text == NULL)
        fail_msg("%s is not there: scripts/golden.py makes it, tests run in the root of the repository",
                 path);
    expected *made = test_alloc(1, sizeof *made);
    made->token_count = golden_ids(text, "\"tokens\"", made->tokens, MOST_TOKENS);
    made->row_count = golden_ids(text, "\"rows\"", made->rows, MOST_ROWS);
    made->value_count = golden_list(text, "\"logits\"", made->logits, MOST_ROWS * MOST_VOCABULARY);
    made->width = golden_list(text, "\"embedding\"", made->embedding, MOST_VOCABULARY);
    if (golden_ids(text, "\"near_rows\"", &made->near, 1) == 1)
        made->near++;
    (void)golden_list(text, "\"near_logits\"", made->near_logits, MOST_VOCABULARY);
    assert_true(made->token_count > 32 && (made->width != 0) == (made->row_count == 0));
    free(text);
    return made;
}

/* ---- what mica gives ------------------------------------------------------------------------------------ */

/* Logits of all tokens, [tokens, vocabulary], fed `chunk` at a time. The caller frees. */
static float *feed_all(mica_model *model, const expected *want, uint32_t chunk, uint32_t vocabulary)
{
    const mica_context_options options = {
        .capacity = 128, .cache_k = MICA_DTYPE_F32, .cache_v = MICA_DTYPE_F32};
    mica_context *context;
    uint32_t sequence;
    float *all = test_alloc((size_t)want->token_count * vocabulary, sizeof *all);
    must(mica_context_create(model, &options, &context));
    must(mica_sequence_create(context, &sequence));
    for (uint32_t at = 0; at < want->token_count; at += chunk) {
        const uint32_t left = want->token_count - at, count = left < chunk ? left : chunk;
        const mica_feed feed = {sequence, want->tokens + at, count, MICA_WANT_ALL};
        const float *logits;
        uint32_t rows;
        must(mica_context_feed(context, &feed, 1));
        must(mica_context_logits(context, sequence, &logits, &rows));
        assert_int_equal(rows, count);
        memcpy(all + (size_t)at * vocabulary, logits, (size_t)rows * vocabulary * sizeof *all);
    }
    mica_context_release(context);
    return all;
}

/* A context that holds no more than the model was first made for, and one that holds one token more: the first is another
 * model's, so to speak, and so are its states. */
static void check_near(const golden *g, const char *form, mica_model *model, const expected *want,
                       uint32_t vocabulary)
{
    char folder[256], path[300];
    assert_int_equal(test_folder_make(folder, sizeof folder, "near"), 0);
    (void)snprintf(path, sizeof path, "%s/state", folder);
    for (uint32_t more = 0; more < 2; more++) {
        const mica_context_options options = {
            .capacity = want->near + more, .cache_k = MICA_DTYPE_F32, .cache_v = MICA_DTYPE_F32};
        mica_context *context;
        uint32_t sequence, rows;
        const float *logits;
        must(mica_context_create(model, &options, &context));
        must(mica_sequence_create(context, &sequence));
        const mica_feed feed = {sequence, want->tokens, want->near, MICA_WANT_LAST};
        must(mica_context_feed(context, &feed, 1));
        must(mica_context_logits(context, sequence, &logits, &rows));
        const double apart = golden_distance(logits, want->near_logits, vocabulary);
        if ((apart <= NEAR) != (more == 0))
            fail_msg("%s from %s in a context of %u: the logits are %.3g of the largest away", g->name, form,
                     options.capacity, apart);
        if (more == 0)
            must(mica_sequence_save(context, sequence, path));
        else
            refused(mica_sequence_load(context, path, &sequence), MICA_ERR_INVALID_ARGUMENT, "mica.rope");
        mica_context_release(context);
    }
    assert_int_equal(test_folder_remove(folder), 0);
}

static void check_logits(const golden *g, const char *form, double near, mica_model *model,
                         const expected *want, uint32_t vocabulary)
{
    static const uint32_t chunks[] = {MOST_TOKENS, 1, 7};
    float *whole = NULL;
    assert_int_equal(want->value_count, want->row_count * vocabulary);
    for (uint32_t c = 0; c < 3; c++) {
        float *all = feed_all(model, want, chunks[c], vocabulary);
        for (uint32_t r = 0; r < want->row_count; r++) {
            const double apart = golden_distance(all + (size_t)want->rows[r] * vocabulary,
                                                 want->logits + (size_t)r * vocabulary, vocabulary);
            if (!(apart <= near))
                fail_msg("%s from %s in chunks of %u: the logits at %u are %.3g of the largest away, %.3g is "
                         "allowed",
                         g->name, form, chunks[c], want->rows[r], apart, near);
        }
        if (whole == NULL) {
            whole = all;
            continue;
        }
        assert_memory_equal(all, whole, (size_t)want->token_count * vocabulary * sizeof *all);
        free(all);
    }
    free(whole);
}

static void check_embedding(const golden *g, const char *form, mica_model *model, const expected *want)
{
    mica_context *context;
    float got[MOST_VOCABULARY];
    must(mica_context_create(model, NULL, &context));
    must(mica_context_embed(context, want->tokens, want->token_count, MICA_POOLING_MEAN, 1, got));
    const double apart = golden_distance(got, want->embedding, want->width);
    if (!(apart <= NEAR))
        fail_msg("%s from %s: the embedding is %.3g of its largest away", g->name, form, apart);
    mica_context_release(context);
}

static void check_model(const golden *g, const char *form, double near, const char *path,
                        const expected *want)
{
    mica_device *device;
    mica_model *model;
    mica_model_info info;
    must(mica_device_open("cpu", NULL, &device));
    must(mica_model_open(path, device, NULL, &model));
    must(mica_model_get_info(model, &info));
    assert_string_equal(info.family, g->family);
    assert_int_equal(info.window, g->window);
    assert_int_equal(info.encoder, want->width != 0);
    assert_true(info.vocabulary <= MOST_VOCABULARY && info.width <= MOST_VOCABULARY);
    if (info.encoder)
        check_embedding(g, form, model, want);
    else
        check_logits(g, form, near, model, want, info.vocabulary);
    if (want->near != 0)
        check_near(g, form, model, want, info.vocabulary);
    mica_model_release(model);
    mica_device_release(device);
}

static void agrees(void **state)
{
    const golden *g = *state;
    char source[256], folder[256], converted[300];
    expected *want = read_expected(g->name);
    (void)snprintf(source, sizeof source, HOME "%s", g->name);
    check_model(g, "its folder", g->near, source, want);
    assert_int_equal(test_folder_make(folder, sizeof folder, "golden"), 0);
    (void)snprintf(converted, sizeof converted, "%s/model.gguf", folder);
    must(mica_convert(source, converted, NULL));
    check_model(g, "GGUF", NEAR, converted, want);
    assert_int_equal(test_folder_remove(folder), 0);
    free(want);
}

int main(void)
{
    struct CMUnitTest tests[CHECKPOINT_COUNT];
    for (size_t i = 0; i < CHECKPOINT_COUNT; i++)
        tests[i] =
            (struct CMUnitTest){checkpoints[i].name, agrees, NULL, NULL, (void *)(uintptr_t)&checkpoints[i]};
    return cmocka_run_group_tests_name("golden", tests, NULL, NULL);
}
