/* test_folder.c: folders of safetensors and GGUF files, opened by their path as a user would. */
#define _DEFAULT_SOURCE
#include "format_rig.h"

#include <sys/stat.h>
#include <unistd.h>

#include "support/folder.h"

#define INDEX "model.safetensors.index.json"

static char folder[256];

static void put_text(const char *name, const char *text)
{
    rig_file(folder, name, text, strlen(text));
}

/* A safetensors file with one u8 tensor of each given name, of one byte. */
static void put_model(const char *file, const char *const *names, int count)
{
    rig_bytes header = {0}, b = {0};
    for (int i = 0; i < count; i++) {
        char entry[128];
        snprintf(entry, sizeof entry, "%c\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                 i == 0 ? '{' : ',', names[i], i, i + 1);
        rig_text(&header, entry);
    }
    rig_text(&header, "}");
    rig_number(&b, header.size, 8);
    rig_put(&b, header.data, header.size);
    rig_data(&b, (size_t)count);
    rig_file(folder, file, b.data, b.size);
    rig_free(&header);
    rig_free(&b);
}

static const char *const first_names[] = {"a", "b"}, *const second_names[] = {"c"};

static int enter(void **state)
{
    (void)state;
    return test_folder_make(folder, sizeof folder, "folder");
}

static int leave(void **state)
{
    (void)state;
    return test_folder_remove(folder);
}

static mica__archive *open_ok(void)
{
    mica__archive *archive = NULL;
    if (mica__archive_open(folder, &archive) != MICA_OK)
        fail_msg("%s", mica_status_message());
    rig_check(archive);
    return archive;
}

static void refuse(mica_status code, const char *part)
{
    mica__archive *archive = NULL;
    const mica_status status = mica__archive_open(folder, &archive);
    if (status != code || strstr(mica_status_message(), part) == NULL)
        fail_msg("expected %s with \"%s\", got %s: %s", mica_status_name(code), part,
                 mica_status_name(status), mica_status_message());
    assert_null(archive);
    assert_int_equal(mica_host_bytes(), 0);
}

static mica_status play_open(void *context)
{
    mica__archive *archive = NULL;
    const mica_status status = mica__archive_open(folder, &archive);
    (void)context;
    mica__archive_close(archive);
    return status;
}

static void opens_one_file(void **state)
{
    mica__archive *archive;
    (void)state;
    put_model("weights.safetensors", first_names, 2);
    put_model(".hidden.safetensors", second_names, 1);
    archive = open_ok();
    assert_int_equal(archive->format, MICA_FORMAT_SAFETENSORS);
    assert_int_equal(archive->visible_count, 2);
    assert_null(archive->config);
    mica__archive_close(archive);
    rig_fail_allocations(play_open, NULL);
    put_text("config.json", "{\"model_type\":\"llama\",\"limit\":[0.0, Infinity, -Infinity, NaN]}");
    archive = open_ok();
    assert_int_equal(archive->format, MICA_FORMAT_SAFETENSORS);
    assert_int_equal(archive->config_length, strlen(archive->config));
    assert_non_null(strstr(archive->config, "-Infinity"));
    mica__archive_close(archive);
    /* A second one: which? Unless it is the one with the usual name. */
    put_model("other.safetensors", second_names, 1);
    refuse(MICA_ERR_UNSUPPORTED, "2 model files");
    put_model("model.safetensors", second_names, 1);
    archive = open_ok();
    assert_int_equal(archive->visible_count, 1);
    mica__archive_close(archive);
    put_text("config.json", "{\"model_type\":");
    refuse(MICA_ERR_MALFORMED_FILE, "config.json");
}

static void opens_shards(void **state)
{
    mica__archive *archive;
    (void)state;
    put_model("model-00001-of-00002.safetensors", first_names, 2);
    put_model("model-00002-of-00002.safetensors", second_names, 1);
    put_text(INDEX,
             "{\"metadata\":{\"total_size\":3},\"weight_map\":{\"c\":\"model-00002-of-00002.safetensors\","
             "\"a\":\"model-00001-of-00002.safetensors\",\"b\":\"model-00001-of-00002.safetensors\"}}");
    archive = open_ok();
    assert_int_equal(archive->file_count, 2);
    assert_int_equal(archive->visible_count, 3);
    assert_int_equal(rig_tensor(archive, "c")->file, 1);
    assert_int_equal(rig_tensor(archive, "b")->file, 0);
    mica__archive_close(archive);
    rig_fail_allocations(play_open, NULL);
    /* A tensor that the index leaves out is there all the same. */
    put_text(INDEX, "{\"weight_map\":{\"c\":\"model-00002-of-00002.safetensors\","
                    "\"a\":\"model-00001-of-00002.safetensors\"}}");
    archive = open_ok();
    assert_int_equal(archive->visible_count, 3);
    mica__archive_close(archive);
}

static void refuses_indexes(void **state)
{
    static const struct {
        const char *text;
        mica_status code;
        const char *part;
    } cases[] = {
        {"", MICA_ERR_MALFORMED_FILE, INDEX},
        {"{", MICA_ERR_MALFORMED_FILE, INDEX},
        {"{}", MICA_ERR_MALFORMED_FILE, "weight_map is missing"},
        {"{\"weight_map\":{}}", MICA_ERR_MALFORMED_FILE, "weight_map is empty"},
        {"{\"weight_map\":[]}", MICA_ERR_MALFORMED_FILE, "weight_map is"},
        {"{\"weight_map\":{\"a\":1}}", MICA_ERR_MALFORMED_FILE, "mapped to"},
        {"{\"weight_map\":{\"a\":\"/etc/x.safetensors\"}}", MICA_ERR_MALFORMED_FILE, "plain name"},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", MICA_ERR_MALFORMED_FILE, "plain name"},
        {"{\"weight_map\":{\"a\":\"y\\\\x.safetensors\"}}", MICA_ERR_MALFORMED_FILE, "plain name"},
        {"{\"weight_map\":{\"a\":\"c:x.safetensors\"}}", MICA_ERR_MALFORMED_FILE, "plain name"},
        {"{\"weight_map\":{\"a\":\"..safetensors\"}}", MICA_ERR_MALFORMED_FILE, "plain name"},
        {"{\"weight_map\":{\"a\":\"one\\u0000.safetensors\"}}", MICA_ERR_MALFORMED_FILE, "plain name"},
        {"{\"weight_map\":{\"a\":\"one.bin\"}}", MICA_ERR_MALFORMED_FILE, "plain name"},
        {"{\"weight_map\":{\"a\":\"\"}}", MICA_ERR_MALFORMED_FILE, "plain name"},
        {"{\"weight_map\":{\"a\":\"nothing.safetensors\"}}", MICA_ERR_NOT_FOUND, "nothing.safetensors"},
        {"{\"weight_map\":{\"x\":\"one.safetensors\"}}", MICA_ERR_MALFORMED_FILE, "nowhere"},
        {"{\"weight_map\":{\"c\":\"one.safetensors\",\"a\":\"two.safetensors\"}}", MICA_ERR_MALFORMED_FILE,
         "but in two.safetensors"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"a\":\"two.safetensors\"}}", MICA_ERR_MALFORMED_FILE,
         INDEX},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"same.safetensors\"}}", MICA_ERR_MALFORMED_FILE,
         "twice"},
    };
    (void)state;
    put_model("one.safetensors", first_names, 2);
    put_model("same.safetensors", first_names, 2);
    put_model("two.safetensors", second_names, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_text(INDEX, cases[i].text);
        refuse(cases[i].code, cases[i].part);
    }
}

