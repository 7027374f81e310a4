/*
 * known.c - small graphs of constants, computed while importing: integers exactly, floats in the type that a node has.
 *
 * What shapes are made of is computed here: arithmetic, comparisons, casts, views, gathers, reductions. Anything else stays in the graph. Says what nodes of graph.h say, to the bit.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/work.h"
#include "graph/onnx/importer.h"

enum { MOST_NODES = 256, MOST_ELEMENTS = 16 * MICA__OX_FOLD };

/* An element: i of integers and bools, f of floats. */
typedef union cell {
    int64_t i;
    double f;
} cell;

typedef struct table {
    const mica_graph *graph;
    mica__ox *im;
    cell **of; /* [tensor_count] */
} table;

static bool is_float(mica_dtype dtype)
{
    const mica_register reg = mica_register_of(dtype);
    return reg == MICA_REGISTER_F32 || reg == MICA_REGISTER_F64;
}

/* ---- elements and bytes --------------------------------------------------------------------------------- */

static cell load(mica_dtype dtype, const void *data, uint64_t i)
{
    const uint8_t *at = (const uint8_t *)data + i * mica_dtype_block_bytes(dtype);
    union {
        float f32;
        double f64;
        uint16_t half;
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint32_t u32;
    } v = {.i64 = 0};
    memcpy(&v, at, mica_dtype_block_bytes(dtype));
    switch (dtype) {
    case MICA_DTYPE_F32: return (cell){.f = (double)v.f32};
    case MICA_DTYPE_F64: return (cell){.f = v.f64};
    case MICA_DTYPE_F16: return (cell){.f = (double)mica__f16_to_f32(v.half)};
    case MICA_DTYPE_BF16: return (cell){.f = (double)mica__bf16_to_f32(v.half)};
    case MICA_DTYPE_I8: return (cell){.i = v.i8};
    case MICA_DTYPE_I16: return (cell){.i = v.i16};
    case MICA_DTYPE_I32: return (cell){.i = v.i32};
    case MICA_DTYPE_U8: return (cell){.i = *at};
    case MICA_DTYPE_U16: return (cell){.i = v.half};
    case MICA_DTYPE_U32: return (cell){.i = v.u32};
    case MICA_DTYPE_BOOL: return (cell){.i = *at != 0};
    default: return (cell){.i = v.i64};
    }
}

static void store(mica_dtype dtype, void *data, uint64_t i, cell value)
{
    uint8_t *at = (uint8_t *)data + i * mica_dtype_block_bytes(dtype);
    const float f32 = is_float(dtype) ? (float)value.f : 0;
    uint16_t half = 0;
    switch (dtype) {
    case MICA_DTYPE_F32: memcpy(at, &f32, 4); return;
    case MICA_DTYPE_F64: memcpy(at, &value.f, 8); return;
    case MICA_DTYPE_F16: half = mica__f32_to_f16(f32); break;
    case MICA_DTYPE_BF16: half = mica__f32_to_bf16(f32); break;
    default: memcpy(at, &value.i, mica_dtype_block_bytes(dtype)); return; /* the low bytes */
    }
    memcpy(at, &half, 2);
}

/* A value as a store to the type and a load from it leave it. */
static cell rounded(mica_dtype dtype, cell value)
{
    uint64_t bytes = 0;
    store(dtype, &bytes, 0, value);
    return load(dtype, &bytes, 0);
}

static bool is_computed(mica_dtype dtype)
{
    return mica_dtype_block_elements(dtype) == 1 && dtype != MICA_DTYPE_C64 && dtype != MICA_DTYPE_F8_E4M3 &&
           dtype != MICA_DTYPE_F8_E5M2 && dtype != MICA_DTYPE_E8M0;
}

int64_t mica__ox_host_int(const mica__ox_host *host, uint64_t i)
{
    const cell value = load(host->dtype, host->data, i);
    return !is_float(host->dtype) ? value.i : fabs(value.f) < 9.2e18 ? (int64_t)value.f : 0;
}

double mica__ox_host_number(const mica__ox_host *host, uint64_t i)
{
    const cell value = load(host->dtype, host->data, i);
    return is_float(host->dtype) ? value.f : (double)value.i;
}

