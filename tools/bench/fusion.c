/*
 * fusion.c - `mica bench fusion`: does each fusion help? The records of one pattern alone, replayed as they are and fused, turn
 * by turn.
 *
 * A recording holds the pattern several times with a barrier before each, which no fusion crosses. Repetitions
 * take turns with copies of the weights, so that at the larger size these do not stay near a core, as in a decode pass;
 * temporaries are the same for all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/weights.h"

#define REPEATS 64u
#define WEIGHTS 3
#define COPIES 16u
#define HEAD 64u
#define SLOTS 512u /* of the cache: as many as the most rows */
#define CHANNELS 16u
#define HEIGHT 8u
#define MOST_TEMPS 4
#define MOST_ROUNDS 20000u
#define MEASURE_NS 400000000u
#define QUICK_NS 10000000u

static const tool_column columns[] = {
    {"fusion", "fusion", TOOL_TEXT, 44}, {"shape", "shape", TOOL_TEXT, 10}, {"us", "us fused", 2, 9},
    {"us_apart", "us apart", 2, 9},      {"speedup", "speedup", 2, 8},      {"records", "records", 0, 8},
    {"records_apart", "apart", 0, 6},    {"made", "made by", TOOL_TEXT, 7},
};
#define COLUMNS (sizeof columns / sizeof *columns)

/* The operands of all patterns: [rows, columns] f32 unless it is said. */
typedef struct fusion_set {
    mica_device *device;
    uint64_t rows, columns, measure_ns;
    mica_session *session;
    mica_encoder *encoder;
    uint32_t repeat;                            /* the one being encoded */
    mica_buffer *x, *other, *y[3], *gain;       /* gain [columns] */
    mica_buffer *heads_x, *heads_y, *head_gain; /* x and y[0] as [rows, heads, HEAD]; gain [HEAD] */
    mica_buffer *kernel;                        /* [CHANNELS, CHANNELS, 3, 3] */
    mica_buffer *positions, *cache;             /* u32 [rows]; f16 [SLOTS, heads, HEAD] */
    mica_buffer *weight[COPIES][WEIGHTS];       /* q4_0 [columns, columns], packed; decode sizes only */
    mica_buffer *temp[MOST_TEMPS];
    uint32_t temps;
} fusion_set;

/* The next temporary of a repetition. */
static mica_status next_temp(fusion_set *s, uint32_t ndim, const uint64_t *shape, mica_buffer **out)
{
    mica_buffer **place = &s->temp[s->temps++];
    if (*place == NULL)
        TOOL_TRY(mica_session_temp(s->session, MICA_DTYPE_F32, ndim, shape, place));
    *out = *place;
    return MICA_OK;
}

static mica_status temp(fusion_set *s, mica_buffer **out)
{
    const uint64_t shape[2] = {s->rows, s->columns};
    return next_temp(s, 2, shape, out);
}

static mica_status heads_temp(fusion_set *s, mica_buffer **out)
{
    const uint64_t shape[3] = {s->rows, s->columns / HEAD, HEAD};
    return next_temp(s, 3, shape, out);
}

static mica_status matvec(fusion_set *s, mica_buffer *x, uint32_t weight, mica_buffer *y)
{
    return mica_matmul(s->encoder, x, s->weight[s->repeat % COPIES][weight], NULL, y);
}

/* ---- the patterns ---- */

static mica_status matmul_softcap(fusion_set *s)
{
    mica_buffer *t;
    TOOL_TRY(temp(s, &t));
    TOOL_TRY(matvec(s, s->x, 0, t));
    return mica_softcap(s->encoder, t, 30, s->y[0]);
}

static mica_status matmul_residual(fusion_set *s)
{
    mica_buffer *t;
    TOOL_TRY(temp(s, &t));
    TOOL_TRY(matvec(s, s->x, 0, t));
    return mica_add(s->encoder, s->other, t, s->y[0]);
}

static mica_status gate_up(fusion_set *s)
{
    mica_buffer *gate, *up;
    TOOL_TRY(temp(s, &gate));
    TOOL_TRY(temp(s, &up));
    TOOL_TRY(matvec(s, s->x, 0, gate));
    TOOL_TRY(matvec(s, s->x, 1, up));
    return mica_silu_mul(s->encoder, gate, up, s->y[0]);
}

static mica_status norm_mul(fusion_set *s)
{
    mica_buffer *t;
    TOOL_TRY(temp(s, &t));
    TOOL_TRY(mica_rms_norm(s->encoder, s->x, NULL, 1e-5f, t));
    return mica_mul(s->encoder, t, s->gain, s->y[0]);
}

