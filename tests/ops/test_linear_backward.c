/*
 * test_linear_backward.c - gradients of linear algebra in double against central differences of the forward, in f32 against double; wrong shapes by name.
 * On the cpu.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "support/each_device.h"
#include "support/random.h"

enum { BATCH = 2, N = 4, M = 6, C = 3, MOST = BATCH * M * M };

/* What the functions under test have: a first operand and perhaps a second, up to three results, gradients of the operands. */
typedef struct problem {
    const char *name;
    uint32_t kind, choice;
    uint64_t in[2], out[3];   /* elements of the operands and of the results, of all matrices */
    uint64_t in_shape[2][2];  /* of a matrix; second operand 0: none */
    uint64_t out_shape[3][2]; /* first size 0: a vector; both 0: a number */
    bool symmetric;           /* a_ij and a_ji move together */
} problem;

enum { TRIANGULAR, SOLVE, INVERSE, DETERMINANT, CHOLESKY, QR, EIGH, SVD };

static mica_buffer *made(mica_dtype dtype, uint64_t front, uint64_t rows, uint64_t columns, const double *x)
{
    uint64_t shape[4], count = 1;
    uint32_t ndim = 0;
    mica_buffer *buffer = NULL;
    float narrow[MOST * 3];

    if (front != 0)
        shape[ndim++] = front;
    shape[ndim++] = BATCH;
    if (rows != 0)
        shape[ndim++] = rows;
    if (columns != 0)
        shape[ndim++] = columns;
    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    assert_true(count <= MOST * 3);
    must(mica_buffer_alloc(devices[0], dtype, ndim, shape, &buffer));
    for (uint64_t i = 0; x != NULL && i < count; i++)
        narrow[i] = (float)x[i];
    if (x != NULL)
        must(mica_buffer_write(buffer, 0, dtype == MICA_DTYPE_F64 ? (const void *)x : narrow,
                               count * (dtype == MICA_DTYPE_F64 ? 8 : 4)));
    return buffer;
}

static void take(mica_buffer *buffer, double *x)
{
    mica_buffer_info info;
    float narrow[MOST];

    must(mica_buffer_get_info(buffer, &info));
    if (info.dtype == MICA_DTYPE_F64) {
        must(mica_buffer_read(buffer, 0, x, info.byte_length));
        return;
    }
    must(mica_buffer_read(buffer, 0, narrow, info.byte_length));
    for (uint64_t i = 0; i < info.element_count; i++)
        x[i] = (double)narrow[i];
}

static void drop(mica_buffer *const *buffers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        mica_buffer_release(buffers[i]);
}

static void add_forward(const problem *p, mica_buffer *const *in, mica_buffer *const *out)
{
    const mica_triangular_params triangular = {p->choice & 1, p->choice >> 1 & 1, p->choice >> 2 & 1};
    const mica_determinant_params determinant = {p->choice};
    const mica_cholesky_params cholesky = {p->choice};

    switch (p->kind) {
    case TRIANGULAR: must(mica_triangular_solve(encoder, in[0], in[1], &triangular, out[0])); break;
    case SOLVE: must(mica_solve(encoder, in[0], in[1], out[0])); break;
    case INVERSE: must(mica_inverse(encoder, in[0], out[0])); break;
    case DETERMINANT: must(mica_determinant(encoder, in[0], &determinant, out[0])); break;
    case CHOLESKY: must(mica_cholesky(encoder, in[0], &cholesky, out[0])); break;
    case QR: must(mica_qr(encoder, in[0], out[0], out[1])); break;
    case EIGH: must(mica_eigh(encoder, in[0], out[0], out[1])); break;
    default: must(mica_svd(encoder, in[0], out[0], out[1], out[2]));
    }
}

