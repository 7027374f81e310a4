/*
 * test_region.c - descriptions that are wrong, each refused with the step and what is wrong with it; operands that do not fit;
 * and what holds conformance of regions together: a formula for each scalar, cases that leave little open.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conform/conform_rows.h"
#include "oracle/oracle_region.h"
#include "support/status.h"

#define NONE MICA_REGION_NONE
#define F32 MICA_REGISTER_F32
#define I32 MICA_REGISTER_I32
#define BOOL MICA_REGISTER_BOOL

/* y = (a + b) * a, of f32. */
static const mica_region_step right_steps[2] = {{MICA_SCALAR_ADD, F32, {0, 1, NONE}, 0, {0}, {0}},
                                                {MICA_SCALAR_MUL, F32, {2, 0, NONE}, 0, {0}, {0}}};

static mica_region_desc right(mica_region_step *step)
{
    mica_region_desc desc = {2, 1, 2, {F32, F32}, {3}, {NONE}, step};

    memcpy(step, right_steps, sizeof right_steps);
    return desc;
}

/* Both words stand in the sentence. */
static void refuse_desc(const mica_region_desc *desc, const char *where, const char *what)
{
    mica_region *region = (mica_region *)desc;

    assert_int_equal(mica_region_create(desc, &region), MICA_ERR_INVALID_ARGUMENT);
    assert_null(region);
    if (strstr(mica_status_message(), where) == NULL || strstr(mica_status_message(), what) == NULL)
        fail_msg("not '%s' and '%s': %s", where, what, mica_status_message());
}

#define REFUSED(change, where, what)         \
    do {                                     \
        mica_region_step step[66];           \
        mica_region_desc desc = right(step); \
        change;                              \
        refuse_desc(&desc, where, what);     \
    } while (0)

static void test_descriptions(void **state)
{
    (void)state;
    REFUSED(step[0].value[1] = 2, "step 0 (add): value[1] is 2", "nobody gave");
    REFUSED(step[1].value[0] = 200, "step 1 (mul): value[0] is 200", "nobody gave");
    REFUSED(step[0].value[1] = NONE, "step 0 (add): value[1]", "nobody gave");
    REFUSED(step[0].value[2] = 0, "step 0 (add): value[2] is 0", "takes 2");
    REFUSED(desc.input[1] = I32, "step 0 (add): value[1] is i32", "value[0] is f32");
    REFUSED(desc.input[0] = desc.input[1] = BOOL, "step 0 (add): value[0] is bool", "does not take");
    REFUSED(step[1].type = I32, "step 1 (mul): type is i32", "from f32");
    REFUSED(step[1].type = 99, "step 1 (mul): type is none", "does not give");
    REFUSED(step[0].scalar = MICA_SCALAR_COUNT, "step 0", "no scalar");
    REFUSED(step[0].scalar = 0, "step 0", "no scalar 0");
    REFUSED(step[1].reserved[1] = 1, "step 1", "reserved");
    REFUSED(step[1].axis = 1, "step 1 (mul)", "axis is 1");
    REFUSED(
        (step[1] = (mica_region_step){MICA_SCALAR_INDEX, I32, {NONE, NONE, NONE}, MICA_MAX_DIMS, {0}, {0}}),
        "step 1 (index)", "axis");
    REFUSED((step[1] = (mica_region_step){MICA_SCALAR_IMAG, F32, {2, NONE, NONE}, 0, {0}, {0}}),
            "step 1 (imag)", "no input");
    REFUSED((step[1] = (mica_region_step){MICA_SCALAR_BITS, MICA_REGISTER_I64, {2, NONE, NONE}, 0, {0}, {0}}),
            "step 1 (bits)", "differ in size");
    REFUSED((step[1] = (mica_region_step){MICA_SCALAR_SELECT, F32, {0, 1, 2}, 0, {0}, {0}}),
            "step 1 (select): value[0] is f32", "not bool");
    REFUSED(
        (step[1] =
             (mica_region_step){MICA_SCALAR_CONSTANT, I32, {NONE, NONE, NONE}, 0, {0}, {.i64 = 1ll << 40}}),
        "step 1 (constant)", "does not fit i32");
    REFUSED(
        (step[1] = (mica_region_step){MICA_SCALAR_CONSTANT, BOOL, {NONE, NONE, NONE}, 0, {0}, {.u64 = 2}}),
        "step 1 (constant)", "not a bool");
    REFUSED(desc.output[0] = 4, "output[0] is value 4", "there are 4");
    REFUSED(desc.output_imag[0] = 9, "output_imag[0] is value 9", "there are 4");
    REFUSED((desc.input[1] = desc.input[0] = I32, desc.step_count = 0, desc.output[0] = 0,
             desc.output_imag[0] = 1),
            "output[0]", "i32");
    REFUSED(desc.input[1] = 0, "input[1] is 0", "register");
    REFUSED(desc.input_count = 17, "input_count is 17", "16");
    REFUSED(desc.output_count = 9, "output_count is 9", "8");
    REFUSED(desc.output_count = 0, "output_count is 0", "1 to 8");
    REFUSED(desc.step_count = 65, "step_count is 65", "64");
    REFUSED(desc.step = NULL, "step is NULL", "2");
    assert_int_equal(mica_region_create(NULL, &(mica_region *){NULL}), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(mica_region_create(&(mica_region_desc){0}, NULL), MICA_ERR_INVALID_ARGUMENT);
}

static mica_buffer *fresh(mica_device *device, mica_dtype dtype, uint64_t rows, uint64_t columns)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, dtype, 2, (uint64_t[]){rows, columns}, &buffer));
    return buffer;
}

