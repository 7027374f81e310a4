/* The cpu's table around its team: copies, updates, refusals, times, faults, and memory that runs out. */
#include "base/alloc.h"
#include "cpu_rig.h"
#include "support/meter.h"
#include "support/table.h"

/* ---- faults ---- */

static void run_fault(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++)
        if (i == 17)
            mica__cpu_fault(args);
}

static void test_fault(void **state)
{
    mica__kernel kernel = {"fault", run_fault, NULL, NULL};
    rig r = open_rig(2);
    (void)state;
    for (uint32_t units = 17; units <= 18; units++) {
        mica__dispatch dispatch = {0};
        mica__encoding *encoding = begin(&r, 0);
        dispatch.kernel = &kernel;
        dispatch.groups[0] = units;
        dispatch.groups[1] = dispatch.groups[2] = 1;
        dispatch.op = MICA_OP_EMBEDDING;
        r.table->dispatch(encoding, &dispatch);
        const mica__completion done = wait_for(&r, NULL, submit(&r, NULL, end(&r, encoding)));
        assert_int_equal(done.status, MICA_OK);
        assert_int_equal(done.fault, units == 18 ? MICA_OP_EMBEDDING + 1 : 0);
    }
    close_rig(&r);
}

/* ---- copy, fill, update ---- */

static mica__memory *make_memory(rig *r, uint64_t bytes)
{
    mica__memory *memory;
    assert_int_equal(r->table->buffer_create(r->device, bytes, &memory), MICA_OK);
    assert_int_equal((uintptr_t)memory->native % 64, 0);
    return memory;
}

static void test_copy(void **state)
{
    static const uint64_t sizes[] = {1, 3, 4, 5, 127, 262144, 262145, 786437};
    rig r = open_rig(3);
    (void)state;
    for (uint32_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const uint64_t n = sizes[s];
        mica__memory *a = make_memory(&r, n + 20), *b = make_memory(&r, n + 20);
        unsigned char *bytes = malloc(n + 20), *back = malloc(n + 20);
        assert_true(bytes != NULL && back != NULL);
        memset(bytes, 0x5a, n + 20);
        assert_int_equal(r.table->upload(r.device, b, 0, bytes, n + 20), MICA_OK);
        for (uint64_t i = 0; i < n; i++)
            bytes[3 + i] = (unsigned char)(i % 251);
        assert_int_equal(r.table->upload(r.device, a, 0, bytes, n + 20), MICA_OK);
        const mica__binding from = {a, 3, n, MICA_ACCESS_READ}, to = {b, 7, n, MICA_ACCESS_WRITE};
        mica__encoding *encoding = begin(&r, 0);
        table_copy(r.table, encoding, from, to, NULL);
        assert_int_equal(wait_for(&r, NULL, submit(&r, NULL, end(&r, encoding))).status, MICA_OK);
        assert_int_equal(r.table->download(r.device, b, 0, back, n + 20), MICA_OK);
        for (uint64_t i = 0; i < n + 20; i++)
            assert_int_equal(back[i], i < 7 || i >= n + 7 ? 0x5a : (i - 7) % 251);
        assert_int_equal(r.table->download(r.device, b, 21, back, n), MICA_ERR_INVALID_ARGUMENT);
        assert_int_equal(r.table->upload(r.device, b, UINT64_MAX, back, n), MICA_ERR_INVALID_ARGUMENT);
        free(bytes);
        free(back);
        r.table->buffer_destroy(r.device, a);
        r.table->buffer_destroy(r.device, b);
    }
    close_rig(&r);
}

static void add_one(const mica_host_binding *bindings, uint32_t binding_count, const void *params,
                    uint32_t first, uint32_t last)
{
    (void)binding_count;
    (void)params;
    for (uint32_t i = first; i < last; i++)
        ((uint32_t *)bindings[1].data)[i] = ((uint32_t *)bindings[0].data)[i] + 1;
}

