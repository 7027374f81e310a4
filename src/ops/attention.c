/* attention.c - rope, the KV cache and attention. */
#include <math.h>

#include "base/status.h"
#include "device/objects.h"
#include "ops/check.h"

#define ULL(x) ((unsigned long long)(x))

static void fill_rope_defaults(mica_rope_params *rope, uint32_t head)
{
    uint32_t greatest = 0;
    if (rope->rotary_dims == 0)
        rope->rotary_dims = head;
    for (uint32_t a = 0; a < 4 && rope->frequency_dims == 0 && rope->axes == MICA_ROPE_AXES_SEPARATE; a++)
        greatest = rope->sections[a] > greatest ? rope->sections[a] : greatest;
    if (rope->frequency_dims == 0)
        rope->frequency_dims = greatest != 0 ? 2 * greatest : rope->rotary_dims;
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

/* Positions have as many axes as the sections are for. */
static void check_axes(mica__op_builder *op, const mica_rope_params *rope)
{
    const uint64_t axes = mica__op_size(op, 'A');
    uint64_t sum = 0;
    mica__op_require(op, rope->axes <= MICA_ROPE_AXES_SEPARATE,
                     "params.axes is %u, which is no mica_rope_axes", rope->axes);
    for (uint32_t a = 0; a < 4; a++)
        sum += rope->sections[a];
    if (rope->axes == MICA_ROPE_AXES_ONE) {
        mica__op_require(op, op->record.operand[MICA__ROPE_POSITIONS].ndim == 1,
                         "positions has 2 dimensions, but params.axes is 0");
        mica__op_require(op, sum == 0, "params.sections are given, but params.axes is 0");
        return;
    }
    mica__op_require(op, op->record.operand[MICA__ROPE_POSITIONS].ndim == 2,
                     "positions has 1 dimension, but params.axes is %u", rope->axes);
    if (!mica__op_ok(op) || !mica__size_known(axes))
        return;
    mica__op_require(op, axes >= 1 && axes <= 4, "positions has %llu axes, not 1 to 4", ULL(axes));
    mica__op_require(op, rope->axes != MICA_ROPE_AXES_INTERLEAVED || axes >= 3,
                     "positions has %llu axes, not 3 or 4 as params.axes %u takes", ULL(axes), rope->axes);
    mica__op_require(op, sum > 0 && sum <= rope->rotary_dims / 2,
                     "params.sections have %llu pairs, not 1 to %u", ULL(sum), rope->rotary_dims / 2);
    for (uint32_t a = 0; a < 4; a++)
        mica__op_require(op, a < axes || rope->sections[a] == 0,
                         "params.sections[%u] is %u, but positions has %llu axes", a, rope->sections[a],
                         ULL(axes));
}

void mica__rule_rope(mica__op_builder *op)
{
    mica_rope_params *rope = &((mica__rope_record *)op->record.params)->rope;
    const uint64_t head = mica__op_size(op, 'D'), factors = mica__op_size(op, 'F');
    const uint16_t x = op->record.operand[MICA__ROPE_X].dtype, y = op->record.operand[MICA__ROPE_Y].dtype;
    mica__op_require(op, !mica__op_has(op, MICA__ROPE_Y) || (x == MICA_DTYPE_F64) == (y == MICA_DTYPE_F64),
                     "y is %s, but x is %s: both are f64 or neither", mica_dtype_name((mica_dtype)y),
                     mica_dtype_name((mica_dtype)x));
    if (!mica__size_known(head))
        return;
    mica__op_require(op, head <= UINT32_MAX && (head % 2 == 0 || rope->rotary_dims != 0),
                     "x: the head size %llu is odd", ULL(head));
    fill_rope_defaults(rope, (uint32_t)head);
    check_rope(op, rope, head);
    check_axes(op, rope);
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

mica_status mica_rope_backward(mica_encoder *encoder, mica_buffer *dy, mica_buffer *positions,
                               mica_buffer *factors, const mica_rope_params *params, mica_buffer *dx)
{
    if (params == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "rope_backward: params is NULL");
    mica_rope_params back = *params;
    back.position_scale = params->position_scale == 0.0f ? -1.0f : -params->position_scale;
    return mica_rope(encoder, dy, positions, factors, &back, dx);
}

/* Half `half` of the heads, its axis of the positions, and where it goes. */
static mica_status rope_half(mica_encoder *encoder, mica_buffer *x, mica_buffer *positions, uint32_t half,
                             const mica_rope_params *params, mica_buffer *y)
{
    mica_buffer *from = NULL, *to = NULL, *row = NULL, *axis = NULL;
    const uint32_t last = x->ndim - 1u;
    const uint64_t dim = x->shape[last] / 2;
    mica_status status = mica_buffer_slice(x, last, half * dim, dim, &from);
    if (status == MICA_OK)
        status = mica_buffer_slice(y, last, half * dim, dim, &to);
    if (status == MICA_OK)
        status = mica_buffer_slice(positions, 0, half, 1, &row);
    if (status == MICA_OK)
        status = mica_buffer_view(row, row->dtype, 1, &positions->shape[1], &positions->stride[1], 0, &axis);
    if (status == MICA_OK)
        status = mica_rope(encoder, from, axis, NULL, params, to);
    mica_buffer_release(from);
    mica_buffer_release(to);
    mica_buffer_release(row);
    mica_buffer_release(axis);
    return status;
}

mica_status mica_rope_2d(mica_encoder *encoder, mica_buffer *x, mica_buffer *positions,
                         const mica_rope_params *params, mica_buffer *y)
{
    if (x == NULL || positions == NULL || params == NULL || y == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "rope_2d: %s is NULL",
                          x == NULL           ? "x"
                          : positions == NULL ? "positions"
                          : params == NULL    ? "params"
                                              : "y");
    if (x->ndim < 2 || x->shape[x->ndim - 1] % 4 != 0 || y->ndim != x->ndim ||
        y->shape[y->ndim - 1] != x->shape[x->ndim - 1])
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT,
            "rope_2d: x has %u dimensions, expected 2 or 3, the last a multiple of 4, and y alike", x->ndim);
    if (positions->ndim != 2 || positions->shape[0] != 2)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "rope_2d: positions has %u dimensions, expected [2, tokens]", positions->ndim);
    if (params->rotary_dims != 0 || params->axes != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "rope_2d: params.%s is not 0",
                          params->axes != 0 ? "axes" : "rotary_dims");
    MICA__TRY(rope_half(encoder, x, positions, 0, params, y));
    return rope_half(encoder, x, positions, 1, params, y);
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
    const mica_kv_params *params = op->record.params;
    mica__op_require(op, params->ring <= 1, "params.ring is %u, not 0 or 1", params->ring);
    check_cache(op, MICA__KV_CACHE, MICA__KV_PAGES, MICA__KV_SEQUENCES, params->ring != 0);
}

