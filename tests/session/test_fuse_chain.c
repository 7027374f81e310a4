/*
 * test_fuse_chain.c - chains of elementwise ops: where they are made, and that they have the bits of their parts.
 */
#include <stdio.h>

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

/* As many ops in a row as are asked for become chains of four. */
static void test_lengths(void **state)
{
    static hand h;
    (void)state;
    for (uint32_t n = 1; n <= 9; n++) {
        mica__operand v = fresh(&h, false);
        for (uint32_t i = 0; i < n; i++) {
            mica__operand y = fresh(&h, i + 1 < n);
            if (i % 2 == 0)
                hand_binary(&h, MICA_OP_MUL, v, fresh(&h, false), y);
            else
                hand_unary(&h, MICA_OP_GELU, v, y, 0);
            v = y;
        }
        hand_fuse(&h);
        assert_int_equal(h.list.count, (n + 3) / 4);
        assert_int_equal(h.list.record[0]->op, n == 1 ? MICA_OP_MUL : MICA_OP_CHAIN);
        hand_free(&h);
    }
}

/* What a chain says: its steps in order, on which side the value stands, the operands beside it. */
static void test_steps(void **state)
{
    static hand h;
    (void)state;
    mica__operand a = fresh(&h, false), b = fresh(&h, false), c = fresh(&h, false), y = fresh(&h, false);
    mica__operand t[2] = {fresh(&h, true), fresh(&h, true)};
    hand_binary(&h, MICA_OP_ADD, a, b, t[0]);
    hand_unary(&h, MICA_OP_SOFTCAP, t[0], t[1], 3.0f);
    hand_binary(&h, MICA_OP_SILU_MUL, c, t[1], y);
    assert_int_equal(hand_fuse(&h), 2);
    assert_int_equal(h.list.count, 1);
    const mica__record *r = h.list.record[0];
    const mica__chain_record *chain_params = r->params;
    assert_int_equal(r->operand_count, MICA__CHAIN_SLOTS);
    assert_int_equal(chain_params->step_count, 3);
    assert_int_equal(chain_params->step[0].op, MICA_OP_ADD);
    assert_int_equal(chain_params->step[1].op, MICA_OP_SOFTCAP);
    assert_true(chain_params->step[1].value == 3.0f);
    assert_int_equal(chain_params->step[2].op, MICA_OP_SILU_MUL);
    assert_int_equal(chain_params->step[0].swapped, 0);
    assert_int_equal(chain_params->step[2].swapped, 1);
    assert_ptr_equal(r->operand[MICA__CHAIN_X].storage, a.storage);
    assert_ptr_equal(r->operand[MICA__CHAIN_OTHER].storage, b.storage);
    assert_null(r->operand[MICA__CHAIN_OTHER + 1].memory);
    assert_ptr_equal(r->operand[MICA__CHAIN_OTHER + 2].storage, c.storage);
    assert_null(r->operand[MICA__CHAIN_OTHER + 3].memory);
    assert_ptr_equal(r->operand[MICA__CHAIN_Y].storage, y.storage);
    hand_free(&h);
}

/* A value that one record reads twice, and two values that meet: only one of them goes on. */
static void test_meetings(void **state)
{
    static hand h;
    (void)state;
    mica__operand a = fresh(&h, false), b = fresh(&h, false), y = fresh(&h, false);
    mica__operand t[2] = {fresh(&h, true), fresh(&h, true)};
    hand_binary(&h, MICA_OP_ADD, a, b, t[0]);
    hand_binary(&h, MICA_OP_MUL, t[0], t[0], y);
    assert_int_equal(hand_fuse(&h), 0);
    hand_free(&h);

    a = fresh(&h, false), b = fresh(&h, false), y = fresh(&h, false);
    t[0] = fresh(&h, true), t[1] = fresh(&h, true);
    hand_binary(&h, MICA_OP_ADD, a, b, t[0]);
    hand_unary(&h, MICA_OP_GELU, a, t[1], 0);
    hand_binary(&h, MICA_OP_MUL, t[0], t[1], y);
    assert_int_equal(hand_fuse(&h), 1);
    assert_int_equal(h.list.count, 2);
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
        hand_binary(&h, MICA_OP_ADD, a, b, t);
        hand_unary(&h, MICA_OP_GELU, t, y, 0);
        assert_int_equal(hand_fuse(&h), how < 2);
        hand_free(&h);
    }
}

