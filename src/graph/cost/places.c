/*
 * places.c - which nodes of a graph belong to which device, so that it is done first.
 *
 * What is placed are units: the kernels of the cost model. A placement is judged by one simulation: units run in order, each on its device, and wait for what crosses.
 * Candidates are each device alone, the best cut of the order into runs (exact for a chain), and each unit where it is over first.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sort.h"
#include "base/work.h"
#include "device/objects.h"
#include "graph/cost/cost.h"
#include "graph/exec/emit.h"
#include "mica/executable.h"

#define NOBODY UINT32_MAX
#define ATTEMPTS 64 /* times that memory of a device that is full becomes dearer */

typedef struct unit_node {
    uint32_t level, kernel, node;
} unit_node;

typedef struct choice {
    const mica_graph *graph; /* of known sizes */
    const mica_calibration *c;
    const uint64_t *budget; /* by place; NULL: there is no limit */
    uint32_t places, units;
    unit_node *node;       /* in the order of units */
    uint32_t *begin;       /* by unit: its first of `node` */
    uint32_t *unit;        /* by node of the graph; NOBODY: none */
    mica_tensor *shown;    /* by tensor: what a chain of views shows */
    double *ns;            /* by place, by unit */
    double *finish;        /* by unit */
    double *there;         /* by place, by tensor: when it is there; below 0: not asked for yet */
    double *more;          /* by unit: bytes of parameters that no unit before took */
    double *live;          /* by unit: bytes that units before made, and it or one behind takes */
    uint8_t *tried, *best; /* places of units */
    double least;
} choice;

static double bytes_of(const choice *k, mica_tensor tensor)
{
    return (double)mica__type_bytes(mica__type_of(k->graph, tensor));
}

static bool is_kept(const choice *k, mica_tensor tensor)
{
    const mica__node *node = mica__node_of(k->graph, tensor);
    return node->kind == MICA_NODE_PARAMETER || node->kind == MICA_NODE_CONSTANT;
}

/* ---- units ---- */

static int compare_nodes(const void *left, const void *right)
{
    const unit_node *a = left, *b = right;
    if (a->level != b->level)
        return a->level < b->level ? -1 : 1;
    if (a->kernel != b->kernel)
        return a->kernel < b->kernel ? -1 : 1;
    return a->node < b->node ? -1 : a->node > b->node;
}

static mica_status find_units(choice *k, const mica__kernel_of *kernels, const double *ns)
{
    const mica_graph *graph = k->graph;
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        k->unit[n] = NOBODY;
        if (kernels[n].live)
            k->node[count++] = (unit_node){kernels[n].level, kernels[n].first, n};
    }
    MICA__TRY(mica__sort(k->node, count, sizeof *k->node, compare_nodes));
    k->units = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || k->node[i].kernel != k->node[i - 1].kernel)
            k->begin[k->units++] = i;
        k->unit[k->node[i].node] = k->units - 1;
    }
    k->begin[k->units] = count;
    for (uint32_t p = 0; p < k->places; p++)
        for (uint32_t u = 0; u < k->units; u++)
            k->ns[(size_t)p * k->units + u] = ns[(size_t)p * graph->node_count + k->node[k->begin[u]].kernel];
    return MICA_OK;
}

/* Calls visit(k, u, tensor) for what unit u takes of others, once for each time. */
static void each_input(choice *k, uint32_t u,
                       void (*visit)(choice *k, uint32_t u, mica_tensor tensor, void *to), void *to)
{
    const mica_graph *graph = k->graph;
    for (uint32_t i = k->begin[u]; i < k->begin[u + 1]; i++) {
        const mica__node *node = &graph->node[k->node[i].node];
        for (uint32_t j = 0; j < node->input_count; j++) {
            const mica_tensor x = k->shown[mica__node_inputs(graph, node)[j]];
            if (x != 0 && k->unit[graph->tensor[x].node] != u)
                visit(k, u, x, to);
        }
    }
}

/* `there` is room: the last unit that takes a tensor, + 1. */
static void note_use(choice *k, uint32_t u, mica_tensor x, void *to)
{
    (void)to;
    if (is_kept(k, x) && k->there[x] < 0)
        k->more[u] += bytes_of(k, x);
    k->there[x] = u;
}

