/*
 * conform_linear.c - cases of linear algebra: matrices of every small shape, many at once, f32 and f64 (triangular systems f16 and bf16 too), any strides and in place. What comes back is
 * multiplied together again; factors must be triangular, orthonormal, in order.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_number.h"

/* ---- cases ---- */

/* Some small matrices, one in five cases up to 33 on a side; those of 16 bits never, nor far from 1: f16 ends at 65504. */
static void make_of(conform_case *c, test_random *random, uint64_t types, bool half)
{
    const uint64_t most = !half && test_random_one_in(random, 5) ? 33 : 9;
    conform_draw as = {.rest = 16, .distinct = UINT32_MAX, .types = types};

    as.size[CONFORM_SIZE('N')] = c->typical ? 128 : 1 + test_random_below(random, most);
    as.size[CONFORM_SIZE('M')] = c->typical ? 128 : 1 + test_random_below(random, 12);
    conform_make_op_as(c, random, &as);
    for (uint32_t i = 0; i < 2 && i < c->output; i++)
        test_tensor_normal(conform_tensor(c, i), random,
                           half ? 1 : exp2((double)test_random_below(random, 9) - 4));
}

static void make(conform_case *c, test_random *random)
{
    make_of(c, random, 0, false);
}

static double eps_of(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F64    ? DBL_EPSILON / 2
           : dtype == MICA_DTYPE_F16  ? 0x1p-11
           : dtype == MICA_DTYPE_BF16 ? 0x1p-8
                                      : ORACLE_F32_EPS;
}

/* Makes each matrix of a positive definite, or gives it a diagonal, of `least` and more, that keeps triangles of it far from singular. */
static void make_square(conform_case *c, bool definite, double least)
{
    test_tensor *a = conform_tensor(c, 0);
    const uint64_t n = a->shape[a->ndim - 1];
    double *row = test_alloc(n * n, sizeof *row);

    for (uint64_t at = 0; at < a->count; at += n * n) {
        for (uint64_t i = 0; i < n * n; i++)
            row[i] = test_tensor_get(a, at + i);
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t k = 0; k < n; k++) {
                double sum = i == k ? (double)n / 4 : 0;

                for (uint64_t l = 0; l < n; l++)
                    sum += row[i * n + l] * row[k * n + l];
                if (definite)
                    test_tensor_set(a, at + i * n + k, sum);
                else if (i == k)
                    test_tensor_set(a, at + i * n + k,
                                    row[i * n + k] + copysign(fmax(sqrt(sum), least), row[i * n + k]));
            }
    }
    free(row);
}

void conform_make_triangular_solve(conform_case *c, test_random *random)
{
    if (!c->typical)
        c->params.triangular = (mica_triangular_params){(uint32_t)test_random_below(random, 2),
                                                        (uint32_t)test_random_below(random, 2),
                                                        (uint32_t)test_random_below(random, 2)};
    const bool half = !c->typical && test_random_one_in(random, 3);
    const uint64_t wide = 1ull << MICA_DTYPE_F32 | 1ull << MICA_DTYPE_F64,
                   narrow = 1ull << MICA_DTYPE_F16 | 1ull << MICA_DTYPE_BF16;
    make_of(c, random, half ? narrow : wide, half);
    make_square(c, false, half ? 1 : 0);
}

void conform_make_cholesky(conform_case *c, test_random *random)
{
    c->params.cholesky.upper = c->typical ? 0 : (uint32_t)test_random_below(random, 2);
    make(c, random);
    make_square(c, true, 0);
}

void conform_make_inverse(conform_case *c, test_random *random)
{
    make(c, random);
    make_square(c, false, 0);
}

void conform_make_determinant(conform_case *c, test_random *random)
{
    c->params.determinant.log = c->typical ? 0 : (uint32_t)test_random_below(random, 2);
    make(c, random);
}

/* Of solve, QR, SVD and eigenvalues: any matrices will do. */
void conform_make_factors(conform_case *c, test_random *random)
{
    make(c, random);
}

/* ---- judges: products of what came back, in double ---- */

/* A matrix in the judge's hands; `t` transposed ones are read with their sides exchanged. */
typedef struct matrix {
    uint64_t rows, columns;
    const double *at;
    bool t;
} matrix;

static double get(const matrix *a, uint64_t r, uint64_t c)
{
    return a->t ? a->at[c * a->columns + r] : a->at[r * a->columns + c];
}

static double all_of(const matrix *a)
{
    double sum = 0;

    for (uint64_t i = 0; i < a->rows * a->columns; i++)
        sum += a->at[i] * a->at[i];
    return sqrt(sum);
}

