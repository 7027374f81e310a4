/*
 * writer_stream.c - the writer from the first data on: cuts the tensors into files, streams their bytes with what the
 * format puts around them, and gives all files their names at the end.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "format/writer.h"

#define MOST_FILES 65535 /* GGUF counts them in 16 bits, names have five digits */

/* ---- files ---------------------------------------------------------------------------------------------- */

static mica_status add_entry(mica_writer *writer, uint32_t first, uint32_t count)
{
    if (writer->part_count == writer->part_capacity) {
        const uint32_t capacity = writer->part_capacity == 0 ? 4 : writer->part_capacity * 2;
        mica__writer_file *larger = mica__realloc(writer->part, capacity * sizeof *larger);
        if (larger == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the parts of \"%s\"", writer->path);
        writer->part = larger;
        writer->part_capacity = capacity;
    }
    writer->part[writer->part_count++] = (mica__writer_file){NULL, NULL, first, count};
    return MICA_OK;
}

/* Fills files up to split_bytes, at least one tensor each. */
static mica_status cut(mica_writer *writer)
{
    const uint64_t most = writer->options.split_bytes;
    uint64_t filled = 0;
    uint32_t first = 0;
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < writer->tensor_count && status == MICA_OK; i++) {
        const uint64_t bytes = writer->tensor[i].bytes;
        if (most != 0 && i > first && (filled > most || bytes > most - filled)) {
            status = add_entry(writer, first, i - first);
            first = i;
            filled = 0;
        }
        filled += bytes;
    }
    if (status == MICA_OK)
        status = add_entry(writer, first, writer->tensor_count - first);
    writer->split_count = writer->part_count;
    if (status == MICA_OK && writer->part_count > MOST_FILES)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "\"%s\": split into %u files, expected at most %d",
                          writer->path, writer->part_count, MOST_FILES);
    return status;
}

/* The path, or <stem>-00001-of-00003<ending>. */
static char *name_part(mica_writer *writer, uint32_t index)
{
    const size_t length = strlen(writer->path), tail = strlen(writer->format->ending);
    const bool has_ending =
        length > tail && strcmp(writer->path + length - tail, writer->format->ending) == 0;
    const size_t capacity = length + tail + sizeof "-00001-of-00003";
    char *name = mica__writer_alloc(writer, capacity);
    if (name == NULL)
        return NULL;
    if (writer->split_count == 1)
        memcpy(name, writer->path, length + 1);
    else
        snprintf(name, capacity, "%.*s-%05u-of-%05u%s", (int)(has_ending ? length - tail : length),
                 writer->path, index + 1, writer->split_count, writer->format->ending);
    return name;
}

