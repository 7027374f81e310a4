/*
 * window_map.c - which layers of a model see a window of tokens alone: config.json says it by a list, a period or a number of
 * layers, GGUF by a period or a list of truths; where neither is there, the family does.
 */
#include <stdio.h>
#include <string.h>

#include "base/work.h"
#include "format/config/config_map.h"

typedef struct window {
    uint32_t tokens; /* 0: there is none */
    uint32_t layers;
    uint8_t *slides; /* [layers], 0 or 1 */
} window;

/* The period that programs know by themselves: layer i slides unless (i + 1) % period is 0; 0: all layers slide. */
static uint32_t usual_period(const mica__config *c)
{
    return strcmp(c->key_class, "gemma2") == 0 ? 2 : strcmp(c->key_class, "gemma3_text") == 0 ? 6 : 0;
}

static bool is_qwen(const mica__config *c)
{
    return strncmp(c->key_class, "qwen", 4) == 0;
}

static bool has_period(const window *w, uint32_t period)
{
    for (uint32_t i = 0; i < w->layers; i++)
        if (w->slides[i] != (period == 0 || (i + 1) % period != 0))
            return false;
    return true;
}

static bool slides_somewhere(const window *w)
{
    return memchr(w->slides, 1, w->layers) != NULL;
}

/* layer_types: a word for each layer. */
static mica_status read_types(const mica__config *c, const mica__json_node *list, window *w)
{
    if (list->type != MICA__JSON_ARRAY || list->child_count != w->layers)
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "config.json: \"layer_types\" is %s of %u items, expected an array with one for each "
            "of %u layers",
            mica__json_type_name(list), list->child_count, w->layers);
    const mica__json_node *item = mica__json_first(list);
    for (uint32_t i = 0; item != NULL; i++, item = mica__json_next(c->json, item)) {
        const char *word = item->type == MICA__JSON_STRING ? item->string.data : "";
        w->slides[i] = strcmp(word, "sliding_attention") == 0;
        if (!w->slides[i] && strcmp(word, "full_attention") != 0)
            return mica__fail(MICA_ERR_UNSUPPORTED,
                              "config.json: \"layer_types\" has \"%.60s\" for layer %u, expected "
                              "full_attention or sliding_attention",
                              word, i);
    }
    return MICA_OK;
}

/* Which layers slide where there is no list. */
static mica_status read_rule(const mica__config *c, window *w)
{
    uint32_t period = usual_period(c), first = 0;
    mica_status status = MICA_OK;
    if (strcmp(c->key_class, "gemma3_text") == 0)
        status = mica__config_u32(c, "sliding_window_pattern", 1, &period);
    else if (mica__key_find(c->key_class, "layer_types") != NULL && is_qwen(c))
        status = mica__config_u32(c, "max_window_layers", 0, &first);
    for (uint32_t i = 0; i < w->layers; i++)
        w->slides[i] = w->tokens != 0 && i >= first && (period == 0 || (i + 1) % period != 0);
    return status;
}

static mica_status read_window(const mica__config *c, window *w)
{
    const mica__json_node *list = mica__config_get(c->json, "layer_types");
    bool used = !is_qwen(c);
    mica_status status = mica__config_u32(c, "sliding_window", 1, &w->tokens);
    if (status == MICA_OK && !used)
        status = mica__config_bool(c, "use_sliding_window", &used);
    if (!used)
        w->tokens = 0;
    const mica__key_row *row = mica__key_find(c->key_class, "layer_types");
    if (status == MICA_OK)
        status = list != NULL && row != NULL && row->verdict == MICA__KEY_MAY ? read_types(c, list, w)
                                                                              : read_rule(c, w);
    if (status == MICA_OK && w->tokens == 0 && slides_somewhere(w))
        status = mica__fail(MICA_ERR_UNSUPPORTED,
                            "config.json: \"layer_types\" has sliding_attention, but there is no window: "
                            "\"sliding_window\" is null or \"use_sliding_window\" is not true");
    return status;
}

/* Nothing where programs know it by themselves, a period where there is one, else a truth for each layer. */
static mica_status set_pattern(const mica__config *c, const window *w)
{
    char *key = mica__target_text(c->target, "%s.attention.sliding_window_pattern", c->family->arch);
    if (key == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (has_period(w, usual_period(c)))
        return MICA_OK;
    for (uint32_t period = 1; period <= w->layers + 1 && period <= 64; period++)
        if (has_period(w, period))
            return mica__target_set_u32(c->target, key, period);
    return mica__target_set(c->target, key,
                            &(mica_value){.type = MICA_VALUE_ARRAY,
                                          .item_type = MICA_VALUE_BOOL,
                                          .count = w->layers,
                                          .as.items = w->slides});
}

mica_status mica__window_to_gguf(const mica__config *c)
{
    char *key = mica__target_text(c->target, "%s.block_count", c->family->arch);
    const mica__key_row *row = mica__key_find(c->key_class, "sliding_window");
    window w = {0};
    if (key == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    const uint64_t layers = mica__target_get_number(c->target, key, 0);
    if (row == NULL || row->verdict == MICA__KEY_ONLY)
        return MICA_OK;
    MICA__TRY(mica__limit_check("layers", mica__limits()->layers, layers));
    if (layers == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "config.json: 0 layers");
    w.layers = (uint32_t)layers;
    w.slides = mica__chunks_alloc(&c->target->chunks, w.layers);
    key = mica__target_text(c->target, "%s.attention.sliding_window", c->family->arch);
    if (w.slides == NULL || key == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    mica_status status = read_window(c, &w);
    if (status != MICA_OK)
        return status;
    if (usual_period(c) == 0 && !slides_somewhere(&w))
        w.tokens = 0;
    mica__target_unset(c->target, key);
    if (strcmp(c->family->arch, "phi3") == 0 || w.tokens != 0)
        status = mica__target_set_u32(c->target, key, w.tokens);
    return status == MICA_OK && w.tokens != 0 ? set_pattern(c, &w) : status;
}
