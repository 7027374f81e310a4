/* onnx_memory.h - what the two halves of the reader of ONNX files share: the parser's state, and the memory of a model. */
#ifndef MICA_FORMAT_ONNX_MEMORY_H
#define MICA_FORMAT_ONNX_MEMORY_H

#include "base/protobuf.h"
#include "format/chunks.h"
#include "format/onnx.h"

/* A file beside the model's, mapped. */
typedef struct mica__onnx_file {
    struct mica__onnx_file *next;
    const char *location;
    mica__file_map map;
} mica__onnx_file;

struct mica__onnx_memory {
    struct mica__chunk *chunks;
    void *bytes; /* the file; NULL where they are the caller's */
    mica__onnx_file *files;
    const char *folder; /* of the file; NULL: there is none, so no external data */
};

typedef struct mica__onnx_parser {
    mica__proto proto;
    struct mica__onnx_memory *memory;
} mica__onnx_parser;

/* Zeroed memory of the model for `count` items, at least one byte; OUT_OF_MEMORY. */
mica_status mica__onnx_take(const mica__onnx_parser *p, uint64_t count, size_t size, void *out_pointer);
/* A name or a text for sentences: UTF-8 without NUL. */
mica_status mica__onnx_name(const mica__onnx_parser *p, const mica__proto_field *f, const char **out_name);
/* Any bytes. */
mica_status mica__onnx_bytes(const mica__onnx_parser *p, const mica__proto_field *f,
                             mica__onnx_text *out_text);
/* The numbers of field `number` of a message, packed or one by one: of 4 or 8 bytes, or with 0 varints. They are the model's memory. */
mica_status mica__onnx_numbers(const mica__onnx_parser *p, mica__proto_message m, uint32_t number,
                               uint32_t bytes, const uint64_t **out_numbers, uint64_t *out_count);
/* How often each field below MICA__ONNX_FIELDS stands in a message. */
#define MICA__ONNX_FIELDS 32u
mica_status mica__onnx_count(const mica__onnx_parser *p, mica__proto_message m,
                             uint32_t out_counts[MICA__ONNX_FIELDS]);
/* A key and a value. */
mica_status mica__onnx_read_pair(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_pair *out);
/* A TensorProto. */
mica_status mica__onnx_read_tensor(const mica__onnx_parser *p, mica__proto_message m, mica__onnx_tensor *out);
/* MALFORMED_FILE where a field of a known number is coded otherwise than it must be. */
mica_status mica__onnx_coded(const mica__onnx_parser *p, const mica__proto_message *after,
                             const mica__proto_field *f, uint32_t wire);

#endif
