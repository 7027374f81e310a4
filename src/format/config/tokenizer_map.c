/*
 * tokenizer_map.c - tokenizer.json, tokenizer.model and tokenizer_config.json in GGUF's words: the kind, merges, the
 * special tokens, and the chat template. A tokenizer of an unknown kind is left to tokenizer_carry.c.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "format/config/config_map.h"
#include "format/config/tokenizer_map.h"

/* A JSON file of the folder; *out is NULL where it is not. */
static mica_status read_json(mica__target *target, const char *folder, const char *name, mica__json **out)
{
    mica__side_file file;
    *out = NULL;
    mica_status status = mica__target_read_side(target, folder, name, &file);
    if (status != MICA_OK || file.data == NULL)
        return status;
    status = mica__json_parse(file.data, file.size, NULL, out);
    if (status != MICA_OK && status != MICA_ERR_OUT_OF_MEMORY)
        status = mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": %s", file.path, mica_status_message());
    mica__free(file.data);
    return status;
}

const char *mica__tokenizer_text(const mica__json_node *node)
{
    return node != NULL && node->type == MICA__JSON_STRING ? node->string.data : "";
}

bool mica__tokenizer_is_true(const mica__json *json, const mica__json_node *object, const char *key)
{
    const mica__json_node *node = mica__json_get(json, object, key);
    return node != NULL && node->type == MICA__JSON_TRUE;
}

uint64_t mica__tokenizer_id(const mica__json_node *node)
{
    uint64_t id = 0;
    if (node == NULL || node->type != MICA__JSON_NUMBER ||
        mica__json_as_uint(node, "id", 0, MICA__MOST_TOKENS, &id) != MICA_OK)
        return MICA__MOST_TOKENS;
    return id;
}

/* ---- the rest of tokenizer.json ------------------------------------------------------------------------- */

static const char *find_kind(const mica__tokenizer *t)
{
    const char *type = mica__tokenizer_text(mica__json_get(t->json, t->model, "type"));
    if (strcmp(type, "BPE") == 0)
        return mica__tokenizer_is_true(t->json, t->model, "byte_fallback") ? "llama" : "gpt2";
    return strcmp(type, "Unigram") == 0 ? "t5" : strcmp(type, "WordPiece") == 0 ? "bert" : NULL;
}

