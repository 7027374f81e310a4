/*
 * catalogue.c - nodes of the ops of the table (ops.def): what they take and give, by the same inference that calls of ops.h are checked with.
 *
 * In a graph nothing is written in place: an operand that an op updates, or writes in part, is an input (what it held) and an output (what it holds then).
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/ir.h"
#include "ops/check.h"

enum { FEW = 24, MOST_OPERANDS = 1024 };

/* Whether callers see the slot as what goes in, as what comes out. */
static bool goes_in(const mica__slot_info *slot)
{
    return (slot->access & MICA_ACCESS_READ) != 0 || (slot->flags & MICA__SLOT_PART) != 0;
}
static bool comes_out(const mica__slot_info *slot)
{
    return (slot->access & MICA_ACCESS_WRITE) != 0;
}

mica__op_arity mica__op_count(mica_op op, uint32_t groups)
{
    const mica__op_info *info = &mica__ops[op];
    mica__op_arity count = {.groups = groups};
    for (uint32_t i = 0; i < info->rows; i++) {
        const uint32_t times = i < info->fixed ? 1 : info->grouped != 0 ? groups : 0;
        if (!mica__slot_is_given(&info->slot[i]))
            continue;
        count.inputs += goes_in(&info->slot[i]) * times;
        count.outputs += comes_out(&info->slot[i]) * times;
    }
    return count;
}

/* A call: its operands as the table orders them. */
typedef struct call {
    mica_graph *graph;
    const mica__op_info *info;
    mica_operand_desc *operand; /* `few`, or memory of its own */
    mica_operand_desc few[FEW];
    uint32_t count, inputs, outputs; /* so far */
} call;

/* What output `at` is asked to be; absent where it is not wanted. */
static mica_operand_desc asked_desc(const mica_operand_desc *asked, bool wanted)
{
    if (!wanted)
        return (mica_operand_desc){.ndim = 0};
    if (asked == NULL || (asked->dtype == MICA_DTYPE_NONE && asked->ndim == 0))
        return (mica_operand_desc){.ndim = MICA_RANK_UNKNOWN};
    return *asked;
}

static bool put_operand(call *all, const mica__slot_info *slot, const mica_tensor *inputs,
                        const mica_operand_desc *asked, uint32_t wanted)
{
    mica_operand_desc *desc = &all->operand[all->count++];
    *desc = (mica_operand_desc){.ndim = 0};
    if (goes_in(slot)) {
        const mica_tensor tensor = inputs[all->inputs++];
        if (tensor == 0 && (slot->flags & MICA__SLOT_OPTIONAL) == 0)
            return mica__graph_fail(all->graph, MICA_ERR_INVALID_ARGUMENT, all->info->name, "%s is absent",
                                    slot->name) != 0;
        if (tensor != 0 && mica__graph_takes(all->graph, all->info->name, slot->name, tensor) == NULL)
            return false;
        if (tensor != 0)
            *desc = mica__type_desc(mica__type_of(all->graph, tensor));
    } else {
        const bool needed = (slot->flags & MICA__SLOT_OPTIONAL) == 0;
        const uint32_t at = all->outputs;
        *desc = asked_desc(asked == NULL ? NULL : &asked[at], needed || (at < 32 && (wanted >> at & 1) != 0));
    }
    all->outputs += comes_out(slot);
    return true;
}

/* A sort of which nothing is asked is of whole rows, however long they are. */
static void ask_whole_rows(call *all)
{
    const mica_operand_desc x = all->operand[0];
    for (uint32_t i = 1; i < all->count; i++)
        if (all->operand[i].ndim == MICA_RANK_UNKNOWN) {
            const mica_dtype own = i == 1 ? x.dtype : MICA_DTYPE_I32;
            const mica_dtype dtype = all->operand[i].dtype == MICA_DTYPE_NONE ? own : all->operand[i].dtype;
            all->operand[i] = x;
            all->operand[i].dtype = dtype;
        }
}

/* The given slots in order, those behind the fixed ones once for each group. */
static bool put_operands(call *all, uint32_t groups, const mica_tensor *inputs,
                         const mica_operand_desc *asked, uint32_t wanted)
{
    const mica__op_info *info = all->info;
    for (uint32_t i = 0; i < info->fixed; i++)
        if (mica__slot_is_given(&info->slot[i]) && !put_operand(all, &info->slot[i], inputs, asked, wanted))
            return false;
    for (uint32_t g = 0; g < groups && info->grouped != 0; g++)
        for (uint32_t i = info->fixed; i < (uint32_t)info->fixed + info->grouped; i++)
            if (mica__slot_is_given(&info->slot[i]) &&
                !put_operand(all, &info->slot[i], inputs, asked, wanted))
                return false;
    if (info == &mica__ops[MICA_OP_SORT])
        ask_whole_rows(all);
    return true;
}

static mica__type type_of_desc(const mica_operand_desc *desc)
{
    mica__type type = {.dtype = desc->dtype, .ndim = desc->ndim};
    memcpy(type.shape, desc->shape, sizeof type.shape);
    return type;
}

/* The outputs' types, out of the completed operands. */
static void read_outputs(const call *all, uint32_t groups, mica__type *types)
{
    const mica__op_info *info = all->info;
    const uint32_t slots = info->fixed + (info->grouped != 0 ? groups * info->grouped : 0);
    uint32_t operand = 0, output = 0;
    for (uint32_t i = 0; i < slots; i++) {
        const uint32_t row = i < info->fixed ? i : info->fixed + (i - info->fixed) % info->grouped;
        const mica__slot_info *slot = &info->slot[row];
        if (!mica__slot_is_given(slot))
            continue;
        if (comes_out(slot))
            types[output++] = type_of_desc(&all->operand[operand]);
        operand++;
    }
}

