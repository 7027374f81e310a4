/*
 * ops_build.c - what builders of nodes share.
 */
#include "graph/ops_build.h"

#include <stdarg.h>
#include <stdio.h>

#include "ops/region.h"

/* ---- operands ---- */

bool mica__build_takes(mica_graph *graph, const char *call, const char *argument, mica_tensor tensor,
                       mica__type *out)
{
    const mica__type *type = mica__graph_takes(graph, call, argument, tensor);
    *out = type != NULL ? *type : (mica__type){.ndim = 0};
    return type != NULL;
}

mica_tensor mica__build_refuse(mica_graph *graph, const char *call, const char *argument,
                               const mica__type *type, const char *format, ...)
{
    char why[200], shape[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "%s %s %s %s", argument,
                            mica_dtype_name(type->dtype),
                            mica__shape_words(graph, type->ndim, type->shape, shape), why);
}

bool mica__build_takes_rank(mica_graph *graph, const char *call, const char *argument, mica_tensor tensor,
                            uint32_t least, uint32_t most, mica__type *out)
{
    if (!mica__build_takes(graph, call, argument, tensor, out))
        return false;
    if (out->ndim >= least && out->ndim <= most)
        return true;
    if (least == most)
        return mica__build_refuse(graph, call, argument, out, "has %u dimensions, not %u", out->ndim,
                                  least) != 0;
    return mica__build_refuse(graph, call, argument, out, "has %u dimensions, not %u to %u", out->ndim, least,
                              most) != 0;
}

bool mica__build_axis(mica_graph *graph, const char *call, int32_t axis, uint32_t ndim, uint32_t *out)
{
    const int64_t n = ndim, at = axis < 0 ? axis + n : axis;
    *out = 0;
    if (at < 0 || at >= n)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "axis is %d, of %u dimensions", axis,
                                ndim) != 0;
    *out = (uint32_t)at;
    return true;
}

mica_tensor mica__build_failed(mica_graph *graph, const char *call, mica_status status)
{
    char sentence[320];
    const size_t length = strlen(call);
    snprintf(sentence, sizeof sentence, "%s", mica_status_message());
    const bool named = strncmp(sentence, call, length) == 0 && strncmp(sentence + length, ": ", 2) == 0;
    return mica__graph_fail(graph, status, call, "%s", named ? sentence + length + 2 : sentence);
}

mica_tensor mica__build_end(mica_graph *graph, const char *call, mica_tensor result)
{
    char inner[sizeof graph->sentence], name[96];
    if (result != 0 || graph->status == MICA_OK)
        return result;
    const int length = snprintf(name, sizeof name, "graph_%s", call);
    if (strncmp(graph->sentence, name, (size_t)length) == 0 &&
        strchr(": (", graph->sentence[length]) != NULL) /* it says so already */
        return 0;
    memcpy(inner, graph->sentence, sizeof inner);
    snprintf(graph->sentence, sizeof graph->sentence, "%s: %.*s", name, (int)(sizeof inner - sizeof name - 3),
             strncmp(inner, "graph_", 6) == 0 ? inner + 6 : inner);
    mica__status_set(graph->status, graph->sentence);
    return 0;
}

mica_register mica__build_real(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F64 ? MICA_REGISTER_F64 : MICA_REGISTER_F32;
}

mica_dtype mica__build_join(mica_dtype a, mica_dtype b)
{
    const uint32_t x = mica_dtype_block_bytes(a), y = mica_dtype_block_bytes(b);
    if (a == b || x != y)
        return x >= y ? a : b;
    return mica_register_of(a) == MICA_REGISTER_F32 ? MICA_DTYPE_F32 : a;
}

uint64_t mica__build_times(uint64_t a, uint64_t b)
{
    if (a == 1 || b == 1)
        return a == 1 ? b : a;
    return mica__size_known(a) && mica__size_known(b) ? a * b : MICA_SIZE_UNKNOWN;
}

mica_tensor mica__build_ids(mica_graph *graph, const char *call, const char *argument, mica_tensor ids)
{
    mica__type type;
    if (!mica__build_takes(graph, call, argument, ids, &type))
        return 0;
    switch (mica_register_of(type.dtype)) {
    case MICA_REGISTER_I32: return mica_graph_cast(graph, ids, MICA_DTYPE_I32);
    case MICA_REGISTER_U32: return mica_graph_cast(graph, ids, MICA_DTYPE_U32);
    case MICA_REGISTER_I64:
        return mica_graph_cast(graph, mica_graph_clamp(graph, ids, INT32_MIN, INT32_MAX), MICA_DTYPE_I32);
    case MICA_REGISTER_U64:
        return mica_graph_cast(graph, mica_graph_clamp(graph, ids, 0, UINT32_MAX), MICA_DTYPE_U32);
    default: return mica__build_refuse(graph, call, argument, &type, "is no integer");
    }
}

