/* Devices: the list, opening, options, properties, the ledger with its budget, residency. */
#include "device_test.h"

static void list_names_what_there_is(void **state)
{
    (void)state;
    mica_device_entry entries[32], first;
    uint32_t count = 0, only = 0, cpu = 0, null = 0;
    must(mica_device_list(NULL, 0, &count));
    assert_in_range(count, 2, 32);
    must(mica_device_list(entries, 32, &only));
    assert_int_equal(only, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(entries[i].id[0] != '\0');
        assert_true((entries[i].reason[0] == '\0') == (entries[i].usable == 1));
        cpu += strcmp(entries[i].id, "cpu") == 0 && entries[i].usable && entries[i].name[0] != '\0';
        null += strncmp(entries[i].id, "null", 4) == 0 && entries[i].usable;
    }
    assert_int_equal(cpu, 1);
    assert_int_equal(null, 2); /* one with barriers, one with dependencies */
    must(mica_device_list(&first, 1, &count));
    assert_int_equal(count, only);
    assert_string_equal(first.id, entries[0].id);
    refused(mica_device_list(NULL, 3, &count), MICA_ERR_INVALID_ARGUMENT, "entries");
    refused(mica_device_list(entries, 3, NULL), MICA_ERR_INVALID_ARGUMENT, "out_count");
}

static void wrong_names_are_refused(void **state)
{
    (void)state;
    const char *wrong[] = {"",        "gpu", "cpux", "cpu:", "cpu:1", "cpu:-1", "cpu:99999999999999",
                           "cuda:0x", " cpu"};
    mica_device *device = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        device = (mica_device *)&device;
        assert_int_equal(mica_device_open(wrong[i], NULL, &device), MICA_ERR_DEVICE_NOT_FOUND);
        assert_null(device);
        assert_non_null(strstr(mica_status_message(), wrong[i]));
    }
    refused(mica_device_open("gpu", NULL, &device), MICA_ERR_DEVICE_NOT_FOUND, "cpu");
    refused(mica_device_open(NULL, NULL, &device), MICA_ERR_INVALID_ARGUMENT, "id");
    refused(mica_device_open("cpu", NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "out_device");
}

/* Each backend that cannot be used here is refused by name with the reason that the list shows, and the cpu works. */
static void missing_drivers_are_named(void **state)
{
    (void)state;
    mica_device_entry entries[32];
    mica_device *device = NULL;
    uint32_t count = 0;
    must(mica_device_list(entries, 32, &count));
    for (uint32_t i = 0; i < count && i < 32; i++) {
        if (entries[i].usable)
            continue;
        assert_true(entries[i].reason[0] != '\0');
        refused(mica_device_open(entries[i].id, NULL, &device), MICA_ERR_DEVICE_NOT_FOUND, entries[i].reason);
        assert_null(device);
    }
    device = open_device("cpu", 1);
    mica_device_release(device);
}

static void properties_follow_the_options(void **state)
{
    (void)state;
    const char *isas[] = {"portable", "avx2", "avx512"};
    for (uint32_t threads = 1; threads <= 3; threads++) {
        mica_device *device = open_device("cpu", threads);
        mica_device_properties p;
        must(mica_device_get_properties(device, &p));
        assert_string_equal(p.id, "cpu");
        assert_string_equal(p.backend, "cpu");
        assert_int_equal(p.threads, threads);
        assert_int_equal(p.unified_memory, 1);
        assert_int_equal(p.residency, 0); /* counted, not real */
        assert_true(p.name[0] != '\0' && p.driver[0] != '\0');
        assert_true(p.total_memory > 0 && p.max_buffer > 0 && p.buffer_alignment >= 16);
        mica_device_release(device);
    }
    for (size_t i = 0; i < 3; i++) {
        mica_device *device = NULL;
        mica_device_options options = {.size = sizeof options, .threads = 1};
        snprintf(options.isa, sizeof options.isa, "%s", isas[i]);
        mica_status status = mica_device_open("cpu", &options, &device);
        if (i == 0 || status == MICA_OK) {
            mica_device_properties p;
            must(status);
            must(mica_device_get_properties(device, &p));
            assert_non_null(strstr(p.driver, isas[i]));
        } else {
            refused(status, MICA_ERR_UNSUPPORTED, isas[i]);
        }
        mica_device_release(device);
    }
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    mica_device *device = NULL;
    mica_device_options options = {.size = sizeof options, .isa = "mmx"};
    assert_int_not_equal(mica_device_open("cpu", &options, &device), MICA_OK);
    assert_non_null(strstr(mica_status_message(), "mmx"));
    assert_null(device);
    memset(options.isa, 'a', sizeof options.isa);
    refused(mica_device_open("cpu", &options, &device), MICA_ERR_INVALID_ARGUMENT, "isa");
    options = (mica_device_options){.size = sizeof options, .threads = 1u << 30};
    assert_int_not_equal(mica_device_open("cpu", &options, &device), MICA_OK);
    assert_non_null(strstr(mica_status_message(), "threads"));
}

