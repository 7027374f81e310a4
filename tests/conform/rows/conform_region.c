/*
 * conform_region.c - random programs as regions, and every function that makes a region: each scalar's own, gates, fills.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/region.h"
#include "oracle/oracle_number.h"
#include "oracle/oracle_region.h"

#define MOST 2000u
#define NONE MICA_REGION_NONE

/* ---- operands ---- */

static const char *const input_names[MICA_REGION_INPUTS] = {
    "inputs[0]",  "inputs[1]",  "inputs[2]",  "inputs[3]", "inputs[4]",  "inputs[5]",
    "inputs[6]",  "inputs[7]",  "inputs[8]",  "inputs[9]", "inputs[10]", "inputs[11]",
    "inputs[12]", "inputs[13]", "inputs[14]", "inputs[15]"};
static const char *const output_names[MICA_REGION_OUTPUTS] = {"outputs[0]", "outputs[1]", "outputs[2]",
                                                              "outputs[3]", "outputs[4]", "outputs[5]",
                                                              "outputs[6]", "outputs[7]"};

static mica_dtype draw_dtype(test_random *random, uint8_t type)
{
    static const mica_dtype plain[] = {MICA_DTYPE_NONE, MICA_DTYPE_F32, MICA_DTYPE_F64, MICA_DTYPE_I32,
                                       MICA_DTYPE_U32,  MICA_DTYPE_I64, MICA_DTYPE_U64, MICA_DTYPE_BOOL};
    static const mica_dtype small[][5] = {
        [MICA_REGISTER_F32] = {MICA_DTYPE_F16, MICA_DTYPE_BF16, MICA_DTYPE_F8_E4M3, MICA_DTYPE_F8_E5M2,
                               MICA_DTYPE_E8M0},
        [MICA_REGISTER_I32] = {MICA_DTYPE_I8, MICA_DTYPE_I16, MICA_DTYPE_I8, MICA_DTYPE_I16, MICA_DTYPE_I32},
        [MICA_REGISTER_U32] = {MICA_DTYPE_U8, MICA_DTYPE_U16, MICA_DTYPE_U8, MICA_DTYPE_U16, MICA_DTYPE_U32}};
    const bool has_small =
        type == MICA_REGISTER_F32 || type == MICA_REGISTER_I32 || type == MICA_REGISTER_U32;

    if (has_small && test_random_one_in(random, 2))
        return small[type][test_random_below(random, 5)];
    return plain[type];
}

static uint8_t draw_register(test_random *random, uint32_t set)
{
    uint8_t type;

    if ((set & MICA__SET_F32) != 0 && test_random_one_in(random, 2))
        return MICA_REGISTER_F32;
    do
        type = (uint8_t)(1 + test_random_below(random, MICA_REGISTER_COUNT - 1));
    while ((set >> type & 1) == 0);
    return type;
}

bool conform_kernels;

/* What a scalar takes on the device. */
static uint32_t set_of(const mica__scalar_info *info)
{
    return conform_kernels ? info->kernel_in : info->in;
}

static uint32_t draw_shape(test_random *random, uint64_t *shape)
{
    const uint32_t ndim = (uint32_t)test_random_below(random, MICA_MAX_DIMS + 1);

    conform_shape(random, ndim, test_random_one_in(random, 8) ? 6 * MOST : MOST, shape);
    return ndim;
}

/* A shape that broadcasts to `shape`: leading dimensions may be missing, sizes may be 1. */
static uint32_t draw_broadcast(test_random *random, uint32_t ndim, const uint64_t *shape, uint64_t *own)
{
    const uint32_t skip = (uint32_t)test_random_below(random, ndim + 1);

    for (uint32_t i = 0; i < ndim - skip; i++)
        own[i] = test_random_one_in(random, 4) ? 1 : shape[skip + i];
    return ndim - skip;
}

