/*
 * test_rotated_attention.c - a token's rope, its way into the caches and attention over them, as one record where the device has
 * a kernel for that: the same bits, in y and in the caches, as the ops one after the other. Those have their oracles in the table.
 *
 *   test_rotated_attention [DEVICE]
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

enum { Q, K, V, POSITIONS, LENGTHS, SEQUENCES, PAGES, FACTORS, CACHE_K, CACHE_V, Y, TENSORS };

typedef struct rotated_case {
    test_tensor tensor[TENSORS];
    uint64_t heads, kv_heads, dim;
    bool paged, ring, factors;
    mica_rope_params rope;
    mica_attention_params attention;
} rotated_case;

static void add(rotated_case *c, test_random *random, uint32_t which, mica_dtype dtype, uint32_t ndim,
                const uint64_t *shape, test_layout layout)
{
    static const char *const names[TENSORS] = {"q",          "k",          "v",     "positions",
                                               "lengths",    "sequences",  "pages", "factors",
                                               "cache of k", "cache of v", "y"};
    test_tensor_init(&c->tensor[which], random, names[which], dtype, ndim, shape, layout);
}

/* Contiguous, so that kernels which read 16 bytes at once take part; now and then not. */
static void add_cache(rotated_case *c, test_random *random, uint32_t which, uint64_t pages, uint64_t slots)
{
    static const mica_dtype types[] = {MICA_DTYPE_F16, MICA_DTYPE_F32, MICA_DTYPE_BF16, MICA_DTYPE_Q8_0};
    const uint64_t shape[4] = {pages, slots, c->kv_heads, c->dim};
    const mica_dtype dtype = types[test_random_below(random, c->dim % 32 == 0 ? 4 : 3)];
    add(c, random, which, dtype, c->paged ? 4 : 3, c->paged ? shape : shape + 1,
        test_random_one_in(random, 5) ? TEST_ROWS : TEST_CONTIGUOUS);
    if (dtype == MICA_DTYPE_Q8_0)
        test_tensor_blocks(&c->tensor[which], random);
    else
        test_tensor_normal(&c->tensor[which], random, 1);
}

static void add_number(rotated_case *c, test_random *random, uint32_t which, uint64_t value)
{
    add(c, random, which, MICA_DTYPE_U32, 1, (uint64_t[]){1}, TEST_CONTIGUOUS);
    test_tensor_set(&c->tensor[which], 0, (double)value);
}

static void make_case(rotated_case *c, test_random *random)
{
    static const uint64_t dims[] = {128, 64, 32, 256, 48}, ratios[] = {4, 1, 2, 7},
                          lengths[] = {40, 300, 1500};
    static const uint64_t page_slots[] = {16, 64, 5};
    memset(c, 0, sizeof *c);
    c->dim = dims[test_random_below(random, 5)];
    c->kv_heads = 1 + test_random_below(random, 3);
    c->heads = c->kv_heads * ratios[test_random_below(random, 4)];
    c->paged = test_random_one_in(random, 2);
    c->ring = !c->paged && test_random_one_in(random, 2);
    c->factors = test_random_one_in(random, 2);
    const uint64_t position = test_random_below(random, lengths[test_random_below(random, 3)]);
    const uint64_t room =
        c->ring ? 1 + test_random_below(random, position + 20) : position + 1 + test_random_below(random, 9);
    const uint64_t slots = c->paged ? page_slots[test_random_below(random, 3)] : room;
    const uint64_t pages = (room + slots - 1) / slots;
    for (uint32_t i = Q; i <= V; i++) {
        add(c, random, i, MICA_DTYPE_F32, 3, (uint64_t[]){1, i == Q ? c->heads : c->kv_heads, c->dim},
            TEST_ROWS);
        test_tensor_normal(&c->tensor[i], random, 1);
    }
    add_number(c, random, POSITIONS, position);
    add_number(c, random, SEQUENCES, 0);
    add_number(c, random, LENGTHS, position + 1);
    add(c, random, PAGES, MICA_DTYPE_U32, 2, (uint64_t[]){1, pages}, TEST_CONTIGUOUS);
    for (uint64_t i = 0; i < pages; i++) /* backwards; now and then one is missing */
        test_tensor_set(&c->tensor[PAGES], i, (double)(pages - 1 - i));
    if (c->paged && test_random_one_in(random, 8))
        test_tensor_set(&c->tensor[PAGES], test_random_below(random, pages), (double)pages);
    const uint32_t rotary = (uint32_t)(test_random_one_in(random, 6) ? c->dim / 2 : c->dim);
    c->rope = (mica_rope_params){.mode = test_random_one_in(random, 2) ? MICA_ROPE_NEOX : MICA_ROPE_STANDARD,
                                 .rotary_dims = rotary,
                                 .theta = 10000};
    add(c, random, FACTORS, MICA_DTYPE_F32, 1, (uint64_t[]){rotary / 2}, TEST_CONTIGUOUS);
    test_tensor_uniform(&c->tensor[FACTORS], random, 0.5, 8);
    add_cache(c, random, CACHE_K, pages, slots);
    add_cache(c, random, CACHE_V, pages, slots);
    add(c, random, Y, MICA_DTYPE_F32, 3, (uint64_t[]){1, c->heads, c->dim}, TEST_ROWS);
    c->attention = (mica_attention_params){.softcap = test_random_one_in(random, 4) ? 20.0f : 0,
                                           .window = test_random_one_in(random, 4) ? 37 : 0,
                                           .ring = c->ring};
}

