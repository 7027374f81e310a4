/* Gradients of elementwise work, of what moves elements, of reductions and running sums: against central differences in f64 on the cpu. */
#include "gradient_rig.h"
#include "support/only_cpu.h"

#define BUILD(name) static mica_tensor name(mica_graph *g, const mica_tensor *x)
#define D(...) MICA_DTYPE_F64, __VA_ARGS__

/* ---- scalars: every row of scalars.def that has a derivative ---- */

static mica_scalar scalar_of_case;

BUILD(any_scalar)
{
    mica_scalar_info info;
    must(mica_scalar_get_info(scalar_of_case, &info));
    return mica_graph_scalar(g, scalar_of_case, x[0], info.values > 1 ? x[1] : 0, info.values > 2 ? x[2] : 0);
}

/* Where a scalar may be asked; others from -2 to 2. */
typedef struct domain {
    mica_scalar scalar;
    double low, high, b_low, b_high;
} domain;

static domain domain_of(mica_scalar scalar)
{
    static const domain rows[] = {
        {MICA_SCALAR_ACOSH, 1.2, 3, 0, 1},      {MICA_SCALAR_ATANH, -0.8, 0.8, 0, 1},
        {MICA_SCALAR_ASIN, -0.8, 0.8, 0, 1},    {MICA_SCALAR_ACOS, -0.8, 0.8, 0, 1},
        {MICA_SCALAR_LOG, 0.3, 3, 0, 1},        {MICA_SCALAR_LOG2, 0.3, 3, 0, 1},
        {MICA_SCALAR_LOG10, 0.3, 3, 0, 1},      {MICA_SCALAR_LOG1P, -0.6, 3, 0, 1},
        {MICA_SCALAR_SQRT, 0.3, 3, 0, 1},       {MICA_SCALAR_RSQRT, 0.3, 3, 0, 1},
        {MICA_SCALAR_RECIPROCAL, 0.4, 3, 0, 1}, {MICA_SCALAR_POW, 0.4, 2, -2, 2},
        {MICA_SCALAR_DIV, -2, 2, 0.5, 2},       {MICA_SCALAR_REM, 0.1, 0.9, 1.1, 2},
        {MICA_SCALAR_MOD, 0.1, 0.9, 1.1, 2},    {MICA_SCALAR_SOFTCAP, -2, 2, 0.7, 3},
        {MICA_SCALAR_ATAN2, 0.3, 2, -2, 2},     {MICA_SCALAR_TAN, -1, 1, 0, 1},
        {MICA_SCALAR_ROUND, 0.6, 1.4, 0, 1},    {MICA_SCALAR_FLOOR, 1.1, 1.9, 0, 1},
        {MICA_SCALAR_CEIL, 1.1, 1.9, 0, 1},     {MICA_SCALAR_TRUNC, 1.1, 1.9, 0, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].scalar == scalar)
            return rows[i];
    return (domain){scalar, -2, 2, -2, 2};
}

static void scalars(void **state)
{
    (void)state;
    int wrong = 0, seen = 0;
    for (uint32_t s = 1; s < MICA_SCALAR_COUNT; s++) {
        mica_scalar_info info;
        must(mica_scalar_get_info(s, &info));
        if (info.derivative == 0 || info.values == 0 || s == MICA_SCALAR_CAST)
            continue;
        const domain d = domain_of((mica_scalar)s);
        rig_case row = {mica_scalar_name(s), any_scalar, 1, 2e-5, {{D(2, {3, 5}, d.low, d.high)}}};
        scalar_of_case = (mica_scalar)s;
        if (s == MICA_SCALAR_SELECT)
            row.in[0] = (rig_input){MICA_DTYPE_BOOL, 2, {3, 5}, 0, 2};
        if (info.values > 1)
            row.in[1] = (rig_input){D(1, {5}, d.b_low, d.b_high)}; /* broadcasts */
        if (info.values > 2)
            row.in[2] = (rig_input){D(2, {3, 1}, d.b_low, d.b_high)};
        wrong += rig_check(&row, 1, cpu);
        seen++;
    }
    assert_true(seen > 50);
    assert_int_equal(wrong, 0);
}

