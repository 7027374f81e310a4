/*
 * schedule.c - a graph in steps: giving buffers to what outlives a step, and what each step is on its device (schedule_run.c runs them).
 *
 * What only one step knows is a temporary of its session. What several steps read lies in a buffer of the schedule. An output is computed where it belongs;
 * one that is linked to a leaf is computed in that leaf's own memory where every other use of the old value comes before it, else copied there at the end.
 */
#include "graph/exec/schedule_parts.h"

#include <string.h>

#include "base/alloc.h"
#include "device/objects.h"

/* ---- who uses what ---- */

static void find_roots(mica__schedule *p)
{
    const mica_graph *graph = p->desc.graph;
    for (mica_tensor t = 1; t < graph->tensor_count; t++) {
        const mica__node *node = mica__node_of(graph, t);
        p->root[t] = mica__is_view(node) ? p->root[*mica__node_inputs(graph, node)] : t;
    }
}

/* Marks what outputs need, from behind; nodes nobody needs are not emitted. */
static void find_uses(mica__schedule *p)
{
    const mica_graph *graph = p->desc.graph;
    for (uint32_t i = 0; i < graph->outputs.count; i++) { /* what goes out is never taken by who updates it */
        p->used[graph->outputs.list[i].tensor] = 1;
        p->last_use[p->root[graph->outputs.list[i].tensor]] = UINT32_MAX;
    }
    for (uint32_t n = graph->node_count; n-- > 0;) {
        const mica__node *node = &graph->node[n];
        bool needed = false;
        for (uint32_t i = 0; i < node->output_count; i++)
            needed |= p->used[mica__node_outputs(graph, node)[i]] != 0;
        for (uint32_t i = 0; i < node->input_count && needed; i++) {
            const mica_tensor in = mica__node_inputs(graph, node)[i];
            p->used[in] = 1;
        }
    }
    p->used[0] = 0;
}

/* The last node of the order that uses each tensor, or a view of it. */
static void find_last_uses(mica__schedule *p)
{
    const mica_graph *graph = p->desc.graph;
    for (uint32_t i = 0; i < p->order.count; i++) {
        const uint32_t n = p->order.node[i];
        const mica__node *node = &graph->node[n];
        for (uint32_t k = 0; k < node->input_count; k++) {
            const mica_tensor root = p->root[mica__node_inputs(graph, node)[k]];
            if (!mica__is_view(node) && mica__schedule_uses(p, node) && p->last_use[root] != UINT32_MAX)
                p->last_use[root] = n;
        }
    }
}

/* ---- where outputs belong ---- */

/* The tensor that is computed when `tensor` is: below reshapes, whose elements lie alike. */
static mica_tensor below_reshapes(const mica_graph *graph, mica_tensor tensor)
{
    const mica__node *node = mica__node_of(graph, tensor);
    while (node->kind == MICA_NODE_RESHAPE || node->kind == MICA_NODE_STOP_GRADIENT) {
        tensor = *mica__node_inputs(graph, node);
        node = mica__node_of(graph, tensor);
    }
    return tensor;
}

/* Whether a node may write where `leaf` lies though it reads it there. */
static bool may_overwrite(const mica__schedule *p, const mica__node *node, mica_tensor tensor,
                          mica_tensor leaf)
{
    const mica_graph *graph = p->desc.graph;
    const mica__type *type = mica__type_of(graph, tensor), *old = mica__type_of(graph, leaf);
    const bool elementwise = node->kind == MICA_NODE_SCALAR || node->kind == MICA_NODE_CAST;
    if (!elementwise || type->dtype != old->dtype || type->ndim != old->ndim ||
        memcmp(type->shape, old->shape, type->ndim * sizeof type->shape[0]) != 0)
        return false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const mica_tensor in = mica__node_inputs(graph, node)[i];
        if (p->root[in] == leaf && in != leaf)
            return false;
    }
    return true;
}

