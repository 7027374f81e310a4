/* test_convert_tokenizer.c - tokenizers on their way: tokenizer.model read byte by byte, what is put around a text, and
 * GGUF to files and back for the four kinds. */
#define _DEFAULT_SOURCE
#include "convert_rig.h"

#include "format/convert/convert.h"
#include "format/config/sentencepiece.h"

#define COUNT(list) (sizeof list / sizeof list[0])

static const rewrite_tensor table[] = {{"model.embed_tokens.weight", MICA_DTYPE_BF16, 2, {12, 16}}};

static void make_llama(void)
{
    make_checkpoint("hf",
                    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":16,\"num_hidden_layers\":1,"
                    "\"intermediate_size\":24,\"num_attention_heads\":2,\"max_position_embeddings\":128,"
                    "\"rms_norm_eps\":1e-05,\"vocab_size\":12,\"tie_word_embeddings\":true}",
                    table, COUNT(table));
}

/* ---- tokenizer.model ------------------------------------------------------------------------------------- */

typedef struct piece {
    const char *text;
    float score;
    uint8_t kind; /* 0: the field is left out */
} piece;

static void put_varint(rig_bytes *b, uint64_t value)
{
    for (; value > 127; value >>= 7)
        rig_number(b, (value & 127) | 128, 1);
    rig_number(b, value, 1);
}

static void put_field(rig_bytes *b, uint32_t number, const void *bytes, size_t size)
{
    put_varint(b, number << 3 | 2);
    put_varint(b, size);
    rig_put(b, bytes, size);
}

/* Fields in another order than SentencePiece's, and some that mica does not know. */
static rig_bytes make_model(const piece *pieces, size_t count, uint8_t type, uint8_t prefix)
{
    rig_bytes b = {0}, trainer = {0}, normalizer = {0};
    rig_put(&trainer,
            "\x0a\x03"
            "abc",
            5); /* 1: a text */
    rig_number(&trainer, 3 << 3, 1);
    rig_number(&trainer, type, 1);
    rig_put(&trainer, "\xa0\x06\x80\x80\x01", 5); /* 100: a number */
    rig_put(&trainer,
            "\xa9\x06"
            "12345678",
            10); /* 101: 64 bits */
    rig_number(&normalizer, 3 << 3, 1);
    rig_number(&normalizer, prefix, 1);
    put_field(&b, 3, normalizer.data, normalizer.size);
    for (size_t i = 0; i < count; i++) {
        rig_bytes p = {0};
        uint32_t bits;
        memcpy(&bits, &pieces[i].score, 4);
        if (pieces[i].kind != 0) {
            rig_number(&p, 3 << 3, 1);
            rig_number(&p, pieces[i].kind, 1);
        }
        rig_number(&p, 2 << 3 | 5, 1);
        rig_number(&p, bits, 4);
        put_field(&p, 1, pieces[i].text, strlen(pieces[i].text));
        put_field(&b, 1, p.data, p.size);
        rig_free(&p);
    }
    put_field(&b, 2, trainer.data, trainer.size);
    rig_free(&trainer);
    rig_free(&normalizer);
    return b;
}

static const piece pieces[] = {
    {"<unk>", 0, 2},  {"<s>", 0, 3},    {"</s>", 0, 3},
    {"<0x0A>", 0, 6}, {"ab", -0.5f, 0}, {"\xe2\x96\x81", -1.25f, 1},
    {"a", -2, 0},     {"b", -3, 0},     {"tool", -7, 4},
};

static void write_model(const rig_bytes *b)
{
    rig_file(rewrite_path("hf"), "tokenizer.model", b->data, b->size);
}

