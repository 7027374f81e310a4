/*
 * test_fuse_bits.c - on the cpu each fused kernel gives the bits of the separate ones.
 *
 * Every pattern is encoded through the public ops, run directly and run fused, for few and many rows, weights
 * of several types, outputs of several types, on every instruction set the machine has.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "quant/quant.h"
#include "session/rig.h"

#define K 96 /* three blocks of 32 */
#define N 80 /* columns of a weight: no multiple of a tile */
#define HEADS 4
#define HEAD_DIM 24 /* HEADS * HEAD_DIM = K */
#define SLOTS 40
#define MAX_ROWS 19
#define IMAGES 2
#define CHANNELS 20
#define HEIGHT 5
#define WIDTH 7
#define PLACES (IMAGES * CHANNELS * HEIGHT * WIDTH)

typedef struct bench {
    mica_device *device;
    mica_session *session;
    mica_encoder *e;
    uint64_t rows;
    mica_dtype weight_type, out_type;
    mica_buffer *x, *other, *gain, *w[3], *positions, *cache; /* x, other [rows, K]; w [N, K] */
    mica_buffer *narrow[2], *wide[3];                         /* outputs [rows, K] and [rows, N] */
    mica_buffer *image[3], *kernel,
        *channel; /* [IMAGES, CHANNELS, HEIGHT, WIDTH], the last an output; of convolutions */
    mica_buffer *temp[8];
    uint32_t temps;
} bench;

static uint32_t seed = 11;

static float random_float(void)
{
    seed = seed * 1664525u + 1013904223u;
    return ((float)(seed >> 8) / 16777216.0f - 0.5f) * 2.0f;
}

