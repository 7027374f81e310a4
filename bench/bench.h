/*
 * bench.h - what the benchmark's files share: the clock, the rows of its table, the machine's ceilings.
 *
 * The benchmark uses the public library and the tests' helpers, nothing else. Speeds are printed, never judged.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "mica/mica.h"
#include "support/random.h"

typedef struct bench_options {
    bool json;  /* one JSON object a line instead of a table */
    bool quick; /* smaller memories, fewer rounds, no large model */
} bench_options;

/* What the machine can do, measured by plain loops. Index: threads - 1. */
typedef struct bench_ceilings {
    double flops[2]; /* fused multiply-adds in f32 registers, counted as two */
    double bytes[2]; /* reading memory */
} bench_ceilings;

extern bench_options bench_settings;
extern bench_ceilings bench_machine;

double bench_seconds(void);
/* Leaves the program with a sentence on stderr when a call failed. */
void bench_must(mica_status status);
void *bench_alloc(uint64_t bytes);
/* Sorts the samples. */
double bench_median(double *samples, uint32_t count);
/* Median seconds of a call, over about `budget` seconds and at least three calls. */
double bench_time(void (*call)(void *), void *argument, double budget);
/* Mean seconds of a call, over a slice of about `seconds` and at least one call: for turns with other work. */
double bench_slice(void (*call)(void *), void *argument, double seconds);

void bench_section(const char *title);
/* One row; `note` is a printf format. */
void bench_row(const char *name, double value, const char *unit, const char *note, ...)
    __attribute__((format(printf, 4, 5)));

/* The cpu device with that many threads; the caller releases it. */
mica_device *bench_device(uint32_t threads);
mica_buffer *bench_buffer(mica_device *device, mica_dtype dtype, uint64_t rows, uint64_t columns);
/* Random values in the form of the type. */
void bench_fill(mica_buffer *buffer, mica_dtype dtype, uint64_t count, test_random *random);
/* Records what `encode` adds and gives the recording back. */
mica_recording *bench_record(mica_device *device, uint32_t flags, void (*encode)(mica_encoder *, void *),
                             void *argument);
double bench_replay_time(mica_recording *recording, double budget);

void bench_replay(void *recording);

void bench_measure_ceilings(void);
/* Multiply-adds a second of that many threads together, in a slice of about that length, counted as two. */
double bench_fma_slice(uint32_t threads, double seconds);
void bench_overhead(void);
void bench_ops(void);
void bench_matmul(void);
void bench_matvec(void);
void bench_decode(void);
void bench_weights(void);
void bench_quantize(void);
void bench_fusion(void);

#endif
