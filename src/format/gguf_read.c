/*
 * gguf_read.c - GGUF files, one or all parts of a split, into an archive. What was read is described in gguf.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "format/gguf.h"

#define FILE_STEPS 1000                  /* of one that is opened: about ten microseconds */
#define WINDOW_BYTES ((size_t)256 << 10) /* of the first walk; more than any name */

static mica_status measure(mica__gguf_part *part)
{
    const mica__file *file = part->archive->file[part->file];
    const uint64_t size = mica__file_size(file);
    const uint64_t end = size < MICA__GGUF_HEADER_BYTES ? size : MICA__GGUF_HEADER_BYTES;
    mica_status status = mica__cursor_open(&part->cursor, file, end, WINDOW_BYTES);
    if (status == MICA_OK)
        status = mica__gguf_walk(part);
    mica__cursor_close(&part->cursor);
    return status;
}

/* The header becomes memory of the archive, where names and strings stay. */
static mica_status keep(mica__gguf_part *part)
{
    const mica__file *file = part->archive->file[part->file];
    const size_t size = (size_t)part->header_bytes;
    uint8_t *header = mica__archive_alloc(part->archive, size);
    if (header == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    MICA__TRY(mica__file_read_at(file, 0, header, size));
    part->cursor = mica__cursor_over(file, header, size);
    part->keep = true;
    part->expected = part->tensor_count;
    mica_status status = mica__gguf_walk(part);
    return status == MICA_OK ? mica__gguf_place(part) : status;
}

static mica_status measure_all(mica__archive *archive, mica__gguf_part *parts)
{
    uint64_t tensors = 0;
    for (uint32_t i = 0; i < archive->file_count; i++) {
        parts[i].archive = archive;
        parts[i].file = i;
        const mica_status status = measure(&parts[i]);
        if (status != MICA_OK)
            return status;
        tensors += parts[i].tensor_count; /* below 2^32 each */
        if (tensors >= MICA__NO_TENSOR)
            return mica__gguf_fail(&parts[i], MICA_ERR_MALFORMED_FILE, "more than 2^32 tensors");
    }
    archive->tensor_count = archive->visible_count = (uint32_t)tensors;
    if (tensors == 0)
        return MICA_OK;
    archive->tensor = mica__archive_alloc(archive, (size_t)tensors * sizeof *archive->tensor);
    return archive->tensor != NULL ? MICA_OK : MICA_ERR_OUT_OF_MEMORY;
}

static mica_status keep_all(mica__archive *archive, mica__gguf_part *parts)
{
    uint64_t first = 0;
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < archive->file_count && status == MICA_OK; i++) {
        parts[i].tensor = archive->tensor == NULL ? NULL : archive->tensor + first;
        first += parts[i].tensor_count;
        status = keep(&parts[i]);
    }
    if (status == MICA_OK)
        status = mica__gguf_check_split(parts, archive->file_count, archive->tensor_count);
    return status;
}

mica_status mica__gguf_read(mica__archive *archive)
{
    mica__gguf_part *parts = mica__calloc(archive->file_count, sizeof *parts);
    if (parts == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u files", archive->file_count);
    mica_status status = measure_all(archive, parts);
    if (status == MICA_OK)
        status = keep_all(archive, parts);
    if (status == MICA_OK) {
        archive->format = MICA_FORMAT_GGUF;
        archive->version = parts[0].version;
        archive->big_endian = parts[0].big_endian;
        archive->meta = parts[0].meta;
        archive->meta_count = (uint32_t)parts[0].meta_count;
        status = mica__archive_index(archive);
    }
    mica__free(parts);
    return status;
}

/* ---- the names of parts --------------------------------------------------------------------------------- */

#define TAIL_BYTES (sizeof "-00001-of-00002.gguf" - 1)

/* Five digits. */
static bool read_digits(const char *text, uint32_t *out_number)
{
    *out_number = 0;
    for (uint32_t i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *out_number = *out_number * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

static bool read_tail(const char *tail, uint32_t *out_number, uint32_t *out_count)
{
    return tail[0] == '-' && read_digits(tail + 1, out_number) && memcmp(tail + 6, "-of-", 4) == 0 &&
           read_digits(tail + 10, out_count) && strcmp(tail + 15, ".gguf") == 0 && *out_number >= 1 &&
           *out_number <= *out_count;
}

static mica_status add_part(mica__archive *archive, char *path, size_t stem, uint32_t number, uint32_t count)
{
    snprintf(path + stem, TAIL_BYTES + 1, "-%05u-of-%05u.gguf", number, count);
    const mica_status status = mica__spend(FILE_STEPS);
    if (status != MICA_OK)
        return status;
    if (mica__file_look(path) == MICA__FILE_KIND_NONE)
        return mica__fail(MICA_ERR_NOT_FOUND, "\"%s\" is missing: part %u of %u", path, number, count);
    return mica__archive_add_path(archive, path);
}

mica_status mica__gguf_siblings(mica__archive *archive, const char *path)
{
    const size_t length = strlen(path);
    uint32_t number, count;
    mica_status status = MICA_OK;
    if (length < TAIL_BYTES || !read_tail(path + length - TAIL_BYTES, &number, &count) || count == 1)
        return MICA_OK;
    char *name = mica__strdup(path);
    if (name == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the names of %u files", count);
    mica__file_close(archive->file[0]); /* it is opened again in order */
    archive->file_count = 0;
    for (uint32_t i = 1; i <= count && status == MICA_OK; i++)
        status = add_part(archive, name, length - TAIL_BYTES, i, count);
    mica__free(name);
    return status;
}
