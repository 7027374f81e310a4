/* tokenize.c - `mica tokenize`: a text as tokens. A file with nothing but a vocabulary is enough. */
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "model/generation.h"
#include "terminal/output.h"
#include "terminal/text.h"

static void print_ids(const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        printf(i > 0 ? " %u" : "%u", ids[i]);
    putchar('\n');
}

static int print_tokens(const mica_tokenizer *tokenizer, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        mica_string text;
        mica_token_kind kind;
        if (mica_tokenizer_token(tokenizer, ids[i], &text, &kind) != MICA_OK)
            return tool_fail_status();
        printf("%6u  ", ids[i]);
        tool_text_print(stdout, text.data, text.length, TOOL_NO_LIMIT);
        putchar('\n');
    }
    return 0;
}

static int tokenize(const tool_call *call, const mica_tokenizer *tokenizer, const tool_input *text)
{
    uint32_t flags = tool_flag(call, "special") ? MICA_ENCODE_ADD | MICA_ENCODE_SPECIAL : 0, count = 0;
    uint32_t *ids = NULL;
    int result = tool_encode(tokenizer, text->text, text->length, flags, &ids, &count);
    if (result == 0 && tool_flag(call, "ids"))
        print_ids(ids, count);
    else if (result == 0)
        result = print_tokens(tokenizer, ids, count);
    free(ids);
    return result;
}

int tool_tokenize(const tool_call *call)
{
    mica_weights *weights = NULL;
    mica_tokenizer *tokenizer = NULL;
    tool_origin origin;
    tool_input text;
    tool_accepted accepted;
    tool_accepted_keys(call, &accepted);
    int result = tool_input_prompt(call, &text, &origin);
    if (result == 0 && origin == TOOL_ORIGIN_NONE)
        result = tool_input_missing(call);
    if (result != 0)
        return result;
    if (tool_weights_open(tool_word(call, "model"), &accepted, &weights) != MICA_OK ||
        mica_tokenizer_create(weights, &tokenizer) != MICA_OK)
        result = tool_fail_status();
    else
        result = tokenize(call, tokenizer, &text);
    mica_tokenizer_release(tokenizer);
    mica_weights_release(weights);
    tool_input_free(&text);
    return result;
}
