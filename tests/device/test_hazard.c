/* Ranges and the tracker, against the set of bytes that each strided view really touches. White-box: the answers of
 * src/device/hazard.h, which no public call shows one by one. */
#include "device_test.h"

#include "device/hazard.h"
#include "support/random.h"

enum { SPACE = 512 };

typedef struct view {
    mica__operand operand;
    uint8_t touched[SPACE];
} view;

static int storage_a, storage_b; /* identities */

static void touch(view *v, uint32_t dim, uint64_t at)
{
    uint32_t elements = mica_dtype_block_elements((mica_dtype)v->operand.dtype);
    if (dim == v->operand.ndim) {
        memset(v->touched + at, 1, mica_dtype_block_bytes((mica_dtype)v->operand.dtype));
        return;
    }
    uint64_t count = v->operand.shape[dim] / (dim + 1 == v->operand.ndim ? elements : 1);
    for (uint64_t i = 0; i < count; i++)
        touch(v, dim + 1, at + i * v->operand.stride[dim]);
}

/* A view of any shape and strides inside SPACE bytes, now and then an empty one. With `pitch` the outer stride is that, and rows are solid. */
static void random_view(test_random *random, view *v, uint64_t pitch)
{
    const mica_dtype dtypes[] = {MICA_DTYPE_U8, MICA_DTYPE_F16, MICA_DTYPE_F32, MICA_DTYPE_Q4_0};
    mica__operand *o = &v->operand;
    memset(v, 0, sizeof *v);
    mica_dtype dtype = dtypes[test_random_below(random, pitch == 0 ? 4 : 3)];
    uint64_t unit = mica_dtype_block_bytes(dtype), elements = mica_dtype_block_elements(dtype);
    o->dtype = (uint16_t)dtype;
    o->memory = (mica__memory *)(uintptr_t)16; /* present; never looked into */
    o->storage = test_random_one_in(random, 10) ? &storage_b : &storage_a;
    o->access = (uint8_t)(1 + test_random_below(random, 3));
    o->ndim = (uint8_t)(elements > 1 ? 1 + test_random_below(random, MICA_MAX_DIMS)
                                     : test_random_below(random, MICA_MAX_DIMS + 1));
    if (pitch != 0)
        o->ndim = 2;
    o->offset = test_random_below(random, SPACE / 2);
    uint64_t room = SPACE - o->offset - unit, hull = unit;
    for (uint32_t d = o->ndim; d-- > 0;) {
        uint64_t stride = test_random_below(random, 60), most;
        if (d + 1u == o->ndim && (pitch != 0 || elements > 1 || test_random_one_in(random, 2)))
            stride = unit;
        else if (pitch != 0)
            stride = pitch;
        else if (test_random_one_in(random, 3))
            stride = hull; /* solid so far */
        most = stride == 0 ? 5 : room / stride + 1;
        if (pitch != 0 && d == 1 && most > pitch / unit)
            most = pitch / unit; /* a row stays inside its pitch */
        uint64_t count = 1 + test_random_below(random, most < 7 ? most : 7);
        o->shape[d] = d + 1u == o->ndim ? count * elements : count;
        o->stride[d] = stride;
        room -= (count - 1) * stride;
        hull += (count - 1) * stride;
    }
    o->length = hull;
    if (pitch == 0 && o->ndim > 0 && test_random_one_in(random, 8))
        o->shape[test_random_below(random, o->ndim)] = o->length = 0;
    touch(v, 0, o->offset);
}

static int bytes_meet(const view *a, const view *b)
{
    if (a->operand.storage != b->operand.storage)
        return 0;
    for (int i = 0; i < SPACE; i++)
        if (a->touched[i] && b->touched[i])
            return 1;
    return 0;
}

static int hulls_meet(const view *a, const view *b)
{
    return a->operand.storage == b->operand.storage && a->operand.length > 0 && b->operand.length > 0 &&
           a->operand.offset < b->operand.offset + b->operand.length &&
           b->operand.offset < a->operand.offset + a->operand.length;
}

static void shared_bytes_are_never_missed(void **state)
{
    (void)state;
    test_random random = test_random_from(21);
    int met = 0, apart = 0;
    for (int i = 0; i < 200000; i++) {
        view a, b;
        uint64_t pitch = test_random_one_in(&random, 2) ? 8 + test_random_below(&random, 40) : 0;
        random_view(&random, &a, pitch);
        random_view(&random, &b, pitch);
        mica__range ra, rb;
        mica__range_of(&a.operand, &ra);
        mica__range_of(&b.operand, &rb);
        bool found = mica__ranges_overlap(&ra, &rb);
        assert_int_equal(found, mica__ranges_overlap(&rb, &ra));
        if (bytes_meet(&a, &b)) {
            assert_true(found);
            met++;
        } else if (!hulls_meet(&a, &b)) {
            assert_false(found);
            apart++;
        }
        bool write = ((a.operand.access | b.operand.access) & MICA_ACCESS_WRITE) != 0;
        assert_int_equal(mica__ranges_conflict(&ra, &rb), found && write);
    }
    assert_true(met > 1000 && apart > 1000);
}

