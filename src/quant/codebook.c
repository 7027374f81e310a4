/*
 * codebook.c - levels of least mean square error for a density of unit variance (Lloyd 1982, Max 1960).
 *
 * Level i is right where it is the mean of its cell, whose ends are halfway to its neighbours. Half of the symmetric levels are
 * unknowns; Newton's method solves for them, the Jacobian has three diagonals. It begins near the optimum for many levels (the density's
 * third root decides how thick they lie), a step of Lloyd's method stands in where one of Newton's would leave the order.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/status.h"
#include "mica/ops_turbo.h"

#define HALF_LEVELS (1u << (MICA_CODEBOOK_BITS - 1))
#define ROUNDS 200
#define LLOYD_ROUNDS 20 /* in the beginning */
#define PIECE 0.25      /* of an integral: eight points are exact to rounding on it */
#define FAR 12.0        /* beyond this many deviations there is nothing */

/* x is `radius` sin(t) with weight cos(t)^(dim - 2), or with radius 0 x is t with weight e^(-t^2/2). */
typedef struct density {
    double radius, power, unit;
} density;

typedef struct moments {
    double mass, first, second;
} moments;

typedef struct half_book {
    uint32_t count;
    double level[HALF_LEVELS];
} half_book;

static double weight_at(const density *f, double t)
{
    return f->unit * (f->radius > 0 ? exp(f->power * log(cos(t))) : exp(-t * t / 2));
}

static double value_at(const density *f, double t)
{
    return f->radius > 0 ? f->radius * sin(t) : t;
}

/* The density of x itself. */
static double density_at(const density *f, double x)
{
    if (f->radius == 0)
        return f->unit * exp(-x * x / 2);
    const double rest = 1 - x * x / (f->radius * f->radius);
    return rest > 0 ? f->unit / f->radius * pow(rest, (f->power - 1) / 2) : 0;
}

static double greatest_of(const density *f)
{
    return f->radius > 0 && f->radius < FAR ? f->radius : FAR;
}

/* Of x in [a, b]: Gauss-Legendre on pieces. */
static moments moments_of(const density *f, double a, double b)
{
    static const double node[4] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267,
                                   0.9602898564975363};
    static const double share[4] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745,
                                    0.1012285362903763};
    const double from = f->radius > 0 ? asin(fmin(a / f->radius, 1)) : a,
                 to = f->radius > 0 ? asin(fmin(b / f->radius, 1)) : b;
    const double piece = f->radius > 0 ? PIECE / f->radius : PIECE;
    const uint32_t pieces = 1 + (uint32_t)((to - from) / piece);
    const double half = (to - from) / (2 * pieces);
    moments m = {0, 0, 0};
    for (uint32_t p = 0; p < pieces; p++)
        for (int k = 0; k < 8; k++) {
            const double t = from + half * (2 * p + 1 + (k < 4 ? node[k] : -node[k - 4]));
            const double w = half * share[k % 4] * weight_at(f, t), x = value_at(f, t);
            m.mass += w;
            m.first += w * x;
            m.second += w * x * x;
        }
    return m;
}

static density density_of(mica_codebook_kind kind, uint32_t dim)
{
    density f = {0, 0, 1};
    if (kind == MICA_CODEBOOK_SPHERE) {
        f.radius = sqrt((double)dim);
        f.power = (double)dim - 2;
    }
    f.unit = 0.5 / moments_of(&f, 0, greatest_of(&f)).mass;
    return f;
}

/* The t below which a share of (1 + p) / 2 of a normal density lies, by bisection. */
static double normal_quantile(double p)
{
    double low = 0, high = FAR;
    for (int i = 0; i < 60; i++) {
        const double t = (low + high) / 2;
        if (erf(t * sqrt(0.5)) < p)
            low = t;
        else
            high = t;
    }
    return (low + high) / 2;
}

