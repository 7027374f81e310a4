/* test_model.c - opening models: what their files must have, and what happens when they do not, or memory runs out. */
#include <stdio.h>
#include <string.h>

#include "model_rig.h"
#include "support/meter.h"
#include "support/model_file.h"
#include "support/sanitizer.h"
#include "support/tiny_model.h"

/* ---- a small Llama, with one thing wrong ------------------------------------------------------------------- */

enum { WIDTH = 32, FFN = 48, HEADS = 4, LAYERS = 2, VOCABULARY = 40 };

typedef struct wrong {
    const char *family;    /* NULL: llama */
    const char *without;   /* key or tensor that is left out */
    const char *misshapen; /* tensor that has a row too many */
    const char *strange;   /* tensor that is there besides */
    const char *scaling;   /* rope.scaling.type */
    const char *real;      /* key of a number that is `value` */
    float value;
    uint32_t heads, experts, layers; /* 0: as it should be */
} wrong;

static bool is_out(const wrong *w, const char *name)
{
    return w->without != NULL && strcmp(w->without, name) == 0;
}

static void put_number(test_gguf *gguf, const wrong *w, const char *key, uint32_t number)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", w->family != NULL ? w->family : "llama", key);
    if (!is_out(w, key))
        test_gguf_u32(gguf, name, number);
}

static void put_tensor(test_gguf *gguf, const wrong *w, const char *name, uint64_t rows, uint64_t columns)
{
    uint64_t shape[2] = {rows, columns};
    if (is_out(w, name))
        return;
    if (w->misshapen != NULL && strcmp(w->misshapen, name) == 0)
        shape[rows == 0]++;
    test_gguf_tensor(gguf, name, MICA_DTYPE_F32, rows == 0 ? 1 : 2, rows == 0 ? shape + 1 : shape);
}

static void put_layer(test_gguf *gguf, const wrong *w, uint32_t layer)
{
    static const struct {
        const char *name;
        uint32_t rows, columns;
    } tensors[] = {{"attn_norm.weight", 0, WIDTH},       {"attn_q.weight", WIDTH, WIDTH},
                   {"attn_k.weight", WIDTH, WIDTH},      {"attn_v.weight", WIDTH, WIDTH},
                   {"attn_output.weight", WIDTH, WIDTH}, {"ffn_norm.weight", 0, WIDTH},
                   {"ffn_gate.weight", FFN, WIDTH},      {"ffn_up.weight", FFN, WIDTH},
                   {"ffn_down.weight", WIDTH, FFN}};
    char name[64];
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        snprintf(name, sizeof name, "blk.%u.%s", layer, tensors[i].name);
        put_tensor(gguf, w, name, tensors[i].rows, tensors[i].columns);
    }
}

static void write_model(const wrong *w, char *path, size_t size)
{
    test_gguf gguf = {0};
    test_file_path(path, size, "model.gguf");
    if (!is_out(w, "general.architecture"))
        test_gguf_string(&gguf, "general.architecture", w->family != NULL ? w->family : "llama");
    put_number(&gguf, w, "block_count", w->layers != 0 ? w->layers : LAYERS);
    put_number(&gguf, w, "embedding_length", WIDTH);
    put_number(&gguf, w, "feed_forward_length", FFN);
    put_number(&gguf, w, "context_length", 64);
    put_number(&gguf, w, "attention.head_count", w->heads != 0 ? w->heads : HEADS);
    if (w->experts != 0)
        put_number(&gguf, w, "expert_count", w->experts);
    if (w->scaling != NULL)
        test_gguf_string(&gguf, "llama.rope.scaling.type", w->scaling);
    if (w->real != NULL)
        test_gguf_f32(&gguf, w->real, w->value);
    put_tensor(&gguf, w, "token_embd.weight", VOCABULARY, WIDTH);
    put_tensor(&gguf, w, "output_norm.weight", 0, WIDTH);
    if (w->strange != NULL)
        put_tensor(&gguf, w, w->strange, strstr(w->strange, "norm") != NULL ? 0 : 2, WIDTH);
    for (uint32_t i = 0; i < LAYERS; i++)
        put_layer(&gguf, w, i);
    test_gguf_write(&gguf, path);
    test_gguf_free(&gguf);
}

