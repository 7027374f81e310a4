/* json.c: a tokenizer from the text of a tokenizer.json: model, added tokens, post-processor. What the file asks for and
 * mica does not know is refused by its name, never passed over. */
#include "text/tokenizer/json.h"

#include <string.h>

typedef struct loader {
    mica_tokenizer *t;
    const mica__json *json;
    const mica__json_node *root, *model, *vocab;
    mica__tokenizer_kind kind;
    bool byte_fallback;
} loader;

mica_status mica__tokenizer_json_text(const mica__json *json, const mica__json_node *object, const char *key,
                                      mica_string *out_text)
{
    const mica__json_node *node = mica__json_get(json, object, key);
    *out_text = (mica_string){"", 0};
    if (node == NULL || node->type == MICA__JSON_NULL)
        return MICA_OK;
    if (node->type != MICA__JSON_STRING)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\" in tokenizer.json is %s, not a string", key,
                          mica__json_type_name(node));
    *out_text = (mica_string){node->string.data, node->string.length};
    return MICA_OK;
}

mica_status mica__tokenizer_json_bool(const mica__json *json, const mica__json_node *object, const char *key,
                                      bool *out_value)
{
    const mica__json_node *node = mica__json_get(json, object, key);
    if (node == NULL || node->type == MICA__JSON_NULL)
        return MICA_OK;
    return mica__json_as_bool(node, key, out_value);
}

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a tokenizer");
}

/* ---- the vocabulary ------------------------------------------------------------------------------------------------- */

#define MOST_GAPS 65536 /* ids that no token has; some vocabularies leave a few hundred */

/* One entry of either form: "text": id in an object, or ["text", score] in an array. */
typedef struct entry {
    mica_string text;
    uint64_t id;
    double score;
} entry;

static mica_status read_entry(const loader *l, const mica__json_node *item, uint32_t index, entry *out)
{
    if (l->vocab->type == MICA__JSON_OBJECT) {
        *out = (entry){.text = {item->key, item->key_length}};
        return mica__json_as_uint(item, "an id of the vocabulary", 0, MICA__MOST_TOKENS - 1, &out->id);
    }
    const mica__json_node *text = mica__json_first(item);
    const mica__json_node *score = text == NULL ? NULL : mica__json_next(l->json, text);
    if (text == NULL || text->type != MICA__JSON_STRING || score == NULL || score->type != MICA__JSON_NUMBER)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "entry %u of the vocabulary is no text with a score",
                          index);
    *out = (entry){{text->string.data, text->string.length}, index, score->number.real};
    return MICA_OK;
}

static mica_status count_tokens(const loader *l, uint32_t *out_count)
{
    const mica__json_node *added = mica__json_get(l->json, l->root, "added_tokens");
    const mica__json_node *item = mica__json_first(l->vocab);
    uint64_t count = 0, id = 0, entries = 0;
    mica_status status = MICA_OK;
    for (uint32_t i = 0; item != NULL && status == MICA_OK; item = mica__json_next(l->json, item), i++) {
        entry one = {0};
        status = read_entry(l, item, i, &one);
        count = one.id >= count ? one.id + 1 : count;
        entries++;
    }
    item = added == NULL ? NULL : mica__json_first(added);
    for (; item != NULL && status == MICA_OK; item = mica__json_next(l->json, item)) {
        status = mica__json_get_uint(l->json, item, "id", 0, MICA__MOST_TOKENS - 1, &id);
        count = id >= count ? id + 1 : count;
        entries++;
    }
    if (status == MICA_OK)
        status = mica__spend(entries * 4);
    if (status == MICA_OK && count > entries * 2 + MOST_GAPS)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "tokenizer.json has %llu tokens, but ids up to %llu: the gaps are too large",
                          (unsigned long long)entries, (unsigned long long)(count - 1));
    if (status == MICA_OK)
        status = mica__limit_check("tokens", mica__limits()->vocabulary, count);
    if (status == MICA_OK && (count == 0 || count > MICA__MOST_TOKENS))
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "the vocabulary of the tokenizer is empty or has more than %u tokens",
                          MICA__MOST_TOKENS);
    *out_count = (uint32_t)count;
    return status;
}

