/*
 * npz_write.c - writes npz: a zip of npy members, stored, each with its data at a multiple of 64 bytes.
 *
 * Members are streamed, so their checksums stand behind them (the zip's data descriptor) and in the directory. Sizes
 * and offsets of 4 GiB and more, and 65535 members and more, are written as the zip format's 64-bit fields.
 */
#include <string.h>

#include "format/npy.h"

#define DATA_ALIGN 64
#define MAX_NAME 4092u /* with .npy what our reader takes */
#define LOCAL_BYTES 30
#define EXTRA_ZIP64 1u
#define EXTRA_PADDING 0xd935u /* known to zip programs: the alignment of the data, and bytes to reach it */
#define FLAGS 0x0808u         /* sizes behind the data, names in UTF-8 */
#define VERSION 20u
#define VERSION_ZIP64 45u
#define DATE 0x0021u       /* 1 January 1980: the same tensors make the same file */
#define MADE_BY_UNIX 3u    /* else some programs take names for those of a DOS code page */
#define FILE_MODE 0100644u /* a plain file that its owner writes and all read */
#define CRC_SLICES 8

typedef struct written_member {
    uint64_t offset; /* of its local header */
    uint32_t crc;
} written_member;

typedef struct zip_writer {
    uint32_t table[CRC_SLICES][256]; /* table[s][b]: byte b with s zero bytes behind it */
    uint32_t crc;                    /* of the member in work, inverted */
    uint32_t count;
    written_member member[]; /* [tensor_count] */
} zip_writer;

/* ---- bytes ---------------------------------------------------------------------------------------------- */

/* Numbers in the order of the zip format, into room that the caller knows to suffice. */
typedef struct record {
    uint8_t bytes[160];
    size_t size;
} record;

static void put(record *r, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        r->bytes[r->size++] = (uint8_t)(value >> 8 * i);
}

static uint32_t cut32(uint64_t value)
{
    return value >= UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static void fill_table(zip_writer *z)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
        z->table[0][b] = crc;
    }
    for (uint32_t s = 1; s < CRC_SLICES; s++)
        for (uint32_t b = 0; b < 256; b++)
            z->table[s][b] = z->table[s - 1][b] >> 8 ^ z->table[0][z->table[s - 1][b] & 0xff];
}

/* Eight bytes at a time: each goes through the table of its distance to the eighth. */
static void checksum(zip_writer *z, const void *data, uint64_t size)
{
    const uint8_t *at = data;
    uint32_t crc = z->crc;
    for (; size >= CRC_SLICES; size -= CRC_SLICES, at += CRC_SLICES) {
        const uint32_t first =
            crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = z->table[7][first & 0xff] ^ z->table[6][first >> 8 & 0xff] ^ z->table[5][first >> 16 & 0xff] ^
              z->table[4][first >> 24] ^ z->table[3][at[4]] ^ z->table[2][at[5]] ^ z->table[1][at[6]] ^
              z->table[0][at[7]];
    }
    for (; size > 0; size--)
        crc = crc >> 8 ^ z->table[0][(crc ^ *at++) & 0xff];
    z->crc = crc;
}

/* ---- the writer's steps --------------------------------------------------------------------------------- */

static mica_status check_tensor(const mica_writer *writer, const mica__writer_tensor *tensor)
{
    if (tensor->name_length > MAX_NAME)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "\"%s\": the name of tensor \"%.200s\" is longer than %u bytes", writer->path,
                          tensor->name, MAX_NAME);
    if (mica__npy_descr((uint16_t)tensor->dtype) == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\": tensor \"%s\" is of type %s, which npz does not have", writer->path,
                          tensor->name, mica_dtype_name(tensor->dtype));
    return MICA_OK;
}

