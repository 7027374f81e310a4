/*
 * decoder.c - the forward function of every family that writes text: norms, attention over the cache, a feed-forward part
 * that may be routed to experts. What differs between families is in their rows (families.c) and in which tensors there are.
 */
#include <string.h>

#include "model/context.h"

/* Of a stage, but the first, which has one: the device is not to wait. Fusions do not reach from stage to stage. */
#define STAGE_LAYERS 4u

mica_status mica__linear(mica__pass *pass, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                         mica_buffer *y)
{
    MICA__TRY(mica_matmul(pass->encoder, x, weight, NULL, y));
    return bias == NULL ? MICA_OK : mica_add(pass->encoder, y, bias, y);
}

mica_status mica__norm(mica__pass *pass, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                       mica_buffer *y)
{
    const float eps = pass->model->h.eps;
    return pass->model->family->layer_norm ? mica_layer_norm(pass->encoder, x, weight, bias, eps, y)
                                           : mica_rms_norm(pass->encoder, x, weight, eps, y);
}

mica_status mica__gelu(mica__pass *pass, mica_buffer *x)
{
    return pass->model->h.activation == MICA__GELU_ERF ? mica_gelu_erf(pass->encoder, x, x)
                                                       : mica_gelu(pass->encoder, x, x);
}

static mica_status flat(mica__pass *pass, uint32_t which, uint64_t columns, mica_buffer **out)
{
    const uint64_t shape[2] = {pass->shape.rows, columns};
    return mica__pass_buffer(pass, which, MICA_DTYPE_F32, 2, shape, out);
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

/* Queries, keys and values of a layer: flat where matmuls write them, as heads where the rest reads them. The views are
 * made for the first layer and serve all. */
typedef struct heads {
    mica_buffer *qkv, *q_flat, *k_flat, *v_flat, *mixed_flat; /* qkv: one matrix for all three, else NULL */
    mica_buffer *q, *k, *v, *mixed;
} heads;

typedef struct decoder {
    mica__pass *pass;
    heads heads;
    mica_buffer *hidden, *normed, *added;
    mica_buffer *gate_up, *gate_half, *up_half; /* of one matrix for both */
} decoder;

static mica_status make_heads(decoder *d)
{
    mica__pass *pass = d->pass;
    const mica__hparams *h = &pass->model->h;
    const uint64_t q = (uint64_t)h->heads * h->head_k, k = (uint64_t)h->kv_heads * h->head_k,
                   v = (uint64_t)h->kv_heads * h->head_v, mixed = (uint64_t)h->heads * h->head_v;
    heads *b = &d->heads;
    if (mica__of_layer(&pass->model->layer[0], MICA__T_QKV) != NULL) {
        MICA__TRY(flat(pass, MICA__B_QKV, q + k + v, &b->qkv));
        MICA__TRY(heads_of(pass, b->qkv, q + k + v, 0, h->heads, h->head_k, &b->q));
        MICA__TRY(heads_of(pass, b->qkv, q + k + v, q, h->kv_heads, h->head_k, &b->k));
        MICA__TRY(heads_of(pass, b->qkv, q + k + v, q + k, h->kv_heads, h->head_v, &b->v));
    } else {
        MICA__TRY(flat(pass, MICA__B_Q, q, &b->q_flat));
        MICA__TRY(flat(pass, MICA__B_K, k, &b->k_flat));
        MICA__TRY(flat(pass, MICA__B_V, v, &b->v_flat));
        MICA__TRY(heads_of(pass, b->q_flat, q, 0, h->heads, h->head_k, &b->q));
        MICA__TRY(heads_of(pass, b->k_flat, k, 0, h->kv_heads, h->head_k, &b->k));
        MICA__TRY(heads_of(pass, b->v_flat, v, 0, h->kv_heads, h->head_v, &b->v));
    }
    MICA__TRY(flat(pass, MICA__B_MIXED, mixed, &b->mixed_flat));
    return heads_of(pass, b->mixed_flat, mixed, 0, h->heads, h->head_v, &b->mixed);
}

static mica_status project(decoder *d, const mica__layer *layer)
{
    mica__pass *pass = d->pass;
    const heads *b = &d->heads;
    const float eps = pass->model->h.eps;
    mica_buffer *q_norm = mica__of_layer(layer, MICA__T_Q_NORM),
                *k_norm = mica__of_layer(layer, MICA__T_K_NORM);
    if (b->qkv != NULL) {
        MICA__TRY(mica__linear(pass, d->normed, mica__of_layer(layer, MICA__T_QKV),
                               mica__of_layer(layer, MICA__T_QKV_BIAS), b->qkv));
    } else {
        MICA__TRY(mica__linear(pass, d->normed, mica__of_layer(layer, MICA__T_Q),
                               mica__of_layer(layer, MICA__T_Q_BIAS), b->q_flat));
        MICA__TRY(mica__linear(pass, d->normed, mica__of_layer(layer, MICA__T_K),
                               mica__of_layer(layer, MICA__T_K_BIAS), b->k_flat));
        MICA__TRY(mica__linear(pass, d->normed, mica__of_layer(layer, MICA__T_V),
                               mica__of_layer(layer, MICA__T_V_BIAS), b->v_flat));
    }
    if (q_norm != NULL)
        MICA__TRY(mica_rms_norm(pass->encoder, b->q, q_norm, eps, b->q));
    return k_norm == NULL ? MICA_OK : mica_rms_norm(pass->encoder, b->k, k_norm, eps, b->k);
}

static mica_status turn(decoder *d, const mica__layer *layer)
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
    mica_buffer *factors = mica__rope_is_near(rope, pass->context->capacity) ? rope->near : rope->factors;
    if (model->family->no_rope)
        return MICA_OK;
    MICA__TRY(mica_rope(pass->encoder, d->heads.q, pass->positions, factors, &params, d->heads.q));
    return mica_rope(pass->encoder, d->heads.k, pass->positions, factors, &params, d->heads.k);
}