static mica_status set_tokens(loader *l)
{
    const mica__json_node *item = mica__json_first(l->vocab);
    mica_status status = MICA_OK;
    for (uint32_t i = 0; item != NULL && status == MICA_OK; item = mica__json_next(l->json, item), i++) {
        entry one = {0};
        status = read_entry(l, item, i, &one);
        if (status != MICA_OK)
            return status;
        if (l->t->text[one.id].length != 0)
            return mica__fail(MICA_ERR_MALFORMED_FILE,
                              "the vocabulary gives the id %llu to \"%.40s\" and to \"%.40s\"",
                              (unsigned long long)one.id, l->t->text[one.id].data, one.text.data);
        const bool byte = l->byte_fallback && mica__byte_of_name(one.text.data, (size_t)one.text.length) >= 0;
        status = mica__tokenizer_set(l->t, (uint32_t)one.id, one.text.data, (size_t)one.text.length,
                                     byte ? MICA_TOKEN_BYTE : MICA_TOKEN_NORMAL, one.score);
    }
    return status;
}

static mica_status set_added(loader *l)
{
    const mica__json_node *added = mica__json_get(l->json, l->root, "added_tokens");
    const mica__json_node *item = added == NULL ? NULL : mica__json_first(added);
    mica_status status = MICA_OK;
    for (; item != NULL && status == MICA_OK; item = mica__json_next(l->json, item)) {
        mica__added one = {0};
        mica_string text = {0};
        uint64_t id = 0;
        bool normalized = false;
        const struct {
            const char *key;
            bool *flag;
        } flags[] = {{"special", &one.special},
                     {"lstrip", &one.left},
                     {"rstrip", &one.right},
                     {"single_word", &one.word},
                     {"normalized", &normalized}};
        status = mica__spend(8 + (uint64_t)item->child_count * 4);
        if (status == MICA_OK)
            status = mica__json_get_uint(l->json, item, "id", 0, l->t->count - 1, &id);
        if (status == MICA_OK)
            status = mica__tokenizer_json_text(l->json, item, "content", &text);
        for (size_t i = 0; i < sizeof flags / sizeof flags[0] && status == MICA_OK; i++)
            status = mica__tokenizer_json_bool(l->json, item, flags[i].key, flags[i].flag);
        one.id = (uint32_t)id;
        if (status == MICA_OK)
            status = mica__tokenizer_set(l->t, one.id, text.data, (size_t)text.length,
                                         one.special ? MICA_TOKEN_CONTROL : MICA_TOKEN_USER, l->t->score[id]);
        if (status == MICA_OK)
            status = mica__tokenizer_add(l->t, one, normalized);
    }
    return status;
}

/* The id of the token that a member names, MICA_NO_TOKEN if it names none. */
static mica_status named_token(const loader *l, const char *key, uint32_t *out_id)
{
    mica_string text = {0};
    const mica_status status = mica__tokenizer_json_text(l->json, l->model, key, &text);
    *out_id = status == MICA_OK && text.length != 0
                  ? mica__token_map_find(&l->t->by_text, text.data, (size_t)text.length)
                  : MICA_NO_TOKEN;
    if (status == MICA_OK && text.length != 0 && *out_id == MICA_NO_TOKEN && l->kind != MICA__TOKENIZER_BPE)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\" is \"%.40s\", which is no token", key, text.data);
    return status;
}

/* ---- models --------------------------------------------------------------------------------------------------------- */

