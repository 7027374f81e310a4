/*
 * text.h - graphs as text: what print.c writes and parse.c reads.
 *
 *     symbols batch
 *     %1 = input("x") : f32 [batch, 784]
 *     %2 = parameter("w") : f32 [784, 10]
 *     %3 = product(%1, %2, -, -, -) : f32 [batch, 10]  # layer 1
 *     output "y" = %3
 *
 * A line is a node: what it gives ("_": an output that is not wanted), its name, what it takes ("-": absent), attributes by name, and behind the colon the types of what
 * it gives. Attributes that are 0 are not written. Sub-graphs stand in braces behind their node. "?" is a size that is not known.
 */
#ifndef MICA_GRAPH_TEXT_TEXT_H
#define MICA_GRAPH_TEXT_TEXT_H

#include "graph/ir.h"

#define MICA__TEXT_ELEMENTS 64u /* of constants that are written out */
#define MICA__TEXT_DEPTH 32u    /* sub-graphs inside each other that are read */

/* ---- a text that grows ---- */

typedef struct mica__words {
    char *data; /* a NUL follows, once something was written */
    size_t length, capacity;
    bool failed; /* no memory: what comes is dropped */
} mica__words;

void mica__words_add(mica__words *words, const char *text, size_t length);
void mica__words_text(mica__words *words, const char *text);
void mica__words_uint(mica__words *words, uint64_t value);
void mica__words_int(mica__words *words, int64_t value);
/* As few digits as read back to the same number; inf, -inf, nan, and nan:BITS for other NaNs. */
void mica__words_f32(mica__words *words, float value);
void mica__words_f64(mica__words *words, double value);
/* In quotes; what is no text is \xNN. */
void mica__words_quoted(mica__words *words, const char *text);
void mica__words_free(mica__words *words);

/* A number of decimal digits, whatever the locale; false where it is none. */
bool mica__number_read(const char *text, size_t length, double *out);
/* f32: as mica__words_f32 writes it. */
bool mica__f32_read(const char *text, size_t length, float *out);
bool mica__f64_read(const char *text, size_t length, double *out);

/* 0 to 15, -1 for another character. */
static inline int mica__hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
/* Types whose elements are written as numbers; others are written by their bytes. */
static inline bool mica__has_numbers(mica_dtype dtype)
{
    const mica_register type = mica_register_of(dtype);
    return type != MICA_REGISTER_NONE && dtype != MICA_DTYPE_C64 &&
           (type != MICA_REGISTER_F32 || mica_dtype_block_bytes(dtype) > 1);
}

/* ---- fields of parameters ---- */

typedef enum mica__form {
    MICA__FORM_U32,
    MICA__FORM_I32,
    MICA__FORM_I64,
    MICA__FORM_F32,
    MICA__FORM_F64
} mica__form;

typedef struct mica__field {
    const char *name; /* NULL: behind the last */
    uint16_t offset;
    uint8_t count, form;
} mica__field;

/* Those of an op's parameters; the last has no name. */
const mica__field *mica__fields_of(mica_op op);

/* ---- names ---- */

/* Kind and code of a name; false where there is none. */
bool mica__node_named(const char *name, size_t length, mica_node_kind *out_kind, uint32_t *out_code);

/* ---- constants that lie elsewhere: tensors of a file ---- */

typedef struct mica__text_blob {
    const mica__type *type;
    const mica__blob *blob;
} mica__text_blob;
typedef struct mica__text_blobs {
    mica__text_blob *list;
    uint32_t count, capacity;
} mica__text_blobs;

/* Bytes of the constant "cN" of a file, `bytes` of them, into `to`; NULL: only whether it is there with so many. */
typedef mica_status mica__text_fetch(void *context, uint32_t number, const mica__type *type, void *to,
                                     uint64_t bytes);

/* The whole text. `blobs` NULL: constants that are too long become "..". */
mica_status mica__graph_write(const mica_graph *graph, mica__words *words, mica__text_blobs *blobs);
/* A graph from it. `fetch` NULL: there is no file. */
mica_status mica__graph_read(const char *text, uint64_t length, mica__text_fetch *fetch, void *context,
                             mica_graph **out_graph);

#endif
