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

/* 32 bytes in registers, for planes of which several are made from the same bytes: shifted by a constant in between, which
 * is cheaper than a shift that varies. What crosses from byte to byte is masked away by the planes. */
typedef struct mica__words {
    uint64_t word[4];
} mica__words;

static inline mica__words mica__load_words(const unsigned char *bytes)
{
    mica__words w;
    memcpy(&w, bytes, sizeof w);
    return w;
}

static inline void mica__shift_words(mica__words *w, int shift)
{
    for (int h = 0; h < 4; h++)
        w->word[h] >>= shift;
}

/* Plane of pairs, from the low two bits of each byte. */
static inline void mica__put_pairs(const mica__words *w, unsigned char *at)
{
    uint64_t words = 0;
    for (int h = 0; h < 4; h++)
        words |= (w->word[h] & 0x0303030303030303) << 2 * h;
    mica__store_words(at, words);
}

/* Plane of bits, from the lowest bit of each byte: the even chunks of four at even bits, the odd ones beside them. */
static inline void mica__put_bits(const mica__words *w, unsigned char *at)
{
    uint64_t words = 0;
    for (int h = 0; h < 4; h++)
        words |= (w->word[h] & 0x0101010101010101) << 2 * h;
    mica__store32(at, (uint32_t)words | (uint32_t)(words >> 32) << 1);
}

#endif
