/* view.c - views: other windows on the same storage. Offsets compose, bounds are the parent's bytes. */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "quant/dtype.h"
#include "quant/quant.h"
#include "device/objects.h"

/* Bytes from the first to past the last byte of a strided window that is not empty; false on overflow. */
static bool hull_bytes(mica_dtype dtype, uint32_t ndim, const uint64_t *shape, const uint64_t *stride,
                       uint64_t *out)
{
    uint64_t elements = mica_dtype_block_elements(dtype), hull = mica_dtype_block_bytes(dtype);
    for (uint32_t d = 0; d < ndim; d++) {
        uint64_t n = d == ndim - 1 ? shape[d] / elements : shape[d], reach = 0;
        if (!mica__mul_u64(n - 1, stride[d], &reach) || !mica__add_u64(hull, reach, &hull))
            return false;
    }
    *out = hull;
    return true;
}

/* A copy of the handle over the same storage, with no aux buffers. */
static mica_status clone_handle(const mica_buffer *buffer, mica_buffer **out)
{
    mica_buffer *view = mica__calloc(1, sizeof *view);
    if (view == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a view");
    atomic_init(&view->references, 1);
    view->storage = mica__storage_retain(buffer->storage);
    mica_device_retain(buffer->storage->device);
    view->offset = buffer->offset;
    view->length = buffer->length;
    memcpy(view->shape, buffer->shape, sizeof view->shape);
    memcpy(view->stride, buffer->stride, sizeof view->stride);
    view->dtype = buffer->dtype;
    view->packing = buffer->packing;
    view->ndim = buffer->ndim;
    view->temporary = buffer->temporary;
    view->read_only = buffer->read_only;
    *out = view;
    return MICA_OK;
}

static mica_status check_view(const char *call, const mica_buffer *buffer, mica_buffer **out)
{
    if (out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: out_view is NULL", call);
    *out = NULL;
    if (buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: buffer is NULL", call);
    return MICA_OK;
}

/* Every element lies where kernels can read it: its address is a multiple of its type's alignment. */
static mica_status check_alignment(const mica_buffer *buffer, const mica_buffer_desc *desc,
                                   const uint64_t *stride, uint64_t byte_offset)
{
    const uint64_t unit = mica__dtype_alignment(desc->dtype);
    const uint64_t base = (uintptr_t)buffer->storage->import_pointer % unit; /* of our own storages 0 */
    if ((base + buffer->offset + byte_offset) % unit != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "buffer_view: byte_offset is %llu, which puts %s at byte %llu of its memory, "
                          "expected a multiple of %llu",
                          (unsigned long long)byte_offset, mica_dtype_name(desc->dtype),
                          (unsigned long long)(buffer->offset + byte_offset), (unsigned long long)unit);
    for (uint32_t d = 0; d < desc->ndim; d++)
        if (stride[d] % unit != 0)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "buffer_view: stride[%u] is %llu, expected a multiple of %llu for %s", d,
                              (unsigned long long)stride[d], (unsigned long long)unit,
                              mica_dtype_name(desc->dtype));
    return MICA_OK;
}

/* Block rows must stay whole: the last dimension of a block type is contiguous and so are its strides' units. */
static mica_status check_strides(const mica_buffer_desc *desc, const uint64_t *stride)
{
    const uint32_t last = desc->ndim - 1; /* a scalar has no blocks */
    if (mica_dtype_block_elements(desc->dtype) > 1 && stride[last] != mica_dtype_block_bytes(desc->dtype))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "stride[%u] is %llu, but %s blocks must follow each other", last,
                          (unsigned long long)stride[last], mica_dtype_name(desc->dtype));
    return MICA_OK;
}

mica_status mica_buffer_view(mica_buffer *buffer, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                             const uint64_t *stride, uint64_t byte_offset, mica_buffer **out_view)
{
    mica_buffer_desc desc = {dtype, ndim, {0}, 0};
    uint64_t steps[MICA_MAX_DIMS] = {0}, bytes = 0, end = 0;
    mica_status status = check_view("buffer_view", buffer, out_view);
    if (status != MICA_OK)
        return status;
    MICA__TRY(mica__shape_take(ndim, shape, &desc));
    if (buffer->packing.layout != MICA_LAYOUT_CANONICAL || buffer->scales != NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "buffer_view: buffer is packed or affine; slice it instead");
    status = mica__desc_check(&desc, NULL, steps, &bytes);
    if (status == MICA_OK && stride != NULL) {
        memcpy(steps, stride, ndim * sizeof *stride);
        status = check_strides(&desc, steps);
        if (status == MICA_OK && bytes != 0 && !hull_bytes(dtype, ndim, desc.shape, steps, &bytes))
            status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_view: stride: the extent overflows");
    }
    if (status != MICA_OK)
        return status;
    if (!mica__add_u64(byte_offset, bytes, &end) || end > buffer->length)
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT,
            "buffer_view: shape and stride span %llu bytes, at byte_offset %llu past the buffer's %llu",
            (unsigned long long)bytes, (unsigned long long)byte_offset, (unsigned long long)buffer->length);
    mica_buffer *view = NULL;
    status = check_alignment(buffer, &desc, steps, byte_offset);
    if (status == MICA_OK)
        status = clone_handle(buffer, &view);
    if (status != MICA_OK)
        return status;
    view->offset = buffer->offset + byte_offset;
    view->length = bytes;
    view->dtype = dtype;
    view->ndim = ndim;
    memcpy(view->shape, desc.shape, sizeof view->shape);
    memcpy(view->stride, steps, sizeof view->stride);
    *out_view = view;
    return MICA_OK;
}

