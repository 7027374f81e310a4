/* piece.c - the making of pieces: rows read from where they are, decoded, moved, encoded. */
#include "format/convert/piece.h"

#include <string.h>

#include "quant/dtype.h"
#include "quant/quant.h"

/* 1 MB of f32: it stays in a core's cache, and the slowest encoder takes some tens of milliseconds for it. */
#define PIECE_VALUES ((uint64_t)1 << 18)

static bool is_mlx(const mica__target_tensor *tensor)
{
    return tensor->constant == NULL && tensor->source[0]->scales != MICA__NO_TENSOR;
}

bool mica__piece_is_copy(const mica__target_tensor *tensor)
{
    return tensor->part == MICA__TARGET_WHOLE && !is_mlx(tensor) &&
           tensor->dtype == mica__target_source_type(tensor) && tensor->transform <= MICA__TRANSFORM_UNPAIR;
}

/* ---- sizes ---------------------------------------------------------------------------------------------- */

static uint64_t plain_bytes(uint32_t dtype, uint64_t n)
{
    return n / mica__dtype_elements(dtype) * mica__dtype_bytes(dtype);
}

/* Bytes of n values in the source; of MLX weights those of the words alone. */
static uint64_t source_bytes(const mica__target_tensor *tensor, uint64_t n)
{
    return plain_bytes((uint32_t)mica__target_source_type(tensor), n);
}

static uint64_t part_bytes(const mica__target_tensor *tensor, uint64_t n)
{
    switch ((mica__target_part)tensor->part) {
    case MICA__TARGET_WORDS: return plain_bytes((uint32_t)tensor->coding, n);
    case MICA__TARGET_SCALES:
    case MICA__TARGET_BIASES: return plain_bytes((uint32_t)tensor->scales, n / tensor->group);
    case MICA__TARGET_WHOLE: break;
    }
    return plain_bytes((uint32_t)tensor->dtype, n);
}

bool mica__piece_next(const mica__target *target, mica__piece_cursor *cursor, mica__piece *out_piece)
{
    while (cursor->tensor < target->tensor_count &&
           (cursor->row == target->tensor[cursor->tensor].rows || target->tensor[cursor->tensor].row == 0))
        *cursor = (mica__piece_cursor){.tensor = cursor->tensor + 1};
    if (cursor->tensor == target->tensor_count)
        return false;
    const mica__target_tensor *tensor = &target->tensor[cursor->tensor];
    const bool divisible =
        tensor->transform == MICA__TRANSFORM_NONE && !is_mlx(tensor) && tensor->part == MICA__TARGET_WHOLE;
    mica__piece piece = {.tensor = tensor, .row = cursor->row, .rows = 1, .columns = tensor->row};
    if (tensor->row < PIECE_VALUES) {
        const uint64_t most = PIECE_VALUES / tensor->row, left = tensor->rows - cursor->row;
        piece.rows = most < left ? most : left;
    } else if (divisible) {
        const uint64_t left = tensor->row - cursor->column;
        piece.column = cursor->column;
        piece.columns = left < PIECE_VALUES ? left : PIECE_VALUES;
    }
    cursor->column = piece.column + piece.columns;
    if (cursor->column == tensor->row) {
        cursor->row += piece.rows;
        cursor->column = 0;
    }
    piece.bytes_in = piece.rows * source_bytes(tensor, piece.columns);
    piece.bytes_out = piece.rows * part_bytes(tensor, piece.columns);
    *out_piece = piece;
    return true;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

mica_status mica__piece_measure(const mica__target *target, mica__piece_sizes *out_sizes)
{
    mica__piece_sizes sizes = {0};
    for (uint32_t i = 0; i < target->tensor_count; i++) {
        mica__piece_cursor cursor = {.tensor = i};
        mica__piece piece;
        if (target->tensor[i].rows == 0 || target->tensor[i].row == 0)
            continue;
        (void)mica__piece_next(target, &cursor, &piece); /* the first piece of a tensor is its largest */
        sizes.raw = larger(sizes.raw, piece.bytes_in);
        /* Transposing needs a column beside the piece, parts their words and two tables beside it. */
        sizes.values = larger(sizes.values, piece.columns * piece.rows + piece.rows + 2 * piece.columns);
        sizes.out = larger(sizes.out, piece.bytes_out);
    }
    if (sizes.values > SIZE_MAX / sizeof(float) || sizes.raw > SIZE_MAX || sizes.out > SIZE_MAX)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "a row is of more bytes than memory can have");
    *out_sizes = sizes;
    return MICA_OK;
}

