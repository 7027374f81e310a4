/*
 * decoder.c - the forward function of every family that writes text: norms, attention over the cache, a feed-forward part
 * that may be routed to experts. What differs between families is in their rows (families.c) and in which tensors there are.
 */
#include <string.h>

#include "model/context.h"

/* Of a stage, but the first, which has one: the device is not to wait. Fusions do not reach from stage to stage. */
#define STAGE_LAYERS 4u
#define FIRST_KEYS 4u /* of a text: they are unlike all others */

/* y + factor (x . a^T) . b^T, of experts each row by those that `ids` name. What lies between lives as long as the records that use it. */
static mica_status add_low_rank(mica__pass *pass, mica_buffer *x, mica_buffer *ids,
                                const mica__low_rank *matrix, mica_buffer *factor, mica_buffer *y,
                                mica_buffer *sum)
{
    mica_buffer_info out;
    mica_buffer *low = NULL, *scaled = NULL, *added = NULL;
    MICA__TRY(mica_buffer_get_info(y, &out));
    uint64_t shape[3] = {out.shape[0], out.shape[1], matrix->rank};
    shape[out.ndim - 1] = matrix->rank;
    mica_status status = mica_session_temp(pass->session, MICA_DTYPE_F32, out.ndim, shape, &low);
    if (status == MICA_OK)
        status = mica_session_temp(pass->session, MICA_DTYPE_F32, out.ndim, shape, &scaled);
    if (status == MICA_OK)
        status = mica_session_temp(pass->session, MICA_DTYPE_F32, out.ndim, out.shape, &added);
    if (status == MICA_OK)
        status = ids == NULL ? mica_matmul(pass->encoder, x, matrix->part[0], NULL, low)
                             : mica_matmul_experts(pass->encoder, x, matrix->part[0], ids, NULL, low);
    if (status == MICA_OK)
        status = mica_mul(pass->encoder, low, factor, scaled);
    if (status == MICA_OK)
        status = ids == NULL ? mica_matmul(pass->encoder, scaled, matrix->part[1], NULL, added)
                             : mica_matmul_experts(pass->encoder, scaled, matrix->part[1], ids, NULL, added);
    if (status == MICA_OK)
        status = mica_add(pass->encoder, y, added, sum);
    mica_buffer_release(low);
    mica_buffer_release(scaled);
    mica_buffer_release(added);
    return status;
}

/* The same for experts: `ids` as mica_matmul_experts has them; else NULL. */
static mica_status adapt_by(mica__pass *pass, mica_buffer *x, mica_buffer *ids, const mica_buffer *weight,
                            mica_buffer *y, mica_buffer **out)
{
    mica_buffer *sum = NULL;
    *out = y;
    for (uint32_t i = 0; i < pass->adapters->count; i++) {
        const mica__applied *applied = &pass->adapters->list[i];
        const mica__low_rank *matrix = mica__adapter_find(applied->adapter, weight);
        if (matrix == NULL)
            continue;
        if (sum == NULL) /* further ones are added in place */
            MICA__TRY(mica__pass_like(pass, y, &sum));
        MICA__TRY(add_low_rank(pass, x, ids, matrix, applied->factor[matrix - applied->adapter->matrix], *out,
                               sum));
        *out = sum;
    }
    return MICA_OK;
}

mica_status mica__adapt(mica__pass *pass, mica_buffer *x, const mica_buffer *weight, mica_buffer *y,
                        mica_buffer **out)
{
    return adapt_by(pass, x, NULL, weight, y, out);
}

/* y = x . w^T + bias, in place: y is no temporary. */
static mica_status linear_into(mica__pass *pass, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                               mica_buffer *y)
{
    mica_buffer *adapted = NULL;
    MICA__TRY(mica_matmul(pass->encoder, x, weight, NULL, y));
    MICA__TRY(mica__adapt(pass, x, weight, y, &adapted));
    if (adapted != y)
        MICA__TRY(mica_copy(pass->encoder, adapted, y));
    return bias == NULL ? MICA_OK : mica_add(pass->encoder, y, bias, y);
}

mica_status mica__linear(mica__pass *pass, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                         mica_buffer **out)
{
    mica_buffer_info info;
    mica_buffer *product = NULL;
    MICA__TRY(mica_buffer_get_info(weight, &info));
    MICA__TRY(mica__pass_rows(pass, info.shape[0], &product));
    MICA__TRY(mica_matmul(pass->encoder, x, weight, NULL, product));
    MICA__TRY(mica__adapt(pass, x, weight, product, &product));
    *out = product;
    if (bias == NULL)
        return MICA_OK;
    MICA__TRY(mica__pass_rows(pass, info.shape[0], out));
    return mica_add(pass->encoder, product, bias, *out);
}