/* The smallest GGUF: no metadata, no tensors. */
static void put_gguf(const char *name)
{
    rig_bytes b = {0};
    rig_text(&b, "GGUF");
    rig_number(&b, 3, 4);
    rig_number(&b, 0, 8);
    rig_number(&b, 0, 8);
    rig_file(folder, name, b.data, b.size);
    rig_free(&b);
}

static void opens_gguf(void **state)
{
    mica__archive *archive;
    (void)state;
    put_gguf("small.gguf");
    archive = open_ok();
    assert_int_equal(archive->format, MICA_FORMAT_GGUF);
    mica__archive_close(archive);
    put_gguf("mmproj.gguf");
    refuse(MICA_ERR_UNSUPPORTED, "2 model files");
    /* Safetensors go before GGUF. */
    put_model("model.safetensors", first_names, 2);
    archive = open_ok();
    assert_int_equal(archive->format, MICA_FORMAT_SAFETENSORS);
    mica__archive_close(archive);
}

/* Of a split file the first part stands for all, and is what the reader is given. */
static void finds_first_part(void **state)
{
    (void)state;
    put_gguf("big-00002-of-00003.gguf");
    put_gguf("big-00003-of-00003.gguf");
    refuse(MICA_ERR_UNSUPPORTED, "no *.safetensors and no *.gguf");
    put_gguf("big-00001-of-00003.gguf");
    {
        mica__archive *archive = NULL;
        const mica_status status = mica__archive_open(folder, &archive);
        /* These parts do not say that they are parts, which is the GGUF reader's to judge. */
        assert_true(status == MICA_OK || strstr(mica_status_message(), "big-0000") != NULL);
        mica__archive_close(archive);
    }
}

static void refuses_folders(void **state)
{
    char path[300];
    (void)state;
    refuse(MICA_ERR_UNSUPPORTED, "no *.safetensors");
    put_text("readme.txt", "nothing here");
    refuse(MICA_ERR_UNSUPPORTED, "no *.safetensors");
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    refuse(MICA_ERR_IO, "model.safetensors");
    rmdir(path);
    put_text("model.safetensors", "");
    refuse(MICA_ERR_MALFORMED_FILE, "too few");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opens_one_file, enter, leave),
        cmocka_unit_test_setup_teardown(opens_shards, enter, leave),
        cmocka_unit_test_setup_teardown(refuses_indexes, enter, leave),
        cmocka_unit_test_setup_teardown(opens_gguf, enter, leave),
        cmocka_unit_test_setup_teardown(finds_first_part, enter, leave),
        cmocka_unit_test_setup_teardown(refuses_folders, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
