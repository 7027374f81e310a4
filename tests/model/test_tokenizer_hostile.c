/* test_tokenizer_hostile.c: tokenizers that are wrong: each key of another type or gone, ids out of range, merges of what is not
 * there, steps and patterns that mica does not know; a million tokens; and every allocation failing in turn. */
#include "model/tokenizer_rig.h"
#include "support/meter.h"

/* ---- GGUF: a good file with one thing wrong -------------------------------------------------------------------------------------- */

static const mica_string bpe_tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}, {"<s>", 3},
                                         {"", 0},  {"b", 1}, {"aba", 3}};
static const mica_string bpe_merges[] = {{"a b", 3}, {"ab a", 4}};
static const mica_string bad_merges[] = {{"a b", 3}, {"ab zz", 5}};
static const mica_string no_merges[] = {{"ab", 2}};
static const int32_t bpe_types[] = {1, 1, 1, 3, 1, 1, 1};
static const float bpe_scores[] = {0, -1, -2, 0, 0, 0, -3};
#define BPE_COUNT 7

static rig_file bpe_file(void)
{
    rig_file file = {0};
    rig_set(&file, "tokenizer.ggml.model", rig_text("gpt2"));
    rig_set(&file, "tokenizer.ggml.pre", rig_text("gpt-2"));
    rig_set(&file, "tokenizer.ggml.tokens", rig_array(MICA_VALUE_STRING, BPE_COUNT, bpe_tokens));
    rig_set(&file, "tokenizer.ggml.merges", rig_array(MICA_VALUE_STRING, 2, bpe_merges));
    rig_set(&file, "tokenizer.ggml.token_type", rig_array(MICA_VALUE_I32, BPE_COUNT, bpe_types));
    rig_set(&file, "tokenizer.ggml.bos_token_id", rig_u32(3));
    rig_set(&file, "tokenizer.ggml.add_bos_token", rig_bool(1));
    return file;
}

/* Empty and repeated tokens are no reason to refuse: an empty one is never found, of equal ones the first is. */
static void odd_tokens(void **state)
{
    const rig_file file = bpe_file();
    mica_tokenizer *tokenizer = NULL;
    uint32_t ids[8];
    uint64_t count = 0;
    (void)state;
    must(rig_make(&file, &tokenizer));
    must(mica_tokenizer_encode(tokenizer, "abab", 4, MICA_ENCODE_ADD, ids, 8, &count));
    assert_int_equal(count, 3);
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 2);
    assert_int_equal(ids[2], 2);
    must(mica_tokenizer_encode(tokenizer, "b\xff~b", 4, 0, ids, 8,
                               &count)); /* bytes without a token are passed over */
    assert_int_equal(count, 2);
    assert_int_equal(ids[0], 1);
    mica_tokenizer_release(tokenizer);
}

/* Every rule that has a name loads and cuts. */
static void named_rules(void **state)
{
    static const char *const names[] = {
#define RULE(name, flags, list) name,
#include "base/split_rules.def"
    };
    mica_tokenizer_info info;
    uint64_t count = 0;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rig_file file = bpe_file();
        mica_tokenizer *tokenizer = NULL;
        rig_set(&file, "tokenizer.ggml.pre", rig_text(names[i]));
        must(rig_make(&file, &tokenizer));
        must(mica_tokenizer_get_info(tokenizer, &info));
        assert_string_equal(info.rule, names[i]);
        must(mica_tokenizer_encode(tokenizer, "ab\n\n1234 ab's", 13, 0, NULL, 0, &count));
        assert_true(count >= 2);
        mica_tokenizer_release(tokenizer);
    }
}

