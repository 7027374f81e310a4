/*
 * grid_lanes.h - sampling by a grid and its gradient in f32, with channels in the lanes: the planes of LANES channels of an image are turned, so that a
 * place has its channels side by side, and what a place of the grid reads is found once for all of them. The terms of an element and their
 * roundings are those of grid_body.h.
 */
#ifndef MICA_CPU_IMAGE_GRID_LANES_H
#define MICA_CPU_IMAGE_GRID_LANES_H

#include "backend/cpu/kernels/image/grid_gather.h"
#include "backend/cpu/kernels/simd/transpose.h"

#define LANES MICA__CPU_GRID_LANES
#define VECTORS (LANES / VW) /* of a place, at most */
#define BLOCK MICA__CPU_GRID_BLOCK
#define GRID_AHEAD 512 /* bytes: planes are more streams than what prefetches by itself follows */
#define GRID_UNROLL _Pragma("GCC unroll 16")
#define GRID_INLINE static inline __attribute__((always_inline))

/* What a block of places reads, [tap][BLOCK]: numbers of places in the turned planes, and what multiplies them. What multiplies by 0 leads behind the last
 * place, so that NaN and infinity do not come in. */
typedef struct grid_taps {
    float *weight, *across,
        *down;     /* of the gradient also how the weight goes with columns and rows of the grid */
    int32_t *from; /* that weight, of the gradient that across and down multiply */
    int32_t *to;   /* of the gradient: that weight multiplies */
    uint32_t count;
} grid_taps;

/* Planes of up to LANES channels: elements `first` on of `channels`, of an image. */
typedef struct grid_planes {
    unsigned char *data; /* the first channel's first element */
    uint64_t channel_step, row_step, step, columns;
    uint64_t channels;
    uint16_t dtype;
    bool flat; /* rows follow one another */
} grid_planes;

static grid_planes grid_planes_of(const mica__cpu_view *x, uint64_t image, uint64_t group)
{
    const uint64_t first = group * LANES, bytes = row_element_bytes(x->dtype);
    const grid_planes of = {.data = x->data + image * x->stride[0] + first * x->stride[1],
                            .channel_step = x->stride[1],
                            .row_step = x->stride[2],
                            .step = x->stride[3],
                            .columns = x->shape[3],
                            .channels = x->shape[1] - first < LANES ? x->shape[1] - first : LANES,
                            .dtype = x->dtype,
                            .flat = x->stride[3] == bytes &&
                                    (x->shape[2] == 1 || x->stride[2] == x->shape[3] * bytes)};
    return of;
}

/* ---- squares of places and channels ---- */

/* Whether all of a square from channel `begin` on are there, one row of f32 each. */
static inline bool grid_square_whole(const grid_planes *of, uint64_t begin, uint64_t count)
{
    return of->flat && of->dtype == MICA_DTYPE_F32 && count == VW && begin + VW <= of->channels;
}

/* The channels of vector `part` at `count` places from number `first` on, a vector for each place. */
static inline void grid_square_load(const grid_planes *of, uint32_t part, uint64_t first, uint64_t count,
                                    vf *square)
{
    const uint64_t begin = part * (uint64_t)VW;
    if (grid_square_whole(of, begin, count)) {
        const unsigned char *from = of->data + begin * of->channel_step + first * sizeof(float);
        GRID_UNROLL
        for (uint64_t c = 0; c < VW; c++) {
            __builtin_prefetch(from + c * of->channel_step + GRID_AHEAD);
            square[c] = vf_load(from + c * of->channel_step);
        }
        vf_transpose(square);
        return;
    }
    for (uint64_t c = 0; c < VW; c++) {
        const unsigned char *from = of->data + (begin + c) * of->channel_step;
        float lane[VW] = {0};
        if (begin + c >= of->channels) {
            square[c] = vf_zero();
            continue;
        }
        if (of->flat) {
            square[c] = row_load_n(from + first * of->step, of->dtype, count);
            continue;
        }
        for (uint64_t i = 0; i < count; i++)
            lane[i] = row_element(from + (first + i) / of->columns * of->row_step +
                                      (first + i) % of->columns * of->step,
                                  of->dtype);
        square[c] = vf_load(lane);
    }
    vf_transpose(square);
}

