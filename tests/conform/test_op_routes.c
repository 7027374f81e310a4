/*
 * test_op_routes.c - what mica_op_supported and mica_region_supported say of operands that need not exist is what encoding then does, on
 * every device that is here; and what follows of the outputs of regions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "conform/conform_op.h"
#include "conform/conform_rows.h"
#include "support/need.h"
#include "support/status.h"

#define FIRST_CHUNK ((uint64_t)1 << 20) /* an encoder's scratch is that much, or a power of two above it */

/* The cpu, the device that computes nothing, and OpenCL where there is one. */
enum { CPU, NONE, OPENCL, DEVICES };
static mica_device *devices[DEVICES];

static int open_devices(void **state)
{
    (void)state;
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 0); /* nothing runs */
    if (mica_device_open("cpu", NULL, &devices[CPU]) != MICA_OK ||
        mica_device_open("null", NULL, &devices[NONE]) != MICA_OK)
        return -1;
    const mica_status status = mica_device_open("opencl", NULL, &devices[OPENCL]);
    if (status != MICA_OK)
        printf("opencl: %s\n", mica_status_message());
    return status == MICA_OK || !test_is_needed("opencl") ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    for (int d = 0; d < DEVICES; d++)
        mica_device_release(devices[d]);
    return mica_host_bytes() == 0 ? 0 : -1;
}

/* What the buffer of a slot is like. */
static mica_operand_desc describe(const conform_case *c, uint32_t slot)
{
    mica_operand_desc desc = conform_describe_operand(c, slot);
    mica_buffer_info info;
    if (slot == UINT32_MAX || conform_buffer(c, slot) == NULL)
        return desc;
    must(mica_buffer_get_info(conform_buffer(c, slot), &info));
    desc.layout = info.layout;
    memcpy(desc.stride, info.stride, sizeof desc.stride);
    return desc;
}

/* The status and the figures of one record that was encoded. */
static void compare(const conform_case *c, mica_status said, const mica_op_route *route,
                    mica_encoder *encoder, mica_status did)
{
    mica_encoder_stats stats;
    if (said != did)
        fail_msg("%s, case %llu: asked %s, encoding %s: %s", c->row->name, (unsigned long long)c->number,
                 mica_status_name(said), mica_status_name(did), mica_status_message());
    if (said != MICA_OK) {
        assert_int_equal(said, MICA_ERR_UNSUPPORTED);
        return;
    }
    must(mica_encoder_get_stats(encoder, &stats));
    if (stats.records != 1) /* a call of several ops */
        return;
    uint64_t chunk = route->scratch_bytes == 0 ? 0 : FIRST_CHUNK;
    while (chunk < route->scratch_bytes)
        chunk *= 2;
    if (stats.dispatches != route->dispatches || stats.scratch_bytes != chunk)
        fail_msg("%s, case %llu: asked %u dispatches and %llu bytes, encoding %llu and %llu", c->row->name,
                 (unsigned long long)c->number, route->dispatches, (unsigned long long)chunk,
                 (unsigned long long)stats.dispatches, (unsigned long long)stats.scratch_bytes);
}

static void ask_op(conform_case *c, mica_device *device)
{
    mica_operand_desc desc[CONFORM_OPERANDS];
    uint32_t slots[CONFORM_OPERANDS];
    mica_op_route route;
    mica_encoder *encoder;
    must(conform_case_upload(c, device));
    const uint32_t count = conform_operands(c, slots);
    for (uint32_t i = 0; i < count; i++)
        desc[i] = describe(c, slots[i]);
    const mica_status said = mica_op_supported(device, c->row->op, &c->params, desc, count, &route);
    must(mica_encoder_begin(device, NULL, &encoder));
    compare(c, said, &route, encoder, conform_encode_op(c, encoder));
    mica_encoder_release(encoder);
    conform_case_unload(c);
}

static bool is_first_of_op(uint32_t r)
{
    for (uint32_t i = 0; i < r; i++)
        if (conform_table[i].op == conform_table[r].op)
            return false;
    return true;
}

