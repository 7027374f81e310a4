/* test_base_file.c: exact reads, mapping, and replacement that is seen whole or not at all. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file/file.h"
#include "mica/host.h"
#include "support/folder.h"

static char folder[256];

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int enter(void **state)
{
    (void)state;
    return test_folder_make(folder, sizeof folder, "file");
}

static int leave(void **state)
{
    (void)state;
    return test_folder_remove(folder);
}

static void put_file(const char *path, const void *bytes, size_t size)
{
    mica__file_writer *writer = NULL;
    assert_int_equal(mica__file_writer_open(path, &writer), MICA_OK);
    assert_int_equal(mica__file_writer_write(writer, bytes, size), MICA_OK);
    assert_int_equal(mica__file_writer_commit(writer), MICA_OK);
}

static void expect_contents(const char *path, const char *text)
{
    void *data = NULL;
    size_t size = 0;
    assert_int_equal(mica__file_read_all(path, 1 << 20, &data, &size), MICA_OK);
    assert_int_equal(size, strlen(text));
    assert_string_equal(data, text); /* a NUL follows the bytes */
    mica__free(data);
}

static void reads_are_exact(void **state)
{
    mica__file *file = NULL;
    char bytes[16];
    (void)state;
    put_file(path_of("ten"), "0123456789", 10);
    assert_int_equal(mica__file_open_read(path_of("ten"), &file), MICA_OK);
    assert_int_equal(mica__file_size(file), 10);
    assert_string_equal(mica__file_path(file), path_of("ten"));
    assert_int_equal(mica__file_read_at(file, 3, bytes, 4), MICA_OK);
    assert_memory_equal(bytes, "3456", 4);
    assert_int_equal(mica__file_read_at(file, 10, bytes, 0), MICA_OK);
    assert_int_equal(mica__file_read_at(file, 7, bytes, 4), MICA_ERR_MALFORMED_FILE);
    assert_non_null(strstr(mica_status_message(), "4 bytes wanted at offset 7, the file has 10"));
    assert_int_equal(mica__file_read_at(file, UINT64_MAX, bytes, 1), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(mica__file_read_at(file, 1, bytes, SIZE_MAX), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(truncate(path_of("ten"), 5), 0);
    assert_int_equal(mica__file_read_at(file, 3, bytes, 4), MICA_ERR_MALFORMED_FILE);
    assert_non_null(strstr(mica_status_message(), "ended at offset 5"));
    mica__file_close(file);
    mica__file_close(NULL);
}

static void read_all_obeys_its_limit(void **state)
{
    void *data = (void *)-1;
    size_t size = 7;
    (void)state;
    put_file(path_of("limit"), "0123456789", 10);
    assert_int_equal(mica__file_read_all(path_of("limit"), 9, &data, &size), MICA_ERR_BUDGET);
    assert_null(data);
    assert_int_equal(size, 0);
    assert_int_equal(mica__file_read_all(path_of("limit"), 10, &data, &size), MICA_OK);
    mica__free(data);
    put_file(path_of("limit"), "", 0);
    expect_contents(path_of("limit"), "");
}

static void what_is_no_file_is_refused(void **state)
{
    mica__file *file = (mica__file *)-1;
    (void)state;
    assert_int_equal(mica__file_open_read(path_of("missing"), &file), MICA_ERR_IO);
    assert_null(file);
    assert_non_null(strstr(mica_status_message(), "missing\": No such file"));
    assert_int_equal(mica__file_open_read(folder, &file), MICA_ERR_IO);
    assert_non_null(strstr(mica_status_message(), "it is a folder"));
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    assert_int_equal(mica__file_open_read(path_of("pipe"), &file), MICA_ERR_IO); /* and does not block */
    assert_non_null(strstr(mica_status_message(), "it is a pipe"));
    assert_int_equal(unlink(path_of("pipe")), 0);
}

static void mapping_outlives_the_handle(void **state)
{
    static char pattern[50001];
    mica__file *file = NULL;
    mica__file_map map;
    (void)state;
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (char)(i * 31 + i / 256);
    put_file(path_of("map"), pattern, sizeof pattern);
    assert_int_equal(mica__file_open_read(path_of("map"), &file), MICA_OK);
    assert_int_equal(mica__file_map_open(file, &map), MICA_OK);
    mica__file_close(file);
    assert_int_equal(map.size, sizeof pattern);
    for (int advice = MICA__FILE_ADVICE_NORMAL; advice <= MICA__FILE_ADVICE_DONT_NEED; advice++) {
        mica__file_map_advise(&map, 0, map.size, (mica__file_advice)advice);
        mica__file_map_advise(&map, 5000, 10, (mica__file_advice)advice);
        mica__file_map_advise(&map, 5000, SIZE_MAX, (mica__file_advice)advice);
        mica__file_map_advise(&map, SIZE_MAX, 1, (mica__file_advice)advice);
        assert_memory_equal(map.data, pattern, sizeof pattern);
    }
    mica__file_map_close(&map);
    assert_null(map.data);
    mica__file_map_close(&map);
    put_file(path_of("map"), "", 0);
    assert_int_equal(mica__file_open_read(path_of("map"), &file), MICA_OK);
    assert_int_equal(mica__file_map_open(file, &map), MICA_OK);
    assert_null(map.data);
    mica__file_map_advise(&map, 0, 1, MICA__FILE_ADVICE_WILL_NEED);
    mica__file_close(file);
}

typedef mica_status (*opener)(const char *path, mica__file_writer **out_writer);

/* Where the system has files without names, and where it has not. */
static const opener openers[] = {mica__file_writer_open, mica__file_writer_open_named};

static void old_file_stays_until_commit(void **state)
{
    mica__file_writer *writer = NULL;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        put_file(path_of("atomic"), "old", 3);
        const uint32_t before = test_folder_count(folder);
        assert_int_equal(openers[i](path_of("atomic"), &writer), MICA_OK);
        assert_int_equal(mica__file_writer_write(writer, "new ", 4), MICA_OK);
        assert_int_equal(mica__file_writer_write(writer, "text", 4), MICA_OK);
        assert_int_equal(mica__file_writer_size(writer), 8);
        expect_contents(path_of("atomic"), "old");
        assert_in_range(test_folder_count(folder), before + (i != 0), before + 1);
        mica__file_sweep(path_of("atomic")); /* what someone is writing stays */
        assert_int_equal(mica__file_writer_commit(writer), MICA_OK);
        expect_contents(path_of("atomic"), "new text");
        assert_int_equal(test_folder_count(folder), before);
    }
}

/* A link is replaced or refused, never followed. */
static void links_are_not_followed(void **state)
{
    mica__file_writer *writer = NULL;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        put_file(path_of("victim"), "old", 3);
        (void)unlink(path_of("link"));
        assert_int_equal(symlink("victim", path_of("link")), 0);
        assert_int_equal(openers[i](path_of("link"), &writer), MICA_OK);
        assert_int_equal(mica__file_writer_write(writer, "new", 3), MICA_OK);
        assert_int_equal(mica__file_writer_commit(writer), MICA_OK);
        expect_contents(path_of("victim"), "old");
        expect_contents(path_of("link"), "new");
        assert_int_equal(unlink(path_of("link")), 0);
        assert_int_equal(symlink("nowhere", path_of("link")), 0);
        assert_int_equal(openers[i](path_of("link"), &writer), MICA_OK);
        assert_int_equal(mica__file_writer_commit_new(writer), MICA_ERR_IO);
        assert_int_not_equal(access(path_of("nowhere"), F_OK), 0);
    }
}

