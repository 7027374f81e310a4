/*
 * schedule_run.c - a run of a schedule: steps are submitted in order, each to its device, and nobody waits but for what crosses: the host carries it as soon as its step
 * is over, while the other devices work.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "device/objects.h"
#include "graph/exec/schedule_parts.h"
#include "graph/exec/transfer.h"

/* ---- sentences ---- */

mica_status mica__schedule_fail(const mica__schedule *p, mica_status status, uint32_t n)
{
    const mica_graph *graph = p->desc.graph;
    const mica__node *node = &graph->node[n];
    if (p->desc.station_count < 2)
        return status;
    return mica__fail(status, "graph: node %u, %s%s%s, at place %u (%s): %s", n, mica__node_name(node),
                      node->label != 0 ? " in " : "", graph->text + node->label, node->place,
                      p->desc.station[node->place].device->info.properties.id, mica_status_message());
}

mica_status mica__schedule_fail_step(const mica__schedule *p, mica_status status, uint32_t at)
{
    const mica__step *s = &p->order.steps[at];
    const char *const device = p->desc.station[s->place].device->info.properties.id;
    if (p->desc.station_count < 2 || s->control)
        return status;                   /* one device, or what is inside has named it */
    if (p->desc.mode == MICA_MODE_EAGER) /* has named the node */
        return mica__fail(status, "at place %u (%s): %s", s->place, device, mica_status_message());
    uint32_t copy = 0;
    while (s->begin == s->end && p->copies[copy].place != s->place) /* else it would be empty */
        copy++;
    const uint32_t end = s->begin < s->end ? 0 : p->desc.graph->tensor[p->copies[copy].tensor].node;
    const uint32_t first = s->begin < s->end ? p->order.node[s->begin] : end;
    const uint32_t last = s->begin < s->end ? p->order.node[s->end - 1] : end;
    return mica__fail(status, "graph: nodes %u, %s, to %u, %s, at place %u (%s): %s", first,
                      mica__node_name(&p->desc.graph->node[first]), last,
                      mica__node_name(&p->desc.graph->node[last]), s->place, device, mica_status_message());
}

/* ---- waiting ---- */

static mica_status wait_step(mica__schedule *p, uint32_t at)
{
    mica_fence *fence = p->run[at].fence;
    if (fence == NULL)
        return MICA_OK;
    p->run[at].fence = NULL;
    const mica_status status = mica_fence_wait(fence, MICA_WAIT_FOREVER);
    mica_fence_release(fence);
    return status == MICA_OK ? MICA_OK : mica__schedule_fail_step(p, status, at);
}

/* All that was submitted; the first failure, with its sentence. */
static mica_status wait_steps(mica__schedule *p)
{
    char sentence[512] = "";
    mica_status first = MICA_OK;
    for (uint32_t i = 0; i < p->order.step_count && p->run != NULL; i++) {
        const mica_status status = wait_step(p, i);
        if (first != MICA_OK || status == MICA_OK)
            continue;
        first = status;
        strncpy(sentence, mica_status_message(), sizeof sentence - 1);
    }
    if (first != MICA_OK)
        mica__status_set(first, sentence);
    return first;
}

mica_status mica__schedule_wait(mica__schedule *p)
{
    mica_status status = wait_steps(p);
    for (uint32_t i = 0; i < p->copy_count && status == MICA_OK && p->to_carry; i++)
        if (p->copies[i].crosses)
            status = mica__transfer(p->copies[i].through, p->copies[i].to);
    p->to_carry = false;
    return status;
}

/* ---- submitting ---- */

/* What comes from other places for a step, as soon as it is there. */
static mica_status carry(mica__schedule *p, const mica__step *s)
{
    const mica_graph *graph = p->desc.graph;
    for (uint32_t i = s->begin; i < s->end && p->desc.station_count > 1; i++) {
        const uint32_t n = p->order.node[i];
        const mica__node *node = &graph->node[n];
        if (!mica__crosses(graph, node))
            continue;
        const mica_tensor from = *mica__node_inputs(graph, node), to = *mica__node_outputs(graph, node);
        mica_status status = MICA_OK;
        if (!mica__is_leaf(mica__node_of(graph, from)))
            status = wait_step(p, p->order.step[graph->tensor[from].node]);
        if (status == MICA_OK && (status = mica__transfer(p->fixed[from], p->fixed[to])) != MICA_OK)
            status = mica__schedule_fail(p, status, n);
        MICA__TRY(status);
    }
    return MICA_OK;
}

/* The host looks at what was computed: control, or a caller's op, which runs to its end. */
static mica_status run_control(mica__schedule *p, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (p->order.steps[i].place == p->order.steps[at].place)
            MICA__TRY(wait_step(p, i));
    return p->run[at].call != NULL ? mica__host_call_run(p->run[at].call) : mica__loop_run(p->run[at].loop);
}

static mica_status submit_step(mica__schedule *p, uint32_t at, bool waits)
{
    mica__step_run *run = &p->run[at];
    const mica__step *s = &p->order.steps[at];
    MICA__TRY(mica__spend(1));
    MICA__TRY(carry(p, s));
    if (run->empty)
        return MICA_OK;
    if (s->control)
        return run_control(p, at);
    mica_status status = MICA_OK;
    if (p->desc.mode == MICA_MODE_EAGER)
        status = mica__schedule_one_by_one(p, at);
    else if (p->desc.mode == MICA_MODE_LAZY)
        status = mica__schedule_session(p, at, false, waits ? NULL : &run->fence);
    else
        status = waits ? mica_recording_replay_and_wait(run->recording)
                       : mica_recording_replay(run->recording, &run->fence);
    return status == MICA_OK ? MICA_OK : mica__schedule_fail_step(p, status, at);
}

static mica_status submit(mica__schedule *p, bool waits)
{
    const bool several = p->desc.station_count > 1;
    p->to_carry = false;
    for (uint32_t i = 0; i < p->order.step_count; i++) {
        const bool last = i + 1 == p->order.step_count;
        const mica_status status = submit_step(p, i, !several && (waits || !last));
        if (status == MICA_OK)
            continue;
        char sentence[512] = "";
        strncpy(sentence, mica_status_message(), sizeof sentence - 1);
        (void)wait_steps(p); /* what others still compute lies in buffers of this schedule */
        mica__status_set(status, sentence);
        return status;
    }
    p->to_carry = true;
    return MICA_OK;
}

mica_status mica__schedule_run(mica__schedule *p)
{
    MICA__TRY(submit(p, true));
    return mica__schedule_wait(p);
}

mica_status mica__schedule_submit(mica__schedule *p)
{
    return submit(p, false);
}
