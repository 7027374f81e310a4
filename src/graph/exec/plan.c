/*
 * plan.c - plans: a graph of known sizes, and programs over buffers.
 */
#include "graph/exec/plan.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "device/objects.h"

const mica__link *mica__link_of(const mica_executable *executable, mica_tensor leaf)
{
    for (uint32_t i = 0; i < executable->link_count; i++)
        if (executable->link[i].leaf == leaf)
            return &executable->link[i];
    return NULL;
}

mica_status mica__state_memory(mica_executable *executable, mica_tensor leaf, const mica__type *type)
{
    mica__held *held = &executable->held[leaf];
    if (held->buffer != NULL)
        return MICA_OK;
    held->ours = true;
    return mica_buffer_alloc(mica__device_of(executable, executable->graph, leaf), type->dtype, type->ndim,
                             type->shape, &held->buffer);
}

/* ---- weights ---- */

static mica_status held_buffer(void *context, const char *name, mica_buffer **out)
{
    mica_executable *executable = context;
    const mica_tensor leaf = mica__names_find(executable->graph, &executable->graph->leaves, name);
    if (leaf == 0 || executable->held[leaf].buffer == NULL)
        return mica__fail(MICA_ERR_STATE, "executable: parameter '%s' was not set", name);
    *out = mica_buffer_retain(executable->held[leaf].buffer);
    return MICA_OK;
}

/* What follows from parameters alone is made ready before the first plan, and again when one of them was set. */
static mica_status prepare(mica_executable *executable)
{
    mica__prepared *prepared = &executable->prepared;
    const bool all = (executable->options.flags & (MICA_COMPILE_TRAINING | MICA_COMPILE_AS_WRITTEN)) == 0;
    if (prepared->main == NULL) {
        uint8_t *changes = mica__calloc(executable->graph->tensor_count, 1);
        if (changes == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "executable: no memory");
        for (uint32_t i = 0; i < executable->link_count; i++)
            changes[executable->link[i].leaf] = 1;
        const mica_status status = mica__prepare_part(executable->graph, changes, all, prepared);
        mica__free(changes);
        MICA__TRY(status);
    }
    return mica__prepare_run(prepared, executable->device, executable->device_count, held_buffer, executable);
}

static mica_status pack_weights(mica_executable *executable)
{
    const mica_graph *graph = executable->graph;
    if ((executable->options.flags & MICA_COMPILE_TRAINING) != 0)
        return MICA_OK;
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const mica_tensor leaf = graph->parameters[i];
        mica__held *held = &executable->held[leaf];
        if (held->buffer == NULL || held->packed != NULL || mica__link_of(executable, leaf) != NULL)
            continue;
        MICA__TRY(mica__prepare_weight(graph, leaf, held->buffer, held->ours, &held->packed));
        if (held->packed == held->buffer) { /* it may be written to without another plan */
            mica_buffer_release(held->packed);
            held->packed = NULL;
        }
    }
    return MICA_OK;
}

/* ---- instances ---- */

static void release_instance(const mica_executable *executable, const mica_graph *graph,
                             mica__instance *instance)
{
    mica__schedule_release(instance->schedule);
    for (uint32_t t = 0; instance->leaf != NULL && t < graph->tensor_count; t++)
        mica_buffer_release(instance->leaf[t]);
    for (uint32_t i = 0; instance->mine != NULL && i < graph->input_count; i++)
        mica_buffer_release(instance->mine[i]);
    for (uint32_t i = 0; instance->output != NULL && i < graph->outputs.count; i++)
        mica_buffer_release(instance->output[i]);
    mica__free(instance->leaf);
    mica__free(instance->output);
    mica__free(instance->mine);
    for (uint32_t p = 0; instance->station != NULL && p < executable->device_count; p++) {
        mica_arena_release(instance->station[p].arena);
        mica_queue_release(instance->station[p].queue);
    }
    mica__free(instance->station);
    memset(instance, 0, sizeof *instance);
}

/* The leaf of the executable's graph that a leaf of the plan's graph is; 0: it is prepared. */
static mica_tensor leaf_of(const mica_executable *executable, const mica_graph *graph, mica_tensor tensor)
{
    const mica__node *node = mica__node_of(graph, tensor);
    const mica__leaf_data *data = node->data;
    return mica__names_find(executable->graph, &executable->graph->leaves, graph->text + data->name);
}

