/*
 * Tokenizers: how encode, decode and opening grow with each dimension of what a stranger chooses. Every kind of model
 * meets every kind of text. With the argument `long` the sizes are larger and seconds are compared with steps.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model/tokenizer_rig.h"
#include "support/growth.h"

static int long_run;

/* ---- growing texts --------------------------------------------------------------------------------------- */

typedef struct text {
    char *data;
    size_t size, room;
} text;

static void put(text *t, const char *bytes, size_t size)
{
    if (t->size + size + 1 > t->room) {
        t->room = (t->size + size) * 2 + 64;
        t->data = realloc(t->data, t->room);
        assert_non_null(t->data);
    }
    memcpy(t->data + t->size, bytes, size);
    t->size += size;
    t->data[t->size] = '\0';
}

static void say(text *t, const char *words)
{
    put(t, words, strlen(words));
}

static void repeat(text *t, const char *what, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        say(t, what);
}

static void number(text *t, const char *format, uint64_t value)
{
    char words[64];
    snprintf(words, sizeof words, format, (unsigned long long)value);
    say(t, words);
}

/* ---- tokenizers ------------------------------------------------------------------------------------------- */

#define LONG_TOKEN 6000
#define ADDED "\"special\":false,\"lstrip\":false,\"rstrip\":true,\"single_word\":false,\"normalized\":"

/* Letters a to d, a blank's mark and the names of all bytes: "text": id. */
static uint32_t letters(text *t)
{
    static const char *const first[] = {"<unk>",        "a", "b", "c",   "d",   "aa",  "ab",
                                        "\xe2\x96\x81", "7", ".", "##a", "##b", "##aa"};
    uint32_t id = 0;
    for (; id < sizeof first / sizeof first[0]; id++) {
        say(t, id == 0 ? "\"" : ",\"");
        say(t, first[id]);
        number(t, "\":%llu", id);
    }
    for (uint32_t byte = 0; byte < 256; byte++, id++) {
        number(t, ",\"<0x%02llX>\":", byte);
        number(t, "%llu", id);
    }
    return id;
}

static void model_bpe(text *t, const char *more)
{
    say(t, "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,");
    say(t, more);
    say(t, "\"vocab\":{");
    letters(t);
    say(t, "},\"merges\":[\"a a\",\"a b\"]}");
}

static void model_unigram(text *t)
{
    say(t, "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-3],[\"b\",-3],["
           "\"aa\",-5],"
           "[\"\xe2\x96\x81\",-2],[\"7\",-4],[\"");
    repeat(t, "a", LONG_TOKEN);
    say(t, "b\",-9],[\"");
    repeat(t, "a", 200);
    say(t, "\",-7]]}");
}

static void model_wordpiece(text *t)
{
    say(t, "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"<unk>\",\"max_input_chars_per_word\":100000000,"
           "\"vocab\":{");
    uint32_t id = letters(t);
    say(t, ",\"##");
    repeat(t, "a", LONG_TOKEN);
    number(t, "b\":%llu,\"", id++);
    repeat(t, "a", LONG_TOKEN);
    number(t, "b\":%llu}}", id);
}

static void model_words(text *t)
{
    say(t, "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"ab\":1}}");
}

typedef enum model { BPE, BPE_FUSED, UNIGRAM, WORDPIECE, WORDS } model;

typedef struct kind {
    const char *name;
    model model;
    const char *around; /* normalizer, pre_tokenizer, added_tokens; a comma behind each */
    mica_tokenizer *tokenizer;
} kind;

#define SPLIT(pattern, behavior)                                                           \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"" behavior \
    "\",\"invert\":false}"

