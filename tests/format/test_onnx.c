/*
 * test_onnx.c - ONNX files as structs: tensors of every type and coding, attributes of every kind, external data; and what is wrong with a file. The files are
 * scripts/golden_onnx.py's.
 */
#define _DEFAULT_SOURCE
#include "format_rig.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/protobuf.h"
#include "format/onnx.h"
#include "support/folder.h"

#define GOLDEN "tests/golden/onnx/"

static rig_bytes whole_file(const char *path)
{
    rig_bytes b = {0};
    uint8_t piece[4096];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t n; (n = fread(piece, 1, sizeof piece, file)) != 0;)
        rig_put(&b, piece, n);
    fclose(file);
    return b;
}

static mica__onnx *open_golden(const char *name)
{
    mica__onnx *model = NULL;
    char path[128];
    snprintf(path, sizeof path, GOLDEN "%s", name);
    if (mica__onnx_open(path, &model) != MICA_OK)
        fail_msg("%s", mica_status_message());
    return model;
}

/* ---- what is read --------------------------------------------------------------------------------------- */

static double element(const mica__onnx_tensor *t, uint64_t i)
{
    const uint8_t *at = t->data + i * (t->bytes / t->elements);
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
    } v;
    memcpy(&v, at, (size_t)(t->bytes / t->elements));
    switch (t->type) {
    case MICA__ONNX_FLOAT: return (double)v.f32;
    case MICA__ONNX_DOUBLE: return v.f64;
    case MICA__ONNX_FLOAT16: return (double)mica__f16_to_f32_soft(v.u16);
    case MICA__ONNX_INT8: return v.i8;
    case MICA__ONNX_INT16: return v.i16;
    case MICA__ONNX_INT32: return v.i32;
    case MICA__ONNX_INT64: return (double)v.i64;
    case MICA__ONNX_UINT16: return v.u16;
    case MICA__ONNX_UINT32: return v.u32;
    case MICA__ONNX_UINT64: return (double)v.u64;
    default: return v.u8;
    }
}

static void test_tensors(void **state)
{
    (void)state;
    mica__onnx *model = open_golden("every.onnx");
    const mica__onnx_graph *graph = &model->graph;
    uint32_t numbers = 0;
    assert_int_equal(graph->tensor_count, 28);
    for (uint32_t k = 0; k < graph->tensor_count; k++) {
        const mica__onnx_tensor *t = &graph->tensor[k];
        const bool bits = t->type == MICA__ONNX_BOOL,
                   plain = t->type == MICA__ONNX_UINT8 || t->type == MICA__ONNX_UINT16 ||
                           t->type == MICA__ONNX_UINT32 || t->type == MICA__ONNX_UINT64;
        if (t->ndim != 2 || t->elements == 0)
            continue;
        numbers++;
        assert_int_equal(t->dims[0], 2);
        assert_int_equal(t->dims[1], 3);
        for (int i = 0; i < 6; i++)
            assert_true(element(t, (uint64_t)i) == (bits ? i % 2 : plain ? 3 * i : 3 * i - 4));
    }
    assert_int_equal(numbers, 24);
    for (uint32_t k = 24; k < 26; k++) { /* of 4 bits, two a byte */
        assert_int_equal(graph->tensor[k].bytes, 3);
        assert_memory_equal(graph->tensor[k].data, ((const uint8_t[]){0x21, 0xf7, 0x08}), 3);
    }
    assert_int_equal(graph->tensor[26].strings[1].length, 4);
    assert_memory_equal(graph->tensor[26].strings[1].data, "\0two", 5);
    assert_int_equal(graph->tensor[27].elements, 0);
    mica__onnx_close(model);
}

static void test_attributes(void **state)
{
    (void)state;
    mica__onnx *model = open_golden("every.onnx");
    const mica__onnx_node *node = &model->graph.node[0];
    const mica__onnx_attribute *a = node->attribute;
    assert_int_equal(model->graph.node_count, 1);
    assert_string_equal(node->op, "Every");
    assert_string_equal(node->domain, "test");
    assert_string_equal(node->input[1], "");
    assert_string_equal(node->output[1], "z");
    assert_int_equal(node->attribute_count, 10);
    for (uint32_t i = 0; i < node->attribute_count; i++, a++) {
        switch (a->kind) {
        case MICA__ONNX_KIND_INT: assert_int_equal(a->i, -7); break;
        case MICA__ONNX_KIND_FLOAT: assert_true(a->f == 0.5f); break;
        case MICA__ONNX_KIND_STRING: assert_string_equal(a->s.data, "words"); break;
        case MICA__ONNX_KIND_TENSOR: assert_true(element(a->tensors, 0) == 2.5); break;
        case MICA__ONNX_KIND_GRAPH: assert_string_equal(a->graphs->node[0].input[1], "b"); break;
        case MICA__ONNX_KIND_FLOATS: assert_true(a->count == 2 && a->floats[1] == -1.0f); break;
        case MICA__ONNX_KIND_INTS:
            assert_true(a->count == 3 && a->ints[1] == -2 && a->ints[2] == 1ll << 40);
            break;
        case MICA__ONNX_KIND_STRINGS: assert_true(a->count == 2 && a->strings[1].length == 2); break;
        case MICA__ONNX_KIND_TENSORS: assert_true(a->count == 2 && element(&a->tensors[1], 0) == 2.5); break;
        case MICA__ONNX_KIND_GRAPHS: assert_true(a->count == 2 && a->graphs[1].output_count == 1); break;
        default: fail_msg("kind %d", (int)a->kind);
        }
    }
    mica__onnx_close(model);
}

