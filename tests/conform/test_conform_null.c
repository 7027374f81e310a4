/*
 * test_conform_null.c - the structural half of conformance, on the device that computes nothing: every case that the
 * table grants is accepted, hazards are found and counted, injected faults come out where they belong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conform/conform_op.h"
#include "support/status.h"

#define CASES 16

static mica_device *device;

static int open_device(void **state)
{
    (void)state;
    return mica_device_open("null", NULL, &device) == MICA_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    mica_device_release(device);
    return mica_host_bytes() == 0 ? 0 : -1;
}

/* Records that a call makes: one, but of many weights of one x one for each four. */
static uint32_t records_of(const conform_case *c)
{
    uint32_t slots[CONFORM_OPERANDS];

    if (strncmp(c->row->name, "matmul several", 14) != 0)
        return 1;
    const uint32_t weights = (conform_operands(c, slots) - 1) / 2; /* x, then a weight and a y each */
    return (weights + 3) / 4;
}

static void accept_direct(const conform_case *c, const char *text)
{
    mica_encoder *encoder;
    mica_encoder_stats stats;
    mica_counters before, after;

    must(mica_counters_get(device, &before));
    must(mica_encoder_begin(device, NULL, &encoder));
    if (c->row->encode(c, encoder) != MICA_OK)
        fail_msg("refused: %s\n  %s", mica_status_message(), text);
    must(mica_encoder_get_stats(encoder, &stats));
    assert_int_equal(records_of(c), stats.records);
    assert_true(stats.dispatches >= 1);
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_counters_get(device, &after));
    assert_int_equal(records_of(c), after.records - before.records);
    assert_int_equal(stats.dispatches, after.dispatches - before.dispatches);
    assert_int_equal(1, after.submissions - before.submissions);
    assert_int_equal(0, after.faults - before.faults);
}

static void accept_recorded(const conform_case *c)
{
    mica_session *session;
    mica_recording *recording;
    mica_session_stats stats;
    mica_record_info info;

    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    must(c->row->encode(c, mica_session_encoder(session)));
    must(mica_session_record(session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, &stats, &recording));
    mica_session_release(session);
    assert_int_equal(records_of(c), stats.records_in);
    assert_int_equal(records_of(c), stats.records_out);
    assert_int_equal(0, stats.barriers);
    assert_int_equal(records_of(c), mica_recording_count(recording));
    must(mica_recording_inspect(recording, 0, &info));
    assert_int_equal(c->row->op, info.op);
    assert_string_equal("", info.fused);
    must(mica_recording_replay_and_wait(recording));
    must(mica_recording_replay_and_wait(recording));
    mica_recording_release(recording);
}

/* Refusing what the table grants fails here. */
static void test_row(void **state)
{
    const conform_row *row = *state;
    char text[CONFORM_TEXT];

    for (uint64_t seed = 1; seed <= CASES; seed++) {
        conform_case c;

        conform_case_make(&c, row, seed, false);
        must(conform_case_upload(&c, device));
        conform_case_describe(&c, text, sizeof text);
        accept_direct(&c, text);
        accept_recorded(&c);
        conform_case_free(&c);
    }
}

static mica_buffer *make(uint64_t rows, uint64_t columns)
{
    uint64_t shape[2] = {rows, columns};
    mica_buffer *buffer;

    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, shape, &buffer));
    return buffer;
}

static mica_buffer *slice(mica_buffer *buffer, uint32_t dim, uint64_t start, uint64_t count)
{
    mica_buffer *view;

    must(mica_buffer_slice(buffer, dim, start, count, &view));
    return view;
}

/* Barriers that a pair of copies needs. */
static uint64_t barriers(mica_buffer *from_a, mica_buffer *to_a, mica_buffer *from_b, mica_buffer *to_b)
{
    mica_encoder *encoder;
    mica_encoder_stats stats;

    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_copy(encoder, from_a, to_a));
    must(mica_copy(encoder, from_b, to_b));
    must(mica_encoder_get_stats(encoder, &stats));
    assert_int_equal(2, stats.dispatches);
    assert_int_equal(1, stats.barriers + stats.barriers_elided);
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    return stats.barriers;
}