uint64_t mica__target_bytes_in(const mica__target *target)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < target->tensor_count; i++)
        total += target->tensor[i].rows * source_bytes(&target->tensor[i], target->tensor[i].row);
    return total;
}

uint64_t mica__target_bytes_out(const mica__target *target)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < target->tensor_count; i++)
        total += target->tensor[i].rows * part_bytes(&target->tensor[i], target->tensor[i].row);
    return total;
}

/* ---- making --------------------------------------------------------------------------------------------- */

/* Row of the source whose values go to row `row`: within a head of 2 h rows, pair i is rows i and h + i of the
 * halves. */
static uint64_t source_row(const mica__target_tensor *tensor, uint64_t row)
{
    const uint64_t size = tensor->heads == 0 ? 0 : tensor->rows / tensor->heads, half = size / 2;
    if (half == 0)
        return row; /* no heads: nothing to pair */
    if (tensor->transform == MICA__TRANSFORM_PAIR)
        return row / size * size + row % 2 * half + row % size / 2;
    if (tensor->transform == MICA__TRANSFORM_UNPAIR)
        return row / size * size + row % size % half * 2 + row % size / half;
    return row;
}

/* Rows [*row of source number *which, and `run` in all] that give the rows from `row` on. */
static uint64_t find_run(const mica__piece *piece, uint64_t row, uint32_t *out_which, uint64_t *out_row)
{
    const mica__target_tensor *tensor = piece->tensor;
    const bool moved =
        tensor->transform == MICA__TRANSFORM_PAIR || tensor->transform == MICA__TRANSFORM_UNPAIR;
    const uint64_t each = tensor->rows / tensor->source_count, from = source_row(tensor, row);
    const uint64_t left = piece->row + piece->rows - row, here = each - from % each;
    *out_which = (uint32_t)(from / each);
    *out_row = tensor->first_row + from % each;
    return moved ? 1 : left < here ? left : here;
}

static void add(float *values, uint64_t n, float number)
{
    for (uint64_t i = 0; i < n; i++)
        values[i] += number;
}

static void transform_values(const mica__target_tensor *tensor, float *values, uint64_t n)
{
    if (tensor->transform == MICA__TRANSFORM_ADD_ONE)
        add(values, n, 1.0f);
    else if (tensor->transform == MICA__TRANSFORM_SUBTRACT_ONE)
        add(values, n, -1.0f);
}

/* One part of a row that MLX keeps in three tables; the other two go to the room behind the values. */
static void encode_part(const mica__target_tensor *tensor, const float *values, float *spare, uint64_t n,
                        uint8_t *out)
{
    uint8_t *words = (uint8_t *)spare, *scales = words + n * sizeof(float), *biases = scales + n * 2;
    if (tensor->part == MICA__TARGET_WORDS)
        words = out;
    else if (tensor->part == MICA__TARGET_SCALES)
        scales = out;
    else
        biases = out;
    mica__affine_encode_row((uint16_t)tensor->coding, (uint16_t)tensor->scales, tensor->group, values, n,
                            words, scales, biases);
}

