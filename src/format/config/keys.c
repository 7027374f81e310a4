/* keys.c - config.json against the table of keys. */
#include "format/config/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const mica__key_row rows[] = {
#define MICA__KEY(classes, key, verdict, detail) {classes, key, MICA__KEY_##verdict, detail},
#include "format/config/keys.def"
#undef MICA__KEY
};

#define ROWS (sizeof rows / sizeof rows[0])

static const char *const classes[] = {"llama",     "mistral", "mixtral",     "qwen2",  "qwen3",
                                      "qwen3_moe", "gemma2",  "gemma3_text", "gemma3", "phi3",
                                      "gpt2",      "bert",    NULL};

const char *const *mica__key_classes(void)
{
    return classes;
}

const mica__key_row *mica__key_rows(uint32_t *out_count)
{
    *out_count = (uint32_t)ROWS;
    return rows;
}

static bool fits(const char *pattern, const char *key)
{
    const size_t length = strlen(pattern);
    if (length != 0 && pattern[length - 1] == '*')
        return strncmp(pattern, key, length - 1) == 0;
    return strcmp(pattern, key) == 0;
}

const mica__key_row *mica__key_find(const char *key_class, const char *key)
{
    for (size_t i = 0; i < ROWS; i++)
        if (mica__name_family_listed(rows[i].classes, key_class) && fits(rows[i].key, key))
            return &rows[i];
    return NULL;
}

/* ---- classes -------------------------------------------------------------------------------------------- */

static const char *known_class(const char *name)
{
    for (size_t i = 0; classes[i] != NULL; i++)
        if (strcmp(classes[i], name) == 0)
            return classes[i];
    return NULL;
}

/* The class whose models are called so: "MistralForCausalLM" and "MistralModel" are of mistral. */
static const char *class_of_architecture(const char *name)
{
    static const struct {
        const char *begin, *key_class;
    } begins[] = {
        {"Llama", "llama"},        {"Mistral", "mistral"},
        {"Mixtral", "mixtral"},    {"Qwen2", "qwen2"},
        {"Qwen3Moe", "qwen3_moe"}, {"Qwen3", "qwen3"},
        {"Gemma2", "gemma2"},      {"Gemma3ForCond", "gemma3"},
        {"Gemma3", "gemma3_text"}, {"Phi3", "phi3"},
        {"GPT2", "gpt2"},          {"Bert", "bert"},
    };
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        if (strncmp(name, begins[i].begin, strlen(begins[i].begin)) == 0)
            return begins[i].key_class;
    return NULL;
}

mica_status mica__key_class(const mica__json *json, const mica__name_family *family, const char **out_class)
{
    const mica__json_node *root = mica__json_root(json), *type = mica__json_get(json, root, "model_type"),
                          *list = mica__json_get(json, root, "architectures");
    const mica__json_node *name = list == NULL ? NULL : mica__json_first(list);
    *out_class = NULL;
    if (type != NULL && type->type == MICA__JSON_STRING)
        *out_class = known_class(type->string.data);
    else if (name != NULL && name->type == MICA__JSON_STRING)
        *out_class = class_of_architecture(name->string.data);
    if (*out_class != NULL && mica__name_family_of_hf(*out_class) == family)
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "config.json: \"model_type\" is \"%.60s\", which does not agree with architectures, a "
                      "%s model",
                      type != NULL && type->type == MICA__JSON_STRING ? type->string.data : "", family->arch);
}

const char *mica__key_text_class(const char *key_class)
{
    return strcmp(key_class, "gemma3") == 0 ? "gemma3_text" : key_class;
}

/* ---- values --------------------------------------------------------------------------------------------- */

/* Whether a value is the one that is written at `text`, `length` bytes of JSON. */
static bool is_value(const mica__json_node *node, const char *text, size_t length)
{
    switch ((mica__json_type)node->type) {
    case MICA__JSON_NULL: return length == 4 && memcmp(text, "null", 4) == 0;
    case MICA__JSON_FALSE: return length == 5 && memcmp(text, "false", 5) == 0;
    case MICA__JSON_TRUE: return length == 4 && memcmp(text, "true", 4) == 0;
    case MICA__JSON_NUMBER: {
        char *end;
        const double number = strtod(text, &end);
        return end == text + length && number == node->number.real;
    }
    case MICA__JSON_STRING:
        return length == node->string.length + 2 && text[0] == '"' &&
               memcmp(text + 1, node->string.data, node->string.length) == 0;
    case MICA__JSON_ARRAY: return node->child_count == 0 && length == 2 && memcmp(text, "[]", 2) == 0;
    case MICA__JSON_OBJECT: return node->child_count == 0 && length == 2 && memcmp(text, "{}", 2) == 0;
    }
    return false;
}

static bool is_one_of(const mica__json_node *node, const char *values)
{
    if (node->type == MICA__JSON_NULL)
        return true;
    while (*values != '\0') {
        const size_t length = strcspn(values, "|");
        if (is_value(node, values, length))
            return true;
        values += length + (values[length] == '|');
    }
    return false;
}

