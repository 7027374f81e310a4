/* case.h - the ops that `mica bench` measures: one row per op, type and shape. */
#ifndef TOOL_BENCH_CASE_H
#define TOOL_BENCH_CASE_H

#include "mica/mica.h"

#define BENCH_BUFFERS 24

/* Operands of one record, in the order of the op's table (docs/ops.md); a region's are its inputs, then at REGION_Y its output. */
typedef struct bench_set {
    mica_buffer *buffer[BENCH_BUFFERS];
} bench_set;

typedef struct bench_case bench_case;
struct bench_case {
    mica_op op;
    mica_dtype type;  /* of the weights, or of the activations where there are none */
    uint64_t size[3]; /* what they mean is the family's: rows and columns, or m, n, k */
    const struct bench_family *family;
    int large;       /* 1: for GPUs only, a size of the 8B models */
    uint32_t scalar; /* of a region: mica_scalar, or one of the ops of a few steps; 0 for other ops */
};

/* How the operands of ops of one kind are made. */
typedef struct bench_family {
    mica_status (*create)(mica_device *device, const bench_case *c, bench_set *set);
    const void *params; /* of the op, NULL: all zero */
    int rotate; /* 1: a model would not find these operands in the caches, so several sets take turns */
} bench_family;

/* Rows of all ops: those of models, one of each function of scalars.h, and the catalogue (catalogue.h). */
const bench_case *bench_cases(size_t *out_count);
mica_status bench_case_encode(mica_encoder *encoder, const bench_case *c, const bench_set *set);
/* "add", "rms_norm". */
const char *bench_case_name(const bench_case *c);
/* Ops that are as small as any in a decode pass: rows of `mica bench launch`. */
const bench_case *bench_small_cases(size_t *out_count);
/* "1 x 8192 x 2048" and the like. */
void bench_case_shape(const bench_case *c, char *out, size_t capacity);

#endif
