/*
 * bench_matmul.c - dense matmul against the multiply-add peak, mat-vecs against the memory's read speed.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_blocks.h"
#include "oracle/oracle_number.h"
#include "support/random.h"
#include "support/tensor.h"

#define SIDE 1024u
#define ROWS 14336u
#define COLUMNS 4096u
#define MOST_COPIES 64
#define SLICES 15u
#define SLICE_SECONDS 0.05

typedef struct product {
    mica_buffer *x, *y, *weight[MOST_COPIES];
    uint32_t count;
} product;

/* All weights in turn, each behind the one before: they write the same y. */
static void encode_products(mica_encoder *encoder, void *argument)
{
    product *p = argument;

    for (uint32_t i = 0; i < p->count; i++)
        bench_must(mica_matmul(encoder, p->x, p->weight[i], NULL, p->y));
}

void bench_fill(mica_buffer *buffer, mica_dtype dtype, uint64_t count, test_random *random)
{
    uint64_t values = oracle_block_bytes(dtype) ? count / oracle_block_values(dtype) : 0;
    void *data;

    bench_must(mica_buffer_map(buffer, MICA_ACCESS_WRITE, &data));
    if (oracle_is_block(dtype) || dtype == MICA_DTYPE_F8_E4M3) {
        test_blocks_fill(dtype, data, values, random, 0.02);
    } else if (dtype == MICA_DTYPE_E8M0) {
        memset(data, 120, count); /* 2^-7 */
    } else {
        for (uint64_t i = 0; i < count; i++)
            oracle_put(dtype, test_random_uniform(random, -1, 1),
                       (uint8_t *)data + i * oracle_block_bytes(dtype));
    }
    bench_must(mica_buffer_unmap(buffer));
}

static void release(product *p)
{
    for (uint32_t i = 0; i < p->count; i++)
        mica_buffer_release(p->weight[i]);
    mica_buffer_release(p->x);
    mica_buffer_release(p->y);
}

/* Slices of the product and of the multiply-add loop take turns: a share of the peak is that of one moment. */
static void time_dense(uint32_t threads, mica_dtype dtype)
{
    mica_device *device = bench_device(threads);
    test_random random = test_random_from(7);
    product p = {.count = 1, .x = bench_buffer(device, MICA_DTYPE_F32, SIDE, SIDE)};
    mica_recording *recording;
    double rate[SLICES], share[SLICES], middle;
    uint32_t slices = bench_settings.quick ? 5 : SLICES;
    char name[64];

    p.y = bench_buffer(device, MICA_DTYPE_F32, SIDE, SIDE);
    p.weight[0] = bench_buffer(device, dtype, SIDE, SIDE);
    bench_fill(p.x, MICA_DTYPE_F32, (uint64_t)SIDE * SIDE, &random);
    bench_fill(p.weight[0], dtype, (uint64_t)SIDE * SIDE, &random);
    recording = bench_record(device, 0, encode_products, &p);
    bench_replay(recording);
    for (uint32_t i = 0; i < slices; i++) {
        double peak = bench_fma_slice(threads, SLICE_SECONDS);

        rate[i] = 2.0 * SIDE * SIDE * SIDE / bench_slice(bench_replay, recording, SLICE_SECONDS);
        share[i] = 100 * rate[i] / peak;
    }
    middle = bench_median(share, slices);
    snprintf(name, sizeof name, "matmul 1024 x 1024 x 1024, %s", mica_dtype_name(dtype));
    bench_row(name, bench_median(rate, slices) * 1e-9, "GFLOP/s",
              "%u threads, %.0f %% of peak (%.0f to %.0f in %u turns)", threads, middle, share[0],
              share[slices - 1], slices);
    mica_recording_release(recording);
    release(&p);
    mica_device_release(device);
}

void bench_matmul(void)
{
    static const mica_dtype types[] = {MICA_DTYPE_F32,  MICA_DTYPE_F16,    MICA_DTYPE_BF16,  MICA_DTYPE_Q4_0,
                                       MICA_DTYPE_Q4_1, MICA_DTYPE_Q5_0,   MICA_DTYPE_Q5_1,  MICA_DTYPE_Q8_0,
                                       MICA_DTYPE_Q2_K, MICA_DTYPE_Q3_K,   MICA_DTYPE_Q4_K,  MICA_DTYPE_Q5_K,
                                       MICA_DTYPE_Q6_K, MICA_DTYPE_IQ4_NL, MICA_DTYPE_IQ4_XS};

    bench_section("matmul with many rows (goal: f32 at 60 % of the peak of the same moment)");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        time_dense(1, types[i]);
        time_dense(2, types[i]);
    }
}

