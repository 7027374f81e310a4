/* test_tokenizer_golden.c: ids and decoded text against what others made of the same texts: small tokenizers of every kind with the
 * sums that scripts/golden_tokenizers.py wrote, and real vocabularies with ids where the folder of shared data is there. */
#include "model/tokenizer_rig.h"

#include "base/utf8.h"

#define TEXTS 1000
#define MOST_BYTES 4096

/* ---- texts: in step with scripts/golden_tokenizers.py (golden-texts) ----------------------------------------------------- */

static const char *const words[] = {
    "the",    "The",     "a",         "model",   "modeling", "tokenizer",
    "token",  "text",    "text's",    "we'll",   "I'm",      "don't",
    "YOU'RE", "it's",    "hello",     "world",   "running",  "unhappiness",
    "Äpfel",  "naïve",   "coöperate", "русский", "слово",    "λόγος",
    "日本語", "東京",    "한국어",    "नमस्ते",    "สวัสดี",     "مرحبا",
    "שלום",   "Việt",    "İstanbul",  "ﬁne",     "Ⅷ",        "①②",
    "½",      "1234567", "3.14",      "2024",    "x=y+1;",   "{}",
    "...",    "?!",      "--",        "<s>",     "</s>",     "<|eot|>",
    "[MASK]", "[SEP]",   "<user>",    "<extra>", "👍🏽", "👩‍👩‍👧",
    "🇩🇪",     "❤️"};
static const char *const blanks[] = {
    " ", " ", " ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\xc2\xa0", "\xe3\x80\x80", ""};
static const uint32_t ranges[][2] = {
    {0x20, 0x7e},     {0x20, 0x7e},     {0x20, 0x7e},     {0xa1, 0xff},       {0x100, 0x17f},
    {0x300, 0x33f},   {0x391, 0x3a1},   {0x3b1, 0x3c9},   {0x410, 0x44f},     {0x5d0, 0x5ea},
    {0x621, 0x63a},   {0x660, 0x669},   {0x905, 0x939},   {0xe01, 0xe30},     {0x1e00, 0x1eff},
    {0x2010, 0x2027}, {0x2190, 0x21ff}, {0x2460, 0x24ff}, {0x3041, 0x3096},   {0x30a1, 0x30fa},
    {0x4e00, 0x4fff}, {0xac00, 0xacff}, {0xff01, 0xff5e}, {0x1f300, 0x1f5ff}, {0x20000, 0x200ff},
    {0x200b, 0x200f}, {0x1, 0x1f}};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static size_t add_text(char *text, size_t length, const char *more)
{
    memcpy(text + length, more, strlen(more));
    return length + strlen(more);
}

static size_t make_text(uint64_t index, char *text)
{
    test_random random = test_random_from(index);
    size_t length = 0;
    const uint64_t parts = test_random_below(&random, 16);
    for (uint64_t i = 0; i < parts; i++) {
        if (test_random_below(&random, 3) != 0) {
            length = add_text(text, length, words[test_random_below(&random, COUNT(words))]);
        } else {
            const uint64_t letters = 1 + test_random_below(&random, 6);
            for (uint64_t k = 0; k < letters; k++) {
                const uint32_t *range = ranges[test_random_below(&random, COUNT(ranges))];
                const uint64_t code = range[0] + test_random_below(&random, range[1] - range[0] + 1);
                length += mica__utf8_put((uint32_t)code, text + length);
            }
        }
        length = add_text(text, length, blanks[test_random_below(&random, COUNT(blanks))]);
    }
    return length;
}

static uint32_t sum_of(const void *data, size_t size)
{
    uint32_t sum = 0x811c9dc5u;
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ ((const unsigned char *)data)[i]) * 0x01000193u;
    return sum;
}

/* ---- small tokenizers ------------------------------------------------------------------------------------------------------ */

static uint32_t sum_of_ids(const uint32_t *ids, uint64_t count)
{
    unsigned char bytes[4 * MOST_BYTES];
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t k = 0; k < 4; k++)
            bytes[4 * i + k] = (unsigned char)(ids[i] >> (8 * k));
    return sum_of(bytes, 4 * count);
}

/* The text of the ids, in one call and token by token: both must be the same, and every part whole characters. */
static uint32_t sum_of_decoded(const mica_tokenizer *tokenizer, const uint32_t *ids, uint64_t count,
                               uint32_t flags)
{
    char whole[4 * MOST_BYTES], parts[4 * MOST_BYTES];
    uint64_t length = 0, at = 0;
    mica_detokenizer *detokenizer = NULL;
    mica_string part;
    must(mica_tokenizer_decode(tokenizer, ids, count, flags, whole, sizeof whole, &length));
    assert_true(length <= sizeof whole);
    must(mica_detokenizer_create(tokenizer, flags, &detokenizer));
    for (uint64_t i = 0; i <= count; i++) {
        must(i < count ? mica_detokenizer_push(detokenizer, ids[i], &part)
                       : mica_detokenizer_flush(detokenizer, &part));
        for (size_t k = 0, bytes; k < part.length; k += bytes)
            assert_true((bytes = mica__utf8_length(part.data + k, part.length - k)) != 0);
        assert_true(at + part.length <= sizeof parts);
        memcpy(parts + at, part.data, part.length);
        at += part.length;
    }
    assert_int_equal(at, length);
    assert_memory_equal(parts, whole, length);
    mica_detokenizer_release(detokenizer);
    return sum_of(whole, length);
}