static void find_lives(choice *k)
{
    const mica_graph *graph = k->graph;
    for (mica_tensor t = 0; t < graph->tensor_count; t++)
        k->there[t] = -1;
    for (uint32_t u = 0; u < k->units; u++)
        each_input(k, u, note_use, NULL);
    for (mica_tensor t = 1; t < graph->tensor_count; t++) {
        const uint32_t from = k->unit[graph->tensor[t].node];
        if (k->there[t] < 0 || is_kept(k, t))
            continue;
        k->live[from == NOBODY ? 0 : from + 1] += bytes_of(k, t); /* units behind the last taker do without */
        k->live[(uint32_t)k->there[t] + 1] -= bytes_of(k, t);
    }
    for (uint32_t u = 1; u <= k->units; u++)
        k->live[u] += k->live[u - 1];
}

/* ---- judging ---- */

static double way(const choice *k, double bytes, uint32_t from, uint32_t to)
{
    return k->c[from].roundtrip + bytes / k->c[from].transfer + bytes / k->c[to].transfer;
}

typedef struct moment {
    double when;
    uint32_t place;
} moment;

/* When an input is at the moment's place, at the latest of all. */
static void wait_for(choice *k, uint32_t u, mica_tensor x, void *to)
{
    moment *m = to;
    double *there = &k->there[(size_t)m->place * k->graph->tensor_count + x];
    const uint32_t from = k->unit[k->graph->tensor[x].node];
    (void)u;
    if (is_kept(k, x))
        return;
    if (*there < 0) {
        const uint32_t place = from == NOBODY ? m->place : k->tried[from];
        *there = from == NOBODY ? 0 : k->finish[from];
        *there += place == m->place ? 0 : way(k, bytes_of(k, x), place, m->place);
    }
    m->when = fmax(m->when, *there);
}

static void forget_times(choice *k)
{
    for (size_t i = 0; i < (size_t)k->graph->tensor_count * k->places; i++)
        k->there[i] = -1;
}

/* Inputs and outputs at the places where they are used, first; a graph input that nobody takes at that of the first unit. */
static void take_inputs(choice *k, double *free)
{
    const mica_graph *graph = k->graph;
    for (uint32_t i = 0; i < graph->input_count; i++) {
        uint32_t place = k->units == 0 ? 0 : k->tried[0];
        bool found = false;
        for (uint32_t u = 0; u < k->units && !found; u++)
            for (uint32_t n = k->begin[u]; n < k->begin[u + 1] && !found; n++) {
                const mica__node *node = &graph->node[k->node[n].node];
                for (uint32_t j = 0; j < node->input_count && !found; j++)
                    found = k->shown[mica__node_inputs(graph, node)[j]] == graph->inputs[i];
                place = found ? k->tried[u] : place;
            }
        free[place] += bytes_of(k, graph->inputs[i]) / k->c[place].transfer;
    }
}

/* The time of the placement in `tried`. */
static double simulate(choice *k)
{
    double free[MICA_GRAPH_PLACES] = {0}, total = 0;
    bool used[MICA_GRAPH_PLACES] = {false};
    const mica_graph *graph = k->graph;
    forget_times(k);
    take_inputs(k, free);
    for (uint32_t u = 0; u < k->units; u++) {
        moment m = {.place = k->tried[u], .when = free[k->tried[u]]};
        each_input(k, u, wait_for, &m);
        free[m.place] = k->finish[u] = m.when + k->ns[(size_t)m.place * k->units + u];
        used[m.place] = true;
    }
    used[k->units == 0 ? 0 : k->tried[0]] = true;
    for (uint32_t i = 0; i < graph->outputs.count; i++) {
        const mica_tensor out = graph->outputs.list[i].tensor;
        const uint32_t from = k->unit[graph->tensor[k->shown[out]].node];
        const uint32_t place = from != NOBODY ? k->tried[from] : k->units == 0 ? 0 : k->tried[0];
        free[place] += bytes_of(k, out) / k->c[place].transfer;
    }
    for (uint32_t p = 0; p < k->places; p++)
        total = used[p] ? fmax(total, free[p] + k->c[p].roundtrip) : total;
    return total;
}

typedef struct tally {
    double kept, now, most;
    uint32_t place;
} tally;

static void keep_input(choice *k, uint32_t u, mica_tensor x, void *to)
{
    tally *m = to;
    double *there = &k->there[(size_t)m->place * k->graph->tensor_count + x];
    (void)u;
    if (*there < 0 && is_kept(k, x))
        m->kept += bytes_of(k, x);
    else if (*there < 0)
        m->now += bytes_of(k, x); /* a copy of another place's, or of the host's: it stays */
    *there = 0;
}

