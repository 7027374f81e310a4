/*
 * quant_dot_avx512.h - dot products of 32 values for sixteen rows: two packed panels side by side, lane = row.
 *
 * Included by quant_dot.h alone, which says what each function means. vpdpbusd adds four products of an unsigned
 * and a signed byte to each lane without saturation, so integer sums are exact in any order.
 */
#ifndef MICA_CPU_QUANT_DOT_AVX512_H
#define MICA_CPU_QUANT_DOT_AVX512_H

#define QUANT_PANELS 2
#define QUANT_COLUMNS 8

typedef struct quant_panels {
    const unsigned char *at[QUANT_PANELS];
} quant_panels;

static inline __m512i quant_load(const quant_panels *p, uint64_t offset)
{
    const __m512i first = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(p->at[0] + offset)));
    return _mm512_inserti64x4(first, _mm256_loadu_si256((const void *)(p->at[1] + offset)), 1);
}

static inline __m256i quant_load16(const quant_panels *p, uint64_t offset)
{
    const __m256i first = _mm256_castsi128_si256(_mm_loadu_si128((const void *)(p->at[0] + offset)));
    return _mm256_inserti128_si256(first, _mm_loadu_si128((const void *)(p->at[1] + offset)), 1);
}

static inline __m128i quant_load8(const quant_panels *p, uint64_t offset)
{
    return _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)(p->at[0] + offset)),
                              _mm_loadl_epi64((const void *)(p->at[1] + offset)));
}

static inline vf quant_f16(const quant_panels *p, uint64_t offset)
{
    return _mm512_cvtph_ps(quant_load16(p, offset));
}

static inline vf quant_bf16(const quant_panels *p, uint64_t offset)
{
    return mica__bf16_widen(quant_load16(p, offset));
}

static inline vf quant_u8(const quant_panels *p, uint64_t offset)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(quant_load8(p, offset)));
}