static void add_backward(const problem *p, mica_dtype t, mica_buffer *const *in, mica_buffer *const *out,
                         mica_buffer *const *dout, mica_buffer *const *din)
{
    const mica_triangular_params triangular = {p->choice & 1, p->choice >> 1 & 1, p->choice >> 2 & 1};
    const mica_determinant_params determinant = {p->choice};
    const mica_cholesky_params cholesky = {p->choice};
    const uint64_t rows = p->in_shape[0][0], columns = p->in_shape[0][1], k = rows < columns ? rows : columns;
    const mica_svd_gradients svd = {out[0], out[1], out[2], dout[0], dout[1], dout[2]};
    mica_buffer *work = made(t, 0, k, k, NULL), *two = made(t, 2, k, k, NULL),
                *three = made(t, 3, k, k, NULL), *tall = made(t, 2, rows, k, NULL);

    switch (p->kind) {
    case TRIANGULAR:
        must(mica_triangular_solve_backward(encoder, in[0], out[0], dout[0], &triangular, din[0], din[1]));
        break;
    case SOLVE: must(mica_solve_backward(encoder, in[0], out[0], dout[0], din[0], din[1])); break;
    case INVERSE: must(mica_inverse_backward(encoder, out[0], dout[0], work, din[0])); break;
    case DETERMINANT:
        must(mica_determinant_backward(encoder, in[0], p->choice != 0 ? NULL : out[0], dout[0], &determinant,
                                       din[0]));
        break;
    case CHOLESKY: must(mica_cholesky_backward(encoder, out[0], dout[0], &cholesky, work, din[0])); break;
    case QR: must(mica_qr_backward(encoder, out[0], out[1], dout[0], dout[1], two, din[0])); break;
    case EIGH: must(mica_eigh_backward(encoder, out[0], out[1], dout[0], dout[1], two, din[0])); break;
    default: must(mica_svd_backward(encoder, &svd, three, tall, din[0]));
    }
    drop((mica_buffer *const[]){work, two, three, tall}, 4);
}

static uint64_t numbers(const uint64_t *shape)
{
    return BATCH * (shape[0] != 0 ? shape[0] : 1) * (shape[1] != 0 ? shape[1] : 1);
}

typedef double values[MOST];

/* Results of the forward; where din is not NULL also gradients for dout. */
static void run(const problem *p, mica_dtype t, values *in, values *out, values *dout, values *din)
{
    mica_buffer *buffer[4][3] = {{NULL}};

    must(mica_encoder_begin(devices[0], NULL, &encoder));
    for (int i = 0; i < 2 && p->in_shape[i][1] != 0; i++) {
        buffer[0][i] = made(t, 0, p->in_shape[i][0], p->in_shape[i][1], in[i]);
        buffer[3][i] = made(t, 0, p->in_shape[i][0], p->in_shape[i][1], NULL);
    }
    for (int o = 0; o < 3 && p->out[o] != 0; o++) {
        buffer[1][o] = made(t, 0, p->out_shape[o][0], p->out_shape[o][1], NULL);
        buffer[2][o] = dout != NULL ? made(t, 0, p->out_shape[o][0], p->out_shape[o][1], dout[o]) : NULL;
    }
    add_forward(p, buffer[0], buffer[1]);
    if (din != NULL)
        add_backward(p, t, buffer[0], buffer[1], buffer[2], buffer[3]);
    end();
    for (int o = 0; o < 3 && p->out[o] != 0; o++)
        take(buffer[1][o], out[o]);
    for (int i = 0; din != NULL && i < 2 && buffer[3][i] != NULL; i++)
        take(buffer[3][i], din[i]);
    for (int i = 0; i < 4; i++)
        drop(buffer[i], 3);
}

/* Signs of vectors are anyone's choice: those that the unchanged matrix has. Vectors k are columns of one result and rows of another, or columns alone. */
static void align(const problem *p, values *base, values *out)
{
    const uint64_t rows = p->in_shape[0][0], columns = p->in_shape[0][1], k = rows < columns ? rows : columns;
    const int vectors = p->kind == EIGH ? 1 : 0;

    for (uint64_t b = 0; (p->kind == EIGH || p->kind == SVD) && b < BATCH; b++)
        for (uint64_t v = 0; v < k; v++) {
            double dot = 0;

            for (uint64_t i = 0; i < rows; i++)
                dot += base[vectors][(b * rows + i) * k + v] * out[vectors][(b * rows + i) * k + v];
            for (uint64_t i = 0; dot < 0 && i < rows; i++)
                out[vectors][(b * rows + i) * k + v] *= -1;
            for (uint64_t j = 0; p->kind == SVD && dot < 0 && j < columns; j++)
                out[2][(b * k + v) * columns + j] *= -1;
        }
}

static double weighted(const problem *p, values *out, values *dout)
{
    double sum = 0;

    for (int o = 0; o < 3; o++)
        for (uint64_t i = 0; i < p->out[o]; i++)
            sum += out[o][i] * dout[o][i];
    return sum;
}

