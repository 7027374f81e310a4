/* config_map.c - config.json to metadata. Rotary scaling is in rope_map.c; the way back is config_back.c. */
#include "format/config_map.h"

#include <math.h>
#include <stdio.h>
#include <string.h>


typedef struct config_row {
    mica_value_type type;
    const char *hf, *gguf, *families;
} config_row;

static const config_row rows[] = {
#define MICA__CONFIG(kind, hf, gguf, families) {MICA_VALUE_##kind, hf, gguf, families},
#include "format/config.def"
#undef MICA__CONFIG
};

#define ROWS (sizeof rows / sizeof rows[0])

/* What a family's models have where config.json is silent. */
static const struct {
    const char *arch, *gguf;
    double number;
    mica_value_type type;
} defaults[] = {
    {"gemma3", "context_length", 131072, MICA_VALUE_U32},
    {"gemma3", "attention.head_count", 8, MICA_VALUE_U32},
    {"gemma3", "attention.head_count_kv", 4, MICA_VALUE_U32},
    {"gemma3", "attention.key_length", 256, MICA_VALUE_U32},
    {"gemma3", "attention.value_length", 256, MICA_VALUE_U32},
    {"gemma3", "attention.layer_norm_rms_epsilon", 1e-6, MICA_VALUE_F32},
    {"gemma3", "rope.freq_base", 1e6, MICA_VALUE_F32},
    {"phi3", "attention.sliding_window", 0, MICA_VALUE_U32},
    {"bert", "attention.layer_norm_epsilon", 1e-12, MICA_VALUE_F32},
};

/* What config.json must say, in GGUF's words. */
static const char *const needed[] = {"block_count", "context_length", "embedding_length",
                                     "feed_forward_length", "attention.head_count"};

static bool is_for(const config_row *row, const char *arch)
{
    char word[64];
    const char *list = row->families;
    snprintf(word, sizeof word, " %.60s ", arch);
    return list[0] == '\0' || (list[0] == '!') == (strstr(list, word) == NULL);
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

/* ---- to GGUF -------------------------------------------------------------------------------------------- */

static mica_status set_row(mica__plan *plan, const config_row *row, const char *arch,
                           const mica__json_node *node)
{
    char *key = mica__plan_text(plan, "%s.%s", arch, row->gguf);
    char what[128];
    uint64_t number = 0;
    double real = 0;
    mica_status status;
    if (key == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (mica__plan_get(plan, key) != NULL)
        return MICA_OK;
    snprintf(what, sizeof what, "config.json: %s", row->hf);
    if (row->type == MICA_VALUE_F32) {
        status = mica__json_as_double(node, what, -3e38, 3e38, &real);
        return status == MICA_OK ? mica__plan_set_f32(plan, key, real) : status;
    }
    status = mica__json_as_uint(node, what, 0, UINT32_MAX, &number);
    return status == MICA_OK ? mica__plan_set_u32(plan, key, number) : status;
}

static mica_status set_default(mica__plan *plan, const char *arch, const char *gguf, mica_value_type type,
                               double number)
{
    char *key = mica__plan_text(plan, "%s.%s", arch, gguf);
    if (key == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (mica__plan_get(plan, key) != NULL)
        return MICA_OK;
    return type == MICA_VALUE_F32 ? mica__plan_set_f32(plan, key, number)
                                  : mica__plan_set_u32(plan, key, (uint64_t)number);
}

static uint64_t get(const mica__plan *plan, const char *arch, const char *gguf)
{
    char key[160];
    snprintf(key, sizeof key, "%.60s.%.90s", arch, gguf);
    return mica__plan_get_number(plan, key, 0);
}

/* The width of a head by which Gemma's scores are scaled where GGUF does not say it: that of its heads, but in the largest
 * models, known by their layers, that of heads that share the model's width. */
static uint64_t gemma_scalar(const char *arch, uint64_t layers, uint64_t width, uint64_t heads, uint64_t head)
{
    const bool largest = layers == (strcmp(arch, "gemma2") == 0 ? 46 : 62);
    return largest && heads != 0 ? width / heads : head;
}

/* query_pre_attn_scalar, which GGUF has as a factor; nothing where it says nothing new. */
static mica_status set_scale(mica__plan *plan, const mica__json *json, const char *arch)
{
    const mica__json_node *node = mica__config_get(json, "query_pre_attn_scalar");
    const uint64_t usual =
        gemma_scalar(arch, get(plan, arch, "block_count"), get(plan, arch, "embedding_length"),
                     get(plan, arch, "attention.head_count"), get(plan, arch, "attention.key_length"));
    double scalar = 0;
    if (node == NULL || strncmp(arch, "gemma", 5) != 0)
        return MICA_OK;
    mica_status status =
        mica__json_as_double(node, "config.json: query_pre_attn_scalar", 1e-6, 1e12, &scalar);
    if (status != MICA_OK || scalar == (double)usual)
        return status;
    return set_default(plan, arch, "attention.scale", MICA_VALUE_F32, 1 / sqrt(scalar));
}

/* What follows from the rest. */
static mica_status set_derived(mica__plan *plan, const char *arch)
{
    const uint64_t width = get(plan, arch, "embedding_length"),
                   heads = get(plan, arch, "attention.head_count");
    const uint64_t head = get(plan, arch, "attention.key_length");
    mica_status status = MICA_OK;
    if (strcmp(arch, "gpt2") == 0)
        status = set_default(plan, arch, "feed_forward_length", MICA_VALUE_U32, 4.0 * (double)width);
    if (strcmp(arch, "llama") == 0 && heads != 0)
        status = set_default(plan, arch, "rope.dimension_count", MICA_VALUE_U32,
                             (double)(head != 0 ? head : width / heads));
    if (strcmp(arch, "bert") == 0) {
        char *key = mica__plan_text(plan, "%s.attention.causal", arch);
        status = mica__plan_set_bool(plan, key, false);
    }
    return status;
}

static mica_status check_needed(const mica__plan *plan, const char *arch)
{
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (get(plan, arch, needed[i]) != 0)
            continue;
        for (size_t r = 0; r < ROWS; r++)
            if (strcmp(rows[r].gguf, needed[i]) == 0 && is_for(&rows[r], arch))
                return mica__fail(MICA_ERR_MALFORMED_FILE, "config.json: no \"%s\", which a %s model needs",
                                  rows[r].hf, arch);
    }
    return MICA_OK;
}

mica_status mica__config_to_gguf(mica__plan *plan, const mica__json *json, const mica__family *family)
{
    mica_status status = MICA_OK;
    for (size_t i = 0; i < ROWS && status == MICA_OK; i++) {
        const mica__json_node *node =
            is_for(&rows[i], family->arch) ? mica__config_get(json, rows[i].hf) : NULL;
        if (node != NULL)
            status = set_row(plan, &rows[i], family->arch, node);
    }
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0] && status == MICA_OK; i++)
        if (strcmp(defaults[i].arch, family->arch) == 0)
            status = set_default(plan, family->arch, defaults[i].gguf, defaults[i].type, defaults[i].number);
    if (status == MICA_OK)
        status = set_derived(plan, family->arch);
    if (status == MICA_OK)
        status = set_scale(plan, json, family->arch);
    return status == MICA_OK ? check_needed(plan, family->arch) : status;
}
