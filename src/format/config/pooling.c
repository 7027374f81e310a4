/*
 * pooling.c - how the vectors of a text's tokens become one: modules.json and 1_Pooling/config.json of sentence-transformers,
 * and GGUF's pooling_type. What mica cannot do is refused: other vectors than the makers' would look like good ones.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "format/config/config_back.h"
#include "format/convert/convert.h"

/* The words for it; type is GGUF's number, 0 where mica has no such pooling. */
static const struct mode {
    const char *word, *key; /* of "pooling_mode", and the older key that is true or false */
    uint32_t type;
} modes[] = {
    {"mean", "pooling_mode_mean_tokens", 1},
    {"cls", "pooling_mode_cls_token", 2},
    {"lasttoken", "pooling_mode_lasttoken", 3},
    {"max", "pooling_mode_max_tokens", 0},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", 0},
    {"weightedmean", "pooling_mode_weightedmean_tokens", 0},
};

#define MODES (sizeof modes / sizeof modes[0])

/* A JSON file of the folder, parsed. */
typedef struct source {
    mica__side_file file; /* data NULL: there is none */
    mica__json *json;
} source;

static void close_source(source *s)
{
    mica__json_release(s->json);
    mica__free(s->file.data);
    *s = (source){0};
}

/* Nothing to close on failure. */
static mica_status open_source(mica__target *target, const char *folder, const char *name,
                               mica__json_type type, source *out)
{
    static const mica__json_limits limits = {.max_bytes = 1 << 20, .max_depth = 8, .max_nodes = 1 << 16};
    *out = (source){0};
    mica_status status = mica__target_read_side(target, folder, name, &out->file);
    if (status != MICA_OK || out->file.data == NULL)
        return status;
    status = mica__json_parse(out->file.data, out->file.size, &limits, &out->json);
    if (status != MICA_OK)
        status = mica__fail(mica__json_status(status), "\"%s\": %s", out->file.path, mica_status_message());
    else if (mica__json_root(out->json)->type != type)
        status = mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": it is %s, expected %s", out->file.path,
                            mica__json_type_name(mica__json_root(out->json)),
                            type == MICA__JSON_ARRAY ? "an array" : "an object");
    if (status != MICA_OK)
        close_source(out);
    return status;
}

/* ---- the pooling module ---------------------------------------------------------------------------------- */

/* What a config.json asks for: the last mode and how many. */
typedef struct asked {
    const char *mode;
    uint32_t count;
} asked;

static void ask(asked *a, const char *mode)
{
    a->mode = mode;
    a->count++;
}

/* "pooling_mode": a word, or a list of them. */
static mica_status ask_words(const source *s, const mica__json_node *node, asked *a)
{
    const char *word = NULL;
    const mica__json_node *item = node->type == MICA__JSON_ARRAY ? mica__json_first(node) : node;
    for (; item != NULL; item = item == node ? NULL : mica__json_next(s->json, item)) {
        MICA__TRY(mica__json_as_string(item, "pooling_mode", &word, NULL));
        ask(a, word);
    }
    return MICA_OK;
}

/* One member; words go before the older truths. */
static mica_status read_member(const source *s, const mica__json_node *node, mica__pooling *out, asked *words,
                               asked *truths)
{
    bool truth = false;
    for (size_t i = 0; i < MODES; i++)
        if (strcmp(node->key, modes[i].key) == 0) {
            MICA__TRY(mica__json_as_bool(node, modes[i].key, &truth));
            if (truth)
                ask(truths, modes[i].word);
            return MICA_OK;
        }
    if (strcmp(node->key, "pooling_mode") == 0)
        return ask_words(s, node, words);
    if (strcmp(node->key, "embedding_dimension") == 0 || strcmp(node->key, "word_embedding_dimension") == 0)
        return mica__json_as_uint(node, node->key, 1, UINT32_MAX, &out->width);
    if (strcmp(node->key, "include_prompt") == 0) /* mica puts none before a text */
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "\"%.80s\" is not known and may change the vectors", node->key);
}

static mica_status choose_mode(const asked *a, mica__pooling *out)
{
    const char *mode = a->count == 0 ? "mean" : a->mode;
    if (a->count > 1)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%u poolings at once, \"%.40s\" is one; mica has one",
                          a->count, mode);
    for (size_t i = 0; i < MODES; i++)
        if (strcmp(mode, modes[i].word) == 0)
            out->type = modes[i].type;
    return out->type != 0 ? MICA_OK
                          : mica__fail(MICA_ERR_UNSUPPORTED,
                                       "the pooling \"%.40s\", mica has mean, cls and lasttoken", mode);
}