/* The derivative by element i of operand `slot`, as differences of the forward. */
static double difference(const problem *p, values *in, values *base, values *dout, int slot, uint64_t i)
{
    const double step = 1e-5;
    const uint64_t n = p->in_shape[0][1], mirror = i / (n * n) * n * n + i % n * n + i / n % n;
    double sum[2];

    for (int side = 0; side < 2; side++) {
        const double by = side == 0 ? -step : step;
        values moved[2], out[3];

        memcpy(moved, in, sizeof moved);
        moved[slot][i] += by;
        if (p->symmetric && mirror != i)
            moved[slot][mirror] += by;
        run(p, MICA_DTYPE_F64, moved, out, NULL, NULL);
        align(p, base, out);
        sum[side] = weighted(p, out, dout);
    }
    return (sum[1] - sum[0]) / (2 * step);
}

/* Matrices with a great diagonal whose numbers differ, so that nothing is near singular and no two eigenvalues are near each other. */
static void draw(const problem *p, test_random *random, values *in, values *dout)
{
    const uint64_t rows = p->in_shape[0][0], n = p->in_shape[0][1];

    for (int i = 0; i < 2; i++)
        for (uint64_t e = 0; e < p->in[i]; e++)
            in[i][e] = test_random_normal(random);
    for (uint64_t e = 0; e < p->in[0]; e++) {
        const uint64_t r = e / n % rows, c = e % n;

        in[0][e] += r == c ? 5 + 3 * (double)r : 0;
    }
    for (uint64_t e = 0; p->symmetric && e < p->in[0]; e++)
        if (e % n > e / n % n)
            in[0][e] = in[0][e / (n * n) * n * n + e % n * n + e / n % n];
    for (int o = 0; o < 3; o++)
        for (uint64_t e = 0; e < p->out[o]; e++)
            dout[o][e] = test_random_normal(random);
}

/* Differences are off by a rounding of the sum of some 100 over the step, and by the third derivative times its square. f32: chains of five ops over matrices of up to 6 whose
 * condition is below 20 stray by some 5 * 6 * 20 roundings of the greatest result. */
static void check(problem p)
{
    values in[2], out[3], dout[3], din[2], narrow_out[3], narrow[2];
    test_random random = test_random_from(3 + p.kind);

    for (int i = 0; i < 2; i++)
        p.in[i] = p.in_shape[i][1] != 0 ? numbers(p.in_shape[i]) : 0;
    for (int o = 0; o < 3; o++)
        p.out[o] = p.out_shape[o][0] != UINT64_MAX ? numbers(p.out_shape[o]) : 0;
    memset(in, 0, sizeof in);
    memset(dout, 0, sizeof dout);
    draw(&p, &random, in, dout);
    run(&p, MICA_DTYPE_F64, in, out, dout, din);
    run(&p, MICA_DTYPE_F32, in, narrow_out, dout, narrow);
    for (int i = 0; i < 2; i++) {
        double greatest = 0;

        for (uint64_t e = 0; e < p.in[i]; e++)
            greatest = fmax(greatest, fabs(din[i][e]));
        for (uint64_t e = 0; e < p.in[i]; e++) {
            const uint64_t n = p.in_shape[0][1];
            const bool twice = p.symmetric && e % n != e / n % n;
            const double wanted = difference(&p, in, out, dout, i, e) / (twice ? 2 : 1);

            if (!(fabs(din[i][e] - wanted) <= 1e-7 * (1 + greatest)))
                fail_msg("%s %u, operand %d, element %llu: %.10g, by differences %.10g", p.name, p.choice, i,
                         (unsigned long long)e, din[i][e], wanted);
            if (p.kind != EIGH && p.kind != SVD &&
                !(fabs(din[i][e] - narrow[i][e]) <= 600 * 0x1p-24 * greatest))
                fail_msg("%s %u, operand %d, element %llu: %.10g, in f32 %.10g", p.name, p.choice, i,
                         (unsigned long long)e, din[i][e], narrow[i][e]);
        }
    }
}

#define NONE          \
    {                 \
        UINT64_MAX, 0 \
    }

static void test_systems(void **state)
{
    (void)state;
    for (uint32_t choice = 0; choice < 8; choice++)
        check((problem){.name = "triangular_solve",
                        .kind = TRIANGULAR,
                        .choice = choice,
                        .in_shape = {{N, N}, {N, C}},
                        .out_shape = {{N, C}, NONE, NONE}});
    check((problem){
        .name = "solve", .kind = SOLVE, .in_shape = {{N, N}, {N, C}}, .out_shape = {{N, C}, NONE, NONE}});
    check((problem){
        .name = "inverse", .kind = INVERSE, .in_shape = {{N, N}}, .out_shape = {{N, N}, NONE, NONE}});
    check((problem){
        .name = "determinant", .kind = DETERMINANT, .in_shape = {{N, N}}, .out_shape = {{0, 0}, NONE, NONE}});
    check((problem){.name = "determinant",
                    .kind = DETERMINANT,
                    .choice = 1,
                    .in_shape = {{N, N}},
                    .out_shape = {{0, 2}, NONE, NONE}});
}