/* The unit a slice of `dim` must keep whole: blocks along the last dimension, groups of eight packed rows. */
static uint64_t slice_unit(const mica_buffer *buffer, uint32_t dim)
{
    if (dim == buffer->ndim - 1)
        return mica_dtype_block_elements(buffer->dtype);
    return buffer->packing.layout == MICA_LAYOUT_ROWS8 && dim == buffer->ndim - 2 ? 8 : 1;
}

/* Scales and biases follow the slice of an affine weight. */
static mica_status slice_aux(const mica_buffer *buffer, uint32_t dim, uint64_t start, uint64_t count,
                             mica_buffer *view)
{
    if (buffer->scales == NULL)
        return MICA_OK;
    if (dim == buffer->ndim - 1)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "buffer_slice: dim: an affine weight is not sliced along its groups");
    mica_status status = mica_buffer_slice(buffer->scales, dim, start, count, &view->scales);
    if (status == MICA_OK && buffer->biases != NULL)
        status = mica_buffer_slice(buffer->biases, dim, start, count, &view->biases);
    return status;
}

mica_status mica_buffer_slice(mica_buffer *buffer, uint32_t dim, uint64_t start, uint64_t count,
                              mica_buffer **out_view)
{
    mica_status status = check_view("buffer_slice", buffer, out_view);
    if (status != MICA_OK)
        return status;
    if (dim >= buffer->ndim)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_slice: dim %u of %u", dim, buffer->ndim);
    uint64_t size = buffer->shape[dim], unit = slice_unit(buffer, dim);
    if (start > size || count > size - start)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_slice: start %llu with count %llu of %llu",
                          (unsigned long long)start, (unsigned long long)count, (unsigned long long)size);
    if (start % unit != 0 || (count % unit != 0 && (start + count != size || dim == buffer->ndim - 1)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_slice: start or count is no multiple of %llu",
                          (unsigned long long)unit);
    if (buffer->packing.layout != MICA_LAYOUT_CANONICAL && dim == buffer->ndim - 1)
        return mica__fail(MICA_ERR_UNSUPPORTED, "buffer_slice: dim: a packed weight is sliced by rows only");
    mica_buffer *view = NULL;
    status = clone_handle(buffer, &view);
    if (status != MICA_OK)
        return status;
    view->shape[dim] = count;
    status = slice_aux(buffer, dim, start, count, view);
    if (status != MICA_OK) {
        mica_buffer_release(view);
        return status;
    }
    if (count == 0 || buffer->length == 0) { /* of nothing it does not matter where it begins */
        view->length = 0;
        *out_view = view;
        return MICA_OK;
    }
    view->offset +=
        dim == buffer->ndim - 1 ? start / unit * buffer->stride[dim] : start * buffer->stride[dim];
    if (buffer->packing.layout == MICA_LAYOUT_CANONICAL) {
        hull_bytes(view->dtype, view->ndim, view->shape, view->stride, &view->length);
    } else { /* whole rows, ROWS8 whole groups; the hull ends with the last of the last batch */
        const uint64_t together = buffer->packing.layout == MICA_LAYOUT_ROWS8 ? 8 : 1;
        const uint64_t groups = (view->shape[view->ndim - 2] + together - 1) / together;
        view->length = groups * together * view->stride[view->ndim - 2];
        for (uint32_t d = 0; d + 2 < view->ndim; d++)
            view->length += (view->shape[d] - 1) * view->stride[d];
    }
    *out_view = view;
    return MICA_OK;
}