static mica_buffer *view_of(const rotated_case *c, uint32_t which)
{
    return c->tensor[which].view;
}

/* A temporary of the session with what `which` has. */
static mica_buffer *bring(mica_session *session, const rotated_case *c, uint32_t which)
{
    mica_buffer *temp = NULL;
    must(mica_session_temp(session, MICA_DTYPE_F32, 3, c->tensor[which].shape, &temp));
    must(mica_copy(mica_session_encoder(session), view_of(c, which), temp));
    return temp;
}

static void encode(mica_session *session, void *drawn)
{
    const rotated_case *c = drawn;
    mica_encoder *encoder = mica_session_encoder(session);
    mica_buffer *q = bring(session, c, Q), *k = bring(session, c, K), *v = bring(session, c, V);
    mica_buffer *factors = c->factors ? view_of(c, FACTORS) : NULL, *positions = view_of(c, POSITIONS);
    mica_buffer *pages = c->paged ? view_of(c, PAGES) : NULL,
                *sequences = c->paged ? view_of(c, SEQUENCES) : NULL;
    const mica_kv_params kv = {.ring = c->ring};
    const mica_attention_operands operands = {.q = q,
                                              .k = view_of(c, CACHE_K),
                                              .v = view_of(c, CACHE_V),
                                              .positions = positions,
                                              .lengths = view_of(c, LENGTHS),
                                              .sequences = sequences,
                                              .pages = pages};
    must(mica_rope(encoder, q, positions, factors, &c->rope, q));
    must(mica_rope(encoder, k, positions, factors, &c->rope, k));
    must(mica_kv_write(encoder, k, positions, sequences, pages, &kv, view_of(c, CACHE_K)));
    must(mica_kv_write(encoder, v, positions, sequences, pages, &kv, view_of(c, CACHE_V)));
    must(mica_attention(encoder, &operands, &c->attention, view_of(c, Y)));
    mica_buffer_release(q);
    mica_buffer_release(k);
    mica_buffer_release(v);
}

/* Whether the ops became one record. */
static bool compare(rotated_case *c, mica_device *device, uint32_t number)
{
    static const uint32_t results[] = {CACHE_K, CACHE_V, Y};
    const fused_job job = {"rope+attention", encode, c, c->tensor, results, sizeof results / sizeof *results};
    for (uint32_t i = 0; i < TENSORS; i++)
        must(test_tensor_upload(&c->tensor[i], device));
    const bool fused = fused_compare(device, &job, number);
    for (uint32_t i = 0; i < TENSORS; i++) {
        test_tensor_unload(&c->tensor[i]);
        test_tensor_free(&c->tensor[i]);
    }
    return fused;
}

static bool compare_one(mica_device *device, test_random *random, uint32_t number)
{
    rotated_case c;
    make_case(&c, random);
    return compare(&c, device, number);
}

int main(int argc, char **argv)
{
    return fused_main(compare_one, 5, argc, argv);
}
