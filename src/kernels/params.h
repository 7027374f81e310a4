/*
 * params.h - the parameter blocks of all kernels, for the plans, in C. A kernel's text gets only those that it names by
 * "//use params/NAME" in its first lines, so that a change of one leaves the programs of others as they are.
 *
 * Only mk_u64, mk_u32, mk_i32, mk_f32 and arrays of them, widest first, so that every compiler lays them out alike. Byte strides
 * are mk_u64. `fault_code` goes to mk_fault. Types of activations are MK_F32, MK_F16, MK_BF16. What a block uses stands before it.
 */
#ifndef MICA_KERNELS_PARAMS_H
#define MICA_KERNELS_PARAMS_H

#include "kernels/params/dims.h"
#include "kernels/params/copy.h"
#include "kernels/params/interpret.h"
#include "kernels/params/rows.h"
#include "kernels/params/reduce.h"
#include "kernels/params/normalize.h"
#include "kernels/params/cache.h"
#include "kernels/params/rope.h"
#include "kernels/params/product.h"
#include "kernels/params/route.h"
#include "kernels/params/argmax.h"
#include "kernels/params/scan.h"
#include "kernels/params/sort.h"
#include "kernels/params/settings.h"
#include "kernels/params/penalize.h"
#include "kernels/params/sample.h"
#include "kernels/params/attention.h"
#include "kernels/params/attention_decode.h"
#include "kernels/params/attention_more.h"
#include "kernels/params/attention_backward.h"
#include "kernels/params/weight_type.h"
#include "kernels/params/weight.h"
#include "kernels/params/stream.h"
#include "kernels/params/row_dims.h"
#include "kernels/params/activation.h"
#include "kernels/params/gate.h"
#include "kernels/params/matvec.h"
#include "kernels/params/tile.h"
#include "kernels/params/matmul.h"
#include "kernels/params/experts.h"
#include "kernels/params/embedding.h"
#include "kernels/params/turbo_rows.h"
#include "kernels/params/transposed.h"
#include "kernels/params/pack.h"
#include "kernels/params/places.h"
#include "kernels/params/cross_entropy.h"
#include "kernels/params/conv.h"
#include "kernels/params/frames.h"
#include "kernels/params/windows.h"
#include "kernels/params/resize.h"
#include "kernels/params/fourier.h"
#include "kernels/params/sequences.h"
#include "kernels/params/gaps.h"
#include "kernels/params/ssm_conv.h"
#include "kernels/params/delta_net.h"
#include "kernels/params/tiles.h"
#include "kernels/params/steps.h"
#include "kernels/params/unpack.h"
#include "kernels/params/direct.h"
#include "kernels/params/gemm.h"
#include "kernels/params/routed.h"
#include "kernels/params/hadamard.h"

#endif
