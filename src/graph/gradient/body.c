/*
 * body.c - derivatives of nodes over sub-graphs. What a sub-graph computed inside is not kept: the sub-graph of its gradient computes it again, out of the same
 * inputs; a loop keeps what it carried from round to round, and loops of many rounds keep it for about the root of their number.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/gradient/rules.h"

/* ---- bodies that are put together ---- */

/* A new body: inputs are named by their number, and so are outputs. Symbols are those of `like`, by their numbers. */
static mica_graph *new_body(mica_graph *graph, const mica_graph *like)
{
    mica_graph *body = NULL;
    const mica_status status = mica_graph_create(&body);
    if (status != MICA_OK)
        (void)mica__graph_fail(graph, status, "gradient", "no memory for a sub-graph");
    for (uint32_t i = 0; status == MICA_OK && i < like->symbol_count; i++)
        (void)mica_graph_symbol(body, like->text + like->symbol[i]);
    return body;
}

static mica_tensor body_input(mica_graph *body, const mica__type *type)
{
    char name[24];
    snprintf(name, sizeof name, "%u", body->input_count);
    return mica_graph_input(body, name, type->dtype, type->ndim, type->shape);
}

static void body_output(mica_graph *body, mica_tensor value)
{
    char name[24];
    snprintf(name, sizeof name, "%u", body->outputs.count);
    (void)mica_graph_output(body, name, value);
}

/* A failure inside is the graph's. */
static bool body_is_fine(mica_graph *graph, const mica_graph *body)
{
    if (body == NULL || body->status == MICA_OK)
        return body != NULL;
    return mica__graph_fail(graph, body->status, "gradient", "in a sub-graph: %s", body->sentence) != 0;
}

/* Lists that are as long as a node has tensors: freed together. */
typedef struct lists {
    mica_tensor *memory;
    uint32_t used, room;
} lists;

static bool lists_begin(mica_graph *graph, lists *all, uint64_t room)
{
    *all = (lists){.memory = mica__calloc(room + 1, sizeof(mica_tensor)), .room = (uint32_t)room + 1};
    return all->memory != NULL ||
           mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "gradient", "no memory for %llu tensors",
                            (unsigned long long)room) != 0;
}

static mica_tensor *lists_take(lists *all, uint32_t count)
{
    mica_tensor *list = all->memory + all->used;
    all->used += count;
    return list;
}

static bool is_float_of(const mica_graph *graph, mica_tensor x)
{
    return mica__is_float(mica__type_of(graph, x)->dtype);
}

/* ---- calls and choices ---- */

/*
 * The gradient of a body as a body: its inputs are those of `body`, then what reaches each output that something reaches; its outputs what reaches each input
 * that is wanted.
 */
static mica_graph *gradient_body(mica_graph *graph, const mica_graph *body, const bool *wanted,
                                 const mica_tensor *dy)
{
    const uint32_t in = body->input_count, out = body->outputs.count;
    mica_graph *made = new_body(graph, body);
    lists all;
    if (made == NULL || !lists_begin(graph, &all, 2ull * in + 4ull * out)) {
        mica_graph_release(made);
        return NULL;
    }
    mica_tensor *inputs = lists_take(&all, in), *of = lists_take(&all, in), *outputs = lists_take(&all, out),
                *values = lists_take(&all, out), *seeds = lists_take(&all, out), *results = of;
    uint32_t count = 0, value_count = 0;
    for (uint32_t i = 0; i < in; i++)
        inputs[i] = body_input(made, mica__type_of(body, body->inputs[i]));
    for (uint32_t i = 0; i < out; i++)
        if (dy[i] != 0)
            seeds[value_count++] = body_input(made, mica__type_of(body, body->outputs.list[i].tensor));
    if (mica__graph_inline(made, body, inputs, outputs)) {
        value_count = 0;
        for (uint32_t i = 0; i < out; i++)
            if (dy[i] != 0)
                values[value_count++] = outputs[i];
        for (uint32_t i = 0; i < in; i++)
            if (wanted[i])
                of[count++] = inputs[i];
        (void)mica__gradients(made, values, seeds, value_count, of, count, results);
        for (uint32_t i = 0; i < count; i++)
            body_output(made, results[i]);
    }
    mica__free(all.memory);
    if (body_is_fine(graph, made))
        return made;
    mica_graph_release(made);
    return NULL;
}

