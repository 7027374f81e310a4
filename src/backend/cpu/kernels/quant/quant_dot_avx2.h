/*
 * quant_dot_avx2.h - dot products of 32 values for sixteen rows: two packed panels, lane = row of a panel.
 *
 * Included by quant_dot.h alone, which says what each function means. vpmaddubsw adds two products of an unsigned
 * and a signed byte in 16 bits and saturates above 32767; each function says why it does not. Activations are
 * within 127. Spreading four of them over a vector takes an operation of its own, so both panels use it at once.
 */
#ifndef MICA_CPU_QUANT_DOT_AVX2_H
#define MICA_CPU_QUANT_DOT_AVX2_H

#define QUANT_PANELS 2
#define QUANT_COLUMNS 4
#define QUANT_UNROLL _Pragma("GCC unroll 8")

typedef struct quant_panels {
    const unsigned char *at[QUANT_PANELS];
} quant_panels;

/* A number for each of the sixteen rows. */
typedef struct quant_f {
    vf half[QUANT_PANELS];
} quant_f;

static inline quant_f quant_f_zero(void)
{
    return (quant_f){{vf_zero(), vf_zero()}};
}

static inline quant_f quant_f_set1(float value)
{
    return (quant_f){{vf_set1(value), vf_set1(value)}};
}

static inline quant_f quant_f_load(const float *src)
{
    return (quant_f){{vf_load(src), vf_load(src + VW)}};
}

static inline void quant_f_store(float *dst, quant_f v)
{
    vf_store(dst, v.half[0]);
    vf_store(dst + VW, v.half[1]);
}

static inline quant_f quant_f_sub(quant_f a, quant_f b)
{
    return (quant_f){{vf_sub(a.half[0], b.half[0]), vf_sub(a.half[1], b.half[1])}};
}

static inline quant_f quant_f_mul(quant_f a, quant_f b)
{
    return (quant_f){{vf_mul(a.half[0], b.half[0]), vf_mul(a.half[1], b.half[1])}};
}

static inline quant_f quant_f_fma(quant_f a, quant_f b, quant_f c)
{
    return (quant_f){{vf_fma(a.half[0], b.half[0], c.half[0]), vf_fma(a.half[1], b.half[1], c.half[1])}};
}

static inline __m256i quant_load(const unsigned char *at)
{
    return _mm256_loadu_si256((const void *)at);
}

static inline quant_f quant_f16(const quant_panels *p, uint64_t offset)
{
    return (quant_f){{_mm256_cvtph_ps(_mm_loadu_si128((const void *)(p->at[0] + offset))),
                      _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p->at[1] + offset)))}};
}

static inline quant_f quant_bf16(const quant_panels *p, uint64_t offset)
{
    return (quant_f){{vf_load_bf16(p->at[0] + offset), vf_load_bf16(p->at[1] + offset)}};
}

static inline vf quant_u8_half(const unsigned char *at)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)at)));
}

