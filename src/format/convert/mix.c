/* mix.c - the choice of types. The table is mixes.def. */
#include "format/convert/mix.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"
#include "format/gguf.h"
#include "quant/dtype.h"
#include "quant/quant.h"

typedef enum role {
    ROLE_OTHER = 0,
    ROLE_EMBED,
    ROLE_OUTPUT,
    ROLE_ATTN_Q,
    ROLE_ATTN_K,
    ROLE_ATTN_V, /* and what holds it with others: qkv, kv_b */
    ROLE_ATTN_OUT,
    ROLE_FFN_DOWN,
    ROLE_ANY /* in rules */
} role;

typedef enum when {
    WHEN_ALWAYS = 0,
    WHEN_SHARED_BY_4, /* four or more query heads share a key head */
    WHEN_FIRST_2,     /* layers */
    WHEN_FIRST_4,
    WHEN_FIRST_8TH,
    WHEN_FIRST_16TH,
    WHEN_FIRST_8TH_WITH_IMATRIX,
    WHEN_FIRST_8TH_NO_IMATRIX,
    WHEN_SPREAD, /* the first and the last eighth, and of the others every third */
    WHEN_EXPERTS_8,
    WHEN_EXPERT_STACK /* the tensor holds several matrices */
} when;

enum {
#define MICA__MIX(mix, name, type, file_type) MIX_##mix,
#define MICA__MIX_ALIAS(mix, name)
#define MICA__MIX_RULE(mix, role, when, type)
#include "format/convert/mixes.def"
#undef MICA__MIX
#undef MICA__MIX_ALIAS
#undef MICA__MIX_RULE
    MIX_NONE
};

static const mica__mix mixes[] = {
#define MICA__MIX(mix, name, type, file_type) {name, MICA_DTYPE_##type, file_type, MIX_##mix},
#define MICA__MIX_ALIAS(mix, name)
#define MICA__MIX_RULE(mix, role, when, type)
#include "format/convert/mixes.def"
#undef MICA__MIX
#undef MICA__MIX_ALIAS
#undef MICA__MIX_RULE
};

static const struct {
    const char *name;
    uint32_t mix;
} aliases[] = {
#define MICA__MIX(mix, name, type, file_type)
#define MICA__MIX_ALIAS(mix, name) {name, MIX_##mix},
#define MICA__MIX_RULE(mix, role, when, type)
#include "format/convert/mixes.def"
#undef MICA__MIX
#undef MICA__MIX_ALIAS
#undef MICA__MIX_RULE
};

static const struct {
    uint32_t mix;
    uint8_t role, when;
    mica_dtype type;
} rules[] = {
#define MICA__MIX(mix, name, type, file_type)
#define MICA__MIX_ALIAS(mix, name)
#define MICA__MIX_RULE(mix, role, when, type) {MIX_##mix, ROLE_##role, WHEN_##when, MICA_DTYPE_##type},
#include "format/convert/mixes.def"
#undef MICA__MIX
#undef MICA__MIX_ALIAS
#undef MICA__MIX_RULE
};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* ---- names ---------------------------------------------------------------------------------------------- */

static bool same_name(const char *a, const char *b)
{
    while (*a != '\0' && tolower((unsigned char)*a) == *b) {
        a++;
        b++;
    }
    return *a == '\0' && *b == '\0';
}

static mica_status unknown_type(const char *name)
{
    char known[400] = "";
    size_t used = 0;
    for (size_t i = 0; i < COUNT(mixes); i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : " ", mixes[i].name);
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "options.type: \"%.40s\", expected one of %s", name, known);
}

mica_status mica__mix_find(const char *name, mica__mix *out_mix)
{
    for (size_t i = 0; i < COUNT(mixes); i++)
        if (same_name(name, mixes[i].name)) {
            *out_mix = mixes[i];
            return MICA_OK;
        }
    for (size_t i = 0; i < COUNT(aliases); i++)
        if (same_name(name, aliases[i].name)) {
            *out_mix = mixes[aliases[i].mix];
            return MICA_OK;
        }
    for (mica_dtype type = MICA_DTYPE_F32; type < MICA_DTYPE_COUNT; type++)
        if (same_name(name, mica_dtype_name(type)) && mica__quant_can_encode((uint16_t)type) &&
            mica__gguf_type_by_dtype(type) != NULL) {
            *out_mix = (mica__mix){mica_dtype_name(type), type, -1, MIX_NONE};
            return MICA_OK;
        }
    return unknown_type(name);
}

const char *mica__file_type_name(uint64_t number, mica_dtype *out_type)
{
    *out_type = MICA_DTYPE_NONE;
    for (size_t i = 0; i < COUNT(mixes); i++)
        if ((uint64_t)mixes[i].file_type == number) {
            *out_type = mixes[i].type;
            return mixes[i].name;
        }
    return NULL;
}