static void test_ops(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < conform_table_count; r++) {
        const uint32_t seeds = conform_table[r].op == MICA_OP_REGION ? 0 : 4;
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            conform_case c;
            conform_case_make(&c, &conform_table[r], seed, false);
            ask_op(&c, devices[CPU]);
            ask_op(&c, devices[NONE]);
            if (devices[OPENCL] != NULL && is_first_of_op(r) && seed == 1) /* kernels are compiled */
                ask_op(&c, devices[OPENCL]);
            conform_case_free(&c);
        }
    }
}

/* ---- regions ---- */

static void ask_region(conform_case *c, mica_device *device)
{
    mica_operand_desc desc[CONFORM_OPERANDS];
    mica_buffer *buffer[CONFORM_OPERANDS];
    mica_region_desc program = c->params.region.desc;
    mica_region *region;
    mica_op_route route;
    mica_encoder *encoder;
    program.step = c->params.region.step;
    must(mica_region_create(&program, &region));
    must(conform_case_upload(c, device));
    for (uint32_t i = 0; i < c->operand_count; i++) {
        desc[i] = describe(c, i);
        buffer[i] = conform_buffer(c, i);
    }
    const uint32_t inputs = program.input_count;
    const mica_status said = mica_region_supported(device, region, desc, desc + inputs, &route);
    must(mica_encoder_begin(device, NULL, &encoder));
    compare(c, said, &route, encoder, mica_region_apply(encoder, region, buffer, buffer + inputs));
    mica_encoder_release(encoder);
    conform_case_unload(c);
    /* What is asked for comes out as the case has it, where outputs have the shape that the inputs repeat to. */
    mica_operand_desc asked[MICA_REGION_OUTPUTS];
    for (uint32_t o = 0; o < program.output_count; o++)
        asked[o] = (mica_operand_desc){.dtype = desc[inputs + o].dtype, .ndim = MICA_RANK_UNKNOWN};
    const mica_status inferred = mica_region_infer(region, desc, asked);
    bool fills = false;
    for (uint32_t i = 0; i < inputs; i++)
        fills =
            fills || (desc[i].ndim == desc[inputs].ndim &&
                      memcmp(desc[i].shape, desc[inputs].shape, desc[i].ndim * sizeof desc[i].shape[0]) == 0);
    for (uint32_t o = 0; o < program.output_count && fills; o++) {
        must(inferred);
        assert_int_equal(asked[o].ndim, desc[inputs].ndim);
        assert_memory_equal(asked[o].shape, desc[inputs].shape, asked[o].ndim * sizeof asked[o].shape[0]);
    }
    mica_region_release(region);
}

static void test_regions(void **state)
{
    uint32_t seen = 0;
    (void)state;
    for (uint32_t r = 0; r < conform_table_count; r++) {
        for (uint64_t seed = 1; conform_table[r].op == MICA_OP_REGION && seed <= 60; seed++) {
            conform_case c;
            conform_case_make(&c, &conform_table[r], seed, false);
            for (int d = 0; d < DEVICES && c.params.region.call == 0; d++)
                if (devices[d] != NULL && (d != OPENCL || seed <= 6)) {
                    ask_region(&c, devices[d]);
                    seen++;
                }
            conform_case_free(&c);
        }
    }
    assert_true(seen > 60);
}

#define DESC(type, rank, ...)                                              \
    (mica_operand_desc)                                                    \
    {                                                                      \
        .dtype = MICA_DTYPE_##type, .ndim = rank, .shape = { __VA_ARGS__ } \
    }

/* a + b, a < b and both as one complex number. */
static mica_region *region_of_three(void)
{
    const mica_region_step step[] = {
        {MICA_SCALAR_ADD, MICA_REGISTER_F32, {0, 1, MICA_REGION_NONE}, 0, {0}, {0}},
        {MICA_SCALAR_LESS, MICA_REGISTER_BOOL, {0, 1, MICA_REGION_NONE}, 0, {0}, {0}}};
    mica_region_desc desc = {.input_count = 2,
                             .output_count = 3,
                             .step_count = 2,
                             .input = {MICA_REGISTER_F32, MICA_REGISTER_F32},
                             .output = {2, 3, 0},
                             .step = step};
    mica_region *region;
    memset(desc.output_imag, MICA_REGION_NONE, sizeof desc.output_imag);
    desc.output_imag[2] = 1;
    must(mica_region_create(&desc, &region));
    return region;
}

