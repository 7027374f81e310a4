/*
 * merging.c - equal nodes become one, and nodes that nobody needs are left out.
 *
 * Nodes are equal with the same kind, code, attributes, inputs, place and round. Random bits follow from a counter and a key, so they are equal like others. Loops and choices
 * are not looked into.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "graph/passes/passes.h"

/* ---- equal nodes ---- */

typedef struct slot {
    uint32_t node, hash; /* a node of the new graph + 1; 0: free */
} slot;

typedef struct merging {
    slot *slot;
    uint32_t mask;
} merging;

/* A constant by its bytes up to this size, a greater one by where they lie. */
#define CONTENT_BYTES 4096u

static const mica__blob *blob_of(const mica__node *node)
{
    return ((const mica__constant_data *)node->data)->blob;
}

/* Structs with padding are taken field by field. */
static uint64_t hash_data(const mica__node *node, const mica__type *type, uint64_t hash)
{
    if (node->kind == MICA_NODE_OP)
        return mica__hash_bytes(mica__op_params(node), ((const mica__op_data *)node->data)->params_bytes,
                                hash);
    if (node->kind == MICA_NODE_SLICE)
        return mica__hash_bytes(&((const mica__slice_data *)node->data)->start, sizeof(uint64_t), hash);
    if (node->kind != MICA_NODE_CONSTANT)
        return mica__hash_bytes(node->data, node->data_bytes, hash);
    hash = mica__hash_bytes(type->shape, type->ndim * sizeof type->shape[0], hash);
    const mica__blob *blob = blob_of(node);
    return blob->bytes <= CONTENT_BYTES ? mica__hash_bytes(blob->data, (size_t)blob->bytes, hash)
                                        : mica__hash_bytes(&blob, sizeof(void *), hash);
}

static uint64_t hash_node(const mica__node *node, const mica_tensor *inputs, const mica__type *type,
                          uint64_t seed)
{
    const uint32_t head[] = {node->kind,  node->code,        node->round,
                             node->place, node->input_count, (uint32_t)type->dtype,
                             type->ndim};
    const uint64_t hash = mica__hash_bytes(head, sizeof head, seed);
    return hash_data(node, type, mica__hash_bytes(inputs, node->input_count * sizeof *inputs, hash));
}

static bool equal_asked(const mica_operand_desc *a, const mica_operand_desc *b)
{
    bool equal = a->dtype == b->dtype && a->ndim == b->ndim;
    for (uint32_t d = 0; d < a->ndim && d < MICA_MAX_DIMS && equal; d++)
        equal = a->shape[d] == b->shape[d];
    return equal;
}

static bool equal_ops(const mica__node *a, const mica__node *b)
{
    const mica__op_data *x = a->data, *y = b->data;
    bool equal =
        x->wanted == y->wanted && x->params_bytes == y->params_bytes &&
        (x->params_bytes == 0 || memcmp(mica__op_params(a), mica__op_params(b), x->params_bytes) == 0);
    for (uint32_t i = 0; i < a->output_count && equal; i++)
        equal = equal_asked(&x->asked[i], &y->asked[i]);
    return equal;
}

static bool equal_data(const mica__node *a, const mica__node *b)
{
    if (a->data_bytes != b->data_bytes)
        return false;
    if (a->kind == MICA_NODE_OP)
        return equal_ops(a, b);
    if (a->kind == MICA_NODE_SLICE) {
        const mica__slice_data *x = a->data, *y = b->data;
        return x->axis == y->axis && x->start == y->start && x->count == y->count && x->step == y->step;
    }
    if (a->kind != MICA_NODE_CONSTANT)
        return a->data_bytes == 0 || memcmp(a->data, b->data, a->data_bytes) == 0;
    const mica__blob *x = blob_of(a), *y = blob_of(b);
    return x == y || (x->bytes == y->bytes && x->bytes <= CONTENT_BYTES &&
                      memcmp(x->data, y->data, (size_t)x->bytes) == 0);
}

/* Whether node `b` of the new graph gives what node `a` of the old one would over `inputs`. */
static bool equal_nodes(const mica__walk *walk, const mica__node *a, const mica_tensor *inputs,
                        const mica__node *b)
{
    const mica_graph *from = walk->rewrite.from, *to = walk->rewrite.to;
    bool equal = a->kind == b->kind && a->code == b->code && a->round == b->round && a->place == b->place &&
                 a->input_count == b->input_count && a->output_count == b->output_count &&
                 memcmp(inputs, mica__node_inputs(to, b), a->input_count * sizeof *inputs) == 0 &&
                 equal_data(a, b);
    const mica_tensor *left = mica__node_outputs(from, a), *right = mica__node_outputs(to, b);
    for (uint32_t i = 0; i < a->output_count && equal; i++) {
        const mica__type *x = mica__type_of(from, left[i]), *y = mica__type_of(to, right[i]);
        equal = (left[i] == 0) == (right[i] == 0) && x->dtype == y->dtype && x->ndim == y->ndim &&
                memcmp(x->shape, y->shape, x->ndim * sizeof x->shape[0]) == 0;
    }
    return equal;
}

static bool begin_merging(mica__walk *walk)
{
    uint32_t slots = 64;
    while (slots < 2 * (uint64_t)walk->rewrite.from->node_count && slots < 1u << 31)
        slots *= 2;
    merging *state = mica__calloc(1, sizeof *state);
    walk->state = state;
    if (state != NULL && (state->slot = mica__calloc(slots, sizeof *state->slot)) != NULL)
        state->mask = slots - 1;
    else
        walk->status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u slots", slots);
    return walk->status == MICA_OK;
}

