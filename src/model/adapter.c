/*
 * adapter.c - adapters of low rank: which matrices of a model they may have, their values on its device, and those that a context or a graph applies.
 */
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/hash.h"
#include "base/work.h"

#define MOST_RANK 4096u
#define USUAL_RANK 8u
#define MATRIX_STEPS 64u

/* Matrices that forward functions reach by mica__linear and by the head. */
#define MAY                                                                                         \
    (MICA__BIT(Q) | MICA__BIT(K) | MICA__BIT(V) | MICA__BIT(QKV) | MICA__BIT(O) | MICA__BIT(GATE) | \
     MICA__BIT(UP) | MICA__BIT(DOWN) | MICA__BIT(ROUTER) | MICA__BIT(OUTPUT) | EXPERTS)
#define EXPERTS (MICA__BIT(EXPERT_GATE) | MICA__BIT(EXPERT_UP) | MICA__BIT(EXPERT_DOWN))

/* ---- life ----------------------------------------------------------------------------------------------- */

mica_status mica__adapter_new(mica_model *model, mica_adapter **out)
{
    mica_adapter *adapter = mica__calloc(1, sizeof *adapter);
    if (adapter == NULL) {
        (void)mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for an adapter");
        return MICA_ERR_OUT_OF_MEMORY;
    }
    atomic_init(&adapter->references, 1);
    adapter->model = mica__model_retain(model);
    *out = adapter;
    return MICA_OK;
}

void mica_adapter_release(mica_adapter *adapter)
{
    if (adapter == NULL || atomic_fetch_sub_explicit(&adapter->references, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < adapter->count; i++)
        for (uint32_t part = 0; part < 2; part++)
            mica_buffer_release(adapter->matrix[i].part[part]);
    mica__free(adapter->matrix);
    mica_model_release(adapter->model);
    mica__free(adapter);
}

/* ---- matrices ------------------------------------------------------------------------------------------- */

mica_status mica__adapter_weight(const mica_model *model, const char *name, mica_buffer **out)
{
    mica__tensor_id id = MICA__T_COUNT;
    uint32_t layer = 0;
    *out = NULL;
    if (mica__tensor_place(name, &id, &layer) && layer < model->h.layers)
        *out = id < MICA__T_WHOLE_COUNT ? model->tensor[id] : mica__of_layer(&model->layer[layer], id);
    if (*out == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "the model has no tensor \"%.160s\"", name);
    if ((MAY >> id & 1) == 0)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%.160s\" is no matrix that an adapter may have: those of attention, of "
                          "feed-forward parts, of experts, routers and output.weight are",
                          name);
    return MICA_OK;
}

mica_status mica__adapter_order(const mica_model *model, const char *name)
{
    mica__tensor_id id = MICA__T_COUNT;
    uint32_t layer = 0;
    if (!mica__tensor_place(name, &id, &layer))
        return MICA_OK;
    /* A file has rows of rotary heads in GGUF's order. */
    if (model->h.rope_halves && !model->family->neox && (id == MICA__T_Q || id == MICA__T_K))
        return mica__fail(
            MICA_ERR_UNSUPPORTED,
            "\"%.160s\" of a folder has its rows in another order than a GGUF: 'mica convert' makes "
            "one of it",
            name);
    return MICA_OK;
}

void mica__adapter_shape(const mica_buffer_info *weight, uint64_t rank, uint32_t part, uint64_t shape[3])
{
    const uint32_t rows = weight->ndim - 2; /* behind the experts */
    shape[0] = weight->shape[0];
    shape[rows] = part == 0 ? rank : weight->shape[rows];
    shape[rows + 1] = part == 0 ? weight->shape[rows + 1] : rank;
}

static mica_status make_parts(mica_adapter *adapter, mica__low_rank *matrix)
{
    mica_buffer_info info;
    MICA__TRY(mica_buffer_get_info(matrix->weight, &info));
    for (uint32_t part = 0; part < 2; part++) {
        uint64_t shape[3] = {1, 1, 1};
        mica__adapter_shape(&info, matrix->rank, part, shape);
        mica__spend_allow(shape[0] * shape[1] * shape[2] * 4);
        MICA__TRY(mica__spend(MATRIX_STEPS));
        MICA__TRY(
            mica_buffer_alloc(adapter->model->device, MICA_DTYPE_F32, info.ndim, shape, &matrix->part[part]));
    }
    return MICA_OK;
}

