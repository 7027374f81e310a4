/* table.c - the rows of onnx_ops.def. */
#include "graph/onnx/operators.h"

#define ONNX_OP(domain, name, since, build, argument, inputs, outputs) \
    {domain, #name, since, mica__ox_##build, (int32_t)(argument), inputs, outputs},

const mica__ox_row mica__ox_rows[] = {
#include "graph/onnx/onnx_ops.def"
};
const uint32_t mica__ox_row_count = sizeof mica__ox_rows / sizeof mica__ox_rows[0];
