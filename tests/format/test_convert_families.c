/* test_convert_families.c - the families that test_convert.c has not: Qwen 2 and 3, Mistral and Mixtral, Gemma 2, Phi-3. */
#define _DEFAULT_SOURCE
#include "convert_rig.h"

#define COUNT(list) (uint32_t)(sizeof list / sizeof list[0])
#define SIZES                                                                                        \
    "\"hidden_size\":16,\"num_hidden_layers\":1,\"intermediate_size\":24,\"num_attention_heads\":2," \
    "\"num_key_value_heads\":1,\"max_position_embeddings\":128,\"rms_norm_eps\":1e-06,\"vocab_size\":11,"

/* The tensor `to` of the GGUF has the values of `from`, plus `more`, in f32 where they are a vector. */
static void check_values(const char *from, const char *to, double more)
{
    mica__archive *hf = rewrite_open(rewrite_path("hf")), *gguf = rewrite_open(rewrite_path("out.gguf"));
    uint64_t count, again;
    double *was = rewrite_decode(hf, from, &count), *is = rewrite_decode(gguf, to, &again);
    assert_int_equal(count, again);
    for (uint64_t i = 0; i < count; i++)
        if (is[i] != (more != 0 ? (double)(float)(was[i] + more) : was[i]))
            fail_msg("%s: value %llu is %g, expected %g", to, (unsigned long long)i, is[i], was[i] + more);
    free(was);
    free(is);
    mica__archive_close(hf);
    mica__archive_close(gguf);
}

/* Biases of q, k and v; rows stay in their order. */
static void qwen2(void **state)
{
    static const rewrite_tensor list[] = {
        {"model.embed_tokens.weight", MICA_DTYPE_BF16, 2, {11, 16}},
        {"model.norm.weight", MICA_DTYPE_BF16, 1, {16}},
        {"lm_head.weight", MICA_DTYPE_BF16, 2, {11, 16}},
        {LAYER(0) "input_layernorm.weight", MICA_DTYPE_BF16, 1, {16}},
        {LAYER(0) "self_attn.q_proj.weight", MICA_DTYPE_BF16, 2, {16, 16}},
        {LAYER(0) "self_attn.q_proj.bias", MICA_DTYPE_BF16, 1, {16}},
        {LAYER(0) "self_attn.k_proj.weight", MICA_DTYPE_BF16, 2, {8, 16}},
        {LAYER(0) "self_attn.k_proj.bias", MICA_DTYPE_BF16, 1, {8}},
        {LAYER(0) "self_attn.v_proj.weight", MICA_DTYPE_BF16, 2, {8, 16}},
        {LAYER(0) "self_attn.v_proj.bias", MICA_DTYPE_BF16, 1, {8}},
        {LAYER(0) "mlp.gate_proj.weight", MICA_DTYPE_BF16, 2, {24, 16}},
        {LAYER(0) "mlp.down_proj.weight", MICA_DTYPE_BF16, 2, {16, 24}},
    };
    (void)state;
    make_checkpoint("hf",
                    "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\"," SIZES
                    "\"rope_theta\":1000000.0,\"tie_word_embeddings\":false}",
                    list, COUNT(list));
    convert_ok("hf", "out.gguf", NULL);
    check_values(LAYER(0) "self_attn.q_proj.weight", "blk.0.attn_q.weight", 0);
    check_values(LAYER(0) "self_attn.k_proj.bias", "blk.0.attn_k.bias", 0);
    check_values(LAYER(0) "self_attn.v_proj.bias", "blk.0.attn_v.bias", 0);
    check_values("lm_head.weight", "output.weight", 0);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    assert_int_equal(gguf->visible_count, 12);
    assert_int_equal(rig_tensor(gguf, "blk.0.attn_q.bias")->dtype, MICA_DTYPE_F32);
    check_text(gguf, "general.architecture", "qwen2");
    check_text(gguf, "general.type", "model");
    check_f32(gguf, "qwen2.rope.freq_base", 1e6);
    check_f32(gguf, "qwen2.attention.layer_norm_rms_epsilon", 1e-6);
    check_u32(gguf, "qwen2.attention.head_count_kv", 1);
    mica__archive_close(gguf);
    check_round_trip("hf");
}

