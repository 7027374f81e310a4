/* test_convert.c - mica_convert: names, transforms and metadata of the families, there and back; folders; refusals. */
#define _DEFAULT_SOURCE
#include "convert_rig.h"

#define LONGEST 64

/* ---- Llama ---------------------------------------------------------------------------------------------- */

static const rewrite_tensor llama[] = {
    {"model.embed_tokens.weight", MICA_DTYPE_BF16, 2, {11, 16}},
    {"model.norm.weight", MICA_DTYPE_BF16, 1, {16}},
    {"lm_head.weight", MICA_DTYPE_BF16, 2, {11, 16}},
    {LAYER(0) "input_layernorm.weight", MICA_DTYPE_BF16, 1, {16}},
    {LAYER(0) "post_attention_layernorm.weight", MICA_DTYPE_BF16, 1, {16}},
    {LAYER(0) "self_attn.q_proj.weight", MICA_DTYPE_BF16, 2, {16, 16}},
    {LAYER(0) "self_attn.q_proj.bias", MICA_DTYPE_BF16, 1, {16}},
    {LAYER(0) "self_attn.k_proj.weight", MICA_DTYPE_F16, 2, {8, 16}},
    {LAYER(0) "self_attn.k_proj.bias", MICA_DTYPE_BF16, 1, {8}},
    {LAYER(0) "self_attn.v_proj.weight", MICA_DTYPE_F32, 2, {8, 16}},
    {LAYER(0) "self_attn.v_proj.bias", MICA_DTYPE_BF16, 1, {8}},
    {LAYER(0) "self_attn.o_proj.weight", MICA_DTYPE_BF16, 2, {16, 16}},
    {LAYER(0) "self_attn.o_proj.bias", MICA_DTYPE_BF16, 1, {16}},
    {LAYER(0) "mlp.gate_proj.weight", MICA_DTYPE_BF16, 2, {24, 16}},
    {LAYER(0) "mlp.up_proj.weight", MICA_DTYPE_BF16, 2, {24, 16}},
    {LAYER(0) "mlp.down_proj.weight", MICA_DTYPE_BF16, 2, {16, 24}},
    {LAYER(0) "self_attn.rotary_emb.inv_freq", MICA_DTYPE_F32, 1, {4}},
};

#define LLAMA_CONFIG                                                                                      \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_" \
    "layers\":1,"                                                                                         \
    "\"intermediate_size\":24,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"max_position_"        \
    "embeddings\":128,"                                                                                   \
    "\"rms_norm_eps\":1e-05,\"rope_theta\":500000.0,\"vocab_size\":11,\"tie_word_embeddings\":false,"     \
    "\"attention_bias\":true"

static void make_llama(const char *more)
{
    char config[1024];
    snprintf(config, sizeof config, LLAMA_CONFIG "%s}", more);
    make_checkpoint("hf", config, llama, sizeof llama / sizeof llama[0]);
}

/* Partners of a head of eight: rows 0 4 1 5 2 6 3 7 of the halves. */
static void check_pairs(const mica__archive *hf, const mica__archive *gguf, const char *from, const char *to,
                        uint64_t row)
{
    static const uint64_t order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    uint64_t count, again;
    double *was = rewrite_decode(hf, from, &count), *is = rewrite_decode(gguf, to, &again);
    assert_int_equal(count, again);
    for (uint64_t r = 0; r < count / row; r++)
        for (uint64_t i = 0; i < row; i++)
            assert_true(is[r * row + i] == was[(r / 8 * 8 + order[r % 8]) * row + i]);
    free(was);
    free(is);
}

static void test_llama(void **state)
{
    (void)state;
    make_llama("");
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *hf = rewrite_open(rewrite_path("hf")), *gguf = rewrite_open(rewrite_path("out.gguf"));
    assert_int_equal(gguf->visible_count, 16);
    check_pairs(hf, gguf, LAYER(0) "self_attn.q_proj.weight", "blk.0.attn_q.weight", 16);
    check_pairs(hf, gguf, LAYER(0) "self_attn.q_proj.bias", "blk.0.attn_q.bias", 1);
    check_pairs(hf, gguf, LAYER(0) "self_attn.k_proj.weight", "blk.0.attn_k.weight", 16);
    assert_int_equal(rig_tensor(gguf, "blk.0.attn_q.weight")->dtype, MICA_DTYPE_BF16);
    assert_int_equal(rig_tensor(gguf, "blk.0.attn_k.weight")->dtype, MICA_DTYPE_F16);
    assert_int_equal(rig_tensor(gguf, "blk.0.attn_norm.weight")->dtype, MICA_DTYPE_F32);
    assert_int_equal(rig_tensor(gguf, "output.weight")->shape[0], 11);
    check_text(gguf, "general.architecture", "llama");
    check_text(gguf, "general.name", "hf");
    check_u32(gguf, "llama.block_count", 1);
    check_u32(gguf, "llama.context_length", 128);
    check_u32(gguf, "llama.embedding_length", 16);
    check_u32(gguf, "llama.feed_forward_length", 24);
    check_u32(gguf, "llama.attention.head_count", 2);
    check_u32(gguf, "llama.attention.head_count_kv", 1);
    check_u32(gguf, "llama.rope.dimension_count", 8);
    check_u32(gguf, "general.file_type", 32);
    check_f32(gguf, "llama.attention.layer_norm_rms_epsilon", 1e-5);
    check_f32(gguf, "llama.rope.freq_base", 500000);
    mica__archive_close(hf);
    mica__archive_close(gguf);
    check_round_trip("hf");
}

