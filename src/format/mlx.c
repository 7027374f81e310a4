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
#include "base/json/json_reader.h"
#include "base/sort.h"
#include "base/work.h"
#include "format/archive.h"

#define MAX_GROUP 65536u

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

#define BAD UINT32_MAX /* a setting that is there and is none */

/* What an object in the config says, as it stands there; a mistake in it matters only if a weight needs it. */
typedef struct settings {
    uint32_t mode;             /* index into modes; BAD */
    uint32_t bits, group_size; /* 0: absent; BAD */
} settings;

typedef enum rule_kind { RULE_FALSE, RULE_TRUE, RULE_OBJECT } rule_kind;

/* What config.json says of one module. */
typedef struct rule {
    const char *path;
    uint32_t length;
    rule_kind kind;
    settings settings; /* of RULE_OBJECT */
} rule;

/* An object "quantization" of the config. */
typedef struct section {
    settings common;
    rule *rules; /* [rule_count], sorted by path */
    uint32_t rule_count, room;
    bool present, foreign; /* is an object; has a quant_method, so that it is not MLX's */
} section;

/* MLX writes its settings under both names; under the second others put theirs, with a quant_method. */
static const char *const section_names[2] = {"quantization", "quantization_config"};

typedef struct joiner {
    mica__archive *archive;
    section sections[2];
    const section *section; /* the one that holds */
    scheme common;
    bool *hidden;               /* [archive->tensor_count] */
    struct mica__chunk *chunks; /* memory of the rules */
    bool keep;                  /* the second reading of the config: rules that were counted are kept */
    mica__json_reader reader;
} joiner;

/* ---- the config ----------------------------------------------------------------------------------------- */

static mica_status bad_json(const joiner *j, mica_status status)
{
    if (status == MICA_OK)
        return status;
    return mica__fail(mica__json_status(status), "config.json beside \"%s\": %s",
                      mica__archive_path(j->archive, 0), mica_status_message());
}

static bool is_key(const mica__json_node *item, const char *key)
{
    return item->key_length == strlen(key) && memcmp(item->key, key, item->key_length) == 0;
}

static uint32_t read_mode(const mica__json_node *word)
{
    for (uint32_t i = 0; i < MODE_COUNT && word->type == MICA__JSON_STRING; i++)
        if (strlen(modes[i].name) == word->string.length &&
            memcmp(word->string.data, modes[i].name, word->string.length) == 0)
            return i;
    return BAD;
}

/* A whole number; null counts as absent. */
static uint32_t read_number(const mica__json_node *item)
{
    if (item->type == MICA__JSON_NULL)
        return 0;
    if (item->exact != MICA__JSON_EXACT_UINT || item->number.uint_value < 1 ||
        item->number.uint_value > MAX_GROUP)
        return BAD;
    return (uint32_t)item->number.uint_value;
}

/* A member of an object of settings; any other is left alone. */
static void read_setting(const mica__json_node *item, settings *out)
{
    if (is_key(item, "mode"))
        out->mode = read_mode(item);
    else if (is_key(item, "bits"))
        out->bits = read_number(item);
    else if (is_key(item, "group_size"))
        out->group_size = read_number(item);
}

/* All members of a rule, to its end. */
static mica_status read_settings(joiner *j, settings *out)
{
    mica__json_event event = MICA__JSON_EVENT_DONE;
    mica__json_node item;
    mica_status status;
    for (;;) {
        status = bad_json(j, mica__json_reader_next(&j->reader, &event, &item));
        if (status != MICA_OK || event == MICA__JSON_EVENT_CLOSE)
            return status;
        read_setting(&item, out);
        if (event == MICA__JSON_EVENT_OPEN)
            status = bad_json(j, mica__json_reader_skip(&j->reader));
        if (status != MICA_OK)
            return status;
    }
}

