/* linear.c - linear algebra of one matrix at a time, in f64. */
#include "backend/cpu/cpu_linear.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/linear/elimination.h"
#include "backend/cpu/kernels/linear/symmetric.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

/* A matrix on its way: the operands' places, and the thread's memory that is left. */
typedef struct job {
    const mica__cpu_linear *params;
    const mica__cpu_view *view;
    unsigned char *at[MICA__CPU_LINEAR_PARTS];
    double *free;
} job;

static double *take(job *j, uint64_t count)
{
    double *memory = j->free;
    j->free += count;
    return memory;
}

/* What is left, for elimination and eigenvalues: the plan keeps it behind all matrices. */
static double *work_of(job *j)
{
    return j->free;
}

/* A row of numbers; false where one of them is not finite. */
static inline bool load_row(const unsigned char *from, uint16_t dtype, uint64_t step, uint64_t n, double *to)
{
    uint32_t worst = 0;
    if (dtype == MICA_DTYPE_F64) {
        bool finite = true;
        for (uint64_t c = 0; c < n; c++) {
            memcpy(&to[c], from + c * step, sizeof *to);
            finite = finite && isfinite(to[c]);
        }
        return finite;
    }
    for (uint64_t c = 0; c < n; c++) {
        uint32_t bits;
        const float narrow = row_element(from + c * step, dtype);
        memcpy(&bits, &narrow, sizeof bits);
        bits &= INT32_MAX;
        worst = bits > worst ? bits : worst;
        to[c] = (double)narrow;
    }
    return worst < 0x7f800000u;
}

static double *load(job *j, uint32_t o, bool *finite)
{
    const mica__cpu_linear_part *part = &j->params->part[o];
    const uint16_t dtype = j->view[o].dtype;
    const bool side = dtype == MICA_DTYPE_F32 && part->column_step == sizeof(float);
    double *out = take(j, part->rows * part->columns), *to = out;
    for (uint64_t r = 0; r < part->rows; r++, to += part->columns) {
        const unsigned char *from = j->at[o] + r * part->row_step;
        const bool fine = side ? load_row(from, MICA_DTYPE_F32, sizeof(float), part->columns, to)
                               : load_row(from, dtype, part->column_step, part->columns, to);
        *finite = *finite && fine;
    }
    return out;
}

static inline void store_row(unsigned char *to, uint16_t dtype, uint64_t step, const double *from,
                             uint64_t column, uint64_t n)
{
    for (uint64_t c = 0; c < n; c++) {
        const double value = from[c * column];
        const float narrow = (float)value;
        if (dtype == MICA_DTYPE_F64)
            memcpy(to + c * step, &value, sizeof value);
        else
            row_store(to + c * step, dtype, &narrow, 1);
    }
}

/* Element (r, c) is at from[r * row + c * column]; NULL: all are NaN. */
static void store(const job *j, uint32_t o, const double *from, uint64_t row, uint64_t column)
{
    const mica__cpu_linear_part *part = &j->params->part[o];
    const uint16_t dtype = j->view[o].dtype;
    const bool side = column == 1 && dtype == MICA_DTYPE_F32 && part->column_step == sizeof(float);
    const double nan = (double)NAN;
    for (uint64_t r = 0; r < part->rows; r++) {
        unsigned char *to = j->at[o] + r * part->row_step;
        if (from == NULL)
            store_row(to, dtype, part->column_step, &nan, 0, part->columns);
        else if (side)
            store_row(to, MICA_DTYPE_F32, sizeof(float), from + r * row, 1, part->columns);
        else
            store_row(to, dtype, part->column_step, from + r * row, column, part->columns);
    }
}

/* The half of a [n, n] that is not read becomes that which is, or with `zero` 0: what stands there says nothing. */
static bool take_half(double *a, uint64_t n, bool upper, bool unit, bool zero)
{
    bool finite = true;
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t k = 0; k < i; k++) {
            double *read = upper ? &a[k * n + i] : &a[i * n + k],
                   *other = upper ? &a[i * n + k] : &a[k * n + i];
            *other = zero ? 0 : *read;
            finite = finite && isfinite(*read);
        }
        finite = finite && (unit || isfinite(a[i * n + i]));
    }
    return finite;
}

static void run_triangular(job *j)
{
    const mica_triangular_params *params = &j->params->triangular;
    const uint64_t n = j->params->part[0].rows, m = j->params->part[1].columns;
    bool whole = true, finite = true;
    double *a = load(j, 0, &whole), *b = load(j, 1, &finite);
    const bool fine = take_half(a, n, params->upper != 0, params->unit != 0, true) && finite &&
                      solve_triangular(a, n, b, m, params, work_of(j));
    store(j, 2, fine ? b : NULL, m, 1);
}

