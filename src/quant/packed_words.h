/*
 * packed_words.h - the words of one row in a packed part: how codes, eight to a number, become the planes that packed.h
 * describes. Inside the packed layout only.
 */
#ifndef MICA_QUANT_PACKED_WORDS_H
#define MICA_QUANT_PACKED_WORDS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t mica__load32(const void *src)
{
    uint32_t word;
    memcpy(&word, src, sizeof word);
    return word;
}

static inline void mica__store32(void *dst, uint32_t word)
{
    memcpy(dst, &word, sizeof word);
}

static inline uint64_t mica__load64(const void *src)
{
    uint64_t word;
    memcpy(&word, src, sizeof word);
    return word;
}

/* Two words of a row that follow each other in a plane lie 32 bytes apart: eight rows of four bytes. */
static inline void mica__store_words(unsigned char *at, uint64_t words)
{
    mica__store32(at, (uint32_t)words);
    mica__store32(at + 32, (uint32_t)(words >> 32));
}

/* Plane of nibbles, from bits `shift` of 16 bytes each at `first` and `second`. */
static inline void mica__put_nibbles(const unsigned char *first, const unsigned char *second, int shift,
                                     unsigned char *at)
{
    const uint64_t nibbles = 0x0f0f0f0f0f0f0f0f;
    for (int v = 0; v < 4; v += 2)
        mica__store_words(at + 32 * v, (mica__load64(first + 4 * v) >> shift & nibbles) |
                                           (mica__load64(second + 4 * v) >> shift & nibbles) << 4);
}

/* Plane of pairs, from bits `shift` and up of 32 bytes. */
static inline void mica__put_pairs(const unsigned char *bytes, int shift, unsigned char *at)
{
    uint64_t words = 0;
    for (int h = 0; h < 4; h++)
        words |= (mica__load64(bytes + 8 * h) >> shift & 0x0303030303030303) << 2 * h;
    mica__store_words(at, words);
}

/* Plane of bits, from bit `shift` of 32 bytes: the even chunks of four at even bits, the odd ones beside them. */
static inline void mica__put_bits(const unsigned char *bytes, int shift, unsigned char *at)
{
    uint64_t words = 0;
    for (int h = 0; h < 4; h++)
        words |= (mica__load64(bytes + 8 * h) >> shift & 0x0101010101010101) << 2 * h;
    mica__store32(at, (uint32_t)words | (uint32_t)(words >> 32) << 1);
}

#endif
