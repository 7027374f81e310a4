/* fit.c - least squares in lanes: many trial scales for each run, the best kept. */
#include "quant/codec/fit.h"

#include <math.h>

#include "quant/codec/lanes.h"

/* The sums of one trial. */
typedef struct sums {
    lane_f q, qq, xq;
} sums;

void MICA__CODEC(fit_load)(mica__fit *fit, const float *src, const float *importance, int n, uint64_t runs)
{
    fit->n = n;
    for (int r = 0; r < FIT_RUNS; r++)
        for (int i = 0; i < n; i++) {
            fit->x[i][r] = (uint64_t)r < runs ? src[r * n + i] : 0;
            fit->w[i][r] = (uint64_t)r < runs && importance != NULL ? importance[r * n + i] : 1;
        }
    for (int r = 0; r < FIT_RUNS; r += LANES) {
        lane_f square = {0};
        for (int i = 0; i < n; i++)
            square += lane_load(&fit->x[i][r]) * lane_load(&fit->x[i][r]);
        lane_store(&fit->scale[r], square * (2.0f / (float)n));
    }
    for (int i = 0; i < n; i++)
        for (int r = 0; r < FIT_RUNS; r++)
            fit->w[i][r] *= sqrtf(fit->scale[r] + fit->x[i][r] * fit->x[i][r]);
    for (int r = 0; r < FIT_RUNS; r += LANES) {
        lane_f sw = {0}, sx = {0};
        for (int i = 0; i < n; i++)
            sw += lane_load(&fit->w[i][r]);
        /* where nothing matters, all does */
        const lane_f spare = lane_select(sw > 0.0f, (lane_f){0}, lane_set(1));
        sw += spare * (float)n;
        for (int i = 0; i < n; i++) {
            const lane_f w = lane_load(&fit->w[i][r]) + spare;
            lane_store(&fit->w[i][r], w);
            sx += w * lane_load(&fit->x[i][r]);
        }
        lane_store(&fit->sw[r], sw);
        lane_store(&fit->sx[r], sx);
    }
}

/* The sums for the codes of (x - offset) * inverse. */
static inline sums try_codes(const mica__fit *fit, int r, lane_f offset, lane_f inverse, float low,
                             float high)
{
    const lane_f least = lane_set(low), most = lane_set(high);
    sums s = {{0}, {0}, {0}};
    for (int i = 0; i < fit->n; i++) {
        const lane_f x = lane_load(&fit->x[i][r]), w = lane_load(&fit->w[i][r]);
        const lane_f q = lane_round(lane_clamp((x - offset) * inverse, least, most));
        const lane_f wq = w * q;
        s.q += wq;
        s.qq += wq * q;
        s.xq += wq * x;
    }
    return s;
}

static inline void keep_sums(mica__fit *fit, int r, lane_i mask, const sums *s)
{
    lane_store(&fit->sq[r], lane_select(mask, s->q, lane_load(&fit->sq[r])));
    lane_store(&fit->sqq[r], lane_select(mask, s->qq, lane_load(&fit->sqq[r])));
    lane_store(&fit->sxq[r], lane_select(mask, s->xq, lane_load(&fit->sxq[r])));
}

typedef struct line {
    lane_f scale, min;
} line;

/* Scale and min of least error for these codes. */
static inline line solve(const sums *s, lane_f sw, lane_f sx)
{
    const lane_f zero = {0}, det = sw * s->qq - s->q * s->q;
    line full = {(sw * s->xq - sx * s->q) / det, (s->q * s->xq - s->qq * sx) / det};
    /* The format has no negative min: the line through zero then; and where all codes are the same, too. */
    const lane_i bent = ~((full.min >= zero) & (det > 1e-5f * sw * s->qq));
    line bare = {s->xq / s->qq, zero};
    /* All codes zero: the mean alone. */
    const lane_i flat = ~(s->qq > zero);
    bare.scale = lane_select(flat, zero, bare.scale);
    bare.min = lane_select(flat, lane_max(-sx / sw, zero), zero);
    full.scale = lane_select(bent, bare.scale, full.scale);
    full.min = lane_select(bent, bare.min, full.min);
    return full;
}

