/* Regions on GPUs: what is in the text of a program and what is not, the code of the interpreting kernel, and which of the two a
 * record gets. White-box: src/backend/gpu/gpu_region.h. Results are compared by the conformance table. */
#include "device_test.h"

#include "backend/gpu/gpu_region.h"
#include "backend/op_table.h"
#include "backend/planning.h"

enum { NO = MICA_REGION_NONE, F32 = MICA_REGISTER_F32 };

/* A record of contiguous f32 operands, which tests bend. */
typedef struct sample {
    mica__operand operand[MICA__GPU_REGION_OPERANDS];
    mica__record record;
    mica__region_room room; /* last, as it has no end */
} sample;

static mica__plan plan;
static mica__device_info info = {.target = "MK_CUDA", .params_bytes = 4096, .processors = 100};

static uint8_t add_step(sample *s, uint8_t scalar, uint8_t type, uint8_t a, uint8_t b)
{
    mica__region_program *p = &s->room.program;
    p->step[p->step_count] = (mica_region_step){.scalar = scalar, .type = type, .value = {a, b, NO}};
    return (uint8_t)(p->input_count + p->step_count++);
}

static void set_shape(mica__operand *o, uint64_t rows, uint64_t columns, uint64_t row_stride)
{
    o->ndim = 2;
    o->shape[0] = rows;
    o->shape[1] = columns;
    o->stride[0] = row_stride;
    o->stride[1] = mica_dtype_block_bytes((mica_dtype)o->dtype);
}

static void begin(sample *s, uint32_t inputs, uint32_t outputs, uint64_t elements)
{
    memset(s, 0, sizeof *s);
    mica__region_begin(&s->room.program, inputs, outputs);
    memset(s->room.program.input, F32, inputs);
    for (uint32_t o = 0; o < inputs + outputs; o++) {
        s->operand[o].dtype = MICA_DTYPE_F32;
        s->operand[o].access = o < inputs ? MICA_ACCESS_READ : MICA_ACCESS_WRITE;
        set_shape(&s->operand[o], 1, elements, 4 * elements);
    }
    s->record = (mica__record){.op = MICA_OP_REGION,
                               .operand_count = (uint16_t)(inputs + outputs),
                               .operand = s->operand,
                               .params = &s->room};
}

/* y = (a + 2) * b */
static void begin_usual(sample *s, uint64_t elements, float constant)
{
    begin(s, 2, 1, elements);
    const uint8_t two = add_step(s, MICA_SCALAR_CONSTANT, F32, NO, NO);
    s->room.program.step[0].constant.f32 = constant;
    const uint8_t sum = add_step(s, MICA_SCALAR_ADD, F32, 0, two);
    s->room.program.output[0] = add_step(s, MICA_SCALAR_MUL, F32, sum, 1);
}

static mica_status plan_of(sample *s, bool reusable, bool interpreted)
{
    s->record.params_size = (uint16_t)mica__region_bytes(s->room.program.step_count);
    must(mica__planning_begin(&plan, &s->record));
    plan.reusable = reusable;
    return interpreted ? mica__gpu_plan_interpreted(&s->record, &info, &plan)
                       : mica__gpu_plan_region(&s->record, &info, &plan);
}

/* The key of the kernel that is made for it, to be freed with `free`. */
static char *key_of(sample *s)
{
    must(plan_of(s, true, false));
    assert_int_equal(plan.dispatch_count, 1);
    assert_int_equal(plan.status, MICA_OK);
    return strdup(mica__planning_key(&plan, &plan.dispatch[0]));
}

static void same_key(sample *a, sample *b, bool same)
{
    char *first = key_of(a), *second = key_of(b);
    if ((strcmp(first, second) == 0) != same)
        fail_msg("%s\n%s", first, second);
    free(first);
    free(second);
}

#define MANY ((uint64_t)1 << 24)