static mica_status begin(mica_writer *writer, const mica__writer_file *part)
{
    const size_t bytes = sizeof(zip_writer) + (size_t)part->count * sizeof(written_member);
    zip_writer *z = mica__writer_alloc(writer, bytes);
    if (z == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    memset(z, 0, bytes);
    fill_table(z);
    writer->state = z;
    return MICA_OK;
}

/* Bytes of a member: the npy's header and data. */
static uint64_t member_bytes(const mica__writer_tensor *tensor)
{
    char header[MICA__NPY_HEADER_ROOM];
    return mica__npy_header(tensor, header) + tensor->bytes;
}

static mica_status put_local(mica_writer *writer, const mica__writer_tensor *tensor, bool wide)
{
    const uint32_t name_length = tensor->name_length + 4, fixed = wide ? 20 : 0;
    const uint64_t used = mica__writer_position(writer) + LOCAL_BYTES + name_length + fixed + 6;
    const uint32_t padding = (uint32_t)((DATA_ALIGN - used % DATA_ALIGN) % DATA_ALIGN);
    record head = {.size = 0}, extra = {.size = 0};
    mica_status status;
    put(&head, 0x04034b50, 4);
    put(&head, wide ? VERSION_ZIP64 : VERSION, 2);
    put(&head, FLAGS, 2);
    put(&head, 0, 2); /* stored */
    put(&head, 0, 2);
    put(&head, DATE, 2);
    put(&head, 0, 4); /* checksum and both sizes: behind the data */
    put(&head, wide ? UINT32_MAX : 0, 4);
    put(&head, wide ? UINT32_MAX : 0, 4);
    put(&head, name_length, 2);
    put(&head, fixed + 6 + padding, 2);
    if (wide) {
        put(&extra, EXTRA_ZIP64, 2);
        put(&extra, 16, 2);
        put(&extra, 0, 8);
        put(&extra, 0, 8);
    }
    put(&extra, EXTRA_PADDING, 2);
    put(&extra, 2 + padding, 2);
    put(&extra, DATA_ALIGN, 2);
    memset(extra.bytes + extra.size, 0, padding);
    extra.size += padding;
    status = mica__writer_put(writer, head.bytes, head.size);
    if (status == MICA_OK)
        status = mica__writer_put(writer, tensor->name, tensor->name_length);
    if (status == MICA_OK)
        status = mica__writer_put(writer, ".npy", 4);
    return status == MICA_OK ? mica__writer_put(writer, extra.bytes, extra.size) : status;
}

static mica_status before(mica_writer *writer, const mica__writer_tensor *tensor)
{
    zip_writer *z = writer->state;
    char header[MICA__NPY_HEADER_ROOM];
    const size_t size = mica__npy_header(tensor, header);
    mica_status status;
    z->member[z->count].offset = mica__writer_position(writer);
    status = put_local(writer, tensor, member_bytes(tensor) >= UINT32_MAX);
    z->crc = UINT32_MAX;
    checksum(z, header, size);
    return status == MICA_OK ? mica__writer_put(writer, header, size) : status;
}

static mica_status data(mica_writer *writer, const void *bytes, uint64_t size)
{
    checksum(writer->state, bytes, size);
    return MICA_OK;
}

static mica_status after(mica_writer *writer, const mica__writer_tensor *tensor)
{
    zip_writer *z = writer->state;
    const uint64_t size = member_bytes(tensor);
    const uint32_t width = size >= UINT32_MAX ? 8 : 4;
    record descriptor = {.size = 0};
    z->member[z->count++].crc = ~z->crc;
    put(&descriptor, 0x08074b50, 4);
    put(&descriptor, ~z->crc, 4);
    put(&descriptor, size, width);
    put(&descriptor, size, width);
    return mica__writer_put(writer, descriptor.bytes, descriptor.size);
}

/* A member in the directory; its 64-bit fields hold what does not fit, sizes before the offset. */
static mica_status put_member(mica_writer *writer, const mica__writer_tensor *tensor, const written_member *m)
{
    const uint64_t size = member_bytes(tensor);
    const bool wide = size >= UINT32_MAX, far_off = m->offset >= UINT32_MAX;
    const uint32_t fields = (wide ? 16 : 0) + (far_off ? 8 : 0);
    record head = {.size = 0}, extra = {.size = 0};
    mica_status status;
    put(&head, 0x02014b50, 4);
    put(&head, MADE_BY_UNIX << 8 | VERSION_ZIP64, 2);
    put(&head, fields != 0 ? VERSION_ZIP64 : VERSION, 2);
    put(&head, FLAGS, 2);
    put(&head, 0, 4); /* stored, midnight */
    put(&head, DATE, 2);
    put(&head, m->crc, 4);
    put(&head, cut32(size), 4);
    put(&head, cut32(size), 4);
    put(&head, tensor->name_length + 4, 2);
    put(&head, fields != 0 ? fields + 4 : 0, 2);
    put(&head, 0, 2 + 2 + 2); /* comment, disk, attributes */
    put(&head, FILE_MODE << 16, 4);
    put(&head, cut32(m->offset), 4);
    if (fields != 0) {
        put(&extra, EXTRA_ZIP64, 2);
        put(&extra, fields, 2);
        put(&extra, size, wide ? 8 : 0);
        put(&extra, size, wide ? 8 : 0);
        put(&extra, m->offset, far_off ? 8 : 0);
    }
    status = mica__writer_put(writer, head.bytes, head.size);
    if (status == MICA_OK)
        status = mica__writer_put(writer, tensor->name, tensor->name_length);
    if (status == MICA_OK)
        status = mica__writer_put(writer, ".npy", 4);
    return status == MICA_OK ? mica__writer_put(writer, extra.bytes, extra.size) : status;
}

/* The end record, with the 64-bit one and its locator before it where a number needs them. */
static mica_status put_end(mica_writer *writer, uint64_t count, uint64_t start)
{
    const uint64_t end = mica__writer_position(writer), size = end - start;
    const uint32_t few = count >= UINT16_MAX ? UINT16_MAX : (uint32_t)count;
    record r = {.size = 0};
    if (few == UINT16_MAX || start >= UINT32_MAX || size >= UINT32_MAX) {
        put(&r, 0x06064b50, 4);
        put(&r, 44, 8); /* what follows of this record */
        put(&r, VERSION_ZIP64, 2);
        put(&r, VERSION_ZIP64, 2);
        put(&r, 0, 8); /* disks */
        put(&r, count, 8);
        put(&r, count, 8);
        put(&r, size, 8);
        put(&r, start, 8);
        put(&r, 0x07064b50, 4);
        put(&r, 0, 4);
        put(&r, end, 8);
        put(&r, 1, 4);
    }
    put(&r, 0x06054b50, 4);
    put(&r, 0, 4); /* disks */
    put(&r, few, 2);
    put(&r, few, 2);
    put(&r, cut32(size), 4);
    put(&r, cut32(start), 4);
    put(&r, 0, 2); /* comment */
    return mica__writer_put(writer, r.bytes, r.size);
}

static mica_status end(mica_writer *writer, const mica__writer_file *part)
{
    const zip_writer *z = writer->state;
    const uint64_t start = mica__writer_position(writer);
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < part->count && status == MICA_OK; i++)
        status = put_member(writer, &writer->tensor[part->first + i], &z->member[i]);
    return status == MICA_OK ? put_end(writer, part->count, start) : status;
}

const mica__writer_format mica__npz_format = {
    .format = MICA_FORMAT_NPZ,
    .ending = ".npz",
    .check_tensor = check_tensor,
    .begin = begin,
    .before = before,
    .data = data,
    .after = after,
    .end = end,
};