static void wrong_keys(void **state)
{
    static const struct {
        const char *key;
        int drop;
        mica_value value;
        mica_status status;
        const char *word;
    } cases[] = {
        {"tokenizer.ggml.model", 1, {0}, MICA_ERR_NOT_FOUND, "tokenizer.ggml.model"},
        {"tokenizer.ggml.model",
         0,
         {.type = MICA_VALUE_STRING, .as.string = {"none", 4}},
         MICA_ERR_NOT_FOUND,
         "no tokenizer"},
        {"tokenizer.ggml.model",
         0,
         {.type = MICA_VALUE_STRING, .as.string = {"rwkv", 4}},
         MICA_ERR_UNSUPPORTED,
         "rwkv"},
        {"tokenizer.ggml.model",
         0,
         {.type = MICA_VALUE_U32, .as.u = 1},
         MICA_ERR_MALFORMED_FILE,
         "tokenizer.ggml.model"},
        {"tokenizer.ggml.model",
         0,
         {.type = MICA_VALUE_STRING, .as.string = {"llama", 5}},
         MICA_ERR_MALFORMED_FILE,
         "scores"},
        {"tokenizer.ggml.pre",
         0,
         {.type = MICA_VALUE_STRING, .as.string = {"nobody", 6}},
         MICA_ERR_UNSUPPORTED,
         "nobody"},
        {"tokenizer.ggml.pre", 0, {.type = MICA_VALUE_BOOL}, MICA_ERR_MALFORMED_FILE, "tokenizer.ggml.pre"},
        {"tokenizer.ggml.tokens", 1, {0}, MICA_ERR_MALFORMED_FILE, "tokenizer.ggml.tokens"},
        {"tokenizer.ggml.tokens",
         0,
         {.type = MICA_VALUE_U32},
         MICA_ERR_MALFORMED_FILE,
         "tokenizer.ggml.tokens"},
        {"tokenizer.ggml.tokens",
         0,
         {.type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_STRING, .count = 0, .as.items = bpe_tokens},
         MICA_ERR_MALFORMED_FILE,
         "tokenizer.ggml.tokens"},
        {"tokenizer.ggml.tokens",
         0,
         {.type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_STRING, .count = 3, .as.items = bpe_tokens},
         MICA_ERR_MALFORMED_FILE,
         "token_type"},
        {"tokenizer.ggml.token_type",
         0,
         {.type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_F32, .count = BPE_COUNT, .as.items = bpe_scores},
         MICA_ERR_MALFORMED_FILE,
         "token_type"},
        {"tokenizer.ggml.scores",
         0,
         {.type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_F32, .count = 2, .as.items = bpe_scores},
         MICA_ERR_MALFORMED_FILE,
         "scores"},
        {"tokenizer.ggml.merges", 1, {0}, MICA_ERR_MALFORMED_FILE, "merges"},
        {"tokenizer.ggml.merges",
         0,
         {.type = MICA_VALUE_STRING, .as.string = {"a b", 3}},
         MICA_ERR_MALFORMED_FILE,
         "merges"},
        {"tokenizer.ggml.merges",
         0,
         {.type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_STRING, .count = 2, .as.items = bad_merges},
         MICA_ERR_MALFORMED_FILE,
         "merge 1"},
        {"tokenizer.ggml.merges",
         0,
         {.type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_STRING, .count = 1, .as.items = no_merges},
         MICA_ERR_MALFORMED_FILE,
         "merge 0"},
        {"tokenizer.ggml.bos_token_id",
         0,
         {.type = MICA_VALUE_U32, .as.u = BPE_COUNT},
         MICA_ERR_MALFORMED_FILE,
         "bos_token_id"},
        {"tokenizer.ggml.bos_token_id",
         0,
         {.type = MICA_VALUE_I32, .as.i = -7},
         MICA_ERR_MALFORMED_FILE,
         "bos_token_id"},
        {"tokenizer.ggml.bos_token_id",
         0,
         {.type = MICA_VALUE_STRING, .as.string = {"3", 1}},
         MICA_ERR_MALFORMED_FILE,
         "bos_token_id"},
        {"tokenizer.ggml.eot_token_id",
         0,
         {.type = MICA_VALUE_U64, .as.u = UINT64_MAX},
         MICA_ERR_MALFORMED_FILE,
         "eot_token_id"},
        {"tokenizer.ggml.add_bos_token",
         0,
         {.type = MICA_VALUE_U32, .as.u = 1},
         MICA_ERR_MALFORMED_FILE,
         "add_bos_token"},
        {"tokenizer.ggml.add_space_prefix",
         0,
         {.type = MICA_VALUE_STRING, .as.string = {"", 0}},
         MICA_ERR_MALFORMED_FILE,
         "add_space_prefix"},
        {"tokenizer.huggingface.json", 0, {.type = MICA_VALUE_U32}, MICA_ERR_MALFORMED_FILE, "huggingface"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig_file file = bpe_file();
        mica_tokenizer *tokenizer = NULL;
        if (cases[i].drop)
            rig_drop(&file, cases[i].key);
        else
            rig_set(&file, cases[i].key, cases[i].value);
        refused(rig_make(&file, &tokenizer), cases[i].status, cases[i].word);
        assert_null(tokenizer);
        assert_int_equal(mica_host_bytes(), 0);
    }
}

static void wrong_maps(void **state)
{
    static const struct {
        unsigned char bytes[16];
        uint64_t count;
    } maps[] = {{{1, 2}, 2},
                {{0xff, 0xff, 0xff, 0xff, 0}, 5},
                {{4, 0, 0, 0, 1, 2, 3, 4}, 8},
                {{4, 0, 0, 0, 1, 2, 3, 4, 'x'}, 9},
                {{3, 0, 0, 0, 1, 2, 3, 0}, 8}};
    (void)state;
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        rig_file file = bpe_file();
        mica_tokenizer *tokenizer = NULL;
        rig_set(&file, "tokenizer.ggml.model", rig_text("t5"));
        rig_set(&file, "tokenizer.ggml.scores", rig_array(MICA_VALUE_F32, BPE_COUNT, bpe_scores));
        rig_set(&file, "tokenizer.ggml.precompiled_charsmap",
                rig_array(MICA_VALUE_U8, maps[i].count, maps[i].bytes));
        refused(rig_make(&file, &tokenizer), MICA_ERR_MALFORMED_FILE, "precompiled_charsmap");
    }
}

