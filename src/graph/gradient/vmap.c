/*
 * vmap.c - a body over many slices at once: each node of it is written with one dimension more in front, where its kind or its op says how, else as a scan over
 * the slices of that node alone. Nodes that depend on no slice are written as they are.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/gradient/rules.h"
#include "ops/region.h"

/* A body on its way into `graph`. */
typedef struct batch {
    mica__rewrite rewrite; /* map: of the body's tensors; those that are `many` are [n, ..] */
    bool *many;
    uint64_t n;
} batch;

/* One node: inputs in the graph around, whether each is many, and what the body says of it. */
typedef struct one {
    batch *all;
    mica_graph *graph;
    const mica_graph *body;
    const mica__node *node;
    uint32_t at;
    const mica_tensor *in; /* of the body */
    mica_tensor *out;      /* written, of `graph` */
} one;

static mica_tensor outer(const one *o, uint32_t i)
{
    return o->all->rewrite.map[o->in[i]];
}

static bool is_many(const one *o, uint32_t i)
{
    return o->all->many[o->in[i]];
}

static uint32_t rank(const one *o, uint32_t i)
{
    return mica__type_of(o->body, o->in[i])->ndim;
}

/* Input i as [n, 1.., shape] with `ndim` dimensions behind the first; others as they are, or repeated where `whole`. */
static mica_tensor aligned(const one *o, uint32_t i, uint32_t ndim, bool whole)
{
    mica_graph *graph = o->graph;
    mica_tensor x = outer(o, i);
    const uint32_t inner = rank(o, i);
    if (x == 0)
        return 0;
    mica__type type = mica__type_copy(graph, x);
    if (is_many(o, i)) {
        if (inner >= ndim)
            return x;
        memmove(type.shape + 1 + ndim - inner, type.shape + 1, inner * sizeof type.shape[0]);
        for (uint32_t d = 0; d < ndim - inner; d++)
            type.shape[1 + d] = 1;
        type.ndim = ndim + 1;
        return mica__reshape_to(graph, x, &type);
    }
    if (!whole)
        return x;
    memmove(type.shape + 1, type.shape, inner * sizeof type.shape[0]);
    type.shape[0] = o->all->n;
    return mica_graph_expand(graph, x, inner + 1, type.shape);
}

/* ---- kinds: false where the node has to be done slice by slice ---- */

static bool elementwise(one *o)
{
    const uint32_t ndim = mica__type_of(o->body, mica__node_outputs(o->body, o->node)[0])->ndim;
    mica_tensor in[MICA_REGION_INPUTS] = {0};
    if (ndim >= MICA_MAX_DIMS)
        return false;
    for (uint32_t i = 0; i < o->node->input_count; i++)
        in[i] = aligned(o, i, ndim, false);
    if (o->node->kind == MICA_NODE_SCALAR) {
        o->out[0] = mica_graph_scalar(o->graph, (mica_scalar)o->node->code, in[0], in[1], in[2]);
        return true;
    }
    mica_region *region = NULL;
    mica_dtype dtypes[MICA_REGION_OUTPUTS];
    for (uint32_t i = 0; i < o->node->output_count; i++)
        dtypes[i] = mica__type_of(o->body, mica__node_outputs(o->body, o->node)[i])->dtype;
    const mica_status status = mica__region_copy("vmap", o->node->data, &region);
    if (status != MICA_OK)
        (void)mica__graph_fail(o->graph, status, "vmap", "no memory for a region");
    else
        (void)mica_graph_region(o->graph, region, in, dtypes, o->out);
    mica_region_release(region);
    return true;
}

static bool cast(one *o)
{
    const mica_tensor x = outer(o, 0);
    const mica_dtype dtype = mica__type_of(o->body, mica__node_outputs(o->body, o->node)[0])->dtype;
    o->out[0] = o->node->kind == MICA_NODE_CAST   ? mica_graph_cast(o->graph, x, dtype)
                : o->node->kind == MICA_NODE_BITS ? mica_graph_bits(o->graph, x, dtype)
                                                  : mica_graph_stop_gradient(o->graph, x);
    return true;
}