/* A member that is an object or a truth value: a rule for the module of that name. */
static mica_status read_rule(joiner *j, section *s, const mica__json_node *item)
{
    rule r = {.length = item->key_length};
    r.kind = item->type == MICA__JSON_OBJECT ? RULE_OBJECT
             : item->type == MICA__JSON_TRUE ? RULE_TRUE
                                             : RULE_FALSE;
    if (j->keep && s->rule_count == s->room)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "config.json beside \"%s\" changed while it was read",
                          mica__archive_path(j->archive, 0));
    if (j->keep) {
        char *path = mica__chunks_alloc(&j->chunks, (size_t)r.length + 1);
        if (path == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        memcpy(path, item->key, r.length);
        path[r.length] = '\0';
        r.path = path;
    }
    const mica_status status = r.kind == RULE_OBJECT ? read_settings(j, &r.settings) : MICA_OK;
    if (j->keep)
        s->rules[s->rule_count] = r;
    s->rule_count++;
    return status;
}

/* Every member that is an object or a truth value is a rule; the rest are the common settings. */
static mica_status read_section(joiner *j, section *s)
{
    mica__json_event event = MICA__JSON_EVENT_DONE;
    mica__json_node item;
    mica_status status;
    s->present = true;
    for (;;) {
        status = bad_json(j, mica__json_reader_next(&j->reader, &event, &item));
        if (status != MICA_OK || event == MICA__JSON_EVENT_CLOSE)
            return status;
        s->foreign |= is_key(&item, "quant_method");
        read_setting(&item, &s->common);
        if (item.type == MICA__JSON_OBJECT || item.type == MICA__JSON_TRUE || item.type == MICA__JSON_FALSE)
            status = read_rule(j, s, &item);
        else if (event == MICA__JSON_EVENT_OPEN)
            status = bad_json(j, mica__json_reader_skip(&j->reader));
        if (status != MICA_OK)
            return status;
    }
}

static mica_status read_members(joiner *j)
{
    mica__json_event event = MICA__JSON_EVENT_DONE;
    mica__json_node item;
    mica_status status;
    do {
        section *s = NULL;
        status = bad_json(j, mica__json_reader_next(&j->reader, &event, &item));
        for (size_t i = 0; i < 2 && status == MICA_OK; i++)
            s = item.type == MICA__JSON_OBJECT && is_key(&item, section_names[i]) ? &j->sections[i] : s;
        if (s != NULL)
            status = read_section(j, s);
        else if (status == MICA_OK && event == MICA__JSON_EVENT_OPEN && j->reader.depth > 1)
            status = bad_json(j, mica__json_reader_skip(&j->reader));
    } while (status == MICA_OK && event != MICA__JSON_EVENT_DONE);
    return status;
}

/* Reads the config once: to check and to count, or to keep. */
static mica_status walk(joiner *j, const mica__file *config, bool keep)
{
    const mica__json_limits limits = {(size_t)mica__file_size(config) + 1, 0, 0};
    mica_status status =
        bad_json(j, mica__json_reader_begin(&j->reader, config, 0, mica__file_size(config), &limits));
    j->keep = keep;
    j->reader.constants = true;
    j->reader.unchecked_levels = keep ? UINT32_MAX : 0;
    if (status == MICA_OK)
        status = read_members(j);
    mica__json_reader_end(&j->reader);
    return status;
}

static mica_status reserve_rules(joiner *j)
{
    for (size_t i = 0; i < 2; i++) {
        section *s = &j->sections[i];
        s->room = s->rule_count;
        s->rule_count = 0;
        s->rules = s->room == 0 ? NULL : mica__chunks_alloc(&j->chunks, (size_t)s->room * sizeof *s->rules);
        if (s->rules == NULL && s->room != 0)
            return MICA_ERR_OUT_OF_MEMORY;
    }
    return MICA_OK;
}

static mica_status parse_config(joiner *j)
{
    const mica__archive *archive = j->archive;
    mica__file *config = NULL;
    mica_status status =
        mica__file_from_bytes("config.json", archive->config, archive->config_length, &config);
    if (status == MICA_OK)
        status = walk(j, config, false);
    if (status == MICA_OK)
        status = reserve_rules(j);
    if (status == MICA_OK)
        status = walk(j, config, true);
    mica__file_close(config);
    if (status != MICA_OK)
        return status;
    const section *first = &j->sections[0], *second = &j->sections[1];
    if (first->present)
        j->section = first;
    else if (second->present && !second->foreign && second->common.bits != 0 &&
             second->common.group_size != 0)
        j->section = second;
    return MICA_OK;
}

