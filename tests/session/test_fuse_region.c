/*
 * test_fuse_region.c - regions that are joined: which ones, what the joined one says, and that it has the bits of its
 * parts.
 */
#include <stdio.h>

#include "oracle/oracle_number.h"
#include "session/interpreter.h"
#include "session/rig.h"
#include "support/tensor.h"

#define ROWS 3
#define DIM 8

/* ---- where they are made: lists by hand ---- */

static mica__operand fresh(hand *h, bool temporary)
{
    return hand_f32(h, hand_storage(h, temporary), ROWS, DIM);
}

static const mica__region_program *program_of(const hand *h, uint32_t at)
{
    return h->list.record[at]->params;
}

/* As many ops in a row as are asked for become one record, until it has as many inputs as it may. */
static void test_lengths(void **state)
{
    static hand h;
    (void)state;
    for (uint32_t n = 1; n <= 20; n++) {
        mica__operand v = fresh(&h, false);
        for (uint32_t i = 0; i < n; i++) {
            mica__operand y = fresh(&h, i + 1 < n);
            hand_binary(&h, HAND_MUL, v, fresh(&h, false), y);
            v = y;
        }
        assert_int_equal(hand_fuse(&h), n <= 15 ? n - 1 : n - 2);
        assert_int_equal(h.list.count, n <= 15 ? 1 : 2);
        assert_int_equal(program_of(&h, 0)->input_count, n <= 15 ? n + 1 : 16);
        assert_string_equal(h.list.record[0]->fused, n == 1 ? "" : "region");
        hand_free(&h);
    }
}

/* Sixty-four steps and no more. */
static void test_steps_end(void **state)
{
    static hand h;
    (void)state;
    mica__operand a = fresh(&h, false), t[2] = {fresh(&h, true), fresh(&h, true)}, y = fresh(&h, false);
    for (uint32_t i = 0; i < 70; i++)
        hand_unary(&h, HAND_GELU, i == 0 ? a : t[i % 2], i == 69 ? y : t[(i + 1) % 2], 0);
    assert_int_equal(hand_fuse(&h), 68);
    assert_int_equal(h.list.count, 2);
    assert_int_equal(program_of(&h, 0)->step_count, 64);
    assert_int_equal(program_of(&h, 1)->step_count, 6);
    hand_free(&h);
}

/* What the joined one says: its steps in order, a view that is read twice once, one result. */
static void test_steps(void **state)
{
    static hand h;
    (void)state;
    mica__operand a = fresh(&h, false), b = fresh(&h, false), y = fresh(&h, false);
    mica__operand t[2] = {fresh(&h, true), fresh(&h, true)};
    hand_binary(&h, HAND_ADD, a, b, t[0]);
    hand_unary(&h, HAND_SOFTCAP, t[0], t[1], 3.0f);
    hand_binary(&h, HAND_SILU_MUL, a, t[1], y);
    assert_int_equal(hand_fuse(&h), 2);
    assert_int_equal(h.list.count, 1);
    const mica__record *r = h.list.record[0];
    const mica__region_program *p = r->params;
    static const uint8_t scalars[] = {MICA_SCALAR_ADD, MICA_SCALAR_CONSTANT, MICA_SCALAR_SOFTCAP,
                                      MICA_SCALAR_SILU, MICA_SCALAR_MUL};
    assert_int_equal(r->operand_count, 3);
    assert_int_equal(r->params_size, mica__region_bytes(5));
    assert_int_equal(p->step_count, 5);
    for (uint32_t s = 0; s < 5; s++)
        assert_int_equal(p->step[s].scalar, scalars[s]);
    assert_true(p->step[1].constant.f32 == 3.0f);
    assert_ptr_equal(r->operand[0].storage, a.storage);
    assert_ptr_equal(r->operand[1].storage, b.storage);
    assert_ptr_equal(r->operand[2].storage, y.storage);
    hand_free(&h);
}