/* Norms of heads; a head size that is not width / heads. */
static void qwen3(void **state)
{
    static const rewrite_tensor list[] = {
        {"model.embed_tokens.weight", MICA_DTYPE_F16, 2, {11, 16}},
        {"model.norm.weight", MICA_DTYPE_F16, 1, {16}},
        {"lm_head.weight", MICA_DTYPE_F16, 2, {11, 16}},
        {LAYER(0) "self_attn.q_proj.weight", MICA_DTYPE_F16, 2, {24, 16}},
        {LAYER(0) "self_attn.k_proj.weight", MICA_DTYPE_F16, 2, {12, 16}},
        {LAYER(0) "self_attn.q_norm.weight", MICA_DTYPE_F16, 1, {12}},
        {LAYER(0) "self_attn.k_norm.weight", MICA_DTYPE_F16, 1, {12}},
        {LAYER(0) "self_attn.o_proj.weight", MICA_DTYPE_F16, 2, {16, 24}},
        {LAYER(0) "post_attention_layernorm.weight", MICA_DTYPE_F16, 1, {16}},
    };
    (void)state;
    make_checkpoint("hf",
                    "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\"," SIZES
                    "\"head_dim\":12,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1000000},"
                    "\"tie_word_embeddings\":true}",
                    list, COUNT(list));
    convert_ok("hf", "out.gguf", NULL);
    check_values(LAYER(0) "self_attn.k_norm.weight", "blk.0.attn_k_norm.weight", 0);
    check_values(LAYER(0) "self_attn.q_proj.weight", "blk.0.attn_q.weight", 0);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    assert_int_equal(gguf->visible_count, 8); /* the tied head is left out */
    check_text(gguf, "general.architecture", "qwen3");
    check_u32(gguf, "qwen3.attention.key_length", 12);
    check_u32(gguf, "qwen3.attention.value_length", 12);
    check_f32(gguf, "qwen3.rope.freq_base", 1e6);
    mica__archive_close(gguf);
    check_round_trip("hf");
}

