/*
 * oracle_codes.h - the block formats whose codes stand for fixed levels: iq4_nl iq4_xs mxfp4 nvfp4 tq1_0 tq2_0.
 */
#ifndef ORACLE_CODES_H
#define ORACLE_CODES_H

#include <stddef.h>
#include <stdint.h>

/* Value i of a block. */
double oracle_iq4_nl_value(const uint8_t *block, size_t i);
double oracle_iq4_xs_value(const uint8_t *block, size_t i);
double oracle_mxfp4_value(const uint8_t *block, size_t i);
double oracle_nvfp4_value(const uint8_t *block, size_t i);
double oracle_tq1_0_value(const uint8_t *block, size_t i);
double oracle_tq2_0_value(const uint8_t *block, size_t i);

#endif
