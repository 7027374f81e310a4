/*
 * test_linear.c - linear algebra beside numpy's, and where there is no result: singular, not positive definite, NaN. On the cpu.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "model/golden_file.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

enum { MOST = 1024 };
static mica_device *device;
static char *golden;

static int open_device(void **state)
{
    (void)state;
    return mica_device_open("cpu", NULL, &device) == MICA_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    mica_device_release(device);
    return mica_host_bytes() == 0 ? 0 : -1;
}

#define SHAPE(...)  \
    (uint64_t[])    \
    {               \
        __VA_ARGS__ \
    }

static mica_buffer *made(uint32_t ndim, const uint64_t *shape, const double *values)
{
    mica_buffer *buffer;
    mica_buffer_info info;

    must(mica_buffer_alloc(device, MICA_DTYPE_F64, ndim, shape, &buffer));
    must(mica_buffer_get_info(buffer, &info));
    if (values != NULL)
        must(mica_buffer_write(buffer, 0, values, info.byte_length));
    return buffer;
}

static uint64_t take(mica_buffer *buffer, double *values)
{
    mica_buffer_info info;

    must(mica_buffer_get_info(buffer, &info));
    must(mica_buffer_read(buffer, 0, values, info.byte_length));
    mica_buffer_release(buffer);
    return info.element_count;
}

static mica_encoder *begin(void)
{
    mica_encoder *encoder;

    must(mica_encoder_begin(device, NULL, &encoder));
    return encoder;
}

static void run(mica_encoder *encoder)
{
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
}

/* Numbers of about 1 of matrices that are far from singular, written with 12 digits. */
static void near(const char *key, mica_buffer *y)
{
    double got[MOST], want[MOST];
    const uint64_t count = take(y, got);

    assert_int_equal(golden_list(golden, key, want, MOST), count);
    for (uint64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-9 * fmax(1, fabs(want[i]))))
            fail_msg("%s: %llu is %.12g, numpy has %.12g", key, (unsigned long long)i, got[i], want[i]);
}

static void test_numpy(void **state)
{
    double a[MOST], b[MOST], p[MOST], g[MOST];
    const mica_determinant_params log_of = {.log = 1};
    const mica_triangular_params upper = {.upper = 1, .transpose = 1};
    mica_encoder *encoder = begin();

    (void)state;
    assert_int_equal(golden_list(golden, "\"a\"", a, MOST), 3 * 5 * 5);
    assert_int_equal(golden_list(golden, "\"b\"", b, MOST), 3 * 5 * 2);
    assert_int_equal(golden_list(golden, "\"definite\"", p, MOST), 3 * 5 * 5);
    assert_int_equal(golden_list(golden, "\"tall\"", g, MOST), 6 * 4);
    mica_buffer *in[] = {made(3, SHAPE(3, 5, 5), a), made(3, SHAPE(3, 5, 2), b), made(3, SHAPE(3, 5, 5), p),
                         made(2, SHAPE(6, 4), g)};
    mica_buffer *out[] = {
        made(3, SHAPE(3, 5, 2), NULL), made(3, SHAPE(3, 5, 5), NULL), made(1, SHAPE(3), NULL),
        made(2, SHAPE(3, 2), NULL),    made(3, SHAPE(3, 5, 5), NULL), made(3, SHAPE(3, 5, 2), NULL),
        made(2, SHAPE(3, 5), NULL),    made(3, SHAPE(3, 5, 5), NULL), made(2, SHAPE(6, 4), NULL),
        made(2, SHAPE(4, 4), NULL),    made(2, SHAPE(6, 4), NULL),    made(1, SHAPE(4), NULL),
        made(2, SHAPE(4, 4), NULL)};
    must(mica_solve(encoder, in[0], in[1], out[0]));
    must(mica_inverse(encoder, in[0], out[1]));
    must(mica_determinant(encoder, in[0], NULL, out[2]));
    must(mica_determinant(encoder, in[0], &log_of, out[3]));
    must(mica_cholesky(encoder, in[2], NULL, out[4]));
    must(mica_triangular_solve(encoder, in[2], in[1], &upper, out[5]));
    must(mica_eigh(encoder, in[2], out[6], out[7]));
    must(mica_qr(encoder, in[3], out[8], out[9]));
    must(mica_svd(encoder, in[3], out[10], out[11], out[12]));
    run(encoder);
    near("\"solve\"", out[0]);
    near("\"inverse\"", out[1]);
    near("\"determinant\"", out[2]);
    near("\"slogdet\"", out[3]);
    near("\"cholesky\"", out[4]);
    near("\"triangular\"", out[5]);
    near("\"eigenvalues\"", out[6]);
    near("\"q\"", out[8]);
    near("\"r\"", out[9]);
    near("\"singular values\"", out[11]);
    mica_buffer_release(out[7]);
    mica_buffer_release(out[10]);
    mica_buffer_release(out[12]);
    for (int i = 0; i < 4; i++)
        mica_buffer_release(in[i]);
}

