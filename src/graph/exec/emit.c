/*
 * emit.c - one node at a time: its operands as buffers, in the strides that its op takes, and the call.
 */
#include "graph/exec/emit.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "device/objects.h"
#include "graph/exec/host_call.h"
#include "mica/ops.h"
#include "ops/region.h"

enum { FEW = 40 };

bool mica__is_view(const mica__node *node)
{
    switch (node->kind) {
    case MICA_NODE_RESHAPE:
    case MICA_NODE_PERMUTE:
    case MICA_NODE_SLICE:
    case MICA_NODE_EXPAND:
    case MICA_NODE_STOP_GRADIENT: return true;
    default: return false;
    }
}

bool mica__is_leaf(const mica__node *node)
{
    return node->kind <= MICA_NODE_CONSTANT;
}

/* ---- buffers ---- */

mica_status mica__buffer_for(mica_device *device, const mica__type *type, mica_buffer **out)
{
    mica_buffer_desc desc = {.dtype = type->dtype, .ndim = type->ndim, .flags = MICA_BUFFER_UNINITIALIZED};
    memcpy(desc.shape, type->shape, sizeof desc.shape);
    return mica_buffer_create(device, &desc, out);
}

mica_status mica__buffer_of(mica_device *device, const mica_graph *graph, mica_tensor tensor,
                            mica_buffer **out)
{
    const mica__node *node = mica__node_of(graph, tensor);
    const mica_status status = mica__buffer_for(device, mica__type_of(graph, tensor), out);
    if (status == MICA_OK)
        return MICA_OK;
    const char *label = graph->text + node->label;
    return mica__fail(status, "graph: what node %u, %s%s%s%s, gives at place %u (%s): %s",
                      graph->tensor[tensor].node, mica__node_name(node), *label != 0 ? " (" : "", label,
                      *label != 0 ? ")" : "", node->place, device->info.properties.id, mica_status_message());
}

static mica_status make_buffer(mica__emitter *e, const mica__type *type, mica_buffer **out)
{
    if (e->session != NULL)
        return mica_session_temp(e->session, type->dtype, type->ndim, type->shape, out);
    return mica__buffer_for(e->device, type, out);
}

mica_status mica__buffer_as(mica_buffer *buffer, const mica__type *type, mica_buffer **out)
{
    return mica_buffer_reshape(buffer, type->ndim, type->shape, out);
}

/* A copy of x's elements in a row. */
static mica_status in_a_row(mica__emitter *e, mica_buffer *x, mica_buffer **out)
{
    mica__type type = {.dtype = x->dtype, .ndim = x->ndim};
    memcpy(type.shape, x->shape, sizeof type.shape);
    MICA__TRY(make_buffer(e, &type, out));
    const mica_status status = mica_copy(e->encoder, x, *out);
    if (status != MICA_OK) {
        mica_buffer_release(*out);
        *out = NULL;
    }
    return status;
}

/* ---- views ---- */

static mica_status reshaped(mica__emitter *e, mica_buffer *x, const mica__type *type, mica_buffer **out)
{
    if (mica__buffer_contiguous(x))
        return mica__buffer_as(x, type, out);
    mica_buffer *row = NULL;
    MICA__TRY(in_a_row(e, x, &row));
    const mica_status status = mica__buffer_as(row, type, out);
    mica_buffer_release(row);
    return status;
}

static mica_status sliced(mica_buffer *x, const mica__slice_data *data, mica_buffer **out)
{
    mica_buffer *part = NULL;
    const uint64_t step = (uint64_t)data->step;
    const uint64_t span = data->count == 0 ? 0 : (data->count - 1) * step + 1;
    MICA__TRY(mica_buffer_slice(x, data->axis, data->start, span, &part));
    if (step == 1 || data->count == 0) {
        *out = part;
        return MICA_OK;
    }
    const mica_status status = mica_buffer_stride(part, data->axis, step, out);
    mica_buffer_release(part);
    return status;
}

static mica_status view(mica__emitter *e, const mica__node *node, mica_buffer *x, mica_buffer **out)
{
    const mica__type *type = mica__type_of(e->graph, *mica__node_outputs(e->graph, node));
    switch (node->kind) {
    case MICA_NODE_RESHAPE: return reshaped(e, x, type, out);
    case MICA_NODE_PERMUTE:
        return mica_buffer_permute(x, ((const mica__permute_data *)node->data)->order, out);
    case MICA_NODE_SLICE: return sliced(x, node->data, out);
    case MICA_NODE_EXPAND: return mica_buffer_expand(x, type->ndim, type->shape, out);
    default: *out = mica_buffer_retain(x); return MICA_OK;
    }
}

