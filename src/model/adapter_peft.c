/*
 * adapter_peft.c - adapters as peft saves them: a folder with adapter_config.json and adapter_model.safetensors, whose tensors have the names of the checkpoint.
 *
 * What a key says is understood, or says that nothing is done, or the adapter is refused by its name.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file/file.h"
#include "base/json/json.h"
#include "base/work.h"
#include "mica/format.h"
#include "model/adapter.h"

enum { MOST_CONFIG = 1 << 20, TENSOR_STEPS = 64, MOST_NAME = 256 };

typedef struct peft {
    mica_adapter *adapter;
    mica_weights *weights;
    mica__json *json;
    const mica__json_node *ranks, *alphas; /* of modules whose own differs; NULL */
    uint64_t rank;
    double alpha;
    bool root; /* alpha is divided by the root of the rank (rsLoRA) */
} peft;

/* ---- adapter_config.json -------------------------------------------------------------------------------- */

/* Whether a value stands for nothing: null, false, an empty list, object or text. */
static bool is_nothing(const mica__json_node *node)
{
    switch ((mica__json_type)node->type) {
    case MICA__JSON_NULL:
    case MICA__JSON_FALSE: return true;
    case MICA__JSON_ARRAY:
    case MICA__JSON_OBJECT: return node->child_count == 0;
    case MICA__JSON_STRING: return node->string.length == 0;
    default: return false;
    }
}

static bool listed(const char *const *list, const char *key)
{
    for (size_t i = 0; list[i] != NULL; i++)
        if (strcmp(list[i], key) == 0)
            return true;
    return false;
}

/* Keys that are read, and keys that say how it was made, where it belongs, or what its tensors say as well. */
static const char *const known[] = {"peft_type",
                                    "r",
                                    "lora_alpha",
                                    "rank_pattern",
                                    "alpha_pattern",
                                    "use_rslora",
                                    "bias",
                                    "task_type",
                                    "auto_mapping",
                                    "peft_version",
                                    "base_model_name_or_path",
                                    "revision",
                                    "inference_mode",
                                    "target_modules",
                                    "exclude_modules",
                                    "lora_dropout",
                                    "fan_in_fan_out",
                                    "init_lora_weights",
                                    "layers_to_transform",
                                    "layers_pattern",
                                    "megatron_core",
                                    "loftq_config",
                                    "eva_config",
                                    "corda_config",
                                    "lora_ga_config",
                                    "qalora_group_size",
                                    "ensure_weight_tying",
                                    NULL};

static bool is_text(const mica__json_node *node, const char *text)
{
    return node != NULL && node->type == MICA__JSON_STRING && node->string.length == strlen(text) &&
           memcmp(node->string.data, text, strlen(text)) == 0;
}

static mica_status check_keys(const peft *p)
{
    const mica__json_node *root = mica__json_root(p->json);
    if (root->type != MICA__JSON_OBJECT)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "adapter_config.json is no object");
    for (const mica__json_node *key = mica__json_first(root); key != NULL;
         key = mica__json_next(p->json, key)) {
        MICA__TRY(mica__spend(TENSOR_STEPS));
        if (!listed(known, key->key) && !is_nothing(key))
            return mica__fail(
                MICA_ERR_UNSUPPORTED,
                "\"%.100s\" of adapter_config.json is not known: it may change what the adapter does",
                key->key);
    }
    if (!is_text(mica__json_get(p->json, root, "peft_type"), "LORA"))
        return mica__fail(MICA_ERR_UNSUPPORTED, "\"peft_type\" of adapter_config.json is not \"LORA\"");
    const mica__json_node *bias = mica__json_get(p->json, root, "bias");
    if (bias != NULL && !is_nothing(bias) && !is_text(bias, "none"))
        return mica__fail(MICA_ERR_UNSUPPORTED, "\"bias\" of adapter_config.json is not \"none\"");
    return MICA_OK;
}

/* Modules with numbers of their own: an object of numbers above 0, whose keys are names; NULL: there is none. */
static mica_status read_pattern(const peft *p, const char *key, const mica__json_node **out)
{
    const mica__json_node *node = mica__json_get(p->json, mica__json_root(p->json), key);
    double number = 0;
    *out = node;
    if (node == NULL || is_nothing(node)) {
        *out = NULL;
        return MICA_OK;
    }
    if (node->type != MICA__JSON_OBJECT)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\" of adapter_config.json is no object", key);
    for (const mica__json_node *at = mica__json_first(node); at != NULL; at = mica__json_next(p->json, at)) {
        MICA__TRY(mica__spend(TENSOR_STEPS));
        MICA__TRY(mica__json_as_double(at, key, 1e-9, 1e9, &number));
        for (uint32_t i = 0; i < at->key_length; i++)
            if (strchr("\\^$*+?()[]{}|", at->key[i]) != NULL) /* NUL among them */
                return mica__fail(MICA_ERR_UNSUPPORTED,
                                  "\"%s\" of adapter_config.json has an expression, \"%.100s\"", key,
                                  at->key);
    }
    return MICA_OK;
}