/* A value in a sentence. */
static void describe(const mica__json_node *node, char *out, size_t size)
{
    if (node->type == MICA__JSON_NUMBER)
        snprintf(out, size, "%.9g", node->number.real);
    else if (node->type == MICA__JSON_STRING)
        snprintf(out, size, "\"%.60s\"", node->string.data);
    else if (node->type == MICA__JSON_TRUE || node->type == MICA__JSON_FALSE)
        snprintf(out, size, "%s", node->type == MICA__JSON_TRUE ? "true" : "false");
    else
        snprintf(out, size, "%s", mica__json_type_name(node));
}

static bool is_accepted(const mica__accepted *accepted, const char *key)
{
    for (uint32_t i = 0; i < accepted->count; i++)
        if (accepted->name[i] != NULL && strcmp(accepted->name[i], key) == 0)
            return true;
    return false;
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

/* `model` is the class of the sentence, `where` the object around the key and a dot. */
static mica_status check_key(const mica__json_node *node, const char *key_class, const char *model,
                             const char *where, const mica__accepted *accepted)
{
    const mica__key_row *row = mica__key_find(key_class, node->key);
    char value[80];
    if ((row != NULL && row->verdict == MICA__KEY_IDLE) || is_accepted(accepted, node->key))
        return MICA_OK;
    if (row == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "config.json: \"%s%.80s\" is not known for a %s model and may change what it "
                          "computes; accept the key by name to pass over it",
                          where, node->key, model);
    if (row->verdict == MICA__KEY_READ && node->type == MICA__JSON_NULL)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "config.json: \"%s%s\" is null, a %s model needs a value",
                          where, node->key, model);
    if (row->verdict != MICA__KEY_ONLY || is_one_of(node, row->detail))
        return MICA_OK;
    describe(node, value, sizeof value);
    return mica__fail(MICA_ERR_UNSUPPORTED, "config.json: \"%s%s\" is %s, mica runs %s models with %s only",
                      where, node->key, value, model, row->detail);
}

static mica_status check_object(const mica__json *json, const mica__json_node *object, const char *key_class,
                                const char *model, const char *where, const mica__accepted *accepted)
{
    const mica__json_node *node = object->type == MICA__JSON_OBJECT ? mica__json_first(object) : NULL;
    mica_status status = MICA_OK;
    for (; node != NULL && status == MICA_OK; node = mica__json_next(json, node))
        status = check_key(node, key_class, model, where, accepted);
    return status;
}

/* rope_scaling and rope_parameters; Gemma 3 may have one for each kind of layer in it. */
static mica_status check_rope(const mica__json *json, const mica__json_node *object, const char *model,
                              const mica__accepted *accepted)
{
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    bool nested = false;
    mica_status status = MICA_OK;
    for (size_t i = 0; strcmp(model, "gemma3_text") == 0 && i < 2 && status == MICA_OK; i++) {
        const mica__json_node *kind = mica__json_get(json, object, kinds[i]);
        nested = nested || kind != NULL;
        if (kind != NULL)
            status = check_object(json, kind, "rope", model,
                                  kinds[i][0] == 'f' ? "full_attention." : "sliding_attention.", accepted);
    }
    const mica__json_node *node = nested ? mica__json_first(object) : NULL;
    for (; node != NULL && status == MICA_OK; node = mica__json_next(json, node))
        if (strcmp(node->key, kinds[0]) != 0 && strcmp(node->key, kinds[1]) != 0 &&
            !is_accepted(accepted, node->key))
            status = mica__fail(MICA_ERR_UNSUPPORTED,
                                "config.json: \"rope_parameters.%.80s\" stands beside full_attention, whose "
                                "object it belongs into",
                                node->key);
    return nested || status != MICA_OK
               ? status
               : check_object(json, object, "rope", model, "rope_parameters.", accepted);
}

/* The object that holds a model's keys. */
static mica_status check_text(const mica__json *json, const mica__json_node *object, const char *key_class,
                              const char *where, const mica__accepted *accepted)
{
    static const char *const ropes[] = {"rope_scaling", "rope_parameters"};
    mica_status status = check_object(json, object, key_class, key_class, where, accepted);
    for (size_t i = 0; i < 2 && status == MICA_OK; i++) {
        const mica__json_node *rope = mica__json_get(json, object, ropes[i]);
        if (rope != NULL && rope->type == MICA__JSON_OBJECT && mica__key_find(key_class, ropes[i]) != NULL)
            status = check_rope(json, rope, key_class, accepted);
    }
    return status;
}

mica_status mica__keys_check(const mica__json *json, const char *key_class, const mica__accepted *accepted)
{
    const mica__json_node *root = mica__json_root(json), *text = mica__json_get(json, root, "text_config");
    mica_status status = check_text(json, root, key_class, "", accepted);
    if (status == MICA_OK && text != NULL && strcmp(mica__key_text_class(key_class), key_class) != 0)
        status = check_text(json, text, mica__key_text_class(key_class), "text_config.", accepted);
    return status;
}
