/*
 * serves.c - whether devices serve a graph, before anything runs: each op, on operands as they will lie, where all its sizes are known.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "device/objects.h"
#include "graph/exec/plan.h"

enum { NAMED = 4 }; /* nodes that a sentence has room for */

typedef struct missing {
    uint32_t count;
    size_t used;
    char names[300], why[160]; /* why: the first one's sentence */
} missing;

static bool is_known(const mica_operand_desc *operand, uint32_t count)
{
    bool known = true;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t d = 0; d < operand[i].ndim && known; d++)
            known = mica__size_known(operand[i].shape[d]);
    return known;
}

static void note(missing *m, const mica_graph *graph, uint32_t at)
{
    const mica__node *node = &graph->node[at];
    const char *label = graph->text + node->label;
    if (m->count == 0)
        snprintf(m->why, sizeof m->why, "%s", mica_status_message());
    if (m->count++ >= NAMED)
        return;
    const int length = snprintf(m->names + m->used, sizeof m->names - m->used, "%snode %u, %s%s%.40s%s",
                                m->used == 0 ? "" : "; ", at, mica__node_name(node), *label != 0 ? " (" : "",
                                label, *label != 0 ? ")" : "");
    m->used += length < 0 ? 0 : (size_t)length;
    m->used = m->used < sizeof m->names ? m->used : sizeof m->names - 1;
}

static mica_status check_op(mica_device *device, const mica_graph *graph, uint32_t at, missing *m)
{
    enum { FEW = 24 };
    const mica__node *node = &graph->node[at];
    const uint32_t most = (uint32_t)node->input_count + node->output_count;
    mica_operand_desc few[FEW], *operand = most <= FEW ? few : mica__alloc(most * sizeof *operand);
    if (operand == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph_compile: no memory for %u operands", most);
    const uint32_t count = mica__op_operands(graph, node, operand);
    mica_status status = MICA_OK;
    if (is_known(operand, count))
        status = mica_op_supported(device, (mica_op)node->code, mica__op_params(node), operand, count, NULL);
    if (operand != few)
        mica__free(operand);
    if (status == MICA_ERR_UNSUPPORTED)
        note(m, graph, at);
    return status == MICA_ERR_OUT_OF_MEMORY || status == MICA_ERR_DEVICE_LOST || status == MICA_ERR_CANCELLED
               ? status
               : MICA_OK; /* what the op refuses it refuses where it runs */
}

static mica_status check_nodes(const mica_executable *executable, const mica_graph *graph, missing *m)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        MICA__TRY(mica__spend(1));
        if (node->kind == MICA_NODE_OP && !mica__crosses(graph, node))
            MICA__TRY(check_op(executable->device[node->place], graph, n, m));
        if (node->kind < MICA_NODE_CALL || node->kind > MICA_NODE_SCAN)
            continue;
        const mica__body_data *data = node->data;
        const uint32_t bodies = node->kind == MICA_NODE_CALL ? 1 : 2; /* not a call's gradient */
        for (uint32_t i = 0; i < bodies && data->body[i] != NULL; i++)
            MICA__TRY(check_nodes(executable, data->body[i], m));
    }
    return MICA_OK;
}

mica_status mica__check_served(const mica_executable *executable)
{
    missing m = {.count = 0};
    MICA__TRY(check_nodes(executable, executable->graph, &m));
    if (m.count == 0)
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "graph_compile: %s%s: %s", m.names,
                      m.count > NAMED ? "; and others" : "", m.why);
}
