/*
 * test_reorder.c - a reordered list keeps every true dependency, and needs no more barriers than before.
 *
 * The oracle knows bytes only: which ones each record reads and writes, found element by element.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "session/records.h"

#define RECORDS 40
#define STORAGES 6
#define BYTES 256 /* of each storage that views lie in */

static uint64_t seed = 7;

static uint32_t random_below(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % n;
}

/* One byte a bit would do; one a byte is plainer. */
typedef struct footprint {
    uint8_t reads[STORAGES][BYTES], writes[STORAGES][BYTES];
    uint32_t segment; /* number of barriers asked for before it */
} footprint;

typedef struct trial {
    hand h;
    footprint foot[RECORDS]; /* by original index */
    uint32_t count;
} trial;

static void mark(const trial *t, const mica__operand *o, uint8_t (*bytes)[BYTES])
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < o->ndim; d++)
        elements *= o->shape[d];
    for (uint64_t e = 0; e < elements; e++) {
        uint64_t rest = e, offset = o->offset;
        for (uint32_t d = o->ndim; d-- > 0; rest /= o->shape[d])
            offset += rest % o->shape[d] * o->stride[d];
        for (uint64_t b = 0; b < 4; b++)
            bytes[(const mica__storage *)o->storage - t->h.storage][offset + b] = 1;
    }
}

/* A solid view, or columns of a matrix of eight columns. */
static mica__operand random_view(const trial *t, bool strided)
{
    uint32_t id = random_below(STORAGES);
    if (strided && random_below(2)) {
        int columns = 1 + (int)random_below(4), first = (int)random_below(5), rows = 1 + (int)random_below(6);
        mica__operand o = hand_view(&t->h, id, MICA_DTYPE_F32, 4 * (uint64_t)first, 2, rows, columns);
        o.stride[0] = 32;
        o.length = 32 * (uint64_t)(rows - 1) + 4 * (uint64_t)columns;
        return o;
    }
    return hand_view(&t->h, id, MICA_DTYPE_F32, 4 * random_below(32), 1, 1 + (int)random_below(16));
}

static void make_trial(trial *t, bool strided, uint32_t barrier_in)
{
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < STORAGES; i++)
        hand_storage(&t->h, false);
    t->count = 2 + random_below(RECORDS - 2);
    uint32_t segment = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        mica__operand a = random_view(t, strided), b = random_view(t, strided), y = random_view(t, strided);
        mark(t, &a, t->foot[i].reads);
        mark(t, &b, t->foot[i].reads);
        mark(t, &y, t->foot[i].writes);
        hand_binary(&t->h, HAND_ADD, a, b, y);
        if (barrier_in > 0 && random_below(barrier_in) == 0) {
            t->h.list.record[i]->barrier_before = 1;
            segment++;
        }
        t->foot[i].segment = segment;
    }
}

static bool depends(const footprint *a, const footprint *b)
{
    for (uint32_t s = 0; s < STORAGES; s++)
        for (uint32_t i = 0; i < BYTES; i++)
            if ((a->writes[s][i] && (b->reads[s][i] || b->writes[s][i])) ||
                (a->reads[s][i] && b->writes[s][i]))
                return true;
    return false;
}

/* Barriers that a queue needs for the list in this order. */
static uint32_t count_barriers(const trial *t)
{
    uint32_t barriers = 0, first = 0;
    for (uint32_t i = 0; i < t->h.list.count; i++) {
        const footprint *own = &t->foot[t->h.list.record[i]->original_index];
        bool conflict = i > first && t->h.list.record[i]->barrier_before;
        for (uint32_t k = first; k < i && !conflict; k++)
            conflict = depends(&t->foot[t->h.list.record[k]->original_index], own);
        if (conflict) {
            barriers++;
            first = i;
        }
    }
    return barriers;
}

static void check_order(const trial *t)
{
    uint8_t seen[RECORDS] = {0};
    uint32_t segment = 0;
    assert_int_equal(t->h.list.count, t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t own = t->h.list.record[i]->original_index;
        assert_int_equal(seen[own], 0);
        seen[own] = 1;
        segment += t->h.list.record[i]->barrier_before;
        assert_int_equal(segment, t->foot[own].segment); /* nothing crossed a barrier */
        for (uint32_t k = i + 1; k < t->count; k++) {
            uint32_t later = t->h.list.record[k]->original_index;
            if (later < own && depends(&t->foot[later], &t->foot[own]))
                fail_msg("record %u runs before %u, which it depends on", own, later);
        }
    }
}

static void test_random_order(void **state)
{
    static trial t;
    uint64_t moved = 0, saved = 0;
    (void)state;
    for (int n = 0; n < 1500; n++) {
        make_trial(&t, n % 2 == 1, n % 3 == 0 ? 8 : 0);
        uint32_t before = count_barriers(&t);
        uint64_t count = hand_reorder(&t.h), differ = 0;
        check_order(&t);
        for (uint32_t i = 0; i < t.count; i++)
            differ += t.h.list.record[i]->original_index != i;
        assert_int_equal(count, differ);
        if (n % 2 == 0) { /* solid views: the oracle's conflicts are the library's */
            uint32_t after = count_barriers(&t);
            assert_true(after <= before);
            saved += before - after;
        }
        assert_int_equal(hand_reorder(&t.h), 0); /* done is done */
        moved += count;
        hand_free(&t.h);
    }
    assert_true(moved > 0);
    assert_true(saved > 0);
}

/* Two independent chains written one after the other end up side by side. */
static void test_two_chains(void **state)
{
    static trial t;
    (void)state;
    memset(&t, 0, sizeof t);
    uint32_t a = hand_storage(&t.h, false), b = hand_storage(&t.h, false);
    for (int i = 0; i < 8; i++) {
        mica__operand x = hand_f32(&t.h, i < 4 ? a : b, 1, 4);
        hand_unary(&t.h, HAND_GELU, x, x, 0);
    }
    assert_int_equal(hand_reorder(&t.h), 6); /* the first and the last stay */
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(t.h.list.record[i]->original_index, i / 2 + i % 2 * 4);
    hand_free(&t.h);
}

static void test_empty(void **state)
{
    hand h = {.count = 0};
    (void)state;
    assert_int_equal(hand_reorder(&h), 0);
    assert_int_equal(hand_fuse(&h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_order),
        cmocka_unit_test(test_two_chains),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