static bool shaped(one *o)
{
    const mica__shape_data *data = o->node->data;
    uint64_t shape[MICA_MAX_DIMS];
    if (data->ndim >= MICA_MAX_DIMS)
        return false;
    shape[0] = o->all->n;
    for (uint32_t d = 0; d < data->ndim; d++)
        shape[d + 1] = mica__rewrite_size(&o->all->rewrite, data->shape[d]);
    o->out[0] = o->node->kind == MICA_NODE_RESHAPE
                    ? mica_graph_reshape(o->graph, outer(o, 0), data->ndim + 1, shape)
                    : mica_graph_expand(o->graph, aligned(o, 0, data->ndim, false), data->ndim + 1, shape);
    return true;
}

static bool permuted(one *o)
{
    const mica__permute_data *data = o->node->data;
    uint32_t order[MICA_MAX_DIMS] = {0};
    for (uint32_t d = 0; d < rank(o, 0); d++)
        order[d + 1] = data->order[d] + 1;
    o->out[0] = mica_graph_permute(o->graph, outer(o, 0), order);
    return true;
}

static bool sliced(one *o)
{
    const mica__slice_data *data = o->node->data;
    o->out[0] = mica_graph_slice(o->graph, outer(o, 0), data->axis + 1, data->start, data->count, data->step);
    return true;
}

static bool joined(one *o)
{
    const uint32_t count = o->node->input_count;
    mica_tensor *in = mica__alloc(count * sizeof *in);
    if (in == NULL)
        return mica__graph_fail(o->graph, MICA_ERR_OUT_OF_MEMORY, "vmap", "no memory for %u tensors",
                                count) == 0;
    for (uint32_t i = 0; i < count; i++)
        in[i] = aligned(o, i, rank(o, i), true);
    o->out[0] = mica_graph_concat(o->graph, in, count, ((const mica__concat_data *)o->node->data)->axis + 1);
    mica__free(in);
    return true;
}

/* ---- ops ---- */

static void add_op(one *o, const void *params, const mica_tensor *in)
{
    const mica__op_data *data = o->node->data;
    (void)mica_graph_op(o->graph, (mica_op)o->node->code, params, in, o->node->input_count, data->wanted,
                        NULL, o->out, o->node->output_count);
}

/* Whether somebody asked for types or shapes that do not follow. */
static bool is_asked(const one *o)
{
    const mica__op_data *data = o->node->data;
    bool asked = false;
    for (uint32_t i = 0; i < o->node->output_count; i++)
        asked |= data->asked[i].dtype != MICA_DTYPE_NONE;
    return asked;
}

/* Of the last dimensions, whatever stands before them: all inputs have these. */
static bool by_rows(one *o)
{
    mica_tensor in[8] = {0};
    if (is_asked(o) || o->node->input_count > 8)
        return false;
    for (uint32_t i = 0; i < o->node->input_count; i++)
        in[i] = o->in[i] == 0 ? 0 : aligned(o, i, rank(o, i), true);
    add_op(o, mica__op_params(o->node), in);
    return true;
}

/* The same, where inputs but the first repeat to it. */
static bool by_rows_repeating(one *o)
{
    mica_tensor in[8] = {0};
    if (is_asked(o) || o->node->input_count > 8)
        return false;
    in[0] = aligned(o, 0, rank(o, 0), true);
    for (uint32_t i = 1; i < o->node->input_count; i++)
        in[i] = o->in[i] == 0 ? 0 : aligned(o, i, rank(o, 0), false);
    add_op(o, mica__op_params(o->node), in);
    return true;
}

/* The same, where the others are one vector for all rows. */
static bool by_rows_shared(one *o)
{
    for (uint32_t i = 1; i < o->node->input_count; i++)
        if (o->in[i] != 0 && is_many(o, i))
            return false;
    return by_rows_repeating(o);
}

