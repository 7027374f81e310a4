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

#define REAL float
#define FN(name) name##_float
#include "backend/cpu/kernels/image/grid_body.h"
#include "backend/cpu/kernels/image/grid_gather.h"
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
