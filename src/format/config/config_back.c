/*
 * config_back.c - the text of a config.json out of the metadata and the tensors of a GGUF, so that programs that read it
 * compute the same numbers. Rotary scaling is in rope_back.c; the other way is config_map.c.
 *
 * Where GGUF is silent, what mica takes for it is written, never left to a default of the reader. What the class of
 * config.json has no word for is refused by its key.
 */
#include "format/config/config_back.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/value.h"
#include "base/work.h"

/* ---- what the file says ---------------------------------------------------------------------------------- */

const mica_value *mica__back_get(const mica__config_back *b, const char *key)
{
    char full[160];
    snprintf(full, sizeof full, "%.60s.%.90s", b->family->arch, key);
    return mica__archive_meta(b->target->archive, full);
}

bool mica__back_is(const mica__config_back *b, const char *arch)
{
    return strcmp(b->family->arch, arch) == 0;
}

static bool is_gemma(const mica__config_back *b)
{
    return mica__back_is(b, "gemma2") || mica__back_is(b, "gemma3");
}

mica_status mica__back_refuse(const mica__config_back *b, const char *key, const char *why)
{
    return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s.%s\": %s, for which config.json of a %s has no word",
                      b->family->arch, key, why, b->architecture);
}

static bool item_number(const mica_value *list, uint64_t i, double *out)
{
    switch (list->item_type) {
    case MICA_VALUE_U32: *out = ((const uint32_t *)list->as.items)[i]; return true;
    case MICA_VALUE_I32: *out = ((const int32_t *)list->as.items)[i]; return true;
    case MICA_VALUE_BOOL:
    case MICA_VALUE_U8: *out = ((const uint8_t *)list->as.items)[i]; return true;
    case MICA_VALUE_F32: *out = (double)((const float *)list->as.items)[i]; return true;
    default: return false;
    }
}

/* False: it is no number, or a list of several. */
static bool value_number(const mica_value *value, double *out)
{
    if (mica__value_number(value, out))
        return true;
    if (value->type != MICA_VALUE_ARRAY || value->count == 0 || !item_number(value, 0, out))
        return false;
    for (uint64_t i = 1; i < value->count; i++) {
        double other = 0;
        if (!item_number(value, i, &other) || other != *out)
            return false;
    }
    return true;
}

double mica__back_number(const mica__config_back *b, const char *key, double otherwise)
{
    const mica_value *value = mica__back_get(b, key);
    double number = 0;
    return value != NULL && value_number(value, &number) && isfinite(number) ? number : otherwise;
}

/* Of a key that stands behind no architecture; from 0 to 2^32 - 1. */
static double file_number(const mica__config_back *b, const char *key, double otherwise)
{
    const mica_value *value = mica__archive_meta(b->target->archive, key);
    double number = 0;
    return value != NULL && value_number(value, &number) && number >= 0 && number <= UINT32_MAX ? number
                                                                                                : otherwise;
}

uint32_t mica__back_whole(const mica__config_back *b, const char *key, uint32_t otherwise)
{
    const double number = mica__back_number(b, key, (double)otherwise);
    return number >= 0 && number <= UINT32_MAX ? (uint32_t)number : otherwise;
}

static const mica__tensor *find_tensor(const mica__config_back *b, const char *name)
{
    const uint32_t index = mica__archive_find(b->target->archive, name, strlen(name));
    return index == MICA__NO_TENSOR ? NULL : &b->target->archive->tensor[index];
}

static bool has_in_layer(const mica__config_back *b, uint32_t layer, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "blk.%u.%.90s", layer, name);
    return find_tensor(b, full) != NULL;
}

/* ---- members --------------------------------------------------------------------------------------------- */

double mica__back_shortest(double number)
{
    char text[40];
    for (int digits = 6; digits < 10; digits++) {
        double again = 0;
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (sscanf(text, "%lf", &again) == 1 && (float)again == (float)number)
            return again;
    }
    return number;
}

