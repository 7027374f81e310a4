/*
 * mlx.c - MLX's quantised weights: the quantization of a config.json, and packed words joined with their scales.
 *
 * Knows tensors that are read and checked already, and a config's text; no file. X.weight (u32 words), X.scales and
 * X.biases become one tensor X.weight of the logical shape [.., N, K]; the other two are hidden behind the visible
 * ones. How a weight was packed is not in the tensors: config.json says it for all, or for one module by its path.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/sort.h"
#include "format/archive.h"

#define MAX_GROUP 65536u
#define BYTES_PER_NODE 2 /* a config may hold long lists of digits */

typedef struct mode {
    const char *name;
    uint32_t group_size, bits; /* where the config has none; of all but affine the only ones */
    uint16_t scale_dtype; /* what the bytes of the scales mean; NONE: they are floats of their own type */
    bool biases;
} mode;

static const mode modes[] = {
    {"affine", 64, 4, MICA_DTYPE_NONE, true},
    {"mxfp4", 32, 4, MICA_DTYPE_E8M0, false},
    {"mxfp8", 32, 8, MICA_DTYPE_E8M0, false},
    {"nvfp4", 16, 4, MICA_DTYPE_F8_E4M3, false},
};

#define MODE_COUNT (sizeof modes / sizeof modes[0])

/* How one weight is packed. */
typedef struct scheme {
    const mode *mode; /* NULL: not quantised */
    uint32_t bits, group_size;
} scheme;

/* What config.json says of one module. */
typedef struct rule {
    const char *path;
    uint32_t length;
    const mica__json_node *node; /* an object, true or false */
} rule;

typedef struct joiner {
    mica__archive *archive;
    mica__json *json;
    scheme common;
    rule *rules; /* [rule_count], sorted by path */
    uint32_t rule_count;
    bool *hidden; /* [archive->tensor_count] */
} joiner;

/* ---- the config ----------------------------------------------------------------------------------------- */

/* Python writes NaN and Infinity, which are no JSON; they matter to nobody here and become 0, outside of strings. */
static void blank_constants(char *text, size_t length)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    bool quoted = false;
    for (size_t i = 0; i < length; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        for (size_t w = 0; w < 3 && !quoted; w++) {
            const size_t size = strlen(words[w]);
            if (i < length && length - i >= size && memcmp(text + i, words[w], size) == 0) {
                memset(text + i, ' ', size);
                text[i] = '0';
            }
        }
    }
}

