/*
 * attention_tile.h - the arithmetic of attention on a few rows: scores of keys, sums of values.
 *
 * A score has one vector of partial sums over the head's values, as in gemm.h. An element of the values'
 * sum adds its keys one by one in rising order. Keys and values are rows at pointers of their own, of any
 * type: pages and rings end before this. Tiles differ in how many rows share a load, never in the order of
 * additions.
 */
#ifndef MICA_CPU_ATTENTION_TILE_H
#define MICA_CPU_ATTENTION_TILE_H

#include "backend/cpu/kernels/attention/attention.h"
#include "backend/cpu/kernels/cache.h"
#include "backend/cpu/kernels/gemm.h"

#define SCORE_STRIDE MICA__ATTENTION_SCORES /* floats from one row of scores to the next */
#define TILE_KEYS 4                         /* scored together: what gemm_sum4 adds at once */
#if MICA__ISA_LEVEL == 3
#define TILE_ROWS 4 /* query rows that share a key */
#define VALUE_SUMS 16
#else
#define TILE_ROWS 2
#define VALUE_SUMS 8
#endif

/* Rows of one type at pointers: the keys or values of a chunk, by place in it, for the first of some kv
 * heads; those of the next head lie head_stride bytes on. The rows seen are [first, last); the pointers
 * around them up to whole tiles repeat the nearest one. */
typedef struct key_rows {
    const unsigned char *row[MICA__ATTENTION_CHUNK];
    uint64_t first, last;
    uint64_t dim, bytes, head_stride; /* bytes of a row */
    uint16_t dtype;
} key_rows;

/* A range of places for one kv head. `ahead` may be NULL: rows to prefetch at the same places meanwhile. */
typedef struct key_range {
    const key_rows *rows, *ahead;
    uint64_t head, first, last;
} key_range;

/* The row at a place, if it is seen, `offset` bytes on. */
static inline void prefetch_row(const key_rows *rows, uint64_t offset, uint64_t place)
{
    if (place < rows->first || place >= rows->last)
        return;
    const unsigned char *row = rows->row[place] + offset;
    for (uint64_t i = 0; i < rows->bytes; i += 64)
        __builtin_prefetch(row + i, 0, 2);
}

/* A row of blocks has a scale for each of them; other rows have none. */
GEMM_INLINE vf tile_scale(const unsigned char *row, uint16_t dtype, uint64_t at)
{
    return mica__attention_reads(dtype) ? cache_scale(row, dtype, at) : vf_zero();
}

GEMM_INLINE vf tile_load(const unsigned char *row, uint16_t dtype, uint64_t at, vf scale)
{
    return mica__attention_reads(dtype) ? cache_load(row, dtype, at, scale) : gemm_load(row, dtype, at);
}

/* a and b, of which each lane is to be added to the lane that is `apart` on: lanes where bit `apart` of their number is 0 get the sums of
 * a, the others those of b. Bits are those of adding a vector's lanes alone. */
#if MICA__ISA_LEVEL == 3
GEMM_INLINE __m512 add_lanes(__m512 a, __m512 b, int apart)
{
    const __mmask16 upper = apart == 8 ? 0xff00 : apart == 4 ? 0xf0f0 : apart == 2 ? 0xcccc : 0xaaaa;
    const __m512 own = _mm512_mask_blend_ps(upper, a, b), other = _mm512_mask_blend_ps(upper, b, a);
    if (apart == 8)
        return _mm512_add_ps(own, _mm512_shuffle_f32x4(a, b, 0x4e));
    if (apart == 4)
        return _mm512_add_ps(own, _mm512_shuffle_f32x4(other, other, 0xb1));
    return _mm512_add_ps(own, apart == 2 ? _mm512_shuffle_ps(a, b, 0x4e) : _mm512_permute_ps(other, 0xb1));
}
#elif MICA__ISA_LEVEL == 2
GEMM_INLINE __m256 add_lanes(__m256 a, __m256 b, int apart)
{
    if (apart == 4)
        return _mm256_add_ps(_mm256_blend_ps(a, b, 0xf0), _mm256_permute2f128_ps(a, b, 0x21));
    if (apart == 2)
        return _mm256_add_ps(_mm256_blend_ps(a, b, 0xcc), _mm256_shuffle_ps(a, b, 0x4e));
    return _mm256_add_ps(_mm256_blend_ps(a, b, 0xaa), _mm256_permute_ps(_mm256_blend_ps(b, a, 0xaa), 0xb1));
}
#endif

#if MICA__ISA_LEVEL >= 2
GEMM_INLINE void add_level(vf *sum, int apart)
{
    GEMM_UNROLL
    for (int i = 0; i < apart; i++)
        sum[i] = add_lanes(sum[i], sum[i + apart], apart);
}
#endif

