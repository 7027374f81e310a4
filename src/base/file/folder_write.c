/* folder_write.c: a folder that appears whole: made under a temporary name beside its place, and renamed. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file/file.h"
#include "base/file/file_error.h"
#include "base/file/file_temporary.h"

struct mica__folder_writer {
    int descriptor;          /* its lock */
    char *place, *temporary; /* both in the block of this struct */
};

/* Returns the descriptor or -1 with errno. */
static int make_folder(mica__folder_writer *writer)
{
    for (;;) {
        mica__file_temporary_name(writer->place, writer->temporary,
                                  strlen(writer->place) + MICA__FILE_TEMPORARY_BYTES);
        if (mkdir(writer->temporary, 0777) != 0) {
            if (errno == EEXIST)
                continue;
            return -1;
        }
        const int descriptor = open(writer->temporary, O_RDONLY | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
        if (descriptor >= 0 && mica__file_hold(descriptor))
            return descriptor;
        if (descriptor < 0 && errno != ENOENT)
            return -1;
        if (descriptor >= 0)
            close(descriptor);
    }
}

mica_status mica__folder_writer_open(const char *path, mica__folder_writer **out_writer)
{
    size_t length = strlen(path);
    *out_writer = NULL;
    mica__folder_writer *writer =
        mica__calloc(1, sizeof *writer + 2 * length + 2 + MICA__FILE_TEMPORARY_BYTES);
    if (writer == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the handle of \"%s\"", path);
    writer->place = (char *)(writer + 1);
    writer->temporary = writer->place + length + 1;
    while (length > 1 && path[length - 1] == '/')
        length--;
    memcpy(writer->place, path, length);
    writer->descriptor = make_folder(writer);
    if (writer->descriptor < 0) {
        const mica_status status = mica__file_fail("create the folder", writer->place, errno);
        mica__free(writer);
        return status;
    }
    *out_writer = writer;
    return MICA_OK;
}

const char *mica__folder_writer_path(const mica__folder_writer *writer)
{
    return writer->temporary;
}

mica_status mica__folder_writer_commit(mica__folder_writer *writer)
{
    mica_status status = MICA_OK;
    (void)fsync(writer->descriptor); /* some file systems cannot; the files were flushed each */
    if (rename(writer->temporary, writer->place) != 0) {
        status = mica__file_fail("create the folder", writer->place, errno);
        mica__folder_writer_discard(writer);
        return status;
    }
    mica__file_folder(writer->place, writer->temporary);
    const int parent = open(writer->temporary, O_RDONLY | O_CLOEXEC);
    if (parent >= 0) {
        (void)fsync(parent);
        close(parent);
    }
    close(writer->descriptor);
    mica__free(writer);
    return status;
}

void mica__folder_writer_discard(mica__folder_writer *writer)
{
    if (writer == NULL)
        return;
    mica__file_remove_folder(writer->temporary);
    close(writer->descriptor);
    mica__free(writer);
}
