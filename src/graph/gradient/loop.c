/*
 * loop.c - loops in other loops, which have derivatives: a loop with a bound is one of so many rounds, of which those behind its end do nothing; a loop of many
 * rounds is a loop of loops, so that what is carried is kept for each of the outer rounds, and computed again within one.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/gradient/rules.h"

enum { LONG = 256 }; /* rounds, above which a loop is split */

static mica_tensor numbered_input(mica_graph *body, const mica__type *type)
{
    char name[24];
    snprintf(name, sizeof name, "%u", body->input_count);
    return mica_graph_input(body, name, type->dtype, type->ndim, type->shape);
}

static void numbered_output(mica_graph *body, mica_tensor value)
{
    char name[24];
    snprintf(name, sizeof name, "%u", body->outputs.count);
    (void)mica_graph_output(body, name, value);
}

static mica_graph *body_like(mica_graph *graph, const mica_graph *like)
{
    mica_graph *body = NULL;
    const mica_status status = mica_graph_create(&body);
    if (status != MICA_OK)
        (void)mica__graph_fail(graph, status, "gradient", "no memory for a sub-graph");
    for (uint32_t i = 0; status == MICA_OK && i < like->symbol_count; i++)
        (void)mica_graph_symbol(body, like->text + like->symbol[i]);
    return body;
}

/* ---- a loop that ends by a condition ---- */

/* What is carried, as it is. */
static mica_graph *identity(mica_graph *graph, const mica_graph *body, uint32_t carried)
{
    mica_graph *same = body_like(graph, body);
    for (uint32_t i = 0; same != NULL && i < body->input_count; i++) {
        const mica_tensor x = numbered_input(same, mica__type_of(body, body->inputs[i]));
        if (i < carried)
            numbered_output(same, x);
    }
    return same;
}

/* One round: whether the loop still goes on, then one of both bodies. `list` has room for two of each input. */
static mica_graph *round_body(mica_graph *graph, const mica__body_data *data, mica_tensor *list)
{
    const mica_graph *condition = data->body[0], *body = data->body[1];
    const mica__type flag = {.dtype = MICA_DTYPE_BOOL};
    mica_graph *made = body_like(graph, body), *same = identity(graph, body, data->carried);
    mica_tensor goes_on = 0;
    if (made != NULL && same != NULL) {
        const mica_tensor active = numbered_input(made, &flag);
        mica_tensor *outputs = list + body->input_count;
        for (uint32_t i = 0; i < body->input_count; i++)
            list[i] = numbered_input(made, mica__type_of(body, body->inputs[i]));
        (void)mica__graph_inline(made, condition, list, &goes_on);
        goes_on = mica_graph_bit_and(made, active, mica__reshape_to(made, goes_on, &flag));
        (void)mica_graph_if(made, goes_on, body, same, list, body->input_count, outputs, data->carried);
        numbered_output(made, goes_on);
        for (uint32_t i = 0; i < data->carried; i++)
            numbered_output(made, outputs[i]);
        if (made->status != MICA_OK)
            (void)mica__graph_fail(graph, made->status, "gradient", "in a sub-graph: %s", made->sentence);
    }
    mica_graph_release(same);
    if (graph->status == MICA_OK)
        return made;
    mica_graph_release(made);
    return NULL;
}

void mica__expand_while(mica__back *b, mica_tensor *out)
{
    const mica__body_data *data = b->node.data;
    mica_graph *graph = b->graph;
    const uint32_t in = b->node.input_count;
    if (data->most == 0) {
        mica__back_refuses(b, "has no bound, and so no derivative");
        return;
    }
    mica_tensor *list = mica__alloc((2 * (size_t)in + 2) * sizeof *list);
    if (list == NULL) {
        (void)mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "gradient", "no memory for %u tensors", in);
        return;
    }
    mica__body_data scan = {
        .body = {round_body(graph, data, list), NULL},
        .scan = {.carried = data->carried + 1, .others = in - data->carried, .length = data->most}};
    if (scan.body[0] != NULL) {
        list[0] = mica_graph_number(graph, MICA_DTYPE_BOOL, 1);
        memcpy(list + 1, b->in, in * sizeof *list);
        mica_tensor *results = list + in + 1;
        if (mica__graph_body_node(graph, MICA_NODE_SCAN, &scan, list, in + 1, results, data->carried + 1) !=
            0)
            memcpy(out, results + 1, data->carried * sizeof *out);
    }
    mica__free(list);
}

/* ---- a loop of many rounds ---- */

static uint64_t rounds_of(const mica_graph *graph, const mica__body_data *data, const mica_tensor *in)
{
    if (data->scan.length != 0 || data->scan.scanned == 0)
        return data->scan.length;
    return mica__type_of(graph, in[data->scan.carried])->shape[0];
}

bool mica__scan_is_long(const mica_graph *graph, const mica__node *node, const mica_tensor *in)
{
    const mica__body_data *data = node->data;
    const uint64_t rounds = rounds_of(graph, data, in);
    return data->scan.carried != 0 && mica__size_known(rounds) && rounds > LONG;
}

/* A scan of `rounds` in parts: `count` parts of `each`, then (reversed: before) those that are left. */
typedef struct parts {
    mica__back *b;
    const mica__body_data *data;
    uint64_t count, each, left;
    mica_tensor *in, *results; /* of a node, one after the other */
} parts;

