/*
 * trainer.c - the loop around the executable of a graph that is trained: batches go in, states stay on the device, and a checkpoint holds all of them, so that a run that
 * was killed goes on where the last one was written.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file/file.h"
#include "base/work.h"
#include "graph/exec/plan.h"
#include "graph/ir.h"
#include "mica/format.h"
#include "mica/train.h"
#include "mica/weights.h"

#define NEXT "next."

typedef struct state {
    char name[MICA_GRAPH_NAME_BYTES];
    mica__type type;
} state;

struct mica_trainer {
    mica_executable *run;
    mica_trainer_desc desc;
    char *checkpoint;
    state *states;
    uint32_t state_count;
    mica_array *inputs; /* names are in `names` */
    char (*names)[MICA_GRAPH_NAME_BYTES];
    uint32_t input_count;
    bool has_norm;
    uint64_t step; /* that is done */
};

/* ---- states ---- */

/* The leaf that output i is the next value of; 0: none. */
static mica_tensor state_of(const mica_graph *graph, uint32_t i, const char **out_name)
{
    const char *name = graph->text + graph->outputs.list[i].name;
    *out_name = name + sizeof NEXT - 1;
    return strncmp(name, NEXT, sizeof NEXT - 1) == 0 ? mica__names_find(graph, &graph->leaves, *out_name) : 0;
}

mica_status mica_executable_link_states(mica_executable *executable, const mica_graph *graph)
{
    if (executable == NULL || graph == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "executable_link_states: %s is NULL",
                          executable == NULL ? "executable" : "graph");
    for (uint32_t i = 0; i < graph->outputs.count; i++) {
        const char *name;
        if (state_of(graph, i, &name) != 0)
            MICA__TRY(mica_executable_link(executable, name - (sizeof NEXT - 1), name));
    }
    return MICA_OK;
}

static uint64_t bytes_of(const state *s)
{
    return mica__type_bytes(&s->type);
}

/* ---- life ---- */

static mica_status list_states(mica_trainer *trainer, const mica_graph *graph)
{
    bool steps = false;
    trainer->states = mica__calloc(graph->outputs.count + 1, sizeof *trainer->states);
    if (trainer->states == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "trainer_create: no memory for states");
    for (uint32_t i = 0; i < graph->outputs.count; i++) {
        const char *name;
        const mica_tensor leaf = state_of(graph, i, &name);
        if (leaf == 0)
            continue;
        state *s = &trainer->states[trainer->state_count++];
        snprintf(s->name, sizeof s->name, "%s", name);
        s->type = *mica__type_of(graph, leaf);
        steps |= strcmp(name, "train.step") == 0;
    }
    trainer->has_norm = mica__names_find(graph, &graph->outputs, "train.norm") != 0;
    if (!steps || mica__names_find(graph, &graph->outputs, "train.loss") == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "trainer_create: the graph has no step: mica_graph_optimize comes first");
    return MICA_OK;
}

static mica_status list_inputs(mica_trainer *trainer, const mica_graph *graph)
{
    trainer->names = mica__calloc(graph->input_count + 1, sizeof *trainer->names);
    trainer->inputs = mica__calloc(graph->input_count + 1, sizeof *trainer->inputs);
    if (trainer->names == NULL || trainer->inputs == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "trainer_create: no memory for inputs");
    for (uint32_t i = 0; i < graph->input_count; i++) {
        const char *name = NULL;
        (void)mica_graph_get_input(graph, i, &name);
        bool is_state = false;
        for (uint32_t s = 0; s < trainer->state_count; s++)
            is_state |= strcmp(trainer->states[s].name, name) == 0;
        if (!is_state)
            snprintf(trainer->names[trainer->input_count++], sizeof trainer->names[0], "%s", name);
    }
    return MICA_OK;
}

static mica_status start(mica_trainer *trainer, const mica_graph *graph, mica_device *device)
{
    mica_compile_options options = {.size = sizeof options};
    if (trainer->desc.compile != NULL)
        options = *trainer->desc.compile;
    options.flags |= MICA_COMPILE_TRAINING;
    trainer->desc.compile = NULL; /* the caller's */
    if (trainer->desc.checkpoint != NULL) {
        const size_t length = strlen(trainer->desc.checkpoint) + 1;
        trainer->checkpoint = mica__alloc(length);
        if (trainer->checkpoint == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "trainer_create: no memory for a path");
        memcpy(trainer->checkpoint, trainer->desc.checkpoint, length);
    }
    MICA__TRY(mica_graph_status(graph));
    MICA__TRY(list_states(trainer, graph));
    MICA__TRY(list_inputs(trainer, graph));
    MICA__TRY(mica_graph_compile(graph, device, &options, &trainer->run));
    return mica_executable_link_states(trainer->run, graph);
}

