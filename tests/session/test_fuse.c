/*
 * test_fuse.c - each fusion is applied where it is legal, and in none of the cases where it is not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "session/interpreter.h"

/* What is done to a pattern before it is offered. */
typedef enum twist {
    PLAIN,
    READ_LATER,    /* somebody else reads the value between, after the pattern */
    READ_PART,     /* the same, through a view of half of it */
    NOT_TEMPORARY, /* the value between belongs to the caller */
    HALF_TYPE,     /* the value between is f16 */
    WRITE_PART,    /* half of the value is overwritten before it is read */
    CONFLICT,      /* the first record cannot go down and the last cannot go up */
    BARRIER,       /* the caller asked for a barrier between */
    WRONG_SHAPE,   /* the last record reads it in another shape */
    OVERWRITTEN,   /* the value is overwritten whole before somebody else reads it: legal */
    ONLY_DOWN,     /* the last record cannot go up, but the first can go down: legal */
    ONLY_UP,       /* the first record cannot go down, but the last can go up: legal */
    TWISTS
} twist;

/* One pattern under construction: roles of its storages. */
typedef struct pattern {
    hand h;
    twist how;
    uint32_t in, mid, other, out, spare, positions;
    mica_dtype mid_type;
} pattern;

#define ROWS 3
#define DIM 8

static mica__operand mid_view(const pattern *p)
{
    return hand_view(&p->h, p->mid, p->mid_type, 0, 2, ROWS, DIM);
}

static mica__operand read_view(const pattern *p)
{
    if (p->how == WRONG_SHAPE)
        return hand_view(&p->h, p->mid, p->mid_type, 0, 2, ROWS - 1, DIM);
    return mid_view(p);
}

/* Rows the last record works on. */
static int rows_of(const pattern *p)
{
    return p->how == WRONG_SHAPE ? ROWS - 1 : ROWS;
}

static mica__operand rows_in(const pattern *p, uint32_t id)
{
    return hand_f32(&p->h, id, rows_of(p), DIM);
}

/* What comes between the records of the pattern. */
static void between(pattern *p)
{
    hand *h = &p->h;
    if (p->how == WRITE_PART)
        hand_fill(h, hand_view(h, p->mid, p->mid_type, 0, 2, 1, DIM), 2);
    if (p->how == CONFLICT || p->how == ONLY_UP)
        hand_fill(h, hand_f32(h, p->in, 1, DIM), 3); /* overwrites what the first record reads */
    if (p->how == CONFLICT || p->how == ONLY_DOWN)
        hand_copy(h, hand_f32(h, p->out, 1, DIM),
                  hand_f32(h, p->spare, 1, DIM)); /* reads what the last will write */
}

static void after(pattern *p)
{
    hand *h = &p->h;
    if (p->how == BARRIER)
        h->list.record[h->list.count - 1]->barrier_before = 1;
    if (p->how == OVERWRITTEN)
        hand_fill(h, mid_view(p), 1);
    if (p->how == READ_LATER || p->how == OVERWRITTEN)
        hand_copy(h, mid_view(p), hand_f32(h, p->spare, ROWS, DIM));
    if (p->how == READ_PART)
        hand_copy(h, hand_view(h, p->mid, p->mid_type, 0, 2, 1, DIM), hand_f32(h, p->spare, 1, DIM));
}

static uint32_t weight(pattern *p)
{
    return hand_storage(&p->h, false);
}

/* ---- the patterns ---- */

static void build_norm_mul(pattern *p)
{
    hand *h = &p->h;
    hand_norm(h, hand_f32(h, p->in, ROWS, DIM), hand_view(h, weight(p), MICA_DTYPE_F32, 0, 1, DIM),
              mid_view(p));
    between(p);
    hand_binary(h, HAND_MUL, rows_in(p, p->other), read_view(p), rows_in(p, p->out));
}