/* Whether a diag(d) b = want (d NULL: ones; want NULL: ones on the diagonal), within `room` of a's length times b's. */
static bool is_product(const matrix *a, const double *d, const matrix *b, const matrix *want, double room,
                       const char *what, char *why)
{
    const uint64_t rows = a->t ? a->columns : a->rows, columns = b->t ? b->rows : b->columns,
                   inner = a->t ? a->rows : a->columns;
    double most = 0;

    for (uint64_t i = 0; d != NULL && i < inner; i++)
        most = fmax(most, fabs(d[i]));
    room *= all_of(a) * all_of(b) * (d != NULL ? most : 1);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++) {
            double sum = 0;
            const double wanted = want != NULL ? get(want, r, c) : (double)(r == c);

            for (uint64_t i = 0; i < inner; i++)
                sum += get(a, r, i) * (d != NULL ? d[i] : 1) * get(b, i, c);
            if (fabs(sum - wanted) <= room)
                continue;
            snprintf(why, CONFORM_TEXT, "%s: (%llu, %llu) is %.9g, not %.9g, off by %.3g, allowed %.3g", what,
                     (unsigned long long)r, (unsigned long long)c, sum, wanted, fabs(sum - wanted), room);
            return false;
        }
    return true;
}

static bool refuse(const char *what, char *why)
{
    snprintf(why, CONFORM_TEXT, "%s", what);
    return false;
}

/* What one matrix of a case came to: before, of inputs, after, of outputs. */
typedef struct judged {
    conform_case *c;
    uint64_t matrix;
    double room; /* roundings for the sides of a */
    double *value[4];
    matrix part[4];
} judged;

static matrix part_of(const judged *j, uint32_t slot, uint32_t outer)
{
    const test_tensor *t = conform_tensor(j->c, slot);
    matrix a = {t->ndim > outer ? t->shape[outer] : 1, t->ndim > outer + 1 ? t->shape[outer + 1] : 1, NULL,
                false};

    a.at = j->value[slot] + j->matrix * a.rows * a.columns;
    return a;
}

/* The half of a that is read, in `out`; the other half is 0, or with `mirror` the same. */
static matrix half_of(const matrix *a, bool upper, bool unit, bool mirror, double *out)
{
    for (uint64_t r = 0; r < a->rows; r++)
        for (uint64_t c = 0; c < a->columns; c++) {
            const bool read = upper ? c >= r : c <= r;

            out[r * a->columns + c] = r == c && unit ? 1 : read ? get(a, r, c) : mirror ? get(a, c, r) : 0;
        }
    return (matrix){a->rows, a->columns, out, false};
}

static bool is_triangle(const matrix *a, bool upper, double least)
{
    bool fine = true;

    for (uint64_t r = 0; r < a->rows; r++)
        for (uint64_t c = 0; c < a->columns; c++)
            fine = fine && (r == c ? get(a, r, c) >= least : (upper ? c > r : c < r) || get(a, r, c) == 0);
    return fine;
}

static bool judge_determinant(const judged *j, double *work, char *why)
{
    const matrix *a = &j->part[0], *y = &j->part[1];
    const uint64_t n = a->rows;
    long double det = 1;
    double bound = 1;

    memcpy(work, a->at, n * n * sizeof *work);
    for (uint64_t r = 0; r < n; r++) {
        double square = 0;

        for (uint64_t c = 0; c < n; c++)
            square += work[r * n + c] * work[r * n + c];
        bound *= sqrt(square);
    }
    for (uint64_t k = 0; k < n; k++) { /* by columns: the greatest of row k comes first */
        uint64_t best = k;

        for (uint64_t c = k + 1; c < n; c++)
            best = fabs(work[k * n + c]) > fabs(work[k * n + best]) ? c : best;
        for (uint64_t r = 0; r < n && best != k; r++) {
            const double kept = work[r * n + k];

            work[r * n + k] = work[r * n + best];
            work[r * n + best] = kept;
        }
        det *= (long double)(best != k ? -work[k * n + k] : work[k * n + k]);
        for (uint64_t r = k + 1; r < n && work[k * n + k] != 0; r++)
            for (uint64_t c = n; c-- > k;)
                work[r * n + c] -= work[r * n + k] / work[k * n + k] * work[k * n + c];
    }
    const double want = (double)det, eps = j->c->row->factor * eps_of(conform_tensor(j->c, 0)->dtype);
    const double room = eps * fabs(want) + 64 * DBL_EPSILON * (double)(n * n) * bound;
    const double got = y->rows == 2 ? y->at[0] * exp(y->at[1]) : y->at[0];
    if (fabs(got - want) <= room + (y->rows == 2 ? eps * fabs(want) * fabs(y->at[1]) : 0))
        return true;
    snprintf(why, CONFORM_TEXT, "the determinant is %.9g, not %.9g, allowed %.3g", got, want, room);
    return false;
}

