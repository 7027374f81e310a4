/*
 * copy.c - copies between views of one shape and any strides, bit for bit or converting between float types.
 *
 * The plan has collapsed the views, gives block types as bytes, and asks for tiles where x and y run along
 * different dimensions.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

#define TILE 256

/* The size is a constant in each call of this, so that an element is one load and one store. */
static inline void copy_each(unsigned char *to, uint64_t to_stride, const unsigned char *from,
                             uint64_t from_stride, size_t bytes, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        memcpy(to + i * to_stride, from + i * from_stride, bytes);
}

static void copy_elements(unsigned char *to, uint64_t to_stride, const unsigned char *from,
                          uint64_t from_stride, uint64_t bytes, uint64_t n)
{
    if (bytes == to_stride && bytes == from_stride)
        memcpy(to, from, n * bytes);
    else if (bytes == 1)
        copy_each(to, to_stride, from, from_stride, 1, n);
    else if (bytes == 2)
        copy_each(to, to_stride, from, from_stride, 2, n);
    else if (bytes == 4)
        copy_each(to, to_stride, from, from_stride, 4, n);
    else
        copy_each(to, to_stride, from, from_stride, 8, n);
}

static void convert_elements(const mica__cpu_view *x, const mica__cpu_view *y, const unsigned char *from,
                             unsigned char *to, uint64_t n)
{
    const uint64_t from_stride = x->stride[x->ndim - 1], to_stride = y->stride[y->ndim - 1];
    float tile[TILE];
    for (uint64_t i = 0; i < n; i += TILE) {
        const uint64_t part = n - i < TILE ? n - i : TILE;
        const float *values = row_f32_strided(from + i * from_stride, x->dtype, from_stride, part, tile);
        row_store_strided(to + i * to_stride, y->dtype, to_stride, values, part);
    }
}

static void copy_range(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_copy *params = args->params;
    const mica__cpu_view *x = args->view, *y = x + 1;
    const uint64_t row = x->shape[x->ndim - 1];
    const uint64_t from_stride = x->stride[x->ndim - 1], to_stride = y->stride[y->ndim - 1];
    uint64_t i = (uint64_t)first * MICA__CPU_UNIT_ELEMENTS, end = (uint64_t)last * MICA__CPU_UNIT_ELEMENTS;
    end = end < params->elements ? end : params->elements;
    uint64_t column = i % row;
    walk w;
    walk_begin(&w, x, 2, x->ndim - 1u, i / row);
    while (i < end) {
        const uint64_t n = row - column < end - i ? row - column : end - i;
        const unsigned char *from = walk_at(&w, 0) + column * from_stride;
        unsigned char *to = walk_at(&w, 1) + column * to_stride;
        if (x->dtype == y->dtype)
            copy_elements(to, to_stride, from, from_stride, params->element_bytes, n);
        else
            convert_elements(x, y, from, to, n);
        walk_next(&w);
        column = 0;
        i += n;
    }
}

/* One tile of `a` by `b` elements. Rows of x, which run along a, are read whole into the tile; columns of it are
 * rows of y: each cache line of either side is touched once, whatever the strides. */
static void copy_tile(const mica__cpu_view *x, const mica__cpu_view *y, const unsigned char *from,
                      unsigned char *to, uint64_t a, uint64_t b, uint64_t bytes)
{
    const uint64_t from_stride = x->stride[x->ndim - 1], to_stride = y->stride[y->ndim - 2];
    unsigned char tile[MICA__CPU_TILE * MICA__CPU_TILE * 8], line[MICA__CPU_TILE * 8];
    float values[MICA__CPU_TILE];
    for (uint64_t j = 0; j < b; j++)
        memcpy(tile + j * MICA__CPU_TILE * bytes, from + j * from_stride, a * bytes);
    for (uint64_t i = 0; i < a; i++) {
        copy_elements(line, bytes, tile + i * bytes, MICA__CPU_TILE * bytes, bytes, b);
        if (x->dtype == y->dtype)
            memcpy(to + i * to_stride, line, b * bytes);
        else
            row_store(to + i * to_stride, y->dtype, row_f32(line, x->dtype, b, values), b);
    }
}

static void copy_tiles(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_copy *params = args->params;
    const mica__cpu_view *x = args->view, *y = x + 1;
    const uint32_t a = x->ndim - 2u, b = x->ndim - 1u;
    const uint64_t high = (x->shape[a] + MICA__CPU_TILE - 1) / MICA__CPU_TILE;
    const uint64_t wide = (x->shape[b] + MICA__CPU_TILE - 1) / MICA__CPU_TILE;
    for (uint64_t unit = first; unit < last; unit++) {
        const uint64_t i = unit / wide % high * MICA__CPU_TILE, j = unit % wide * MICA__CPU_TILE;
        const uint64_t a_left = x->shape[a] - i, b_left = x->shape[b] - j;
        walk w;
        walk_begin(&w, x, 2, a, unit / (high * wide));
        copy_tile(x, y, walk_at(&w, 0) + i * x->stride[a] + j * x->stride[b],
                  walk_at(&w, 1) + i * y->stride[a] + j * y->stride[b],
                  a_left < MICA__CPU_TILE ? a_left : MICA__CPU_TILE,
                  b_left < MICA__CPU_TILE ? b_left : MICA__CPU_TILE, params->element_bytes);
    }
}

void MICA__ISA(copy)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_copy *params = args->params;
    if (params->tiled)
        copy_tiles(args, first, last);
    else
        copy_range(args, first, last);
}