static mica_status read_config(const source *s, mica__pooling *out)
{
    asked words = {0}, truths = {0};
    const mica__json_node *node = mica__json_first(mica__json_root(s->json));
    for (; node != NULL; node = mica__json_next(s->json, node))
        MICA__TRY(read_member(s, node, out, &words, &truths));
    return choose_mode(words.count != 0 ? &words : &truths, out);
}

static mica_status read_pooling(mica__target *target, const char *folder, const char *name,
                                mica__pooling *out)
{
    source s;
    MICA__TRY(open_source(target, folder, name, MICA__JSON_OBJECT, &s));
    if (s.json == NULL)
        return mica__fail(MICA_ERR_NOT_FOUND, "\"%s\", which modules.json names, is not there", s.file.path);
    mica_status status = read_config(&s, out);
    if (status != MICA_OK)
        status = mica__fail(status, "\"%s\": %s", s.file.path, mica_status_message());
    out->config = status == MICA_OK ? mica__target_text(target, "%s", (const char *)s.file.data) : NULL;
    close_source(&s);
    return status == MICA_OK && out->config == NULL ? MICA_ERR_OUT_OF_MEMORY : status;
}

/* It may be there, and may say whose length it makes one: that of the text's vector. */
static mica_status read_normalize(mica__target *target, const char *folder, const char *name,
                                  mica__pooling *out)
{
    source s;
    mica_status status = MICA_OK;
    MICA__TRY(open_source(target, folder, name, MICA__JSON_OBJECT, &s));
    const mica__json_node *node = s.json == NULL ? NULL : mica__json_first(mica__json_root(s.json));
    for (; node != NULL && status == MICA_OK; node = mica__json_next(s.json, node))
        if (node->type != MICA__JSON_STRING || strcmp(node->string.data, "sentence_embedding") != 0)
            status = mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": \"%.80s\" is not \"sentence_embedding\"",
                                s.file.path, node->key);
    out->normalise = true;
    close_source(&s);
    return status;
}

/* ---- modules.json ---------------------------------------------------------------------------------------- */

enum { TRANSFORMER, POOLING, NORMALIZE, KINDS };

static const char *const kind_names[KINDS] = {"Transformer", "Pooling", "Normalize"};

/* The place of the class has moved from version to version; classes of others may have the same name. */
static uint32_t kind_of(const char *type)
{
    static const char root[] = "sentence_transformers.";
    const char *dot = strrchr(type, '.');
    uint32_t kind = 0;
    if (strncmp(type, root, sizeof root - 1) != 0)
        return KINDS;
    while (kind < KINDS && strcmp(dot + 1, kind_names[kind]) != 0)
        kind++;
    return kind;
}

static bool leaves_folder(const char *path)
{
    if (path[0] == '/')
        return true;
    for (const char *at = path; at != NULL; at = strchr(at, '/')) {
        at += at[0] == '/';
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
            return true;
    }
    return false;
}

static mica_status read_module(mica__target *target, const char *folder, const source *s,
                               const mica__json_node *node, uint32_t index, mica__pooling *out)
{
    const char *type = NULL, *path = NULL;
    const uint32_t expected = index < NORMALIZE ? index : NORMALIZE;
    mica_status status = mica__json_get_string(s->json, node, "type", &type, NULL);
    if (status == MICA_OK)
        status = mica__json_get_string(s->json, node, "path", &path, NULL);
    if (status != MICA_OK)
        return mica__fail(status, "\"%s\": module %u: %s", s->file.path, index, mica_status_message());
    if (kind_of(type) != expected)
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "\"%s\": module %u is \"%.100s\", mica runs a Transformer, a Pooling and a Normalize "
            "of sentence_transformers, in this order; without modules.json a folder is its "
            "Transformer alone",
            s->file.path, index, type);
    if (leaves_folder(path) || (path[0] == '\0') != (expected == TRANSFORMER))
        return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": module %u has the path \"%.100s\", expected %s",
                          s->file.path, index, path,
                          expected == TRANSFORMER ? "none: the folder itself" : "one inside the folder");
    const char *name = mica__target_text(target, "%s/config.json", path);
    if (name == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (expected == TRANSFORMER)
        return MICA_OK;
    return expected == POOLING ? read_pooling(target, folder, name, out)
                               : read_normalize(target, folder, name, out);
}

/* sentence_bert_config.json may ask for texts in small letters before the tokenizer sees them: mica does not do that, and other
 * texts have other vectors. How long a text may be is the caller's to say. */