/* Processes that are killed while they write: without names nothing is left, of the rest the next sweep leaves nothing. */
static void what_the_killed_leave_is_swept(void **state)
{
    (void)state;
    const uint32_t before = test_folder_count(folder);
    for (size_t i = 0; i < 2; i++) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) {
            mica__file_writer *writer = NULL;
            mica__folder_writer *other = NULL;
            if (openers[i](path_of("killed"), &writer) != MICA_OK ||
                mica__file_writer_write(writer, "x", 1) != MICA_OK ||
                mica__folder_writer_open(path_of("killed_folder"), &other) != MICA_OK)
                _exit(1);
            char inside[600];
            snprintf(inside, sizeof inside, "%s/a", mica__folder_writer_path(other));
            put_file(inside, "x", 1);
            raise(SIGKILL);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_true(test_folder_count(folder) > before);
        mica__file_sweep(path_of("killed"));
        assert_int_equal(test_folder_count(folder), before);
    }
}

static void folders_appear_whole(void **state)
{
    mica__folder_writer *writer = NULL;
    char inside[600];
    (void)state;
    const uint32_t before = test_folder_count(folder);
    for (int commit = 1; commit >= 0; commit--) {
        assert_int_equal(mica__folder_writer_open(path_of("made//"), &writer), MICA_OK);
        snprintf(inside, sizeof inside, "%s/a", mica__folder_writer_path(writer));
        put_file(inside, "x", 1);
        if (!commit) { /* folders of files go too, links as links */
            snprintf(inside, sizeof inside, "%s/b", mica__folder_writer_path(writer));
            assert_int_equal(mkdir(inside, 0777), 0);
            snprintf(inside, sizeof inside, "%s/b/a", mica__folder_writer_path(writer));
            put_file(inside, "x", 1);
            snprintf(inside, sizeof inside, "%s/c", mica__folder_writer_path(writer));
            assert_int_equal(symlink(folder, inside), 0);
        }
        mica__file_sweep(path_of("made"));
        assert_int_not_equal(access(path_of("made/a"), F_OK), 0);
        if (commit)
            assert_int_equal(mica__folder_writer_commit(writer), MICA_OK);
        else
            mica__folder_writer_discard(writer);
        assert_int_equal(access(path_of("made/a"), F_OK) == 0, commit);
        if (commit)
            test_folder_remove(path_of("made"));
        assert_int_equal(test_folder_count(folder), before);
    }
}

