/*
 * test_gradient_drawn.c - gradients of graphs that were drawn (program_draw.h), along a direction: against differences of what the formulas give in double, in every mode and behind the
 * passes. Where two steps of a difference disagree there is a kink between them, and nothing is compared.
 *
 *   test_gradient_drawn [FIRST [COUNT]]     other programs than those of `make test`; a report says the number
 */
#include <stdio.h>

#include "graph/graph_rig.h"
#include "mica/gradient.h"
#include "program_build.h"
#include "program_draw.h"
#include "program_run.h"

static uint64_t first_seed = 1, seed_count = 150;

typedef struct slope_case {
    uint64_t seed;
    program *p;
    program_value at[PROGRAM_INPUTS], along[PROGRAM_INPUTS];
} slope_case;

static bool is_cut(const program *p)
{
    bool cut = false;
    for (uint32_t i = 0; p != NULL && i < p->count && !cut; i++)
        cut = p->step[i].kind == STEP_STOP || is_cut(p->step[i].body[0]) || is_cut(p->step[i].body[1]);
    return cut;
}

static double factor_of(uint32_t output, uint64_t element)
{
    return drawn_number(MICA_DTYPE_F64, 1000 + output, element);
}

static bool is_real_output(const program *p, uint32_t i)
{
    return p->step[p->output[i]].type.dtype == MICA_DTYPE_F64;
}

/* The sum of all real outputs, each element with a factor of its own, `step` along the direction. NaN: not certain. */
static double loss_at(const slope_case *c, double step)
{
    program_value in[PROGRAM_INPUTS];
    double sum = 0;
    for (uint32_t i = 0; i < c->p->inputs; i++) {
        const uint64_t count = shape_count(&c->p->step[i].type);
        in[i] = value_new(count);
        for (uint64_t e = 0; e < count; e++)
            in[i].x[e] = c->at[i].x[e] + step * c->along[i].x[e];
    }
    program_values *v = program_compute(c->p, in);
    for (uint32_t i = 0; i < c->p->output_count; i++) {
        const program_shape *t = &c->p->step[c->p->output[i]].type;
        for (uint64_t e = 0; is_real_output(c->p, i) && e < shape_count(t); e++)
            sum += factor_of(i, e) *
                   (isfinite(v->of[c->p->output[i]].error[e]) ? v->of[c->p->output[i]].x[e] : NAN);
    }
    values_free(v);
    for (uint32_t i = 0; i < c->p->inputs; i++)
        free(in[i].x);
    return sum;
}

static void case_begin(slope_case *c, uint64_t seed)
{
    test_random random = test_random_from(seed);
    *c = (slope_case){.seed = seed, .p = program_draw(&random, DRAWN_F64)};
    for (uint32_t i = 0; i < c->p->inputs; i++) {
        const program_shape *t = &c->p->step[i].type;
        c->at[i] = value_new(shape_count(t));
        c->along[i] = value_new(shape_count(t));
        for (uint64_t e = 0; e < shape_count(t); e++) {
            c->at[i].x[e] = drawn_number(t->dtype, seed * 16 + i, e);
            c->along[i].x[e] = t->dtype == MICA_DTYPE_F64 ? drawn_number(t->dtype, seed * 16 + i + 8, e) : 0;
        }
    }
}

static void case_end(slope_case *c)
{
    for (uint32_t i = 0; i < c->p->inputs; i++) {
        free(c->at[i].x);
        free(c->along[i].x);
    }
    program_free(c->p);
}

/* The slope of the loss along the direction, as a graph whose output "slope" it is; NULL: there is no gradient, and the graph says so by name. */
static mica_graph *slope_graph(const slope_case *c)
{
    mica_graph *g = program_build(c->p, 0, false);
    mica_tensor of[PROGRAM_INPUTS], got[PROGRAM_INPUTS], loss = mica_graph_number(g, MICA_DTYPE_F64, 0),
                                                         slope = loss;
    uint32_t place[PROGRAM_INPUTS], count = 0;
    for (uint32_t i = 0; i < c->p->output_count; i++) {
        const program_shape *t = &c->p->step[c->p->output[i]].type;
        double factors[PROGRAM_ELEMENTS];
        if (!is_real_output(c->p, i))
            continue;
        for (uint64_t e = 0; e < shape_count(t); e++)
            factors[e] = factor_of(i, e);
        const mica_tensor by = mica_graph_constant(g, MICA_DTYPE_F64, t->ndim, t->size, factors,
                                                   shape_count(t) * sizeof *factors);
        const mica_tensor each = mica_graph_mul(g, mica_graph_get_output(g, i, NULL), by);
        loss = mica_graph_add(g, loss, mica_graph_reduce(g, MICA_REDUCE_SUM, each, NULL, 0, 0));
    }
    for (uint32_t i = 0; i < c->p->inputs; i++)
        if (c->p->step[i].type.dtype == MICA_DTYPE_F64) {
            place[count] = i;
            of[count++] = mica_graph_get_input(g, i, NULL);
        }
    const mica_status status =
        count == 0 ? MICA_ERR_UNSUPPORTED : mica_graph_gradient(g, loss, 0, of, count, got);
    if (status == MICA_ERR_UNSUPPORTED) {
        mica_graph_release(g);
        return NULL;
    }
    for (uint32_t k = 0; k < count; k++) {
        const program_shape *t = &c->p->step[place[k]].type;
        const mica_tensor by = mica_graph_constant(g, MICA_DTYPE_F64, t->ndim, t->size, c->along[place[k]].x,
                                                   shape_count(t) * sizeof(double));
        slope = mica_graph_add(
            g, slope, mica_graph_reduce(g, MICA_REDUCE_SUM, mica_graph_mul(g, got[k], by), NULL, 0, 0));
    }
    mica_graph_output(g, "slope", slope);
    if (mica_graph_status(g) != MICA_OK)
        fail_msg("case %llu: %s", (unsigned long long)c->seed, mica_status_message());
    return g;
}

