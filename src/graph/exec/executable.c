/*
 * executable.c - making a graph ready, its parameters and states, and what can be asked of it.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/env.h"
#include "device/objects.h"
#include "graph/custom.h"
#include "graph/exec/plan.h"
#include "graph/exec/transfer.h"
#include "graph/passes/passes.h"
#include "mica/weights.h"

/* ---- making ---- */

mica_status mica__compile_options_take(const mica_compile_options *options, mica_compile_options *out)
{
    MICA__TRY(mica__take_options("graph_compile: options", options, sizeof *out, out));
    MICA__TRY(mica__check_enum("graph_compile: options.mode", (uint32_t)out->mode, MICA_MODE_COMPILED + 1));
    MICA__TRY(mica__check_enum("graph_compile: options.precision", (uint32_t)out->precision,
                               MICA_GRAPH_PRECISION_BF16 + 1));
    MICA__TRY(mica__check_flags("graph_compile: options.flags", out->flags,
                                MICA_COMPILE_AS_WRITTEN | MICA_COMPILE_TRAINING));
    if (out->in_flight > MICA__MOST_IN_FLIGHT || out->signatures > 1024)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "graph_compile: options.in_flight is %u (at most %u), signatures %u (at most 1024)",
                          out->in_flight, MICA__MOST_IN_FLIGHT, out->signatures);
    if (out->mode == MICA_MODE_DEFAULT)
        out->mode = mica__env_get()->mode != 0 ? (mica_graph_mode)mica__env_get()->mode : MICA_MODE_COMPILED;
    if ((out->devices == NULL) != (out->device_count == 0) || out->device_count > MICA_GRAPH_PLACES)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "graph_compile: options.devices is %s and device_count %u (at most %u)",
                          out->devices == NULL ? "NULL" : "a list", out->device_count, MICA_GRAPH_PLACES);
    out->in_flight = out->in_flight == 0 ? 1 : out->in_flight;
    out->signatures = out->signatures == 0 ? 4 : out->signatures;
    out->most_rounds = out->most_rounds == 0 ? 1ull << 20 : out->most_rounds;
    return MICA_OK;
}

/* One device for each place: those of the options, or the one. */
static mica_status take_devices(mica_executable *executable, mica_device *device)
{
    mica_device *const *list = executable->options.devices != NULL ? executable->options.devices : &device;
    const uint32_t count = executable->options.devices != NULL ? executable->options.device_count : 1;
    executable->options.devices = NULL; /* the caller's */
    if (device != NULL && device != list[0])
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "graph_compile: device is neither NULL nor options.devices[0]");
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k <= i; k++)
            if (list[i] == NULL || (k < i && list[i] == list[k]))
                return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_compile: options.devices[%u] is %s", i,
                                  list[i] == NULL ? "NULL" : "there already: a device serves one place");
    executable->device = mica__calloc(count, sizeof(mica_device *));
    if (executable->device == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph_compile: no memory");
    for (uint32_t i = 0; i < count; i++)
        executable->device[executable->device_count++] = mica_device_retain(list[i]);
    return MICA_OK;
}

/* What goes from place to place becomes nodes; `graph` is given back. */
static mica_status cross(mica_executable *executable, mica_graph **graph)
{
    mica_graph *crossed = NULL;
    if (!mica__graph_is_placed(*graph))
        return MICA_OK;
    MICA__TRY(mica__graph_cross(*graph, executable->device_count, &crossed));
    mica_graph_release(*graph);
    *graph = crossed;
    return MICA_OK;
}

