/* footprint.c - keys and values per layer: from the <arch>.* metadata of a GGUF, or from the config.json of a folder. */
#include "file/footprint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/config.h"
#include "file/metadata.h"

#define MAX_LAYERS 10000
#define NOT_SAID UINT64_MAX

typedef struct layer_shape {
    uint64_t kv_heads;
    int windowed;
} layer_shape;

/* A number that was not found is NOT_SAID. */
typedef struct model_shape {
    char architecture[64];
    uint64_t layers, heads, kv_heads, embedding, key_length, value_length, window, trained;
    uint64_t latent, latent_rope; /* of attention with compressed keys and values */
    uint64_t window_period;       /* every so many-th layer sees everything; 0: none does */
    uint64_t full_interval; /* every so many-th layer has attention; the others keep a state of fixed size */
    int causal;
    layer_shape *layer; /* [layers] */
} model_shape;

/* Families whose files do not say which layers have the window. */
static const struct {
    const char *architecture;
    uint64_t period;
} periods[] = {
    {"gemma2", 2},  {"gemma3", 6},  {"gemma3_text", 6}, {"gemma3n", 5},
    {"cohere2", 4}, {"gpt-oss", 2}, {"gpt_oss", 2},
};

static const char *const encoders[] = {"bert",        "nomic-bert", "jina-bert-v2", "roberta",
                                       "xlm-roberta", "modernbert", "modern-bert"};

static void start_shape(model_shape *shape)
{
    memset(shape, 0, sizeof *shape);
    shape->layers = shape->heads = shape->kv_heads = shape->embedding = NOT_SAID;
    shape->key_length = shape->value_length = shape->latent = shape->latent_rope = NOT_SAID;
    shape->window_period = shape->full_interval = NOT_SAID;
    shape->causal = 1;
}

static void apply_family(model_shape *shape)
{
    for (size_t i = 0; i < sizeof periods / sizeof *periods; i++)
        if (shape->window_period == NOT_SAID && strcmp(periods[i].architecture, shape->architecture) == 0)
            shape->window_period = periods[i].period;
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++)
        if (strcmp(encoders[i], shape->architecture) == 0)
            shape->causal = 0;
}

/* What is not said follows from the rest. */
static mica_status fill_layers(model_shape *shape)
{
    apply_family(shape);
    if (shape->kv_heads == NOT_SAID)
        shape->kv_heads = shape->heads;
    if (shape->key_length == NOT_SAID && shape->embedding != NOT_SAID && shape->heads != NOT_SAID &&
        shape->heads != 0)
        shape->key_length = shape->embedding / shape->heads;
    if (shape->value_length == NOT_SAID)
        shape->value_length = shape->key_length;
    if (shape->latent != NOT_SAID && shape->latent_rope != NOT_SAID) {
        shape->kv_heads = 1;
        shape->key_length = shape->latent + shape->latent_rope;
        shape->value_length = 0;
    }
    if (shape->layers == NOT_SAID || shape->layers > MAX_LAYERS)
        return MICA_OK;
    shape->layer = calloc(shape->layers + 1, sizeof *shape->layer);
    if (shape->layer == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < shape->layers; i++) {
        uint64_t period = shape->window_period == NOT_SAID ? 0 : shape->window_period;
        int has_state = shape->full_interval != NOT_SAID && shape->full_interval != 0 &&
                        (i + 1) % shape->full_interval != 0;
        shape->layer[i].kv_heads = has_state ? 0 : shape->kv_heads;
        shape->layer[i].windowed = shape->window != 0 && (period == 0 || i % period != period - 1);
    }
    return MICA_OK;
}

/* ---- GGUF ---- */

static const mica_value *find_value(const mica_weights *weights, const model_shape *shape, const char *name)
{
    char key[128];
    const mica_value *value = NULL;
    snprintf(key, sizeof key, "%s.%s", shape->architecture, name);
    return mica_weights_get(weights, key, &value) == MICA_OK ? value : NULL;
}

