/*
 * oracle_codes.h - the block formats whose codes stand for fixed levels: iq4_nl iq4_xs mxfp4 nvfp4 tq1_0 tq2_0; those whose codes
 * number the points of a grid: iq1, iq2, iq3; and the floats of four and eight bits.
 */
#ifndef ORACLE_CODES_H
#define ORACLE_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Value i of a block. */
double oracle_iq4_nl_value(const uint8_t *block, size_t i);
double oracle_iq4_xs_value(const uint8_t *block, size_t i);
double oracle_mxfp4_value(const uint8_t *block, size_t i);
double oracle_nvfp4_value(const uint8_t *block, size_t i);
double oracle_tq1_0_value(const uint8_t *block, size_t i);
double oracle_tq2_0_value(const uint8_t *block, size_t i);
double oracle_iq2_xxs_value(const uint8_t *block, size_t i);
double oracle_iq2_xs_value(const uint8_t *block, size_t i);
double oracle_iq2_s_value(const uint8_t *block, size_t i);
double oracle_iq3_xxs_value(const uint8_t *block, size_t i);
double oracle_iq3_s_value(const uint8_t *block, size_t i);
/* Of turbo blocks: levels, signs, bits of value i (`halfbits` is twice the bits of the type), values before the rotation back. */
double oracle_turbo_level(unsigned bits, unsigned code);
double oracle_turbo_sign(size_t i);
unsigned oracle_turbo_bits(unsigned halfbits, size_t i);
double oracle_turbo_rotated(unsigned halfbits, const uint8_t *block, size_t i);
/* And the absolute terms that a kernel may add up for it. */
void oracle_turbo2_value(const uint8_t *block, size_t i, double *value, double *magnitude);
void oracle_turbo2_5_value(const uint8_t *block, size_t i, double *value, double *magnitude);
void oracle_turbo3_value(const uint8_t *block, size_t i, double *value, double *magnitude);
void oracle_turbo4_value(const uint8_t *block, size_t i, double *value, double *magnitude);
void oracle_turbo5_value(const uint8_t *block, size_t i, double *value, double *magnitude);
void oracle_turbo6_value(const uint8_t *block, size_t i, double *value, double *magnitude);
void oracle_turbo8_value(const uint8_t *block, size_t i, double *value, double *magnitude);

void oracle_iq1_s_value(const uint8_t *block, size_t i, double *value, double *magnitude);
void oracle_iq1_m_value(const uint8_t *block, size_t i, double *value, double *magnitude);

/* Small floats by their code: a sign, e bits of exponent, m of fraction. Without infinities; e4m3 with all bits but the
 * sign set is NaN. e8m0 is a power of two with bias 127, 255 NaN. */
double oracle_e2m1(int code);
double oracle_e4m3(int code);
double oracle_e8m0(int code);

#endif