/* x [T, ..] as the part behind the first count x each; as [count, each, ..] of these. */
static mica_tensor part_of(const parts *p, mica_tensor x, bool rest)
{
    mica_graph *graph = p->b->graph;
    const uint64_t main = p->count * p->each;
    if (rest)
        return mica_graph_slice(graph, x, 0, main, p->left, 1);
    mica__type type = mica__type_copy(graph, x);
    if (p->left != 0)
        x = mica_graph_slice(graph, x, 0, 0, main, 1);
    memmove(type.shape + 2, type.shape + 1, (type.ndim - 1) * sizeof type.shape[0]);
    type.ndim++;
    type.shape[0] = p->count;
    type.shape[1] = p->each;
    return mica__reshape_to(graph, x, &type);
}

/* A scan over some of what is scanned; `carried` goes in and comes out, slices go to `slices`. */
static void run_part(parts *p, mica_graph *body, bool rest, mica_tensor *carried, mica_tensor *slices)
{
    const mica_scan_desc *desc = &p->data->scan;
    mica_graph *graph = p->b->graph;
    mica__body_data data = {.body = {body, NULL}, .scan = *desc};
    const uint32_t stacked = p->b->node.output_count - desc->carried;
    memcpy(p->in, carried, desc->carried * sizeof *p->in);
    for (uint32_t i = 0; i < desc->scanned; i++)
        p->in[desc->carried + i] = part_of(p, p->b->in[desc->carried + i], rest);
    memcpy(p->in + desc->carried + desc->scanned, p->b->in + desc->carried + desc->scanned,
           desc->others * sizeof *p->in);
    data.scan.length = rest ? p->left : p->count;
    if (mica__graph_body_node(graph, MICA_NODE_SCAN, &data, p->in, p->b->node.input_count, p->results,
                              p->b->node.output_count) == 0)
        return;
    memcpy(carried, p->results, desc->carried * sizeof *carried);
    memcpy(slices, p->results + desc->carried, stacked * sizeof *slices);
}

/* A body that is the scan of `each` rounds. */
static mica_graph *part_body(const parts *p)
{
    const mica_graph *body = p->data->body[0];
    const mica_scan_desc *desc = &p->data->scan;
    mica_graph *graph = p->b->graph, *made = body_like(graph, body);
    mica_scan_desc inner = *desc;
    inner.length = p->each;
    for (uint32_t i = 0; made != NULL && i < body->input_count; i++) {
        mica__type type = *mica__type_of(body, body->inputs[i]);
        if (i >= desc->carried && i < desc->carried + desc->scanned) {
            memmove(type.shape + 1, type.shape, type.ndim * sizeof type.shape[0]);
            type.shape[0] = p->each;
            type.ndim++;
        }
        p->in[i] = numbered_input(made, &type);
    }
    if (made == NULL)
        return NULL;
    (void)mica_graph_scan(made, body, &inner, p->in, p->results, p->b->node.output_count);
    for (uint32_t i = 0; i < p->b->node.output_count; i++)
        numbered_output(made, p->results[i]);
    if (made->status == MICA_OK)
        return made;
    (void)mica__graph_fail(graph, made->status, "gradient", "in a sub-graph: %s", made->sentence);
    mica_graph_release(made);
    return NULL;
}

/* Slices [count, each, ..] as [count x each, ..], beside those that were left. */
static mica_tensor joined(const parts *p, mica_tensor main, mica_tensor rest)
{
    mica_graph *graph = p->b->graph;
    mica__type type = mica__type_copy(graph, main);
    type.shape[0] = p->count * p->each;
    memmove(type.shape + 1, type.shape + 2, (type.ndim - 2) * sizeof type.shape[0]);
    type.ndim--;
    const mica_tensor flat = mica__reshape_to(graph, main, &type);
    return p->left == 0 ? flat : mica_graph_concat(graph, (const mica_tensor[]){flat, rest}, 2, 0);
}

void mica__expand_scan_node(mica__back *b, mica_tensor *out)
{
    const mica__body_data *data = b->node.data;
    mica_graph *graph = b->graph;
    const uint32_t carried = data->scan.carried, outputs = b->node.output_count, stacked = outputs - carried;
    const uint64_t rounds = rounds_of(graph, data, b->in);
    parts p = {.b = b, .data = data, .each = (uint64_t)sqrt((double)rounds)};
    p.count = rounds / p.each;
    p.left = rounds % p.each;
    const size_t room = (size_t)b->node.input_count + 3 * (size_t)outputs + 1;
    mica_tensor *memory = mica__calloc(room, sizeof *memory);
    if (memory == NULL) {
        (void)mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "gradient", "no memory for %zu tensors", room);
        return;
    }
    p.in = memory;
    p.results = memory + b->node.input_count;
    mica_tensor *main = p.results + outputs, *rest = main + stacked;
    memcpy(out, b->in, carried * sizeof *out);
    for (uint32_t step = 0; step < 2 && graph->status == MICA_OK; step++) {
        const bool at_rest = (step == 0) == (data->scan.reverse != 0);
        mica_graph *body = NULL;
        if (at_rest && p.left == 0)
            continue;
        if (at_rest && mica_graph_clone(data->body[0], &body) != MICA_OK)
            (void)mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "gradient", "a sub-graph cannot be copied");
        else if (!at_rest)
            body = part_body(&p);
        if (body != NULL)
            run_part(&p, body, at_rest, out, at_rest ? rest : main);
    }
    for (uint32_t i = 0; i < stacked && graph->status == MICA_OK; i++)
        out[carried + i] = joined(&p, main[i], rest[i]);
    mica__free(memory);
}