/* "left right", or ["left", "right"]. */
static mica_status read_merge(const loader *l, const mica__json_node *item, mica_string *out_left,
                              mica_string *out_right)
{
    const mica__json_node *left = mica__json_first(item);
    const mica__json_node *right = left == NULL ? NULL : mica__json_next(l->json, left);
    *out_left = *out_right = (mica_string){"", 0};
    if (item->type == MICA__JSON_STRING) {
        const char *data = item->string.data;
        const char *blank = item->string.length < 2 ? NULL : memchr(data + 1, ' ', item->string.length - 1);
        if (blank != NULL) {
            *out_left = (mica_string){data, (uint64_t)(blank - data)};
            *out_right = (mica_string){blank + 1, item->string.length - out_left->length - 1};
            return MICA_OK;
        }
    } else if (left != NULL && right != NULL && left->type == MICA__JSON_STRING &&
               right->type == MICA__JSON_STRING) {
        *out_left = (mica_string){left->string.data, left->string.length};
        *out_right = (mica_string){right->string.data, right->string.length};
        return MICA_OK;
    }
    return mica__fail(MICA_ERR_MALFORMED_FILE, "a merge of the tokenizer is %s, not two texts",
                      mica__json_type_name(item));
}

static mica_status set_merges(loader *l)
{
    const mica__json_node *list = NULL;
    mica_status status = mica__json_get_container(l->json, l->model, "merges", MICA__JSON_ARRAY, &list);
    if (status == MICA_OK)
        status = mica__merge_map_create(&l->t->merges, list->child_count);
    const mica__json_node *item = status == MICA_OK ? mica__json_first(list) : NULL;
    for (uint32_t rank = 0; item != NULL && status == MICA_OK;
         item = mica__json_next(l->json, item), rank++) {
        mica_string left, right;
        status = read_merge(l, item, &left, &right);
        if (status == MICA_OK)
            status = mica__tokenizer_merge(l->t, rank, left, right);
    }
    return status;
}

/* A short text of the model that lives with the tokenizer. */
static mica_status keep_mark(const loader *l, const char *key, mica_string *out_text)
{
    mica_string text = {0};
    const mica_status status = mica__tokenizer_json_text(l->json, l->model, key, &text);
    if (status != MICA_OK)
        return status;
    if (text.length > 32)
        return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\" has %llu bytes, at most 32 are taken", key,
                          (unsigned long long)text.length);
    *out_text = mica__tokenizer_keep(l->t, text.data, (size_t)text.length);
    return out_text->data != NULL ? MICA_OK : no_memory();
}

static mica_status load_bpe(loader *l)
{
    mica_tokenizer *t = l->t;
    const mica__json_node *dropout = mica__json_get(l->json, l->model, "dropout");
    if (dropout != NULL && dropout->type == MICA__JSON_NUMBER && dropout->number.real != 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "the tokenizer has a dropout of %g", dropout->number.real);
    mica_status status = named_token(l, "unk_token", &t->unknown);
    if (status == MICA_OK)
        status = mica__tokenizer_json_bool(l->json, l->model, "fuse_unk", &t->fuse_unknown);
    if (status == MICA_OK)
        status = mica__tokenizer_json_bool(l->json, l->model, "ignore_merges", &t->ignore_merges);
    if (status == MICA_OK)
        status = keep_mark(l, "continuing_subword_prefix", &t->continued);
    if (status == MICA_OK)
        status = keep_mark(l, "end_of_word_suffix", &t->suffix);
    if (status != MICA_OK)
        return status;
    /* Where the alphabet of bytes is the last thing before the model, both can work on bytes themselves. */
    mica__steps *steps = &t->splitter;
    if (steps->count != 0 && steps->step[steps->count - 1].kind == MICA__STEP_BYTES &&
        t->continued.length == 0 && t->suffix.length == 0) {
        steps->count--;
        t->raw_bytes = true;
        for (uint32_t i = 0; i < steps->count; i++)
            if (steps->step[i].kind == MICA__STEP_BYTES)
                return mica__fail(MICA_ERR_UNSUPPORTED, "a tokenizer with ByteLevel twice");
    }
    t->spelling.byte_level = t->spelling.byte_level || t->raw_bytes;
    return set_merges(l);
}

