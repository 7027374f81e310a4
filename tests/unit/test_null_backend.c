/* The null backend through its own table: what it writes down, what it counts, what it fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "backend/null/null.h"
#include "backend/planning.h"
#include "base/clock.h"
#include "mica/host.h"
#include "support/table.h"

typedef struct rig {
    mica__device *device;
    const mica__backend_table *table;
} rig;

static rig open_rig(uint32_t index)
{
    rig r;
    assert_int_equal(mica__backend_null.open(index, NULL, &r.device, &r.table), MICA_OK);
    return r;
}

static void close_rig(rig *r)
{
    mica__null_counts counts;
    mica__null_get_counts(r->device, &counts);
    assert_int_equal(counts.buffers_live, 0);
    r->table->close(r->device);
    assert_int_equal(mica_host_allocations(), 0);
}

static mica__kernel *kernel_named(rig *r, const char *name)
{
    mica__kernel *kernel;
    assert_int_equal(r->table->kernel_get(r->device, NULL, name, &kernel), MICA_OK);
    return kernel;
}

static void add(rig *r, mica__encoding *encoding, mica__kernel *kernel, uint16_t op,
                const uint32_t *dependencies, uint32_t dependency_count)
{
    mica__dispatch dispatch = {0};
    dispatch.kernel = kernel;
    dispatch.groups[0] = dispatch.groups[1] = dispatch.groups[2] = 1;
    dispatch.op = op;
    dispatch.dependencies = dependencies;
    dispatch.dependency_count = dependency_count;
    dispatch.label = op == MICA_OP_ARGMAX ? "mine" : NULL;
    r->table->dispatch(encoding, &dispatch);
}

static mica__encoding *begin(rig *r, uint32_t flags)
{
    mica__encoding *encoding;
    assert_int_equal(r->table->encoder_begin(r->device, flags, &encoding), MICA_OK);
    return encoding;
}

static mica__commands *end(rig *r, mica__encoding *encoding)
{
    mica__commands *commands;
    assert_int_equal(r->table->encoder_end(encoding, false, &commands), MICA_OK);
    return commands;
}

static mica__commands *one_dispatch(rig *r, uint32_t flags)
{
    mica__encoding *encoding = begin(r, flags);
    add(r, encoding, kernel_named(r, "softmax"), MICA_OP_SOFTMAX, NULL, 0);
    return end(r, encoding);
}

/* ---- rows ---- */

static void test_rows_serve_every_op(void **state)
{
    uint32_t count;
    const mica__kernel_row *rows = mica__backend_null.kernel_rows(&count);
    mica__plan whole = {0}, *plan = &whole;
    mica__memory memory = {NULL, 100};
    mica__operand operands[MICA__MAX_OPERANDS];
    uint64_t params = 0x1122334455667788u;
    rig r = open_rig(0);
    (void)state;
    assert_int_equal(count, MICA_OP_COUNT - 2); /* all but none and custom */
    for (uint32_t i = 0; i < count; i++) {
        memset(operands, 0, sizeof operands);
        const uint32_t used = 1 + i % MICA__MAX_OPERANDS;
        for (uint32_t slot = 0; slot < used; slot++) {
            operands[slot].memory = slot % 3 == 1 ? NULL : &memory;
            operands[slot].dtype = slot % 3 == 1 ? MICA_DTYPE_NONE : MICA_DTYPE_F32;
            operands[slot].access = (uint8_t)(1 + slot % 3);
        }
        const mica__record record = {.op = rows[i].op,
                                     .operand_count = (uint16_t)used,
                                     .params_size = sizeof params,
                                     .operand = operands,
                                     .params = &params};
        mica__device_info info;
        r.table->info(r.device, &info);
        assert_int_equal(rows[i].op, i + 2);
        assert_int_equal(mica__planning_begin(plan, &record), MICA_OK);
        assert_int_equal(rows[i].plan(&record, &info, plan), MICA_OK);
        assert_int_equal(plan->dispatch_count, 1);
        assert_int_equal(plan->scratch_bytes, 0);
        const mica__plan_dispatch *dispatch = &plan->dispatch[0];
        kernel_named(&r, dispatch->kernel);
        assert_int_equal(dispatch->params_size, sizeof params);
        assert_memory_equal(plan->params + dispatch->params_offset, &params, sizeof params);
        uint32_t bound = 0;
        for (uint32_t slot = 0; slot < used; slot++) {
            if (operands[slot].memory == NULL)
                continue;
            assert_int_equal(plan->binding[bound].source, slot);
            assert_int_equal(plan->binding[bound].access, operands[slot].access);
            bound++;
        }
        assert_int_equal(dispatch->binding_count, bound);
    }
    mica__planning_end(plan);
    close_rig(&r);
}

