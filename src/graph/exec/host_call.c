/*
 * host_call.c - the caller's functions get what they asked for: an encoder and buffers, or memory of the host.
 */
#include "graph/exec/host_call.h"

#include <string.h>

#include "base/alloc.h"
#include "device/objects.h"
#include "graph/custom.h"

/* Types, shapes and buffers of a node's tensors. */
typedef struct tensors {
    mica_operand_desc input[MICA_CUSTOM_TENSORS], output[MICA_CUSTOM_TENSORS];
    mica_buffer *in[MICA_CUSTOM_TENSORS], *out[MICA_CUSTOM_TENSORS];
} tensors;

struct mica__host_call {
    const mica_graph *graph;
    uint32_t at;
    tensors all; /* a reference to each buffer */
};

static mica_custom_call call_of(const mica_graph *graph, const mica__node *node, tensors *all)
{
    for (uint32_t i = 0; i < node->input_count; i++)
        all->input[i] = mica__type_desc(mica__type_of(graph, mica__node_inputs(graph, node)[i]));
    for (uint32_t i = 0; i < node->output_count; i++)
        all->output[i] = mica__type_desc(mica__type_of(graph, mica__node_outputs(graph, node)[i]));
    return (mica_custom_call){.input_count = node->input_count,
                              .output_count = node->output_count,
                              .input = all->input,
                              .output = all->output};
}

static mica_status in_a_row(const mica__custom_data *data, uint32_t i, const mica_buffer *buffer)
{
    if (buffer->packing.layout == MICA_LAYOUT_CANONICAL && mica__buffer_contiguous(buffer))
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "custom '%s': input %u is a parameter whose buffer has strides",
                      data->name, i);
}

/* ---- encoded ---- */

mica_status mica__emit_custom(mica__emitter *e, const mica__node *node)
{
    const mica__custom_data *data = node->data;
    tensors all;
    mica_custom_call call = call_of(e->graph, node, &all);
    for (uint32_t i = 0; i < node->input_count; i++) {
        MICA__TRY(mica__emit_need(e, mica__node_inputs(e->graph, node)[i], &all.in[i]));
        MICA__TRY(in_a_row(data, i, all.in[i]));
    }
    for (uint32_t i = 0; i < node->output_count; i++)
        MICA__TRY(mica__emit_target(e, mica__node_outputs(e->graph, node)[i], &all.out[i]));
    call.encoder = e->encoder;
    call.input_buffer = all.in;
    call.output_buffer = all.out;
    const mica_status status = mica__custom_ask(data, data->encode, &call);
    return status == MICA_OK ? MICA_OK : mica__fail(status, "'%s': %s", data->name, call.sentence);
}

/* ---- called ---- */

mica_status mica__host_call_create(const mica_graph *graph, uint32_t at, mica_buffer *const *fixed,
                                   mica__host_call **out)
{
    const mica__node *node = &graph->node[at];
    mica_status status = MICA_OK;
    *out = NULL;
    mica__host_call *call = mica__calloc(1, sizeof *call);
    if (call == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph: no memory for a call");
    call->graph = graph;
    call->at = at;
    for (uint32_t i = 0; i < node->input_count && status == MICA_OK; i++) {
        call->all.in[i] = mica_buffer_retain(fixed[mica__node_inputs(graph, node)[i]]);
        status = in_a_row(node->data, i, call->all.in[i]);
    }
    for (uint32_t i = 0; i < node->output_count; i++)
        call->all.out[i] = mica_buffer_retain(fixed[mica__node_outputs(graph, node)[i]]);
    if (status != MICA_OK)
        mica__host_call_release(call);
    else
        *out = call;
    return status;
}

void mica__host_call_release(mica__host_call *call)
{
    for (uint32_t i = 0; call != NULL && i < MICA_CUSTOM_TENSORS; i++) {
        mica_buffer_release(call->all.in[i]);
        mica_buffer_release(call->all.out[i]);
    }
    mica__free(call);
}

/* Maps buffers one by one; `*out_mapped` says how many are to be unmapped. */
static mica_status map_all(mica_buffer *const *buffer, uint32_t count, uint32_t access, void **data,
                           uint32_t *out_mapped)
{
    for (*out_mapped = 0; *out_mapped < count; ++*out_mapped)
        MICA__TRY(mica_buffer_map(buffer[*out_mapped], access, &data[*out_mapped]));
    return MICA_OK;
}

static mica_status unmap_all(mica_buffer *const *buffer, uint32_t count)
{
    mica_status first = MICA_OK;
    for (uint32_t i = 0; i < count; i++) {
        const mica_status status = mica_buffer_unmap(buffer[i]);
        if (first == MICA_OK)
            first = status;
    }
    return first;
}

mica_status mica__host_call_run(mica__host_call *host)
{
    const mica__node *node = &host->graph->node[host->at];
    const mica__custom_data *data = node->data;
    const char *label = host->graph->text + node->label;
    void *in[MICA_CUSTOM_TENSORS] = {NULL}, *out[MICA_CUSTOM_TENSORS] = {NULL};
    const void *read_only[MICA_CUSTOM_TENSORS];
    uint32_t mapped_in = 0, mapped_out = 0;
    mica_custom_call call = call_of(host->graph, node, &host->all);
    mica_status status = map_all(host->all.in, node->input_count, MICA_ACCESS_READ, in, &mapped_in);
    if (status == MICA_OK)
        status = map_all(host->all.out, node->output_count, MICA_ACCESS_WRITE, out, &mapped_out);
    if (status == MICA_OK) {
        memcpy(read_only, in, sizeof in);
        call.input_data = read_only;
        call.output_data = out;
        status = mica__custom_ask(data, data->host, &call);
        if (status != MICA_OK)
            status = mica__fail(status, "graph: node %u, custom '%s'%s%s%s: %s", host->at, data->name,
                                *label != 0 ? " (" : "", label, *label != 0 ? ")" : "", call.sentence);
    }
    const mica_status end = unmap_all(host->all.out, mapped_out), last = unmap_all(host->all.in, mapped_in);
    return status != MICA_OK ? status : end != MICA_OK ? end : last;
}
