/*
 * whole.c - passes over whole texts, of which nothing is kept: attention of each over itself; and the graph of such a pass, which is the family's forward function,
 * recorded and lifted.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "mica/lift.h"
#include "mica/model_graph.h"
#include "model/context.h"

/* ---- attention ------------------------------------------------------------------------------------------ */

/* Rows of one text. */
static mica_status rows_of(const mica__pass *pass, mica_buffer *all, uint32_t text, mica_buffer **out)
{
    const uint64_t rows = pass->shape.rows / pass->texts;
    return mica_buffer_slice(all, 0, text * rows, rows, out);
}

mica_status mica__attend_texts(mica__pass *pass, mica_buffer *q, mica_buffer *k, mica_buffer *v,
                               const mica_attention_params *params, mica_buffer *mixed)
{
    mica_status status = MICA_OK;
    for (uint32_t text = 0; text < pass->texts && status == MICA_OK; text++) {
        mica_buffer *const whole[] = {q, k, v, mixed, pass->positions};
        mica_buffer *part[6] = {NULL};
        for (uint32_t i = 0; i < 5 && status == MICA_OK; i++)
            status = rows_of(pass, whole[i], text, &part[i]);
        if (status == MICA_OK)
            status = mica_buffer_slice(pass->lengths, 0, text, 1, &part[5]);
        const mica_attention_operands operands = {
            .q = part[0], .k = part[1], .v = part[2], .positions = part[4], .lengths = part[5]};
        if (status == MICA_OK)
            status = mica_attention(pass->encoder, &operands, params, part[3]);
        for (uint32_t i = 0; i < 6; i++)
            mica_buffer_release(part[i]);
    }
    return status;
}

/* ---- the graph ------------------------------------------------------------------------------------------ */

/* What a graph is made of. */
typedef struct whole {
    mica__pass pass;
    mica__adapters adapters;
    mica_recording *recording;
    mica_lift_parameter *parameter; /* [count] */
    char (*name)[MICA__ADAPTER_NAME + 16];
    uint32_t count, own; /* `own` of them are the model's */
} whole;

static mica_status take_desc(const mica_model *model, const mica_model_graph_desc *given,
                             mica_model_graph_desc *out)
{
    MICA__TRY(mica__take_options("desc", given, sizeof *out, out));
    if (model == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "model is NULL");
    out->batch = out->batch == 0 ? 1 : out->batch;
    if (out->length == 0 || (uint64_t)out->batch * out->length > 1u << 20)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "desc is for %u texts of %u tokens, expected 1 to 2^20 in all", out->batch,
                          out->length);
    if (model->h.longest != 0 && out->length > model->h.longest)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "desc.length is %u, the model has %u positions",
                          out->length, model->h.longest);
    out->capacity = out->capacity == 0 ? out->length : out->capacity;
    return MICA_OK;
}

static mica_status make_words(mica__pass *pass, uint64_t count, mica_buffer **out)
{
    return mica_buffer_alloc(pass->model->device, MICA_DTYPE_U32, 1, &count, out);
}

