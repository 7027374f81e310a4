/* file.c: reading and mapping. Writing is in file_write.c. */
#if defined(__APPLE__)
#define _DARWIN_C_SOURCE /* madvise */
#else
#define _DEFAULT_SOURCE /* madvise */
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700 /* realpath */
#endif
#include "base/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file/file_error.h"
#include "base/work.h"

struct mica__file {
    int descriptor;       /* -1: a memory file */
    const uint8_t *bytes; /* of a memory file, the caller's; else NULL */
    uint64_t size;
    char path[]; /* NUL-terminated */
};

static const char *kind_of(mode_t mode)
{
    return S_ISREG(mode)    ? "a file"
           : S_ISDIR(mode)  ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

/* Whether nobody but the user and root can have changed what was looked at. */
static mica_status check_own(const char *path, const struct stat *info)
{
    if (info->st_uid != geteuid() && info->st_uid != 0)
        return mica__fail(MICA_ERR_IO, "\"%s\" belongs to user %lu, expected %lu or root", path,
                          (unsigned long)info->st_uid, (unsigned long)geteuid());
    if ((info->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return mica__fail(MICA_ERR_IO, "\"%s\" can be written by others: its mode is %03o", path,
                          (unsigned)(info->st_mode & 0777));
    return MICA_OK;
}

/* Opens and looks at a file; the descriptor is the caller's. `own`: only one that no other user can have written. */
static mica_status open_regular(const char *path, bool own, int *out_descriptor, uint64_t *out_size)
{
    struct stat info;
    /* Without O_NONBLOCK a pipe would block here until someone writes to it. */
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (own ? O_NOFOLLOW : 0));
    if (descriptor < 0)
        return mica__file_fail("open", path, errno);
    if (fstat(descriptor, &info) != 0) {
        const int reason = errno;
        close(descriptor);
        return mica__file_fail("examine", path, reason);
    }
    if (!S_ISREG(info.st_mode)) {
        close(descriptor);
        return mica__fail(MICA_ERR_IO, "cannot read \"%s\": it is %s, expected a file", path,
                          kind_of(info.st_mode));
    }
    const mica_status status = own ? check_own(path, &info) : MICA_OK;
    if (status != MICA_OK) {
        close(descriptor);
        return status;
    }
    *out_descriptor = descriptor;
    *out_size = (uint64_t)info.st_size;
    return MICA_OK;
}

static mica__file *alloc_file(const char *path, uint64_t size)
{
    const size_t path_size = strlen(path) + 1;
    mica__file *file = mica__alloc(sizeof *file + path_size);
    if (file == NULL) {
        mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the handle of \"%s\"", path);
        return NULL;
    }
    file->descriptor = -1;
    file->bytes = NULL;
    file->size = size;
    memcpy(file->path, path, path_size);
    return file;
}

static mica_status open_file(const char *path, bool own, mica__file **out_file)
{
    int descriptor = -1;
    uint64_t size = 0;
    *out_file = NULL;
    const mica_status status = open_regular(path, own, &descriptor, &size);
    if (status != MICA_OK)
        return status;
    mica__file *file = alloc_file(path, size);
    if (file == NULL) {
        close(descriptor);
        return MICA_ERR_OUT_OF_MEMORY;
    }
    file->descriptor = descriptor;
    *out_file = file;
    return MICA_OK;
}

mica_status mica__file_open_read(const char *path, mica__file **out_file)
{
    return open_file(path, false, out_file);
}

mica_status mica__file_open_own(const char *path, mica__file **out_file)
{
    return open_file(path, true, out_file);
}

mica_status mica__file_check_own_folder(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return mica__file_fail("examine", path, errno);
    if (!S_ISDIR(info.st_mode))
        return mica__fail(MICA_ERR_IO, "\"%s\" is no folder", path);
    return check_own(path, &info);
}

mica_status mica__file_from_bytes(const char *name, const void *bytes, uint64_t size, mica__file **out_file)
{
    mica__file *file = alloc_file(name, size);
    *out_file = file;
    if (file == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    file->bytes = bytes;
    return MICA_OK;
}

mica__file_kind mica__file_look(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return MICA__FILE_KIND_NONE;
    return S_ISREG(info.st_mode)   ? MICA__FILE_KIND_REGULAR
           : S_ISDIR(info.st_mode) ? MICA__FILE_KIND_FOLDER
                                   : MICA__FILE_KIND_OTHER;
}

bool mica__file_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

const char *mica__file_kind_name(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? kind_of(info.st_mode) : "nothing";
}

bool mica__file_same(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

void mica__file_close(mica__file *file)
{
    if (file == NULL)
        return;
    if (file->descriptor >= 0)
        close(file->descriptor);
    mica__free(file);
}

uint64_t mica__file_size(const mica__file *file)
{
    return file->size;
}

const char *mica__file_path(const mica__file *file)
{
    return file->path;
}

mica_status mica__file_read_at(const mica__file *file, uint64_t offset, void *out_bytes, size_t size)
{
    const size_t piece = (size_t)1 << 30; /* one read call takes no more than 2 GiB on some systems */
    char *at = out_bytes;
    if (offset > file->size || size > file->size - offset)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "\"%s\": %zu bytes wanted at offset %llu, the file has %llu", file->path, size,
                          (unsigned long long)offset, (unsigned long long)file->size);
    if (file->descriptor < 0) {
        if (size != 0)
            memcpy(at, file->bytes + offset, size);
        return MICA_OK;
    }
    while (size != 0) {
        const ssize_t got = pread(file->descriptor, at, size < piece ? size : piece, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mica__file_fail("read", file->path, errno);
        if (got == 0)
            return mica__fail(MICA_ERR_MALFORMED_FILE,
                              "\"%s\": ended at offset %llu, it had %llu bytes when opened", file->path,
                              (unsigned long long)offset, (unsigned long long)file->size);
        at += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return MICA_OK;
}

/* Reads all of an open file into a fresh block with a NUL after it. */
static mica_status read_whole(const mica__file *file, size_t max_bytes, void **out_data, size_t *out_size)
{
    if (file->size > max_bytes || file->size >= SIZE_MAX)
        return mica__fail(MICA_ERR_BUDGET, "\"%s\" has %llu bytes, at most %zu are accepted", file->path,
                          (unsigned long long)file->size, max_bytes);
    const size_t size = (size_t)file->size;
    char *data = mica__alloc(size + 1);
    if (data == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the %zu bytes of \"%s\"", size, file->path);
    const mica_status status = mica__file_read_at(file, 0, data, size);
    if (status != MICA_OK) {
        mica__free(data);
        return status;
    }
    data[size] = '\0';
    *out_data = data;
    *out_size = size;
    return MICA_OK;
}

void mica__file_will_need(const mica__file *file, uint64_t offset, uint64_t size)
{
    if (file->descriptor < 0 || offset >= file->size || size == 0)
        return;
#if defined(__APPLE__)
    struct radvisory range = {(off_t)offset, size < INT32_MAX ? (int)size : INT32_MAX};
    (void)fcntl(file->descriptor, F_RDADVISE, &range);
#else
    (void)posix_fadvise(file->descriptor, (off_t)offset, (off_t)size, POSIX_FADV_WILLNEED);
#endif
}

mica_status mica__file_read_all(const char *path, size_t max_bytes, void **out_data, size_t *out_size)
{
    mica__file *file = NULL;
    *out_data = NULL;
    *out_size = 0;
    mica_status status = mica__file_open_read(path, &file);
    if (status == MICA_OK)
        status = read_whole(file, max_bytes, out_data, out_size);
    mica__spend_allow(*out_size);
    mica__file_close(file);
    return status;
}

/* Whether `path` is below `root`, of which `length` characters count. Both are resolved. */
static bool is_below(const char *root, size_t length, const char *path)
{
    return strncmp(root, path, length) == 0 && (path[length] == '/' || (length == 1 && root[0] == '/'));
}

/* Whether a resolved path is among the blobs of the model whose snapshot `root` is, or is in. */
static bool is_blob(char *root, const char *path)
{
    static const char part[] = "/snapshots/", blobs[] = "/blobs";
    char *at = NULL;
    for (char *next = strstr(root, part); next != NULL; next = strstr(next + 1, part))
        at = next;
    if (at == NULL)
        return false;
    memcpy(at, blobs, sizeof blobs); /* shorter than what stands there */
    return is_below(root, strlen(root), path);
}

/* What `path` leads to, into `resolved`, which is empty if there is nothing; refused if that lies outside of the folder. */
static mica_status resolve_inside(const char *folder, const char *path, char resolved[PATH_MAX])
{
    char root[PATH_MAX];
    if (realpath(path, resolved) == NULL) {
        resolved[0] = '\0';
        return errno == ENOENT || errno == ENOTDIR ? MICA_OK : mica__file_fail("find", path, errno);
    }
    if (realpath(folder, root) == NULL)
        return mica__file_fail("find", folder, errno);
    if (!is_below(root, strlen(root), resolved) && !is_blob(root, resolved))
        return mica__fail(MICA_ERR_IO,
                          "cannot read \"%s\": it is a link out of its folder, to \"%s\"; a copy would do",
                          path, resolved);
    return MICA_OK;
}

mica_status mica__file_read_inside(const char *folder, const char *path, size_t max_bytes, void **out_data,
                                   size_t *out_size)
{
    char resolved[PATH_MAX];
    *out_data = NULL;
    *out_size = 0;
    MICA__TRY(resolve_inside(folder, path, resolved));
    return resolved[0] == '\0' ? MICA_OK : mica__file_read_all(resolved, max_bytes, out_data, out_size);
}

mica_status mica__file_open_inside(const char *folder, const char *path, mica__file **out_file)
{
    char resolved[PATH_MAX];
    *out_file = NULL;
    MICA__TRY(resolve_inside(folder, path, resolved));
    return mica__file_open_read(resolved[0] == '\0' ? path : resolved, out_file);
}

mica_status mica__file_map_open(const mica__file *file, mica__file_map *out_map)
{
    memset(out_map, 0, sizeof *out_map);
    if (file->size == 0)
        return MICA_OK;
    if (file->size > SIZE_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\" has %llu bytes, too many for this machine's addresses", file->path,
                          (unsigned long long)file->size);
    if (file->descriptor < 0) {
        *out_map = (mica__file_map){file->bytes, (size_t)file->size, true};
        return MICA_OK;
    }
    void *data = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, file->descriptor, 0);
    if (data == MAP_FAILED)
        return mica__file_fail("map", file->path, errno);
    out_map->data = data;
    out_map->size = (size_t)file->size;
    return MICA_OK;
}

void mica__file_map_close(mica__file_map *map)
{
    if (map->data != NULL && !map->borrowed)
        munmap((void *)(uintptr_t)map->data, map->size);
    memset(map, 0, sizeof *map);
}

void mica__file_map_advise(const mica__file_map *map, size_t offset, size_t size, mica__file_advice advice)
{
    static const int native[] = {MADV_NORMAL, MADV_SEQUENTIAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (map->data == NULL || map->borrowed || offset >= map->size)
        return;
    size_t end = size < map->size - offset ? offset + size : map->size;
    size_t begin = offset - offset % page;
    if (advice == MICA__FILE_ADVICE_DONT_NEED) { /* pages shared with a neighbour stay */
        begin = offset % page == 0 ? offset : begin + page;
        end = end == map->size ? end : end - end % page;
    }
    if (begin < end)
        madvise((char *)(uintptr_t)map->data + begin, end - begin, native[advice]);
}