/* A value that one record reads twice, two values that meet, one that two records read: all join. */
static void test_meetings(void **state)
{
    static hand h;
    (void)state;
    mica__operand a = fresh(&h, false), b = fresh(&h, false), y = fresh(&h, false), z = fresh(&h, false);
    mica__operand t[2] = {fresh(&h, true), fresh(&h, true)};
    hand_binary(&h, HAND_ADD, a, b, t[0]);
    hand_binary(&h, HAND_MUL, t[0], t[0], y);
    assert_int_equal(hand_fuse(&h), 1);
    assert_int_equal(program_of(&h, 0)->input_count, 2);
    mica__record_list_free(&h.list);

    hand_binary(&h, HAND_ADD, a, b, t[0]);
    hand_unary(&h, HAND_GELU, a, t[1], 0);
    hand_binary(&h, HAND_MUL, t[0], t[1], y);
    assert_int_equal(hand_fuse(&h), 2);
    assert_int_equal(h.list.count, 1);
    mica__record_list_free(&h.list);

    hand_binary(&h, HAND_ADD, a, b, t[0]);
    hand_unary(&h, HAND_GELU, t[0], y, 0);
    hand_binary(&h, HAND_MUL, t[0], a, z);
    assert_int_equal(hand_fuse(&h), 2);
    assert_int_equal(h.list.count, 1);
    assert_int_equal(program_of(&h, 0)->output_count, 2);
    hand_free(&h);
}

/* What another op reads is written as well; what lies between the two in the data flow keeps them apart. */
static void test_others(void **state)
{
    static hand h;
    (void)state;
    mica__operand a = fresh(&h, false), b = fresh(&h, false), y = fresh(&h, false), z = fresh(&h, false);
    mica__operand t = fresh(&h, true), u = fresh(&h, true);
    hand_binary(&h, HAND_ADD, a, b, t);
    hand_unary(&h, HAND_GELU, t, y, 0);
    hand_copy(&h, t, z);
    assert_int_equal(hand_fuse(&h), 1);
    assert_int_equal(h.list.count, 2);
    assert_int_equal(program_of(&h, 0)->output_count, 2);
    mica__record_list_free(&h.list);

    hand_binary(&h, HAND_ADD, a, b, t);
    hand_copy(&h, t, u); /* the product reads both, so the sum cannot come into it */
    hand_binary(&h, HAND_MUL, t, u, y);
    assert_int_equal(hand_fuse(&h), 0);
    hand_free(&h);
}

/* A value of 16 bits is rounded as it was; of 32 it is not. */
static void test_roundings(void **state)
{
    static hand h;
    (void)state;
    mica__operand a = fresh(&h, false), y = fresh(&h, false);
    mica__operand t = hand_view(&h, hand_storage(&h, true), MICA_DTYPE_F16, 0, 2, ROWS, DIM);
    hand_unary(&h, HAND_GELU, a, t, 0);
    hand_binary(&h, HAND_MUL, t, a, y);
    assert_int_equal(hand_fuse(&h), 1);
    assert_int_equal(program_of(&h, 0)->step_count, 3);
    assert_int_equal(program_of(&h, 0)->step[1].scalar, MICA_SCALAR_ROUND_F16);
    assert_int_equal(program_of(&h, 0)->step[2].value[0], 2);
    hand_free(&h);
}

/* y may be exactly what a step reads, and not a part of it: apart, the first record had read all of it. */
static void test_overlaps(void **state)
{
    static hand h;
    (void)state;
    for (int how = 0; how < 4; how++) {
        mica__operand a = fresh(&h, false), b = fresh(&h, false), t = fresh(&h, true), y = a;
        if (how == 1)
            y = b;
        if (how >= 2) {
            y.offset += sizeof(float) * DIM; /* a row on */
            y.storage = how == 2 ? a.storage : b.storage;
        }
        hand_binary(&h, HAND_ADD, a, b, t);
        hand_unary(&h, HAND_GELU, t, y, 0);
        assert_int_equal(hand_fuse(&h), how < 2);
        hand_free(&h);
    }
}

/* ---- many ---- */

