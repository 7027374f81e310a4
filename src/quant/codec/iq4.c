/* iq4.c - 4-bit indices into sixteen fixed levels, denser near zero: iq4_nl iq4_xs. */
#include "quant/codec/lanes.h"
#include "quant/codec/levels.h"

#include <math.h>
#include <stddef.h>

static const int8_t levels[16] = {MICA__IQ4_LEVELS};

/* The level nearest to x: one step up at each middle between two. NaN takes the lowest. */
static inline float nearest_level(float x)
{
    float value = -127;
    for (int i = 0; i < 15; i++)
        value = x >= 0.5f * (float)(levels[i] + levels[i + 1]) ? (float)levels[i + 1] : value;
    return value;
}

static inline int nearest_index(float x)
{
    int index = 0;
    for (int i = 0; i < 15; i++)
        index += x >= 0.5f * (float)(levels[i] + levels[i + 1]);
    return index;
}

static inline float sum16(const float lane[16])
{
    float half[8], quarter[4];
    for (int i = 0; i < 8; i++)
        half[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++)
        quarter[i] = half[i] + half[i + 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

/* A run of 32 values that share a scale, with what an error in each costs. */
typedef struct run {
    float x[32], weight[32], weighted[32]; /* weighted = weight * x */
} run;

/* With q the levels nearest to x * inverse: the sums of weight q x and weight q q. */
typedef struct run_sums {
    float qx, qq;
} run_sums;

static run_sums sums_at(const run *r, float inverse)
{
    float qx[16], qq[16];
    for (int l = 0; l < 16; l++) {
        const float a = nearest_level(r->x[l] * inverse), b = nearest_level(r->x[l + 16] * inverse);
        qx[l] = r->weighted[l] * a + r->weighted[l + 16] * b;
        qq[l] = r->weight[l] * a * a + r->weight[l + 16] * b * b;
    }
    return (run_sums){sum16(qx), sum16(qq)};
}

static float signed_peak(const float *x, int n)
{
    float peak = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(peak))
            peak = x[i];
    return peak;
}

/* The weighted error of scale d is a constant - 2 d qx + d d qq, so the best d for given levels is qx / qq and takes
 * qx qx / qq off. Levels are tried that put the peak at 127 and at 8 to each side of -127, in steps of one. */
static float best_scale(const run *r)
{
    const float peak = signed_peak(r->x, 32);
    if (fabsf(peak) < 1e-15f)
        return 0;
    float best = 0, gain = 0;
    for (int i = 0; i < 16; i++) {
        const run_sums sums = sums_at(r, (i == 15 ? 127.0f : (float)(i - 134)) / peak);
        if (sums.qq > 0 && sums.qx * sums.qx > gain * sums.qq) {
            best = sums.qx / sums.qq;
            gain = best * sums.qx;
        }
    }
    return best;
}

static float mean_square(const float *x, int n)
{
    float lane[16] = {0};
    for (int i = 0; i < n; i += 16)
        for (int l = 0; l < 16; l++)
            lane[l] += x[i + l] * x[i + l];
    return sum16(lane) / (float)n;
}

/* Errors in large values count more; with importance less so, as it says itself where errors cost. spread is of the
 * size of a typical square. */
static void fill_run(const float *src, const float *importance, float spread, run *out)
{
    memcpy(out->x, src, sizeof out->x);
    for (int i = 0; i < 32; i++) {
        const float square = src[i] * src[i];
        out->weight[i] = importance != NULL ? importance[i] * sqrtf(4 * spread + square) : spread + square;
        out->weighted[i] = out->weight[i] * src[i];
    }
}

static void put_indices(const float *x, float scale, uint8_t qs[16])
{
    const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
    for (int j = 0; j < 16; j++)
        qs[j] = (uint8_t)(nearest_index(x[j] * inverse) | nearest_index(x[j + 16] * inverse) << 4);
}

static void put_levels(const uint8_t qs[16], float scale, float dst[32])
{
    int8_t q[32];
    mica__levels_of(levels, qs, q);
    for (int j = 0; j < 32; j += LANES)
        lane_store(dst + j, lane_from_i8((const unsigned char *)q + j) * scale);
}

void MICA__CODEC(decode_iq4_nl)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_iq4_nl), dst += 32) {
        uint16_t d;
        memcpy(&d, from + offsetof(mica__block_iq4_nl, d), sizeof d);
        put_levels(from + offsetof(mica__block_iq4_nl, qs), mica__f16_to_f32(d), dst);
    }
}

