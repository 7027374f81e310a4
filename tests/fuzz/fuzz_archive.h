/* fuzz_archive.h: any bytes as a file in memory; what a reader accepts must keep the promises of archive.h. */
#ifndef TEST_FUZZ_ARCHIVE_H
#define TEST_FUZZ_ARCHIVE_H

#include <stdint.h>
#include <string.h>

#include "base/utf8.h"
#include "format/archive.h"
#include "mica/host.h"

static inline void fuzz_require(int condition)
{
    if (!condition)
        __builtin_trap();
}

static inline void fuzz_check_tensor(const mica__archive *archive, uint32_t index)
{
    const mica__tensor *t = &archive->tensor[index];
    const uint64_t block = mica_dtype_block_elements((mica_dtype)t->dtype);
    unsigned __int128 bytes = mica_dtype_block_bytes((mica_dtype)t->dtype);
    fuzz_require(t->file < archive->file_count && t->ndim <= MICA_MAX_DIMS && t->type_name != NULL);
    fuzz_require(t->offset <= mica__file_size(archive->file[t->file]));
    fuzz_require(t->bytes <= mica__file_size(archive->file[t->file]) - t->offset);
    fuzz_require(strlen(t->name) == t->name_length);
    for (size_t at = 0, n; at < t->name_length; at += n) {
        n = mica__utf8_length(t->name + at, t->name_length - at);
        fuzz_require(n != 0);
    }
    fuzz_require((t->scales == MICA__NO_TENSOR || t->scales < archive->tensor_count) &&
                 (t->biases == MICA__NO_TENSOR || t->biases < archive->tensor_count));
    if (index < archive->visible_count)
        fuzz_require(mica__archive_find(archive, t->name, t->name_length) == index);
    if (t->problem != MICA__TENSOR_FINE)
        return;
    for (uint32_t d = 0; d < t->ndim; d++)
        bytes *= t->shape[d];
    fuzz_require(bytes == (unsigned __int128)t->bytes * block);
    if (t->bytes != 0) {
        uint8_t last;
        fuzz_require(mica__archive_read(archive, t, t->bytes - 1, &last, 1) == MICA_OK);
    }
}

static inline void fuzz_check(const mica__archive *archive)
{
    fuzz_require(archive->visible_count <= archive->tensor_count);
    for (uint32_t i = 0; i < archive->tensor_count; i++)
        fuzz_check_tensor(archive, i);
    for (uint32_t i = 0; i < archive->meta_count; i++)
        fuzz_require(archive->meta[i].key.data[archive->meta[i].key.length] == '\0');
}

static inline void fuzz_read(const uint8_t *data, size_t size, mica_status (*reader)(mica__archive *archive))
{
    mica__archive *archive = NULL;
    mica__file *file = NULL;
    mica_status status;
    fuzz_require(mica__archive_create(&archive) == MICA_OK);
    fuzz_require(mica__file_from_bytes("input", data, size, &file) == MICA_OK);
    fuzz_require(mica__archive_add_file(archive, file) == MICA_OK);
    status = reader(archive);
    if (status == MICA_OK)
        fuzz_check(archive);
    else
        fuzz_require(mica_status_message()[0] != '\0');
    mica__archive_close(archive);
    fuzz_require(mica_host_bytes() == 0);
}

#endif
