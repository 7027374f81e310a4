/* pool.c - pooling: rows of windows, tap by tap over rows of x; and its gradient, frame by frame in the order of the windows. */
#include "backend/cpu/kernels/image/image.h"
#include "backend/cpu/kernels/image/real.h"
#include "backend/cpu/kernels/kernels.h"

/* `count` elements of x, `step` apart, which is 1 or 2; nothing behind the last of them is read. */
static inline vf load_apart(const float *x, uint64_t step, uint64_t count)
{
    const uint64_t span = count * step - (step - 1);
    if (step == 1)
        return vf_load_n(x, count);
    const vf low = span < VW ? vf_load_n(x, span) : vf_load(x);
    return vf_unzip_even(low, span > VW ? vf_load_n(x + VW, span - VW) : vf_set1(0));
}

/* The greatest or least of `count` windows side by side, up to VW, whose taps along x all lie in it, and with `place` where that was; nothing is stored
 * where no tap lies in x. x is the frame, out and place those of the first window, which begins at `at`. */
static inline void pool_group(const mica__cpu_pool *p, const unsigned char *x, uint64_t oz, uint64_t oy,
                              uint64_t at, uint64_t count, const vf lanes, float *out, uint32_t *place)
{
    const mica__windows *w = &p->windows;
    const bool greatest = p->kind == MICA_POOL_MAX;
    vf best = vf_set1(0), where = best;
    bool any = false;
    for (uint64_t kz = 0; kz < w->kernel[0]; kz++)
        for (uint64_t ky = 0; ky < w->kernel[1]; ky++) {
            const uint64_t iz = oz * w->stride[0] + kz * w->dilation[0] - w->low[0],
                           iy = oy * w->stride[1] + ky * w->dilation[1] - w->low[1];
            if (iz >= w->in[0] || iy >= w->in[1]) /* what lies before x has wrapped around */
                continue;
            const float *row =
                (const float *)(const void *)(x + iz * p->frames.step[0][0] + iy * p->frames.step[0][1]) + at;
            for (uint64_t kx = 0; kx < w->kernel[2]; kx++) {
                const uint64_t tap = kx * w->dilation[2];
                const vf v = load_apart(row + tap, w->stride[2], count);
                const uint32_t before = (uint32_t)((iz * w->in[1] + iy) * w->in[2] + at + tap);
                const vf here = vi_float(vi_add(vf_bits(lanes), vi_set1((int32_t)before)));
                const vm better = greatest ? vf_lt(best, v) : vf_lt(v, best), number = vf_eq(v, v),
                         was = vf_eq(best, best);
                where = !any ? here
                             : vf_select(number, vf_select(better, here, where), vf_select(was, here, where));
                best = !any ? v : vf_select(number, vf_select(better, v, best), vf_select(was, v, best));
                any = true;
            }
        }
    if (any)
        vf_store_n(out, best, count);
    if (any && place != NULL)
        vf_store_n(place, where, count);
}

/* A row of MAX or MIN of rows of f32 that lie as they are, by vectors; false: another way has to be taken. */
static bool pool_vectors_float(const mica__cpu_pool *p, const unsigned char *x, uint16_t dtype, uint64_t oz,
                               uint64_t oy, float *out, uint32_t *place)
{
    const mica__windows *w = &p->windows;
    const uint64_t step = w->stride[2], n = w->out[2];
    int32_t lane[VW];
    if ((p->kind != MICA_POOL_MAX && p->kind != MICA_POOL_MIN) || dtype != MICA_DTYPE_F32 ||
        p->frames.step[0][2] != sizeof(float) || step > 2 || w->low[2] != 0 || n == 0 ||
        (n - 1) * step + (uint64_t)(w->kernel[2] - 1) * w->dilation[2] >= w->in[2])
        return false;
    for (int32_t i = 0; i < VW; i++)
        lane[i] = i * (int32_t)step;
    const vf lanes = vf_load(lane);
    for (uint64_t i = 0; i < n; i += VW)
        pool_group(p, x, oz, oy, i * step, n - i < VW ? n - i : VW, lanes, out + i,
                   place == NULL ? NULL : place + i);
    return true;
}

static bool pool_vectors_double(const mica__cpu_pool *p, const unsigned char *x, uint16_t dtype, uint64_t oz,
                                uint64_t oy, double *out, uint32_t *place)
{
    (void)p, (void)x, (void)dtype, (void)oz, (void)oy, (void)out, (void)place;
    return false;
}

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
