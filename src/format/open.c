/*
 * open.c - which reader a path goes to: a folder, or a file by its first bytes, or else by its ending.
 */
#include "format/archive.h"

#include <string.h>

typedef struct kind {
    const char *magic; /* the first bytes, without NULs */
    const char *ending;
    mica_status (*read)(mica__archive *archive);
} kind;

/* safetensors has no magic: any eight bytes of length and a brace. */
static const kind kinds[] = {
    {"GGUF", ".gguf", mica__gguf_read},
    {"\x93NUMPY", ".npy", mica__npy_read},
    {"PK\x03\x04", ".npz", mica__npz_read},
    {"PK\x05\x06", ".npz", mica__npz_read}, /* without members */
    {NULL, ".safetensors", mica__safetensors_read},
};

#define KIND_COUNT (sizeof kinds / sizeof kinds[0])
#define HEAD_BYTES 9

static bool ends_with(const char *path, const char *ending)
{
    const size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && memcmp(path + length - tail, ending, tail) == 0;
}

static const kind *find_kind(const char *path, const char *head, size_t size)
{
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (kinds[i].magic != NULL && size >= strlen(kinds[i].magic) &&
            memcmp(head, kinds[i].magic, strlen(kinds[i].magic)) == 0)
            return &kinds[i];
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (ends_with(path, kinds[i].ending))
            return &kinds[i];
    return size == HEAD_BYTES && head[HEAD_BYTES - 1] == '{' ? &kinds[KIND_COUNT - 1] : NULL;
}

/* The archive has its one file. */
static mica_status read_file(mica__archive *archive, const char *path, bool alone)
{
    char head[HEAD_BYTES];
    const uint64_t file_size = mica__file_size(archive->file[0]);
    const size_t size = file_size < HEAD_BYTES ? (size_t)file_size : HEAD_BYTES;
    MICA__TRY(mica__file_read_at(archive->file[0], 0, head, size));
    const kind *found = find_kind(path, head, size);
    if (found == NULL)
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "\"%s\" is no model file that mica knows: gguf, safetensors, npy, npz, or a folder with "
            "safetensors",
            path);
    if (alone || found->read != mica__gguf_read)
        return found->read(archive);
    mica_status status = mica__gguf_siblings(archive, path);
    return status == MICA_OK ? found->read(archive) : status;
}

static mica_status open_path(mica__archive *archive, const char *path)
{
    if (mica__file_look(path) == MICA__FILE_KIND_FOLDER)
        return mica__folder_read(archive, path);
    const mica_status status = mica__archive_add_path(archive, path);
    return status == MICA_OK ? read_file(archive, path, false) : status;
}

static mica_status open_bytes(mica__archive *archive, const void *bytes, uint64_t size)
{
    mica__file *file = NULL;
    mica_status status = mica__file_from_bytes("memory", bytes, size, &file);
    if (status == MICA_OK)
        status = mica__archive_add_file(archive, file);
    return status == MICA_OK ? read_file(archive, "memory", true) : status;
}

static mica_status finish(mica_status status, mica__archive *archive, mica__archive **out)
{
    if (status == MICA_OK)
        *out = archive;
    else
        mica__archive_close(archive);
    return status;
}

mica_status mica__archive_open_bytes(const void *bytes, uint64_t size, mica__archive **out)
{
    mica__archive *archive = NULL;
    *out = NULL;
    const mica_status status = mica__archive_create(&archive);
    return status == MICA_OK ? finish(open_bytes(archive, bytes, size), archive, out) : status;
}

mica_status mica__archive_open(const char *path, mica__archive **out)
{
    mica__archive *archive = NULL;
    *out = NULL;
    const mica_status status = mica__archive_create(&archive);
    return status == MICA_OK ? finish(open_path(archive, path), archive, out) : status;
}