void mica__back_put_real(mica__config_back *b, const char *key, double number)
{
    mica__json_key(&b->json, key);
    mica__json_real(&b->json, mica__back_shortest(number));
}

void mica__back_put_whole(mica__config_back *b, const char *key, uint64_t number)
{
    mica__json_key(&b->json, key);
    mica__json_uint(&b->json, number);
}

void mica__back_put_null(mica__config_back *b, const char *key)
{
    mica__json_key(&b->json, key);
    mica__json_null(&b->json);
}

static void put_truth(mica__config_back *b, const char *key, bool truth)
{
    mica__json_key(&b->json, key);
    mica__json_bool(&b->json, truth);
}

static void put_text(mica__config_back *b, const char *key, const char *text)
{
    mica__json_key(&b->json, key);
    mica__json_string(&b->json, text);
}

/* ---- keys that are the same in both ----------------------------------------------------------------------- */

static const struct {
    const char *hf, *gguf, *families;
} rows[] = {
#define MICA__CONFIG(kind, hf, gguf, families) {hf, gguf, families},
#include "format/config/config.def"
#undef MICA__CONFIG
};

#define ROWS (sizeof rows / sizeof rows[0])

/* Keys of which more is to say than a number: written below, with what mica takes where the file is silent. */
static const char *const own[] = {"num_key_value_heads",
                                  "head_dim",
                                  "rms_norm_eps",
                                  "layer_norm_eps",
                                  "layer_norm_epsilon",
                                  "rope_theta",
                                  "rope_local_base_freq",
                                  "vocab_size",
                                  "max_position_embeddings",
                                  "n_ctx",
                                  "n_positions",
                                  "sliding_window",
                                  "attn_logit_softcapping",
                                  "final_logit_softcapping",
                                  "moe_intermediate_size"};

static bool is_own(const char *hf)
{
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(own[i], hf) == 0)
            return true;
    return false;
}

static bool is_for(size_t row, const char *arch)
{
    char word[64];
    const char *list = rows[row].families;
    snprintf(word, sizeof word, " %.60s ", arch);
    return list[0] == '\0' || (list[0] == '!') == (strstr(list, word) == NULL);
}

/* Whether an earlier row of the architecture has that row's key of either side. */
static bool is_again(size_t row, const char *arch)
{
    for (size_t i = 0; i < row; i++)
        if (is_for(i, arch) &&
            (strcmp(rows[i].gguf, rows[row].gguf) == 0 || strcmp(rows[i].hf, rows[row].hf) == 0))
            return true;
    return false;
}