static inline __m512i quant_x(const mica__q8_block *x, int chunk)
{
    int32_t four;
    memcpy(&four, x->q + 4 * chunk, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Bits of each byte moved up by `shift`, down where it is negative; what crosses into other bytes is the caller's to
 * mask. */
static inline __m512i quant_shift(__m512i v, const int shift)
{
    return shift == 0  ? v
           : shift > 0 ? _mm512_slli_epi16(v, (unsigned)shift)
                       : _mm512_srli_epi16(v, (unsigned)-shift);
}

/* `bits` where the mask is set, joined with `code`: 0xea is (first and second) or third. */
static inline __m512i quant_join(__m512i bits, __m512i mask, __m512i code)
{
    return _mm512_ternarylogic_epi32(bits, mask, code, 0xea);
}

/* Chunks v and v + 4 of a part of 2 to 6 bits, codes as bytes. */
static inline __attribute__((always_inline)) void
quant_chunks(const quant_panels *p, uint64_t offset, const int v, const int bits, __m512i *low, __m512i *high)
{
    const __m512i nibble = _mm512_set1_epi8(15), pair = _mm512_set1_epi8(3);
    const uint64_t upper = offset + (bits < 4 ? 64 : 128);
    const int at = bits < 4 ? 2 : 4; /* where the second plane begins in a code */
    if (bits < 4) {
        const __m512i raw = quant_load(p, offset + 32 * (uint64_t)(v % 2));
        *low = _mm512_and_si512(quant_shift(raw, -(v / 2 * 2)), pair);
        *high = _mm512_and_si512(quant_shift(raw, -(v / 2 * 2 + 4)), pair);
    } else {
        const __m512i raw = quant_load(p, offset + 32 * (uint64_t)v);
        *low = _mm512_and_si512(raw, nibble);
        *high = _mm512_and_si512(_mm512_srli_epi16(raw, 4), nibble);
    }
    if (bits == 3 || bits == 5) {
        const __m512i raw = quant_load(p, upper), mask = _mm512_set1_epi8(1 << at);
        *low = quant_join(quant_shift(raw, at - v), mask, *low);
        *high = quant_join(quant_shift(raw, at - v - 4), mask, *high);
    } else if (bits == 6) {
        const __m512i raw = quant_load(p, upper + 32 * (uint64_t)(v % 2)), mask = _mm512_set1_epi8(0x30);
        *low = quant_join(quant_shift(raw, 4 - v / 2 * 2), mask, *low);
        *high = quant_join(quant_shift(raw, -(v / 2 * 2)), mask, *high);
    }
}

static inline __m512i quant_zero(const mica__q8_block *x, const int zero)
{
    return zero == 8     ? _mm512_set1_epi32(x->sum8)
           : zero == 16  ? _mm512_set1_epi32(x->sum16)
           : zero == 128 ? _mm512_set1_epi32(x->sum128)
                         : _mm512_setzero_si512();
}

/* Adds chunks v and v + 4 to their sums. With `in_place` the upper nibbles stay where they are, and their sum is sixteen
 * times what it means: one operation less for each load. */
static inline __attribute__((always_inline)) void quant_dot_step(const quant_panels *p, uint64_t offset,
                                                                 const mica__q8_block *const *x,
                                                                 uint64_t block, const int columns,
                                                                 const int bits, const int in_place,
                                                                 const int v, __m512i *first, __m512i *second)
{
    __m512i low, high;
    if (in_place) {
        const __m512i raw = quant_load(p, offset + 32 * (uint64_t)v), nibble = _mm512_set1_epi8(15);
        low = _mm512_and_si512(raw, nibble);
        high = _mm512_andnot_si512(nibble, raw);
    } else {
        quant_chunks(p, offset, v, bits, &low, &high);
    }
    for (int c = 0; c < columns; c++) {
        first[c] = _mm512_dpbusd_epi32(first[c], low, quant_x(&x[c][block], v));
        second[c] = _mm512_dpbusd_epi32(second[c], high, quant_x(&x[c][block], v + 4));
    }
}

/* Few columns have two short chains of sums each; more have chains enough and need the registers. */
static inline __attribute__((always_inline)) void quant_dot(const quant_panels *p, uint64_t offset,
                                                            const mica__q8_block *const *x, uint64_t block,
                                                            const int columns, const int bits, const int zero,
                                                            vf *sum)
{
    const int split = columns <= 2, in_place = split && bits == 4;
    __m512i acc[QUANT_COLUMNS], other[QUANT_COLUMNS], *second = split ? other : acc;
    for (int c = 0; c < columns; c++) {
        acc[c] = quant_zero(&x[c][block], zero);
        other[c] = _mm512_setzero_si512();
    }
    quant_dot_step(p, offset, x, block, columns, bits, in_place, 0, acc, second);
    quant_dot_step(p, offset, x, block, columns, bits, in_place, 1, acc, second);
    quant_dot_step(p, offset, x, block, columns, bits, in_place, 2, acc, second);
    quant_dot_step(p, offset, x, block, columns, bits, in_place, 3, acc, second);
    for (int c = 0; c < columns; c++) {
        if (split)
            acc[c] = _mm512_add_epi32(acc[c], in_place ? _mm512_srai_epi32(other[c], 4) : other[c]);
        sum[c] = _mm512_cvtepi32_ps(acc[c]);
    }
}

static inline vf quant_i8(const quant_panels *p, uint64_t offset)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(quant_load8(p, offset)));
}

/* Each half's sum is at most 16 * 32 * 127 and a scale 128, so the products and their sum stay below 2^24 and are
 * exact in f32. The low chunks of a part are its first half, the high ones its second. The zero point is half the
 * range of the codes (none with 2 bits): sums of -32 times the activations, shifted. */
static inline __attribute__((always_inline)) void
quant_dot_halves(const quant_panels *p, uint64_t offset, const quant_panels *scales, uint64_t at,
                 const mica__q8_block *const *x, uint64_t block, const int columns, const int bits, vf *sum)
{
    const vf first = quant_i8(scales, at), second = quant_i8(scales, at + 8);
    __m512i a[QUANT_COLUMNS], b[QUANT_COLUMNS];
    for (int c = 0; c < columns; c++) {
        const mica__q8_block *xb = &x[c][block];
        a[c] = bits == 2 ? _mm512_setzero_si512() : _mm512_set1_epi32(xb->half32[0] >> (6 - bits));
        b[c] = bits == 2 ? _mm512_setzero_si512() : _mm512_set1_epi32(xb->half32[1] >> (6 - bits));
    }
    quant_dot_step(p, offset, x, block, columns, bits, 0, 0, a, b);
    quant_dot_step(p, offset, x, block, columns, bits, 0, 1, a, b);
    quant_dot_step(p, offset, x, block, columns, bits, 0, 2, a, b);
    quant_dot_step(p, offset, x, block, columns, bits, 0, 3, a, b);
    for (int c = 0; c < columns; c++)
        sum[c] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(b[c]), second, _mm512_mul_ps(_mm512_cvtepi32_ps(a[c]), first));
}

