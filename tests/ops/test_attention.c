/*
 * test_attention.c - the recipes of docs/attention.md, each against another way to the same numbers; the gradient against central differences in double; what
 * is refused, by name. On the cpu.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

#define SHAPE(...) ((const uint64_t[]){__VA_ARGS__})
#define KEPT 64

static mica_device *device;
static mica_buffer *kept[KEPT]; /* of the test that runs: let go behind it */
static uint32_t kept_count;

static int open_device(void **state)
{
    (void)state;
    return mica_device_open("cpu", NULL, &device) == MICA_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    mica_device_release(device);
    return mica_host_bytes() == 0 ? 0 : -1;
}

static int let_go(void **state)
{
    (void)state;
    while (kept_count > 0)
        mica_buffer_release(kept[--kept_count]);
    return 0;
}

static mica_buffer *keep(mica_buffer *buffer)
{
    assert_true(kept_count < KEPT);
    return kept[kept_count++] = buffer;
}

static mica_buffer *made(mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return keep(buffer);
}

static uint64_t count_of(uint32_t ndim, const uint64_t *shape)
{
    uint64_t count = 1;

    for (uint32_t i = 0; i < ndim; i++)
        count *= shape[i];
    return count;
}

static mica_buffer *of_floats(uint32_t ndim, const uint64_t *shape, const float *values)
{
    mica_buffer *buffer = made(MICA_DTYPE_F32, ndim, shape);

    must(mica_buffer_write(buffer, 0, values, count_of(ndim, shape) * sizeof *values));
    return buffer;
}

static mica_buffer *of_indices(uint32_t ndim, const uint64_t *shape, const uint32_t *values)
{
    mica_buffer *buffer = made(MICA_DTYPE_U32, ndim, shape);

    must(mica_buffer_write(buffer, 0, values, count_of(ndim, shape) * sizeof *values));
    return buffer;
}

static float *draw(test_random *random, uint64_t count)
{
    float *values = test_alloc(count, sizeof *values);

    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)test_random_normal(random);
    return values;
}

static mica_buffer *drawn(test_random *random, uint32_t ndim, const uint64_t *shape)
{
    float *values = draw(random, count_of(ndim, shape));
    mica_buffer *buffer = of_floats(ndim, shape, values);

    free(values);
    return buffer;
}

static mica_buffer *sliced(mica_buffer *buffer, uint32_t dim, uint64_t start, uint64_t count)
{
    mica_buffer *view = NULL;

    must(mica_buffer_slice(buffer, dim, start, count, &view));
    return keep(view);
}

static mica_buffer *viewed(mica_buffer *buffer, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *view = NULL;

    must(mica_buffer_view(buffer, MICA_DTYPE_F32, ndim, shape, NULL, 0, &view));
    return keep(view);
}

static mica_encoder *begin(void)
{
    mica_encoder *encoder = NULL;

    must(mica_encoder_begin(device, NULL, &encoder));
    return encoder;
}

static void finish(mica_encoder *encoder)
{
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
}

static void attend(const mica_attention_operands *operands, const mica_attention_params *params,
                   mica_buffer *y)
{
    mica_encoder *encoder = begin();

    must(mica_attention(encoder, operands, params, y));
    finish(encoder);
}

static float *fetch(mica_buffer *buffer, uint64_t count)
{
    float *values = test_alloc(count, sizeof *values);

    must(mica_buffer_read(buffer, 0, values, count * sizeof *values));
    return values;
}

/* ---- packed sequences ---- */

enum { SEQUENCES = 3, HEADS = 4, KV_HEADS = 2, DIM = 24, LONGEST = 11, TOKENS = 21, ALL_KEYS = 24 };
static const uint32_t q_start[SEQUENCES + 1] = {0, 7, 12, TOKENS},
                                          k_start[SEQUENCES + 1] = {0, 7, 13, ALL_KEYS};

/* Sequences one behind another, by a table of pages of one slot: to the bit what each gives alone. Queries are the last positions of
 * their sequence; with `bidirectional` it is cross attention. */
