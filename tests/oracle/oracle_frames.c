/* oracle_frames.c - pooling, im2col, resizing and sampling by a grid, each element from its formula. */
#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_image.h"
#include "oracle/oracle_ops.h"

static size_t volume(const size_t *n)
{
    return n[0] * n[1] * n[2];
}

static void split(size_t index, const size_t *n, size_t *at)
{
    at[2] = index % n[2];
    at[1] = index / n[2] % n[1];
    at[0] = index / n[2] / n[1];
}

/* The place that tap `tap` of window `window` covers, -1 outside of the image. */
static long place_of(const oracle_windows *w, size_t window, size_t tap)
{
    size_t p[3], k[3], at[3];

    split(window, w->out, p);
    split(tap, w->kernel, k);
    for (int d = 0; d < 3; d++) {
        const size_t padded = p[d] * w->stride[d] + k[d] * w->dilation[d];

        if (padded < w->low[d] || padded - w->low[d] >= w->in[d])
            return -1;
        at[d] = padded - w->low[d];
    }
    return (long)((at[0] * w->in[1] + at[1]) * w->in[2] + at[2]);
}

/* Taps that a mean is over. */
static double counted(const oracle_pooling *pool, size_t window)
{
    const oracle_windows *w = &pool->windows;
    double count = 0;

    for (size_t tap = 0; tap < volume(w->kernel); tap++) {
        size_t p[3], k[3];
        bool inside = true;

        split(window, w->out, p);
        split(tap, w->kernel, k);
        for (int d = 0; d < 3; d++)
            inside =
                inside && p[d] * w->stride[d] + k[d] * w->dilation[d] < w->low[d] + w->in[d] + pool->high[d];
        count += pool->count_padding ? inside : place_of(w, window, tap) >= 0;
    }
    return count;
}

/* The place that max or min takes of a window: the first NaN, else the first of the best; -1: none. */
static long taken(const oracle_pooling *pool, const double *x, size_t window)
{
    const oracle_windows *w = &pool->windows;
    long best = -1;

    for (size_t tap = 0; tap < volume(w->kernel); tap++) {
        const long at = place_of(w, window, tap);

        if (at < 0 || (best >= 0 && isnan(x[best])))
            continue;
        if (best < 0 || isnan(x[at]) || (pool->kind == ORACLE_POOL_MAX ? x[at] > x[best] : x[at] < x[best]))
            best = at;
    }
    return best;
}

void oracle_pool_run(const oracle_pooling *pool, const double *x, double *y, double *places, double *error)
{
    const oracle_windows *w = &pool->windows;
    const bool greatest = pool->kind == ORACLE_POOL_MAX, extreme = greatest || pool->kind == ORACLE_POOL_MIN;

    for (size_t window = 0; window < volume(w->out); window++) {
        const long best = extreme ? taken(pool, x, window) : -1;
        long double sum = 0, product = 1; /* finer than f64, whose results are judged too */
        double size = 0, terms = 0;

        for (size_t tap = 0; tap < volume(w->kernel); tap++) {
            const long at = place_of(w, window, tap);

            if (at < 0)
                continue;
            sum += x[at];
            size += fabs(x[at]);
            product *= x[at];
            terms += 1;
        }
        const double over = pool->kind == ORACLE_POOL_MEAN ? counted(pool, window) : 1;
        places[window] = (double)best;
        y[window] = extreme                          ? (best >= 0  ? x[best]
                                                        : greatest ? -(double)INFINITY
                                                                   : (double)INFINITY)
                    : pool->kind == ORACLE_POOL_PROD ? (double)product
                                                     : (double)(sum / over);
        error[window] = extreme                          ? ORACLE_EXACT
                        : pool->kind == ORACLE_POOL_PROD ? (double)fabsl(product) * (1 + 0.5 * sqrt(terms))
                        : over > 0                       ? size / over * (1 + 0.25 * sqrt(terms))
                                                         : 0;
    }
}

