/* fake_graph.c - graphs: nodes with what they wait for; an executable is a copy. Old drivers have none. */
#include "fake_state.h"

#include <stdlib.h>
#include <string.h>

void fake_free_nodes(fake_object *graph)
{
    while (graph->nodes != NULL) {
        fake_node *node = graph->nodes;
        graph->nodes = node->next;
        free(node);
    }
}

#ifdef FAKE_OLD
void fake_capture(fake_object *stream, const fake_node *node)
{
    (void)stream;
    (void)node;
}
#else

static uint32_t last_edges[4096][2], last_count, last_nodes, last_early;

typedef struct launch {
    void *function;
    unsigned grid[3], block[3], shared;
    void **arguments, **extra;
} launch;

typedef struct copy_end {
    size_t x, y, z, lod;
    int type;
    const void *host;
    uint64_t device;
    void *array, *reserved;
    size_t pitch, height;
} copy_end;

typedef struct copy {
    copy_end from, to;
    size_t width, height, depth;
} copy;

static void append(fake_object *graph, fake_node *node)
{
    node->graph = graph;
    node->number = graph->node_count++;
    node->next = NULL;
    *graph->last_node = node;
    graph->last_node = &node->next;
}

/* A node that waits for others of the same graph. NULL: one of them is not. */
static fake_node *add(fake_object *graph, void *const *dependencies, size_t count)
{
    fake_node *node = calloc(1, sizeof *node);
    if (count > FAKE_NODE_WAITS) {
        fake_complain("a node waits for %zu others", count);
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        const fake_node *other = dependencies[i];
        if (other->graph != graph) {
            fake_complain("a node waits for one of another graph");
            free(node);
            return NULL;
        }
        node->wait[node->wait_count++] = other->number;
    }
    append(graph, node);
    return node;
}

static void copy_nodes(const fake_object *from, fake_object *to)
{
    for (const fake_node *node = from->nodes; node != NULL; node = node->next) {
        fake_node *twin = malloc(sizeof *twin);
        *twin = *node;
        append(to, twin);
    }
}

static fake_object *copy_graph(const fake_object *from, fake_kind kind)
{
    fake_object *graph = fake_new(kind, "graph");
    copy_nodes(from, graph);
    return graph;
}

void fake_capture(fake_object *stream, const fake_node *node)
{
    fake_object *graph = stream->capture;
    fake_node *twin = malloc(sizeof *twin);
    *twin = *node;
    twin->wait_count = graph->node_count > 0;
    twin->wait[0] = graph->node_count - 1;
    append(graph, twin);
}

FAKE(cuGraphCreate, (void **out, unsigned flags))
{
    const int fails = fake_enter("cuGraphCreate");
    (void)flags;
    if (fails == 0)
        *out = fake_new(FAKE_GRAPH, "graph");
    return fake_leave(fails);
}

/* Graphs inside go with the graph they are in. */
static void delete_graph(fake_object *graph)
{
    for (const fake_node *node = graph->nodes; node != NULL; node = node->next)
        if (node->child != NULL)
            delete_graph(node->child);
    fake_delete(graph);
}

FAKE(cuGraphDestroy, (void *handle))
{
    const int fails = fake_enter("cuGraphDestroy");
    fake_object *graph = fake_find(handle, FAKE_GRAPH);
    if (graph != NULL)
        delete_graph(graph);
    return fake_leave(fails);
}

static void set_launch(fake_node *node, const launch *from)
{
    node->function = from->function;
    memcpy(node->grid, from->grid, sizeof node->grid);
    memcpy(node->block, from->block, sizeof node->block);
    fake_take_arguments(from->function, from->arguments, node);
}

