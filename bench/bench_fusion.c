/*
 * bench_fusion.c - does each fusion help? The records of one pattern alone, replayed as they are and fused, turn by
 * turn.
 *
 * A recording holds the pattern several times with a barrier before each, which no fusion crosses. Repetitions
 * take turns with copies of the weights, so that at the larger size these do not stay near a core, as in a decode pass;
 * temporaries are the same for all.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS 64u
#define WEIGHTS 3
#define COPIES 16u
#define HEAD 64u
#define SLOTS 512u /* of the cache: as many as the most rows */
#define MOST_TEMPS 4
#define MOST_ROUNDS 20000u

/* The operands of all patterns: [rows, columns] f32 unless it is said. */
typedef struct set {
    mica_device *device;
    uint64_t rows, columns;
    mica_session *session;
    mica_encoder *encoder;
    uint32_t repeat;                            /* the one being encoded */
    mica_buffer *x, *other, *y[3], *gain;       /* gain [columns] */
    mica_buffer *heads_x, *heads_y, *head_gain; /* x and y[0] as [rows, heads, HEAD]; gain [HEAD] */
    mica_buffer *positions, *cache;             /* u32 [rows]; f16 [SLOTS, heads, HEAD] */
    mica_buffer *weight[COPIES][WEIGHTS];       /* q4_0 [columns, columns], packed; decode sizes only */
    mica_buffer *temp[MOST_TEMPS];
    uint32_t temps;
} set;

/* The next temporary of a repetition. */
static mica_buffer *next_temp(set *s, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer **place = &s->temp[s->temps++];

    if (*place == NULL)
        bench_must(mica_session_temp(s->session, MICA_DTYPE_F32, ndim, shape, place));
    return *place;
}

static mica_buffer *temp(set *s)
{
    uint64_t shape[2] = {s->rows, s->columns};

    return next_temp(s, 2, shape);
}

static mica_buffer *heads_temp(set *s)
{
    uint64_t shape[3] = {s->rows, s->columns / HEAD, HEAD};

    return next_temp(s, 3, shape);
}

static void matvec(set *s, mica_buffer *x, uint32_t weight, mica_buffer *y)
{
    bench_must(mica_matmul(s->encoder, x, s->weight[s->repeat % COPIES][weight], NULL, y));
}

/* ---- the patterns ---- */

static void matmul_softcap(set *s)
{
    mica_buffer *t = temp(s);

    matvec(s, s->x, 0, t);
    bench_must(mica_softcap(s->encoder, t, 30, s->y[0]));
}

static void matmul_residual(set *s)
{
    mica_buffer *t = temp(s);

    matvec(s, s->x, 0, t);
    bench_must(mica_add(s->encoder, s->other, t, s->y[0]));
}

static void gate_up(set *s)
{
    mica_buffer *gate = temp(s), *up = temp(s);

    matvec(s, s->x, 0, gate);
    matvec(s, s->x, 1, up);
    bench_must(mica_silu_mul(s->encoder, gate, up, s->y[0]));
}

static void norm_mul(set *s)
{
    mica_buffer *t = temp(s);

    bench_must(mica_rms_norm(s->encoder, s->x, NULL, 1e-5f, t));
    bench_must(mica_mul(s->encoder, t, s->gain, s->y[0]));
}

static void norm_add(set *s)
{
    mica_buffer *t = temp(s);

    bench_must(mica_rms_norm(s->encoder, s->x, s->gain, 1e-5f, t));
    bench_must(mica_add(s->encoder, t, s->other, s->y[0]));
}

static void head_norm_rope(set *s)
{
    mica_rope_params rope = {.mode = MICA_ROPE_NEOX, .theta = 10000};
    mica_buffer *t = heads_temp(s);

    bench_must(mica_rms_norm(s->encoder, s->heads_x, s->head_gain, 1e-5f, t));
    bench_must(mica_rope(s->encoder, t, s->positions, NULL, &rope, s->heads_y));
}

static void rope_kv_write(set *s)
{
    mica_rope_params rope = {.mode = MICA_ROPE_NEOX, .theta = 10000};
    mica_kv_params kv = {0};
    mica_buffer *t = heads_temp(s);

    bench_must(mica_rope(s->encoder, s->heads_x, s->positions, NULL, &rope, t));
    bench_must(mica_kv_write(s->encoder, t, s->positions, NULL, NULL, &kv, s->cache));
}

