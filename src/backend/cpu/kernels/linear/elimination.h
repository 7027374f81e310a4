/*
 * elimination.h - triangular systems, Cholesky's factor, elimination: matrices of double, row by row, in blocks of so many columns that the rest of the
 * matrix is met by products. False: there is no result. `work` is mica__cpu_linear_work(most rows or columns) numbers.
 */
#ifndef MICA_CPU_ELIMINATION_H
#define MICA_CPU_ELIMINATION_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/kernels/linear/doubles.h"
#include "mica/ops_linear.h"

#define BLOCK MICA__CPU_LINEAR_BLOCK

static inline uint64_t block_of(uint64_t left)
{
    return left < BLOCK ? left : BLOCK;
}

/* Columns [first, first + count) of a matrix [rows, n] as rows of t, filled up with zeros. */
static inline void turn_columns(const double *a, uint64_t n, uint64_t rows, uint64_t first, uint64_t count,
                                double *t)
{
    const uint64_t step = mica__cpu_linear_step(rows);
    for (uint64_t c = 0; c < count; c++)
        for (uint64_t r = rows; r < step; r++)
            t[c * step + r] = 0;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < count; c++)
            t[c * step + r] = a[r * n + first + c];
}

static inline void fill_row(double *to, const double *from, uint64_t n)
{
    memcpy(to, from, n * sizeof *to);
    memset(to + n, 0, (mica__cpu_linear_step(n) - n) * sizeof *to);
}

/* ---- triangular systems ---- */

typedef struct triangle {
    const double *a;
    uint64_t n;
    bool down, transposed, unit; /* down: the first unknown first */
} triangle;

/* The unknown that comes as number q. */
static inline uint64_t unknown(const triangle *t, uint64_t q)
{
    return t->down ? q : t->n - 1 - q;
}

static inline double coefficient(const triangle *t, uint64_t row, uint64_t column)
{
    return t->transposed ? t->a[column * t->n + row] : t->a[row * t->n + column];
}

/* Unknowns [q, q + count) of all m columns, whose rows x has in that order. */
static inline bool solve_block(const triangle *t, uint64_t q, uint64_t count, double *x, uint64_t m)
{
    const uint64_t step = mica__cpu_linear_step(m);
    double by[BLOCK];
    for (uint64_t s = 0; s < count; s++) {
        const uint64_t own = unknown(t, q + s);
        for (uint64_t l = 0; l < s; l++)
            by[l] = coefficient(t, own, unknown(t, q + l));
        subtract_rows(x + s * step, x, step, by, 1, s, m);
        if (t->unit)
            continue;
        const double pivot = coefficient(t, own, own);
        if (pivot == 0)
            return false;
        divide_row(x + s * step, pivot, m);
    }
    return true;
}

/* Solves op(a) x = b in b [n, m]. */
static inline bool solve_triangular(const double *a, uint64_t n, double *b, uint64_t m,
                                    const mica_triangular_params *p, double *work)
{
    const triangle t = {a, n, (p->upper != 0) == (p->transpose != 0), p->transpose != 0, p->unit != 0};
    const uint64_t x_step = mica__cpu_linear_step(m);
    double *x = work, *others = x + BLOCK * x_step;
    for (uint64_t q = 0, count; q < n; q += count) {
        count = block_of(n - q);
        const uint64_t rest = n - q - count, first = t.down ? q + count : 0,
                       step = mica__cpu_linear_step(rest);
        for (uint64_t s = 0; s < count; s++)
            fill_row(x + s * x_step, b + unknown(&t, q + s) * m, m);
        if (!solve_block(&t, q, count, x, m))
            return false;
        for (uint64_t s = 0; s < count; s++)
            memcpy(b + unknown(&t, q + s) * m, x + s * x_step, m * sizeof *b);
        for (uint64_t s = 0; s < count; s++) {
            for (uint64_t r = 0; r < rest; r++)
                others[s * step + r] = coefficient(&t, first + r, unknown(&t, q + s));
            for (uint64_t r = rest; r < step; r++)
                others[s * step + r] = 0;
        }
        const linear_product product = {b + first * m, others, x, m, step, x_step, rest, m, count};
        subtract_product(&product, false);
    }
    return true;
}

/* ---- Cholesky ---- */

/* Columns of the factor, as rows of t: from the diagonal on, where their first element belongs. */
static inline bool factor_columns(double *t, uint64_t rows, uint64_t count)
{
    const uint64_t step = mica__cpu_linear_step(rows);
    for (uint64_t j = 0; j < count; j++) {
        double *own = t + j * step;
        subtract_rows(own + j, t + j, step, t + j, step, j, rows - j);
        if (!(own[j] > 0) || isinf(own[j]))
            return false;
        own[j] = sqrt(own[j]);
        divide_row(own + j + 1, own[j], rows - j - 1);
    }
    return true;
}