static void build_norm_add(pattern *p)
{
    hand *h = &p->h;
    hand_norm(h, hand_f32(h, p->in, ROWS, DIM), hand_absent(), mid_view(p));
    between(p);
    hand_binary(h, HAND_ADD, read_view(p), rows_in(p, p->other), rows_in(p, p->out));
}

static void build_residual_norm(pattern *p)
{
    hand *h = &p->h;
    hand_binary(h, HAND_ADD, hand_f32(h, p->in, ROWS, DIM), hand_f32(h, p->other, ROWS, DIM), mid_view(p));
    between(p);
    hand_norm(h, read_view(p), hand_view(h, weight(p), MICA_DTYPE_F32, 0, 1, DIM), rows_in(p, p->out));
}

static void build_matmul_residual(pattern *p)
{
    hand *h = &p->h;
    hand_matmul(h, hand_f32(h, p->in, ROWS, DIM), hand_f32(h, weight(p), DIM, DIM), mid_view(p));
    between(p);
    hand_binary(h, HAND_ADD, rows_in(p, p->other), read_view(p), rows_in(p, p->out));
}

static void build_matmul_softcap(pattern *p)
{
    hand *h = &p->h;
    hand_matmul(h, hand_f32(h, p->in, ROWS, DIM), hand_f32(h, weight(p), DIM, DIM), mid_view(p));
    between(p);
    hand_unary(h, HAND_SOFTCAP, read_view(p), rows_in(p, p->out), 30.0f);
}

static void build_gate_up(pattern *p)
{
    hand *h = &p->h;
    uint32_t up = hand_storage(h, true);
    hand_matmul(h, hand_f32(h, p->in, ROWS, DIM), hand_f32(h, weight(p), DIM, DIM), mid_view(p));
    hand_matmul(h, hand_f32(h, p->in, ROWS, DIM), hand_f32(h, weight(p), DIM, DIM),
                hand_f32(h, up, ROWS, DIM));
    between(p);
    hand_binary(h, HAND_SILU_MUL, read_view(p), rows_in(p, up), rows_in(p, p->out));
}

static void build_gelu_mul(pattern *p)
{
    hand *h = &p->h;
    uint32_t up = hand_storage(h, true);
    hand_matmul(h, hand_f32(h, p->in, ROWS, DIM), hand_f32(h, weight(p), DIM, DIM), mid_view(p));
    hand_matmul(h, hand_f32(h, p->in, ROWS, DIM), hand_f32(h, weight(p), DIM, DIM),
                hand_f32(h, up, ROWS, DIM));
    between(p);
    hand_binary(h, HAND_GELU_MUL, read_view(p), rows_in(p, up), rows_in(p, p->out));
}

static void build_gelu_up(pattern *p)
{
    hand *h = &p->h;
    uint32_t up = hand_storage(h, true), act = hand_storage(h, true);
    hand_matmul(h, hand_f32(h, p->in, ROWS, DIM), hand_f32(h, weight(p), DIM, DIM),
                hand_f32(h, up, ROWS, DIM));
    hand_matmul(h, hand_f32(h, p->in, ROWS, DIM), hand_f32(h, weight(p), DIM, DIM), mid_view(p));
    between(p);
    hand_unary(h, HAND_GELU, read_view(p), rows_in(p, act), 0);
    hand_binary(h, HAND_MUL, rows_in(p, up), rows_in(p, act), rows_in(p, p->out));
}

#define EXPERTS 8 /* of 16 that ids name: some lie outside */

static void routed_pair(pattern *p, hand_op act)
{
    hand *h = &p->h;
    uint32_t up = hand_storage(h, true);
    mica__operand x = hand_f32(h, p->in, ROWS, DIM);
    mica__operand ids = hand_view(h, p->positions, MICA_DTYPE_U32, 0, 2, ROWS, 1);
    hand_experts(h, x, ids, hand_view(h, weight(p), MICA_DTYPE_F32, 0, 3, EXPERTS, DIM, DIM), mid_view(p));
    hand_experts(h, x, ids, hand_view(h, weight(p), MICA_DTYPE_F32, 0, 3, EXPERTS, DIM, DIM),
                 hand_f32(h, up, ROWS, DIM));
    between(p);
    hand_binary(h, act, read_view(p), rows_in(p, up), rows_in(p, p->out));
}