/* ---- views and what moves elements ---- */

BUILD(reshaped)
{
    return mica_graph_square(g, mica_graph_reshape(g, x[0], 2, (uint64_t[]){6, MICA_SIZE_REST}));
}
BUILD(permuted)
{
    return mica_graph_square(g, mica_graph_permute(g, x[0], (uint32_t[]){2, 0, 1}));
}
BUILD(sliced)
{
    return mica_graph_square(g, mica_graph_slice(g, x[0], 1, 1, 3, 1));
}
BUILD(sliced_by_two)
{
    return mica_graph_square(g, mica_graph_slice(g, x[0], 2, 1, 2, 2));
}
BUILD(sliced_back)
{
    return mica_graph_square(g, mica_graph_slice(g, x[0], 1, 3, 2, -2));
}
BUILD(expanded)
{
    return mica_graph_square(g, mica_graph_expand(g, x[0], 3, (uint64_t[]){2, 3, 4}));
}
BUILD(joined)
{
    const mica_tensor list[] = {x[0], x[1], x[0]};
    return mica_graph_square(g, mica_graph_concat(g, list, 3, 1));
}
BUILD(broadcast)
{
    return mica_graph_mul(g, mica_graph_add(g, x[0], x[1]), x[2]);
}
BUILD(cast_down)
{
    return mica_graph_cast(g, mica_graph_cast(g, mica_graph_square(g, x[0]), MICA_DTYPE_F32), MICA_DTYPE_F64);
}

static mica_tensor padded(mica_graph *g, mica_tensor x, uint32_t mode)
{
    const mica_pad_params params = {.low = {2, -1}, .high = {1, 5}, .value = 3, .mode = mode};
    return mica_graph_square(g, mica_graph_op(g, MICA_OP_PAD, &params, &x, 1, 1, NULL, NULL, 0));
}
BUILD(pad_constant)
{
    return padded(g, x[0], MICA_PAD_CONSTANT);
}
BUILD(pad_edge)
{
    return padded(g, x[0], MICA_PAD_EDGE);
}
BUILD(pad_reflect)
{
    return padded(g, x[0], MICA_PAD_REFLECT);
}
BUILD(pad_symmetric)
{
    return padded(g, x[0], MICA_PAD_SYMMETRIC);
}
BUILD(pad_wrap)
{
    return padded(g, x[0], MICA_PAD_WRAP);
}

static mica_tensor gathered(mica_graph *g, const mica_tensor *x, uint32_t axis)
{
    const mica_gather_params params = {.axis = axis};
    return mica_graph_square(g, mica_graph_op(g, MICA_OP_GATHER, &params, x, 2, 1, NULL, NULL, 0));
}
BUILD(taken)
{
    return gathered(g, x, 0);
}
BUILD(taken_along)
{
    return gathered(g, x, 1);
}