static void packed_is_apart(uint32_t bidirectional)
{
    test_random random = test_random_from(5);
    const mica_attention_params params = {.bidirectional = bidirectional};
    mica_buffer *q = drawn(&random, 3, SHAPE(TOKENS, HEADS, DIM)),
                *k = drawn(&random, 3, SHAPE(ALL_KEYS, KV_HEADS, DIM)),
                *v = drawn(&random, 3, SHAPE(ALL_KEYS, KV_HEADS, DIM)),
                *y = made(MICA_DTYPE_F32, 3, SHAPE(TOKENS, HEADS, DIM));
    uint32_t positions[TOKENS], sequences[TOKENS], lengths[SEQUENCES], pages[SEQUENCES * LONGEST];

    memset(pages, 0xff, sizeof pages); /* behind the end of a sequence is nothing */
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        lengths[s] = k_start[s + 1] - k_start[s];
        for (uint32_t j = 0; j < lengths[s]; j++)
            pages[s * LONGEST + j] = k_start[s] + j;
        for (uint32_t t = q_start[s]; t < q_start[s + 1]; t++) {
            sequences[t] = s;
            positions[t] = t - q_start[s] + lengths[s] - (q_start[s + 1] - q_start[s]);
        }
    }
    const mica_attention_operands packed = {.q = q,
                                            .k = viewed(k, 4, SHAPE(ALL_KEYS, 1, KV_HEADS, DIM)),
                                            .v = viewed(v, 4, SHAPE(ALL_KEYS, 1, KV_HEADS, DIM)),
                                            .positions = of_indices(1, SHAPE(TOKENS), positions),
                                            .lengths = of_indices(1, SHAPE(SEQUENCES), lengths),
                                            .sequences = of_indices(1, SHAPE(TOKENS), sequences),
                                            .pages = of_indices(2, SHAPE(SEQUENCES, LONGEST), pages)};
    attend(&packed, &params, y);
    float *got = fetch(y, TOKENS * HEADS * DIM);
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        const uint64_t tokens = q_start[s + 1] - q_start[s];
        mica_buffer *own = made(MICA_DTYPE_F32, 3, SHAPE(tokens, HEADS, DIM));
        const mica_attention_operands alone = {.q = sliced(q, 0, q_start[s], tokens),
                                               .k = sliced(k, 0, k_start[s], lengths[s]),
                                               .v = sliced(v, 0, k_start[s], lengths[s]),
                                               .positions =
                                                   of_indices(1, SHAPE(tokens), positions + q_start[s]),
                                               .lengths = of_indices(1, SHAPE(1), lengths + s)};

        attend(&alone, &params, own);
        float *want = fetch(own, tokens * HEADS * DIM);
        assert_memory_equal(got + q_start[s] * HEADS * DIM, want, tokens * HEADS * DIM * sizeof *want);
        free(want);
    }
    free(got);
}

static void test_packed(void **state)
{
    (void)state;
    packed_is_apart(0);
}

static void test_packed_cross(void **state)
{
    (void)state;
    packed_is_apart(1);
}

/* ---- latent attention ---- */

enum { LATENT = 64, ROTARY = 32, ROW = LATENT + ROTARY, NOPE = 48, VALUE = 40, SLOTS = 37, QUERIES = 5 };

/* out [rows, heads, to] = x [rows, .., from] times weight [heads, to, from], or with `back` [heads, from, to]; x is of one head or of all. */
static void project(const float *x, uint64_t x_row, uint64_t x_head, const float *weight, uint64_t rows,
                    uint64_t from, uint64_t to, bool back, float *out, uint64_t out_width)
{
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t h = 0; h < HEADS; h++)
            for (uint64_t j = 0; j < to; j++) {
                double sum = 0;

                for (uint64_t i = 0; i < from; i++)
                    sum += (double)x[r * x_row + h * x_head + i] *
                           (double)weight[h * from * to + (back ? i * to + j : j * from + i)];
                out[(r * HEADS + h) * out_width + j] = (float)sum;
            }
}

/* Copies the last ROTARY numbers of each row and head behind the others. */
static void put_rotary(const float *x, uint64_t x_row, uint64_t x_head, uint64_t rows, float *out,
                       uint64_t before)
{
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t h = 0; h < HEADS; h++)
            memcpy(out + (r * HEADS + h) * (before + ROTARY) + before, x + r * x_row + h * x_head,
                   ROTARY * sizeof *x);
}

