/* encoder.c - the forward function of BERT-style encoders: all tokens of one text see each other, nothing is kept. */
#include "model/context.h"

typedef struct encoder {
    mica__pass *pass;
    mica_buffer *hidden; /* the stream; counted */
} encoder;

static void set_hidden(encoder *e, mica_buffer *hidden)
{
    mica_buffer *old = e->hidden;
    e->hidden = mica_buffer_retain(hidden);
    mica_buffer_release(old);
}

static mica_status add(encoder *e, mica_buffer *added)
{
    mica_buffer *sum = NULL;
    MICA__TRY(mica__pass_like(e->pass, e->hidden, &sum));
    MICA__TRY(mica_add(e->pass->encoder, e->hidden, added, sum));
    set_hidden(e, sum);
    return MICA_OK;
}

static mica_status norm(encoder *e, mica_buffer *weight, mica_buffer *bias)
{
    mica_buffer *normed = NULL;
    MICA__TRY(mica__pass_like(e->pass, e->hidden, &normed));
    MICA__TRY(mica__norm(e->pass, e->hidden, weight, bias, normed));
    set_hidden(e, normed);
    return MICA_OK;
}

static mica_status embed(encoder *e)
{
    mica__pass *pass = e->pass;
    const uint64_t width = pass->model->h.width;
    mica_buffer *const *t = pass->model->tensor;
    mica_buffer *tokens = NULL, *positions = NULL, *type = NULL;
    MICA__TRY(mica__pass_rows(pass, width, &tokens));
    MICA__TRY(mica__pass_rows(pass, width, &positions));
    MICA__TRY(mica_embedding(pass->encoder, t[MICA__T_TOKEN_EMBEDDING], pass->tokens, tokens));
    MICA__TRY(mica_embedding(pass->encoder, t[MICA__T_POSITION_EMBEDDING], pass->positions, positions));
    set_hidden(e, tokens);
    MICA__TRY(add(e, positions));
    if (t[MICA__T_TYPE_EMBEDDING] != NULL) { /* all tokens are of the first type: one text */
        MICA__TRY(mica__pass_keep(pass, mica_buffer_slice(t[MICA__T_TYPE_EMBEDDING], 0, 0, 1, &type), &type));
        MICA__TRY(add(e, type));
    }
    if (t[MICA__T_EMBEDDING_NORM] == NULL)
        return MICA_OK;
    return norm(e, t[MICA__T_EMBEDDING_NORM], t[MICA__T_EMBEDDING_NORM_BIAS]);
}

/* Rows as [rows, heads, size]. */
static mica_status heads_of(encoder *e, mica_buffer *rows, uint64_t heads, uint64_t size, mica_buffer **out)
{
    const uint64_t shape[3] = {e->pass->shape.rows, heads, size};
    return mica__pass_keep(e->pass, mica_buffer_reshape(rows, 3, shape, out), out);
}

static mica_status attend(encoder *e, const mica__layer *layer, mica_buffer **out)
{
    static const uint32_t weight[3] = {MICA__T_Q, MICA__T_K, MICA__T_V};
    static const uint32_t bias[3] = {MICA__T_Q_BIAS, MICA__T_K_BIAS, MICA__T_V_BIAS};
    mica__pass *pass = e->pass;
    const mica__hparams *h = &pass->model->h;
    const mica_attention_params params = {.scale = h->attention_scale, .bidirectional = 1};
    mica_buffer *heads[3] = {NULL}, *rows = NULL, *mixed = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        MICA__TRY(mica__linear(pass, e->hidden, mica__of_layer(layer, (mica__tensor_id)weight[i]),
                               mica__of_layer(layer, (mica__tensor_id)bias[i]), &rows));
        MICA__TRY(
            heads_of(e, rows, i == 0 ? h->heads : h->kv_heads, i < 2 ? h->head_k : h->head_v, &heads[i]));
    }
    MICA__TRY(mica__pass_rows(pass, (uint64_t)h->heads * h->head_v, out));
    MICA__TRY(heads_of(e, *out, h->heads, h->head_v, &mixed));
    return mica__attend_texts(pass, heads[0], heads[1], heads[2], &params, mixed);
}

static mica_status attention_part(encoder *e, const mica__layer *layer)
{
    mica_buffer *mixed = NULL, *added = NULL;
    MICA__TRY(attend(e, layer, &mixed));
    MICA__TRY(mica__linear(e->pass, mixed, mica__of_layer(layer, MICA__T_O),
                           mica__of_layer(layer, MICA__T_O_BIAS), &added));
    MICA__TRY(add(e, added));
    return norm(e, mica__of_layer(layer, MICA__T_ATTENTION_OUTPUT_NORM),
                mica__of_layer(layer, MICA__T_ATTENTION_OUTPUT_NORM_BIAS));
}

static mica_status feed_forward_part(encoder *e, const mica__layer *layer)
{
    mica__pass *pass = e->pass;
    mica_buffer *up = NULL, *inner = NULL, *added = NULL;
    MICA__TRY(mica__linear(pass, e->hidden, mica__of_layer(layer, MICA__T_UP),
                           mica__of_layer(layer, MICA__T_UP_BIAS), &up));
    MICA__TRY(mica__gelu(pass, up, &inner));
    MICA__TRY(mica__linear(pass, inner, mica__of_layer(layer, MICA__T_DOWN),
                           mica__of_layer(layer, MICA__T_DOWN_BIAS), &added));
    MICA__TRY(add(e, added));
    return norm(e, mica__of_layer(layer, MICA__T_LAYER_OUTPUT_NORM),
                mica__of_layer(layer, MICA__T_LAYER_OUTPUT_NORM_BIAS));
}

static mica_status forward(encoder *e)
{
    mica__pass *pass = e->pass;
    const mica_model *model = pass->model;
    MICA__TRY(embed(e));
    for (uint32_t i = 0; i < model->h.layers; i++) {
        MICA__TRY(mica__spend(MICA__LAYER_STEPS));
        MICA__TRY(attention_part(e, &model->layer[i]));
        MICA__TRY(feed_forward_part(e, &model->layer[i]));
        mica__pass_drop(pass);
    }
    return mica_copy(pass->encoder, e->hidden, pass->result);
}

mica_status mica__encoder_forward(mica__pass *pass)
{
    encoder e = {.pass = pass};
    const mica_status status = forward(&e);
    mica_buffer_release(e.hidden);
    return status;
}