/* The sums of a tile's vectors, row after row: VW vectors become the lanes of one, each level of the tree for all of them together. */
GEMM_INLINE void score_sums(vf *sum, int rows, float *score)
{
#if MICA__ISA_LEVEL >= 2
    if (rows == TILE_ROWS) {
        float total[VW];
#if MICA__ISA_LEVEL == 3
        add_level(sum, 8);
#endif
        add_level(sum, 4);
        add_level(sum, 2);
        add_level(sum, 1);
        vf_store(total, sum[0]);
        for (int i = 0; i < rows; i++)
            memcpy(score + i * SCORE_STRIDE, total + i * TILE_KEYS, TILE_KEYS * sizeof *score);
        return;
    }
#endif
    for (int i = 0; i < rows; i++)
        gemm_sum4(sum + i * TILE_KEYS, score + i * SCORE_STRIDE);
}

/* Scores of TILE_KEYS keys from `key` on for `rows` rows of q: score[i * SCORE_STRIDE + key]. */
GEMM_INLINE void score_tile(const float *q, uint64_t q_stride, const key_range *keys, uint64_t key,
                            uint16_t dtype, int rows, float *score)
{
    const uint64_t dim = keys->rows->dim, offset = keys->head * keys->rows->head_stride;
    const unsigned char *k[TILE_KEYS];
    for (int j = 0; j < TILE_KEYS; j++)
        k[j] = keys->rows->row[key + (uint64_t)j] + offset;
    vf sum[TILE_ROWS * TILE_KEYS];
    GEMM_UNROLL
    for (int i = 0; i < rows * TILE_KEYS; i++)
        sum[i] = vf_zero();
    const uint64_t step = mica__attention_reads(dtype) ? CACHE_BLOCK : VW;
    uint64_t at = 0;
    for (; at + step <= dim; at += step) {
        vf scale[TILE_KEYS];
        for (int j = 0; j < TILE_KEYS; j++)
            scale[j] = tile_scale(k[j], dtype, at);
        for (uint64_t to = at + step, from = at; from < to; from += VW) {
            vf a[TILE_ROWS];
            for (int i = 0; i < rows; i++)
                a[i] = vf_load(q + (uint64_t)i * q_stride + from);
            for (int j = 0; j < TILE_KEYS; j++) {
                const vf b = tile_load(k[j], dtype, from, scale[j]);
                for (int i = 0; i < rows; i++)
                    sum[i * TILE_KEYS + j] = vf_fma(a[i], b, sum[i * TILE_KEYS + j]);
            }
        }
    }
    if (at < dim)
        for (int j = 0; j < TILE_KEYS; j++) {
            const vf b = row_load_n(k[j] + at * row_element_bytes(dtype), dtype, dim - at);
            for (int i = 0; i < rows; i++)
                sum[i * TILE_KEYS + j] =
                    vf_fma(vf_load_n(q + (uint64_t)i * q_stride + at, dim - at), b, sum[i * TILE_KEYS + j]);
        }
    score_sums(sum, rows, score + key);
}

GEMM_INLINE void score_type(const float *q, uint64_t q_stride, const key_range *keys, uint16_t dtype,
                            int rows, float *score)
{
    const key_rows *ahead = keys->ahead;
    const uint64_t offset = ahead != NULL ? keys->head * ahead->head_stride : 0;
    for (uint64_t key = keys->first; key < keys->last; key += TILE_KEYS) {
        for (uint64_t i = 0; ahead != NULL && i < TILE_KEYS; i++)
            prefetch_row(ahead, offset, key + i);
        score_tile(q, q_stride, keys, key, dtype, rows, score);
    }
}

GEMM_INLINE void score_rows(const float *q, uint64_t q_stride, const key_range *keys, int rows, float *score)
{
    switch (keys->rows->dtype) {
    case MICA_DTYPE_F32: score_type(q, q_stride, keys, MICA_DTYPE_F32, rows, score); return;
    case MICA_DTYPE_F16: score_type(q, q_stride, keys, MICA_DTYPE_F16, rows, score); return;
    case MICA_DTYPE_Q8_0: score_type(q, q_stride, keys, MICA_DTYPE_Q8_0, rows, score); return;
    case MICA_DTYPE_Q4_0: score_type(q, q_stride, keys, MICA_DTYPE_Q4_0, rows, score); return;
    case MICA_DTYPE_IQ4_NL: score_type(q, q_stride, keys, MICA_DTYPE_IQ4_NL, rows, score); return;
    default: score_type(q, q_stride, keys, MICA_DTYPE_BF16, rows, score); return;
    }
}

/* Scores of a range of keys, which is whole tiles, for 1 to TILE_ROWS rows. */
static inline void score_keys(const float *q, uint64_t q_stride, const key_range *keys, uint64_t rows,
                              float *score)
{
    switch (rows) {
    case 1: score_rows(q, q_stride, keys, 1, score); return;
    case 2: score_rows(q, q_stride, keys, 2, score); return;
#if TILE_ROWS > 2
    case 3: score_rows(q, q_stride, keys, 3, score); return;
    case 4: score_rows(q, q_stride, keys, 4, score); return;
#endif
    default: return;
    }
}

