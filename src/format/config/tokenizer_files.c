/*
 * tokenizer_files.c - the tokenizer of a GGUF as the files of a checkpoint: tokenizer.json (tokenizer_back.c, or as the GGUF
 * keeps it), tokenizer_config.json, special_tokens_map.json and tokenizer.model. The other way is tokenizer_map.c.
 */
#include <string.h>

#include "base/alloc.h"
#include "format/convert/convert.h"
#include "format/config/tokenizer_back.h"

static const char *text_of(const mica__archive *archive, const char *key)
{
    const mica_value *value = mica__archive_meta(archive, key);
    return value != NULL && value->type == MICA_VALUE_STRING ? value->as.string.data : "";
}

static bool truth_of(const mica__tokenizer_back *b, const char *key, bool otherwise)
{
    const mica_value *value = mica__archive_meta(b->archive, key);
    return value != NULL && value->type == MICA_VALUE_BOOL ? value->as.u != 0 : otherwise;
}

/* The tokens with a part to play, and the ids that a kind gives them where the file is silent; 0 is none but for llama's
 * unknown and the padding of bert and t5. */
static const struct {
    const char *hf, *gguf;
    int32_t llama, bert, t5; /* -1: none */
} specials[] = {
    {"bos_token", "tokenizer.ggml.bos_token_id", 1, 101, -1},
    {"eos_token", "tokenizer.ggml.eos_token_id", 2, -1, 1},
    {"unk_token", "tokenizer.ggml.unknown_token_id", 0, 100, 2},
    {"sep_token", "tokenizer.ggml.seperator_token_id", -1, 102, -1},
    {"pad_token", "tokenizer.ggml.padding_token_id", -1, 0, 0},
    {"cls_token", "tokenizer.ggml.cls_token_id", -1, -1, -1},
    {"mask_token", "tokenizer.ggml.mask_token_id", -1, 103, -1},
};

enum { BOS, EOS, UNK, SEP, PAD, CLS, MASK, SPECIALS };

/* The token of a part, or the count. */
static uint32_t token_of(const mica__tokenizer_back *b, size_t part)
{
    const mica_value *value = mica__archive_meta(b->archive, specials[part].gguf);
    const int32_t usual = mica__tokenizer_is_kind(b, "llama")  ? specials[part].llama
                          : mica__tokenizer_is_kind(b, "bert") ? specials[part].bert
                          : mica__tokenizer_is_kind(b, "t5")   ? specials[part].t5
                                                               : -1;
    if (value == NULL)
        return usual >= 0 && (uint32_t)usual < b->words.count ? (uint32_t)usual : b->words.count;
    const bool number = value->type == MICA_VALUE_U32 || value->type == MICA_VALUE_I32 ||
                        value->type == MICA_VALUE_U64 || value->type == MICA_VALUE_I64;
    return number && value->as.u < b->words.count ? (uint32_t)value->as.u : b->words.count;
}

static void put_truth(mica__tokenizer_back *b, const char *key, bool truth)
{
    mica__json_key(&b->json, key);
    mica__json_bool(&b->json, truth);
}

static void put_token(mica__tokenizer_back *b, const char *key, uint32_t token)
{
    if (token == b->words.count)
        return;
    mica__json_key(&b->json, key);
    mica__json_string_n(&b->json, b->words.token[token].data, (size_t)b->words.token[token].length);
}

static void put_specials(mica__tokenizer_back *b)
{
    for (size_t i = 0; i < SPECIALS; i++)
        put_token(b, specials[i].hf, token_of(b, i));
}

static mica_status make_settings(mica__tokenizer_back *b, char **out_text)
{
    static const struct {
        const char *hf, *gguf;
    } truths[] = {{"add_bos_token", "tokenizer.ggml.add_bos_token"},
                  {"add_eos_token", "tokenizer.ggml.add_eos_token"},
                  {"add_prefix_space", "tokenizer.ggml.add_space_prefix"}};
    const char *template = text_of(b->archive, "tokenizer.chat_template");
    size_t length = 0;
    mica__json_writer_init(&b->json);
    mica__json_begin_object(&b->json);
    mica__json_key(&b->json, "tokenizer_class");
    mica__json_string(&b->json, "PreTrainedTokenizerFast");
    put_specials(b);
    for (size_t i = 0; i < sizeof truths / sizeof truths[0]; i++)
        if (mica__archive_meta(b->archive, truths[i].gguf) != NULL)
            put_truth(b, truths[i].hf, truth_of(b, truths[i].gguf, false));
    if (template[0] != '\0') {
        mica__json_key(&b->json, "chat_template");
        mica__json_string(&b->json, template);
    }
    put_truth(b, "clean_up_tokenization_spaces", false);
    mica__json_end_object(&b->json);
    return mica__json_writer_finish(&b->json, out_text, &length);
}

static mica_status make_map(mica__tokenizer_back *b, char **out_text)
{
    size_t length = 0;
    mica__json_writer_init(&b->json);
    mica__json_begin_object(&b->json);
    put_specials(b);
    mica__json_end_object(&b->json);
    return mica__json_writer_finish(&b->json, out_text, &length);
}