static void test_update_and_import(void **state)
{
    mica__program *program;
    mica__kernel *kernel;
    const mica__program_desc desc = {.name = "add_one", .host = add_one};
    rig r = open_rig(2);
    uint32_t outside[100];
    mica__memory *x = make_memory(&r, sizeof outside), *y = make_memory(&r, sizeof outside), *foreign;
    (void)state;
    assert_int_equal(r.table->buffer_import(r.device, outside, sizeof outside, &foreign), MICA_OK);
    assert_int_equal(r.table->program_create(r.device, &desc, &program), MICA_OK);
    assert_int_equal(r.table->kernel_get(r.device, program, "add_one", &kernel), MICA_OK);
    for (uint32_t i = 0; i < 100; i++)
        ((uint32_t *)x->native)[i] = 3 * i;
    const mica__binding bindings[2] = {{x, 0, sizeof outside, MICA_ACCESS_READ},
                                       {y, 0, sizeof outside, MICA_ACCESS_WRITE}};
    mica__dispatch dispatch = {0};
    dispatch.kernel = kernel;
    dispatch.groups[0] = 10;
    dispatch.groups[1] = 5;
    dispatch.groups[2] = 2;
    dispatch.bindings = bindings;
    dispatch.binding_count = 2;
    mica__encoding *encoding = begin(&r, MICA__ENCODE_REUSABLE);
    r.table->dispatch(encoding, &dispatch);
    mica__commands *commands = end(&r, encoding);
    wait_for(&r, NULL, submit(&r, NULL, commands));
    const mica__binding other = {foreign, 0, sizeof outside, MICA_ACCESS_WRITE},
                        past = {foreign, 1, sizeof outside, 0};
    assert_int_equal(r.table->commands_update(commands, 0, 1, &other), MICA_OK);
    wait_for(&r, NULL, submit(&r, NULL, commands));
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(((uint32_t *)y->native)[i], 3 * i + 1);
        assert_int_equal(outside[i], 3 * i + 1);
    }
    assert_int_equal(r.table->commands_update(commands, 1, 0, &other), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(r.table->commands_update(commands, 0, 2, &other), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(r.table->commands_update(commands, 0, 1, &past), MICA_ERR_INVALID_ARGUMENT);
    r.table->commands_destroy(r.device, commands);
    r.table->program_destroy(r.device, program);
    r.table->buffer_destroy(r.device, x);
    r.table->buffer_destroy(r.device, y);
    r.table->buffer_destroy(r.device, foreign);
    close_rig(&r);
}

/* ---- bad input ---- */

static void expect_refused(rig *r, mica__encoding *encoding, mica_status status, const char *word)
{
    mica__commands *commands = (mica__commands *)(void *)encoding;
    assert_int_equal(r->table->encoder_end(encoding, false, &commands), status);
    assert_null(commands);
    assert_non_null(strstr(mica_status_message(), word));
}

static void test_refusals(void **state)
{
    mica__kernel kernel = host_kernel("count", count_units);
    rig r = open_rig(1);
    _Atomic uint64_t counter = 0;
    mica__memory *memory = make_memory(&r, 64);
    mica__kernel *found;
    mica__device *device;
    const mica__backend_table *table;
    mica_device_options options = {0};
    (void)state;
    mica__encoding *encoding = begin(&r, 0);
    add_count(&r, encoding, &kernel, 0, &counter);
    add_count(&r, encoding, &kernel, 5, &counter); /* the first error stays */
    expect_refused(&r, encoding, MICA_ERR_INVALID_ARGUMENT, "groups");

    const mica__binding past = {memory, 60, 5, MICA_ACCESS_WRITE}, inside = {memory, 0, 4, MICA_ACCESS_READ};
    encoding = begin(&r, 0);
    table_copy(r.table, encoding, past, past, NULL);
    expect_refused(&r, encoding, MICA_ERR_INVALID_ARGUMENT, "binding 0");
    encoding = begin(&r, 0);
    table_copy(r.table, encoding, inside, past, NULL);
    expect_refused(&r, encoding, MICA_ERR_INVALID_ARGUMENT, "copy");

    assert_int_equal(r.table->kernel_get(r.device, NULL, "no_such", &found), MICA_ERR_KERNEL_NOT_FOUND);
    assert_non_null(strstr(mica_status_message(), "no_such"));
    assert_int_equal(r.table->kernel_get(r.device, NULL, "rms_norm", &found), MICA_OK);
    assert_non_null(found);
    r.table->buffer_destroy(r.device, memory);
    close_rig(&r);

    strcpy(options.isa, "sse9");
    assert_int_equal(mica__backend_cpu.open(0, &options, &device, &table), MICA_ERR_UNSUPPORTED);
    assert_non_null(strstr(mica_status_message(), "sse9"));
    assert_null(device);
    assert_int_equal(mica__backend_cpu.open(1, NULL, &device, &table), MICA_ERR_DEVICE_NOT_FOUND);
    options.isa[0] = '\0';
    options.threads = MICA__CPU_MAX_THREADS + 1;
    assert_int_equal(mica__backend_cpu.open(0, &options, &device, &table), MICA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(mica_status_message(), "threads"));
}

/* ---- times ---- */

static void test_times(void **state)
{
    mica__kernel kernel = host_kernel("count", count_units);
    mica__profile times;
    rig r = open_rig(2);
    _Atomic uint64_t counter = 0;
    (void)state;
    assert_int_equal(r.table->timestamps(r.device, true, NULL), MICA_OK);
    mica__encoding *encoding = begin(&r, 0);
    add_count(&r, encoding, &kernel, 50, &counter);
    r.label = "labelled";
    add_count(&r, encoding, &kernel, 1, &counter); /* same step: still one at a time */
    r.label = NULL;
    r.table->barrier(encoding);
    add_count(&r, encoding, &kernel, 9, &counter);
    const uint64_t value = submit(&r, NULL, end(&r, encoding));
    wait_for(&r, NULL, value);
    assert_int_equal(r.table->timestamps(r.device, false, &times), MICA_OK);
    assert_int_equal(times.entry_count, 3);
    assert_int_equal(times.bucket_count, 1);
    assert_int_equal(times.bucket[0].count, 3);
    const mica_profile_entry *entries = times.entry;
    for (uint32_t i = 0; i < 3; i++) {
        static const char *const labels[] = {"", "labelled", ""};
        assert_string_equal(entries[i].kernel, "count");
        assert_string_equal(entries[i].label, labels[i]);
        assert_int_equal(entries[i].op, MICA_OP_CUSTOM);
        assert_int_equal(entries[i].index, i);
        assert_int_equal(entries[i].submission, value);
        assert_true(entries[i].begin_ns <= entries[i].end_ns);
        assert_true(i == 0 || entries[i].begin_ns >= entries[i - 1].end_ns);
    }
    encoding = begin(&r, 0);
    add_count(&r, encoding, &kernel, 50, &counter); /* no longer timed */
    wait_for(&r, NULL, submit(&r, NULL, end(&r, encoding)));
    mica__free(times.entry);
    mica__free(times.bucket);
    assert_int_equal(r.table->timestamps(r.device, false, &times), MICA_OK);
    assert_int_equal(times.entry_count, 0);
    close_rig(&r);
}

static void test_empty_list(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        rig r = open_rig(threads);
        mica__encoding *encoding = begin(&r, 0);
        r.table->barrier(encoding);
        assert_int_equal(wait_for(&r, NULL, submit(&r, NULL, end(&r, encoding))).status, MICA_OK);
        mica__commands *commands;
        assert_int_equal(r.table->encoder_end(begin(&r, 0), true, &commands), MICA_OK);
        assert_null(commands);
        close_rig(&r);
    }
}