static inline void grid_square_store(const grid_planes *of, uint32_t part, uint64_t first, uint64_t count,
                                     vf *square)
{
    const uint64_t begin = part * (uint64_t)VW;
    vf_transpose(square);
    if (grid_square_whole(of, begin, count)) {
        unsigned char *to = of->data + begin * of->channel_step + first * sizeof(float);
        GRID_UNROLL
        for (uint64_t c = 0; c < VW; c++)
            vf_store(to + c * of->channel_step, square[c]);
        return;
    }
    for (uint64_t c = 0; c < VW && begin + c < of->channels; c++) {
        unsigned char *to = of->data + (begin + c) * of->channel_step;
        float lane[VW];
        if (of->flat) {
            row_store_n(to + first * of->step, of->dtype, square[c], count);
            continue;
        }
        vf_store(lane, square[c]);
        for (uint64_t i = 0; i < count; i++)
            row_store_strided(to + (first + i) / of->columns * of->row_step +
                                  (first + i) % of->columns * of->step,
                              of->dtype, 0, lane + i, 1);
    }
}

static uint32_t grid_vectors(const grid_planes *of)
{
    return (uint32_t)((of->channels + VW - 1) / VW);
}

/* `places` places as [place][LANES], and one more of zeros. */
static void grid_turn(const grid_planes *of, uint64_t places, float *table)
{
    for (uint64_t first = 0; first < places; first += VW)
        for (uint32_t part = 0; part < grid_vectors(of); part++) {
            const uint64_t count = places - first < VW ? places - first : VW;
            vf square[VW];
            grid_square_load(of, part, first, count, square);
            for (uint64_t i = 0; i < count; i++)
                vf_store(table + (first + i) * LANES + part * VW, square[i]);
        }
    memset(table + places * LANES, 0, LANES * sizeof *table);
}

static void grid_turn_back(const grid_planes *of, uint64_t places, const float *table)
{
    for (uint64_t first = 0; first < places; first += VW)
        for (uint32_t part = 0; part < grid_vectors(of); part++) {
            const uint64_t count = places - first < VW ? places - first : VW;
            vf square[VW];
            for (uint64_t i = 0; i < VW; i++)
                square[i] = i < count ? vf_load(table + (first + i) * LANES + part * VW) : vf_zero();
            grid_square_store(of, part, first, count, square);
        }
}

/* ---- taps ---- */

static void grid_taps_any(const mica__cpu_args *args, uint64_t image, uint64_t first, uint64_t count,
                          bool slopes, grid_taps *taps)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__GRID_X];
    const int32_t outside = (int32_t)(x->shape[2] * x->shape[3]);
    for (uint64_t i = 0; i < count; i++) {
        reads_float r;
        read_place_float(p, x, &args->view[MICA__GRID_GRID], image, (first + i) / p->columns,
                         (first + i) % p->columns, &r);
        for (uint32_t k = 0; k < taps->count; k++) {
            const uint32_t a = k / r.columns, b = k % r.columns;
            const bool inside = r.row[a] >= 0 && r.column[b] >= 0;
            const int32_t at = inside ? (int32_t)(r.row[a] * (int64_t)x->shape[3] + r.column[b]) : outside;
            const float weight = inside ? r.down[a] * r.across[b] : 0,
                        across = inside ? r.down[a] * r.across_slope[b] : 0,
                        down = inside ? r.down_slope[a] * r.across[b] : 0;
            const uint64_t to = k * BLOCK + i;
            taps->weight[to] = weight;
            taps->from[to] = (slopes ? across != 0 || down != 0 : weight != 0) ? at : outside;
            if (!slopes)
                continue;
            taps->across[to] = across;
            taps->down[to] = down;
            taps->to[to] = weight != 0 ? at : outside;
        }
    }
}

/* What one dimension says of VW places: two taps, 0 where they are outside; the place of each, and how its weight goes. */
typedef struct grid_side {
    vf at[2], by[2], slope[2], inside[2]; /* inside: 1 or 0 */
} grid_side;

static inline void grid_side_find(const mica__cpu_grid *p, vf g, uint64_t n, grid_side *side)
{
    const float most = (float)(n - 1);
    const bool nearest = p->mode == MICA_RESIZE_NEAREST, zeros = p->padding == MICA_GRID_ZEROS;
    const vf at = grid_place(p, g, n), one = vf_set1(1), last = vf_set1(most);
    vi unused;
    const vf low = nearest ? grid_round(at, &unused) : grid_floor(at, &unused), t = vf_sub(at, low);
    vf rate = vf_set1(nearest ? 0 : p->align_corners != 0 ? most / 2 : (float)n / 2);
    if (zeros)
        rate = vf_select(vf_eq(g, g), rate, vf_zero());
    else
        rate = vf_select(vf_lt(vf_zero(), at), vf_select(vf_lt(at, last), rate, vf_zero()), vf_zero());
    side->at[0] = low;
    side->at[1] = vf_add(low, one);
    side->by[0] = nearest ? one : vf_sub(one, t);
    side->by[1] = t;
    side->slope[0] = vf_neg(rate);
    side->slope[1] = rate;
    for (int k = 0; k < 2; k++)
        side->inside[k] = vf_select(vf_lt(side->at[k], vf_zero()), vf_zero(),
                                    vf_select(vf_lt(last, side->at[k]), vf_zero(), one));
}