static mica_status make_model(const mica__tokenizer_back *b, char **out_bytes, size_t *out_size)
{
    const mica_value *chars = mica__archive_meta(b->archive, "tokenizer.ggml.precompiled_charsmap");
    mica__sentencepiece model = {.count = b->words.count,
                                 .unigram = mica__tokenizer_is_kind(b, "t5"),
                                 .prefix = b->prefix,
                                 .trim = truth_of(b, "tokenizer.ggml.remove_extra_whitespaces", false)};
    for (uint32_t i = 0; i < model.count; i++)
        if (b->words.token[i].length == 0) /* of which SentencePiece knows none */
            return MICA_OK;
    model.piece = mica__alloc((size_t)model.count * sizeof *model.piece);
    if (model.piece == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u pieces", model.count);
    for (uint32_t i = 0; i < model.count; i++)
        model.piece[i] = (mica__token_list_piece){b->words.token[i].data, (uint32_t)b->words.token[i].length,
                                                  b->words.score[i], mica__token_list_kind(&b->words, i)};
    if (chars != NULL && chars->type == MICA_VALUE_ARRAY && chars->item_type == MICA_VALUE_U8 &&
        chars->count <= UINT32_MAX) {
        model.chars = chars->as.items;
        model.chars_length = (uint32_t)chars->count;
    }
    const mica_status status = mica__sentencepiece_write(&model, out_bytes, out_size);
    mica__sentencepiece_free(&model);
    return status;
}

/* What is put around a text, by the keys, or where they are silent by the habit of the kind. BERT's class and separator
 * are its bos and eos. */
static void find_ends(mica__tokenizer_back *b)
{
    const bool llama = mica__tokenizer_is_kind(b, "llama"), bert = mica__tokenizer_is_kind(b, "bert"),
               t5 = mica__tokenizer_is_kind(b, "t5");
    const mica__rule *rule = mica__tokenizer_is_kind(b, "gpt2") ? mica__rule_find(b->pre) : NULL;
    const uint32_t none = b->words.count, flags = rule == NULL ? 0 : rule->flags;
    uint32_t eos = token_of(b, EOS), sep = token_of(b, SEP);
    b->bos = token_of(b, BOS);
    if (b->bos == none)
        b->bos = token_of(b, CLS);
    eos = eos == none ? sep : eos;
    sep = sep == none ? eos : sep;
    b->begin = truth_of(b, "tokenizer.ggml.add_bos_token", llama || bert || (flags & MICA__RULE_ADD_BOS) != 0)
                   ? b->bos
                   : none;
    b->end = truth_of(b, "tokenizer.ggml.add_eos_token", t5) ? eos : none;
    if (truth_of(b, "tokenizer.ggml.add_sep_token", bert || (flags & MICA__RULE_ADD_SEP) != 0))
        b->end = sep;
}

/* The unknown token: that of the key, or the one of that kind. */
static uint32_t find_unknown(const mica__tokenizer_back *b)
{
    uint32_t token = b->words.count;
    if (mica__archive_meta(b->archive, specials[UNK].gguf) == NULL)
        for (uint32_t i = 0; i < b->words.count && token == b->words.count; i++)
            if (mica__token_list_kind(&b->words, i) == MICA__PIECE_UNKNOWN)
                token = i;
    return token == b->words.count ? token_of(b, UNK) : token;
}

static mica_status make_files(mica__tokenizer_back *b, mica__tokenizer_files *out)
{
    const mica_value *kept = mica__archive_meta(b->archive, "tokenizer.huggingface.json");
    mica_status status = MICA_OK;
    b->prefix = truth_of(b, "tokenizer.ggml.add_space_prefix", true);
    b->unknown = find_unknown(b);
    find_ends(b);
    if (kept != NULL && kept->type == MICA_VALUE_STRING) {
        out->tokenizer = mica__strdup(kept->as.string.data);
        if (out->tokenizer == NULL)
            status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for tokenizer.json");
    } else {
        status = mica__tokenizer_check(b);
        if (status == MICA_OK)
            status = mica__tokenizer_make_json(b, &out->tokenizer);
    }
    if (status == MICA_OK)
        status = make_settings(b, &out->settings);
    if (status == MICA_OK)
        status = make_map(b, &out->map);
    if (status == MICA_OK && b->words.score != NULL &&
        (mica__tokenizer_is_kind(b, "llama") || mica__tokenizer_is_kind(b, "t5")))
        status = make_model(b, &out->model, &out->model_size);
    return status;
}

/* Whether the file has no tokenizer, or says that it has none. */
static bool has_none(const mica__archive *archive)
{
    const char *kind = text_of(archive, "tokenizer.ggml.model");
    return mica__archive_meta(archive, "tokenizer.huggingface.json") == NULL &&
           ((kind[0] == '\0' && mica__archive_meta(archive, "tokenizer.ggml.tokens") == NULL) ||
            strcmp(kind, "no_vocab") == 0 || strcmp(kind, "none") == 0);
}

mica_status mica__tokenizer_to_hf(const mica__archive *archive, mica__tokenizer_files *out_files)
{
    mica__tokenizer_back b = {.archive = archive,
                              .kind = text_of(archive, "tokenizer.ggml.model"),
                              .pre = text_of(archive, "tokenizer.ggml.pre")};
    bool usable = false;
    *out_files = (mica__tokenizer_files){0};
    if (has_none(archive))
        return MICA_OK;
    mica_status status = mica__token_list_open(archive, &b.words, &usable);
    if (status == MICA_OK && !usable && mica__archive_meta(archive, "tokenizer.huggingface.json") == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "the tokenizer cannot be written: tokenizer.ggml.tokens is missing, or one of its "
                          "texts is no UTF-8");
    if (status == MICA_OK)
        status = make_files(&b, out_files);
    if (usable)
        mica__token_list_close(&b.words);
    if (status != MICA_OK)
        mica__tokenizer_files_free(out_files);
    return status;
}

void mica__tokenizer_files_free(mica__tokenizer_files *files)
{
    mica__free(files->tokenizer);
    mica__free(files->settings);
    mica__free(files->map);
    mica__free(files->model);
    *files = (mica__tokenizer_files){0};
}
