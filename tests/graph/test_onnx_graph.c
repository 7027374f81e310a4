/*
 * test_onnx_graph.c - ONNX models as graphs: what a model says of itself, symbols and shapes, and what is refused by name. The files are scripts/golden_onnx.py's.
 */
#include <stdlib.h>

#include "graph/graph_rig.h"
#include "graph/onnx/importer.h"
#include "mica/onnx.h"
#include "support/folder.h"

#define LINEAR "tests/golden/onnx/linear.onnx"
#define EVERY "tests/golden/onnx/every.onnx"

static mica_onnx *open_model(const char *path)
{
    mica_onnx *model = NULL;
    must(mica_onnx_open(path, &model));
    return model;
}

static void test_facts(void **state)
{
    (void)state;
    mica_onnx *model = open_model(LINEAR);
    mica_onnx_info info;
    assert_int_equal(mica_onnx_input_count(model), 1);
    assert_int_equal(mica_onnx_output_count(model), 1);
    must(mica_onnx_get_input(model, 0, &info));
    assert_string_equal(info.name, "x");
    assert_string_equal(info.type_name, "float");
    assert_int_equal(info.dtype, MICA_DTYPE_F32);
    assert_int_equal(info.ndim, 2);
    assert_true(info.shape[0] == MICA_SIZE_UNKNOWN && info.shape[1] == 3);
    assert_string_equal(info.symbol[0], "batch");
    assert_string_equal(info.symbol[1], "");
    must(mica_onnx_get_output(model, 0, &info));
    assert_string_equal(info.name, "y");
    assert_int_equal(mica_onnx_opset(model, ""), 17);
    assert_int_equal(mica_onnx_opset(model, "none"), 0);
    refused(mica_onnx_get_input(model, 1, &info), MICA_ERR_INVALID_ARGUMENT, "1 of 1");
    refused(mica_onnx_get_output(model, 1, &info), MICA_ERR_INVALID_ARGUMENT, "1 of 1");
    refused(mica_onnx_get_input(NULL, 0, &info), MICA_ERR_INVALID_ARGUMENT, "0 of 0");
    assert_int_equal(mica_onnx_input_count(NULL) + mica_onnx_output_count(NULL), 0);
    mica_onnx_release(model);
    mica_onnx_release(NULL);
}

/* relu(x w + b), two values a row, against plain C; the chain of shapes is gone. */
static void test_linear(void **state)
{
    (void)state;
    enum { BATCH = 5 };
    float x[BATCH * 3], y[BATCH * 4], wanted[BATCH * 4];
    static const float bias[4] = {0.5f, -0.5f, 0.25f, 0};
    test_random random = test_random_from(3);
    rig_fill(&random, x, BATCH * 3);
    for (int r = 0; r < BATCH; r++)
        for (int c = 0; c < 4; c++) {
            double sum = (double)bias[c];
            for (int k = 0; k < 3; k++)
                sum += (double)x[r * 3 + k] * ((k * 4 + c) / 4.0 - 1);
            wanted[r * 4 + c] = (float)(sum > 0 ? sum : 0);
        }
    mica_onnx *model = open_model(LINEAR);
    const mica_onnx_tensor shape = {.name = "x", .ndim = 2, .shape = {BATCH, 3}};
    mica_graph *graph = NULL;
    must(mica_onnx_graph(model, &shape, 1, &graph));
    mica_onnx_release(model);
    for (uint32_t n = 0; n < mica_graph_node_count(graph); n++) {
        mica_graph_node_info node;
        must(mica_graph_get_node(graph, n, &node));
        assert_true(node.kind != MICA_NODE_CONCAT &&
                    (node.kind != MICA_NODE_OP || node.code != MICA_OP_GATHER));
    }
    EACH_DEVICE(device) EACH_MODE(mode)
    {
        mica_executable *run = rig_compile(graph, device, mode);
        mica_array in = F32_ARRAY("x", x, BATCH, 3), out = OUT_ARRAY("y", y);
        must(mica_executable_run(run, &in, 1, &out, 1));
        assert_true(out.ndim == 2 && out.shape[0] == 2 * BATCH && out.shape[1] == 2);
        for (int i = 0; i < BATCH * 4; i++)
            assert_true(fabsf(y[i] - wanted[i]) <= 1e-5f);
        mica_executable_release(run);
    }
    mica_graph_release(graph);
}

/* Inputs whose elements are given are constants, and no inputs of the graph. */
static void test_known_input(void **state)
{
    (void)state;
    static const float x[6] = {1, 2, 3, -1, -2, -3};
    mica_onnx *model = open_model(LINEAR);
    mica_onnx_tensor given = {.name = "x", .ndim = 2, .shape = {2, 3}, .data = x, .bytes = sizeof x};
    mica_graph *graph = NULL;
    must(mica_onnx_graph(model, &given, 1, &graph));
    assert_int_equal(mica_graph_input_count(graph), 0);
    assert_int_equal(mica_graph_output_count(graph), 1);
    mica_graph_release(graph);
    given.bytes--;
    refused(mica_onnx_graph(model, &given, 1, &graph), MICA_ERR_INVALID_ARGUMENT, "takes 24 bytes");
    assert_null(graph);
    mica_onnx_release(model);
}

