/*
 * test_adapter_peft.c - adapters as peft saves them (scripts/golden_peft.py) beside the logits of transformers with peft: over the checkpoint and over the GGUF of it, fed in
 * chunks, saved as a GGUF and read again; what a configuration says besides is refused by its key.
 */
#include "golden_models.h"
#include "mica/adapter.h"
#include "model_rig.h"

typedef struct peft_case {
    const char *name, *base, *family;
    uint32_t matrices, rank, most;
} peft_case;

static const peft_case cases[] = {
    {"llama", "llama", "llama", 4, 4, 4},    {"llama-patterns", "llama", "llama", 15, 2, 6},
    {"gpt2", "gpt2", "gpt2", 6, 3, 3},       {"qwen3", "qwen3", "qwen3", 7, 5, 5},
    {"gemma2", "gemma2", "gemma2", 0, 2, 2}, {"qwen3moe", "qwen3moe", "qwen3moe", 4, 2, 2},
};

static void check_logits(const rig *r, const peft_case *c, mica_adapter *adapter, const golden_expected *want,
                         const char *form)
{
    static const uint32_t chunks[] = {GOLDEN_TOKENS, 1, 7};
    const mica_adapter_use use = {adapter, 1};
    const mica_context_options options = {.capacity = 128,
                                          .cache_k = MICA_DTYPE_F32,
                                          .cache_v = MICA_DTYPE_F32,
                                          .adapters = &use,
                                          .adapter_count = 1};
    float *got = test_alloc((size_t)want->token_count * r->info.vocabulary, sizeof *got);
    mica_context *context = NULL;
    must(mica_context_create(r->model, &options, &context));
    for (int k = 0; k < 3; k++) {
        const uint32_t sequence = rig_sequence(context);
        rig_logits(context, r, sequence, want->tokens, want->token_count, chunks[k], got);
        must(mica_sequence_remove(context, sequence));
        for (uint32_t row = 0; row < want->row_count; row++) {
            const double apart =
                golden_distance(got + (size_t)want->rows[row] * r->info.vocabulary,
                                want->logits + (size_t)row * r->info.vocabulary, r->info.vocabulary);
            if (!(apart <= GOLDEN_NEAR))
                fail_msg("%s over %s in chunks of %u: the logits at %u are %.3g of the largest away", c->name,
                         form, chunks[k], want->rows[row], apart);
        }
    }
    mica_context_release(context);
    free(got);
}

static mica_adapter *open_adapter(const rig *r, const char *path, const peft_case *c)
{
    mica_adapter *adapter = NULL;
    mica_adapter_info info;
    must(mica_adapter_open(path, r->model, &adapter));
    must(mica_adapter_get_info(adapter, &info));
    assert_true(c->matrices == 0 || info.matrices == c->matrices);
    assert_true(info.rank == c->rank && info.most == c->most);
    return adapter;
}

static void beside_peft(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const peft_case *c = &cases[i];
        char folder[256], path[300], saved[300], source[200], name[64];
        snprintf(name, sizeof name, "peft/%s", c->name);
        snprintf(path, sizeof path, GOLDEN_HOME "%s", name);
        golden_expected *want = golden_read(name);
        rig r = rig_open(c->base, 2);
        mica_adapter *adapter = open_adapter(&r, path, c);
        check_logits(&r, c, adapter, want, "the checkpoint");
        assert_int_equal(test_folder_make(folder, sizeof folder, "peft"), 0);
        snprintf(saved, sizeof saved, "%s/adapter.gguf", folder);
        if (strcmp(c->base, "llama") == 0) /* its rotary rows lie in another order than a GGUF's */
            refused(mica_adapter_save(adapter, saved), MICA_ERR_UNSUPPORTED, "mica convert");
        mica_adapter_release(adapter);
        rig_close(&r);
        snprintf(source, sizeof source, GOLDEN_HOME "%s", c->base);
        char model[300];
        snprintf(model, sizeof model, "%s/model.gguf", folder);
        must(mica_convert(source, model, NULL));
        must(mica_device_open("cpu", NULL, &r.device));
        must(mica_model_open(model, r.device, &(mica_model_options){.flags = MICA_WEIGHTS_NO_MAP}, &r.model));
        must(mica_model_get_info(r.model, &r.info));
        adapter = open_adapter(&r, path, c);
        check_logits(&r, c, adapter, want, "the GGUF");
        must(mica_adapter_save(adapter, saved));
        mica_adapter_release(adapter);
        adapter = open_adapter(&r, saved, c);
        check_logits(&r, c, adapter, want, "the GGUF, saved");
        mica_adapter_release(adapter);
        rig_close(&r);
        free(want);
        test_folder_empty(folder);
        assert_int_equal(test_folder_remove(folder), 0);
    }
}

/* ---- what is refused ------------------------------------------------------------------------------------- */

static size_t read_bytes(const char *path, char *out, size_t most)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(out, 1, most, file);
    fclose(file);
    assert_true(size < most);
    return size;
}

