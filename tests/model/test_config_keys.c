/*
 * test_config_keys.c - the table of keys of config.json (src/format/keys.def) walked row by row on the golden checkpoints: what
 * is said to change nothing gives the same bits, what is refused unless .. is refused by name, and what is read changes the
 * logits or what the model says of itself, or does not fit the tensors. Contexts beyond the positions of a model.
 */
#define _DEFAULT_SOURCE
#include <unistd.h>

#include "format/config/keys.h"
#include "golden_models.h"

#define MOST 8192

/* ---- config.json ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *key_class, *golden;
} homes[] = {{"llama", "llama"}, {"mistral", "mistral"},    {"mixtral", "mixtral"}, {"qwen2", "qwen2"},
             {"qwen3", "qwen3"}, {"qwen3_moe", "qwen3moe"}, {"gemma2", "gemma2"},   {"gemma3_text", "gemma3"},
             {"phi3", "phi3"},   {"gpt2", "gpt2"},          {"bert", "bert"}};

#define HOMES (sizeof homes / sizeof homes[0])

/* A folder with a golden checkpoint, whose config.json is written again and again. */
typedef struct scene {
    mica_device *device;
    char folder[256];
    const char *key_class;
    golden_expected *want;
    char config[MOST]; /* of the golden checkpoint */
    float *base;       /* what it gives with `with` */
    uint32_t values;
    mica_model_info info;
} scene;

static void write_file(const char *folder, const char *name, const void *bytes, size_t size)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Takes a member out of a text with one blank before each member, as scripts/golden.py writes them. */
static void take_out(char *config, const char *key)
{
    char mark[128];
    (void)snprintf(mark, sizeof mark, "\n \"%s\":", key);
    char *at = strstr(config, mark);
    if (at == NULL)
        return;
    char *end = strstr(at + 1, "\n \"");
    if (end == NULL) { /* the last one: the comma before it goes too */
        end = strstr(at + 1, "\n}");
        assert_non_null(end);
        assert_true(at[-1] == ',');
        at--;
    }
    memmove(at, end, strlen(end) + 1);
}

/* The keys of "\"a\":1,\"b\":2" at the top. */
static void take_all_out(char *config, const char *members)
{
    int depth = 0;
    bool at_key = true;
    for (const char *c = members; *c != '\0'; c++) {
        depth += *c == '{' || *c == '[' ? 1 : *c == '}' || *c == ']' ? -1 : 0;
        if (depth == 0 && *c == ',')
            at_key = true;
        if (depth != 0 || *c != '"' || !at_key)
            continue;
        char key[100];
        const size_t length = strcspn(c + 1, "\"");
        (void)snprintf(key, sizeof key, "%.*s", (int)length, c + 1);
        take_out(config, key);
        c += length + 1;
        at_key = false;
    }
}

/* config.json with members in place of its own of those names; `without`: more names, with | between them. */
static void write_config(const scene *s, const char *members, const char *without)
{
    char config[MOST], names[300];
    (void)snprintf(config, sizeof config, "%s", s->config);
    (void)snprintf(names, sizeof names, "%s", without == NULL ? "" : without);
    for (char *name = strtok(names, "|"); name != NULL; name = strtok(NULL, "|"))
        take_out(config, name);
    take_all_out(config, members);
    char *end = strstr(config, "\n}");
    assert_non_null(end);
    (void)snprintf(end, sizeof config - (size_t)(end - config), "%s%s\n}\n", members[0] == '\0' ? "" : ",\n ",
                   members);
    write_file(s->folder, "config.json", config, strlen(config));
}

