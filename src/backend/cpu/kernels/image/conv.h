/*
 * conv.h - what the convolution kernels and their plans agree on: parameters, sizes of per-thread memory.
 *
 * Views have five dimensions: [batch, channels, three spatial ones]. Included by both sides, so it knows no instruction set: sizes are upper bounds
 * over all of them.
 */
#ifndef MICA_CPU_CONV_H
#define MICA_CPU_CONV_H

#include "backend/cpu/cpu_kernel.h"
#include "backend/windows.h"

#define MICA__CONV_LANES 16u   /* of the widest vector */
#define MICA__CONV_OUTPUTS 64u /* of a block: what a tile of registers has, at most */
#define MICA__CONV_STEPS 288u  /* of the sums of a block, whose weights stay near while the places go by */
#define MICA__CONV_FEW 2u      /* outputs of a group up to which vectors go along the places instead */
#define MICA__CONV_SLACK 128u  /* floats behind a tile, which vectors may read */

/* Where a convolution's windows begin and what they meet, along one dimension. A plain one has one phase; of a transposed one those places of y that
 * are `stride` apart meet the same taps of the kernel, and neighbours of x: a phase for each remainder. */
typedef struct mica__conv_axis {
    uint64_t first, count; /* places of y: first + step i, i below count */
    uint64_t step;
    uint32_t x_step;              /* from one of them to the next in x */
    uint32_t tap, taps, tap_step; /* of the kernel: tap + tap_step j */
    int64_t at, at_step;          /* place of x that tap j meets for i = 0: at + at_step j */
} mica__conv_axis;

static inline mica__conv_axis mica__conv_axis_of(const mica__windows *w, bool transposed, uint32_t d,
                                                 uint32_t phase)
{
    mica__conv_axis a = {.first = 0, .step = 1};
    if (!transposed) {
        a.count = w->out[d];
        a.x_step = w->stride[d];
        a.taps = w->kernel[d];
        a.tap_step = 1;
        a.at = -(int64_t)w->low[d];
        a.at_step = w->dilation[d];
        return a;
    }
    /* place p of y and tap k meet place (p + low - k dilation) / stride of x where that is whole: k begins at the first tap with k dilation =
     * phase mod stride, if there is one, and every period-th meets as well */
    const uint64_t s = w->stride[d], low = w->low[d],
                   places = w->in[d]; /* y has the places, x is made of windows */
    uint64_t tap = 0, period = 1;
    while (period < s && period * w->dilation[d] % s != 0)
        period++;
    while (tap < period && tap * w->dilation[d] % s != phase)
        tap++;
    a.first = (phase + s - low % s) % s;
    a.count = a.first < places ? (places - a.first + s - 1) / s : 0;
    a.step = s;
    a.x_step = 1;
    a.tap = (uint32_t)tap;
    a.tap_step = (uint32_t)period;
    a.taps = tap < period && tap < w->kernel[d] ? (uint32_t)((w->kernel[d] - tap - 1) / period + 1) : 0;
    a.at = ((int64_t)(a.first + low) - (int64_t)(tap * w->dilation[d])) / (int64_t)s;
    a.at_step = -(int64_t)(period * w->dilation[d] / s);
    return a;
}

/* conv: a unit is a part of the outputs of a group, at a tile of places of one phase: of `images` images `rows` by `columns` each (the first
 * dimension one by one). conv_few: a unit is all outputs of a group at such a tile of one image, its channels taken one by one. */
typedef struct mica__cpu_conv {
    mica__windows windows;
    uint64_t batch, groups, channels, outputs; /* the latter two of a group */
    uint32_t transposed, phases[MICA_SPATIAL_DIMS];
    uint32_t residual, relu;                               /* what follows the bias; 0: nothing */
    uint32_t parts, depth;                                 /* of the outputs of a group; channels of a tile */
    uint64_t images, rows, columns;                        /* of a tile */
    uint64_t image_tiles, planes, row_tiles, column_tiles; /* of the phase that has most */
    uint64_t tile_floats;                                  /* of x, at most */
} mica__cpu_conv;