/* ---- ops and views ---- */

mica_tensor mica__build_op(mica_graph *graph, mica_op op, const void *params, const mica_tensor *inputs,
                           uint32_t count)
{
    return mica_graph_op(graph, op, params, inputs, count, 1, NULL, NULL, 0);
}

mica_tensor mica__build_swap(mica_graph *graph, mica_tensor x, uint32_t a, uint32_t b)
{
    uint32_t order[MICA_MAX_DIMS];
    if (x == 0 || a == b)
        return x;
    for (uint32_t d = 0; d < MICA_MAX_DIMS; d++)
        order[d] = d == a ? b : d == b ? a : d;
    return mica_graph_permute(graph, x, order);
}

mica_tensor mica__build_last(mica_graph *graph, mica_tensor x, uint32_t axis)
{
    uint32_t order[MICA_MAX_DIMS] = {0};
    if (x == 0)
        return 0;
    const uint32_t ndim = mica__type_of(graph, x)->ndim;
    if (axis + 1 >= ndim)
        return x;
    for (uint32_t d = 0; d + 1 < ndim; d++)
        order[d] = d + (d >= axis);
    order[ndim - 1] = axis;
    return mica_graph_permute(graph, x, order);
}

mica_tensor mica__build_unlast(mica_graph *graph, mica_tensor x, uint32_t axis)
{
    uint32_t order[MICA_MAX_DIMS] = {0};
    if (x == 0)
        return 0;
    const uint32_t ndim = mica__type_of(graph, x)->ndim;
    if (axis + 1 >= ndim)
        return x;
    for (uint32_t d = 0; d < ndim; d++)
        order[d] = d < axis ? d : d == axis ? ndim - 1 : d - 1;
    return mica_graph_permute(graph, x, order);
}

mica_tensor mica__build_reshape(mica_graph *graph, mica_tensor x, uint32_t ndim, const uint64_t *shape)
{
    uint64_t own[MICA_MAX_DIMS];
    uint32_t unknown = 0;
    if (x == 0)
        return 0;
    for (uint32_t d = 0; d < ndim && d < MICA_MAX_DIMS; d++) {
        const bool open = shape[d] == MICA_SIZE_UNKNOWN;
        own[d] = open ? MICA_SIZE_REST : shape[d];
        unknown += open;
    }
    if (unknown > 1 || ndim > MICA_MAX_DIMS)
        return mica__build_refuse(graph, "reshape", "x", mica__type_of(graph, x), "%s",
                                  unknown > 1 ? "has two sizes of which nothing is known: give them symbols"
                                              : "would have more dimensions than there may be");
    return mica_graph_reshape(graph, x, ndim, own);
}

mica_tensor mica__build_insert(mica_graph *graph, mica_tensor x, uint32_t at)
{
    uint64_t shape[MICA_MAX_DIMS + 1];
    if (x == 0)
        return 0;
    const mica__type type = *mica__type_of(graph, x);
    if (type.ndim == MICA_MAX_DIMS)
        return mica__build_refuse(graph, "reshape", "x", &type, "has no room for one dimension more");
    for (uint32_t d = 0; d <= type.ndim; d++)
        shape[d] = d == at ? 1 : type.shape[d - (d > at)];
    return mica__build_reshape(graph, x, type.ndim + 1, shape);
}

mica_tensor mica__build_as(mica_graph *graph, mica_tensor x, const mica__type *type)
{
    return x == 0 ? 0 : mica__build_reshape(graph, x, type->ndim, type->shape);
}

mica_tensor mica__build_merge(mica_graph *graph, mica_tensor x, uint32_t begin, uint32_t end)
{
    uint64_t shape[MICA_MAX_DIMS + 1];
    uint32_t ndim = 0;
    if (x == 0)
        return 0;
    const mica__type type = *mica__type_of(graph, x);
    for (uint32_t d = 0; d < begin; d++)
        shape[ndim++] = type.shape[d];
    shape[ndim] = 1;
    for (uint32_t d = begin; d < end; d++)
        shape[ndim] = mica__build_times(shape[ndim], type.shape[d]);
    ndim++;
    for (uint32_t d = end; d < type.ndim; d++)
        shape[ndim++] = type.shape[d];
    if (end == begin + 1)
        return x;
    return mica__build_reshape(graph, x, ndim, shape);
}