/* Keys and values made of latents, heads apart; and over the latents as they lie, k the whole row and v its beginning. */
static void test_latent(void **state)
{
    test_random random = test_random_from(6);
    float *latent = draw(&random, SLOTS * ROW), *up_k = draw(&random, HEADS * NOPE * LATENT),
          *up_v = draw(&random, HEADS * VALUE * LATENT),
          *q = draw(&random, QUERIES * HEADS * (NOPE + ROTARY));
    float *k = test_alloc(SLOTS * HEADS * (NOPE + ROTARY), sizeof *k),
          *v = test_alloc(SLOTS * HEADS * VALUE, sizeof *v),
          *absorbed = test_alloc(QUERIES * HEADS * ROW, sizeof *absorbed),
          *mixed = test_alloc(QUERIES * HEADS * VALUE, sizeof *mixed);
    const mica_attention_params params = {.scale = 1 / sqrtf(NOPE + ROTARY)};
    const uint32_t length = SLOTS - 1, at[QUERIES] = {3, 31, 32, 34, 35};
    uint32_t slots[SLOTS];

    (void)state;
    for (uint64_t i = 0; i < HEADS * NOPE * LATENT; i++)
        up_k[i] /= 8; /* so that scores stay in the ones */
    for (uint32_t i = 0; i < SLOTS; i++)
        slots[i] = i;
    project(latent, ROW, 0, up_k, SLOTS, LATENT, NOPE, false, k, NOPE + ROTARY);
    put_rotary(latent + LATENT, ROW, 0, SLOTS, k, NOPE);
    project(latent, ROW, 0, up_v, SLOTS, LATENT, VALUE, false, v, VALUE);
    project(q, HEADS * (NOPE + ROTARY), NOPE + ROTARY, up_k, QUERIES, NOPE, LATENT, true, absorbed, ROW);
    put_rotary(q + NOPE, HEADS * (NOPE + ROTARY), NOPE + ROTARY, QUERIES, absorbed, LATENT);
    mica_buffer *positions = of_indices(1, SHAPE(QUERIES), at), *lengths = of_indices(1, SHAPE(1), &length);
    mica_buffer *plain = made(MICA_DTYPE_F32, 3, SHAPE(QUERIES, HEADS, VALUE)),
                *over = made(MICA_DTYPE_F32, 3, SHAPE(QUERIES, HEADS, LATENT)),
                *cache = made(MICA_DTYPE_F32, 3, SHAPE(SLOTS, 1, ROW));
    mica_encoder *encoder = begin();
    must(mica_kv_write(encoder, of_floats(3, SHAPE(SLOTS, 1, ROW), latent),
                       of_indices(1, SHAPE(SLOTS), slots), NULL, NULL, NULL, cache));
    finish(encoder);
    attend(&(mica_attention_operands){.q = of_floats(3, SHAPE(QUERIES, HEADS, NOPE + ROTARY), q),
                                      .k = of_floats(3, SHAPE(SLOTS, HEADS, NOPE + ROTARY), k),
                                      .v = of_floats(3, SHAPE(SLOTS, HEADS, VALUE), v),
                                      .positions = positions,
                                      .lengths = lengths},
           &params, plain);
    attend(&(mica_attention_operands){.q = of_floats(3, SHAPE(QUERIES, HEADS, ROW), absorbed),
                                      .k = cache,
                                      .v = sliced(cache, 2, 0, LATENT),
                                      .positions = positions,
                                      .lengths = lengths},
           &params, over);
    float *want = fetch(plain, QUERIES * HEADS * VALUE), *values = fetch(over, QUERIES * HEADS * LATENT);
    project(values, HEADS * LATENT, LATENT, up_v, QUERIES, LATENT, VALUE, false, mixed, VALUE);
    /* Numbers up to 8 sqrt(64), scores up to 20 off by some 40 roundings in both: 2^-24 * 40 * 64 * 2. */
    for (uint64_t i = 0; i < QUERIES * HEADS * VALUE; i++)
        assert_true(fabsf(mixed[i] - want[i]) <= 3e-4f);
    float *const all[] = {latent, up_k, up_v, q, k, v, absorbed, mixed, want, values};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* The beginning of a cache's rows as values, of every type: to the bit what a copy of it gives. */
static void test_latent_views(void **state)
{
    static const mica_dtype types[] = {MICA_DTYPE_F16,  MICA_DTYPE_BF16, MICA_DTYPE_Q8_0, MICA_DTYPE_Q4_0,
                                       MICA_DTYPE_Q4_1, MICA_DTYPE_Q5_0, MICA_DTYPE_Q5_1, MICA_DTYPE_IQ4_NL};
    uint32_t slots[SLOTS], at[QUERIES] = {0, 1, 7, 30, SLOTS - 1};
    const uint32_t length = SLOTS;

    (void)state;
    for (uint32_t i = 0; i < SLOTS; i++)
        slots[i] = i;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        test_random random = test_random_from(7 + t);
        mica_buffer *rows = drawn(&random, 3, SHAPE(SLOTS, 1, ROW)),
                    *cache = made(types[t], 3, SHAPE(SLOTS, 1, ROW)),
                    *values = made(types[t], 3, SHAPE(SLOTS, 1, LATENT)),
                    *places = of_indices(1, SHAPE(SLOTS), slots);
        mica_buffer *y[2] = {made(MICA_DTYPE_F32, 3, SHAPE(QUERIES, HEADS, LATENT)),
                             made(MICA_DTYPE_F32, 3, SHAPE(QUERIES, HEADS, LATENT))};
        mica_attention_operands operands = {.q = drawn(&random, 3, SHAPE(QUERIES, HEADS, ROW)),
                                            .k = cache,
                                            .v = sliced(cache, 2, 0, LATENT),
                                            .positions = of_indices(1, SHAPE(QUERIES), at),
                                            .lengths = of_indices(1, SHAPE(1), &length)};
        mica_encoder *encoder = begin();

        must(mica_kv_write(encoder, rows, places, NULL, NULL, NULL, cache));
        must(mica_kv_write(encoder, sliced(rows, 2, 0, LATENT), places, NULL, NULL, NULL, values));
        must(mica_attention(encoder, &operands, NULL, y[0]));
        operands.v = values;
        must(mica_attention(encoder, &operands, NULL, y[1]));
        finish(encoder);
        float *got = fetch(y[0], QUERIES * HEADS * LATENT), *want = fetch(y[1], QUERIES * HEADS * LATENT);
        assert_memory_equal(got, want, QUERIES * HEADS * LATENT * sizeof *got);
        free(got);
        free(want);
        let_go(NULL);
    }
}

