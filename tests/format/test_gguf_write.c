/*
 * test_gguf_write.c - what the writer makes of GGUF, byte for byte against bytes put together by hand, at any alignment
 * and split; and what it refuses, with nothing left behind.
 */
#define _XOPEN_SOURCE 700
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/format_rig.h"
#include "format/gguf_sample.h"
#include "support/folder.h"
#include "support/random.h"
#include "support/status.h"

static char folder[256], target[512];

static int make_folder(void **state)
{
    (void)state;
    if (test_folder_make(folder, sizeof folder, "write") != 0)
        return -1;
    snprintf(target, sizeof target, "%s/model.gguf", folder);
    return 0;
}

/* How many files there are; with `remove` they are gone afterwards. */
static uint32_t count_files(bool remove)
{
    const uint32_t count = test_folder_count(folder);
    if (remove)
        test_folder_empty(folder);
    return count;
}

static int remove_folder(void **state)
{
    (void)state;
    return test_folder_remove(folder);
}

/* ---- everything that the sample has, but for what no writer makes ---------------------------------------------- */

static void add_number(mica_writer *w, const char *key, mica_value_type type, uint64_t u)
{
    const mica_value value = {.type = type, .as.u = u};
    must(mica_writer_metadata(w, key, &value));
}

static void add_array(mica_writer *w, const char *key, mica_value_type item, uint64_t count,
                      const void *items)
{
    const mica_value value = {.type = MICA_VALUE_ARRAY, .item_type = item, .count = count, .as.items = items};
    must(mica_writer_metadata(w, key, &value));
}

static void add_scalars(mica_writer *w)
{
    const mica_value f32 = {.type = MICA_VALUE_F32, .as.f = 1.5},
                     f64 = {.type = MICA_VALUE_F64, .as.f = -2.25};
    const mica_value i8 = {.type = MICA_VALUE_I8, .as.i = -5}, i16 = {.type = MICA_VALUE_I16, .as.i = -2};
    const mica_value i32 = {.type = MICA_VALUE_I32, .as.i = -3}, i64 = {.type = MICA_VALUE_I64, .as.i = -9};
    add_number(w, "a.u8", MICA_VALUE_U8, 200);
    must(mica_writer_metadata(w, "a.i8", &i8));
    add_number(w, "a.u16", MICA_VALUE_U16, 60000);
    must(mica_writer_metadata(w, "a.i16", &i16));
    must(mica_writer_u32(w, "a.u32", 4000000000u));
    must(mica_writer_metadata(w, "a.i32", &i32));
    must(mica_writer_metadata(w, "a.f32", &f32));
    add_number(w, "a.bool", MICA_VALUE_BOOL, 1);
    must(mica_writer_string(w, "a.string", "h\xc3\xa9llo"));
    add_number(w, "a.u64", MICA_VALUE_U64, UINT64_MAX);
    must(mica_writer_metadata(w, "a.i64", &i64));
    must(mica_writer_metadata(w, "a.f64", &f64));
    must(mica_writer_string(w, "a.empty", ""));
}

static void add_arrays(mica_writer *w)
{
    const mica_string strings[] = {{"one", 3}, {"", 0}, {"three", 5}}, x = {"x", 1};
    const mica_value pair[] = {
        {.type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_U32, .count = 2, .as.items = (uint32_t[]){1, 2}},
        {.type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_U32}};
    const mica_value single = {
        .type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_STRING, .count = 1, .as.items = &x};
    const mica_value nest[] = {
        {.type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_ARRAY, .count = 2, .as.items = pair},
        {.type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_ARRAY, .count = 1, .as.items = &single}};
    add_array(w, "b.u8", MICA_VALUE_U8, 3, "\1\2\3");
    add_array(w, "b.i16", MICA_VALUE_I16, 2, (int16_t[]){-1, 300});
    add_array(w, "b.u64", MICA_VALUE_U64, 2, (uint64_t[]){1ull << 40, 7});
    add_array(w, "b.bool", MICA_VALUE_BOOL, 2, "\0\1");
    add_array(w, "b.strings", MICA_VALUE_STRING, 3, strings);
    add_array(w, "b.none", MICA_VALUE_F32, 0, NULL);
    add_array(w, "b.nested", MICA_VALUE_ARRAY, 2, nest);
    add_array(w, "b.empty nest", MICA_VALUE_ARRAY, 0, NULL);
}