static void all_nan(const double *x, uint64_t from, uint64_t count, bool nan)
{
    for (uint64_t i = from; i < from + count; i++)
        assert_true(nan ? isnan(x[i]) : isfinite(x[i]));
}

/* Of three matrices the first has a result, the second is singular (and not definite), the third has an infinity. */
static void test_without_result(void **state)
{
    const double a[] = {4, 1, 1, 3, 1, 2, 2, 4, 1, (double)INFINITY, (double)INFINITY, 2};
    const double zero[] = {2, 0, 1, 3, 0, 5, 1, 1, 1, 0, 1, 1}, b[] = {1, 2, 3, 4, 5, 6};
    const mica_determinant_params log_of = {.log = 1};
    double x[6], y[12], d[6], u[12], s[6], v[12];
    mica_encoder *encoder = begin();
    mica_buffer *in = made(3, SHAPE(3, 2, 2), a), *lower = made(3, SHAPE(3, 2, 2), zero),
                *right = made(3, SHAPE(3, 2, 1), b);
    mica_buffer *out[] = {made(3, SHAPE(3, 2, 1), NULL), made(3, SHAPE(3, 2, 2), NULL),
                          made(3, SHAPE(3, 2, 2), NULL), made(2, SHAPE(3, 2), NULL),
                          made(3, SHAPE(3, 2, 1), NULL), made(3, SHAPE(3, 2, 2), NULL),
                          made(2, SHAPE(3, 2), NULL),    made(3, SHAPE(3, 2, 2), NULL)};

    (void)state;
    must(mica_solve(encoder, in, right, out[0]));
    must(mica_inverse(encoder, in, out[1]));
    must(mica_cholesky(encoder, in, NULL, out[2]));
    must(mica_determinant(encoder, in, &log_of, out[3]));
    must(mica_triangular_solve(encoder, lower, right, NULL, out[4]));
    must(mica_svd(encoder, in, out[5], out[6], out[7]));
    run(encoder);
    take(out[0], x);
    all_nan(x, 0, 2, false);
    all_nan(x, 2, 4, true);
    take(out[1], y);
    all_nan(y, 0, 4, false);
    all_nan(y, 4, 8, true);
    take(out[2], y);
    all_nan(y, 0, 4, false);
    all_nan(y, 4, 8, true);
    take(out[3], d);
    assert_true(d[0] == 1 && fabs(d[1] - log(11)) < 1e-14 && d[2] == 0 && d[3] == -(double)INFINITY &&
                isnan(d[4]) && isnan(d[5]));
    take(out[4], x);
    all_nan(x, 0, 2, false);
    all_nan(x, 2, 2, true); /* 0 on the diagonal */
    all_nan(x, 4, 2, false);
    take(out[5], u);
    take(out[6], s);
    take(out[7], v);
    all_nan(u, 0, 8, false);
    all_nan(s, 0, 4, false);
    all_nan(v, 8, 4, true);
    assert_true(fabs(s[2] - 5) < 1e-14 && s[3] < 1e-14);
    mica_buffer_release(in);
    mica_buffer_release(lower);
    mica_buffer_release(right);
}

/* ---- matrices of several blocks: what comes back, multiplied together again ---- */

enum { WIDE = 150, NARROW = 70 };

/* A matrix of doubles; turned: what is read is its transpose. */
typedef struct matrix {
    uint64_t rows, columns;
    double *at;
    bool turned;
} matrix;

