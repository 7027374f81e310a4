/*
 * oracle_region.c - the program: loads, steps in their order, what a store may give.
 */
#include "oracle/oracle_region.h"

#include <math.h>
#include <string.h>

#include "oracle/oracle_number.h"
#include "oracle/oracle_scalar.h"

static uint64_t bits_of(const void *element, size_t bytes)
{
    uint64_t bits = 0;

    memcpy(&bits, element, bytes); /* little-endian, as all that mica runs on */
    return bits;
}

static bool is_float(mica_dtype dtype)
{
    return mica_register_of(dtype) == MICA_REGISTER_F32 || mica_register_of(dtype) == MICA_REGISTER_F64;
}

/* What a word of so many bits is in 64, by its sign if it has one. */
static uint64_t widen(uint64_t bits, unsigned count, bool is_signed)
{
    if (count == 64)
        return bits;
    bits &= (UINT64_C(1) << count) - 1;
    return is_signed && (bits >> (count - 1)) != 0 ? bits | ~((UINT64_C(1) << count) - 1) : bits;
}

static bool is_signed(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_I8 || dtype == MICA_DTYPE_I16 || dtype == MICA_DTYPE_I32 ||
           dtype == MICA_DTYPE_I64;
}

oracle_value oracle_region_load(mica_dtype dtype, const void *element, oracle_value *imag)
{
    oracle_value value = {.type = (uint8_t)mica_register_of(dtype)};
    const size_t bytes = oracle_block_bytes(dtype);
    float parts[2];

    memset(imag, 0, sizeof *imag);
    if (dtype == MICA_DTYPE_C64) {
        memcpy(parts, element, sizeof parts);
        value.x = parts[0];
        *imag = value;
        imag->x = parts[1];
    } else if (is_float(dtype)) {
        value.x = oracle_float_of(dtype, bits_of(element, bytes));
    } else if (dtype == MICA_DTYPE_BOOL) {
        value.word = bits_of(element, 1) != 0;
    } else {
        value.word = widen(bits_of(element, bytes), (unsigned)bytes * 8, is_signed(dtype));
    }
    return value;
}

static oracle_value constant(const mica_region_step *step)
{
    oracle_value value = {.type = step->type};

    if (step->type == MICA_REGISTER_F32)
        value.x = step->constant.f32;
    else if (step->type == MICA_REGISTER_F64)
        value.x = step->constant.f64;
    else
        value.word = step->constant.u64;
    return value;
}

void oracle_region_run(const mica_region_desc *desc, const uint64_t *index, oracle_value *value,
                       const oracle_value *imag)
{
    for (uint32_t s = 0; s < desc->step_count; s++) {
        const mica_region_step *step = &desc->step[s];
        const char *name = mica_scalar_name(step->scalar);
        oracle_value *out = &value[desc->input_count + s], in[3];

        for (uint32_t j = 0; j < 3; j++)
            in[j] = step->value[j] != MICA_REGION_NONE ? value[step->value[j]] : (oracle_value){.x = 0};
        if (strcmp(name, "constant") == 0)
            *out = constant(step);
        else if (strcmp(name, "index") == 0)
            *out = (oracle_value){.word = index[step->axis], .type = step->type};
        else if (strcmp(name, "imag") == 0)
            *out = imag[step->value[0]];
        else
            *out = oracle_scalar_run(name, step->type, in);
    }
}

/* One float of the type between the two that the ends of the value's bound become. */
static bool float_near(mica_dtype dtype, const oracle_value *value, long double got)
{
    const long double low = oracle_float_round(dtype, value->x - value->error);
    const long double high = oracle_float_round(dtype, value->x + value->error);

    if (value->open)
        return true;
    if (value->error == 0)
        return isnan(low) ? isnan(got) != 0 : got == low && !signbit(got) == !signbit(low);
    if (isnan(low) || isnan(high)) /* past the end of a type without infinities */
        return true;
    return low <= got && got <= high;
}

bool oracle_region_near(mica_dtype dtype, const oracle_value *value, const oracle_value *imag,
                        const void *element)
{
    const size_t bytes = oracle_block_bytes(dtype);
    float parts[2];

    if (dtype == MICA_DTYPE_C64) {
        memcpy(parts, element, sizeof parts);
        return float_near(MICA_DTYPE_F32, value, parts[0]) && float_near(MICA_DTYPE_F32, imag, parts[1]);
    }
    if (is_float(dtype))
        return float_near(dtype, value, oracle_float_of(dtype, bits_of(element, bytes)));
    if (value->open)
        return dtype != MICA_DTYPE_BOOL || bits_of(element, 1) <= 1;
    return bits_of(element, bytes) == widen(value->word, (unsigned)bytes * 8, false);
}
