/*
 * ops_recurrent.c - RNN, GRU, LSTM: the products of the inputs at once, then a scan over the tokens for each direction.
 */
#include <string.h>

#include "graph/onnx/body.h"
#include "graph/onnx/operators.h"

enum { RNN, GRU, LSTM };

typedef struct layer {
    uint32_t kind, gates, directions;
    bool before_reset; /* GRU: the reset gate behind the product */
    uint64_t hidden, batch, length;
    mica_scalar activation[6]; /* three for each direction */
    mica_tensor x, w, r, b, lengths, h, c, p;
} layer;

/* What a scan of one direction gives. */
typedef struct pass {
    mica_tensor y, h, c;
} pass;

static mica_tensor binary(const mica__ox_op *o, mica_scalar scalar, mica_tensor a, mica_tensor b)
{
    return b == 0 ? 0 : mica__ox_scalar(o, scalar, a, b);
}

static mica_status read_activations(mica__ox_op *o, layer *l)
{
    static const struct {
        const char *name;
        mica_scalar scalar;
    } known[] = {{"Sigmoid", MICA_SCALAR_SIGMOID},
                 {"Tanh", MICA_SCALAR_TANH},
                 {"Relu", MICA_SCALAR_RELU},
                 {"Softsign", MICA_SCALAR_SOFTSIGN},
                 {"Softplus", MICA_SCALAR_SOFTPLUS}};
    static const mica_scalar usual[3][3] = {{MICA_SCALAR_TANH, MICA_SCALAR_TANH, MICA_SCALAR_TANH},
                                            {MICA_SCALAR_SIGMOID, MICA_SCALAR_TANH, MICA_SCALAR_TANH},
                                            {MICA_SCALAR_SIGMOID, MICA_SCALAR_TANH, MICA_SCALAR_TANH}};
    static const uint32_t each[3] = {1, 2, 3};
    const mica__onnx_attribute *a = mica__ox_attribute(o, "activations", MICA__ONNX_KIND_STRINGS);
    for (uint32_t i = 0; i < 6; i++)
        l->activation[i] = usual[l->kind][i % 3];
    if (a == NULL)
        return MICA_OK;
    if (a->count != each[l->kind] * l->directions)
        return mica__ox_fail(o, "%u activations", a->count);
    for (uint32_t i = 0; i < a->count; i++) {
        mica_scalar scalar = MICA_SCALAR_NONE;
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (strlen(known[k].name) == a->strings[i].length &&
                memcmp(known[k].name, a->strings[i].data, (size_t)a->strings[i].length) == 0)
                scalar = known[k].scalar;
        if (scalar == MICA_SCALAR_NONE)
            return mica__ox_fail(o, "activation \"%.60s\"", a->strings[i].data);
        l->activation[i / each[l->kind] * 3 + i % each[l->kind]] = scalar;
    }
    return MICA_OK;
}

/* Part `index` of the first dimension, without it. */
static mica_tensor part(const mica__ox_op *o, mica_tensor x, uint32_t index)
{
    const mica__type t = mica__ox_type(o, x);
    return x == 0 ? 0 : mica__ox_reshape(o, mica__ox_slice(o, x, 0, index, 1), t.ndim - 1, t.shape + 1);
}

/* Gate `g` of [batch, gates hidden]. */
static mica_tensor gate(const mica__ox_op *o, const layer *l, mica_tensor x, uint32_t g)
{
    return mica__ox_slice(o, x, mica__ox_type(o, x).ndim - 1, g * l->hidden, l->hidden);
}

/* One token: x [batch, gates hidden] with its bias, h and c [batch, hidden]. */
typedef struct rnn_cell {
    mica_tensor x, h, c, r, rb, p;
} rnn_cell;

static void step_rnn(const mica__ox_op *o, const layer *l, const mica_scalar *f, rnn_cell *s)
{
    (void)l;
    const mica_tensor sum = binary(o, MICA_SCALAR_ADD, s->x, mica_graph_matmul(o->graph, s->h, s->r));
    s->h = mica__ox_scalar(o, f[0], sum, 0);
}

