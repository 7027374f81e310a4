/* conversation.c - messages, and the templates that make a prompt of them. */
#include "model/conversation.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "terminal/output.h"
#include "model/quote.h"

/* For models whose file has none, by the names that people know. */
static const struct {
    const char *name, *text;
} known_templates[] = {
    {"chatml",
     "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
     "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    {"llama3",
     "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
     "{{ message.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
     "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"},
    {"gemma",
     "{{ bos_token }}{% for message in messages %}<start_of_turn>"
     "{{ 'model' if message.role == 'assistant' else 'user' }}\n{{ message.content | trim }}<end_of_turn>\n"
     "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"},
};

static const char *known_template(const char *name)
{
    for (size_t i = 0; i < sizeof known_templates / sizeof *known_templates; i++)
        if (strcmp(known_templates[i].name, name) == 0)
            return known_templates[i].text;
    return NULL;
}

/* ---- opening ---- */

static int create_template(const char *text, size_t length, const char *where, tool_conversation *out)
{
    if (mica_template_create(text, length, NULL, &out->chat_template) == MICA_OK)
        return 0;
    char what[256];
    snprintf(what, sizeof what, "the chat template of %.200s", where);
    return tool_fail_about(what);
}

static int find_template(const char *choice, const tool_model *model, tool_conversation *out)
{
    uint64_t length = 0;
    const char *text = choice != NULL ? known_template(choice) : mica_model_template(model->model, &length);
    if (text != NULL)
        return create_template(text, choice != NULL ? strlen(text) : (size_t)length,
                               choice != NULL ? choice : "the model", out);
    if (choice == NULL) {
        tool_warn("the model has no chat template; chatml is used, --chat-template names another");
        text = known_template("chatml");
        return create_template(text, strlen(text), "chatml", out);
    }
    tool_input file;
    int result = tool_input_read(choice, &file);
    if (result != 0)
        return result;
    result = create_template(file.text, file.length, choice, out);
    tool_input_free(&file);
    return result;
}

static int token_text(const mica_tokenizer *tokenizer, uint32_t id, tool_input *out)
{
    mica_string text = {0};
    mica_token_kind kind;
    if (id != MICA_NO_TOKEN && mica_tokenizer_token(tokenizer, id, &text, &kind) != MICA_OK)
        return tool_fail_status();
    return tool_input_append(out, text.data, text.length);
}

int tool_conversation_open(const char *choice, const tool_model *model, tool_conversation *out)
{
    mica_tokenizer_info info;
    memset(out, 0, sizeof *out);
    if (mica_tokenizer_get_info(model->tokenizer, &info) != MICA_OK)
        return tool_fail_status();
    if (token_text(model->tokenizer, info.bos, &out->begin) != 0 ||
        token_text(model->tokenizer, info.eos, &out->end) != 0)
        return 1;
    return find_template(choice, model, out);
}

static void free_message(tool_message *message)
{
    tool_input_free(&message->role);
    tool_input_free(&message->content);
}

void tool_conversation_close(tool_conversation *c)
{
    while (c->count > 0)
        tool_conversation_drop(c);
    free(c->messages);
    tool_input_free(&c->begin);
    tool_input_free(&c->end);
    mica_template_release(c->chat_template);
    memset(c, 0, sizeof *c);
}

/* ---- messages ---- */

/* Room for a message at `place`; those from there on move up. */
static int insert(tool_conversation *c, size_t place, const char *role, const char *text, size_t length)
{
    tool_message message = {{0}, {0}};
    tool_message *grown = realloc(c->messages, (c->count + 1) * sizeof *grown);
    if (grown == NULL)
        return tool_fail("there is no memory left");
    c->messages = grown;
    if (tool_input_copy(role, &message.role) != 0 || tool_input_append(&message.content, text, length) != 0) {
        free_message(&message);
        return 1;
    }
    memmove(grown + place + 1, grown + place, (c->count - place) * sizeof *grown);
    grown[place] = message;
    c->count++;
    return 0;
}

int tool_conversation_add(tool_conversation *c, const char *role, const char *text, size_t length)
{
    return insert(c, c->count, role, text, length);
}

static void take_out(tool_conversation *c, size_t place)
{
    free_message(&c->messages[place]);
    c->count--;
    memmove(c->messages + place, c->messages + place + 1, (c->count - place) * sizeof *c->messages);
}

void tool_conversation_drop(tool_conversation *c)
{
    if (c->count > 0)
        take_out(c, c->count - 1);
}

static int role_is(const tool_message *message, const char *role)
{
    return strcmp(message->role.text, role) == 0;
}

static size_t first_turn(const tool_conversation *c)
{
    return c->count > 0 && role_is(&c->messages[0], "system");
}

void tool_conversation_clear(tool_conversation *c)
{
    while (c->count > first_turn(c))
        tool_conversation_drop(c);
}