static inline __attribute__((always_inline)) void quant_min_halves(const quant_panels *mins, uint64_t at,
                                                                   const mica__q8_block *const *x,
                                                                   uint64_t block, const int columns, vf *sum)
{
    const vf first = quant_i8(mins, at), second = quant_i8(mins, at + 8);
    for (int c = 0; c < columns; c++)
        sum[c] = _mm512_fmadd_ps(second, _mm512_set1_ps(x[c][block].half[1]),
                                 _mm512_mul_ps(first, _mm512_set1_ps(x[c][block].half[0])));
}

static inline __attribute__((always_inline)) void quant_dot8(const quant_panels *p, uint64_t offset,
                                                             const mica__q8_block *const *x, uint64_t block,
                                                             const int columns, const int zero, vf *sum)
{
    __m512i acc[QUANT_COLUMNS];
    for (int c = 0; c < columns; c++)
        acc[c] = quant_zero(&x[c][block], zero);
    for (int v = 0; v < 8; v++) {
        const __m512i w = quant_load(p, offset + 32 * (uint64_t)v);
        for (int c = 0; c < columns; c++)
            acc[c] = _mm512_dpbusd_epi32(acc[c], w, quant_x(&x[c][block], v));
    }
    for (int c = 0; c < columns; c++)
        sum[c] = _mm512_cvtepi32_ps(acc[c]);
}

/* Levels are looked up with 128 added, which the zero point takes off. */
static inline __attribute__((always_inline)) void quant_dot_levels(const quant_panels *p, uint64_t offset,
                                                                   const mica__q8_block *const *x,
                                                                   uint64_t block, const int columns,
                                                                   const int8_t levels[16], vf *sum)
{
    const __m512i table = _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)levels)),
                                           _mm512_set1_epi8(-128));
    __m512i acc[QUANT_COLUMNS];
    for (int c = 0; c < columns; c++)
        acc[c] = quant_zero(&x[c][block], 128);
    for (int v = 0; v < 4; v++) {
        __m512i low, high;
        quant_chunks(p, offset, v, 4, &low, &high);
        low = _mm512_shuffle_epi8(table, low);
        high = _mm512_shuffle_epi8(table, high);
        for (int c = 0; c < columns; c++) {
            acc[c] = _mm512_dpbusd_epi32(acc[c], low, quant_x(&x[c][block], v));
            acc[c] = _mm512_dpbusd_epi32(acc[c], high, quant_x(&x[c][block], v + 4));
        }
    }
    for (int c = 0; c < columns; c++)
        sum[c] = _mm512_cvtepi32_ps(acc[c]);
}

/* The low chunks of a part are its first half; 4 * half32 is -128 times the half's sum. */
static inline __attribute__((always_inline)) void
quant_dot_level_halves(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
                       const int columns, const int8_t levels[16], vf *first, vf *second)
{
    const __m512i table = _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)levels)),
                                           _mm512_set1_epi8(-128));
    __m512i a[QUANT_COLUMNS], b[QUANT_COLUMNS];
    for (int c = 0; c < columns; c++) {
        a[c] = _mm512_set1_epi32(4 * x[c][block].half32[0]);
        b[c] = _mm512_set1_epi32(4 * x[c][block].half32[1]);
    }
    for (int v = 0; v < 4; v++) {
        __m512i low, high;
        quant_chunks(p, offset, v, 4, &low, &high);
        low = _mm512_shuffle_epi8(table, low);
        high = _mm512_shuffle_epi8(table, high);
        for (int c = 0; c < columns; c++) {
            a[c] = _mm512_dpbusd_epi32(a[c], low, quant_x(&x[c][block], v));
            b[c] = _mm512_dpbusd_epi32(b[c], high, quant_x(&x[c][block], v + 4));
        }
    }
    for (int c = 0; c < columns; c++) {
        first[c] = _mm512_cvtepi32_ps(a[c]);
        second[c] = _mm512_cvtepi32_ps(b[c]);
    }
}

/* The lanes, whole numbers from -128 to 127, as bytes. */
static inline void quant_store_i8(int8_t *dst, vi v)
{
    _mm_storeu_si128((void *)dst, _mm512_cvtepi32_epi8(v));
}

static inline int32_t quant_vi_sum(vi v)
{
    return _mm512_reduce_add_epi32(v);
}

#endif
