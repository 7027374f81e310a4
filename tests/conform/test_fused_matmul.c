/*
 * test_fused_matmul.c - matmuls of few and of a batch of rows together with what models do around them, as one record where the device
 * has a kernel for that: the same bits as the ops one after the other, also with weights of two types. Those have their oracles in
 * the table.
 *
 *   test_fused_matmul [DEVICE]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conform/fused_main.h"
#include "mica/mica.h"
#include "support/tensor.h"

enum { X, ADDED, FIRST, SECOND, FIRST_SCALES, SECOND_SCALES, Y, Y_SECOND, TENSORS };

#define GROUP 32u /* values to a scale */

typedef struct matmul_case matmul_case;

/* What is encoded, and the name of the record that it may become. */
typedef struct pattern {
    const char *joined;
    void (*encode)(const matmul_case *c, mica_session *session, mica_buffer *temp);
} pattern;

struct matmul_case {
    test_tensor tensor[TENSORS];
    mica_buffer *weight[2]; /* as the device likes them */
    const pattern *pattern;
};

static void matmul(const matmul_case *c, mica_session *session, uint32_t weight, mica_buffer *y)
{
    must(mica_matmul(mica_session_encoder(session), c->tensor[X].view, c->weight[weight], NULL, y));
}

static void gate(const matmul_case *c, mica_session *session, mica_buffer *temp)
{
    mica_buffer *up = NULL;
    must(mica_session_temp(session, MICA_DTYPE_F32, 2, c->tensor[Y].shape, &up));
    matmul(c, session, 0, temp);
    matmul(c, session, 1, up);
    must(mica_silu_mul(mica_session_encoder(session), temp, up, c->tensor[Y].view));
    mica_buffer_release(up);
}

static void residual(const matmul_case *c, mica_session *session, mica_buffer *temp)
{
    matmul(c, session, 0, temp);
    must(mica_add(mica_session_encoder(session), c->tensor[ADDED].view, temp, c->tensor[Y].view));
}

static void softcap(const matmul_case *c, mica_session *session, mica_buffer *temp)
{
    matmul(c, session, 0, temp);
    must(mica_softcap(mica_session_encoder(session), temp, 30.0f, c->tensor[Y].view));
}

static void group(const matmul_case *c, mica_session *session, mica_buffer *temp)
{
    (void)temp;
    matmul(c, session, 0, c->tensor[Y].view);
    matmul(c, session, 1, c->tensor[Y_SECOND].view);
}

static const pattern patterns[] = {
    {"gate+up", gate}, {"matmul+residual", residual}, {"matmul+softcap", softcap}, {"matmul group", group}};

static void encode(mica_session *session, void *drawn)
{
    const matmul_case *c = drawn;
    mica_buffer *temp = NULL;
    must(mica_session_temp(session, MICA_DTYPE_F32, 2, c->tensor[Y].shape, &temp));
    c->pattern->encode(c, session, temp);
    mica_buffer_release(temp);
}

/* One in four has weights of two types, perhaps. Inner sizes are such that several groups share them, or one has too little for all its workers. */
static void make_case(matmul_case *c, test_random *random)
{
    static const char *const names[TENSORS] = {"x",      "added",  "first", "second",
                                               "scales", "scales", "y",     "y second"};
    static const mica_dtype types[] = {MICA_DTYPE_Q4_0,    MICA_DTYPE_Q8_0, MICA_DTYPE_Q4_K,
                                       MICA_DTYPE_Q6_K,    MICA_DTYPE_F16,  MICA_DTYPE_BF16,
                                       MICA_DTYPE_Q5_K,    MICA_DTYPE_Q3_K, MICA_DTYPE_IQ4_XS,
                                       MICA_DTYPE_AFFINE4, MICA_DTYPE_IQ2_S};
    const uint64_t count = sizeof types / sizeof *types;
    const mica_dtype first = types[test_random_below(random, count)];
    const mica_dtype type[2] = {first, test_random_one_in(random, 4) ? types[test_random_below(random, count)]
                                                                     : first};
    const uint64_t m =
        test_random_one_in(random, 4) ? 1 + test_random_below(random, 8) : 9 + test_random_below(random, 130);
    const uint64_t n = 1 + test_random_below(random, 300);
    const uint64_t k = 256 * (1 + test_random_below(random, TEST_ANY_SANITIZER ? 3 : 12));
    const uint64_t second = test_random_one_in(random, 2) ? n : 1 + test_random_below(random, 100);
    memset(c, 0, sizeof *c);
    c->pattern = &patterns[test_random_below(random, sizeof patterns / sizeof *patterns)];
    const uint64_t other = c->pattern->encode == group ? second : n;
    const uint64_t shapes[TENSORS][2] = {
        {m, k}, {m, n}, {n, k}, {other, k}, {n, k / GROUP}, {other, k / GROUP}, {m, n}, {m, other}};
    for (uint32_t i = 0; i < TENSORS; i++) {
        const bool is_weight = i == FIRST || i == SECOND, is_scales = i == FIRST_SCALES || i == SECOND_SCALES;
        test_tensor_init(&c->tensor[i], random, names[i],
                         is_weight   ? type[i - FIRST]
                         : is_scales ? MICA_DTYPE_BF16
                                     : MICA_DTYPE_F32,
                         2, shapes[i], is_weight || is_scales ? TEST_CONTIGUOUS : TEST_ROWS);
        if (is_weight && mica_dtype_block_elements(c->tensor[i].dtype) > 1)
            test_tensor_blocks(&c->tensor[i], random);
        else if (i != Y && i != Y_SECOND)
            test_tensor_normal(&c->tensor[i], random, 1);
    }
}

/* As the device likes it; with tables the scales are the biases too. */
static mica_buffer *weight_of(const matmul_case *c, uint32_t i)
{
    mica_buffer *data = c->tensor[FIRST + i].view, *scales = c->tensor[FIRST_SCALES + i].view, *whole = NULL,
                *packed = NULL;
    if (c->tensor[FIRST + i].dtype != MICA_DTYPE_AFFINE4) {
        must(mica_buffer_pack(data, &packed));
        return packed;
    }
    must(mica_buffer_affine(data, scales, scales, GROUP, &whole));
    must(mica_buffer_pack(whole, &packed));
    mica_buffer_release(whole);
    return packed;
}

static bool compare_one(mica_device *device, test_random *random, uint32_t number)
{
    static const uint32_t results[] = {Y, Y_SECOND};
    matmul_case c;
    make_case(&c, random);
    const fused_job job = {c.pattern->joined, encode,  &c,
                           c.tensor,          results, c.pattern->encode == group ? 2 : 1};
    for (uint32_t i = 0; i < TENSORS; i++)
        must(test_tensor_upload(&c.tensor[i], device));
    for (uint32_t i = 0; i < 2; i++)
        c.weight[i] = weight_of(&c, i);
    const bool fused = fused_compare(device, &job, number);
    for (uint32_t i = 0; i < 2; i++)
        mica_buffer_release(c.weight[i]);
    for (uint32_t i = 0; i < TENSORS; i++) {
        test_tensor_unload(&c.tensor[i]);
        test_tensor_free(&c.tensor[i]);
    }
    return fused;
}

int main(int argc, char **argv)
{
    return fused_main(compare_one, 8, argc, argv);
}
