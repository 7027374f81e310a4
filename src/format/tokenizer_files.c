/*
 * tokenizer_files.c - the tokenizer of a GGUF as the files of a checkpoint: tokenizer.json (tokenizer_back.c),
 * tokenizer_config.json and tokenizer.model. The other way is tokenizer_map.c.
 */
#include <string.h>

#include "base/alloc.h"
#include "format/convert.h"
#include "format/tokenizer_back.h"

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

/* The token that a key names, or the count. */
static uint32_t token_of(const mica__tokenizer_back *b, const char *key)
{
    const mica_value *value = mica__archive_meta(b->archive, key);
    return value != NULL && value->type == MICA_VALUE_U32 && value->as.u < b->words.count
               ? (uint32_t)value->as.u
               : b->words.count;
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

static mica_status make_settings(mica__tokenizer_back *b, char **out_text)
{
    static const struct {
        const char *hf, *gguf;
    } tokens[] = {
        {"bos_token", "tokenizer.ggml.bos_token_id"},     {"eos_token", "tokenizer.ggml.eos_token_id"},
        {"unk_token", "tokenizer.ggml.unknown_token_id"}, {"sep_token", "tokenizer.ggml.seperator_token_id"},
        {"pad_token", "tokenizer.ggml.padding_token_id"}, {"cls_token", "tokenizer.ggml.cls_token_id"},
        {"mask_token", "tokenizer.ggml.mask_token_id"},
    };
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
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        put_token(b, tokens[i].hf, token_of(b, tokens[i].gguf));
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
        model.piece[i] = (mica__vocabulary_piece){b->words.token[i].data, (uint32_t)b->words.token[i].length,
                                                  b->words.score[i], mica__vocabulary_kind(&b->words, i)};
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
               t5 = mica__tokenizer_is_kind(b, "t5"), llama3 = strcmp(b->pre, "llama-bpe") == 0;
    const uint32_t none = b->words.count;
    uint32_t bos = token_of(b, "tokenizer.ggml.bos_token_id"),
             eos = token_of(b, "tokenizer.ggml.eos_token_id");
    if (bos == none)
        bos = token_of(b, "tokenizer.ggml.cls_token_id");
    if (eos == none)
        eos = token_of(b, "tokenizer.ggml.seperator_token_id");
    b->begin = truth_of(b, "tokenizer.ggml.add_bos_token", llama || bert || llama3) ? bos : none;
    b->end = truth_of(b, "tokenizer.ggml.add_eos_token", t5 || bert) ? eos : none;
}

static mica_status make_files(mica__tokenizer_back *b, mica__tokenizer_files *out)
{
    mica_status status = mica__tokenizer_make_json(b, &out->tokenizer);
    if (status == MICA_OK)
        status = make_settings(b, &out->settings);
    if (status == MICA_OK && (mica__tokenizer_is_kind(b, "llama") || mica__tokenizer_is_kind(b, "t5")))
        status = make_model(b, &out->model, &out->model_size);
    return status;
}

mica_status mica__tokenizer_to_hf(const mica__archive *archive, mica__tokenizer_files *out_files)
{
    mica__tokenizer_back b = {.archive = archive,
                              .kind = text_of(archive, "tokenizer.ggml.model"),
                              .pre = text_of(archive, "tokenizer.ggml.pre")};
    bool usable = false;
    *out_files = (mica__tokenizer_files){0};
    mica_status status = mica__vocabulary_open(archive, &b.words, &usable);
    if (status == MICA_OK && usable && mica__tokenizer_is_known(&b)) {
        b.prefix = truth_of(&b, "tokenizer.ggml.add_space_prefix", true);
        find_ends(&b);
        status = make_files(&b, out_files);
    }
    mica__vocabulary_close(&b.words);
    if (status != MICA_OK)
        mica__tokenizer_files_free(out_files);
    return status;
}

void mica__tokenizer_files_free(mica__tokenizer_files *files)
{
    mica__free(files->tokenizer);
    mica__free(files->settings);
    mica__free(files->model);
    *files = (mica__tokenizer_files){0};
}
