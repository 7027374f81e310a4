/*
 * folder.c - a folder as a model: which of its files hold the tensors, and its config.json.
 *
 * In this order: the files that model.safetensors.index.json names; model.safetensors; the one *.safetensors; the one
 * *.gguf or the first part of the one split GGUF. Hidden files are not looked at.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file/file_error.h"
#include "base/work.h"
#include "format/archive.h"
#include "format/safetensors.h"
#include "format/shards.h"

/* Bytes; one with an override for every tensor of a large model has one MB. */
#define MAX_CONFIG ((size_t)16 << 20)

#define FILE_STEPS 1000 /* of one that is opened: about ten microseconds */

/* folder/name, the archive's memory. */
static char *join(mica__archive *archive, const char *folder, const char *name)
{
    const size_t before = strlen(folder), size = before + strlen(name) + 2;
    char *path = mica__archive_alloc(archive, size);
    if (path == NULL)
        return NULL;
    snprintf(path, size, "%s%s%s", folder, before != 0 && folder[before - 1] != '/' ? "/" : "", name);
    return path;
}

static mica_status read_config(mica__archive *archive, const char *folder)
{
    const char *path = join(archive, folder, "config.json");
    void *text = NULL;
    size_t length = 0;
    mica_status status;
    if (path == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    status = mica__file_read_inside(folder, path, MAX_CONFIG, &text, &length);
    if (status != MICA_OK || text == NULL)
        return status == MICA_ERR_BUDGET ? mica__fail(MICA_ERR_MALFORMED_FILE, "%s", mica_status_message())
                                         : status;
    archive->config = mica__archive_text(archive, text, length);
    archive->config_length = length;
    mica__free(text);
    return archive->config == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
}

/* ---- the index ------------------------------------------------------------------------------------------ */

static mica_status open_shards(mica__archive *archive, const char *folder, const char *index_path,
                               const mica__shards *shards)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < mica__shards_count(shards) && status == MICA_OK; i++) {
        status = mica__spend(FILE_STEPS);
        if (status != MICA_OK)
            return status;
        const char *path = join(archive, folder, mica__shards_file(shards, i));
        if (path == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        if (mica__file_look(path) == MICA__FILE_KIND_NONE)
            return mica__fail(MICA_ERR_NOT_FOUND, "\"%s\" names the file \"%s\", which is not there",
                              index_path, mica__shards_file(shards, i));
        status = mica__archive_add_path(archive, path);
    }
    return status;
}

static mica_status read_index(mica__archive *archive, const char *folder, const char *path)
{
    mica__shards *shards = NULL;
    mica__file *index = NULL;
    mica_status status = mica__file_open_read(path, &index);
    if (status == MICA_OK)
        status = mica__shards_parse(index, &shards);
    if (status == MICA_OK)
        status = open_shards(archive, folder, path, shards);
    if (status == MICA_OK)
        status = mica__safetensors_read(archive);
    if (status == MICA_OK)
        status = mica__shards_check(shards, archive);
    mica__shards_release(shards);
    mica__file_close(index);
    return status;
}

/* ---- single files --------------------------------------------------------------------------------------- */

/* What a folder holds of one kind: how many, and the name to open. */
typedef struct finding {
    const char *name;
    uint32_t count;
    bool whole; /* it is model.safetensors: the model, whatever lies beside it */
} finding;

static bool ends_with(const char *name, const char *ending)
{
    const size_t length = strlen(name), tail = strlen(ending);
    return length > tail && strcmp(name + length - tail, ending) == 0;
}

/* name-00002-of-00003.gguf and later ones: their first part stands for them. */
static bool is_later_part(const char *name)
{
    static const char pattern[] = "-ddddd-of-ddddd.gguf";
    const size_t length = strlen(name), tail = sizeof pattern - 1;
    const char *at = name + length - tail;
    if (length <= tail)
        return false;
    for (size_t i = 0; i < tail; i++)
        if (pattern[i] == 'd' ? at[i] < '0' || at[i] > '9' : at[i] != pattern[i])
            return false;
    return memcmp(at + 1, "00001", 5) != 0;
}

static mica_status note(mica__archive *archive, finding *found, const char *name)
{
    const bool whole = strcmp(name, "model.safetensors") == 0;
    if (found->count++ != 0 && !whole)
        return MICA_OK;
    found->whole = whole;
    found->name = mica__archive_text(archive, name, strlen(name));
    return found->name == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
}

static mica_status look_around(mica__archive *archive, const char *folder, finding *safetensors,
                               finding *gguf)
{
    DIR *listing = opendir(folder);
    mica_status status = MICA_OK;
    if (listing == NULL)
        return mica__file_fail("read the folder", folder, errno);
    for (const struct dirent *entry; status == MICA_OK && (entry = readdir(listing)) != NULL;) {
        const char *name = entry->d_name;
        if (name[0] == '.')
            continue;
        if (ends_with(name, ".safetensors"))
            status = note(archive, safetensors, name);
        else if (ends_with(name, ".gguf") && !is_later_part(name))
            status = note(archive, gguf, name);
    }
    closedir(listing);
    return status;
}

static mica_status read_single(mica__archive *archive, const char *folder)
{
    finding safetensors = {0}, gguf = {0};
    mica_status status = look_around(archive, folder, &safetensors, &gguf);
    const finding *found = safetensors.count != 0 ? &safetensors : &gguf;
    const char *path;
    if (status != MICA_OK)
        return status;
    if (found->count == 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": the folder holds no *.safetensors and no *.gguf",
                          folder);
    if (found->count > 1 && !found->whole)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\": the folder holds %u model files (\"%s\" is one) and no " MICA__SHARDS_INDEX
                          " that joins them; open one by its path",
                          folder, found->count, found->name);
    path = join(archive, folder, found->name);
    if (path == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    status = mica__archive_add_path(archive, path);
    if (status != MICA_OK || found == &safetensors)
        return status == MICA_OK ? mica__safetensors_read(archive) : status;
    status = mica__gguf_siblings(archive, path);
    return status == MICA_OK ? mica__gguf_read(archive) : status;
}

mica_status mica__folder_read(mica__archive *archive, const char *path)
{
    const char *index = join(archive, path, MICA__SHARDS_INDEX);
    mica_status status;
    if (index == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    status = read_config(archive, path);
    if (status == MICA_OK)
        status = mica__file_look(index) == MICA__FILE_KIND_NONE ? read_single(archive, path)
                                                                : read_index(archive, path, index);
    if (status == MICA_OK && archive->format == MICA_FORMAT_SAFETENSORS)
        status = mica__mlx_join(archive);
    return status;
}
