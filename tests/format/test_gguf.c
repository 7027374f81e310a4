/*
 * test_gguf.c - GGUF files as the format says them: every value type, byte order, alignment, shape and type, and the
 * sentences of what it forbids.
 */
#include <math.h>

#include "format/gguf_sample.h"
#include "mica/host.h"

typedef struct opened {
    mica__archive *archive;
    void *copy;
} opened;

static opened open_build(const build *b)
{
    opened o;
    if (build_read(b, &o.archive, &o.copy) != MICA_OK)
        fail_msg("%s", mica_status_message());
    sample_check(o.archive);
    return o;
}

static void close_opened(opened *o)
{
    mica__archive_close(o->archive);
    free(o->copy);
    assert_int_equal(mica_host_allocations(), 0);
}

/* Refused with this status and a sentence that has both words. */
static void expect_refused(const build *b, mica_status wanted, const char *first, const char *second)
{
    opened o;
    const mica_status status = build_read(b, &o.archive, &o.copy);
    if (status != wanted || strstr(mica_status_message(), first) == NULL ||
        strstr(mica_status_message(), second) == NULL || strstr(mica_status_message(), "memory.gguf") == NULL)
        fail_msg("status %d, wanted %d with \"%s\" and \"%s\": %s", status, wanted, first, second,
                 status == MICA_OK ? "it opened" : mica_status_message());
    free(o.copy);
    assert_int_equal(mica_host_allocations(), 0);
}

static const mica_value *get(const opened *o, const char *key, mica_value_type type)
{
    const mica_value *value = mica__archive_meta(o->archive, key);
    assert_non_null(value);
    assert_int_equal(value->type, type);
    return value;
}

static void check_scalars(const opened *o)
{
    assert_int_equal(get(o, "a.u8", MICA_VALUE_U8)->as.u, 200);
    assert_int_equal(get(o, "a.i8", MICA_VALUE_I8)->as.i, -5);
    assert_int_equal(get(o, "a.u16", MICA_VALUE_U16)->as.u, 60000);
    assert_int_equal(get(o, "a.i16", MICA_VALUE_I16)->as.i, -2);
    assert_int_equal(get(o, "a.u32", MICA_VALUE_U32)->as.u, 4000000000u);
    assert_int_equal(get(o, "a.i32", MICA_VALUE_I32)->as.i, -3);
    assert_true(get(o, "a.f32", MICA_VALUE_F32)->as.f == 1.5);
    assert_int_equal(get(o, "a.bool", MICA_VALUE_BOOL)->as.u, 1);
    assert_string_equal(get(o, "a.string", MICA_VALUE_STRING)->as.string.data, "h\xc3\xa9llo");
    assert_int_equal(get(o, "a.string", MICA_VALUE_STRING)->as.string.length, 6);
    assert_true(get(o, "a.u64", MICA_VALUE_U64)->as.u == UINT64_MAX);
    assert_int_equal(get(o, "a.i64", MICA_VALUE_I64)->as.i, -9);
    assert_true(get(o, "a.f64", MICA_VALUE_F64)->as.f == -2.25);
    assert_int_equal(get(o, "a.empty", MICA_VALUE_STRING)->as.string.length, 0);
    assert_null(mica__archive_meta(o->archive, "a.not there"));
}

static const mica_value *array(const opened *o, const char *key, mica_value_type item_type, uint64_t count)
{
    const mica_value *value = get(o, key, MICA_VALUE_ARRAY);
    assert_int_equal(value->item_type, item_type);
    assert_int_equal(value->count, count);
    return value;
}