static mica_status norm_add(fusion_set *s)
{
    mica_buffer *t;
    TOOL_TRY(temp(s, &t));
    TOOL_TRY(mica_rms_norm(s->encoder, s->x, s->gain, 1e-5f, t));
    return mica_add(s->encoder, t, s->other, s->y[0]);
}

static mica_status head_norm_rope(fusion_set *s)
{
    mica_rope_params rope = {.mode = MICA_ROPE_NEOX, .theta = 10000};
    mica_buffer *t;
    TOOL_TRY(heads_temp(s, &t));
    TOOL_TRY(mica_rms_norm(s->encoder, s->heads_x, s->head_gain, 1e-5f, t));
    return mica_rope(s->encoder, t, s->positions, NULL, &rope, s->heads_y);
}

static mica_status rope_kv_write(fusion_set *s)
{
    mica_rope_params rope = {.mode = MICA_ROPE_NEOX, .theta = 10000};
    mica_kv_params kv = {0};
    mica_buffer *t;
    TOOL_TRY(heads_temp(s, &t));
    TOOL_TRY(mica_rope(s->encoder, s->heads_x, s->positions, NULL, &rope, t));
    return mica_kv_write(s->encoder, t, s->positions, NULL, NULL, &kv, s->cache);
}

static mica_status matmul_group(fusion_set *s)
{
    for (uint32_t i = 0; i < WEIGHTS; i++)
        TOOL_TRY(matvec(s, s->x, i, s->y[i]));
    return MICA_OK;
}

static mica_status norm_matmul(fusion_set *s)
{
    mica_buffer *t;
    TOOL_TRY(temp(s, &t));
    TOOL_TRY(mica_rms_norm(s->encoder, s->x, s->gain, 1e-5f, t));
    return matvec(s, t, 0, s->y[0]);
}

/* As a layer has it: only a group of matmuls can take the norm in. */
static mica_status norm_matmul_group(fusion_set *s)
{
    mica_buffer *t;
    TOOL_TRY(temp(s, &t));
    TOOL_TRY(mica_rms_norm(s->encoder, s->x, s->gain, 1e-5f, t));
    for (uint32_t i = 0; i < WEIGHTS; i++)
        TOOL_TRY(matvec(s, t, i, s->y[i]));
    return MICA_OK;
}

static mica_status residual_norm(fusion_set *s)
{
    TOOL_TRY(mica_add(s->encoder, s->x, s->other, s->y[1]));
    return mica_rms_norm(s->encoder, s->y[1], s->gain, 1e-5f, s->y[0]);
}

/* The shortest and cheapest region: what it gains is a pass and a barrier. */
static mica_status two_joined(fusion_set *s)
{
    mica_buffer *t;
    TOOL_TRY(temp(s, &t));
    TOOL_TRY(mica_mul(s->encoder, s->x, s->gain, t));
    return mica_add(s->encoder, t, s->other, s->y[0]);
}

static mica_status four_joined(fusion_set *s)
{
    mica_buffer *t[3];
    for (int i = 0; i < 3; i++)
        TOOL_TRY(temp(s, &t[i]));
    TOOL_TRY(mica_softcap(s->encoder, s->x, 30, t[0]));
    TOOL_TRY(mica_mul(s->encoder, t[0], s->gain, t[1]));
    TOOL_TRY(mica_silu_mul(s->encoder, t[1], s->other, t[2]));
    return mica_add(s->encoder, t[2], s->x, s->y[0]);
}

/* A convolution of x as images of CHANNELS channels, HEIGHT high, and what follows it: other is added, or relu. */
static mica_status conv(fusion_set *s, int adds)
{
    const mica_conv_params params = {.low = {1, 1}, .high = {1, 1}};
    const uint64_t shape[4] = {s->rows, CHANNELS, HEIGHT, s->columns / (CHANNELS * HEIGHT)};
    mica_buffer *const flat[3] = {s->x, s->other, s->y[0]};
    mica_buffer *image[3] = {NULL, NULL, NULL}, *t;
    TOOL_TRY(next_temp(s, 4, shape, &t));
    mica_status status = MICA_OK;
    for (int i = 0; i < 3 && status == MICA_OK; i++)
        status = mica_buffer_reshape(flat[i], 4, shape, &image[i]);
    if (status == MICA_OK)
        status = mica_conv(s->encoder, image[0], s->kernel, NULL, &params, t);
    if (status == MICA_OK)
        status = adds ? mica_add(s->encoder, t, image[1], image[2]) : mica_relu(s->encoder, t, image[2]);
    for (int i = 0; i < 3; i++)
        mica_buffer_release(image[i]);
    return status;
}

