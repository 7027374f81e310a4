/*
 * model.c - how long a graph takes, by what a device was measured to reach.
 *
 * Knows nodes, types and the table's costs of ops; asks no device but to choose among some. Times are ns, so rates are operations and bytes per ns.
 */
#include "mica/cost.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "graph/cost/cost.h"
#include "graph/custom.h"
#include "graph/exec/emit.h"
#include "mica/executable.h"
#include "ops/check.h"

#define SMALL_OPERATIONS (2.0 * 8 * 64 * 64)
#define LARGE_OPERATIONS (2.0 * 256 * 768 * 3072)
#define NOBODY UINT32_MAX

static mica_status cost_of_graph(const mica_graph *graph, const mica_calibration *c, bool outer,
                                 double *out_ns);

/* ---- rates ---- */

typedef enum limit { LIMIT_PRODUCT = 0, LIMIT_ATTENTION, LIMIT_REDUCE } limit;

static const uint8_t limits[MICA_OP_COUNT] = {[MICA_OP_ATTENTION] = LIMIT_ATTENTION,
                                              [MICA_OP_ATTENTION_BACKWARD] = LIMIT_ATTENTION,
                                              [MICA_OP_REDUCE] = LIMIT_REDUCE};

static double product_rate(const mica_calibration *c, double operations)
{
    if (operations <= SMALL_OPERATIONS)
        return c->matmul_small;
    if (operations >= LARGE_OPERATIONS)
        return c->matmul_large;
    const double part = log(operations / SMALL_OPERATIONS) / log(LARGE_OPERATIONS / SMALL_OPERATIONS);
    return c->matmul_small * pow(c->matmul_large / c->matmul_small, part);
}

/* One kernel. */
static double kernel_ns(const mica_calibration *c, limit by, double operations, double bytes)
{
    const double rate = by == LIMIT_ATTENTION ? c->attention : product_rate(c, operations);
    const double bandwidth = by == LIMIT_REDUCE ? c->reduce : c->memory;
    return c->launch + fmax(operations / rate, bytes / bandwidth);
}

/* ---- elementwise neighbours ---- */

/* A node as the estimate sees it. Kernels of several nodes are lists: `first` of the first node, then `next`. */
typedef struct place {
    uint32_t kernel; /* the first node of its kernel, by `find`; itself */
    uint32_t next, last;
    uint32_t level; /* kernels that must have run before it; nodes of one kernel have the same */
    bool live;
} place;

typedef struct estimate {
    const mica_graph *graph;
    const mica_calibration *c;
    double *by_node;          /* NULL, or what each kernel takes, at its first node */
    mica__kernel_of *kernels; /* NULL, or the kernel of each node */
    place *place;             /* of nodes */
    /* of tensors */
    uint32_t *seen;      /* the kernel that read it last, so that each counts once */
    bool *leaves;        /* read outside of its kernel */
    mica_tensor *source; /* what a chain of views shows; itself */
    double *shown;       /* how many bytes of that at the most */
} estimate;

static bool is_elementwise(const mica__node *node)
{
    return node->kind == MICA_NODE_SCALAR || node->kind == MICA_NODE_REGION || node->kind == MICA_NODE_CAST ||
           node->kind == MICA_NODE_INDEX;
}

/* Tensors come behind what they are made of. */
static void look_through_views(estimate *e)
{
    const mica_graph *graph = e->graph;
    e->source[0] = 0;
    for (mica_tensor t = 1; t < graph->tensor_count; t++) {
        const mica__node *node = mica__node_of(graph, t);
        e->source[t] = t;
        e->shown[t] = (double)mica__type_bytes(mica__type_of(graph, t));
        if (!mica__is_view(node))
            continue;
        const mica_tensor in = *mica__node_inputs(graph, node);
        e->source[t] = e->source[in];
        e->shown[t] = fmin(e->shown[t], e->shown[in]);
    }
}