static void check_arrays(const opened *o)
{
    assert_memory_equal(array(o, "b.u8", MICA_VALUE_U8, 3)->as.items, "\1\2\3", 3);
    assert_memory_equal(array(o, "b.i16", MICA_VALUE_I16, 2)->as.items, ((int16_t[]){-1, 300}), 4);
    assert_memory_equal(array(o, "b.u64", MICA_VALUE_U64, 2)->as.items, ((uint64_t[]){1ull << 40, 7}), 16);
    assert_memory_equal(array(o, "b.bool", MICA_VALUE_BOOL, 2)->as.items, "\0\1", 2);
    const mica_string *strings = array(o, "b.strings", MICA_VALUE_STRING, 3)->as.items;
    assert_string_equal(strings[0].data, "one");
    assert_string_equal(strings[1].data, "");
    assert_string_equal(strings[2].data, "three");
    array(o, "b.none", MICA_VALUE_F32, 0);
    array(o, "b.empty nest", MICA_VALUE_ARRAY, 0);
    const mica_value *outer = array(o, "b.nested", MICA_VALUE_ARRAY, 2)->as.items;
    const mica_value *first = outer[0].as.items, *second = outer[1].as.items;
    assert_int_equal(outer[0].count, 2);
    assert_int_equal(outer[1].count, 1);
    assert_int_equal(first[0].count, 2);
    assert_int_equal(((const uint32_t *)first[0].as.items)[1], 2);
    assert_int_equal(first[1].count, 0);
    assert_int_equal(second[0].item_type, MICA_VALUE_STRING);
    assert_string_equal(((const mica_string *)second[0].as.items)[0].data, "x");
}

static const mica__tensor *tensor(const opened *o, const char *name)
{
    const uint32_t index = mica__archive_find(o->archive, name, strlen(name));
    assert_true(index < o->archive->tensor_count);
    return &o->archive->tensor[index];
}

static void check_tensors(const opened *o, size_t data, bool big)
{
    const struct {
        const char *name, *type_name;
        uint32_t dtype, ndim;
        uint64_t shape[2], offset, bytes;
    } wanted[SAMPLE_TENSORS] = {
        {"weights.f32", "F32", MICA_DTYPE_F32, 2, {3, 5}, 0, 60},
        {"weights.q4_0", "Q4_0", MICA_DTYPE_Q4_0, 2, {2, 64}, 64, 72},
        {"weights.empty", "F16", MICA_DTYPE_F16, 2, {4, 0}, 160, 0},
        {"weights.scalar", "I32", MICA_DTYPE_I32, 0, {0, 0}, 160, 4},
        {"weights.unknown", "type 99", MICA_DTYPE_NONE, 1, {9, 0}, 192, 64},
        {"weights.f16", "F16", MICA_DTYPE_F16, 1, {4, 0}, 256, 8},
    };
    assert_int_equal(o->archive->tensor_count, SAMPLE_TENSORS);
    for (uint32_t i = 0; i < SAMPLE_TENSORS; i++) {
        const mica__tensor *t = &o->archive->tensor[i];
        assert_string_equal(t->name, wanted[i].name);
        assert_string_equal(t->type_name, wanted[i].type_name);
        assert_int_equal(t->dtype, wanted[i].dtype);
        assert_int_equal(t->ndim, wanted[i].ndim);
        for (uint32_t j = 0; j < t->ndim; j++)
            assert_int_equal(t->shape[j], wanted[i].shape[j]);
        assert_int_equal(t->offset, data + wanted[i].offset);
        assert_int_equal(t->bytes, wanted[i].bytes);
        assert_int_equal(t->problem, wanted[i].dtype == MICA_DTYPE_NONE ? MICA__TENSOR_TYPE
                                     : big                              ? MICA__TENSOR_BYTE_ORDER
                                                                        : MICA__TENSOR_FINE);
        assert_int_equal(t->scales, MICA__NO_TENSOR);
    }
}

static void everything_is_read_in_both_byte_orders(void **state)
{
    (void)state;
    for (int big = 0; big < 2; big++) {
        build b;
        const size_t header = sample_build(&b, big);
        opened o = open_build(&b);
        assert_int_equal(o.archive->version, 3);
        assert_int_equal(o.archive->big_endian, big);
        assert_int_equal(o.archive->meta_count, SAMPLE_METAS);
        check_scalars(&o);
        check_arrays(&o);
        check_tensors(&o, (header + 31) / 32 * 32, big);
        close_opened(&o);
        build_free(&b);
    }
}