static inline quant_f quant_u8(const quant_panels *p, uint64_t offset)
{
    return (quant_f){{quant_u8_half(p->at[0] + offset), quant_u8_half(p->at[1] + offset)}};
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

/* Chunks v and v + 4 of a part of 2 to 6 bits of a panel, codes as bytes. */
static inline __attribute__((always_inline)) void quant_chunks(const unsigned char *part, const int v,
                                                               const int bits, __m256i *low, __m256i *high)
{
    const __m256i nibble = _mm256_set1_epi8(15), pair = _mm256_set1_epi8(3);
    const unsigned char *upper = part + (bits < 4 ? 64 : 128);
    const int at = bits < 4 ? 2 : 4; /* where the second plane begins in a code */
    if (bits < 4) {
        const __m256i raw = quant_load(part + 32 * (uint64_t)(v % 2));
        *low = _mm256_and_si256(quant_shift(raw, -(v / 2 * 2)), pair);
        *high = _mm256_and_si256(quant_shift(raw, -(v / 2 * 2 + 4)), pair);
    } else {
        const __m256i raw = quant_load(part + 32 * (uint64_t)v);
        *low = _mm256_and_si256(raw, nibble);
        *high = _mm256_and_si256(_mm256_srli_epi16(raw, 4), nibble);
    }
    if (bits == 3 || bits == 5) {
        const __m256i raw = quant_load(upper), mask = _mm256_set1_epi8(1 << at);
        *low = _mm256_or_si256(*low, _mm256_and_si256(quant_shift(raw, at - v), mask));
        *high = _mm256_or_si256(*high, _mm256_and_si256(quant_shift(raw, at - v - 4), mask));
    } else if (bits == 6) {
        const __m256i raw = quant_load(upper + 32 * (uint64_t)(v % 2)), mask = _mm256_set1_epi8(0x30);
        *low = _mm256_or_si256(*low, _mm256_and_si256(quant_shift(raw, 4 - v / 2 * 2), mask));
        *high = _mm256_or_si256(*high, _mm256_and_si256(quant_shift(raw, -(v / 2 * 2)), mask));
    }
}

static inline int32_t quant_zero(const mica__q8_block *x, const int zero)
{
    return zero == 8 ? x->sum8 : zero == 16 ? x->sum16 : 0;
}

/* Integer sums of a tile. */
typedef struct quant_sums {
    __m256i of[QUANT_PANELS][QUANT_COLUMNS];
} quant_sums;

static inline __attribute__((always_inline)) void quant_to_float(const quant_sums *s, const int columns,
                                                                 quant_f *sum)
{
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < QUANT_PANELS; r++)
            sum[c].half[r] = _mm256_cvtepi32_ps(s->of[r][c]);
}

/* Adds chunks v and v + 4 to 16-bit lanes, and those to 32-bit ones. A pair of products is at most 2 * 127 times the
 * greatest code: all eight of a part fit 16 bits up to 4 bits (30480), four with 5 bits (31496), two with 6 (32004). So
 * many are added before widening. */
static inline __attribute__((always_inline)) void
quant_dot_step(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
               const int columns, const int bits, const int v, quant_sums *narrow, quant_sums *wide)
{
    const int steps = bits <= 4 ? 4 : bits == 5 ? 2 : 1; /* of two pairs, before widening */
    const __m256i one = _mm256_set1_epi16(1);
    __m256i low[QUANT_PANELS], high[QUANT_PANELS];
    for (int r = 0; r < QUANT_PANELS; r++)
        quant_chunks(p->at[r] + offset, v, bits, &low[r], &high[r]);
    for (int c = 0; c < columns; c++) {
        const __m256i x_low = quant_x(&x[c][block], v), x_high = quant_x(&x[c][block], v + 4);
        for (int r = 0; r < QUANT_PANELS; r++) {
            const __m256i first = _mm256_maddubs_epi16(low[r], x_low);
            __m256i *n = &narrow->of[r][c], *w = &wide->of[r][c];
            *n = v % steps == 0 ? first : quant_in_order(_mm256_add_epi16(*n, first));
            *n = quant_in_order(_mm256_add_epi16(*n, _mm256_maddubs_epi16(high[r], x_high)));
            if ((v + 1) % steps != 0)
                continue;
            const __m256i four = _mm256_madd_epi16(*n, one);
            *w = v < steps ? four : quant_in_order(_mm256_add_epi32(*w, four));
        }
    }
}

static inline __attribute__((always_inline)) void quant_dot(const quant_panels *p, uint64_t offset,
                                                            const mica__q8_block *const *x, uint64_t block,
                                                            const int columns, const int bits, const int zero,
                                                            quant_f *sum)
{
    quant_sums narrow, wide;
    quant_dot_step(p, offset, x, block, columns, bits, 0, &narrow, &wide);
    quant_dot_step(p, offset, x, block, columns, bits, 1, &narrow, &wide);
    quant_dot_step(p, offset, x, block, columns, bits, 2, &narrow, &wide);
    quant_dot_step(p, offset, x, block, columns, bits, 3, &narrow, &wide);
    for (int c = 0; zero != 0 && c < columns; c++) {
        const __m256i shift = _mm256_set1_epi32(quant_zero(&x[c][block], zero));
        for (int r = 0; r < QUANT_PANELS; r++)
            wide.of[r][c] = _mm256_add_epi32(wide.of[r][c], shift);
    }
    quant_to_float(&wide, columns, sum);
}

static inline __m256i quant_i8(const unsigned char *at)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)at));
}

/* Numbers within 16 bits as the low and the high half of each lane. */
static inline __m256i quant_halves(__m256i low, __m256i high)
{
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
}

