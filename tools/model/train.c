/* train.c - `mica train`: an adapter for a model is learned from a text, and written as one file. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "mica/model_graph.h"
#include "mica/train.h"
#include "model/train_data.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"

#define MOST_TARGETS 16
#define USUAL_LENGTH 128u
#define CHECKPOINT_STEPS 50u
#define REDRAW_NS 200000000u

typedef struct train_state {
    tool_model model;
    tool_train_data data;
    mica_adapter_use use; /* what is learned */
    mica_model_graph_desc desc;
    mica_graph *graph;
    mica_trainer *trainer;
    uint32_t *tokens, *labels; /* [batch * length] of a step */
    float *weight;
    uint64_t seed;
    /* progress */
    int is_terminal;
    uint64_t begin_ns, drawn_ns, first_step;
    double first_loss, last_loss;
} train_state;

/* ---- the graph ---- */

static int make_adapter(const tool_call *call, train_state *t)
{
    char names[256] = "";
    const char *targets[MOST_TARGETS], *given = tool_word(call, "targets");
    mica_adapter_desc desc = {.rank = (uint32_t)tool_number(call, "rank"),
                              .alpha = (float)tool_real(call, "alpha"),
                              .targets = targets,
                              .seed = t->seed};
    if (given != NULL && strlen(given) >= sizeof names)
        return tool_misuse("train: --targets is too long");
    if (given != NULL)
        memcpy(names, given, strlen(given) + 1);
    char *rest = names;
    for (char *name; desc.target_count < MOST_TARGETS && (name = strtok_r(rest, ",", &rest)) != NULL;)
        targets[desc.target_count++] = name;
    if (mica_adapter_create(t->model.model, &desc, &t->use.adapter) != MICA_OK)
        return tool_fail_about("train: --targets");
    t->use.scale = 1;
    return 0;
}

/* The mean of what each learned label costs: `weight` is one over their number, 0 where nothing is learned. */
static mica_tensor make_loss(mica_graph *graph, uint64_t rows)
{
    const mica_tensor labels = mica_graph_input(graph, "labels", MICA_DTYPE_U32, 1, &rows);
    const mica_tensor weight = mica_graph_input(graph, "weight", MICA_DTYPE_F32, 1, &rows);
    const mica_tensor each =
        mica_graph_cross_entropy(graph, mica_graph_find(graph, "logits"), labels, 0, 0, NULL, NULL);
    return mica_graph_reduce(graph, MICA_REDUCE_SUM, mica_graph_mul(graph, each, weight), NULL, 0, 0);
}

static mica_optimizer make_optimizer(const tool_call *call)
{
    const uint64_t steps = (uint64_t)tool_number(call, "steps");
    mica_optimizer optimizer = mica_optimizer_of(MICA_OPTIMIZER_ADAMW);
    optimizer.learning_rate = tool_real(call, "learning-rate");
    optimizer.weight_decay = 0;
    optimizer.clip_norm = 1;
    if (steps >= 10) {
        optimizer.schedule = MICA_RATE_COSINE;
        optimizer.warmup = steps / 10;
        optimizer.steps = steps;
        optimizer.last = 0.1;
    }
    return optimizer;
}

static mica_status make_graph(const tool_call *call, train_state *t)
{
    const mica_optimizer optimizer = make_optimizer(call);
    mica_adapter_info info;
    mica_status status = mica_adapter_get_info(t->use.adapter, &info);
    if (status == MICA_OK)
        status = mica_model_graph(t->model.model, &t->desc, &t->graph);
    if (status != MICA_OK)
        return status;
    mica_tensor *parameter = calloc(2 * (size_t)info.matrices + 1, sizeof *parameter);
    if (parameter == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < 2 * info.matrices; i++) {
        const char *name = NULL;
        (void)mica_adapter_tensor(t->use.adapter, i, &name, NULL);
        parameter[i] = mica_graph_find(t->graph, name);
    }
    const mica_tensor loss = make_loss(t->graph, (uint64_t)t->desc.batch * t->desc.length);
    status = mica_graph_optimize(t->graph, loss, parameter, NULL, 2 * info.matrices, &optimizer);
    free(parameter);
    return status;
}