static void test_refused(void **state)
{
    (void)state;
    mica_onnx *model = NULL;
    mica_graph *graph = NULL;
    refused(mica_onnx_open("tests/golden/onnx/none.onnx", &model), MICA_ERR_IO, "none.onnx");
    refused(mica_onnx_open(NULL, &model), MICA_ERR_INVALID_ARGUMENT, "path");
    refused(mica_onnx_open(LINEAR, NULL), MICA_ERR_INVALID_ARGUMENT, "out_model");
    refused(mica_onnx_graph(NULL, NULL, 0, &graph), MICA_ERR_INVALID_ARGUMENT, "model");
    model = open_model(LINEAR);
    mica_onnx_tensor given = {.name = "x", .ndim = 2, .shape = {5, 4}};
    refused(mica_onnx_graph(model, &given, 1, NULL), MICA_ERR_INVALID_ARGUMENT, "out_graph");
    refused(mica_onnx_graph(model, &given, 1, &graph), MICA_ERR_INVALID_ARGUMENT, "\"x\"");
    given.name = "z";
    refused(mica_onnx_graph(model, &given, 1, &graph), MICA_ERR_INVALID_ARGUMENT, "no input \"z\"");
    refused(mica_onnx_graph(model, NULL, 0, &graph), MICA_ERR_UNSUPPORTED, "give the shapes");
    mica_onnx_release(model);
    model = open_model(EVERY);
    refused(mica_onnx_graph(model, NULL, 0, &graph), MICA_ERR_UNSUPPORTED,
            "operators that are not known: test.Every");
    mica_onnx_release(model);
}

/* Each byte of a model changed: imported or refused, with a sentence. */
static void test_changed(void **state)
{
    (void)state;
    char folder[256], path[300];
    uint8_t bytes[4096];
    const mica_onnx_tensor shape = {.name = "x", .ndim = 2, .shape = {5, 3}};
    FILE *file = fopen(LINEAR, "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_int_equal(test_folder_make(folder, sizeof folder, "onnx"), 0);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    for (size_t i = 0; i < size; i++)
        for (uint8_t bit = 1; bit != 0; bit = (uint8_t)(bit << 2)) {
            mica_onnx *model = NULL;
            mica_graph *graph = NULL;
            bytes[i] ^= bit;
            file = fopen(path, "wb");
            assert_int_equal(fwrite(bytes, 1, size, file), size);
            fclose(file);
            bytes[i] ^= bit;
            mica_status status = mica_onnx_open(path, &model);
            if (status == MICA_OK)
                status = mica_onnx_graph(model, &shape, mica_onnx_input_count(model) == 1, &graph);
            assert_true(status == MICA_OK ? graph != NULL
                                          : graph == NULL && mica_status_message()[0] != '\0');
            mica_graph_release(graph);
            mica_onnx_release(model);
        }
    test_folder_empty(folder);
    assert_int_equal(test_folder_remove(folder), 0);
}

/* As many rows as the run finds: an operator reads them, no body does. */
static void test_open_rows(void **state)
{
    static const char *const paths[] = {"tests/golden/onnx/boxes.onnx", "tests/golden/onnx/boxes_if.onnx",
                                        "tests/golden/onnx/boxes_out.onnx"};
    (void)state;
    for (uint32_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        mica_onnx *model = open_model(paths[i]);
        mica_graph *graph = NULL;
        uint32_t axis = 7;
        assert_int_equal(mica_onnx_graph(model, NULL, 0, &graph), i == 0 ? MICA_OK : MICA_ERR_UNSUPPORTED);
        if (i != 0) {
            assert_null(graph);
            assert_non_null(strstr(mica_status_message(), "\"chosen\" has as many rows as the run finds"));
        } else {
            assert_string_equal(mica_graph_get_output_rows(graph, 0, &axis), "y rows");
            assert_int_equal(axis, 0);
        }
        mica_graph_release(graph);
        mica_onnx_release(model);
    }
}

/* docs/onnx.md has a row for each operator of the table, and no other. */
static void test_documented(void **state)
{
    (void)state;
    static char text[1 << 16];
    char row[160];
    uint32_t rows = 0;
    FILE *file = fopen("docs/onnx.md", "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    for (uint32_t i = 0; i < mica__ox_row_count; i++) {
        const mica__ox_row *r = &mica__ox_rows[i];
        snprintf(row, sizeof row, "\n| %s%s%s | %u |", r->domain, r->domain[0] != '\0' ? "." : "", r->name,
                 r->since);
        if (strstr(text, row) == NULL)
            fail_msg("docs/onnx.md has no row \"%s\"", row + 1);
    }
    const char *table = strstr(text, "\n| operator | from opset |");
    assert_non_null(table);
    for (const char *at = table; at != NULL; at = strstr(at + 1, "\n| "))
        rows++;
    assert_int_equal(rows, mica__ox_row_count + 2); /* the heads of the table */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),     cmocka_unit_test(test_linear),  cmocka_unit_test(test_known_input),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_changed), cmocka_unit_test(test_documented),
        cmocka_unit_test(test_open_rows),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
