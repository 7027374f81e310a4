/*
 * test_graph_drawn.c - graphs that were drawn: elementwise work, views, sums, places, products, choices and loops of any shapes, in every mode, as written and behind
 * the passes, with sizes that are numbers and with symbols, give what their formulas give in double (program.h), the same bits where the headers say so, and a text and a file
 * that give them back.
 *
 *   test_graph_drawn [FIRST [COUNT]]     other programs than those of `make test`; a report says the number
 */
#include <stdio.h>
#include <unistd.h>

#include "graph/graph_rig.h"
#include "program_build.h"
#include "program_draw.h"
#include "program_run.h"

static uint64_t first_seed = 1, seed_count = 150;

typedef struct drawn_case {
    uint64_t seed;
    program *p;
    uint32_t parameters;    /* inputs that are parameters, as bits */
    uint32_t state, output; /* input `state` becomes output `output` in the next run; else NOTHING */
    void *input[PROGRAM_INPUTS];
    program_values *value[2]; /* of two runs */
    uint64_t compared, elements;
    bool refused; /* with symbols: what sizes have to be equal for is not known before they are */
} drawn_case;

static const char *const way_names[] = {"eager", "lazy", "compiled"};

typedef struct way {
    mica_graph_mode mode;
    uint32_t flags;
    bool symbols;
} way;

/* What a way gave: bytes of each output of both runs; whether the passes put other ops into the graph, which add in another order. */
typedef struct given {
    void *data[2][PROGRAM_OUTPUTS];
    bool other_ops;
} given;

static void given_free(given *g)
{
    for (int run = 0; run < 2; run++)
        for (int i = 0; i < PROGRAM_OUTPUTS; i++)
            free(g->data[run][i]);
}

static uint64_t bytes_of(const program_shape *t)
{
    return shape_count(t) * mica_dtype_block_bytes(t->dtype);
}

static const program_shape *output_type(const drawn_case *c, uint32_t i)
{
    return &c->p->step[c->p->output[i]].type;
}

static mica_array array_of(const drawn_case *c, uint32_t i, char name[16])
{
    const program_shape *t = &c->p->step[i].type;
    snprintf(name, 16, "x%u", i);
    return rig_array(name, t->dtype, c->input[i], bytes_of(t), t->ndim, t->size);
}

/* ---- the case ---- */

static void case_values(drawn_case *c)
{
    program_value in[PROGRAM_INPUTS] = {{0}};
    for (uint32_t i = 0; i < c->p->inputs; i++) {
        const program_shape *t = &c->p->step[i].type;
        c->input[i] = calloc(1, bytes_of(t) + 8);
        in[i] = value_new(shape_count(t));
        for (uint64_t e = 0; e < shape_count(t); e++) {
            in[i].x[e] = drawn_number(t->dtype, c->seed * 16 + i, e);
            put_bytes(t->dtype, c->input[i], e, in[i].x[e]);
        }
    }
    c->value[0] = program_compute(c->p, in);
    if (c->state != NOTHING)
        value_copy(&in[c->state], &c->value[0]->of[c->p->output[c->output]], 0,
                   shape_count(&c->p->step[c->state].type));
    c->value[1] = program_compute(c->p, in);
    for (uint32_t i = 0; i < c->p->inputs; i++)
        free(in[i].x);
}

static void case_begin(drawn_case *c, uint64_t seed)
{
    test_random random = test_random_from(seed);
    *c = (drawn_case){.seed = seed,
                      .p = program_draw(&random, (uint32_t)test_random_below(&random, DRAWN_KINDS)),
                      .state = NOTHING};
    for (uint32_t i = 0; i < c->p->inputs; i++)
        c->parameters |= (uint32_t)test_random_one_in(&random, 4) << i;
    for (uint32_t i = 0; i < c->p->inputs; i++)
        for (uint32_t o = 0; o < c->p->output_count; o++)
            if ((c->parameters >> i & 1) == 0 && c->p->output[o] != i && test_random_one_in(&random, 2) &&
                same_type(&c->p->step[i].type, output_type(c, o)))
                c->state = i, c->output = o;
    case_values(c);
}

static void case_end(drawn_case *c)
{
    for (uint32_t i = 0; i < c->p->inputs; i++)
        free(c->input[i]);
    values_free(c->value[0]);
    values_free(c->value[1]);
    program_free(c->p);
}