/* ---- bits: the cpu ---- */

#define MOST_STEPS 9

typedef struct step {
    mica_op op;
    bool swapped, in_place;
    float cap;
    mica_dtype to; /* the type of the temporary it writes */
    test_tensor other;
} step;

typedef struct program {
    uint32_t ndim, count, records; /* records: that a fused recording has */
    uint64_t shape[3];
    step step[MOST_STEPS];
    test_tensor x, y;
    test_tensor *out; /* y, or the input that is overwritten */
} program;

static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16};

static void make_tensor(test_tensor *t, test_random *random, uint32_t ndim, const uint64_t *shape,
                        test_layout layout)
{
    test_tensor_init(t, random, "t", types[test_random_below(random, 3)], ndim, shape, layout);
    test_tensor_normal(t, random, 2);
}

static bool is_binary(mica_op op)
{
    return op != MICA_OP_GELU && op != MICA_OP_GELU_ERF && op != MICA_OP_SOFTCAP;
}

static void make_step(program *p, uint32_t i, test_random *random)
{
    static const mica_op ops[] = {MICA_OP_ADD,  MICA_OP_MUL,      MICA_OP_SILU_MUL, MICA_OP_GELU_MUL,
                                  MICA_OP_GELU, MICA_OP_GELU_ERF, MICA_OP_SOFTCAP};
    step *s = &p->step[i];
    s->op = ops[test_random_below(random, sizeof ops / sizeof *ops)];
    s->swapped = test_random_below(random, 2) != 0;
    s->cap = (float)test_random_uniform(random, 0.5, 5);
    s->to = test_random_one_in(random, 6) ? types[test_random_below(random, 3)] : MICA_DTYPE_F32;
    s->in_place = i > 0 && p->step[i - 1].to == s->to && test_random_one_in(random, 3);
    if (!is_binary(s->op))
        return;
    bool broadcasts = s->op == MICA_OP_ADD || s->op == MICA_OP_MUL;
    uint32_t less = broadcasts ? (uint32_t)test_random_below(random, p->ndim) : 0;
    make_tensor(&s->other, random, p->ndim - less, p->shape + less,
                test_random_one_in(random, 3) ? TEST_REPEAT : TEST_ANY);
}

/* A chain ends at four steps and where the value is stored in 16 bits. */
static uint32_t count_records(const program *p)
{
    uint32_t records = 0, length = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        length++;
        if (length == MICA__CHAIN_STEPS || i + 1 == p->count || p->step[i].to != MICA_DTYPE_F32) {
            records++;
            length = 0;
        }
    }
    return records;
}

/* The output: its own, or one of the inputs that do not repeat. */
static test_tensor *choose_output(program *p, test_random *random)
{
    test_tensor *input = &p->step[test_random_below(random, p->count)].other;
    if (!test_random_one_in(random, 3) || input->count == 0 || input->ndim != p->ndim)
        return &p->y;
    for (uint32_t d = 0; d < p->ndim; d++)
        if (input->stride[d] == 0)
            return &p->y;
    return input;
}

static void make_program(program *p, test_random *random)
{
    memset(p, 0, sizeof *p);
    p->ndim = 1 + (uint32_t)test_random_below(random, 3);
    p->count = 2 + (uint32_t)test_random_below(random, MOST_STEPS - 1);
    for (uint32_t d = 0; d < p->ndim; d++)
        p->shape[d] = test_random_size(random, p->ndim == 1 ? 5000 : p->ndim == 2 ? 130 : 20);
    make_tensor(&p->x, random, p->ndim, p->shape, test_random_one_in(random, 4) ? TEST_REPEAT : TEST_ANY);
    make_tensor(&p->y, random, p->ndim, p->shape, test_random_one_in(random, 2) ? TEST_CONTIGUOUS : TEST_ANY);
    for (uint32_t i = 0; i < p->count; i++)
        make_step(p, i, random);
    p->out = choose_output(p, random);
    p->records = count_records(p);
}