static mica_status prepare(mica_executable *executable, const mica_graph *graph)
{
    MICA__TRY(mica_graph_clone(graph, &executable->written));
    const mica__pass_options passes = {.flags = executable->options.flags,
                                       .precision = executable->options.precision};
    MICA__TRY(mica__graph_optimise(graph, &passes, &executable->graph));
    MICA__TRY(cross(executable, &executable->graph));
    MICA__TRY(mica__check_served(executable));
    const mica_graph *behind = executable->graph;
    executable->stats.nodes_in = graph->node_count;
    executable->stats.nodes_out = behind->node_count;
    const size_t plans = (size_t)executable->options.signatures + MICA__MOST_IN_FLIGHT;
    executable->held = mica__calloc(behind->tensor_count, sizeof *executable->held);
    executable->link = mica__calloc(behind->outputs.count + 1, sizeof *executable->link);
    executable->plan = mica__calloc(plans, sizeof(mica__plan_of *));
    if (executable->held == NULL || executable->link == NULL || executable->plan == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph_compile: no memory");
    return MICA_OK;
}

mica_status mica_graph_compile(const mica_graph *graph, mica_device *device,
                               const mica_compile_options *options, mica_executable **out_executable)
{
    if (out_executable == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_compile: out_executable is NULL");
    *out_executable = NULL;
    if (graph == NULL || (device == NULL && (options == NULL || options->device_count == 0)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_compile: %s is NULL",
                          graph == NULL ? "graph" : "device");
    mica_compile_options taken;
    MICA__TRY(mica__compile_options_take(options, &taken));
    MICA__TRY(mica_graph_status(graph));
    if (graph->outputs.count == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_compile: the graph has no outputs");
    MICA__TRY(mica__custom_check_bound(graph));
    mica_executable *executable = mica__calloc(1, sizeof *executable);
    if (executable == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph_compile: no memory");
    executable->options = taken;
    mica_status status = mica__lock_init(&executable->lock, &executable->guard, false);
    if (status != MICA_OK) {
        mica__free(executable);
        return status;
    }
    status = take_devices(executable, device);
    if (status == MICA_OK)
        status = prepare(executable, graph);
    if (status != MICA_OK)
        mica_executable_release(executable);
    else
        *out_executable = executable;
    return status;
}

void mica_executable_release(mica_executable *executable)
{
    if (executable == NULL)
        return;
    (void)mica_executable_sync(executable);
    if (executable->plan != NULL)
        mica__plans_forget(executable);
    for (uint32_t t = 0; executable->held != NULL && t < executable->graph->tensor_count; t++) {
        mica_buffer_release(executable->held[t].buffer);
        mica_buffer_release(executable->held[t].packed);
    }
    mica__free(executable->held);
    mica__free(executable->link);
    mica__free(executable->plan);
    mica_graph_release(executable->graph);
    mica_graph_release(executable->written);
    mica__lock_destroy(&executable->lock, &executable->guard);
    for (uint32_t i = 0; i < executable->device_count; i++)
        mica_device_release(executable->device[i]);
    mica__free(executable->device);
    mica__free(executable);
}

/* ---- parameters and states ---- */

static mica_status check_array(const char *call, const mica_array *array, const mica_graph *graph,
                               const mica__type *type)
{
    char left[160], right[160];
    const mica_dtype dtype = array->buffer != NULL             ? array->buffer->dtype
                             : array->dtype == MICA_DTYPE_NONE ? type->dtype
                                                               : array->dtype;
    const uint32_t ndim = array->buffer != NULL ? array->buffer->ndim : array->ndim;
    const uint64_t *shape = array->buffer != NULL ? array->buffer->shape : array->shape;
    if (dtype <= MICA_DTYPE_NONE || dtype >= MICA_DTYPE_COUNT)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: dtype of '%s' is %d", call, array->name,
                          (int)dtype);
    bool fits = dtype == type->dtype && ndim == type->ndim;
    for (uint32_t d = 0; d < ndim && fits; d++)
        fits = mica__sizes_agree(shape[d], type->shape[d]) && mica__size_known(shape[d]);
    if (fits)
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: '%s' is %s %s, but the graph has %s %s", call,
                      array->name, mica_dtype_name(dtype),
                      mica__shape_words(graph, ndim > MICA_MAX_DIMS ? 0 : ndim, shape, left),
                      mica_dtype_name(type->dtype), mica__shape_words(graph, type->ndim, type->shape, right));
}

/* New memory for what is held where that is a caller's, or there is none yet. */
static mica_status own_held(mica_executable *executable, mica_tensor leaf, const mica__type *type)
{
    mica__held *held = &executable->held[leaf];
    if (held->buffer != NULL && held->ours)
        return MICA_OK;
    mica__plans_drop(executable);
    mica_buffer_release(held->buffer);
    held->buffer = NULL;
    held->ours = true;
    return mica__buffer_for(mica__device_of(executable, executable->graph, leaf), type, &held->buffer);
}

static mica_status write_held(mica_executable *executable, mica_tensor leaf, const mica__type *type,
                              const mica_array *array)
{
    if (type->group_size != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "executable_set: '%s' has tables of scales: give a buffer (mica_buffer_affine)",
                          array->name);
    if (array->bytes != mica__type_bytes(type) || (array->data == NULL && array->bytes != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "executable_set: '%s' has %llu bytes, its shape takes %llu", array->name,
                          (unsigned long long)array->bytes, (unsigned long long)mica__type_bytes(type));
    MICA__TRY(own_held(executable, leaf, type));
    return mica_buffer_write(executable->held[leaf].buffer, 0, array->data, array->bytes);
}

/* A buffer of the parameter's device is kept, one of another is copied. */
static mica_status keep_held(mica_executable *executable, mica_tensor leaf, const mica__type *type,
                             const mica_array *array)
{
    mica__held *held = &executable->held[leaf];
    const mica_device *from = mica_buffer_device(array->buffer);
    bool known = false;
    for (uint32_t i = 0; i < executable->device_count; i++)
        known |= from == executable->device[i];
    if (!known)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_set: '%s' lies on another device",
                          array->name);
    if (from != mica__device_of(executable, executable->graph, leaf)) {
        MICA__TRY(own_held(executable, leaf, type));
        return mica__transfer(array->buffer, held->buffer);
    }
    if (held->buffer != array->buffer)
        mica__plans_drop(executable);
    mica_buffer_release(held->buffer);
    held->buffer = mica_buffer_retain(array->buffer);
    held->ours = false;
    return MICA_OK;
}

/* What a parameter is from now on; packed forms of what it was go. */
static mica_status set_held(mica_executable *executable, mica_tensor leaf, const mica_array *array)
{
    mica__held *held = &executable->held[leaf];
    const mica__type *type = mica__type_of(executable->graph, leaf);
    MICA__TRY(check_array("executable_set", array, executable->graph, type));
    executable->prepared.stale = true;
    if (held->packed != NULL) {
        mica__plans_drop(executable);
        mica_buffer_release(held->packed);
        held->packed = NULL;
    }
    mica__type known = *type;
    const uint64_t *shape = array->buffer != NULL ? array->buffer->shape : array->shape;
    memcpy(known.shape, shape, known.ndim * sizeof known.shape[0]);
    return array->buffer == NULL ? write_held(executable, leaf, &known, array)
                                 : keep_held(executable, leaf, &known, array);
}

static mica_status set(mica_executable *executable, const mica_array *array)
{
    const mica_tensor leaf = mica__names_find(executable->graph, &executable->graph->leaves, array->name);
    const bool input = leaf != 0 && mica__node_of(executable->graph, leaf)->kind == MICA_NODE_INPUT;
    if (leaf != 0 && (!input || mica__link_of(executable, leaf) != NULL))
        return set_held(executable, leaf, array);
    if (input)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "executable_set: '%s' is an input, which comes with each run", array->name);
    const mica_tensor was = mica__names_find(executable->written, &executable->written->leaves, array->name);
    if (was == 0)
        return mica__fail(MICA_ERR_NOT_FOUND, "executable_set: the graph has no parameter '%s'", array->name);
    return check_array("executable_set", array, executable->written, mica__type_of(executable->written, was));
}

mica_status mica_executable_set(mica_executable *executable, const mica_array *parameter)
{
    if (executable == NULL || parameter == NULL || parameter->name == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_set: %s is NULL",
                          executable == NULL  ? "executable"
                          : parameter == NULL ? "parameter"
                                              : "parameter.name");
    MICA__TRY(mica_executable_sync(executable));
    pthread_mutex_lock(&executable->lock);
    const mica_status status = set(executable, parameter);
    pthread_mutex_unlock(&executable->lock);
    return status;
}

mica_status mica_executable_set_from(mica_executable *executable, const char *path, uint32_t *out_count)
{
    mica_weights *weights = NULL;
    uint32_t count = 0;
    if (out_count != NULL)
        *out_count = 0;
    if (executable == NULL || path == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_set_from: %s is NULL",
                          executable == NULL ? "executable" : "path");
    MICA__TRY(mica_weights_open(path, NULL, &weights));
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < executable->written->parameter_count && status == MICA_OK; i++) {
        mica_array array = {.name = NULL};
        (void)mica_graph_get_parameter(executable->written, i, &array.name);
        uint64_t index = 0;
        if (mica_weights_find(weights, array.name, &index) != MICA_OK)
            continue;
        const mica_graph *graph = executable->graph;
        const mica_tensor leaf = mica__names_find(graph, &graph->leaves, array.name);
        mica_device *device = leaf != 0 ? mica__device_of(executable, graph, leaf) : executable->device[0];
        status = mica_weights_load(weights, index, device, 0, &array.buffer);
        if (status == MICA_OK)
            status = mica_executable_set(executable, &array);
        mica_buffer_release(array.buffer);
        count += status == MICA_OK;
    }
    mica_weights_release(weights);
    if (out_count != NULL)
        *out_count = count;
    return status;
}

static mica_status get(mica_executable *executable, const char *name, mica_buffer **out_buffer)
{
    const mica_graph *graph = executable->graph;
    const mica_tensor leaf = mica__names_find(graph, &graph->leaves, name);
    const uint32_t output = mica__graph_output_of(graph, name);
    mica_buffer *found = leaf != 0 ? executable->held[leaf].buffer : NULL;
    if (leaf == 0 && output == UINT32_MAX)
        return mica__fail(MICA_ERR_NOT_FOUND, "executable_get: the graph has no '%s'", name);
    if (leaf == 0 && executable->last != NULL)
        found = executable->last->output[output];
    for (uint32_t i = 0; leaf == 0 && i < executable->link_count; i++)
        if (executable->link[i].output == output)
            found = executable->held[executable->link[i].leaf].buffer;
    if (found == NULL)
        return mica__fail(MICA_ERR_STATE, "executable_get: '%s' has no memory yet", name);
    *out_buffer = mica_buffer_retain(found);
    return MICA_OK;
}

mica_status mica_executable_get(mica_executable *executable, const char *name, mica_buffer **out_buffer)
{
    if (out_buffer != NULL)
        *out_buffer = NULL;
    if (executable == NULL || name == NULL || out_buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_get: %s is NULL",
                          executable == NULL ? "executable"
                          : name == NULL     ? "name"
                                             : "out_buffer");
    pthread_mutex_lock(&executable->lock);
    const mica_status status = get(executable, name, out_buffer);
    pthread_mutex_unlock(&executable->lock);
    return status;
}

static mica_status link_state(mica_executable *executable, const char *output, const char *state)
{
    const mica_graph *graph = executable->graph;
    const uint32_t index = mica__graph_output_of(graph, output);
    const mica_tensor leaf = mica__names_find(graph, &graph->leaves, state);
    if (index == UINT32_MAX || leaf == 0)
        return mica__fail(MICA_ERR_NOT_FOUND, "executable_link: the graph has no %s '%s'",
                          leaf == 0 ? "input or parameter" : "output", leaf == 0 ? state : output);
    const mica__type *a = mica__type_of(graph, graph->outputs.list[index].tensor),
                     *b = mica__type_of(graph, leaf);
    bool fits = a->dtype == b->dtype && a->ndim == b->ndim;
    for (uint32_t d = 0; d < a->ndim && fits; d++)
        fits = mica__sizes_agree(a->shape[d], b->shape[d]);
    if (!fits)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_link: '%s' and '%s' differ in type or shape",
                          output, state);
    for (uint32_t i = 0; i < executable->link_count; i++)
        if (executable->link[i].leaf == leaf || executable->link[i].output == index)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_link: '%s' or '%s' is linked already",
                              output, state);
    mica__plans_forget(executable);
    executable->link[executable->link_count++] = (mica__link){.output = index, .leaf = leaf};
    return MICA_OK;
}

mica_status mica_executable_link(mica_executable *executable, const char *output, const char *state)
{
    if (executable == NULL || output == NULL || state == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_link: %s is NULL",
                          executable == NULL ? "executable"
                          : output == NULL   ? "output"
                                             : "state");
    MICA__TRY(mica_executable_sync(executable));
    pthread_mutex_lock(&executable->lock);
    const mica_status status = link_state(executable, output, state);
    pthread_mutex_unlock(&executable->lock);
    return status;
}

/* ---- facts ---- */

mica_status mica_executable_get_stats(const mica_executable *executable, mica_executable_stats *out)
{
    if (out != NULL)
        memset(out, 0, sizeof *out);
    if (executable == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_get_stats: %s is NULL",
                          executable == NULL ? "executable" : "out");
    mica_executable *locked = (mica_executable *)(uintptr_t)executable;
    pthread_mutex_lock(&locked->lock);
    *out = executable->stats;
    pthread_mutex_unlock(&locked->lock);
    return MICA_OK;
}

mica_status mica_executable_print(const mica_executable *executable, char *text, uint64_t capacity,
                                  uint64_t *out_length)
{
    if (executable == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_print: executable is NULL");
    return mica_graph_print(executable->graph, text, capacity, out_length);
}