/* ---- keys that an index chooses ---- */

enum { INDEX_HEADS = 3, INDEX_DIM = 16, CHOSEN = 6, BLOCK = 4, BLOCKS = 9 };

/* Scores sum over heads of weight * relu(q.k), the best of them as a list: the same as a mask that hides all others. */
static void test_index(void **state)
{
    test_random random = test_random_from(8);
    const uint64_t tokens = QUERIES, keys = SLOTS;
    const uint32_t at[QUERIES] = {2, 6, 20, 30, SLOTS - 1}, length = SLOTS;
    mica_buffer *index_q = drawn(&random, 2, SHAPE(QUERIES * INDEX_HEADS, INDEX_DIM)),
                *index_k = drawn(&random, 2, SHAPE(SLOTS, INDEX_DIM)),
                *weights = drawn(&random, 3, SHAPE(QUERIES, INDEX_HEADS, 1)),
                *products = made(MICA_DTYPE_F32, 3, SHAPE(QUERIES, INDEX_HEADS, SLOTS)),
                *scores = made(MICA_DTYPE_F32, 2, SHAPE(QUERIES, SLOTS)),
                *ids = made(MICA_DTYPE_U32, 2, SHAPE(QUERIES, CHOSEN)),
                *parts = made(MICA_DTYPE_F32, 2, SHAPE(QUERIES, CHOSEN)),
                *mask = made(MICA_DTYPE_BOOL, 2, SHAPE(QUERIES, SLOTS));
    mica_buffer *y[2] = {made(MICA_DTYPE_F32, 3, SHAPE(QUERIES, HEADS, DIM)),
                         made(MICA_DTYPE_F32, 3, SHAPE(QUERIES, HEADS, DIM))};
    float *late = test_alloc(tokens * keys, sizeof *late);
    uint8_t hides[QUERIES * SLOTS] = {0};
    uint32_t chosen[QUERIES * CHOSEN];

    (void)state;
    for (uint64_t i = 0; i < tokens * keys; i++)
        late[i] = i % keys <= at[i / keys] ? 0 : -INFINITY;
    mica_encoder *encoder = begin();
    mica_buffer *flat = viewed(products, 2, SHAPE(QUERIES * INDEX_HEADS, SLOTS));
    must(mica_matmul(encoder, index_q, index_k, NULL, flat));
    must(mica_relu(encoder, products, products));
    must(mica_mul(encoder, products, weights, products));
    must(mica_reduce(encoder, products, &(mica_reduce_params){.kind = MICA_REDUCE_SUM, .axes = 2}, scores));
    must(mica_add(encoder, scores, of_floats(2, SHAPE(QUERIES, SLOTS), late), scores));
    must(mica_route(encoder, scores, NULL, NULL, NULL, ids, parts));
    mica_attention_operands operands = {.q = drawn(&random, 3, SHAPE(QUERIES, HEADS, DIM)),
                                        .k = drawn(&random, 3, SHAPE(SLOTS, KV_HEADS, DIM)),
                                        .v = drawn(&random, 3, SHAPE(SLOTS, KV_HEADS, DIM)),
                                        .positions = of_indices(1, SHAPE(QUERIES), at),
                                        .lengths = of_indices(1, SHAPE(1), &length),
                                        .keys = ids};
    must(mica_attention(encoder, &operands, NULL, y[0]));
    finish(encoder);
    must(mica_buffer_read(ids, 0, chosen, sizeof chosen));
    for (uint64_t i = 0; i < tokens * CHOSEN; i++)
        hides[i / CHOSEN * keys + chosen[i]] = 1;
    must(mica_buffer_write(mask, 0, hides, sizeof hides));
    operands.keys = NULL;
    operands.mask = mask;
    attend(&operands, NULL, y[1]);
    float *got = fetch(y[0], tokens * HEADS * DIM), *want = fetch(y[1], tokens * HEADS * DIM);
    for (uint64_t i = 0; i < tokens * HEADS * DIM; i++) /* sums of 6 in two orders, numbers below 4 */
        assert_true(fabsf(got[i] - want[i]) <= 1e-5f);
    free(got);
    free(want);
    free(late);
}

