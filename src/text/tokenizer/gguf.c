/* gguf.c: a tokenizer from the metadata of a GGUF (tokenizer.ggml.*). Every value is checked for its type and
 * against the number of tokens; a sentence names its key. */
#include <string.h>

#include "text/tokenizer/tokenizer.h"

#define KEY "tokenizer.ggml."

/* What a kind of model in the file means here. */
typedef struct model_kind {
    const char *name;
    mica__tokenizer_kind kind;
    bool add_bos, add_eos, space_prefix;
    /* where the file does not say; dropped if there are not so many tokens */
    uint32_t bos, eos, unk, sep, pad, mask;
} model_kind;

static const uint32_t none = MICA_NO_TOKEN;

static const model_kind *find_model(const char *name)
{
    static const model_kind models[] = {
        {"llama", MICA__TOKENIZER_SPM, true, false, true, 1, 2, 0, MICA_NO_TOKEN, MICA_NO_TOKEN,
         MICA_NO_TOKEN},
        {"gpt2", MICA__TOKENIZER_BPE, false, false, false, MICA_NO_TOKEN, MICA_NO_TOKEN, MICA_NO_TOKEN,
         MICA_NO_TOKEN, MICA_NO_TOKEN, MICA_NO_TOKEN},
        {"gemma4", MICA__TOKENIZER_BPE, true, false, false, MICA_NO_TOKEN, MICA_NO_TOKEN, MICA_NO_TOKEN,
         MICA_NO_TOKEN, MICA_NO_TOKEN, MICA_NO_TOKEN},
        {"bert", MICA__TOKENIZER_WORDPIECE, true, true, false, 101, MICA_NO_TOKEN, 100, 102, 0, 103},
        {"t5", MICA__TOKENIZER_UNIGRAM, false, true, true, MICA_NO_TOKEN, 1, 2, MICA_NO_TOKEN, 0,
         MICA_NO_TOKEN},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(name, models[i].name) == 0)
            return &models[i];
    return NULL;
}

/* ---- values of the metadata ---------------------------------------------------------------------------------------- */

/* A string; "" where it is not there. */
static mica_status read_string(const mica_weights *weights, const char *key, const char **out_text)
{
    const mica_value *value = NULL;
    *out_text = "";
    if (mica_weights_get(weights, key, &value) != MICA_OK)
        return MICA_OK;
    if (value->type != MICA_VALUE_STRING)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "%s is %s, not a string", key,
                          mica_value_type_name(value->type));
    *out_text = value->as.string.data;
    return MICA_OK;
}

/* An array whose items are of one of two types; NULL where it is not there. */
static mica_status read_array(const mica_weights *weights, const char *key, mica_value_type type,
                              mica_value_type or_type, const mica_value **out_array)
{
    const mica_value *value = NULL;
    *out_array = NULL;
    if (mica_weights_get(weights, key, &value) != MICA_OK)
        return MICA_OK;
    if (value->type != MICA_VALUE_ARRAY || (value->item_type != type && value->item_type != or_type))
        return mica__fail(
            MICA_ERR_MALFORMED_FILE, "%s is %s%s, not an array of %s", key,
            value->type == MICA_VALUE_ARRAY ? "an array of " : "",
            mica_value_type_name(value->type == MICA_VALUE_ARRAY ? value->item_type : value->type),
            mica_value_type_name(type));
    *out_array = value;
    return MICA_OK;
}

static mica_status check_count(const char *key, const mica_value *array, uint64_t count)
{
    if (array == NULL || array->count == count)
        return MICA_OK;
    return mica__fail(MICA_ERR_MALFORMED_FILE, "%s has %llu items for %llu tokens", key,
                      (unsigned long long)array->count, (unsigned long long)count);
}

/* ---- tokens ------------------------------------------------------------------------------------------------------------ */

typedef struct token_arrays {
    const mica_value *tokens, *scores, *types;
} token_arrays;