static void build_experts_silu(pattern *p)
{
    routed_pair(p, HAND_SILU_MUL);
}

static void build_experts_gelu(pattern *p)
{
    routed_pair(p, HAND_GELU_MUL);
}

static void build_norm_matmul(pattern *p)
{
    hand *h = &p->h;
    hand_norm(h, hand_f32(h, p->in, ROWS, DIM), hand_view(h, weight(p), MICA_DTYPE_F32, 0, 1, DIM),
              mid_view(p));
    between(p);
    hand_matmul(h, read_view(p), hand_f32(h, weight(p), DIM, DIM), rows_in(p, p->out));
}

static void build_head_norm_rope(pattern *p)
{
    hand *h = &p->h;
    hand_norm(h, hand_f32(h, p->in, ROWS, DIM), hand_view(h, weight(p), MICA_DTYPE_F32, 0, 1, DIM),
              mid_view(p));
    between(p);
    hand_rope(h, read_view(p), hand_view(h, p->positions, MICA_DTYPE_U32, 0, 1, rows_of(p)),
              rows_in(p, p->out));
}

static void build_rope_kv_write(pattern *p)
{
    hand *h = &p->h;
    hand_rope(h, hand_f32(h, p->in, ROWS, DIM), hand_view(h, p->positions, MICA_DTYPE_U32, 0, 1, ROWS),
              mid_view(p));
    between(p);
    hand_kv_write(h, read_view(p), hand_view(h, p->positions, MICA_DTYPE_U32, 0, 1, rows_of(p)),
                  hand_f32(h, p->out, 16, DIM));
}

static void build_region(pattern *p)
{
    hand *h = &p->h;
    hand_binary(h, HAND_ADD, hand_f32(h, p->in, ROWS, DIM), hand_f32(h, p->other, ROWS, DIM), mid_view(p));
    between(p);
    hand_binary(h, HAND_SILU_MUL, rows_in(p, p->other), read_view(p), rows_in(p, p->out));
}

typedef struct row {
    const char *name;
    void (*build)(pattern *);
    uint32_t records; /* of the plain pattern; fused it is one */
    uint32_t legal;   /* twists that do not stop it, beside the ones that never do */
} row;

#define BIT(t) (1u << (t))
#define ALWAYS (BIT(PLAIN) | BIT(OVERWRITTEN) | BIT(ONLY_DOWN) | BIT(ONLY_UP))
/* A sum and a rotated key are written as well where somebody wants them. */
#define BOTH (BIT(READ_LATER) | BIT(READ_PART) | BIT(NOT_TEMPORARY))

static const row rows[] = {
    {"norm+mul", build_norm_mul, 2, ALWAYS},
    {"norm+add", build_norm_add, 2, ALWAYS},
    {"residual+norm", build_residual_norm, 2, ALWAYS | BOTH},
    {"matmul+residual", build_matmul_residual, 2, ALWAYS},
    {"matmul+softcap", build_matmul_softcap, 2, ALWAYS},
    {"gate+up", build_gate_up, 3, ALWAYS},
    {"gate+up", build_gelu_up, 4, ALWAYS},
    {"norm+matmul", build_norm_matmul, 2, ALWAYS},
    {"head-norm+rope", build_head_norm_rope, 2, ALWAYS},
    {"rope+kv_write", build_rope_kv_write, 2, ALWAYS | BOTH},
    {"region", build_region, 2, ALWAYS | BIT(READ_LATER) | BIT(READ_PART) | BIT(HALF_TYPE)},
    {"gate+up", build_gelu_mul, 3, ALWAYS},
    {"experts gate+up", build_experts_silu, 3, ALWAYS},
    {"experts gate+up", build_experts_gelu, 3, ALWAYS},
};

