/* test_npy.c: numpy's array format, read from bytes made by hand and written to be read by hand. */
#define _DEFAULT_SOURCE
#include "format_rig.h"

#include <unistd.h>

/* A file of that version with a header's text and `data` bytes. */
static rig_bytes make(int version, const char *header, size_t data)
{
    rig_bytes b = {0};
    rig_text(&b, "\x93NUMPY");
    rig_number(&b, (uint64_t)version, 1);
    rig_number(&b, 0, 1);
    rig_number(&b, strlen(header), version == 1 ? 2 : 4);
    rig_text(&b, header);
    rig_data(&b, data);
    return b;
}

static mica__tensor read_one(int version, const char *header, size_t data)
{
    rig_bytes b = make(version, header, data);
    mica__archive *archive = NULL;
    mica__tensor tensor;
    if (rig_open(mica__npy_read, &b, &archive) != MICA_OK)
        fail_msg("%s: %s", header, mica_status_message());
    rig_check(archive);
    assert_int_equal(archive->format, MICA_FORMAT_NPY);
    assert_int_equal(archive->tensor_count, 1);
    assert_string_equal(archive->tensor[0].name, "array");
    tensor = archive->tensor[0];
    tensor.name = tensor.type_name = NULL;
    mica__archive_close(archive);
    rig_free(&b);
    return tensor;
}

static void refuse(const char *header, size_t data, const char *part)
{
    rig_bytes b = make(1, header, data);
    rig_refused(mica__npy_read, &b, MICA_ERR_MALFORMED_FILE, part);
    rig_free(&b);
}

#define HEADER(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"

static const char sample[] = HEADER("'<f4'", "False", "(2, 3)") "     \n";

static void reads(void **state)
{
    (void)state;
    for (int version = 1; version <= 3; version++) {
        const mica__tensor t = read_one(version, sample, 24);
        assert_int_equal(t.dtype, MICA_DTYPE_F32);
        assert_int_equal(t.ndim, 2);
        assert_int_equal(t.shape[0], 2);
        assert_int_equal(t.shape[1], 3);
        assert_int_equal(t.offset, (version == 1 ? 10 : 12) + strlen(sample));
        assert_int_equal(t.bytes, 24);
        assert_int_equal(t.problem, MICA__TENSOR_FINE);
    }
}

/* Ways in which Python writes the same. */
static void reads_variants(void **state)
{
    mica__tensor t = read_one(1, HEADER("'<f4'", "False", "()"), 4);
    (void)state;
    assert_int_equal(t.ndim, 0);
    t = read_one(1, HEADER("'<f4'", "False", "(5,)"), 20);
    assert_int_equal(t.ndim, 1);
    t = read_one(1, "{\"shape\":(2,3,),\"descr\":\"<f4\",\"fortran_order\":False}", 24);
    assert_int_equal(t.shape[1], 3);
    t = read_one(1, HEADER("'<f4'", "False", "(2L, 3L)"), 24);
    assert_int_equal(t.shape[0], 2);
    t = read_one(1, HEADER("'<f4'", "False", "(0, 3)"), 0);
    assert_int_equal(t.bytes, 0);
    t = read_one(1, HEADER("'<f4'", "True", "(6,)"), 24);
    assert_int_equal(t.problem, MICA__TENSOR_FINE);
}

