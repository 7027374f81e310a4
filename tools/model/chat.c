/* chat.c - `mica chat`: lines in, answers out, the cache kept from one to the next. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "model/conversation.h"
#include "model/generation.h"
#include "terminal/interrupt.h"
#include "terminal/line.h"
#include "terminal/output.h"
#include "terminal/text.h"

typedef struct chat_state {
    const tool_call *call;
    tool_model model;
    tool_generation generation;
    tool_conversation conversation;
    tool_line *line;
    tool_input answer; /* the one that is being written */
    tool_end end;      /* of the last one */
    int signal;        /* that ended it */
    uint64_t answers;
    int interactive, is_terminal;
    int leaving; /* /exit was typed */
} chat_state;

static int write_answer(void *context, const char *text, size_t length)
{
    chat_state *chat = context;
    tool_text_show(stdout, text, length, chat->is_terminal);
    if (tool_input_append(&chat->answer, text, length) != 0)
        return 1;
    return tool_output_flush();
}

/* ---- one answer ---- */

/* 1: not Ctrl-C, which ends an answer or a line, but a signal that ends the program. */
static int must_leave(void)
{
    return tool_interrupt_number() == SIGTERM || tool_interrupt_number() == SIGHUP;
}

/* Ids of the conversation with the token of the beginning in front, where the model wants one and the template wrote
 * none. */
static int encode(const chat_state *chat, uint32_t **out_ids, uint32_t *out_count)
{
    const mica_tokenizer *tokenizer = chat->model.tokenizer;
    mica_tokenizer_info info;
    tool_input text;
    *out_ids = NULL;
    if (tool_conversation_render(&chat->conversation, &text) != 0)
        return 1;
    int result = tool_encode(tokenizer, text.text, text.length, MICA_ENCODE_SPECIAL, out_ids, out_count);
    tool_input_free(&text);
    if (result != 0)
        return result;
    if (mica_tokenizer_get_info(tokenizer, &info) != MICA_OK || !info.add_bos || info.bos == MICA_NO_TOKEN ||
        (*out_count > 0 && (*out_ids)[0] == info.bos))
        return 0;
    /* tool_encode gave room: no move */
    uint32_t *grown = realloc(*out_ids, ((size_t)*out_count + 1) * sizeof *grown);
    if (grown == NULL)
        return tool_fail("there is no memory left");
    memmove(grown + 1, grown, (size_t)*out_count * sizeof *grown);
    grown[0] = info.bos;
    *out_ids = grown;
    ++*out_count;
    return 0;
}

/* Cuts the sequence back to what it has in common with these ids, less one, so that there are logits. */
static int keep_common(tool_generation *g, const uint32_t *ids, uint32_t count, uint32_t *out_common)
{
    uint32_t *old = malloc((size_t)g->capacity * sizeof *old), length = 0, common = 0;
    *out_common = 0;
    if (old == NULL)
        return tool_fail("there is no memory left");
    mica_status status = mica_sequence_tokens(g->context, g->sequence, old, g->capacity, &length);
    length = length < g->capacity ? length : g->capacity;
    while (status == MICA_OK && common < length && common + 1 < count && old[common] == ids[common])
        common++;
    free(old);
    if (status == MICA_OK)
        status = mica_sequence_trim(g->context, g->sequence, common);
    if (status == MICA_ERR_UNSUPPORTED) { /* a sliding window has forgotten what is needed: all anew */
        common = 0;
        status = mica_sequence_remove(g->context, g->sequence);
        if (status == MICA_OK)
            status = mica_sequence_create(g->context, &g->sequence);
    }
    *out_common = common;
    return status == MICA_OK ? 0 : tool_fail_status();
}

/* The ids of the conversation; with --context-shift its oldest messages are forgotten until it fits. */
static int prepare(chat_state *chat, uint32_t **out_ids, uint32_t *out_count)
{
    uint32_t capacity = chat->generation.capacity;
    int result = encode(chat, out_ids, out_count);
    while (result == 0 && *out_count >= capacity && tool_flag(chat->call, "context-shift") &&
           tool_conversation_forget(&chat->conversation)) {
        free(*out_ids);
        result = encode(chat, out_ids, out_count);
    }
    if (result == 0 && *out_count == 0)
        return tool_fail("the chat template gave no text");
    if (result == 0 && *out_count >= capacity)
        return tool_fail("the conversation has %u tokens, the context holds %u; /clear starts anew",
                         *out_count, capacity);
    return result;
}

