/*
 * codec.h - what the files in codec/ share: names, signatures, small pieces of arithmetic.
 *
 * Every file in codec/ is compiled once per instruction set with MICA_ISA set to its name; its functions carry that
 * name as a suffix (MICA__CODEC(decode_q4_0) is mica__codec_decode_q4_0__avx2). The result has the same bits on
 * every instruction set: no product is contracted into a sum, and sums that a compiler may not reorder are written
 * in lanes with a fixed tree.
 *
 * To add a type: its struct in block.h, its row in codecs.def, its functions in a file of codec/.
 */
#ifndef MICA_QUANT_CODEC_H
#define MICA_QUANT_CODEC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "quant/block.h"

/* `blocks` blocks from src to dst, either at any address. Defined for all bytes. */
typedef void (*mica__codec_decode)(const void *src, float *dst, uint64_t blocks);
/* importance: NULL, or a weight for each value of src, finite and not negative: how much an error there costs. Types
 * with nothing to choose ignore it. Values that are not finite give some block, never a fault. */
typedef void (*mica__codec_encode)(const float *src, const float *importance, void *dst, uint64_t blocks);

typedef struct mica__codec {
    mica__codec_decode decode;
    mica__codec_encode encode; /* NULL where a type is only read */
} mica__codec;

#if defined(MICA_ISA) /* a file of codec/ */

#define MICA__CODEC_JOIN2(name, isa) mica__codec_##name##__##isa
#define MICA__CODEC_JOIN(name, isa) MICA__CODEC_JOIN2(name, isa)
#define MICA__CODEC(name) MICA__CODEC_JOIN(name, MICA_ISA)

#define MICA__CODEC_DECODE(dtype, name) \
    void MICA__CODEC(decode_##name)(const void *src, float *dst, uint64_t blocks);
#define MICA__CODEC_BOTH(dtype, name) \
    MICA__CODEC_DECODE(dtype, name)   \
    void MICA__CODEC(encode_##name)(const float *src, const float *importance, void *dst, uint64_t blocks);
#include "quant/codecs.def"
#undef MICA__CODEC_DECODE
#undef MICA__CODEC_BOTH

extern const mica__codec MICA__CODEC(table)[];

#endif
#endif
