/*
 * rope_map.c - rotary scaling of config.json in GGUF's words: keys for what is a number, tensors of factors for what
 * differs from dimension to dimension.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/config/config_map.h"
#include "format/config/llama3.h"

#define MOST_DIMENSIONS 65536u

typedef struct scaling {
    mica__target *target;
    const mica__json *json;
    const mica__json_node *node; /* the object with rope_type, or NULL */
    const mica__name_family *family;
    const char *key_class;
} scaling;

/* A number of the rotary object: `otherwise` where it is not there or null. */
static mica_status number_of(const scaling *s, const char *key, double otherwise, double *out)
{
    const mica__json_node *node = mica__json_get(s->json, s->node, key);
    char what[128];
    *out = otherwise;
    if (node == NULL || node->type == MICA__JSON_NULL)
        return MICA_OK;
    snprintf(what, sizeof what, "config.json: rope_parameters.%s", key);
    return mica__json_as_double(node, what, -1e30, 1e30, out);
}

/* The same of a number above 0 that must be there. */
static mica_status need_number(const scaling *s, const char *key, double *out)
{
    const mica_status status = number_of(s, key, 0, out);
    if (status != MICA_OK || *out > 0)
        return status;
    return mica__fail(MICA_ERR_MALFORMED_FILE, "config.json: rotary scaling needs \"%s\", a number above 0",
                      key);
}

static double config_number(const scaling *s, const char *key, double otherwise)
{
    const mica__config c = {s->target, s->json, s->family, s->key_class};
    const mica__json_node *node = mica__config_read(&c, key);
    double number = otherwise;
    if (node == NULL || node->type != MICA__JSON_NUMBER)
        return otherwise;
    return mica__json_as_double(node, key, -1e30, 1e30, &number) == MICA_OK ? number : otherwise;
}

static double meta_number(const scaling *s, const char *gguf)
{
    char key[160];
    snprintf(key, sizeof key, "%.60s.%.90s", s->family->arch, gguf);
    return (double)mica__target_get_number(s->target, key, 0);
}

/* The context before it was stretched: what config.json says outside of the object comes first. */
static mica_status original_context(const scaling *s, double *out)
{
    const mica__config c = {s->target, s->json, s->family, s->key_class};
    const double usual = strtod(mica__config_default(&c, "original_max_position_embeddings"), NULL);
    const double outside = config_number(s, "original_max_position_embeddings", usual);
    mica_status status = MICA_OK;
    *out = outside;
    if (!(outside > 0))
        status = number_of(s, "original_max_position_embeddings", meta_number(s, "context_length"), out);
    if (status == MICA_OK && !(*out >= 1 && *out <= UINT32_MAX))
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "config.json: \"original_max_position_embeddings\" is %g, expected 1 to %u", *out,
                          UINT32_MAX);
    return status;
}

static mica_status set_number(const scaling *s, const char *gguf, double number)
{
    char *key = mica__target_text(s->target, "%s.rope.scaling.%s", s->family->arch, gguf);
    return mica__target_set_f32(s->target, key, number);
}

static mica_status set_type(const scaling *s, const char *type)
{
    char *key = mica__target_text(s->target, "%s.rope.scaling.type", s->family->arch);
    return mica__target_set_string(s->target, key, type);
}

/* Dimensions of a head that rotate. */
static mica_status count_dimensions(const scaling *s, uint32_t *out)
{
    const double width = meta_number(s, "embedding_length"), heads = meta_number(s, "attention.head_count"),
                 head = meta_number(s, "attention.key_length");
    double part = 1;
    mica_status status =
        number_of(s, "partial_rotary_factor", config_number(s, "partial_rotary_factor", 1), &part);
    const double dimensions = (head > 0 ? head : heads > 0 ? floor(width / heads) : 0) * part;
    *out = 0;
    if (status != MICA_OK)
        return status;
    if (part != 1 && strcmp(s->key_class, "phi3") != 0)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "config.json: \"partial_rotary_factor\" is %g, mica runs %s models with 1 only",
                          part, s->key_class);
    if (!(dimensions >= 2 && dimensions <= MOST_DIMENSIONS))
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "config.json: %g dimensions of a head rotate, expected 2 to %u", dimensions,
                          MOST_DIMENSIONS);
    *out = (uint32_t)dimensions;
    return MICA_OK;
}