/* One element: mostly plain numbers, of integers of any size, now and then what others trip over or any bits. */
static void draw_element(test_random *random, mica_dtype dtype, uint8_t *element)
{
    static const double specials[] = {0,     -0.0,   INFINITY, -INFINITY, NAN,   1e-40,
                                      65520, 3.4e38, 1,        -1,        464.5, -89 /* e^89 is infinite */};
    const size_t bytes = oracle_block_bytes(dtype);
    uint64_t word = test_random_next(random);

    if (test_random_one_in(random, 30)) {
        memcpy(element, &word, bytes);
        return;
    }
    switch (mica_register_of(dtype)) {
    case MICA_REGISTER_F32:
        if (dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16) {
            const double value = 2 * test_random_normal(random);
            oracle_put(dtype, test_random_one_in(random, 40) ? specials[word % 12] : value, element);
            return;
        }
        if (dtype == MICA_DTYPE_C64) {
            for (int part = 0; part < 2; part++)
                oracle_put(MICA_DTYPE_F32, 2 * test_random_normal(random), element + 4 * part);
            return;
        }
        /* codes of about 1, of either sign */
        word = dtype == MICA_DTYPE_E8M0 ? 120 + word % 12 : (word & 0x80) | (0x28 + word % 20);
        break;
    case MICA_REGISTER_F64:
        oracle_put(dtype,
                   test_random_one_in(random, 40) ? specials[word % 12] : 2 * test_random_normal(random),
                   element);
        return;
    case MICA_REGISTER_BOOL: word = test_random_one_in(random, 2) ? 0 : word | 1; break;
    default: word = test_random_one_in(random, 4) ? word : word % 100 - 30;
    }
    memcpy(element, &word, bytes);
}

static void fill_input(conform_case *c, uint32_t slot, test_random *random)
{
    test_tensor *tensor = conform_tensor(c, slot);

    for (uint64_t i = 0; i < tensor->count; i++)
        draw_element(random, tensor->dtype, tensor->image + test_tensor_place(tensor, i));
}

/* An input that may repeat; where an output may be it, of its own shape. */
static void add_input(conform_case *c, test_random *random, const char *name, mica_dtype dtype, uint32_t ndim,
                      const uint64_t *shape, bool hosts)
{
    uint64_t own[MICA_MAX_DIMS];

    memcpy(own, shape, ndim * sizeof *shape);
    if (!hosts && test_random_one_in(random, 3))
        ndim = draw_broadcast(random, ndim, shape, own);
    conform_add(c, random, name, dtype, ndim, own,
                hosts                           ? TEST_ANY
                : test_random_one_in(random, 3) ? TEST_CONTIGUOUS
                                                : TEST_REPEAT);
    fill_input(c, c->operand_count - 1, random);
    c->bytes += conform_bytes(c, c->operand_count - 1);
}

/* ---- random programs ---- */

typedef struct drawn {
    conform_region *region;
    uint8_t type[MICA_REGION_INPUTS + MICA_REGION_STEPS];
    bool pair[MICA_REGION_INPUTS];
    uint32_t count;
    uint32_t ndim;
} drawn;

/* A value whose type is in the set, NONE if there is none; mostly a late one. */
static uint8_t draw_value(const drawn *d, test_random *random, uint32_t set)
{
    for (uint32_t turn = 0; turn < 12 && d->count > 0; turn++) {
        const uint32_t back = test_random_one_in(random, 2) && d->count > 4 ? 4 : d->count;
        const uint32_t v = d->count - 1 - (uint32_t)test_random_below(random, back);
        if ((set >> d->type[v] & 1) != 0)
            return (uint8_t)v;
    }
    return NONE;
}

static void push(drawn *d, mica_region_step step)
{
    d->region->step[d->region->desc.step_count++] = step;
    d->type[d->count++] = step.type;
}

static void push_constant(drawn *d, test_random *random, uint8_t type)
{
    mica_region_step step = {MICA_SCALAR_CONSTANT, type, {NONE, NONE, NONE}, 0, {0}, {0}};

    switch (type) {
    case MICA_REGISTER_F32: step.constant.f32 = (float)test_random_normal(random); break;
    case MICA_REGISTER_F64: step.constant.f64 = test_random_normal(random); break;
    case MICA_REGISTER_BOOL: step.constant.u64 = test_random_below(random, 2); break;
    case MICA_REGISTER_I32:
    case MICA_REGISTER_I64: step.constant.i64 = (int64_t)test_random_below(random, 100) - 50; break;
    default: step.constant.u64 = test_random_below(random, 100);
    }
    push(d, step);
}

