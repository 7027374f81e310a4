/* fuzz_onnx.c: any bytes as an ONNX model. What is accepted keeps the promises of format/onnx.h. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "format/onnx.h"
#include "mica/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink;

static void require(int condition)
{
    if (!condition)
        __builtin_trap();
}

/* Every byte that a table points to is there. */
static void touch(const void *data, uint64_t size)
{
    for (uint64_t i = 0; i < size; i += 64)
        sink = ((const uint8_t *)data)[i];
    if (size != 0)
        sink = ((const uint8_t *)data)[size - 1];
}

static void check_tensor(const mica__onnx_tensor *t)
{
    const mica__onnx_type_info *info = mica__onnx_type_get(t->type);
    unsigned __int128 elements = 1;
    require(info != NULL && t->name != NULL);
    for (uint32_t d = 0; d < t->ndim; d++)
        elements *= t->dims[d];
    require(elements == t->elements);
    if (info->bits == 0) {
        for (uint64_t i = 0; i < t->elements; i++)
            touch(t->strings[i].data, t->strings[i].length + 1);
        return;
    }
    require(t->bytes == (uint64_t)((elements * info->bits + 7) / 8));
    touch(t->data, t->bytes);
}

static void check_graph(const mica__onnx_graph *graph, uint32_t depth);

static void check_attribute(const mica__onnx_attribute *a, uint32_t depth)
{
    require(a->name != NULL && a->refers != NULL && a->kind < MICA__ONNX_KIND_COUNT);
    for (uint32_t i = 0; i < a->count && a->refers[0] == '\0'; i++) {
        if (a->tensors != NULL)
            check_tensor(&a->tensors[i]);
        if (a->graphs != NULL)
            check_graph(&a->graphs[i], depth + 1);
        if (a->strings != NULL)
            touch(a->strings[i].data, a->strings[i].length + 1);
        if (a->ints != NULL)
            touch(&a->ints[i], sizeof a->ints[i]);
        if (a->floats != NULL)
            touch(&a->floats[i], sizeof a->floats[i]);
    }
}

static void check_nodes(const mica__onnx_node *node, uint32_t count, uint32_t depth)
{
    for (uint32_t n = 0; n < count; n++) {
        require(node[n].op[0] != '\0' && node[n].name != NULL && node[n].domain != NULL);
        for (uint32_t i = 0; i < node[n].input_count; i++)
            touch(node[n].input[i], strlen(node[n].input[i]) + 1);
        for (uint32_t i = 0; i < node[n].output_count; i++)
            touch(node[n].output[i], strlen(node[n].output[i]) + 1);
        for (uint32_t i = 0; i < node[n].attribute_count; i++)
            check_attribute(&node[n].attribute[i], depth);
    }
}

static void check_graph(const mica__onnx_graph *graph, uint32_t depth)
{
    require(depth < MICA__ONNX_DEPTH && graph->name != NULL);
    check_nodes(graph->node, graph->node_count, depth);
    for (uint32_t i = 0; i < graph->tensor_count; i++)
        check_tensor(&graph->tensor[i]);
    for (uint32_t i = 0; i < graph->input_count; i++)
        touch(graph->input[i].dim, graph->input[i].ndim * sizeof *graph->input[i].dim);
    for (uint32_t i = 0; i < graph->output_count; i++)
        touch(graph->output[i].dim, graph->output[i].ndim * sizeof *graph->output[i].dim);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mica__onnx *model = NULL;
    if (mica__onnx_open_bytes("input", data, size, &model) != MICA_OK) {
        require(mica_status_message()[0] != '\0' && model == NULL && mica_host_bytes() == 0);
        return 0;
    }
    check_graph(&model->graph, 0);
    for (uint32_t i = 0; i < model->function_count; i++)
        check_nodes(model->function[i].node, model->function[i].node_count, 0);
    mica__onnx_close(model);
    require(mica_host_bytes() == 0);
    return 0;
}