void MICA__CODEC(encode_iq4_nl)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, src += 32, to += sizeof(mica__block_iq4_nl)) {
        mica__block_iq4_nl block;
        run r;
        fill_run(src, importance, 2 * mean_square(src, 32), &r);
        block.d = mica__f32_to_f16(best_scale(&r));
        put_indices(src, mica__f16_to_f32(block.d), block.qs);
        memcpy(to, &block, sizeof block);
        importance = importance != NULL ? importance + 32 : NULL;
    }
}

void MICA__CODEC(decode_iq4_xs)(const void *src, float *dst, uint64_t blocks)
{
    const unsigned char *from = src;
    for (uint64_t b = 0; b < blocks; b++, from += sizeof(mica__block_iq4_xs)) {
        mica__block_iq4_xs block;
        memcpy(&block, from, sizeof block);
        const float d = mica__f16_to_f32(block.d);
        for (int s = 0; s < 8; s++, dst += 32)
            put_levels(block.qs + 16 * s,
                       d * (float)(mica__iq4_xs_scale(block.scales_h, block.scales_l, s) - 32), dst);
    }
}

/* -32 to 31; NaN gives -32. */
static int clamp_scale(float value)
{
    const float rounded = nearbyintf(value);
    return !(rounded > -32) ? -32 : rounded > 31 ? 31 : (int)rounded;
}

/* The multiple of d that leaves the least error in a run: the one nearest to its own best scale, or a neighbour. */
static int best_multiple(const run *r, float d, float scale)
{
    const int nearest = clamp_scale(d != 0 ? scale / d : 0);
    int best = nearest;
    float least = INFINITY;
    for (int multiple = nearest - 1; multiple <= nearest + 1; multiple++) {
        if (multiple < -32 || multiple > 31 || multiple == 0)
            continue;
        const float step = d * (float)multiple;
        const run_sums sums = sums_at(r, 1.0f / step);
        const float error = step * (step * sums.qq - 2 * sums.qx);
        if (error < least) {
            least = error;
            best = multiple;
        }
    }
    return best;
}

void MICA__CODEC(encode_iq4_xs)(const float *src, const float *importance, void *dst, uint64_t blocks)
{
    unsigned char *to = dst;
    for (uint64_t b = 0; b < blocks; b++, src += 256, to += sizeof(mica__block_iq4_xs)) {
        mica__block_iq4_xs block = {0};
        const float spread = 2 * mean_square(src, 256);
        float scale[8];
        run r[8];
        for (int s = 0; s < 8; s++) {
            fill_run(src + 32 * s, importance != NULL ? importance + 32 * s : NULL, spread, &r[s]);
            scale[s] = best_scale(&r[s]);
        }
        block.d = mica__f32_to_f16(signed_peak(scale, 8) / -32.0f);
        const float d = mica__f16_to_f32(block.d);
        for (int s = 0; s < 8; s++) {
            const int multiple = best_multiple(&r[s], d, scale[s]);
            block.scales_l[s / 2] |= (uint8_t)(((multiple + 32) & 15) << s % 2 * 4);
            block.scales_h |= (uint16_t)((multiple + 32) >> 4 << 2 * s);
            put_indices(src + 32 * s, d * (float)multiple, block.qs + 16 * s);
        }
        memcpy(to, &block, sizeof block);
        importance = importance != NULL ? importance + 256 : NULL;
    }
}