/* The sums of the two halves of a run of activations. */
static inline __m256i quant_x_halves(const mica__q8_block *x)
{
    int32_t halves;
    memcpy(&halves, x->half, sizeof halves);
    return _mm256_set1_epi32(halves);
}

/* Adds chunks v and v + 1, which are in the first half of a part, or, `upper` being 4, those of the second half; times the
 * scale of the half. Two pairs of products fit 16 bits. */
static inline __attribute__((always_inline)) void
quant_halves_step(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
                  const int columns, const int bits, const int v, const int upper,
                  const __m256i scale[QUANT_PANELS], quant_sums *total)
{
    __m256i w[QUANT_PANELS][2], other;
    for (int i = 0; i < 2 * QUANT_PANELS; i++) {
        __m256i *to = &w[i / 2][i % 2];
        quant_chunks(p->at[i / 2] + offset, v + i % 2, bits, upper ? &other : to, upper ? to : &other);
    }
    for (int c = 0; c < columns; c++) {
        const __m256i x0 = quant_x(&x[c][block], v + upper), x1 = quant_x(&x[c][block], v + upper + 1);
        for (int r = 0; r < QUANT_PANELS; r++) {
            const __m256i pairs = quant_in_order(
                _mm256_add_epi16(_mm256_maddubs_epi16(w[r][0], x0), _mm256_maddubs_epi16(w[r][1], x1)));
            const __m256i four = _mm256_madd_epi16(pairs, scale[r]);
            const int fresh = v + upper == 0;
            total->of[r][c] = fresh ? four : quant_in_order(_mm256_add_epi32(total->of[r][c], four));
        }
    }
}

/* Sums of code * x * scale stay below 2 * 16 * 63 * 127 * 128 < 2^25; with the zero point taken off, what is left is
 * below 2^24, exact in f32. */
static inline __attribute__((always_inline)) void quant_dot_halves(const quant_panels *p, uint64_t offset,
                                                                   const quant_panels *scales, uint64_t at,
                                                                   const mica__q8_block *const *x,
                                                                   uint64_t block, const int columns,
                                                                   const int bits, quant_f *sum)
{
    __m256i first[QUANT_PANELS], second[QUANT_PANELS], pair[QUANT_PANELS];
    quant_sums total;
    for (int r = 0; r < QUANT_PANELS; r++) {
        const __m256i a = quant_i8(scales->at[r] + at), b = quant_i8(scales->at[r] + at + 8);
        first[r] = quant_halves(a, a);
        second[r] = quant_halves(b, b);
        pair[r] = quant_halves(a, b);
    }
    quant_halves_step(p, offset, x, block, columns, bits, 0, 0, first, &total);
    quant_halves_step(p, offset, x, block, columns, bits, 0, 4, second, &total);
    quant_halves_step(p, offset, x, block, columns, bits, 2, 0, first, &total);
    quant_halves_step(p, offset, x, block, columns, bits, 2, 4, second, &total);
    for (int c = 0; bits != 2 && c < columns; c++) {
        const __m256i halves = quant_x_halves(&x[c][block]);
        for (int r = 0; r < QUANT_PANELS; r++) {
            const __m256i zero = _mm256_slli_epi32(_mm256_madd_epi16(pair[r], halves), bits - 1);
            total.of[r][c] = _mm256_sub_epi32(total.of[r][c], zero);
        }
    }
    quant_to_float(&total, columns, sum);
}

static inline __attribute__((always_inline)) void quant_min_halves(const quant_panels *mins, uint64_t at,
                                                                   const mica__q8_block *const *x,
                                                                   uint64_t block, const int columns,
                                                                   quant_f *sum)
{
    __m256i pair[QUANT_PANELS];
    for (int r = 0; r < QUANT_PANELS; r++)
        pair[r] = quant_halves(quant_i8(mins->at[r] + at), quant_i8(mins->at[r] + at + 8));
    for (int c = 0; c < columns; c++) {
        const __m256i halves = quant_x_halves(&x[c][block]);
        for (int r = 0; r < QUANT_PANELS; r++)
            sum[c].half[r] = _mm256_cvtepi32_ps(_mm256_madd_epi16(pair[r], halves));
    }
}

