/* test_template_golden.c - chat templates against Jinja itself: small ones with their whole output, and those of real
 * models by length and hash. scripts/golden_templates.py made the files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/status.h"

#include "base/alloc.h"
#include "base/file/file.h"
#include "base/json/json.h"
#include "mica/text.h"

#define FOLDER "tests/model/golden/templates/"

static mica__json *read_json(const char *path)
{
    void *data = NULL;
    size_t size = 0;
    mica__json *json = NULL;
    must(mica__file_read_all(path, 1u << 24, &data, &size));
    must(mica__json_parse(data, size, NULL, &json));
    mica__free(data);
    return json;
}

static mica_status render(const char *text, size_t length, int64_t now, const char *variables,
                          size_t variables_length, char **out, uint64_t *out_length)
{
    const mica_template_options options = {.size = sizeof options, .now = now};
    mica_template *template = NULL;
    *out = NULL;
    *out_length = 0;
    mica_status status = mica_template_create(text, length, &options, &template);
    if (status == MICA_OK)
        status = mica_template_render(template, variables, variables_length, out, out_length);
    mica_template_release(template);
    return status;
}

static void test_small(void **state)
{
    (void)state;
    mica__json *json = read_json(FOLDER "small.json");
    const mica__json_node *root = mica__json_root(json), *rows = mica__json_get(json, root, "rows");
    const mica__json_node *variables = mica__json_get(json, root, "variables");
    uint32_t count = 0, wrong = 0;
    int64_t now = 0;
    must(mica__json_get_int(json, root, "now", 0, INT64_MAX, &now));
    for (const mica__json_node *row = mica__json_first(rows); row != NULL; row = mica__json_next(json, row)) {
        const mica__json_node *text = mica__json_get(json, row, "template");
        const mica__json_node *output = mica__json_get(json, row, "output"),
                              *error = mica__json_get(json, row, "error");
        char *out = NULL;
        uint64_t length = 0;
        const mica_status status = render(text->string.data, text->string.length, now, variables->string.data,
                                          variables->string.length, &out, &length);
        const int right =
            output != NULL ? status == MICA_OK && length == output->string.length &&
                                 memcmp(out, output->string.data, length) == 0
                           : status != MICA_OK && strstr(mica_status_message(), error->string.data) != NULL;
        if (!right) {
            print_error("%s\n  gave   %s\n  wanted %s\n", text->string.data,
                        status == MICA_OK ? out : mica_status_message(),
                        output != NULL ? output->string.data : error->string.data);
            wrong++;
        }
        mica_text_free(out);
        count++;
    }
    mica__json_release(json);
    print_message("%u small templates, %u wrong\n", count, wrong);
    assert_int_equal(wrong, 0);
    assert_true(count > 700);
}

/* ---- real templates ---- */

static uint64_t fnv(const char *data, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
    return hash;
}

/* A setting with the messages in it, as one object. The caller frees it. */
static char *join_variables(const mica__json_node *setting, const mica__json_node *messages,
                            size_t *out_length)
{
    const size_t size = setting->string.length + messages->string.length + 32;
    char *text = malloc(size);
    assert_non_null(text);
    *out_length = (size_t)snprintf(text, size, "%.*s, \"messages\": %s}", (int)setting->string.length - 1,
                                   setting->string.data, messages->string.data);
    return text;
}

/* Whether a result is [length, hash] of the output, or the text of the error. */
static int is_result(const mica__json *json, const mica__json_node *result, mica_status status,
                     const char *out, uint64_t length)
{
    char hash[24];
    if (result->type == MICA__JSON_STRING)
        return status != MICA_OK && strstr(mica_status_message(), result->string.data) != NULL;
    if (status != MICA_OK)
        return 0;
    const mica__json_node *wanted = mica__json_first(result);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fnv(out, length));
    return wanted->number.uint_value == length &&
           strcmp(mica__json_next(json, wanted)->string.data, hash) == 0;
}

static uint32_t check_row(const mica__json *json, const mica__json_node *row, const char *text, size_t length,
                          uint32_t *count)
{
    const mica__json_node *root = mica__json_root(json), *name = mica__json_first(row);
    const mica__json_node *conversation = mica__json_next(json, name);
    const mica__json_node *messages =
        mica__json_get(json, mica__json_get(json, root, "conversations"), conversation->string.data);
    const mica__json_node *result = mica__json_first(mica__json_next(json, conversation));
    const mica__json_node *setting = mica__json_first(mica__json_get(json, root, "settings"));
    uint32_t wrong = 0;
    int64_t now = 0;
    must(mica__json_get_int(json, root, "now", 0, INT64_MAX, &now));
    for (; setting != NULL;
         setting = mica__json_next(json, setting), result = mica__json_next(json, result)) {
        size_t variables_length = 0;
        char *variables = join_variables(setting, messages, &variables_length), *out = NULL;
        uint64_t out_length = 0;
        const mica_status status = render(text, length, now, variables, variables_length, &out, &out_length);
        if (!is_result(json, result, status, out, out_length)) {
            print_error("%s, %s: gave %s\n", name->string.data, conversation->string.data,
                        status == MICA_OK ? out : mica_status_message());
            wrong++;
        }
        ++*count;
        free(variables);
        mica_text_free(out);
    }
    return wrong;
}

static void test_real(void **state)
{
    (void)state;
    const char *given = getenv("MICA_TEST_DATA");
    char path[1024];
    mica__json *json = read_json(FOLDER "real.json");
    const mica__json_node *rows = mica__json_get(json, mica__json_root(json), "rows");
    uint32_t count = 0, wrong = 0;
    snprintf(path, sizeof path, "%s/templates", given != NULL ? given : "../shared/data");
    if (mica__file_look(path) != MICA__FILE_KIND_FOLDER) {
        print_message("skipped: %s is not there\n", path);
        mica__json_release(json);
        skip();
    }
    for (const mica__json_node *row = mica__json_first(rows); row != NULL; row = mica__json_next(json, row)) {
        void *text = NULL;
        size_t length = 0;
        snprintf(path, sizeof path, "%s/templates/%s", given != NULL ? given : "../shared/data",
                 mica__json_first(row)->string.data);
        must(mica__file_read_all(path, 1u << 20, &text, &length));
        wrong += check_row(json, row, text, length, &count);
        mica__free(text);
    }
    mica__json_release(json);
    print_message("%u renderings of real templates, %u wrong\n", count, wrong);
    assert_int_equal(wrong, 0);
    assert_true(count >= 9 * 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
