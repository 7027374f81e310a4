/*
 * delta_chunk.c - the delta rule by chunks of 64 tokens: delta_chunk_body.h for f32, with products of matrices in register tiles, and for f64, in plain C.
 * A unit is a sequence and a head.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/delta_load.h"
#include "backend/cpu/kernels/recurrent/sequences.h"

/* ---- f32 ---- */

#define TILE_INLINE static inline __attribute__((always_inline))
#define TILE_UNROLL _Pragma("GCC unroll 8")

/* Rows and vectors of a tile: sums that fit the registers beside a row of b. */
#if MICA__ISA_LEVEL == 3
#define TILE_ROWS 6
#define TILE_PARTS 4
#elif MICA__ISA_LEVEL == 2
#define TILE_ROWS 6
#define TILE_PARTS 2
#else
#define TILE_ROWS 2
#define TILE_PARTS 2
#endif

/* c [rows, parts vectors] += a b; rows and parts are constants where it is called. Sums go in the order of k. */
TILE_INLINE void tile(int rows, int parts, uint64_t k, const float *a, uint64_t a_step, const float *b,
                      uint64_t b_step, float *c, uint64_t c_step)
{
    vf sum[TILE_ROWS][TILE_PARTS];
    TILE_UNROLL for (int i = 0; i < rows; i++) TILE_UNROLL for (int p = 0; p < parts; p++) sum[i][p] =
        vf_load(c + (uint64_t)i * c_step + p * VW);
    for (uint64_t l = 0; l < k; l++) {
        vf row[TILE_PARTS];
        TILE_UNROLL for (int p = 0; p < parts; p++) row[p] = vf_load(b + l * b_step + p * VW);
        TILE_UNROLL for (int i = 0; i < rows; i++)
        {
            const vf factor = vf_set1(a[(uint64_t)i * a_step + l]);
            TILE_UNROLL for (int p = 0; p < parts; p++) sum[i][p] = vf_fma(factor, row[p], sum[i][p]);
        }
    }
    TILE_UNROLL for (int i = 0; i < rows; i++) TILE_UNROLL for (int p = 0; p < parts; p++)
        vf_store(c + (uint64_t)i * c_step + p * VW, sum[i][p]);
}

/* All rows of one column of tiles. */
TILE_INLINE void tile_column(int parts, uint64_t m, uint64_t k, const float *a, uint64_t a_step,
                             const float *b, uint64_t b_step, float *c, uint64_t c_step)
{
    uint64_t i = 0;
    for (; i + TILE_ROWS <= m; i += TILE_ROWS)
        tile(TILE_ROWS, parts, k, a + i * a_step, a_step, b, b_step, c + i * c_step, c_step);
    for (; i + 2 <= m; i += 2)
        tile(2, parts, k, a + i * a_step, a_step, b, b_step, c + i * c_step, c_step);
    if (i < m)
        tile(1, parts, k, a + i * a_step, a_step, b, b_step, c + i * c_step, c_step);
}

static void narrow_product(uint64_t m, uint64_t k, uint64_t n, const float *a, uint64_t a_step,
                           const float *b, uint64_t b_step, float *c, uint64_t c_step)
{
    uint64_t v = 0;
    for (; v + TILE_PARTS * VW <= n; v += TILE_PARTS * VW)
        tile_column(TILE_PARTS, m, k, a, a_step, b + v, b_step, c + v, c_step);
    for (; v < n; v += VW)
        tile_column(1, m, k, a, a_step, b + v, b_step, c + v, c_step);
}

static void narrow_exponents(const float *x, uint64_t n, float *to)
{
    for (uint64_t i = 0; i < n; i += VW)
        vf_store(to + i, vf_exp(vf_load(x + i)));
}

#define REAL float
#define NAME(x) narrow_##x
struct narrow_chunk;
static void narrow_load_keys(const struct narrow_chunk *c, uint32_t slot, uint64_t token, float scale,
                             float *to);
static void narrow_load_values(const struct narrow_chunk *c, uint64_t token, float *to);
static void narrow_store_values(const struct narrow_chunk *c, uint64_t token, const float *from);

