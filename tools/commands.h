/* commands.h - what each command runs. Exit status: 0, 1 after a failure, 2 after wrong usage. */
#ifndef TOOL_COMMANDS_H
#define TOOL_COMMANDS_H

#include "options.h"

int tool_run(const tool_call *call);
int tool_chat(const tool_call *call);
int tool_embed(const tool_call *call);
int tool_tokenize(const tool_call *call);
int tool_template(const tool_call *call);
int tool_perplexity(const tool_call *call);
int tool_train(const tool_call *call);
int tool_info(const tool_call *call);
int tool_cache(const tool_call *call);
int tool_bench(const tool_call *call);
int tool_pass(const tool_call *call);
int tool_graph(const tool_call *call);
int tool_inspect(const tool_call *call);
int tool_quantize(const tool_call *call);
int tool_convert(const tool_call *call);
int tool_diff(const tool_call *call);
int tool_help(const tool_call *call);
int tool_completion(const tool_call *call);
int tool_man(const tool_call *call);
int tool_version(const tool_call *call);

#endif
