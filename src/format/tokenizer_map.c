/*
 * tokenizer_map.c - tokenizer.json and tokenizer_config.json in GGUF's words: tokens, their kinds, scores and merges, the
 * special ones, and the chat template. A tokenizer of an unknown kind is left out: the tensors are worth having without.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "format/config_map.h"
#include "format/convert.h"

#define MOST_BYTES ((size_t)128 << 20)
#define MOST_TOKENS ((uint64_t)1 << 22)

/* The kinds of tokens, as GGUF numbers them. */
enum { KIND_NORMAL = 1, KIND_UNKNOWN, KIND_CONTROL, KIND_USER, KIND_UNUSED, KIND_BYTE };

typedef struct tokenizer {
    mica__plan *plan;
    const mica__json *config;
    const mica__family *family;
    mica__json *json, *settings; /* tokenizer.json; tokenizer_config.json, or NULL */
    const mica__json_node *model;
    const char *kind; /* GGUF's: "gpt2", "llama", "t5", "bert" */
    bool failed;      /* no memory for a token */
    uint64_t count;
    mica_string *token; /* [count] */
    float *score;       /* [count] */
    int32_t *type;      /* [count] */
} tokenizer;

/* A JSON file of the folder; *out is NULL where it is not. */
static mica_status read_json(mica__plan *plan, const char *folder, const char *name, mica__json **out)
{
    const char *path = mica__plan_text(plan, "%s/%s", folder, name);
    void *text = NULL;
    size_t size = 0;
    *out = NULL;
    if (path == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (mica__file_look(path) != MICA__FILE_KIND_REGULAR)
        return MICA_OK;
    mica_status status = mica__file_read_all(path, MOST_BYTES, &text, &size);
    if (status == MICA_OK) {
        status = mica__json_parse(text, size, NULL, out);
        if (status != MICA_OK && status != MICA_ERR_OUT_OF_MEMORY)
            status = mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": %s", path, mica_status_message());
    }
    mica__free(text);
    return status;
}

static const char *text_of(const mica__json_node *node)
{
    return node != NULL && node->type == MICA__JSON_STRING ? node->string.data : "";
}

static bool is_true(const mica__json *json, const mica__json_node *object, const char *key)
{
    const mica__json_node *node = mica__json_get(json, object, key);
    return node != NULL && node->type == MICA__JSON_TRUE;
}

/* ---- tokens --------------------------------------------------------------------------------------------- */

static const char *find_kind(const tokenizer *t)
{
    const char *type = text_of(mica__json_get(t->json, t->model, "type"));
    if (strcmp(type, "BPE") == 0)
        return is_true(t->json, t->model, "byte_fallback") ? "llama" : "gpt2";
    return strcmp(type, "Unigram") == 0 ? "t5" : strcmp(type, "WordPiece") == 0 ? "bert" : NULL;
}

/* The id of a token in the vocabulary or among the added ones, or the count. */
static uint64_t id_of(const mica__json_node *node)
{
    uint64_t id = 0;
    if (node == NULL || node->type != MICA__JSON_NUMBER ||
        mica__json_as_uint(node, "id", 0, MOST_TOKENS, &id) != MICA_OK)
        return MOST_TOKENS;
    return id;
}

/* Calls `see` for every token of the vocabulary, an object of ids or a list of pairs with scores. */
static void each_token(tokenizer *t,
                       void (*see)(tokenizer *t, uint64_t id, const char *text, size_t length, double score))
{
    const mica__json_node *list = mica__json_get(t->json, t->model, "vocab");
    const mica__json_node *item = list == NULL ? NULL : mica__json_first(list);
    for (uint64_t i = 0; item != NULL; i++, item = mica__json_next(t->json, item)) {
        if (list->type == MICA__JSON_OBJECT) {
            see(t, id_of(item), item->key, item->key_length, 0);
            continue;
        }
        const mica__json_node *text = mica__json_first(item);
        const mica__json_node *score = text == NULL ? NULL : mica__json_next(t->json, text);
        if (text != NULL && text->type == MICA__JSON_STRING && score != NULL &&
            score->type == MICA__JSON_NUMBER)
            see(t, i, text->string.data, text->string.length, score->number.real);
    }
}

static void see_largest(tokenizer *t, uint64_t id, const char *text, size_t length, double score)
{
    (void)text, (void)length, (void)score;
    if (id < MOST_TOKENS && id >= t->count)
        t->count = id + 1;
}

/* <0x0A> stands for a byte. */
static bool is_byte(const char *text, size_t length)
{
    return length == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>';
}