/* ---- tokenizer.json ------------------------------------------------------------------------------------------------------------------ */

#define BPE(more) \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}" more "}"

static void wrong_json(void **state)
{
    static const struct {
        const char *json;
        mica_status status;
        const char *word;
    } cases[] = {
        {"", MICA_ERR_MALFORMED_FILE, "tokenizer.json"},
        {"[1]", MICA_ERR_MALFORMED_FILE, "model"},
        {"{\"model\":7}", MICA_ERR_MALFORMED_FILE, "model"},
        {"{\"model\":{\"type\":\"Magic\",\"vocab\":{}}}", MICA_ERR_UNSUPPORTED, "Magic"},
        {"{\"model\":{\"type\":7}}", MICA_ERR_MALFORMED_FILE, "type"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":[]}}", MICA_ERR_MALFORMED_FILE, "vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", MICA_ERR_MALFORMED_FILE, "empty"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", MICA_ERR_MALFORMED_FILE,
         "vocabulary"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4000000000},\"merges\":[]}}", MICA_ERR_MALFORMED_FILE,
         "vocabulary"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", MICA_ERR_MALFORMED_FILE,
         "id 1"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1}}}", MICA_ERR_MALFORMED_FILE, "merges"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a c\"]}}", MICA_ERR_MALFORMED_FILE,
         "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[[\"a\"]]}}", MICA_ERR_MALFORMED_FILE,
         "merge"},
        {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{\"a\":1},\"merges\":[]}}",
         MICA_ERR_UNSUPPORTED, "dropout"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", MICA_ERR_MALFORMED_FILE, "entry 0"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":9,\"vocab\":[[\"a\",0]]}}", MICA_ERR_MALFORMED_FILE,
         "unk_id"},
        {"{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"x\",\"vocab\":{\"a\":0}}}",
         MICA_ERR_MALFORMED_FILE, "unk_token"},
        {BPE(",\"normalizer\":{\"type\":\"Rot13\"}"), MICA_ERR_UNSUPPORTED, "Rot13"},
        {BPE(",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"X\"}]}"),
         MICA_ERR_UNSUPPORTED, "\"X\""},
        {BPE(",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!\"}"),
         MICA_ERR_MALFORMED_FILE, "base64"},
        {BPE(",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"), MICA_ERR_UNSUPPORTED, "UnicodeScripts"},
        {BPE(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{}}"), MICA_ERR_MALFORMED_FILE, "pattern"},
        {BPE(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":"
             "\"Isolated\"}"),
         MICA_ERR_MALFORMED_FILE, "pattern"},
        {BPE(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&[^b]]\"},\"behavior\":"
             "\"Isolated\"}"),
         MICA_ERR_UNSUPPORTED, "&&"},
        {BPE(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a[b]]\"},\"behavior\":"
             "\"Isolated\"}"),
         MICA_ERR_UNSUPPORTED, "class"},
        {BPE(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\C\"},\"behavior\":"
             "\"Isolated\"}"),
         MICA_ERR_MALFORMED_FILE, "pattern"},
        {BPE(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Eaten\"}"),
         MICA_ERR_UNSUPPORTED, "Eaten"},
        {BPE(",\"decoder\":{\"type\":\"CTC\"}"), MICA_ERR_UNSUPPORTED, "CTC"},
        {BPE(",\"post_processor\":{\"type\":\"Odd\"}"), MICA_ERR_UNSUPPORTED, "Odd"},
        {BPE(",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"b\",77]}"),
         MICA_ERR_MALFORMED_FILE, "post_processor"},
        {BPE(",\"added_tokens\":[{\"content\":\"x\"}]"), MICA_ERR_MALFORMED_FILE, "id"},
        {BPE(",\"added_tokens\":[{\"id\":3,\"content\":7}]"), MICA_ERR_MALFORMED_FILE, "content"},
        {BPE(",\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"special\":1}]"), MICA_ERR_MALFORMED_FILE,
         "special"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mica_tokenizer *tokenizer = NULL;
        refused(rig_json(cases[i].json, &tokenizer), cases[i].status, cases[i].word);
        assert_null(tokenizer);
        assert_int_equal(mica_host_bytes(), 0);
    }
}

