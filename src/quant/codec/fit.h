/*
 * fit.h - scales for sixteen runs of values at once, by least squares.
 *
 * A group is sixteen runs side by side: x[i][lane] is value i of run `lane`, so that a run is a lane of a vector and
 * sums need no tree. Codes are kept as floats of whole numbers. All searches minimise the sum of w * error^2.
 */
#ifndef MICA_QUANT_FIT_H
#define MICA_QUANT_FIT_H

#include <stdint.h>

#include "quant/codec.h"

#define FIT_RUNS 16
#define FIT_MOST 32 /* values in a run */
/* Enough that no type is farther from its values than with the reference quantiser (test_codec_blocks). */
#define FIT_TRIALS 14     /* scales tried for a run, from one code too few for its range to one too many */
#define FIT_STEPS 2       /* then codes and scale in turn */
#define FIT_CODE_TRIALS 9 /* steps tried for the scales of a block */
#define FIT_ROUNDS 2      /* scales of a block chosen, values coded, chosen again */

typedef struct mica__fit {
    int n;                                /* values in a run: 16 or 32 */
    float x[FIT_MOST][FIT_RUNS];          /* values */
    float w[FIT_MOST][FIT_RUNS];          /* weights */
    float q[FIT_MOST][FIT_RUNS];          /* codes, of mica__fit_quantise */
    float scale[FIT_RUNS], min[FIT_RUNS]; /* x ~ scale * q - min; min is 0 in signed fits */
    /* Sums over a run for the codes that the scale belongs to: of w, wx, wq, wqq, wxq. */
    float sw[FIT_RUNS], sx[FIT_RUNS], sq[FIT_RUNS], sqq[FIT_RUNS], sxq[FIT_RUNS];
} mica__fit;

/* Sixteen runs of n values from src, of which `runs` are there (the others become zero), with the weights of
 * importance (NULL: ones) times the root of x^2 plus twice the run's mean of it: large values matter more. */
void MICA__CODEC(fit_load)(mica__fit *fit, const float *src, const float *importance, int n, uint64_t runs);

/* The best scale and min, codes 0 to most; min >= 0. */
void MICA__CODEC(fit_offset)(mica__fit *fit, float most);
/* The best scale, codes -most to most - 1; either sign. */
void MICA__CODEC(fit_signed)(mica__fit *fit, float most);
/* The best scale and min for the sums that are set. */
void MICA__CODEC(fit_solve)(mica__fit *fit);
/* The codes low..high nearest to x for the scale and min that are set, and their sums. */
void MICA__CODEC(fit_quantise)(mica__fit *fit, float low, float high);

/* One d, as f16, and a code low..high for each of n targets (16 or fewer), that make the sum of
 * weight * (d * code - target)^2 small. Targets are >= 0 where low is 0. Returns d as f32. */
float MICA__CODEC(fit_codes)(const float *target, const float *weight, int n, float low, float high,
                             float *code, uint16_t *d);

#endif
