/* tensors.c - the tensors of a file into the places that tensors.def gives them, each with the shape its model needs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/work.h"
#include "model/parts.h"

#define TENSOR_STEPS 256u /* of finding the place of a tensor, checking it and loading it */

/* The words for sizes in tensors.def. */
typedef enum size_word {
    SIZE_NONE,
    SIZE_ANY,
    SIZE_WIDTH,
    SIZE_VOCABULARY,
    SIZE_HALF_ROTARY,
    SIZE_QUERY,
    SIZE_KEY,
    SIZE_VALUE,
    SIZE_QUERY_KEY_VALUE,
    SIZE_HEAD,
    SIZE_MIXED,
    SIZE_FFN,
    SIZE_FFN_OR_TWICE, /* gate and up in one, the gate first */
    SIZE_EXPERTS,
    SIZE_EXPERT_FFN, /* [experts, this, columns] */
    SIZE_EXPERT_WIDTH,
    SIZE_EXPERT_FFN_ROW
} size_word;

typedef struct tensor_row {
    const char *name;
    uint8_t rows, columns; /* size_word */
} tensor_row;

static const tensor_row table[MICA__T_COUNT] = {
#define MICA__MODEL_TENSOR(id, name, rows, columns) [MICA__T_##id] = {name, SIZE_##rows, SIZE_##columns},
#include "model/tensors.def"
#define MICA__LAYER_TENSOR(id, name, rows, columns) [MICA__T_##id] = {name, SIZE_##rows, SIZE_##columns},
#include "model/tensors.def"
};

_Static_assert(MICA__T_COUNT <= 64, "needs of a family are one bit a tensor");

/* A tensor of the file, its place found. */
typedef struct found {
    uint64_t index; /* in the file */
    mica_buffer **place;
    uint64_t rows;  /* 0: a vector */
    uint64_t bytes; /* in the file */
} found;

typedef struct loading {
    mica_model *model;
    mica_weights *weights;
    found *list; /* [count] */
    uint64_t count;
    uint32_t *at; /* which of the list has a place, counted from 1; places as place_number counts them */
} loading;

#define LAYER_PLACES (MICA__T_COUNT - MICA__T_WHOLE_COUNT)

/* ---- names ---------------------------------------------------------------------------------------------- */

static bool find_row(const char *name, uint32_t from, uint32_t to, mica__tensor_id *out)
{
    for (uint32_t i = from; i < to; i++)
        if (strcmp(table[i].name, name) == 0) {
            *out = (mica__tensor_id)i;
            return true;
        }
    return false;
}

const char *mica__tensor_word(mica__tensor_id id)
{
    return table[id].name;
}

bool mica__tensor_place(const char *name, mica__tensor_id *out_id, uint32_t *out_layer)
{
    char *end;
    *out_layer = 0;
    if (strncmp(name, "blk.", 4) != 0)
        return find_row(name, 0, MICA__T_WHOLE_COUNT, out_id);
    if (name[4] < '0' || name[4] > '9' || (name[4] == '0' && name[5] != '.'))
        return false; /* a number has one spelling: "blk.00." is not "blk.0." */
    const unsigned long layer = strtoul(name + 4, &end, 10);
    *out_layer = layer < UINT32_MAX ? (uint32_t)layer : UINT32_MAX;
    return *end == '.' && find_row(end + 1, MICA__T_WHOLE_COUNT, MICA__T_COUNT, out_id);
}

/* ---- shapes --------------------------------------------------------------------------------------------- */

/* 0 stands for any size. */
static uint64_t size_of(const mica__hparams *h, size_word word)
{
    const uint64_t query = (uint64_t)h->heads * h->head_k, key = (uint64_t)h->kv_heads * h->head_k,
                   value = (uint64_t)h->kv_heads * h->head_v;
    switch (word) {
    case SIZE_WIDTH:
    case SIZE_EXPERT_WIDTH: return h->width;
    case SIZE_VOCABULARY: return h->vocabulary;
    case SIZE_HALF_ROTARY: return h->rotary / 2;
    case SIZE_QUERY: return query;
    case SIZE_KEY: return key;
    case SIZE_VALUE: return value;
    case SIZE_QUERY_KEY_VALUE: return query + key + value;
    case SIZE_HEAD: return h->head_k;
    case SIZE_MIXED: return (uint64_t)h->heads * h->head_v;
    case SIZE_FFN: return h->ffn;
    case SIZE_EXPERTS: return h->experts;
    case SIZE_EXPERT_FFN:
    case SIZE_EXPERT_FFN_ROW: return h->expert_ffn;
    case SIZE_NONE:
    case SIZE_ANY:
    case SIZE_FFN_OR_TWICE: break;
    }
    return 0;
}