static mica_status read_config(peft *p, const char *folder)
{
    char path[1024];
    void *text = NULL;
    size_t length = 0;
    if ((size_t)snprintf(path, sizeof path, "%s/adapter_config.json", folder) >= sizeof path)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "the path is too long");
    MICA__TRY(mica__file_read_inside(folder, path, MOST_CONFIG, &text, &length));
    if (text == NULL)
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "the folder has no adapter_config.json: an adapter is a gguf file or peft's folder");
    mica_status status = mica__json_parse(text, length, NULL, &p->json);
    mica__free(text);
    MICA__TRY(mica__json_status(status));
    const mica__json_node *root = mica__json_root(p->json);
    MICA__TRY(check_keys(p));
    MICA__TRY(mica__json_get_uint(p->json, root, "r", 1, UINT32_MAX, &p->rank));
    MICA__TRY(mica__json_get_double(p->json, root, "lora_alpha", 1e-9, 1e9, &p->alpha));
    if (mica__json_get(p->json, root, "use_rslora") != NULL)
        MICA__TRY(mica__json_get_bool(p->json, root, "use_rslora", &p->root));
    MICA__TRY(read_pattern(p, "rank_pattern", &p->ranks));
    return read_pattern(p, "alpha_pattern", &p->alphas);
}