/* Wordpieces are marked at their start in GGUF, where HF marks their continuations. */
static mica_string spell(tokenizer *t, const char *text, size_t length)
{
    if (strcmp(t->kind, "bert") != 0 || (length > 2 && text[0] == '[' && text[length - 1] == ']'))
        return (mica_string){text, length};
    if (length > 2 && memcmp(text, "##", 2) == 0)
        return (mica_string){text + 2, length - 2};
    const char *marked = mica__plan_text(t->plan, "\xe2\x96\x81%s", text);
    t->failed = t->failed || marked == NULL;
    return (mica_string){marked, marked == NULL ? 0 : length + 3};
}

static void see_token(tokenizer *t, uint64_t id, const char *text, size_t length, double score)
{
    if (id >= t->count)
        return;
    t->token[id] = spell(t, text, length);
    t->score[id] = (float)score;
    t->type[id] = strcmp(t->kind, "llama") == 0 && is_byte(text, length) ? KIND_BYTE : KIND_NORMAL;
}

/* Tokens that are control by their looks, whatever the file calls them. */
static bool looks_special(const char *text, size_t length)
{
    return strcmp(text, "<pad>") == 0 || strcmp(text, "<mask>") == 0 || strcmp(text, "<2mass>") == 0 ||
           strcmp(text, "[@BOS@]") == 0 ||
           (length > 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + length - 2, "|>", 2) == 0) ||
           (length > 8 && memcmp(text, "<unused", 7) == 0 && text[length - 1] == '>');
}

/* Tokens that were added to the vocabulary; with `measure` only their largest id. */
static void see_added(tokenizer *t, bool measure)
{
    const mica__json_node *list = mica__json_get(t->json, mica__json_root(t->json), "added_tokens");
    const mica__json_node *item = list == NULL ? NULL : mica__json_first(list);
    for (; item != NULL; item = mica__json_next(t->json, item)) {
        const mica__json_node *text = mica__json_get(t->json, item, "content");
        const uint64_t id = id_of(mica__json_get(t->json, item, "id"));
        if (text == NULL || text->type != MICA__JSON_STRING)
            continue;
        if (measure) {
            see_largest(t, id, NULL, 0, 0);
        } else if (id < t->count) {
            const bool control =
                is_true(t->json, item, "special") || looks_special(text->string.data, text->string.length);
            t->token[id] = (mica_string){text->string.data, text->string.length};
            t->type[id] = control ? KIND_CONTROL : KIND_USER;
            t->score[id] = strcmp(t->kind, "llama") == 0 && !control ? -1000.0f : 0.0f;
        }
    }
}

/* Sentencepiece's scores of byte pair merges fall by one from piece to piece. */
static void score_pieces(tokenizer *t)
{
    float score = 0;
    for (uint64_t i = 0; i < t->count; i++)
        if (t->type[i] == KIND_NORMAL) {
            t->score[i] = score;
            score -= 1;
        }
}

static mica_status fill_gaps(tokenizer *t)
{
    const mica__json_node *unknown = mica__json_get(t->json, t->model, "unk_token");
    for (uint64_t i = 0; i < t->count; i++) {
        if (t->token[i].data == NULL) {
            const char *text = mica__plan_text(t->plan, "[PAD%llu]", (unsigned long long)i);
            if (text == NULL)
                return MICA_ERR_OUT_OF_MEMORY;
            t->token[i] = (mica_string){text, strlen(text)};
            t->type[i] = KIND_UNUSED;
            t->score[i] = -10000.0f;
        } else if (unknown != NULL && strcmp(t->kind, "gpt2") != 0 && strcmp(t->kind, "bert") != 0 &&
                   strcmp(text_of(unknown), t->token[i].data) == 0) {
            t->type[i] = KIND_UNKNOWN;
        }
    }
    return MICA_OK;
}

