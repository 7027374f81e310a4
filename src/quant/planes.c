/* planes.c - which fields a block has, and rows to and from planes. */
#include "quant/planes.h"

#include <stddef.h>
#include <string.h>

#include "base/checked.h"
#include "quant/block.h"
#include "quant/dtype.h"

#define PART(type, first, size)                   \
    {                                             \
        offsetof(mica__block_##type, first), size \
    }

/* Codes first: they are what is read in vectors. Scales that stand together stay together. */
static const mica__planes table[MICA_DTYPE_COUNT] = {
    [MICA_DTYPE_Q4_0] = {2, {PART(q4_0, qs, 16), PART(q4_0, d, 2)}},
    [MICA_DTYPE_Q4_1] = {2, {PART(q4_1, qs, 16), PART(q4_1, d, 4)}},
    [MICA_DTYPE_Q5_0] = {3, {PART(q5_0, qs, 16), PART(q5_0, qh, 4), PART(q5_0, d, 2)}},
    [MICA_DTYPE_Q5_1] = {3, {PART(q5_1, qs, 16), PART(q5_1, qh, 4), PART(q5_1, d, 4)}},
    [MICA_DTYPE_Q8_0] = {2, {PART(q8_0, qs, 32), PART(q8_0, d, 2)}},
    [MICA_DTYPE_Q2_K] = {3, {PART(q2_k, qs, 64), PART(q2_k, scales, 16), PART(q2_k, d, 4)}},
    [MICA_DTYPE_Q3_K] = {4,
                         {PART(q3_k, qs, 64), PART(q3_k, hmask, 32), PART(q3_k, scales, 12),
                          PART(q3_k, d, 2)}},
    [MICA_DTYPE_Q4_K] = {2, {PART(q4_k, qs, 128), PART(q4_k, d, 16)}},
    [MICA_DTYPE_Q5_K] = {3, {PART(q5_k, qs, 128), PART(q5_k, qh, 32), PART(q5_k, d, 16)}},
    [MICA_DTYPE_Q6_K] = {4,
                         {PART(q6_k, ql, 128), PART(q6_k, qh, 64), PART(q6_k, scales, 16), PART(q6_k, d, 2)}},
    [MICA_DTYPE_IQ4_NL] = {2, {PART(iq4_nl, qs, 16), PART(iq4_nl, d, 2)}},
    [MICA_DTYPE_IQ4_XS] = {2, {PART(iq4_xs, qs, 128), PART(iq4_xs, d, 8)}},
    [MICA_DTYPE_MXFP4] = {2, {PART(mxfp4, qs, 16), PART(mxfp4, e, 1)}},
    [MICA_DTYPE_NVFP4] = {2, {PART(nvfp4, qs, 32), PART(nvfp4, d, 4)}},
};

mica__planes mica__planes_of(uint16_t dtype)
{
    return dtype < MICA_DTYPE_COUNT ? table[dtype] : (mica__planes){0};
}

uint64_t mica__planes_row_bytes(uint16_t dtype, uint64_t k)
{
    uint64_t bytes = 0;
    if (mica__planes_of(dtype).count == 0 ||
        !mica__mul_u64(k / mica__dtype_elements(dtype), mica__dtype_bytes(dtype), &bytes) ||
        !mica__add_u64(bytes, MICA__PLANES_ALIGN - 1, &bytes))
        return 0;
    return bytes / MICA__PLANES_ALIGN * MICA__PLANES_ALIGN;
}

void mica__planes_pack_row(uint16_t dtype, uint64_t k, const void *row, void *planes)
{
    const mica__planes fields = mica__planes_of(dtype);
    const uint64_t blocks = k / mica__dtype_elements(dtype), bytes = mica__dtype_bytes(dtype);
    unsigned char *to = planes;
    for (uint32_t f = 0; f < fields.count; f++)
        for (uint64_t b = 0; b < blocks; b++, to += fields.field[f].bytes)
            memcpy(to, (const unsigned char *)row + b * bytes + fields.field[f].offset,
                   fields.field[f].bytes);
}

void mica__planes_unpack_row(uint16_t dtype, uint64_t k, const void *planes, void *row)
{
    const mica__planes fields = mica__planes_of(dtype);
    const uint64_t blocks = k / mica__dtype_elements(dtype), bytes = mica__dtype_bytes(dtype);
    const unsigned char *from = planes;
    for (uint32_t f = 0; f < fields.count; f++)
        for (uint64_t b = 0; b < blocks; b++, from += fields.field[f].bytes)
            memcpy((unsigned char *)row + b * bytes + fields.field[f].offset, from, fields.field[f].bytes);
}