mica_status mica_buffer_stride(mica_buffer *buffer, uint32_t dim, uint64_t step, mica_buffer **out_view)
{
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    MICA__TRY(check_view("buffer_stride", buffer, out_view));
    if (dim >= buffer->ndim)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_stride: dim %u of %u", dim, buffer->ndim);
    if (step == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_stride: step is 0");
    if (mica_dtype_block_elements(buffer->dtype) > 1)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_stride: buffer is %s, which lies in blocks",
                          mica_dtype_name(buffer->dtype));
    memcpy(shape, buffer->shape, sizeof shape);
    memcpy(stride, buffer->stride, sizeof stride);
    shape[dim] = shape[dim] / step + (shape[dim] % step != 0);
    if (shape[dim] > 1) /* so that the product does not overflow: it lies in the buffer */
        stride[dim] *= step;
    return mica_buffer_view(buffer, buffer->dtype, buffer->ndim, shape, stride, 0, out_view);
}

mica_status mica_buffer_expand(mica_buffer *buffer, uint32_t ndim, const uint64_t *shape,
                               mica_buffer **out_view)
{
    uint64_t stride[MICA_MAX_DIMS] = {0};
    MICA__TRY(check_view("buffer_expand", buffer, out_view));
    if (ndim < buffer->ndim || ndim > MICA_MAX_DIMS)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_expand: ndim is %u, buffer has %u dimensions",
                          ndim, buffer->ndim);
    if (shape == NULL && ndim > 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_expand: shape is NULL");
    if (mica_dtype_block_elements(buffer->dtype) > 1)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_expand: buffer is %s, which lies in blocks",
                          mica_dtype_name(buffer->dtype));
    for (uint32_t d = 0, missing = ndim - buffer->ndim; d < buffer->ndim; d++) {
        if (buffer->shape[d] != 1 && buffer->shape[d] != shape[missing + d])
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_expand: shape[%u] is %llu, buffer has %llu",
                              missing + d, (unsigned long long)shape[missing + d],
                              (unsigned long long)buffer->shape[d]);
        stride[missing + d] = buffer->shape[d] == 1 ? 0 : buffer->stride[d];
    }
    return mica_buffer_view(buffer, buffer->dtype, ndim, shape, stride, 0, out_view);
}

mica_status mica_buffer_reshape(mica_buffer *buffer, uint32_t ndim, const uint64_t *shape,
                                mica_buffer **out_view)
{
    mica_status status = check_view("buffer_reshape", buffer, out_view);
    if (status != MICA_OK)
        return status;
    if (!mica__buffer_contiguous(buffer))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_reshape: buffer is not contiguous");
    mica_buffer_desc desc = {.dtype = buffer->dtype};
    MICA__TRY(mica__shape_take(ndim, shape, &desc));
    uint64_t have = 1, want = 1;
    for (uint32_t d = 0; d < buffer->ndim; d++)
        have *= buffer->shape[d];
    for (uint32_t d = 0; d < ndim; d++)
        if (!mica__mul_u64(want, desc.shape[d], &want))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "buffer_reshape: shape: the number of elements overflows");
    if (have != want)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_reshape: shape has %llu elements, buffer %llu",
                          (unsigned long long)want, (unsigned long long)have);
    return mica_buffer_view(buffer, buffer->dtype, ndim, shape, NULL, 0, out_view);
}