static void complain(const drawn_case *c, const way *w, const char *what, const mica_graph *graph)
{
    uint64_t length = 0;
    print_error("case %llu, %s%s%s: %s\n", (unsigned long long)c->seed, way_names[w->mode - MICA_MODE_EAGER],
                w->flags == MICA_COMPILE_AS_WRITTEN ? ", as written"
                : w->flags != 0                     ? ", training"
                                                    : "",
                w->symbols ? ", with symbols" : "", what);
    (void)mica_graph_print(graph, NULL, 0, &length);
    char *text = calloc(1, length + 1);
    (void)mica_graph_print(graph, text, length + 1, &length);
    (void)fprintf(stderr, "%s\n", text); /* cmocka cuts */
    free(text);
    fail();
}

/* ---- runs ---- */

static void run_once(const drawn_case *c, const way *w, const mica_graph *graph, mica_executable *executable,
                     int run, given *g)
{
    mica_array in[PROGRAM_INPUTS], out[PROGRAM_OUTPUTS];
    char names[PROGRAM_INPUTS][16], results[PROGRAM_OUTPUTS][16];
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->p->inputs; i++)
        if ((c->parameters >> i & 1) == 0 && i != c->state) {
            in[count] = array_of(c, i, names[i]);
            count++;
        }
    for (uint32_t i = 0; i < c->p->output_count; i++) {
        const uint64_t bytes = bytes_of(output_type(c, i));
        g->data[run][i] = malloc(bytes + 8);
        memset(g->data[run][i], 0xee, bytes + 8);
        snprintf(results[i], 16, "y%u", i);
        out[i] = (mica_array){.name = results[i], .data = g->data[run][i], .bytes = bytes};
    }
    if (mica_executable_run(executable, in, count, out, c->p->output_count) != MICA_OK)
        complain(c, w, mica_status_message(), graph);
    for (uint32_t i = 0; i < c->p->output_count; i++)
        if (out[i].ndim != output_type(c, i)->ndim || out[i].dtype != output_type(c, i)->dtype ||
            memcmp(out[i].shape, output_type(c, i)->size, out[i].ndim * sizeof(uint64_t)) != 0)
            complain(c, w, "another shape or type", graph);
}

static char *text_of(const mica_graph *graph)
{
    uint64_t length = 0;
    must(mica_graph_print(graph, NULL, 0, &length));
    char *text = calloc(1, length + 1);
    must(mica_graph_print(graph, text, length + 1, &length));
    return text;
}

/* Whether the graph has a node of that name behind the passes, and had none. */
static bool has_gained(const mica_graph *graph, const mica_executable *executable, const char *name)
{
    uint64_t length = 0;
    must(mica_executable_print(executable, NULL, 0, &length));
    char *after = calloc(1, length + 1), *before = text_of(graph);
    must(mica_executable_print(executable, after, length + 1, &length));
    const bool gained = strstr(after, name) != NULL && strstr(before, name) == NULL;
    free(after);
    free(before);
    return gained;
}

static given run_way(const drawn_case *c, const way *w, const mica_graph *graph, mica_device *device)
{
    given g = {0};
    mica_executable *executable = NULL;
    const mica_compile_options options = {.mode = w->mode, .flags = w->flags};
    if (mica_graph_compile(graph, device, &options, &executable) != MICA_OK)
        complain(c, w, mica_status_message(), graph);
    if (c->state != NOTHING) {
        char state[16], output[16];
        snprintf(state, sizeof state, "x%u", c->state);
        snprintf(output, sizeof output, "y%u", c->output);
        must(mica_executable_link(executable, output, state));
    }
    for (uint32_t i = 0; i < c->p->inputs; i++)
        if ((c->parameters >> i & 1) != 0 || i == c->state) {
            char name[16];
            must(rig_set(executable, array_of(c, i, name)));
        }
    for (int run = 0; run < 2; run++)
        run_once(c, w, graph, executable, run, &g);
    g.other_ops = has_gained(graph, executable, "= matmul(") || has_gained(graph, executable, "= softmax(");
    mica_executable_release(executable);
    return g;
}