static mica_status add_factors(const scaling *s, const char *name, const float *factors, uint32_t count)
{
    const mica__target_tensor tensor = {.name = name,
                                        .dtype = MICA_DTYPE_F32,
                                        .ndim = 1,
                                        .shape = {count},
                                        .constant = factors,
                                        .rows = 1,
                                        .row = count};
    return mica__target_add(s->target, &tensor);
}

/* Llama 3: a rule gives the factors. */
static mica_status add_llama3(const scaling *s, double theta)
{
    double factor, low, high, context;
    uint32_t dimensions;
    mica_status status = need_number(s, "factor", &factor);
    if (status == MICA_OK)
        status = need_number(s, "low_freq_factor", &low);
    if (status == MICA_OK)
        status = need_number(s, "high_freq_factor", &high);
    if (status == MICA_OK)
        status = original_context(s, &context);
    if (status == MICA_OK)
        status = count_dimensions(s, &dimensions);
    if (status != MICA_OK)
        return status;
    const uint32_t count = dimensions / 2;
    float *factors = mica__chunks_alloc(&s->target->chunks, (count + 1) * sizeof *factors);
    if (factors == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    const mica__llama3 rule = {.base = theta,
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
    float *factors = mica__chunks_alloc(&s->target->chunks, list->child_count * sizeof *factors);
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

static mica_status set_original_context(const scaling *s)
{
    double context;
    const mica_status status = original_context(s, &context);
    char *key = mica__target_text(s->target, "%s.rope.scaling.original_context_length", s->family->arch);
    return status == MICA_OK ? mica__target_set_u32(s->target, key, (uint64_t)context) : status;
}

/* Phi-3: a factor for each dimension, one list for short texts and one for long. */
static mica_status add_longrope(const scaling *s)
{
    double context = 0, scale = 0, whole = 0;
    mica_status status = original_context(s, &context);
    if (status == MICA_OK)
        status = number_of(s, "factor", meta_number(s, "context_length") / context, &scale);
    if (status == MICA_OK)
        status =
            number_of(s, "attention_factor", scale > 1 ? sqrt(1 + log(scale) / log(context)) : 1, &whole);
    if (status == MICA_OK)
        status = set_type(s, "longrope");
    if (status == MICA_OK)
        status = set_number(s, "attn_factor", whole);
    if (status == MICA_OK)
        status = set_original_context(s);
    if (status == MICA_OK)
        status = add_list(s, "long_factor", "rope_factors_long.weight");
    return status == MICA_OK ? add_list(s, "short_factor", "rope_factors_short.weight") : status;
}

/* What YaRN multiplies the result by. */
static double yarn_scale(double factor, double part)
{
    return factor <= 1 ? 1 : 1 + 0.1 * part * log(factor);
}

static mica_status add_yarn(const scaling *s)
{
    static const struct {
        const char *hf, *gguf;
        double usual;
    } keys[] = {{"beta_fast", "yarn_beta_fast", 32}, {"beta_slow", "yarn_beta_slow", 1}};
    double factor, context, part, all, whole;
    mica_status status = original_context(s, &context);
    if (status == MICA_OK)
        status = number_of(s, "factor", meta_number(s, "context_length") / context, &factor);
    if (status == MICA_OK && !(factor > 0))
        status =
            mica__fail(MICA_ERR_MALFORMED_FILE,
                       "config.json: \"rope_parameters.factor\" is %g, expected a number above 0", factor);
    if (status == MICA_OK)
        status = set_type(s, "yarn");
    if (status == MICA_OK)
        status = set_number(s, "factor", factor);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && status == MICA_OK; i++) {
        double beta;
        status = number_of(s, keys[i].hf, keys[i].usual, &beta);
        if (status == MICA_OK && beta != keys[i].usual && beta != 0) /* 0 is the usual one too */
            status = set_number(s, keys[i].gguf, beta);
    }
    if (status == MICA_OK)
        status = number_of(s, "mscale", 0, &part);
    if (status == MICA_OK)
        status = number_of(s, "mscale_all_dim", 0, &all);
    if (status == MICA_OK)
        status = number_of(s, "attention_factor",
                           part != 0 && all != 0 ? yarn_scale(factor, part) / yarn_scale(factor, all)
                                                 : yarn_scale(factor, 1),
                           &whole);
    if (status != MICA_OK)
        return status;
    /* HF states the whole scale of the result, GGUF what it differs by from the usual one. */
    const double usual = 1 + 0.1 * log(factor);
    if (!(whole > 0 && usual > 0))
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "config.json: rotary scaling multiplies by %g with a factor of %g", whole, factor);
    return whole == usual ? MICA_OK : set_number(s, "yarn_attn_factor", whole / usual);
}

static mica_status add_linear(const scaling *s, const char *type)
{
    double factor;
    mica_status status = need_number(s, "factor", &factor);
    if (status == MICA_OK)
        status = set_type(s, type);
    return status == MICA_OK ? set_number(s, "factor", factor) : status;
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

/* Gemma 3 has a rope for each kind of layer; that of the sliding ones is a base alone. */
static mica_status take_kinds(scaling *s)
{
    const mica__json_node *all = mica__json_get(s->json, s->node, "full_attention");
    const mica__json_node *sliding = mica__json_get(s->json, s->node, "sliding_attention");
    const mica__json_node *type = mica__json_get(s->json, sliding, "rope_type");
    const mica__config c = {s->target, s->json, s->family, s->key_class};
    double theta = strtod(mica__config_default(&c, "rope_local_base_freq"), NULL);
    theta = config_number(s, "rope_local_base_freq", theta);
    if (type == NULL)
        type = mica__json_get(s->json, sliding, "type");
    if (type != NULL && (type->type != MICA__JSON_STRING || strcmp(type->string.data, "default") != 0))
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "config.json: \"sliding_attention.rope_type\" is \"%.40s\", expected default",
                          type->type == MICA__JSON_STRING ? type->string.data : "");
    const mica__json_node *new_words = s->node;
    if (all != NULL || sliding != NULL)
        s->node = sliding;
    mica_status status = all != NULL || sliding != NULL ? number_of(s, "rope_theta", theta, &theta) : MICA_OK;
    if (all != NULL || sliding != NULL)
        s->node = all;
    else if (mica__config_get(s->json, "rope_scaling") == NULL && new_words != NULL)
        status = mica__fail(MICA_ERR_UNSUPPORTED,
                            "config.json: \"rope_parameters\" of a gemma3 model has no \"full_attention\"");
    if (status == MICA_OK && !(theta > 0))
        status = mica__fail(MICA_ERR_MALFORMED_FILE, "config.json: the base of sliding layers is %g", theta);
    if (status != MICA_OK)
        return status;
    return mica__target_set_f32(
        s->target, mica__target_text(s->target, "%s.rope.freq_base_swa", s->family->arch), theta);
}

/* The base: of the object, or beside it, or the class's. */
static mica_status set_theta(const scaling *s, double *out)
{
    const double usual =
        strcmp(s->key_class, "mixtral") == 0 || strcmp(s->key_class, "gemma3_text") == 0 ? 1e6 : 1e4;
    const mica_status status = number_of(s, "rope_theta", config_number(s, "rope_theta", usual), out);
    char *key = mica__target_text(s->target, "%s.rope.freq_base", s->family->arch);
    if (status != MICA_OK)
        return status;
    if (!(*out > 0))
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "config.json: \"rope_theta\" is %g, expected a number above 0", *out);
    return mica__target_set_f32(s->target, key, *out);
}

