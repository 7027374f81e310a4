/*
 * run.c - one run: inputs to where the schedule reads them, the schedule, outputs to where the caller wants them.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "device/objects.h"
#include "graph/exec/plan.h"
#include "graph/exec/transfer.h"

/* ---- inputs ---- */

static const mica_array *find_array(const mica_array *arrays, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (arrays[i].name != NULL && strcmp(arrays[i].name, name) == 0)
            return &arrays[i];
    return NULL;
}

static const char *input_name(const mica_graph *graph, uint32_t i)
{
    const char *name = NULL;
    (void)mica_graph_get_input(graph, i, &name);
    return name;
}

static bool has_device(const mica_executable *executable, const mica_buffer *buffer)
{
    bool has = false;
    for (uint32_t i = 0; i < executable->device_count; i++)
        has |= mica_buffer_device(buffer) == executable->device[i];
    return has;
}

/* The type that comes in for input `i`. */
static mica_status take_type(const mica_executable *executable, uint32_t i, const mica_array *array,
                             mica__type *out)
{
    const mica_graph *graph = executable->graph;
    const mica_tensor leaf = graph->inputs[i];
    const mica__type *type = mica__type_of(graph, leaf);
    char left[160], right[160];
    *out = *type;
    if (mica__link_of(executable, leaf) != NULL) {
        const mica_buffer *buffer = executable->held[leaf].buffer;
        if (array != NULL)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "executable_run: '%s' is a state, which is set, not fed", array->name);
        if (buffer != NULL)
            memcpy(out->shape, buffer->shape, sizeof out->shape);
        return MICA_OK;
    }
    if (array == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_run: input '%s' is missing",
                          input_name(graph, i));
    const mica_dtype dtype = array->buffer != NULL             ? array->buffer->dtype
                             : array->dtype == MICA_DTYPE_NONE ? type->dtype
                                                               : array->dtype;
    const uint32_t ndim = array->buffer != NULL ? array->buffer->ndim : array->ndim;
    const uint64_t *shape = array->buffer != NULL ? array->buffer->shape : array->shape;
    if (dtype <= MICA_DTYPE_NONE || dtype >= MICA_DTYPE_COUNT)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_run: dtype of '%s' is %d", array->name,
                          (int)dtype);
    bool fits = dtype == type->dtype && ndim == type->ndim;
    for (uint32_t d = 0; d < ndim && fits; d++)
        fits = mica__size_known(shape[d]) && mica__sizes_agree(shape[d], type->shape[d]);
    if (!fits)
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT, "executable_run: input '%s' is %s %s, but the graph takes %s %s",
            array->name, mica_dtype_name(dtype),
            mica__shape_words(graph, ndim > MICA_MAX_DIMS ? 0 : ndim, shape, left),
            mica_dtype_name(type->dtype), mica__shape_words(graph, type->ndim, type->shape, right));
    memcpy(out->shape, shape, ndim * sizeof *shape);
    if (array->buffer == NULL &&
        (array->bytes != mica__type_bytes(out) || (array->data == NULL && array->bytes != 0)))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "executable_run: input '%s' has %llu bytes, its shape takes %llu", array->name,
                          (unsigned long long)array->bytes, (unsigned long long)mica__type_bytes(out));
    if (array->buffer != NULL && !has_device(executable, array->buffer))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_run: input '%s' lies on another device",
                          array->name);
    return MICA_OK;
}

/* Inputs that the passes found unused are taken and forgotten; others have a name that the graph knows. */
static mica_status check_names(const mica_executable *executable, const mica_array *inputs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const mica_graph *written = executable->written;
        const mica_tensor leaf =
            inputs[i].name == NULL ? 0 : mica__names_find(written, &written->leaves, inputs[i].name);
        if (leaf == 0 || mica__node_of(written, leaf)->kind != MICA_NODE_INPUT)
            return mica__fail(MICA_ERR_NOT_FOUND, "executable_run: the graph has no input '%s'",
                              inputs[i].name == NULL ? "(NULL)" : inputs[i].name);
    }
    return MICA_OK;
}

/* Between buffers that no run in flight touches. */
static mica_status copy_buffer(mica_buffer *from, mica_buffer *to)
{
    mica_encoder *encoder = NULL;
    if (mica_buffer_device(from) != mica_buffer_device(to))
        return mica__transfer(from, to);
    MICA__TRY(mica_encoder_begin(mica_buffer_device(from), NULL, &encoder));
    mica_status status = mica_copy(encoder, from, to);
    if (status == MICA_OK)
        status = mica_encoder_commit_and_wait(encoder);
    mica_encoder_release(encoder);
    return status;
}