static mica_status put_rows(mica__config_back *b)
{
    for (size_t i = 0; i < ROWS; i++) {
        const mica_value *value = mica__back_get(b, rows[i].gguf);
        double number = 0;
        if (value == NULL || !is_for(i, b->family->arch) || is_again(i, b->family->arch) ||
            is_own(rows[i].hf))
            continue;
        const bool real = value->type == MICA_VALUE_F32 || value->type == MICA_VALUE_F64;
        if (!value_number(value, &number) || number < 0 || (!real && number > UINT32_MAX))
            return mica__back_refuse(b, rows[i].gguf, "no number that fits, or another one for each layer");
        if (real)
            mica__back_put_real(b, rows[i].hf, number);
        else
            mica__back_put_whole(b, rows[i].hf, (uint64_t)number);
    }
    return MICA_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------------------- */

/* Rows of a table, which must be what config.json says they are; else what a key says. */
static uint64_t table_rows(const mica__config_back *b, const char *name, uint64_t otherwise)
{
    const mica__tensor *table = find_tensor(b, name);
    return table != NULL && table->ndim == 2 ? table->shape[0] : otherwise;
}

static void put_sizes(mica__config_back *b)
{
    const bool gpt2 = mica__back_is(b, "gpt2"), bert = mica__back_is(b, "bert");
    const uint64_t places = table_rows(b, "position_embd.weight", b->context);
    const uint64_t types = (uint64_t)file_number(b, "tokenizer.ggml.token_type_count", 2);
    mica__back_put_whole(b, "vocab_size",
                         table_rows(b, "token_embd.weight", mica__back_whole(b, "vocab_size", 0)));
    if (gpt2)
        mica__back_put_whole(b, "n_ctx", places);
    mica__back_put_whole(b, gpt2 ? "n_positions" : "max_position_embeddings", places);
    mica__back_put_real(
        b,
        gpt2   ? "layer_norm_epsilon"
        : bert ? "layer_norm_eps"
               : "rms_norm_eps",
        mica__back_number(
            b, gpt2 || bert ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5));
    if (bert)
        mica__back_put_whole(b, "type_vocab_size", table_rows(b, "token_types.weight", types));
    if (gpt2 || bert)
        return;
    mica__back_put_whole(b, "num_key_value_heads", mica__back_whole(b, "attention.head_count_kv", b->heads));
    if ((!mica__back_is(b, "phi3") && !mica__back_is(b, "qwen2")) ||
        mica__back_get(b, "attention.key_length") != NULL)
        mica__back_put_whole(b, "head_dim",
                             b->head); /* of which these two take the usual one by themselves */
}

/* Sizes that the class cannot have. */
static mica_status check_sizes(const mica__config_back *b)
{
    const bool no_rope = mica__back_is(b, "gpt2") || mica__back_is(b, "bert");
    if (b->layers == 0 || b->heads == 0 || b->width == 0)
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "%s: \"%s.block_count\", \"embedding_length\" or \"attention.head_count\" is missing, "
            "0, or another one for each layer",
            mica__archive_path(b->target->archive, 0), b->family->arch);
    if (mica__back_whole(b, "attention.value_length", b->head) != b->head)
        return mica__back_refuse(b, "attention.value_length", "another one than that of keys");
    if (no_rope && b->head != b->width / b->heads)
        return mica__back_refuse(b, "attention.key_length", "another one than the heads' share of the width");
    if (!mica__back_is(b, "phi3") && !no_rope && b->rotary != b->head)
        return mica__back_refuse(b, "rope.dimension_count", "a part of a head");
    return MICA_OK;
}

/* ---- windows --------------------------------------------------------------------------------------------- */

/* Whether a layer sees no more than the window: a list says it of each, a number that every so many sees all. */
static bool slides(const mica__config_back *b, uint32_t layer)
{
    const uint32_t usual = mica__back_is(b, "gemma2") ? 2 : mica__back_is(b, "gemma3") ? 6 : 0;
    const mica_value *list = mica__back_get(b, "attention.sliding_window_pattern");
    double truth = 0;
    if (b->window == 0)
        return false;
    if (list != NULL && list->type == MICA_VALUE_ARRAY)
        return layer < list->count && item_number(list, layer, &truth) && truth != 0;
    const uint32_t pattern = mica__back_whole(b, "attention.sliding_window_pattern", usual);
    return pattern == 0 || (layer + 1) % pattern != 0;
}

static void put_layer_types(mica__config_back *b)
{
    mica__json_key(&b->json, "layer_types");
    mica__json_begin_array(&b->json);
    for (uint32_t i = 0; i < b->layers; i++)
        mica__json_string(&b->json, slides(b, i) ? "sliding_attention" : "full_attention");
    mica__json_end_array(&b->json);
}

/* Older programs know no list for Qwen: the layers from some one on slide. */
static void put_first_sliding(mica__config_back *b)
{
    uint32_t first = 0, sliding = 0;
    while (first < b->layers && !slides(b, first))
        first++;
    for (uint32_t i = first; i < b->layers; i++)
        sliding += slides(b, i);
    if (sliding == b->layers - first)
        mica__back_put_whole(b, "max_window_layers", first);
}

