/* family.c - the table of families, and names against patterns. */
#include "format/config/family.h"

#include "base/status.h"
#include "mica/format.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define MICA__NAME(hf, gguf, how) {hf, gguf, MICA__HOW_##how},
static const mica__name_row llama[] = {
#include "format/config/names_llama.def"
};
static const mica__name_row qwen[] = {
#include "format/config/names_qwen.def"
};
static const mica__name_row gemma[] = {
#include "format/config/names_gemma.def"
};
static const mica__name_row phi[] = {
#include "format/config/names_phi.def"
};
static const mica__name_row gpt2[] = {
#include "format/config/names_gpt2.def"
};
static const mica__name_row bert[] = {
#include "format/config/names_bert.def"
};
#undef MICA__NAME

#define ROWS(table) (table), sizeof(table) / sizeof(table)[0]

static const mica__name_family families[] = {
    {"llama",
     "LlamaForCausalLM",
     "llama",
     " llama mistral mixtral ",
     {"MistralForCausalLM", "MixtralForCausalLM", "LlamaModel", "MistralModel", "MixtralModel"},
     "model.",
     NULL,
     ROWS(llama),
     false},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", " qwen2 ", {"Qwen2Model"}, "model.", NULL, ROWS(qwen), false},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", " qwen3 ", {"Qwen3Model"}, "model.", NULL, ROWS(qwen), false},
    {"qwen3moe",
     "Qwen3MoeForCausalLM",
     "qwen3_moe",
     " qwen3_moe ",
     {"Qwen3MoeModel"},
     "model.",
     NULL,
     ROWS(qwen),
     false},
    {"gemma2", "Gemma2ForCausalLM", "gemma2", " gemma2 ", {"Gemma2Model"}, "model.", NULL, ROWS(gemma), true},
    {"gemma3",
     "Gemma3ForCausalLM",
     "gemma3_text",
     " gemma3_text gemma3 ",
     {"Gemma3ForConditionalGeneration", "Gemma3TextModel"},
     "model.",
     "language_model.",
     ROWS(gemma),
     true},
    {"phi3", "Phi3ForCausalLM", "phi3", " phi3 ", {"Phi3Model"}, "model.", NULL, ROWS(phi), false},
    {"gpt2", "GPT2LMHeadModel", "gpt2", " gpt2 ", {"GPT2Model"}, "transformer.", NULL, ROWS(gpt2), true},
    {"bert",
     "BertModel",
     "bert",
     " bert ",
     {"BertForMaskedLM", "BertForSequenceClassification", "BertForPreTraining"},
     "",
     "bert.",
     ROWS(bert),
     true},
};

#define FAMILIES (sizeof families / sizeof families[0])

bool mica__name_family_listed(const char *list, const char *word)
{
    char whole[64];
    snprintf(whole, sizeof whole, " %.60s ", word);
    return list[0] == '\0' || (list[0] == '!') == (strstr(list, whole) == NULL);
}

const mica__name_family *mica__name_family_of_hf(const char *architecture)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        if (strcmp(families[i].architecture, architecture) == 0 ||
            mica__name_family_listed(families[i].classes, architecture))
            return &families[i];
        for (size_t j = 0; families[i].others[j] != NULL; j++)
            if (strcmp(families[i].others[j], architecture) == 0)
                return &families[i];
    }
    return NULL;
}

const mica__name_family *mica__name_family_of_gguf(const char *arch)
{
    for (size_t i = 0; i < FAMILIES; i++)
        if (strcmp(families[i].arch, arch) == 0)
            return &families[i];
    return NULL;
}

/* ---- names ---------------------------------------------------------------------------------------------- */

/* Digits at *at, at most seven and without a leading zero. */
static bool read_number(const char *name, size_t *at, uint32_t *out_number)
{
    const size_t start = *at;
    uint32_t number = 0;
    while (isdigit((unsigned char)name[*at]) && *at - start < 7)
        number = number * 10 + (uint32_t)(name[(*at)++] - '0');
    *out_number = number;
    return *at != start && (name[start] != '0' || *at - start == 1);
}

static bool fits(const char *pattern, const char *name, mica__name_parts *parts)
{
    size_t at = 0;
    *parts = (mica__name_parts){0};
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '*')
            return true;
        if (*pattern == '#') {
            if (!read_number(name, &at, &parts->layer))
                return false;
        } else if (*pattern == '@') {
            parts->expert_at = at;
            if (!read_number(name, &at, &parts->expert))
                return false;
            parts->expert_end = at;
        } else if (*pattern == '$') {
            parts->bias = strcmp(name + at, "bias") == 0;
            return parts->bias || strcmp(name + at, "weight") == 0;
        } else if (name[at++] != *pattern) {
            return false;
        }
    }
    return name[at] == '\0';
}

