/*
 * test_cache_codes.c - caches made by kv_write and decoded by embedding, of every type, on every device; affine codes of 4 bits in a rotated basis,
 * which are a rotation and a q4_1 cache (docs/decisions/022-no-affine-cache.md), beside the format itself, from its formula.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "oracle/oracle_blocks.h"
#include "oracle/oracle_number.h"
#include "support/each_device.h"
#include "support/random.h"

enum { TOKENS = 40, HEADS = 2, D = 128, ALL = TOKENS * HEADS * D };

static mica_buffer *made(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                         const void *bytes)
{
    mica_buffer *buffer = NULL;
    mica_buffer_info info;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    must(mica_buffer_get_info(buffer, &info));
    if (bytes != NULL)
        must(mica_buffer_write(buffer, 0, bytes, info.byte_length));
    return buffer;
}

/* As they come; far apart in size from token to token; one of 64 far out. */
static void draw(test_random *random, int kind, float *x)
{
    for (uint32_t i = 0; i < ALL; i++) {
        const double size = kind == 1 ? exp2(i / D % 20 - 10.0) : kind == 2 && i % 64 == 7 ? 30 : 1;

        x[i] = (float)(size * test_random_normal(random));
    }
}

/* The mean over heads of the squared error by the squares. */
static double relative_error(const float *x, const float *y)
{
    double sum = 0;

    for (uint32_t h = 0; h < ALL; h += D) {
        double error = 0, size = 0;

        for (uint32_t i = h; i < h + D; i++) {
            error += pow((double)y[i] - (double)x[i], 2);
            size += pow((double)x[i], 2);
        }
        sum += error / size;
    }
    return sum * D / ALL;
}

/* Token t goes to slot TOKENS - 1 - t; adds to the encoder, gives the cache. */
static mica_buffer *add_cache(mica_device *device, mica_dtype dtype, mica_buffer *x, mica_buffer *slots)
{
    mica_buffer *cache = made(device, dtype, 3, SHAPE(TOKENS, HEADS, D), NULL);

    must(mica_kv_write(encoder, x, slots, NULL, NULL, NULL, cache));
    return cache;
}

static mica_buffer *made_slots(mica_device *device)
{
    uint32_t slots[TOKENS];

    for (uint32_t t = 0; t < TOKENS; t++)
        slots[t] = TOKENS - 1 - t;
    return made(device, MICA_DTYPE_U32, 1, SHAPE(TOKENS), slots);
}

/* y [TOKENS, HEADS, D] = the tokens of the cache: its slots are rows of a table. */
static void add_decode(mica_buffer *cache, mica_buffer *slots, mica_buffer *y)
{
    mica_buffer_info info;
    mica_buffer *table, *rows;

    must(mica_buffer_get_info(cache, &info));
    must(mica_buffer_view(cache, info.dtype, 2, SHAPE(TOKENS, HEADS * D), NULL, 0, &table));
    must(mica_buffer_view(y, MICA_DTYPE_F32, 2, SHAPE(TOKENS, HEADS * D), NULL, 0, &rows));
    must(mica_embedding(encoder, table, slots, rows));
    mica_buffer_release(table);
    mica_buffer_release(rows);
}

/* What comes out is what the oracle reads in the bytes of the cache: a decoded value has at most six sums and two products. */
static void check_bytes(mica_buffer *cache, mica_dtype dtype, const float *y)
{
    static uint8_t bytes[4 * ALL];
    const uint64_t row = HEADS * D / oracle_block_values(dtype) * oracle_block_bytes(dtype);
    double value[HEADS * D], magnitude[HEADS * D];

    must(mica_buffer_read(cache, 0, bytes, TOKENS * row));
    for (uint32_t t = 0; t < TOKENS; t++) {
        oracle_decode_row(dtype, bytes + (TOKENS - 1 - t) * row, HEADS * D, NULL, value, magnitude);
        for (uint32_t i = 0; i < HEADS * D; i++)
            if (!(fabs((double)y[t * HEADS * D + i] - value[i]) <= 8 * 0x1p-24 * magnitude[i]))
                fail_msg("%s, token %u, value %u: %.9g, the bytes say %.9g", mica_dtype_name(dtype), t, i,
                         (double)y[t * HEADS * D + i], value[i]);
    }
}

