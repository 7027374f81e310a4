/*
 * schedule.c - cutting a graph into steps, giving buffers to what outlives a step, and running the steps.
 *
 * What only one step knows is a temporary of its session. What several steps read lies in a buffer of the schedule. An output is computed where it belongs;
 * one that is linked to a leaf is computed in that leaf's own memory where every other use of the old value comes before it, else copied there at the end.
 */
#include "graph/exec/schedule.h"

#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "device/objects.h"
#include "graph/custom.h"
#include "graph/exec/host_call.h"
#include "graph/exec/loop.h"

/* Nodes [begin, end), then the copies of `copy` where it is the last step; or one node that the host looks at: of control, or a
 * caller's op. */
typedef struct step {
    uint32_t begin, end;
    bool control, last;
    mica__loop *loop; /* of control; one of both */
    mica__host_call *call;
    mica_recording *recording; /* COMPILED */
} step;

typedef struct end_copy {
    mica_tensor tensor;
    mica_buffer *to, *through; /* `through`: a leaf that another copy may overwrite goes there first */
} end_copy;

struct mica__schedule {
    mica__schedule_desc desc;
    mica_arena *arena;
    mica_buffer **fixed; /* by tensor: what is there before a step begins, or where it belongs */
    uint8_t *computed;   /* by tensor: leaves, and what other steps compute */
    uint32_t *root, *last_use;
    uint8_t *used;
    step *steps;
    uint32_t step_count;
    end_copy *copies;
    uint32_t copy_count;
    mica_session_stats stats; /* sums */
};

/* ---- who uses what ---- */

static bool is_control(const mica__node *node)
{
    return node->kind == MICA_NODE_IF || node->kind == MICA_NODE_WHILE || node->kind == MICA_NODE_SCAN ||
           mica__custom_is_of_host(node);
}

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
            if (!mica__is_view(node) && p->last_use[p->root[in]] < n)
                p->last_use[p->root[in]] = n;
        }
    }
    p->used[0] = 0;
}

static bool node_is_used(const mica__schedule *p, const mica__node *node)
{
    bool used = false;
    for (uint32_t i = 0; i < node->output_count; i++)
        used |= p->used[mica__node_outputs(p->desc.graph, node)[i]] != 0;
    return used;
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
    if (mica__is_leaf(node) || mica__is_view(node) || is_control(node) || node->kind == MICA_NODE_CONCAT)
        return false;
    return last < t->node ||
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

/* A leaf that another copy changes is kept apart first. */
static mica_status guard_copies(mica__schedule *p)
{
    for (uint32_t i = 0; i < p->copy_count; i++) {
        const mica_tensor root = p->root[p->copies[i].tensor];
        bool changed = false;
        for (uint32_t j = 0; j < p->desc.link_count; j++)
            changed |= p->desc.link[j].leaf == root;
        if (changed)
            MICA__TRY(mica__buffer_for(p->desc.device, mica__type_of(p->desc.graph, p->copies[i].tensor),
                                       &p->copies[i].through));
    }
    return MICA_OK;
}

/* ---- steps ---- */

static void cut(mica__schedule *p)
{
    const mica_graph *graph = p->desc.graph;
    uint32_t begin = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (!is_control(&graph->node[n]) || !node_is_used(p, &graph->node[n]))
            continue;
        if (n > begin)
            p->steps[p->step_count++] = (step){.begin = begin, .end = n};
        p->steps[p->step_count++] = (step){.begin = n, .end = n + 1, .control = true};
        begin = n + 1;
    }
    p->steps[p->step_count++] = (step){.begin = begin, .end = graph->node_count, .last = true};
}

/* The step that computes each node is the last one that begins at or before it. */
static uint32_t step_of(const mica__schedule *p, uint32_t node)
{
    uint32_t low = 0, high = p->step_count;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (p->steps[middle].begin <= node)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A buffer for whatever one step computes and another reads. */
static mica_status keep(mica__schedule *p, mica_tensor tensor, uint32_t user)
{
    const mica_graph *graph = p->desc.graph;
    const mica_tensor root = p->root[tensor];
    if (root == 0 || mica__is_leaf(mica__node_of(graph, root)) ||
        step_of(p, graph->tensor[root].node) == user)
        return MICA_OK;
    p->last_use[root] = UINT32_MAX; /* never taken by who updates it */
    return p->fixed[root] != NULL
               ? MICA_OK
               : mica__buffer_for(p->desc.device, mica__type_of(graph, root), &p->fixed[root]);
}

static mica_status keep_between_steps(mica__schedule *p)
{
    const mica_graph *graph = p->desc.graph;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        const uint32_t user = step_of(p, n);
        if (!node_is_used(p, node) || mica__is_view(node))
            continue;
        for (uint32_t i = 0; i < node->input_count; i++)
            MICA__TRY(keep(p, mica__node_inputs(graph, node)[i], user));
        for (uint32_t i = 0; i < node->output_count && is_control(node); i++)
            MICA__TRY(keep(p, mica__node_outputs(graph, node)[i], UINT32_MAX));
    }
    for (uint32_t i = 0; i < p->copy_count; i++)
        MICA__TRY(keep(p, p->copies[i].tensor, p->step_count - 1));
    return MICA_OK;
}