static void test_model(void **state)
{
    (void)state;
    mica__onnx *model = open_golden("every.onnx");
    assert_int_equal(model->ir_version, 10);
    assert_int_equal(model->opset_count, 2);
    assert_string_equal(model->opset[1].domain, "test");
    assert_int_equal(model->opset[1].version, 3);
    assert_string_equal(model->metadata[0].key, "key");
    assert_string_equal(model->metadata[0].value, "value");
    assert_int_equal(model->function_count, 1);
    assert_string_equal(model->function[0].attribute[0], "k");
    assert_string_equal(model->function[0].node[0].op, "Mul");
    const mica__onnx_value *x = &model->graph.input[0];
    assert_int_equal(x->ndim, 3);
    assert_string_equal(x->dim[0].name, "batch");
    assert_true(x->dim[1].known && x->dim[1].size == 3 && !x->dim[2].known);
    assert_int_equal(model->graph.output[0].type, MICA__ONNX_BFLOAT16);
    assert_false(model->graph.output[0].ranked);
    assert_string_equal(mica__onnx_type_get(MICA__ONNX_FLOAT16)->name, "float16");
    assert_null(mica__onnx_type_get(MICA__ONNX_TYPE_COUNT));
    assert_int_equal(mica__onnx_type_of(MICA_DTYPE_I64), MICA__ONNX_INT64);
    mica__onnx_close(model);
}

static void test_external(void **state)
{
    (void)state;
    mica__onnx *model = open_golden("external.onnx");
    const mica__onnx_tensor *w = &model->graph.tensor[0];
    assert_true(element(w, 0) == 1.5 && element(w, 1) == -2.5 && element(w, 2) == 3.5);
    mica__onnx_close(model);
}

/* ---- what is wrong -------------------------------------------------------------------------------------- */

/* Cut at every length: refused with a sentence, or a shorter model; never more memory than there is. */
static void test_cut(void **state)
{
    (void)state;
    rig_bytes b = whole_file(GOLDEN "every.onnx");
    for (size_t size = 0; size < b.size; size++) {
        mica__onnx *model = NULL;
        uint8_t *exact = malloc(size + 1);
        memcpy(exact, b.data, size);
        if (mica__onnx_open_bytes("cut", exact, size, &model) != MICA_OK)
            assert_true(model == NULL && strstr(mica_status_message(), "cut") != NULL);
        mica__onnx_close(model);
        free(exact);
        assert_int_equal(mica_host_bytes(), 0);
    }
    free(b.data);
}

/* Each byte changed in turn: whatever comes out can be closed. */
static void test_changed(void **state)
{
    (void)state;
    rig_bytes b = whole_file(GOLDEN "every.onnx");
    for (size_t i = 0; i < b.size; i++)
        for (uint32_t bit = 0; bit < 8; bit += 3) {
            mica__onnx *model = NULL;
            b.data[i] ^= (uint8_t)(1u << bit);
            if (mica__onnx_open_bytes("changed", b.data, b.size, &model) != MICA_OK)
                assert_true(mica_status_message()[0] != '\0');
            mica__onnx_close(model);
            b.data[i] ^= (uint8_t)(1u << bit);
        }
    assert_int_equal(mica_host_bytes(), 0);
    free(b.data);
}

static void varint(rig_bytes *b, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        rig_number(b, (value & 0x7f) | 0x80, 1);
    rig_number(b, value, 1);
}

/* A field that holds the bytes of another message, which it takes over. */
static void put_field(rig_bytes *b, uint32_t number, rig_bytes *content)
{
    varint(b, number << 3 | 2);
    varint(b, content->size);
    rig_put(b, content->data, content->size);
    free(content->data);
    *content = (rig_bytes){0};
}

static void put_text(rig_bytes *b, uint32_t number, const char *text)
{
    rig_bytes content = {0};
    rig_text(&content, text);
    put_field(b, number, &content);
}

static void put_number(rig_bytes *b, uint32_t number, uint64_t value)
{
    varint(b, number << 3);
    varint(b, value);
}

