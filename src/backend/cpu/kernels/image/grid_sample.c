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
#undef REAL
#undef FN
#define REAL double
#define FN(name) name##_double
#include "backend/cpu/kernels/image/grid_body.h"

void MICA__ISA(grid_sample)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const bool wide = args->view[0].dtype == MICA_DTYPE_F64;
    for (uint64_t unit = first; unit < last; unit++)
        (wide ? grid_unit_double : grid_unit_float)(args, unit);
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
