/*
 * tokenizer_back.c - the tokenizer of a GGUF as the text of a tokenizer.json.
 *
 * Four kinds: "gpt2" (byte-level pairs, whose splitting rule must be known), "llama" (pairs merged by score), "t5"
 * (unigram), "bert" (wordpieces).
 */
#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "format/config/tokenizer_back.h"

#define MARK "\xe2\x96\x81" /* U+2581 stands for a blank */
#define MARK_BYTES 3

/* ---- what the metadata says ------------------------------------------------------------------------------ */

static bool truth_of(const mica__tokenizer_back *b, const char *key, bool otherwise)
{
    const mica_value *value = mica__archive_meta(b->archive, key);
    return value != NULL && value->type == MICA_VALUE_BOOL ? value->as.u != 0 : otherwise;
}

/* A rule of byte-level pairs; NULL: not known, or of characters. */
static const mica__rule *find_rule(const mica__tokenizer_back *b)
{
    const mica__rule *rule = mica__rule_find(b->pre[0] == '\0' ? "default" : b->pre);
    return rule == NULL || (rule->flags & MICA__RULE_TEXT) != 0 ? NULL : rule;
}

/* Whether its makers compose characters (NFC) first, which GGUF has no word for. */
static bool composes(const mica__tokenizer_back *b)
{
    return mica__tokenizer_is_kind(b, "gpt2") &&
           (strcmp(b->pre, "qwen2") == 0 || strcmp(b->pre, "qwen35") == 0);
}

bool mica__tokenizer_is_kind(const mica__tokenizer_back *b, const char *kind)
{
    return strcmp(b->kind, kind) == 0;
}

mica_status mica__tokenizer_check(const mica__tokenizer_back *b)
{
    const bool scored = mica__tokenizer_is_kind(b, "llama") || mica__tokenizer_is_kind(b, "t5");
    if (mica__tokenizer_is_kind(b, "gpt2"))
        return find_rule(b) != NULL ? MICA_OK
                                    : mica__fail(MICA_ERR_UNSUPPORTED,
                                                 "the tokenizer cannot be written: tokenizer.ggml.pre is "
                                                 "\"%.60s\", a rule that mica does not know",
                                                 b->pre);
    if (!scored && !mica__tokenizer_is_kind(b, "bert"))
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "the tokenizer cannot be written: tokenizer.ggml.model is \"%.60s\", known are gpt2, "
            "llama, t5 and bert",
            b->kind);
    return !scored || b->words.score != NULL
               ? MICA_OK
               : mica__fail(MICA_ERR_UNSUPPORTED,
                            "the tokenizer cannot be written: it is a \"%s\" and has no scores", b->kind);
}

/* ---- pieces of tokenizer.json ---------------------------------------------------------------------------- */

static void put_type(mica__tokenizer_back *b, const char *key, const char *type)
{
    if (key != NULL)
        mica__json_key(&b->json, key);
    mica__json_begin_object(&b->json);
    mica__json_key(&b->json, "type");
    mica__json_string(&b->json, type);
}

static void put_text(mica__tokenizer_back *b, const char *key, const char *text)
{
    mica__json_key(&b->json, key);
    mica__json_string(&b->json, text);
}

static void put_truth(mica__tokenizer_back *b, const char *key, bool truth)
{
    mica__json_key(&b->json, key);
    mica__json_bool(&b->json, truth);
}

static void put_null(mica__tokenizer_back *b, const char *key)
{
    mica__json_key(&b->json, key);
    mica__json_null(&b->json);
}

static void put_token(mica__tokenizer_back *b, const char *key, uint32_t token)
{
    const mica_string *text = &b->words.token[token];
    mica__json_key(&b->json, key);
    mica__json_string_n(&b->json, text->data, (size_t)text->length);
}

