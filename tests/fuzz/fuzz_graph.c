/*
 * fuzz_graph.c - any bytes are the text of a graph, and a file with one. What is accepted is sound, has a text that gives it back, and goes through all passes, behind which it
 * is sound as well.
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

static void check_passes(const mica_graph *graph)
{
    static const mica__pass_options options = {.precision = MICA_GRAPH_PRECISION_F16};
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mica_graph *graph = NULL;
    mica_weights *weights = NULL;
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
    require(mica_host_bytes() == 0);
    return 0;
}
