/*
 * product_codes.h - vectors of codes of 8 bits as the instructions of each set multiply them: lanes of 32 bits hold CODE_STEP codes that follow one
 * another along k, and a lane of sums takes all their products at once. Sums wrap.
 *
 * Where one side has to be unsigned and the other signed, codes of the other kind are moved by 128; zero points move along.
 */
#ifndef MICA_CPU_PRODUCT_CODES_H
#define MICA_CPU_PRODUCT_CODES_H

#include <stdbool.h>

#include "mica/types.h"
#include "backend/cpu/kernels/simd/simd.h"

#if MICA__ISA_LEVEL == 3

typedef uint8_t left_code;
typedef int8_t right_code;
typedef __m512i vc;
#define CODE_STEP 4
#define CODE_LANES 16
#define CODE_ROWS 6
#define CODE_VECTORS 4

static inline vc vc_zero(void)
{
    return _mm512_setzero_si512();
}

static inline vc vc_load(const void *src)
{
    return _mm512_loadu_si512(src);
}

static inline void vc_store(void *dst, vc v)
{
    _mm512_storeu_si512(dst, v);
}

static inline vc vc_spread(uint32_t codes)
{
    return _mm512_set1_epi32((int32_t)codes);
}

static inline vc vc_dot(vc sum, vc left, vc right)
{
    /* by name: of so many sums gcc 12 copies each twice when it is asked by the intrinsic */
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
    return sum;
}

#elif MICA__ISA_LEVEL == 2

typedef int16_t left_code;
typedef int16_t right_code;
typedef __m256i vc;
#define CODE_STEP 2
#define CODE_LANES 8
#define CODE_ROWS 6
#define CODE_VECTORS 2

static inline vc vc_zero(void)
{
    return _mm256_setzero_si256();
}

static inline vc vc_load(const void *src)
{
    return _mm256_loadu_si256(src);
}

static inline void vc_store(void *dst, vc v)
{
    _mm256_storeu_si256(dst, v);
}

static inline vc vc_spread(uint32_t codes)
{
    return _mm256_set1_epi32((int32_t)codes);
}

static inline vc vc_dot(vc sum, vc left, vc right)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(left, right));
}

#else

typedef int32_t left_code;
typedef int32_t right_code;
typedef uint32_t vc __attribute__((vector_size(16)));
#define CODE_STEP 1
#define CODE_LANES 4
#define CODE_ROWS 4
#define CODE_VECTORS 2

static inline vc vc_zero(void)
{
    return (vc){0};
}

static inline vc vc_load(const void *src)
{
    vc v;
    memcpy(&v, src, sizeof v);
    return v;
}

static inline void vc_store(void *dst, vc v)
{
    memcpy(dst, &v, sizeof v);
}

static inline vc vc_spread(uint32_t codes)
{
    return (vc){0} + codes;
}

static inline vc vc_dot(vc sum, vc left, vc right)
{
    return sum + left * right;
}

#endif

/* What codes of a type are moved by on the left, and on the right. */
static inline int32_t left_shift(uint16_t dtype)
{
    return MICA__ISA_LEVEL == 3 && dtype == MICA_DTYPE_I8 ? 128 : 0;
}

static inline int32_t right_shift(uint16_t dtype)
{
    return MICA__ISA_LEVEL == 3 && dtype == MICA_DTYPE_U8 ? -128 : 0;
}

#define CODE_PANEL (CODE_VECTORS * CODE_LANES) /* columns of b that a tile takes */
#define CODE_UNROLL _Pragma("GCC unroll 8")

/* Sums [CODE_ROWS, CODE_PANEL], `ld` apart, += rows of a, `a_row` codes apart, by a panel of b: for each step CODE_STEP codes of every
 * column. */
