/* pool.c - pooling: rows of windows, tap by tap over rows of x; and its gradient, frame by frame in the order of the windows. */
#include "backend/cpu/kernels/image/image.h"
#include "backend/cpu/kernels/image/real.h"
#include "backend/cpu/kernels/kernels.h"

#define REAL float
#define FN(name) name##_float
#include "backend/cpu/kernels/image/pool_body.h"
#undef REAL
#undef FN
#define REAL double
#define FN(name) name##_double
#include "backend/cpu/kernels/image/pool_body.h"

void MICA__ISA(pool)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const bool wide = args->view[0].dtype == MICA_DTYPE_F64;
    for (uint64_t unit = first; unit < last; unit++)
        (wide ? pool_unit_double : pool_unit_float)(args, unit);
}

void MICA__ISA(pool_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const bool wide = args->view[0].dtype == MICA_DTYPE_F64;
    for (uint64_t unit = first; unit < last; unit++)
        (wide ? backward_unit_double : backward_unit_float)(args, unit);
}