/* The instance reads its own memory again: never is a buffer written that a caller gave before. */
static mica_status take_own(mica__instance *instance, mica_tensor leaf, mica_buffer *mine)
{
    if (instance->leaf[leaf] == mine)
        return MICA_OK;
    MICA__TRY(mica__schedule_bind(instance->schedule, leaf, mine));
    mica_buffer_release(instance->leaf[leaf]);
    instance->leaf[leaf] = mica_buffer_retain(mine);
    return MICA_OK;
}

/* A buffer that lies as the schedule's own does is read where it is; others are copied. */
static mica_status feed_buffer(mica__instance *instance, mica_tensor leaf, mica_buffer *mine,
                               mica_buffer *from)
{
    mica_buffer **own = &instance->leaf[leaf];
    if (*own == from)
        return MICA_OK;
    if (mica__buffer_contiguous(from) && !from->temporary &&
        mica_buffer_device(from) == mica_buffer_device(mine) &&
        mica__schedule_bind(instance->schedule, leaf, from) == MICA_OK) {
        mica_buffer_release(*own);
        *own = mica_buffer_retain(from);
        return MICA_OK;
    }
    MICA__TRY(take_own(instance, leaf, mine));
    return copy_buffer(from, mine);
}

static mica_status feed(mica__plan_of *plan, mica__instance *instance, const mica_array *inputs,
                        uint32_t count)
{
    const mica_graph *graph = plan->graph;
    for (uint32_t i = 0; i < graph->input_count; i++) {
        const mica_array *array = find_array(inputs, count, input_name(graph, i));
        const mica_tensor leaf = graph->inputs[i];
        if (array == NULL)
            continue; /* a state */
        if (array->buffer != NULL) {
            MICA__TRY(feed_buffer(instance, leaf, instance->mine[i], array->buffer));
            continue;
        }
        MICA__TRY(take_own(instance, leaf, instance->mine[i]));
        MICA__TRY(mica__buffer_put(instance->mine[i], 0, array->data, array->bytes));
    }
    return MICA_OK;
}

/* ---- outputs ---- */

static mica_buffer *output_buffer(const mica_executable *executable, const mica__instance *instance,
                                  uint32_t output)
{
    for (uint32_t i = 0; i < executable->link_count; i++)
        if (executable->link[i].output == output)
            return executable->held[executable->link[i].leaf].buffer;
    return instance->output[output];
}

/* Known before anything runs: names, and whether there is room. */
static mica_status check_outputs(const mica_executable *executable, const mica__plan_of *plan,
                                 const mica_array *outputs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = mica__graph_output_of(plan->graph, outputs[i].name);
        if (at == UINT32_MAX)
            return mica__fail(MICA_ERR_NOT_FOUND, "executable_run: the graph has no output '%s'",
                              outputs[i].name == NULL ? "(NULL)" : outputs[i].name);
        const mica__type *type = mica__type_of(plan->graph, plan->graph->outputs.list[at].tensor);
        const uint64_t bytes = mica__type_bytes(type);
        const mica_graph *written = executable->written;
        const bool counted = mica_graph_get_output_rows(
                                 written, mica__graph_output_of(written, outputs[i].name), NULL) != NULL;
        if (outputs[i].data != NULL && !counted && outputs[i].bytes < bytes)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "executable_run: output '%s' takes %llu bytes, there are %llu", outputs[i].name,
                              (unsigned long long)bytes, (unsigned long long)outputs[i].bytes);
        if (outputs[i].data == NULL && outputs[i].buffer != NULL &&
            !has_device(executable, outputs[i].buffer))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_run: output '%s' lies on another device",
                              outputs[i].name);
    }
    return MICA_OK;
}

/* How many places along its axis an output has, as the output that counts them says; the type's size where none does. */
static mica_status found_rows(const mica_executable *executable, const mica__plan_of *plan,
                              const mica__instance *instance, const char *output, mica__type *type,
                              uint32_t *out_axis)
{
    const mica_graph *written = executable->written;
    uint32_t axis = 0;
    int64_t count = 0;
    const char *name = mica_graph_get_output_rows(written, mica__graph_output_of(written, output), &axis);
    *out_axis = 0;
    if (name == NULL)
        return MICA_OK;
    const uint32_t counted = mica__graph_output_of(plan->graph, name);
    const mica_dtype dtype = mica__type_of(plan->graph, plan->graph->outputs.list[counted].tensor)->dtype;
    int32_t narrow = 0;
    mica_buffer *from = output_buffer(executable, instance, counted);
    MICA__TRY(dtype == MICA_DTYPE_I64 ? mica__buffer_take(from, 0, &count, sizeof count)
                                      : mica__buffer_take(from, 0, &narrow, sizeof narrow));
    count = dtype == MICA_DTYPE_I64 ? count : narrow;
    if (count < (int64_t)type->shape[axis])
        type->shape[axis] = count < 0 ? 0 : (uint64_t)count;
    *out_axis = axis;
    return MICA_OK;
}

