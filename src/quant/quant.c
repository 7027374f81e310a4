/* quant.c - codecs by dtype and instruction set. What they do is in codec/. */
#include "quant/quant.h"

#include <string.h>

#include "quant/codec.h"

extern const mica__codec mica__codec_table__portable[];
#if defined(MICA_HAVE_AVX2)
extern const mica__codec mica__codec_table__avx2[];
#endif
#if defined(MICA_HAVE_AVX512)
extern const mica__codec mica__codec_table__avx512[];
#endif

static const mica__codec *const tables[MICA__ISA_COUNT] = {
    [MICA__ISA_PORTABLE] = mica__codec_table__portable,
#if defined(MICA_HAVE_AVX2)
    [MICA__ISA_AVX2] = mica__codec_table__avx2,
#endif
#if defined(MICA_HAVE_AVX512)
    [MICA__ISA_AVX512] = mica__codec_table__avx512,
#endif
};

bool mica__quant_can_decode(uint16_t dtype)
{
    return dtype < MICA_DTYPE_COUNT && tables[MICA__ISA_PORTABLE][dtype].decode != NULL;
}

bool mica__quant_can_encode(uint16_t dtype)
{
    return dtype < MICA_DTYPE_COUNT && tables[MICA__ISA_PORTABLE][dtype].encode != NULL;
}

bool mica__quant_known(uint16_t dtype)
{
    return mica__quant_can_decode(dtype) && mica_dtype_block_elements((mica_dtype)dtype) > 1;
}

void mica__quant_decode_row_isa(mica__isa isa, uint16_t dtype, const void *src, float *dst, uint64_t n)
{
    if (!mica__quant_can_decode(dtype)) {
        memset(dst, 0, n * sizeof *dst);
        return;
    }
    tables[isa][dtype].decode(src, dst, n / mica_dtype_block_elements((mica_dtype)dtype));
}

void mica__quant_encode_row_isa(mica__isa isa, uint16_t dtype, const float *src, const float *importance,
                                void *dst, uint64_t n)
{
    if (mica__quant_can_encode(dtype))
        tables[isa][dtype].encode(src, importance, dst, n / mica_dtype_block_elements((mica_dtype)dtype));
}

void mica__quant_decode_row(uint16_t dtype, const void *src, float *dst, uint64_t n)
{
    mica__quant_decode_row_isa(mica__isa_best(), dtype, src, dst, n);
}

void mica__quant_encode_row(uint16_t dtype, const float *src, const float *importance, void *dst, uint64_t n)
{
    mica__quant_encode_row_isa(mica__isa_best(), dtype, src, importance, dst, n);
}