static void test_round_trip(void **state)
{
    static const mica_dtype types[] = {
        MICA_DTYPE_F32,    MICA_DTYPE_F16,    MICA_DTYPE_BF16,   MICA_DTYPE_Q8_0,
        MICA_DTYPE_Q4_0,   MICA_DTYPE_Q4_1,   MICA_DTYPE_Q5_0,   MICA_DTYPE_Q5_1,
        MICA_DTYPE_IQ4_NL, MICA_DTYPE_TURBO2, MICA_DTYPE_TURBO3, MICA_DTYPE_TURBO2_5,
        MICA_DTYPE_TURBO4, MICA_DTYPE_TURBO5, MICA_DTYPE_TURBO6, MICA_DTYPE_TURBO8};
    static float x[ALL], y[ALL];
    test_random random = test_random_from(11);

    (void)state;
    draw(&random, 0, x);
    for (uint32_t t = 0; t < sizeof types / sizeof *types; t++) {
        ON_EACH(device)
        {
            mica_buffer *from = made(device, MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, D), x),
                        *to = made(device, MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, D), NULL),
                        *slots = made_slots(device), *cache = add_cache(device, types[t], from, slots);

            add_decode(cache, slots, to);
            end();
            must(mica_buffer_read(to, 0, y, sizeof y));
            check_bytes(cache, types[t], y);
            mica_buffer_release(from);
            mica_buffer_release(to);
            mica_buffer_release(slots);
            mica_buffer_release(cache);
        }
    }
}

/* ---- affine codes of 4 bits in a rotated basis ---- */

/* H (s x) / sqrt(D) of a head, or back again. */
static void turn(const double *signs, bool undo, const double *x, double *y)
{
    for (unsigned i = 0; i < D; i++) {
        y[i] = 0;
        for (unsigned j = 0; j < D; j++)
            y[i] += (__builtin_popcount(i & j) % 2 != 0 ? -1 : 1) * (undo ? 1 : signs[j]) * x[j] / sqrt(D);
        y[i] *= undo ? signs[i] : 1;
    }
}

/* The format: of each group scale = (greatest - least) / 15, bias = least, both f16 if they take 16 bits; codes are the nearest. */
static void round_affine(double *y, unsigned group, bool narrow)
{
    for (unsigned first = 0; first < D; first += group) {
        double least = y[first], greatest = y[first];

        for (unsigned i = first; i < first + group; i++) {
            least = fmin(least, y[i]);
            greatest = fmax(greatest, y[i]);
        }
        double scale = (greatest - least) / 15;
        for (unsigned i = first; i < first + group; i++) {
            const double code = fmin(fmax(floor((y[i] - least) / scale + 0.5), 0), 15);

            y[i] = narrow
                       ? code * oracle_from_f16(oracle_to_f16(scale)) + oracle_from_f16(oracle_to_f16(least))
                       : code * scale + least;
        }
    }
}

static double affine_error(const float *x, const double *signs, unsigned group, bool narrow)
{
    static float back[ALL];
    double own[D], turned[D];

    for (uint32_t h = 0; h < ALL; h += D) {
        for (uint32_t i = 0; i < D; i++)
            own[i] = (double)x[h + i];
        turn(signs, false, own, turned);
        round_affine(turned, group, narrow);
        turn(signs, true, turned, own);
        for (uint32_t i = 0; i < D; i++)
            back[h + i] = (float)own[i];
    }
    return relative_error(x, back);
}

static void draw_signs(test_random *random, double *signs, float *narrow)
{
    for (int i = 0; i < D; i++)
        narrow[i] = (float)(signs[i] = test_random_one_in(random, 2) ? 1 : -1);
}

