/*
 * forward.c - forward mode by reverse mode twice: what reaches `of` is linear in what reaches the values, and the gradient of that by it is the forward derivative. The
 * seeds that stand between do not get into the result.
 */
#include <string.h>

#include "base/alloc.h"
#include "graph/gradient/rules.h"

static bool takes_tangent(mica_graph *graph, uint32_t i, mica_tensor of, mica_tensor tangent)
{
    char left[160], right[160];
    if (of == 0 || of >= graph->tensor_count || tangent >= graph->tensor_count)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "jvp",
                                "of[%u] or tangents[%u] is not of the graph", i, i) != 0;
    if (tangent == 0)
        return true;
    const mica__type *x = mica__type_of(graph, of), *t = mica__type_of(graph, tangent);
    bool same = x->dtype == t->dtype && x->ndim == t->ndim;
    for (uint32_t d = 0; d < x->ndim && same; d++)
        same = mica__sizes_agree(x->shape[d], t->shape[d]);
    return same ||
           mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "jvp",
                            "tangents[%u] is %s %s, but its tensor is %s %s", i, mica_dtype_name(t->dtype),
                            mica__shape_words(graph, t->ndim, t->shape, left), mica_dtype_name(x->dtype),
                            mica__shape_words(graph, x->ndim, x->shape, right)) != 0;
}

/* `list` has room for value_count seeds, then count gradients, then count tangents. */
static bool twice(mica_graph *graph, const mica_tensor *values, uint32_t value_count, const mica_tensor *of,
                  const mica_tensor *tangents, uint32_t count, mica_tensor *list, mica_tensor *out)
{
    mica_tensor *seeds = list, *reaches = seeds + value_count, *moves = reaches + count;
    uint32_t moved = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!takes_tangent(graph, i, of[i], tangents[i]))
            return false;
    for (uint32_t i = 0; i < value_count; i++) {
        if (values[i] == 0 || values[i] >= graph->tensor_count)
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "jvp",
                                    "values[%u] is %u, which the graph does not have", i, values[i]) != 0;
        if (!mica__is_float(mica__type_of(graph, values[i])->dtype))
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "jvp", "values[%u] is %s, not a float",
                                    i, mica_dtype_name(mica__type_of(graph, values[i])->dtype)) != 0;
        const mica_tensor zero = mica_graph_number(graph, mica__type_of(graph, values[i])->dtype, 0);
        seeds[i] = mica_graph_stop_gradient(graph, mica__repeat_to(graph, zero, values[i]));
    }
    if (!mica__gradients(graph, values, seeds, value_count, of, count, reaches))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (tangents[i] != 0) {
            reaches[moved] = reaches[i];
            moves[moved++] = tangents[i];
        }
    if (moved != 0)
        return mica__gradients(graph, reaches, moves, moved, seeds, value_count, out);
    for (uint32_t i = 0; i < value_count; i++)
        out[i] = mica__zeros_like(graph, values[i], mica__type_of(graph, values[i])->dtype);
    return graph->status == MICA_OK;
}

mica_status mica_graph_jvp(mica_graph *graph, const mica_tensor *values, uint32_t value_count,
                           const mica_tensor *of, const mica_tensor *tangents, uint32_t count,
                           mica_tensor *out)
{
    for (uint32_t i = 0; i < value_count && out != NULL; i++)
        out[i] = 0;
    if (!mica__graph_begins(graph, "jvp"))
        return graph == NULL ? MICA_ERR_INVALID_ARGUMENT : mica_graph_status(graph);
    if (values == NULL || of == NULL || tangents == NULL || out == NULL || value_count == 0 || count == 0) {
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "jvp", "there are no %s",
                               values == NULL || value_count == 0 ? "values"
                               : tangents == NULL                 ? "tangents"
                               : out == NULL                      ? "places for the results"
                                                                  : "tensors to differentiate by");
        return mica_graph_status(graph);
    }
    mica_tensor *list = mica__calloc((size_t)value_count + 2 * (size_t)count, sizeof *list);
    if (list == NULL)
        (void)mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "jvp", "no memory");
    else if (!twice(graph, values, value_count, of, tangents, count, list, out))
        memset(out, 0, value_count * sizeof *out);
    mica__free(list);
    return mica_graph_status(graph);
}
