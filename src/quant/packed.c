/* packed.c - writes and reads the ROWS8 layout that packed.h describes. */
#include "quant/packed.h"

#include <string.h>

#include "quant/grouped.h"
#include "quant/packed_blocks.h"
#include "quant/packed_words.h"
#include "quant/quant.h"

#define PART MICA__PACKED_PART

/* An affine type's block is its group. */
static const mica__packed_form forms[MICA_DTYPE_COUNT] = {
    [MICA_DTYPE_Q4_0] = {32, 16, 128, 0},
    [MICA_DTYPE_Q4_1] = {32, 32, 128, 0},
    [MICA_DTYPE_Q5_0] = {32, 16, 160, 0},
    [MICA_DTYPE_Q5_1] = {32, 32, 160, 0},
    [MICA_DTYPE_Q8_0] = {32, 16, 256, 0},
    [MICA_DTYPE_Q2_K] = {256, 160, 64, 0},
    [MICA_DTYPE_Q3_K] = {256, 112, 96, 0},
    [MICA_DTYPE_Q4_K] = {256, 128, 128, 0},
    [MICA_DTYPE_Q5_K] = {256, 128, 160, 0},
    [MICA_DTYPE_Q6_K] = {256, 144, 192, 0},
    [MICA_DTYPE_IQ4_NL] = {32, 16, 128, 0},
    [MICA_DTYPE_IQ4_XS] = {256, 64, 128, 0},
    [MICA_DTYPE_MXFP4] = {32, 16, 128, 0},
    [MICA_DTYPE_NVFP4] = {64, 64, 128, 0},
    [MICA_DTYPE_FP4] = {32, 0, 128, 0}, /* a scale a group */
    [MICA_DTYPE_AFFINE2] = {0, 32, 64, MICA__PACKED_HEAD},
    [MICA_DTYPE_AFFINE3] = {0, 32, 96, MICA__PACKED_HEAD},
    [MICA_DTYPE_AFFINE4] = {0, 32, 128, MICA__PACKED_HEAD},
    [MICA_DTYPE_AFFINE5] = {0, 32, 160, MICA__PACKED_HEAD},
    [MICA_DTYPE_AFFINE6] = {0, 32, 192, MICA__PACKED_HEAD},
    [MICA_DTYPE_AFFINE8] = {0, 32, 256, MICA__PACKED_HEAD},
};

bool mica__packed_form_of(uint16_t dtype, uint32_t group_size, mica__packed_form *out)
{
    if (dtype >= MICA_DTYPE_COUNT || forms[dtype].part_bytes == 0)
        return false;
    *out = forms[dtype];
    if (dtype == MICA_DTYPE_FP4) {
        out->scale_bytes = group_size == 32 ? 16 : 32;
        return group_size == 32 || group_size == 16;
    }
    if (out->block_values != 0)
        return true;
    out->block_values = group_size;
    return group_size != 0 && group_size % PART == 0 && group_size <= MICA__PACKED_MAX_GROUP;
}

bool mica__packed_scales(uint16_t dtype, uint32_t group_size, uint16_t scale_dtype)
{
    if (dtype == MICA_DTYPE_FP4)
        return scale_dtype == (group_size == 32 ? MICA_DTYPE_E8M0 : MICA_DTYPE_F8_E4M3);
    return scale_dtype == MICA_DTYPE_F16 || scale_dtype == MICA_DTYPE_BF16;
}

uint64_t mica__packed_block_bytes(const mica__packed_form *form, uint64_t k)
{
    const uint64_t blocks = k / form->block_values + (k % form->block_values != 0);
    const uint64_t parts = k / PART + (k % PART != 0);
    return blocks * form->scale_bytes + parts * form->part_bytes;
}

uint64_t mica__packed_group_bytes(uint16_t dtype, uint64_t k, uint32_t group_size)
{
    mica__packed_form form;
    if (!mica__packed_form_of(dtype, group_size, &form))
        return 0;
    return (form.head_bytes + mica__packed_block_bytes(&form, k) + 63) / 64 * 64;
}

/* ---- codes of 32 values, to and from a part ---- */