static uint32_t find(estimate *e, uint32_t node)
{
    while (e->place[node].kernel != node)
        node = e->place[node].kernel = e->place[e->place[node].kernel].kernel;
    return node;
}

/* The first output that is wanted. */
static mica_tensor result_of(const mica_graph *graph, const mica__node *node)
{
    const mica_tensor *out = mica__node_outputs(graph, node);
    for (uint32_t i = 0; i < node->output_count; i++)
        if (out[i] != 0)
            return out[i];
    return 0;
}

/* Whether node `at` can be computed where `input` is: both elementwise, element by element. */
static bool follows(const estimate *e, uint32_t at, mica_tensor input)
{
    const mica_graph *graph = e->graph;
    const mica__node *node = &graph->node[at];
    const mica_tensor from = e->source[input], y = result_of(graph, node);
    return is_elementwise(node) && is_elementwise(mica__node_of(graph, from)) && y != 0 &&
           mica__type_elements(mica__type_of(graph, from)) ==
               mica__type_elements(mica__type_of(graph, input)) &&
           mica__type_elements(mica__type_of(graph, from)) == mica__type_elements(mica__type_of(graph, y));
}

/* Behind those whose kernels it needs; with them where that makes no kernel wait for itself. */
static void join_inputs(estimate *e, uint32_t at)
{
    const mica_graph *graph = e->graph;
    const mica__node *node = &graph->node[at];
    const mica_tensor *in = mica__node_inputs(graph, node);
    place *all = e->place;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const mica_tensor from = e->source[in[i]];
        const uint32_t before = graph->tensor[from].node;
        if (from == 0 || mica__is_leaf(&graph->node[before]))
            continue;
        const uint32_t level = all[before].level + !follows(e, at, in[i]);
        all[at].level = level > all[at].level ? level : all[at].level;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        const mica_tensor from = e->source[in[i]];
        const uint32_t before = graph->tensor[from].node;
        if (from == 0 || !follows(e, at, in[i]) || all[before].level != all[at].level)
            continue;
        const uint32_t a = find(e, before), b = find(e, at);
        all[a < b ? b : a].kernel = a < b ? a : b;
    }
}

static void mark_live(estimate *e)
{
    const mica_graph *graph = e->graph;
    for (uint32_t i = 0; i < graph->outputs.count; i++)
        e->place[graph->tensor[graph->outputs.list[i].tensor].node].live = true;
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const mica__node *node = &graph->node[n];
        for (uint32_t i = 0; i < node->input_count && e->place[n].live; i++)
            if (mica__node_inputs(graph, node)[i] != 0)
                e->place[graph->tensor[mica__node_inputs(graph, node)[i]].node].live = true;
    }
}

/* Makes the lists, and marks what is read outside of its kernel. */
static void list_kernels(estimate *e)
{
    const mica_graph *graph = e->graph;
    for (uint32_t i = 0; i < graph->outputs.count; i++)
        e->leaves[e->source[graph->outputs.list[i].tensor]] = true;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        const uint32_t kernel = find(e, n);
        if (kernel != n) {
            e->place[e->place[kernel].last].next = n;
            e->place[kernel].last = n;
        }
        for (uint32_t i = 0; i < node->input_count && e->place[n].live && !mica__is_view(node); i++) {
            const mica_tensor from = e->source[mica__node_inputs(graph, node)[i]];
            if (from != 0 && find(e, graph->tensor[from].node) != kernel)
                e->leaves[from] = true;
        }
    }
}

/* ---- nodes ---- */

static double steps_of(const mica_graph *graph, const mica__node *node)
{
    const mica__region_program *program = node->data;
    double operations = node->kind == MICA_NODE_SCALAR ? mica__scalar_of(node->code)->operations : 0;
    for (uint32_t i = 0; node->kind == MICA_NODE_REGION && i < program->step_count; i++)
        operations += mica__scalar_of(program->step[i].scalar)->operations;
    return operations * (double)mica__type_elements(mica__type_of(graph, result_of(graph, node)));
}

