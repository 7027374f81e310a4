/* convert.c - `mica convert`: the library's converter with a bar. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "terminal/interrupt.h"
#include "mica/mica.h"
#include "terminal/output.h"
#include "terminal/progress.h"
#include "file/rewrite.h"

/* One of the option's choices. */
static mica_format find_format(const char *word)
{
    static const mica_format formats[] = {MICA_FORMAT_GGUF, MICA_FORMAT_SAFETENSORS, MICA_FORMAT_MLX};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (word != NULL && strcmp(word, mica_format_name(formats[i])) == 0)
            return formats[i];
    return MICA_FORMAT_NONE;
}

/* A single safetensors file. */
static int holds_tensors_alone(const tool_call *call, mica_format format)
{
    const char *ending = strrchr(call->argument[1], '.');
    return (format == MICA_FORMAT_NONE || format == MICA_FORMAT_SAFETENSORS) && ending != NULL &&
           strcmp(ending, ".safetensors") == 0;
}

int tool_convert(const tool_call *call)
{
    const char *type = tool_word(call, "type");
    tool_progress progress;
    tool_accepted accepted;
    tool_accepted_keys(call, &accepted);
    mica_convert_options options = {
        .size = sizeof options,
        .format = find_format(tool_word(call, "format")),
        .threads = (uint32_t)tool_number(call, "threads"),
        .overwrite = (uint32_t)tool_flag(call, "force"),
        .progress = tool_progress_step,
        .context = &progress,
        .group_size = (uint32_t)tool_number(call, "group-size"),
        .accept_keys = accepted.name,
        .accept_key_count = accepted.count,
        .without_tokenizer = (uint32_t)tool_flag(call, "without-tokenizer"),
    };
    if (type != NULL) {
        options.type = tool_type_find(call, "--type", type, strlen(type));
        if (options.type == MICA_DTYPE_NONE)
            return 2;
    }
    tool_interrupt_catch();
    tool_progress_begin(&progress, "converting");
    mica_status status = mica_convert(call->argument[0], call->argument[1], &options);
    double seconds = tool_progress_seconds(&progress);
    if (status == MICA_ERR_UNSUPPORTED &&
        strstr(mica_status_message(), "the tokenizer cannot be written") != NULL) {
        (void)tool_progress_end(&progress);
        return tool_fail("%s; --without-tokenizer leaves it out", mica_status_message());
    }
    int result = tool_rewrite_end(call, &progress, status);
    if (result == 0)
        printf("converted in %.1f s%s\n", seconds,
               holds_tensors_alone(call, options.format) ? ": the tensors, a single file holds no more" : "");
    return result;
}