/* Mistral, Mixtral and Phi-3 know one window for all layers; Gemma and Qwen say it of each. */
static mica_status put_window(mica__config_back *b)
{
    const bool qwen = strncmp(b->family->arch, "qwen", 4) == 0;
    const bool by_layer = is_gemma(b) || mica__back_is(b, "qwen2") || mica__back_is(b, "qwen3");
    if (mica__back_is(b, "gpt2") || mica__back_is(b, "bert"))
        return b->window == 0 ? MICA_OK : mica__back_refuse(b, "attention.sliding_window", "a window");
    for (uint32_t i = 0; !by_layer && b->window != 0 && i < b->layers; i++)
        if (!slides(b, i))
            return mica__back_refuse(b, "attention.sliding_window_pattern", "a window in some layers");
    if (strcmp(b->model_type, "llama") == 0)
        return MICA_OK;
    if (b->window != 0)
        mica__back_put_whole(b, "sliding_window", b->window);
    else
        mica__back_put_null(b, "sliding_window");
    if (qwen)
        put_truth(b, "use_sliding_window", b->window != 0);
    if (by_layer)
        put_layer_types(b);
    if (qwen && by_layer && b->window != 0)
        put_first_sliding(b);
    return MICA_OK;
}

/* ---- experts --------------------------------------------------------------------------------------------- */

static mica_status put_experts(mica__config_back *b)
{
    const bool normal = mica__back_number(b, "expert_weights_norm", 1) != 0;
    if (mica__back_whole(b, "expert_count", 0) == 0)
        return MICA_OK;
    if (mica__back_number(b, "expert_weights_scale", 1) != 1)
        return mica__back_refuse(b, "expert_weights_scale", "a scale");
    if (!mica__back_is(b, "qwen3moe"))
        return normal ? MICA_OK : mica__back_refuse(b, "expert_weights_norm", "false");
    mica__back_put_whole(
        b, "moe_intermediate_size",
        mica__back_whole(b, "expert_feed_forward_length", mica__back_whole(b, "feed_forward_length", 0)));
    put_truth(b, "norm_topk_prob", normal);
    mica__back_put_whole(b, "decoder_sparse_step", 1);
    mica__json_key(&b->json, "mlp_only_layers");
    mica__json_begin_array(&b->json);
    for (uint32_t i = 0; i < b->layers; i++)
        if (!has_in_layer(b, i, "ffn_gate_inp.weight"))
            mica__json_uint(&b->json, i);
    mica__json_end_array(&b->json);
    return MICA_OK;
}

/* ---- biases ---------------------------------------------------------------------------------------------- */

/* Which classes have a switch for them, have them always, or never. Of each group a layer has all or none. */
static const struct {
    const char *name[4]; /* one group; ends with NULL or is full */
    const char *key, *with_switch, *always;
} biases[] = {
    {{"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias"},
     "attention_bias",
     " llama qwen3 qwen3_moe ",
     " bert "},
    {{"attn_q.bias", "attn_k.bias", "attn_v.bias"}, NULL, "", " qwen2 bert "},
    {{"ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"}, "mlp_bias", " llama ", ""},
    {{"ffn_up.bias", "ffn_down.bias", "attn_output.bias"}, NULL, "", " gpt2 bert "},
    {{"attn_qkv.bias"}, NULL, "", " gpt2 "},
};

static bool is_in(const char *list, const char *word)
{
    char marked[64];
    snprintf(marked, sizeof marked, " %.60s ", word);
    return strstr(list, marked) != NULL;
}

/* How many of a group a layer has; *out_of: how many it has matrices for. */
static uint32_t count_biases(const mica__config_back *b, size_t group, uint32_t layer, uint32_t *out_of)
{
    uint32_t found = 0;
    *out_of = 0;
    for (size_t i = 0; i < 4 && biases[group].name[i] != NULL; i++) {
        char matrix[40];
        const char *name = biases[group].name[i];
        snprintf(matrix, sizeof matrix, "%.*sweight", (int)(strlen(name) - 4), name);
        found += has_in_layer(b, layer, name);
        *out_of += has_in_layer(b, layer, matrix);
    }
    return found;
}