static mica_tensor scattered(mica_graph *g, const mica_tensor *x, uint32_t mode)
{
    const mica_scatter_params params = {.axis = 1, .mode = mode};
    return mica_graph_square(g, mica_graph_op(g, MICA_OP_SCATTER, &params, x, 3, 1, NULL, NULL, 0));
}
BUILD(scatter_set)
{
    return scattered(g, x, MICA_SCATTER_SET);
}
BUILD(scatter_add)
{
    return scattered(g, x, MICA_SCATTER_ADD);
}
BUILD(scatter_mul)
{
    return scattered(g, x, MICA_SCATTER_MUL);
}
BUILD(scatter_max)
{
    return scattered(g, x, MICA_SCATTER_MAX);
}
BUILD(scatter_min)
{
    return scattered(g, x, MICA_SCATTER_MIN);
}
static mica_tensor scattered_nd(mica_graph *g, const mica_tensor *x, uint32_t mode)
{
    const mica_scatter_nd_params params = {.mode = mode};
    return mica_graph_square(g, mica_graph_op(g, MICA_OP_SCATTER_ND, &params, x, 3, 1, NULL, NULL, 0));
}
BUILD(scatter_nd_set)
{
    return scattered_nd(g, x, MICA_SCATTER_SET);
}
BUILD(scatter_nd_add)
{
    return scattered_nd(g, x, MICA_SCATTER_ADD);
}
BUILD(scatter_nd_mul)
{
    return scattered_nd(g, x, MICA_SCATTER_MUL);
}
BUILD(scatter_nd_max)
{
    return scattered_nd(g, x, MICA_SCATTER_MAX);
}
static mica_tensor gathered_nd(mica_graph *g, const mica_tensor *x, uint32_t batch)
{
    const mica_gather_nd_params params = {.batch_dims = batch};
    return mica_graph_square(g, mica_graph_op(g, MICA_OP_GATHER_ND, &params, x, 2, 1, NULL, NULL, 0));
}
BUILD(gather_nd)
{
    return gathered_nd(g, x, 0);
}
BUILD(gather_nd_batch)
{
    return gathered_nd(g, x, 1);
}
static mica_tensor compressed(mica_graph *g, const mica_tensor *x, mica_compress_params params,
                              const mica_operand_desc *asked)
{
    mica_tensor y[2];
    (void)mica_graph_op(g, MICA_OP_COMPRESS, &params, x, 2, 3, asked, y, 2);
    return mica_graph_square(g, y[0]);
}
BUILD(compress)
{
    const mica_operand_desc asked[2] = {{.dtype = MICA_DTYPE_F64, .ndim = 2, .shape = {3, 2}}, {.ndim = 0}};
    return compressed(g, x, (mica_compress_params){.axis = 1}, asked);
}
BUILD(compress_flat)
{
    const mica_operand_desc asked[2] = {{.dtype = MICA_DTYPE_F64, .ndim = 1, .shape = {9}}, {.ndim = 0}};
    return compressed(g, x, (mica_compress_params){.flat = 1}, asked);
}
BUILD(sorted)
{
    const mica_operand_desc asked[2] = {{.dtype = MICA_DTYPE_F64, .ndim = 2, .shape = {3, 6}}, {.ndim = 0}};
    return mica_graph_square(g, mica_graph_op(g, MICA_OP_SORT, NULL, x, 1, 1, asked, NULL, 0));
}
BUILD(best)
{
    const mica_sort_params params = {.descending = 1};
    const mica_operand_desc asked[2] = {{.dtype = MICA_DTYPE_F64, .ndim = 2, .shape = {3, 2}},
                                        {.dtype = MICA_DTYPE_I32, .ndim = 2, .shape = {3, 2}}};
    mica_tensor y[2];
    (void)mica_graph_op(g, MICA_OP_SORT, &params, x, 1, 3, asked, y, 2);
    return mica_graph_square(g, y[0]);
}