static void discard_leaves_no_trace(void **state)
{
    mica__file_writer *writer = NULL, *second = NULL;
    (void)state;
    const uint32_t before = test_folder_count(folder);
    assert_int_equal(mica__file_writer_open(path_of("never"), &writer), MICA_OK);
    assert_int_equal(mica__file_writer_open(path_of("never"), &second),
                     MICA_OK); /* two at once do not meet */
    assert_int_equal(mica__file_writer_write(writer, "x", 1), MICA_OK);
    mica__file_writer_discard(writer);
    mica__file_writer_discard(second);
    mica__file_writer_discard(NULL);
    assert_int_equal(test_folder_count(folder), before);
}

static void failed_commit_keeps_the_old(void **state)
{
    mica__file_writer *writer = NULL;
    (void)state;
    const uint32_t before = test_folder_count(folder);
    assert_int_equal(mica__file_writer_open(path_of("no_folder/x"), &writer), MICA_ERR_IO);
    assert_null(writer);
    assert_int_equal(mkdir(path_of("taken"), 0700), 0);
    assert_int_equal(mica__file_writer_open(path_of("taken"), &writer), MICA_OK);
    assert_int_equal(mica__file_writer_commit(writer), MICA_ERR_IO); /* a file cannot replace a folder */
    assert_non_null(strstr(mica_status_message(), "cannot replace"));
    assert_int_equal(rmdir(path_of("taken")), 0);
    assert_int_equal(test_folder_count(folder), before);
}

/* With a limit on file sizes a write fails halfway. Returns the number of the first thing that is wrong. */
static int write_past_the_limit(void)
{
    static char block[4096];
    const struct rlimit limit = {6000, 6000};
    mica__file_writer *writer = NULL;
    void *data = NULL;
    size_t size = 0;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || mica__file_writer_open(path_of("full"), &writer) != MICA_OK)
        return 1;
    if (mica__file_writer_write(writer, block, sizeof block) != MICA_OK)
        return 2;
    if (mica__file_writer_write(writer, block, sizeof block) != MICA_ERR_IO)
        return 3;
    if (mica__file_writer_write(writer, block, 1) != MICA_ERR_IO) /* kept */
        return 4;
    if (mica__file_writer_commit(writer) != MICA_ERR_IO || mica_host_bytes() != 0)
        return 5;
    return mica__file_read_all(path_of("full"), 100, &data, &size) == MICA_OK && memcmp(data, "old", 3) == 0
               ? 0
               : 6;
}

static void failed_write_keeps_the_old(void **state)
{
    int status = 0;
    (void)state;
    put_file(path_of("full"), "old", 3);
    const uint32_t before = test_folder_count(folder);
    const pid_t child = fork();
    if (child == 0)
        _exit(write_past_the_limit());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(test_folder_count(folder), before);
}

static void *no_memory(void *context, size_t size, size_t align)
{
    (void)context;
    (void)size;
    (void)align;
    return NULL;
}

static void no_release(void *context, void *pointer, size_t size)
{
    (void)context;
    (void)pointer;
    (void)size;
}

static void no_memory_is_a_status(void **state)
{
    const mica_allocator allocator = {NULL, no_memory, no_release};
    mica__file *file = NULL;
    mica__file_writer *writer = NULL;
    void *data = NULL;
    size_t size = 0;
    (void)state;
    put_file(path_of("memory"), "x", 1);
    const uint32_t before = test_folder_count(folder);
    assert_int_equal(mica_host_allocations(), 0);
    assert_int_equal(mica_set_allocator(&allocator), MICA_OK);
    assert_int_equal(mica__file_open_read(path_of("memory"), &file), MICA_ERR_OUT_OF_MEMORY);
    assert_int_equal(mica__file_read_all(path_of("memory"), 10, &data, &size), MICA_ERR_OUT_OF_MEMORY);
    assert_int_equal(mica__file_writer_open(path_of("memory"), &writer), MICA_ERR_OUT_OF_MEMORY);
    assert_int_equal(mica_set_allocator(NULL), MICA_OK);
    assert_int_equal(test_folder_count(folder), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_are_exact),
        cmocka_unit_test(read_all_obeys_its_limit),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(mapping_outlives_the_handle),
        cmocka_unit_test(old_file_stays_until_commit),
        cmocka_unit_test(links_are_not_followed),
        cmocka_unit_test(what_the_killed_leave_is_swept),
        cmocka_unit_test(folders_appear_whole),
        cmocka_unit_test(discard_leaves_no_trace),
        cmocka_unit_test(failed_commit_keeps_the_old),
        cmocka_unit_test(failed_write_keeps_the_old),
        cmocka_unit_test(no_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