/* A pattern that never comes to an end on some texts ends with a status, and the tokenizer works on. */
static void endless_pattern(void **state)
{
    mica_tokenizer *tokenizer = NULL;
    char text[4096];
    uint64_t count = 0;
    (void)state;
    must(rig_json(
        BPE(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a|aa|b*)+c(?<=x)|((a+)+)+$z\"},"
            "\"behavior\":\"Isolated\"}"),
        &tokenizer));
    memset(text, 'a', sizeof text);
    refused(mica_tokenizer_encode(tokenizer, text, sizeof text, 0, NULL, 0, &count), MICA_ERR_BUDGET,
            "steps");
    must(mica_tokenizer_encode(tokenizer, "ab", 2, 0, NULL, 0, &count));
    assert_int_equal(count, 1);
    mica_tokenizer_release(tokenizer);
}

/* A pattern whose every search ends, but at a price: what counts is the whole text. */
static void dear_pattern(void **state)
{
    const mica_limits few = {.steps = 0, .pattern_steps = 20000000};
    mica_tokenizer *tokenizer = NULL;
    mica_work *work = NULL;
    char text[1000];
    uint64_t count = 0, steps = 0;
    (void)state;
    must(rig_json(BPE(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:a|a){12}x|a\"},"
                      "\"behavior\":\"Isolated\"}"),
                  &tokenizer));
    memset(text, 'a', sizeof text);
    must(mica_work_create(&few, &work));
    mica_work_use(work);
    must(mica_tokenizer_encode(tokenizer, text, 100, 0, NULL, 0, &count)); /* each is far from the limit */
    refused(mica_tokenizer_encode(tokenizer, text, sizeof text, 0, NULL, 0, &count), MICA_ERR_BUDGET,
            "tokenizer_encode: a pattern of the tokenizer takes more than");
    mica_work_use(NULL);
    must(mica_work_spent(work, &steps, NULL));
    assert_true(steps < 2 * few.pattern_steps);
    mica_work_release(work);
    mica_tokenizer_release(tokenizer);
}

/* Sizes that a file states are held against what is in it, and against the limits of the work. */
static void stated_sizes(void **state)
{
    static const char gap[] = "{\"added_tokens\":[{\"id\":16777215,\"content\":\"x\"}],\"model\":{\"type\":"
                              "\"BPE\",\"vocab\":{\"a\":0,"
                              "\"b\":1},\"merges\":[]}}";
    static const char small_gap[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1000},\"merges\":[]}}";
    const mica_limits few = {.vocabulary = 1000}, brief = {.token_bytes = 3};
    mica_tokenizer *tokenizer = NULL;
    mica_work *work = NULL;
    (void)state;
    refused(rig_json(gap, &tokenizer), MICA_ERR_MALFORMED_FILE, "16777215");
    must(rig_json(small_gap, &tokenizer));
    mica_tokenizer_release(tokenizer);
    must(mica_work_create(&few, &work));
    mica_work_use(work);
    refused(rig_json(small_gap, &tokenizer), MICA_ERR_BUDGET, "tokenizer_create: 1001 tokens");
    mica_work_use(NULL);
    mica_work_release(work);
    must(mica_work_create(&brief, &work));
    mica_work_use(work);
    refused(rig_json("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"abcd\":0},\"merges\":[]}}", &tokenizer),
            MICA_ERR_BUDGET, "4 bytes in the text of a token");
    mica_work_use(NULL);
    mica_work_release(work);
}