/* Rotate, write, decode, rotate back; turbo types rotate by themselves. */
static double recipe_error(mica_device *device, mica_dtype dtype, const float *x, const float *signs)
{
    static const mica_hadamard_params undo = {0, 1};
    static float y[ALL];
    mica_buffer *from = made(device, MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, D), x),
                *to = made(device, MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, D), NULL),
                *factors = made(device, MICA_DTYPE_F32, 1, SHAPE(D), signs), *slots = made_slots(device);

    if (dtype == MICA_DTYPE_Q4_1)
        must(mica_hadamard(encoder, from, factors, NULL, from));
    mica_buffer *cache = add_cache(device, dtype, from, slots);
    add_decode(cache, slots, to);
    if (dtype == MICA_DTYPE_Q4_1)
        must(mica_hadamard(encoder, to, factors, &undo, to));
    end();
    must(mica_buffer_read(to, 0, y, sizeof y));
    mica_buffer_release(from);
    mica_buffer_release(to);
    mica_buffer_release(factors);
    mica_buffer_release(slots);
    mica_buffer_release(cache);
    return relative_error(x, y);
}

/* Groups of 32 with two halves are 5 bits a value, as q4_1 is, and leave what they leave, whether scales are f32 or f16: to 1 %, by ties and roundings
 * of scales. Groups of 64 are 4.5 bits: turbo4 leaves less in 4.25. */
static void test_rotated_affine(void **state)
{
    static float x[ALL];
    float narrow[D];
    double signs[D];
    test_random random = test_random_from(12);

    (void)state;
    draw_signs(&random, signs, narrow);
    for (int kind = 0; kind < 3; kind++) {
        draw(&random, kind, x);
        const double wide = affine_error(x, signs, 32, false), same = affine_error(x, signs, 32, true),
                     longer = affine_error(x, signs, 64, true);

        ON_EACH(device)
        {
            const double error = recipe_error(device, MICA_DTYPE_Q4_1, x, narrow);

            must(mica_encoder_begin(device, NULL, &encoder));
            const double turbo = recipe_error(device, MICA_DTYPE_TURBO4, x, narrow);
            print_message(
                "kind %d: q4_1 leaves %.5f, affine4 %.5f, of f32 scales %.5f, of 64 %.5f; turbo4 %.5f\n",
                kind, error, same, wide, longer, turbo);
            assert_true(error <= 1.01 * wide && error <= 1.01 * same && error >= 0.99 * same);
            assert_true(kind == 2 || turbo < longer);
        }
    }
}

/* Attention of q in the basis of the caches, y turned back, beside attention over what the caches say, in double. */
static void attend(const float *q, const float *k, const float *v, unsigned head, double *y, double *stray)
{
    double score[TOKENS], most = -(double)INFINITY, total = 0, size = 0, top = 0;

    for (unsigned t = 0; t < TOKENS; t++) {
        double absolute = 0;

        score[t] = 0;
        for (unsigned i = 0; i < D; i++) {
            const double term = (double)q[head * D + i] * (double)k[(t * HEADS + head) * D + i] / sqrt(D);

            score[t] += term;
            absolute += fabs(term);
            top = fmax(top, fabs((double)v[(t * HEADS + head) * D + i]));
        }
        most = fmax(most, score[t]);
        size = fmax(size, absolute);
    }
    for (unsigned t = 0; t < TOKENS; t++)
        total += score[t] = exp(score[t] - most);
    for (unsigned i = 0; i < D; i++) {
        y[i] = 0;
        for (unsigned t = 0; t < TOKENS; t++)
            y[i] += score[t] / total * (double)v[(t * HEADS + head) * D + i];
    }
    /* q, k and v are turned and turned back: seven sums and a product each, of sqrt(D) times the greatest at most; scores are sums of D. */
    *stray = 0x1p-24 * top * (2 * size * (24 + sqrt(D) / 4) + 8 * sqrt(D) + sqrt(TOKENS));
}

