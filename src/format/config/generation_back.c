/*
 * generation_back.c - the text of a generation_config.json: the tokens that begin and end a text, and how the makers of a
 * model sample from it, where the GGUF says so.
 */
#include "base/alloc.h"
#include "format/config/config_back.h"
#include "format/convert/convert.h"

static const struct {
    const char *hf, *gguf;
} settings[] = {
    {"temperature", "general.sampling.temp"},
    {"top_k", "general.sampling.top_k"},
    {"top_p", "general.sampling.top_p"},
    {"min_p", "general.sampling.min_p"},
    {"repetition_penalty", "general.sampling.penalty_repeat"},
};

/* A token's id, or -1. */
static int64_t token_of(const mica__archive *archive, const char *key)
{
    const mica_value *value = mica__archive_meta(archive, key);
    if (value == NULL || (value->type != MICA_VALUE_U32 && value->type != MICA_VALUE_I32))
        return -1;
    return value->type == MICA_VALUE_U32 ? (int64_t)value->as.u : value->as.i;
}

static void put_id(mica__json_writer *json, const char *key, int64_t id)
{
    if (id < 0)
        return;
    mica__json_key(json, key);
    mica__json_int(json, id);
}

/* A text may end with more than one token: a list then. */
static void put_ends(mica__json_writer *json, const mica__archive *archive)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t ids[3] = {0};
    size_t count = 0;
    for (size_t i = 0; i < 3; i++) {
        const int64_t id = token_of(archive, keys[i]);
        bool again = id < 0;
        for (size_t k = 0; k < count; k++)
            again = again || ids[k] == id;
        if (!again)
            ids[count++] = id;
    }
    if (count < 2) {
        put_id(json, "eos_token_id", count == 0 ? -1 : ids[0]);
        return;
    }
    mica__json_key(json, "eos_token_id");
    mica__json_begin_array(json);
    for (size_t i = 0; i < count; i++)
        mica__json_int(json, ids[i]);
    mica__json_end_array(json);
}

static void put_sampling(mica__json_writer *json, const mica__archive *archive)
{
    bool any = false;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        const mica_value *value = mica__archive_meta(archive, settings[i].gguf);
        if (value == NULL || (value->type != MICA_VALUE_F32 && value->type != MICA_VALUE_I32))
            continue;
        if (!any) {
            mica__json_key(json, "do_sample");
            mica__json_bool(json, true);
        }
        any = true;
        mica__json_key(json, settings[i].hf);
        if (value->type == MICA_VALUE_F32)
            mica__json_real(json, mica__back_shortest(value->as.f));
        else
            mica__json_int(json, value->as.i);
    }
}

mica_status mica__convert_generation(mica__target *target, const char **out_text)
{
    const mica__archive *archive = target->archive;
    mica__json_writer json;
    char *text = NULL;
    size_t length = 0;
    *out_text = NULL;
    mica__json_writer_init(&json);
    mica__json_begin_object(&json);
    put_id(&json, "bos_token_id", token_of(archive, "tokenizer.ggml.bos_token_id"));
    put_ends(&json, archive);
    put_id(&json, "pad_token_id", token_of(archive, "tokenizer.ggml.padding_token_id"));
    put_sampling(&json, archive);
    mica__json_end_object(&json);
    mica_status status = mica__json_writer_finish(&json, &text, &length);
    if (status == MICA_OK && length > 2) {
        *out_text = mica__target_text(target, "%s\n", text);
        status = *out_text == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
    }
    mica__free(text);
    return status;
}