/* An op that updates the leaf itself: the new value may take its place. */
static bool updates(const mica__schedule *p, const mica__node *node, mica_tensor tensor, mica_tensor leaf)
{
    const mica_graph *graph = p->desc.graph;
    if (node->kind != MICA_NODE_OP)
        return false;
    uint32_t input = 0, output = 0, uses = 0;
    bool found = false;
    const mica__op_info *info = &mica__ops[node->code];
    for (uint32_t i = 0; i < info->fixed; i++) {
        const mica__slot_info *slot = &info->slot[i];
        if ((slot->flags & (MICA__SLOT_INNER | MICA__SLOT_TABLE)) != 0)
            continue;
        const bool in = (slot->access & MICA_ACCESS_READ) != 0 || (slot->flags & MICA__SLOT_PART) != 0;
        const bool out = (slot->access & MICA_ACCESS_WRITE) != 0;
        if (in && out && mica__node_outputs(graph, node)[output] == tensor)
            found = mica__node_inputs(graph, node)[input] == leaf;
        input += in;
        output += out;
    }
    for (uint32_t i = 0; i < node->input_count; i++)
        uses += p->root[mica__node_inputs(graph, node)[i]] == leaf;
    return found && uses == 1;
}

/* Whether the value that a leaf gets may be computed in its memory. */
static bool fits_in_place(const mica__schedule *p, mica_tensor tensor, mica_tensor leaf)
{
    const mica__tensor *t = &p->desc.graph->tensor[tensor];
    const mica__node *node = &p->desc.graph->node[t->node];
    const uint32_t last = p->last_use[leaf];
    if (mica__is_leaf(node) || mica__is_view(node) || mica__is_control(node) ||
        node->kind == MICA_NODE_CONCAT || last == UINT32_MAX ||
        node->place != mica__node_of(p->desc.graph, leaf)->place)
        return false;
    return p->order.at[last] < p->order.at[t->node] ||
           (last == t->node && (may_overwrite(p, node, tensor, leaf) || updates(p, node, tensor, leaf)));
}

/* Puts `to` where the tensor is computed, in the shape that it has there; false where something is there already. */
static bool place_at(mica__schedule *p, mica_tensor tensor, mica_buffer *to, mica_status *status)
{
    const mica_graph *graph = p->desc.graph;
    const mica_tensor at = below_reshapes(graph, tensor);
    const mica__node *node = mica__node_of(graph, at);
    if (p->fixed[at] != NULL || mica__is_leaf(node) || mica__is_view(node))
        return false;
    *status = mica__buffer_as(to, mica__type_of(graph, at), &p->fixed[at]);
    return true;
}

static mica_status place_outputs(mica__schedule *p)
{
    const mica_graph *graph = p->desc.graph;
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < p->desc.link_count && status == MICA_OK;
         i++) { /* these may overwrite what others read */
        const mica__link *link = &p->desc.link[i];
        const mica_tensor tensor = graph->outputs.list[link->output].tensor;
        const mica_tensor at = below_reshapes(graph, tensor);
        mica_buffer *leaf = p->desc.leaf[link->leaf];
        bool placed =
            leaf == NULL || (at == link->leaf && tensor == at); /* nobody looks, or it stays as it is */
        if (!placed && mica__buffer_contiguous(leaf) && fits_in_place(p, at, link->leaf))
            placed = place_at(p, tensor, leaf, &status);
        if (!placed && status == MICA_OK)
            p->copies[p->copy_count++] = (end_copy){.tensor = tensor, .to = leaf};
    }
    for (uint32_t i = 0; i < graph->outputs.count && status == MICA_OK; i++) {
        mica_buffer *to = p->desc.output[i];
        const mica_tensor tensor = graph->outputs.list[i].tensor;
        if (to != NULL && !place_at(p, tensor, to, &status))
            p->copies[p->copy_count++] = (end_copy){.tensor = tensor, .to = to};
    }
    return status;
}

