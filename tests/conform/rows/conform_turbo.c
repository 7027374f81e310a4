/*
 * conform_turbo.c - cases of rotations: rows of every power of two, any strides, in place, with and without signs, with NaN and
 * infinities; and the judge of turbo blocks that were written.
 */
#include "conform/conform_op.h"
#include "conform/conform_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_codes.h"
#include "oracle/oracle_number.h"
#include "oracle/oracle_ops.h"

enum { X, SIGNS, Y };

static void make(conform_case *c, test_random *random, const conform_draw *as)
{
    static const float scales[] = {0, 0, 1, -0.25f};

    c->params.hadamard = (mica_hadamard_params){scales[c->typical ? 0 : test_random_below(random, 4)],
                                                (uint32_t)test_random_below(random, 2)};
    conform_make_op_as(c, random, as);
    test_tensor *x = conform_tensor(c, X), *signs = conform_tensor(c, SIGNS);
    test_tensor_normal(x, random, test_random_one_in(random, 4) ? 1000 : 1);
    if (!c->typical && test_random_one_in(random, 5))
        test_tensor_set(x, test_random_below(random, x->count),
                        test_random_one_in(random, 2) ? (double)NAN : (double)INFINITY);
    const bool plain = c->operand[SIGNS].present && !test_random_one_in(random, 4);
    for (uint64_t i = 0; plain && i < signs->count; i++)
        test_tensor_set(signs, i, test_tensor_get(signs, i) < 0 ? -1 : 1);
}

void conform_make_hadamard(conform_case *c, test_random *random)
{
    make(c, random,
         &(conform_draw){.size = {[CONFORM_SIZE('D')] = 1ull << test_random_below(random, 10)}, .rest = 100});
}

void conform_make_hadamard_long(conform_case *c, test_random *random)
{
    make(c, random,
         &(conform_draw){.size = {[CONFORM_SIZE('D')] = 2048ull << test_random_below(random, 3)}, .rest = 3});
}

void conform_oracle_hadamard(conform_case *c)
{
    const test_tensor *x = conform_tensor(c, X);
    const uint64_t dim = x->shape[x->ndim - 1];
    const double asked = (double)c->params.hadamard.scale, scale = asked != 0 ? asked : 1 / sqrt((double)dim);
    double *values = conform_values(c, X), *signs = conform_values(c, SIGNS);

    oracle_hadamard(x->count / dim, dim, values, signs, scale, c->params.hadamard.undo != 0, c->expected,
                    c->error);
    free(values);
    free(signs);
}

/* ---- turbo blocks ---- */

#define BLOCK 64

bool conform_is_turbo(mica_dtype dtype)
{
    return dtype >= MICA_DTYPE_TURBO2 && dtype <= MICA_DTYPE_TURBO8;
}

/* Twice the bits of a value: the bytes of a block behind its scale, by four. */
static unsigned halfbits_of(mica_dtype dtype)
{
    return (unsigned)(oracle_block_bytes(dtype) - 2) / 4;
}

static double nearest(unsigned bits, double v)
{
    double best = oracle_turbo_level(bits, 0);

    for (unsigned code = 1; code < 1u << bits; code++)
        if (fabs(v - oracle_turbo_level(bits, code)) < fabs(v - best))
            best = oracle_turbo_level(bits, code);
    return best;
}

/* The squared error with a scale when every value takes its nearest level. */
static double error_with(unsigned halfbits, const double *y, double scale)
{
    double sum = 0;

    for (size_t i = 0; i < BLOCK; i++) {
        const double e =
            y[i] - (scale > 0 ? scale * nearest(oracle_turbo_bits(halfbits, i), y[i] / scale) : 0);

        sum += e * e;
    }
    return sum;
}

/* With a scale that rounds to f16 one way or the other: the worse of the two. */
static double error_near(unsigned halfbits, const double *y, double scale)
{
    uint16_t bits[2];
    double error = 0;

    oracle_put(MICA_DTYPE_F16, scale, (uint8_t *)&bits[0]);
    bits[1] = oracle_get(MICA_DTYPE_F16, (const uint8_t *)&bits[0]) > scale && bits[0] > 0
                  ? (uint16_t)(bits[0] - 1)
                  : (uint16_t)(bits[0] + 1);
    for (int way = 0; way < 2; way++)
        error = fmax(error, error_with(halfbits, y, oracle_get(MICA_DTYPE_F16, (const uint8_t *)&bits[way])));
    return error;
}

static double best_error(unsigned halfbits, const double *y)
{
    const int base = halfbits > 8 ? 10 : 12;
    double squares = 0, least = (double)INFINITY;

    for (size_t i = 0; i < BLOCK; i++)
        squares += y[i] * y[i];
    for (int t = 0; t < 9; t++)
        least = fmin(least, error_near(halfbits, y, sqrt(squares / BLOCK) * (base + t) / 16));
    return least;
}

/* Errors of f32 move the sum of 64 squares by less than one part in a thousand. Codes are the nearest for the scale that is stored, to a rounding
 * of f32. */
static bool is_right(unsigned halfbits, const uint8_t *block, const double *x, char *why)
{
    double turned[BLOCK], signs[BLOCK], error[BLOCK], sum = 0;
    const double scale = oracle_get(MICA_DTYPE_F16, block);

    for (size_t i = 0; i < BLOCK; i++)
        signs[i] = oracle_turbo_sign(i);
    oracle_hadamard(1, BLOCK, x, signs, 0.125, false, turned, error);
    for (size_t i = 0; i < BLOCK; i++) {
        const double got = oracle_turbo_rotated(halfbits, block, i), far = fabs(turned[i] - got);
        const double best =
            scale * nearest(oracle_turbo_bits(halfbits, i), scale > 0 ? turned[i] / scale : 0);

        if (!(far <= fabs(turned[i] - best) + 1e-5 * scale + 1e-6 * error[i])) {
            snprintf(why, CONFORM_TEXT, "value %zu of a block is %g, coded as %g, though %g is a level", i,
                     turned[i], got, best);
            return false;
        }
        sum += far * far;
    }
    const double least = best_error(halfbits, turned);
    if (sum <= 1.001 * least + 1e-12)
        return true;
    snprintf(why, CONFORM_TEXT, "a block's squared error is %g, the best scale gives %g", sum, least);
    return false;
}

bool conform_judge_turbo(conform_case *c, char *why)
{
    const test_tensor *cache = conform_tensor(c, c->output);
    const size_t bytes = oracle_block_bytes(cache->dtype);

    for (uint64_t i = 0; i < cache->count; i += BLOCK) {
        const uint64_t at = test_tensor_place(cache, i);

        if (c->error[i] >= 0) {
            if (!is_right(halfbits_of(cache->dtype), cache->after + at, c->expected + i, why))
                return false;
        } else if (memcmp(cache->after + at, cache->image + at, bytes) != 0) {
            snprintf(why, CONFORM_TEXT, "block %llu was not to be written", (unsigned long long)(i / BLOCK));
            return false;
        }
    }
    return true;
}