static void refuse_apply(mica_encoder *encoder, const mica_region *region, mica_buffer *const *inputs,
                         mica_buffer *const *outputs, const char *first, const char *second)
{
    assert_int_equal(mica_region_apply(encoder, region, inputs, outputs), MICA_ERR_INVALID_ARGUMENT);
    if (strstr(mica_status_message(), first) == NULL || strstr(mica_status_message(), second) == NULL)
        fail_msg("not '%s' and '%s': %s", first, second, mica_status_message());
}

/* Two outputs, of which one is the sum and one a pair; an index. */
static void test_operands(void **state)
{
    static const mica_region_step step[] = {{MICA_SCALAR_ADD, F32, {0, 1, NONE}, 0, {0}, {0}},
                                            {MICA_SCALAR_IMAG, F32, {1, NONE, NONE}, 0, {0}, {0}},
                                            {MICA_SCALAR_INDEX, I32, {NONE, NONE, NONE}, 1, {0}, {0}}};
    static const mica_region_desc desc = {2, 3, 3, {F32, F32}, {2, 2, 4}, {NONE, 3, NONE}, step};
    mica_device *device = NULL;
    mica_encoder *e = NULL;
    mica_region *region = NULL;
    (void)state;
    must(mica_device_open("cpu", NULL, &device));
    must(mica_encoder_begin(device, NULL, &e));
    must(mica_region_create(&desc, &region));
    mica_buffer *a = fresh(device, MICA_DTYPE_F16, 4, 8), *b = fresh(device, MICA_DTYPE_C64, 4, 8);
    mica_buffer *y = fresh(device, MICA_DTYPE_F32, 4, 8), *z = fresh(device, MICA_DTYPE_C64, 4, 8);
    mica_buffer *k = fresh(device, MICA_DTYPE_I8, 4, 8), *part = NULL, *flat = NULL, *line = NULL;
    must(mica_buffer_view(y, MICA_DTYPE_F32, 2, (uint64_t[]){3, 8}, NULL, 32, &part));
    must(mica_buffer_view(k, MICA_DTYPE_I8, 1, (uint64_t[]){32}, NULL, 0, &flat));
    must(mica_buffer_view(y, MICA_DTYPE_F32, 2, (uint64_t[]){1, 8}, NULL, 32, &line));
#define IN(...) (mica_buffer *const[]){__VA_ARGS__}
    must(mica_region_apply(e, region, IN(a, b), IN(y, z, k)));
    refuse_apply(e, NULL, IN(a, b), IN(y, z, k), "region", "NULL");
    refuse_apply(e, region, NULL, IN(y, z, k), "inputs", "NULL");
    refuse_apply(e, region, IN(a, b), NULL, "outputs", "NULL");
    refuse_apply(e, region, IN(a, NULL), IN(y, z, k), "inputs[1]", "NULL");
    refuse_apply(e, region, IN(a, b), IN(y, NULL, k), "outputs[1]", "NULL");
    refuse_apply(e, region, IN(k, b), IN(y, z, k), "inputs[0] is i8", "register f32");
    refuse_apply(e, region, IN(a, a), IN(y, z, k), "inputs[1] is f16", "step 1");
    refuse_apply(e, region, IN(a, b), IN(y, y, k), "outputs[1] is f32", "two values");
    refuse_apply(e, region, IN(a, b), IN(z, z, k), "outputs[0] is c64", "one value");
    refuse_apply(e, region, IN(a, b), IN(y, z, y), "outputs[2] is f32", "register i32");
    refuse_apply(e, region, IN(a, b), IN(y, z, flat), "outputs[2]", "outputs[0]");
    refuse_apply(e, region, IN(line, b), IN(y, z, k), "outputs[0] overlaps", "inputs[0]");
    refuse_apply(e, region, IN(a, b), IN(part, z, k), "outputs[1]", "shape");
    static const mica_region_desc twice = {1, 2, 0, {F32}, {0, 0}, {NONE, NONE}, NULL};
    mica_region *copies = NULL;
    must(mica_region_create(&twice, &copies));
    refuse_apply(e, copies, IN(a), IN(y, y), "outputs[0] overlaps", "outputs[1]");
    must(mica_region_apply(e, copies, IN(y), IN(y, a))); /* in place, and into another type */
    mica_region *row = NULL;
    mica_region_step only = step[2];
    mica_region_desc one = {0, 1, 1, {0}, {0}, {NONE}, &only};
    must(mica_region_create(&one, &row));
    refuse_apply(e, row, NULL, IN(flat), "step 0", "axis 1");
#undef IN
    mica_region_release(region);
    mica_region_release(copies);
    mica_region_release(row);
    mica_encoder_release(e);
    mica_buffer *all[] = {a, b, y, z, k, part, flat, line};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
    mica_device_release(device);
}

