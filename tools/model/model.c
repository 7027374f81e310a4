/* model.c - opening models for the commands that run them, with a bar while the weights are read. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "terminal/output.h"
#include "terminal/progress.h"

/* The model inside, a GGUF: demo_model.c. */
extern const unsigned char mica_demo_model[];
extern const uint64_t mica_demo_model_size;

mica_status tool_weights_open(const char *path, const tool_accepted *accepted, mica_weights **out_weights)
{
    mica_weights_options options = {.size = sizeof options,
                                    .flags = MICA_WEIGHTS_AS_GGUF,
                                    .accept_keys = accepted == NULL ? NULL : accepted->name,
                                    .accept_key_count = accepted == NULL ? 0 : accepted->count};
    return path != NULL
               ? mica_weights_open(path, &options, out_weights)
               : mica_weights_open_bytes(mica_demo_model, mica_demo_model_size, &options, out_weights);
}

static mica_status open_inside(mica_device *device, const mica_model_options *options, mica_model **out_model)
{
    mica_weights *weights = NULL;
    mica_status status = tool_weights_open(NULL, NULL, &weights);
    if (status == MICA_OK)
        status = mica_model_create(weights, device, options, out_model);
    mica_weights_release(weights);
    return status;
}

static mica_status load(const tool_model_source *source, tool_progress *progress, tool_model *model)
{
    mica_model_options options = {
        .size = sizeof options,
        .flags = source->weights_flags,
        .keep_layout = source->keep_layout,
        .progress = tool_progress_step,
        .context = progress,
        .accept_keys = source->accepted.name,
        .accept_key_count = source->accepted.count,
    };
    mica_status status = source->path != NULL
                             ? mica_model_open(source->path, model->device, &options, &model->model)
                             : open_inside(model->device, &options, &model->model);
    if (status == MICA_OK)
        status = mica_model_get_info(model->model, &model->info);
    return status;
}

int tool_model_open_source(const tool_model_source *source, tool_model *out)
{
    mica_device_options options = {.size = sizeof options, .threads = source->threads};
    tool_progress progress;
    memset(out, 0, sizeof *out);
    const uint64_t start = tool_clock_ns();
    if (mica_device_open(source->device, &options, &out->device) != MICA_OK)
        return tool_fail_status();
    out->open_seconds = (double)(tool_clock_ns() - start) * 1e-9;
    tool_progress_begin(&progress, "loading");
    mica_status status = load(source, &progress, out);
    out->load_seconds = tool_progress_seconds(&progress);
    tool_progress_end(&progress);
    if (status != MICA_OK) {
        tool_fail_status();
        tool_model_close(out);
        return 1;
    }
    out->tokenizer = mica_model_tokenizer(out->model);
    return 0;
}

/* An adapter of --lora or --lora-scaled; `scale` NULL: 1. */
static int add_adapter(tool_model *model, const char *path, const char *scale)
{
    if (model->adapters == TOOL_MAX_ADAPTERS)
        return tool_misuse("--lora: more than %d adapters", TOOL_MAX_ADAPTERS);
    mica_adapter_use *use = &model->adapter[model->adapters];
    char *end = NULL;
    use->scale = scale == NULL ? 1 : strtof(scale, &end);
    if (scale != NULL && (end == scale || *end != '\0'))
        return tool_misuse("--lora-scaled: the scale is \"%.40s\", not a number", scale);
    if (mica_adapter_open(path, model->model, &use->adapter) != MICA_OK)
        return tool_fail_about("--lora");
    model->adapters++;
    return 0;
}

static int open_adapters(const tool_call *call, tool_model *model)
{
    size_t cursor = 0;
    int result = 0;
    for (const char *path; result == 0 && (path = tool_repeat(call, "lora", &cursor)) != NULL;)
        result = add_adapter(model, path, NULL);
    cursor = 0;
    for (const char *path; result == 0 && (path = tool_repeat(call, "lora-scaled", &cursor)) != NULL;)
        result = add_adapter(model, path, tool_repeat(call, "lora-scaled", &cursor));
    return result;
}