static mica_status parse_config(joiner *j)
{
    const mica__archive *archive = j->archive;
    const size_t length = archive->config_length;
    const mica__json_limits limits = {length + 1, 0, (uint32_t)(length / BYTES_PER_NODE) + 16};
    mica_status status;
    char *text = mica__alloc(length);
    if (text == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to read config.json");
    memcpy(text, archive->config, length);
    blank_constants(text, length);
    status = mica__json_parse(text, length, &limits, &j->json);
    mica__free(text);
    if (status != MICA_OK)
        return mica__fail(status == MICA_ERR_OUT_OF_MEMORY ? status : MICA_ERR_MALFORMED_FILE,
                          "config.json beside \"%s\": %s", mica__archive_path(archive, 0),
                          mica_status_message());
    return MICA_OK;
}

/* MLX writes its settings under both names; under the second others put theirs, with a quant_method. */
static const mica__json_node *find_quantization(const mica__json *json)
{
    const mica__json_node *root = mica__json_root(json), *node = mica__json_get(json, root, "quantization");
    if (node != NULL && node->type == MICA__JSON_OBJECT)
        return node;
    node = mica__json_get(json, root, "quantization_config");
    if (node == NULL || node->type != MICA__JSON_OBJECT ||
        mica__json_get(json, node, "quant_method") != NULL || mica__json_get(json, node, "bits") == NULL ||
        mica__json_get(json, node, "group_size") == NULL)
        return NULL;
    return node;
}

static mica_status bad_config(const joiner *j, const char *where, const char *what)
{
    return mica__fail(MICA_ERR_QUANT_CONFIG,
                      "config.json beside \"%s\": %s of \"%.200s\" in its quantization",
                      mica__archive_path(j->archive, 0), what, where);
}

static mica_status read_mode(const joiner *j, const mica__json_node *object, const char *where,
                             const mode **out)
{
    const mica__json_node *word = mica__json_get(j->json, object, "mode");
    *out = &modes[0];
    if (word == NULL)
        return MICA_OK;
    for (size_t i = 0; i < MODE_COUNT && word->type == MICA__JSON_STRING; i++) {
        if (strcmp(word->string.data, modes[i].name) == 0 && strlen(modes[i].name) == word->string.length) {
            *out = &modes[i];
            return MICA_OK;
        }
    }
    return bad_config(j, where, "the mode is none of affine, mxfp4, mxfp8 and nvfp4: that");
}

/* A member that must be a whole number if it is there; null counts as absent. */
static mica_status read_number(const joiner *j, const mica__json_node *object, const char *key,
                               const char *where, uint32_t absent, uint32_t *out)
{
    const mica__json_node *node = mica__json_get(j->json, object, key);
    *out = absent;
    if (node == NULL || node->type == MICA__JSON_NULL)
        return MICA_OK;
    if (node->exact != MICA__JSON_EXACT_UINT || node->number.uint_value < 1 ||
        node->number.uint_value > MAX_GROUP)
        return mica__fail(
            MICA_ERR_QUANT_CONFIG,
            "config.json beside \"%s\": %s of \"%.200s\" in its quantization is not from 1 to %u",
            mica__archive_path(j->archive, 0), key, where, MAX_GROUP);
    *out = (uint32_t)node->number.uint_value;
    return MICA_OK;
}

static uint16_t weight_dtype(const scheme *s)
{
    static const uint16_t affine[] = {
        [2] = MICA_DTYPE_AFFINE2, [3] = MICA_DTYPE_AFFINE3, [4] = MICA_DTYPE_AFFINE4,
        [5] = MICA_DTYPE_AFFINE5, [6] = MICA_DTYPE_AFFINE6, [8] = MICA_DTYPE_AFFINE8,
    };
    if (!s->mode->biases)
        return s->bits == 4 ? MICA_DTYPE_FP4 : MICA_DTYPE_F8_E4M3;
    return s->bits < sizeof affine / sizeof affine[0] ? affine[s->bits] : MICA_DTYPE_NONE;
}

/* What an object says; as in MLX it takes nothing from the one around it, and what it leaves out is the mode's. */
static mica_status read_scheme(const joiner *j, const mica__json_node *object, const char *where, scheme *out)
{
    mica_status status = read_mode(j, object, where, &out->mode);
    if (status == MICA_OK)
        status = read_number(j, object, "bits", where, out->mode->bits, &out->bits);
    if (status == MICA_OK)
        status = read_number(j, object, "group_size", where, out->mode->group_size, &out->group_size);
    if (status != MICA_OK)
        return status;
    if (!out->mode->biases && (out->bits != out->mode->bits || out->group_size != out->mode->group_size))
        return bad_config(j, where, "bits and group_size do not belong to the mode");
    if (weight_dtype(out) == MICA_DTYPE_NONE)
        return bad_config(j, where, "bits are none of 2, 3, 4, 5, 6 and 8: those");
    return MICA_OK;
}

static int compare_paths(const char *a, size_t a_length, const char *b, size_t b_length)
{
    const int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static int by_path(const void *a, const void *b)
{
    const rule *x = a, *y = b;
    return compare_paths(x->path, x->length, y->path, y->length);
}

/* Every member that is an object or a truth value is a rule; the rest are the common settings. */
static mica_status read_rules(joiner *j, const mica__json_node *quantization)
{
    mica_status status = read_scheme(j, quantization, "all tensors", &j->common);
    if (status != MICA_OK)
        return status;
    j->rules = mica__alloc((size_t)quantization->child_count * sizeof *j->rules);
    if (j->rules == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the rules of config.json");
    for (const mica__json_node *at = mica__json_first(quantization); at != NULL;
         at = mica__json_next(j->json, at))
        if (at->type == MICA__JSON_OBJECT || at->type == MICA__JSON_TRUE || at->type == MICA__JSON_FALSE)
            j->rules[j->rule_count++] = (rule){at->key, at->key_length, at};
    return mica__sort(j->rules, j->rule_count, sizeof *j->rules, by_path);
}

/* ---- one weight ----------------------------------------------------------------------------------------- */

static const mica__json_node *find_rule(const joiner *j, const char *path, size_t length)
{
    uint32_t low = 0, high = j->rule_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = compare_paths(path, length, j->rules[middle].path, j->rules[middle].length);
        if (order == 0)
            return j->rules[middle].node;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* The rule for a module. Models with pictures have their text part under language_model, and the config names modules
 * with that prefix or without it. */
static mica_status rule_for(const joiner *j, const char *path, size_t length, const mica__json_node **out)
{
    static const char prefix[] = "language_model.";
    const size_t before = sizeof prefix - 1;
    char *longer;
    *out = find_rule(j, path, length);
    if (*out != NULL || j->rule_count == 0)
        return MICA_OK;
    if (length > before && memcmp(path, prefix, before) == 0) {
        *out = find_rule(j, path + before, length - before);
        return MICA_OK;
    }
    longer = mica__alloc(before + length);
    if (longer == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to look up \"%.200s\" in config.json", path);
    memcpy(longer, prefix, before);
    memcpy(longer + before, path, length);
    *out = find_rule(j, longer, before + length);
    mica__free(longer);
    return MICA_OK;
}

/* The tensor X.<suffix> beside X.weight, of whose name the first `stem` bytes are "X.". */
static mica_status find_beside(const joiner *j, const mica__tensor *weight, size_t stem, const char *suffix,
                               uint32_t *out)
{
    const size_t after = strlen(suffix);
    char *name = mica__alloc(stem + after + 1);
    if (name == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to look for the %s of \"%.200s\"", suffix,
                          weight->name);
    memcpy(name, weight->name, stem);
    memcpy(name + stem, suffix, after + 1);
    *out = mica__archive_find(j->archive, name, stem + after);
    mica__free(name);
    return MICA_OK;
}

static mica_status bad_weight(const joiner *j, const mica__tensor *weight, const scheme *s, const char *what)
{
    return mica__fail(MICA_ERR_QUANT_CONFIG,
                      "\"%s\": tensor \"%.200s\" is %s with %u bits in groups of %u by config.json, but %s",
                      mica__archive_path(j->archive, weight->file), weight->name, s->mode->name, s->bits,
                      s->group_size, what);
}

static bool is_scale(const scheme *s, uint16_t dtype)
{
    if (s->mode->scale_dtype != MICA_DTYPE_NONE)
        return dtype == MICA_DTYPE_U8 || dtype == s->mode->scale_dtype;
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16;
}

/* Scales or biases: [.., N, K / group_size] beside a weight of [.., N, K]. */
static bool fits(const mica__tensor *weight, const mica__tensor *table, uint64_t values, uint32_t group_size)
{
    uint64_t covered = 0;
    if (table->problem != MICA__TENSOR_FINE || table->ndim != weight->ndim)
        return false;
    for (uint32_t d = 0; d + 1 < weight->ndim; d++)
        if (table->shape[d] != weight->shape[d])
            return false;
    return mica__mul_u64(table->shape[weight->ndim - 1], group_size, &covered) && covered == values;
}

static mica_status join_weight(joiner *j, const scheme *s, uint32_t index, uint32_t scales, uint32_t biases)
{
    mica__tensor *all = j->archive->tensor, *weight = &all[index];
    uint64_t bits = 0, values;
    if (weight->ndim < 2 || !mica__mul_u64(weight->shape[weight->ndim - 1], 32, &bits) || bits % s->bits != 0)
        return bad_weight(j, weight, s, "its words do not hold a whole number of values");
    values = bits / s->bits;
    if (!is_scale(s, all[scales].dtype))
        return bad_weight(j, weight, s, "its scales are of another type than that mode has");
    if (!fits(weight, &all[scales], values, s->group_size))
        return bad_weight(j, weight, s, "the shape of its scales is another");
    if (s->mode->biases && biases == MICA__NO_TENSOR)
        return bad_weight(j, weight, s, "it has no biases");
    if (!s->mode->biases && biases != MICA__NO_TENSOR)
        return bad_weight(j, weight, s, "it has biases");
    if (biases != MICA__NO_TENSOR &&
        (all[biases].dtype != all[scales].dtype || !fits(weight, &all[biases], values, s->group_size)))
        return bad_weight(j, weight, s, "its biases are of another type or shape than its scales");
    weight->dtype = weight_dtype(s);
    weight->shape[weight->ndim - 1] = values;
    weight->type_name = s->mode->name;
    weight->group_size = s->group_size;
    weight->scales = scales;
    weight->biases = biases;
    if (s->mode->scale_dtype != MICA_DTYPE_NONE)
        all[scales].dtype = s->mode->scale_dtype;
    j->hidden[scales] = true;
    if (biases != MICA__NO_TENSOR)
        j->hidden[biases] = true;
    return MICA_OK;
}

/* Joins tensor `index` if it is packed words with scales beside them. */
static mica_status visit(joiner *j, uint32_t index)
{
    static const char suffix[] = "weight";
    const mica__tensor *weight = &j->archive->tensor[index];
    const mica__json_node *node = NULL;
    uint32_t scales = MICA__NO_TENSOR, biases = MICA__NO_TENSOR;
    scheme s = j->common;
    mica_status status;
    const size_t stem = weight->name_length - (sizeof suffix - 1); /* with the dot */

    if (weight->dtype != MICA_DTYPE_U32 || weight->problem != MICA__TENSOR_FINE ||
        weight->name_length < sizeof suffix + 1 || weight->name[stem - 1] != '.' ||
        memcmp(weight->name + stem, suffix, sizeof suffix - 1) != 0)
        return MICA_OK;
    status = find_beside(j, weight, stem, "scales", &scales);
    if (status == MICA_OK)
        status = rule_for(j, weight->name, stem - 1, &node);
    if (status != MICA_OK || (node != NULL && node->type == MICA__JSON_FALSE))
        return status;
    if (node != NULL && node->type == MICA__JSON_OBJECT)
        status = read_scheme(j, node, node->key, &s);
    if (status != MICA_OK || (scales == MICA__NO_TENSOR && node == NULL))
        return status;
    if (scales == MICA__NO_TENSOR)
        return bad_weight(j, weight, &s, "it has no scales");
    status = find_beside(j, weight, stem, "biases", &biases);
    return status == MICA_OK ? join_weight(j, &s, index, scales, biases) : status;
}

/* ---- all of them ---------------------------------------------------------------------------------------- */

/* Moves what is hidden behind what is visible, and the indices with it. */
static mica_status hide(joiner *j)
{
    mica__archive *archive = j->archive;
    const uint32_t count = archive->tensor_count;
    uint32_t visible = 0, at[2];
    mica__tensor *moved = mica__archive_alloc(archive, (size_t)count * sizeof *moved);
    uint32_t *place = mica__alloc((size_t)count * sizeof *place);
    if (moved == NULL || place == NULL) {
        mica__free(place);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to order %u tensors", count);
    }
    for (uint32_t i = 0; i < count; i++)
        visible += !j->hidden[i];
    at[0] = 0;
    at[1] = visible;
    for (uint32_t i = 0; i < count; i++)
        place[i] = at[j->hidden[i]]++;
    for (uint32_t i = 0; i < count; i++) {
        mica__tensor *tensor = &moved[place[i]];
        *tensor = archive->tensor[i];
        tensor->scales = tensor->scales == MICA__NO_TENSOR ? MICA__NO_TENSOR : place[tensor->scales];
        tensor->biases = tensor->biases == MICA__NO_TENSOR ? MICA__NO_TENSOR : place[tensor->biases];
    }
    mica__free(place);
    archive->tensor = moved;
    archive->visible_count = visible;
    return mica__archive_index(archive);
}

static mica_status join_all(joiner *j)
{
    mica_status status = MICA_OK;
    j->hidden = mica__calloc(j->archive->tensor_count, sizeof *j->hidden);
    if (j->hidden == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to join %u tensors", j->archive->tensor_count);
    for (uint32_t i = 0; i < j->archive->tensor_count && status == MICA_OK; i++)
        status = visit(j, i);
    if (status == MICA_OK)
        status = hide(j);
    if (status == MICA_OK)
        j->archive->format = MICA_FORMAT_MLX;
    return status;
}

mica_status mica__mlx_join(mica__archive *archive)
{
    joiner j = {.archive = archive};
    const mica__json_node *quantization = NULL;
    mica_status status;
    if (archive->config == NULL)
        return MICA_OK;
    status = parse_config(&j);
    if (status == MICA_OK)
        quantization = find_quantization(j.json);
    if (quantization != NULL)
        status = read_rules(&j, quantization);
    if (status == MICA_OK && quantization != NULL)
        status = join_all(&j);
    mica__json_release(j.json);
    mica__free(j.rules);
    mica__free(j.hidden);
    return status;
}