static void test_factors(void **state)
{
    (void)state;
    for (uint32_t upper = 0; upper < 2; upper++)
        check((problem){.name = "cholesky",
                        .kind = CHOLESKY,
                        .choice = upper,
                        .in_shape = {{N, N}},
                        .out_shape = {{N, N}, NONE, NONE},
                        .symmetric = true});
    check((problem){.name = "qr", .kind = QR, .in_shape = {{M, N}}, .out_shape = {{M, N}, {N, N}, NONE}});
    check((problem){.name = "qr", .kind = QR, .in_shape = {{N, N}}, .out_shape = {{N, N}, {N, N}, NONE}});
    check((problem){.name = "eigh",
                    .kind = EIGH,
                    .in_shape = {{N, N}},
                    .out_shape = {{0, N}, {N, N}, NONE},
                    .symmetric = true});
    for (uint32_t tall = 0; tall < 3; tall++) {
        const uint64_t rows = tall == 0 ? M : N, columns = tall == 1 ? M : N;

        check((problem){.name = "svd",
                        .kind = SVD,
                        .choice = tall,
                        .in_shape = {{rows, columns}},
                        .out_shape = {{rows, N}, {0, N}, {N, columns}}});
    }
}

static void test_refused(void **state)
{
    const mica_dtype f32 = MICA_DTYPE_F32;
    const mica_status bad = MICA_ERR_INVALID_ARGUMENT;
    const mica_triangular_params flag = {.transpose = 2};
    const mica_determinant_params log_flag = {2};
    const mica_cholesky_params upper = {2};
    mica_buffer *a = made(f32, 0, N, N, NULL), *b = made(f32, 0, N, C, NULL), *d = made(f32, 0, N, N, NULL),
                *w = made(f32, 0, 0, N, NULL), *two = made(f32, 2, N, N, NULL),
                *wide = made(MICA_DTYPE_F64, 0, N, N, NULL), *tall = made(f32, 0, M, N, NULL);
    const mica_svd_gradients none = {NULL, NULL, NULL, NULL, NULL, NULL}, some = {a, w, a, a, w, NULL};

    (void)state;
    must(mica_encoder_begin(devices[0], NULL, &encoder));
    refused(mica_solve_backward(encoder, NULL, b, b, d, b), bad, "a is NULL");
    refused(mica_solve_backward(NULL, a, b, b, d, b), bad, "encoder is NULL");
    refused(mica_solve_backward(encoder, tall, b, b, d, b), bad, "not square");
    refused(mica_solve_backward(encoder, a, b, a, d, b), bad, "shape[2] of dx is 4, expected 3");
    refused(mica_solve_backward(encoder, w, b, b, d, b), bad, "not square");
    refused(mica_triangular_solve_backward(encoder, a, b, b, &flag, d, b), bad, "params.transpose");
    refused(mica_triangular_solve_backward(encoder, a, b, b, NULL, wide, b), bad, "da is f64, not f32");
    refused(mica_inverse_backward(encoder, a, d, NULL, d), bad, "work is NULL");
    refused(mica_determinant_backward(encoder, a, NULL, w, NULL, d), bad, "y is NULL");
    refused(mica_determinant_backward(encoder, a, NULL, w, &log_flag, d), bad, "params.log");
    refused(mica_cholesky_backward(encoder, a, d, &upper, d, d), bad, "params.upper");
    refused(mica_cholesky_backward(encoder, a, w, NULL, d, d), bad, "dy has 2 dimensions, expected 3");
    refused(mica_qr_backward(encoder, tall, a, tall, a, d, tall), bad, "work has 3 dimensions, expected 4");
    refused(mica_eigh_backward(encoder, d, a, w, a, two, d), bad, "w has 3 dimensions, expected 2");
    refused(mica_svd_backward(encoder, NULL, two, two, d), bad, "operands is NULL");
    refused(mica_svd_backward(encoder, &none, two, two, d), bad, "u is NULL");
    refused(mica_svd_backward(encoder, &some, two, two, d), bad, "dvt is NULL");
    mica_encoder_release(encoder);
    drop((mica_buffer *const[]){a, b, d, w, two, wide, tall}, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_systems),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests_name("linear_backward", tests, open_devices, close_devices);
}
