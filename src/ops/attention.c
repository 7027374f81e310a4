/* attention.c - rope, the KV cache and attention. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "ops/check.h"

static void fill_rope_defaults(mica_rope_params *rope, uint32_t head)
{
    if (rope->rotary_dims == 0)
        rope->rotary_dims = head;
    if (rope->frequency_dims == 0)
        rope->frequency_dims = rope->rotary_dims;
    if (rope->position_scale == 0.0f)
        rope->position_scale = 1.0f;
    if (rope->attention_scale == 0.0f)
        rope->attention_scale = 1.0f;
}

static void check_rope(mica__op_builder *op, const mica_rope_params *rope, uint64_t head)
{
    mica__op_require(op, rope->mode == MICA_ROPE_STANDARD || rope->mode == MICA_ROPE_NEOX,
                     "params.mode is %d", (int)rope->mode);
    mica__op_require(op, rope->rotary_dims % 2 == 0 && rope->rotary_dims <= head,
                     "params.rotary_dims is %u, not even and at most %llu", rope->rotary_dims,
                     (unsigned long long)head);
    mica__op_require(op, rope->theta > 0.0f && isfinite(rope->theta), "params.theta is %g",
                     (double)rope->theta);
    mica__op_require(op, isfinite(rope->position_scale) && isfinite(rope->attention_scale),
                     "params.position_scale or params.attention_scale is not finite");
}

mica_status mica_rope(mica_encoder *encoder, mica_buffer *x, mica_buffer *positions, mica_buffer *factors,
                      const mica_rope_params *params, mica_buffer *y)
{
    mica__op_builder op;
    mica__rope_record record;
    if (params == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "rope: params is NULL");
    memset(&record, 0, sizeof record);
    mica__op_begin(&op, encoder, MICA_OP_ROPE, MICA__ROPE_SLOTS, &record, sizeof record);
    mica__op_read(&op, MICA__ROPE_X, "x", x, MICA__KIND_ACTIVATION, 2, 3);
    mica__op_read(&op, MICA__ROPE_POSITIONS, "positions", positions, MICA__KIND_INDEX, 1, 1);
    mica__op_read_optional(&op, MICA__ROPE_FACTORS, "factors", factors, MICA__KIND_F32, 1, 1);
    mica__op_write(&op, MICA__ROPE_Y, "y", y, MICA__KIND_ACTIVATION, 2, 3);
    mica__op_same_shape(&op, MICA__ROPE_X, MICA__ROPE_Y);
    mica__op_dim(&op, MICA__ROPE_POSITIONS, 0, mica__op_size(&op, MICA__ROPE_X, 0),
                 "the number of tokens of x");
    mica__op_rows(&op, MICA__ROPE_X);
    mica__op_rows(&op, MICA__ROPE_FACTORS);
    mica__op_rows(&op, MICA__ROPE_Y);
    mica__op_in_place(&op, MICA__ROPE_X);
    if (!mica__op_ok(&op))
        return op.status;
    uint64_t head = mica__op_size(&op, MICA__ROPE_X, -1);
    mica__op_require(&op, head <= UINT32_MAX && (head % 2 == 0 || params->rotary_dims != 0),
                     "x: the head size %llu is odd", (unsigned long long)head);
    record.rope = *params;
    fill_rope_defaults(&record.rope, (uint32_t)head);
    check_rope(&op, &record.rope, head);
    mica__op_dim(&op, MICA__ROPE_FACTORS, 0, record.rope.rotary_dims / 2, "params.rotary_dims / 2");
    return mica__op_add(&op);
}

/* Checks one cache against the page table: [slots, heads, dim], or [pages, page_slots, heads, dim] with pages. */
static void check_cache(mica__op_builder *op, uint32_t slot, uint32_t pages, uint32_t ring)
{
    if (!mica__op_ok(op))
        return;
    bool paged = op->operand[pages].memory != NULL;
    mica__op_require(op, op->operand[slot].ndim == (paged ? 4 : 3),
                     "%s has %u dimensions, not %d as a cache %s pages", op->argument[slot],
                     op->operand[slot].ndim, paged ? 4 : 3, paged ? "with" : "without");
    mica__op_require(op, !paged || ring == 0, "params.ring is set, but a paged cache has no ring");
    mica__op_rows(op, slot);
}

mica_status mica_kv_write(mica_encoder *encoder, mica_buffer *x, mica_buffer *positions,
                          mica_buffer *sequences, mica_buffer *pages, const mica_kv_params *params,
                          mica_buffer *cache)
{
    mica__op_builder op;
    mica_kv_params record = {params != NULL && params->ring != 0};
    mica__op_begin(&op, encoder, MICA_OP_KV_WRITE, MICA__KV_SLOTS, &record, sizeof record);
    mica__op_read(&op, MICA__KV_X, "x", x, MICA__KIND_ACTIVATION, 3, 3);
    mica__op_read(&op, MICA__KV_POSITIONS, "positions", positions, MICA__KIND_INDEX, 1, 1);
    mica__op_read_optional(&op, MICA__KV_SEQUENCES, "sequences", sequences, MICA__KIND_INDEX, 1, 1);
    mica__op_read_optional(&op, MICA__KV_PAGES, "pages", pages, MICA__KIND_INDEX, 2, 2);
    mica__op_write(&op, MICA__KV_CACHE, "cache", cache, MICA__KIND_CACHE, 3, 4);
    mica__op_require(&op, sequences == NULL || pages != NULL,
                     "sequences is given, but an unpaged cache has one sequence");
    check_cache(&op, MICA__KV_CACHE, MICA__KV_PAGES, record.ring);
    mica__op_dim(&op, MICA__KV_POSITIONS, 0, mica__op_size(&op, MICA__KV_X, 0), "the number of tokens of x");
    mica__op_dim(&op, MICA__KV_SEQUENCES, 0, mica__op_size(&op, MICA__KV_X, 0), "the number of tokens of x");
    mica__op_dim(&op, MICA__KV_CACHE, -1, mica__op_size(&op, MICA__KV_X, 2), "the head size of x");
    mica__op_dim(&op, MICA__KV_CACHE, -2, mica__op_size(&op, MICA__KV_X, 1), "the number of heads of x");
    mica__op_rows(&op, MICA__KV_X);
    return mica__op_add(&op);
}