/* Names with these words stay as they are: norms, routers, positions, small convolutions and mixing vectors, patches
 * of pictures. Those with a dot after them are whole words. */
static const char *const staying[] = {
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
};

static const char *const staying_whole[] = {"position_embd.weight", "token_types.weight"};

/* Whether a tensor is a matrix that quantising is meant for. */
static bool is_wanted(const mica__target_tensor *tensor)
{
    const size_t length = strlen(tensor->name);
    if (tensor->ndim < 2 || tensor->rows < 2 || tensor->constant != NULL)
        return false;
    if (tensor->source[0]->scales == MICA__NO_TENSOR && !mica__quant_can_decode(tensor->source[0]->dtype))
        return false;
    if (length < 6 || strcmp(tensor->name + length - 6, "weight") != 0)
        return false;
    for (size_t i = 0; i < COUNT(staying); i++)
        if (strstr(tensor->name, staying[i]) != NULL)
            return false;
    for (size_t i = 0; i < COUNT(staying_whole); i++)
        if (strcmp(tensor->name, staying_whole[i]) == 0)
            return false;
    return true;
}

static role find_role(const char *name)
{
    static const struct {
        const char *word;
        role role;
    } words[] = {
        {"attn_qkv.weight", ROLE_ATTN_V}, {"attn_kv_b.weight", ROLE_ATTN_V},
        {"attn_v.weight", ROLE_ATTN_V},   {"attn_k.weight", ROLE_ATTN_K},
        {"attn_q.weight", ROLE_ATTN_Q},   {"attn_output.weight", ROLE_ATTN_OUT},
        {"ffn_up", ROLE_OTHER},           {"ffn_gate", ROLE_OTHER},
        {"ffn_down", ROLE_FFN_DOWN},
    };
    if (strcmp(name, "output.weight") == 0)
        return ROLE_OUTPUT;
    if (strcmp(name, "token_embd.weight") == 0 || strcmp(name, "per_layer_token_embd.weight") == 0)
        return ROLE_EMBED;
    for (size_t i = 0; i < COUNT(words); i++)
        if (strstr(name, words[i].word) != NULL)
            return words[i].role;
    return ROLE_OTHER;
}

/* The number behind "blk.", -1 if there is none. */
static int64_t find_layer(const char *name)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0 || !isdigit((unsigned char)name[4]))
        return -1;
    const unsigned long layer = strtoul(name + 4, &end, 10);
    return *end == '.' && layer < INT32_MAX ? (int64_t)layer : -1;
}

/* ---- what the model is ---------------------------------------------------------------------------------- */

typedef struct facts {
    const mica__mix_choice *choice;
    uint64_t layers, experts, shared; /* shared: query heads to a key head */
    uint64_t values;                  /* how many tensors of ROLE_ATTN_V there are */
    bool tied;                        /* the embedding is the output too */
    bool large;                       /* of the 70B class, whose value matrices are small */
} facts;

/* A tensor in the order of layers, which counts. */
typedef struct entry {
    const char *name;
    int64_t layer;
    uint32_t tensor;
    uint8_t role;
    uint64_t place; /* how many of its role came before it */
} entry;

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->layer != y->layer ? (x->layer > y->layer) - (x->layer < y->layer) : strcmp(x->name, y->name);
}

static uint64_t get_number(mica__target *target, const char *arch, const char *key, uint64_t otherwise)
{
    char name[160];
    snprintf(name, sizeof name, "%.100s.%s", arch, key);
    return mica__target_get_number(target, name, otherwise);
}

static void find_facts(mica__target *target, const entry *list, facts *f)
{
    static const char *const families_of_70b[] = {"llama", "qwen2", "deci", "olmo"};
    const mica_value *value = mica__target_get(target, "general.architecture");
    const char *arch = value != NULL && value->type == MICA_VALUE_STRING ? value->as.string.data : "";
    const uint64_t heads = get_number(target, arch, "attention.head_count", 1);
    const uint64_t key_heads = get_number(target, arch, "attention.head_count_kv", heads);
    f->layers = get_number(target, arch, "block_count", 0);
    f->experts = get_number(target, arch, "expert_count", 0);
    f->shared = key_heads == 0 ? 0 : heads / key_heads;
    f->tied = true;
    for (uint32_t i = 0; i < target->tensor_count; i++) {
        f->values += list[i].role == ROLE_ATTN_V;
        f->tied = f->tied && list[i].role != ROLE_OUTPUT;
        if (list[i].layer >= 0 && (uint64_t)list[i].layer >= f->layers)
            f->layers = (uint64_t)list[i].layer + 1;
    }
    for (size_t i = 0; i < COUNT(families_of_70b); i++)
        f->large =
            f->large || (f->layers == 80 && heads != key_heads && strcmp(arch, families_of_70b[i]) == 0);
}