mica_status mica__norm(mica__pass *pass, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                       mica_buffer *y)
{
    const float eps = pass->model->h.eps;
    return pass->model->family->layer_norm ? mica_layer_norm(pass->encoder, x, weight, bias, eps, y)
                                           : mica_rms_norm(pass->encoder, x, weight, eps, y);
}

mica_status mica__gelu(mica__pass *pass, mica_buffer *x, mica_buffer **out)
{
    MICA__TRY(mica__pass_like(pass, x, out));
    return pass->model->h.activation == MICA__GELU_ERF ? mica_gelu_erf(pass->encoder, x, *out)
                                                       : mica_gelu(pass->encoder, x, *out);
}

/* Columns [first, first + heads * size) of a buffer of rows, as [rows, heads, size]. */
static mica_status heads_of(mica__pass *pass, mica_buffer *rows, uint64_t columns, uint64_t first,
                            uint64_t heads, uint64_t size, mica_buffer **out)
{
    const uint64_t shape[3] = {pass->shape.rows, heads, size}, stride[3] = {columns * 4, size * 4, 4};
    *out = NULL;
    return mica__pass_keep(pass, mica_buffer_view(rows, MICA_DTYPE_F32, 3, shape, stride, first * 4, out),
                           out);
}

/* ---- attention ------------------------------------------------------------------------------------------ */

typedef struct decoder {
    mica__pass *pass;
    mica_buffer *hidden; /* the stream; counted */
} decoder;

/* Queries, keys and values of a layer, as heads. */
typedef struct heads {
    mica_buffer *q, *k, *v;
} heads;

/* Where the next state of the stream goes: in a pass of stages it is a buffer that lives through all of them. */
static mica_status next_hidden(decoder *d, mica_buffer **out)
{
    *out = d->hidden;
    return d->pass->once ? MICA_OK : mica__pass_rows(d->pass, d->pass->model->h.width, out);
}

static void set_hidden(decoder *d, mica_buffer *hidden)
{
    mica_buffer *old = d->hidden;
    d->hidden = mica_buffer_retain(hidden);
    mica_buffer_release(old);
}

static mica_status project_one(decoder *d, mica_buffer *x, const mica__layer *layer, mica__tensor_id weight,
                               mica__tensor_id bias, uint64_t count, uint64_t size, mica_buffer **out)
{
    mica_buffer *rows = NULL;
    MICA__TRY(mica__linear(d->pass, x, mica__of_layer(layer, weight), mica__of_layer(layer, bias), &rows));
    return heads_of(d->pass, rows, count * size, 0, count, size, out);
}

static mica_status project(decoder *d, mica_buffer *x, const mica__layer *layer, heads *out)
{
    mica__pass *pass = d->pass;
    const mica__hparams *h = &pass->model->h;
    mica_buffer *weight = mica__of_layer(layer, MICA__T_QKV), *rows = NULL;
    const uint64_t q = (uint64_t)h->heads * h->head_k, k = (uint64_t)h->kv_heads * h->head_k,
                   v = (uint64_t)h->kv_heads * h->head_v;
    if (weight != NULL) { /* one matrix for all three */
        MICA__TRY(mica__linear(pass, x, weight, mica__of_layer(layer, MICA__T_QKV_BIAS), &rows));
        MICA__TRY(heads_of(pass, rows, q + k + v, 0, h->heads, h->head_k, &out->q));
        MICA__TRY(heads_of(pass, rows, q + k + v, q, h->kv_heads, h->head_k, &out->k));
        return heads_of(pass, rows, q + k + v, q + k, h->kv_heads, h->head_v, &out->v);
    }
    MICA__TRY(project_one(d, x, layer, MICA__T_Q, MICA__T_Q_BIAS, h->heads, h->head_k, &out->q));
    MICA__TRY(project_one(d, x, layer, MICA__T_K, MICA__T_K_BIAS, h->kv_heads, h->head_k, &out->k));
    return project_one(d, x, layer, MICA__T_V, MICA__T_V_BIAS, h->kv_heads, h->head_v, &out->v);
}

