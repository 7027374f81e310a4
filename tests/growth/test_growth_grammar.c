/* test_growth_grammar.c - how the cost of schemas, grammars, their masks and samplers grows with each dimension of what they
 * are made of; with the argument `long`, on larger sizes and against the clock. */
#include "growth/growth_text.h"

#include "mica/host.h"
#include "mica/sample.h"
#include "grammar/vocabulary.h"
#include "base/work.h"
#include "sample/sample.h"

static const growth_pattern *current;

/* Tokens of single bytes and an end, made outside of what is measured. */
static mica__vocabulary *bytes_of_text;

static void make_bytes(void)
{
    char bytes[256];
    uint32_t offsets[258];
    uint8_t ends[257] = {0};
    for (uint32_t i = 0; i <= 256; i++)
        offsets[i] = i;
    for (uint32_t i = 0; i < 256; i++)
        bytes[i] = (char)i;
    offsets[257] = 256;
    ends[256] = 1;
    must(mica__vocabulary_create(257, bytes, offsets, ends, &bytes_of_text));
}

/* Printed, begun, the first mask, and eight bytes further, always the lowest that is admitted, with their masks. */
static mica_status use(mica_grammar *grammar)
{
    mica_grammar_state *state = NULL;
    uint32_t mask[9];
    char *text = NULL;
    uint64_t length;
    mica_status status = mica_grammar_print(grammar, &text, &length);
    if (status == MICA_OK)
        status = mica__grammar_begin(grammar, bytes_of_text, &state);
    for (int i = 0; i < 8 && status == MICA_OK; i++) {
        uint32_t id = 0;
        status = mica_grammar_mask(state, mask, 9);
        while (id < 256 && (mask[id / 32] >> id % 32 & 1) == 0)
            id++;
        if (status != MICA_OK || id == 256)
            break;
        status = mica_grammar_accept(state, id);
    }
    mica_text_free(text);
    mica_grammar_state_release(state);
    return status;
}

static mica_status run_schema(uint64_t size)
{
    growth_text text = growth_write(current, size);
    mica_grammar *grammar = NULL;
    mica_status status = mica_grammar_from_schema(text.data, text.length, &grammar);
    free(text.data);
    if (status == MICA_OK)
        status = use(grammar);
    mica_grammar_release(grammar);
    return status;
}

static mica_status run_grammar(uint64_t size)
{
    growth_text text = growth_write(current, size);
    mica_grammar *grammar = NULL;
    mica_status status = mica_grammar_create(text.data, text.length, NULL, &grammar);
    free(text.data);
    if (status == MICA_OK)
        status = use(grammar);
    mica_grammar_release(grammar);
    return status;
}