static mica_status check_case(mica__target *target, const char *folder)
{
    source s;
    bool lowers = false;
    MICA__TRY(open_source(target, folder, "sentence_bert_config.json", MICA__JSON_OBJECT, &s));
    const mica__json_node *node = s.json == NULL ? NULL : mica__json_first(mica__json_root(s.json));
    mica_status status = MICA_OK;
    for (; node != NULL && status == MICA_OK; node = mica__json_next(s.json, node))
        if (strcmp(node->key, "do_lower_case") == 0)
            status = mica__json_as_bool(node, "do_lower_case", &lowers);
    if (status == MICA_OK && lowers)
        status =
            mica__fail(MICA_ERR_UNSUPPORTED,
                       "\"%s\": \"do_lower_case\" is true, mica gives texts to the tokenizer as they are; "
                       "where the tokenizer makes small letters itself, false says the same",
                       s.file.path);
    close_source(&s);
    return status;
}

mica_status mica__pooling_read(mica__target *target, const char *folder, mica__pooling *out)
{
    source s;
    uint32_t index = 0;
    mica_status status = MICA_OK;
    *out = (mica__pooling){0};
    MICA__TRY(open_source(target, folder, "modules.json", MICA__JSON_ARRAY, &s));
    if (s.json == NULL)
        return MICA_OK;
    status = check_case(target, folder);
    const mica__json_node *node = mica__json_first(mica__json_root(s.json));
    for (; node != NULL && status == MICA_OK; node = mica__json_next(s.json, node))
        status = read_module(target, folder, &s, node, index++, out);
    if (status == MICA_OK && out->type == 0)
        status = mica__fail(MICA_ERR_UNSUPPORTED,
                            "\"%s\": it has no Pooling, mica's vectors of texts need one", s.file.path);
    close_source(&s);
    return status;
}

/* ---- GGUF ------------------------------------------------------------------------------------------------- */

mica_status mica__pooling_to_gguf(mica__target *target, const char *folder, const mica__name_family *family)
{
    mica__pooling pooling;
    MICA__TRY(mica__pooling_read(target, folder, &pooling));
    if (pooling.type == 0)
        return MICA_OK;
    const char *key = mica__target_text(target, "%s.pooling_type", family->arch);
    const char *width_key = mica__target_text(target, "%s.embedding_length", family->arch);
    if (key == NULL || width_key == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    const uint64_t width = mica__target_get_number(target, width_key, 0);
    if (pooling.width != 0 && pooling.width != width)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "\"%s\": modules.json: the Pooling is for vectors of %llu, the model's have %llu",
                          folder, (unsigned long long)pooling.width, (unsigned long long)width);
    return mica__target_set_u32(target, key, pooling.type);
}

mica_status mica__pooling_from_gguf(mica__target *target, mica__pooling *out)
{
    const mica_value *arch = mica__archive_meta(target->archive, "general.architecture");
    mica__config_back b = {.target = target};
    *out = (mica__pooling){0};
    if (arch != NULL && arch->type == MICA_VALUE_STRING)
        b.family = mica__name_family_of_gguf(arch->as.string.data);
    const double type = b.family == NULL ? 0 : mica__back_number(&b, "pooling_type", 0);
    if (type == 0) /* none is said, and readers take their own */
        return MICA_OK;
    for (size_t i = 0; i < MODES; i++)
        if (modes[i].type != 0 && type == modes[i].type)
            out->type = modes[i].type;
    if (out->type == 0)
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "\"%s.pooling_type\" is %g, a folder has 1 (mean), 2 (the first token) and 3 (the last)",
            b.family->arch, type);
    out->normalise = true; /* a GGUF does not say it; programs that run one do it unless told otherwise */
    out->width = (uint64_t)mica__back_number(&b, "embedding_length", 0);
    out->config = mica__target_text(target,
                                    "{\"word_embedding_dimension\":%llu,\"pooling_mode_cls_token\":%s,"
                                    "\"pooling_mode_mean_tokens\":%s,\"pooling_mode_lasttoken\":%s}\n",
                                    (unsigned long long)out->width, out->type == 2 ? "true" : "false",
                                    out->type == 1 ? "true" : "false", out->type == 3 ? "true" : "false");
    return out->config == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
}

/* The names of classes that all versions of sentence-transformers find. */
#define MODULE(number, path, name)                                 \
    "{\"idx\":" number ",\"name\":\"" number "\",\"path\":\"" path \
    "\",\"type\":\"sentence_transformers.models." name "\"}"
#define BOTH MODULE("0", "", "Transformer") "," MODULE("1", "1_Pooling", "Pooling")

const char *mica__pooling_modules(const mica__pooling *pooling)
{
    return pooling->normalise ? "[" BOTH "," MODULE("2", "2_Normalize", "Normalize") "]\n" : "[" BOTH "]\n";
}