static void begin(const density *f, half_book *book)
{
    for (uint32_t i = 0; i < book->count; i++) {
        const double x = sqrt(3) * normal_quantile((i + 0.5) / book->count);
        book->level[i] = f->radius > 0 ? f->radius * tanh(x / f->radius) : x;
    }
}

static double lower_end(const half_book *book, uint32_t i)
{
    return i == 0 ? 0 : (book->level[i - 1] + book->level[i]) / 2;
}

static double upper_end(const density *f, const half_book *book, uint32_t i)
{
    return i + 1 < book->count ? (book->level[i] + book->level[i + 1]) / 2 : greatest_of(f);
}

static bool is_rising(const density *f, const half_book *book)
{
    double before = 0;
    for (uint32_t i = 0; i < book->count; i++) {
        if (!(book->level[i] > before) || book->level[i] >= greatest_of(f))
            return false;
        before = book->level[i];
    }
    return true;
}

/* One round; returns the greatest move. `newton`: the system (I - J) move = mean - level, eliminated downwards. */
static double improve(const density *f, half_book *book, bool newton)
{
    double mean[HALF_LEVELS] = {0}, move[HALF_LEVELS] = {0}, above[HALF_LEVELS] = {0}, most = 0;
    half_book next = *book;
    const uint32_t n = book->count;
    for (uint32_t i = 0; i < n; i++) {
        const double a = lower_end(book, i), b = upper_end(f, book, i);
        const moments m = moments_of(f, a, b);
        mean[i] = m.first / m.mass;
        const double low = i > 0 ? density_at(f, a) * (mean[i] - a) / (2 * m.mass) : 0,
                     high = i + 1 < n ? density_at(f, b) * (b - mean[i]) / (2 * m.mass) : 0;
        const double pivot = 1 - low - high - (i > 0 ? low * above[i - 1] : 0);
        above[i] = high / pivot;
        move[i] = (mean[i] - book->level[i] + (i > 0 ? low * move[i - 1] : 0)) / pivot;
    }
    for (uint32_t i = n; i-- > 0;) {
        if (i + 1 < n)
            move[i] += above[i] * move[i + 1];
        next.level[i] = newton ? book->level[i] + move[i] : mean[i];
    }
    if (!is_rising(f, &next))
        memcpy(next.level, mean, n * sizeof *mean);
    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, fabs(next.level[i] - book->level[i]));
    *book = next;
    return most;
}

static double error_of(const density *f, const half_book *book)
{
    double error = 0;
    for (uint32_t i = 0; i < book->count; i++) {
        const double c = book->level[i];
        const moments m = moments_of(f, lower_end(book, i), upper_end(f, book, i));
        error += 2 * (m.second - 2 * c * m.first + c * c * m.mass);
    }
    return error;
}

mica_status mica_codebook(mica_codebook_kind kind, uint32_t bits, uint32_t dim, double *out_levels,
                          double *out_error)
{
    if (kind != MICA_CODEBOOK_NORMAL && kind != MICA_CODEBOOK_SPHERE)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "mica_codebook: kind is %u, which is no mica_codebook_kind", (unsigned)kind);
    if (bits < 1 || bits > MICA_CODEBOOK_BITS)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "mica_codebook: bits is %u, not 1 to %u", bits,
                          (unsigned)MICA_CODEBOOK_BITS);
    if (kind == MICA_CODEBOOK_SPHERE && dim < 3)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "mica_codebook: dim is %u, not 3 or more", dim);
    if (out_levels == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "mica_codebook: out_levels is NULL");
    const density f = density_of(kind, dim);
    half_book book = {.count = 1u << (bits - 1)};
    begin(&f, &book);
    for (int round = 0; round < ROUNDS; round++)
        if (improve(&f, &book, round >= LLOYD_ROUNDS) < 1e-13)
            break;
    for (uint32_t i = 0; i < book.count; i++) {
        out_levels[book.count + i] = book.level[i];
        out_levels[book.count - 1 - i] = -book.level[i];
    }
    if (out_error != NULL)
        *out_error = error_of(&f, &book);
    return MICA_OK;
}