static void knows_types(void **state)
{
    static const struct {
        const char *descr;
        mica_dtype dtype;
        size_t bytes;
        int problem;
    } types[] = {
        {"<f2", MICA_DTYPE_F16, 2, MICA__TENSOR_FINE},
        {"<f4", MICA_DTYPE_F32, 4, MICA__TENSOR_FINE},
        {"<f8", MICA_DTYPE_F64, 8, MICA__TENSOR_FINE},
        {"<c8", MICA_DTYPE_C64, 8, MICA__TENSOR_FINE},
        {"|i1", MICA_DTYPE_I8, 1, MICA__TENSOR_FINE},
        {"<i2", MICA_DTYPE_I16, 2, MICA__TENSOR_FINE},
        {"<i4", MICA_DTYPE_I32, 4, MICA__TENSOR_FINE},
        {"<i8", MICA_DTYPE_I64, 8, MICA__TENSOR_FINE},
        {"|u1", MICA_DTYPE_U8, 1, MICA__TENSOR_FINE},
        {"<u2", MICA_DTYPE_U16, 2, MICA__TENSOR_FINE},
        {"<u4", MICA_DTYPE_U32, 4, MICA__TENSOR_FINE},
        {"<u8", MICA_DTYPE_U64, 8, MICA__TENSOR_FINE},
        {"|b1", MICA_DTYPE_BOOL, 1, MICA__TENSOR_FINE},
        {"<V2", MICA_DTYPE_BF16, 2, MICA__TENSOR_FINE},
        {"|V2", MICA_DTYPE_BF16, 2, MICA__TENSOR_FINE},
        {">u1", MICA_DTYPE_U8, 1, MICA__TENSOR_FINE},
        {">f4", MICA_DTYPE_F32, 4, MICA__TENSOR_BYTE_ORDER},
        {">i8", MICA_DTYPE_I64, 8, MICA__TENSOR_BYTE_ORDER},
        {"|O", MICA_DTYPE_NONE, 5, MICA__TENSOR_TYPE},
        {"<U7", MICA_DTYPE_NONE, 28, MICA__TENSOR_TYPE},
        {"<M8[ns]", MICA_DTYPE_NONE, 8, MICA__TENSOR_TYPE},
        {"<c16", MICA_DTYPE_NONE, 16, MICA__TENSOR_TYPE},
        {"|f4", MICA_DTYPE_NONE, 4, MICA__TENSOR_TYPE},
        {"", MICA_DTYPE_NONE, 4, MICA__TENSOR_TYPE},
        {"f4", MICA_DTYPE_NONE, 4, MICA__TENSOR_TYPE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char header[160];
        mica__tensor t;
        snprintf(header, sizeof header, HEADER("'%s'", "False", "(3,)"), types[i].descr);
        t = read_one(1, header, 3 * types[i].bytes);
        assert_int_equal(t.dtype, types[i].dtype);
        assert_int_equal(t.problem, types[i].problem);
        assert_int_equal(t.bytes, 3 * types[i].bytes);
    }
}

/* Structured types, Fortran's order and too many dimensions: listed, with a name for the reason. */
static void lists_what_it_cannot_use(void **state)
{
    rig_bytes b = make(1, HEADER("[('a]', '<f4'), ('b', [('c', '|u1')])]", "False", "(2,)"), 10);
    mica__archive *archive = rig_open_ok(mica__npy_read, &b);
    (void)state;
    assert_string_equal(archive->tensor[0].type_name, "structured");
    assert_int_equal(archive->tensor[0].problem, MICA__TENSOR_TYPE);
    assert_int_equal(mica__archive_usable(archive, &archive->tensor[0]), MICA_ERR_UNSUPPORTED);
    mica__archive_close(archive);
    rig_free(&b);
    b = make(1, HEADER("'<f4'", "True", "(2, 3)"), 24);
    archive = rig_open_ok(mica__npy_read, &b);
    assert_string_equal(archive->tensor[0].type_name, "fortran order <f4");
    assert_int_equal(archive->tensor[0].problem, MICA__TENSOR_TYPE);
    mica__archive_close(archive);
    rig_free(&b);
    assert_int_equal(read_one(1, HEADER("'|u1'", "False", "(1,1,1,1,1,1,1,2)"), 2).ndim, MICA_MAX_DIMS);
    assert_int_equal(read_one(1, HEADER("'|u1'", "False", "(1,1,1,1,1,1,1,1,2)"), 2).problem,
                     MICA__TENSOR_DIMS);
}

static void refuses(void **state)
{
    rig_bytes b;
    (void)state;
    refuse(HEADER("'<f4'", "False", "(2, 3)"), 23, "23 bytes");
    refuse(HEADER("'<f4'", "False", "(2, 3)"), 25, "25 bytes");
    refuse(HEADER("'>f4'", "False", "(2, 3)"), 23, "23 bytes");
    refuse(HEADER("'<f4'", "True", "(2, 3)"), 23, "23 bytes");
    refuse(HEADER("'<f4'", "False", "(3)"), 12, "tuple");
    refuse(HEADER("'<f4'", "False", "3"), 12, "tuple");
    refuse(HEADER("'<f4'", "False", "[3]"), 12, "tuple");
    refuse(HEADER("'<f4'", "False", "(-3,)"), 12, "tuple");
    refuse(HEADER("'<f4'", "False", "(03,)"), 12, "tuple");
    refuse(HEADER("'<f4'", "False", "(3,,)"), 12, "tuple");
    refuse(HEADER("'<f4'", "False", "(3 3)"), 12, "tuple");
    refuse(HEADER("'<f4'", "False", "(,)"), 4, "tuple");
    refuse(HEADER("'<f4'", "False", "(18446744073709551616,)"), 4, "tuple");
    refuse(HEADER("'<f4'", "False", "(4294967296, 4294967296)"), 0, "multiply");
    refuse(HEADER("'<f4'", "False", "(4611686018427387904,)"), 0, "multiply");
    refuse(HEADER("'<f4'", "0", "(3,)"), 12, "neither True nor False");
    refuse(HEADER("7", "False", "(3,)"), 12, "descr");
    refuse(HEADER("'<f\\4'", "False", "(3,)"), 12, "descr");
    refuse(HEADER("'<f\xc3\xa9'", "False", "(3,)"), 12, "descr");
    refuse(HEADER("[('a', '<f4')", "False", "(3,)"), 12, "descr");
    refuse("{'descr': '<f4', 'fortran_order': False, }", 0, "missing");
    refuse("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, "each once");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': 1}", 4, "each once");
    refuse("{'descr': '<f4' 'fortran_order': False, 'shape': ()}", 4, "colon");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", 4, "follows");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': ()", 4, "colon");
    refuse("", 0, "begin with '{'");
    refuse("()", 0, "begin with '{'");
    b = make(4, sample, 24);
    rig_refused(mica__npy_read, &b, MICA_ERR_UNSUPPORTED, "version 4.0");
    rig_free(&b);
    b = make(2, sample, 24);
    b.data[11] = 0xff;
    rig_refused(mica__npy_read, &b, MICA_ERR_MALFORMED_FILE, "past the end");
    rig_free(&b);
}