static void encode(const mica__piece *piece, uint64_t row, const float *values, float *spare, uint8_t *out)
{
    const mica__target_tensor *tensor = piece->tensor;
    const float *importance = NULL;
    if (tensor->part != MICA__TARGET_WHOLE) {
        encode_part(tensor, values, spare, piece->columns, out);
        return;
    }
    if (tensor->importance != NULL)
        importance = tensor->importance + row / (tensor->rows / tensor->importance_count) * tensor->row +
                     piece->column;
    mica__quant_encode_row((uint16_t)tensor->dtype, values, importance, out, piece->columns);
}

/* `count` rows of one source that follow each other, decoded and encoded. */
static mica_status make_run(const mica__archive *archive, const mica__piece *piece,
                            const mica__piece_room *room, const mica__tensor *source, uint64_t from,
                            uint64_t row, uint64_t count, uint8_t *out)
{
    const mica__target_tensor *tensor = piece->tensor;
    const uint64_t n = piece->columns, each = source_bytes(tensor, n), step = piece->bytes_out / piece->rows;
    float *spare = room->values + count * n;
    mica_status status;
    if (is_mlx(tensor))
        status = mica__archive_decode_rows(archive, source, from, count, room->values);
    else
        status = mica__archive_read(
            archive, source, source_bytes(tensor, tensor->row) * from + source_bytes(tensor, piece->column),
            room->raw, each * count);
    for (uint64_t i = 0; i < count && status == MICA_OK; i++) {
        float *values = is_mlx(tensor) ? room->values + i * n : room->values;
        if (!is_mlx(tensor))
            mica__quant_decode_row(source->dtype, room->raw + i * each, values, n);
        transform_values(tensor, values, n);
        encode(piece, row + i, values, spare, out + i * step);
    }
    return status;
}

/* Rows that are columns of the source: a strip of each of its rows. */
static mica_status make_transposed(const mica__archive *archive, const mica__piece *piece,
                                   const mica__piece_room *room, uint8_t *out)
{
    const mica__target_tensor *tensor = piece->tensor;
    const mica__tensor *source = tensor->source[0];
    const uint64_t size = mica__dtype_bytes(source->dtype), n = tensor->row, rows = piece->rows;
    float *column = room->values + n * rows;
    mica_status status = MICA_OK;
    for (uint64_t c = 0; c < n && status == MICA_OK; c++) {
        status = mica__archive_read(archive, source, (c * tensor->rows + piece->row) * size, room->raw,
                                    rows * size);
        if (status != MICA_OK)
            break;
        mica__quant_decode_row(source->dtype, room->raw, column, rows);
        for (uint64_t r = 0; r < rows; r++)
            room->values[r * n + c] = column[r];
    }
    for (uint64_t r = 0; r < rows && status == MICA_OK; r++)
        encode(piece, piece->row + r, room->values + r * n, column, out + r * (piece->bytes_out / rows));
    return status;
}

mica_status mica__piece_make(const mica__archive *archive, const mica__piece *piece,
                             const mica__piece_room *room, uint8_t *out_bytes)
{
    const mica__target_tensor *tensor = piece->tensor;
    const uint64_t each = source_bytes(tensor, tensor->row), end = piece->row + piece->rows;
    const uint64_t step = piece->bytes_out / piece->rows;
    mica_status status = MICA_OK;
    if (tensor->constant != NULL) {
        memcpy(out_bytes, tensor->constant + piece->row * tensor->row + piece->column,
               (size_t)piece->bytes_out);
        return MICA_OK;
    }
    if (tensor->transform == MICA__TRANSFORM_TRANSPOSE)
        return make_transposed(archive, piece, room, out_bytes);
    for (uint64_t row = piece->row, count; row < end && status == MICA_OK; row += count) {
        uint32_t which;
        uint64_t from;
        uint8_t *out = out_bytes + (row - piece->row) * step;
        count = find_run(piece, row, &which, &from);
        if (mica__piece_is_copy(tensor))
            status = mica__archive_read(archive, tensor->source[which],
                                        each * from + source_bytes(tensor, piece->column), out, count * step);
        else
            status = make_run(archive, piece, room, tensor->source[which], from, row, count, out);
    }
    return status;
}
