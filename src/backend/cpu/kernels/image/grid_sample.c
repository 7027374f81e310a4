/* grid_sample.c - images sampled at the places of a grid, and the gradient with respect to image and grid. */
#include <math.h>

#include "backend/cpu/kernels/image/image.h"
#include "backend/cpu/kernels/image/real.h"
#include "backend/cpu/kernels/kernels.h"

#define floor_of_float floorf
#define floor_of_double floor
#define nearest_float rintf
#define nearest_double rint

/* Keys' cubic kernel with a = -0.75. */
static double cubic_double(double t)
{
    const double a = -0.75;
    t = t < 0 ? -t : t;
    if (t <= 1)
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

static float cubic_float(float t)
{
    return (float)cubic_double((double)t);
}

static double cubic_slope_double(double t)
{
    const double a = -0.75, side = t < 0 ? -1 : 1;
    t = t < 0 ? -t : t;
    if (t <= 1)
        return side * (3 * (a + 2) * t - 2 * (a + 3)) * t;
    return t < 2 ? side * ((3 * a * t - 10 * a) * t + 8 * a) : 0;
}

static float cubic_slope_float(float t)
{
    return (float)cubic_slope_double((double)t);
}

/* What a group of channels gives to a number of dgrid: lanes of a vector by a tree, vectors one after the other. */
static inline float lane_sum_float(const float *lane)
{
    float sum = 0;
    for (uint32_t at = 0; at < MICA__CPU_GRID_LANES; at += VW)
        sum += vf_sum(vf_load(lane + at));
    return sum;
}

static double lane_sum_double(const double *lane)
{
    double sum = 0;
    for (uint32_t at = 0; at < MICA__CPU_GRID_LANES; at++)
        sum += lane[at];
    return sum;
}

#define REAL float
#define FN(name) name##_float
#include "backend/cpu/kernels/image/grid_body.h"
#include "backend/cpu/kernels/image/grid_gather.h"
#include "backend/cpu/kernels/image/grid_lanes.h"
#undef REAL
#undef FN
#define REAL double
#define FN(name) name##_double
#include "backend/cpu/kernels/image/grid_body.h"

void MICA__ISA(grid_sample)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_grid *p = args->params;
    const bool wide = args->view[0].dtype == MICA_DTYPE_F64, gathers = grid_gathers(&args->view[0]);
    const uint64_t parts = (p->rows + p->unit_rows - 1) / p->unit_rows;
    for (uint64_t unit = first; unit < last; unit++) {
        const uint64_t image = unit / parts, row = unit % parts * p->unit_rows,
                       end = row + p->unit_rows < p->rows ? row + p->unit_rows : p->rows;
        const uint64_t places = end * p->columns, most = MICA__CPU_GRID_PLACES(p->mode);
        for (uint64_t i = row; i < end && !gathers; i++)
            (wide ? grid_row_double : grid_row_float)(args, image, i);
        for (uint64_t at = row * p->columns; at < places && gathers; at += most)
            grid_block_gathered(args, image, at, places - at < most ? places - at : most);
    }
}

void MICA__ISA(grid_back_x)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const bool wide = args->view[0].dtype == MICA_DTYPE_F64;
    for (uint64_t unit = first; unit < last; unit++)
        (wide ? grid_back_x_double : grid_back_x_float)(args, unit);
}

void MICA__ISA(grid_back_grid)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const bool wide = args->view[0].dtype == MICA_DTYPE_F64;
    for (uint64_t unit = first; unit < last; unit++)
        (wide ? grid_back_grid_double : grid_back_grid_float)(args, unit);
}

void MICA__ISA(grid_sample_lanes)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_grid *p = args->params;
    for (uint64_t unit = first; unit < last; unit++)
        grid_sample_group(args, unit / p->groups, unit % p->groups);
}

void MICA__ISA(grid_back_lanes)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_grid *p = args->params;
    float *parts = args->view[MICA__GRID_BACKWARD_DGRID].data != NULL
                       ? (float *)(void *)args->view[MICA__GRID_BACKWARD_SLOTS].data
                       : NULL;
    for (uint64_t unit = first; unit < last; unit++)
        grid_back_group(args, unit / p->groups, unit % p->groups,
                        parts != NULL ? parts + unit * p->rows * p->columns * 2 : NULL);
}

void MICA__ISA(grid_back_join)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *dgrid = &args->view[0];
    const float *parts = (const float *)(const void *)args->view[1].data;
    const uint64_t size = p->rows * p->columns * 2;
    for (uint64_t unit = first; unit < last; unit++) {
        const uint64_t image = unit / p->rows, row = unit % p->rows;
        const float *from = parts + image * p->groups * size + row * p->columns * 2;
        unsigned char *to = dgrid->data + image * dgrid->stride[0] + row * dgrid->stride[1];
        const uint64_t bytes = row_element_bytes(dgrid->dtype);
        const bool dense = dgrid->stride[3] == bytes && dgrid->stride[2] == 2 * bytes;
        for (uint64_t i = 0; i < 2 * p->columns; i += VW) {
            const uint64_t n = 2 * p->columns - i < VW ? 2 * p->columns - i : VW;
            float lane[VW];
            vf sum = vf_zero();
            for (uint64_t g = 0; g < p->groups; g++)
                sum = vf_add(sum, vf_load_n(from + g * size + i, n));
            if (dense) {
                row_store_n(to + i * bytes, dgrid->dtype, sum, n);
                continue;
            }
            vf_store(lane, sum);
            for (uint64_t l = 0; l < n; l++)
                row_store_strided(to + (i + l) / 2 * dgrid->stride[2] + (i + l) % 2 * dgrid->stride[3],
                                  dgrid->dtype, 0, lane + l, 1);
        }
    }
}