/* A list that opens a hundred thousand times ends where the header ends. */
static void survives_nesting(void **state)
{
    rig_bytes header = {0}, b;
    (void)state;
    rig_text(&header, "{'descr': ");
    for (int i = 0; i < 100000; i++)
        rig_text(&header, "[");
    rig_put(&header, "", 1);
    b = make(2, (const char *)header.data, 0);
    rig_refused(mica__npy_read, &b, MICA_ERR_MALFORMED_FILE, "descr");
    rig_free(&header);
    rig_free(&b);
}

static void takes_cuts_and_flips(void **state)
{
    (void)state;
    for (int version = 1; version <= 2; version++) {
        rig_bytes b = make(version, sample, 24);
        rig_opening opening = {mica__npy_read, &b, 1};
        rig_cut_everywhere(mica__npy_read, &b);
        rig_flip_everywhere(mica__npy_read, &b, 0, b.size - 24);
        rig_fail_allocations(rig_play_open, &opening);
        rig_free(&b);
    }
}

/* ---- writing -------------------------------------------------------------------------------------------- */

typedef struct scene {
    char path[256];
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS];
} scene;

static mica_status play_write(void *context)
{
    const scene *s = context;
    mica_writer_options options = {.size = sizeof options, .overwrite = 1};
    mica_writer *writer = NULL;
    uint8_t bytes[24];
    mica_status status = mica_writer_create(s->path, &options, &writer);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(200 - i);
    if (status != MICA_OK)
        return status;
    status = mica_writer_tensor(writer, "any", MICA_DTYPE_F32, s->ndim, s->shape);
    if (status == MICA_OK)
        status = mica_writer_write(writer, bytes, 5);
    if (status == MICA_OK)
        status = mica_writer_write(writer, bytes + 5, sizeof bytes - 5);
    if (status == MICA_OK)
        return mica_writer_finish(writer);
    mica_writer_discard(writer);
    return status;
}

