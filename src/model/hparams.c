/* hparams.c - the numbers of a model, out of the metadata of its file. */
#include "base/value.h"
#include "model/parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST 1048576u          /* of any size in a model: products of two stay far from overflow */
#define MOST_WINDOW (1u << 24) /* no context is longer */

static const mica_value *find_key(const mica_weights *weights, const char *arch, const char *key)
{
    char name[96];
    const mica_value *value = NULL;
    const int length = snprintf(name, sizeof name, "%s%s%s", arch, arch[0] == '\0' ? "" : ".", key);
    if (length < 0 || (size_t)length >= sizeof name || mica_weights_get(weights, name, &value) != MICA_OK)
        return NULL;
    return value;
}

/* A number as double; arrays give their first item if all are equal. */
static bool value_number(const mica_value *value, double *out)
{
    if (mica__value_number(value, out))
        return true;
    if (value->type != MICA_VALUE_ARRAY || value->count == 0)
        return false;
    if (value->item_type != MICA_VALUE_I32 && value->item_type != MICA_VALUE_U32)
        return false;
    const uint32_t *items = value->as.items;
    for (uint64_t i = 1; i < value->count; i++)
        if (items[i] != items[0])
            return false;
    *out = value->item_type == MICA_VALUE_I32 ? (double)(int32_t)items[0] : (double)items[0];
    return true;
}

bool mica__key_u32(const mica_weights *weights, const char *arch, const char *key, uint32_t *out)
{
    const mica_value *value = find_key(weights, arch, key);
    double number;
    if (value == NULL || !value_number(value, &number) || !(number >= 0 && number <= UINT32_MAX))
        return false;
    *out = (uint32_t)number;
    return true;
}

bool mica__key_f32(const mica_weights *weights, const char *arch, const char *key, float *out)
{
    const mica_value *value = find_key(weights, arch, key);
    double number;
    if (value == NULL || !value_number(value, &number) || !isfinite(number))
        return false;
    *out = (float)number;
    return true;
}

bool mica__key_text(const mica_weights *weights, const char *arch, const char *key, mica_string *out)
{
    const mica_value *value = find_key(weights, arch, key);
    if (value == NULL || value->type != MICA_VALUE_STRING)
        return false;
    *out = value->as.string;
    return true;
}

/* ---- the numbers ---------------------------------------------------------------------------------------- */

static mica_status need(const mica_weights *weights, const char *arch, const char *key, uint32_t *out)
{
    if (!mica__key_u32(weights, arch, key, out) || *out == 0 || *out > MOST)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "the model's \"%s.%s\" is missing or is no number between 1 and %u", arch, key,
                          MOST);
    return MICA_OK;
}

/* What is not there is as it was; what is there must be a number up to MOST. */
static mica_status may(const mica_weights *weights, const char *arch, const char *key, uint32_t *out)
{
    if (find_key(weights, arch, key) == NULL)
        return MICA_OK;
    if (!mica__key_u32(weights, arch, key, out) || *out > MOST)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the model's \"%s.%s\" is no number between 0 and %u",
                          arch, key, MOST);
    return MICA_OK;
}

static mica_status read_attention(const mica_weights *weights, const mica__family *family, mica__hparams *h)
{
    const char *arch = family->name;
    MICA__TRY(need(weights, arch, "attention.head_count", &h->heads));
    h->kv_heads = h->heads;
    MICA__TRY(may(weights, arch, "attention.head_count_kv", &h->kv_heads));
    if (h->kv_heads == 0 || h->heads % h->kv_heads != 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the model has %u heads over %u heads of keys", h->heads,
                          h->kv_heads);
    h->head_k = h->head_v = h->width / h->heads;
    MICA__TRY(may(weights, arch, "attention.key_length", &h->head_k));
    MICA__TRY(may(weights, arch, "attention.value_length", &h->head_v));
    if (h->head_k == 0 || h->head_v == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the model's heads have no size: %u over %u heads",
                          h->width, h->heads);
    if (family->no_rope)
        return MICA_OK;
    h->rotary = h->head_k;
    MICA__TRY(may(weights, arch, "rope.dimension_count", &h->rotary));
    if (h->rotary > h->head_k || h->rotary % 2 != 0 || h->rotary == 0)
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "%u dimensions of the model's heads rotate (\"%s.rope.dimension_count\", or all), expected "
            "an even number of 2 to %u",
            h->rotary, arch, h->head_k);
    return MICA_OK;
}