/* Texts point into the JSON, which goes: they become the plan's. */
static mica_status keep_texts(tokenizer *t)
{
    for (uint64_t i = 0; i < t->count; i++) {
        char *copy = mica__chunks_alloc(&t->plan->chunks, (size_t)t->token[i].length + 1);
        if (copy == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        memcpy(copy, t->token[i].data, (size_t)t->token[i].length);
        copy[t->token[i].length] = '\0';
        t->token[i].data = copy;
    }
    return MICA_OK;
}

static mica_status set_array(tokenizer *t, const char *key, mica_value_type type, uint64_t count,
                             const void *items)
{
    return mica__plan_set(
        t->plan, key,
        &(mica_value){.type = MICA_VALUE_ARRAY, .item_type = type, .count = count, .as.items = items});
}

static mica_status set_tokens(tokenizer *t)
{
    uint64_t wanted = id_of(mica__config_get(t->config, "vocab_size"));
    each_token(t, see_largest);
    see_added(t, true);
    if (wanted < MOST_TOKENS && wanted > t->count)
        t->count = wanted;
    if (t->count == 0)
        return MICA_OK;
    t->token = mica__chunks_alloc(&t->plan->chunks, (size_t)t->count * sizeof *t->token);
    t->score = mica__chunks_alloc(&t->plan->chunks, (size_t)t->count * sizeof *t->score);
    t->type = mica__chunks_alloc(&t->plan->chunks, (size_t)t->count * sizeof *t->type);
    if (t->token == NULL || t->score == NULL || t->type == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    memset(t->token, 0, (size_t)t->count * sizeof *t->token);
    memset(t->score, 0, (size_t)t->count * sizeof *t->score);
    memset(t->type, 0, (size_t)t->count * sizeof *t->type);
    each_token(t, see_token);
    see_added(t, false);
    if (strcmp(t->kind, "llama") == 0)
        score_pieces(t);
    mica_status status = t->failed ? MICA_ERR_OUT_OF_MEMORY : fill_gaps(t);
    if (status == MICA_OK)
        status = keep_texts(t);
    if (status == MICA_OK)
        status = set_array(t, "tokenizer.ggml.tokens", MICA_VALUE_STRING, t->count, t->token);
    if (status == MICA_OK && (strcmp(t->kind, "llama") == 0 || strcmp(t->kind, "t5") == 0))
        status = set_array(t, "tokenizer.ggml.scores", MICA_VALUE_F32, t->count, t->score);
    return status == MICA_OK ? set_array(t, "tokenizer.ggml.token_type", MICA_VALUE_I32, t->count, t->type)
                             : status;
}

/* "a b", or a pair of texts. */
static mica_status set_merges(tokenizer *t)
{
    const mica__json_node *list = mica__json_get(t->json, t->model, "merges");
    if (strcmp(t->kind, "gpt2") != 0 || list == NULL || list->type != MICA__JSON_ARRAY ||
        list->child_count == 0)
        return MICA_OK;
    mica_string *merges = mica__chunks_alloc(&t->plan->chunks, list->child_count * sizeof *merges);
    uint32_t count = 0;
    if (merges == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (const mica__json_node *item = mica__json_first(list); item != NULL;
         item = mica__json_next(t->json, item)) {
        const mica__json_node *left = mica__json_first(item);
        const mica__json_node *right = left == NULL ? NULL : mica__json_next(t->json, left);
        const char *text = item->type == MICA__JSON_STRING
                               ? mica__plan_text(t->plan, "%s", item->string.data)
                               : mica__plan_text(t->plan, "%s %s", text_of(left), text_of(right));
        if (text == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        merges[count++] = (mica_string){text, strlen(text)};
    }
    return set_array(t, "tokenizer.ggml.merges", MICA_VALUE_STRING, count, merges);
}

/* ---- what is around them -------------------------------------------------------------------------------- */

/* How text is cut before merging, by the pattern in tokenizer.json. */
static const char *find_pre(const tokenizer *t)
{
    static const struct {
        const char *part, *name;
    } patterns[] = {
        {"\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*", "llama-bpe"},
        {"\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*", "qwen2"},
    };
    const mica__json_node *pre = mica__json_get(t->json, mica__json_root(t->json), "pre_tokenizer");
    const mica__json_node *list = mica__json_get(t->json, pre, "pretokenizers");
    const mica__json_node *item = list == NULL ? NULL : mica__json_first(list);
    if (strcmp(t->kind, "gpt2") != 0)
        return "default";
    for (; item != NULL; item = mica__json_next(t->json, item)) {
        const mica__json_node *regex =
            mica__json_get(t->json, mica__json_get(t->json, item, "pattern"), "Regex");
        for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
            if (strstr(text_of(regex), patterns[i].part) != NULL)
                return patterns[i].name;
    }
    return strcmp(text_of(mica__json_get(t->json, pre, "type")), "ByteLevel") == 0 ? "gpt-2" : "default";
}

/* A special token of tokenizer_config.json: a text, or an object with one. */
static const char *special_text(const tokenizer *t, const char *key)
{
    const mica__json_node *node =
        t->settings == NULL ? NULL : mica__json_get(t->settings, mica__json_root(t->settings), key);
    if (node != NULL && node->type == MICA__JSON_OBJECT)
        node = mica__json_get(t->settings, node, "content");
    return text_of(node);
}

static mica_status set_specials(tokenizer *t)
{
    static const struct {
        const char *token, *id, *gguf;
    } specials[] = {
        {"bos_token", "bos_token_id", "tokenizer.ggml.bos_token_id"},
        {"eos_token", "eos_token_id", "tokenizer.ggml.eos_token_id"},
        {"unk_token", "unk_token_id", "tokenizer.ggml.unknown_token_id"},
        {"sep_token", "sep_token_id", "tokenizer.ggml.seperator_token_id"},
        {"pad_token", "pad_token_id", "tokenizer.ggml.padding_token_id"},
        {"cls_token", "cls_token_id", "tokenizer.ggml.cls_token_id"},
        {"mask_token", "mask_token_id", "tokenizer.ggml.mask_token_id"},
    };
    mica_status status = MICA_OK;
    for (size_t i = 0; i < sizeof specials / sizeof specials[0] && status == MICA_OK; i++) {
        const char *text = special_text(t, specials[i].token);
        uint64_t id = MOST_TOKENS;
        for (uint64_t k = 0; text[0] != '\0' && k < t->count && id == MOST_TOKENS; k++)
            if (strcmp(t->token[k].data, text) == 0)
                id = k;
        if (id == MOST_TOKENS)
            id = id_of(mica__config_get(t->config, specials[i].id));
        if (id < t->count)
            status = mica__plan_set_u32(t->plan, specials[i].gguf, id);
    }
    return status;
}

static mica_status set_settings(tokenizer *t)
{
    static const struct {
        const char *hf, *gguf;
    } switches[] = {{"add_bos_token", "tokenizer.ggml.add_bos_token"},
                    {"add_eos_token", "tokenizer.ggml.add_eos_token"},
                    {"add_prefix_space", "tokenizer.ggml.add_space_prefix"}};
    const mica__json_node *root = t->settings == NULL ? NULL : mica__json_root(t->settings);
    mica_status status = MICA_OK;
    if (root == NULL)
        return MICA_OK;
    for (size_t i = 0; i < 3 && status == MICA_OK; i++) {
        const mica__json_node *node = mica__json_get(t->settings, root, switches[i].hf);
        if (node != NULL && (node->type == MICA__JSON_TRUE || node->type == MICA__JSON_FALSE))
            status = mica__plan_set_bool(t->plan, switches[i].gguf, node->type == MICA__JSON_TRUE);
    }
    const char *template = text_of(mica__json_get(t->settings, root, "chat_template"));
    if (status == MICA_OK && template[0] != '\0')
        status = mica__plan_set_string(t->plan, "tokenizer.chat_template",
                                       mica__plan_text(t->plan, "%s", template));
    return status;
}

static mica_status set_family(tokenizer *t)
{
    mica_status status = MICA_OK;
    const uint64_t types = id_of(mica__config_get(t->config, "type_vocab_size"));
    if (strncmp(t->family->arch, "gemma", 5) == 0)
        status = mica__plan_set_bool(t->plan, "tokenizer.ggml.add_space_prefix", false);
    if (status == MICA_OK && strcmp(t->kind, "bert") == 0)
        status =
            mica__plan_set_u32(t->plan, "tokenizer.ggml.token_type_count", types < MOST_TOKENS ? types : 1);
    return status;
}

static mica_status set_all(tokenizer *t)
{
    mica_status status = mica__plan_set_string(t->plan, "tokenizer.ggml.model", t->kind);
    if (status == MICA_OK)
        status = mica__plan_set_string(t->plan, "tokenizer.ggml.pre", find_pre(t));
    if (status == MICA_OK)
        status = set_tokens(t);
    if (status == MICA_OK)
        status = set_merges(t);
    if (status == MICA_OK)
        status = set_specials(t);
    if (status == MICA_OK)
        status = set_settings(t);
    return status == MICA_OK ? set_family(t) : status;
}

/* chat_template.jinja of the folder, where newer checkpoints keep it. */
static mica_status set_template(tokenizer *t, const char *folder)
{
    const char *path = mica__plan_text(t->plan, "%s/chat_template.jinja", folder);
    void *text = NULL;
    size_t size = 0;
    if (path == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (mica__file_look(path) != MICA__FILE_KIND_REGULAR)
        return MICA_OK;
    mica_status status = mica__file_read_all(path, MOST_BYTES, &text, &size);
    if (status == MICA_OK)
        status = mica__plan_set_string(t->plan, "tokenizer.chat_template",
                                       mica__plan_text(t->plan, "%s", (const char *)text));
    mica__free(text);
    return status;
}

mica_status mica__tokenizer_to_gguf(mica__plan *plan, const char *folder, const mica__json *config,
                                    const mica__family *family)
{
    tokenizer t = {.plan = plan, .config = config, .family = family};
    mica_status status = read_json(plan, folder, "tokenizer.json", &t.json);
    if (status == MICA_OK)
        status = read_json(plan, folder, "tokenizer_config.json", &t.settings);
    if (status == MICA_OK && t.json != NULL) {
        t.model = mica__json_get(t.json, mica__json_root(t.json), "model");
        t.kind = find_kind(&t);
        if (t.kind != NULL)
            status = set_all(&t);
    }
    if (status == MICA_OK)
        status = set_template(&t, folder);
    mica__json_release(t.json);
    mica__json_release(t.settings);
    return status;
}