static void writes(void **state)
{
    static const struct {
        uint32_t ndim;
        uint64_t shape[MICA_MAX_DIMS];
        const char *text;
    } cases[] = {
        {1, {6}, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }"},
        {2, {2, 3}, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"},
        {6, {1, 1, 2, 1, 3, 1}, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 2, 1, 3, 1), }"},
    };
    scene s = {{0}, 0, {0}};
    (void)state;
    snprintf(s.path, sizeof s.path, "%s/mica_npy_%ld.npy", P_tmpdir, (long)getpid());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig_bytes b;
        size_t start;
        s.ndim = cases[i].ndim;
        memcpy(s.shape, cases[i].shape, sizeof s.shape);
        if (play_write(&s) != MICA_OK)
            fail_msg("%s", mica_status_message());
        b = rig_load(s.path);
        assert_memory_equal(b.data, "\x93NUMPY\x01\x00", 8);
        start = 10 + (size_t)(b.data[8] | b.data[9] << 8);
        assert_int_equal(start % 64, 0);
        assert_int_equal(b.size, start + 24);
        assert_memory_equal(b.data + 10, cases[i].text, strlen(cases[i].text));
        for (size_t at = 10 + strlen(cases[i].text); at < start - 1; at++)
            assert_int_equal(b.data[at], ' ');
        assert_int_equal(b.data[start - 1], '\n');
        for (size_t at = 0; at < 24; at++)
            assert_int_equal(b.data[start + at], 200 - at);
        rig_free(&b);
    }
    rig_fail_allocations(play_write, &s);
    unlink(s.path);
}

/* The largest header that there is: eight dimensions of twenty digits would not fit a file, zeros make room. */
static void writes_the_longest_header(void **state)
{
    scene s = {{0}, 0, {0}};
    mica_writer *writer = NULL;
    const uint64_t shape[MICA_MAX_DIMS] = {0, 1, 1, 1, 1, 1, 1, UINT64_MAX / 16};
    rig_bytes b;
    mica__archive *archive;
    (void)state;
    snprintf(s.path, sizeof s.path, "%s/mica_npy_long_%ld.npy", P_tmpdir, (long)getpid());
    assert_int_equal(mica_writer_create(s.path, NULL, &writer), MICA_OK);
    assert_int_equal(mica_writer_tensor(writer, "any", MICA_DTYPE_U8, MICA_MAX_DIMS, shape), MICA_OK);
    assert_int_equal(mica_writer_tensor(writer, "second", MICA_DTYPE_U8, 1, shape), MICA_ERR_UNSUPPORTED);
    assert_int_equal(mica_writer_finish(writer), MICA_OK);
    b = rig_load(s.path);
    archive = rig_open_ok(mica__npy_read, &b);
    assert_int_equal(archive->tensor[0].shape[MICA_MAX_DIMS - 1], UINT64_MAX / 16);
    mica__archive_close(archive);
    rig_free(&b);
    unlink(s.path);
}

static void refuses_to_write(void **state)
{
    const uint64_t shape[] = {32};
    mica_writer *writer = NULL;
    char path[256];
    (void)state;
    snprintf(path, sizeof path, "%s/mica_npy_none_%ld.npy", P_tmpdir, (long)getpid());
    assert_int_equal(mica_writer_create(path, NULL, &writer), MICA_OK);
    assert_int_equal(mica_writer_string(writer, "k", "v"), MICA_ERR_UNSUPPORTED);
    assert_int_equal(mica_writer_tensor(writer, "x", MICA_DTYPE_Q4_0, 1, shape), MICA_ERR_UNSUPPORTED);
    assert_int_equal(mica_writer_tensor(writer, "x", MICA_DTYPE_F8_E4M3, 1, shape), MICA_ERR_UNSUPPORTED);
    assert_int_equal(mica_writer_finish(writer), MICA_ERR_STATE);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(mica_host_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(reads_variants),
        cmocka_unit_test(knows_types),
        cmocka_unit_test(lists_what_it_cannot_use),
        cmocka_unit_test(refuses),
        cmocka_unit_test(survives_nesting),
        cmocka_unit_test(takes_cuts_and_flips),
        cmocka_unit_test(writes),
        cmocka_unit_test(writes_the_longest_header),
        cmocka_unit_test(refuses_to_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