/* A leaf that another copy changes is kept apart first, and so is what belongs to another place. */
static mica_status guard_copies(mica__schedule *p)
{
    for (uint32_t i = 0; i < p->copy_count; i++) {
        const mica_tensor root = p->root[p->copies[i].tensor];
        bool changed = false;
        for (uint32_t j = 0; j < p->desc.link_count; j++)
            changed |= p->desc.link[j].leaf == root;
        p->copies[i].place = mica__node_of(p->desc.graph, root)->place;
        p->copies[i].crosses =
            mica_buffer_device(p->copies[i].to) != p->desc.station[p->copies[i].place].device;
        if (changed || p->copies[i].crosses)
            MICA__TRY(mica__buffer_of(p->desc.station[p->copies[i].place].device, p->desc.graph,
                                      p->copies[i].tensor, &p->copies[i].through));
    }
    return MICA_OK;
}

/* ---- between steps ---- */

/* A buffer for whatever one step computes and another reads. */
static mica_status keep(mica__schedule *p, mica_tensor tensor, uint32_t user)
{
    const mica_graph *graph = p->desc.graph;
    const mica_tensor root = p->root[tensor];
    if (root == 0 || mica__is_leaf(mica__node_of(graph, root)) ||
        p->order.step[graph->tensor[root].node] == user)
        return MICA_OK;
    p->last_use[root] = UINT32_MAX; /* never taken by who updates it */
    if (p->fixed[root] != NULL)
        return MICA_OK;
    return mica__buffer_of(p->desc.station[mica__node_of(graph, root)->place].device, graph, root,
                           &p->fixed[root]);
}

static mica_status keep_between_steps(mica__schedule *p)
{
    const mica_graph *graph = p->desc.graph;
    for (uint32_t i = 0; i < p->order.count; i++) {
        const uint32_t n = p->order.node[i];
        const mica__node *node = &graph->node[n];
        const bool apart = mica__is_control(node) || mica__crosses(graph, node);
        if (!mica__schedule_uses(p, node) || mica__is_view(node))
            continue;
        for (uint32_t k = 0; k < node->input_count; k++)
            MICA__TRY(keep(p, mica__node_inputs(graph, node)[k], p->order.step[n]));
        for (uint32_t k = 0; k < node->output_count && apart; k++)
            MICA__TRY(keep(p, mica__node_outputs(graph, node)[k], UINT32_MAX));
    }
    for (uint32_t i = 0; i < p->copy_count; i++)
        MICA__TRY(keep(p, p->copies[i].tensor, p->last_step[p->copies[i].place]));
    return MICA_OK;
}

/* ---- emitting a step ---- */

static mica__emitter emitter_of(mica__schedule *p, uint8_t place, mica_session *session,
                                mica_encoder *encoder, mica_buffer **buffer)
{
    return (mica__emitter){.graph = p->desc.graph,
                           .device = p->desc.station[place].device,
                           .session = session,
                           .encoder = encoder,
                           .buffer = buffer,
                           .root = p->root,
                           .last_use = p->last_use,
                           .computed = p->computed};
}

/* All that is fixed, each with a reference of its own. */
static mica_buffer **begin_buffers(const mica__schedule *p)
{
    const uint32_t count = p->desc.graph->tensor_count;
    mica_buffer **buffer = mica__calloc(count, sizeof *buffer);
    for (uint32_t t = 1; t < count && buffer != NULL; t++)
        if (p->fixed[t] != NULL)
            buffer[t] = mica_buffer_retain(p->fixed[t]);
    return buffer;
}

static void end_buffers(const mica__schedule *p, mica_buffer **buffer)
{
    for (uint32_t t = 0; t < p->desc.graph->tensor_count && buffer != NULL; t++)
        mica_buffer_release(buffer[t]);
    mica__free(buffer);
}

