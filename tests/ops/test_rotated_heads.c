/*
 * test_rotated_heads.c - caches of heads that are no multiple of 64, in a rotated basis (docs/decisions/025): heads of 96, turned in runs of 32 values, in
 * caches of q4_1. On every device that there is.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "support/each_device.h"
#include "support/random.h"

enum { TOKENS = 40, HEADS = 2, D = 96, RUN = 32, ONE = HEADS * D, ALL = TOKENS * ONE };

static mica_buffer *made(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                         const void *data)
{
    mica_buffer *buffer = NULL;
    mica_buffer_info info;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    must(mica_buffer_get_info(buffer, &info));
    if (data != NULL)
        must(mica_buffer_write(buffer, 0, data, info.byte_length));
    return buffer;
}

/* x [tokens, HEADS, D] where it lies; without signs nothing. */
static void turn(mica_buffer *x, uint64_t tokens, mica_buffer *signs, uint32_t undo)
{
    mica_buffer *runs = NULL;

    if (signs == NULL)
        return;
    must(mica_buffer_view(x, MICA_DTYPE_F32, 4, SHAPE(tokens, HEADS, D / RUN, RUN), NULL, 0, &runs));
    must(mica_hadamard(encoder, runs, signs, &(mica_hadamard_params){0, undo}, runs));
    mica_buffer_release(runs);
}

/* A cache of x, turned; `out` gets what it holds, turned back. */
static mica_buffer *cached(mica_device *device, mica_dtype dtype, mica_buffer *x, mica_buffer *signs,
                           mica_buffer *slots, mica_buffer *out)
{
    mica_buffer *cache = made(device, dtype, 3, SHAPE(TOKENS, HEADS, D), NULL), *table = NULL, *rows = NULL;

    turn(x, TOKENS, signs, 0);
    must(mica_kv_write(encoder, x, slots, NULL, NULL, NULL, cache));
    must(mica_buffer_view(cache, dtype, 2, SHAPE(TOKENS, ONE), NULL, 0, &table));
    must(mica_buffer_view(out, MICA_DTYPE_F32, 2, SHAPE(TOKENS, ONE), NULL, 0, &rows));
    must(mica_embedding(encoder, table, slots, rows));
    turn(out, TOKENS, signs, 1);
    mica_buffer_release(table);
    mica_buffer_release(rows);
    return cache;
}

/* Normal numbers, one in 64 of them thirty times as great. */
static void draw(test_random *random, int count, float *x)
{
    for (int i = 0; i < count; i++)
        x[i] = (float)((test_random_one_in(random, 64) ? 30 : 1) * test_random_normal(random));
}

static double distance(const float *a, const float *b, int count)
{
    double off = 0, size = 0;

    for (int i = 0; i < count; i++) {
        off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)a[i] * (double)a[i];
    }
    return off / size;
}

static void release(mica_buffer *const *buffers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mica_buffer_release(buffers[i]);
}

typedef struct drawn {
    float k[ALL], v[ALL], q[ONE], signs[RUN];
    uint32_t slots[TOKENS], last, length;
} drawn;

static void draw_all(drawn *d)
{
    test_random random = test_random_from(31);

    draw(&random, ALL, d->k);
    draw(&random, ALL, d->v);
    for (int i = 0; i < ONE; i++)
        d->q[i] = (float)test_random_normal(&random);
    for (int i = 0; i < RUN; i++)
        d->signs[i] = test_random_one_in(&random, 2) ? 1 : -1;
    for (uint32_t t = 0; t < TOKENS; t++)
        d->slots[t] = t;
    d->last = TOKENS - 1;
    d->length = TOKENS;
}

/* Attention over the caches with q turned and y turned back is attention over what they hold; of outliers a fifth is lost of what q4_0 loses. */
static void test_heads(void **state)
{
    static drawn d;
    static float keys[ALL], plain[ALL], y[ONE], wanted[ONE];

    (void)state;
    draw_all(&d);
    ON_EACH(device)
    {
        const uint64_t rows[] = {TOKENS, HEADS, D}, one[] = {1, HEADS, D};
        mica_buffer *k = made(device, MICA_DTYPE_F32, 3, rows, d.k),
                    *v = made(device, MICA_DTYPE_F32, 3, rows, d.v),
                    *same = made(device, MICA_DTYPE_F32, 3, rows, d.k),
                    *q = made(device, MICA_DTYPE_F32, 3, one, d.q),
                    *held_k = made(device, MICA_DTYPE_F32, 3, rows, NULL),
                    *held_v = made(device, MICA_DTYPE_F32, 3, rows, NULL),
                    *held = made(device, MICA_DTYPE_F32, 3, rows, NULL),
                    *coded = made(device, MICA_DTYPE_F32, 3, one, NULL),
                    *decoded = made(device, MICA_DTYPE_F32, 3, one, NULL),
                    *signs = made(device, MICA_DTYPE_F32, 1, SHAPE(RUN), d.signs),
                    *slots = made(device, MICA_DTYPE_U32, 1, SHAPE(TOKENS), d.slots),
                    *last = made(device, MICA_DTYPE_U32, 1, SHAPE(1), &d.last),
                    *length = made(device, MICA_DTYPE_U32, 1, SHAPE(1), &d.length);
        mica_buffer *cache_k = cached(device, MICA_DTYPE_Q4_1, k, signs, slots, held_k),
                    *cache_v = cached(device, MICA_DTYPE_Q4_1, v, signs, slots, held_v),
                    *straight = cached(device, MICA_DTYPE_Q4_0, same, NULL, slots, held);
        const mica_attention_operands
            of_codes = {.q = q, .k = cache_k, .v = cache_v, .positions = last, .lengths = length},
            of_held = {.q = q, .k = held_k, .v = held_v, .positions = last, .lengths = length};

        must(mica_attention(encoder, &of_held, NULL, decoded));
        turn(q, 1, signs, 0);
        must(mica_attention(encoder, &of_codes, NULL, coded));
        turn(coded, 1, signs, 1);
        end();
        must(mica_buffer_read(held_k, 0, keys, sizeof keys));
        must(mica_buffer_read(held, 0, plain, sizeof plain));
        must(mica_buffer_read(coded, 0, y, sizeof y));
        must(mica_buffer_read(decoded, 0, wanted, sizeof wanted));
        assert_true(distance(d.k, keys, ALL) < 0.2 * distance(d.k, plain, ALL));
        assert_true(distance(wanted, y, ONE) < 1e-9);
        mica_buffer *const all[] = {k,       v,     same,  q,      held_k,  held_v,  held,     coded,
                                    decoded, signs, slots, length, cache_k, cache_v, straight, last};
        release(all, sizeof all / sizeof *all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads)};

    return cmocka_run_group_tests_name("rotated_heads", tests, open_devices, close_devices);
}
