/*
 * rope_back.c - rotary scaling of a GGUF in config.json's words: its keys, and the tensors of factors as lists (Phi-3) or
 * as the rule that gives them (Llama 3). The other way is rope_map.c.
 */
#include <math.h>
#include <string.h>

#include "format/config/config_back.h"
#include "format/config/llama3.h"

#define MOST_FACTORS 32768u

/* The values of a vector of f32; *out_values is NULL where the file has none. They are the target's memory. */
static mica_status read_factors(const mica__config_back *b, const char *name, const float **out_values,
                                uint32_t *out_count)
{
    const mica__archive *archive = b->target->archive;
    const uint32_t index = mica__archive_find(archive, name, strlen(name));
    *out_values = NULL;
    *out_count = 0;
    if (index == MICA__NO_TENSOR)
        return MICA_OK;
    const mica__tensor *tensor = &archive->tensor[index];
    if (tensor->ndim != 1 || tensor->dtype != MICA_DTYPE_F32 || tensor->shape[0] == 0 ||
        tensor->shape[0] > MOST_FACTORS)
        return MICA_OK;
    float *values = mica__chunks_alloc(&b->target->chunks, (size_t)tensor->bytes);
    if (values == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    const mica_status status = mica__archive_read(archive, tensor, 0, values, tensor->bytes);
    for (uint64_t i = 0; i < tensor->shape[0] && status == MICA_OK; i++)
        if (!isfinite(values[i]))
            return MICA_OK;
    *out_values = values;
    *out_count = (uint32_t)tensor->shape[0];
    return status;
}

static void put_list(mica__config_back *b, const char *key, const float *values, uint32_t count)
{
    mica__json_key(&b->json, key);
    mica__json_begin_array(&b->json);
    for (uint32_t i = 0; i < count; i++)
        mica__json_real(&b->json, mica__back_shortest((double)values[i]));
    mica__json_end_array(&b->json);
}

/* Transformers 4 wants exactly three members in Phi-3's, and calls the type so there. */
static void begin(mica__config_back *b, const char *type)
{
    mica__json_key(&b->json, "rope_scaling");
    mica__json_begin_object(&b->json);
    mica__json_key(&b->json, mica__back_is(b, "phi3") ? "type" : "rope_type");
    mica__json_string(&b->json, type);
}

/* What GGUF says about the scale of the result; 0: nothing. */
static double attention_of(const mica__config_back *b)
{
    const double plain = mica__back_number(b, "rope.scaling.attn_factor", 0);
    return mica__back_number(b, "rope.scaling.yarn_attn_factor", plain);
}

/* Two lists. The scale of the result follows from the contexts before and after the model was stretched; one that does not is
 * written. */
static mica_status put_longrope(mica__config_back *b, bool *out_factors)
{
    const float *far = NULL, *near = NULL;
    uint32_t far_count = 0, near_count = 0;
    mica_status status = read_factors(b, "rope_factors_long.weight", &far, &far_count);
    if (status == MICA_OK)
        status = read_factors(b, "rope_factors_short.weight", &near, &near_count);
    if (status != MICA_OK || far == NULL || near == NULL)
        return status;
    const double before = mica__back_number(b, "rope.scaling.original_context_length", b->context),
                 stretch = before > 0 ? b->context / before : 1,
                 usual = stretch > 1 ? sqrt(1 + log(stretch) / log(before)) : 1, scale = attention_of(b);
    begin(b, "longrope");
    put_list(b, "long_factor", far, far_count);
    put_list(b, "short_factor", near, near_count);
    if (fabs((scale > 0 ? scale : 1) - usual) > 1e-6 * usual)
        mica__back_put_real(b, "attention_factor", scale > 0 ? scale : 1);
    if (!mica__back_is(b, "phi3"))
        mica__back_put_whole(b, "original_max_position_embeddings", (uint64_t)before);
    mica__json_end_object(&b->json);
    *out_factors = true;
    return MICA_OK;
}

static bool is_rule(const mica__llama3 *rule, const float *factors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (fabsf(mica__llama3_factor(rule, i, count) - factors[i]) > 1e-6f * factors[i])
            return false;
    return true;
}

/* The usual context first: where short heads leave it open, any that gives these factors will do. */
static bool find_context(mica__llama3 *rule, const float *factors, uint32_t count)
{
    static const float contexts[] = {8192, 4096,  2048,  1024,  512,    256,    128,    64,
                                     32,   16384, 32768, 65536, 131072, 262144, 524288, 1048576};
    for (size_t i = 0; i < sizeof contexts / sizeof contexts[0]; i++) {
        rule->context = contexts[i];
        if (is_rule(rule, factors, count))
            return true;
    }
    return false;
}

static void put_rule(mica__config_back *b, const mica__llama3 *rule)
{
    begin(b, "llama3");
    mica__back_put_real(b, "factor", (double)rule->factor);
    mica__back_put_real(b, "low_freq_factor", (double)rule->low);
    mica__back_put_real(b, "high_freq_factor", (double)rule->high);
    mica__back_put_whole(b, "original_max_position_embeddings", (uint64_t)rule->context);
    mica__json_end_object(&b->json);
}

/* The rule of Llama 3 is not in the file. Its two edges are the same in all models; the factor is the largest; the
 * context before it was stretched is a power of two. Factors that no such rule gives are listed, the same for short texts
 * and long ones. */
static mica_status put_llama3(mica__config_back *b, bool *out_factors)
{
    mica__llama3 rule = {
        .base = mica__back_number(b, "rope.freq_base", 10000), .factor = 1, .low = 1, .high = 4};
    const float *factors = NULL;
    uint32_t count = 0;
    const mica_status status = read_factors(b, "rope_freqs.weight", &factors, &count);
    if (status != MICA_OK || factors == NULL)
        return status;
    for (uint32_t i = 0; i < count; i++)
        rule.factor = factors[i] > rule.factor ? factors[i] : rule.factor;
    *out_factors = true;
    if (find_context(&rule, factors, count)) {
        put_rule(b, &rule);
        return MICA_OK;
    }
    begin(b, "longrope");
    put_list(b, "long_factor", factors, count);
    put_list(b, "short_factor", factors, count);
    mica__back_put_real(b, "attention_factor", 1);
    mica__back_put_whole(b, "original_max_position_embeddings", b->context);
    mica__json_end_object(&b->json);
    return MICA_OK;
}

/* HF states the whole scale of the result, GGUF what it differs by from the usual one. */
static mica_status put_yarn(mica__config_back *b)
{
    const double factor = mica__back_number(b, "rope.scaling.factor", 1), scale = attention_of(b);
    if (mica__back_number(b, "rope.scaling.yarn_ext_factor", 1) != 1)
        return mica__back_refuse(b, "rope.scaling.yarn_ext_factor", "another one than 1");
    if (!(factor > 0))
        return mica__back_refuse(b, "rope.scaling.factor", "not above 0");
    begin(b, "yarn");
    mica__back_put_real(b, "factor", factor);
    mica__back_put_whole(b, "original_max_position_embeddings",
                         mica__back_whole(b, "rope.scaling.original_context_length", b->context));
    mica__back_put_real(b, "beta_fast", mica__back_number(b, "rope.scaling.yarn_beta_fast", 32));
    mica__back_put_real(b, "beta_slow", mica__back_number(b, "rope.scaling.yarn_beta_slow", 1));
    if (scale > 0 || factor < 1)
        mica__back_put_real(b, "attention_factor", (scale > 0 ? scale : 1) * (1 + 0.1 * log(factor)));
    mica__json_end_object(&b->json);
    return MICA_OK;
}

/* What the keys say where there are no factors. */
static mica_status put_keys(mica__config_back *b, const char *type)
{
    if (strcmp(type, "none") == 0 || strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)
        return MICA_OK;
    if (mica__back_is(b, "phi3") || (strcmp(type, "yarn") != 0 && strcmp(type, "linear") != 0))
        return mica__back_refuse(b, "rope.scaling.type", type);
    if (strcmp(type, "yarn") == 0)
        return put_yarn(b);
    begin(b, "linear");
    mica__back_put_real(b, "factor", mica__back_number(b, "rope.scaling.factor", 1));
    mica__json_end_object(&b->json);
    return MICA_OK;
}

/* The context before it was stretched stands where Phi-3's code looks for it; the part of a head that rotates must come out
 * whole again. */
static void put_phi3(mica__config_back *b)
{
    double part = (double)b->rotary / b->head;
    mica__back_put_whole(b, "original_max_position_embeddings",
                         mica__back_whole(b, "rope.scaling.original_context_length", b->context));
    while ((uint32_t)(b->head * part) < b->rotary)
        part = nextafter(part, 1);
    mica__json_key(&b->json, "partial_rotary_factor");
    mica__json_real(&b->json, part);
}

mica_status mica__rope_from_gguf(mica__config_back *b, bool *out_factors)
{
    const mica_value *name = mica__back_get(b, "rope.scaling.type");
    const char *type = name != NULL && name->type == MICA_VALUE_STRING ? name->as.string.data : "none";
    const bool made = strcmp(type, "yarn") == 0 || strcmp(type, "linear") == 0;
    mica_status status = MICA_OK;
    *out_factors = false;
    if (mica__back_is(b, "gpt2") || mica__back_is(b, "bert"))
        return MICA_OK;
    mica__back_put_real(b, "rope_theta", mica__back_number(b, "rope.freq_base", 10000));
    if (mica__back_is(b, "gemma3"))
        mica__back_put_real(b, "rope_local_base_freq", mica__back_number(b, "rope.freq_base_swa", 10000));
    if (mica__back_is(b, "phi3"))
        put_phi3(b);
    status = put_longrope(b, out_factors);
    if (status == MICA_OK && !*out_factors)
        status = put_llama3(b, out_factors);
    if (status == MICA_OK && *out_factors && made)
        return mica__back_refuse(b, "rope.scaling.type", "another scaling beside the tensors of factors");
    return status == MICA_OK && !*out_factors ? put_keys(b, type) : status;
}
