/* compare.h - how far the values of two tensors of one shape are apart. */
#ifndef TOOL_FILE_COMPARE_H
#define TOOL_FILE_COMPARE_H

#include "mica/mica.h"
#include "terminal/progress.h"

typedef struct tool_distance {
    int same;           /* 1: nothing differs, neither the type nor a bit */
    uint64_t values;    /* in each */
    uint64_t different; /* of them */
    double largest;     /* infinite where one of the two is no number or not finite */
    double rms;         /* root of the mean square of the differences that are finite */
    double relative;    /* rms divided by the RMS of the first tensor; infinite if that is 0 and rms is not */
} tool_distance;

/* Buffers for the values, and the bytes done of all; zero at first. */
typedef struct tool_comparer {
    double *values[2];
    void *raw;         /* values of any plain type */
    uint64_t capacity; /* of each, in values */
    tool_progress *progress;
    uint64_t done_bytes, total_bytes;
} tool_comparer;

typedef struct tool_tensor {
    const mica_weights *weights;
    uint64_t index;
    mica_tensor_info info;
} tool_tensor;

/* UNSUPPORTED: the values cannot be read. IO, MALFORMED_FILE, OUT_OF_MEMORY. */
mica_status tool_compare(tool_comparer *comparer, const tool_tensor *a, const tool_tensor *b,
                         tool_distance *out);
void tool_comparer_end(tool_comparer *comparer);

#endif