static void run_cholesky(job *j)
{
    const uint64_t n = j->params->part[0].rows;
    const bool upper = j->params->triangular.upper != 0;
    bool whole = true;
    double *a = load(j, 0, &whole);
    const bool fine = take_half(a, n, upper, false, false) && factor_cholesky(a, n, work_of(j));
    store(j, 1, fine ? a : NULL, upper ? 1 : n, upper ? n : 1);
}

static void run_solve(job *j)
{
    const uint64_t n = j->params->part[0].rows, m = j->params->part[1].columns;
    bool finite = true;
    double *a = load(j, 0, &finite), *b = load(j, 1, &finite);
    store(j, 2, finite && solve_general(a, n, b, m, work_of(j)) ? b : NULL, m, 1);
}

static void run_inverse(job *j)
{
    const uint64_t n = j->params->part[0].rows;
    bool finite = true;
    double *a = load(j, 0, &finite), *b = take(j, n * n);
    for (uint64_t i = 0; i < n * n; i++)
        b[i] = i % (n + 1) == 0;
    store(j, 1, finite && solve_general(a, n, b, n, work_of(j)) ? b : NULL, n, 1);
}

static void run_determinant(job *j)
{
    bool finite = true;
    double *a = load(j, 0, &finite), out[2];
    find_determinant(a, j->params->part[0].rows, j->params->triangular.unit != 0, out, work_of(j));
    store(j, 1, finite ? out : NULL, 1, 1);
}

static void run_qr(job *j)
{
    const uint64_t m = j->params->part[0].rows, n = j->params->part[0].columns, k = m < n ? m : n;
    bool finite = true;
    double *a = load(j, 0, &finite), *q = take(j, m * k), *reflections = take(j, m * k), *sizes = take(j, k);
    if (finite)
        factor_qr(a, m, n, q, reflections, sizes, work_of(j));
    store(j, 1, finite ? q : NULL, k, 1);
    store(j, 2, finite ? a : NULL, n, 1);
}

/* A power of two of about the greatest magnitude: over it no square leaves the range. */
static double scale_of(const double *a, uint64_t count)
{
    double most = 0;
    for (uint64_t i = 0; i < count; i++)
        most = fmax(most, fabs(a[i]));
    return most > 0 ? ldexp(1, ilogb(most)) : 1;
}

/* The order of k values, into `order`: ascending, or descending. */
static void sort(const double *value, uint64_t k, bool descending, double *order)
{
    for (uint64_t i = 0; i < k; i++) {
        uint64_t at = i;
        for (; at > 0; at--) {
            const double before = value[(uint64_t)order[at - 1]];
            if (descending ? before >= value[i] : before <= value[i])
                break;
            order[at] = order[at - 1];
        }
        order[at] = (double)i;
    }
}

static void run_eigh(job *j)
{
    const uint64_t n = j->params->part[0].rows;
    bool whole = true;
    double *a = load(j, 0, &whole), *v = take(j, n * n), *out = take(j, n * n), *w = take(j, n),
           *order = take(j, n);
    bool found = take_half(a, n, false, false, false);
    if (found) {
        const double scale = scale_of(a, n * n);
        for (uint64_t i = 0; i < n * n; i++)
            a[i] /= scale;
        found = find_eigen(a, n, w, v, out, work_of(j));
        for (uint64_t i = 0; i < n; i++)
            w[i] *= scale;
    }
    if (!found) {
        store(j, 1, NULL, 0, 0);
        store(j, 2, NULL, 0, 0);
        return;
    }
    sort(w, n, false, order);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t from = (uint64_t)order[i];
        a[i] = w[from];
        memcpy(out + i * n, v + from * n, n * sizeof *v);
    }
    store(j, 1, a, 1, 1);
    store(j, 2, out, 1, n);
}

/* to [rows, columns] = -(by [rows, count] times from [count, columns]), a row of work memory at a time. */
static void multiply_rows(const double *by, const double *from, uint64_t rows, uint64_t count,
                          uint64_t columns, double *to, double *row)
{
    for (uint64_t i = 0; i < rows; i++) {
        memset(row, 0, mica__cpu_linear_step(columns) * sizeof *row);
        subtract_rows(row, from, columns, by + i * count, 1, count, columns);
        memcpy(to + i * columns, row, columns * sizeof *to);
    }
}

