/* test_cuda_attention.c - which kernel of CUDA serves attention: by tokens, types of the caches, heads, masks and places. Native kernels serve nothing that
 * they do not know. */
#include "cuda_rig.h"

#include "mica/mica.h"

#define HEADS 4u
#define KV_HEADS 2u
#define SLOTS 40u

typedef struct attention_case {
    uint64_t tokens, dim, v_dim;
    mica_dtype k, v;
    uint64_t offset; /* bytes between the beginning of the memory and the keys */
    bool masked;
    const char *kernel;
    /* one operand that only the portable kernel knows: 's'inks, s'l'opes, 'k'eys, l's'e as 'e', mask of 'b'ool; 0: none */
    char more;
} attention_case;

static const attention_case cases[] = {
    {16, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_F16, 0, false, "attention_prefill", 0},
    {16, 128, 128, MICA_DTYPE_BF16, MICA_DTYPE_BF16, 0, false, "attention_prefill", 0},
    {16, 128, 128, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, 0, false, "attention_prefill", 0},
    {16, 128, 128, MICA_DTYPE_F32, MICA_DTYPE_F32, 0, false, "attention_prefill", 0},
    {40, 64, 64, MICA_DTYPE_Q8_0, MICA_DTYPE_F16, 0, true, "attention_prefill", 0},
    {40, 256, 256, MICA_DTYPE_F32, MICA_DTYPE_Q8_0, 0, true, "attention_prefill", 0},
    {40, 256, 64, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, 0, false, "attention_prefill", 0},
    {40, 80, 80, MICA_DTYPE_BF16, MICA_DTYPE_F32, 0, false, "attention_prefill", 0},
    /* blocks of two heads begin at multiples of 8 where a head has four, of 2 where it has one */
    {16, 128, 128, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, 8, false, "attention_prefill", 0},
    {16, 128, 128, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, 4, false, "attention/part", 0},
    {16, 32, 32, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, 2, false, "attention_prefill", 0},
    {16, 128, 128, MICA_DTYPE_BF16, MICA_DTYPE_BF16, 8, false, "attention/part", 0},
    /* heads that matrix units do not divide, that registers do not hold */
    {16, 72, 72, MICA_DTYPE_BF16, MICA_DTYPE_BF16, 0, false, "attention/part", 0},
    {16, 128, 256, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, 0, false, "attention/part", 0},
    {16, 288, 128, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, 0, false, "attention/part", 0},
    /* few tokens */
    {15, 128, 128, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, 0, false, "attention_decode", 0},
    {15, 128, 128, MICA_DTYPE_Q8_0, MICA_DTYPE_Q8_0, 0, true, "attention/part", 0},
    /* caches of few bits */
    {16, 128, 128, MICA_DTYPE_Q4_0, MICA_DTYPE_Q8_0, 0, false, "attention/part", 0},
    {16, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_IQ4_NL, 0, false, "attention/part", 0},
    {1, 128, 128, MICA_DTYPE_Q5_1, MICA_DTYPE_Q4_1, 0, false, "attention/part", 0},
    {1, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_Q5_0, 0, false, "attention/part", 0},
    /* operands that few have */
    {16, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_F16, 0, false, "attention/part", 's'},
    {16, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_F16, 0, false, "attention/part", 'l'},
    {16, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_F16, 0, false, "attention/part", 'k'},
    {16, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_F16, 0, false, "attention/part", 'e'},
    {16, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_F16, 0, false, "attention/part", 'b'},
    {1, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_F16, 0, false, "attention/part", 's'},
    {1, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_F16, 0, false, "attention/part", 'l'},
    {1, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_F16, 0, false, "attention/part", 'k'},
    {1, 128, 128, MICA_DTYPE_F16, MICA_DTYPE_F16, 0, false, "attention/part", 'e'},
};

static mica_buffer *buffer_of(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;
    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

/* A cache that begins `offset` bytes behind its memory's beginning. */
static mica_buffer *cache_of(mica_device *device, mica_dtype dtype, uint64_t dim, uint64_t offset)
{
    const uint64_t shape[3] = {SLOTS, KV_HEADS, dim}, bytes = SLOTS * KV_HEADS * dim * 4 + offset;
    mica_buffer *whole = buffer_of(device, MICA_DTYPE_U8, 1, &bytes), *view = NULL;
    must(mica_buffer_view(whole, dtype, 3, shape, NULL, offset, &view));
    mica_buffer_release(whole);
    return view;
}

static void check_case(mica_device *device, const attention_case *c)
{
    const uint64_t q_shape[3] = {c->tokens, HEADS, c->dim}, y_shape[3] = {c->tokens, HEADS, c->v_dim};
    const uint64_t one = 1, heads = HEADS, mask_shape[2] = {c->tokens, SLOTS};
    mica_profile_entry entries[4];
    mica_encoder *encoder = NULL;
    uint64_t count = 0;
    const mica_attention_operands o = {
        .q = buffer_of(device, MICA_DTYPE_F32, 3, q_shape),
        .k = cache_of(device, c->k, c->dim, c->offset),
        .v = cache_of(device, c->v, c->v_dim, 0),
        .positions = buffer_of(device, MICA_DTYPE_U32, 1, &c->tokens),
        .lengths = buffer_of(device, MICA_DTYPE_U32, 1, &one),
        .mask = c->masked        ? buffer_of(device, MICA_DTYPE_F32, 2, mask_shape)
                : c->more == 'b' ? buffer_of(device, MICA_DTYPE_BOOL, 2, mask_shape)
                                 : NULL,
        .sinks = c->more == 's' ? buffer_of(device, MICA_DTYPE_F32, 1, &heads) : NULL,
        .slopes = c->more == 'l' ? buffer_of(device, MICA_DTYPE_F32, 1, &heads) : NULL,
        .keys = c->more == 'k' ? buffer_of(device, MICA_DTYPE_U32, 2, q_shape) : NULL,
        .lse = c->more == 'e' ? buffer_of(device, MICA_DTYPE_F32, 2, y_shape) : NULL,
    };
    mica_buffer *y = buffer_of(device, MICA_DTYPE_F32, 3, y_shape);
    must(mica_profile_begin(device));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_attention(encoder, &o, &(mica_attention_params){0}, y));
    must(mica_encoder_commit_and_wait(encoder));
    must(mica_profile_end(device));
    must(mica_profile_entries(device, entries, 4, &count));
    assert_true(count >= 1 && count <= 2);
    if (strcmp(entries[0].kernel, c->kernel) != 0)
        fail_msg("case %u: %s", (unsigned)(c - cases), entries[0].kernel);
    mica_encoder_release(encoder);
    mica_buffer *all[] = {o.q, o.k, o.v, o.positions, o.lengths, o.mask, o.sinks, o.slopes, o.keys, o.lse, y};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mica_buffer_release(all[i]);
}

static void test_kernels(void **state)
{
    mica_device *device = NULL;
    (void)state;
    fake_reset();
    must(mica_device_open("cuda:0", NULL, &device));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_case(device, &cases[i]);
    mica_device_release(device);
    rig_check_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels)};
    return cmocka_run_group_tests_name("kernels of attention", tests, NULL, NULL);
}
