/* oracle_encode.c - rows of floats as blocks of a few bits, from the definitions of the reference quantisers, in f32 step by step. */
#include "oracle/oracle_blocks.h"

#include <math.h>

#include "oracle/oracle_number.h"

#define BLOCK 32

static const float levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static double half(float value)
{
    return oracle_from_f16(oracle_to_f16((double)value));
}

static float peak_of(const float *x)
{
    float peak = 0;

    for (int i = 0; i < BLOCK; i++)
        if (fabsf(x[i]) > fabsf(peak))
            peak = x[i];
    return peak;
}

static float cut(float code, float most)
{
    return truncf(fminf(fmaxf(code, 0), most));
}

static void round_signed(const float *x, float end, double *out)
{
    const float d = peak_of(x) / -end, id = d != 0 ? 1 / d : 0;

    for (int i = 0; i < BLOCK; i++) {
        const float scaled = x[i] * id, code = scaled + (end + 0.5f);

        out[i] = ((double)cut(code, 2 * end - 1) - (double)end) * half(d);
    }
}

static void round_range(const float *x, float most, double *out)
{
    float low = x[0], high = x[0];

    for (int i = 1; i < BLOCK; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    const float d = (high - low) / most, id = d != 0 ? 1 / d : 0;
    for (int i = 0; i < BLOCK; i++) {
        const float above = x[i] - low, scaled = above * id;

        out[i] = (double)cut(scaled + 0.5f, most) * half(d) + half(low);
    }
}

/* Level whose interval between middles holds x. */
static float nearest(float x)
{
    int at = 0;

    while (at < 15 && x >= (levels[at] + levels[at + 1]) / 2)
        at++;
    return levels[at];
}

/* Sums are those of sixteen lanes, folded in halves. */
static float fold(float *lane)
{
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] = lane[i] + lane[i + width];
    return lane[0];
}

static float level_scale(const float *x)
{
    const float peak = peak_of(x);
    float square[16], best = 0, gain = 0, weight[BLOCK];

    if (fabsf(peak) < 1e-15f)
        return 0;
    for (int l = 0; l < 16; l++) {
        const float low = x[l] * x[l], high = x[l + 16] * x[l + 16];

        square[l] = low + high;
    }
    const float mean = fold(square) / BLOCK, spread = 2 * mean;
    for (int i = 0; i < BLOCK; i++) {
        const float own = x[i] * x[i];

        weight[i] = spread + own;
    }
    for (int trial = 0; trial < 16; trial++) {
        const float inverse = (trial == 15 ? 127.0f : (float)(trial - 134)) / peak;
        float with_x[16], with_q[16];

        for (int l = 0; l < 16; l++) {
            const float a = nearest(x[l] * inverse), b = nearest(x[l + 16] * inverse);
            const float xa = weight[l] * x[l] * a, xb = weight[l + 16] * x[l + 16] * b;
            const float qa = weight[l] * a * a, qb = weight[l + 16] * b * b;

            with_x[l] = xa + xb;
            with_q[l] = qa + qb;
        }
        const float qx = fold(with_x), qq = fold(with_q), squared = qx * qx, bar = gain * qq;
        if (qq > 0 && squared > bar) {
            best = qx / qq;
            gain = best * qx;
        }
    }
    return best;
}

static void round_levels(const float *x, double *out)
{
    const double d = half(level_scale(x));
    const float id = d != 0 ? 1 / (float)d : 0;

    for (int i = 0; i < BLOCK; i++)
        out[i] = d * (double)nearest(x[i] * id);
}

void oracle_round_block(mica_dtype dtype, const double *x, size_t count, double *out)
{
    for (size_t first = 0; first < count; first += BLOCK) {
        float own[BLOCK];

        for (int i = 0; i < BLOCK; i++)
            own[i] = (float)x[first + (size_t)i];
        switch (dtype) {
        case MICA_DTYPE_Q4_0: round_signed(own, 8, out + first); break;
        case MICA_DTYPE_Q5_0: round_signed(own, 16, out + first); break;
        case MICA_DTYPE_Q4_1: round_range(own, 15, out + first); break;
        case MICA_DTYPE_Q5_1: round_range(own, 31, out + first); break;
        case MICA_DTYPE_IQ4_NL: round_levels(own, out + first); break;
        default: oracle_round_q8_0(x + first, BLOCK, out + first); break;
        }
    }
}
