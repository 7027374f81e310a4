/* bench.h - the things that `mica bench` measures. */
#ifndef TOOL_BENCH_H
#define TOOL_BENCH_H

#include "mica/mica.h"
#include "options.h"
#include "terminal/output.h"

#define BENCH_MAX_LIST 32

/* Numbers of an option such as "512,1024". */
typedef struct bench_list {
    uint32_t number[BENCH_MAX_LIST];
    size_t count;
} bench_list;

typedef struct bench_plan {
    bench_list prompts, texts, depths, threads;
} bench_plan;

/* All return the exit status. */
int bench_ops(const tool_call *call, uint32_t threads);
int bench_launch(const tool_call *call, uint32_t threads);
int bench_overhead(const tool_call *call, uint32_t threads);
int bench_graph(const tool_call *call, uint32_t threads);
int bench_fusion(const tool_call *call, uint32_t threads);
int bench_region(const tool_call *call, uint32_t threads);
int bench_load(const tool_call *call, uint32_t threads);
int bench_models(const tool_call *call, const bench_plan *plan);

typedef int (*bench_measure)(const tool_call *call, mica_device *device, const mica_device_properties *p);
/* Opens the device of the call for `measure`; the exit status. */
int bench_on_device(const tool_call *call, uint32_t threads, bench_measure measure);
/* Which device it is: a line, or with `json` the first members of an object. */
void bench_device_facts(tool_json *json, const mica_device_properties *p);
/* The head of a table, or with `json` a list of that name in the object; its rows as they come; its end and the object's. */
void bench_table_open(tool_json *json, const char *name, const tool_column *columns, size_t count);
void bench_table_row(tool_json *json, const tool_column *columns, size_t count, const tool_cell *cells);
void bench_table_close(tool_json *json);
/* Sorts the samples. */
double bench_median(double *samples, uint32_t count);
/* A kernel that adds one to a word of each of its groups: the caller releases it; and a dispatch of it. */
mica_status bench_step_kernel(mica_device *device, mica_kernel **out);
mica_status bench_step_encode(mica_encoder *encoder, mica_kernel *kernel, uint32_t groups,
                              mica_buffer *words);
/* The best of the replays that fit a short time, or of one, in nanoseconds by the device's clock, and how many there were. */
mica_status bench_best_replay(mica_recording *recording, int once, double *out_ns, uint32_t *out_replays);
/* Replays once more and says what ran: the names of its first kernels, each once, in their order, with commas between. */
#define BENCH_KERNELS_BYTES 256
mica_status bench_kernels_of(mica_device *device, mica_recording *recording, char out[BENCH_KERNELS_BYTES]);

/* Times of one pass by kernel, most time first. */
typedef struct bench_profile {
    int wanted;
    uint64_t count;
    mica_profile_bucket *kernel; /* freed by its owner */
} bench_profile;

/* Ends the device's profile and keeps it in place of the one before. */
mica_status bench_profile_end(mica_device *device, bench_profile *profile);
/* A table with a line above it that sums it up, or a list of the object that is open. */
void bench_profile_print(const bench_profile *profile, int as_markdown);
void bench_profile_list(const bench_profile *profile, tool_json *json);

#endif
