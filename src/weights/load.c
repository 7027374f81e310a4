/* load.c - tensors onto a device: in the order of the disk, read ahead, with progress; all that was asked for or none. */
#include "weights/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sort.h"
#include "base/status.h"
#include "base/work.h"

#define AHEAD ((uint64_t)32 << 20) /* bytes the disk is asked for before they are needed */

static uint64_t all_bytes(const mica__archive *archive, const mica__tensor *tensor)
{
    uint64_t bytes = tensor->bytes;
    if (tensor->scales != MICA__NO_TENSOR)
        bytes += archive->tensor[tensor->scales].bytes;
    if (tensor->biases != MICA__NO_TENSOR)
        bytes += archive->tensor[tensor->biases].bytes;
    return bytes;
}

/* Asks the system for the next piece of the items; what it cannot promise it skips. */
static void ask_piece(mica__load *load)
{
    const mica__tensor *tensor = load->item[load->ahead_item].tensor;
    const uint64_t left = tensor->bytes - load->ahead_offset;
    const uint64_t piece = left < MICA__LOAD_PIECE ? left : MICA__LOAD_PIECE;
    const uint64_t offset = tensor->offset + load->ahead_offset;
    mica__weights_map *map = NULL;
    if ((load->weights->flags & MICA_WEIGHTS_NO_MAP) != 0)
        mica__file_will_need(load->weights->archive->file[tensor->file], offset, piece);
    else if (mica__weights_map_take(load->weights, tensor->file, &map) == MICA_OK)
        mica__file_map_advise(&map->map, (size_t)offset, (size_t)piece, MICA__FILE_ADVICE_WILL_NEED);
    mica__weights_map_give(map);
    load->ahead_offset += piece;
    load->ahead_bytes += piece;
    if (load->ahead_offset == tensor->bytes) {
        load->ahead_bytes += all_bytes(load->weights->archive, tensor) - tensor->bytes;
        load->ahead_offset = 0;
        load->ahead_item++;
    }
}

static void read_ahead(mica__load *load)
{
    while (load->ahead_item < load->item_count && load->ahead_bytes < load->done + AHEAD)
        ask_piece(load);
}

mica_status mica__load_advance(mica__load *load, uint64_t bytes)
{
    load->done += bytes;
    const mica_status status = mica__spend(0);
    if (status != MICA_OK)
        return status;
    read_ahead(load);
    if (load->progress != NULL && load->progress(load->context, load->what, load->done, load->total) != 0)
        return mica__fail(MICA_ERR_CANCELLED, "loading was stopped at \"%.200s\", after %llu of %llu bytes",
                          load->what, (unsigned long long)load->done, (unsigned long long)load->total);
    return MICA_OK;
}

static mica_status load_tensor(mica__load *load, const mica__tensor *tensor, mica_buffer **out)
{
    static mica_status (*const by_kind[])(mica__load *, const mica__place *, mica_buffer **) = {
        [MICA_PLACEMENT_IMPORT] = mica__load_import,
        [MICA_PLACEMENT_COPY] = mica__load_copy,
        [MICA_PLACEMENT_PACK] = mica__load_pack,
    };
    mica__place place;
    const mica_status status = mica__weights_decide(load->weights, tensor, load->device, load->flags, &place);
    if (status != MICA_OK)
        return status;
    load->what = tensor->name;
    return by_kind[place.kind](load, &place, out);
}

/* Loads all items into their slots; on failure none is left. */
static mica_status run(mica__load *load, mica_buffer **out_buffers)
{
    mica_status status = MICA_OK;
    read_ahead(load);
    for (uint64_t i = 0; i < load->item_count && status == MICA_OK; i++)
        status = load_tensor(load, load->item[i].tensor, &out_buffers[load->item[i].slot]);
    for (uint64_t i = 0; i < load->item_count && status != MICA_OK; i++) {
        mica_buffer_release(out_buffers[i]);
        out_buffers[i] = NULL;
    }
    mica__free(load->block);
    return status;
}

static mica_status load_one(mica_weights *weights, const mica__tensor *tensor, mica_device *device,
                            uint32_t flags, mica_buffer **out_buffer)
{
    const mica__load_item item = {tensor, 0};
    mica__load load = {.weights = weights,
                       .device = device,
                       .flags = flags,
                       .total = all_bytes(weights->archive, tensor),
                       .item = &item,
                       .item_count = 1};
    return run(&load, out_buffer);
}

