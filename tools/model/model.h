/* model.h - a model and its context, opened as the options say; or the model inside the tool. */
#ifndef TOOL_MODEL_MODEL_H
#define TOOL_MODEL_MODEL_H

#include "mica/model.h"
#include "options.h"

#define TOOL_MAX_ADAPTERS 32

typedef struct tool_model {
    mica_device *device;
    mica_model *model;
    mica_adapter_use adapter[TOOL_MAX_ADAPTERS]; /* of --lora: for its contexts */
    uint32_t adapters;
    const mica_tokenizer *tokenizer; /* the model's; NULL if it has none */
    mica_model_info info;
    double open_seconds, load_seconds; /* of the device, of the weights */
} tool_model;

/* How a model is opened; tool_model_open takes it from the options of tool_model_group. */
typedef struct tool_model_source {
    const char *path;   /* NULL: the model inside */
    const char *device; /* as mica_device_open takes it */
    uint32_t threads;
    uint32_t weights_flags; /* MICA_WEIGHTS_* */
    uint32_t keep_layout;
    tool_accepted accepted;
} tool_model_source;

/* The file alone, with names as in a GGUF; path NULL: the model inside; accepted NULL: no keys. */
mica_status tool_weights_open(const char *path, const tool_accepted *accepted, mica_weights **out_weights);
/* These return the exit status: 0, or 1 after printing why. */
int tool_model_open(const tool_call *call, tool_model *out);
int tool_model_open_source(const tool_model_source *source, tool_model *out);
/* NULL handles are fine: a zeroed tool_model too. */
void tool_model_close(tool_model *model);

/* After a library call that has a tokenizer as its reason to be: 0, or 1 after saying that the model has none. */
int tool_model_need_tokenizer(const tool_model *model);
/* Tokens of a pass as TOOL_BATCH_OPTIONS say; 0: what suits the device. */
uint32_t tool_batch(const tool_call *call);
/* The type that "cache-type-k" or "cache-type-v" names. */
mica_dtype tool_cache_type(const tool_call *call, const char *option);
/* --centre-keys. */
mica_centre tool_centre(const tool_call *call);
/* Says so if a context of `tokens` is longer than what the model was trained for. */
void tool_context_warn(uint32_t tokens, const tool_model *model);
/* A context as the options of tool_context_group say; `prompt_tokens` is what --keep -1 keeps. */
int tool_context_create(const tool_call *call, const tool_model *model, uint32_t prompt_tokens,
                        mica_context **out_context);

#endif