/* Of the struct that there is, its size and 0; a size that no version had is refused. */
static void sizes_of_options(void **state)
{
    (void)state;
    mica_device *device = NULL;
    mica_device_memory memory;
    mica_device_options options = {.size = offsetof(mica_device_options, threads), .budget_bytes = 12345};
    refused(mica_device_open("cpu", &options, &device), MICA_ERR_INVALID_ARGUMENT, "options.size");
    options.size = 0;
    must(mica_device_open("cpu", &options, &device));
    mica_device_release(device);
    options.size = sizeof options;
    must(mica_device_open("cpu", &options, &device));
    must(mica_device_get_memory(device, &memory));
    assert_int_equal(memory.budget_bytes, 12345);
    mica_device_release(device);
}

static void auto_opens_something(void **state)
{
    (void)state;
    mica_device *device = NULL;
    mica_device_properties p;
    must(mica_device_open("auto", NULL, &device));
    must(mica_device_get_properties(device, &p));
    assert_string_not_equal(p.backend, "null");
    mica_device_release(device);
}

static void ledger_counts(void **state)
{
    (void)state;
    const char *ids[] = {"cpu", "null"};
    static unsigned char foreign[256];
    for (int i = 0; i < 2; i++) {
        mica_device *device = open_device(ids[i], 1);
        mica_device_memory before, with, after;
        must(mica_device_get_memory(device, &before));
        mica_buffer *a = new_vector(device, MICA_DTYPE_F32, 1000),
                    *b = new_vector(device, MICA_DTYPE_U8, 333), *c = NULL;
        mica_buffer_desc desc = {.dtype = MICA_DTYPE_U8, .ndim = 1, .shape = {200}};
        mica_status imported = mica_buffer_import(device, foreign, sizeof foreign, &desc, NULL, NULL, &c);
        must(mica_device_get_memory(device, &with));
        assert_true(with.owned_bytes - before.owned_bytes >= 4333);
        assert_int_equal(with.buffer_count - before.buffer_count, imported == MICA_OK ? 3 : 2);
        assert_int_equal(with.mapped_bytes - before.mapped_bytes, imported == MICA_OK ? sizeof foreign : 0);
        assert_true(with.owned_peak_bytes >= with.owned_bytes && with.total_bytes > 0);
        mica_buffer_release(a);
        mica_buffer_release(b);
        mica_buffer_release(c);
        must(mica_device_get_memory(device, &after));
        assert_int_equal(after.owned_bytes, before.owned_bytes);
        assert_int_equal(after.mapped_bytes, before.mapped_bytes);
        assert_int_equal(after.buffer_count, before.buffer_count);
        assert_int_equal(after.owned_peak_bytes, with.owned_peak_bytes);
        mica_device_release(device);
    }
}

static void budget_is_hard(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_device_memory memory;
    mica_buffer *small = new_vector(device, MICA_DTYPE_U8, 4096), *large = NULL;
    uint64_t count = 8192;
    must(mica_device_get_memory(device, &memory));
    refused(mica_device_set_budget(device, memory.owned_bytes - 1), MICA_ERR_BUDGET, "bytes");
    must(mica_device_set_budget(device, memory.owned_bytes + 4096));
    refused(mica_buffer_alloc(device, MICA_DTYPE_U8, 1, &count, &large), MICA_ERR_BUDGET, "8192");
    assert_null(large);
    mica_buffer_release(small); /* now it fits */
    must(mica_buffer_alloc(device, MICA_DTYPE_U8, 1, &count, &large));
    mica_buffer_release(large);
    must(mica_device_set_budget(device, 0));
    count = 1 << 20;
    must(mica_buffer_alloc(device, MICA_DTYPE_U8, 1, &count, &large));
    mica_buffer_release(large);
    mica_device_release(device);

    mica_device_options options = {.size = sizeof options, .budget_bytes = 1000, .threads = 1};
    must(mica_device_open("cpu", &options, &device));
    refused(mica_buffer_alloc(device, MICA_DTYPE_U8, 1, &count, &large), MICA_ERR_BUDGET, "1000");
    mica_device_release(device);
}