static bool reduced(one *o)
{
    const mica_reduce_params *given = mica__op_params(o->node);
    mica_reduce_params params = given != NULL ? *given : (mica_reduce_params){.kind = MICA_REDUCE_SUM};
    if (rank(o, 0) == 0 || is_asked(o))
        return false;
    if (params.axes == 0)
        params.axes = (1u << rank(o, 0)) - 1;
    add_op(o, &params, (const mica_tensor[]){outer(o, 0)});
    return true;
}

static bool product(one *o)
{
    const uint32_t a = rank(o, 0), b = rank(o, 1), ndim = a > b ? a : b;
    mica_tensor in[5] = {0};
    if (is_asked(o) || o->in[3] != 0 || o->in[4] != 0 || ndim >= MICA_MAX_DIMS)
        return false;
    for (uint32_t i = 0; i < 3; i++)
        in[i] = o->in[i] == 0 ? 0 : aligned(o, i, ndim, false);
    add_op(o, NULL, in);
    return true;
}

/* Rows of x times weights that are the same for all. */
static bool matmul(one *o)
{
    if (is_asked(o) || rank(o, 0) > 3 || !is_many(o, 0) || o->node->input_count != 2 || is_many(o, 1) ||
        rank(o, 1) != 2)
        return false;
    add_op(o, mica__op_params(o->node), (const mica_tensor[]){outer(o, 0), outer(o, 1)});
    return true;
}

static bool padded(one *o)
{
    const mica_pad_params *given = mica__op_params(o->node);
    mica_pad_params params = {.mode = MICA_PAD_CONSTANT};
    if (given != NULL) {
        params = *given;
        params.low[0] = params.high[0] = 0;
        memcpy(params.low + 1, given->low, (MICA_MAX_DIMS - 1) * sizeof params.low[0]);
        memcpy(params.high + 1, given->high, (MICA_MAX_DIMS - 1) * sizeof params.high[0]);
    }
    add_op(o, &params, (const mica_tensor[]){outer(o, 0)});
    return true;
}

/* x is many and the ids are a vector, or both are many with a dimension for each. */
static bool gathered(one *o)
{
    const mica_gather_params *given = mica__op_params(o->node);
    const mica_gather_params params = {.axis = (given != NULL ? given->axis : 0) + 1};
    const bool vector = rank(o, 1) == 1 && rank(o, 0) != 1;
    if (is_asked(o) || !is_many(o, 0) || (is_many(o, 1) && vector) || (!is_many(o, 1) && !vector))
        return false;
    add_op(o, &params, (const mica_tensor[]){outer(o, 0), outer(o, 1)});
    return true;
}

/* Images of all slices as one batch; the weights are the same for all. */
static bool conv(one *o)
{
    mica_graph *graph = o->graph;
    const mica_tensor x = outer(o, 0), y = mica__node_outputs(o->body, o->node)[0];
    if (is_asked(o) || !is_many(o, 0) || is_many(o, 1) || (o->in[2] != 0 && is_many(o, 2)))
        return false;
    mica__type type = mica__type_copy(graph, x);
    memmove(type.shape, type.shape + 1, (type.ndim - 1) * sizeof type.shape[0]);
    type.ndim--;
    const uint64_t images = type.shape[0];
    type.shape[0] = MICA_SIZE_REST;
    const mica_tensor flat = mica_graph_reshape(graph, x, type.ndim, type.shape);
    add_op(o, mica__op_params(o->node), (const mica_tensor[]){flat, outer(o, 1), outer(o, 2)});
    type = mica__type_copy(graph, o->out[0]);
    memmove(type.shape + 2, type.shape + 1, (type.ndim - 1) * sizeof type.shape[0]);
    type.shape[0] = o->all->n;
    type.shape[1] = images;
    type.ndim = mica__type_of(o->body, y)->ndim + 1;
    o->out[0] = mica__reshape_to(graph, o->out[0], &type);
    return true;
}