static void the_key_is_the_structure(void **state)
{
    sample a, b;
    (void)state;
    begin_usual(&a, MANY, 2.0f);
    begin_usual(&b, MANY, 3.0f);
    same_key(&a, &b, true); /* another constant */
    begin_usual(&b, MANY + 4096, 2.0f);
    same_key(&a, &b, true); /* another shape */
    b.room.program.step[2].scalar = MICA_SCALAR_DIV;
    same_key(&a, &b, false);
    begin_usual(&b, MANY, 2.0f);
    b.room.program.step[2].value[1] = 0;
    same_key(&a, &b, false);
    begin_usual(&b, MANY, 2.0f);
    b.operand[1].dtype = MICA_DTYPE_F16;
    set_shape(&b.operand[1], 1, MANY, 2 * MANY);
    same_key(&a, &b, false); /* memory of another type */
    begin_usual(&b, MANY, 2.0f);
    b.operand[1].stride[1] = 0;
    same_key(&a, &b, false); /* one element for all */
    for (uint32_t o = 0; o < 3; o++) {
        set_shape(&a.operand[o], 4096, 1024, 4 * 2048 + 64 * o);
        set_shape(&b.operand[o], 2048, 2048, 4 * 4096 + 128 * o);
    }
    same_key(&a, &b, true); /* rows of any length at any stride */
    set_shape(&b.operand[0], 2048, 2048, 4 * 2050);
    same_key(&a, &b, false); /* rows that do not begin at 16 bytes */
    mica__planning_end(&plan);
}

static void constants_are_parameters(void **state)
{
    sample s;
    (void)state;
    begin_usual(&s, MANY, 1.5f);
    must(plan_of(&s, true, false));
    const mica__plan_dispatch *d = &plan.dispatch[0];
    const uint64_t *word = (const uint64_t *)(const void *)(plan.params + d->params_offset);
    assert_string_equal(d->kernel, "region/region");
    assert_int_equal(d->params_size, 16); /* the constant, the number of elements */
    assert_int_equal(word[0], 0x3fc00000);
    assert_int_equal(word[1], MANY);
    assert_null(strstr(mica__planning_key(&plan, d), "1.5"));
    assert_int_equal(d->groups[0], MANY / (256 * 4 * 4));
    info.params_bytes = 32; /* beside three bindings there is no room */
    must(plan_of(&s, true, false));
    assert_non_null(strstr(mica__planning_key(&plan, &plan.dispatch[0]), "|MK_FAR=1"));
    info.params_bytes = 4096;
    mica__planning_end(&plan);
}

