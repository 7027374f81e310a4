/* test_cuda_backend.c - the CUDA backend's table over the stand-in: what it says of itself, memory, programs, queues, a lost device. */
#include "cuda_rig.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "support/random.h"

/* ---- what it says of itself ---- */

static void test_facts(void **state)
{
    char name[128], reason[128];
    mica__device_info info;
    (void)state;
    assert_int_equal(mica__backend_cuda.probe(reason, sizeof reason), FAKE_DEVICES);
    assert_string_equal(reason, "");
    must(mica__backend_cuda.describe(1, name, sizeof name));
    assert_string_equal(name, "stand-in 1");
    refused(mica__backend_cuda.describe(FAKE_DEVICES, name, sizeof name), MICA_ERR_DEVICE_NOT_FOUND,
            "cuda:2");
    rig r = rig_opened();
    r.table->info(r.device, &info);
    assert_string_equal(info.properties.id, "cuda:0");
    assert_string_equal(info.target, "MK_CUDA");
    assert_non_null(strstr(info.properties.driver, "12.8"));
    assert_int_equal(info.compute, 90);
    assert_int_equal(info.processors, 132);
    assert_int_equal(info.edges, 1);
    assert_int_equal(info.local_bytes, 232448);
    assert_non_null(strstr(info.identity, "sm_90"));
    assert_non_null(strstr(info.identity, "--fmad=false")); /* what compiled code depends on */
    assert_non_null(info.native);
    rig_closed(&r);
}

static void test_no_such_device(void **state)
{
    mica__device *device = NULL;
    const mica__backend_table *table = NULL;
    (void)state;
    fake_reset();
    refused(mica__backend_cuda.open(FAKE_DEVICES, NULL, &device, &table), MICA_ERR_DEVICE_NOT_FOUND,
            "cuda:2");
    assert_null(device);
    rig_check_clean();
}

/* ---- memory ---- */

static void test_transfers(void **state)
{
    static const uint64_t sizes[] = {1, 255, 4096, (4u << 20) - 1, 4u << 20, (4u << 20) + 1, (13u << 20) + 7};
    (void)state;
    rig r = rig_opened();
    test_random random = test_random_from(1);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const uint64_t size = sizes[s], offset = test_random_below(&random, 100);
        mica__memory *memory = NULL;
        unsigned char *sent = malloc(size), *back = malloc(size + 1);
        for (uint64_t i = 0; i < size; i++)
            sent[i] = (unsigned char)test_random_next(&random);
        back[size] = 0x5c;
        must(r.table->buffer_create(r.device, size + 200, &memory));
        must(r.table->buffer_fill(r.device, memory, 0x17));
        must(r.table->upload(r.device, memory, offset, sent, size));
        must(r.table->download(r.device, memory, offset, back, size));
        assert_memory_equal(sent, back, size);
        assert_int_equal(back[size], 0x5c);
        must(r.table->download(r.device, memory, offset + size, back, 1));
        assert_int_equal(back[0], 0x17);
        refused(r.table->upload(r.device, memory, 201, sent, size), MICA_ERR_INVALID_ARGUMENT, "offset");
        refused(r.table->download(r.device, memory, UINT64_MAX, back, 2), MICA_ERR_INVALID_ARGUMENT,
                "offset");
        r.table->buffer_destroy(r.device, memory);
        free(sent);
        free(back);
    }
    r.table->buffer_destroy(r.device, NULL);
    rig_closed(&r);
}

static void test_out_of_memory(void **state)
{
    mica__memory *memory = NULL;
    uint64_t free_bytes = 0, total = 0;
    (void)state;
    rig r = rig_opened();
    refused(r.table->buffer_create(r.device, FAKE_MEMORY + 1, &memory), MICA_ERR_OUT_OF_MEMORY,
            "OUT_OF_MEMORY");
    assert_null(memory);
    r.table->memory(r.device, &free_bytes, &total);
    assert_int_equal(total, FAKE_MEMORY);
    assert_in_range(free_bytes, 1, FAKE_MEMORY);
    memory = rig_memory(&r, NULL, 100); /* everything goes on */
    r.table->buffer_destroy(r.device, memory);
    rig_closed(&r);
}

