/* config_map.c - config.json to metadata. Rotary scaling is in rope_map.c; the way back is config_back.c. */
#include "format/config/config_map.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct config_row {
    mica_value_type type;
    const char *hf, *gguf, *families;
} config_row;

static const config_row rows[] = {
#define MICA__CONFIG(kind, hf, gguf, families) {MICA_VALUE_##kind, hf, gguf, families},
#include "format/config/config.def"
#undef MICA__CONFIG
};

#define ROWS (sizeof rows / sizeof rows[0])

/* What config.json must say, in GGUF's words. */
static const char *const needed[] = {"block_count", "context_length", "embedding_length",
                                     "feed_forward_length", "attention.head_count"};

static bool is_for(const config_row *row, const char *arch)
{
    return mica__name_family_listed(row->families, arch);
}

static const mica__json_node *present(const mica__json_node *node)
{
    return node == NULL || node->type == MICA__JSON_NULL ? NULL : node;
}

const mica__json_node *mica__config_get(const mica__json *json, const char *key)
{
    static const char *const inside[] = {"text_config", "rope_parameters"};
    const mica__json_node *root = mica__json_root(json), *node = present(mica__json_get(json, root, key));
    for (size_t i = 0; node == NULL && i < 2; i++) {
        const mica__json_node *place = mica__json_get(json, root, inside[i]);
        node = present(mica__json_get(json, place, key));
        if (node == NULL && i == 0) {
            place = mica__json_get(json, place, inside[1]);
            node = present(mica__json_get(json, place, key));
        }
        if (node == NULL) /* a rope for each kind of layer */
            node = present(mica__json_get(json, mica__json_get(json, place, "full_attention"), key));
    }
    return node;
}

bool mica__config_has(const mica__json *json, const char *key)
{
    const mica__json_node *root = mica__json_root(json);
    return mica__json_get(json, root, key) != NULL ||
           mica__json_get(json, mica__json_get(json, root, "text_config"), key) != NULL;
}

/* ---- to GGUF -------------------------------------------------------------------------------------------- */

const char *mica__config_default(const mica__config *c, const char *key)
{
    const mica__key_row *row = mica__key_find(c->key_class, key);
    const bool has = row != NULL && (row->verdict == MICA__KEY_READ || row->verdict == MICA__KEY_MAY);
    return has && !mica__config_has(c->json, key) ? row->detail : "";
}

const mica__json_node *mica__config_read(const mica__config *c, const char *key)
{
    const mica__key_row *row = mica__key_find(c->key_class, key);
    const bool is_read = row != NULL && (row->verdict == MICA__KEY_READ || row->verdict == MICA__KEY_MAY);
    return is_read ? mica__config_get(c->json, key) : NULL;
}

mica_status mica__config_bool(const mica__config *c, const char *key, bool *out)
{
    const mica__json_node *node = mica__config_read(c, key);
    char what[128];
    *out = strcmp(mica__config_default(c, key), "true") == 0;
    snprintf(what, sizeof what, "config.json: %s", key);
    return node == NULL ? MICA_OK : mica__json_as_bool(node, what, out);
}

mica_status mica__config_u32(const mica__config *c, const char *key, uint32_t least, uint32_t *out)
{
    const mica__json_node *node = mica__config_read(c, key);
    uint64_t number = 0;
    char what[128];
    *out = (uint32_t)strtoul(mica__config_default(c, key), NULL, 10);
    if (node == NULL)
        return MICA_OK;
    snprintf(what, sizeof what, "config.json: %s", key);
    const mica_status status = mica__json_as_uint(node, what, least, UINT32_MAX, &number);
    *out = (uint32_t)number;
    return status;
}