static mica_status attend(decoder *d, uint32_t index)
{
    mica__pass *pass = d->pass;
    const mica_context *context = pass->context;
    const mica_model *model = pass->model;
    const mica__layer *layer = &model->layer[index];
    mica_buffer *pages = context->table[layer->slides], *k = context->k[index], *v = context->v[index];
    const float scale = model->h.attention_scale;
    const mica_attention_params params = {.scale =
                                              model->h.scale_by_layer ? scale / (float)(index + 1) : scale,
                                          .softcap = model->h.attention_softcap,
                                          .window = layer->slides ? model->h.window : 0};
    const mica_attention_operands operands = {.q = d->heads.q,
                                              .k = k,
                                              .v = v,
                                              .positions = pass->positions,
                                              .lengths = pass->lengths,
                                              .sequences = pass->sequences,
                                              .pages = pages};
    MICA__TRY(mica_kv_write(pass->encoder, d->heads.k, pass->positions, pass->sequences, pages, NULL, k));
    MICA__TRY(mica_kv_write(pass->encoder, d->heads.v, pass->positions, pass->sequences, pages, NULL, v));
    return mica_attention(pass->encoder, &operands, &params, d->heads.mixed);
}

/* What a part of a layer gives, normed once more where the family does so, joins the stream. */
static mica_status join(decoder *d, mica_buffer *post_norm)
{
    mica__pass *pass = d->pass;
    if (post_norm != NULL)
        MICA__TRY(mica__norm(pass, d->added, post_norm, NULL, d->added));
    return mica_add(pass->encoder, d->hidden, d->added, d->hidden);
}

static mica_status attention_part(decoder *d, uint32_t index)
{
    mica__pass *pass = d->pass;
    const mica__layer *layer = &pass->model->layer[index];
    MICA__TRY(mica__norm(pass, d->hidden, mica__of_layer(layer, MICA__T_ATTENTION_NORM),
                         mica__of_layer(layer, MICA__T_ATTENTION_NORM_BIAS), d->normed));
    MICA__TRY(project(d, layer));
    MICA__TRY(turn(d, layer));
    MICA__TRY(attend(d, index));
    MICA__TRY(mica__linear(pass, d->heads.mixed_flat, mica__of_layer(layer, MICA__T_O),
                           mica__of_layer(layer, MICA__T_O_BIAS), d->added));
    return join(d, mica__of_layer(layer, MICA__T_ATTENTION_POST_NORM));
}

/* ---- feed forward --------------------------------------------------------------------------------------- */

static mica_status activate(const decoder *d, mica_buffer *gate, mica_buffer *up, mica_buffer *y)
{
    mica_encoder *encoder = d->pass->encoder;
    switch ((mica__activation)d->pass->model->h.activation) {
    case MICA__SILU: return mica_silu_mul(encoder, gate, up, y);
    case MICA__GELU: return mica_gelu_mul(encoder, gate, up, y);
    case MICA__GELU_ERF: break;
    }
    MICA__TRY(mica_gelu_erf(encoder, gate, y));
    return mica_mul(encoder, y, up, y);
}