static void step_gru(const mica__ox_op *o, const layer *l, const mica_scalar *f, rnn_cell *s)
{
    mica_tensor product = mica_graph_matmul(o->graph, s->h, s->r), z, r, n;
    if (s->rb != 0)
        product = binary(o, MICA_SCALAR_ADD, product, s->rb);
    z = mica__ox_scalar(o, f[0], binary(o, MICA_SCALAR_ADD, gate(o, l, s->x, 0), gate(o, l, product, 0)), 0);
    r = mica__ox_scalar(o, f[0], binary(o, MICA_SCALAR_ADD, gate(o, l, s->x, 1), gate(o, l, product, 1)), 0);
    if (l->before_reset) {
        n = binary(o, MICA_SCALAR_MUL, r, gate(o, l, product, 2));
    } else {
        n = mica_graph_matmul(o->graph, binary(o, MICA_SCALAR_MUL, r, s->h), gate(o, l, s->r, 2));
        if (s->rb != 0)
            n = binary(o, MICA_SCALAR_ADD, n, gate(o, l, s->rb, 2));
    }
    n = mica__ox_scalar(o, f[1], binary(o, MICA_SCALAR_ADD, gate(o, l, s->x, 2), n), 0);
    const mica_tensor rest = binary(o, MICA_SCALAR_SUB, mica__ox_number(o, z, 1), z);
    s->h =
        binary(o, MICA_SCALAR_ADD, binary(o, MICA_SCALAR_MUL, rest, n), binary(o, MICA_SCALAR_MUL, z, s->h));
}

/* x plus the peephole `i` of c. */
static mica_tensor peep(const mica__ox_op *o, const layer *l, const rnn_cell *s, mica_tensor x, uint32_t i,
                        mica_tensor c)
{
    return s->p == 0 ? x : binary(o, MICA_SCALAR_ADD, x, binary(o, MICA_SCALAR_MUL, c, gate(o, l, s->p, i)));
}

static void step_lstm(const mica__ox_op *o, const layer *l, const mica_scalar *f, rnn_cell *s)
{
    const mica_tensor sum = binary(o, MICA_SCALAR_ADD, s->x, mica_graph_matmul(o->graph, s->h, s->r));
    const mica_tensor i = mica__ox_scalar(o, f[0], peep(o, l, s, gate(o, l, sum, 0), 0, s->c), 0);
    const mica_tensor forget = mica__ox_scalar(o, f[0], peep(o, l, s, gate(o, l, sum, 2), 2, s->c), 0);
    const mica_tensor g = mica__ox_scalar(o, f[1], gate(o, l, sum, 3), 0);
    s->c = binary(o, MICA_SCALAR_ADD, binary(o, MICA_SCALAR_MUL, forget, s->c),
                  binary(o, MICA_SCALAR_MUL, i, g));
    const mica_tensor out = mica__ox_scalar(o, f[0], peep(o, l, s, gate(o, l, sum, 1), 1, s->c), 0);
    s->h = binary(o, MICA_SCALAR_MUL, out, mica__ox_scalar(o, f[2], s->c, 0));
}

/* Tokens behind the end of a sequence leave the state as it is and give zeros. */
static mica_tensor ended(const mica__ox_op *o, mica_tensor token, mica_tensor lengths, mica_tensor fresh,
                         mica_tensor old)
{
    const mica_tensor runs = binary(o, MICA_SCALAR_LESS, token, mica__ox_unsqueeze(o, lengths, 1));
    return mica__ox_select(o, runs, fresh, old);
}

/* Inputs of the scan, in the order of its body: carried h (and c), scanned x (and token), others. */
typedef struct wires {
    mica_tensor outer[8], inner[8];
    uint32_t count;
} wires;

static mica_tensor wire(mica__ox_op *o, mica__ox_body_graph *body, wires *w, mica_tensor outer, bool scanned)
{
    if (outer == 0)
        return 0;
    const mica__type type = mica__ox_type(o, outer);
    w->outer[w->count] = outer;
    w->inner[w->count] = mica__ox_body_input(body, &type, scanned);
    return w->inner[w->count++];
}