/* Adds chunk v of signed bytes: as sign and magnitude, the sign moved to the activation. A pair is at most
 * 2 * 128 * 127 = 32512. `fresh`: the sums begin here. */
static inline __attribute__((always_inline)) void
quant_add_signed(const __m256i w[QUANT_PANELS], const mica__q8_block *const *x, uint64_t block,
                 const int columns, const int v, const int fresh, quant_sums *s)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i magnitude[QUANT_PANELS];
    for (int r = 0; r < QUANT_PANELS; r++)
        magnitude[r] = _mm256_abs_epi8(w[r]);
    for (int c = 0; c < columns; c++) {
        const __m256i four_x = quant_x(&x[c][block], v);
        for (int r = 0; r < QUANT_PANELS; r++) {
            const __m256i pairs = _mm256_maddubs_epi16(magnitude[r], _mm256_sign_epi8(four_x, w[r]));
            const __m256i four = _mm256_madd_epi16(pairs, one);
            s->of[r][c] = fresh ? four : quant_in_order(_mm256_add_epi32(s->of[r][c], four));
        }
    }
}

static inline __attribute__((always_inline)) void quant_dot8(const quant_panels *p, uint64_t offset,
                                                             const mica__q8_block *const *x, uint64_t block,
                                                             const int columns, const int zero, quant_f *sum)
{
    const __m256i middle = _mm256_set1_epi8(-128);
    quant_sums s;
    QUANT_UNROLL
    for (int v = 0; v < 8; v++) {
        __m256i w[QUANT_PANELS];
        for (int r = 0; r < QUANT_PANELS; r++)
            w[r] = _mm256_xor_si256(quant_load(p->at[r] + offset + 32 * (uint64_t)v), middle);
        quant_add_signed(w, x, block, columns, v, v == 0, &s);
    }
    for (int c = 0; zero == 0 && c < columns; c++)
        for (int r = 0; r < QUANT_PANELS; r++)
            s.of[r][c] = _mm256_sub_epi32(s.of[r][c], _mm256_set1_epi32(x[c][block].sum128));
    quant_to_float(&s, columns, sum);
}

/* Adds chunks v and v + 4, which may go to sums of their own. */
static inline __attribute__((always_inline)) void
quant_levels_step(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
                  const int columns, const int v, __m256i table, quant_sums *first, quant_sums *second)
{
    __m256i low[QUANT_PANELS], high[QUANT_PANELS];
    for (int r = 0; r < QUANT_PANELS; r++) {
        quant_chunks(p->at[r] + offset, v, 4, &low[r], &high[r]);
        low[r] = _mm256_shuffle_epi8(table, low[r]);
        high[r] = _mm256_shuffle_epi8(table, high[r]);
    }
    quant_add_signed(low, x, block, columns, v, v == 0, first);
    quant_add_signed(high, x, block, columns, v + 4, v == 0 && first != second, second);
}

static inline __attribute__((always_inline)) void quant_dot_levels(const quant_panels *p, uint64_t offset,
                                                                   const mica__q8_block *const *x,
                                                                   uint64_t block, const int columns,
                                                                   const int8_t levels[16], quant_f *sum)
{
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)levels));
    quant_sums s;
    quant_levels_step(p, offset, x, block, columns, 0, table, &s, &s);
    quant_levels_step(p, offset, x, block, columns, 1, table, &s, &s);
    quant_levels_step(p, offset, x, block, columns, 2, table, &s, &s);
    quant_levels_step(p, offset, x, block, columns, 3, table, &s, &s);
    quant_to_float(&s, columns, sum);
}

/* The low chunks of a part are its first half. */
static inline __attribute__((always_inline)) void
quant_dot_level_halves(const quant_panels *p, uint64_t offset, const mica__q8_block *const *x, uint64_t block,
                       const int columns, const int8_t levels[16], quant_f *first, quant_f *second)
{
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)levels));
    quant_sums a, b;
    quant_levels_step(p, offset, x, block, columns, 0, table, &a, &b);
    quant_levels_step(p, offset, x, block, columns, 1, table, &a, &b);
    quant_levels_step(p, offset, x, block, columns, 2, table, &a, &b);
    quant_levels_step(p, offset, x, block, columns, 3, table, &a, &b);
    quant_to_float(&a, columns, first);
    quant_to_float(&b, columns, second);
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
