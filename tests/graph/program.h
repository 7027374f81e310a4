/*
 * program.h - a computation that was drawn: steps over earlier steps, with shapes that are numbers. It is written as a graph (program_build.h), and computed here
 * in double, step by step, from the formulas: what a graph gives is compared with that.
 *
 * Each element has a bound of its error beside it: of the roundings of its type, of what came in, of the condition of the formula. Where an error decides (a
 * comparison, a whole number, an index), it is infinite: that element is not compared.
 */
#ifndef TEST_PROGRAM_H
#define TEST_PROGRAM_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/half.h"
#include "mica/mica.h"
#include "support/random.h"
#include "support/status.h"

enum {
    PROGRAM_STEPS = 96,
    PROGRAM_RANK = 4,
    PROGRAM_ELEMENTS = 256,
    PROGRAM_INPUTS = 8,
    PROGRAM_OUTPUTS = 6
};

typedef enum step_kind {
    STEP_INPUT,
    STEP_CONSTANT, /* drawn from `seed` */
    STEP_UNARY,
    STEP_BINARY,
    STEP_SELECT,
    STEP_CAST,
    STEP_INDEX,
    STEP_RESHAPE,
    STEP_PERMUTE,
    STEP_SLICE,
    STEP_EXPAND,
    STEP_CONCAT,
    STEP_STOP,
    STEP_PAD,
    STEP_REDUCE,
    STEP_CUMSUM,
    STEP_SOFTMAX,
    STEP_SORT,
    STEP_GATHER, /* ids modulo the size of the axis */
    STEP_SCATTER,
    STEP_MATMUL,
    STEP_CALL,
    STEP_IF,
    STEP_WHILE, /* the first carried value counts up to `count` */
    STEP_SCAN,
    STEP_PART, /* output `code` of step in[0] */
    STEP_KINDS
} step_kind;

typedef struct program program;

typedef struct program_shape {
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t size[PROGRAM_RANK];
} program_shape;

typedef struct program_step {
    step_kind kind;
    program_shape type; /* of its result, of several the first */
    uint32_t in[PROGRAM_INPUTS], in_count;
    uint32_t code, axis, axes, keep; /* a scalar, a reduction, a part; axes as bits */
    uint64_t start, count, seed;
    int64_t step, low[PROGRAM_RANK], high[PROGRAM_RANK];
    uint32_t order[PROGRAM_RANK];
    program *body[2];
    uint32_t parts, carried, scanned;
} program_step;

struct program {
    program_step step[PROGRAM_STEPS];
    uint32_t count, inputs; /* inputs are the first steps */
    uint32_t output[PROGRAM_OUTPUTS], output_count;
};

typedef struct program_value {
    double *x, *error;
} program_value;

static inline uint64_t shape_count(const program_shape *s)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < s->ndim; d++)
        count *= s->size[d];
    return count;
}
static inline bool dtype_is_float(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F64 || dtype == MICA_DTYPE_F16 ||
           dtype == MICA_DTYPE_BF16;
}

/* ---- errors ---- */

static inline double unit_of(mica_dtype dtype)
{
    switch (dtype) {
    case MICA_DTYPE_F64: return ldexp(1, -52);
    case MICA_DTYPE_F32: return ldexp(1, -23);
    case MICA_DTYPE_F16: return ldexp(1, -10);
    case MICA_DTYPE_BF16: return ldexp(1, -7);
    default: return 0;
    }
}
static inline double tiny_of(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F16 ? ldexp(1, -24) : dtype_is_float(dtype) ? 1e-36 : 0;
}
/* Stores a value with what came in by its arguments, plus `roundings` of its own. */
static inline void put_value(const program_shape *type, program_value *v, uint64_t i, double x, double error,
                             double roundings)
{
    const double wide = type->dtype == MICA_DTYPE_F64 ? unit_of(MICA_DTYPE_F64) : unit_of(MICA_DTYPE_F32);
    const double limit = type->dtype == MICA_DTYPE_F16 ? 3e4 : type->dtype == MICA_DTYPE_I32 ? 1e9 : 1e30;
    v->x[i] = x;
    v->error[i] = error;
    if (dtype_is_float(type->dtype))
        v->error[i] += fabs(x) * (unit_of(type->dtype) + roundings * wide) + tiny_of(type->dtype);
    if (!(fabs(x) + v->error[i] < limit))
        v->error[i] = INFINITY;
}

/* ---- places ---- */

static inline void place_of(const program_shape *s, uint64_t i, uint64_t *out)
{
    for (uint32_t d = s->ndim; d-- > 0; i /= s->size[d])
        out[d] = i % s->size[d];
}
/* Of a tensor that repeats to the shape that `place` is in. */
static inline uint64_t element_at(const program_shape *s, const uint64_t *place, uint32_t ndim)
{
    uint64_t i = 0;
    for (uint32_t d = 0; d < s->ndim; d++)
        i = i * s->size[d] + (s->size[d] == 1 ? 0 : place[d + ndim - s->ndim]);
    return i;
}

/* ---- inputs and constants: the number of a seed and a place, one that its type has ---- */

static inline double drawn_number(mica_dtype dtype, uint64_t seed, uint64_t i)
{
    test_random random = test_random_from(seed * 1000003 + i);
    const double x = test_random_normal(&random);
    switch (dtype) {
    case MICA_DTYPE_BOOL: return x > 0;
    case MICA_DTYPE_I32: return floor(x * 3);
    case MICA_DTYPE_F64: return x;
    case MICA_DTYPE_F32: return (double)(float)x;
    default: return floor(x * 32) / 32; /* f16 and bf16 have it */
    }
}
static inline void put_bytes(mica_dtype dtype, void *data, uint64_t i, double x)
{
    switch (dtype) {
    case MICA_DTYPE_BOOL: ((uint8_t *)data)[i] = x != 0; break;
    case MICA_DTYPE_I32: ((int32_t *)data)[i] = (int32_t)x; break;
    case MICA_DTYPE_F64: ((double *)data)[i] = x; break;
    case MICA_DTYPE_F32: ((float *)data)[i] = (float)x; break;
    case MICA_DTYPE_F16: ((uint16_t *)data)[i] = mica__f32_to_f16((float)x); break;
    default: ((uint16_t *)data)[i] = mica__f32_to_bf16((float)x); break;
    }
}
static inline double get_bytes(mica_dtype dtype, const void *data, uint64_t i)
{
    switch (dtype) {
    case MICA_DTYPE_BOOL: return ((const uint8_t *)data)[i];
    case MICA_DTYPE_I32: return ((const int32_t *)data)[i];
    case MICA_DTYPE_F64: return ((const double *)data)[i];
    case MICA_DTYPE_F32: return (double)((const float *)data)[i];
    case MICA_DTYPE_F16: return (double)mica__f16_to_f32(((const uint16_t *)data)[i]);
    default: return (double)mica__bf16_to_f32(((const uint16_t *)data)[i]);
    }
}

#endif
