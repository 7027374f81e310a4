/*
 * test_graph_rows.c - outputs of as many rows as the run counts (mica_graph_output_rows): their shape, their bytes and buffers, along any axis, more counted than there is
 * room for; as text and as a file; what is refused.
 */
#include "graph/graph_rig.h"
#include "support/folder.h"

/* places [room, 2] and their transpose, counted along axes 0 and 1. */
static mica_graph *places_of(uint64_t room)
{
    mica_graph *graph = NULL;
    mica_tensor count = 0;
    must(mica_graph_create(&graph));
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(2, 3));
    const mica_tensor y = mica_graph_nonzero(graph, x, room, &count);
    mica_graph_output(graph, "places", y);
    mica_graph_output(graph, "across", mica_graph_permute(graph, y, (const uint32_t[]){1, 0}));
    mica_graph_output(graph, "found", count);
    must(mica_graph_output_rows(graph, "places", 0, "found"));
    must(mica_graph_output_rows(graph, "across", 1, "found"));
    return graph;
}

static void check_run(mica_executable *run, const float *x, uint64_t there, const int32_t *wanted)
{
    int32_t places[12], across[12], found = -1;
    mica_array in = rig_array("x", MICA_DTYPE_F32, (float *)(uintptr_t)x, 24, 2, SHAPE(2, 3));
    mica_array out[] = {OUT_ARRAY("places", places),
                        OUT_ARRAY("across", across),
                        {.name = "found", .data = &found, .bytes = sizeof found}};
    mica_array kept[] = {{.name = "places"}, {.name = "across"}};
    memset(places, 0x55, sizeof places);
    memset(across, 0x55, sizeof across);
    out[0].bytes = out[1].bytes = there * 8; /* no more than there is */
    must(mica_executable_run(run, &in, 1, out, 3));
    must(mica_executable_run(run, &in, 1, kept, 2));
    assert_true(out[0].ndim == 2 && out[0].shape[0] == there && out[0].shape[1] == 2);
    assert_true(out[1].ndim == 2 && out[1].shape[0] == 2 && out[1].shape[1] == there);
    assert_true(out[0].bytes == there * 8 && out[1].bytes == there * 8);
    for (uint64_t i = 0; i < there * 2; i++) {
        assert_int_equal(places[i], wanted[i]);
        assert_int_equal(across[i % 2 * there + i / 2], wanted[i]);
    }
    assert_true(there == 6 || (places[there * 2] == 0x55555555 && across[there * 2] == 0x55555555));
    for (int i = 0; i < 2; i++) {
        int32_t read[12] = {0};
        assert_true(kept[i].shape[i] == there && kept[i].shape[1 - i] == 2);
        if (there != 0)
            must(mica_buffer_read(kept[i].buffer, 0, read, there * 8));
        assert_memory_equal(read, i == 0 ? places : across, there * 8);
        mica_buffer_release(kept[i].buffer);
    }
    if (there != 0) {
        out[0].bytes = there * 8 - 1;
        refused(mica_executable_run(run, &in, 1, out, 1), MICA_ERR_INVALID_ARGUMENT, "'places' takes");
    }
}

static void test_run(void **state)
{
    static const float none[6] = {0}, some[6] = {0, 1, 0, 2, 0, 3}, all[6] = {1, 2, 3, 4, 5, 6};
    static const int32_t places[] = {0, 1, 1, 0, 1, 2}, each[] = {0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2};
    (void)state;
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_graph *graph = places_of(0);
        mica_executable *run = rig_compile(graph, device, mode);
        check_run(run, none, 0, NULL);
        check_run(run, some, 3, places);
        check_run(run, all, 6, each);
        mica_executable_release(run);
        mica_graph_release(graph);
        graph = places_of(2); /* six are counted, two of them have room */
        run = rig_compile(graph, device, mode);
        check_run(run, all, 2, each);
        mica_executable_release(run);
        mica_graph_release(graph);
    }
}

/* Two runs in flight, each with a number of its own. */
static void test_in_flight(void **state)
{
    float x[2][6] = {{1, 0, 0, 0, 0, 0}, {0, 1, 1, 1, 0, 1}};
    int32_t places[2][12];
    mica_executable *run = NULL;
    mica_run *runs[2];
    mica_array out[2];
    (void)state;
    mica_graph *graph = places_of(0);
    must(mica_graph_compile(graph, devices[0], &(mica_compile_options){.in_flight = 2}, &run));
    for (int i = 0; i < 2; i++) {
        mica_array in = F32_ARRAY("x", x[i], 2, 3);
        out[i] = (mica_array)OUT_ARRAY("across", places[i]);
        must(mica_executable_commit(run, &in, 1, &out[i], 1, &runs[i]));
    }
    for (int i = 1; i >= 0; i--)
        must(mica_run_wait(runs[i]));
    assert_true(out[0].shape[1] == 1 && out[1].shape[1] == 4);
    assert_true(places[0][0] == 0 && places[1][3] == 1 && places[1][4] == 1 && places[1][7] == 2);
    mica_executable_release(run);
    mica_graph_release(graph);
}