mica_status mica_buffer_permute(mica_buffer *buffer, const uint32_t *order, mica_buffer **out_view)
{
    mica_status status = check_view("buffer_permute", buffer, out_view);
    if (status != MICA_OK)
        return status;
    if (order == NULL && buffer->ndim > 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_permute: order is NULL");
    if (buffer->packing.layout != MICA_LAYOUT_CANONICAL || buffer->scales != NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "buffer_permute: buffer is packed or affine");
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    uint32_t seen = 0;
    for (uint32_t d = 0; d < buffer->ndim; d++) {
        if (order[d] >= buffer->ndim || (seen & (1u << order[d])) != 0)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_permute: order[%u] is %u: no permutation", d,
                              order[d]);
        seen |= 1u << order[d];
        shape[d] = buffer->shape[order[d]];
        stride[d] = buffer->stride[order[d]];
    }
    return mica_buffer_view(buffer, buffer->dtype, buffer->ndim, shape, stride, 0, out_view);
}

bool mica__affine_joins(mica_dtype data, mica_dtype scales, bool biases)
{
    return biases == mica__dtype_is_affine(data) && mica__affine_serves((uint16_t)data, (uint16_t)scales);
}

/* scales or biases: [.., N, groups] beside data [.., N, K]. */
static mica_status check_affine_aux(const char *name, const mica_buffer *data, const mica_buffer *aux,
                                    uint64_t groups)
{
    if (aux->storage->device != data->storage->device)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_affine: %s is on another device", name);
    bool same =
        aux->ndim == data->ndim && mica__buffer_contiguous(aux) && aux->shape[aux->ndim - 1] == groups;
    for (uint32_t d = 0; same && d + 1 < data->ndim; d++)
        same = aux->shape[d] == data->shape[d];
    if (!same)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "buffer_affine: %s must be contiguous, shaped as data with %llu groups a row", name,
                          (unsigned long long)groups);
    return MICA_OK;
}

/* The types of all three together. */
static mica_status check_affine_types(const mica_buffer *data, const mica_buffer *scales,
                                      const mica_buffer *biases)
{
    if (scales == NULL || (biases == NULL && mica__dtype_is_affine(data->dtype)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_affine: %s is NULL",
                          scales == NULL ? "scales" : "biases");
    if (!mica__affine_joins(data->dtype, scales->dtype, biases != NULL))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "buffer_affine: %s data with %s scales and %s; expected affine data with bf16, f16 "
                          "or f32 scales and biases, or without biases fp4 with e8m0 or f8_e4m3 scales, or "
                          "f8_e4m3 with e8m0 scales",
                          mica_dtype_name(data->dtype), mica_dtype_name(scales->dtype),
                          biases == NULL ? "no biases" : "biases");
    if (biases != NULL && scales->dtype != biases->dtype)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "buffer_affine: biases is %s, expected the dtype of scales, %s",
                          mica_dtype_name(biases->dtype), mica_dtype_name(scales->dtype));
    return MICA_OK;
}

mica_status mica_buffer_affine(mica_buffer *data, mica_buffer *scales, mica_buffer *biases,
                               uint32_t group_size, mica_buffer **out_buffer)
{
    if (out_buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "buffer_affine: out_buffer is NULL");
    *out_buffer = NULL;
    if (data == NULL || data->ndim < 2 || !mica__buffer_contiguous(data) || data->scales != NULL ||
        (!mica__dtype_is_affine(data->dtype) && data->dtype != MICA_DTYPE_FP4 &&
         data->dtype != MICA_DTYPE_F8_E4M3))
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT,
            "buffer_affine: data must be a contiguous affine, fp4 or f8_e4m3 buffer of 2 dims or "
            "more, without scales");
    if (group_size == 0)
        return mica__fail(MICA_ERR_QUANT_CONFIG, "buffer_affine: group_size is 0");
    uint64_t k = data->shape[data->ndim - 1], groups = k / group_size + (k % group_size != 0);
    mica_status status = check_affine_types(data, scales, biases);
    if (status == MICA_OK)
        status = check_affine_aux("scales", data, scales, groups);
    if (status == MICA_OK && biases != NULL)
        status = check_affine_aux("biases", data, biases, groups);
    mica_buffer *view = NULL;
    if (status == MICA_OK)
        status = clone_handle(data, &view);
    if (status != MICA_OK)
        return status;
    view->packing.group_size = group_size;
    view->scales = mica_buffer_retain(scales);
    view->biases = mica_buffer_retain(biases);
    *out_buffer = view;
    return MICA_OK;
}