static mica_status set_row(mica__target *target, const config_row *row, const char *arch,
                           const mica__json_node *node)
{
    char *key = mica__target_text(target, "%s.%s", arch, row->gguf);
    char what[128];
    uint64_t number = 0;
    double real = 0;
    mica_status status;
    if (key == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (mica__target_get(target, key) != NULL)
        return MICA_OK;
    snprintf(what, sizeof what, "config.json: %s", row->hf);
    if (row->type == MICA_VALUE_F32) {
        status = mica__json_as_double(node, what, -3e38, 3e38, &real);
        return status == MICA_OK ? mica__target_set_f32(target, key, real) : status;
    }
    status = mica__json_as_uint(node, what, 0, UINT32_MAX, &number);
    return status == MICA_OK ? mica__target_set_u32(target, key, number) : status;
}

static mica_status set_default(mica__target *target, const char *arch, const char *gguf, mica_value_type type,
                               double number)
{
    char *key = mica__target_text(target, "%s.%s", arch, gguf);
    if (key == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (mica__target_get(target, key) != NULL)
        return MICA_OK;
    return type == MICA_VALUE_F32 ? mica__target_set_f32(target, key, number)
                                  : mica__target_set_u32(target, key, (uint64_t)number);
}

/* The rows of config.def: first what config.json has, then what its class has where config.json is silent. */
static mica_status set_rows(const mica__config *c)
{
    const char *arch = c->family->arch;
    mica_status status = MICA_OK;
    for (size_t i = 0; i < ROWS && status == MICA_OK; i++) {
        const mica__json_node *node = is_for(&rows[i], arch) ? mica__config_get(c->json, rows[i].hf) : NULL;
        const mica__key_row *row = mica__key_find(c->key_class, rows[i].hf);
        if (node != NULL && row != NULL && row->verdict != MICA__KEY_ONLY) /* such a one was passed over */
            status = set_row(c->target, &rows[i], arch, node);
    }
    for (size_t i = 0; i < ROWS && status == MICA_OK; i++) {
        const char *text = is_for(&rows[i], arch) ? mica__config_default(c, rows[i].hf) : "";
        if (text[0] != '\0')
            status = set_default(c->target, arch, rows[i].gguf, rows[i].type, strtod(text, NULL));
    }
    return status;
}

static uint64_t get(const mica__target *target, const char *arch, const char *gguf)
{
    char key[160];
    snprintf(key, sizeof key, "%.60s.%.90s", arch, gguf);
    return mica__target_get_number(target, key, 0);
}

/* The width of a head by which Gemma's scores are scaled where GGUF does not say it: that of its heads, but in the largest
 * models, known by their layers, that of heads that share the model's width. */
static uint64_t gemma_scalar(const char *arch, uint64_t layers, uint64_t width, uint64_t heads, uint64_t head)
{
    const bool largest = layers == (strcmp(arch, "gemma2") == 0 ? 46 : 62);
    return largest && heads != 0 ? width / heads : head;
}

/* query_pre_attn_scalar, which GGUF has as a factor; nothing where it says nothing new. */
static mica_status set_gemma(const mica__config *c)
{
    const char *arch = c->family->arch;
    mica__target *target = c->target;
    const mica__json_node *node = mica__config_get(c->json, "query_pre_attn_scalar");
    const uint64_t usual =
        gemma_scalar(arch, get(target, arch, "block_count"), get(target, arch, "embedding_length"),
                     get(target, arch, "attention.head_count"), get(target, arch, "attention.key_length"));
    double scalar = strtod(mica__config_default(c, "query_pre_attn_scalar"), NULL);
    mica_status status = MICA_OK;
    if (node != NULL)
        status = mica__json_as_double(node, "config.json: query_pre_attn_scalar", 1e-6, 1e12, &scalar);
    if (status == MICA_OK && scalar != (double)usual)
        status = set_default(target, arch, "attention.scale", MICA_VALUE_F32, 1 / sqrt(scalar));
    /* Without these two keys a GGUF has caps of 50 and 30: that there are none must be said. */
    if (status == MICA_OK && strcmp(arch, "gemma2") == 0)
        status = set_default(target, arch, "attn_logit_softcapping", MICA_VALUE_F32, 0);
    if (status == MICA_OK && strcmp(arch, "gemma2") == 0)
        status = set_default(target, arch, "final_logit_softcapping", MICA_VALUE_F32, 0);
    return status;
}

static mica_status set_bool(const mica__config *c, const char *gguf, bool truth)
{
    char *key = mica__target_text(c->target, "%s.%s", c->family->arch, gguf);
    return key == NULL ? MICA_ERR_OUT_OF_MEMORY : mica__target_set_bool(c->target, key, truth);
}

static mica_status set_gpt2(const mica__config *c)
{
    const char *arch = c->family->arch;
    bool scaled = true, by_layer = false;
    mica_status status = set_default(c->target, arch, "feed_forward_length", MICA_VALUE_U32,
                                     4.0 * (double)get(c->target, arch, "embedding_length"));
    if (status == MICA_OK)
        status = mica__config_bool(c, "scale_attn_weights", &scaled);
    if (status == MICA_OK && !scaled)
        status = set_default(c->target, arch, "attention.scale", MICA_VALUE_F32, 1);
    if (status == MICA_OK)
        status = mica__config_bool(c, "scale_attn_by_inverse_layer_idx", &by_layer);
    return status == MICA_OK && by_layer ? set_bool(c, "attention.scale_by_inverse_layer", true) : status;
}

/* GGUF's programs weigh the chosen experts to a sum of one where no key says otherwise. */
static mica_status set_experts(const mica__config *c)
{
    bool normal = true;
    const mica_status status = mica__config_bool(c, "norm_topk_prob", &normal);
    return status == MICA_OK && !normal ? set_bool(c, "expert_weights_norm", false) : status;
}

/* The three activations there are, by all their names; each has one that is written. */
static const char *activation_of(const char *name)
{
    static const struct {
        const char *name, *written;
    } names[] = {{"silu", "silu"},
                 {"swish", "silu"},
                 {"gelu_pytorch_tanh", "gelu_pytorch_tanh"},
                 {"gelu_new", "gelu_pytorch_tanh"},
                 {"gelu_fast", "gelu_pytorch_tanh"},
                 {"gelu_accurate", "gelu_pytorch_tanh"},
                 {"gelu_python_tanh", "gelu_pytorch_tanh"},
                 {"gelu", "gelu"},
                 {"gelu_python", "gelu"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].written;
    return NULL;
}

/* Says the activation where it is not the family's. Without a gate there is no silu. */
static mica_status set_activation(const mica__config *c)
{
    static const char *const keys[] = {"hidden_act", "activation_function", "hidden_activation"};
    const char *arch = c->family->arch;
    const bool gated = strcmp(arch, "gpt2") != 0 && strcmp(arch, "bert") != 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const mica__key_row *row = mica__key_find(c->key_class, keys[i]);
        const mica__json_node *node = mica__config_get(c->json, keys[i]);
        if (row == NULL || row->verdict != MICA__KEY_READ || node == NULL)
            continue;
        const char *found = node->type == MICA__JSON_STRING && node->string.data != NULL
                                ? activation_of(node->string.data)
                                : NULL;
        if (found == NULL || (!gated && strcmp(found, "silu") == 0))
            return mica__fail(MICA_ERR_UNSUPPORTED,
                              "config.json: \"%s\" is \"%.60s\"; a %s model is run with %sgelu, "
                              "gelu_new or gelu_pytorch_tanh",
                              keys[i], node->type == MICA__JSON_STRING ? node->string.data : "", c->key_class,
                              gated ? "silu, " : "");
        if (strcmp(found, activation_of(row->detail)) == 0)
            return MICA_OK;
        return mica__target_set_string(c->target, mica__target_text(c->target, "%s.hidden_activation", arch),
                                       found);
    }
    return MICA_OK;
}

/* What follows from the rest. */
static mica_status set_derived(const mica__config *c)
{
    const char *arch = c->family->arch;
    const uint64_t width = get(c->target, arch, "embedding_length"),
                   heads = get(c->target, arch, "attention.head_count");
    const uint64_t head = get(c->target, arch, "attention.key_length");
    mica_status status = MICA_OK;
    if (strcmp(arch, "gpt2") == 0)
        status = set_gpt2(c);
    if (strcmp(arch, "llama") == 0 && heads != 0)
        status = set_default(c->target, arch, "rope.dimension_count", MICA_VALUE_U32,
                             (double)(head != 0 ? head : width / heads));
    if (strcmp(arch, "bert") == 0)
        status = set_bool(c, "attention.causal", false);
    if (strcmp(arch, "qwen3moe") == 0)
        status = set_experts(c);
    if (strncmp(arch, "gemma", 5) == 0)
        status = set_gemma(c);
    return status;
}

/* A bias that config.json says is not there would be left out by others. */
static mica_status check_biases(const mica__config *c)
{
    static const struct {
        const char *key, *part;
    } parts[] = {{"attention_bias", ".self_attn."}, {"mlp_bias", ".mlp."}};
    const mica__archive *archive = c->target->archive;
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        bool said = false;
        const mica_status status = mica__config_bool(c, parts[p].key, &said);
        if (status != MICA_OK)
            return status;
        if (said || mica__key_find(c->key_class, parts[p].key) == NULL) /* or the class has biases always */
            continue;
        for (uint32_t i = 0; i < archive->visible_count; i++) {
            const char *name = archive->tensor[i].name;
            const size_t length = strlen(name);
            if (length > 5 && strcmp(name + length - 5, ".bias") == 0 && strstr(name, parts[p].part) != NULL)
                return mica__fail(MICA_ERR_UNSUPPORTED,
                                  "tensor \"%.120s\" is a bias, but \"%s\" of config.json is not true", name,
                                  parts[p].key);
        }
    }
    return MICA_OK;
}

/* A model that writes text has a head, or says that it is the embedding. One without architectures is taken for one. */
static mica_status check_head(const mica__config *c)
{
    const mica__json_node *list = mica__json_get(c->json, mica__json_root(c->json), "architectures");
    const mica__json_node *name = list == NULL ? NULL : mica__json_first(list);
    const char *word = name != NULL && name->type == MICA__JSON_STRING ? name->string.data : "For";
    const mica__archive *archive = c->target->archive;
    bool tied = c->family->tied;
    mica_status status = MICA_OK;
    if (mica__config_get(c->json, "tie_word_embeddings") != NULL)
        status = mica__config_bool(c, "tie_word_embeddings", &tied);
    if (status != MICA_OK || tied || strcmp(c->family->arch, "bert") == 0 ||
        (strstr(word, "For") == NULL && strstr(word, "LMHead") == NULL))
        return status;
    for (uint32_t i = 0; i < archive->visible_count; i++)
        if (strstr(archive->tensor[i].name, "lm_head.weight") != NULL)
            return MICA_OK;
    return mica__fail(
        MICA_ERR_MALFORMED_FILE,
        "there is no tensor \"lm_head.weight\", and \"tie_word_embeddings\" of config.json is not "
        "true");
}

static mica_status check_needed(const mica__target *target, const char *arch)
{
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (get(target, arch, needed[i]) != 0)
            continue;
        for (size_t r = 0; r < ROWS; r++)
            if (strcmp(rows[r].gguf, needed[i]) == 0 && is_for(&rows[r], arch))
                return mica__fail(MICA_ERR_MALFORMED_FILE, "config.json: no \"%s\", which a %s model needs",
                                  rows[r].hf, arch);
    }
    return MICA_OK;
}

mica_status mica__config_to_gguf(mica__target *target, const mica__json *json,
                                 const mica__name_family *family)
{
    mica__config c = {target, json, family, NULL};
    mica_status status = mica__key_class(json, family, &c.key_class);
    if (status == MICA_OK)
        status = mica__keys_check(json, c.key_class, &target->accepted);
    if (status != MICA_OK)
        return status;
    c.key_class = mica__key_text_class(c.key_class);
    status = set_rows(&c);
    if (status == MICA_OK)
        status = set_derived(&c);
    if (status == MICA_OK)
        status = set_activation(&c);
    if (status == MICA_OK)
        status = check_needed(target, family->arch);
    if (status == MICA_OK)
        status = mica__window_to_gguf(&c);
    if (status == MICA_OK)
        status = check_biases(&c);
    return status == MICA_OK ? check_head(&c) : status;
}
