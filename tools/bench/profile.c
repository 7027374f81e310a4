/* profile.c - `mica bench --profile`: where the time of one prompt or one step goes, kernel by kernel. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/weights.h"

static const tool_column columns[] = {
    {"kernel", "kernel", TOOL_TEXT, 28},
    {"op", "op", TOOL_TEXT, 14},
    {"count", "count", 0, 7},
    {"us", "us", 1, 10},
    {"us_each", "us each", 1, 9},
    {"share", "% of time", 1, 9},
    {"gb_s", "GB/s", 1, 8},
    {"gop_s", "Gop/s", 1, 9},
};
#define COLUMNS (sizeof columns / sizeof *columns)

mica_status bench_profile_end(mica_device *device, bench_profile *profile)
{
    TOOL_TRY(mica_profile_end(device));
    free(profile->kernel);
    profile->kernel = NULL;
    TOOL_TRY(mica_profile_buckets(device, NULL, 0, &profile->count));
    profile->kernel = calloc(profile->count + 1, sizeof *profile->kernel);
    if (profile->kernel == NULL) {
        profile->count = 0;
        return MICA_ERR_OUT_OF_MEMORY;
    }
    return mica_profile_buckets(device, profile->kernel, profile->count, &profile->count);
}

static void sum_up(const bench_profile *profile, uint64_t *out_dispatches, double *out_ns)
{
    *out_dispatches = 0;
    *out_ns = 0;
    for (uint64_t i = 0; i < profile->count; i++) {
        *out_dispatches += profile->kernel[i].count;
        *out_ns += (double)profile->kernel[i].total_ns;
    }
}

static void fill_cells(const mica_profile_bucket *kernel, double all_ns, tool_cell *cells)
{
    const double ns = (double)kernel->total_ns;
    cells[0].text = kernel->kernel;
    cells[1].text = mica_op_name(kernel->op);
    cells[2].number = (double)kernel->count;
    cells[3].number = ns / 1000;
    cells[4].number = ns / 1000 / (double)kernel->count;
    cells[5].number = all_ns > 0 ? ns / all_ns * 100 : 0;
    cells[6].number = ns > 0 ? kernel->bytes / ns : 0;
    cells[7].number = ns > 0 ? kernel->operations / ns : 0;
}

void bench_profile_print(const bench_profile *profile, int as_markdown)
{
    uint64_t dispatches = 0;
    double ns = 0;
    sum_up(profile, &dispatches, &ns);
    printf("%llu kernels one at a time: %.1f us\n\n", (unsigned long long)dispatches, ns / 1000);
    (as_markdown ? tool_markdown_head : tool_table_head)(columns, COLUMNS);
    for (uint64_t i = 0; i < profile->count; i++) {
        tool_cell cells[COLUMNS];
        fill_cells(&profile->kernel[i], ns, cells);
        (as_markdown ? tool_markdown_row : tool_table_row)(columns, COLUMNS, cells);
    }
    putchar('\n');
}

void bench_profile_list(const bench_profile *profile, tool_json *json)
{
    uint64_t dispatches = 0;
    double ns = 0;
    sum_up(profile, &dispatches, &ns);
    tool_json_open(json, "kernels", '[');
    for (uint64_t i = 0; i < profile->count; i++) {
        tool_cell cells[COLUMNS];
        fill_cells(&profile->kernel[i], ns, cells);
        tool_table_object(json, columns, COLUMNS, cells);
    }
    tool_json_close(json, ']');
}