/* Gate and up in one matrix, the gate first. */
static mica_status make_halves(decoder *d, uint64_t ffn)
{
    mica__pass *pass = d->pass;
    if (d->gate_half != NULL)
        return MICA_OK;
    MICA__TRY(flat(pass, MICA__B_GATE_UP, 2 * ffn, &d->gate_up));
    MICA__TRY(mica__pass_keep(pass, mica_buffer_slice(d->gate_up, 1, 0, ffn, &d->gate_half), &d->gate_half));
    return mica__pass_keep(pass, mica_buffer_slice(d->gate_up, 1, ffn, ffn, &d->up_half), &d->up_half);
}

static mica_status dense_part(decoder *d, const mica__layer *layer)
{
    mica__pass *pass = d->pass;
    mica_buffer *gate_weight = mica__of_layer(layer, MICA__T_GATE),
                *up_weight = mica__of_layer(layer, MICA__T_UP);
    mica_buffer *gate, *up;
    mica_buffer_info down;
    MICA__TRY(mica_buffer_get_info(mica__of_layer(layer, MICA__T_DOWN), &down));
    const uint64_t ffn = down.shape[1];
    MICA__TRY(flat(pass, MICA__B_GATE, ffn, &gate));
    if (gate_weight != NULL) {
        MICA__TRY(flat(pass, MICA__B_UP, ffn, &up));
        MICA__TRY(mica__linear(pass, d->normed, gate_weight, mica__of_layer(layer, MICA__T_GATE_BIAS), gate));
        MICA__TRY(mica__linear(pass, d->normed, up_weight, mica__of_layer(layer, MICA__T_UP_BIAS), up));
        MICA__TRY(activate(d, gate, up, gate));
    } else if (pass->model->family->ungated) {
        MICA__TRY(mica__linear(pass, d->normed, up_weight, mica__of_layer(layer, MICA__T_UP_BIAS), gate));
        MICA__TRY(mica__gelu(pass, gate));
    } else {
        MICA__TRY(make_halves(d, ffn));
        MICA__TRY(mica__linear(pass, d->normed, up_weight, NULL, d->gate_up));
        MICA__TRY(activate(d, d->gate_half, d->up_half, gate));
    }
    return mica__linear(pass, gate, mica__of_layer(layer, MICA__T_DOWN),
                        mica__of_layer(layer, MICA__T_DOWN_BIAS), d->added);
}

static mica_status routed_part(decoder *d, const mica__layer *layer)
{
    mica__pass *pass = d->pass;
    mica_encoder *encoder = pass->encoder;
    const mica__hparams *h = &pass->model->h;
    const uint64_t rows = pass->shape.rows, slots = h->experts_used;
    const uint64_t picks[2] = {rows, slots}, inner[3] = {rows, slots, h->expert_ffn},
                   outer[3] = {rows, slots, h->width};
    const mica_route_params params = {
        .softmax_first = 1, .normalise = h->expert_normalise, .scale = h->expert_scale};
    mica_buffer *router, *ids, *weights, *gate, *up, *out;
    MICA__TRY(flat(pass, MICA__B_ROUTER, h->experts, &router));
    MICA__TRY(mica__pass_buffer(pass, MICA__B_EXPERTS, MICA_DTYPE_U32, 2, picks, &ids));
    MICA__TRY(mica__pass_buffer(pass, MICA__B_EXPERT_WEIGHTS, MICA_DTYPE_F32, 2, picks, &weights));
    MICA__TRY(mica__pass_buffer(pass, MICA__B_EXPERT_GATE, MICA_DTYPE_F32, 3, inner, &gate));
    MICA__TRY(mica__pass_buffer(pass, MICA__B_EXPERT_UP, MICA_DTYPE_F32, 3, inner, &up));
    MICA__TRY(mica__pass_buffer(pass, MICA__B_EXPERT_OUT, MICA_DTYPE_F32, 3, outer, &out));
    MICA__TRY(mica_matmul(encoder, d->normed, mica__of_layer(layer, MICA__T_ROUTER), NULL, router));
    MICA__TRY(mica_route(encoder, router, &params, ids, weights));
    MICA__TRY(
        mica_matmul_experts(encoder, d->normed, mica__of_layer(layer, MICA__T_EXPERT_GATE), ids, NULL, gate));
    MICA__TRY(
        mica_matmul_experts(encoder, d->normed, mica__of_layer(layer, MICA__T_EXPERT_UP), ids, NULL, up));
    MICA__TRY(activate(d, gate, up, gate));
    MICA__TRY(mica_matmul_experts(encoder, gate, mica__of_layer(layer, MICA__T_EXPERT_DOWN), ids, NULL, out));
    return mica_expert_sum(encoder, out, weights, d->added);
}