static mica_status open_entry(const mica_writer *writer, mica__writer_file *entry, char *path)
{
    if (path == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    entry->path = path;
    if (!writer->options.overwrite && mica__file_exists(path))
        return mica__fail(MICA_ERR_IO, "cannot write \"%s\": it exists and overwrite is not set", path);
    return mica__file_writer_open(path, &entry->file);
}

mica_status mica__writer_add_file(mica_writer *writer, const char *path)
{
    const size_t size = strlen(path) + 1;
    MICA__TRY(add_entry(writer, writer->tensor_count, 0));
    writer->at_part = writer->part_count - 1;
    char *copy = mica__writer_alloc(writer, size);
    if (copy != NULL)
        memcpy(copy, path, size);
    return open_entry(writer, &writer->part[writer->at_part], copy);
}

mica_status mica__writer_put(mica_writer *writer, const void *bytes, size_t size)
{
    return mica__file_writer_write(writer->part[writer->at_part].file, bytes, size);
}

mica_status mica__writer_pad(mica_writer *writer, uint64_t size)
{
    static const char zeros[4096];
    mica_status status = MICA_OK;
    while (size != 0 && status == MICA_OK) {
        const size_t piece = size < sizeof zeros ? (size_t)size : sizeof zeros;
        status = mica__writer_put(writer, zeros, piece);
        size -= piece;
    }
    return status;
}

uint64_t mica__writer_position(const mica_writer *writer)
{
    return mica__file_writer_size(writer->part[writer->at_part].file);
}

/* ---- tensors, one after the other ------------------------------------------------------------------------ */

static mica_status begin_part(mica_writer *writer)
{
    mica__writer_file *part = &writer->part[writer->at_part];
    mica_status status = open_entry(writer, part, name_part(writer, writer->at_part));
    if (status == MICA_OK && writer->format->begin != NULL)
        status = writer->format->begin(writer, part);
    return status;
}

static mica_status end_part(mica_writer *writer)
{
    mica_status status = MICA_OK;
    if (writer->format->end != NULL)
        status = writer->format->end(writer, &writer->part[writer->at_part]);
    if (status == MICA_OK && writer->at_part + 1 < writer->split_count)
        writer->at_part++;
    return status;
}

static mica_status enter_tensor(mica_writer *writer)
{
    mica_status status = MICA_OK;
    if (writer->entered)
        return MICA_OK;
    if (writer->current == writer->part[writer->at_part].first)
        status = begin_part(writer);
    if (status == MICA_OK && writer->format->before != NULL)
        status = writer->format->before(writer, &writer->tensor[writer->current]);
    writer->entered = true;
    return status;
}

static mica_status leave_tensor(mica_writer *writer)
{
    const mica__writer_file *part = &writer->part[writer->at_part];
    mica_status status = MICA_OK;
    if (writer->format->after != NULL)
        status = writer->format->after(writer, &writer->tensor[writer->current]);
    writer->entered = false;
    writer->written = 0;
    writer->current++;
    if (status == MICA_OK && writer->current == part->first + part->count)
        status = end_part(writer);
    return status;
}

/* Bytes of the current tensor; *inout_size becomes how many it took. */
static mica_status write_piece(mica_writer *writer, const void *bytes, uint64_t *inout_size)
{
    const mica__writer_tensor *tensor = &writer->tensor[writer->current];
    const uint64_t room = tensor->bytes - writer->written;
    mica_status status = enter_tensor(writer);
    *inout_size = *inout_size < room ? *inout_size : room;
    if (status == MICA_OK && *inout_size != 0)
        status = mica__writer_put(writer, bytes, (size_t)*inout_size);
    if (status == MICA_OK && *inout_size != 0 && writer->format->data != NULL)
        status = writer->format->data(writer, bytes, *inout_size);
    writer->written += *inout_size;
    writer->left -= *inout_size;
    if (status == MICA_OK && writer->written == tensor->bytes)
        status = leave_tensor(writer);
    return status;
}

mica_status mica_writer_write(mica_writer *writer, const void *bytes, uint64_t size)
{
    const char *at = bytes;
    if (writer == NULL || (bytes == NULL && size != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: NULL", writer == NULL ? "writer" : "bytes");
    if (writer->failed != MICA_OK)
        return mica__fail(writer->failed, "\"%s\": an earlier write failed", writer->path);
    if (size > writer->left)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "size: %llu bytes for \"%s\", but only %llu of those declared are left",
                          (unsigned long long)size, writer->path, (unsigned long long)writer->left);
    if (!writer->started) {
        writer->started = true;
        writer->failed = cut(writer);
    }
    while (size != 0 && writer->failed == MICA_OK) {
        uint64_t piece = size;
        writer->failed = write_piece(writer, at, &piece);
        at += piece;
        size -= piece;
    }
    return writer->failed;
}

/* ---- the end -------------------------------------------------------------------------------------------- */

/* What follows the last data: tensors without bytes, the end of the last file, the format's index. */
static mica_status complete(mica_writer *writer)
{
    mica_status status = mica_writer_write(writer, NULL, 0);
    if (status != MICA_OK)
        return status;
    if (writer->left != 0)
        return mica__fail(MICA_ERR_STATE,
                          "\"%s\": %llu bytes of tensor \"%s\" and those after it are missing", writer->path,
                          (unsigned long long)writer->left, writer->tensor[writer->current].name);
    while (writer->current < writer->tensor_count && status == MICA_OK)
        status = write_piece(writer, NULL, &(uint64_t){0});
    if (status == MICA_OK && writer->tensor_count == 0) {
        status = begin_part(writer);
        if (status == MICA_OK)
            status = end_part(writer);
    }
    if (status == MICA_OK && writer->format->finish != NULL)
        status = writer->format->finish(writer);
    return status;
}

static mica_status place_file(mica_writer *writer, uint32_t part)
{
    mica__file_writer *file = writer->part[part].file;
    writer->part[part].file = NULL;
    return writer->options.overwrite ? mica__file_writer_commit(file) : mica__file_writer_commit_new(file);
}

/* All files get their names; if one cannot, those that have theirs are taken back. Of several the one that readers begin with
 * is the last: the first of a split GGUF, the index of safetensors. Its old one goes before the others come, so that old and
 * new files are never read together. */
static mica_status place_files(mica_writer *writer)
{
    const uint32_t count = writer->part_count, key = writer->format == &mica__gguf_format ? 0 : count - 1;
    mica_status status = MICA_OK;
    uint32_t placed = 0;
    if (count > 1 && writer->options.overwrite)
        remove(writer->part[key].path);
    for (; placed < count && status == MICA_OK; placed++)
        status = place_file(writer, key == 0 ? count - 1 - placed : placed);
    for (uint32_t i = 0; status != MICA_OK && i + 1 < placed; i++)
        remove(writer->part[key == 0 ? count - 1 - i : i].path);
    return status;
}

mica_status mica_writer_finish(mica_writer *writer)
{
    if (writer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "writer: NULL");
    mica_status status = complete(writer);
    if (status == MICA_OK)
        status = place_files(writer);
    mica_writer_discard(writer);
    return status;
}
