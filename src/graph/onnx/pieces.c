/*
 * pieces.c - small pieces of graphs that many operators are made of. All of them give 0 for 0.
 */
#include <string.h>

#include "graph/onnx/importer.h"

mica_tensor mica__ox_number(const mica__ox_op *o, mica_tensor like, double value)
{
    return like == 0 ? 0 : mica_graph_number(o->graph, mica__type_of(o->graph, like)->dtype, value);
}

mica_tensor mica__ox_scalar(const mica__ox_op *o, mica_scalar scalar, mica_tensor a, mica_tensor b)
{
    return a == 0 ? 0 : mica_graph_scalar(o->graph, scalar, a, b, 0);
}

mica_tensor mica__ox_select(const mica__ox_op *o, mica_tensor condition, mica_tensor yes, mica_tensor no)
{
    return condition == 0 || yes == 0 || no == 0
               ? 0
               : mica_graph_scalar(o->graph, MICA_SCALAR_SELECT, condition, yes, no);
}

mica_tensor mica__ox_cast(const mica__ox_op *o, mica_tensor x, mica_dtype dtype)
{
    return x == 0 ? 0 : mica_graph_cast(o->graph, x, dtype);
}

mica_tensor mica__ox_op1(const mica__ox_op *o, mica_op op, const void *params, const mica_tensor *inputs,
                         uint32_t count)
{
    return inputs[0] == 0 ? 0 : mica_graph_op(o->graph, op, params, inputs, count, 1, NULL, NULL, 0);
}

mica_tensor mica__ox_reduce(const mica__ox_op *o, mica_reduce_kind kind, mica_tensor x, uint32_t axes_mask,
                            bool keep)
{
    const mica__type type = mica__ox_type(o, x);
    mica_reduce_params params = {.kind = kind, .keep_dims = keep};
    if (axes_mask == 0 || x == 0)
        return x;
    for (uint32_t d = 0; d < type.ndim; d++)
        params.axes |= (axes_mask >> d & 1) << (type.ndim - 1 - d);
    return mica__ox_op1(o, MICA_OP_REDUCE, &params, &x, 1);
}

mica_tensor mica__ox_reshape(const mica__ox_op *o, mica_tensor x, uint32_t ndim, const uint64_t *shape)
{
    return x == 0 ? 0 : mica_graph_reshape(o->graph, x, ndim, shape);
}

mica_tensor mica__ox_move(const mica__ox_op *o, mica_tensor x, uint32_t axis, uint32_t to)
{
    const mica__type type = mica__ox_type(o, x);
    uint32_t order[MICA_MAX_DIMS], at = 0;
    if (x == 0 || axis == to || axis >= type.ndim || to >= type.ndim)
        return x;
    for (uint32_t d = 0; d < type.ndim; d++) {
        if (d == to) {
            order[d] = axis;
            continue;
        }
        at += at == axis;
        order[d] = at++;
    }
    return mica_graph_permute(o->graph, x, order);
}

mica_tensor mica__ox_swap(const mica__ox_op *o, mica_tensor x, uint32_t a, uint32_t b)
{
    uint32_t order[MICA_MAX_DIMS];
    for (uint32_t d = 0; d < MICA_MAX_DIMS; d++)
        order[d] = d == a ? b : d == b ? a : d;
    return x == 0 || a == b ? x : mica_graph_permute(o->graph, x, order);
}

mica_tensor mica__ox_along(const mica__ox_op *o, mica_tensor x, uint32_t ndim, uint32_t axis)
{
    uint64_t shape[MICA_MAX_DIMS];
    const mica__type type = mica__ox_type(o, x);
    for (uint32_t d = 0; d < ndim && d < MICA_MAX_DIMS; d++)
        shape[d] = d == axis && type.ndim != 0 ? type.shape[0] : 1;
    return mica__ox_reshape(o, x, ndim, shape);
}

mica_tensor mica__ox_expand_like(const mica__ox_op *o, mica_tensor x, const mica__type *type)
{
    return x == 0 ? 0 : mica_graph_expand(o->graph, x, type->ndim, type->shape);
}

mica_tensor mica__ox_unsqueeze(const mica__ox_op *o, mica_tensor x, uint32_t axis)
{
    const mica__type type = mica__ox_type(o, x);
    uint64_t shape[MICA_MAX_DIMS + 1];
    for (uint32_t d = 0; d <= type.ndim; d++)
        shape[d] = d == axis ? 1 : type.shape[d > axis ? d - 1 : d];
    return mica__ox_reshape(o, x, type.ndim + 1, shape);
}

mica_tensor mica__ox_slice(const mica__ox_op *o, mica_tensor x, uint32_t axis, uint64_t start, uint64_t count)
{
    return x == 0 ? 0 : mica_graph_slice(o->graph, x, axis, start, count, 1);
}

mica_tensor mica__ox_iota(const mica__ox_op *o, uint32_t ndim, const uint64_t *shape, uint32_t axis,
                          mica_dtype dtype)
{
    return mica_graph_index(o->graph, dtype, ndim, shape, axis);
}

mica_tensor mica__ox_constant(const mica__ox_op *o, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                              const void *data)
{
    uint64_t bytes = mica_dtype_block_bytes(dtype);
    for (uint32_t d = 0; d < ndim; d++)
        bytes *= shape[d];
    return mica_graph_constant(o->graph, dtype, ndim, shape, data, bytes);
}

mica_tensor mica__ox_ids(mica__ox_op *o, uint32_t i, uint64_t size)
{
    const mica__ox_host *host = mica__ox_known(o, i);
    if (host != NULL && host->elements <= MICA__OX_FOLD) { /* wrapped here, no nodes */
        int32_t ids[MICA__OX_FOLD];
        for (uint64_t k = 0; k < host->elements; k++) {
            const int64_t id = mica__ox_host_int(host, k);
            ids[k] = (int32_t)(id < 0 ? id + (int64_t)size : id);
            if (ids[k] < 0 || (uint64_t)ids[k] >= size) {
                (void)mica__graph_fail(o->graph, MICA_ERR_INVALID_ARGUMENT, "gather", "index %lld of %llu",
                                       (long long)id, (unsigned long long)size);
                return 0;
            }
        }
        return mica__ox_constant(o, MICA_DTYPE_I32, host->ndim, host->shape, ids);
    }
    const mica_tensor ids = mica__ox_cast(o, mica__ox_in(o, i), MICA_DTYPE_I32);
    const mica_tensor zero = mica__ox_number(o, ids, 0);
    return mica__ox_select(o, mica__ox_scalar(o, MICA_SCALAR_LESS, ids, zero),
                           mica__ox_scalar(o, MICA_SCALAR_ADD, ids, mica__ox_number(o, ids, (double)size)),
                           ids);
}