static void moves(void **state)
{
    (void)state;
    static const rig_case rows[] = {
        {"reshape", reshaped, 1, 0, {{D(3, {3, 4, 2}, -1, 1)}}},
        {"permute", permuted, 1, 0, {{D(3, {3, 4, 2}, -1, 1)}}},
        {"slice", sliced, 1, 0, {{D(3, {3, 5, 2}, -1, 1)}}},
        {"slice by two", sliced_by_two, 1, 0, {{D(3, {3, 2, 5}, -1, 1)}}},
        {"slice back", sliced_back, 1, 0, {{D(3, {3, 5, 2}, -1, 1)}}},
        {"expand", expanded, 1, 0, {{D(2, {3, 1}, -1, 1)}}},
        {"concat", joined, 1, 0, {{D(2, {3, 2}, -1, 1)}, {D(2, {3, 3}, -1, 1)}}},
        {"broadcast", broadcast, 1, 0, {{D(2, {3, 1}, -1, 1)}, {D(1, {4}, -1, 1)}, {D(3, {2, 1, 1}, -1, 1)}}},
        {"cast", cast_down, 1, 3e-3, {{D(2, {3, 2}, 0.5, 1)}}},
        {"pad constant", pad_constant, 1, 0, {{D(2, {3, 4}, -1, 1)}}},
        {"pad edge", pad_edge, 1, 0, {{D(2, {3, 4}, -1, 1)}}},
        {"pad reflect", pad_reflect, 1, 0, {{D(2, {3, 4}, -1, 1)}}},
        {"pad symmetric", pad_symmetric, 1, 0, {{D(2, {3, 4}, -1, 1)}}},
        {"pad wrap", pad_wrap, 1, 0, {{D(2, {3, 4}, -1, 1)}}},
        {"gather", taken, 1, 0, {{D(2, {3, 4}, -1, 1)}, {MICA_DTYPE_I32, 1, {7}, 0, 3}}},
        {"gather along", taken_along, 1, 0, {{D(2, {3, 4}, -1, 1)}, {MICA_DTYPE_I32, 2, {3, 6}, 0, 4}}},
        {"scatter set",
         scatter_set,
         1,
         0,
         {{D(2, {3, 7}, -1, 1)}, {MICA_DTYPE_I32, 1, {7}, 0, 5}, {D(2, {3, 5}, -1, 1)}}},
        {"scatter add",
         scatter_add,
         1,
         0,
         {{D(2, {3, 7}, -1, 1)}, {MICA_DTYPE_I32, 1, {7}, 0, 5}, {D(2, {3, 5}, -1, 1)}}},
        {"scatter mul",
         scatter_mul,
         1,
         0,
         {{D(2, {3, 7}, 0.5, 1.5)}, {MICA_DTYPE_I32, 1, {7}, 0, 5}, {D(2, {3, 5}, -1, 1)}}},
        {"scatter max",
         scatter_max,
         1,
         0,
         {{D(2, {3, 7}, -1, 1)}, {MICA_DTYPE_I32, 1, {7}, 0, 5}, {D(2, {3, 5}, -1, 1)}}},
        {"scatter min",
         scatter_min,
         1,
         0,
         {{D(2, {3, 7}, -1, 1)}, {MICA_DTYPE_I32, 1, {7}, 0, 5}, {D(2, {3, 5}, -1, 1)}}},
        {"scatter_nd set",
         scatter_nd_set,
         1,
         0,
         {{D(2, {6, 2}, -1, 1)}, {MICA_DTYPE_I32, 2, {6, 2}, 0, 3}, {D(3, {3, 4, 2}, -1, 1)}}},
        {"scatter_nd add",
         scatter_nd_add,
         1,
         0,
         {{D(2, {6, 2}, -1, 1)}, {MICA_DTYPE_I32, 2, {6, 2}, 0, 3}, {D(3, {3, 4, 2}, -1, 1)}}},
        {"scatter_nd mul",
         scatter_nd_mul,
         1,
         0,
         {{D(2, {6, 2}, 0.5, 1)}, {MICA_DTYPE_I32, 2, {6, 2}, 0, 3}, {D(3, {3, 4, 2}, -1, 1)}}},
        {"scatter_nd max",
         scatter_nd_max,
         1,
         0,
         {{D(2, {6, 2}, -1, 1)}, {MICA_DTYPE_I32, 2, {6, 2}, 0, 3}, {D(3, {3, 4, 2}, -1, 1)}}},
        {"gather_nd", gather_nd, 1, 0, {{D(3, {3, 4, 2}, -1, 1)}, {MICA_DTYPE_I32, 2, {6, 2}, 0, 3}}},
        {"gather_nd of a batch",
         gather_nd_batch,
         1,
         0,
         {{D(3, {3, 4, 2}, -1, 1)}, {MICA_DTYPE_I32, 3, {3, 5, 1}, 0, 4}}},
        {"compress", compress, 1, 0, {{D(2, {3, 5}, -1, 1)}, {MICA_DTYPE_BOOL, 1, {4}, 0, 2}}},
        {"compress, flat", compress_flat, 1, 0, {{D(2, {3, 5}, -1, 1)}, {MICA_DTYPE_BOOL, 1, {15}, 0, 2}}},
        {"sort", sorted, 1, 0, {{D(2, {3, 6}, -1, 1)}}},
        {"top k", best, 1, 0, {{D(2, {3, 6}, -1, 1)}}},
    };
    assert_int_equal(rig_check(rows, sizeof rows / sizeof rows[0], cpu), 0);
}