static mica_status load_unigram(loader *l)
{
    const mica__json_node *node = mica__json_get(l->json, l->model, "unk_id");
    uint64_t id = MICA_NO_TOKEN;
    mica_status status = MICA_OK;
    if (node != NULL && node->type != MICA__JSON_NULL)
        status = mica__json_as_uint(node, "unk_id", 0, l->t->count - 1, &id);
    l->t->unknown = (uint32_t)id;
    return status;
}

static mica_status load_wordpiece(loader *l)
{
    const mica__json_node *most = mica__json_get(l->json, l->model, "max_input_chars_per_word");
    uint64_t letters = 100;
    mica_status status = named_token(l, "unk_token", &l->t->unknown);
    if (status == MICA_OK && most != NULL)
        status = mica__json_as_uint(most, "max_input_chars_per_word", 0, UINT32_MAX, &letters);
    l->t->most_letters = (uint32_t)letters;
    if (status == MICA_OK)
        status = keep_mark(l, "continuing_subword_prefix", &l->t->spelling.continued);
    if (status == MICA_OK && l->t->spelling.continued.length == 0)
        l->t->spelling.continued = (mica_string){"##", 2};
    l->t->spelling.words = l->t->spelling.lead = true;
    return status;
}

static mica_status load_words(loader *l)
{
    return named_token(l, "unk_token", &l->t->unknown);
}

static const struct {
    const char *name;
    mica__tokenizer_kind kind;
    mica__json_type vocab;
    mica_status (*load)(loader *l);
} models[] = {
    {"BPE", MICA__TOKENIZER_BPE, MICA__JSON_OBJECT, load_bpe},
    {"Unigram", MICA__TOKENIZER_UNIGRAM, MICA__JSON_ARRAY, load_unigram},
    {"WordPiece", MICA__TOKENIZER_WORDPIECE, MICA__JSON_OBJECT, load_wordpiece},
    {"WordLevel", MICA__TOKENIZER_WORDS, MICA__JSON_OBJECT, load_words},
};
#define MODEL_COUNT (sizeof models / sizeof models[0])

/* Old files do not name the model; what it has tells. */
static const char *guess_model(const loader *l)
{
    const mica__json_node *vocab = mica__json_get(l->json, l->model, "vocab");
    if (mica__json_get(l->json, l->model, "merges") != NULL)
        return "BPE";
    if (vocab != NULL && vocab->type == MICA__JSON_ARRAY)
        return "Unigram";
    return mica__json_get(l->json, l->model, "max_input_chars_per_word") != NULL ? "WordPiece" : "WordLevel";
}

static mica_status find_model(loader *l, size_t *out_index)
{
    mica_string name = {0};
    mica_status status = mica__json_get_container(l->json, l->root, "model", MICA__JSON_OBJECT, &l->model);
    if (status == MICA_OK)
        status = mica__tokenizer_json_text(l->json, l->model, "type", &name);
    if (status != MICA_OK)
        return status;
    const char *text = name.length == 0 ? guess_model(l) : name.data;
    for (*out_index = 0; *out_index < MODEL_COUNT; ++*out_index)
        if (strcmp(text, models[*out_index].name) == 0)
            break;
    if (*out_index == MODEL_COUNT)
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "the tokenizer has a model of type \"%.60s\"; mica knows BPE, Unigram, WordPiece and WordLevel",
            text);
    l->kind = models[*out_index].kind;
    status = mica__json_get_container(l->json, l->model, "vocab", models[*out_index].vocab, &l->vocab);
    return status == MICA_OK
               ? mica__tokenizer_json_bool(l->json, l->model, "byte_fallback", &l->byte_fallback)
               : status;
}

