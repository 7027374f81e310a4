/* test_kernel_cache.c - compiled kernels on disk: kept, found, damaged, shared, limited, listed, cleared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "device/kernel_cache.h"
#include "mica/mica.h"
#include "support/folder.h"

static char folder[512], cache[600];

static const mica__hash128 key = {0x1234, 0xabcdef0011223344};

static void path_of(mica__hash128 k, char *path, size_t size)
{
    snprintf(path, size, "%s/%016llx%016llx.kernel", cache, (unsigned long long)k.high,
             (unsigned long long)k.low);
}

static uint32_t entries(void)
{
    uint32_t count = 99;
    assert_int_equal(mica_cache_list(NULL, 0, &count), MICA_OK);
    return count;
}

/* Found again, byte for byte, under that key alone; the name is for lists. */
static void test_kept(void **state)
{
    unsigned char bytes[5000];
    uint64_t size = 1;
    mica_cache_entry entry;
    uint32_t count = 0;
    (void)state;
    assert_string_equal(mica_cache_folder(), cache);
    assert_int_equal(entries(), 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    assert_null(mica__kernel_cache_load(key, &size));
    assert_int_equal(size, 0);
    mica__kernel_cache_store(key, "norm|A=1", bytes, sizeof bytes);
    void *found = mica__kernel_cache_load(key, &size);
    assert_non_null(found);
    assert_int_equal(size, sizeof bytes);
    assert_memory_equal(found, bytes, sizeof bytes);
    mica__free(found);
    const mica__hash128 other = {key.low + 1, key.high};
    assert_null(mica__kernel_cache_load(other, &size));
    assert_int_equal(mica_cache_list(&entry, 1, &count), MICA_OK);
    assert_int_equal(count, 1);
    assert_string_equal(entry.name, "norm|A=1");
    assert_true(entry.bytes > sizeof bytes && entry.seconds < 100);
    mica__kernel_cache_store(key, "empty", bytes, 0); /* nothing to keep */
    assert_int_equal(entries(), 1);
}

/* Cut at every length, or one byte changed anywhere: as good as none, and gone. */
static void test_damaged(void **state)
{
    unsigned char bytes[40], *whole = NULL;
    char path[700];
    uint64_t size = 0;
    (void)state;
    memset(bytes, 0x5a, sizeof bytes);
    path_of(key, path, sizeof path);
    mica__kernel_cache_store(key, "k", bytes, sizeof bytes);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    const size_t length = (size_t)ftell(file);
    rewind(file);
    whole = malloc(length);
    assert_non_null(whole);
    assert_int_equal(fread(whole, 1, length, file), length);
    fclose(file);
    for (size_t turn = 0; turn < 2 * length; turn++) {
        const size_t at = turn / 2, written = turn % 2 == 0 ? at : length;
        file = fopen(path, "wb");
        assert_non_null(file);
        if (turn % 2 != 0)
            whole[at] ^= 1;
        assert_int_equal(fwrite(whole, 1, written, file), written);
        if (turn % 2 != 0)
            whole[at] ^= 1;
        fclose(file);
        void *found = mica__kernel_cache_load(key, &size);
        if (found != NULL) { /* the name is the one part that nothing depends on */
            assert_int_equal(turn % 2, 1);
            assert_int_equal(size, sizeof bytes);
            assert_memory_equal(found, bytes, sizeof bytes);
            mica__free(found);
        } else {
            assert_int_equal(size, 0);
            assert_int_not_equal(access(path, F_OK), 0);
        }
    }
    free(whole);
    mica__kernel_cache_store(key, "k", bytes, sizeof bytes);
    void *found = mica__kernel_cache_load(key, &size);
    assert_non_null(found);
    mica__free(found);
}

static void *write_and_read(void *context)
{
    const unsigned char mark = (unsigned char)(uintptr_t)context;
    unsigned char bytes[3000];
    for (int turn = 0; turn < 40; turn++) {
        uint64_t size = 0;
        memset(bytes, 0x77, sizeof bytes); /* the same key means the same bytes, whoever writes */
        mica__kernel_cache_store(key, mark % 2 != 0 ? "odd" : "even", bytes, sizeof bytes);
        unsigned char *found = mica__kernel_cache_load(key, &size);
        if (found == NULL || size != sizeof bytes || memcmp(found, bytes, sizeof bytes) != 0)
            return (void *)1;
        mica__free(found);
    }
    return NULL;
}

/* Threads and processes that write the same entry read a whole one at every moment. */
static void test_shared(void **state)
{
    pthread_t thread[3];
    void *bad = NULL;
    int code = 0;
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(write_and_read((void *)5) != NULL);
    for (uintptr_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, write_and_read, (void *)i), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], &bad);
        assert_null(bad);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    assert_int_equal(entries(), 1);
}

