/* test_safetensors.c: safetensors, read from bytes made by hand and written to be read by hand. */
#define _DEFAULT_SOURCE
#include "format_rig.h"

#include <unistd.h>

#include "mica/weights.h"

/* A file of a header's text and `data` bytes. */
static rig_bytes make(const char *header, size_t data)
{
    rig_bytes b = {0};
    rig_number(&b, strlen(header), 8);
    rig_text(&b, header);
    rig_data(&b, data);
    return b;
}

static void refuse(const char *header, size_t data, const char *part)
{
    rig_bytes b = make(header, data);
    rig_refused(mica__safetensors_read, &b, MICA_ERR_MALFORMED_FILE, part);
    rig_free(&b);
}

static const char sample[] =
    "{\"__metadata__\":{\"format\":\"pt\",\"\":\"\\u00e9\\u0000\"},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[24,30]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"none\":{\"shape\":[0,5],\"dtype\":\"I64\",\"data_offsets\":[24,24],\"more\":[1,{\"x\":2}]},"
    "\"one\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[30,31]}}   ";

static void reads(void **state)
{
    rig_bytes b = make(sample, 31);
    mica__archive *archive = rig_open_ok(mica__safetensors_read, &b);
    const size_t data = 8 + strlen(sample);
    const mica__tensor *t = rig_tensor(archive, "a");
    uint8_t byte[2];
    (void)state;
    rig_check(archive);
    assert_int_equal(archive->format, MICA_FORMAT_SAFETENSORS);
    assert_int_equal(archive->tensor_count, 4);
    assert_int_equal(archive->visible_count, 4);
    assert_int_equal(t->dtype, MICA_DTYPE_F32);
    assert_int_equal(t->ndim, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->offset, data);
    assert_int_equal(t->bytes, 24);
    assert_string_equal(t->type_name, "F32");
    t = rig_tensor(archive, "b");
    assert_int_equal(t->dtype, MICA_DTYPE_F16);
    assert_int_equal(t->offset, data + 24);
    assert_int_equal(mica__archive_read(archive, t, 4, byte, 2), MICA_OK);
    assert_memory_equal(byte, b.data + data + 28, 2);
    t = rig_tensor(archive, "none");
    assert_int_equal(t->bytes, 0);
    t = rig_tensor(archive, "one");
    assert_int_equal(t->ndim, 0);
    assert_int_equal(t->bytes, 1);
    /* The order is that of the data. */
    assert_string_equal(archive->tensor[0].name, "a");
    assert_string_equal(archive->tensor[1].name, "none");
    assert_string_equal(archive->tensor[2].name, "b");
    assert_int_equal(archive->meta_count, 2);
    assert_string_equal(mica__archive_meta(archive, "format")->as.string.data, "pt");
    assert_int_equal(mica__archive_meta(archive, "")->as.string.length, 3);
    assert_memory_equal(mica__archive_meta(archive, "")->as.string.data, "\xc3\xa9\0", 4);
    mica__archive_close(archive);
    rig_free(&b);
}

static void knows_types(void **state)
{
    static const struct {
        const char *name;
        mica_dtype dtype;
        int bits;
    } types[] = {
        {"BOOL", MICA_DTYPE_BOOL, 8},
        {"U8", MICA_DTYPE_U8, 8},
        {"I8", MICA_DTYPE_I8, 8},
        {"F8_E5M2", MICA_DTYPE_F8_E5M2, 8},
        {"F8_E4M3", MICA_DTYPE_F8_E4M3, 8},
        {"F8_E8M0", MICA_DTYPE_E8M0, 8},
        {"I16", MICA_DTYPE_I16, 16},
        {"U16", MICA_DTYPE_U16, 16},
        {"F16", MICA_DTYPE_F16, 16},
        {"BF16", MICA_DTYPE_BF16, 16},
        {"I32", MICA_DTYPE_I32, 32},
        {"U32", MICA_DTYPE_U32, 32},
        {"F32", MICA_DTYPE_F32, 32},
        {"I64", MICA_DTYPE_I64, 64},
        {"U64", MICA_DTYPE_U64, 64},
        {"F64", MICA_DTYPE_F64, 64},
        {"C64", MICA_DTYPE_C64, 64},
        {"F4", MICA_DTYPE_NONE, 4},
        {"F6_E2M3", MICA_DTYPE_NONE, 6},
        {"F6_E3M2", MICA_DTYPE_NONE, 6},
        {"F8_E4M3FNUZ", MICA_DTYPE_NONE, 8},
    };
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char header[160];
        const int bytes = 12 * types[i].bits / 8;
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[3,4],\"data_offsets\":[0,%d]}}",
                 types[i].name, bytes);
        rig_bytes b = make(header, (size_t)bytes);
        mica__archive *archive = rig_open_ok(mica__safetensors_read, &b);
        assert_int_equal(archive->tensor[0].dtype, types[i].dtype);
        assert_int_equal(archive->tensor[0].problem,
                         types[i].dtype == MICA_DTYPE_NONE ? MICA__TENSOR_TYPE : MICA__TENSOR_FINE);
        assert_string_equal(archive->tensor[0].type_name, types[i].name);
        rig_check(archive);
        mica__archive_close(archive);
        rig_free(&b);
    }
}

