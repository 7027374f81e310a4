/*
 * bench_ops.c - the timing rows of the conformance table: each op at a shape of real models, two threads.
 */
#include "bench.h"

#include "conform/conform.h"

static void encode_case(mica_encoder *encoder, void *argument)
{
    const conform_case *c = argument;

    bench_must(c->row->encode(c, encoder));
}

static void time_row(mica_device *device, const conform_row *row)
{
    conform_case c;
    mica_recording *recording;
    double seconds;

    conform_case_make(&c, row, 1, true);
    bench_must(conform_case_upload(&c, device));
    recording = bench_record(device, 0, encode_case, &c);
    seconds = bench_replay_time(recording, bench_settings.quick ? 0.02 : 0.1);
    bench_row(row->name, seconds * 1e6, "us",
              "%7.1f GB/s (%3.0f %% of read)  %7.1f GFLOP/s (%3.0f %% of peak)", c.bytes / seconds * 1e-9,
              100 * c.bytes / seconds / bench_machine.bytes[1], c.flops / seconds * 1e-9,
              100 * c.flops / seconds / bench_machine.flops[1]);
    mica_recording_release(recording);
    conform_case_free(&c);
}

void bench_ops(void)
{
    mica_device *device = bench_device(2);

    bench_section("ops, one replay each, memory in cache where it fits, 2 threads");
    for (uint32_t i = 0; i < conform_table_count; i++)
        time_row(device, &conform_table[i]);
    mica_device_release(device);
}