static scene *scene_make(size_t home)
{
    char path[300];
    static uint8_t weights[1u << 20];
    static uint32_t made;
    char name[32];
    scene *s = test_alloc(1, sizeof *s);
    (void)snprintf(name, sizeof name, "keys%u", made++);
    s->key_class = homes[home].key_class;
    must(mica_device_open("cpu", &(mica_device_options){.threads = 1}, &s->device));
    assert_int_equal(test_folder_make(s->folder, sizeof s->folder, name), 0);
    s->want = golden_read(homes[home].golden);
    (void)snprintf(path, sizeof path, GOLDEN_HOME "%s/config.json", homes[home].golden);
    char *text = golden_text(path);
    assert_true(strlen(text) < sizeof s->config / 2);
    (void)snprintf(s->config, sizeof s->config, "%s", text);
    free(text);
    (void)snprintf(path, sizeof path, GOLDEN_HOME "%s/model.safetensors", homes[home].golden);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(weights, 1, sizeof weights, file);
    (void)fclose(file);
    assert_true(size < sizeof weights);
    write_file(s->folder, "model.safetensors", weights, size);
    return s;
}

static void scene_free(scene *s)
{
    free(s->base);
    free(s->want);
    assert_int_equal(test_folder_remove(s->folder), 0);
    mica_device_release(s->device);
    free(s);
}

/* ---- what comes of it ----------------------------------------------------------------------------------------- */

/* Opens and runs the folder as it is: all logits, or the embedding. The caller frees *out. */
static mica_status run(const scene *s, const char *const *accept, uint32_t accepted, float **out,
                       uint32_t *out_values, mica_model_info *out_info)
{
    const mica_model_options options = {.accept_keys = accept, .accept_key_count = accepted};
    const mica_context_options sizes = {.cache_k = MICA_DTYPE_F32, .cache_v = MICA_DTYPE_F32};
    const uint32_t count = s->want->token_count;
    mica_model *model = NULL;
    mica_context *context = NULL;
    uint32_t sequence, rows = 1;
    const float *logits = NULL;
    *out = NULL;
    mica_status status = mica_model_open(s->folder, s->device, &options, &model);
    if (status != MICA_OK)
        return status;
    must(mica_model_get_info(model, out_info));
    status = mica_context_create(model, &sizes, &context);
    const uint32_t width = out_info->encoder ? out_info->width : out_info->vocabulary;
    if (status == MICA_OK && out_info->encoder) {
        *out = test_alloc(width, sizeof **out);
        status = mica_context_embed(context, s->want->tokens, count, MICA_POOLING_MEAN, 1, *out);
    } else if (status == MICA_OK) {
        must(mica_sequence_create(context, &sequence));
        status = mica_context_feed(context, &(mica_feed){sequence, s->want->tokens, count, MICA_WANT_ALL}, 1);
        if (status == MICA_OK)
            status = mica_context_logits(context, sequence, &logits, &rows);
        if (status == MICA_OK) {
            *out = test_alloc((size_t)rows * width, sizeof **out);
            memcpy(*out, logits, (size_t)rows * width * sizeof **out);
        }
    }
    *out_values = rows * width;
    mica_context_release(context);
    mica_model_release(model);
    return status;
}

static void take_base(scene *s, const char *members, const char *without)
{
    free(s->base);
    write_config(s, members, without);
    const mica_status status = run(s, NULL, 0, &s->base, &s->values, &s->info);
    if (status != MICA_OK)
        fail_msg("%s with %s: %s", s->key_class, members, mica_status_message());
}

/* As the base: the same bits. */
static bool is_same(const scene *s, const float *got, uint32_t values, const mica_model_info *info)
{
    return values == s->values && memcmp(got, s->base, values * sizeof *got) == 0 &&
           memcmp(info, &s->info, sizeof *info) == 0;
}

static void expect_same(const scene *s, const char *members, const char *without, const char *accept)
{
    float *got;
    uint32_t values;
    mica_model_info info;
    write_config(s, members, without);
    const mica_status status = run(s, &accept, accept != NULL, &got, &values, &info);
    if (status != MICA_OK)
        fail_msg("%s with %s: %s", s->key_class, members, mica_status_message());
    if (!is_same(s, got, values, &info))
        fail_msg("%s with %s computes something else", s->key_class, members);
    free(got);
}