/* Scores and kinds as they stand there, not by order; added tokens of both files; the rest filled up. */
static void reads_pieces(void **state)
{
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "<0x0A>", "ab",      "\xe2\x96\x81",
                                         "a",     "b",   "tool", "extra",  "<|end|>", "[PAD11]"};
    static const float scores[] = {0, 0, 0, 0, -0.5f, -1.25f, -2, -3, -7, -1000, -1000, -10000};
    static const int32_t kinds[] = {2, 3, 3, 6, 1, 1, 1, 1, 4, 4, 3, 5};
    rig_bytes model = make_model(pieces, COUNT(pieces), 2, 0);
    (void)state;
    make_llama();
    write_model(&model);
    test_text_write(rewrite_path("hf/added_tokens.json"), "{\"extra\":9,\"far\":4194304}");
    test_text_write(
        rewrite_path("hf/tokenizer_config.json"),
        "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_bos_token\":true,\"added_tokens_decoder\":{"
        "\"10\":{\"content\":\"<|end|>\",\"special\":true},\"x\":{\"content\":\"y\"}}}");
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    check_text(gguf, "tokenizer.ggml.model", "llama");
    check_text(gguf, "tokenizer.ggml.pre", "default");
    check_texts(gguf, "tokenizer.ggml.tokens", tokens, COUNT(tokens));
    assert_memory_equal(mica__archive_meta(gguf, "tokenizer.ggml.scores")->as.items, scores, sizeof scores);
    assert_memory_equal(mica__archive_meta(gguf, "tokenizer.ggml.token_type")->as.items, kinds, sizeof kinds);
    check_u32(gguf, "tokenizer.ggml.bos_token_id", 1);
    check_u32(gguf, "tokenizer.ggml.eos_token_id", 2);
    check_bool(gguf, "tokenizer.ggml.add_bos_token", true);
    check_bool(gguf, "tokenizer.ggml.add_space_prefix", false);
    mica__archive_close(gguf);
    rig_free(&model);
    model = make_model(pieces, COUNT(pieces), 1, 1);
    write_model(&model);
    convert_ok("hf", "out.gguf", NULL);
    gguf = rewrite_open(rewrite_path("out.gguf"));
    check_text(gguf, "tokenizer.ggml.model", "t5");
    check_bool(gguf, "tokenizer.ggml.add_space_prefix", true);
    mica__archive_close(gguf);
    rig_free(&model);
}

/* It has the scores, so it counts before a tokenizer.json of the same pieces; but not before one of another kind. */
static void model_beside_json(void **state)
{
    rig_bytes model = make_model(pieces, COUNT(pieces), 2, 1);
    (void)state;
    make_llama();
    write_model(&model);
    test_text_write(
        rewrite_path("hf/tokenizer.json"),
        "{\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true},{\"id\":9,\"content\":\"more\"}],"
        "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,\"ab\":4}}}");
    convert_ok("hf", "out.gguf", NULL);
    mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
    const float *scores = mica__archive_meta(gguf, "tokenizer.ggml.scores")->as.items;
    assert_true(scores[1] == 0 && scores[4] == -0.5f && scores[9] == -1000);
    mica__archive_close(gguf);
    test_text_write(
        rewrite_path("hf/tokenizer.json"),
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}");
    convert_ok("hf", "out.gguf", NULL);
    gguf = rewrite_open(rewrite_path("out.gguf"));
    check_text(gguf, "tokenizer.ggml.model", "gpt2");
    mica__archive_close(gguf);
    rig_free(&model);
}

static mica_status parse(const uint8_t *bytes, size_t size)
{
    mica__sentencepiece model;
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    memcpy(copy, bytes, size);
    const mica_status status = mica__sentencepiece_parse("model", copy, size, &model);
    if (status == MICA_OK)
        for (uint32_t i = 0; i < model.count; i++)
            assert_true(model.piece[i].length != 0 && isfinite(model.piece[i].score) &&
                        model.piece[i].text >= (const char *)copy &&
                        model.piece[i].text + model.piece[i].length <= (const char *)copy + size);
    mica__sentencepiece_free(&model);
    free(copy);
    assert_int_equal(mica_host_bytes(), 0);
    assert_true(status == MICA_OK || status == MICA_ERR_MALFORMED_FILE || status == MICA_ERR_UNSUPPORTED);
    return status;
}

static mica_status play_parse(void *context)
{
    const rig_bytes *b = context;
    mica__sentencepiece model;
    const mica_status status = mica__sentencepiece_parse("model", b->data, b->size, &model);
    mica__sentencepiece_free(&model);
    return status;
}

