/* test_json_reader.c: JSON item by item through a window. Whatever stands at the window's edge is read as the tree of
 * the same text has it; keys that come twice are found among few and many; the file may end or change underneath. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/json/json_reader.h"
#include "mica/host.h"
#include "support/folder.h"
#include "support/meter.h"
#include "support/random.h"
#include "support/status.h"

#define WINDOW ((size_t)256 << 10) /* the reader's first; longer texts move it */

typedef struct text {
    char *data;
    size_t size, capacity;
} text;

static void put_n(text *t, const char *data, size_t size)
{
    if (t->size + size + 1 > t->capacity) {
        t->capacity = 2 * (t->size + size) + 64;
        t->data = realloc(t->data, t->capacity);
        assert_non_null(t->data);
    }
    memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = '\0';
}

static void put(text *t, const char *data)
{
    put_n(t, data, strlen(data));
}

static void fill(text *t, char c, size_t to)
{
    while (t->size < to)
        put_n(t, &c, 1);
}

static mica__file *as_file(const text *t)
{
    mica__file *file = NULL;
    must(mica__file_from_bytes("text", t->data, t->size, &file));
    return file;
}

/* Reads all of it. The item that failed is the last. */
static mica_status read_all(const text *t, uint32_t unchecked_levels, bool constants, uint32_t *out_values)
{
    mica__json_reader reader;
    mica__json_event event = MICA__JSON_EVENT_VALUE;
    mica__json_node item;
    mica__file *file = as_file(t);
    mica_status status = mica__json_reader_begin(&reader, file, 0, t->size, NULL);
    reader.unchecked_levels = unchecked_levels;
    reader.constants = constants;
    *out_values = 0;
    while (status == MICA_OK && event != MICA__JSON_EVENT_DONE) {
        status = mica__json_reader_next(&reader, &event, &item);
        *out_values +=
            status == MICA_OK && (event == MICA__JSON_EVENT_VALUE || event == MICA__JSON_EVENT_OPEN);
    }
    mica__json_reader_end(&reader);
    mica__file_close(file);
    return status;
}

static void same_item(const mica__json_node *node, const mica__json_node *item, mica__json_event event)
{
    assert_int_equal(item->type, node->type);
    assert_int_equal(event == MICA__JSON_EVENT_OPEN, node->type >= MICA__JSON_ARRAY);
    assert_int_equal(item->key_length, node->key_length);
    assert_int_equal(item->key == NULL, node->key == NULL);
    if (node->key != NULL)
        assert_memory_equal(item->key, node->key, node->key_length + 1);
    if (node->type == MICA__JSON_STRING) {
        assert_int_equal(item->string.length, node->string.length);
        assert_memory_equal(item->string.data, node->string.data, node->string.length + 1);
    }
    if (node->type == MICA__JSON_NUMBER) {
        assert_int_equal(item->exact, node->exact);
        assert_memory_equal(&item->number, &node->number, sizeof item->number);
    }
}

/* The items are the nodes of the tree, which sees the whole text at once, in their order; or both refuse with the same
 * sentence. */
static void same_through(const text *t, size_t window)
{
    mica__json *json = NULL;
    mica__json_reader reader;
    mica__json_event event = MICA__JSON_EVENT_VALUE;
    mica__json_node item;
    mica__file *file = as_file(t);
    char sentence[256] = "";
    const mica_status expected = mica__json_parse(t->data, t->size, NULL, &json);
    uint32_t seen = 0;
    if (expected != MICA_OK)
        snprintf(sentence, sizeof sentence, "%s", mica_status_message());
    must(mica__json_reader_begin(&reader, file, 0, t->size, NULL));
    reader.window = window < reader.window ? window : reader.window;
    mica_status status = MICA_OK;
    while (event != MICA__JSON_EVENT_DONE && status == MICA_OK) {
        status = mica__json_reader_next(&reader, &event, &item);
        if (status != MICA_OK || event == MICA__JSON_EVENT_CLOSE || event == MICA__JSON_EVENT_DONE)
            continue;
        if (json != NULL)
            same_item(&json->nodes[seen], &item, event);
        seen++;
    }
    assert_int_equal(status, expected);
    if (expected != MICA_OK)
        assert_string_equal(mica_status_message(), sentence);
    else
        assert_int_equal(seen, json->node_count);
    mica__json_reader_end(&reader);
    mica__json_release(json);
    mica__file_close(file);
}

