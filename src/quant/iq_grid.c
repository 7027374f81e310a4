/* iq_grid.c - the grids of the codebook formats, from the text that kernels get too. */
#include "quant/iq_grid.h"

#define MK_TABLE(type, name, count) const type mica__##name[count]
#define mk_u16 uint16_t

#include "kernels/iq_grid.kc"