/* Positions and lengths never change: they are read into the graph. */
static mica_status write_words(const mica__pass *pass, uint32_t length)
{
    const uint32_t rows = pass->shape.rows;
    uint32_t *word = mica__alloc((size_t)rows * sizeof *word);
    if (word == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the positions of %u tokens", rows);
    for (uint32_t i = 0; i < rows; i++)
        word[i] = i % length;
    mica_status status = mica_buffer_write(pass->positions, 0, word, (uint64_t)rows * sizeof *word);
    for (uint32_t i = 0; i < pass->texts; i++)
        word[i] = length;
    if (status == MICA_OK)
        status = mica_buffer_write(pass->lengths, 0, word, (uint64_t)pass->texts * sizeof *word);
    mica__free(word);
    return status;
}

mica_status mica__whole_begin(const mica_model *model, const mica__adapters *adapters, uint32_t texts,
                              uint32_t length, mica__pass *out)
{
    *out = (mica__pass){.texts = texts,
                        .capacity = length,
                        .adapters = adapters,
                        .model = model,
                        .shape = {.rows = texts * length}};
    MICA__TRY(mica_session_begin(model->device, NULL, MICA_SESSION_RECORD, &out->session));
    out->encoder = mica_session_encoder(out->session);
    MICA__TRY(make_words(out, out->shape.rows, &out->tokens));
    MICA__TRY(make_words(out, out->shape.rows, &out->positions));
    MICA__TRY(make_words(out, texts, &out->lengths));
    return write_words(out, length);
}

void mica__whole_end(mica__pass *pass)
{
    mica_buffer *const ends[] = {pass->tokens, pass->positions, pass->lengths, pass->result, pass->places};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        mica_buffer_release(ends[i]);
    mica__pass_drop(pass);
    mica_session_release(pass->session);
}

static mica_status record_pass(whole *w, mica_model *model, const mica_model_graph_desc *desc)
{
    mica__pass *pass = &w->pass;
    const bool encoder = model->family->encoder;
    const uint64_t result[2] = {(uint64_t)desc->batch * desc->length,
                                encoder ? model->h.width : model->h.vocabulary};
    MICA__TRY(mica__whole_begin(model, &w->adapters, desc->batch, desc->length, pass));
    pass->capacity = desc->capacity;
    pass->shape.outputs = pass->shape.rows;
    pass->shape.gives = encoder ? MICA__GIVES_STATES : MICA__GIVES_LOGITS;
    MICA__TRY(mica_session_temp(pass->session, MICA_DTYPE_F32, 2, result, &pass->result));
    MICA__TRY(mica_session_slot(pass->session, "tokens", pass->tokens));
    MICA__TRY(mica_session_slot(pass->session, encoder ? "states" : "logits", pass->result));
    MICA__TRY(encoder ? mica__encoder_forward(pass) : mica__decoder_forward(pass));
    return mica_session_record(pass->session, 0, NULL, &w->recording);
}

static void put_parameter(whole *w, mica_buffer *buffer, const char *layer, const char *word)
{
    if (buffer == NULL)
        return;
    snprintf(w->name[w->count], sizeof w->name[0], "%s%s", layer, word);
    w->parameter[w->count] = (mica_lift_parameter){w->name[w->count], buffer};
    w->count++;
}

/* All tensors of the model, and of the adapters. */
static mica_status list_parameters(whole *w, const mica_model *model)
{
    const mica__adapters *adapters = &w->adapters;
    uint64_t most = MICA__T_WHOLE_COUNT + (uint64_t)model->h.layers * (MICA__T_COUNT - MICA__T_WHOLE_COUNT);
    for (uint32_t i = 0; i < adapters->count; i++)
        most += 2 * (uint64_t)adapters->list[i].adapter->count;
    w->parameter = mica__calloc((size_t)most, sizeof *w->parameter);
    w->name = mica__calloc((size_t)most, sizeof *w->name);
    if (w->parameter == NULL || w->name == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the names of %llu tensors",
                          (unsigned long long)most);
    for (uint32_t id = 0; id < MICA__T_WHOLE_COUNT; id++)
        put_parameter(w, model->tensor[id], "", mica__tensor_word((mica__tensor_id)id));
    for (uint32_t i = 0; i < model->h.layers; i++) {
        char layer[24];
        snprintf(layer, sizeof layer, "blk.%u.", i);
        for (uint32_t id = MICA__T_WHOLE_COUNT; id < MICA__T_COUNT; id++)
            put_parameter(w, mica__of_layer(&model->layer[i], (mica__tensor_id)id), layer,
                          mica__tensor_word((mica__tensor_id)id));
    }
    w->own = w->count;
    for (uint32_t i = 0; i < adapters->count; i++) {
        char which[16] = "";
        if (i > 0)
            snprintf(which, sizeof which, "%u:", i);
        for (uint32_t k = 0; k < 2 * adapters->list[i].adapter->count; k++) {
            const mica__low_rank *matrix = &adapters->list[i].adapter->matrix[k / 2];
            put_parameter(w, matrix->part[k % 2], which, matrix->name[k % 2]);
        }
    }
    return MICA_OK;
}

static mica_status make_graph(whole *w, mica_model *model, const mica_model_graph_desc *given,
                              mica_graph **out_graph)
{
    mica_model_graph_desc desc;
    MICA__TRY(take_desc(model, given, &desc));
    MICA__TRY(mica__adapters_take(model, "desc.adapters", desc.adapters, desc.adapter_count, &w->adapters));
    MICA__TRY(record_pass(w, model, &desc));
    MICA__TRY(list_parameters(w, model));
    const mica_lift_desc lift = {.parameters = w->parameter, .parameter_count = w->count};
    return mica_graph_from_recording(w->recording, &lift, out_graph);
}

static void release(whole *w)
{
    mica_recording_release(w->recording);
    mica__whole_end(&w->pass);
    mica__adapters_free(&w->adapters);
    mica__free(w->parameter);
    mica__free(w->name);
}

mica_status mica_model_graph(mica_model *model, const mica_model_graph_desc *desc, mica_graph **out_graph)
{
    mica__call call;
    whole w = {.count = 0};
    if (out_graph == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "model_graph: out_graph is NULL");
    *out_graph = NULL;
    mica__call_begin(&call, "model_graph");
    const mica_status status = make_graph(&w, model, desc, out_graph);
    release(&w);
    return mica__call_end(&call, status);
}

/* ---- its parameters ------------------------------------------------------------------------------------- */

/* A tensor of an adapter, which may change while the executable has its own: a copy. */
static mica_status set_copy(mica_executable *executable, const char *name, mica_buffer *buffer)
{
    mica_buffer_info info;
    MICA__TRY(mica_buffer_get_info(buffer, &info));
    mica_array array = {.name = name, .dtype = info.dtype, .ndim = info.ndim, .bytes = info.byte_length};
    memcpy(array.shape, info.shape, sizeof info.shape);
    array.data = mica__alloc((size_t)info.byte_length);
    if (array.data == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for \"%s\"", name);
    mica_status status = mica_buffer_read(buffer, 0, array.data, info.byte_length);
    if (status == MICA_OK)
        status = mica_executable_set(executable, &array);
    mica__free(array.data);
    return status;
}

static mica_status set_all(whole *w, mica_model *model, const mica_model_graph_desc *given,
                           const mica_graph *graph, mica_executable *executable)
{
    mica_model_graph_desc desc;
    MICA__TRY(take_desc(model, given, &desc));
    if (graph == NULL || executable == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", graph == NULL ? "graph" : "executable");
    MICA__TRY(mica__adapters_take(model, "desc.adapters", desc.adapters, desc.adapter_count, &w->adapters));
    MICA__TRY(list_parameters(w, model));
    for (uint32_t i = 0; i < w->count; i++) {
        const mica_lift_parameter *p = &w->parameter[i];
        if (mica_graph_find(graph, p->name) == 0)
            continue;
        MICA__TRY(i < w->own
                      ? mica_executable_set(executable, &(mica_array){.name = p->name, .buffer = p->buffer})
                      : set_copy(executable, p->name, p->buffer));
    }
    return MICA_OK;
}

mica_status mica_model_graph_set(mica_model *model, const mica_model_graph_desc *desc,
                                 const mica_graph *graph, mica_executable *executable)
{
    mica__call call;
    whole w = {.count = 0};
    mica__call_begin(&call, "model_graph_set");
    const mica_status status = set_all(&w, model, desc, graph, executable);
    release(&w);
    return mica__call_end(&call, status);
}
