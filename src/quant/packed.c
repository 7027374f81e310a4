/* packed.c - writes and reads the ROWS8 layout that packed.h describes. */
#include "quant/packed.h"

#include <string.h>

#include "base/half.h"
#include "quant/quant.h"

#define PART 32u

static uint32_t load32(const void *src)
{
    uint32_t word;
    memcpy(&word, src, sizeof word);
    return word;
}

static void store32(void *dst, uint32_t word)
{
    memcpy(dst, &word, sizeof word);
}

static uint64_t load64(const void *src)
{
    uint64_t word;
    memcpy(&word, src, sizeof word);
    return word;
}

/* The two halves of `words` into word v and word v + 1 of a row's part. */
static void store_words(unsigned char *at, uint64_t words)
{
    store32(at, (uint32_t)words);
    store32(at + 32, (uint32_t)(words >> 32));
}

bool mica__packed_form_of(uint16_t dtype, uint32_t group_size, mica__packed_form *out)
{
    switch (dtype) {
    case MICA_DTYPE_Q4_0: *out = (mica__packed_form){32, 16, 128, 0}; return true;
    case MICA_DTYPE_Q8_0: *out = (mica__packed_form){32, 16, 256, 0}; return true;
    case MICA_DTYPE_Q4_K: *out = (mica__packed_form){256, 128, 128, 0}; return true;
    case MICA_DTYPE_Q6_K: *out = (mica__packed_form){256, 144, 192, 0}; return true;
    case MICA_DTYPE_AFFINE4: *out = (mica__packed_form){group_size, 32, 128, MICA__PACKED_HEAD}; break;
    case MICA_DTYPE_AFFINE6: *out = (mica__packed_form){group_size, 32, 192, MICA__PACKED_HEAD}; break;
    case MICA_DTYPE_AFFINE8: *out = (mica__packed_form){group_size, 32, 256, MICA__PACKED_HEAD}; break;
    default: return false;
    }
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
    if (part_bytes == 256) {
        for (int c = 0; c < 8; c++)
            memcpy(at + 32 * c, codes + 4 * c, 4);
        return;
    }
    const uint64_t nibbles = 0x0f0f0f0f0f0f0f0f, pairs = 0x0303030303030303;
    for (int v = 0; v < 4; v += 2)
        store_words(at + 32 * v, (load64(codes + 4 * v) & nibbles) | (load64(codes + 16 + 4 * v) & nibbles)
                                                                         << 4);
    if (part_bytes == 128)
        return;
    uint64_t high = 0;
    for (int h = 0; h < 4; h++)
        high |= (load64(codes + 8 * h) >> 4 & pairs) << 2 * h;
    store_words(at + 128, high);
}

static void get_part(uint32_t part_bytes, const unsigned char *part, uint32_t r, uint8_t codes[PART])
{
    const unsigned char *at = part + 4 * r;
    for (int c = 0; c < 8; c++) {
        uint32_t word;
        if (part_bytes == 256)
            word = load32(at + 32 * c);
        else
            word = load32(at + 32 * (c % 4)) >> c / 4 * 4 & 0x0f0f0f0f;
        if (part_bytes == 192)
            word |= (load32(at + 128 + 32 * (c % 2)) >> c / 2 * 2 & 0x03030303) << 4;
        store32(codes + 4 * c, word);
    }
}

/* ---- one row of some blocks, canonical to packed ---- */

static void write_q4_0(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    for (; blocks > 0; blocks--, src += 18, dst += 144) {
        memcpy(dst + 2 * r, src, 2);
        for (int v = 0; v < 4; v++) /* the nibbles lie as in the part */
            memcpy(dst + 16 + 32 * v + 4 * r, src + 2 + 4 * v, 4);
    }
}

static void write_q8_0(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    for (; blocks > 0; blocks--, src += 34, dst += 272) {
        memcpy(dst + 2 * r, src, 2);
        for (int c = 0; c < 8; c++)
            store32(dst + 16 + 32 * c + 4 * r, load32(src + 2 + 4 * c) ^ 0x80808080);
    }
}

static void write_q4_k(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    for (; blocks > 0; blocks--, src += 144, dst += 1152) {
        memcpy(dst + 2 * r, src, 2);
        memcpy(dst + 16 + 2 * r, src + 2, 2);
        for (int j = 0; j < 12; j++)
            dst[32 + 8 * j + r] = src[4 + j];
        for (int p = 0; p < 4; p++)
            for (int v = 0; v < 4; v++) {
                const uint32_t first = load32(src + 16 + 32 * p + 4 * v),
                               second = load32(src + 32 + 32 * p + 4 * v);
                unsigned char *at = dst + 128 + 256 * p + 32 * v + 4 * r;
                store32(at, (first & 0x0f0f0f0f) | (second & 0x0f0f0f0f) << 4);
                store32(at + 128, (first >> 4 & 0x0f0f0f0f) | (second & 0xf0f0f0f0));
            }
    }
}