static void expect_refused(const scene *s, const char *members, const char *without, const char *word)
{
    float *got;
    uint32_t values;
    mica_model_info info;
    write_config(s, members, without);
    const mica_status status = run(s, NULL, 0, &got, &values, &info);
    if (status == MICA_OK)
        fail_msg("%s with %s runs", s->key_class, members);
    if (strstr(mica_status_message(), word) == NULL)
        fail_msg("%s with %s: the sentence does not name %s: %s", s->key_class, members, word,
                 mica_status_message());
}

/* ---- keys that are read ---------------------------------------------------------------------------------------- */

/* Another value of a key, with members that both have and names that neither has. */
typedef struct sample {
    const char *classes, *key, *value, *with, *without;
} sample;

#define YARN "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0}"

static const sample samples[] = {
    {"", "num_hidden_layers", "1", "", "n_layer"},
    {"", "hidden_size", "24", "", "n_embd"},
    {" qwen3_moe ", "intermediate_size", NULL, "", NULL}, /* of dense layers, which it has not */
    {"", "intermediate_size", "12", "", NULL},
    {"", "num_attention_heads", "3", "", "n_head"},
    {" gemma3_text ", "num_key_value_heads", "2", "", NULL},
    {"", "num_key_value_heads", "1", "", NULL},
    {"", "head_dim", "6", "", NULL},
    {"", "max_position_embeddings", "64", "", "n_positions"},
    {"", "n_layer", "1", "", NULL},
    {"", "n_positions", "64", "", NULL},
    {"", "n_embd", "16", "", NULL},
    {"", "n_inner", "24", "", NULL},
    {"", "n_head", "2", "", NULL},
    {"", "rms_norm_eps", "0.3", "", NULL},
    {"", "layer_norm_epsilon", "0.3", "", NULL},
    {"", "layer_norm_eps", "0.3", "", NULL},
    {" bert ", "hidden_act", "\"gelu_new\"", "", NULL},
    {"", "hidden_act", "\"gelu\"", "", NULL},
    {"", "activation_function", "\"gelu\"", "", NULL},
    {"", "hidden_activation", "\"silu\"", "", NULL},
    {"", "rope_theta", "777.0", "", "rope_parameters"},
    {"", "rope_local_base_freq", "777.0", "", NULL},
    {" phi3 ", "rope_scaling", "{\"type\":\"longrope\",\"short_factor\":[1,2,3,4],\"long_factor\":[1,3,5,7]}",
     "", NULL},
    {"", "rope_scaling", "{\"rope_type\":\"linear\",\"factor\":3.0}", "", "rope_parameters"},
    {" phi3 ", "rope_parameters",
     "{\"type\":\"longrope\",\"short_factor\":[1,2,3,4],\"long_factor\":[1,3,5,7]}", "",
     "rope_scaling|rope_theta"},
    {" gemma3_text ", "rope_parameters",
     "{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":3.0,\"rope_theta\":10000}}", "",
     "rope_scaling"},
    {"", "rope_parameters", "{\"rope_type\":\"linear\",\"factor\":3.0,\"rope_theta\":10000}", "",
     "rope_scaling|rope_theta"},
    {"", "partial_rotary_factor", "0.5", "", NULL},
    {" phi3 ", "original_max_position_embeddings", "16",
     "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,2,3,4],\"long_factor\":[1,3,5,7]}", NULL},
    {"", "original_max_position_embeddings", "4096", YARN, "rope_parameters"},
    {"", "attention_bias", "\"yes\"", "", NULL},
    {"", "mlp_bias", "\"yes\"", "", NULL},
    {" qwen2 qwen3 qwen3_moe ", "sliding_window", "9", "\"use_sliding_window\":true,\"max_window_layers\":0",
     "layer_types"},
    {"", "sliding_window", "9", "", NULL},
    {"", "use_sliding_window", "true", "\"sliding_window\":9,\"max_window_layers\":0", "layer_types"},
    {"", "max_window_layers", "1", "\"sliding_window\":9,\"use_sliding_window\":true", "layer_types"},
    {" gemma3_text ", "layer_types",
     "[\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"sliding_attention\",\"full_"
     "attention\","
     "\"sliding_attention\",\"full_attention\"]",
     "", NULL},
    {"", "layer_types", "[\"full_attention\",\"sliding_attention\"]",
     "\"sliding_window\":9,\"use_sliding_window\":true", NULL},
    {" gemma2 ", "layer_types", "[\"full_attention\",\"sliding_attention\"]", "", NULL},
    {"", "sliding_window_pattern", "3", "", "layer_types"},
    {"", "query_pre_attn_scalar", "20", "", NULL},
    {"", "attn_logit_softcapping", "3.0", "", NULL},
    {"", "final_logit_softcapping", "3.0", "", NULL},
    {"", "scale_attn_weights", "false", "", NULL},
    {"", "scale_attn_by_inverse_layer_idx", "true", "", NULL},
    {" qwen2 gemma2 gemma3_text gpt2 ", "tie_word_embeddings", "false", "", NULL},
    {"", "tie_word_embeddings", "true", "", NULL},
    {"", "num_local_experts", "3", "", "num_experts"},
    {"", "num_experts", "3", "", "num_local_experts"},
    {"", "num_experts_per_tok", "1", "", NULL},
    {"", "moe_intermediate_size", "12", "", NULL},
    {"", "norm_topk_prob", "false", "", NULL},
    {"", "architectures", "[\"OddModel\"]", "", NULL},
    {"", "model_type", "\"odd\"", "", NULL},
    {"", "quantization", NULL, "", NULL}, /* tests/format/test_mlx.c */
    {" bert ", "tie_word_embeddings", NULL, "", NULL},
    /* of tokens: a golden checkpoint has no tokenizer */
    {"", "bos_token_id", NULL, "", NULL},
    {"", "eos_token_id", NULL, "", NULL},
    {"", "pad_token_id", NULL, "", NULL},
    {"", "sep_token_id", NULL, "", NULL},
    {"", "type_vocab_size", NULL, "", NULL},
    {"", "quantization_config", NULL, "", NULL},
};

