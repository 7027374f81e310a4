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

/* Bits of each byte moved up by `shift`, down where it is negative; what crosses into other bytes is the caller's to
 * mask. */
static inline __m256i quant_shift(__m256i v, const int shift)
{
    return shift == 0 ? v : shift > 0 ? _mm256_slli_epi16(v, shift) : _mm256_srli_epi16(v, -shift);
}

/* Chunks v and v + 4 of a part of 2 to 6 bits, codes as bytes. */
static inline __attribute__((always_inline)) void
quant_chunks(const quant_panels *p, uint64_t offset, const int v, const int bits, __m256i *low, __m256i *high)
{
    const __m256i nibble = _mm256_set1_epi8(15), pair = _mm256_set1_epi8(3);
    const uint64_t upper = offset + (bits < 4 ? 64 : 128);
    const int at = bits < 4 ? 2 : 4; /* where the second plane begins in a code */
    if (bits < 4) {
        const __m256i raw = quant_load(p, offset + 32 * (uint64_t)(v % 2));
        *low = _mm256_and_si256(quant_shift(raw, -(v / 2 * 2)), pair);
        *high = _mm256_and_si256(quant_shift(raw, -(v / 2 * 2 + 4)), pair);
    } else {
        const __m256i raw = quant_load(p, offset + 32 * (uint64_t)v);
        *low = _mm256_and_si256(raw, nibble);
        *high = _mm256_and_si256(_mm256_srli_epi16(raw, 4), nibble);
    }
    if (bits == 3 || bits == 5) {
        const __m256i raw = quant_load(p, upper), mask = _mm256_set1_epi8(1 << at);
        *low = _mm256_or_si256(*low, _mm256_and_si256(quant_shift(raw, at - v), mask));
        *high = _mm256_or_si256(*high, _mm256_and_si256(quant_shift(raw, at - v - 4), mask));
    } else if (bits == 6) {
        const __m256i raw = quant_load(p, upper + 32 * (uint64_t)(v % 2)), mask = _mm256_set1_epi8(0x30);
        *low = _mm256_or_si256(*low, _mm256_and_si256(quant_shift(raw, 4 - v / 2 * 2), mask));
        *high = _mm256_or_si256(*high, _mm256_and_si256(quant_shift(raw, -(v / 2 * 2)), mask));
    }
}

static inline int32_t quant_zero(const mica__q8_block *x, const int zero)
{
    return zero == 8 ? x->sum8 : zero == 16 ? x->sum16 : 0;
}

/* Sums of a part on their way: 16-bit lanes, and 32-bit ones that those are widened into. */
typedef struct quant_sums {
    __m256i narrow[QUANT_COLUMNS], wide[QUANT_COLUMNS];
} quant_sums;

/* Adds chunks v and v + 4. A pair of products is at most 2 * 127 times the greatest code: all eight of a part fit 16
 * bits up to 4 bits (30480), four with 5 bits (31496), two with 6 (32004). So many are added before widening. */
static inline __attribute__((always_inline)) void quant_dot_step(const quant_panels *p, uint64_t offset,
                                                                 const mica__q8_block *const *x,
                                                                 uint64_t block, const int columns,
                                                                 const int bits, const int v, quant_sums *s)
{
    const int steps = bits <= 4 ? 4 : bits == 5 ? 2 : 1; /* of two pairs, before widening */
    const __m256i one = _mm256_set1_epi16(1);
    __m256i low, high;
    quant_chunks(p, offset, v, bits, &low, &high);
    for (int c = 0; c < columns; c++) {
        const __m256i first = _mm256_maddubs_epi16(low, quant_x(&x[c][block], v));
        const __m256i second = _mm256_maddubs_epi16(high, quant_x(&x[c][block], v + 4));
        s->narrow[c] = v % steps == 0 ? first : quant_in_order(_mm256_add_epi16(s->narrow[c], first));
        s->narrow[c] = quant_in_order(_mm256_add_epi16(s->narrow[c], second));
        if ((v + 1) % steps != 0)
            continue;
        const __m256i wide = _mm256_madd_epi16(s->narrow[c], one);
        s->wide[c] = v < steps ? wide : quant_in_order(_mm256_add_epi32(s->wide[c], wide));
    }
}

