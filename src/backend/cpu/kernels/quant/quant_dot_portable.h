/*
 * quant_dot_portable.h - dot products of 32 values for the eight rows of a packed panel, on 16-byte vectors of the
 * compiler's own.
 *
 * Included by quant_dot.h alone, which says what each function means. The integer sums are those of the other
 * instruction sets.
 */
#ifndef MICA_CPU_QUANT_DOT_PORTABLE_H
#define MICA_CPU_QUANT_DOT_PORTABLE_H

#define QUANT_PANELS 1
#define QUANT_COLUMNS 4

typedef struct quant_panels {
    const unsigned char *at[QUANT_PANELS];
} quant_panels;

/* Codes of a part, unpacked: chunk, then row, then value. */
typedef struct quant_codes {
    uint8_t code[8][8][4];
} quant_codes;

static inline vf quant_f16(const quant_panels *p, uint64_t offset)
{
    return vf_load_f16(p->at[0] + offset);
}

static inline vf quant_bf16(const quant_panels *p, uint64_t offset)
{
    return vf_load_bf16(p->at[0] + offset);
}

static inline vf quant_u8(const quant_panels *p, uint64_t offset)
{
    float lane[VW];
    for (int r = 0; r < VW; r++)
        lane[r] = (float)p->at[0][offset + (uint64_t)r];
    return vf_load(lane);
}

typedef int16_t quant_i16 __attribute__((vector_size(16)));
typedef uint16_t quant_u16 __attribute__((vector_size(16)));
typedef uint32_t quant_u32 __attribute__((vector_size(16)));

/* Sums of rows 0..3 and 4..7. */
typedef struct quant_sums {
    mica__i4 part[2];
} quant_sums;

static inline vf quant_to_float(quant_sums sums)
{
    return (vf){__builtin_convertvector(sums.part[0], mica__f4),
                __builtin_convertvector(sums.part[1], mica__f4)};
}

static inline quant_sums quant_start(int32_t value)
{
    const mica__i4 v = {value, value, value, value};
    return (quant_sums){{v, v}};
}

/* Codes of a part of 2 to 6 bits. */
static inline __attribute__((always_inline)) void quant_unpack(const unsigned char *part, const int bits,
                                                               quant_codes *out)
{
    const unsigned char *upper = part + (bits < 4 ? 64 : 128);
    for (int c = 0; c < 8; c++) {
        uint8_t *code = (uint8_t *)out + 32 * c;
        const unsigned char *pairs = (bits == 6 ? upper : part) + 32 * (c % 2);
        for (int i = 0; i < 32; i++)
            code[i] = bits < 4 ? pairs[i] >> c / 2 * 2 & 3 : part[32 * (c % 4) + i] >> c / 4 * 4 & 15;
        for (int i = 0; i < 32 && (bits == 3 || bits == 5); i++)
            code[i] |= (uint8_t)((upper[i] >> c & 1) << (bits - 1));
        for (int i = 0; i < 32 && bits == 6; i++)
            code[i] |= (uint8_t)((pairs[i] >> c / 2 * 2 & 3) << 4);
    }
}

/* The activations of a run as 16-bit pairs, one pair per chunk: its values 0 and 2, its values 1 and 3. */
typedef struct quant_pairs {
    int32_t even[8], odd[8];
} quant_pairs;

static inline void quant_split(const mica__q8_block *x, quant_pairs *out)
{
    for (int i = 0; i < 2; i++) {
        quant_i16 bytes;
        memcpy(&bytes, x->q + 16 * i, sizeof bytes);
        const quant_i16 even = (quant_i16)((quant_u16)bytes << 8) >> 8, odd = bytes >> 8;
        memcpy(out->even + 4 * i, &even, sizeof even);
        memcpy(out->odd + 4 * i, &odd, sizeof odd);
    }
}

/* Both 16-bit halves of each lane added to the sum. */
static inline mica__i4 quant_widen(mica__i4 sum, quant_i16 halves)
{
    const mica__i4 lanes = (mica__i4)halves;
    return sum + ((mica__i4)((quant_u32)lanes << 16) >> 16) + (lanes >> 16);
}

/* Adds the products of chunks [first, first + 4) to each row's sum. A product of an 8-bit code is at most 255 * 127 and
 * fits 16 bits; two of 6-bit codes do so together. */
static inline __attribute__((always_inline)) void quant_add(const quant_codes *codes, const quant_pairs *x,
                                                            int first, const int wide, quant_sums *sums)
{
    for (int c = first; c < first + 4; c++) {
        const quant_i16 even = (quant_i16)(mica__i4){x->even[c], x->even[c], x->even[c], x->even[c]};
        const quant_i16 odd = (quant_i16)(mica__i4){x->odd[c], x->odd[c], x->odd[c], x->odd[c]};
        for (int part = 0; part < 2; part++) {
            quant_u16 w;
            memcpy(&w, codes->code[c][4 * part], sizeof w);
            const quant_i16 a = (quant_i16)(w & 0xff) * even, b = (quant_i16)(w >> 8) * odd;
            if (wide)
                sums->part[part] = quant_widen(quant_widen(sums->part[part], a), b);
            else
                sums->part[part] = quant_widen(sums->part[part], a + b);
        }
    }
}