static double run_slope(const slope_case *c, const mica_graph *graph, mica_graph_mode mode, uint32_t flags)
{
    mica_array in[PROGRAM_INPUTS];
    char names[PROGRAM_INPUTS][16];
    double slope = 0;
    mica_array out = {.name = "slope", .data = &slope, .bytes = sizeof slope};
    mica_executable *run = NULL;
    for (uint32_t i = 0; i < c->p->inputs; i++) {
        const program_shape *t = &c->p->step[i].type;
        const uint64_t bytes = shape_count(t) * mica_dtype_block_bytes(t->dtype);
        snprintf(names[i], sizeof names[i], "x%u", i);
        in[i] = rig_array(names[i], t->dtype, calloc(1, bytes + 8), bytes, t->ndim, t->size);
        for (uint64_t e = 0; e < shape_count(t); e++)
            put_bytes(t->dtype, in[i].data, e, c->at[i].x[e]);
    }
    const mica_compile_options options = {.mode = mode, .flags = flags};
    if (mica_graph_compile(graph, devices[0], &options, &run) != MICA_OK ||
        mica_executable_run(run, in, c->p->inputs, &out, 1) != MICA_OK)
        fail_msg("case %llu: %s", (unsigned long long)c->seed, mica_status_message());
    mica_executable_release(run);
    for (uint32_t i = 0; i < c->p->inputs; i++)
        free(in[i].data);
    return slope;
}

/* Whether something was compared. */
static bool check_case(const slope_case *c, const mica_graph *graph)
{
    const double h = 1e-5;
    const double wide = (loss_at(c, h) - loss_at(c, -h)) / (2 * h);
    const double narrow = (loss_at(c, h / 2) - loss_at(c, -h / 2)) / h;
    const double size = 1 + fabs(wide) + fabs(loss_at(c, 0));
    const double compiled = run_slope(c, graph, MICA_MODE_COMPILED, 0);
    const double others[] = {run_slope(c, graph, MICA_MODE_LAZY, 0), run_slope(c, graph, MICA_MODE_EAGER, 0),
                             run_slope(c, graph, MICA_MODE_COMPILED, MICA_COMPILE_AS_WRITTEN)};
    for (int i = 0; i < 3 && isfinite(compiled); i++)
        if (!(fabs(others[i] - compiled) <= 1e-10 * size))
            fail_msg("case %llu: compiled %.17g, way %d %.17g", (unsigned long long)c->seed, compiled, i,
                     others[i]);
    if (!(fabs(wide - narrow) <= 1e-6 * size) || size > 1e6)
        return false;
    if (!(fabs(compiled - wide) <= 1e-5 * size))
        fail_msg("case %llu: the slope is %.12g, by differences %.12g", (unsigned long long)c->seed, compiled,
                 wide);
    return true;
}

static void test_slopes(void **state)
{
    (void)state;
    uint64_t made = 0, compared = 0;
    for (uint64_t seed = first_seed; seed < first_seed + seed_count; seed++) {
        slope_case c;
        case_begin(&c, seed);
        mica_graph *graph = is_cut(c.p) ? NULL : slope_graph(&c);
        if (graph != NULL) {
            made++;
            compared += check_case(&c, graph);
        }
        mica_graph_release(graph);
        case_end(&c);
    }
    if (getenv("DRAWN_SAYS") != NULL)
        print_message("%llu gradients, %llu compared\n", (unsigned long long)made,
                      (unsigned long long)compared);
    assert_true(made * 4 >= seed_count && compared * 3 >= made * 2);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_slopes)};
    if (argc > 1)
        first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        seed_count = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