/* ---- programs ---- */

static void test_programs(void **state)
{
    mica__program *program = NULL, *again = NULL;
    mica__kernel *kernel = NULL;
    void *binary = NULL;
    uint64_t bytes = 0;
    (void)state;
    rig r = rig_opened();
    mica__program_desc desc = {.name = "k|A=1",
                               .text = "#define A 1\n//nvrtc --fmad=true\n//arch a\nMK_KERNEL(k)"};
    must(r.table->program_create(r.device, &desc, &program));
    assert_non_null(strstr(fake_options(), "--gpu-architecture=sm_90a "));
    assert_non_null(strstr(fake_options(), "--fmad=false "));
    assert_non_null(strstr(fake_options(), "--std=c++17 --disable-warnings"));
    assert_non_null(strstr(fake_options(), "--fmad=true "));
    must(r.table->kernel_get(r.device, program, "k", &kernel));
    refused(r.table->kernel_get(r.device, program, "elsewhere", &kernel), MICA_ERR_KERNEL_NOT_FOUND,
            "elsewhere");
    must(r.table->program_binary(program, &binary, &bytes));
    assert_int_equal(bytes, strlen(desc.text) + 1);
    desc = (mica__program_desc){.name = "k", .binary = binary, .binary_bytes = bytes};
    must(r.table->program_create(r.device, &desc, &again));
    mica__free(binary);
    refused(r.table->program_binary(again, &binary, &bytes), MICA_ERR_UNSUPPORTED, "k was not compiled");
    r.table->program_destroy(r.device, again);
    r.table->program_destroy(r.device, program);
    r.table->program_destroy(r.device, NULL);
    rig_closed(&r);
}

static void test_refused_programs(void **state)
{
    mica__program *program = NULL;
    mica__kernel *kernel = NULL;
    (void)state;
    rig r = rig_opened();
    mica__program_desc desc = {.name = "bad", .text = "FAKE_SYNTAX", .portable = "fine", .portable_bytes = 4};
    refused(r.table->program_create(r.device, &desc, &program), MICA_ERR_KERNEL_COMPILATION,
            "no word of this language");
    assert_null(program);
    desc = (mica__program_desc){.name = "bad", .text = "FAKE_REFUSED"};
    refused(r.table->program_create(r.device, &desc, &program), MICA_ERR_KERNEL_COMPILATION,
            "refused as asked");
    desc = (mica__program_desc){.name = "nothing"};
    refused(r.table->program_create(r.device, &desc, &program), MICA_ERR_KERNEL_NOT_FOUND, "nothing");
    desc = (mica__program_desc){.name = "ptx", .portable = "MK_KERNEL(k)FAKE_REFUSED", .portable_bytes = 12};
    must(r.table->program_create(r.device, &desc, &program)); /* what stands behind it is not read */
    must(r.table->kernel_get(r.device, program, "k", &kernel));
    r.table->program_destroy(r.device, program);
    desc = (mica__program_desc){.name = "old", .binary = "FAKE_REFUSED", .binary_bytes = 12, .text = "k"};
    must(r.table->program_create(r.device, &desc,
                                 &program)); /* a binary that is not taken is compiled again */
    r.table->program_destroy(r.device, program);
    refused(r.table->kernel_get(r.device, NULL, "none", &kernel), MICA_ERR_KERNEL_NOT_FOUND, "none");
    rig_closed(&r);
}

/* A compiler of a newer major version than the driver makes nothing that the driver loads: the next name is tried, then what
 * was embedded. */