/* A type that nobody knows and too many dimensions block their tensor alone. */
static void lists_what_it_cannot_use(void **state)
{
    rig_bytes b = make("{\"x\":{\"dtype\":\"Q9\",\"shape\":[3],\"data_offsets\":[0,5]},"
                       "\"y\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[5,7]},"
                       "\"z\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[7,9]}}",
                       9);
    mica__archive *archive = rig_open_ok(mica__safetensors_read, &b);
    (void)state;
    assert_int_equal(rig_tensor(archive, "x")->problem, MICA__TENSOR_TYPE);
    assert_string_equal(rig_tensor(archive, "x")->type_name, "Q9");
    assert_int_equal(mica__archive_usable(archive, rig_tensor(archive, "x")), MICA_ERR_UNSUPPORTED);
    assert_int_equal(rig_tensor(archive, "y")->problem, MICA__TENSOR_DIMS);
    assert_int_equal(rig_tensor(archive, "z")->problem, MICA__TENSOR_FINE);
    assert_int_equal(rig_tensor(archive, "z")->ndim, MICA_MAX_DIMS);
    rig_check(archive);
    mica__archive_close(archive);
    rig_free(&b);
}

#define ONE(fields) "{\"x\":{" fields "}}"

static void refuses(void **state)
{
    (void)state;
    refuse(ONE("\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype is missing");
    refuse(ONE("\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]"), 4, "dtype is");
    refuse(ONE("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "shape is missing");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]"), 4, "shape is");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4, "dimension");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, "dimension");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]"), 4, "dimension");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[1]"), 4, "data_offsets is missing");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, "another length");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4, "another length");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[\"0\",4]"), 4, "something else");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[[],4]"), 4, "something else");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4, "data_offsets are [4, 0]");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,5]"), 4, "the file holds 4 bytes");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), 4, "say 8");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 5, "but its tensors 4");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]"), 5, "but its tensors 4");
    refuse(ONE("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"), 1, "whole number of bytes");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0, "past 2^64");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[4294967296,1073741824],\"data_offsets\":[0,0]"), 0, "past 2^64");
    refuse(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[18446744073709551612,0]"), 4,
           "data_offsets are");
    refuse("{\"x\":3}", 0, "not an object");
    refuse("{\"x\\u0000y\":{}}", 0, "NUL");
    refuse("{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
           "\"y\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
           3, "holes nor overlaps");
    refuse("{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
           "\"y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
           3, "holes nor overlaps");
    refuse("{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
           "\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
           2, "\"x\" is there twice");
    refuse("{\"__metadata__\":[]}", 0, "__metadata__ is");
    refuse("{\"__metadata__\":{\"a\":1}}", 0, "\"a\" in __metadata__");
    refuse(" {}", 0, "'{'");
    refuse("[]", 0, "'{'");
    refuse("{} x", 0, "header");
    refuse("{}", 1, "1 bytes of data");
    refuse("{\"a\":}", 0, "header");
}

/* The length at its edges: 0, 1, one past the file, past the format's limit, and as large as it gets. */
static void checks_length(void **state)
{
    static const uint64_t lengths[] = {0, 1, 3, 100000001, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
    rig_bytes good = make("{}", 0);
    mica__archive *archive = rig_open_ok(mica__safetensors_read, &good);
    (void)state;
    assert_int_equal(archive->tensor_count, 0);
    mica__archive_close(archive);
    rig_free(&good);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        rig_bytes b = {0};
        rig_number(&b, lengths[i], 8);
        rig_text(&b, "{}");
        rig_refused(mica__safetensors_read, &b, MICA_ERR_MALFORMED_FILE, "header of");
        rig_free(&b);
    }
}

