/* bench.h - the two things that `mica bench` measures. */
#ifndef TOOL_BENCH_H
#define TOOL_BENCH_H

#include "options.h"

#define BENCH_MAX_LIST 32

/* Numbers of an option such as "512,1024". */
typedef struct bench_list {
    uint32_t number[BENCH_MAX_LIST];
    size_t count;
} bench_list;

typedef struct bench_plan {
    bench_list prompts, texts, depths, threads;
} bench_plan;

/* Both return the exit status. */
int bench_ops(const tool_call *call, uint32_t threads);
int bench_models(const tool_call *call, const bench_plan *plan);

#endif