/* Factors by the rule: waves shorter than context/high stay, longer than context/low are divided by the factor, between
 * them in part. Waves are 2 pi 500000^(i/4): 6.3, 167, 4443, 118145. In f32 they are right to some 1e-7. */
static void test_llama3_rope(void **state)
{
    static const double contexts[] = {64, 512, 8192, 65536};
    (void)state;
    for (size_t c = 0; c < 4; c++) {
        const double low = contexts[c] / 1, high = contexts[c] / 4;
        char more[256];
        uint64_t count;
        snprintf(more, sizeof more,
                 ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                 "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":%.0f}",
                 contexts[c]);
        make_llama(more);
        convert_ok("hf", "out.gguf", NULL);
        mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
        double *factors = rewrite_decode(gguf, "rope_freqs.weight", &count);
        assert_int_equal(count, 4);
        for (uint32_t i = 0; i < 4; i++) {
            const double wave = 2 * acos(-1) * pow(500000, i / 4.0), smooth = (contexts[c] / wave - 1) / 3;
            const double part = 1 / ((1 - smooth) / 8 + smooth), expected = wave < high  ? 1
                                                                            : wave > low ? 8
                                                                                         : part;
            if (fabs(factors[i] - expected) > 1e-6 * expected)
                fail_msg("factor %u of context %.0f is %g, expected %g", i, contexts[c], factors[i],
                         expected);
        }
        free(factors);
        mica__archive_close(gguf);
        check_round_trip("hf");
        mica__archive *back = rewrite_open(rewrite_path("back"));
        assert_non_null(strstr(back->config, "\"rope_type\":\"llama3\",\"factor\":8"));
        assert_int_equal(mica__archive_find(back, "rope_freqs.weight", 17), MICA__NO_TENSOR);
        mica__archive_close(back);
    }
}

static void test_tied_head_is_left_out(void **state)
{
    char config[1024];
    (void)state;
    snprintf(config, sizeof config, "%s}", LLAMA_CONFIG);
    memcpy(strstr(config, "\"tie_word_embeddings\":false"), "\"tie_word_embeddings\":true ", 27);
    make_checkpoint("hf", config, llama, sizeof llama / sizeof llama[0]);
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    assert_int_equal(mica__archive_find(gguf, "output.weight", 13), MICA__NO_TENSOR);
    mica__archive_close(gguf);
}

/* ---- the other families --------------------------------------------------------------------------------- */