/* What a place has to copy at the end. */
static mica_status emit_copies(mica__schedule *p, uint8_t place, mica__emitter *e)
{
    for (uint32_t i = 0; i < p->copy_count; i++)
        if (p->copies[i].through != NULL && p->copies[i].place == place)
            MICA__TRY(mica__emit_copy(e, p->copies[i].tensor, p->copies[i].through));
    for (uint32_t i = 0; i < p->copy_count; i++) {
        const end_copy *copy = &p->copies[i];
        if (copy->place != place || copy->crosses)
            continue;
        if (copy->through != NULL)
            MICA__TRY(mica_copy(e->encoder, copy->through, copy->to));
        else
            MICA__TRY(mica__emit_copy(e, copy->tensor, copy->to));
    }
    return MICA_OK;
}

static mica_status emit_step(mica__schedule *p, const mica__step *s, mica__emitter *e)
{
    const mica_graph *graph = p->desc.graph;
    for (uint32_t i = s->begin; i < s->end; i++) {
        const uint32_t n = p->order.node[i];
        if (mica__schedule_uses(p, &graph->node[n]) && !mica__crosses(graph, &graph->node[n]))
            MICA__TRY(mica__emit_node(e, n));
    }
    return s->last ? emit_copies(p, s->place, e) : MICA_OK;
}

static void add_stats(mica__schedule *p, const mica_session_stats *stats)
{
    p->stats.records_out += stats->records_out;
    p->stats.dispatches += stats->dispatches;
    if (stats->temp_placed > p->stats.temp_placed)
        p->stats.temp_placed = stats->temp_placed;
    if (stats->temp_bound > p->stats.temp_bound)
        p->stats.temp_bound = stats->temp_bound;
}

mica_status mica__schedule_session(mica__schedule *p, uint32_t at, bool record, mica_fence **out_fence)
{
    mica_session *session = NULL;
    mica_session_stats stats;
    const mica__step *s = &p->order.steps[at];
    const mica__station *station = &p->desc.station[s->place];
    const uint32_t flags = MICA_FINISH_FUSE | MICA_FINISH_REORDER;
    MICA__TRY(mica_session_begin(station->device, station->queue, MICA_SESSION_RECORD, &session));
    mica_status status = station->arena != NULL ? mica_session_use_arena(session, station->arena) : MICA_OK;
    mica_buffer **buffer = begin_buffers(p);
    mica__emitter e = emitter_of(p, s->place, session, mica_session_encoder(session), buffer);
    if (status == MICA_OK)
        status = buffer == NULL ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for buffers")
                                : emit_step(p, s, &e);
    if (status == MICA_OK)
        status = record              ? mica_session_record(session, flags, &stats, &p->run[at].recording)
                 : out_fence != NULL ? mica_session_commit(session, flags, &stats, out_fence)
                                     : mica_session_finish(session, flags, &stats);
    mica_session_release(session);
    end_buffers(p, buffer);
    if (status == MICA_OK)
        add_stats(p, &stats);
    return status;
}

/* Lets go of what node `n` was the last to use. */
static void let_go(mica__schedule *p, uint32_t n, mica_buffer **buffer)
{
    const mica_graph *graph = p->desc.graph;
    const mica__node *node = &graph->node[n];
    for (uint32_t i = 0; i < node->input_count; i++) {
        const mica_tensor in = mica__node_inputs(graph, node)[i];
        if (p->last_use[p->root[in]] != n || p->fixed[in] != NULL)
            continue;
        mica_buffer_release(buffer[in]);
        buffer[in] = NULL;
    }
}

