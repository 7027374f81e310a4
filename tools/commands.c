/* commands.c - the table of commands and options. Help, manual page, completions and parser read it; it is the only
 * place where a command or an option is written down. */
#include "commands.h"

#include <stdio.h>

#include "mica/mica.h"
#include "output.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))
#define THREADS                                                                                       \
    {                                                                                                 \
        "threads", TOOL_NUMBER, "N", NULL, "0", 0, 1024, "threads of the cpu device; 0 is one a core" \
    }
#define DEVICE                                                                                     \
    {                                                                                              \
        "device", TOOL_WORD, "ID", NULL, "auto", 0, 0, "device to run on, as 'mica info' names it" \
    }
#define JSON                                                                 \
    {                                                                        \
        "json", TOOL_FLAG, NULL, NULL, NULL, 0, 0, "print JSON for programs" \
    }

static const tool_option info_options[] = {JSON};

static const tool_option bench_options[] = {
    {"op", TOOL_WORD, "NAME", NULL, NULL, 0, 0, "only this op, e.g. matmul"},
    DEVICE,
    THREADS,
    JSON,
};

static const tool_option pass_options[] = {
    {"shape", TOOL_WORD, "NAME", "tiny|1b", "tiny", 0, 0, "size of the model"},
    {"type", TOOL_WORD, "TYPE", "q4_0|q8_0|q4_k|f16", "q4_0", 0, 0, "type of the weights"},
    {"tokens", TOOL_NUMBER, "N", NULL, "128", 1, 100000, "tokens to decode in each way"},
    DEVICE,
    THREADS,
    JSON,
};

static const tool_command commands[] = {
    {
        .name = "info",
        .summary = "show the devices of this machine",
        .description =
            "Lists every device that mica looked for: what it is, how much memory it has, which instruction "
            "set its kernels use, and for a device that is not used, why.",
        .options = info_options,
        .option_count = COUNT(info_options),
        .run = tool_info,
    },
    {
        .name = "bench",
        .summary = "measure the speed of single ops",
        .description =
            "Measures first what the device can read and compute at most, then each op: time, bytes and "
            "operations a second, and the share of the nearer of the two ceilings. Operands are larger "
            "than the caches where a model's would be. Quantised matmuls may pass the ceiling of f32, "
            "since they multiply numbers of 8 bits.",
        .argument = "WHAT",
        .choices = "ops",
        .options = bench_options,
        .option_count = COUNT(bench_options),
        .run = tool_bench,
    },
    {
        .name = "pass",
        .summary = "decode with a recorded transformer pass and time it",
        .description =
            "Builds a decoder of a real shape with random weights and decodes tokens in three ways: op by "
            "op, by replaying a recording, and by replaying the recording after fusion and reordering. The "
            "three must give the same tokens.",
        .options = pass_options,
        .option_count = COUNT(pass_options),
        .run = tool_pass,
    },
    {
        .name = "help",
        .summary = "explain a command",
        .description = "Without a command: what commands there are.",
        .argument = "CMD",
        .optional = 1,
        .run = tool_help,
    },
    {
        .name = "completion",
        .summary = "print the completion script of a shell",
        .description = "For example: eval \"$(mica completion bash)\".",
        .argument = "SHELL",
        .choices = "bash|zsh|fish",
        .run = tool_completion,
    },
    {
        .name = "man",
        .summary = "print the manual page",
        .description = "In roff, as man(1) reads it: mica man | man -l -",
        .run = tool_man,
    },
    {
        .name = "version",
        .summary = "print the version",
        .description = "The same as mica --version.",
        .run = tool_version,
    },
};

const tool_command *tool_commands(size_t *out_count)
{
    *out_count = COUNT(commands);
    return commands;
}

int tool_help(const tool_call *call)
{
    if (call->argument == NULL) {
        tool_print_overview();
        return 0;
    }
    const tool_command *command = tool_command_find(call->argument);
    if (command == NULL)
        return tool_misuse("help: there is no command \"%.40s\"; 'mica help' lists them", call->argument);
    tool_print_help(command);
    return 0;
}

int tool_completion(const tool_call *call)
{
    return tool_print_completion(call->argument);
}

int tool_man(const tool_call *call)
{
    (void)call;
    tool_print_manual();
    return 0;
}

int tool_version(const tool_call *call)
{
    (void)call;
    printf("mica %s\n", mica_version());
    return 0;
}
