/*
 * test_gated_experts.c - two expert-routed matmuls of the same rows and their gated product, as one record where the device has
 * a kernel for that: the same bits as the ops one after the other. Those have their oracles in the table.
 *
 *   test_gated_experts [DEVICE]
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

enum { X, IDS, GATE, UP, Y, TENSORS };

typedef struct gated_case {
    test_tensor tensor[TENSORS];
    mica_buffer *weight[2]; /* gate, up, as the device likes them */
    bool gelu;
} gated_case;

static void add(gated_case *c, test_random *random, uint32_t which, mica_dtype dtype, uint32_t ndim,
                const uint64_t *shape, test_layout layout)
{
    static const char *const names[TENSORS] = {"x", "ids", "gate", "up", "y"};
    test_tensor_init(&c->tensor[which], random, names[which], dtype, ndim, shape, layout);
}

static void make_case(gated_case *c, test_random *random)
{
    static const mica_dtype types[] = {MICA_DTYPE_Q4_0, MICA_DTYPE_Q8_0, MICA_DTYPE_Q4_K, MICA_DTYPE_Q6_K,
                                       MICA_DTYPE_F16,  MICA_DTYPE_BF16, MICA_DTYPE_Q5_K};
    const mica_dtype dtype = types[test_random_below(random, 7)];
    const uint64_t tokens = 1 + test_random_below(random, 150), slots = 1 + test_random_below(random, 4);
    const uint64_t experts = 1 + test_random_below(random, 8), n = 1 + test_random_below(random, 200);
    const uint64_t k = mica_dtype_block_elements(dtype) == 256 ? 256 * (1 + test_random_below(random, 2))
                                                               : 32 * (1 + test_random_below(random, 9));
    const bool shared = test_random_one_in(random, 2);
    memset(c, 0, sizeof *c);
    c->gelu = test_random_one_in(random, 2);
    add(c, random, X, MICA_DTYPE_F32, shared ? 2 : 3,
        shared ? (uint64_t[]){tokens, k, 0} : (uint64_t[]){tokens, slots, k}, TEST_ROWS);
    test_tensor_normal(&c->tensor[X], random, 1);
    add(c, random, IDS, MICA_DTYPE_U32, 2, (uint64_t[]){tokens, slots}, TEST_CONTIGUOUS);
    test_tensor_indices(&c->tensor[IDS], random, 1 + test_random_below(random, experts)); /* some get none */
    if (test_random_one_in(random, 5))
        test_tensor_set(&c->tensor[IDS], test_random_below(random, tokens * slots), (double)experts);
    for (uint32_t i = GATE; i <= UP; i++) {
        add(c, random, i, dtype, 3, (uint64_t[]){experts, n, k}, TEST_CONTIGUOUS);
        if (mica_dtype_block_elements(dtype) > 1)
            test_tensor_blocks(&c->tensor[i], random);
        else
            test_tensor_normal(&c->tensor[i], random, 1);
    }
    add(c, random, Y, MICA_DTYPE_F32, 3, (uint64_t[]){tokens, slots, n}, TEST_ROWS);
}

static void encode(mica_session *session, void *drawn)
{
    const gated_case *c = drawn;
    mica_encoder *encoder = mica_session_encoder(session);
    mica_buffer *side[2] = {NULL, NULL}, *x = c->tensor[X].view, *ids = c->tensor[IDS].view;
    for (uint32_t i = 0; i < 2; i++) {
        must(mica_session_temp(session, MICA_DTYPE_F32, 3, c->tensor[Y].shape, &side[i]));
        must(mica_matmul_experts(encoder, x, c->weight[i], ids, NULL, side[i]));
    }
    if (c->gelu)
        must(mica_gelu_mul(encoder, side[0], side[1], c->tensor[Y].view));
    else
        must(mica_silu_mul(encoder, side[0], side[1], c->tensor[Y].view));
    mica_buffer_release(side[0]);
    mica_buffer_release(side[1]);
}

/* Whether the ops became one record. */
static bool compare(gated_case *c, mica_device *device, uint32_t number)
{
    static const uint32_t results[] = {Y};
    const fused_job job = {"experts gate+up", encode,  c,
                           c->tensor,         results, sizeof results / sizeof *results};
    for (uint32_t i = 0; i < TENSORS; i++)
        must(test_tensor_upload(&c->tensor[i], device));
    for (uint32_t i = 0; i < 2; i++)
        must(mica_buffer_pack(c->tensor[GATE + i].view, &c->weight[i]));
    const bool fused = fused_compare(device, &job, number);
    for (uint32_t i = 0; i < 2; i++)
        mica_buffer_release(c->weight[i]);
    for (uint32_t i = 0; i < TENSORS; i++) {
        test_tensor_unload(&c->tensor[i]);
        test_tensor_free(&c->tensor[i]);
    }
    return fused;
}

static bool compare_one(mica_device *device, test_random *random, uint32_t number)
{
    gated_case c;
    make_case(&c, random);
    return compare(&c, device, number);
}

int main(int argc, char **argv)
{
    return fused_main(compare_one, 6, argc, argv);
}