typedef bool rule(one *o);

static rule *const ops[MICA_OP_COUNT] = {
    [MICA_OP_REDUCE] = reduced,
    [MICA_OP_PRODUCT] = product,
    [MICA_OP_MATMUL] = matmul,
    [MICA_OP_PAD] = padded,
    [MICA_OP_GATHER] = gathered,
    [MICA_OP_CONV] = conv,
    [MICA_OP_SOFTMAX] = by_rows_repeating,
    [MICA_OP_NORMALIZE] = by_rows_repeating,
    [MICA_OP_RMS_NORM] = by_rows_shared,
    [MICA_OP_LAYER_NORM] = by_rows_shared,
    [MICA_OP_HADAMARD] = by_rows_shared,
    [MICA_OP_SCAN] = by_rows,
    [MICA_OP_ARGMAX] = by_rows,
    [MICA_OP_FFT] = by_rows,
    [MICA_OP_TRIANGULAR_SOLVE] = by_rows,
    [MICA_OP_CHOLESKY] = by_rows,
    [MICA_OP_SOLVE] = by_rows,
    [MICA_OP_INVERSE] = by_rows,
    [MICA_OP_DETERMINANT] = by_rows,
    [MICA_OP_QR] = by_rows,
    [MICA_OP_EIGH] = by_rows,
    [MICA_OP_SVD] = by_rows,
    [MICA_OP_POOL_WINDOWS] = by_rows,
    [MICA_OP_SOFTMAX_BACKWARD] = by_rows,
};

static rule *const kinds[MICA_NODE_COUNT] = {
    [MICA_NODE_SCALAR] = elementwise, [MICA_NODE_REGION] = elementwise, [MICA_NODE_CAST] = cast,
    [MICA_NODE_BITS] = cast,          [MICA_NODE_STOP_GRADIENT] = cast, [MICA_NODE_RESHAPE] = shaped,
    [MICA_NODE_EXPAND] = shaped,      [MICA_NODE_PERMUTE] = permuted,   [MICA_NODE_SLICE] = sliced,
    [MICA_NODE_CONCAT] = joined,
};

/* ---- slice by slice ---- */

/* A body of this node alone: inputs that are many first. */
static mica_graph *alone(const one *o, uint32_t *out_many)
{
    mica_graph *made = NULL;
    mica__rewrite rewrite = {.from = o->body};
    const mica_status status = mica_graph_create(&made);
    rewrite.to = made;
    rewrite.map = status == MICA_OK ? mica__calloc(o->body->tensor_count, sizeof *rewrite.map) : NULL;
    if (rewrite.map == NULL) {
        (void)mica__graph_fail(o->graph, MICA_ERR_OUT_OF_MEMORY, "vmap", "no memory for a sub-graph");
        mica_graph_release(made);
        return NULL;
    }
    for (uint32_t i = 0; i < o->body->symbol_count; i++) /* they keep their numbers */
        (void)mica_graph_symbol(made, o->body->text + o->body->symbol[i]);
    *out_many = 0;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < o->node->input_count; i++) {
            char name[24];
            if (o->in[i] == 0 || is_many(o, i) != (pass == 0))
                continue;
            const mica__type *type = mica__type_of(o->body, o->in[i]);
            snprintf(name, sizeof name, "%u", i);
            rewrite.map[o->in[i]] = mica_graph_input(made, name, type->dtype, type->ndim, type->shape);
            *out_many += pass == 0;
        }
    (void)mica__graph_again(&rewrite, o->at);
    for (uint32_t i = 0; i < o->node->output_count; i++) {
        char name[24];
        snprintf(name, sizeof name, "%u", i);
        const mica_tensor y = rewrite.map[mica__node_outputs(o->body, o->node)[i]];
        if (y != 0)
            (void)mica_graph_output(made, name, y);
    }
    mica__free(rewrite.map);
    if (made->status == MICA_OK)
        return made;
    (void)mica__graph_fail(o->graph, made->status, "vmap", "in a slice: %s", made->sentence);
    mica_graph_release(made);
    return NULL;
}