static float narrow_load_element(const mica__cpu_view *view, uint64_t token, uint64_t head, float absent)
{
    return delta_element(view, token, head, absent);
}
#include "backend/cpu/kernels/recurrent/delta_chunk_body.h"
#undef REAL
#undef NAME

static void narrow_load_keys(const narrow_chunk *c, uint32_t slot, uint64_t token, float scale, float *to)
{
    const mica__cpu_view *x = &c->view[slot];
    const uint64_t group = c->head / (c->view[MICA__DELTA_V].shape[1] / x->shape[1]);
    delta_vector(x->data + token * x->stride[0] + group * x->stride[1], x->dtype, c->dim, c->delta, scale,
                 to);
}

static void narrow_load_values(const narrow_chunk *c, uint64_t token, float *to)
{
    const mica__cpu_view *v = &c->view[MICA__DELTA_V];
    const float *row =
        row_f32(v->data + token * v->stride[0] + c->head * v->stride[1], v->dtype, c->columns, to);
    if (row != to)
        memcpy(to, row, c->columns * sizeof *to);
}

static void narrow_store_values(const narrow_chunk *c, uint64_t token, const float *from)
{
    const mica__cpu_view *y = &c->view[MICA__DELTA_Y];
    row_store(y->data + token * y->stride[0] + c->head * y->stride[1], y->dtype, from, c->columns);
}

void MICA__ISA(delta_chunk)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    narrow_run_heads(args, first, last);
}

/* ---- f64 ---- */

static void wide_product(uint64_t m, uint64_t k, uint64_t n, const double *a, uint64_t a_step,
                         const double *b, uint64_t b_step, double *c, uint64_t c_step)
{
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t l = 0; l < k; l++)
            for (uint64_t v = 0; v < n; v++)
                c[i * c_step + v] += a[i * a_step + l] * b[l * b_step + v];
}

static void wide_exponents(const double *x, uint64_t n, double *to)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = exp(x[i]);
}

static double wide_load_element(const mica__cpu_view *view, uint64_t token, uint64_t head, double absent)
{
    double value = absent;
    if (view->data != NULL)
        memcpy(&value, view->data + token * view->stride[0] + head * view->stride[1], sizeof value);
    return value;
}

#define REAL double
#define NAME(x) wide_##x
struct wide_chunk;
static void wide_load_keys(const struct wide_chunk *c, uint32_t slot, uint64_t token, double scale,
                           double *to);
static void wide_load_values(const struct wide_chunk *c, uint64_t token, double *to);
static void wide_store_values(const struct wide_chunk *c, uint64_t token, const double *from);
#include "backend/cpu/kernels/recurrent/delta_chunk_body.h"
#undef REAL
#undef NAME

static void wide_load_keys(const wide_chunk *c, uint32_t slot, uint64_t token, double scale, double *to)
{
    const mica__cpu_view *x = &c->view[slot];
    const uint64_t group = c->head / (c->view[MICA__DELTA_V].shape[1] / x->shape[1]);
    double length = 0;
    memcpy(to, x->data + token * x->stride[0] + group * x->stride[1], c->dim * sizeof *to);
    for (uint64_t j = 0; j < c->dim; j++)
        length += to[j] * to[j];
    for (uint64_t j = 0; j < c->dim; j++)
        to[j] *= c->delta->normalise != 0 ? scale / sqrt(length + (double)c->delta->eps) : scale;
}

static void wide_load_values(const wide_chunk *c, uint64_t token, double *to)
{
    const mica__cpu_view *v = &c->view[MICA__DELTA_V];
    memcpy(to, v->data + token * v->stride[0] + c->head * v->stride[1], c->columns * sizeof *to);
}

static void wide_store_values(const wide_chunk *c, uint64_t token, const double *from)
{
    const mica__cpu_view *y = &c->view[MICA__DELTA_Y];
    memcpy(y->data + token * y->stride[0] + c->head * y->stride[1], from, c->columns * sizeof *from);
}

void MICA__ISA(delta_chunk_wide)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    wide_run_heads(args, first, last);
}