/* Steps that make a text longer and longer end with a status too. */
static void growing_text(void **state)
{
    static const char blow[] =
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaaaaaaaa\"}";
    char json[2048];
    mica_tokenizer *tokenizer = NULL;
    uint64_t count = 0;
    (void)state;
    snprintf(json, sizeof json,
             BPE(",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s,%s,%s,%s,%s,%s,%s,%s]}"), blow,
             blow, blow, blow, blow, blow, blow, blow);
    must(rig_json(json, &tokenizer));
    refused(mica_tokenizer_encode(tokenizer, "a", 1, 0, NULL, 0, &count), MICA_ERR_BUDGET, "longer");
    must(mica_tokenizer_encode(tokenizer, "b", 1, 0, NULL, 0, &count));
    mica_tokenizer_release(tokenizer);
}

/* ---- many tokens ---------------------------------------------------------------------------------------------------------------------- */

#define MANY 1000000

static void many_tokens(void **state)
{
    mica_string *tokens = calloc(MANY, sizeof *tokens);
    float *scores = calloc(MANY, sizeof *scores);
    char *texts = malloc((size_t)MANY * 8);
    rig_file file = {0};
    mica_tokenizer *tokenizer = NULL;
    (void)state;
    assert_true(tokens != NULL && scores != NULL && texts != NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        char *text = texts + (size_t)i * 8;
        tokens[i] = (mica_string){text, (uint64_t)snprintf(text, 8, "%u", i)};
    }
    rig_set(&file, "tokenizer.ggml.model", rig_text("llama"));
    rig_set(&file, "tokenizer.ggml.tokens", rig_array(MICA_VALUE_STRING, MANY, tokens));
    rig_set(&file, "tokenizer.ggml.scores", rig_array(MICA_VALUE_F32, MANY, scores));
    must(rig_make(&file, &tokenizer));
    assert_int_equal(mica_tokenizer_find(tokenizer, "777777", 6), 777777);
    mica_tokenizer_release(tokenizer);
    free(tokens);
    free(scores);
    free(texts);
}

/* ---- no memory -------------------------------------------------------------------------------------------------------------------------- */

static mica_status use_tokenizer(const char *path)
{
    static const char text[] = "The tokenizer's 12 Äpfel \xff <s> 日本語 e\xcc\x81 [MASK]";
    mica_tokenizer *tokenizer = NULL;
    uint32_t ids[256];
    char out[2048];
    uint64_t count = 0, length = 0;
    mica_status status = rig_open(path, &tokenizer);
    if (status == MICA_OK)
        status = mica_tokenizer_encode(tokenizer, text, sizeof text - 1,
                                       MICA_ENCODE_ADD | MICA_ENCODE_SPECIAL, ids, 256, &count);
    if (status == MICA_OK)
        status = mica_tokenizer_decode(tokenizer, ids, count, MICA_DECODE_START, out, sizeof out, &length);
    mica_tokenizer_release(tokenizer);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    static const char *const names[] = {"llama3",       "qwen",  "llama", "charsmap",
                                        "bert_uncased", "steps", "(gguf)"};
    test_meter meter = {0};
    char folder[256], path[300], golden[256];
    (void)state;
    assert_int_equal(test_folder_make(folder, sizeof folder, "tokenizer"), 0);
    snprintf(path, sizeof path, "%s/a.gguf", folder);
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        rig_file file = bpe_file();
        size_t size = 0;
        snprintf(golden, sizeof golden, "tests/model/golden/tokenizers/%s.json", names[n]);
        char *json = rig_read(golden, &size);
        if (json != NULL)
            rig_set(&file, "tokenizer.huggingface.json", rig_text(json));
        rig_drop(&file, "tokenizer.ggml.bos_token_id");
        rig_write(&file, path);
        free(json);
        must(test_meter_set(&meter));
        test_meter_allow(&meter, UINT64_MAX);
        must(use_tokenizer(path));
        const uint64_t all = atomic_load(&meter.calls);
        assert_true(all > 20);
        for (uint64_t i = 0; i < all; i++) {
            test_meter_allow(&meter, i);
            const mica_status status = use_tokenizer(path);
            if (status != MICA_OK) /* machine code for a pattern may be done without */
                assert_int_equal(status, MICA_ERR_OUT_OF_MEMORY);
            assert_int_equal(mica_host_allocations(), 0);
        }
        must(mica_set_allocator(NULL));
    }
    assert_int_equal(test_folder_remove(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_tokens),
        cmocka_unit_test(named_rules),
        cmocka_unit_test(wrong_keys),
        cmocka_unit_test(wrong_maps),
        cmocka_unit_test(wrong_json),
        cmocka_unit_test(endless_pattern),
        cmocka_unit_test(dear_pattern),
        cmocka_unit_test(stated_sizes),
        cmocka_unit_test(growing_text),
        cmocka_unit_test(many_tokens),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
