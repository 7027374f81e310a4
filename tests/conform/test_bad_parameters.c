/*
 * test_bad_parameters.c - every op of the table that has parameters, with one of them out of its domain: refused with a sentence that names it, and
 * nothing is added. An op with parameters of which none stands here fails by name; so does a case that is not refused.
 */
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conform/conform_op.h"
#include "conform/conform_rows.h"
#include "support/status.h"

/* Four bytes of the parameters of an op, what they become, and the word that the sentence must have. */
typedef struct bad_parameter {
    mica_op op;
    size_t offset;
    union {
        uint32_t whole;
        float real;
    } value;
    const char *word;
} bad_parameter;

#define WHOLE(id, type, field, number)                                   \
    {                                                                    \
        MICA_OP_##id, offsetof(type, field), {.whole = (number)}, #field \
    }
#define REAL(id, type, field, number)                                   \
    {                                                                   \
        MICA_OP_##id, offsetof(type, field), {.real = (number)}, #field \
    }
/* The first of three. */
#define FIRST(id, type, field, number)                                      \
    {                                                                       \
        MICA_OP_##id, offsetof(type, field[0]), {.whole = (number)}, #field \
    }
#define NORM(id) REAL(id, mica_norm_params, eps, -1), REAL(id, mica_norm_params, eps, (float)INFINITY)
#define SOFTMAX(id) \
    REAL(id, mica_softmax_params, scale, (float)INFINITY), WHOLE(id, mica_softmax_params, log, 2)
#define ATTENTION(id)                                                                                      \
    REAL(id, mica_attention_params, scale, (float)INFINITY), REAL(id, mica_attention_params, softcap, -1), \
        WHOLE(id, mica_attention_params, ring, 2), WHOLE(id, mica_attention_params, bidirectional, 2)
#define NORMALIZE(id)                                                                     \
    WHOLE(id, mica_normalize_params, kind, 3), WHOLE(id, mica_normalize_params, dims, 9), \
        REAL(id, mica_normalize_params, eps, -1), REAL(id, mica_normalize_params, offset, (float)NAN)
#define ROUTE(id)                                                                                      \
    WHOLE(id, mica_route_params, softmax_first, 2), WHOLE(id, mica_route_params, normalise, 2),        \
        REAL(id, mica_route_params, scale, (float)INFINITY), WHOLE(id, mica_route_params, scoring, 2), \
        WHOLE(id, mica_route_params, groups, 100003), WHOLE(id, mica_route_params, group_best, 3)
#define CONV(id) WHOLE(id, mica_conv_params, groups, 100003), WHOLE(id, mica_conv_params, transposed, 2)
#define POOL(id)                                                                                           \
    WHOLE(id, mica_pool_windows_params, kind, 5), WHOLE(id, mica_pool_windows_params, dims, 4),            \
        FIRST(id, mica_pool_windows_params, kernel, 0), WHOLE(id, mica_pool_windows_params, ceil_mode, 2), \
        WHOLE(id, mica_pool_windows_params, count_padding, 2)
#define COLUMNS(id) WHOLE(id, mica_im2col_params, dims, 4), FIRST(id, mica_im2col_params, kernel, 0)
#define RESIZE(id)                                                                     \
    WHOLE(id, mica_resize_params, mode, 3), WHOLE(id, mica_resize_params, corners, 3), \
        WHOLE(id, mica_resize_params, antialias, 2), WHOLE(id, mica_resize_params, dims, 4)
#define GRID(id)                                                                   \
    WHOLE(id, mica_grid_params, mode, 3), WHOLE(id, mica_grid_params, padding, 3), \
        WHOLE(id, mica_grid_params, align_corners, 2)
#define ENTROPY(id)                                        \
    REAL(id, mica_cross_entropy_params, smoothing, -0.5f), \
        REAL(id, mica_cross_entropy_params, smoothing, 2), WHOLE(id, mica_cross_entropy_params, ignore, 2)

#define DELTA(id)                                                                                  \
    WHOLE(id, mica_delta_params, rule, 2), WHOLE(id, mica_delta_params, normalise, 2),             \
        REAL(id, mica_delta_params, eps, -1), REAL(id, mica_delta_params, scale, (float)INFINITY), \
        WHOLE(id, mica_delta_params, form, 3)
