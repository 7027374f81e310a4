/* test_tokenizer.c: what tokenizers promise besides ids: facts of a file, invalid UTF-8, capacity, long words, streaming, ends of
 * answers; and sentencepiece merges against a plain search for the best pair. */
#include <time.h>

#include "model/tokenizer_rig.h"

#define BYTE_FIRST 3
#define TEXT_FIRST (BYTE_FIRST + 256)
#define MOST_IDS 512

/* ---- a vocabulary with scores ---------------------------------------------------------------------------------------------- */

static const char *const spm_texts[] = {"\xe2\x96\x81",
                                        "a",
                                        "b",
                                        "c",
                                        "ab",
                                        "bc",
                                        "abc",
                                        "aa",
                                        "aab",
                                        ("\xe2\x96\x81"
                                         "a"),
                                        "cc",
                                        "cab",
                                        "bb",
                                        "\xc3\xa9",
                                        "\xe2\x96\x81\xe2\x96\x81",
                                        "<tool>",
                                        "<|im_end|>",
                                        "bca",
                                        "</",
                                        "s>"};
#define SPM_TEXTS (sizeof spm_texts / sizeof spm_texts[0])
#define SPM_COUNT (TEXT_FIRST + SPM_TEXTS)

typedef struct spm_vocabulary {
    mica_string tokens[SPM_COUNT];
    char names[256][8];
    float scores[SPM_COUNT];
    int32_t types[SPM_COUNT];
} spm_vocabulary;

static void spm_fill(spm_vocabulary *v, rig_file *file)
{
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    memset(v, 0, sizeof *v);
    for (uint32_t i = 0; i < SPM_COUNT; i++) {
        const char *text = i < 3 ? first[i] : i < TEXT_FIRST ? v->names[i - 3] : spm_texts[i - TEXT_FIRST];
        if (i >= 3 && i < TEXT_FIRST)
            snprintf(v->names[i - 3], sizeof v->names[0], "<0x%02X>", i - 3);
        v->tokens[i] = (mica_string){text, strlen(text)};
        v->types[i] = i == 0           ? MICA_TOKEN_UNKNOWN
                      : i < 3          ? MICA_TOKEN_CONTROL
                      : i < TEXT_FIRST ? MICA_TOKEN_BYTE
                                       : MICA_TOKEN_NORMAL;
        v->scores[i] = i < TEXT_FIRST ? 0 : -(float)((i * 7) % 5); /* equal ones too */
    }
    v->types[TEXT_FIRST + 15] = MICA_TOKEN_USER;
    rig_set(file, "tokenizer.ggml.model", rig_text("llama"));
    rig_set(file, "tokenizer.ggml.tokens", rig_array(MICA_VALUE_STRING, SPM_COUNT, v->tokens));
    rig_set(file, "tokenizer.ggml.scores", rig_array(MICA_VALUE_F32, SPM_COUNT, v->scores));
    rig_set(file, "tokenizer.ggml.token_type", rig_array(MICA_VALUE_I32, SPM_COUNT, v->types));
}

static mica_tokenizer *spm_make(spm_vocabulary *v)
{
    rig_file file = {0};
    mica_tokenizer *tokenizer = NULL;
    spm_fill(v, &file);
    must(rig_make(&file, &tokenizer));
    return tokenizer;
}

static uint32_t id_of(const char *text)
{
    for (uint32_t i = 0; i < SPM_TEXTS; i++)
        if (strcmp(spm_texts[i], text) == 0)
            return TEXT_FIRST + i;
    fail_msg("no token %s", text);
    return 0;
}

/* ---- the oracle: the best pair of the whole text, found anew each time --------------------------------------------------------- */

static uint32_t find_plain(const spm_vocabulary *v, const char *text, size_t length)
{
    for (uint32_t i = TEXT_FIRST; i < SPM_COUNT; i++)
        if (v->tokens[i].length == length && memcmp(v->tokens[i].data, text, length) == 0)
            return i;
    return MICA_NO_TOKEN;
}

static size_t letter_length(const char *text)
{
    return (unsigned char)text[0] < 0x80   ? 1
           : (unsigned char)text[0] < 0xe0 ? 2
           : (unsigned char)text[0] < 0xf0 ? 3
                                           : 4;
}