/* ---- functions of single values ------------------------------------------------------------------------- */

static bool float_function(mica_scalar scalar, double a, double b, cell *out)
{
    switch (scalar) {
    case MICA_SCALAR_ADD: out->f = a + b; return true;
    case MICA_SCALAR_SUB: out->f = a - b; return true;
    case MICA_SCALAR_MUL: out->f = a * b; return true;
    case MICA_SCALAR_DIV: out->f = a / b; return true;
    case MICA_SCALAR_NEG: out->f = -a; return true;
    case MICA_SCALAR_ABS: out->f = fabs(a); return true;
    case MICA_SCALAR_FLOOR: out->f = floor(a); return true;
    case MICA_SCALAR_CEIL: out->f = ceil(a); return true;
    case MICA_SCALAR_TRUNC: out->f = trunc(a); return true;
    case MICA_SCALAR_ROUND: out->f = rint(a); return true;
    case MICA_SCALAR_SQRT: out->f = sqrt(a); return true;
    case MICA_SCALAR_MAX: out->f = isnan(a) || isnan(b) ? NAN : a > b ? a : b; return true;
    case MICA_SCALAR_MIN: out->f = isnan(a) || isnan(b) ? NAN : a < b ? a : b; return true;
    case MICA_SCALAR_EQUAL: out->i = a == b; return true;
    case MICA_SCALAR_NOT_EQUAL: out->i = a != b; return true;
    case MICA_SCALAR_LESS: out->i = a < b; return true;
    case MICA_SCALAR_LESS_EQUAL: out->i = a <= b; return true;
    case MICA_SCALAR_GREATER: out->i = a > b; return true;
    case MICA_SCALAR_GREATER_EQUAL: out->i = a >= b; return true;
    default: return false;
    }
}

static int64_t divided(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t remainder_of(int64_t a, int64_t b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}

/* Of signed integers, unsigned ones below 2^63, and bools. */
static bool integer_function(mica_scalar scalar, int64_t a, int64_t b, cell *out)
{
    const int64_t rest = remainder_of(a, b);
    switch (scalar) {
    case MICA_SCALAR_ADD: out->i = (int64_t)((uint64_t)a + (uint64_t)b); return true;
    case MICA_SCALAR_SUB: out->i = (int64_t)((uint64_t)a - (uint64_t)b); return true;
    case MICA_SCALAR_MUL: out->i = (int64_t)((uint64_t)a * (uint64_t)b); return true;
    case MICA_SCALAR_DIV: out->i = divided(a, b); return true;
    case MICA_SCALAR_REM: out->i = rest; return true;
    case MICA_SCALAR_MOD: out->i = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest; return true;
    case MICA_SCALAR_NEG: out->i = (int64_t)(0 - (uint64_t)a); return true;
    case MICA_SCALAR_ABS: out->i = a < 0 ? (int64_t)(0 - (uint64_t)a) : a; return true;
    case MICA_SCALAR_MAX: out->i = a > b ? a : b; return true;
    case MICA_SCALAR_MIN: out->i = a < b ? a : b; return true;
    case MICA_SCALAR_EQUAL: out->i = a == b; return true;
    case MICA_SCALAR_NOT_EQUAL: out->i = a != b; return true;
    case MICA_SCALAR_LESS: out->i = a < b; return true;
    case MICA_SCALAR_LESS_EQUAL: out->i = a <= b; return true;
    case MICA_SCALAR_GREATER: out->i = a > b; return true;
    case MICA_SCALAR_GREATER_EQUAL: out->i = a >= b; return true;
    case MICA_SCALAR_BIT_AND: out->i = a & b; return true;
    case MICA_SCALAR_BIT_OR: out->i = a | b; return true;
    case MICA_SCALAR_BIT_XOR: out->i = a ^ b; return true;
    default: return false;
    }
}

/* ---- nodes ---------------------------------------------------------------------------------------------- */

/* Where element `i` of a shape lies in a tensor that broadcasts to it. */
static uint64_t place_in(uint64_t i, uint32_t ndim, const uint64_t *shape, const mica__type *in)
{
    uint64_t at = 0, step = 1;
    for (uint32_t d = ndim; d-- > 0; i /= shape[d]) {
        const uint32_t behind = ndim - 1 - d;
        if (behind >= in->ndim)
            continue;
        const uint64_t size = in->shape[in->ndim - 1 - behind];
        at += size == 1 ? 0 : i % shape[d] * step;
        step *= size;
    }
    return at;
}

static bool run_scalar(const table *t, const mica__node *node, const mica_tensor *in, cell *out,
                       const mica__type *type)
{
    const mica__type *types[3] = {mica__type_of(t->graph, in[0]),
                                  mica__type_of(t->graph, in[node->input_count > 1 ? 1 : 0]),
                                  mica__type_of(t->graph, in[node->input_count - 1])};
    const uint64_t count = mica__type_elements(type);
    if (types[0]->dtype == MICA_DTYPE_U64)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        const cell a = t->of[in[0]][place_in(i, type->ndim, type->shape, types[0])];
        const cell b = node->input_count > 1 ? t->of[in[1]][place_in(i, type->ndim, type->shape, types[1])]
                                             : (cell){.i = 0};
        bool known = true;
        if (node->code == MICA_SCALAR_SELECT)
            out[i] = a.i != 0 ? b : t->of[in[2]][place_in(i, type->ndim, type->shape, types[2])];
        else if (is_float(types[0]->dtype))
            known = float_function((mica_scalar)node->code, a.f, node->input_count > 1 ? b.f : 0, &out[i]);
        else if (node->code == MICA_SCALAR_BIT_NOT)
            out[i].i = types[0]->dtype == MICA_DTYPE_BOOL ? a.i == 0 : ~a.i;
        else
            known = integer_function((mica_scalar)node->code, a.i, b.i, &out[i]);
        if (!known)
            return false;
        out[i] = rounded(type->dtype, out[i]);
    }
    return true;
}