static void put_part(uint32_t part_bytes, const uint8_t codes[PART], uint32_t r, unsigned char *part)
{
    unsigned char *at = part + 4 * r;
    mica__words w = mica__load_words(codes);
    if (part_bytes == 256) {
        for (int c = 0; c < 8; c++)
            memcpy(at + 32 * c, codes + 4 * c, 4);
    } else if (part_bytes >= 128) {
        mica__put_nibbles(codes, codes + 16, 0, at);
        mica__shift_words(&w, 4);
    } else {
        mica__put_pairs(&w, at);
        mica__shift_words(&w, 2);
    }
    if (part_bytes == 192)
        mica__put_pairs(&w, at + 128);
    else if (part_bytes == 96 || part_bytes == 160)
        mica__put_bits(&w, at + part_bytes - 32);
}

/* Chunk c of four codes of a row, out of each plane. */
static uint32_t get_nibbles(const unsigned char *at, int c)
{
    return mica__load32(at + 32 * (c % 4)) >> c / 4 * 4 & 0x0f0f0f0f;
}

static uint32_t get_pairs(const unsigned char *at, int c)
{
    return mica__load32(at + 32 * (c % 2)) >> c / 2 * 2 & 0x03030303;
}

static uint32_t get_bits(const unsigned char *at, int c)
{
    return mica__load32(at) >> c & 0x01010101;
}

static void get_part(uint32_t part_bytes, const unsigned char *part, uint32_t r, uint8_t codes[PART])
{
    const unsigned char *at = part + 4 * r;
    for (int c = 0; c < 8; c++) {
        uint32_t word;
        switch (part_bytes) {
        case 64: word = get_pairs(at, c); break;
        case 96: word = get_pairs(at, c) | get_bits(at + 64, c) << 2; break;
        case 128: word = get_nibbles(at, c); break;
        case 160: word = get_nibbles(at, c) | get_bits(at + 128, c) << 4; break;
        case 192: word = get_nibbles(at, c) | get_pairs(at + 128, c) << 4; break;
        default: word = mica__load32(at + 32 * c); break;
        }
        mica__store32(codes + 4 * c, word);
    }
}

/* ---- canonical to packed ---- */

/* The scales of the block of `count` values at `first`, for row r of the group. */
static void write_scales(const mica__packed_source *source, uint64_t row, uint64_t first, uint64_t count,
                         uint32_t r, unsigned char *dst)
{
    const unsigned char *scales = source->scales + row * source->scale_stride;
    const uint64_t group = first / source->group_size;
    if (source->dtype != MICA_DTYPE_FP4) {
        memcpy(dst + 2 * r, scales + group * 2, 2);
        memcpy(dst + 2 * (MICA__PACKED_ROWS + r), source->biases + row * source->bias_stride + group * 2, 2);
        return;
    }
    for (uint64_t i = 0; i < PART; i += source->group_size, dst += 2 * MICA__PACKED_ROWS) {
        float half = 0;
        if (i < count)
            half = 0.5f * mica__scale_value(source->scale_dtype, scales, (first + i) / source->group_size);
        mica__scale_store(source->group_size == 32 ? MICA_DTYPE_BF16 : MICA_DTYPE_F16, dst, r, half);
    }
}

static void write_grouped(const mica__packed_source *source, const mica__packed_form *form, uint64_t row,
                          uint64_t first, uint32_t r, unsigned char *dst)
{
    const uint64_t left = source->k - first, count = left < form->block_values ? left : form->block_values;
    write_scales(source, row, first, count, r, dst);
    unsigned char *part = dst + form->scale_bytes;
    for (uint64_t i = 0; i < count; i += PART, part += form->part_bytes) {
        uint8_t codes[PART] = {0};
        const uint32_t present = (uint32_t)(count - i < PART ? count - i : PART);
        mica__affine_codes(source->dtype, source->data + row * source->row_stride, first + i, present, codes);
        put_part(form->part_bytes, codes, r, part);
    }
}

void mica__packed_write(const mica__packed_source *source, const mica__packed_form *form, uint64_t row,
                        uint32_t rows, uint64_t k_first, uint64_t k_count, unsigned char *dst)
{
    const mica__packed_row_writer write = mica__packed_writer_of(source->dtype);
    const uint64_t block_bytes = mica__packed_block_bytes(form, form->block_values);
    const uint64_t first_block = k_first / form->block_values;
    if (rows < MICA__PACKED_ROWS)
        memset(dst, 0, mica__packed_block_bytes(form, k_count));
    for (uint32_t r = 0; r < rows; r++) {
        if (write != NULL) {
            const uint32_t bytes = mica_dtype_block_bytes((mica_dtype)source->dtype);
            write(source->data + (row + r) * source->row_stride + first_block * bytes, r,
                  k_count / form->block_values, dst);
            continue;
        }
        for (uint64_t k = 0; k < k_count; k += form->block_values)
            write_grouped(source, form, row + r, k_first + k, r, dst + k / form->block_values * block_bytes);
    }
}