static uint64_t oracle_merge(const spm_vocabulary *v, const char *text, size_t length, uint32_t *ids)
{
    size_t start[MOST_IDS + 1], count = 0;
    for (size_t i = 0; i < length; i += letter_length(text + i))
        start[count++] = i;
    start[count] = length;
    for (;;) {
        size_t best = count;
        float score = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            const uint32_t id = find_plain(v, text + start[i], start[i + 2] - start[i]);
            if (id != MICA_NO_TOKEN && (best == count || v->scores[id] > score)) {
                best = i;
                score = v->scores[id];
            }
        }
        if (best == count)
            break;
        memmove(&start[best + 1], &start[best + 2], (count - best - 1) * sizeof start[0]);
        count--;
    }
    uint64_t written = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t id = find_plain(v, text + start[i], start[i + 1] - start[i]);
        for (size_t k = start[i]; id == MICA_NO_TOKEN && k < start[i + 1]; k++)
            ids[written++] = BYTE_FIRST + (unsigned char)text[k];
        if (id != MICA_NO_TOKEN)
            ids[written++] = id;
    }
    return written;
}

static void merges_by_score(void **state)
{
    static const char *const letters[] = {"a", "b", "c", "a", "b", "c", " ", "\xc3\xa9", "\xe6\x97\xa5"};
    spm_vocabulary v;
    mica_tokenizer *tokenizer = spm_make(&v);
    test_random random = test_random_from(11);
    (void)state;
    for (int round = 0; round < 2000; round++) {
        char text[256] = "", marked[512] = "\xe2\x96\x81";
        uint32_t ids[MOST_IDS], wanted[MOST_IDS];
        uint64_t count = 0;
        const uint64_t size = test_random_below(&random, 40);
        for (uint64_t i = 0; i < size; i++) {
            const char *letter = letters[test_random_below(&random, sizeof letters / sizeof letters[0])];
            strcat(text, letter);
            strcat(marked, letter[0] == ' ' ? "\xe2\x96\x81" : letter);
        }
        const uint64_t want = size == 0 ? 0 : oracle_merge(&v, marked, strlen(marked), wanted);
        must(mica_tokenizer_encode(tokenizer, text, strlen(text), 0, ids, MOST_IDS, &count));
        assert_int_equal(count, want);
        assert_memory_equal(ids, wanted, count * sizeof ids[0]);
    }
    mica_tokenizer_release(tokenizer);
}

/* ---- facts ------------------------------------------------------------------------------------------------------------------------ */

static void facts(void **state)
{
    spm_vocabulary v;
    mica_tokenizer *tokenizer = spm_make(&v);
    mica_tokenizer_info info;
    mica_string text;
    mica_token_kind kind;
    (void)state;
    must(mica_tokenizer_get_info(tokenizer, &info));
    assert_string_equal(info.kind, "spm");
    assert_string_equal(info.rule, "");
    assert_int_equal(info.count, SPM_COUNT);
    assert_int_equal(info.bos, 1);
    assert_int_equal(info.eos, 2);
    assert_int_equal(info.unk, 0);
    assert_int_equal(info.pad, MICA_NO_TOKEN);
    assert_int_equal(info.eot, id_of("<|im_end|>"));
    assert_int_equal(info.add_bos, 1);
    assert_int_equal(info.add_eos, 0);
    must(mica_tokenizer_token(tokenizer, id_of("abc"), &text, &kind));
    assert_string_equal(text.data, "abc");
    assert_int_equal(kind, MICA_TOKEN_NORMAL);
    must(mica_tokenizer_token(tokenizer, id_of("<|im_end|>"), &text, &kind));
    assert_int_equal(kind, MICA_TOKEN_CONTROL); /* by its name */
    assert_int_equal(mica_tokenizer_find(tokenizer, "</s>", 4), 2);
    assert_int_equal(mica_tokenizer_find(tokenizer, "abcd", 4), MICA_NO_TOKEN);
    assert_int_equal(mica_tokenizer_find(tokenizer, "", 0), MICA_NO_TOKEN);
    for (uint32_t id = 0; id < info.count + 3; id++)
        assert_int_equal(mica_tokenizer_is_end(tokenizer, id), id == 2 || id == id_of("<|im_end|>"));
    refused(mica_tokenizer_token(tokenizer, SPM_COUNT, &text, &kind), MICA_ERR_INVALID_ARGUMENT, "id");
    refused(mica_tokenizer_get_info(NULL, &info), MICA_ERR_INVALID_ARGUMENT, "tokenizer");
    mica_tokenizer_release(tokenizer);
    mica_tokenizer_release(NULL);
}

static void expect_ids(const mica_tokenizer *tokenizer, const char *text, size_t length, uint32_t flags,
                       size_t count, const uint32_t *wanted)
{
    uint32_t ids[MOST_IDS];
    uint64_t got = 0;
    must(mica_tokenizer_encode(tokenizer, text, length, flags, ids, MOST_IDS, &got));
    assert_int_equal(got, count);
    assert_memory_equal(ids, wanted, count * sizeof ids[0]);
}