static void schemas(void **state)
{
    (void)state;
    static const growth_pattern rows[] = {
        {"schema: enum values", 512, 4, "{\"enum\":[", "\"value %llu\"", ",", "]}"},
        {"schema: enum values, numbers", 512, 4, "{\"enum\":[", "%llu", ",", "]}"},
        {"schema: enum values, all equal", 512, 4, "{\"enum\":[", "\"a\"", ",", "]}"},
        {"schema: enum values, twice", 512, 4, "{\"allOf\":[{\"enum\":[0,2]},{\"enum\":[", "%llu", ",",
         "]}]}"},
        {"schema: length of a constant", 512, 4, "{\"const\":\"", "a\\n", "", "\"}"},
        {"schema: size of a constant", 512, 4, "{\"const\":[", "{\"a\":1}", ",", "]}"},
        {"schema: required", 512, 4, "{\"required\":[", "\"name%llu\"", ",", "]}"},
        {"schema: required, all equal", 512, 4, "{\"required\":[", "\"a\"", ",", "]}"},
        {"schema: properties", 256, 4, "{\"properties\":{", "\"name%llu\":{\"type\":\"integer\"}", ",", "}}"},
        {"schema: properties, and others", 256, 4,
         "{\"additionalProperties\":{\"type\":\"null\"},\"properties\":{", "\"%llu\":{}", ",", "}}"},
        {"schema: properties that begin alike", 128, 4, "{\"properties\":{",
         "\"a rather long beginning of a name, the same for all of them %llu\":{}", ",", "}}"},
        {"schema: length of a name", 512, 4, "{\"additionalProperties\":true,\"properties\":{\"", "ab", "",
         "\":{}}}"},
        {"schema: anyOf, constants", 256, 4, "{\"anyOf\":[", "{\"const\":\"value %llu\"}", ",", "]}"},
        {"schema: anyOf, objects", 128, 4, "{\"anyOf\":[",
         "{\"type\":\"object\",\"properties\":{\"k%llu\":{}},\"required\":[\"k%llu\"]}", ",", "]}"},
        {"schema: oneOf, constants", 256, 4, "{\"oneOf\":[", "{\"const\":\"value %llu\"}", ",", "]}"},
        {"schema: oneOf, objects", 128, 4, "{\"oneOf\":[",
         "{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":%llu}},\"required\":[\"kind\"]}", ",",
         "]}"},
        {"schema: oneOf of two, enum values", 256, 4, "{\"oneOf\":[{\"const\":-1},{\"enum\":[", "%llu", ",",
         "]}]}"},
        {"schema: oneOf of two, properties", 128, 4,
         "{\"oneOf\":[{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"a\":{}},"
         "\"required\":[\"a\"]},"
         "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"k0\"],\"properties\":{",
         "\"k%llu\":{}", ",", "}}]}"},
        {"schema: allOf", 512, 4, "{\"allOf\":[", "{\"minimum\":%llu}", ",", "]}"},
        {"schema: allOf of properties", 128, 4, "{\"allOf\":[", "{\"properties\":{\"k%llu\":{}}}", ",", "]}"},
        {"schema: allOf of required", 128, 4, "{\"allOf\":[", "{\"required\":[\"k%llu\",\"a\"]}", ",", "]}"},
        {"schema: references", 256, 4, "{\"$defs\":{\"d\":{\"items\":{}}},\"properties\":{",
         "\"k%llu\":{\"$ref\":\"#/$defs/d\"}", ",", "}}"},
        {"schema: references that go by number", 256, 4, "{\"$defs\":{\"d\":[{}]},\"prefixItems\":[",
         "{\"$ref\":\"#/prefixItems/%llu/const\",\"const\":{\"type\":\"array\"}}", ",", "]}"},
        {"schema: definitions that nothing asks for", 512, 4, "{\"type\":\"null\",\"$defs\":{",
         "\"d%llu\":{\"items\":{}}", ",", "}}"},
        {"schema: length of a description", 512, 4, "{\"type\":\"null\",\"description\":\"", "word ", "",
         "\"}"},
        {"schema: places", 256, 4, "{\"prefixItems\":[", "{\"const\":%llu}", ",", "]}"},
        {"schema: length of a pattern", 256, 4, "{\"type\":\"string\",\"pattern\":\"^", "a[bc]+\\\\d", "",
         "$\"}"},
        {"schema: alternatives of a pattern", 256, 4, "{\"type\":\"string\",\"pattern\":\"^(", "a%llu", "|",
         ")$\"}"},
        {"schema: ranges of a pattern's class", 16, 3, "{\"type\":\"string\",\"pattern\":\"[",
         "\\\\u4e00-\\\\u9fff", "", "]\"}"},
        {"schema: patterns", 128, 4, "{\"anyOf\":[", "{\"type\":\"string\",\"pattern\":\"^a%llu$\"}", ",",
         "]}"},
    };
    growth_all(rows, sizeof rows / sizeof *rows, &current, run_schema);
}

/* ---- schemas whose pieces name each other --------------------------------------------------------------- */

