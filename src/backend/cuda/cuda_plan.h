/* cuda_plan.h - the rows that only CUDA has, in front of those of all GPUs. */
#ifndef MICA_CUDA_PLAN_H
#define MICA_CUDA_PLAN_H

#include "backend/backend.h"

/* Dense 16-bit matmul by cuBLASLt. */
bool mica__cuda_blas_serves(const mica__record *record, const mica__device_info *info);
mica_status mica__cuda_plan_blas(const mica__record *record, const mica__device_info *info, mica__plan *plan);

/* Few rows of x against streamed weights; a batch of rows and many rows by the matrix units. */
bool mica__cuda_stream_serves(const mica__record *record, const mica__device_info *info);
mica_status mica__cuda_plan_stream(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan);
bool mica__cuda_direct_serves(const mica__record *record, const mica__device_info *info);
mica_status mica__cuda_plan_direct(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan);
bool mica__cuda_gemm_serves(const mica__record *record, const mica__device_info *info);
mica_status mica__cuda_plan_gemm(const mica__record *record, const mica__device_info *info, mica__plan *plan);

/* Expert-routed matmuls of many slots by the matrix units. */
bool mica__cuda_routed_serves(const mica__record *record, const mica__device_info *info);
mica_status mica__cuda_plan_routed(const mica__record *record, const mica__device_info *info,
                                   mica__plan *plan);

/* Attention of many tokens by the matrix units. */
bool mica__cuda_attention_prefill_serves(const mica__record *record, const mica__device_info *info);
mica_status mica__cuda_plan_attention_prefill(const mica__record *record, const mica__device_info *info,
                                              mica__plan *plan);

/* Attention of few tokens without a mask. */
bool mica__cuda_attention_decode_serves(const mica__record *record, const mica__device_info *info);
mica_status mica__cuda_plan_attention_decode(const mica__record *record, const mica__device_info *info,
                                             mica__plan *plan);

/* The gated delta rule of long sequences by the matrix units. */
bool mica__cuda_delta_serves(const mica__record *record, const mica__device_info *info);
mica_status mica__cuda_plan_delta(const mica__record *record, const mica__device_info *info,
                                  mica__plan *plan);

#endif
