/* generation.h - tokens in, text out piece by piece: what run and chat have in common. */
#ifndef TOOL_MODEL_GENERATION_H
#define TOOL_MODEL_GENERATION_H

#include "model/sampling.h"
#include "model/stopper.h"

/* Why a text ended. */
typedef enum tool_end {
    TOOL_END_MODEL, /* the model said that it is done */
    TOOL_END_LIMIT, /* --n-predict */
    TOOL_END_STOP,  /* a stop text */
    TOOL_END_FULL,  /* no room in the context */
    TOOL_END_SIGNAL,
    TOOL_END_OUTPUT, /* nobody reads it any more */
    TOOL_END_FAILED  /* the sentence was printed */
} tool_end;

typedef struct tool_counts {
    uint64_t prompt_tokens, prompt_ns;
    uint64_t kept_tokens;      /* of the prompt, that were in the cache */
    uint64_t tokens, token_ns; /* generated; the time after the first one */
    uint64_t first_ns;         /* from the prompt to the first token */
} tool_counts;

/* Takes a piece of text. Not 0: no more. */
typedef int (*tool_writer)(void *context, const char *text, size_t length);

typedef struct tool_generation {
    tool_model *model;
    mica_context *context;
    uint32_t sequence, capacity;
    tool_sampling sampling;
    mica_sampler *sampler;
    mica_detokenizer *detokenizer;
    tool_stopper stopper;
    int64_t limit;     /* tokens at most; -1: none */
    uint32_t logprobs; /* on stderr for each token, with so many of the likeliest; 0: none */
    tool_writer write;
    void *write_context;
    tool_counts counts; /* of the last text */
} tool_generation;

/* As the options say. `prompt_tokens` is what --keep -1 keeps; `at_start`: the text begins with what is generated.
 * Returns the exit status; the caller closes it in any case. */
int tool_generation_open(const tool_call *call, tool_model *model, uint32_t prompt_tokens, int at_start,
                         tool_generation *out);
void tool_generation_close(tool_generation *generation);
/* The sampler anew, after a change of sampling.values. 0, or 1 after printing why not. */
int tool_generation_resample(tool_generation *generation);

/* Feeds tokens, the prompt or the rest of it, and writes what follows them. Penalties know `history`, all tokens of the
 * text so far. */
tool_end tool_generate(tool_generation *generation, const uint32_t *tokens, uint32_t count,
                       const uint32_t *history, uint32_t history_count);
/* Rates, time to the first token and memory, on standard error. */
void tool_generation_report(const tool_generation *generation, tool_end end);

/* The ids of a text, to be freed. 0, or 1 after printing why not. */
int tool_encode(const mica_tokenizer *tokenizer, const char *text, size_t length, uint32_t flags,
                uint32_t **out_ids, uint32_t *out_count);

#endif
