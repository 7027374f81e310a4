/* oracle_random.h - Philox 4x32-10 from its description, and what draws make of its bits. */
#ifndef ORACLE_RANDOM_H
#define ORACLE_RANDOM_H

#include <stdint.h>

#include "mica/types.h"

/* One block: ten rounds, the key moved on between them. */
void oracle_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* Words 0 and 1 with the counter (counter, 0). */
uint64_t oracle_random(uint64_t seed, uint64_t counter);

/* The draws of mica/ops_random.h of one element's bits. Where a formula rounds step by step its steps are rounded here too. */
double oracle_random_uniform(mica_dtype dtype, uint64_t bits, double low, double high);
/* `out_error`: how far f32 backends may be from it before the store. */
double oracle_random_normal(mica_dtype dtype, uint64_t bits, double mean, double deviation,
                            double *out_error);
/* Gumbel noise. */
double oracle_random_gumbel(mica_dtype dtype, uint64_t bits, double *out_error);
/* (bits >> 40) 2^-24. */
double oracle_random_u24(uint64_t bits);

#endif
