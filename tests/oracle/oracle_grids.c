/*
 * oracle_grids.c - the block formats whose codes number the points of a grid, one value at a time from the layout.
 *
 * Blocks have 256 values in eight runs of 32. The grids are thousands of numbers that belong to the formats' definition and
 * stand in one place, packed as quant/iq_grid.h says; tests/unit/test_codec_iq.c holds them to the reference. What is done with
 * them here is written from the layouts alone.
 */
#include "oracle/oracle_codes.h"

#include <math.h>

#include "oracle/oracle_number.h"

extern const uint16_t mica__iq1_grid[2048], mica__iq2_xxs_grid[256], mica__iq2_xs_grid[512],
    mica__iq2_s_grid[1024], mica__iq3_xxs_grid[256], mica__iq3_s_grid[512];

static unsigned word_at(const uint8_t *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

static uint32_t long_at(const uint8_t *p)
{
    return word_at(p) | (uint32_t)word_at(p + 2) << 16;
}

static double half_at(const uint8_t *p)
{
    return oracle_from_f16((uint16_t)word_at(p));
}

static unsigned nibble_of(unsigned byte, size_t n)
{
    return byte >> (4 * n) & 15;
}

static double iq2_level(unsigned point, size_t j)
{
    static const double level[3] = {8, 25, 43};

    return level[point >> (2 * j) & 3];
}

/* Seven signs are stored; the eighth makes the number of minus signs even. */
static double even_sign(unsigned seven, size_t j)
{
    unsigned minus = seven & 127, all = minus, parity = 0;

    for (; minus != 0; minus >>= 1)
        parity ^= minus & 1;
    all |= parity << 7;
    return all >> j & 1 ? -1 : 1;
}

/* f16 d; for each run four points of a byte each, then 32 bits: four times seven signs, a scale of four bits. */
double oracle_iq2_xxs_value(const uint8_t *block, size_t i)
{
    const uint8_t *run = block + 2 + i / 32 * 8;
    size_t part = i % 32 / 8;
    uint32_t rest = long_at(run + 4);

    return half_at(block) * (0.5 + (rest >> 28)) * 0.25 * iq2_level(mica__iq2_xxs_grid[run[part]], i % 8) *
           even_sign(rest >> (7 * part), i % 8);
}

/* f16 d; 32 words: a point of nine bits, seven signs; eight bytes: for each run two scales of four bits. */
double oracle_iq2_xs_value(const uint8_t *block, size_t i)
{
    unsigned word = word_at(block + 2 + i / 8 * 2);

    return half_at(block) * (0.5 + nibble_of(block[66 + i / 32], i % 32 / 16)) * 0.25 *
           iq2_level(mica__iq2_xs_grid[word & 511], i % 8) * even_sign(word >> 9, i % 8);
}

/* f16 d; 32 bytes of points; 32 of signs, eight each; eight of upper bits of points, two each; eight of scales. */
double oracle_iq2_s_value(const uint8_t *block, size_t i)
{
    unsigned upper = block[66 + i / 32] >> (2 * (i % 32 / 8)) & 3;

    return half_at(block) * (0.5 + nibble_of(block[74 + i / 32], i % 32 / 16)) * 0.25 *
           iq2_level(mica__iq2_s_grid[block[2 + i / 8] | upper << 8], i % 8) *
           (block[34 + i / 8] >> i % 8 & 1 ? -1 : 1);
}

/* f16 d; 64 bytes of points of four values; eight times 32 bits: four times seven signs, a scale of four bits. */
double oracle_iq3_xxs_value(const uint8_t *block, size_t i)
{
    static const double level[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    uint32_t rest = long_at(block + 66 + i / 32 * 4);
    unsigned point = mica__iq3_xxs_grid[block[2 + i / 4]];

    return half_at(block) * (0.5 + (rest >> 28)) * 0.5 * level[point >> (3 * (i % 4)) & 7] *
           even_sign(rest >> (7 * (i % 32 / 8)), i % 8);
}

/* f16 d; 64 bytes of points of four values; eight of their upper bits; 32 of signs; four of scales. */
double oracle_iq3_s_value(const uint8_t *block, size_t i)
{
    unsigned upper = block[66 + i / 32] >> (i % 32 / 4) & 1;
    unsigned point = mica__iq3_s_grid[block[2 + i / 4] | upper << 8];

    return half_at(block) * (1 + 2.0 * nibble_of(block[106 + i / 64], i / 32 % 2)) *
           (1 + 2.0 * (point >> (3 * (i % 4)) & 7)) * (block[74 + i / 8] >> i % 8 & 1 ? -1 : 1);
}

/* A point of iq1 and what all its values are shifted by. */
static void iq1_value(double scale, unsigned number, size_t j, bool down, double *value, double *magnitude)
{
    double level = (double)(mica__iq1_grid[number] >> (2 * j) & 3) - 1, shift = down ? -0.125 : 0.125;

    *value = scale * (level + shift);
    *magnitude = fabs(scale) * (fabs(level) + fabs(shift));
}

/* f16 d; 32 bytes of points; for each run a word: three upper bits of four points, a scale of three bits, the shift. */
void oracle_iq1_s_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    unsigned word = word_at(block + 34 + i / 32 * 2), upper = word >> (3 * (i % 32 / 8)) & 7;

    iq1_value(half_at(block) * (1 + 2.0 * (word >> 12 & 7)), block[2 + i / 8] | upper << 8, i % 8, word >> 15,
              value, magnitude);
}

/* 32 bytes of points; 16 bytes: for each point three upper bits and the shift; four words: four scales of three bits, and
 * in the upper four bits a quarter of an f16 d. */
void oracle_iq1_m_value(const uint8_t *block, size_t i, double *value, double *magnitude)
{
    const uint8_t *scales = block + 48;
    unsigned bits = nibble_of(block[32 + i / 16], i / 8 % 2), d = 0;
    unsigned scale = word_at(scales + i / 64 * 2) >> (3 * (i / 16 % 4)) & 7;

    for (size_t word = 0; word < 4; word++)
        d |= word_at(scales + word * 2) >> 12 << (4 * word);
    iq1_value(oracle_from_f16((uint16_t)d) * (1 + 2.0 * scale), block[i / 8] | (bits & 7) << 8, i % 8,
              bits >> 3, value, magnitude);
}