/* Constants of a program are parted by '|': a formula that has one would be cut. */
static void formulas_have_no_bar(void **state)
{
    (void)state;
#define STEP(...)
#define STEP_OF(name, arity, in, out, operations, vector, plain, kernel, formula, domain, derivative) \
    assert_null(strchr(#kernel, '|'));
#define PUBLIC STEP_OF
#include "backend/scalars.def"
#undef STEP
#undef STEP_OF
#undef PUBLIC
}

/* Every program fits: the longest formula in every step, all operands. */
static void the_longest_text_fits(void **state)
{
    sample s;
    (void)state;
    begin(&s, MICA_REGION_INPUTS, MICA_REGION_OUTPUTS, MANY);
    for (uint32_t i = 0; i < MICA_REGION_STEPS; i++)
        add_step(&s, MICA_SCALAR_ROUND_F8_E4M3, F32, 15, NO);
    memset(s.room.program.output, 79, MICA_REGION_OUTPUTS);
    char *key = key_of(&s);
    assert_non_null(strstr(key, "|BATCH=1"));
    free(key);
    mica__planning_end(&plan);
}

static void which_kernel(void **state)
{
    sample s;
    (void)state;
    begin_usual(&s, 1000, 1);
    assert_int_equal(plan_of(&s, true, false), MICA_ERR_KERNEL_NOT_FOUND);
    begin_usual(&s, 2048, 1); /* a token's row */
    assert_int_equal(plan_of(&s, true, false), MICA_OK);
    begin_usual(&s, 1 << 16, 1);
    assert_int_equal(plan_of(&s, true, false), MICA_OK);
    assert_int_equal(plan_of(&s, false, false), MICA_ERR_KERNEL_NOT_FOUND);
    must(plan_of(&s, false, true));
    assert_string_equal(mica__planning_key(&plan, &plan.dispatch[0]), "interpret/floats");
    assert_int_equal(plan.dispatch[0].groups[0], (1 << 16) / 1024);
    s.operand[0].dtype = MICA_DTYPE_F8_E5M2;
    set_shape(&s.operand[0], 1, 1 << 16, 1 << 16);
    must(plan_of(&s, false, true));
    assert_string_equal(mica__planning_key(&plan, &plan.dispatch[0]), "interpret/wide|WIDE=1");
    begin(&s, 4, 1, 100);
    s.room.program.output[0] = 3;
    must(plan_of(&s, false, true));
    assert_string_equal(mica__planning_key(&plan, &plan.dispatch[0]), "interpret/floats|LARGE=1");
    mica__planning_end(&plan);
}

static void what_a_device_has_not(void **state)
{
    sample s;
    (void)state;
    begin_usual(&s, MANY, 1);
    s.operand[2].dtype = MICA_DTYPE_F64; /* what the table says of operands is looked at before any plan */
    refused(mica__op_is_served(&s.record, false), MICA_ERR_UNSUPPORTED, "f64");
    must(mica__op_is_served(&s.record, true));
    s.operand[2].dtype = MICA_DTYPE_F32;
    s.room.program.step[2].type = MICA_REGISTER_F64; /* between f32 operands */
    refused(plan_of(&s, true, false), MICA_ERR_UNSUPPORTED, "f64");
    refused(plan_of(&s, true, true), MICA_ERR_UNSUPPORTED, "f64");
    info.features = MICA__FEATURE_F64;
    must(plan_of(&s, true, true));
    info.features = 0;
    s.room.program.step[2].type = F32;
    s.operand[2].dtype = MICA_DTYPE_Q4_0;
    refused(plan_of(&s, true, true), MICA_ERR_UNSUPPORTED, "operand 2 is q4_0");
    mica__planning_end(&plan);
}

/* ---- code ---- */

static mk_interpret_large code;

static uint32_t slots_of(const sample *s)
{
    memset(&code, 0, sizeof code);
    return mica__gpu_region_code(&s->room.program, &code);
}

static void a_chain_needs_no_slot(void **state)
{
    sample s;
    (void)state;
    begin_usual(&s, 1, 1);
    assert_int_equal(slots_of(&s), 0);
    assert_int_equal(code.step_count, 2);
    assert_int_equal(code.code[0][1] & 0xffff, 0 | MK_GIVEN << 8);
    assert_int_equal(code.code[1][1] & 0xffff, MK_LAST | 1 << 8);
    assert_int_equal(code.result[0] & 255, MK_LAST);
}

/* A slot is free again behind the last step that reads it. */
static void slots_are_used_again(void **state)
{
    sample s;
    (void)state;
    begin(&s, 1, 1, 1);
    uint8_t v = 0;
    for (uint32_t i = 0; i < 20; i++) {
        const uint8_t kept = add_step(&s, MICA_SCALAR_NEG, F32, v, NO);
        const uint8_t other = add_step(&s, MICA_SCALAR_ABS, F32, kept, NO);
        v = add_step(&s, MICA_SCALAR_ADD, F32, kept, other);
    }
    s.room.program.output[0] = v;
    assert_int_equal(slots_of(&s), 1);
    assert_int_equal(code.step_count, 60);
}

static void what_nobody_reads_is_not_run(void **state)
{
    sample s;
    (void)state;
    begin(&s, 1, 1, 1);
    const uint8_t idle = add_step(&s, MICA_SCALAR_EXP, F32, 0, NO);
    add_step(&s, MICA_SCALAR_ADD, F32, idle, idle);
    s.room.program.output[0] = add_step(&s, MICA_SCALAR_NEG, F32, 0, NO);
    assert_int_equal(slots_of(&s), 0);
    assert_int_equal(code.step_count, 1);
    assert_int_equal(code.code[0][0] & 255, MICA_SCALAR_NEG);
}

/* Outputs may be the memory of inputs: both are read before the first is written. */
static void inputs_are_read_before_outputs_are_written(void **state)
{
    sample s;
    (void)state;
    begin(&s, 2, 2, 1);
    s.room.program.output[0] = 1;
    s.room.program.output[1] = 0;
    assert_int_equal(slots_of(&s), 2);
    assert_int_equal(code.step_count, 2);
    assert_int_equal(code.result[0] & 255, MK_SLOT);
    assert_int_equal(code.result[1] & 255, MK_SLOT + 1);
    begin(&s, 2, 2, 1);
    s.room.program.output[0] = add_step(&s, MICA_SCALAR_ADD, F32, 0, 1);
    s.room.program.output[1] = 0;
    assert_int_equal(slots_of(&s), 2);
    assert_int_equal(code.result[0] & 255, MK_SLOT); /* not MK_LAST: the input is read behind it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(the_key_is_the_structure),
        test(constants_are_parameters),
        test(formulas_have_no_bar),
        test(the_longest_text_fits),
        test(which_kernel),
        test(what_a_device_has_not),
        test(a_chain_needs_no_slot),
        test(slots_are_used_again),
        test(what_nobody_reads_is_not_run),
        test(inputs_are_read_before_outputs_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