static mica_status conv_residual(fusion_set *s)
{
    return conv(s, 1);
}

static mica_status conv_relu(fusion_set *s)
{
    return conv(s, 0);
}

static const struct {
    const char *fusion, *detail;
    mica_status (*encode)(fusion_set *);
    int weights;
} patterns[] = {
    {"matmul+softcap", "", matmul_softcap, 1},
    {"matmul+residual", "", matmul_residual, 1},
    {"gate+up", "", gate_up, 1},
    {"norm+mul", "", norm_mul, 0},
    {"norm+add", "", norm_add, 0},
    {"head-norm+rope", "", head_norm_rope, 0},
    {"rope+kv_write", "", rope_kv_write, 0},
    {"matmul group", " of three", matmul_group, 1},
    {"norm+matmul", "", norm_matmul, 1},
    {"norm+matmul", " after matmul group of three", norm_matmul_group, 1},
    {"residual+norm", "", residual_norm, 0},
    {"conv+residual", "", conv_residual, 0},
    {"conv+relu", "", conv_relu, 0},
    {"region", " mul, add", two_joined, 0},
    {"region", " softcap, mul, silu_mul, add", four_joined, 0},
};
#define PATTERNS (sizeof patterns / sizeof *patterns)

/* ---- measuring ---- */

static mica_status encode_repeats(fusion_set *s, size_t pattern)
{
    for (s->repeat = 0; s->repeat < REPEATS; s->repeat++) {
        s->temps = 0;
        TOOL_TRY(mica_encoder_barrier(s->encoder));
        TOOL_TRY(patterns[pattern].encode(s));
    }
    return MICA_OK;
}

static mica_status record(fusion_set *s, size_t pattern, uint32_t flags, mica_recording **out)
{
    TOOL_TRY(mica_session_begin(s->device, NULL, MICA_SESSION_RECORD, &s->session));
    s->encoder = mica_session_encoder(s->session);
    memset(s->temp, 0, sizeof s->temp);
    mica_status status = encode_repeats(s, pattern);
    if (status == MICA_OK)
        status = mica_session_record(s->session, flags, NULL, out);
    mica_session_release(s->session);
    for (uint32_t i = 0; i < MOST_TEMPS; i++)
        mica_buffer_release(s->temp[i]);
    return status;
}

/* Replays both in turn for that long; medians in nanoseconds. */
static mica_status time_both(mica_recording *const *recording, uint64_t most_ns, double *out_ns)
{
    static double samples[2][MOST_ROUNDS];
    uint32_t rounds = 0;
    for (int way = 0; way < 2; way++)
        TOOL_TRY(mica_recording_replay_and_wait(recording[way]));
    const uint64_t start = tool_clock_ns();
    while (rounds < 3 || (rounds < MOST_ROUNDS && tool_clock_ns() - start < most_ns)) {
        for (int way = 0; way < 2; way++) {
            const uint64_t before = tool_clock_ns();
            TOOL_TRY(mica_recording_replay_and_wait(recording[way]));
            samples[way][rounds] = (double)(tool_clock_ns() - before);
        }
        rounds++;
    }
    for (int way = 0; way < 2; way++)
        out_ns[way] = bench_median(samples[way], rounds);
    return MICA_OK;
}

static mica_status print_pattern(const fusion_set *s, size_t pattern, mica_recording *const *recording,
                                 const double *ns, tool_json *json)
{
    mica_record_info first = {0};
    char name[80], shape[48];
    snprintf(name, sizeof name, "%s%s", patterns[pattern].fusion, patterns[pattern].detail);
    snprintf(shape, sizeof shape, "%llu x %llu", (unsigned long long)s->rows, (unsigned long long)s->columns);
    TOOL_TRY(mica_recording_inspect(recording[1], 0, &first));
    const tool_cell cells[COLUMNS] = {{.text = name},
                                      {.text = shape},
                                      {.number = ns[1] / REPEATS / 1000},
                                      {.number = ns[0] / REPEATS / 1000},
                                      {.number = ns[0] / ns[1]},
                                      {.number = mica_recording_count(recording[1]) / (double)REPEATS},
                                      {.number = mica_recording_count(recording[0]) / (double)REPEATS},
                                      {.text = first.fused}};
    bench_table_row(json, columns, COLUMNS, cells);
    return MICA_OK;
}

