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

/* With few columns the upper nibbles stay where they are, and their sum is sixteen times what it means: one operation
 * less for each load, and two short chains of sums. More columns have chains enough and need the registers. */
static inline __attribute__((always_inline)) void quant_dot4(const quant_panels *p, uint64_t offset,
                                                             const mica__q8_block *const *x, uint64_t block,
                                                             const int columns, const int zero, vf *sum)
{
    const int in_place = columns <= 2;
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i acc[QUANT_COLUMNS], sixteenfold[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (int c = 0; c < columns; c++)
        acc[c] = zero == 8 ? _mm512_set1_epi32(x[c][block].sum8) : _mm512_setzero_si512();
    for (int v = 0; v < 4; v++) {
        const __m512i raw = quant_load(p, offset + 32 * (uint64_t)v);
        const __m512i low = _mm512_and_si512(raw, nibble);
        const __m512i high =
            in_place ? _mm512_andnot_si512(nibble, raw) : _mm512_and_si512(_mm512_srli_epi16(raw, 4), nibble);
        for (int c = 0; c < columns; c++) {
            __m512i *upper = in_place ? &sixteenfold[c] : &acc[c];
            acc[c] = _mm512_dpbusd_epi32(acc[c], low, quant_x(&x[c][block], v));
            *upper = _mm512_dpbusd_epi32(*upper, high, quant_x(&x[c][block], v + 4));
        }
    }
    for (int c = 0; c < columns; c++)
        sum[c] = _mm512_cvtepi32_ps(in_place ? _mm512_add_epi32(acc[c], _mm512_srai_epi32(sixteenfold[c], 4))
                                             : acc[c]);
}

/* Chunks v and v + 4 of a 6-bit part. */
static inline void quant_load6(const quant_panels *p, uint64_t offset, int v, __m512i *low, __m512i *high)
{
    const __m512i nibble = _mm512_set1_epi8(15), upper = _mm512_set1_epi8(0x30);
    const __m512i raw = quant_load(p, offset + 32 * (uint64_t)v);
    const __m512i bits = quant_load(p, offset + 128 + 32 * (uint64_t)(v % 2));
    const __m512i a = v < 2 ? _mm512_slli_epi16(bits, 4) : _mm512_slli_epi16(bits, 2);
    const __m512i b = v < 2 ? bits : _mm512_srli_epi16(bits, 2);
    /* 0xea: (first and second) or third; here the nibble joined with the masked upper bits */
    *low = _mm512_ternarylogic_epi32(a, upper, _mm512_and_si512(raw, nibble), 0xea);
    *high = _mm512_ternarylogic_epi32(b, upper, _mm512_and_si512(_mm512_srli_epi16(raw, 4), nibble), 0xea);
}

static inline __attribute__((always_inline)) void quant_dot6(const quant_panels *p, uint64_t offset,
                                                             const mica__q8_block *const *x, uint64_t block,
                                                             const int columns, vf *sum)
{
    __m512i acc[QUANT_COLUMNS];
    for (int c = 0; c < columns; c++)
        acc[c] = _mm512_setzero_si512();
    for (int v = 0; v < 4; v++) {
        __m512i low, high;
        quant_load6(p, offset, v, &low, &high);
        for (int c = 0; c < columns; c++) {
            acc[c] = _mm512_dpbusd_epi32(acc[c], low, quant_x(&x[c][block], v));
            acc[c] = _mm512_dpbusd_epi32(acc[c], high, quant_x(&x[c][block], v + 4));
        }
    }
    for (int c = 0; c < columns; c++)
        sum[c] = _mm512_cvtepi32_ps(acc[c]);
}

/* Each half's sum is at most 16 * 32 * 127 and a scale 128, so the products and their sum stay below 2^24 and are
 * exact in f32. The low chunks of a part are its first half, the high ones its second. */
static inline __attribute__((always_inline)) void
quant_dot6_halves(const quant_panels *p, uint64_t offset, uint64_t scales, const mica__q8_block *const *x,
                  uint64_t block, const int columns, vf *sum)
{
    const vf first = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(quant_load8(p, scales)));
    const vf second = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(quant_load8(p, scales + 8)));
    __m512i a[QUANT_COLUMNS], b[QUANT_COLUMNS];
    for (int c = 0; c < columns; c++) {
        a[c] = _mm512_set1_epi32(x[c][block].half32[0]);
        b[c] = _mm512_set1_epi32(x[c][block].half32[1]);
    }
    for (int v = 0; v < 4; v++) {
        __m512i low, high;
        quant_load6(p, offset, v, &low, &high);
        for (int c = 0; c < columns; c++) {
            a[c] = _mm512_dpbusd_epi32(a[c], low, quant_x(&x[c][block], v));
            b[c] = _mm512_dpbusd_epi32(b[c], high, quant_x(&x[c][block], v + 4));
        }
    }
    for (int c = 0; c < columns; c++)
        sum[c] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(b[c]), second, _mm512_mul_ps(_mm512_cvtepi32_ps(a[c]), first));
}

static inline __attribute__((always_inline)) void quant_dot8(const quant_panels *p, uint64_t offset,
                                                             const mica__q8_block *const *x, uint64_t block,
                                                             const int columns, const int zero, vf *sum)
{
    __m512i acc[QUANT_COLUMNS];
    for (int c = 0; c < columns; c++)
        acc[c] = zero == 128 ? _mm512_set1_epi32(x[c][block].sum128) : _mm512_setzero_si512();
    for (int v = 0; v < 8; v++) {
        const __m512i w = quant_load(p, offset + 32 * (uint64_t)v);
        for (int c = 0; c < columns; c++)
            acc[c] = _mm512_dpbusd_epi32(acc[c], w, quant_x(&x[c][block], v));
    }
    for (int c = 0; c < columns; c++)
        sum[c] = _mm512_cvtepi32_ps(acc[c]);
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