/* `type` is the first places along `axis` of `whole`, whose elements are at `data`: they close up. */
static void close_up(const mica__type *whole, const mica__type *type, uint32_t axis, uint8_t *data)
{
    uint64_t outer = 1, inner = mica_dtype_block_bytes(type->dtype);
    for (uint32_t d = 0; d < type->ndim; d++)
        *(d < axis ? &outer : &inner) *= d == axis ? 1 : type->shape[d];
    const uint64_t size = type->shape[axis] * inner, step = whole->shape[axis] * inner;
    for (uint64_t i = 1; i < outer && size != step; i++)
        memmove(data + i * size, data + i * step, size);
}

/* Bytes of an output for who wants them in memory of theirs; of one whose places are counted, those that are there. */
static mica_status deliver_bytes(mica_buffer *from, const mica__type *whole, const mica__type *type,
                                 uint32_t axis, mica_array *array)
{
    const uint64_t bytes = mica__type_bytes(type);
    if (array->bytes < bytes)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "executable_run: output '%s' takes %llu bytes, there are %llu", array->name,
                          (unsigned long long)bytes, (unsigned long long)array->bytes);
    const bool first = bytes == mica__type_bytes(whole) || axis == 0;
    array->bytes = bytes;
    if (first)
        return mica__buffer_take(from, 0, array->data, bytes);
    uint8_t *all = mica__alloc((size_t)mica__type_bytes(whole) + 1);
    if (all == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "executable_run: no memory for output '%s'", array->name);
    const mica_status status = mica__buffer_take(from, 0, all, mica__type_bytes(whole));
    if (status == MICA_OK) {
        close_up(whole, type, axis, all);
        memcpy(array->data, all, (size_t)bytes);
    }
    mica__free(all);
    return status;
}

/* The same in a buffer: one that is made has the places that are there, a caller's gets all of them. */
static mica_status deliver_buffer(mica_buffer *from, const mica__type *whole, const mica__type *type,
                                  uint32_t axis, mica_array *array)
{
    mica_buffer *there = NULL;
    if (array->buffer != NULL)
        return copy_buffer(from, array->buffer);
    mica_status status = mica__buffer_for(mica_buffer_device(from), type, &array->buffer);
    const bool all = memcmp(whole->shape, type->shape, sizeof type->shape) == 0;
    if (status == MICA_OK && !all && mica__type_elements(type) != 0)
        status = mica_buffer_slice(from, axis, 0, type->shape[axis], &there);
    if (status == MICA_OK && (all || there != NULL))
        status = copy_buffer(all ? from : there, array->buffer);
    mica_buffer_release(there);
    if (status != MICA_OK) {
        mica_buffer_release(array->buffer);
        array->buffer = NULL;
    }
    return status;
}

static mica_status deliver(const mica_executable *executable, const mica__plan_of *plan,
                           const mica__instance *instance, mica_array *array)
{
    const uint32_t at = mica__graph_output_of(plan->graph, array->name);
    const mica__type *whole = mica__type_of(plan->graph, plan->graph->outputs.list[at].tensor);
    mica_buffer *from = output_buffer(executable, instance, at);
    mica__type type = *whole;
    uint32_t axis = 0;
    MICA__TRY(found_rows(executable, plan, instance, array->name, &type, &axis));
    array->dtype = type.dtype;
    array->ndim = type.ndim;
    memcpy(array->shape, type.shape, sizeof array->shape);
    return array->data != NULL ? deliver_bytes(from, whole, &type, axis, array)
                               : deliver_buffer(from, whole, &type, axis, array);
}

/* ---- runs ---- */

/* Waits for the run that an instance has; its outputs go to whoever asked for them. */
static mica_status end_run(mica_executable *executable, mica__plan_of *plan, mica__instance *instance)
{
    mica_run *run = instance->run;
    mica_status status = mica__schedule_wait(instance->schedule);
    instance->run = NULL;
    if (status == MICA_OK)
        executable->last = instance;
    for (uint32_t i = 0; run != NULL && i < run->output_count && status == MICA_OK; i++)
        status = deliver(executable, plan, instance, &run->outputs[i]);
    if (run != NULL) {
        run->status = status;
        run->instance = NULL;
    }
    return status;
}

