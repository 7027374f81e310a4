/*
 * lift.c - the records of a recording as nodes of a graph: what each reads, the node that it is, what it writes. Where values lie is the matter of values.c.
 */
#include "graph/lift/lift.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/work.h"
#include "ops/check.h"
#include "ops/region.h"

/* A record as it becomes a node: as many operands as it has, at the most. */
typedef struct node {
    const mica__record *record;
    mica_tensor *input, *output;
    mica_operand_desc *asked;
    uint16_t *slot; /* of each output */
    uint32_t inputs, outputs, wanted;
} node;

static bool goes_in(const mica__slot_info *slot)
{
    return (slot->access & MICA_ACCESS_READ) != 0 || (slot->flags & MICA__SLOT_PART) != 0;
}

/* ---- elementwise ---- */

/* A region without inputs has no shape in a graph: it gets one that no step reads, and the numbers of its steps move up. */
static void with_input(const mica__region_program *from, mica__region_program *to)
{
    memcpy(to, from, mica__region_bytes(from->step_count));
    to->input_count = 1;
    to->input[0] = MICA_REGISTER_F32;
    for (uint32_t s = 0; s < to->step_count; s++)
        for (uint32_t k = 0; k < 3; k++)
            if (to->step[s].value[k] != MICA_REGION_NONE)
                to->step[s].value[k]++;
    for (uint32_t o = 0; o < to->output_count; o++) {
        to->output[o]++;
        if (to->output_imag[o] != MICA_REGION_NONE)
            to->output_imag[o]++;
    }
}

static mica_status lift_region(mica__lift *lift, node *n)
{
    const mica__region_program *program = n->record->params;
    const mica__operand *operand = n->record->operand, *y = &operand[program->input_count];
    mica_dtype dtype[MICA_REGION_OUTPUTS];
    mica__region_room room;
    mica_region *region = NULL;
    for (uint32_t i = 0; i < program->input_count; i++)
        MICA__TRY(mica__lift_read(lift, &operand[i], false, &n->input[i]));
    n->outputs = program->output_count;
    for (uint32_t o = 0; o < program->output_count; o++) {
        dtype[o] = (mica_dtype)y[o].dtype;
        n->slot[o] = (uint16_t)(program->input_count + o);
    }
    if (program->input_count == 0) {
        with_input(program, &room.program);
        program = &room.program;
        n->input[0] = mica_graph_expand(lift->graph, mica_graph_number(lift->graph, MICA_DTYPE_F32, 0),
                                        y->ndim, y->shape);
    }
    MICA__TRY(mica__region_copy("region", program, &region));
    (void)mica_graph_region(lift->graph, region, n->input, dtype, n->output);
    mica_region_release(region);
    return mica_graph_status(lift->graph);
}

/* ---- ops of the table ---- */

static mica_status read_slots(mica__lift *lift, node *n)
{
    const mica__record *record = n->record;
    for (uint16_t i = 0; i < record->operand_count; i++) {
        const mica__slot_info *slot = mica__slot_of(record, i);
        const mica__operand *operand = &record->operand[i];
        const bool present = mica__operand_present(operand);
        if ((slot->flags & MICA__SLOT_INNER) != 0 && present)
            return mica__fail(MICA_ERR_UNSUPPORTED,
                              "has operand '%s', which only passes of a session give it", slot->name);
        if (!mica__slot_is_given(slot))
            continue;
        if (goes_in(slot)) {
            mica_tensor *in = &n->input[n->inputs++];
            *in = 0;
            if (present)
                MICA__TRY(mica__lift_read(lift, operand, (slot->flags & MICA__SLOT_PART) != 0, in));
        }
        if ((slot->access & MICA_ACCESS_WRITE) == 0)
            continue;
        n->slot[n->outputs] = i;
        n->wanted |= present && n->outputs < 32 ? 1u << n->outputs : 0;
        n->asked[n->outputs] = (mica_operand_desc){.ndim = 0};
        if (present) {
            n->asked[n->outputs].dtype = (mica_dtype)operand->dtype;
            n->asked[n->outputs].ndim = operand->ndim;
            memcpy(n->asked[n->outputs].shape, operand->shape, sizeof operand->shape);
        }
        n->outputs++;
    }
    return MICA_OK;
}

static bool is_plain(const mica__operand *operand)
{
    return mica_register_of((mica_dtype)operand->dtype) != MICA_REGISTER_NONE;
}

static mica_status lift_op(mica__lift *lift, node *n)
{
    const mica__record *record = n->record;
    MICA__TRY(read_slots(lift, n));
    const mica__operand *y = &record->operand[n->slot[0]];
    if (record->op == MICA_OP_COPY && is_plain(&record->operand[MICA__COPY_X]) && is_plain(y))
        n->output[0] = mica_graph_cast(lift->graph, n->input[0], (mica_dtype)y->dtype);
    else
        (void)mica_graph_op(lift->graph, (mica_op)record->op, record->params, n->input, n->inputs, n->wanted,
                            n->asked, n->output, n->outputs);
    return mica_graph_status(lift->graph);
}

