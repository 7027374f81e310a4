/*
 * onnx_nodes.h - the archive of node tests (scripts/onnx_nodes.py --pack) on a device: each case is written as a file, imported, run, compared.
 */
#ifndef TEST_ONNX_NODES_H
#define TEST_ONNX_NODES_H

#include <stdlib.h>

#include "base/half.h"
#include "graph/graph_rig.h"
#include "mica/onnx.h"
#include "support/folder.h"

#define NODES_FILE "tests/golden/onnx/nodes.bin"
#define NODES_ROWS "tests/golden/onnx/rows.bin" /* scripts/golden_rows.py */
enum { NODES_ARRAYS = 32 };

/* The script's numbers of types. */
static const mica_dtype nodes_types[] = {
    MICA_DTYPE_NONE,    MICA_DTYPE_F32,  MICA_DTYPE_F16, MICA_DTYPE_BF16, MICA_DTYPE_F64, MICA_DTYPE_F8_E4M3,
    MICA_DTYPE_F8_E5M2, MICA_DTYPE_E8M0, MICA_DTYPE_C64, MICA_DTYPE_I8,   MICA_DTYPE_I16, MICA_DTYPE_I32,
    MICA_DTYPE_I64,     MICA_DTYPE_U8,   MICA_DTYPE_U16, MICA_DTYPE_U32,  MICA_DTYPE_U64, MICA_DTYPE_BOOL};

typedef struct nodes_array {
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS];
    const uint8_t *data;
    uint32_t bytes;
} nodes_array;

typedef struct nodes_case {
    char name[128];
    uint8_t known; /* 1: integers, bools and single numbers; 2: everything */
    double rtol, atol;
    const uint8_t *model;
    uint32_t model_bytes, input_count, output_count;
    nodes_array array[NODES_ARRAYS]; /* inputs, then outputs */
} nodes_case;

typedef struct nodes_archive {
    uint8_t *data;
    size_t size, at;
} nodes_archive;

/* ---- reading -------------------------------------------------------------------------------------------- */

static inline const uint8_t *nodes_take(nodes_archive *a, size_t size)
{
    const uint8_t *at = a->data + a->at;
    assert_true(size <= a->size - a->at);
    a->at += size;
    return at;
}

static inline uint32_t nodes_u32(nodes_archive *a)
{
    uint32_t number;
    memcpy(&number, nodes_take(a, 4), 4);
    return number;
}

static inline nodes_archive nodes_open(const char *path, uint32_t *count)
{
    nodes_archive a = {0};
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    a.size = (size_t)ftell(file);
    rewind(file);
    a.data = malloc(a.size);
    assert_non_null(a.data);
    assert_int_equal(fread(a.data, 1, a.size, file), a.size);
    fclose(file);
    assert_memory_equal(nodes_take(&a, 6), "nodes\n", 6);
    *count = nodes_u32(&a);
    return a;
}

static inline void nodes_read_array(nodes_archive *a, nodes_array *out)
{
    const uint32_t type = nodes_u32(a);
    assert_true(type < sizeof nodes_types / sizeof nodes_types[0]);
    out->dtype = nodes_types[type];
    out->ndim = nodes_u32(a);
    assert_true(out->ndim <= MICA_MAX_DIMS);
    memcpy(out->shape, nodes_take(a, out->ndim * 8), out->ndim * 8);
    out->bytes = nodes_u32(a);
    out->data = nodes_take(a, out->bytes);
}

static inline void nodes_next(nodes_archive *a, nodes_case *out)
{
    const uint32_t length = nodes_u32(a);
    memset(out, 0, sizeof *out);
    assert_true(length < sizeof out->name);
    memcpy(out->name, nodes_take(a, length), length);
    out->known = *nodes_take(a, 1);
    memcpy(&out->rtol, nodes_take(a, 8), 8);
    memcpy(&out->atol, nodes_take(a, 8), 8);
    out->model_bytes = nodes_u32(a);
    out->model = nodes_take(a, out->model_bytes);
    out->input_count = nodes_u32(a);
    out->output_count = nodes_u32(a);
    assert_true(out->input_count + out->output_count <= NODES_ARRAYS);
    for (uint32_t i = 0; i < out->input_count + out->output_count; i++)
        nodes_read_array(a, &out->array[i]);
}

/* ---- comparing ------------------------------------------------------------------------------------------ */

static inline double nodes_float(mica_dtype dtype, const uint8_t *data, uint64_t i)
{
    float f32;
    double f64;
    uint16_t half;
    switch (dtype) {
    case MICA_DTYPE_F32: memcpy(&f32, data + 4 * i, 4); return (double)f32;
    case MICA_DTYPE_F64: memcpy(&f64, data + 8 * i, 8); return f64;
    case MICA_DTYPE_F16: memcpy(&half, data + 2 * i, 2); return (double)mica__f16_to_f32_soft(half);
    case MICA_DTYPE_BF16: memcpy(&half, data + 2 * i, 2); return (double)mica__bf16_to_f32(half);
    default: return NAN;
    }
}