/* Number of groups that so many inputs make; UINT32_MAX: none. */
static uint32_t groups_of(mica_op op, uint32_t inputs)
{
    const mica__op_arity none = mica__op_count(op, 0), one = mica__op_count(op, 1);
    if (mica__ops[op].grouped == 0)
        return inputs == none.inputs ? 0 : UINT32_MAX;
    const uint32_t each = one.inputs - none.inputs;
    return inputs > none.inputs && each != 0 && (inputs - none.inputs) % each == 0
               ? (inputs - none.inputs) / each
               : UINT32_MAX;
}

static mica_tensor add_op(call *all, mica_op op, const void *params, const mica_tensor *inputs,
                          uint32_t input_count, uint32_t wanted, const mica_operand_desc *asked,
                          uint32_t output_count)
{
    const uint32_t groups = groups_of(op, input_count);
    static const mica_operand_desc follows = {.ndim = 0};
    mica__type types[FEW];
    const size_t asked_bytes = output_count * sizeof *asked, params_bytes = all->info->call_params;
    if (!put_operands(all, groups, inputs, asked, wanted))
        return 0;
    const mica_status status = mica_op_infer(op, params, all->operand, all->count);
    if (status != MICA_OK) {
        char sentence[320];
        snprintf(sentence, sizeof sentence, "%s", mica_status_message());
        return mica__graph_fail(all->graph, status, all->info->name, "%s", sentence);
    }
    read_outputs(all, groups, types);
    union {
        mica__op_data data;
        unsigned char bytes[sizeof(mica__op_data) + FEW * sizeof(mica_operand_desc) + 256];
    } room;
    memset(&room, 0, sizeof room);
    room.data.wanted = wanted;
    room.data.params_bytes = (uint32_t)params_bytes;
    for (uint32_t i = 0; i < output_count; i++)
        room.data.asked[i] = asked == NULL ? follows : asked[i];
    if (params != NULL)
        memcpy((unsigned char *)room.data.asked + asked_bytes, params, params_bytes);
    return mica__graph_add_node(all->graph, MICA_NODE_OP, op, inputs, input_count, types, output_count, &room,
                                (uint32_t)(sizeof room.data + asked_bytes + params_bytes));
}

mica_tensor mica_graph_op(mica_graph *graph, mica_op op, const void *params, const mica_tensor *inputs,
                          uint32_t input_count, uint32_t wanted, const mica_operand_desc *asked,
                          mica_tensor *outputs, uint32_t output_count)
{
    for (uint32_t i = 0; i < output_count && outputs != NULL; i++)
        outputs[i] = 0;
    if (!mica__graph_begins(graph, "op"))
        return 0;
    if (op <= MICA_OP_CUSTOM || op >= MICA_OP_COUNT || op == MICA_OP_REGION)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "op",
                                "op is %d, which is none of the table", (int)op);
    call all = {.graph = graph, .info = &mica__ops[op]};
    const uint32_t groups = groups_of(op, input_count);
    const mica__op_arity slots = mica__op_count(op, groups == UINT32_MAX ? 0 : groups);
    if (groups == UINT32_MAX || inputs == NULL || slots.inputs + slots.outputs > MOST_OPERANDS ||
        slots.outputs > FEW)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, all.info->name,
                                "%u inputs, which are not those of the op", input_count);
    if (outputs != NULL && output_count != slots.outputs)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, all.info->name, "gives %u outputs, not %u",
                                slots.outputs, output_count);
    const uint32_t operands = slots.inputs + slots.outputs;
    all.operand = operands <= FEW ? all.few : mica__alloc(operands * sizeof *all.operand);
    if (all.operand == NULL)
        return mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, all.info->name, "no memory for %u operands",
                                operands);
    const mica_tensor first = add_op(&all, op, params, inputs, input_count, wanted, asked, slots.outputs);
    if (all.operand != all.few)
        mica__free(all.operand);
    if (first != 0 && outputs != NULL)
        memcpy(outputs, mica__node_outputs(graph, &graph->node[graph->node_count - 1]),
               output_count * sizeof *outputs);
    return first;
}

/* ---- nodes as calls ---- */

uint32_t mica__op_operands(const mica_graph *graph, const mica__node *node, mica_operand_desc *operand)
{
    const mica__op_info *info = &mica__ops[node->code];
    uint32_t inputs = 0, outputs = 0, count = 0;
    for (uint32_t i = 0;; i++) {
        const uint32_t in_group =
            i < info->fixed || info->grouped == 0 ? 0 : (i - info->fixed) % info->grouped;
        const uint32_t row = i < info->fixed ? i : info->fixed + in_group;
        if (i >= info->fixed && in_group == 0 && (info->grouped == 0 || inputs >= node->input_count))
            return count;
        const mica__slot_info *slot = &info->slot[row];
        const bool in = (slot->access & MICA_ACCESS_READ) != 0 || (slot->flags & MICA__SLOT_PART) != 0;
        const bool out = (slot->access & MICA_ACCESS_WRITE) != 0;
        if (!mica__slot_is_given(slot))
            continue;
        operand[count++] = mica__type_desc(mica__type_of(
            graph, in ? mica__node_inputs(graph, node)[inputs] : mica__node_outputs(graph, node)[outputs]));
        inputs += in;
        outputs += out;
    }
}