void oracle_pool_backward(const oracle_pooling *pool, const double *x, const double *dy, double *dx,
                          double *error)
{
    const oracle_windows *w = &pool->windows;
    const size_t places = volume(w->in), taps = volume(w->kernel);
    double *terms = calloc(places + 1, sizeof *terms);
    long double *sums = calloc(places + 1, sizeof *sums);

    for (size_t i = 0; i < places; i++)
        error[i] = 0;
    for (size_t window = 0; window < volume(w->out); window++) {
        const bool extreme = pool->kind == ORACLE_POOL_MAX || pool->kind == ORACLE_POOL_MIN;
        const long best = extreme ? taken(pool, x, window) : -1;

        for (size_t tap = 0; tap < taps; tap++) {
            const long at = place_of(w, window, tap);
            long double factor = 1;

            if (at < 0 || (extreme && at != best))
                continue;
            for (size_t other = 0; pool->kind == ORACLE_POOL_PROD && other < taps; other++) {
                const long place = place_of(w, window, other);

                factor *= place >= 0 && other != tap ? x[place] : 1;
            }
            if (pool->kind == ORACLE_POOL_MEAN)
                factor = 1 / (long double)counted(pool, window);
            sums[at] += dy[window] * factor;
            error[at] += (double)fabsl(dy[window] * factor) *
                         (pool->kind == ORACLE_POOL_PROD ? 1 + 0.5 * sqrt((double)taps) : 1);
            terms[at] += 1;
        }
    }
    for (size_t i = 0; i < places; i++) {
        dx[i] = (double)sums[i];
        error[i] *= 1 + 0.25 * sqrt(terms[i]);
    }
    free(terms);
    free(sums);
}

void oracle_im2col(const oracle_windows *w, const double *image, double *columns)
{
    const size_t windows = volume(w->out);

    for (size_t tap = 0; tap < volume(w->kernel); tap++)
        for (size_t window = 0; window < windows; window++) {
            const long at = place_of(w, window, tap);

            columns[tap * windows + window] = at >= 0 ? image[at] : 0;
        }
}

void oracle_col2im(const oracle_windows *w, const double *columns, double *image, double *error)
{
    const size_t windows = volume(w->out), taps = volume(w->kernel);

    for (size_t i = 0; i < volume(w->in); i++)
        image[i] = error[i] = 0;
    for (size_t i = 0; i < taps * windows; i++) {
        const long at = place_of(w, i % windows, i / windows);

        if (at < 0)
            continue;
        image[at] += columns[i];
        error[at] += fabs(columns[i]) * (1 + 0.25 * sqrt((double)taps));
    }
}

/* ---- resizing ---- */

static long double cubic(long double t, long double a)
{
    t = fabsl(t);
    return t <= 1  ? (a + 2) * t * t * t - (a + 3) * t * t + 1
           : t < 2 ? a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a
                   : 0;
}

/* How much of place j, perhaps outside, is in place i: n places become m. Distances are quotients of whole numbers. */
static double share(const oracle_resize *r, long n, long m, long i, long j)
{
    const long top = r->corners == 0 ? (2 * i + 1) * n - m : r->corners == 1 ? i * (n - 1) : i * n;
    const long bottom = r->corners == 0 ? 2 * m : r->corners == 1 ? (m > 1 ? m - 1 : 1) : m;
    const long away = j * bottom - top; /* over bottom */
    long double t =
        (long double)away / (long double)bottom; /* finer than f64, whose results are judged too */

    if (r->mode == 0)
        return r->corners == 2 ? away <= 0 && away > -bottom : 2 * away > -bottom && 2 * away <= bottom;
    if (r->antialias) {
        if (j < 0 || j >= n)
            return 0;
        t = n > m ? (long double)away / (long double)(2 * n) : t;
    }
    if (r->mode == 1)
        return (double)(fabsl(t) < 1 ? 1 - fabsl(t) : 0);
    return t == rintl(t) ? t == 0 : (double)cubic(t, r->antialias ? -0.5L : -0.75L);
}