static void test_infer(void **state)
{
    const uint64_t n = MICA_SIZE_UNKNOWN + 3;
    const mica_operand_desc asked = {.ndim = MICA_RANK_UNKNOWN};
    mica_region *region = region_of_three();
    (void)state;
    mica_operand_desc in[] = {DESC(BF16, 3, n, 1, 8), DESC(F32, 2, 5, MICA_SIZE_UNKNOWN)},
                      out[] = {asked, asked, asked};
    must(mica_region_infer(region, in, out));
    assert_int_equal(out[0].dtype, MICA_DTYPE_BF16);
    assert_int_equal(out[1].dtype, MICA_DTYPE_BOOL);
    assert_int_equal(out[2].dtype, MICA_DTYPE_C64);
    for (int o = 0; o < 3; o++)
        assert_true(out[o].ndim == 3 && out[o].shape[0] == n && out[o].shape[1] == 5 && out[o].shape[2] == 8);
    in[1] = DESC(F16, 3, n, 5, 7);
    out[0] = out[1] = out[2] = asked;
    refused(mica_region_infer(region, in, out), MICA_ERR_INVALID_ARGUMENT, "inputs[1] does not repeat");
    in[1] = DESC(F16, 3, n + 1, 5, 8);
    out[0] = out[1] = out[2] = asked;
    must(mica_region_infer(region, in, out));
    assert_true(out[0].shape[0] == MICA_SIZE_UNKNOWN);
    in[1] = DESC(I32, 3, n, 5, 8);
    refused(mica_region_infer(region, in, out), MICA_ERR_INVALID_ARGUMENT, "inputs[1] is i32");
    in[1] = asked;
    refused(mica_region_infer(region, in, out), MICA_ERR_INVALID_ARGUMENT, "inputs[1]");
    refused(mica_region_infer(NULL, in, out), MICA_ERR_INVALID_ARGUMENT, "region is NULL");
    refused(mica_region_infer(region, NULL, out), MICA_ERR_INVALID_ARGUMENT, "inputs is NULL");
    refused(mica_region_infer(region, in, NULL), MICA_ERR_INVALID_ARGUMENT, "outputs is NULL");
    mica_region_release(region);
}

static void test_refused(void **state)
{
    mica_region *region = region_of_three();
    mica_operand_desc in[] = {DESC(F16, 2, 3, 4), DESC(F32, 1, 4)},
                      out[] = {DESC(F32, 2, 3, 4), DESC(BOOL, 2, 3, 4), DESC(C64, 2, 3, 4)};
    mica_op_route route = {.dispatches = 9};
    (void)state;
    must(mica_region_supported(devices[CPU], region, in, out, &route));
    assert_true(route.dispatches == 1 && route.bytes == 12 * 2 + 12 * 4 + 12 * 4 + 12 + 12 * 8);
    must(mica_region_supported(devices[CPU], region, in, out, NULL));
    refused(mica_region_supported(NULL, region, in, out, &route), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_region_supported(devices[CPU], NULL, in, out, &route), MICA_ERR_INVALID_ARGUMENT, "region");
    out[2].dtype = MICA_DTYPE_F32;
    refused(mica_region_supported(devices[CPU], region, in, out, &route), MICA_ERR_INVALID_ARGUMENT,
            "outputs[2] is f32, but the region gives it two values");
    assert_int_equal(route.dispatches, 0);
    out[2] = DESC(C64, 2, 3, 5);
    refused(mica_region_supported(devices[CPU], region, in, out, &route), MICA_ERR_INVALID_ARGUMENT,
            "outputs[2]");
    out[1].ndim = MICA_RANK_UNKNOWN; /* all are to be there */
    refused(mica_region_supported(devices[CPU], region, in, out, &route), MICA_ERR_INVALID_ARGUMENT,
            "outputs[1]");
    mica_region_release(region);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ops), cmocka_unit_test(test_regions),
                                       cmocka_unit_test(test_infer), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