/* A number of a place, which is below 2^22. */
static inline void grid_put_index(int32_t *to, vf index)
{
    const vf magic = vf_set1(12582912.0f);
    vf_store(to, vi_float(vi_sub(vf_bits(vf_add(index, magic)), vf_bits(magic))));
}

static void grid_taps_lanes(const mica__cpu_args *args, uint64_t image, uint64_t first, uint64_t count,
                            bool slopes, grid_taps *taps)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__GRID_X];
    const vf width = vf_set1((float)x->shape[3]), zero = vf_zero();
    const vf outside = vf_set1((float)(x->shape[2] * x->shape[3]));
    const uint32_t each = p->mode == MICA_RESIZE_NEAREST ? 1 : 2;
    for (uint64_t i = 0; i < count; i += VW) {
        grid_side column, row;
        vf g[2];
        grid_load(p, &args->view[MICA__GRID_GRID], image, first + i, count - i, g);
        grid_side_find(p, g[0], x->shape[3], &column);
        grid_side_find(p, g[1], x->shape[2], &row);
        for (uint32_t k = 0; k < taps->count; k++) {
            const uint32_t a = k / each, b = k % each;
            const uint64_t to = k * BLOCK + i;
            const vf at = vf_add(vf_mul(row.at[a], width), column.at[b]);
            const vf out = vf_mul(row.inside[a], column.inside[b]);
            const vm outer = vf_eq(out, zero);
            const vf weight = vf_select(outer, zero, vf_mul(row.by[a], column.by[b]));
            const vf written = vf_select(vf_eq(weight, zero), outside, at);
            vf_store(taps->weight + to, weight);
            if (!slopes) {
                grid_put_index(taps->from + to, written);
                continue;
            }
            const vf across = vf_select(outer, zero, vf_mul(row.by[a], column.slope[b])),
                     down = vf_select(outer, zero, vf_mul(row.slope[a], column.by[b]));
            vf_store(taps->across + to, across);
            vf_store(taps->down + to, down);
            grid_put_index(taps->to + to, written);
            grid_put_index(taps->from + to,
                           vf_select(vf_eq(across, zero), vf_select(vf_eq(down, zero), outside, at), at));
        }
    }
}

static void grid_taps_find(const mica__cpu_args *args, uint64_t image, uint64_t first, uint64_t count,
                           bool slopes, grid_taps *taps)
{
    const mica__cpu_grid *p = args->params;
    const bool lanes = p->mode != MICA_RESIZE_CUBIC && p->padding != MICA_GRID_REFLECTION;
    (lanes ? grid_taps_lanes : grid_taps_any)(args, image, first, count, slopes, taps);
}

/* Where a thread's memory has them; what lies behind. `gradient`: with all five. */
static float *grid_taps_at(const mica__cpu_grid *p, float *local, bool gradient, grid_taps *taps)
{
    const uint64_t size = (uint64_t)mica__cpu_grid_taps(p->mode) * BLOCK;
    taps->count = mica__cpu_grid_taps(p->mode);
    taps->weight = local;
    taps->from = (int32_t *)(void *)(local + size);
    if (!gradient)
        return local + 2 * size;
    taps->across = local + 2 * size;
    taps->down = local + 3 * size;
    taps->to = (int32_t *)(void *)(local + 4 * size);
    return local + 5 * size;
}

/* ---- sampling ---- */

/* Up to VW places from i of the block on, which begins at place `first`. */
GRID_INLINE void grid_sample_run(const grid_taps *taps, const float *table, uint64_t i, uint64_t count,
                                 uint32_t reads, uint32_t part, vf *square)
{
    for (uint64_t l = 0; l < VW; l++) {
        vf sum = vf_zero();
        for (uint32_t k = 0; k < reads && l < count; k++) {
            const uint64_t at = k * BLOCK + i + l;
            const float *from = table + (uint64_t)taps->from[at] * LANES + part * VW;
            sum = vf_add(sum, vf_mul(vf_set1(taps->weight[at]), vf_load(from)));
        }
        square[l] = sum;
    }
}