static void take_value(const mica_weights *weights, const model_shape *shape, const char *name, uint64_t *out)
{
    const mica_value *value = find_value(weights, shape, name);
    if (value != NULL)
        tool_value_uint(value, out);
}

/* Lists with one item a layer. */
static void apply_lists(const mica_weights *weights, model_shape *shape)
{
    const mica_value *heads = find_value(weights, shape, "attention.head_count_kv");
    const mica_value *windows = find_value(weights, shape, "attention.sliding_window_pattern");
    for (uint64_t i = 0; i < shape->layers; i++) {
        uint64_t number;
        if (heads != NULL && heads->type == MICA_VALUE_ARRAY && i < heads->count) {
            mica_value item = tool_value_item(heads, i);
            shape->layer[i].kv_heads = tool_value_uint(&item, &number) ? number : NOT_SAID;
        }
        if (windows != NULL && windows->type == MICA_VALUE_ARRAY && i < windows->count) {
            mica_value item = tool_value_item(windows, i);
            shape->layer[i].windowed = shape->window != 0 && tool_value_uint(&item, &number) && number != 0;
        }
    }
}

static mica_status shape_of_gguf(const mica_weights *weights, model_shape *shape)
{
    const mica_value *value = NULL;
    uint64_t causal = 1;
    if (mica_weights_get(weights, "general.architecture", &value) != MICA_OK ||
        value->type != MICA_VALUE_STRING)
        return MICA_OK;
    snprintf(shape->architecture, sizeof shape->architecture, "%s", value->as.string.data);
    take_value(weights, shape, "block_count", &shape->layers);
    take_value(weights, shape, "context_length", &shape->trained);
    take_value(weights, shape, "embedding_length", &shape->embedding);
    take_value(weights, shape, "attention.head_count", &shape->heads);
    take_value(weights, shape, "attention.head_count_kv", &shape->kv_heads);
    take_value(weights, shape, "attention.key_length", &shape->key_length);
    take_value(weights, shape, "attention.value_length", &shape->value_length);
    take_value(weights, shape, "attention.sliding_window", &shape->window);
    take_value(weights, shape, "attention.sliding_window_pattern", &shape->window_period);
    take_value(weights, shape, "attention.kv_lora_rank", &shape->latent);
    take_value(weights, shape, "rope.dimension_count", &shape->latent_rope);
    take_value(weights, shape, "attention.causal", &causal);
    take_value(weights, shape, "full_attention_interval", &shape->full_interval);
    shape->causal = causal != 0;
    mica_status status = fill_layers(shape);
    if (shape->layer != NULL)
        apply_lists(weights, shape);
    return status;
}

/* ---- config.json ---- */

/* The first of the names that the object has; "a|b". */
static void take_config(const char *object, const char *names, uint64_t *out)
{
    while (*names != '\0') {
        char name[64];
        size_t length = strcspn(names, "|");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        if (tool_config_uint(tool_config_find(object, name), out))
            return;
        names += length + (names[length] == '|');
    }
}

static void apply_layer_types(const char *list, model_shape *shape)
{
    for (uint64_t i = 0; i < shape->layers; i++) {
        const char *word = tool_config_next_text(&list);
        if (word == NULL)
            return;
        shape->layer[i].windowed = shape->window != 0 && tool_config_is(word, "sliding_attention\"");
        if (tool_config_is(word, "linear_attention\""))
            shape->layer[i].kv_heads = 0;
    }
}

