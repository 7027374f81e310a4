/*
 * format_rig.h - what the tests of file formats share: bytes put together by hand, archives opened from memory, and
 * the treatment that every format gets: cut at each length, bits flipped, each allocation failed in turn.
 */
#ifndef TEST_FORMAT_RIG_H
#define TEST_FORMAT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "format/archive.h"
#include "mica/host.h"
#include "support/meter.h"

typedef mica_status (*rig_reader)(mica__archive *archive);

/* ---- bytes ---------------------------------------------------------------------------------------------- */

typedef struct rig_bytes {
    uint8_t *data;
    size_t size, capacity;
} rig_bytes;

static inline void rig_put(rig_bytes *b, const void *data, size_t size)
{
    if (b->size + size > b->capacity) {
        b->capacity = 2 * (b->size + size) + 64;
        b->data = realloc(b->data, b->capacity);
        assert_non_null(b->data);
    }
    if (size != 0)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

static inline void rig_text(rig_bytes *b, const char *text)
{
    rig_put(b, text, strlen(text));
}

/* Little endian. */
static inline void rig_number(rig_bytes *b, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        const uint8_t byte = (uint8_t)(value >> 8 * i);
        rig_put(b, &byte, 1);
    }
}

/* Bytes that differ from place to place. */
static inline void rig_data(rig_bytes *b, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const uint8_t byte = (uint8_t)(b->size * 37 + 11);
        rig_put(b, &byte, 1);
    }
}

static inline void rig_free(rig_bytes *b)
{
    free(b->data);
    memset(b, 0, sizeof *b);
}

/* ---- archives ------------------------------------------------------------------------------------------- */

/* One archive of `count` memory files, read; NULL with the status if that fails. The bytes must outlive it. */
static inline mica_status rig_open_files(rig_reader reader, const rig_bytes *files, uint32_t count,
                                         mica__archive **out)
{
    mica__archive *archive = NULL;
    mica_status status = mica__archive_create(&archive);
    *out = NULL;
    for (uint32_t i = 0; i < count && status == MICA_OK; i++) {
        mica__file *file = NULL;
        status = mica__file_from_bytes("memory", files[i].data, files[i].size, &file);
        if (status == MICA_OK)
            status = mica__archive_add_file(archive, file);
    }
    if (status == MICA_OK)
        status = reader(archive);
    if (status != MICA_OK) {
        mica__archive_close(archive);
        return status;
    }
    *out = archive;
    return MICA_OK;
}

static inline mica_status rig_open(rig_reader reader, const rig_bytes *bytes, mica__archive **out)
{
    return rig_open_files(reader, bytes, 1, out);
}

static inline mica__archive *rig_open_ok(rig_reader reader, const rig_bytes *bytes)
{
    mica__archive *archive = NULL;
    if (rig_open(reader, bytes, &archive) != MICA_OK)
        fail_msg("refused: %s", mica_status_message());
    return archive;
}

static inline void rig_refused(rig_reader reader, const rig_bytes *bytes, mica_status code, const char *part)
{
    mica__archive *archive = NULL;
    const mica_status status = rig_open(reader, bytes, &archive);
    mica__archive_close(archive);
    if (status != code || strstr(mica_status_message(), part) == NULL)
        fail_msg("expected %s with \"%s\", got %s: %s", mica_status_name(code), part,
                 mica_status_name(status), status == MICA_OK ? "" : mica_status_message());
    assert_int_equal(mica_host_bytes(), 0);
}

/* The promises of archive.h, looked up in the archive itself. */
static inline void rig_check(const mica__archive *archive)
{
    assert_true(archive->visible_count <= archive->tensor_count);
    for (uint32_t i = 0; i < archive->tensor_count; i++) {
        const mica__tensor *t = &archive->tensor[i];
        double bytes = mica_dtype_block_bytes((mica_dtype)t->dtype);
        assert_true(t->file < archive->file_count && t->ndim <= MICA_MAX_DIMS && t->type_name != NULL);
        assert_true(t->offset <= mica__file_size(archive->file[t->file]));
        assert_true(t->bytes <= mica__file_size(archive->file[t->file]) - t->offset);
        assert_int_equal(t->name_length, strlen(t->name));
        if (i < archive->visible_count)
            assert_int_equal(mica__archive_find(archive, t->name, t->name_length), i);
        if (t->problem != MICA__TENSOR_FINE)
            continue;
        for (uint32_t d = 0; d < t->ndim; d++)
            bytes *= (double)t->shape[d];
        assert_true(bytes == (double)t->bytes * mica_dtype_block_elements((mica_dtype)t->dtype));
    }
}

