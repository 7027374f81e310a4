/*
 * philox.h - Philox 4x32-10: random bits that are a function of a counter and a key (Salmon and others, 2011).
 */
#ifndef MICA_CPU_PHILOX_H
#define MICA_CPU_PHILOX_H

#include <stdint.h>

static inline void philox(uint32_t word[4], uint32_t key0, uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t first = (uint64_t)0xd2511f53u * word[0], second = (uint64_t)0xcd9e8d57u * word[2];
        word[0] = (uint32_t)(second >> 32) ^ word[1] ^ key0;
        word[1] = (uint32_t)second;
        word[2] = (uint32_t)(first >> 32) ^ word[3] ^ key1;
        word[3] = (uint32_t)first;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
}

/* Words 0 and 1, the first in the lower half, of a counter whose upper half is 0. */
static inline uint64_t philox_bits(uint64_t counter, uint64_t key)
{
    uint32_t word[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    philox(word, (uint32_t)key, (uint32_t)(key >> 32));
    return word[0] | (uint64_t)word[1] << 32;
}

#endif