static void bytes_are_those_of_the_format(void **state)
{
    static const uint32_t alignments[] = {0, 8, 32, 64, 4096};
    (void)state;
    for (size_t a = 0; a < sizeof alignments / sizeof alignments[0]; a++) {
        const uint32_t alignment = alignments[a] == 0 ? 32 : alignments[a];
        const mica_writer_options options = {.alignment = alignments[a]};
        mica_writer *w;
        build b = {0};
        must(mica_writer_create(target, &options, &w));
        add_scalars(w);
        add_arrays(w);
        must(mica_writer_tensor(w, "first", MICA_DTYPE_F32, 2, (uint64_t[]){3, 5}));
        must(mica_writer_tensor(w, "none", MICA_DTYPE_F16, 2, (uint64_t[]){4, 0}));
        must(mica_writer_tensor(w, "blocks", MICA_DTYPE_Q6_K, 3, (uint64_t[]){1, 2, 256}));
        must(mica_writer_tensor(w, "scalar", MICA_DTYPE_I64, 0, NULL));
        must(mica_writer_tensor(w, "last", MICA_DTYPE_F64, 1, (uint64_t[]){0}));
        build data = {0};
        build_data(&data, 60 + 420 + 8, 5);
        for (size_t at = 0, piece = 1; at < data.size; at += piece, piece = piece * 3 % 101) /* odd pieces */
            must(mica_writer_write(w, data.bytes + at, piece < data.size - at ? piece : data.size - at));
        must(mica_writer_finish(w));

        const uint64_t blocks = (60 + alignment - 1) / alignment * alignment;
        const uint64_t scalar = blocks + (420 + alignment - 1) / alignment * alignment;
        const uint64_t end = scalar + (8 + alignment - 1) / alignment * alignment;
        build_head(&b, 3, 5, SAMPLE_METAS - 1 + (alignment != 32));
        sample_scalars(&b);
        sample_arrays(&b);
        b.size -= 8 + strlen("general.alignment") + 4 + 4; /* the sample's own */
        if (alignment != 32)
            build_meta_number(&b, "general.alignment", 4, alignment, 4);
        build_tensor(&b, "first", 2, (uint64_t[]){5, 3}, 0, 0);
        build_tensor(&b, "none", 2, (uint64_t[]){0, 4}, 1, blocks);
        build_tensor(&b, "blocks", 3, (uint64_t[]){256, 2, 1}, 14, blocks);
        build_tensor(&b, "scalar", 0, NULL, 27, scalar);
        build_tensor(&b, "last", 1, (uint64_t[]){0}, 28, end);
        build_pad(&b, alignment);
        build_bytes(&b, data.bytes, 60);
        build_pad(&b, alignment);
        build_bytes(&b, data.bytes + 60, 420);
        build_pad(&b, alignment);
        build_bytes(&b, data.bytes + 480, 8);
        build_pad(&b, alignment);

        rig_bytes made = rig_load(target);
        assert_int_equal(made.size, b.size);
        assert_memory_equal(made.data, b.bytes, b.size);
        mica__archive *archive;
        must(mica__archive_open(target, &archive));
        sample_check(archive);
        mica__archive_close(archive);
        rig_free(&made);
        build_free(&b);
        build_free(&data);
        assert_int_equal(count_files(true), 1);
        assert_int_equal(mica_host_allocations(), 0);
    }
}

static void nothing_is_a_file_too(void **state)
{
    mica_writer *w;
    build b = {0};
    (void)state;
    must(mica_writer_create(target, NULL, &w));
    must(mica_writer_finish(w));
    rig_bytes made = rig_load(target);
    build_head(&b, 3, 0, 0);
    build_pad(&b, 32);
    assert_int_equal(made.size, b.size);
    assert_memory_equal(made.data, b.bytes, b.size);
    rig_free(&made);
    build_free(&b);
    assert_int_equal(count_files(true), 1);
}