/* As numpy.allclose, NaN being NaN; integers, bools and 8-bit floats bit for bit. */
static inline bool nodes_same(const nodes_case *c, const nodes_array *wanted, const mica_array *got)
{
    const mica_dtype d = wanted->dtype;
    const bool floats =
        d == MICA_DTYPE_F32 || d == MICA_DTYPE_F64 || d == MICA_DTYPE_F16 || d == MICA_DTYPE_BF16;
    if (got->dtype != d || got->ndim != wanted->ndim ||
        memcmp(got->shape, wanted->shape, wanted->ndim * 8) != 0)
        return false;
    if (!floats)
        return memcmp(got->data, wanted->data, wanted->bytes) == 0;
    for (uint64_t i = 0; i < wanted->bytes / mica_dtype_block_bytes(d); i++) {
        const double a = nodes_float(d, got->data, i), b = nodes_float(d, wanted->data, i);
        if (a != b && !(isnan(a) && isnan(b)) && !(fabs(a - b) <= c->atol + c->rtol * fabs(b)))
            return false;
    }
    return true;
}

/* ---- running -------------------------------------------------------------------------------------------- */

static inline bool nodes_is_known(const nodes_case *c, const nodes_array *a)
{
    const mica_register reg = mica_register_of(a->dtype);
    return c->known == 2 || (c->known == 1 && ((reg != MICA_REGISTER_F32 && reg != MICA_REGISTER_F64) ||
                                               a->bytes == mica_dtype_block_bytes(a->dtype)));
}

static inline mica_graph *nodes_import(const nodes_case *c, const char *path, mica_array *feeds,
                                       uint32_t *feed_count, mica_onnx **model)
{
    mica_onnx_tensor given[NODES_ARRAYS];
    mica_onnx_info info;
    mica_graph *graph = NULL;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(c->model, 1, c->model_bytes, file), c->model_bytes);
    fclose(file);
    must(mica_onnx_open(path, model));
    assert_int_equal(mica_onnx_input_count(*model), c->input_count);
    *feed_count = 0;
    for (uint32_t i = 0; i < c->input_count; i++) {
        const nodes_array *a = &c->array[i];
        must(mica_onnx_get_input(*model, i, &info));
        given[i] = (mica_onnx_tensor){.name = info.name, .ndim = a->ndim};
        memcpy(given[i].shape, a->shape, sizeof given[i].shape);
        if (nodes_is_known(c, a)) {
            given[i].data = a->data;
            given[i].bytes = a->bytes;
        } else {
            uint8_t *data = (uint8_t *)(uintptr_t)a->data;
            feeds[(*feed_count)++] = rig_array(info.name, a->dtype, data, a->bytes, a->ndim, a->shape);
        }
    }
    if (mica_onnx_graph(*model, given, c->input_count, &graph) != MICA_OK)
        fail_msg("%s: %s", c->name, mica_status_message());
    return graph;
}

/* Runs one case in a mode; false: the device does not serve its types, which must be what it says. */
static inline bool nodes_run(const nodes_case *c, mica_device *device, mica_graph_mode mode, const char *path)
{
    mica_array feeds[NODES_ARRAYS], outputs[NODES_ARRAYS];
    mica_executable *run = NULL;
    mica_onnx *model = NULL;
    mica_onnx_info info;
    uint32_t feed_count = 0;
    const mica_compile_options options = {.mode = mode};
    mica_graph *graph = nodes_import(c, path, feeds, &feed_count, &model);
    mica_status status = mica_graph_compile(graph, device, &options, &run);
    mica_graph_release(graph);
    assert_int_equal(mica_onnx_output_count(model), c->output_count);
    for (uint32_t i = 0; i < c->output_count; i++) {
        must(mica_onnx_get_output(model, i, &info));
        outputs[i] = (mica_array){.name = info.name, .bytes = c->array[c->input_count + i].bytes + 4096};
        outputs[i].data = malloc(outputs[i].bytes);
        memset(outputs[i].data, 0xa5, outputs[i].bytes);
    }
    if (status == MICA_OK)
        status = mica_executable_run(run, feeds, feed_count, outputs, c->output_count);
    if (status != MICA_OK && status != MICA_ERR_UNSUPPORTED)
        fail_msg("%s: %s", c->name, mica_status_message());
    for (uint32_t i = 0; i < c->output_count; i++) {
        if (status == MICA_OK && !nodes_same(c, &c->array[c->input_count + i], &outputs[i]))
            fail_msg("%s: output %u is another one: %u dimensions of %llu, %llu, ..", c->name, i,
                     outputs[i].ndim, (unsigned long long)outputs[i].shape[0],
                     (unsigned long long)outputs[i].shape[1]);
        free(outputs[i].data);
    }
    mica_executable_release(run);
    mica_onnx_release(model);
    return status == MICA_OK;
}

/* All cases; how many the device does not serve. */
static inline uint32_t nodes_run_all(mica_device *device, mica_graph_mode mode, const char *file)
{
    char folder[256], path[300];
    uint32_t count = 0, unserved = 0;
    nodes_archive archive = nodes_open(file, &count);
    assert_int_equal(test_folder_make(folder, sizeof folder, "nodes"), 0);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    for (uint32_t i = 0; i < count; i++) {
        nodes_case c;
        nodes_next(&archive, &c);
        unserved += !nodes_run(&c, device, mode, path);
    }
    assert_int_equal(archive.at, archive.size);
    test_folder_empty(folder);
    assert_int_equal(test_folder_remove(folder), 0);
    free(archive.data);
    return unserved;
}

#endif
