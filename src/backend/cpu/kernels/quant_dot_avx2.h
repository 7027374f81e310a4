/*
 * quant_dot_avx2.h - dot products of 32 values for the eight rows of a packed panel, lane = row.
 *
 * Included by quant_dot.h alone, which says what each function means. vpmaddubsw adds two products of an unsigned
 * and a signed byte in 16 bits and saturates above 32767; each function says why it does not. Activations are
 * within 127.
 */
#ifndef MICA_CPU_QUANT_DOT_AVX2_H
#define MICA_CPU_QUANT_DOT_AVX2_H

#define QUANT_PANELS 1
#define QUANT_COLUMNS 4

typedef struct quant_panels {
    const unsigned char *at[QUANT_PANELS];
} quant_panels;

static inline __m256i quant_load(const quant_panels *p, uint64_t offset)
{
    return _mm256_loadu_si256((const void *)(p->at[0] + offset));
}

static inline vf quant_f16(const quant_panels *p, uint64_t offset)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p->at[0] + offset)));
}

static inline vf quant_bf16(const quant_panels *p, uint64_t offset)
{
    return vf_load_bf16(p->at[0] + offset);
}

static inline vf quant_u8(const quant_panels *p, uint64_t offset)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(p->at[0] + offset))));
}

static inline __m256i quant_x(const mica__q8_block *x, int chunk)
{
    int32_t four;
    memcpy(&four, x->q + 4 * chunk, sizeof four);
    return _mm256_set1_epi32(four);
}

/* The sum, where it is written: left alone, gcc turns a chain of integer sums into a wide tree of them, which spills
 * every register. */
static inline __m256i quant_in_order(__m256i sum)
{
    __asm__("" : "+x"(sum));
    return sum;
}

/* A pair of products is at most 2 * 15 * 127 = 3810; the eight of a part add to 30480: one widening for 32 values. */
static inline __attribute__((always_inline)) void quant_dot4(const quant_panels *p, uint64_t offset,
                                                             const mica__q8_block *const *x, uint64_t block,
                                                             const int columns, const int zero, vf *sum)
{
    const __m256i nibble = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
    __m256i acc[QUANT_COLUMNS];
    for (int v = 0; v < 4; v++) {
        const __m256i raw = quant_load(p, offset + 32 * (uint64_t)v);
        const __m256i low = _mm256_and_si256(raw, nibble);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(raw, 4), nibble);
        for (int c = 0; c < columns; c++) {
            const __m256i first = _mm256_maddubs_epi16(low, quant_x(&x[c][block], v));
            const __m256i second = _mm256_maddubs_epi16(high, quant_x(&x[c][block], v + 4));
            acc[c] = v == 0 ? first : quant_in_order(_mm256_add_epi16(acc[c], first));
            acc[c] = quant_in_order(_mm256_add_epi16(acc[c], second));
        }
    }
    for (int c = 0; c < columns; c++) {
        __m256i total = _mm256_madd_epi16(acc[c], one);
        if (zero == 8)
            total = _mm256_add_epi32(total, _mm256_set1_epi32(x[c][block].sum8));
        sum[c] = _mm256_cvtepi32_ps(total);
    }
}

/* Chunks v and v + 4 of a 6-bit part. */
static inline void quant_load6(const quant_panels *p, uint64_t offset, int v, __m256i *low, __m256i *high)
{
    const __m256i nibble = _mm256_set1_epi8(15), upper = _mm256_set1_epi8(0x30);
    const __m256i raw = quant_load(p, offset + 32 * (uint64_t)v);
    const __m256i bits = quant_load(p, offset + 128 + 32 * (uint64_t)(v % 2));
    const __m256i a = v < 2 ? _mm256_slli_epi16(bits, 4) : _mm256_slli_epi16(bits, 2);
    const __m256i b = v < 2 ? bits : _mm256_srli_epi16(bits, 2);
    *low = _mm256_or_si256(_mm256_and_si256(a, upper), _mm256_and_si256(raw, nibble));
    *high = _mm256_or_si256(_mm256_and_si256(b, upper), _mm256_and_si256(_mm256_srli_epi16(raw, 4), nibble));
}

/* A pair is at most 2 * 63 * 127 = 16002: two of them fit before widening. `first` and `second` multiply the 16-bit
 * sums of the low and of the high chunks. */
