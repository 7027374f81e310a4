/* oracle_sort.c - scans and order, each result by itself from the elements of its row. */
#include <math.h>

#include "oracle/oracle_ops.h"

/* As numpy: NaN wins; of zeros of two signs the greater is 0. */
static double extreme_of(double a, double b, bool greatest)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    if (a == b)
        return (signbit(a) != 0) == greatest ? b : a;
    return (a > b) == greatest ? a : b;
}

/* Of a product each factor brings a rounding, which is 0.4 of its bound in the mean: twice the root of their number is five times what that
 * adds up to. Elements [0, count) from where the scan begins. `nothing` is the result over none. */
static double scan_one(oracle_scan kind, size_t count, const double *x, ptrdiff_t step, double nothing,
                       double *error)
{
    long double sum = 0, size = 0, product = 1;
    double extreme = nothing;

    for (size_t i = 0; i < count; i++) {
        const double value = x[(ptrdiff_t)i * step];

        sum += (long double)value;
        size += fabsl((long double)value);
        product *= (long double)value;
        extreme = i == 0 ? value : extreme_of(extreme, value, kind == ORACLE_SCAN_MAX);
    }
    *error = ORACLE_EXACT;
    switch (kind) {
    case ORACLE_SCAN_SUM: *error = (double)size * (1 + 0.25 * sqrt((double)count)); return (double)sum;
    case ORACLE_SCAN_PROD: *error = fabs((double)product) * (1 + sqrt((double)count)); return (double)product;
    default: return extreme;
    }
}

/* Each result on its own, so that nothing of it is like the op. */
void oracle_scan_rows(const oracle_scan_case *scan, double *y, double *error)
{
    for (size_t r = 0; r < scan->rows; r++)
        for (size_t i = 0; i < scan->dim; i++) {
            const size_t own = scan->reverse ? scan->dim - 1 - i : i, at = r * scan->dim;
            const double *first = scan->x + at + (scan->reverse ? scan->dim - 1 : 0);

            y[at + i] = scan_one(scan->kind, own + (scan->exclusive ? 0 : 1), first, scan->reverse ? -1 : 1,
                                 scan->nothing, &error[at + i]);
        }
}

void oracle_argmax(size_t rows, size_t dim, const double *x, bool least, double *ids)
{
    for (size_t r = 0; r < rows; r++) {
        const double *row = x + r * dim;
        size_t best = 0;
        bool found = false;

        for (size_t i = 0; i < dim; i++) {
            if (isnan(row[i]) || (found && (least ? row[i] >= row[best] : row[i] <= row[best])))
                continue;
            best = i;
            found = true;
        }
        ids[r] = (double)best;
    }
}

/* Whether element a of the row stands before element b. */
static bool is_before(const double *row, size_t a, size_t b, bool descending)
{
    if (isnan(row[a]) || isnan(row[b]))
        return isnan(row[a]) && isnan(row[b]) ? a < b : isnan(row[b]);
    if (row[a] == row[b])
        return a < b;
    return descending ? row[a] > row[b] : row[a] < row[b];
}

/* An element's place is how many stand before it. */
void oracle_sort(size_t rows, size_t dim, size_t count, const double *x, bool descending, double *ids)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < dim; i++) {
            size_t place = 0;

            for (size_t j = 0; j < dim; j++)
                place += j != i && is_before(x + r * dim, j, i, descending);
            if (place < count)
                ids[r * count + place] = (double)i;
        }
}