static mica_status feed_forward_part(decoder *d, uint32_t index)
{
    mica__pass *pass = d->pass;
    const mica__layer *layer = &pass->model->layer[index];
    MICA__TRY(mica__norm(pass, d->hidden, mica__of_layer(layer, MICA__T_FFN_NORM),
                         mica__of_layer(layer, MICA__T_FFN_NORM_BIAS), d->normed));
    MICA__TRY(mica__of_layer(layer, MICA__T_ROUTER) != NULL ? routed_part(d, layer) : dense_part(d, layer));
    return join(d, mica__of_layer(layer, MICA__T_FFN_POST_NORM));
}

/* ---- both ends ------------------------------------------------------------------------------------------ */

static mica_status embed(decoder *d)
{
    mica__pass *pass = d->pass;
    const mica_model *model = pass->model;
    MICA__TRY(mica_embedding(pass->encoder, model->tensor[MICA__T_TOKEN_EMBEDDING], pass->tokens, d->hidden));
    if (model->embedding_scale != NULL)
        MICA__TRY(mica_mul(pass->encoder, d->hidden, model->embedding_scale, d->hidden));
    if (model->tensor[MICA__T_POSITION_EMBEDDING] == NULL)
        return MICA_OK;
    MICA__TRY(
        mica_embedding(pass->encoder, model->tensor[MICA__T_POSITION_EMBEDDING], pass->positions, d->normed));
    return mica_add(pass->encoder, d->hidden, d->normed, d->hidden);
}

/* Only the rows that are wanted go through the head, which is the largest matrix of small models. */
static mica_status give_logits(decoder *d)
{
    mica__pass *pass = d->pass;
    const mica_model *model = pass->model;
    const uint64_t shape[2] = {pass->shape.outputs, model->h.width};
    mica_buffer *head = model->tensor[MICA__T_OUTPUT], *chosen = d->hidden, *normed = d->normed;
    if (pass->shape.outputs == 0)
        return MICA_OK;
    if (pass->shape.outputs != pass->shape.rows) {
        MICA__TRY(mica__pass_buffer(pass, MICA__B_CHOSEN, MICA_DTYPE_F32, 2, shape, &chosen));
        MICA__TRY(mica__pass_buffer(pass, MICA__B_CHOSEN_NORMED, MICA_DTYPE_F32, 2, shape, &normed));
        MICA__TRY(mica_embedding(pass->encoder, d->hidden, pass->wanted, chosen));
    }
    MICA__TRY(mica__norm(pass, chosen, model->tensor[MICA__T_OUTPUT_NORM],
                         model->tensor[MICA__T_OUTPUT_NORM_BIAS], normed));
    MICA__TRY(mica__linear(pass, normed, head != NULL ? head : model->tensor[MICA__T_TOKEN_EMBEDDING],
                           model->tensor[MICA__T_OUTPUT_BIAS], pass->result));
    if (model->h.final_softcap > 0)
        return mica_softcap(pass->encoder, pass->result, model->h.final_softcap, pass->result);
    return MICA_OK;
}

mica_status mica__decoder_forward(mica__pass *pass)
{
    const mica_model *model = pass->model;
    decoder d = {.pass = pass};
    MICA__TRY(flat(pass, MICA__B_HIDDEN, model->h.width, &d.hidden));
    MICA__TRY(flat(pass, MICA__B_NORMED, model->h.width, &d.normed));
    MICA__TRY(flat(pass, MICA__B_ADDED, model->h.width, &d.added));
    MICA__TRY(make_heads(&d));
    MICA__TRY(embed(&d));
    for (uint32_t i = 0; i < model->h.layers; i++) {
        MICA__TRY(mica__spend(MICA__LAYER_STEPS));
        MICA__TRY(attention_part(&d, i));
        MICA__TRY(feed_forward_part(&d, i));
        if (i % STAGE_LAYERS == 0)
            MICA__TRY(mica__pass_stage(pass));
    }
    if (pass->shape.gives == MICA__GIVES_STATES)
        return mica__norm(pass, d.hidden, model->tensor[MICA__T_OUTPUT_NORM],
                          model->tensor[MICA__T_OUTPUT_NORM_BIAS], pass->result);
    return give_logits(&d);
}
