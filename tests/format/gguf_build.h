/*
 * gguf_build.h - GGUF bytes put together by hand, field by field, for tests of the reader. Shares nothing with the
 * library's writer. Each number that is put is remembered, so that a test can come back and break it.
 */
#ifndef TEST_FORMAT_GGUF_BUILD_H
#define TEST_FORMAT_GGUF_BUILD_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/archive.h"

typedef struct build_field {
    size_t offset;
    uint32_t size;
} build_field;

typedef struct build {
    uint8_t *bytes;
    size_t size, capacity;
    build_field *field;
    size_t field_count, field_capacity;
    bool big; /* big endian */
} build;

static inline void build_bytes(build *b, const void *bytes, size_t size)
{
    if (b->size + size > b->capacity) {
        b->capacity = (b->size + size) * 2;
        b->bytes = realloc(b->bytes, b->capacity);
    }
    if (size != 0)
        memcpy(b->bytes + b->size, bytes, size);
    b->size += size;
}

static inline void build_number(build *b, uint64_t number, uint32_t size)
{
    uint8_t bytes[8];
    for (uint32_t i = 0; i < size; i++)
        bytes[b->big ? size - 1 - i : i] = (uint8_t)(number >> 8 * i);
    if (b->field_count == b->field_capacity) {
        b->field_capacity = b->field_capacity * 2 + 64;
        b->field = realloc(b->field, b->field_capacity * sizeof *b->field);
    }
    b->field[b->field_count++] = (build_field){b->size, size};
    build_bytes(b, bytes, size);
}

static inline void build_patch(build *b, const build_field *field, uint64_t number)
{
    for (uint32_t i = 0; i < field->size; i++)
        b->bytes[field->offset + (b->big ? field->size - 1 - i : i)] = (uint8_t)(number >> 8 * i);
}

static inline uint64_t build_number_at(const build *b, const build_field *field)
{
    uint64_t number = 0;
    for (uint32_t i = 0; i < field->size; i++)
        number |= (uint64_t)b->bytes[field->offset + (b->big ? field->size - 1 - i : i)] << 8 * i;
    return number;
}

static inline void build_string(build *b, const char *text)
{
    build_number(b, strlen(text), 8);
    build_bytes(b, text, strlen(text));
}

static inline void build_head(build *b, uint32_t version, uint64_t tensors, uint64_t metas)
{
    build_bytes(b, "GGUF", 4);
    build_number(b, version, 4);
    build_number(b, tensors, 8);
    build_number(b, metas, 8);
}

static inline void build_meta(build *b, const char *key, uint32_t type)
{
    build_string(b, key);
    build_number(b, type, 4);
}

static inline void build_meta_number(build *b, const char *key, uint32_t type, uint64_t number, uint32_t size)
{
    build_meta(b, key, type);
    build_number(b, number, size);
}

static inline void build_array(build *b, uint32_t item_type, uint64_t count)
{
    build_number(b, item_type, 4);
    build_number(b, count, 8);
}

/* dims fastest first, as in the file. */
static inline void build_tensor(build *b, const char *name, uint32_t ndim, const uint64_t *dims,
                                uint32_t type, uint64_t offset)
{
    build_string(b, name);
    build_number(b, ndim, 4);
    for (uint32_t i = 0; i < ndim; i++)
        build_number(b, dims[i], 8);
    build_number(b, type, 4);
    build_number(b, offset, 8);
}

/* Up to a multiple of `alignment`. */
static inline void build_pad(build *b, size_t alignment)
{
    while (b->size % alignment != 0)
        build_bytes(b, "", 1);
}

/* `size` bytes that tell their place. */
static inline void build_data(build *b, size_t size, uint8_t seed)
{
    for (size_t i = 0; i < size; i++)
        build_bytes(b, &(uint8_t){(uint8_t)(seed + i * 7)}, 1);
}

static inline void build_free(build *b)
{
    free(b->bytes);
    free(b->field);
    memset(b, 0, sizeof *b);
}

/* Reads exactly `size` bytes (a copy, so that a sanitizer sees every step past the end). The caller closes *out and
 * frees *out_copy. */
static inline mica_status build_read_cut(const build *b, size_t size, mica__archive **out, void **out_copy)
{
    mica__file *file = NULL;
    mica__archive *archive = NULL;
    *out = NULL;
    *out_copy = malloc(size == 0 ? 1 : size);
    if (size != 0)
        memcpy(*out_copy, b->bytes, size);
    mica_status status = mica__file_from_bytes("memory.gguf", *out_copy, size, &file);
    if (status != MICA_OK)
        return status;
    status = mica__archive_create(&archive);
    if (status != MICA_OK) {
        mica__file_close(file);
        return status;
    }
    status = mica__archive_add_file(archive, file);
    if (status == MICA_OK)
        status = mica__gguf_read(archive);
    if (status == MICA_OK)
        *out = archive;
    else
        mica__archive_close(archive);
    return status;
}

static inline mica_status build_read(const build *b, mica__archive **out, void **out_copy)
{
    return build_read_cut(b, b->size, out, out_copy);
}

#endif