/* Queries or keys, each head normed, where the family does so. */
static mica_status norm_heads(decoder *d, mica_buffer *weight, mica_buffer **x)
{
    mica_buffer *normed = NULL;
    if (weight == NULL)
        return MICA_OK;
    MICA__TRY(mica__pass_like(d->pass, *x, &normed));
    MICA__TRY(mica_rms_norm(d->pass->encoder, *x, weight, d->pass->model->h.eps, normed));
    *x = normed;
    return MICA_OK;
}

/* Each row as it is at its position. */
static mica_status rotate(decoder *d, const mica__layer *layer, mica_buffer *positions, mica_buffer **x)
{
    mica__pass *pass = d->pass;
    const mica_model *model = pass->model;
    const mica__rope *rope = &model->rope[layer->slides];
    const mica_rope_params params = {.mode = model->family->neox || model->h.rope_halves ? MICA_ROPE_NEOX
                                                                                         : MICA_ROPE_STANDARD,
                                     .rotary_dims = model->h.rotary,
                                     .theta = rope->theta,
                                     .position_scale = rope->position_scale,
                                     .attention_scale = rope->attention_scale};
    mica_buffer *factors = mica__rope_is_near(rope, pass->capacity) ? rope->near : rope->factors;
    mica_buffer *turned = NULL;
    if (model->family->no_rope)
        return MICA_OK;
    MICA__TRY(mica__pass_like(pass, *x, &turned));
    MICA__TRY(mica_rope(pass->encoder, *x, positions, factors, &params, turned));
    *x = turned;
    return MICA_OK;
}

/* For centre.c: the mean of the keys, each as it would be stored at its place, but for the first ones. */
static mica_status measure_keys(decoder *d, uint32_t index, mica_buffer *k)
{
    mica__pass *pass = d->pass;
    const mica_reduce_params mean = {.kind = MICA_REDUCE_MEAN, .axes = 1u << 2, .keep_dims = 1};
    mica_buffer *counted = NULL;
    if (pass->mean_key == NULL)
        return MICA_OK;
    MICA__TRY(rotate(d, &pass->model->layer[index], pass->places, &k));
    MICA__TRY(mica__pass_keep(
        pass, mica_buffer_slice(k, 0, FIRST_KEYS, pass->shape.rows - FIRST_KEYS, &counted), &counted));
    return mica_reduce(pass->encoder, counted, &mean, pass->mean_key[index]);
}

/* Keys as the cache has them. */
static mica_status centre_keys(decoder *d, uint32_t index, mica_buffer **k)
{
    mica__pass *pass = d->pass;
    mica_buffer *centred = NULL;
    if (pass->context->mean_key == NULL)
        return MICA_OK;
    MICA__TRY(mica__pass_like(pass, *k, &centred));
    MICA__TRY(mica_sub(pass->encoder, *k, pass->context->mean_key[index], centred));
    *k = centred;
    return MICA_OK;
}

/* What is new goes to the cache, and what is there is attended. */
static mica_status attend_cache(decoder *d, uint32_t index, const heads *b,
                                const mica_attention_params *params, mica_buffer *mixed)
{
    mica__pass *pass = d->pass;
    const mica_context *context = pass->context;
    mica_buffer *pages = context->table[pass->model->layer[index].slides], *k = context->k[index],
                *v = context->v[index];
    const mica_attention_operands operands = {.q = b->q,
                                              .k = k,
                                              .v = v,
                                              .positions = pass->positions,
                                              .lengths = pass->lengths,
                                              .sequences = pass->sequences,
                                              .pages = pages};
    mica_buffer *stored = b->k;
    MICA__TRY(centre_keys(d, index, &stored));
    MICA__TRY(mica_kv_write(pass->encoder, stored, pass->positions, pass->sequences, pages, NULL, k));
    MICA__TRY(mica_kv_write(pass->encoder, b->v, pass->positions, pass->sequences, pages, NULL, v));
    return mica_attention(pass->encoder, &operands, params, mixed);
}

