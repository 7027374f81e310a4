/*
 * npz_read.c - reads npz: a zip of npy files, each a tensor of the archive, stored as it is.
 *
 * Knows as much of zip as that takes: the directory at the end, 64-bit sizes, and that members neither overlap nor
 * leave the file. A compressed member is listed and cannot be used. Checksums are not looked at: that would read the
 * whole file on opening.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/sort.h"
#include "base/utf8.h"
#include "base/work.h"
#include "format/npy.h"

#define END_BYTES 22     /* the record at the end, without its comment */
#define LOCATOR_BYTES 20 /* before it in large files: where the 64-bit record is */
#define END64_BYTES 56   /* that record */
#define MEMBER_BYTES 46  /* a member in the directory, without its name and extra fields */
#define LOCAL_BYTES 30   /* the same before its data */
#define MEMBER_STEPS 64  /* of one that is read: less than a microsecond */
#define MAX_COMMENT 65535u
#define MAX_NAME 4096u
#define MAX_DIRECTORY (1u << 28) /* bytes: 10^6 members with long names */

#define SIGNATURE_END 0x06054b50u
#define SIGNATURE_LOCATOR 0x07064b50u
#define SIGNATURE_END64 0x06064b50u
#define SIGNATURE_MEMBER 0x02014b50u
#define SIGNATURE_LOCAL 0x04034b50u

#define FLAG_ENCRYPTED 1u
#define METHOD_STORED 0u
#define METHOD_DEFLATED 8u
#define EXTRA_ZIP64 1u

static uint32_t u16_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

static uint32_t u32_at(const uint8_t *bytes)
{
    return u16_at(bytes) | u16_at(bytes + 2) << 16;
}

static uint64_t u64_at(const uint8_t *bytes)
{
    return (uint64_t)u32_at(bytes) | (uint64_t)u32_at(bytes + 4) << 32;
}

typedef struct zip_reader {
    mica__archive *archive;
    const mica__file *file;
    const char *path;
    uint8_t *directory; /* [directory_bytes] */
    uint64_t directory_offset, directory_bytes, count;
} zip_reader;

/* One member, from the directory. */
typedef struct zip_member {
    const char *name; /* in the directory, no NUL after it */
    uint32_t name_length;
    uint32_t flags, method;
    uint64_t stored_bytes, bytes, offset; /* offset of its local header */
} zip_member;

/* From the first byte of a member's local header to behind its data. */
typedef struct range {
    uint64_t begin, end;
    const char *name; /* in the directory */
    uint32_t name_length;
} range;

static mica_status refuse(const zip_reader *z, const char *what)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": %s", z->path, what);
}

static mica_status refuse_member(const zip_reader *z, const zip_member *m, const char *what)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": member \"%.*s\": %s", z->path,
                      (int)(m->name_length < 200 ? m->name_length : 200), m->name, what);
}

/* ---- the directory -------------------------------------------------------------------------------------- */

