/*
 * passes.c - the table of passes, and the walk that all of them are.
 */
#include "graph/passes/passes.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/work.h"

/* In order: calls become their nodes first, so that the others see across; patterns are found in what is simple and has no copies; what the last ones left behind goes at
 * the end. */
static const mica__graph_pass *const table[] = {
    &mica__graph_pass_inlining, &mica__graph_pass_bodies,    &mica__graph_pass_algebra,
    &mica__graph_pass_merging,  &mica__graph_pass_folding,   &mica__graph_pass_algebra,
    &mica__graph_pass_dead,     &mica__graph_pass_norms,     &mica__graph_pass_dead,
    &mica__graph_pass_routing,  &mica__graph_pass_dead,      &mica__graph_pass_attention,
    &mica__graph_pass_weights,  &mica__graph_pass_precision, &mica__graph_pass_algebra,
    &mica__graph_pass_merging,  &mica__graph_pass_dead,
};

/* ---- types and numbers ---- */

bool mica__types_equal(const mica__type *a, const mica__type *b)
{
    bool equal = a->dtype == b->dtype && a->ndim == b->ndim && a->group_size == b->group_size &&
                 a->scale_dtype == b->scale_dtype;
    for (uint32_t d = 0; d < a->ndim && equal; d++)
        equal = a->shape[d] == b->shape[d] && a->shape[d] != MICA_SIZE_UNKNOWN;
    return equal;
}

/* Element `i` of plain bytes; false for a type without numbers. Integers beyond 2^53 are none here. */
static bool element(const void *data, mica_dtype dtype, uint64_t i, double *out)
{
    int64_t whole = 0;
    switch (dtype) {
    case MICA_DTYPE_F32: *out = (double)((const float *)data)[i]; return true;
    case MICA_DTYPE_F64: *out = ((const double *)data)[i]; return true;
    case MICA_DTYPE_F16: *out = (double)mica__f16_to_f32(((const uint16_t *)data)[i]); return true;
    case MICA_DTYPE_BF16: *out = (double)mica__bf16_to_f32(((const uint16_t *)data)[i]); return true;
    case MICA_DTYPE_I8: whole = (int64_t)((const int8_t *)data)[i]; break;
    case MICA_DTYPE_I16: whole = ((const int16_t *)data)[i]; break;
    case MICA_DTYPE_I32: whole = ((const int32_t *)data)[i]; break;
    case MICA_DTYPE_I64:
    case MICA_DTYPE_U64:
        whole = ((const int64_t *)data)[i];
        if (dtype == MICA_DTYPE_U64 && whole < 0)
            return false;
        break;
    case MICA_DTYPE_U8: whole = ((const uint8_t *)data)[i]; break;
    case MICA_DTYPE_BOOL: whole = ((const uint8_t *)data)[i] != 0; break;
    case MICA_DTYPE_U16: whole = ((const uint16_t *)data)[i]; break;
    case MICA_DTYPE_U32: whole = ((const uint32_t *)data)[i]; break;
    default: return false;
    }
    *out = (double)whole;
    return whole >= -(1ll << 53) && whole <= 1ll << 53;
}

bool mica__graph_number(const mica_graph *graph, mica_tensor tensor, double *out_number)
{
    enum { MOST = 4096 };
    const mica__node *node = tensor == 0 ? NULL : mica__node_of(graph, tensor);
    while (node != NULL && (node->kind == MICA_NODE_EXPAND || node->kind == MICA_NODE_RESHAPE ||
                            node->kind == MICA_NODE_PERMUTE)) {
        tensor = *mica__node_inputs(graph, node);
        node = mica__node_of(graph, tensor);
    }
    if (node == NULL || node->kind != MICA_NODE_CONSTANT)
        return false;
    const mica__type *type = mica__type_of(graph, tensor);
    const mica__blob *blob = ((const mica__constant_data *)node->data)->blob;
    const uint64_t elements = mica__type_elements(type);
    const size_t size = mica_dtype_block_bytes(type->dtype);
    if (mica_dtype_block_elements(type->dtype) != 1 || elements == 0 || elements > MOST ||
        !element(blob->data, type->dtype, 0, out_number))
        return false;
    for (uint64_t i = 1; i < elements; i++)
        if (memcmp((const char *)blob->data + i * size, blob->data, size) != 0)
            return false;
    return true;
}

/* ---- the walk ---- */

static void count_uses(mica__walk *walk)
{
    const mica_graph *from = walk->rewrite.from;
    for (uint32_t i = 0; i < from->node_count; i++) {
        const mica__node *node = &from->node[i];
        const mica_tensor *inputs = mica__node_inputs(from, node);
        for (uint32_t k = 0; k < node->input_count; k++)
            walk->uses[inputs[k]]++;
    }
    for (uint32_t i = 0; i < from->outputs.count; i++)
        walk->uses[from->outputs.list[i].tensor]++;
}

mica__visit mica__walk_gives(mica__walk *walk, const mica__node *node, mica_tensor tensor)
{
    if (tensor == 0)
        return MICA__VISIT_LEFT;
    walk->rewrite.map[*mica__node_outputs(walk->rewrite.from, node)] = tensor;
    return MICA__VISIT_CHANGED;
}

