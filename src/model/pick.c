/*
 * pick.c - the end of a pass that chooses tokens: penalties and sampling as ops behind the logits. What differs from step to step
 * is read from the pass's inputs.
 */
#include "model/context.h"

/* The next [outputs, columns] words of the inputs, NULL for no columns. */
static mica_status part(mica__pass *pass, mica_dtype dtype, uint32_t columns, mica_buffer **out)
{
    const uint64_t shape[2] = {pass->shape.outputs, columns}, at = pass->rest * sizeof(uint32_t);
    *out = NULL;
    if (columns == 0)
        return MICA_OK;
    pass->rest += shape[0] * columns;
    return mica__pass_keep(pass, mica_buffer_view(pass->inputs, dtype, 2, shape, NULL, at, out), out);
}

/* Row `row` of the picks. */
static mica_status pick_row(mica__pass *pass, mica_dtype dtype, uint32_t row, mica_buffer **out)
{
    const uint64_t outputs = pass->shape.outputs;
    *out = NULL;
    return mica__pass_keep(
        pass, mica_buffer_view(pass->picks, dtype, 1, &outputs, NULL, row * outputs * sizeof(uint32_t), out),
        out);
}

/* Penalties change the logits in place, unless those are wanted as they were. */
static mica_status penalize(mica__pass *pass, const mica_penalize_operands *operands, mica_buffer **out)
{
    const uint64_t shape[2] = {pass->shape.outputs, pass->model->h.vocabulary};
    *out = pass->result;
    if (operands->bias_ids == NULL && operands->mask == NULL && operands->history == NULL)
        return MICA_OK;
    if (pass->shape.picking.logits || pass->shape.picking.chances)
        MICA__TRY(mica__pass_value(pass, MICA_DTYPE_F32, 2, shape, out));
    return mica_penalize(pass->encoder, operands, *out);
}

mica_status mica__pass_pick(mica__pass *pass)
{
    const mica__picking *picking = &pass->shape.picking;
    const uint64_t picks[2] = {2, pass->shape.outputs};
    mica_penalize_operands before = {.logits = pass->result};
    mica_buffer *logits, *ids, *chances = NULL;
    MICA__TRY(mica_buffer_alloc(pass->model->device, MICA_DTYPE_U32, 2, picks, &pass->picks));
    MICA__TRY(part(pass, MICA_DTYPE_U32, MICA_SAMPLE_WORDS, &before.settings));
    MICA__TRY(part(pass, MICA_DTYPE_U32, picking->history, &before.history));
    MICA__TRY(part(pass, MICA_DTYPE_U32, picking->bias, &before.bias_ids));
    MICA__TRY(part(pass, MICA_DTYPE_F32, picking->bias, &before.bias));
    MICA__TRY(
        part(pass, MICA_DTYPE_U32, picking->masked ? mica__mask_words(pass->context) : 0, &before.mask));
    MICA__TRY(penalize(pass, &before, &logits));
    MICA__TRY(pick_row(pass, MICA_DTYPE_U32, 0, &ids));
    if (picking->chances)
        MICA__TRY(pick_row(pass, MICA_DTYPE_F32, 1, &chances));
    const mica_sample_operands operands = {.logits = logits,
                                           .raw = logits != pass->result && picking->chances ? pass->result
                                                                                             : NULL,
                                           .settings = before.settings,
                                           .history = before.history};
    return mica_sample(pass->encoder, &operands, ids, chances);
}