/* The node over such bodies: inputs of the forward node, then what reaches its outputs. */
static void gradient_node(mica__back *b, mica_node_kind kind, mica__body_data *data, uint32_t first_wanted)
{
    const uint32_t in = b->node.input_count, out = b->node.output_count;
    lists all;
    uint32_t count = in, wanted = 0;
    if (!lists_begin(b->graph, &all, 2ull * in + out)) {
        mica_graph_release(data->body[0]);
        mica_graph_release(data->body[1]);
        return;
    }
    mica_tensor *inputs = lists_take(&all, in + out), *results = lists_take(&all, in);
    memcpy(inputs, b->in, in * sizeof *inputs);
    for (uint32_t i = 0; i < out; i++)
        if (b->dy[i] != 0)
            inputs[count++] = b->dy[i];
    for (uint32_t i = first_wanted; i < in; i++)
        wanted += b->wanted[i];
    if (mica__graph_body_node(b->graph, kind, data, inputs, count, results, wanted) != 0)
        for (uint32_t i = first_wanted, r = 0; i < in; i++)
            if (b->wanted[i])
                b->dx[i] = results[r++];
    mica__free(all.memory);
}

/* The caller's own gradient: of the inputs, the outputs, and what reaches these. */
static void custom_gradient(mica__back *b, const mica_graph *gradient)
{
    mica_graph *graph = b->graph;
    const uint32_t in = b->node.input_count, out = b->node.output_count;
    mica__body_data data = {.flags = 0};
    lists all;
    const mica_status status = mica_graph_clone(gradient, &data.body[0]);
    if (status != MICA_OK) {
        (void)mica__graph_fail(graph, status, "gradient", "a sub-graph cannot be copied");
        return;
    }
    if (!lists_begin(graph, &all, 2ull * in + 2ull * out)) {
        mica_graph_release(data.body[0]);
        return;
    }
    mica_tensor *inputs = lists_take(&all, in + 2 * out), *results = lists_take(&all, in);
    memcpy(inputs, b->in, in * sizeof *inputs);
    memcpy(inputs + in, b->out, out * sizeof *inputs);
    for (uint32_t i = 0; i < out; i++)
        inputs[in + out + i] =
            b->dy[i] != 0 ? b->dy[i]
                          : mica__zeros_like(graph, b->out[i], mica__type_of(graph, b->out[i])->dtype);
    if (mica__graph_body_node(graph, MICA_NODE_CALL, &data, inputs, in + 2 * out, results, in) != 0)
        for (uint32_t i = 0; i < in; i++)
            b->dx[i] = b->wanted[i] ? results[i] : 0;
    mica__free(all.memory);
}

mica__derived mica__derive_call(mica__back *b)
{
    const mica__body_data *data = b->node.data;
    if (data->body[1] != NULL) {
        custom_gradient(b, data->body[1]);
        return MICA__DERIVED;
    }
    if ((data->flags & MICA_CALL_CHECKPOINT) == 0)
        return MICA__DERIVE_EXPANDS;
    mica__body_data back = {.flags = data->flags,
                            .body = {gradient_body(b->graph, data->body[0], b->wanted, b->dy), NULL}};
    if (back.body[0] != NULL)
        gradient_node(b, MICA_NODE_CALL, &back, 0);
    return MICA__DERIVED;
}

void mica__expand_call(mica__back *b, mica_tensor *out)
{
    (void)mica__graph_inline(b->graph, ((const mica__body_data *)b->node.data)->body[0], b->in, out);
}

/* One of both gradients runs. Input 0 is the predicate. */
mica__derived mica__derive_if(mica__back *b)
{
    const mica__body_data *data = b->node.data;
    mica__body_data back = {.body = {gradient_body(b->graph, data->body[0], b->wanted + 1, b->dy), NULL}};
    if (back.body[0] != NULL)
        back.body[1] = gradient_body(b->graph, data->body[1], b->wanted + 1, b->dy);
    if (back.body[1] != NULL)
        gradient_node(b, MICA_NODE_IF, &back, 1);
    else
        mica_graph_release(back.body[0]);
    return MICA__DERIVED;
}

/* ---- loops of a known number of rounds ---- */

/* A scan on the way back. Carried: what reaches what was carried, then the sums of what reaches the others; scanned: what was scanned, what was carried into
 * each round, what reaches each slice that was given. */