static void same_as_tree(const text *t)
{
    same_through(t, WINDOW);
}

static const char *const tokens[] = {
    "null",
    "false",
    "true",
    "0",
    "-0.0",
    "18446744073709551615",
    "-9223372036854775808",
    "1234567890.0123456789e-12",
    "3e+200",
    "\"\"",
    "\"plain text of some length\"",
    "\"\\u00e9\\ud83d\\ude00\\n\\\\\\\"\\/ tail\"",
    "\"\xf0\x9f\x98\x80 raw \xc3\xa9\"",
    "{\"k\\u0041\":[1,\"x\",{}],\"other key\":-1.5}",
    "[[],[[]],{}]",
    /* and what is wrong */
    "nul",
    "01",
    "1.",
    "1e",
    "-",
    "\"\\ud83d\"",
    "\"\\u12",
    "\"\xff\"",
    "\"a\nb\"",
    "{\"a\":1,}",
    "{\"a\" 1}",
    "{\"a\":1 \"b\":2}",
};

/* Each token in front of, on and behind the edge of the window, after white space or inside a string that fills it. */
static void any_token_at_the_edge(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        for (size_t back = 0; back <= strlen(tokens[i]) + 2; back++)
            for (int string = 0; string < 2; string++) {
                text t = {0};
                put(&t, string ? "[\"" : "[ ");
                fill(&t, string ? 'x' : ' ', WINDOW - back - (string ? 2 : 0));
                put(&t, string ? "\"," : "");
                put(&t, tokens[i]);
                put(&t, back % 2 == 0 ? "]" : ",null ]");
                same_as_tree(&t);
                free(t.data);
            }
}

/* Windows so small that every token moves them. */
static void small_windows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        for (size_t window = 1; window < 40; window++) {
            text t = {0};
            put(&t, "{\"a\":[");
            put(&t, tokens[i]);
            put(&t, " , ");
            put(&t, tokens[(i * 7 + window) % 15]);
            put(&t, "  ]\n,\"some longer key\" :");
            put(&t, tokens[i]);
            put(&t, "}");
            same_through(&t, window);
            free(t.data);
        }
}

/* Numbers, strings and keys that are longer than the window, plain and with escapes. */
static void tokens_longer_than_the_window(void **state)
{
    static const size_t sizes[] = {WINDOW - 8, WINDOW, 3 * WINDOW + 17};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int form = 0; form < 5; form++) {
            static const char *const starts[] = {"[\"", "[\"\\u00e9", "{\"", "[1.", "[null"};
            static const char *const ends[] = {"\"]", "\\n\xc3\xa9\"]", "\":[{\"a\":\"b\"}]}", "e3]", ",1]"};
            text t = {0};
            put(&t, starts[form]);
            fill(&t, form == 4 ? ' ' : form == 3 ? '7' : 'q', sizes[i]);
            put(&t, ends[form]);
            same_as_tree(&t);
            t.size--; /* and without its end */
            same_as_tree(&t);
            free(t.data);
        }
}

static void put_random(text *t, test_random *r, int depth)
{
    const uint64_t kind = test_random_below(r, depth > 6 ? 6 : 9);
    char word[64];
    if (kind < 2) {
        snprintf(word, sizeof word, "%.*g", (int)(1 + test_random_below(r, 17)), test_random_normal(r));
        put(t, word);
    } else if (kind < 4) {
        put(t, tokens[9 + test_random_below(r, 4)]);
    } else if (kind == 4) {
        snprintf(word, sizeof word, "%llu", (unsigned long long)test_random_next(r));
        put(t, word);
    } else if (kind == 5) {
        put(t, tokens[test_random_below(r, 3)]);
    } else {
        const bool object = kind != 6;
        const uint64_t count = test_random_below(r, 14);
        put(t, object ? "{ " : "[");
        for (uint64_t i = 0; i < count; i++) {
            snprintf(word, sizeof word, "%s\"%llx\":\t", i == 0 ? "" : ",\n", (unsigned long long)(i * 977));
            put(t, object ? word : i == 0 ? "" : ", ");
            put_random(t, r, depth + 1);
        }
        put(t, object ? "}" : "]\r\n");
    }
}