/* Past 256 MB the oldest go; what else lies in the folder stays, also when all is cleared. */
static void test_limit(void **state)
{
    const size_t size = (size_t)60 << 20;
    unsigned char *bytes = calloc(1, size);
    char path[700], stranger[700];
    uint32_t removed = 0;
    uint64_t found_size = 0;
    (void)state;
    assert_non_null(bytes);
    assert_int_equal(mica_cache_clear(NULL), MICA_OK);
    snprintf(stranger, sizeof stranger, "%s/letter.txt", cache);
    FILE *file = fopen(stranger, "w");
    assert_non_null(file);
    fclose(file);
    for (uint64_t i = 0; i < 5; i++) {
        const mica__hash128 k = {i, 7};
        const struct timespec times[2] = {{1000000000 + (time_t)i, 0}, {1000000000 + (time_t)i, 0}};
        mica__kernel_cache_store(k, "large", bytes, size);
        path_of(k, path, sizeof path);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    assert_int_equal(entries(), 4);
    assert_null(mica__kernel_cache_load((mica__hash128){0, 7}, &found_size));
    mica__kernel_cache_store((mica__hash128){9, 9}, "too large", bytes, ((uint64_t)64 << 20) + 1);
    assert_int_equal(entries(), 4);
    free(bytes);
    assert_int_equal(mica_cache_clear(&removed), MICA_OK);
    assert_int_equal(removed, 4);
    assert_int_equal(entries(), 0);
    assert_int_equal(access(stranger, F_OK), 0);
}

/* What a process left that was killed while it wrote is listed, and cleared. */
static void test_unfinished(void **state)
{
    char path[700], left[720];
    mica_cache_entry entry;
    uint32_t count = 0, removed = 0;
    (void)state;
    path_of(key, path, sizeof path);
    snprintf(left, sizeof left, "%s.4711.0.tmp", path);
    FILE *file = fopen(left, "w");
    assert_non_null(file);
    assert_int_equal(fwrite("half", 1, 4, file), 4);
    fclose(file);
    assert_int_equal(mica_cache_list(&entry, 1, &count), MICA_OK);
    assert_int_equal(count, 1);
    assert_string_equal(entry.name, "(unfinished)");
    assert_int_equal(entry.bytes, 4);
    assert_int_equal(mica_cache_clear(&removed), MICA_OK);
    assert_int_equal(removed, 1);
    assert_int_not_equal(access(left, F_OK), 0);
}

/* A folder that is a file: no cache, no failure but in the list. */
static void test_unusable(void **state)
{
    char moved[700];
    unsigned char byte = 1;
    uint64_t size = 3;
    uint32_t count;
    (void)state;
    snprintf(moved, sizeof moved, "%s.away", cache);
    assert_int_equal(rename(cache, moved), 0);
    assert_int_equal(entries(), 0); /* not there: none */
    FILE *file = fopen(cache, "w");
    assert_non_null(file);
    fclose(file);
    mica__kernel_cache_store(key, "k", &byte, 1);
    assert_null(mica__kernel_cache_load(key, &size));
    assert_int_equal(mica_cache_list(NULL, 0, &count), MICA_ERR_IO);
    assert_non_null(strstr(mica_status_message(), cache));
    assert_int_equal(mica_cache_clear(NULL), MICA_ERR_IO);
    assert_int_equal(mica_cache_list(NULL, 0, NULL), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(mica_cache_list(NULL, 1, &count), MICA_ERR_INVALID_ARGUMENT);
    unlink(cache);
    assert_int_equal(rename(moved, cache), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kept),       cmocka_unit_test(test_damaged),
                                       cmocka_unit_test(test_shared),     cmocka_unit_test(test_limit),
                                       cmocka_unit_test(test_unfinished), cmocka_unit_test(test_unusable)};
    if (test_folder_make(folder, sizeof folder, "cache") != 0)
        return 1;
    snprintf(cache, sizeof cache, "%s/deep/er", folder); /* made when it is needed */
    setenv("MICA_CACHE_DIR", cache, 1);                  /* before the environment is read */
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_folder_remove(folder);
    return failed;
}