static inline __attribute__((always_inline)) void quant_dot(const quant_panels *p, uint64_t offset,
                                                            const mica__q8_block *const *x, uint64_t block,
                                                            const int columns, const int bits, const int zero,
                                                            vf *sum)
{
    quant_sums s;
    quant_dot_step(p, offset, x, block, columns, bits, 0, &s);
    quant_dot_step(p, offset, x, block, columns, bits, 1, &s);
    quant_dot_step(p, offset, x, block, columns, bits, 2, &s);
    quant_dot_step(p, offset, x, block, columns, bits, 3, &s);
    for (int c = 0; c < columns; c++) {
        if (zero != 0)
            s.wide[c] = _mm256_add_epi32(s.wide[c], _mm256_set1_epi32(quant_zero(&x[c][block], zero)));
        sum[c] = _mm256_cvtepi32_ps(s.wide[c]);
    }
}

static inline __m256i quant_i8(const quant_panels *p, uint64_t offset)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p->at[0] + offset)));
}

/* Numbers within 16 bits as the low and the high half of each lane. */
static inline __m256i quant_halves(__m256i low, __m256i high)
{
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
}

/* a * (sum of the first 16 activations) + b * (sum of the others). */
static inline __m256i quant_sum_halves(__m256i pair, const mica__q8_block *x)
{
    int32_t halves;
    memcpy(&halves, x->half, sizeof halves);
    return _mm256_madd_epi16(pair, _mm256_set1_epi32(halves));
}

/* Adds chunks v, v + 1, v + 4 and v + 5, times the scale of their half: the low chunks of a part are its first half. Two
 * pairs of products fit 16 bits. */
static inline __attribute__((always_inline)) void
quant_halves_step(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
                  const int columns, const int bits, const int v, __m256i first, __m256i second,
                  __m256i *total)
{
    __m256i low[2], high[2];
    quant_chunks(p, offset, v, bits, &low[0], &high[0]);
    quant_chunks(p, offset, v + 1, bits, &low[1], &high[1]);
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

/* Sums of code * x * scale stay below 2 * 16 * 63 * 127 * 128 < 2^25; with the zero point taken off, what is left is
 * below 2^24, exact in f32. */
static inline __attribute__((always_inline)) void
quant_dot_halves(const quant_panels *p, uint64_t offset, const quant_panels *scales, uint64_t at,
                 const mica__q8_block *const *x, uint64_t block, const int columns, const int bits, vf *sum)
{
    const __m256i a = quant_i8(scales, at), b = quant_i8(scales, at + 8);
    const __m256i first = quant_halves(a, a), second = quant_halves(b, b), pair = quant_halves(a, b);
    __m256i total[QUANT_COLUMNS];
    quant_halves_step(p, offset, x, block, columns, bits, 0, first, second, total);
    quant_halves_step(p, offset, x, block, columns, bits, 2, first, second, total);
    for (int c = 0; c < columns; c++) {
        if (bits != 2) {
            const __m256i zero = quant_sum_halves(pair, &x[c][block]);
            total[c] = _mm256_sub_epi32(total[c], _mm256_slli_epi32(zero, bits - 1));
        }
        sum[c] = _mm256_cvtepi32_ps(total[c]);
    }
}

static inline __attribute__((always_inline)) void quant_min_halves(const quant_panels *mins, uint64_t at,
                                                                   const mica__q8_block *const *x,
                                                                   uint64_t block, const int columns, vf *sum)
{
    const __m256i pair = quant_halves(quant_i8(mins, at), quant_i8(mins, at + 8));
    for (int c = 0; c < columns; c++)
        sum[c] = _mm256_cvtepi32_ps(quant_sum_halves(pair, &x[c][block]));
}

/* Adds chunk v of signed bytes: as sign and magnitude, the sign moved to the activation. A pair is at most
 * 2 * 128 * 127 = 32512. `fresh`: the sums begin here. */
static inline __attribute__((always_inline)) void quant_add_signed(__m256i w, const mica__q8_block *const *x,
                                                                   uint64_t block, const int columns,
                                                                   const int v, const int fresh, __m256i *acc)
{
    const __m256i magnitude = _mm256_abs_epi8(w), one = _mm256_set1_epi16(1);
    for (int c = 0; c < columns; c++) {
        const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(quant_x(&x[c][block], v), w));
        const __m256i four = _mm256_madd_epi16(pairs, one);
        acc[c] = fresh ? four : quant_in_order(_mm256_add_epi32(acc[c], four));
    }
}