int tool_model_open(const tool_call *call, tool_model *out)
{
    tool_model_source source = {
        .path = tool_word(call, "model"),
        .device = tool_word(call, "device"),
        .threads = (uint32_t)tool_number(call, "threads"),
        .weights_flags = (tool_flag(call, "no-mmap") ? MICA_WEIGHTS_NO_MAP : 0) |
                         (tool_flag(call, "mlock") ? MICA_WEIGHTS_LOCK : 0),
        .keep_layout = (uint32_t)tool_flag(call, "no-repack"),
    };
    tool_accepted_keys(call, &source.accepted);
    int result = tool_model_open_source(&source, out);
    return result != 0 ? result : open_adapters(call, out);
}

void tool_model_close(tool_model *model)
{
    for (uint32_t i = 0; i < model->adapters; i++)
        mica_adapter_release(model->adapter[i].adapter);
    mica_model_release(model->model);
    mica_device_release(model->device);
    memset(model, 0, sizeof *model);
}

int tool_model_need_tokenizer(const tool_model *model)
{
    if (model->tokenizer != NULL)
        return 0;
    mica_model_tokenizer(model->model); /* once more, for its sentence */
    return tool_fail_status();
}

uint32_t tool_batch(const tool_call *call)
{
    uint32_t batch = (uint32_t)tool_number(call, "batch-size");
    uint32_t part = (uint32_t)tool_number(call, "ubatch-size");
    return part != 0 && (batch == 0 || part < batch) ? part : batch;
}

mica_dtype tool_cache_type(const tool_call *call, const char *option)
{
    static const struct {
        const char *word;
        mica_dtype type;
    } turbo[] = {{"tq2", MICA_DTYPE_TURBO2}, {"tq2.5", MICA_DTYPE_TURBO2_5}, {"tq3", MICA_DTYPE_TURBO3},
                 {"tq4", MICA_DTYPE_TURBO4}, {"tq5", MICA_DTYPE_TURBO5},     {"tq6", MICA_DTYPE_TURBO6},
                 {"tq8", MICA_DTYPE_TURBO8}};
    const char *name = tool_word(call, option);
    for (size_t i = 0; i < sizeof turbo / sizeof *turbo; i++)
        if (strcasecmp(name, turbo[i].word) == 0)
            return turbo[i].type;
    return tool_type_find(call, option, name, strlen(name));
}

mica_centre tool_centre(const tool_call *call)
{
    const char *word = tool_word(call, "centre-keys");
    return strcmp(word, "never") == 0    ? MICA_CENTRE_NEVER
           : strcmp(word, "always") == 0 ? MICA_CENTRE_ALWAYS
                                         : MICA_CENTRE_AUTO;
}

void tool_context_warn(uint32_t tokens, const tool_model *model)
{
    if (model->info.context_length != 0 && tokens > model->info.context_length)
        tool_warn("the context of %u tokens is longer than the %u that the model was trained for; it may "
                  "write nonsense "
                  "past those",
                  tokens, model->info.context_length);
}

int tool_context_create(const tool_call *call, const tool_model *model, uint32_t prompt_tokens,
                        mica_context **out_context)
{
    int64_t keep = tool_number(call, "keep");
    mica_context_options options = {
        .size = sizeof options,
        .capacity = (uint32_t)tool_number(call, "ctx-size"),
        .batch = tool_batch(call),
        .cache_k = tool_cache_type(call, "cache-type-k"),
        .cache_v = tool_cache_type(call, "cache-type-v"),
        .centre_keys = tool_centre(call),
        .shift = (uint32_t)tool_flag(call, "context-shift"),
        .keep = keep < 0 ? prompt_tokens : (uint32_t)keep,
        .adapters = model->adapter,
        .adapter_count = model->adapters,
    };
    if (model->info.encoder)
        return tool_fail("%s models give embeddings, no text: see 'mica help embed'", model->info.family);
    tool_context_warn(options.capacity, model);
    return mica_context_create(model->model, &options, out_context) == MICA_OK ? 0 : tool_fail_status();
}
