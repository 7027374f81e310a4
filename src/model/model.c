/* model.c - opening a model: its family, its numbers, its tensors on a device, its tokenizer and template. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/work.h"
#include "model/parts.h"

mica_model *mica__model_retain(mica_model *model)
{
    atomic_fetch_add_explicit(&model->references, 1, memory_order_relaxed);
    return model;
}

void mica_model_release(mica_model *model)
{
    if (model == NULL || atomic_fetch_sub_explicit(&model->references, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < MICA__T_WHOLE_COUNT; i++)
        mica_buffer_release(model->tensor[i]);
    for (uint32_t l = 0; model->layer != NULL && l < model->h.layers; l++)
        for (uint32_t i = 0; i < MICA__T_COUNT - MICA__T_WHOLE_COUNT; i++)
            mica_buffer_release(model->layer[l].tensor[i]);
    for (uint32_t i = 0; i < 2; i++) {
        mica_buffer_release(model->rope[i].factors);
        mica_buffer_release(model->rope[i].near);
    }
    mica_buffer_release(model->embedding_scale);
    mica_tokenizer_release(model->tokenizer);
    mica_device_release(model->device);
    mica__free(model->layer);
    mica__free(model->tokenizer_trouble);
    mica__free(model->chat_template);
    mica__free(model);
}

/* ---- what the file says --------------------------------------------------------------------------------- */

static void describe(mica_model *model, const mica_weights *weights)
{
    const mica__hparams *h = &model->h;
    mica_model_info *info = &model->info;
    mica_weights_info file = {0};
    mica_string name = {"", 0};
    snprintf(info->family, sizeof info->family, "%s", model->family->name);
    (void)mica__key_text(weights, "", "general.name", &name);
    snprintf(info->name, sizeof info->name, "%.*s", (int)(name.length < 127 ? name.length : 127), name.data);
    if (mica_weights_get_info(weights, &file) == MICA_OK)
        memcpy(info->type, file.type, sizeof info->type);
    info->layers = h->layers;
    info->width = h->width;
    info->heads = h->heads;
    info->kv_heads = h->kv_heads;
    info->head_size = h->head_k;
    info->vocabulary = model->family->encoder ? 0 : h->vocabulary;
    info->context_length = h->context_length;
    info->experts = h->experts;
    info->experts_used = h->experts_used;
    info->window = h->window;
    info->encoder = model->family->encoder;
}