static int differs(const char *name, uint32_t index, const mica_tokenizer *tokenizer, const char *line)
{
    static const char *const what[] = {"ids", "ids with special tokens", "decoded text",
                                       "decoded text with special tokens"};
    char text[MOST_BYTES];
    uint32_t ids[MOST_BYTES], sums[4], wanted[4];
    uint64_t count = 0;
    const size_t length = make_text(index, text);
    assert_int_equal(sscanf(line, "%x %x %x %x", &wanted[0], &wanted[1], &wanted[2], &wanted[3]), 4);
    must(mica_tokenizer_encode(tokenizer, text, length, 0, ids, MOST_BYTES, &count));
    assert_true(count <= MOST_BYTES);
    sums[0] = sum_of_ids(ids, count);
    sums[2] = sum_of_decoded(tokenizer, ids, count, MICA_DECODE_START);
    must(mica_tokenizer_encode(tokenizer, text, length, MICA_ENCODE_ADD | MICA_ENCODE_SPECIAL, ids,
                               MOST_BYTES, &count));
    sums[1] = sum_of_ids(ids, count);
    sums[3] = sum_of_decoded(tokenizer, ids, count, MICA_DECODE_START | MICA_DECODE_SPECIAL);
    for (int k = 0; k < 4; k++)
        if (wanted[k] != 0 && wanted[k] != sums[k]) {
            print_error("%s, text %u: other %s: \"%.*s\"\n", name, index, what[k], (int)length, text);
            return 1;
        }
    return 0;
}

static void check_golden(const char *name)
{
    char path[256];
    size_t size = 0;
    int wrong = 0;
    mica_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "tests/model/golden/tokenizers/%s.json", name);
    char *json = rig_read(path, &size);
    snprintf(path, sizeof path, "tests/model/golden/tokenizers/%s.sums", name);
    char *sums = rig_read(path, &size);
    assert_non_null(json);
    assert_non_null(sums);
    must(rig_json(json, &tokenizer));
    const char *line = sums;
    for (uint32_t i = 0; i < TEXTS; i++) {
        wrong += differs(name, i, tokenizer, line);
        line = strchr(line, '\n');
        assert_non_null(line);
        line++;
    }
    assert_int_equal(wrong, 0);
    mica_tokenizer_release(tokenizer);
    free(json);
    free(sums);
    assert_int_equal(mica_host_bytes(), 0);
}

static void small_tokenizers(void **state)
{
    static const char *const names[] = {"gpt2",     "roberta",      "llama3",     "qwen",
                                        "falcon",   "llama",        "metaspace",  "unigram",
                                        "charsmap", "bert_uncased", "bert_cased", "steps"};
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++)
        check_golden(names[i]);
}

/* ---- real vocabularies ------------------------------------------------------------------------------------------------------- */

static int same_ids(const mica_tokenizer *tokenizer, const char *text, size_t length, const char *line)
{
    uint32_t ids[MOST_BYTES];
    uint64_t count = 0;
    must(mica_tokenizer_encode(tokenizer, text, length, 0, ids, MOST_BYTES, &count));
    assert_true(count <= MOST_BYTES);
    for (uint64_t i = 0; i < count; i++) {
        char *end = NULL;
        if (*line == '\n' || *line == '\0' || strtoul(line, &end, 10) != ids[i])
            return 0;
        line = end;
    }
    return *line == '\n' || *line == '\0';
}

/* Texts are separated by a line of their own; line i of the .out file has the ids of text i. */
static void check_vocabulary(const char *folder, const char *name)
{
    static const char between[] = "\n__ggml_vocab_test__\n";
    char path[512];
    size_t size = 0, texts = 0;
    mica_tokenizer *tokenizer = NULL;
    snprintf(path, sizeof path, "%s/tokenizers/%s.gguf", folder, name);
    must(rig_open(path, &tokenizer));
    snprintf(path, sizeof path, "%s/tokenizers/%s.inp", folder, name);
    char *in = rig_read(path, &size);
    snprintf(path, sizeof path, "%s/tokenizers/%s.out", folder, name);
    char *out = rig_read(path, &size);
    assert_non_null(in);
    assert_non_null(out);
    const char *line = out;
    for (const char *text = in; line != NULL && *line != '\0'; texts++) {
        const char *end = strstr(text, between);
        const size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
        if (!same_ids(tokenizer, text, length, line))
            fail_msg("%s, text %zu has other ids: \"%.*s\"", name, texts, (int)length, text);
        text = end != NULL ? end + sizeof between - 1 : text + length;
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    assert_true(texts >= 40);
    mica_tokenizer_release(tokenizer);
    free(in);
    free(out);
}

static void real_vocabularies(void **state)
{
    static const char *const names[] = {"llama-spm", "gpt-2", "llama-bpe", "qwen2", "bert-bge"};
    const char *folder = getenv("MICA_TEST_DATA");
    char path[512];
    size_t size = 0;
    (void)state;
    folder = folder != NULL ? folder : "../shared/data";
    snprintf(path, sizeof path, "%s/README.md", folder);
    char *readme = rig_read(path, &size);
    free(readme);
    if (readme == NULL) {
        print_message("skipped: no shared data in %s\n", folder);
        skip();
    }
    for (size_t i = 0; i < COUNT(names); i++)
        check_vocabulary(folder, names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_tokenizers),
                                       cmocka_unit_test(real_vocabularies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