/* Phi-3 also says how many dimensions rotate, and what its context was before it was stretched. */
static mica_status set_phi3(const scaling *s)
{
    uint32_t dimensions;
    mica_status status = count_dimensions(s, &dimensions);
    char *key = mica__target_text(s->target, "%s.rope.dimension_count", s->family->arch);
    if (status == MICA_OK)
        status = mica__target_set_u32(s->target, key, dimensions);
    return status == MICA_OK ? set_original_context(s) : status;
}

static const char *type_of(const scaling *s)
{
    const mica__json_node *name = mica__json_get(s->json, s->node, "rope_type");
    if (name == NULL)
        name = mica__json_get(s->json, s->node, "type");
    if (name == NULL)
        return mica__json_get(s->json, s->node, "factor") == NULL ? "default" : "";
    return name->type == MICA__JSON_STRING ? name->string.data : "";
}

static mica_status add_type(const scaling *s, double theta)
{
    const char *type = type_of(s);
    const bool phi = strcmp(s->key_class, "phi3") == 0;
    if (strcmp(type, "default") == 0)
        return MICA_OK;
    if (type[0] == '\0')
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "config.json: rotary scaling has a \"factor\" but no \"rope_type\"");
    /* Of Phi-3 three words mean the one way that its models have. */
    if (strcmp(type, "longrope") == 0 || (phi && (strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0)))
        return add_longrope(s);
    if (strcmp(type, "llama3") == 0 && !phi)
        return add_llama3(s, theta);
    if (strcmp(type, "yarn") == 0) {
        const mica_status status = add_yarn(s);
        return status == MICA_OK ? set_original_context(s) : status;
    }
    if (strcmp(type, "linear") == 0 && !phi)
        return add_linear(s, "linear");
    if (strcmp(type, "dynamic") == 0 && !phi)
        return add_linear(s, "dynamic");
    return mica__fail(
        MICA_ERR_UNSUPPORTED, "config.json: \"rope_type\" is \"%.40s\"; a %s model is run with %s", type,
        s->key_class, phi ? "default or longrope" : "default, linear, dynamic, yarn, longrope or llama3");
}

