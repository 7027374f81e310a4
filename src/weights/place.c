/* place.c - where a tensor goes on a device. One function decides; load, place and fit all follow it. */
#include "weights/weights.h"

#include <string.h>

#include "base/status.h"
#include "base/work.h"
#include "quant/dtype.h"

/* A part as a buffer would have it. */
static mica_status describe_part(const mica_weights *weights, const mica__tensor *tensor, mica__place *place)
{
    const uint32_t i = place->parts;
    mica_buffer_desc *desc = &place->desc[i];
    mica_status status = mica__archive_usable(weights->archive, tensor);
    if (status != MICA_OK)
        return status;
    desc->dtype = (mica_dtype)tensor->dtype;
    desc->ndim = tensor->ndim;
    memcpy(desc->shape, tensor->shape, sizeof desc->shape);
    desc->flags = MICA_BUFFER_UNINITIALIZED;
    if (mica__desc_check(desc, NULL, NULL, &place->part_bytes[i]) != MICA_OK)
        return mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"%.120s\" makes no buffer: %s", tensor->name,
                          mica_status_message());
    place->part[i] = tensor;
    place->parts++;
    return MICA_OK;
}

/* Data, and the scales and biases that belong to it. */
static mica_status describe(const mica_weights *weights, const mica__tensor *tensor, mica__place *place)
{
    const mica__tensor *all = weights->archive->tensor;
    mica_status status = describe_part(weights, tensor, place);
    if (status != MICA_OK || tensor->scales == MICA__NO_TENSOR)
        return status;
    place->group_size = tensor->group_size;
    status = describe_part(weights, &all[tensor->scales], place);
    if (status == MICA_OK && tensor->biases != MICA__NO_TENSOR)
        status = describe_part(weights, &all[tensor->biases], place);
    if (status == MICA_OK &&
        !mica__affine_joins(place->desc[0].dtype, place->desc[1].dtype, place->parts == 3))
        status = mica__fail(MICA_ERR_UNSUPPORTED,
                            "tensor \"%.200s\" is %s with %s scales and %s biases, "
                            "which no buffer holds",
                            tensor->name, mica_dtype_name(place->desc[0].dtype),
                            mica_dtype_name(place->desc[1].dtype), place->parts == 3 ? "with" : "without");
    return status;
}

/* Maps begin on pages. */
static bool is_aligned(const mica__tensor *tensor)
{
    return tensor->offset % mica__dtype_alignment(tensor->dtype) == 0;
}

static bool can_import(const mica_weights *weights, const mica_device *device, const mica__place *place)
{
    bool can = (weights->flags & MICA_WEIGHTS_NO_MAP) == 0 && device->info.properties.unified_memory != 0 &&
               device->table->buffer_import != NULL;
    /* What the archive made is its memory, and goes with it; of nothing there is nothing to map. */
    for (uint32_t i = 0; can && i < place->parts; i++)
        can = is_aligned(place->part[i]) && place->part[i]->file + 1 != weights->archive->made_file &&
              place->part_bytes[i] != 0;
    return can;
}

/* The layout that PACK would give it: CANONICAL if packing changes nothing. */
static mica__packing find_packing(const mica_device *device, const mica__place *place)
{
    mica__operand operand = {.dtype = (uint16_t)place->desc[0].dtype,
                             .ndim = (uint8_t)place->desc[0].ndim,
                             .layout = MICA_LAYOUT_CANONICAL,
                             .group_size = place->group_size};
    memcpy(operand.shape, place->desc[0].shape, sizeof operand.shape);
    return mica__pack_target(device, &operand, place->parts > 1 ? place->desc[1].dtype : MICA_DTYPE_NONE);
}

static mica_status decide_pack(const mica__tensor *tensor, bool mapped, mica__place *place)
{
    place->kind = MICA_PLACEMENT_PACK;
    place->mapped = mapped;
    if (mica__desc_check(&place->desc[0], &place->packing, NULL, &place->bytes) != MICA_OK)
        return mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"%.120s\" cannot be packed: %s", tensor->name,
                          mica_status_message());
    place->largest_bytes = place->bytes;
    const uint64_t rows = mica__place_piece_rows(place);
    for (uint32_t i = 0; !mapped && i < place->parts; i++)
        place->staging_bytes += rows * mica__place_row_bytes(place, i);
    return MICA_OK;
}

