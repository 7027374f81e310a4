/* commands.c - the table of commands and options. Help, manual page, completions and parser read it; it is the only
 * place where a command or an option is written down. */
#include "commands.h"

#include <stdio.h>

#include "groups.h"
#include "mica/mica.h"
#include "terminal/output.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* What quantize takes, as the library names it. */
#define TYPES                                                                                              \
    "f32|f16|bf16|q4_0|q4_1|q5_0|q5_1|q8_0|q2_k|q2_k_s|q3_k|q3_k_s|q3_k_m|q3_k_l|q4_k|q4_k_s|q4_k_m|q5_k|" \
    "q5_k_s|"                                                                                              \
    "q5_k_m|q6_k|iq4_nl|iq4_xs|tq1_0|tq2_0|mxfp4_moe|mxfp4|nvfp4"

#define FORCE                                                                               \
    {                                                                                       \
        "force", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "replace an output that is there" \
    }
#define WORKERS                                                                           \
    {                                                                                     \
        "threads", "-t", TOOL_NUMBER, "N", NULL, "0", 0, 1024, "threads; 0 is one a core" \
    }
#define TENSORS                                                                 \
    {                                                                           \
        "tensors", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "list every tensor" \
    }

static const tool_option run_options[] = {
    {"prompt", "-p", TOOL_WORD, "TEXT", NULL, NULL, 0, 0, "text to go on from"},
    {"file", "-f", TOOL_PATH, "FILE", NULL, NULL, 0, 0, "the same from a file; - is standard input"},
    {"no-display-prompt", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "print only what the model writes"},
    {"logprobs", NULL, TOOL_NUMBER, "N", NULL, "0", 0, 64,
     "for each token, on standard error, its log-probability and those of the N likeliest"},
};
static const tool_group run_group = {"prompt", run_options, COUNT(run_options)};

static const tool_option chat_options[] = {
    {"system", "-sys|--system-prompt", TOOL_WORD, "TEXT", NULL, NULL, 0, 0, "what the model is told first"},
    {"chat-template", NULL, TOOL_PATH, "FILE", NULL, NULL, 0, 0,
     "Jinja template in place of the model's own; or one of chatml, llama3, gemma"},
};
static const tool_group chat_group = {"conversation", chat_options, COUNT(chat_options)};

static const tool_option embed_options[] = {
    {"prompt", "-p", TOOL_REPEATED, "TEXT", NULL, NULL, 0, 0, "text to embed; may be repeated"},
    {"file", "-f", TOOL_PATH, "FILE", NULL, NULL, 0, 0, "a text on each line; - is standard input"},
    {"pooling", NULL, TOOL_WORD, "HOW", "mean|cls|last", NULL, 0, 0,
     "how the vectors of the tokens become one; else as the model says"},
    {"no-normalize", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "leave the vector at its length, not at 1"},
    {"ctx-size", "-c", TOOL_NUMBER, "N", NULL, "0", 0, 1u << 20,
     "tokens of the longest text; 0 is what the model was trained for, at most 4096"},
    TOOL_JSON_OPTION,
};
static const tool_group embed_group = {"texts", embed_options, COUNT(embed_options)};

static const tool_option tokenize_options[] = {
    {"model", "-m", TOOL_PATH, "MODEL", NULL, NULL, 0, 0, "model file or folder; its vocabulary is enough"},
    {"prompt", "-p", TOOL_WORD, "TEXT", NULL, NULL, 0, 0, "text to cut into tokens"},
    {"file", "-f", TOOL_PATH, "FILE", NULL, NULL, 0, 0, "the same from a file; - is standard input"},
    {"ids", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "only the ids, on one line"},
    {"special", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0,
     "add the tokens that the model wants, and take the text of control tokens as those"},
    TOOL_ACCEPT_OPTION,
};
static const tool_group tokenize_group = {"options", tokenize_options, COUNT(tokenize_options)};

static const tool_option template_options[] = {
    {"chat-template", NULL, TOOL_PATH, "FILE", NULL, NULL, 0, 0, "the Jinja template; - is standard input"},
    {"messages", NULL, TOOL_PATH, "FILE", NULL, NULL, 0, 0,
     "JSON: a list of messages, or an object with \"messages\" and other variables"},
    {"tools", NULL, TOOL_PATH, "FILE", NULL, NULL, 0, 0, "JSON: the list of tools that the model may call"},
    {"no-generation-prompt", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "do not begin the answer of the model"},
};
static const tool_group template_group = {"options", template_options, COUNT(template_options)};