static cell converted(cell value, mica_dtype from, mica_dtype to)
{
    cell out = value;
    if (to == MICA_DTYPE_BOOL)
        out.i = is_float(from) ? value.f != 0 : value.i != 0;
    else if (is_float(from) && !is_float(to)) {
        const bool wide = to == MICA_DTYPE_I64 || to == MICA_DTYPE_U64;
        const double most = wide ? 9223372036854774784.0 : 2147483647.0;
        out.i = isnan(value.f)        ? 0
                : value.f > most      ? (int64_t)most
                : value.f < -most - 1 ? (int64_t)-most - 1
                                      : (int64_t)value.f;
    } else if (!is_float(from) && is_float(to))
        out.f = (double)value.i;
    return rounded(to, out);
}

static bool run_cast(const table *t, const mica_tensor *in, cell *out, const mica__type *type)
{
    const mica__type *from = mica__type_of(t->graph, in[0]);
    if (is_float(from->dtype) && (type->dtype == MICA_DTYPE_U32 || type->dtype == MICA_DTYPE_U64))
        return false;
    for (uint64_t i = 0; i < mica__type_elements(type); i++)
        out[i] = converted(t->of[in[0]][i], from->dtype, type->dtype);
    return true;
}

static bool run_permute(const table *t, const mica__node *node, const mica_tensor *in, cell *out,
                        const mica__type *type)
{
    const mica__permute_data *data = node->data;
    const mica__type *from = mica__type_of(t->graph, in[0]);
    uint64_t step[MICA_MAX_DIMS] = {0}, below = 1;
    for (uint32_t d = from->ndim; d-- > 0; below *= from->shape[d])
        step[d] = below;
    for (uint64_t i = 0; i < mica__type_elements(type); i++) {
        uint64_t at = 0, rest = i;
        for (uint32_t d = type->ndim; d-- > 0; rest /= type->shape[d])
            at += rest % type->shape[d] * step[data->order[d]];
        out[i] = t->of[in[0]][at];
    }
    return true;
}

/* Sizes before, along and behind an axis. */
typedef struct split {
    uint64_t outer, size, inner;
} split;

static split split_at(const mica__type *type, uint32_t axis)
{
    split s = {1, type->shape[axis], 1};
    for (uint32_t d = 0; d < type->ndim; d++)
        *(d < axis ? &s.outer : &s.inner) *= d == axis ? 1 : type->shape[d];
    return s;
}