/* A chain of views is made from below, some of them at a time. */
mica_status mica__emit_need(mica__emitter *e, mica_tensor tensor, mica_buffer **out)
{
    enum { MOST = 64 };
    while (e->buffer[tensor] == NULL) {
        mica_tensor missing[MOST], below = tensor;
        uint32_t depth = 0;
        while (e->buffer[below] == NULL) {
            const mica__node *node = mica__node_of(e->graph, below);
            if (!mica__is_view(node))
                return mica__fail(MICA_ERR_INTERNAL, "graph: tensor %u is used before it is there", below);
            missing[depth++ % MOST] = below;
            below = *mica__node_inputs(e->graph, node);
        }
        for (uint32_t i = 0; i < depth && i < MOST; i++) {
            const mica_tensor at = missing[(depth - 1 - i) % MOST];
            const mica__node *node = mica__node_of(e->graph, at);
            MICA__TRY(view(e, node, e->buffer[*mica__node_inputs(e->graph, node)], &e->buffer[at]));
        }
    }
    *out = e->buffer[tensor];
    return MICA_OK;
}

mica_status mica__emit_target(mica__emitter *e, mica_tensor tensor, mica_buffer **out)
{
    if (e->buffer[tensor] == NULL)
        MICA__TRY(make_buffer(e, mica__type_of(e->graph, tensor), &e->buffer[tensor]));
    *out = e->buffer[tensor];
    return MICA_OK;
}

mica_status mica__emit_copy(mica__emitter *e, mica_tensor tensor, mica_buffer *to)
{
    mica_buffer *from = NULL;
    MICA__TRY(mica__emit_need(e, tensor, &from));
    return from == to ? MICA_OK : mica_copy(e->encoder, from, to);
}

/* ---- elementwise ---- */

static const char *const value_names[] = {"a", "b", "c"};
static const char *const result_names[] = {"y"};

/* The constant of one element that a tensor is. */
static bool one_number(const mica_graph *graph, mica_tensor tensor, mica__scalar_value *out)
{
    const mica__node *node = mica__node_of(graph, tensor);
    const mica__type *type = mica__type_of(graph, tensor);
    if (node->kind != MICA_NODE_CONSTANT || mica__type_elements(type) != 1)
        return false;
    const void *data = ((const mica__constant_data *)node->data)->blob->data;
    *out = (mica__scalar_value){.u64 = 0};
    switch (type->dtype) {
    case MICA_DTYPE_F32: memcpy(&out->f32, data, 4); return true;
    case MICA_DTYPE_F64: memcpy(&out->f64, data, 8); return true;
    case MICA_DTYPE_I64:
    case MICA_DTYPE_U64: memcpy(&out->u64, data, 8); return true;
    case MICA_DTYPE_I32: {
        int32_t value;
        memcpy(&value, data, 4);
        out->i64 = value;
        return true;
    }
    case MICA_DTYPE_U32: {
        uint32_t value;
        memcpy(&value, data, 4);
        out->u64 = value;
        return true;
    }
    case MICA_DTYPE_BOOL: out->u64 = *(const uint8_t *)data != 0; return true;
    default: return false; /* the small ones are read as they lie */
    }
}