/* Twenty thousand values, each written once, some read twice: joined, in steps that grow with their number. */
static uint64_t join_many(uint32_t count)
{
    mica__storage *storage = test_alloc(count + 1, sizeof *storage);
    hand *h = test_alloc(1, sizeof *h);
    mica__operand *v = test_alloc(count + 1, sizeof *v);
    for (uint32_t i = 0; i <= count; i++) {
        v[i] = hand_f32(h, hand_storage(h, true), ROWS, DIM);
        h->count = 0;
        atomic_init(&storage[i].references, 1u << 20);
        v[i].storage = &storage[i];
        v[i].memory = (mica__memory *)(void *)&storage[i];
    }
    for (uint32_t i = 1; i <= count; i++)
        hand_binary(h, i % 3 ? HAND_ADD : HAND_MUL, v[i - 1], v[i > 7 ? i - 7 : 0], v[i]);
    const uint64_t fusions = hand_fuse(h);
    hand_free(h);
    free(storage);
    free(v);
    free(h);
    return fusions;
}

static void test_many(void **state)
{
    (void)state;
    assert_true(join_many(2000) > 1500);
    assert_true(join_many(20000) > 15000);
}

/* ---- bits: the cpu ---- */

#define MOST_STEPS 24
#define INPUTS 4

typedef struct step {
    uint8_t scalar, arity, type;
    uint8_t value[3]; /* numbers of values: inputs, then what steps wrote */
    uint8_t into;     /* the value it is written over, or NONE: one of its own */
    bool kept;        /* its own is an output, not a temporary */
    mica_dtype dtype;
    test_tensor output;
} step;

typedef struct program {
    uint32_t ndim, count;
    uint64_t shape[3];
    test_tensor input[INPUTS];
    step step[MOST_STEPS];
} program;

static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16,  MICA_DTYPE_BF16,
                                   MICA_DTYPE_I8,  MICA_DTYPE_I32,  MICA_DTYPE_U16,
                                   MICA_DTYPE_F64, MICA_DTYPE_BOOL, MICA_DTYPE_F8_E5M2};

static mica_dtype dtype_of(const program *p, uint32_t value)
{
    return value < INPUTS ? p->input[value].dtype : p->step[value - INPUTS].dtype;
}

static mica_register register_of(const program *p, uint32_t value)
{
    return mica_register_of(dtype_of(p, value));
}

/* A step of values that are there; false where the scalar found none that fit. */
static bool draw_step(program *p, test_random *random)
{
    step *s = &p->step[p->count];
    const uint32_t there = INPUTS + p->count;
    memset(s, 0, sizeof *s);
    s->scalar = (uint8_t)(1 + test_random_below(random, MICA_SCALAR_COUNT - 1));
    const mica__scalar_info *info = mica__scalar_of(s->scalar);
    const uint32_t first = s->scalar == MICA_SCALAR_SELECT;
    uint32_t set = info->in;
    if (!info->plain)
        return false;
    s->arity = info->arity;
    for (uint32_t j = 0; j < s->arity; j++) {
        const uint32_t wanted = j < first ? MICA__SET_BOOL : set;
        uint32_t turn = 0;
        do
            s->value[j] = (uint8_t)test_random_below(random, there);
        while ((wanted >> register_of(p, s->value[j]) & 1) == 0 && ++turn < 20);
        if (turn == 20)
            return false;
        if (j == first)
            set = 1u << register_of(p, s->value[j]);
    }
    s->type = info->out != 0 ? MICA_REGISTER_BOOL : (uint8_t)register_of(p, s->value[first]);
    do
        s->dtype = types[test_random_below(random, sizeof types / sizeof *types)];
    while (mica_register_of(s->dtype) != s->type && s->type != MICA_REGISTER_NONE);
    s->into = MICA_REGION_NONE;
    s->kept = test_random_one_in(random, 4);
    const uint8_t over = s->value[s->arity - 1];
    if (!s->kept && over >= INPUTS && dtype_of(p, over) == s->dtype && test_random_one_in(random, 3))
        s->into = over;
    if (s->kept)
        test_tensor_init(&s->output, random, "y", s->dtype, p->ndim, p->shape, TEST_ANY);
    p->count++;
    return true;
}