typedef struct scan_back {
    mica__back *b;
    const mica_graph *body;
    mica_scan_desc desc;
    uint32_t stacked;         /* slices that a round gives */
    const mica_tensor *saved; /* what was carried into each round, stacked */
} scan_back;

/* The forward once more, which gives what it carried as well. */
static bool save_carried(scan_back *s, mica_tensor *saved)
{
    mica_graph *graph = s->b->graph;
    const uint32_t carried = s->desc.carried, outputs = carried + s->stacked;
    mica__body_data data = {.scan = s->desc};
    lists all;
    const mica_status status = mica_graph_clone(s->body, &data.body[0]);
    if (status != MICA_OK)
        return mica__graph_fail(graph, status, "gradient", "a sub-graph cannot be copied") != 0;
    for (uint32_t i = 0; i < carried; i++) {
        char name[40];
        uint32_t n = i;
        do
            snprintf(name, sizeof name, "carried %u", n++);
        while (mica__names_find(data.body[0], &data.body[0]->outputs, name) != 0);
        (void)mica_graph_output(data.body[0], name, data.body[0]->inputs[i]);
    }
    if (!body_is_fine(graph, data.body[0]) || !lists_begin(graph, &all, outputs + carried)) {
        mica_graph_release(data.body[0]);
        return false;
    }
    (void)mica__graph_body_node(graph, MICA_NODE_SCAN, &data, s->b->in, s->b->node.input_count, all.memory,
                                outputs + carried);
    memcpy(saved, all.memory + outputs, carried * sizeof *saved);
    mica__free(all.memory);
    return graph->status == MICA_OK;
}

/* Inputs of the body of the way back, in its order; seeds for what is carried and for slices that something reaches. */
static void scan_back_inputs(const scan_back *s, mica_graph *made, mica_tensor *inputs, mica_tensor *seeds,
                             mica_tensor *sums)
{
    const mica_graph *body = s->body;
    const uint32_t carried = s->desc.carried, scanned = s->desc.scanned, others = s->desc.others;
    uint32_t seed = 0, sum = 0;
    for (uint32_t i = 0; i < carried; i++)
        if (is_float_of(body, body->inputs[i]))
            seeds[seed++] = body_input(made, mica__type_of(body, body->inputs[i]));
    for (uint32_t i = 0; i < others; i++)
        if (s->b->wanted[carried + scanned + i])
            sums[sum++] = body_input(made, mica__type_of(body, body->inputs[carried + scanned + i]));
    for (uint32_t i = 0; i < scanned; i++)
        inputs[carried + i] = body_input(made, mica__type_of(body, body->inputs[carried + i]));
    for (uint32_t i = 0; i < carried; i++)
        inputs[i] = body_input(made, mica__type_of(body, body->inputs[i]));
    for (uint32_t i = 0; i < s->stacked; i++)
        if (s->b->dy[carried + i] != 0)
            seeds[seed++] = body_input(made, mica__type_of(body, body->outputs.list[carried + i].tensor));
    for (uint32_t i = 0; i < others; i++)
        inputs[carried + scanned + i] =
            body_input(made, mica__type_of(body, body->inputs[carried + scanned + i]));
}

/* What the body of the way back gives: what reaches what is carried, the sums, what reaches each slice that is wanted. */
static void scan_back_outputs(const scan_back *s, mica_graph *made, const mica_tensor *inputs,
                              const mica_tensor *outputs, const mica_tensor *seeds, const mica_tensor *sums,
                              mica_tensor *values, mica_tensor *of)
{
    const uint32_t carried = s->desc.carried, scanned = s->desc.scanned, others = s->desc.others;
    uint32_t value_count = 0, count = 0, floats = 0, sum_count = 0;
    for (uint32_t i = 0; i < carried; i++)
        if (is_float_of(s->body, s->body->inputs[i])) {
            values[value_count++] = outputs[i];
            of[count++] = inputs[i];
        }
    floats = count;
    for (uint32_t i = 0; i < s->stacked; i++)
        if (s->b->dy[carried + i] != 0)
            values[value_count++] = outputs[carried + i];
    for (uint32_t i = 0; i < others; i++)
        if (s->b->wanted[carried + scanned + i]) {
            of[count++] = inputs[carried + scanned + i];
            sum_count++;
        }
    for (uint32_t i = 0; i < scanned; i++)
        if (s->b->wanted[carried + i])
            of[count++] = inputs[carried + i];
    if (!mica__gradients(made, values, seeds, value_count, of, count, of))
        return;
    for (uint32_t i = 0; i < count; i++)
        body_output(made, i >= floats && i < floats + sum_count
                              ? mica_graph_add(made, sums[i - floats], of[i])
                              : of[i]);
}

