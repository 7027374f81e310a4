/* Gradients of transforms and of linear algebra against central differences in f64 on the cpu. */
#include "gradient_rig.h"
#include "support/only_cpu.h"

#define BUILD(name) static mica_tensor name(mica_graph *g, const mica_tensor *x)
#define D(...) MICA_DTYPE_F64, __VA_ARGS__
#define F(...) MICA_DTYPE_F32, __VA_ARGS__
#define COUNT(rows) (sizeof(rows) / sizeof(rows)[0])
/* f32: steps of 2^-7, whose cubes and whose roundings, of 2^-24 / 2^-7, are below it */
#define NARROW 2e-3

static mica_tensor one(mica_graph *g, mica_op op, const void *params, const mica_tensor *x, uint32_t count)
{
    return mica_graph_op(g, op, params, x, count, 1, NULL, NULL, 0);
}

/* ---- transforms ---- */

static mica_fft_params fft_of_case;

BUILD(fft)
{
    return mica_graph_square(g, one(g, MICA_OP_FFT, &fft_of_case, x, 1));
}
/* c64 goes from f32 to f32: through a number of both parts. */
BUILD(fft_c64)
{
    const mica_region_desc join = {.input_count = 2,
                                   .output_count = 1,
                                   .input = {MICA_REGISTER_F32, MICA_REGISTER_F32},
                                   .output = {0},
                                   .output_imag = {1}};
    const mica_region_step steps[] = {
        {MICA_SCALAR_IMAG, MICA_REGISTER_F32, {0, MICA_REGION_NONE, MICA_REGION_NONE}, 0, {0}, {.u64 = 0}},
        {MICA_SCALAR_MUL, MICA_REGISTER_F32, {0, 1, MICA_REGION_NONE}, 0, {0}, {.u64 = 0}},
        {MICA_SCALAR_ADD, MICA_REGISTER_F32, {0, 2, MICA_REGION_NONE}, 0, {0}, {.u64 = 0}}};
    mica_region_desc parts = {.input_count = 1,
                              .output_count = 1,
                              .step_count = 3,
                              .step = steps,
                              .input = {MICA_REGISTER_F32},
                              .output = {3},
                              .output_imag = {MICA_REGION_NONE}};
    mica_region *joined = NULL, *apart = NULL;
    mica_dtype c64 = MICA_DTYPE_C64, f32 = MICA_DTYPE_F32;
    must(mica_region_create(&join, &joined));
    must(mica_region_create(&parts, &apart));
    const mica_tensor z = mica_graph_region(g, joined, x, &c64, NULL);
    const mica_tensor w = one(g, MICA_OP_FFT, &fft_of_case, &z, 1);
    const mica_tensor y = mica_graph_region(g, apart, &w, &f32, NULL);
    mica_region_release(joined);
    mica_region_release(apart);
    return y;
}
BUILD(hadamard)
{
    return mica_graph_square(g, one(g, MICA_OP_HADAMARD, NULL, x, 2));
}
BUILD(hadamard_undo)
{
    const mica_hadamard_params params = {.scale = 0.5f, .undo = 1};
    return mica_graph_square(g, one(g, MICA_OP_HADAMARD, &params, x, 2));
}

static void transforms(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint32_t v = 0; v < 6; v++) {
        const rig_case whole = {"fft", fft, 1, 0, {{D(3, {3, 5, 2}, -1, 1)}}};
        const rig_case even = {"rfft, even", fft, 1, 0, {{D(2, {6, 3}, -1, 1)}}};
        const rig_case odd = {"rfft, odd", fft, 1, 0, {{D(2, {5, 3}, -1, 1)}}};
        const rig_case back = {"irfft", fft, 1, 0, {{D(3, {4, 3, 2}, -1, 1)}}};
        const rig_case small = {
            "fft of c64", fft_c64, 0, NARROW, {{F(2, {3, 6}, -1, 1)}, {F(2, {3, 6}, -1, 1)}}};
        fft_of_case = (mica_fft_params){.kind = MICA_FFT_COMPLEX, .inverse = v & 1, .norm = v / 2, .axis = 1};
        wrong += rig_check(&whole, 1, cpu);
        fft_of_case.axis = 0;
        wrong += rig_check(&small, 1, cpu);
        fft_of_case = (mica_fft_params){.kind = MICA_FFT_REAL, .inverse = v & 1, .norm = v / 2, .axis = 1};
        wrong += rig_check(&even, 1, cpu) + rig_check(&odd, 1, cpu);
        for (uint32_t n = 6; n < 8; n++) {
            fft_of_case = (mica_fft_params){
                .kind = MICA_FFT_HERMITIAN, .inverse = v & 1, .norm = v / 2, .axis = 1, .length = n};
            wrong += rig_check(&back, 1, cpu);
        }
    }
    static const rig_case rows[] = {
        {"hadamard", hadamard, 1, 0, {{D(2, {3, 8}, -1, 1)}, {D(1, {8}, 0.5, 1)}}},
        {"hadamard, undo", hadamard_undo, 1, 0, {{D(2, {3, 8}, -1, 1)}, {D(1, {8}, 0.5, 1)}}}};
    wrong += rig_check(rows, COUNT(rows), cpu);
    assert_int_equal(wrong, 0);
}

/* ---- linear algebra ---- */