static uint8_t draw_result(test_random *random, uint8_t scalar, const mica__scalar_info *info, uint8_t in)
{
    uint8_t type;

    if (info->out == 0)
        return in;
    do
        type = draw_register(random, info->out);
    while (scalar == MICA_SCALAR_BITS && mica__register_bytes(type) != mica__register_bytes(in));
    return type;
}

/* One step of what is there; a constant where nothing fits. */
static void draw_step(drawn *d, test_random *random)
{
    mica_region_step step = {.value = {NONE, NONE, NONE}};
    const uint8_t scalar = (uint8_t)(1 + test_random_below(random, MICA_SCALAR_COUNT - 1));
    const mica__scalar_info *info = mica__scalar_of(scalar);
    uint32_t set = set_of(info), first = scalar == MICA_SCALAR_SELECT;

    step.scalar = scalar;
    for (uint32_t j = 0; j < info->arity; j++) {
        step.value[j] = draw_value(d, random, j < first ? MICA__SET_BOOL : set);
        if (step.value[j] == NONE ||
            (scalar == MICA_SCALAR_IMAG &&
             (step.value[j] >= d->region->desc.input_count || !d->pair[step.value[j]]))) {
            push_constant(d, random, draw_register(random, j < first ? MICA__SET_BOOL : set));
            return;
        }
        if (j == first)
            set = 1u << d->type[step.value[j]];
    }
    if (scalar == MICA_SCALAR_CONSTANT || (scalar == MICA_SCALAR_INDEX && d->ndim == 0)) {
        push_constant(d, random, draw_register(random, info->out));
        return;
    }
    step.type = draw_result(random, scalar, info, info->arity > 0 ? d->type[step.value[first]] : 0);
    if (scalar == MICA_SCALAR_INDEX)
        step.axis = (uint8_t)test_random_below(random, d->ndim);
    push(d, step);
}

/* The input that output o may be, or UINT32_MAX. */
static uint32_t find_host(const conform_case *c, const drawn *d, uint8_t value, const bool *hosts)
{
    for (uint32_t i = 0; i < d->region->desc.input_count; i++)
        if (hosts[i] && !d->pair[i] && d->region->desc.input[i] == d->type[value] && !c->operand[i].written)
            return i;
    return UINT32_MAX;
}

static void draw_outputs(conform_case *c, const drawn *d, test_random *random, const uint64_t *shape,
                         const bool *hosts)
{
    mica_region_desc *desc = &d->region->desc;

    for (uint32_t o = 0; o < desc->output_count; o++) {
        const uint8_t value = draw_value(d, random, MICA__SET_ANY),
                      imag = draw_value(d, random, MICA__SET_F32);
        const uint32_t host = find_host(c, d, value, hosts);
        mica_dtype dtype = draw_dtype(random, d->type[value]);

        desc->output[o] = value;
        desc->output_imag[o] = NONE;
        if (d->type[value] == MICA_REGISTER_F32 && imag != NONE && host == UINT32_MAX &&
            test_random_one_in(random, 6)) {
            dtype = MICA_DTYPE_C64;
            desc->output_imag[o] = imag;
        }
        conform_add_output(c, random, output_names[o], dtype, d->ndim, shape, TEST_ANY, host != UINT32_MAX,
                           host);
        c->bytes += conform_bytes(c, c->output);
    }
}

void conform_make_region(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS];
    const bool wide = test_random_one_in(random, 8), many = test_random_one_in(random, 8);
    bool hosts[MICA_REGION_INPUTS];
    drawn d = {.region = &c->params.region, .ndim = draw_shape(random, shape)};
    mica_region_desc *desc = &d.region->desc;

    desc->input_count = (uint32_t)test_random_below(random, wide ? MICA_REGION_INPUTS + 1 : 5);
    desc->output_count = 1 + (uint32_t)test_random_below(random, wide ? MICA_REGION_OUTPUTS : 3);
    for (uint32_t i = 0; i < desc->input_count; i++) {
        const uint8_t type = draw_register(random, MICA__SET_ANY);
        hosts[i] = test_random_one_in(random, 3);
        d.pair[i] = type == MICA_REGISTER_F32 && test_random_one_in(random, 6);
        desc->input[i] = d.type[d.count++] = type;
        add_input(c, random, input_names[i], d.pair[i] ? MICA_DTYPE_C64 : draw_dtype(random, type), d.ndim,
                  shape, hosts[i]);
    }
    uint32_t steps = (uint32_t)test_random_below(random, many ? MICA_REGION_STEPS + 1 : 9);
    if (desc->input_count + steps == 0)
        steps = 1;
    while (desc->step_count < steps)
        draw_step(&d, random);
    draw_outputs(c, &d, random, shape, hosts);
}

