/*
 * cuda_graph.c - a list of nodes as a CUDA graph with their true dependencies, and one node on a stream.
 *
 * Within a group (between barriers) a node waits for the nodes it named, less those that one of the others waits for
 * already. A barrier is the one node of a group that nothing waits for, or an empty node behind all of them.
 *
 * A kernel that reads ahead (MICA__BIND_AHEAD) begins while those before it end: its edges from kernels are programmatic. It is
 * over only when they are, so what the others leave out stays true.
 */
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"
#include "base/env.h"

#define MOST_EARLY 4u      /* edges of a node that are programmatic */
#define MOST_REDUCED 8192u /* nodes of a group up to which edges are reduced: a bit for each pair */

bool mica__cuda_has_graphs(const mica__device *device)
{
    const mica__cuda_driver *driver = &device->driver;
    return driver->graph_create != NULL && driver->graph_destroy != NULL && driver->graph_kernel != NULL &&
           driver->graph_copy != NULL && driver->graph_empty != NULL && driver->graph_child != NULL &&
           driver->graph_instantiate != NULL && driver->graph_launch != NULL &&
           driver->executable_destroy != NULL && driver->graph_set_kernel != NULL &&
           driver->graph_set_copy != NULL && driver->graph_set_child != NULL &&
           driver->capture_begin != NULL && driver->capture_end != NULL;
}

/* ---- one node ---- */

static uint64_t *bindings_of(const mica__commands *commands, const mica__cuda_node *node)
{
    return (uint64_t *)(void *)(commands->blob.bytes + node->bindings);
}

/* The argument list: a pointer to each address, then to the parameters. */
static void list_arguments(const mica__commands *commands, const mica__cuda_node *node,
                           void *arguments[MICA__CUDA_ARGUMENTS + 1])
{
    uint64_t *bindings = bindings_of(commands, node);
    for (uint32_t i = 0; i < node->binding_count; i++)
        arguments[i] = &bindings[i];
    arguments[node->binding_count] = commands->blob.bytes + node->params;
}

static mica__cuda_launch describe_launch(const mica__cuda_node *node, void **arguments)
{
    mica__cuda_launch launch = {
        .function = node->kernel->function, .shared = node->shared, .arguments = arguments};
    memcpy(launch.grid, node->grid, sizeof launch.grid);
    memcpy(launch.block, node->block, sizeof launch.block);
    return launch;
}

static uint64_t copy_length(const mica__commands *commands, const mica__cuda_node *node)
{
    uint64_t length;
    memcpy(&length, commands->blob.bytes + node->params, sizeof length);
    return length;
}

static mica__cuda_copy describe_copy(const mica__commands *commands, const mica__cuda_node *node)
{
    const uint64_t *bindings = bindings_of(commands, node);
    mica__cuda_copy copy;
    memset(&copy, 0, sizeof copy);
    copy.from.type = copy.to.type = MICA__CUDA_MEMORY_DEVICE;
    copy.from.device = bindings[0];
    copy.to.device = bindings[1];
    copy.width = (size_t)copy_length(commands, node);
    copy.height = copy.depth = 1;
    return copy;
}

mica_status mica__cuda_launch_node(mica__commands *commands, const mica__cuda_node *node, void *stream)
{
    mica__device *device = commands->device;
    const mica__cuda_driver *driver = &device->driver;
    const uint64_t *bindings = bindings_of(commands, node);
    void *arguments[MICA__CUDA_ARGUMENTS + 1];
    if (node->kernel == NULL)
        return mica__cuda_check(
            device, driver->copy(bindings[1], bindings[0], (size_t)copy_length(commands, node), stream),
            MICA_ERR_SUBMISSION, "copying");
    if (node->kernel->encode != NULL)
        return node->kernel->encode(device, bindings, commands->blob.bytes + node->params, stream);
    list_arguments(commands, node, arguments);
    const int result =
        driver->launch(node->kernel->function, node->grid[0], node->grid[1], node->grid[2], node->block[0],
                       node->block[1], node->block[2], node->shared, stream, arguments, NULL);
    return result == 0 ? MICA_OK : mica__cuda_check(device, result, MICA_ERR_SUBMISSION, node->kernel->name);
}