static void put_replace(mica__tokenizer_back *b, const char *how, const char *from, const char *to)
{
    put_type(b, NULL, "Replace");
    mica__json_key(&b->json, "pattern");
    mica__json_begin_object(&b->json);
    put_text(b, how, from);
    mica__json_end_object(&b->json);
    put_text(b, "content", to);
    mica__json_end_object(&b->json);
}

static void put_byte_level(mica__tokenizer_back *b, const char *key, bool split)
{
    put_type(b, key, "ByteLevel");
    put_truth(b, "add_prefix_space", false);
    put_truth(b, "trim_offsets", true);
    put_truth(b, "use_regex", split);
    mica__json_end_object(&b->json);
}

/* Tokens that are found in a text before anything else. Those of Phi-3 eat the blanks behind them, which the file does not
 * say, but its makers do. */
static void put_added(mica__tokenizer_back *b)
{
    static const char *const marks[] = {"single_word", "lstrip", "rstrip", "normalized"};
    const mica_value *arch = mica__archive_meta(b->archive, "general.architecture");
    const bool eats = mica__tokenizer_is_kind(b, "llama") && arch != NULL &&
                      arch->type == MICA_VALUE_STRING && strcmp(arch->as.string.data, "phi3") == 0;
    mica__json_key(&b->json, "added_tokens");
    mica__json_begin_array(&b->json);
    for (uint32_t i = 0; i < b->words.count; i++) {
        const mica__piece_kind kind = mica__token_list_kind(&b->words, i);
        const bool plain =
            i == b->bos || i == b->unknown || strcmp(b->words.token[i].data, "<|endoftext|>") == 0;
        if (kind != MICA__PIECE_CONTROL && kind != MICA__PIECE_UNKNOWN && kind != MICA__PIECE_USER)
            continue;
        mica__json_begin_object(&b->json);
        mica__json_key(&b->json, "id");
        mica__json_uint(&b->json, i);
        put_token(b, "content", i);
        for (size_t m = 0; m < sizeof marks / sizeof marks[0]; m++)
            put_truth(b, marks[m], m == 2 && eats && !plain);
        put_truth(b, "special", kind != MICA__PIECE_USER);
        mica__json_end_object(&b->json);
    }
    mica__json_end_array(&b->json);
}

/* The compiled rules of characters, in base 64. */
static mica_status put_chars(mica__tokenizer_back *b, const mica_value *chars)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *bytes = chars->as.items;
    const size_t count = (size_t)chars->count, size = (count + 2) / 3 * 4;
    char *text = mica__alloc(size + 1);
    if (text == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the rules of a tokenizer");
    for (size_t i = 0, at = 0; i < count; i += 3) {
        const size_t left = count - i;
        const uint32_t three = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                               (left > 2 ? bytes[i + 2] : 0);
        text[at++] = digits[three >> 18];
        text[at++] = digits[three >> 12 & 63];
        text[at++] = left > 1 ? digits[three >> 6 & 63] : '=';
        text[at++] = left > 2 ? digits[three & 63] : '=';
    }
    put_type(b, NULL, "Precompiled");
    mica__json_key(&b->json, "precompiled_charsmap");
    mica__json_string_n(&b->json, text, size);
    mica__json_end_object(&b->json);
    mica__free(text);
    return MICA_OK;
}

static void begin_list(mica__tokenizer_back *b, const char *key, const char *list)
{
    put_type(b, key, "Sequence");
    mica__json_key(&b->json, list);
    mica__json_begin_array(&b->json);
}

static void end_list(mica__tokenizer_back *b)
{
    mica__json_end_array(&b->json);
    mica__json_end_object(&b->json);
}