/* What lies at a place at once at most: parameters, what came from elsewhere, and what it made that is still taken, as if each value stayed to the end of the run of units. */
static double memory_of(choice *k, uint32_t place)
{
    tally m = {.place = place};
    forget_times(k);
    for (uint32_t u = 0; u < k->units; u++) {
        if (k->tried[u] != place)
            continue;
        double made = 0;
        for (uint32_t i = k->begin[u]; i < k->begin[u + 1]; i++) {
            const mica__node *node = &k->graph->node[k->node[i].node];
            for (uint32_t o = 0; o < node->output_count; o++) {
                const mica_tensor y = mica__node_outputs(k->graph, node)[o];
                made += y == 0 ? 0 : bytes_of(k, y);
                k->there[(size_t)place * k->graph->tensor_count + y] = 0; /* its own, which `live` has */
            }
        }
        each_input(k, u, keep_input, &m);
        m.most = fmax(m.most, k->live[u] + made);
    }
    return m.kept + m.now + m.most;
}

static bool fits(choice *k, uint8_t *out_full)
{
    bool all = true;
    for (uint32_t p = 0; p < k->places; p++) {
        const bool full = k->budget != NULL && memory_of(k, p) > (double)k->budget[p];
        all = all && !full;
        if (out_full != NULL)
            out_full[p] = full;
    }
    return all;
}

/* Keeps what was tried where it fits and is done before all others. */
static bool judge(choice *k, uint8_t *out_full)
{
    const bool may = fits(k, out_full);
    const double ns = may ? simulate(k) : INFINITY;
    if (ns < k->least) {
        k->least = ns;
        memcpy(k->best, k->tried, k->units);
    }
    return may;
}

/* ---- candidates ---- */

/* Each unit where it is over first, of those before it; parameters take this part of each budget at most, so that there is room for the rest. */
static void greedy(choice *k, double part)
{
    double free[MICA_GRAPH_PLACES] = {0}, held[MICA_GRAPH_PLACES] = {0};
    forget_times(k);
    for (uint32_t u = 0; u < k->units; u++) {
        double least = INFINITY;
        for (uint32_t p = 0; p < k->places; p++) {
            moment m = {.place = p, .when = free[p]};
            each_input(k, u, wait_for, &m);
            const double end = m.when + k->ns[(size_t)p * k->units + u];
            const bool full = k->budget != NULL && held[p] + k->more[u] > part * (double)k->budget[p];
            if (full || !(end < least))
                continue;
            least = end;
            k->tried[u] = (uint8_t)p;
        }
        if (!isfinite(least))
            k->tried[u] = 0;
        const uint32_t place = k->tried[u];
        free[place] = k->finish[u] = isfinite(least) ? least : free[0];
        held[place] += k->more[u];
    }
    (void)judge(k, NULL);
}

/* The cheapest way through the order, where going to another device takes all that is still needed along. `from`: by place and unit, where the way came from. */
static void cut(choice *k, const double *price, uint8_t *from)
{
    double now[MICA_GRAPH_PLACES], next[MICA_GRAPH_PLACES];
    for (uint32_t p = 0; p < k->places; p++)
        now[p] = k->units == 0 ? 0 : k->ns[(size_t)p * k->units] + price[p] * k->more[0];
    for (uint32_t u = 1; u < k->units; u++) {
        for (uint32_t p = 0; p < k->places; p++) {
            next[p] = INFINITY;
            for (uint32_t q = 0; q < k->places; q++) {
                const double ns = now[q] + (q == p ? 0 : way(k, k->live[u], q, p));
                if (!(ns < next[p]))
                    continue;
                next[p] = ns;
                from[(size_t)p * k->units + u] = (uint8_t)q;
            }
            next[p] += k->ns[(size_t)p * k->units + u] + price[p] * k->more[u];
        }
        memcpy(now, next, sizeof now);
    }
    uint8_t at = 0;
    for (uint32_t p = 1; p < k->places; p++)
        at = now[p] < now[at] ? (uint8_t)p : at;
    for (uint32_t u = k->units; u-- > 0; at = from[(size_t)at * k->units + u])
        k->tried[u] = at;
}

