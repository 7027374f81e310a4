/*
 * test_op_table.c - what comes out of ops.def beside checks: shapes and types that follow, calls by number, empty operands; and
 * that every op of it has rows in the conformance table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "backend/op_table.h"
#include "conform/conform_op.h"
#include "conform/conform_rows.h"
#include "support/status.h"

static mica_device *devices[2];

static int open_devices(void **state)
{
    (void)state;
    return mica_device_open("null", NULL, &devices[0]) == MICA_OK &&
                   mica_device_open("cpu", NULL, &devices[1]) == MICA_OK
               ? 0
               : -1;
}

static int close_devices(void **state)
{
    (void)state;
    mica_device_release(devices[0]);
    mica_device_release(devices[1]);
    return mica_host_bytes() == 0 ? 0 : -1;
}

static bool is_called(mica_op op)
{
    return op != MICA_OP_REGION && op != MICA_OP_CUSTOM;
}

static void test_rows(void **state)
{
    (void)state;
    for (uint32_t op = MICA_OP_CUSTOM + 1; op < MICA_OP_COUNT; op++) {
        bool found = false;
        for (uint32_t i = 0; i < conform_table_count; i++)
            found = found || conform_table[i].op == op;
        if (!found)
            fail_msg("%s is in ops.def and has no row in conform_table.c", mica_op_name((mica_op)op));
    }
}

/* What the table must not say. */
static void test_sound(void **state)
{
    (void)state;
    for (uint32_t op = MICA_OP_CUSTOM + 1; op < MICA_OP_COUNT; op++) {
        const mica__op_info *info = &mica__ops[op];
        uint32_t written = 0;
        for (uint32_t s = 0; s < info->rows; s++) {
            const mica__slot_info *slot = &info->slot[s];
            const bool inner = (slot->flags & MICA__SLOT_INNER) != 0;
            written += (slot->access & MICA_ACCESS_WRITE) != 0 && !inner;
            if (slot->shares != 0 && (slot->access & MICA_ACCESS_WRITE) == 0)
                fail_msg("%s: %s is read and shares", info->name, slot->name);
            for (uint32_t e = 1; e < slot->entries; e++)
                if (slot->shape[e] == MICA__SHAPE_REST)
                    fail_msg("%s: %s has REST behind another size", info->name, slot->name);
            if ((slot->flags & MICA__SLOT_TABLE) != 0)
                assert_true(s > 0);
            if (s >= info->fixed && info->grouped == 0 && !inner)
                fail_msg("%s: %s is in some records only, but not INNER", info->name, slot->name);
            for (uint32_t in = 0; slot->shares != UINT32_MAX && in < 32; in++)
                if ((slot->shares >> in & 1) != 0)
                    assert_true(in < info->rows && info->slot[in].access == MICA_ACCESS_READ);
        }
        if (written == 0)
            fail_msg("%s writes nothing", info->name);
        assert_true(info->call_params <= info->record_params);
    }
    assert_int_equal(mica_op_get_operand(MICA_OP_RMS_NORM, 3, &(mica_op_operand){0}),
                     MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(mica_op_get_info(MICA_OP_COUNT, &(mica_op_info){0}), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(mica_op_get_info(MICA_OP_RMS_NORM, NULL), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(mica_op_get_operand(MICA_OP_REGION, 0, &(mica_op_operand){0}),
                     MICA_ERR_INVALID_ARGUMENT);
}

static uint32_t describe_all(conform_case *c, mica_operand_desc *desc)
{
    uint32_t slots[CONFORM_OPERANDS];
    const uint32_t count = conform_operands(c, slots);
    for (uint32_t i = 0; i < count; i++)
        desc[i] = conform_describe_operand(c, slots[i]);
    return count;
}

/* An output that is there before, as caches are, follows from nothing. */
static bool is_made(mica_op op, uint32_t i)
{
    const mica_op_operand operand = conform_table_operand(op, i);
    return operand.access == MICA_ACCESS_WRITE && !operand.part;
}

/* Outputs whose first size is the room that the caller gives them; what is inferred is always enough. */
static bool has_room(const conform_case *c, uint32_t d)
{
    const bool compressed = c->row->op == MICA_OP_COMPRESS && d == c->params.compress.axis;
    return compressed || (c->row->op == MICA_OP_NONZERO && d == 0);
}

/* Outputs that nobody describes come out as the case has them; where the inputs do not decide a size it is unknown. */
static void infer_outputs(conform_case *c)
{
    mica_operand_desc right[CONFORM_OPERANDS], asked[CONFORM_OPERANDS];
    const uint32_t count = describe_all(c, right);
    memcpy(asked, right, sizeof asked);
    for (uint32_t i = 0; i < count; i++)
        if (is_made(c->row->op, i) && right[i].dtype != MICA_DTYPE_NONE)
            asked[i] = (mica_operand_desc){.ndim = MICA_RANK_UNKNOWN};
    const mica_status status = mica_op_infer(c->row->op, &c->params, asked, count);
    if (status != MICA_OK)
        fail_msg("%s: %s", c->row->name, mica_status_message());
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(asked[i].ndim, right[i].ndim);
        assert_true(right[i].dtype == MICA_DTYPE_NONE || asked[i].dtype != MICA_DTYPE_NONE);
        for (uint32_t d = 0; d < right[i].ndim; d++)
            if (asked[i].shape[d] != right[i].shape[d] && asked[i].shape[d] != MICA_SIZE_UNKNOWN &&
                !(is_made(c->row->op, i) && has_room(c, d)))
                fail_msg("%s: operand %u, shape[%u] is %llu, inferred %llu", c->row->name, i, d,
                         (unsigned long long)right[i].shape[d], (unsigned long long)asked[i].shape[d]);
    }
}

/* One size of one input is a symbol: the call fits all the same, and the symbol or what is known comes out. */
static void infer_symbol(conform_case *c, test_random *random)
{
    const uint64_t symbol = MICA_SIZE_UNKNOWN + 7;
    mica_operand_desc desc[CONFORM_OPERANDS];
    const uint32_t count = describe_all(c, desc), i = (uint32_t)test_random_below(random, count);
    if (desc[i].ndim == 0 || is_made(c->row->op, i) || c->row->op == MICA_OP_COPY)
        return;
    desc[i].shape[test_random_below(random, desc[i].ndim)] = symbol;
    for (uint32_t o = 0; o < count; o++)
        if (is_made(c->row->op, o) && desc[o].dtype != MICA_DTYPE_NONE)
            desc[o] = (mica_operand_desc){.dtype = desc[o].dtype, .ndim = MICA_RANK_UNKNOWN};
    if (mica_op_infer(c->row->op, &c->params, desc, count) != MICA_OK)
        fail_msg("%s: with a symbol: %s", c->row->name, mica_status_message());
}

/* A type that the first operand cannot have is refused. */
static void ask_wrong(conform_case *c)
{
    mica_operand_desc desc[CONFORM_OPERANDS];
    const uint32_t count = describe_all(c, desc);
    const mica_op_operand first = conform_table_operand(c->row->op, 0);
    desc[0].dtype = MICA_DTYPE_BOOL;
    if ((first.types >> MICA_DTYPE_BOOL & 1) == 0)
        assert_int_equal(mica_op_supported(devices[1], c->row->op, &c->params, desc, count, NULL),
                         MICA_ERR_INVALID_ARGUMENT);
}

/* Ops whose rows of conformance are called by their numbers, through their own functions. */
static mica_status call_by_name(const conform_case *c, mica_encoder *e)
{
    uint32_t slots[CONFORM_OPERANDS];
    mica_buffer *b[CONFORM_OPERANDS];
    const conform_params *p = &c->params;
    const uint32_t count = conform_operands(c, slots);
    for (uint32_t i = 0; i < count; i++)
        b[i] = slots[i] == UINT32_MAX ? NULL : conform_buffer(c, slots[i]);
    switch (c->row->op) {
    case MICA_OP_ARGMAX: return (p->argmax.least != 0 ? mica_argmin : mica_argmax)(e, b[0], b[1]);
    case MICA_OP_GATHER: return mica_gather(e, b[0], b[1], &p->gather, b[2]);
    case MICA_OP_SCATTER: return mica_scatter(e, b[0], b[1], &p->scatter, b[2]);
    case MICA_OP_KV_WRITE: return mica_kv_write(e, b[0], b[1], b[2], b[3], &p->kv, b[4]);
    case MICA_OP_HADAMARD: return mica_hadamard(e, b[0], b[1], &p->hadamard, b[2]);
    case MICA_OP_SOFTMAX_BACKWARD:
        return (p->softmax.log != 0 ? mica_log_softmax_backward
                                    : mica_softmax_backward)(e, b[0], b[1], p->softmax.scale, b[2]);
    case MICA_OP_TRIANGULAR_SOLVE: return mica_triangular_solve(e, b[0], b[1], &p->triangular, b[2]);
    case MICA_OP_CHOLESKY: return mica_cholesky(e, b[0], &p->cholesky, b[1]);
    case MICA_OP_SOLVE: return mica_solve(e, b[0], b[1], b[2]);
    case MICA_OP_INVERSE: return mica_inverse(e, b[0], b[1]);
    case MICA_OP_DETERMINANT: return mica_determinant(e, b[0], &p->determinant, b[1]);
    case MICA_OP_QR: return mica_qr(e, b[0], b[1], b[2]);
    case MICA_OP_EIGH: return mica_eigh(e, b[0], b[1], b[2]);
    case MICA_OP_SVD: return mica_svd(e, b[0], b[1], b[2], b[3]);
    default: return conform_encode_op(c, e);
    }
}

/* The right numbers the other way than the row has it: by number, or through the op's own function. */
static void call_otherwise(conform_case *c)
{
    conform_row row = *c->row;
    char why[CONFORM_TEXT] = "";
    row.encode = c->row->encode == conform_encode_op ? call_by_name : conform_encode_op;
    c->row = &row;
    conform_case_expect(c);
    must(conform_case_upload(c, devices[1]));
    if (!conform_case_run(c, devices[1], CONFORM_DIRECT, why))
        fail_msg("%s: %s", row.name, why);
}

static void test_cases(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < conform_table_count; r++) {
        for (uint64_t seed = 1; is_called(conform_table[r].op) && seed <= 3; seed++) {
            test_random random = test_random_from(seed);
            conform_case c;
            conform_case_make(&c, &conform_table[r], seed, false);
            infer_outputs(&c);
            infer_symbol(&c, &random);
            ask_wrong(&c);
            if (seed == 1 || conform_table[r].encode == conform_encode_op)
                call_otherwise(&c);
            conform_case_free(&c);
        }
    }
}

#define DESC(type, rank, ...)                                              \
    (mica_operand_desc)                                                    \
    {                                                                      \
        .dtype = MICA_DTYPE_##type, .ndim = rank, .shape = { __VA_ARGS__ } \
    }

static void test_infer(void **state)
{
    const uint64_t n = MICA_SIZE_UNKNOWN + 1;
    const mica_operand_desc asked = {.ndim = MICA_RANK_UNKNOWN}, absent = {0};
    (void)state;
    mica_operand_desc norm[] = {DESC(BF16, 3, n, 5, 8), DESC(F32, MICA_RANK_UNKNOWN, 0), asked};
    must(mica_op_infer(MICA_OP_RMS_NORM, NULL, norm, 3));
    assert_int_equal(norm[1].ndim, 1);
    assert_int_equal(norm[1].shape[0], 8);
    assert_int_equal(norm[2].dtype, MICA_DTYPE_BF16);
    assert_true(norm[2].ndim == 3 && norm[2].shape[0] == n && norm[2].shape[1] == 5 && norm[2].shape[2] == 8);
    mica_operand_desc matmul[] = {DESC(F32, 2, n, MICA_SIZE_UNKNOWN), DESC(Q4_0, 2, 96, 64), asked};
    must(mica_op_infer(MICA_OP_MATMUL, NULL, matmul, 3));
    assert_true(matmul[2].ndim == 2 && matmul[2].shape[0] == n && matmul[2].shape[1] == 96);
    mica_operand_desc route[] = {DESC(F16, 2, 7, 64), absent, absent, asked, asked};
    must(mica_op_infer(MICA_OP_ROUTE, NULL, route, 5));
    assert_true(route[3].dtype == MICA_DTYPE_I32 || route[3].dtype == MICA_DTYPE_U32);
    assert_true(route[4].dtype == MICA_DTYPE_F16 && route[4].shape[0] == 7 &&
                route[4].shape[1] == MICA_SIZE_UNKNOWN);

    mica_operand_desc wrong[] = {DESC(F32, 2, 3, 8), DESC(F32, 1, 9), asked};
    refused(mica_op_infer(MICA_OP_RMS_NORM, NULL, wrong, 3), MICA_ERR_INVALID_ARGUMENT,
            "shape[0] is 9, but shape[1] of x is 8");
    mica_operand_desc missing[] = {absent, absent, asked};
    refused(mica_op_infer(MICA_OP_RMS_NORM, NULL, missing, 3), MICA_ERR_INVALID_ARGUMENT, "x is absent");
    mica_operand_desc types[] = {DESC(F64, 2, 3, 8), absent, asked};
    refused(mica_op_infer(MICA_OP_RMS_NORM, NULL, types, 3), MICA_ERR_INVALID_ARGUMENT, "x is f64");
    mica_operand_desc rank[] = {DESC(F32, 3, 3, 8, 2), DESC(U32, 1, 3), asked};
    refused(mica_op_infer(MICA_OP_EMBEDDING, NULL, rank, 3), MICA_ERR_INVALID_ARGUMENT, "[r, d]");
    mica_operand_desc nine[] = {DESC(F32, 9, 1), asked};
    refused(mica_op_infer(MICA_OP_ARGMAX, NULL, nine, 2), MICA_ERR_INVALID_ARGUMENT, "dimensions");
    refused(mica_op_infer(MICA_OP_ARGMAX, NULL, nine, 1), MICA_ERR_INVALID_ARGUMENT, "operands");
    refused(mica_op_infer(MICA_OP_ARGMAX, NULL, NULL, 2), MICA_ERR_INVALID_ARGUMENT, "operands");
    refused(mica_op_infer(MICA_OP_RMS_NORM, &(mica_norm_params){-1}, norm, 3), MICA_ERR_INVALID_ARGUMENT,
            "eps");
    mica_operand_desc open[] = {asked, DESC(F32, 2, 3, 8)};
    refused(mica_op_infer(MICA_OP_COPY, NULL, open, 2), MICA_ERR_INVALID_ARGUMENT, "does not follow");
    assert_int_equal(mica_op_infer(MICA_OP_REGION, NULL, norm, 3), MICA_ERR_INVALID_ARGUMENT);
    assert_int_equal(mica_op_supported(NULL, MICA_OP_ARGMAX, NULL, rank, 2, NULL), MICA_ERR_INVALID_ARGUMENT);
}

/* ---- slots that repeat ---- */

static mica_buffer *shaped(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer;
    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

enum { WEIGHTS = 3, ROWS = 5, COLUMNS = 64 };

/* Several weights of one x: shapes follow group by group, and the bits are those of one matmul each. */
static void test_groups(void **state)
{
    static const uint64_t n[WEIGHTS] = {32, 96, 8};
    const mica_operand_desc asked = {.ndim = MICA_RANK_UNKNOWN};
    mica_operand_desc desc[1 + 2 * WEIGHTS] = {DESC(F32, 2, ROWS, COLUMNS)};
    mica_device *device = devices[1];
    test_random random = test_random_from(3);
    mica_buffer *operand[1 + 2 * WEIGHTS], *alone[WEIGHTS];
    float values[ROWS * 96];
    mica_encoder *encoder;
    (void)state;
    operand[0] = shaped(device, MICA_DTYPE_F32, 2, desc[0].shape);
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
        values[i] = (float)test_random_normal(&random);
    must(mica_buffer_write(operand[0], 0, values, ROWS * COLUMNS * sizeof *values));
    for (uint32_t w = 0; w < WEIGHTS; w++) {
        uint8_t blocks[96 * COLUMNS / 32 * 18];
        desc[1 + 2 * w] = DESC(Q4_0, 2, n[w], COLUMNS);
        desc[2 + 2 * w] = asked;
        operand[1 + 2 * w] = shaped(device, MICA_DTYPE_Q4_0, 2, desc[1 + 2 * w].shape);
        test_blocks_fill(MICA_DTYPE_Q4_0, blocks, n[w] * COLUMNS / 32, &random, 1);
        must(mica_buffer_write(operand[1 + 2 * w], 0, blocks, n[w] * COLUMNS / 32 * 18));
    }
    must(mica_op_infer(MICA_OP_MATMUL, NULL, desc, 1 + 2 * WEIGHTS));
    must(mica_encoder_begin(device, NULL, &encoder));
    for (uint32_t w = 0; w < WEIGHTS; w++) {
        assert_true(desc[2 + 2 * w].ndim == 2 && desc[2 + 2 * w].shape[0] == ROWS &&
                    desc[2 + 2 * w].shape[1] == n[w]);
        operand[2 + 2 * w] = shaped(device, MICA_DTYPE_F32, 2, desc[2 + 2 * w].shape);
        alone[w] = shaped(device, MICA_DTYPE_F32, 2, desc[2 + 2 * w].shape);
        must(mica_matmul(encoder, operand[0], operand[1 + 2 * w], NULL, alone[w]));
    }
    must(mica_op_apply(encoder, MICA_OP_MATMUL, NULL, operand, 1 + 2 * WEIGHTS));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    for (uint32_t w = 0; w < WEIGHTS; w++) {
        float one[ROWS * 96], other[ROWS * 96];
        must(mica_buffer_read(alone[w], 0, one, ROWS * n[w] * sizeof *one));
        must(mica_buffer_read(operand[2 + 2 * w], 0, other, ROWS * n[w] * sizeof *one));
        assert_memory_equal(one, other, ROWS * n[w] * sizeof *one);
        mica_buffer_release(alone[w]);
    }
    for (uint32_t i = 0; i < 1 + 2 * WEIGHTS; i++)
        mica_buffer_release(operand[i]);
}

/* More weights than a record has: looked at as one call, then some records, whose route is all of theirs. */
static void test_many(void **state)
{
    mica_operand_desc desc[1 + 2 * 40] = {DESC(F32, 2, 3, 64)};
    mica_op_route route, four, all = {.dispatches = 0};
    (void)state;
    for (uint32_t w = 0; w < 40; w++) {
        desc[1 + 2 * w] = DESC(F16, 2, 2 + w, 64);
        desc[2 + 2 * w] = (mica_operand_desc){.ndim = MICA_RANK_UNKNOWN};
    }
    must(mica_op_infer(MICA_OP_MATMUL, NULL, desc, 81));
    for (uint32_t w = 0; w < 40; w++)
        assert_int_equal(desc[2 + 2 * w].shape[1], 2 + w);
    must(mica_op_supported(devices[1], MICA_OP_MATMUL, NULL, desc, 81, &route));
    for (uint32_t w = 0; w < 40; w += 4) {
        mica_operand_desc some[1 + 2 * 4];
        some[0] = desc[0];
        memcpy(some + 1, desc + 1 + 2 * w, 8 * sizeof *desc);
        must(mica_op_supported(devices[1], MICA_OP_MATMUL, NULL, some, 9, &four));
        all.dispatches += four.dispatches;
        all.scratch_bytes += four.scratch_bytes;
        all.operations += four.operations;
    }
    assert_int_equal(route.dispatches, all.dispatches);
    assert_int_equal(route.scratch_bytes, all.scratch_bytes);
    assert_true(route.operations == all.operations);
    desc[3].dtype = MICA_DTYPE_F32;
    refused(mica_op_infer(MICA_OP_MATMUL, NULL, desc, 7), MICA_ERR_INVALID_ARGUMENT, "weight 1");
    desc[80] = DESC(F32, 2, 3, 42);
    refused(mica_op_infer(MICA_OP_MATMUL, NULL, desc, 81), MICA_ERR_INVALID_ARGUMENT,
            "shape[1] is 42, but shape[0] of weight is 41");
    refused(mica_op_infer(MICA_OP_MATMUL, NULL, desc, 80), MICA_ERR_INVALID_ARGUMENT, "operands");
}

/* The last of nine weights is refused before the first is multiplied. */
static void test_many_at_once(void **state)
{
    mica_device *device = devices[1];
    mica_buffer *operand[1 + 2 * 9];
    mica_encoder *encoder;
    mica_encoder_stats stats;
    (void)state;
    operand[0] = shaped(device, MICA_DTYPE_F32, 2, (uint64_t[]){3, 64});
    for (uint32_t w = 0; w < 9; w++) {
        operand[1 + 2 * w] = shaped(device, MICA_DTYPE_F16, 2, (uint64_t[]){2 + w, 64});
        operand[2 + 2 * w] = shaped(device, MICA_DTYPE_F32, 2, (uint64_t[]){3, w < 8 ? 2 + w : 5});
    }
    must(mica_encoder_begin(device, NULL, &encoder));
    refused(mica_op_apply(encoder, MICA_OP_MATMUL, NULL, operand, 19), MICA_ERR_INVALID_ARGUMENT,
            "weight is 10");
    must(mica_encoder_get_stats(encoder, &stats));
    assert_int_equal(stats.records, 0);
    must(mica_op_apply(encoder, MICA_OP_MATMUL, NULL, operand, 17));
    must(mica_encoder_get_stats(encoder, &stats));
    assert_int_equal(stats.records, 2);
    mica_encoder_release(encoder);
    for (uint32_t i = 0; i < 19; i++)
        mica_buffer_release(operand[i]);
}

/* ---- operands without elements ---- */

/* Asking gives what applying gives. */
static void asked(mica_device *device, mica_op op, const void *params, mica_buffer *const *operands,
                  uint32_t count, mica_status wanted, const char *word)
{
    mica_operand_desc desc[4] = {{.ndim = 0}};
    mica_op_route route;
    assert_true(count <= 4);
    for (uint32_t i = 0; i < count; i++) {
        mica_buffer_info info;
        if (operands[i] == NULL)
            continue;
        must(mica_buffer_get_info(operands[i], &info));
        desc[i].dtype = info.dtype;
        desc[i].ndim = info.ndim;
        memcpy(desc[i].shape, info.shape, sizeof info.shape);
    }
    const mica_status status = mica_op_supported(device, op, params, desc, count, &route);
    if (wanted != MICA_OK) {
        refused(status, wanted, word);
        return;
    }
    must(status);
    assert_int_equal(route.dispatches, 0);
    assert_string_equal(route.kernels, "");
}

static void applied_with(mica_device *device, mica_op op, const void *params, mica_buffer **operands,
                         uint32_t count, mica_status wanted, const char *word)
{
    mica_encoder *encoder;
    mica_encoder_stats stats;
    asked(device, op, params, operands, count, wanted, word);
    must(mica_encoder_begin(device, NULL, &encoder));
    if (wanted == MICA_OK)
        must(mica_op_apply(encoder, op, params, operands, count));
    else
        refused(mica_op_apply(encoder, op, params, operands, count), wanted, word);
    must(mica_encoder_get_stats(encoder, &stats));
    assert_int_equal(stats.records, 0);
    assert_int_equal(stats.dispatches, 0);
    mica_encoder_release(encoder);
    for (uint32_t i = 0; i < count; i++)
        mica_buffer_release(operands[i]);
}

static void applied(mica_device *device, mica_op op, mica_buffer **operands, uint32_t count,
                    mica_status wanted, const char *word)
{
    applied_with(device, op, NULL, operands, count, wanted, word);
}

#define SHAPED(type, rank, ...) shaped(device, MICA_DTYPE_##type, rank, (uint64_t[]){__VA_ARGS__})

/* No output has elements: nothing to do. Some has, and an input has none: refused by name. */
static void test_empty(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        mica_device *device = devices[d];
        const mica_reduce_params last = {MICA_REDUCE_SUM, 1, 0, 0};
        applied_with(device, MICA_OP_REDUCE, &last,
                     (mica_buffer *[]){SHAPED(F32, 2, 0, 8), SHAPED(F32, 1, 0)}, 2, MICA_OK, NULL);
        applied(device, MICA_OP_RMS_NORM,
                (mica_buffer *[]){SHAPED(F32, 2, 0, 8), SHAPED(F32, 1, 8), SHAPED(F32, 2, 0, 8)}, 3, MICA_OK,
                NULL);
        applied(device, MICA_OP_SOFTMAX, (mica_buffer *[]){SHAPED(F32, 2, 3, 0), NULL, SHAPED(F32, 2, 3, 0)},
                3, MICA_OK, NULL);
        applied(device, MICA_OP_COPY, (mica_buffer *[]){SHAPED(F32, 2, 3, 0), SHAPED(F16, 2, 3, 0)}, 2,
                MICA_OK, NULL);
        applied(device, MICA_OP_MATMUL,
                (mica_buffer *[]){SHAPED(F32, 2, 0, 64), SHAPED(Q4_0, 2, 32, 64), SHAPED(F32, 2, 0, 32)}, 3,
                MICA_OK, NULL);
        applied(device, MICA_OP_EMBEDDING,
                (mica_buffer *[]){SHAPED(F32, 2, 5, 8), SHAPED(U32, 1, 0), SHAPED(F32, 2, 0, 8)}, 3, MICA_OK,
                NULL);
        applied(device, MICA_OP_EMBEDDING,
                (mica_buffer *[]){SHAPED(F32, 2, 0, 8), SHAPED(U32, 1, 4), SHAPED(F32, 2, 4, 8)}, 3,
                MICA_ERR_INVALID_ARGUMENT, "table has no elements");
        applied(device, MICA_OP_MATMUL,
                (mica_buffer *[]){SHAPED(F32, 2, 3, 0), SHAPED(F32, 2, 4, 0), SHAPED(F32, 2, 3, 4)}, 3,
                MICA_ERR_INVALID_ARGUMENT, "no elements");
        applied(device, MICA_OP_ARGMAX, (mica_buffer *[]){SHAPED(F32, 2, 3, 0), SHAPED(U32, 1, 3)}, 2,
                MICA_ERR_INVALID_ARGUMENT, "x has no elements");
        applied(device, MICA_OP_RMS_NORM,
                (mica_buffer *[]){SHAPED(F32, 2, 0, 8), SHAPED(F32, 1, 7), SHAPED(F32, 2, 0, 8)}, 3,
                MICA_ERR_INVALID_ARGUMENT, "weight");
    }
}

static void test_empty_region(void **state)
{
    mica_encoder *encoder;
    mica_encoder_stats stats;
    mica_device *device = devices[1];
    mica_buffer *a = SHAPED(F32, 2, 0, 8), *row = SHAPED(F32, 1, 8), *y = SHAPED(F32, 2, 0, 8),
                *full = SHAPED(F32, 2, 3, 8);
    (void)state;
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_add(encoder, a, row, y));
    must(mica_fill(encoder, 1, y));
    must(mica_encoder_get_stats(encoder, &stats));
    assert_int_equal(stats.records, 0);
    assert_int_equal(mica_add(encoder, a, row, full), MICA_ERR_INVALID_ARGUMENT);
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    mica_buffer_release(a);
    mica_buffer_release(row);
    mica_buffer_release(y);
    mica_buffer_release(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),         cmocka_unit_test(test_sound),
        cmocka_unit_test(test_cases),        cmocka_unit_test(test_infer),
        cmocka_unit_test(test_groups),       cmocka_unit_test(test_many),
        cmocka_unit_test(test_many_at_once), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_empty_region),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