/* The lower factor of a, in place, from its lower half; the other half becomes 0. */
static inline bool factor_cholesky(double *a, uint64_t n, double *work)
{
    for (uint64_t k = 0, count; k < n; k += count) {
        count = block_of(n - k);
        const uint64_t rows = n - k, step = mica__cpu_linear_step(rows), rest = rows - count;
        double *corner = a + k * n + k, *t = work;
        turn_columns(corner, n, rows, 0, count, t);
        if (!factor_columns(t, rows, count))
            return false;
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < count; c++)
                corner[r * n + c] = r >= c ? t[c * step + r] : 0;
        for (uint64_t c = 0; c < count; c++)
            memset(corner + c * n + count, 0, rest * sizeof *corner);
        const linear_product product = {
            corner + count * n + count, t + count, t + count, n, step, step, rest, rest, count};
        subtract_product(&product, true);
    }
    return true;
}

/* ---- elimination ---- */

static inline void swap_numbers(double *a, double *b, uint64_t n)
{
    for (uint64_t c = 0; c < n && a != b; c++) {
        const double kept = a[c];
        a[c] = b[c];
        b[c] = kept;
    }
}

/* The first of the greatest magnitudes from `first` on. */
static inline uint64_t greatest_of(const double *row, uint64_t first, uint64_t n)
{
    double most = 0, lane[VD];
    vd all = vd_set1(0);
    for (uint64_t i = first; i < n; i += VD)
        all = vd_max_abs(vd_load_n(row + i, n - i), all);
    vd_store(lane, all);
    for (int i = 0; i < VD; i++)
        most = lane[i] > most ? lane[i] : most;
    for (uint64_t i = first; i < n; i++)
        if (fabs(row[i]) >= most)
            return i;
    return first;
}

/* A matrix on its way to two triangles, and b [n, m], which changes rows with it (m 0: there is none). The sign is that of the exchanges. */
typedef struct elimination {
    double *a, *b, *work, sign;
    uint64_t n, m;
} elimination;

/* Columns [k, k + count) from row k on, as rows of t: each gets what those before it take off, then its pivot. */
static inline bool eliminate_columns(elimination *e, uint64_t k, uint64_t count, double *t)
{
    const uint64_t n = e->n, rows = n - k, step = mica__cpu_linear_step(rows);
    for (uint64_t j = 0; j < count; j++) {
        double *own = t + j * step;
        for (uint64_t i = 1; i < j; i++)
            for (uint64_t l = 0; l < i; l++)
                own[i] -= t[l * step + i] * own[l];
        subtract_rows(own + j, t + j, step, own, 1, j, rows - j);
        const uint64_t best = greatest_of(own, j, rows);
        if (own[best] == 0)
            return false;
        for (uint64_t c = 0; c < count && best != j; c++)
            swap_numbers(t + c * step + j, t + c * step + best, 1);
        swap_numbers(e->a + (k + j) * n, e->a + (k + best) * n, n);
        if (e->m > 0)
            swap_numbers(e->b + (k + j) * e->m, e->b + (k + best) * e->m, e->m);
        e->sign = best != j ? -e->sign : e->sign;
        divide_row(own + j + 1, own[j], rows - j - 1);
    }
    return true;
}

/* a becomes two triangles, one above the other: from the diagonal up what is left, below it what rows were multiplied by. */
static inline bool eliminate(elimination *e)
{
    const uint64_t n = e->n;
    e->sign = 1;
    for (uint64_t k = 0, count; k < n; k += count) {
        count = block_of(n - k);
        const uint64_t rows = n - k, rest = rows - count, step = mica__cpu_linear_step(rows),
                       right_step = mica__cpu_linear_step(rest);
        double *corner = e->a + k * n + k, *t = e->work, *right = t + BLOCK * step;
        turn_columns(corner, n, rows, 0, count, t);
        if (!eliminate_columns(e, k, count, t))
            return false;
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < count; c++)
                corner[r * n + c] = t[c * step + r];
        for (uint64_t s = 0; s < count; s++) {
            fill_row(right + s * right_step, corner + s * n + count, rest);
            subtract_rows(right + s * right_step, right, right_step, t + s, step, s, rest);
            memcpy(corner + s * n + count, right + s * right_step, rest * sizeof *corner);
        }
        const linear_product product = {
            corner + count * n + count, t + count, right, n, step, right_step, rest, rest, count};
        subtract_product(&product, false);
    }
    return true;
}

static inline bool solve_general(double *a, uint64_t n, double *b, uint64_t m, double *work)
{
    const mica_triangular_params lower = {.unit = 1}, upper = {.upper = 1};
    elimination e = {.a = a, .b = b, .work = work, .n = n, .m = m};
    return eliminate(&e) && solve_triangular(a, n, b, m, &lower, work) &&
           solve_triangular(a, n, b, m, &upper, work);
}

/* out: the determinant, or its sign and the logarithm of its magnitude. */
static inline void find_determinant(double *a, uint64_t n, bool log_of, double *out, double *work)
{
    double product = 1, sum = 0;
    elimination e = {.a = a, .work = work, .n = n};
    const bool regular = eliminate(&e);
    double sign = e.sign;
    for (uint64_t i = 0; i < n && regular; i++) {
        product *= a[i * n + i];
        sum += log(fabs(a[i * n + i]));
        sign = a[i * n + i] < 0 ? -sign : sign;
    }
    if (log_of) {
        out[0] = regular ? sign : 0;
        out[1] = regular ? sum : -(double)INFINITY;
    } else {
        out[0] = regular ? copysign(product, sign) : 0;
    }
}

#endif
