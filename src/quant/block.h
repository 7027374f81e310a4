/*
 * block.h - what the bytes of the block formats mean.
 *
 * All numbers are little endian, as is every machine mica runs on. A block lies at any address: copy it out.
 * h means the bits of an f16.
 */
#ifndef MICA_QUANT_BLOCK_H
#define MICA_QUANT_BLOCK_H

#include <stdint.h>

#include "base/half.h"

/* ---- blocks of 32 ---- */

typedef struct mica__block_q4_0 { /* w = (q - 8) * d */
    uint16_t d;                   /* h */
    uint8_t qs[16];               /* value j low nibble, value j + 16 high nibble of qs[j] */
} mica__block_q4_0;

typedef struct mica__block_q4_1 { /* w = q * d + m */
    uint16_t d, m;                /* h */
    uint8_t qs[16];               /* as q4_0 */
} mica__block_q4_1;

typedef struct mica__block_q5_0 { /* w = (q - 16) * d */
    uint16_t d;                   /* h */
    uint8_t qh[4];                /* fifth bit of value j: bit j of the four bytes as one number */
    uint8_t qs[16];               /* the other four as q4_0 */
} mica__block_q5_0;

typedef struct mica__block_q5_1 { /* w = q * d + m */
    uint16_t d, m;                /* h */
    uint8_t qh[4];                /* as q5_0 */
    uint8_t qs[16];
} mica__block_q5_1;

typedef struct mica__block_q8_0 { /* w = q * d */
    uint16_t d;                   /* h */
    int8_t qs[32];
} mica__block_q8_0;

typedef struct mica__block_q8_1 { /* w = q * d */
    uint16_t d, s;                /* h; s = d * the sum of qs */
    int8_t qs[32];
} mica__block_q8_1;

/* ---- blocks of 256 ---- */

typedef struct
    mica__block_q2_k { /* sub-blocks s of 16: w = d * (scales[s] & 15) * q - dmin * (scales[s] >> 4) */
    uint8_t scales[16];
    uint8_t qs[64];   /* halves of 128 values: value 32 t + l at bits 2 t of qs[32 half + l] */
    uint16_t d, dmin; /* h */
} mica__block_q2_k;

typedef struct mica__block_q3_k { /* sub-blocks s of 16: w = d * (scale[s] - 32) * (q - 4) */
    uint8_t hmask[32];            /* third bit: value 32 t + l at bit t of hmask[l], t over the whole block */
    uint8_t qs[64];               /* the other two as q2_k */
    uint8_t scales[12];           /* 6 bits: mica__q3_k_scales */
    uint16_t d;                   /* h */
} mica__block_q3_k;

typedef struct mica__block_q4_k { /* sub-blocks s of 32: w = (d * scale[s]) * q - dmin * min[s] */
    uint16_t d, dmin;             /* h */
    uint8_t scales[12];           /* 6-bit scales and mins: mica__q4_k_scales */
    uint8_t qs[128];              /* sub-blocks 2p and 2p + 1 are the low and high nibbles of qs[32 p ..] */
} mica__block_q4_k;

typedef struct mica__block_q5_k { /* as q4_k */
    uint16_t d, dmin;             /* h */
    uint8_t scales[12];
    uint8_t qh[32];  /* fifth bit: value 32 s + l at bit s of qh[l] */
    uint8_t qs[128]; /* the other four as q4_k */
} mica__block_q5_k;

typedef struct mica__block_q6_k { /* w = (d * scales[i / 16]) * (q - 32) */
    uint8_t ql[128];              /* low four bits, halves of 128 values: value 32 t + l in nibble t / 2 of
                                   * ql[64 half + 32 (t % 2) + l] */
    uint8_t qh[64];               /* upper two bits: bits 2 t of qh[32 half + l] */
    int8_t scales[16];
    uint16_t d; /* h */
} mica__block_q6_k;

typedef struct mica__block_q8_k { /* w = d * q */
    float d;
    int8_t qs[256];
    int16_t bsums[16]; /* sums of 16 */
} mica__block_q8_k;

/* ---- codebooks: the stored number is an index into a grid of iq_grid.h ---- */

/* The levels of iq4_nl and iq4_xs, denser near zero. */
#define MICA__IQ4_LEVELS -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113

typedef struct mica__block_iq4_nl { /* 32 values: w = d * level[q] */
    uint16_t d;                     /* h */
    uint8_t qs[16];                 /* as q4_0 */
} mica__block_iq4_nl;