/* What tokens see, as rows. */
static mica_status attend(decoder *d, uint32_t index, const heads *b, mica_buffer **out)
{
    mica__pass *pass = d->pass;
    const mica_model *model = pass->model;
    const mica__layer *layer = &model->layer[index];
    const uint64_t columns = (uint64_t)model->h.heads * model->h.head_v;
    mica_buffer *mixed = NULL;
    const float scale = model->h.attention_scale;
    const mica_attention_params params = {.scale =
                                              model->h.scale_by_layer ? scale / (float)(index + 1) : scale,
                                          .softcap = model->h.attention_softcap,
                                          .window = layer->slides ? model->h.window : 0};
    MICA__TRY(mica__pass_rows(pass, columns, out));
    MICA__TRY(heads_of(pass, *out, columns, 0, model->h.heads, model->h.head_v, &mixed));
    return pass->texts != 0 ? mica__attend_texts(pass, b->q, b->k, b->v, &params, mixed)
                            : attend_cache(d, index, b, &params, mixed);
}

/* What a part of a layer gives, normed once more where the family does so, joins the stream. */
static mica_status join(decoder *d, mica_buffer *added, mica_buffer *post_norm)
{
    mica__pass *pass = d->pass;
    mica_buffer *normed = added, *sum = NULL;
    if (post_norm != NULL) {
        MICA__TRY(mica__pass_like(pass, added, &normed));
        MICA__TRY(mica__norm(pass, added, post_norm, NULL, normed));
    }
    MICA__TRY(next_hidden(d, &sum));
    MICA__TRY(mica_add(pass->encoder, d->hidden, normed, sum));
    set_hidden(d, sum);
    return MICA_OK;
}

static mica_status norm_hidden(decoder *d, const mica__layer *layer, mica__tensor_id weight,
                               mica__tensor_id bias, mica_buffer **out)
{
    MICA__TRY(mica__pass_rows(d->pass, d->pass->model->h.width, out));
    return mica__norm(d->pass, d->hidden, mica__of_layer(layer, weight), mica__of_layer(layer, bias), *out);
}

static mica_status attention_part(decoder *d, uint32_t index)
{
    mica__pass *pass = d->pass;
    const mica__layer *layer = &pass->model->layer[index];
    mica_buffer *normed = NULL, *mixed = NULL, *added = NULL;
    heads b = {0};
    MICA__TRY(norm_hidden(d, layer, MICA__T_ATTENTION_NORM, MICA__T_ATTENTION_NORM_BIAS, &normed));
    MICA__TRY(project(d, normed, layer, &b));
    MICA__TRY(norm_heads(d, mica__of_layer(layer, MICA__T_Q_NORM), &b.q));
    MICA__TRY(norm_heads(d, mica__of_layer(layer, MICA__T_K_NORM), &b.k));
    MICA__TRY(measure_keys(d, index, b.k));
    MICA__TRY(rotate(d, layer, pass->positions, &b.q));
    MICA__TRY(rotate(d, layer, pass->positions, &b.k));
    MICA__TRY(attend(d, index, &b, &mixed));
    MICA__TRY(mica__linear(pass, mixed, mica__of_layer(layer, MICA__T_O),
                           mica__of_layer(layer, MICA__T_O_BIAS), &added));
    return join(d, added, mica__of_layer(layer, MICA__T_ATTENTION_POST_NORM));
}

/* ---- feed forward --------------------------------------------------------------------------------------- */

static mica_status activate(const decoder *d, mica_buffer *gate, mica_buffer *up, mica_buffer **out)
{
    mica__pass *pass = d->pass;
    mica_buffer *act = NULL;
    MICA__TRY(mica__pass_like(pass, up, out));
    switch ((mica__activation)pass->model->h.activation) {
    case MICA__SILU: return mica_silu_mul(pass->encoder, gate, up, *out);
    case MICA__GELU: return mica_gelu_mul(pass->encoder, gate, up, *out);
    case MICA__GELU_ERF: break;
    }
    MICA__TRY(mica__gelu(pass, gate, &act));
    return mica_mul(pass->encoder, act, up, *out);
}

/* Gate and up in one matrix, the gate first. */
static mica_status split(decoder *d, mica_buffer *both, uint64_t ffn, mica_buffer **gate, mica_buffer **up)
{
    mica__pass *pass = d->pass;
    MICA__TRY(mica__pass_keep(pass, mica_buffer_slice(both, 1, 0, ffn, gate), gate));
    return mica__pass_keep(pass, mica_buffer_slice(both, 1, ffn, ffn, up), up);
}