static const tool_option perplexity_options[] = {
    {"file", "-f", TOOL_PATH, "FILE", NULL, NULL, 0, 0, "the text; - is standard input"},
    {"ctx-size", "-c", TOOL_NUMBER, "N", NULL, "512", 4, 1u << 20, "tokens of a chunk"},
    TOOL_BATCH_OPTIONS,
    TOOL_CACHE_OPTIONS,
    {"chunks", NULL, TOOL_NUMBER, "N", NULL, "-1", -1, 1u << 30, "chunks to score; -1 is all"},
    TOOL_JSON_OPTION,
};
static const tool_group perplexity_group = {"text", perplexity_options, COUNT(perplexity_options)};

static const tool_option train_options[] = {
    {"data", NULL, TOOL_PATH, "FILE", NULL, NULL, 0, 0,
     "a text; or .jsonl: on each line {\"prompt\": .., \"completion\": ..}, of which the completion is "
     "learned"},
    {"lora-out", NULL, TOOL_PATH, "FILE", NULL, NULL, 0, 0, "the adapter to write (GGUF)"},
    {"rank", NULL, TOOL_NUMBER, "N", NULL, "8", 1, 4096, "rank of the adapter's matrices"},
    {"alpha", NULL, TOOL_REAL, "X", NULL, "16", 1e-6, 1e6, "what they add counts X / rank times"},
    {"targets", NULL, TOOL_WORD, "NAMES", NULL, NULL, 0, 0,
     "matrices of each layer, with commas: attn_q, attn_k, attn_v, attn_qkv, attn_output, ffn_gate, ffn_up, "
     "ffn_down, ffn_gate_inp; else all that the model has but the last"},
    {"steps", NULL, TOOL_NUMBER, "N", NULL, "100", 1, 1u << 30, "steps of the optimiser (AdamW)"},
    {"batch", "-b", TOOL_NUMBER, "N", NULL, "8", 1, 1024, "texts of a step"},
    {"length", NULL, TOOL_NUMBER, "N", NULL, "0", 0, 1u << 20,
     "tokens of a text; 0: 128, of .jsonl as long as the longest line is"},
    {"learning-rate", "-lr", TOOL_REAL, "X", NULL, "0.001", 0, 1000,
     "its greatest value: it rises for a tenth of the steps, and falls to a tenth of itself as half a wave"},
    {"seed", "-s", TOOL_NUMBER, "N", NULL, "1", 0, 9e18,
     "of the adapter's first values and the order of texts"},
    {"checkpoint", NULL, TOOL_PATH, "FILE", NULL, NULL, 0, 0,
     "where the run stands, written every 50 steps and at its end (.safetensors)"},
    {"resume", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "go on from the checkpoint, if it is there"},
    {"model", "-m", TOOL_PATH, "MODEL", NULL, NULL, 0, 0,
     "GGUF file, HF folder or MLX folder, of any type; else the model inside the tool"},
    TOOL_DEVICE_OPTION,
    TOOL_THREADS_OPTION,
    TOOL_ACCEPT_OPTION,
};
static const tool_group train_group = {"training", train_options, COUNT(train_options)};

static const tool_option bench_options[] = {
    {"op", NULL, TOOL_WORD, "NAME", NULL, NULL, 0, 0,
     "of 'bench ops': only this op, e.g. matmul; a list with commas"},
    {"type", NULL, TOOL_WORD, "NAME", NULL, NULL, 0, 0, "of 'bench ops': only rows of this type, e.g. q4_0"},
    {"quick", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0,
     "of 'bench ops': operands that stay in the caches, each run once; of 'bench fusion': only the smallest "
     "size, of 'bench region': up to 10^7 elements"},
    {"model", "-m", TOOL_PATH, "MODEL", NULL, NULL, 0, 0, "models to measure, separated by commas"},
    {"n-prompt", "-p", TOOL_WORD, "N", NULL, "512", 0, 0,
     "tokens of a prompt; a list with commas; 0 is none"},
    {"n-gen", "-n", TOOL_WORD, "N", NULL, "128", 0, 0, "tokens to generate; a list with commas; 0 is none"},
    {"n-depth", "-d", TOOL_WORD, "N", NULL, "0", 0, 0, "tokens in the context before; a list with commas"},
    {"repetitions", "-r", TOOL_NUMBER, "N", NULL, "5", 1, 10000, "times that each test is run"},
    TOOL_BATCH_OPTIONS,
    TOOL_CACHE_OPTIONS,
    {"threads", "-t", TOOL_WORD, "N", NULL, "0", 0, 0,
     "threads of the cpu device, a list with commas for models; 0 is one a core"},
    TOOL_DEVICE_OPTION,
    TOOL_JSON_OPTION,
    {"md", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "print a table in Markdown"},
    {"profile", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0,
     "of models: the time of each kernel in one more prompt or step, which run one at a time then"},
    TOOL_ACCEPT_OPTION,
};
static const tool_group bench_group = {"options", bench_options, COUNT(bench_options)};