static kind kinds[] = {
    {"bpe", BPE, "", NULL},
    {"bpe of words", BPE, "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true},", NULL},
    {"bpe, fused unknowns", BPE_FUSED, "", NULL},
    {"bpe, marks", BPE,
     "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
     "\"\xe2\x96\x81\"},"
     "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]},",
     NULL},
    {"patterns", BPE,
     "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT(
         "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+", "Isolated") "," SPLIT("\\\\p{L}+|\\\\p{N}{1,3}",
                                                                             "MergedWithPrevious") "]},",
     NULL},
    {"a pattern that finds nothing", BPE, "\"pre_tokenizer\":" SPLIT("q+x|\\\\x{3b1}", "Removed") ",", NULL},
    {"a pattern that replaces", BPE,
     "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+|\\\\s\"},\"content\":\"b\"},", NULL},
    {"unigram", UNIGRAM, "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\"},",
     NULL},
    {"unigram, nfkc", UNIGRAM, "\"normalizer\":{\"type\":\"NFKC\"},", NULL},
    {"one word, nfc", WORDS, "\"normalizer\":{\"type\":\"NFC\"},", NULL},
    {"unigram, nfd", UNIGRAM,
     "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"StripAccents\"},"
     "{\"type\":\"Nmt\"},{\"type\":\"Strip\"}]},",
     NULL},
    {"wordpiece", WORDPIECE, "", NULL},
    {"wordpiece, bert", WORDPIECE,
     "\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":true},\"pre_tokenizer\":{\"type\":"
     "\"BertPreTokenizer\"},",
     NULL},
    {"words", WORDS, "\"pre_tokenizer\":{\"type\":\"Whitespace\"},", NULL},
    {"digits and signs", BPE,
     "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":"
     "false},"
     "{\"type\":\"Punctuation\",\"behavior\":\"Isolated\"},{\"type\":\"WhitespaceSplit\"}]},",
     NULL},
    {"added tokens", BPE,
     "\"added_tokens\":[{\"id\":269,\"content\":\"ab\"," ADDED "true},{\"id\":270,\"content\":\" \"," ADDED
     "false},{\"id\":271,\"content\":\"LONG\"," ADDED "true},{\"id\":272,\"content\":\"LONG!\"," ADDED
     "false}],",
     NULL},
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

/* LONG stands for a text that other texts nearly hold. */
static void say_around(text *t, const char *around)
{
    for (const char *found; (found = strstr(around, "LONG")) != NULL; around = found + 4) {
        put(t, around, (size_t)(found - around));
        repeat(t, "a", LONG_TOKEN);
        say(t, "q");
    }
    say(t, around);
}

static int make_kinds(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        text t = {0};
        say(&t, "{");
        say_around(&t, kinds[i].around);
        switch (kinds[i].model) {
        case UNIGRAM: model_unigram(&t); break;
        case WORDPIECE: model_wordpiece(&t); break;
        case WORDS: model_words(&t); break;
        default: model_bpe(&t, kinds[i].model == BPE_FUSED ? "\"fuse_unk\":true," : ""); break;
        }
        say(&t, "}");
        if (rig_json(t.data, &kinds[i].tokenizer) != MICA_OK)
            fail_msg("%s: %s", kinds[i].name, mica_status_message());
        free(t.data);
    }
    return 0;
}

static int drop_kinds(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++)
        mica_tokenizer_release(kinds[i].tokenizer);
    return 0;
}

/* ---- texts of every kind, through tokenizers of every kind --------------------------------------------------- */

static const struct {
    const char *name, *piece;
} texts[] = {{"one letter", "a"},
             {"letters", "abcd"},
             {"blanks", " "},
             {"lines", "\n"},
             {"blanks and lines", " \t\r\n"},
             {"digits", "7"},
             {"signs", "."},
             {"words", "ab cd a, "},
             {"no UTF-8", "\xff\xc0"},
             {"half UTF-8", "a\xe2\x96"},
             {"emoji", "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb"},
             {"marks", "\xcc\x95\xcc\x80\xcc\xa7"}, /* of the classes 232, 230 and 202 */
             {"accents", "e\xcc\x81"},
             {"syllables", "\xea\xb0\x81"},
             {"long forms", "\xef\xb7\xba"}, /* U+FDFA: 18 characters in NFKC */
             {"ideographs", "\xe5\xad\x97"}};