/* A model around the fields of one tensor. */
static rig_bytes model_of(rig_bytes *tensor)
{
    rig_bytes model = {0}, graph = {0}, opset = {0};
    put_number(&opset, 2, 21);
    put_field(&graph, 5, tensor);
    put_number(&model, 1, 10);
    put_field(&model, 8, &opset);
    put_field(&model, 7, &graph);
    return model;
}

static void expect_refused(rig_bytes *model, mica_status status, const char *words)
{
    mica__onnx *out = NULL;
    assert_int_equal(mica__onnx_open_bytes("made", model->data, model->size, &out), status);
    if (strstr(mica_status_message(), words) == NULL)
        fail_msg("\"%s\" without \"%s\"", mica_status_message(), words);
    assert_null(out);
    free(model->data);
    assert_int_equal(mica_host_bytes(), 0);
}

static void test_bad_tensors(void **state)
{
    (void)state;
    rig_bytes t = {0};
    put_number(&t, 2, 99);
    rig_bytes m = model_of(&t);
    expect_refused(&m, MICA_ERR_UNSUPPORTED, "type 99");
    put_number(&t, 1, 3); /* dims say 3, the data 2 */
    put_number(&t, 2, MICA__ONNX_INT64);
    put_number(&t, 7, 1);
    put_number(&t, 7, 2);
    m = model_of(&t);
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "2 elements, but its dims say 3");
    put_number(&t, 1, UINT64_MAX);
    put_number(&t, 2, MICA__ONNX_FLOAT);
    m = model_of(&t);
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "below 0");
    for (int i = 0; i < 3; i++)
        put_number(&t, 1, 1ull << 40);
    put_number(&t, 2, MICA__ONNX_FLOAT);
    m = model_of(&t);
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "2^64");
    put_number(&t, 1, 1); /* numbers of another type */
    put_number(&t, 2, MICA__ONNX_FLOAT);
    put_number(&t, 7, 1);
    m = model_of(&t);
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "another type");
    put_number(&t, 1, 1); /* 300 is no uint8 */
    put_number(&t, 2, MICA__ONNX_UINT8);
    put_number(&t, 5, 300);
    m = model_of(&t);
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "does not fit");
    put_number(&t, 1, 4); /* nothing at all */
    put_number(&t, 2, MICA__ONNX_FLOAT);
    m = model_of(&t);
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "no data");
    put_number(&t, 1, 1); /* twice */
    put_number(&t, 2, MICA__ONNX_INT32);
    put_number(&t, 5, 1);
    put_text(&t, 9, "abcd");
    m = model_of(&t);
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "twice");
    put_number(&t, 2, MICA__ONNX_INT32);
    put_text(&t, 3, "");
    m = model_of(&t);
    expect_refused(&m, MICA_ERR_UNSUPPORTED, "segments");
    put_text(&t, 8,
             "bad\xff"
             "name");
    m = model_of(&t);
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "UTF-8");
}

static void test_bad_models(void **state)
{
    (void)state;
    rig_bytes m = {0};
    put_number(&m, 1, 10);
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "without a graph");
    m = (rig_bytes){0};
    put_text(&m, 7, "");
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "ir_version or an opset");
    m = (rig_bytes){0};
    put_text(&m, 7, "");
    put_text(&m, 7, "");
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "two graphs");
    m = (rig_bytes){0};
    put_text(&m, 7, "\x7a"); /* field 15, a sparse initialiser, without its end */
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "the message ends");
    /* graphs inside of graphs: a node with an attribute that is a graph, and so on */
    rig_bytes graph = {0};
    for (int depth = 0; depth < 40; depth++) {
        rig_bytes attribute = {0}, node = {0};
        put_text(&attribute, 1, "body");
        put_number(&attribute, 20, 5);
        put_field(&attribute, 6, &graph);
        put_text(&node, 4, "If");
        put_field(&node, 5, &attribute);
        put_field(&graph, 1, &node);
    }
    m = (rig_bytes){0};
    put_field(&m, 7, &graph);
    expect_refused(&m, MICA_ERR_MALFORMED_FILE, "16 deep");
}

/* ---- external data that is not the model's to read ------------------------------------------------------ */

