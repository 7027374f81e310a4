/*
 * ops_turbo.h - rotations, and the codebooks of caches that are coded in a rotated basis
 * (TurboQuant). As ops.h says of all ops.
 */
#ifndef MICA_OPS_TURBO_H
#define MICA_OPS_TURBO_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mica_hadamard_params {
    float scale;   /* of the sums; 0: 1 / sqrt(d), with which the transform is its own inverse. Finite */
    uint32_t undo; /* 0: signs come first; 1: signs come last, which takes the other back */
} mica_hadamard_params;

/*
 * The Walsh-Hadamard transform over the last dimension, d of which is a power of two, in natural (Sylvester) order:
 *   y [.., i] = scale * sum over j of (-1)^popcount(i & j) signs [j] x [.., j]
 *   undo: y [.., i] = signs [i] * scale * sum over j of (-1)^popcount(i & j) x [.., j]
 * signs [d] are factors, 1 and -1 for a random rotation; NULL: all 1. f32, f16, bf16, each operand its own, added up
 * in f32; on the cpu also f64, all operands then. `params` may be NULL: all zero. Any strides. In place. A permuted
 * view gives any other dimension. INVALID_ARGUMENT where d is no power of two.
 */
MICA_API mica_status mica_hadamard(mica_encoder *encoder, mica_buffer *x, mica_buffer *signs,
                                   const mica_hadamard_params *params, mica_buffer *y);

typedef enum mica_codebook_kind {
    MICA_CODEBOOK_NORMAL = 0, /* N(0, 1) */
    /* sqrt(dim) times a coordinate of a random point of the unit sphere in `dim` dimensions: a Beta density */
    MICA_CODEBOOK_SPHERE = 1
} mica_codebook_kind;

#define MICA_CODEBOOK_BITS 8

/*
 * The 2^bits levels, in rising order and symmetric, that code a random number of unit variance with the least mean
 * square error (Lloyd and Max): each is the mean of what lies nearest to it. bits 1 .. MICA_CODEBOOK_BITS; dim of
 * MICA_CODEBOOK_SPHERE 3 or more, else not looked at. out_levels has 2^bits numbers; out_error, if not NULL, is the
 * mean square error that remains. On the host, in f64, the same numbers every time: each to 1e-9. INVALID_ARGUMENT
 * names the argument. Any thread.
 */
MICA_API mica_status mica_codebook(mica_codebook_kind kind, uint32_t bits, uint32_t dim, double *out_levels,
                                   double *out_error);

#ifdef __cplusplus
}
#endif
#endif