static mica_status read_arrays(const mica_weights *weights, mica__tokenizer_kind kind, token_arrays *out)
{
    mica_status status =
        read_array(weights, KEY "tokens", MICA_VALUE_STRING, MICA_VALUE_STRING, &out->tokens);
    if (status == MICA_OK && (out->tokens == NULL || out->tokens->count == 0))
        return mica__fail(MICA_ERR_MALFORMED_FILE, KEY "tokens is not there or empty");
    if (status == MICA_OK && out->tokens->count > MICA__MOST_TOKENS)
        return mica__fail(MICA_ERR_MALFORMED_FILE, KEY "tokens has %llu items, at most %u are taken",
                          (unsigned long long)out->tokens->count, MICA__MOST_TOKENS);
    if (status == MICA_OK)
        status = mica__limit_check("tokens", mica__limits()->vocabulary, out->tokens->count);
    if (status == MICA_OK)
        status = read_array(weights, KEY "scores", MICA_VALUE_F32, MICA_VALUE_I32, &out->scores);
    if (status == MICA_OK)
        status = check_count(KEY "scores", out->scores, out->tokens->count);
    if (status == MICA_OK && out->scores == NULL &&
        (kind == MICA__TOKENIZER_SPM || kind == MICA__TOKENIZER_UNIGRAM))
        return mica__fail(MICA_ERR_MALFORMED_FILE, KEY "scores is not there");
    if (status == MICA_OK)
        status = read_array(weights, KEY "token_type", MICA_VALUE_I32, MICA_VALUE_U32, &out->types);
    return status == MICA_OK ? check_count(KEY "token_type", out->types, out->tokens->count) : status;
}

static mica_status set_tokens(mica_tokenizer *t, const token_arrays *arrays)
{
    const mica_string *texts = arrays->tokens->as.items;
    const int32_t *types = arrays->types == NULL ? NULL : arrays->types->as.items;
    mica_status status = MICA_OK;
    for (uint32_t id = 0; id < t->count && status == MICA_OK; id++) {
        const int32_t type = types == NULL ? MICA_TOKEN_NORMAL : types[id];
        double score = 0;
        if (arrays->scores != NULL)
            score = arrays->scores->item_type == MICA_VALUE_F32
                        ? ((const float *)arrays->scores->as.items)[id]
                        : ((const int32_t *)arrays->scores->as.items)[id];
        const bool known = type >= MICA_TOKEN_NORMAL && type <= MICA_TOKEN_BYTE;
        status = mica__tokenizer_set(t, id, texts[id].data, (size_t)texts[id].length,
                                     known ? (mica_token_kind)type : MICA_TOKEN_UNUSED, score);
    }
    return status;
}

/* "left right": the blank is not the first byte, which may be part of a token. */
static mica_status set_merges(mica_tokenizer *t, const mica_weights *weights)
{
    const mica_value *array = NULL;
    mica_status status = read_array(weights, KEY "merges", MICA_VALUE_STRING, MICA_VALUE_STRING, &array);
    if (status == MICA_OK && (array == NULL || array->count > MICA__MOST_TOKENS))
        return mica__fail(MICA_ERR_MALFORMED_FILE, KEY "merges %s",
                          array == NULL ? "is not there" : "is too long");
    if (status == MICA_OK)
        status = mica__merge_map_create(&t->merges, (size_t)array->count);
    for (uint32_t i = 0; status == MICA_OK && i < array->count; i++) {
        const mica_string text = ((const mica_string *)array->as.items)[i];
        const char *blank = text.length < 2 ? NULL : memchr(text.data + 1, ' ', (size_t)text.length - 1);
        const size_t left = blank == NULL ? 0 : (size_t)(blank - text.data);
        status = mica__tokenizer_merge(
            t, i, (mica_string){text.data, left},
            (mica_string){text.data + left + 1, blank == NULL ? 0 : text.length - left - 1});
    }
    return status;
}

/* ---- what is around them ----------------------------------------------------------------------------------------------- */

static mica_status add_text_step(mica_tokenizer *t, mica__step_kind kind, const char *text, const char *with)
{
    mica__step *step = mica__steps_add(&t->normalizer, kind);
    if (step == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "a tokenizer with more than %d steps", MICA__MOST_STEPS);
    step->text = (mica_string){text, strlen(text)};
    step->with = (mica_string){with, strlen(with)};
    return MICA_OK;
}

static mica_status set_marks(mica_tokenizer *t, bool space_prefix)
{
    mica_status status = space_prefix ? add_text_step(t, MICA__STEP_PREPEND, " ", "") : MICA_OK;
    t->spelling.marks = true;
    t->spelling.bytes = true;
    t->spelling.lead = space_prefix;
    t->byte_fallback = true;
    return status == MICA_OK ? add_text_step(t, MICA__STEP_REPLACE, " ", MICA__MARK) : status;
}