static void test_newer_compilers(void **state)
{
    const mica__program_desc text = {.name = "mine", .text = rig_text},
                             both = {.name = "mine",
                                     .text = rig_text,
                                     .portable = rig_text,
                                     .portable_bytes = sizeof rig_text - 1};
    mica__device *device = NULL;
    const mica__backend_table *table = NULL;
    mica__program *program = NULL;
    char found[256];
    (void)state;
    fake_reset();
    fake_newer_compilers(1);
    mica__backend_cuda.libraries(found, sizeof found);
    assert_non_null(strstr(found, "NVRTC: libnvrtc.so.12"));
    fake_newer_compilers(1);
    must(mica__backend_cuda.open(0, NULL, &device, &table));
    must(table->program_create(device, &text, &program));
    assert_int_equal(fake_get_counts().compiled, 1);
    table->program_destroy(device, program);
    table->close(device);
    fake_newer_compilers(99);
    must(mica__backend_cuda.open(0, NULL, &device, &table));
    refused(table->program_create(device, &text, &program), MICA_ERR_KERNEL_NOT_FOUND,
            "libnvrtc.so.13 is version 13.1, newer than the driver's CUDA 12.8");
    must(table->program_create(device, &both, &program));
    assert_int_equal(fake_get_counts().compiled, 1);
    fake_newer_compilers(0);
    table->program_destroy(device, program);
    table->close(device);
    rig_check_clean();
}

/* ---- queues ---- */

static void test_queues(void **state)
{
    mica__completion done;
    uint64_t value = 0, last = 0;
    mica__queue *queue = NULL;
    (void)state;
    rig r = rig_opened();
    mica__memory *memory = rig_memory(&r, NULL, 4);
    must(r.table->queue_create(r.device, &queue));
    mica__encoding *encoding = rig_begin(&r, MICA__ENCODE_REUSABLE);
    rig_add(&r, encoding, memory, memory, memory, NULL, 0);
    mica__commands *commands = rig_end(&r, encoding);
    for (uint32_t i = 0; i < 300; i++) { /* round the ring */
        must(r.table->submit(r.device, i % 3 == 0 ? queue : NULL, commands, &value));
        if (i % 3 == 0)
            assert_int_equal(value, i / 3 + 1);
    }
    must(r.table->wait(r.device, queue, 100, RIG_FOREVER, &done));
    must(r.table->wait(r.device, queue, 1, 0, &done)); /* however old */
    refused(r.table->wait(r.device, queue, 101, 0, &done), MICA_ERR_INVALID_ARGUMENT, "value: 101");
    must(r.table->queue_order(r.device, NULL, queue, 100));
    fake_slow(50000000); /* longer than a busy machine keeps this thread from looking */
    must(r.table->submit(r.device, queue, commands, &last));
    const uint64_t start = mica__clock_ns();
    assert_int_equal(r.table->wait(r.device, queue, last, 0, &done), MICA_ERR_TIMEOUT);
    assert_int_equal(r.table->wait(r.device, queue, last, 100000, &done), MICA_ERR_TIMEOUT);
    must(r.table->queue_order(r.device, NULL, queue, last));
    must(r.table->queue_order(r.device, queue, queue, last));
    must(r.table->wait(r.device, queue, last, RIG_FOREVER, &done));
    assert_true(mica__clock_ns() - start >= 40000000);
    fake_slow(0);
    r.table->commands_destroy(r.device, commands);
    r.table->queue_destroy(r.device, queue);
    r.table->queue_destroy(r.device, NULL);
    r.table->buffer_destroy(r.device, memory);
    rig_closed(&r);
}