/* weight [i][place] and what it may stray by, of one dimension. */
static void axis(const oracle_resize *r, int d, double *weight, double *stray)
{
    const long n = (long)r->in[d], m = (long)r->out[d];
    /* Of f32 weights are made in f64 and rounded. Of f64 their steps round: of the cubic's by Horner, for t up to 2 and a = 3/4, values of
     * 1.5, 3.75, 7.5, 6, 12 and 1, which the steps behind them grow by 4, 4, 2, 2, 1 and 1: half of 61, and of t twice its slope. */
    const double each = r->mode == 0 ? 0 : r->mode == 1 ? 1 : r->wide ? 34 : 4;

    for (long i = 0; i < m; i++) {
        double sum = 0;

        for (long j = 0; j < n; j++)
            weight[i * n + j] = stray[i * n + j] = 0;
        for (long j = -3; j < n + 3; j++) {
            const double part = share(r, n, m, i, j);
            const long at = j < 0 ? 0 : j < n ? j : n - 1;

            weight[i * n + at] += part;
            stray[i * n + at] += part != 0 ? each : 0;
            sum += part;
        }
        for (long j = 0; r->antialias && j < n; j++) {
            weight[i * n + j] /= sum;
            stray[i * n + j] = stray[i * n + j] / sum + 3 * fabs(weight[i * n + j]);
        }
    }
}

/* Sums over all pairs of places: from in to out, or back. */
static void resize(const oracle_resize *r, bool back, const double *from, double *to, double *error)
{
    double *weight[3], *stray[3];

    for (int d = 0; d < 3; d++) {
        weight[d] = calloc(r->in[d] * r->out[d] + 1, sizeof *weight[d]);
        stray[d] = calloc(r->in[d] * r->out[d] + 1, sizeof *stray[d]);
        axis(r, d, weight[d], stray[d]);
    }
    const size_t in = volume(r->in), out = volume(r->out);
    for (size_t i = 0; i < (back ? in : out); i++)
        to[i] = error[i] = 0;
    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < in; i++) {
            size_t a[3], b[3];
            double w[3], s[3];

            split(o, r->out, a);
            split(i, r->in, b);
            for (int d = 0; d < 3; d++) {
                w[d] = weight[d][a[d] * r->in[d] + b[d]];
                s[d] = stray[d][a[d] * r->in[d] + b[d]];
            }
            if (w[0] == 0 || w[1] == 0 || w[2] == 0)
                continue;
            const double all = w[0] * w[1] * w[2], value = from[back ? o : i];
            to[back ? i : o] += all * value;
            error[back ? i : o] += fabs(value) * (fabs(all) * 4 + s[0] * fabs(w[1] * w[2]) +
                                                  s[1] * fabs(w[0] * w[2]) + s[2] * fabs(w[0] * w[1]));
        }
    for (int d = 0; d < 3; d++) {
        free(weight[d]);
        free(stray[d]);
    }
}

void oracle_resize_run(const oracle_resize *r, const double *x, double *y, double *error)
{
    resize(r, false, x, y, error);
}

void oracle_resize_backward(const oracle_resize *r, const double *dy, double *dx, double *error)
{
    resize(r, true, dy, dx, error);
}

/* ---- sampling by a grid ---- */

/* Turned back into [low, high]. */
static double turned(double at, double low, double high)
{
    if (high <= low)
        return low;
    while (at < low || at > high)
        at = at < low ? 2 * low - at : 2 * high - at;
    return at;
}

static double padded(const oracle_grid *g, double at, size_t n)
{
    if (g->padding == 2)
        at = g->align ? turned(at, 0, (double)n - 1) : turned(at, -0.5, (double)n - 0.5);
    return g->padding == 0 ? at : fmin(fmax(at, 0), (double)n - 1);
}

/* The derivative of Keys' kernel, from those of its two cubics. */
static double cubic_slope(double t, double a)
{
    const double s = fabs(t), slope = s <= 1  ? 3 * (a + 2) * s * s - 2 * (a + 3) * s
                                      : s < 2 ? 3 * a * s * s - 10 * a * s + 8 * a
                                              : 0;

    return t < 0 ? -slope : slope;
}

/* A dimension's taps: places, -1 outside; weights and what those stray by, since the coordinate is known to a few roundings of its terms; the same of
 * what the weights change by with the coordinate. */
typedef struct grid_taps {
    int count;
    long place[4];
    double weight[4], stray[4], slope[4], slope_stray[4];
} grid_taps;

/* How the coordinate within the dimension goes with that of the grid: `padded` rises, falls or stands still by whole steps where it is straight. */
static double rate_of(const oracle_grid *g, double at, size_t n)
{
    const double rate = g->align ? ((double)n - 1) / 2 : (double)n / 2, step = 1e-3;

    return g->mode == 2 ? rate
                        : rate * rint((padded(g, at + step, n) - padded(g, at - step, n)) / (2 * step));
}

