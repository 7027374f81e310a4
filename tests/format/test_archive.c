/*
 * test_archive.c - the parts under all formats: which reader a path gets, names and near names, memory files, the
 * sort, names of formats and types.
 */
#define _XOPEN_SOURCE 700
#include <unistd.h>

#include "base/sort.h"
#include "base/work.h"
#include "format/format_rig.h"
#include "format/gguf_sample.h"
#include "support/folder.h"
#include "support/random.h"
#include "support/status.h"

static char folder[256], path[512];

static int make_folder(void **state)
{
    (void)state;
    return test_folder_make(folder, sizeof folder, "archive");
}

static int remove_folder(void **state)
{
    (void)state;
    return test_folder_remove(folder);
}

static mica_status open_bytes(const char *name, const void *bytes, size_t size, mica__archive **out)
{
    rig_file(folder, name, bytes, size);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const mica_status status = mica__archive_open(path, out);
    unlink(path);
    return status;
}

static void magic_before_ending(void **state)
{
    build b;
    mica__archive *archive;
    (void)state;
    sample_build(&b, false);
    assert_int_equal(open_bytes("model.bin", b.bytes, b.size, &archive), MICA_OK);
    assert_int_equal(archive->format, MICA_FORMAT_GGUF);
    mica__archive_close(archive);
    assert_int_equal(open_bytes("model.npy", b.bytes, b.size, &archive), MICA_OK);
    mica__archive_close(archive);
    assert_int_equal(open_bytes("empty.gguf", "", 0, &archive), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(open_bytes("other.gguf", "other", 5, &archive), MICA_ERR_MALFORMED_FILE);
    assert_non_null(strstr(mica_status_message(), "other.gguf"));
    assert_int_equal(open_bytes("empty.safetensors", "", 0, &archive), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(open_bytes("empty.npy", "", 0, &archive), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(open_bytes("empty.npz", "", 0, &archive), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(open_bytes("text.txt", "text of no kind", 15, &archive), MICA_ERR_UNSUPPORTED);
    assert_non_null(strstr(mica_status_message(), "gguf, safetensors, npy, npz"));
    assert_int_equal(open_bytes("bare", "\2\0\0\0\0\0\0\0{}", 10, &archive), MICA_OK);
    assert_int_equal(archive->format, MICA_FORMAT_SAFETENSORS);
    mica__archive_close(archive);
    snprintf(path, sizeof path, "%s/not there.gguf", folder);
    assert_int_equal(mica__archive_open(path, &archive), MICA_ERR_IO);
    assert_null(archive);
    build_free(&b);
    assert_int_equal(mica_host_allocations(), 0);
}

static void names_that_are_near(void **state)
{
    static const char *const names[] = {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                                        "blk.0.ffn_up.weight", "token_embd.weight",   "output.weight"};
    static const struct {
        const char *asked, *first;
    } cases[] = {{"blk.0.attn_q.weigth", "near: \"blk.0.attn_q.weight\""},
                 {"attn_v.weight", "near: \"blk.0.attn_v.weight\""},
                 {"model.output.weight", "near: \"output.weight\""},
                 {"token_emb.weight", "near: \"token_embd.weight\""}};
    build b = {0};
    mica__archive *archive;
    void *copy;
    (void)state;
    build_head(&b, 3, 6, 0);
    for (uint32_t i = 0; i < 6; i++)
        build_tensor(&b, names[i], 1, (uint64_t[]){0}, 0, 0);
    assert_int_equal(build_read(&b, &archive, &copy), MICA_OK);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(mica__archive_find(archive, names[i], strlen(names[i])), i);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(mica__archive_find(archive, cases[i].asked, strlen(cases[i].asked)),
                         MICA__NO_TENSOR);
        assert_int_equal(mica__archive_not_found(archive, cases[i].asked), MICA_ERR_NOT_FOUND);
        if (strstr(mica_status_message(), cases[i].first) == NULL)
            fail_msg("%s", mica_status_message());
    }
    assert_int_equal(mica__archive_not_found(archive, "zzzzzz"), MICA_ERR_NOT_FOUND);
    assert_null(strstr(mica_status_message(), "near"));
    char longest[4000];
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(mica__archive_not_found(archive, longest), MICA_ERR_NOT_FOUND);
    assert_int_equal(mica__archive_not_found(archive, ""), MICA_ERR_NOT_FOUND);
    assert_int_equal(mica__archive_find(archive, "blk", 3), MICA__NO_TENSOR); /* a beginning is no name */
    mica__archive_close(archive);
    free(copy);
    build_free(&b);
}

static void memory_is_a_file(void **state)
{
    uint8_t bytes[100], got[100];
    mica__file *file;
    mica__file_map map;
    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(mica__file_from_bytes("some name", bytes, 100, &file), MICA_OK);
    assert_string_equal(mica__file_path(file), "some name");
    assert_int_equal(mica__file_size(file), 100);
    assert_int_equal(mica__file_read_at(file, 10, got, 90), MICA_OK);
    assert_memory_equal(got, bytes + 10, 90);
    assert_int_equal(mica__file_read_at(file, 100, got, 0), MICA_OK);
    assert_int_equal(mica__file_read_at(file, 10, got, 91), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(mica__file_read_at(file, UINT64_MAX, got, 2), MICA_ERR_MALFORMED_FILE);
    assert_int_equal(mica__file_map_open(file, &map), MICA_OK);
    assert_ptr_equal(map.data, bytes);
    mica__file_map_advise(&map, 0, 100, MICA__FILE_ADVICE_DONT_NEED); /* the bytes are not ours to drop */
    mica__file_close(file);
    assert_int_equal(bytes[99], 99);
    mica__file_map_close(&map);
    assert_int_equal(mica__file_from_bytes("empty", NULL, 0, &file), MICA_OK);
    assert_int_equal(mica__file_read_at(file, 0, got, 0), MICA_OK);
    assert_int_equal(mica__file_map_open(file, &map), MICA_OK);
    assert_null(map.data);
    mica__file_close(file);
}

typedef struct item {
    uint32_t key, place;
} item;

static int compare_items(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static void the_sort_is_stable(void **state)
{
    test_random random = test_random_from(3);
    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        item items[600];
        uint64_t sum = 0;
        const uint32_t count = (uint32_t)test_random_below(&random, 600), range = 1 + round * round;
        for (uint32_t i = 0; i < count; i++) {
            items[i] = (item){(uint32_t)test_random_below(&random, range), i};
            sum += items[i].key * 7919ull + i;
        }
        assert_int_equal(mica__sort(items, count, sizeof items[0], compare_items), MICA_OK);
        for (uint32_t i = 0; i < count; i++) {
            sum -= items[i].key * 7919ull + items[i].place;
            assert_true(i == 0 || items[i - 1].key < items[i].key ||
                        (items[i - 1].key == items[i].key && items[i - 1].place < items[i].place));
        }
        assert_int_equal(sum, 0);
    }
}

static mica_work *sort_work;
static uint64_t comparisons, comparisons_before; /* all, and those before the cancel */

static int compare_and_cancel(const void *a, const void *b)
{
    if (++comparisons == comparisons_before)
        mica_work_cancel(sort_work);
    return compare_items(a, b);
}

/* A cancel in any pass of a long sort ends it soon, and no item is lost. */
static void sort_stops(void **state)
{
    enum { COUNT = 1 << 20 };
    item *items = malloc(COUNT * sizeof *items);
    (void)state;
    assert_non_null(items);
    must(mica_work_create(NULL, &sort_work));
    mica_work_use(sort_work);
    for (uint64_t eighth = 0; eighth < 8; eighth++) {
        uint64_t sum = 0;
        mica__call call;
        for (uint32_t i = 0; i < COUNT; i++)
            items[i] = (item){i * 2654435761u, i};
        comparisons = 0;
        comparisons_before = 1 + COUNT * 20ull / 2 * eighth / 8;
        mica__call_begin(&call, "sort");
        refused(mica__call_end(&call, mica__sort(items, COUNT, sizeof items[0], compare_and_cancel)),
                MICA_ERR_CANCELLED, "sort: cancelled");
        mica_work_clear(sort_work);
        assert_true(comparisons - comparisons_before <= 65536);
        for (uint32_t i = 0; i < COUNT; i++)
            sum += items[i].place;
        assert_int_equal(sum, COUNT * (COUNT - 1ull) / 2);
    }
    mica_work_use(NULL);
    mica_work_release(sort_work);
    free(items);
}

static void words(void **state)
{
    (void)state;
    assert_string_equal(mica_format_name(MICA_FORMAT_GGUF), "gguf");
    assert_string_equal(mica_format_name(MICA_FORMAT_SAFETENSORS), "safetensors");
    assert_string_equal(mica_format_name(MICA_FORMAT_MLX), "mlx");
    assert_string_equal(mica_format_name(MICA_FORMAT_NPY), "npy");
    assert_string_equal(mica_format_name(MICA_FORMAT_NPZ), "npz");
    assert_string_equal(mica_format_name((mica_format)77), "none");
    assert_string_equal(mica_value_type_name(MICA_VALUE_U8), "u8");
    assert_string_equal(mica_value_type_name(MICA_VALUE_STRING), "string");
    assert_string_equal(mica_value_type_name(MICA_VALUE_F64), "f64");
    assert_string_equal(mica_value_type_name((mica_value_type)-1), "none");
    assert_string_equal(mica_value_type_name(MICA_VALUE_TYPE_COUNT), "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(magic_before_ending), cmocka_unit_test(names_that_are_near),
        cmocka_unit_test(memory_is_a_file),    cmocka_unit_test(the_sort_is_stable),
        cmocka_unit_test(sort_stops),          cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
