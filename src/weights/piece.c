/* piece.c - the ways of a tensor into a buffer that change no byte: shown from the map, or read. */
#include "weights/weights.h"

#include "base/alloc.h"
#include "base/pages.h"
#include "base/status.h"

static uint64_t piece_at(uint64_t offset, uint64_t bytes)
{
    return bytes - offset < MICA__LOAD_PIECE ? bytes - offset : MICA__LOAD_PIECE;
}

mica_status mica__load_lock(const mica__load *load, mica_buffer *buffer, uint64_t offset, uint64_t bytes)
{
    void *base = NULL;
    uint64_t first = 0;
    if ((load->weights->flags & MICA_WEIGHTS_LOCK) == 0 || !load->device->info.properties.unified_memory)
        return MICA_OK;
    const mica_status status = mica_buffer_native(buffer, &base, &first);
    if (status != MICA_OK)
        return status;
    return mica__pages_lock((unsigned char *)base + first + offset, (size_t)bytes, load->what);
}

void mica__load_prepare(const mica__load *load, mica_buffer *buffer)
{
    void *base = NULL;
    uint64_t first = 0;
    if (load->device->info.properties.unified_memory && mica_buffer_native(buffer, &base, &first) == MICA_OK)
        mica__pages_large((unsigned char *)base + first, (size_t)buffer->length);
}

mica_status mica__load_join(const mica__place *place, mica_buffer *const *part, mica_buffer **out)
{
    *out = NULL;
    if (place->parts > 1)
        return mica_buffer_affine(part[0], part[1], part[2], place->group_size, out);
    *out = mica_buffer_retain(part[0]);
    return MICA_OK;
}

static void release_map(void *context, void *pointer)
{
    (void)pointer;
    mica__weights_map_give(context);
}

mica_status mica__load_import_part(mica__load *load, const mica__place *place, uint32_t part,
                                   mica_buffer **out)
{
    const mica__tensor *tensor = place->part[part];
    mica__weights_map *map = NULL;
    mica_buffer_desc desc = place->desc[part];
    *out = NULL;
    mica_status status = mica__weights_map_take(load->weights, tensor->file, &map);
    if (status != MICA_OK)
        return status;
    unsigned char *base = (unsigned char *)(uintptr_t)map->map.data;
    desc.flags = MICA_BUFFER_READ_ONLY;
    status =
        mica_buffer_import(load->device, base + tensor->offset, tensor->bytes, &desc, release_map, map, out);
    if (status != MICA_OK)
        mica__weights_map_give(map);
    return status;
}

static mica_status import_all(mica__load *load, const mica__place *place, mica_buffer **part)
{
    for (uint32_t i = 0; i < place->parts; i++) {
        const uint64_t bytes = place->part_bytes[i];
        mica_status status = mica__load_import_part(load, place, i, &part[i]);
        for (uint64_t at = 0; at < bytes && status == MICA_OK; at += MICA__LOAD_PIECE) {
            status = mica__load_lock(load, part[i], at, piece_at(at, bytes));
            if (status == MICA_OK)
                status = mica__load_advance(load, piece_at(at, bytes));
        }
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

/* One block serves all pieces: fresh memory for each would cost as much as reading them. */
static mica_status reserve_block(mica__load *load, uint64_t bytes)
{
    if (bytes <= load->block_bytes)
        return MICA_OK;
    mica__free(load->block);
    load->block = mica__alloc((size_t)bytes);
    load->block_bytes = load->block == NULL ? 0 : bytes;
    return load->block != NULL
               ? MICA_OK
               : mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %llu bytes of \"%.200s\" on their way",
                            (unsigned long long)bytes, load->what);
}

/* Where memory is one the file is read into its place, else into a block that is sent over. */
mica_status mica__load_read(mica__load *load, const mica__tensor *part, uint64_t offset, uint64_t bytes,
                            mica_buffer *buffer, uint64_t at)
{
    const mica__archive *archive = load->weights->archive;
    if (load->device->info.properties.unified_memory) {
        void *base = NULL;
        mica_status status = mica_buffer_map(buffer, MICA_ACCESS_WRITE, &base);
        if (status != MICA_OK)
            return status;
        status = mica__archive_read(archive, part, offset, (unsigned char *)base + at, bytes);
        mica_buffer_unmap(buffer);
        return status;
    }
    mica_status status = reserve_block(load, bytes);
    if (status == MICA_OK)
        status = mica__archive_read(archive, part, offset, load->block, bytes);
    if (status == MICA_OK)
        status = mica_buffer_write(buffer, at, load->block, bytes);
    return status;
}

static mica_status copy_all(mica__load *load, const mica__place *place, mica_buffer **part)
{
    for (uint32_t i = 0; i < place->parts; i++) {
        const uint64_t bytes = place->part_bytes[i];
        mica_status status = mica_buffer_create(load->device, &place->desc[i], &part[i]);
        if (status == MICA_OK)
            mica__load_prepare(load, part[i]);
        for (uint64_t at = 0; at < bytes && status == MICA_OK; at += MICA__LOAD_PIECE) {
            status = mica__load_lock(load, part[i], at, piece_at(at, bytes));
            if (status == MICA_OK)
                status = mica__load_read(load, place->part[i], at, piece_at(at, bytes), part[i], at);
            if (status == MICA_OK)
                status = mica__load_advance(load, piece_at(at, bytes));
        }
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

static mica_status join_and_let_go(mica_status status, const mica__place *place, mica_buffer **part,
                                   mica_buffer **out)
{
    *out = NULL;
    if (status == MICA_OK)
        status = mica__load_join(place, part, out);
    for (uint32_t i = 0; i < MICA__PARTS; i++)
        mica_buffer_release(part[i]);
    return status;
}

mica_status mica__load_import(mica__load *load, const mica__place *place, mica_buffer **out)
{
    mica_buffer *part[MICA__PARTS] = {NULL};
    return join_and_let_go(import_all(load, place, part), place, part, out);
}

mica_status mica__load_copy(mica__load *load, const mica__place *place, mica_buffer **out)
{
    mica_buffer *part[MICA__PARTS] = {NULL};
    return join_and_let_go(copy_all(load, place, part), place, part, out);
}