static void test_qwen3_moe(void **state)
{
    rewrite_tensor list[16] = {
        {"model.embed_tokens.weight", MICA_DTYPE_F16, 2, {11, 16}},
        {"model.norm.weight", MICA_DTYPE_F16, 1, {16}},
        {LAYER(0) "mlp.gate.weight", MICA_DTYPE_F16, 2, {3, 16}},
        {LAYER(0) "self_attn.q_norm.weight", MICA_DTYPE_F16, 1, {8}},
        {LAYER(0) "self_attn.q_proj.weight", MICA_DTYPE_F16, 2, {16, 16}},
    };
    static const char *const words[] = {"gate_proj", "up_proj", "down_proj"};
    static char names[9][LONGEST];
    uint32_t count = 5;
    (void)state;
    for (uint32_t e = 0; e < 3; e++)
        for (uint32_t w = 0; w < 3; w++) {
            snprintf(names[e * 3 + w], LONGEST, LAYER(0) "mlp.experts.%u.%s.weight", e, words[w]);
            list[count++] =
                (rewrite_tensor){names[e * 3 + w], MICA_DTYPE_F16, 2, {w == 2 ? 16 : 8, w == 2 ? 8 : 16}};
        }
    make_checkpoint(
        "hf",
        "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"hidden_size\":16,\"num_hidden_layers\":1,"
        "\"intermediate_size\":24,\"moe_intermediate_size\":8,\"num_attention_heads\":2,"
        "\"num_key_value_heads\":1,\"head_dim\":8,\"max_position_embeddings\":128,\"num_experts\":3,"
        "\"num_experts_per_tok\":2,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000,\"vocab_size\":11,"
        "\"tie_word_embeddings\":true}",
        list, count);
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *hf = rewrite_open(rewrite_path("hf")), *gguf = rewrite_open(rewrite_path("out.gguf"));
    const mica__tensor *stack = rig_tensor(gguf, "blk.0.ffn_down_exps.weight");
    assert_true(stack->ndim == 3 && stack->shape[0] == 3 && stack->shape[1] == 16 && stack->shape[2] == 8);
    uint64_t all, one;
    double *is = rewrite_decode(gguf, "blk.0.ffn_down_exps.weight", &all);
    double *was = rewrite_decode(hf, LAYER(0) "mlp.experts.2.down_proj.weight", &one);
    assert_memory_equal(is + 2 * one, was, one * sizeof *was);
    free(is);
    free(was);
    check_u32(gguf, "qwen3moe.expert_count", 3);
    check_u32(gguf, "qwen3moe.expert_used_count", 2);
    check_u32(gguf, "qwen3moe.expert_feed_forward_length", 8);
    check_u32(gguf, "qwen3moe.attention.key_length", 8);
    assert_int_equal(rig_tensor(gguf, "blk.0.ffn_gate_inp.weight")->dtype, MICA_DTYPE_F32);
    mica__archive_close(hf);
    mica__archive_close(gguf);
    check_round_trip("hf");
}

static void test_gemma(void **state)
{
    static const rewrite_tensor list[] = {
        {"language_model.model.embed_tokens.weight", MICA_DTYPE_BF16, 2, {11, 16}},
        {"language_model.model.norm.weight", MICA_DTYPE_BF16, 1, {16}},
        {"language_model.model.layers.0.self_attn.q_norm.weight", MICA_DTYPE_BF16, 1, {8}},
        {"language_model.model.layers.0.pre_feedforward_layernorm.weight", MICA_DTYPE_BF16, 1, {16}},
        {"language_model.model.layers.0.mlp.up_proj.weight", MICA_DTYPE_BF16, 2, {24, 16}},
        {"vision_tower.vision_model.post_layernorm.weight", MICA_DTYPE_BF16, 1, {16}},
        {"multi_modal_projector.mm_soft_emb_norm.weight", MICA_DTYPE_BF16, 1, {16}},
    };
    uint64_t count, again;
    (void)state;
    make_checkpoint(
        "hf",
        "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"text_config\":{\"hidden_size\":16,"
        "\"num_hidden_layers\":1,\"intermediate_size\":24,\"sliding_window\":512,"
        "\"final_logit_softcapping\":null}}",
        list, sizeof list / sizeof list[0]);
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *hf = rewrite_open(rewrite_path("hf")), *gguf = rewrite_open(rewrite_path("out.gguf"));
    assert_int_equal(gguf->visible_count, 5);
    double *was = rewrite_decode(hf, "language_model.model.norm.weight", &count);
    double *is = rewrite_decode(gguf, "output_norm.weight", &again);
    for (uint64_t i = 0; i < count; i++)
        assert_true(is[i] == (double)(float)(was[i] + 1));
    free(was);
    free(is);
    check_u32(gguf, "gemma3.attention.sliding_window", 512);
    check_u32(gguf, "gemma3.attention.head_count", 8);
    check_u32(gguf, "gemma3.attention.key_length", 256);
    assert_null(mica__archive_meta(gguf, "gemma3.final_logit_softcapping"));
    mica__archive_close(hf);
    mica__archive_close(gguf);
    check_round_trip("hf");
}

