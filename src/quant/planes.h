/*
 * planes.h - the PLANES layout: within each row of a weight matrix the fields of all its blocks, field by field, so that a
 * GPU reads the codes of neighbouring blocks in whole vectors.
 *
 * A row of k values is n = k / block blocks. Plane f begins behind the planes before it and holds field f of block 0, 1, ..
 * n - 1. The row stride is the bytes of the row rounded up to 16, so that the first plane of every row can be read 16 bytes
 * at a time; what is left over is not written.
 */
#ifndef MICA_QUANT_PLANES_H
#define MICA_QUANT_PLANES_H

#include <stdbool.h>
#include <stdint.h>

#include "mica/types.h"

#define MICA__PLANES_MOST 4u
#define MICA__PLANES_ALIGN 16u

/* Fields of a block in the order of the planes: where it lies in the canonical block, and its bytes. */
typedef struct mica__planes {
    uint32_t count; /* 0: the type has no such layout */
    struct {
        uint8_t offset, bytes;
    } field[MICA__PLANES_MOST];
} mica__planes;

/* The fields of a type; `count` 0 where it has none. */
mica__planes mica__planes_of(uint16_t dtype);
/* Row stride of k values, a multiple of the block; 0 if the type has no such layout or the size overflows. */
uint64_t mica__planes_row_bytes(uint16_t dtype, uint64_t k);
/* k values between a canonical row and one in planes. The type has the layout; the rows do not overlap. */
void mica__planes_pack_row(uint16_t dtype, uint64_t k, const void *row, void *planes);
void mica__planes_unpack_row(uint16_t dtype, uint64_t k, const void *planes, void *row);

#endif
