/*
 * transfer.c - see transfer.h. Where one side lies in the host's memory its bytes go once; between others they go through a piece of the host's, a part at a time.
 */
#include "graph/exec/transfer.h"

#include "base/alloc.h"
#include "device/objects.h"
#include "mica/ops.h"

#define PIECE_BYTES (4u << 20)
#define DLPACK_HOST 1 /* DLPack's kDLCPU: the handle of a buffer is a pointer of the host's */

static unsigned char *host_pointer(const mica_buffer *buffer)
{
    const mica__storage *storage = buffer->storage;
    return storage->device->info.dlpack_device == DLPACK_HOST
               ? (unsigned char *)storage->memory->native + buffer->offset
               : NULL;
}

static mica_status through_host(mica_buffer *from, mica_buffer *to, uint64_t bytes)
{
    const uint64_t piece = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
    unsigned char *memory = mica__alloc((size_t)piece);
    if (memory == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY,
                          "no memory for %llu bytes on their way from device to device",
                          (unsigned long long)piece);
    mica_status status = MICA_OK;
    for (uint64_t at = 0; at < bytes && status == MICA_OK; at += piece) {
        const uint64_t part = bytes - at < piece ? bytes - at : piece;
        status = mica__buffer_take(from, at, memory, part);
        if (status == MICA_OK)
            status = mica__buffer_put(to, at, memory, part);
    }
    mica__free(memory);
    return status;
}

/* The same elements in a row, on their device. */
static mica_status in_a_row(mica_buffer *from, mica_buffer **out)
{
    mica_buffer_desc desc = {.dtype = from->dtype, .ndim = from->ndim, .flags = MICA_BUFFER_UNINITIALIZED};
    for (uint32_t d = 0; d < from->ndim; d++)
        desc.shape[d] = from->shape[d];
    mica_encoder *encoder = NULL;
    MICA__TRY(mica_buffer_create(mica_buffer_device(from), &desc, out));
    mica_status status = mica_encoder_begin(mica_buffer_device(from), NULL, &encoder);
    if (status == MICA_OK)
        status = mica_copy(encoder, from, *out);
    if (status == MICA_OK)
        status = mica_encoder_commit_and_wait(encoder);
    mica_encoder_release(encoder);
    if (status != MICA_OK) {
        mica_buffer_release(*out);
        *out = NULL;
    }
    return status;
}

mica_status mica__transfer(mica_buffer *from, mica_buffer *to)
{
    if (from->scales != NULL || from->packing.layout != to->packing.layout)
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "weights with tables of scales, and packed ones, are not copied from device to device");
    if (!mica__buffer_contiguous(from)) {
        mica_buffer *row = NULL;
        MICA__TRY(in_a_row(from, &row));
        const mica_status status = mica__transfer(row, to);
        mica_buffer_release(row);
        return status;
    }
    const uint64_t bytes = from->length;
    if (bytes == 0)
        return MICA_OK;
    if (host_pointer(from) != NULL)
        return mica__buffer_put(to, 0, host_pointer(from), bytes);
    if (host_pointer(to) != NULL)
        return mica__buffer_take(from, 0, host_pointer(to), bytes);
    return through_host(from, to, bytes);
}