/* Three experts become one tensor, in their order; w1, w3 and w2 are gate, up and down; the rows of q are paired. */
static void mixtral(void **state)
{
    rewrite_tensor list[16] = {
        {"model.embed_tokens.weight", MICA_DTYPE_BF16, 2, {11, 16}},
        {"lm_head.weight", MICA_DTYPE_BF16, 2, {11, 16}},
        {LAYER(0) "block_sparse_moe.gate.weight", MICA_DTYPE_BF16, 2, {3, 16}},
        {LAYER(0) "self_attn.q_proj.weight", MICA_DTYPE_BF16, 2, {16, 16}},
    };
    static const struct {
        const char *hf, *gguf;
    } words[] = {{"w1", "blk.0.ffn_gate_exps.weight"},
                 {"w3", "blk.0.ffn_up_exps.weight"},
                 {"w2", "blk.0.ffn_down_exps.weight"}};
    static char names[9][80];
    uint32_t count = 4;
    (void)state;
    for (uint32_t e = 0; e < 3; e++)
        for (uint32_t w = 0; w < 3; w++) {
            snprintf(names[e * 3 + w], sizeof names[0], LAYER(0) "block_sparse_moe.experts.%u.%s.weight", e,
                     words[w].hf);
            list[count++] =
                (rewrite_tensor){names[e * 3 + w], MICA_DTYPE_BF16, 2, {w == 2 ? 16 : 24, w == 2 ? 24 : 16}};
        }
    make_checkpoint("hf",
                    "{\"architectures\":[\"MixtralForCausalLM\"],\"model_type\":\"mixtral\"," SIZES
                    "\"num_local_experts\":3,\"num_experts_per_tok\":2,\"rope_theta\":1000000.0,"
                    "\"sliding_window\":null,\"tie_word_embeddings\":false}",
                    list, count);
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *hf = rewrite_open(rewrite_path("hf")), *gguf = rewrite_open(rewrite_path("out.gguf"));
    for (uint32_t w = 0; w < 3; w++) {
        uint64_t all, one;
        double *is = rewrite_decode(gguf, words[w].gguf, &all);
        assert_int_equal(rig_tensor(gguf, words[w].gguf)->ndim, 3);
        assert_int_equal(rig_tensor(gguf, words[w].gguf)->shape[0], 3);
        for (uint32_t e = 0; e < 3; e++) {
            double *was = rewrite_decode(hf, names[e * 3 + w], &one);
            assert_int_equal(all, 3 * one);
            assert_memory_equal(is + e * one, was, one * sizeof *was);
            free(was);
        }
        free(is);
    }
    check_text(gguf, "general.architecture", "llama");
    check_u32(gguf, "llama.expert_count", 3);
    check_u32(gguf, "llama.expert_used_count", 2);
    assert_int_equal(rig_tensor(gguf, "blk.0.ffn_gate_inp.weight")->dtype, MICA_DTYPE_F32);
    mica__archive_close(hf);
    mica__archive_close(gguf);
    check_round_trip("hf");
    /* an expert that is missing is no smaller stack */
    make_checkpoint("hf",
                    "{\"architectures\":[\"MixtralForCausalLM\"]," SIZES
                    "\"num_local_experts\":4,\"num_experts_per_tok\":2}",
                    list, count);
    rewrite_refused(mica_convert(rewrite_path("hf"), rewrite_path("none.gguf"), NULL),
                    MICA_ERR_MALFORMED_FILE, "3 experts");
}

/* Norms grow by one, the softcaps are kept, the head is the embedding. */
static void gemma2(void **state)
{
    static const rewrite_tensor list[] = {
        {"model.embed_tokens.weight", MICA_DTYPE_F32, 2, {11, 16}},
        {"model.norm.weight", MICA_DTYPE_F32, 1, {16}},
        {LAYER(0) "input_layernorm.weight", MICA_DTYPE_F32, 1, {16}},
        {LAYER(0) "post_attention_layernorm.weight", MICA_DTYPE_F32, 1, {16}},
        {LAYER(0) "pre_feedforward_layernorm.weight", MICA_DTYPE_F32, 1, {16}},
        {LAYER(0) "post_feedforward_layernorm.weight", MICA_DTYPE_F32, 1, {16}},
        {LAYER(0) "self_attn.q_proj.weight", MICA_DTYPE_F32, 2, {16, 16}},
    };
    (void)state;
    make_checkpoint("hf",
                    "{\"architectures\":[\"Gemma2ForCausalLM\"],\"model_type\":\"gemma2\"," SIZES
                    "\"head_dim\":8,\"sliding_window\":64,\"attn_logit_softcapping\":50.0,"
                    "\"query_pre_attn_scalar\":20,\"final_logit_softcapping\":30.0}",
                    list, COUNT(list));
    convert_ok("hf", "out.gguf", NULL);
    check_values("model.norm.weight", "output_norm.weight", 1);
    check_values(LAYER(0) "input_layernorm.weight", "blk.0.attn_norm.weight", 1);
    check_values(LAYER(0) "post_attention_layernorm.weight", "blk.0.post_attention_norm.weight", 1);
    check_values(LAYER(0) "pre_feedforward_layernorm.weight", "blk.0.ffn_norm.weight", 1);
    check_values(LAYER(0) "post_feedforward_layernorm.weight", "blk.0.post_ffw_norm.weight", 1);
    check_values(LAYER(0) "self_attn.q_proj.weight", "blk.0.attn_q.weight", 0);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    check_f32(gguf, "gemma2.attn_logit_softcapping", 50);
    check_f32(gguf, "gemma2.final_logit_softcapping", 30);
    check_u32(gguf, "gemma2.attention.sliding_window", 64);
    check_u32(gguf, "gemma2.attention.key_length", 8);
    check_f32(gguf, "gemma2.attention.scale", 1 / sqrtf(20));
    mica__archive_close(gguf);
    convert_ok("out.gguf", "back", &(mica_convert_options){.overwrite = 1});
    mica__archive *back = rewrite_open(rewrite_path("back"));
    assert_non_null(strstr(back->config, "\"attn_logit_softcapping\":50"));
    assert_non_null(strstr(back->config, "\"final_logit_softcapping\":30"));
    assert_non_null(strstr(back->config, "\"query_pre_attn_scalar\":20,"));
    assert_non_null(strstr(back->config, "Gemma2ForCausalLM"));
    rig_tensor(back, LAYER(0) "pre_feedforward_layernorm.weight");
    mica__archive_close(back);
}