/* "a b", or a pair of texts. */
static mica_status set_merges(mica__tokenizer *t)
{
    const mica__json_node *list = mica__json_get(t->json, t->model, "merges");
    if (strcmp(t->kind, "gpt2") != 0 || list == NULL || list->type != MICA__JSON_ARRAY ||
        list->child_count == 0)
        return MICA_OK;
    mica_string *merges = mica__chunks_alloc(&t->target->chunks, list->child_count * sizeof *merges);
    uint32_t count = 0;
    if (merges == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (const mica__json_node *item = mica__json_first(list); item != NULL;
         item = mica__json_next(t->json, item)) {
        const mica__json_node *left = mica__json_first(item);
        const mica__json_node *right = left == NULL ? NULL : mica__json_next(t->json, left);
        const char *text = item->type == MICA__JSON_STRING
                               ? mica__target_text(t->target, "%s", item->string.data)
                               : mica__target_text(t->target, "%s %s", mica__tokenizer_text(left),
                                                   mica__tokenizer_text(right));
        if (text == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        merges[count++] = (mica_string){text, strlen(text)};
    }
    return mica__tokenizer_set_array(t, "tokenizer.ggml.merges", MICA_VALUE_STRING, count, merges);
}

/* ---- what is around them -------------------------------------------------------------------------------- */

/* How text is cut before merging, by the pattern in tokenizer.json. */
static const char *find_pre(const mica__tokenizer *t)
{
    static const struct {
        const char *part, *name;
    } patterns[] = {
        {"\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*", "llama-bpe"},
        {"\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*", "qwen2"},
        {"\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*", "qwen35"},
        {"[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|", "gpt-4o"},
        {"[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|", "tekken"},
        {"[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[", "deepseek-v3"},
    };
    if (strcmp(t->kind, "gpt2") != 0)
        return "default";
    const mica__json_node *pre = mica__json_get(t->json, mica__json_root(t->json), "pre_tokenizer");
    const mica__json_node *list = mica__json_get(t->json, pre, "pretokenizers");
    const mica__json_node *item = list == NULL ? NULL : mica__json_first(list);
    for (; item != NULL; item = mica__json_next(t->json, item)) {
        const mica__json_node *regex =
            mica__json_get(t->json, mica__json_get(t->json, item, "pattern"), "Regex");
        for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
            if (strstr(mica__tokenizer_text(regex), patterns[i].part) != NULL)
                return patterns[i].name;
        /* Digits alone, then as GPT-2: what starcoder, command-r and others do too. */
        if (item == mica__json_first(list) &&
            strcmp(mica__tokenizer_text(mica__json_get(t->json, item, "type")), "Digits") == 0)
            return "smollm";
    }
    return strcmp(mica__tokenizer_text(mica__json_get(t->json, pre, "type")), "ByteLevel") == 0 ? "gpt-2"
                                                                                                : "default";
}

/* A special token of tokenizer_config.json: a text, or an object with one. Where it is not there, the one that stands in
 * for it: BERT begins a text with its class. */
static const char *special_text(const mica__tokenizer *t, const char *key, const char *instead)
{
    const mica__json_node *root = t->settings == NULL ? NULL : mica__json_root(t->settings);
    const mica__json_node *node = root == NULL ? NULL : mica__json_get(t->settings, root, key);
    if (node != NULL && node->type == MICA__JSON_OBJECT)
        node = mica__json_get(t->settings, node, "content");
    const char *text = mica__tokenizer_text(node);
    return text[0] == '\0' && instead[0] != '\0' ? special_text(t, instead, "") : text;
}

static mica_status set_specials(mica__tokenizer *t)
{
    static const struct {
        const char *token, *instead, *id, *gguf;
    } specials[] = {
        {"bos_token", "cls_token", "bos_token_id", "tokenizer.ggml.bos_token_id"},
        {"eos_token", "sep_token", "eos_token_id", "tokenizer.ggml.eos_token_id"},
        {"unk_token", "", "unk_token_id", "tokenizer.ggml.unknown_token_id"},
        {"sep_token", "", "sep_token_id", "tokenizer.ggml.seperator_token_id"},
        {"pad_token", "", "pad_token_id", "tokenizer.ggml.padding_token_id"},
        {"cls_token", "", "cls_token_id", "tokenizer.ggml.cls_token_id"},
        {"mask_token", "", "mask_token_id", "tokenizer.ggml.mask_token_id"},
    };
    mica_status status = MICA_OK;
    for (size_t i = 0; i < sizeof specials / sizeof specials[0] && status == MICA_OK; i++) {
        const char *text = special_text(t, specials[i].token, specials[i].instead);
        uint64_t id = MICA__MOST_TOKENS;
        for (uint64_t k = 0; text[0] != '\0' && k < t->count && id == MICA__MOST_TOKENS; k++)
            if (strcmp(t->token[k].data, text) == 0)
                id = k;
        if (id == MICA__MOST_TOKENS)
            id = mica__tokenizer_id(mica__config_get(t->config, specials[i].id));
        if (id < t->count)
            status = mica__target_set_u32(t->target, specials[i].gguf, id);
    }
    return status;
}

/* The special token at a place of a template, or "". */
static const char *template_token(const mica__tokenizer *t, const mica__json_node *place)
{
    const mica__json_node *token = mica__json_get(t->json, place, "SpecialToken");
    return mica__tokenizer_text(mica__json_get(t->json, token, "id"));
}

/* Whether the template of a single text puts bos before it and eos behind it. */
static mica_status set_template_ends(mica__tokenizer *t, const mica__json_node *processor)
{
    const mica__json_node *single = mica__json_get(t->json, processor, "single"), *last;
    if (single == NULL || single->type != MICA__JSON_ARRAY || single->child_count < 2)
        return MICA_OK;
    const mica__json_node *first = last = mica__json_first(single);
    for (const mica__json_node *at = first; at != NULL; at = mica__json_next(t->json, at))
        last = at;
    const char *begin = template_token(t, first), *end = template_token(t, last);
    mica_status status = MICA_OK;
    if (begin[0] != '\0')
        status = mica__target_set_bool(t->target, "tokenizer.ggml.add_bos_token",
                                       strcmp(begin, special_text(t, "bos_token", "cls_token")) == 0 ||
                                           strcmp(begin, special_text(t, "cls_token", "")) == 0);
    if (status == MICA_OK && end[0] != '\0')
        status = mica__target_set_bool(t->target, "tokenizer.ggml.add_eos_token",
                                       strcmp(end, special_text(t, "eos_token", "sep_token")) == 0);
    return status;
}

/* What is put around a text, by the post processor of tokenizer.json; tokenizer_config.json may say otherwise. */
static mica_status set_processor(mica__tokenizer *t)
{
    mica_status status = MICA_OK;
    if (t->json == NULL)
        return MICA_OK;
    const mica__json_node *processor = mica__json_get(t->json, mica__json_root(t->json), "post_processor");
    const mica__json_node *list = mica__json_get(t->json, processor, "processors");
    const mica__json_node *item = list == NULL ? processor : mica__json_first(list);
    for (; item != NULL && status == MICA_OK; item = list == NULL ? NULL : mica__json_next(t->json, item)) {
        const char *type = mica__tokenizer_text(mica__json_get(t->json, item, "type"));
        if (strcmp(type, "TemplateProcessing") == 0)
            status = set_template_ends(t, item);
        else if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
            status = mica__target_set_bool(t->target, "tokenizer.ggml.add_bos_token", true);
            if (status == MICA_OK)
                status = mica__target_set_bool(t->target, "tokenizer.ggml.add_eos_token", true);
        }
    }
    return status;
}

static mica_status set_settings(mica__tokenizer *t)
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
            status = mica__target_set_bool(t->target, switches[i].gguf, node->type == MICA__JSON_TRUE);
    }
    const char *template = mica__tokenizer_text(mica__json_get(t->settings, root, "chat_template"));
    if (status == MICA_OK && template[0] != '\0')
        status = mica__target_set_string(t->target, "tokenizer.chat_template",
                                         mica__target_text(t->target, "%s", template));
    return status;
}