static void write_bytes(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void refused_folders(void **state)
{
    static const struct {
        const char *from, *to;
        mica_status status;
        const char *word;
    } rows[] = {
        {"\"use_dora\": false", "\"use_dora\": true", MICA_ERR_UNSUPPORTED, "\"use_dora\""},
        {"\"lora_bias\": false", "\"lora_bias\": true", MICA_ERR_UNSUPPORTED, "\"lora_bias\""},
        {"\"bias\": \"none\"", "\"bias\": \"all\"", MICA_ERR_UNSUPPORTED, "\"bias\""},
        {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", MICA_ERR_UNSUPPORTED,
         "\"modules_to_save\""},
        {"\"layer_replication\": null", "\"layer_replication\": [[0, 2]]", MICA_ERR_UNSUPPORTED,
         "\"layer_replication\""},
        {"\"trainable_token_indices\": null", "\"trainable_token_indices\": [1]", MICA_ERR_UNSUPPORTED,
         "\"trainable_token_indices\""},
        {"\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"", MICA_ERR_UNSUPPORTED, "\"peft_type\""},
        {"\"use_bdlora\": null", "\"of_tomorrow\": 3", MICA_ERR_UNSUPPORTED, "\"of_tomorrow\""},
        {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_.*\": 3}", MICA_ERR_UNSUPPORTED, "an expression"},
        {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": \"3\"}", MICA_ERR_MALFORMED_FILE,
         "alpha_pattern"},
        {"\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 3}", MICA_ERR_MALFORMED_FILE, "rank 3"},
        {"\"r\": 4", "\"r\": 5", MICA_ERR_MALFORMED_FILE, "rank 5"},
        {"\"r\": 4", "\"r\": 0", MICA_ERR_MALFORMED_FILE, "\"r\""},
        {"\"lora_alpha\": 8", "\"lora_alpha\": null", MICA_ERR_MALFORMED_FILE, "lora_alpha"},
        {"{", "[", MICA_ERR_MALFORMED_FILE, "JSON"},
    };
    static char tensors[20000], config[4096], changed[5000];
    char folder[256], path[300], json[300];
    mica_adapter *adapter = NULL;
    (void)state;
    rig r = rig_open("llama", 1);
    assert_int_equal(test_folder_make(folder, sizeof folder, "peft"), 0);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    snprintf(json, sizeof json, "%s/adapter_config.json", folder);
    const size_t size =
        read_bytes(GOLDEN_HOME "peft/llama/adapter_model.safetensors", tensors, sizeof tensors);
    config[read_bytes(GOLDEN_HOME "peft/llama/adapter_config.json", config, sizeof config - 1)] = 0;
    refused(mica_adapter_open(folder, r.model, &adapter), MICA_ERR_UNSUPPORTED, "no adapter_config.json");
    write_bytes(path, tensors, size);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *at = strstr(config, rows[i].from);
        if (at == NULL)
            fail_msg("no %s", rows[i].from);
        const int length = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - config), config,
                                    rows[i].to, at + strlen(rows[i].from));
        write_bytes(json, changed, (size_t)length);
        refused(mica_adapter_open(folder, r.model, &adapter), rows[i].status, rows[i].word);
        assert_null(adapter);
    }
    write_bytes(json, config, strlen(config));
    rig other = rig_open("gpt2", 1); /* another family's names */
    refused(mica_adapter_open(folder, other.model, &adapter), MICA_ERR_UNSUPPORTED, "gpt2");
    rig_close(&other);
    for (size_t i = 0; i + 6 < size; i++) /* a part of another kind, and one alone */
        if (memcmp(tensors + i, "lora_B", 6) == 0) {
            tensors[i + 5] = 'M';
            write_bytes(path, tensors, size);
            tensors[i + 5] = 'B';
            break;
        }
    assert_int_not_equal(mica_adapter_open(folder, r.model, &adapter), MICA_OK);
    for (size_t at = 0; at < size; at += at < 900 ? 7 : 97) { /* cut, or a byte changed */
        write_bytes(path, tensors, at);
        assert_true(mica_adapter_open(folder, r.model, &adapter) != MICA_OK && adapter == NULL);
        tensors[at] ^= 1;
        write_bytes(path, tensors, size);
        tensors[at] ^= 1;
        if (mica_adapter_open(folder, r.model, &adapter) != MICA_OK)
            assert_null(adapter);
        mica_adapter_release(adapter);
        adapter = NULL;
    }
    test_folder_empty(folder);
    assert_int_equal(test_folder_remove(folder), 0);
    rig_close(&r);
}

/* Names of the checkpoint as a GGUF has them. */
static void names(void **state)
{
    char name[64];
    uint32_t heads = 7;
    (void)state;
    must(
        mica_tensor_name_of_hf("llama", "model.layers.3.self_attn.k_proj.weight", name, sizeof name, &heads));
    assert_string_equal(name, "blk.3.attn_k.weight");
    assert_int_equal(heads, MICA_HF_KEY_HEADS);
    must(
        mica_tensor_name_of_hf("qwen3", "model.layers.0.self_attn.q_proj.weight", name, sizeof name, &heads));
    assert_string_equal(name, "blk.0.attn_q.weight");
    assert_int_equal(heads, 0);
    refused(mica_tensor_name_of_hf("llama", "model.layers.0.block_sparse_moe.experts.1.w1.weight", name,
                                   sizeof name, NULL),
            MICA_ERR_UNSUPPORTED, "experts.1.w1");
    refused(mica_tensor_name_of_hf("llama", "lm_head.weight", name, 5, NULL), MICA_ERR_UNSUPPORTED,
            "lm_head");
    refused(mica_tensor_name_of_hf("none", "lm_head.weight", name, sizeof name, NULL), MICA_ERR_UNSUPPORTED,
            "none");
    refused(mica_tensor_name_of_hf("llama", NULL, name, sizeof name, NULL), MICA_ERR_INVALID_ARGUMENT,
            "name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(beside_peft),
                                       cmocka_unit_test(refused_folders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
