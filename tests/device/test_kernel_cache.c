/* test_kernel_cache.c - compiled kernels on disk: kept, found, damaged, planted, shared, limited, listed, cleared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
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
#include "base/hash.h"
#include "device/kernel_cache.h"
#include "mica/mica.h"
#include "support/folder.h"

static char folder[512], cache[600];

static const mica__kernel_key key = {"device|driver 1", "a text of some kernel"};

static void path_of(const mica__kernel_key *k, char *path, size_t size)
{
    mica__hash128 hash = {0, 0};
    hash = mica__hash_key(k->identity, strlen(k->identity), hash);
    hash = mica__hash_key(k->text, strlen(k->text), hash);
    snprintf(path, size, "%s/%016llx%016llx.kernel", cache, (unsigned long long)hash.high,
             (unsigned long long)hash.low);
}

static bool is_kept(const mica__kernel_key *k)
{
    uint64_t size = 0;
    void *found = mica__kernel_cache_load(k, &size);
    mica__free(found);
    return found != NULL;
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
    assert_null(mica__kernel_cache_load(&key, &size));
    assert_int_equal(size, 0);
    mica__kernel_cache_store(&key, "norm|A=1", bytes, sizeof bytes);
    void *found = mica__kernel_cache_load(&key, &size);
    assert_non_null(found);
    assert_int_equal(size, sizeof bytes);
    assert_memory_equal(found, bytes, sizeof bytes);
    mica__free(found);
    assert_false(is_kept(&(mica__kernel_key){key.identity, "a text of some kerneL"}));
    assert_false(is_kept(&(mica__kernel_key){"device|driver 2", key.text}));
    assert_false(is_kept(&(mica__kernel_key){"device|driver 1a", " text of some kernel"}));
    assert_int_equal(mica_cache_list(&entry, 1, &count), MICA_OK);
    assert_int_equal(count, 1);
    assert_string_equal(entry.name, "norm|A=1");
    assert_true(entry.bytes > sizeof bytes && entry.seconds < 100);
    mica__kernel_cache_store(&key, "empty", bytes, 0); /* nothing to keep */
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
    path_of(&key, path, sizeof path);
    mica__kernel_cache_store(&key, "k", bytes, sizeof bytes);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    const size_t length = (size_t)ftell(file);
    rewind(file);
    whole = malloc(length);
    assert_non_null(whole);
    assert_int_equal(fread(whole, 1, length, file), length);
    fclose(file);
    for (size_t trial = 0; trial < 2 * length; trial++) {
        const size_t at = trial / 2, written = trial % 2 == 0 ? at : length;
        file = fopen(path, "wb");
        assert_non_null(file);
        if (trial % 2 != 0)
            whole[at] ^= 1;
        assert_int_equal(fwrite(whole, 1, written, file), written);
        if (trial % 2 != 0)
            whole[at] ^= 1;
        fclose(file);
        void *found = mica__kernel_cache_load(&key, &size);
        if (found != NULL) { /* the name is the one part that nothing depends on */
            assert_int_equal(trial % 2, 1);
            assert_int_equal(size, sizeof bytes);
            assert_memory_equal(found, bytes, sizeof bytes);
            mica__free(found);
        } else {
            assert_int_equal(size, 0);
            assert_int_not_equal(access(path, F_OK), 0);
        }
    }
    free(whole);
    mica__kernel_cache_store(&key, "k", bytes, sizeof bytes);
    void *found = mica__kernel_cache_load(&key, &size);
    assert_non_null(found);
    mica__free(found);
}

/* ---- what somebody else may have written ---- */

static char warned[1200];
static int warnings;

static void take_log(void *context, mica_log_level level, const char *text)
{
    (void)context;
    if (level != MICA_LOG_WARNING)
        return;
    snprintf(warned, sizeof warned, "%s", text);
    warnings++;
}

static const unsigned char code[] = {1, 2, 3, 4, 5};

/* Before anything else that warns: the reason is said once, and said. */
static void test_warns_once(void **state)
{
    (void)state;
    mica__kernel_cache_store(&key, "k", code, sizeof code);
    assert_int_equal(chmod(cache, 0770), 0);
    assert_false(is_kept(&key)); /* nobody listens: it waits for someone who does */
    mica_set_log(take_log, NULL);
    assert_false(is_kept(&key));
    assert_false(is_kept(&key));
    mica_set_log(NULL, NULL);
    assert_int_equal(chmod(cache, 0700), 0);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warned, cache));
    assert_non_null(strstr(warned, "770"));
    assert_true(is_kept(&key));
}