/* a + 3 on the diagonal */
static mica_tensor regular(mica_graph *g, mica_tensor a)
{
    const mica_tensor row = mica_graph_index(g, MICA_DTYPE_I32, 2, (uint64_t[]){3, 3}, 0),
                      column = mica_graph_index(g, MICA_DTYPE_I32, 2, (uint64_t[]){3, 3}, 1);
    const mica_tensor more =
        mica_graph_select(g, mica_graph_equal(g, row, column), mica_graph_number(g, MICA_DTYPE_F64, 3),
                          mica_graph_number(g, MICA_DTYPE_F64, 0));
    return mica_graph_add(g, a, more);
}
static mica_tensor turned(mica_graph *g, mica_tensor a)
{
    return mica_graph_permute(g, a, (uint32_t[]){0, 2, 1});
}
/* 1.2, 2.2, 3.2 on the diagonal besides, so that eigenvalues are apart */
static mica_tensor symmetric(mica_graph *g, mica_tensor a)
{
    const mica_tensor row = mica_graph_index(g, MICA_DTYPE_I32, 2, (uint64_t[]){3, 3}, 0),
                      column = mica_graph_index(g, MICA_DTYPE_I32, 2, (uint64_t[]){3, 3}, 1);
    const mica_tensor more =
        mica_graph_select(g, mica_graph_equal(g, row, column), mica_graph_cast(g, row, MICA_DTYPE_F64),
                          mica_graph_number(g, MICA_DTYPE_F64, 0));
    return mica_graph_add(g, regular(g, mica_graph_add(g, a, turned(g, a))),
                          mica_graph_mul(g, more, mica_graph_number(g, MICA_DTYPE_F64, 2)));
}

static mica_triangular_params triangular_of_case;
static uint32_t flag_of_case;

BUILD(triangular)
{
    return mica_graph_square(
        g, one(g, MICA_OP_TRIANGULAR_SOLVE, &triangular_of_case, (mica_tensor[]){regular(g, x[0]), x[1]}, 2));
}
BUILD(solve)
{
    return mica_graph_square(g, one(g, MICA_OP_SOLVE, NULL, (mica_tensor[]){regular(g, x[0]), x[1]}, 2));
}
BUILD(inverse)
{
    const mica_tensor a = regular(g, x[0]);
    return mica_graph_square(g, one(g, MICA_OP_INVERSE, NULL, &a, 1));
}
BUILD(determinant)
{
    const mica_tensor a = regular(g, x[0]);
    const mica_determinant_params params = {.log = flag_of_case};
    return mica_graph_square(g, one(g, MICA_OP_DETERMINANT, &params, &a, 1));
}
BUILD(cholesky)
{
    const mica_tensor a = symmetric(g, x[0]);
    const mica_cholesky_params params = {.upper = flag_of_case};
    return mica_graph_square(g, one(g, MICA_OP_CHOLESKY, &params, &a, 1));
}
BUILD(qr)
{
    mica_tensor y[2];
    (void)mica_graph_op(g, MICA_OP_QR, NULL, x, 1, 3, NULL, y, 2);
    return mica_graph_concat(g, (mica_tensor[]){mica_graph_square(g, y[0]), mica_graph_exp(g, y[1])}, 2, 1);
}
BUILD(eigh)
{
    const mica_tensor a = symmetric(g, x[0]);
    mica_tensor y[2];
    (void)mica_graph_op(g, MICA_OP_EIGH, NULL, &a, 1, 3, NULL, y, 2);
    return mica_graph_add(g, mica_graph_square(g, y[1]),
                          mica_graph_reshape(g, mica_graph_exp(g, y[0]), 3, (uint64_t[]){2, 1, 3}));
}
BUILD(svd)
{
    mica_tensor y[3];
    (void)mica_graph_op(g, MICA_OP_SVD, NULL, x, 1, 7, NULL, y, 3);
    const mica_tensor vt = mica_graph_square(g, y[2]);
    return mica_graph_mul(g, mica_graph_matmul(g, mica_graph_square(g, y[0]), vt),
                          mica_graph_reduce(g, MICA_REDUCE_SUM, mica_graph_exp(g, y[1]), NULL, 0, 0));
}

static void linear_algebra(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint32_t v = 0; v < 8; v++) {
        const rig_case row = {
            "triangular_solve", triangular, 1, 0, {{D(3, {2, 3, 3}, -1, 1)}, {D(3, {2, 3, 2}, -1, 1)}}};
        triangular_of_case = (mica_triangular_params){v & 1, v >> 1 & 1, v >> 2};
        wrong += rig_check(&row, 1, cpu);
    }
    static const rig_case rows[] = {
        {"solve", solve, 1, 0, {{D(3, {2, 3, 3}, -1, 1)}, {D(3, {2, 3, 2}, -1, 1)}}},
        {"inverse", inverse, 1, 0, {{D(3, {2, 3, 3}, -1, 1)}}},
        {"determinant", determinant, 1, 0, {{D(3, {2, 3, 3}, -1, 1)}}},
        {"cholesky", cholesky, 1, 0, {{D(3, {2, 3, 3}, -0.5, 0.5)}}},
        {"qr", qr, 1, 1e-4, {{D(3, {2, 4, 3}, -1, 1)}}},
        {"eigh", eigh, 1, 1e-4, {{D(3, {2, 3, 3}, -0.5, 0.5)}}},
        {"svd", svd, 1, 1e-4, {{D(3, {2, 4, 3}, -1, 1)}}},
    };
    for (flag_of_case = 0; flag_of_case < 2; flag_of_case++)
        wrong += rig_check(rows, COUNT(rows), cpu);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(transforms), cmocka_unit_test(linear_algebra)};
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