/* The offset of the end record: the last one whose comment reaches exactly to the end of the file. */
static mica_status find_end(const zip_reader *z, uint8_t out_record[END_BYTES], uint64_t *out_offset)
{
    const uint64_t size = mica__file_size(z->file);
    const size_t tail = size < END_BYTES + MAX_COMMENT ? (size_t)size : END_BYTES + MAX_COMMENT;
    size_t at;
    uint8_t *bytes;
    mica_status status;
    if (size < END_BYTES)
        return refuse(z, "too short for a zip file");
    bytes = mica__alloc(tail);
    if (bytes == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory to look for its directory", z->path);
    status = mica__file_read_at(z->file, size - tail, bytes, tail);
    if (status == MICA_OK) {
        for (at = tail - END_BYTES + 1; at-- > 0;)
            if (u32_at(bytes + at) == SIGNATURE_END && u16_at(bytes + at + 20) == tail - END_BYTES - at)
                break;
        if (at != SIZE_MAX) {
            memcpy(out_record, bytes + at, END_BYTES);
            *out_offset = size - tail + at;
        } else {
            status = refuse(z, "no zip directory at its end: it may be cut short");
        }
    }
    mica__free(bytes);
    return status;
}

/* The 64-bit record, which lies right before its locator, which lies right before the end record at *end. */
static mica_status read_end64(zip_reader *z, uint64_t *end)
{
    uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];
    uint64_t offset, size = 0;
    if (*end < LOCATOR_BYTES + END64_BYTES)
        return refuse(z, "no room for the 64-bit directory record that its end record needs");
    MICA__TRY(mica__file_read_at(z->file, *end - LOCATOR_BYTES, locator, sizeof locator));
    offset = u64_at(locator + 8);
    if (u32_at(locator) != SIGNATURE_LOCATOR || u32_at(locator + 4) != 0 ||
        offset > *end - LOCATOR_BYTES - END64_BYTES)
        return refuse(z, "its end record needs a 64-bit directory record, and none is where it should be");
    MICA__TRY(mica__file_read_at(z->file, offset, record, sizeof record));
    if (u32_at(record) != SIGNATURE_END64 || !mica__add_u64(u64_at(record + 4), 12, &size) ||
        size != *end - LOCATOR_BYTES - offset || u32_at(record + 16) != 0 || u32_at(record + 20) != 0 ||
        u64_at(record + 24) != u64_at(record + 32))
        return refuse(z, "its 64-bit directory record is damaged or speaks of more than one disk");
    z->count = u64_at(record + 32);
    z->directory_bytes = u64_at(record + 40);
    z->directory_offset = u64_at(record + 48);
    *end = offset;
    return MICA_OK;
}

static mica_status find_directory(zip_reader *z)
{
    uint8_t record[END_BYTES] = {0};
    uint64_t end = 0;
    mica_status status = find_end(z, record, &end);
    if (status != MICA_OK)
        return status;
    if (u16_at(record + 4) != 0 || u16_at(record + 6) != 0 || u16_at(record + 8) != u16_at(record + 10))
        return refuse(z, "a zip over more than one disk");
    z->count = u16_at(record + 10);
    z->directory_bytes = u32_at(record + 12);
    z->directory_offset = u32_at(record + 16);
    if (z->count == UINT16_MAX || z->directory_bytes == UINT32_MAX || z->directory_offset == UINT32_MAX)
        status = read_end64(z, &end);
    if (status != MICA_OK)
        return status;
    if (z->directory_offset > end || z->directory_bytes != end - z->directory_offset)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "\"%s\": a zip directory of %llu bytes at %llu, but its end record is at %llu",
                          z->path, (unsigned long long)z->directory_bytes,
                          (unsigned long long)z->directory_offset, (unsigned long long)end);
    if (z->count > z->directory_bytes / MEMBER_BYTES || z->directory_bytes > MAX_DIRECTORY)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": %llu members in a zip directory of %llu bytes",
                          z->path, (unsigned long long)z->count, (unsigned long long)z->directory_bytes);
    return MICA_OK;
}

/* ---- a member ------------------------------------------------------------------------------------------- */

/* Replaces what is saturated by the 64-bit numbers of the extra fields, which hold only those, in this order. */
static bool read_zip64(const uint8_t *extra, uint32_t length, zip_member *m)
{
    uint64_t *const wide[] = {&m->bytes, &m->stored_bytes, &m->offset};
    uint32_t needed = 0;
    for (int i = 0; i < 3; i++)
        needed += *wide[i] == UINT32_MAX;
    while (needed != 0) {
        uint32_t size;
        if (length < 4)
            return false;
        size = u16_at(extra + 2);
        if (size > length - 4)
            return false;
        if (u16_at(extra) == EXTRA_ZIP64) {
            if (size < 8 * needed)
                return false;
            extra += 4;
            for (int i = 0; i < 3; i++) {
                if (*wide[i] == UINT32_MAX) {
                    *wide[i] = u64_at(extra);
                    extra += 8;
                }
            }
            return true;
        }
        extra += 4 + size;
        length -= 4 + size;
    }
    return true;
}