/* The first bias of a layer for which no group of the class stands. */
static const char *stray_bias(const mica__config_back *b, uint32_t layer)
{
    for (size_t g = 0; g < sizeof biases / sizeof biases[0]; g++)
        for (size_t i = 0; i < 4 && biases[g].name[i] != NULL; i++) {
            bool placed = !has_in_layer(b, layer, biases[g].name[i]);
            for (size_t k = 0; k < sizeof biases / sizeof biases[0] && !placed; k++)
                for (size_t n = 0; n < 4 && biases[k].name[n] != NULL && !placed; n++)
                    placed = strcmp(biases[k].name[n], biases[g].name[i]) == 0 &&
                             (is_in(biases[k].with_switch, b->model_type) ||
                              is_in(biases[k].always, b->model_type));
            if (!placed)
                return biases[g].name[i];
        }
    return NULL;
}

static mica_status put_biases(mica__config_back *b)
{
    for (uint32_t layer = 0; layer < b->layers; layer++) {
        const char *stray = stray_bias(b, layer);
        if (stray != NULL)
            return mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"blk.%u.%s\": a %s has no place for it", layer,
                              stray, b->architecture);
    }
    for (size_t g = 0; g < sizeof biases / sizeof biases[0]; g++) {
        const bool always = is_in(biases[g].always, b->model_type);
        uint32_t all = 0;
        if (!always && !is_in(biases[g].with_switch, b->model_type))
            continue;
        const bool wanted = always || count_biases(b, g, 0, &all) != 0;
        for (uint32_t layer = 0; layer < b->layers; layer++)
            if (count_biases(b, g, layer, &all) != (wanted ? all : 0))
                return mica__fail(MICA_ERR_UNSUPPORTED,
                                  "layer %u has not all or none of \"%s\" and its like, as a %s must", layer,
                                  biases[g].name[0], b->architecture);
        if (biases[g].key != NULL && !always)
            put_truth(b, biases[g].key, wanted);
    }
    return MICA_OK;
}

/* ---- the rest -------------------------------------------------------------------------------------------- */

/* GGUF has a factor; where it is silent, mica scales by the head, but in the largest models by its share of the width. */
static mica_status put_scalar(mica__config_back *b)
{
    const double scale = mica__back_number(b, "attention.scale", 0);
    const bool largest = b->layers == (mica__back_is(b, "gemma2") ? 46 : 62);
    const double scalar = scale > 0 ? 1 / (scale * scale) : largest ? b->width / b->heads : b->head;
    if (!(scalar < 0x1p53))
        return mica__back_refuse(b, "attention.scale", "next to nothing");
    if (fabs(scalar - nearbyint(scalar)) < 1e-6 * scalar) /* it was whole before its root was rounded */
        mica__back_put_whole(b, "query_pre_attn_scalar", (uint64_t)nearbyint(scalar));
    else {
        mica__json_key(&b->json, "query_pre_attn_scalar");
        mica__json_real(&b->json, scalar);
    }
    return MICA_OK;
}

static mica_status check_scale(const mica__config_back *b)
{
    const double scale = mica__back_number(b, "attention.scale", 0), usual = 1 / sqrt((double)b->head);
    return scale <= 0 || fabs(scale - usual) < 1e-6 * usual
               ? MICA_OK
               : mica__back_refuse(b, "attention.scale", "another one than the root of a head's size");
}

/* Above 0, or none. */
static mica_status put_caps(mica__config_back *b)
{
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    for (size_t i = 0; i < 2; i++) {
        const double cap = mica__back_number(b, caps[i], 0);
        if (!is_gemma(b) && cap > 0)
            return mica__back_refuse(b, caps[i], "a cap");
        if (is_gemma(b) && cap > 0)
            mica__back_put_real(b, caps[i], cap);
        else if (is_gemma(b))
            mica__back_put_null(b, caps[i]);
    }
    return MICA_OK;
}

