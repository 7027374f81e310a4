/* convert_gguf.c - targets of GGUF: of another GGUF as it is, of HF and MLX checkpoints with names and metadata mapped. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "format/config/config_map.h"
#include "format/convert/convert.h"
#include "format/gguf.h"
#include "quant/quant.h"

/* ---- from GGUF ------------------------------------------------------------------------------------------ */

/* What the files of a GGUF say of themselves as files, which the writer says anew. */
static bool is_own_key(const char *key)
{
    return strcmp(key, "general.alignment") == 0 || strncmp(key, "split.", 6) == 0;
}

static mica_status add_same(mica__target *target, const mica__tensor *source)
{
    mica__target_tensor tensor;
    const mica_status status = mica__target_same(target, source, &tensor);
    return status == MICA_OK ? mica__target_add(target, &tensor) : status;
}

mica_status mica__convert_copy_gguf(mica__target *target)
{
    const mica__archive *archive = target->archive;
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < archive->meta_count && status == MICA_OK; i++)
        if (!is_own_key(archive->meta[i].key.data))
            status = mica__target_set(target, archive->meta[i].key.data, &archive->meta[i].value);
    for (uint32_t i = 0; i < archive->visible_count && status == MICA_OK; i++)
        status = add_same(target, &archive->tensor[i]);
    return status;
}

/* ---- types ---------------------------------------------------------------------------------------------- */

bool mica__convert_has_values(const mica__target *target, const mica__tensor *tensor)
{
    if (tensor->scales == MICA__NO_TENSOR)
        return mica__quant_can_decode(tensor->dtype);
    return mica__affine_serves(tensor->dtype, target->archive->tensor[tensor->scales].dtype);
}

mica_dtype mica__convert_plain_type(const mica__target *target, const mica__tensor *tensor)
{
    const uint16_t type =
        tensor->scales == MICA__NO_TENSOR ? tensor->dtype : target->archive->tensor[tensor->scales].dtype;
    if (type == MICA_DTYPE_F16 || type == MICA_DTYPE_F32 || type == MICA_DTYPE_BF16)
        return (mica_dtype)type;
    return tensor->scales == MICA__NO_TENSOR && mica__quant_known(type) ? MICA_DTYPE_F16 : MICA_DTYPE_BF16;
}

/* Programs that run GGUF expect vectors, norms, routers and positions in f32. */
static bool wants_f32(const mica__target_tensor *tensor)
{
    static const char *const words[] = {"_norm.weight", "ffn_gate_inp.weight"};
    static const char *const whole[] = {"position_embd.weight", "token_types.weight"};
    bool wanted = tensor->ndim < 2;
    for (size_t i = 0; i < 2; i++)
        wanted = wanted || strstr(tensor->name, words[i]) != NULL || strcmp(tensor->name, whole[i]) == 0;
    return wanted;
}

static void choose_type(const mica__target *target, mica__target_tensor *tensor, bool known)
{
    const mica__tensor *source = tensor->source[0];
    if (!mica__convert_has_values(target, source))
        return;
    if (known && wants_f32(tensor))
        tensor->dtype = MICA_DTYPE_F32;
    else if (source->scales != MICA__NO_TENSOR || mica__gguf_type_by_dtype((mica_dtype)source->dtype) == NULL)
        tensor->dtype = mica__convert_plain_type(target, source);
}

mica_status mica__convert_mark(mica__target *target)
{
    static const struct {
        mica_dtype type;
        uint32_t number;
    } numbers[] = {{MICA_DTYPE_F32, 0}, {MICA_DTYPE_F16, 1}, {MICA_DTYPE_BF16, 32}, {MICA_DTYPE_Q8_0, 7}};
    uint64_t most = 0, counts[4] = {0};
    uint32_t number = 0;
    for (uint32_t i = 0; i < target->tensor_count; i++)
        for (size_t n = 0; n < 4; n++)
            if (target->tensor[i].ndim > 1 && target->tensor[i].dtype == numbers[n].type)
                counts[n] += target->tensor[i].rows * target->tensor[i].row;
    for (size_t n = 0; n < 4; n++)
        if (counts[n] > most) {
            most = counts[n];
            number = numbers[n].number;
        }
    const mica_status status = mica__target_set_u32(target, "general.quantization_version", 2);
    return status == MICA_OK ? mica__target_set_u32(target, "general.file_type", number) : status;
}

/* ---- from HF -------------------------------------------------------------------------------------------- */

typedef struct gguf_mapping {
    mica__target *target;
    const mica__json *json;
    const mica__name_family *family;
    bool tied, in_place;
} gguf_mapping;