static void test_times(void **state)
{
    mica__profile times = {.entry = NULL};
    (void)state;
    rig r = rig_opened();
    mica__memory *memory = rig_memory(&r, NULL, 4);
    const mica__binding whole = rig_whole(memory, 3);
    must(r.table->timestamps(r.device, true, NULL));
    mica__encoding *encoding = rig_begin(&r, MICA__ENCODE_REUSABLE);
    rig_add(&r, encoding, memory, memory, memory, NULL, 0);
    table_copy(r.table, encoding, whole, whole, "layer 0");
    mica__commands *commands = rig_end(&r, encoding);
    rig_run(&r, commands);
    rig_run(&r, commands);
    must(r.table->timestamps(r.device, false, &times));
    const mica_profile_entry *entries = times.entry;
    assert_int_equal(times.entry_count, 4);
    assert_int_equal(times.bucket_count, 2);
    assert_string_equal(entries[0].kernel, "rig/fake_add");
    assert_string_equal(entries[0].label, "");
    assert_int_equal(entries[0].op, MICA_OP_REGION);
    assert_string_equal(entries[1].kernel, "copy_bytes");
    assert_string_equal(entries[1].label, "layer 0");
    assert_int_equal(entries[3].index, 1);
    assert_int_equal(entries[3].submission, 2);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(entries[i].end_ns >= entries[i].begin_ns &&
                    (i == 0 || entries[i].begin_ns >= entries[i - 1].begin_ns));
    assert_int_equal(fake_get_counts().graphs, 0); /* timed: one at a time */
    rig_run(&r, commands);
    assert_int_equal(fake_get_counts().graphs, 1);
    r.table->commands_destroy(r.device, commands);
    r.table->buffer_destroy(r.device, memory);
    mica__free(times.entry);
    mica__free(times.bucket);
    rig_closed(&r);
}

/* ---- a lost device ---- */

static void test_lost(void **state)
{
    mica__completion done;
    mica__memory *other = NULL;
    mica__encoding *encoding = NULL;
    mica__queue *queue = NULL;
    uint64_t value = 0;
    rig second;
    (void)state;
    rig r = rig_opened();
    must(rig_open_index(&second, 1));
    mica__memory *memory = rig_memory(&r, NULL, 4);
    encoding = rig_begin(&r, MICA__ENCODE_REUSABLE);
    rig_add(&r, encoding, memory, memory, memory, NULL, 0);
    mica__commands *commands = rig_end(&r, encoding);
    fake_slow(1000000);
    must(r.table->submit(r.device, NULL, commands, &value));
    fake_lose(0);
    refused(r.table->wait(r.device, NULL, value, RIG_FOREVER, &done), MICA_ERR_DEVICE_LOST, "cuda:0");
    refused(r.table->submit(r.device, NULL, commands, &value), MICA_ERR_DEVICE_LOST, "lost");
    refused(r.table->buffer_create(r.device, 4, &other), MICA_ERR_DEVICE_LOST, "lost");
    refused(r.table->upload(r.device, memory, 0, &value, 4), MICA_ERR_DEVICE_LOST, "lost");
    refused(r.table->encoder_begin(r.device, 0, &encoding), MICA_ERR_DEVICE_LOST, "lost");
    refused(r.table->queue_create(r.device, &queue), MICA_ERR_DEVICE_LOST, "lost");
    fake_slow(0);
    mica__memory *fine = rig_memory(&second, NULL, 4); /* the other one works */
    encoding = rig_begin(&second, 0);
    rig_add(&second, encoding, fine, fine, fine, NULL, 0);
    rig_run(&second, rig_end(&second, encoding));
    second.table->buffer_destroy(second.device, fine);
    rig_close(&second);
    r.table->commands_destroy(r.device, commands);
    r.table->buffer_destroy(r.device, memory);
    rig_closed(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),           cmocka_unit_test(test_no_such_device),
        cmocka_unit_test(test_transfers),       cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_programs),        cmocka_unit_test(test_refused_programs),
        cmocka_unit_test(test_newer_compilers), cmocka_unit_test(test_queues),
        cmocka_unit_test(test_times),           cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests_name("the CUDA backend over a stand-in", tests, NULL, NULL);
}