static mica_status read_experts(const mica_weights *weights, const char *arch, mica__hparams *h)
{
    uint32_t normalise = 1;
    MICA__TRY(may(weights, arch, "expert_count", &h->experts));
    MICA__TRY(may(weights, arch, "expert_used_count", &h->experts_used));
    h->expert_ffn = h->ffn;
    MICA__TRY(may(weights, arch, "expert_feed_forward_length", &h->expert_ffn));
    MICA__TRY(may(weights, arch, "expert_weights_norm", &normalise));
    h->expert_normalise = normalise != 0;
    h->expert_scale = 1;
    (void)mica__key_f32(weights, arch, "expert_weights_scale", &h->expert_scale);
    if (h->experts != 0 && (h->experts_used == 0 || h->experts_used > h->experts))
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the model uses %u of %u experts", h->experts_used,
                          h->experts);
    return MICA_OK;
}

/* The largest models of these two families scale scores by the width of a head as it would be without the key that sets
 * another; files of them do not say so, their number of layers does. */
static bool scales_by_width(const mica__family *family, const mica__hparams *h)
{
    return (strcmp(family->name, "gemma2") == 0 && h->layers == 46) ||
           (strcmp(family->name, "gemma3") == 0 && h->layers == 62);
}

static mica_status read_window(const mica_weights *weights, const char *arch, mica__hparams *h)
{
    if (find_key(weights, arch, "attention.sliding_window") == NULL)
        return MICA_OK;
    if (!mica__key_u32(weights, arch, "attention.sliding_window", &h->window))
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the model's \"%s.attention.sliding_window\" is no number",
                          arch);
    if (h->window > MOST_WINDOW)
        h->window = MOST_WINDOW;
    return MICA_OK;
}

/* A truth for each layer: whether it slides. */
static mica_status read_slides(const mica_value *value, const char *arch, const mica__hparams *h,
                               mica__layer *layers)
{
    const uint8_t *bytes = value->as.items;
    const uint32_t *words = value->as.items;
    const bool wide = value->item_type == MICA_VALUE_U32 || value->item_type == MICA_VALUE_I32;
    if (value->count != h->layers || (!wide && value->item_type != MICA_VALUE_BOOL))
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "the model's \"%s.attention.sliding_window_pattern\" has %llu items, expected a truth "
            "for each of %u layers",
            arch, (unsigned long long)value->count, h->layers);
    for (uint32_t i = 0; i < h->layers; i++)
        layers[i].slides = h->window != 0 && (wide ? words[i] != 0 : bytes[i] != 0);
    return MICA_OK;
}

mica_status mica__layers_read(const mica_weights *weights, const mica__family *family, const mica__hparams *h,
                              mica__layer *layers)
{
    const char *arch = family->name, *key = "attention.sliding_window_pattern";
    const mica_value *value = find_key(weights, arch, key);
    uint32_t pattern = family->pattern;
    if (value != NULL && value->type == MICA_VALUE_ARRAY)
        return read_slides(value, arch, h, layers);
    MICA__TRY(may(weights, arch, key, &pattern));
    for (uint32_t i = 0; i < h->layers; i++)
        layers[i].slides = h->window != 0 && (pattern == 0 || (i + 1) % pattern != 0);
    return MICA_OK;
}

/* In the words of Hugging Face; without a gate there is no silu. */
static mica_status read_activation(const mica_weights *weights, const mica__family *family, mica__hparams *h)
{
    static const struct {
        const char *word;
        uint8_t activation;
    } words[] = {{"silu", MICA__SILU},
                 {"gelu_pytorch_tanh", MICA__GELU},
                 {"gelu_new", MICA__GELU},
                 {"gelu", MICA__GELU_ERF}};
    mica_string text;
    h->activation = family->activation;
    if (!mica__key_text(weights, family->name, "hidden_activation", &text))
        return MICA_OK;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (text.length == strlen(words[i].word) &&
            memcmp(text.data, words[i].word, (size_t)text.length) == 0 &&
            !(family->ungated && words[i].activation == MICA__SILU)) {
            h->activation = words[i].activation;
            return MICA_OK;
        }
    return mica__fail(
        MICA_ERR_UNSUPPORTED,
        "the model's \"%s.hidden_activation\" is \"%.40s\", expected %sgelu or gelu_pytorch_tanh",
        family->name, text.data, family->ungated ? "" : "silu, ");
}

/* Keys that change what models compute in ways that mica does not know: they may be there with the value that says nothing,
 * 0 or `neutral`. */