typedef struct mica__block_iq4_xs { /* sub-blocks s of 32: w = d * (scale[s] - 32) * level[q] */
    uint16_t d;                     /* h */
    uint16_t scales_h;              /* upper two bits of scale s at bits 2 s */
    uint8_t scales_l[4];            /* the low four: nibble s % 2 of byte s / 2 */
    uint8_t qs[128];                /* sub-block s as an iq4_nl block at 16 s */
} mica__block_iq4_xs;

typedef struct mica__block_iq2_xxs { /* sub-blocks of 32: w = +- d * (0.5 + scale) / 4 * grid */
    uint16_t d;                      /* h */
    uint8_t qs[64];                  /* a sub-block is four indices of a byte, and a word of four 7-bit signs
                                      * (the eighth makes their number even) below a 4-bit scale */
} mica__block_iq2_xxs;

typedef struct mica__block_iq2_xs { /* runs of 16: w = +- d * (0.5 + scale) / 4 * grid */
    uint16_t d;                     /* h */
    uint16_t qs[32];                /* eight values: 9 bits of index, 7 of signs */
    uint8_t scales[8];              /* a nibble a run */
} mica__block_iq2_xs;

typedef struct mica__block_iq2_s { /* as iq2_xs */
    uint16_t d;                    /* h */
    uint8_t qs[32];                /* low eight bits of the index of eight values */
    uint8_t signs[32];             /* bit j: value j of the eight is negative */
    uint8_t qh[8];                 /* upper two bits of index 4 s + l at bits 2 l of qh[s] */
    uint8_t scales[8];
} mica__block_iq2_s;

typedef struct mica__block_iq3_xxs { /* sub-blocks of 32: w = +- d * (0.5 + scale) / 2 * grid */
    uint16_t d;                      /* h */
    uint8_t qs[64];                  /* the index of four values */
    uint8_t words[32];               /* signs and scale of a sub-block as in iq2_xxs */
} mica__block_iq3_xxs;

typedef struct mica__block_iq3_s { /* sub-blocks of 32: w = +- d * (1 + 2 * scale) * grid */
    uint16_t d;                    /* h */
    uint8_t qs[64];                /* low eight bits of the index of four values */
    uint8_t qh[8];                 /* the ninth of index 8 s + l at bit l of qh[s] */
    uint8_t signs[32];             /* as iq2_s */
    uint8_t scales[4];             /* a nibble a sub-block */
} mica__block_iq3_s;

typedef struct mica__block_iq1_s { /* sub-blocks of 32: w = d * (1 + 2 * scale) * (grid +- 0.125) */
    uint16_t d;                    /* h */
    uint8_t qs[32];                /* low eight bits of the index of eight values */
    uint16_t qh[8]; /* upper three of index 4 s + l at bits 3 l of qh[s]; scale at 12, sign at 15 */
} mica__block_iq1_s;

typedef struct mica__block_iq1_m { /* runs of 16: w = d * (1 + 2 * scale) * (grid +- 0.125) */
    uint8_t qs[32];                /* as iq1_s */
    uint8_t qh[16];                /* a nibble for eight values: upper three bits of the index, sign */
    uint16_t scales[4];            /* four 3-bit scales each; the top nibbles are d, h, lowest nibble first */
} mica__block_iq1_m;

/* ---- 4-bit floats e2m1 and ternary digits ---- */

/* Twice the sixteen e2m1: whole numbers. Minus zero is plain zero. */
#define MICA__FP4_LEVELS 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

typedef struct mica__block_mxfp4 { /* 32 values: w = 2^(e - 128) * twice the e2m1 */
    uint8_t e;
    uint8_t qs[16]; /* as q4_0 */
} mica__block_mxfp4;

typedef struct mica__block_nvfp4 { /* 64 values, sub-blocks s of 16: w = d[s] / 2 * twice the e2m1 */
    uint8_t d[4];                  /* e4m3 without its sign; 0x7f is zero */
    uint8_t qs[32];                /* value j low nibble, value j + 8 high nibble of qs[8 s + j] */
} mica__block_nvfp4;

typedef struct
    mica__block_tq1_0 { /* w = (t - 1) * d; digits t of base three are read from the top of a byte */
    uint8_t qs[48];     /* five a byte: 32 n + m of the first 160 values in qs[m], 16 n + m of the next
                                    * 80 in qs[32 + m] */
    uint8_t qh[4];      /* four a byte: 4 n + m of the last 16 values */
    uint16_t d;         /* h */
} mica__block_tq1_0;

typedef struct mica__block_tq2_0 { /* w = (q - 1) * d */
    uint8_t qs[64];                /* as q2_k */
    uint16_t d;                    /* h */
} mica__block_tq2_0;

