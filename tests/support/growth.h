/*
 * growth.h - how the cost of a call grows with its input, counted in steps of work and bytes of memory, never in seconds.
 *
 * A row names a dimension of an input and runs the call at a size of it. The size is doubled some times; a cost that
 * grows faster than n log n fails. What a call costs at any size is taken off first, by the smallest run.
 */
#ifndef TEST_SUPPORT_GROWTH_H
#define TEST_SUPPORT_GROWTH_H

#include <math.h>
#include <time.h>

#include "mica/work.h"
#include "support/status.h"

typedef struct growth_row {
    const char *name;                  /* "schema: enum values" */
    mica_status (*run)(uint64_t size); /* MICA_OK, or what the limit says; anything else fails the test */
    uint64_t first;                    /* the smallest size */
    uint32_t doublings;                /* at least 2 */
} growth_row;

typedef struct growth_cost {
    uint64_t steps, bytes;
    double seconds; /* of this thread's processor time; for the long run alone */
} growth_cost;

/* What one run costs. It must succeed. */
static inline growth_cost growth_measure(const growth_row *row, uint64_t size)
{
    growth_cost cost = {0, 0, 0};
    const mica_limits wide = {.steps = UINT64_MAX,
                              .pattern_steps = UINT64_MAX,
                              .layers = UINT64_MAX,
                              .vocabulary = UINT64_MAX,
                              .token_bytes = UINT64_MAX,
                              .states = UINT64_MAX};
    struct timespec from, to;
    mica_work *work = NULL;
    must(mica_work_create(&wide, &work));
    mica_work *before = mica_work_use(work);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    const mica_status status = row->run(size);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    mica_work_use(before);
    must(mica_work_spent(work, &cost.steps, &cost.bytes));
    mica_work_release(work);
    if (status != MICA_OK)
        fail_msg("%s at %llu: %s", row->name, (unsigned long long)size, mica_status_message());
    cost.seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
    return cost;
}

/* The exponent between two costs whose sizes are `times` apart; `base` is what every size costs, and what is below
 * `least` is taken for it: a step for each thing, a piece of memory as it is asked for at once. */
static inline double growth_exponent(double base, double less, double more, double times, double least)
{
    return log(fmax(more - base, least) / fmax(less - base, least)) / log(times);
}

/* Doubles the size and fails where steps or bytes grow faster than n log n: between the first and the last size, an
 * exponent of at most 1 and what the logarithm adds, with a tenth for tables whose sizes are powers of two. Prints the
 * row, so that a run shows the exponents. With `seconds`, time that is more than 10 ms must not grow faster than steps by half
 * a power (caches and pages make a quarter): a loop that nobody counts is found so; for long runs. */
static inline void growth_check(const growth_row *row, int seconds)
{
    const uint64_t last = row->first << row->doublings;
    const double times = (double)(last / row->first);
    const growth_cost base = growth_measure(row, 1), less = growth_measure(row, row->first),
                      more = growth_measure(row, last);
    const double most = 1.1 + log(log((double)last) / log((double)row->first)) / log(times);
    const double steps = growth_exponent((double)base.steps, (double)less.steps, (double)more.steps, times,
                                         (double)row->first);
    const double bytes = growth_exponent((double)base.bytes, (double)less.bytes, (double)more.bytes, times,
                                         fmax(8192, 16 * (double)row->first));
    print_message("%-40s %8llu to %8llu: steps^%.2f bytes^%.2f, at most ^%.2f; %llu steps, %llu bytes\n",
                  row->name, (unsigned long long)row->first, (unsigned long long)last, steps, bytes, most,
                  (unsigned long long)more.steps, (unsigned long long)more.bytes);
    if (seconds)
        print_message("%-40s %g s, %.1f ns a step\n", "", more.seconds,
                      more.seconds / (double)more.steps * 1e9);
    if (more.steps < last / 64)
        fail_msg("%s: %llu steps for a size of %llu: nobody counts", row->name,
                 (unsigned long long)more.steps, (unsigned long long)last);
    if (steps > most || bytes > most)
        fail_msg("%s grows faster than n log n", row->name);
    if (seconds && more.seconds > 0.01 &&
        growth_exponent(base.seconds, less.seconds, more.seconds, times, 1e-4) > steps + 0.5)
        fail_msg("%s: %g s at %llu, %g s at %llu: time grows faster than steps", row->name, less.seconds,
                 (unsigned long long)row->first, more.seconds, (unsigned long long)last);
}

#endif
