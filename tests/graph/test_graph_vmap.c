/* A body over many slices at once against the same body slice by slice (mica_graph_scan), and what is refused. */
#include <math.h>
#include <stdio.h>

#include "mica/executable.h"
#include "mica/gradient.h"
#include "mica/host.h"
#include "support/random.h"
#include "support/status.h"
#include "support/only_cpu.h"

enum { N = 3, INPUTS = 3, MOST = 512 };

typedef mica_tensor builder(mica_graph *g, const mica_tensor *x);

typedef struct row {
    const char *name;
    builder *build;
    uint8_t mapped[INPUTS];
    uint32_t ndim[INPUTS]; /* of a slice; 9: there is none */
    uint64_t shape[INPUTS][4];
    uint32_t scans; /* nodes that are done slice by slice */
} row;

static mica_tensor one(mica_graph *g, mica_op op, const void *params, const mica_tensor *x, uint32_t count)
{
    return mica_graph_op(g, op, params, x, count, 1, NULL, NULL, 0);
}

static mica_tensor elementwise(mica_graph *g, const mica_tensor *x)
{
    const mica_tensor at = mica_graph_index(g, MICA_DTYPE_I32, 2, (uint64_t[]){4, 5}, 0);
    const mica_tensor y = mica_graph_add(g, mica_graph_mul(g, x[0], x[1]), mica_graph_exp(g, x[2]));
    return mica_graph_add(g, y, mica_graph_cast(g, at, MICA_DTYPE_F64));
}
static mica_tensor views(mica_graph *g, const mica_tensor *x)
{
    mica_tensor y = mica_graph_permute(g, mica_graph_reshape(g, x[0], 3, (uint64_t[]){2, 2, MICA_SIZE_REST}),
                                       (uint32_t[]){2, 0, 1});
    y = mica_graph_slice(g, y, 0, 1, 3, 1);                                     /* [3, 2, 2] */
    const mica_tensor z = mica_graph_expand(g, x[1], 3, (uint64_t[]){3, 2, 5}); /* of [2, 1] or so */
    y = mica_graph_concat(g, (mica_tensor[]){y, z}, 2, 2);
    const mica_pad_params pad = {.low = {1, 0, -1}, .high = {0, 2, 1}, .value = 2};
    return one(g, MICA_OP_PAD, &pad, &y, 1);
}
static mica_tensor sums(mica_graph *g, const mica_tensor *x)
{
    const mica_tensor all = mica_graph_reduce(g, MICA_REDUCE_SUM, x[0], NULL, 0, 0);
    const mica_tensor some = mica_graph_reduce(g, MICA_REDUCE_MAX, x[0], (int32_t[]){0}, 1, 1);
    const mica_scan_params running = {.kind = MICA_SCAN_SUM};
    return mica_graph_mul(g, mica_graph_add(g, one(g, MICA_OP_SCAN, &running, x, 1), some), all);
}
static mica_tensor products(mica_graph *g, const mica_tensor *x)
{
    const mica_tensor bias[] = {x[0], x[1], x[2], 0, 0};
    return mica_graph_matmul(g, one(g, MICA_OP_PRODUCT, NULL, bias, 5), x[1]);
}
static mica_tensor norms(mica_graph *g, const mica_tensor *x)
{
    const mica_normalize_params layer = {.kind = MICA_NORMALIZE_LAYER, .dims = 1, .eps = 0.1f};
    const mica_softmax_params softmax = {.scale = 0.5f};
    const mica_tensor n = one(g, MICA_OP_NORMALIZE, &layer, (mica_tensor[]){x[0], x[1], 0}, 3);
    return one(g, MICA_OP_SOFTMAX, &softmax, (mica_tensor[]){n, x[2]}, 2);
}
static mica_tensor convolved(mica_graph *g, const mica_tensor *x)
{
    const mica_conv_params params = {.low = {1}, .stride = {2}};
    return one(g, MICA_OP_CONV, &params, (mica_tensor[]){x[0], x[1], 0}, 3);
}
static mica_tensor solved(mica_graph *g, const mica_tensor *x)
{
    return one(g, MICA_OP_SOLVE, NULL, x, 2);
}
static mica_tensor attended(mica_graph *g, const mica_tensor *x)
{
    static const int32_t positions[] = {2, 0, 1, 3}, length[] = {4};
    static const mica_attention_params params = {.scale = 0};
    const mica_tensor at =
        mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){4}, positions, sizeof positions);
    const mica_tensor keys =
        mica_graph_constant(g, MICA_DTYPE_I32, 1, (uint64_t[]){1}, length, sizeof length);
    return one(g, MICA_OP_ATTENTION, &params, (mica_tensor[]){x[0], x[1], x[1], at, keys, 0, 0, 0, 0, 0, 0},
               11);
}
static mica_tensor untouched(mica_graph *g, const mica_tensor *x)
{
    return mica_graph_exp(g, x[1]);
}

