/*
 * image.h - what kernels that go over frames (pooling, im2col, resizing, sampling) and their plans agree on.
 */
#ifndef MICA_CPU_IMAGE_H
#define MICA_CPU_IMAGE_H

#include "backend/cpu/cpu_kernel.h"
#include "backend/windows.h"

/* pool: a unit is a row of windows of a frame, operands x, y, indices. pool_backward: a unit is a frame, operands x, dy, dx. `kept`: rows of x that a row of
 * windows reaches, if they are few enough to be looked at together and f32, f16 or bf16, else 0. */
#define MICA__CPU_POOL_ROWS 32u
typedef struct mica__cpu_pool {
    mica__frames frames;
    mica__windows windows;
    uint32_t kind, count_padding, kept, reserved;
} mica__cpu_pool;

/* Elements of the rows that a row of windows needs: of x, and of windows. */
static inline uint64_t mica__cpu_pool_rows(const mica__cpu_pool *p, uint64_t of_windows)
{
    return (p->kept > 0 ? p->kept : 1) * p->windows.in[2] + of_windows * p->windows.out[2];
}

/* im2col: a unit is a tap of a channel of an image. col2im: a unit is a channel of an image. The grid of operand 0 is the image's. */
typedef struct mica__cpu_im2col {
    mica__windows windows;
    uint64_t channels, taps;
    uint64_t image[2 + MICA_SPATIAL_DIMS]; /* strides in bytes: batch, channel, grid */
    uint64_t columns[3];                   /* the same: batch, channel and tap, window */
    uint32_t element_bytes, reserved;
} mica__cpu_im2col;

/* resize: a unit is a row of the frame that is written, operands: read, written. Per-thread memory is a table for each dimension (first entry of each place,
 * then entries), one of the last dimension by lanes (of `taps` each; 0: it would be too large), and rows: sums of a batch, a few of what is read, one that is
 * written. */
#define MICA__CPU_RESIZE_ROWS 4u
#define MICA__CPU_RESIZE_BATCH 8u  /* units that are summed before any is put out, at most */
#define MICA__CPU_RESIZE_SLACK 32u /* floats behind a row of sums, which vectors may read */
typedef struct mica__cpu_resize {
    mica__frames frames;
    uint32_t mode, corners, antialias, backward;
    uint64_t taps, batch;                /* taps: of a place of the last dimension, at most */
    uint64_t entries[MICA_SPATIAL_DIMS]; /* of the tables, at most */
} mica__cpu_resize;

/* What a place is made of: a place and its weight. */
typedef struct mica__resize_entry {
    double weight;
    uint64_t place;
} mica__resize_entry;

static inline uint64_t mica__resize_table_bytes(const mica__cpu_resize *p, uint32_t d)
{
    return (p->frames.grid[1][d] + 1) * sizeof(uint64_t) + p->entries[d] * sizeof(mica__resize_entry);
}

/* Of up to `taps` taps of each place: how many there are, each lane's weight and place, then first places of whole vectors and what these say; and what
 * puts the parts on whole lines. */
static inline uint64_t mica__resize_lanes_bytes(const mica__cpu_resize *p, uint64_t taps)
{
    const uint64_t places = (p->frames.grid[1][2] + 15) / 16 * 16;
    return 256 + taps * (2 * places + 2 * (places / 4)) * sizeof(uint32_t);
}

/* grid_sample: a unit is `unit_rows` rows of places of the grid of an image, operands x, grid, y: strides as they have them; per-thread memory has an
 * index, a weight and an element for each tap of the places that are looked at together, of a linear mode four. grid_back_grid: a unit is a row, operands
 * x, grid, dy, dx, dgrid. grid_back_x: a unit is a channel of an image, and per-thread memory holds one.
 * grid_sample_lanes, grid_back_lanes: the same of f32, f16 and bf16 where an image has few enough places; a unit is a group of LANES channels of an image,
 * and per-thread memory holds them. What dgrid gets from a group goes to the scratch, f32 [image, group, place, 2], whose groups grid_back_join adds up, a
 * row of places a unit. */
#define MICA__CPU_GRID_LANES 16u  /* channels, whole vectors of every instruction set */
#define MICA__CPU_GRID_BLOCK 256u /* places whose taps are found together */
#define MICA__CPU_GRID_READS 4096u
#define MICA__CPU_GRID_PLACES(mode) (MICA__CPU_GRID_READS / ((mode) == MICA_RESIZE_CUBIC ? 16 : 4))
typedef struct mica__cpu_grid {
    uint64_t channels, rows, columns, groups;
    uint32_t mode, padding, align_corners, unit_rows;
} mica__cpu_grid;

static inline uint32_t mica__cpu_grid_taps(uint32_t mode)
{
    return mode == MICA_RESIZE_CUBIC ? 16 : mode == MICA_RESIZE_LINEAR ? 4 : 1;
}

/* Floats of per-thread memory for images of so many places: taps, and a group's channels of the image, of the gradient also those of dx. */
static inline uint64_t mica__cpu_grid_floats(uint32_t mode, uint64_t places, bool gradient)
{
    return mica__cpu_grid_taps(mode) * (gradient ? 5 : 2) * MICA__CPU_GRID_BLOCK +
           (gradient ? 2 : 1) * (places + 1) * MICA__CPU_GRID_LANES;
}

#endif
