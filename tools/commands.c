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

/* What quantize takes, as the library names it. */
#define TYPES                                                                                              \
    "f32|f16|bf16|q4_0|q4_1|q5_0|q5_1|q8_0|q2_k|q2_k_s|q3_k|q3_k_s|q3_k_m|q3_k_l|q4_k|q4_k_s|q4_k_m|q5_k|" \
    "q5_k_s|"                                                                                              \
    "q5_k_m|q6_k|iq4_nl|iq4_xs|tq1_0|tq2_0|mxfp4_moe|mxfp4|nvfp4"

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

#define FORCE                                                                         \
    {                                                                                 \
        "force", TOOL_FLAG, NULL, NULL, NULL, 0, 0, "replace an output that is there" \
    }
#define WORKERS                                                                     \
    {                                                                               \
        "threads", TOOL_NUMBER, "N", NULL, "0", 0, 1024, "threads; 0 is one a core" \
    }
#define TENSORS                                                           \
    {                                                                     \
        "tensors", TOOL_FLAG, NULL, NULL, NULL, 0, 0, "list every tensor" \
    }

static const tool_option inspect_options[] = {
    TENSORS,
    {"ctx", TOOL_NUMBER, "N", NULL, "4096", 1, 1u << 30, "context length of the memory estimate"},
    JSON,
};

static const tool_option quantize_options[] = {
    {"imatrix", TOOL_PATH, "FILE", NULL, NULL, 0, 0, "importance matrix (GGUF) that weights the errors"},
    {"keep", TOOL_REPEATED, "PATTERN=TYPE", NULL, NULL, 0, 0, "type of the tensors of these names (* and ?)"},
    {"pure", TOOL_FLAG, NULL, NULL, NULL, 0, 0, "every matrix gets TYPE, no mix"},
    WORKERS,
    FORCE,
};

static const tool_option convert_options[] = {
    {"type", TOOL_WORD, "TYPE", NULL, NULL, 0, 0,
     "type of the matrices; else as they are where OUT can hold it"},
    WORKERS,
    FORCE,
};

static const tool_option diff_options[] = {TENSORS, JSON};

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
        .argument = {{"WHAT", TOOL_WORD, "ops", 0}},
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
        .name = "inspect",
        .summary = "show what a model file or folder holds",
        .description =
            "Prints kind, metadata, number of parameters, how the types share the bytes, and an estimate of "
            "the memory that the weights and a KV cache of 16-bit floats take. Reads GGUF, safetensors, MLX "
            "folders, npy and npz. Nothing in the file is trusted: control characters are shown as escapes. "
            "With --json everything is printed, long lists too.",
        .argument = {{"FILE", TOOL_PATH, NULL, 0}},
        .options = inspect_options,
        .option_count = COUNT(inspect_options),
        .run = tool_inspect,
    },
    {
        .name = "quantize",
        .summary = "make a model smaller",
        .description = "Writes the model IN as the GGUF file OUT with its matrices in TYPE: a type such as "
                       "q4_0, or a mix such "
                       "as q4_k_m, which gives some tensors more bits. --keep may be given more than once; "
                       "the first pattern "
                       "that fits decides. OUT appears whole or not at all, also after Ctrl-C, when the exit "
                       "status is 130.",
        .argument = {{"IN", TOOL_PATH, NULL, 0},
                     {"OUT", TOOL_PATH, NULL, 0},
                     {"TYPE", TOOL_ANY_CASE, TYPES, 0}},
        .options = quantize_options,
        .option_count = COUNT(quantize_options),
        .run = tool_quantize,
    },
    {
        .name = "convert",
        .summary = "write a model in another format",
        .description =
            "Writes the model IN as OUT: a GGUF file if OUT ends in .gguf, a safetensors file if it ends in "
            ".safetensors, else a folder with a config.json. The names and metadata of known families are "
            "translated. OUT appears whole or not at all, also after Ctrl-C, when the exit status is 130.",
        .argument = {{"IN", TOOL_PATH, NULL, 0}, {"OUT", TOOL_PATH, NULL, 0}},
        .options = convert_options,
        .option_count = COUNT(convert_options),
        .run = tool_convert,
    },
    {
        .name = "diff",
        .summary = "compare two models",
        .description = "Compares metadata, and tensors by their names: type, shape, and the values after "
                       "decoding, with the "
                       "largest error, the RMS error, and that divided by the RMS of A. Without --tensors "
                       "the ten worst are "
                       "shown. A and B may be of different kinds. The exit status is 0 if nothing differs, 1 "
                       "if something "
                       "does, 2 after wrong usage or a failure.",
        .argument = {{"A", TOOL_PATH, NULL, 0}, {"B", TOOL_PATH, NULL, 0}},
        .options = diff_options,
        .option_count = COUNT(diff_options),
        .run = tool_diff,
    },
    {
        .name = "help",
        .summary = "explain a command",
        .description = "Without a command: what commands there are.",
        .argument = {{"CMD", TOOL_COMMAND_NAME, NULL, 1}},
        .run = tool_help,
    },
    {
        .name = "completion",
        .summary = "print the completion script of a shell",
        .description = "For example: eval \"$(mica completion bash)\".",
        .argument = {{"SHELL", TOOL_WORD, "bash|zsh|fish", 0}},
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
    if (call->argument[0] == NULL) {
        tool_print_overview();
        return 0;
    }
    const tool_command *command = tool_command_find(call->argument[0]);
    if (command == NULL)
        return tool_misuse("help: there is no command \"%.40s\"; 'mica help' lists them", call->argument[0]);
    tool_print_help(command);
    return 0;
}

int tool_completion(const tool_call *call)
{
    return tool_print_completion(call->argument[0]);
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