static void handles_keep_the_device(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    assert_ptr_equal(mica_device_retain(device), device);
    assert_null(mica_device_retain(NULL));
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 8);
    mica_device_release(device);
    mica_device_release(device); /* only the buffer holds it now */
    int32_t numbers[8] = {5}, back[8];
    must(mica_buffer_write(buffer, 0, numbers, sizeof numbers));
    must(mica_buffer_read(buffer, 0, back, sizeof back));
    assert_memory_equal(numbers, back, sizeof back);
    must(mica_device_synchronize(mica_buffer_device(buffer)));
    mica_buffer_release(buffer);
    mica_device_release(NULL);
}

static void native_handle_of_the_cpu_is_null(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    void *handle = &device;
    must(mica_device_native(device, &handle));
    assert_null(handle);
    mica_device_release(device);
}

static void submit_fill(mica_device *device, mica_buffer *buffer)
{
    mica_encoder *encoder = NULL;
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_fill(encoder, 1, buffer));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
}

static void residency_is_flushed_once_per_submission(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_residency_stats start, stats;
    mica_buffer *held[20];
    must(mica_device_get_residency(device, &start));
    for (int i = 0; i < 20; i++)
        held[i] = new_vector(device, MICA_DTYPE_F32, 10);
    must(mica_device_get_residency(device, &stats));
    assert_int_equal(stats.allocations, start.allocations + 20);
    assert_int_equal(stats.commits, start.commits);
    assert_int_equal(stats.pending, 1);
    submit_fill(device, held[0]);
    must(mica_device_get_residency(device, &stats));
    assert_int_equal(stats.commits, start.commits + 1);
    assert_int_equal(stats.pending, 0);
    submit_fill(device, held[0]); /* nothing new: nothing published */
    must(mica_device_get_residency(device, &stats));
    assert_int_equal(stats.commits, start.commits + 1);

    uint64_t full = stats.allocations;
    must(mica_device_residency_remove(device, held[3]));
    must(mica_device_residency_remove(device, held[3])); /* twice is once */
    must(mica_device_get_residency(device, &stats));
    assert_int_equal(stats.allocations, full - 1);
    must(mica_device_residency_add(device, held[3]));
    must(mica_device_residency_add(device, held[3]));
    must(mica_device_get_residency(device, &stats));
    assert_int_equal(stats.allocations, full);
    must(mica_device_residency_remove(device, held[4]));
    for (int i = 0; i < 20; i++)
        mica_buffer_release(held[i]);
    must(mica_device_get_residency(device, &stats));
    assert_int_equal(stats.allocations, full - 20);
    mica_device_release(device);
}

static void null_arguments_are_named(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1), *other = open_device("cpu", 1);
    mica_buffer *buffer = new_vector(other, MICA_DTYPE_F32, 4);
    mica_device_properties properties;
    mica_device_memory memory;
    mica_residency_stats residency;
    void *handle;
    refused(mica_device_get_properties(NULL, &properties), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_get_properties(device, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    refused(mica_device_get_memory(NULL, &memory), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_get_memory(device, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    refused(mica_device_set_budget(NULL, 1), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_synchronize(NULL), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_native(NULL, &handle), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_native(device, NULL), MICA_ERR_INVALID_ARGUMENT, "out_handle");
    refused(mica_device_get_residency(NULL, &residency), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_get_residency(device, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    refused(mica_device_residency_add(NULL, buffer), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_residency_add(device, NULL), MICA_ERR_INVALID_ARGUMENT, "buffer");
    refused(mica_device_residency_add(device, buffer), MICA_ERR_INVALID_ARGUMENT, "another device");
    refused(mica_device_residency_remove(device, buffer), MICA_ERR_INVALID_ARGUMENT, "another device");
    mica_buffer_release(buffer);
    mica_device_release(other);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(list_names_what_there_is),
        test(wrong_names_are_refused),
        test(missing_drivers_are_named),
        test(properties_follow_the_options),
        test(wrong_options_are_refused),
        test(sizes_of_options),
        test(auto_opens_something),
        test(ledger_counts),
        test(budget_is_hard),
        test(handles_keep_the_device),
        test(native_handle_of_the_cpu_is_null),
        test(residency_is_flushed_once_per_submission),
        test(null_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
