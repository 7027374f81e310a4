/*
 * file_write.c: replacing a file in one step: write it without a name, flush, name it.
 *
 * Linux gives files without a name (O_TMPFILE), which are gone with their process, however that ends. Where there are none,
 * and for the moment in which a new file takes the place of an old one, it has a temporary name (file_temporary.h).
 */
#define _GNU_SOURCE /* sync_file_range, O_TMPFILE */
#define _POSIX_C_SOURCE 200809L
#include "base/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file/file_error.h"
#include "base/file/file_temporary.h"

/* Written bytes go to the disk in runs of this many while more are written, so that the flush at the end, which nobody
 * can stop, has little left to do; small enough that a wait for one is short on a slow disk. */
#define RUN_BYTES ((uint64_t)8 << 20)

struct mica__file_writer {
    int descriptor;
    int failure;            /* errno of the first failed write, 0 = none */
    uint64_t size, started; /* written; of that on its way to the disk */
    char *path, *temporary; /* both in the block of this struct; temporary is "" while the file has no name */
};

/* Two blocks of text after the struct: the path, and the path with room for the suffix. */
static mica__file_writer *alloc_writer(const char *path)
{
    const size_t length = strlen(path);
    mica__file_writer *writer = mica__calloc(1, sizeof *writer + 2 * length + 1 + MICA__FILE_TEMPORARY_BYTES);
    if (writer == NULL)
        return NULL;
    writer->path = (char *)(writer + 1);
    writer->temporary = writer->path + length + 1;
    memcpy(writer->path, path, length);
    return writer;
}