static inline __attribute__((always_inline)) void quant_dot_codes(const quant_codes *codes,
                                                                  const mica__q8_block *const *x,
                                                                  uint64_t block, int columns, const int zero,
                                                                  const int wide, vf *out)
{
    for (int c = 0; c < columns; c++) {
        const mica__q8_block *xb = &x[c][block];
        quant_sums sums = quant_start(zero == 8     ? xb->sum8
                                      : zero == 16  ? xb->sum16
                                      : zero == 128 ? xb->sum128
                                                    : 0);
        quant_pairs pairs;
        quant_split(xb, &pairs);
        quant_add(codes, &pairs, 0, wide, &sums);
        quant_add(codes, &pairs, 4, wide, &sums);
        out[c] = quant_to_float(sums);
    }
}

static inline mica__i4 quant_i8(const unsigned char *bytes)
{
    return (mica__i4){(int8_t)bytes[0], (int8_t)bytes[1], (int8_t)bytes[2], (int8_t)bytes[3]};
}

static inline void quant_dot(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x,
                             uint64_t block, const int columns, const int bits, const int zero, vf *sum)
{
    quant_codes codes;
    quant_unpack(p->at[0] + offset, bits, &codes);
    quant_dot_codes(&codes, x, block, columns, zero, 0, sum);
}

/* a * first + b * second, eight rows. */
static inline vf quant_scale_halves(quant_sums a, quant_sums b, const unsigned char *scales)
{
    for (int part = 0; part < 2; part++) {
        const unsigned char *scale = scales + 4 * part;
        a.part[part] = a.part[part] * quant_i8(scale) + b.part[part] * quant_i8(scale + 8);
    }
    return quant_to_float(a);
}

static inline void quant_dot_halves(const quant_panels *p, uint64_t offset, const quant_panels *scales,
                                    uint64_t at, const mica__q8_block *const *x, uint64_t block,
                                    const int columns, const int bits, vf *out)
{
    const int zero = bits == 2 ? 0 : 1 << (bits - 1);
    quant_codes codes;
    quant_unpack(p->at[0] + offset, bits, &codes);
    for (int c = 0; c < columns; c++) {
        const mica__q8_block *xb = &x[c][block];
        quant_sums a = quant_start(-zero * xb->half[0]), b = quant_start(-zero * xb->half[1]);
        quant_pairs pairs;
        quant_split(xb, &pairs);
        quant_add(&codes, &pairs, 0, 0, &a);
        quant_add(&codes, &pairs, 4, 0, &b);
        out[c] = quant_scale_halves(a, b, scales->at[0] + at);
    }
}

static inline void quant_min_halves(const quant_panels *mins, uint64_t at, const mica__q8_block *const *x,
                                    uint64_t block, const int columns, vf *out)
{
    for (int c = 0; c < columns; c++)
        out[c] = quant_scale_halves(quant_start(x[c][block].half[0]), quant_start(x[c][block].half[1]),
                                    mins->at[0] + at);
}

static inline void quant_dot8(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x,
                              uint64_t block, const int columns, const int zero, vf *sum)
{
    quant_codes codes;
    memcpy(&codes, p->at[0] + offset, sizeof codes);
    quant_dot_codes(&codes, x, block, columns, zero, 1, sum);
}

/* Levels with 128 added, which the zero point takes off. */
static inline void quant_unpack_levels(const unsigned char *part, const int8_t levels[16], quant_codes *out)
{
    quant_unpack(part, 4, out);
    for (int c = 0; c < 8; c++)
        for (int i = 0; i < 32; i++)
            out->code[c][i / 4][i % 4] = (uint8_t)(levels[out->code[c][i / 4][i % 4]] + 128);
}

static inline void quant_dot_levels(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x,
                                    uint64_t block, const int columns, const int8_t levels[16], vf *sum)
{
    quant_codes codes;
    quant_unpack_levels(p->at[0] + offset, levels, &codes);
    quant_dot_codes(&codes, x, block, columns, 128, 1, sum);
}

static inline void quant_dot_level_halves(const quant_panels *p, uint64_t offset,
                                          const mica__q8_block *const *x, uint64_t block, const int columns,
                                          const int8_t levels[16], vf *first, vf *second)
{
    quant_codes codes;
    quant_unpack_levels(p->at[0] + offset, levels, &codes);
    for (int c = 0; c < columns; c++) {
        const mica__q8_block *xb = &x[c][block];
        quant_sums a = quant_start(4 * xb->half32[0]), b = quant_start(4 * xb->half32[1]);
        quant_pairs pairs;
        quant_split(xb, &pairs);
        quant_add(&codes, &pairs, 0, 1, &a);
        quant_add(&codes, &pairs, 4, 1, &b);
        first[c] = quant_to_float(a);
        second[c] = quant_to_float(b);
    }
}

/* The lanes, whole numbers from -128 to 127, as bytes. */
static inline void quant_store_i8(int8_t *dst, vi v)
{
    int32_t lane[VW];
    memcpy(lane, &v, sizeof lane);
    for (int i = 0; i < VW; i++)
        dst[i] = (int8_t)lane[i];
}

static inline int32_t quant_vi_sum(vi v)
{
    int32_t lane[VW], sum = 0;
    memcpy(lane, &v, sizeof lane);
    for (int i = 0; i < VW; i++)
        sum += lane[i];
    return sum;
}

#endif