static mica_status scan_direction(mica__ox_op *o, const layer *l, uint32_t direction, bool reverse,
                                  mica_tensor x, const rnn_cell *start, pass *out)
{
    static void (*const cells[])(const mica__ox_op *o, const layer *l, const mica_scalar *f,
                                 rnn_cell *s) = {step_rnn, step_gru, step_lstm};
    mica__ox_body_graph body;
    wires w = {.count = 0};
    rnn_cell s = {.x = 0};
    mica_tensor token = 0, lengths = 0, outputs[3] = {0};
    mica_status status = mica__ox_body_begin(o, &body);
    mica__ox_op in = *o;
    in.graph = body.graph;
    if (status == MICA_OK) {
        const uint64_t length[] = {l->length};
        s.h = wire(o, &body, &w, start->h, false);
        s.c = wire(o, &body, &w, start->c, false);
        s.x = wire(o, &body, &w, x, true);
        token =
            l->lengths == 0 ? 0 : wire(o, &body, &w, mica__ox_iota(o, 1, length, 0, MICA_DTYPE_I32), true);
        s.r = wire(o, &body, &w, start->r, false);
        s.rb = wire(o, &body, &w, start->rb, false);
        s.p = wire(o, &body, &w, start->p, false);
        lengths = wire(o, &body, &w, l->lengths, false);
        const rnn_cell before = s;
        cells[l->kind](&in, l, l->activation + 3 * direction, &s);
        mica_tensor y = s.h;
        if (token != 0) {
            y = ended(&in, token, lengths, s.h, mica__ox_number(&in, s.h, 0));
            s.h = ended(&in, token, lengths, s.h, before.h);
            s.c = s.c == 0 ? 0 : ended(&in, token, lengths, s.c, before.c);
        }
        mica__ox_body_output(&body, s.h);
        if (s.c != 0)
            mica__ox_body_output(&body, s.c);
        mica__ox_body_output(&body, y);
        status = mica_graph_status(body.graph);
    }
    const uint32_t carried = l->kind == LSTM ? 2 : 1, scanned = l->lengths == 0 ? 1 : 2;
    const mica_scan_desc desc = {
        .carried = carried, .scanned = scanned, .others = w.count - carried - scanned, .reverse = reverse};
    if (status == MICA_OK)
        (void)mica_graph_scan(o->graph, body.graph, &desc, w.outer, outputs, carried + 1);
    mica__ox_body_end(&body);
    *out = (pass){.y = outputs[carried], .h = outputs[0], .c = l->kind == LSTM ? outputs[1] : 0};
    return status;
}

/* x w^T + biases of one direction, and what its cell begins with. */
static mica_status run_direction(mica__ox_op *o, const layer *l, uint32_t direction, bool reverse, pass *out)
{
    const uint64_t width = l->gates * l->hidden, state[] = {l->batch, l->hidden};
    const mica_tensor zeros = mica_graph_expand(o->graph, mica__ox_number(o, l->x, 0), 2, state);
    rnn_cell s = {.h = l->h == 0 ? zeros : part(o, l->h, direction), .p = part(o, l->p, direction)};
    if (l->kind == LSTM)
        s.c = l->c == 0 ? zeros : part(o, l->c, direction);
    s.r = mica__ox_swap(o, part(o, l->r, direction), 0, 1);
    mica_tensor x = mica_graph_matmul(o->graph, l->x, mica__ox_swap(o, part(o, l->w, direction), 0, 1));
    if (l->b != 0) {
        const mica_tensor b = part(o, l->b, direction);
        const mica_tensor wb = mica__ox_slice(o, b, 0, 0, width), rb = mica__ox_slice(o, b, 0, width, width);
        x = binary(o, MICA_SCALAR_ADD, x, wb);
        if (l->kind == GRU)
            s.rb = rb;
        else
            x = binary(o, MICA_SCALAR_ADD, x, rb);
    }
    MICA__TRY(mica_graph_status(o->graph));
    return scan_direction(o, l, direction, reverse, x, &s, out);
}