/* ---- records ---- */

static mica_status lift_record(mica__lift *lift, node *n)
{
    const mica__record *record = n->record;
    MICA__TRY(mica_graph_label(lift->graph, record->label));
    if (record->op == MICA_OP_CUSTOM)
        return mica__fail(MICA_ERR_UNSUPPORTED, "is a kernel of the caller's own");
    if (record->op != MICA_OP_REGION && record->fused[0] != 0)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "was made by the fusion '%s': record without MICA_FINISH_FUSE", record->fused);
    MICA__TRY(record->op == MICA_OP_REGION ? lift_region(lift, n) : lift_op(lift, n));
    for (uint32_t o = 0; o < n->outputs; o++)
        if (mica__operand_present(&record->operand[n->slot[o]]))
            MICA__TRY(mica__lift_write(lift, &record->operand[n->slot[o]], n->output[o]));
    return MICA_OK;
}

/* The same with memory for the operands, and a sentence that says which record it was. */
static mica_status lift_one(mica__lift *lift, uint32_t index)
{
    const mica__record *record = lift->recording->pass.list.record[index];
    const size_t count = record->operand_count + 1u;
    node n = {.record = record};
    n.input = mica__alloc(count * sizeof *n.input);
    n.output = mica__alloc(count * sizeof *n.output);
    n.asked = mica__alloc(count * sizeof *n.asked);
    n.slot = mica__alloc(count * sizeof *n.slot);
    mica_status status = MICA_ERR_OUT_OF_MEMORY;
    if (n.input != NULL && n.output != NULL && n.asked != NULL && n.slot != NULL)
        status = lift_record(lift, &n);
    else
        (void)mica__fail(status, "no memory for %zu operands", count);
    mica__free(n.input);
    mica__free(n.output);
    mica__free(n.asked);
    mica__free(n.slot);
    if (status == MICA_OK)
        return MICA_OK;
    char sentence[400];
    snprintf(sentence, sizeof sentence, "%s", mica_status_message());
    return mica__fail(status, "record %u (%s%s%s): %s", index, mica_op_name((mica_op)record->op),
                      record->label[0] != 0 ? ", " : "", record->label, sentence);
}

static mica_status begin(mica__lift *lift)
{
    const mica__recorded_pass *pass = &lift->recording->pass;
    MICA__TRY(mica_graph_create(&lift->graph));
    MICA__TRY(mica__storages_build(&pass->list, &lift->storages));
    lift->newest = mica__alloc((lift->storages.count + 1u) * sizeof *lift->newest);
    lift->given = mica__calloc(pass->slots.count + 1u, sizeof *lift->given);
    if (lift->newest == NULL || lift->given == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the values of %u storages",
                          lift->storages.count);
    memset(lift->newest, 0xff, (lift->storages.count + 1u) * sizeof *lift->newest); /* NONE */
    return mica__lift_leaves(lift);
}

static mica_status lift_all(mica__lift *lift)
{
    MICA__TRY(begin(lift));
    for (uint32_t i = 0; i < lift->recording->pass.list.count; i++) {
        MICA__TRY(mica__spend(1));
        MICA__TRY(lift_one(lift, i));
    }
    MICA__TRY(mica_graph_label(lift->graph, ""));
    return mica__lift_outputs(lift);
}

static mica_status lift_recording(const mica_recording *recording, const mica_lift_desc *desc,
                                  mica_graph **out_graph)
{
    mica_lift_desc all = {.size = 0};
    MICA__TRY(mica__take_options("desc", desc, sizeof all, &all));
    if (recording == NULL || (all.parameters == NULL && all.parameter_count != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          recording == NULL ? "recording" : "desc.parameters");
    mica__lift lift = {.recording = recording, .desc = &all};
    mica_recording *open = mica__recording_lock(recording);
    const mica_status status = lift_all(&lift);
    mica__recording_unlock(open);
    mica__storages_free(&lift.storages);
    mica__free(lift.newest);
    mica__free(lift.given);
    mica__free(lift.value);
    if (status == MICA_OK)
        *out_graph = lift.graph;
    else
        mica_graph_release(lift.graph);
    return status;
}

mica_status mica_graph_from_recording(const mica_recording *recording, const mica_lift_desc *desc,
                                      mica_graph **out_graph)
{
    mica__call call;
    if (out_graph == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_from_recording: out_graph is NULL");
    *out_graph = NULL;
    mica__call_begin(&call, "graph_from_recording");
    return mica__call_end(&call, lift_recording(recording, desc, out_graph));
}