/* A key for each block of keys: their mean, weighed by a softmax over the block of gates, dimension by dimension. */
static void test_compress(void **state)
{
    test_random random = test_random_from(9);
    float *keys = draw(&random, BLOCKS * BLOCK * DIM), *gates = draw(&random, BLOCKS * BLOCK * DIM);
    mica_buffer *k = of_floats(3, SHAPE(BLOCKS, BLOCK, DIM), keys),
                *g = of_floats(3, SHAPE(BLOCKS, BLOCK, DIM), gates), *turned = NULL,
                *part = made(MICA_DTYPE_F32, 3, SHAPE(BLOCKS, DIM, BLOCK)), *back = NULL,
                *y = made(MICA_DTYPE_F32, 2, SHAPE(BLOCKS, DIM));
    mica_encoder *encoder = begin();

    (void)state;
    must(mica_buffer_permute(g, (const uint32_t[]){0, 2, 1}, &turned));
    must(mica_buffer_permute(part, (const uint32_t[]){0, 2, 1}, &back));
    must(mica_copy(encoder, keep(turned), part));
    must(mica_softmax(encoder, part, 1, part));
    must(mica_mul(encoder, k, keep(back), k));
    must(mica_reduce(encoder, k, &(mica_reduce_params){.kind = MICA_REDUCE_SUM, .axes = 2}, y));
    finish(encoder);
    float *got = fetch(y, BLOCKS * DIM);
    for (uint64_t i = 0; i < BLOCKS * DIM; i++) {
        double sum = 0, total = 0;

        for (uint64_t j = 0; j < BLOCK; j++) {
            const uint64_t from = (i / DIM * BLOCK + j) * DIM + i % DIM;

            sum += exp((double)gates[from]) * (double)keys[from];
            total += exp((double)gates[from]);
        }
        assert_true(fabs((double)got[i] - sum / total) <= 4e-6); /* a dozen roundings of numbers below 4 */
    }
    free(got);
    free(keys);
    free(gates);
}

/* ---- the gradient ---- */

enum { G_TOKENS = 4, G_HEADS = 4, G_KV = 2, G_KEYS = 6, G_DIM = 5, G_VALUE = 3, LEAVES = 4 };

/* What is differentiated, in f64: q, k, v, sinks; the loss is the sum of dy y. */
typedef struct problem {
    mica_attention_operands forward;
    mica_attention_params params;
    mica_buffer *y, *leaf[LEAVES], *gradient[LEAVES];
    uint64_t count[LEAVES];
    double dy[G_TOKENS * G_HEADS * G_VALUE];
} problem;