/* ---- reductions and running sums ---- */

static uint32_t kind_of_case, keep_of_case, exclusive_of_case, reverse_of_case;
static const int32_t *axes_of_case;
static uint32_t axis_count_of_case;

BUILD(reduced)
{
    return mica_graph_square(g, mica_graph_reduce(g, (mica_reduce_kind)kind_of_case, x[0], axes_of_case,
                                                  axis_count_of_case, keep_of_case));
}

static void reductions(void **state)
{
    (void)state;
    static const char *const names[] = {"sum", "mean", "max",       "min",         "prod",   NULL,
                                        NULL,  "var",  "logsumexp", "sum squares", "max abs"};
    static const int32_t some[] = {0, 2}, last[] = {-1};
    static const struct {
        const int32_t *axes;
        uint32_t count;
    } choices[] = {{NULL, 0}, {some, 2}, {last, 1}};
    int wrong = 0;
    for (uint32_t k = 0; k <= MICA_REDUCE_MAX_ABS; k++)
        for (uint32_t c = 0; c < 3 && names[k] != NULL; c++) {
            const rig_case row = {names[k], reduced, 1, 0, {{D(3, {3, 2, 4}, -1.5, 1.5)}}};
            kind_of_case = k;
            axes_of_case = choices[c].axes;
            axis_count_of_case = choices[c].count;
            keep_of_case = c & 1;
            wrong += rig_check(&row, 1, cpu);
        }
    assert_int_equal(wrong, 0);
}

BUILD(product_of_row)
{
    return mica_graph_reduce(g, MICA_REDUCE_PROD, x[0], (int32_t[]){1}, 1, 0);
}
BUILD(running_product)
{
    const mica_scan_params params = {.kind = MICA_SCAN_PROD};
    return mica_graph_op(g, MICA_OP_SCAN, &params, x, 1, 1, NULL, NULL, 0);
}

/* A row with zeros: an element gets the product of the others, which is not 0 / 0. */
static void zeros_in_products(void **state)
{
    (void)state;
    static const double x[12] = {0.7, 1.1, -0.6, 1.3, 0, 0.8, 1.2, -0.9, 0, 0, 1.4, 0.5};
    rig_build *const builds[] = {product_of_row, running_product};
    for (uint32_t c = 0; c < 2; c++) {
        mica_graph *g;
        mica_executable *run;
        double got[12], wanted[12] = {0};
        must(mica_graph_create(&g));
        mica_tensor in = mica_graph_input(g, "x", MICA_DTYPE_F64, 2, (uint64_t[]){3, 4}), dx;
        const mica_tensor y = builds[c](g, &in);
        must(mica_graph_gradient(g, y, 0, &in, 1, &dx));
        mica_graph_output(g, "dx", dx);
        must(mica_graph_compile(g, cpu, NULL, &run));
        mica_array feed = {.name = "x",
                           .dtype = MICA_DTYPE_F64,
                           .ndim = 2,
                           .shape = {3, 4},
                           .data = (void *)(uintptr_t)x,
                           .bytes = sizeof x};
        mica_array out = {.name = "dx", .data = got, .bytes = sizeof got};
        must(mica_executable_run(run, &feed, 1, &out, 1));
        for (uint32_t r = 0; r < 3; r++)
            for (uint32_t last = c == 0 ? 3 : 0; last < 4; last++)
                for (uint32_t i = 0; i <= last; i++) {
                    double others = 1;
                    for (uint32_t j = 0; j <= last; j++)
                        others *= j == i ? 1 : x[r * 4 + j];
                    wanted[r * 4 + i] += others;
                }
        for (uint32_t i = 0; i < 12; i++)
            assert_true(fabs(got[i] - wanted[i]) < 1e-12);
        mica_executable_release(run);
        mica_graph_release(g);
    }
}

