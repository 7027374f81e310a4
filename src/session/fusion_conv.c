/*
 * fusion_conv.c - what follows a convolution, while its sums are near.
 *
 * Exact because the kernel adds the residual to each sum behind the bias, as the region that it replaces did, and takes the greater of that and 0 with the function that relu
 * has; in between were numbers of f32.
 */
#include "session/fusion.h"

/* A convolution that nothing follows yet. */
static const mica__record *bare_conv(const mica__fusion_pass *pass, uint32_t at)
{
    const mica__record *conv = mica__fusion_record(pass, at, MICA_OP_CONV);
    return conv != NULL && ((const mica__conv_record *)conv->params)->relu == 0 ? conv : NULL;
}

mica_status mica__fusion_conv_residual(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    mica__use use;
    const mica__record *conv = bare_conv(pass, anchor);
    if (conv == NULL || conv->operand_count != MICA__CONV_SLOTS ||
        !mica__fusion_consumer_region(pass, anchor, MICA__CONV_Y, MICA_SCALAR_ADD, &use))
        return MICA_OK;
    const mica__record *add = pass->list->record[use.record];
    const mica__operand *other = &add->operand[use.slot == MICA__BINARY_A ? MICA__BINARY_B : MICA__BINARY_A];
    const mica__operand *y = &add->operand[MICA__BINARY_Y], *was = &conv->operand[MICA__CONV_Y];
    if (!mica__fusion_rows_like(other, was) || !mica__fusion_rows_like(y, was))
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, anchor);
    mica__draft_join(&draft, use.record);
    draft.operand[MICA__CONV_RESIDUAL] = *other;
    draft.operand[MICA__CONV_Y] = *y;
    draft.record.operand_count = MICA__CONV_ALL_SLOTS;
    return mica__fusion_offer(pass, &draft, out_applied);
}

mica_status mica__fusion_conv_relu(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    mica__use use;
    const mica__record *conv = bare_conv(pass, anchor);
    if (conv == NULL || !mica__fusion_consumer_region(pass, anchor, MICA__CONV_Y, MICA_SCALAR_RELU, &use))
        return MICA_OK;
    const mica__operand *y = &pass->list->record[use.record]->operand[MICA__UNARY_Y];
    if (!mica__fusion_rows_like(y, &conv->operand[MICA__CONV_Y]))
        return MICA_OK;
    mica__draft draft;
    mica__draft_from(&draft, pass, anchor);
    mica__draft_join(&draft, use.record);
    ((mica__conv_record *)draft.record.params)->relu = 1;
    draft.operand[MICA__CONV_Y] = *y;
    return mica__fusion_offer(pass, &draft, out_applied);
}
