/* convert_hf.c - targets for safetensors and MLX folders: names of a GGUF mapped back, values where blocks were. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "format/config/config_back.h"
#include "format/convert/convert.h"
#include "format/safetensors.h"
#include "quant/dtype.h"

/* ---- from GGUF ------------------------------------------------------------------------------------------ */

typedef struct hf_mapping {
    mica__target *target;
    const mica__name_family *family;
    bool factors; /* config.json has them */
} hf_mapping;

static uint64_t get_number(const hf_mapping *m, const char *key, uint64_t otherwise)
{
    char full[160];
    snprintf(full, sizeof full, "%.60s.%.90s", m->family->arch, key);
    const mica_value *value = mica__archive_meta(m->target->archive, full);
    return value != NULL && value->type == MICA_VALUE_U32 ? value->as.u : otherwise;
}

static mica_status unpair_rows(const hf_mapping *m, bool is_key, mica__target_tensor *tensor)
{
    const uint64_t heads = get_number(m, "attention.head_count", 0);
    return mica__target_pair(tensor, MICA__TRANSFORM_UNPAIR,
                             (uint32_t)(is_key ? get_number(m, "attention.head_count_kv", heads) : heads));
}

/* The type in safetensors: blocks and MLX weights become plain. */
static void choose_type(const mica__target *target, mica__target_tensor *tensor)
{
    const mica__tensor *source = tensor->source[0];
    if (mica__safetensors_type_of(source->dtype) == NULL || source->scales != MICA__NO_TENSOR)
        tensor->dtype = mica__convert_plain_type(target, source);
}

static mica_status add_named(const hf_mapping *m, const mica__name_row *row, const mica__name_parts *parts,
                             const mica__target_tensor *tensor)
{
    char name[256];
    mica__target_tensor named = *tensor;
    if (!mica__name_expand(row->hf, parts, name, sizeof name))
        return mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"%s\": its name is too long", tensor->name);
    named.name = mica__target_text(m->target, "%s", name);
    return named.name == NULL ? MICA_ERR_OUT_OF_MEMORY : mica__target_add(m->target, &named);
}

static mica_status unstack(const hf_mapping *m, const mica__name_row *row, mica__name_parts *parts,
                           mica__target_tensor *tensor)
{
    const uint64_t experts = tensor->shape[0];
    mica_status status = MICA_OK;
    if (tensor->ndim != 3 || experts > UINT16_MAX || tensor->shape[1] == 0 || tensor->shape[2] == 0)
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "tensor \"%s\" has %u dimensions, the first of %llu, expected a matrix for each of at most "
            "%u experts",
            tensor->name, tensor->ndim, (unsigned long long)experts, UINT16_MAX);
    tensor->ndim = 2;
    tensor->shape[0] = tensor->shape[1];
    tensor->shape[1] = tensor->shape[2];
    tensor->rows = tensor->shape[0];
    for (uint64_t i = 0; i < experts && status == MICA_OK; i++) {
        parts->expert = (uint32_t)i;
        tensor->first_row = i * tensor->rows;
        status = add_named(m, row, parts, tensor);
    }
    return status;
}

static mica_status map_tensor(const hf_mapping *m, const mica__tensor *source)
{
    mica__name_parts parts;
    mica__target_tensor tensor;
    const mica__name_row *row = mica__name_family_from_gguf(m->family, source->name, &parts);
    if (row == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"%s\" has no known place in a %s model",
                          source->name, m->family->arch);
    if (row->how == MICA__HOW_FACTORS && m->factors)
        return MICA_OK;
    mica_status status = mica__target_same(m->target, source, &tensor);
    if (status != MICA_OK)
        return status;
    choose_type(m->target, &tensor);
    switch ((mica__how)row->how) {
    case MICA__HOW_PAIR_QUERY:
    case MICA__HOW_PAIR_KEY: status = unpair_rows(m, row->how == MICA__HOW_PAIR_KEY, &tensor); break;
    case MICA__HOW_ADD_ONE: tensor.transform = MICA__TRANSFORM_SUBTRACT_ONE; break;
    case MICA__HOW_TRANSPOSE: status = mica__target_transpose(&tensor); break;
    case MICA__HOW_STACK: return unstack(m, row, &parts, &tensor);
    case MICA__HOW_KEEP:
    case MICA__HOW_HEAD:
    case MICA__HOW_FACTORS:
    case MICA__HOW_SKIP: break;
    }
    return status == MICA_OK ? add_named(m, row, &parts, &tensor) : status;
}