/* Cut at each length, each byte at each value; what is wrong by name. */
static void survives_bad_models(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *word;
    } cases[] = {
        {"", 0, "empty"},
        {"\x0a\x7f", 2, "longer than the message"},
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "longer than the message"},
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, "more than 64 bits"},
        {"\x08\x80\x80", 3, "ends inside a number"},
        {"\x0b\x00", 2, "neither a number nor bytes"},
        {"\x02\x00", 2, "valid number"},
        {"\x12\x02\x18\x02", 4, "without a piece"},
        {"\x0a\x00", 2, "without a text"},
        {"\x0a\x03\x0a\x01\xff", 5, "UTF-8"},
        {"\x0a\x04\x0a\x02\x61\x00", 6, "UTF-8"},
        {"\x0a\x05\x0a\x01\x61\x18\x07", 7, "unknown kind"},
        {"\x0a\x08\x0a\x01\x61\x15\x00\x00\xc0\x7f", 10, "finite"},
    };
    rig_bytes good = make_model(pieces, COUNT(pieces), 2, 1);
    mica__sentencepiece model;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        rewrite_refused(mica__sentencepiece_parse("model", cases[i].bytes, cases[i].size, &model),
                        MICA_ERR_MALFORMED_FILE, cases[i].word);
    rewrite_refused(mica__sentencepiece_parse("model", "\x12\x02\x18\x03\x0a\x03\x0a\x01\x61", 9, &model),
                    MICA_ERR_UNSUPPORTED, "words");
    assert_int_equal(parse(good.data, good.size), MICA_OK);
    for (size_t size = 0; size < good.size; size++)
        parse(good.data, size);
    for (size_t at = 0; at < good.size; at++)
        for (int value = 0; value < 256; value++) {
            const uint8_t was = good.data[at];
            good.data[at] = (uint8_t)value;
            parse(good.data, good.size);
            good.data[at] = was;
        }
    rig_fail_allocations(play_parse, &good);
    rig_free(&good);
}

/* What is written is what is read. */
static void writes_models(void **state)
{
    static const char chars[] = "rules";
    rig_bytes made = make_model(pieces, COUNT(pieces), 2, 0);
    mica__sentencepiece model, again;
    char *bytes = NULL;
    size_t size = 0;
    (void)state;
    assert_int_equal(mica__sentencepiece_parse("model", made.data, made.size, &model), MICA_OK);
    model.chars = chars;
    model.chars_length = 5;
    model.unigram = model.trim = true;
    assert_int_equal(mica__sentencepiece_write(&model, &bytes, &size), MICA_OK);
    assert_int_equal(mica__sentencepiece_parse("again", bytes, size, &again), MICA_OK);
    assert_int_equal(again.count, COUNT(pieces));
    assert_true(again.unigram && again.trim && !again.prefix && again.chars_length == 5);
    assert_memory_equal(again.chars, chars, 5);
    for (uint32_t i = 0; i < again.count; i++) {
        assert_int_equal(again.piece[i].length, strlen(pieces[i].text));
        assert_memory_equal(again.piece[i].text, pieces[i].text, again.piece[i].length);
        assert_true(again.piece[i].score == pieces[i].score);
        assert_int_equal(again.piece[i].kind, pieces[i].kind == 0 ? 1 : pieces[i].kind);
    }
    mica__sentencepiece_free(&model);
    mica__sentencepiece_free(&again);
    assert_int_equal(mica_host_bytes() != 0, 1);
    rig_free(&made);
    /* the bytes are the library's memory */
    mica__tokenizer_files none = {.model = bytes};
    mica__tokenizer_files_free(&none);
    assert_int_equal(mica_host_bytes(), 0);
}

/* ---- what is put around a text --------------------------------------------------------------------------- */