/* Of a unigram: its characters, and blanks that repeat, lead or trail. */
static mica_status put_cleaning(mica__tokenizer_back *b)
{
    const mica_value *chars = mica__archive_meta(b->archive, "tokenizer.ggml.precompiled_charsmap");
    const bool squeeze = truth_of(b, "tokenizer.ggml.remove_extra_whitespaces", false);
    const bool has_chars = chars != NULL && chars->type == MICA_VALUE_ARRAY && chars->count != 0 &&
                           (chars->item_type == MICA_VALUE_U8 || chars->item_type == MICA_VALUE_I8);
    mica_status status = MICA_OK;
    if (!has_chars && !squeeze) {
        put_null(b, "normalizer");
        return MICA_OK;
    }
    begin_list(b, "normalizer", "normalizers");
    if (has_chars)
        status = put_chars(b, chars);
    if (squeeze) {
        put_type(b, NULL, "Strip");
        put_truth(b, "strip_left", true);
        put_truth(b, "strip_right", true);
        mica__json_end_object(&b->json);
        put_replace(b, "Regex", " {2,}", " ");
    }
    end_list(b);
    return status;
}

static mica_status put_normalizer(mica__tokenizer_back *b)
{
    const bool lower = truth_of(b, "tokenizer.ggml.normalizer.lowercase", true);
    if (mica__tokenizer_is_kind(b, "t5"))
        return put_cleaning(b);
    if (mica__tokenizer_is_kind(b, "bert")) {
        put_type(b, "normalizer", "BertNormalizer");
        put_truth(b, "clean_text", true);
        put_truth(b, "handle_chinese_chars", true);
        if (mica__archive_meta(b->archive, "tokenizer.ggml.normalizer.strip_accents") != NULL)
            put_truth(b, "strip_accents", truth_of(b, "tokenizer.ggml.normalizer.strip_accents", lower));
        else
            put_null(b, "strip_accents");
        put_truth(b, "lowercase", lower);
        mica__json_end_object(&b->json);
    } else if (mica__tokenizer_is_kind(b, "llama")) {
        begin_list(b, "normalizer", "normalizers");
        if (b->prefix) {
            put_type(b, NULL, "Prepend");
            put_text(b, "prepend", MARK);
            mica__json_end_object(&b->json);
        }
        put_replace(b, "String", " ", MARK);
        end_list(b);
    } else if (composes(b)) {
        put_type(b, "normalizer", "NFC");
        mica__json_end_object(&b->json);
    } else {
        put_null(b, "normalizer");
    }
    return MICA_OK;
}

/* Pieces may cross words, if they were trained so: the text is not cut. */
static void put_metaspace(mica__tokenizer_back *b, const char *key)
{
    put_type(b, key, "Metaspace");
    put_text(b, "replacement", MARK);
    put_text(b, "prepend_scheme", b->prefix ? "always" : "never");
    put_truth(b, "split", false);
    mica__json_end_object(&b->json);
}

/* Each pattern cuts what the one before left. */
static void put_patterns(mica__tokenizer_back *b, const char *key, const mica__rule *rule)
{
    if (strcmp(rule->patterns[0], MICA__GPT2_PATTERN) == 0 && rule->patterns[1] == NULL) {
        put_byte_level(b, key, true); /* it has that pattern of its own */
        return;
    }
    begin_list(b, key, "pretokenizers");
    for (size_t i = 0; rule->patterns[i] != NULL; i++) {
        put_type(b, NULL, "Split");
        mica__json_key(&b->json, "pattern");
        mica__json_begin_object(&b->json);
        put_text(b, "Regex", rule->patterns[i]);
        mica__json_end_object(&b->json);
        put_text(b, "behavior", "Isolated");
        put_truth(b, "invert", false);
        mica__json_end_object(&b->json);
    }
    put_byte_level(b, NULL, false);
    end_list(b);
}

static void put_splitter(mica__tokenizer_back *b)
{
    static const char key[] = "pre_tokenizer";
    if (mica__tokenizer_is_kind(b, "bert")) {
        put_type(b, key, "BertPreTokenizer");
        mica__json_end_object(&b->json);
    } else if (mica__tokenizer_is_kind(b, "t5")) {
        put_metaspace(b, key);
    } else if (mica__tokenizer_is_kind(b, "llama")) {
        put_null(b, key);
    } else {
        put_patterns(b, key, find_rule(b));
    }
}