static void wrong_files_are_named(void **state)
{
    static const struct {
        wrong w;
        mica_status status;
        const char *word;
    } cases[] = {
        {{.family = "mamba7"}, MICA_ERR_UNSUPPORTED, "\"mamba7\""},
        {{.family = "mamba7"}, MICA_ERR_UNSUPPORTED, "llama, qwen2"},
        {{.without = "general.architecture"}, MICA_ERR_UNSUPPORTED, "general.architecture"},
        {{.without = "block_count"}, MICA_ERR_MALFORMED_FILE, "llama.block_count"},
        {{.without = "embedding_length"}, MICA_ERR_MALFORMED_FILE, "llama.embedding_length"},
        {{.without = "attention.head_count"}, MICA_ERR_MALFORMED_FILE, "llama.attention.head_count"},
        {{.without = "context_length"}, MICA_ERR_MALFORMED_FILE, "llama.context_length"},
        {{.without = "token_embd.weight"}, MICA_ERR_MALFORMED_FILE, "\"token_embd.weight\" is missing"},
        {{.without = "output_norm.weight"}, MICA_ERR_MALFORMED_FILE, "\"output_norm.weight\" is missing"},
        {{.without = "blk.1.attn_k.weight"}, MICA_ERR_MALFORMED_FILE, "\"blk.1.attn_k.weight\" is missing"},
        {{.without = "blk.0.ffn_down.weight"}, MICA_ERR_MALFORMED_FILE, "ffn_down.weight\" is missing"},
        {{.without = "blk.1.ffn_gate.weight"}, MICA_ERR_MALFORMED_FILE, "ffn_gate.weight\" is missing"},
        {{.misshapen = "blk.1.attn_q.weight"}, MICA_ERR_MALFORMED_FILE, "\"blk.1.attn_q.weight\""},
        {{.misshapen = "blk.0.ffn_norm.weight"}, MICA_ERR_MALFORMED_FILE, "\"blk.0.ffn_norm.weight\""},
        {{.misshapen = "blk.0.ffn_up.weight"}, MICA_ERR_MALFORMED_FILE, "\"blk.0.ffn_up.weight\""},
        {{.strange = "blk.0.surprise.weight"}, MICA_ERR_UNSUPPORTED, "\"blk.0.surprise.weight\""},
        {{.strange = "blk.7.attn_q.weight"}, MICA_ERR_UNSUPPORTED, "\"blk.7.attn_q.weight\""},
        {{.strange = "blk.x.attn_q.weight"}, MICA_ERR_UNSUPPORTED, "\"blk.x.attn_q.weight\""},
        {{.heads = 5}, MICA_ERR_MALFORMED_FILE, "attn_q.weight"},
        {{.heads = 100}, MICA_ERR_MALFORMED_FILE, "heads"},
        {{.experts = 4}, MICA_ERR_MALFORMED_FILE, "experts"},
        {{.scaling = "dance"}, MICA_ERR_UNSUPPORTED, "dance"},
        /* A place has one name, and one tensor. */
        {{.strange = "blk.00.attn_norm.weight"}, MICA_ERR_UNSUPPORTED, "\"blk.00.attn_norm.weight\""},
        {{.strange = "blk.01.attn_norm.weight"}, MICA_ERR_UNSUPPORTED, "\"blk.01.attn_norm.weight\""},
        {{.strange = "blk.4294967296.attn_norm.weight"}, MICA_ERR_UNSUPPORTED, "blk.4294967296."},
        {{.strange = "blk.0.attn_norm.weight"}, MICA_ERR_MALFORMED_FILE, "\"blk.0.attn_norm.weight\""},
        /* No memory for layers that are not there, or too many. */
        {{.layers = 10001}, MICA_ERR_BUDGET, "model_open: 10001 layers, at most 10000"},
        {{.layers = 1048576}, MICA_ERR_BUDGET, "1048576 layers"},
        {{.layers = 9999}, MICA_ERR_MALFORMED_FILE, "\"llama.block_count\" is 9999"},
        {{.layers = 3}, MICA_ERR_MALFORMED_FILE, "\"blk.2."},
        /* What would be found at the first feed. */
        {{.scaling = "linear", .real = "llama.rope.scaling.factor", .value = 1e-45f},
         MICA_ERR_MALFORMED_FILE,
         "scale of positions comes to inf"},
        {{.scaling = "yarn", .real = "llama.rope.scaling.factor", .value = 1e-20f},
         MICA_ERR_MALFORMED_FILE,
         "rotary"},
        {{.real = "llama.rope.freq_base", .value = -1}, MICA_ERR_MALFORMED_FILE, "rope.freq_base"},
        {{.real = "llama.attention.layer_norm_rms_epsilon", .value = -1}, MICA_ERR_MALFORMED_FILE, "epsilon"},
        {{.real = "llama.attn_logit_softcapping", .value = -1}, MICA_ERR_MALFORMED_FILE, "softcap"},
    };
    mica_device *device;
    mica_model *model;
    char path[512];
    (void)state;
    must(mica_device_open("cpu", NULL, &device));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_model(&cases[i].w, path, sizeof path);
        model = (mica_model *)&path;
        refused(mica_model_open(path, device, NULL, &model), cases[i].status, cases[i].word);
        assert_null(model);
        remove(path);
    }
    write_model(&(wrong){0}, path, sizeof path);
    must(mica_model_open(path, device, NULL, &model));
    assert_null(mica_model_tokenizer(model));
    assert_non_null(strstr(mica_status_message(), "tokenizer"));
    assert_null(mica_model_template(model, NULL));
    mica_model_release(model);
    remove(path);
    refused(mica_model_open(path, device, NULL, &model), MICA_ERR_IO, path);
    refused(mica_model_open(path, NULL, NULL, &model), MICA_ERR_IO, path);
    mica_device_release(device);
}