static void make_program(program *p, test_random *random)
{
    memset(p, 0, sizeof *p);
    p->ndim = 1 + (uint32_t)test_random_below(random, 3);
    for (uint32_t d = 0; d < p->ndim; d++)
        p->shape[d] = test_random_size(random, p->ndim == 1 ? 3000 : p->ndim == 2 ? 60 : 14);
    for (uint32_t i = 0; i < INPUTS; i++) {
        const uint32_t less = (uint32_t)test_random_below(random, p->ndim);
        const mica_dtype dtype = types[i == 0 ? 0 : test_random_below(random, sizeof types / sizeof *types)];
        test_tensor_init(&p->input[i], random, "x", dtype, p->ndim - less, p->shape + less, TEST_REPEAT);
        if (mica_register_of(dtype) == MICA_REGISTER_F32 || dtype == MICA_DTYPE_F64)
            test_tensor_normal(&p->input[i], random, 2);
        else
            test_tensor_indices(&p->input[i], random, dtype == MICA_DTYPE_BOOL ? 2 : 100);
    }
    const uint32_t count = 2 + (uint32_t)test_random_below(random, MOST_STEPS - 2);
    while (p->count < count)
        draw_step(p, random);
    p->step[count - 1].into = MICA_REGION_NONE;
    if (!p->step[count - 1].kept) {
        p->step[count - 1].kept = true;
        test_tensor_init(&p->step[count - 1].output, random, "y", p->step[count - 1].dtype, p->ndim, p->shape,
                         TEST_ANY);
    }
}

static void for_tensors(program *p, void (*act)(test_tensor *, mica_device *), mica_device *device)
{
    for (uint32_t i = 0; i < INPUTS; i++)
        act(&p->input[i], device);
    for (uint32_t i = 0; i < p->count; i++)
        if (p->step[i].kept)
            act(&p->step[i].output, device);
}

static void upload(test_tensor *t, mica_device *device)
{
    ok(test_tensor_upload(t, device));
}

static void restore(test_tensor *t, mica_device *device)
{
    (void)device;
    ok(test_tensor_restore(t));
}

static void fetch(test_tensor *t, mica_device *device)
{
    (void)device;
    ok(test_tensor_fetch(t));
}

static void discard(test_tensor *t, mica_device *device)
{
    (void)device;
    test_tensor_unload(t);
    test_tensor_free(t);
}

/* One region of one step. */
static void apply(mica_encoder *e, const program *p, const step *s, mica_buffer *const *in, mica_buffer *y)
{
    mica_region_step one = {s->scalar, s->type, {MICA_REGION_NONE, MICA_REGION_NONE, MICA_REGION_NONE},
                            0,         {0},     {0}};
    mica_region_desc desc = {s->arity, 1, 1, {0}, {s->arity}, {MICA_REGION_NONE}, &one};
    mica_region *region = NULL;
    for (uint32_t j = 0; j < s->arity; j++) {
        one.value[j] = (uint8_t)j;
        desc.input[j] = (uint8_t)register_of(p, s->value[j]);
    }
    ok(mica_region_create(&desc, &region));
    ok(mica_region_apply(e, region, in, &y));
    mica_region_release(region);
}

static void encode(const program *p, mica_session *session)
{
    mica_buffer *value[INPUTS + MOST_STEPS], *temp[MOST_STEPS] = {NULL};
    for (uint32_t i = 0; i < INPUTS; i++)
        value[i] = p->input[i].view;
    for (uint32_t i = 0; i < p->count; i++) {
        const step *s = &p->step[i];
        mica_buffer *in[3] = {NULL};
        for (uint32_t j = 0; j < s->arity; j++)
            in[j] = value[s->value[j]];
        if (s->kept)
            value[INPUTS + i] = s->output.view;
        else if (s->into != MICA_REGION_NONE)
            value[INPUTS + i] = value[s->into];
        else {
            ok(mica_session_temp(session, s->dtype, p->ndim, p->shape, &temp[i]));
            value[INPUTS + i] = temp[i];
        }
        apply(mica_session_encoder(session), p, s, in, value[INPUTS + i]);
    }
    for (uint32_t i = 0; i < p->count; i++)
        mica_buffer_release(temp[i]);
}

