/*
 * rope_back.c - rotary scaling of a GGUF in config.json's words: its keys, and the tensors of factors as lists (Phi-3) or
 * as the rule that gives them (Llama 3). The other way is rope_map.c.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format/config_map.h"
#include "format/llama3.h"

#define MOST_FACTORS 32768u

typedef struct back {
    mica__plan *plan;
    const char *arch;
    mica__json_writer *json;
} back;

static const mica_value *get(const back *b, const char *key)
{
    char full[160];
    snprintf(full, sizeof full, "%.60s.%.90s", b->arch, key);
    return mica__archive_meta(b->plan->archive, full);
}

static double number_of(const back *b, const char *key, double otherwise)
{
    const mica_value *value = get(b, key);
    if (value == NULL || (value->type != MICA_VALUE_F32 && value->type != MICA_VALUE_U32))
        return otherwise;
    return value->type == MICA_VALUE_F32 ? value->as.f : (double)value->as.u;
}

/* The values of a vector of f32; *out_values is NULL where the file has none. They are the plan's memory. */
static mica_status read_factors(const back *b, const char *name, const float **out_values,
                                uint32_t *out_count)
{
    const mica__archive *archive = b->plan->archive;
    const uint32_t index = mica__archive_find(archive, name, strlen(name));
    *out_values = NULL;
    *out_count = 0;
    if (index == MICA__NO_TENSOR)
        return MICA_OK;
    const mica__tensor *tensor = &archive->tensor[index];
    if (tensor->ndim != 1 || tensor->dtype != MICA_DTYPE_F32 || tensor->shape[0] == 0 ||
        tensor->shape[0] > MOST_FACTORS)
        return MICA_OK;
    float *values = mica__chunks_alloc(&b->plan->chunks, (size_t)tensor->bytes);
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

static void put_list(const back *b, const char *key, const float *values, uint32_t count)
{
    mica__json_key(b->json, key);
    mica__json_begin_array(b->json);
    for (uint32_t i = 0; i < count; i++)
        mica__json_double(b->json, mica__config_shortest((double)values[i]));
    mica__json_end_array(b->json);
}

static void put_number(const back *b, const char *key, double number)
{
    mica__json_key(b->json, key);
    mica__json_double(b->json, mica__config_shortest(number));
}

static void begin(const back *b, const char *type, size_t length)
{
    mica__json_key(b->json, "rope_scaling");
    mica__json_begin_object(b->json);
    mica__json_key(b->json, "rope_type");
    mica__json_string_n(b->json, type, length);
}

/* Two lists; the context before it was stretched stands beside them, where Phi-3's code looks for it. */
static mica_status put_longrope(const back *b, bool *out_factors)
{
    const mica_value *context = get(b, "rope.scaling.original_context_length");
    const float *far = NULL, *near = NULL;
    uint32_t far_count = 0, near_count = 0;
    mica_status status = read_factors(b, "rope_factors_long.weight", &far, &far_count);
    if (status == MICA_OK)
        status = read_factors(b, "rope_factors_short.weight", &near, &near_count);
    if (status != MICA_OK || far == NULL || near == NULL)
        return status;
    begin(b, "longrope", 8);
    mica__json_key(b->json, "type");
    mica__json_string(b->json, "longrope");
    put_list(b, "long_factor", far, far_count);
    put_list(b, "short_factor", near, near_count);
    mica__json_end_object(b->json);
    if (context != NULL)
        mica__config_put(b->json, "original_max_position_embeddings", context);
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

/* The rule of Llama 3 is not in the file. Its two edges are the same in all models; the factor is the largest; the
 * context before it was stretched is a power of two. Factors that no such rule gives stay a tensor. */
static mica_status put_llama3(const back *b, bool *out_factors)
{
    mica__llama3 rule = {.base = number_of(b, "rope.freq_base", 10000), .factor = 1, .low = 1, .high = 4};
    const float *factors = NULL;
    uint32_t count = 0;
    const mica_status status = read_factors(b, "rope_freqs.weight", &factors, &count);
    if (status != MICA_OK || factors == NULL)
        return status;
    for (uint32_t i = 0; i < count; i++)
        rule.factor = factors[i] > rule.factor ? factors[i] : rule.factor;
    if (!find_context(&rule, factors, count))
        return MICA_OK;
    begin(b, "llama3", 6);
    put_number(b, "factor", (double)rule.factor);
    put_number(b, "low_freq_factor", (double)rule.low);
    put_number(b, "high_freq_factor", (double)rule.high);
    mica__json_key(b->json, "original_max_position_embeddings");
    mica__json_uint(b->json, (uint64_t)rule.context);
    mica__json_end_object(b->json);
    *out_factors = true;
    return MICA_OK;
}

/* What the keys say: the type, its factor, and the context before it was stretched. */
static void put_keys(const back *b)
{
    const mica_value *type = get(b, "rope.scaling.type");
    const mica_value *factor = get(b, "rope.scaling.factor");
    const mica_value *context = get(b, "rope.scaling.original_context_length");
    if (type == NULL || type->type != MICA_VALUE_STRING)
        return;
    begin(b, type->as.string.data, (size_t)type->as.string.length);
    if (factor != NULL)
        mica__config_put(b->json, "factor", factor);
    if (context != NULL)
        mica__config_put(b->json, "original_max_position_embeddings", context);
    mica__json_end_object(b->json);
}

mica_status mica__rope_from_gguf(mica__plan *plan, const mica__family *family, mica__json_writer *json,
                                 bool *out_factors)
{
    const back b = {plan, family->arch, json};
    *out_factors = false;
    mica_status status = put_longrope(&b, out_factors);
    if (status == MICA_OK && !*out_factors)
        status = put_llama3(&b, out_factors);
    if (status == MICA_OK && !*out_factors)
        put_keys(&b);
    return status;
}
