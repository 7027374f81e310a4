/*
 * test_gguf_split.c - models in several GGUF files: any part opens them all, and each way in which they do not belong
 * together is refused.
 */
#define _XOPEN_SOURCE 700
#include <unistd.h>

#include "format/format_rig.h"
#include "format/gguf_sample.h"
#include "support/folder.h"

#define PARTS 3

static char folder[256];

static int make_folder(void **state)
{
    (void)state;
    return test_folder_make(folder, sizeof folder, "split");
}

static void part_path(char path[512], uint32_t number, uint32_t count)
{
    snprintf(path, 512, "%s/model-%05u-of-%05u.gguf", folder, number, count);
}

static int remove_folder(void **state)
{
    (void)state;
    return test_folder_remove(folder);
}

/* What each part says; a test changes one word of it. */
typedef struct part {
    uint64_t no, count, tensors;
    bool silent; /* no split.* at all */
    const char *name;
} part;

static void write_part(const char *path, const part *p, uint32_t index)
{
    build b = {0};
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    build_head(&b, 3, 2, (p->silent ? 0 : 3) + 1);
    build_meta_number(&b, index == 0 ? "general.first" : "general.other", 4, index, 4);
    if (!p->silent) {
        build_meta_number(&b, "split.no", 2, p->no, 2);
        build_meta_number(&b, "split.count", 2, p->count, 2);
        build_meta_number(&b, "split.tensors.count", 5, p->tensors, 4);
    }
    build_tensor(&b, p->name, 1, (uint64_t[]){8}, 0, 0);
    char name[32];
    snprintf(name, sizeof name, "part %u", index);
    build_tensor(&b, name, 1, (uint64_t[]){3}, 24, 32);
    build_pad(&b, 32);
    build_data(&b, 35, (uint8_t)(index * 50));
    assert_int_equal(fwrite(b.bytes, 1, b.size, file), b.size);
    assert_int_equal(fclose(file), 0);
    build_free(&b);
}

static void good_parts(part parts[PARTS])
{
    static const char *const names[PARTS] = {"alpha", "beta", "gamma"};
    for (uint32_t i = 0; i < PARTS; i++)
        parts[i] = (part){i, PARTS, 2 * PARTS, false, names[i]};
}

static void write_parts(const part parts[PARTS])
{
    for (uint32_t i = 0; i < PARTS; i++) {
        char path[512];
        part_path(path, i + 1, PARTS);
        write_part(path, &parts[i], i);
    }
}

static void expect_refused(uint32_t open_number, mica_status wanted, const char *word)
{
    mica__archive *archive;
    char path[512];
    part_path(path, open_number, PARTS);
    const mica_status status = mica__archive_open(path, &archive);
    if (status != wanted || strstr(mica_status_message(), word) == NULL)
        fail_msg("status %s, expected %s with \"%s\": %s", mica_status_name(status), mica_status_name(wanted),
                 word, mica_status_message());
    assert_null(archive);
    assert_int_equal(mica_host_allocations(), 0);
}

static void any_part_opens_all(void **state)
{
    part parts[PARTS];
    (void)state;
    good_parts(parts);
    write_parts(parts);
    for (uint32_t open_number = 1; open_number <= PARTS; open_number++) {
        mica__archive *archive;
        char path[512];
        part_path(path, open_number, PARTS);
        if (mica__archive_open(path, &archive) != MICA_OK)
            fail_msg("%s", mica_status_message());
        sample_check(archive);
        assert_int_equal(archive->file_count, PARTS);
        assert_int_equal(archive->tensor_count, 2 * PARTS);
        assert_non_null(mica__archive_meta(archive, "general.first"));
        assert_null(mica__archive_meta(archive, "general.other"));
        for (uint32_t i = 0; i < PARTS; i++) {
            char name[32];
            uint8_t bytes[3];
            snprintf(name, sizeof name, "part %u", i);
            const uint32_t index = mica__archive_find(archive, name, strlen(name));
            assert_int_equal(archive->tensor[index].file, i);
            assert_int_equal(mica__archive_read(archive, &archive->tensor[index], 0, bytes, 3), MICA_OK);
            assert_int_equal(bytes[0], (uint8_t)(i * 50 + 32 * 7));
        }
        mica__archive_close(archive);
    }
    assert_int_equal(mica_host_allocations(), 0);
}