static mica_status shape_of_config(const char *json, model_shape *shape)
{
    const char *text = tool_config_find(json, "text_config"); /* of a model that sees pictures too */
    const char *object = text != NULL ? text : json, *family = tool_config_find(object, "model_type");
    const char *types = tool_config_find(object, "layer_types");
    if (tool_config_is(family, "\""))
        snprintf(shape->architecture, sizeof shape->architecture, "%.*s", (int)strcspn(family + 1, "\""),
                 family + 1);
    take_config(object, "num_hidden_layers|n_layer|n_layers", &shape->layers);
    take_config(object, "max_position_embeddings|n_positions|n_ctx", &shape->trained);
    take_config(object, "hidden_size|n_embd|d_model", &shape->embedding);
    take_config(object, "num_attention_heads|n_head|n_heads", &shape->heads);
    take_config(object, "num_key_value_heads", &shape->kv_heads);
    take_config(object, "head_dim", &shape->key_length);
    take_config(object, "kv_lora_rank", &shape->latent);
    take_config(object, "qk_rope_head_dim", &shape->latent_rope);
    take_config(object, "full_attention_interval", &shape->full_interval);
    take_config(object, "sliding_window_pattern", &shape->window_period);
    if (!tool_config_is(tool_config_find(object, "use_sliding_window"), "false"))
        take_config(object, "sliding_window", &shape->window);
    mica_status status = fill_layers(shape);
    if (shape->layer != NULL && types != NULL)
        apply_layer_types(types, shape);
    return status;
}

/* ---- the sum ---- */

static const char *what_is_missing(const model_shape *shape)
{
    if (shape->layers == NOT_SAID)
        return "the number of layers";
    if (shape->layer == NULL)
        return "a number of layers that can be right";
    if (shape->key_length == NOT_SAID)
        return "the size of a head";
    for (uint64_t i = 0; i < shape->layers; i++)
        if (shape->layer[i].kv_heads == NOT_SAID)
            return "the number of KV heads";
    return NULL;
}

static void sum_layers(const model_shape *shape, tool_footprint *out)
{
    uint64_t cached = 0, windowed = 0, heads = 0;
    double bytes = 0;
    for (uint64_t i = 0; i < shape->layers; i++) {
        const layer_shape *layer = &shape->layer[i];
        int cut = layer->windowed && shape->window < out->context;
        cached += layer->kv_heads != 0;
        windowed += layer->kv_heads != 0 && layer->windowed;
        heads = layer->kv_heads > heads ? layer->kv_heads : heads;
        bytes += (double)layer->kv_heads * ((double)shape->key_length + (double)shape->value_length) * 2 *
                 (double)(cut ? shape->window : out->context);
    }
    out->known = bytes < 9e18;
    out->cache_bytes = out->known ? (uint64_t)bytes : 0;
    int used = snprintf(out->note, sizeof out->note, "%llu layers, %llu KV heads of %llu",
                        (unsigned long long)cached, (unsigned long long)heads,
                        (unsigned long long)shape->key_length);
    if (windowed > 0 && used > 0 && (size_t)used < sizeof out->note)
        snprintf(out->note + used, sizeof out->note - (size_t)used, ", a window of %llu in %llu layers",
                 (unsigned long long)shape->window, (unsigned long long)windowed);
}

void tool_footprint_estimate(const mica_weights *weights, uint64_t context, tool_footprint *out)
{
    model_shape shape;
    const char *json = NULL;
    uint64_t length = 0;
    start_shape(&shape);
    memset(out, 0, sizeof *out);
    out->context = context;
    mica_status status = mica_weights_config(weights, &json, &length) == MICA_OK
                             ? shape_of_config(json, &shape)
                             : shape_of_gguf(weights, &shape);
    out->trained = shape.trained;
    const char *missing = what_is_missing(&shape);
    if (status != MICA_OK) {
        snprintf(out->note, sizeof out->note, "there is no memory left");
    } else if (!shape.causal) {
        out->known = 1;
        snprintf(out->note, sizeof out->note, "an encoder keeps none");
    } else if (missing != NULL) {
        snprintf(out->note, sizeof out->note, "the file does not say %s", missing);
    } else {
        sum_layers(&shape, out);
    }
    free(shape.layer);
}