/* Values that share a scale: as MLX has it where it says so. */
static uint32_t group_of(mica_dtype dtype)
{
    return oracle_is_affine(dtype) ? 64 : 32;
}

/* One weight of the type; those with tables of scales with theirs. */
static mica_buffer *make_weight(mica_device *device, mica_dtype dtype, bool packed, test_random *random)
{
    const mica_dtype scale = oracle_is_affine(dtype) ? MICA_DTYPE_BF16 : MICA_DTYPE_E8M0;
    mica_buffer *data = bench_buffer(device, dtype, ROWS, COLUMNS), *scales, *whole = data, *out;
    const uint32_t group = group_of(dtype);

    bench_fill(data, dtype, (uint64_t)ROWS * COLUMNS, random);
    if (oracle_has_scales(dtype)) {
        scales = bench_buffer(device, scale, ROWS, COLUMNS / group);
        bench_fill(scales, scale, (uint64_t)ROWS * (COLUMNS / group), random);
        bench_must(mica_buffer_affine(data, scales, oracle_is_affine(dtype) ? scales : NULL, group, &whole));
        mica_buffer_release(scales);
        mica_buffer_release(data);
    }
    if (!packed)
        return whole;
    bench_must(mica_buffer_pack(whole, &out));
    mica_buffer_release(whole);
    return out;
}

static void time_matvec(uint32_t threads, mica_dtype dtype, bool packed)
{
    mica_device *device = bench_device(threads);
    test_random random = test_random_from(7);
    uint64_t groups = oracle_has_scales(dtype) ? (uint64_t)ROWS * (COLUMNS / group_of(dtype)) : 0;
    uint64_t extra = groups * (oracle_is_affine(dtype) ? 4 : 1);
    uint64_t bytes = oracle_row_bytes(dtype, (uint64_t)ROWS * COLUMNS) + extra;
    uint64_t total = bench_settings.quick ? 256u << 20 : 1024u << 20;
    product p = {.count = (uint32_t)((total + bytes - 1) / bytes),
                 .x = bench_buffer(device, MICA_DTYPE_F32, 1, COLUMNS)};
    mica_recording *recording;
    double rate;
    char name[64];

    p.y = bench_buffer(device, MICA_DTYPE_F32, 1, ROWS);
    bench_fill(p.x, MICA_DTYPE_F32, COLUMNS, &random);
    for (uint32_t i = 0; i < p.count; i++)
        p.weight[i] = make_weight(device, dtype, packed, &random);
    recording = bench_record(device, 0, encode_products, &p);
    rate = (double)(bytes * p.count) / bench_replay_time(recording, bench_settings.quick ? 0.2 : 0.5);
    snprintf(name, sizeof name, "mat-vec 14336 x 4096, %s%s", mica_dtype_name(dtype),
             packed ? ", packed" : "");
    bench_row(name, rate * 1e-9, "GB/s", "%u threads, %.0f %% of read, over %llu MB", threads,
              100 * rate / bench_machine.bytes[threads - 1], (unsigned long long)((bytes * p.count) >> 20));
    mica_recording_release(recording);
    release(&p);
    mica_device_release(device);
}

void bench_matvec(void)
{
    static const mica_dtype types[] = {
        MICA_DTYPE_F16,    MICA_DTYPE_BF16,    MICA_DTYPE_Q4_0,    MICA_DTYPE_Q4_1,    MICA_DTYPE_Q5_0,
        MICA_DTYPE_Q5_1,   MICA_DTYPE_Q8_0,    MICA_DTYPE_Q2_K,    MICA_DTYPE_Q3_K,    MICA_DTYPE_Q4_K,
        MICA_DTYPE_Q5_K,   MICA_DTYPE_Q6_K,    MICA_DTYPE_IQ4_NL,  MICA_DTYPE_IQ4_XS,  MICA_DTYPE_MXFP4,
        MICA_DTYPE_NVFP4,  MICA_DTYPE_AFFINE4, MICA_DTYPE_AFFINE6, MICA_DTYPE_AFFINE8, MICA_DTYPE_FP4,
        MICA_DTYPE_F8_E4M3};

    bench_section("mat-vec, weights from memory (goal: quantised at 50 % of read on 2 threads)");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const bool packs = types[i] != MICA_DTYPE_F8_E4M3; /* which is read as it is */

        if (oracle_is_block(types[i]) || !packs)
            time_matvec(2, types[i], false);
        if (packs)
            time_matvec(2, types[i], true);
        if (packs && !bench_settings.quick)
            time_matvec(1, types[i], true);
    }
}
