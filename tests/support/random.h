/*
 * random.h - seeded random numbers for tests: the same seed gives the same case on every machine.
 */
#ifndef TEST_SUPPORT_RANDOM_H
#define TEST_SUPPORT_RANDOM_H

#include <stdint.h>

typedef struct test_random {
    uint64_t state;
} test_random;

test_random test_random_from(uint64_t seed);
uint64_t test_random_next(test_random *random);
/* 0 .. below-1; `below` at least 1. */
uint64_t test_random_below(test_random *random, uint64_t below);
/* 1 in `n` times true. */
int test_random_one_in(test_random *random, uint32_t n);
double test_random_uniform(test_random *random, double low, double high);
/* Bell-shaped around 0 with a spread of 1, never beyond 4. */
double test_random_normal(test_random *random);
/* A size that breaks loops: 1, 3, 7, 31, 33, 65, 127, 257 or any number up to `most`; never above it. */
uint64_t test_random_size(test_random *random, uint64_t most);

#endif