/* A GGUF has HF's words for it; where it is silent it is the family's. */
static mica_status put_activation(mica__config_back *b)
{
    static const char *const words[] = {"silu", "gelu_pytorch_tanh", "gelu_new", "gelu"};
    const bool gpt2 = mica__back_is(b, "gpt2");
    const char *key = gpt2 ? "activation_function" : is_gemma(b) ? "hidden_activation" : "hidden_act";
    const mica_value *said = mica__back_get(b, "hidden_activation");
    if (said == NULL) {
        put_text(b, key,
                 gpt2                       ? "gelu_new"
                 : is_gemma(b)              ? "gelu_pytorch_tanh"
                 : mica__back_is(b, "bert") ? "gelu"
                                            : "silu");
        return MICA_OK;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (said->type == MICA_VALUE_STRING && strcmp(said->as.string.data, words[i]) == 0) {
            put_text(b, key, words[i]);
            return MICA_OK;
        }
    return mica__back_refuse(b, "hidden_activation", "a word that mica does not know");
}

/* GPT-2 may leave its scores as they are, or divide those of each layer by its number. */
static mica_status put_gpt2_scales(mica__config_back *b)
{
    const bool plain = mica__back_number(b, "attention.scale", 0) == 1 && b->head != 1;
    put_truth(b, "scale_attn_weights", !plain);
    put_truth(b, "scale_attn_by_inverse_layer_idx",
              mica__back_number(b, "attention.scale_by_inverse_layer", 0) != 0);
    return plain ? MICA_OK : check_scale(b);
}

static mica_status put_habits(mica__config_back *b)
{
    const bool bert = mica__back_is(b, "bert");
    if (!bert)
        put_truth(b, "tie_word_embeddings", find_tensor(b, "output.weight") == NULL);
    if ((mica__back_number(b, "attention.causal", !bert) != 0) == bert)
        return mica__back_refuse(b, "attention.causal", bert ? "true" : "false");
    if (mica__back_is(b, "gpt2"))
        return put_gpt2_scales(b);
    if (mica__back_number(b, "attention.scale_by_inverse_layer", 0) != 0)
        return mica__back_refuse(b, "attention.scale_by_inverse_layer", "true");
    if (!is_gemma(b))
        return check_scale(b);
    return put_scalar(b);
}

static void put_tokens(mica__config_back *b)
{
    static const struct {
        const char *hf, *gguf;
    } keys[] = {{"bos_token_id", "tokenizer.ggml.bos_token_id"},
                {"eos_token_id", "tokenizer.ggml.eos_token_id"},
                {"pad_token_id", "tokenizer.ggml.padding_token_id"}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const double number = file_number(b, keys[i].gguf, -1);
        if (number >= 0)
            mica__back_put_whole(b, keys[i].hf, (uint64_t)number);
        else
            mica__back_put_null(b, keys[i].hf);
    }
}

/* Keys behind the architecture that are written, looked at here or in rope_back.c, or say nothing about numbers. */
static const char *const known[] = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "expert_count",
    "expert_used_count",
    "expert_feed_forward_length",
    "expert_weights_norm",
    "expert_weights_scale",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.scale",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.causal",
    "attention.scale_by_inverse_layer",
    "hidden_activation",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "pooling_type",
    "tensor_data_layout",
};

/* Others that say nothing where they are 1; any does where it is 0 or false. */
static const char *const neutral[] = {"attention.output_scale", "expert_gating_func", "expert_group_count",
                                      "expert_group_used_count"};

static bool says_nothing(const mica_value *value)
{
    double number = 1;
    return value_number(value, &number) && number == 0;
}