mica_status conform_encode_region(const conform_case *c, mica_encoder *encoder)
{
    mica_region_desc desc = c->params.region.desc;
    mica_buffer *buffer[MICA_REGION_INPUTS + MICA_REGION_OUTPUTS];
    mica_region *region = NULL;

    desc.step = c->params.region.step;
    for (uint32_t i = 0; i < c->operand_count; i++)
        buffer[i] = conform_buffer(c, i);
    mica_status status = mica_region_create(&desc, &region);
    if (status == MICA_OK)
        status = mica_region_apply(encoder, region, buffer, buffer + desc.input_count);
    mica_region_release(region);
    return status;
}

/* ---- the functions, each in its turn ---- */

typedef struct call {
    uint8_t scalar; /* or NONE: made by hand */
    union {
        mica_status (*one)(mica_encoder *, mica_buffer *, mica_buffer *);
        mica_status (*two)(mica_encoder *, mica_buffer *, mica_buffer *, mica_buffer *);
        mica_status (*three)(mica_encoder *, mica_buffer *, mica_buffer *, mica_buffer *, mica_buffer *);
    } as;
} call;

#define AS_1(name)  \
    {               \
        .one = name \
    }
#define AS_2(name)  \
    {               \
        .two = name \
    }
#define AS_3(name)    \
    {                 \
        .three = name \
    }
#define STEP(...)
#define STEP_OF(...)
#define PUBLIC(name, arity, ...) {MICA__SCALAR_##name, AS_##arity(mica_##name)},
static const call calls[] = {
#include "backend/scalars.def"
};
#define CALLS (sizeof calls / sizeof *calls)
enum {
    SILU_MUL = CALLS,
    GELU_MUL,
    SIGMOID_MUL,
    QUICK_GELU_MUL,
    RELU_SQUARED_MUL,
    CLIPPED_SWIGLU,
    SOFTCAP,
    LEAKY_RELU,
    ELU,
    CLAMP,
    FILL,
    ADVANCE,
    ALL_CALLS
};

const uint32_t conform_scalar_calls = ALL_CALLS;

static uint8_t add_step(conform_region *region, uint8_t scalar, uint8_t type, uint8_t a, uint8_t b, uint8_t c)
{
    region->step[region->desc.step_count] = (mica_region_step){scalar, type, {a, b, c}, 0, {0}, {0}};
    return (uint8_t)(region->desc.input_count + region->desc.step_count++);
}

/* Program of `inputs` in, one out; the types of both. Returns the type of the result. */
static uint8_t describe_scalar(conform_region *region, test_random *random, const call *which)
{
    const mica__scalar_info *info = mica__scalar_of(which->scalar);
    const uint8_t type = draw_register(random, set_of(info)),
                  out = info->out == 0 ? type : MICA_REGISTER_BOOL;

    region->desc.input_count = info->arity;
    for (uint32_t i = 0; i < info->arity; i++)
        region->desc.input[i] = type;
    if (which->scalar == MICA_SCALAR_SELECT)
        region->desc.input[0] = MICA_REGISTER_BOOL;
    add_step(region, which->scalar, out, 0, info->arity > 1 ? 1 : NONE, info->arity > 2 ? 2 : NONE);
    return out;
}

