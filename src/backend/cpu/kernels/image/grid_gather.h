/*
 * grid_gather.h - sampling f32 images by a grid: what a block of places reads is found once for all channels; then each channel's elements are put side
 * by side and added up in lanes. The terms of an element and their roundings are those of grid_body.h.
 */
#ifndef MICA_CPU_IMAGE_GRID_GATHER_H
#define MICA_CPU_IMAGE_GRID_GATHER_H

#include "backend/cpu/kernels/image/image.h"
#include "backend/cpu/kernels/rows.h"

#define GRID_SIZES (1u << 20) /* of dimensions whose places are found in lanes: whole numbers stay exact */

/* What a block of places reads: `width` neighbours from element index[k][i] of a channel on, which weight[k width ..][i] multiply; 0: it is not looked
 * at. */
typedef struct grid_block {
    float *weight;  /* [tap][places] */
    float *read;    /* [tap][places], neighbours together */
    int32_t *index; /* [tap][places] */
    uint64_t places;
    uint32_t reads, width;
} grid_block;

/* ---- places, one by one ---- */

static void grid_find_any(const mica__cpu_args *args, uint64_t image, uint64_t first, uint64_t count,
                          grid_block *block)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__GRID_X];
    block->width = 1;
    block->reads = p->mode == MICA_RESIZE_NEAREST ? 1 : p->mode == MICA_RESIZE_LINEAR ? 4 : 16;
    for (uint64_t i = 0; i < count; i++) {
        reads_float r;
        read_place_float(p, x, &args->view[MICA__GRID_GRID], image, (first + i) / p->columns,
                         (first + i) % p->columns, &r);
        for (uint32_t k = 0; k < block->reads; k++) {
            const uint32_t a = k / r.columns, b = k % r.columns;
            const bool inside = r.row[a] >= 0 && r.column[b] >= 0;
            const uint64_t at =
                inside ? (uint64_t)r.row[a] * x->stride[2] + (uint64_t)r.column[b] * x->stride[3] : 0;
            block->weight[k * block->places + i] = inside ? r.down[a] * r.across[b] : 0;
            block->index[k * block->places + i] = (int32_t)(at / sizeof(float));
        }
    }
}

/* ---- places in lanes ---- */

/* Coordinates, as the padding has them, of a dimension of n; outside of it no further than where nothing is read. */
static inline vf grid_place(const mica__cpu_grid *p, vf g, uint64_t n)
{
    const float most = (float)(n - 1), outside = p->padding == MICA_GRID_ZEROS ? 2.0f : 0.0f;
    const vf half = vf_set1(0.5f), up = vf_add(g, vf_set1(1));
    vf at = p->align_corners != 0 ? vf_mul(vf_mul(up, half), vf_set1(most))
                                  : vf_mul(vf_sub(vf_mul(up, vf_set1((float)n)), vf_set1(1)), half);
    at = vf_select(vf_eq(at, at), at, vf_set1(-outside));
    return vf_min(vf_max(at, vf_set1(-outside)), vf_set1(most + outside));
}

/* The nearest whole number, of two the even one, and itself as an integer. */
static inline vf grid_round(vf v, vi *out_whole)
{
    const vf magic = vf_set1(12582912.0f), shifted = vf_add(v, magic);
    *out_whole = vi_sub(vf_bits(shifted), vf_bits(magic));
    return vf_sub(shifted, magic);
}

static inline vf grid_floor(vf v, vi *out_whole)
{
    vi unused;
    const vf near = grid_round(v, &unused);
    return grid_round(vf_sub(near, vf_select(vf_lt(v, near), vf_set1(1), vf_zero())), out_whole);
}

/* What one dimension says of VW places: two taps, their weights. */
typedef struct grid_axis {
    int32_t low[VW], high[VW]; /* inside of the dimension, whatever the weights are */
    vf by[2];
} grid_axis;

static inline int32_t grid_held(int32_t at, int32_t last)
{
    return at < 0 ? 0 : at > last ? last : at;
}