/* What a built-in kernel does on a stream, as a graph of its own, which the caller destroys. */
static mica_status capture(mica__commands *commands, const mica__cuda_node *node, void **out)
{
    mica__device *device = commands->device;
    const mica__cuda_driver *driver = &device->driver;
    void *stream = NULL;
    *out = NULL;
    int result = driver->stream_create(&stream, MICA__CUDA_STREAM_NON_BLOCKING);
    if (result != 0)
        return mica__cuda_check(device, result, MICA_ERR_OUT_OF_MEMORY, "making a stream");
    mica_status status = mica__cuda_check(device, driver->capture_begin(stream, MICA__CUDA_CAPTURE_RELAXED),
                                          MICA_ERR_UNSUPPORTED, "beginning a capture");
    if (status == MICA_OK) {
        status = mica__cuda_launch_node(commands, node, stream);
        result = driver->capture_end(stream, out);
        if (result != 0)
            *out = NULL;
        if (status == MICA_OK)
            status = mica__cuda_check(device, result, MICA_ERR_UNSUPPORTED, "ending a capture");
        else if (*out != NULL)
            driver->graph_destroy(*out);
    }
    driver->stream_destroy(stream);
    if (status != MICA_OK)
        *out = NULL;
    return status;
}

static mica_status add_child(mica__commands *commands, mica__cuda_node *node, void *const *wait, size_t count)
{
    mica__device *device = commands->device;
    void *child = NULL;
    const mica_status status = capture(commands, node, &child);
    if (status != MICA_OK)
        return status;
    const int result = device->driver.graph_child(&node->handle, commands->graph, wait, count, child);
    device->driver.graph_destroy(child); /* the node has a copy */
    return mica__cuda_check(device, result, MICA_ERR_SUBMISSION, "adding a graph to a graph");
}

/* What a node waits for. */
typedef struct edges {
    void **wait; /* until it is over; as many as the longest list */
    size_t count;
    void *early[MOST_EARLY]; /* the node waits by itself */
    size_t early_count;
} edges;

static mica_status add_early(mica__commands *commands, const mica__cuda_node *node, const edges *e)
{
    mica__cuda_edge edge[MOST_EARLY];
    void *to[MOST_EARLY];
    memset(edge, 0, sizeof edge);
    for (size_t i = 0; i < e->early_count; i++) {
        to[i] = node->handle;
        edge[i].from_port = MICA__CUDA_PORT_PROGRAMMATIC;
        edge[i].type = MICA__CUDA_EDGE_PROGRAMMATIC;
    }
    if (e->early_count == 0)
        return MICA_OK;
    return mica__cuda_check(
        commands->device,
        commands->device->driver.graph_edges(commands->graph, e->early, to, edge, e->early_count),
        MICA_ERR_SUBMISSION, "letting a kernel of a graph start early");
}

static mica_status add_node(mica__commands *commands, mica__cuda_node *node, const edges *e)
{
    void *const *wait = e->wait;
    const size_t count = e->count;
    mica__device *device = commands->device;
    const mica__cuda_driver *driver = &device->driver;
    void *arguments[MICA__CUDA_ARGUMENTS + 1];
    if (node->kernel == NULL) {
        const mica__cuda_copy copy = describe_copy(commands, node);
        return mica__cuda_check(
            device, driver->graph_copy(&node->handle, commands->graph, wait, count, &copy, device->context),
            MICA_ERR_SUBMISSION, "adding a copy to a graph");
    }
    if (node->kernel->encode != NULL)
        return add_child(commands, node, wait, count);
    list_arguments(commands, node, arguments);
    const mica__cuda_launch launch = describe_launch(node, arguments);
    const mica_status status =
        mica__cuda_check(device, driver->graph_kernel(&node->handle, commands->graph, wait, count, &launch),
                         MICA_ERR_SUBMISSION, node->kernel->name);
    return status != MICA_OK ? status : add_early(commands, node, e);
}