static void build(pattern *p, const row *r, twist how)
{
    memset(p, 0, sizeof *p);
    p->how = how;
    p->mid_type = how == HALF_TYPE ? MICA_DTYPE_F16 : MICA_DTYPE_F32;
    p->in = hand_storage(&p->h, false);
    p->mid = hand_storage(&p->h, how != NOT_TEMPORARY);
    p->other = hand_storage(&p->h, false);
    p->out = hand_storage(&p->h, false);
    p->spare = hand_storage(&p->h, false);
    p->positions = hand_storage(&p->h, false);
    r->build(p);
    after(p);
}

static void randomise(const pattern *p, memory *m)
{
    for (uint32_t id = 0; id < p->h.count; id++)
        for (uint32_t i = 0; i < HAND_BYTES / 4; i++) {
            float value = (float)(rand() % 2001 - 1000) / 500.0f;
            uint32_t position = (uint32_t)(rand() % 16);
            memcpy(&m->bytes[id][4 * i], id == p->positions ? (void *)&position : (void *)&value, 4);
        }
}

static bool has_fused(const hand *h, const char *name)
{
    for (uint32_t i = 0; i < h->list.count; i++)
        if (strcmp(h->list.record[i]->fused, name) == 0)
            return true;
    return false;
}

/* Every pattern under every twist: applied or not as the row says, and the same bytes either way. */
static void test_patterns(void **state)
{
    static memory start, before, fused;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int how = 0; how < TWISTS; how++) {
            pattern p;
            build(&p, &rows[i], (twist)how);
            randomise(&p, &start);
            before = fused = start;
            run_records(&p.h, &before);
            uint32_t count = p.h.list.count;
            uint64_t fusions = hand_fuse(&p.h);
            bool applied = has_fused(&p.h, rows[i].name);
            bool expected = (rows[i].legal & BIT(how)) != 0;
            if (applied != expected)
                fail_msg("%s, twist %d: applied %d, expected %d", rows[i].name, how, applied, expected);
            if (applied)
                assert_int_equal(p.h.list.count, count - rows[i].records + 1);
            assert_int_equal(fusions > 0, p.h.list.count < count);
            run_records(&p.h, &fused);
            if (first_difference(&p.h, &before, &fused) != HAND_STORAGES)
                fail_msg("%s, twist %d: storage %u differs", rows[i].name, how,
                         first_difference(&p.h, &before, &fused));
            hand_free(&p.h);
        }
    }
}

/* ---- what the table cannot say ---- */

static void start(pattern *p)
{
    memset(p, 0, sizeof *p);
    p->mid_type = MICA_DTYPE_F32;
    p->in = hand_storage(&p->h, false);
    p->mid = hand_storage(&p->h, true);
    p->other = hand_storage(&p->h, false);
    p->out = hand_storage(&p->h, false);
    p->spare = hand_storage(&p->h, false);
    p->positions = hand_storage(&p->h, false);
}

/* A dropped value is dropped, a wanted one is kept. */
static void test_kept_outputs(void **state)
{
    static const struct {
        size_t row;
        uint32_t slot;
    } cases[] = {{2, MICA__NORM_SUM}, {9, MICA__ROPE_Y}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        pattern p;
        build(&p, &rows[cases[i].row], PLAIN);
        hand_fuse(&p.h);
        assert_null(p.h.list.record[0]->operand[cases[i].slot].memory);
        hand_free(&p.h);
        build(&p, &rows[cases[i].row], READ_LATER);
        hand_fuse(&p.h);
        assert_non_null(p.h.list.record[0]->operand[cases[i].slot].memory);
        hand_free(&p.h);
    }
}