/* ---- from anything else, and the whole ------------------------------------------------------------------- */

/* A tensor whose bytes are called something else, as it is in the file. */
static mica_status add_bytes(mica__target *target, const mica__tensor *tensor, mica_dtype dtype)
{
    mica__target_tensor same;
    mica__tensor *renamed = mica__chunks_alloc(&target->chunks, sizeof *renamed);
    if (renamed == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    *renamed = *tensor;
    renamed->dtype = (uint16_t)dtype;
    renamed->scales = renamed->biases = MICA__NO_TENSOR;
    if (tensor->ndim != 0) {
        const uint64_t row = tensor->shape[tensor->ndim - 1];
        renamed->shape[tensor->ndim - 1] = row / mica__dtype_elements(tensor->dtype) *
                                           mica__dtype_bytes(tensor->dtype) /
                                           mica__dtype_bytes((uint32_t)dtype);
    }
    const mica_status status = mica__target_same(target, renamed, &same);
    return status == MICA_OK ? mica__target_add(target, &same) : status;
}

/* Words, scales and biases of MLX weights as the files have them: three tensors. Scales of one byte are u8 there. */
static mica_status add_words(mica__target *target, const mica__tensor *tensor)
{
    const uint32_t tables[] = {tensor->scales, tensor->biases};
    mica_status status = add_bytes(target, tensor, MICA_DTYPE_U32);
    for (size_t i = 0; i < 2 && status == MICA_OK; i++) {
        if (tables[i] == MICA__NO_TENSOR)
            continue;
        const mica__tensor *table = &target->archive->tensor[tables[i]];
        status = add_bytes(target, table,
                           mica__dtype_bytes(table->dtype) == 1 ? MICA_DTYPE_U8 : (mica_dtype)table->dtype);
    }
    return status;
}

static mica_status copy_tensors(mica__target *target, bool words)
{
    const mica__archive *archive = target->archive;
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < archive->visible_count && status == MICA_OK; i++) {
        mica__target_tensor tensor;
        if (words && archive->tensor[i].scales != MICA__NO_TENSOR) {
            status = add_words(target, &archive->tensor[i]);
            continue;
        }
        status = mica__target_same(target, &archive->tensor[i], &tensor);
        if (status != MICA_OK)
            return status;
        choose_type(target, &tensor);
        status = mica__target_add(target, &tensor);
    }
    return status;
}

static bool is_utf8(const mica_string *text)
{
    for (uint64_t at = 0; at < text->length;) {
        const size_t size = mica__utf8_length(text->data + at, (size_t)(text->length - at));
        if (size == 0)
            return false;
        at += size;
    }
    return true;
}

/* Texts among the metadata, which safetensors hold; "format" is their own. */
static mica_status copy_texts(mica__target *target)
{
    const mica__archive *archive = target->archive;
    mica_status status = mica__target_set_string(target, "format", "pt");
    for (uint32_t i = 0; i < archive->meta_count && status == MICA_OK; i++) {
        const mica__meta *meta = &archive->meta[i];
        if (meta->value.type == MICA_VALUE_STRING && strcmp(meta->key.data, "format") != 0 &&
            is_utf8(&meta->value.as.string))
            status = mica__target_set(target, meta->key.data, &meta->value);
    }
    return status;
}

mica_status mica__convert_to_hf(mica__target *target, bool words, const char **out_config)
{
    const mica__archive *archive = target->archive;
    const mica_value *arch = mica__archive_meta(archive, "general.architecture");
    hf_mapping m = {.target = target};
    mica_status status = copy_texts(target);
    *out_config = archive->config;
    if (archive->format == MICA_FORMAT_GGUF && arch != NULL && arch->type == MICA_VALUE_STRING)
        m.family = mica__name_family_of_gguf(arch->as.string.data);
    if (status != MICA_OK)
        return status;
    if (m.family == NULL)
        return copy_tensors(target, words);
    status = mica__config_from_gguf(target, m.family, out_config, &m.factors);
    for (uint32_t i = 0; i < archive->visible_count && status == MICA_OK; i++)
        status = map_tensor(&m, &archive->tensor[i]);
    return status;
}