static const row rows[] = {
    {"elementwise", elementwise, {1, 1, 0}, {2, 1, 2}, {{4, 5}, {5}, {1, 5}}, 0},
    {"elementwise, other", elementwise, {0, 1, 1}, {2, 0, 2}, {{4, 5}, {0}, {4, 1}}, 0},
    {"views", views, {1, 0, 9}, {2, 2, 9}, {{4, 5}, {2, 1}}, 0},
    {"views, both", views, {1, 1, 9}, {2, 2, 9}, {{4, 5}, {2, 1}}, 0},
    {"sums", sums, {1, 9, 9}, {2, 9, 9}, {{4, 5}}, 0},
    {"products", products, {1, 0, 1}, {2, 2, 1}, {{4, 5}, {5, 5}, {5}}, 0},
    {"products of weights", products, {0, 1, 0}, {3, 2, 1}, {{2, 4, 5}, {5, 5}, {5}}, 0},
    {"norms", norms, {1, 0, 1}, {2, 1, 2}, {{4, 5}, {5}, {4, 1}}, 0},
    {"norms, by slice", norms, {1, 1, 0}, {2, 1, 2}, {{4, 5}, {5}, {4, 5}}, 0},
    {"conv", convolved, {1, 0, 9}, {3, 3, 9}, {{2, 3, 7}, {4, 3, 3}}, 0},
    {"conv, weights by slice", convolved, {1, 1, 9}, {3, 3, 9}, {{2, 3, 7}, {4, 3, 3}}, 1},
    {"solve", solved, {1, 0, 9}, {2, 2, 9}, {{3, 3}, {3, 2}}, 0},
    {"attention", attended, {1, 0, 9}, {3, 3, 9}, {{4, 2, 3}, {4, 2, 3}}, 1},
    {"the same for all", untouched, {1, 0, 9}, {1, 2, 9}, {{2}, {3, 2}}, 0},
};

static uint32_t input_count(const row *r)
{
    uint32_t count = 0;
    while (count < INPUTS && r->ndim[count] != 9)
        count++;
    return count;
}

static uint32_t scans_in(const mica_graph *g)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < mica_graph_node_count(g); i++) {
        mica_graph_node_info info;
        must(mica_graph_get_node(g, i, &info));
        count += info.kind == MICA_NODE_SCAN;
    }
    return count;
}

static mica_graph *body_of(const row *r)
{
    mica_graph *body;
    mica_tensor x[INPUTS] = {0};
    must(mica_graph_create(&body));
    for (uint32_t i = 0; i < input_count(r); i++) {
        char name[16];
        snprintf(name, sizeof name, "x%u", i);
        x[i] = mica_graph_input(body, name, MICA_DTYPE_F64, r->ndim[i], r->shape[i]);
    }
    mica_graph_output(body, "y", r->build(body, x));
    must(mica_graph_status(body));
    return body;
}

