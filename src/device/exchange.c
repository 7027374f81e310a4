/* exchange.c - buffers as other libraries see them, and weights in the layout their device likes. */
#include <string.h>

#include "base/status.h"
#include "device/encoder.h"
#include "quant/packed.h"

mica_status mica_buffer_native(const mica_buffer *buffer, void **out_handle, uint64_t *out_offset)
{
    if (buffer == NULL || out_handle == NULL || out_offset == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_native: %s is NULL",
                          buffer == NULL       ? "buffer"
                          : out_handle == NULL ? "out_handle"
                                               : "out_offset");
    MICA__TRY(mica__buffer_placed("buffer_native", buffer));
    *out_handle = buffer->storage->memory->native;
    *out_offset = buffer->offset;
    return MICA_OK;
}

/* DLPack's code and bits for each type it knows. */
static const struct {
    mica_dtype dtype;
    uint8_t code, bits;
} dlpack_types[] = {
    {MICA_DTYPE_F32, 2, 32}, {MICA_DTYPE_F16, 2, 16}, {MICA_DTYPE_F64, 2, 64}, {MICA_DTYPE_BF16, 4, 16},
    {MICA_DTYPE_C64, 5, 64}, {MICA_DTYPE_I8, 0, 8},   {MICA_DTYPE_I16, 0, 16}, {MICA_DTYPE_I32, 0, 32},
    {MICA_DTYPE_I64, 0, 64}, {MICA_DTYPE_U8, 1, 8},   {MICA_DTYPE_U16, 1, 16}, {MICA_DTYPE_U32, 1, 32},
    {MICA_DTYPE_U64, 1, 64}, {MICA_DTYPE_BOOL, 6, 8},
};

mica_status mica_buffer_dlpack(const mica_buffer *buffer, mica_dlpack_view *out_view)
{
    if (buffer == NULL || out_view == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_dlpack: %s is NULL",
                          buffer == NULL ? "buffer" : "out_view");
    memset(out_view, 0, sizeof *out_view);
    MICA__TRY(mica__buffer_placed("buffer_dlpack", buffer));
    for (size_t i = 0; i < sizeof dlpack_types / sizeof dlpack_types[0]; i++) {
        if (dlpack_types[i].dtype == buffer->dtype) {
            out_view->type_code = dlpack_types[i].code;
            out_view->type_bits = dlpack_types[i].bits;
        }
    }
    if (out_view->type_bits == 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "buffer_dlpack: buffer: DLPack has no %s",
                          mica_dtype_name(buffer->dtype));
    uint64_t element = mica_dtype_block_bytes(buffer->dtype);
    for (uint32_t d = 0; d < buffer->ndim; d++) {
        out_view->shape[d] = (int64_t)buffer->shape[d];
        out_view->strides[d] = (int64_t)(buffer->stride[d] / element);
    }
    out_view->data = buffer->storage->memory->native;
    out_view->byte_offset = buffer->offset;
    out_view->device_type = buffer->storage->device->info.dlpack_device;
    out_view->ndim = (int32_t)buffer->ndim;
    out_view->type_lanes = 1;
    return MICA_OK;
}

/* Packing is a copy between layouts: the copy row of the device's kernels does it. */
mica_status mica__pack_into(mica_buffer *weight, mica_buffer *packed)
{
    mica_encoder *encoder = NULL;
    mica__operand operand[MICA__COPY_SLOTS];
    mica__operand_from(weight, MICA_ACCESS_READ, &operand[MICA__COPY_X]);
    mica__operand_from(weight->scales, MICA_ACCESS_READ, &operand[MICA__COPY_SCALES]);
    mica__operand_from(weight->biases, MICA_ACCESS_READ, &operand[MICA__COPY_BIASES]);
    mica__operand_from(packed, MICA_ACCESS_WRITE, &operand[MICA__COPY_Y]);
    mica__record record = {
        .op = MICA_OP_COPY, .operand_count = MICA__COPY_SLOTS, .operand = operand, .params = operand};
    mica_status status = mica_encoder_begin(weight->storage->device, NULL, &encoder);
    if (status == MICA_OK)
        status = mica__encoder_add(encoder, &record);
    if (status == MICA_OK)
        status = mica_encoder_commit_and_wait(encoder);
    mica_encoder_release(encoder);
    return status;
}

mica__packing mica__pack_target(const mica_device *device, const mica__operand *weight, mica_dtype scales)
{
    mica__packing packing = {device->backend->weight_layout(weight, &device->info), weight->group_size};
    for (uint32_t d = 0; d < weight->ndim; d++)
        if (weight->shape[d] == 0) /* nothing can be arranged */
            packing.layout = (mica_layout)weight->layout;
    if (scales != MICA_DTYPE_NONE &&
        !mica__packed_scales(weight->dtype, weight->group_size, (uint16_t)scales))
        packing.layout = (mica_layout)weight->layout;
    return packing;
}

mica_status mica_buffer_pack(mica_buffer *weight, mica_buffer **out_packed)
{
    if (out_packed == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_pack: out_packed is NULL");
    *out_packed = NULL;
    if (weight == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_pack: weight is NULL");
    mica_device *device = weight->storage->device;
    mica__operand operand;
    mica__operand_from(weight, MICA_ACCESS_READ, &operand);
    const mica__packing packing =
        mica__pack_target(device, &operand, weight->scales == NULL ? MICA_DTYPE_NONE : weight->scales->dtype);
    if (packing.layout == weight->packing.layout) {
        *out_packed = mica_buffer_retain(weight);
        return MICA_OK;
    }
    mica_buffer_desc desc = {weight->dtype, weight->ndim, {0}, MICA_BUFFER_UNINITIALIZED};
    memcpy(desc.shape, weight->shape, sizeof desc.shape);
    mica_buffer *packed = NULL;
    mica_status status = mica__buffer_new(device, &desc, &packing, &packed);
    if (status == MICA_OK)
        status = mica__pack_into(weight, packed);
    if (status != MICA_OK) {
        mica_buffer_release(packed);
        return status;
    }
    *out_packed = packed;
    return MICA_OK;
}