static matrix matrix_of(uint64_t rows, uint64_t columns)
{
    const matrix m = {rows, columns, test_alloc(rows * columns, sizeof *m.at), false};

    return m;
}

static double element(const matrix *m, uint64_t r, uint64_t c)
{
    return m->turned ? m->at[c * m->columns + r] : m->at[r * m->columns + c];
}

static matrix turned(matrix m)
{
    m.turned = !m.turned;
    return m;
}

/* a b is `want`, or ones on the diagonal for NULL; by [k], or NULL, stands between them. */
static void product_is(const char *what, matrix a, const double *by, matrix b, const matrix *want)
{
    const uint64_t rows = a.turned ? a.columns : a.rows, inner = a.turned ? a.rows : a.columns,
                   columns = b.turned ? b.rows : b.columns;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++) {
            const double wanted = want != NULL ? element(want, r, c) : r == c;
            double sum = 0, size = 1;

            for (uint64_t k = 0; k < inner; k++) {
                const double term = element(&a, r, k) * (by != NULL ? by[k] : 1) * element(&b, k, c);
                sum += term;
                size += fabs(term);
            }
            if (!(fabs(sum - wanted) <= 1e-13 * WIDE * size))
                fail_msg("%s: (%llu, %llu) comes to %.17g, expected %.17g", what, (unsigned long long)r,
                         (unsigned long long)c, sum, wanted);
        }
}

static matrix taken(uint64_t rows, uint64_t columns, mica_buffer *buffer)
{
    const matrix m = matrix_of(rows, columns);

    take(buffer, m.at);
    return m;
}

static void draw(test_random *random, matrix m)
{
    for (uint64_t i = 0; i < m.rows * m.columns; i++)
        m.at[i] = test_random_normal(random);
}

static void factors(test_random *random)
{
    const matrix a = matrix_of(WIDE, WIDE), p = matrix_of(WIDE, WIDE), b = matrix_of(WIDE, NARROW);
    const mica_triangular_params transposed = {.transpose = 1};
    const mica_determinant_params log_of = {.log = 1};
    double volume[2], logs = 0;
    mica_encoder *encoder = begin();

    draw(random, a);
    draw(random, b);
    for (uint64_t r = 0; r < WIDE; r++)
        for (uint64_t c = 0; c < WIDE; c++) {
            p.at[r * WIDE + c] = r == c;
            for (uint64_t k = 0; k < WIDE; k++)
                p.at[r * WIDE + c] += a.at[r * WIDE + k] * a.at[c * WIDE + k] / WIDE;
        }
    mica_buffer *in[] = {made(2, SHAPE(WIDE, WIDE), a.at), made(2, SHAPE(WIDE, WIDE), p.at),
                         made(2, SHAPE(WIDE, NARROW), b.at)};
    mica_buffer *out[] = {made(2, SHAPE(WIDE, WIDE), NULL),   made(2, SHAPE(WIDE, NARROW), NULL),
                          made(2, SHAPE(WIDE, NARROW), NULL), made(1, SHAPE(2), NULL),
                          made(1, SHAPE(WIDE), NULL),         made(2, SHAPE(WIDE, WIDE), NULL)};
    must(mica_cholesky(encoder, in[1], NULL, out[0]));
    must(mica_solve(encoder, in[0], in[2], out[1]));
    must(mica_triangular_solve(encoder, out[0], in[2], &transposed, out[2]));
    must(mica_determinant(encoder, in[1], &log_of, out[3]));
    must(mica_eigh(encoder, in[1], out[4], out[5]));
    run(encoder);
    const matrix lower = taken(WIDE, WIDE, out[0]), x = taken(WIDE, NARROW, out[1]),
                 y = taken(WIDE, NARROW, out[2]), w = taken(WIDE, 1, out[4]), v = taken(WIDE, WIDE, out[5]);
    take(out[3], volume);
    for (uint64_t r = 0; r < WIDE; r++) {
        logs += 2 * log(lower.at[r * WIDE + r]);
        for (uint64_t c = r + 1; c < WIDE; c++)
            assert_true(lower.at[r * WIDE + c] == 0);
        assert_true(r == 0 || w.at[r] >= w.at[r - 1]);
    }
    assert_true(volume[0] == 1 && fabs(volume[1] - logs) <= 1e-10);
    product_is("cholesky", lower, NULL, turned(lower), &p);
    product_is("solve", a, NULL, x, &b);
    product_is("triangular_solve", turned(lower), NULL, y, &b);
    product_is("eigenvectors", turned(v), NULL, v, NULL);
    product_is("eigh", v, w.at, turned(v), &p);
    for (int i = 0; i < 3; i++)
        mica_buffer_release(in[i]);
    const matrix all[] = {a, p, b, lower, x, y, w, v};
    for (uint64_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i].at);
}