static void put_place(mica__tokenizer_back *b, const char *kind, const mica_string *id, uint32_t type)
{
    mica__json_begin_object(&b->json);
    mica__json_key(&b->json, kind);
    mica__json_begin_object(&b->json);
    mica__json_key(&b->json, "id");
    mica__json_string_n(&b->json, id->data, (size_t)id->length);
    mica__json_key(&b->json, "type_id");
    mica__json_uint(&b->json, type);
    mica__json_end_object(&b->json);
    mica__json_end_object(&b->json);
}

static void put_special(mica__tokenizer_back *b, uint32_t token)
{
    const mica_string *text = &b->words.token[token];
    mica__json_key_n(&b->json, text->data, (size_t)text->length);
    mica__json_begin_object(&b->json);
    put_token(b, "id", token);
    mica__json_key(&b->json, "ids");
    mica__json_begin_array(&b->json);
    mica__json_uint(&b->json, token);
    mica__json_end_array(&b->json);
    mica__json_key(&b->json, "tokens");
    mica__json_begin_array(&b->json);
    mica__json_string_n(&b->json, text->data, (size_t)text->length);
    mica__json_end_array(&b->json);
    mica__json_end_object(&b->json);
}

/* bos, the text and eos; of two texts, the second and its own eos behind them. */
static void put_processor(mica__tokenizer_back *b)
{
    static const mica_string sequences[] = {{"A", 1}, {"B", 1}};
    const uint32_t bos = b->begin, eos = b->end;
    const bool begin = bos < b->words.count, end = eos < b->words.count;
    if (!begin && !end) {
        put_null(b, "post_processor");
        return;
    }
    put_type(b, "post_processor", "TemplateProcessing");
    for (uint32_t texts = 1; texts <= 2; texts++) {
        mica__json_key(&b->json, texts == 1 ? "single" : "pair");
        mica__json_begin_array(&b->json);
        for (uint32_t i = 0; i < texts; i++) {
            if (begin && i == 0)
                put_place(b, "SpecialToken", &b->words.token[bos], 0);
            put_place(b, "Sequence", &sequences[i], i);
            if (end)
                put_place(b, "SpecialToken", &b->words.token[eos], i);
        }
        mica__json_end_array(&b->json);
    }
    mica__json_key(&b->json, "special_tokens");
    mica__json_begin_object(&b->json);
    if (begin)
        put_special(b, bos);
    if (end && eos != bos)
        put_special(b, eos);
    mica__json_end_object(&b->json);
    mica__json_end_object(&b->json);
}

static void put_decoder(mica__tokenizer_back *b)
{
    static const char key[] = "decoder";
    if (mica__tokenizer_is_kind(b, "gpt2")) {
        put_byte_level(b, key, true);
    } else if (mica__tokenizer_is_kind(b, "t5")) {
        put_metaspace(b, key);
    } else if (mica__tokenizer_is_kind(b, "bert")) {
        put_type(b, key, "WordPiece");
        put_text(b, "prefix", "##");
        put_truth(b, "cleanup", true);
        mica__json_end_object(&b->json);
    } else {
        put_type(b, key, "Sequence");
        mica__json_key(&b->json, "decoders");
        mica__json_begin_array(&b->json);
        put_replace(b, "String", MARK, " ");
        put_type(b, NULL, "ByteFallback");
        mica__json_end_object(&b->json);
        put_type(b, NULL, "Fuse");
        mica__json_end_object(&b->json);
        if (b->prefix) {
            put_type(b, NULL, "Strip");
            put_text(b, "content", " ");
            mica__json_key(&b->json, "start");
            mica__json_uint(&b->json, 1);
            mica__json_key(&b->json, "stop");
            mica__json_uint(&b->json, 0);
            mica__json_end_object(&b->json);
        }
        mica__json_end_array(&b->json);
        mica__json_end_object(&b->json);
    }
}