static inline void grid_axis_find(const mica__cpu_grid *p, vf g, uint64_t n, grid_axis *axis)
{
    const vf at = grid_place(p, g, n), one = vf_set1(1), last = vf_set1((float)(n - 1));
    vi whole;
    int32_t base[VW];
    const bool nearest = p->mode == MICA_RESIZE_NEAREST;
    const vf low = nearest ? grid_round(at, &whole) : grid_floor(at, &whole), t = vf_sub(at, low),
             high = vf_add(low, one);
    const vf by[] = {nearest ? one : vf_sub(one, t), nearest ? vf_zero() : t}, tap[] = {low, high};
    for (int k = 0; k < 2; k++) {
        const vf below = vf_select(vf_lt(tap[k], vf_zero()), vf_zero(), by[k]);
        axis->by[k] = vf_select(vf_lt(last, tap[k]), vf_zero(), below);
    }
    memcpy(base, &whole, sizeof base);
    for (int i = 0; i < VW; i++) {
        axis->low[i] = grid_held(base[i], (int32_t)n - 1);
        axis->high[i] = grid_held(base[i] + 1, (int32_t)n - 1);
    }
}

/* Pairs of columns: the first of both is not the last of the row, so that what belongs to it may stand second, or the other way round. */
static inline void grid_pair(const mica__cpu_view *x, grid_axis *column)
{
    const int32_t last = (int32_t)x->shape[3] - 2;
    float by[2][VW], low[VW], high[VW];
    vf_store(low, column->by[0]);
    vf_store(high, column->by[1]);
    for (int i = 0; i < VW; i++) {
        const bool before = column->low[i] == column->high[i] && column->low[i] == 0,
                   behind = column->low[i] > last && column->high[i] > last && !before;
        by[0][i] = before ? high[i] : behind ? 0 : low[i];
        by[1][i] = before ? 0 : behind ? low[i] : high[i];
        column->low[i] = behind ? last : column->low[i];
    }
    column->by[0] = vf_load(by[0]);
    column->by[1] = vf_load(by[1]);
}

/* Columns and rows of VW places of the grid from number `first` on, of which `count` are there. */
static inline void grid_load(const mica__cpu_grid *p, const mica__cpu_view *grid, uint64_t image,
                             uint64_t first, uint64_t count, vf *out)
{
    const unsigned char *from = grid->data + image * grid->stride[0];
    const uint64_t pair = 2 * sizeof(float);
    float g[2][VW] = {{0}};
    if (count >= VW && grid->dtype == MICA_DTYPE_F32 && grid->stride[3] == sizeof(float) &&
        grid->stride[2] == pair && (p->rows == 1 || grid->stride[1] == p->columns * pair)) {
        const vf a = vf_load(from + first * pair), b = vf_load(from + (first + VW / 2) * pair);
        out[0] = vf_unzip_even(a, b);
        out[1] = vf_unzip_odd(a, b);
        return;
    }
    for (uint64_t l = 0; l < VW && l < count; l++) {
        const unsigned char *at =
            from + (first + l) / p->columns * grid->stride[1] + (first + l) % p->columns * grid->stride[2];
        g[0][l] = row_element(at, grid->dtype);
        g[1][l] = row_element(at + grid->stride[3], grid->dtype);
    }
    out[0] = vf_load(g[0]);
    out[1] = vf_load(g[1]);
}

static void grid_find_lanes(const mica__cpu_args *args, uint64_t image, uint64_t first, uint64_t count,
                            grid_block *block)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__GRID_X], *grid = &args->view[MICA__GRID_GRID];
    const int32_t row_step = (int32_t)(x->stride[2] / sizeof(float)),
                  column_step = (int32_t)(x->stride[3] / sizeof(float));
    block->width = p->mode == MICA_RESIZE_NEAREST ? 1 : 2;
    block->reads = block->width;
    for (uint64_t i = 0; i < count; i += VW) {
        grid_axis across, down;
        vf at[2];
        grid_load(p, grid, image, first + i, count - i, at);
        grid_axis_find(p, at[0], x->shape[3], &across);
        grid_axis_find(p, at[1], x->shape[2], &down);
        if (block->width == 2)
            grid_pair(x, &across);
        for (uint32_t a = 0; a < block->reads; a++) {
            const int32_t *rows = a == 0 ? down.low : down.high;
            int32_t *index = block->index + a * block->places + i;
            for (int l = 0; l < VW; l++)
                index[l] = rows[l] * row_step + across.low[l] * column_step;
            for (uint32_t b = 0; b < block->width; b++)
                vf_store(block->weight + (a * block->width + b) * block->places + i,
                         vf_mul(down.by[a], across.by[b]));
        }
    }
}

