/*
 * iq_grid.h - the grids that the codebook formats index, one entry a group of neighbouring values, packed: value i of
 * an entry is the level with the number at its bits.
 *   iq1          eight values, 2 bits: -1 0 1
 *   iq2          eight values, 2 bits: 8 25 43
 *   iq3_xxs      four values, 3 bits: 4 12 20 28 36 44 52 62
 *   iq3_s        four values, 3 bits: 1 3 5 7 9 11 13 15
 */
#ifndef MICA_QUANT_IQ_GRID_H
#define MICA_QUANT_IQ_GRID_H

#include <stdint.h>

extern const uint16_t mica__iq1_grid[2048];
extern const uint16_t mica__iq2_xxs_grid[256];
extern const uint16_t mica__iq2_xs_grid[512];
extern const uint16_t mica__iq2_s_grid[1024];
extern const uint16_t mica__iq3_xxs_grid[256];
extern const uint16_t mica__iq3_s_grid[512];

#endif
