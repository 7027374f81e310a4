/*
 * test_attention_bits.c - the bits of a token's attention are its own: whatever the page size, the ring, the tokens per
 * call, the other sequences in it, and the threads, for every type of cache. Pages before the window are taken away as
 * the window passes them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conform/conform_suite.h"
#include "support/status.h"
#include "support/tensor.h"

#define TOKENS 150u
#define HEADS 6u
#define KV_HEADS 2u
#define SEQUENCES 3u
#define NOWHERE 4294967295u

typedef enum cache_kind { FLAT, RING, PAGED } cache_kind;

typedef struct way {
    cache_kind kind;
    uint32_t page_slots, chunk, others; /* others: sequences that run beside, of other lengths */
} way;

/* The first is what the others must be equal to. */
static const way ways[] = {
    {FLAT, 0, TOKENS, 0}, {FLAT, 0, 1, 0},   {FLAT, 0, 7, 0},   {FLAT, 0, 64, 0},      {RING, 0, 7, 0},
    {RING, 0, 1, 0},      {PAGED, 1, 7, 0},  {PAGED, 3, 64, 0}, {PAGED, 8, TOKENS, 0}, {PAGED, 16, 1, 0},
    {PAGED, 64, 7, 0},    {PAGED, 16, 7, 2}, {PAGED, 64, 1, 2}, {PAGED, 8, 64, 1},
};

typedef struct setting {
    const char *name;
    mica_dtype k, v;
    uint64_t dim, v_dim;
    mica_attention_params params;
} setting;

static const setting settings[] = {
    {"f32", MICA_DTYPE_F32, MICA_DTYPE_F32, 40, 40, {.softcap = 20}},
    {"f16, window", MICA_DTYPE_F16, MICA_DTYPE_F16, 64, 64, {.window = 37}},
    {"bf16, odd sizes", MICA_DTYPE_BF16, MICA_DTYPE_F32, 33, 19, {.scale = 0.1f}},
    {"q4_0", MICA_DTYPE_Q4_0, MICA_DTYPE_Q4_0, 64, 64, {.scale = 0}},
    {"q5_1 and iq4_nl", MICA_DTYPE_Q5_1, MICA_DTYPE_IQ4_NL, 64, 96, {.window = 70}},
    {"q8_0", MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, 64, 64, {.scale = 0}},
    {"q8_0 and f16, window, softcap", MICA_DTYPE_Q8_0, MICA_DTYPE_F16, 96, 32, {.window = 70, .softcap = 5}},
};

/* All tokens of all sequences on the host, f32. */
typedef struct text {
    float *q, *k, *v;
} text;

static conform_suite suite;

static int open_devices(void **state)
{
    (void)state;
    return conform_suite_open(&suite, "cpu") == MICA_OK ? 0 : -1;
}

static int close_devices(void **state)
{
    (void)state;
    conform_suite_close(&suite);
    return mica_host_bytes() == 0 ? 0 : -1;
}

static float *draw(test_random *random, uint64_t count)
{
    float *values = test_alloc(count, sizeof *values);

    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)test_random_normal(random);
    return values;
}

/* One run of a setting in one way. */
typedef struct run {
    mica_device *device;
    const setting *s;
    const way *w;
    const text *text;
    mica_buffer *k, *v;
    uint32_t max_pages, table[SEQUENCES * TOKENS];
    float *y; /* [TOKENS, HEADS, v_dim] of sequence 0 */
} run;