static mica_status emit_scalar(mica__emitter *e, const mica__node *node)
{
    const mica_tensor *in = mica__node_inputs(e->graph, node), out = *mica__node_outputs(e->graph, node);
    const mica__scalar_info *info = mica__scalar_of(node->code);
    const mica__region_names names = {info->name, value_names, result_names};
    const mica_register type = mica_register_of(mica__type_of(e->graph, in[node->input_count - 1])->dtype);
    mica__scalar_value number[3];
    bool constant[3];
    uint32_t buffers = 0;
    mica__region_small small;
    mica_buffer *x[3] = {NULL, NULL, NULL}, *y = NULL;
    uint8_t value[3] = {MICA_REGION_NONE, MICA_REGION_NONE, MICA_REGION_NONE};
    for (uint32_t i = 0; i < node->input_count; i++) {
        constant[i] = one_number(e->graph, in[i], &number[i]);
        if (!constant[i])
            MICA__TRY(mica__emit_need(e, in[i], &x[buffers++]));
    }
    MICA__TRY(mica__emit_target(e, out, &y));
    mica__region_begin(&small.program, buffers, 1);
    for (uint32_t i = 0, b = 0; i < node->input_count; i++)
        if (!constant[i]) {
            small.program.input[b] = (uint8_t)mica_register_of(mica__type_of(e->graph, in[i])->dtype);
            value[i] = (uint8_t)b++;
        }
    for (uint32_t i = 0; i < node->input_count; i++)
        if (constant[i])
            value[i] = mica__region_constant(
                &small.program, mica_register_of(mica__type_of(e->graph, in[i])->dtype), number[i]);
    const mica_register result = info->out == 0 ? type : MICA_REGISTER_BOOL;
    small.program.output[0] =
        mica__region_step(&small.program, (mica_scalar)node->code, result, value[0], value[1], value[2]);
    return mica__region_add(e->encoder, &names, &small.program, x, false, &y);
}

static mica_status emit_cast(mica__emitter *e, const mica__node *node)
{
    mica_buffer *x = NULL, *y = NULL;
    MICA__TRY(mica__emit_need(e, *mica__node_inputs(e->graph, node), &x));
    MICA__TRY(mica__emit_target(e, *mica__node_outputs(e->graph, node), &y));
    return mica_cast(e->encoder, x, y);
}

/* Another type over the same bytes: nothing moves if they lie in a row. */
static mica_status emit_bits(mica__emitter *e, const mica__node *node)
{
    const mica_tensor out = *mica__node_outputs(e->graph, node);
    const mica__type *type = mica__type_of(e->graph, out);
    mica_buffer *x = NULL, *y = NULL, *same = NULL;
    MICA__TRY(mica__emit_need(e, *mica__node_inputs(e->graph, node), &x));
    MICA__TRY(mica__emit_target(e, out, &y));
    MICA__TRY(mica_buffer_view(y, x->dtype, type->ndim, type->shape, y->stride, 0, &same));
    const mica_status status = mica_copy(e->encoder, x, same);
    mica_buffer_release(same);
    return status;
}

static mica_status emit_index(mica__emitter *e, const mica__node *node)
{
    const mica__shape_data *data = node->data;
    const mica_tensor out = *mica__node_outputs(e->graph, node);
    const mica__region_names names = {"index", value_names, result_names};
    mica__region_small small;
    mica_buffer *y = NULL;
    MICA__TRY(mica__emit_target(e, out, &y));
    mica__region_begin(&small.program, 0, 1);
    small.program.output[0] = mica__region_step(&small.program, MICA_SCALAR_INDEX, mica_register_of(y->dtype),
                                                MICA_REGION_NONE, MICA_REGION_NONE, MICA_REGION_NONE);
    small.program.step[0].axis = (uint8_t)(data->ndim - 1 - data->axis);
    small.program.axes = (uint8_t)(1u << small.program.step[0].axis);
    small.program.special = 1;
    return mica__region_add(e->encoder, &names, &small.program, NULL, false, &y);
}

static mica_status emit_region(mica__emitter *e, const mica__node *node)
{
    static const char *const inputs[] = {
        "input 0", "input 1", "input 2",  "input 3",  "input 4",  "input 5",  "input 6",  "input 7",
        "input 8", "input 9", "input 10", "input 11", "input 12", "input 13", "input 14", "input 15"};
    static const char *const outputs[] = {"output 0", "output 1", "output 2", "output 3",
                                          "output 4", "output 5", "output 6", "output 7"};
    const mica__region_names names = {"region", inputs, outputs};
    mica_buffer *x[MICA_REGION_INPUTS], *y[MICA_REGION_OUTPUTS];
    for (uint32_t i = 0; i < node->input_count; i++)
        MICA__TRY(mica__emit_need(e, mica__node_inputs(e->graph, node)[i], &x[i]));
    for (uint32_t i = 0; i < node->output_count; i++)
        MICA__TRY(mica__emit_target(e, mica__node_outputs(e->graph, node)[i], &y[i]));
    return mica__region_add(e->encoder, &names, node->data, x, false, y);
}