static const sample *find_sample(const char *key_class, const char *key)
{
    const sample *best = NULL;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
        if (strcmp(samples[i].key, key) == 0 && mica__name_family_listed(samples[i].classes, key_class) &&
            (best == NULL || samples[i].classes[0] != '\0'))
            best = &samples[i];
    return best;
}

static void check_read(scene *s, const mica__key_row *row)
{
    const sample *x = find_sample(s->key_class, row->key);
    char members[600];
    float *got;
    uint32_t values;
    mica_model_info info;
    if (x == NULL)
        fail_msg("%s.%s is read, and the test knows no other value of it", s->key_class, row->key);
    if (x->value == NULL)
        return;
    if (x->with[0] != '\0')
        take_base(s, x->with, x->without);
    (void)snprintf(members, sizeof members, "\"%s\":%s%s%s", row->key, x->value,
                   x->with[0] == '\0' ? "" : ",", x->with);
    write_config(s, members, x->without);
    if (run(s, NULL, 0, &got, &values, &info) == MICA_OK) {
        if (is_same(s, got, values, &info))
            fail_msg("%s with %s: nothing changes", s->key_class, members);
        free(got);
    }
    if (x->with[0] != '\0')
        take_base(s, "", NULL);
}

/* ---- the walk ----------------------------------------------------------------------------------------------------- */

static void row_name(const mica__key_row *row, char *out, size_t size)
{
    const size_t length = strlen(row->key);
    (void)snprintf(out, size, "%s", row->key);
    if (row->key[length - 1] == '*')
        (void)snprintf(out + length - 1, size - length + 1, "odd");
}