mica_status mica_kv_write(mica_encoder *encoder, mica_buffer *x, mica_buffer *positions,
                          mica_buffer *sequences, mica_buffer *pages, const mica_kv_params *params,
                          mica_buffer *cache)
{
    mica_kv_params record = {params != NULL ? params->ring : 0};
    return mica__op_call(encoder, MICA_OP_KV_WRITE, &record,
                         (mica_buffer *const[]){x, positions, sequences, pages, cache});
}

/* f64 goes with f64: the slots of `all` are what q is; those of `some` may be f64 only where q is. */
static void check_wide(mica__op_builder *op, uint32_t q, uint32_t all, uint32_t some)
{
    const bool wide = op->record.operand[q].dtype == MICA_DTYPE_F64;
    for (uint32_t slot = 0; slot < op->record.operand_count; slot++) {
        const uint16_t dtype = op->record.operand[slot].dtype;
        if (!mica__op_has(op, slot) || dtype == MICA_DTYPE_NONE || ((all | some) >> slot & 1) == 0)
            continue;
        const bool fits = (dtype == MICA_DTYPE_F64) == wide || ((some >> slot & 1) != 0 && wide);
        mica__op_require(op, fits, "%s is %s, but %s is %s", mica__op_argument(op, slot),
                         mica_dtype_name((mica_dtype)dtype), mica__op_argument(op, q),
                         mica_dtype_name((mica_dtype)op->record.operand[q].dtype));
    }
}

