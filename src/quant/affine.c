/* affine.c - rows with tables of scales by dtype and instruction set. What they do is in codec/grouped.c. */
#include "quant/quant.h"

#include <string.h>

#include "base/half.h"
#include "quant/bits.h"
#include "quant/grouped.h"

extern const mica__grouped_codec mica__codec_grouped__portable;
#if defined(MICA_HAVE_AVX2)
extern const mica__grouped_codec mica__codec_grouped__avx2;
#endif
#if defined(MICA_HAVE_AVX512)
extern const mica__grouped_codec mica__codec_grouped__avx512;
#endif

static const mica__grouped_codec *const codecs[MICA__ISA_COUNT] = {
    [MICA__ISA_PORTABLE] = &mica__codec_grouped__portable,
#if defined(MICA_HAVE_AVX2)
    [MICA__ISA_AVX2] = &mica__codec_grouped__avx2,
#endif
#if defined(MICA_HAVE_AVX512)
    [MICA__ISA_AVX512] = &mica__codec_grouped__avx512,
#endif
};

unsigned mica__grouped_bits(uint16_t dtype)
{
    static const uint8_t bits[MICA_DTYPE_COUNT] = {
        [MICA_DTYPE_AFFINE2] = 2, [MICA_DTYPE_AFFINE3] = 3, [MICA_DTYPE_AFFINE4] = 4,
        [MICA_DTYPE_AFFINE5] = 5, [MICA_DTYPE_AFFINE6] = 6, [MICA_DTYPE_AFFINE8] = 8,
        [MICA_DTYPE_FP4] = 4,     [MICA_DTYPE_F8_E4M3] = 8,
    };
    return dtype < MICA_DTYPE_COUNT ? bits[dtype] : 0;
}

bool mica__affine_serves(uint16_t dtype, uint16_t scale_dtype)
{
    if (mica__dtype_is_affine(dtype))
        return scale_dtype == MICA_DTYPE_F32 || scale_dtype == MICA_DTYPE_F16 ||
               scale_dtype == MICA_DTYPE_BF16;
    if (dtype == MICA_DTYPE_FP4)
        return scale_dtype == MICA_DTYPE_E8M0 || scale_dtype == MICA_DTYPE_F8_E4M3;
    return dtype == MICA_DTYPE_F8_E4M3 && scale_dtype == MICA_DTYPE_E8M0;
}

void mica__affine_codes(uint16_t dtype, const void *q, uint64_t first, uint32_t count, uint8_t *codes)
{
    const unsigned bits = mica__grouped_bits(dtype);
    const uint8_t *bytes = (const uint8_t *)q + first * bits / 8;
    switch (bits) {
    case 2: mica__bits_unpack(bytes, 2, count, codes); break;
    case 3: mica__bits_unpack(bytes, 3, count, codes); break;
    case 4: mica__bits_unpack(bytes, 4, count, codes); break;
    case 5: mica__bits_unpack(bytes, 5, count, codes); break;
    case 6: mica__bits_unpack(bytes, 6, count, codes); break;
    default: memcpy(codes, bytes, count); break;
    }
}

float mica__scale_value(uint16_t dtype, const void *table, uint64_t i)
{
    const unsigned char *bytes = table;
    if (dtype == MICA_DTYPE_F32) {
        float value;
        memcpy(&value, bytes + 4 * i, sizeof value);
        return value;
    }
    if (dtype == MICA_DTYPE_E8M0)
        return mica__e8m0_to_f32(bytes[i]);
    if (dtype == MICA_DTYPE_F8_E4M3)
        return mica__f8_e4m3_to_f32(bytes[i]);
    uint16_t half;
    memcpy(&half, bytes + 2 * i, sizeof half);
    return dtype == MICA_DTYPE_F16 ? mica__f16_to_f32(half) : mica__bf16_to_f32(half);
}

void mica__scale_store(uint16_t dtype, void *table, uint64_t i, float value)
{
    unsigned char *bytes = table;
    if (dtype == MICA_DTYPE_F32) {
        memcpy(bytes + 4 * i, &value, sizeof value);
        return;
    }
    const uint16_t half = dtype == MICA_DTYPE_F16 ? mica__f32_to_f16(value) : mica__f32_to_bf16(value);
    memcpy(bytes + 2 * i, &half, sizeof half);
}

void mica__affine_decode_row_isa(mica__isa isa, uint16_t dtype, const void *q, const void *scales,
                                 const void *biases, uint16_t scale_dtype, uint32_t group_size, float *dst,
                                 uint64_t n)
{
    const mica__grouped_form form = {dtype, scale_dtype, group_size};
    if (mica__affine_serves(dtype, scale_dtype) && group_size != 0)
        codecs[isa]->decode(&form, q, scales, biases, dst, n);
    else
        memset(dst, 0, n * sizeof *dst);
}

void mica__affine_encode_row_isa(mica__isa isa, uint16_t dtype, uint16_t scale_dtype, uint32_t group_size,
                                 const float *src, uint64_t n, void *q, void *scales, void *biases)
{
    const mica__grouped_form form = {dtype, scale_dtype, group_size};
    if (mica__affine_serves(dtype, scale_dtype) && group_size != 0)
        codecs[isa]->encode(&form, src, n, q, scales, biases);
}

void mica__affine_decode_row(uint16_t dtype, const void *q, const void *scales, const void *biases,
                             uint16_t scale_dtype, uint32_t group_size, float *dst, uint64_t n)
{
    mica__affine_decode_row_isa(mica__isa_best(), dtype, q, scales, biases, scale_dtype, group_size, dst, n);
}

void mica__affine_encode_row(uint16_t dtype, uint16_t scale_dtype, uint32_t group_size, const float *src,
                             uint64_t n, void *q, void *scales, void *biases)
{
    mica__affine_encode_row_isa(mica__isa_best(), dtype, scale_dtype, group_size, src, n, q, scales, biases);
}
