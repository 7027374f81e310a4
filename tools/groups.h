/* groups.h - the options that several commands take, under one heading each. Part of the table of commands.c. */
#ifndef TOOL_GROUPS_H
#define TOOL_GROUPS_H

#include "options.h"

/* --json alone. */
extern const tool_group tool_json_group;
/* Which model, on what, and how its file is read: tool_model_open reads them. */
extern const tool_group tool_model_group;
/* The memory of a context: tool_context_create reads them. */
extern const tool_group tool_context_group;
/* How the next token is chosen: tool_sampler_create reads them. */
extern const tool_group tool_sampling_group;
/* What run and chat generate, and when they stop: tool_generation_create reads them. */
extern const tool_group tool_generation_group;

/* Options that stand in several groups. */
#define TOOL_DEVICE_OPTION                                                                                 \
    {                                                                                                      \
        "device", "-dev", TOOL_WORD, "ID", NULL, "auto", 0, 0, "device to run on, as 'mica info' names it" \
    }
#define TOOL_THREADS_OPTION                                                                                 \
    {                                                                                                       \
        "threads", "-t", TOOL_NUMBER, "N", NULL, "0", 0, 1024, "threads of the cpu device; 0 is one a core" \
    }
/* tool_accepted_keys reads it. */
#define TOOL_ACCEPT_OPTION                                                                               \
    {                                                                                                    \
        "accept-key", NULL, TOOL_REPEATED, "KEY", NULL, NULL, 0, 0,                                      \
            "key of config.json to pass over though mica does not know it or its value; may be repeated" \
    }
/* tool_batch reads them. */
#define TOOL_BATCH_OPTIONS                                                                                \
    {"batch-size",                                                                                        \
     "-b",                                                                                                \
     TOOL_NUMBER,                                                                                         \
     "N",                                                                                                 \
     NULL,                                                                                                \
     "0",                                                                                                 \
     0,                                                                                                   \
     1u << 20,                                                                                            \
     "most tokens in one pass over the weights; 0 is 512, on GPUs 2048"},                                 \
    {                                                                                                     \
        "ubatch-size", "-ub", TOOL_NUMBER, "N", NULL, "0", 0, 1u << 20, "the same: the lesser one counts" \
    }
#define TOOL_CACHE_TYPES "f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q5_1|iq4_nl|tq2|tq2.5|tq3|tq4|tq5|tq6|tq8"
/* tool_cache_type and tool_centre read them. */
#define TOOL_CACHE_OPTIONS                                                         \
    {"cache-type-k",                                                               \
     "-ctk",                                                                       \
     TOOL_ANY_CASE,                                                                \
     "TYPE",                                                                       \
     TOOL_CACHE_TYPES,                                                             \
     "f16",                                                                        \
     0,                                                                            \
     0,                                                                            \
     "type of the keys in the cache"},                                             \
        {"cache-type-v",                                                           \
         "-ctv",                                                                   \
         TOOL_ANY_CASE,                                                            \
         "TYPE",                                                                   \
         TOOL_CACHE_TYPES,                                                         \
         "f16",                                                                    \
         0,                                                                        \
         0,                                                                        \
         "type of the values in the cache"},                                       \
    {                                                                              \
        "centre-keys", NULL, TOOL_WORD, "WHEN", "auto|never|always", "auto", 0, 0, \
            "keys are kept without their mean; auto: with at most 5 bits"          \
    }
#define TOOL_JSON_OPTION                                                           \
    {                                                                              \
        "json", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "print JSON for programs" \
    }

#endif
