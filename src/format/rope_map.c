/*
 * rope_map.c - rotary scaling of config.json in GGUF's words: keys for what is a number, tensors of factors for what
 * differs from dimension to dimension.
 */
#include <math.h>
#include <string.h>

#include "format/config_map.h"
#include "format/llama3.h"

#define MOST_DIMENSIONS 65536u

typedef struct scaling {
    mica__plan *plan;
    const mica__json *json;
    const mica__json_node *node; /* the object with rope_type */
    const mica__family *family;
} scaling;

static double number_of(const scaling *s, const char *key, double otherwise)
{
    double number = otherwise;
    const mica__json_node *node = mica__json_get(s->json, s->node, key);
    if (node == NULL || node->type != MICA__JSON_NUMBER)
        return otherwise;
    return mica__json_as_double(node, key, -1e30, 1e30, &number) == MICA_OK ? number : otherwise;
}

static double config_number(const scaling *s, const char *key, double otherwise)
{
    const mica__json_node *node = mica__config_get(s->json, key);
    double number = otherwise;
    if (node == NULL || node->type != MICA__JSON_NUMBER)
        return otherwise;
    return mica__json_as_double(node, key, -1e30, 1e30, &number) == MICA_OK ? number : otherwise;
}

static mica_status set_number(const scaling *s, const char *gguf, double number)
{
    char *key = mica__plan_text(s->plan, "%s.rope.scaling.%s", s->family->arch, gguf);
    return mica__plan_set_f32(s->plan, key, number);
}

static mica_status set_type(const scaling *s, const char *type)
{
    char *key = mica__plan_text(s->plan, "%s.rope.scaling.type", s->family->arch);
    return mica__plan_set_string(s->plan, key, type);
}

/* Dimensions of a head that turn. */
static uint32_t count_dimensions(const scaling *s)
{
    const double width = config_number(s, "hidden_size", 0),
                 heads = config_number(s, "num_attention_heads", 0);
    const double part = config_number(s, "partial_rotary_factor", 1);
    const double dimensions = config_number(s, "head_dim", heads > 0 ? floor(width / heads) : 0) * part;
    return dimensions >= 2 && dimensions <= MOST_DIMENSIONS ? (uint32_t)dimensions : 0;
}

static mica_status add_factors(const scaling *s, const char *name, const float *factors, uint32_t count)
{
    const mica__plan_tensor tensor = {.name = name,
                                      .dtype = MICA_DTYPE_F32,
                                      .ndim = 1,
                                      .shape = {count},
                                      .constant = factors,
                                      .rows = 1,
                                      .row = count};
    return mica__plan_add(s->plan, &tensor);
}