static uint8_t add_constant(conform_region *region, uint8_t type, double value)
{
    const uint32_t step = region->desc.step_count;
    const uint8_t v = add_step(region, MICA_SCALAR_CONSTANT, type, NONE, NONE, NONE);

    if (type == MICA_REGISTER_F32)
        region->step[step].constant.f32 = (float)value;
    else if (type == MICA_REGISTER_F64)
        region->step[step].constant.f64 = value;
    else
        region->step[step].constant.i64 = (int64_t)value;
    return v;
}

static void describe_gate(conform_region *region)
{
    static const uint8_t acts[] = {MICA_SCALAR_SILU, MICA_SCALAR_GELU, MICA_SCALAR_SIGMOID,
                                   MICA_SCALAR_QUICK_GELU, MICA_SCALAR_RELU_SQUARED};
    const uint8_t f32 = MICA_REGISTER_F32;

    region->desc.input_count = 2;
    region->desc.input[0] = region->desc.input[1] = f32;
    const uint8_t v = add_step(region, acts[region->call - SILU_MUL], f32, 0, NONE, NONE);
    add_step(region, MICA_SCALAR_MUL, f32, v, 1, NONE);
}

/* (clamp(up, -limit, limit) + 1) * g * sigmoid(1.5 g), g = min(gate, limit). */
static void describe_clipped_swiglu(conform_region *region, test_random *random)
{
    const uint8_t f32 = MICA_REGISTER_F32;

    region->number = (float)test_random_uniform(random, 0.5, 8);
    region->desc.input_count = 2;
    region->desc.input[0] = region->desc.input[1] = f32;
    const uint8_t limit = add_constant(region, f32, region->number),
                  below = add_constant(region, f32, -region->number);
    const uint8_t g = add_step(region, MICA_SCALAR_MIN, f32, 0, limit, NONE);
    uint8_t u = add_step(region, MICA_SCALAR_MAX, f32, 1, below, NONE);
    u = add_step(region, MICA_SCALAR_MIN, f32, u, limit, NONE);
    u = add_step(region, MICA_SCALAR_ADD, f32, u, add_constant(region, f32, 1), NONE);
    uint8_t v = add_step(region, MICA_SCALAR_MUL, f32, g, add_constant(region, f32, 1.5), NONE);
    v = add_step(region, MICA_SCALAR_SIGMOID, f32, v, NONE, NONE);
    v = add_step(region, MICA_SCALAR_MUL, f32, g, v, NONE);
    add_step(region, MICA_SCALAR_MUL, f32, u, v, NONE);
}

/* clamp to half the number below 0 and the number above. */
static uint8_t describe_clamp(conform_region *region, test_random *random)
{
    const uint8_t type = draw_register(random, MICA__SET_NUMBER);
    const bool no_sign = type == MICA_REGISTER_U32 || type == MICA_REGISTER_U64;

    region->number = (double)(2 * test_random_below(random, 20));
    region->desc.input_count = 1;
    region->desc.input[0] = type;
    const uint8_t low = add_constant(region, type, no_sign ? 0 : -region->number / 2),
                  high = add_constant(region, type, region->number);
    const uint8_t v = add_step(region, MICA_SCALAR_MAX, type, 0, low, NONE);
    add_step(region, MICA_SCALAR_MIN, type, v, high, NONE);
    return type;
}

static uint8_t describe_number(conform_region *region, test_random *random, uint8_t scalar)
{
    const uint8_t type = draw_register(random, set_of(mica__scalar_of(scalar)));

    region->desc.input_count = 1;
    region->desc.input[0] = type;
    region->number = (float)test_random_uniform(random, 0.5, 50);
    add_step(region, scalar, type, 0, add_constant(region, type, region->number), NONE);
    return type;
}