static mica_status read_layer(mica__ox_op *o, layer *l, uint32_t *way)
{
    static const char *const words[] = {"forward", "reverse", "bidirectional", NULL};
    static const uint32_t gates[3] = {1, 3, 4};
    *way = mica__ox_word(o, "direction", 0, words);
    l->kind = (uint32_t)o->row->argument;
    l->gates = gates[l->kind];
    l->directions = *way == 2 ? 2 : 1;
    l->before_reset = mica__ox_int(o, "linear_before_reset", 0) != 0;
    if (*way == UINT32_MAX || mica__ox_int(o, "input_forget", 0) != 0)
        return mica__ox_fail(o, "such a direction, or input_forget");
    MICA__TRY(read_activations(o, l));
    l->x = mica__ox_in(o, 0);
    l->w = mica__ox_in(o, 1);
    l->r = mica__ox_in(o, 2);
    l->b = mica__ox_in(o, 3);
    l->lengths = mica__ox_cast(o, mica__ox_in(o, 4), MICA_DTYPE_I32);
    l->h = mica__ox_in(o, 5);
    l->c = l->kind == LSTM ? mica__ox_in(o, 6) : 0;
    l->p = l->kind == LSTM ? mica__ox_in(o, 7) : 0;
    return mica__ox_type(o, l->x).ndim == 3 && mica__ox_type(o, l->w).ndim == 3 &&
                   mica__ox_type(o, l->r).ndim == 3
               ? MICA_OK
               : mica__ox_fail(o, "of such shapes");
}

/* [n, ..] of each direction as [.., directions, ..] at `axis`. */
static mica_tensor joined(const mica__ox_op *o, const layer *l, mica_tensor a, mica_tensor b, uint32_t axis)
{
    const mica_tensor both[] = {mica__ox_unsqueeze(o, a, axis),
                                l->directions == 2 ? mica__ox_unsqueeze(o, b, axis) : 0};
    return both[0] == 0 ? 0 : mica_graph_concat(o->graph, both, l->directions, axis);
}

mica_status mica__ox_recurrent(mica__ox_op *o)
{
    layer l = {.kind = 0};
    pass passes[2] = {{.y = 0}, {.y = 0}};
    uint32_t way = 0;
    MICA__TRY(read_layer(o, &l, &way));
    const bool batch_first = mica__ox_int(o, "layout", 0) != 0;
    if (batch_first) {
        l.x = mica__ox_swap(o, l.x, 0, 1);
        l.h = mica__ox_swap(o, l.h, 0, 1);
        l.c = mica__ox_swap(o, l.c, 0, 1);
    }
    const mica__type x = mica__ox_type(o, l.x), r = mica__ox_type(o, l.r);
    MICA__TRY(mica__ox_need_shape(o, l.x, "X"));
    MICA__TRY(mica__ox_need_shape(o, l.r, "R"));
    l.length = x.shape[0];
    l.batch = x.shape[1];
    l.hidden = r.shape[2];
    if (mica__ox_int(o, "hidden_size", (int64_t)l.hidden) != (int64_t)l.hidden ||
        r.shape[0] != l.directions || r.shape[1] != l.gates * l.hidden)
        return mica__ox_fail(o, "R is of another size");
    for (uint32_t d = 0; d < l.directions; d++)
        MICA__TRY(run_direction(o, &l, d, way == 1 || d == 1, &passes[d]));
    mica_tensor y = joined(o, &l, passes[0].y, passes[1].y, 1); /* [length, directions, batch, hidden] */
    mica_tensor h = joined(o, &l, passes[0].h, passes[1].h, 0),
                c = joined(o, &l, passes[0].c, passes[1].c, 0);
    if (batch_first) {
        y = y == 0 ? 0 : mica_graph_permute(o->graph, y, (const uint32_t[]){2, 0, 1, 3});
        h = mica__ox_swap(o, h, 0, 1);
        c = mica__ox_swap(o, c, 0, 1);
    }
    mica__ox_out(o, 0, y);
    mica__ox_out(o, 1, h);
    mica__ox_out(o, 2, c);
    return mica_graph_status(o->graph);
}
