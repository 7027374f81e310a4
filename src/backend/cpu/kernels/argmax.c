/*
 * argmax.c - index of the greatest element of each row.
 *
 * One pass over the row in tiles remembers the first tile with the greatest element; the element itself is
 * looked for there alone.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"

#define TILE (64 * VW)

/* Greatest of n elements, -inf if there is none but NaN. */
static float tile_max(const float *x, uint64_t n)
{
    const vf lowest = vf_set1(-INFINITY);
    vf greatest[4] = {lowest, lowest, lowest, lowest};
    uint64_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW)
        for (int j = 0; j < 4; j++)
            greatest[j] = vf_max(vf_load(x + i + j * VW), greatest[j]);
    for (; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        greatest[0] = vf_max(vf_merge_n(vf_load_n(x + i, left), lowest, left), greatest[0]);
    }
    return vf_hmax(vf_max(vf_max(greatest[0], greatest[1]), vf_max(greatest[2], greatest[3])));
}

/* First of n elements that equals `value`, n if none does. */
static uint64_t find(const float *x, uint64_t n, float value)
{
    const vf wanted = vf_set1(value);
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        uint32_t hits = vm_bits(vf_eq(vf_load_n(x + i, left), wanted)) & ((1u << left) - 1);
        for (uint64_t lane = 0; hits != 0; lane++, hits >>= 1)
            if (hits & 1)
                return i + lane;
    }
    return n;
}

static uint64_t argmax_row(const unsigned char *x, uint16_t dtype, uint64_t stride, uint64_t n)
{
    float tmp[TILE], greatest = -INFINITY;
    uint64_t start = 0;
    for (uint64_t i = 0; i < n; i += TILE) {
        const uint64_t part = n - i < TILE ? n - i : TILE;
        const float value = tile_max(row_f32_strided(x + i * stride, dtype, stride, part, tmp), part);
        if (value > greatest) {
            greatest = value;
            start = i;
        }
    }
    for (uint64_t i = start; i < n; i += TILE) { /* one tile, unless nothing but -inf and NaN came first */
        const uint64_t part = n - i < TILE ? n - i : TILE;
        const float *tile = row_f32_strided(x + i * stride, dtype, stride, part, tmp);
        const uint64_t at = find(tile, part, greatest);
        if (at < part)
            return i + at;
    }
    return 0;
}

void MICA__ISA(argmax)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_params *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__ARGMAX_X], *ids = &args->view[MICA__ARGMAX_IDS];
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        const unsigned char *from = x->data + row * x->stride[0];
        const uint32_t id = (uint32_t)argmax_row(from, x->dtype, x->stride[1], x->shape[1]);
        memcpy(ids->data + row * ids->stride[0], &id, sizeof id);
    }
}