/* The folder is made for the user alone, and so are the files, whatever the umask. */
static void test_modes(void **state)
{
    char path[700];
    struct stat about;
    (void)state;
    const mode_t before = umask(0);
    mica__kernel_cache_store(&key, "k", code, sizeof code);
    umask(before);
    path_of(&key, path, sizeof path);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(stat(cache, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0700);
    assert_true(is_kept(&key));
}

/* A file or a folder that others may write is passed over, and a file that is made anew is taken again. */
static void test_writable_by_others(void **state)
{
    static const mode_t open_to[] = {0620, 0602, 0666};
    char path[700];
    (void)state;
    path_of(&key, path, sizeof path);
    for (size_t i = 0; i < sizeof open_to / sizeof *open_to; i++) {
        mica__kernel_cache_store(&key, "k", code, sizeof code);
        assert_int_equal(chmod(path, open_to[i]), 0);
        assert_false(is_kept(&key));
        mica__kernel_cache_store(&key, "k", code, sizeof code);
        assert_true(is_kept(&key));
        assert_int_equal(chmod(cache, open_to[i] | 0111), 0);
        assert_false(is_kept(&key));
        unlink(path);
        mica__kernel_cache_store(&key, "k", code,
                                 sizeof code); /* nothing is put where nothing is taken from */
        assert_int_not_equal(access(path, F_OK), 0);
        assert_int_equal(chmod(cache, 0700), 0);
    }
}

/* Another user's file, or folder, is not taken; only root can make one here. */
static void test_other_owner(void **state)
{
    char path[700];
    mica_cache_entry entry;
    uint32_t count = 0;
    (void)state;
    if (geteuid() != 0) {
        print_message("not root: no file can be given to another user\n");
        skip();
    }
    path_of(&key, path, sizeof path);
    mica__kernel_cache_store(&key, "\033[31mred", code, sizeof code);
    assert_int_equal(mica_cache_list(&entry, 1, &count), MICA_OK);
    assert_string_equal(entry.name, "?[31mred");
    assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
    assert_false(is_kept(&key));
    assert_int_equal(mica_cache_list(&entry, 1, &count), MICA_OK);
    assert_string_equal(entry.name, "(of another user)");
    mica__kernel_cache_store(&key, "k", code, sizeof code); /* ours takes its place */
    assert_true(is_kept(&key));
    assert_int_equal(chown(cache, 12345, (gid_t)-1), 0);
    assert_false(is_kept(&key));
    assert_int_equal(chown(cache, 0, (gid_t)-1), 0);
    assert_true(is_kept(&key));
}

/* What root owns is taken by other users too: a folder that an administrator filled. */
static void test_of_root(void **state)
{
    char path[700], above[600];
    int result = 1;
    (void)state;
    if (geteuid() != 0) {
        print_message("not root: nobody else can be asked\n");
        skip();
    }
    path_of(&key, path, sizeof path);
    snprintf(above, sizeof above, "%s/deep", folder);
    mica__kernel_cache_store(&key, "k", code, sizeof code);
    assert_true(chmod(folder, 0755) == 0 && chmod(above, 0755) == 0 && chmod(cache, 0755) == 0 &&
                chmod(path, 0644) == 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (seteuid(12345) != 0 || open(path, O_RDONLY) < 0)
            _exit(0); /* the folder of this test cannot be reached by others */
        _exit(is_kept(&key) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(chmod(cache, 0700), 0);
    assert_int_equal(result, 0);
}

/* A link in place of an entry is not followed; a folder may be one. */
static void test_links(void **state)
{
    char path[700], moved[720];
    (void)state;
    path_of(&key, path, sizeof path);
    mica__kernel_cache_store(&key, "k", code, sizeof code);
    snprintf(moved, sizeof moved, "%s.away", path);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(symlink(moved, path), 0);
    assert_false(is_kept(&key));
    mica__kernel_cache_store(&key, "k", code, sizeof code); /* the link goes, what it led to stays */
    assert_true(is_kept(&key));
    assert_int_equal(access(moved, F_OK), 0);
    unlink(moved);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody waits for a writer */
    assert_false(is_kept(&key));
    unlink(path);
    snprintf(moved, sizeof moved, "%s.away", cache);
    mica__kernel_cache_store(&key, "k", code, sizeof code);
    assert_int_equal(rename(cache, moved), 0);
    assert_int_equal(symlink(moved, cache), 0);
    assert_true(is_kept(&key));
    unlink(cache);
    assert_int_equal(rename(moved, cache), 0);
}

/* An entry under the name of another key, as a text with an equal hash would have it, is not taken: it holds its own. */
static void test_renamed(void **state)
{
    const mica__kernel_key other = {key.identity, "a text of same length"};
    char from[700], to[700];
    (void)state;
    assert_int_equal(strlen(other.text), strlen(key.text));
    path_of(&key, from, sizeof from);
    path_of(&other, to, sizeof to);
    mica__kernel_cache_store(&key, "k", code, sizeof code);
    assert_int_equal(rename(from, to), 0);
    assert_false(is_kept(&other));
    assert_int_not_equal(access(to, F_OK), 0);
}

static void *write_and_read(void *context)
{
    const unsigned char mark = (unsigned char)(uintptr_t)context;
    unsigned char bytes[3000];
    for (int trial = 0; trial < 40; trial++) {
        uint64_t size = 0;
        memset(bytes, 0x77, sizeof bytes); /* the same key means the same bytes, whoever writes */
        mica__kernel_cache_store(&key, mark % 2 != 0 ? "odd" : "even", bytes, sizeof bytes);
        unsigned char *found = mica__kernel_cache_load(&key, &size);
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
    int result = 0;
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
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    assert_int_equal(entries(), 1);
}

/* Past 256 MB the oldest go; what else lies in the folder stays, also when all is cleared. */
static void test_limit(void **state)
{
    const size_t size = (size_t)60 << 20;
    unsigned char *bytes = calloc(1, size);
    char path[700], stranger[700];
    uint32_t removed = 0;
    (void)state;
    assert_non_null(bytes);
    assert_int_equal(mica_cache_clear(NULL), MICA_OK);
    snprintf(stranger, sizeof stranger, "%s/letter.txt", cache);
    FILE *file = fopen(stranger, "w");
    assert_non_null(file);
    fclose(file);
    for (int i = 0; i < 5; i++) {
        const char text[2] = {(char)('0' + i), 0};
        const mica__kernel_key k = {"large", text};
        const struct timespec times[2] = {{1000000000 + (time_t)i, 0}, {1000000000 + (time_t)i, 0}};
        mica__kernel_cache_store(&k, "large", bytes, size);
        path_of(&k, path, sizeof path);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    assert_int_equal(entries(), 4);
    assert_false(is_kept(&(mica__kernel_key){"large", "0"}));
    mica__kernel_cache_store(&key, "too large", bytes, ((uint64_t)64 << 20) + 1);
    assert_int_equal(entries(), 4);
    free(bytes);
    assert_int_equal(mica_cache_clear(&removed), MICA_OK);
    assert_int_equal(removed, 4);
    assert_int_equal(entries(), 0);
    assert_int_equal(access(stranger, F_OK), 0);
}

/* What a process left that was killed while it wrote is no entry, and goes when the next one is stored. */
static void test_unfinished(void **state)
{
    char path[700], left[720];
    uint32_t count = 0;
    (void)state;
    path_of(&key, path, sizeof path);
    snprintf(left, sizeof left, "%s.4711.0.mica-tmp", path);
    FILE *file = fopen(left, "w");
    assert_non_null(file);
    assert_int_equal(fwrite("half", 1, 4, file), 4);
    fclose(file);
    assert_int_equal(mica_cache_list(NULL, 0, &count), MICA_OK);
    assert_int_equal(count, 0);
    mica__kernel_cache_store(&key, "next", "code", 4);
    assert_int_not_equal(access(left, F_OK), 0);
    assert_int_equal(entries(), 1);
    assert_int_equal(mica_cache_clear(NULL), MICA_OK);
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
    mica__kernel_cache_store(&key, "k", &byte, 1);
    assert_null(mica__kernel_cache_load(&key, &size));
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),    cmocka_unit_test(test_warns_once),
        cmocka_unit_test(test_modes),   cmocka_unit_test(test_writable_by_others),
        cmocka_unit_test(test_links),   cmocka_unit_test(test_other_owner),
        cmocka_unit_test(test_renamed), cmocka_unit_test(test_of_root),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_shared),
        cmocka_unit_test(test_limit),   cmocka_unit_test(test_unfinished),
        cmocka_unit_test(test_unusable)};
    if (test_folder_make(folder, sizeof folder, "cache") != 0)
        return 1;
    snprintf(cache, sizeof cache, "%s/deep/er", folder); /* made when it is needed */
    setenv("MICA_CACHE_DIR", cache, 1);                  /* before the environment is read */
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_folder_remove(folder);
    return failed;
}