/* Each input goes to its place, unless it was computed there. */
static mica_status emit_concat(mica__emitter *e, const mica__node *node)
{
    const uint32_t axis = ((const mica__concat_data *)node->data)->axis;
    const mica_tensor *in = mica__node_inputs(e->graph, node);
    mica_buffer *y = NULL;
    uint64_t at = 0;
    MICA__TRY(mica__emit_target(e, *mica__node_outputs(e->graph, node), &y));
    for (uint32_t i = 0; i < node->input_count; i++) {
        const uint64_t size = mica__type_of(e->graph, in[i])->shape[axis];
        mica_buffer *x = NULL, *place = NULL;
        MICA__TRY(mica__emit_need(e, in[i], &x));
        MICA__TRY(mica_buffer_slice(y, axis, at, size, &place));
        const bool there = x->storage == place->storage && x->offset == place->offset;
        const mica_status status = there ? MICA_OK : mica_copy(e->encoder, x, place);
        mica_buffer_release(place);
        MICA__TRY(status);
        at += size;
    }
    return MICA_OK;
}

/* ---- ops of the table ---- */

typedef struct op_call {
    mica__emitter *e;
    const mica__node *node;
    mica_buffer **operand;     /* borrowed */
    mica_buffer *copies[FEW];  /* references to let go of, once the call is made */
    mica_buffer *results[FEW]; /* outputs that are not where they belong: copied behind the call */
    uint32_t count, inputs, outputs, copy_count;
} op_call;

static bool strides_fit(const mica_buffer *x, uint8_t strides)
{
    if (strides == MICA__STRIDES_ANY || x->packing.layout != MICA_LAYOUT_CANONICAL ||
        mica_dtype_block_elements(x->dtype) != 1)
        return true;
    if (strides == MICA__STRIDES_WHOLE)
        return mica__buffer_contiguous(x);
    return x->ndim == 0 || x->shape[x->ndim - 1] <= 1 ||
           x->stride[x->ndim - 1] == mica_dtype_block_bytes(x->dtype);
}

static mica_status keep_copy(op_call *call, mica_buffer *copy)
{
    if (call->copy_count == FEW) {
        mica_buffer_release(copy);
        return mica__fail(MICA_ERR_UNSUPPORTED, "over %d operands lie in strides that the op does not take",
                          FEW);
    }
    call->copies[call->copy_count++] = copy;
    return MICA_OK;
}

static mica_status put_input(op_call *call, const mica__slot_info *slot, mica_tensor tensor,
                             mica_buffer **out)
{
    *out = NULL;
    if (tensor == 0)
        return MICA_OK;
    MICA__TRY(mica__emit_need(call->e, tensor, out));
    if (strides_fit(*out, slot->strides))
        return MICA_OK;
    mica_buffer *row = NULL;
    MICA__TRY(in_a_row(call->e, *out, &row));
    *out = row;
    return keep_copy(call, row);
}

/* How many operands of a node lie in the memory of `root`. */
static uint32_t operands_in(const mica__emitter *e, const mica__node *node, uint32_t root)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const mica_tensor in = mica__node_inputs(e->graph, node)[i];
        count += in != 0 && e->root[in] == root;
    }
    return count;
}

/* What an op updates: the old value's own memory where nobody else looks at it any more, nor the op itself by another operand; else a copy of it. */
static mica_status put_updated(op_call *call, mica_tensor old, mica_tensor new, uint32_t at,
                               mica_buffer **out)
{
    mica__emitter *e = call->e;
    mica_buffer *from = NULL;
    MICA__TRY(mica__emit_need(e, old, &from));
    const uint32_t root = e->root[old];
    const bool free_to_take =
        e->last_use[root] == at && !e->computed[root] && old == root && operands_in(e, call->node, root) == 1;
    if (e->buffer[new] == NULL && free_to_take) {
        e->buffer[new] = mica_buffer_retain(from);
        *out = from;
        return MICA_OK;
    }
    MICA__TRY(mica__emit_target(e, new, out));
    const bool same = (*out)->storage == from->storage && (*out)->offset == from->offset;
    return same ? MICA_OK : mica_copy(e->encoder, from, *out);
}

static mica_status put_output(op_call *call, const mica__slot_info *slot, uint32_t output, mica_tensor tensor,
                              mica_buffer **out)
{
    *out = NULL;
    if (tensor == 0)
        return MICA_OK;
    MICA__TRY(mica__emit_target(call->e, tensor, out));
    if (strides_fit(*out, slot->strides))
        return MICA_OK;
    mica_buffer *row = NULL;
    MICA__TRY(make_buffer(call->e, mica__type_of(call->e->graph, tensor), &row));
    *out = row;
    if (output < FEW)
        call->results[output] = row;
    return keep_copy(call, row);
}