static grid_taps taps(const oracle_grid *g, double coordinate, size_t n)
{
    const double at =
        g->align ? (coordinate + 1) / 2 * ((double)n - 1) : ((coordinate + 1) * (double)n - 1) / 2;
    const double unsure = 3 * ((fabs(coordinate) + 1) * (double)n + 1),
                 where = g->mode == 2 ? at : padded(g, at, n), rate = rate_of(g, at, n);
    const double base = g->mode == 0 ? rint(where) : floor(where);
    grid_taps t = {.count = g->mode == 0 ? 1 : g->mode == 1 ? 2 : 4};

    for (int k = 0; k < t.count; k++) {
        const double tap = base + k - (t.count == 4), held = g->mode == 2 ? padded(g, tap, n) : tap;

        t.place[k] = held >= 0 && held < (double)n ? lrint(held) : -1;
        t.weight[k] = g->mode == 0 ? 1 : g->mode == 1 ? 1 - fabs(where - tap) : cubic(where - tap, -0.75);
        t.stray[k] = g->mode == 0 ? 0 : g->mode == 1 ? 1 + unsure : 4 + 2 * unsure;
        /* cubic: terms of up to 15 and three roundings; the second derivative is 4.5 at most */
        t.slope[k] = g->mode == 0   ? 0
                     : g->mode == 1 ? k == 0 ? -rate : rate
                                    : rate * cubic_slope(where - tap, -0.75);
        t.slope_stray[k] = g->mode == 2 ? fabs(rate) * (45 + 4.5 * unsure) : 2 * fabs(rate);
    }
    return t;
}

double oracle_grid_sample(const oracle_grid *g, const double *x, double across, double down, double *error)
{
    const grid_taps c = taps(g, across, g->width), r = taps(g, down, g->height);
    double sum = 0;

    *error = g->mode == 0 ? ORACLE_EXACT : 0;
    for (int a = 0; a < r.count; a++)
        for (int b = 0; b < c.count; b++) {
            if (r.place[a] < 0 || c.place[b] < 0)
                continue;
            const double value = x[(size_t)r.place[a] * g->width + (size_t)c.place[b]];
            sum += r.weight[a] * c.weight[b] * value;
            if (g->mode != 0)
                *error += fabs(value) * (4 * fabs(r.weight[a] * c.weight[b]) +
                                         r.stray[a] * (fabs(c.weight[b]) + c.stray[b] * 0x1p-24) +
                                         c.stray[b] * fabs(r.weight[a]));
        }
    return sum;
}

void oracle_grid_backward(const oracle_grid *g, const double *x, double across, double down, double dy,
                          double *dx, double *dx_error, double *dx_terms, double *by, double *by_error)
{
    const grid_taps c = taps(g, across, g->width), r = taps(g, down, g->height);

    for (int a = 0; a < r.count; a++)
        for (int b = 0; b < c.count; b++) {
            if (r.place[a] < 0 || c.place[b] < 0)
                continue;
            const size_t at = (size_t)r.place[a] * g->width + (size_t)c.place[b];
            const double wr = fabs(r.weight[a]) + r.stray[a] * 0x1p-24,
                         wc = fabs(c.weight[b]) + c.stray[b] * 0x1p-24;
            dx[at] += r.weight[a] * c.weight[b] * dy;
            dx_error[at] += fabs(dy) * (4 * wr * wc + r.stray[a] * wc + c.stray[b] * wr);
            dx_terms[at] += 1;
            by[0] += r.weight[a] * c.slope[b] * x[at] * dy;
            by[1] += r.slope[a] * c.weight[b] * x[at] * dy;
            by_error[0] += fabs(x[at] * dy) * (8 * wr * fabs(c.slope[b]) + r.stray[a] * fabs(c.slope[b]) +
                                               c.slope_stray[b] * wr);
            by_error[1] += fabs(x[at] * dy) * (8 * wc * fabs(r.slope[a]) + c.stray[b] * fabs(r.slope[a]) +
                                               r.slope_stray[a] * wc);
        }
}