/* ---- what is written down ---- */

static void test_log(void **state)
{
    const uint32_t edges[] = {0, 1};
    mica__null_log log;
    mica__null_counts counts;
    uint64_t value;
    mica__completion completion;
    mica__memory *memory;
    rig r = open_rig(1);
    (void)state;
    mica__null_get_log(r.device, &log);
    assert_int_equal(log.entry_count, 0);
    assert_int_equal(r.table->buffer_create(r.device, 64, &memory), MICA_OK);
    const mica__binding low = {memory, 0, 32, MICA_ACCESS_READ}, high = {memory, 32, 32, MICA_ACCESS_WRITE};
    mica__encoding *encoding = begin(&r, 0);
    r.table->barrier(encoding); /* nothing before it: does not count */
    add(&r, encoding, kernel_named(&r, "softmax"), MICA_OP_SOFTMAX, NULL, 0);
    table_copy(r.table, encoding, low, high, "labelled");
    r.table->barrier(encoding);
    r.table->barrier(encoding);
    add(&r, encoding, kernel_named(&r, "argmax"), MICA_OP_ARGMAX, edges, 2);
    table_copy(r.table, encoding, high, low, NULL);
    assert_int_equal(r.table->submit(r.device, NULL, end(&r, encoding), &value), MICA_OK);
    assert_int_equal(r.table->wait(r.device, NULL, value, 0, &completion), MICA_OK);
    assert_int_equal(completion.status, MICA_OK);

    mica__null_get_log(r.device, &log);
    assert_int_equal(log.entry_count, 4);
    assert_int_equal(log.barrier_count, 1);
    static const struct {
        const char *kernel, *label;
        uint32_t group, dependencies;
    } expected[] = {{"softmax", "", 0, 0},
                    {"copy_bytes", "labelled", 0, 0},
                    {"argmax", "mine", 1, 2},
                    {"copy_bytes", "", 1, 0}};
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(log.entry[i].kernel, expected[i].kernel);
        assert_string_equal(log.entry[i].label, expected[i].label);
        assert_int_equal(log.entry[i].group, expected[i].group);
        assert_int_equal(log.entry[i].dependency_count, expected[i].dependencies);
    }
    assert_int_equal(log.dependency[log.entry[2].first_dependency], 0);
    assert_int_equal(log.dependency[log.entry[2].first_dependency + 1], 1);
    mica__null_get_counts(r.device, &counts);
    assert_int_equal(counts.dispatches, 2);
    assert_int_equal(counts.copies, 2);
    assert_int_equal(counts.barriers, 1);
    assert_int_equal(counts.submissions, 1);
    r.table->buffer_destroy(r.device, memory);
    close_rig(&r);
}

static void test_devices_differ(void **state)
{
    mica__device_info info;
    mica__device *device;
    const mica__backend_table *table;
    char reason[64];
    (void)state;
    assert_int_equal(mica__backend_null.probe(reason, sizeof reason), 2);
    for (uint32_t i = 0; i < 2; i++) {
        rig r = open_rig(i);
        r.table->info(r.device, &info);
        assert_int_equal(info.edges, i);
        assert_string_equal(info.properties.id, i == 0 ? "null:0" : "null:1");
        close_rig(&r);
    }
    assert_int_equal(mica__backend_null.open(2, NULL, &device, &table), MICA_ERR_DEVICE_NOT_FOUND);
    assert_null(device);
    assert_non_null(strstr(mica_status_message(), "null:2"));
}