static mica_buffer *make(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

static mica_buffer *make_cache(const run *r, mica_dtype dtype, uint64_t dim)
{
    uint64_t slots = r->w->kind == RING && r->s->params.window ? r->s->params.window + r->w->chunk : TOKENS;
    uint64_t flat[3] = {slots, KV_HEADS, dim};
    uint64_t paged[4] = {SEQUENCES * (uint64_t)r->max_pages, r->w->page_slots, KV_HEADS, dim};

    return make(r->device, dtype, r->w->kind == PAGED ? 4 : 3, r->w->kind == PAGED ? paged : flat);
}

/* Position p of sequence s is row s * TOKENS + p of the text. Pages come in shuffled order. */
static void begin(run *r, test_random *random)
{
    uint32_t pages;

    r->max_pages = r->w->kind == PAGED ? (TOKENS + r->w->page_slots - 1) / r->w->page_slots : 1;
    pages = SEQUENCES * r->max_pages;
    for (uint32_t i = 0; i < pages; i++) {
        uint32_t other = (uint32_t)test_random_below(random, i + 1);

        r->table[i] = r->table[other];
        r->table[other] = i;
    }
    r->k = make_cache(r, r->s->k, r->s->dim);
    r->v = make_cache(r, r->s->v, r->s->v_dim);
}

/* The tokens of one call: rows of the text. */
typedef struct call {
    uint32_t count, row[SEQUENCES * TOKENS], position[SEQUENCES * TOKENS], sequence[SEQUENCES * TOKENS];
    uint32_t length[SEQUENCES];
} call;

static void add_token(call *c, uint32_t sequence, uint32_t position)
{
    c->row[c->count] = sequence * TOKENS + position;
    c->position[c->count] = position;
    c->sequence[c->count++] = sequence;
    c->length[sequence] = position + 1;
}

static mica_buffer *send_rows(const run *r, const call *c, const float *from, uint64_t heads, uint64_t dim)
{
    mica_buffer *buffer = make(r->device, MICA_DTYPE_F32, 3, (uint64_t[]){c->count, heads, dim});

    for (uint32_t i = 0; i < c->count; i++)
        must(mica_buffer_write(buffer, i * heads * dim * sizeof *from, from + c->row[i] * heads * dim,
                               heads * dim * sizeof *from));
    return buffer;
}

static mica_buffer *send_indices(const run *r, const uint32_t *from, uint64_t count)
{
    mica_buffer *buffer = make(r->device, MICA_DTYPE_U32, 1, &count);

    must(mica_buffer_write(buffer, 0, from, count * sizeof *from));
    return buffer;
}

/* What the window of every token to come has passed points nowhere from now on. */
static mica_buffer *send_pages(run *r, uint32_t oldest)
{
    mica_buffer *buffer;
    uint32_t window = r->s->params.window;

    if (r->w->kind != PAGED)
        return NULL;
    for (uint32_t p = 0; window && oldest + 1 > window && (p + 1) * r->w->page_slots <= oldest + 1 - window;
         p++)
        r->table[p] = NOWHERE;
    buffer = make(r->device, MICA_DTYPE_U32, 2, (uint64_t[]){SEQUENCES, r->max_pages});
    must(mica_buffer_write(buffer, 0, r->table, SEQUENCES * r->max_pages * sizeof *r->table));
    return buffer;
}

static void keep_rows(const run *r, const call *c, mica_buffer *y)
{
    uint64_t row = HEADS * r->s->v_dim;

    for (uint32_t i = 0; i < c->count; i++) {
        if (c->sequence[i] == 0)
            must(mica_buffer_read(y, i * row * sizeof(float), r->y + c->position[i] * row,
                                  row * sizeof(float)));
    }
}

static void run_call(run *r, const call *c, uint32_t oldest)
{
    const setting *s = r->s;
    bool paged = r->w->kind == PAGED;
    mica_kv_params kv = {r->w->kind == RING};
    mica_attention_params params = s->params;
    mica_buffer *q = send_rows(r, c, r->text->q, HEADS, s->dim),
                *k = send_rows(r, c, r->text->k, KV_HEADS, s->dim);
    mica_buffer *v = send_rows(r, c, r->text->v, KV_HEADS, s->v_dim);
    mica_buffer *positions = send_indices(r, c->position, c->count), *pages = send_pages(r, oldest);
    mica_buffer *lengths = send_indices(r, c->length, paged ? SEQUENCES : 1);
    mica_buffer *sequences = paged ? send_indices(r, c->sequence, c->count) : NULL;
    mica_buffer *y = make(r->device, MICA_DTYPE_F32, 3, (uint64_t[]){c->count, HEADS, s->v_dim});
    mica_attention_operands operands = {.q = q,
                                        .k = r->k,
                                        .v = r->v,
                                        .positions = positions,
                                        .lengths = lengths,
                                        .sequences = sequences,
                                        .pages = pages};
    mica_buffer *all[] = {q, k, v, positions, pages, lengths, sequences, y};
    mica_encoder *e;

    params.ring = kv.ring;
    must(mica_encoder_begin(r->device, NULL, &e));
    must(mica_kv_write(e, k, positions, sequences, pages, &kv, r->k));
    must(mica_kv_write(e, v, positions, sequences, pages, &kv, r->v));
    must(mica_attention(e, &operands, &params, y));
    must(mica_encoder_commit_and_wait(e));
    mica_encoder_release(e);
    keep_rows(r, c, y);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
}

/* Sequence 0 in chunks; between its tokens those of the others, which began earlier or later and are shorter. */
static void run_way(run *r)
{
    test_random random = test_random_from(5);
    call *c = test_alloc(1, sizeof *c);
    uint32_t next[SEQUENCES] = {0};

    begin(r, &random);
    while (next[0] < TOKENS) {
        uint32_t oldest = next[0];

        c->count = 0;
        for (uint32_t i = 0; i < r->w->chunk && next[0] < TOKENS; i++) {
            for (uint32_t s = 1; s <= r->w->others; s++) {
                if (next[s] < TOKENS / (1 + s) && test_random_one_in(&random, 2))
                    add_token(c, s, next[s]++);
            }
            add_token(c, 0, next[0]++);
        }
        run_call(r, c, oldest);
    }
    mica_buffer_release(r->k);
    mica_buffer_release(r->v);
    free(c);
}

static void test_setting(void **state)
{
    const setting *s = *state;
    test_random random = test_random_from(17);
    size_t bytes = TOKENS * HEADS * s->v_dim * sizeof(float);
    text t = {draw(&random, SEQUENCES * TOKENS * HEADS * s->dim),
              draw(&random, SEQUENCES * TOKENS * KV_HEADS * s->dim),
              draw(&random, SEQUENCES * TOKENS * KV_HEADS * s->v_dim)};
    float *first = test_alloc(bytes, 1), *other = test_alloc(bytes, 1);

    for (uint32_t isa = 0; isa < CONFORM_ISAS; isa++) {
        for (size_t i = 0; conform_suite_runs(&suite, isa) && i < sizeof ways / sizeof *ways; i++) {
            run r = {.device = suite.device[isa][i % CONFORM_THREADS], .s = s, .w = &ways[i], .text = &t};

            r.y = i ? other : first;
            run_way(&r);
            if (i && memcmp(first, other, bytes) != 0)
                fail_msg("%s: kind %d, pages of %u, %u tokens a call, %u others: other bits",
                         conform_isa_names[isa], (int)ways[i].kind, ways[i].page_slots, ways[i].chunk,
                         ways[i].others);
        }
    }
    free(t.q);
    free(t.k);
    free(t.v);
    free(first);
    free(other);
}

int main(void)
{
    struct CMUnitTest tests[sizeof settings / sizeof *settings];

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        tests[i] =
            (struct CMUnitTest)cmocka_unit_test_prestate(test_setting, (void *)(uintptr_t)&settings[i]);
        tests[i].name = settings[i].name;
    }
    return _cmocka_run_group_tests("attention_bits", tests, sizeof settings / sizeof *settings, open_devices,
                                   close_devices);
}
