/* test_base_host.c: what the host gives: the allocator hook and its counts, the log callback, the
 * environment. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"
#include "mica/host.h"

static void blocks_are_aligned_and_counted(void **state)
{
    void *blocks[100];
    (void)state;
    assert_int_equal(mica_host_allocations(), 0);
    for (size_t i = 0; i < 100; i++) {
        blocks[i] = mica__alloc(i * 37);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % MICA__ALLOC_ALIGN, 0);
        memset(blocks[i], 0xff, i * 37);
    }
    assert_int_equal(mica_host_allocations(), 100);
    assert_true(mica_host_bytes() >= 37 * 99 * 100 / 2);
    for (size_t i = 0; i < 100; i++)
        mica__free(blocks[(i * 7) % 100]);
    mica__free(NULL);
    assert_int_equal(mica_host_allocations(), 0);
    assert_int_equal(mica_host_bytes(), 0);
}

static void calloc_zeroes_and_checks(void **state)
{
    unsigned char *block = mica__calloc(3, 1001);
    (void)state;
    for (size_t i = 0; i < 3003; i++)
        assert_int_equal(block[i], 0);
    mica__free(block);
    assert_null(mica__calloc(SIZE_MAX / 2, 3));
    assert_null(mica__calloc(SIZE_MAX, SIZE_MAX));
    assert_null(mica__alloc(SIZE_MAX));
    assert_null(mica__alloc(SIZE_MAX - 63));
    block = mica__calloc(0, 8);
    assert_non_null(block);
    mica__free(block);
    assert_int_equal(mica_host_bytes(), 0);
}

static void realloc_keeps_the_beginning(void **state)
{
    unsigned char *block = mica__realloc(NULL, 10), *same;
    (void)state;
    for (unsigned i = 0; i < 10; i++)
        block[i] = (unsigned char)(i + 1);
    block = mica__realloc(block, 10000);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(block[i], i + 1);
    same = block;
    assert_null(mica__realloc(block, SIZE_MAX - 10));
    assert_int_equal(same[9], 10); /* intact after a failure */
    block = mica__realloc(block, 3);
    assert_int_equal(block[2], 3);
    assert_int_equal(mica_host_allocations(), 1);
    mica__free(block);
    char *text = mica__strdup("mica");
    assert_string_equal(text, "mica");
    mica__free(text);
    assert_int_equal(mica_host_bytes(), 0);
}

typedef struct counting {
    size_t allocs, releases, bytes;
    bool refuse;
} counting;

static void *counting_alloc(void *context, size_t size, size_t align)
{
    counting *counts = context;
    void *pointer = NULL;
    if (counts->refuse || posix_memalign(&pointer, align, size) != 0)
        return NULL;
    counts->allocs++;
    counts->bytes += size;
    return pointer;
}

static void counting_release(void *context, void *pointer, size_t size)
{
    counting *counts = context;
    counts->releases++;
    counts->bytes -= size;
    free(pointer);
}

static void hook_gets_every_block(void **state)
{
    counting counts = {0, 0, 0, false};
    mica_allocator allocator = {&counts, counting_alloc, counting_release};
    (void)state;
    assert_int_equal(mica_set_allocator(&allocator), MICA_OK);
    allocator.alloc = NULL; /* it was copied */
    void *block = mica__realloc(mica__alloc(100), 200);
    assert_int_equal(counts.allocs, 2);
    assert_int_equal(counts.releases, 1);
    assert_int_equal(counts.bytes, mica_host_bytes());
    assert_int_equal(mica_set_allocator(NULL), MICA_ERR_STATE);
    assert_non_null(strstr(mica_status_message(), "1 blocks"));
    counts.refuse = true;
    assert_null(mica__alloc(1));
    assert_null(mica__strdup("x"));
    assert_int_equal(mica_host_allocations(), 1);
    mica__free(block);
    assert_int_equal(counts.bytes, 0);
    assert_int_equal(mica_set_allocator(&allocator), MICA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(mica_status_message(), "alloc is NULL"));
    assert_int_equal(mica_set_allocator(NULL), MICA_OK);
    mica__free(mica__alloc(1));
    assert_int_equal(counts.allocs, 2);
}