static void grid_sample_group(const mica__cpu_args *args, uint64_t image, uint64_t group)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__GRID_X];
    const grid_planes from = grid_planes_of(x, image, group),
                      to = grid_planes_of(&args->view[MICA__GRID_Y], image, group);
    grid_taps taps;
    float *table = grid_taps_at(p, args->local, false, &taps);
    const uint64_t places = p->rows * p->columns;
    grid_turn(&from, x->shape[2] * x->shape[3], table);
    for (uint64_t first = 0; first < places; first += BLOCK) {
        const uint64_t count = places - first < BLOCK ? places - first : BLOCK;
        grid_taps_find(args, image, first, count, false, &taps);
        for (uint64_t i = 0; i < count; i += VW)
            for (uint32_t part = 0; part < grid_vectors(&from); part++) {
                const uint64_t n = count - i < VW ? count - i : VW;
                vf square[VW];
                if (taps.count == 4)
                    grid_sample_run(&taps, table, i, n, 4, part, square);
                else
                    grid_sample_run(&taps, table, i, n, taps.count, part, square);
                grid_square_store(&to, part, first + i, n, square);
            }
    }
}

/* ---- the gradient ---- */

/* A place whose channels dy reach what it read, [part]: dx gets its part in `sums`, and dgrid the group's in `out`; either may be NULL. */
GRID_INLINE void grid_back_place(const grid_taps *taps, uint64_t i, uint32_t reads, uint32_t vectors,
                                 const vf *dy, const float *table, float *sums, float *out)
{
    float lane[2][LANES] = {{0}};
    for (uint32_t part = 0; part < vectors; part++) {
        vf across = vf_zero(), down = across;
        for (uint32_t k = 0; k < reads && sums != NULL; k++) {
            float *to = sums + (uint64_t)taps->to[k * BLOCK + i] * LANES + part * VW;
            vf_store(to, vf_add(vf_load(to), vf_mul(vf_set1(taps->weight[k * BLOCK + i]), dy[part])));
        }
        for (uint32_t k = 0; k < reads && out != NULL; k++) {
            const vf x = vf_load(table + (uint64_t)taps->from[k * BLOCK + i] * LANES + part * VW);
            across = vf_add(across, vf_mul(vf_set1(taps->across[k * BLOCK + i]), x));
            down = vf_add(down, vf_mul(vf_set1(taps->down[k * BLOCK + i]), x));
        }
        vf_store(lane[0] + part * VW, vf_mul(dy[part], across));
        vf_store(lane[1] + part * VW, vf_mul(dy[part], down));
    }
    if (out == NULL)
        return;
    out[0] = lane_sum_float(lane[0]);
    out[1] = lane_sum_float(lane[1]);
}

/* A group of channels of an image. `out`: of each place of the grid, what the group gives to dgrid; NULL: nobody wants it. */
static void grid_back_group(const mica__cpu_args *args, uint64_t image, uint64_t group, float *out)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__GRID_BACKWARD_X], *dx = &args->view[MICA__GRID_BACKWARD_DX];
    const grid_planes from = grid_planes_of(&args->view[MICA__GRID_BACKWARD_DY], image, group);
    const uint64_t places = p->rows * p->columns, plane = x->shape[2] * x->shape[3];
    const uint32_t vectors = grid_vectors(&from);
    grid_taps taps;
    float *table = grid_taps_at(p, args->local, true, &taps), *sums = table + (plane + 1) * LANES;
    if (out != NULL) {
        const grid_planes read = grid_planes_of(x, image, group);
        grid_turn(&read, plane, table);
    }
    sums = dx->data != NULL ? sums : NULL;
    if (sums != NULL)
        memset(sums, 0, (plane + 1) * LANES * sizeof *sums);
    for (uint64_t first = 0; first < places; first += BLOCK) {
        const uint64_t count = places - first < BLOCK ? places - first : BLOCK;
        grid_taps_find(args, image, first, count, true, &taps);
        for (uint64_t i = 0; i < count; i += VW) {
            const uint64_t n = count - i < VW ? count - i : VW;
            vf square[VECTORS][VW], dy[VECTORS];
            for (uint32_t part = 0; part < vectors; part++)
                grid_square_load(&from, part, first + i, n, square[part]);
            for (uint64_t l = 0; l < n; l++) {
                float *to = out != NULL ? out + 2 * (first + i + l) : NULL;
                for (uint32_t part = 0; part < vectors; part++)
                    dy[part] = square[part][l];
                if (taps.count == 4)
                    grid_back_place(&taps, i + l, 4, vectors, dy, table, sums, to);
                else
                    grid_back_place(&taps, i + l, taps.count, vectors, dy, table, sums, to);
            }
        }
    }
    if (sums != NULL) {
        const grid_planes to = grid_planes_of(dx, image, group);
        grid_turn_back(&to, plane, sums);
    }
}

#endif
