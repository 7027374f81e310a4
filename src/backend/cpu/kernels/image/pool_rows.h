/*
 * pool_rows.h - a row of windows in f32: the rows of x that it reaches, then VW windows at a time whose taps along the row all lie in x, and the windows
 * beside them one by one. Terms are folded as pool_body.h does it, in its order.
 */
#ifndef MICA_CPU_IMAGE_POOL_ROWS_H
#define MICA_CPU_IMAGE_POOL_ROWS_H

#include "backend/cpu/kernels/image/image.h"
#include "backend/cpu/kernels/rows.h"

#define POOL_INLINE static inline __attribute__((always_inline))

/* The rows that lie in x, and the place of each one's first element. */
typedef struct pool_rows {
    const float *row[MICA__CPU_POOL_ROWS];
    uint32_t before[MICA__CPU_POOL_ROWS];
    uint32_t count;
    float divisor; /* of a mean, but for the taps along the row */
} pool_rows;

/* `tmp` has room for as many rows; x is the frame. */
static void pool_collect(const mica__cpu_pool *p, const unsigned char *x, uint16_t dtype, uint64_t oz,
                         uint64_t oy, float *tmp, pool_rows *rows)
{
    const mica__windows *w = &p->windows;
    const uint64_t *step = p->frames.step[0];
    rows->count = 0;
    for (uint64_t kz = 0; kz < w->kernel[0]; kz++)
        for (uint64_t ky = 0; ky < w->kernel[1]; ky++) {
            const uint64_t iz = oz * w->stride[0] + kz * w->dilation[0] - w->low[0],
                           iy = oy * w->stride[1] + ky * w->dilation[1] - w->low[1];
            if (iz >= w->in[0] || iy >= w->in[1]) /* what lies before x has wrapped around */
                continue;
            rows->row[rows->count] = row_f32_strided(x + iz * step[0] + iy * step[1], dtype, step[2],
                                                     w->in[2], tmp + rows->count * w->in[2]);
            rows->before[rows->count++] = (uint32_t)((iz * w->in[1] + iy) * w->in[2]);
        }
    if (p->kind == MICA_POOL_MEAN)
        rows->divisor = (float)(taps_in_float(w, 0, oz, p->count_padding != 0) *
                                taps_in_float(w, 1, oy, p->count_padding != 0));
}

/* `count` elements of x, `step` apart; nothing is read from x + room on. */
POOL_INLINE vf load_apart(const float *x, uint64_t step, uint64_t count, uint64_t room)
{
    if (step == 1)
        return count == VW ? vf_load(x) : vf_load_n(x, count);
    if (step == 2) {
        const vf low = room < VW ? vf_load_n(x, room) : vf_load(x);
        const vf high = room >= 2 * VW ? vf_load(x + VW) : vf_load_n(x + VW, room > VW ? room - VW : 0);
        return vf_unzip_even(low, high);
    }
    float lane[VW] = {0};
    for (uint64_t i = 0; i < count; i++)
        lane[i] = x[i * step];
    return vf_load(lane);
}

/* `count` windows side by side from window i on. `lanes`: the places of VW windows' taps, less that of the first. */
POOL_INLINE void pool_vector(const mica__cpu_pool *p, const pool_rows *rows, uint64_t i, uint64_t count,
                             uint32_t kind, vf lanes, float *out, uint32_t *place)
{
    const mica__windows *w = &p->windows;
    const bool greatest = kind == MICA_POOL_MAX, chooses = greatest || kind == MICA_POOL_MIN;
    vf best = vf_set1(of_nothing_float(kind)), where = vi_float(vi_set1(-1));
    bool any = false;
    for (uint32_t r = 0; r < rows->count; r++)
        for (uint64_t kx = 0; kx < w->kernel[2]; kx++) {
            const uint64_t at = i * w->stride[2] + kx * w->dilation[2] - w->low[2];
            const vf v = load_apart(rows->row[r] + at, w->stride[2], count, w->in[2] - at);
            if (!chooses) {
                best = kind == MICA_POOL_PROD ? vf_mul(best, v) : vf_add(best, v);
                continue;
            }
            const vm number = vf_eq(v, v);
            if (place == NULL) {
                best = vf_select(number, greatest ? vf_max(v, best) : vf_min(v, best), v);
                continue;
            }
            const vf here = vi_float(vi_add(vf_bits(lanes), vi_set1((int32_t)(rows->before[r] + at))));
            const vm better = greatest ? vf_lt(best, v) : vf_lt(v, best), was = vf_eq(best, best);
            where =
                !any ? here : vf_select(number, vf_select(better, here, where), vf_select(was, here, where));
            best = !any ? v : vf_select(number, vf_select(better, v, best), vf_select(was, v, best));
            any = true;
        }
    if (kind == MICA_POOL_MEAN)
        best = vf_div(best, vf_set1(rows->divisor * (float)w->kernel[2]));
    if (count == VW)
        vf_store(out + i, best);
    else
        vf_store_n(out + i, best, count);
    if (place != NULL)
        vf_store_n(place + i, where, count);
}