static bool run_slice(const table *t, const mica__node *node, const mica_tensor *in, cell *out)
{
    const mica__slice_data *data = node->data;
    const split s = split_at(mica__type_of(t->graph, in[0]), data->axis);
    for (uint64_t a = 0; a < s.outer; a++)
        for (uint64_t b = 0; b < data->count; b++)
            memcpy(out + (a * data->count + b) * s.inner,
                   t->of[in[0]] + (a * s.size + data->start + b * (uint64_t)data->step) * s.inner,
                   (size_t)s.inner * sizeof *out);
    return data->step > 0;
}

static bool run_concat(const table *t, const mica__node *node, const mica_tensor *in, cell *out,
                       const mica__type *type)
{
    const mica__concat_data *data = node->data;
    const split all = split_at(type, data->axis);
    uint64_t start = 0;
    for (uint32_t k = 0; k < node->input_count; k++) {
        const split s = split_at(mica__type_of(t->graph, in[k]), data->axis);
        for (uint64_t a = 0; a < s.outer; a++)
            memcpy(out + (a * all.size + start) * s.inner, t->of[in[k]] + a * s.size * s.inner,
                   (size_t)(s.size * s.inner) * sizeof *out);
        start += s.size;
    }
    return true;
}

static bool run_gather(const table *t, const mica__node *node, const mica_tensor *in, cell *out)
{
    const mica_gather_params *params = mica__op_params(node);
    const mica__type *x = mica__type_of(t->graph, in[0]), *ids = mica__type_of(t->graph, in[1]);
    const uint32_t axis = params == NULL ? 0 : params->axis;
    if (ids->ndim != 1)
        return false;
    const split s = split_at(x, axis);
    for (uint64_t a = 0; a < s.outer; a++)
        for (uint64_t k = 0; k < ids->shape[0]; k++) {
            const int64_t id = t->of[in[1]][k].i;
            if (id < 0 || (uint64_t)id >= s.size)
                return false;
            memcpy(out + (a * ids->shape[0] + k) * s.inner,
                   t->of[in[0]] + (a * s.size + (uint64_t)id) * s.inner, (size_t)s.inner * sizeof *out);
        }
    return true;
}

/* Integers alone: floats are added up in an order of their own. */
static bool run_reduce(const table *t, const mica__node *node, const mica_tensor *in, cell *out,
                       const mica__type *type)
{
    static const mica_scalar functions[] = {[MICA_REDUCE_SUM] = MICA_SCALAR_ADD,
                                            [MICA_REDUCE_MAX] = MICA_SCALAR_MAX,
                                            [MICA_REDUCE_MIN] = MICA_SCALAR_MIN,
                                            [MICA_REDUCE_PROD] = MICA_SCALAR_MUL};
    const mica_reduce_params *params = mica__op_params(node);
    const mica__type *x = mica__type_of(t->graph, in[0]);
    const uint32_t all = (1u << x->ndim) - 1, axes = params->axes == 0 ? all : params->axes;
    const uint64_t count = mica__type_elements(x);
    if (params->kind > MICA_REDUCE_PROD || functions[params->kind] == 0 || is_float(x->dtype) || count == 0)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = 0, step = 1, rest = i;
        bool first = true; /* of those that are reduced to out[at] */
        for (uint32_t d = x->ndim; d-- > 0; rest /= x->shape[d])
            if ((axes >> (x->ndim - 1 - d) & 1) == 0) {
                at += rest % x->shape[d] * step;
                step *= x->shape[d];
            } else {
                first = first && rest % x->shape[d] == 0;
            }
        const cell value = t->of[in[0]][i];
        if (first)
            out[at] = value;
        else if (!integer_function(functions[params->kind], out[at].i, value.i, &out[at]))
            return false;
        out[at] = rounded(type->dtype, out[at]);
    }
    return true;
}

static bool run_index(const mica__node *node, cell *out, const mica__type *type)
{
    const mica__shape_data *data = node->data;
    const split s = split_at(type, data->axis);
    for (uint64_t i = 0; i < mica__type_elements(type); i++)
        out[i].i = (int64_t)(i / s.inner % s.size);
    return true;
}