/* ---- the choice ----------------------------------------------------------------------------------------- */

static bool is_spread(uint64_t layer, uint64_t layers)
{
    const uint64_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

static bool holds(const facts *f, const entry *e, const mica__target_tensor *tensor, when condition)
{
    const bool by_name = f->experts > 1 && e->role == ROLE_FFN_DOWN && e->layer >= 0;
    const uint64_t layer = by_name ? (uint64_t)e->layer : e->place;
    const uint64_t layers = e->role == ROLE_ATTN_V ? f->values : f->layers;
    switch (condition) {
    case WHEN_ALWAYS: return true;
    case WHEN_SHARED_BY_4: return f->shared >= 4;
    case WHEN_FIRST_2: return layer < 2;
    case WHEN_FIRST_4: return layer < 4;
    case WHEN_FIRST_8TH: return layer < layers / 8;
    case WHEN_FIRST_16TH: return layer < layers / 16;
    case WHEN_FIRST_8TH_WITH_IMATRIX: return f->choice->imatrix && layer < layers / 8;
    case WHEN_FIRST_8TH_NO_IMATRIX: return !f->choice->imatrix && layer < layers / 8;
    case WHEN_SPREAD: return is_spread(layer, layers);
    case WHEN_EXPERTS_8: return f->experts == 8;
    case WHEN_EXPERT_STACK: return tensor->ndim >= 3 && tensor->shape[tensor->ndim - 3] > 1;
    }
    return false;
}

/* The output, and the embedding where it is the output too: 8 bits or 6 decide what comes out. */
static mica_dtype output_type(const mica__target_tensor *tensor, mica_dtype type)
{
    if (tensor->row % mica__dtype_elements((uint32_t)type) != 0 || type == MICA_DTYPE_Q8_0)
        return MICA_DTYPE_Q8_0;
    return MICA_DTYPE_Q6_K;
}

static mica_dtype mixed_type(const facts *f, const entry *e, const mica__target_tensor *tensor)
{
    const bool is_output = e->role == ROLE_OUTPUT || (e->role == ROLE_EMBED && f->tied);
    const uint8_t as = is_output ? ROLE_OUTPUT : e->role;
    mica_dtype type = f->choice->mix.type;
    if (mica__dtype_elements((uint32_t)type) == 1)
        return type;
    if (f->experts == 8 && (as == ROLE_ATTN_V || as == ROLE_ATTN_K) && f->choice->mix.rules != MIX_MXFP4_MOE)
        return MICA_DTYPE_Q8_0;
    for (size_t i = 0; i < COUNT(rules); i++)
        if (rules[i].mix == f->choice->mix.rules && (rules[i].role == as || rules[i].role == ROLE_ANY) &&
            holds(f, e, tensor, (when)rules[i].when)) {
            type = rules[i].type;
            if (f->large && as == ROLE_ATTN_V && (type == MICA_DTYPE_Q3_K || type == MICA_DTYPE_Q4_K))
                return MICA_DTYPE_Q5_K;
            return type;
        }
    if (f->large && as == ROLE_ATTN_V && (type == MICA_DTYPE_Q3_K || type == MICA_DTYPE_Q4_K))
        return MICA_DTYPE_Q5_K;
    return is_output ? output_type(tensor, type) : type;
}

/* What a row gets that the block does not divide: about as many bits in blocks of 32, else f16. */
static mica_dtype fall_back(const mica__target_tensor *tensor, mica_dtype type)
{
    static const struct {
        mica_dtype from, to;
    } smaller[] = {
        {MICA_DTYPE_Q2_K, MICA_DTYPE_Q4_0},  {MICA_DTYPE_Q3_K, MICA_DTYPE_Q4_0},
        {MICA_DTYPE_Q4_K, MICA_DTYPE_Q5_0},  {MICA_DTYPE_Q5_K, MICA_DTYPE_Q5_1},
        {MICA_DTYPE_Q6_K, MICA_DTYPE_Q8_0},  {MICA_DTYPE_IQ4_XS, MICA_DTYPE_IQ4_NL},
        {MICA_DTYPE_TQ1_0, MICA_DTYPE_Q4_0}, {MICA_DTYPE_TQ2_0, MICA_DTYPE_Q4_0},
        {MICA_DTYPE_Q8_K, MICA_DTYPE_Q8_0},  {MICA_DTYPE_NVFP4, MICA_DTYPE_MXFP4},
    };
    for (size_t i = 0; i < COUNT(smaller); i++)
        if (smaller[i].from == type && tensor->row % mica__dtype_elements((uint32_t)smaller[i].to) == 0)
            return smaller[i].to;
    return MICA_DTYPE_F16;
}

/* Whether a name fits a pattern with * and ?. A star first stands for nothing, then for one letter more each time. */
static bool fits_pattern(const char *pattern, const char *name)
{
    const char *star = NULL, *again = NULL;
    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            again = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star + 1;
            name = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

/* The first rule that the tensor fits, or keep_count. */
static uint32_t find_keep(const mica__mix_choice *choice, const char *name)
{
    for (uint32_t i = 0; i < choice->keep_count; i++)
        if (fits_pattern(choice->keep[i].pattern, name))
            return i;
    return choice->keep_count;
}

static mica_status kept_type(const mica__mix_choice *choice, uint32_t rule, const mica__target_tensor *tensor,
                             mica_dtype *out_type)
{
    const mica_dtype type = choice->keep[rule].type;
    if (tensor->row % mica__dtype_elements((uint32_t)type) != 0)
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT,
            "options.keep[%u]: \"%s\" wants %s for tensor \"%s\", whose rows of %llu values its "
            "block of %u does not divide",
            rule, choice->keep[rule].pattern, mica_dtype_name(type), tensor->name,
            (unsigned long long)tensor->row, mica__dtype_elements((uint32_t)type));
    *out_type = type;
    return MICA_OK;
}

static mica_status choose(const facts *f, const entry *e, mica__target_tensor *tensor, uint64_t *fallbacks)
{
    const mica__mix_choice *choice = f->choice;
    const uint32_t rule = find_keep(choice, tensor->name);
    if (rule < choice->keep_count)
        return kept_type(choice, rule, tensor, &tensor->dtype);
    tensor->dtype = choice->pure ? choice->mix.type : mixed_type(f, e, tensor);
    if (tensor->row % mica__dtype_elements((uint32_t)tensor->dtype) != 0) {
        tensor->dtype = fall_back(tensor, tensor->dtype);
        ++*fallbacks;
    }
    return MICA_OK;
}

static mica_status check_keep(const mica__target *target, const mica__mix_choice *choice)
{
    for (uint32_t i = 0; i < choice->keep_count; i++) {
        const mica_keep_rule *rule = &choice->keep[i];
        bool used = false;
        if (rule->pattern == NULL || !mica__quant_can_encode((uint16_t)rule->type) ||
            mica__gguf_type_by_dtype(rule->type) == NULL)
            return mica__fail(
                MICA_ERR_INVALID_ARGUMENT,
                "options.keep[%u]: pattern %s, type %s, expected a pattern and a type that GGUF "
                "has and that can be made",
                i, rule->pattern == NULL ? "NULL" : rule->pattern, mica_dtype_name(rule->type));
        for (uint32_t t = 0; t < target->tensor_count && !used; t++)
            used = fits_pattern(rule->pattern, target->tensor[t].name) && is_wanted(&target->tensor[t]);
        if (!used)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "options.keep[%u]: \"%s\" fits no matrix of the file", i, rule->pattern);
    }
    return MICA_OK;
}