bool mica__cuda_graph_update(mica__commands *commands, mica__cuda_node *node)
{
    mica__device *device = commands->device;
    const mica__cuda_driver *driver = &device->driver;
    void *arguments[MICA__CUDA_ARGUMENTS + 1], *child = NULL;
    if (node->kernel == NULL) {
        const mica__cuda_copy copy = describe_copy(commands, node);
        return driver->graph_set_copy(commands->executable, node->handle, &copy, device->context) == 0;
    }
    if (node->kernel->encode == NULL) {
        list_arguments(commands, node, arguments);
        const mica__cuda_launch launch = describe_launch(node, arguments);
        return driver->graph_set_kernel(commands->executable, node->handle, &launch) == 0;
    }
    if (capture(commands, node, &child) != MICA_OK)
        return false;
    const int result = driver->graph_set_child(commands->executable, node->handle, child);
    driver->graph_destroy(child);
    return result == 0;
}

/* ---- edges ---- */

/* A group being added: for each node its ancestors (a bit each) and whether something waits for it. */
typedef struct group {
    uint32_t first, count;
    uint32_t words; /* of a row of bits; 0: too many nodes, edges stay as they are */
    uint64_t *ancestors;
    unsigned char *awaited;
    edges edges; /* of the node being added */
} group;

static bool is_ancestor(const group *g, uint32_t of, uint32_t node)
{
    return (g->ancestors[(size_t)of * g->words + node / 64] >> (node % 64) & 1) != 0;
}

static void inherit(const group *g, uint32_t to, uint32_t from)
{
    uint64_t *row = g->ancestors + (size_t)to * g->words;
    for (uint32_t i = 0; i <= from / 64; i++)
        row[i] |= g->ancestors[(size_t)from * g->words + i];
    row[from / 64] |= (uint64_t)1 << (from % 64);
}

/* What a group waits for: the one kernel, or another node, behind which the group before it ends. */
typedef struct barrier {
    void *handle;
    bool kernel;
} barrier;

static bool is_launch(const mica__cuda_node *node)
{
    return node->kernel != NULL && node->kernel->encode == NULL;
}

/* `earlier` is a kernel or not, and has that handle. */
static void add_edge(const mica__commands *commands, group *g, const mica__cuda_node *node, bool kernel,
                     void *earlier)
{
    edges *e = &g->edges;
    if (node->early && !commands->plain && kernel && e->early_count < MOST_EARLY)
        e->early[e->early_count++] = earlier;
    else
        e->wait[e->count++] = earlier;
}

/* What node `index` of the group waits for. The latest come first: what they wait for is left out. */
static void list_edges(mica__commands *commands, group *g, uint32_t index)
{
    const mica__cuda_node *node = &commands->node[g->first + index];
    g->edges.count = g->edges.early_count = 0;
    if (node->dependency_count == 0)
        return;
    uint32_t *list = commands->dependency + node->first_dependency;
    for (uint32_t i = 1; i < node->dependency_count; i++) { /* nearly sorted already */
        const uint32_t value = list[i];
        uint32_t at = i;
        for (; at > 0 && list[at - 1] < value; at--)
            list[at] = list[at - 1];
        list[at] = value;
    }
    for (uint32_t i = 0; i < node->dependency_count; i++) {
        const uint32_t earlier = list[i] - g->first;
        if ((i > 0 && list[i] == list[i - 1]) || (g->words != 0 && is_ancestor(g, index, earlier)))
            continue;
        if (g->words != 0)
            inherit(g, index, earlier);
        g->awaited[earlier] = 1;
        const mica__cuda_node *before = &commands->node[list[i]];
        add_edge(commands, g, node, is_launch(before), before->handle);
    }
}

