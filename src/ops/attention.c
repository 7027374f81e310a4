/* attention.c - rope, the KV cache and attention. */
#include <math.h>

#include "base/status.h"
#include "ops/check.h"

#define ULL(x) ((unsigned long long)(x))

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
                     "params.rotary_dims is %u, not even and at most %llu", rope->rotary_dims, ULL(head));
    mica__op_require(op, rope->theta > 0.0f && isfinite(rope->theta), "params.theta is %g",
                     (double)rope->theta);
    mica__op_require(op, isfinite(rope->position_scale) && isfinite(rope->attention_scale),
                     "params.position_scale or params.attention_scale is not finite");
}

void mica__rule_rope(mica__op_builder *op)
{
    mica_rope_params *rope = &((mica__rope_record *)op->record.params)->rope;
    const uint64_t head = mica__op_size(op, 'D'), factors = mica__op_size(op, 'F');
    if (!mica__size_known(head))
        return;
    mica__op_require(op, head <= UINT32_MAX && (head % 2 == 0 || rope->rotary_dims != 0),
                     "x: the head size %llu is odd", ULL(head));
    fill_rope_defaults(rope, (uint32_t)head);
    check_rope(op, rope, head);
    mica__op_require(
        op, !mica__op_has(op, MICA__ROPE_FACTORS) || mica__sizes_agree(factors, rope->rotary_dims / 2),
        "factors: shape[0] is %llu, but params.rotary_dims / 2 is %u", ULL(factors), rope->rotary_dims / 2);
}

mica_status mica_rope(mica_encoder *encoder, mica_buffer *x, mica_buffer *positions, mica_buffer *factors,
                      const mica_rope_params *params, mica_buffer *y)
{
    if (params == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "rope: params is NULL");
    mica__rope_record record = {.rope = *params};
    return mica__op_call(encoder, MICA_OP_ROPE, &record, (mica_buffer *const[]){x, positions, factors, y});
}

/* A cache and the page table: [slots, heads, dim], or [pages, page_slots, heads, dim] with pages. */
static void check_cache(mica__op_builder *op, uint32_t slot, uint32_t pages, uint32_t sequences,
                        uint32_t ring)
{
    const bool paged = mica__op_has(op, pages);
    mica__op_require(op, !mica__op_has(op, sequences) || paged,
                     "sequences is given, but an unpaged cache has one sequence");
    mica__op_require(op, op->record.operand[slot].ndim == (paged ? 4 : 3),
                     "%s has %u dimensions, not %d as a cache %s pages", mica__op_argument(op, slot),
                     op->record.operand[slot].ndim, paged ? 4 : 3, paged ? "with" : "without");
    mica__op_require(op, !paged || ring == 0, "params.ring is set, but a paged cache has no ring");
}

void mica__rule_kv_write(mica__op_builder *op)
{
    mica_kv_params *params = op->record.params;
    params->ring = params->ring != 0;
    check_cache(op, MICA__KV_CACHE, MICA__KV_PAGES, MICA__KV_SEQUENCES, params->ring);
}

mica_status mica_kv_write(mica_encoder *encoder, mica_buffer *x, mica_buffer *positions,
                          mica_buffer *sequences, mica_buffer *pages, const mica_kv_params *params,
                          mica_buffer *cache)
{
    mica_kv_params record = {params != NULL ? params->ring : 0};
    return mica__op_call(encoder, MICA_OP_KV_WRITE, &record,
                         (mica_buffer *const[]){x, positions, sequences, pages, cache});
}

void mica__rule_attention(mica__op_builder *op)
{
    mica_attention_params *params = op->record.params;
    const uint64_t heads = mica__op_size(op, 'H'), kv_heads = mica__op_size(op, 'G'),
                   sequences = mica__op_size(op, 'L'), dim = mica__op_size(op, 'D');
    params->ring = params->ring != 0;
    check_cache(op, MICA__ATTENTION_K, MICA__ATTENTION_PAGES, MICA__ATTENTION_SEQUENCES, params->ring);
    check_cache(op, MICA__ATTENTION_V, MICA__ATTENTION_PAGES, MICA__ATTENTION_SEQUENCES, params->ring);
    mica__op_require(
        op, !mica__size_known(heads) || !mica__size_known(kv_heads) || kv_heads == 0 || heads % kv_heads == 0,
        "q: shape[1] is %llu, no multiple of the %llu heads of k", ULL(heads), ULL(kv_heads));
    mica__op_require(op, mica__op_has(op, MICA__ATTENTION_PAGES) || mica__sizes_agree(sequences, 1),
                     "lengths: shape[0] is %llu, but an unpaged cache has one sequence", ULL(sequences));
    mica__op_require(op, isfinite(params->scale) && params->softcap >= 0.0f && isfinite(params->softcap),
                     "params.scale or params.softcap is negative or not finite");
    if (params->scale == 0.0f && mica__size_known(dim))
        params->scale = 1.0f / sqrtf((float)dim);
}

mica_status mica_attention(mica_encoder *encoder, const mica_attention_operands *operands,
                           const mica_attention_params *params, mica_buffer *y)
{
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "attention: operands is NULL");
    mica_attention_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_ATTENTION, &record,
                         (mica_buffer *const[]){operands->q, operands->k, operands->v, operands->positions,
                                                operands->lengths, operands->sequences, operands->pages,
                                                operands->mask, y});
}