static bool judge_svd(const judged *j, char *why)
{
    const matrix *p = j->part;
    const matrix ut = {p[1].rows, p[1].columns, p[1].at, true}, v = {p[3].rows, p[3].columns, p[3].at, true};

    for (uint64_t i = 0; i < p[2].rows; i++)
        if (!(p[2].at[i] >= 0) || (i > 0 && p[2].at[i] > p[2].at[i - 1]))
            return refuse("singular values do not descend to 0", why);
    return is_product(&p[1], p[2].at, &p[3], &p[0], j->room, "u s vt", why) &&
           is_product(&ut, NULL, &p[1], NULL, j->room, "u^T u", why) &&
           is_product(&p[3], NULL, &v, NULL, j->room, "vt v", why);
}

static bool judge_one(const judged *j, double *work, char *why)
{
    const matrix *p = j->part;
    const mica_triangular_params *t = &j->c->params.triangular;
    matrix a, b;

    switch (j->c->row->op) {
    case MICA_OP_TRIANGULAR_SOLVE:
        a = half_of(&p[0], t->upper != 0, t->unit != 0, false, work);
        a.t = t->transpose != 0;
        return is_product(&a, NULL, &p[2], &p[1], j->room, "a x", why);
    case MICA_OP_CHOLESKY:
        a = half_of(&p[0], j->c->params.cholesky.upper != 0, false, true, work);
        b = p[1];
        b.t = true;
        if (!is_triangle(&p[1], j->c->params.cholesky.upper != 0, DBL_MIN))
            return refuse("y is no triangle above 0", why);
        return j->c->params.cholesky.upper != 0 ? is_product(&b, NULL, &p[1], &a, j->room, "y^T y", why)
                                                : is_product(&p[1], NULL, &b, &a, j->room, "y y^T", why);
    case MICA_OP_SOLVE: return is_product(&p[0], NULL, &p[2], &p[1], j->room, "a x", why);
    case MICA_OP_INVERSE: return is_product(&p[0], NULL, &p[1], NULL, j->room, "a y", why);
    case MICA_OP_DETERMINANT: return judge_determinant(j, work, why);
    case MICA_OP_QR:
        b = p[1];
        b.t = true;
        if (!is_triangle(&p[2], true, 0))
            return refuse("r is no triangle from 0 up", why);
        return is_product(&p[1], NULL, &p[2], &p[0], j->room, "q r", why) &&
               is_product(&b, NULL, &p[1], NULL, j->room, "q^T q", why);
    case MICA_OP_EIGH:
        a = half_of(&p[0], false, false, true, work);
        b = p[2];
        b.t = true;
        for (uint64_t i = 1; i < p[1].rows; i++)
            if (!(p[1].at[i] >= p[1].at[i - 1]))
                return refuse("eigenvalues do not ascend", why);
        return is_product(&p[2], p[1].at, &b, &a, j->room, "v w v^T", why) &&
               is_product(&b, NULL, &p[2], NULL, j->room, "v^T v", why);
    default: return judge_svd(j, why);
    }
}

/* The judge multiplies back; nothing is to be known before. */
void conform_oracle_linear(conform_case *c)
{
    (void)c;
}

bool conform_judge_linear(conform_case *c, char *why)
{
    const test_tensor *a = conform_tensor(c, 0);
    const uint32_t outer = a->ndim - 2;
    const uint64_t m = a->shape[outer], n = a->shape[outer + 1], most = m > n ? m : n;
    judged j = {.c = c};
    bool fine = true;

    j.room = c->row->factor * eps_of(a->dtype) * (a->dtype == MICA_DTYPE_F64 ? (double)(most + 4) : 1);
    for (uint32_t i = 0; i < c->operand_count; i++) /* an input that is written was read first */
        j.value[i] = test_tensor_values(conform_tensor(c, i), i >= c->output);
    double *work = test_alloc(m * n, sizeof *work);
    for (; j.matrix < a->count / (m * n) && fine; j.matrix++) {
        for (uint32_t i = 0; i < c->operand_count; i++)
            j.part[i] = part_of(&j, i, outer);
        fine = judge_one(&j, work, why);
    }
    for (uint32_t i = 0; i < c->operand_count; i++)
        free(j.value[i]);
    free(work);
    return fine;
}