static bool is_stacked(const tensor_row *row)
{
    return row->rows == SIZE_EXPERT_FFN || row->rows == SIZE_EXPERT_WIDTH;
}

static bool rows_fit(const mica__hparams *h, const tensor_row *row, uint64_t rows)
{
    if (row->rows == SIZE_FFN_OR_TWICE)
        return h->ffn == 0 || rows == h->ffn || rows == 2 * (uint64_t)h->ffn;
    const uint64_t wanted = size_of(h, (size_word)row->rows);
    return wanted == 0 || rows == wanted;
}

static mica_status check_shape(const mica__hparams *h, const tensor_row *row, const mica_tensor_info *info)
{
    const uint32_t ndim = row->rows == SIZE_NONE ? 1 : is_stacked(row) ? 3 : 2;
    const uint64_t columns = size_of(h, (size_word)row->columns);
    bool right = info->ndim == ndim && (columns == 0 || info->shape[ndim - 1] == columns);
    if (right && ndim > 1)
        right = rows_fit(h, row, info->shape[ndim - 2]);
    if (right && ndim > 2)
        right = info->shape[0] == h->experts;
    if (right)
        return MICA_OK;
    return mica__fail(
        MICA_ERR_MALFORMED_FILE,
        "tensor \"%.120s\" has %u dimensions and ends with [%llu, %llu], the model's numbers want %u "
        "dimensions and [%llu, %llu]",
        info->name, info->ndim, (unsigned long long)(info->ndim > 1 ? info->shape[info->ndim - 2] : 1),
        (unsigned long long)(info->ndim > 0 ? info->shape[info->ndim - 1] : 1), ndim,
        (unsigned long long)(ndim > 1 ? size_of(h, (size_word)row->rows) : 1), (unsigned long long)columns);
}

/* ---- the list ------------------------------------------------------------------------------------------- */

/* The vocabulary is as long as the embedding: the numbers of files differ about it. */
static mica_status find_vocabulary(mica_model *model, const mica_weights *weights)
{
    mica_tensor_info info;
    uint64_t index = 0;
    if (mica_weights_find(weights, table[MICA__T_TOKEN_EMBEDDING].name, &index) != MICA_OK)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"%s\" is missing",
                          table[MICA__T_TOKEN_EMBEDDING].name);
    MICA__TRY(mica_weights_tensor(weights, index, &info));
    if (info.ndim != 2 || info.shape[0] == 0 || info.shape[0] > UINT32_MAX)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"%s\" is no table of tokens", info.name);
    MICA__TRY(mica__limit_check("tokens of a vocabulary", mica__limits()->vocabulary, info.shape[0]));
    model->h.vocabulary = (uint32_t)info.shape[0];
    return MICA_OK;
}

static uint64_t place_number(mica__tensor_id id, uint32_t layer)
{
    return id < MICA__T_WHOLE_COUNT ? id : (uint64_t)layer * LAYER_PLACES + id;
}

static mica_status note_tensor(loading *l, uint64_t index)
{
    mica_model *model = l->model;
    mica_tensor_info info;
    mica__tensor_id id = MICA__T_COUNT;
    uint32_t layer;
    uint64_t elements = 1, sample = 0;
    MICA__TRY(mica__spend(TENSOR_STEPS));
    MICA__TRY(mica_weights_tensor(l->weights, index, &info));
    if (!mica__tensor_place(info.name, &id, &layer) || layer >= model->h.layers)
        return mica__fail(MICA_ERR_UNSUPPORTED, "tensor \"%.160s\" has no place in a %s model of %u layers",
                          info.name, model->family->name, model->h.layers);
    MICA__TRY(check_shape(&model->h, &table[id], &info));
    uint32_t *at = &l->at[place_number(id, layer)];
    if (*at != 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"%.160s\" is there twice", info.name);
    *at = (uint32_t)l->count + 1;
    for (uint32_t i = 0; i < info.ndim; i++)
        elements *= info.shape[i];
    model->info.parameters += elements;
    model->info.weight_bytes += info.bytes;
    MICA__TRY(mica_weights_read(l->weights, index, 0, &sample,
                                info.bytes < sizeof sample ? info.bytes : sizeof sample));
    const uint64_t facts[3] = {mica__hash_bytes(info.name, strlen(info.name), sample), (uint64_t)info.dtype,
                               elements};
    model->fingerprint = mica__hash_bytes(facts, sizeof facts, model->fingerprint);
    l->list[l->count++] =
        (found){.index = index,
                .place = id < MICA__T_WHOLE_COUNT ? &model->tensor[id]
                                                  : &model->layer[layer].tensor[id - MICA__T_WHOLE_COUNT],
                .rows = info.ndim > 1 ? info.shape[info.ndim - 2] : 0,
                .bytes = info.bytes};
    return MICA_OK;
}