/* One node, or the copies at the end, run until it is over. */
static mica_status run_alone(mica__schedule *p, const mica__step *s, uint32_t n, mica_buffer **buffer)
{
    mica_encoder *encoder = NULL;
    const bool copies = n == UINT32_MAX;
    const mica__station *station = &p->desc.station[s->place];
    mica_status status = mica_encoder_begin(station->device, station->queue, &encoder);
    mica__emitter e = emitter_of(p, s->place, NULL, encoder, buffer);
    if (status == MICA_OK)
        status = copies ? emit_copies(p, s->place, &e) : mica__emit_node(&e, n);
    if (status == MICA_OK && (status = mica_encoder_commit_and_wait(encoder)) != MICA_OK && !copies)
        status = mica__fail(status, "graph: node %u, %s: %s", n, mica__node_name(&p->desc.graph->node[n]),
                            mica_status_message());
    mica_encoder_release(encoder);
    return status;
}

mica_status mica__schedule_one_by_one(mica__schedule *p, uint32_t at)
{
    const mica_graph *graph = p->desc.graph;
    const mica__step *s = &p->order.steps[at];
    mica_buffer **buffer = begin_buffers(p);
    mica_status status =
        buffer == NULL ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for buffers") : MICA_OK;
    for (uint32_t i = s->begin; i < s->end && status == MICA_OK; i++) {
        const uint32_t n = p->order.node[i];
        const mica__node *node = &graph->node[n];
        if (mica__is_leaf(node) || mica__is_view(node) || !mica__schedule_uses(p, node) ||
            mica__crosses(graph, node))
            continue;
        status = run_alone(p, s, n, buffer);
        let_go(p, n, buffer);
    }
    if (status == MICA_OK && s->last)
        status = run_alone(p, s, UINT32_MAX, buffer);
    end_buffers(p, buffer);
    return status;
}

/* ---- life ---- */

static mica_status take_memory(mica__schedule *p)
{
    const mica_graph *graph = p->desc.graph;
    const uint32_t tensors = graph->tensor_count;
    p->fixed = mica__calloc(tensors, sizeof *p->fixed);
    p->computed = mica__calloc(tensors, 1);
    p->root = mica__calloc(tensors, sizeof *p->root);
    p->last_use = mica__calloc(tensors, sizeof *p->last_use);
    p->used = mica__calloc(tensors, 1);
    p->copies = mica__calloc(graph->outputs.count + p->desc.link_count + 1, sizeof *p->copies);
    if (p->fixed == NULL || p->computed == NULL || p->root == NULL || p->last_use == NULL ||
        p->used == NULL || p->copies == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for a schedule of %u nodes",
                          graph->node_count);
    return MICA_OK;
}