void mica__packed_write_group(const mica__packed_source *source, const mica__packed_form *form, uint64_t row,
                              uint32_t rows, unsigned char *dst)
{
    const uint64_t used = form->head_bytes + mica__packed_block_bytes(form, source->k);
    memset(dst, 0, form->head_bytes);
    if (form->head_bytes != 0)
        mica__store32(dst, source->scale_dtype);
    mica__packed_write(source, form, row, rows, 0, source->k, dst + form->head_bytes);
    memset(dst + used, 0, (used + 63) / 64 * 64 - used);
}

uint16_t mica__packed_scale_dtype(const void *group)
{
    return (uint16_t)mica__load32(group);
}

/* ---- packed to f32 ---- */

/* w = step * (code - zero), or step * level[code]; then - low where the type has one. Mirrored: codes from 8 on are the
 * negatives of the first eight, minus zero too. */
typedef struct part_scale {
    float step, low;
    int zero;
    bool has_low, mirrored;
    const int8_t *level;
} part_scale;

static const int8_t iq4_levels[16] = {MICA__IQ4_LEVELS}, fp4_levels[16] = {MICA__FP4_LEVELS};

static float half_at(const unsigned char *table, uint32_t i)
{
    return mica__scale_value(MICA_DTYPE_F16, table, i);
}

/* Bytes of row r out of `count` tables of eight rows. */
static void row_bytes(const unsigned char *tables, uint32_t r, uint32_t count, uint8_t *out)
{
    for (uint32_t j = 0; j < count; j++)
        out[j] = tables[8 * j + r];
}

static part_scale scale_q2_k(const unsigned char *block, uint32_t r, uint64_t run)
{
    const uint8_t packed = block[32 + 8 * run + r];
    return (part_scale){.step = half_at(block, r) * (float)(packed & 15),
                        .low = half_at(block + 16, r) * (float)(packed >> 4),
                        .has_low = true};
}

static part_scale scale_q3_k(const unsigned char *block, uint32_t r, uint64_t run)
{
    uint8_t packed[12], scale[16];
    row_bytes(block + 16, r, 12, packed);
    mica__q3_k_scales(packed, scale);
    return (part_scale){.step = half_at(block, r) * (float)(scale[run] - 32), .zero = 4};
}

static part_scale scale_q4_k(const unsigned char *block, uint32_t r, uint64_t part)
{
    uint8_t packed[12], scale[8], min[8];
    row_bytes(block + 32, r, 12, packed);
    mica__q4_k_scales(packed, scale, min);
    return (part_scale){.step = half_at(block, r) * (float)scale[part],
                        .low = half_at(block + 16, r) * (float)min[part],
                        .has_low = true};
}

static part_scale scale_iq4_xs(const unsigned char *block, uint32_t r, uint64_t part)
{
    uint8_t packed[6];
    row_bytes(block + 16, r, 6, packed);
    const int scale = mica__iq4_xs_scale((uint16_t)(packed[0] | packed[1] << 8), packed + 2, (int)part);
    return (part_scale){.step = half_at(block, r) * (float)(scale - 32), .level = iq4_levels};
}

/* Scale of the 16 values from 16 * half of part `part` of a block, for row r. scale_dtype: of types with tables of
 * scales, as it is packed. */