static const tool_option pass_options[] = {
    {"shape", NULL, TOOL_WORD, "NAME", "tiny|1b", "tiny", 0, 0, "size of the model"},
    {"type", NULL, TOOL_WORD, "TYPE", "q4_0|q8_0|q4_k|f16", "q4_0", 0, 0, "type of the weights"},
    {"tokens", NULL, TOOL_NUMBER, "N", NULL, "128", 1, 100000, "tokens to decode in each way"},
    TOOL_DEVICE_OPTION,
    TOOL_THREADS_OPTION,
    TOOL_JSON_OPTION,
};
static const tool_group pass_group = {"options", pass_options, COUNT(pass_options)};

static const tool_option info_options[] = {
    TOOL_JSON_OPTION,
    {"calibrate", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0,
     "measure how fast each device is, and keep the figures"},
};
static const tool_group info_group = {"options", info_options, COUNT(info_options)};

static const tool_option graph_options[] = {
    {"inputs", "-i", TOOL_PATH, "FILE", NULL, NULL, 0, 0,
     "npz, npy or safetensors file with the inputs by their names; else random ones"},
    {"outputs", "-o", TOOL_PATH, "FILE", NULL, NULL, 0, 0,
     "of 'graph run': npz or safetensors file for the outputs; else their first elements are printed"},
    {"parameters", NULL, TOOL_PATH, "FILE", NULL, NULL, 0, 0,
     "file or folder with tensors for the graph's parameters"},
    {"mode", NULL, TOOL_WORD, "HOW", "eager|lazy|compiled", NULL, 0, 0, "how it runs; else compiled"},
    {"precision", NULL, TOOL_WORD, "TYPE", "as-written|f16|bf16", "as-written", 0, 0,
     "type of products, convolutions and attention"},
    {"seed", NULL, TOOL_NUMBER, "N", NULL, "1", 0, 1u << 30, "of random inputs"},
    {"seconds", NULL, TOOL_REAL, "S", NULL, "2", 0, 3600, "of 'graph bench': how long"},
    {"dot", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "of 'graph print': for Graphviz"},
    {"optimised", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "of 'graph print': behind the passes"},
    {"device", "-dev", TOOL_WORD, "ID", NULL, "auto", 0, 0,
     "device to run on, as 'mica info' names it; or a list with commas, one for each place of the graph, "
     "whose "
     "nodes are put where they are done first if the file says no places"},
    TOOL_THREADS_OPTION,
    TOOL_JSON_OPTION,
};
static const tool_group graph_group = {"options", graph_options, COUNT(graph_options)};

static const tool_option inspect_options[] = {
    TENSORS,
    {"ctx", NULL, TOOL_NUMBER, "N", NULL, "4096", 1, 1u << 30, "context length of the memory estimate"},
    TOOL_JSON_OPTION,
};
static const tool_group inspect_group = {"options", inspect_options, COUNT(inspect_options)};

static const tool_option quantize_options[] = {
    {"imatrix", NULL, TOOL_PATH, "FILE", NULL, NULL, 0, 0,
     "importance matrix (GGUF) that weights the errors"},
    {"keep", NULL, TOOL_REPEATED, "PATTERN=TYPE", NULL, NULL, 0, 0,
     "type of the tensors of these names (* and ?)"},
    {"pure", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "every matrix gets TYPE, no mix"},
    TOOL_ACCEPT_OPTION,
    WORKERS,
    FORCE,
};
static const tool_group quantize_group = {"options", quantize_options, COUNT(quantize_options)};

static const tool_option convert_options[] = {
    {"type", NULL, TOOL_WORD, "TYPE", NULL, NULL, 0, 0,
     "type of the matrices; else as they are where OUT can hold it"},
    {"format", NULL, TOOL_WORD, "FORMAT", "gguf|safetensors|mlx", NULL, 0, 0,
     "format of OUT; else by its ending, and mlx for affine types"},
    {"group-size", NULL, TOOL_NUMBER, "N", NULL, "0", 0, 128,
     "values that share a scale in affine types: 32, 64 or 128; 0 is 64"},
    TOOL_ACCEPT_OPTION,
    {"without-tokenizer", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "leave the tokenizer out"},
    WORKERS,
    FORCE,
};
static const tool_group convert_group = {"options", convert_options, COUNT(convert_options)};

