/*
 * ops_gates.c - elementwise functions with numbers, gated products, choices.
 */
#include "graph/ops_build.h"
#include "ops/region.h"

mica_tensor mica_graph_fill(mica_graph *graph, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                            double value)
{
    if (!mica__graph_begins(graph, "fill"))
        return 0;
    const mica_tensor one = mica_graph_number(graph, dtype, value);
    return mica__build_end(graph, "fill",
                           one == 0 ? 0 : mica__build_expand(graph, "fill", "value", one, ndim, shape));
}

mica_tensor mica_graph_where(mica_graph *graph, mica_tensor condition, mica_tensor a, mica_tensor b)
{
    mica__type type;
    if (!mica__graph_begins(graph, "where") ||
        !mica__build_takes(graph, "where", "condition", condition, &type))
        return 0;
    const mica_tensor holds = mica_graph_cast(graph, condition, MICA_DTYPE_BOOL);
    return mica__build_end(graph, "where", mica_graph_select(graph, holds, a, b));
}

/* ---- x and a number ---- */

static mica_tensor with_number(mica_graph *graph, const char *call, mica_scalar scalar, mica_tensor x,
                               float number)
{
    static const char *const names[] = {"x"};
    mica__type type;
    mica__region_small small;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "x", x, &type))
        return 0;
    const mica_status status =
        mica__number_program(call, scalar, mica__build_real(type.dtype), number, &small.program);
    if (status != MICA_OK)
        return mica__build_failed(graph, call, status);
    return mica__build_region(graph, call, &small.program, names, &x, &type.dtype, NULL);
}

mica_tensor mica_graph_leaky_relu(mica_graph *graph, mica_tensor x, float slope)
{
    return with_number(graph, "leaky_relu", MICA_SCALAR_LEAKY_RELU, x, slope);
}

mica_tensor mica_graph_elu(mica_graph *graph, mica_tensor x, float alpha)
{
    return with_number(graph, "elu", MICA_SCALAR_ELU, x, alpha);
}

mica_tensor mica_graph_softcap(mica_graph *graph, mica_tensor x, float cap)
{
    return with_number(graph, "softcap", MICA_SCALAR_SOFTCAP, x, cap);
}

mica_tensor mica_graph_clamp(mica_graph *graph, mica_tensor x, double low, double high)
{
    static const char *const names[] = {"x"};
    mica__type type;
    mica__region_small small;
    if (!mica__graph_begins(graph, "clamp") || !mica__build_takes(graph, "clamp", "x", x, &type))
        return 0;
    const mica_register reg = mica_register_of(type.dtype);
    if ((MICA__SET_NUMBER >> reg & 1) == 0 || type.dtype == MICA_DTYPE_C64)
        return mica__build_refuse(graph, "clamp", "x", &type, "has no order");
    const mica_status status = mica__clamp_program("clamp", reg, low, high, &small.program);
    if (status != MICA_OK)
        return mica__build_failed(graph, "clamp", status);
    return mica__build_region(graph, "clamp", &small.program, names, &x, &type.dtype, NULL);
}

/* ---- gates ---- */

static const char *const gate_names[] = {"gate", "up"};

static bool takes_gate(mica_graph *graph, const char *call, mica_tensor gate, mica_tensor up,
                       mica_dtype *out_dtype)
{
    mica__type a, b;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "gate", gate, &a) ||
        !mica__build_takes(graph, call, "up", up, &b))
        return false;
    *out_dtype = mica__build_join(a.dtype, b.dtype);
    return true;
}

mica_tensor mica_graph_gate(mica_graph *graph, mica_scalar act, mica_tensor gate, mica_tensor up)
{
    mica_dtype dtype = MICA_DTYPE_NONE;
    mica__region_small small;
    if (!takes_gate(graph, "gate", gate, up, &dtype))
        return 0;
    const mica__scalar_info *info =
        act > MICA_SCALAR_NONE && act < MICA_SCALAR_COUNT ? mica__scalar_of(act) : NULL;
    const mica_register type = mica__build_real(mica__type_of(graph, gate)->dtype);
    if (info == NULL || info->arity != 1 || info->is_op == 0 || info->out != 0 || (info->in >> type & 1) == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "gate",
                                "act is %s, which is no function of one float", mica_scalar_name(act));
    mica__gate_program(act, type, &small.program);
    return mica__build_region(graph, "gate", &small.program, gate_names, (const mica_tensor[]){gate, up},
                              &dtype, NULL);
}

mica_tensor mica_graph_gate_halves(mica_graph *graph, mica_scalar act, mica_tensor x, int32_t axis,
                                   uint32_t gate_first)
{
    mica__type type;
    uint32_t at;
    mica_tensor half[2];
    if (!mica__graph_begins(graph, "gate_halves") ||
        !mica__build_takes(graph, "gate_halves", "x", x, &type) ||
        !mica__build_axis(graph, "gate_halves", axis, type.ndim, &at))
        return 0;
    const uint64_t n = type.shape[at];
    if (!mica__size_known(n) || n % 2 != 0)
        return mica__build_refuse(graph, "gate_halves", "x", &type, "has no two halves along axis %u", at);
    for (uint32_t i = 0; i < 2; i++)
        half[i] = mica_graph_slice(graph, x, at, i * (n / 2), n / 2, 1);
    const uint32_t gate = gate_first != 0 ? 0 : 1;
    return mica__build_end(graph, "gate_halves", mica_graph_gate(graph, act, half[gate], half[1 - gate]));
}

mica_tensor mica_graph_clipped_swiglu(mica_graph *graph, mica_tensor gate, mica_tensor up, float alpha,
                                      float limit)
{
    mica_dtype dtype = MICA_DTYPE_NONE;
    mica__region_room room;
    if (!takes_gate(graph, "clipped_swiglu", gate, up, &dtype))
        return 0;
    const mica_register type = mica__build_real(mica__type_of(graph, gate)->dtype);
    const mica_status status = mica__clipped_swiglu("clipped_swiglu", type, alpha, limit, &room);
    if (status != MICA_OK)
        return mica__build_failed(graph, "clipped_swiglu", status);
    return mica__build_region(graph, "clipped_swiglu", &room.program, gate_names,
                              (const mica_tensor[]){gate, up}, &dtype, NULL);
}

mica_tensor mica_graph_gated_residual(mica_graph *graph, mica_tensor x, mica_tensor gate, mica_tensor branch)
{
    static const char *const names[] = {"x", "gate", "branch"};
    mica__type type;
    mica__region_small small;
    if (!mica__graph_begins(graph, "gated_residual") ||
        !mica__build_takes(graph, "gated_residual", "x", x, &type))
        return 0;
    mica__gated_residual_program(mica__build_real(type.dtype), &small.program);
    return mica__build_region(graph, "gated_residual", &small.program, names,
                              (const mica_tensor[]){x, gate, branch}, &type.dtype, NULL);
}
