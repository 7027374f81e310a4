/* test_work.c - steps, limits and cancels of public calls, and the name that a sentence begins with. */
#include "support/status.h"

#include "base/alloc.h"
#include "base/work.h"

/* A call as the library makes them: takes steps, allocates, may call another. */
static mica_status outer_call(uint64_t steps, mica_status (*inner)(void))
{
    mica__call call;
    mica__call_begin(&call, "outer_call");
    mica_status status = mica__spend(steps);
    if (status == MICA_OK && inner != NULL)
        status = inner();
    return mica__call_end(&call, status);
}

static mica_status inner_fails(void)
{
    mica__call call;
    mica__call_begin(&call, "inner_call");
    return mica__call_end(&call, mica__fail(MICA_ERR_IO, "the disk is gone"));
}

static mica_status inner_spends(void)
{
    mica__call call;
    mica__call_begin(&call, "inner_call");
    return mica__call_end(&call, mica__spend(60));
}

static mica_status inner_allocates(void)
{
    mica__free(mica__alloc(1000));
    return MICA_OK;
}

static void test_limits(void **state)
{
    (void)state;
    const mica_limits limits = {.steps = 100}, wrong = {.size = 8};
    mica_work *work = NULL;
    refused(mica_work_create(&wrong, &work), MICA_ERR_INVALID_ARGUMENT, "size");
    assert_null(work);
    must(mica_work_create(&limits, &work));
    assert_null(mica_work_use(work));
    must(outer_call(100, NULL));
    refused(outer_call(101, NULL), MICA_ERR_BUDGET, "outer_call: more than 100 steps");
    refused(outer_call(50, inner_spends), MICA_ERR_BUDGET, "outer_call: "); /* one budget for both */
    must(outer_call(40, inner_spends));
    refused(outer_call(UINT64_MAX, inner_spends), MICA_ERR_BUDGET, "steps");
    assert_ptr_equal(mica_work_use(NULL), work);
    must(outer_call(101, NULL));
    refused(outer_call(UINT64_MAX, NULL), MICA_ERR_BUDGET, "steps");
    must(mica__spend(UINT64_MAX)); /* outside of a call nobody counts */
    mica_work_release(work);
    mica_work_release(NULL);
}

static void test_bytes_allow_steps(void **state)
{
    (void)state;
    mica__call call;
    mica__call_begin(&call, "reader");
    must(mica__spend(mica__limits()->steps));
    mica__spend_allow(2);
    must(mica__spend(2 * MICA__STEPS_PER_BYTE));
    assert_int_equal(mica__call_end(&call, mica__spend(1)), MICA_ERR_BUDGET);
    mica__call_begin(&call, "reader");
    mica__spend_allow(UINT64_MAX);
    must(mica__call_end(&call, mica__spend(UINT64_MAX)));
}

static void test_cancel(void **state)
{
    (void)state;
    mica_work *work = NULL, own;
    mica__call call;
    must(mica_work_create(NULL, &work));
    mica_work_use(work);
    mica_work_cancel(work);
    refused(outer_call(1, NULL), MICA_ERR_CANCELLED, "outer_call: cancelled");
    refused(outer_call(1, NULL), MICA_ERR_CANCELLED, "cancelled"); /* until it is cleared */
    mica_work_clear(work);
    must(outer_call(1, NULL));
    mica__work_init(&own, NULL);
    mica__call_begin(&call, "handle_call");
    mica__call_cancelled_by(&call, &own);
    must(outer_call(1, NULL));
    mica_work_cancel(&own);
    refused(outer_call(1, NULL), MICA_ERR_CANCELLED, "cancelled"); /* a call inside obeys the handle's too */
    must(mica__call_end(&call, MICA_OK));
    must(outer_call(1, NULL));
    mica_work_use(NULL);
    mica_work_release(work);
    mica_work_cancel(NULL);
    mica_work_clear(NULL);
}

static void test_sentences(void **state)
{
    (void)state;
    refused(outer_call(0, inner_fails), MICA_ERR_IO, "outer_call: the disk is gone");
    refused(inner_fails(), MICA_ERR_IO, "inner_call: the disk is gone");
    mica__call call;
    mica__call_begin(&call, "named");
    const mica_status status = mica__call_end(&call, mica__fail(MICA_ERR_STATE, "named: once is enough"));
    assert_int_equal(status, MICA_ERR_STATE);
    assert_string_equal(mica_status_message(), "named: once is enough");
}

static void test_spent(void **state)
{
    (void)state;
    uint64_t steps = 0, bytes = 0;
    mica_work *work = NULL;
    must(mica_work_create(NULL, &work));
    mica_work_use(work);
    must(outer_call(7, inner_spends));
    must(outer_call(0, inner_allocates));
    mica_work_use(NULL);
    must(outer_call(1000, NULL));
    must(mica_work_spent(work, &steps, &bytes));
    assert_int_equal(steps, 67);
    assert_in_range(bytes, 1000, 1128);
    refused(mica_work_spent(NULL, &steps, NULL), MICA_ERR_INVALID_ARGUMENT, "work is NULL");
    mica_work_release(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits), cmocka_unit_test(test_bytes_allow_steps),
        cmocka_unit_test(test_cancel), cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_spent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