static mica_status set_family(mica__tokenizer *t)
{
    mica_status status = MICA_OK;
    const uint64_t types = mica__tokenizer_id(mica__config_get(t->config, "type_vocab_size"));
    if (strncmp(t->family->arch, "gemma", 5) == 0)
        status = mica__target_set_bool(t->target, "tokenizer.ggml.add_space_prefix", false);
    if (status == MICA_OK && strcmp(t->kind, "bert") == 0)
        status = mica__target_set_u32(t->target, "tokenizer.ggml.token_type_count",
                                      types < MICA__MOST_TOKENS ? types : 1);
    return status;
}

/* What BERT's normaliser says of capitals and accents. */
static mica_status set_letters(mica__tokenizer *t)
{
    static const struct {
        const char *hf, *gguf;
    } switches[] = {{"lowercase", "tokenizer.ggml.normalizer.lowercase"},
                    {"strip_accents", "tokenizer.ggml.normalizer.strip_accents"}};
    mica_status status = MICA_OK;
    if (t->json == NULL || strcmp(t->kind, "bert") != 0)
        return MICA_OK;
    const mica__json_node *normalizer = mica__json_get(t->json, mica__json_root(t->json), "normalizer");
    for (size_t i = 0; i < 2 && status == MICA_OK; i++) {
        const mica__json_node *node = mica__json_get(t->json, normalizer, switches[i].hf);
        if (node != NULL && (node->type == MICA__JSON_FALSE || (i == 1 && node->type == MICA__JSON_TRUE)))
            status = mica__target_set_bool(t->target, switches[i].gguf, node->type == MICA__JSON_TRUE);
    }
    return status;
}