static mica_status constant_leaf(const mica_executable *executable, const mica_graph *graph,
                                 mica_tensor tensor, mica_buffer **out)
{
    const mica__blob *blob = ((const mica__constant_data *)mica__node_of(graph, tensor)->data)->blob;
    mica_buffer *buffer = NULL;
    MICA__TRY(mica__buffer_of(mica__device_of(executable, graph, tensor), graph, tensor, &buffer));
    mica_status status = mica__buffer_put(buffer, 0, blob->data, blob->bytes);
    if (status == MICA_OK && (executable->options.flags & MICA_COMPILE_AS_WRITTEN) == 0)
        status = mica__prepare_weight(graph, tensor, buffer, true, out);
    else if (status == MICA_OK)
        *out = mica_buffer_retain(buffer);
    mica_buffer_release(buffer);
    return status;
}

static bool is_used(const mica_graph *graph, mica_tensor tensor)
{
    bool used = false;
    for (uint32_t i = 0; i < graph->list_count && !used; i++)
        used = graph->list[i] == tensor && graph->node[graph->tensor[tensor].node].outputs != i;
    for (uint32_t i = 0; i < graph->outputs.count && !used; i++)
        used = graph->outputs.list[i].tensor == tensor;
    return used;
}

static mica_status take_leaf(mica_executable *executable, const mica_graph *graph, mica_tensor tensor,
                             const mica__instance *first, mica_buffer **out)
{
    const mica__node *node = mica__node_of(graph, tensor);
    if (node->kind == MICA_NODE_CONSTANT && first != NULL) {
        *out = mica_buffer_retain(first->leaf[tensor]);
        return MICA_OK;
    }
    if (node->kind == MICA_NODE_CONSTANT)
        return constant_leaf(executable, graph, tensor, out);
    const mica_tensor leaf = leaf_of(executable, graph, tensor);
    const char *name = graph->text + ((const mica__leaf_data *)node->data)->name;
    if (leaf == 0) {
        const uint32_t at = mica__prepare_index(&executable->prepared, name);
        mica_buffer *packed = executable->prepared.packed[at];
        *out = mica_buffer_retain(packed != NULL ? packed : executable->prepared.ready[at]);
        return MICA_OK;
    }
    if (node->kind == MICA_NODE_PARAMETER && executable->held[leaf].buffer == NULL &&
        mica__link_of(executable, leaf) == NULL && !is_used(graph, tensor)) {
        *out = NULL; /* only what is prepared needs it */
        return MICA_OK;
    }
    if (mica__link_of(executable, leaf) != NULL)
        MICA__TRY(mica__state_memory(executable, leaf, mica__type_of(graph, tensor)));
    else if (node->kind == MICA_NODE_INPUT)
        return mica__buffer_of(mica__device_of(executable, graph, tensor), graph, tensor, out);
    mica__held *held = &executable->held[leaf];
    if (held->buffer == NULL)
        return mica__fail(MICA_ERR_STATE, "executable: parameter '%s' was not set", name);
    *out = mica_buffer_retain(held->packed != NULL ? held->packed : held->buffer);
    return MICA_OK;
}

/* A queue of its own where the device has several, so that runs of others do not stand before its own, and an arena. */
static mica_status take_stations(const mica_executable *executable, mica__instance *instance)
{
    instance->station = mica__calloc(executable->device_count, sizeof *instance->station);
    if (instance->station == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "executable: no memory for a run");
    for (uint32_t p = 0; p < executable->device_count; p++) {
        mica__station *station = &instance->station[p];
        station->device = executable->device[p];
        const mica_status status = mica_queue_create(station->device, &station->queue);
        if (status != MICA_OK && status != MICA_ERR_UNSUPPORTED)
            return status;
        if (executable->options.mode == MICA_MODE_COMPILED)
            MICA__TRY(mica_arena_create(station->device, &station->arena));
    }
    return MICA_OK;
}

static mica_status take_leaves(mica_executable *executable, const mica__plan_of *plan,
                               mica__instance *instance)
{
    const mica_graph *graph = plan->graph;
    const mica__instance *first = instance == plan->instance ? NULL : plan->instance;
    for (mica_tensor t = 1; t < graph->tensor_count; t++)
        if (mica__is_leaf(mica__node_of(graph, t)))
            MICA__TRY(take_leaf(executable, graph, t, first, &instance->leaf[t]));
    for (uint32_t i = 0; i < graph->input_count; i++)
        if (mica__link_of(executable, leaf_of(executable, graph, graph->inputs[i])) == NULL)
            instance->mine[i] = mica_buffer_retain(instance->leaf[graph->inputs[i]]);
    return MICA_OK;
}