static void matmul_group(set *s)
{
    for (uint32_t i = 0; i < WEIGHTS; i++)
        matvec(s, s->x, i, s->y[i]);
}

static void norm_matmul(set *s)
{
    mica_buffer *t = temp(s);

    bench_must(mica_rms_norm(s->encoder, s->x, s->gain, 1e-5f, t));
    matvec(s, t, 0, s->y[0]);
}

/* As a layer has it: only a group of matmuls can take the norm in. */
static void norm_matmul_group(set *s)
{
    mica_buffer *t = temp(s);

    bench_must(mica_rms_norm(s->encoder, s->x, s->gain, 1e-5f, t));
    for (uint32_t i = 0; i < WEIGHTS; i++)
        matvec(s, t, i, s->y[i]);
}

static void residual_norm(set *s)
{
    bench_must(mica_add(s->encoder, s->x, s->other, s->y[1]));
    bench_must(mica_rms_norm(s->encoder, s->y[1], s->gain, 1e-5f, s->y[0]));
}

/* The shortest and cheapest chain: what it gains is a pass and a barrier. */
static void chain_of_two(set *s)
{
    mica_buffer *t = temp(s);

    bench_must(mica_mul(s->encoder, s->x, s->gain, t));
    bench_must(mica_add(s->encoder, t, s->other, s->y[0]));
}

static void chain_of_four(set *s)
{
    mica_buffer *t[3] = {temp(s), temp(s), temp(s)};

    bench_must(mica_softcap(s->encoder, s->x, 30, t[0]));
    bench_must(mica_mul(s->encoder, t[0], s->gain, t[1]));
    bench_must(mica_silu_mul(s->encoder, t[1], s->other, t[2]));
    bench_must(mica_add(s->encoder, t[2], s->x, s->y[0]));
}

static const struct {
    const char *fusion, *detail;
    void (*encode)(set *);
    bool weights;
} patterns[] = {
    {"matmul+softcap", "", matmul_softcap, true},
    {"matmul+residual", "", matmul_residual, true},
    {"gate+up", "", gate_up, true},
    {"norm+mul", "", norm_mul, false},
    {"norm+add", "", norm_add, false},
    {"head-norm+rope", "", head_norm_rope, false},
    {"rope+kv_write", "", rope_kv_write, false},
    {"matmul group", " of three", matmul_group, true},
    {"norm+matmul", "", norm_matmul, true},
    {"norm+matmul", " after matmul group of three", norm_matmul_group, true},
    {"residual+norm", "", residual_norm, false},
    {"chain", " mul, add", chain_of_two, false},
    {"chain", " softcap, mul, silu_mul, add", chain_of_four, false},
};
#define PATTERNS (sizeof patterns / sizeof *patterns)

/* ---- measuring ---- */

static mica_recording *record(set *s, size_t pattern, uint32_t flags)
{
    mica_recording *recording;

    bench_must(mica_session_begin(s->device, NULL, MICA_SESSION_RECORD, &s->session));
    s->encoder = mica_session_encoder(s->session);
    memset(s->temp, 0, sizeof s->temp);
    for (s->repeat = 0; s->repeat < REPEATS; s->repeat++) {
        s->temps = 0;
        bench_must(mica_encoder_barrier(s->encoder));
        patterns[pattern].encode(s);
    }
    bench_must(mica_session_record(s->session, flags, NULL, &recording));
    mica_session_release(s->session);
    for (uint32_t i = 0; i < MOST_TEMPS; i++)
        mica_buffer_release(s->temp[i]);
    return recording;
}

/* Every record is one the pattern made: what is measured is this fusion and no other. */
static void check_fused(mica_recording *recording, const char *fusion)
{
    for (uint32_t i = 0; i < mica_recording_count(recording); i++) {
        mica_record_info info;

        bench_must(mica_recording_inspect(recording, i, &info));
        if (mica_recording_count(recording) == REPEATS && strcmp(info.fused, fusion) == 0)
            continue;
        fprintf(stderr, "mica-bench: record %u is '%s', not one of %u from %s\n", i, info.fused, REPEATS,
                fusion);
        exit(1);
    }
}

static double replay(mica_recording *recording)
{
    double start = bench_seconds();

    bench_must(mica_recording_replay_and_wait(recording));
    return bench_seconds() - start;
}