/* Random tensors, random limits: no file has more data than allowed unless one tensor has, and all comes back. */
static void split_files_come_back(void **state)
{
    test_random random = test_random_from(77);
    (void)state;
    for (uint32_t round = 0; round < 25; round++) {
        const uint32_t count = 1 + (uint32_t)test_random_below(&random, 40);
        const mica_writer_options options = {.split_bytes = 1 + test_random_below(&random, 3000),
                                             .alignment = 8u << test_random_below(&random, 5)};
        uint64_t sizes[40], total = 0;
        mica_writer *w;
        mica__archive *archive;
        must(mica_writer_create(target, &options, &w));
        must(mica_writer_string(w, "general.name", "split"));
        for (uint32_t i = 0; i < count; i++) {
            char name[16];
            snprintf(name, sizeof name, "t%u", i);
            sizes[i] = test_random_one_in(&random, 5) ? 0 : test_random_size(&random, 900);
            must(mica_writer_tensor(w, name, MICA_DTYPE_I8, 1, &sizes[i]));
            total += sizes[i];
        }
        build data = {0};
        build_data(&data, total, (uint8_t)round);
        must(mica_writer_write(w, data.bytes, total / 2));
        must(mica_writer_write(w, data.bytes + total / 2, total - total / 2));
        must(mica_writer_finish(w));
        const uint32_t files = count_files(false);
        char path[600];
        snprintf(path, sizeof path, "%s/model-00001-of-%05u.gguf", folder, files);
        must(mica__archive_open(files == 1 ? target : path, &archive));
        sample_check(archive);
        assert_int_equal(archive->file_count, files);
        assert_int_equal(archive->tensor_count, count);
        assert_non_null(mica__archive_meta(archive, "general.name"));
        uint64_t at = 0, in_file = 0;
        for (uint32_t i = 0; i < count; i++) {
            uint8_t bytes[900];
            const mica__tensor *t = &archive->tensor[i];
            assert_int_equal(t->bytes, sizes[i]);
            must(mica__archive_read(archive, t, 0, bytes, t->bytes));
            assert_memory_equal(bytes, data.bytes + at, t->bytes);
            at += t->bytes;
            if (i != 0 && t->file != archive->tensor[i - 1].file)
                in_file = 0;
            in_file += t->bytes;
            assert_true(in_file <= options.split_bytes || in_file == t->bytes);
        }
        mica__archive_close(archive);
        build_free(&data);
        assert_int_equal(count_files(true), files);
        assert_int_equal(mica_host_allocations(), 0);
    }
}

/* ---- refusals ------------------------------------------------------------------------------------------- */

