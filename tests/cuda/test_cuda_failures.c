/*
 * test_cuda_failures.c - the life of a device with every driver call failed in turn, with every host allocation failed in
 * turn, and with the device lost at every call: a status with a sentence, nothing leaked, nothing touched that is not there.
 */
#include "cuda_rig.h"

#include "support/meter.h"
#include "support/sanitizer.h"

#define FOREVER UINT64_MAX
#define COUNT 20u

/* Everything that the life holds, so that leaving early gives it all back. */
typedef struct life {
    rig r;
    mica__memory *memory[4];
    mica__queue *queue;
    mica__commands *reused;
    mica__encoding *encoding;
} life;

static void leave(life *l)
{
    const mica__backend_table *table = l->r.table;
    mica__commands *commands = NULL;
    if (l->encoding != NULL)
        table->encoder_end(l->encoding, true, &commands);
    if (l->reused != NULL)
        table->commands_destroy(l->r.device, l->reused);
    if (l->queue != NULL)
        table->queue_destroy(l->r.device, l->queue);
    for (uint32_t i = 0; i < 4; i++)
        if (l->memory[i] != NULL)
            table->buffer_destroy(l->r.device, l->memory[i]);
    rig_close(&l->r);
}

static mica_status make_memory(life *l)
{
    const mica__backend_table *table = l->r.table;
    float values[COUNT] = {1, 2, 3};
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < 4 && status == MICA_OK; i++) {
        status = table->buffer_create(l->r.device, sizeof values, &l->memory[i]);
        if (status == MICA_OK)
            status = table->upload(l->r.device, l->memory[i], 0, values, sizeof values);
    }
    if (status == MICA_OK)
        status = table->buffer_fill(l->r.device, l->memory[3], 0);
    return status;
}

/* Adds, copies and a fault word, as commands. */
static mica_status encode(life *l, uint32_t flags, mica__commands **out)
{
    const mica__backend_table *table = l->r.table;
    mica_status status = table->encoder_begin(l->r.device, flags, &l->encoding);
    if (status != MICA_OK)
        return status;
    const mica__binding from = rig_whole(l->memory[0], 1), to = rig_whole(l->memory[3], 2);
    const mica__binding binding = rig_whole(l->memory[1], 2);
    const mica__dispatch large = {.kernel = l->r.bare,
                                  .groups = {1, 1, 1},
                                  .local = {32, 1, 1},
                                  .local_bytes = 100000,
                                  .bindings = &binding,
                                  .binding_count = 1};
    rig_add(&l->r, l->encoding, l->memory[0], l->memory[0], l->memory[1], NULL, 0);
    rig_add(&l->r, l->encoding, l->memory[1], l->memory[0], l->memory[2], (uint32_t[]){0}, 1);
    rig_fault(&l->r, l->encoding, 0);
    table->barrier(l->encoding);
    table_copy(table, l->encoding, from, to, "life");
    table->dispatch(l->encoding, &large);
    status = table->encoder_end(l->encoding, false, out);
    l->encoding = NULL;
    return status;
}

static mica_status submit_and_wait(life *l, mica__queue *queue, mica__commands *commands)
{
    mica__completion done;
    uint64_t value = 0;
    mica_status status = l->r.table->submit(l->r.device, queue, commands, &value);
    if (status == MICA_OK)
        status = l->r.table->wait(l->r.device, queue, value, FOREVER, &done);
    return status == MICA_OK ? done.status : status;
}

static mica_status use_commands(life *l)
{
    const mica__backend_table *table = l->r.table;
    mica__commands *once = NULL;
    mica_status status = encode(l, 0, &once);
    if (status == MICA_OK)
        status = submit_and_wait(l, NULL, once);
    if (status == MICA_OK)
        status = encode(l, MICA__ENCODE_REUSABLE, &l->reused);
    if (status == MICA_OK)
        status = submit_and_wait(l, NULL, l->reused);
    const mica__binding other = status == MICA_OK ? rig_whole(l->memory[3], 1) : (mica__binding){0};
    if (status == MICA_OK)
        status = table->commands_update(l->reused, 0, 1, &other);
    if (status == MICA_OK)
        status = table->commands_update(l->reused, 3, 0, &other);
    return status == MICA_OK ? submit_and_wait(l, NULL, l->reused) : status;
}