static mica_status time_pattern(fusion_set *s, size_t pattern, tool_json *json)
{
    mica_recording *recording[2] = {NULL, NULL};
    double ns[2] = {0};
    mica_status status = record(s, pattern, 0, &recording[0]);
    if (status == MICA_OK)
        status = record(s, pattern, MICA_FINISH_FUSE, &recording[1]);
    if (status == MICA_OK)
        status = time_both(recording, s->measure_ns, ns);
    if (status == MICA_OK)
        status = print_pattern(s, pattern, recording, ns, json);
    mica_recording_release(recording[0]);
    mica_recording_release(recording[1]);
    return status;
}

/* ---- operands ---- */

static mica_status make(const fusion_set *s, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                        mica_buffer **out)
{
    return tool_weight_create(s->device, dtype, ndim, shape, 1, out);
}

static mica_status open_weights(fusion_set *s)
{
    const uint64_t square[2] = {s->columns, s->columns};
    for (uint32_t i = 0; s->rows == 1 && i < COPIES * WEIGHTS; i++)
        TOOL_TRY(tool_weight_packed(s->device, MICA_DTYPE_Q4_0, 2, square, 0.02,
                                    &s->weight[i / WEIGHTS][i % WEIGHTS]));
    return MICA_OK;
}

static mica_status open_set(fusion_set *s)
{
    const uint64_t plain[2] = {s->rows, s->columns}, head = HEAD;
    const uint64_t kernel[4] = {CHANNELS, CHANNELS, 3, 3};
    const uint64_t heads[3] = {s->rows, s->columns / HEAD, HEAD}, cache[3] = {SLOTS, s->columns / HEAD, HEAD};
    TOOL_TRY(make(s, MICA_DTYPE_F32, 2, plain, &s->x));
    TOOL_TRY(make(s, MICA_DTYPE_F32, 2, plain, &s->other));
    for (int i = 0; i < 3; i++)
        TOOL_TRY(make(s, MICA_DTYPE_F32, 2, plain, &s->y[i]));
    TOOL_TRY(make(s, MICA_DTYPE_F32, 1, &s->columns, &s->gain));
    TOOL_TRY(make(s, MICA_DTYPE_F32, 1, &head, &s->head_gain));
    TOOL_TRY(tool_positions_create(s->device, s->rows, &s->positions));
    TOOL_TRY(make(s, MICA_DTYPE_F16, 3, cache, &s->cache));
    TOOL_TRY(make(s, MICA_DTYPE_F32, 4, kernel, &s->kernel));
    TOOL_TRY(mica_buffer_reshape(s->x, 3, heads, &s->heads_x));
    TOOL_TRY(mica_buffer_reshape(s->y[0], 3, heads, &s->heads_y));
    return open_weights(s);
}

static void close_set(fusion_set *s)
{
    mica_buffer *all[] = {s->x,       s->other,   s->y[0],      s->y[1],      s->y[2],  s->gain,
                          s->heads_x, s->heads_y, s->head_gain, s->positions, s->cache, s->kernel};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
    for (uint32_t i = 0; i < COPIES * WEIGHTS; i++)
        mica_buffer_release(s->weight[i / WEIGHTS][i % WEIGHTS]);
}

static mica_status measure_shape(mica_device *device, const uint64_t *shape, int quick, tool_json *json)
{
    fusion_set s = {
        .device = device, .rows = shape[0], .columns = shape[1], .measure_ns = quick ? QUICK_NS : MEASURE_NS};
    mica_status status = open_set(&s);
    for (size_t p = 0; p < PATTERNS && status == MICA_OK; p++)
        if (!patterns[p].weights || s.rows == 1)
            status = time_pattern(&s, p, json);
    close_set(&s);
    return status;
}

static int measure_fusions(const tool_call *call, mica_device *device, const mica_device_properties *p)
{
    static const uint64_t shapes[][2] = {{1, 256}, {1, 2048}, {512, 2048}};
    tool_json json = {0}, *list = tool_flag(call, "json") ? &json : NULL;
    const int quick = tool_flag(call, "quick");
    mica_status status = MICA_OK;
    bench_device_facts(list, p);
    bench_table_open(list, "fusions", columns, COLUMNS);
    for (size_t i = 0; i < (quick ? 1 : sizeof shapes / sizeof *shapes) && status == MICA_OK; i++)
        status = measure_shape(device, shapes[i], quick, list);
    bench_table_close(list);
    return status == MICA_OK ? 0 : tool_fail_status();
}

int bench_fusion(const tool_call *call, uint32_t threads)
{
    return bench_on_device(call, threads, measure_fusions);
}
