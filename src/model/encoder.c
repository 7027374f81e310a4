/* encoder.c - the forward function of BERT-style encoders: all tokens of one text see each other, nothing is kept. */
#include "model/context.h"

typedef struct encoder {
    mica__pass *pass;
    mica_buffer *hidden, *added, *inner;
    mica_buffer *flat[4], *heads[4]; /* q, k, v, mixed */
    mica_buffer *length;             /* [1] */
} encoder;

static mica_status make_buffers(encoder *e)
{
    static const uint32_t which[4] = {MICA__B_Q, MICA__B_K, MICA__B_V, MICA__B_MIXED};
    mica__pass *pass = e->pass;
    const mica__hparams *h = &pass->model->h;
    const uint64_t wide[2] = {pass->shape.rows, h->width}, inner[2] = {pass->shape.rows, h->ffn};
    MICA__TRY(mica__pass_buffer(pass, MICA__B_HIDDEN, MICA_DTYPE_F32, 2, wide, &e->hidden));
    MICA__TRY(mica__pass_buffer(pass, MICA__B_ADDED, MICA_DTYPE_F32, 2, wide, &e->added));
    MICA__TRY(mica__pass_buffer(pass, MICA__B_UP, MICA_DTYPE_F32, 2, inner, &e->inner));
    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t heads = i == 1 || i == 2 ? h->kv_heads : h->heads,
                       size = i < 2 ? h->head_k : h->head_v;
        const uint64_t shape[3] = {pass->shape.rows, heads, size}, flat[2] = {pass->shape.rows, heads * size};
        MICA__TRY(mica__pass_buffer(pass, which[i], MICA_DTYPE_F32, 2, flat, &e->flat[i]));
        MICA__TRY(
            mica__pass_keep(pass, mica_buffer_reshape(e->flat[i], 3, shape, &e->heads[i]), &e->heads[i]));
    }
    return mica__pass_keep(pass, mica_buffer_slice(pass->lengths, 0, 0, 1, &e->length), &e->length);
}

static mica_status embed(encoder *e)
{
    mica__pass *pass = e->pass;
    mica_buffer *const *t = pass->model->tensor;
    mica_buffer *type = NULL;
    MICA__TRY(mica_embedding(pass->encoder, t[MICA__T_TOKEN_EMBEDDING], pass->tokens, e->hidden));
    MICA__TRY(mica_embedding(pass->encoder, t[MICA__T_POSITION_EMBEDDING], pass->positions, e->added));
    MICA__TRY(mica_add(pass->encoder, e->hidden, e->added, e->hidden));
    if (t[MICA__T_TYPE_EMBEDDING] != NULL) { /* all tokens are of the first type: one text */
        MICA__TRY(mica__pass_keep(pass, mica_buffer_slice(t[MICA__T_TYPE_EMBEDDING], 0, 0, 1, &type), &type));
        MICA__TRY(mica_add(pass->encoder, e->hidden, type, e->hidden));
    }
    if (t[MICA__T_EMBEDDING_NORM] == NULL)
        return MICA_OK;
    return mica__norm(pass, e->hidden, t[MICA__T_EMBEDDING_NORM], t[MICA__T_EMBEDDING_NORM_BIAS], e->hidden);
}

static mica_status attention_part(encoder *e, const mica__layer *layer)
{
    static const uint32_t weight[3] = {MICA__T_Q, MICA__T_K, MICA__T_V};
    static const uint32_t bias[3] = {MICA__T_Q_BIAS, MICA__T_K_BIAS, MICA__T_V_BIAS};
    mica__pass *pass = e->pass;
    const mica_attention_params params = {.scale = pass->model->h.attention_scale, .bidirectional = 1};
    const mica_attention_operands operands = {.q = e->heads[0],
                                              .k = e->heads[1],
                                              .v = e->heads[2],
                                              .positions = pass->positions,
                                              .lengths = e->length};
    for (uint32_t i = 0; i < 3; i++)
        MICA__TRY(mica__linear(pass, e->hidden, mica__of_layer(layer, (mica__tensor_id)weight[i]),
                               mica__of_layer(layer, (mica__tensor_id)bias[i]), e->flat[i]));
    MICA__TRY(mica_attention(pass->encoder, &operands, &params, e->heads[3]));
    MICA__TRY(mica__linear(pass, e->flat[3], mica__of_layer(layer, MICA__T_O),
                           mica__of_layer(layer, MICA__T_O_BIAS), e->added));
    MICA__TRY(mica_add(pass->encoder, e->hidden, e->added, e->hidden));
    return mica__norm(pass, e->hidden, mica__of_layer(layer, MICA__T_ATTENTION_OUTPUT_NORM),
                      mica__of_layer(layer, MICA__T_ATTENTION_OUTPUT_NORM_BIAS), e->hidden);
}

static mica_status feed_forward_part(encoder *e, const mica__layer *layer)
{
    mica__pass *pass = e->pass;
    MICA__TRY(mica__linear(pass, e->hidden, mica__of_layer(layer, MICA__T_UP),
                           mica__of_layer(layer, MICA__T_UP_BIAS), e->inner));
    MICA__TRY(mica__gelu(pass, e->inner));
    MICA__TRY(mica__linear(pass, e->inner, mica__of_layer(layer, MICA__T_DOWN),
                           mica__of_layer(layer, MICA__T_DOWN_BIAS), e->added));
    MICA__TRY(mica_add(pass->encoder, e->hidden, e->added, e->hidden));
    return mica__norm(pass, e->hidden, mica__of_layer(layer, MICA__T_LAYER_OUTPUT_NORM),
                      mica__of_layer(layer, MICA__T_LAYER_OUTPUT_NORM_BIAS), e->hidden);
}

mica_status mica__encoder_forward(mica__pass *pass)
{
    const mica_model *model = pass->model;
    encoder e = {.pass = pass};
    MICA__TRY(make_buffers(&e));
    MICA__TRY(embed(&e));
    for (uint32_t i = 0; i < model->h.layers; i++) {
        MICA__TRY(mica__spend(MICA__LAYER_STEPS));
        MICA__TRY(attention_part(&e, &model->layer[i]));
        MICA__TRY(feed_forward_part(&e, &model->layer[i]));
    }
    return mica_copy(pass->encoder, e.hidden, pass->result);
}