/* Memory of outputs that are no states. */
static mica_status take_outputs(const mica_executable *executable, const mica_graph *graph,
                                mica__instance *instance)
{
    for (uint32_t i = 0; i < graph->outputs.count; i++) {
        const mica_tensor tensor = graph->outputs.list[i].tensor;
        bool linked = false;
        for (uint32_t l = 0; l < executable->link_count; l++)
            linked |= executable->link[l].output == i;
        if (!linked)
            MICA__TRY(mica__buffer_of(mica__device_of(executable, graph, tensor), graph, tensor,
                                      &instance->output[i]));
    }
    return MICA_OK;
}

/* Leaves have other numbers in the plan's graph, but the same names. */
static mica_status take_links(const mica_executable *executable, const mica_graph *graph, mica__link **out)
{
    mica__link *links = *out = mica__alloc((executable->link_count + 1) * sizeof *links);
    if (links == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "executable: no memory for states");
    for (uint32_t l = 0; l < executable->link_count; l++) {
        const mica__leaf_data *leaf = mica__node_of(executable->graph, executable->link[l].leaf)->data;
        links[l] = (mica__link){
            .output = executable->link[l].output,
            .leaf = mica__names_find(graph, &graph->leaves, executable->graph->text + leaf->name)};
    }
    return MICA_OK;
}

static mica_status make_instance(mica_executable *executable, mica__plan_of *plan, mica__instance *instance)
{
    const mica_graph *graph = plan->graph;
    instance->leaf = mica__calloc(graph->tensor_count, sizeof *instance->leaf);
    instance->output = mica__calloc(graph->outputs.count + 1, sizeof *instance->output);
    instance->mine = mica__calloc(graph->input_count + 1, sizeof *instance->mine);
    if (instance->leaf == NULL || instance->output == NULL || instance->mine == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "executable: no memory for a run");
    MICA__TRY(take_stations(executable, instance));
    MICA__TRY(take_leaves(executable, plan, instance));
    mica__link *links = NULL;
    mica_status status = take_outputs(executable, graph, instance);
    if (status == MICA_OK)
        status = take_links(executable, graph, &links);
    const mica__schedule_desc desc = {.graph = graph,
                                      .station = instance->station,
                                      .station_count = executable->device_count,
                                      .mode = executable->options.mode,
                                      .most_rounds = executable->options.most_rounds,
                                      .leaf = instance->leaf,
                                      .output = instance->output,
                                      .link = links,
                                      .link_count = executable->link_count};
    if (status == MICA_OK)
        status = mica__schedule_create(&desc, &instance->schedule);
    mica__free(links);
    return status;
}

/* ---- plans ---- */

void mica__plan_release(const mica_executable *executable, mica__plan_of *plan)
{
    if (plan == NULL)
        return;
    for (uint32_t i = 0; i < plan->instance_count; i++)
        release_instance(executable, plan->graph, &plan->instance[i]);
    mica_graph_release(plan->graph);
    mica__free(plan->types);
    mica__free(plan);
}

void mica__plans_drop(mica_executable *executable)
{
    executable->last = NULL;
    for (uint32_t i = 0; i < executable->plan_count; i++) {
        mica__plan_release(executable, executable->plan[i]);
        executable->plan[i] = NULL;
    }
    executable->plan_count = 0;
}

void mica__plans_forget(mica_executable *executable)
{
    mica__plans_drop(executable);
    mica__prepare_release(&executable->prepared);
}

static bool same_types(const mica_executable *executable, const mica__type *a, const mica__type *b)
{
    for (uint32_t i = 0; i < executable->graph->input_count; i++)
        if (a[i].ndim != b[i].ndim || memcmp(a[i].shape, b[i].shape, a[i].ndim * sizeof a[i].shape[0]) != 0)
            return false;
    return true;
}

