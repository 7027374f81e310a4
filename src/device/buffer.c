/* buffer.c - buffers: creation, import, facts, host access. Views are in view.c. */
#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/checked.h"
#include "base/status.h"
#include "device/objects.h"
#include "quant/dtype.h"
#include "quant/packed.h"
#include "quant/planes.h"

/* The size that a dimension counts with where sizes are multiplied: one of 0 makes the whole empty, and strides and the check
 * for overflow are those of the others. */
static uint64_t factor_of(uint64_t size)
{
    return size == 0 ? 1 : size;
}

/* Row pitch in bytes of a contiguous tensor: the last dimension, in whole blocks, and one where there is none. */
static mica_status row_bytes(const mica_buffer_desc *desc, uint64_t *out)
{
    uint64_t elements = mica_dtype_block_elements(desc->dtype);
    uint64_t k = desc->ndim > 0 ? desc->shape[desc->ndim - 1] : 1;
    if (k % elements != 0 && desc->ndim == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "ndim is 0, and the %s block has %llu elements",
                          mica_dtype_name(desc->dtype), (unsigned long long)elements);
    if (k % elements != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "shape[%u] is %llu, no multiple of the %s block of %llu",
                          desc->ndim - 1, (unsigned long long)k, mica_dtype_name(desc->dtype),
                          (unsigned long long)elements);
    if (!mica__mul_u64(factor_of(k / elements), mica_dtype_block_bytes(desc->dtype), out))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "shape: the size in bytes overflows");
    return MICA_OK;
}

/* Bytes of all rows of a packed matrix, and its row stride: an eighth of a group of eight rows, or that of the planes. */
static mica_status packed_rows(const mica_buffer_desc *desc, const mica__packing *packing,
                               uint64_t *out_stride, uint64_t *out_bytes)
{
    const uint32_t n = desc->ndim;
    const uint32_t together = packing->layout == MICA_LAYOUT_ROWS8 ? MICA__PACKED_ROWS : 1;
    uint64_t group = 0;
    if (n >= 2 && packing->layout == MICA_LAYOUT_ROWS8)
        group = mica__packed_group_bytes((uint16_t)desc->dtype, desc->shape[n - 1], packing->group_size);
    if (n >= 2 && packing->layout == MICA_LAYOUT_PLANES)
        group = mica__planes_row_bytes((uint16_t)desc->dtype, desc->shape[n - 1]);
    if (group == 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s has no such packed layout", mica_dtype_name(desc->dtype));
    *out_stride = group / together;
    if (!mica__mul_u64((factor_of(desc->shape[n - 2]) + together - 1) / together, group, out_bytes))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "shape: the size in bytes overflows");
    return MICA_OK;
}

/* Strides and bytes of what lies without gaps; `packing` NULL: canonical. */
static mica_status dense_strides(const mica_buffer_desc *desc, const mica__packing *packing, uint64_t *stride,
                                 uint64_t *out_bytes)
{
    uint32_t above = desc->ndim > 0 ? desc->ndim - 1 : 0; /* dimensions above those that `bytes` has */
    uint64_t bytes = 0;
    MICA__TRY(row_bytes(desc, &bytes));
    if (desc->ndim > 0)
        stride[above] = mica_dtype_block_bytes(desc->dtype);
    if (packing != NULL && packing->layout != MICA_LAYOUT_CANONICAL) {
        uint64_t row = 0;
        MICA__TRY(packed_rows(desc, packing, &row, &bytes));
        stride[--above] = row;
    }
    for (uint32_t d = above; d-- > 0;) {
        stride[d] = bytes;
        if (!mica__mul_u64(bytes, factor_of(desc->shape[d]), &bytes))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "shape: the size in bytes overflows");
    }
    if (bytes > (uint64_t)INT64_MAX)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "shape: the size in bytes overflows");
    *out_bytes = bytes;
    return MICA_OK;
}

mica_status mica__desc_check(const mica_buffer_desc *desc, const mica__packing *packing, uint64_t *out_stride,
                             uint64_t *out_bytes)
{
    uint64_t stride[MICA_MAX_DIMS] = {0}, elements = 1;
    bool empty = false;
    if (mica_dtype_block_bytes(desc->dtype) == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "dtype: %d is no element type", (int)desc->dtype);
    MICA__TRY(
        mica__check_flags("desc.flags", desc->flags, MICA_BUFFER_UNINITIALIZED | MICA_BUFFER_READ_ONLY));
    if (desc->ndim > MICA_MAX_DIMS)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "ndim is %u, not 0 to %d", desc->ndim, MICA_MAX_DIMS);
    for (uint32_t d = 0; d < desc->ndim; d++) {
        empty = empty || desc->shape[d] == 0;
        if (!mica__mul_u64(elements, factor_of(desc->shape[d]), &elements))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "shape: the number of elements overflows");
    }
    MICA__TRY(dense_strides(desc, packing, stride, out_bytes));
    if (out_stride != NULL)
        memcpy(out_stride, stride, sizeof stride);
    if (empty)
        *out_bytes = 0;
    return MICA_OK;
}

