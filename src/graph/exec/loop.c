/*
 * loop.c - IF, WHILE and SCAN as programs that run as often as what they compute says.
 *
 * A scan is a loop that counts: its body becomes one that carries the number of the round and the stacks of slices, takes slices of the scanned
 * inputs by that number and puts what it makes into the stacks, so that one recording serves every round.
 */
#include "graph/exec/loop.h"

#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "device/objects.h"

struct mica__loop {
    uint8_t kind;
    mica__station station;       /* of the place where what it carries lies */
    mica_graph *graph[2];        /* bodies of known sizes */
    mica__schedule *schedule[2]; /* IF: then, else; WHILE: condition, body; SCAN: none, body */
    mica_buffer *predicate;
    mica_buffer **from,
        **carried; /* what is carried begins as `from` (NULL: zeros, or the number of the first round) */
    uint32_t carried_count;
    uint64_t rounds; /* at most; SCAN: exactly */
    bool bounded, reverse;
};

/* ---- making ---- */

/* The types of a body's inputs: those of the node's, from `first` on. */
static mica__type *input_types(const mica_graph *graph, const mica__node *node, uint32_t first)
{
    const uint32_t count = node->input_count - first;
    mica__type *types = mica__alloc((count + 1) * sizeof *types);
    for (uint32_t i = 0; i < count && types != NULL; i++)
        types[i] = *mica__type_of(graph, mica__node_inputs(graph, node)[first + i]);
    return types;
}

typedef struct body_call {
    const mica__schedule_desc *outer;
    const mica_graph *body; /* of known sizes */
    mica_buffer *const *inputs;
    mica_buffer *const *outputs; /* NULL entries: nobody looks, or a link */
    uint32_t links;              /* outputs 0 .. are inputs 0 .. of the next round */
} body_call;

static mica_status make_sequence(const body_call *call, mica__schedule **out)
{
    const mica_graph *body = call->body;
    mica_buffer **leaf = mica__calloc(body->tensor_count, sizeof *leaf);
    mica__link *link = mica__calloc(call->links + 1, sizeof *link);
    mica_status status = leaf == NULL || link == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
    for (uint32_t i = 0; status == MICA_OK && i < body->input_count; i++)
        leaf[body->inputs[i]] = call->inputs[i];
    for (uint32_t i = 0; status == MICA_OK && i < call->links; i++)
        link[i] = (mica__link){.output = i, .leaf = body->inputs[i]};
    uint32_t made = 0; /* constants of the body lie on the device while the schedule does */
    for (mica_tensor t = 1; status == MICA_OK && t < body->tensor_count; t++) {
        const mica__node *node = mica__node_of(body, t);
        if (node->kind != MICA_NODE_CONSTANT)
            continue;
        const mica__blob *blob = ((const mica__constant_data *)node->data)->blob;
        status = mica__buffer_of(call->outer->station[node->place].device, body, t, &leaf[t]);
        if (status == MICA_OK)
            status = mica__buffer_put(leaf[t], 0, blob->data, blob->bytes);
        made = t;
    }
    mica__schedule_desc desc = *call->outer;
    desc.graph = body;
    desc.leaf = leaf;
    desc.output = call->outputs;
    desc.link = link;
    desc.link_count = call->links;
    if (status == MICA_OK)
        status = mica__schedule_create(&desc, out);
    for (mica_tensor t = 1; leaf != NULL && t <= made; t++)
        if (mica__node_of(body, t)->kind == MICA_NODE_CONSTANT)
            mica_buffer_release(leaf[t]); /* the schedule keeps them */
    mica__free(leaf);
    mica__free(link);
    return status;
}

/* Buffers of the node's inputs from `first` on, then of its outputs; borrowed. */
static mica_buffer **gather_buffers(const mica_graph *graph, const mica__node *node, uint32_t first,
                                    mica_buffer *const *fixed)
{
    const uint32_t inputs = node->input_count - first;
    mica_buffer **list = mica__calloc(inputs + node->output_count + 1u, sizeof *list);
    for (uint32_t i = 0; i < inputs && list != NULL; i++)
        list[i] = fixed[mica__node_inputs(graph, node)[first + i]];
    for (uint32_t i = 0; i < node->output_count && list != NULL; i++)
        list[inputs + i] = fixed[mica__node_outputs(graph, node)[i]];
    return list;
}

