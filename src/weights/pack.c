/*
 * pack.c - tensors rewritten into the layout their device reads fastest, some rows at a time.
 *
 * Packing a tensor at once would have it in memory twice. Rows come from the map, whose pages are given back behind
 * them, or through a small buffer on the device where there is no map to read from.
 */
#include "weights/weights.h"

#include "base/status.h"

/* Systems map some pages around one that is touched: this much on either side is given back too. */
#define AROUND ((uint64_t)64 << 10)

typedef struct pack_job {
    mica__load *load;
    const mica__place *place;
    mica_buffer *packed;
    mica_buffer *part[MICA__PARTS]; /* the whole parts in the map, or room for the rows of a piece */
    mica_buffer *weight;            /* the joined parts in the map */
} pack_job;

/* Rows [row, row + rows) of matrix number `matrix`. */
static mica_status slice_rows(mica_buffer *buffer, uint64_t matrix, uint64_t row, uint64_t rows,
                              mica_buffer **out)
{
    const uint32_t ndim = buffer->ndim;
    mica_buffer *view = mica_buffer_retain(buffer);
    mica_status status = MICA_OK;
    for (uint32_t d = ndim - 1; d-- > 0 && status == MICA_OK;) {
        mica_buffer *next = NULL;
        const bool is_row = d == ndim - 2;
        status =
            mica_buffer_slice(view, d, is_row ? row : matrix % buffer->shape[d], is_row ? rows : 1, &next);
        if (!is_row)
            matrix /= buffer->shape[d];
        mica_buffer_release(view);
        view = next;
    }
    *out = view;
    return status;
}

/* Room for the rows of one piece of a part. */
static mica_status make_room(const pack_job *job, uint32_t part, mica_buffer **out)
{
    mica_buffer_desc desc = job->place->desc[part];
    for (uint32_t d = 0; d + 2 < desc.ndim; d++)
        desc.shape[d] = 1;
    desc.shape[desc.ndim - 2] = mica__place_piece_rows(job->place);
    return mica_buffer_create(job->load->device, &desc, out);
}

static mica_status begin(pack_job *job)
{
    mica_status status =
        mica__buffer_new(job->load->device, &job->place->desc[0], &job->place->packing, &job->packed);
    if (status == MICA_OK)
        mica__load_prepare(job->load, job->packed);
    for (uint32_t i = 0; i < job->place->parts && status == MICA_OK; i++)
        status = job->place->mapped ? mica__load_import_part(job->load, job->place, i, &job->part[i])
                                    : make_room(job, i, &job->part[i]);
    if (status == MICA_OK && job->place->mapped)
        status = mica__load_join(job->place, job->part, &job->weight);
    return status;
}

/* Reads the rows, first of which is row number `first` of the tensor, and joins them. */
static mica_status read_rows(const pack_job *job, uint64_t first, uint64_t rows, mica_buffer **out)
{
    mica_buffer *part[MICA__PARTS] = {NULL};
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < job->place->parts && status == MICA_OK; i++) {
        const uint64_t row_bytes = mica__place_row_bytes(job->place, i);
        status = slice_rows(job->part[i], 0, 0, rows, &part[i]);
        if (status == MICA_OK)
            status = mica__load_read(job->load, job->place->part[i], first * row_bytes, rows * row_bytes,
                                     part[i], 0);
    }
    if (status == MICA_OK)
        status = mica__load_join(job->place, part, out);
    for (uint32_t i = 0; i < MICA__PARTS; i++)
        mica_buffer_release(part[i]);
    return status;
}

static void give_back(const pack_job *job, uint64_t first, uint64_t rows)
{
    for (uint32_t i = 0; i < job->place->parts; i++) {
        const mica__tensor *tensor = job->place->part[i];
        const uint64_t row_bytes = mica__place_row_bytes(job->place, i);
        const uint64_t offset = tensor->offset + first * row_bytes;
        const uint64_t before = offset < AROUND ? offset : AROUND;
        mica__weights_map *map = NULL;
        if (mica__weights_map_take(job->load->weights, tensor->file, &map) != MICA_OK)
            continue;
        mica__file_map_advise(&map->map, (size_t)(offset - before),
                              (size_t)(before + rows * row_bytes + AROUND), MICA__FILE_ADVICE_DONT_NEED);
        mica__weights_map_give(map);
    }
}

static mica_status pack_rows(const pack_job *job, uint64_t matrix, uint64_t row, uint64_t rows)
{
    const mica__place *place = job->place;
    const uint64_t first = matrix * place->desc[0].shape[place->desc[0].ndim - 2] + row;
    mica_buffer *from = NULL, *to = NULL;
    uint64_t bytes = 0;
    mica_status status = place->mapped ? slice_rows(job->weight, matrix, row, rows, &from)
                                       : read_rows(job, first, rows, &from);
    if (status == MICA_OK)
        status = slice_rows(job->packed, matrix, row, rows, &to);
    if (status == MICA_OK)
        status = mica__load_lock(job->load, to, 0, to->length);
    if (status == MICA_OK)
        status = mica__pack_into(from, to);
    mica_buffer_release(from);
    mica_buffer_release(to);
    if (place->mapped)
        give_back(job, first, rows);
    for (uint32_t i = 0; i < place->parts; i++)
        bytes += rows * mica__place_row_bytes(place, i);
    return status == MICA_OK ? mica__load_advance(job->load, bytes) : status;
}

static mica_status pack_all(const pack_job *job)
{
    const mica_buffer_desc *desc = &job->place->desc[0];
    const uint64_t all = desc->shape[desc->ndim - 2], piece = mica__place_piece_rows(job->place);
    uint64_t matrices = 1;
    mica_status status = MICA_OK;
    for (uint32_t d = 0; d + 2 < desc->ndim; d++)
        matrices *= desc->shape[d];
    for (uint64_t matrix = 0; matrix < matrices && status == MICA_OK; matrix++)
        for (uint64_t row = 0; row < all && status == MICA_OK; row += piece)
            status = pack_rows(job, matrix, row, all - row < piece ? all - row : piece);
    return status;
}

mica_status mica__load_pack(mica__load *load, const mica__place *place, mica_buffer **out)
{
    pack_job job = {.load = load, .place = place};
    *out = NULL;
    mica_status status = begin(&job);
    if (status == MICA_OK)
        status = pack_all(&job);
    if (status == MICA_OK)
        *out = mica_buffer_retain(job.packed);
    mica_buffer_release(job.packed);
    mica_buffer_release(job.weight);
    for (uint32_t i = 0; i < MICA__PARTS; i++)
        mica_buffer_release(job.part[i]);
    return status;
}
