/*
 * bench_report.c - the clock, medians, and rows as a table or as JSON.
 */
#include "bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

bench_options bench_settings;

static const char *section = "";

double bench_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void bench_must(mica_status status)
{
    if (status == MICA_OK)
        return;
    fprintf(stderr, "mica-bench: %s: %s\n", mica_status_name(status), mica_status_message());
    exit(1);
}

void *bench_alloc(uint64_t bytes)
{
    void *memory = NULL;

    if (posix_memalign(&memory, 64, bytes) != 0) {
        fprintf(stderr, "mica-bench: no memory for %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
    return memory;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *samples, uint32_t count)
{
    qsort(samples, count, sizeof *samples, by_size);
    return samples[count / 2];
}

double bench_time(void (*call)(void *), void *argument, double budget)
{
    static double samples[2000];
    double start = bench_seconds(), before = start;
    uint32_t count = 0;

    while (count < 3 || (count < 2000 && before - start < budget)) {
        double after;

        call(argument);
        after = bench_seconds();
        samples[count++] = after - before;
        before = after;
    }
    return bench_median(samples, count);
}

double bench_slice(void (*call)(void *), void *argument, double seconds)
{
    double start = bench_seconds(), now;
    uint32_t count = 0;

    do {
        call(argument);
        count++;
        now = bench_seconds();
    } while (now - start < seconds);
    return (now - start) / count;
}

void bench_section(const char *title)
{
    section = title;
    if (!bench_settings.json)
        printf("\n%s\n", title);
    fflush(stdout);
}

void bench_row(const char *name, double value, const char *unit, const char *note, ...)
{
    char text[160] = "";
    va_list arguments;

    va_start(arguments, note);
    vsnprintf(text, sizeof text, note, arguments);
    va_end(arguments);
    if (bench_settings.json)
        printf(
            "{\"section\": \"%s\", \"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"note\": \"%s\"}\n",
            section, name, value, unit, text);
    else
        printf("  %-60s %10.4g %-10s %s\n", name, value, unit, text);
    fflush(stdout);
}
