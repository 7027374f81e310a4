/*
 * fusion_rope.c - rope straight into the cache.
 */
#include "session/fusion.h"

/* The kv_write among the readers of what the rope at `anchor` wrote, through exactly that view. `reads`: all
 * readers. */
static bool cache_write_of(const mica__fusion_pass *pass, uint32_t anchor, uint32_t *out_write,
                           uint32_t *out_reads)
{
    mica__use use[8];
    const mica__operand *y = &pass->list->record[anchor]->operand[MICA__ROPE_Y];
    *out_reads = mica__flow_uses(&pass->flow, anchor, MICA__ROPE_Y, use, 8);
    for (uint32_t i = 0; i < *out_reads && i < 8; i++) {
        const mica__record *write = mica__fusion_record(pass, use[i].record, MICA_OP_KV_WRITE);
        if (write != NULL && use[i].slot == MICA__KV_X &&
            mica__operand_same(&write->operand[MICA__KV_X], y)) {
            *out_write = use[i].record;
            return true;
        }
    }
    return false;
}

/* Exact where the value between is f32 or already has the cache's type: it is rounded once either way. */
mica_status mica__fusion_rope_kv_write(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    uint32_t at = 0, reads = 0;
    const mica__record *rope = mica__fusion_record(pass, anchor, MICA_OP_ROPE);
    if (rope == NULL || mica__operand_present(&rope->operand[MICA__ROPE_CACHE]) ||
        !mica__operand_present(&rope->operand[MICA__ROPE_Y]) || !cache_write_of(pass, anchor, &at, &reads))
        return MICA_OK;
    const mica__record *write = pass->list->record[at];
    const mica__operand *y = &rope->operand[MICA__ROPE_Y], *cache = &write->operand[MICA__KV_CACHE];
    if ((y->dtype != MICA_DTYPE_F32 && y->dtype != cache->dtype) ||
        !mica__operand_same(&rope->operand[MICA__ROPE_POSITIONS], &write->operand[MICA__KV_POSITIONS]))
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, anchor);
    mica__draft_join(&draft, at);
    ((mica__rope_record *)draft.record.params)->ring = ((const mica_kv_params *)write->params)->ring;
    draft.operand[MICA__ROPE_SEQUENCES] = write->operand[MICA__KV_SEQUENCES];
    draft.operand[MICA__ROPE_PAGES] = write->operand[MICA__KV_PAGES];
    draft.operand[MICA__ROPE_CACHE] = *cache;
    if (y->temporary && reads == 1)
        draft.operand[MICA__ROPE_Y] = (mica__operand){0};
    return mica__fusion_offer(pass, &draft, out_applied);
}
