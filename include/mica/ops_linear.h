/*
 * ops_linear.h - dense linear algebra of many matrices at once: the last two dimensions are a matrix, those before it count matrices.
 *
 * f32, or f64, all operands alike; arithmetic is in f64 and rounds once on store. Any strides; so right-hand systems, transposed factors and
 * row vectors are views. On the cpu: GPUs refuse these by name (UNSUPPORTED). A matrix's bits do not depend on the others. A matrix that
 * has no result (singular, not positive definite, or with NaN or an infinity in what is read of it) gives NaN in all that is made of it and leaves the others
 * alone; nothing else is said of it: the fence ends well.
 */
#ifndef MICA_OPS_LINEAR_H
#define MICA_OPS_LINEAR_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mica_triangular_params {
    uint32_t upper;     /* 1: a is read from its diagonal up; 0: down. The rest is not looked at */
    uint32_t unit;      /* 1: its diagonal is taken as ones and not looked at */
    uint32_t transpose; /* 1: a^T x = b */
} mica_triangular_params;

/* x of a x = b for triangular a [.., N, N], b and x [.., N, M]. Singular: a 0 on the diagonal. NULL params: all 0. In place on b. */
MICA_API mica_status mica_triangular_solve(mica_encoder *encoder, mica_buffer *a, mica_buffer *b,
                                           const mica_triangular_params *params, mica_buffer *x);

typedef struct mica_cholesky_params {
    uint32_t
        upper; /* 0: y is lower, a = y y^T, and a is read from its diagonal down; 1: y is upper, a = y^T y, up */
} mica_cholesky_params;

/* The triangular y of a symmetric positive definite a, both [.., N, N], with a diagonal above 0 and zeros in the other half. In place. */
MICA_API mica_status mica_cholesky(mica_encoder *encoder, mica_buffer *a, const mica_cholesky_params *params,
                                   mica_buffer *y);

/* x of a x = b, a [.., N, N], b and x [.., N, M], by elimination with the greatest pivot of each column. In place on b. */
MICA_API mica_status mica_solve(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *x);
/* y = a^-1, both [.., N, N]. In place. */
MICA_API mica_status mica_inverse(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);

typedef struct mica_determinant_params {
    uint32_t
        log; /* 0: y [..] is the determinant; 1: y [.., 2] has its sign (1, -1 or 0) and the logarithm of its magnitude */
} mica_determinant_params;

/* Of a [.., N, N]. A singular matrix has a determinant: 0, of sign 0 and logarithm -inf. */
MICA_API mica_status mica_determinant(mica_encoder *encoder, mica_buffer *a,
                                      const mica_determinant_params *params, mica_buffer *y);

/* a [.., M, N] = q r, q [.., M, K] with orthonormal columns, r [.., K, N] zero below its diagonal, which is 0 or above; K = min(M, N). */
MICA_API mica_status mica_qr(mica_encoder *encoder, mica_buffer *a, mica_buffer *q, mica_buffer *r);

/* Eigenvalues w [.., N], ascending, and eigenvectors of a symmetric a [.., N, N], which is read from its diagonal down: the columns of v
 * [.., N, N], orthonormal, each of either sign. */
MICA_API mica_status mica_eigh(mica_encoder *encoder, mica_buffer *a, mica_buffer *w, mica_buffer *v);

/* a [.., M, N] = u diag(s) vt with u [.., M, K] and vt [.., K, N] orthonormal (columns of u, rows of vt, a pair of either sign), s [.., K] descending
 * from 0 up; K = min(M, N). */
MICA_API mica_status mica_svd(mica_encoder *encoder, mica_buffer *a, mica_buffer *u, mica_buffer *s,
                              mica_buffer *vt);

#ifdef __cplusplus
}
#endif
#endif