FAKE(cuGraphAddKernelNode,
     (void **out, void *handle, void *const *dependencies, size_t count, const void *params))
{
    const int fails = fake_enter("cuGraphAddKernelNode");
    fake_object *graph = fake_find(handle, FAKE_GRAPH);
    const launch *from = params;
    if (fails != 0 || graph == NULL || fake_find(from->function, FAKE_FUNCTION) == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    fake_node *node = add(graph, dependencies, count);
    if (node == NULL)
        return fake_leave(FAKE_INVALID);
    set_launch(node, from);
    *out = node;
    return fake_leave(0);
}

static int set_copy(fake_node *node, const copy *from)
{
    if (from->from.type != 2 || from->to.type != 2 || from->height != 1 || from->depth != 1)
        return FAKE_INVALID;
    node->address[0] = from->from.device;
    node->address[1] = from->to.device;
    node->copy_bytes = from->width;
    return 0;
}

FAKE(cuGraphAddMemcpyNode,
     (void **out, void *handle, void *const *dependencies, size_t count, const void *params, void *context))
{
    const int fails = fake_enter("cuGraphAddMemcpyNode");
    fake_object *graph = fake_find(handle, FAKE_GRAPH);
    if (fails != 0 || graph == NULL || context == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    fake_node *node = add(graph, dependencies, count);
    *out = node;
    return fake_leave(node == NULL ? FAKE_INVALID : set_copy(node, params));
}

FAKE(cuGraphAddEmptyNode, (void **out, void *handle, void *const *dependencies, size_t count))
{
    const int fails = fake_enter("cuGraphAddEmptyNode");
    fake_object *graph = fake_find(handle, FAKE_GRAPH);
    if (fails != 0 || graph == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    *out = add(graph, dependencies, count);
    return fake_leave(*out == NULL ? FAKE_INVALID : 0);
}

FAKE(cuGraphAddChildGraphNode,
     (void **out, void *handle, void *const *dependencies, size_t count, void *child))
{
    const int fails = fake_enter("cuGraphAddChildGraphNode");
    fake_object *graph = fake_find(handle, FAKE_GRAPH), *inside = fake_find(child, FAKE_GRAPH);
    if (fails != 0 || graph == NULL || inside == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    fake_node *node = add(graph, dependencies, count);
    if (node == NULL)
        return fake_leave(FAKE_INVALID);
    node->child = copy_graph(inside, FAKE_GRAPH);
    *out = node;
    return fake_leave(0);
}

/* Edges behind which kernels wait by themselves; both ends are kernels, and the later one is added last. */
FAKE(cuGraphAddDependencies_v2,
     (void *handle, void *const *from, void *const *to, const unsigned char (*edge)[8], size_t count))
{
    const int fails = fake_enter("cuGraphAddDependencies_v2");
    fake_object *graph = fake_find(handle, FAKE_GRAPH);
    if (fails != 0 || graph == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    for (size_t i = 0; i < count; i++) {
        const fake_node *earlier = from[i];
        fake_node *later = to[i];
        if (earlier->graph != graph || later->graph != graph || earlier->function == NULL ||
            later->function == NULL || earlier->number >= later->number ||
            later->wait_count == FAKE_NODE_WAITS || edge[i][0] != 1 || edge[i][1] != 0 || edge[i][2] != 1)
            return fake_leave(FAKE_INVALID);
        later->wait[later->wait_count++] = earlier->number;
        later->early++;
    }
    return fake_leave(0);
}

static void remember_edges(const fake_object *graph)
{
    last_count = last_early = 0;
    last_nodes = graph->node_count;
    for (const fake_node *node = graph->nodes; node != NULL; node = node->next) {
        last_early += node->early;
        for (uint32_t i = 0; i < node->wait_count && last_count < 4096; i++, last_count++) {
            last_edges[last_count][0] = node->wait[i];
            last_edges[last_count][1] = node->number;
        }
    }
}

uint32_t fake_early_edges(void)
{
    fake_enter("fake_early_edges");
    const uint32_t count = last_early;
    fake_leave(0);
    return count;
}

uint32_t fake_edges(uint32_t (*out)[2], uint32_t capacity, uint32_t *out_nodes)
{
    fake_enter("fake_edges");
    for (uint32_t i = 0; i < capacity && i < last_count; i++)
        memcpy(out[i], last_edges[i], sizeof last_edges[i]);
    *out_nodes = last_nodes;
    const uint32_t count = last_count;
    fake_leave(0);
    return count;
}

FAKE(cuGraphInstantiateWithFlags, (void **out, void *handle, unsigned long long flags))
{
    const int fails = fake_enter("cuGraphInstantiateWithFlags");
    fake_object *graph = fake_find(handle, FAKE_GRAPH);
    if (fails != 0 || graph == NULL || flags != 0)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    fake_object *executable = copy_graph(graph, FAKE_EXECUTABLE);
    for (fake_node *node = executable->nodes; node != NULL; node = node->next)
        if (node->child != NULL)
            node->child = copy_graph(node->child, FAKE_GRAPH);
    executable->parent = graph;
    remember_edges(graph);
    fake_count()->instantiated++;
    *out = executable;
    return fake_leave(0);
}

FAKE(cuGraphExecDestroy, (void *handle))
{
    const int fails = fake_enter("cuGraphExecDestroy");
    fake_object *executable = fake_find(handle, FAKE_EXECUTABLE);
    if (executable != NULL)
        delete_graph(executable);
    return fake_leave(fails);
}

/* The twin of a graph's node in what was made ready from it. */
static fake_node *twin_of(const fake_object *executable, const fake_node *node)
{
    for (fake_node *twin = executable->nodes; twin != NULL; twin = twin->next)
        if (twin->number == node->number && executable->parent == node->graph)
            return twin;
    fake_complain("a node is not in the graph that was made ready");
    return NULL;
}

FAKE(cuGraphExecKernelNodeSetParams, (void *handle, void *node, const void *params))
{
    const int fails = fake_enter("cuGraphExecKernelNodeSetParams");
    fake_object *executable = fake_find(handle, FAKE_EXECUTABLE);
    fake_node *twin = fails != 0 || executable == NULL ? NULL : twin_of(executable, node);
    if (twin == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    set_launch(twin, params);
    fake_count()->updates++;
    return fake_leave(0);
}

FAKE(cuGraphExecMemcpyNodeSetParams, (void *handle, void *node, const void *params, void *context))
{
    const int fails = fake_enter("cuGraphExecMemcpyNodeSetParams");
    fake_object *executable = fake_find(handle, FAKE_EXECUTABLE);
    fake_node *twin = fails != 0 || executable == NULL ? NULL : twin_of(executable, node);
    if (twin == NULL || context == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    fake_count()->updates++;
    return fake_leave(set_copy(twin, params));
}

FAKE(cuGraphExecChildGraphNodeSetParams, (void *handle, void *node, void *child))
{
    const int fails = fake_enter("cuGraphExecChildGraphNodeSetParams");
    fake_object *executable = fake_find(handle, FAKE_EXECUTABLE), *inside = fake_find(child, FAKE_GRAPH);
    fake_node *twin = fails != 0 || executable == NULL ? NULL : twin_of(executable, node);
    if (twin == NULL || inside == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    delete_graph(twin->child);
    twin->child = copy_graph(inside, FAKE_GRAPH);
    fake_count()->updates++;
    return fake_leave(0);
}

static int run_nodes(const fake_object *graph)
{
    int result = 0;
    for (const fake_node *node = graph->nodes; node != NULL && result == 0; node = node->next) {
        if (node->child != NULL)
            result = run_nodes(node->child);
        else if (node->function != NULL)
            result = fake_run(node->function, node->grid, node->block, 0, node->address, node->params);
        else if (node->copy_bytes != 0 && (!fake_inside(node->address[0], node->copy_bytes) ||
                                           !fake_inside(node->address[1], node->copy_bytes)))
            result = FAKE_ILLEGAL_ADDRESS;
        else if (node->copy_bytes != 0)
            memmove((void *)(uintptr_t)node->address[1], (const void *)(uintptr_t)node->address[0],
                    node->copy_bytes);
    }
    return result;
}

FAKE(cuGraphLaunch, (void *handle, void *stream))
{
    const int fails = fake_enter("cuGraphLaunch");
    const fake_object *executable = fake_find(handle, FAKE_EXECUTABLE);
    if (fails != 0 || executable == NULL || fake_find(stream, FAKE_STREAM) == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    fake_count()->graphs++;
    return fake_leave(run_nodes(executable));
}

FAKE(cuStreamBeginCapture_v2, (void *handle, int mode))
{
    const int fails = fake_enter("cuStreamBeginCapture");
    fake_object *stream = fake_find(handle, FAKE_STREAM);
    if (fails != 0 || stream == NULL || mode != 2)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    stream->capture = fake_new(FAKE_GRAPH, "captured");
    return fake_leave(0);
}

/* A capture that fails leaves nothing behind. */
FAKE(cuStreamEndCapture, (void *handle, void **out))
{
    const int fails = fake_enter("cuStreamEndCapture");
    fake_object *stream = fake_find(handle, FAKE_STREAM);
    if (stream == NULL || stream->capture == NULL)
        return fake_leave(FAKE_INVALID);
    *out = fails != 0 ? NULL : stream->capture;
    if (fails != 0)
        fake_delete(stream->capture);
    stream->capture = NULL;
    return fake_leave(fails);
}
#endif