static mica_status cuts(choice *k)
{
    double price[MICA_GRAPH_PLACES] = {0};
    uint8_t full[MICA_GRAPH_PLACES];
    uint8_t *from = mica__calloc((size_t)k->places * k->units + 1, 1);
    if (from == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u units", k->units);
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < ATTEMPTS && status == MICA_OK; i++) {
        status = mica__spend(1 + k->units);
        cut(k, price, from);
        if (judge(k, full))
            break;
        for (uint32_t p = 0; p < k->places; p++)
            price[p] = !full[p] ? price[p] : price[p] == 0 ? 1e-4 / k->c[p].memory : price[p] * 2;
    }
    mica__free(from);
    return status;
}

static mica_status choose(choice *k)
{
    k->least = INFINITY;
    for (uint32_t p = 0; p < k->places; p++) {
        memset(k->tried, (int)p, k->units);
        (void)judge(k, NULL);
    }
    for (int eighths = 8; eighths > 0 && (eighths == 8 || k->budget != NULL); eighths--)
        greedy(k, eighths / 8.0);
    MICA__TRY(cuts(k));
    if (isfinite(k->least))
        return MICA_OK;
    memset(k->tried, 0, k->units);
    return mica__fail(MICA_ERR_BUDGET,
                      "no placement was found that the devices have memory for: on one it takes %.0f bytes",
                      memory_of(k, 0));
}

/* ---- graphs ---- */

/* Places of nodes; of those in bodies that of the node. */
static void set_places(mica_graph *graph, const choice *k, const uint32_t *begins)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        uint32_t unit = NOBODY;
        for (uint32_t at = begins[n]; at < begins[n + 1]; at++)
            unit = k->unit[at] != NOBODY ? k->unit[at] : unit;
        graph->node[n].place = unit == NOBODY ? 0 : k->best[unit];
    }
    for (uint32_t n = graph->node_count; n-- > 0;) { /* leaves and views where they are used first */
        const mica__node *node = &graph->node[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            mica__node *before = &graph->node[graph->tensor[mica__node_inputs(graph, node)[i]].node];
            if (mica__node_inputs(graph, node)[i] != 0 && (mica__is_leaf(before) || mica__is_view(before)))
                before->place = node->place;
        }
    }
}

static void clear_places(mica_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        mica__node *node = &graph->node[n];
        node->place = 0;
        if (node->kind < MICA_NODE_CALL || node->kind > MICA_NODE_SCAN)
            continue;
        mica__body_data *data = node->data;
        for (uint32_t i = 0; i < 2 && data->body[i] != NULL; i++)
            clear_places(data->body[i]);
    }
    graph->place = 0;
}

static void look_through_views(choice *k)
{
    const mica_graph *graph = k->graph;
    for (mica_tensor t = 1; t < graph->tensor_count; t++) {
        const mica__node *node = mica__node_of(graph, t);
        k->shown[t] = mica__is_view(node) ? k->shown[*mica__node_inputs(graph, node)] : t;
    }
}

static mica_status choose_of(mica_graph *given, choice *k, const uint32_t *begins)
{
    const mica_graph *graph = k->graph;
    const size_t nodes = graph->node_count + 1u, tensors = graph->tensor_count, places = k->places;
    mica__kernel_of *kernels = mica__calloc(nodes, sizeof *kernels);
    double *ns = mica__calloc(nodes * places, sizeof *ns);
    k->node = mica__alloc(nodes * sizeof *k->node);
    k->begin = mica__alloc(nodes * sizeof *k->begin);
    k->unit = mica__alloc(nodes * sizeof *k->unit);
    k->shown = mica__calloc(tensors, sizeof *k->shown);
    k->ns = mica__alloc(nodes * places * sizeof *k->ns);
    k->finish = mica__calloc(nodes, sizeof *k->finish);
    k->there = mica__alloc(tensors * places * sizeof *k->there);
    k->more = mica__calloc(nodes, sizeof *k->more);
    k->live = mica__calloc(nodes + 1, sizeof *k->live);
    k->tried = mica__calloc(nodes, 1);
    k->best = mica__calloc(nodes, 1);
    void *const lists[] = {kernels,   ns,       k->node, k->begin, k->unit,  k->shown, k->ns,
                           k->finish, k->there, k->more, k->live,  k->tried, k->best};
    mica_status status = MICA_OK;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (lists[i] == NULL)
            status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u nodes", graph->node_count);
    for (uint32_t p = 0; p < k->places && status == MICA_OK; p++)
        status = mica__cost_nodes(graph, &k->c[p], ns + p * graph->node_count, kernels);
    if (status == MICA_OK)
        status = find_units(k, kernels, ns);
    if (status == MICA_OK) {
        look_through_views(k);
        find_lives(k);
        status = choose(k);
    }
    if (status == MICA_OK)
        set_places(given, k, begins);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        mica__free(lists[i]);
    return status;
}