mica_status mica__adapter_add(mica_adapter *adapter, const char *name, uint32_t rank, mica__low_rank **out)
{
    mica_buffer *weight = NULL;
    MICA__TRY(mica__adapter_weight(adapter->model, name, &weight));
    if (mica__adapter_find(adapter, weight) != NULL)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "tensor \"%.160s\" has two adapters", name);
    if (adapter->count == adapter->capacity) {
        const uint32_t capacity = adapter->capacity * 2 + 16;
        mica__low_rank *grown = mica__realloc(adapter->matrix, capacity * sizeof *grown);
        if (grown == NULL) {
            (void)mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the matrices of an adapter");
            return MICA_ERR_OUT_OF_MEMORY;
        }
        adapter->matrix = grown;
        adapter->capacity = capacity;
    }
    mica__low_rank *matrix = &adapter->matrix[adapter->count++];
    *matrix = (mica__low_rank){.weight = weight, .rank = rank};
    for (int part = 0; part < 2; part++)
        snprintf(matrix->name[part], sizeof matrix->name[part], "%.50s.lora_%c", name, "ab"[part]);
    *out = matrix;
    return make_parts(adapter, matrix);
}

mica_status mica__adapter_write(mica__low_rank *matrix, uint32_t part, const float *values)
{
    mica_buffer_info info;
    MICA__TRY(mica_buffer_get_info(matrix->part[part], &info));
    return mica_buffer_write(matrix->part[part], 0, values, info.byte_length);
}

const mica__low_rank *mica__adapter_find(const mica_adapter *adapter, const mica_buffer *weight)
{
    for (uint32_t i = 0; i < adapter->count; i++)
        if (adapter->matrix[i].weight == weight)
            return &adapter->matrix[i];
    return NULL;
}

/* Reads a part to `values`, which the caller frees. */
static mica_status read_part(const mica__low_rank *matrix, uint32_t part, float **out, uint64_t *out_bytes)
{
    mica_buffer_info info;
    MICA__TRY(mica_buffer_get_info(matrix->part[part], &info));
    *out_bytes = info.byte_length;
    *out = mica__alloc((size_t)info.byte_length);
    if (*out == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a matrix of an adapter");
    const mica_status status = mica_buffer_read(matrix->part[part], 0, *out, info.byte_length);
    if (status != MICA_OK) {
        mica__free(*out);
        *out = NULL;
    }
    return status;
}

mica_status mica__adapter_ready(mica_adapter *adapter)
{
    uint64_t all = mica__hash_bytes(&adapter->alpha, sizeof adapter->alpha, 0), bytes = 0;
    for (uint32_t i = 0; i < 2 * adapter->count; i++) {
        const mica__low_rank *matrix = &adapter->matrix[i / 2];
        const char *name = matrix->name[i % 2];
        float *values = NULL;
        MICA__TRY(read_part(matrix, i % 2, &values, &bytes));
        all = mica__hash_bytes(values, (size_t)bytes, mica__hash_bytes(name, strlen(name), all));
        mica__free(values);
    }
    adapter->fingerprint = all;
    return MICA_OK;
}

/* ---- new ones ------------------------------------------------------------------------------------------- */

static float draw(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15)); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (float)((z ^ (z >> 31)) >> 40) / 8388608.0f - 1.0f;
}

static mica_status fill_a(mica__low_rank *matrix, uint64_t *state)
{
    float *values = NULL;
    uint64_t bytes = 0;
    mica_buffer_info info;
    MICA__TRY(mica_buffer_get_info(matrix->part[0], &info));
    MICA__TRY(read_part(matrix, 0, &values, &bytes));
    const float most = 1.0f / sqrtf((float)info.shape[info.ndim - 1]);
    for (uint64_t i = 0; i < info.element_count; i++)
        values[i] = draw(state) * most;
    const mica_status status = mica__adapter_write(matrix, 0, values);
    mica__free(values);
    return status;
}

/* Whether a target names this matrix; none are given: all but routers and experts. */
static bool is_target(const mica_adapter_desc *desc, mica__tensor_id id)
{
    const char *name = mica__tensor_word(id);
    const size_t length = strlen(name) - strlen(".weight");
    for (uint32_t t = 0; t < desc->target_count; t++)
        if (strlen(desc->targets[t]) == length && memcmp(desc->targets[t], name, length) == 0)
            return true;
    return desc->target_count == 0 && id != MICA__T_ROUTER && (EXPERTS >> id & 1) == 0;
}

static mica_status add_layer(mica_adapter *adapter, uint32_t layer, const mica_adapter_desc *desc,
                             uint64_t *state)
{
    char name[MICA__ADAPTER_NAME];
    mica__low_rank *matrix = NULL;
    for (uint32_t id = MICA__T_WHOLE_COUNT; id < MICA__T_COUNT; id++) {
        const mica__layer *from = &adapter->model->layer[layer];
        if ((MAY >> id & 1) == 0 || !is_target(desc, (mica__tensor_id)id) ||
            mica__of_layer(from, (mica__tensor_id)id) == NULL)
            continue;
        snprintf(name, sizeof name, "blk.%u.%s", layer, mica__tensor_word((mica__tensor_id)id));
        MICA__TRY(mica__adapter_order(adapter->model, name));
        MICA__TRY(mica__adapter_add(adapter, name, desc->rank, &matrix));
        MICA__TRY(fill_a(&adapter->matrix[adapter->count - 1], state));
    }
    return MICA_OK;
}

