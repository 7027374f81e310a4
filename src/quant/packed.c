/* packed.c - writes and reads the ROWS8 layout that packed.h describes. */
#include "quant/packed.h"

#include <string.h>

#include "quant/packed_blocks.h"
#include "quant/packed_words.h"
#include "quant/quant.h"

#define PART 32u

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
    if (out->block_values != 0)
        return true;
    out->block_values = group_size;
    return group_size != 0 && group_size % PART == 0 && group_size <= MICA__PACKED_MAX_GROUP;
}

bool mica__packed_scales(uint16_t scale_dtype)
{
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

static void write_affine(const mica__packed_source *source, const mica__packed_form *form, uint64_t row,
                         uint64_t first, uint32_t r, unsigned char *dst)
{
    const uint64_t group = first / source->group_size;
    const uint64_t left = source->k - first, count = left < source->group_size ? left : source->group_size;
    memcpy(dst + 2 * r, source->scales + row * source->scale_stride + group * 2, 2);
    memcpy(dst + 2 * (MICA__PACKED_ROWS + r), source->biases + row * source->bias_stride + group * 2, 2);
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
            write_affine(source, form, row + r, k_first + k, r, dst + k / form->block_values * block_bytes);
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

/* w = step * (code - zero), or step * level[code]; then - low where the type has one. */
typedef struct part_scale {
    float step, low;
    int zero;
    bool has_low;
    const int8_t *level;
} part_scale;

static const int8_t iq4_levels[16] = {MICA__IQ4_LEVELS};

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

/* Scale of the 16 values from 16 * half of part `part` of a block, for row r. */
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
    default:
        return (part_scale){.step = mica__scale_value(scale_dtype, block, r),
                            .low = -mica__scale_value(scale_dtype, block, MICA__PACKED_ROWS + r),
                            .has_low = true};
    }
}

static void decode_part(const part_scale *scale, const uint8_t *codes, uint64_t n, float *dst)
{
    for (uint64_t i = 0; i < n; i++) {
        const int number = scale->level != NULL ? scale->level[codes[i]] : codes[i] - scale->zero;
        const float w = scale->step * (float)number;
        dst[i] = scale->has_low ? w - scale->low : w;
    }
}

/* How many values share a scale, at most a part. */
static uint32_t scale_values(uint16_t dtype)
{
    return dtype == MICA_DTYPE_Q2_K || dtype == MICA_DTYPE_Q3_K || dtype == MICA_DTYPE_Q6_K ? 16 : PART;
}

void mica__packed_decode_row(uint16_t dtype, const void *group, uint32_t row, uint64_t k, uint32_t group_size,
                             float *dst)
{
    const uint16_t scale_dtype =
        mica__dtype_is_affine(dtype) ? mica__packed_scale_dtype(group) : MICA_DTYPE_NONE;
    mica__packed_form form;
    if (!mica__packed_form_of(dtype, group_size, &form)) {
        memset(dst, 0, k * sizeof *dst);
        return;
    }
    const uint64_t block_bytes = mica__packed_block_bytes(&form, form.block_values);
    const uint32_t step = scale_values(dtype);
    for (uint64_t i = 0; i < k; i += PART) {
        const unsigned char *block =
            (const unsigned char *)group + form.head_bytes + i / form.block_values * block_bytes;
        const uint64_t part = i % form.block_values / PART;
        uint8_t codes[PART];
        get_part(form.part_bytes, block + form.scale_bytes + part * form.part_bytes, row, codes);
        for (uint32_t j = 0; j < PART && i + j < k; j += step) {
            const part_scale scale = scale_of(dtype, scale_dtype, block, row, part, j / 16);
            decode_part(&scale, codes + j, k - i - j < step ? k - i - j : step, dst + i + j);
        }
    }
}