/* In place on the caller's own buffer: the fused record writes that very view, so nothing is dropped. */
static void test_in_place(void **state)
{
    pattern p;
    (void)state;
    start(&p);
    mica__operand logits = hand_f32(&p.h, p.out, ROWS, DIM);
    hand_matmul(&p.h, hand_f32(&p.h, p.in, ROWS, DIM), hand_f32(&p.h, weight(&p), DIM, DIM), logits);
    hand_unary(&p.h, HAND_SOFTCAP, logits, logits, 30.0f);
    assert_int_equal(hand_fuse(&p.h), 1);
    assert_string_equal(p.h.list.record[0]->fused, "matmul+softcap");
    hand_free(&p.h);

    /* h += x . w^T: the residual is y's own view. */
    start(&p);
    mica__operand stream = hand_f32(&p.h, p.out, ROWS, DIM);
    hand_matmul(&p.h, hand_f32(&p.h, p.in, ROWS, DIM), hand_f32(&p.h, weight(&p), DIM, DIM), mid_view(&p));
    hand_binary(&p.h, HAND_ADD, stream, mid_view(&p), stream);
    assert_int_equal(hand_fuse(&p.h), 1);
    hand_free(&p.h);

    /* h += norm(h) . w^T: the norm joins the matmul no more, x would be overwritten while it is read. */
    start(&p);
    stream = hand_f32(&p.h, p.out, ROWS, DIM);
    uint32_t normed = hand_storage(&p.h, true);
    hand_norm(&p.h, stream, hand_absent(), hand_f32(&p.h, normed, ROWS, DIM));
    hand_matmul(&p.h, hand_f32(&p.h, normed, ROWS, DIM), hand_f32(&p.h, weight(&p), DIM, DIM), mid_view(&p));
    hand_binary(&p.h, HAND_ADD, stream, mid_view(&p), stream);
    assert_int_equal(hand_fuse(&p.h), 1);
    assert_int_equal(p.h.list.count, 2);
    hand_free(&p.h);
}

/* The value used twice by the same record is not one operand. */
static void test_used_twice(void **state)
{
    pattern p;
    (void)state;
    start(&p);
    hand_matmul(&p.h, hand_f32(&p.h, p.in, ROWS, DIM), hand_f32(&p.h, weight(&p), DIM, DIM), mid_view(&p));
    hand_binary(&p.h, HAND_ADD, mid_view(&p), mid_view(&p), hand_f32(&p.h, p.out, ROWS, DIM));
    assert_int_equal(hand_fuse(&p.h), 0);
    hand_free(&p.h);
}

/* A write that leaves gaps ends no value: what is read later may still be it. */
static void test_gaps(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        pattern p;
        start(&p);
        hand *h = &p.h;
        mica__operand whole = mid_view(&p), columns = hand_view(h, p.mid, MICA_DTYPE_F32, 0, 2, ROWS, 2);
        columns.stride[0] = 4 * DIM;
        columns.stride[1] = 4 * (DIM - 1); /* first and last column: the hull is all of it */
        columns.length = whole.length;
        hand_matmul(h, hand_f32(h, p.in, ROWS, DIM), hand_f32(h, weight(&p), DIM, DIM), whole);
        hand_binary(h, HAND_ADD, whole, hand_f32(h, p.other, ROWS, DIM), hand_f32(h, p.out, ROWS, DIM));
        if (how == 0)
            hand_fill(h, whole, 1);
        else if (how == 1)
            hand_fill(h, columns, 1);
        else
            hand_kv_write(h, hand_f32(h, p.in, 1, DIM), hand_view(h, p.positions, MICA_DTYPE_U32, 0, 1, 1),
                          whole);
        hand_copy(h, whole, hand_f32(h, p.spare, ROWS, DIM));
        assert_int_equal(hand_fuse(h), how == 0);
        hand_free(h);
    }
}