static mica_buffer *wide(test_random *random, uint32_t ndim, const uint64_t *shape, double spread)
{
    mica_buffer *buffer = made(MICA_DTYPE_F64, ndim, shape);

    for (uint64_t i = 0; i < count_of(ndim, shape); i++) {
        const double value = spread * test_random_normal(random);

        must(mica_buffer_write(buffer, i * sizeof value, &value, sizeof value));
    }
    return buffer;
}

static double loss(const problem *p)
{
    double y[G_TOKENS * G_HEADS * G_VALUE], sum = 0;

    attend(&p->forward, &p->params, p->y);
    must(mica_buffer_read(p->y, 0, y, sizeof y));
    for (uint64_t i = 0; i < sizeof y / sizeof *y; i++)
        sum += y[i] * p->dy[i];
    return sum;
}

static void differentiate(problem *p)
{
    const mica_attention_operands *f = &p->forward;
    mica_buffer *dy = made(MICA_DTYPE_F64, 3, SHAPE(G_TOKENS, G_HEADS, G_VALUE));
    mica_encoder *encoder = begin();

    must(mica_buffer_write(dy, 0, p->dy, sizeof p->dy));
    must(mica_attention(encoder, f, &p->params, p->y));
    must(mica_attention_backward(encoder,
                                 &(mica_attention_backward_operands){.q = f->q,
                                                                     .k = f->k,
                                                                     .v = f->v,
                                                                     .positions = f->positions,
                                                                     .lengths = f->lengths,
                                                                     .mask = f->mask,
                                                                     .sinks = f->sinks,
                                                                     .slopes = f->slopes,
                                                                     .y = p->y,
                                                                     .lse = f->lse,
                                                                     .dy = dy,
                                                                     .dq = p->gradient[0],
                                                                     .dk = p->gradient[1],
                                                                     .dv = p->gradient[2],
                                                                     .dsinks = p->gradient[3]},
                                 &p->params));
    finish(encoder);
}

/* Central differences with step h are off by h^2 times third derivatives, some 1e-10 * 10, and by roundings of the loss, 1e-15 / h. */
static void check_leaf(problem *p, uint32_t leaf)
{
    const double h = 1e-5;

    for (uint64_t i = 0; i < p->count[leaf]; i++) {
        double here, moved, side[2], got;

        must(mica_buffer_read(p->leaf[leaf], i * sizeof here, &here, sizeof here));
        for (int s = 0; s < 2; s++) {
            moved = here + (s == 0 ? h : -h);
            must(mica_buffer_write(p->leaf[leaf], i * sizeof here, &moved, sizeof here));
            side[s] = loss(p);
        }
        must(mica_buffer_write(p->leaf[leaf], i * sizeof here, &here, sizeof here));
        must(mica_buffer_read(p->gradient[leaf], i * sizeof got, &got, sizeof got));
        if (!(fabs(got - (side[0] - side[1]) / (2 * h)) <= 5e-9))
            fail_msg("leaf %u, element %llu: %.12g, by differences %.12g", leaf, (unsigned long long)i, got,
                     (side[0] - side[1]) / (2 * h));
    }
}

static void check_gradient(mica_attention_params params, bool more, bool hides)
{
    test_random random = test_random_from(10);
    const uint32_t at[G_TOKENS] = {1, 3, 4, 5}, length = G_KEYS;
    const uint64_t shape[LEAVES][3] = {
        {G_TOKENS, G_HEADS, G_DIM}, {G_KEYS, G_KV, G_DIM}, {G_KEYS, G_KV, G_VALUE}, {G_HEADS}};
    problem p = {.params = params, .y = made(MICA_DTYPE_F64, 3, SHAPE(G_TOKENS, G_HEADS, G_VALUE))};
    mica_buffer *mask = made(MICA_DTYPE_BOOL, 2, SHAPE(G_TOKENS, G_KEYS));
    const uint8_t see[G_TOKENS * G_KEYS] = {1, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1,
                                            0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1};

    must(mica_buffer_write(mask, 0, see, sizeof see));
    for (uint32_t i = 0; i < LEAVES; i++) {
        p.leaf[i] = wide(&random, i < 3 ? 3 : 1, shape[i], 1);
        p.gradient[i] = i < 3 || more ? made(MICA_DTYPE_F64, i < 3 ? 3 : 1, shape[i]) : NULL;
        p.count[i] = count_of(i < 3 ? 3 : 1, shape[i]);
    }
    for (uint64_t i = 0; i < sizeof p.dy / sizeof *p.dy; i++)
        p.dy[i] = test_random_normal(&random);
    p.forward = (mica_attention_operands){.q = p.leaf[0],
                                          .k = p.leaf[1],
                                          .v = p.leaf[2],
                                          .positions = of_indices(1, SHAPE(G_TOKENS), at),
                                          .lengths = of_indices(1, SHAPE(1), &length),
                                          .sinks = more ? p.leaf[3] : NULL,
                                          .slopes = more ? wide(&random, 1, SHAPE(G_HEADS), 0.2) : NULL,
                                          .lse = made(MICA_DTYPE_F64, 2, SHAPE(G_TOKENS, G_HEADS))};
    p.forward.mask = hides ? mask : more ? wide(&random, 3, SHAPE(G_HEADS, G_TOKENS, G_KEYS), 1) : NULL;
    differentiate(&p);
    for (uint32_t i = 0; i < (more ? LEAVES : LEAVES - 1); i++)
        check_leaf(&p, i);
    let_go(NULL);
}