/* Whether what a pass put in place of a node's outputs is of their types, and says no less of their sizes. */
static bool stands_for(const mica__walk *walk, const mica__node *node)
{
    const mica_graph *from = walk->rewrite.from, *to = walk->rewrite.to;
    const mica_tensor *outputs = mica__node_outputs(from, node);
    bool same = true;
    for (uint32_t i = 0; i < node->output_count && same; i++) {
        const mica_tensor tensor = walk->rewrite.map[outputs[i]];
        if (outputs[i] == 0 || tensor == 0)
            continue;
        const mica__type *is = mica__type_of(to, tensor), *was = mica__type_of(from, outputs[i]);
        same = is->dtype == was->dtype && is->ndim == was->ndim;
        for (uint32_t d = 0; d < was->ndim && same; d++)
            same = is->shape[d] == was->shape[d] ||
                   (was->shape[d] == MICA_SIZE_UNKNOWN && is->shape[d] != MICA_SIZE_UNKNOWN) ||
                   (!mica__size_known(was->shape[d]) && mica__size_known(is->shape[d]));
    }
    return same;
}

static void visit_node(const mica__graph_pass *pass, mica__walk *walk, uint32_t at)
{
    const mica__node *node = &walk->rewrite.from->node[at];
    mica__rewrite_mark(&walk->rewrite, node);
    mica__visit visit = pass->visit(walk, at);
    if (visit == MICA__VISIT_CHANGED && !stands_for(walk, node))
        visit = MICA__VISIT_LEFT;
    walk->rewrite.to->label = 0;
    walk->rewrite.to->round = 0;
    walk->rewrite.to->place = 0;
    walk->changes += visit == MICA__VISIT_CHANGED;
    if (visit == MICA__VISIT_LEFT && walk->rewrite.to->status == MICA_OK)
        (void)mica__graph_again(&walk->rewrite, at);
}

static mica_status walk_nodes(const mica__graph_pass *pass, mica__walk *walk)
{
    const mica_graph *from = walk->rewrite.from;
    for (uint32_t i = 0; i < from->node_count; i++) {
        if (walk->rewrite.to->status != MICA_OK || walk->status != MICA_OK)
            break;
        if (i % 4096 == 0)
            MICA__TRY(mica__spend(from->node_count - i < 4096 ? from->node_count - i : 4096));
        visit_node(pass, walk, i);
    }
    return walk->status != MICA_OK ? walk->status : mica_graph_status(walk->rewrite.to);
}

mica_status mica__graph_pass_run(const mica__graph_pass *pass, const mica_graph *from,
                                 const mica__pass_options *options, mica_graph **out_graph,
                                 uint64_t *out_changes)
{
    static const mica__pass_options none = {.flags = 0};
    mica__walk walk = {.options = options == NULL ? &none : options};
    *out_graph = NULL;
    mica_status status = mica__rewrite_begin(&walk.rewrite, from, NULL);
    if (status == MICA_OK && (walk.uses = mica__calloc(from->tensor_count, sizeof *walk.uses)) == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u tensors", from->tensor_count);
    if (status == MICA_OK)
        count_uses(&walk);
    if (status == MICA_OK && pass->begin != NULL && !pass->begin(&walk))
        status = walk.status;
    if (status == MICA_OK)
        status = walk_nodes(pass, &walk);
    if (pass->end != NULL)
        pass->end(&walk);
    mica__free(walk.uses);
    if (status != MICA_OK && walk.rewrite.to != NULL && walk.rewrite.to->status == MICA_OK) {
        walk.rewrite.to->status = status; /* so that its sentence is the one that is told */
        snprintf(walk.rewrite.to->sentence, sizeof walk.rewrite.to->sentence, "%s", mica_status_message());
    }
    if (out_changes != NULL)
        *out_changes = walk.changes;
    return mica__rewrite_end(&walk.rewrite, out_graph);
}

static bool is_concerned(const mica__graph_pass *pass, const mica_graph *graph,
                         const mica__pass_options *options)
{
    bool is = pass->concerns == NULL;
    for (uint32_t i = 0; i < graph->node_count && !is; i++)
        is = pass->concerns(&graph->node[i], options);
    return is;
}

const mica__graph_pass *const *mica__graph_passes(uint32_t *out_count)
{
    *out_count = sizeof table / sizeof table[0];
    return table;
}

mica_status mica__graph_optimise(const mica_graph *from, const mica__pass_options *options,
                                 mica_graph **out_graph)
{
    static const mica__pass_options none = {.flags = 0};
    const mica_graph *now = from;
    mica_graph *owned = NULL;
    MICA__TRY(mica_graph_status(from));
    if (options != NULL && (options->flags & MICA_COMPILE_AS_WRITTEN) != 0)
        return mica_graph_clone(from, out_graph);
    *out_graph = NULL;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        mica_graph *next = NULL;
        if (!is_concerned(table[i], now, options == NULL ? &none : options))
            continue;
        const mica_status status = mica__graph_pass_run(table[i], now, options, &next, NULL);
        mica_graph_release(owned);
        if (status != MICA_OK)
            return status;
        now = owned = next;
    }
    *out_graph = owned;
    return owned != NULL ? MICA_OK : mica_graph_clone(from, out_graph);
}
