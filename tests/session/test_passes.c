/*
 * test_passes.c - random programs mean the same before and after the passes.
 *
 * The programs are short, on few storages, full of reuse, part views and in-place ops, and lean towards the
 * shapes that fusions look for: what the passes must see through, and what they must not fall for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "session/interpreter.h"

#define DIM 8
#define VALUES 9 /* storages with values, the first half of them temporary */
#define PROGRAMS 12000

static uint64_t seed = 1;

static uint32_t random_below(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % n;
}

typedef struct program {
    hand h;
    int rows;
    uint32_t value[VALUES], weight[3], gain, positions, cache;
    mica__operand last; /* what was written last: the likely next input */
} program;

/* Mostly whole matrices, sometimes f16, sometimes a row less or begun a row later. */
static mica__operand random_view(const program *p)
{
    uint32_t id = p->value[random_below(VALUES)];
    uint32_t kind = random_below(12);
    if (kind == 0)
        return hand_view(&p->h, id, MICA_DTYPE_F16, 0, 2, p->rows, DIM);
    if (kind == 1)
        return hand_view(&p->h, id, MICA_DTYPE_F32, 4 * DIM, 2, p->rows, DIM);
    return hand_f32(&p->h, id, p->rows, DIM);
}

static mica__operand random_input(const program *p)
{
    return p->last.memory != NULL && random_below(10) < 7 ? p->last : random_view(p);
}

static bool touches(const mica__operand *a, const mica__operand *b)
{
    return a->memory != NULL && b->memory != NULL && a->storage == b->storage &&
           a->offset < b->offset + b->length && b->offset < a->offset + a->length;
}

static bool same(const mica__operand *a, const mica__operand *b)
{
    return a->storage == b->storage && a->offset == b->offset && a->dtype == b->dtype;
}

/* An output that the op may write: apart from its inputs, or exactly one of them where that is allowed. */
static mica__operand random_output(const program *p, const mica__operand *a, const mica__operand *b,
                                   bool in_place)
{
    for (;;) {
        mica__operand y = random_view(p);
        bool ok_a = !touches(&y, a) || (in_place && same(&y, a));
        bool ok_b = b == NULL || !touches(&y, b) || (in_place && same(&y, b));
        if (ok_a && ok_b)
            return y;
    }
}

static void add_matmul(program *p, mica__operand x)
{
    mica__operand w = hand_f32(&p->h, p->weight[random_below(3)], DIM, DIM);
    p->last = random_output(p, &x, NULL, false);
    hand_matmul(&p->h, x, w, p->last);
}

static void add_gate_pair(program *p)
{
    mica__operand x = random_input(p);
    mica__operand gate = random_output(p, &x, NULL, false), up = random_output(p, &x, &gate, false);
    hand_matmul(&p->h, x, hand_f32(&p->h, p->weight[0], DIM, DIM), gate);
    hand_matmul(&p->h, x, hand_f32(&p->h, p->weight[1], DIM, DIM), up);
    p->last = random_output(p, &gate, &up, true);
    if (random_below(2)) {
        hand_binary(&p->h, MICA_OP_SILU_MUL, gate, up, p->last);
    } else {
        mica__operand act = random_below(2) ? gate : random_output(p, &gate, &up, true);
        hand_unary(&p->h, MICA_OP_GELU, gate, act, 0);
        p->last = random_output(p, &act, &up, true);
        hand_binary(&p->h, MICA_OP_MUL, act, up, p->last);
    }
}

/* The same through experts, of which positions name some that are not there. */
static void add_routed_pair(program *p)
{
    hand *h = &p->h;
    mica__operand x = random_input(p), ids = hand_view(h, p->positions, MICA_DTYPE_U32, 0, 2, p->rows, 1);
    mica__operand gate = random_output(p, &x, NULL, false), up = random_output(p, &x, &gate, false);
    hand_experts(h, x, ids, hand_view(h, p->weight[0], MICA_DTYPE_F32, 0, 3, 8, DIM, DIM), gate);
    hand_experts(h, x, ids, hand_view(h, p->weight[1], MICA_DTYPE_F32, 0, 3, 8, DIM, DIM), up);
    p->last = random_output(p, &gate, &up, true);
    hand_binary(h, random_below(2) ? MICA_OP_SILU_MUL : MICA_OP_GELU_MUL, gate, up, p->last);
}