static void check_counted(const mica_graph *graph)
{
    uint32_t axis = 7;
    assert_string_equal(mica_graph_get_output_rows(graph, 0, &axis), "found");
    assert_int_equal(axis, 0);
    assert_string_equal(mica_graph_get_output_rows(graph, 1, &axis), "found");
    assert_int_equal(axis, 1);
    assert_null(mica_graph_get_output_rows(graph, 2, &axis));
    assert_null(mica_graph_get_output_rows(graph, 3, NULL));
    assert_null(mica_graph_get_output_rows(NULL, 0, NULL));
}

static void test_text(void **state)
{
    char text[2048], again[2048], folder[256], path[300];
    uint64_t length = 0, other = 0;
    mica_graph *graph = places_of(0), *read = NULL;
    (void)state;
    must(mica_graph_print(graph, text, sizeof text, &length));
    assert_non_null(strstr(text, "rows \"across\" along 1 = \"found\"\n"));
    must(mica_graph_parse(text, length, &read));
    check_counted(read);
    must(mica_graph_print(read, again, sizeof again, &other));
    assert_string_equal(text, again);
    mica_graph_release(read);
    must(mica_graph_clone(graph, &read));
    check_counted(read);
    mica_graph_release(read);
    assert_int_equal(test_folder_make(folder, sizeof folder, "rows"), 0);
    snprintf(path, sizeof path, "%s/graph.safetensors", folder);
    must(mica_graph_save(graph, path));
    must(mica_graph_load(path, &read));
    check_counted(read);
    mica_graph_release(read);
    mica_graph_release(graph);
    test_folder_empty(folder);
    assert_int_equal(test_folder_remove(folder), 0);
}

static void refuse(const char *name, uint32_t axis, const char *count, const char *sentence)
{
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    const mica_tensor x = mica_graph_input(graph, "x", MICA_DTYPE_F32, 2, SHAPE(2, 3));
    mica_graph_output(graph, "x", x);
    mica_graph_output(graph, "n", mica_graph_number(graph, MICA_DTYPE_I64, 1));
    mica_graph_output(graph, "counted", mica_graph_neg(graph, x));
    must(mica_graph_output_rows(graph, "counted", 0, "n"));
    refused(mica_graph_output_rows(graph, name, axis, count), MICA_ERR_INVALID_ARGUMENT, sentence);
    refused(mica_graph_status(graph), MICA_ERR_INVALID_ARGUMENT, sentence);
    mica_graph_release(graph);
}

static void test_refused(void **state)
{
    mica_graph *body = NULL, *graph = NULL, *read = NULL;
    static const char none[] = "%1 = input(\"x\") : f32 [2]\noutput \"x\" = %1\nrows \"x\" along 0 = \"y\"\n",
                      where[] = "%1 = input(\"x\") : f32 [2]\noutput \"x\" = %1\nrows \"x\" 0 = \"x\"\n";
    (void)state;
    refused(mica_graph_output_rows(NULL, "x", 0, "n"), MICA_ERR_INVALID_ARGUMENT, "graph is NULL");
    refuse("y", 0, "n", "name 'y' is no output");
    refuse(NULL, 0, "n", "name '(NULL)' is no output");
    refuse("x", 0, "y", "count 'y' is no output");
    refuse("x", 0, NULL, "count '(NULL)' is no output");
    refuse("n", 0, "n", "count 'n' is no other output");
    refuse("x", 2, "n", "axis is 2 of the 2 dimensions");
    refuse("counted", 0, "n", "counted already");
    refuse("x", 0, "counted", "'counted' is not one i32 or i64");
    refused(mica_graph_parse(none, sizeof none - 1, &read), MICA_ERR_MALFORMED_FILE, "line 3");
    refused(mica_graph_parse(where, sizeof where - 1, &read), MICA_ERR_MALFORMED_FILE, "no axis");
    must(mica_graph_create(&body));
    const mica_tensor x = mica_graph_input(body, "x", MICA_DTYPE_F32, 1, SHAPE(2));
    mica_graph_output(body, "y", x);
    mica_graph_output(body, "n", mica_graph_number(body, MICA_DTYPE_I32, 1));
    must(mica_graph_output_rows(body, "y", 0, "n"));
    must(mica_graph_create(&graph));
    const mica_tensor in = mica_graph_input(graph, "x", MICA_DTYPE_F32, 1, SHAPE(2));
    assert_int_equal(mica_graph_call(graph, body, NULL, 0, &in, 1, NULL, 2), 0);
    refused(mica_graph_status(graph), MICA_ERR_UNSUPPORTED, "which no sub-graph does");
    mica_graph_release(graph);
    mica_graph_release(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