/* A kernel of elementwise nodes: what comes in, what goes out, and the steps of all. */
static double elementwise_ns(estimate *e, uint32_t kernel)
{
    const mica_graph *graph = e->graph;
    double bytes = 0, operations = 0;
    for (uint32_t n = kernel; n != NOBODY; n = e->place[n].next) {
        const mica__node *node = &graph->node[n];
        if (!e->place[n].live)
            continue;
        operations += steps_of(graph, node);
        for (uint32_t i = 0; i < node->input_count; i++) {
            const mica_tensor in = mica__node_inputs(graph, node)[i], from = e->source[in];
            if (from == 0 || find(e, graph->tensor[from].node) == kernel || e->seen[from] == kernel)
                continue;
            e->seen[from] = kernel;
            bytes += e->shown[in];
        }
        for (uint32_t i = 0; i < node->output_count; i++) {
            const mica_tensor y = mica__node_outputs(graph, node)[i];
            bytes += y != 0 && e->leaves[y] ? (double)mica__type_bytes(mica__type_of(graph, y)) : 0;
        }
    }
    return kernel_ns(e->c, LIMIT_PRODUCT, operations, bytes);
}

/* What is read and written by a node that only moves elements. */
static double moved_ns(const estimate *e, const mica__node *node)
{
    double bytes = (double)mica__type_bytes(mica__type_of(e->graph, result_of(e->graph, node)));
    for (uint32_t i = 0; i < node->input_count; i++)
        bytes += (double)mica__type_bytes(mica__type_of(e->graph, mica__node_inputs(e->graph, node)[i]));
    return kernel_ns(e->c, LIMIT_PRODUCT, 0, bytes);
}

/* An op of the caller's, of which nothing is known but what it reads and writes: a kernel that does no more, or, on the host, what travels there and back. */
static double custom_ns(const estimate *e, const mica__node *node)
{
    double bytes = 0;
    for (uint32_t i = 0; i < node->input_count; i++)
        bytes += (double)mica__type_bytes(mica__type_of(e->graph, mica__node_inputs(e->graph, node)[i]));
    for (uint32_t i = 0; i < node->output_count; i++)
        bytes += (double)mica__type_bytes(mica__type_of(e->graph, mica__node_outputs(e->graph, node)[i]));
    return mica__custom_is_of_host(node) ? e->c->roundtrip + bytes / e->c->transfer
                                         : kernel_ns(e->c, LIMIT_PRODUCT, 0, bytes);
}

