/*
 * conv_unit.h - what a unit of a convolution works on: which places of y, and which of x they meet.
 */
#ifndef MICA_CPU_CONV_UNIT_H
#define MICA_CPU_CONV_UNIT_H

#include "backend/cpu/kernels/image/conv.h"
#include "backend/cpu/kernels/rows.h"

enum { N, C, Z, Y, X };

typedef struct conv_unit {
    const mica__cpu_conv *p;
    uint64_t group, part;
    uint64_t image, plane, row, column, images, rows, columns; /* places of the phase: from, and how many */
    mica__conv_axis axis[MICA_SPATIAL_DIMS];
    int64_t origin[MICA_SPATIAL_DIMS];                         /* place of x where the tile begins */
    uint64_t begin[MICA_SPATIAL_DIMS], end[MICA_SPATIAL_DIMS]; /* of the tile: what is inside of x */
    uint64_t extent[MICA_SPATIAL_DIMS];                        /* places of the tile */
} conv_unit;

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What the tile covers along dimension d, from place `from` of the phase on. */
static inline void find_extent(conv_unit *u, const mica__cpu_view *x, uint32_t d, uint64_t from,
                               uint64_t count)
{
    const mica__conv_axis *a = &u->axis[d];
    const int64_t back = a->at_step < 0 && a->taps > 0 ? a->at_step * (int64_t)(a->taps - 1) : 0;
    const int64_t size = (int64_t)x->shape[Z + d], origin = (int64_t)(from * a->x_step) + a->at + back;
    u->origin[d] = origin;
    u->extent[d] = mica__conv_extent(a, count);
    const int64_t extent = (int64_t)u->extent[d], begin = origin < 0 ? -origin : 0,
                  end = size - origin < extent ? size - origin : extent;
    u->begin[d] = (uint64_t)begin;
    u->end[d] = (uint64_t)(end > begin ? end : begin);
}

/* False where the phase has no such places. */
static inline bool find_unit(const mica__cpu_conv *p, const mica__cpu_view *x, uint64_t index, conv_unit *u)
{
    u->p = p;
    u->part = index % p->parts;
    index /= p->parts;
    u->column = index % p->column_tiles * p->columns;
    index /= p->column_tiles;
    u->row = index % p->row_tiles * p->rows;
    index /= p->row_tiles;
    u->plane = index % p->planes;
    index /= p->planes;
    for (uint32_t d = MICA_SPATIAL_DIMS; d-- > 0; index /= p->phases[d])
        u->axis[d] = mica__conv_axis_of(&p->windows, p->transposed != 0, d, (uint32_t)(index % p->phases[d]));
    u->group = index % p->groups;
    u->image = index / p->groups * p->images;
    if (u->plane >= u->axis[0].count || u->row >= u->axis[1].count || u->column >= u->axis[2].count)
        return false;
    u->images = least(p->images, p->batch - u->image);
    u->rows = least(p->rows, u->axis[1].count - u->row);
    u->columns = least(p->columns, u->axis[2].count - u->column);
    find_extent(u, x, 0, u->plane, 1);
    find_extent(u, x, 1, u->row, u->rows);
    find_extent(u, x, 2, u->column, u->columns);
    return true;
}

/* Place of tap j in the tile, from where tap 0 of a rising axis, or the last one of a falling axis, is. */
static inline uint64_t tap_place(const mica__conv_axis *a, uint32_t j)
{
    return a->at_step >= 0 ? (uint64_t)a->at_step * j : (uint64_t)-a->at_step * (a->taps - 1 - j);
}

/* Number of a tap of this phase among all of the kernel. */
static inline uint64_t tap_number(const conv_unit *u, uint32_t z, uint32_t y, uint32_t x)
{
    const mica__conv_axis *az = &u->axis[0], *ay = &u->axis[1], *ax = &u->axis[2];
    const mica__windows *w = &u->p->windows;
    return ((az->tap + (uint64_t)z * az->tap_step) * w->kernel[1] + ay->tap + (uint64_t)y * ay->tap_step) *
               w->kernel[2] +
           ax->tap + (uint64_t)x * ax->tap_step;
}

static inline uint64_t phase_taps(const conv_unit *u)
{
    return (uint64_t)u->axis[0].taps * u->axis[1].taps * u->axis[2].taps;
}

/* Where output o of the group is stored at the first place of row y of an image of the unit. */
static inline unsigned char *output_row(const conv_unit *u, const mica__cpu_view *view, uint64_t image,
                                        uint64_t o, uint64_t y)
{
    const mica__conv_axis *a = u->axis;
    return view->data + (u->image + image) * view->stride[N] +
           (u->group * u->p->outputs + o) * view->stride[C] +
           (a[0].first + u->plane * a[0].step) * view->stride[Z] +
           (a[1].first + (u->row + y) * a[1].step) * view->stride[Y] +
           (a[2].first + u->column * a[2].step) * view->stride[X];
}

/* What follows the bias, of at most a vector of sums that are neighbours in y: `count` numbers of the residual, `step` bytes apart, are added; relu. */
static inline vf conv_ending(const mica__cpu_args *args, vf sums, const unsigned char *residual,
                             uint64_t step, uint64_t count)
{
    const mica__cpu_conv *p = args->params;
    const uint16_t dtype = p->residual != 0 ? args->view[MICA__CONV_RESIDUAL].dtype : MICA_DTYPE_F32;
    float room[VW];
    if (p->residual != 0 && dtype == MICA_DTYPE_F32 && step == sizeof(float) && count == VW)
        sums = vf_add(sums, vf_load(residual));
    else if (p->residual != 0)
        sums = vf_add(sums, vf_load_n(row_f32_strided(residual, dtype, step, count, room), count));
    return p->relu != 0 ? vf_greatest(sums, vf_zero()) : sums;
}

static inline float bias_of(const conv_unit *u, const mica__cpu_view *bias, uint64_t o)
{
    return bias->data != NULL
               ? row_element(bias->data + (u->group * u->p->outputs + o) * bias->stride[0], bias->dtype)
               : 0.0f;
}

#endif