int tool_conversation_forget(tool_conversation *c)
{
    size_t first = first_turn(c);
    if (c->count <= first + 1)
        return 0;
    take_out(c, first);
    while (c->count > first + 1 && !role_is(&c->messages[first], "user"))
        take_out(c, first);
    return 1;
}

int tool_conversation_set_system(tool_conversation *c, const char *text)
{
    if (first_turn(c))
        take_out(c, 0);
    return text[0] == '\0' ? 0 : insert(c, 0, "system", text, strlen(text));
}

int tool_conversation_last_is(const tool_conversation *c, const char *role)
{
    return c->count > 0 && role_is(&c->messages[c->count - 1], role);
}

/* ---- text and file ---- */

static int append_word(tool_input *out, const char *word)
{
    return tool_input_append(out, word, strlen(word));
}

static int append_messages(const tool_conversation *c, tool_input *out)
{
    int wrong = append_word(out, "[");
    for (size_t i = 0; i < c->count && !wrong; i++)
        wrong = append_word(out, i > 0 ? ",\n {\"role\": " : "{\"role\": ") ||
                tool_quote_append(out, c->messages[i].role.text, c->messages[i].role.length) ||
                append_word(out, ", \"content\": ") ||
                tool_quote_append(out, c->messages[i].content.text, c->messages[i].content.length) ||
                append_word(out, "}");
    return wrong || append_word(out, "]");
}

int tool_conversation_render(const tool_conversation *c, tool_input *out)
{
    tool_input variables = {0};
    char *text = NULL;
    uint64_t length = 0;
    *out = (tool_input){0};
    int wrong = append_word(&variables, "{\"messages\": ") || append_messages(c, &variables) ||
                append_word(&variables, ", \"add_generation_prompt\": true, \"bos_token\": ") ||
                tool_quote_append(&variables, c->begin.text, c->begin.length) ||
                append_word(&variables, ", \"eos_token\": ") ||
                tool_quote_append(&variables, c->end.text, c->end.length) || append_word(&variables, "}");
    if (!wrong &&
        mica_template_render(c->chat_template, variables.text, variables.length, &text, &length) != MICA_OK)
        wrong = tool_fail_about("the chat template");
    if (!wrong)
        wrong = tool_input_append(out, text, (size_t)length);
    mica_text_free(text);
    tool_input_free(&variables);
    return wrong;
}

int tool_conversation_save(const tool_conversation *c, const char *path)
{
    tool_input text = {0};
    if (append_messages(c, &text) != 0 || append_word(&text, "\n") != 0) {
        tool_input_free(&text);
        return 1;
    }
    FILE *file = fopen(path, "wb");
    int wrong = file == NULL || fwrite(text.text, 1, text.length, file) != text.length;
    if (file != NULL && fclose(file) != 0)
        wrong = 1;
    tool_input_free(&text);
    return wrong ? tool_fail("\"%.200s\" cannot be written: %s", path, strerror(errno)) : 0;
}

/* {"role": "user", "content": "..."}, the keys in any order. */
static int load_message(const char **cursor, tool_conversation *out)
{
    tool_input part[2] = {{0}, {0}}, key = {0};
    int wrong = !tool_quote_skip(cursor, '{');
    for (int i = 0; i < 2 && !wrong; i++) {
        wrong = (i > 0 && !tool_quote_skip(cursor, ',')) || !tool_quote_read(cursor, &key) ||
                !tool_quote_skip(cursor, ':');
        int place = wrong || strcmp(key.text, "role") == 0 ? 0 : strcmp(key.text, "content") == 0 ? 1 : -1;
        wrong = wrong || place < 0 || part[place].text != NULL || !tool_quote_read(cursor, &part[place]);
        tool_input_free(&key);
    }
    wrong = wrong || !tool_quote_skip(cursor, '}') ||
            tool_conversation_add(out, part[0].text, part[1].text, part[1].length) != 0;
    tool_input_free(&key);
    tool_input_free(&part[0]);
    tool_input_free(&part[1]);
    return wrong;
}

int tool_conversation_load(tool_conversation *c, const char *path)
{
    tool_conversation loaded = {0};
    tool_input file;
    if (tool_input_read(path, &file) != 0)
        return 1;
    const char *cursor = file.text;
    int wrong = !tool_quote_skip(&cursor, '[');
    for (int first = 1; !wrong && !tool_quote_skip(&cursor, ']'); first = 0)
        wrong = (!first && !tool_quote_skip(&cursor, ',')) || load_message(&cursor, &loaded);
    wrong = wrong || !tool_quote_skip(&cursor, '\0');
    tool_input_free(&file);
    if (wrong) {
        tool_conversation_close(&loaded);
        return tool_fail("\"%.200s\" is no list of messages, [{\"role\": \"user\", \"content\": \"...\"}]",
                         path);
    }
    while (c->count > 0)
        tool_conversation_drop(c);
    free(c->messages);
    c->messages = loaded.messages;
    c->count = loaded.count;
    return 0;
}
