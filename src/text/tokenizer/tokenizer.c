/* tokenizer.c: the public face: which loader makes a tokenizer, and what it tells of itself. */
#include "text/tokenizer/tokenizer.h"

#include <string.h>

static mica_status create(const mica_weights *weights, mica_tokenizer **out_tokenizer)
{
    const mica_value *json = NULL;
    if (out_tokenizer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_tokenizer is NULL");
    *out_tokenizer = NULL;
    if (weights == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "weights is NULL");
    if (mica_weights_get(weights, "tokenizer.huggingface.json", &json) != MICA_OK)
        return mica__tokenizer_from_gguf(weights, out_tokenizer);
    if (json->type != MICA_VALUE_STRING)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "tokenizer.huggingface.json is %s, not a string",
                          mica_value_type_name(json->type));
    return mica__tokenizer_from_json(weights, json->as.string.data, (size_t)json->as.string.length,
                                     out_tokenizer);
}

mica_status mica_tokenizer_create(const mica_weights *weights, mica_tokenizer **out_tokenizer)
{
    mica__call call;
    mica__call_begin(&call, "tokenizer_create");
    return mica__call_end(&call, create(weights, out_tokenizer));
}

mica_status mica_tokenizer_get_info(const mica_tokenizer *tokenizer, mica_tokenizer_info *out)
{
    if (tokenizer == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", tokenizer == NULL ? "tokenizer" : "out");
    *out = tokenizer->info;
    return MICA_OK;
}

mica_status mica_tokenizer_token(const mica_tokenizer *tokenizer, uint32_t id, mica_string *out_text,
                                 mica_token_kind *out_kind)
{
    if (tokenizer == NULL || out_text == NULL || out_kind == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          tokenizer == NULL  ? "tokenizer"
                          : out_text == NULL ? "out_text"
                                             : "out_kind");
    if (id >= tokenizer->count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "id is %u, the tokenizer has %u tokens", id,
                          tokenizer->count);
    *out_text = tokenizer->text[id];
    *out_kind = (mica_token_kind)tokenizer->token_kind[id];
    return MICA_OK;
}

uint32_t mica_tokenizer_find(const mica_tokenizer *tokenizer, const char *text, uint64_t length)
{
    if (tokenizer == NULL || text == NULL || length == 0)
        return MICA_NO_TOKEN;
    return mica__token_map_find(&tokenizer->by_text, text, (size_t)length);
}

int mica_tokenizer_is_end(const mica_tokenizer *tokenizer, uint32_t id)
{
    return tokenizer != NULL && id < tokenizer->count && tokenizer->is_end[id] != 0;
}
