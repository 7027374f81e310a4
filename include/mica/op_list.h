/* op_list.h - the numbers of the ops. Made by scripts/generate out of src/backend/ops.def; change it there. */
#ifndef MICA_OP_LIST_H
#define MICA_OP_LIST_H

/* An op in recordings, profiles and counters. custom is a kernel of the caller's, region every elementwise op (scalars.h, region.h). */
typedef enum mica_op {
    MICA_OP_NONE = 0,
    MICA_OP_CUSTOM,
    MICA_OP_COPY,
    MICA_OP_REGION,
    MICA_OP_RMS_NORM,
    MICA_OP_LAYER_NORM,
    MICA_OP_SOFTMAX,
    MICA_OP_CUMSUM,
    MICA_OP_REDUCE,
    MICA_OP_ROPE,
    MICA_OP_KV_WRITE,
    MICA_OP_ATTENTION,
    MICA_OP_MATMUL,
    MICA_OP_MATMUL_EXPERTS,
    MICA_OP_EMBEDDING,
    MICA_OP_PAD,
    MICA_OP_GATHER,
    MICA_OP_SCATTER,
    MICA_OP_ARGMAX,
    MICA_OP_PENALIZE,
    MICA_OP_SAMPLE,
    MICA_OP_NORMALIZE,
    MICA_OP_NORMALIZE_BACKWARD,
    MICA_OP_SOFTMAX_BACKWARD,
    MICA_OP_PRODUCT,
    MICA_OP_ATTENTION_BACKWARD,
    MICA_OP_ROUTE,
    MICA_OP_EXPERT_SUM,
    MICA_OP_HADAMARD,
    MICA_OP_CONV,
    MICA_OP_CONV_WEIGHT_BACKWARD,
    MICA_OP_POOL_WINDOWS,
    MICA_OP_POOL_WINDOWS_BACKWARD,
    MICA_OP_IM2COL,
    MICA_OP_COL2IM,
    MICA_OP_RESIZE,
    MICA_OP_RESIZE_BACKWARD,
    MICA_OP_GRID_SAMPLE,
    MICA_OP_FFT,
    MICA_OP_CROSS_ENTROPY,
    MICA_OP_COUNT
} mica_op;

#endif
