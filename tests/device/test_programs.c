/* Texts of programs: what is in them, and what is not. The text is the key in the disk cache, so what is not in it cannot make
 * a compiled kernel stale. White-box: src/device/programs.h. */
#include "device_test.h"

#include "device/programs.h"
#include "base/alloc.h"
#include "kernels/kernels.h"

static const char *const files[] = {
#define TEXT(name) #name,
#define NATIVE(target, name, ending) #name,
#define PARAMS(name)
#define TABLE(name)
#include "kernels/texts.def"
#undef TEXT
#undef NATIVE
#undef PARAMS
#undef TABLE
};
enum { FILES = sizeof files / sizeof *files };

static char *text_of(const char *program)
{
    static mica__device_info info;
    info.target = "MK_CUDA";
    char *text = mica__program_text(&info, program);
    assert_non_null(text);
    return text;
}

static void only_what_is_used(void **state)
{
    (void)state;
    char *copy = text_of("copy");
    assert_non_null(strstr(copy, "typedef struct mk_copy_params {"));
    assert_null(strstr(copy, "mk_rope_params"));
    assert_null(strstr(copy, "mk_weight"));
    mica__free(copy);
}

/* How often the word of `length` bytes stands in the text. */
static uint32_t count_word(const char *text, const char *word, size_t length)
{
    uint32_t count = 0;
    char name[80];
    assert_true(length < sizeof name);
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += length)
        count += strcspn(at, " ,;)*&[\n") == length;
    return count;
}

static const char *const params[] = {
#define TEXT(name)
#define NATIVE(target, name, ending)
#define PARAMS(name) "params/" #name,
#define TABLE(name)
#include "kernels/texts.def"
#undef TEXT
#undef NATIVE
#undef PARAMS
#undef TABLE
};

/* Whether a file has the block of that name, which it must use by more than the two names of the block itself. */
static bool has_block(const char *file, const char *text, const char *word, size_t length)
{
    char begin[96];
    snprintf(begin, sizeof begin, "typedef struct %.*s {", (int)length, word);
    const uint32_t count = count_word(text, word, length);
    const bool there = strstr(text, begin) != NULL;
    if (there ? count < 3 : count > 0)
        fail_msg("%s %s %.*s and %s", file, there ? "has" : "uses", (int)length, word,
                 there ? "does not use it" : "has it not");
    return there;
}

/* Of any block, a change reaches those programs alone that have to be compiled again. */
static void every_block_has_a_user(void **state)
{
    static const char mark[] = "typedef struct mk_";
    char *text[FILES];
    uint32_t blocks = 0;
    (void)state;
    for (uint32_t i = 0; i < FILES; i++)
        text[i] = text_of(files[i]);
    for (uint32_t p = 0; p < sizeof params / sizeof *params; p++) {
        const char *block = mica__kernel_text(params[p], strlen(params[p]));
        assert_non_null(block);
        for (const char *at = block; (at = strstr(at, mark)) != NULL; at++, blocks++) {
            const char *word = at + sizeof mark - 4;
            uint32_t users = 0;
            for (uint32_t i = 0; i < FILES; i++)
                users += has_block(files[i], text[i], word, strcspn(word, " "));
            assert_true(users > 0 && users < FILES);
        }
    }
    assert_true(blocks > 20);
    for (uint32_t i = 0; i < FILES; i++)
        mica__free(text[i]);
}

static void a_text_stands_there_once(void **state)
{
    (void)state;
    char *text = text_of("matmul|W=18|RAGGED=1"); /* which uses params/weight by itself and through others */
    const char *first = strstr(text, "typedef struct mk_weight {");
    assert_non_null(first);
    assert_null(strstr(first + 1, "typedef struct mk_weight {"));
    assert_non_null(strstr(text, "#define W 18\n#define RAGGED 1\n"));
    assert_true(strstr(text, "} mk_weight;") <
                strstr(text, "mk_matmul_params")); /* what is used comes first */
    mica__free(text);
}

static void a_table_stands_where_it_is_included(void **state)
{
    (void)state;
    char *text = text_of("interpret");
    uint32_t rows = 0;
    for (const char *at = text; (at = strstr(at, "\nPUBLIC(add, 2,")) != NULL; at++)
        rows++;
    assert_int_equal(rows, 5); /* numbers, functions, and what picks one of these */
    assert_null(strstr(text, "#include \"scalars.def\""));
    mica__free(text);
    text = text_of("region"); /* a new row leaves kernels of other programs as they are */
    assert_null(strstr(text, "PUBLIC("));
    mica__free(text);
}

static void no_such_text(void **state)
{
    static mica__device_info info = {.target = "MK_CUDA"};
    (void)state;
    assert_null(mica__program_text(&info, "nothing|A=1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(only_what_is_used),
        test(every_block_has_a_user),
        test(a_text_stands_there_once),
        test(a_table_stands_where_it_is_included),
        test(no_such_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
