/* file_temporary.c: names of what is not finished, and what killed processes left of it. */
#define _DEFAULT_SOURCE /* flock */
#define _POSIX_C_SOURCE 200809L
#include "base/file/file_temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file/file.h"

void mica__file_folder(const char *path, char *out)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(out, length == 0 ? "." : path, length == 0 ? 1 : length);
    out[length == 0 ? 1 : length] = '\0';
}

void mica__file_temporary_name(const char *path, char *out, size_t size)
{
    static _Atomic unsigned next_number;
    const unsigned number = atomic_fetch_add_explicit(&next_number, 1, memory_order_relaxed);
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    snprintf(out, size, "%.*s.%ld.%u" MICA__FILE_TEMPORARY, (int)length, path, (long)getpid(), number);
}

/* Between its making and its lock a sweep may take it: then it is locked, or has no name any more. */
bool mica__file_hold(int descriptor)
{
    struct stat info;
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return false;
    return fstat(descriptor, &info) != 0 || info.st_nlink != 0;
}

static bool is_temporary(const char *name)
{
    const size_t length = strlen(name), tail = sizeof MICA__FILE_TEMPORARY - 1;
    return length > tail && strcmp(name + length - tail, MICA__FILE_TEMPORARY) == 0;
}

/* A folder of ours holds files, and folders of files: two levels. */
static void empty_folder(int folder, int levels)
{
    DIR *listing = fdopendir(folder);
    if (listing == NULL) {
        close(folder);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        const char *name = entry->d_name;
        if (unlinkat(dirfd(listing), name, 0) == 0 || levels == 1 || strcmp(name, ".") == 0 ||
            strcmp(name, "..") == 0)
            continue;
        const int inside = openat(dirfd(listing), name, O_RDONLY | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
        if (inside >= 0)
            empty_folder(inside, levels - 1);
        (void)unlinkat(dirfd(listing), name, AT_REMOVEDIR);
    }
    closedir(listing);
}

void mica__file_remove_folder(const char *path)
{
    const int folder = open(path, O_RDONLY | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0)
        empty_folder(folder, 2);
    (void)rmdir(path);
}

/* Removes it if no process holds it. Its lock is ours until it is gone. */
static void sweep_one(int folder, const char *name)
{
    struct stat info;
    const int descriptor = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return;
    if (fstat(descriptor, &info) == 0 && flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
        if (S_ISREG(info.st_mode)) {
            (void)unlinkat(folder, name, 0);
        } else if (S_ISDIR(info.st_mode)) {
            const int inside = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
            if (inside >= 0)
                empty_folder(inside, 2);
            (void)unlinkat(folder, name, AT_REMOVEDIR);
        }
    }
    close(descriptor);
}

void mica__file_sweep(const char *path)
{
    char *folder = mica__alloc(strlen(path) + 2);
    if (folder == NULL)
        return;
    mica__file_folder(path, folder);
    DIR *listing = opendir(folder);
    mica__free(folder);
    if (listing == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;)
        if (is_temporary(entry->d_name))
            sweep_one(dirfd(listing), entry->d_name);
    closedir(listing);
}