_Static_assert(sizeof(mica__block_q4_0) == 18, "q4_0 block");
_Static_assert(sizeof(mica__block_q4_1) == 20, "q4_1 block");
_Static_assert(sizeof(mica__block_q5_0) == 22, "q5_0 block");
_Static_assert(sizeof(mica__block_q5_1) == 24, "q5_1 block");
_Static_assert(sizeof(mica__block_q8_0) == 34, "q8_0 block");
_Static_assert(sizeof(mica__block_q8_1) == 36, "q8_1 block");
_Static_assert(sizeof(mica__block_q2_k) == 84, "q2_k block");
_Static_assert(sizeof(mica__block_q3_k) == 110, "q3_k block");
_Static_assert(sizeof(mica__block_q4_k) == 144, "q4_k block");
_Static_assert(sizeof(mica__block_q5_k) == 176, "q5_k block");
_Static_assert(sizeof(mica__block_q6_k) == 210, "q6_k block");
_Static_assert(sizeof(mica__block_q8_k) == 292, "q8_k block");
_Static_assert(sizeof(mica__block_iq4_nl) == 18, "iq4_nl block");
_Static_assert(sizeof(mica__block_iq4_xs) == 136, "iq4_xs block");
_Static_assert(sizeof(mica__block_iq2_xxs) == 66, "iq2_xxs block");
_Static_assert(sizeof(mica__block_iq2_xs) == 74, "iq2_xs block");
_Static_assert(sizeof(mica__block_iq2_s) == 82, "iq2_s block");
_Static_assert(sizeof(mica__block_iq3_xxs) == 98, "iq3_xxs block");
_Static_assert(sizeof(mica__block_iq3_s) == 110, "iq3_s block");
_Static_assert(sizeof(mica__block_iq1_s) == 50, "iq1_s block");
_Static_assert(sizeof(mica__block_iq1_m) == 56, "iq1_m block");
_Static_assert(sizeof(mica__block_mxfp4) == 17, "mxfp4 block");
_Static_assert(sizeof(mica__block_nvfp4) == 36, "nvfp4 block");
_Static_assert(sizeof(mica__block_tq1_0) == 54, "tq1_0 block");
_Static_assert(sizeof(mica__block_tq2_0) == 66, "tq2_0 block");

/* The scale of an mxfp4 block, 2^(e - 128), all 256 of them: the two smallest are subnormal. */
static inline float mica__mxfp4_half(uint8_t e)
{
    return mica__f32_from_bits(e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23);
}

/* The scale of an nvfp4 sub-block: half of an e4m3 whose sign is not looked at. */
static inline float mica__nvfp4_half(uint8_t d)
{
    return d == 0x7f ? 0.0f : 0.5f * mica__small_to_magnitude(d & 0x7f, 3, 7);
}

/* The eight scales and eight mins of a q4_k or q5_k block: the first four of each in 6 bits of a byte, the low four
 * bits of the others in the last four bytes, their upper two bits above the first ones. */
static inline void mica__q4_k_scales(const uint8_t packed[12], uint8_t scale[8], uint8_t min[8])
{
    for (int j = 0; j < 4; j++) {
        scale[j] = packed[j] & 63;
        min[j] = packed[j + 4] & 63;
        scale[j + 4] = (uint8_t)((packed[j + 8] & 15) | (packed[j] >> 6) << 4);
        min[j + 4] = (uint8_t)((packed[j + 8] >> 4) | (packed[j + 4] >> 6) << 4);
    }
}

/* The sixteen scales of a q3_k block, 0 to 63: low four bits in nibbles (scale j and j + 8 share byte j), the upper
 * two of scale 4 t + j at bits 2 t of byte 8 + j. */
static inline void mica__q3_k_scales(const uint8_t packed[12], uint8_t scale[16])
{
    for (int j = 0; j < 8; j++) {
        scale[j] = (uint8_t)((packed[j] & 15) | (packed[8 + j % 4] >> 2 * (j / 4) & 3) << 4);
        scale[j + 8] = (uint8_t)((packed[j] >> 4) | (packed[8 + j % 4] >> (4 + 2 * (j / 4)) & 3) << 4);
    }
}

/* Scale s of an iq4_xs block, 0 to 63. */
static inline int mica__iq4_xs_scale(uint16_t scales_h, const uint8_t scales_l[4], int s)
{
    return (scales_l[s / 2] >> s % 2 * 4 & 15) | (scales_h >> 2 * s & 3) << 4;
}

#endif
