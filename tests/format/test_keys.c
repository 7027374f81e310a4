/* test_keys.c - the table of keys of config.json against lists of facts: the keys and defaults of transformers' classes, and
 * the keys that published files have. What models compute with them: tests/model/test_config_keys.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format/config/keys.h"

#define HOME "tests/format/"

/* One line of a list: words with a blank between them, the last one to the end of the line. */
typedef struct fact {
    char text[400];
    const char *key_class, *key, *value;
} fact;

static FILE *open_facts(const char *name)
{
    char path[200];
    (void)snprintf(path, sizeof path, HOME "%s", name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("%s is not there: tests run in the root of the repository", path);
    return file;
}

static bool next_fact(FILE *file, fact *out)
{
    do {
        if (fgets(out->text, sizeof out->text, file) == NULL)
            return false;
    } while (out->text[0] == '#');
    out->text[strcspn(out->text, "\n")] = '\0';
    char *blank = strchr(out->text, ' ');
    assert_non_null(blank);
    *blank = '\0';
    out->key_class = out->text;
    out->key = blank + 1;
    blank = strchr(blank + 1, ' ');
    if (blank != NULL)
        *blank = '\0';
    out->value = blank == NULL ? "" : blank + 1;
    return true;
}

/* Whether the list "a|b" has the word. */
static bool has(const char *list, const char *word)
{
    const size_t length = strlen(word);
    while (*list != '\0') {
        const size_t part = strcspn(list, "|");
        if (part == length && memcmp(list, word, length) == 0)
            return true;
        list += part + (list[part] == '|');
    }
    return false;
}

/* What the table says of a key that is not there is what the class says: as numbers, or as text without quotes. */
static bool same_default(const char *detail, const char *fact_value)
{
    char *end_a, *end_b;
    const double a = strtod(detail, &end_a), b = strtod(fact_value, &end_b);
    if (*end_a == '\0' && *end_b == '\0')
        return a == b;
    const size_t length = strlen(detail);
    if (fact_value[0] == '"')
        return strlen(fact_value) == length + 2 && memcmp(fact_value + 1, detail, length) == 0;
    return strcmp(detail, fact_value) == 0;
}

static void every_key_of_transformers_has_a_verdict(void **state)
{
    FILE *file = open_facts("transformers_keys.txt");
    uint32_t count = 0, defaults = 0;
    fact f;
    (void)state;
    for (; next_fact(file, &f); count++) {
        const mica__key_row *row = mica__key_find(f.key_class, f.key);
        if (row == NULL)
            fail_msg("%s.%s has no row", f.key_class, f.key);
        if (row->verdict == MICA__KEY_ONLY && strcmp(f.value, "null") != 0 && !has(row->detail, f.value))
            fail_msg("%s.%s: the class's own value %s would be refused", f.key_class, f.key, f.value);
        if (row->verdict != MICA__KEY_READ && row->verdict != MICA__KEY_MAY)
            continue;
        if (row->detail[0] != '\0' && strcmp(f.value, "null") != 0 && !same_default(row->detail, f.value))
            fail_msg("%s.%s: %s where it is not there, the class says %s", f.key_class, f.key, row->detail,
                     f.value);
        defaults += row->detail[0] != '\0' && strcmp(f.value, "null") != 0;
    }
    (void)fclose(file);
    assert_true(count > 900 && defaults > 60);
}

/* Numbers that models are computed with must come from the class where a file is silent: only sizes, which tensors would
 * show to be wrong, have no default in the table. */
static void nothing_is_left_to_chance(void **state)
{
    static const char *const sizes = "|architectures|model_type|num_hidden_layers|hidden_size|intermediate_"
                                     "size|num_attention_heads|n_layer|n_embd|"
                                     "n_head|tie_word_embeddings|text_config|vision_config|bos_token_id|eos_"
                                     "token_id|pad_token_id|sep_token_id|";
    FILE *file = open_facts("transformers_keys.txt");
    fact f;
    (void)state;
    while (next_fact(file, &f)) {
        const mica__key_row *row = mica__key_find(f.key_class, f.key);
        char word[128];
        (void)snprintf(word, sizeof word, "|%s|", f.key);
        if (row != NULL && (row->verdict == MICA__KEY_READ || row->verdict == MICA__KEY_MAY) &&
            row->detail[0] == '\0' && strcmp(f.value, "null") != 0 && strstr(sizes, word) == NULL)
            fail_msg("%s.%s: the class has %s, the table nothing", f.key_class, f.key, f.value);
    }
    (void)fclose(file);
}

static void published_keys_are_known(void **state)
{
    FILE *file = open_facts("published_keys.txt");
    uint32_t count = 0;
    fact f;
    (void)state;
    for (; next_fact(file, &f); count++)
        if (mica__key_find(f.key_class, f.key) == NULL)
            fail_msg("%s.%s of published files would be refused", f.key_class, f.key);
    (void)fclose(file);
    assert_true(count > 100);
}

/* A row that another one hides says nothing. */
static void every_row_counts(void **state)
{
    uint32_t count;
    const mica__key_row *rows = mica__key_rows(&count);
    (void)state;
    for (uint32_t i = 0; i < count; i++) {
        bool reached = false;
        char key[80];
        (void)snprintf(key, sizeof key, "%s", rows[i].key);
        key[strcspn(key, "*")] = '\0';
        for (const char *const *c = mica__key_classes(); *c != NULL && !reached; c++)
            reached = mica__key_find(*c, key) == &rows[i];
        if (!reached && mica__key_find("rope", key) != &rows[i])
            fail_msg("row %u, %s for \"%s\", is never found", i, rows[i].key, rows[i].classes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_of_transformers_has_a_verdict),
        cmocka_unit_test(nothing_is_left_to_chance),
        cmocka_unit_test(published_keys_are_known),
        cmocka_unit_test(every_row_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