/* ---- a step ---- */

static mica_status next_batch(void *context, uint64_t step, mica_array *inputs, uint32_t count)
{
    train_state *t = context;
    const uint32_t length = t->desc.length, rows = t->desc.batch * length;
    uint64_t learned = 0;
    for (uint32_t b = 0; b < t->desc.batch; b++) {
        const size_t at = (size_t)b * length;
        learned += tool_train_row(&t->data, t->seed * UINT64_C(0x9E3779B97F4A7C15) + step * 4096 + b, length,
                                  t->tokens + at, t->labels + at, t->weight + at);
    }
    for (uint32_t i = 0; i < rows && learned > 0; i++)
        t->weight[i] /= (float)learned;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = inputs[i].name;
        inputs[i].dtype = strcmp(name, "weight") == 0 ? MICA_DTYPE_F32 : MICA_DTYPE_U32;
        inputs[i].ndim = 1;
        inputs[i].shape[0] = rows;
        inputs[i].bytes = (uint64_t)rows * 4;
        inputs[i].data = strcmp(name, "weight") == 0   ? (void *)t->weight
                         : strcmp(name, "labels") == 0 ? (void *)t->labels
                                                       : (void *)t->tokens;
    }
    return MICA_OK;
}

/* On a terminal one line that changes, else one for each tenth of the steps. */
static int report(void *context, const mica_train_progress *p)
{
    train_state *t = context;
    const uint64_t now = tool_clock_ns(), tenth = p->steps / 10 > 0 ? p->steps / 10 : 1;
    if (t->first_step == 0) {
        t->first_step = p->step;
        t->first_loss = p->loss;
    }
    t->last_loss = p->loss;
    const int last = p->step == p->steps;
    if (t->is_terminal ? last || now - t->drawn_ns >= REDRAW_NS : last || p->step % tenth == 0) {
        const double seconds = (double)(now - t->begin_ns) * 1e-9;
        const double each = seconds / (double)(p->step - t->first_step + 1);
        fprintf(stderr, "%sstep %llu of %llu, loss %.4f, rate %.2g, %.0f ms a step, %.0f s left%s",
                t->is_terminal ? "\r" : "", (unsigned long long)p->step, (unsigned long long)p->steps,
                p->loss, p->rate, each * 1e3, each * (double)(p->steps - p->step),
                t->is_terminal ? "\033[K" : "\n");
        fflush(stderr);
        t->drawn_ns = now;
    }
    return tool_interrupt_number() != 0;
}

/* ---- the command ---- */

static int check_call(const tool_call *call)
{
    const char *data = tool_word(call, "data"), *out = tool_word(call, "lora-out");
    if (data == NULL || out == NULL)
        return tool_misuse("train: there is no %s: give %s",
                           data == NULL ? "text to learn from" : "name for the adapter",
                           data == NULL ? "--data, a text or a .jsonl file" : "--lora-out");
    if (tool_flag(call, "resume") && tool_word(call, "checkpoint") == NULL)
        return tool_misuse("train: --resume goes on from a checkpoint: --checkpoint names it");
    return 0;
}

/* How long texts are: what was asked for, or what the data has, and no longer than the model can. */
static int choose_length(const tool_call *call, train_state *t)
{
    uint32_t length = (uint32_t)tool_number(call, "length");
    if (length == 0)
        length = t->data.is_list || t->data.longest <= USUAL_LENGTH ? t->data.longest - 1 : USUAL_LENGTH;
    if (t->model.info.context_length != 0 && length > t->model.info.context_length)
        length = t->model.info.context_length;
    uint32_t learned = 0;
    for (uint32_t i = 0; i < t->data.count; i++)
        learned += t->data.example[i].prompt <= length;
    if (learned < t->data.count)
        tool_warn("of %u texts %u have a prompt of over %u tokens: nothing is learned from them",
                  t->data.count, t->data.count - learned, length);
    if (learned == 0)
        return tool_fail("train: every prompt is longer than a text of %u tokens; --length makes it longer",
                         length);
    t->desc = (mica_model_graph_desc){.batch = (uint32_t)tool_number(call, "batch"),
                                      .length = length,
                                      .capacity = t->model.info.context_length,
                                      .adapters = &t->use,
                                      .adapter_count = 1};
    const size_t rows = (size_t)t->desc.batch * length;
    t->tokens = malloc(rows * sizeof *t->tokens);
    t->labels = malloc(rows * sizeof *t->labels);
    t->weight = malloc(rows * sizeof *t->weight);
    return t->tokens == NULL || t->labels == NULL || t->weight == NULL ? tool_fail("there is no memory left")
                                                                       : 0;
}