/* ---- the model of tokenizer.json -------------------------------------------------------------------------- */

static mica_status spend_text(const mica_string *text)
{
    return mica__spend(2 + text->length / 16);
}

/* Of tokens with the same text the first; what fills the embedding up to its size stays out. */
static bool is_listed(const mica__tokenizer_back *b, uint32_t token)
{
    const mica_string *text = &b->words.token[token];
    return mica__token_list_kind(&b->words, token) != MICA__PIECE_UNUSED &&
           mica__token_list_find(&b->words, text->data, (size_t)text->length) == token;
}

/* GGUF marks the start of a word, HF its continuation. */
static mica_status put_wordpiece(mica__tokenizer_back *b, uint32_t token)
{
    const mica_string *text = &b->words.token[token];
    const bool marked = text->length > MARK_BYTES && memcmp(text->data, MARK, MARK_BYTES) == 0;
    if (marked || mica__token_list_kind(&b->words, token) != MICA__PIECE_NORMAL) {
        const size_t skip = marked ? MARK_BYTES : 0;
        mica__json_key_n(&b->json, text->data + skip, (size_t)text->length - skip);
        return MICA_OK;
    }
    char *longer = mica__alloc((size_t)text->length + 2);
    if (longer == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a wordpiece");
    longer[0] = longer[1] = '#';
    memcpy(longer + 2, text->data, (size_t)text->length);
    mica__json_key_n(&b->json, longer, (size_t)text->length + 2);
    mica__free(longer);
    return MICA_OK;
}

static mica_status put_vocabulary(mica__tokenizer_back *b)
{
    mica_status status = MICA_OK;
    mica__json_key(&b->json, "vocab");
    mica__json_begin_object(&b->json);
    for (uint32_t i = 0; i < b->words.count && status == MICA_OK; i++) {
        status = spend_text(&b->words.token[i]);
        if (status != MICA_OK || !is_listed(b, i))
            continue;
        if (mica__tokenizer_is_kind(b, "bert"))
            status = put_wordpiece(b, i);
        else
            mica__json_key_n(&b->json, b->words.token[i].data, (size_t)b->words.token[i].length);
        mica__json_uint(&b->json, i);
    }
    mica__json_end_object(&b->json);
    return status;
}

/* The list of the file, "left right". */
static mica_status put_merges(mica__tokenizer_back *b)
{
    const mica_value *list = mica__archive_meta(b->archive, "tokenizer.ggml.merges");
    mica_status status = MICA_OK;
    mica__json_key(&b->json, "merges");
    mica__json_begin_array(&b->json);
    if (list != NULL && list->type == MICA_VALUE_ARRAY && list->item_type == MICA_VALUE_STRING)
        for (uint64_t i = 0; i < list->count && status == MICA_OK; i++) {
            const mica_string *merge = (const mica_string *)list->as.items + i;
            mica__json_string_n(&b->json, merge->data, (size_t)merge->length);
            status = spend_text(merge);
        }
    mica__json_end_array(&b->json);
    return status;
}

/* The merges that the scores stand for, as pairs: texts may hold blanks. */
static mica_status put_score_merges(mica__tokenizer_back *b)
{
    mica__merge_rule *merges = NULL;
    uint32_t count = 0;
    mica_status status = mica__token_list_merges(&b->words, &merges, &count);
    mica__json_key(&b->json, "merges");
    mica__json_begin_array(&b->json);
    for (uint32_t i = 0; i < count && status == MICA_OK; i++) {
        const mica_string *left = &b->words.token[merges[i].left], *right = &b->words.token[merges[i].right];
        mica__json_begin_array(&b->json);
        mica__json_string_n(&b->json, left->data, (size_t)left->length);
        mica__json_string_n(&b->json, right->data, (size_t)right->length);
        mica__json_end_array(&b->json);
        status = mica__spend(2 + (left->length + right->length) / 16);
    }
    mica__json_end_array(&b->json);
    mica__free(merges);
    return status;
}

static bool has_bytes(const mica__tokenizer_back *b)
{
    for (uint32_t i = 0; i < b->words.count; i++)
        if (mica__token_list_kind(&b->words, i) == MICA__PIECE_BYTE)
            return true;
    return false;
}

static mica_status put_pairs(mica__tokenizer_back *b)
{
    const bool scores = mica__tokenizer_is_kind(b, "llama");
    const uint32_t unknown = scores ? b->unknown : b->words.count;
    put_type(b, "model", "BPE");
    put_null(b, "dropout");
    if (unknown < b->words.count)
        put_token(b, "unk_token", unknown);
    else
        put_null(b, "unk_token");
    put_null(b, "continuing_subword_prefix");
    put_null(b, "end_of_word_suffix");
    put_truth(b, "fuse_unk", scores);
    put_truth(b, "byte_fallback", scores && has_bytes(b));
    put_truth(b, "ignore_merges", !scores && (find_rule(b)->flags & MICA__RULE_IGNORE_MERGES) != 0);
    mica_status status = put_vocabulary(b);
    if (status == MICA_OK)
        status = scores ? put_score_merges(b) : put_merges(b);
    mica__json_end_object(&b->json);
    return status;
}

static mica_status put_unigram(mica__tokenizer_back *b)
{
    const uint32_t unknown = b->unknown;
    mica_status status = MICA_OK;
    put_type(b, "model", "Unigram");
    mica__json_key(&b->json, "unk_id");
    if (unknown < b->words.count)
        mica__json_uint(&b->json, unknown);
    else
        mica__json_null(&b->json);
    put_truth(b, "byte_fallback", has_bytes(b));
    mica__json_key(&b->json, "vocab");
    mica__json_begin_array(&b->json);
    for (uint32_t i = 0; i < b->words.count && status == MICA_OK; i++) {
        mica__json_begin_array(&b->json);
        mica__json_string_n(&b->json, b->words.token[i].data, (size_t)b->words.token[i].length);
        mica__json_double(&b->json, (double)b->words.score[i]);
        mica__json_end_array(&b->json);
        status = spend_text(&b->words.token[i]);
    }
    mica__json_end_array(&b->json);
    mica__json_end_object(&b->json);
    return status;
}

static mica_status put_wordpieces(mica__tokenizer_back *b)
{
    const uint32_t unknown = b->unknown;
    put_type(b, "model", "WordPiece");
    put_text(b, "unk_token", unknown < b->words.count ? b->words.token[unknown].data : "[UNK]");
    put_text(b, "continuing_subword_prefix", "##");
    mica__json_key(&b->json, "max_input_chars_per_word");
    mica__json_uint(&b->json, 100);
    const mica_status status = put_vocabulary(b);
    mica__json_end_object(&b->json);
    return status;
}

mica_status mica__tokenizer_make_json(mica__tokenizer_back *b, char **out_text)
{
    size_t length = 0;
    mica__json_writer_init(&b->json);
    mica__json_begin_object(&b->json);
    put_text(b, "version", "1.0");
    put_null(b, "truncation");
    put_null(b, "padding");
    put_added(b);
    mica_status status = put_normalizer(b);
    put_splitter(b);
    put_processor(b);
    put_decoder(b);
    if (status == MICA_OK)
        status = mica__tokenizer_is_kind(b, "t5")     ? put_unigram(b)
                 : mica__tokenizer_is_kind(b, "bert") ? put_wordpieces(b)
                                                      : put_pairs(b);
    mica__json_end_object(&b->json);
    if (status == MICA_OK)
        return mica__json_writer_finish(&b->json, out_text, &length);
    mica__json_writer_discard(&b->json);
    return status;
}
