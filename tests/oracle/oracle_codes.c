/*
 * oracle_codes.c - block formats with fixed levels, one value at a time from the layout. The levels of iq4 are part of
 * that format's definition; those of e2m1 and the ternary digits follow from theirs.
 */
#include "oracle/oracle_codes.h"

#include <math.h>

#include "oracle/oracle_number.h"

static double half_at(const uint8_t *p)
{
    return oracle_from_f16((uint16_t)(p[0] | p[1] << 8));
}

/* Of 2 n values: value j < n in the low nibble of byte j, value j + n in the high one. */
static int nibble(const uint8_t *qs, size_t n, size_t j)
{
    return j < n ? qs[j] & 15 : qs[j - n] >> 4;
}

static double iq4_level(int code)
{
    static const int level[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

    return level[code];
}

/* f16 d; 16 bytes of nibbles. */
double oracle_iq4_nl_value(const uint8_t *block, size_t i)
{
    return half_at(block) * iq4_level(nibble(block + 2, 16, i));
}

/* f16 d; u16 of upper scale bits, two each; 4 bytes of lower scale bits, four each; 8 runs of 16 bytes of nibbles. */
double oracle_iq4_xs_value(const uint8_t *block, size_t i)
{
    size_t run = i / 32;
    int upper = (block[2] | block[3] << 8) >> (2 * run) & 3;
    int lower = block[4 + run / 2] >> (run % 2 * 4) & 15;

    return half_at(block) * (lower + 16 * upper - 32) * iq4_level(nibble(block + 8 + 16 * run, 16, i % 32));
}

/* A sign, two bits of exponent with bias 1, one of fraction. */
double oracle_e2m1(int code)
{
    int exponent = code >> 1 & 3, fraction = code & 1;
    double size = exponent == 0 ? fraction * 0.5 : ldexp(1 + fraction * 0.5, exponent - 1);

    return code & 8 ? -size : size;
}

/* A power of two with bias 127; 16 bytes of nibbles. */
double oracle_mxfp4_value(const uint8_t *block, size_t i)
{
    return ldexp(oracle_e2m1(nibble(block + 1, 16, i)), block[0] - 127);
}

/* A sign, four bits of exponent with bias 7, three of fraction. */
double oracle_e4m3(int code)
{
    int exponent = code >> 3 & 15, fraction = code & 7;
    double size = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10);

    if ((code & 127) == 127)
        return NAN;
    return code & 128 ? -size : size;
}

double oracle_e8m0(int code)
{
    return code == 255 ? (double)NAN : ldexp(1, code - 127);
}

/* Four scales of e4m3 without a sign, bias 7; four runs of 8 bytes of nibbles. */
double oracle_nvfp4_value(const uint8_t *block, size_t i)
{
    size_t run = i / 16;

    return oracle_e4m3(block[run] & 127) * oracle_e2m1(nibble(block + 4 + 8 * run, 8, i % 16));
}

/* Digit n of a byte that holds a number below 1 in 256ths, in base three: each digit is what multiplying by three
 * pushes above the point. */
static int ternary_digit(int byte, size_t n)
{
    for (; n > 0; n--)
        byte = byte * 3 % 256;
    return byte * 3 / 256;
}

/* 32 bytes with the digits of values 0 to 159, 16 with those of 160 to 239, 4 with the rest; f16 d. Digit n of byte m
 * of each part is its value n * bytes + m. */
double oracle_tq1_0_value(const uint8_t *block, size_t i)
{
    size_t begin = i < 160 ? 0 : i < 240 ? 160 : 240, bytes = i < 160 ? 32 : i < 240 ? 16 : 4;
    const uint8_t *part = block + (i < 160 ? 0 : i < 240 ? 32 : 48);

    i -= begin;
    return (ternary_digit(part[i % bytes], i / bytes) - 1) * half_at(block + 52);
}

/* Two halves of 32 bytes, each with 128 values: value j in bits 2 (j / 32) of byte j % 32; f16 d. */
double oracle_tq2_0_value(const uint8_t *block, size_t i)
{
    int code = block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;

    return (code - 1) * half_at(block + 64);
}
