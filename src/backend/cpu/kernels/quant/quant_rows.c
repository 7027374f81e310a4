/* quant_rows.c - sixteen rows of a quantised weight against activations; see quant_rows.h. */
#include "backend/cpu/kernels/quant/quant_rows.h"

#include "backend/cpu/kernels/quant/quant_dot.h"

typedef void (*tile_fn)(const quant_tile *tile);

/* One compiled tile per type and number of columns. */
#define TILE(dtype, columns)                                  \
    static void tile_##dtype##_##columns(const quant_tile *t) \
    {                                                         \
        quant_tile_run(t, MICA_DTYPE_##dtype, columns);       \
    }
#if QUANT_COLUMNS == 8
#define TILES(dtype) TILE(dtype, 1) TILE(dtype, 2) TILE(dtype, 4) TILE(dtype, 8)
#define TILE_ROW(dtype)                                                        \
    {                                                                          \
        tile_##dtype##_1, tile_##dtype##_2, tile_##dtype##_4, tile_##dtype##_8 \
    }
#define TILE_WIDTHS 4
#else
#define TILES(dtype) TILE(dtype, 1) TILE(dtype, 2) TILE(dtype, 4)
#define TILE_ROW(dtype)                                      \
    {                                                        \
        tile_##dtype##_1, tile_##dtype##_2, tile_##dtype##_4 \
    }
#define TILE_WIDTHS 3
#endif

TILES(Q4_0)
TILES(Q4_1)
TILES(Q5_0)
TILES(Q5_1)
TILES(Q8_0)
TILES(Q2_K)
TILES(Q3_K)
TILES(Q4_K)
TILES(Q5_K)
TILES(Q6_K)
TILES(IQ4_NL)
TILES(IQ4_XS)
TILES(MXFP4)
TILES(NVFP4)
TILES(FP4)
TILES(AFFINE2)
TILES(AFFINE3)
TILES(AFFINE4)
TILES(AFFINE5)
TILES(AFFINE6)
TILES(AFFINE8)

/* Width i serves 1 << i columns. */
static const tile_fn tiles[MICA_DTYPE_COUNT][TILE_WIDTHS] = {
    [MICA_DTYPE_Q4_0] = TILE_ROW(Q4_0),       [MICA_DTYPE_Q4_1] = TILE_ROW(Q4_1),
    [MICA_DTYPE_Q5_0] = TILE_ROW(Q5_0),       [MICA_DTYPE_Q5_1] = TILE_ROW(Q5_1),
    [MICA_DTYPE_Q8_0] = TILE_ROW(Q8_0),       [MICA_DTYPE_Q2_K] = TILE_ROW(Q2_K),
    [MICA_DTYPE_Q3_K] = TILE_ROW(Q3_K),       [MICA_DTYPE_Q4_K] = TILE_ROW(Q4_K),
    [MICA_DTYPE_Q5_K] = TILE_ROW(Q5_K),       [MICA_DTYPE_Q6_K] = TILE_ROW(Q6_K),
    [MICA_DTYPE_IQ4_NL] = TILE_ROW(IQ4_NL),   [MICA_DTYPE_IQ4_XS] = TILE_ROW(IQ4_XS),
    [MICA_DTYPE_MXFP4] = TILE_ROW(MXFP4),     [MICA_DTYPE_NVFP4] = TILE_ROW(NVFP4),
    [MICA_DTYPE_FP4] = TILE_ROW(FP4),         [MICA_DTYPE_AFFINE2] = TILE_ROW(AFFINE2),
    [MICA_DTYPE_AFFINE3] = TILE_ROW(AFFINE3), [MICA_DTYPE_AFFINE4] = TILE_ROW(AFFINE4),
    [MICA_DTYPE_AFFINE5] = TILE_ROW(AFFINE5), [MICA_DTYPE_AFFINE6] = TILE_ROW(AFFINE6),
    [MICA_DTYPE_AFFINE8] = TILE_ROW(AFFINE8),
};

/* Panel 0 or 1 of a chunk of a unit: in place when packed, else written to `work`. The second is the first again where
 * the matrix ends. */
static const unsigned char *chunk_panel(const mica__quant_weight *w, uint64_t row, uint64_t panel,
                                        uint64_t k_first, uint64_t k_count, unsigned char *work)
{
    const mica__packed_form *form = &w->form;
    const uint64_t first = row + panel * mica__quant_far(w->n), left = mica__quant_rows_left(w->n, first);
    if (w->layout == MICA_LAYOUT_ROWS8)
        return w->source.data + (left != 0 ? first : row) * w->source.row_stride + form->head_bytes +
               (k_first == 0 ? 0 : mica__packed_block_bytes(form, k_first));
    if (left == 0)
        return work;
    unsigned char *to = work + panel * mica__packed_block_bytes(form, mica__quant_chunk(form));
    mica__packed_write(&w->source, form, first, (uint32_t)left, k_first, k_count, to);
    return to;
}

/* All columns of a chunk for the rows of the tile's panels, the widest tiles first. */
static void chunk_columns(quant_tile *tile, const tile_fn *widths, const void *const *x, uint64_t run,
                          uint64_t columns, float *out)
{
    int width = TILE_WIDTHS - 1;
    for (uint64_t c = 0; c < columns; c += 1u << width) {
        while ((1u << width) > columns - c)
            width--;
        for (uint64_t i = 0; i < 1u << width; i++)
            tile->x[i] = (const mica__q8_block *)x[c + i] + run;
        tile->acc = out + c * MICA__QUANT_ROWS;
        widths[width](tile);
    }
}

void MICA__ISA(quant_rows_q8)(const mica__quant_weight *weight, uint64_t row, const void *const *x,
                              uint64_t columns, void *work, float *out)
{
    const mica__packed_source *source = &weight->source;
    const mica__packed_form *form = &weight->form;
    const bool packed = weight->layout == MICA_LAYOUT_ROWS8;
    quant_tile tile;
    if (form->block_values == 0) {
        memset(out, 0, columns * MICA__QUANT_ROWS * sizeof *out);
        return;
    }
    tile.group_size = source->group_size;
    tile.scale_dtype = packed && form->head_bytes != 0
                           ? mica__packed_scale_dtype(source->data + row * source->row_stride)
                           : source->scale_dtype;
    /* Weights that are in place and meet one tile of columns are read once: there is no use in keeping them near. */
    const uint64_t chunk = packed && columns <= QUANT_COLUMNS ? source->k : mica__quant_chunk(form);
    for (uint64_t k = 0; k < source->k; k += chunk) {
        const uint64_t count = source->k - k < chunk ? source->k - k : chunk;
        tile.runs = (count + 31) / 32;
        tile.fresh = k == 0;
        for (uint64_t lane = 0; lane < MICA__QUANT_ROWS; lane += QUANT_TILE_ROWS) {
            for (uint64_t i = 0; i < QUANT_PANELS; i++)
                tile.panels.at[i] = chunk_panel(weight, row, lane / MICA__PACKED_ROWS + i, k, count, work);
            chunk_columns(&tile, tiles[source->dtype], x, k / 32, columns, out + lane);
        }
    }
}

/* Codes of e4m3 as f16 of the same fraction, whose exponent has a bias of 15 and not of 7: 2^8 less. NaN is made one. */
static void e4m3_halves(const unsigned char code[32], uint16_t half[32])
{
    for (int j = 0; j < 32; j++) {
        const unsigned sign = code[j] & 0x80u, size = code[j] & 0x7fu;
        half[j] = (uint16_t)(sign << 8 | size << 7 | (size == 0x7f ? 0x7c00u : 0));
    }
}

/* A row of f8_e4m3 with scales of e8m0 in groups of a multiple of 32, faster than its codec. */
static void decode_e4m3(const mica__packed_source *s, uint64_t row, float *dst)
{
    const unsigned char *codes = s->data + row * s->row_stride, *scales = s->scales + row * s->scale_stride;
    const vf raise = vf_set1(256);
    for (uint64_t i = 0; i < s->k; i += 32) {
        const uint64_t left = s->k - i, n = left < 32 ? left : 32;
        const vf scale = vf_set1(mica__e8m0_to_f32(scales[i / s->group_size]));
        unsigned char last[32] = {0};
        uint16_t half[32];
        if (n < 32)
            memcpy(last, codes + i, n);
        e4m3_halves(n < 32 ? last : codes + i, half);
        for (uint64_t j = 0; j < n; j += VW) {
            const vf value = vf_mul(vf_mul(vf_load_f16(half + j), raise), scale);
            if (n - j >= VW)
                vf_store(dst + i + j, value);
            else
                vf_store_n(dst + i + j, value, n - j);
        }
    }
}

static void decode_row(const mica__quant_weight *w, uint64_t row, float *dst)
{
    const mica__packed_source *s = &w->source;
    if (w->layout == MICA_LAYOUT_ROWS8) {
        const uint64_t in_group = row % MICA__PACKED_ROWS;
        mica__packed_decode_row(s->dtype, s->data + (row - in_group) * s->row_stride, (uint32_t)in_group,
                                s->k, s->group_size, dst);
    } else if (s->dtype == MICA_DTYPE_F8_E4M3 && s->group_size % 32 == 0) {
        decode_e4m3(s, row, dst);
    } else if (mica__dtype_is_grouped(s->dtype)) {
        const unsigned char *biases = s->biases == NULL ? NULL : s->biases + row * s->bias_stride;
        mica__affine_decode_row(s->dtype, s->data + row * s->row_stride, s->scales + row * s->scale_stride,
                                biases, s->scale_dtype, s->group_size, dst, s->k);
    } else {
        mica__quant_decode_row(s->dtype, s->data + row * s->row_stride, dst, s->k);
    }
}

/* Lane l adds the products at l, l + VW, ... in order; then the fixed tree of vf_sum. `count` columns at a time keep
 * the multiplier busy. */
QUANT_INLINE void dot_columns(const float *w, uint64_t k, const void *const *x, const int count, float *out)
{
    vf acc[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    uint64_t i = 0;
    for (; i + VW <= k; i += VW)
        for (int c = 0; c < count; c++)
            acc[c] = vf_fma(vf_load((const float *)x[c] + i), vf_load(w + i), acc[c]);
    for (int c = 0; c < count; c++) {
        if (i < k)
            acc[c] = vf_fma(vf_load_n((const float *)x[c] + i, k - i), vf_load_n(w + i, k - i), acc[c]);
        out[c * MICA__QUANT_ROWS] = vf_sum(acc[c]);
    }
}

void MICA__ISA(quant_rows_f32)(const mica__quant_weight *weight, uint64_t row, const void *const *x,
                               uint64_t columns, void *work, float *out)
{
    const uint64_t k = weight->source.k;
    float *w = work;
    for (uint64_t r = 0; r < MICA__QUANT_ROWS; r++) {
        const uint64_t at = row + r % MICA__PACKED_ROWS + r / MICA__PACKED_ROWS * mica__quant_far(weight->n);
        uint64_t c = 0;
        if (at >= weight->n)
            continue;
        decode_row(weight, at, w);
        for (; c + 4 <= columns; c += 4)
            dot_columns(w, k, x + c, 4, out + c * MICA__QUANT_ROWS + r);
        for (; c < columns; c++)
            dot_columns(w, k, x + c, 1, out + c * MICA__QUANT_ROWS + r);
    }
}
