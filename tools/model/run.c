/* run.c - `mica run`: a prompt and what a model writes after it. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "model/generation.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"
#include "terminal/text.h"

static const char standard_prompt[] = "Once upon a time";

typedef struct run_state {
    tool_model model;
    tool_generation generation;
    tool_input prompt;
    uint32_t *ids;
    uint32_t count;
    int is_terminal; /* standard output is one */
} run_state;

static int write_text(void *context, const char *text, size_t length)
{
    tool_text_show(stdout, text, length, ((const run_state *)context)->is_terminal);
    return tool_output_flush();
}

/* The prompt as it was meant: escapes of an option, and the newline that ends a file, are the user's editor's. */
static int read_prompt(const tool_call *call, tool_input *out)
{
    tool_origin origin;
    int result = tool_input_prompt(call, out, &origin);
    if (result != 0)
        return result;
    if (origin == TOOL_ORIGIN_NONE)
        return tool_word(call, "model") != NULL ? tool_input_missing(call)
                                                : tool_input_copy(standard_prompt, out);
    if (origin == TOOL_ORIGIN_FILE)
        tool_input_end_line(out);
    else if (!tool_flag(call, "no-escape"))
        out->length = tool_input_unescape(out->text);
    return 0;
}

static int encode_prompt(run_state *run)
{
    int result = tool_model_need_tokenizer(&run->model);
    if (result == 0)
        result = tool_encode(run->model.tokenizer, run->prompt.text, run->prompt.length,
                             MICA_ENCODE_ADD | MICA_ENCODE_SPECIAL, &run->ids, &run->count);
    if (result == 0 && run->count == 0)
        return tool_fail("the prompt is empty, and the model has no token for the beginning of a text");
    return result;
}

static int run_prompt(const tool_call *call, run_state *run)
{
    tool_generation *g = &run->generation;
    int result = encode_prompt(run);
    if (result == 0)
        result = tool_generation_open(call, &run->model, run->count, run->prompt.length == 0, g);
    if (result != 0)
        return result;
    if (run->count > g->capacity)
        return tool_fail("the prompt has %u tokens, the context holds %u; --ctx-size makes it larger",
                         run->count, g->capacity);
    g->write = write_text;
    g->write_context = run;
    g->logprobs = (uint32_t)tool_number(call, "logprobs");
    if (!tool_flag(call, "no-display-prompt") && write_text(run, run->prompt.text, run->prompt.length))
        return 1;
    tool_end end = tool_generate(g, run->ids, run->count, run->ids, run->count);
    if (end != TOOL_END_OUTPUT)
        putchar('\n');
    fflush(stdout);
    if (!tool_flag(call, "no-perf") && end != TOOL_END_FAILED)
        tool_generation_report(g, end);
    if (end == TOOL_END_SIGNAL)
        return 128 + tool_interrupt_number();
    return end == TOOL_END_FAILED || end == TOOL_END_OUTPUT;
}

int tool_run(const tool_call *call)
{
    run_state run = {.is_terminal = isatty(STDOUT_FILENO)};
    int result = read_prompt(call, &run.prompt);
    if (result == 0)
        result = tool_model_open(call, &run.model);
    if (result == 0)
        result = run_prompt(call, &run);
    tool_generation_close(&run.generation);
    tool_model_close(&run.model);
    tool_input_free(&run.prompt);
    free(run.ids);
    return result;
}