/* Answers the last message. Every answer has a seed of its own, so that another try gives another one. */
static int answer(chat_state *chat)
{
    tool_generation *g = &chat->generation;
    uint32_t *ids = NULL, count = 0, common = 0;
    int result = prepare(chat, &ids, &count);
    if (result == 0)
        result = keep_common(g, ids, count, &common);
    if (result == 0)
        result = tool_generation_resample(g);
    if (result == 0) {
        chat->end = tool_generate(g, ids + common, count - common, ids, count);
        chat->answers++;
        g->sampling.values.seed++;
        putchar('\n');
        fflush(stdout);
        result = chat->end == TOOL_END_FAILED || chat->end == TOOL_END_OUTPUT;
    }
    free(ids);
    if (result == 0)
        result =
            tool_conversation_add(&chat->conversation, "assistant",
                                  chat->answer.text != NULL ? chat->answer.text : "", chat->answer.length);
    else if (tool_conversation_last_is(&chat->conversation, "user"))
        tool_conversation_drop(&chat->conversation);
    tool_input_free(&chat->answer);
    chat->signal = tool_interrupt_number();
    if (chat->end == TOOL_END_SIGNAL && !must_leave())
        tool_interrupt_clear(); /* it has done what it was meant for */
    if (result == 0 && chat->end == TOOL_END_FULL)
        tool_warn("the context of %u tokens is full; /clear starts anew", g->capacity);
    return result;
}

static int say(chat_state *chat, const char *text, size_t length)
{
    if (tool_conversation_add(&chat->conversation, "user", text, length) != 0)
        return 1;
    return answer(chat);
}

/* ---- slash commands ---- */

static int do_help(chat_state *chat, const char *argument);

static int do_clear(chat_state *chat, const char *argument)
{
    (void)argument;
    tool_conversation_clear(&chat->conversation);
    return 0;
}

static int do_again(chat_state *chat, const char *argument)
{
    (void)argument;
    if (!tool_conversation_last_is(&chat->conversation, "assistant"))
        return tool_fail("there is no answer yet");
    tool_conversation_drop(&chat->conversation);
    return answer(chat);
}

static int do_system(chat_state *chat, const char *argument)
{
    return tool_conversation_set_system(&chat->conversation, argument);
}

static int do_save(chat_state *chat, const char *argument)
{
    return argument[0] != '\0' ? tool_conversation_save(&chat->conversation, argument)
                               : tool_fail("/save needs the name of a file");
}

static int do_load(chat_state *chat, const char *argument)
{
    return argument[0] != '\0' ? tool_conversation_load(&chat->conversation, argument)
                               : tool_fail("/load needs the name of a file");
}

static int do_temperature(chat_state *chat, const char *argument)
{
    char *end = NULL;
    float value = strtof(argument, &end);
    if (end == argument || *end != '\0' || !(value >= 0 && value <= 1000))
        return tool_fail("/temp is \"%.40s\", not a number from 0 to 1000", argument);
    chat->generation.sampling.values.temperature = value;
    return 0;
}

static int do_stats(chat_state *chat, const char *argument)
{
    (void)argument;
    if (chat->answers == 0)
        return tool_fail("there is no answer yet");
    tool_generation_report(&chat->generation, chat->end);
    return 0;
}

static int do_exit(chat_state *chat, const char *argument)
{
    (void)argument;
    chat->leaving = 1;
    return 0;
}

static const struct {
    const char *name, *argument, *help;
    int (*run)(chat_state *chat, const char *argument);
} slashes[] = {
    {"/help", "", "these lines", do_help},
    {"/clear", "", "forget the conversation, not what the system said", do_clear},
    {"/regen", "", "another answer to the last message", do_again},
    {"/system", " TEXT", "what the model is told first; nothing takes it away", do_system},
    {"/save", " FILE", "write the conversation as JSON", do_save},
    {"/load", " FILE", "go on with such a conversation", do_load},
    {"/temp", " T", "temperature from now on", do_temperature},
    {"/stats", "", "speed and memory of the last answer", do_stats},
    {"/exit", "", "end; Ctrl-D does too", do_exit},
    {"/quit", "", "the same", do_exit},
};

static int do_help(chat_state *chat, const char *argument)
{
    (void)chat;
    (void)argument;
    for (size_t i = 0; i < sizeof slashes / sizeof *slashes; i++)
        fprintf(stderr, "%s%-*s %s\n", slashes[i].name, 14 - (int)strlen(slashes[i].name),
                slashes[i].argument, slashes[i].help);
    fputs("A backslash at the end of a line continues it; pasted lines are one message. Ctrl-C stops an "
          "answer.\n",
          stderr);
    return 0;
}

static int run_slash(chat_state *chat, const char *text)
{
    size_t length = strcspn(text, " \n");
    const char *argument = text + length + strspn(text + length, " ");
    for (size_t i = 0; i < sizeof slashes / sizeof *slashes; i++)
        if (strlen(slashes[i].name) == length && strncmp(slashes[i].name, text, length) == 0)
            return slashes[i].run(chat, argument);
    if (strchr(text, '\n') != NULL) /* pasted, and no command */
        return say(chat, text, strlen(text));
    return tool_fail("there is no command %.40s; /help lists them", text);
}

