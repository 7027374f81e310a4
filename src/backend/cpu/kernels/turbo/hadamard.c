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

#define AHEAD 2048 /* bytes from what is computed to what is asked for */

/* Elements `step` bytes apart as floats, and back. */
static void load_row(const unsigned char *src, uint64_t step, uint16_t dtype, uint64_t n, float *row)
{
    const float *values = row_f32_strided(src, dtype, step, n, row);
    if (values != row)
        memcpy(row, values, n * sizeof *row);
}

/* row *= factor * signs; NULL: all 1. */
static void scale_row(float *row, const float *signs, float factor, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        row[i] = signs != NULL ? row[i] * factor * signs[i] : row[i] * factor;
}

/* A row whose elements lie side by side. */
typedef struct vectors {
    unsigned char *at;
    const float *signs; /* NULL: all 1 */
} vectors;

static inline vf load_signed(const vectors *x, uint16_t dtype, uint64_t i, const butterfly_signs *within)
{
    const unsigned char *from = x->at + i * row_element_bytes(dtype);
    __builtin_prefetch(from + AHEAD);
    const vf v = row_load_n(from, dtype, VW);
    return butterfly_lanes(x->signs != NULL ? vf_mul(v, vf_load(x->signs + i)) : v, within);
}

static inline void store_signed(const vectors *y, uint16_t dtype, uint64_t i, vf v, float factor)
{
    v = vf_mul(v, vf_set1(factor));
    row_store_n(y->at + i * row_element_bytes(dtype), dtype,
                y->signs != NULL ? vf_mul(v, vf_load(y->signs + i)) : v, VW);
}

/* A row of a vector at least. The first steps are done on the way in, the last two on the way out. The type is a constant in each call of this. */
static inline void transform_type(const vectors *x, const vectors *y, uint16_t dtype, float factor,
                                  uint64_t n, float *row)
{
    const butterfly_signs within = butterfly_signs_make();
    const bool four = n >= 4 * VW;
    for (uint64_t i = 0; four && i < n; i += 4 * VW) {
        vf v[4];
        for (uint32_t k = 0; k < 4; k++)
            v[k] = load_signed(x, dtype, i + k * VW, &within);
        butterfly_four(v);
        for (uint32_t k = 0; k < 4; k++)
            vf_store(row + i + k * VW, v[k]);
    }
    for (uint64_t i = 0; !four && i < n; i += VW)
        vf_store(row + i, load_signed(x, dtype, i, &within));
    const uint64_t bytes = n * row_element_bytes(dtype),
                   h = butterflies_across(row, n, four ? 4 * VW : VW, x->at + bytes, bytes);
    for (uint64_t i = 0; h < n && i < h; i += VW) {
        vf v[4];
        butterfly_take(row + i, h, v);
        for (uint32_t k = 0; k < 4; k++)
            store_signed(y, dtype, i + k * h, v[k], factor);
    }
    for (uint64_t i = 0; h == n && i < n; i += VW)
        store_signed(y, dtype, i, vf_load(row + i), factor);
}

static void transform(const vectors *x, const vectors *y, uint16_t dtype, float factor, uint64_t n,
                      float *row)
{
    if (dtype == MICA_DTYPE_F32)
        transform_type(x, y, MICA_DTYPE_F32, factor, n, row);
    else if (dtype == MICA_DTYPE_F16)
        transform_type(x, y, MICA_DTYPE_F16, factor, n, row);
    else
        transform_type(x, y, MICA_DTYPE_BF16, factor, n, row);
}

static void transform_few(const vectors *x, const vectors *y, uint16_t dtype, float factor, uint64_t n,
                          float *row)
{
    load_row(x->at, row_element_bytes(dtype), dtype, n, row);
    if (x->signs != NULL)
        scale_row(row, x->signs, 1.0f, n);
    butterflies_few(row, n);
    scale_row(row, y->signs, factor, n);
    row_store(y->at, dtype, row, n);
}

static void run_f32(const mica__cpu_args *args, uint64_t row, uint64_t end)
{
    const mica__cpu_hadamard *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__HADAMARD_X], *signs = &args->view[MICA__HADAMARD_SIGNS],
                         *y = &args->view[MICA__HADAMARD_Y];
    const uint32_t inner = x->ndim - 1u;
    const uint64_t n = x->shape[inner];
    /* rows that do not lie side by side, or change their type, go through the thread's memory */
    const bool apart = x->stride[inner] != row_element_bytes(x->dtype),
               scattered = y->stride[inner] != row_element_bytes(y->dtype);
    const uint16_t dtype = apart || scattered || x->dtype != y->dtype ? (uint16_t)MICA_DTYPE_F32 : x->dtype;
    float *z = args->local, *s = signs->data != NULL ? z + n : NULL;
    const float *before = params->undo == 0 ? s : NULL, *behind = params->undo != 0 ? s : NULL;
    walk w;
    if (s != NULL)
        load_row(signs->data, signs->stride[inner], signs->dtype, n, s);
    walk_begin(&w, args->view, MICA__HADAMARD_SLOTS, inner, row);
    for (; row < end; row++, walk_next(&w)) {
        vectors from = {walk_at(&w, MICA__HADAMARD_X), before}, to = {walk_at(&w, MICA__HADAMARD_Y), behind};
        if (dtype != x->dtype || apart) {
            load_row(from.at, x->stride[inner], x->dtype, n, z);
            from.at = (unsigned char *)z;
        }
        if (dtype != y->dtype || scattered)
            to.at = (unsigned char *)z;
        (n < VW ? transform_few : transform)(&from, &to, dtype, (float)params->scale, n, z);
        if ((unsigned char *)z == to.at)
            row_store_strided(walk_at(&w, MICA__HADAMARD_Y), y->dtype, y->stride[inner], z, n);
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
