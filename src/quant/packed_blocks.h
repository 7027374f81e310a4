/* packed_blocks.h - one row of blocks from the canonical layout into its places of a packed group, by type. */
#ifndef MICA_QUANT_PACKED_BLOCKS_H
#define MICA_QUANT_PACKED_BLOCKS_H

#include <stdint.h>

/* `blocks` blocks at src as row r (0..7) of the packed blocks at dst. */
typedef void (*mica__packed_row_writer)(const unsigned char *src, uint32_t r, uint64_t blocks,
                                        unsigned char *dst);

/* The writer of a block type with a packed form; NULL for other types. */
mica__packed_row_writer mica__packed_writer_of(uint16_t dtype);

#endif