static mica_status choose_places(mica_graph *graph, choice *k)
{
    mica_graph *concrete = NULL;
    double unused = 0;
    clear_places(graph);
    for (uint32_t p = 0; p < k->places; p++) /* figures, inputs */
        MICA__TRY(mica_graph_cost(graph, &k->c[p], &unused));
    mica__type *types = mica__alloc((graph->input_count + 1u) * sizeof *types);
    uint32_t *begins = mica__alloc((graph->node_count + 1u) * sizeof *begins);
    mica_status status = types == NULL || begins == NULL
                             ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u nodes", graph->node_count)
                             : MICA_OK;
    for (uint32_t i = 0; i < graph->input_count && status == MICA_OK; i++)
        types[i] = *mica__type_of(graph, graph->inputs[i]);
    if (status == MICA_OK)
        status = mica__graph_concrete_nodes(graph, types, begins, &concrete);
    k->graph = concrete;
    if (status == MICA_OK)
        status = choose_of(graph, k, begins);
    mica_graph_release(concrete);
    mica__free(types);
    mica__free(begins);
    return status;
}

mica_status mica_graph_choose_places(mica_graph *graph, const mica_calibration *calibrations,
                                     const uint64_t *budgets, uint32_t count, double *out_ns)
{
    mica__call call;
    choice k = {.c = calibrations, .budget = budgets, .places = count};
    if (out_ns != NULL)
        *out_ns = 0;
    if (graph == NULL || calibrations == NULL || count == 0 || count > MICA_GRAPH_PLACES)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_choose_places: %s",
                          graph == NULL          ? "graph is NULL"
                          : calibrations == NULL ? "calibrations is NULL"
                          : count == 0           ? "count is 0: there is nothing to choose from"
                                                 : "count is over MICA_GRAPH_PLACES");
    MICA__TRY(mica_graph_status(graph));
    mica__call_begin(&call, "graph_choose_places");
    const mica_status status = choose_places(graph, &k);
    if (status == MICA_OK && out_ns != NULL)
        *out_ns = k.least;
    return mica__call_end(&call, status);
}

/* ---- devices ---- */

/* Its figures, and what it has free. UNSUPPORTED where it does not serve the graph. */
static mica_status ask_device(const mica_graph *graph, mica_device *device, mica_calibration *out,
                              uint64_t *out_free)
{
    mica_executable *executable = NULL;
    mica_device_memory memory;
    MICA__TRY(mica_graph_compile(graph, device, NULL, &executable));
    mica_executable_release(executable);
    MICA__TRY(mica_device_get_memory(device, &memory));
    const uint64_t left =
        memory.budget_bytes > memory.owned_bytes ? memory.budget_bytes - memory.owned_bytes : 0;
    *out_free = memory.budget_bytes != 0 && left < memory.free_bytes ? left : memory.free_bytes;
    return mica_device_calibration(device, 0, out);
}

mica_status mica_graph_choose_device_places(mica_graph *graph, mica_device *const *devices, uint32_t count,
                                            double *out_ns)
{
    mica_calibration c[MICA_GRAPH_PLACES];
    uint64_t budgets[MICA_GRAPH_PLACES];
    mica__call call;
    if (out_ns != NULL)
        *out_ns = 0;
    if (graph == NULL || devices == NULL || count == 0 || count > MICA_GRAPH_PLACES)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_choose_device_places: %s",
                          graph == NULL     ? "graph is NULL"
                          : devices == NULL ? "devices is NULL"
                          : count == 0      ? "count is 0: there is nothing to choose from"
                                            : "count is over MICA_GRAPH_PLACES");
    for (uint32_t i = 0; i < count; i++)
        if (devices[i] == NULL)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_choose_device_places: devices[%u] is NULL",
                              i);
    MICA__TRY(mica_graph_status(graph));
    mica__call_begin(&call, "graph_choose_device_places");
    mica_status status = MICA_OK;
    clear_places(graph);
    for (uint32_t i = 0; i < count && status == MICA_OK; i++) {
        status = ask_device(graph, devices[i], &c[i], &budgets[i]);
        if (status != MICA_OK)
            status =
                mica__fail(status, "device %s: %s", devices[i]->info.properties.id, mica_status_message());
    }
    if (status == MICA_OK)
        status = mica_graph_choose_places(graph, c, budgets, count, out_ns);
    return mica__call_end(&call, status);
}