/* Runs the program from its inputs, and fetches all that came out; the records that there were. */
static uint32_t run(program *p, mica_device *device, bool fuse)
{
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    uint32_t records = p->count;
    for_tensors(p, restore, device);
    ok(mica_session_begin(device, NULL, fuse ? MICA_SESSION_RECORD : 0, &session));
    encode(p, session);
    if (fuse) {
        ok(mica_session_record(session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, NULL, &recording));
        records = mica_recording_count(recording);
        ok(mica_recording_replay_and_wait(recording));
    } else {
        ok(mica_session_finish(session, 0, NULL));
    }
    mica_recording_release(recording);
    mica_session_release(session);
    for_tensors(p, fetch, device);
    return records;
}

static bool is_nan(mica_dtype dtype, const unsigned char *element)
{
    if (dtype == MICA_DTYPE_F8_E5M2)
        return (*element & 0x7f) > 0x7c;
    const double number = mica_register_of(dtype) == MICA_REGISTER_F32 || dtype == MICA_DTYPE_F64
                              ? oracle_get(dtype, element)
                              : 0;
    return isnan(number);
}

/* The whole allocation, but for which NaN it is where there is one. */
static bool same_bits(test_tensor *y, unsigned char *direct)
{
    const size_t bytes = mica_dtype_block_bytes(y->dtype);
    for (uint64_t i = 0; i < y->count; i++) {
        const uint64_t place = test_tensor_place(y, i);
        if (is_nan(y->dtype, direct + place) && is_nan(y->dtype, y->after + place))
            memcpy(direct + place, y->after + place, bytes);
    }
    return memcmp(direct, y->after, y->bytes) == 0;
}

static uint32_t check_program(mica_device *device, const char *isa, uint64_t seed)
{
    static program p;
    test_random random = test_random_from(seed);
    unsigned char *direct[MOST_STEPS] = {NULL};
    make_program(&p, &random);
    for_tensors(&p, upload, device);
    run(&p, device, false);
    for (uint32_t i = 0; i < p.count; i++) {
        test_tensor *y = &p.step[i].output;
        if (!p.step[i].kept)
            continue;
        direct[i] = test_alloc(y->bytes, 1);
        memcpy(direct[i], y->after, y->bytes);
    }
    const uint32_t records = run(&p, device, true), saved = p.count - records;
    for (uint32_t i = 0; i < p.count; i++) {
        if (!p.step[i].kept)
            continue;
        if (!same_bits(&p.step[i].output, direct[i]))
            fail_msg("%s, seed %llu: other bits of step %u (%s)", isa, (unsigned long long)seed, i,
                     mica_scalar_name(p.step[i].scalar));
        if (test_tensor_stray(&p.step[i].output, true) != UINT64_MAX)
            fail_msg("%s, seed %llu: a write beside output %u", isa, (unsigned long long)seed, i);
        free(direct[i]);
    }
    for_tensors(&p, discard, device);
    return saved;
}

static void test_bits(void **state)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        mica_device_options options = {.threads = i < 3 ? 1 : 3};
        mica_device *device = NULL;
        uint32_t saved = 0;
        snprintf(options.isa, sizeof options.isa, "%s", isas[i % 3]);
        mica_status opened = mica_device_open("cpu", &options, &device);
        if (opened == MICA_ERR_UNSUPPORTED && i % 3 > 0) {
            print_message("%s: not on this machine\n", isas[i % 3]);
            continue;
        }
        ok(opened);
        for (uint64_t seed = 1; seed <= 120; seed++)
            saved += check_program(device, isas[i % 3], seed);
        assert_true(saved > 500);
        mica_device_release(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),  cmocka_unit_test(test_steps_end), cmocka_unit_test(test_steps),
        cmocka_unit_test(test_meetings), cmocka_unit_test(test_others),    cmocka_unit_test(test_roundings),
        cmocka_unit_test(test_overlaps), cmocka_unit_test(test_many),      cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