/* Keeps the line of these codes where its error is below best. Returns the new best. */
static inline lane_f keep_offset(mica__fit *fit, int r, const sums *s, lane_f best)
{
    const lane_f sw = lane_load(&fit->sw[r]), sx = lane_load(&fit->sx[r]);
    const line l = solve(s, sw, sx);
    /* The error without its constant part, the sum of wxx. */
    const lane_f error =
        l.scale * (l.scale * s->qq - 2.0f * (s->xq + l.min * s->q)) + l.min * (l.min * sw + 2.0f * sx);
    const lane_i better = error < best;
    lane_store(&fit->scale[r], lane_select(better, l.scale, lane_load(&fit->scale[r])));
    lane_store(&fit->min[r], lane_select(better, l.min, lane_load(&fit->min[r])));
    keep_sums(fit, r, better, s);
    return lane_select(better, error, best);
}

void MICA__CODEC(fit_solve)(mica__fit *fit)
{
    for (int r = 0; r < FIT_RUNS; r += LANES) {
        const sums s = {lane_load(&fit->sq[r]), lane_load(&fit->sqq[r]), lane_load(&fit->sxq[r])};
        const line l = solve(&s, lane_load(&fit->sw[r]), lane_load(&fit->sx[r]));
        lane_store(&fit->scale[r], l.scale);
        lane_store(&fit->min[r], l.min);
    }
}

void MICA__CODEC(fit_offset)(mica__fit *fit, float most)
{
    for (int r = 0; r < FIT_RUNS; r += LANES) {
        lane_f low = {0}, high = lane_load(&fit->x[0][r]), zero = {0};
        for (int i = 0; i < fit->n; i++) {
            low = lane_min(low, lane_load(&fit->x[i][r]));
            high = lane_max(high, lane_load(&fit->x[i][r]));
        }
        lane_f best = lane_set(INFINITY);
        lane_store(&fit->scale[r], zero); /* no spread: the min alone */
        lane_store(&fit->min[r], -low);
        lane_store(&fit->sq[r], zero);
        lane_store(&fit->sqq[r], zero);
        lane_store(&fit->sxq[r], zero);
        for (int t = 0; t < FIT_TRIALS; t++) {
            const lane_f inverse = (most - 1.0f + 0.15f * (float)t) / (high - low);
            const sums s = try_codes(fit, r, low, inverse, 0, most);
            best = keep_offset(fit, r, &s, best);
        }
        for (int t = 0; t < FIT_STEPS; t++) {
            const sums s =
                try_codes(fit, r, -lane_load(&fit->min[r]), lane_inverse(lane_load(&fit->scale[r])), 0, most);
            best = keep_offset(fit, r, &s, best);
        }
    }
}

static inline lane_f keep_signed(mica__fit *fit, int r, const sums *s, lane_f best)
{
    const lane_f zero = {0}, scale = s->xq / s->qq, gain = scale * s->xq;
    const lane_i better = (s->qq > zero) & (gain > best);
    lane_store(&fit->scale[r], lane_select(better, scale, lane_load(&fit->scale[r])));
    keep_sums(fit, r, better, s);
    return lane_select(better, gain, best);
}

void MICA__CODEC(fit_signed)(mica__fit *fit, float most)
{
    for (int r = 0; r < FIT_RUNS; r += LANES) {
        const lane_f zero = {0};
        lane_f peak = zero, best = zero; /* the value with the greatest magnitude */
        for (int i = 0; i < fit->n; i++) {
            const lane_f x = lane_load(&fit->x[i][r]);
            peak = lane_select(x * x > peak * peak, x, peak);
        }
        lane_store(&fit->scale[r], zero);
        lane_store(&fit->min[r], zero);
        lane_store(&fit->sq[r], zero);
        lane_store(&fit->sqq[r], zero);
        lane_store(&fit->sxq[r], zero);
        for (int t = 0; t < FIT_TRIALS; t++) {
            const lane_f inverse = (1.0f - most - 0.15f * (float)t) / peak;
            const sums s = try_codes(fit, r, zero, inverse, -most, most - 1);
            best = keep_signed(fit, r, &s, best);
        }
        for (int t = 0; t < FIT_STEPS; t++) {
            const sums s = try_codes(fit, r, zero, lane_inverse(lane_load(&fit->scale[r])), -most, most - 1);
            best = keep_signed(fit, r, &s, best);
        }
    }
}

