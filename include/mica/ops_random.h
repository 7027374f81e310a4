/*
 * ops_random.h - random numbers. What ops.h says of all ops holds.
 *
 * The generator has no state of its own: element i of a draw, counted in the order of its shape
 * whatever the strides, has the 64 bits
 *   r(i) = words 0 and 1, word 0 the lower half, of Philox 4x32-10 (Salmon and others, 2011) with the counter
 *   (offset + i, 0) and the key seed,
 * each a number of 64 bits that wraps. So it is the same on every backend, with any number of threads
 * and in any piece of a larger draw. A draw of n elements uses up n counters: the next one of the
 * same seed begins at offset + n.
 *
 * Everything here is a region (region.h) over the step `random`: it is joined with its neighbours, and there is no
 * kernel to it. u24 is (r >> 40) 2^-24, one of the 2^24 multiples of 2^-24 in [0, 1).
 */
#ifndef MICA_OPS_RANDOM_H
#define MICA_OPS_RANDOM_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which numbers a draw takes. Where it is NULL all of it is 0. */
typedef struct mica_random {
    uint64_t seed, offset;
    /* NULL, or u64 [2], read when the work runs: its first number is added to the seed, its second to the offset. A
     * replayed recording draws anew once that has moved on: mica_advance of the slice with the second. */
    mica_buffer *state;
} mica_random;

/* y = the lower bits of r. Any integer type. */
MICA_API mica_status mica_random_bits(mica_encoder *encoder, const mica_random *random, mica_buffer *y);
/* y = low + u (high - low), in [low, high) in y's own type. u is a multiple of 2^-k in [0, 1), the upper k bits of r,
 * and k the digits of y: f32 24, f16 11, bf16 8, f64 53. f32 arithmetic, of f64 in it; the same bits everywhere. low
 * < high, both finite and so is their difference; INVALID_ARGUMENT where y's type has no number between them. */
MICA_API mica_status mica_random_uniform(mica_encoder *encoder, double low, double high,
                                         const mica_random *random, mica_buffer *y);
/* y = mean + deviation sqrt(-2 log u) cos a (Box and Muller), with w the upper half of r and v the lower, as a signed
 * number: u = w 2^-32 + 2^-33, a = v (2 pi 2^-32), each step rounded to f32, or to f64 where y is that. So u and a
 * are the same bits everywhere, and y as close as the backends' log, sqrt and cos: in f32 y - mean is within 12
 * roundings (2^-24 of it) of the formula, beside the rounding of the sum and of the store. No number is further than
 * 6.77 deviations from the mean. f32, f16, bf16; f64 (cpu). Both finite, deviation >= 0. */
MICA_API mica_status mica_random_normal(mica_encoder *encoder, double mean, double deviation,
                                        const mica_random *random, mica_buffer *y);
/* y = 1 where u24 < p, else 0: 1 with probability p, to 2^-24. p is an element of `probability` (f32, f16, bf16; f64
 * where the device has it), which broadcasts to y, or the number `p` where that is NULL; below 0 and NaN count as 0,
 * above 1 as 1. y any plain type but c64. */
MICA_API mica_status mica_random_bernoulli(mica_encoder *encoder, mica_buffer *probability, double p,
                                           const mica_random *random, mica_buffer *y);
/* y = low + floor(r (high - low) / 2^64), exact: a whole number of [low, high), all as likely to 2^-32. y any integer
 * type that holds low and high - 1; high - low from 1 to 2^32. */
MICA_API mica_status mica_random_integers(mica_encoder *encoder, int64_t low, int64_t high,
                                          const mica_random *random, mica_buffer *y);
/* ids [..] (u32 or i32): one index of each row of logits [.., n], index j with probability e^logits[j] / sum of
 * e^logits: the greatest of logits - log(-log(1 - u)) (Gumbel's way), with w the upper half of r, u = min(w 2^-32 +
 * 2^-33, 1 - 2^-24) in f32. Logits of -inf and NaN are never chosen while there is another; a row without any gives
 * 0. Of two that are equal to the backends' rounding of log either may be chosen. f32, f16, bf16; f64 (cpu). `work`
 * has the shape of logits, is f32 (f64 with f64) and overwritten; it may be logits itself. Two records. */
MICA_API mica_status mica_random_categorical(mica_encoder *encoder, mica_buffer *logits,
                                             const mica_random *random, mica_buffer *work, mica_buffer *ids);
/* y = x / (1 - p) where u24 >= p, else 0: each element stays with probability 1 - p. p from 0 to 1; with 1 all are
 * 0. The same call of dy is its gradient. x and y of one shape, f32, f16 or bf16, each its own, or f64, which
 * drops the same elements. In place. */
MICA_API mica_status mica_dropout(mica_encoder *encoder, mica_buffer *x, double p, const mica_random *random,
                                  mica_buffer *y);

#ifdef __cplusplus
}
#endif
#endif
