/*
 * onnx.h - an ONNX file as plain structs: what the messages say, checked, and nothing of what operators mean.
 *
 * The file is read into memory whole; texts and tables are the model's own memory, the data of tensors lies in the file's bytes, in maps of files beside it (external
 * data), or where it was decoded to. Numbers of a stranger decide no allocation: tables are as long as there are fields in the file. Knows no
 * device and no graph layer. Immutable after open; any thread.
 *
 * What is read: ir_version, opsets, metadata, functions, the graph with its sub-graphs, nodes with attributes of all kinds but sparse tensors and
 * types, initialisers, inputs, outputs. Sparse tensors and segments are UNSUPPORTED, by name; documentation and annotations are passed over.
 */
#ifndef MICA_FORMAT_ONNX_H
#define MICA_FORMAT_ONNX_H

#include <stdbool.h>

#include "base/file/file.h"
#include "mica/types.h"

#define MICA__ONNX_DEPTH 16u /* graphs inside of graphs */

/* The numbers of TensorProto.DataType. */
typedef enum mica__onnx_type {
    MICA__ONNX_UNDEFINED = 0,
    MICA__ONNX_FLOAT,
    MICA__ONNX_UINT8,
    MICA__ONNX_INT8,
    MICA__ONNX_UINT16,
    MICA__ONNX_INT16,
    MICA__ONNX_INT32,
    MICA__ONNX_INT64,
    MICA__ONNX_STRING,
    MICA__ONNX_BOOL,
    MICA__ONNX_FLOAT16,
    MICA__ONNX_DOUBLE,
    MICA__ONNX_UINT32,
    MICA__ONNX_UINT64,
    MICA__ONNX_COMPLEX64,
    MICA__ONNX_COMPLEX128,
    MICA__ONNX_BFLOAT16,
    MICA__ONNX_FLOAT8E4M3FN,
    MICA__ONNX_FLOAT8E4M3FNUZ,
    MICA__ONNX_FLOAT8E5M2,
    MICA__ONNX_FLOAT8E5M2FNUZ,
    MICA__ONNX_UINT4,
    MICA__ONNX_INT4,
    MICA__ONNX_FLOAT4E2M1,
    MICA__ONNX_FLOAT8E8M0,
    MICA__ONNX_UINT2,
    MICA__ONNX_INT2,
    MICA__ONNX_TYPE_COUNT
} mica__onnx_type;

/* What is said of a type. */
typedef struct mica__onnx_type_info {
    const char *name; /* "float16" */
    mica_dtype dtype; /* NONE: mica has no such type */
    uint32_t bits;    /* of an element; 0: of strings */
    uint8_t field;    /* of a TensorProto that may hold it instead of raw_data */
} mica__onnx_type_info;

/* NULL for a number that is no type. */
const mica__onnx_type_info *mica__onnx_type_get(uint64_t type);
/* The type of mica's elements; UNDEFINED for others. */
mica__onnx_type mica__onnx_type_of(mica_dtype dtype);

/* Bytes; a NUL follows, which is not counted. Names have no other. */
typedef struct mica__onnx_text {
    const char *data;
    uint64_t length;
} mica__onnx_text;

typedef struct mica__onnx_tensor {
    const char *name; /* "" where it has none */
    mica__onnx_type type;
    uint32_t ndim;
    const uint64_t *dims;
    uint64_t elements;
    const uint8_t
        *data; /* [bytes] little endian, of any alignment; 4-bit types two a byte, the even one low */
    uint64_t bytes;
    const mica__onnx_text *strings; /* [elements] of STRING */
} mica__onnx_tensor;

typedef struct mica__onnx_dim {
    const char *name; /* a symbol, "" for none */
    uint64_t size;    /* where it is known */
    bool known;
} mica__onnx_dim;

typedef struct mica__onnx_value {
    const char *name;
    uint32_t
        kind; /* field of TypeProto: 1 a tensor, 4 a sequence, 5 a map, 8 a sparse tensor, 9 an optional; 0: nothing is said */
    mica__onnx_type type; /* of a tensor's elements */
    bool ranked;          /* its shape is said */
    uint32_t ndim;
    const mica__onnx_dim *dim;
} mica__onnx_value;

