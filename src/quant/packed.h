/*
 * packed.h - the ROWS8 layout: eight rows of a weight matrix interleaved, so that one 32-byte vector holds four
 * consecutive values of each of eight rows and a dot product needs no horizontal sum.
 *
 * A matrix [N, K] is ceil(N / 8) groups of mica__packed_group_bytes each; rows past N are zero. A group is a head
 * (affine types only), then blocks along K, then padding to 64 bytes. A block is the scales of eight rows and then
 * parts of 32 values. In the buffer's view the stride of the row dimension is group bytes / 8, and the stride of a
 * batch ceil(N / 8) * group bytes.
 *
 * A part is 32 codes of eight rows in one plane or two, the lower bits first. r is the row in the group, i = 0..3; a
 * code is the stored unsigned number:
 *   nibbles  128 bytes  byte 32 v + 4 r + i (v 0..3) has code 4 v + i in its low and code 16 + 4 v + i in its high nibble
 *   pairs     64 bytes  byte 32 u + 4 r + i (u 0..1) has at bits 2 h two bits of code 4 (2 h + u) + i (h 0..3)
 *   bits      32 bytes  byte 4 r + i has at bit c one bit of code 4 c + i (c 0..7)
 *   bytes    256 bytes  byte 32 c + 4 r + i is code 4 c + i
 * 2 bits: pairs. 3: pairs and bits. 4: nibbles. 5: nibbles and bits. 6: nibbles and pairs. 8: bytes.
 *
 * Blocks; bytes [n][8] are n tables of eight rows, byte j of the canonical block's n being in table j:
 *   q4_0     32 values  h d[8]; a 4-bit part                                    w = (code - 8) d
 *   q4_1     32 values  h d[8]; h m[8]; a 4-bit part                            w = code d + m
 *   q5_0     32 values  h d[8]; a 5-bit part                                    w = (code - 16) d
 *   q5_1     32 values  h d[8]; h m[8]; a 5-bit part                            w = code d + m
 *   q8_0     32 values  h d[8]; an 8-bit part of q + 128                        w = (code - 128) d
 *   q2_k    256 values  h d[8]; h dmin[8]; scales[16][8]; eight 2-bit parts
 *   q3_k    256 values  h d[8]; scales[12][8]; eight 3-bit parts                w = d (scale - 32) (code - 4)
 *   q4_k    256 values  h d[8]; h dmin[8]; scales[12][8]; eight 4-bit parts
 *   q5_k    256 values  h d[8]; h dmin[8]; scales[12][8]; eight 5-bit parts
 *   q6_k    256 values  h d[8]; i8 scales[16][8]; eight 6-bit parts             w = d scale (code - 32)
 *   iq4_nl   32 values  h d[8]; a 4-bit part                                    w = d level[code]
 *   iq4_xs  256 values  h d[8]; scales_h[2][8]; scales_l[4][8]; eight 4-bit parts
 *   mxfp4    32 values  bf16 half[8]; a 4-bit part                              w = half level[code], half = 2^(e - 128)
 *   nvfp4    64 values  h half[4][8], of 16 values each; two 4-bit parts        w = half level[code]
 *   fp4      32 values  groups of 32 with scales of e8m0 as mxfp4; groups of 16 with scales of f8_e4m3: h half[2][8]; a
 *                       4-bit part, the last one filled with zero codes. half is half the scale.
 *   affine  one group   scale[8]; bias[8] as f16 or bf16; parts of 2, 3, 4, 5, 6 or 8 bits, the last one filled with
 *                       zero codes; the last group of a row may have fewer parts. Head: 64 bytes, u32 dtype of scales.
 * Affine groups that are no multiple of 32 values, or longer than 8192, have no packed form; nor have scales of f32,
 * which would make every other weight larger, nor other groups and scales of fp4 (mica__packed_scales).
 */
#ifndef MICA_QUANT_PACKED_H
#define MICA_QUANT_PACKED_H

#include <stdbool.h>
#include <stdint.h>

#include "mica/types.h"

#define MICA__PACKED_ROWS 8u
#define MICA__PACKED_HEAD 64u /* bytes before the first block of an affine group */
#define MICA__PACKED_MAX_GROUP 8192u

typedef struct mica__packed_form {
    uint32_t block_values; /* along K */
    uint32_t scale_bytes;  /* of a block, eight rows */
    uint32_t part_bytes;
    uint32_t head_bytes;
} mica__packed_form;

/* How a type is packed; false if it is not. group_size matters to affine types and fp4. */
bool mica__packed_form_of(uint16_t dtype, uint32_t group_size, mica__packed_form *out);
/* Whether a type with scales of its own is packed with such scales. */
bool mica__packed_scales(uint16_t dtype, uint32_t group_size, uint16_t scale_dtype);
/* Bytes of the blocks that hold k values of eight rows. */
uint64_t mica__packed_block_bytes(const mica__packed_form *form, uint64_t k);
/* Bytes of one group of eight rows, a multiple of 64; 0 if the type has no packed form. */
uint64_t mica__packed_group_bytes(uint16_t dtype, uint64_t k, uint32_t group_size);

/* A canonical matrix to be packed: row r at data + r * row_stride; scales for types that have them, biases for
 * affine ones. */
typedef struct mica__packed_source {
    const unsigned char *data, *scales, *biases;
    uint64_t row_stride, scale_stride, bias_stride; /* bytes */
    uint64_t k;
    uint32_t group_size;
    uint16_t dtype, scale_dtype;
} mica__packed_source;

/* Writes the blocks of values [k_first, k_first + k_count) of rows [row, row + rows), rows <= 8; missing rows become
 * zero. k_first is a multiple of the block; the range ends at a block's end or at k. No head is written. */
void mica__packed_write(const mica__packed_source *source, const mica__packed_form *form, uint64_t row,
                        uint32_t rows, uint64_t k_first, uint64_t k_count, unsigned char *dst);
/* Writes a whole group with its head and padding. */
void mica__packed_write_group(const mica__packed_source *source, const mica__packed_form *form, uint64_t row,
                              uint32_t rows, unsigned char *dst);

/* The scale type an affine group's head names. */
uint16_t mica__packed_scale_dtype(const void *group);
/* The first k values of row `row` (0..7) of a group, with the bits that the canonical row decodes to. */
void mica__packed_decode_row(uint16_t dtype, const void *group, uint32_t row, uint64_t k, uint32_t group_size,
                             float *dst);
/* Values [first, first + count) of it; first is a multiple of MICA__PACKED_PART. */
#define MICA__PACKED_PART 32u
void mica__packed_decode_part(uint16_t dtype, const void *group, uint32_t row, uint64_t first, uint64_t count,
                              uint32_t group_size, float *dst);

#endif
