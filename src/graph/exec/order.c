/*
 * order.c - see order.h. A node's level is how often values have changed places, or control has decided, on the longest way to it; its reach is how often they still
 * will on the longest way from it. Along an edge within a step both stay; along any other the level grows and the reach falls, or one of them does.
 */
#include "graph/exec/order.h"

#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"
#include "graph/custom.h"
#include "graph/exec/emit.h"

/* What nodes are sorted by; nodes that are alike but for their number are one step. */
typedef struct key {
    uint32_t level, reach, control; /* control: 0, or a node's number + 1 */
    uint32_t place, node;
} key;

bool mica__is_control(const mica__node *node)
{
    return node->kind == MICA_NODE_IF || node->kind == MICA_NODE_WHILE || node->kind == MICA_NODE_SCAN ||
           mica__custom_is_of_host(node);
}

bool mica__node_is_used(const mica_graph *graph, const uint8_t *used, const mica__node *node)
{
    bool is = false;
    for (uint32_t i = 0; i < node->output_count; i++)
        is |= used[mica__node_outputs(graph, node)[i]] != 0;
    return is;
}

/* ---- one place ---- */

static void cut(const mica_graph *graph, const uint8_t *used, mica__order *out)
{
    uint32_t begin = 0;
    out->count = graph->node_count;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        out->node[n] = out->at[n] = n;
        const bool control =
            mica__is_control(&graph->node[n]) && mica__node_is_used(graph, used, &graph->node[n]);
        if (control && n > begin)
            out->steps[out->step_count++] = (mica__step){.begin = begin, .end = n};
        if (control) {
            out->steps[out->step_count++] = (mica__step){.begin = n, .end = n + 1, .control = true};
            begin = n + 1;
        }
    }
    out->steps[out->step_count++] = (mica__step){.begin = begin, .end = graph->node_count, .last = true};
}

/* ---- several ---- */

static bool is_between(const mica_graph *graph, const mica__node *a, const mica__node *b)
{
    return mica__crosses(graph, b) || mica__is_control(a) || mica__is_control(b);
}

static void find_levels(const mica_graph *graph, const uint8_t *used, key *of)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        of[n] = (key){.place = node->place, .node = n, .control = mica__is_control(node) ? n + 1 : 0};
        for (uint32_t i = 0; i < node->input_count; i++) {
            const mica_tensor in = mica__node_inputs(graph, node)[i];
            const mica__node *before = mica__node_of(graph, in);
            if (in == 0 || mica__is_leaf(before))
                continue;
            const uint32_t level = of[graph->tensor[in].node].level + is_between(graph, before, node);
            of[n].level = level > of[n].level ? level : of[n].level;
        }
    }
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const mica__node *node = &graph->node[n];
        for (uint32_t i = 0; i < node->input_count && mica__node_is_used(graph, used, node); i++) {
            const mica_tensor in = mica__node_inputs(graph, node)[i];
            if (in == 0)
                continue;
            key *before = &of[graph->tensor[in].node];
            const uint32_t reach = of[n].reach + is_between(graph, mica__node_of(graph, in), node);
            before->reach = reach > before->reach ? reach : before->reach;
        }
    }
}

static int compare(const void *left, const void *right)
{
    const key *a = left, *b = right;
    if (a->level != b->level)
        return a->level < b->level ? -1 : 1;
    if (a->reach != b->reach)
        return a->reach > b->reach ? -1 : 1;
    if (a->control != b->control)
        return a->control < b->control ? -1 : 1;
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return a->node < b->node ? -1 : a->node > b->node;
}

static mica_status sort(const mica_graph *graph, const uint8_t *used, uint32_t places, mica__order *out)
{
    key *of = mica__alloc((graph->node_count + 1u) * sizeof *of);
    if (of == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u nodes", graph->node_count);
    find_levels(graph, used, of);
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        if (!mica__is_leaf(node) && !mica__is_view(node) && mica__node_is_used(graph, used, node))
            of[count++] = of[n];
    }
    const mica_status status = mica__sort(of, count, sizeof *of, compare);
    for (uint32_t i = 0; i < count && status == MICA_OK; i++) {
        const key *k = &of[i], *before = i == 0 ? NULL : &of[i - 1];
        if (before == NULL || k->level != before->level || k->reach != before->reach ||
            k->control != before->control || k->place != before->place)
            out->steps[out->step_count++] =
                (mica__step){.begin = i, .place = (uint8_t)k->place, .control = k->control != 0};
        out->steps[out->step_count - 1].end = i + 1;
        out->node[i] = k->node;
        out->at[k->node] = i;
    }
    out->count = count;
    for (uint32_t p = 0; p < places; p++)
        out->steps[out->step_count++] =
            (mica__step){.begin = count, .end = count, .place = (uint8_t)p, .last = true};
    mica__free(of);
    return status;
}

/* ---- both ---- */

mica_status mica__order_make(const mica_graph *graph, const uint8_t *used, uint32_t places, mica__order *out)
{
    *out = (mica__order){.node = mica__calloc(graph->node_count + 1u, sizeof *out->node),
                         .at = mica__calloc(graph->node_count + 1u, sizeof *out->at),
                         .step = mica__calloc(graph->node_count + 1u, sizeof *out->step),
                         .steps = mica__calloc(graph->node_count + 1u + places, sizeof *out->steps)};
    if (out->node == NULL || out->at == NULL || out->step == NULL || out->steps == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for a schedule of %u nodes",
                          graph->node_count);
    if (places > 1)
        MICA__TRY(sort(graph, used, places, out));
    else
        cut(graph, used, out);
    for (uint32_t s = 0; s < out->step_count; s++)
        for (uint32_t i = out->steps[s].begin; i < out->steps[s].end; i++)
            out->step[out->node[i]] = s;
    return MICA_OK;
}

void mica__order_free(mica__order *order)
{
    void *const lists[] = {order->node, order->at, order->step, order->steps};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        mica__free(lists[i]);
    memset(order, 0, sizeof *order);
}