static void test_gradient(void **state)
{
    (void)state;
    check_gradient((mica_attention_params){0}, false, false);
    check_gradient((mica_attention_params){.bidirectional = 1, .scale = 0.7f}, true, false);
    check_gradient((mica_attention_params){.window = 3, .softcap = 1.5f}, true, true);
}

enum { N_TOKENS = 150, N_HEADS = 2, N_DIM = 20, N_WINDOW = 10, N_BAD = 100 };

/* The three gradients of a window over N_TOKENS keys, one after the other. */
static float *windowed(float *k, float *v)
{
    test_random random = test_random_from(11);
    const uint64_t shape[3] = {N_TOKENS, N_HEADS, N_DIM}, count = count_of(3, shape);
    const mica_attention_params params = {.window = N_WINDOW};
    uint32_t at[N_TOKENS], length = N_TOKENS;
    float *all = test_alloc(3 * count, sizeof *all);
    mica_buffer *gradient[3];

    for (uint32_t i = 0; i < N_TOKENS; i++)
        at[i] = i;
    for (int i = 0; i < 3; i++)
        gradient[i] = made(MICA_DTYPE_F32, 3, shape);
    const mica_attention_operands f = {.q = drawn(&random, 3, shape),
                                       .k = of_floats(3, shape, k),
                                       .v = of_floats(3, shape, v),
                                       .positions = of_indices(1, SHAPE(N_TOKENS), at),
                                       .lengths = of_indices(1, SHAPE(1), &length),
                                       .lse = made(MICA_DTYPE_F32, 2, shape)};
    const mica_attention_backward_operands b = {.q = f.q,
                                                .k = f.k,
                                                .v = f.v,
                                                .positions = f.positions,
                                                .lengths = f.lengths,
                                                .y = made(MICA_DTYPE_F32, 3, shape),
                                                .lse = f.lse,
                                                .dy = drawn(&random, 3, shape),
                                                .dq = gradient[0],
                                                .dk = gradient[1],
                                                .dv = gradient[2]};
    mica_encoder *encoder = begin();

    must(mica_attention(encoder, &f, &params, b.y));
    must(mica_attention_backward(encoder, &b, &params));
    finish(encoder);
    for (int i = 0; i < 3; i++)
        must(mica_buffer_read(gradient[i], 0, all + (uint64_t)i * count, count * sizeof *all));
    return all;
}

/* A key that is not finite changes no bit of queries that do not see it, nor of keys that none of those who do sees. */
static void test_gradient_apart(void **state)
{
    const uint64_t row = (uint64_t)N_HEADS * N_DIM, count = N_TOKENS * row;
    test_random random = test_random_from(12);
    float *k = draw(&random, count), *v = draw(&random, count), *clean = windowed(k, v);

    (void)state;
    k[N_BAD * row + 3] = NAN;
    v[N_BAD * row + 5] = INFINITY;
    float *got = windowed(k, v);
    for (uint64_t i = 0; i < 3 * count; i++) {
        const uint64_t token = i % count / row, from = i < count ? N_BAD : N_BAD - N_WINDOW + 1;

        if (token >= from && token < N_BAD + N_WINDOW)
            continue;
        if (memcmp(&got[i], &clean[i], sizeof *got) != 0)
            fail_msg("gradient %u of token %u: %g, without the key %g", (unsigned)(i / count),
                     (unsigned)token, (double)got[i], (double)clean[i]);
    }
    free(k);
    free(v);
    free(clean);
    free(got);
}

