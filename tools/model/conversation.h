/* conversation.h - who said what, as the text that a chat template makes of it, and as a file. */
#ifndef TOOL_MODEL_CONVERSATION_H
#define TOOL_MODEL_CONVERSATION_H

#include "model/input.h"
#include "model/model.h"

typedef struct tool_message {
    tool_input role, content;
} tool_message;

typedef struct tool_conversation {
    mica_template *chat_template;
    tool_input begin, end; /* the texts of bos and eos, which templates ask for */
    tool_message *messages;
    size_t count;
} tool_conversation;

/* The template is `choice`: a file or one of the names below; NULL: the model's own. Returns the exit status; the caller
 * closes it in any case. */
int tool_conversation_open(const char *choice, const tool_model *model, tool_conversation *out);
void tool_conversation_close(tool_conversation *conversation);

/* 0, or 1 after saying that there is no memory. */
int tool_conversation_add(tool_conversation *conversation, const char *role, const char *text, size_t length);
/* Forgets the last message. */
void tool_conversation_drop(tool_conversation *conversation);
/* Forgets everything but what the system said. */
void tool_conversation_clear(tool_conversation *conversation);
/* Forgets the oldest message that is not the system's, and the answers up to the next one of the user. 0 if only one is
 * left. */
int tool_conversation_forget(tool_conversation *conversation);
/* What the system says, in the place of what it said. */
int tool_conversation_set_system(tool_conversation *conversation, const char *text);
/* 1 if the last message has that role. */
int tool_conversation_last_is(const tool_conversation *conversation, const char *role);

/* The text that the model reads, with the beginning of its answer. 0, or 1 after printing why not. */
int tool_conversation_render(const tool_conversation *conversation, tool_input *out);
/* As JSON: [{"role": "user", "content": "..."}]. 0, or 1 after printing why not; a failed load changes nothing. */
int tool_conversation_save(const tool_conversation *conversation, const char *path);
int tool_conversation_load(tool_conversation *conversation, const char *path);

#endif