static void add_record(program *p)
{
    hand *h = &p->h;
    mica__operand x = random_input(p), other = random_view(p), y = random_output(p, &x, &other, true);
    mica__operand unary = random_output(p, &x, NULL, true);
    mica__operand positions = hand_view(h, p->positions, MICA_DTYPE_U32, 0, 1, p->rows);
    uint32_t op = random_below(16);
    p->last = op < 3 ? y : unary;
    switch (op) {
    case 0: hand_binary(h, MICA_OP_ADD, x, other, y); break;
    case 1: hand_binary(h, MICA_OP_MUL, other, x, y); break;
    case 2:
        hand_binary(h, MICA_OP_SILU_MUL, random_below(2) ? x : other, random_below(2) ? x : other, y);
        break;
    case 3:
    case 4:
        hand_norm(h, x, random_below(2) ? hand_view(h, p->gain, MICA_DTYPE_F32, 0, 1, DIM) : hand_absent(),
                  unary);
        break;
    case 5: hand_unary(h, MICA_OP_SOFTCAP, x, unary, 2.0f); break;
    case 6: hand_unary(h, MICA_OP_GELU, x, unary, 0); break;
    case 7: hand_rope(h, x, positions, unary); break;
    case 8:
        hand_kv_write(h, x, positions, hand_f32(h, p->cache, 12, DIM));
        p->last = x;
        break;
    case 9:
        hand_advance(h, positions);
        p->last = x;
        break;
    case 10:
        hand_copy(h, x, random_output(p, &x, NULL, false));
        p->last = x;
        break;
    case 11:
        hand_fill(h, hand_view(h, p->value[random_below(VALUES)], MICA_DTYPE_F32, 0, 2, 1, 3), 0.5);
        p->last = x;
        break;
    case 12: add_gate_pair(p); break;
    case 13: add_routed_pair(p); break;
    default:
        add_matmul(p, x);
        if (random_below(3) == 0) { /* another one of the same x */
            mica__operand first = p->last;
            add_matmul(p, x);
            if (random_below(2))
                p->last = first;
        }
    }
    if (random_below(40) == 0)
        h->list.record[h->list.count - 1]->barrier_before = 1;
}

static void make_program(program *p)
{
    memset(p, 0, sizeof *p);
    p->rows = 1 + (int)random_below(6);
    for (uint32_t i = 0; i < VALUES; i++)
        p->value[i] = hand_storage(&p->h, i < VALUES * 2 / 3);
    for (uint32_t i = 0; i < 3; i++)
        p->weight[i] = hand_storage(&p->h, false);
    p->gain = hand_storage(&p->h, false);
    p->positions = hand_storage(&p->h, false);
    p->cache = hand_storage(&p->h, false);
    uint32_t count = 3 + random_below(12);
    while (p->h.list.count < count)
        add_record(p);
}

/* Temporaries hold nothing at the beginning of a pass: each run finds its own rubbish in them, but a program
 * may read one before it wrote it. So it is the same rubbish for both runs. */
static void fill_memory(const program *p, memory *m)
{
    for (uint32_t id = 0; id < p->h.count; id++)
        for (uint32_t i = 0; i < HAND_BYTES / 4; i++) {
            float value = ((float)random_below(2001) - 1000.0f) / 1000.0f;
            uint32_t position = random_below(12);
            memcpy(&m->bytes[id][4 * i], id == p->positions ? (void *)&position : (void *)&value, 4);
        }
}

static uint32_t count_fused(const hand *h, const char *name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->list.count; i++)
        n += strcmp(h->list.record[i]->fused, name) == 0;
    return n;
}

static void test_same_meaning(void **state)
{
    static memory before, fused, reordered;
    static program p;
    const mica_fusion_info *table;
    uint64_t seen[16] = {0}, moved = 0;
    uint32_t rows = mica_fusion_list(&table);
    (void)state;
    for (uint32_t n = 0; n < PROGRAMS; n++) {
        uint64_t began = seed;
        make_program(&p);
        fill_memory(&p, &before);
        fused = reordered = before;
        run_records(&p.h, &before);
        hand_fuse(&p.h);
        run_records(&p.h, &fused);
        moved += hand_reorder(&p.h);
        run_records(&p.h, &reordered);
        for (uint32_t i = 0; i < rows; i++)
            seen[i] += count_fused(&p.h, table[i].name);
        if (first_difference(&p.h, &before, &fused) != HAND_STORAGES)
            fail_msg("program %u (seed %llu): fused, storage %u differs", n, (unsigned long long)began,
                     first_difference(&p.h, &before, &fused));
        if (first_difference(&p.h, &before, &reordered) != HAND_STORAGES)
            fail_msg("program %u (seed %llu): reordered, storage %u differs", n, (unsigned long long)began,
                     first_difference(&p.h, &before, &reordered));
        hand_free(&p.h);
    }
    for (uint32_t i = 0; i < rows; i++) {
        print_message("%-16s %llu times\n", table[i].name, (unsigned long long)seen[i]);
        if (strcmp(table[i].name, "rope+attention") != 0) /* these programs have no attention */
            assert_true(seen[i] > 20);
    }
    assert_true(moved > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_meaning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
