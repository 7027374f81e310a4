/* ragged.c - which tokens are of which sequence, in nodes. */
#include "graph/gradient/ragged.h"

static mica_tensor plus(mica_graph *graph, mica_tensor x, double value)
{
    return mica_graph_add(graph, x, mica_graph_number(graph, MICA_DTYPE_I32, value));
}

static mica_tensor sum_over_sequences(mica_graph *graph, mica_tensor x)
{
    const int32_t last = -1;
    return mica_graph_reduce(graph, MICA_REDUCE_SUM, x, &last, 1, 0);
}

/* Where something holds of a token and some sequence. */
static mica_tensor of_any(mica_graph *graph, mica_tensor holds)
{
    const mica_tensor sum = sum_over_sequences(graph, mica_graph_cast(graph, holds, MICA_DTYPE_I32));
    return mica_graph_greater(graph, sum, mica_graph_number(graph, MICA_DTYPE_I32, 0));
}

/* Each token's place, [T, 1]. */
static mica_tensor token(mica_graph *graph, const mica__ragged *r)
{
    const uint64_t shape[] = {r->tokens, 1};
    return mica_graph_index(graph, MICA_DTYPE_I32, 2, shape, 0);
}

void mica__ragged_make(mica_graph *graph, mica_tensor starts, uint64_t tokens, mica__ragged *out)
{
    const uint64_t count = mica__type_of(graph, starts)->shape[0] - 1;
    *out = (mica__ragged){.tokens = tokens, .count = count};
    const mica_tensor all = mica_graph_cast(graph, starts, MICA_DTYPE_I32);
    const mica_tensor zero = mica_graph_number(graph, MICA_DTYPE_I32, 0),
                      most = mica_graph_number(graph, MICA_DTYPE_I32, (double)tokens);
    const mica_tensor begin = mica_graph_slice(graph, all, 0, 0, count, 1),
                      end = mica_graph_slice(graph, all, 0, 1, count, 1);
    const mica_tensor within = mica_graph_bit_and(graph, mica_graph_greater_equal(graph, begin, zero),
                                                  mica_graph_less_equal(graph, end, most));
    const mica_tensor fine = mica_graph_bit_and(graph, within, mica_graph_less_equal(graph, begin, end));
    out->begin = begin;
    out->end = mica_graph_select(graph, fine, end, begin);
    out->member = mica_graph_bit_and(graph, mica_graph_greater_equal(graph, token(graph, out), out->begin),
                                     mica_graph_less(graph, token(graph, out), out->end));
    const mica_tensor number = mica_graph_index(graph, MICA_DTYPE_I32, 1, &count, 0);
    out->of = sum_over_sequences(graph, mica_graph_select(graph, out->member, number, zero));
    out->has = of_any(graph, out->member);
}

mica_tensor mica__ragged_first(mica_graph *graph, const mica__ragged *r, bool reverse)
{
    const mica_tensor at = reverse ? plus(graph, r->end, -1) : r->begin;
    return of_any(graph, mica_graph_bit_and(graph, r->member, mica_graph_equal(graph, token(graph, r), at)));
}

mica_tensor mica__ragged_choose(mica_graph *graph, mica_tensor condition, mica_tensor a, mica_tensor b)
{
    const uint32_t ndim = mica__type_of(graph, a)->ndim;
    for (uint32_t d = 1; d < ndim; d++)
        condition = mica__widened(graph, condition, d);
    return mica_graph_select(graph, condition, a, b != 0 ? b : mica__number(graph, a, 0));
}

mica_tensor mica__ragged_last(mica_graph *graph, const mica__ragged *r, bool reverse, mica_tensor values,
                              mica_tensor otherwise)
{
    const mica_tensor zero = mica_graph_number(graph, MICA_DTYPE_I32, 0),
                      most = mica_graph_number(graph, MICA_DTYPE_I32, (double)r->tokens - 1);
    const mica_tensor at = reverse ? r->begin : plus(graph, r->end, -1);
    const mica_tensor there = mica_graph_min(graph, mica_graph_max(graph, at, zero), most);
    return mica__ragged_choose(graph, mica_graph_less(graph, r->begin, r->end),
                               mica__take(graph, values, there, 0), otherwise);
}