static void slice_by_slice(one *o)
{
    const uint32_t count = o->node->input_count, outputs = o->node->output_count;
    mica_tensor *in = mica__calloc((size_t)count + outputs + 1, sizeof *in);
    uint32_t many = 0, used = 0;
    mica_graph *body = in == NULL ? NULL : alone(o, &many);
    if (in == NULL)
        (void)mica__graph_fail(o->graph, MICA_ERR_OUT_OF_MEMORY, "vmap", "no memory for %u tensors", count);
    if (body != NULL) {
        for (uint32_t pass = 0; pass < 2; pass++)
            for (uint32_t i = 0; i < count; i++)
                if (o->in[i] != 0 && is_many(o, i) == (pass == 0))
                    in[used++] = outer(o, i);
        const mica_scan_desc desc = {.scanned = many, .others = used - many};
        const mica_tensor *inner = mica__node_outputs(o->body, o->node);
        mica_tensor *results = in + count;
        (void)mica_graph_scan(o->graph, body, &desc, in, results, body->outputs.count);
        for (uint32_t i = 0, r = 0; i < outputs; i++)
            o->out[i] = inner[i] == 0 ? 0 : results[r++];
    }
    mica_graph_release(body);
    mica__free(in);
}

/* ---- a body ---- */

static bool map_node(batch *all, uint32_t at)
{
    const mica_graph *body = all->rewrite.from;
    mica_graph *graph = all->rewrite.to;
    const mica__node *node = &body->node[at];
    const mica_tensor *in = mica__node_inputs(body, node), *inner = mica__node_outputs(body, node);
    bool many = false;
    for (uint32_t i = 0; i < node->input_count; i++)
        many |= all->many[in[i]];
    if (!many)
        return mica__graph_again(&all->rewrite, at);
    mica_tensor *out = mica__calloc((size_t)node->output_count + 1, sizeof *out);
    if (out == NULL)
        return mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "vmap", "no memory for %u tensors",
                                node->output_count) != 0;
    one o = {all, graph, body, node, at, in, out};
    const uint32_t label = graph->label;
    const uint16_t round = graph->round;
    const uint8_t place = graph->place;
    mica__rewrite_mark(&all->rewrite, node);
    rule *write = node->kind == MICA_NODE_OP ? ops[node->code] : kinds[node->kind];
    if (write == NULL || !write(&o))
        slice_by_slice(&o);
    graph->label = label;
    graph->round = round;
    graph->place = place;
    for (uint32_t i = 0; i < node->output_count; i++)
        if (inner[i] != 0) {
            all->rewrite.map[inner[i]] = out[i];
            all->many[inner[i]] = true;
        }
    mica__free(out);
    return graph->status == MICA_OK;
}

/* What the body's symbols are: as its inputs say, slices without their first dimension. */
static bool bind_slices(batch *all, const uint8_t *mapped, const mica_tensor *inputs, uint64_t *size)
{
    const mica_graph *body = all->rewrite.from;
    mica_graph *graph = all->rewrite.to;
    mica__type *types = mica__calloc((size_t)body->input_count + 1, sizeof *types);
    if (types == NULL)
        return mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "vmap", "no memory for types") != 0;
    bool fits = true, any = false;
    for (uint32_t i = 0; i < body->input_count && fits; i++) {
        const mica__type *type = mica__graph_takes(graph, "vmap", "an input", inputs[i]);
        if (type == NULL || (mapped[i] != 0 && type->ndim == 0)) {
            fits = false;
            break;
        }
        types[i] = *type;
        if (mapped[i] == 0)
            continue;
        fits = !any || mica__sizes_agree(all->n, type->shape[0]);
        all->n = any && mica__size_known(all->n) ? all->n : type->shape[0];
        any = true;
        memmove(types[i].shape, types[i].shape + 1, (type->ndim - 1) * sizeof types[i].shape[0]);
        types[i].ndim--;
    }
    fits = fits && any && mica__graph_bind(body, types, size);
    mica__free(types);
    return fits || mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "vmap",
                                    any ? "the inputs, or their slices, are not what the body takes"
                                        : "no input is mapped") != 0;
}