static const tool_option diff_options[] = {TENSORS, TOOL_JSON_OPTION};
static const tool_group diff_group = {"options", diff_options, COUNT(diff_options)};

static const tool_command commands[] = {
    {
        .name = "run",
        .summary = "let a model go on with a text",
        .description =
            "Prints the prompt and what the model writes after it on standard output; statistics go to "
            "standard "
            "error. Without --model it is the model inside the tool. Without a prompt it is what is piped "
            "in: "
            "echo hi | mica run -m MODEL. On a terminal control characters that the model writes are shown "
            "as "
            "escapes, except for newlines and tabs; into a pipe or a file its text goes as it is. Filters "
            "are applied in the order: bias, "
            "grammar, penalties, DRY, top-k, typical, top-p, min-p, XTC, temperature. Ctrl-C ends the text, "
            "when "
            "the exit status is 130.",
        .argument = {{"PROMPT", TOOL_WORD, NULL, 1}},
        .group = {&run_group, &tool_generation_group, &tool_model_group, &tool_context_group,
                  &tool_sampling_group},
        .run = tool_run,
    },
    {
        .name = "chat",
        .summary = "talk with a model",
        .description =
            "Each line is a message; a backslash at its end continues it on the next. Lines that "
            "begin with a slash "
            "are commands: /help lists them. Ctrl-C stops the answer, Ctrl-D ends. What was said "
            "before stays in the "
            "cache, so only what is new is read. Lines that are pasted are one message. With MESSAGE, "
            "that is answered and nothing else. Works in a pipe too: a line in, an answer out. The "
            "terminal's text is UTF-8, whatever the locale.",
        .argument = {{"MESSAGE", TOOL_WORD, NULL, 1}},
        .group = {&chat_group, &tool_generation_group, &tool_model_group, &tool_context_group,
                  &tool_sampling_group},
        .run = tool_chat,
    },
    {
        .name = "embed",
        .summary = "turn texts into vectors",
        .description =
            "Prints the vector of each text on a line, numbers separated by blanks, or as JSON. Without a "
            "text those of standard input are taken, one on each line, where it is piped.",
        .argument = {{"TEXT", TOOL_WORD, NULL, 1}},
        .group = {&embed_group, &tool_model_group},
        .run = tool_embed,
    },
    {
        .name = "tokenize",
        .summary = "cut a text into a model's tokens",
        .description =
            "Prints each token on a line, its id and its text in the vocabulary; with --ids the ids alone, "
            "on one line. Nothing is added unless --special says so. Without a text it is what is piped in, "
            "with "
            "its newlines.",
        .argument = {{"TEXT", TOOL_WORD, NULL, 1}},
        .group = {&tokenize_group},
        .run = tool_tokenize,
    },
    {
        .name = "template",
        .summary = "show the prompt that a chat template makes",
        .description =
            "Prints what the template makes of the messages, and nothing else. Variables that are not given, "
            "such as bos_token, are undefined. A template is run in a sandbox with limits; what is wrong "
            "with it is told with line and column.",
        .group = {&template_group},
        .run = tool_template,
    },
    {
        .name = "train",
        .summary = "teach a model something new, as an adapter",
        .description = "Fine-tunes a model: beside its matrices, which stay as they are in whatever type, "
                       "matrices of low rank "
                       "(LoRA) learn to foretell the tokens of --data. They are written as one GGUF file, "
                       "which 'mica run --lora' "
                       "and other programs apply. A text is cut at random places; of .jsonl each line is a "
                       "text of its own, which "
                       "ends with the model's token for that. The same options and data give the same "
                       "adapter. Ctrl-C ends a run; "
                       "with --checkpoint it goes on with --resume, to the same adapter.",
        .group = {&train_group},
        .run = tool_train,
    },
    {
        .name = "perplexity",
        .summary = "measure how well a model foretells a text",
        .description = "Cuts the text into chunks of --ctx-size tokens, each beginning with the token of the "
                       "beginning where "
                       "the model has one, and scores the second half of each: the same figure as "
                       "llama-perplexity's. Without --file the text is what is piped in. The "
                       "running values go to standard error, the result to standard output.",
        .group = {&perplexity_group, &tool_model_group},
        .run = tool_perplexity,
    },
    {
        .name = "info",
        .summary = "show the devices of this machine",
        .description =
            "Lists every device that mica looked for: what it is, how much memory it has, which instruction "
            "set its kernels use, and for a device that is not used, why. With --calibrate also what each "
            "reaches: about two seconds for each, in which nothing else should run. The figures are kept "
            "where compiled kernels are, and graphs are put on the device that they say is done first.",
        .group = {&info_group},
        .run = tool_info,
    },
    {
        .name = "cache",
        .summary = "list or clear the compiled GPU kernels on disk",
        .description = "Kernels are compiled on first use and kept in MICA_CACHE_DIR, else in mica/ below "
                       "XDG_CACHE_HOME or "
                       "~/.cache. Clearing costs nothing but the time to compile them again.",
        .argument = {{"ACTION", TOOL_WORD, "list|clear", 0}},
        .group = {&tool_json_group},
        .run = tool_cache,
    },
    {
        .name = "bench",
        .summary = "measure the speed of models, of single ops, and of mica itself",
        .description =
            "With --model: tokens a second of each model reading a prompt (pp) and generating (tg), mean and "
            "deviation over the repetitions after a warm-up, random tokens. 'bench ops' measures first what "
            "the device can read and compute at most, then each op: time, bytes and "
            "operations a second, and the share of the nearer of the two ceilings. Operands are larger "
            "than the caches where a model's would be. Quantised matmuls may pass the ceiling of f32, "
            "since they multiply numbers of 8 bits. Each row names the kernels that ran. 'bench launch' "
            "replays recordings of small kernels "
            "that each wait for the one before: the time of one is what a device needs to get from one "
            "kernel to the next, on the cpu its barrier. 'bench overhead' is what a record costs the host: "
            "encoded, kept for a recording, replayed; and 20,000 of them made a recording. 'bench graph' is "
            "what a "
            "node of a graph costs: built, made ready, and run in each mode. 'bench fusion' "
            "replays the records of each fusion "
            "alone, "
            "as they are and joined, in turn. 'bench region' runs programs of a few steps over 10^3 to 10^8 "
            "elements, beside a copy. 'bench load' opens the file of --model and brings its tensors "
            "to the device by every way: mapped or read, as they are or packed.",
        .argument = {{"WHAT", TOOL_WORD, "ops|launch|overhead|graph|fusion|region|load", 1}},
        .group = {&bench_group},
        .run = tool_bench,
    },
    {
        .name = "pass",
        .summary = "decode with a recorded transformer pass and time it",
        .description =
            "Builds a decoder of a real shape with random weights and decodes tokens in three ways: op by "
            "op, by replaying a recording, and by replaying the recording after fusion and reordering. The "
            "three must give the same tokens.",
        .group = {&pass_group},
        .run = tool_pass,
    },
    {
        .name = "graph",
        .summary = "run, print or measure a graph: an ONNX file, or one that was saved",
        .description = "'graph run' opens the file, feeds the inputs by their names and writes the outputs. "
                       "'graph print' shows a node on each line, "
                       "with types and shapes. 'graph bench' runs it again and again with inputs that lie on "
                       "the device: least and median time, what "
                       "planning took, memory of temporaries and the least that their schedule allows. "
                       "Files: ONNX (.onnx), graphs saved by "
                       "mica_graph_save, text as 'graph print' writes it (.txt). What a file asks for and "
                       "mica does not have is refused by name.",
        .argument = {{"WHAT", TOOL_WORD, "run|print|bench", 0}, {"FILE", TOOL_PATH, NULL, 0}},
        .group = {&graph_group},
        .run = tool_graph,
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
        .group = {&inspect_group},
        .run = tool_inspect,
    },
    {
        .name = "quantize",
        .summary = "make a model smaller",
        .description =
            "Writes the model IN as the GGUF file OUT with its matrices in TYPE: a type such as "
            "q4_0, or a mix such "
            "as q4_k_m, which gives some tensors more bits. --keep may be given more than once; "
            "the first pattern "
            "that fits decides. A model that is quantized already is taken, with a warning: the errors "
            "of both add up. OUT appears whole or not at all, also after Ctrl-C, when the exit "
            "status is 130.",
        .argument = {{"IN", TOOL_PATH, NULL, 0},
                     {"OUT", TOOL_PATH, NULL, 0},
                     {"TYPE", TOOL_ANY_CASE, TYPES, 0}},
        .group = {&quantize_group},
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
        .group = {&convert_group},
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
        .group = {&diff_group},
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