mica_status mica__shape_take(uint32_t ndim, const uint64_t *shape, mica_buffer_desc *desc)
{
    if (ndim > MICA_MAX_DIMS)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "ndim is %u, not 0 to %d", ndim, MICA_MAX_DIMS);
    if (shape == NULL && ndim > 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "shape is NULL");
    desc->ndim = ndim;
    for (uint32_t d = 0; d < ndim; d++)
        desc->shape[d] = shape[d];
    return MICA_OK;
}

mica_status mica__buffer_over(mica__storage *storage, const mica_buffer_desc *desc,
                              const mica__packing *packing, mica_buffer **out)
{
    *out = NULL;
    mica_buffer *buffer = mica__calloc(1, sizeof *buffer);
    if (buffer == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a buffer");
    mica_status status = mica__desc_check(desc, packing, buffer->stride, &buffer->length);
    if (status != MICA_OK) {
        mica__free(buffer);
        return status;
    }
    atomic_init(&buffer->references, 1);
    buffer->storage = mica__storage_retain(storage);
    mica_device_retain(storage->device);
    memcpy(buffer->shape, desc->shape, sizeof buffer->shape);
    buffer->dtype = desc->dtype;
    buffer->ndim = desc->ndim;
    if (packing != NULL)
        buffer->packing = *packing;
    buffer->read_only = storage->read_only;
    *out = buffer;
    return MICA_OK;
}

mica_status mica__buffer_new(mica_device *device, const mica_buffer_desc *desc, const mica__packing *packing,
                             mica_buffer **out)
{
    uint64_t bytes = 0;
    mica__storage *storage = NULL;
    *out = NULL;
    mica_status status = mica__desc_check(desc, packing, NULL, &bytes);
    if (status == MICA_OK)
        status =
            mica__storage_create(device, bytes, (desc->flags & MICA_BUFFER_UNINITIALIZED) == 0, &storage);
    if (status == MICA_OK)
        status = mica__buffer_over(storage, desc, packing, out);
    mica__storage_release(storage);
    return status;
}

mica_status mica_buffer_create(mica_device *device, const mica_buffer_desc *desc, mica_buffer **out_buffer)
{
    if (out_buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_create: out_buffer is NULL");
    *out_buffer = NULL;
    if (device == NULL || desc == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_create: %s is NULL",
                          device == NULL ? "device" : "desc");
    return mica__buffer_new(device, desc, NULL, out_buffer);
}

mica_status mica_buffer_alloc(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                              mica_buffer **out_buffer)
{
    mica_buffer_desc desc = {dtype, ndim, {0}, 0};
    if (out_buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_alloc: out_buffer is NULL");
    *out_buffer = NULL;
    MICA__TRY(mica__shape_take(ndim, shape, &desc));
    return mica_buffer_create(device, &desc, out_buffer);
}

mica_status mica_buffer_import(mica_device *device, void *pointer, uint64_t bytes,
                               const mica_buffer_desc *desc, mica_import_release release, void *context,
                               mica_buffer **out_buffer)
{
    uint64_t needed = 0;
    mica__storage *storage = NULL;
    if (out_buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_import: out_buffer is NULL");
    *out_buffer = NULL;
    if (device == NULL || (pointer == NULL && bytes > 0) || desc == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_import: %s is NULL",
                          device == NULL ? "device"
                          : desc == NULL ? "desc"
                                         : "pointer");
    mica_status status = mica__desc_check(desc, NULL, NULL, &needed);
    if (status == MICA_OK && (uintptr_t)pointer % mica__dtype_alignment(desc->dtype) != 0)
        status = mica__fail(MICA_ERR_INVALID_ARGUMENT,
                            "buffer_import: pointer is %p, expected a multiple of %u for %s", pointer,
                            mica__dtype_alignment(desc->dtype), mica_dtype_name(desc->dtype));
    if (status == MICA_OK && needed > bytes)
        status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_import: bytes is %llu, desc needs %llu",
                            (unsigned long long)bytes, (unsigned long long)needed);
    if (status == MICA_OK)
        status = mica__storage_import(device, pointer, bytes, (desc->flags & MICA_BUFFER_READ_ONLY) != 0,
                                      &storage);
    if (status == MICA_OK)
        status = mica__buffer_over(storage, desc, NULL, out_buffer);
    if (status == MICA_OK) {
        storage->release = release; /* only now: a failed import leaves the memory with the caller */
        storage->release_context = context;
    }
    mica__storage_release(storage);
    return status;
}

mica_buffer *mica_buffer_retain(mica_buffer *buffer)
{
    if (buffer != NULL)
        atomic_fetch_add_explicit(&buffer->references, 1, memory_order_relaxed);
    return buffer;
}

void mica_buffer_release(mica_buffer *buffer)
{
    if (buffer == NULL || atomic_fetch_sub_explicit(&buffer->references, 1, memory_order_acq_rel) != 1)
        return;
    mica_device *device = buffer->storage->device;
    mica_buffer_release(buffer->scales);
    mica_buffer_release(buffer->biases);
    mica__storage_release(buffer->storage);
    mica__free(buffer->staged);
    mica__free(buffer);
    mica_device_release(device);
}

mica_device *mica_buffer_device(const mica_buffer *buffer)
{
    return buffer == NULL ? NULL : buffer->storage->device;
}

static uint32_t is_contiguous(const mica_buffer *buffer)
{
    mica_buffer_desc desc = {buffer->dtype, buffer->ndim, {0}, 0};
    uint64_t stride[MICA_MAX_DIMS], bytes;
    if (buffer->length == 0)
        return 1;
    memcpy(desc.shape, buffer->shape, sizeof desc.shape);
    if (mica__desc_check(&desc, &buffer->packing, stride, &bytes) != MICA_OK)
        return 0;
    for (uint32_t d = 0; d < buffer->ndim; d++)
        if (buffer->shape[d] > 1 && buffer->stride[d] != stride[d])
            return 0;
    return 1;
}

bool mica__buffer_contiguous(const mica_buffer *buffer)
{
    return is_contiguous(buffer) != 0;
}

mica_status mica_buffer_get_info(const mica_buffer *buffer, mica_buffer_info *out)
{
    if (buffer == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_get_info: %s is NULL",
                          buffer == NULL ? "buffer" : "out");
    memset(out, 0, sizeof *out);
    out->dtype = buffer->dtype;
    out->layout = buffer->packing.layout;
    out->ndim = buffer->ndim;
    memcpy(out->shape, buffer->shape, sizeof out->shape);
    memcpy(out->stride, buffer->stride, sizeof out->stride);
    out->byte_offset = buffer->offset;
    out->byte_length = buffer->length;
    out->element_count = 1;
    for (uint32_t d = 0; d < buffer->ndim; d++)
        out->element_count *= buffer->shape[d];
    out->storage_bytes = buffer->storage->bytes;
    out->contiguous = is_contiguous(buffer);
    out->read_only = buffer->read_only;
    out->imported = buffer->storage->imported;
    out->group_size = buffer->packing.group_size;
    return MICA_OK;
}

void mica__operand_from(const mica_buffer *buffer, uint32_t access, mica__operand *out)
{
    if (buffer == NULL) {
        memset(out, 0, sizeof *out);
        return;
    }
    out->memory = buffer->storage->memory;
    out->storage = buffer->storage;
    out->offset = buffer->offset;
    out->length = buffer->length;
    for (uint32_t d = 0; d < buffer->ndim; d++) { /* nobody reads the others */
        out->shape[d] = buffer->shape[d];
        out->stride[d] = buffer->stride[d];
    }
    out->dtype = (uint16_t)buffer->dtype;
    out->ndim = (uint8_t)buffer->ndim;
    out->access = (uint8_t)access;
    out->layout = (uint8_t)buffer->packing.layout;
    out->temporary = buffer->temporary;
    out->group_size = buffer->packing.group_size;
}

/* ---- host access ---- */

mica_status mica__buffer_placed(const char *call, const mica_buffer *buffer)
{
    if (buffer->storage->memory != NULL)
        return MICA_OK;
    return mica__fail(MICA_ERR_STATE,
                      "%s: buffer is a temporary of a recording session: it has memory only inside the pass, "
                      "and nobody else sees what it holds",
                      call);
}

/* A copy on the host, always with what the device has: a program may write a part of what it maps. */
static mica_status map_staged(mica_device *device, mica_buffer *buffer, uint32_t access, void **out_pointer)
{
    mica_status status = MICA_OK;
    pthread_mutex_lock(&device->lock);
    if (buffer->maps == 0) {
        buffer->staged = mica__alloc((size_t)buffer->length);
        buffer->maps_access = 0;
        status = buffer->staged == NULL
                     ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "buffer_map: no host memory for %llu bytes",
                                  (unsigned long long)buffer->length)
                     : device->table->download(device->impl, buffer->storage->memory, buffer->offset,
                                               buffer->staged, buffer->length);
        if (status != MICA_OK) {
            mica__free(buffer->staged);
            buffer->staged = NULL;
        }
    }
    if (status == MICA_OK) {
        buffer->maps++;
        buffer->maps_access |= access;
        *out_pointer = buffer->staged;
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

/* The last unmap takes what was written to the device. */
static mica_status unmap_staged(mica_device *device, mica_buffer *buffer)
{
    mica_status status = MICA_OK;
    pthread_mutex_lock(&device->lock);
    if (buffer->maps > 0 && --buffer->maps == 0) {
        if ((buffer->maps_access & MICA_ACCESS_WRITE) != 0)
            status = device->table->upload(device->impl, buffer->storage->memory, buffer->offset,
                                           buffer->staged, buffer->length);
        mica__free(buffer->staged);
        buffer->staged = NULL;
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

mica_status mica_buffer_map(mica_buffer *buffer, uint32_t access, void **out_pointer)
{
    if (out_pointer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_map: out_pointer is NULL");
    *out_pointer = NULL;
    if (buffer == NULL || access == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_map: %s",
                          buffer == NULL ? "buffer is NULL" : "access is 0");
    MICA__TRY(mica__check_flags("buffer_map: access", access, MICA_ACCESS_READ | MICA_ACCESS_WRITE));
    if (buffer->read_only && (access & MICA_ACCESS_WRITE) != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "buffer_map: buffer is read-only and access asks to write");
    MICA__TRY(mica__buffer_placed("buffer_map", buffer));
    mica_device *device = buffer->storage->device;
    mica_status status = mica__device_wait_idle(device);
    if (status != MICA_OK)
        return status;
    if (buffer->length == 0)
        return MICA_OK;
    if (device->table->buffer_map == NULL)
        return map_staged(device, buffer, access, out_pointer);
    void *base = NULL;
    status = device->table->buffer_map(device->impl, buffer->storage->memory, &base);
    if (status == MICA_OK)
        *out_pointer = (unsigned char *)base + buffer->offset;
    return status;
}

mica_status mica_buffer_unmap(mica_buffer *buffer)
{
    if (buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_unmap: buffer is NULL");
    MICA__TRY(mica__buffer_placed("buffer_unmap", buffer));
    mica_device *device = buffer->storage->device;
    if (buffer->length == 0)
        return MICA_OK;
    if (device->table->buffer_map == NULL)
        return unmap_staged(device, buffer);
    if (device->table->buffer_unmap != NULL)
        device->table->buffer_unmap(device->impl, buffer->storage->memory);
    return MICA_OK;
}

static mica_status check_transfer(const char *call, const mica_buffer *buffer, uint64_t offset,
                                  const void *host, uint64_t bytes)
{
    if (buffer == NULL || (host == NULL && bytes > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call,
                          buffer == NULL ? "buffer" : "host pointer");
    MICA__TRY(mica__buffer_placed(call, buffer));
    if (!is_contiguous(buffer))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: buffer is not contiguous", call);
    if (offset > buffer->length || bytes > buffer->length - offset)
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT, "%s: bytes %llu at offset %llu reach past the buffer's %llu", call,
            (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)buffer->length);
    return MICA_OK;
}

mica_status mica__buffer_put(mica_buffer *buffer, uint64_t offset, const void *source, uint64_t bytes)
{
    MICA__TRY(check_transfer("buffer_write", buffer, offset, source, bytes));
    if (buffer->read_only)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_write: buffer is read-only");
    mica_device *device = buffer->storage->device;
    MICA__COUNT(device, bytes_uploaded, bytes);
    return device->table->upload(device->impl, buffer->storage->memory, buffer->offset + offset, source,
                                 bytes);
}

mica_status mica_buffer_write(mica_buffer *buffer, uint64_t offset, const void *source, uint64_t bytes)
{
    MICA__TRY(check_transfer("buffer_write", buffer, offset, source, bytes));
    MICA__TRY(mica__device_wait_idle(buffer->storage->device));
    return mica__buffer_put(buffer, offset, source, bytes);
}

mica_status mica__buffer_take(mica_buffer *buffer, uint64_t offset, void *target, uint64_t bytes)
{
    MICA__TRY(check_transfer("buffer_read", buffer, offset, target, bytes));
    mica_device *device = buffer->storage->device;
    MICA__COUNT(device, bytes_downloaded, bytes);
    return device->table->download(device->impl, buffer->storage->memory, buffer->offset + offset, target,
                                   bytes);
}

mica_status mica_buffer_read(mica_buffer *buffer, uint64_t offset, void *target, uint64_t bytes)
{
    MICA__TRY(check_transfer("buffer_read", buffer, offset, target, bytes));
    MICA__TRY(mica__device_wait_idle(buffer->storage->device));
    return mica__buffer_take(buffer, offset, target, bytes);
}