/* Solid rows at one pitch: column slices of a matrix that share no column do not meet, wherever their rows are. */
static void column_slices_are_told_apart(void **state)
{
    (void)state;
    test_random random = test_random_from(22);
    int refined = 0;
    for (int i = 0; i < 100000; i++) {
        uint64_t pitch = 8 + test_random_below(&random, 40);
        view a, b;
        random_view(&random, &a, pitch);
        random_view(&random, &b, pitch);
        a.operand.storage = b.operand.storage = &storage_a;
        if (a.operand.shape[0] < 2 || b.operand.shape[0] < 2)
            continue; /* one row: it has no pitch */
        uint8_t columns[SPACE] = {0};
        int meet = 0;
        for (int k = 0; k < SPACE; k++)
            if (a.touched[k])
                columns[(uint64_t)k % pitch] = 1;
        for (int k = 0; k < SPACE && !meet; k++)
            meet = b.touched[k] && columns[(uint64_t)k % pitch];
        mica__range ra, rb;
        mica__range_of(&a.operand, &ra);
        mica__range_of(&b.operand, &rb);
        if (!meet) {
            assert_false(mica__ranges_overlap(&ra, &rb));
            refined += hulls_meet(&a, &b);
        }
    }
    assert_true(refined > 1000); /* cases where hulls alone would have said yes */
}

static void absent_operands_touch_nothing(void **state)
{
    (void)state;
    view present;
    mica__operand absent = {0};
    mica__range none, some;
    test_random random = test_random_from(1);
    random_view(&random, &present, 0);
    present.operand.access = MICA_ACCESS_WRITE;
    mica__range_of(&absent, &none);
    mica__range_of(&present.operand, &some);
    assert_int_equal(none.access, 0);
    assert_false(mica__ranges_conflict(&none, &some));
    assert_false(mica__ranges_conflict(&none, &none));
}

enum { WORK = 40, OPERANDS = 3 };

/* Every pair of dispatches whose bytes conflict is connected by the edges that the tracker gives, directly or through
 * dispatches between them. */
static void dependencies_reach_every_conflict(void **state)
{
    (void)state;
    test_random random = test_random_from(23);
    for (int round = 0; round < 300; round++) {
        view views[WORK][OPERANDS];
        uint8_t after[WORK][WORK] = {{0}}; /* after[i][j]: i waits for j */
        mica__tracker tracker = {0};
        for (uint32_t i = 0; i < WORK; i++) {
            mica__range ranges[OPERANDS];
            uint32_t list[WORK];
            uint64_t pitch = round % 2 == 0 ? 0 : 24;
            for (int k = 0; k < OPERANDS; k++) {
                random_view(&random, &views[i][k], pitch);
                mica__range_of(&views[i][k].operand, &ranges[k]);
            }
            uint32_t count = mica__tracker_dependencies(&tracker, ranges, OPERANDS, list, WORK);
            for (uint32_t d = 0; d < count; d++) {
                assert_true(list[d] < i && (d == 0 || list[d] > list[d - 1]));
                after[i][list[d]] = 1;
                for (uint32_t j = 0; j < WORK; j++)
                    after[i][j] |= after[list[d]][j];
            }
            must(mica__tracker_record(&tracker, ranges, OPERANDS, i));
            for (uint32_t j = 0; j < i; j++)
                for (int p = 0; p < OPERANDS * OPERANDS; p++) {
                    const view *x = &views[i][p / OPERANDS], *y = &views[j][p % OPERANDS];
                    if (((x->operand.access | y->operand.access) & MICA_ACCESS_WRITE) && bytes_meet(x, y))
                        assert_int_equal(after[i][j], 1);
                }
        }
        mica__tracker_free(&tracker);
    }
}

/* With barriers: between two barriers no two dispatches conflict. */
static void groups_hold_no_conflict(void **state)
{
    (void)state;
    test_random random = test_random_from(24);
    mica__tracker tracker = {0};
    view group[WORK][OPERANDS];
    uint32_t size = 0, barriers = 0, elided = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        view fresh[OPERANDS];
        mica__range ranges[OPERANDS];
        for (int k = 0; k < OPERANDS; k++) {
            random_view(&random, &fresh[k], 0);
            if (!test_random_one_in(&random, 3))
                fresh[k].operand.access = MICA_ACCESS_READ;
            mica__range_of(&fresh[k].operand, &ranges[k]);
        }
        if (size == WORK || mica__tracker_conflicts(&tracker, ranges, OPERANDS)) {
            mica__tracker_reset(&tracker);
            size = 0;
            barriers++;
        } else {
            elided++;
        }
        for (uint32_t j = 0; j < size; j++)
            for (int p = 0; p < OPERANDS * OPERANDS; p++) {
                const view *x = &fresh[p / OPERANDS], *y = &group[j][p % OPERANDS];
                assert_false(((x->operand.access | y->operand.access) & MICA_ACCESS_WRITE) &&
                             bytes_meet(x, y));
            }
        must(mica__tracker_record(&tracker, ranges, OPERANDS, i));
        memcpy(group[size++], fresh, sizeof fresh);
    }
    assert_true(barriers > 100 && elided > 100 && tracker.checks > 0);
    mica__tracker_free(&tracker);
}

/* More conflicting owners than the list can hold: the count still tells. */
static void a_full_list_says_how_many(void **state)
{
    (void)state;
    mica__tracker tracker = {0};
    for (uint32_t i = 0; i < 50; i++) {
        mica__range read = {&storage_a, 0, 100, 0, 0, MICA_ACCESS_READ, 0};
        must(mica__tracker_record(&tracker, &read, 1, i));
    }
    mica__range write = {&storage_a, 50, 60, 0, 0, MICA_ACCESS_WRITE, 0};
    uint32_t list[8];
    assert_true(mica__tracker_dependencies(&tracker, &write, 1, list, 8) > 8);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(list[i], i);
    mica__tracker_free(&tracker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(shared_bytes_are_never_missed), test(column_slices_are_told_apart),
        test(absent_operands_touch_nothing), test(dependencies_reach_every_conflict),
        test(groups_hold_no_conflict),       test(a_full_list_says_how_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