static void end_merging(mica__walk *walk)
{
    merging *state = walk->state;
    if (state != NULL)
        mica__free(state->slot);
    mica__free(state);
}

static mica__visit merge_node(mica__walk *walk, uint32_t at)
{
    enum { MOST = 32 };
    merging *state = walk->state;
    mica_graph *to = walk->rewrite.to;
    const mica__node *node = mica__walk_node(walk, at);
    const mica_tensor *outputs = mica__node_outputs(walk->rewrite.from, node);
    mica_tensor inputs[MOST];
    if (node->kind == MICA_NODE_INPUT || node->kind == MICA_NODE_PARAMETER || node->kind >= MICA_NODE_CALL ||
        node->input_count > MOST)
        return MICA__VISIT_LEFT;
    for (uint32_t i = 0; i < node->input_count; i++)
        inputs[i] = mica__walk_input(walk, node, i);
    const uint32_t hash =
        (uint32_t)hash_node(node, inputs, mica__type_of(walk->rewrite.from, outputs[0]), to->seed);
    uint32_t s = hash & state->mask;
    for (; state->slot[s].node != 0; s = (s + 1) & state->mask) {
        const mica__node *other = &to->node[state->slot[s].node - 1];
        if (state->slot[s].hash != hash || !equal_nodes(walk, node, inputs, other))
            continue;
        for (uint32_t i = 0; i < node->output_count; i++)
            walk->rewrite.map[outputs[i]] = mica__node_outputs(to, other)[i];
        walk->rewrite.map[0] = 0;
        return MICA__VISIT_CHANGED;
    }
    if (mica__graph_again(&walk->rewrite, at) && to->node_count != 0)
        state->slot[s] = (slot){.node = to->node_count, .hash = hash};
    return MICA__VISIT_DONE;
}

const mica__graph_pass mica__graph_pass_merging = {
    "merging", "equal nodes become one", NULL, merge_node, begin_merging, end_merging};

/* ---- nodes that nobody needs ---- */

/* `state`: a byte for each tensor, 1 where it is needed. */
static bool begin_dead(mica__walk *walk)
{
    const mica_graph *from = walk->rewrite.from;
    uint8_t *needed = walk->state = mica__calloc(from->tensor_count, 1);
    if (needed == NULL) {
        walk->status =
            mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u tensors", from->tensor_count);
        return false;
    }
    for (uint32_t i = 0; i < from->outputs.count; i++)
        needed[from->outputs.list[i].tensor] = 1;
    for (uint32_t i = from->node_count; i-- > 0;) {
        const mica__node *node = &from->node[i];
        const mica_tensor *inputs = mica__node_inputs(from, node), *outputs = mica__node_outputs(from, node);
        bool any = false;
        for (uint32_t k = 0; k < node->output_count && !any; k++)
            any = outputs[k] != 0 && needed[outputs[k]] != 0;
        for (uint32_t k = 0; k < node->input_count && any; k++)
            needed[inputs[k]] = 1;
    }
    needed[0] = 0;
    return true;
}

static void end_dead(mica__walk *walk)
{
    mica__free(walk->state);
}

/* Outputs of an op that may be absent and that nobody needs are not asked for. */
static mica__visit want_less(mica__walk *walk, const mica__node *node)
{
    const mica_graph *from = walk->rewrite.from;
    const mica__op_data *data = node->data;
    const mica_tensor *outputs = mica__node_outputs(from, node);
    const uint8_t *needed = walk->state;
    uint32_t wanted = 0;
    mica_tensor inputs[32], gives[24];
    for (uint32_t i = 0; i < node->output_count && i < 24; i++)
        wanted |= (uint32_t)(outputs[i] != 0 && needed[outputs[i]] != 0) << i;
    if ((data->wanted & ~wanted) == 0 || node->output_count < 2 || node->input_count > 32)
        return MICA__VISIT_LEFT;
    for (uint32_t i = 0; i < node->input_count; i++)
        inputs[i] = mica__walk_input(walk, node, i);
    if (mica_graph_op(walk->rewrite.to, (mica_op)node->code, mica__op_params(node), inputs, node->input_count,
                      wanted, data->asked, gives, node->output_count) == 0)
        return MICA__VISIT_DONE;
    for (uint32_t i = 0; i < node->output_count; i++)
        walk->rewrite.map[outputs[i]] = gives[i];
    walk->rewrite.map[0] = 0;
    return MICA__VISIT_CHANGED;
}

static mica__visit drop_node(mica__walk *walk, uint32_t at)
{
    const mica__node *node = mica__walk_node(walk, at);
    const mica_tensor *outputs = mica__node_outputs(walk->rewrite.from, node);
    const uint8_t *needed = walk->state;
    if (node->kind == MICA_NODE_INPUT)
        return MICA__VISIT_LEFT; /* what is fed keeps its place */
    for (uint32_t k = 0; k < node->output_count; k++)
        if (needed[outputs[k]] != 0)
            return node->kind == MICA_NODE_OP ? want_less(walk, node) : MICA__VISIT_LEFT;
    return MICA__VISIT_CHANGED;
}

const mica__graph_pass mica__graph_pass_dead = {
    "dead nodes", "what no output needs is left out", NULL, drop_node, begin_dead, end_dead};