static mica_status check_known(const mica__config_back *b)
{
    const mica__archive *archive = b->target->archive;
    const size_t length = strlen(b->family->arch);
    for (uint32_t i = 0; i < archive->meta_count; i++) {
        const char *key = archive->meta[i].key.data;
        bool found = strncmp(key, b->family->arch, length) != 0 || key[length] != '.';
        for (size_t k = 0; k < sizeof known / sizeof known[0] && !found; k++)
            found = strcmp(key + length + 1, known[k]) == 0;
        for (size_t k = 0; k < sizeof neutral / sizeof neutral[0] && !found; k++)
            found = strcmp(key + length + 1, neutral[k]) == 0 && mica__back_number(b, neutral[k], 0) == 1;
        found = found || says_nothing(&archive->meta[i].value);
        if (!found)
            return mica__back_refuse(b, key + length + 1, "a key that mica does not know");
    }
    return MICA_OK;
}

/* GGUF has one word for Llama, Mistral and Mixtral: experts are Mixtral's, a window is Mistral's. */
static void find_class(mica__config_back *b)
{
    b->architecture = b->family->architecture;
    b->model_type = b->family->model_type;
    if (!mica__back_is(b, "llama"))
        return;
    if (mica__back_whole(b, "expert_count", 0) != 0) {
        b->architecture = "MixtralForCausalLM";
        b->model_type = "mixtral";
    } else if (b->window != 0) {
        b->architecture = "MistralForCausalLM";
        b->model_type = "mistral";
    }
}

static void read_sizes(mica__config_back *b)
{
    b->layers = mica__back_whole(b, "block_count", 0);
    b->width = mica__back_whole(b, "embedding_length", 0);
    b->heads = mica__back_whole(b, "attention.head_count", 0);
    b->context = mica__back_whole(b, "context_length", 0);
    b->head = mica__back_whole(b, "attention.key_length", b->heads != 0 ? b->width / b->heads : 0);
    b->rotary = mica__back_whole(b, "rope.dimension_count", b->head);
    b->window = mica__back_whole(b, "attention.sliding_window", 0);
}

static mica_status put_all(mica__config_back *b, bool *out_factors)
{
    mica_status status = put_rows(b);
    put_sizes(b);
    if (status == MICA_OK)
        status = put_window(b);
    if (status == MICA_OK)
        status = put_experts(b);
    if (status == MICA_OK)
        status = put_biases(b);
    if (status == MICA_OK)
        status = mica__rope_from_gguf(b, out_factors);
    if (status == MICA_OK)
        status = put_caps(b);
    if (status == MICA_OK)
        status = put_activation(b);
    if (status == MICA_OK)
        status = put_habits(b);
    put_tokens(b);
    return status;
}

static mica_status finish(mica__target *target, mica__json_writer *json, mica_status status,
                          const char **out_text)
{
    char *text = NULL;
    size_t length = 0;
    mica__json_end_object(json);
    if (status != MICA_OK) {
        mica__json_writer_discard(json);
        return status;
    }
    MICA__TRY(mica__json_writer_finish(json, &text, &length));
    *out_text = mica__target_text(target, "%s\n", text);
    mica__free(text);
    return *out_text == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
}

mica_status mica__config_from_gguf(mica__target *target, const mica__name_family *family,
                                   const char **out_text, bool *out_factors)
{
    mica__config_back b = {.target = target, .family = family};
    read_sizes(&b);
    find_class(&b);
    mica_status status = check_sizes(&b);
    if (status == MICA_OK)
        status = mica__limit_check("layers", mica__limits()->layers, b.layers);
    if (status == MICA_OK)
        status = check_known(&b);
    if (status != MICA_OK)
        return status;
    mica__json_writer_init(&b.json);
    mica__json_begin_object(&b.json);
    mica__json_key(&b.json, "architectures");
    mica__json_begin_array(&b.json);
    mica__json_string(&b.json, b.architecture);
    mica__json_end_array(&b.json);
    put_text(&b, "model_type", b.model_type);
    return finish(target, &b.json, put_all(&b, out_factors), out_text);
}