static uint32_t config_number(const gguf_mapping *m, const char *key)
{
    const mica__json_node *node = mica__config_get(m->json, key);
    uint64_t number = 0;
    if (node == NULL || node->type != MICA__JSON_NUMBER ||
        mica__json_as_uint(node, key, 0, UINT32_MAX, &number) != MICA_OK)
        return 0;
    return (uint32_t)number;
}

static mica_status pair_rows(const gguf_mapping *m, bool is_key, mica__target_tensor *tensor)
{
    const uint32_t heads = config_number(m, "num_attention_heads"),
                   keys = config_number(m, "num_key_value_heads");
    return mica__target_pair(tensor, MICA__TRANSFORM_PAIR, is_key && keys != 0 ? keys : heads);
}

/* The tensor of another expert: the same name with another number. */
static const mica__tensor *find_expert(const gguf_mapping *m, const mica__tensor *first,
                                       const mica__name_parts *parts, uint32_t expert)
{
    char name[512];
    const int length = snprintf(name, sizeof name, "%.*s%u%s", (int)parts->expert_at, first->name, expert,
                                first->name + parts->expert_end);
    if (length < 0 || (size_t)length >= sizeof name)
        return NULL;
    const uint32_t index = mica__archive_find(m->target->archive, name, (size_t)length);
    return index == MICA__NO_TENSOR ? NULL : &m->target->archive->tensor[index];
}

/* Expert 0 brings all others with it. */
static mica_status stack(const gguf_mapping *m, const mica__name_parts *parts, mica__target_tensor *tensor)
{
    const mica__tensor *first = tensor->source[0];
    uint32_t count = 1;
    while (count < UINT16_MAX && find_expert(m, first, parts, count) != NULL)
        count++;
    const char *key = mica__target_text(m->target, "%s.expert_count", m->family->arch);
    if (key == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    const uint32_t said = (uint32_t)mica__target_get_number(m->target, key, 0);
    if (count != said || first->ndim != 2)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "tensor \"%s\": %u experts of %u dimensions, expected %u of 2 dimensions",
                          first->name, count, first->ndim, said);
    const mica__tensor **list = mica__chunks_alloc(&m->target->chunks, count * sizeof(const mica__tensor *));
    if (list == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        list[i] = find_expert(m, first, parts, i);
        if (list[i] == NULL || list[i]->dtype != first->dtype || list[i]->ndim != 2 ||
            list[i]->shape[0] != first->shape[0] || list[i]->shape[1] != first->shape[1] ||
            (list[i]->scales == MICA__NO_TENSOR) != (first->scales == MICA__NO_TENSOR))
            return mica__fail(MICA_ERR_MALFORMED_FILE,
                              "tensor \"%s\": expert %u has another type or shape than expert 0", first->name,
                              i);
    }
    tensor->source = list;
    tensor->source_count = count;
    tensor->ndim = 3;
    tensor->shape[2] = tensor->shape[1];
    tensor->shape[1] = tensor->shape[0];
    tensor->shape[0] = count;
    tensor->rows *= count;
    return MICA_OK;
}

static mica_status transform(const gguf_mapping *m, const mica__name_row *row, const mica__name_parts *parts,
                             mica__target_tensor *tensor)
{
    switch ((mica__how)row->how) {
    case MICA__HOW_PAIR_QUERY:
    case MICA__HOW_PAIR_KEY:
        return m->in_place ? mica__target_set_bool(m->target, MICA__ROPE_HALVES, true)
                           : pair_rows(m, row->how == MICA__HOW_PAIR_KEY, tensor);
    case MICA__HOW_ADD_ONE: /* mlx-lm keeps the weights as they are */
        tensor->transform = MICA__TRANSFORM_ADD_ONE;
        return MICA_OK;
    case MICA__HOW_TRANSPOSE:
        return m->target->archive->format == MICA_FORMAT_MLX ? MICA_OK : mica__target_transpose(tensor);
    case MICA__HOW_STACK: return stack(m, parts, tensor);
    case MICA__HOW_KEEP:
    case MICA__HOW_HEAD:
    case MICA__HOW_FACTORS:
    case MICA__HOW_SKIP: break;
    }
    return MICA_OK;
}