/* A file without a name in the folder of the path, or -1: the system, the file system or /proc does not serve. */
static int open_nameless(mica__file_writer *writer)
{
#if defined(__linux__) && defined(O_TMPFILE)
    char way[40];
    mica__file_folder(writer->path, writer->temporary);
    const int descriptor = open(writer->temporary, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    writer->temporary[0] = '\0';
    snprintf(way, sizeof way, "/proc/self/fd/%d", descriptor);
    if (descriptor < 0 || faccessat(AT_FDCWD, way, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return descriptor;
    close(descriptor);
#else
    (void)writer;
#endif
    return -1;
}

/* A name of our own beside the path, never an existing file. Returns the descriptor or -1 with errno. */
static int open_temporary(mica__file_writer *writer)
{
    const size_t capacity = strlen(writer->path) + MICA__FILE_TEMPORARY_BYTES;
    int descriptor;
    for (;;) {
        mica__file_temporary_name(writer->path, writer->temporary, capacity);
        descriptor = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor >= 0 && mica__file_hold(descriptor))
            return descriptor;
        if (descriptor >= 0)
            close(descriptor);
        else if (errno != EEXIST && errno != EINTR)
            return -1;
    }
}

static mica_status open_writer(const char *path, bool named, mica__file_writer **out_writer)
{
    *out_writer = NULL;
    mica__file_writer *writer = alloc_writer(path);
    if (writer == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the handle of \"%s\"", path);
    writer->descriptor = named ? -1 : open_nameless(writer);
    if (writer->descriptor < 0)
        writer->descriptor = open_temporary(writer);
    if (writer->descriptor < 0) {
        const mica_status status = mica__file_fail("create", writer->temporary, errno);
        mica__free(writer);
        return status;
    }
    *out_writer = writer;
    return MICA_OK;
}

void mica__file_writer_hide(mica__file_writer *writer)
{
    if (fchmod(writer->descriptor, 0600) != 0 && writer->failure == 0)
        writer->failure = errno;
}

mica_status mica__file_writer_open(const char *path, mica__file_writer **out_writer)
{
    return open_writer(path, false, out_writer);
}

mica_status mica__file_writer_open_named(const char *path, mica__file_writer **out_writer)
{
    return open_writer(path, true, out_writer);
}

/* Starts the run that is full, after the one before it has arrived. A hint: errors show in the flush. */
static void start_run(mica__file_writer *writer)
{
    if (writer->size - writer->started < RUN_BYTES)
        return;
#ifdef __linux__
    if (writer->started >= RUN_BYTES)
        (void)sync_file_range(writer->descriptor, (off_t)(writer->started - RUN_BYTES), (off_t)RUN_BYTES,
                              SYNC_FILE_RANGE_WAIT_BEFORE);
    (void)sync_file_range(writer->descriptor, (off_t)writer->started, (off_t)(writer->size - writer->started),
                          SYNC_FILE_RANGE_WRITE);
#endif
    writer->started = writer->size;
}

mica_status mica__file_writer_write(mica__file_writer *writer, const void *bytes, size_t size)
{
    const size_t piece = (size_t)1 << 30; /* one write call takes no more than 2 GiB on some systems */
    const char *at = bytes;
    while (size != 0 && writer->failure == 0) {
        const ssize_t put = write(writer->descriptor, at, size < piece ? size : piece);
        if (put < 0) {
            writer->failure = errno == EINTR ? 0 : errno;
            continue;
        }
        at += put;
        size -= (size_t)put;
        writer->size += (uint64_t)put;
        start_run(writer);
    }
    return writer->failure == 0 ? MICA_OK : mica__file_fail("write", writer->path, writer->failure);
}

uint64_t mica__file_writer_size(const mica__file_writer *writer)
{
    return writer->size;
}

/* Makes the new name durable. Some file systems cannot do this for a folder; the rename itself has
 * happened, so that is no failure. */
static void flush_folder(const char *path, char *scratch)
{
    mica__file_folder(path, scratch);
    const int folder = open(scratch, O_RDONLY | O_CLOEXEC);
    if (folder < 0)
        return;
    fsync(folder);
    close(folder);
}

/* Gives a file without a name one that nothing has: returns 0 or an errno. */
static int name_nameless(const mica__file_writer *writer, const char *name)
{
    char way[40];
    snprintf(way, sizeof way, "/proc/self/fd/%d", writer->descriptor);
    return linkat(AT_FDCWD, way, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

/* Gives the file its name, but only if nothing has it: returns 0 or an errno. */
static int name_new(const mica__file_writer *writer)
{
    if (writer->temporary[0] == '\0')
        return name_nameless(writer, writer->path);
    if (link(writer->temporary, writer->path) == 0) {
        unlink(writer->temporary);
        return 0;
    }
    const int failure = errno;
    if (failure == EEXIST || mica__file_exists(writer->path))
        return EEXIST;
    /* A file system without links: the look above is all there is. */
    return rename(writer->temporary, writer->path) == 0 ? 0 : errno;
}

/* The file takes the place of whatever has its name, of a link itself: returns 0 or an errno. */
static int name_over(mica__file_writer *writer)
{
    const size_t capacity = strlen(writer->path) + MICA__FILE_TEMPORARY_BYTES;
    int failure = 0;
    if (writer->temporary[0] == '\0') {
        failure = name_nameless(writer, writer->path);
        if (failure != EEXIST)
            return failure;
        (void)mica__file_hold(writer->descriptor);
        do {
            mica__file_temporary_name(writer->path, writer->temporary, capacity);
            failure = name_nameless(writer, writer->temporary);
        } while (failure == EEXIST);
        if (failure != 0)
            writer->temporary[0] = '\0';
    }
    if (failure == 0 && rename(writer->temporary, writer->path) != 0)
        failure = errno;
    return failure;
}

static void forget(mica__file_writer *writer)
{
    if (writer->temporary[0] != '\0')
        unlink(writer->temporary);
    close(writer->descriptor);
    mica__free(writer);
}

static mica_status commit(mica__file_writer *writer, bool replace)
{
    int failure = writer->failure;
    if (failure == 0 && fsync(writer->descriptor) != 0)
        failure = errno;
    if (failure == 0)
        failure = replace ? name_over(writer) : name_new(writer);
    if (failure != 0) {
        const mica_status status = mica__file_fail(replace ? "replace" : "create", writer->path, failure);
        forget(writer);
        return status;
    }
    flush_folder(writer->path, writer->temporary);
    close(writer->descriptor);
    mica__free(writer);
    return MICA_OK;
}

mica_status mica__file_writer_commit(mica__file_writer *writer)
{
    return commit(writer, true);
}

mica_status mica__file_writer_commit_new(mica__file_writer *writer)
{
    return commit(writer, false);
}

void mica__file_writer_discard(mica__file_writer *writer)
{
    if (writer != NULL)
        forget(writer);
}