static void churn(void *context)
{
    (void)context;
    for (size_t i = 0; i < 20000; i++)
        mica__free(mica__realloc(mica__alloc(i % 100), i % 300));
}

static void counts_hold_under_threads(void **state)
{
    mica__thread threads[3];
    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(mica__thread_start(&threads[i], "churn", churn, NULL), MICA_OK);
    for (size_t i = 0; i < 3; i++)
        mica__thread_join(&threads[i]);
    assert_int_equal(mica_host_bytes(), 0);
    assert_int_equal(mica_host_allocations(), 0);
}

typedef struct log_record {
    int lines;
    mica_log_level level;
    char text[2048];
} log_record;

static void keep_line(void *context, mica_log_level level, const char *text)
{
    log_record *record = context;
    record->lines++;
    record->level = level;
    snprintf(record->text, sizeof record->text, "%s", text);
    mica__free(mica__alloc(10)); /* a callback may come back into the library */
}

static void log_reaches_the_callback(void **state)
{
    log_record record = {0, MICA_LOG_ERROR, ""};
    char long_text[3000];
    (void)state;
    mica__log(MICA_LOG_ERROR, "nobody listens");
    assert_false(mica__log_wanted());
    mica_set_log(keep_line, &record);
    assert_true(mica__log_wanted());
    mica__log(MICA_LOG_WARNING, "%d %s", 5, "things");
    assert_int_equal(record.lines, 1);
    assert_int_equal(record.level, MICA_LOG_WARNING);
    assert_string_equal(record.text, "5 things");
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    mica__log(MICA_LOG_INFO, "%s", long_text);
    assert_int_equal(strlen(record.text), 1023);
    mica_set_log(NULL, NULL);
    mica__log(MICA_LOG_ERROR, "gone");
    assert_int_equal(record.lines, 2);
}

/* A made-up environment: pairs of name and value, ended by NULL. */
static const char *const *made_up;

static const char *look_up(const char *name)
{
    for (const char *const *pair = made_up; *pair != NULL; pair += 2)
        if (strcmp(pair[0], name) == 0)
            return pair[1];
    return NULL;
}

static mica__env read_env(const char *const *pairs)
{
    mica__env env;
    memset(&env, 0xff, sizeof env);
    made_up = pairs;
    mica__env_read(look_up, &env);
    return env;
}

static void env_is_read(void **state)
{
    static const char *const nothing[] = {NULL};
    static const char *const all[] = {
        "MICA_DEBUG", "poison,,validate", "MICA_THREADS",   "12",           "MICA_DEVICE",
        "cpu",        "MICA_MODE",        "lazy",           "MICA_CPU_ISA", "avx2",
        "MICA_TRACE", "t.json",           "MICA_CACHE_DIR", "cache",        NULL};
    mica__env env = read_env(nothing);
    (void)state;
    assert_int_equal(env.debug, 0);
    assert_int_equal(env.threads, 0);
    assert_string_equal(env.device, "");
    assert_string_equal(env.complaint, "");
    env = read_env(all);
    assert_int_equal(env.debug, MICA__DEBUG_POISON | MICA__DEBUG_VALIDATE);
    assert_int_equal(env.threads, 12);
    assert_string_equal(env.device, "cpu");
    assert_int_equal(env.mode, 2); /* lazy */
    assert_string_equal(env.cpu_isa, "avx2");
    assert_string_equal(env.cache_dir, "cache");
    assert_string_equal(env.trace_path, "t.json");
    assert_string_equal(env.complaint, "");
}

static void modes_have_names(void **state)
{
    static const char *const words[] = {"eager", "lazy", "compiled"};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        const char *const pairs[] = {"MICA_MODE", words[i], NULL};
        const mica__env env = read_env(pairs);
        assert_int_equal(env.mode, i + 1);
        assert_string_equal(env.complaint, "");
    }
    static const char *const wrong[] = {"MICA_MODE", "lazier", NULL};
    const mica__env env = read_env(wrong);
    assert_int_equal(env.mode, 0);
    assert_non_null(strstr(env.complaint, "MICA_MODE: \"lazier\" is none of"));
}