/* The tensor of a place, NULL if the file has none; `layer` counts only for tensors of layers. */
static const found *find_listed(const loading *l, mica__tensor_id id, uint32_t layer)
{
    const uint32_t at = l->at[place_number(id, layer)];
    return at != 0 ? &l->list[at - 1] : NULL;
}

/* What the family needs in every layer, and what the kind of this one's feed-forward part needs: experts where there is a
 * router; a gate of its own where it is neither part of the up matrix nor left out by the family. */
static uint64_t layer_needs(const loading *l, uint32_t layer)
{
    const mica_model *model = l->model;
    const found *up = find_listed(l, MICA__T_UP, layer);
    if (find_listed(l, MICA__T_ROUTER, layer) != NULL)
        return model->family->needs | MICA__BIT(EXPERT_GATE) | MICA__BIT(EXPERT_UP) | MICA__BIT(EXPERT_DOWN);
    const bool gated = up != NULL && up->rows == model->h.ffn && !model->family->ungated;
    return model->family->needs | MICA__BIT(UP) | MICA__BIT(DOWN) | (gated ? MICA__BIT(GATE) : 0);
}

/* Names the first tensor that the model needs and the file lacks. */
static mica_status check_needs(const loading *l)
{
    const mica_model *model = l->model;
    for (uint32_t id = 0; id < MICA__T_WHOLE_COUNT; id++)
        if ((model->family->needs >> id & 1) != 0 && find_listed(l, (mica__tensor_id)id, 0) == NULL)
            return mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"%s\" is missing", table[id].name);
    for (uint32_t layer = 0; layer < model->h.layers; layer++) {
        const uint64_t needs = layer_needs(l, layer);
        MICA__TRY(mica__spend(LAYER_PLACES));
        for (uint32_t id = MICA__T_WHOLE_COUNT; id < MICA__T_COUNT; id++)
            if ((needs >> id & 1) != 0 && find_listed(l, (mica__tensor_id)id, layer) == NULL)
                return mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"blk.%u.%s\" is missing", layer,
                                  table[id].name);
    }
    return MICA_OK;
}

/* ---- loading -------------------------------------------------------------------------------------------- */

/* A model that has a head of its own reads a few rows of the embedding a token: it stays in the file. */
static bool wants_pack(const loading *l, const found *item)
{
    return item->rows != 0 &&
           !(item->place == &l->model->tensor[MICA__T_TOKEN_EMBEDDING] &&
             find_listed(l, MICA__T_OUTPUT, 0) != NULL) &&
           item->place != &l->model->tensor[MICA__T_POSITION_EMBEDDING] &&
           item->place != &l->model->tensor[MICA__T_TYPE_EMBEDDING];
}

/* One bar over both lists: what the first one loaded counts in the second. */
typedef struct both {
    const mica_model_options *options;
    uint64_t before, total;
} both;

static int tell(void *context, const char *what, uint64_t done, uint64_t total)
{
    const both *b = context;
    (void)total;
    if (mica__is_cancelled())
        return 1;
    return b->options->progress == NULL
               ? 0
               : b->options->progress(b->options->context, what, b->before + done, b->total);
}

