/* cuda_blas.h - what a plan says to the built-in kernel "cublaslt". */
#ifndef MICA_CUDA_BLAS_H
#define MICA_CUDA_BLAS_H

#include <stdint.h>

#define MICA__CUDA_BLAS_WORKSPACE ((uint64_t)32 << 20) /* what its fastest algorithms ask for on sm_90 */

/* Element types as cuBLASLt numbers them. */
enum { MICA__CUDA_BLAS_F32 = 0, MICA__CUDA_BLAS_F16 = 2, MICA__CUDA_BLAS_BF16 = 14 };

/* y [m, n] = x [m, k] . weight [n, k]^T; strides of rows in elements. Bindings: x, weight, y, workspace. */
typedef struct mica__cuda_blas_params {
    uint64_t m, n, k;
    int64_t x_stride, weight_stride, y_stride;
    uint64_t workspace;
    int32_t type, y_type;
} mica__cuda_blas_params;

#endif
