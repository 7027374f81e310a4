/*
 * quant_dot_portable.h - dot products of 32 values for the eight rows of a packed panel in plain C.
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

static inline vf quant_from_int(const int32_t lane[VW])
{
    float value[VW];
    for (int r = 0; r < VW; r++)
        value[r] = (float)lane[r];
    return vf_load(value);
}

static inline void quant_codes4(const unsigned char *part, quant_codes *out)
{
    uint8_t *low = &out->code[0][0][0], *high = &out->code[4][0][0];
    for (int i = 0; i < 128; i++) {
        low[i] = part[i] & 15;
        high[i] = part[i] >> 4;
    }
}

static inline void quant_codes6(const unsigned char *part, quant_codes *out)
{
    quant_codes4(part, out);
    for (int c = 0; c < 8; c++) {
        uint8_t *code = &out->code[c][0][0];
        const unsigned char *bits = part + 128 + 32 * (c % 2);
        for (int i = 0; i < 32; i++)
            code[i] |= (uint8_t)((bits[i] >> c / 2 * 2 & 3) << 4);
    }
}

static inline void quant_codes8(const unsigned char *part, quant_codes *out)
{
    memcpy(out, part, sizeof *out);
}

/* Adds the products of chunks [first, first + 4) to each row's sum. */
static inline void quant_add(const quant_codes *codes, const mica__q8_block *x, int first, int32_t sum[VW])
{
    for (int c = first; c < first + 4; c++) {
        const int32_t x0 = x->q[4 * c], x1 = x->q[4 * c + 1], x2 = x->q[4 * c + 2], x3 = x->q[4 * c + 3];
        for (int r = 0; r < VW; r++) {
            const uint8_t *w = codes->code[c][r];
            sum[r] += w[0] * x0 + w[1] * x1 + w[2] * x2 + w[3] * x3;
        }
    }
}

static inline void quant_dot_codes(const quant_codes *codes, const mica__q8_block *const *x, uint64_t block,
                                   int columns, int zero, vf *out)
{
    for (int c = 0; c < columns; c++) {
        const mica__q8_block *xb = &x[c][block];
        int32_t sum[VW];
        for (int r = 0; r < VW; r++)
            sum[r] = zero == 8 ? xb->sum8 : zero == 128 ? xb->sum128 : 0;
        quant_add(codes, xb, 0, sum);
        quant_add(codes, xb, 4, sum);
        out[c] = quant_from_int(sum);
    }
}

static inline void quant_dot4(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
                              const int columns, const int zero, vf *sum)
{
    quant_codes codes;
    quant_codes4(p->at[0] + offset, &codes);
    quant_dot_codes(&codes, x, block, columns, zero, sum);
}

static inline void quant_dot6(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
                              const int columns, vf *sum)
{
    quant_codes codes;
    quant_codes6(p->at[0] + offset, &codes);
    quant_dot_codes(&codes, x, block, columns, 0, sum);
}

static inline void quant_dot6_halves(const quant_panels *p, uint64_t offset, uint64_t scales,
                                     const mica__q8_block *const *x, uint64_t block, const int columns, vf *out)
{
    quant_codes codes;
    quant_codes6(p->at[0] + offset, &codes);
    for (int c = 0; c < columns; c++) {
        const mica__q8_block *xb = &x[c][block];
        int32_t a[VW], b[VW];
        for (int r = 0; r < VW; r++) {
            a[r] = xb->half32[0];
            b[r] = xb->half32[1];
        }
        quant_add(&codes, xb, 0, a);
        quant_add(&codes, xb, 4, b);
        for (int r = 0; r < VW; r++)
            a[r] = a[r] * (int8_t)p->at[0][scales + (uint64_t)r] + b[r] * (int8_t)p->at[0][scales + 8 + (uint64_t)r];
        out[c] = quant_from_int(a);
    }
}

static inline void quant_dot8(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
                              const int columns, const int zero, vf *sum)
{
    quant_codes codes;
    quant_codes8(p->at[0] + offset, &codes);
    quant_dot_codes(&codes, x, block, columns, zero, sum);
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