static mica_status set_rule(mica_tokenizer *t, const mica_weights *weights, const char *name)
{
    const mica__rule *rule = mica__rule_find(name);
    if (rule == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, KEY "pre is \"%s\", a rule that mica does not know", name);
    strncpy(t->rule, rule->name, sizeof t->rule - 1);
    t->ignore_merges = (rule->flags & MICA__RULE_IGNORE_MERGES) != 0;
    if ((rule->flags & MICA__RULE_ADD_BOS) != 0)
        t->info.add_bos = 1;
    mica_status status = MICA_OK;
    if ((rule->flags & MICA__RULE_TEXT) == 0) {
        t->raw_bytes = t->spelling.byte_level = true;
    } else {
        t->byte_fallback = t->spelling.bytes = true;
        if ((rule->flags & MICA__RULE_MARKS) != 0)
            status = set_marks(t, false);
    }
    for (size_t i = 0; status == MICA_OK && rule->patterns[i] != NULL; i++)
        status = mica__steps_add_regex(&t->splitter, MICA__STEP_SPLIT_REGEX, rule->patterns[i],
                                       strlen(rule->patterns[i]), NULL);
    return status == MICA_OK ? set_merges(t, weights) : status;
}

static mica_status set_wordpiece(mica_tokenizer *t, const mica_weights *weights)
{
    bool lower = true;
    mica_status status = mica__tokenizer_read_bool(weights, KEY "normalizer.lowercase", &lower);
    bool accents = lower;
    if (status == MICA_OK)
        status = mica__tokenizer_read_bool(weights, KEY "normalizer.strip_accents", &accents);
    mica__step *step = mica__steps_add(&t->normalizer, MICA__STEP_BERT);
    mica__step *spaces = mica__steps_add(&t->splitter, MICA__STEP_SPLIT_SPACE);
    mica__step *punctuation = mica__steps_add(&t->splitter, MICA__STEP_SPLIT_PUNCTUATION);
    if (step == NULL || spaces == NULL || punctuation == NULL)
        return MICA_ERR_UNSUPPORTED; /* not so: both lists were empty */
    step->flags = MICA__STEP_CLEAN | MICA__STEP_CHINESE | (accents ? MICA__STEP_ACCENTS : 0) |
                  (lower ? MICA__STEP_LOWER : 0);
    spaces->behaviour = MICA__BEHAVIOUR_REMOVED;
    t->spelling.words = t->spelling.tidy = t->spelling.lead = true;
    return status;
}

static mica_status set_unigram(mica_tokenizer *t, const mica_weights *weights, bool space_prefix)
{
    const mica_value *map = NULL;
    bool squeeze = false;
    mica_status status = read_array(weights, KEY "precompiled_charsmap", MICA_VALUE_U8, MICA_VALUE_I8, &map);
    if (status == MICA_OK && map != NULL && map->count != 0) {
        status = mica__charsmap_check(map->as.items, (size_t)map->count);
        mica__step *step = mica__steps_add(&t->normalizer, MICA__STEP_CHARSMAP);
        if (status == MICA_OK && step != NULL)
            step->text = mica__tokenizer_keep(t, map->as.items, (size_t)map->count);
        if (status == MICA_OK && (step == NULL || step->text.data == NULL))
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a tokenizer");
    }
    if (status == MICA_OK)
        status = mica__tokenizer_read_bool(weights, KEY "remove_extra_whitespaces", &squeeze);
    if (status == MICA_OK && squeeze)
        mica__steps_add(&t->normalizer, MICA__STEP_SQUEEZE);
    return status == MICA_OK ? set_marks(t, space_prefix) : status;
}

static mica_status set_model(mica_tokenizer *t, const mica_weights *weights, const model_kind *model)
{
    bool space_prefix = model->space_prefix;
    const char *rule = "";
    mica_status status = mica__tokenizer_read_bool(weights, KEY "add_space_prefix", &space_prefix);
    if (status == MICA_OK)
        status = read_string(weights, KEY "pre", &rule);
    if (status != MICA_OK)
        return status;
    switch (model->kind) {
    case MICA__TOKENIZER_SPM: return set_marks(t, space_prefix);
    case MICA__TOKENIZER_WORDPIECE: return set_wordpiece(t, weights);
    case MICA__TOKENIZER_UNIGRAM: return set_unigram(t, weights, space_prefix);
    default:
        if (strcmp(model->name, "gemma4") == 0)
            rule = "gemma4";
        return set_rule(t, weights, rule[0] == '\0' ? "default" : rule);
    }
}

static uint32_t default_id(const mica_tokenizer *t, uint32_t id)
{
    return id < t->count ? id : none;
}