static mica_status check_name(const zip_reader *z, const zip_member *m)
{
    static const char ending[] = ".npy";
    const size_t tail = sizeof ending - 1;
    if (m->name_length > MAX_NAME)
        return refuse_member(z, m, "its name is longer than 4096 bytes");
    for (size_t at = 0; at < m->name_length;) {
        const size_t length = mica__utf8_length(m->name + at, m->name_length - at);
        if (length == 0 || m->name[at] == '\0')
            return refuse_member(z, m, "its name is not UTF-8 without NULs");
        at += length;
    }
    if (m->name_length <= tail || memcmp(m->name + m->name_length - tail, ending, tail) != 0)
        return refuse_member(z, m, "not an npy, which every member of an npz is");
    return MICA_OK;
}

/* The member at *at of the directory, which moves behind it. */
static mica_status read_member(const zip_reader *z, uint64_t *at, zip_member *out)
{
    const uint8_t *bytes = z->directory + *at;
    const uint64_t left = z->directory_bytes - *at;
    uint64_t size = MEMBER_BYTES;
    uint32_t extra;
    if (left < MEMBER_BYTES || u32_at(bytes) != SIGNATURE_MEMBER)
        return refuse(z, "its zip directory is damaged or shorter than it says");
    extra = u16_at(bytes + 30);
    out->name = (const char *)bytes + MEMBER_BYTES;
    out->name_length = u16_at(bytes + 28);
    size += (uint64_t)out->name_length + extra + u16_at(bytes + 32);
    if (size > left)
        return refuse(z, "a name in its zip directory goes past the end");
    out->flags = u16_at(bytes + 8);
    out->method = u16_at(bytes + 10);
    out->stored_bytes = u32_at(bytes + 20);
    out->bytes = u32_at(bytes + 24);
    out->offset = u32_at(bytes + 42);
    if (!read_zip64(bytes + MEMBER_BYTES + out->name_length, extra, out))
        return refuse_member(z, out, "its 64-bit sizes are missing");
    if (u16_at(bytes + 34) != 0)
        return refuse_member(z, out, "it is on another disk");
    if ((out->flags & FLAG_ENCRYPTED) != 0)
        return refuse_member(z, out, "it is encrypted");
    if (out->method == METHOD_STORED && out->stored_bytes != out->bytes)
        return refuse_member(z, out, "stored with two sizes that differ");
    *at += size;
    return check_name(z, out);
}

/* Where the data begins, behind a local header that tells the same as the directory. */
static mica_status read_local(const zip_reader *z, const zip_member *m, uint64_t *out_data)
{
    uint8_t raw[LOCAL_BYTES + MAX_NAME];
    const uint64_t end = z->directory_offset;
    uint64_t head = LOCAL_BYTES + (uint64_t)m->name_length;
    if (m->offset > end || end - m->offset < head)
        return refuse_member(z, m, "its offset is outside the file's data");
    MICA__TRY(mica__file_read_at(z->file, m->offset, raw, (size_t)head));
    if (u32_at(raw) != SIGNATURE_LOCAL)
        return refuse_member(z, m, "no member begins at its offset");
    if (u16_at(raw + 26) != m->name_length || memcmp(raw + LOCAL_BYTES, m->name, m->name_length) != 0 ||
        u16_at(raw + 8) != m->method)
        return refuse_member(z, m, "the header at its offset is another member's");
    head += u16_at(raw + 28);
    if (end - m->offset < head || end - m->offset - head < m->stored_bytes)
        return refuse_member(z, m, "its data goes past the end");
    *out_data = m->offset + head;
    return MICA_OK;
}

