/*
 * test_onnx_rows.c - rows of which the run finds how many, beside ONNX Runtime (scripts/golden_rows.py): where they come from, what reads them, the ends of detectors; with
 * none, one, some and all of them there, in every mode on every device.
 */
#include "graph/onnx_nodes.h"

static void run_in(mica_graph_mode mode)
{
    EACH_DEVICE(device) assert_int_equal(nodes_run_all(device, mode, NODES_ROWS), 0);
}

static void test_compiled(void **state)
{
    (void)state;
    run_in(MICA_MODE_COMPILED);
}

static void test_lazy(void **state)
{
    (void)state;
    run_in(MICA_MODE_LAZY);
}

static void test_eager(void **state)
{
    (void)state;
    run_in(MICA_MODE_EAGER);
}

/* What could let a row that is not there reach one that is, or has no meaning without their number: refused, by name. */
static void test_refused(void **state)
{
    (void)state;
    char folder[256], path[300];
    uint32_t count = 0;
    nodes_archive archive = nodes_open("tests/golden/onnx/rows_refused.bin", &count);
    assert_int_equal(test_folder_make(folder, sizeof folder, "rows"), 0);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    for (uint32_t i = 0; i < count; i++) {
        nodes_case c;
        mica_onnx *model = NULL;
        mica_graph *graph = NULL;
        nodes_next(&archive, &c);
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(c.model, 1, c.model_bytes, file), c.model_bytes);
        fclose(file);
        must(mica_onnx_open(path, &model));
        if (mica_onnx_graph(model, NULL, 0, &graph) != MICA_ERR_UNSUPPORTED ||
            strstr(mica_status_message(), c.name) == NULL)
            fail_msg("\"%s\" was wanted: %s", c.name, mica_status_message());
        assert_null(graph);
        mica_onnx_release(model);
    }
    test_folder_empty(folder);
    assert_int_equal(test_folder_remove(folder), 0);
    free(archive.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_compiled), cmocka_unit_test(test_lazy),
                                       cmocka_unit_test(test_eager), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