#define TEXT_COUNT (sizeof texts / sizeof texts[0])

static const kind *this_kind;
static const char *this_piece;

static mica_status encode(uint64_t size)
{
    text t = {0};
    uint64_t count = 0;
    repeat(&t, this_piece, (size + strlen(this_piece) - 1) / strlen(this_piece));
    uint32_t *ids = malloc((t.size + 8) * sizeof *ids);
    assert_non_null(ids);
    const mica_status status =
        mica_tokenizer_encode(this_kind->tokenizer, t.data, t.size, 0, ids, t.size + 8, &count);
    free(ids);
    free(t.data);
    return status;
}

static void texts_grow(void **state)
{
    (void)state;
    for (size_t k = 0; k < KIND_COUNT; k++)
        for (size_t i = 0; i < TEXT_COUNT; i++) {
            char name[128];
            snprintf(name, sizeof name, "%s: %s", kinds[k].name, texts[i].name);
            this_kind = &kinds[k];
            this_piece = texts[i].piece;
            growth_check(&(growth_row){name, encode, long_run ? 65536 : 4096, long_run ? 4 : 3}, long_run);
        }
}

static mica_status decode(uint64_t size)
{
    uint32_t *ids = malloc(size * sizeof *ids);
    uint64_t length = 0;
    assert_non_null(ids);
    for (uint64_t i = 0; i < size; i++)
        ids[i] = (uint32_t)(i * 7 % 260);
    char *out = malloc(size * 16);
    assert_non_null(out);
    const mica_status status =
        mica_tokenizer_decode(kinds[0].tokenizer, ids, size, MICA_DECODE_SPECIAL, out, size * 16, &length);
    free(out);
    free(ids);
    return status;
}