/* What a named scalar says of operands that do not go together. */
static void test_scalar_types(void **state)
{
    mica_device *device = NULL;
    mica_encoder *e = NULL;
    (void)state;
    must(mica_device_open("null", NULL, &device));
    must(mica_encoder_begin(device, NULL, &e));
    mica_buffer *f = fresh(device, MICA_DTYPE_F32, 2, 2), *i = fresh(device, MICA_DTYPE_I32, 2, 2);
    mica_buffer *b = fresh(device, MICA_DTYPE_BOOL, 2, 2), *c = fresh(device, MICA_DTYPE_C64, 2, 2);
#define SAYS(call, first, second)                                                                          \
    do {                                                                                                   \
        assert_int_equal((call), MICA_ERR_INVALID_ARGUMENT);                                               \
        if (strstr(mica_status_message(), first) == NULL || strstr(mica_status_message(), second) == NULL) \
            fail_msg("not '%s' and '%s': %s", first, second, mica_status_message());                       \
    } while (0)
    SAYS(mica_add(e, f, i, f), "add: b is i32", "a is f32");
    SAYS(mica_add(e, b, b, b), "add: a is bool", "does not take");
    SAYS(mica_add(e, f, c, f), "add: b is c64", "does not take");
    SAYS(mica_add(e, f, f, i), "add: y is i32", "register f32");
    SAYS(mica_add(e, f, f, c), "add: y is c64", "one value");
    SAYS(mica_less(e, f, f, f), "less: y is f32", "register bool");
    SAYS(mica_select(e, f, f, f, f), "select: a is f32", "does not take");
    SAYS(mica_select(e, b, f, i, f), "select: c is i32", "b is f32");
    SAYS(mica_silu(e, i, i), "silu: a is i32", "does not take");
    SAYS(mica_silu_mul(e, f, i, f), "silu_mul: up is i32", "register f32");
    SAYS(mica_sigmoid_mul(e, f, i, f), "sigmoid_mul: up is i32", "register f32");
    SAYS(mica_clipped_swiglu(e, f, f, 1.702f, 0, f), "clipped_swiglu: alpha", "limit 0");
    SAYS(mica_clipped_swiglu(e, f, f, NAN, 7, f), "clipped_swiglu: alpha is nan", "limit 7");
    SAYS(mica_leaky_relu(e, f, INFINITY, f), "leaky_relu: slope is inf", "finite");
    SAYS(mica_elu(e, f, NAN, f), "elu: alpha is nan", "finite");
    SAYS(mica_elu(e, i, 1, i), "elu: x is i32", "register f32");
    SAYS(mica_clamp(e, f, 1, 0, f), "clamp: low is 1", "high 0");
    SAYS(mica_clamp(e, f, NAN, 0, f), "clamp: low is nan", "high 0");
    SAYS(mica_clamp(e, c, 0, 1, c), "clamp: x is c64", "does not take");
    SAYS(mica_clamp(e, b, 0, 1, b), "clamp: x is bool", "does not take");
    SAYS(mica_clamp(e, f, 0, 1, i), "clamp: y is i32", "register f32");
    SAYS(mica_fill(e, 2, b), "fill: value 2", "bool");
    SAYS(mica_advance(e, 1, f), "advance: counters is f32", "integer");
#undef SAYS
    must(mica_select(e, b, i, i, i));
    mica_buffer_release(f);
    mica_buffer_release(i);
    mica_buffer_release(b);
    mica_buffer_release(c);
    mica_encoder_release(e);
    mica_device_release(device);
}