static mica_status op_ns(const estimate *e, const mica__node *node, double *out_ns)
{
    double bytes = 0, operations = 0;
    const size_t most = (size_t)node->input_count + node->output_count;
    mica_operand_desc *operand = mica__alloc(most * sizeof *operand);
    if (operand == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu operands", most);
    const uint32_t count = mica__op_operands(e->graph, node, operand);
    const mica_status status =
        mica__op_cost_of((mica_op)node->code, mica__op_params(node), operand, count, &bytes, &operations);
    mica__free(operand);
    *out_ns = kernel_ns(e->c, (limit)limits[node->code], operations, bytes);
    return status;
}

/* One body, with inputs of the types that it gets. */
static mica_status body_ns(const estimate *e, const mica__node *node, const mica_graph *body,
                           uint32_t scanned_from, uint32_t scanned_to, double *out_ns)
{
    mica_graph *concrete = NULL;
    mica__type *types = mica__alloc((node->input_count + 1u) * sizeof *types);
    if (types == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u types", node->input_count);
    for (uint32_t i = 0; i < node->input_count; i++) {
        types[i] = *mica__type_of(e->graph, mica__node_inputs(e->graph, node)[i]);
        if (i < scanned_from || i >= scanned_to)
            continue;
        types[i].ndim--; /* a slice of it */
        memmove(types[i].shape, types[i].shape + 1, types[i].ndim * sizeof types[i].shape[0]);
    }
    mica_status status = mica__graph_concrete(body, types, &concrete);
    if (status == MICA_OK)
        status = cost_of_graph(concrete, e->c, false, out_ns);
    mica_graph_release(concrete);
    mica__free(types);
    return status;
}

static uint64_t scan_rounds(const mica_graph *graph, const mica__node *node, const mica_scan_desc *scan)
{
    return scan->scanned == 0 ? scan->length
                              : mica__type_of(graph, mica__node_inputs(graph, node)[scan->carried])->shape[0];
}

/* A round of each asks the host whether, or which way, it goes on. */
static mica_status control_ns(const estimate *e, const mica__node *node, double *out_ns)
{
    const mica__body_data *data = node->data;
    double first = 0, second = 0;
    if (node->kind == MICA_NODE_SCAN) {
        const uint32_t from = data->scan.carried, to = from + data->scan.scanned;
        MICA__TRY(body_ns(e, node, data->body[0], from, to, &first));
        *out_ns = (double)scan_rounds(e->graph, node, &data->scan) * (e->c->roundtrip + first);
        return MICA_OK;
    }
    if (node->kind == MICA_NODE_WHILE && data->most == 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "states no bound, so that nobody knows how long it takes");
    if (node->kind == MICA_NODE_IF) { /* the predicate is no input of the bodies */
        mica__node inside = *node;
        inside.inputs++;
        inside.input_count--;
        MICA__TRY(body_ns(e, &inside, data->body[0], 0, 0, &first));
        MICA__TRY(body_ns(e, &inside, data->body[1], 0, 0, &second));
        *out_ns = e->c->roundtrip + fmax(first, second);
        return MICA_OK;
    }
    MICA__TRY(body_ns(e, node, data->body[0], 0, 0, &first));
    MICA__TRY(body_ns(e, node, data->body[1], 0, 0, &second));
    *out_ns = (double)data->most * (e->c->roundtrip + first + second);
    return MICA_OK;
}

static mica_status node_ns(estimate *e, uint32_t at, double *out_ns)
{
    const mica__node *node = &e->graph->node[at];
    *out_ns = 0;
    if (mica__is_leaf(node) || mica__is_view(node))
        return MICA_OK;
    if (is_elementwise(node))
        *out_ns = find(e, at) == at ? elementwise_ns(e, at) : 0;
    else if (node->kind == MICA_NODE_OP)
        return op_ns(e, node, out_ns);
    else if (node->kind == MICA_NODE_CONCAT || node->kind == MICA_NODE_BITS)
        *out_ns = moved_ns(e, node);
    else if (node->kind == MICA_NODE_CUSTOM)
        *out_ns = custom_ns(e, node);
    else if (node->kind == MICA_NODE_IF || node->kind == MICA_NODE_WHILE || node->kind == MICA_NODE_SCAN)
        return control_ns(e, node, out_ns);
    else
        return mica__fail(MICA_ERR_UNSUPPORTED, "its cost is not known");
    return MICA_OK;
}

/* ---- graphs ---- */

/* Elementwise nodes whose first one is dead hand its place on. */
static bool kernel_is_live(const estimate *e, uint32_t kernel)
{
    for (uint32_t n = kernel; n != NOBODY; n = e->place[n].next)
        if (e->place[n].live)
            return true;
    return false;
}

static mica_status add_nodes(estimate *e, double *out_ns)
{
    const mica_graph *graph = e->graph;
    for (uint32_t n = 0; n < graph->node_count; n++)
        if (e->place[n].live)
            join_inputs(e, n);
    list_kernels(e);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        double ns = 0;
        const mica__node *node = &graph->node[n];
        MICA__TRY(mica__spend(1));
        if (find(e, n) != n || !kernel_is_live(e, n))
            continue;
        const mica_status status = node_ns(e, n, &ns);
        if (status != MICA_OK)
            return mica__fail(status, "node %u, %s%s%s: %s", n, mica__node_name(node),
                              node->label != 0 ? " in " : "", graph->text + node->label,
                              mica_status_message());
        *out_ns += ns;
        if (e->by_node != NULL)
            e->by_node[n] = ns;
    }
    for (uint32_t n = 0; n < graph->node_count && e->kernels != NULL; n++)
        e->kernels[n] = (mica__kernel_of){.level = e->place[n].level,
                                          .first = find(e, n),
                                          .live = e->place[n].live && !mica__is_leaf(&graph->node[n]) &&
                                                  !mica__is_view(&graph->node[n])};
    return MICA_OK;
}

static double transfer_bytes(const mica_graph *graph)
{
    double bytes = 0;
    for (uint32_t i = 0; i < graph->input_count; i++)
        bytes += (double)mica__type_bytes(mica__type_of(graph, graph->inputs[i]));
    for (uint32_t i = 0; i < graph->outputs.count; i++)
        bytes += (double)mica__type_bytes(mica__type_of(graph, graph->outputs.list[i].tensor));
    return bytes;
}

/* A graph of known sizes. `outer`: the host submits it and gets its outputs. */
static mica_status estimate_graph(estimate *given, bool outer, double *out_ns)
{
    estimate e = *given;
    const mica_graph *graph = e.graph;
    const mica_calibration *c = e.c;
    mica_status status = MICA_OK;
    e.place = mica__calloc(graph->node_count + 1u, sizeof *e.place);
    e.seen = mica__alloc((graph->tensor_count + 1u) * sizeof *e.seen);
    e.leaves = mica__calloc(graph->tensor_count + 1u, sizeof *e.leaves);
    e.source = mica__calloc(graph->tensor_count + 1u, sizeof *e.source);
    e.shown = mica__calloc(graph->tensor_count + 1u, sizeof *e.shown);
    *out_ns = outer ? c->roundtrip + transfer_bytes(graph) / c->transfer : 0;
    if (e.place == NULL || e.seen == NULL || e.leaves == NULL || e.source == NULL || e.shown == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u nodes", graph->node_count);
    for (uint32_t n = 0; n < graph->node_count && status == MICA_OK; n++)
        e.place[n] = (place){.kernel = n, .last = n, .next = NOBODY};
    if (status == MICA_OK) {
        memset(e.seen, 0xff, (graph->tensor_count + 1u) * sizeof *e.seen);
        look_through_views(&e);
        mark_live(&e);
        status = add_nodes(&e, out_ns);
    }
    mica__free(e.place);
    mica__free(e.seen);
    mica__free(e.leaves);
    mica__free(e.source);
    mica__free(e.shown);
    return status;
}

static mica_status cost_of_graph(const mica_graph *graph, const mica_calibration *c, bool outer,
                                 double *out_ns)
{
    return estimate_graph(&(estimate){.graph = graph, .c = c}, outer, out_ns);
}

mica_status mica__cost_nodes(const mica_graph *graph, const mica_calibration *c, double *ns,
                             mica__kernel_of *kernels)
{
    double sum = 0;
    return estimate_graph(&(estimate){.graph = graph, .c = c, .by_node = ns, .kernels = kernels}, false,
                          &sum);
}

/* ---- calls ---- */

static mica_status check_inputs(const mica_graph *graph)
{
    char words[160];
    for (uint32_t i = 0; i < graph->input_count; i++) {
        const char *name = NULL;
        const mica__type *type = mica__type_of(graph, mica_graph_get_input(graph, i, &name));
        if (mica__type_elements(type) == MICA_SIZE_UNKNOWN)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "input '%s' is %s: its size must be known", name,
                              mica__shape_words(graph, type->ndim, type->shape, words));
    }
    return MICA_OK;
}

static mica_status graph_cost(const mica_graph *graph, const mica_calibration *c, double *out_ns)
{
    mica_graph *concrete = NULL;
    if (graph == NULL || c == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", graph == NULL ? "graph" : "calibration");
    MICA__TRY(mica_graph_status(graph));
    MICA__TRY(mica__calibration_check(c));
    MICA__TRY(check_inputs(graph));
    mica__type *types = mica__alloc((graph->input_count + 1u) * sizeof *types);
    if (types == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u types", graph->input_count);
    for (uint32_t i = 0; i < graph->input_count; i++)
        types[i] = *mica__type_of(graph, graph->inputs[i]);
    mica_status status = mica__graph_concrete(graph, types, &concrete);
    if (status == MICA_OK)
        status = cost_of_graph(concrete, c, true, out_ns);
    mica_graph_release(concrete);
    mica__free(types);
    return status;
}

mica_status mica_graph_cost(const mica_graph *graph, const mica_calibration *calibration, double *out_ns)
{
    mica__call call;
    double ns = 0;
    if (out_ns == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_cost: out_ns is NULL");
    *out_ns = 0;
    mica__call_begin(&call, "graph_cost");
    const mica_status status = graph_cost(graph, calibration, &ns);
    *out_ns = status == MICA_OK ? ns : 0;
    return mica__call_end(&call, status);
}

mica_status mica_graph_choose(const mica_graph *graph, const mica_calibration *calibrations, uint32_t count,
                              uint32_t *out_index)
{
    double least = INFINITY, ns = 0;
    uint32_t best = 0;
    if (out_index == NULL || calibrations == NULL || count == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_choose: %s",
                          out_index == NULL      ? "out_index is NULL"
                          : calibrations == NULL ? "calibrations is NULL"
                                                 : "count is 0: there is nothing to choose from");
    *out_index = 0;
    for (uint32_t i = 0; i < count; i++) {
        MICA__TRY(mica_graph_cost(graph, &calibrations[i], &ns));
        best = ns < least ? i : best;
        least = fmin(ns, least);
    }
    *out_index = best;
    return MICA_OK;
}

/* What a run on the device takes; INFINITY and a sentence where it does not serve the graph. */
static mica_status cost_on(const mica_graph *graph, mica_device *device, double *out_ns)
{
    mica_calibration c;
    mica_executable *executable = NULL;
    const mica_status status = mica_graph_compile(graph, device, NULL, &executable);
    mica_executable_release(executable);
    *out_ns = INFINITY;
    if (status != MICA_OK)
        return status == MICA_ERR_UNSUPPORTED ? MICA_OK : status;
    MICA__TRY(mica_device_calibration(device, 0, &c));
    return graph_cost(graph, &c, out_ns);
}

static mica_status choose_device(const mica_graph *graph, mica_device *const *devices, uint32_t count,
                                 uint32_t *out_index)
{
    double least = INFINITY, ns = 0;
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < count; i++)
        if (devices[i] == NULL)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "devices[%u] is NULL", i);
    for (uint32_t i = 0; i < count; i++) {
        MICA__TRY(cost_on(graph, devices[i], &ns));
        best = ns < least ? i : best;
        least = fmin(ns, least);
    }
    if (best == NOBODY)
        return mica__fail(MICA_ERR_UNSUPPORTED, "no device serves the graph: %s", mica_status_message());
    *out_index = best;
    return MICA_OK;
}

mica_status mica_graph_choose_device(const mica_graph *graph, mica_device *const *devices, uint32_t count,
                                     uint32_t *out_index)
{
    mica__call call;
    if (out_index == NULL || devices == NULL || graph == NULL || count == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_choose_device: %s",
                          out_index == NULL ? "out_index is NULL"
                          : devices == NULL ? "devices is NULL"
                          : graph == NULL   ? "graph is NULL"
                                            : "count is 0: there is nothing to choose from");
    *out_index = 0;
    mica__call_begin(&call, "graph_choose_device");
    return mica__call_end(&call, choose_device(graph, devices, count, out_index));
}