static mica_graph *scan_back_body(const scan_back *s)
{
    const uint32_t in = s->body->input_count, out = s->body->outputs.count;
    mica_graph *made = new_body(s->b->graph, s->body);
    lists all;
    if (made == NULL || !lists_begin(s->b->graph, &all, 3ull * in + 4ull * out + 4ull * in)) {
        mica_graph_release(made);
        return NULL;
    }
    mica_tensor *inputs = lists_take(&all, in), *seeds = lists_take(&all, in + out),
                *sums = lists_take(&all, in), *outputs = lists_take(&all, out),
                *values = lists_take(&all, in + out), *of = lists_take(&all, in);
    scan_back_inputs(s, made, inputs, seeds, sums);
    if (mica__graph_inline(made, s->body, inputs, outputs))
        scan_back_outputs(s, made, inputs, outputs, seeds, sums, values, of);
    mica__free(all.memory);
    if (body_is_fine(s->b->graph, made))
        return made;
    mica_graph_release(made);
    return NULL;
}

/* The node of the way back over its inputs, and its results where they belong. */
static void scan_back_node(const scan_back *s, mica_graph *made, lists *all)
{
    mica__back *b = s->b;
    mica_graph *graph = b->graph;
    const uint32_t carried = s->desc.carried, scanned = s->desc.scanned, others = s->desc.others;
    mica__body_data data = {.body = {made, NULL}, .scan = s->desc};
    mica_tensor *inputs = lists_take(all, 2 * (carried + others) + scanned + s->stacked),
                *results = lists_take(all, carried + scanned + others);
    uint32_t count = 0;
    for (uint32_t i = 0; i < carried; i++)
        if (is_float_of(graph, b->in[i]))
            inputs[count++] = b->dy[i] != 0
                                  ? b->dy[i]
                                  : mica__zeros_like(graph, b->in[i], mica__type_of(graph, b->in[i])->dtype);
    for (uint32_t i = carried + scanned; i < carried + scanned + others; i++)
        if (b->wanted[i])
            inputs[count++] = mica__zeros_like(graph, b->in[i], mica__type_of(graph, b->in[i])->dtype);
    data.scan.carried = count;
    memcpy(inputs + count, b->in + carried, scanned * sizeof *inputs);
    memcpy(inputs + count + scanned, s->saved, carried * sizeof *inputs);
    count += scanned + carried;
    for (uint32_t i = 0; i < s->stacked; i++)
        if (b->dy[carried + i] != 0)
            inputs[count++] = b->dy[carried + i];
    data.scan.scanned = count - data.scan.carried;
    data.scan.reverse ^= 1u;
    memcpy(inputs + count, b->in + carried + scanned, others * sizeof *inputs);
    if (mica__graph_body_node(graph, MICA_NODE_SCAN, &data, inputs, count + others, results,
                              made->outputs.count) == 0)
        return;
    uint32_t r = 0;
    for (uint32_t i = 0; i < carried; i++)
        if (is_float_of(graph, b->in[i]))
            b->dx[i] = results[r++];
    for (uint32_t i = carried + scanned; i < carried + scanned + others; i++)
        if (b->wanted[i])
            b->dx[i] = results[r++];
    for (uint32_t i = carried; i < carried + scanned; i++)
        if (b->wanted[i])
            b->dx[i] = results[r++];
}

mica__derived mica__derive_scan_node(mica__back *b)
{
    const mica__body_data *data = b->node.data;
    scan_back s = {.b = b, .body = data->body[0], .desc = data->scan};
    lists all;
    s.stacked = b->node.output_count - s.desc.carried;
    if (mica__scan_is_long(b->graph, &b->node, b->in))
        return MICA__DERIVE_EXPANDS;
    if (!lists_begin(b->graph, &all, 4ull * b->node.input_count + b->node.output_count))
        return MICA__DERIVED;
    mica_tensor *saved = lists_take(&all, s.desc.carried);
    s.saved = saved;
    if (save_carried(&s, saved)) {
        mica_graph *made = scan_back_body(&s);
        if (made != NULL)
            scan_back_node(&s, made, &all);
    }
    mica__free(all.memory);
    return MICA__DERIVED;
}