/* A scalar without an oracle fails here, by its name. */
static void test_formulas(void **state)
{
    (void)state;
    for (uint32_t scalar = 1; scalar < MICA_SCALAR_COUNT; scalar++)
        if (!oracle_scalar_known(mica_scalar_name(scalar)))
            fail_msg("%s has no formula in tests/oracle/oracle_scalar.c", mica_scalar_name(scalar));
    assert_string_equal(mica_scalar_name(MICA_SCALAR_COUNT), "none");
    assert_string_equal(mica_scalar_name(0), "none");
}

static void test_info(void **state)
{
    mica_scalar_info info;
    (void)state;
    must(mica_scalar_get_info(MICA_SCALAR_LESS, &info));
    assert_int_equal(info.values, 2);
    assert_true((info.in >> MICA_REGISTER_U64 & 1) == 1 && (info.in >> MICA_REGISTER_BOOL & 1) == 0);
    assert_int_equal(info.out, 1u << MICA_REGISTER_BOOL);
    assert_true(info.operations == 1 && info.is_op == 1 && info.derivative == 0);
    must(mica_scalar_get_info(MICA_SCALAR_SOFTCAP, &info));
    assert_true(info.values == 2 && info.in == (1u << MICA_REGISTER_F32 | 1u << MICA_REGISTER_F64));
    assert_true(info.out == 0 && info.is_op == 0 && info.derivative == 1);
    refused(mica_scalar_get_info(0, &info), MICA_ERR_INVALID_ARGUMENT, "scalar is 0");
    refused(mica_scalar_get_info(MICA_SCALAR_COUNT, &info), MICA_ERR_INVALID_ARGUMENT, "scalar");
    assert_int_equal(info.values, 0);
    refused(mica_scalar_get_info(MICA_SCALAR_ADD, NULL), MICA_ERR_INVALID_ARGUMENT, "out_info");
}

/* An oracle that leaves everything open would judge nothing. */
static void test_open(void **state)
{
    static const char *const rows[] = {"region", "scalar"};
    (void)state;
    for (uint32_t r = 0; r < 2; r++) {
        uint64_t open = 0, all = 0;
        for (uint32_t i = 0; i < conform_table_count; i++) {
            if (strcmp(conform_table[i].name, rows[r]) != 0)
                continue;
            for (uint64_t seed = 1; seed <= 100; seed++) {
                conform_case c;
                conform_case_make(&c, &conform_table[i], seed, false);
                conform_case_expect(&c);
                const uint64_t count =
                    2 * c.params.region.desc.output_count * conform_tensor(&c, c.output)->count;
                for (uint64_t v = 0; v < count; v++)
                    open += ((oracle_value *)c.wanted_values)[v].open;
                all += count;
                conform_case_free(&c);
            }
        }
        assert_true(all > 10000);
        if (open * 10 > all)
            fail_msg("%s: %llu of %llu values are open", rows[r], (unsigned long long)open,
                     (unsigned long long)all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_descriptions), cmocka_unit_test(test_operands),
                                       cmocka_unit_test(test_scalar_types), cmocka_unit_test(test_formulas),
                                       cmocka_unit_test(test_info),         cmocka_unit_test(test_open)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