/* What tokenizer.model says of blanks and characters. */
static mica_status set_normalizer(mica__tokenizer *t)
{
    const mica__sentencepiece *pieces = &t->pieces;
    mica_status status = MICA_OK;
    if (pieces->count == 0)
        return MICA_OK;
    if (!pieces->prefix || pieces->unigram)
        status = mica__target_set_bool(t->target, "tokenizer.ggml.add_space_prefix", pieces->prefix);
    if (status == MICA_OK && pieces->unigram)
        status = mica__target_set_bool(t->target, "tokenizer.ggml.remove_extra_whitespaces", pieces->trim);
    if (status != MICA_OK || !pieces->unigram || pieces->chars_length == 0)
        return status;
    char *chars = mica__chunks_alloc(&t->target->chunks, pieces->chars_length);
    if (chars == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    memcpy(chars, pieces->chars, pieces->chars_length);
    return mica__tokenizer_set_array(t, "tokenizer.ggml.precompiled_charsmap", MICA_VALUE_U8,
                                     pieces->chars_length, chars);
}

static mica_status set_all(mica__tokenizer *t)
{
    mica_status status = mica__target_set_string(t->target, "tokenizer.ggml.model", t->kind);
    if (status == MICA_OK)
        status = mica__target_set_string(t->target, "tokenizer.ggml.pre", find_pre(t));
    if (status == MICA_OK)
        status = mica__tokenizer_set_tokens(t);
    if (status == MICA_OK)
        status = set_merges(t);
    if (status == MICA_OK)
        status = set_specials(t);
    if (status == MICA_OK)
        status = set_processor(t);
    if (status == MICA_OK)
        status = set_letters(t);
    if (status == MICA_OK)
        status = set_normalizer(t);
    if (status == MICA_OK)
        status = set_settings(t);
    return status == MICA_OK ? set_family(t) : status;
}

/* chat_template.jinja of the folder, where newer checkpoints keep it. */
static mica_status set_template(mica__tokenizer *t, const char *folder)
{
    mica__side_file file;
    mica_status status = mica__target_read_side(t->target, folder, "chat_template.jinja", &file);
    if (status == MICA_OK && file.data != NULL)
        status = mica__target_set_string(t->target, "tokenizer.chat_template",
                                         mica__target_text(t->target, "%s", (const char *)file.data));
    mica__free(file.data);
    return status;
}

/* tokenizer.model, which is used where tokenizer.json says no more: it has the scores. *out_bytes is freed after it. */
static mica_status read_pieces(mica__tokenizer *t, const char *folder, void **out_bytes)
{
    const bool wanted =
        t->json == NULL || (t->kind != NULL && (strcmp(t->kind, "llama") == 0 || strcmp(t->kind, "t5") == 0));
    mica__side_file file;
    if (!wanted)
        return MICA_OK;
    mica_status status = mica__target_read_side(t->target, folder, "tokenizer.model", &file);
    *out_bytes = file.data;
    if (status != MICA_OK || file.data == NULL)
        return status;
    status = mica__sentencepiece_parse(file.path, file.data, file.size, &t->pieces);
    if (status == MICA_OK)
        t->kind = t->pieces.unigram ? "t5" : "llama";
    return status;
}

static mica_status read_files(mica__tokenizer *t, const char *folder, void **out_bytes)
{
    mica_status status = read_json(t->target, folder, "tokenizer.json", &t->json);
    if (status == MICA_OK)
        status = read_json(t->target, folder, "tokenizer_config.json", &t->settings);
    if (status == MICA_OK)
        status = read_json(t->target, folder, "added_tokens.json", &t->added);
    if (status != MICA_OK)
        return status;
    if (t->json != NULL) {
        t->model = mica__json_get(t->json, mica__json_root(t->json), "model");
        t->kind = find_kind(t);
    }
    return read_pieces(t, folder, out_bytes);
}

mica_status mica__tokenizer_to_gguf(mica__target *target, const char *folder, const mica__json *config,
                                    const mica__name_family *family)
{
    mica__tokenizer t = {.target = target, .config = config, .family = family};
    void *bytes = NULL;
    mica_status status = read_files(&t, folder, &bytes);
    if (status == MICA_OK && t.kind != NULL)
        status = set_all(&t);
    if (status == MICA_OK)
        status = set_template(&t, folder);
    mica__json_release(t.json);
    mica__json_release(t.settings);
    mica__json_release(t.added);
    mica__sentencepiece_free(&t.pieces);
    mica__free(bytes);
    return status;
}