mica_status mica__rope_to_gguf(mica__target *target, const mica__json *json, const mica__name_family *family)
{
    scaling s = {target, json, mica__config_get(json, "rope_scaling"), family, NULL};
    double theta = 0;
    uint32_t dimensions;
    mica_status status = mica__key_class(json, family, &s.key_class);
    if (status != MICA_OK || strcmp(s.key_class, "gpt2") == 0 || strcmp(s.key_class, "bert") == 0)
        return status;
    s.key_class = mica__key_text_class(s.key_class);
    const mica__json_node *parameters = mica__config_get(json, "rope_parameters");
    if (s.node != NULL && parameters != NULL && strcmp(s.key_class, "gemma3_text") == 0)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "config.json: both \"rope_scaling\" and \"rope_parameters\" are there");
    if (s.node == NULL || (s.node->type == MICA__JSON_OBJECT && s.node->child_count == 0))
        s.node = parameters;
    if (s.node != NULL && s.node->type != MICA__JSON_OBJECT)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "config.json: rotary scaling is %s, expected an object",
                          mica__json_type_name(s.node));
    if (strcmp(s.key_class, "gemma3_text") == 0)
        status = take_kinds(&s);
    if (status == MICA_OK)
        status = set_theta(&s, &theta);
    if (status == MICA_OK)
        status = strcmp(s.key_class, "phi3") == 0 ? set_phi3(&s) : count_dimensions(&s, &dimensions);
    return status == MICA_OK ? add_type(&s, theta) : status;
}