bool mica__name_expand(const char *pattern, const mica__name_parts *parts, char *out, size_t size)
{
    size_t used = 0;
    for (; *pattern != '\0' && used < size; pattern++) {
        int length = 0;
        if (*pattern == '#' || *pattern == '@')
            length = snprintf(out + used, size - used, "%u", *pattern == '#' ? parts->layer : parts->expert);
        else if (*pattern == '$')
            length = snprintf(out + used, size - used, "%s", parts->bias ? "bias" : "weight");
        else
            length = snprintf(out + used, size - used, "%c", *pattern);
        used += (size_t)length;
    }
    return used < size;
}

static const mica__name_row *find_row(const mica__name_family *family, const char *prefix, const char *name,
                                      mica__name_parts *parts)
{
    char full[512];
    const size_t before = strlen(prefix);
    const int length = snprintf(full, sizeof full, "%s%s", prefix, name);
    if (length < 0 || (size_t)length >= sizeof full)
        return NULL;
    for (uint32_t i = 0; i < family->row_count; i++)
        if (fits(family->row[i].hf, full, parts)) {
            parts->expert_at -= parts->expert_end != 0 ? before : 0;
            parts->expert_end -= parts->expert_end != 0 ? before : 0;
            return &family->row[i];
        }
    return NULL;
}

/* A name without what models that hold this one put into it: "language_model.model.norm.weight" and
 * "model.language_model.norm.weight" are both "model.norm.weight". */
static const char *without_extra(const mica__name_family *family, const char *name)
{
    const size_t prefix = strlen(family->prefix), extra = family->extra == NULL ? 0 : strlen(family->extra);
    if (extra == 0)
        return name;
    if (strncmp(name, family->extra, extra) == 0)
        return name + extra;
    if (strncmp(name, family->prefix, prefix) == 0 && strncmp(name + prefix, family->extra, extra) == 0)
        return name + prefix + extra;
    return name;
}

const mica__name_row *mica__name_family_from_hf(const mica__name_family *family, const char *name,
                                                mica__name_parts *out_parts)
{
    const char *bare = without_extra(family, name);
    const mica__name_row *row = find_row(family, "", bare, out_parts);
    if (row == NULL)
        row = find_row(family, family->prefix, bare, out_parts);
    if (row != NULL && out_parts->expert_end != 0) {
        out_parts->expert_at += (size_t)(bare - name);
        out_parts->expert_end += (size_t)(bare - name);
    }
    return row;
}

const mica__name_row *mica__name_family_from_gguf(const mica__name_family *family, const char *name,
                                                  mica__name_parts *out_parts)
{
    for (uint32_t i = 0; i < family->row_count; i++)
        if (family->row[i].how != MICA__HOW_SKIP && fits(family->row[i].gguf, name, out_parts))
            return &family->row[i];
    return NULL;
}

mica_status mica_tensor_name_of_hf(const char *architecture, const char *name, char *out, uint64_t size,
                                   uint32_t *out_heads)
{
    mica__name_parts parts = {.layer = 0};
    if (out_heads != NULL)
        *out_heads = 0;
    if (architecture == NULL || name == NULL || out == NULL || size == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "tensor_name_of_hf: %s is NULL, or has no room",
                          architecture == NULL ? "architecture"
                          : name == NULL       ? "name"
                                               : "out");
    *out = 0;
    const mica__name_family *family = mica__name_family_of_gguf(architecture);
    if (family == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "tensor_name_of_hf: no names are known of \"%.60s\"",
                          architecture);
    const mica__name_row *row = mica__name_family_from_hf(family, name, &parts);
    if (row == NULL || row->how == MICA__HOW_SKIP || row->how == MICA__HOW_STACK ||
        row->how == MICA__HOW_FACTORS || !mica__name_expand(row->gguf, &parts, out, (size_t)size)) {
        *out = 0;
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "tensor_name_of_hf: \"%.160s\" has no tensor of its own in a GGUF of %s", name,
                          architecture);
    }
    if (out_heads != NULL && row->how == MICA__HOW_PAIR_QUERY)
        *out_heads = MICA_HF_QUERY_HEADS;
    if (out_heads != NULL && row->how == MICA__HOW_PAIR_KEY)
        *out_heads = MICA_HF_KEY_HEADS;
    return MICA_OK;
}