static void check_only(const scene *s, const mica__key_row *row)
{
    char members[200];
    (void)snprintf(members, sizeof members, "\"%s\":12345", row->key);
    expect_refused(s, members, NULL, row->key);
    expect_same(s, members, NULL, row->key); /* accepted by name */
    for (const char *at = row->detail; *at != '\0';) {
        const size_t length = strcspn(at, "|");
        (void)snprintf(members, sizeof members, "\"%s\":%.*s", row->key, (int)length, at);
        expect_same(s, members, NULL, NULL);
        at += length + (at[length] == '|');
    }
}

static void check_idle(const scene *s, const char *key)
{
    static const char *const values[] = {"7", "\"odd\"", "true", "{\"a\":[1]}"};
    char members[200];
    (void)snprintf(members, sizeof members, "\"%s\":%s", key,
                   strstr(key, "vocab_size") != NULL ? "7" : values[strlen(key) % 4]);
    expect_same(s, members, NULL, NULL);
}

/* Rows of nearly all classes are walked in one class each, the next one for the next row. */
static void walk(void **state)
{
    const size_t home = (size_t)(uintptr_t)*state;
    scene *s = scene_make(home);
    uint32_t count;
    const mica__key_row *rows = mica__key_rows(&count);
    take_base(s, "", NULL);
    for (uint32_t i = 0; i < count; i++) {
        char key[100];
        row_name(&rows[i], key, sizeof key);
        if (mica__key_find(s->key_class, key) != &rows[i])
            continue;
        if (rows[i].verdict == MICA__KEY_READ || rows[i].verdict == MICA__KEY_MAY)
            check_read(s, &rows[i]);
        else if (rows[i].classes[0] == '!' && i % HOMES != home)
            continue;
        else if (rows[i].verdict == MICA__KEY_ONLY)
            check_only(s, &rows[i]);
        else
            check_idle(s, key);
    }
    expect_refused(s, "\"new_twist\":3", NULL, "new_twist");
    expect_same(s, "\"new_twist\":3", NULL, "new_twist");
    scene_free(s);
}

/* ---- rotary scaling, nulls, Gemma 3 with pictures ------------------------------------------------------------------ */