static mica_status dense_part(decoder *d, const mica__layer *layer, mica_buffer *x, mica_buffer **out)
{
    mica__pass *pass = d->pass;
    mica_buffer *gate_weight = mica__of_layer(layer, MICA__T_GATE),
                *up_weight = mica__of_layer(layer, MICA__T_UP),
                *up_bias = mica__of_layer(layer, MICA__T_UP_BIAS);
    mica_buffer *gate = NULL, *up = NULL, *inner = NULL;
    mica_buffer_info down;
    MICA__TRY(mica_buffer_get_info(mica__of_layer(layer, MICA__T_DOWN), &down));
    if (gate_weight != NULL) {
        MICA__TRY(mica__linear(pass, x, gate_weight, mica__of_layer(layer, MICA__T_GATE_BIAS), &gate));
        MICA__TRY(mica__linear(pass, x, up_weight, up_bias, &up));
        MICA__TRY(activate(d, gate, up, &inner));
    } else if (pass->model->family->ungated) {
        MICA__TRY(mica__linear(pass, x, up_weight, up_bias, &up));
        MICA__TRY(mica__gelu(pass, up, &inner));
    } else {
        mica_buffer *both = NULL;
        MICA__TRY(mica__linear(pass, x, up_weight, NULL, &both));
        MICA__TRY(split(d, both, down.shape[1], &gate, &up));
        MICA__TRY(activate(d, gate, up, &inner));
    }
    return mica__linear(pass, inner, mica__of_layer(layer, MICA__T_DOWN),
                        mica__of_layer(layer, MICA__T_DOWN_BIAS), out);
}

/* y [rows, slots, columns] of the experts that `ids` name, with what adapters add. */
static mica_status by_experts(mica__pass *pass, mica_buffer *x, mica_buffer *weight, mica_buffer *ids,
                              const uint64_t *shape, mica_buffer **out)
{
    mica_buffer *product = NULL;
    MICA__TRY(mica__pass_value(pass, MICA_DTYPE_F32, 3, shape, &product));
    MICA__TRY(mica_matmul_experts(pass->encoder, x, weight, ids, NULL, product));
    return adapt_by(pass, x, ids, weight, product, out);
}

static mica_status routed_part(decoder *d, const mica__layer *layer, mica_buffer *x, mica_buffer **result)
{
    mica__pass *pass = d->pass;
    mica_encoder *encoder = pass->encoder;
    const mica__hparams *h = &pass->model->h;
    const uint64_t rows = pass->shape.rows, slots = h->experts_used;
    const uint64_t picks[2] = {rows, slots}, wide[3] = {rows, slots, h->expert_ffn},
                   narrow[3] = {rows, slots, h->width};
    const mica_route_params params = {
        .softmax_first = 1, .normalise = h->expert_normalise, .scale = h->expert_scale};
    mica_buffer *router, *ids, *weights, *gate, *up, *inner, *out;
    MICA__TRY(mica__linear(pass, x, mica__of_layer(layer, MICA__T_ROUTER), NULL, &router));
    MICA__TRY(mica__pass_value(pass, MICA_DTYPE_U32, 2, picks, &ids));
    MICA__TRY(mica__pass_value(pass, MICA_DTYPE_F32, 2, picks, &weights));
    MICA__TRY(mica_route(encoder, router, NULL, NULL, &params, ids, weights));
    MICA__TRY(by_experts(pass, x, mica__of_layer(layer, MICA__T_EXPERT_GATE), ids, wide, &gate));
    MICA__TRY(by_experts(pass, x, mica__of_layer(layer, MICA__T_EXPERT_UP), ids, wide, &up));
    MICA__TRY(activate(d, gate, up, &inner));
    MICA__TRY(by_experts(pass, inner, mica__of_layer(layer, MICA__T_EXPERT_DOWN), ids, narrow, &out));
    MICA__TRY(mica__pass_rows(pass, h->width, result));
    return mica_expert_sum(encoder, out, weights, NULL, NULL, NULL, *result);
}

static mica_status feed_forward_part(decoder *d, uint32_t index)
{
    mica__pass *pass = d->pass;
    const mica__layer *layer = &pass->model->layer[index];
    mica_buffer *normed = NULL, *added = NULL;
    MICA__TRY(norm_hidden(d, layer, MICA__T_FFN_NORM, MICA__T_FFN_NORM_BIAS, &normed));
    MICA__TRY(mica__of_layer(layer, MICA__T_ROUTER) != NULL ? routed_part(d, layer, normed, &added)
                                                            : dense_part(d, layer, normed, &added));
    return join(d, added, mica__of_layer(layer, MICA__T_FFN_POST_NORM));
}