static mica_status add_group(mica__commands *commands, group *g, const barrier *gate)
{
    for (uint32_t i = 0; i < g->count; i++) {
        mica__cuda_node *node = &commands->node[g->first + i];
        edges *e = &g->edges;
        list_edges(commands, g, i);
        if (e->count + e->early_count == 0 && gate->handle != NULL)
            add_edge(commands, g, node, gate->kernel, gate->handle);
        const mica_status status = add_node(commands, node, e);
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

/* What the next group waits for. */
static mica_status close_group(mica__commands *commands, const group *g, barrier *gate)
{
    size_t count = 0;
    for (uint32_t i = 0; i < g->count; i++) {
        const mica__cuda_node *node = &commands->node[g->first + i];
        if (g->awaited[i])
            continue;
        g->edges.wait[count++] = node->handle;
        gate->kernel = is_launch(node);
    }
    gate->handle = g->edges.wait[0];
    if (count == 1)
        return MICA_OK;
    gate->kernel = false;
    return mica__cuda_check(
        commands->device,
        commands->device->driver.graph_empty(&gate->handle, commands->graph, g->edges.wait, count),
        MICA_ERR_SUBMISSION, "adding a barrier to a graph");
}

static mica_status build_group(mica__commands *commands, uint32_t first, uint32_t count, barrier *gate)
{
    group g = {.first = first, .count = count, .words = count <= MOST_REDUCED ? (count + 63) / 64 : 0};
    size_t longest = count;
    for (uint32_t i = 0; i < count; i++)
        if (commands->node[first + i].dependency_count > longest)
            longest = commands->node[first + i].dependency_count;
    g.ancestors = mica__calloc((size_t)count * (g.words + 1), sizeof *g.ancestors);
    g.awaited = mica__calloc(count, 1);
    g.edges.wait = mica__calloc(longest + 1, sizeof *g.edges.wait);
    mica_status status = MICA_OK;
    if (g.ancestors == NULL || g.awaited == NULL || g.edges.wait == NULL)
        status =
            mica__fail(MICA_ERR_OUT_OF_MEMORY, "cuda: no host memory to make a graph of %u nodes", count);
    else
        status = add_group(commands, &g, gate);
    if (status == MICA_OK && first + count < commands->node_count)
        status = close_group(commands, &g, gate);
    mica__free(g.ancestors);
    mica__free(g.awaited);
    mica__free(g.edges.wait);
    return status;
}

/* ---- the graph ---- */

void mica__cuda_graph_drop(mica__commands *commands)
{
    const mica__cuda_driver *driver = &commands->device->driver;
    if (commands->executable != NULL)
        driver->executable_destroy(commands->executable);
    if (commands->graph != NULL)
        driver->graph_destroy(commands->graph);
    commands->executable = commands->graph = NULL;
}

static mica_status build(mica__commands *commands)
{
    mica__device *device = commands->device;
    barrier gate = {NULL, false};
    mica_status status = mica__cuda_check(device, device->driver.graph_create(&commands->graph, 0),
                                          MICA_ERR_OUT_OF_MEMORY, "making a graph");
    if (status != MICA_OK) {
        commands->graph = NULL;
        return status;
    }
    for (uint32_t first = 0; first < commands->node_count && status == MICA_OK;) {
        uint32_t end = first + 1;
        while (end < commands->node_count && commands->node[end].group == commands->node[first].group)
            end++;
        status = build_group(commands, first, end - first, &gate);
        first = end;
    }
    if (status != MICA_OK)
        return status;
    const int result = device->driver.graph_instantiate(&commands->executable, commands->graph, 0);
    if (result != 0)
        commands->executable = NULL;
    return mica__cuda_check(device, result, MICA_ERR_SUBMISSION, "making a graph ready");
}

mica_status mica__cuda_graph_build(mica__commands *commands)
{
    mica__cuda_graph_drop(commands);
    if (commands->device->driver.graph_edges == NULL || mica__env_debug(MICA__DEBUG_NOAHEAD))
        commands->plain = true;
    mica_status status = build(commands);
    if (status != MICA_OK && status != MICA_ERR_DEVICE_LOST && commands->early &&
        !commands->plain) { /* a driver may want it simpler */
        mica__cuda_graph_drop(commands);
        commands->plain = true;
        status = build(commands);
    }
    if (status != MICA_OK)
        mica__cuda_graph_drop(commands);
    commands->stale = status != MICA_OK;
    return status;
}