static inline const mica__tensor *rig_tensor(const mica__archive *archive, const char *name)
{
    const uint32_t index = mica__archive_find(archive, name, strlen(name));
    if (index == MICA__NO_TENSOR)
        fail_msg("no tensor %s", name);
    return &archive->tensor[index];
}

/* ---- the treatment -------------------------------------------------------------------------------------- */

/* Each shorter file is refused with a sentence; none of these formats has a part that can be missing. */
static inline void rig_cut_everywhere(rig_reader reader, const rig_bytes *bytes)
{
    for (size_t size = 0; size < bytes->size; size++) {
        mica__archive *archive = NULL;
        rig_bytes cut = {malloc(size != 0 ? size : 1), size, size};
        memcpy(cut.data, bytes->data, size);
        if (rig_open(reader, &cut, &archive) == MICA_OK)
            fail_msg("cut at %zu of %zu was accepted", size, bytes->size);
        assert_true(strlen(mica_status_message()) > 0);
        assert_int_equal(mica_host_bytes(), 0);
        rig_free(&cut);
    }
}

/* Each bit of [from, to) flipped, and each byte turned over: read as the format says, or refused. */
static inline void rig_flip_everywhere(rig_reader reader, const rig_bytes *bytes, size_t from, size_t to)
{
    rig_bytes copy = {malloc(bytes->size), bytes->size, bytes->size};
    memcpy(copy.data, bytes->data, bytes->size);
    for (size_t at = from; at < to; at++) {
        for (int bit = 0; bit < 9; bit++) {
            mica__archive *archive = NULL;
            mica_status status;
            copy.data[at] ^= bit == 8 ? 0xff : (uint8_t)(1 << bit);
            status = rig_open(reader, &copy, &archive);
            if (status == MICA_OK)
                rig_check(archive);
            else
                assert_true(status == MICA_ERR_MALFORMED_FILE || status == MICA_ERR_UNSUPPORTED);
            mica__archive_close(archive);
            assert_int_equal(mica_host_bytes(), 0);
            copy.data[at] = bytes->data[at];
        }
    }
    rig_free(&copy);
}

/* Calls `play` with each of its allocations failing in turn: it must end with OUT_OF_MEMORY or get along without, and
 * keep nothing. */
static inline void rig_fail_allocations(mica_status (*play)(void *context), void *context)
{
    for (int for_good = 0; for_good < 2; for_good++) {
        test_meter f = {.fail_at = 1, .for_good = for_good != 0};
        for (bool reached = true; reached; f.fail_at++) {
            mica_status status;
            f.calls = 0;
            assert_int_equal(test_meter_set(&f), MICA_OK);
            status = play(context);
            assert_int_equal(mica_set_allocator(NULL), MICA_OK);
            assert_int_equal(f.live, 0);
            reached = f.calls >= f.fail_at;
            if (status != (reached ? MICA_ERR_OUT_OF_MEMORY : MICA_OK) && !(reached && status == MICA_OK))
                fail_msg("allocation %llu: %s: %s", (unsigned long long)f.fail_at, mica_status_name(status),
                         mica_status_message());
        }
    }
}

typedef struct rig_opening {
    rig_reader reader;
    const rig_bytes *files;
    uint32_t count;
} rig_opening;

static inline mica_status rig_play_open(void *context)
{
    const rig_opening *o = context;
    mica__archive *archive = NULL;
    const mica_status status = rig_open_files(o->reader, o->files, o->count, &archive);
    mica__archive_close(archive);
    return status;
}

/* ---- folders -------------------------------------------------------------------------------------------- */

static inline void rig_file(const char *folder, const char *name, const void *data, size_t size)
{
    char path[512];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* The whole of a file; the caller frees it with rig_free. */
static inline rig_bytes rig_load(const char *path)
{
    rig_bytes b = {0};
    uint8_t piece[4096];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;)
        rig_put(&b, piece, n);
    fclose(file);
    return b;
}

#endif