/* Tokens that eat the blanks behind them; the file does not say so, the family's makers do. */
static bool eats_blanks(const mica_weights *weights)
{
    const char *family = "";
    return read_string(weights, "general.architecture", &family) == MICA_OK && strcmp(family, "phi3") == 0;
}

static mica_status set_added(mica_tokenizer *t, const mica_weights *weights)
{
    const bool right = t->kind == MICA__TOKENIZER_SPM && eats_blanks(weights);
    mica_status status = MICA_OK;
    for (uint32_t id = 0; id < t->count && status == MICA_OK; id++) {
        const uint8_t kind = t->token_kind[id];
        const bool special = kind == MICA_TOKEN_CONTROL || kind == MICA_TOKEN_UNKNOWN;
        const bool plain =
            id == t->info.bos || id == t->info.unk || strcmp(t->text[id].data, "<|endoftext|>") == 0;
        if (special || kind == MICA_TOKEN_USER)
            status = mica__tokenizer_add(
                t, (mica__added){.id = id, .special = special, .right = right && !plain}, false);
    }
    return status;
}

/* A wordpiece text stands between [CLS] and [SEP], a RoBERTa one between its <s> and </s>. */
static void set_separator(mica_tokenizer *t)
{
    if (t->info.sep == none && t->info.eos == none)
        return;
    t->info.eos = t->info.eos == none ? t->info.sep : t->info.eos;
    t->info.sep = t->info.sep == none ? t->info.eos : t->info.sep;
    t->after[0] = t->info.sep;
    t->after_count = 1;
    t->info.add_eos = 1;
}

static mica_status load(mica_tokenizer *t, const mica_weights *weights, const model_kind *model,
                        const token_arrays *arrays)
{
    t->kind = model->kind;
    t->info.add_bos = model->add_bos;
    t->info.add_eos = model->add_eos;
    t->info.bos = default_id(t, model->bos);
    t->info.eos = default_id(t, model->eos);
    t->info.unk = default_id(t, model->unk);
    t->info.sep = default_id(t, model->sep);
    t->info.pad = default_id(t, model->pad);
    t->info.mask = default_id(t, model->mask);
    mica_status status = set_tokens(t, arrays);
    if (status == MICA_OK)
        status = mica__token_map_create(&t->by_text, t->text, t->count);
    if (status == MICA_OK)
        status = set_model(t, weights, model);
    if (status == MICA_OK)
        status = mica__tokenizer_read_specials(t, weights);
    if (status != MICA_OK)
        return status;
    bool add_sep = t->kind == MICA__TOKENIZER_WORDPIECE;
    const mica__rule *rule = mica__rule_find(t->rule);
    add_sep = add_sep || (rule != NULL && (rule->flags & MICA__RULE_ADD_SEP) != 0);
    status = mica__tokenizer_read_bool(weights, KEY "add_sep_token", &add_sep);
    if (t->kind == MICA__TOKENIZER_WORDPIECE && t->info.cls == none)
        t->info.cls = t->info.bos;
    if (t->kind == MICA__TOKENIZER_WORDPIECE && t->info.bos == none)
        t->info.bos = t->info.cls;
    mica__tokenizer_set_around(t);
    if (t->kind != MICA__TOKENIZER_BPE) /* there a byte without a token is passed over */
        t->unknown = t->info.unk;
    if (add_sep)
        set_separator(t);
    if (status == MICA_OK)
        status = set_added(t, weights);
    return status == MICA_OK ? mica__tokenizer_finish(t) : status;
}

mica_status mica__tokenizer_from_gguf(const mica_weights *weights, mica_tokenizer **out_tokenizer)
{
    const char *name = "";
    token_arrays arrays = {0};
    *out_tokenizer = NULL;
    MICA__TRY(read_string(weights, KEY "model", &name));
    if (name[0] == '\0' || strcmp(name, "none") == 0)
        return mica__fail(MICA_ERR_NOT_FOUND, "the file has no tokenizer (" KEY "model)");
    const model_kind *model = find_model(name);
    if (model == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          KEY "model is \"%s\"; mica knows llama, gpt2, gemma4, bert and t5", name);
    MICA__TRY(read_arrays(weights, model->kind, &arrays));
    mica_tokenizer *t = mica__tokenizer_new((uint32_t)arrays.tokens->count);
    if (t == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a tokenizer");
    mica_status status = load(t, weights, model, &arrays);
    if (status != MICA_OK)
        mica_tokenizer_release(t);
    else
        *out_tokenizer = t;
    return status;
}
