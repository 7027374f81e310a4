/* test_json.c: the JSON reader and writer: what is accepted, what is refused and how it is said, limits,
 * values, every cut of a document, every allocation failing in turn. */
#define _POSIX_C_SOURCE 200809L
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/json/json.h"
#include "mica/host.h"
#include "support/json_text.h"
#include "support/meter.h"

static mica_status parse(const char *text, mica__json **out_json)
{
    return mica__json_parse(text, strlen(text), NULL, out_json);
}

static mica__json *parse_ok(const char *text)
{
    mica__json *json = NULL;
    if (parse(text, &json) != MICA_OK)
        fail_msg("%s: refused: %s", text, mica_status_message());
    return json;
}

static void expect_refused(const char *text, size_t size, mica_status code, const char *sentence_part)
{
    mica__json *json = (mica__json *)-1;
    const mica_status status = mica__json_parse(text, size, NULL, &json);
    if (status != code)
        fail_msg("%s: got %s, expected %s", text, mica_status_name(status), mica_status_name(code));
    if (json != NULL)
        fail_msg("%s: the output is not NULL", text);
    if (strstr(mica_status_message(), sentence_part) == NULL)
        fail_msg("%s: the sentence is \"%s\", expected \"%s\" in it", text, mica_status_message(),
                 sentence_part);
    assert_int_equal(mica_host_bytes(), 0);
}