mica_status mica__weights_decide(const mica_weights *weights, const mica__tensor *tensor,
                                 const mica_device *device, uint32_t flags, mica__place *out)
{
    memset(out, 0, sizeof *out);
    mica_status status = describe(weights, tensor, out);
    const bool import = status == MICA_OK && can_import(weights, device, out);
    if (status == MICA_OK && (flags & MICA_LOAD_PACK) != 0)
        out->packing = find_packing(device, out);
    if (status == MICA_OK && out->packing.layout != MICA_LAYOUT_CANONICAL) {
        status = decide_pack(tensor, import, out);
    } else if (status == MICA_OK) {
        out->kind = import ? MICA_PLACEMENT_IMPORT : MICA_PLACEMENT_COPY;
        out->mapped = import;
        for (uint32_t i = 0; i < out->parts; i++) {
            out->bytes += out->part_bytes[i];
            if (out->part_bytes[i] > out->largest_bytes)
                out->largest_bytes = out->part_bytes[i];
        }
    }
    if (status != MICA_OK)
        out->kind = MICA_PLACEMENT_NONE;
    return status;
}

uint64_t mica__place_row_bytes(const mica__place *place, uint32_t part)
{
    const mica_buffer_desc *desc = &place->desc[part];
    return desc->shape[desc->ndim - 1] / mica_dtype_block_elements(desc->dtype) *
           mica_dtype_block_bytes(desc->dtype);
}

uint64_t mica__place_piece_rows(const mica__place *place)
{
    const uint64_t all = place->desc[0].shape[place->desc[0].ndim - 2];
    uint64_t rows = MICA__LOAD_PIECE / mica__place_row_bytes(place, 0) / 8 * 8;
    rows = rows < 8 ? 8 : rows;
    return rows < all ? rows : all;
}

static mica_status weights_place(const mica_weights *weights, uint64_t index, mica_device *device,
                                 uint32_t flags, mica_placement *out_placement, uint64_t *out_bytes)
{
    mica__place place;
    const mica__tensor *tensor = NULL;
    if (out_placement == NULL || out_bytes == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          out_placement == NULL ? "out_placement" : "out_bytes");
    *out_placement = MICA_PLACEMENT_NONE;
    *out_bytes = 0;
    mica_status status = mica__weights_check(weights, device, flags);
    if (status == MICA_OK)
        status = mica__weights_tensor(weights, index, &tensor);
    if (tensor == NULL)
        return status;
    status = mica__weights_decide(weights, tensor, device, flags, &place);
    if (status == MICA_OK) {
        *out_placement = place.kind;
        *out_bytes = place.bytes;
    }
    return status == MICA_ERR_UNSUPPORTED ? MICA_OK : status;
}

mica_status mica_weights_place(const mica_weights *weights, uint64_t index, mica_device *device,
                               uint32_t flags, mica_placement *out_placement, uint64_t *out_bytes)
{
    mica__call call;
    mica__call_begin(&call, "weights_place");
    return mica__call_end(&call, weights_place(weights, index, device, flags, out_placement, out_bytes));
}

/* Whether `fit` and what is owned for a moment go with the ledger as it is. */
static mica_status judge(mica_device *device, uint64_t staging, mica_fit *fit)
{
    mica_device_memory memory;
    const mica_status status = mica_device_get_memory(device, &memory);
    if (status != MICA_OK)
        return status;
    const uint64_t wanted = fit->owned_bytes + staging;
    const uint64_t room =
        memory.budget_bytes < memory.owned_bytes ? 0 : memory.budget_bytes - memory.owned_bytes;
    fit->fits = (memory.budget_bytes == 0 || wanted <= room) && wanted <= memory.free_bytes &&
                fit->owned_bytes + fit->mapped_bytes <= memory.total_bytes &&
                fit->largest_bytes <= device->info.properties.max_buffer;
    return MICA_OK;
}

static mica_status weights_fit(const mica_weights *weights, mica_device *device, uint32_t flags,
                               mica_fit *out)
{
    mica__place place;
    uint64_t staging = 0;
    if (out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out is NULL");
    memset(out, 0, sizeof *out);
    mica_status status = mica__weights_check(weights, device, flags);
    if (status != MICA_OK)
        return status;
    for (uint32_t i = 0; i < weights->archive->visible_count; i++) {
        status = mica__weights_decide(weights, &weights->archive->tensor[i], device, flags, &place);
        if (status == MICA_ERR_UNSUPPORTED)
            out->unusable++;
        else if (status != MICA_OK)
            return status;
        else if (place.kind == MICA_PLACEMENT_IMPORT)
            out->mapped_bytes += place.bytes;
        else
            out->owned_bytes += place.bytes;
        if (place.largest_bytes > out->largest_bytes)
            out->largest_bytes = place.largest_bytes;
        if (place.staging_bytes > staging)
            staging = place.staging_bytes;
    }
    return judge(device, staging, out);
}

mica_status mica_weights_fit(const mica_weights *weights, mica_device *device, uint32_t flags, mica_fit *out)
{
    mica__call call;
    mica__call_begin(&call, "weights_fit");
    return mica__call_end(&call, weights_fit(weights, device, flags, out));
}