/* Windows [begin, end); the last vector may begin in the one before it. */
POOL_INLINE void pool_vectors(const mica__cpu_pool *p, const pool_rows *rows, uint64_t begin, uint64_t end,
                              uint32_t kind, float *out, uint32_t *place)
{
    int32_t lane[VW];
    uint64_t i = begin;
    for (int32_t l = 0; l < VW; l++)
        lane[l] = l * (int32_t)p->windows.stride[2];
    const vf lanes = vf_load(lane);
    for (; i + VW <= end; i += VW)
        pool_vector(p, rows, i, VW, kind, lanes, out, place);
    if (i < end && end - begin >= VW)
        pool_vector(p, rows, end - VW, VW, kind, lanes, out, place);
    else if (i < end)
        pool_vector(p, rows, i, end - i, kind, lanes, out, place);
}

static void pool_window(const mica__cpu_pool *p, const pool_rows *rows, uint64_t i, float *out,
                        uint32_t *place)
{
    const mica__windows *w = &p->windows;
    float best = of_nothing_float(p->kind);
    uint32_t where = UINT32_MAX;
    for (uint32_t r = 0; r < rows->count; r++)
        for (uint64_t kx = 0; kx < w->kernel[2]; kx++) {
            const uint64_t at = i * w->stride[2] + kx * w->dilation[2] - w->low[2];
            if (at >= w->in[2])
                continue;
            const float v = rows->row[r][at];
            const bool taken = is_taken_float(p->kind == MICA_POOL_MAX, v, best, where == UINT32_MAX);
            if (p->kind == MICA_POOL_PROD)
                best *= v;
            else if (p->kind > MICA_POOL_MIN)
                best += v;
            else if (taken) {
                best = v;
                where = rows->before[r] + (uint32_t)at;
            }
        }
    if (p->kind == MICA_POOL_MEAN)
        best /= rows->divisor * (float)taps_in_float(w, 2, i, p->count_padding != 0);
    out[i] = best;
    if (place != NULL)
        place[i] = where;
}

/* What a row of windows is, and with `place` where the one that was taken lies. */
static void pool_fill(const mica__cpu_pool *p, const pool_rows *rows, float *out, uint32_t *place)
{
    const mica__windows *w = &p->windows;
    const uint64_t n = w->out[2], span = (uint64_t)(w->kernel[2] - 1) * w->dilation[2] + 1;
    uint64_t begin = (w->low[2] + w->stride[2] - 1) / w->stride[2],
             end = w->in[2] + w->low[2] < span ? 0 : (w->in[2] + w->low[2] - span) / w->stride[2] + 1;
    end = end < n ? end : n;
    begin = begin < end ? begin : end;
    for (uint64_t i = 0; i < begin; i++)
        pool_window(p, rows, i, out, place);
    if (p->kind == MICA_POOL_MAX && place != NULL)
        pool_vectors(p, rows, begin, end, MICA_POOL_MAX, out, place);
    else if (p->kind == MICA_POOL_MAX)
        pool_vectors(p, rows, begin, end, MICA_POOL_MAX, out, NULL);
    else if (p->kind == MICA_POOL_MIN)
        pool_vectors(p, rows, begin, end, MICA_POOL_MIN, out, place);
    else if (p->kind == MICA_POOL_MEAN)
        pool_vectors(p, rows, begin, end, MICA_POOL_MEAN, out, NULL);
    else if (p->kind == MICA_POOL_SUM)
        pool_vectors(p, rows, begin, end, MICA_POOL_SUM, out, NULL);
    else
        pool_vectors(p, rows, begin, end, MICA_POOL_PROD, out, NULL);
    for (uint64_t i = end; i < n; i++)
        pool_window(p, rows, i, out, place);
}

#endif
