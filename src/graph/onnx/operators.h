/* operators.h - the functions of onnx_ops.def, and what a few of them share. */
#ifndef MICA_GRAPH_ONNX_OPERATORS_H
#define MICA_GRAPH_ONNX_OPERATORS_H

#include "graph/onnx/importer.h"

/* What Reduce.. reduces; those up to PROD are the elements themselves where there are no axes. */
enum {
    MICA__OX_REDUCE_SUM = 0,
    MICA__OX_REDUCE_MEAN,
    MICA__OX_REDUCE_MAX,
    MICA__OX_REDUCE_MIN,
    MICA__OX_REDUCE_PROD,
    MICA__OX_REDUCE_L1,
    MICA__OX_REDUCE_L2,
    MICA__OX_REDUCE_LOG_SUM,
    MICA__OX_REDUCE_LOG_SUM_EXP,
    MICA__OX_REDUCE_SQUARES
};
enum { MICA__OX_SOFTMAX = 0, MICA__OX_SOFTMAX_LOG, MICA__OX_HARDMAX };
enum { MICA__OX_ELU = 0, MICA__OX_SELU, MICA__OX_CELU };

#define ONNX_OP(domain, name, since, build, argument, inputs, outputs) mica__ox_build mica__ox_##build;
#include "graph/onnx/onnx_ops.def"

/* round(sums scale) + zero as codes of the type of `zero` (ops_quantize.c). */
mica_tensor mica__ox_requantised(const mica__ox_op *o, mica_tensor sums, mica_tensor scale, mica_tensor zero);

#endif