static mica_status load_some(loading *l, both *b, bool packed, uint64_t *index, mica_buffer **buffer)
{
    const uint32_t flags = packed && !b->options->keep_layout ? MICA_LOAD_PACK : 0;
    uint64_t count = 0;
    for (uint64_t i = 0; i < l->count; i++)
        if (wants_pack(l, &l->list[i]) == packed)
            index[count++] = l->list[i].index;
    MICA__TRY(mica_weights_load_all(l->weights, index, count, l->model->device, flags, tell, b, buffer));
    count = 0;
    for (uint64_t i = 0; i < l->count; i++)
        if (wants_pack(l, &l->list[i]) == packed) {
            *l->list[i].place = buffer[count++];
            b->before += l->list[i].bytes;
        }
    return MICA_OK;
}

/* A vector that is part of a mapped file becomes the model's own: norms and biases are a few KB, and a file that is cut
 * short later does not reach them. */
static mica_status own_vector(mica_device *device, mica_buffer **place)
{
    mica_buffer_info info;
    mica_buffer *own = NULL;
    MICA__TRY(mica_buffer_get_info(*place, &info));
    if (!info.imported)
        return MICA_OK;
    void *bytes = mica__alloc((size_t)info.byte_length);
    mica_status status = bytes == NULL
                             ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a vector of %llu values",
                                          (unsigned long long)info.element_count)
                             : mica_buffer_alloc(device, info.dtype, info.ndim, info.shape, &own);
    if (status == MICA_OK)
        status = mica_buffer_read(*place, 0, bytes, info.byte_length);
    if (status == MICA_OK)
        status = mica_buffer_write(own, 0, bytes, info.byte_length);
    mica__free(bytes);
    if (status != MICA_OK) {
        mica_buffer_release(own);
        return status;
    }
    mica_buffer_release(*place);
    *place = own;
    return MICA_OK;
}

static mica_status load_all(loading *l, const mica_model_options *options)
{
    uint64_t *index = mica__alloc((size_t)(l->count + 1) * sizeof *index);
    mica_buffer **buffer = mica__alloc((size_t)(l->count + 1) * sizeof *buffer);
    both b = {.options = options, .total = l->model->info.weight_bytes};
    mica_status status = MICA_OK;
    if (index == NULL || buffer == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a list of %llu tensors",
                            (unsigned long long)l->count);
    if (status == MICA_OK)
        status = load_some(l, &b, false, index, buffer);
    for (uint64_t i = 0; i < l->count && status == MICA_OK; i++)
        if (l->list[i].rows == 0)
            status = own_vector(l->model->device, l->list[i].place);
    if (status == MICA_OK)
        status = load_some(l, &b, true, index, buffer);
    mica__free(index);
    mica__free(buffer);
    return status;
}

mica_status mica__tensors_check_layers(const mica_model *model, const mica_weights *weights)
{
    mica_weights_info info;
    uint64_t needs = 0;
    MICA__TRY(mica__limit_check("layers", mica__limits()->layers, model->h.layers));
    MICA__TRY(mica_weights_get_info(weights, &info));
    for (uint32_t id = MICA__T_WHOLE_COUNT; id < MICA__T_COUNT; id++)
        needs += model->family->needs >> id & 1;
    if (model->h.layers > info.tensor_count / needs)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "the model's \"%s.block_count\" is %u, the file's %llu tensors are not those of so "
                          "many layers",
                          model->family->name, model->h.layers, (unsigned long long)info.tensor_count);
    return MICA_OK;
}

mica_status mica__tensors_load(mica_model *model, mica_weights *weights, const mica_model_options *options)
{
    mica_weights_info info;
    loading l = {.model = model, .weights = weights};
    MICA__TRY(mica_weights_get_info(weights, &info));
    MICA__TRY(find_vocabulary(model, weights));
    l.list = mica__alloc((size_t)(info.tensor_count + 1) * sizeof *l.list);
    l.at = mica__calloc((size_t)model->h.layers * LAYER_PLACES + MICA__T_COUNT, sizeof *l.at);
    mica_status status = MICA_OK;
    if (l.list == NULL || l.at == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a list of %llu tensors",
                            (unsigned long long)info.tensor_count);
    for (uint64_t i = 0; i < info.tensor_count && status == MICA_OK; i++)
        status = note_tensor(&l, i);
    if (status == MICA_OK)
        status = check_needs(&l);
    if (status == MICA_OK)
        status = load_all(&l, options);
    mica__free(l.list);
    mica__free(l.at);
    return status;
}