static inline __attribute__((always_inline)) void quant_dot8(const quant_panels *p, uint64_t offset,
                                                             const mica__q8_block *const *x, uint64_t block,
                                                             const int columns, const int zero, vf *sum)
{
    const __m256i middle = _mm256_set1_epi8(-128);
    __m256i acc[QUANT_COLUMNS];
    for (int v = 0; v < 8; v++)
        quant_add_signed(_mm256_xor_si256(quant_load(p, offset + 32 * (uint64_t)v), middle), x, block,
                         columns, v, v == 0, acc);
    for (int c = 0; c < columns; c++) {
        if (zero == 0)
            acc[c] = _mm256_sub_epi32(acc[c], _mm256_set1_epi32(x[c][block].sum128));
        sum[c] = _mm256_cvtepi32_ps(acc[c]);
    }
}

/* Adds chunks v and v + 4, which may go to sums of their own. */
static inline __attribute__((always_inline)) void
quant_levels_step(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
                  const int columns, const int v, __m256i table, __m256i *first, __m256i *second)
{
    __m256i low, high;
    quant_chunks(p, offset, v, 4, &low, &high);
    quant_add_signed(_mm256_shuffle_epi8(table, low), x, block, columns, v, v == 0, first);
    quant_add_signed(_mm256_shuffle_epi8(table, high), x, block, columns, v + 4, v == 0 && first != second,
                     second);
}

static inline __attribute__((always_inline)) void quant_dot_levels(const quant_panels *p, uint64_t offset,
                                                                   const mica__q8_block *const *x,
                                                                   uint64_t block, const int columns,
                                                                   const int8_t levels[16], vf *sum)
{
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)levels));
    __m256i acc[QUANT_COLUMNS];
    quant_levels_step(p, offset, x, block, columns, 0, table, acc, acc);
    quant_levels_step(p, offset, x, block, columns, 1, table, acc, acc);
    quant_levels_step(p, offset, x, block, columns, 2, table, acc, acc);
    quant_levels_step(p, offset, x, block, columns, 3, table, acc, acc);
    for (int c = 0; c < columns; c++)
        sum[c] = _mm256_cvtepi32_ps(acc[c]);
}

/* The low chunks of a part are its first half. */
static inline __attribute__((always_inline)) void
quant_dot_level_halves(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
                       const int columns, const int8_t levels[16], vf *first, vf *second)
{
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)levels));
    __m256i a[QUANT_COLUMNS], b[QUANT_COLUMNS];
    quant_levels_step(p, offset, x, block, columns, 0, table, a, b);
    quant_levels_step(p, offset, x, block, columns, 1, table, a, b);
    quant_levels_step(p, offset, x, block, columns, 2, table, a, b);
    quant_levels_step(p, offset, x, block, columns, 3, table, a, b);
    for (int c = 0; c < columns; c++) {
        first[c] = _mm256_cvtepi32_ps(a[c]);
        second[c] = _mm256_cvtepi32_ps(b[c]);
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