/* Each target is a matrix of some layer. */
static mica_status check_targets(const mica_model *model, const mica_adapter_desc *desc)
{
    for (uint32_t t = 0; t < desc->target_count; t++) {
        const mica_adapter_desc one = {.targets = &desc->targets[t], .target_count = 1};
        bool may = false, has = false;
        if (desc->targets[t] == NULL)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "desc.targets[%u] is NULL", t);
        for (uint32_t id = MICA__T_WHOLE_COUNT; id < MICA__T_COUNT; id++) {
            if ((MAY >> id & 1) == 0 || !is_target(&one, (mica__tensor_id)id))
                continue;
            may = true;
            for (uint32_t layer = 0; layer < model->h.layers && !has; layer++)
                has = mica__of_layer(&model->layer[layer], (mica__tensor_id)id) != NULL;
        }
        if (!may)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "desc.targets[%u] is \"%.60s\", expected attn_q, attn_k, attn_v, attn_qkv, "
                              "attn_output, ffn_gate, ffn_up, ffn_down, ffn_gate_exps, ffn_up_exps, "
                              "ffn_down_exps or ffn_gate_inp",
                              t, desc->targets[t]);
        if (!has)
            return mica__fail(MICA_ERR_NOT_FOUND,
                              "desc.targets[%u] is \"%.60s\": no layer of the model has it", t,
                              desc->targets[t]);
    }
    return MICA_OK;
}

static mica_status create(mica_model *model, const mica_adapter_desc *given, mica_adapter **out_adapter)
{
    mica_adapter_desc desc;
    mica_adapter *adapter = NULL;
    MICA__TRY(mica__take_options("desc", given, sizeof desc, &desc));
    if (model == NULL || (desc.targets == NULL && desc.target_count != 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", model == NULL ? "model" : "desc.targets");
    if (desc.rank > MOST_RANK || !isfinite(desc.alpha))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "desc.%s is %g, expected %s",
                          desc.rank > MOST_RANK ? "rank" : "alpha",
                          desc.rank > MOST_RANK ? (double)desc.rank : (double)desc.alpha,
                          desc.rank > MOST_RANK ? "at most 4096" : "a finite number");
    desc.rank = desc.rank == 0 ? USUAL_RANK : desc.rank;
    MICA__TRY(check_targets(model, &desc));
    MICA__TRY(mica__adapter_new(model, &adapter));
    adapter->alpha = desc.alpha == 0 ? 2.0f * (float)desc.rank : desc.alpha;
    uint64_t state = desc.seed;
    mica_status status = MICA_OK;
    for (uint32_t layer = 0; layer < model->h.layers && status == MICA_OK; layer++)
        status = add_layer(adapter, layer, &desc, &state);
    if (status == MICA_OK)
        status = mica__adapter_ready(adapter);
    if (status == MICA_OK)
        *out_adapter = adapter;
    else
        mica_adapter_release(adapter);
    return status;
}

mica_status mica_adapter_create(mica_model *model, const mica_adapter_desc *desc, mica_adapter **out_adapter)
{
    mica__call call;
    if (out_adapter == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "adapter_create: out_adapter is NULL");
    *out_adapter = NULL;
    mica__call_begin(&call, "adapter_create");
    return mica__call_end(&call, create(model, desc, out_adapter));
}

/* ---- what is asked of one ------------------------------------------------------------------------------- */

mica_status mica_adapter_get_info(const mica_adapter *adapter, mica_adapter_info *out)
{
    if (adapter == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "adapter_get_info: %s is NULL",
                          adapter == NULL ? "adapter" : "out");
    *out = (mica_adapter_info){.matrices = adapter->count, .alpha = adapter->alpha};
    for (uint32_t i = 0; i < adapter->count; i++) {
        const mica__low_rank *matrix = &adapter->matrix[i];
        out->rank = i == 0 || matrix->rank < out->rank ? matrix->rank : out->rank;
        out->most = matrix->rank > out->most ? matrix->rank : out->most;
        for (uint32_t part = 0; part < 2; part++) {
            mica_buffer_info info;
            MICA__TRY(mica_buffer_get_info(matrix->part[part], &info));
            out->parameters += info.element_count;
        }
    }
    return MICA_OK;
}

mica_status mica_adapter_tensor(const mica_adapter *adapter, uint32_t index, const char **out_name,
                                mica_buffer **out_buffer)
{
    if (adapter == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "adapter_tensor: adapter is NULL");
    if (index >= 2 * adapter->count)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "adapter_tensor: index is %u, of %u", index,
                          2 * adapter->count);
    if (out_name != NULL)
        *out_name = adapter->matrix[index / 2].name[index % 2];
    if (out_buffer != NULL)
        *out_buffer = adapter->matrix[index / 2].part[index % 2];
    return MICA_OK;
}