static void bad_declarations(void **state)
{
    const uint64_t shape[] = {2, 3, 1, 1, 1, 1, 1};
    const mica_value odd = {.type = 99}, loose = {.type = MICA_VALUE_STRING, .as.string = {NULL, 4}};
    const mica_value odd_items = {.type = MICA_VALUE_ARRAY, .item_type = 99, .count = 0};
    const mica_value lost_items = {.type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_U8, .count = 5};
    const mica_value many = {
        .type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_U64, .count = UINT64_MAX / 4, .as.items = shape};
    const mica_value inner = {.type = MICA_VALUE_U8};
    const mica_value mixed = {
        .type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_ARRAY, .count = 1, .as.items = &inner};
    mica_value deep[9];
    mica_writer *w;
    (void)state;
    for (uint32_t i = 0; i < 9; i++)
        deep[i] = (mica_value){.type = MICA_VALUE_ARRAY,
                               .item_type = i == 8 ? MICA_VALUE_U8 : MICA_VALUE_ARRAY,
                               .count = i == 8 ? 0 : 1,
                               .as.items = i == 8 ? NULL : &deep[i + 1]};
    must(mica_writer_create(target, NULL, &w));
    must(mica_writer_u32(w, "twice", 1));
    refused(mica_writer_u32(w, "twice", 1), MICA_ERR_INVALID_ARGUMENT, "there already");
    refused(mica_writer_u32(w, "", 1), MICA_ERR_INVALID_ARGUMENT, "key");
    refused(mica_writer_u32(w, NULL, 1), MICA_ERR_INVALID_ARGUMENT, "key");
    refused(mica_writer_u32(w, "\xff", 1), MICA_ERR_INVALID_ARGUMENT, "UTF-8");
    refused(mica_writer_u32(w, "general.alignment", 1), MICA_ERR_INVALID_ARGUMENT, "options.alignment");
    refused(mica_writer_u32(w, "split.count", 1), MICA_ERR_INVALID_ARGUMENT, "split_bytes");
    refused(mica_writer_string(w, "s", NULL), MICA_ERR_INVALID_ARGUMENT, "text");
    refused(mica_writer_metadata(w, "s", NULL), MICA_ERR_INVALID_ARGUMENT, "value");
    refused(mica_writer_metadata(w, "s", &odd), MICA_ERR_INVALID_ARGUMENT, "value.type is 99");
    refused(mica_writer_metadata(w, "s", &loose), MICA_ERR_INVALID_ARGUMENT, "NULL");
    refused(mica_writer_metadata(w, "s", &odd_items), MICA_ERR_INVALID_ARGUMENT, "value.item_type is 99");
    refused(mica_writer_metadata(w, "s", &lost_items), MICA_ERR_INVALID_ARGUMENT, "NULL");
    refused(mica_writer_metadata(w, "s", &many), MICA_ERR_INVALID_ARGUMENT, "too large");
    refused(mica_writer_metadata(w, "s", &mixed), MICA_ERR_INVALID_ARGUMENT, "array of arrays");
    refused(mica_writer_metadata(w, "s", &deep[0]), MICA_ERR_INVALID_ARGUMENT, "deeper than 8");
    must(mica_writer_metadata(w, "s", &deep[1]));
    refused(mica_writer_u32(NULL, "k", 1), MICA_ERR_INVALID_ARGUMENT, "writer");
    must(mica_writer_tensor(w, "t", MICA_DTYPE_F32, 2, shape));
    refused(mica_writer_tensor(w, "t", MICA_DTYPE_F32, 2, shape), MICA_ERR_INVALID_ARGUMENT, "there already");
    refused(mica_writer_tensor(w, "u", MICA_DTYPE_Q4_0, 2, shape), MICA_ERR_INVALID_ARGUMENT,
            "multiple of 32");
    refused(mica_writer_tensor(w, "u", MICA_DTYPE_Q4_0, 0, NULL), MICA_ERR_INVALID_ARGUMENT,
            "multiple of 32");
    refused(mica_writer_tensor(w, "u", MICA_DTYPE_AFFINE4, 1, (uint64_t[]){8}), MICA_ERR_UNSUPPORTED,
            "affine4");
    refused(mica_writer_tensor(w, "u", MICA_DTYPE_NONE, 1, shape), MICA_ERR_INVALID_ARGUMENT, "dtype");
    refused(mica_writer_tensor(w, "u", (mica_dtype)9999, 1, shape), MICA_ERR_INVALID_ARGUMENT, "dtype");
    refused(mica_writer_tensor(w, "u", MICA_DTYPE_F32, 5, shape), MICA_ERR_UNSUPPORTED, "5 dimensions");
    refused(mica_writer_tensor(w, "u", MICA_DTYPE_F32, MICA_MAX_DIMS + 1, shape), MICA_ERR_INVALID_ARGUMENT,
            "dimensions");
    refused(mica_writer_tensor(w, "u", MICA_DTYPE_F32, 1, NULL), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_writer_tensor(w, "", MICA_DTYPE_F32, 1, shape), MICA_ERR_INVALID_ARGUMENT, "name");
    refused(mica_writer_tensor(w, "u", MICA_DTYPE_F32, 2, (uint64_t[]){1ull << 40, 1ull << 40}),
            MICA_ERR_INVALID_ARGUMENT, "2^63");
    refused(mica_writer_tensor(w, "u", MICA_DTYPE_F64, 1, (uint64_t[]){1ull << 61}),
            MICA_ERR_INVALID_ARGUMENT, "2^63");
    mica_writer_discard(w);
    mica_writer_discard(NULL);
    assert_int_equal(count_files(false), 0);
    assert_int_equal(mica_host_allocations(), 0);
}