static void specials(void **state)
{
    spm_vocabulary v;
    mica_tokenizer *tokenizer = spm_make(&v);
    const uint32_t mark = id_of("\xe2\x96\x81"), end = id_of("<|im_end|>"), tool = id_of("<tool>");
    (void)state;
    expect_ids(tokenizer, "", 0, 0, 0, NULL);
    expect_ids(tokenizer, "", 0, MICA_ENCODE_ADD, 1, (uint32_t[]){1});
    expect_ids(tokenizer, "bc", 2, MICA_ENCODE_ADD, 3, (uint32_t[]){1, mark, id_of("bc")});
    /* The text of a control token is that token only when asked for; a user's token always. */
    expect_ids(tokenizer, "b</s>b", 6, MICA_ENCODE_SPECIAL, 5,
               (uint32_t[]){mark, id_of("b"), 2, mark, id_of("b")});
    expect_ids(tokenizer, "</s>", 4, 0, 3, (uint32_t[]){mark, id_of("</"), id_of("s>")});
    expect_ids(tokenizer, "<0x41>", 6, 0, 7,
               (uint32_t[]){mark, 3 + '<', 3 + '0', 3 + 'x', 3 + '4', 3 + '1', 3 + '>'});
    expect_ids(tokenizer, "<tool>", 6, 0, 1, &tool);
    expect_ids(tokenizer, "<|im_end|>", 10, MICA_ENCODE_SPECIAL, 1, &end);
    mica_tokenizer_release(tokenizer);
}

static void invalid_utf8(void **state)
{
    spm_vocabulary v;
    mica_tokenizer *tokenizer = spm_make(&v);
    const uint32_t mark = id_of("\xe2\x96\x81");
    char text[64];
    uint64_t length = 0;
    (void)state;
    expect_ids(tokenizer,
               "b\xff\xc3"
               "bc\xe6\x97",
               7, 0, 7, (uint32_t[]){mark, id_of("b"), 3 + 0xff, 3 + 0xc3, id_of("bc"), 3 + 0xe6, 3 + 0x97});
    expect_ids(tokenizer, "\x80", 1, 0, 1, (uint32_t[]){3 + 0x80});
    /* and back: one U+FFFD for a beginning of a character, one for each byte that begins none */
    must(mica_tokenizer_decode(
        tokenizer, (uint32_t[]){3 + 0xe6, 3 + 0x97, 3 + 0xff, 3 + 0x80, id_of("b"), 3 + 0xf0, 3 + 0x9f}, 7, 0,
        text, sizeof text, &length));
    assert_int_equal(length, 13);
    assert_memory_equal(text,
                        "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                        "b\xef\xbf\xbd",
                        13);
    mica_tokenizer_release(tokenizer);
}

/* ---- decoding ------------------------------------------------------------------------------------------------------------------- */

static void streaming(void **state)
{
    spm_vocabulary v;
    mica_tokenizer *tokenizer = spm_make(&v);
    mica_detokenizer *detokenizer = NULL;
    mica_string part;
    static const struct {
        uint32_t id;
        const char *text;
    } steps[] = {{1, ""},
                 {TEXT_FIRST + 9, "a"},
                 {3 + 0xf0, ""},
                 {3 + 0x9f, ""},
                 {3 + 0x91, ""},
                 {3 + 0x8d, "\xf0\x9f\x91\x8d"},
                 {3 + 0xe6, ""},
                 {TEXT_FIRST + 1, "\xef\xbf\xbd"
                                  "a"},
                 {2, ""},
                 {TEXT_FIRST, " "},
                 {3 + 0xc3, ""}};
    (void)state;
    must(mica_detokenizer_create(tokenizer, MICA_DECODE_START, &detokenizer));
    mica_tokenizer_release(tokenizer); /* the detokenizer keeps it */
    const uint64_t blocks = mica_host_allocations();
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            must(mica_detokenizer_push(detokenizer, steps[i].id, &part));
            assert_string_equal(part.data, steps[i].text);
            assert_int_equal(part.length, strlen(steps[i].text));
        }
        refused(mica_detokenizer_push(detokenizer, SPM_COUNT, &part), MICA_ERR_INVALID_ARGUMENT, "id");
        assert_int_equal(part.length, 0);
        must(mica_detokenizer_flush(detokenizer, &part));
        assert_string_equal(part.data, "\xef\xbf\xbd");
        must(mica_detokenizer_flush(detokenizer, &part));
        assert_int_equal(part.length, 0);
    }
    assert_int_equal(mica_host_allocations(), blocks);
    mica_detokenizer_release(detokenizer);
    mica_detokenizer_release(NULL);
    assert_int_equal(mica_host_bytes(), 0);
}