/* Joined q, k and v stay joined; the factors of both lengths come back into config.json. */
static void phi3(void **state)
{
    static const rewrite_tensor list[] = {
        {"model.embed_tokens.weight", MICA_DTYPE_BF16, 2, {11, 16}},
        {"model.norm.weight", MICA_DTYPE_BF16, 1, {16}},
        {"lm_head.weight", MICA_DTYPE_BF16, 2, {11, 16}},
        {LAYER(0) "self_attn.qkv_proj.weight", MICA_DTYPE_BF16, 2, {32, 16}},
        {LAYER(0) "self_attn.o_proj.weight", MICA_DTYPE_BF16, 2, {16, 16}},
        {LAYER(0) "mlp.gate_up_proj.weight", MICA_DTYPE_BF16, 2, {48, 16}},
        {LAYER(0) "mlp.down_proj.weight", MICA_DTYPE_BF16, 2, {16, 24}},
        {LAYER(0) "input_layernorm.weight", MICA_DTYPE_BF16, 1, {16}},
    };
    (void)state;
    for (int longrope = 0; longrope < 2; longrope++) {
        make_checkpoint("hf",
                        longrope
                            ? "{\"architectures\":[\"Phi3ForCausalLM\"],\"model_type\":\"phi3\"," SIZES
                              "\"original_max_position_embeddings\":64,\"rope_theta\":10000.0,"
                              "\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1.5,2.5,3.1,4.7],"
                              "\"short_factor\":[1.0,1.25,1.3,1.1]},\"sliding_window\":32,"
                              "\"tie_word_embeddings\":false}"
                            : "{\"architectures\":[\"Phi3ForCausalLM\"],\"model_type\":\"phi3\"," SIZES
                              "\"rope_theta\":10000.0,\"rope_scaling\":null,\"tie_word_embeddings\":false}",
                        list, COUNT(list));
        convert_ok("hf", "out.gguf", NULL);
        check_values(LAYER(0) "self_attn.qkv_proj.weight", "blk.0.attn_qkv.weight", 0);
        check_values(LAYER(0) "mlp.gate_up_proj.weight", "blk.0.ffn_up.weight", 0);
        mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
        assert_int_equal(gguf->visible_count, COUNT(list) + 2 * (uint32_t)longrope);
        check_u32(gguf, "phi3.rope.dimension_count", 8);
        check_u32(gguf, "phi3.attention.sliding_window", longrope ? 32 : 0);
        mica__archive_close(gguf);
        check_round_trip("hf");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen2),  cmocka_unit_test(qwen3), cmocka_unit_test(mixtral),
        cmocka_unit_test(gemma2), cmocka_unit_test(phi3),
    };
    return cmocka_run_group_tests(tests, rewrite_setup, rewrite_teardown);
}