static mica_status run_chain(uint64_t size)
{
    growth_text text = {0};
    mica_grammar *grammar = NULL;
    const int twice = strstr(current->name, "twice") != NULL, all = strstr(current->name, "allOf") != NULL;
    growth_put(&text, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (uint64_t i = 0; i < size; i++) {
        const unsigned long long next = i + 1;
        if (twice)
            growth_put(&text,
                       "\"d%llu\":{\"allOf\":[{\"$ref\":\"#/$defs/d%llu\"},{\"$ref\":\"#/$defs/d%llu\"}]},",
                       next - 1, next, next);
        else if (all)
            growth_put(&text, "\"d%llu\":{\"allOf\":[{\"$ref\":\"#/$defs/d%llu\"}]},", next - 1, next);
        else if (strstr(current->name, "properties") != NULL)
            growth_put(&text, "\"d%llu\":{\"properties\":{\"a\":{\"$ref\":\"#/$defs/d%llu\"}}},", next - 1,
                       next);
        else
            growth_put(&text, "\"d%llu\":{\"$ref\":\"#/$defs/d%llu\"},", next - 1, next);
    }
    growth_put(&text, "\"d%llu\":{\"type\":\"null\"}}}", (unsigned long long)size);
    mica_status status = mica_grammar_from_schema(text.data, text.length, &grammar);
    free(text.data);
    if (status == MICA_OK)
        status = use(grammar);
    mica_grammar_release(grammar);
    return status;
}

static void chains(void **state)
{
    (void)state;
    static const growth_pattern rows[] = {
        {.name = "schema: a chain of references", .first = 128, .doublings = 4},
        {.name = "schema: a chain of allOf", .first = 128, .doublings = 4},
        {.name = "schema: a chain, each asked for twice", .first = 128, .doublings = 4},
        {.name = "schema: a chain of properties", .first = 128, .doublings = 4},
    };
    growth_all(rows, sizeof rows / sizeof *rows, &current, run_chain);
}

/* ---- grammars ------------------------------------------------------------------------------------------- */

static void grammars(void **state)
{
    (void)state;
    static const growth_pattern rows[] = {
        {"grammar: rules", 256, 4, "root ::= \"a\"\n", "r%llu ::= \"a\" root\n", "", ""},
        {"grammar: groups, then rules", 256, 4, "root ::= \"a\"\n",
         "g%llu ::= (\"a\")? (\"b\")*\nr%llu ::= g%llu\n", "", ""},
        {"grammar: alternatives", 256, 4, "root ::= ", "\"value %llu\"", " | ", "\n"},
        {"grammar: alternatives that begin alike", 128, 4, "root ::= ", "\"the same beginning %llu\"", " | ",
         "\n"},
        {"grammar: length of a literal", 256, 4, "root ::= \"", "abc", "", "\"\n"},
        {"grammar: length of a sequence", 256, 4, "root ::= ", "[ab] x{2}", " ", "\nx ::= \"y\"\n"},
        {"grammar: what may be left out", 128, 4, "root ::= ", "(\"a\" | \"b\")?", " ", " \"c\"\n"},
        {"grammar: classes", 256, 4, "root ::= ", "[a-f0-9]", " ", "\n"},
        {"grammar: characters of a class", 256, 4, "root ::= [", "ab", "", "]\n"},
        {"grammar: ranges of a class", 256, 4, "root ::= [", "\\u4e00-\\u4e01\\u5000", "", "]\n"},
        {"grammar: length of a name", 256, 4, "root ::= \"a\"\n", "name", "", " ::= \"b\"\n"},
        {"grammar: length of a comment", 512, 4, "root ::= \"a\" #", "word ", "", "\n"},
        {"grammar: blank lines", 512, 4, "root ::= \"a\"\n", "\n", "", ""},
    };
    growth_all(rows, sizeof rows / sizeof *rows, &current, run_grammar);
}

/* A chain of rules that each begin with the next, and groups inside each other. */
static mica_status run_nested(uint64_t size)
{
    growth_text text = {0};
    mica_grammar *grammar = NULL;
    const int groups = strstr(current->name, "groups") != NULL;
    growth_put(&text, groups ? "root ::= " : "root ::= r0\n");
    for (uint64_t i = 0; i < size; i++)
        growth_put(&text, groups ? "(\"a\" | " : "r%llu ::= r%llu | \"a\"\n", (unsigned long long)i,
                   (unsigned long long)i + 1);
    if (groups)
        growth_put(&text, "\"b\"");
    else
        growth_put(&text, "r%llu ::= \"b\"\n", (unsigned long long)size);
    for (uint64_t i = 0; i < size && groups; i++)
        growth_put(&text, ")");
    growth_put(&text, "\n");
    mica_status status = mica_grammar_create(text.data, text.length, NULL, &grammar);
    free(text.data);
    if (status == MICA_OK)
        status = use(grammar);
    mica_grammar_release(grammar);
    return status;
}

static void nested(void **state)
{
    (void)state;
    static const growth_pattern rows[] = {
        {.name = "grammar: groups inside each other", .first = 24, .doublings = 3},
        {.name = "grammar: rules that begin with the next", .first = 128, .doublings = 4},
    };
    growth_all(rows, 1, &current, run_nested);
    growth_all(rows + 1, 1, &current, run_nested);
}

/* ---- vocabularies, texts, samplers ---------------------------------------------------------------------- */

/* Tokens of letters and digits, `length` bytes long, that begin alike in many ways. */
static mica_status make_vocabulary(uint64_t count, uint32_t length, mica__vocabulary **out)
{
    char *bytes = malloc(count * length);
    uint32_t *offsets = malloc((count + 1) * sizeof *offsets);
    uint64_t random = 88172645463325252u;
    assert_true(bytes != NULL && offsets != NULL);
    for (uint64_t i = 0; i < count; i++) {
        offsets[i] = (uint32_t)(i * length);
        for (uint32_t b = 0; b < length; b++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes[i * length + b] = "ab\"{}: 1,"[random % 9];
        }
    }
    offsets[count] = (uint32_t)(count * length);
    const mica_status status = mica__vocabulary_create((uint32_t)count, bytes, offsets, NULL, out);
    free(bytes);
    free(offsets);
    return status;
}

/* Outside of a call nothing is counted: the calls that count are those of grammar_begin and grammar_mask, so tokens are made
 * inside of one of a test's own. */
static mica_status run_vocabulary(uint64_t size)
{
    static const char gbnf[] = "root ::= \"{\" ([^\"]* | \"\\\"\" [a-z]* \"\\\"\")* \"}\"";
    const int long_tokens = strstr(current->name, "length") != NULL;
    mica__vocabulary *vocabulary = NULL;
    mica_grammar_state *grammar_state = NULL;
    mica_grammar *grammar = NULL;
    uint32_t *mask = calloc(size / 32 + 2, sizeof *mask);
    mica__call call;
    assert_non_null(mask);
    mica_status status = mica_grammar_create(gbnf, sizeof gbnf - 1, NULL, &grammar);
    mica__call_begin(&call, "vocabulary");
    if (status == MICA_OK)
        status = make_vocabulary(long_tokens ? 64 : size, long_tokens ? (uint32_t)size : 6, &vocabulary);
    if (status == MICA_OK)
        status = mica__grammar_begin(grammar, vocabulary, &grammar_state);
    status = mica__call_end(&call, status);
    if (status == MICA_OK)
        status = mica_grammar_mask(grammar_state, mask, size / 32 + 2);
    free(mask);
    mica_grammar_state_release(grammar_state);
    mica_grammar_release(grammar);
    mica__vocabulary_release(vocabulary);
    return status;
}

/* A text of `size` bytes, byte by byte with a mask after each. */
static mica_status run_text(uint64_t size)
{
    static const char schema[] = "{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}";
    mica_grammar_state *grammar_state = NULL;
    mica_grammar *grammar = NULL;
    uint32_t mask[9];
    mica_status status = mica_grammar_from_schema(schema, sizeof schema - 1, &grammar);
    if (status == MICA_OK)
        status = mica__grammar_begin(grammar, bytes_of_text, &grammar_state);
    for (uint64_t i = 0; i < size && status == MICA_OK; i++) {
        status = mica_grammar_mask(grammar_state, mask, 9);
        if (status == MICA_OK)
            status = mica_grammar_accept(grammar_state, i == 0 ? '[' : i % 2 == 1 ? '1' : ',');
    }
    mica_grammar_state_release(grammar_state);
    mica_grammar_release(grammar);
    return status;
}

static mica_status run_breakers(uint64_t size)
{
    const int length = strstr(current->name, "length") != NULL;
    const uint32_t count = length ? 4 : (uint32_t)size;
    char **texts = calloc(count, sizeof *texts);
    mica__breakers breakers = {0};
    mica__call call;
    uint32_t node = 0;
    assert_non_null(texts);
    for (uint32_t i = 0; i < count; i++) {
        texts[i] = calloc(1, size + 32);
        assert_non_null(texts[i]);
        if (length)
            memset(texts[i], 'a', (size_t)size);
        snprintf(texts[i] + (length ? size : 0), 32, "%u", i);
    }
    mica__call_begin(&call, "breakers");
    mica_status status = mica__breakers_make(&breakers, (const char *const *)texts, count);
    if (status == MICA_OK) {
        char *text = calloc(1, size + 1);
        assert_non_null(text);
        memset(text, 'a', (size_t)size);
        (void)mica__breakers_read(&breakers, (mica_string){text, size}, &node);
        free(text);
    }
    status = mica__call_end(&call, status);
    mica__breakers_free(&breakers);
    for (uint32_t i = 0; i < count; i++)
        free(texts[i]);
    free(texts);
    return status;
}

static void others(void **state)
{
    (void)state;
    static const growth_pattern tokens[] = {
        {.name = "vocabulary: tokens", .first = 1024, .doublings = 4},
        {.name = "vocabulary: length of tokens", .first = 32, .doublings = 4},
    };
    static const growth_pattern texts[] = {{.name = "masks: length of a text", .first = 256, .doublings = 4}};
    static const growth_pattern breakers[] = {
        {.name = "sampler: breakers", .first = 32, .doublings = 4},
        {.name = "sampler: length of breakers", .first = 16, .doublings = 3},
    };
    growth_all(tokens, 2, &current, run_vocabulary);
    growth_all(texts, 1, &current, run_text);
    growth_all(breakers, 2, &current, run_breakers);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas), cmocka_unit_test(chains), cmocka_unit_test(grammars),
        cmocka_unit_test(nested),  cmocka_unit_test(others),
    };
    growth_long = count > 1 && strcmp(arguments[1], "long") == 0;
    make_bytes();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mica__vocabulary_release(bytes_of_text);
    return failed;
}