static mica_status map_tensor(const gguf_mapping *m, const mica__tensor *source)
{
    mica__name_parts parts;
    mica__target_tensor tensor;
    char name[256];
    const mica__name_row *row = mica__name_family_from_hf(m->family, source->name, &parts);
    if (row == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"%s\" has no known place in a %s model",
                          source->name, m->family->arch);
    if (row->how == MICA__HOW_SKIP || (row->how == MICA__HOW_HEAD && m->tied) ||
        (row->how == MICA__HOW_STACK && parts.expert != 0))
        return MICA_OK;
    mica_status status = mica__target_same(m->target, source, &tensor);
    if (status == MICA_OK && mica__name_expand(row->gguf, &parts, name, sizeof name)) {
        tensor.name = mica__target_text(m->target, "%s", name);
        status = tensor.name == NULL ? MICA_ERR_OUT_OF_MEMORY : transform(m, row, &parts, &tensor);
    }
    if (status != MICA_OK)
        return status;
    if (!m->in_place || tensor.transform != MICA__TRANSFORM_NONE || tensor.source_count > 1)
        choose_type(m->target, &tensor, true);
    return mica__target_add(m->target, &tensor);
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

static const mica__name_family *find_family(const mica__json *json)
{
    const mica__json_node *root = mica__json_root(json), *list = mica__json_get(json, root, "architectures");
    const mica__json_node *name = list == NULL ? NULL : mica__json_first(list);
    if (name == NULL || name->type != MICA__JSON_STRING)
        name = mica__json_get(json, root, "model_type");
    return name == NULL || name->type != MICA__JSON_STRING ? NULL
                                                           : mica__name_family_of_hf(name->string.data);
}

/* The family as config.json names it. */
static const char *unknown_name(mica__target *target, const mica__json *json)
{
    const mica__json_node *root = json == NULL ? NULL : mica__json_root(json);
    const mica__json_node *list = mica__json_get(json, root, "architectures");
    const mica__json_node *name = list == NULL ? NULL : mica__json_first(list);
    if (name == NULL || name->type != MICA__JSON_STRING)
        name = mica__json_get(json, root, "model_type");
    return name == NULL || name->type != MICA__JSON_STRING
               ? "unknown"
               : mica__target_text(target, "%.100s", name->string.data);
}

static mica_status copy_unknown(mica__target *target, const char *name)
{
    const mica__archive *archive = target->archive;
    mica_status status =
        name == NULL ? MICA_ERR_OUT_OF_MEMORY : mica__target_set_string(target, "general.architecture", name);
    for (uint32_t i = 0; i < archive->meta_count && status == MICA_OK; i++)
        if (!is_own_key(archive->meta[i].key.data) &&
            mica__target_get(target, archive->meta[i].key.data) == NULL)
            status = mica__target_set(target, archive->meta[i].key.data, &archive->meta[i].value);
    for (uint32_t i = 0; i < archive->visible_count && status == MICA_OK; i++) {
        mica__target_tensor tensor;
        status = mica__target_same(target, &archive->tensor[i], &tensor);
        if (status != MICA_OK)
            return status;
        choose_type(target, &tensor, false);
        status = mica__target_add(target, &tensor);
    }
    return status;
}

static mica_status name_model(mica__target *target, const char *input)
{
    size_t end = strlen(input);
    while (end > 1 && input[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && input[start - 1] != '/')
        start--;
    return mica__target_set_string(target, "general.name",
                                   mica__target_text(target, "%.*s", (int)(end - start), input + start));
}

static mica_status map_model(gguf_mapping *m, const char *input)
{
    const mica__json_node *tie = mica__config_get(m->json, "tie_word_embeddings");
    const mica__archive *archive = m->target->archive;
    m->tied = tie == NULL ? m->family->tied : tie->type == MICA__JSON_TRUE;
    mica_status status = mica__target_set_string(m->target, "general.architecture", m->family->arch);
    if (status == MICA_OK)
        status = mica__target_set_string(m->target, "general.type", "model");
    if (status == MICA_OK)
        status = name_model(m->target, input);
    if (status == MICA_OK)
        status = mica__config_to_gguf(m->target, m->json, m->family);
    if (status == MICA_OK)
        status = mica__rope_to_gguf(m->target, m->json, m->family);
    if (status == MICA_OK)
        status = mica__pooling_to_gguf(m->target, input, m->family);
    if (status == MICA_OK)
        status = mica__tokenizer_to_gguf(m->target, input, m->json, m->family);
    for (uint32_t i = 0; i < archive->visible_count && status == MICA_OK; i++)
        status = map_tensor(m, &archive->tensor[i]);
    return status;
}

mica_status mica__convert_to_gguf(mica__target *target, const char *input, bool in_place)
{
    const mica__archive *archive = target->archive;
    mica__json *json = NULL;
    gguf_mapping m = {.target = target, .in_place = in_place};
    mica_status status = MICA_OK;
    if (archive->config != NULL) {
        status = mica__json_parse(archive->config, archive->config_length, NULL, &json);
        if (status != MICA_OK)
            return mica__fail(status, "\"%s\": config.json: %s", input, mica_status_message());
        m.json = json;
        m.family = find_family(json);
    }
    status = m.family != NULL ? map_model(&m, input)
                              : copy_unknown(target, in_place ? unknown_name(target, json) : "unknown");
    if (status == MICA_OK && m.family != NULL && !in_place)
        status = mica__tokenizer_carry(target, input, false);
    if (status == MICA_OK)
        status = mica__convert_mark(target);
    mica__json_release(json);
    return status;
}
