/* fuzz_onnx_graph.c: any bytes as an ONNX model that becomes a graph: refused with a sentence, or a graph that holds together. Sizes that the model leaves open are 2. */
#include <stddef.h>
#include <stdint.h>

#include "graph/onnx/importer.h"
#include "mica/host.h"
#include "mica/work.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        __builtin_trap();
}

enum { MOST_INPUTS = 16 };

static uint32_t give_shapes(const mica_onnx *model, mica_onnx_tensor *given)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < mica_onnx_input_count(model) && count < MOST_INPUTS; i++) {
        mica_onnx_info info;
        require(mica_onnx_get_input(model, i, &info) == MICA_OK);
        if (info.ndim == MICA_RANK_UNKNOWN)
            continue;
        given[count] = (mica_onnx_tensor){.name = info.name, .ndim = info.ndim};
        for (uint32_t d = 0; d < info.ndim; d++)
            given[count].shape[d] = info.shape[d] == MICA_SIZE_UNKNOWN ? 2 : info.shape[d];
        count++;
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const mica_limits limits = {.steps = 3000000};
    mica_onnx_tensor given[MOST_INPUTS];
    mica_onnx *model = NULL;
    mica_graph *graph = NULL;
    mica_work *work = NULL;
    require(mica_work_create(&limits, &work) == MICA_OK);
    (void)mica_work_use(work);
    if (mica__ox_open_bytes("input", data, size, &model) == MICA_OK) {
        if (mica_onnx_graph(model, given, give_shapes(model, given), &graph) == MICA_OK)
            require(mica_graph_verify(graph) == MICA_OK);
        else
            require(graph == NULL && mica_status_message()[0] != '\0');
    }
    mica_graph_release(graph);
    mica_onnx_release(model);
    (void)mica_work_use(NULL);
    mica_work_release(work);
    require(mica_host_bytes() == 0);
    return 0;
}