mica_status mica_trainer_create(const mica_graph *graph, mica_device *device, const mica_trainer_desc *desc,
                                mica_trainer **out_trainer)
{
    if (out_trainer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "trainer_create: out_trainer is NULL");
    *out_trainer = NULL;
    if (graph == NULL || device == NULL || desc == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "trainer_create: %s is NULL",
                          graph == NULL    ? "graph"
                          : device == NULL ? "device"
                                           : "desc");
    if (desc->size != 0 && desc->size != sizeof *desc)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "trainer_create: desc.size is %llu, not %zu",
                          (unsigned long long)desc->size, sizeof *desc);
    mica_compile_options compile;
    MICA__TRY(mica__compile_options_take(desc->compile, &compile));
    if (desc->batch == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "trainer_create: desc.batch is NULL");
    mica_trainer *trainer = mica__calloc(1, sizeof *trainer);
    if (trainer == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "trainer_create: no memory");
    trainer->desc = *desc;
    const mica_status status = start(trainer, graph, device);
    if (status == MICA_OK)
        *out_trainer = trainer;
    else
        mica_trainer_release(trainer);
    return status;
}

void mica_trainer_release(mica_trainer *trainer)
{
    if (trainer == NULL)
        return;
    mica_executable_release(trainer->run);
    mica__free(trainer->checkpoint);
    mica__free(trainer->states);
    mica__free(trainer->inputs);
    mica__free(trainer->names);
    mica__free(trainer);
}

mica_executable *mica_trainer_executable(mica_trainer *trainer)
{
    return trainer == NULL ? NULL : trainer->run;
}

/* ---- checkpoints ---- */

/* The bytes of a state; zeros where nothing has touched it yet. */
static mica_status read_state(mica_trainer *trainer, const state *s, void *bytes)
{
    mica_buffer *buffer = NULL;
    memset(bytes, 0, bytes_of(s));
    const mica_status found = mica_executable_get(trainer->run, s->name, &buffer);
    if (found == MICA_ERR_STATE)
        return MICA_OK;
    MICA__TRY(found);
    const mica_status status = mica_buffer_read(buffer, 0, bytes, bytes_of(s));
    mica_buffer_release(buffer);
    return status;
}

static mica_status write_states(mica_trainer *trainer, mica_writer *writer)
{
    uint64_t most = 1;
    MICA__TRY(mica_writer_string(writer, "mica.checkpoint", "1"));
    for (uint32_t i = 0; i < trainer->state_count; i++) {
        const state *s = &trainer->states[i];
        most = bytes_of(s) > most ? bytes_of(s) : most;
        MICA__TRY(mica_writer_tensor(writer, s->name, s->type.dtype, s->type.ndim, s->type.shape));
    }
    void *bytes = mica__alloc(most);
    if (bytes == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "trainer_save: no memory for %llu bytes",
                          (unsigned long long)most);
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < trainer->state_count && status == MICA_OK; i++) {
        status = read_state(trainer, &trainer->states[i], bytes);
        if (status == MICA_OK)
            status = mica_writer_write(writer, bytes, bytes_of(&trainer->states[i]));
    }
    mica__free(bytes);
    return status;
}

mica_status mica_trainer_save(mica_trainer *trainer)
{
    const mica_writer_options options = {
        .size = sizeof options, .format = MICA_FORMAT_SAFETENSORS, .overwrite = 1};
    mica_writer *writer = NULL;
    if (trainer == NULL || trainer->checkpoint == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "trainer_save: %s",
                          trainer == NULL ? "trainer is NULL" : "no checkpoint was named");
    MICA__TRY(mica_writer_create(trainer->checkpoint, &options, &writer));
    const mica_status status = write_states(trainer, writer);
    if (status == MICA_OK)
        return mica_writer_finish(writer);
    mica_writer_discard(writer);
    return status;
}

static mica_status check_state(const mica_weights *weights, const char *path, const state *s,
                               uint64_t *out_index)
{
    mica_tensor_info info;
    if (mica_weights_find(weights, s->name, out_index) != MICA_OK)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "trainer_resume: '%s' has no state '%s'", path, s->name);
    MICA__TRY(mica_weights_tensor(weights, *out_index, &info));
    if (info.dtype != s->type.dtype || info.ndim != s->type.ndim || info.bytes != bytes_of(s) ||
        memcmp(info.shape, s->type.shape, info.ndim * sizeof info.shape[0]) != 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "trainer_resume: state '%s' of '%s' has another type or shape", s->name, path);
    return MICA_OK;
}

static mica_status set_state(mica_trainer *trainer, const mica_weights *weights, const state *s)
{
    uint64_t index = 0;
    mica_array array = {.name = s->name, .dtype = s->type.dtype, .ndim = s->type.ndim, .bytes = bytes_of(s)};
    memcpy(array.shape, s->type.shape, sizeof array.shape);
    MICA__TRY(mica_weights_find(weights, s->name, &index));
    array.data = mica__alloc(array.bytes + 1);
    if (array.data == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "trainer_resume: no memory for '%s'", s->name);
    mica_status status = mica_weights_read(weights, index, 0, array.data, array.bytes);
    if (status == MICA_OK)
        status = mica_executable_set(trainer->run, &array);
    int32_t step;
    if (status == MICA_OK && strcmp(s->name, "train.step") == 0) {
        memcpy(&step, array.data, sizeof step);
        trainer->step = step > 0 ? (uint64_t)step : 0;
    }
    mica__free(array.data);
    return status;
}