static void random_documents(void **state)
{
    test_random r = test_random_from(77);
    (void)state;
    for (int i = 0; i < 12; i++) {
        text t = {0};
        put(&t, "[0");
        while (t.size < WINDOW + WINDOW / 3 * (size_t)i) {
            put(&t, ",");
            put_random(&t, &r, 0);
        }
        put(&t, "]");
        same_as_tree(&t);
        t.data[test_random_below(&r, t.size)] = '!'; /* the same refusal, or the same strings */
        same_as_tree(&t);
        free(t.data);
    }
}

/* {"k0":{..},"k1":..}: `count` keys, of which key `twice` repeats key `first`. */
static text keys_text(uint32_t count, uint32_t first, uint32_t twice)
{
    text t = {0};
    for (uint32_t i = 0; i < count; i++) {
        char word[64];
        snprintf(word, sizeof word, "%s\"key %u\":%s", i == 0 ? "{" : ",", i == twice ? first : i,
                 i % 3 == 0 ? "{\"key 0\":1,\"key 1\":[{\"key 0\":2}]}" : "0");
        put(&t, word);
    }
    put(&t, "}");
    return t;
}

static void keys_that_come_twice(void **state)
{
    static const uint32_t counts[] = {2, 8, 9, 2047, 2049, 5000, 70001};
    test_random r = test_random_from(5);
    uint32_t values = 0;
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        text t = keys_text(counts[i], 0, UINT32_MAX);
        must(read_all(&t, 0, false, &values));
        free(t.data);
        for (int k = 0; k < 4; k++) {
            const uint32_t twice = 1 + (uint32_t)test_random_below(&r, counts[i] - 1);
            const uint32_t first = (uint32_t)test_random_below(&r, twice);
            char word[32];
            t = keys_text(counts[i], first, twice);
            snprintf(word, sizeof word, "the key \"key %u\" comes twice", first);
            refused(read_all(&t, 0, false, &values), MICA_ERR_MALFORMED_FILE, word);
            must(read_all(&t, 1, false, &values)); /* the root is not looked at */
            free(t.data);
        }
    }
    text inner = {0};
    put(&inner, "{\"a\":{\"b\":[{\"c\":1,\"c\":2}]}}");
    refused(read_all(&inner, 2, false, &values), MICA_ERR_MALFORMED_FILE, "byte 19: the key \"c\"");
    must(read_all(&inner, 4, false, &values));
    free(inner.data);
}

static void constants_of_python(void **state)
{
    static const char words[] = "{\"a\":NaN,\"b\":[Infinity,-Infinity,-1],\"NaN\":\"NaN\"}";
    text t = {0};
    uint32_t values = 0;
    (void)state;
    put(&t, words);
    must(read_all(&t, 0, true, &values));
    assert_int_equal(values, 7);
    refused(read_all(&t, 0, false, &values), MICA_ERR_MALFORMED_FILE, "byte 5: a value is expected");
    free(t.data);
    t = (text){0};
    put(&t, "[-Inf]");
    refused(read_all(&t, 0, true, &values), MICA_ERR_MALFORMED_FILE, "a value is expected");
    free(t.data);
}

static void skips_a_container(void **state)
{
    text t = {0};
    mica__json_reader reader;
    mica__json_event event;
    mica__json_node item;
    (void)state;
    put(&t, "[[1,{\"a\":[]},[]],7]");
    mica__file *file = as_file(&t);
    must(mica__json_reader_begin(&reader, file, 0, t.size, NULL));
    must(mica__json_reader_next(&reader, &event, &item));
    must(mica__json_reader_next(&reader, &event, &item));
    assert_int_equal(event, MICA__JSON_EVENT_OPEN);
    must(mica__json_reader_skip(&reader));
    must(mica__json_reader_next(&reader, &event, &item));
    assert_int_equal(item.number.uint_value, 7);
    must(mica__json_reader_next(&reader, &event, &item));
    assert_int_equal(event, MICA__JSON_EVENT_CLOSE);
    assert_int_equal(item.child_count, 2);
    mica__json_reader_end(&reader);
    mica__file_close(file);
    free(t.data);
}