/* The numbers of AttributeProto.AttributeType. */
typedef enum mica__onnx_kind {
    MICA__ONNX_KIND_NONE = 0,
    MICA__ONNX_KIND_FLOAT,
    MICA__ONNX_KIND_INT,
    MICA__ONNX_KIND_STRING,
    MICA__ONNX_KIND_TENSOR,
    MICA__ONNX_KIND_GRAPH,
    MICA__ONNX_KIND_FLOATS,
    MICA__ONNX_KIND_INTS,
    MICA__ONNX_KIND_STRINGS,
    MICA__ONNX_KIND_TENSORS,
    MICA__ONNX_KIND_GRAPHS,
    MICA__ONNX_KIND_SPARSE,
    MICA__ONNX_KIND_SPARSES,
    MICA__ONNX_KIND_TYPE,
    MICA__ONNX_KIND_TYPES,
    MICA__ONNX_KIND_COUNT
} mica__onnx_kind;

typedef struct mica__onnx_attribute {
    const char *name;
    const char *refers; /* to an attribute of the function around it; "" */
    mica__onnx_kind kind;
    float f;
    int64_t i;
    mica__onnx_text s;
    uint32_t count; /* of the array of its kind */
    const float *floats;
    const int64_t *ints;
    const mica__onnx_text *strings;
    const mica__onnx_tensor *tensors;      /* one, of TENSOR */
    const struct mica__onnx_graph *graphs; /* one, of GRAPH */
} mica__onnx_attribute;

typedef struct mica__onnx_node {
    const char *name, *op, *domain,
        *overload; /* domain "" is ONNX's own, also where the file says "ai.onnx" */
    uint32_t input_count, output_count, attribute_count;
    const char *const *input; /* "": absent */
    const char *const *output;
    const mica__onnx_attribute *attribute;
} mica__onnx_node;

typedef struct mica__onnx_graph {
    const char *name;
    uint32_t node_count, input_count, output_count, tensor_count, value_count;
    const mica__onnx_node *node;
    const mica__onnx_value *input, *output;
    const mica__onnx_tensor *tensor; /* initialisers */
    const mica__onnx_value *value;   /* what is said of values in between */
} mica__onnx_graph;

typedef struct mica__onnx_opset {
    const char *domain; /* as of nodes */
    uint64_t version;
} mica__onnx_opset;

typedef struct mica__onnx_function {
    const char *name, *domain, *overload;
    uint32_t input_count, output_count, attribute_count, default_count, node_count, opset_count;
    const char *const *input, *const *output;
    const char *const *attribute;           /* without a value of their own */
    const mica__onnx_attribute *by_default; /* with one */
    const mica__onnx_node *node;
    const mica__onnx_opset *opset;
} mica__onnx_function;

typedef struct mica__onnx_pair {
    const char *key, *value;
} mica__onnx_pair;

typedef struct mica__onnx {
    const char *path;
    uint64_t ir_version;
    const char *producer, *producer_version, *domain;
    uint32_t opset_count, metadata_count, function_count;
    const mica__onnx_opset *opset;
    const mica__onnx_pair *metadata;
    const mica__onnx_function *function;
    mica__onnx_graph graph;
    struct mica__onnx_memory *memory; /* onnx_memory.h */
} mica__onnx;

/* Reads a file. MALFORMED_FILE names the byte; UNSUPPORTED; IO for external data that cannot be read or lies outside of the file's folder. The caller closes *out. */
mica_status mica__onnx_open(const char *path, mica__onnx **out);
/* The same of bytes that live as long as the model. `path` is for sentences; external data is refused. */
mica_status mica__onnx_open_bytes(const char *path, const void *bytes, size_t size, mica__onnx **out);
/* NULL is fine. */
void mica__onnx_close(mica__onnx *model);

#endif
