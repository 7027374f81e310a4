/*
 * ops_linear.h - dense linear algebra of many matrices at once: the last two dimensions are a matrix,
 * those before it count matrices.
 *
 * f32, or f64, all operands alike (triangular systems also f16 or bf16); arithmetic is in f64 and rounds once on
 * store. Any strides; so right-hand systems, transposed factors and row vectors are views. On the cpu: GPUs refuse
 * these by name (UNSUPPORTED). A matrix's bits do not depend on the others. A matrix that has no result (singular,
 * not positive definite, or with NaN or an infinity in what is read of it) gives NaN in all that is made of it and
 * leaves the others alone; nothing else is said of it: the fence ends well.
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

/* x of a x = b for triangular a [.., N, N], b and x [.., N, M]. Singular: a 0 on the diagonal.
 * NULL params: all 0. In place on b. */
MICA_API mica_status mica_triangular_solve(mica_encoder *encoder, mica_buffer *a, mica_buffer *b,
                                           const mica_triangular_params *params, mica_buffer *x);

typedef struct mica_cholesky_params {
    /* 0: y is lower, a = y y^T, and a is read from its diagonal down; 1: y is upper, a = y^T y, up */
    uint32_t upper;
} mica_cholesky_params;

/* The triangular y of a symmetric positive definite a, both [.., N, N], with a diagonal above 0 and
 * zeros in the other half. In place. */
MICA_API mica_status mica_cholesky(mica_encoder *encoder, mica_buffer *a, const mica_cholesky_params *params,
                                   mica_buffer *y);

/* x of a x = b, a [.., N, N], b and x [.., N, M], by elimination with the greatest pivot of each column. In place on
 * b. */
MICA_API mica_status mica_solve(mica_encoder *encoder, mica_buffer *a, mica_buffer *b, mica_buffer *x);
/* y = a^-1, both [.., N, N]. In place. */
MICA_API mica_status mica_inverse(mica_encoder *encoder, mica_buffer *a, mica_buffer *y);

typedef struct mica_determinant_params {
    /* 0: y [..] is the determinant; 1: y [.., 2] has its sign (1, -1 or 0) and the logarithm of its magnitude */
    uint32_t log;
} mica_determinant_params;

/* Of a [.., N, N]. A singular matrix has a determinant: 0, of sign 0 and logarithm -inf. */
MICA_API mica_status mica_determinant(mica_encoder *encoder, mica_buffer *a,
                                      const mica_determinant_params *params, mica_buffer *y);

/* a [.., M, N] = q r, q [.., M, K] with orthonormal columns, r [.., K, N] zero below its diagonal,
 * which is 0 or above; K = min(M, N). */
MICA_API mica_status mica_qr(mica_encoder *encoder, mica_buffer *a, mica_buffer *q, mica_buffer *r);

/* Eigenvalues w [.., N], ascending, and eigenvectors of a symmetric a [.., N, N], which is read from its diagonal
 * down: the columns of v [.., N, N], orthonormal, each of either sign. */
MICA_API mica_status mica_eigh(mica_encoder *encoder, mica_buffer *a, mica_buffer *w, mica_buffer *v);

/* a [.., M, N] = u diag(s) vt with u [.., M, K] and vt [.., K, N] orthonormal (columns of u, rows of vt, a pair of
 * either sign), s [.., K] descending from 0 up; K = min(M, N). */
MICA_API mica_status mica_svd(mica_encoder *encoder, mica_buffer *a, mica_buffer *u, mica_buffer *s,
                              mica_buffer *vt);

/*
 * Gradients: of what reaches the results, what reaches the operands. Each is a few ops of the above, of mica_product
 * and of regions, whose results in between go into `work` (and `tall`), memory that the caller brings; none of it may
 * be another operand. f32 rounds between them. Gradients of a symmetric a are symmetric: of a_ij and a_ji, which move
 * together, each has half. Where the forward has no result, or the gradient none (eigenvalues or singular values that
 * are equal, an r with 0 on its diagonal, singular values of 0), there are infinities or NaN.
 */

/* db = a^-T dx; da = -db x^T, in the half of a that is read. da may be NULL. x is the forward's result. db may be
 * dx. */
MICA_API mica_status mica_triangular_solve_backward(mica_encoder *encoder, mica_buffer *a, mica_buffer *x,
                                                    mica_buffer *dx, const mica_triangular_params *params,
                                                    mica_buffer *da, mica_buffer *db);
/* The same for mica_solve; da is whole. */
MICA_API mica_status mica_solve_backward(mica_encoder *encoder, mica_buffer *a, mica_buffer *x,
                                         mica_buffer *dx, mica_buffer *da, mica_buffer *db);
/* da = -y^T dy y^T, y = a^-1; work [.., N, N]. */
MICA_API mica_status mica_inverse_backward(mica_encoder *encoder, mica_buffer *y, mica_buffer *dy,
                                           mica_buffer *work, mica_buffer *da);
/* da = dy y a^-T; with `log` of the logarithm's dy alone, and y may be NULL. Of a singular a NaN. */
MICA_API mica_status mica_determinant_backward(mica_encoder *encoder, mica_buffer *a, mica_buffer *y,
                                               mica_buffer *dy, const mica_determinant_params *params,
                                               mica_buffer *da);
/* For y y^T = a: da = y^-T phi(y^T dy) y^-1, made symmetric; phi keeps the lower half and half of the diagonal. The
 * half of dy that y does not have is not looked at. work [.., N, N]. */
MICA_API mica_status mica_cholesky_backward(mica_encoder *encoder, mica_buffer *y, mica_buffer *dy,
                                            const mica_cholesky_params *params, mica_buffer *work,
                                            mica_buffer *da);
/* da = (dq + q c) r^-T, c the lower half of r dr^T - dq^T q and its mirror. For q [.., M, N] with M >= N; below the
 * diagonal dr is not looked at. work [2, .., N, N]. */
MICA_API mica_status mica_qr_backward(mica_encoder *encoder, mica_buffer *q, mica_buffer *r, mica_buffer *dq,
                                      mica_buffer *dr, mica_buffer *work, mica_buffer *da);
/* da = v (diag(dw) + f v^T dv) v^T, made symmetric; f_ij = 1 / (w_j - w_i), element by element, 0 on
 * the diagonal. work [2, .., N, N]. */
MICA_API mica_status mica_eigh_backward(mica_encoder *encoder, mica_buffer *w, mica_buffer *v,
                                        mica_buffer *dw, mica_buffer *dv, mica_buffer *work, mica_buffer *da);

typedef struct mica_svd_gradients {
    mica_buffer *u, *s, *vt;    /* the forward's results */
    mica_buffer *du, *ds, *dvt; /* what reaches them */
} mica_svd_gradients;

/* da = u (f (u^T du - du^T u) diag(s) + diag(s) f (v^T dv - dv^T v) + diag(ds)) vt + (1 - u u^T) du diag(1 /
 * s) vt + u diag(1 / s) dvt (1 - v vt), f_ij = 1 / (s_j^2 - s_i^2) element by element, 0 on the diagonal. work
 * [3, .., K, K], tall [2, .., M, K]. */
MICA_API mica_status mica_svd_backward(mica_encoder *encoder, const mica_svd_gradients *operands,
                                       mica_buffer *work, mica_buffer *tall, mica_buffer *da);

#ifdef __cplusplus
}
#endif
#endif