static part_scale scale_of(uint16_t dtype, uint16_t scale_dtype, const unsigned char *block, uint32_t r,
                           uint64_t part, uint32_t half)
{
    switch (dtype) {
    case MICA_DTYPE_Q4_0: return (part_scale){.step = half_at(block, r), .zero = 8};
    case MICA_DTYPE_Q5_0: return (part_scale){.step = half_at(block, r), .zero = 16};
    case MICA_DTYPE_Q8_0: return (part_scale){.step = half_at(block, r), .zero = 128};
    case MICA_DTYPE_Q4_1:
    case MICA_DTYPE_Q5_1:
        return (part_scale){.step = half_at(block, r), .low = -half_at(block + 16, r), .has_low = true};
    case MICA_DTYPE_Q2_K: return scale_q2_k(block, r, 2 * part + half);
    case MICA_DTYPE_Q3_K: return scale_q3_k(block, r, 2 * part + half);
    case MICA_DTYPE_Q4_K:
    case MICA_DTYPE_Q5_K: return scale_q4_k(block, r, part);
    case MICA_DTYPE_Q6_K: {
        const int8_t scale = (int8_t)block[16 + 8 * (2 * part + half) + r];
        return (part_scale){.step = half_at(block, r) * (float)scale, .zero = 32};
    }
    case MICA_DTYPE_IQ4_NL: return (part_scale){.step = half_at(block, r), .level = iq4_levels};
    case MICA_DTYPE_IQ4_XS: return scale_iq4_xs(block, r, part);
    case MICA_DTYPE_MXFP4:
        return (part_scale){.step = mica__scale_value(MICA_DTYPE_BF16, block, r), .level = fp4_levels};
    case MICA_DTYPE_NVFP4:
        return (part_scale){.step = half_at(block + 16 * (2 * part + half), r), .level = fp4_levels};
    case MICA_DTYPE_FP4:
        block += scale_dtype == MICA_DTYPE_F16 ? 16 * half : 0;
        return (part_scale){
            .step = mica__scale_value(scale_dtype, block, r), .mirrored = true, .level = fp4_levels};
    default:
        return (part_scale){.step = mica__scale_value(scale_dtype, block, r),
                            .low = -mica__scale_value(scale_dtype, block, MICA__PACKED_ROWS + r),
                            .has_low = true};
    }
}

static void decode_part(const part_scale *scale, const uint8_t *codes, uint64_t n, float *dst)
{
    for (uint64_t i = 0; scale->mirrored && i < n; i++) {
        const float w = scale->step * (float)scale->level[codes[i] & 7];
        dst[i] = codes[i] & 8 ? -w : w;
    }
    for (uint64_t i = 0; !scale->mirrored && i < n; i++) {
        const int number = scale->level != NULL ? scale->level[codes[i]] : codes[i] - scale->zero;
        const float w = scale->step * (float)number;
        dst[i] = scale->has_low ? w - scale->low : w;
    }
}

/* How many values share a scale, at most a part. */
static uint32_t scale_values(uint16_t dtype)
{
    static const uint8_t sixteen[MICA_DTYPE_COUNT] = {
        [MICA_DTYPE_Q2_K] = 1,  [MICA_DTYPE_Q3_K] = 1, [MICA_DTYPE_Q6_K] = 1,
        [MICA_DTYPE_NVFP4] = 1, [MICA_DTYPE_FP4] = 1,
    };
    return sixteen[dtype] ? 16 : PART;
}

/* The type of the scales in a group of a type with tables of scales. */
static uint16_t packed_scale_dtype(uint16_t dtype, const void *group, uint32_t group_size)
{
    if (dtype == MICA_DTYPE_FP4)
        return group_size == 32 ? MICA_DTYPE_BF16 : MICA_DTYPE_F16;
    return mica__dtype_is_affine(dtype) ? mica__packed_scale_dtype(group) : MICA_DTYPE_NONE;
}

void mica__packed_decode_row(uint16_t dtype, const void *group, uint32_t row, uint64_t k, uint32_t group_size,
                             float *dst)
{
    mica__packed_decode_part(dtype, group, row, 0, k, group_size, dst);
}

void mica__packed_decode_part(uint16_t dtype, const void *group, uint32_t row, uint64_t first, uint64_t count,
                              uint32_t group_size, float *dst)
{
    const uint16_t scale_dtype = packed_scale_dtype(dtype, group, group_size);
    mica__packed_form form;
    if (!mica__packed_form_of(dtype, group_size, &form)) {
        memset(dst, 0, count * sizeof *dst);
        return;
    }
    const uint64_t end = first + count;
    const uint64_t block_bytes = mica__packed_block_bytes(&form, form.block_values);
    const uint32_t step = scale_values(dtype);
    for (uint64_t i = first; i < end; i += PART) {
        const unsigned char *block =
            (const unsigned char *)group + form.head_bytes + i / form.block_values * block_bytes;
        const uint64_t part = i % form.block_values / PART;
        uint8_t codes[PART];
        get_part(form.part_bytes, block + form.scale_bytes + part * form.part_bytes, row, codes);
        for (uint32_t j = 0; j < PART && i + j < end; j += step) {
            const part_scale scale = scale_of(dtype, scale_dtype, block, row, part, j / 16);
            decode_part(&scale, codes + j, end - i - j < step ? end - i - j : step, dst + (i - first) + j);
        }
    }
}