static void write_file(const char *folder, const char *name, const void *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

/* The status of a model in `folder` whose only tensor is 12 bytes at `location`. */
static mica_status open_with(const char *folder, const char *location, const char *offset)
{
    rig_bytes t = {0}, pair = {0};
    mica__onnx *model = NULL;
    char path[512];
    put_number(&t, 1, 3);
    put_number(&t, 2, MICA__ONNX_FLOAT);
    put_text(&t, 8, "w");
    put_text(&pair, 1, "location");
    put_text(&pair, 2, location);
    put_field(&t, 13, &pair);
    put_text(&pair, 1, "offset");
    put_text(&pair, 2, offset);
    put_field(&t, 13, &pair);
    put_number(&t, 14, 1);
    rig_bytes m = model_of(&t);
    write_file(folder, "model.onnx", m.data, m.size);
    free(m.data);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    const mica_status status = mica__onnx_open(path, &model);
    mica__onnx_close(model);
    return status;
}

static void test_outside(void **state)
{
    (void)state;
    char folder[256], inner[300], link[320], target[320];
    assert_int_equal(test_folder_make(folder, sizeof folder, "onnx"), 0);
    snprintf(inner, sizeof inner, "%s/model", folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    write_file(inner, "data.bin", "0123456789abcdef", 16);
    write_file(folder, "secret.bin", "0123456789abcdef", 16);
    assert_int_equal(open_with(inner, "data.bin", "4"), MICA_OK);
    assert_int_equal(open_with(inner, "./data.bin", "0"), MICA_OK);
    assert_int_equal(open_with(inner, "data.bin", "5"), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(open_with(inner, "data.bin", "18446744073709551615"), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(open_with(inner, "data.bin", "99999999999999999999"), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(open_with(inner, "data.bin", "x"), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(open_with(inner, "../secret.bin", "0"), MICA_ERR_UNSUPPORTED);
    assert_int_equal(open_with(inner, "a/../../secret.bin", "0"), MICA_ERR_UNSUPPORTED);
    assert_int_equal(open_with(inner, "..", "0"), MICA_ERR_UNSUPPORTED);
    assert_int_equal(open_with(inner, "/etc/passwd", "0"), MICA_ERR_UNSUPPORTED);
    assert_int_equal(open_with(inner, "", "0"), MICA_ERR_UNSUPPORTED);
    assert_int_equal(open_with(inner, "none.bin", "0"), MICA_ERR_IO);
    snprintf(link, sizeof link, "%s/link.bin", inner);
    snprintf(target, sizeof target, "%s/secret.bin", folder);
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(open_with(inner, "link.bin", "0"), MICA_ERR_IO);
    assert_non_null(strstr(mica_status_message(), "out of its folder"));
    assert_int_equal(mica_host_bytes(), 0);
    test_folder_empty(inner);
    assert_int_equal(rmdir(inner), 0);
    test_folder_empty(folder);
    assert_int_equal(test_folder_remove(folder), 0);
}

/* The reader of fields, by itself. */
static void test_protobuf(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x08, 0x96, 0x01, 0x15, 1, 2, 3, 4, 0x1a, 2,    'o',
                                    'k',  0x21, 1,    0,    0, 0, 0, 0, 0,    0x80, 0x0b};
    const mica__proto proto = {"bytes", bytes};
    mica__proto_message m = {bytes, bytes + sizeof bytes};
    mica__proto_field f;
    uint64_t number = 0;
    assert_int_equal(mica__proto_next(&proto, &m, &f), MICA_OK);
    assert_true(f.number == 1 && f.wire == MICA__PROTO_VARINT && f.value == 150);
    assert_int_equal(mica__proto_next(&proto, &m, &f), MICA_OK);
    assert_true(f.number == 2 && f.wire == MICA__PROTO_32 && f.value == 0x04030201);
    assert_int_equal(mica__proto_next(&proto, &m, &f), MICA_OK);
    assert_true(f.number == 3 && f.value == 2 && f.content.at[1] == 'k');
    assert_int_equal(mica__proto_next(&proto, &m, &f), MICA_OK);
    assert_true(f.number == 4 && f.wire == MICA__PROTO_64 && f.value == 0x8000000000000001u);
    assert_int_equal(mica__proto_next(&proto, &m, &f), MICA_ERR_MALFORMED_FILE); /* a group */
    m = (mica__proto_message){bytes + 1, bytes + 3};
    assert_int_equal(mica__proto_number(&proto, &m, 0, &number), MICA_OK);
    assert_int_equal(number, 150);
    assert_int_equal(mica__proto_number(&proto, &m, 4, &number), MICA_ERR_MALFORMED_FILE);
    static const uint8_t endless[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
    m = (mica__proto_message){endless, endless + sizeof endless};
    assert_int_equal(mica__proto_number(&proto, &m, 0, &number), MICA_ERR_MALFORMED_FILE);
}

static mica_status open_and_close(void *context)
{
    const rig_bytes *b = context;
    mica__onnx *model = NULL;
    const mica_status status = mica__onnx_open_bytes("every", b->data, b->size, &model);
    mica__onnx_close(model);
    return status;
}

static void test_allocation_failures(void **state)
{
    (void)state;
    rig_bytes b = whole_file(GOLDEN "every.onnx");
    rig_fail_allocations(open_and_close, &b);
    free(b.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_external),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_bad_models),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_protobuf),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
