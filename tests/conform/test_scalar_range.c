/*
 * test_scalar_range.c - every scalar function of f32 over numbers of all sizes, beside the oracle: each 65521st pattern of bits, and
 * the numbers whose results the standard of C names.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conform/conform_suite.h"
#include "mica/region.h"
#include "mica/scalars.h"
#include "oracle/oracle_region.h"
#include "support/sanitizer.h"
#include "support/need.h"
#include "support/status.h"

enum { STRIDE = 65521, SPREAD = 65552, NAMED = 24, COUNT = SPREAD + NAMED * NAMED };

static const float named[NAMED] = {
    0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN,     0.5f,     -0.5f, 1.5f,  2.5f,       -2.5f,
    2.0f, -2.0f, 3.0f, -3.0f, 1e-40f,   -1e-40f,   3.4e38f, -3.4e38f, 7.0f,  -7.0f, 8388609.0f, 16777216.0f,
};
static float input[3][COUNT], output[COUNT];

static void fill_inputs(void)
{
    for (uint32_t i = 0; i < SPREAD; i++)
        for (uint32_t j = 0; j < 3; j++) {
            const uint32_t bits = (i + 7919 * j * i) * STRIDE;
            memcpy(&input[j][i], &bits, sizeof bits);
        }
    for (uint32_t i = 0; i < NAMED * NAMED; i++) {
        input[0][SPREAD + i] = named[i / NAMED];
        input[1][SPREAD + i] = input[2][SPREAD + i] = named[i % NAMED];
    }
}

static mica_buffer *fresh(mica_device *device, mica_dtype dtype)
{
    const mica_buffer_desc desc = {.dtype = dtype, .ndim = 1, .shape = {COUNT}};
    mica_buffer *buffer = NULL;
    must(mica_buffer_create(device, &desc, &buffer));
    return buffer;
}

static void check_scalar(mica_device *device, uint32_t scalar, mica_buffer *const *in, mica_buffer *y)
{
    mica_scalar_info info;
    mica_region *region = NULL;
    mica_encoder *encoder = NULL;
    const uint8_t none = MICA_REGION_NONE, f32 = MICA_REGISTER_F32;
    must(mica_scalar_get_info(scalar, &info));
    const mica_region_step step = {
        (uint8_t)scalar, f32, {0, info.values > 1 ? 1 : none, info.values > 2 ? 2 : none}, 0, {0}, {0}};
    const mica_region_desc desc = {info.values, 1, 1, {f32, f32, f32}, {(uint8_t)info.values}, {none}, &step};

    must(mica_region_create(&desc, &region));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_region_apply(encoder, region, in, &y));
    must(mica_encoder_commit_and_wait(encoder));
    must(mica_buffer_read(y, 0, output, sizeof output));
    for (uint32_t i = 0; i < COUNT;
         i += TEST_ANY_SANITIZER ? 16 : 1) { /* the oracle takes long there, and is not what is looked at */
        oracle_value value[4] = {{0}}, imag[4] = {{0}};
        const uint64_t index = i;
        for (uint32_t j = 0; j < info.values; j++)
            value[j] = oracle_region_load(MICA_DTYPE_F32, &input[j][i], &imag[j]);
        oracle_region_run(&desc, &index, value, imag);
        if (!oracle_region_near(MICA_DTYPE_F32, &value[info.values], imag, &output[i]))
            fail_msg("%s(%.9g, %.9g) is %.9g, the oracle says %.9Lg within %.3Lg", mica_scalar_name(scalar),
                     (double)input[0][i], (double)input[1][i], (double)output[i], value[info.values].x,
                     value[info.values].error);
    }
    mica_encoder_release(encoder);
    mica_region_release(region);
}

static void check_device(const char *id, const char *isa)
{
    mica_device_options options = {.size = sizeof options};
    mica_device *device = NULL;
    snprintf(options.isa, sizeof options.isa, "%s", isa);
    const mica_status status = mica_device_open(id, &options, &device);
    if (status == MICA_ERR_UNSUPPORTED || (status == MICA_ERR_DEVICE_NOT_FOUND && !test_is_needed(id))) {
        printf("# %s %s skipped: %s\n", id, isa, mica_status_message());
        return;
    }
    must(status);
    mica_buffer *const in[] = {fresh(device, MICA_DTYPE_F32), fresh(device, MICA_DTYPE_F32),
                               fresh(device, MICA_DTYPE_F32)};
    mica_buffer *const y = fresh(device, MICA_DTYPE_F32);
    for (uint32_t j = 0; j < 3; j++)
        must(mica_buffer_write(in[j], 0, input[j], sizeof input[j]));
    for (uint32_t scalar = 1; scalar < MICA_SCALAR_COUNT; scalar++) {
        mica_scalar_info info;
        must(mica_scalar_get_info(scalar, &info));
        if ((info.in >> MICA_REGISTER_F32 & 1) != 0 && info.out == 0 && info.values > 0 &&
            scalar != MICA_SCALAR_SELECT && scalar != MICA_SCALAR_IMAG)
            check_scalar(device, scalar, in, y);
    }
    for (uint32_t j = 0; j < 3; j++)
        mica_buffer_release(in[j]);
    mica_buffer_release(y);
    mica_device_release(device);
}

static void test_cpu(void **state)
{
    (void)state;
    for (uint32_t isa = 0; isa < CONFORM_ISAS; isa++)
        check_device("cpu", conform_isa_names[isa]);
}

static void test_opencl(void **state)
{
    (void)state;
    check_device("opencl", "");
}

/* What kernel texts have no formula for is refused by its name. */
static void test_f64_of_kernels(void **state)
{
    mica_device *device = NULL;
    mica_encoder *encoder = NULL;
    (void)state;
    if (mica_device_open("opencl", NULL, &device) != MICA_OK)
        return;
    mica_buffer *const x = fresh(device, MICA_DTYPE_F64);
    must(mica_encoder_begin(device, NULL, &encoder));
    refused(mica_sin(encoder, x, x), MICA_ERR_UNSUPPORTED, "sin of f64");
    mica_encoder_release(encoder);
    mica_buffer_release(x);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpu), cmocka_unit_test(test_opencl),
                                       cmocka_unit_test(test_f64_of_kernels)};
    fill_inputs();
    return cmocka_run_group_tests_name("scalar_range", tests, NULL, NULL);
}
