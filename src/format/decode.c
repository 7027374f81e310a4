/*
 * decode.c - rows of a tensor as f32, read in pieces: plain floats, blocks, and MLX words with their scales.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/work.h"
#include "format/archive.h"
#include "quant/quant.h"

#define PIECE_BYTES ((uint64_t)1 << 20)

/* One of the tensors that a row is made of, and room for the bytes of some rows. */
typedef struct strip {
    const mica__tensor *tensor;
    uint64_t row_bytes;
    uint8_t *bytes;
} strip;

typedef struct decoder {
    const mica__archive *archive;
    strip data, scales, biases; /* the last two of MLX weights alone; biases may be missing there */
    uint64_t rows, values;      /* the tensor's rows, and values in one */
    uint64_t piece;             /* rows read at a time */
    uint8_t *scratch;
} decoder;

static uint64_t count_rows(const mica__tensor *tensor)
{
    uint64_t rows = 1; /* the product fits: the reader has checked the whole shape */
    for (uint32_t i = 0; i + 1 < tensor->ndim; i++)
        rows *= tensor->shape[i];
    return rows;
}

static strip strip_of(const mica__archive *archive, uint32_t tensor, uint64_t rows)
{
    strip none = {NULL, 0, NULL};
    if (tensor == MICA__NO_TENSOR || rows == 0)
        return none;
    return (strip){&archive->tensor[tensor], archive->tensor[tensor].bytes / rows, NULL};
}

static mica_status check_decodable(decoder *d, const mica__tensor *tensor)
{
    const mica_status status = mica__archive_usable(d->archive, tensor);
    if (status != MICA_OK)
        return status;
    if (tensor->scales == MICA__NO_TENSOR
            ? mica__quant_can_decode(tensor->dtype)
            : mica__affine_serves(tensor->dtype, d->archive->tensor[tensor->scales].dtype))
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"%s\" is of type %s, which has no values as floats",
                      tensor->name, mica_dtype_name((mica_dtype)tensor->dtype));
}

/* Room for as many rows as fit a piece, at least one. */
static mica_status take_scratch(decoder *d, uint64_t rows)
{
    const uint64_t each = d->data.row_bytes + d->scales.row_bytes + d->biases.row_bytes;
    uint64_t bytes;
    d->piece = each == 0 || PIECE_BYTES / each == 0 ? 1 : PIECE_BYTES / each;
    d->piece = d->piece < rows ? d->piece : rows;
    if (!mica__mul_u64(d->piece, each, &bytes) || bytes > SIZE_MAX)
        bytes = SIZE_MAX;
    d->scratch = mica__alloc((size_t)bytes);
    if (d->scratch == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %llu bytes of tensor \"%s\"",
                          (unsigned long long)bytes, d->data.tensor->name);
    d->data.bytes = d->scratch;
    d->scales.bytes = d->data.bytes + d->piece * d->data.row_bytes;
    d->biases.bytes = d->scales.bytes + d->piece * d->scales.row_bytes;
    return MICA_OK;
}

static mica_status read_strip(const decoder *d, const strip *s, uint64_t row, uint64_t rows)
{
    if (s->tensor == NULL)
        return MICA_OK;
    return mica__archive_read(d->archive, s->tensor, row * s->row_bytes, s->bytes, rows * s->row_bytes);
}

static mica_status decode_piece(const decoder *d, uint64_t row, uint64_t rows, float *out_values)
{
    const mica__tensor *tensor = d->data.tensor;
    mica_status status = read_strip(d, &d->data, row, rows);
    if (status == MICA_OK)
        status = read_strip(d, &d->scales, row, rows);
    if (status == MICA_OK)
        status = read_strip(d, &d->biases, row, rows);
    if (status != MICA_OK)
        return status;
    for (uint64_t i = 0; i < rows; i++) {
        const uint8_t *data = d->data.bytes + i * d->data.row_bytes;
        float *out = out_values + i * d->values;
        if (d->scales.tensor == NULL)
            mica__quant_decode_row(tensor->dtype, data, out, d->values);
        else
            mica__affine_decode_row(tensor->dtype, data, d->scales.bytes + i * d->scales.row_bytes,
                                    d->biases.tensor == NULL ? NULL
                                                             : d->biases.bytes + i * d->biases.row_bytes,
                                    d->scales.tensor->dtype, tensor->group_size, out, d->values);
    }
    return MICA_OK;
}

mica_status mica__archive_decode_rows(const mica__archive *archive, const mica__tensor *tensor, uint64_t row,
                                      uint64_t rows, float *out_values)
{
    decoder d = {.archive = archive, .rows = count_rows(tensor)};
    MICA__TRY(check_decodable(&d, tensor));
    if (row > d.rows || rows > d.rows - row)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "tensor \"%s\": rows %llu and %llu more wanted, it has %llu", tensor->name,
                          (unsigned long long)row, (unsigned long long)rows, (unsigned long long)d.rows);
    d.values = tensor->ndim == 0 ? 1 : tensor->shape[tensor->ndim - 1];
    if (rows == 0 || d.values == 0)
        return MICA_OK;
    d.data = (strip){tensor, tensor->bytes / d.rows, NULL};
    d.scales = strip_of(archive, tensor->scales, d.rows);
    d.biases = strip_of(archive, tensor->biases, d.rows);
    mica_status status = take_scratch(&d, rows);
    for (uint64_t done = 0; done < rows && status == MICA_OK; done += d.piece) {
        const uint64_t count = rows - done < d.piece ? rows - done : d.piece;
        status = mica__spend(0);
        if (status == MICA_OK)
            status = decode_piece(&d, row + done, count, out_values + done * d.values);
    }
    mica__free(d.scratch);
    return status;
}