/* ---- the loop ---- */

/* A message of one line, or of more that end in backslashes. */
static tool_line_result read_message(chat_state *chat, tool_input *out)
{
    tool_input part;
    *out = (tool_input){0};
    const char *prompt = "> ";
    for (;;) {
        tool_line_result result = tool_line_read(chat->line, prompt, &part);
        if (result != TOOL_LINE_GIVEN) {
            tool_input_free(&part);
            return result == TOOL_LINE_END && out->text != NULL ? TOOL_LINE_GIVEN : result;
        }
        int goes_on = part.length > 0 && part.text[part.length - 1] == '\\';
        if (goes_on)
            part.text[part.length - 1] = '\n';
        int wrong = tool_input_append(out, part.text, part.length);
        tool_input_free(&part);
        if (wrong)
            return TOOL_LINE_END;
        if (!goes_on)
            return TOOL_LINE_GIVEN;
        prompt = ". ";
    }
}

static int take_message(chat_state *chat, const tool_input *message)
{
    if (message->text[strspn(message->text, " \t\r\n")] == '\0')
        return 0;
    tool_line_remember(chat->line, message->text);
    return message->text[0] == '/' ? run_slash(chat, message->text)
                                   : say(chat, message->text, message->length);
}

/* On a terminal a failure was said and the talk goes on; in a pipe it ends. */
static int talk(chat_state *chat)
{
    int result = 0;
    while (!chat->leaving && (result == 0 || chat->interactive)) {
        tool_input message;
        tool_line_result read = read_message(chat, &message);
        if (read == TOOL_LINE_GIVEN)
            result = take_message(chat, &message);
        tool_input_free(&message);
        if (read == TOOL_LINE_END || ferror(stdout))
            break;
        if (must_leave() || (read == TOOL_LINE_INTERRUPTED && !chat->interactive))
            return 128 + tool_interrupt_number();
        if (read != TOOL_LINE_INTERRUPTED)
            continue;
        tool_interrupt_clear();
        fputs("(Ctrl-D or /exit ends)\n", stderr);
    }
    return chat->interactive ? 0 : result;
}

/* `mica chat MESSAGE`: with escapes, as a prompt of run has them. */
static int answer_once(chat_state *chat, const char *text)
{
    tool_input message;
    int result = tool_input_copy(text, &message);
    if (result == 0 && !tool_flag(chat->call, "no-escape"))
        message.length = tool_input_unescape(message.text);
    if (result == 0)
        result = say(chat, message.text, message.length);
    tool_input_free(&message);
    return result == 0 && chat->end == TOOL_END_SIGNAL ? 128 + chat->signal : result;
}

/* The name is text of the model's file. */
static void print_banner(const mica_model_info *info)
{
    const char *name = info->name[0] != '\0' ? info->name : info->family;
    tool_text_print(stderr, name, strlen(name), TOOL_NO_LIMIT);
    fputs("; /help lists commands\n", stderr);
}

static int open_chat(chat_state *chat)
{
    const tool_call *call = chat->call;
    int result = tool_model_open(call, &chat->model);
    if (result == 0)
        result = tool_model_need_tokenizer(&chat->model);
    if (result == 0)
        result = tool_generation_open(call, &chat->model, 0, 1, &chat->generation);
    if (result == 0)
        result = tool_conversation_open(tool_word(call, "chat-template"), &chat->model, &chat->conversation);
    if (result == 0 && tool_word(call, "system") != NULL)
        result = tool_conversation_set_system(&chat->conversation, tool_word(call, "system"));
    if (result != 0)
        return result;
    chat->generation.write = write_answer;
    chat->generation.write_context = chat;
    chat->line = tool_line_open(chat->interactive);
    return chat->line == NULL;
}

int tool_chat(const tool_call *call)
{
    chat_state chat = {.call = call,
                       .is_terminal = isatty(STDOUT_FILENO),
                       .interactive =
                           call->argument[0] == NULL && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    int result = open_chat(&chat);
    if (result == 0 && chat.interactive)
        print_banner(&chat.model.info);
    if (result == 0)
        result = call->argument[0] != NULL ? answer_once(&chat, call->argument[0]) : talk(&chat);
    if (chat.answers > 0 && !tool_flag(call, "no-perf"))
        tool_generation_report(&chat.generation, chat.end);
    tool_line_close(chat.line);
    tool_conversation_close(&chat.conversation);
    tool_generation_close(&chat.generation);
    tool_model_close(&chat.model);
    return result;
}