static mica_status bad_config(const joiner *j, const char *where, const char *what)
{
    return mica__fail(MICA_ERR_QUANT_CONFIG,
                      "config.json beside \"%s\": %s of \"%.200s\" in its quantization",
                      mica__archive_path(j->archive, 0), what, where);
}

static mica_status bad_number(const joiner *j, const char *where, const char *key)
{
    return mica__fail(MICA_ERR_QUANT_CONFIG,
                      "config.json beside \"%s\": %s of \"%.200s\" in its quantization is not from 1 to %u",
                      mica__archive_path(j->archive, 0), key, where, MAX_GROUP);
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

/* What settings mean; as in MLX they take nothing from those around them, and what they leave out is the mode's. */
static mica_status make_scheme(const joiner *j, const settings *set, const char *where, scheme *out)
{
    if (set->mode == BAD)
        return bad_config(j, where, "the mode is none of affine, mxfp4, mxfp8 and nvfp4: that");
    if (set->bits == BAD || set->group_size == BAD)
        return bad_number(j, where, set->bits == BAD ? "bits" : "group_size");
    out->mode = &modes[set->mode];
    out->bits = set->bits != 0 ? set->bits : out->mode->bits;
    out->group_size = set->group_size != 0 ? set->group_size : out->mode->group_size;
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

/* ---- one weight ----------------------------------------------------------------------------------------- */

static const rule *find_rule(const joiner *j, const char *path, size_t length)
{
    const rule *rules = j->section->rules;
    uint32_t low = 0, high = j->section->rule_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = compare_paths(path, length, rules[middle].path, rules[middle].length);
        if (order == 0)
            return &rules[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* The rule for a module. Models with pictures have their text part under language_model, and the config names modules
 * with that prefix or without it. */
static mica_status rule_for(const joiner *j, const char *path, size_t length, const rule **out)
{
    static const char prefix[] = "language_model.";
    const size_t before = sizeof prefix - 1;
    char *longer;
    *out = find_rule(j, path, length);
    if (*out != NULL || j->section->rule_count == 0)
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
    const rule *found = NULL;
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
        status = rule_for(j, weight->name, stem - 1, &found);
    if (status != MICA_OK || (found != NULL && found->kind == RULE_FALSE))
        return status;
    if (found != NULL && found->kind == RULE_OBJECT)
        status = make_scheme(j, &found->settings, found->path, &s);
    if (status != MICA_OK || (scales == MICA__NO_TENSOR && found == NULL))
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
    for (uint32_t i = 0; i < j->archive->tensor_count && status == MICA_OK; i++) {
        status = mica__spend(32); /* four searches */
        if (status == MICA_OK)
            status = visit(j, i);
    }
    if (status == MICA_OK)
        status = hide(j);
    if (status == MICA_OK)
        j->archive->format = MICA_FORMAT_MLX;
    return status;
}

/* Joins as the section says that holds. */
static mica_status join_section(joiner *j)
{
    section *s = &j->sections[j->section == &j->sections[0] ? 0 : 1];
    mica_status status = make_scheme(j, &s->common, "all tensors", &j->common);
    if (status == MICA_OK)
        status = mica__sort(s->rules, s->rule_count, sizeof *s->rules, by_path);
    return status == MICA_OK ? join_all(j) : status;
}

mica_status mica__mlx_join(mica__archive *archive)
{
    joiner j = {.archive = archive};
    if (archive->config == NULL)
        return MICA_OK;
    mica_status status = parse_config(&j);
    if (status == MICA_OK && j.section != NULL)
        status = join_section(&j);
    mica__chunks_free(&j.chunks);
    mica__free(j.hidden);
    return status;
}
