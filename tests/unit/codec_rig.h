/*
 * codec_rig.h - what the tests of codecs share: seeded blocks and values, a hash for golden figures, and a check that
 * every instruction set writes the same bits at any address.
 */
#ifndef CODEC_RIG_H
#define CODEC_RIG_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"
#include "support/random.h"

/* FNV-1a, 64 bits. */
static inline uint64_t rig_hash(const void *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
    return hash;
}

/* Weights as models have them: bell-shaped, a few large, runs of zeros. */
static inline void rig_values(test_random *random, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(test_random_normal(random) * (test_random_one_in(random, 50) ? 0.5 : 0.0625));
        if (i / 64 % 9 == 4)
            x[i] = 0;
    }
}

/* Random bytes. The byte at `high` of each block, the upper one of its f16 scale, is made one of a tame scale; a
 * negative `high` leaves all bytes alone. */
static inline void rig_blocks(test_random *random, uint8_t *blocks, size_t count, size_t bytes, int high)
{
    for (size_t i = 0; i < count * bytes; i++)
        blocks[i] = (uint8_t)test_random_next(random);
    for (size_t b = 0; b < count && high >= 0; b++)
        blocks[b * bytes + (size_t)high] = (uint8_t)((blocks[b * bytes + (size_t)high] & 15) | 0x20);
}

static inline double rig_rms(const float *a, const float *b, const float *importance, size_t n)
{
    double sum = 0, weights = 0;
    for (size_t i = 0; i < n; i++) {
        const double weight = importance != NULL ? importance[i] : 1, error = (double)a[i] - b[i];
        sum += weight * error * error;
        weights += weight;
    }
    return sqrt(sum / weights);
}

/* Decodes `n` values on every instruction set, from an odd address to an odd one; false if one differs from dst. */
static inline bool rig_decode(mica_dtype dtype, const uint8_t *row, float *dst, size_t n)
{
    const size_t bytes = n / mica_dtype_block_elements(dtype) * mica_dtype_block_bytes(dtype);
    uint8_t *from = malloc(bytes + 1);
    float *to = malloc((n + 1) * sizeof *to);
    memcpy(from + 1, row, bytes);
    mica__quant_decode_row_isa(MICA__ISA_PORTABLE, (uint16_t)dtype, row, dst, n);
    bool same = true;
    for (int isa = 0; isa < MICA__ISA_COUNT; isa++) {
        if (!mica__isa_runs((mica__isa)isa))
            continue;
        memset(to, 0xee, (n + 1) * sizeof *to);
        mica__quant_decode_row_isa((mica__isa)isa, (uint16_t)dtype, from + 1, to, n);
        for (size_t i = 0; i < n; i++) /* a NaN may carry any bits */
            same = same && (memcmp(&to[i], &dst[i], sizeof *to) == 0 || (to[i] != to[i] && dst[i] != dst[i]));
        same = same && ((uint8_t *)&to[n])[0] == 0xee;
    }
    free(from);
    free(to);
    return same;
}

/* Encodes on every instruction set; false if one differs from `row` or writes past its end. */
static inline bool rig_encode(mica_dtype dtype, const float *x, const float *importance, uint8_t *row,
                              size_t n)
{
    const size_t bytes = n / mica_dtype_block_elements(dtype) * mica_dtype_block_bytes(dtype);
    uint8_t *to = malloc(bytes + 2);
    mica__quant_encode_row_isa(MICA__ISA_PORTABLE, (uint16_t)dtype, x, importance, row, n);
    bool same = true;
    for (int isa = 0; isa < MICA__ISA_COUNT; isa++) {
        if (!mica__isa_runs((mica__isa)isa))
            continue;
        memset(to, 0xee, bytes + 2);
        mica__quant_encode_row_isa((mica__isa)isa, (uint16_t)dtype, x, importance, to + 1, n);
        same = same && memcmp(to + 1, row, bytes) == 0 && to[0] == 0xee && to[bytes + 1] == 0xee;
    }
    free(to);
    return same;
}

/* Rows that are hard to scale: all zero, constant, tiny, huge, with infinities and NaN. n values of kind `kind`. */
enum { RIG_HARD_KINDS = 8 };
static inline void rig_hard(test_random *random, int kind, float *x, size_t n)
{
    const float fill[RIG_HARD_KINDS] = {0, -0.75f, 1e-42f, 3e38f, INFINITY, NAN, 1e-20f, -0.0f};
    rig_values(random, x, n);
    for (size_t i = 0; i < n; i++)
        if (kind < 4 || kind > 5 || i % 37 == 5)
            x[i] = i % 3 == 1 ? -fill[kind] : fill[kind];
}

#endif