/* ---- from memory ---------------------------------------------------------------------------------------- */

static unsigned char *read_file(const char *path, uint64_t *out_size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *out_size = (uint64_t)ftell(file);
    rewind(file);
    unsigned char *bytes = aligned_alloc(64, (*out_size + 63) / 64 * 64);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *out_size, file), *out_size);
    fclose(file);
    return bytes;
}

/* The model inside the tool, as the tool opens it: it adds. */
static void a_model_in_memory_talks(void **state)
{
    static const char prompt[] = "12 + 35 =", answer[] = " 47.";
    const mica_weights_options options = {.flags = MICA_WEIGHTS_AS_GGUF};
    mica_sampling sampling;
    mica_sampler *sampler;
    mica_weights *weights;
    mica_device *device;
    mica_model *model;
    mica_model_info info;
    uint32_t ids[32], token;
    uint64_t size, count, length = 0;
    char text[64];
    (void)state;
    unsigned char *bytes = read_file("models/demo.gguf", &size);
    must(mica_device_open("cpu", NULL, &device));
    refused(mica_weights_open_bytes(NULL, size, &options, &weights), MICA_ERR_INVALID_ARGUMENT, "bytes");
    must(mica_weights_open_bytes(bytes, size, &options, &weights));
    refused(mica_model_create(NULL, device, NULL, &model), MICA_ERR_INVALID_ARGUMENT, "weights");
    must(mica_model_create(weights, device, NULL, &model));
    mica_weights_release(weights);
    must(mica_model_get_info(model, &info));
    const char *const *family = mica_model_families();
    while (*family != NULL && strcmp(*family, info.family) != 0)
        family++;
    assert_non_null(*family);
    mica_sampling_default(&sampling);
    sampling.temperature = 0;
    const mica_tokenizer *tokenizer = mica_model_tokenizer(model);
    must(mica_sampler_create(&sampling, info.vocabulary, tokenizer, NULL, &sampler));
    must(mica_tokenizer_encode(tokenizer, prompt, sizeof prompt - 1, MICA_ENCODE_ADD, ids, 32, &count));
    mica_context *context;
    must(mica_context_create(model, NULL, &context));
    const uint32_t sequence = rig_sequence(context);
    refused(mica_context_sample(context, sequence, sampler, &token), MICA_ERR_STATE, "no logits");
    must(mica_context_feed(context, &(mica_feed){sequence, ids, (uint32_t)count, MICA_WANT_LAST}, 1));
    while (length < sizeof answer - 1) {
        uint64_t more;
        must(mica_context_sample(context, sequence, sampler, &token));
        must(mica_tokenizer_decode(tokenizer, &token, 1, 0, text + length, sizeof text - length, &more));
        length += more;
        must(mica_context_feed(context, &(mica_feed){sequence, &token, 1, MICA_WANT_LAST}, 1));
    }
    assert_memory_equal(text, answer, sizeof answer - 1);
    mica_context_release(context);
    mica_sampler_release(sampler);
    mica_model_release(model);
    mica_device_release(device);
    free(bytes);
}

/* ---- progress ------------------------------------------------------------------------------------------- */

static int stop_at_once(void *context, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)done, (void)total;
    (*(uint32_t *)context)++;
    return 1;
}

static void loading_can_be_stopped(void **state)
{
    uint32_t calls = 0;
    const mica_model_options options = {.progress = stop_at_once, .context = &calls};
    mica_device *device;
    mica_model *model;
    (void)state;
    must(mica_device_open("cpu", NULL, &device));
    refused(mica_model_open("tests/model/golden/llama", device, &options, &model), MICA_ERR_CANCELLED,
            "stopped");
    assert_int_equal(calls, 1);
    assert_null(model);
    mica_device_release(device);
}

static void a_budget_is_kept(void **state)
{
    mica_device *device;
    mica_model *model;
    (void)state;
    must(mica_device_open("cpu", NULL, &device));
    must(mica_device_set_budget(device, 1000));
    const mica_model_options options = {.flags = MICA_WEIGHTS_NO_MAP};
    refused(mica_model_open("tests/model/golden/llama", device, &options, &model), MICA_ERR_BUDGET, "budget");
    assert_null(model);
    mica_device_release(device);
}