static uint8_t describe_hand(conform_region *region, test_random *random)
{
    uint8_t type, v;

    switch (region->call) {
    case CLIPPED_SWIGLU: describe_clipped_swiglu(region, random); return MICA_REGISTER_F32;
    case SOFTCAP: return describe_number(region, random, MICA_SCALAR_SOFTCAP);
    case LEAKY_RELU: return describe_number(region, random, MICA_SCALAR_LEAKY_RELU);
    case ELU: return describe_number(region, random, MICA_SCALAR_ELU);
    case CLAMP: return describe_clamp(region, random);
    case FILL:
        type = draw_register(random, MICA__SET_ANY);
        add_step(region, MICA_SCALAR_CONSTANT, type, NONE, NONE, NONE);
        return type;
    case ADVANCE:
        type = draw_register(random, MICA__SET_INTEGER);
        region->desc.input_count = 1;
        region->desc.input[0] = type;
        region->number = (double)test_random_below(random, 2001) - 1000;
        v = add_step(region, MICA_SCALAR_CONSTANT, type, NONE, NONE, NONE);
        region->step[0].constant.i64 = (int64_t)region->number;
        add_step(region, MICA_SCALAR_ADD, type, 0, v, NONE);
        return type;
    default: describe_gate(region); return MICA_REGISTER_F32;
    }
}

/* fill's value, in the range of what it goes to; floats of more digits than they have. */
static void draw_fill(conform_region *region, test_random *random, mica_dtype dtype)
{
    const uint8_t type = region->step[0].type;

    region->number = 100 * test_random_normal(random);
    if (type == MICA_REGISTER_BOOL)
        region->number = (double)test_random_below(random, 2);
    else if (type != MICA_REGISTER_F32 && type != MICA_REGISTER_F64)
        region->number = trunc(fabs(fmod(region->number, 100)));
    if (type == MICA_REGISTER_F64)
        region->step[0].constant.f64 = region->number;
    else if (type == MICA_REGISTER_F32) /* the oracle rounds f32 once more: only numbers that f32 holds */
        region->step[0].constant.f32 =
            (float)(region->number = dtype == MICA_DTYPE_F32 ? region->number : (float)region->number);
    else
        region->step[0].constant.u64 = (uint64_t)region->number;
}

void conform_make_scalar(conform_case *c, test_random *random)
{
    static const char *const abc[] = {"a", "b", "c"}, *const gate[] = {"gate", "up"}, *const x[] = {"x"},
                             *const counters[] = {"counters"};
    conform_region *region = &c->params.region;
    uint64_t shape[MICA_MAX_DIMS];
    const uint32_t ndim = draw_shape(random, shape);
    uint8_t out;

    region->call = (uint32_t)(c->number % ALL_CALLS);
    region->desc.output_count = 1;
    out = region->call < CALLS ? describe_scalar(region, random, &calls[region->call])
                               : describe_hand(region, random);
    const uint32_t inputs = region->desc.input_count,
                   on = inputs > 0 ? (uint32_t)test_random_below(random, inputs) : 0;
    const bool advances = region->call == ADVANCE;
    const bool hosts =
        advances || (inputs > 0 && region->desc.input[on] == out && test_random_one_in(random, 3));
    const char *const *names = region->call < CALLS     ? abc
                               : region->call < SOFTCAP ? gate
                               : advances               ? counters
                                                        : x;
    const bool equal = region->call >= CALLS;
    for (uint32_t i = 0; i < inputs; i++)
        add_input(c, random, names[i], draw_dtype(random, region->desc.input[i]), ndim, shape,
                  equal || (hosts && i == on));
    region->desc.output[0] = (uint8_t)(inputs + region->desc.step_count - 1);
    memset(region->desc.output_imag, NONE, sizeof region->desc.output_imag);
    conform_add_output(c, random, "y", draw_dtype(random, out), ndim, shape, TEST_ANY, hosts, on);
    if (region->call == FILL)
        draw_fill(region, random, conform_tensor(c, 0)->dtype);
    if (region->call == ADVANCE && out == MICA_REGISTER_U32)
        region->step[0].constant.u64 &= UINT32_MAX;
    c->bytes += conform_bytes(c, c->output);
}

