/* bits.h - numbers of a few bits each, between one after another and one a byte. */
#ifndef MICA_QUANT_BITS_H
#define MICA_QUANT_BITS_H

#include <stdint.h>
#include <string.h>

/* Number i, at bits `width` i of packed, becomes byte i. width: 1 to 8. Each step doubles the room of half as many
 * numbers: four, then two, then one. */
static inline uint64_t mica__bits_spread(uint64_t packed, unsigned width)
{
    const uint64_t one = (1u << width) - 1, two = (1u << 2 * width) - 1,
                   four = ((uint64_t)1 << 4 * width) - 1;
    uint64_t x = (packed & four) | (packed >> 4 * width & four) << 32;
    x = (x & two * 0x0000000100000001) | (x >> 2 * width & two * 0x0000000100000001) << 16;
    return (x & one * 0x0001000100010001) | (x >> width & one * 0x0001000100010001) << 8;
}

/* The reverse; every byte is below 2^width. */
static inline uint64_t mica__bits_gather(uint64_t bytes, unsigned width)
{
    uint64_t x = bytes;
    x = (x & 0x00ff00ff00ff00ff) | (x >> 8 & 0x00ff00ff00ff00ff) << width;
    x = (x & 0x0000ffff0000ffff) | (x >> 16 & 0x0000ffff0000ffff) << 2 * width;
    return (x & 0x00000000ffffffff) | (x >> 32) << 4 * width;
}

/* `count` numbers of a row of bytes to one a byte, and back. Whole bytes: count * width is a multiple of 8. */
static inline void mica__bits_unpack(const uint8_t *bytes, unsigned width, uint64_t count, uint8_t *numbers)
{
    uint64_t i = 0, word;
    /* Where eight bytes are left they are read in one piece; the upper ones fall away. */
    for (; (count - i) * width >= 64; i += 8, bytes += width) {
        memcpy(&word, bytes, 8);
        word = mica__bits_spread(word, width);
        memcpy(numbers + i, &word, 8);
    }
    for (; i + 8 <= count; i += 8, bytes += width) {
        word = 0;
        memcpy(&word, bytes, width);
        word = mica__bits_spread(word, width);
        memcpy(numbers + i, &word, 8);
    }
    if (i == count)
        return;
    word = 0;
    memcpy(&word, bytes, (count - i) * width / 8);
    word = mica__bits_spread(word, width);
    memcpy(numbers + i, &word, count - i);
}

static inline void mica__bits_pack(const uint8_t *numbers, unsigned width, uint64_t count, uint8_t *bytes)
{
    uint64_t i = 0, word;
    for (; i + 8 <= count; i += 8, bytes += width) {
        memcpy(&word, numbers + i, 8);
        word = mica__bits_gather(word, width);
        memcpy(bytes, &word, width);
    }
    if (i == count)
        return;
    word = 0;
    memcpy(&word, numbers + i, count - i);
    word = mica__bits_gather(word, width);
    memcpy(bytes, &word, (count - i) * width / 8);
}

#endif