/* ---- memory that runs out --------------------------------------------------------------------------------- */

static mica_status use_model(const char *name)
{
    const mica_device_options options = {.threads = 1};
    const mica_context_options shape = {.capacity = 64, .sequences = 2, .batch = 8};
    mica_device *device = NULL;
    mica_model *model = NULL;
    mica_context *context = NULL;
    uint32_t tokens[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, sequence = 0, other;
    char path[128];
    snprintf(path, sizeof path, "tests/model/golden/%s", name);
    mica_status status = mica_device_open("cpu", &options, &device);
    if (status == MICA_OK)
        status = mica_model_open(path, device, NULL, &model);
    if (status == MICA_OK)
        status = mica_context_create(model, &shape, &context);
    if (status == MICA_OK)
        status = mica_sequence_create(context, &sequence);
    if (status == MICA_OK)
        status = mica_context_feed(context, &(mica_feed){sequence, tokens, 12, MICA_WANT_ALL}, 1);
    if (status == MICA_OK)
        status = mica_sequence_fork(context, sequence, 10, &other);
    if (status == MICA_OK)
        status = mica_context_feed(context, &(mica_feed){other, tokens, 1, MICA_WANT_LAST}, 1);
    mica_context_release(context);
    mica_model_release(model);
    mica_device_release(device);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    static const char *const names[] = {"qwen3moe", "gemma3"};
    /* With one thread the thread sanitizer sees nothing: the others look at each. */
    const uint64_t few = TEST_THREAD_SANITIZER ? 16 : 1;
    test_meter meter = {0};
    (void)state;
    must(test_meter_set(&meter));
    for (size_t n = 0; n < 2; n++) {
        test_meter_allow(&meter, UINT64_MAX);
        must(use_model(names[n]));
        const uint64_t all = atomic_load(&meter.calls);
        assert_true(all > 100);
        for (uint64_t i = 0; i < all; i += i < 200 ? few : few * (1 + all / 400)) {
            test_meter_allow(&meter, i);
            const mica_status status = use_model(names[n]);
            if (status != MICA_OK) /* something that is only a help may have been done without */
                assert_int_equal(status, MICA_ERR_OUT_OF_MEMORY);
            assert_int_equal(mica_host_allocations(), 0);
        }
    }
    must(mica_set_allocator(NULL));
}

/* Vectors are the model's own: of a file that is cut short only matrices are gone. */
static void vectors_are_not_mapped(void **state)
{
    const mica_device_options one = {.threads = 1};
    mica_device *device;
    mica_model *model;
    mica_device_memory with;
    char path[512];
    (void)state;
    write_model(&(wrong){0}, path, sizeof path);
    must(mica_device_open("cpu", &one, &device));
    must(mica_model_open(path, device, NULL, &model));
    must(mica_device_get_memory(device, &with));
    /* f32 matrices are read as the file has them. */
    const uint64_t layer = 4 * WIDTH * WIDTH + 3 * FFN * WIDTH;
    assert_int_equal(with.mapped_bytes, 4 * (LAYERS * layer + VOCABULARY * WIDTH));
    assert_true(with.owned_bytes >= 4 * WIDTH * (2 * LAYERS + 1));
    mica_model_release(model);
    mica_device_release(device);
    remove(path);
}

/* Numbers of the header are read by their value, not by the type that a file keeps them in. */
static void numbers_of_64_bits_are_read(void **state)
{
    const mica_device_options one = {.threads = 1};
    mica_model_info info[2] = {{.layers = 0}};
    char path[512];
    (void)state;
    for (uint32_t wide = 0; wide < 2; wide++) {
        mica_device *device;
        mica_model *model;
        test_file_path(path, sizeof path, "numbers.gguf");
        test_tiny_write(
            &(test_tiny){.layers = 3, .width = 24, .window = 9, .experts = 4, .context = 77, .wide = wide},
            path);
        must(mica_device_open("cpu", &one, &device));
        must(mica_model_open(path, device, NULL, &model));
        must(mica_model_get_info(model, &info[wide]));
        mica_model_release(model);
        mica_device_release(device);
        remove(path);
    }
    assert_int_equal(info[1].layers, 3);
    assert_int_equal(info[1].experts, 4);
    assert_int_equal(info[1].context_length, 77);
    assert_memory_equal(&info[0], &info[1], sizeof info[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_files_are_named),       cmocka_unit_test(a_model_in_memory_talks),
        cmocka_unit_test(loading_can_be_stopped),      cmocka_unit_test(a_budget_is_kept),
        cmocka_unit_test(every_allocation_may_fail),   cmocka_unit_test(vectors_are_not_mapped),
        cmocka_unit_test(numbers_of_64_bits_are_read),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