mica_status mica_trainer_resume(mica_trainer *trainer, uint64_t *out_step)
{
    mica_weights *weights = NULL;
    uint64_t index;
    if (out_step != NULL)
        *out_step = 0;
    if (trainer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "trainer_resume: trainer is NULL");
    if (trainer->checkpoint == NULL || !mica__file_exists(trainer->checkpoint))
        return MICA_OK;
    MICA__TRY(mica_weights_open(trainer->checkpoint, NULL, &weights));
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < trainer->state_count && status == MICA_OK; i++)
        status = check_state(weights, trainer->checkpoint, &trainer->states[i], &index);
    for (uint32_t i = 0; i < trainer->state_count && status == MICA_OK; i++)
        status = set_state(trainer, weights, &trainer->states[i]);
    mica_weights_release(weights);
    if (status == MICA_OK && out_step != NULL)
        *out_step = trainer->step;
    return status;
}

/* ---- running ---- */

/* "w.m" and "w.v" where "w" is trained: a parameter may have such a name itself. */
static bool is_moment(const mica_trainer *trainer, const char *name)
{
    const size_t length = strlen(name);
    if (length < 3 || (strcmp(name + length - 2, ".m") != 0 && strcmp(name + length - 2, ".v") != 0))
        return false;
    for (uint32_t i = 0; i < trainer->state_count; i++)
        if (strlen(trainer->states[i].name) == length - 2 &&
            strncmp(trainer->states[i].name, name, length - 2) == 0)
            return true;
    return false;
}

/* What is trained began somewhere: moments and counters may begin as zeros, weights may not. */
static mica_status check_begun(mica_trainer *trainer)
{
    for (uint32_t i = 0; i < trainer->state_count; i++) {
        const char *name = trainer->states[i].name;
        mica_buffer *buffer = NULL;
        if (is_moment(trainer, name) || strncmp(name, "train.", 6) == 0)
            continue;
        const mica_status status = mica_executable_get(trainer->run, name, &buffer);
        mica_buffer_release(buffer);
        if (status == MICA_ERR_STATE)
            return mica__fail(MICA_ERR_STATE, "trainer_run: parameter '%s' was not set", name);
        MICA__TRY(status);
    }
    return MICA_OK;
}

/* One element of f32 or f64. */
typedef union number {
    float f32;
    double f64;
} number;

static double number_of(const number *n, const mica_array *array)
{
    return array->dtype == MICA_DTYPE_F64 ? n->f64 : (double)n->f32;
}

static mica_status one_step(mica_trainer *trainer, mica_train_progress *progress)
{
    number value[3];
    mica_array outputs[3] = {{.name = "train.loss", .data = &value[0], .bytes = sizeof value[0]},
                             {.name = "train.rate", .data = &value[1], .bytes = sizeof value[1]},
                             {.name = "train.norm", .data = &value[2], .bytes = sizeof value[2]}};
    memset(value, 0, sizeof value);
    for (uint32_t i = 0; i < trainer->input_count; i++)
        trainer->inputs[i] = (mica_array){.name = trainer->names[i]};
    MICA__TRY(
        trainer->desc.batch(trainer->desc.context, trainer->step + 1, trainer->inputs, trainer->input_count));
    MICA__TRY(mica_executable_run(trainer->run, trainer->inputs, trainer->input_count, outputs,
                                  trainer->has_norm ? 3 : 2));
    trainer->step++;
    progress->step = trainer->step;
    progress->loss = number_of(&value[0], &outputs[0]);
    progress->rate = number_of(&value[1], &outputs[1]);
    progress->norm = trainer->has_norm ? number_of(&value[2], &outputs[2]) : 0;
    return MICA_OK;
}

mica_status mica_trainer_run(mica_trainer *trainer, uint64_t steps)
{
    mica_train_progress progress = {.steps = steps};
    bool stopped = false, unsaved = false;
    if (trainer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "trainer_run: trainer is NULL");
    MICA__TRY(check_begun(trainer));
    while (trainer->step < steps && !stopped) {
        MICA__TRY(one_step(trainer, &progress));
        unsaved = trainer->checkpoint != NULL;
        if (unsaved && trainer->desc.every != 0 && trainer->step % trainer->desc.every == 0) {
            MICA__TRY(mica_trainer_save(trainer));
            unsaved = false;
        }
        stopped = trainer->desc.report != NULL && trainer->desc.report(trainer->desc.context, &progress) != 0;
    }
    if (unsaved)
        MICA__TRY(mica_trainer_save(trainer));
    if (stopped)
        return mica__fail(MICA_ERR_CANCELLED, "trainer_run: the report ended it after step %llu",
                          (unsigned long long)trainer->step);
    return MICA_OK;
}
