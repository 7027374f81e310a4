/*
 * ops_fake.c - a fake-quantise with a gradient of its own: a call of a sub-graph, beside one that says what goes back.
 */
#include <stdio.h>

#include "graph/ops_build.h"

#define CALL "fake_quantize_trained"

/* An input of a sub-graph of the type that a tensor of `graph` has: its symbols by their names. */
static mica_tensor input_like(const mica_graph *graph, mica_graph *body, const char *name,
                              const mica__type *type)
{
    uint64_t shape[MICA_MAX_DIMS];
    for (uint32_t d = 0; d < type->ndim; d++) {
        const bool named = !mica__size_known(type->shape[d]) && type->shape[d] != MICA_SIZE_UNKNOWN;
        shape[d] =
            named ? mica_graph_symbol(body, mica_graph_symbol_name(graph, type->shape[d])) : type->shape[d];
    }
    return mica_graph_input(body, name, type->dtype, type->ndim, shape);
}

/* What each element sends to its scale, added up in the shape of the scales. */
static mica_tensor summed(mica_graph *body, mica_tensor each, const mica__type *x, const mica__type *scales)
{
    int32_t axes[MICA_MAX_DIMS];
    uint32_t count = 0;
    for (uint32_t d = 0; d < x->ndim; d++) {
        const uint32_t before = x->ndim - scales->ndim;
        if (d < before || scales->shape[d - before] == 1)
            axes[count++] = (int32_t)d;
    }
    const mica_tensor sum =
        count == 0 ? each : mica_graph_reduce(body, MICA_REDUCE_SUM, each, axes, count, 1);
    const mica_tensor typed = sum == 0 ? 0 : mica_graph_cast(body, sum, scales->dtype);
    return mica__build_as(body, typed, scales);
}

static mica_status make_bodies(const mica_graph *graph, const mica__type *x, const mica__type *scales,
                               const mica_graph_quantizer *numbers, mica_straight straight,
                               mica_graph *forward, mica_graph *backward)
{
    mica_graph_quantizer by = *numbers;
    const mica_tensor from = input_like(graph, forward, "x", x);
    by.scales = input_like(graph, forward, "scales", scales);
    mica_graph_output(forward, "y", mica_graph_fake_quantize(forward, from, &by));
    const mica_tensor again = input_like(graph, backward, "x", x);
    by.scales = input_like(graph, backward, "scales", scales);
    (void)input_like(graph, backward, "y", x);
    const mica_tensor dy = input_like(graph, backward, "dy", x);
    mica_tensor each = 0;
    const mica_tensor dx = mica_graph_fake_quantize_backward(backward, again, &by, dy, straight, &each);
    mica_graph_output(backward, "dx", dx);
    if (each != 0)
        mica_graph_output(backward, "dscales", summed(backward, each, x, scales));
    const mica_status status = mica_graph_status(forward);
    return status != MICA_OK ? status : mica_graph_status(backward);
}

mica_tensor mica_graph_fake_quantize_trained(mica_graph *graph, mica_tensor x, mica_tensor scales,
                                             int32_t low, int32_t high, mica_straight straight)
{
    const mica_graph_quantizer numbers = {.low = low, .high = high};
    mica__type type, scaling;
    mica_graph *forward = NULL, *backward = NULL;
    mica_tensor y = 0;
    if (!mica__graph_begins(graph, CALL) || !mica__build_takes(graph, CALL, "x", x, &type) ||
        !mica__build_takes_rank(graph, CALL, "scales", scales, 0, type.ndim, &scaling))
        return 0;
    mica_status status = mica_graph_create(&forward);
    if (status == MICA_OK)
        status = mica_graph_create(&backward);
    if (status == MICA_OK)
        status = make_bodies(graph, &type, &scaling, &numbers, straight, forward, backward);
    if (status == MICA_OK)
        y = mica_graph_call(graph, forward, backward, 0, (const mica_tensor[]){x, scales}, 2, NULL, 1);
    else
        (void)mica__build_failed(graph, CALL, status);
    mica_graph_release(forward);
    mica_graph_release(backward);
    return mica__build_end(graph, CALL, y);
}