static bool takes_body(mica_graph *graph, const mica_graph *body, uint32_t input_count, uint32_t output_count)
{
    if (body->status != MICA_OK)
        return mica__graph_fail(graph, body->status, "vmap", "body failed: %s", body->sentence) != 0;
    if (body == graph || body->parameter_count != 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "vmap", "body %s",
                                body == graph ? "is the graph itself" : "has parameters") != 0;
    if (body->input_count != input_count || body->outputs.count != output_count || output_count == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "vmap",
                                "body has %u inputs and %u outputs, not %u and %u", body->input_count,
                                body->outputs.count, input_count, output_count) != 0;
    return true;
}

static void map_body(batch *all, const uint8_t *mapped, const mica_tensor *inputs, mica_tensor *outputs)
{
    const mica_graph *body = all->rewrite.from;
    mica_graph *graph = all->rewrite.to;
    for (uint32_t i = 0; i < body->input_count; i++) {
        all->rewrite.map[body->inputs[i]] = inputs[i];
        all->many[body->inputs[i]] = mapped[i] != 0;
    }
    for (uint32_t i = 0; i < body->node_count && graph->status == MICA_OK; i++)
        if (body->node[i].kind != MICA_NODE_INPUT)
            (void)map_node(all, i);
    for (uint32_t i = 0; i < body->outputs.count && graph->status == MICA_OK; i++) {
        const mica_tensor y = body->outputs.list[i].tensor;
        outputs[i] = all->rewrite.map[y];
        if (all->many[y])
            continue;
        mica__type type = mica__type_copy(graph, outputs[i]); /* the same for all */
        memmove(type.shape + 1, type.shape, type.ndim * sizeof type.shape[0]);
        type.shape[0] = all->n;
        outputs[i] = mica_graph_expand(graph, outputs[i], type.ndim + 1, type.shape);
    }
}

mica_tensor mica_graph_vmap(mica_graph *graph, const mica_graph *body, const uint8_t *mapped,
                            const mica_tensor *inputs, uint32_t input_count, mica_tensor *outputs,
                            uint32_t output_count)
{
    for (uint32_t i = 0; i < output_count && outputs != NULL; i++)
        outputs[i] = 0;
    if (!mica__graph_begins(graph, "vmap"))
        return 0;
    if (body == NULL || mapped == NULL || inputs == NULL || outputs == NULL)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "vmap", "%s is NULL",
                                body == NULL     ? "body"
                                : mapped == NULL ? "mapped"
                                : inputs == NULL ? "inputs"
                                                 : "outputs");
    if (!takes_body(graph, body, input_count, output_count))
        return 0;
    uint64_t *size = mica__calloc((size_t)body->symbol_count + 1, sizeof *size);
    batch all = {.rewrite = {.from = body, .to = graph, .binding = size}};
    all.rewrite.map = mica__calloc(body->tensor_count, sizeof *all.rewrite.map);
    all.many = mica__calloc(body->tensor_count, sizeof *all.many);
    if (size == NULL || all.rewrite.map == NULL || all.many == NULL)
        (void)mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "vmap", "no memory");
    else if (bind_slices(&all, mapped, inputs, size))
        map_body(&all, mapped, inputs, outputs);
    mica__free(size);
    mica__free(all.rewrite.map);
    mica__free(all.many);
    for (uint32_t i = 0; i < output_count && graph->status != MICA_OK; i++)
        outputs[i] = 0;
    return outputs[0];
}