/* A norm of more than four rows stays apart; so does one that several ungrouped readers want. */
static void test_norm_matmul_limits(void **state)
{
    pattern p;
    (void)state;
    for (int n = 4; n <= 5; n++) {
        start(&p);
        hand_norm(&p.h, hand_f32(&p.h, p.in, n, DIM), hand_absent(), hand_f32(&p.h, p.mid, n, DIM));
        hand_matmul(&p.h, hand_f32(&p.h, p.mid, n, DIM), hand_f32(&p.h, weight(&p), DIM, DIM),
                    hand_f32(&p.h, p.out, n, DIM));
        assert_int_equal(hand_fuse(&p.h), n <= 4);
        hand_free(&p.h);
    }
    start(&p);
    hand_norm(&p.h, hand_f32(&p.h, p.in, 1, DIM), hand_absent(), hand_f32(&p.h, p.mid, 1, DIM));
    hand_matmul(&p.h, hand_f32(&p.h, p.mid, 1, DIM), hand_f32(&p.h, weight(&p), DIM, DIM),
                hand_f32(&p.h, p.out, 1, DIM));
    hand_matmul(&p.h, hand_f32(&p.h, p.mid, 1, DIM),
                hand_view(&p.h, weight(&p), MICA_DTYPE_Q8_0, 0, 2, 8, 32), hand_f32(&p.h, p.spare, 1, DIM));
    assert_int_equal(hand_fuse(&p.h), 0); /* dense and quantised do not group */
    hand_free(&p.h);
}

/* Three matmuls of one norm become one record with the norm in front. */
static void test_projections(void **state)
{
    pattern p;
    (void)state;
    start(&p);
    hand *h = &p.h;
    uint32_t out[5];
    hand_norm(h, hand_f32(h, p.in, 1, DIM), hand_absent(), hand_f32(h, p.mid, 1, DIM));
    for (int i = 0; i < 3; i++) {
        out[i] = hand_storage(h, false);
        hand_matmul(h, hand_f32(h, p.mid, 1, DIM), hand_f32(h, weight(&p), DIM + i, DIM),
                    hand_f32(h, out[i], 1, DIM + i));
        hand_unary(h, HAND_GELU, hand_f32(h, out[i], 1, DIM + i), hand_f32(h, out[i], 1, DIM + i), 0);
    }
    assert_int_equal(hand_fuse(h), 3);
    assert_int_equal(h->list.count, 4);
    const mica__matmul_record *params = h->list.record[0]->params;
    assert_int_equal(params->weight_count, 3);
    assert_int_equal(params->norm, 1);
    assert_int_equal(h->list.record[0]->original_index, 0);
    hand_free(h);

    /* Six: four and two. */
    start(&p);
    for (int i = 0; i < 6; i++)
        hand_matmul(h, hand_f32(h, p.in, 1, DIM), hand_f32(h, weight(&p), DIM, DIM),
                    hand_f32(h, hand_storage(h, false), 1, DIM));
    hand_fuse(h);
    assert_int_equal(h->list.count, 2);
    assert_int_equal(((const mica__matmul_record *)h->list.record[0]->params)->weight_count, 4);
    assert_int_equal(((const mica__matmul_record *)h->list.record[1]->params)->weight_count, 2);
    hand_free(h);
}

/* What two matmuls must have in common to be grouped. */
static void test_group_conditions(void **state)
{
    (void)state;
    for (int how = 0; how < 7; how++) {
        pattern p;
        start(&p);
        hand *h = &p.h;
        mica__operand x = hand_f32(h, p.in, 2, 32), x2 = x;
        mica__operand w = hand_f32(h, weight(&p), 4, 32), w2 = hand_f32(h, weight(&p), 4, 32);
        mica__operand y = hand_f32(h, p.out, 2, 4), y2 = hand_f32(h, p.other, 2, 4);
        if (how == 1)
            x2 = hand_f32(h, p.spare, 2, 32);
        if (how == 2)
            w2 = hand_view(h, weight(&p), MICA_DTYPE_Q4_0, 0, 2, 4, 32);
        if (how == 3)
            w2 = hand_view(h, weight(&p), MICA_DTYPE_F32, 0, 3, 1, 4, 32);
        if (how == 4)
            y2 = hand_view(h, p.out, MICA_DTYPE_F32, 16, 2, 2, 4); /* overlaps y in part */
        hand_matmul(h, x, w, y);
        if (how == 5)
            hand_fill(h, hand_f32(h, p.in, 1, 1), 0); /* x is another value for the second */
        hand_matmul(h, x2, w2, y2);
        if (how == 6)
            ((mica__matmul_record *)h->list.record[1]->params)->precision = MICA_PRECISION_F32;
        assert_int_equal(hand_fuse(h), how == 0);
        hand_free(h);
    }
}

