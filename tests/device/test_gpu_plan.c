/* What the plans of GPU kernels are built with: as much as a record needs, and what happens where memory ends. */
#include "device_test.h"

#include "backend/gpu/gpu_plan.h"
#include "backend/planning.h"
#include "support/meter.h"

static mica__plan plan;
static const mica__record record = {.op = MICA_OP_REGION, .operand_count = 3, .params_size = 4};

static void begin(void)
{
    must(mica__planning_begin(&plan, &record));
    must(mica__gpu_plan_next(&plan, "file/entry", 1));
}

static void end(void)
{
    mica__planning_end(&plan);
}

static void constants_of_any_length(void **state)
{
    char want[1 << 14] = "file/entry";
    (void)state;
    begin();
    mica__gpu_plan_constant(&plan, "FIRST", 1);
    must(mica__gpu_plan_next(&plan, "file/entry", 1));
    for (uint32_t i = 0; i < 1000; i++) {
        mica__gpu_plan_constant(&plan, "A", i);
        snprintf(want + strlen(want), 16, "|A=%u", i);
    }
    must(mica__gpu_plan_next(&plan, "file/other", 1));
    assert_int_equal(plan.status, MICA_OK);
    assert_string_equal(mica__planning_constants(&plan, &plan.dispatch[0]), "FIRST=1");
    assert_string_equal(mica__planning_key(&plan, &plan.dispatch[1]), want);
    assert_string_equal(mica__planning_key(&plan, &plan.dispatch[2]), "file/other");
    assert_string_equal(mica__planning_constants(&plan, &plan.dispatch[1]), want + 11);
    end();
}

static void as_many_dispatches_and_bindings_as_asked(void **state)
{
    enum { DISPATCHES = 50, BINDINGS = 100 };
    static unsigned char params[3000];
    (void)state;
    must(mica__planning_begin(&plan, &record));
    for (uint32_t d = 0; d < DISPATCHES; d++) {
        must(mica__gpu_plan_next(&plan, "file/entry", 1 + d));
        for (uint32_t i = 0; i < BINDINGS; i++)
            mica__gpu_plan_scratch(&plan, 64ull * (d * BINDINGS + i), 64, MICA_ACCESS_READ);
        memset(params, (int)d, sizeof params);
        mica__gpu_plan_params(&plan, params, sizeof params - d);
    }
    assert_int_equal(plan.status, MICA_OK);
    assert_int_equal(plan.dispatch_count, DISPATCHES);
    for (uint32_t d = 0; d < DISPATCHES; d++) {
        const mica__plan_dispatch *dispatch = &plan.dispatch[d];
        assert_int_equal(dispatch->groups[0], 1 + d);
        assert_int_equal(dispatch->binding_count, BINDINGS);
        for (uint32_t i = 0; i < BINDINGS; i++)
            assert_int_equal(plan.binding[dispatch->first_binding + i].offset, 64 * (d * BINDINGS + i));
        assert_int_equal(dispatch->params_offset % 16, 0);
        assert_int_equal(dispatch->params_size, sizeof params - d);
        assert_int_equal(plan.params[dispatch->params_offset], d);
        assert_int_equal(plan.params[dispatch->params_offset + dispatch->params_size - 1], d);
    }
    end();
}

/* A second plan of the same size asks for no memory. */
static void arrays_are_used_again(void **state)
{
    static const unsigned char params[20000];
    test_meter meter = {0};
    (void)state;
    must(test_meter_set(&meter));
    for (uint32_t round = 0; round < 3; round++) {
        begin();
        for (uint32_t i = 0; i < 300; i++)
            mica__gpu_plan_fault(&plan);
        mica__gpu_plan_constant(&plan, "A", 1);
        mica__gpu_plan_params(&plan, params, sizeof params);
        assert_int_equal(plan.status, MICA_OK);
        test_meter_allow(&meter, 0);
    }
    test_meter_allow(&meter, UINT64_MAX);
    end();
    must(mica_set_allocator(NULL));
}

/* Wherever memory ends, the plan says so, and nothing is written outside of its arrays. */
static void no_memory_is_latched(void **state)
{
    static const unsigned char params[20000];
    test_meter meter = {0};
    uint64_t allowed = 0;
    (void)state;
    must(test_meter_set(&meter));
    for (mica_status status = MICA_ERR_OUT_OF_MEMORY; status != MICA_OK; allowed++) {
        test_meter_allow(&meter, allowed);
        status = mica__planning_begin(&plan, &record);
        for (uint32_t d = 0; d < 40 && status == MICA_OK; d++) {
            must(mica__gpu_plan_next(&plan, "file/entry", 1));
            for (uint32_t i = 0; i < 10; i++)
                mica__gpu_plan_fault(&plan);
            for (uint32_t i = 0; i < 10; i++)
                mica__gpu_plan_constant(&plan, "CONSTANT", i);
            mica__gpu_plan_params(&plan, params, 500 * (d + 1));
            assert_true(plan.binding_count <= plan.binding_capacity);
            assert_true(plan.params_used <= plan.params_capacity);
            assert_true(plan.text_used <= plan.text_capacity);
        }
        if (status == MICA_OK)
            status = plan.status;
        assert_true(status == MICA_OK || status == MICA_ERR_OUT_OF_MEMORY);
        test_meter_allow(&meter, UINT64_MAX);
        end();
    }
    assert_true(allowed > 5);
    must(mica_set_allocator(NULL));
}

/* What a device does not take as an argument becomes a binding, and the text is told. */
static void long_blocks_lie_in_a_buffer(void **state)
{
    static const unsigned char params[4096];
    const mica__device_info info = {.params_bytes = 1024};
    (void)state;
    for (uint32_t bindings = 0; bindings < 30; bindings++) {
        begin();
        for (uint32_t i = 0; i < bindings; i++)
            mica__gpu_plan_fault(&plan);
        mica__gpu_plan_block(&plan, &info, params, 1024 - 16 * 8);
        const mica__plan_dispatch *dispatch = &plan.dispatch[0];
        const bool far = bindings > 8;
        assert_int_equal(dispatch->binding_count, bindings + far);
        assert_int_equal(dispatch->params_size, 1024 - 16 * 8);
        assert_string_equal(mica__planning_constants(&plan, dispatch), far ? "MK_FAR=1" : "");
        if (far)
            assert_int_equal(plan.binding[bindings].source, MICA__PARAMS);
    }
    begin();
    mica__gpu_plan_block(&plan, &info, params, sizeof params);
    assert_int_equal(plan.dispatch[0].binding_count, 1);
    assert_int_equal(plan.dispatch[0].params_size, sizeof params);
    end();
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
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(constants_of_any_length),     test(as_many_dispatches_and_bindings_as_asked),
        test(arrays_are_used_again),       test(no_memory_is_latched),
        test(long_blocks_lie_in_a_buffer), test(places_are_all_in_the_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