/* The places of tensors among those of their role, and their types in that order. */
static mica_status choose_all(mica__target *target, const facts *f, entry *list, uint64_t *fallbacks)
{
    uint64_t seen[ROLE_ANY] = {0};
    mica_status status = mica__sort(list, target->tensor_count, sizeof *list, compare_entries);
    for (uint32_t i = 0; i < target->tensor_count && status == MICA_OK; i++) {
        mica__target_tensor *tensor = &target->tensor[list[i].tensor];
        if (!is_wanted(tensor))
            continue;
        list[i].place = seen[list[i].role]++;
        status = choose(f, &list[i], tensor, fallbacks);
    }
    return status;
}

mica_status mica__mix_apply(mica__target *target, const mica__mix_choice *choice, uint64_t *out_fallbacks)
{
    facts f = {.choice = choice};
    mica_status status = check_keep(target, choice);
    *out_fallbacks = 0;
    if (status != MICA_OK || target->tensor_count == 0)
        return status;
    entry *list = mica__alloc(target->tensor_count * sizeof *list);
    if (list == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to order %u tensors", target->tensor_count);
    for (uint32_t i = 0; i < target->tensor_count; i++)
        list[i] = (entry){.name = target->tensor[i].name,
                          .layer = find_layer(target->tensor[i].name),
                          .tensor = i,
                          .role = (uint8_t)find_role(target->tensor[i].name)};
    find_facts(target, list, &f);
    status = choose_all(target, &f, list, out_fallbacks);
    mica__free(list);
    return status;
}