static void test_hazards(void **state)
{
    mica_buffer *a = make(8, 16), *b = make(8, 16), *c = make(8, 16), *d = make(8, 16);
    mica_buffer *left = slice(a, 1, 0, 8), *right = slice(a, 1, 8, 8), *middle = slice(a, 1, 4, 8);
    mica_buffer *top = slice(a, 0, 0, 4), *bottom = slice(a, 0, 4, 4), *b_top = slice(b, 0, 0, 4),
                *b_left = slice(b, 1, 0, 8);
    mica_buffer *c_top = slice(c, 0, 0, 4), *c_left = slice(c, 1, 0, 8);

    (void)state;
    assert_int_equal(1, barriers(a, b, b, c)); /* read after write */
    assert_int_equal(1, barriers(a, b, c, b)); /* write after write */
    assert_int_equal(1, barriers(a, b, c, a)); /* write after read */
    assert_int_equal(0, barriers(a, b, a, c)); /* two readers */
    assert_int_equal(0, barriers(a, b, c, d));
    assert_int_equal(0, barriers(b_top, top, c_top, bottom));   /* disjoint rows */
    assert_int_equal(0, barriers(b_left, left, c_left, right)); /* disjoint columns of equal stride */
    assert_int_equal(1, barriers(b_left, left, c_left, middle));
    assert_int_equal(1, barriers(b_left, left, bottom, c_top)); /* columns against rows: their hulls meet */
    mica_buffer *all[] = {a, b, c, d, left, right, middle, top, bottom, b_top, b_left, c_top, c_left};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

static void test_barriers_by_hand(void **state)
{
    mica_buffer *a = make(4, 4), *b = make(4, 4), *c = make(4, 4);
    mica_encoder *encoder;
    mica_encoder_stats stats;
    int emitted = 7;

    (void)state;
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_encoder_set_hazards(encoder, MICA_HAZARDS_MANUAL));
    must(mica_copy(encoder, a, b));
    must(mica_copy(encoder, b, c));
    must(mica_encoder_get_stats(encoder, &stats));
    assert_int_equal(0, stats.barriers);
    must(mica_encoder_barrier_between(encoder, &a, 1, NULL, 0, &emitted));
    assert_int_equal(0, emitted);
    must(mica_encoder_barrier_between(encoder, &c, 1, &a, 1, &emitted));
    assert_int_equal(1, emitted);
    must(mica_encoder_barrier_between(encoder, &c, 1, &a, 1, &emitted)); /* nothing in flight any more */
    assert_int_equal(0, emitted);
    must(mica_encoder_track(encoder, NULL, 0, &b, 1)); /* foreign work writes b */
    must(mica_encoder_set_hazards(encoder, MICA_HAZARDS_AUTOMATIC));
    must(mica_copy(encoder, b, a));
    must(mica_encoder_barrier(encoder));
    must(mica_copy(encoder, a, c));
    must(mica_encoder_get_stats(encoder, &stats));
    assert_true(stats.barriers >= 2);
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    mica_buffer_release(a);
    mica_buffer_release(b);
    mica_buffer_release(c);
}

/* Three independent copies, then two that read them: one group of three, one of two. */
static void test_groups(void **state)
{
    mica_buffer *b[9];
    mica_encoder *encoder;
    mica_encoder_stats stats;

    (void)state;
    for (int i = 0; i < 9; i++)
        b[i] = make(2, 2);
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_copy(encoder, b[0], b[1]));
    must(mica_copy(encoder, b[0], b[2]));
    must(mica_copy(encoder, b[3], b[4]));
    must(mica_add(encoder, b[1], b[2], b[5]));
    must(mica_add(encoder, b[2], b[4], b[6]));
    must(mica_encoder_get_stats(encoder, &stats));
    assert_int_equal(5, stats.records);
    assert_int_equal(1, stats.barriers);
    assert_int_equal(3, stats.barriers_elided);
    assert_int_equal(1, stats.group_sizes[2]);
    assert_int_equal(1, stats.group_sizes[1]);
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    for (int i = 0; i < 9; i++)
        mica_buffer_release(b[i]);
}

static mica_device *faulty(const mica_null_faults *faults)
{
    mica_device *other;

    must(mica_device_open("null", NULL, &other));
    must(mica_null_inject(other, faults));
    return other;
}

static void test_fault_memory(void **state)
{
    mica_null_faults faults = {.fail_alloc = 2};
    mica_device *other = faulty(&faults);
    mica_buffer *a, *b = (mica_buffer *)&a;
    uint64_t four = 4;

    (void)state;
    must(mica_buffer_alloc(other, MICA_DTYPE_F32, 1, &four, &a));
    assert_int_equal(MICA_ERR_OUT_OF_MEMORY, mica_buffer_alloc(other, MICA_DTYPE_F32, 1, &four, &b));
    assert_null(b);
    must(mica_buffer_alloc(other, MICA_DTYPE_F32, 1, &four, &b)); /* once */
    mica_buffer_release(a);
    mica_buffer_release(b);
    mica_device_release(other);
}

static mica_status run_copy(mica_device *on, mica_buffer *x, mica_buffer *y)
{
    mica_encoder *encoder;
    mica_status status = mica_encoder_begin(on, NULL, &encoder);

    if (status == MICA_OK)
        status = mica_copy(encoder, x, y);
    if (status == MICA_OK)
        status = mica_encoder_commit_and_wait(encoder);
    mica_encoder_release(encoder);
    return status;
}