typedef struct attention_case {
    mica_buffer *q, *k, *v, *y, *cache_k, *cache_v, *out_k, *out_v, *factors, *slots, *position, *length;
} attention_case;

static void add_attention(mica_device *device, attention_case *c)
{
    static const mica_hadamard_params undo = {0, 1};
    mica_buffer *const turned[] = {c->q, c->k, c->v};

    for (int i = 0; i < 3; i++)
        must(mica_hadamard(encoder, turned[i], c->factors, NULL, turned[i]));
    c->cache_k = add_cache(device, MICA_DTYPE_Q4_1, c->k, c->slots);
    c->cache_v = add_cache(device, MICA_DTYPE_Q4_1, c->v, c->slots);
    const mica_attention_operands operands = {
        .q = c->q, .k = c->cache_k, .v = c->cache_v, .positions = c->position, .lengths = c->length};
    must(mica_attention(encoder, &operands, NULL, c->y));
    must(mica_hadamard(encoder, c->y, c->factors, &undo, c->y));
    add_decode(c->cache_k, c->slots, c->out_k);
    add_decode(c->cache_v, c->slots, c->out_v);
    must(mica_hadamard(encoder, c->out_k, c->factors, &undo, c->out_k));
    must(mica_hadamard(encoder, c->out_v, c->factors, &undo, c->out_v));
    end();
}

static void test_rotated_affine_attention(void **state)
{
    static float q[HEADS * D], k[ALL], v[ALL], y[HEADS * D];
    const uint32_t position = TOKENS - 1, length = TOKENS;
    float narrow[D];
    double signs[D], wanted[D], stray;
    test_random random = test_random_from(13);

    (void)state;
    ON_EACH(device)
    {
        draw_signs(&random, signs, narrow);
        draw(&random, 0, k);
        draw(&random, 2, v);
        for (int i = 0; i < HEADS * D; i++)
            q[i] = (float)test_random_normal(&random);
        const uint64_t rows[3] = {TOKENS, HEADS, D}, one[3] = {1, HEADS, D};
        attention_case c = {.q = made(device, MICA_DTYPE_F32, 3, one, q),
                            .k = made(device, MICA_DTYPE_F32, 3, rows, k),
                            .v = made(device, MICA_DTYPE_F32, 3, rows, v),
                            .y = made(device, MICA_DTYPE_F32, 3, one, NULL),
                            .out_k = made(device, MICA_DTYPE_F32, 3, rows, NULL),
                            .out_v = made(device, MICA_DTYPE_F32, 3, rows, NULL),
                            .factors = made(device, MICA_DTYPE_F32, 1, SHAPE(D), narrow),
                            .slots = made_slots(device),
                            .position = made(device, MICA_DTYPE_U32, 1, SHAPE(1), &position),
                            .length = made(device, MICA_DTYPE_U32, 1, SHAPE(1), &length)};
        add_attention(device, &c);
        must(mica_buffer_read(c.y, 0, y, sizeof y));
        must(mica_buffer_read(c.out_k, 0, k, sizeof k));
        must(mica_buffer_read(c.out_v, 0, v, sizeof v));
        for (unsigned h = 0; h < HEADS; h++) {
            attend(q, k, v, h, wanted, &stray);
            for (unsigned i = 0; i < D; i++)
                if (!(fabs((double)y[h * D + i] - wanted[i]) <= stray))
                    fail_msg("head %u, value %u: %.9g, wanted %.9g within %g", h, i, (double)y[h * D + i],
                             wanted[i], stray);
        }
        mica_buffer *const all[] = {c.q,     c.k,     c.v,       c.y,     c.cache_k,  c.cache_v,
                                    c.out_k, c.out_v, c.factors, c.slots, c.position, c.length};
        for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
            mica_buffer_release(all[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_rotated_affine),
        cmocka_unit_test(test_rotated_affine_attention),
    };

    return cmocka_run_group_tests_name("cache_codes", tests, open_devices, close_devices);
}