static mica_status take_part(mica__low_rank *matrix, uint32_t part, mica_executable *executable)
{
    mica_buffer *buffer = NULL;
    mica_buffer_info to, from;
    MICA__TRY(mica_executable_get(executable, matrix->name[part], &buffer));
    MICA__TRY(mica_buffer_get_info(matrix->part[part], &to));
    mica_status status = mica_buffer_get_info(buffer, &from);
    float *values = mica__alloc((size_t)to.byte_length);
    if (values == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a matrix of an adapter");
    else if (from.dtype != MICA_DTYPE_F32 || from.byte_length != to.byte_length)
        status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "'%s' of the executable is another matrix",
                            matrix->name[part]);
    if (status == MICA_OK)
        status = mica_buffer_read(buffer, 0, values, to.byte_length);
    if (status == MICA_OK)
        status = mica__adapter_write(matrix, part, values);
    mica__free(values);
    mica_buffer_release(buffer);
    return status;
}

static mica_status take_all(mica_adapter *adapter, mica_executable *executable)
{
    if (adapter == NULL || executable == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          adapter == NULL ? "adapter" : "executable");
    for (uint32_t i = 0; i < adapter->count; i++)
        for (uint32_t part = 0; part < 2; part++)
            MICA__TRY(take_part(&adapter->matrix[i], part, executable));
    return mica__adapter_ready(adapter);
}

mica_status mica_adapter_take(mica_adapter *adapter, mica_executable *executable)
{
    mica__call call;
    mica__call_begin(&call, "adapter_take");
    return mica__call_end(&call, take_all(adapter, executable));
}

/* ---- several together ----------------------------------------------------------------------------------- */

static mica_status make_factors(const mica_model *model, mica__applied *applied, float scale)
{
    const mica_adapter *adapter = applied->adapter;
    const uint64_t one = 1;
    applied->factor = mica__calloc(adapter->count + 1u, sizeof *applied->factor);
    if (applied->factor == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for an adapter");
    for (uint32_t i = 0; i < adapter->count; i++) {
        const float factor =
            adapter->alpha == 0 ? scale : scale * adapter->alpha / (float)adapter->matrix[i].rank;
        MICA__TRY(mica_buffer_alloc(model->device, MICA_DTYPE_F32, 1, &one, &applied->factor[i]));
        MICA__TRY(mica_buffer_write(applied->factor[i], 0, &factor, sizeof factor));
    }
    return MICA_OK;
}

mica_status mica__adapters_take(mica_model *model, const char *field, const mica_adapter_use *uses,
                                uint32_t count, mica__adapters *out)
{
    if (count == 0)
        return MICA_OK;
    if (uses == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", field);
    out->list = mica__calloc(count, sizeof *out->list);
    if (out->list == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u adapters", count);
    for (uint32_t i = 0; i < count; i++) {
        if (uses[i].adapter == NULL || uses[i].adapter->model != model)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s[%u].adapter is %s", field, i,
                              uses[i].adapter == NULL ? "NULL" : "of another model");
        if (!isfinite(uses[i].scale))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s[%u].scale is %g, expected a finite number",
                              field, i, (double)uses[i].scale);
        atomic_fetch_add_explicit(&uses[i].adapter->references, 1, memory_order_relaxed);
        out->list[out->count++].adapter = uses[i].adapter;
        const uint64_t own = uses[i].adapter->fingerprint;
        out->fingerprint = mica__hash_bytes(&uses[i].scale, sizeof uses[i].scale, out->fingerprint ^ own) | 1;
        MICA__TRY(make_factors(model, &out->list[i], uses[i].scale));
    }
    return MICA_OK;
}

void mica__adapters_free(mica__adapters *adapters)
{
    for (uint32_t i = 0; i < adapters->count; i++) {
        mica__applied *applied = &adapters->list[i];
        for (uint32_t k = 0; applied->factor != NULL && k < applied->adapter->count; k++)
            mica_buffer_release(applied->factor[k]);
        mica__free(applied->factor);
        mica_adapter_release(applied->adapter);
    }
    mica__free(adapters->list);
    *adapters = (mica__adapters){.list = NULL};
}