static void test_fault_lost(void **state)
{
    mica_null_faults faults = {.fail_submit = 2};
    mica_device *other = faulty(&faults);
    mica_buffer *x, *y, *z;
    uint64_t four = 4;

    (void)state;
    must(mica_buffer_alloc(other, MICA_DTYPE_F32, 1, &four, &x));
    must(mica_buffer_alloc(other, MICA_DTYPE_F32, 1, &four, &y));
    must(run_copy(other, x, y));
    assert_int_equal(MICA_ERR_DEVICE_LOST, run_copy(other, x, y));
    assert_int_equal(0, mica_status_is_transient(MICA_ERR_DEVICE_LOST));
    assert_int_equal(MICA_ERR_DEVICE_LOST, run_copy(other, x, y)); /* and everything after it */
    assert_int_equal(MICA_ERR_DEVICE_LOST, mica_buffer_alloc(other, MICA_DTYPE_F32, 1, &four, &z));
    mica_buffer_release(x);
    mica_buffer_release(y);
    mica_device_release(other);
}

static void test_fault_wait(void **state)
{
    mica_null_faults faults = {.fail_wait = 1};
    mica_device *other = faulty(&faults);
    mica_buffer *x, *y;
    uint64_t four = 4;

    (void)state;
    must(mica_buffer_alloc(other, MICA_DTYPE_F32, 1, &four, &x));
    must(mica_buffer_alloc(other, MICA_DTYPE_F32, 1, &four, &y));
    assert_int_equal(MICA_ERR_SUBMISSION, run_copy(other, x, y));
    assert_int_equal(1, mica_status_is_transient(MICA_ERR_SUBMISSION));
    must(run_copy(other, x, y));
    mica_buffer_release(x);
    mica_buffer_release(y);
    mica_device_release(other);
}

static void nothing(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                    uint32_t last)
{
    (void)bindings;
    (void)count;
    (void)params;
    (void)first;
    (void)last;
}

static void test_fault_compile(void **state)
{
    mica_null_faults faults = {.fail_compile = 1};
    mica_device *other = faulty(&faults);
    mica_kernel_desc desc = {.name = "nothing", .host = nothing};
    mica_kernel *kernel;

    (void)state;
    must(mica_kernel_register(other, &desc));
    assert_int_equal(MICA_ERR_KERNEL_COMPILATION, mica_kernel_get(other, "nothing", NULL, 0, &kernel));
    assert_null(kernel);
    assert_int_equal(0, mica_kernel_is_cached(other, "nothing"));
    must(mica_kernel_get(other, "nothing", NULL, 0, &kernel));
    mica_kernel_release(kernel);
    mica_device_release(other);
}

static void test_slow(void **state)
{
    mica_null_faults faults = {.slow_ns = 20000000};
    mica_device *other = faulty(&faults);
    mica_buffer *x, *y;
    mica_encoder *encoder;
    mica_fence *fence;
    uint64_t four = 4, begin, end;

    (void)state;
    must(mica_buffer_alloc(other, MICA_DTYPE_F32, 1, &four, &x));
    must(mica_buffer_alloc(other, MICA_DTYPE_F32, 1, &four, &y));
    must(mica_encoder_begin(other, NULL, &encoder));
    must(mica_copy(encoder, x, y));
    must(mica_encoder_commit(encoder, &fence));
    assert_int_equal(MICA_ERR_TIMEOUT, mica_fence_wait(fence, 0));
    assert_int_equal(MICA_ERR_STATE, mica_fence_times(fence, &begin, &end));
    must(mica_fence_wait(fence, MICA_WAIT_FOREVER));
    must(mica_fence_times(fence, &begin, &end));
    assert_true(end - begin >= faults.slow_ns);
    mica_fence_release(fence);
    mica_encoder_release(encoder);
    mica_buffer_release(x);
    mica_buffer_release(y);
    mica_device_release(other);
}

int main(void)
{
    static const struct CMUnitTest own[] = {
        cmocka_unit_test(test_hazards),       cmocka_unit_test(test_barriers_by_hand),
        cmocka_unit_test(test_groups),        cmocka_unit_test(test_fault_memory),
        cmocka_unit_test(test_fault_lost),    cmocka_unit_test(test_fault_wait),
        cmocka_unit_test(test_fault_compile), cmocka_unit_test(test_slow),
    };
    const size_t own_count = sizeof own / sizeof *own;
    struct CMUnitTest *tests = test_alloc(conform_table_count + own_count, sizeof *tests);
    uint32_t count = 0;

    for (uint32_t i = 0; i < conform_table_count; i++) {
        tests[count] =
            (struct CMUnitTest)cmocka_unit_test_prestate(test_row, (void *)(uintptr_t)&conform_table[i]);
        tests[count++].name = conform_table[i].name;
    }
    for (size_t i = 0; i < own_count; i++)
        tests[count++] = own[i];
    const int failed = _cmocka_run_group_tests("conform_null", tests, count, open_device, close_device);
    free(tests);
    return failed;
}