mica_tensor mica__build_expand(mica_graph *graph, const char *call, const char *argument, mica_tensor x,
                               uint32_t ndim, const uint64_t *shape)
{
    mica__type type;
    char words[160];
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, argument, x, &type))
        return 0;
    for (uint32_t d = 0; d < ndim; d++)
        if (shape[d] == MICA_SIZE_UNKNOWN)
            return mica__build_refuse(graph, call, argument, &type,
                                      "is to repeat to %s, of which a size is not known: give it a symbol",
                                      mica__shape_words(graph, ndim, shape, words));
    bool same = type.ndim == ndim;
    for (uint32_t d = 0; same && d < ndim; d++)
        same = type.shape[d] == shape[d];
    return same ? x : mica__build_end(graph, call, mica_graph_expand(graph, x, ndim, shape));
}

mica_tensor mica__build_repeat(mica_graph *graph, mica_tensor x, uint32_t at, uint64_t size)
{
    const mica_tensor y = mica__build_insert(graph, x, at);
    if (y == 0)
        return 0;
    mica__type type = *mica__type_of(graph, y);
    type.shape[at] = size;
    return mica__build_expand(graph, "expand", "x", y, type.ndim, type.shape);
}

mica_tensor mica__build_number(mica_graph *graph, mica_tensor x, double value)
{
    return x == 0 ? 0 : mica_graph_number(graph, mica__type_of(graph, x)->dtype, value);
}

/* ---- regions ---- */

/* What goes in is of the program's registers and broadcasts; else the sentence names the operand. */
static bool takes_inputs(mica_graph *graph, const char *call, const mica__region_program *program,
                         const char *const *names, const mica_tensor *inputs)
{
    mica__type all = {.ndim = 0}, type;
    char shape[160];
    for (uint32_t i = 0; i < program->input_count; i++) {
        if (!mica__build_takes(graph, call, names[i], inputs[i], &type))
            return false;
        if (mica_register_of(type.dtype) != program->input[i])
            return mica__build_refuse(graph, call, names[i], &type, "does not load to %s",
                                      mica_register_name((mica_register)program->input[i])) != 0;
        if (!mica__broadcast(&all.ndim, all.shape, type.ndim, type.shape))
            return mica__build_refuse(graph, call, names[i], &type, "does not broadcast to %s",
                                      mica__shape_words(graph, all.ndim, all.shape, shape)) != 0;
    }
    return true;
}

mica_tensor mica__build_region(mica_graph *graph, const char *call, const mica__region_program *program,
                               const char *const *names, const mica_tensor *inputs, const mica_dtype *dtypes,
                               mica_tensor *outputs)
{
    mica_region *region = NULL;
    for (uint32_t i = 0; outputs != NULL && i < program->output_count; i++)
        outputs[i] = 0;
    if (!mica__graph_begins(graph, call) || !takes_inputs(graph, call, program, names, inputs))
        return 0;
    const mica_status status = mica__region_copy(call, program, &region);
    if (status != MICA_OK)
        return mica__build_failed(graph, call, status);
    const mica_tensor first = mica_graph_region(graph, region, inputs, dtypes, outputs);
    mica_region_release(region);
    return mica__build_end(graph, call, first);
}

void mica__write_begin(mica__writer *w, mica_graph *graph, const char *call)
{
    memset(w, 0, offsetof(mica__writer, room));
    w->graph = graph;
    w->call = call;
    w->steps = (mica__steps){&w->room.program, MICA_REGION_STEPS, false};
    mica__region_begin(&w->room.program, 0, 0);
}

st_value mica__write_input(mica__writer *w, const char *name, mica_tensor tensor)
{
    const uint32_t i = w->room.program.input_count++;
    const mica__type *type = mica__graph_takes(w->graph, w->call, name, tensor);
    const mica_register reg = type != NULL ? mica_register_of(type->dtype) : MICA_REGISTER_NONE;
    if (type != NULL && reg == MICA_REGISTER_NONE)
        (void)mica__build_refuse(w->graph, w->call, name, type, "is of no plain type");
    w->input[i] = tensor;
    w->name[i] = name;
    w->room.program.input[i] = (uint8_t)(reg == MICA_REGISTER_NONE ? MICA_REGISTER_F32 : reg);
    return st_input(&w->steps, i);
}

void mica__write_output(mica__writer *w, st_value value, mica_dtype dtype)
{
    const uint32_t o = w->room.program.output_count++;
    w->room.program.output[o] = value.at;
    w->dtype[o] = dtype;
}

mica_tensor mica__write_end(mica__writer *w, mica_tensor *outputs)
{
    if (w->graph->status == MICA_OK && w->steps.full)
        return mica__graph_fail(w->graph, MICA_ERR_UNSUPPORTED, w->call, "takes more than %u steps",
                                MICA_REGION_STEPS);
    return mica__build_region(w->graph, w->call, &w->room.program, w->name, w->input, w->dtype, outputs);
}