/* Adds the values of a range of keys times their weights to `rows` sums, over `vectors` vectors from value
 * `at` on. `lanes` < VW: one vector, that many lanes of it. */
GEMM_INLINE void value_tile(const float *weight, const key_range *keys, uint16_t dtype, uint64_t at, int rows,
                            int vectors, uint64_t lanes, float *sum, uint64_t sum_stride)
{
    const key_rows *ahead = at == 0 ? keys->ahead : NULL;
    const uint64_t offset = keys->head * keys->rows->head_stride,
                   ahead_offset = ahead != NULL ? keys->head * ahead->head_stride : 0;
    /* Whole blocks begin with one: where a vector lies in its block is known when compiling. */
    const uint64_t begin = vectors * VW % CACHE_BLOCK == 0 ? at / CACHE_BLOCK * CACHE_BLOCK : at;
    vf o[VALUE_SUMS];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            o[i * vectors + j] = vf_load(sum + (uint64_t)i * sum_stride + at + (uint64_t)j * VW);
    for (uint64_t key = keys->first; key < keys->last; key++) {
        const unsigned char *row = keys->rows->row[key] + offset;
        vf v[8], scale = vf_zero();
        if (ahead != NULL)
            prefetch_row(ahead, ahead_offset, key);
        for (int j = 0; j < vectors; j++) {
            /* `at` is a multiple of what the vectors hold, so that they begin with a block or lie in one. */
            if (j * VW % CACHE_BLOCK == 0)
                scale = tile_scale(row, dtype, begin + (uint64_t)j * VW);
            v[j] = lanes < VW ? row_load_n(row + at * row_element_bytes(dtype), dtype, lanes)
                              : tile_load(row, dtype, begin + (uint64_t)j * VW, scale);
        }
        for (int i = 0; i < rows; i++) {
            const vf w = vf_set1(weight[(uint64_t)i * SCORE_STRIDE + key]);
            for (int j = 0; j < vectors; j++)
                o[i * vectors + j] = vf_fma(w, v[j], o[i * vectors + j]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            vf_store(sum + (uint64_t)i * sum_stride + at + (uint64_t)j * VW, o[i * vectors + j]);
}

GEMM_INLINE void value_type(const float *weight, const key_range *keys, uint16_t dtype, int rows, float *sum,
                            uint64_t sum_stride)
{
    const uint64_t dim = keys->rows->dim;
    uint64_t at = 0;
    if (rows * 8 <= VALUE_SUMS)
        for (; at + 8 * VW <= dim; at += 8 * VW)
            value_tile(weight, keys, dtype, at, rows, 8, VW, sum, sum_stride);
    if (rows * 4 <= VALUE_SUMS)
        for (; at + 4 * VW <= dim; at += 4 * VW)
            value_tile(weight, keys, dtype, at, rows, 4, VW, sum, sum_stride);
    for (; at + 2 * VW <= dim; at += 2 * VW)
        value_tile(weight, keys, dtype, at, rows, 2, VW, sum, sum_stride);
    for (; at < dim; at += VW)
        value_tile(weight, keys, dtype, at, rows, 1, dim - at < VW ? dim - at : VW, sum, sum_stride);
}

GEMM_INLINE void value_rows(const float *weight, const key_range *keys, int rows, float *sum,
                            uint64_t sum_stride)
{
    switch (keys->rows->dtype) {
    case MICA_DTYPE_F32: value_type(weight, keys, MICA_DTYPE_F32, rows, sum, sum_stride); return;
    case MICA_DTYPE_F16: value_type(weight, keys, MICA_DTYPE_F16, rows, sum, sum_stride); return;
    case MICA_DTYPE_Q8_0: value_type(weight, keys, MICA_DTYPE_Q8_0, rows, sum, sum_stride); return;
    case MICA_DTYPE_Q4_0: value_type(weight, keys, MICA_DTYPE_Q4_0, rows, sum, sum_stride); return;
    case MICA_DTYPE_IQ4_NL: value_type(weight, keys, MICA_DTYPE_IQ4_NL, rows, sum, sum_stride); return;
    default: value_type(weight, keys, MICA_DTYPE_BF16, rows, sum, sum_stride); return;
    }
}

/* sum[i] += weight[i][key] * value[key] over a range of keys, for 1, 2 or 4 rows. */
static inline void add_values(const float *weight, const key_range *keys, uint64_t rows, float *sum,
                              uint64_t sum_stride)
{
    if (keys->first >= keys->last)
        return;
    switch (rows) {
    case 1: value_rows(weight, keys, 1, sum, sum_stride); return;
    case 2: value_rows(weight, keys, 2, sum, sum_stride); return;
    case 4: value_rows(weight, keys, 4, sum, sum_stride); return;
    default: return;
    }
}

#endif
