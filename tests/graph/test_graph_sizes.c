/* test_graph_sizes.c - sizes that are not known before a graph runs and follow from others in ways that have no name; memory of what is updated. Each was wrong once. */
#include "graph/graph_rig.h"

static mica_graph *parsed(const char *text)
{
    mica_graph *graph = NULL;
    if (mica_graph_parse(text, strlen(text), &graph) != MICA_OK)
        fail_msg("%s\n%s", mica_status_message(), text);
    return graph;
}

/* Of "x" [n], f32, and perhaps "p", a bool: "y", in every mode, for each n. */
static void gives(const char *text, const float *x, uint64_t n, int predicate, const float *y, uint64_t count)
{
    mica_graph *graph = parsed(text);
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = rig_compile(graph, device, mode);
        float got[16] = {0};
        uint8_t p = (uint8_t)predicate;
        mica_array in[] = {rig_array("x", MICA_DTYPE_F32, (void *)(uintptr_t)x, n * 4, 1, &n),
                           {.name = "p", .dtype = MICA_DTYPE_BOOL, .data = &p, .bytes = 1}};
        mica_array out = OUT_ARRAY("y", got);
        must(mica_executable_run(run, in, predicate < 0 ? 1 : 2, &out, 1));
        assert_int_equal(out.ndim, 1);
        assert_int_equal(out.shape[0], count);
        assert_memory_equal(got, y, count * sizeof *y);
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

#define X "symbols n\n%1 = input(\"x\") : f32 [n]\n"
static const float three[] = {3, 1, 2}, two[] = {5, 4};

/* What a choice gives has a size that a pad inside makes. */
static void test_choice(void **state)
{
    (void)state;
    static const char text[] = X "%2 = input(\"p\") : bool []\n"
                                 "%3 = if(%2, %1) : f32 [?] {\n" X "  %2 = pad(%1) low=(1) value=7\n"
                                 "  output \"a\" = %2\n} {\n" X "  %2 = pad(%1) high=(1) value=8\n"
                                 "  output \"b\" = %2\n}\noutput \"y\" = %3\n";
    gives(text, three, 3, 1, (const float[]){7, 3, 1, 2}, 4);
    gives(text, two, 2, 0, (const float[]){5, 4, 8}, 3);
}

/* A loop over a pad of x: each slice is one number, whose own pad is stacked. */
static void test_scan(void **state)
{
    (void)state;
    static const char text[] = X "%2 = pad(%1) high=(1) value=9\n"
                                 "%3, %4 = for(%1, %2) carried=1 scanned=1 : f32 [n], f32 [?, ?] {\n"
                                 "symbols n\n  %1 = input(\"h\") : f32 [n]\n  %2 = input(\"s\") : f32 []\n"
                                 "  %3 = add(%1, %2)\n  %4 = pad(%1) low=(1)\n"
                                 "  output \"h2\" = %3\n  output \"t\" = %4\n}\n"
                                 "%5 = reduce(%4) axes=2\noutput \"y\" = %5\n";
    gives(text, two, 2, -1, (const float[]){0, 5 + 10 + 14, 4 + 9 + 13}, 3);
}

/* A sort of all there is, however much that is. */
static void test_sort(void **state)
{
    (void)state;
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const uint64_t n = mica_graph_symbol(graph, "n");
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, &n);
    const mica_pad_params pad = {.low = {1}, .value = 2.5};
    mica_graph_output(graph, "y", mica_graph_sort(graph, mica_graph_pad(graph, x, &pad), 0, 0));
    uint64_t length = 0;
    char text[512];
    must(mica_graph_print(graph, text, sizeof text, &length));
    mica_graph_release(graph);
    gives(text, three, 3, -1, (const float[]){1, 2, 2.5f, 3}, 4);
    gives(text, two, 2, -1, (const float[]){2.5f, 4, 5}, 3);
}

/* Updates that are a view of what is updated: the last one to a place stays. */
static void test_updates(void **state)
{
    (void)state;
    gives(X "%2 = neg(%1)\n%3 = slice(%2) axis=0 start=1 count=2 step=1\n%4 = constant(0, 1) : i32 [2]\n"
            "%5 = scatter(%3, %4, %2)\noutput \"y\" = %5\n",
          three, 3, -1, (const float[]){-1, -2, -2}, 3);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice), cmocka_unit_test(test_scan),
                                              cmocka_unit_test(test_sort), cmocka_unit_test(test_updates)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