/* A model without a tokenizer, or with one that mica does not know, still runs: who asks for it is told why. */
static mica_status take_texts(mica_model *model, const mica_weights *weights)
{
    mica_string text;
    mica_status status = mica_tokenizer_create(weights, &model->tokenizer);
    if (status == MICA_ERR_OUT_OF_MEMORY)
        return status;
    if (status != MICA_OK) {
        model->tokenizer_trouble = mica__strdup(mica_status_message());
        if (model->tokenizer_trouble == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a model");
    }
    if (!mica__key_text(weights, "tokenizer", "chat_template", &text))
        return MICA_OK;
    model->chat_template = mica__alloc((size_t)text.length + 1);
    if (model->chat_template == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the chat template");
    memcpy(model->chat_template, text.data, (size_t)text.length + 1);
    model->chat_template_length = text.length;
    return MICA_OK;
}

static mica_status make_embedding_scale(mica_model *model)
{
    const uint64_t one = 1;
    if (model->h.embedding_scale == 1)
        return MICA_OK;
    MICA__TRY(mica_buffer_alloc(model->device, MICA_DTYPE_F32, 1, &one, &model->embedding_scale));
    return mica_buffer_write(model->embedding_scale, 0, &model->h.embedding_scale, sizeof(float));
}

/* ---- numbers that the file leads to --------------------------------------------------------------------- */

/* Divisors of the frequencies that heads rotate by; NULL is fine. */
static mica_status check_factors(mica_buffer *factors)
{
    mica_buffer_info info;
    if (factors == NULL)
        return MICA_OK;
    MICA__TRY(mica_buffer_get_info(factors, &info));
    float *values = mica__alloc((size_t)info.byte_length);
    if (values == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the factors of rotary heads");
    mica_status status = mica_buffer_read(factors, 0, values, info.byte_length);
    for (uint64_t i = 0; i < info.element_count && status == MICA_OK; i++)
        if (!isfinite(values[i]) || values[i] == 0)
            status = mica__fail(MICA_ERR_MALFORMED_FILE,
                                "the model's rotary factor %llu is %g: it must be finite and not 0",
                                (unsigned long long)i, (double)values[i]);
    mica__free(values);
    return status;
}

/* What ops would refuse, or take for something else, is told here and not at the first feed. */
static mica_status check_numbers(const mica_model *model)
{
    const mica__hparams *h = &model->h;
    const struct {
        const char *name;
        float value;
        int above; /* 1: above 0; 0: not below; -1: any that is finite */
    } numbers[] = {
        {"epsilon of norms", h->eps, 0},
        {"scale of attention", h->attention_scale, -1},
        {"softcap of attention", h->attention_softcap, 0},
        {"softcap of logits", h->final_softcap, 0},
        {"scale of the embedding", h->embedding_scale, -1},
        {"scale of experts", h->expert_scale, -1},
        {"rotary base", model->rope[0].theta, 1}, /* from here on for heads that rotate */
        {"rotary base of sliding layers", model->rope[1].theta, 1},
        {"scale of positions", model->rope[0].position_scale, 1},
        {"scale of positions of sliding layers", model->rope[1].position_scale, 1},
        {"rotary scale of attention", model->rope[0].attention_scale, 1},
        {"rotary scale of attention of sliding layers", model->rope[1].attention_scale, 1},
    };
    const size_t all = sizeof numbers / sizeof numbers[0], count = model->family->no_rope ? 6 : all;
    for (size_t i = 0; i < count; i++)
        if (!isfinite(numbers[i].value) || (numbers[i].above > 0 && !(numbers[i].value > 0)) ||
            (numbers[i].above == 0 && numbers[i].value < 0))
            return mica__fail(MICA_ERR_MALFORMED_FILE, "the model's %s comes to %g: it must be finite%s",
                              numbers[i].name, (double)numbers[i].value,
                              numbers[i].above > 0    ? " and above 0"
                              : numbers[i].above == 0 ? " and not below 0"
                                                      : "");
    for (uint32_t i = 0; i < 2; i++) {
        MICA__TRY(check_factors(model->rope[i].factors));
        MICA__TRY(check_factors(model->rope[i].near));
    }
    return MICA_OK;
}

/* ---- opening -------------------------------------------------------------------------------------------- */

static mica_status fill(mica_model *model, mica_weights *weights, const mica_model_options *options)
{
    mica_string name;
    if (!mica__key_text(weights, "general", "architecture", &name))
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "the file does not say of which family the model is (general.architecture, or config.json)");
    MICA__TRY(mica__family_find(name.data, (size_t)name.length, &model->family));
    MICA__TRY(mica__hparams_read(weights, model->family, &model->h));
    MICA__TRY(mica__tensors_check_layers(model, weights));
    model->layer = mica__calloc(model->h.layers, sizeof *model->layer);
    if (model->layer == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u layers", model->h.layers);
    MICA__TRY(mica__layers_read(weights, model->family, &model->h, model->layer));
    MICA__TRY(take_texts(model, weights));
    MICA__TRY(mica__tensors_load(model, weights, options));
    describe(model, weights);
    MICA__TRY(make_embedding_scale(model));
    MICA__TRY(mica__rope_setup(model, weights));
    return check_numbers(model);
}

/* What the caller chose, all of it zero where nothing. */
static mica_status take_options(const mica_model_options *options, mica_model_options *out)
{
    MICA__TRY(mica__take_options("options", options, sizeof *out, out));
    return mica__check_flags("options.flags", out->flags,
                             MICA_WEIGHTS_NO_MAP | MICA_WEIGHTS_LOCK | MICA_WEIGHTS_AS_GGUF);
}

static mica_status create(mica_weights *weights, mica_device *device, const mica_model_options *options,
                          mica_model **out_model)
{
    mica_model_options chosen;
    if (weights == NULL || device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", weights == NULL ? "weights" : "device");
    MICA__TRY(take_options(options, &chosen));
    mica_model *model = mica__calloc(1, sizeof *model);
    if (model == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a model");
    atomic_init(&model->references, 1);
    model->device = mica_device_retain(device);
    const mica_status status = fill(model, weights, &chosen);
    if (status == MICA_OK)
        *out_model = model;
    else
        mica_model_release(model);
    return status;
}

mica_status mica_model_create(mica_weights *weights, mica_device *device, const mica_model_options *options,
                              mica_model **out_model)
{
    mica__call call;
    if (out_model == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "model_create: out_model is NULL");
    *out_model = NULL;
    mica__call_begin(&call, "model_create");
    return mica__call_end(&call, create(weights, device, options, out_model));
}

static mica_status open_model(const char *path, mica_device *device, const mica_model_options *options,
                              mica_model **out_model)
{
    mica_weights *weights = NULL;
    mica_model_options chosen;
    MICA__TRY(take_options(options, &chosen));
    const mica_weights_options how = {.flags = MICA_WEIGHTS_AS_GGUF | chosen.flags,
                                      .accept_keys = chosen.accept_keys,
                                      .accept_key_count = chosen.accept_key_count};
    mica_status status = mica_weights_open(path, &how, &weights);
    if (status == MICA_OK)
        status = create(weights, device, options, out_model);
    mica_weights_release(weights);
    return status;
}

mica_status mica_model_open(const char *path, mica_device *device, const mica_model_options *options,
                            mica_model **out_model)
{
    mica__call call;
    if (out_model == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "model_open: out_model is NULL");
    *out_model = NULL;
    mica__call_begin(&call, "model_open");
    return mica__call_end(&call, open_model(path, device, options, out_model));
}

mica_status mica_model_get_info(const mica_model *model, mica_model_info *out)
{
    if (model == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "model_get_info: %s is NULL",
                          model == NULL ? "model" : "out");
    *out = model->info;
    return MICA_OK;
}

const mica_tokenizer *mica_model_tokenizer(const mica_model *model)
{
    if (model != NULL && model->tokenizer == NULL)
        mica__fail(MICA_ERR_NOT_FOUND, "the model has no tokenizer that mica can use: %s",
                   model->tokenizer_trouble);
    return model == NULL ? NULL : model->tokenizer;
}

const char *mica_model_template(const mica_model *model, uint64_t *out_length)
{
    if (out_length != NULL)
        *out_length = model == NULL ? 0 : model->chat_template_length;
    return model == NULL ? NULL : model->chat_template;
}
