/*
 * resize_taps.h - what a place of a resized dimension is made of. Positions are rational numbers, so that no rounding moves a place.
 */
#ifndef MICA_CPU_RESIZE_TAPS_H
#define MICA_CPU_RESIZE_TAPS_H

#include "backend/cpu/kernels/image/image.h"

/* n places become m. */
typedef struct resize_axis {
    int64_t n, m;
    uint32_t mode, corners, antialias;
} resize_axis;

static inline int64_t floor_of(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/* Keys' cubic kernel. */
static inline double cubic_weight(double t, double a)
{
    t = t < 0 ? -t : t;
    if (t <= 1)
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

/* Where place i lies, as a quotient. */
static inline void resize_position(const resize_axis *r, int64_t i, int64_t *top, int64_t *bottom)
{
    switch (r->corners) {
    case MICA_RESIZE_HALF_PIXEL:
        *top = (2 * i + 1) * r->n - r->m;
        *bottom = 2 * r->m;
        return;
    case MICA_RESIZE_ALIGN_CORNERS:
        *top = i * (r->n - 1);
        *bottom = r->m > 1 ? r->m - 1 : 1;
        return;
    default: *top = i * r->n; *bottom = r->m;
    }
}

/* The taps [first, first + count) of place i, perhaps outside; their weights by resize_weight. */
static inline void resize_range(const resize_axis *r, int64_t i, int64_t *first, int64_t *count)
{
    int64_t top, bottom;
    if (r->antialias != 0) {
        const int64_t reach = (r->mode == MICA_RESIZE_CUBIC ? 2 : 1) * 2 * (r->n > r->m ? r->n : r->m);
        const int64_t middle = (2 * i + 1) * r->n - r->m, end = -floor_of(-(middle + reach), 2 * r->m);
        const int64_t begin = floor_of(middle - reach, 2 * r->m) + 1;
        *first = begin > 0 ? begin : 0;
        *count = (end < r->n ? end : r->n) - *first;
        return;
    }
    resize_position(r, i, &top, &bottom);
    *first = floor_of(top, bottom);
    *count = 2;
    if (r->mode == MICA_RESIZE_CUBIC) {
        *first -= 1;
        *count = 4;
    } else if (r->mode == MICA_RESIZE_NEAREST) {
        *first = r->corners == MICA_RESIZE_ASYMMETRIC ? *first : floor_of(2 * top + bottom, 2 * bottom);
        *count = 1;
    }
}

/* Of tap j, with antialias before the weights are divided by their sum. */
static inline double resize_weight(const resize_axis *r, int64_t i, int64_t j)
{
    int64_t top, bottom;
    if (r->antialias != 0) {
        const double t =
            (double)((2 * j + 1) * r->m - (2 * i + 1) * r->n) / (double)(2 * (r->n > r->m ? r->n : r->m));
        const double away = t < 0 ? -t : t;
        return r->mode == MICA_RESIZE_CUBIC ? cubic_weight(t, -0.5) : away < 1 ? 1 - away : 0;
    }
    if (r->mode == MICA_RESIZE_NEAREST)
        return 1;
    resize_position(r, i, &top, &bottom);
    const double t = (double)(top - j * bottom) / (double)bottom;
    return r->mode == MICA_RESIZE_CUBIC ? cubic_weight(t, -0.75) : t < 0 ? 1 + t : 1 - t;
}

static inline double resize_sum(const resize_axis *r, int64_t i, int64_t first, int64_t count)
{
    double sum = 0;
    for (int64_t j = first; r->antialias != 0 && j < first + count; j++)
        sum += resize_weight(r, i, j);
    return r->antialias != 0 ? sum : 1;
}

static inline int64_t resize_clamp(int64_t j, int64_t n)
{
    return j < 0 ? 0 : j < n ? j : n - 1;
}

#endif