static int run_steps(const tool_call *call, train_state *t)
{
    const mica_trainer_desc desc = {.batch = next_batch,
                                    .report = report,
                                    .context = t,
                                    .checkpoint = tool_word(call, "checkpoint"),
                                    .every = CHECKPOINT_STEPS};
    uint64_t step = 0;
    mica_status status = make_graph(call, t);
    if (status == MICA_OK)
        status = mica_trainer_create(t->graph, t->model.device, &desc, &t->trainer);
    if (status == MICA_OK)
        status =
            mica_model_graph_set(t->model.model, &t->desc, t->graph, mica_trainer_executable(t->trainer));
    if (status == MICA_OK && tool_flag(call, "resume"))
        status = mica_trainer_resume(t->trainer, &step);
    if (status != MICA_OK)
        return tool_fail_status();
    if (step > 0)
        fprintf(stderr, "going on after step %llu\n", (unsigned long long)step);
    t->begin_ns = t->drawn_ns = tool_clock_ns();
    tool_interrupt_catch();
    status = mica_trainer_run(t->trainer, (uint64_t)tool_number(call, "steps"));
    if (t->is_terminal)
        fputc('\n', stderr);
    if (status == MICA_OK)
        status = mica_adapter_take(t->use.adapter, mica_trainer_executable(t->trainer));
    if (status == MICA_OK)
        status = mica_adapter_save(t->use.adapter, tool_word(call, "lora-out"));
    return status == MICA_OK ? 0 : tool_fail_status();
}

static int train(const tool_call *call, train_state *t)
{
    if (t->model.info.encoder)
        return tool_fail("%s models give embeddings: they foretell no text", t->model.info.family);
    int result = tool_model_need_tokenizer(&t->model);
    if (result == 0)
        result = tool_train_data_read(tool_word(call, "data"), &t->model, &t->data);
    if (result == 0)
        result = choose_length(call, t);
    if (result == 0)
        result = make_adapter(call, t);
    if (result == 0)
        result = run_steps(call, t);
    if (result != 0)
        return result;
    mica_adapter_info info;
    (void)mica_adapter_get_info(t->use.adapter, &info);
    fprintf(stderr, "%s: %llu values in %u matrices", tool_word(call, "lora-out"),
            (unsigned long long)info.parameters, info.matrices);
    if (t->first_step != 0)
        fprintf(stderr, "; loss %.4f at step %llu, %.4f at the end", t->first_loss,
                (unsigned long long)t->first_step, t->last_loss);
    fputc('\n', stderr);
    return 0;
}

int tool_train(const tool_call *call)
{
    train_state t = {.seed = (uint64_t)tool_number(call, "seed"), .is_terminal = isatty(STDERR_FILENO)};
    int result = check_call(call);
    if (result != 0)
        return result;
    tool_model_source source = {.path = tool_word(call, "model"),
                                .device = tool_word(call, "device"),
                                .threads = (uint32_t)tool_number(call, "threads")};
    tool_accepted_keys(call, &source.accepted);
    result = tool_model_open_source(&source, &t.model);
    if (result == 0)
        result = train(call, &t);
    mica_trainer_release(t.trainer);
    mica_graph_release(t.graph);
    mica_adapter_release(t.use.adapter);
    tool_train_data_free(&t.data);
    tool_model_close(&t.model);
    free(t.tokens);
    free(t.labels);
    free(t.weight);
    return result;
}