/* Columns that depend on each other are among them: values of 0. */
static void orthogonal(test_random *random, uint64_t rows, uint64_t columns)
{
    const uint64_t k = rows < columns ? rows : columns;
    const matrix a = matrix_of(rows, columns);
    mica_encoder *encoder = begin();

    draw(random, a);
    for (uint64_t r = 0; r < rows; r++)
        a.at[r * columns + 1] = a.at[r * columns];
    mica_buffer *in = made(2, SHAPE(rows, columns), a.at);
    mica_buffer *out[] = {made(2, SHAPE(rows, k), NULL), made(2, SHAPE(k, columns), NULL),
                          made(2, SHAPE(rows, k), NULL), made(1, SHAPE(k), NULL),
                          made(2, SHAPE(k, columns), NULL)};
    must(mica_qr(encoder, in, out[0], out[1]));
    must(mica_svd(encoder, in, out[2], out[3], out[4]));
    run(encoder);
    const matrix q = taken(rows, k, out[0]), r = taken(k, columns, out[1]), u = taken(rows, k, out[2]),
                 s = taken(k, 1, out[3]), vt = taken(k, columns, out[4]);
    product_is("qr", q, NULL, r, &a);
    product_is("q", turned(q), NULL, q, NULL);
    product_is("svd", u, s.at, vt, &a);
    product_is("u", turned(u), NULL, u, NULL);
    product_is("vt", vt, NULL, turned(vt), NULL);
    for (uint64_t i = 1; i < k; i++)
        assert_true(s.at[i] >= 0 && s.at[i] <= s.at[i - 1]);
    mica_buffer_release(in);
    const matrix all[] = {a, q, r, u, s, vt};
    for (uint64_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i].at);
}

static void test_blocks(void **state)
{
    test_random random = test_random_from(17);

    (void)state;
    factors(&random);
    orthogonal(&random, WIDE, NARROW);
    orthogonal(&random, NARROW, WIDE);
    orthogonal(&random, NARROW + 1, NARROW + 1);
}

static void test_refused(void **state)
{
    const mica_triangular_params upper = {.upper = 2}, unit = {.unit = 2}, transpose = {.transpose = 2};
    const mica_cholesky_params half = {2};
    const mica_determinant_params log_of = {2};
    mica_encoder *encoder = begin();
    mica_buffer *a = made(2, SHAPE(3, 3), NULL), *b = made(2, SHAPE(3, 3), NULL),
                *y = made(1, SHAPE(3), NULL);

    (void)state;
    refused(mica_triangular_solve(encoder, a, b, &upper, b), MICA_ERR_INVALID_ARGUMENT, "params.upper");
    refused(mica_triangular_solve(encoder, a, b, &unit, b), MICA_ERR_INVALID_ARGUMENT, "params.unit");
    refused(mica_triangular_solve(encoder, a, b, &transpose, b), MICA_ERR_INVALID_ARGUMENT,
            "params.transpose");
    refused(mica_cholesky(encoder, a, &half, b), MICA_ERR_INVALID_ARGUMENT, "params.upper");
    refused(mica_determinant(encoder, a, &log_of, y), MICA_ERR_INVALID_ARGUMENT, "params.log");
    refused(mica_determinant(encoder, a, NULL, y), MICA_ERR_INVALID_ARGUMENT, "y");
    run(encoder);
    mica_buffer_release(a);
    mica_buffer_release(b);
    mica_buffer_release(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numpy),
        cmocka_unit_test(test_without_result),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_refused),
    };

    golden = golden_text("tests/golden/linear.json");
    if (golden == NULL)
        return 1;
    const int failed = cmocka_run_group_tests_name("linear", tests, open_device, close_device);
    free(golden);
    return failed;
}