static mica_status add_tensor(const zip_reader *z, const zip_member *m, uint64_t data, mica__tensor *out)
{
    const uint32_t length = m->name_length - 4; /* without ".npy" */
    const char *name = mica__archive_text(z->archive, m->name, length);
    if (name == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (m->method == METHOD_STORED) {
        MICA__TRY(mica__npy_tensor(z->archive, name, data, m->bytes, out));
    } else {
        memset(out, 0, sizeof *out);
        out->problem = MICA__TENSOR_TYPE;
        out->type_name = m->method == METHOD_DEFLATED ? "deflated" : "compressed";
        out->offset = data;
        out->bytes = m->stored_bytes;
        out->scales = out->biases = MICA__NO_TENSOR;
    }
    out->name = name;
    out->name_length = length;
    return MICA_OK;
}

/* ---- all of them ---------------------------------------------------------------------------------------- */

static int by_begin(const void *a, const void *b)
{
    const range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Of the name in a sentence, without ".npy". */
static uint32_t shown_length(const range *r)
{
    return r->name_length - 4 < 200 ? r->name_length - 4 : 200;
}

static mica_status check_overlaps(const zip_reader *z, range *ranges)
{
    mica_status status = mica__sort(ranges, (size_t)z->count, sizeof *ranges, by_begin);
    for (uint64_t i = 1; i < z->count && status == MICA_OK; i++)
        if (ranges[i].begin < ranges[i - 1].end)
            status = mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": the members \"%.*s\" and \"%.*s\" overlap",
                                z->path, (int)shown_length(&ranges[i - 1]), ranges[i - 1].name,
                                (int)shown_length(&ranges[i]), ranges[i].name);
    return status;
}

/* Where the members lie. Their data is not looked at before none is seen to lie on another. */
static mica_status place_members(const zip_reader *z, range *ranges, uint64_t *data)
{
    uint64_t at = 0;
    mica_status status = MICA_OK;
    for (uint64_t i = 0; i < z->count && status == MICA_OK; i++) {
        zip_member m = {0};
        status = mica__spend(MEMBER_STEPS);
        if (status == MICA_OK)
            status = read_member(z, &at, &m);
        if (status == MICA_OK)
            status = read_local(z, &m, &data[i]);
        if (status == MICA_OK)
            ranges[i] = (range){m.offset, data[i] + m.stored_bytes, m.name, m.name_length};
    }
    if (status == MICA_OK && at != z->directory_bytes)
        status = refuse(z, "its zip directory holds more than its end record says");
    return status == MICA_OK ? check_overlaps(z, ranges) : status;
}

static mica_status read_members(const zip_reader *z, range *ranges, uint64_t *data)
{
    uint64_t at = 0;
    mica_status status = place_members(z, ranges, data);
    for (uint64_t i = 0; i < z->count && status == MICA_OK; i++) {
        zip_member m = {0};
        status = mica__spend(MEMBER_STEPS);
        if (status == MICA_OK)
            status = read_member(z, &at, &m);
        if (status == MICA_OK)
            status = add_tensor(z, &m, data[i], &z->archive->tensor[i]);
    }
    return status;
}

static mica_status read_directory(zip_reader *z)
{
    mica__archive *archive = z->archive;
    range *ranges;
    uint64_t *data;
    mica_status status;
    mica__spend_allow(z->directory_bytes);
    z->directory = mica__alloc((size_t)z->directory_bytes);
    ranges = mica__alloc((size_t)z->count * sizeof *ranges);
    data = mica__alloc((size_t)z->count * sizeof *data);
    archive->tensor = mica__archive_alloc(archive, (size_t)z->count * sizeof *archive->tensor);
    if (z->directory == NULL || ranges == NULL || data == NULL || archive->tensor == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory for %llu members", z->path,
                            (unsigned long long)z->count);
    else
        status = mica__file_read_at(z->file, z->directory_offset, z->directory, (size_t)z->directory_bytes);
    if (status == MICA_OK)
        status = read_members(z, ranges, data);
    mica__free(ranges);
    mica__free(data);
    mica__free(z->directory);
    return status;
}

mica_status mica__npz_read(mica__archive *archive)
{
    zip_reader z = {.archive = archive, .file = archive->file[0], .path = mica__file_path(archive->file[0])};
    mica_status status;
    archive->format = MICA_FORMAT_NPZ;
    status = find_directory(&z);
    if (status == MICA_OK)
        status = read_directory(&z);
    if (status != MICA_OK)
        return status;
    archive->tensor_count = archive->visible_count = (uint32_t)z.count;
    return mica__archive_index(archive);
}