static void ends_of_texts(void **state)
{
    static const struct {
        const char *processor, *settings;
        int begin, end; /* -1: no key */
    } cases[] = {
        {"null", "{}", -1, -1},
        {"{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<b>\"}},{\"Sequence\":{"
         "\"id\":\"A\"}}]}",
         "{\"bos_token\":\"<b>\",\"eos_token\":\"<e>\"}", 1, -1},
        {"{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{"
         "\"id\":\"<e>\"}}]}",
         "{\"bos_token\":\"<b>\",\"eos_token\":{\"content\":\"<e>\"}}", -1, 1},
        {"{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"TemplateProcessing\","
         "\"single\":[{"
         "\"SpecialToken\":{\"id\":\"<b>\"}},{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"<e>\"}"
         "}]}]}",
         "{\"cls_token\":\"<b>\",\"sep_token\":\"<e>\"}", 1, 1},
        {"{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<x>\"}},{\"Sequence\":{"
         "\"id\":\"A\"}}]}",
         "{\"bos_token\":\"<b>\"}", 0, -1},
        {"{\"type\":\"RobertaProcessing\"}", "{}", 1, 1},
        {"{\"type\":\"RobertaProcessing\"}", "{\"add_eos_token\":false}", 1, 0},
        {"{\"type\":\"TemplateProcessing\",\"single\":7}", "{}", -1, -1},
    };
    static const char *const keys[] = {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char json[1024];
        make_llama();
        snprintf(
            json, sizeof json,
            "{\"post_processor\":%s,\"model\":{\"type\":\"BPE\",\"vocab\":{\"<b>\":0,\"<e>\":1,\"a\":2}}}",
            cases[i].processor);
        test_text_write(rewrite_path("hf/tokenizer.json"), json);
        test_text_write(rewrite_path("hf/tokenizer_config.json"), cases[i].settings);
        convert_ok("hf", "out.gguf", NULL);
        mica__archive *gguf = rewrite_open(rewrite_path("out.gguf"));
        const int expected[] = {cases[i].begin, cases[i].end};
        for (int k = 0; k < 2; k++) {
            if (expected[k] >= 0)
                check_bool(gguf, keys[k], expected[k] != 0);
            else
                assert_null(mica__archive_meta(gguf, keys[k]));
        }
        if (strstr(cases[i].settings, "cls_token") != NULL) { /* they stand in for bos and eos */
            check_u32(gguf, "tokenizer.ggml.bos_token_id", 0);
            check_u32(gguf, "tokenizer.ggml.eos_token_id", 1);
        }
        mica__archive_close(gguf);
    }
}

/* ---- from GGUF and back ---------------------------------------------------------------------------------- */

typedef struct words {
    const char *model, *pre;
    const char *token[8];
    int32_t kind[8];
    float score[8]; /* of llama and t5 */
    const char *merge[4];
    uint32_t bos, eos;
} words;

static const words kinds[] = {
    {"gpt2",
     "llama-bpe",
     {"a", "b", "ab", "\xc4\xa0", "<b>", "<e>", "user", "[PAD7]"},
     {1, 1, 1, 1, 3, 3, 4, 5},
     {0},
     {"a b", "\xc4\xa0 a"},
     4,
     5},
    {"gpt2",
     "qwen2",
     {"a", "b", "ab", "c", "<b>", "<e>", "user", "[PAD7]"},
     {1, 1, 1, 1, 3, 3, 4, 5},
     {0},
     {"a b"},
     4,
     5},
    {"gpt2",
     "gpt-2",
     {"a", "b", "ab", "c", "<b>", "<e>", "\"\\", "[PAD7]"},
     {1, 1, 1, 1, 3, 3, 1, 5},
     {0},
     {"a b"},
     4,
     5},
    {"llama",
     "default",
     {"<unk>", "<s>", "</s>", "<0x41>", "aab", "aa", "a", "b"},
     {2, 3, 3, 6, 1, 1, 1, 1},
     {0, 0, 0, 0, -1.5f, -0.25f, -3, -4},
     {NULL},
     1,
     2},
    {"t5",
     "default",
     {"<pad>", "</s>", "<unk>", "\xe2\x96\x81x", "x", "y", "z", "w"},
     {3, 3, 2, 1, 1, 1, 1, 1},
     {0, 0, 0, -2.5f, -3.125f, -4, -5, -6},
     {NULL},
     0,
     1},
    {"bert",
     "default",
     {"[PAD]", "[CLS]", "[SEP]", "[UNK]", "\xe2\x96\x81play", "ing", "\xe2\x96\x81[x]", "[PAD7]"},
     {3, 3, 3, 3, 1, 1, 1, 5},
     {0},
     {NULL},
     1,
     2},
};

