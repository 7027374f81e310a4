/*
 * test_growth_passes.c - recording, fusing, reordering and placing grow at most as n log n with the number of records, whatever
 * the values look like: each follows the one before, comes from anywhere, or is read by all others. A slot is bound at the
 * cost of its uses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mica/mica.h"
#include "support/growth.h"

static mica_device *device;
static mica_buffer *x, *y, *weight, *gain;

enum { FOLLOWS, ANYWHERE, ONE };

typedef struct program {
    mica_session *session;
    mica_encoder *encoder;
    mica_buffer **value;
    uint32_t seed;
} program;

static uint32_t draw(program *p, uint32_t below)
{
    p->seed = p->seed * 1664525u + 1013904223u;
    return (p->seed >> 8) % below;
}

static void add_value(program *p, uint32_t i, int kind)
{
    static const uint64_t shape[2] = {4, 64};
    mica_encoder *e = p->encoder;
    must(mica_session_temp(p->session, MICA_DTYPE_F32, 2, shape, &p->value[i]));
    mica_buffer *a = p->value[kind == FOLLOWS ? i - 1 : kind == ONE ? (i > 1) : draw(p, i)];
    mica_buffer *b = p->value[i > 8 ? i - 8 : 0];
    switch (draw(p, 5)) {
    case 0: must(mica_add(e, a, kind == ONE ? a : b, p->value[i])); break;
    case 1: must(mica_matmul(e, a, weight, NULL, p->value[i])); break;
    case 2: must(mica_rms_norm(e, a, gain, 1e-5f, p->value[i])); break;
    case 3: must(mica_silu_mul(e, a, a, p->value[i])); break;
    default: must(mica_softmax(e, a, 1.0f, p->value[i]));
    }
}

static mica_recording *record(uint64_t size, int kind)
{
    program p = {.value = calloc(size + 1, sizeof *p.value), .seed = 1};
    mica_recording *recording = NULL;
    mica_work *counts = mica_work_use(NULL); /* of the passes alone */
    assert_non_null(p.value);
    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &p.session));
    p.encoder = mica_session_encoder(p.session);
    p.value[0] = mica_buffer_retain(x);
    for (uint32_t i = 1; i <= size; i++)
        add_value(&p, i, kind);
    must(mica_copy(p.encoder, p.value[size], y));
    must(mica_session_slot(p.session, "y", y));
    mica_work_use(counts);
    must(mica_session_record(p.session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, NULL, &recording));
    for (uint32_t i = 0; i <= size; i++)
        mica_buffer_release(p.value[i]);
    free(p.value);
    mica_session_release(p.session);
    return recording;
}

static mica_status follows(uint64_t size)
{
    mica_recording_release(record(size, FOLLOWS));
    return MICA_OK;
}

static mica_status anywhere(uint64_t size)
{
    mica_recording_release(record(size, ANYWHERE));
    return MICA_OK;
}

static mica_status one(uint64_t size)
{
    mica_recording_release(record(size, ONE));
    return MICA_OK;
}

static void passes_grow(void **state)
{
    static const growth_row rows[] = {{"records: each reads the one before", follows, 512, 3},
                                      {"records: each reads any before", anywhere, 512, 3},
                                      {"records: all read the first", one, 512, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        growth_check(&rows[i], 0);
}

/* What one bind costs after the first, which finds out where things are used. */
static uint64_t bind_cost(uint64_t size)
{
    uint64_t before = 0, after = 0, bytes = 0;
    mica_work *work = NULL;
    mica_buffer *other = NULL;
    mica_recording *recording = record(size, FOLLOWS);
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){4, 64}, &other));
    must(mica_recording_bind(recording, "y", other));
    must(mica_work_create(NULL, &work));
    mica_work_use(work);
    must(mica_work_spent(work, &before, &bytes));
    must(mica_recording_bind(recording, "y", y));
    mica_work_use(NULL);
    must(mica_work_spent(work, &after, &bytes));
    mica_work_release(work);
    mica_buffer_release(other);
    mica_recording_release(recording);
    return after - before;
}

static void a_slot_costs_its_uses(void **state)
{
    (void)state;
    const uint64_t few = bind_cost(64), many = bind_cost(2048);
    assert_true(few > 0);
    assert_int_equal(few, many);
}

static int open_device(void **state)
{
    (void)state;
    must(mica_device_open("null", NULL, &device));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){4, 64}, &x));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){4, 64}, &y));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, (uint64_t[]){64, 64}, &weight));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, (uint64_t[]){64}, &gain));
    return 0;
}

static int close_device(void **state)
{
    mica_buffer *const all[] = {x, y, weight, gain};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mica_buffer_release(all[i]);
    mica_device_release(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(passes_grow),
                                       cmocka_unit_test(a_slot_costs_its_uses)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