static void parts_that_do_not_belong_together(void **state)
{
    part parts[PARTS];
    char path[512];
    (void)state;
    for (uint32_t i = 0; i < PARTS; i++) {
        good_parts(parts);
        parts[i].no = (i + 1) % PARTS;
        write_parts(parts);
        expect_refused(1, MICA_ERR_MALFORMED_FILE, "split.no");
        good_parts(parts);
        parts[i].count = 4;
        write_parts(parts);
        expect_refused(2, MICA_ERR_MALFORMED_FILE, "split.count is 4, the name says 3");
        good_parts(parts);
        parts[i].tensors = 5;
        write_parts(parts);
        expect_refused(3, MICA_ERR_MALFORMED_FILE, "split.tensors.count is 5");
        good_parts(parts);
        parts[i].tensors = UINT32_MAX; /* -1 */
        write_parts(parts);
        expect_refused(3, MICA_ERR_MALFORMED_FILE, "split.tensors.count is -1");
        good_parts(parts);
        parts[i].silent = true;
        write_parts(parts);
        expect_refused(1, MICA_ERR_MALFORMED_FILE, "split.count is 0, the name says 3");
    }
    good_parts(parts);
    parts[2].name = "alpha";
    write_parts(parts);
    expect_refused(1, MICA_ERR_MALFORMED_FILE, "\"alpha\" is there twice");
    for (uint32_t i = 0; i < PARTS; i++) {
        char missing[64];
        good_parts(parts);
        write_parts(parts);
        part_path(path, i + 1, PARTS);
        unlink(path);
        snprintf(missing, sizeof missing, "model-%05u-of-00003.gguf\" is missing: part %u of 3", i + 1,
                 i + 1);
        expect_refused(i == 0 ? 2 : 1, MICA_ERR_NOT_FOUND, missing);
    }
}

static void a_part_under_another_name(void **state)
{
    part parts[PARTS];
    mica__archive *archive;
    char path[512];
    (void)state;
    good_parts(parts);
    snprintf(path, sizeof path, "%s/single.gguf", folder);
    write_part(path, &parts[0], 0);
    assert_int_equal(mica__archive_open(path, &archive), MICA_ERR_MALFORMED_FILE);
    assert_non_null(strstr(mica_status_message(), "-00001-of-00003.gguf"));
    parts[0].count = 1; /* the only part of one is a whole */
    parts[0].tensors = 2;
    write_part(path, &parts[0], 0);
    assert_int_equal(mica__archive_open(path, &archive), MICA_OK);
    mica__archive_close(archive);
    snprintf(path, sizeof path, "%s/odd-00003-of-00002.gguf", folder); /* no part: just a name */
    parts[0].silent = true;
    write_part(path, &parts[0], 0);
    assert_int_equal(mica__archive_open(path, &archive), MICA_OK);
    mica__archive_close(archive);
}

static mica_status open_all(void *context)
{
    mica__archive *archive;
    const mica_status status = mica__archive_open(context, &archive);
    mica__archive_close(archive);
    return status;
}

static void every_allocation_fails(void **state)
{
    part parts[PARTS];
    char path[512];
    (void)state;
    good_parts(parts);
    write_parts(parts);
    part_path(path, 2, PARTS);
    rig_fail_allocations(open_all, path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_part_opens_all),
        cmocka_unit_test(parts_that_do_not_belong_together),
        cmocka_unit_test(a_part_under_another_name),
        cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