/* ---- the post-processor ------------------------------------------------------------------------------------------- */

static mica_status put_around(mica_tokenizer *t, bool after, uint64_t id)
{
    uint32_t *count = after ? &t->after_count : &t->before_count;
    if (id >= t->count || *count == MICA__MOST_AROUND)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the post_processor of the tokenizer adds %s",
                          id >= t->count ? "an id that is no token" : "too many tokens");
    (after ? t->after : t->before)[(*count)++] = (uint32_t)id;
    return MICA_OK;
}

/* {"SpecialToken": {"id": "[CLS]"}}, whose ids stand in "special_tokens". */
static mica_status read_template_item(loader *l, const mica__json_node *node, const mica__json_node *item,
                                      bool *after)
{
    mica_string name = {0};
    uint64_t id = 0;
    const mica__json_node *token = mica__json_get(l->json, item, "SpecialToken");
    if (token == NULL) {
        *after = true;
        return MICA_OK;
    }
    MICA__TRY(mica__tokenizer_json_text(l->json, token, "id", &name));
    const mica__json_node *specials = mica__json_get(l->json, node, "special_tokens");
    mica_status status = mica__spend(4 + (specials == NULL ? 0 : specials->child_count));
    const mica__json_node *special = mica__json_get(l->json, specials, name.data);
    const mica__json_node *ids = mica__json_get(l->json, special, "ids");
    const mica__json_node *one = ids == NULL ? NULL : mica__json_first(ids);
    for (; one != NULL && status == MICA_OK; one = mica__json_next(l->json, one)) {
        status = mica__json_as_uint(one, "an id of the post_processor", 0, UINT32_MAX, &id);
        if (status == MICA_OK)
            status = put_around(l->t, *after, id);
    }
    return status;
}

static mica_status read_template(loader *l, const mica__json_node *node)
{
    const mica__json_node *single = NULL;
    bool after = false;
    mica_status status = mica__json_get_container(l->json, node, "single", MICA__JSON_ARRAY, &single);
    const mica__json_node *item = status == MICA_OK ? mica__json_first(single) : NULL;
    for (; item != NULL && status == MICA_OK; item = mica__json_next(l->json, item))
        status = read_template_item(l, node, item, &after);
    return status;
}

/* "cls": ["[CLS]", 101] */
static mica_status read_pair(loader *l, const mica__json_node *node, const char *key, bool after)
{
    const mica__json_node *pair = NULL;
    uint64_t id = 0;
    mica_status status = mica__json_get_container(l->json, node, key, MICA__JSON_ARRAY, &pair);
    const mica__json_node *text = status == MICA_OK ? mica__json_first(pair) : NULL;
    if (status == MICA_OK)
        status =
            mica__json_as_uint(text == NULL ? NULL : mica__json_next(l->json, text), key, 0, UINT32_MAX, &id);
    return status == MICA_OK ? put_around(l->t, after, id) : status;
}

/* *out_found: the file says what is added. */
static mica_status read_processor(loader *l, const mica__json_node *node, bool *out_found)
{
    mica_string type = {0};
    if (node == NULL || node->type == MICA__JSON_NULL)
        return MICA_OK;
    mica_status status = mica__tokenizer_json_text(l->json, node, "type", &type);
    if (status != MICA_OK || strcmp(type.data, "ByteLevel") == 0)
        return status;
    if (strcmp(type.data, "Sequence") == 0) {
        const mica__json_node *list = NULL;
        status = mica__json_get_container(l->json, node, "processors", MICA__JSON_ARRAY, &list);
        const mica__json_node *item = status == MICA_OK ? mica__json_first(list) : NULL;
        for (; item != NULL && status == MICA_OK; item = mica__json_next(l->json, item))
            status = read_processor(l, item, out_found);
        return status;
    }
    *out_found = true;
    if (strcmp(type.data, "TemplateProcessing") == 0)
        return read_template(l, node);
    if (strcmp(type.data, "BertProcessing") != 0 && strcmp(type.data, "RobertaProcessing") != 0)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "the tokenizer has a post_processor of type \"%.60s\", which mica does not know",
                          type.data);
    status = read_pair(l, node, "cls", false);
    return status == MICA_OK ? read_pair(l, node, "sep", true) : status;
}