/* A Llama's metadata around this tokenizer, and its one tensor. */
static void make_gguf(const words *w)
{
    const mica_writer_options options = {.format = MICA_FORMAT_GGUF, .overwrite = 1};
    static const uint64_t shape[] = {8, 16};
    static const uint16_t data[8 * 16] = {0};
    static const struct {
        const char *key;
        uint32_t number;
    } numbers[] = {{"llama.block_count", 1},          {"llama.context_length", 128},
                   {"llama.embedding_length", 16},    {"llama.feed_forward_length", 24},
                   {"llama.attention.head_count", 2}, {"llama.vocab_size", 8}};
    mica_string tokens[8], merges[4];
    uint64_t merge_count = 0;
    mica_writer *writer = NULL;
    for (int i = 0; i < 8; i++)
        tokens[i] = (mica_string){w->token[i], strlen(w->token[i])};
    for (; merge_count < 4 && w->merge[merge_count] != NULL; merge_count++)
        merges[merge_count] = (mica_string){w->merge[merge_count], strlen(w->merge[merge_count])};
    const struct {
        const char *key;
        mica_value value;
    } rows[] = {
#define TEXT(text) {.type = MICA_VALUE_STRING, .as.string = {text, strlen(text)}}
#define LIST(kind, n, list)                                                                    \
    {                                                                                          \
        .type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_##kind, .count = n, .as.items = list \
    }
#define NUMBER(n)                         \
    {                                     \
        .type = MICA_VALUE_U32, .as.u = n \
    }
        {"general.architecture", TEXT("llama")},
        {"tokenizer.ggml.model", TEXT(w->model)},
        {"tokenizer.ggml.pre", TEXT(w->pre)},
        {"tokenizer.ggml.tokens", LIST(STRING, 8, tokens)},
        {"tokenizer.ggml.token_type", LIST(I32, 8, w->kind)},
        {"tokenizer.ggml.bos_token_id", NUMBER(w->bos)},
        {"tokenizer.ggml.eos_token_id", NUMBER(w->eos)},
        {"tokenizer.ggml.add_bos_token", {.type = MICA_VALUE_BOOL, .as.u = 1}},
        {"tokenizer.chat_template", TEXT("{{ \"x\" }}")},
        {"tokenizer.ggml.scores", LIST(F32, 8, w->score)},
        {"tokenizer.ggml.merges", LIST(STRING, merge_count, merges)},
    };
    assert_int_equal(mica_writer_create(rewrite_path("words.gguf"), &options, &writer), MICA_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const bool scores = strcmp(w->model, "llama") == 0 || strcmp(w->model, "t5") == 0;
        if ((!scores && i == COUNT(rows) - 2) || (merge_count == 0 && i == COUNT(rows) - 1))
            continue;
        assert_int_equal(mica_writer_metadata(writer, rows[i].key, &rows[i].value), MICA_OK);
    }
    for (size_t i = 0; i < COUNT(numbers); i++)
        assert_int_equal(mica_writer_metadata(writer, numbers[i].key, &(mica_value)NUMBER(numbers[i].number)),
                         MICA_OK);
    assert_int_equal(mica_writer_metadata(writer, "llama.attention.layer_norm_rms_epsilon",
                                          &(mica_value){.type = MICA_VALUE_F32, .as.f = 1e-5}),
                     MICA_OK);
    assert_int_equal(mica_writer_tensor(writer, "token_embd.weight", MICA_DTYPE_F16, 2, shape), MICA_OK);
    assert_int_equal(mica_writer_write(writer, data, sizeof data), MICA_OK);
    assert_int_equal(mica_writer_finish(writer), MICA_OK);
}

/* Tokens, kinds, scores, merges, special ids, switches and the template come back as they were. */
static void there_and_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        const words *w = &kinds[i];
        make_gguf(w);
        make_folder("to");
        convert_ok("words.gguf", "to", NULL);
        convert_ok("to", "back.gguf", NULL);
        mica__archive *was = rewrite_open(rewrite_path("words.gguf")),
                      *is = rewrite_open(rewrite_path("back.gguf"));
        for (uint32_t k = 0; k < was->meta_count; k++) {
            const mica_value *a = &was->meta[k].value, *b = mica__archive_meta(is, was->meta[k].key.data);
            if (b == NULL || b->type != a->type)
                fail_msg("%s: %s got lost", w->pre, was->meta[k].key.data);
            if (a->type == MICA_VALUE_STRING && strcmp(was->meta[k].key.data, "general.name") != 0)
                assert_string_equal(b->as.string.data, a->as.string.data);
            if (a->type == MICA_VALUE_U32 || a->type == MICA_VALUE_BOOL)
                assert_int_equal(b->as.u, a->as.u);
        }
        check_texts(is, "tokenizer.ggml.tokens", w->token, 8);
        assert_memory_equal(mica__archive_meta(is, "tokenizer.ggml.token_type")->as.items, w->kind,
                            sizeof w->kind);
        if (mica__archive_meta(was, "tokenizer.ggml.scores") != NULL)
            assert_memory_equal(mica__archive_meta(is, "tokenizer.ggml.scores")->as.items, w->score,
                                sizeof w->score);
        if (w->merge[0] != NULL)
            check_texts(is, "tokenizer.ggml.merges", w->merge, w->merge[1] != NULL ? 2 : 1);
        mica__archive_close(was);
        mica__archive_close(is);
    }
}