static void count_memory(mica_executable *executable, const mica__plan_of *plan)
{
    mica_executable_stats *stats = &executable->stats;
    const mica__instance *instance = &plan->instance[0];
    stats->records = stats->dispatches = stats->arena_bytes = stats->arena_bound = 0;
    stats->parameter_bytes = stats->io_bytes = 0;
    mica__schedule_count(instance->schedule, stats);
    for (mica_tensor t = 1; t < plan->graph->tensor_count; t++)
        if (instance->leaf[t] != NULL)
            *(mica__node_of(plan->graph, t)->kind == MICA_NODE_INPUT ? &stats->io_bytes
                                                                     : &stats->parameter_bytes) +=
                instance->leaf[t]->storage == NULL ? 0 : instance->leaf[t]->storage->bytes;
    for (uint32_t i = 0; i < plan->graph->outputs.count; i++)
        if (instance->output[i] != NULL)
            stats->io_bytes += instance->output[i]->length;
}

static mica_status make_plan(mica_executable *executable, const mica__type *types, mica__plan_of **out)
{
    const uint64_t begin = mica__clock_ns();
    const uint32_t inputs = executable->graph->input_count;
    mica__plan_of *plan = mica__calloc(1, sizeof *plan);
    if (plan == NULL || (plan->types = mica__alloc((inputs + 1) * sizeof *types)) == NULL) {
        mica__free(plan);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "executable: no memory for a plan");
    }
    memcpy(plan->types, types, inputs * sizeof *types);
    plan->instance_count = executable->link_count != 0
                               ? 1
                               : executable->options.in_flight; /* runs over a state follow one another */
    mica_status status = prepare(executable);
    if (status == MICA_OK)
        status = mica__graph_concrete(executable->prepared.main, types, &plan->graph);
    if (status == MICA_OK)
        status = pack_weights(executable);
    if (status == MICA_OK)
        status = make_instance(executable, plan, &plan->instance[0]);
    if (status != MICA_OK) {
        if (plan->graph == NULL)
            plan->instance_count = 0;
        mica__plan_release(executable, plan);
        return status;
    }
    executable->stats.plans++;
    executable->stats.compile_ns = mica__clock_ns() - begin;
    count_memory(executable, plan);
    *out = plan;
    return MICA_OK;
}

static bool in_flight(const mica__plan_of *plan)
{
    bool runs = false;
    for (uint32_t i = 0; i < plan->instance_count; i++)
        runs |= plan->instance[i].run != NULL;
    return runs;
}

/* Room for one more: the plan that was not used for longest goes, unless a run of it is waited for. */
static void make_place(mica_executable *executable)
{
    uint32_t oldest = UINT32_MAX;
    for (uint32_t i = 0; i < executable->plan_count; i++)
        if (!in_flight(executable->plan[i]) &&
            (oldest == UINT32_MAX || executable->plan[i]->used < executable->plan[oldest]->used))
            oldest = i;
    if (executable->plan_count < executable->options.signatures || oldest == UINT32_MAX)
        return;
    executable->last = NULL;
    mica__plan_release(executable, executable->plan[oldest]);
    executable->plan[oldest] = executable->plan[--executable->plan_count];
}

mica_status mica__plan_find(mica_executable *executable, const mica__type *types, mica__plan_of **out)
{
    executable->runs++;
    if (executable->prepared.stale && executable->plan_count != 0) {
        uint32_t packed = 0; /* packed ones are others then */
        for (uint32_t i = 0; i < executable->prepared.count; i++)
            packed += executable->prepared.packed[i] != NULL;
        if (packed != 0)
            mica__plans_drop(executable);
        MICA__TRY(prepare(executable));
    }
    for (uint32_t i = 0; i < executable->plan_count; i++)
        if (same_types(executable, executable->plan[i]->types, types)) {
            *out = executable->plan[i];
            (*out)->used = executable->runs;
            return MICA_OK;
        }
    make_place(executable);
    if (executable->plan_count == executable->options.signatures + MICA__MOST_IN_FLIGHT)
        return mica__fail(MICA_ERR_STATE, "executable: runs of too many shapes are in flight");
    MICA__TRY(make_plan(executable, types, out));
    (*out)->used = executable->runs;
    executable->plan[executable->plan_count++] = *out;
    return MICA_OK;
}

/* The next instance of a plan, made when it is first needed. */
mica_status mica__plan_instance(mica_executable *executable, mica__plan_of *plan, mica__instance **out)
{
    mica__instance *instance = &plan->instance[plan->next];
    plan->next = (plan->next + 1) % plan->instance_count;
    *out = instance;
    if (instance->schedule != NULL)
        return MICA_OK;
    const mica_status status = make_instance(executable, plan, instance);
    if (status != MICA_OK)
        release_instance(executable, plan->graph, instance);
    return status;
}