static void accepts(void **state)
{
    static const char *const texts[] = {
        "null",
        " true ",
        "\tfalse\r\n",
        "0",
        "-0",
        "1e5",
        "1E+5",
        "1e-5",
        "0.5",
        "-12.25e2",
        "\"\"",
        "[]",
        "{}",
        "[ ]",
        "{ }",
        "[1,2]",
        "[[],{}]",
        "{\"a\":1}",
        "{\"a\" : [ 1 , {\"b\":null} ] }",
        "{\"\":0,\"a\":1,\"A\":2,\"a\\u0000\":3}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"",
        "\"\\ud83d\\ude00\"",
        "\"\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"",
        "[{\"a\":1},{\"a\":1}]",
        "18446744073709551615",
        "1e-400",
        "123456789012345678901234567890",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        mica__json_release(parse_ok(texts[i]));
    assert_int_equal(mica_host_bytes(), 0);
}

static void refuses(void **state)
{
    static const struct {
        const char *text, *sentence;
    } rows[] = {
        {"", "byte 0: the text ends"},
        {"  ", "byte 2: the text ends"},
        {"nul", "byte 0: a value is expected"},
        {"True", "a value is expected"},
        {"nulll", "byte 4: nothing is expected"},
        {"1 2", "byte 2: nothing is expected"},
        {"[1,]", "byte 3: a value is expected"},
        {"[,1]", "a value is expected"},
        {"[1 2]", "byte 3: a comma or ] is expected"},
        {"[1}", "a comma or ] is expected"},
        {"[", "a value is expected"},
        {"]", "a value is expected"},
        {"{\"a\":1,}", "byte 7: a key in quotes"},
        {"{a:1}", "a key in quotes"},
        {"{1:1}", "a key in quotes"},
        {"{\"a\"}", "a colon"},
        {"{\"a\":}", "a value is expected"},
        {"{\"a\":1 \"b\":2}", "a comma or } is expected"},
        {"{\"a\":1]", "a comma or } is expected"},
        {"01", "needless 0"},
        {"-01", "needless 0"},
        {"-", "a digit is expected"},
        {"+1", "a value is expected"},
        {".5", "a value is expected"},
        {"1.", "after the point"},
        {"1.e5", "after the point"},
        {"1e", "in the exponent"},
        {"1e+", "in the exponent"},
        {"0x10", "nothing is expected"},
        {"NaN", "a value is expected"},
        {"-Infinity", "a digit is expected"},
        {"1e309", "too large"},
        {"-1e999999999999999999999", "too large"},
        {"\"abc", "ends inside a string"},
        {"\"a\nb\"", "byte 2: a control character"},
        {"\"\\x\"", "no escape of that name"},
        {"\"\\", "no escape of that name"},
        {"\"\\u12g4\"", "four hexadecimal digits"},
        {"\"\\u12", "four hexadecimal digits"},
        {"\"\\ud800\"", "first half of a surrogate pair"},
        {"\"\\ud800\\u0041\"", "first half of a surrogate pair"},
        {"\"\\ud800x\"", "first half of a surrogate pair"},
        {"\"\\udc00\"", "second half of a surrogate pair"},
        {"\"\x80\"", "not UTF-8"},
        {"\"\xc1\xbf\"", "not UTF-8"},
        {"\"\xc3\"", "not UTF-8"},
        {"\"\xe0\x9f\xbf\"", "not UTF-8"},
        {"\"\xe2\x82\"", "not UTF-8"},
        {"\"\xed\xa0\x80\"", "not UTF-8"},
        {"\"\xf0\x8f\xbf\xbf\"", "not UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "not UTF-8"},
        {"\"\xf5\x80\x80\x80\"", "not UTF-8"},
        {"\"\xff\"", "not UTF-8"},
        {"\xef\xbb\xbf{}", "byte 0: a value is expected"},
        {"{\"a\":1,\"a\":2}", "byte 8: the key \"a\" comes twice"},
        {"{\"a\":1,\"\\u0061\":2}", "comes twice"},
        {"{\"\":1,\"\":2}", "the key \"\" comes twice"},
        {"{\"x\":{\"b\":1,\"c\":[],\"b\":2}}", "the key \"b\" comes twice"},
        {"'a'", "a value is expected"},
        {"// c\n1", "a value is expected"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_refused(rows[i].text, strlen(rows[i].text), MICA_ERR_MALFORMED_FILE, rows[i].sentence);
    expect_refused("1\0", 2, MICA_ERR_MALFORMED_FILE, "nothing is expected");
    expect_refused("\"a\0b\"", 5, MICA_ERR_MALFORMED_FILE, "byte 2: a control character");
    expect_refused("[1,\0]", 5, MICA_ERR_MALFORMED_FILE, "a value is expected");
}

static void strings_are_decoded(void **state)
{
    static const char wanted[] =
        "a\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0z, plain text that is longer than a word";
    mica__json *json =
        parse_ok("[\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\\uD83D\\uDE00\\u0000z, plain text that is "
                 "longer than a word\", {\"k\\u0000\\u00e9\": \"\"}]");
    const mica__json_node *text = mica__json_first(mica__json_root(json));
    const mica__json_node *member = mica__json_first(mica__json_next(json, text));
    (void)state;
    assert_int_equal(text->string.length, sizeof wanted - 1);
    assert_memory_equal(text->string.data, wanted, sizeof wanted); /* the NUL too */
    assert_int_equal(member->key_length, 4);
    assert_memory_equal(member->key, "k\0\xc3\xa9", 5);
    assert_int_equal(member->string.length, 0);
    mica__json_release(json);
}

static void check_number(const char *text, double real, mica__json_exact exact, uint64_t bits)
{
    mica__json *json = parse_ok(text);
    const mica__json_node *node = mica__json_root(json);
    assert_int_equal(node->type, MICA__JSON_NUMBER);
    if (memcmp(&node->number.real, &real, sizeof real) != 0)
        fail_msg("%s: read as %.17g, expected %.17g", text, node->number.real, real);
    assert_int_equal(node->exact, exact);
    if (exact != MICA__JSON_EXACT_NONE)
        assert_true(node->number.uint_value == bits);
    mica__json_release(json);
}

static void numbers_are_exact(void **state)
{
    (void)state;
    check_number("0", 0.0, MICA__JSON_EXACT_UINT, 0);
    check_number("-0", -0.0, MICA__JSON_EXACT_NONE, 0);
    check_number("-1", -1.0, MICA__JSON_EXACT_NEGATIVE, UINT64_MAX);
    check_number("9007199254740993", 9007199254740992.0, MICA__JSON_EXACT_UINT, 9007199254740993u);
    check_number("18446744073709551615", 18446744073709551616.0, MICA__JSON_EXACT_UINT, UINT64_MAX);
    check_number("18446744073709551616", 18446744073709551616.0, MICA__JSON_EXACT_NONE, 0);
    check_number("-9223372036854775808", -9223372036854775808.0, MICA__JSON_EXACT_NEGATIVE,
                 UINT64_C(1) << 63);
    check_number("-9223372036854775809", -9223372036854775808.0, MICA__JSON_EXACT_NONE, 0);
    check_number("1000000000000000019884624838656", 1e30, MICA__JSON_EXACT_NONE, 0);
    check_number("0.1", 0.1, MICA__JSON_EXACT_NONE, 0);
    check_number("1e22", 1e22, MICA__JSON_EXACT_NONE, 0);
    check_number("1e23", 1e23, MICA__JSON_EXACT_NONE, 0);
    check_number("1.7976931348623157e308", 1.7976931348623157e308, MICA__JSON_EXACT_NONE, 0);
    check_number("5e-324", 5e-324, MICA__JSON_EXACT_NONE, 0);
    check_number("2e-324", 0.0, MICA__JSON_EXACT_NONE, 0);
    check_number("2.2250738585072011e-308", 2.2250738585072011e-308, MICA__JSON_EXACT_NONE, 0);
    check_number("0.000000000000000000000000000000000000000000001e45", 1.0, MICA__JSON_EXACT_NONE, 0);
    check_number("0e999999999", 0.0, MICA__JSON_EXACT_NONE, 0);
}

/* 1 + 2^-53 lies between two doubles; a digit far beyond the 768th must still decide. */
static void long_numbers_round_once(void **state)
{
    static const char half_way[] = "1.00000000000000011102230246251565404236316680908203125";
    char text[2000];
    (void)state;
    check_number(half_way, 1.0, MICA__JSON_EXACT_NONE, 0);
    memset(text, '0', sizeof text);
    memcpy(text, half_way, sizeof half_way - 1);
    text[sizeof text - 1] = '\0';
    check_number(text, 1.0, MICA__JSON_EXACT_NONE, 0);
    text[sizeof text - 2] = '1';
    check_number(text, 1.0000000000000002, MICA__JSON_EXACT_NONE, 0);
}

/* The host may have set a locale whose decimal point is a comma. */
static void locale_does_not_matter(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8"};
    bool found = false;
    mica__json_writer writer;
    char *text = NULL;
    size_t length = 0;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !found; i++)
        found = setlocale(LC_NUMERIC, names[i]) != NULL;
    if (!found)
        skip();
    check_number("0.12345678901234567890123", 0.12345678901234567890123, MICA__JSON_EXACT_NONE, 0);
    mica__json_writer_init(&writer);
    mica__json_double(&writer, 0.1);
    const mica_status status = mica__json_writer_finish(&writer, &text, &length);
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(status, MICA_OK);
    assert_string_equal(text, "0.1");
    mica__free(text);
}

static void tree_can_be_walked(void **state)
{
    mica__json *json = parse_ok("{\"a\":[10,[20,21],{}],\"b\":{\"c\":null},\"d\":true}");
    const mica__json_node *root = mica__json_root(json), *a = mica__json_get(json, root, "a"), *element;
    (void)state;
    assert_int_equal(json->node_count, 10);
    assert_int_equal(root->child_count, 3);
    assert_int_equal(a->child_count, 3);
    element = mica__json_first(a);
    assert_true(element->number.uint_value == 10);
    element = mica__json_next(json, element);
    assert_int_equal(element->child_count, 2);
    assert_true(mica__json_next(json, mica__json_first(element))->number.uint_value == 21);
    element = mica__json_next(json, element);
    assert_int_equal(element->type, MICA__JSON_OBJECT);
    assert_null(mica__json_first(element));
    assert_null(mica__json_next(json, element));
    assert_int_equal(mica__json_get(json, mica__json_get(json, root, "b"), "c")->type, MICA__JSON_NULL);
    assert_string_equal(mica__json_next(json, mica__json_next(json, a))->key, "d");
    assert_null(mica__json_get(json, root, "c"));
    assert_null(mica__json_get(json, a, "c"));
    assert_null(mica__json_get(json, NULL, "c"));
    mica__json_release(json);
}

static void getters_check_type_and_range(void **state)
{
    mica__json *json =
        parse_ok("{\"u\":7,\"n\":-7,\"f\":1.5,\"w\":8.0,\"e\":1e3,\"s\":\"x\",\"z\":\"a\\u0000b\",\"t\":true,"
                 "\"big\":18446744073709551615,\"a\":[],\"o\":{},\"half\":-0.5}");
    const mica__json_node *root = mica__json_root(json), *node = NULL;
    uint64_t u = 99;
    int64_t i = 99;
    double d = 99;
    bool b = false;
    const char *text = NULL;
    size_t length = 0;
    (void)state;
    assert_int_equal(mica__json_get_uint(json, root, "u", 0, 7, &u), MICA_OK);
    assert_true(u == 7);
    assert_int_equal(mica__json_get_uint(json, root, "w", 0, UINT64_MAX, &u), MICA_OK);
    assert_true(u == 8);
    assert_int_equal(mica__json_get_uint(json, root, "e", 0, UINT64_MAX, &u), MICA_OK);
    assert_true(u == 1000);
    assert_int_equal(mica__json_get_uint(json, root, "u", 8, 10, &u), MICA_ERR_MALFORMED_FILE);
    assert_string_equal(mica_status_message(), "JSON \"u\": found 7, expected an integer from 8 to 10");
    assert_true(u == 1000);
    assert_int_equal(mica__json_get_uint(json, root, "n", 0, 10, &u), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(mica__json_get_uint(json, root, "f", 0, 10, &u), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(mica__json_get_uint(json, root, "gone", 0, 10, &u), MICA_ERR_MALFORMED_FILE);
    assert_string_equal(mica_status_message(),
                        "JSON \"gone\": found nothing, expected an integer from 0 to 10");
    assert_int_equal(mica__json_get_int(json, root, "n", -7, 0, &i), MICA_OK);
    assert_true(i == -7);
    assert_int_equal(mica__json_get_int(json, root, "u", INT64_MIN, INT64_MAX, &i), MICA_OK);
    assert_true(i == 7);
    assert_int_equal(mica__json_get_int(json, root, "big", INT64_MIN, INT64_MAX, &i),
                     MICA_ERR_MALFORMED_FILE);
    assert_int_equal(mica__json_get_int(json, root, "half", INT64_MIN, INT64_MAX, &i),
                     MICA_ERR_MALFORMED_FILE);
    assert_int_equal(mica__json_get_double(json, root, "f", 0, 2, &d), MICA_OK);
    assert_true(d == 1.5);
    assert_int_equal(mica__json_get_double(json, root, "f", 0, 1, &d), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(mica__json_get_double(json, root, "s", 0, 1, &d), MICA_ERR_MALFORMED_FILE);
    assert_string_equal(mica_status_message(), "JSON \"s\": found a string, expected a number from 0 to 1");
    assert_int_equal(mica__json_get_bool(json, root, "t", &b), MICA_OK);
    assert_true(b);
    assert_int_equal(mica__json_get_bool(json, root, "u", &b), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(mica__json_get_string(json, root, "s", &text, NULL), MICA_OK);
    assert_string_equal(text, "x");
    assert_int_equal(mica__json_get_string(json, root, "z", &text, NULL), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(mica__json_get_string(json, root, "z", &text, &length), MICA_OK);
    assert_int_equal(length, 3);
    assert_int_equal(mica__json_get_container(json, root, "a", MICA__JSON_ARRAY, &node), MICA_OK);
    assert_non_null(node);
    assert_int_equal(mica__json_get_container(json, root, "a", MICA__JSON_OBJECT, &node),
                     MICA_ERR_MALFORMED_FILE);
    assert_null(node);
    mica__json_release(json);
}

static mica_status parse_with(const char *text, size_t size, size_t bytes, uint32_t depth, uint32_t nodes)
{
    const mica__json_limits limits = {bytes, depth, nodes};
    mica__json *json = NULL;
    const mica_status status = mica__json_parse(text, size, &limits, &json);
    assert_int_equal(status == MICA_OK, json != NULL);
    mica__json_release(json);
    return status;
}

static void limits_hold(void **state)
{
    (void)state;
    assert_int_equal(parse_with("[1,2,3]", 7, 7, 1, 4), MICA_OK);
    assert_int_equal(parse_with("[1,2,3]", 7, 6, 1, 4), MICA_ERR_BUDGET);
    assert_non_null(strstr(mica_status_message(), "7 bytes, at most 6"));
    assert_int_equal(parse_with("[1,2,3]", 7, 7, 1, 3), MICA_ERR_BUDGET);
    assert_non_null(strstr(mica_status_message(), "byte 5: more than 3 values"));
    assert_int_equal(parse_with("[[1]]", 5, 0, 1, 0), MICA_ERR_BUDGET);
    assert_non_null(strstr(mica_status_message(), "more than 1 containers inside each other"));
    assert_int_equal(parse_with("[[1]]", 5, 0, 2, 0), MICA_OK);
}

static void depth_ten_thousand(void **state)
{
    enum { DEPTH = 10000 };
    char *text = malloc(2 * DEPTH);
    (void)state;
    memset(text, '[', DEPTH);
    memset(text + DEPTH, ']', DEPTH);
    assert_int_equal(parse_with(text, 2 * DEPTH, 0, 0, 0), MICA_ERR_BUDGET);
    assert_int_equal(parse_with(text, 2 * DEPTH, 0, DEPTH - 1, 0), MICA_ERR_BUDGET);
    assert_int_equal(parse_with(text, 2 * DEPTH, 0, DEPTH, 0), MICA_OK);
    assert_int_equal(parse_with(text, 2 * DEPTH - 1, 0, DEPTH, 0), MICA_ERR_MALFORMED_FILE);
    free(text);
}

/* An object with `count` keys; key `twice` (if below count) is the text of key 0. */
static char *many_keys(unsigned count, unsigned twice, size_t *out_size)
{
    char *text = malloc((size_t)count * 24 + 16);
    size_t size = (size_t)sprintf(text, "{");
    for (unsigned i = 0; i < count; i++)
        size += (size_t)sprintf(text + size, "%s\"key %u\":%u", i == 0 ? "" : ",", i == twice ? 0 : i, i);
    size += (size_t)sprintf(text + size, "}");
    *out_size = size;
    return text;
}

static void duplicates_among_many(void **state)
{
    static const unsigned counts[] = {2, 7, 8, 9, 10, 16, 17, 1000, 50000};
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const unsigned places[] = {1, counts[i] / 2, counts[i] - 1};
        size_t size = 0;
        char *text = many_keys(counts[i], UINT32_MAX, &size);
        assert_int_equal(parse_with(text, size, 0, 0, 0), MICA_OK);
        free(text);
        for (size_t p = 0; p < 3; p++) {
            text = many_keys(counts[i], places[p] == 0 ? 1 : places[p], &size);
            expect_refused(text, size, MICA_ERR_MALFORMED_FILE, "the key \"key 0\" comes twice");
            free(text);
        }
    }
}

static const char sample[] =
    "{\"version\":\"1.0\",\"added\":[{\"id\":0,\"content\":\"<s>\",\"special\":true},{\"id\":1,"
    "\"content\":\"\\u0120\\ud83d\\ude00 \xc3\xa9\"}],\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4,"
    "\"f\":5,\"g\":6,\"h\":7,\"i\":-8,\"j\":9.5e-3},\"none\":null,\"empty\":[[],{}]}";

/* No beginning of the document is a document, and none reads past its end (the cut is the end of a block). */
static void cut_at_every_byte(void **state)
{
    (void)state;
    for (size_t size = 0; size < sizeof sample - 1; size++) {
        char *cut = malloc(size == 0 ? 1 : size);
        mica__json *json = NULL;
        memcpy(cut, sample, size);
        assert_int_equal(mica__json_parse(cut, size, NULL, &json), MICA_ERR_MALFORMED_FILE);
        assert_null(json);
        free(cut);
    }
    assert_int_equal(mica_host_bytes(), 0);
}

/* Every byte replaced by every other: any answer but a crash, a leak or a document from a failure. */
static void every_byte_changed(void **state)
{
    char changed[sizeof sample];
    (void)state;
    for (size_t at = 0; at < sizeof sample - 1; at++) {
        for (int value = 0; value < 256; value++) {
            memcpy(changed, sample, sizeof sample);
            changed[at] = (char)value;
            parse_with(changed, sizeof sample - 1, 0, 0, 0);
        }
    }
    assert_int_equal(mica_host_bytes(), 0);
}

static mica_status rewrite(const char *text, char **out_text, size_t *out_length)
{
    mica__json *json = NULL;
    mica_status status = parse(text, &json);
    *out_text = NULL;
    if (status == MICA_OK)
        status = test_json_text(json, out_text, out_length);
    mica__json_release(json);
    return status;
}

static void writer_gives_back_what_was_read(void **state)
{
    char *first = NULL, *second = NULL;
    size_t length = 0;
    (void)state;
    assert_int_equal(rewrite(sample, &first, &length), MICA_OK);
    assert_int_equal(length, strlen(first));
    assert_int_equal(rewrite(first, &second, &length), MICA_OK);
    assert_string_equal(first, second);
    assert_non_null(strstr(first, "\"content\":\"\xc4\xa0\xf0\x9f\x98\x80 \xc3\xa9\""));
    assert_non_null(strstr(first, "\"j\":0.0095"));
    mica__free(first);
    mica__free(second);
}

static void writer_escapes(void **state)
{
    mica__json_writer writer;
    char *text = NULL;
    size_t length = 0;
    (void)state;
    mica__json_writer_init(&writer);
    mica__json_begin_object(&writer);
    mica__json_key(&writer, "k\"");
    mica__json_string_n(&writer, "\0\x1f\b\f\n\r\t\\/\x7f", 10);
    mica__json_key(&writer, "n");
    mica__json_begin_array(&writer);
    mica__json_int(&writer, INT64_MIN);
    mica__json_uint(&writer, UINT64_MAX);
    mica__json_double(&writer, 0.1);
    mica__json_double(&writer, -0.0);
    mica__json_double(&writer, 1e300);
    mica__json_double(&writer, NAN);
    mica__json_double(&writer, -INFINITY);
    mica__json_bool(&writer, false);
    mica__json_end_array(&writer);
    mica__json_key(&writer, "e");
    mica__json_begin_object(&writer);
    mica__json_end_object(&writer);
    mica__json_end_object(&writer);
    assert_int_equal(mica__json_writer_finish(&writer, &text, &length), MICA_OK);
    assert_string_equal(text,
                        "{\"k\\\"\":\"\\u0000\\u001f\\b\\f\\n\\r\\t\\\\/\x7f\",\"n\":[-9223372036854775808,"
                        "18446744073709551615,0.1,-0,1e+300,null,null,false],\"e\":{}}");
    mica__free(text);
}

static void doubles_survive(void **state)
{
    uint64_t bits = 88172645463325252u;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        double value;
        mica__json_writer writer;
        char *text = NULL;
        size_t length = 0;
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        memcpy(&value, &bits, sizeof value);
        if (i % 2)
            value = (double)(int64_t)(bits >> 44) / 1000.0;
        if (!isfinite(value))
            continue;
        mica__json_writer_init(&writer);
        mica__json_double(&writer, value);
        assert_int_equal(mica__json_writer_finish(&writer, &text, &length), MICA_OK);
        if (i % 2)
            assert_true(length <= 12); /* short numbers stay short */
        mica__json *json = parse_ok(text);
        const double back = mica__json_root(json)->number.real;
        assert_memory_equal(&back, &value, sizeof back);
        mica__json_release(json);
        mica__free(text);
    }
}

static void misuse_value_in_object(mica__json_writer *writer)
{
    mica__json_begin_object(writer);
    mica__json_null(writer);
}

static void misuse_key_in_array(mica__json_writer *writer)
{
    mica__json_begin_array(writer);
    mica__json_key(writer, "a");
}

static void misuse_two_keys(mica__json_writer *writer)
{
    mica__json_begin_object(writer);
    mica__json_key(writer, "a");
    mica__json_key(writer, "b");
}

static void misuse_key_then_end(mica__json_writer *writer)
{
    mica__json_begin_object(writer);
    mica__json_key(writer, "a");
    mica__json_end_object(writer);
}

static void misuse_wrong_end(mica__json_writer *writer)
{
    mica__json_begin_object(writer);
    mica__json_end_array(writer);
}

static void misuse_end_only(mica__json_writer *writer)
{
    mica__json_end_object(writer);
}

static void misuse_two_roots(mica__json_writer *writer)
{
    mica__json_null(writer);
    mica__json_null(writer);
}

static void misuse_open_end(mica__json_writer *writer)
{
    mica__json_begin_array(writer);
}

static void misuse_nothing(mica__json_writer *writer)
{
    (void)writer;
}

static void misuse_bad_utf8(mica__json_writer *writer)
{
    mica__json_string(writer, "ok \xc3");
}

static void misuse_too_deep(mica__json_writer *writer)
{
    for (int i = 0; i <= MICA__JSON_WRITER_DEPTH; i++)
        mica__json_begin_array(writer);
}

static void writer_refuses_misuse(void **state)
{
    static const struct {
        void (*run)(mica__json_writer *writer);
        mica_status status;
    } rows[] = {
        {misuse_value_in_object, MICA_ERR_STATE}, {misuse_key_in_array, MICA_ERR_STATE},
        {misuse_two_keys, MICA_ERR_STATE},        {misuse_key_then_end, MICA_ERR_STATE},
        {misuse_wrong_end, MICA_ERR_STATE},       {misuse_end_only, MICA_ERR_STATE},
        {misuse_two_roots, MICA_ERR_STATE},       {misuse_open_end, MICA_ERR_STATE},
        {misuse_nothing, MICA_ERR_STATE},         {misuse_bad_utf8, MICA_ERR_INVALID_ARGUMENT},
        {misuse_too_deep, MICA_ERR_BUDGET},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mica__json_writer writer;
        char *text = (char *)-1;
        size_t length = 1;
        mica__json_writer_init(&writer);
        rows[i].run(&writer);
        assert_int_equal(mica__json_writer_finish(&writer, &text, &length), rows[i].status);
        assert_null(text);
        mica__json_null(&writer); /* fresh after finish */
        assert_int_equal(mica__json_writer_finish(&writer, &text, &length), MICA_OK);
        assert_string_equal(text, "null");
        mica__free(text);
    }
    assert_int_equal(mica_host_bytes(), 0);
}

static void every_allocation_fails_once(void **state)
{
    test_meter meter = {0};
    uint64_t failures = 0;
    size_t size = 0;
    char *text = many_keys(3000, UINT32_MAX, &size);
    mica_status status = MICA_ERR_OUT_OF_MEMORY;
    (void)state;
    assert_int_equal(test_meter_set(&meter), MICA_OK);
    for (; status == MICA_ERR_OUT_OF_MEMORY; failures++) {
        char *copy = NULL;
        size_t length = 0;
        atomic_store(&meter.calls, 0);
        atomic_store(&meter.fail_at, failures + 1);
        status = rewrite(text, &copy, &length);
        assert_int_equal(copy != NULL, status == MICA_OK);
        mica__free(copy);
        assert_int_equal(mica_host_bytes(), 0);
        assert_int_equal(mica_host_allocations(), 0);
    }
    assert_int_equal(status, MICA_OK);
    assert_true(failures > 8); /* document, text, nodes and their growth, key table, writer and its growth */
    assert_int_equal(mica_set_allocator(NULL), MICA_OK);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts),
        cmocka_unit_test(refuses),
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(long_numbers_round_once),
        cmocka_unit_test(locale_does_not_matter),
        cmocka_unit_test(tree_can_be_walked),
        cmocka_unit_test(getters_check_type_and_range),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(depth_ten_thousand),
        cmocka_unit_test(duplicates_among_many),
        cmocka_unit_test(cut_at_every_byte),
        cmocka_unit_test(every_byte_changed),
        cmocka_unit_test(writer_gives_back_what_was_read),
        cmocka_unit_test(writer_escapes),
        cmocka_unit_test(doubles_survive),
        cmocka_unit_test(writer_refuses_misuse),
        cmocka_unit_test(every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