BUILD(running)
{
    const mica_scan_params params = {
        .kind = kind_of_case, .exclusive = exclusive_of_case, .reverse = reverse_of_case};
    mica_tensor y = mica_graph_op(g, MICA_OP_SCAN, &params, x, 1, 1, NULL, NULL, 0);
    if (kind_of_case >= MICA_SCAN_MAX && exclusive_of_case != 0) /* the result over nothing is infinite */
        y = mica_graph_slice(g, y, 1, reverse_of_case == 0, 5, 1);
    return mica_graph_square(g, y);
}

static void running_ones(void **state)
{
    (void)state;
    static const char *const names[] = {"cumsum", "cumprod", "cummax", "cummin"};
    int wrong = 0;
    for (uint32_t k = 0; k < 4; k++)
        for (uint32_t v = 0; v < 4; v++) {
            const rig_case row = {names[k], running, 1, 0, {{D(2, {3, 6}, -1.5, 1.5)}}};
            kind_of_case = k;
            exclusive_of_case = v & 1;
            reverse_of_case = v >> 1;
            wrong += rig_check(&row, 1, cpu);
        }
    assert_int_equal(wrong, 0);
}

/* ---- regions ---- */

/* Two outputs of two inputs: a b + sigmoid(a), and e^a times the index. */
BUILD(region)
{
    enum { NONE = MICA_REGION_NONE, F64 = MICA_REGISTER_F64 };
    const mica_region_step steps[] = {
        {MICA_SCALAR_MUL, F64, {0, 1, NONE}, 0, {0}, {.u64 = 0}},
        {MICA_SCALAR_SIGMOID, F64, {0, NONE, NONE}, 0, {0}, {.u64 = 0}},
        {MICA_SCALAR_ADD, F64, {2, 3, NONE}, 0, {0}, {.u64 = 0}},
        {MICA_SCALAR_INDEX, MICA_REGISTER_I32, {NONE, NONE, NONE}, 0, {0}, {.u64 = 0}},
        {MICA_SCALAR_CAST, F64, {5, NONE, NONE}, 0, {0}, {.u64 = 0}},
        {MICA_SCALAR_EXP, F64, {0, NONE, NONE}, 0, {0}, {.u64 = 0}},
        {MICA_SCALAR_MUL, F64, {6, 7, NONE}, 0, {0}, {.u64 = 0}}};
    mica_region_desc desc = {.input_count = 2, .output_count = 2, .step_count = 7, .step = steps};
    mica_region *made = NULL;
    mica_tensor y[2] = {0, 0};
    desc.input[0] = desc.input[1] = MICA_REGISTER_F64;
    desc.output[0] = 4;
    desc.output[1] = 8;
    memset(desc.output_imag, MICA_REGION_NONE, sizeof desc.output_imag);
    must(mica_region_create(&desc, &made));
    (void)mica_graph_region(g, made, x, (mica_dtype[]){MICA_DTYPE_F64, MICA_DTYPE_F64}, y);
    mica_region_release(made);
    return mica_graph_mul(g, y[0], y[1]);
}

