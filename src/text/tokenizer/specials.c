/* specials.c: the tokens with a part to play: beginning, end, unknown; from the metadata, and from the names that
 * everybody gives them. */
#include <string.h>

#include "text/tokenizer/tokenizer.h"

mica_status mica__tokenizer_read_bool(const mica_weights *weights, const char *key, bool *out_value)
{
    const mica_value *value = NULL;
    if (weights == NULL || mica_weights_get(weights, key, &value) != MICA_OK)
        return MICA_OK;
    if (value->type != MICA_VALUE_BOOL)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "%s is %s, not a bool", key,
                          mica_value_type_name(value->type));
    *out_value = value->as.u != 0;
    return MICA_OK;
}

/* An id of the metadata: one that is not there leaves *out_id alone, one that is no token is refused. */
static mica_status read_id(const mica_tokenizer *t, const mica_weights *weights, const char *key,
                           uint32_t *out_id)
{
    const mica_value *value = NULL;
    if (weights == NULL || mica_weights_get(weights, key, &value) != MICA_OK)
        return MICA_OK;
    const mica_value_type type = value->type;
    const bool is_unsigned =
        type == MICA_VALUE_U8 || type == MICA_VALUE_U16 || type == MICA_VALUE_U32 || type == MICA_VALUE_U64;
    const bool is_signed =
        type == MICA_VALUE_I8 || type == MICA_VALUE_I16 || type == MICA_VALUE_I32 || type == MICA_VALUE_I64;
    if (!is_unsigned && !is_signed)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "%s is %s, not an integer", key,
                          mica_value_type_name(type));
    if (is_signed && value->as.i == -1) { /* the way to write none */
        *out_id = MICA_NO_TOKEN;
        return MICA_OK;
    }
    if ((is_signed && value->as.i < 0) || value->as.u >= t->count)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "%s is %lld, the tokenizer has %u tokens", key,
                          (long long)value->as.i, t->count);
    *out_id = (uint32_t)value->as.u;
    return MICA_OK;
}

/* Texts of tokens that end an answer. `turn`: they are also looked for as the end of a turn, in this order. */
static const struct {
    const char *text;
    bool turn;
} ends[] = {
    {"<|eot_id|>", true},
    {"<|im_end|>", true},
    {"<|end|>", true},
    {"<end_of_turn>", true},
    {"<turn|>", true},
    {"<|endoftext|>", true},
    {"<|end_of_text|>", true},
    {"<EOT>", true},
    {"_<EOT>", true},
    {"[EOT]", true},
    {"<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     true},
    {"<end_of_utterance>", true},
    {"<|return|>", false},
    {"<|call|>", false},
    {"<|calls|>", false},
    {"<|flush|>", false},
    {"<|eom_id|>", false},
    {"</s>", false},
    {"<eos>", false},
    {"[EOS]", false},
    {"[e~[", false},
};

static uint32_t find_token(const mica_tokenizer *t, const char *text)
{
    return mica__token_map_find(&t->by_text, text, strlen(text));
}

static void find_ends(mica_tokenizer *t, uint32_t eom)
{
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const uint32_t id = find_token(t, ends[i].text);
        if (id == MICA__NO_WORD)
            continue;
        t->is_end[id] = 1;
        if (!t->from_json) /* files often call them normal; a tokenizer.json says what it means */
            t->token_kind[id] = MICA_TOKEN_CONTROL;
        if (ends[i].turn && t->info.eot == MICA_NO_TOKEN)
            t->info.eot = id;
    }
    const uint32_t known[] = {t->info.eos, t->info.eot, eom};
    for (size_t i = 0; i < 3; i++)
        if (known[i] != MICA_NO_TOKEN)
            t->is_end[known[i]] = 1;
    /* Where an answer has parts, <|end|> ends a part. */
    const uint32_t part = find_token(t, "<|end|>");
    if (part != MICA__NO_WORD && part != t->info.eos &&
        (find_token(t, "<|return|>") != MICA__NO_WORD || find_token(t, "<|flush|>") != MICA__NO_WORD) &&
        (find_token(t, "<|call|>") != MICA__NO_WORD || find_token(t, "<|calls|>") != MICA__NO_WORD))
        t->is_end[part] = 0;
}

mica_status mica__tokenizer_read_specials(mica_tokenizer *t, const mica_weights *weights)
{
    uint32_t eom = MICA_NO_TOKEN;
    bool add_bos = t->info.add_bos != 0, add_eos = t->info.add_eos != 0;
    const struct {
        const char *key;
        uint32_t *id;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", &t->info.bos},
        {"tokenizer.ggml.eos_token_id", &t->info.eos},
        {"tokenizer.ggml.eot_token_id", &t->info.eot},
        {"tokenizer.ggml.eom_token_id", &eom},
        {"tokenizer.ggml.unknown_token_id", &t->info.unk},
        {"tokenizer.ggml.padding_token_id", &t->info.pad},
        {"tokenizer.ggml.seperator_token_id", &t->info.sep},
        {"tokenizer.ggml.cls_token_id", &t->info.cls},
        {"tokenizer.ggml.mask_token_id", &t->info.mask},
    };
    mica_status status = MICA_OK;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0] && status == MICA_OK; i++)
        status = read_id(t, weights, ids[i].key, ids[i].id);
    if (status == MICA_OK)
        status = mica__tokenizer_read_bool(weights, "tokenizer.ggml.add_bos_token", &add_bos);
    if (status == MICA_OK)
        status = mica__tokenizer_read_bool(weights, "tokenizer.ggml.add_eos_token", &add_eos);
    t->info.add_bos = add_bos;
    t->info.add_eos = add_eos;
    if (status == MICA_OK && t->by_text.slots == NULL)
        status = mica__token_map_create(&t->by_text, t->text, t->count);
    if (status == MICA_OK)
        find_ends(t, eom);
    return status;
}

void mica__tokenizer_set_around(mica_tokenizer *t)
{
    t->info.add_bos = t->info.add_bos && t->info.bos != MICA_NO_TOKEN;
    t->info.add_eos = t->info.add_eos && t->info.eos != MICA_NO_TOKEN;
    t->before_count = t->after_count = 0;
    if (t->info.add_bos)
        t->before[t->before_count++] = t->info.bos;
    if (t->info.add_eos)
        t->after[t->after_count++] = t->info.eos;
}