static void test_gpt2(void **state)
{
    static const rewrite_tensor list[] = {
        {"wte.weight", MICA_DTYPE_F32, 2, {11, 16}},
        {"wpe.weight", MICA_DTYPE_F16, 2, {32, 16}},
        {"h.0.attn.c_attn.weight", MICA_DTYPE_F16, 2, {16, 48}},
        {"h.0.attn.c_attn.bias", MICA_DTYPE_F32, 1, {48}},
        {"h.0.mlp.c_fc.weight", MICA_DTYPE_F32, 2, {16, 64}},
        {"h.0.mlp.c_fc.bias", MICA_DTYPE_F32, 1, {64}},
        {"h.0.attn.bias", MICA_DTYPE_F32, 4, {1, 1, 32, 32}},
        {"ln_f.bias", MICA_DTYPE_F32, 1, {16}},
    };
    uint64_t count;
    (void)state;
    make_checkpoint(
        "hf",
        "{\"architectures\":[\"GPT2LMHeadModel\"],\"n_embd\":16,\"n_layer\":1,\"n_head\":2,\"n_ctx\":32,"
        "\"n_positions\":32,\"n_inner\":null,\"layer_norm_epsilon\":1e-05,\"vocab_size\":11}",
        list, sizeof list / sizeof list[0]);
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *hf = rewrite_open(rewrite_path("hf")), *gguf = rewrite_open(rewrite_path("out.gguf"));
    assert_int_equal(gguf->visible_count, 7);
    double *was = rewrite_decode(hf, "h.0.attn.c_attn.weight", &count);
    double *is = rewrite_decode(gguf, "blk.0.attn_qkv.weight", &count);
    for (uint64_t r = 0; r < 48; r++)
        for (uint64_t c = 0; c < 16; c++)
            assert_true(is[r * 16 + c] == was[c * 48 + r]);
    free(was);
    free(is);
    check_u32(gguf, "gpt2.feed_forward_length", 64);
    check_u32(gguf, "gpt2.context_length", 32);
    assert_int_equal(rig_tensor(gguf, "position_embd.weight")->dtype, MICA_DTYPE_F32);
    mica__archive_close(hf);
    mica__archive_close(gguf);
    check_round_trip("hf");
}

