/* options.c - parses a command line by the table of commands.c. */
#define _POSIX_C_SOURCE 200809L
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "terminal/output.h"

const tool_command *tool_command_find(const char *name)
{
    size_t count = 0;
    const tool_command *commands = tool_commands(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

const tool_option *tool_option_at(const tool_command *command, size_t index)
{
    for (size_t g = 0; g < TOOL_MAX_GROUPS && command->group[g] != NULL; g++) {
        if (index < command->group[g]->count)
            return &command->group[g]->options[index];
        index -= command->group[g]->count;
    }
    return NULL;
}

size_t tool_next_choice(const char **cursor, const char **out_choice)
{
    const char *start = *cursor;
    size_t length = strcspn(start, "|");
    *out_choice = start;
    *cursor = start + length + (start[length] == '|');
    return length;
}

static int is_choice(const char *choices, tool_kind kind, const char *text)
{
    const char *choice;
    size_t length;
    while ((length = tool_next_choice(&choices, &choice)) > 0)
        if (strlen(text) == length &&
            (kind == TOOL_ANY_CASE ? strncasecmp(choice, text, length) : strncmp(choice, text, length)) == 0)
            return 1;
    return 0;
}

mica_dtype tool_type_find(const tool_call *call, const char *what, const char *name, size_t length)
{
    char known[640] = "";
    size_t used = 0;
    for (int i = MICA_DTYPE_NONE + 1; i < MICA_DTYPE_COUNT; i++) {
        const char *text = mica_dtype_name((mica_dtype)i);
        if (strlen(text) == length && strncasecmp(text, name, length) == 0)
            return (mica_dtype)i;
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used > 0 ? "|" : "", text);
    }
    tool_misuse("%s: the type of %s is \"%.*s\", not one of %s", call->command->name, what,
                (int)(length < 40 ? length : 40), name, known);
    return MICA_DTYPE_NONE;
}

static int set_number(tool_call *call, size_t index, const char *text)
{
    const tool_option *option = tool_option_at(call->command, index);
    char *end = NULL;
    errno = 0;
    double real = 0;
    if (isdigit((unsigned char)text[0]) || (text[0] == '-' && option->least < 0) || text[0] == '.') {
        if (option->kind == TOOL_REAL)
            real = strtod(text, &end);
        else
            real = (double)(call->number[index] = strtoll(text, &end, 10));
    }
    call->real[index] = real;
    if (end != NULL && end != text && *end == '\0' && errno == 0 && real >= option->least &&
        real <= option->most)
        return 0;
    if (option->kind == TOOL_REAL)
        return tool_misuse("%s: --%s is \"%.40s\", not a number from %.6g to %.6g", call->command->name,
                           option->name, text, option->least, option->most);
    return tool_misuse("%s: --%s is \"%.40s\", not a whole number from %.0f to %.0f", call->command->name,
                       option->name, text, option->least, option->most);
}

static int set_option(tool_call *call, size_t index, const char *text)
{
    const tool_option *option = tool_option_at(call->command, index);
    if (option->choices != NULL && !is_choice(option->choices, option->kind, text))
        return tool_misuse("%s: --%s is \"%.40s\", not one of %s", call->command->name, option->name, text,
                           option->choices);
    const int repeats = option->kind == TOOL_REPEATED || option->kind == TOOL_PAIR;
    if (repeats && call->repeated_count == TOOL_MAX_REPEATS)
        return tool_misuse("%s: --%s: more than %d options are repeated", call->command->name, option->name,
                           TOOL_MAX_REPEATS);
    if (repeats) {
        call->repeated[call->repeated_count].option = index;
        call->repeated[call->repeated_count++].text = text;
    }
    call->text[index] = text;
    if (option->kind == TOOL_NUMBER || option->kind == TOOL_REAL)
        return set_number(call, index, text);
    return 0;
}

/* 1 if a word is one of "a|b|c". */
static int is_one_of(const char *words, const char *word, size_t length)
{
    const char *spelling;
    size_t letters;
    while ((letters = tool_next_choice(&words, &spelling)) > 0)
        if (letters == length && memcmp(word, spelling, length) == 0)
            return 1;
    return 0;
}

/* Whether `word`, dashes and all, is one of the option's spellings. */
static int is_option(const tool_option *option, const char *word, size_t length)
{
    if (length == strlen(option->name) + 2 && strncmp(word, "--", 2) == 0 &&
        memcmp(word + 2, option->name, length - 2) == 0)
        return 1;
    return option->also != NULL && is_one_of(option->also, word, length);
}

/* What people look for who know another program's options, and where it is here. */
static const struct {
    const char *spellings, *where;
} elsewhere[] = {
    {"-ngl|--gpu-layers|--n-gpu-layers", "a model runs whole on one device, which --device names"},
    {"-cnv|--conversation|-i|--interactive|-if", "that is 'mica chat'"},
    {"-no-cnv|--no-conversation", "'mica run' has no conversations"},
    {"-fa|--flash-attn", "attention is always computed that way"},
    {"-hf|-hfr|--hf-repo|-mu|--model-url", "nothing is downloaded: -m is a file or a folder"},
};

static int refuse_option(const tool_command *command, const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (is_one_of(elsewhere[i].spellings, word, length))
            return tool_misuse("%s: there is no option %.60s: %s", command->name, word, elsewhere[i].where);
    if (strchr(word, ' ') != NULL && command->argument[0].name != NULL)
        return tool_misuse("%s: there is no option \"%.60s\"; a text that begins with a dash goes behind --",
                           command->name, word);
    return tool_misuse("%s: there is no option %.60s; 'mica help %s' lists them", command->name, word,
                       command->name);
}

/* "--name value", "--name=value", "-n value" or "--flag". `*used` is how many arguments were taken. */
static int take_option(tool_call *call, int count, char **argv, int *used)
{
    const tool_command *command = call->command;
    const tool_option *option;
    const char *word = argv[0];
    size_t index = 0, length = strncmp(word, "--", 2) == 0 ? strcspn(word, "=") : strlen(word);
    *used = 1;
    while ((option = tool_option_at(command, index)) != NULL && !is_option(option, word, length))
        index++;
    if (option == NULL)
        return refuse_option(command, word, length);
    if (option->kind == TOOL_FLAG) {
        if (word[length] == '=')
            return tool_misuse("%s: --%s takes no value", command->name, option->name);
        call->text[index] = "yes";
        return 0;
    }
    const int pair = option->kind == TOOL_PAIR;
    if (word[length] == '=' && !pair)
        return set_option(call, index, word + length + 1);
    if (count < 2 + pair || word[length] == '=')
        return tool_misuse("%s: %.60s needs %s", command->name, word, pair ? option->value : "a value");
    *used = 2 + pair;
    const int result = set_option(call, index, argv[1]);
    return result == 0 && pair ? set_option(call, index, argv[2]) : result;
}

static int take_argument(tool_call *call, const char *text)
{
    const tool_command *command = call->command;
    size_t place = 0;
    while (place < TOOL_MAX_ARGUMENTS && call->argument[place] != NULL)
        place++;
    if (place == TOOL_MAX_ARGUMENTS || command->argument[place].name == NULL)
        return tool_misuse("%s: \"%.60s\" is one argument too many", command->name, text);
    const tool_argument *argument = &command->argument[place];
    if (argument->choices != NULL && !is_choice(argument->choices, argument->kind, text))
        return tool_misuse("%s: %s is \"%.40s\", not one of %s", command->name, argument->name, text,
                           argument->choices);
    call->argument[place] = text;
    return 0;
}

static int check_arguments(const tool_call *call)
{
    const tool_command *command = call->command;
    for (size_t i = 0; i < TOOL_MAX_ARGUMENTS && command->argument[i].name != NULL; i++) {
        const tool_argument *argument = &command->argument[i];
        if (call->argument[i] == NULL && !argument->optional)
            return tool_misuse("%s: %s is missing%s%s; 'mica help %s' says more", command->name,
                               argument->name, argument->choices != NULL ? ": one of " : "",
                               argument->choices != NULL ? argument->choices : "", command->name);
    }
    return 0;
}

int tool_parse(const tool_command *command, int count, char **argv, tool_call *out_call)
{
    int used = 1, only_arguments = 0, result = 0;
    memset(out_call, 0, sizeof *out_call);
    out_call->command = command;
    const tool_option *option;
    for (size_t i = 0; (option = tool_option_at(command, i)) != NULL && result == 0; i++)
        if (option->standard != NULL)
            result = set_option(out_call, i, option->standard);
    for (int i = 0; i < count && result == 0; i += used) {
        used = 1;
        if (!only_arguments && strcmp(argv[i], "--") == 0)
            only_arguments = 1;
        else if (!only_arguments && argv[i][0] == '-' && argv[i][1] != '\0')
            result = take_option(out_call, count - i, argv + i, &used);
        else
            result = take_argument(out_call, argv[i]);
    }
    return result != 0 ? result : check_arguments(out_call);
}

static size_t index_of(const tool_call *call, const char *name)
{
    const tool_option *option;
    size_t i = 0;
    while ((option = tool_option_at(call->command, i)) != NULL && strcmp(option->name, name) != 0)
        i++;
    return option != NULL ? i : TOOL_MAX_OPTIONS - 1;
}

int tool_flag(const tool_call *call, const char *name)
{
    return call->text[index_of(call, name)] != NULL;
}

const char *tool_word(const tool_call *call, const char *name)
{
    return call->text[index_of(call, name)];
}

int64_t tool_number(const tool_call *call, const char *name)
{
    return call->number[index_of(call, name)];
}

double tool_real(const tool_call *call, const char *name)
{
    return call->real[index_of(call, name)];
}

const char *tool_repeat(const tool_call *call, const char *name, size_t *cursor)
{
    size_t index = index_of(call, name);
    for (; *cursor < call->repeated_count; ++*cursor)
        if (call->repeated[*cursor].option == index)
            return call->repeated[(*cursor)++].text;
    return NULL;
}

void tool_accepted_keys(const tool_call *call, tool_accepted *out)
{
    size_t cursor = 0;
    out->count = 0;
    for (const char *name; (name = tool_repeat(call, "accept-key", &cursor)) != NULL;)
        out->name[out->count++] = name;
}