static mica_status weights_load(mica_weights *weights, uint64_t index, mica_device *device, uint32_t flags,
                                mica_buffer **out_buffer)
{
    if (out_buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_buffer is NULL");
    *out_buffer = NULL;
    const mica__tensor *tensor = NULL;
    mica_status status = mica__weights_check(weights, device, flags);
    if (status == MICA_OK)
        status = mica__weights_tensor(weights, index, &tensor);
    return tensor != NULL ? load_one(weights, tensor, device, flags, out_buffer) : status;
}

mica_status mica_weights_load(mica_weights *weights, uint64_t index, mica_device *device, uint32_t flags,
                              mica_buffer **out_buffer)
{
    mica__call call;
    mica__call_begin(&call, "weights_load");
    return mica__call_end(&call, weights_load(weights, index, device, flags, out_buffer));
}

/* "[2, 3]" */
static void shape_text(uint32_t ndim, const uint64_t *shape, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (uint32_t d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, d == 0 ? "%llu" : ", %llu",
                                 (unsigned long long)shape[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

static mica_status check_expected(const mica__tensor *tensor, mica_dtype dtype, uint32_t ndim,
                                  const uint64_t *shape)
{
    char found[192], wanted[192];
    MICA__TRY(mica__check_enum("weights_load_named: dtype", (uint32_t)dtype, MICA_DTYPE_COUNT));
    if (dtype != MICA_DTYPE_NONE && dtype != (mica_dtype)tensor->dtype)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "dtype: tensor \"%.200s\" is %s, expected %s",
                          tensor->name, tensor->type_name, mica_dtype_name(dtype));
    if (ndim == 0 || (ndim == tensor->ndim && memcmp(shape, tensor->shape, ndim * sizeof *shape) == 0))
        return MICA_OK;
    shape_text(tensor->ndim, tensor->shape, found, sizeof found);
    shape_text(ndim, shape, wanted, sizeof wanted);
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "shape: tensor \"%.120s\" has %s, expected %s", tensor->name,
                      found, wanted);
}

static mica_status weights_load_named(mica_weights *weights, const char *name, mica_device *device,
                                      uint32_t flags, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                                      mica_buffer **out_buffer)
{
    uint64_t index = 0;
    if (out_buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_buffer is NULL");
    *out_buffer = NULL;
    mica_status status = mica__weights_check(weights, device, flags);
    if (status == MICA_OK && (ndim > MICA_MAX_DIMS || (ndim != 0 && shape == NULL)))
        status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s",
                            ndim > MICA_MAX_DIMS ? "ndim is too large" : "shape is NULL");
    if (status == MICA_OK)
        status = mica_weights_find(weights, name, &index);
    if (status == MICA_OK)
        status = check_expected(&weights->archive->tensor[index], dtype, ndim, shape);
    return status == MICA_OK ? load_one(weights, &weights->archive->tensor[index], device, flags, out_buffer)
                             : status;
}

mica_status mica_weights_load_named(mica_weights *weights, const char *name, mica_device *device,
                                    uint32_t flags, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                                    mica_buffer **out_buffer)
{
    mica__call call;
    mica__call_begin(&call, "weights_load_named");
    return mica__call_end(&call,
                          weights_load_named(weights, name, device, flags, dtype, ndim, shape, out_buffer));
}

static int by_place(const void *a, const void *b)
{
    const mica__tensor *x = ((const mica__load_item *)a)->tensor, *y = ((const mica__load_item *)b)->tensor;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The items in the order of the disk, to be freed with mica__free. */
static mica_status order_items(const mica_weights *weights, const uint64_t *index, uint64_t count,
                               mica__load_item **out, uint64_t *out_total)
{
    mica__load_item *item =
        count < SIZE_MAX / sizeof *item ? mica__alloc((size_t)count * sizeof *item) : NULL;
    *out = item;
    *out_total = 0;
    if (item == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a list of %llu tensors",
                          (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        const mica_status status = mica__weights_tensor(weights, index[i], &item[i].tensor);
        if (status != MICA_OK)
            return status;
        item[i].slot = i;
        *out_total += all_bytes(weights->archive, item[i].tensor);
    }
    return mica__sort(item, (size_t)count, sizeof *item, by_place);
}

static mica_status weights_load_all(mica_weights *weights, const uint64_t *index, uint64_t count,
                                    mica_device *device, uint32_t flags, mica_progress progress,
                                    void *context, mica_buffer **out_buffers)
{
    mica__load_item *item = NULL;
    mica__load load = {.weights = weights,
                       .device = device,
                       .flags = flags,
                       .progress = progress,
                       .context = context,
                       .what = "",
                       .item_count = count};
    if (count != 0 && (index == NULL || out_buffers == NULL))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", index == NULL ? "index" : "out_buffers");
    for (uint64_t i = 0; i < count; i++)
        out_buffers[i] = NULL;
    mica_status status = mica__weights_check(weights, device, flags);
    if (status == MICA_OK && count == 0)
        return mica__load_advance(&load, 0);
    if (status == MICA_OK)
        status = order_items(weights, index, count, &item, &load.total);
    load.item = item;
    if (status == MICA_OK)
        status = run(&load, out_buffers);
    mica__free(item);
    return status;
}

mica_status mica_weights_load_all(mica_weights *weights, const uint64_t *index, uint64_t count,
                                  mica_device *device, uint32_t flags, mica_progress progress, void *context,
                                  mica_buffer **out_buffers)
{
    mica__call call;
    mica__call_begin(&call, "weights_load_all");
    return mica__call_end(
        &call, weights_load_all(weights, index, count, device, flags, progress, context, out_buffers));
}