static bool run_constant(const mica__node *node, cell *out, const mica__type *type)
{
    const mica__constant_data *data = node->data;
    for (uint64_t i = 0; i < mica__type_elements(type); i++)
        out[i] = load(type->dtype, data->blob->data, i);
    return true;
}

static bool run_node(const table *t, const mica__node *node, const mica_tensor *in, cell *out,
                     const mica__type *type)
{
    switch (node->kind) {
    case MICA_NODE_CONSTANT: return run_constant(node, out, type);
    case MICA_NODE_SCALAR: return run_scalar(t, node, in, out, type);
    case MICA_NODE_CAST: return run_cast(t, in, out, type);
    case MICA_NODE_INDEX: return run_index(node, out, type);
    case MICA_NODE_PERMUTE: return run_permute(t, node, in, out, type);
    case MICA_NODE_SLICE: return run_slice(t, node, in, out);
    case MICA_NODE_CONCAT: return run_concat(t, node, in, out, type);
    case MICA_NODE_RESHAPE:
        memcpy(out, t->of[in[0]], (size_t)mica__type_elements(type) * sizeof *out);
        return true;
    case MICA_NODE_EXPAND:
        for (uint64_t i = 0; i < mica__type_elements(type); i++)
            out[i] = t->of[in[0]][place_in(i, type->ndim, type->shape, mica__type_of(t->graph, in[0]))];
        return true;
    case MICA_NODE_OP:
        return node->code == MICA_OP_GATHER   ? run_gather(t, node, in, out)
               : node->code == MICA_OP_REDUCE ? run_reduce(t, node, in, out, type)
                                              : false;
    default: return false;
    }
}

/* All nodes in their order. */
static bool run(table *t)
{
    for (uint32_t n = 0; n < t->graph->node_count; n++) {
        const mica__node *node = &t->graph->node[n];
        if (node->output_count != 1)
            return false;
        const mica_tensor y = mica__node_outputs(t->graph, node)[0];
        const mica__type *type = mica__type_of(t->graph, y);
        const uint64_t count = mica__type_elements(type);
        if (count > MOST_ELEMENTS || !is_computed(type->dtype) || mica__spend(count + 8) != MICA_OK)
            return false;
        t->of[y] = mica__alloc((size_t)(count + 1) * sizeof(cell));
        if (t->of[y] == NULL || !run_node(t, node, mica__node_inputs(t->graph, node), t->of[y], type))
            return false;
    }
    return true;
}

static const mica__ox_host *kept(const table *t, mica_tensor tensor)
{
    const mica__type *type = mica__type_of(t->graph, tensor);
    mica__ox_host *host = mica__ox_memory(t->im, 1, sizeof *host);
    const uint64_t count = mica__type_elements(type);
    uint8_t *data = mica__ox_memory(t->im, count, mica_dtype_block_bytes(type->dtype));
    if (host == NULL || data == NULL)
        return NULL;
    *host = (mica__ox_host){.dtype = type->dtype, .ndim = type->ndim, .elements = count, .data = data};
    memcpy(host->shape, type->shape, sizeof host->shape);
    host->bytes = count * mica_dtype_block_bytes(type->dtype);
    for (uint64_t i = 0; i < count; i++)
        store(type->dtype, data, i, t->of[tensor][i]);
    return host;
}

bool mica__ox_evaluate(mica__ox *im, const mica_graph *graph, const mica_tensor *tensors, uint32_t count,
                       const mica__ox_host **out)
{
    table t = {.graph = graph, .im = im};
    if (graph->node_count > MOST_NODES)
        return false;
    t.of = mica__calloc((size_t)graph->tensor_count + 1, sizeof *t.of);
    bool done = t.of != NULL && run(&t);
    for (uint32_t i = 0; i < count && done; i++)
        if (tensors[i] != 0) {
            out[i] = kept(&t, tensors[i]);
            done = out[i] != NULL;
        }
    for (uint32_t i = 0; i < graph->tensor_count && t.of != NULL; i++)
        mica__free(t.of[i]);
    mica__free(t.of);
    return done;
}