static inline __attribute__((always_inline)) void
quant_dot6_scaled(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
                  const int columns, __m256i first, __m256i second, __m256i *total)
{
    for (int v = 0; v < 4; v += 2) {
        __m256i low[2], high[2];
        quant_load6(p, offset, v, &low[0], &high[0]);
        quant_load6(p, offset, v + 1, &low[1], &high[1]);
        for (int c = 0; c < columns; c++) {
            const mica__q8_block *xb = &x[c][block];
            const __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(low[0], quant_x(xb, v)),
                                               _mm256_maddubs_epi16(low[1], quant_x(xb, v + 1)));
            const __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(high[0], quant_x(xb, v + 4)),
                                               _mm256_maddubs_epi16(high[1], quant_x(xb, v + 5)));
            const __m256i both = _mm256_add_epi32(_mm256_madd_epi16(a, first), _mm256_madd_epi16(b, second));
            total[c] = v == 0 ? both : quant_in_order(_mm256_add_epi32(total[c], both));
        }
    }
}

static inline __attribute__((always_inline)) void quant_dot6(const quant_panels *p, uint64_t offset,
                                                             const mica__q8_block *const *x, uint64_t block,
                                                             const int columns, vf *sum)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i total[QUANT_COLUMNS];
    quant_dot6_scaled(p, offset, x, block, columns, one, one, total);
    for (int c = 0; c < columns; c++)
        sum[c] = _mm256_cvtepi32_ps(total[c]);
}

/* Sums of code * x * scale stay below 2 * 16 * 63 * 127 * 128 < 2^25. With the zero point taken off, 32 scale_a sum_a
 * + 32 scale_b sum_b, what is left is below 2^24, exact in f32. */
static inline __attribute__((always_inline)) void
quant_dot6_halves(const quant_panels *p, uint64_t offset, uint64_t scales, const mica__q8_block *const *x,
                  uint64_t block, const int columns, vf *sum)
{
    const __m256i a = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p->at[0] + scales)));
    const __m256i b = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p->at[0] + scales + 8)));
    const __m256i first = _mm256_blend_epi16(a, _mm256_slli_epi32(a, 16), 0xaa);
    const __m256i second = _mm256_blend_epi16(b, _mm256_slli_epi32(b, 16), 0xaa);
    const __m256i pair = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
    __m256i total[QUANT_COLUMNS];
    quant_dot6_scaled(p, offset, x, block, columns, first, second, total);
    for (int c = 0; c < columns; c++) {
        int32_t halves;
        memcpy(&halves, x[c][block].half, sizeof halves);
        const __m256i zero = _mm256_slli_epi32(_mm256_madd_epi16(pair, _mm256_set1_epi32(halves)), 5);
        sum[c] = _mm256_cvtepi32_ps(_mm256_sub_epi32(total[c], zero));
    }
}

/* Codes less 128 as sign and magnitude, the sign moved to the activation: a pair is at most 2 * 128 * 127 = 32512. */
static inline __attribute__((always_inline)) void quant_dot8(const quant_panels *p, uint64_t offset,
                                                             const mica__q8_block *const *x, uint64_t block,
                                                             const int columns, const int zero, vf *sum)
{
    const __m256i one = _mm256_set1_epi16(1), middle = _mm256_set1_epi8(-128);
    __m256i acc[QUANT_COLUMNS];
    for (int v = 0; v < 8; v++) {
        const __m256i w = _mm256_xor_si256(quant_load(p, offset + 32 * (uint64_t)v), middle);
        const __m256i magnitude = _mm256_abs_epi8(w);
        for (int c = 0; c < columns; c++) {
            const __m256i pairs =
                _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(quant_x(&x[c][block], v), w));
            const __m256i four = _mm256_madd_epi16(pairs, one);
            acc[c] = v == 0 ? four : quant_in_order(_mm256_add_epi32(acc[c], four));
        }
    }
    for (int c = 0; c < columns; c++) {
        if (zero == 0)
            acc[c] = _mm256_sub_epi32(acc[c], _mm256_set1_epi32(x[c][block].sum128));
        sum[c] = _mm256_cvtepi32_ps(acc[c]);
    }
}

/* The lanes, whole numbers from -128 to 127, as bytes. */
static inline void quant_store_i8(int8_t *dst, vi v)
{
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((void *)dst, _mm_packs_epi16(words, words));
}

static inline int32_t quant_vi_sum(vi v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

#endif
