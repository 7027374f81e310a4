/* template.c - `mica template`: the prompt that a chat template makes of messages, and nothing else. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mica/text.h"

#include "commands.h"
#include "model/input.h"
#include "terminal/output.h"
#include "model/quote.h"
#include "terminal/text.h"

/* The end of the string whose quote is at `at`; the end of the text if it has none. */
static const char *string_end(const char *at)
{
    for (at++; *at != '\0' && *at != '"'; at++)
        at += at[0] == '\\' && at[1] != '\0';
    return *at == '"' ? at + 1 : at;
}

/* The end of the value at `at`: the comma or bracket after it. */
static const char *value_end(const char *at)
{
    for (int depth = 0; *at != '\0' && (depth > 0 || strchr(",]}", *at) == NULL);) {
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at = *at == '"' ? string_end(at) : at + 1;
    }
    return at;
}

/* The value of a member of the object in `text`, NULL if it has none of that name. Whether the object is right in all
 * else is the library's business. */
static const char *find_member(const char *text, const char *name)
{
    if (!tool_quote_skip(&text, '{'))
        return NULL;
    while (*text != '\0') {
        const char *key = text;
        (void)tool_quote_skip(&key, '\0');
        const char *end = *key == '"' ? string_end(key) : key, *value = end;
        const int found = (size_t)(end - key) == strlen(name) + 2 && memcmp(key + 1, name, strlen(name)) == 0;
        if (!tool_quote_skip(&value, ':'))
            return NULL;
        if (found)
            return value;
        text = value_end(value);
        text += *text != '\0';
    }
    return NULL;
}

static int append(tool_input *out, const char *text)
{
    return tool_input_append(out, text, strlen(text));
}

/* A variable of an option: in the place of the file's if it was given, else in front unless the file has it. */
static int add_member(tool_input *messages, const char *name, const char *text, int given, tool_input *out)
{
    const char *old = find_member(messages->text, name);
    if (old == NULL)
        return append(out, "\"") || append(out, name) || append(out, "\": ") || append(out, text) ||
               append(out, ", ");
    if (!given)
        return 0;
    tool_input changed = {0};
    int result = tool_input_append(&changed, messages->text, (size_t)(old - messages->text)) ||
                 append(&changed, text) || append(&changed, value_end(old));
    tool_input_free(result == 0 ? messages : &changed);
    if (result == 0)
        *messages = changed;
    return result;
}

/* The file last: a list as "messages", or the members of an object. */
static int add_messages(const tool_input *messages, tool_input *out)
{
    const char *at = messages->text;
    if (!tool_quote_skip(&at, '{'))
        return append(out, "\"messages\": ") || append(out, messages->text) || append(out, "}");
    const char *first = at;
    if (tool_quote_skip(&first, '}') && out->length > 1)
        out->length -= 2; /* an empty object: the comma before it goes */
    return append(out, at);
}

/* All variables as one JSON object. Returns the exit status. */
static int gather(const tool_call *call, tool_input *out)
{
    const char *tools_path = tool_word(call, "tools");
    const int silent = tool_flag(call, "no-generation-prompt");
    tool_input messages = {0}, tools = {0};
    int result = tool_input_read(tool_word(call, "messages"), &messages);
    if (result == 0 && tools_path != NULL)
        result = tool_input_read(tools_path, &tools);
    if (result == 0)
        result = append(out, "{");
    if (result == 0)
        result = add_member(&messages, "add_generation_prompt", silent ? "false" : "true", silent, out);
    if (result == 0 && tools_path != NULL)
        result = add_member(&messages, "tools", tools.text, 1, out);
    if (result == 0)
        result = add_messages(&messages, out);
    tool_input_free(&messages);
    tool_input_free(&tools);
    return result;
}

static int print_prompt(const tool_input *text, const tool_input *variables)
{
    mica_template *chat_template = NULL;
    char *prompt = NULL;
    uint64_t length = 0;
    mica_status status = mica_template_create(text->text, text->length, NULL, &chat_template);
    if (status == MICA_OK)
        status = mica_template_render(chat_template, variables->text, variables->length, &prompt, &length);
    mica_template_release(chat_template);
    if (status != MICA_OK)
        return tool_fail_status();
    tool_text_show(stdout, prompt, (size_t)length, isatty(STDOUT_FILENO));
    mica_text_free(prompt);
    return 0;
}

int tool_template(const tool_call *call)
{
    tool_input text = {0}, variables = {0};
    if (tool_word(call, "chat-template") == NULL || tool_word(call, "messages") == NULL)
        return tool_misuse("template: --chat-template and --messages are needed");
    int result = tool_input_read(tool_word(call, "chat-template"), &text);
    if (result == 0)
        result = gather(call, &variables);
    if (result == 0)
        result = print_prompt(&text, &variables);
    tool_input_free(&text);
    tool_input_free(&variables);
    return result;
}