/* ---- emitting a step ---- */

static mica__emitter emitter_of(mica__schedule *p, mica_session *session, mica_encoder *encoder,
                                mica_buffer **buffer)
{
    return (mica__emitter){.graph = p->desc.graph,
                           .device = p->desc.device,
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

static mica_status emit_copies(mica__schedule *p, mica__emitter *e)
{
    for (uint32_t i = 0; i < p->copy_count; i++)
        if (p->copies[i].through != NULL)
            MICA__TRY(mica__emit_copy(e, p->copies[i].tensor, p->copies[i].through));
    for (uint32_t i = 0; i < p->copy_count; i++)
        if (p->copies[i].through != NULL)
            MICA__TRY(mica_copy(e->encoder, p->copies[i].through, p->copies[i].to));
        else
            MICA__TRY(mica__emit_copy(e, p->copies[i].tensor, p->copies[i].to));
    return MICA_OK;
}

static mica_status emit_step(mica__schedule *p, const step *s, mica__emitter *e)
{
    for (uint32_t n = s->begin; n < s->end; n++)
        if (node_is_used(p, &p->desc.graph->node[n]))
            MICA__TRY(mica__emit_node(e, n));
    return s->last ? emit_copies(p, e) : MICA_OK;
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

/* The step in one session: kept as a recording, or run at once. */
static mica_status in_a_session(mica__schedule *p, step *s, bool record)
{
    mica_session *session = NULL;
    mica_session_stats stats;
    MICA__TRY(mica_session_begin(p->desc.device, NULL, MICA_SESSION_RECORD, &session));
    mica_status status = p->arena != NULL ? mica_session_use_arena(session, p->arena) : MICA_OK;
    mica_buffer **buffer = begin_buffers(p);
    mica__emitter e = emitter_of(p, session, mica_session_encoder(session), buffer);
    if (status == MICA_OK)
        status = buffer == NULL ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for buffers")
                                : emit_step(p, s, &e);
    if (status == MICA_OK)
        status = record ? mica_session_record(session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, &stats,
                                              &s->recording)
                        : mica_session_finish(session, MICA_FINISH_FUSE | MICA_FINISH_REORDER, &stats);
    mica_session_release(session);
    end_buffers(p, buffer);
    if (status == MICA_OK)
        add_stats(p, &stats);
    return status;
}

/* One node after the other, each to its end; what nobody needs any more goes. */
static mica_status one_by_one(mica__schedule *p, const step *s)
{
    const mica_graph *graph = p->desc.graph;
    mica_buffer **buffer = begin_buffers(p);
    mica_status status =
        buffer == NULL ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for buffers") : MICA_OK;
    for (uint32_t n = s->begin; n < s->end + (s->last ? 1 : 0) && status == MICA_OK; n++) {
        const bool copies = n == s->end;
        const mica__node *node = copies ? NULL : &graph->node[n];
        mica_encoder *encoder = NULL;
        if (!copies && (mica__is_leaf(node) || mica__is_view(node) || !node_is_used(p, node)))
            continue;
        status = mica_encoder_begin(p->desc.device, NULL, &encoder);
        mica__emitter e = emitter_of(p, NULL, encoder, buffer);
        if (status == MICA_OK)
            status = copies ? emit_copies(p, &e) : mica__emit_node(&e, n);
        if (status == MICA_OK && (status = mica_encoder_commit_and_wait(encoder)) != MICA_OK && !copies)
            status =
                mica__fail(status, "graph: node %u, %s: %s", n, mica__node_name(node), mica_status_message());
        mica_encoder_release(encoder);
        for (uint32_t i = 0; !copies && i < node->input_count; i++) {
            const mica_tensor in = mica__node_inputs(graph, node)[i];
            if (p->last_use[p->root[in]] == n && p->fixed[in] == NULL) {
                mica_buffer_release(buffer[in]);
                buffer[in] = NULL;
            }
        }
    }
    end_buffers(p, buffer);
    return status;
}

/* ---- life ---- */

static mica_status take_memory(mica__schedule *p)
{
    const mica_graph *graph = p->desc.graph;
    const uint32_t tensors = graph->tensor_count;
    uint32_t steps = 2;
    for (uint32_t n = 0; n < graph->node_count; n++)
        steps += is_control(&graph->node[n]) ? 2 : 0;
    p->fixed = mica__calloc(tensors, sizeof *p->fixed);
    p->computed = mica__calloc(tensors, 1);
    p->root = mica__calloc(tensors, sizeof *p->root);
    p->last_use = mica__calloc(tensors, sizeof *p->last_use);
    p->used = mica__calloc(tensors, 1);
    p->steps = mica__calloc(steps, sizeof *p->steps);
    p->copies = mica__calloc(graph->outputs.count + p->desc.link_count + 1, sizeof *p->copies);
    if (p->fixed == NULL || p->computed == NULL || p->root == NULL || p->last_use == NULL ||
        p->used == NULL || p->steps == NULL || p->copies == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for a schedule of %u nodes",
                          graph->node_count);
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

static mica_status make_steps(mica__schedule *p)
{
    for (uint32_t i = 0; i < p->step_count; i++) {
        step *s = &p->steps[i];
        const mica__node *node = &p->desc.graph->node[s->begin];
        if (s->control && node->kind == MICA_NODE_CUSTOM)
            MICA__TRY(mica__host_call_create(p->desc.graph, s->begin, p->fixed, &s->call));
        else if (s->control)
            MICA__TRY(mica__loop_create(&p->desc, p->arena, node, p->fixed, &s->loop));
        else if (p->desc.mode == MICA_MODE_COMPILED)
            MICA__TRY(in_a_session(p, s, true));
    }
    return MICA_OK;
}

static mica_status plan(mica__schedule *p)
{
    MICA__TRY(take_memory(p));
    find_roots(p);
    take_leaves(p);
    find_uses(p);
    cut(p);
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
    p->arena = desc->arena;
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
    for (uint32_t i = 0; i < p->step_count; i++) {
        mica_recording_release(p->steps[i].recording);
        mica__loop_release(p->steps[i].loop);
        mica__host_call_release(p->steps[i].call);
    }
    for (uint32_t i = 0; i < p->copy_count; i++)
        mica_buffer_release(p->copies[i].through);
    for (uint32_t t = 0; t < p->desc.graph->tensor_count && p->fixed != NULL; t++)
        mica_buffer_release(p->fixed[t]);
    void *const lists[] = {p->fixed, p->computed, p->root, p->last_use, p->used, p->steps, p->copies};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        mica__free(lists[i]);
    mica__free(p);
}

/* ---- running ---- */

static mica_status run_step(mica__schedule *p, step *s)
{
    MICA__TRY(mica__spend(1));
    if (s->control)
        return s->call != NULL ? mica__host_call_run(s->call) : mica__loop_run(s->loop);
    if (p->desc.mode == MICA_MODE_COMPILED)
        return mica_recording_replay_and_wait(s->recording);
    return p->desc.mode == MICA_MODE_LAZY ? in_a_session(p, s, false) : one_by_one(p, s);
}

mica_status mica__schedule_run(mica__schedule *p)
{
    for (uint32_t i = 0; i < p->step_count; i++)
        MICA__TRY(run_step(p, &p->steps[i]));
    return MICA_OK;
}

mica_status mica__schedule_submit(mica__schedule *p, mica_fence **out_fence)
{
    *out_fence = NULL;
    for (uint32_t i = 0; i + 1 < p->step_count; i++)
        MICA__TRY(run_step(p, &p->steps[i]));
    step *s = &p->steps[p->step_count - 1];
    if (p->desc.mode == MICA_MODE_COMPILED && !s->control)
        return mica_recording_replay(s->recording, out_fence);
    return run_step(p, s);
}

mica_status mica__schedule_bind(mica__schedule *p, mica_tensor leaf, mica_buffer *to)
{
    uint32_t uses = 0;
    if (p->step_count != 1 || p->fixed[leaf] == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "graph: the schedule has several steps");
    if (p->fixed[leaf] == to)
        return MICA_OK;
    if (p->steps[0].recording != NULL)
        MICA__TRY(mica_recording_rebind(p->steps[0].recording, p->fixed[leaf], to, &uses));
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
    for (uint32_t i = 0; i < p->step_count; i++)
        if (p->steps[i].loop != NULL)
            mica__loop_count(p->steps[i].loop, stats);
}