static void regions(void **state)
{
    (void)state;
    static const rig_case rows[] = {{"region", region, 1, 0, {{D(2, {3, 4}, -1, 1)}, {D(1, {4}, -1, 1)}}}};
    assert_int_equal(rig_check(rows, 1, cpu), 0);
}

/* ---- what has no gradient, and no path ---- */

static void no_path(void **state)
{
    (void)state;
    mica_graph *g;
    mica_executable *run;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F64, 1, (uint64_t[]){3});
    const mica_tensor z = mica_graph_input(g, "z", MICA_DTYPE_F64, 1, (uint64_t[]){2});
    const mica_tensor of[] = {x, z};
    mica_tensor d[2];
    double ones[3] = {1, 2, 3}, twos[2] = {1, 1}, dx[3], dz[2] = {9, 9};
    const mica_tensor stopped = mica_graph_mul(g, x, mica_graph_stop_gradient(g, x));
    const mica_tensor counted = mica_graph_cast(g, mica_graph_cast(g, x, MICA_DTYPE_I32), MICA_DTYPE_F64);
    must(mica_graph_gradient(g, mica_graph_add(g, stopped, counted), 0, of, 2, d));
    mica_graph_output(g, "dx", d[0]);
    mica_graph_output(g, "dz", d[1]);
    must(mica_graph_compile(g, cpu, NULL, &run));
    mica_array in[] = {
        {.name = "x", .dtype = MICA_DTYPE_F64, .ndim = 1, .shape = {3}, .data = ones, .bytes = 24},
        {.name = "z", .dtype = MICA_DTYPE_F64, .ndim = 1, .shape = {2}, .data = twos, .bytes = 16}};
    mica_array out[] = {{.name = "dx", .data = dx, .bytes = 24}, {.name = "dz", .data = dz, .bytes = 16}};
    must(mica_executable_run(run, in, 2, out, 2));
    for (int i = 0; i < 3; i++)
        assert_true(dx[i] == ones[i]); /* of x stop(x): x; of whole numbers nothing */
    assert_true(dz[0] == 0 && dz[1] == 0);
    mica_executable_release(run);
    mica_graph_release(g);
}

/* Several values at once: each seed goes its own way, and what they share adds up. */
static void several_values(void **state)
{
    (void)state;
    const double x[3] = {1.5, -2, 0.25};
    double dx[3];
    mica_graph *g = NULL;
    mica_executable *run = NULL;
    mica_tensor gradient = 0;
    must(mica_graph_create(&g));
    const mica_tensor in = mica_graph_input(g, "x", MICA_DTYPE_F64, 1, (uint64_t[]){3});
    const mica_tensor values[] = {mica_graph_square(g, in), mica_graph_add(g, in, in)};
    const mica_tensor seeds[] = {
        mica_graph_constant(g, MICA_DTYPE_F64, 1, (uint64_t[]){3}, (double[]){1, 10, 100}, 24), 0};
    must(mica_graph_gradients(g, values, seeds, 2, &in, 1, &gradient));
    mica_graph_output(g, "dx", gradient);
    must(mica_graph_compile(g, cpu, NULL, &run));
    mica_array fed = {
        .name = "x", .ndim = 1, .shape = {3}, .data = (double[]){x[0], x[1], x[2]}, .bytes = 24};
    mica_array got = {.name = "dx", .data = dx, .bytes = 24};
    must(mica_executable_run(run, &fed, 1, &got, 1));
    assert_true(dx[0] == 2 * x[0] + 2 && dx[1] == 20 * x[1] + 2 && dx[2] == 200 * x[2] + 2);
    mica_executable_release(run);
    mica_graph_release(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scalars),      cmocka_unit_test(moves),
                                       cmocka_unit_test(reductions),   cmocka_unit_test(zeros_in_products),
                                       cmocka_unit_test(running_ones), cmocka_unit_test(regions),
                                       cmocka_unit_test(no_path),      cmocka_unit_test(several_values)};
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