/* ---- what is refused ---- */

static mica_status try_attention(mica_dtype q, mica_dtype k, mica_dtype y, mica_buffer *lse,
                                 mica_buffer *sinks)
{
    const mica_attention_operands operands = {.q = made(q, 3, SHAPE(2, 2, 32)),
                                              .k = made(k, 3, SHAPE(4, 1, 32)),
                                              .v = made(k, 3, SHAPE(4, 1, 32)),
                                              .positions = made(MICA_DTYPE_U32, 1, SHAPE(2)),
                                              .lengths = made(MICA_DTYPE_U32, 1, SHAPE(1)),
                                              .sinks = sinks,
                                              .lse = lse};
    mica_encoder *encoder = begin();
    const mica_status status = mica_attention(encoder, &operands, NULL, made(y, 3, SHAPE(2, 2, 32)));

    mica_encoder_release(encoder);
    return status;
}

static mica_status try_backward(mica_dtype dtype, const mica_attention_params *params, bool sinks,
                                bool dsinks)
{
    const uint64_t q[3] = {2, 2, 8}, k[3] = {4, 1, 8}, heads = 2;
    const mica_attention_backward_operands operands = {.q = made(dtype, 3, q),
                                                       .k = made(dtype, 3, k),
                                                       .v = made(dtype, 3, k),
                                                       .positions = made(MICA_DTYPE_U32, 1, SHAPE(2)),
                                                       .lengths = made(MICA_DTYPE_U32, 1, SHAPE(1)),
                                                       .sinks = sinks ? made(dtype, 1, &heads) : NULL,
                                                       .y = made(dtype, 3, q),
                                                       .lse = made(MICA_DTYPE_F32, 2, SHAPE(2, 2)),
                                                       .dy = made(dtype, 3, q),
                                                       .dq = made(dtype, 3, q),
                                                       .dk = made(dtype, 3, k),
                                                       .dv = made(dtype, 3, k),
                                                       .dsinks = dsinks ? made(dtype, 1, &heads) : NULL};
    mica_encoder *encoder = begin();
    const mica_status status = mica_attention_backward(encoder, &operands, params);

    mica_encoder_release(encoder);
    return status;
}

static void test_refused(void **state)
{
    const mica_dtype f32 = MICA_DTYPE_F32, f64 = MICA_DTYPE_F64;

    (void)state;
    refused(try_attention(f64, f32, f64, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "k is f32, but q is f64");
    refused(try_attention(f32, f32, f64, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "y is f64, but q is f32");
    refused(try_attention(f64, f64, f64, made(f32, 2, SHAPE(2, 2)), NULL), MICA_ERR_INVALID_ARGUMENT,
            "lse is f32");
    refused(try_attention(f32, f32, f32, NULL, made(f64, 1, SHAPE(2))), MICA_ERR_INVALID_ARGUMENT,
            "sinks is f64");
    refused(try_attention(f32, MICA_DTYPE_MXFP4, f32, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "k is mxfp4");
    let_go(NULL);
    refused(mica_attention_backward(NULL, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "operands is NULL");
    refused(try_backward(f32, &(mica_attention_params){.ring = 1}, false, false), MICA_ERR_INVALID_ARGUMENT,
            "params.ring");
    refused(try_backward(f32, &(mica_attention_params){.softcap = -1}, false, false),
            MICA_ERR_INVALID_ARGUMENT, "params.softcap");
    let_go(NULL);
    refused(try_backward(f32, NULL, false, true), MICA_ERR_INVALID_ARGUMENT, "dsinks");
    refused(try_backward(f64, NULL, false, false), MICA_ERR_INVALID_ARGUMENT, "lse is f32, but q is f64");
    must(try_backward(f32, NULL, true, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_packed, let_go),
        cmocka_unit_test_teardown(test_packed_cross, let_go),
        cmocka_unit_test_teardown(test_latent, let_go),
        cmocka_unit_test_teardown(test_latent_views, let_go),
        cmocka_unit_test_teardown(test_index, let_go),
        cmocka_unit_test_teardown(test_compress, let_go),
        cmocka_unit_test_teardown(test_gradient, let_go),
        cmocka_unit_test_teardown(test_gradient_apart, let_go),
        cmocka_unit_test_teardown(test_refused, let_go),
    };
    return cmocka_run_group_tests_name("attention", tests, open_device, close_device);
}