static void ids_grow(void **state)
{
    (void)state;
    growth_check(&(growth_row){"decode: ids", decode, long_run ? 1 << 20 : 8192, 3}, long_run);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static mica_status open_json(text *t)
{
    mica_tokenizer *tokenizer = NULL;
    const mica_status status = rig_json(t->data, &tokenizer);
    mica_tokenizer_release(tokenizer);
    free(t->data);
    return status;
}

static mica_status vocabulary(uint64_t size)
{
    text t = {0};
    say(&t, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0");
    for (uint64_t i = 1; i < size; i++) {
        number(&t, ",\"t%llx\":", i * 2654435761u);
        number(&t, "%llu", i);
    }
    say(&t, "},\"merges\":[]}}");
    return open_json(&t);
}

static mica_status pieces(uint64_t size)
{
    text t = {0};
    say(&t, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0]");
    for (uint64_t i = 1; i < size; i++)
        number(&t, ",[\"t%llx\",-1.5]", i * 2654435761u);
    say(&t, "]}}");
    return open_json(&t);
}

static mica_status merges(uint64_t size)
{
    text t = {0};
    say(&t, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    letters(&t);
    say(&t, "},\"merges\":[\"a a\"");
    repeat(&t, ",[\"a\",\"b\"]", size);
    say(&t, "]}}");
    return open_json(&t);
}

static mica_status one_long(uint64_t size, const char *type)
{
    text t = {0};
    say(&t, "{\"model\":{\"type\":\"");
    say(&t, type);
    say(&t, "\",\"unk_token\":\"a\",\"unk_id\":0,\"merges\":[],\"vocab\":");
    say(&t, strcmp(type, "Unigram") == 0 ? "[[\"a\",0],[\"" : "{\"a\":0,\"");
    repeat(&t, "b", size);
    say(&t, strcmp(type, "Unigram") == 0 ? "\",-1]]}}" : "\":1}}}");
    return open_json(&t);
}

static mica_status long_pair(uint64_t size)
{
    return one_long(size, "BPE");
}

static mica_status long_piece(uint64_t size)
{
    return one_long(size, "Unigram");
}

static mica_status long_word(uint64_t size)
{
    return one_long(size, "WordPiece");
}

static mica_status many_added(uint64_t size, const char *normalized, const char *around)
{
    text t = {0};
    say(&t, "{");
    say(&t, around);
    say(&t, "\"added_tokens\":[");
    for (uint64_t i = 0; i < size; i++) {
        number(&t, i == 0 ? "{\"id\":%llu," : ",{\"id\":%llu,", 300 + i);
        number(&t, "\"content\":\"<%llu A>\",", i);
        say(&t, ADDED);
        say(&t, normalized);
        say(&t, "}");
    }
    say(&t, "],");
    model_bpe(&t, "");
    say(&t, "}");
    return open_json(&t);
}

static mica_status added(uint64_t size)
{
    return many_added(size, "false", "");
}

static mica_status added_normal(uint64_t size)
{
    return many_added(size, "true", "\"normalizer\":{\"type\":\"Lowercase\"},");
}

static mica_status template_items(uint64_t size)
{
    text t = {0};
    say(&t, "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}}");
    repeat(&t, ",{\"SpecialToken\":{\"id\":\"none\"}}", size);
    say(&t, "],\"special_tokens\":{}},");
    model_bpe(&t, "");
    say(&t, "}");
    return open_json(&t);
}

static mica_status patterns(uint64_t size)
{
    text t = {0};
    say(&t, "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" SPLIT("b+|c", "Isolated"));
    repeat(&t, "," SPLIT("b+|c", "Isolated"), size - 1);
    say(&t, "]},");
    model_bpe(&t, "");
    say(&t, "}");
    mica_tokenizer *tokenizer = NULL;
    uint64_t count = 0;
    char sample[4096];
    memset(sample, 'a', sizeof sample);
    mica_status status = rig_json(t.data, &tokenizer);
    if (status == MICA_OK)
        status = mica_tokenizer_encode(tokenizer, sample, sizeof sample, 0, NULL, 0, &count);
    mica_tokenizer_release(tokenizer);
    free(t.data);
    return status;
}

/* A token of `size` bytes and a text that nearly holds it everywhere, and sometimes does. */
static mica_status long_both(uint64_t size, const char *head, const char *tail)
{
    text t = {0}, sample = {0};
    say(&t, head);
    repeat(&t, "a", size);
    say(&t, tail);
    repeat(&sample, "a", size * 4);
    say(&sample, "b");
    repeat(&sample, "a", size * 2);
    mica_tokenizer *tokenizer = NULL;
    uint64_t count = 0;
    mica_status status = rig_json(t.data, &tokenizer);
    if (status == MICA_OK)
        status = mica_tokenizer_encode(tokenizer, sample.data, sample.size, 0, NULL, 0, &count);
    assert_true(status != MICA_OK || count > size);
    mica_tokenizer_release(tokenizer);
    free(t.data);
    free(sample.data);
    return status;
}

static mica_status both_unigram(uint64_t size)
{
    return long_both(size,
                     "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-3],[\"",
                     "b\",-1]]}}");
}

static mica_status both_wordpiece(uint64_t size)
{
    return long_both(
        size,
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"<unk>\",\"max_input_chars_per_word\":"
        "100000000,\"vocab\":{\"<unk>\":0,\"a\":1,\"##a\":2,\"##",
        "b\":3}}}");
}

static mica_status both_bpe(uint64_t size)
{
    return long_both(
        size,
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"merges\":[\"a a\"],\"vocab\":{\"<unk>\":0,"
        "\"a\":1,\"aa\":2,\"",
        "b\":3}}}");
}

static mica_status both_added(uint64_t size)
{
    return long_both(
        size,
        "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":1,\"b\":2}},\"added_tokens\":[{\"id\":"
        "3," ADDED "true,\"content\":\"",
        "b\"}]}");
}

/* A GGUF with a vocabulary of `tokens` texts of `length` bytes. */
static mica_status gguf(const char *kind_name, uint64_t tokens, uint64_t length)
{
    rig_file file = {0};
    mica_string *items = malloc((tokens + 4) * sizeof *items);
    float *scores = calloc(tokens + 4, sizeof *scores);
    char *all = malloc((tokens + 4) * (length + 24));
    assert_true(items != NULL && scores != NULL && all != NULL);
    for (uint64_t i = 0; i < tokens + 4; i++) {
        char *at = all + i * (length + 24);
        memset(at, 'a', length);
        const int tail = snprintf(at + length, 24, "%llx", (unsigned long long)(i * 2654435761u));
        items[i] = (mica_string){at, length + (uint64_t)tail};
    }
    rig_set(&file, "tokenizer.ggml.model", rig_text(kind_name));
    rig_set(&file, "tokenizer.ggml.tokens", rig_array(MICA_VALUE_STRING, tokens + 4, items));
    rig_set(&file, "tokenizer.ggml.scores", rig_array(MICA_VALUE_F32, tokens + 4, scores));
    if (strcmp(kind_name, "gpt2") == 0)
        rig_set(&file, "tokenizer.ggml.merges", rig_array(MICA_VALUE_STRING, 0, items));
    mica_tokenizer *tokenizer = NULL;
    const mica_status status = rig_make(&file, &tokenizer);
    mica_tokenizer_release(tokenizer);
    free(items);
    free(scores);
    free(all);
    return status;
}

static mica_status gguf_llama(uint64_t size)
{
    return gguf("llama", size, 1);
}

static mica_status gguf_bert(uint64_t size)
{
    return gguf("bert", size, 1);
}

static mica_status gguf_t5(uint64_t size)
{
    return gguf("t5", size, 1);
}

static mica_status gguf_gpt2(uint64_t size)
{
    return gguf("gpt2", size, 1);
}

static mica_status gguf_long(uint64_t size)
{
    return gguf("t5", 4, size);
}

static void files_grow(void **state)
{
    static const growth_row rows[] = {
        {"json: tokens", vocabulary, 2048, 3},
        {"json: pieces with scores", pieces, 2048, 3},
        {"json: merges", merges, 2048, 3},
        {"json: bytes of a token, bpe", long_pair, 8192, 3},
        {"json: bytes of a token, unigram", long_piece, 8192, 3},
        {"json: bytes of a token, wordpiece", long_word, 8192, 3},
        {"json: added tokens", added, 1024, 3},
        {"json: added tokens, normalised", added_normal, 1024, 3},
        {"json: items of a template", template_items, 1024, 3},
        {"json: patterns", patterns, 8, 2},
        {"token and text, unigram", both_unigram, 2048, 3},
        {"token and text, wordpiece", both_wordpiece, 2048, 3},
        {"token and text, bpe", both_bpe, 2048, 3},
        {"token and text, added", both_added, 2048, 3},
        {"gguf: tokens, llama", gguf_llama, 2048, 3},
        {"gguf: tokens, bert", gguf_bert, 2048, 3},
        {"gguf: tokens, t5", gguf_t5, 2048, 3},
        {"gguf: tokens, gpt2", gguf_gpt2, 2048, 3},
        {"gguf: bytes of a token", gguf_long, 4096, 3},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        growth_row row = rows[i];
        if (long_run && row.run != patterns) /* tokens are longer than the limit in any case */
            row.first *= strstr(row.name, "bytes of a token") != NULL ? 2 : 16;
        growth_check(&row, long_run);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_grow),
        cmocka_unit_test(ids_grow),
        cmocka_unit_test(files_grow),
    };
    long_run = argc > 1 && strcmp(argv[1], "long") == 0;
    return cmocka_run_group_tests(tests, make_kinds, drop_kinds);
}