#define RECURRENT(id) WHOLE(id, mica_rnn_params, kind, 4), WHOLE(id, mica_rnn_params, reverse, 2)

static const bad_parameter table[] = {
    NORM(RMS_NORM),
    NORM(LAYER_NORM),
    SOFTMAX(SOFTMAX),
    SOFTMAX(SOFTMAX_BACKWARD),
    WHOLE(REDUCE, mica_reduce_params, kind, 11),
    WHOLE(REDUCE, mica_reduce_params, axes, 1u << 9),
    WHOLE(REDUCE, mica_reduce_params, keep_dims, 2),
    WHOLE(REDUCE, mica_reduce_params, correction, 2),
    WHOLE(ROPE, mica_rope_params, mode, 2),
    WHOLE(ROPE, mica_rope_params, rotary_dims, 3),
    WHOLE(ROPE, mica_rope_params, rotary_dims, 100000),
    REAL(ROPE, mica_rope_params, theta, -1),
    REAL(ROPE, mica_rope_params, theta, (float)INFINITY),
    REAL(ROPE, mica_rope_params, position_scale, (float)NAN),
    REAL(ROPE, mica_rope_params, attention_scale, (float)INFINITY),
    WHOLE(ROPE, mica_rope_params, axes, 4),
    WHOLE(KV_WRITE, mica_kv_params, ring, 2),
    ATTENTION(ATTENTION),
    ATTENTION(ATTENTION_BACKWARD),
    WHOLE(MATMUL, mica_matmul_params, precision, 9),
    WHOLE(MATMUL_EXPERTS, mica_matmul_params, precision, 9),
    WHOLE(PAD, mica_pad_params, mode, 5),
    WHOLE(GATHER, mica_gather_params, axis, 9),
    WHOLE(SCATTER, mica_scatter_params, axis, 9),
    WHOLE(SCATTER, mica_scatter_params, mode, 5),
    WHOLE(GATHER_ND, mica_gather_nd_params, batch_dims, 9),
    WHOLE(SCATTER_ND, mica_scatter_nd_params, mode, 5),
    WHOLE(COMPRESS, mica_compress_params, axis, 9),
    WHOLE(COMPRESS, mica_compress_params, flat, 2),
    WHOLE(SCAN, mica_scan_params, kind, 4),
    WHOLE(SCAN, mica_scan_params, exclusive, 2),
    WHOLE(SCAN, mica_scan_params, reverse, 2),
    WHOLE(ARGMAX, mica_argmax_params, least, 2),
    WHOLE(SORT, mica_sort_params, descending, 2),
    NORMALIZE(NORMALIZE),
    NORMALIZE(NORMALIZE_BACKWARD),
    ROUTE(ROUTE),
    ROUTE(ROUTE_BACKWARD),
    WHOLE(EXPERT_PLACES, mica_expert_places_params, capacity, 0),
    WHOLE(EXPERT_PLACES, mica_expert_places_params, by_choice, 2),
    WHOLE(SSM_CONV, mica_ssm_conv_params, activation, 2),
    WHOLE(SSM_CONV_BACKWARD, mica_ssm_conv_params, activation, 2),
    DELTA(DELTA_NET),
    DELTA(DELTA_NET_BACKWARD),
    WHOLE(SELECTIVE_SCAN, mica_selective_params, softplus, 2),
    WHOLE(SELECTIVE_SCAN_BACKWARD, mica_selective_params, softplus, 2),
    RECURRENT(RNN),
    RECURRENT(RNN_BACKWARD),
    REAL(HADAMARD, mica_hadamard_params, scale, (float)INFINITY),
    WHOLE(HADAMARD, mica_hadamard_params, undo, 2),
    CONV(CONV),
    CONV(CONV_WEIGHT_BACKWARD),
    POOL(POOL_WINDOWS),
    POOL(POOL_WINDOWS_BACKWARD),
    COLUMNS(IM2COL),
    COLUMNS(COL2IM),
    RESIZE(RESIZE),
    RESIZE(RESIZE_BACKWARD),
    GRID(GRID_SAMPLE),
    GRID(GRID_SAMPLE_BACKWARD),
    WHOLE(FFT, mica_fft_params, kind, 3),
    WHOLE(FFT, mica_fft_params, inverse, 2),
    WHOLE(FFT, mica_fft_params, norm, 3),
    WHOLE(FFT, mica_fft_params, axis, 9),
    WHOLE(TRIANGULAR_SOLVE, mica_triangular_params, upper, 2),
    WHOLE(TRIANGULAR_SOLVE, mica_triangular_params, unit, 2),
    WHOLE(TRIANGULAR_SOLVE, mica_triangular_params, transpose, 2),
    WHOLE(CHOLESKY, mica_cholesky_params, upper, 2),
    WHOLE(DETERMINANT, mica_determinant_params, log, 2),
    ENTROPY(CROSS_ENTROPY),
    ENTROPY(CROSS_ENTROPY_BACKWARD),
};