static void versions(void **state)
{
    (void)state;
    for (uint32_t version = 0; version < 6; version++) {
        build b = {0};
        build_head(&b, version, 0, 1);
        build_meta_number(&b, "a", 4, 1, 4);
        if (version == 2 || version == 3) {
            opened o = open_build(&b);
            assert_int_equal(o.archive->version, version);
            close_opened(&o);
        } else {
            expect_refused(&b, MICA_ERR_UNSUPPORTED, "version", "expected 2 or 3");
        }
        build_free(&b);
    }
    build b = {.big = true}; /* big endian came with version 3 */
    build_head(&b, 2, 0, 0);
    expect_refused(&b, MICA_ERR_UNSUPPORTED, "version", "expected 2 or 3");
    b.bytes[0] = 'g';
    expect_refused(&b, MICA_ERR_MALFORMED_FILE, "67 47 55 46", "expected 47 47 55 46");
    build_free(&b);
}

/* ggml's numbers, sizes and names, written down here once more from its documentation. */
static void every_type_has_its_number_and_size(void **state)
{
    static const struct {
        uint32_t id;
        const char *name;
        uint32_t values, bytes;
    } types[] = {
        {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
        {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},
        {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
        {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
        {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
        {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
        {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
        {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
        {40, "NVFP4", 64, 36},
    };
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        build b = {0};
        build_head(&b, 3, 1, 0);
        build_tensor(&b, "t", 2, (uint64_t[]){types[i].values * 3, 5}, types[i].id, 0);
        build_pad(&b, 32);
        build_data(&b, (size_t)types[i].bytes * 15, 1);
        opened o = open_build(&b);
        assert_int_equal(tensor(&o, "t")->bytes, types[i].bytes * 15);
        assert_string_equal(tensor(&o, "t")->type_name, types[i].name);
        close_opened(&o);
        if (types[i].values > 1) { /* one value less is no whole block */
            build odd = {0};
            build_head(&odd, 3, 1, 0);
            build_tensor(&odd, "t", 1, (uint64_t[]){types[i].values - 1}, types[i].id, 0);
            build_pad(&odd, 32);
            build_data(&odd, 512, 1);
            expect_refused(&odd, MICA_ERR_MALFORMED_FILE, "\"t\"", types[i].name);
            build_free(&odd);
        }
        build_free(&b);
    }
}

static void types_that_are_not_known_can_be_listed(void **state)
{
    static const struct {
        uint32_t id;
        const char *name;
    } types[] = {
        {4, "Q4_2"}, {33, "Q4_0_8_8"}, {41, "Q1_0"}, {43, "type 43"}, {UINT32_MAX, "type 4294967295"}};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        build b = {0};
        build_head(&b, 3, 2, 0);
        build_tensor(&b, "known", 1, (uint64_t[]){8}, 0, 64);
        build_tensor(&b, "odd", 1, (uint64_t[]){8}, types[i].id, 0);
        build_pad(&b, 32);
        build_data(&b, 96, 1);
        opened o = open_build(&b);
        assert_string_equal(tensor(&o, "odd")->type_name, types[i].name);
        assert_int_equal(tensor(&o, "odd")->bytes, 64);
        assert_int_equal(mica__archive_usable(o.archive, tensor(&o, "odd")), MICA_ERR_UNSUPPORTED);
        assert_non_null(strstr(mica_status_message(), types[i].name));
        assert_int_equal(mica__archive_usable(o.archive, tensor(&o, "known")), MICA_OK);
        close_opened(&o);
        build_free(&b);
    }
}

static void build_aligned(build *b, uint32_t type, uint64_t alignment, uint64_t offset)
{
    *b = (build){0};
    build_head(b, 3, 1, 1);
    build_meta_number(b, "general.alignment", type, alignment, type == 10 ? 8 : 4);
    build_tensor(b, "t", 1, (uint64_t[]){8}, 0, offset);
    build_pad(b, alignment == 0 || alignment > 65536 ? 32 : alignment);
    build_data(b, offset + 32, 1);
}

static void alignments(void **state)
{
    static const uint32_t good[] = {8, 16, 24, 40, 64, 4096, 65536};
    static const uint32_t bad[] = {0, 1, 4, 7, 12, 31, UINT32_MAX};
    build b;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        build_aligned(&b, 4, good[i], good[i]);
        opened o = open_build(&b);
        assert_int_equal(tensor(&o, "t")->offset % good[i], 0);
        assert_int_equal(tensor(&o, "t")->offset + 32, b.size);
        close_opened(&o);
        build_free(&b);
        build_aligned(&b, 4, good[i], good[i] + 4);
        expect_refused(&b, MICA_ERR_MALFORMED_FILE, "\"t\" at offset", "multiple of");
        build_free(&b);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        build_aligned(&b, 4, bad[i], 0);
        expect_refused(&b, MICA_ERR_MALFORMED_FILE, "general.alignment", "multiple of 8");
        build_free(&b);
    }
    build_aligned(&b, 4, 1u << 31, 0); /* allowed, but then the data lies past the end */
    expect_refused(&b, MICA_ERR_MALFORMED_FILE, "\"t\"", "leaves the file");
    build_free(&b);
    build_aligned(&b, 10, 32, 0);
    expect_refused(&b, MICA_ERR_MALFORMED_FILE, "general.alignment", "expected u32");
    build_free(&b);
}

static void shapes(void **state)
{
    static const uint64_t ones[MICA_MAX_DIMS + 2] = {4, 1, 2, 1, 3, 1, 2, 1, 1, 1};
    (void)state;
    for (uint32_t ndim = 0; ndim <= MICA_MAX_DIMS + 2; ndim++) {
        uint64_t elements = 1;
        build b = {0};
        build_head(&b, 3, 1, 0);
        build_tensor(&b, "t", ndim, ones, 0, 0);
        build_pad(&b, 32);
        for (uint32_t i = 0; i < ndim; i++)
            elements *= ones[i];
        build_data(&b, elements * 4, 1);
        opened o = open_build(&b);
        const mica__tensor *t = tensor(&o, "t");
        assert_int_equal(t->bytes, elements * 4);
        assert_int_equal(t->problem, ndim > MICA_MAX_DIMS ? MICA__TENSOR_DIMS : MICA__TENSOR_FINE);
        assert_int_equal(t->ndim, ndim > MICA_MAX_DIMS ? 0 : ndim);
        for (uint32_t i = 0; i < t->ndim; i++)
            assert_int_equal(t->shape[i], ones[ndim - 1 - i]);
        close_opened(&o);
        build_free(&b);
    }
}

static void products_that_wrap(void **state)
{
    static const uint64_t dims[][4] = {
        {1ull << 32, 1ull << 32, 1, 1}, {1ull << 62, 4, 1, 1},
        {UINT64_MAX, 1, 1, 1},          {1ull << 63, 1, 1, 1},
        {0, 1ull << 62, 4, 1},          {1ull << 62, 2, 0, 1},
        {1ull << 61, 1, 1, 1},          {3037000500ull, 3037000500ull, 1, 1},
        {1ull << 62, 1, 1, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        build b = {0};
        build_head(&b, 3, 1, 0);
        build_tensor(&b, "t", 4, dims[i], i % 2 == 0 ? 0 : 28, 0);
        build_pad(&b, 32);
        build_data(&b, 64, 1);
        expect_refused(&b, MICA_ERR_MALFORMED_FILE, "\"t\"", "tensor");
        build_free(&b);
    }
}

static void nests(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 12; depth++) {
        build b = {0};
        build_head(&b, 3, 0, 1);
        build_meta(&b, "deep", 9);
        for (uint32_t i = 1; i < depth; i++)
            build_array(&b, 9, 1);
        build_array(&b, 4, 1);
        build_number(&b, 77, 4);
        if (depth <= 8) {
            opened o = open_build(&b);
            const mica_value *value = get(&o, "deep", MICA_VALUE_ARRAY);
            for (uint32_t i = 1; i < depth; i++)
                value = value->as.items;
            assert_int_equal(*(const uint32_t *)value->as.items, 77);
            close_opened(&o);
        } else {
            expect_refused(&b, MICA_ERR_MALFORMED_FILE, "\"deep\"", "deeper than 8");
        }
        build_free(&b);
    }
    build b = {0};
    build_head(&b, 3, 0, 1);
    build_meta(&b, "deep", 9);
    for (uint32_t i = 0; i < 10000; i++)
        build_array(&b, 9, 1);
    expect_refused(&b, MICA_ERR_MALFORMED_FILE, "\"deep\"", "deeper than 8");
    build_free(&b);
}

static void names_and_keys(void **state)
{
    static const char *const bad[] = {"", "a\xff", "\xc3", "\xed\xa0\x80"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        build b = {0};
        build_head(&b, 3, 0, 1);
        build_meta_number(&b, bad[i], 4, 1, 4);
        expect_refused(&b, MICA_ERR_MALFORMED_FILE, "metadata 0", "key");
        build_free(&b);
        build_head(&b, 3, 1, 0);
        build_tensor(&b, bad[i], 1, (uint64_t[]){0}, 0, 0);
        build_data(&b, 64, 0);
        expect_refused(&b, MICA_ERR_MALFORMED_FILE, "tensor 0", "name");
        build_free(&b);
    }
    build b = {0};
    build_head(&b, 3, 1, 0); /* a NUL inside */
    build_tensor(&b, "nul", 1, (uint64_t[]){0}, 0, 0);
    b.bytes[24 + 8 + 1] = 0;
    expect_refused(&b, MICA_ERR_MALFORMED_FILE, "tensor 0", "NUL");
    build_free(&b);
    build_head(&b, 3, 0, 3);
    build_meta_number(&b, "b", 4, 1, 4);
    build_meta_number(&b, "a", 4, 1, 4);
    build_meta_number(&b, "b", 5, 1, 4);
    expect_refused(&b, MICA_ERR_MALFORMED_FILE, "\"b\"", "twice");
    build_free(&b);
    build_head(&b, 3, 3, 0);
    build_tensor(&b, "y", 1, (uint64_t[]){8}, 0, 0);
    build_tensor(&b, "x", 1, (uint64_t[]){8}, 0, 32);
    build_tensor(&b, "y", 1, (uint64_t[]){8}, 0, 64);
    build_pad(&b, 32);
    build_data(&b, 96, 0);
    expect_refused(&b, MICA_ERR_MALFORMED_FILE, "\"y\"", "twice");
    build_free(&b);
}

static void bools_are_0_or_1(void **state)
{
    (void)state;
    build b = {0};
    build_head(&b, 3, 0, 1);
    build_meta_number(&b, "flag", 7, 2, 1);
    expect_refused(&b, MICA_ERR_MALFORMED_FILE, "\"flag\"", "expected 0 or 1");
    build_free(&b);
    build_head(&b, 3, 0, 1);
    build_meta(&b, "flags", 9);
    build_array(&b, 7, 2);
    build_number(&b, 1, 1);
    build_number(&b, 255, 1);
    expect_refused(&b, MICA_ERR_MALFORMED_FILE, "\"flags\"", "bool 1 is 255");
    build_free(&b);
}

static void places(void **state)
{
    static const struct {
        uint64_t a, b; /* offsets of two tensors of 64 bytes, in 128 bytes of data */
        const char *wrong;
    } cases[] = {
        {0, 64, NULL},
        {64, 0, NULL},
        {0, 0, "overlap"},
        {0, 32, "overlap"},
        {32, 0, "overlap"},
        {0, 96, "leaves"},
        {0, 128, "leaves"},
        {0, UINT64_MAX - 31, "leaves"},
        {1ull << 63, 0, "leaves"},
        {0, 65, "multiple of 32"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b = {0};
        build_head(&b, 3, 2, 0);
        build_tensor(&b, "first", 1, (uint64_t[]){16}, 0, cases[i].a);
        build_tensor(&b, "second", 1, (uint64_t[]){16}, 0, cases[i].b);
        build_pad(&b, 32);
        build_data(&b, 128, 0);
        if (cases[i].wrong == NULL) {
            opened o = open_build(&b);
            close_opened(&o);
        } else {
            expect_refused(&b, MICA_ERR_MALFORMED_FILE, cases[i].wrong, "tensor");
        }
        build_free(&b);
    }
}

/* The last bytes of the last tensor, and the padding that may be missing after it. */
static void rows_are_decoded(void **state)
{
    build b;
    (void)state;
    sample_build(&b, false);
    opened o = open_build(&b);
    const mica__tensor *f32 = tensor(&o, "weights.f32"), *q4 = tensor(&o, "weights.q4_0");
    float raw[15], rows[10], values[128];
    assert_int_equal(mica__archive_read(o.archive, f32, 0, raw, 60), MICA_OK);
    assert_int_equal(mica__archive_decode_rows(o.archive, f32, 1, 2, rows), MICA_OK);
    assert_memory_equal(rows, raw + 5, sizeof rows);
    assert_int_equal(mica__archive_decode_rows(o.archive, f32, 2, 2, rows), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(mica__archive_decode_rows(o.archive, f32, 3, 0, rows), MICA_OK);
    assert_int_equal(mica__archive_decode_rows(o.archive, q4, 0, 2, values), MICA_OK);
    uint8_t blocks[72];
    assert_int_equal(mica__archive_read(o.archive, q4, 0, blocks, 72), MICA_OK);
    for (uint32_t i = 0; i < 128; i++) { /* f16 scale, 16 bytes of nibbles: low ones first */
        const uint8_t *block = blocks + i / 32 * 18;
        const uint32_t bits = block[0] | (uint32_t)block[1] << 8, j = i % 32;
        const int exponent = (int)(bits >> 10 & 31),
                  nibble = j < 16 ? block[2 + j] & 15 : block[2 + j - 16] >> 4;
        const double scale =
            (bits >> 15 ? -1.0 : 1.0) *
            (exponent == 0 ? ldexp(bits & 1023, -24) : ldexp(1024 + (bits & 1023), exponent - 25));
        assert_true(exponent != 31 && (double)values[i] == (nibble - 8) * scale);
    }
    assert_int_equal(mica__archive_decode_rows(o.archive, tensor(&o, "weights.scalar"), 0, 1, values),
                     MICA_ERR_UNSUPPORTED);
    assert_int_equal(mica__archive_decode_rows(o.archive, tensor(&o, "weights.unknown"), 0, 1, values),
                     MICA_ERR_UNSUPPORTED);
    assert_int_equal(mica__archive_decode_rows(o.archive, tensor(&o, "weights.empty"), 0, 4, values),
                     MICA_OK);
    close_opened(&o);
    build_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_read_in_both_byte_orders),
        cmocka_unit_test(versions),
        cmocka_unit_test(every_type_has_its_number_and_size),
        cmocka_unit_test(types_that_are_not_known_can_be_listed),
        cmocka_unit_test(alignments),
        cmocka_unit_test(shapes),
        cmocka_unit_test(products_that_wrap),
        cmocka_unit_test(nests),
        cmocka_unit_test(names_and_keys),
        cmocka_unit_test(bools_are_0_or_1),
        cmocka_unit_test(places),
        cmocka_unit_test(rows_are_decoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