/* Nesting that would end a reader which recurses, and values that would fill the memory of one which trusts. */
static void survives_bombs(void **state)
{
    rig_bytes deep = {0}, wide = {0};
    (void)state;
    rig_number(&deep, 10 + 20000, 8);
    rig_text(&deep, "{\"x\":{\"y\":");
    for (int i = 0; i < 20000; i++)
        rig_text(&deep, "[");
    rig_refused(mica__safetensors_read, &deep, MICA_ERR_MALFORMED_FILE, "containers inside each other");
    rig_number(&wide, 11 + 20000, 8);
    rig_text(&wide, "{\"x\":{\"y\":[");
    for (int i = 0; i < 10000; i++)
        rig_text(&wide, "0,");
    rig_refused(mica__safetensors_read, &wide, MICA_ERR_MALFORMED_FILE, "the text ends where a value");
    rig_free(&deep);
    rig_free(&wide);
}

static void takes_cuts_and_flips(void **state)
{
    rig_bytes b = make(sample, 31);
    const rig_opening opening = {mica__safetensors_read, &b, 1};
    (void)state;
    rig_cut_everywhere(mica__safetensors_read, &b);
    rig_flip_everywhere(mica__safetensors_read, &b, 0, 8 + strlen(sample));
    rig_fail_allocations(rig_play_open, (void *)&opening);
    rig_free(&b);
}

/* Another header of the same length takes the place of the first while the file is being read: in front of the n-th
 * piece of memory that the reader asks for. */
typedef struct swapping {
    rig_bytes *file;
    const char *header;
    uint32_t left;
} swapping;

static void *take_and_swap(void *context, size_t size, size_t align)
{
    swapping *s = context;
    void *memory = NULL;
    if (s->left-- == 0)
        memcpy(s->file->data + 8, s->header, strlen(s->header));
    return posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, size) == 0 ? memory
                                                                                               : NULL;
}

static void give_back(void *context, void *pointer, size_t size)
{
    (void)context, (void)size;
    free(pointer);
}

#define LONG_HEADER 8192

/* A header of LONG_HEADER bytes for four bytes of data: `count` tensors, of which the last has them. */
static char *long_header(uint32_t count, uint32_t pairs)
{
    char *text = malloc(LONG_HEADER + 1);
    size_t at = (size_t)sprintf(text, "{\"__metadata__\":{");
    for (uint32_t i = 0; i < pairs; i++)
        at += (size_t)sprintf(text + at, "%s\"%u\":\"\"", i == 0 ? "" : ",", i);
    at += (size_t)sprintf(text + at, "}");
    for (uint32_t i = 0; i < count; i++)
        at += (size_t)sprintf(text + at, ",\"%u\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[0,%d]}",
                              i, i + 1 == count ? 4 : 0, i + 1 == count ? 4 : 0);
    at += (size_t)sprintf(text + at, "}");
    assert_true(at <= LONG_HEADER);
    memset(text + at, ' ', LONG_HEADER - at);
    text[LONG_HEADER] = '\0';
    return text;
}

/* What was counted in one reading bounds what the next one keeps, though a header with many more comes in between. */
static void header_that_changes(void **state)
{
    char *const headers[3] = {long_header(1, 1), long_header(90, 1), long_header(1, 200)};
    (void)state;
    for (int way = 0; way < 9; way++) {
        bool seen = way / 3 == way % 3;
        for (uint32_t n = 0; n < 24; n++) {
            rig_bytes b = make(headers[way / 3], 4);
            swapping s = {&b, headers[way % 3], n};
            const mica_allocator allocator = {&s, take_and_swap, give_back};
            mica__archive *archive = NULL;
            assert_int_equal(mica_set_allocator(&allocator), MICA_OK);
            const mica_status status = rig_open(mica__safetensors_read, &b, &archive);
            if (status == MICA_OK)
                assert_true(archive->tensor_count == 1 || archive->tensor_count == 90);
            else
                seen |= strstr(mica_status_message(), "changed while it was read") != NULL;
            mica__archive_close(archive);
            assert_int_equal(mica_set_allocator(NULL), MICA_OK);
            rig_free(&b);
        }
        if (way != 6) /* fewer pairs than counted are all there are */
            assert_true(seen);
    }
    for (int i = 0; i < 3; i++)
        free(headers[i]);
}