static void for_inputs(program *p, void (*act)(test_tensor *, mica_device *), mica_device *device)
{
    act(&p->x, device);
    act(&p->y, device);
    for (uint32_t i = 0; i < p->count; i++)
        if (p->step[i].other.count != 0)
            act(&p->step[i].other, device);
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

static void discard(test_tensor *t, mica_device *device)
{
    (void)device;
    test_tensor_unload(t);
    test_tensor_free(t);
}

static void encode_step(mica_encoder *e, const step *s, mica_buffer *v, mica_buffer *y)
{
    mica_buffer *a = s->swapped ? s->other.view : v, *b = s->swapped ? v : s->other.view;
    switch (s->op) {
    case MICA_OP_ADD: ok(mica_add(e, a, b, y)); break;
    case MICA_OP_MUL: ok(mica_mul(e, a, b, y)); break;
    case MICA_OP_SILU_MUL: ok(mica_silu_mul(e, a, b, y)); break;
    case MICA_OP_GELU_MUL: ok(mica_gelu_mul(e, a, b, y)); break;
    case MICA_OP_GELU: ok(mica_gelu(e, v, y)); break;
    case MICA_OP_GELU_ERF: ok(mica_gelu_erf(e, v, y)); break;
    default: ok(mica_softcap(e, v, s->cap, y));
    }
}

static void encode(const program *p, mica_session *session)
{
    mica_buffer *v = p->x.view, *temp[MOST_STEPS] = {NULL};
    for (uint32_t i = 0; i < p->count; i++) {
        mica_buffer *y = p->out->view;
        if (i + 1 < p->count && p->step[i].in_place)
            y = v;
        else if (i + 1 < p->count) {
            ok(mica_session_temp(session, p->step[i].to, p->ndim, p->shape, &temp[i]));
            y = temp[i];
        }
        encode_step(mica_session_encoder(session), &p->step[i], v, y);
        v = y;
    }
    for (uint32_t i = 0; i < p->count; i++)
        mica_buffer_release(temp[i]);
}

/* Runs the program from its inputs; the output's whole allocation is in out->after. */
static void run(program *p, mica_device *device, bool fuse)
{
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    for_inputs(p, restore, device);
    ok(mica_session_begin(device, NULL, fuse ? MICA_SESSION_RECORD : 0, &session));
    encode(p, session);
    if (fuse) {
        ok(mica_session_record(session, MICA_FINISH_FUSE, NULL, &recording));
        assert_int_equal(mica_recording_count(recording), p->records);
        ok(mica_recording_replay_and_wait(recording));
    } else {
        ok(mica_session_finish(session, 0, NULL));
    }
    mica_recording_release(recording);
    mica_session_release(session);
    ok(test_tensor_fetch(p->out));
}

static void check_program(mica_device *device, const char *isa, uint64_t seed)
{
    static program p;
    test_random random = test_random_from(seed);
    make_program(&p, &random);
    for_inputs(&p, upload, device);
    run(&p, device, false);
    unsigned char *direct = test_alloc(p.out->bytes, 1);
    memcpy(direct, p.out->after, p.out->bytes);
    run(&p, device, true);
    if (memcmp(direct, p.out->after, p.out->bytes) != 0)
        fail_msg("%s, seed %llu: other bits", isa, (unsigned long long)seed);
    if (test_tensor_stray(p.out, true) != UINT64_MAX)
        fail_msg("%s, seed %llu: a write beside the output", isa, (unsigned long long)seed);
    free(direct);
    for_inputs(&p, discard, device);
}

static void test_bits(void **state)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        mica_device_options options = {.threads = i < 3 ? 1 : 3};
        mica_device *device = NULL;
        snprintf(options.isa, sizeof options.isa, "%s", isas[i % 3]);
        mica_status opened = mica_device_open("cpu", &options, &device);
        if (opened == MICA_ERR_UNSUPPORTED && i % 3 > 0) {
            print_message("%s: not on this machine\n", isas[i % 3]);
            continue;
        }
        ok(opened);
        for (uint64_t seed = 1; seed <= 150; seed++)
            check_program(device, isas[i % 3], seed);
        mica_device_release(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),  cmocka_unit_test(test_steps), cmocka_unit_test(test_meetings),
        cmocka_unit_test(test_overlaps), cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