static void test_bert(void **state)
{
    static const rewrite_tensor list[] = {
        {"bert.embeddings.word_embeddings.weight", MICA_DTYPE_F32, 2, {6, 16}},
        {"bert.embeddings.LayerNorm.gamma", MICA_DTYPE_F32, 1, {16}},
        {"bert.encoder.layer.0.attention.self.query.weight", MICA_DTYPE_F32, 2, {16, 16}},
        {"bert.encoder.layer.0.attention.self.query.bias", MICA_DTYPE_F32, 1, {16}},
        {"bert.encoder.layer.0.output.LayerNorm.bias", MICA_DTYPE_F32, 1, {16}},
        {"bert.pooler.dense.weight", MICA_DTYPE_F32, 2, {16, 16}},
        {"cls.predictions.bias", MICA_DTYPE_F32, 1, {6}},
    };
    (void)state;
    make_checkpoint("hf",
                    "{\"architectures\":[\"BertForMaskedLM\"],\"hidden_size\":16,\"num_hidden_layers\":1,"
                    "\"intermediate_size\":32,\"num_attention_heads\":2,\"max_position_embeddings\":64,"
                    "\"layer_norm_eps\":1e-12,\"type_vocab_size\":2,\"vocab_size\":6}",
                    list, sizeof list / sizeof list[0]);
    test_text_write(
        rewrite_path("hf/tokenizer.json"),
        "{\"added_tokens\":[{\"id\":0,\"content\":\"[PAD]\",\"special\":true}],\"model\":{\"type\":"
        "\"WordPiece\",\"vocab\":{\"[PAD]\":0,\"play\":1,\"##ing\":2,\"a\":3}}}");
    test_text_write(rewrite_path("hf/tokenizer_config.json"), "{\"pad_token\":\"[PAD]\"}");
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    static const char *const tokens[] = {"[PAD]", "\xe2\x96\x81play", "ing", "\xe2\x96\x81\x61", "[PAD4]",
                                         "[PAD5]"};
    static const int32_t types[] = {3, 1, 1, 1, 5, 5};
    const mica_value *value = mica__archive_meta(gguf, "tokenizer.ggml.tokens");
    assert_int_equal(value->count, 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(((const mica_string *)value->as.items)[i].data, tokens[i]);
    assert_memory_equal(mica__archive_meta(gguf, "tokenizer.ggml.token_type")->as.items, types, sizeof types);
    check_u32(gguf, "tokenizer.ggml.token_type_count", 2);
    check_u32(gguf, "tokenizer.ggml.padding_token_id", 0);
    check_text(gguf, "tokenizer.ggml.model", "bert");
    assert_int_equal(mica__archive_meta(gguf, "bert.attention.causal")->as.u, 0);
    assert_int_equal(gguf->visible_count, 5);
    rig_tensor(gguf, "token_embd_norm.weight");
    rig_tensor(gguf, "blk.0.layer_output_norm.bias");
    mica__archive_close(gguf);
    check_round_trip("hf");
}

static void test_phi3(void **state)
{
    static const rewrite_tensor list[] = {
        {"model.embed_tokens.weight", MICA_DTYPE_BF16, 2, {11, 16}},
        {"lm_head.weight", MICA_DTYPE_BF16, 2, {11, 16}},
        {LAYER(0) "self_attn.qkv_proj.weight", MICA_DTYPE_BF16, 2, {48, 16}},
        {LAYER(0) "mlp.gate_up_proj.weight", MICA_DTYPE_BF16, 2, {64, 16}},
    };
    uint64_t count;
    (void)state;
    make_checkpoint(
        "hf",
        "{\"architectures\":[\"Phi3ForCausalLM\"],\"hidden_size\":16,\"num_hidden_layers\":1,"
        "\"intermediate_size\":32,\"num_attention_heads\":4,\"num_key_value_heads\":4,"
        "\"max_position_embeddings\":256,\"original_max_position_embeddings\":64,\"rms_norm_eps\":1e-05,"
        "\"rope_theta\":10000.0,\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1.5,2.5],"
        "\"short_factor\":[1.0,1.25]},\"sliding_window\":32,\"vocab_size\":11}",
        list, sizeof list / sizeof list[0]);
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    double *factors = rewrite_decode(gguf, "rope_factors_long.weight", &count);
    assert_true(count == 2 && factors[0] == 1.5 && factors[1] == 2.5);
    free(factors);
    check_f32(gguf, "phi3.rope.scaling.attn_factor", sqrt(1 + log(4) / log(64)));
    check_u32(gguf, "phi3.rope.scaling.original_context_length", 64);
    check_u32(gguf, "phi3.rope.dimension_count", 4);
    check_u32(gguf, "phi3.attention.sliding_window", 32);
    rig_tensor(gguf, "blk.0.attn_qkv.weight");
    rig_tensor(gguf, "blk.0.ffn_up.weight");
    mica__archive_close(gguf);
}

/* ---- tokenizers ----------------------------------------------------------------------------------------- */

static void test_byte_pairs(void **state)
{
    (void)state;
    make_llama(",\"eos_token_id\":4");
    test_text_write(
        rewrite_path("hf/tokenizer.json"),
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<|begin|>\",\"special\":true},{\"id\":5,\"content\":"
        "\"tool\",\"special\":false}],\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
        "\"Split\",\"pattern\":{\"Regex\":\"x|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|y\"}}]},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[[\"a\",\"b\"],\"b "
        "a\"]}}");
    test_text_write(
        rewrite_path("hf/tokenizer_config.json"),
        "{\"bos_token\":{\"content\":\"<|begin|>\"},\"add_bos_token\":true,\"chat_template\":\"{{ x }}\"}");
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    const mica_value *merges = mica__archive_meta(gguf, "tokenizer.ggml.merges");
    static const int32_t types[] = {1, 1, 1, 3, 5, 4, 5, 5, 5, 5, 5};
    assert_int_equal(merges->count, 2);
    assert_string_equal(((const mica_string *)merges->as.items)[0].data, "a b");
    assert_string_equal(((const mica_string *)merges->as.items)[1].data, "b a");
    check_text(gguf, "tokenizer.ggml.model", "gpt2");
    check_text(gguf, "tokenizer.ggml.pre", "llama-bpe");
    check_text(gguf, "tokenizer.chat_template", "{{ x }}");
    check_u32(gguf, "tokenizer.ggml.bos_token_id", 3);
    check_u32(gguf, "tokenizer.ggml.eos_token_id", 4);
    assert_int_equal(mica__archive_meta(gguf, "tokenizer.ggml.add_bos_token")->as.u, 1);
    assert_memory_equal(mica__archive_meta(gguf, "tokenizer.ggml.token_type")->as.items, types, sizeof types);
    mica__archive_close(gguf);
}

static void test_sentence_pieces(void **state)
{
    static const float scores[] = {0, 0, 0, 0, -1, -2, -10000, -10000, -10000, -10000, -10000};
    static const int32_t types[] = {2, 3, 6, 1, 1, 1, 5, 5, 5, 5, 5};
    (void)state;
    make_llama("");
    test_text_write(
        rewrite_path("hf/tokenizer.json"),
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},{\"id\":1,\"content\":\"<s>\","
        "\"special\":true}],\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"<unk>\","
        "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"<0x0A>\":2,\"ab\":3,\"a\":4,\"b\":5},\"merges\":[\"a b\"]}}");
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    check_text(gguf, "tokenizer.ggml.model", "llama");
    assert_memory_equal(mica__archive_meta(gguf, "tokenizer.ggml.token_type")->as.items, types, sizeof types);
    assert_memory_equal(mica__archive_meta(gguf, "tokenizer.ggml.scores")->as.items, scores, sizeof scores);
    assert_null(mica__archive_meta(gguf, "tokenizer.ggml.merges"));
    mica__archive_close(gguf);
}

/* ---- folders, types, MLX -------------------------------------------------------------------------------- */

static void test_types(void **state)
{
    const mica_convert_options options = {.type = MICA_DTYPE_F16, .overwrite = 1};
    (void)state;
    make_llama("");
    convert_ok("hf", "out.gguf", &options);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    assert_int_equal(rig_tensor(gguf, "blk.0.attn_q.weight")->dtype, MICA_DTYPE_F16);
    assert_int_equal(rig_tensor(gguf, "output_norm.weight")->dtype, MICA_DTYPE_F32);
    check_u32(gguf, "general.file_type", 1);
    mica__archive_close(gguf);
    make_folder("to");
    test_text_write(rewrite_path("hf/merges.txt"), "a b\n");
    convert_ok("hf", "to", &options);
    mica__archive *hf = rewrite_open(rewrite_path("to"));
    assert_int_equal(rig_tensor(hf, "lm_head.weight")->dtype, MICA_DTYPE_F16);
    assert_int_equal(rig_tensor(hf, "model.norm.weight")->dtype, MICA_DTYPE_BF16);
    assert_true(rewrite_same_bytes(rewrite_path("hf/merges.txt"), rewrite_path("to/merges.txt")));
    assert_true(rewrite_same_bytes(rewrite_path("hf/config.json"), rewrite_path("to/config.json")));
    mica__archive_close(hf);
}

static void make_wide(void)
{
    static const rewrite_tensor list[] = {
        {"model.embed_tokens.weight", MICA_DTYPE_BF16, 2, {13, 128}},
        {"model.norm.weight", MICA_DTYPE_BF16, 1, {128}},
        {LAYER(0) "self_attn.q_proj.weight", MICA_DTYPE_BF16, 2, {128, 128}},
        {LAYER(0) "mlp.up_proj.weight", MICA_DTYPE_BF16, 2, {192, 128}},
        {LAYER(0) "mlp.down_proj.weight", MICA_DTYPE_BF16, 2, {128, 192}},
    };
    make_checkpoint(
        "hf",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":128,"
        "\"num_hidden_layers\":1,\"intermediate_size\":192,\"num_attention_heads\":4,"
        "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,\"vocab_size\":13,"
        "\"tie_word_embeddings\":true,\"unsloth_nest\":{\"list\":[1,[],{},[2,{\"a\":null}]],\"real\":1.5}}",
        list, sizeof list / sizeof list[0]);
}

/* Words of eight bits miss a value by at most half a step of its group, and what bf16 scales miss. */
static void test_mlx(void **state)
{
    const mica_convert_options options = {
        .type = MICA_DTYPE_AFFINE8, .format = MICA_FORMAT_MLX, .overwrite = 1, .threads = 3};
    const mica_convert_options plain = {.format = MICA_FORMAT_MLX, .overwrite = 1};
    (void)state;
    make_wide();
    make_folder("mlx");
    make_folder("again");
    convert_ok("hf", "mlx", &options);
    mica__archive *hf = rewrite_open(rewrite_path("hf")), *mlx = rewrite_open(rewrite_path("mlx"));
    assert_int_equal(mlx->format, MICA_FORMAT_MLX);
    const mica__tensor *tensor = rig_tensor(mlx, LAYER(0) "mlp.down_proj.weight");
    assert_int_equal(tensor->dtype, MICA_DTYPE_AFFINE8);
    uint64_t count;
    double *was = rewrite_decode(hf, LAYER(0) "mlp.down_proj.weight", &count);
    float *is = malloc(count * sizeof *is);
    assert_int_equal(mica__archive_decode_rows(mlx, tensor, 0, 128, is), MICA_OK);
    for (uint64_t i = 0; i < count; i++)
        assert_true(fabs(was[i] - (double)is[i]) < 8.0 / 255 + 0.06);
    free(was);
    free(is);
    mica__archive_close(hf);
    mica__archive_close(mlx);
    convert_ok("mlx", "again", &plain);
    check_same_tensors("mlx", "again");
    convert_ok("mlx", "out.gguf", NULL);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    assert_int_equal(rig_tensor(gguf, "blk.0.attn_q.weight")->dtype, MICA_DTYPE_BF16);
    mica__archive_close(gguf);
    make_folder("plain");
    convert_ok("mlx", "plain", &(mica_convert_options){.type = MICA_DTYPE_F32, .overwrite = 1});
    hf = rewrite_open(rewrite_path("plain"));
    assert_int_equal(hf->format, MICA_FORMAT_SAFETENSORS);
    assert_null(strstr(hf->config, "quantization"));
    assert_non_null(
        strstr(hf->config, "\"unsloth_nest\":{\"list\":[1,[],{},[2,{\"a\":null}]],\"real\":1.5}"));
    mica__archive_close(hf);
}

/* Bits and group sizes that MLX has. A value misses by at most half a step of its group, and what bf16 scales and biases
 * miss: 2^-9 of the largest value each, values being below 4. Rows that a group does not divide stay as they are. */
static void test_mlx_groups(void **state)
{
    static const struct {
        mica_dtype type;
        uint32_t bits;
    } types[] = {{MICA_DTYPE_AFFINE2, 2}, {MICA_DTYPE_AFFINE3, 3}, {MICA_DTYPE_AFFINE4, 4},
                 {MICA_DTYPE_AFFINE5, 5}, {MICA_DTYPE_AFFINE6, 6}, {MICA_DTYPE_AFFINE8, 8}};
    static const uint32_t groups[] = {32, 64, 128};
    static const char up[] = LAYER(0) "mlp.up_proj.weight", down[] = LAYER(0) "mlp.down_proj.weight";
    (void)state;
    make_wide();
    for (size_t i = 0; i < 18; i++) {
        const uint32_t group = groups[i % 3], bits = types[i / 3].bits;
        const mica_convert_options options = {
            .type = types[i / 3].type, .group_size = group, .overwrite = 1, .threads = 2};
        char word[64];
        make_folder("mlx");
        convert_ok("hf", "mlx", &options); /* an affine type is MLX's */
        mica__archive *hf = rewrite_open(rewrite_path("hf")), *mlx = rewrite_open(rewrite_path("mlx"));
        const mica__tensor *tensor = rig_tensor(mlx, up);
        snprintf(word, sizeof word, "\"group_size\":%u,\"bits\":%u", group, bits);
        assert_non_null(strstr(mlx->config, word));
        assert_int_equal(tensor->dtype, types[i / 3].type);
        assert_int_equal(tensor->group_size, group);
        assert_int_equal(rig_tensor(mlx, down)->dtype, group == 128 ? MICA_DTYPE_BF16 : types[i / 3].type);
        uint64_t count;
        double *was = rewrite_decode(hf, up, &count);
        float *is = malloc(count * sizeof *is);
        assert_int_equal(mica__archive_decode_rows(mlx, tensor, 0, 192, is), MICA_OK);
        const double steps = (1 << bits) - 1;
        for (uint64_t k = 0; k < count; k++)
            assert_true(fabs(was[k] - (double)is[k]) <= 8.0 / steps / 2 * 1.5 + 16.0 / 512);
        free(was);
        free(is);
        mica__archive_close(hf);
        mica__archive_close(mlx);
    }
    rewrite_refused(mica_convert(rewrite_path("hf"), rewrite_path("none"),
                                 &(mica_convert_options){.type = MICA_DTYPE_AFFINE4, .group_size = 48}),
                    MICA_ERR_INVALID_ARGUMENT, "48");
    rewrite_refused(mica_convert(rewrite_path("hf"), rewrite_path("none.gguf"),
                                 &(mica_convert_options){.type = MICA_DTYPE_F16, .group_size = 32}),
                    MICA_ERR_INVALID_ARGUMENT, "group_size");
}

static void test_quantize_checkpoint(void **state)
{
    const mica_quantize_options options = {.type = "q8_0", .overwrite = 1};
    (void)state;
    make_wide();
    assert_int_equal(mica_quantize(rewrite_path("hf"), rewrite_path("q.gguf"), &options, NULL), MICA_OK);
    mica__archive *gguf = rewrite_open(rewrite_path("q.gguf"));
    assert_int_equal(rig_tensor(gguf, "blk.0.attn_q.weight")->dtype, MICA_DTYPE_Q8_0);
    check_u32(gguf, "general.file_type", 7);
    mica__archive_close(gguf);
    make_folder("back");
    convert_ok("q.gguf", "back", NULL);
    mica__archive *back = rewrite_open(rewrite_path("back"));
    assert_int_equal(rig_tensor(back, LAYER(0) "self_attn.q_proj.weight")->dtype, MICA_DTYPE_F16);
    mica__archive_close(back);
}

static void test_unknown_family(void **state)
{
    static const rewrite_tensor list[] = {{"odd.name", MICA_DTYPE_BF16, 2, {3, 5}},
                                          {"v", MICA_DTYPE_F16, 1, {7}}};
    (void)state;
    make_checkpoint("hf", "{\"architectures\":[\"OddModel\"]}", list, 2);
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    check_text(gguf, "general.architecture", "unknown");
    assert_int_equal(rig_tensor(gguf, "v")->dtype, MICA_DTYPE_F16);
    mica__archive_close(gguf);
    convert_ok("out.gguf", "out.safetensors", NULL);
    convert_ok("out.safetensors", "b.gguf", NULL);
    check_same_tensors("out.gguf", "b.gguf");
}

/* ---- refusals ------------------------------------------------------------------------------------------- */

static void refused(const char *from, const char *to, const mica_convert_options *options, mica_status code,
                    const char *part)
{
    rewrite_refused(mica_convert(rewrite_path(from), rewrite_path(to), options), code, part);
}

static void test_refusals(void **state)
{
    static const rewrite_tensor odd[] = {{"model.layers.0.odd.weight", MICA_DTYPE_F16, 2, {2, 4}},
                                         {"lm_head.weight", MICA_DTYPE_F16, 2, {2, 4}}};
    (void)state;
    test_folder_empty(rewrite_folder);
    make_llama("");
    refused("hf", "hf", NULL, MICA_ERR_INVALID_ARGUMENT, "input itself");
    refused("hf", "x.gguf", &(mica_convert_options){.type = MICA_DTYPE_IQ1_S}, MICA_ERR_INVALID_ARGUMENT,
            "iq1_s");
    refused("hf", "x", &(mica_convert_options){.type = MICA_DTYPE_Q4_0}, MICA_ERR_INVALID_ARGUMENT, "q4_0");
    refused("hf", "x", &(mica_convert_options){.format = MICA_FORMAT_NPZ}, MICA_ERR_INVALID_ARGUMENT, "npz");
    refused("hf", "none/x.gguf", NULL, MICA_ERR_IO, "none/x.gguf");
    refused("hf", "none/x", NULL, MICA_ERR_IO, "none/x");
    refused("none", "x.gguf", NULL, MICA_ERR_IO, "none");
    convert_ok("hf", "x.gguf", NULL);
    refused("hf", "x.gguf", NULL, MICA_ERR_IO, "exists");
    refused("x.gguf", "hf", NULL, MICA_ERR_IO, "exists");
    rewrite_refused(mica_convert(NULL, "x", NULL), MICA_ERR_INVALID_ARGUMENT, "input");
    make_checkpoint("hf", LLAMA_CONFIG "}", odd, 2);
    refused("hf", "y.gguf", NULL, MICA_ERR_UNSUPPORTED, "model.layers.0.odd.weight");
    make_checkpoint("hf", "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":16}", llama, 3);
    refused("hf", "y.gguf", NULL, MICA_ERR_MALFORMED_FILE, "num_hidden_layers");
    make_checkpoint("hf", LLAMA_CONFIG ",\"head_dim\":\"eight\"}", llama, 3);
    refused("hf", "y.gguf", NULL, MICA_ERR_MALFORMED_FILE, "head_dim");
    assert_int_equal(test_folder_count(rewrite_folder), 2);
}

static int stop_at_once(void *context, const char *what, uint64_t done, uint64_t total)
{
    (void)context, (void)what, (void)done, (void)total;
    return 1;
}

static void test_cancel(void **state)
{
    const mica_convert_options options = {.progress = stop_at_once};
    (void)state;
    test_folder_empty(rewrite_folder);
    make_llama("");
    refused("hf", "x.gguf", &options, MICA_ERR_CANCELLED, "stopped");
    refused("hf", "x", &options, MICA_ERR_CANCELLED, "stopped");
    assert_int_equal(test_folder_count(rewrite_folder), 1);
}

static mica_status play(void *context)
{
    const mica_convert_options options = {.overwrite = 1, .threads = 2};
    return mica_convert(rewrite_path("hf"), rewrite_path(context), &options);
}

static mica_status play_back(void *context)
{
    const mica_convert_options options = {
        .overwrite = 1, .type = MICA_DTYPE_AFFINE4, .format = MICA_FORMAT_MLX};
    return mica_convert(rewrite_path("out.gguf"), rewrite_path(context), &options);
}

static void test_allocation_failures(void **state)
{
    char gguf[] = "out.gguf", folder[] = "to";
    (void)state;
    test_folder_empty(rewrite_folder);
    make_wide();
    test_text_write(rewrite_path("hf/tokenizer.json"),
                    "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0,\"##b\":1}}}");
    rig_fail_allocations(play, gguf);
    rig_fail_allocations(play_back, folder);
    rig_fail_allocations(play, folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_llama3_rope),
        cmocka_unit_test(test_tied_head_is_left_out),
        cmocka_unit_test(test_qwen3_moe),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_bert),
        cmocka_unit_test(test_phi3),
        cmocka_unit_test(test_byte_pairs),
        cmocka_unit_test(test_sentence_pieces),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_mlx),
        cmocka_unit_test(test_mlx_groups),
        cmocka_unit_test(test_quantize_checkpoint),
        cmocka_unit_test(test_unknown_family),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, rewrite_setup, rewrite_teardown);
}