/* ---- the whole -------------------------------------------------------------------------------------------------------- */

static void find_by_name(mica_tokenizer *t)
{
    const struct {
        uint32_t *id;
        const char *names[2];
    } known[] = {{&t->info.cls, {"[CLS]", "[CLS]"}},
                 {&t->info.sep, {"[SEP]", "[SEP]"}},
                 {&t->info.pad, {"[PAD]", "<pad>"}},
                 {&t->info.mask, {"[MASK]", "<mask>"}}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        for (size_t k = 0; k < 2 && *known[i].id == MICA_NO_TOKEN; k++)
            *known[i].id = mica__token_map_find(&t->by_text, known[i].names[k], strlen(known[i].names[k]));
}

static mica_status set_specials(loader *l, const mica_weights *weights)
{
    mica_tokenizer *t = l->t;
    bool found = false;
    t->info.unk = t->unknown;
    mica_status status = mica__tokenizer_read_specials(t, weights);
    if (status == MICA_OK)
        status = read_processor(l, mica__json_get(l->json, l->root, "post_processor"), &found);
    if (status != MICA_OK)
        return status;
    find_by_name(t);
    if (!found) {
        mica__tokenizer_set_around(t);
        return MICA_OK;
    }
    t->info.add_bos = t->before_count != 0;
    t->info.add_eos = t->after_count != 0;
    if (t->info.bos == MICA_NO_TOKEN && t->before_count != 0)
        t->info.bos = t->before[0];
    if (t->info.eos == MICA_NO_TOKEN && t->after_count != 0)
        t->info.eos = t->after[0];
    return MICA_OK;
}

static mica_status load(loader *l, const mica_weights *weights, size_t model)
{
    l->t->kind = l->kind;
    l->t->byte_fallback = l->t->spelling.bytes = l->byte_fallback;
    l->t->from_json = true;
    mica_status status = set_tokens(l);
    if (status == MICA_OK)
        status = set_added(l);
    if (status == MICA_OK)
        status = mica__token_map_create(&l->t->by_text, l->t->text, l->t->count);
    if (status == MICA_OK)
        status = mica__tokenizer_json_steps(l->t, l->json);
    if (status == MICA_OK)
        status = mica__tokenizer_json_decoder(l->t, l->json);
    if (status == MICA_OK)
        status = models[model].load(l);
    if (status == MICA_OK)
        status = set_specials(l, weights);
    return status == MICA_OK ? mica__tokenizer_finish(l->t) : status;
}

mica_status mica__tokenizer_from_json(const mica_weights *weights, const char *text, size_t length,
                                      mica_tokenizer **out_tokenizer)
{
    mica__json *json = NULL;
    uint32_t count = 0;
    size_t model = 0;
    *out_tokenizer = NULL;
    mica__spend_allow(length);
    mica_status status = mica__json_parse(text, length, NULL, &json);
    if (status != MICA_OK)
        return mica__fail(status, "tokenizer.json: %s", mica_status_message());
    loader l = {.json = json, .root = mica__json_root(json)};
    status = find_model(&l, &model);
    if (status == MICA_OK)
        status = count_tokens(&l, &count);
    if (status == MICA_OK) {
        l.t = mica__tokenizer_new(count);
        status = l.t == NULL ? no_memory() : load(&l, weights, model);
    }
    mica__json_release(json);
    if (status != MICA_OK)
        mica_tokenizer_release(l.t);
    else
        *out_tokenizer = l.t;
    return status;
}