static void bad_targets(void **state)
{
    const mica_writer_options odd = {.alignment = 24}, small = {.alignment = 4},
                              mlx = {.format = MICA_FORMAT_MLX};
    const mica_writer_options split = {.split_bytes = 1}, over = {.overwrite = 1};
    mica_writer *w;
    char path[600];
    (void)state;
    refused(mica_writer_create(NULL, NULL, &w), MICA_ERR_INVALID_ARGUMENT, "path");
    refused(mica_writer_create("", NULL, &w), MICA_ERR_INVALID_ARGUMENT, "path");
    refused(mica_writer_create(target, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "out_writer");
    refused(mica_writer_create(target, &odd, &w), MICA_ERR_INVALID_ARGUMENT, "alignment");
    refused(mica_writer_create(target, &small, &w), MICA_ERR_INVALID_ARGUMENT, "alignment");
    refused(mica_writer_create(target, &mlx, &w), MICA_ERR_INVALID_ARGUMENT, "mlx");
    snprintf(path, sizeof path, "%s/model.bin", folder);
    refused(mica_writer_create(path, NULL, &w), MICA_ERR_INVALID_ARGUMENT, "model.bin");
    snprintf(path, sizeof path, "%s/a.npy", folder);
    refused(mica_writer_create(path, &split, &w), MICA_ERR_INVALID_ARGUMENT, "split_bytes");
    snprintf(path, sizeof path, "%s/not/there.gguf", folder);
    refused(mica_writer_create(path, NULL, &w), MICA_ERR_IO, "there.gguf");
    snprintf(path, sizeof path, "%s/folder.gguf", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    refused(mica_writer_create(path, &over, &w), MICA_ERR_IO, "a folder");
    assert_int_equal(rmdir(path), 0);
    assert_null(w);
    rig_file(folder, "model.gguf", "old", 3);
    refused(mica_writer_create(target, NULL, &w), MICA_ERR_IO, "exists");
    must(mica_writer_create(target, &over, &w));
    must(mica_writer_finish(w));
    rig_bytes made = rig_load(target);
    assert_int_equal(made.size, 32);
    rig_free(&made);
    assert_int_equal(count_files(true), 1);
}

/* A file that comes while we write is not ours to replace. */
static void the_place_is_taken_meanwhile(void **state)
{
    const mica_writer_options split = {.split_bytes = 1};
    mica_writer *w;
    (void)state;
    must(mica_writer_create(target, NULL, &w));
    rig_file(folder, "model.gguf", "theirs", 6);
    refused(mica_writer_finish(w), MICA_ERR_IO, "model.gguf");
    assert_int_equal(count_files(false), 1);
    rig_bytes made = rig_load(target);
    assert_memory_equal(made.data, "theirs", 6);
    rig_free(&made);
    count_files(true);
    must(mica_writer_create(target, &split, &w));
    must(mica_writer_tensor(w, "a", MICA_DTYPE_I8, 1, (uint64_t[]){2}));
    must(mica_writer_tensor(w, "b", MICA_DTYPE_I8, 1, (uint64_t[]){2}));
    must(mica_writer_write(w, "1234", 4));
    rig_file(folder, "model-00002-of-00002.gguf", "theirs", 6);
    refused(mica_writer_finish(w), MICA_ERR_IO, "model-00002-of-00002.gguf");
    assert_int_equal(count_files(true), 1); /* the first part is gone again */
}

static void data_that_does_not_fit(void **state)
{
    mica_writer *w;
    (void)state;
    must(mica_writer_create(target, NULL, &w));
    must(mica_writer_tensor(w, "a", MICA_DTYPE_I8, 1, (uint64_t[]){4}));
    refused(mica_writer_write(w, "12345", 5), MICA_ERR_INVALID_ARGUMENT, "only 4");
    refused(mica_writer_write(w, NULL, 1), MICA_ERR_INVALID_ARGUMENT, "bytes");
    refused(mica_writer_write(NULL, "1", 1), MICA_ERR_INVALID_ARGUMENT, "writer");
    must(mica_writer_write(w, "123", 3));
    refused(mica_writer_u32(w, "late", 1), MICA_ERR_STATE, "declared");
    refused(mica_writer_tensor(w, "late", MICA_DTYPE_I8, 0, NULL), MICA_ERR_STATE, "declared");
    refused(mica_writer_write(w, "45", 2), MICA_ERR_INVALID_ARGUMENT, "only 1");
    refused(mica_writer_finish(w), MICA_ERR_STATE, "\"a\"");
    refused(mica_writer_finish(NULL), MICA_ERR_INVALID_ARGUMENT, "writer");
    assert_int_equal(count_files(false), 0);
    must(mica_writer_create(target, NULL, &w));
    must(mica_writer_tensor(w, "a", MICA_DTYPE_I8, 1, (uint64_t[]){4}));
    must(mica_writer_write(w, "12", 2));
    mica_writer_discard(w);
    assert_int_equal(count_files(false), 0);
    assert_int_equal(mica_host_allocations(), 0);
}

/* A limit on file sizes stands for a disk that is full. */
static void the_disk_is_full(void **state)
{
    static const char data[16384];
    struct rlimit before, limit;
    mica_writer *w;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 8192;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    must(mica_writer_create(target, NULL, &w));
    must(mica_writer_tensor(w, "a", MICA_DTYPE_I8, 1, (uint64_t[]){3 * sizeof data}));
    const mica_status first = mica_writer_write(w, data, sizeof data);
    const mica_status second = mica_writer_write(w, data, sizeof data);
    const mica_status last = mica_writer_finish(w);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(first, MICA_ERR_IO);
    assert_int_equal(second, MICA_ERR_IO);
    assert_int_equal(last, MICA_ERR_IO);
    assert_int_equal(count_files(false), 0);
    assert_int_equal(mica_host_allocations(), 0);
}

static mica_status play_writer(void *context)
{
    const mica_writer_options options = {.split_bytes = 100, .overwrite = 1};
    const mica_string strings[] = {{"one", 3}, {"two", 3}};
    const mica_value list = {
        .type = MICA_VALUE_ARRAY, .item_type = MICA_VALUE_STRING, .count = 2, .as.items = strings};
    static const char data[64];
    mica_writer *w = NULL;
    (void)context;
    mica_status status = mica_writer_create(target, &options, &w);
    if (status == MICA_OK)
        status = mica_writer_metadata(w, "list", &list);
    for (uint32_t i = 0; i < 70 && status == MICA_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        status = mica_writer_tensor(w, name, MICA_DTYPE_I8, 1, (uint64_t[]){10});
    }
    for (uint32_t i = 0; i < 14 && status == MICA_OK; i++)
        status = mica_writer_write(w, data, 50);
    if (status != MICA_OK) {
        mica_writer_discard(w);
        assert_int_equal(count_files(false), 0);
        return status;
    }
    status = mica_writer_finish(w);
    assert_int_equal(count_files(true), status == MICA_OK ? 7 : 0);
    return status;
}

static void every_allocation_fails(void **state)
{
    (void)state;
    rig_fail_allocations(play_writer, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_format),
        cmocka_unit_test(nothing_is_a_file_too),
        cmocka_unit_test(split_files_come_back),
        cmocka_unit_test(bad_declarations),
        cmocka_unit_test(bad_targets),
        cmocka_unit_test(the_place_is_taken_meanwhile),
        cmocka_unit_test(data_that_does_not_fit),
        cmocka_unit_test(the_disk_is_full),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
