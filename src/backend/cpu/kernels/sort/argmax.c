/*
 * argmax.c - index of the greatest, or of the least, element of each row.
 *
 * One pass over a row of f32, f16 or bf16 in tiles remembers the first tile with the best element; the element itself is
 * looked for there alone. Other types are compared one by one.
 */
#include "backend/cpu/cpu_params_sort.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/reduce_number.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/walk.h"

#define TILE (64 * VW)

/* Greatest, or least, of n elements; the worst infinity if there is none but NaN. */
static inline float tile_best(const float *x, uint64_t n, bool least)
{
#define BETTER(a, b) (least ? vf_min(a, b) : vf_max(a, b))
    const vf worst = vf_set1(least ? INFINITY : -INFINITY);
    vf best[4] = {worst, worst, worst, worst};
    uint64_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW)
        for (int j = 0; j < 4; j++)
            best[j] = BETTER(vf_load(x + i + j * VW), best[j]);
    for (; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        best[0] = BETTER(vf_merge_n(vf_load_n(x + i, left), worst, left), best[0]);
    }
    best[0] = BETTER(BETTER(best[0], best[1]), BETTER(best[2], best[3]));
    return least ? -vf_hmax(vf_neg(best[0])) : vf_hmax(best[0]);
#undef BETTER
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

static uint64_t floats_of(const unsigned char *x, uint16_t dtype, uint64_t stride, uint64_t n, bool least)
{
    float tmp[TILE], best = least ? INFINITY : -INFINITY;
    uint64_t start = 0;
    for (uint64_t i = 0; i < n; i += TILE) {
        const uint64_t part = n - i < TILE ? n - i : TILE;
        const float *tile = row_f32_strided(x + i * stride, dtype, stride, part, tmp);
        const float value = least ? tile_best(tile, part, true) : tile_best(tile, part, false);
        if (least ? value < best : value > best) {
            best = value;
            start = i;
        }
    }
    for (uint64_t i = start; i < n;
         i += TILE) { /* one tile, unless nothing but infinities and NaN came first */
        const uint64_t part = n - i < TILE ? n - i : TILE;
        const float *tile = row_f32_strided(x + i * stride, dtype, stride, part, tmp);
        const uint64_t at = find(tile, part, best);
        if (at < part)
            return i + at;
    }
    return 0;
}

static uint64_t doubles_of(const unsigned char *x, uint64_t stride, uint64_t n, bool least)
{
    uint64_t found = 0;
    double best = (double)NAN;
    for (uint64_t i = 0; i < n; i++) {
        double value;
        memcpy(&value, x + i * stride, sizeof value);
        if (value == value && (best != best || (least ? value < best : value > best))) {
            best = value;
            found = i;
        }
    }
    return found;
}

static uint64_t wholes_of(const unsigned char *x, uint16_t dtype, uint64_t stride, uint64_t n, bool least)
{
    uint64_t found = 0;
    int64_t best = whole_load(x, dtype);
    for (uint64_t i = 1; i < n; i++) {
        const int64_t value = whole_load(x + i * stride, dtype);
        if (least ? value < best : value > best) {
            best = value;
            found = i;
        }
    }
    return found;
}

void MICA__ISA(argmax)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_argmax *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__ARGMAX_X];
    const uint32_t inner = x->ndim - 1u;
    const uint64_t end = mica__cpu_rows_end(&params->range, last), n = x->shape[inner];
    const uint64_t step = x->stride[inner];
    const bool least = params->argmax.least != 0;
    uint64_t row = mica__cpu_rows_begin(&params->range, first);
    walk w;
    walk_begin(&w, args->view, MICA__ARGMAX_SLOTS, inner, row);
    for (; row < end; row++, walk_next(&w)) {
        const unsigned char *from = walk_at(&w, MICA__ARGMAX_X);
        const uint16_t type = x->dtype;
        const uint32_t id =
            (uint32_t)(type == MICA_DTYPE_F64 ? doubles_of(from, step, n, least)
                       : type == MICA_DTYPE_F32 || type == MICA_DTYPE_F16 || type == MICA_DTYPE_BF16
                           ? floats_of(from, type, step, n, least)
                           : wholes_of(from, type, step, n, least));
        memcpy(walk_at(&w, MICA__ARGMAX_IDS), &id, sizeof id);
    }
}