static mica_status start(mica__plan_of *plan, mica__instance *instance, const mica_array *inputs,
                         uint32_t input_count)
{
    MICA__TRY(feed(plan, instance, inputs, input_count));
    return mica__schedule_submit(instance->schedule);
}

static mica_status commit(mica_executable *executable, const mica_array *inputs, uint32_t input_count,
                          mica_run *run)
{
    const mica_graph *graph = executable->graph;
    mica__instance *instance = NULL;
    MICA__TRY(check_names(executable, inputs, input_count));
    mica__type *types = mica__alloc((graph->input_count + 1) * sizeof *types);
    if (types == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "executable_run: no memory");
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < graph->input_count && status == MICA_OK; i++)
        status = take_type(executable, i, find_array(inputs, input_count, input_name(graph, i)), &types[i]);
    if (status == MICA_OK)
        status = mica__plan_find(executable, types, &run->plan);
    mica__free(types);
    MICA__TRY(status);
    MICA__TRY(check_outputs(executable, run->plan, run->outputs, run->output_count));
    MICA__TRY(mica__plan_instance(executable, run->plan, &instance));
    if (instance->run != NULL)
        (void)end_run(executable, run->plan, instance); /* told to whoever waits for it */
    MICA__TRY(start(run->plan, instance, inputs, input_count));
    instance->run = run;
    run->instance = instance;
    return MICA_OK;
}

static mica_status check_run(const mica_executable *executable, const mica_array *inputs,
                             uint32_t input_count, const mica_array *outputs, uint32_t output_count)
{
    const char *missing = executable == NULL                     ? "executable"
                          : inputs == NULL && input_count != 0   ? "inputs"
                          : outputs == NULL && output_count != 0 ? "outputs"
                                                                 : NULL;
    return missing == NULL ? MICA_OK
                           : mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_run: %s is NULL", missing);
}

mica_status mica_executable_run(mica_executable *executable, const mica_array *inputs, uint32_t input_count,
                                mica_array *outputs, uint32_t output_count)
{
    MICA__TRY(check_run(executable, inputs, input_count, outputs, output_count));
    mica__call call;
    mica__call_begin(&call, "executable_run");
    mica_run run = {.executable = executable, .outputs = outputs, .output_count = output_count};
    pthread_mutex_lock(&executable->lock);
    mica_status status = commit(executable, inputs, input_count, &run);
    if (status == MICA_OK && run.instance != NULL)
        status = end_run(executable, run.plan, run.instance);
    pthread_mutex_unlock(&executable->lock);
    return mica__call_end(&call, status);
}

mica_status mica_executable_commit(mica_executable *executable, const mica_array *inputs,
                                   uint32_t input_count, mica_array *outputs, uint32_t output_count,
                                   mica_run **out_run)
{
    if (out_run == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_commit: out_run is NULL");
    *out_run = NULL;
    MICA__TRY(check_run(executable, inputs, input_count, outputs, output_count));
    mica_run *run = mica__calloc(1, sizeof *run);
    if (run == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "executable_commit: no memory");
    *run = (mica_run){.executable = executable, .outputs = outputs, .output_count = output_count};
    pthread_mutex_lock(&executable->lock);
    const mica_status status = commit(executable, inputs, input_count, run);
    pthread_mutex_unlock(&executable->lock);
    if (status != MICA_OK)
        mica__free(run);
    else
        *out_run = run;
    return status;
}

mica_status mica_run_wait(mica_run *run)
{
    if (run == NULL)
        return MICA_OK;
    mica_executable *executable = run->executable;
    pthread_mutex_lock(&executable->lock);
    if (run->instance != NULL)
        (void)end_run(executable, run->plan, run->instance);
    const mica_status status = run->status;
    pthread_mutex_unlock(&executable->lock);
    mica__free(run);
    return status;
}

mica_status mica_executable_sync(mica_executable *executable)
{
    if (executable == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_sync: executable is NULL");
    mica_status first = MICA_OK;
    pthread_mutex_lock(&executable->lock);
    for (uint32_t p = 0; p < executable->plan_count; p++)
        for (uint32_t i = 0; i < executable->plan[p]->instance_count; i++) {
            mica__instance *instance = &executable->plan[p]->instance[i];
            if (instance->run == NULL)
                continue;
            const mica_status status = end_run(executable, executable->plan[p], instance);
            if (first == MICA_OK)
                first = status;
        }
    pthread_mutex_unlock(&executable->lock);
    return first;
}