static mica_status put_slot(op_call *call, const mica__slot_info *slot, uint32_t at)
{
    const mica_graph *graph = call->e->graph;
    const mica_tensor *in = mica__node_inputs(graph, call->node),
                      *out = mica__node_outputs(graph, call->node);
    const bool reads = (slot->access & MICA_ACCESS_READ) != 0 || (slot->flags & MICA__SLOT_PART) != 0;
    const bool writes = (slot->access & MICA_ACCESS_WRITE) != 0;
    mica_buffer **operand = &call->operand[call->count++];
    if (reads && writes) {
        const mica_tensor old = in[call->inputs++], new = out[call->outputs++];
        *operand = NULL;
        return old == 0 ? MICA_OK : put_updated(call, old, new, at, operand);
    }
    if (reads)
        return put_input(call, slot, in[call->inputs++], operand);
    const uint32_t output = call->outputs++;
    return put_output(call, slot, output, out[output], operand);
}

static mica_status put_slots(op_call *call, uint32_t at)
{
    const mica__op_info *info = &mica__ops[call->node->code];
    for (uint32_t i = 0; i < info->fixed; i++)
        if ((info->slot[i].flags & (MICA__SLOT_INNER | MICA__SLOT_TABLE)) == 0)
            MICA__TRY(put_slot(call, &info->slot[i], at));
    while (info->grouped != 0 && call->inputs < call->node->input_count)
        for (uint32_t i = info->fixed; i < (uint32_t)info->fixed + info->grouped; i++)
            if ((info->slot[i].flags & (MICA__SLOT_INNER | MICA__SLOT_TABLE)) == 0)
                MICA__TRY(put_slot(call, &info->slot[i], at));
    return MICA_OK;
}

static mica_status emit_op(mica__emitter *e, const mica__node *node, uint32_t at)
{
    mica_buffer *few[FEW];
    op_call call = {.e = e, .node = node, .operand = few};
    const uint32_t most = (uint32_t)node->input_count + node->output_count;
    if (most > FEW && (call.operand = mica__alloc(most * sizeof *call.operand)) == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u operands", most);
    mica_status status = put_slots(&call, at);
    if (status == MICA_OK)
        status =
            mica_op_apply(e->encoder, (mica_op)node->code, mica__op_params(node), call.operand, call.count);
    for (uint32_t i = 0; status == MICA_OK && i < node->output_count && i < FEW; i++)
        if (call.results[i] != NULL)
            status = mica_copy(e->encoder, call.results[i], e->buffer[mica__node_outputs(e->graph, node)[i]]);
    for (uint32_t i = 0; i < call.copy_count; i++)
        mica_buffer_release(call.copies[i]);
    if (call.operand != few)
        mica__free(call.operand);
    return status;
}

/* ---- nodes ---- */

static mica_status emit(mica__emitter *e, const mica__node *node, uint32_t at)
{
    switch (node->kind) {
    case MICA_NODE_SCALAR: return emit_scalar(e, node);
    case MICA_NODE_OP: return emit_op(e, node, at);
    case MICA_NODE_REGION: return emit_region(e, node);
    case MICA_NODE_CAST: return emit_cast(e, node);
    case MICA_NODE_INDEX: return emit_index(e, node);
    case MICA_NODE_BITS: return emit_bits(e, node);
    case MICA_NODE_CONCAT: return emit_concat(e, node);
    case MICA_NODE_CUSTOM: return mica__emit_custom(e, node);
    default: return mica__fail(MICA_ERR_INTERNAL, "a node of kind %d cannot be emitted", node->kind);
    }
}

mica_status mica__emit_node(mica__emitter *e, uint32_t at)
{
    const mica__node *node = &e->graph->node[at];
    if (mica__is_leaf(node) || mica__is_view(node))
        return MICA_OK;
    const mica_status status = emit(e, node, at);
    if (status == MICA_OK)
        return MICA_OK;
    const char *label = e->graph->text + node->label;
    return mica__fail(status, "graph: node %u, %s%s%s%s: %s", at, mica__node_name(node),
                      *label != 0 ? " (" : "", label, *label != 0 ? ")" : "", mica_status_message());
}
