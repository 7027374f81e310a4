/*
 * hadamard.c - the Walsh-Hadamard transform over the last dimension.
 *
 * A row becomes f32 (or stays f64) in the thread's own memory, goes through log2(n) steps of sums and differences there, and is stored.
 * Steps within a vector exchange its lanes.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/turbo/butterflies.h"
#include "backend/cpu/kernels/walk.h"

/* Elements `step` bytes apart as floats, and back. */
static void load_row(const unsigned char *src, uint64_t step, uint16_t dtype, uint64_t n, float *row)
{
    if (step == row_element_bytes(dtype)) {
        const float *values = row_f32(src, dtype, n, row);
        if (values != row)
            memcpy(row, values, n * sizeof *row);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        vf_store_n(row + i, row_load_n(src + i * step, dtype, 1), 1);
}

static void store_row(unsigned char *dst, uint64_t step, uint16_t dtype, uint64_t n, const float *row)
{
    if (step == row_element_bytes(dtype)) {
        row_store(dst, dtype, row, n);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        row_store_n(dst + i * step, dtype, vf_load_n(row + i, 1), 1);
}

/* row *= factor * signs; NULL: all 1. */
static void scale_row(float *row, const float *signs, float factor, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        row[i] = signs != NULL ? row[i] * factor * signs[i] : row[i] * factor;
}

static void run_f32(const mica__cpu_args *args, uint64_t row, uint64_t end)
{
    const mica__cpu_hadamard *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__HADAMARD_X], *signs = &args->view[MICA__HADAMARD_SIGNS],
                         *y = &args->view[MICA__HADAMARD_Y];
    const uint32_t inner = x->ndim - 1u;
    const uint64_t n = x->shape[inner];
    float *z = args->local, *s = signs->data != NULL ? z + n : NULL;
    walk w;
    if (s != NULL)
        load_row(signs->data, signs->stride[inner], signs->dtype, n, s);
    walk_begin(&w, args->view, MICA__HADAMARD_SLOTS, inner, row);
    for (; row < end; row++, walk_next(&w)) {
        load_row(walk_at(&w, MICA__HADAMARD_X), x->stride[inner], x->dtype, n, z);
        if (params->undo == 0 && s != NULL)
            scale_row(z, s, 1.0f, n);
        butterflies(z, n);
        scale_row(z, params->undo != 0 ? s : NULL, (float)params->scale, n);
        store_row(walk_at(&w, MICA__HADAMARD_Y), y->stride[inner], y->dtype, n, z);
    }
}

static void load_f64(const unsigned char *src, uint64_t step, uint64_t n, double *row)
{
    for (uint64_t i = 0; i < n; i++)
        memcpy(&row[i], src + i * step, sizeof *row);
}

static void run_f64(const mica__cpu_args *args, uint64_t row, uint64_t end)
{
    const mica__cpu_hadamard *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__HADAMARD_X], *signs = &args->view[MICA__HADAMARD_SIGNS],
                         *y = &args->view[MICA__HADAMARD_Y];
    const uint32_t inner = x->ndim - 1u;
    const uint64_t n = x->shape[inner];
    double *z = args->local, *s = z + n;
    walk w;
    for (uint64_t i = 0; i < n; i++)
        s[i] = 1;
    if (signs->data != NULL)
        load_f64(signs->data, signs->stride[inner], n, s);
    walk_begin(&w, args->view, MICA__HADAMARD_SLOTS, inner, row);
    for (; row < end; row++, walk_next(&w)) {
        load_f64(walk_at(&w, MICA__HADAMARD_X), x->stride[inner], n, z);
        for (uint64_t i = 0; i < n && params->undo == 0; i++)
            z[i] *= s[i];
        for (uint64_t h = 1; h < n; h *= 2)
            for (uint64_t i = 0; i < n; i++)
                if ((i & h) == 0) {
                    const double a = z[i], b = z[i + h];
                    z[i] = a + b;
                    z[i + h] = a - b;
                }
        for (uint64_t i = 0; i < n; i++) {
            const double value = z[i] * params->scale * (params->undo != 0 ? s[i] : 1);
            memcpy(walk_at(&w, MICA__HADAMARD_Y) + i * y->stride[inner], &value, sizeof value);
        }
    }
}

void MICA__ISA(hadamard)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_hadamard *params = args->params;
    const uint64_t row = mica__cpu_rows_begin(&params->range, first),
                   end = mica__cpu_rows_end(&params->range, last);
    if (args->view[MICA__HADAMARD_X].dtype == MICA_DTYPE_F64)
        run_f64(args, row, end);
    else
        run_f32(args, row, end);
}
