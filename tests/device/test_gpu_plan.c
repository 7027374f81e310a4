/* What the plans of GPU kernels are built with, where there is no room left. */
#include "device_test.h"

#include "backend/gpu/gpu_plan.h"

static mica__plan plan;

static void begin(void)
{
    memset(&plan, 0, sizeof plan);
    must(mica__gpu_plan_next(&plan, "file/entry", 1));
}

static void constants_that_do_not_fit(void **state)
{
    (void)state;
    begin();
    for (uint32_t i = 0; i < MICA__CONSTANTS_BYTES / 4;
         i++) /* "A=1|" each, and the last one's end is the text's */
        mica__gpu_plan_constant(&plan, "A", i % 10);
    assert_int_equal(plan.status, MICA_OK);
    assert_int_equal(strlen(plan.dispatch[0].constants), MICA__CONSTANTS_BYTES - 1);
    mica__gpu_plan_constant(&plan, "B", 1);
    refused(plan.status, MICA_ERR_UNSUPPORTED, "file/entry");
}

static void bindings_that_do_not_fit(void **state)
{
    (void)state;
    begin();
    for (uint32_t i = 0; i < MICA__PLAN_BINDINGS; i++)
        mica__gpu_plan_fault(&plan);
    assert_int_equal(plan.status, MICA_OK);
    mica__gpu_plan_fault(&plan);
    refused(plan.status, MICA_ERR_UNSUPPORTED, "binding");
    assert_int_equal(plan.dispatch[0].binding_count, MICA__PLAN_BINDINGS);
}

static void parameters_that_do_not_fit(void **state)
{
    static const unsigned char params[MICA__PLAN_PARAM_BYTES];
    (void)state;
    begin();
    mica__gpu_plan_params(&plan, params, sizeof params - 15);
    assert_int_equal(plan.status, MICA_OK);
    must(mica__gpu_plan_next(&plan, "file/entry", 1));
    mica__gpu_plan_params(&plan, params, 1);
    refused(plan.status, MICA_ERR_UNSUPPORTED, "parameters");
}

/* Places fill y before z. */
static void places_are_all_in_the_grid(void **state)
{
    static const uint64_t count[] = {1, 65535, 65536, 1000000};
    (void)state;
    for (uint32_t i = 0; i < sizeof count / sizeof *count; i++) {
        begin();
        must(mica__gpu_plan_places(&plan, count[i]));
        const uint64_t y = plan.dispatch[0].groups[1], z = plan.dispatch[0].groups[2];
        assert_true(y <= MICA__GPU_MOST_GROUPS_YZ && z <= MICA__GPU_MOST_GROUPS_YZ);
        assert_true(y * z >= count[i] && y * (z - 1) < count[i]);
    }
    refused(mica__gpu_plan_places(&plan, (uint64_t)1 << 40), MICA_ERR_UNSUPPORTED, "groups");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(constants_that_do_not_fit),
        test(bindings_that_do_not_fit),
        test(parameters_that_do_not_fit),
        test(places_are_all_in_the_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