static void reads_shards(void **state)
{
    rig_bytes files[3];
    mica__archive *archive = NULL;
    rig_opening opening = {mica__safetensors_read, files, 3};
    (void)state;
    files[0] = make("{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"U8\",\"shape\":[3],"
                    "\"data_offsets\":[0,3]}}",
                    3);
    files[1] = make("{\"__metadata__\":{\"format\":\"tf\"},\"c\":{\"dtype\":\"U8\",\"shape\":[1],"
                    "\"data_offsets\":[0,1]},\"d\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
                    3);
    files[2] = make("{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    assert_int_equal(rig_open_files(mica__safetensors_read, files, 3, &archive), MICA_OK);
    rig_check(archive);
    assert_int_equal(archive->tensor_count, 4);
    assert_int_equal(rig_tensor(archive, "b")->file, 2);
    assert_int_equal(rig_tensor(archive, "d")->file, 1);
    assert_string_equal(mica__archive_meta(archive, "format")->as.string.data, "pt");
    mica__archive_close(archive);
    rig_fail_allocations(rig_play_open, &opening);
    rig_free(&files[2]);
    files[2] = make("{\"d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    assert_int_equal(rig_open_files(mica__safetensors_read, files, 3, &archive), MICA_ERR_MALFORMED_FILE);
    assert_non_null(strstr(mica_status_message(), "twice"));
    for (int i = 0; i < 3; i++)
        rig_free(&files[i]);
}

/* No step is quadratic: a tenth of a million tensors open in the blink that a test has. */
static void opens_many(void **state)
{
    const uint32_t count = 100000;
    rig_bytes header = {0}, b = {0};
    mica__archive *archive;
    (void)state;
    for (uint32_t i = 0; i < count; i++) {
        char text[128];
        const uint32_t place = (uint32_t)((uint64_t)i * 7919 % count); /* not in the order of the data */
        snprintf(text, sizeof text,
                 "%c\"layers.%u.w\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[%u,%u]}",
                 i == 0 ? '{' : ',', i, place, place + 1);
        rig_text(&header, text);
    }
    rig_text(&header, "}");
    rig_number(&b, header.size, 8);
    rig_put(&b, header.data, header.size);
    rig_data(&b, count);
    archive = rig_open_ok(mica__safetensors_read, &b);
    assert_int_equal(archive->tensor_count, count);
    assert_int_equal(rig_tensor(archive, "layers.1.w")->offset, 8 + header.size + 7919);
    mica__archive_close(archive);
    rig_free(&header);
    rig_free(&b);
}

/* ---- writing -------------------------------------------------------------------------------------------- */

#define TRY(call)                  \
    do {                           \
        mica_status try_ = (call); \
        if (try_ != MICA_OK)       \
            return try_;           \
    } while (0)

typedef struct scene {
    char path[256];
    uint64_t split;
} scene;

static mica_status write_tensors(mica_writer *writer)
{
    static const uint64_t a[] = {2, 3}, b[] = {5}, none[] = {0, 4};
    uint8_t bytes[34];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 3 + 1);
    TRY(mica_writer_string(writer, "format", "pt"));
    TRY(mica_writer_string(writer, "quote\"", "line\nend"));
    TRY(mica_writer_tensor(writer, "a", MICA_DTYPE_F32, 2, a));
    TRY(mica_writer_tensor(writer, "none", MICA_DTYPE_I64, 2, none));
    TRY(mica_writer_tensor(writer, "b", MICA_DTYPE_BF16, 1, b));
    TRY(mica_writer_write(writer, bytes, 7));
    TRY(mica_writer_write(writer, bytes + 7, 20));
    return mica_writer_write(writer, bytes + 27, 7);
}

static mica_status play_write(void *context)
{
    const scene *s = context;
    mica_writer_options options = {.size = sizeof options, .overwrite = 1, .split_bytes = s->split};
    mica_writer *writer = NULL;
    mica_status status;
    TRY(mica_writer_create(s->path, &options, &writer));
    status = write_tensors(writer);
    if (status != MICA_OK) {
        mica_writer_discard(writer);
        return status;
    }
    return mica_writer_finish(writer);
}

static void path_beside(char out[256], const char *name)
{
    snprintf(out, 256, "%s/mica_safetensors_%ld_%s", P_tmpdir, (long)getpid(), name);
}

/* By hand: the length, spaces to eight, offsets, and the bytes in their order. */
static void writes(void **state)
{
    static const char expected[] = "{\"__metadata__\":{\"format\":\"pt\",\"quote\\\"\":\"line\\nend\"},"
                                   "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                                   "\"none\":{\"dtype\":\"I64\",\"shape\":[0,4],\"data_offsets\":[24,24]},"
                                   "\"b\":{\"dtype\":\"BF16\",\"shape\":[5],\"data_offsets\":[24,34]}}";
    const size_t padded = (sizeof expected - 1 + 7) / 8 * 8;
    scene s = {{0}, 0};
    rig_bytes b;
    (void)state;
    path_beside(s.path, "w.safetensors");
    if (play_write(&s) != MICA_OK)
        fail_msg("%s", mica_status_message());
    b = rig_load(s.path);
    assert_int_equal(b.size, 8 + padded + 34);
    assert_int_equal(b.data[0] | b.data[1] << 8, padded);
    assert_memory_equal(b.data + 8, expected, sizeof expected - 1);
    for (size_t i = sizeof expected - 1; i < padded; i++)
        assert_int_equal(b.data[8 + i], ' ');
    for (size_t i = 0; i < 34; i++)
        assert_int_equal(b.data[8 + padded + i], i * 3 + 1);
    rig_free(&b);
    rig_fail_allocations(play_write, &s);
    unlink(s.path);
}

static void writes_splits(void **state)
{
    static const char index[] =
        "{\"metadata\":{\"total_size\":34},\"weight_map\":{\"a\":\"%s\",\"none\":\"%s\",\"b\":\"%s\"}}";
    char first[256], second[256], index_path[300], text[1200];
    scene s = {{0}, 25};
    rig_bytes b;
    mica__archive *archive = NULL;
    (void)state;
    path_beside(s.path, "s.safetensors");
    path_beside(first, "s-00001-of-00002.safetensors");
    path_beside(second, "s-00002-of-00002.safetensors");
    snprintf(index_path, sizeof index_path, "%s.index.json", s.path);
    if (play_write(&s) != MICA_OK)
        fail_msg("%s", mica_status_message());
    b = rig_load(index_path);
    snprintf(text, sizeof text, index, strrchr(first, '/') + 1, strrchr(first, '/') + 1,
             strrchr(second, '/') + 1);
    assert_int_equal(b.size, strlen(text));
    assert_memory_equal(b.data, text, b.size);
    rig_free(&b);
    b = rig_load(second);
    archive = rig_open_ok(mica__safetensors_read, &b);
    assert_int_equal(archive->tensor_count, 1);
    assert_int_equal(rig_tensor(archive, "b")->bytes, 10);
    assert_int_equal(b.data[b.size - 1], 33 * 3 + 1);
    mica__archive_close(archive);
    rig_free(&b);
    rig_fail_allocations(play_write, &s);
    unlink(first);
    unlink(second);
    unlink(index_path);
}

static void refuses_to_write(void **state)
{
    static const uint64_t shape[] = {32};
    mica_value number = {.type = MICA_VALUE_U32};
    mica_writer *writer = NULL;
    char path[256];
    (void)state;
    path_beside(path, "n.safetensors");
    assert_int_equal(mica_writer_create(path, NULL, &writer), MICA_OK);
    assert_int_equal(mica_writer_metadata(writer, "k", &number), MICA_ERR_UNSUPPORTED);
    assert_int_equal(mica_writer_string(writer, "k", "\xff"), MICA_ERR_UNSUPPORTED);
    assert_int_equal(mica_writer_tensor(writer, "x", MICA_DTYPE_Q4_0, 1, shape), MICA_ERR_UNSUPPORTED);
    assert_non_null(strstr(mica_status_message(), "q4_0"));
    assert_int_equal(mica_writer_tensor(writer, "__metadata__", MICA_DTYPE_F32, 1, shape),
                     MICA_ERR_INVALID_ARGUMENT);
    mica_writer_discard(writer);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(mica_host_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(knows_types),
        cmocka_unit_test(lists_what_it_cannot_use),
        cmocka_unit_test(refuses),
        cmocka_unit_test(checks_length),
        cmocka_unit_test(survives_bombs),
        cmocka_unit_test(takes_cuts_and_flips),
        cmocka_unit_test(header_that_changes),
        cmocka_unit_test(reads_shards),
        cmocka_unit_test(opens_many),
        cmocka_unit_test(writes),
        cmocka_unit_test(writes_splits),
        cmocka_unit_test(refuses_to_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