/* Turns the rows of w [k, m] into nearly orthogonal ones by the eigenvectors of w w^T, the rows of v [k, k]: sweeps of rotations then have little left to
 * do. They are what makes small values right, of which squares say nothing. `turned` [m, k] is w^T. */
static void prepare_rows(job *j, double *w, uint64_t k, uint64_t m, double *v, double *turned)
{
    double *squares = take(j, k * k), *q = take(j, k * k), *values = take(j, k), *work = work_of(j);
    multiply_rows(w, turned, k, m, k, squares, work); /* negative: the vectors are the same */
    if (!find_eigen(squares, k, values, v, q, work)) {
        memset(v, 0, k * k * sizeof *v);
        for (uint64_t i = 0; i < k; i++)
            v[i * k + i] = 1;
        return;
    }
    multiply_rows(v, w, k, k, m, turned, work);
    memcpy(w, turned, k * m * sizeof *w);
    for (uint64_t i = 0; i < k * k; i++)
        v[i] = -v[i];
}

/* The rows of w [k, m], largest first, as unit vectors into u and their lengths into s; the rows of v [k, k] likewise into vt. */
static void order_values(const double *w, const double *v, uint64_t k, uint64_t m, double *order, double *s,
                         double *u, double *vt)
{
    double *sizes = order + k;
    for (uint64_t i = 0; i < k; i++)
        sizes[i] = sqrt(dot(w + i * m, w + i * m, m));
    sort(sizes, k, true, order);
    for (uint64_t i = 0; i < k; i++) {
        const uint64_t from = (uint64_t)order[i];
        s[i] = sizes[from];
        memcpy(vt + i * k, v + from * k, k * sizeof *v);
        if (s[i] <= sizes[(uint64_t)order[0]] * DBL_EPSILON * (double)m) /* its direction is noise */
            complete_row(u, i, m);
        else
            for (uint64_t c = 0; c < m; c++)
                u[i * m + c] = w[from * m + c] / s[i];
    }
}

/* The shorter side of a as rows w: with as many rows as columns or more a^T = w, and the rotations of w are those of v. */
static void run_svd(job *j)
{
    const uint64_t rows = j->params->part[0].rows, columns = j->params->part[0].columns;
    const bool tall = rows >= columns;
    const uint64_t k = tall ? columns : rows, m = tall ? rows : columns;
    bool finite = true;
    double *a = load(j, 0, &finite), *w = take(j, k * m), *v = take(j, k * k), *vt = take(j, k * k);
    double *order = take(j, 2 * k), *s = take(j, k);
    for (uint32_t o = 1; o <= 3 && !finite; o++)
        store(j, o, NULL, 0, 0);
    if (!finite)
        return;
    const double scale = scale_of(a, k * m);
    for (uint64_t i = 0; i < k; i++)
        for (uint64_t c = 0; c < m; c++)
            w[i * m + c] = (tall ? a[c * k + i] : a[i * m + c]) / scale;
    for (uint64_t i = 0; i < k; i++)
        for (uint64_t c = 0; c < m; c++)
            a[c * k + i] = w[i * m + c];
    prepare_rows(j, w, k, m, v, a);
    orthogonalise(w, k, m, v, s);
    order_values(w, v, k, m, order, s, a, vt); /* a becomes u, row by row */
    for (uint64_t i = 0; i < k; i++)
        s[i] *= scale;
    store(j, 2, s, 1, 1);
    store(j, tall ? 1 : 3, a, tall ? 1 : m, tall ? m : 1);
    store(j, tall ? 3 : 1, vt, tall ? k : 1, tall ? 1 : k);
}

void MICA__ISA(linear)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_linear *params = args->params;
    uint64_t matrix = mica__cpu_rows_begin(&params->range, first);
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    walk w;
    walk_begin(&w, args->view, args->view_count, args->view->ndim, matrix);
    for (; matrix < end; matrix++, walk_next(&w)) {
        job j = {.params = params, .view = args->view, .free = args->local};
        for (uint32_t o = 0; o < args->view_count; o++)
            j.at[o] = walk_at(&w, o);
        switch (params->op) {
        case MICA_OP_TRIANGULAR_SOLVE: run_triangular(&j); break;
        case MICA_OP_CHOLESKY: run_cholesky(&j); break;
        case MICA_OP_SOLVE: run_solve(&j); break;
        case MICA_OP_INVERSE: run_inverse(&j); break;
        case MICA_OP_DETERMINANT: run_determinant(&j); break;
        case MICA_OP_QR: run_qr(&j); break;
        case MICA_OP_EIGH: run_eigh(&j); break;
        default: run_svd(&j); break;
        }
    }
}
