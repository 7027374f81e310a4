/*
 * fuzz_graph.c - any bytes are the text of a graph, and a file with one. What is accepted is sound, has a text that gives it back, and goes through all passes, behind which it
 * is sound as well. One device stays open for what the passes compute, which is most of an execution's time where each opens its own.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/passes/passes.h"
#include "graph/text/file.h"
#include "graph/text/text.h"
#include "mica/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        __builtin_trap();
}

static mica_device *device; /* that folds; its caches may grow */
static uint64_t device_bytes;

static void check_passes(const mica_graph *graph)
{
    const mica__pass_options options = {.precision = MICA_GRAPH_PRECISION_F16, .folds = device};
    mica_graph *out = NULL;
    if (mica__graph_optimise(graph, &options, &out) == MICA_OK)
        require(mica_graph_verify(out) == MICA_OK);
    else
        require(mica_status_message()[0] != '\0');
    mica_graph_release(out);
}

/* A graph of a file has constants that no text holds. */
static void check(const mica_graph *graph, int whole)
{
    mica__words first = {.data = NULL}, second = {.data = NULL};
    mica_graph *again = NULL;
    require(mica_graph_verify(graph) == MICA_OK);
    require(mica__graph_write(graph, &first, NULL) == MICA_OK);
    if (whole && first.data != NULL && strstr(first.data, "(..)") == NULL) {
        require(mica_graph_parse(first.data, first.length, &again) == MICA_OK);
        require(mica__graph_write(again, &second, NULL) == MICA_OK);
        require(first.length == second.length && memcmp(first.data, second.data, first.length) == 0);
    }
    mica__words_free(&first);
    mica__words_free(&second);
    mica_graph_release(again);
    check_passes(graph);
}

/* Nothing is left but the device; where that has more than before, nothing is left without it. */
static void check_memory(void)
{
    if (mica_host_bytes() == device_bytes)
        return;
    mica_device_release(device);
    device = NULL;
    require(mica_host_bytes() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mica_graph *graph = NULL;
    mica_weights *weights = NULL;
    if (device == NULL) {
        require(mica_device_open("cpu", &(mica_device_options){.threads = 1}, &device) == MICA_OK);
        device_bytes = mica_host_bytes();
    }
    if (mica_graph_parse((const char *)data, size, &graph) == MICA_OK)
        check(graph, 1);
    else
        require(graph == NULL && mica_status_message()[0] != '\0');
    mica_graph_release(graph);
    graph = NULL;
    if (mica_weights_open_bytes(data, size, NULL, &weights) == MICA_OK) {
        if (mica__graph_from_weights(weights, &graph) == MICA_OK)
            check(graph, 0);
        else
            require(graph == NULL && mica_status_message()[0] != '\0');
    }
    mica_graph_release(graph);
    mica_weights_release(weights);
    check_memory();
    return 0;
}