/* Best score first: aa (-0.25) is made of a a; aab (-1.5) of aa b. "a" and "ab" make no aab: there is no ab. */
static void merges_of_scores(void **state)
{
    (void)state;
    make_gguf(&kinds[3]);
    make_folder("to");
    convert_ok("words.gguf", "to", NULL);
    rig_bytes json = rig_load(rewrite_path("to/tokenizer.json"));
    rig_put(&json, "", 1);
    const char *text = (const char *)json.data;
    assert_non_null(strstr(text, "\"merges\":[[\"a\",\"a\"],[\"aa\",\"b\"]]"));
    assert_non_null(strstr(text, "\"byte_fallback\":true"));
    assert_non_null(strstr(text, "\"unk_token\":\"<unk>\""));
    assert_non_null(strstr(text, "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"}"));
    assert_non_null(
        strstr(text, "\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\""));
    rig_free(&json);
}

static bool is_there(const char *name)
{
    return access(rewrite_path(name), F_OK) == 0;
}

/* A tokenizer that no file would read rightly is refused by a sentence, and nothing is written. */
static void check_refused(const char *word)
{
    const mica_convert_options with = {.overwrite = 1}, without = {.overwrite = 1, .without_tokenizer = 1};
    test_folder_remove(rewrite_path("to"));
    assert_int_equal(mica_convert(rewrite_path("words.gguf"), rewrite_path("to"), &with),
                     MICA_ERR_UNSUPPORTED);
    assert_non_null(strstr(mica_status_message(), "the tokenizer cannot be written"));
    assert_non_null(strstr(mica_status_message(), word));
    assert_false(is_there("to"));
    convert_ok("words.gguf", "to", &without);
    assert_true(is_there("to/config.json") && !is_there("to/tokenizer.json") &&
                !is_there("to/tokenizer_config.json"));
}

static void unknown_rules_are_refused(void **state)
{
    words odd = kinds[0];
    (void)state;
    odd.pre = "someone's own";
    make_gguf(&odd);
    check_refused("someone's own");
    odd.model = "rwkv";
    make_gguf(&odd);
    check_refused("rwkv");
    odd = kinds[3];
    odd.token[6] = "\xff";
    make_gguf(&odd);
    check_refused("UTF-8");
    odd.token[6] = "";
    make_gguf(&odd);
    convert_ok("words.gguf", "to", NULL);
    assert_true(is_there("to/tokenizer.json") && !is_there("to/tokenizer.model"));
}

static mica_status play(void *context)
{
    const mica_convert_options options = {.overwrite = 1};
    return mica_convert(rewrite_path("words.gguf"), rewrite_path(context), &options);
}

static mica_status play_model(void *context)
{
    const mica_convert_options options = {.overwrite = 1};
    return mica_convert(rewrite_path("hf"), rewrite_path(context), &options);
}

static void allocation_failures(void **state)
{
    char to[] = "to", gguf[] = "x.gguf";
    rig_bytes model = make_model(pieces, COUNT(pieces), 1, 1);
    (void)state;
    make_folder("to");
    for (size_t i = 0; i < COUNT(kinds); i++) {
        make_gguf(&kinds[i]);
        rig_fail_allocations(play, to);
    }
    make_llama();
    write_model(&model);
    rig_fail_allocations(play_model, gguf);
    rig_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_pieces),        cmocka_unit_test(model_beside_json),
        cmocka_unit_test(survives_bad_models), cmocka_unit_test(writes_models),
        cmocka_unit_test(ends_of_texts),       cmocka_unit_test(there_and_back),
        cmocka_unit_test(merges_of_scores),    cmocka_unit_test(unknown_rules_are_refused),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests(tests, rewrite_setup, rewrite_teardown);
}
