/*
 * normalize.c - norms over any dimensions, their gradients, and those of softmax: in f32 for f32, f16 and bf16, in f64 for f64.
 */
#include <math.h>

#include "backend/cpu/cpu_norm.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

/* n elements `stride` bytes apart, to and from contiguous ones. */
static const float *load_f32(const unsigned char *src, uint16_t dtype, uint64_t stride, uint64_t n,
                             float *row)
{
    const float *from = row_f32_strided(src, dtype, stride, n, row);
    if (from != row)
        memcpy(row, from, n * sizeof *row);
    return row;
}

static void store_f32(unsigned char *dst, uint16_t dtype, uint64_t stride, uint64_t n, const float *row)
{
    row_store_strided(dst, dtype, stride, row, n);
}

static const double *load_f64(const unsigned char *src, uint16_t dtype, uint64_t stride, uint64_t n,
                              double *row)
{
    (void)dtype;
    for (uint64_t i = 0; i < n; i++)
        memcpy(row + i, src + i * stride, sizeof *row);
    return row;
}

static void store_f64(unsigned char *dst, uint16_t dtype, uint64_t stride, uint64_t n, const double *row)
{
    (void)dtype;
    for (uint64_t i = 0; i < n; i++)
        memcpy(dst + i * stride, row + i, sizeof *row);
}

static float exp_f32(float x)
{
    return expf(x);
}

static double exp_f64(double x)
{
    return exp(x);
}

#define REAL float
#define FN(name) name##_f32
#define VECTORS 1
#include "backend/cpu/kernels/norm/normalize_loops.h"
#include "backend/cpu/kernels/norm/normalize_body.h"
#undef REAL
#undef FN
#undef VECTORS
#define REAL double
#define FN(name) name##_f64
#define VECTORS 0
#include "backend/cpu/kernels/norm/normalize_loops.h"
#include "backend/cpu/kernels/norm/normalize_body.h"
#undef REAL
#undef FN
#undef VECTORS

/* By the type of the first view; all of a record are f64 or none. */
#define RUN(rows, range)                                               \
    (args->view[0].dtype == MICA_DTYPE_F64 ? rows##_f64 : rows##_f32)( \
        args, mica__cpu_rows_begin(range, first), mica__cpu_rows_end(range, last))

void MICA__ISA(normalize)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_normalize *params = args->params;
    RUN(normalize_rows, &params->range);
}

void MICA__ISA(normalize_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_normalize *params = args->params;
    RUN(gradient_rows, &params->range);
}

void MICA__ISA(normalize_sums)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_normalize_sums *params = args->params;
    RUN(sum_rows, &params->range);
}

void MICA__ISA(normalize_totals)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_normalize_totals *params = args->params;
    (params->wide != 0 ? total_rows_f64 : total_rows_f32)(args, first, last);
}

void MICA__ISA(softmax_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_softmax *params = args->params;
    RUN(softmax_gradients, &params->range);
}

void MICA__ISA(softmax_any)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_softmax *params = args->params;
    RUN(softmax_rows, &params->range);
}