static void check_attention_shapes(mica__op_builder *op)
{
    uint64_t tokens = mica__op_size(op, MICA__ATTENTION_Q, 0),
             heads = mica__op_size(op, MICA__ATTENTION_Q, 1);
    if (!mica__op_ok(op))
        return;
    mica__op_dim(op, MICA__ATTENTION_K, -1, mica__op_size(op, MICA__ATTENTION_Q, 2), "the head size of q");
    for (int d = -2; d >= -(int)op->operand[MICA__ATTENTION_K].ndim && mica__op_ok(op); d--)
        mica__op_dim(op, MICA__ATTENTION_V, d, mica__op_size(op, MICA__ATTENTION_K, d), "that of k");
    uint64_t kv_heads = mica__op_size(op, MICA__ATTENTION_K, -2);
    mica__op_require(op, mica__op_ok(op) && heads % kv_heads == 0,
                     "q: shape[1] is %llu, no multiple of the %llu heads of k", (unsigned long long)heads,
                     (unsigned long long)kv_heads);
    mica__op_dim(op, MICA__ATTENTION_POSITIONS, 0, tokens, "the number of tokens of q");
    mica__op_dim(op, MICA__ATTENTION_SEQUENCES, 0, tokens, "the number of tokens of q");
    mica__op_dim(op, MICA__ATTENTION_Y, 0, tokens, "the number of tokens of q");
    mica__op_dim(op, MICA__ATTENTION_Y, 1, heads, "the number of heads of q");
    mica__op_dim(op, MICA__ATTENTION_Y, 2, mica__op_size(op, MICA__ATTENTION_V, -1), "the head size of v");
    mica__op_dim(op, MICA__ATTENTION_MASK, -2, tokens, "the number of tokens of q");
    bool paged = op->operand[MICA__ATTENTION_PAGES].memory != NULL;
    mica__op_dim(op, MICA__ATTENTION_LENGTHS, 0, paged ? mica__op_size(op, MICA__ATTENTION_PAGES, 0) : 1,
                 "the number of sequences");
    if (mica__op_ok(op) && op->operand[MICA__ATTENTION_MASK].ndim == 3)
        mica__op_dim(op, MICA__ATTENTION_MASK, 0, heads, "the number of heads of q");
}

mica_status mica_attention(mica_encoder *encoder, const mica_attention_operands *operands,
                           const mica_attention_params *params, mica_buffer *y)
{
    mica__op_builder op;
    mica_attention_params record = {0};
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "attention: operands is NULL");
    if (params != NULL)
        record = *params;
    mica__op_begin(&op, encoder, MICA_OP_ATTENTION, MICA__ATTENTION_SLOTS, &record, sizeof record);
    mica__op_read(&op, MICA__ATTENTION_Q, "q", operands->q, MICA__KIND_ACTIVATION, 3, 3);
    mica__op_read(&op, MICA__ATTENTION_K, "k", operands->k, MICA__KIND_CACHE, 3, 4);
    mica__op_read(&op, MICA__ATTENTION_V, "v", operands->v, MICA__KIND_CACHE, 3, 4);
    mica__op_read(&op, MICA__ATTENTION_POSITIONS, "positions", operands->positions, MICA__KIND_INDEX, 1, 1);
    mica__op_read(&op, MICA__ATTENTION_LENGTHS, "lengths", operands->lengths, MICA__KIND_INDEX, 1, 1);
    mica__op_read_optional(&op, MICA__ATTENTION_SEQUENCES, "sequences", operands->sequences, MICA__KIND_INDEX,
                           1, 1);
    mica__op_read_optional(&op, MICA__ATTENTION_PAGES, "pages", operands->pages, MICA__KIND_INDEX, 2, 2);
    mica__op_read_optional(&op, MICA__ATTENTION_MASK, "mask", operands->mask, MICA__KIND_ACTIVATION, 2, 3);
    mica__op_write(&op, MICA__ATTENTION_Y, "y", y, MICA__KIND_ACTIVATION, 3, 3);
    mica__op_require(&op, operands->sequences == NULL || operands->pages != NULL,
                     "sequences is given, but an unpaged cache has one sequence");
    check_cache(&op, MICA__ATTENTION_K, MICA__ATTENTION_PAGES, record.ring);
    check_cache(&op, MICA__ATTENTION_V, MICA__ATTENTION_PAGES, record.ring);
    check_attention_shapes(&op);
    mica__op_require(&op, isfinite(record.scale) && record.softcap >= 0.0f && isfinite(record.softcap),
                     "params.scale or params.softcap is negative or not finite");
    mica__op_rows(&op, MICA__ATTENTION_Q);
    mica__op_rows(&op, MICA__ATTENTION_MASK);
    mica__op_rows(&op, MICA__ATTENTION_Y);
    if (!mica__op_ok(&op))
        return op.status;
    record.ring = record.ring != 0;
    if (record.scale == 0.0f)
        record.scale = 1.0f / sqrtf((float)mica__op_size(&op, MICA__ATTENTION_Q, 2));
    return mica__op_add(&op);
}