static inline void code_tile(const left_code *a, uint64_t a_row, const right_code *b, uint64_t steps,
                             uint32_t *sums, uint64_t ld)
{
    vc sum[CODE_ROWS * CODE_VECTORS];
    CODE_UNROLL for (int i = 0; i < CODE_ROWS; i++) CODE_UNROLL for (int j = 0; j < CODE_VECTORS; j++)
        sum[i * CODE_VECTORS + j] = vc_load(sums + (uint64_t)i * ld + (uint64_t)j * CODE_LANES);
    for (uint64_t s = 0; s < steps; s++, a += CODE_STEP, b += CODE_PANEL * CODE_STEP) {
        vc column[CODE_VECTORS];
        CODE_UNROLL for (int j = 0; j < CODE_VECTORS; j++) column[j] =
            vc_load(b + (uint64_t)j * CODE_LANES * CODE_STEP);
        CODE_UNROLL for (int i = 0; i < CODE_ROWS; i++)
        {
            uint32_t codes;
            memcpy(&codes, a + (uint64_t)i * a_row, sizeof codes);
            const vc row = vc_spread(codes);
            CODE_UNROLL for (int j = 0; j < CODE_VECTORS; j++) sum[i * CODE_VECTORS + j] =
                vc_dot(sum[i * CODE_VECTORS + j], row, column[j]);
        }
    }
    CODE_UNROLL for (int i = 0; i < CODE_ROWS; i++) CODE_UNROLL for (int j = 0; j < CODE_VECTORS; j++)
        vc_store(sums + (uint64_t)i * ld + (uint64_t)j * CODE_LANES, sum[i * CODE_VECTORS + j]);
}

_Static_assert(CODE_STEP * sizeof(left_code) == 4 && CODE_STEP * sizeof(right_code) == 4, "a lane is full");

/* CODE_LANES columns, side by side and all there, of CODE_STEP rows `row` bytes apart, as a vector of a panel. */
static inline void code_interleave(const unsigned char *from, uint64_t row, bool is_signed, right_code *to)
{
#if MICA__ISA_LEVEL == 3
    const __m128i flip = _mm_set1_epi8(is_signed ? 0 : -128);
    __m128i v[4];
    for (int i = 0; i < 4; i++)
        v[i] =
            _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)(from + (uint64_t)i * row)), flip);
    const __m128i low = _mm_unpacklo_epi8(v[0], v[1]), low2 = _mm_unpacklo_epi8(v[2], v[3]),
                  high = _mm_unpackhi_epi8(v[0], v[1]), high2 = _mm_unpackhi_epi8(v[2], v[3]);
    _mm_storeu_si128((__m128i *)(void *)to, _mm_unpacklo_epi16(low, low2));
    _mm_storeu_si128((__m128i *)(void *)(to + 16), _mm_unpackhi_epi16(low, low2));
    _mm_storeu_si128((__m128i *)(void *)(to + 32), _mm_unpacklo_epi16(high, high2));
    _mm_storeu_si128((__m128i *)(void *)(to + 48), _mm_unpackhi_epi16(high, high2));
#elif MICA__ISA_LEVEL == 2
    __m128i v[2];
    for (int i = 0; i < 2; i++) {
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(from + (uint64_t)i * row));
        v[i] = is_signed ? _mm_cvtepi8_epi16(bytes) : _mm_cvtepu8_epi16(bytes);
    }
    _mm_storeu_si128((__m128i *)(void *)to, _mm_unpacklo_epi16(v[0], v[1]));
    _mm_storeu_si128((__m128i *)(void *)(to + 8), _mm_unpackhi_epi16(v[0], v[1]));
#else
    (void)row;
    for (int i = 0; i < CODE_LANES; i++)
        to[i] = is_signed ? (int8_t)from[i] : from[i];
#endif
}

/* CODE_STEP codes that follow one another. */
static inline void code_run(const unsigned char *from, bool is_signed, right_code *to)
{
#if MICA__ISA_LEVEL == 3
    uint32_t codes;
    memcpy(&codes, from, sizeof codes);
    codes ^= is_signed ? 0 : 0x80808080u;
    memcpy(to, &codes, sizeof codes);
#else
    for (int i = 0; i < CODE_STEP; i++)
        to[i] = is_signed ? (int8_t)from[i] : from[i];
#endif
}

#endif