static void test_memory(void **state)
{
    unsigned char in[48], out[48];
    mica__memory *memory, *foreign;
    void *mapped;
    rig r = open_rig(0);
    (void)state;
    for (uint32_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(200 - i);
    assert_int_equal(r.table->buffer_create(r.device, 100, &memory), MICA_OK);
    assert_int_equal(r.table->upload(r.device, memory, 52, in, 48), MICA_OK);
    assert_int_equal(r.table->download(r.device, memory, 52, out, 48), MICA_OK);
    assert_memory_equal(in, out, 48);
    assert_int_equal(r.table->buffer_map(r.device, memory, &mapped), MICA_OK);
    assert_int_equal(((unsigned char *)mapped)[51], 0); /* starts zeroed */
    assert_memory_equal((unsigned char *)mapped + 52, in, 48);
    assert_int_equal(r.table->upload(r.device, memory, 53, in, 48), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(r.table->download(r.device, memory, UINT64_MAX - 3, out, 48), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(r.table->buffer_create(r.device, UINT64_MAX, &foreign), MICA_ERR_OUT_OF_MEMORY);
    assert_null(foreign);
    assert_int_equal(r.table->buffer_import(r.device, in, sizeof in, &foreign), MICA_OK);
    assert_ptr_equal(foreign->native, in);
    r.table->buffer_destroy(r.device, foreign);
    r.table->buffer_destroy(r.device, memory);
    close_rig(&r);
}

/* ---- bad encodings ---- */

static void test_refusals(void **state)
{
    const uint32_t forward[] = {1};
    mica__memory *memory;
    mica__commands *commands;
    mica__kernel *kernel;
    rig r = open_rig(1);
    (void)state;
    assert_int_equal(r.table->buffer_create(r.device, 16, &memory), MICA_OK);
    const mica__binding past = {memory, 1, 16, MICA_ACCESS_WRITE}, good = {memory, 0, 16, MICA_ACCESS_READ};

    mica__encoding *encoding = begin(&r, 0);
    add(&r, encoding, kernel_named(&r, "softmax"), MICA_OP_SOFTMAX, NULL, 0);
    add(&r, encoding, kernel_named(&r, "softmax"), MICA_OP_SOFTMAX, forward, 1); /* waits for itself */
    assert_int_equal(r.table->encoder_end(encoding, false, &commands), MICA_ERR_INTERNAL);
    assert_null(commands);
    encoding = begin(&r, 0);
    table_copy(r.table, encoding, past, good, NULL);
    table_copy(r.table, encoding, good, good, NULL);
    assert_int_equal(r.table->encoder_end(encoding, false, &commands), MICA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(mica_status_message(), "binding 0"));
    encoding = begin(&r, 0);
    table_copy(r.table, encoding, past, good, NULL);
    assert_int_equal(r.table->encoder_end(encoding, true, &commands),
                     MICA_OK); /* dropped: nothing to report */
    assert_null(commands);

    encoding = begin(&r, MICA__ENCODE_REUSABLE);
    table_copy(r.table, encoding, good, good, NULL);
    commands = end(&r, encoding);
    assert_int_equal(r.table->commands_update(commands, 0, 1, &good), MICA_OK);
    assert_int_equal(r.table->commands_update(commands, 0, 2, &good), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(r.table->commands_update(commands, 1, 0, &good), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(r.table->commands_update(commands, 0, 0, &past), MICA_ERR_INVALID_ARGUMENT);
    r.table->commands_destroy(r.device, commands);
    assert_int_equal(r.table->kernel_get(r.device, NULL, "custom", &kernel), MICA_ERR_KERNEL_NOT_FOUND);
    assert_null(kernel);
    r.table->buffer_destroy(r.device, memory);
    close_rig(&r);
}

/* ---- faults ---- */

static void test_fail_alloc_and_compile(void **state)
{
    const mica_null_faults faults = {.fail_alloc = 2, .fail_compile = 2};
    const mica__program_desc desc = {.name = "custom", .text = "text"};
    mica__memory *memory[3];
    mica__program *program[3];
    mica__kernel *kernel;
    rig r = open_rig(0);
    (void)state;
    assert_int_equal(mica__null_inject(r.device, &faults), MICA_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(r.table->buffer_create(r.device, 8, &memory[i]),
                         i == 1 ? MICA_ERR_OUT_OF_MEMORY : MICA_OK);
        assert_int_equal(memory[i] == NULL, i == 1);
        assert_int_equal(r.table->program_create(r.device, &desc, &program[i]),
                         i == 1 ? MICA_ERR_KERNEL_COMPILATION : MICA_OK);
        assert_int_equal(program[i] == NULL, i == 1);
    }
    assert_int_equal(r.table->kernel_get(r.device, program[0], "custom", &kernel), MICA_OK);
    for (uint32_t i = 0; i < 3; i++) {
        r.table->buffer_destroy(r.device, memory[i]);
        r.table->program_destroy(r.device, program[i]);
    }
    close_rig(&r);
}

static void test_fail_submit_loses_the_device(void **state)
{
    const mica_null_faults faults = {.fail_submit = 2};
    mica__completion completion;
    mica__memory *memory;
    mica__encoding *encoding;
    uint64_t first, value;
    rig r = open_rig(0);
    (void)state;
    mica__commands *reusable = one_dispatch(&r, MICA__ENCODE_REUSABLE);
    mica__commands *late = one_dispatch(&r, 0);
    assert_int_equal(mica__null_inject(r.device, &faults), MICA_OK);
    assert_int_equal(r.table->submit(r.device, NULL, reusable, &first), MICA_OK);
    assert_int_equal(r.table->submit(r.device, NULL, reusable, &value), MICA_ERR_DEVICE_LOST);
    assert_int_equal(value, 0);
    assert_int_equal(r.table->submit(r.device, NULL, late, &value),
                     MICA_ERR_DEVICE_LOST); /* consumed all the same */
    assert_int_equal(r.table->wait(r.device, NULL, first, 0, &completion), MICA_ERR_DEVICE_LOST);
    assert_int_equal(r.table->buffer_create(r.device, 8, &memory), MICA_ERR_DEVICE_LOST);
    assert_int_equal(r.table->encoder_begin(r.device, 0, &encoding), MICA_ERR_DEVICE_LOST);
    r.table->commands_destroy(r.device, reusable);
    close_rig(&r);
}

static void test_fail_wait(void **state)
{
    const mica_null_faults faults = {.fail_wait = 2};
    mica__completion completion;
    uint64_t value[3];
    rig r = open_rig(0);
    (void)state;
    assert_int_equal(mica__null_inject(r.device, &faults), MICA_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(r.table->submit(r.device, NULL, one_dispatch(&r, 0), &value[i]), MICA_OK);
        assert_int_equal(value[i], i + 1);
    }
    for (uint32_t pass = 0; pass < 2; pass++) /* asking again gives the same answer */
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(r.table->wait(r.device, NULL, value[i], 0, &completion), MICA_OK);
            assert_int_equal(completion.status, i == 1 ? MICA_ERR_SUBMISSION : MICA_OK);
        }
    assert_int_equal(r.table->wait(r.device, NULL, 4, 0, &completion), MICA_ERR_INVALID_ARGUMENT);
    close_rig(&r);
}

static void test_slow_and_cancel(void **state)
{
    /* Four seconds do not pass while this thread waits for a processor. */
    const mica_null_faults slow = {.slow_ns = 30000000}, stuck = {.slow_ns = 4000000000}, off = {0};
    mica__completion completion;
    mica__queue *queue;
    uint64_t value, other;
    rig r = open_rig(0);
    (void)state;
    assert_int_equal(r.table->queue_create(r.device, &queue), MICA_OK);
    assert_int_equal(mica__null_inject(r.device, &slow), MICA_OK);
    const uint64_t start = mica__clock_ns();
    assert_int_equal(r.table->submit(r.device, queue, one_dispatch(&r, 0), &value), MICA_OK);
    assert_int_equal(r.table->wait(r.device, queue, value, MICA_WAIT_FOREVER, &completion), MICA_OK);
    assert_true(mica__clock_ns() - start >= 30000000);
    assert_int_equal(completion.end_ns - completion.begin_ns, 30000000);
    assert_int_equal(mica__null_inject(r.device, &stuck), MICA_OK);
    assert_int_equal(r.table->submit(r.device, NULL, one_dispatch(&r, 0), &other), MICA_OK);
    assert_int_equal(other, 1); /* each queue counts for itself */
    assert_int_equal(r.table->wait(r.device, NULL, other, 0, &completion), MICA_ERR_TIMEOUT);
    assert_int_equal(r.table->wait(r.device, NULL, other, 1000000, &completion), MICA_ERR_TIMEOUT);
    assert_int_equal(r.table->cancel(r.device, NULL, other), MICA_OK);
    assert_int_equal(r.table->wait(r.device, NULL, other, 0, &completion), MICA_OK);
    assert_int_equal(completion.status, MICA_ERR_CANCELLED);
    assert_int_equal(mica__null_inject(r.device, &off), MICA_OK);
    r.table->queue_destroy(r.device, queue);
    close_rig(&r);
}

static void test_times(void **state)
{
    mica__profile times;
    uint64_t value;
    rig r = open_rig(0);
    (void)state;
    assert_int_equal(r.table->timestamps(r.device, true, NULL), MICA_OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(r.table->submit(r.device, NULL, one_dispatch(&r, 0), &value), MICA_OK);
    assert_int_equal(r.table->timestamps(r.device, false, &times), MICA_OK);
    assert_int_equal(times.entry_count, 3);
    assert_int_equal(times.entry[2].submission, 3);
    assert_string_equal(times.entry[2].kernel, "softmax");
    mica__free(times.entry);
    mica__free(times.bucket);
    assert_int_equal(r.table->submit(r.device, NULL, one_dispatch(&r, 0), &value), MICA_OK);
    assert_int_equal(r.table->timestamps(r.device, false, &times), MICA_OK);
    assert_int_equal(times.entry_count, 0);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_serve_every_op),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_devices_differ),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_fail_alloc_and_compile),
        cmocka_unit_test(test_fail_submit_loses_the_device),
        cmocka_unit_test(test_fail_wait),
        cmocka_unit_test(test_slow_and_cancel),
        cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