/* What attention and its gradient have in common. */
static void check_scores(mica__op_builder *op, mica_attention_params *params)
{
    const uint64_t heads = mica__op_size(op, 'H'), kv_heads = mica__op_size(op, 'G'),
                   dim = mica__op_size(op, 'D');
    mica__op_require(op, params->bidirectional <= 1, "params.bidirectional is %u, not 0 or 1",
                     params->bidirectional);
    mica__op_require(
        op, !mica__size_known(heads) || !mica__size_known(kv_heads) || kv_heads == 0 || heads % kv_heads == 0,
        "q: shape[1] is %llu, no multiple of the %llu heads of k", ULL(heads), ULL(kv_heads));
    mica__op_require(op, isfinite(params->scale) && params->softcap >= 0.0f && isfinite(params->softcap),
                     "params.scale or params.softcap is negative or not finite");
    if (params->scale == 0.0f && mica__size_known(dim))
        params->scale = 1.0f / sqrtf((float)dim);
}

void mica__rule_attention(mica__op_builder *op)
{
    mica_attention_params *params = op->record.params;
    const uint64_t sequences = mica__op_size(op, 'L');
    mica__op_require(op, params->ring <= 1, "params.ring is %u, not 0 or 1", params->ring);
    check_cache(op, MICA__ATTENTION_K, MICA__ATTENTION_PAGES, MICA__ATTENTION_SEQUENCES, params->ring != 0);
    check_cache(op, MICA__ATTENTION_V, MICA__ATTENTION_PAGES, MICA__ATTENTION_SEQUENCES, params->ring != 0);
    check_scores(op, params);
    mica__op_require(op, mica__op_has(op, MICA__ATTENTION_PAGES) || mica__sizes_agree(sequences, 1),
                     "lengths: shape[0] is %llu, but an unpaged cache has one sequence", ULL(sequences));
    check_wide(op, MICA__ATTENTION_Q,
               1u << MICA__ATTENTION_K | 1u << MICA__ATTENTION_V | 1u << MICA__ATTENTION_Y |
                   1u << MICA__ATTENTION_LSE,
               1u << MICA__ATTENTION_MASK | 1u << MICA__ATTENTION_SINKS | 1u << MICA__ATTENTION_SLOPES);
}

mica_status mica_attention(mica_encoder *encoder, const mica_attention_operands *operands,
                           const mica_attention_params *params, mica_buffer *y)
{
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "attention: operands is NULL");
    const mica_attention_operands *o = operands;
    mica_attention_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_ATTENTION, &record,
                         (mica_buffer *const[]){o->q, o->k, o->v, o->positions, o->lengths, o->sequences,
                                                o->pages, o->mask, y, o->sinks, o->slopes, o->keys, o->lse});
}

void mica__rule_attention_backward(mica__op_builder *op)
{
    mica_attention_params *params = op->record.params;
    mica__op_require(op, params->ring == 0,
                     "params.ring is set, but a gradient is of keys that are all there");
    mica__op_require(op,
                     !mica__op_has(op, MICA__ATTENTION_BACKWARD_DSINKS) ||
                         mica__op_has(op, MICA__ATTENTION_BACKWARD_SINKS),
                     "dsinks is given, but there are no sinks");
    check_scores(op, params);
    check_wide(op, MICA__ATTENTION_BACKWARD_Q,
               1u << MICA__ATTENTION_BACKWARD_K | 1u << MICA__ATTENTION_BACKWARD_V |
                   1u << MICA__ATTENTION_BACKWARD_Y | 1u << MICA__ATTENTION_BACKWARD_LSE |
                   1u << MICA__ATTENTION_BACKWARD_DY | 1u << MICA__ATTENTION_BACKWARD_DQ |
                   1u << MICA__ATTENTION_BACKWARD_DK | 1u << MICA__ATTENTION_BACKWARD_DV |
                   1u << MICA__ATTENTION_BACKWARD_DSINKS,
               1u << MICA__ATTENTION_BACKWARD_MASK | 1u << MICA__ATTENTION_BACKWARD_SINKS |
                   1u << MICA__ATTENTION_BACKWARD_SLOPES);
}

mica_status mica_attention_backward(mica_encoder *encoder, const mica_attention_backward_operands *operands,
                                    const mica_attention_params *params)
{
    if (operands == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "attention_backward: operands is NULL");
    const mica_attention_backward_operands *o = operands;
    mica_attention_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_ATTENTION_BACKWARD, &record,
                         (mica_buffer *const[]){o->q, o->k, o->v, o->positions, o->lengths, o->mask, o->sinks,
                                                o->slopes, o->y, o->lse, o->dy, o->dq, o->dk, o->dv,
                                                o->dsinks});
}
