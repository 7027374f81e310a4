/*
 * oracle_blocks.h - the block formats, decoded from their published layout, and 8-bit activations.
 */
#ifndef ORACLE_BLOCKS_H
#define ORACLE_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mica/types.h"

/* The scale and bias of a row that has tables of them, decoded to double, one pair per `size` values. Biases: affine
 * types. */
typedef struct oracle_groups {
    const double *scales, *biases;
    uint32_t size;
} oracle_groups;

/* Decodes `count` values of one row. `magnitude` gets the sum of the absolute terms that a kernel may add up for a
 * value (scale * code and offset apart), so that rounding can be bounded. `groups` only for types with tables of scales. */
void oracle_decode_row(mica_dtype dtype, const uint8_t *row, size_t count, const oracle_groups *groups,
                       double *value, double *magnitude);

/* Activations as 8-bit blocks of 32 see them: q = round_to_even(x * (127 / max|x|)) in f32, x ~ q * max|x| / 127. */
void oracle_quantise_q8(const double *x, size_t count, double *out);

/* What a row becomes as q8_0: per 32 values d = max|x| / 127 and q = x * (1 / d), half away from zero, in f32; then d is
 * rounded to f16, and x ~ q * d. */
void oracle_round_q8_0(const double *x, size_t count, double *out);

/* What a row becomes as q4_0, q4_1, q5_0, q5_1, iq4_nl or q8_0, as the formats' reference quantiser has it, in f32:
 *   q4_0 q5_0  d = the first value of greatest magnitude / -8 (-16); code = x / d + 8.5 (16.5) cut to a whole number
 *   q4_1 q5_1  d = (max - min) / 15 (31); code = (x - min) / d + 0.5 cut; then d and min are rounded to f16
 *   iq4_nl     of sixteen trial scales the one of least error, where that of x costs its square and twice the mean square */
void oracle_round_block(mica_dtype dtype, const double *x, size_t count, double *out);

/* Bytes of a row of `count` values. */
size_t oracle_row_bytes(mica_dtype dtype, size_t count);
bool oracle_is_affine(mica_dtype dtype);
/* Whether a weight of the type has a table of scales: affine types, fp4, f8_e4m3. */
bool oracle_has_scales(mica_dtype dtype);
bool oracle_is_block(mica_dtype dtype);

#endif