static void rope_keys(void **state)
{
    static const struct {
        const char *key, *was, *is;
    } rows[] = {
        {"rope_type", "\"rope_type\":\"linear\",\"factor\":3", "\"rope_type\":\"default\",\"factor\":3"},
        {"type", "\"type\":\"linear\",\"factor\":3", "\"type\":\"default\",\"factor\":3"},
        {"rope_theta", "\"rope_type\":\"linear\",\"factor\":3",
         "\"rope_type\":\"linear\",\"factor\":3,\"rope_theta\":99"},
        {"factor", "\"rope_type\":\"yarn\",\"factor\":3", "\"rope_type\":\"yarn\",\"factor\":4"},
        {"original_max_position_embeddings", "\"rope_type\":\"yarn\",\"factor\":3",
         "\"rope_type\":\"yarn\",\"factor\":3,\"original_max_position_embeddings\":16"},
        {"attention_factor", "\"rope_type\":\"yarn\",\"factor\":3",
         "\"rope_type\":\"yarn\",\"factor\":3,\"attention_factor\":1.7"},
        {"beta_fast", "\"rope_type\":\"yarn\",\"factor\":3",
         "\"rope_type\":\"yarn\",\"factor\":3,\"beta_fast\":2.0"},
        {"beta_slow", "\"rope_type\":\"yarn\",\"factor\":3",
         "\"rope_type\":\"yarn\",\"factor\":3,\"beta_slow\":0.01"},
        {"mscale", "\"rope_type\":\"yarn\",\"factor\":3,\"mscale_all_dim\":0.2",
         "\"rope_type\":\"yarn\",\"factor\":3,\"mscale_all_dim\":0.2,\"mscale\":0.9"},
        {"mscale_all_dim", "\"rope_type\":\"yarn\",\"factor\":3,\"mscale\":0.2",
         "\"rope_type\":\"yarn\",\"factor\":3,\"mscale\":0.2,\"mscale_all_dim\":0.9"},
        {"long_factor",
         "\"rope_type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1],\"long_factor\":[1,2,3,4,5,6]",
         "\"rope_type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1],\"long_factor\":[1,2,3,4,5]"},
        {"short_factor",
         "\"rope_type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1],\"long_factor\":[1,2,3,4,5,6]",
         "\"rope_type\":\"longrope\",\"short_factor\":[1,2,1,2,1,1],\"long_factor\":[1,2,3,4,5,6]"},
        {"low_freq_factor",
         "\"rope_type\":\"llama3\",\"factor\":4,\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_"
         "position_"
         "embeddings\":32",
         "\"rope_type\":\"llama3\",\"factor\":4,\"low_freq_factor\":3,\"high_freq_factor\":4,\"original_max_"
         "position_"
         "embeddings\":32"},
        {"high_freq_factor",
         "\"rope_type\":\"llama3\",\"factor\":4,\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_"
         "position_"
         "embeddings\":32",
         "\"rope_type\":\"llama3\",\"factor\":4,\"low_freq_factor\":1,\"high_freq_factor\":2,\"original_max_"
         "position_"
         "embeddings\":32"},
        {"partial_rotary_factor", "\"rope_type\":\"linear\",\"factor\":3",
         "\"rope_type\":\"linear\",\"factor\":3,\"partial_rotary_factor\":0.5"},
    };
    scene *s = scene_make(0);
    uint32_t count;
    const mica__key_row *all = mica__key_rows(&count);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char members[400];
        float *got;
        uint32_t values;
        mica_model_info info;
        (void)snprintf(members, sizeof members, "\"rope_scaling\":{%s}", rows[i].was);
        take_base(s, members, NULL);
        (void)snprintf(members, sizeof members, "\"rope_scaling\":{%s}", rows[i].is);
        write_config(s, members, NULL);
        if (run(s, NULL, 0, &got, &values, &info) == MICA_OK) {
            if (is_same(s, got, values, &info))
                fail_msg("rope_scaling.%s: nothing changes", rows[i].key);
            free(got);
        }
    }
    take_base(s, "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":3}", NULL);
    for (uint32_t i = 0; i < count; i++) {
        char members[300];
        bool listed = false;
        if (mica__key_find("rope", all[i].key) != &all[i])
            continue;
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++)
            listed = listed || strcmp(rows[k].key, all[i].key) == 0;
        assert_true(listed || all[i].verdict == MICA__KEY_ONLY || all[i].verdict == MICA__KEY_IDLE);
        (void)snprintf(members, sizeof members,
                       "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":3,\"%s\":12345}", all[i].key);
        if (all[i].verdict == MICA__KEY_ONLY)
            expect_refused(s, members, NULL, all[i].key);
        else if (all[i].verdict == MICA__KEY_IDLE)
            expect_same(s, members, NULL, NULL);
    }
    expect_refused(s, "\"rope_scaling\":{\"rope_type\":\"spiral\",\"factor\":3}", NULL, "spiral");
    expect_refused(s, "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":3,\"twist\":1}", NULL, "twist");
    expect_refused(s, "\"rope_scaling\":{\"factor\":3}", NULL, "rope_type");
    expect_refused(s, "\"rope_scaling\":{\"rope_type\":\"linear\"}", NULL, "factor");
    expect_refused(s, "\"rms_norm_eps\":null", NULL, "rms_norm_eps");
    expect_refused(s, "\"hidden_act\":\"relu\"", NULL, "relu");
    scene_free(s);
}

