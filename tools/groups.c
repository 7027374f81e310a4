/* groups.c - the options that several commands take. Names and defaults are llama.cpp's where it has the option. */
#include "groups.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const tool_option json_options[] = {TOOL_JSON_OPTION};
const tool_group tool_json_group = {"options", json_options, COUNT(json_options)};

static const tool_option model_options[] = {
    {"model", "-m", TOOL_PATH, "MODEL", NULL, NULL, 0, 0,
     "GGUF file, HF folder or MLX folder; else the model inside the tool"},
    TOOL_DEVICE_OPTION,
    TOOL_THREADS_OPTION,
    {"no-mmap", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "read the weights into memory, do not map them"},
    {"mlock", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "keep the weights from being swapped out"},
    {"no-repack", "-nr", TOOL_FLAG, NULL, NULL, NULL, 0, 0,
     "leave the weights in the file's layout: less memory, slower"},
    {"lora", NULL, TOOL_REPEATED, "FILE", NULL, NULL, 0, 0,
     "adapter (GGUF) to apply, as 'mica train' writes one; may be repeated"},
    {"lora-scaled", NULL, TOOL_PAIR, "FILE SCALE", NULL, NULL, 0, 0,
     "the same so many times as strong; may be repeated"},
    TOOL_ACCEPT_OPTION,
};
const tool_group tool_model_group = {"model", model_options, COUNT(model_options)};

static const tool_option context_options[] = {
    {"ctx-size", "-c", TOOL_NUMBER, "N", NULL, "0", 0, 1u << 24,
     "tokens of context; 0 is 4096, or what the model was trained for if less"},
    TOOL_BATCH_OPTIONS,
    TOOL_CACHE_OPTIONS,
    {"context-shift", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0,
     "forget the older half of the text when the context is full, instead of stopping"},
    {"keep", NULL, TOOL_NUMBER, "N", NULL, "0", -1, 1u << 30,
     "tokens of the prompt that shifting never forgets; -1 is all"},
};
const tool_group tool_context_group = {"context", context_options, COUNT(context_options)};

static const tool_option sampling_options[] = {
    {"temp", "--temperature", TOOL_REAL, "T", NULL, "0.8", 0, 1000,
     "temperature; 0 takes the most likely token"},
    {"seed", "-s", TOOL_NUMBER, "N", NULL, "-1", -1, 9e18,
     "seed of the random numbers; -1 is a new one each time"},
    {"top-k", NULL, TOOL_NUMBER, "N", NULL, "40", 0, 1u << 30, "keep the N most likely tokens; 0 is all"},
    {"top-p", NULL, TOOL_REAL, "P", NULL, "0.95", 0, 1, "keep the likeliest tokens that make up P; 1 is all"},
    {"min-p", NULL, TOOL_REAL, "P", NULL, "0.05", 0, 1,
     "keep tokens at least P times as likely as the likeliest; 0 is all"},
    {"typical", "--typical-p", TOOL_REAL, "P", NULL, "1", 0, 1, "locally typical sampling; 1 is off"},
    {"xtc-probability", NULL, TOOL_REAL, "P", NULL, "0", 0, 1,
     "how often XTC drops the likeliest; 0 is never"},
    {"xtc-threshold", NULL, TOOL_REAL, "P", NULL, "0.1", 0, 1,
     "tokens that XTC drops are at least this likely"},
    {"repeat-penalty", NULL, TOOL_REAL, "X", NULL, "1", 0, 1000,
     "penalty of tokens that came before; 1 is none"},
    {"repeat-last-n", NULL, TOOL_NUMBER, "N", NULL, "64", -1, 1u << 30,
     "tokens that the penalties look back on; 0 is none, -1 the context"},
    {"presence-penalty", NULL, TOOL_REAL, "X", NULL, "0", -1000, 1000,
     "taken off the logit of each token seen"},
    {"frequency-penalty", NULL, TOOL_REAL, "X", NULL, "0", -1000, 1000,
     "taken off for each time it was seen"},
    {"dry-multiplier", NULL, TOOL_REAL, "X", NULL, "0", 0, 1000, "strength of the DRY penalty; 0 is off"},
    {"dry-base", NULL, TOOL_REAL, "X", NULL, "1.75", 0, 1000, "growth of the DRY penalty with the length"},
    {"dry-allowed-length", NULL, TOOL_NUMBER, "N", NULL, "2", 0, 1u << 30, "repeats that DRY lets pass"},
    {"dry-penalty-last-n", NULL, TOOL_NUMBER, "N", NULL, "-1", -1, 1u << 30,
     "tokens that DRY looks back on; 0 is none, -1 is all"},
    {"dry-sequence-breaker", NULL, TOOL_REPEATED, "TEXT", NULL, NULL, 0, 0,
     "text that ends a repeat, in place of the usual ones; may be repeated; none: there are none"},
    {"mirostat", NULL, TOOL_WORD, "N", "0|2", "0", 0, 0, "2: Mirostat in place of the filters"},
    {"mirostat-lr", NULL, TOOL_REAL, "X", NULL, "0.1", 0, 1000, "learning rate of Mirostat"},
    {"mirostat-ent", NULL, TOOL_REAL, "X", NULL, "5", 0, 1000, "surprise that Mirostat aims at"},
    {"logit-bias", "-l", TOOL_REPEATED, "ID(+|-)X", NULL, NULL, 0, 0,
     "added to the logit of a token, e.g. 15043+1, 15043-inf; may be repeated"},
    {"ignore-eos", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0, "never choose a token that ends the text"},
    {"grammar", NULL, TOOL_WORD, "GBNF", NULL, NULL, 0, 0, "grammar that the text must follow"},
    {"grammar-file", NULL, TOOL_PATH, "FILE", NULL, NULL, 0, 0, "the same from a file"},
    {"json-schema", "-j", TOOL_WORD, "JSON", NULL, NULL, 0, 0, "JSON schema that the text must follow"},
    {"json-schema-file", "-jf", TOOL_PATH, "FILE", NULL, NULL, 0, 0, "the same from a file"},
};
const tool_group tool_sampling_group = {"sampling", sampling_options, COUNT(sampling_options)};

static const tool_option generation_options[] = {
    {"n-predict", "-n|--predict", TOOL_NUMBER, "N", NULL, "-1", -1, 1u << 30,
     "tokens to write at most; -1: until the model ends or the context is full"},
    {"reverse-prompt", "-r", TOOL_REPEATED, "TEXT", NULL, NULL, 0, 0,
     "text before which to stop; may be repeated"},
    {"special", "-sp", TOOL_FLAG, NULL, NULL, NULL, 0, 0, "show control tokens"},
    {"no-escape", NULL, TOOL_FLAG, NULL, NULL, NULL, 0, 0,
     "take \\n, \\t and the like in texts as they stand"},
    {"no-perf", "-q|--quiet", TOOL_FLAG, NULL, NULL, NULL, 0, 0, "no statistics on standard error"},
};
const tool_group tool_generation_group = {"text", generation_options, COUNT(generation_options)};
