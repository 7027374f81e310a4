/*
 * elementwise.c - nodes that compute element by element: scalar functions, casts, indices, whole regions.
 */
#include <string.h>

#include "graph/ir.h"
#include "ops/region.h"

/* Of two types of one register the one that holds both: the larger; of different ones of a size f32. */
static mica_dtype wider(mica_dtype a, mica_dtype b)
{
    const uint32_t x = mica_dtype_block_bytes(a), y = mica_dtype_block_bytes(b);
    if (a == b || x != y)
        return x >= y ? a : b;
    return mica_register_of(a) == MICA_REGISTER_F32 ? MICA_DTYPE_F32 : a;
}

/* The operands of an elementwise node: they broadcast, and from operand `first` on are of one register type. */
typedef struct operands {
    mica_graph *graph;
    const char *call;
    mica__type type; /* what they make together */
    mica_register in;
} operands;

static bool take_operand(operands *all, const char *argument, mica_tensor tensor, bool typed)
{
    const mica__type *type = mica__graph_takes(all->graph, all->call, argument, tensor);
    char left[160], right[160];
    if (type == NULL)
        return false;
    const mica_register reg = mica_register_of(type->dtype);
    if (reg == MICA_REGISTER_NONE || type->dtype == MICA_DTYPE_C64)
        (void)mica__graph_fail(all->graph, MICA_ERR_INVALID_ARGUMENT, all->call, "%s is %s", argument,
                               mica_dtype_name(type->dtype));
    else if (typed && all->in != MICA_REGISTER_NONE && all->in != reg)
        (void)mica__graph_fail(all->graph, MICA_ERR_INVALID_ARGUMENT, all->call,
                               "%s is %s beside %s: cast one of them", argument, mica_dtype_name(type->dtype),
                               mica_dtype_name(all->type.dtype));
    else if (!mica__broadcast(&all->type.ndim, all->type.shape, type->ndim, type->shape))
        (void)mica__graph_fail(all->graph, MICA_ERR_INVALID_ARGUMENT, all->call,
                               "%s %s does not broadcast to %s", argument,
                               mica__shape_words(all->graph, type->ndim, type->shape, left),
                               mica__shape_words(all->graph, all->type.ndim, all->type.shape, right));
    else if (typed) {
        all->type.dtype = all->in == MICA_REGISTER_NONE ? type->dtype : wider(all->type.dtype, type->dtype);
        all->in = reg;
    }
    return all->graph->status == MICA_OK;
}

/* What `scalar` gives of them. */
static mica_dtype result_of(const operands *all, const mica__scalar_info *info)
{
    return info->out == 0 ? all->type.dtype : MICA_DTYPE_BOOL;
}

mica_tensor mica_graph_scalar(mica_graph *graph, mica_scalar scalar, mica_tensor a, mica_tensor b,
                              mica_tensor c)
{
    static const char *const argument[] = {"a", "b", "c"};
    const mica_tensor inputs[] = {a, b, c};
    if (!mica__graph_begins(graph, "scalar"))
        return 0;
    const bool known = scalar > MICA_SCALAR_NONE && scalar < MICA_SCALAR_COUNT;
    const mica__scalar_info *info = known ? mica__scalar_of(scalar) : NULL;
    if (info == NULL || info->arity == 0 || scalar == MICA_SCALAR_CAST || scalar == MICA_SCALAR_BITS ||
        scalar == MICA_SCALAR_IMAG)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "scalar",
                                "scalar is %d (%s), which is no function of tensors", (int)scalar,
                                mica_scalar_name(scalar));
    operands all = {.graph = graph, .call = info->name};
    for (uint32_t i = 0; i < info->arity; i++)
        if (!take_operand(&all, argument[i], inputs[i], scalar != MICA_SCALAR_SELECT || i != 0))
            return 0;
    const mica_dtype first = mica__type_of(graph, a)->dtype;
    if (scalar == MICA_SCALAR_SELECT && first != MICA_DTYPE_BOOL)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, info->name, "a is %s, not bool",
                                mica_dtype_name(first));
    if ((info->in >> all.in & 1u) == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, info->name, "does not take %s",
                                mica_dtype_name(all.type.dtype));
    all.type.dtype = result_of(&all, info);
    return mica__graph_add_node(graph, MICA_NODE_SCALAR, scalar, inputs, info->arity, &all.type, 1, NULL, 0);
}

mica_tensor mica_graph_random_bits(mica_graph *graph, mica_tensor counter, mica_tensor key)
{
    return mica_graph_scalar(graph, MICA_SCALAR_RANDOM, counter, key, 0);
}

static bool is_plain(mica_dtype dtype)
{
    return mica_register_of(dtype) != MICA_REGISTER_NONE;
}