/* ---- both ends ------------------------------------------------------------------------------------------ */

/* The stream begins: in a pass of stages with the buffer that it stays in. */
static mica_status begin_stream(decoder *d)
{
    const mica__pass *pass = d->pass;
    const mica_buffer_desc desc = {.dtype = MICA_DTYPE_F32,
                                   .ndim = 2,
                                   .shape = {pass->shape.rows, pass->model->h.width},
                                   .flags = MICA_BUFFER_UNINITIALIZED};
    return pass->once ? mica_buffer_create(pass->model->device, &desc, &d->hidden) : MICA_OK;
}

static mica_status embed(decoder *d)
{
    mica__pass *pass = d->pass;
    const mica_model *model = pass->model;
    mica_buffer *tokens = NULL, *scaled = NULL, *positions = NULL, *sum = NULL;
    MICA__TRY(next_hidden(d, &tokens));
    MICA__TRY(mica_embedding(pass->encoder, model->tensor[MICA__T_TOKEN_EMBEDDING], pass->tokens, tokens));
    set_hidden(d, tokens);
    if (model->embedding_scale != NULL) {
        MICA__TRY(next_hidden(d, &scaled));
        MICA__TRY(mica_mul(pass->encoder, d->hidden, model->embedding_scale, scaled));
        set_hidden(d, scaled);
    }
    if (model->tensor[MICA__T_POSITION_EMBEDDING] == NULL)
        return MICA_OK;
    MICA__TRY(mica__pass_rows(pass, model->h.width, &positions));
    MICA__TRY(
        mica_embedding(pass->encoder, model->tensor[MICA__T_POSITION_EMBEDDING], pass->positions, positions));
    MICA__TRY(next_hidden(d, &sum));
    MICA__TRY(mica_add(pass->encoder, d->hidden, positions, sum));
    set_hidden(d, sum);
    return MICA_OK;
}

/* Only the rows that are wanted go through the head, which is the largest matrix of small models. */
static mica_status give_logits(decoder *d)
{
    mica__pass *pass = d->pass;
    const mica_model *model = pass->model;
    const uint64_t shape[2] = {pass->shape.outputs, model->h.width};
    mica_buffer *head = model->tensor[MICA__T_OUTPUT], *chosen = d->hidden, *normed = NULL;
    if (pass->shape.outputs == 0)
        return MICA_OK;
    if (pass->shape.outputs != pass->shape.rows) {
        MICA__TRY(mica__pass_value(pass, MICA_DTYPE_F32, 2, shape, &chosen));
        MICA__TRY(mica_embedding(pass->encoder, d->hidden, pass->wanted, chosen));
    }
    MICA__TRY(mica__pass_value(pass, MICA_DTYPE_F32, 2, shape, &normed));
    MICA__TRY(mica__norm(pass, chosen, model->tensor[MICA__T_OUTPUT_NORM],
                         model->tensor[MICA__T_OUTPUT_NORM_BIAS], normed));
    MICA__TRY(linear_into(pass, normed, head != NULL ? head : model->tensor[MICA__T_TOKEN_EMBEDDING],
                          model->tensor[MICA__T_OUTPUT_BIAS], pass->result));
    if (model->h.final_softcap > 0)
        return mica_softcap(pass->encoder, pass->result, model->h.final_softcap, pass->result);
    return MICA_OK;
}

static mica_status forward(decoder *d)
{
    mica__pass *pass = d->pass;
    const mica_model *model = pass->model;
    MICA__TRY(begin_stream(d));
    MICA__TRY(embed(d));
    for (uint32_t i = 0; i < model->h.layers; i++) {
        MICA__TRY(mica__spend(MICA__LAYER_STEPS));
        MICA__TRY(attention_part(d, i));
        MICA__TRY(feed_forward_part(d, i));
        mica__pass_drop(pass);
        if (i % STAGE_LAYERS == 0)
            MICA__TRY(mica__pass_stage(pass));
    }
    if (pass->shape.gives == MICA__GIVES_STATES)
        return mica__norm(pass, d->hidden, model->tensor[MICA__T_OUTPUT_NORM],
                          model->tensor[MICA__T_OUTPUT_NORM_BIAS], pass->result);
    return give_logits(d);
}

mica_status mica__decoder_forward(mica__pass *pass)
{
    decoder d = {.pass = pass};
    const mica_status status = forward(&d);
    mica_buffer_release(d.hidden);
    return status;
}