void MICA__CODEC(fit_quantise)(mica__fit *fit, float low, float high)
{
    for (int r = 0; r < FIT_RUNS; r += LANES) {
        const lane_f inverse = lane_inverse(lane_load(&fit->scale[r])), min = lane_load(&fit->min[r]);
        const lane_f least = lane_set(low), most = lane_set(high);
        sums s = {{0}, {0}, {0}};
        for (int i = 0; i < fit->n; i++) {
            const lane_f x = lane_load(&fit->x[i][r]), w = lane_load(&fit->w[i][r]);
            const lane_f q = lane_round(lane_clamp((x + min) * inverse, least, most));
            const lane_f wq = w * q;
            lane_store(&fit->q[i][r], q);
            s.q += wq;
            s.qq += wq * q;
            s.xq += wq * x;
        }
        lane_store(&fit->sq[r], s.q);
        lane_store(&fit->sqq[r], s.qq);
        lane_store(&fit->sxq[r], s.xq);
    }
}

static float to_half(float value, uint16_t *half)
{
    const float most = 65504; /* of f16 */
    *half = mica__f32_to_f16(value < -most ? -most : value > most ? most : value);
    return mica__f16_to_f32(*half);
}

static float nearest(float value, float low, float high)
{
    const float clamped = value > low ? value < high ? value : high : low;
    return (clamped + 12582912.0f) - 12582912.0f;
}

/* The codes nearest to the targets for a step d, and what they cost. */
static float codes_for(const float *target, const float *weight, int n, float d, float low, float high,
                       float *code)
{
    const float inverse = d != 0 ? 1.0f / d : 0.0f;
    float cost = 0;
    for (int i = 0; i < n; i++) {
        code[i] = nearest(target[i] * inverse, low, high);
        const float error = d * code[i] - target[i];
        cost += weight[i] * error * error;
    }
    return cost;
}

float MICA__CODEC(fit_codes)(const float *target, const float *weight, int n, float low, float high,
                             float *code, uint16_t *d)
{
    const float end = low < 0 ? low : high; /* the code of the largest target */
    float peak = 0, best = INFINITY, step = 0, trial[FIT_RUNS];
    for (int i = 0; i < n; i++)
        if (fabsf(target[i]) > fabsf(peak))
            peak = target[i];
    for (int i = 0; i < n; i++)
        code[i] = 0;
    *d = 0;
    for (int t = 0; t < FIT_CODE_TRIALS; t++) {
        uint16_t half;
        float s = to_half(peak / (end * (1.0f + 0.004f * ((float)t - 0.5f * (FIT_CODE_TRIALS - 1)))), &half);
        float cost = codes_for(target, weight, n, s, low, high, trial);
        if (cost < best) {
            best = cost;
            step = s;
            *d = half;
            memcpy(code, trial, (size_t)n * sizeof *code);
        }
    }
    float along = 0, square = 0; /* the best step for these codes */
    for (int i = 0; i < n; i++) {
        along += weight[i] * code[i] * target[i];
        square += weight[i] * code[i] * code[i];
    }
    if (square > 0) {
        uint16_t half;
        const float s = to_half(along / square, &half);
        if (codes_for(target, weight, n, s, low, high, trial) < best) {
            step = s;
            *d = half;
            memcpy(code, trial, (size_t)n * sizeof *code);
        }
    }
    return step;
}