/* Against the formulas. */
static void compare(drawn_case *c, const way *w, const mica_graph *graph, const given *g)
{
    for (int run = 0; run < 2; run++)
        for (uint32_t i = 0; i < c->p->output_count; i++) {
            const program_value *v = &c->value[run]->of[c->p->output[i]];
            const program_shape *t = output_type(c, i);
            for (uint64_t e = 0; e < shape_count(t); e++) {
                const double x = get_bytes(t->dtype, g->data[run][i], e);
                char what[160];
                c->elements++;
                c->compared += isfinite(v->error[e]) != 0;
                if (!isfinite(v->error[e]) || fabs(x - v->x[e]) <= v->error[e])
                    continue;
                snprintf(what, sizeof what, "run %d, y%u, element %llu is %.17g, not %.17g (within %g)", run,
                         i, (unsigned long long)e, x, v->x[e], v->error[e]);
                complain(c, w, what, graph);
            }
        }
}

static void same_bits(const drawn_case *c, const way *w, const mica_graph *graph, const given *a,
                      const given *b, const char *than)
{
    for (int run = 0; run < 2; run++)
        for (uint32_t i = 0; i < c->p->output_count; i++)
            if (memcmp(a->data[run][i], b->data[run][i], bytes_of(output_type(c, i))) != 0) {
                char what[96];
                snprintf(what, sizeof what, "run %d, y%u has other bits than %s", run, i, than);
                complain(c, w, what, graph);
            }
}

/* ---- texts and files ---- */

static void same_text(const drawn_case *c, const way *w, const mica_graph *graph)
{
    mica_graph *parsed = NULL, *loaded = NULL;
    char *text = text_of(graph), path[64];
    must(mica_graph_verify(graph));
    if (mica_graph_parse(text, strlen(text), &parsed) != MICA_OK)
        complain(c, w, mica_status_message(), graph);
    char *again = text_of(parsed);
    if (strcmp(text, again) != 0)
        complain(c, w, "its text read back is another", graph);
    snprintf(path, sizeof path, "drawn_%ld.graph", (long)getpid());
    must(mica_graph_save(graph, path));
    must(mica_graph_load(path, &loaded));
    (void)remove(path);
    char *stored = text_of(loaded);
    if (strcmp(text, stored) != 0)
        complain(c, w, "its file read back is another", graph);
    free(text);
    free(again);
    free(stored);
    mica_graph_release(parsed);
    mica_graph_release(loaded);
}

/* ---- all ways ---- */

static void check_ways(drawn_case *c, mica_device *device, const way *ways, uint32_t count)
{
    given kept = {0};
    for (uint32_t i = 0; i < count; i++) {
        mica_graph *graph = program_build(c->p, c->parameters, ways[i].symbols);
        if (mica_graph_status(graph) != MICA_OK) {
            if (!ways[i].symbols)
                complain(c, &ways[i], mica_status_message(), graph);
            if (getenv("DRAWN_SAYS") != NULL)
                print_message("case %llu, with symbols: %s\n", (unsigned long long)c->seed,
                              mica_status_message());
            c->refused = true;
            mica_graph_release(graph);
            continue;
        }
        given g = run_way(c, &ways[i], graph, device);
        compare(c, &ways[i], graph, &g);
        if (i == 0) {
            kept = g;
            same_text(c, &ways[i], graph);
        } else {
            if (g.other_ops == kept.other_ops)
                same_bits(c, &ways[i], graph, &g, &kept, "compiled");
            given_free(&g);
        }
        mica_graph_release(graph);
    }
    given_free(&kept);
}

static void test_drawn(void **state)
{
    (void)state;
    static const way ways[] = {{MICA_MODE_COMPILED, 0, false},
                               {MICA_MODE_LAZY, 0, false},
                               {MICA_MODE_EAGER, 0, false},
                               {MICA_MODE_COMPILED, MICA_COMPILE_AS_WRITTEN, false},
                               {MICA_MODE_EAGER, MICA_COMPILE_AS_WRITTEN, false},
                               {MICA_MODE_COMPILED, MICA_COMPILE_TRAINING, false},
                               {MICA_MODE_COMPILED, 0, true}};
    uint64_t compared = 0, elements = 0;
    for (uint64_t seed = first_seed; seed < first_seed + seed_count; seed++) {
        drawn_case c;
        case_begin(&c, seed);
        check_ways(&c, devices[0], ways, sizeof ways / sizeof ways[0]);
        compared += c.compared;
        elements += c.elements;
        case_end(&c);
    }
    assert_true(compared * 10 >= elements * 8); /* bounds say something of most of what is there */
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn)};
    if (argc > 1)
        first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        seed_count = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
