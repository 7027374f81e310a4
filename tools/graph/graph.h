/*
 * graph.h - what `mica graph` runs: a file opened as a graph, its inputs from an npz file or drawn, a device.
 */
#ifndef TOOL_GRAPH_GRAPH_H
#define TOOL_GRAPH_GRAPH_H

#include "mica/mica.h"
#include "options.h"

#define GRAPH_MOST_ARRAYS 256u

/* Names, shapes and bytes of inputs or outputs. */
typedef struct graph_arrays {
    mica_array list[GRAPH_MOST_ARRAYS];
    char *name[GRAPH_MOST_ARRAYS]; /* owned */
    uint32_t count;
} graph_arrays;

/* An ONNX file (.onnx), a saved graph, or a graph as text, by what the file is. Sizes of inputs that `fed` has make symbols known. */
mica_status graph_open(const char *path, const graph_arrays *fed, mica_graph **out_graph);
/* The arrays of an npz, npy or safetensors file. */
mica_status graph_read(const char *path, graph_arrays *out);
/* Random ones, for inputs of known sizes, others being 1: floats normal, integers 0 and 1. */
mica_status graph_draw(const mica_graph *graph, uint64_t seed, graph_arrays *out);
mica_status graph_write(const char *path, const mica_array *list, uint32_t count);
void graph_free(graph_arrays *arrays);

#endif