/* Where the class's model has its keys in an object of its own, those are checked as well. */
static void nested_keys(void **state)
{
    scene *s = scene_make(7);
    char inside[MOST / 2], members[MOST];
    (void)state;
    take_base(s, "", NULL);
    (void)snprintf(inside, sizeof inside, "%.4000s", s->config);
    inside[strlen(inside) - 1] = '\0';
    (void)snprintf(
        s->config, sizeof s->config,
        "{\n \"architectures\": [\"Gemma3ForConditionalGeneration\"],\n \"model_type\": \"gemma3\"\n}\n");
    (void)snprintf(members, sizeof members,
                   "\"text_config\":%s,\"vision_config\":{\"odd\":1},\"mm_tokens_per_image\":256", inside);
    expect_same(s, members, NULL, NULL);
    inside[strlen(inside) - 1] = '\0';
    (void)snprintf(members, sizeof members, "\"text_config\":%s,\"new_twist\":3}", inside);
    expect_refused(s, members, NULL, "text_config.new_twist");
    scene_free(s);
}

/* ---- positions ------------------------------------------------------------------------------------------------------ */

static void expect_longest(const scene *s, const char *members, const char *word)
{
    mica_model *model;
    mica_context *context;
    mica_context_info info;
    uint32_t sequence, tokens[130] = {0};
    write_config(s, members, NULL);
    must(mica_model_open(s->folder, s->device, NULL, &model));
    refused(mica_context_create(model, &(mica_context_options){.capacity = 129}, &context),
            MICA_ERR_INVALID_ARGUMENT, word);
    must(mica_context_create(model, NULL, &context)); /* what is usual fits */
    must(mica_context_get_info(context, &info));
    assert_int_equal(info.capacity, 128);
    mica_context_release(context);
    /* Two sequences may hold more than one may be long. */
    must(mica_context_create(model, &(mica_context_options){.capacity = 256, .sequences = 2}, &context));
    must(mica_sequence_create(context, &sequence));
    refused(mica_context_feed(context, &(mica_feed){sequence, tokens, 129, MICA_WANT_LAST}, 1),
            MICA_ERR_INVALID_ARGUMENT, "128");
    must(mica_context_feed(context, &(mica_feed){sequence, tokens, 128, MICA_WANT_LAST}, 1));
    refused(mica_context_feed(context, &(mica_feed){sequence, tokens, 1, MICA_WANT_LAST}, 1), MICA_ERR_FULL,
            "128");
    mica_context_release(context);
    mica_model_release(model);
}

static void positions_end(void **state)
{
    scene *gpt2 = scene_make(9), *llama = scene_make(0);
    (void)state;
    expect_longest(gpt2, "", "129");
    expect_longest(llama, "\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2.0}", "128");
    scene_free(gpt2);
    scene_free(llama);
}

/* The sentence names the family as the file does. */
static void unknown_families_are_named(void **state)
{
    scene *s = scene_make(0);
    (void)state;
    expect_refused(s, "\"architectures\":[\"OddForCausalLM\"],\"model_type\":\"odd\"", NULL,
                   "\"OddForCausalLM\"");
    expect_refused(s, "\"model_type\":\"odd\"", "architectures", "\"odd\"");
    expect_refused(s, "\"model_type\":\"qwen2\"", NULL, "model_type");
    scene_free(s);
}

int main(void)
{
    struct CMUnitTest tests[HOMES + 4];
    for (size_t i = 0; i < HOMES; i++)
        tests[i] = (struct CMUnitTest){homes[i].key_class, walk, NULL, NULL, (void *)(uintptr_t)i};
    tests[HOMES] = (struct CMUnitTest)cmocka_unit_test(rope_keys);
    tests[HOMES + 1] = (struct CMUnitTest)cmocka_unit_test(nested_keys);
    tests[HOMES + 2] = (struct CMUnitTest)cmocka_unit_test(positions_end);
    tests[HOMES + 3] = (struct CMUnitTest)cmocka_unit_test(unknown_families_are_named);
    return cmocka_run_group_tests_name("config keys", tests, NULL, NULL);
}