static mica_status check_others(const mica_weights *weights, const mica__family *family,
                                const mica__hparams *h)
{
    const struct {
        const char *key;
        double neutral;
        bool strict; /* 0 is not fine */
    } keys[] = {
        {"attention.causal", family->encoder ? 0 : 1, true},
        {"attention.key_length_swa", h->head_k, false},
        {"attention.value_length_swa", h->head_v, false},
        {"attention.shared_kv_layers", 0, false},
        {"attention.temperature_scale", 0, false},
        {"attention.output_scale", 1, false},
        {"attention.max_alibi_bias", 0, false},
        {"attention.clamp_kqv", 0, false},
        {"expert_gating_func", 1, false}, /* softmax */
        {"expert_shared_count", 0, false},
        {"expert_group_count", 1, false},
        {"expert_group_used_count", 1, false},
        {"embedding_scale", 1, false},
        {"residual_scale", 1, false},
        {"logit_scale", 1, false},
        {"router_logit_softcapping", 0, false},
        {"nextn_predict_layers", 0, false},
        {"use_parallel_residual", 0, false},
        {"rope.dimension_count_swa", h->rotary, false},
        {"rope.scaling.alpha", 1, false},
        {"rope.scaling.yarn_log_multiplier", 0, false},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const mica_value *value = find_key(weights, family->name, keys[i].key);
        double number = 0;
        if (value == NULL)
            continue;
        if (!value_number(value, &number) || (number != keys[i].neutral && (keys[i].strict || number != 0)))
            return mica__fail(MICA_ERR_UNSUPPORTED,
                              "the model's \"%s.%s\" is %g, mica runs %s models with %g only", family->name,
                              keys[i].key, number, family->name, keys[i].neutral);
    }
    return MICA_OK;
}

static void read_reals(const mica_weights *weights, const mica__family *family, mica__hparams *h)
{
    const char *arch = family->name;
    h->eps = 1e-5f;
    (void)mica__key_f32(
        weights, arch,
        family->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", &h->eps);
    h->attention_scale = 1 / sqrtf((float)(scales_by_width(family, h) ? h->width / h->heads : h->head_k));
    (void)mica__key_f32(weights, arch, "attention.scale", &h->attention_scale);
    h->attention_softcap = family->attention_softcap;
    h->final_softcap = family->final_softcap;
    (void)mica__key_f32(weights, arch, "attn_logit_softcapping", &h->attention_softcap);
    (void)mica__key_f32(weights, arch, "final_logit_softcapping", &h->final_softcap);
    h->embedding_scale = family->scaled_embedding ? sqrtf((float)h->width) : 1;
}

static mica_status read_pooling(const mica_weights *weights, const char *arch, mica__hparams *h)
{
    static const mica_pooling by_number[] = {MICA_POOLING_DEFAULT, MICA_POOLING_MEAN, MICA_POOLING_CLS,
                                             MICA_POOLING_LAST};
    uint32_t number = 0;
    if (!mica__key_u32(weights, arch, "pooling_type", &number))
        return MICA_OK;
    if (number >= sizeof by_number / sizeof by_number[0])
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s.pooling_type\" is %u, expected 0 to 3 (none, mean, first, last)", arch,
                          number);
    h->pooling = by_number[number];
    return MICA_OK;
}

mica_status mica__hparams_read(const mica_weights *weights, const mica__family *family, mica__hparams *h)
{
    const char *arch = family->name;
    uint32_t halves = 0, by_layer = 0;
    memset(h, 0, sizeof *h);
    MICA__TRY(need(weights, arch, "block_count", &h->layers));
    MICA__TRY(need(weights, arch, "embedding_length", &h->width));
    MICA__TRY(may(weights, arch, "feed_forward_length", &h->ffn));
    h->context_length = 2048;
    MICA__TRY(need(weights, arch, "context_length", &h->context_length));
    MICA__TRY(read_attention(weights, family, h));
    MICA__TRY(read_experts(weights, arch, h));
    MICA__TRY(read_window(weights, arch, h));
    MICA__TRY(read_activation(weights, family, h));
    MICA__TRY(check_others(weights, family, h));
    h->scale_by_layer =
        mica__key_u32(weights, arch, "attention.scale_by_inverse_layer", &by_layer) && by_layer != 0;
    read_reals(weights, family, h);
    MICA__TRY(read_pooling(weights, arch, h));
    h->rope_halves = mica__key_u32(weights, "", "mica.rope_halves", &halves) && halves != 0;
    return MICA_OK;
}
