/*
 * scan.c - running sums over the last dimension.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

/* A row whose elements lie `step` bytes apart, as floats and back. */
static void gather(const unsigned char *src, uint64_t step, uint16_t dtype, uint64_t n, float *row)
{
    for (uint64_t i = 0; i < n; i++)
        vf_store_n(row + i, row_load_n(src + i * step, dtype, 1), 1);
}

static void scatter(unsigned char *dst, uint64_t step, uint16_t dtype, uint64_t n, const float *row)
{
    for (uint64_t i = 0; i < n; i++)
        row_store_n(dst + i * step, dtype, vf_load_n(row + i, 1), 1);
}

/* One after the other in f64: every sum rounds once. `sums` may be `x`. */
static void row_cumsum(const float *x, uint64_t n, bool exclusive, bool reverse, float *sums)
{
    double sum = 0;
    for (uint64_t k = 0; k < n; k++) {
        const uint64_t i = reverse ? n - 1 - k : k;
        const double before = sum;
        sum += x[i];
        sums[i] = (float)(exclusive ? before : sum);
    }
}

void MICA__ISA(cumsum)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_params *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__CUMSUM_X], *y = &args->view[MICA__CUMSUM_Y];
    const uint32_t inner = x->ndim - 1u, flags = (uint32_t)params->value;
    const uint64_t n = x->shape[inner], end = mica__cpu_rows_end(&params->range, last);
    uint64_t row = mica__cpu_rows_begin(&params->range, first);
    float *z = args->local;
    walk w;
    walk_begin(&w, args->view, MICA__CUMSUM_SLOTS, inner, row);
    for (; row < end; row++, walk_next(&w)) {
        const float *values = z;
        if (x->stride[inner] == row_element_bytes(x->dtype))
            values = row_f32(walk_at(&w, MICA__CUMSUM_X), x->dtype, n, z);
        else
            gather(walk_at(&w, MICA__CUMSUM_X), x->stride[inner], x->dtype, n, z);
        row_cumsum(values, n, (flags & 1) != 0, (flags & 2) != 0, z);
        if (y->stride[inner] == row_element_bytes(y->dtype))
            row_store(walk_at(&w, MICA__CUMSUM_Y), y->dtype, z, n);
        else
            scatter(walk_at(&w, MICA__CUMSUM_Y), y->stride[inner], y->dtype, n, z);
    }
}