/* ---- channels ---- */

static inline vf grid_add(vf sum, const float *weight, vf value)
{
    const vf by = vf_load(weight);
    return vf_add(sum, vf_select(vf_eq(by, vf_zero()), vf_zero(), vf_mul(by, value)));
}

/* `count` elements of a channel, or pairs of neighbours, side by side. */
static inline void grid_collect(const unsigned char *x, const int32_t *index, uint64_t count, uint32_t width,
                                float *to)
{
    if (width == 2)
        for (uint64_t i = 0; i < count; i++)
            memcpy(to + 2 * i, x + (int64_t)index[i] * 4, 2 * sizeof *to);
    else
        for (uint64_t i = 0; i < count; i++)
            memcpy(to + i, x + (int64_t)index[i] * 4, sizeof *to);
}

static inline vf grid_sum(const grid_block *block, uint64_t i)
{
    vf sum = vf_zero();
    for (uint32_t k = 0; k < block->reads; k++) {
        const float *weight = block->weight + k * block->width * block->places + i,
                    *read = block->read + k * block->width * block->places + i * block->width;
        if (block->width == 1) {
            sum = grid_add(sum, weight, vf_load(read));
            continue;
        }
        const vf a = vf_load(read), b = vf_load(read + VW);
        sum = grid_add(sum, weight, vf_unzip_even(a, b));
        sum = grid_add(sum, weight + block->places, vf_unzip_odd(a, b));
    }
    return sum;
}

/* Places [first, first + count) of a channel; `rows`: they lie side by side in y. */
static void grid_put(const mica__cpu_args *args, const grid_block *block, unsigned char *to, bool rows,
                     uint64_t first, uint64_t count)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *y = &args->view[MICA__GRID_Y];
    for (uint64_t i = 0; i < count; i += VW) {
        const uint64_t n = count - i < VW ? count - i : VW;
        const vf sum = grid_sum(block, i);
        float lane[VW];
        if (rows) {
            row_store_n(to + (first + i) * row_element_bytes(y->dtype), y->dtype, sum, n);
            continue;
        }
        vf_store(lane, sum);
        for (uint64_t l = 0; l < n; l++)
            row_store_strided(to + (first + i + l) / p->columns * y->stride[2] +
                                  (first + i + l) % p->columns * y->stride[3],
                              y->dtype, 0, lane + l, 1);
    }
}

/* Places [first, first + count) of the grid of an image, for all channels. */
static void grid_block_gathered(const mica__cpu_args *args, uint64_t image, uint64_t first, uint64_t count)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__GRID_X], *y = &args->view[MICA__GRID_Y];
    const uint64_t bytes = row_element_bytes(y->dtype), taps = MICA__CPU_GRID_READS;
    const bool rows = y->stride[3] == bytes && y->stride[2] == p->columns * bytes;
    const bool lanes = p->mode != MICA_RESIZE_CUBIC && p->padding != MICA_GRID_REFLECTION &&
                       x->shape[2] < GRID_SIZES && x->shape[3] < GRID_SIZES &&
                       (p->mode == MICA_RESIZE_NEAREST || (x->shape[3] > 1 && x->stride[3] == sizeof(float)));
    grid_block block = {.weight = args->local, .places = MICA__CPU_GRID_PLACES(p->mode)};
    block.read = block.weight + taps;
    block.index = (int32_t *)(void *)(block.read + taps);
    (lanes ? grid_find_lanes : grid_find_any)(args, image, first, count, &block);
    for (uint64_t c = 0; c < p->channels; c++) {
        const unsigned char *from = x->data + image * x->stride[0] + c * x->stride[1];
        for (uint32_t k = 0; k < block.reads; k++)
            grid_collect(from, block.index + k * block.places, count, block.width,
                         block.read + k * block.width * block.places);
        grid_put(args, &block, y->data + image * y->stride[0] + c * y->stride[1], rows, first, count);
    }
}

/* Whether a channel's elements have numbers of 32 bits. */
static bool grid_gathers(const mica__cpu_view *x)
{
    const uint64_t reach = (x->shape[2] - 1) * x->stride[2] + (x->shape[3] - 1) * x->stride[3];
    return x->dtype == MICA_DTYPE_F32 && reach / sizeof(float) < INT32_MAX;
}

#endif