static mica_buffer *make(mica_device *device, mica_dtype dtype, uint32_t ndim, uint64_t a, uint64_t b,
                         uint64_t c)
{
    uint64_t shape[3] = {a, b, c};
    mica_buffer *buffer = NULL;
    ok(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

/* Random values in the type's own form. */
static void fill(mica_buffer *buffer, mica_dtype dtype, uint64_t count)
{
    static float values[N * K];
    static unsigned char bytes[N * K * 4];
    for (uint64_t i = 0; i < count; i++)
        values[i] = random_float();
    uint64_t size = count / mica_dtype_block_elements(dtype) * mica_dtype_block_bytes(dtype);
    if (dtype == MICA_DTYPE_F32)
        memcpy(bytes, values, size);
    else if (mica_dtype_block_elements(dtype) > 1)
        mica__quant_encode_row((uint16_t)dtype, values, NULL, bytes, count);
    else
        for (uint64_t i = 0; i < count; i++) /* f16: sign, an exponent about 1, random mantissa */
            ((uint16_t *)(void *)bytes)[i] =
                (uint16_t)(0x3800u | (seed = seed * 1664525u + 1013904223u) >> 22 | (i % 2) << 15);
    ok(mica_buffer_write(buffer, 0, bytes, size));
}

static void open_images(bench *b)
{
    const uint64_t shape[4] = {IMAGES, CHANNELS, HEIGHT, WIDTH};
    for (int i = 0; i < 3; i++)
        ok(mica_buffer_alloc(b->device, i == 2 ? b->out_type : MICA_DTYPE_F32, 4, shape, &b->image[i]));
    fill(b->image[0], MICA_DTYPE_F32, PLACES);
    fill(b->image[1], MICA_DTYPE_F32, PLACES);
    b->kernel = make(b->device, MICA_DTYPE_F32, 1, CHANNELS * CHANNELS * 9, 0, 0);
    fill(b->kernel, MICA_DTYPE_F32, CHANNELS * CHANNELS * 9);
    b->channel = make(b->device, MICA_DTYPE_F32, 1, CHANNELS, 0, 0);
    fill(b->channel, MICA_DTYPE_F32, CHANNELS);
}

static void open_bench(bench *b, mica_device *device, uint64_t rows, mica_dtype weight_type,
                       mica_dtype out_type)
{
    memset(b, 0, sizeof *b);
    b->device = device;
    b->rows = rows;
    b->weight_type = weight_type;
    b->out_type = out_type;
    b->x = make(device, MICA_DTYPE_F32, 2, rows, K, 0);
    b->other = make(device, MICA_DTYPE_F32, 2, rows, K, 0);
    b->gain = make(device, MICA_DTYPE_F32, 1, K, 0, 0);
    fill(b->x, MICA_DTYPE_F32, rows * K);
    fill(b->other, MICA_DTYPE_F32, rows * K);
    fill(b->gain, MICA_DTYPE_F32, K);
    for (int i = 0; i < 3; i++) {
        b->w[i] = make(device, weight_type, 2, N, K, 0);
        fill(b->w[i], weight_type, N * K);
        b->wide[i] = make(device, out_type, 2, rows, N, 0);
    }
    b->narrow[0] = make(device, out_type, 2, rows, K, 0);
    b->narrow[1] = make(device, MICA_DTYPE_F32, 2, rows, K, 0);
    b->positions = make(device, MICA_DTYPE_U32, 1, rows, 0, 0);
    uint32_t position[MAX_ROWS];
    for (uint32_t i = 0; i < rows; i++)
        position[i] = 2 * i + 1;
    ok(mica_buffer_write(b->positions, 0, position, rows * sizeof position[0]));
    b->cache = make(device, MICA_DTYPE_F16, 3, SLOTS, HEADS, HEAD_DIM);
    open_images(b);
}

static void close_bench(bench *b)
{
    mica_buffer *all[] = {b->x,         b->other,    b->gain,     b->w[0],     b->w[1],    b->w[2],
                          b->positions, b->cache,    b->wide[0],  b->wide[1],  b->wide[2], b->narrow[0],
                          b->narrow[1], b->image[0], b->image[1], b->image[2], b->kernel,  b->channel};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mica_buffer_release(all[i]);
}

static mica_buffer *temp(bench *b, uint64_t columns)
{
    uint64_t shape[2] = {b->rows, columns};
    ok(mica_session_temp(b->session, MICA_DTYPE_F32, 2, shape, &b->temp[b->temps]));
    return b->temp[b->temps++];
}

/* [rows, K] seen as heads. Counts as a temporary for cleaning up. */
static mica_buffer *heads(bench *b, mica_buffer *buffer)
{
    uint64_t shape[3] = {b->rows, HEADS, HEAD_DIM};
    ok(mica_buffer_reshape(buffer, 3, shape, &b->temp[b->temps]));
    return b->temp[b->temps++];
}

/* The first `count` of gain, for cleaning up with the temporaries. */
static mica_buffer *vector(bench *b, uint64_t count)
{
    ok(mica_buffer_view(b->gain, MICA_DTYPE_F32, 1, &count, NULL, 0, &b->temp[b->temps]));
    return b->temp[b->temps++];
}

/* ---- the patterns ---- */

static void norm_mul(bench *b)
{
    mica_buffer *t = temp(b, K);
    ok(mica_rms_norm(b->e, b->x, b->gain, 1e-5f, t));
    ok(mica_mul(b->e, t, b->other, b->narrow[0]));
}

static void norm_add(bench *b)
{
    mica_buffer *t = temp(b, K);
    ok(mica_rms_norm(b->e, b->x, b->gain, 1e-5f, t));
    ok(mica_add(b->e, t, b->other, b->narrow[0]));
}

static void residual_norm(bench *b)
{
    ok(mica_add(b->e, b->x, b->other, b->narrow[1]));
    ok(mica_rms_norm(b->e, b->narrow[1], b->gain, 1e-5f, b->narrow[0]));
}

static void matmul_residual(bench *b)
{
    mica_buffer *t = temp(b, N);
    ok(mica_matmul(b->e, b->x, b->w[0], NULL, t));
    ok(mica_matmul(b->e, b->other, b->w[1], NULL, b->wide[1]));
    ok(mica_add(b->e, b->wide[1], t, b->wide[0]));
}

static void matmul_softcap(bench *b)
{
    mica_buffer *t = temp(b, N);
    ok(mica_matmul(b->e, b->x, b->w[0], NULL, t));
    ok(mica_softcap(b->e, t, 3.0f, b->wide[0]));
}

static void gate_silu(bench *b)
{
    mica_buffer *gate = temp(b, N), *up = temp(b, N);
    ok(mica_matmul(b->e, b->x, b->w[0], NULL, gate));
    ok(mica_matmul(b->e, b->x, b->w[1], NULL, up));
    ok(mica_silu_mul(b->e, gate, up, b->wide[0]));
}

static void gate_gelu(bench *b)
{
    mica_buffer *gate = temp(b, N), *up = temp(b, N);
    ok(mica_matmul(b->e, b->x, b->w[0], NULL, gate));
    ok(mica_matmul(b->e, b->x, b->w[1], NULL, up));
    ok(mica_gelu(b->e, gate, gate));
    ok(mica_mul(b->e, gate, up, b->wide[0]));
}

static void gate_gelu_mul(bench *b)
{
    mica_buffer *gate = temp(b, N), *up = temp(b, N);
    ok(mica_matmul(b->e, b->x, b->w[0], NULL, gate));
    ok(mica_matmul(b->e, b->x, b->w[1], NULL, up));
    ok(mica_gelu_mul(b->e, gate, up, b->wide[0]));
}

static void matmul_group(bench *b)
{
    for (int i = 0; i < 3; i++)
        ok(mica_matmul(b->e, b->x, b->w[i], NULL, b->wide[i]));
}

static void norm_matmul(bench *b)
{
    mica_buffer *t = temp(b, K);
    ok(mica_rms_norm(b->e, b->x, b->gain, 1e-5f, t));
    for (int i = 0; i < 3; i++)
        ok(mica_matmul(b->e, t, b->w[i], NULL, b->wide[i]));
}

static void head_norm_rope(bench *b)
{
    mica_rope_params rope = {.mode = MICA_ROPE_NEOX, .theta = 10000.0f};
    mica_buffer *x = heads(b, b->x), *t = heads(b, temp(b, K)), *y = heads(b, b->narrow[0]);
    ok(mica_rms_norm(b->e, x, vector(b, HEAD_DIM), 1e-6f, t));
    ok(mica_rope(b->e, t, b->positions, NULL, &rope, y));
}

static void rope_kv_write(bench *b)
{
    mica_rope_params rope = {.mode = MICA_ROPE_STANDARD, .theta = 500.0f};
    mica_kv_params kv = {0};
    mica_buffer *x = heads(b, b->x), *t = heads(b, temp(b, K));
    ok(mica_rope(b->e, x, b->positions, NULL, &rope, t));
    ok(mica_kv_write(b->e, t, b->positions, NULL, NULL, &kv, b->cache));
}

/* A vector repeated over the rows. */
static void norm_scale(bench *b)
{
    mica_buffer *t = temp(b, K);
    ok(mica_rms_norm(b->e, b->x, NULL, 1e-5f, t));
    ok(mica_mul(b->e, b->gain, t, b->narrow[0]));
}

static void matmul_bias(bench *b)
{
    mica_buffer *t = temp(b, N);
    ok(mica_matmul(b->e, b->x, b->w[0], NULL, t));
    ok(mica_add(b->e, t, vector(b, N), b->wide[0]));
}

/* A stream that is added to in place, as models do it. */
static void stream_norm(bench *b)
{
    ok(mica_copy(b->e, b->x, b->narrow[1]));
    ok(mica_add(b->e, b->narrow[1], b->other, b->narrow[1]));
    ok(mica_rms_norm(b->e, b->narrow[1], b->gain, 1e-5f, b->narrow[0]));
}

static void stream_matmul(bench *b)
{
    mica_buffer *t = temp(b, N);
    ok(mica_matmul(b->e, b->other, b->w[1], NULL, b->wide[0]));
    ok(mica_matmul(b->e, b->x, b->w[0], NULL, t));
    ok(mica_add(b->e, b->wide[0], t, b->wide[0]));
}

/* Norm and rope in place on a buffer of the caller's. */
static void rope_in_place(bench *b)
{
    mica_rope_params rope = {.mode = MICA_ROPE_NEOX, .theta = 10000.0f, .rotary_dims = HEAD_DIM - 4};
    mica_buffer *q = heads(b, b->narrow[1]);
    ok(mica_copy(b->e, b->x, b->narrow[1]));
    ok(mica_rms_norm(b->e, q, vector(b, HEAD_DIM), 1e-6f, q));
    ok(mica_rope(b->e, q, b->positions, NULL, &rope, q));
}

/* Outputs that make a whole vector and a part of one, or one to a group; places that do not end with a vector. */
static void conv_with(bench *b, uint32_t groups, bool adds, bool ends)
{
    const uint64_t shape[4] = {IMAGES, CHANNELS, HEIGHT, WIDTH},
                   kernel[4] = {CHANNELS, CHANNELS / groups, 3, 3};
    const mica_conv_params params = {.low = {1, 1}, .high = {1, 1}, .groups = groups};
    mica_buffer *weight, *t[2];
    for (int i = 0; i < 2; i++) {
        ok(mica_session_temp(b->session, MICA_DTYPE_F32, 4, shape, &t[i]));
        b->temp[b->temps++] = t[i];
    }
    ok(mica_buffer_view(b->kernel, MICA_DTYPE_F32, 4, kernel, NULL, 0, &weight));
    b->temp[b->temps++] = weight;
    ok(mica_conv(b->e, b->image[0], weight, b->channel, &params, t[0]));
    if (adds)
        ok(mica_add(b->e, b->image[1], t[0], ends ? t[1] : b->image[2]));
    if (ends)
        ok(mica_relu(b->e, adds ? t[1] : t[0], b->image[2]));
}
static void conv_residual(bench *b)
{
    conv_with(b, 1, true, false);
}
static void conv_relu(bench *b)
{
    conv_with(b, 1, false, true);
}
static void conv_residual_relu(bench *b)
{
    conv_with(b, 1, true, true);
}
static void conv_few_residual(bench *b)
{
    conv_with(b, CHANNELS, true, false);
}
static void conv_few_relu(bench *b)
{
    conv_with(b, CHANNELS, true, true);
}

static const struct {
    const char *name;
    void (*encode)(bench *);
    uint64_t most_rows;
    bool weights;
} patterns[] = {
    {"norm+mul", norm_mul, MAX_ROWS, false},
    {"norm+add", norm_add, MAX_ROWS, false},
    {"residual+norm", residual_norm, MAX_ROWS, false},
    {"head-norm+rope", head_norm_rope, MAX_ROWS, false},
    {"rope+kv_write", rope_kv_write, MAX_ROWS, false},
    {"matmul+residual", matmul_residual, MAX_ROWS, true},
    {"matmul+softcap", matmul_softcap, MAX_ROWS, true},
    {"gate+up", gate_silu, MAX_ROWS, true},
    {"gate+up", gate_gelu, MAX_ROWS, true},
    {"gate+up", gate_gelu_mul, MAX_ROWS, true},
    {"matmul group", matmul_group, MAX_ROWS, true},
    {"norm+matmul", norm_matmul, 4, true},
    {"norm+mul", norm_scale, MAX_ROWS, false},
    {"matmul+residual", matmul_bias, MAX_ROWS, true},
    {"residual+norm", stream_norm, MAX_ROWS, false},
    {"matmul+residual", stream_matmul, MAX_ROWS, true},
    {"head-norm+rope", rope_in_place, MAX_ROWS, false},
    {"conv+residual", conv_residual, MAX_ROWS, false},
    {"conv+relu", conv_relu, MAX_ROWS, false},
    {"conv+relu", conv_residual_relu, MAX_ROWS, false},
    {"conv+residual", conv_few_residual, MAX_ROWS, false},
    {"conv+relu", conv_few_relu, MAX_ROWS, false},
};

/* Everything a pattern may write, as bytes. */
typedef struct outputs {
    unsigned char bytes[6][MAX_ROWS * K * 4], cache[SLOTS * HEADS * HEAD_DIM * 2];
} outputs;

static void take(bench *b, outputs *out)
{
    mica_buffer *all[6] = {b->narrow[0], b->narrow[1], b->wide[0], b->wide[1], b->wide[2], b->image[2]};
    static unsigned char poison[sizeof out->bytes[0] + sizeof out->cache]; /* enough for either */
    memset(poison, 0x7b, sizeof poison);
    memset(out, 0, sizeof *out);
    for (int i = 0; i < 6; i++) {
        mica_buffer_info info;
        ok(mica_buffer_get_info(all[i], &info));
        ok(mica_buffer_read(all[i], 0, out->bytes[i], info.byte_length));
        ok(mica_buffer_write(all[i], 0, poison, info.byte_length));
    }
    ok(mica_buffer_read(b->cache, 0, out->cache, sizeof out->cache));
    ok(mica_buffer_write(b->cache, 0, poison, sizeof out->cache));
}

/* Runs one pattern; with `fuse` also checks that the fusion was made. */
static void run(bench *b, size_t pattern, bool fuse, outputs *out)
{
    mica_recording *recording = NULL;
    ok(mica_session_begin(b->device, NULL, fuse ? MICA_SESSION_RECORD : 0, &b->session));
    b->e = mica_session_encoder(b->session);
    b->temps = 0;
    patterns[pattern].encode(b);
    for (uint32_t i = 0; i < b->temps; i++)
        mica_buffer_release(b->temp[i]);
    if (!fuse) {
        ok(mica_session_finish(b->session, 0, NULL));
    } else {
        bool found = false;
        ok(mica_session_record(b->session, MICA_FINISH_ALL, NULL, &recording));
        for (uint32_t i = 0; i < mica_recording_count(recording); i++) {
            mica_record_info info;
            ok(mica_recording_inspect(recording, i, &info));
            found = found || strcmp(info.fused, patterns[pattern].name) == 0;
        }
        if (!found)
            fail_msg("%s was not made", patterns[pattern].name);
        ok(mica_recording_replay_and_wait(recording));
        mica_recording_release(recording);
    }
    mica_session_release(b->session);
    take(b, out);
}

static void check_pattern(mica_device *device, const char *isa, size_t p, uint64_t rows, mica_dtype weight,
                          mica_dtype out)
{
    static outputs untouched, direct, fused;
    bench b;
    open_bench(&b, device, rows, weight, out);
    take(&b, &untouched); /* poisons */
    take(&b, &untouched);
    run(&b, p, false, &direct);
    assert_memory_not_equal(&direct, &untouched, sizeof direct);
    run(&b, p, true, &fused);
    if (memcmp(&direct, &fused, sizeof direct) != 0)
        fail_msg("%s on %s: %llu rows, weights %s, outputs %s: other bits", patterns[p].name, isa,
                 (unsigned long long)rows, mica_dtype_name(weight), mica_dtype_name(out));
    close_bench(&b);
}

static void test_bits(void **state)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    static const uint64_t rows[] = {1, 3, MAX_ROWS};
    static const mica_dtype weights[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_Q8_0, MICA_DTYPE_Q4_0};
    static const mica_dtype outs[] = {MICA_DTYPE_F32, MICA_DTYPE_F16};
    (void)state;
    for (int i = 0; i < 3; i++) {
        mica_device_options options = {.threads = 2};
        mica_device *device = NULL;
        snprintf(options.isa, sizeof options.isa, "%s", isas[i]);
        mica_status opened = mica_device_open("cpu", &options, &device);
        if (opened == MICA_ERR_UNSUPPORTED && i > 0) {
            print_message("%s: not on this machine\n", isas[i]);
            continue;
        }
        ok(opened);
        for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++)
            for (int r = 0; r < 3; r++)
                for (int w = 0; w < (patterns[p].weights ? 4 : 1); w++)
                    for (int o = 0; o < 2; o++)
                        if (rows[r] <= patterns[p].most_rows)
                            check_pattern(device, isas[i], p, rows[r], weights[w], outs[o]);
        mica_device_release(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
