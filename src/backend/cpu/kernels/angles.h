/*
 * angles.h - frequencies and the cosine and sine of rotary angles, in double precision.
 *
 * An angle is position times frequency; a position may be a million and more, so whole circles are taken off in
 * double precision before a polynomial sees it. The loops are plain C without branches, for the compiler to
 * make vectors of. Adding 1.5 * 2^52 rounds to a whole number and leaves it in the low bits.
 */
#ifndef MICA_CPU_ANGLES_H
#define MICA_CPU_ANGLES_H

#include <stdint.h>
#include <string.h>

static inline uint64_t mica__f64_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double mica__f64_from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* exp(x) for |x| <= 700, within two units in the last place. */
static inline double mica__exp(double x)
{
    const double shifted = x * 0x1.71547652b82fep0 + 0x1.8p52, n = shifted - 0x1.8p52;
    const double r = (x - n * 0x1.62e42fefa2p-1) - n * 0x1.9ef35793c7673p-41;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = (p * r * r + r) + 1.0;
    return p * mica__f64_from_bits((mica__f64_bits(shifted) + 1023) << 52);
}

/* Cosine and sine of position * frequency[i], times scale, rounded to f32. The error is that of the angle:
 * below 1e-9 for angles up to 1e6, then growing with them. */
static inline void mica__angles(double position, const double *frequency, float scale, uint64_t n,
                                float *cosine, float *sine)
{
    for (uint64_t i = 0; i < n; i++) {
        const double angle = position * frequency[i];
        const double shifted = angle * 0x1.45f306dc9c883p-1 + 0x1.8p52, quarters = shifted - 0x1.8p52;
        /* pi / 2 in three parts, the first two of 22 bits, so that the products are exact. */
        const double r =
            ((angle - quarters * 0x1.921fbp0) - quarters * 0x1.5110bp-22) - quarters * 0x1.18469898cc517p-44;
        const double q = r * r;
        double s = 1.0 / 6227020800.0;
        s = s * q - 1.0 / 39916800.0;
        s = s * q + 1.0 / 362880.0;
        s = s * q - 1.0 / 5040.0;
        s = s * q + 1.0 / 120.0;
        s = s * q - 1.0 / 6.0;
        s = s * q * r + r;
        double c = 1.0 / 479001600.0;
        c = c * q - 1.0 / 3628800.0;
        c = c * q + 1.0 / 40320.0;
        c = c * q - 1.0 / 720.0;
        c = c * q + 1.0 / 24.0;
        c = c * q - 0.5;
        c = c * q + 1.0;
        /* Odd quarters exchange the two; bits 1 of quarters and of quarters + 1 are their signs. */
        const uint64_t quarter = mica__f64_bits(shifted), odd = 0 - (quarter & 1);
        const uint64_t swap = (mica__f64_bits(s) ^ mica__f64_bits(c)) & odd;
        const uint64_t below = (quarter & 2) << 62, left = ((quarter + 1) & 2) << 62;
        cosine[i] = (float)mica__f64_from_bits(mica__f64_bits(c) ^ swap ^ left) * scale;
        sine[i] = (float)mica__f64_from_bits(mica__f64_bits(s) ^ swap ^ below) * scale;
    }
}

#endif