enum { COUNT = sizeof table / sizeof *table };

static mica_device *device;

static int open_device(void **state)
{
    (void)state;
    return mica_device_open("cpu", NULL, &device) == MICA_OK ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    mica_device_release(device);
    return mica_host_bytes() == 0 ? 0 : -1;
}

/* Does the sentence hold the word as one of its own? */
static bool names(const char *sentence, const char *word)
{
    const size_t length = strlen(word);

    for (const char *at = strstr(sentence, word); at != NULL; at = strstr(at + 1, word))
        if ((at == sentence || !(isalnum((unsigned char)at[-1]) || at[-1] == '_')) &&
            !(isalnum((unsigned char)at[length]) || at[length] == '_'))
            return true;
    return false;
}

static const conform_row *row_of(mica_op op)
{
    for (uint32_t i = 0; i < conform_table_count; i++)
        if (conform_table[i].op == op)
            return &conform_table[i];
    return NULL;
}

/* The case as it is must be taken, and with one parameter changed be refused. */
static void refuse(conform_case *c, const bad_parameter *bad)
{
    mica_encoder *encoder = NULL;
    mica_encoder_stats stats;

    must(mica_encoder_begin(device, NULL, &encoder));
    if (conform_encode_op(c, encoder) != MICA_OK)
        fail_msg("%s: refused as it is: %s", c->row->name, mica_status_message());
    mica_encoder_release(encoder);
    memcpy((uint8_t *)&c->params + bad->offset, &bad->value, sizeof bad->value);
    must(mica_encoder_begin(device, NULL, &encoder));
    const mica_status status = conform_encode_op(c, encoder);
    if (status != MICA_ERR_INVALID_ARGUMENT)
        fail_msg("%s, bad %s: %s instead of a refusal", c->row->name, bad->word, mica_status_name(status));
    if (!names(mica_status_message(), bad->word))
        fail_msg("%s, bad %s: not named: %s", c->row->name, bad->word, mica_status_message());
    must(mica_encoder_get_stats(encoder, &stats));
    assert_int_equal(0, stats.records);
    mica_encoder_release(encoder);
}

static void test_parameter(void **state)
{
    const bad_parameter *bad = *state;
    const conform_row *row = row_of(bad->op);

    assert_non_null(row);
    for (uint64_t seed = 1; seed <= 8; seed++) {
        conform_case c;

        conform_case_make(&c, row, seed, false);
        must(conform_case_upload(&c, device));
        refuse(&c, bad);
        conform_case_free(&c);
    }
}

static void test_all_ops(void **state)
{
    (void)state;
    for (uint32_t op = MICA_OP_NONE + 1; op < MICA_OP_COUNT; op++) {
        mica_op_info info = {.params_size = 0};
        bool found = false;

        if (mica_op_get_info((mica_op)op, &info) != MICA_OK || info.params_size == 0)
            continue;
        for (uint32_t i = 0; i < COUNT; i++)
            found = found || table[i].op == (mica_op)op;
        if (!found)
            fail_msg("%s: none of its parameters is made wrong here", info.name);
    }
}

int main(void)
{
    struct CMUnitTest tests[COUNT + 1];

    for (uint32_t i = 0; i < COUNT; i++) {
        tests[i] = (struct CMUnitTest)cmocka_unit_test_prestate(test_parameter, (void *)(uintptr_t)&table[i]);
        tests[i].name = table[i].word;
    }
    tests[COUNT] = (struct CMUnitTest)cmocka_unit_test(test_all_ops);
    return _cmocka_run_group_tests("bad_parameters", tests, COUNT + 1, open_device, close_device);
}