static void capacities(void **state)
{
    spm_vocabulary v;
    mica_tokenizer *tokenizer = spm_make(&v);
    uint32_t ids[8] = {0};
    char text[8] = "-------";
    uint64_t count = 0, length = 0;
    (void)state;
    must(mica_tokenizer_encode(tokenizer, "b b b", 5, MICA_ENCODE_ADD, NULL, 0, &count));
    assert_int_equal(count, 7);
    must(mica_tokenizer_encode(tokenizer, "b b b", 5, MICA_ENCODE_ADD, ids, 2, &count));
    assert_int_equal(count, 7);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], id_of("\xe2\x96\x81"));
    assert_int_equal(ids[2], 0);
    ids[0] = id_of("abc");
    ids[1] = id_of("\xe2\x96\x81"
                   "a");
    must(mica_tokenizer_decode(tokenizer, ids, 2, 0, text, 4, &length));
    assert_int_equal(length, 5);
    assert_memory_equal(text, "abc ---", 7);
    ids[1] = SPM_COUNT;
    refused(mica_tokenizer_decode(tokenizer, ids, 2, 0, text, 4, &length), MICA_ERR_INVALID_ARGUMENT, "id");
    assert_int_equal(length, 0);
    refused(mica_tokenizer_encode(tokenizer, NULL, 5, 0, ids, 2, &count), MICA_ERR_INVALID_ARGUMENT, "text");
    refused(mica_tokenizer_encode(tokenizer, "b", 1, 0, NULL, 2, &count), MICA_ERR_INVALID_ARGUMENT, "ids");
    refused(mica_tokenizer_encode(tokenizer, "b", 1, 64, ids, 2, &count), MICA_ERR_INVALID_ARGUMENT, "flags");
    refused(mica_tokenizer_encode(NULL, "b", 1, 0, ids, 2, &count), MICA_ERR_INVALID_ARGUMENT, "tokenizer");
    refused(mica_tokenizer_encode(tokenizer, "b", (uint64_t)1 << 40, 0, ids, 2, &count),
            MICA_ERR_INVALID_ARGUMENT, "length");
    mica_tokenizer_release(tokenizer);
    refused(mica_tokenizer_create(NULL, &tokenizer), MICA_ERR_INVALID_ARGUMENT, "weights");
    assert_null(tokenizer);
}

/* ---- long words ---------------------------------------------------------------------------------------------------------------- */

static double seconds_of(const mica_tokenizer *tokenizer, const char *text, size_t length)
{
    struct timespec before, after;
    uint64_t count = 0;
    clock_gettime(CLOCK_MONOTONIC, &before);
    must(mica_tokenizer_encode(tokenizer, text, length, 0, NULL, 0, &count));
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(count > length / 64);
    return (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
}

/* A word of a megabyte takes seconds at most, where a quadratic search would take an hour. */
static void long_words(void **state)
{
    static const char *const names[] = {"gpt2", "llama", "unigram", "bert_uncased"};
    const size_t length = (size_t)1 << 20;
    char *text = malloc(length);
    (void)state;
    assert_non_null(text);
    for (size_t n = 0; n <= sizeof names / sizeof names[0]; n++) {
        spm_vocabulary v;
        mica_tokenizer *tokenizer = NULL;
        char path[256];
        size_t size = 0;
        if (n == 0) {
            tokenizer = spm_make(&v);
        } else {
            snprintf(path, sizeof path, "tests/model/golden/tokenizers/%s.json", names[n - 1]);
            char *json = rig_read(path, &size);
            assert_non_null(json);
            must(rig_json(json, &tokenizer));
            free(json);
        }
        test_random random = test_random_from(n);
        for (size_t i = 0; i < length; i++)
            text[i] = n == 4 && i % 50 == 0 ? ' ' : "abcthe"[test_random_below(&random, 6)];
        assert_true(seconds_of(tokenizer, text, length) < 30);
        memset(text, n == 4 ? '.' : 'a', length);
        assert_true(seconds_of(tokenizer, text, length) < 30);
        mica_tokenizer_release(tokenizer);
    }
    free(text);
    assert_int_equal(mica_host_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_score), cmocka_unit_test(facts),     cmocka_unit_test(specials),
        cmocka_unit_test(invalid_utf8),    cmocka_unit_test(streaming), cmocka_unit_test(capacities),
        cmocka_unit_test(long_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