/* A million members cost the window, and their keys where those are compared. */
static void memory_is_the_window(void **state)
{
    text t = {0};
    mica__json_reader reader;
    mica__json_event event = MICA__JSON_EVENT_VALUE;
    mica__json_node item;
    uint64_t most = 0;
    (void)state;
    for (uint32_t i = 0; i < 300000; i++) {
        char word[64];
        snprintf(word, sizeof word, "%s\"%u\":[%u]", i == 0 ? "{" : ",", i, i);
        put(&t, word);
    }
    put(&t, "}");
    mica__file *file = as_file(&t);
    must(mica__json_reader_begin(&reader, file, 0, t.size, NULL));
    reader.unchecked_levels = 1;
    while (event != MICA__JSON_EVENT_DONE) {
        must(mica__json_reader_next(&reader, &event, &item));
        most = mica_host_bytes() > most ? mica_host_bytes() : most;
    }
    assert_true(most < WINDOW + 65536);
    mica__json_reader_end(&reader);
    mica__file_close(file);
    free(t.data);
}

/* A file that another process cuts ends in a status. */
static void file_that_shrinks(void **state)
{
    char folder[128], path[192];
    text t = {0};
    mica__json_reader reader;
    mica__json_event event = MICA__JSON_EVENT_VALUE;
    mica__json_node item;
    mica__file *file = NULL;
    (void)state;
    put(&t, "[0");
    while (t.size < 2 * WINDOW)
        put(&t, ",0");
    put(&t, "]");
    assert_int_equal(test_folder_make(folder, sizeof folder, "json"), 0);
    snprintf(path, sizeof path, "%s/text.json", folder);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(t.data, 1, t.size, out), t.size);
    fclose(out);
    must(mica__file_open_read(path, &file));
    must(mica__json_reader_begin(&reader, file, 0, t.size, NULL));
    must(mica__json_reader_next(&reader, &event, &item));
    assert_int_equal(truncate(path, (off_t)WINDOW), 0);
    mica_status status = MICA_OK;
    while (status == MICA_OK && event != MICA__JSON_EVENT_DONE)
        status = mica__json_reader_next(&reader, &event, &item);
    assert_int_equal(status, MICA_ERR_MALFORMED_FILE);
    mica__json_reader_end(&reader);
    mica__file_close(file);
    assert_int_equal(test_folder_remove(folder), 0);
    free(t.data);
}

static void every_allocation_fails(void **state)
{
    text t = keys_text(5000, 0, UINT32_MAX);
    mica_status status = MICA_ERR_OUT_OF_MEMORY;
    uint32_t n = 0;
    (void)state;
    put_n(&t, " ", 1);
    fill(&t, ' ', 2 * WINDOW);
    for (; status != MICA_OK; n++) {
        test_meter meter = {0};
        uint32_t values = 0;
        test_meter_allow(&meter, 1 + n); /* the handle of the file is the test's */
        assert_int_equal(test_meter_set(&meter), MICA_OK);
        status = read_all(&t, 0, false, &values);
        assert_int_equal(mica_set_allocator(NULL), MICA_OK);
        assert_true(status == MICA_OK || status == MICA_ERR_OUT_OF_MEMORY);
        assert_true(n < 100);
    }
    assert_true(n > 5);
    free(t.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_token_at_the_edge),
        cmocka_unit_test(small_windows),
        cmocka_unit_test(tokens_longer_than_the_window),
        cmocka_unit_test(random_documents),
        cmocka_unit_test(keys_that_come_twice),
        cmocka_unit_test(constants_of_python),
        cmocka_unit_test(skips_a_container),
        cmocka_unit_test(memory_is_the_window),
        cmocka_unit_test(file_that_shrinks),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