static mica_status use_queues(life *l)
{
    const mica__backend_table *table = l->r.table;
    uint64_t value = 0;
    mica_status status = table->queue_create(l->r.device, &l->queue);
    if (status == MICA_OK)
        status = table->submit(l->r.device, NULL, l->reused, &value);
    if (status == MICA_OK)
        status = table->queue_order(l->r.device, l->queue, NULL, value);
    if (status == MICA_OK)
        status = submit_and_wait(l, l->queue, l->reused);
    if (status == MICA_OK)
        status = table->timestamps(l->r.device, true, NULL);
    return status == MICA_OK ? submit_and_wait(l, l->queue, l->reused) : status;
}

/* The whole life; gives everything back whatever happened. */
static mica_status live(void)
{
    life l = {0};
    float back[COUNT];
    char name[64];
    mica_status status = mica__backend_cuda.describe(0, name, sizeof name);
    if (status == MICA_OK)
        status = rig_open_index(&l.r, 0);
    if (status == MICA_OK)
        status = make_memory(&l);
    if (status == MICA_OK)
        status = use_commands(&l);
    if (status == MICA_OK)
        status = use_queues(&l);
    if (status == MICA_OK)
        status = l.r.table->download(l.r.device, l.memory[2], 0, back, sizeof back);
    if (status == MICA_OK)
        assert_true(back[0] == 3 &&
                    back[1] == 6); /* a + a, once more + a; the copy of a in its place gives the same */
    leave(&l);
    return status;
}

static void test_whole(void **state)
{
    (void)state;
    fake_reset();
    must(live());
    rig_check_clean();
    print_message("%u driver calls\n", fake_calls());
}

/* Fails call n for each n, until the life ends before it comes. */
static uint32_t fail_each(int error)
{
    for (uint32_t n = 1;; n++) {
        fake_reset();
        fake_fail_call(n, error);
        const mica_status status = live();
        if (fake_failed()[0] == '\0') {
            must(status);
            return n;
        }
        if (status != MICA_OK && mica_status_message()[0] == '\0')
            fail_msg("call %u (%s) failed without a sentence", n, fake_failed());
        if (strcmp(fake_failed(), "cuCtxPushCurrent") ==
            0) { /* what is in a context out of reach stays there */
            assert_int_equal(mica_host_allocations(), 0);
            continue;
        }
        if (fake_live() != 0 || mica_host_allocations() != 0 || fake_complaint()[0] != '\0')
            fail_msg("call %u (%s, error %d): %u driver objects and %llu host blocks are left; %s", n,
                     fake_failed(), error, fake_live(), (unsigned long long)mica_host_allocations(),
                     fake_complaint());
    }
}

static void test_each_call(void **state)
{
    static const int errors[] = {2, 700, 1,
                                 999}; /* no memory, lost, and two more that mean nothing special */
    (void)state;
    for (uint32_t i = 0; i < (TEST_THREAD_SANITIZER ? 2 : sizeof errors / sizeof errors[0]); i++)
        assert_true(fail_each(errors[i]) > 100);
}

static void test_refusals_are_kind(void **state)
{
    static const struct {
        int error;
        mica_status status;
    } kinds[] = {{2, MICA_ERR_OUT_OF_MEMORY}, {700, MICA_ERR_DEVICE_LOST}};
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        mica__memory *memory = NULL;
        rig r;
        fake_reset();
        must(rig_open_index(&r, 0));
        fake_fail_call(2, kinds[i].error); /* past making the context current: the allocation */
        const mica_status status = r.table->buffer_create(r.device, 64, &memory);
        if (i == 0 && status == MICA_OK) /* the pool was trimmed and gave */
            r.table->buffer_destroy(r.device, memory);
        else
            assert_int_equal(status, kinds[i].status);
        rig_close(&r);
        rig_check_clean();
    }
}

/* ---- host allocations ---- */

static void test_each_allocation(void **state)
{
    test_meter f = {0};
    (void)state;
    must(test_meter_set(&f));
    for (f.fail_at = 1;; f.fail_at++) {
        f.calls = 0;
        fake_reset();
        const mica_status status = live();
        if (f.calls < f.fail_at) {
            must(status);
            break;
        }
        if (status != MICA_OK && status != MICA_ERR_OUT_OF_MEMORY)
            fail_msg("allocation %llu: %s: %s", (unsigned long long)f.fail_at, mica_status_name(status),
                     mica_status_message());
        rig_check_clean();
    }
    assert_true(f.fail_at > 20);
    must(mica_set_allocator(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_each_call),
        cmocka_unit_test(test_refusals_are_kind),
        cmocka_unit_test(test_each_allocation),
    };
    return cmocka_run_group_tests_name("the CUDA backend with each call failed", tests, NULL, NULL);
}