/* Llama 3: a rule gives the factors. */
static mica_status add_llama3(const scaling *s)
{
    const double base = config_number(s, "rope_theta", 10000), factor = number_of(s, "factor", 8);
    const double low = number_of(s, "low_freq_factor", 1), high = number_of(s, "high_freq_factor", 4);
    const double context = number_of(s, "original_max_position_embeddings", 8192);
    const uint32_t count = count_dimensions(s) / 2;
    float *factors = mica__chunks_alloc(&s->plan->chunks, (count + 1) * sizeof *factors);
    if (factors == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (count == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "config.json: no usable hidden_size, num_attention_heads or head_dim");
    const mica__llama3 rule = {.base = base,
                               .factor = (float)factor,
                               .low = (float)low,
                               .high = (float)high,
                               .context = (float)context};
    for (uint32_t i = 0; i < count; i++)
        factors[i] = mica__llama3_factor(&rule, i, count);
    return add_factors(s, "rope_freqs.weight", factors, count);
}

static mica_status add_list(const scaling *s, const char *hf, const char *name)
{
    const mica__json_node *list = mica__json_get(s->json, s->node, hf);
    if (list == NULL || list->type != MICA__JSON_ARRAY || list->child_count == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "config.json: rope scaling has no list \"%s\"", hf);
    float *factors = mica__chunks_alloc(&s->plan->chunks, list->child_count * sizeof *factors);
    if (factors == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    const mica__json_node *item = mica__json_first(list);
    for (uint32_t i = 0; item != NULL; i++, item = mica__json_next(s->json, item)) {
        double number = 0;
        const mica_status status = mica__json_as_double(item, hf, -1e30, 1e30, &number);
        if (status != MICA_OK)
            return status;
        factors[i] = (float)number;
    }
    return add_factors(s, name, factors, list->child_count);
}

/* Phi-3: a factor for each dimension, one list for short texts and one for long. */
static mica_status add_longrope(const scaling *s)
{
    const double most = config_number(s, "max_position_embeddings", 0);
    const double context = config_number(s, "original_max_position_embeddings",
                                         number_of(s, "original_max_position_embeddings", most));
    const double scale = context > 0 ? most / context : 1;
    mica_status status = set_type(s, "longrope");
    if (status == MICA_OK)
        status = set_number(s, "attn_factor", scale > 1 ? sqrt(1 + log(scale) / log(context)) : 1);
    if (status == MICA_OK)
        status = add_list(s, "long_factor", "rope_factors_long.weight");
    return status == MICA_OK ? add_list(s, "short_factor", "rope_factors_short.weight") : status;
}

static mica_status add_yarn(const scaling *s)
{
    static const struct {
        const char *hf, *gguf;
    } keys[] = {{"extrapolation_factor", "yarn_ext_factor"},
                {"beta_fast", "yarn_beta_fast"},
                {"beta_slow", "yarn_beta_slow"}};
    mica_status status = set_type(s, "yarn");
    if (status == MICA_OK)
        status = set_number(s, "factor", number_of(s, "factor", 1));
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && status == MICA_OK; i++)
        if (mica__json_get(s->json, s->node, keys[i].hf) != NULL)
            status = set_number(s, keys[i].gguf, number_of(s, keys[i].hf, 0));
    /* HF states the whole scale of the result, GGUF what it differs by from the usual one. */
    const double usual = 1 + 0.1 * log(number_of(s, "factor", 1)),
                 whole = number_of(s, "attention_factor", 0);
    if (status == MICA_OK && whole > 0 && usual > 0)
        status = set_number(s, "yarn_attn_factor", whole / usual);
    return status;
}

/* Gemma 3 has a rope for each kind of layer; that of the sliding ones is a base alone. */
static mica_status take_kinds(scaling *s)
{
    const mica__json_node *all = mica__json_get(s->json, s->node, "full_attention");
    const mica__json_node *sliding = mica__json_get(s->json, s->node, "sliding_attention");
    double theta = 0;
    if (all == NULL || sliding == NULL)
        return MICA_OK;
    const mica__json_node *base = mica__json_get(s->json, sliding, "rope_theta");
    s->node = all;
    if (base == NULL || mica__json_as_double(base, "rope_theta", 0, 1e30, &theta) != MICA_OK)
        return MICA_OK;
    return mica__plan_set_f32(s->plan, mica__plan_text(s->plan, "%s.rope.freq_base_swa", s->family->arch),
                              theta);
}

static mica_status set_original_context(const scaling *s)
{
    const double context = number_of(s, "original_max_position_embeddings",
                                     config_number(s, "original_max_position_embeddings", 0));
    char *key = mica__plan_text(s->plan, "%s.rope.scaling.original_context_length", s->family->arch);
    return context >= 1 && context <= UINT32_MAX ? mica__plan_set_u32(s->plan, key, (uint64_t)context)
                                                 : MICA_OK;
}

/* Phi-3 also says how many dimensions turn, and what its context was before it was stretched. */
static mica_status set_phi3(const scaling *s)
{
    const uint32_t dimensions = count_dimensions(s);
    char *key = mica__plan_text(s->plan, "%s.rope.dimension_count", s->family->arch);
    const mica_status status = mica__plan_set_u32(s->plan, key, dimensions);
    return status == MICA_OK ? set_original_context(s) : status;
}

mica_status mica__rope_to_gguf(mica__plan *plan, const mica__json *json, const mica__family *family)
{
    scaling s = {plan, json, mica__config_get(json, "rope_scaling"), family};
    const char *type = "";
    mica_status status;
    if (s.node == NULL)
        s.node = mica__config_get(json, "rope_parameters");
    status = take_kinds(&s);
    if (status == MICA_OK && strcmp(family->arch, "phi3") == 0)
        status = set_phi3(&s);
    const mica__json_node *name = mica__json_get(json, s.node, "rope_type");
    if (name == NULL)
        name = mica__json_get(json, s.node, "type");
    if (name != NULL && name->type == MICA__JSON_STRING)
        type = name->string.data;
    if (status != MICA_OK)
        return status;
    if (strcmp(type, "llama3") == 0)
        return add_llama3(&s);
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)
        return add_longrope(&s);
    if (strcmp(type, "yarn") == 0) {
        status = add_yarn(&s);
        return status == MICA_OK ? set_original_context(&s) : status;
    }
    if (strcmp(type, "linear") == 0) {
        status = set_type(&s, "linear");
        return status == MICA_OK ? set_number(&s, "factor", number_of(&s, "factor", 1)) : status;
    }
    return MICA_OK; /* none, or one that GGUF has no word for */
}
