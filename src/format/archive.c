/*
 * archive.c - an archive's life, its index by name, and reading bytes of its tensors. Knows no format.
 */
#include "format/archive.h"

#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"

mica_status mica__archive_create(mica__archive **out)
{
    *out = mica__calloc(1, sizeof **out);
    return *out != NULL ? MICA_OK : mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the tables of a file");
}

void mica__archive_close(mica__archive *archive)
{
    if (archive == NULL)
        return;
    for (uint32_t i = 0; i < archive->file_count; i++)
        mica__file_close(archive->file[i]);
    mica__chunks_free(&archive->chunks);
    mica__free(archive);
}

mica_status mica__archive_add_file(mica__archive *archive, mica__file *file)
{
    const uint32_t count = archive->file_count;
    if ((count & (count - 1)) == 0) { /* full at each power of two */
        mica__file **grown =
            mica__archive_alloc(archive, (count == 0 ? 1 : (size_t)count * 2) * sizeof *grown);
        if (grown == NULL) {
            mica__file_close(file);
            return MICA_ERR_OUT_OF_MEMORY;
        }
        if (count != 0)
            memcpy(grown, archive->file, count * sizeof *grown);
        archive->file = grown;
    }
    archive->file[archive->file_count++] = file;
    return MICA_OK;
}

mica_status mica__archive_add_path(mica__archive *archive, const char *path)
{
    mica__file *file = NULL;
    const mica_status status = mica__file_open_read(path, &file);
    return status == MICA_OK ? mica__archive_add_file(archive, file) : status;
}

const char *mica__archive_path(const mica__archive *archive, uint32_t file)
{
    return file < archive->file_count ? mica__file_path(archive->file[file]) : "";
}

/* ---- names ---------------------------------------------------------------------------------------------- */

typedef struct named {
    const char *name;
    uint32_t length, index;
} named;

static int compare_names(const char *a, size_t a_length, const char *b, size_t b_length)
{
    const int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order != 0 ? order : (a_length > b_length) - (a_length < b_length);
}

static int compare_named(const void *a, const void *b)
{
    const named *x = a, *y = b;
    return compare_names(x->name, x->length, y->name, y->length);
}

/* Copies the sorted order into by_name; a name that is there twice is refused. */
static mica_status keep_order(mica__archive *archive, const named *list)
{
    for (uint32_t i = 0; i < archive->visible_count; i++) {
        if (i != 0 && compare_named(&list[i - 1], &list[i]) == 0)
            return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": the tensor \"%s\" is there twice",
                              mica__archive_path(archive, archive->tensor[list[i].index].file), list[i].name);
        archive->by_name[i] = list[i].index;
    }
    return MICA_OK;
}

mica_status mica__archive_index(mica__archive *archive)
{
    const uint32_t count = archive->visible_count;
    archive->by_name = NULL;
    if (count == 0)
        return MICA_OK;
    archive->by_name = mica__archive_alloc(archive, (size_t)count * sizeof *archive->by_name);
    if (archive->by_name == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    named *list = mica__alloc((size_t)count * sizeof *list);
    if (list == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to index %u tensors", count);
    for (uint32_t i = 0; i < count; i++)
        list[i] = (named){archive->tensor[i].name, archive->tensor[i].name_length, i};
    mica_status status = mica__sort(list, count, sizeof *list, compare_named);
    if (status == MICA_OK)
        status = keep_order(archive, list);
    mica__free(list);
    return status;
}

uint32_t mica__archive_find(const mica__archive *archive, const char *name, size_t length)
{
    uint32_t low = 0, high = archive->by_name == NULL ? 0 : archive->visible_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const mica__tensor *tensor = &archive->tensor[archive->by_name[middle]];
        const int order = compare_names(name, length, tensor->name, tensor->name_length);
        if (order == 0)
            return archive->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return MICA__NO_TENSOR;
}

const mica_value *mica__archive_meta(const mica__archive *archive, const char *key)
{
    const size_t length = strlen(key);
    for (uint32_t i = 0; i < archive->meta_count; i++)
        if (archive->meta[i].key.length == length && memcmp(archive->meta[i].key.data, key, length) == 0)
            return &archive->meta[i].value;
    return NULL;
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

mica_status mica__archive_usable(const mica__archive *archive, const mica__tensor *tensor)
{
    switch ((mica__tensor_problem)tensor->problem) {
    case MICA__TENSOR_FINE: return MICA_OK;
    case MICA__TENSOR_TYPE:
        return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": tensor \"%s\" is of a type mica cannot use: %s",
                          mica__archive_path(archive, tensor->file), tensor->name, tensor->type_name);
    case MICA__TENSOR_DIMS:
        return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": tensor \"%s\" has more than %d dimensions",
                          mica__archive_path(archive, tensor->file), tensor->name, MICA_MAX_DIMS);
    case MICA__TENSOR_BYTE_ORDER: break;
    }
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "\"%s\": tensor \"%s\" is big endian; of such data only the description can be read",
                      mica__archive_path(archive, tensor->file), tensor->name);
}

mica_status mica__archive_read(const mica__archive *archive, const mica__tensor *tensor, uint64_t offset,
                               void *out_bytes, uint64_t bytes)
{
    if (offset > tensor->bytes || bytes > tensor->bytes - offset || bytes > SIZE_MAX)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "tensor \"%s\": bytes %llu and %llu more wanted, it has %llu", tensor->name,
                          (unsigned long long)offset, (unsigned long long)bytes,
                          (unsigned long long)tensor->bytes);
    return mica__file_read_at(archive->file[tensor->file], tensor->offset + offset, out_bytes, (size_t)bytes);
}
