/*
 * fusion_attention.c - what a token brings into the caches, and attention over them, as one record.
 *
 * Exact because the kernel keeps a rotated query in f32, as rope stores it, and works on the new key and value as the caches
 * have them.
 */

#include "session/fusion.h"

static bool alike(const mica__operand *a, const mica__operand *b)
{
    return mica__operand_present(a) == mica__operand_present(b) &&
           (!mica__operand_present(a) || mica__operand_same(a, b));
}

/* The record that last wrote to the cache in `slot` of the attention at `anchor`, if it is an `op` that does so through the
 * same view, as its operand `cache`. */
static const mica__record *cache_writer(const mica__fusion_pass *pass, uint32_t anchor, uint32_t slot,
                                        mica_op op, uint32_t cache, uint32_t *out_at)
{
    mica__use write;
    if (!mica__flow_last_write(&pass->flow, anchor, slot, &write) || write.slot != cache ||
        !mica__operand_same(&pass->list->record[write.record]->operand[cache],
                            &pass->list->record[anchor]->operand[slot]))
        return NULL;
    *out_at = write.record;
    return mica__fusion_record(pass, write.record, op);
}

/* A rope that only rotates: no norm, and y or the cache but not both. */
static bool is_plain_rope(const mica__record *rope, bool cached)
{
    const mica__rope_record *record = rope != NULL ? rope->params : NULL;
    return record != NULL && !record->norm && record->rope.axes == MICA_ROPE_AXES_ONE &&
           mica__operand_present(&rope->operand[MICA__ROPE_CACHE]) == cached &&
           mica__operand_present(&rope->operand[MICA__ROPE_Y]) != cached;
}

/* The rope whose only reader is the attention at `anchor`. */
static const mica__record *query_rope(const mica__fusion_pass *pass, uint32_t anchor, uint32_t *out_at)
{
    mica__use writer, reader;
    if (!mica__flow_writer(&pass->flow, anchor, MICA__ATTENTION_Q, &writer) || writer.slot != MICA__ROPE_Y ||
        !mica__fusion_consumer(pass, writer.record, MICA__ROPE_Y, MICA_OP_ATTENTION, &reader) ||
        reader.record != anchor || reader.slot != MICA__ATTENTION_Q)
        return NULL;
    *out_at = writer.record;
    return mica__fusion_record(pass, writer.record, MICA_OP_ROPE);
}

static bool same_rotation(const mica__record *q, const mica__record *k)
{
    const mica_rope_params *a = &((const mica__rope_record *)q->params)->rope;
    const mica_rope_params *b = &((const mica__rope_record *)k->params)->rope;
    return a->mode == b->mode && a->rotary_dims == b->rotary_dims && a->frequency_dims == b->frequency_dims &&
           a->theta == b->theta && a->position_scale == b->position_scale &&
           a->attention_scale == b->attention_scale &&
           alike(&q->operand[MICA__ROPE_FACTORS], &k->operand[MICA__ROPE_FACTORS]) &&
           alike(&q->operand[MICA__ROPE_POSITIONS], &k->operand[MICA__ROPE_POSITIONS]);
}

/* Both writes go where the attention looks. */
static bool same_places(const mica__record *attention, const mica__record *k, const mica__record *v)
{
    const mica__operand *o = attention->operand;
    const uint32_t ring = ((const mica_attention_params *)attention->params)->ring;
    return ((const mica__rope_record *)k->params)->ring == ring &&
           ((const mica_kv_params *)v->params)->ring == ring &&
           alike(&o[MICA__ATTENTION_POSITIONS], &k->operand[MICA__ROPE_POSITIONS]) &&
           alike(&o[MICA__ATTENTION_POSITIONS], &v->operand[MICA__KV_POSITIONS]) &&
           alike(&o[MICA__ATTENTION_SEQUENCES], &k->operand[MICA__ROPE_SEQUENCES]) &&
           alike(&o[MICA__ATTENTION_SEQUENCES], &v->operand[MICA__KV_SEQUENCES]) &&
           alike(&o[MICA__ATTENTION_PAGES], &k->operand[MICA__ROPE_PAGES]) &&
           alike(&o[MICA__ATTENTION_PAGES], &v->operand[MICA__KV_PAGES]);
}

/* Anchored at the attention of one token. */
mica_status mica__fusion_rotated_attention(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    uint32_t q_at = 0, k_at = 0, v_at = 0;
    const mica__record *attention = mica__fusion_record(pass, anchor, MICA_OP_ATTENTION);
    if (attention == NULL || attention->operand_count != MICA__ATTENTION_SLOTS ||
        attention->operand[MICA__ATTENTION_Q].shape[0] != 1)
        return MICA_OK;
    const mica__record *q = query_rope(pass, anchor, &q_at);
    const mica__record *k =
        cache_writer(pass, anchor, MICA__ATTENTION_K, MICA_OP_ROPE, MICA__ROPE_CACHE, &k_at);
    const mica__record *v =
        cache_writer(pass, anchor, MICA__ATTENTION_V, MICA_OP_KV_WRITE, MICA__KV_CACHE, &v_at);
    if (v == NULL || !is_plain_rope(q, false) || !is_plain_rope(k, true) || !same_rotation(q, k) ||
        !same_places(attention, k, v))
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, anchor);
    mica__draft_join(&draft, q_at);
    mica__draft_join(&draft, k_at);
    mica__draft_join(&draft, v_at);
    draft.record.operand_count = MICA__ATTENTION_ALL_SLOTS;
    draft.record.params_size = sizeof(mica__attention_record);
    ((mica__attention_record *)draft.record.params)->rope = ((const mica__rope_record *)q->params)->rope;
    draft.operand[MICA__ATTENTION_K].access = draft.operand[MICA__ATTENTION_V].access =
        MICA_ACCESS_READ | MICA_ACCESS_WRITE;
    draft.operand[MICA__ATTENTION_Q] = q->operand[MICA__ROPE_X];
    draft.operand[MICA__ATTENTION_NEW_K] = k->operand[MICA__ROPE_X];
    draft.operand[MICA__ATTENTION_NEW_V] = v->operand[MICA__KV_X];
    draft.operand[MICA__ATTENTION_FACTORS] = q->operand[MICA__ROPE_FACTORS];
    return mica__fusion_offer(pass, &draft, out_applied);
}
