/*
 * catalogue.h - rows of `mica bench ops` whose operands are lines of text, for ops whose shapes do not follow from one of them.
 *
 * Operands stand in the order of docs/ops.md with commas between: "-" for none, or TYPE SHAPE [HOW]. TYPE is the name of a type, or T, the type
 * of the row. SHAPE: "64x3x3". HOW: nothing, random values of about 1; "=V", all of them V; "<N", whole numbers all over 0 to N - 1 (u32);
 * "..", 0, 1, 2 and so on (a vector of u32); "eye", matrices near the identity (f32).
 */
#ifndef TOOL_BENCH_CATALOGUE_H
#define TOOL_BENCH_CATALOGUE_H

#include "bench/case.h"

typedef struct bench_listed {
    bench_family family; /* first: a case points at it */
    mica_op op;
    mica_dtype type;
    int large, host;   /* 1: for GPUs only; 1: for the cpu only */
    const char *shape; /* as people say it */
    const char *operands;
} bench_listed;

const bench_listed *bench_catalogue(size_t *out_count);
/* The row that a case was made of; NULL: it is none of these. */
const bench_listed *bench_listed_of(const bench_case *c);

#endif