/* The number that a pattern has for a module: of the first key that is its name, or the end of it behind a dot. */
static double number_for(const peft *p, const mica__json_node *pattern, const char *module, size_t length,
                         double otherwise)
{
    for (const mica__json_node *at = pattern == NULL ? NULL : mica__json_first(pattern); at != NULL;
         at = mica__json_next(p->json, at)) {
        const size_t from = length - at->key_length;
        bool same = at->key_length <= length && (from == 0 || module[from - 1] == '.');
        for (size_t i = 0; i < at->key_length && same; i++) /* a dot is any letter */
            same = at->key[i] == '.' || at->key[i] == module[from + i];
        if (same)
            return at->number.real;
    }
    return otherwise;
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

/* Rows of rotary heads, whose halves become partners: row 2 i + j of a head is row j size / 2 + i. */
static mica_status pair_rows(float *values, uint64_t rows, uint64_t columns, uint64_t heads)
{
    const uint64_t size = heads == 0 ? 0 : rows / heads, count = rows * columns;
    if (size == 0 || size * heads != rows || size % 2 != 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "%llu rows of %llu rotary heads", (unsigned long long)rows,
                          (unsigned long long)heads);
    float *moved = mica__alloc((size_t)count * sizeof *moved);
    if (moved == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a matrix of an adapter");
    for (uint64_t r = 0; r < rows; r++) {
        const uint64_t from = r / size * size + r % 2 * (size / 2) + r % size / 2;
        memcpy(moved + r * columns, values + from * columns, (size_t)columns * sizeof *moved);
    }
    memcpy(values, moved, (size_t)count * sizeof *moved);
    mica__free(moved);
    return mica__spend(count / 4);
}

/* How often B counts, beside the adapter's alpha by the rank of the matrix. */
static double share_of(const peft *p, const char *module, size_t length, uint64_t rank)
{
    const double alpha = number_for(p, p->alphas, module, length, p->alpha);
    return alpha / p->alpha * (p->root ? sqrt((double)rank) : 1);
}

static mica_status read_part(const peft *p, uint64_t index, mica__low_rank *matrix, uint32_t part,
                             double share, uint64_t heads)
{
    mica_buffer_info info;
    float *values = NULL;
    mica_status status = MICA_OK;
    MICA__TRY(mica_buffer_get_info(matrix->part[part], &info));
    MICA__TRY(mica__adapter_values(p->weights, index, info.element_count, &values));
    if (part == 1 && heads != 0)
        status = pair_rows(values, info.shape[0], info.shape[1], heads);
    for (uint64_t i = 0; part == 1 && share != 1 && i < info.element_count; i++)
        values[i] = (float)((double)values[i] * share);
    if (status == MICA_OK)
        status = mica__adapter_write(matrix, part, values);
    mica__free(values);
    return status;
}

/* The module of a tensor, "model.layers.0.self_attn.q_proj", and which part of it is; false: it is none of low rank. */
static bool module_of(const char *name, const char **out, size_t *out_length, uint32_t *out_part)
{
    static const char begin[] = "base_model.model.", *const end[] = {".lora_A.weight", ".lora_B.weight"};
    const size_t length = strlen(name), skip = sizeof begin - 1;
    if (length <= skip || memcmp(name, begin, skip) != 0)
        return false;
    for (uint32_t part = 0; part < 2; part++) {
        const size_t tail = strlen(end[part]);
        if (length > skip + tail && strcmp(name + length - tail, end[part]) == 0) {
            *out = name + skip;
            *out_length = length - skip - tail;
            *out_part = part;
            return true;
        }
    }
    return false;
}

/* The model's name of a module's matrix, and of how many rotary heads its rows have to be paired. */
static mica_status place_of(const peft *p, const char *module, size_t length, char *name, size_t size,
                            uint64_t *out_heads)
{
    const mica_model *model = p->adapter->model;
    char hf[MOST_NAME];
    uint32_t heads = 0;
    *out_heads = 0;
    if ((size_t)snprintf(hf, sizeof hf, "%.*s.weight", (int)length, module) >= sizeof hf)
        return mica__fail(MICA_ERR_UNSUPPORTED, "a name of %zu bytes", length);
    MICA__TRY(mica_tensor_name_of_hf(model->family->name, hf, name, size, &heads));
    if (!model->h.rope_halves && heads != 0)
        *out_heads = heads == MICA_HF_QUERY_HEADS ? model->h.heads : model->h.kv_heads;
    return MICA_OK;
}

static mica_status wrong_shape(const mica_tensor_info *a, const mica_tensor_info *b, uint64_t rank)
{
    return mica__fail(
        MICA_ERR_MALFORMED_FILE,
        "tensor \"%.120s\" and its other half are no matrices of rank %llu beside the model's: %llu and %llu",
        a->name, (unsigned long long)rank, (unsigned long long)(a->ndim > 0 ? a->shape[0] : 0),
        (unsigned long long)(b->ndim > 1 ? b->shape[1] : 0));
}

static mica_status read_matrix(peft *p, uint64_t index)
{
    mica_tensor_info a, b;
    mica_buffer *weight = NULL;
    mica_buffer_info w;
    char name[MICA__ADAPTER_NAME], other_name[MOST_NAME];
    const char *module = NULL;
    size_t length = 0;
    uint32_t part = 0;
    uint64_t other = 0, heads = 0;
    mica__low_rank *matrix = NULL;
    MICA__TRY(mica__spend(TENSOR_STEPS));
    MICA__TRY(mica_weights_tensor(p->weights, index, &a));
    if (!module_of(a.name, &module, &length, &part))
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "tensor \"%.160s\" is neither .lora_A.weight nor .lora_B.weight of a module",
                          a.name);
    if ((size_t)snprintf(other_name, sizeof other_name, "base_model.model.%.*s.lora_%c.weight", (int)length,
                         module, "BA"[part]) >= sizeof other_name ||
        mica_weights_find(p->weights, other_name, &other) != MICA_OK)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"%.160s\" is there without its other half",
                          a.name);
    if (part == 1)
        return MICA_OK; /* comes with its A */
    MICA__TRY(place_of(p, module, length, name, sizeof name - sizeof ".lora_a", &heads));
    MICA__TRY(mica__adapter_weight(p->adapter->model, name, &weight));
    MICA__TRY(mica_buffer_get_info(weight, &w));
    MICA__TRY(mica_weights_tensor(p->weights, other, &b));
    const uint64_t rank = (uint64_t)number_for(p, p->ranks, module, length, (double)p->rank);
    if (w.ndim != 2 || a.ndim != 2 || b.ndim != 2 || a.shape[0] != rank || b.shape[1] != rank ||
        a.shape[1] != w.shape[1] || b.shape[0] != w.shape[0])
        return wrong_shape(&a, &b, rank);
    MICA__TRY(mica__adapter_add(p->adapter, name, (uint32_t)rank, &matrix));
    MICA__TRY(read_part(p, index, matrix, 0, 1, 0));
    return read_part(p, other, matrix, 1, share_of(p, module, length, rank), heads);
}

static mica_status read_all(peft *p, const char *folder)
{
    char path[1024];
    mica_weights_info info;
    MICA__TRY(read_config(p, folder));
    if ((size_t)snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder) >= sizeof path)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "the path is too long");
    MICA__TRY(mica_weights_open(path, &(mica_weights_options){.flags = MICA_WEIGHTS_NO_MAP}, &p->weights));
    MICA__TRY(mica_weights_get_info(p->weights, &info));
    p->adapter->alpha = (float)p->alpha;
    if (info.tensor_count == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the adapter has no tensors");
    for (uint64_t i = 0; i < info.tensor_count; i++)
        MICA__TRY(read_matrix(p, i));
    return mica__adapter_ready(p->adapter);
}

mica_status mica__adapter_read_peft(mica_adapter *adapter, const char *folder)
{
    peft p = {.adapter = adapter};
    const mica_status status = read_all(&p, folder);
    mica_weights_release(p.weights);
    mica__json_release(p.json);
    return status;
}