static void every_debug_word_has_its_bit(void **state)
{
    uint32_t seen = 0;
    (void)state;
#define CHECK_WORD(name, word, text)                                 \
    {                                                                \
        static const char *const one[] = {"MICA_DEBUG", word, NULL}; \
        assert_int_equal(read_env(one).debug, MICA__DEBUG_##name);   \
        assert_true(strlen(text) > 10);                              \
        seen |= MICA__DEBUG_##name;                                  \
    }
    MICA__DEBUG_LIST(CHECK_WORD)
#undef CHECK_WORD
    assert_int_equal(seen, MICA__DEBUG_ALL);
}

static void bad_values_are_ignored_and_named(void **state)
{
    static const char *const numbers[] = {"0", "-1", "1025", "99999999999999999999", "4x", " 4", "four"};
    static char long_name[200];
    static const char *const long_device[] = {"MICA_DEVICE", long_name, NULL};
    static const char *const bad_word[] = {"MICA_DEBUG", "log,typo,poisonous", NULL};
    mica__env env;
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const char *const pairs[] = {"MICA_THREADS", numbers[i], NULL};
        env = read_env(pairs);
        assert_int_equal(env.threads, 0);
        assert_non_null(strstr(env.complaint, "MICA_THREADS ignored"));
        assert_non_null(strstr(env.complaint, numbers[i]));
    }
    memset(long_name, 'd', sizeof long_name - 1);
    env = read_env(long_device);
    assert_string_equal(env.device, "");
    assert_non_null(strstr(env.complaint, "MICA_DEVICE ignored: 199 bytes"));
    env = read_env(bad_word);
    assert_int_equal(env.debug, MICA__DEBUG_LOG);
    assert_non_null(strstr(env.complaint, "\"typo\""));
}

/* In a process of its own, since the environment is read once: the complaint waits for a callback, the
 * word log lets debug lines through, poison fills blocks. Returns the number of the first thing that is
 * wrong. */
static int in_a_fresh_process(void)
{
    log_record record = {0, MICA_LOG_ERROR, ""};
    setenv("MICA_DEBUG", "log,poison", 1);
    setenv("MICA_THREADS", "many", 1);
    unsigned char *block = mica__alloc(100);
    if (block[0] == 0 || block[0] != block[99])
        return 1;
    mica_set_log(keep_line, &record);
    if (!mica__env_debug(MICA__DEBUG_LOG) || record.lines != 1 || strstr(record.text, "MICA_THREADS") == NULL)
        return 2;
    mica__log(MICA_LOG_DEBUG, "detail");
    if (record.lines != 2 || strcmp(record.text, "detail") != 0)
        return 3;
    setenv("MICA_DEBUG", "", 1);
    if (!mica__env_debug(MICA__DEBUG_POISON) || mica__env_get()->threads != 0)
        return 4;
    block = mica__calloc(100, 1);
    return block[0] == 0 && block[99] == 0 ? 0 : 5;
}

static pid_t fresh;

static void environment_of_the_process(void **state)
{
    int status = 0;
    (void)state;
    assert_int_equal(waitpid(fresh, &status, 0), fresh);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environment_of_the_process),
        cmocka_unit_test(blocks_are_aligned_and_counted),
        cmocka_unit_test(calloc_zeroes_and_checks),
        cmocka_unit_test(realloc_keeps_the_beginning),
        cmocka_unit_test(hook_gets_every_block),
        cmocka_unit_test(counts_hold_under_threads),
        cmocka_unit_test(log_reaches_the_callback),
        cmocka_unit_test(env_is_read),
        cmocka_unit_test(modes_have_names),
        cmocka_unit_test(every_debug_word_has_its_bit),
        cmocka_unit_test(bad_values_are_ignored_and_named),
    };
    fresh = fork(); /* before anything here has read the environment */
    if (fresh == 0)
        _exit(in_a_fresh_process());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