static void time_pattern(set *s, size_t pattern)
{
    static double samples[2][MOST_ROUNDS];
    mica_recording *recording[2] = {record(s, pattern, 0), record(s, pattern, MICA_FINISH_FUSE)};
    double start, apart, fused;
    uint32_t rounds = 0;
    char name[80];

    check_fused(recording[1], patterns[pattern].fusion);
    replay(recording[0]);
    replay(recording[1]);
    start = bench_seconds();
    while (rounds < MOST_ROUNDS &&
           (rounds < 5 || bench_seconds() - start < (bench_settings.quick ? 0.1 : 0.5))) {
        samples[0][rounds] = replay(recording[0]);
        samples[1][rounds++] = replay(recording[1]);
    }
    apart = bench_median(samples[0], rounds) / REPEATS;
    fused = bench_median(samples[1], rounds) / REPEATS;
    snprintf(name, sizeof name, "%s%s, %llu x %llu", patterns[pattern].fusion, patterns[pattern].detail,
             (unsigned long long)s->rows, (unsigned long long)s->columns);
    bench_row(name, fused * 1e6, "us", "%.2fx of %.4g us apart, %u records", apart / fused, apart * 1e6,
              mica_recording_count(recording[0]) / REPEATS);
    mica_recording_release(recording[0]);
    mica_recording_release(recording[1]);
}

/* ---- operands ---- */

static mica_buffer *make(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    test_random random = test_random_from(3);
    uint64_t count = 1;
    mica_buffer *buffer;

    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    bench_must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    bench_fill(buffer, dtype, count, &random);
    return buffer;
}

/* 0, 1, 2 .. */
static mica_buffer *make_positions(mica_device *device, uint64_t rows)
{
    uint32_t position[SLOTS];
    mica_buffer *buffer;

    for (uint32_t i = 0; i < rows; i++)
        position[i] = i;
    bench_must(mica_buffer_alloc(device, MICA_DTYPE_U32, 1, &rows, &buffer));
    bench_must(mica_buffer_write(buffer, 0, position, rows * sizeof *position));
    return buffer;
}

static void open_set(set *s, mica_device *device, uint64_t rows, uint64_t columns)
{
    uint64_t plain[2] = {rows, columns}, square[2] = {columns, columns}, head = HEAD;
    uint64_t heads[3] = {rows, columns / HEAD, HEAD}, cache[3] = {SLOTS, columns / HEAD, HEAD};

    memset(s, 0, sizeof *s);
    s->device = device;
    s->rows = rows;
    s->columns = columns;
    s->x = make(device, MICA_DTYPE_F32, 2, plain);
    s->other = make(device, MICA_DTYPE_F32, 2, plain);
    for (int i = 0; i < 3; i++)
        s->y[i] = make(device, MICA_DTYPE_F32, 2, plain);
    s->gain = make(device, MICA_DTYPE_F32, 1, &columns);
    s->head_gain = make(device, MICA_DTYPE_F32, 1, &head);
    s->positions = make_positions(device, rows);
    s->cache = make(device, MICA_DTYPE_F16, 3, cache);
    bench_must(mica_buffer_reshape(s->x, 3, heads, &s->heads_x));
    bench_must(mica_buffer_reshape(s->y[0], 3, heads, &s->heads_y));
    for (uint32_t i = 0; rows == 1 && i < COPIES * WEIGHTS; i++) {
        mica_buffer *weight = make(device, MICA_DTYPE_Q4_0, 2, square);

        bench_must(mica_buffer_pack(weight, &s->weight[i / WEIGHTS][i % WEIGHTS]));
        mica_buffer_release(weight);
    }
}

static void close_set(set *s)
{
    mica_buffer *all[] = {s->x,       s->other,   s->y[0],      s->y[1],      s->y[2], s->gain,
                          s->heads_x, s->heads_y, s->head_gain, s->positions, s->cache};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
    for (uint32_t i = 0; i < COPIES * WEIGHTS; i++)
        mica_buffer_release(s->weight[i / WEIGHTS][i % WEIGHTS]);
}

void bench_fusion(void)
{
    static const uint64_t shapes[][2] = {{1, 256}, {1, 2048}, {512, 2048}};
    mica_device *device = bench_device(2);
    static set s;

    bench_section(
        "fusions, one pattern alone, weights q4_0, 2 threads (goal: each faster than its records apart)");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        open_set(&s, device, shapes[i][0], shapes[i][1]);
        for (size_t p = 0; p < PATTERNS; p++) {
            if (!patterns[p].weights || s.rows == 1)
                time_pattern(&s, p);
        }
        close_set(&s);
    }
    mica_device_release(device);
}