/* ---- memory runs out at every place ---- */

/* The first status that is not OK, whatever the place. */
static mica_status whole_life(void)
{
    mica__kernel kernel = {"mark", run_fault, NULL, NULL};
    mica_device_options options = {0};
    rig r;
    mica__encoding *encoding = NULL;
    mica__commands *commands = NULL;
    mica__queue *queue = NULL;
    mica__completion completion;
    uint64_t value = 0;
    options.threads = 2;
    mica_status status = mica__backend_cpu.open(0, &options, &r.device, &r.table);
    if (status != MICA_OK)
        return status;
    status = r.table->queue_create(r.device, &queue);
    if (status == MICA_OK)
        status = r.table->timestamps(r.device, true, NULL);
    if (status == MICA_OK)
        status = r.table->encoder_begin(r.device, 0, &encoding);
    if (status == MICA_OK) {
        for (uint32_t i = 0; i < 200; i++) {
            mica__dispatch dispatch = {0};
            dispatch.kernel = &kernel;
            dispatch.groups[0] = dispatch.groups[1] = dispatch.groups[2] = 1;
            dispatch.local_bytes = 10000;
            dispatch.label = "label";
            r.table->dispatch(encoding, &dispatch);
            r.table->barrier(encoding);
        }
        status = r.table->encoder_end(encoding, false, &commands);
    }
    if (status == MICA_OK)
        status = r.table->submit(r.device, queue, commands, &value);
    if (status == MICA_OK)
        status = r.table->wait(r.device, queue, value, MICA_WAIT_FOREVER, &completion);
    r.table->queue_destroy(r.device, queue);
    r.table->close(r.device);
    return status;
}

static void test_allocation_failure(void **state)
{
    test_meter meter = {0};
    uint64_t n = 0;
    (void)state;
    assert_int_equal(test_meter_set(&meter), MICA_OK);
    for (;; n++) {
        test_meter_allow(&meter, n);
        const mica_status status = whole_life();
        const bool enough = atomic_load(&meter.calls) <= n;
        assert_int_equal(status, enough ? MICA_OK : MICA_ERR_OUT_OF_MEMORY);
        assert_int_equal(mica_host_allocations(), 0);
        if (enough)
            break;
    }
    assert_true(n > 8);
    assert_int_equal(mica_set_allocator(NULL), MICA_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_update_and_import),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_empty_list),
        cmocka_unit_test(test_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
