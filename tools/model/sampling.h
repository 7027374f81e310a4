/* sampling.h - the sampler that the options of tool_sampling_group describe. */
#ifndef TOOL_MODEL_SAMPLING_H
#define TOOL_MODEL_SAMPLING_H

#include "model/model.h"

/* What the options say, kept for a sampler that is made anew when a value changes. */
typedef struct tool_sampling {
    mica_sampling values; /* seed filled in */
    mica_logit_bias *bias;
    const char *breakers[TOOL_MAX_REPEATS];
    mica_grammar *grammar; /* NULL: none */
} tool_sampling;

/* `capacity` is the context's, for --repeat-last-n -1. Returns the exit status. */
int tool_sampling_read(const tool_call *call, const tool_model *model, uint32_t capacity, tool_sampling *out);
/* A sampler of these values. 0, or 1 after printing why not. */
int tool_sampling_create(const tool_sampling *sampling, const tool_model *model, mica_sampler **out_sampler);
void tool_sampling_free(tool_sampling *sampling);

#endif
