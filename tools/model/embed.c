/* embed.c - `mica embed`: texts as vectors, a line each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "model/generation.h"
#include "terminal/output.h"
#include "terminal/text.h"

#define MOST_TOKENS 4096

typedef struct embed_state {
    tool_model model;
    mica_context *context;
    mica_pooling pooling;
    int normalise;
    float *vector;  /* [width] */
    tool_json json; /* used with `as_json` */
    int as_json;
    const char *path; /* of a file with a text on each line; NULL: none */
} embed_state;

static mica_pooling pooling_of(const char *word)
{
    static const char *const words[] = {"", "mean", "cls", "last"}; /* in the order of mica_pooling */
    for (size_t i = 1; word != NULL && i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return (mica_pooling)i;
    return MICA_POOLING_DEFAULT;
}

/* The numbers with all digits they have, with this between them. */
static void print_vector(const embed_state *embed, const char *separator)
{
    char number[TOOL_REAL_BYTES];
    for (uint32_t i = 0; i < embed->model.info.width; i++)
        printf("%s%s", i > 0 ? separator : "", tool_real_text((double)embed->vector[i], 1, number));
}

static void print_object(embed_state *embed, const char *text, size_t length, uint32_t tokens)
{
    tool_json *json = &embed->json;
    tool_json_open(json, NULL, '{');
    tool_json_bytes(json, "text", text, length);
    tool_json_uint(json, "tokens", tokens);
    tool_json_raw(json, "embedding", "[", 1);
    print_vector(embed, ", ");
    putchar(']');
    tool_json_close(json, '}');
}

static int embed_text(embed_state *embed, const char *text, size_t length)
{
    uint32_t *ids = NULL, count = 0;
    if (tool_encode(embed->model.tokenizer, text, length, MICA_ENCODE_ADD | MICA_ENCODE_SPECIAL, &ids,
                    &count) != 0)
        return 1;
    mica_status status =
        mica_context_embed(embed->context, ids, count, embed->pooling, embed->normalise, embed->vector);
    free(ids);
    if (status != MICA_OK)
        return tool_fail_status();
    if (embed->as_json) {
        print_object(embed, text, length, count);
    } else {
        print_vector(embed, " ");
        putchar('\n');
    }
    return ferror(stdout) != 0; /* main says so */
}

static int embed_lines(embed_state *embed, const char *path)
{
    tool_input file;
    int result = tool_input_read(path, &file);
    for (size_t at = 0; result == 0 && at < file.length;) {
        const char *end = memchr(file.text + at, '\n', file.length - at);
        size_t length = end != NULL ? (size_t)(end - (file.text + at)) : file.length - at;
        result = embed_text(embed, file.text + at, length);
        at += length + 1;
    }
    tool_input_free(&file);
    return result;
}

/* An encoder sees a text whole, so the batch is the context. */
static int open_context(const tool_call *call, embed_state *embed)
{
    uint32_t wanted = (uint32_t)tool_number(call, "ctx-size"), trained = embed->model.info.context_length;
    if (wanted == 0)
        wanted = trained != 0 && trained < MOST_TOKENS ? trained : MOST_TOKENS;
    mica_context_options options = {.size = sizeof options,
                                    .capacity = wanted,
                                    .batch = embed->model.info.encoder ? wanted : 0,
                                    .adapters = embed->model.adapter,
                                    .adapter_count = embed->model.adapters};
    embed->vector = malloc((size_t)embed->model.info.width * sizeof *embed->vector);
    if (embed->vector == NULL)
        return tool_fail("there is no memory left");
    tool_context_warn(wanted, &embed->model);
    if (mica_context_create(embed->model.model, &options, &embed->context) != MICA_OK)
        return tool_fail_status();
    return 0;
}

static int embed_all(const tool_call *call, embed_state *embed)
{
    const char *text;
    size_t cursor = 0;
    int result = tool_model_need_tokenizer(&embed->model);
    if (result == 0)
        result = open_context(call, embed);
    if (result != 0)
        return result;
    if (embed->as_json) {
        tool_json_open(&embed->json, NULL, '{');
        tool_json_text(&embed->json, "family", embed->model.info.family);
        tool_json_uint(&embed->json, "width", embed->model.info.width);
        tool_json_open(&embed->json, "embeddings", '[');
    }
    if (call->argument[0] != NULL)
        result = embed_text(embed, call->argument[0], strlen(call->argument[0]));
    while (result == 0 && (text = tool_repeat(call, "prompt", &cursor)) != NULL)
        result = embed_text(embed, text, strlen(text));
    if (result == 0 && embed->path != NULL)
        result = embed_lines(embed, embed->path);
    if (embed->as_json && result == 0) {
        tool_json_close(&embed->json, ']');
        tool_json_close(&embed->json, '}');
    }
    return result;
}

int tool_embed(const tool_call *call)
{
    embed_state embed = {
        .pooling = pooling_of(tool_word(call, "pooling")),
        .normalise = !tool_flag(call, "no-normalize"),
        .as_json = tool_flag(call, "json"),
        .path = tool_word(call, "file"),
    };
    if (call->argument[0] == NULL && tool_word(call, "prompt") == NULL && embed.path == NULL) {
        if (!tool_input_is_piped())
            return tool_input_missing(call);
        embed.path = "-";
    }
    int result = tool_model_open(call, &embed.model);
    if (result == 0)
        result = embed_all(call, &embed);
    free(embed.vector);
    mica_context_release(embed.context);
    tool_model_close(&embed.model);
    return result;
}
