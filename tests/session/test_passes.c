/*
 * test_passes.c - random programs mean the same before and after the passes, and what they keep in temporaries has places apart.
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
#include "support/sanitizer.h"

#define DIM 8
#define VALUES 9 /* storages with values, the first half of them temporary */
#define PROGRAMS (TEST_ANY_SANITIZER ? 3000 : 12000)

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
    return mica__operand_present(&p->last) && random_below(10) < 7 ? p->last : random_view(p);
}

static bool touches(const mica__operand *a, const mica__operand *b)
{
    return mica__operand_present(a) && mica__operand_present(b) && a->storage == b->storage &&
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
        hand_binary(&p->h, HAND_SILU_MUL, gate, up, p->last);
    } else {
        mica__operand act = random_below(2) ? gate : random_output(p, &gate, &up, true);
        hand_unary(&p->h, HAND_GELU, gate, act, 0);
        p->last = random_output(p, &act, &up, true);
        hand_binary(&p->h, HAND_MUL, act, up, p->last);
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
    hand_binary(h, random_below(2) ? HAND_SILU_MUL : HAND_GELU_MUL, gate, up, p->last);
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
    case 0: hand_binary(h, HAND_ADD, x, other, y); break;
    case 1: hand_binary(h, HAND_MUL, other, x, y); break;
    case 2: hand_binary(h, HAND_SILU_MUL, random_below(2) ? x : other, random_below(2) ? x : other, y); break;
    case 3:
    case 4:
        hand_norm(h, x, random_below(2) ? hand_view(h, p->gain, MICA_DTYPE_F32, 0, 1, DIM) : hand_absent(),
                  unary);
        break;
    case 5: hand_unary(h, HAND_SOFTCAP, x, unary, 2.0f); break;
    case 6: hand_unary(h, HAND_GELU, x, unary, 0); break;
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

/* ---- places ---- */

/* What a list looks like to a queue: the groups between barriers, one after the other, and the longest chain of records. */
typedef struct shape {
    uint32_t groups, chain;
} shape;

static bool waits_for(const mica__record *a, const mica__record *b)
{
    for (uint32_t i = 0; i < a->operand_count; i++)
        for (uint32_t k = 0; k < b->operand_count; k++)
            if (((a->operand[i].access | b->operand[k].access) & MICA_ACCESS_WRITE) &&
                touches(&a->operand[i], &b->operand[k]))
                return true;
    return false;
}

static shape shape_of(const hand *h)
{
    uint32_t level[64] = {0}, first = 0, segment = 0; /* since the caller's last barrier */
    shape found = {1, 0};
    for (uint32_t i = 0; i < h->list.count; i++) {
        bool barrier = h->list.record[i]->barrier_before != 0;
        segment = barrier ? i : segment;
        for (uint32_t k = 0; k < i; k++) {
            const bool waits = k < segment || waits_for(h->list.record[i], h->list.record[k]);
            barrier |= waits && k >= first;
            level[i] = waits && level[k] >= level[i] ? level[k] + 1 : level[i];
        }
        found.groups += barrier && i > 0;
        found.chain = level[i] > found.chain ? level[i] : found.chain;
        first = barrier ? i : first;
    }
    return found;
}

/* The records that touch a storage, first and last, and whether it lies over another one. */
static void find_life(const hand *h, const mica__storage *storage, uint32_t *first, uint32_t *last)
{
    *first = UINT32_MAX;
    for (uint32_t i = 0; i < h->list.count; i++)
        for (uint32_t k = 0; k < h->list.record[i]->operand_count; k++)
            if (mica__operand_present(&h->list.record[i]->operand[k]) &&
                h->list.record[i]->operand[k].storage == storage) {
                *first = *first == UINT32_MAX ? i : *first;
                *last = i;
            }
}

/* One ends before the other begins; or it ends in the record with which the other begins, in the very same bytes. */
static bool apart(const program *p, const mica__placement *places, uint32_t a, uint32_t b, uint64_t *taken)
{
    const uint64_t *offset = places->offset;
    uint32_t a_first, a_last, b_first, b_last;
    find_life(&p->h, places->storages.storage[a], &a_first, &a_last);
    find_life(&p->h, places->storages.storage[b], &b_first, &b_last);
    if (offset[a] + HAND_BYTES <= offset[b] || offset[b] + HAND_BYTES <= offset[a] || a_last < b_first ||
        b_last < a_first)
        return true;
    *taken += 1;
    return offset[a] == offset[b] && (a_last == b_first || b_last == a_first);
}

/* Places temporaries as a recording does, and looks at the placed list: nothing lies where something else is alive, and nobody
 * waits longer than before. */
static void check_places(program *p, uint64_t *shared, uint64_t *taken)
{
    static hand placed;
    mica__placement places;
    mica__storage arena = {.memory = (mica__memory *)(void *)&arena};
    for (uint32_t i = 0; i < p->h.list.count; i++)
        for (uint32_t k = 0; k < p->h.list.record[i]->operand_count; k++)
            if (p->h.list.record[i]->operand[k].temporary)
                p->h.list.record[i]->operand[k].memory = NULL;
    for (uint32_t i = 0; i < p->h.count; i++)
        if (p->h.temporary[i])
            p->h.storage[i].memory = NULL;
    assert_int_equal(mica__place(&p->h.list, &places), MICA_OK);
    assert_true(places.bytes >= places.bound);
    uint64_t asked = 0;
    for (uint32_t a = 0; a < places.storages.count; a++) {
        asked += places.storages.storage[a]->memory == NULL ? HAND_BYTES : 0;
        for (uint32_t b = 0; b < a; b++)
            if (places.storages.storage[a]->memory == NULL && places.storages.storage[b]->memory == NULL)
                assert_true(apart(p, &places, a, b, taken));
    }
    *shared += places.bytes < asked;
    const shape before = shape_of(&p->h);
    memset(&placed, 0, sizeof placed);
    atomic_init(&arena.references, 1u << 20);
    for (uint32_t i = 0; i < p->h.list.count; i++) {
        assert_int_equal(mica__record_list_add(&placed.list, p->h.list.record[i]), MICA_OK);
        for (uint32_t k = 0; k < placed.list.record[i]->operand_count; k++) {
            mica__operand *operand = &placed.list.record[i]->operand[k];
            void *storage = operand->storage;
            *operand = mica__placed_operand(&places, &arena, operand);
            if (operand->storage != storage) { /* the record holds what it names */
                mica__storage_release(storage);
                mica__storage_retain(&arena);
            }
        }
    }
    const shape after = shape_of(&placed);
    assert_int_equal(after.groups, before.groups);
    assert_int_equal(after.chain, before.chain);
    mica__record_list_free(&placed.list);
    mica__placement_free(&places);
}

static void test_same_meaning(void **state)
{
    static memory before, fused, reordered;
    static program p;
    const mica_fusion_info *table;
    uint64_t seen[16] = {0}, moved = 0, shared = 0, taken = 0;
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
        check_places(&p, &shared, &taken);
        hand_free(&p.h);
    }
    for (uint32_t i = 0; i < rows; i++) {
        print_message("%-16s %llu times\n", table[i].name, (unsigned long long)seen[i]);
        if (strcmp(table[i].name, "rope+attention") != 0 &&
            strncmp(table[i].name, "conv", 4) != 0) /* these programs have neither */
            assert_true(seen[i] > 20);
    }
    assert_true(moved > 1000);
    print_message("%llu arenas smaller than their temporaries, %llu places taken over\n",
                  (unsigned long long)shared, (unsigned long long)taken);
    assert_true(shared > 1000 && taken > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_meaning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