static mica_status make_if(mica__loop *loop, const mica__schedule_desc *outer, const mica__node *node,
                           mica_buffer *const *fixed)
{
    const mica__body_data *data = node->data;
    mica__type *types = input_types(outer->graph, node, 1);
    mica_buffer **list = gather_buffers(outer->graph, node, 1, fixed);
    mica_status status = types == NULL || list == NULL
                             ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for if")
                             : MICA_OK;
    loop->predicate = mica_buffer_retain(fixed[mica__node_inputs(outer->graph, node)[0]]);
    for (uint32_t i = 0; i < 2 && status == MICA_OK; i++) {
        status = mica__graph_concrete(data->body[i], types, &loop->graph[i]);
        const body_call call = {.outer = outer,
                                .body = loop->graph[i],
                                .inputs = list,
                                .outputs = status == MICA_OK ? list + node->input_count - 1 : NULL};
        if (status == MICA_OK)
            status = make_sequence(&call, &loop->schedule[i]);
    }
    mica__free(types);
    mica__free(list);
    return status;
}

/* Buffers that stay from round to round: those of the node's outputs where somebody wants them. */
static mica_status make_carried(mica__loop *loop, const mica_graph *graph, const mica_tensor *like,
                                const mica_tensor *outputs, uint32_t count, mica_buffer *const *fixed)
{
    loop->from = mica__calloc(count + 1, sizeof *loop->from);
    loop->carried = mica__calloc(count + 1, sizeof *loop->carried);
    if (loop->from == NULL || loop->carried == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for a loop");
    loop->carried_count = count;
    for (uint32_t i = 0; i < count; i++) {
        mica_buffer *place = outputs[i] != 0 ? fixed[outputs[i]] : NULL;
        if (place != NULL)
            loop->carried[i] = mica_buffer_retain(place);
        else
            MICA__TRY(mica__buffer_of(loop->station.device, graph, like[i], &loop->carried[i]));
    }
    return MICA_OK;
}

static mica_status make_while(mica__loop *loop, const mica__schedule_desc *outer, const mica__node *node,
                              mica_buffer *const *fixed)
{
    const mica__body_data *data = node->data;
    const mica_tensor *in = mica__node_inputs(outer->graph, node),
                      *out = mica__node_outputs(outer->graph, node);
    const mica__type one = {.dtype = MICA_DTYPE_BOOL};
    loop->bounded = data->most != 0;
    loop->rounds = data->most != 0 ? data->most : outer->most_rounds;
    MICA__TRY(make_carried(loop, outer->graph, in, out, data->carried, fixed));
    for (uint32_t i = 0; i < data->carried; i++)
        loop->from[i] = mica_buffer_retain(fixed[in[i]]);
    MICA__TRY(mica__buffer_for(loop->station.device, &one, &loop->predicate));
    mica__type *types = input_types(outer->graph, node, 0);
    mica_buffer **list = gather_buffers(outer->graph, node, 0, fixed);
    mica_buffer **nothing = mica__calloc(data->carried + 1u, sizeof *nothing), *predicate = NULL;
    mica_status status = types == NULL || list == NULL || nothing == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
    for (uint32_t i = 0; status == MICA_OK && i < data->carried; i++)
        list[i] = loop->carried[i];
    for (uint32_t i = 0; i < 2 && status == MICA_OK; i++) {
        status = mica__graph_concrete(data->body[i], types, &loop->graph[i]);
        if (status == MICA_OK && i == 0) {
            const mica_tensor gives = loop->graph[0]->outputs.list[0].tensor;
            status = mica__buffer_as(loop->predicate, mica__type_of(loop->graph[0], gives), &predicate);
        }
        const body_call call = {.outer = outer,
                                .body = loop->graph[i],
                                .inputs = list,
                                .outputs = i == 0 ? &predicate : nothing,
                                .links = i == 0 ? 0 : data->carried};
        if (status == MICA_OK)
            status = make_sequence(&call, &loop->schedule[i]);
    }
    mica_buffer_release(predicate);
    mica__free(types);
    mica__free(list);
    mica__free(nothing);
    return status;
}

/* ---- scans ---- */

/* The counting body: inputs and outputs are the round, what is carried, the stacks; then inputs the scanned ones whole, and the others. */
typedef struct counting {
    const mica_graph *body;
    const mica_scan_desc *scan;
    mica_graph *to;
    mica_tensor *in, *out; /* of body */
    uint32_t inputs;
} counting;

static mica_tensor add_input(counting *c, const mica__type *type)
{
    char name[24];
    uint32_t n = c->inputs++, at = sizeof name - 1;
    name[at] = 0;
    do
        name[--at] = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    return mica_graph_input(c->to, name + at, type->dtype, type->ndim, type->shape);
}

static mica_tensor slice_of(counting *c, mica_tensor whole, mica_tensor round)
{
    const mica__type *type = mica__type_of(c->to, whole);
    uint64_t shape[MICA_MAX_DIMS];
    const uint32_t ndim = type->ndim - 1;
    memcpy(shape, type->shape + 1, sizeof shape - sizeof shape[0]);
    const mica_gather_params params = {.axis = 0};
    const mica_tensor row = mica_graph_op(c->to, MICA_OP_GATHER, &params, (const mica_tensor[]){whole, round},
                                          2, 1, NULL, NULL, 0);
    return mica_graph_reshape(c->to, row, ndim, shape);
}

static mica_tensor put_slice(counting *c, mica_tensor stack, mica_tensor slice, mica_tensor round)
{
    const mica__type *type = mica__type_of(c->to, stack);
    uint64_t shape[MICA_MAX_DIMS];
    memcpy(shape, type->shape, sizeof shape);
    shape[0] = 1;
    const uint32_t ndim = type->ndim;
    const mica_scatter_params params = {.axis = 0, .mode = MICA_SCATTER_SET};
    const mica_tensor row = mica_graph_reshape(c->to, slice, ndim, shape);
    return mica_graph_op(c->to, MICA_OP_SCATTER, &params, (const mica_tensor[]){row, round, stack}, 3, 1,
                         NULL, NULL, 0);
}

static void add_output(counting *c, uint32_t n, mica_tensor tensor)
{
    char name[24];
    uint32_t at = sizeof name - 1;
    name[at] = 0;
    do
        name[--at] = (char)('0' + n % 10);
    while ((n /= 10) != 0);
    (void)mica_graph_output(c->to, name + at, tensor);
}

static mica_status count_rounds(counting *c, const mica_graph *graph, const mica__node *node)
{
    const mica_scan_desc *scan = c->scan;
    const mica_tensor *in = mica__node_inputs(graph, node), *out = mica__node_outputs(graph, node);
    const uint32_t stacks = node->output_count - scan->carried;
    const mica__type number = {.dtype = MICA_DTYPE_I32, .ndim = 1, .shape = {1}};
    const mica_tensor round = add_input(c, &number);
    mica_tensor stack[64];
    for (uint32_t i = 0; i < scan->carried; i++)
        c->in[i] = add_input(c, mica__type_of(graph, in[i]));
    for (uint32_t i = 0; i < stacks; i++)
        stack[i] = add_input(c, mica__type_of(graph, out[scan->carried + i]));
    for (uint32_t i = 0; i < scan->scanned; i++)
        c->in[scan->carried + i] =
            slice_of(c, add_input(c, mica__type_of(graph, in[scan->carried + i])), round);
    for (uint32_t i = scan->carried + scan->scanned; i < node->input_count; i++)
        c->in[i] = add_input(c, mica__type_of(graph, in[i]));
    if (!mica__graph_inline(c->to, c->body, c->in, c->out))
        return mica_graph_status(c->to);
    const mica_tensor step = mica_graph_number(c->to, MICA_DTYPE_I32, scan->reverse ? -1 : 1);
    add_output(c, 0, mica_graph_add(c->to, round, step));
    for (uint32_t i = 0; i < scan->carried; i++)
        add_output(c, 1 + i, c->out[i]);
    for (uint32_t i = 0; i < stacks; i++)
        add_output(c, 1 + scan->carried + i, put_slice(c, stack[i], c->out[scan->carried + i], round));
    return mica_graph_status(c->to);
}

/* The buffers that the counting body begins with: carried ones, then the scanned inputs and the others. */
static mica_status scan_buffers(mica__loop *loop, const mica__schedule_desc *outer, const mica__node *node,
                                const mica_scan_desc *scan, mica_buffer *const *fixed, mica_buffer ***out)
{
    const mica_tensor *in = mica__node_inputs(outer->graph, node),
                      *outs = mica__node_outputs(outer->graph, node);
    const uint32_t carried = 1 + node->output_count;
    mica_buffer **list = mica__calloc((size_t)carried + node->input_count, sizeof *list);
    loop->from = mica__calloc(carried, sizeof *loop->from);
    loop->carried = mica__calloc(carried, sizeof *loop->carried);
    *out = list;
    if (list == NULL || loop->from == NULL || loop->carried == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for a scan");
    loop->carried_count = carried;
    const mica__type number = {.dtype = MICA_DTYPE_I32, .ndim = 1, .shape = {1}};
    MICA__TRY(mica__buffer_for(loop->station.device, &number, &loop->carried[0]));
    for (uint32_t i = 0; i < node->output_count; i++) {
        mica_buffer *place = fixed[outs[i]];
        if (place != NULL)
            loop->carried[1 + i] = mica_buffer_retain(place);
        else
            MICA__TRY(mica__buffer_of(loop->station.device, outer->graph, outs[i], &loop->carried[1 + i]));
        if (i < scan->carried)
            loop->from[1 + i] = mica_buffer_retain(fixed[in[i]]);
    }
    for (uint32_t i = 0; i < carried; i++)
        list[i] = loop->carried[i];
    for (uint32_t i = scan->carried; i < node->input_count; i++)
        list[carried + i - scan->carried] = fixed[in[i]];
    return MICA_OK;
}

static uint64_t length_of(const mica_graph *graph, const mica__node *node, const mica_scan_desc *scan)
{
    return scan->scanned == 0 ? scan->length
                              : mica__type_of(graph, mica__node_inputs(graph, node)[scan->carried])->shape[0];
}

static mica_status make_scan(mica__loop *loop, const mica__schedule_desc *outer, const mica__node *node,
                             mica_buffer *const *fixed)
{
    const mica__body_data *data = node->data;
    const mica_scan_desc *scan = &data->scan;
    mica_buffer **list = NULL, **nothing = NULL;
    counting c = {.body = data->body[0], .scan = scan};
    if (node->output_count - scan->carried > 64)
        return mica__fail(MICA_ERR_UNSUPPORTED, "graph: a scan with over 64 stacked outputs");
    loop->rounds = length_of(outer->graph, node, scan);
    loop->reverse = scan->reverse != 0;
    if (loop->rounds > INT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "graph: a scan of over 2^31 rounds");
    mica_graph *open = NULL;
    c.in = mica__calloc((size_t)node->input_count + c.body->outputs.count + 2, sizeof *c.in);
    mica_status status = c.in == NULL ? MICA_ERR_OUT_OF_MEMORY : mica_graph_create(&c.to);
    open = c.to;
    if (status == MICA_OK)
        status = mica_graph_place(c.to, node->place);
    if (status == MICA_OK) {
        c.out = c.in + node->input_count + 1;
        status = count_rounds(&c, outer->graph, node);
    }
    mica__type *types = status == MICA_OK ? mica__alloc((open->input_count + 1) * sizeof *types) : NULL;
    for (uint32_t i = 0; types != NULL && i < open->input_count; i++)
        types[i] = *mica__type_of(open, open->inputs[i]);
    if (types != NULL)
        status = mica__graph_concrete(open, types, &loop->graph[1]);
    if (status == MICA_OK)
        status = scan_buffers(loop, outer, node, scan, fixed, &list);
    nothing = mica__calloc((size_t)node->output_count + 2, sizeof *nothing);
    const body_call call = {.outer = outer,
                            .body = loop->graph[1],
                            .inputs = list,
                            .outputs = nothing,
                            .links = 1u + node->output_count};
    if (status == MICA_OK)
        status = nothing == NULL ? MICA_ERR_OUT_OF_MEMORY : make_sequence(&call, &loop->schedule[1]);
    mica_graph_release(open);
    mica__free(types);
    mica__free(c.in);
    mica__free(list);
    mica__free(nothing);
    return status;
}

mica_status mica__loop_create(const mica__schedule_desc *outer, const mica__node *node,
                              mica_buffer *const *fixed, mica__loop **out)
{
    *out = NULL;
    mica__loop *loop = mica__calloc(1, sizeof *loop);
    if (loop == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for a loop");
    loop->kind = node->kind;
    loop->station = outer->station[node->place];
    const mica_status status = node->kind == MICA_NODE_IF      ? make_if(loop, outer, node, fixed)
                               : node->kind == MICA_NODE_WHILE ? make_while(loop, outer, node, fixed)
                                                               : make_scan(loop, outer, node, fixed);
    if (status != MICA_OK)
        mica__loop_release(loop);
    else
        *out = loop;
    return status;
}

void mica__loop_release(mica__loop *loop)
{
    if (loop == NULL)
        return;
    for (uint32_t i = 0; i < 2; i++) {
        mica__schedule_release(loop->schedule[i]);
        mica_graph_release(loop->graph[i]);
    }
    for (uint32_t i = 0; i < loop->carried_count; i++) {
        mica_buffer_release(loop->from[i]);
        mica_buffer_release(loop->carried[i]);
    }
    mica__free(loop->from);
    mica__free(loop->carried);
    mica_buffer_release(loop->predicate);
    mica__free(loop);
}

/* ---- running ---- */

static mica_status holds(mica__loop *loop, bool *out)
{
    uint8_t value = 0;
    MICA__TRY(mica__buffer_take(loop->predicate, 0, &value, 1));
    *out = value != 0;
    return MICA_OK;
}

/* What is carried begins anew. */
static mica_status begin_rounds(mica__loop *loop)
{
    mica_encoder *encoder = NULL;
    MICA__TRY(mica_encoder_begin(loop->station.device, loop->station.queue, &encoder));
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < loop->carried_count && status == MICA_OK; i++)
        if (loop->from[i] != NULL)
            status = mica_copy(encoder, loop->from[i], loop->carried[i]);
        else
            status =
                mica_fill(encoder, i == 0 && loop->reverse ? (double)loop->rounds - 1 : 0, loop->carried[i]);
    if (status == MICA_OK)
        status = mica_encoder_commit_and_wait(encoder);
    mica_encoder_release(encoder);
    return status;
}

static mica_status run_while(mica__loop *loop)
{
    for (uint64_t round = 0;; round++) {
        bool on = false;
        MICA__TRY(mica__schedule_run(loop->schedule[0]));
        MICA__TRY(holds(loop, &on));
        if (!on || (loop->bounded && round == loop->rounds))
            return MICA_OK;
        if (round == loop->rounds)
            return mica__fail(MICA_ERR_BUDGET,
                              "graph: a loop without a bound has not ended after %llu rounds",
                              (unsigned long long)round);
        MICA__TRY(mica__schedule_run(loop->schedule[1]));
    }
}

mica_status mica__loop_run(mica__loop *loop)
{
    bool yes = false;
    if (loop->kind == MICA_NODE_IF) {
        MICA__TRY(holds(loop, &yes));
        return mica__schedule_run(loop->schedule[yes ? 0 : 1]);
    }
    MICA__TRY(begin_rounds(loop));
    if (loop->kind == MICA_NODE_WHILE)
        return run_while(loop);
    for (uint64_t round = 0; round < loop->rounds; round++)
        MICA__TRY(mica__schedule_run(loop->schedule[1]));
    return MICA_OK;
}

void mica__loop_count(const mica__loop *loop, mica_executable_stats *stats)
{
    for (uint32_t i = 0; i < 2; i++)
        if (loop->schedule[i] != NULL)
            mica__schedule_count(loop->schedule[i], stats);
}
