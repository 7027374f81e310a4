/*
 * onnx.h - ONNX models as graphs: opset 11 to the newest, operators as docs/onnx.md lists them.
 *
 *     mica_onnx *model;
 *     mica_onnx_open("model.onnx", &model);
 *     mica_onnx_tensor ids = {.name = "input_ids", .ndim = 2, .shape = {1, 128}};
 *     mica_graph *graph;
 *     mica_onnx_graph(model, &ids, 1, &graph);   // then graph.h, executable.h
 *
 * What is not understood is refused, by name: operators, attributes that an operator has and the importer does not
 * read, types. Shapes are computed while importing: with the sizes of all inputs given, chains of Shape, Gather,
 * Concat and Reshape vanish. Initialisers become constants of the graph. Names of inputs and outputs are the model's.
 */
#ifndef MICA_ONNX_H
#define MICA_ONNX_H

#include "mica/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mica_onnx mica_onnx;

/* Reads a file and checks it; external data lies in the file's own folder or below. Owned by the caller.
 * MALFORMED_FILE, UNSUPPORTED, IO. */
MICA_API mica_status mica_onnx_open(const char *path, mica_onnx **out_model);
/* NULL is fine. Graphs made of it stay. */
MICA_API void mica_onnx_release(mica_onnx *model);

#define MICA_ONNX_NAME_BYTES 128u

/* An input or output as the file has it. */
typedef struct mica_onnx_info {
    const char *name;      /* borrowed */
    const char *type_name; /* "float16"; "" where nothing is said */
    mica_dtype dtype;      /* NONE: not one of mica's types */
    uint32_t ndim;         /* MICA_RANK_UNKNOWN: nothing is said of its shape, or more than MICA_MAX_DIMS */
    uint64_t shape[MICA_MAX_DIMS];     /* MICA_SIZE_UNKNOWN: a symbol, or nothing is said */
    const char *symbol[MICA_MAX_DIMS]; /* its name, else "" */
} mica_onnx_info;

/* The numbers of inputs that are to be fed (initialisers are not among them), and of outputs; 0 for NULL. */
MICA_API uint32_t mica_onnx_input_count(const mica_onnx *model);
/* Of outputs; 0 for NULL. */
MICA_API uint32_t mica_onnx_output_count(const mica_onnx *model);
/* INVALID_ARGUMENT past the last. */
MICA_API mica_status mica_onnx_get_input(const mica_onnx *model, uint32_t i, mica_onnx_info *out_info);
/* Likewise of the outputs. */
MICA_API mica_status mica_onnx_get_output(const mica_onnx *model, uint32_t i, mica_onnx_info *out_info);
/* The version of an operator set that the file asks for, "" being ONNX's own; 0: none. */
MICA_API uint64_t mica_onnx_opset(const mica_onnx *model, const char *domain);

/* What is known of an input: its shape, and with `data` its elements. */
typedef struct mica_onnx_tensor {
    const char *name;
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS];
    const void *data; /* NULL: fed when the graph runs; else it is a constant and no input of the graph */
    uint64_t bytes;
} mica_onnx_tensor;

/* The model as a graph. `inputs` may leave out any: their sizes are what the file says, its symbols symbols of the
 * graph. A size that is known makes its symbol known everywhere. UNSUPPORTED names what is in the way, and all
 * operators that are not known at once; INVALID_ARGUMENT a shape or name that the model does not have. */
MICA_API mica_status mica_onnx_graph(const mica_onnx *model, const mica_onnx_tensor *inputs, uint32_t count,
                                     mica_graph **out_graph);

#ifdef __cplusplus
}
#endif
#endif
