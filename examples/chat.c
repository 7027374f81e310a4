/* chat.c - a conversation with a model: chat MODEL [DEVICE]. A line in, an answer out, until the input ends. */
#define _POSIX_C_SOURCE 200809L /* getline, open_memstream */
#include <mica/mica.h>
#include <mica/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TOKENS 256 /* of an answer */

typedef struct chat {
    mica_device *device;
    mica_model *model;
    const mica_tokenizer *tokenizer; /* the model's */
    mica_template *form;             /* makes a prompt of messages */
    mica_context *context;
    mica_sampler *sampler;
    mica_detokenizer *words; /* of tokens, whole characters at a time */
    uint32_t sequence;
    char *messages; /* JSON objects with commas between them */
} chat;

static void quote(FILE *to, const char *text, uint64_t length)
{
    fputc('"', to);
    for (uint64_t i = 0; i < length; i++)
        fprintf(to, (unsigned char)text[i] < ' ' || text[i] == '"' || text[i] == '\\' ? "\\u%04x" : "%c",
                text[i]);
    fputc('"', to);
}

static int add_message(chat *c, const char *role, const char *text, uint64_t length)
{
    char *joined = NULL;
    size_t size;
    FILE *to = open_memstream(&joined, &size);
    if (to == NULL)
        return 1;
    fprintf(to, "%s%s{\"role\": \"%s\", \"content\": ", c->messages, c->messages[0] != '\0' ? ", " : "",
            role);
    quote(to, text, length);
    fputc('}', to);
    free(c->messages);
    const int failed = fclose(to);
    c->messages = joined;
    return failed;
}

/* The tokens of the whole conversation, as the model's template writes it. The caller frees them. */
static int make_prompt(chat *c, uint32_t **out_tokens, uint64_t *out_count)
{
    mica_tokenizer_info info;
    mica_token_kind kind;
    mica_string begin = {"", 0};
    char *variables = NULL, *prompt = NULL;
    size_t size;
    uint64_t length = 0;
    FILE *to = open_memstream(&variables, &size);
    int failed = to == NULL || mica_tokenizer_get_info(c->tokenizer, &info) ||
                 (info.bos != MICA_NO_TOKEN && mica_tokenizer_token(c->tokenizer, info.bos, &begin, &kind));
    if (to != NULL) {
        fprintf(to, "{\"messages\": [%s], \"add_generation_prompt\": true, \"bos_token\": ", c->messages);
        quote(to, begin.data, begin.length);
        fputc('}', to);
        failed = fclose(to) || failed || mica_template_render(c->form, variables, size, &prompt, &length) ||
                 (*out_tokens = malloc((length + 3) * sizeof **out_tokens)) == NULL ||
                 mica_tokenizer_encode(c->tokenizer, prompt, length, MICA_ENCODE_SPECIAL, *out_tokens,
                                       length + 3, out_count);
    }
    mica_text_free(prompt);
    free(variables);
    return failed;
}

/* Forgets what the sequence has beyond the beginning of `tokens`, so that only the rest need be fed: *out_same of them. */
static int keep_common(chat *c, const uint32_t *tokens, uint64_t count, uint32_t *out_same)
{
    uint32_t had = 0, *old = calloc(count, sizeof *old);
    int failed = old == NULL || mica_sequence_tokens(c->context, c->sequence, old, (uint32_t)count, &had);
    for (*out_same = 0;
         !failed && *out_same < had && *out_same + 1 < count && old[*out_same] == tokens[*out_same];)
        ++*out_same;
    free(old);
    if (!failed && mica_sequence_trim(c->context, c->sequence, *out_same) == MICA_ERR_UNSUPPORTED)
        *out_same = 0; /* a sliding window does not know the beginning any more */
    return failed || mica_sequence_trim(c->context, c->sequence, *out_same);
}

static int answer(chat *c)
{
    uint32_t *tokens = NULL, same = 0, last;
    uint64_t count = 0;
    char *said = NULL;
    size_t length;
    mica_string text = {0};
    FILE *to = open_memstream(&said, &length);
    int failed = to == NULL || make_prompt(c, &tokens, &count) || keep_common(c, tokens, count, &same);
    mica_next step = {.sequence = c->sequence, .sampler = c->sampler};
    for (int i = 0; !failed && i < MOST_TOKENS; i++) {
        step.tokens = i == 0 ? tokens + same : &last;
        step.count = i == 0 ? (uint32_t)count - same : 1;
        failed = mica_context_next(c->context, &step, 1);
        last = step.id; /* the call that is fed with it writes there */
        if (failed || mica_tokenizer_is_end(c->tokenizer, last))
            break;
        failed = mica_sampler_accept(c->sampler, last, 1) || mica_detokenizer_push(c->words, last, &text);
        if (!failed)
            failed = fwrite(text.data, 1, text.length, stdout) != text.length || fflush(stdout) ||
                     fwrite(text.data, 1, text.length, to) != text.length;
    }
    failed = (to != NULL && fclose(to)) || failed || mica_detokenizer_flush(c->words, &text) ||
             puts("") < 0 || add_message(c, "assistant", said, length);
    free(said);
    free(tokens);
    return failed;
}

static int open_chat(chat *c, const char *path, const char *device)
{
    mica_model_info info;
    mica_sampling sampling;
    mica_sampling_default(&sampling);
    if (mica_device_open(device, NULL, &c->device) || mica_model_open(path, c->device, NULL, &c->model) ||
        mica_model_get_info(c->model, &info) || mica_context_create(c->model, NULL, &c->context) ||
        mica_sequence_create(c->context, &c->sequence) || (c->messages = calloc(1, 1)) == NULL ||
        mica_sampler_create(&sampling, info.vocabulary, NULL, NULL, &c->sampler))
        return 1;
    uint64_t length = 0;
    const char *form = mica_model_template(c->model, &length);
    c->tokenizer = mica_model_tokenizer(c->model);
    if (form == NULL || c->tokenizer == NULL)
        return fprintf(stderr, "chat: %s has no chat template or no tokenizer\n", path);
    return mica_template_create(form, length, NULL, &c->form) ||
           mica_detokenizer_create(c->tokenizer, 0, &c->words);
}

int main(int count, char **arguments)
{
    chat c = {0};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    if (count < 2)
        return fprintf(stderr, "usage: chat MODEL [DEVICE]\n"), 2;
    int failed = open_chat(&c, arguments[1], count > 2 ? arguments[2] : "auto");
    while (!failed && (length = getline(&line, &capacity, stdin)) > 0) {
        length -= line[length - 1] == '\n';
        failed = add_message(&c, "user", line, (uint64_t)length) || answer(&c);
    }
    if (failed)
        fprintf(stderr, "chat: %s\n", mica_status_message());
    free(line);
    free(c.messages);
    mica_detokenizer_release(c.words);
    mica_sampler_release(c.sampler);
    mica_context_release(c.context);
    mica_template_release(c.form);
    mica_model_release(c.model);
    mica_device_release(c.device);
    return failed != 0;
}
