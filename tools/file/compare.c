/* compare.c - reads two tensors piece by piece, as bytes first and as numbers where the bytes differ. */
#include "file/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file/metadata.h"

#define PIECE_VALUES ((uint64_t)1 << 18)
#define PIECE_BYTES ((size_t)1 << 18)

typedef void (*widen_fn)(const void *raw, uint64_t count, double *out);

/* Types that have no f32 form, or lose by it. */
#define WIDEN(type)                                                        \
    static void widen_##type(const void *raw, uint64_t count, double *out) \
    {                                                                      \
        const type *from = raw;                                            \
        for (uint64_t i = 0; i < count; i++)                               \
            out[i] = (double)from[i];                                      \
    }
WIDEN(double)
WIDEN(int8_t)
WIDEN(int16_t)
WIDEN(int32_t)
WIDEN(int64_t)
WIDEN(uint8_t)
WIDEN(uint16_t)
WIDEN(uint32_t)
WIDEN(uint64_t)

static const widen_fn widen[MICA_DTYPE_COUNT] = {
    [MICA_DTYPE_F64] = widen_double,   [MICA_DTYPE_I8] = widen_int8_t,    [MICA_DTYPE_I16] = widen_int16_t,
    [MICA_DTYPE_I32] = widen_int32_t,  [MICA_DTYPE_I64] = widen_int64_t,  [MICA_DTYPE_U8] = widen_uint8_t,
    [MICA_DTYPE_U16] = widen_uint16_t, [MICA_DTYPE_U32] = widen_uint32_t, [MICA_DTYPE_U64] = widen_uint64_t,
    [MICA_DTYPE_BOOL] = widen_uint8_t,
};

void tool_comparer_end(tool_comparer *comparer)
{
    free(comparer->values[0]);
    free(comparer->values[1]);
    free(comparer->raw);
    comparer->values[0] = comparer->values[1] = NULL;
    comparer->raw = NULL;
    comparer->capacity = 0;
}

static mica_status grow(tool_comparer *c, uint64_t count)
{
    if (count <= c->capacity)
        return MICA_OK;
    tool_comparer_end(c);
    if (count > SIZE_MAX / sizeof(double))
        return MICA_ERR_OUT_OF_MEMORY;
    c->values[0] = malloc((size_t)count * sizeof(double));
    c->values[1] = malloc((size_t)count * sizeof(double));
    c->raw = malloc((size_t)count * sizeof(double));
    if (c->values[0] == NULL || c->values[1] == NULL || c->raw == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    c->capacity = count;
    return MICA_OK;
}

static void advance(tool_comparer *c, const tool_tensor *a, uint64_t bytes)
{
    c->done_bytes += bytes;
    (void)tool_progress_step(c->progress, a->info.name, c->done_bytes, c->total_bytes);
}

/* *out_same is 1 if both are of one type and of the same bytes. MLX weights are more than the bytes that can be read. */
static mica_status compare_bytes(tool_comparer *c, const tool_tensor *a, const tool_tensor *b, int *out_same)
{
    char *x = (char *)c->values[0], *y = (char *)c->values[1];
    *out_same = 0;
    if (a->info.dtype != b->info.dtype || a->info.dtype == MICA_DTYPE_NONE ||
        a->info.bytes != b->info.bytes || a->info.group_size != 0 || b->info.group_size != 0)
        return MICA_OK;
    for (uint64_t at = 0; at < a->info.bytes; at += PIECE_BYTES) {
        uint64_t size = a->info.bytes - at < PIECE_BYTES ? a->info.bytes - at : PIECE_BYTES;
        mica_status status = mica_weights_read(a->weights, a->index, at, x, size);
        if (status == MICA_OK)
            status = mica_weights_read(b->weights, b->index, at, y, size);
        if (status != MICA_OK)
            return status;
        advance(c, a, 0);
        if (memcmp(x, y, (size_t)size) != 0)
            return MICA_OK;
    }
    *out_same = 1;
    return MICA_OK;
}

static mica_status read_values(tool_comparer *c, const tool_tensor *t, uint64_t first, uint64_t count,
                               double *out)
{
    widen_fn plain = t->info.group_size == 0 ? widen[t->info.dtype] : NULL;
    const float *floats = c->raw;
    mica_status status;
    if (plain != NULL) {
        uint64_t size = mica_dtype_block_bytes(t->info.dtype);
        status = mica_weights_read(t->weights, t->index, first * size, c->raw, count * size);
        if (status == MICA_OK)
            plain(c->raw, count, out);
        return status;
    }
    status = mica_weights_decode(t->weights, t->index, first, count, c->raw);
    for (uint64_t i = 0; i < count && status == MICA_OK; i++)
        out[i] = (double)floats[i];
    return status;
}

typedef struct sums {
    double squares, first_squares;
    uint64_t finite;
} sums;

static void add_piece(const double *x, const double *y, uint64_t count, sums *s, tool_distance *out)
{
    for (uint64_t i = 0; i < count; i++) {
        double error = fabs(x[i] - y[i]);
        int same = x[i] == y[i] || (isnan(x[i]) && isnan(y[i]));
        out->different += !same;
        if (!same)
            out->largest = !isfinite(error) ? INFINITY : error > out->largest ? error : out->largest;
        if (isfinite(x[i]) && isfinite(y[i])) {
            s->squares += error * error;
            s->first_squares += x[i] * x[i];
            s->finite++;
        }
    }
}

mica_status tool_compare(tool_comparer *comparer, const tool_tensor *a, const tool_tensor *b,
                         tool_distance *out)
{
    const uint64_t row = a->info.ndim > 1 ? a->info.shape[a->info.ndim - 1] : 1;
    const uint64_t rows = row == 0 || row >= PIECE_VALUES ? 1 : PIECE_VALUES / row, piece = rows * row;
    sums s = {0};
    int same = 0;
    memset(out, 0, sizeof *out);
    out->values = tool_tensor_values(&a->info);
    mica_status status = grow(comparer, piece > PIECE_VALUES ? piece : PIECE_VALUES);
    if (status == MICA_OK)
        status = compare_bytes(comparer, a, b, &same);
    for (uint64_t at = 0; at < out->values && status == MICA_OK && !same; at += piece) {
        uint64_t count = out->values - at < piece ? out->values - at : piece;
        status = read_values(comparer, a, at, count, comparer->values[0]);
        if (status == MICA_OK)
            status = read_values(comparer, b, at, count, comparer->values[1]);
        if (status == MICA_OK) {
            add_piece(comparer->values[0], comparer->values[1], count, &s, out);
            advance(comparer, a, 0);
        }
    }
    out->same = same || (a->info.group_size != 0 && a->info.dtype == b->info.dtype &&
                         a->info.group_size == b->info.group_size && out->different == 0);
    if (s.finite > 0) {
        out->rms = sqrt(s.squares / (double)s.finite);
        out->relative = s.squares == 0 ? 0 : sqrt(s.squares / s.first_squares);
    }
    advance(comparer, a, a->info.bytes + b->info.bytes);
    return status;
}