static inline uint64_t mica__conv_round(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static inline uint64_t mica__conv_taps(const mica__windows *w)
{
    return (uint64_t)w->kernel[0] * w->kernel[1] * w->kernel[2];
}

/* Places of x that `count` places of y meet along an axis. */
static inline uint64_t mica__conv_extent(const mica__conv_axis *a, uint64_t count)
{
    const uint64_t reach = (uint64_t)(a->at_step < 0 ? -a->at_step : a->at_step);
    return a->taps == 0 || count == 0 ? 0 : (count - 1) * a->x_step + reach * (a->taps - 1) + 1;
}

/* Floats of a row of a tile: of conv_few places x_step apart are neighbours. */
static inline uint64_t mica__conv_row_floats(const mica__conv_axis *a, uint64_t count)
{
    return mica__conv_round(mica__conv_extent(a, count), a->x_step);
}

/* Per-thread memory of conv, where each part begins, in floats. */
typedef struct mica__conv_local {
    uint64_t sums;    /* [block][place][output]; before them the tile [channel][image][plane][row][column] */
    uint64_t weights; /* [channel, tap][output] of a block */
    uint64_t lines;   /* [output][channel, tap] of a vector of outputs, where they are not side by side */
    uint64_t step;    /* u64 [channel, tap]: in the tile */
    uint64_t place;   /* u64 [place]: in the tile, and 16 more */
    uint64_t slot;    /* u64 [tap]: which of the taps of this phase it is */
    uint64_t floats;
} mica__conv_local;

static inline mica__conv_local mica__conv_local_of(const mica__cpu_conv *p)
{
    const uint64_t places = p->images * p->rows * p->columns, taps = mica__conv_taps(&p->windows);
    const uint64_t blocks = (p->outputs + MICA__CONV_OUTPUTS - 1) / MICA__CONV_OUTPUTS;
    const uint64_t steps = mica__conv_round(p->depth * taps, 16);
    mica__conv_local l = {.sums = mica__conv_round(p->tile_floats + MICA__CONV_SLACK, 16)};
    l.weights = l.sums + (blocks + p->parts - 1) / p->parts * MICA__CONV_OUTPUTS * (places + 16);
    l.lines = l.weights + steps * MICA__CONV_OUTPUTS;
    l.step = l.lines + steps * MICA__CONV_LANES;
    l.place = l.step + 2 * steps;
    l.slot = l.place + 2 * mica__conv_round(places + 16, 16);
    l.floats = l.slot + 2 * mica__conv_round(taps, 16);
    return l;
}

/* The same of conv_few. A row of sums is whole groups of four vectors. */
typedef struct mica__conv_few_local {
    uint64_t sums;    /* [output][row][column]; before them the tile [plane][row][phase][column] */
    uint64_t row;     /* floats of a row of them */
    uint64_t weights; /* [output][channel, tap] */
    uint64_t tap;     /* u64 [tap]: in the tile */
    uint64_t line;    /* one row of x */
    uint64_t floats;
} mica__conv_few_local;

static inline mica__conv_few_local mica__conv_few_local_of(const mica__cpu_conv *p)
{
    const uint64_t taps = mica__conv_taps(&p->windows);
    mica__conv_few_local l = {.sums = mica__conv_round(p->tile_floats + MICA__CONV_SLACK, 16),
                              .row = mica__conv_round(p->columns, 4 * MICA__CONV_LANES)};
    l.weights = l.sums + p->outputs * p->rows * l.row;
    l.tap = l.weights + mica__conv_round(p->outputs * p->channels * taps, 16);
    l.line = l.tap + 2 * mica__conv_round(taps, 16);
    l.floats = l.line + mica__conv_round(p->tile_floats + 16, 16);
    return l;
}

/* conv_weight: a unit is a block of the outputs of a group and `depth` of its channels. The places of dy go by in pieces of `images` images, of one
 * plane, `rows` by `columns` of each: what they meet in x is a tile. Pieces are cut by shapes alone, `depth` as threads need it.
 * conv_weight_few: a unit is a channel of x. */
typedef struct mica__cpu_conv_weight {
    mica__windows windows;
    uint64_t batch, groups, channels, outputs;
    uint64_t row_floats; /* few: of x, with what is padded */
    uint64_t depth, images, rows, columns;
} mica__cpu_conv_weight;

/* Places of a tile along dimension d for `count` places of dy. */
static inline uint64_t mica__conv_weight_extent(const mica__windows *w, uint32_t d, uint64_t count)
{
    return (count - 1) * w->stride[d] + (uint64_t)(w->kernel[d] - 1) * w->dilation[d] + 1;
}

/* Floats of an image of a channel of a tile. */
static inline uint64_t mica__conv_weight_image(const mica__cpu_conv_weight *p)
{
    return mica__conv_weight_extent(&p->windows, 0, 1) * mica__conv_weight_extent(&p->windows, 1, p->rows) *
           mica__conv_weight_extent(&p->windows, 2, p->columns);
}

/* Per-thread memory of conv_weight, where each part begins, in floats. */
typedef struct mica__conv_weight_local {
    uint64_t
        sums; /* [channel, tap][output] of a piece; before them the tile [channel][image][plane][row][column] */
    uint64_t total; /* f64, the same of all */
    uint64_t dy;    /* [place][output] */
    uint64_t step;  /* u64 [place]: in the tile */
    uint64_t tap;   /* u64 [channel, tap]: in the tile, and 16 more */
    uint64_t floats;
} mica__conv_weight_local;

static inline mica__conv_weight_local mica__conv_weight_local_of(const mica__cpu_conv_weight *p)
{
    const uint64_t places = p->images * p->rows * p->columns,
                   taps = mica__conv_round(p->depth * mica__conv_taps(&p->windows) + 16, 16);
    mica__conv_weight_local l = {
        .sums = mica__conv_round(p->depth * p->images * mica__conv_weight_image(p) + MICA__CONV_SLACK, 16)};
    l.total = l.sums + taps * MICA__CONV_OUTPUTS;
    l.dy = l.total + 2 * taps * MICA__CONV_OUTPUTS;
    l.step = l.dy + mica__conv_round(places, 16) * MICA__CONV_OUTPUTS;
    l.tap = l.step + 2 * mica__conv_round(places, 16);
    l.floats = l.tap + 2 * taps;
    return l;
}

/* The same of conv_weight_few: a row of dy, one of x, sums of f64 and sums of vectors for each output of the group and tap. */
static inline uint64_t mica__conv_weight_few_floats(const mica__cpu_conv_weight *p)
{
    const uint64_t sums = p->outputs * mica__conv_taps(&p->windows);
    return mica__conv_round(p->row_floats + MICA__CONV_SLACK, 16) +
           mica__conv_round(p->windows.out[2] + 16, 16) + 2 * mica__conv_round(sums, 16) +
           sums * MICA__CONV_LANES;
}

#endif