/* Part t of a half of 128 values: nibbles at ql, pairs of bits at qh. Eight codes at a time: word v of a part and the
 * next one lie 32 bytes apart. */
static void write_q6_k_part(const unsigned char *ql, const unsigned char *qh, int t, unsigned char *at)
{
    const uint64_t nibbles = 0x0f0f0f0f0f0f0f0f, pairs = 0x0303030303030303;
    for (int v = 0; v < 4; v += 2) {
        const uint64_t first = load64(ql + 4 * v) >> t / 2 * 4 & nibbles;
        const uint64_t second = load64(ql + 16 + 4 * v) >> t / 2 * 4 & nibbles;
        store_words(at + 32 * v, first | second << 4);
    }
    uint64_t high = 0;
    for (int h = 0; h < 4; h++)
        high |= (load64(qh + 8 * h) >> 2 * t & pairs) << 2 * h;
    store_words(at + 128, high);
}

static void write_q6_k(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst)
{
    for (; blocks > 0; blocks--, src += 210, dst += 1680) {
        memcpy(dst + 2 * r, src + 208, 2);
        for (int j = 0; j < 16; j++)
            dst[16 + 8 * j + r] = src[192 + j];
        for (int half = 0; half < 2; half++)
            for (int t = 0; t < 4; t++)
                write_q6_k_part(src + 64 * half + 32 * (t % 2), src + 128 + 32 * half, t,
                                dst + 144 + 192 * (4 * half + t) + 4 * r);
    }
}

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

typedef void (*row_writer)(const unsigned char *src, uint32_t r, uint64_t blocks, unsigned char *dst);

static row_writer writer_of(uint16_t dtype)
{
    switch (dtype) {
    case MICA_DTYPE_Q4_0: return write_q4_0;
    case MICA_DTYPE_Q8_0: return write_q8_0;
    case MICA_DTYPE_Q4_K: return write_q4_k;
    case MICA_DTYPE_Q6_K: return write_q6_k;
    default: return NULL;
    }
}

void mica__packed_write(const mica__packed_source *source, const mica__packed_form *form, uint64_t row,
                        uint32_t rows, uint64_t k_first, uint64_t k_count, unsigned char *dst)
{
    const row_writer write = writer_of(source->dtype);
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
        store32(dst, source->scale_dtype);
    mica__packed_write(source, form, row, rows, 0, source->k, dst + form->head_bytes);
    memset(dst + used, 0, (used + 63) / 64 * 64 - used);
}

uint16_t mica__packed_scale_dtype(const void *group)
{
    return (uint16_t)load32(group);
}

/* ---- packed to f32 ---- */

/* w = step * (code - zero), then - low where the type has one. */
typedef struct part_scale {
    float step, low;
    int zero;
    bool has_low;
} part_scale;

static float half_at(const unsigned char *table, uint32_t i)
{
    return mica__scale_value(MICA_DTYPE_F16, table, i);
}

/* Scale of the 16 values from 16 * half of part `part` of a block, for row r. */
static part_scale scale_of(uint16_t dtype, uint16_t scale_dtype, const unsigned char *block, uint32_t r,
                           uint64_t part, uint32_t half)
{
    switch (dtype) {
    case MICA_DTYPE_Q4_0: return (part_scale){half_at(block, r), 0, 8, false};
    case MICA_DTYPE_Q8_0: return (part_scale){half_at(block, r), 0, 128, false};
    case MICA_DTYPE_Q6_K: {
        const int8_t scale = (int8_t)block[16 + 8 * (2 * part + half) + r];
        return (part_scale){half_at(block, r) * (float)scale, 0, 32, false};
    }
    case MICA_DTYPE_Q4_K: {
        uint8_t packed[12], scale[8], min[8];
        for (int j = 0; j < 12; j++)
            packed[j] = block[32 + 8 * j + r];
        mica__q4_k_scales(packed, scale, min);
        return (part_scale){half_at(block, r) * (float)scale[part], half_at(block + 16, r) * (float)min[part],
                            0, true};
    }
    default:
        return (part_scale){mica__scale_value(scale_dtype, block, r),
                            -mica__scale_value(scale_dtype, block, MICA__PACKED_ROWS + r), 0, true};
    }
}

static void decode_part(const part_scale *scale, const uint8_t *codes, uint64_t n, float *dst)
{
    for (uint64_t i = 0; i < n; i++) {
        const float w = scale->step * (float)(codes[i] - scale->zero);
        dst[i] = scale->has_low ? w - scale->low : w;
    }
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
    const uint32_t step = dtype == MICA_DTYPE_Q6_K ? 16 : PART; /* values that share a scale */
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