/* The order, and what runs each of its steps. */
static mica_status take_steps(mica__schedule *p)
{
    MICA__TRY(mica__order_make(p->desc.graph, p->used, p->desc.station_count, &p->order));
    p->run = mica__calloc(p->order.step_count, sizeof *p->run);
    if (p->run == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for %u steps", p->order.step_count);
    for (uint32_t s = 0; s < p->order.step_count; s++)
        if (p->order.steps[s].last)
            p->last_step[p->order.steps[s].place] = s;
    return MICA_OK;
}

static void take_leaves(mica__schedule *p)
{
    const mica_graph *graph = p->desc.graph;
    for (mica_tensor t = 1; t < graph->tensor_count; t++)
        if (mica__is_leaf(mica__node_of(graph, t))) {
            p->computed[t] = 1;
            if (p->desc.leaf[t] != NULL)
                p->fixed[t] = mica_buffer_retain(p->desc.leaf[t]);
        }
}

/* Whether a step has nothing to submit: only values that come from other places, or no copies at the end. */
static bool is_empty(const mica__schedule *p, const mica__step *s)
{
    bool empty = p->desc.station_count > 1;
    for (uint32_t i = s->begin; i < s->end && empty; i++)
        empty = mica__crosses(p->desc.graph, &p->desc.graph->node[p->order.node[i]]);
    for (uint32_t i = 0; i < p->copy_count && empty && s->last; i++)
        empty = p->copies[i].place != s->place;
    return empty;
}

static mica_status make_steps(mica__schedule *p)
{
    for (uint32_t i = 0; i < p->order.step_count; i++) {
        const mica__step *s = &p->order.steps[i];
        const uint32_t n = s->begin < s->end ? p->order.node[s->begin] : UINT32_MAX;
        mica_status status = MICA_OK;
        p->run[i].empty = is_empty(p, s);
        if (s->control && p->desc.graph->node[n].kind == MICA_NODE_CUSTOM)
            status = mica__host_call_create(p->desc.graph, n, p->fixed, &p->run[i].call);
        else if (s->control)
            status = mica__loop_create(&p->desc, &p->desc.graph->node[n], p->fixed, &p->run[i].loop);
        else if (p->desc.mode == MICA_MODE_COMPILED && !p->run[i].empty)
            status = mica__schedule_session(p, i, true, NULL);
        if (status != MICA_OK)
            return mica__schedule_fail_step(p, status, i);
    }
    return MICA_OK;
}

static mica_status plan(mica__schedule *p)
{
    MICA__TRY(take_memory(p));
    find_roots(p);
    take_leaves(p);
    find_uses(p);
    MICA__TRY(take_steps(p));
    find_last_uses(p);
    MICA__TRY(place_outputs(p));
    MICA__TRY(guard_copies(p));
    MICA__TRY(keep_between_steps(p));
    return make_steps(p);
}

mica_status mica__schedule_create(const mica__schedule_desc *desc, mica__schedule **out)
{
    *out = NULL;
    mica__schedule *p = mica__calloc(1, sizeof *p);
    if (p == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for a schedule");
    p->desc = *desc;
    const mica_status status = plan(p);
    p->desc.leaf = p->desc.output = NULL; /* the caller's lists, which are not looked at again */
    p->desc.link = NULL;
    if (status != MICA_OK)
        mica__schedule_release(p);
    else
        *out = p;
    return status;
}

void mica__schedule_release(mica__schedule *p)
{
    if (p == NULL)
        return;
    (void)mica__schedule_wait(p);
    for (uint32_t i = 0; i < p->order.step_count && p->run != NULL; i++) {
        mica_recording_release(p->run[i].recording);
        mica__loop_release(p->run[i].loop);
        mica__host_call_release(p->run[i].call);
    }
    for (uint32_t i = 0; i < p->copy_count; i++)
        mica_buffer_release(p->copies[i].through);
    for (uint32_t t = 0; t < p->desc.graph->tensor_count && p->fixed != NULL; t++)
        mica_buffer_release(p->fixed[t]);
    void *const lists[] = {p->fixed, p->computed, p->root, p->last_use, p->used, p->run, p->copies};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        mica__free(lists[i]);
    mica__order_free(&p->order);
    mica__free(p);
}

mica_status mica__schedule_bind(mica__schedule *p, mica_tensor leaf, mica_buffer *to)
{
    uint32_t uses = 0;
    if (p->order.step_count != 1 || p->fixed[leaf] == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "graph: the schedule has several steps");
    if (p->fixed[leaf] == to)
        return MICA_OK;
    if (p->run[0].recording != NULL)
        MICA__TRY(mica_recording_rebind(p->run[0].recording, p->fixed[leaf], to, &uses));
    mica_buffer_release(p->fixed[leaf]);
    p->fixed[leaf] = mica_buffer_retain(to);
    return MICA_OK;
}

void mica__schedule_count(const mica__schedule *p, mica_executable_stats *stats)
{
    stats->records += p->stats.records_out;
    stats->dispatches += p->stats.dispatches;
    if (p->stats.temp_placed > stats->arena_bytes)
        stats->arena_bytes = p->stats.temp_placed;
    if (p->stats.temp_bound > stats->arena_bound)
        stats->arena_bound = p->stats.temp_bound;
    for (uint32_t i = 0; i < p->order.step_count; i++)
        if (p->run[i].loop != NULL)
            mica__loop_count(p->run[i].loop, stats);
}