mica_tensor mica_graph_cast(mica_graph *graph, mica_tensor x, mica_dtype dtype)
{
    if (!mica__graph_begins(graph, "cast"))
        return 0;
    const mica__type *type = mica__graph_takes(graph, "cast", "x", x);
    if (type == NULL)
        return 0;
    if (type->dtype == dtype)
        return x;
    if (!is_plain(type->dtype) || dtype <= MICA_DTYPE_NONE || dtype >= MICA_DTYPE_COUNT || !is_plain(dtype))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "cast",
                                "x is %s, which does not become dtype %s", mica_dtype_name(type->dtype),
                                mica_dtype_name(dtype));
    mica__type out = *type;
    out.dtype = dtype;
    return mica__graph_add_node(graph, MICA_NODE_CAST, 0, &x, 1, &out, 1, NULL, 0);
}

mica_tensor mica_graph_bits(mica_graph *graph, mica_tensor x, mica_dtype dtype)
{
    if (!mica__graph_begins(graph, "bits"))
        return 0;
    const mica__type *type = mica__graph_takes(graph, "bits", "x", x);
    if (type == NULL)
        return 0;
    if (!is_plain(type->dtype) || dtype <= MICA_DTYPE_NONE || dtype >= MICA_DTYPE_COUNT || !is_plain(dtype) ||
        mica_dtype_block_bytes(type->dtype) != mica_dtype_block_bytes(dtype))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "bits",
                                "x is %s, whose bits are not those of dtype %s", mica_dtype_name(type->dtype),
                                mica_dtype_name(dtype));
    mica__type out = *type;
    out.dtype = dtype;
    return mica__graph_add_node(graph, MICA_NODE_BITS, 0, &x, 1, &out, 1, NULL, 0);
}

mica_tensor mica_graph_index(mica_graph *graph, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                             uint32_t axis)
{
    mica__shape_data data = {.ndim = ndim, .axis = axis};
    mica__type type = {.dtype = dtype, .ndim = ndim};
    if (!mica__graph_begins(graph, "index"))
        return 0;
    if (dtype != MICA_DTYPE_I32 && dtype != MICA_DTYPE_U32 && dtype != MICA_DTYPE_I64 &&
        dtype != MICA_DTYPE_U64)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "index", "dtype is %s",
                                mica_dtype_name(dtype));
    if (ndim > MICA_MAX_DIMS || shape == NULL || axis >= ndim)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "index", "axis %u of %u dimensions", axis,
                                ndim);
    memcpy(data.shape, shape, ndim * sizeof *shape);
    memcpy(type.shape, shape, ndim * sizeof *shape);
    return mica__graph_add_node(graph, MICA_NODE_INDEX, 0, NULL, 0, &type, 1, &data, sizeof data);
}

/* ---- regions ---- */

static bool takes_region(mica_graph *graph, const mica__region_program *program, const mica_tensor *inputs,
                         mica__type *out)
{
    char left[160], right[160];
    for (uint32_t i = 0; i < program->input_count; i++) {
        const mica__type *type = mica__graph_takes(graph, "region", "an input", inputs[i]);
        if (type == NULL)
            return false;
        if (mica_register_of(type->dtype) != program->input[i])
            (void)mica__graph_fail(
                graph, MICA_ERR_INVALID_ARGUMENT, "region", "input %u is %s, but the region takes %s there",
                i, mica_dtype_name(type->dtype), mica_register_name((mica_register)program->input[i]));
        else if (!mica__broadcast(&out->ndim, out->shape, type->ndim, type->shape))
            (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "region",
                                   "input %u %s does not broadcast to %s", i,
                                   mica__shape_words(graph, type->ndim, type->shape, left),
                                   mica__shape_words(graph, out->ndim, out->shape, right));
    }
    return graph->status == MICA_OK;
}

mica_tensor mica_graph_region(mica_graph *graph, const mica_region *region, const mica_tensor *inputs,
                              const mica_dtype *dtypes, mica_tensor *outputs)
{
    mica__type shape = {.ndim = 0}, types[MICA_REGION_OUTPUTS];
    if (!mica__graph_begins(graph, "region"))
        return 0;
    if (region == NULL || dtypes == NULL)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "region", "%s is NULL",
                                region == NULL ? "region" : "dtypes");
    const mica__region_program *program = mica__region_program_of(region);
    if (!takes_region(graph, program, inputs, &shape))
        return 0;
    for (uint32_t i = 0; i < program->output_count; i++) {
        const mica_register reg = mica__region_value_type(program, program->output[i]);
        if (dtypes[i] <= MICA_DTYPE_NONE || dtypes[i] >= MICA_DTYPE_COUNT ||
            mica_register_of(dtypes[i]) != reg ||
            (dtypes[i] == MICA_DTYPE_C64) != (program->output_imag[i] != MICA_REGION_NONE))
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "region",
                                    "output %u is %s, but the region gives %s there", i,
                                    mica_dtype_name(dtypes[i]), mica_register_name(reg));
        types[i] = shape;
        types[i].dtype = dtypes[i];
    }
    const mica_tensor first =
        mica__graph_add_node(graph, MICA_NODE_REGION, 0, inputs, program->input_count, types,
                             program->output_count, program, mica__region_bytes(program->step_count));
    for (uint32_t i = 0; i < program->output_count && outputs != NULL; i++)
        outputs[i] = first == 0 ? 0 : first + i;
    return first;
}