/* Another positions buffer, or one that moved on, is another place in the cache. */
static void test_rope_positions(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        pattern p;
        start(&p);
        hand *h = &p.h;
        mica__operand positions = hand_view(h, p.positions, MICA_DTYPE_U32, 0, 1, ROWS);
        mica__operand other = hand_view(h, p.spare, MICA_DTYPE_U32, 0, 1, ROWS);
        hand_rope(h, hand_f32(h, p.in, ROWS, DIM), positions, mid_view(&p));
        if (how == 1)
            hand_advance(h, positions);
        hand_kv_write(h, mid_view(&p), how == 2 ? other : positions, hand_f32(h, p.out, 16, DIM));
        assert_int_equal(hand_fuse(h), how == 0);
        hand_free(h);
    }
    /* A value that already has the cache's type is rounded once either way. */
    pattern p;
    start(&p);
    hand *h = &p.h;
    mica__operand positions = hand_view(h, p.positions, MICA_DTYPE_U32, 0, 1, ROWS);
    mica__operand key = hand_view(h, p.mid, MICA_DTYPE_F16, 0, 2, ROWS, DIM);
    hand_rope(h, hand_f32(h, p.in, ROWS, DIM), positions, key);
    hand_kv_write(h, key, positions, hand_view(h, p.out, MICA_DTYPE_F16, 0, 2, 16, DIM));
    assert_int_equal(hand_fuse(h), 1);
    hand_free(h);
}

/* A mul that repeats one number per row is not rows; one that repeats a row is. */
static void test_broadcast(void **state)
{
    (void)state;
    for (int repeats_rows = 0; repeats_rows < 2; repeats_rows++) {
        pattern p;
        start(&p);
        hand *h = &p.h;
        mica__operand other = hand_f32(h, p.other, ROWS, DIM);
        other.stride[repeats_rows ? 0 : 1] = 0;
        hand_norm(h, hand_f32(h, p.in, ROWS, DIM), hand_absent(), mid_view(&p));
        hand_binary(h, HAND_MUL, mid_view(&p), other, hand_f32(h, p.out, ROWS, DIM));
        assert_int_equal(hand_fuse(h), repeats_rows);
        hand_free(h);
    }
}

/* The barrier in front of a pattern stays there, wherever the fused record goes. */
static void test_barrier_stays(void **state)
{
    static const twist how[] = {PLAIN, ONLY_DOWN, ONLY_UP};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        pattern p;
        build(&p, &rows[0], how[i]);
        p.h.list.record[0]->barrier_before = 1;
        hand_fuse(&p.h);
        assert_int_equal(p.h.list.record[0]->barrier_before, 1);
        for (uint32_t k = 1; k < p.h.list.count; k++)
            assert_int_equal(p.h.list.record[k]->barrier_before, 0);
        hand_free(&p.h);
    }
}

static void test_table(void **state)
{
    const mica_fusion_info *table = NULL;
    (void)state;
    uint32_t count = mica_fusion_list(&table);
    assert_int_equal(count, 15);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool found = false;
        for (uint32_t k = 0; k < count; k++)
            found = found || strcmp(table[k].name, rows[i].name) == 0;
        assert_true(found);
    }
    for (uint32_t k = 0; k < count; k++) {
        assert_true(table[k].meaning[0] != '\0');
        assert_int_equal(table[k].exact, 1);
    }
    assert_int_equal(mica_fusion_list(NULL), count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_kept_outputs),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_used_twice),
        cmocka_unit_test(test_norm_matmul_limits),
        cmocka_unit_test(test_projections),
        cmocka_unit_test(test_group_conditions),
        cmocka_unit_test(test_rope_positions),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_barrier_stays),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