/* Both ways, and the gradients of both by the first input that is mapped. */
static void check(const row *r)
{
    static double numbers[INPUTS][MOST], got[2][MOST];
    const uint32_t count = input_count(r);
    mica_graph *g, *body = body_of(r);
    mica_executable *run;
    mica_tensor x[INPUTS], ordered[INPUTS], y[2], dx[2] = {0};
    mica_array feed[INPUTS];
    char names[INPUTS][16];
    uint8_t mapped[INPUTS] = {0};
    test_random random = test_random_from(3);
    must(mica_graph_create(&g));
    for (uint32_t i = 0; i < count; i++) {
        uint64_t shape[5] = {N}, elements = 1;
        mapped[i] = r->mapped[i];
        const uint32_t more = mapped[i] != 0;
        memcpy(shape + more, r->shape[i], r->ndim[i] * sizeof *shape);
        for (uint32_t d = 0; d < r->ndim[i] + more; d++)
            elements *= shape[d];
        for (uint64_t e = 0; e < elements; e++)
            numbers[i][e] = test_random_uniform(&random, -1, 1);
        snprintf(names[i], sizeof names[i], "x%u", i);
        x[i] = mica_graph_input(g, names[i], MICA_DTYPE_F64, r->ndim[i] + more, shape);
        feed[i] = (mica_array){.name = names[i],
                               .dtype = MICA_DTYPE_F64,
                               .ndim = r->ndim[i] + more,
                               .data = numbers[i],
                               .bytes = elements * 8};
        memcpy(feed[i].shape, shape, sizeof shape);
    }
    (void)mica_graph_vmap(g, body, mapped, x, count, &y[0], 1);
    must(mica_graph_status(g));
    assert_int_equal(scans_in(g), r->scans);
    /* slice by slice: what is scanned comes first, so the body is called by one that puts its inputs in order */
    mica_graph *turned;
    mica_tensor inner[INPUTS];
    uint32_t used = 0, scanned = 0;
    must(mica_graph_create(&turned));
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < count; i++)
            if ((mapped[i] != 0) == (pass == 0)) {
                inner[i] = mica_graph_input(turned, names[i], MICA_DTYPE_F64, r->ndim[i], r->shape[i]);
                ordered[used++] = x[i];
                scanned += pass == 0;
            }
    mica_tensor slice;
    (void)mica_graph_call(turned, body, NULL, 0, inner, count, &slice, 1);
    mica_graph_output(turned, "y", slice);
    const mica_scan_desc desc = {.scanned = scanned, .others = count - scanned};
    (void)mica_graph_scan(g, turned, &desc, ordered, &y[1], 1);
    for (int k = 0; k < 2; k++)
        must(mica_graph_gradient(g, mica_graph_square(g, y[k]), 0, &ordered[0], 1, &dx[k]));
    mica_graph_output(g, "y0", y[0]);
    mica_graph_output(g, "y1", y[1]);
    mica_graph_output(g, "d0", dx[0]);
    mica_graph_output(g, "d1", dx[1]);
    must(mica_graph_compile(g, cpu, NULL, &run));
    for (int what = 0; what < 2; what++) {
        mica_array out[] = {{.name = what == 0 ? "y0" : "d0", .data = got[0], .bytes = sizeof got[0]},
                            {.name = what == 0 ? "y1" : "d1", .data = got[1], .bytes = sizeof got[1]}};
        must(mica_executable_run(run, feed, count, out, 2));
        uint64_t elements = 1;
        assert_int_equal(out[0].ndim, out[1].ndim);
        for (uint32_t d = 0; d < out[0].ndim; d++) {
            assert_int_equal(out[0].shape[d], out[1].shape[d]);
            elements *= out[0].shape[d];
        }
        for (uint64_t e = 0; e < elements; e++)
            if (!(fabs(got[0][e] - got[1][e]) <= 1e-12 * (1 + fabs(got[1][e])))) {
                print_error("%s, %s, element %llu: %.15g, slice by slice %.15g\n", r->name,
                            what == 0 ? "y" : "gradient", (unsigned long long)e, got[0][e], got[1][e]);
                fail();
            }
    }
    mica_executable_release(run);
    mica_graph_release(g);
    mica_graph_release(turned);
    mica_graph_release(body);
}

static void slices(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check(&rows[i]);
}

static void refusals(void **state)
{
    (void)state;
    static const uint8_t none[] = {0, 0, 0}, two[] = {1, 1, 0};
    for (int c = 0; c < 4; c++) {
        mica_graph *g, *body = body_of(&rows[0]);
        mica_tensor y = 9;
        must(mica_graph_create(&g));
        const mica_tensor x[] = {
            mica_graph_input(g, "a", MICA_DTYPE_F64, 3, (uint64_t[]){N, 4, 5}),
            mica_graph_input(g, "b", MICA_DTYPE_F64, 2, (uint64_t[]){c == 1 ? N + 1 : N, 5}),
            mica_graph_input(g, "c", c == 2 ? MICA_DTYPE_F32 : MICA_DTYPE_F64, 2, (uint64_t[]){1, 5})};
        (void)mica_graph_vmap(g, body, c == 0 ? none : two, x, c == 3 ? 2 : 3, &y, 1);
        static const char *const words[] = {"no input is mapped", "slices", "slices", "body has 3 inputs"};
        refused(mica_graph_status(g), MICA_ERR_INVALID_ARGUMENT, words[c]);
        assert_int_equal(y, 0);
        mica_graph_release(g);
        mica_graph_release(body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slices), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
