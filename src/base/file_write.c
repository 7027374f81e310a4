/* file_write.c: replacing a file in one step: write beside it, flush, rename. */
#define _GNU_SOURCE /* sync_file_range */
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file_error.h"

/* Written bytes go to the disk in runs of this many while more are written, so that the flush at the end, which nobody
 * can stop, has little left to do; small enough that a wait for one is short on a slow disk. */
#define RUN_BYTES ((uint64_t)8 << 20)

/* Room for ".<process>.<number>.tmp" and a NUL. */
#define SUFFIX_BYTES 48

struct mica__file_writer {
    int descriptor;
    int failure;            /* errno of the first failed write, 0 = none */
    uint64_t size, started; /* written; of that on its way to the disk */
    char *path, *temporary; /* both in the block of this struct */
};

/* Two blocks of text after the struct: the path, and the path with room for the suffix. */
static mica__file_writer *alloc_writer(const char *path)
{
    const size_t length = strlen(path);
    mica__file_writer *writer = mica__calloc(1, sizeof *writer + 2 * length + 1 + SUFFIX_BYTES);
    if (writer == NULL)
        return NULL;
    writer->path = (char *)(writer + 1);
    writer->temporary = writer->path + length + 1;
    memcpy(writer->path, path, length);
    return writer;
}

/* A name of our own beside the path, never an existing file. Returns the descriptor or -1 with errno. */
static int open_temporary(mica__file_writer *writer)
{
    static _Atomic unsigned next_number;
    const size_t capacity = strlen(writer->path) + SUFFIX_BYTES;
    int descriptor;
    do {
        const unsigned number = atomic_fetch_add_explicit(&next_number, 1, memory_order_relaxed);
        snprintf(writer->temporary, capacity, "%s.%ld.%u.tmp", writer->path, (long)getpid(), number);
        descriptor = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor < 0 && (errno == EEXIST || errno == EINTR));
    return descriptor;
}

mica_status mica__file_writer_open(const char *path, mica__file_writer **out_writer)
{
    *out_writer = NULL;
    mica__file_writer *writer = alloc_writer(path);
    if (writer == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the handle of \"%s\"", path);
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
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(scratch, length == 0 ? "." : path, length == 0 ? 1 : length);
    scratch[length == 0 ? 1 : length] = '\0';
    const int folder = open(scratch, O_RDONLY | O_CLOEXEC);
    if (folder < 0)
        return;
    fsync(folder);
    close(folder);
}

/* Gives the temporary file its name, but only if nothing has it: returns 0 or an errno. */
static int name_new(const mica__file_writer *writer)
{
    if (link(writer->temporary, writer->path) == 0) {
        unlink(writer->temporary);
        return 0;
    }
    const int failure = errno;
    if (failure == EEXIST || mica__file_look(writer->path) != MICA__FILE_KIND_NONE)
        return EEXIST;
    /* A file system without links: the look above is all there is. */
    return rename(writer->temporary, writer->path) == 0 ? 0 : errno;
}

/* Flush, close, rename; returns 0 or an errno. The descriptor is closed in any case. */
static int finish_file(mica__file_writer *writer, bool replace)
{
    int failure = writer->failure;
    if (failure == 0 && fsync(writer->descriptor) != 0)
        failure = errno;
    if (close(writer->descriptor) != 0 && failure == 0)
        failure = errno;
    writer->descriptor = -1;
    if (failure == 0 && !replace)
        return name_new(writer);
    if (failure == 0 && rename(writer->temporary, writer->path) != 0)
        failure = errno;
    return failure;
}

static mica_status commit(mica__file_writer *writer, bool replace)
{
    mica_status status = MICA_OK;
    const int failure = finish_file(writer, replace);
    if (failure == 0) {
        flush_folder(writer->path, writer->temporary);
    } else {
        unlink(writer->temporary);
        status = mica__file_fail(replace ? "replace" : "create", writer->path, failure);
    }
    mica__free(writer);
    return status;
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
    if (writer == NULL)
        return;
    close(writer->descriptor);
    unlink(writer->temporary);
    mica__free(writer);
}