mica_status conform_encode_scalar(const conform_case *c, mica_encoder *encoder)
{
    const conform_region *region = &c->params.region;
    mica_buffer *b[4] = {NULL};

    for (uint32_t i = 0; i < c->operand_count; i++)
        b[i] = conform_buffer(c, i);
    switch (region->call) {
    case SILU_MUL: return mica_silu_mul(encoder, b[0], b[1], b[2]);
    case GELU_MUL: return mica_gelu_mul(encoder, b[0], b[1], b[2]);
    case SIGMOID_MUL: return mica_sigmoid_mul(encoder, b[0], b[1], b[2]);
    case QUICK_GELU_MUL: return mica_quick_gelu_mul(encoder, b[0], b[1], b[2]);
    case RELU_SQUARED_MUL: return mica_relu_squared_mul(encoder, b[0], b[1], b[2]);
    case CLIPPED_SWIGLU: return mica_clipped_swiglu(encoder, b[0], b[1], 1.5f, (float)region->number, b[2]);
    case SOFTCAP: return mica_softcap(encoder, b[0], (float)region->number, b[1]);
    case LEAKY_RELU: return mica_leaky_relu(encoder, b[0], (float)region->number, b[1]);
    case ELU: return mica_elu(encoder, b[0], (float)region->number, b[1]);
    case CLAMP: return mica_clamp(encoder, b[0], -region->number / 2, region->number, b[1]);
    case FILL: return mica_fill(encoder, region->number, b[0]);
    case ADVANCE: return mica_advance(encoder, (int32_t)region->number, b[0]);
    default: break;
    }
    const call *which = &calls[region->call];
    if (region->desc.input_count == 1)
        return which->as.one(encoder, b[0], b[1]);
    if (region->desc.input_count == 2)
        return which->as.two(encoder, b[0], b[1], b[2]);
    return which->as.three(encoder, b[0], b[1], b[2], b[3]);
}

/* ---- what must come out ---- */

void conform_oracle_region(conform_case *c)
{
    mica_region_desc desc = c->params.region.desc;
    const test_tensor *to = conform_tensor(c, c->output);
    oracle_value *wanted = test_alloc(2 * desc.output_count * to->count, sizeof *wanted), value[NONE],
                 imag[MICA_REGION_INPUTS];

    c->wanted_values = wanted;
    desc.step = c->params.region.step;
    for (uint64_t e = 0; e < to->count; e++) {
        uint64_t index[MICA_MAX_DIMS], rest = e;
        for (uint32_t d = 0; d < to->ndim; d++) {
            index[d] = rest % to->shape[to->ndim - 1 - d];
            rest /= to->shape[to->ndim - 1 - d];
        }
        for (uint32_t i = 0; i < desc.input_count; i++) {
            const test_tensor *from = conform_tensor(c, i);
            value[i] = oracle_region_load(
                from->dtype, from->image + test_tensor_place(from, conform_broadcast_place(from, to, e)),
                &imag[i]);
        }
        oracle_region_run(&desc, index, value, imag);
        for (uint32_t o = 0; o < desc.output_count; o++) {
            const uint8_t second = desc.output_imag[o];
            wanted[(2 * o) * to->count + e] = value[desc.output[o]];
            wanted[(2 * o + 1) * to->count + e] = second != NONE ? value[second] : value[desc.output[o]];
        }
    }
}

bool conform_judge_region(conform_case *c, char *why)
{
    const conform_region *region = &c->params.region;
    const oracle_value *wanted = c->wanted_values;

    for (uint32_t o = 0; o < region->desc.output_count; o++) {
        const test_tensor *y = conform_tensor(c, region->desc.input_count + o);
        for (uint64_t e = 0; e < y->count; e++) {
            const oracle_value *value = &wanted[(2 * o) * y->count + e];
            const uint8_t *got = y->after + test_tensor_place(y, e);
            uint64_t bits = 0;

            if (oracle_region_near(y->dtype, value, value + y->count, got))
                continue;
            memcpy(&bits, got, oracle_block_bytes(y->dtype));
            snprintf(why, CONFORM_TEXT,
                     "element %llu of output %u (value %u, %s of %s, the last step %s) is %.9g (bits %llx), "
                     "the oracle says "
                     "%.9Lg within %.3Lg, word %llx",
                     (unsigned long long)e, o, region->desc.output[o], mica_dtype_name(y->dtype),
                     mica_register_name((mica_register)value->type),
                     region->desc.step_count > 0
                         ? mica_scalar_name(region->step[region->desc.step_count - 1].scalar)
                         : "none",
                     oracle_get(y->dtype, got), (unsigned long long)bits, value->x, value->error,
                     (unsigned long long)value->word);
            return false;
        }
    }
    return true;
}
