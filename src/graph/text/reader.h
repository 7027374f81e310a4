/*
 * reader.h - text of a graph, token by token: what parse.c and values.c share. The text is a stranger's.
 */
#ifndef MICA_GRAPH_TEXT_READER_H
#define MICA_GRAPH_TEXT_READER_H

#include <string.h>

#include "graph/text/text.h"

enum { MICA__LINE_ATTRIBUTES = 32 };

/* A piece of the text. */
typedef struct mica__span {
    const char *at;
    size_t length;
} mica__span;

typedef struct mica__reader {
    const char *at, *end;
    uint32_t line, depth;
    mica_status status; /* the first failure, which has its sentence */
    mica__text_fetch *fetch;
    void *context;
} mica__reader;

typedef struct mica__attribute {
    mica__span key, value;
    bool used;
} mica__attribute;

/* A node as it stands in the text. */
typedef struct mica__line {
    mica_graph *graph; /* that it is read into */
    mica_tensor *gives, *takes;
    uint32_t gives_count, gives_capacity, takes_count, takes_capacity;
    mica__span name, operands; /* operands: of leaves, as they stand there */
    mica__attribute attribute[MICA__LINE_ATTRIBUTES];
    uint32_t attribute_count;
    mica__type *type;
    uint32_t type_count, type_capacity;
    mica_graph *body[2];
    char label[MICA_GRAPH_NAME_BYTES];
} mica__line;

/* The first failure: MALFORMED_FILE with the number of the line. Gives false. */
bool mica__reader_wrong(mica__reader *reader, const char *format, ...) MICA__PRINTF(2, 3) MICA__COLD;
/* Behind spaces: whether the text goes on with this, which is taken. */
bool mica__reader_takes(mica__reader *reader, const char *text);
bool mica__reader_word(mica__reader *reader, mica__span *out);
bool mica__reader_uint(mica__reader *reader, uint64_t most, uint64_t *out);
/* A string in quotes, its end included. */
bool mica__reader_string(mica__reader *reader, char out[MICA_GRAPH_NAME_BYTES]);
bool mica__reader_shape(mica__reader *reader, mica_graph *graph, uint32_t *ndim, uint64_t *shape);
/* A reader of a piece of the line. */
static inline mica__reader mica__reader_of(const mica__reader *reader, mica__span span)
{
    mica__reader inner = *reader;
    inner.at = span.at;
    inner.end = span.at + span.length;
    return inner;
}
/* Nothing but spaces is left. */
bool mica__reader_ends(mica__reader *reader);
static inline bool mica__span_is(mica__span span, const char *text)
{
    return span.length == strlen(text) && memcmp(span.at, text, span.length) == 0;
}

/* The node that a line is, added to its graph. False: reader->status, or the graph has failed. */
bool mica__line_build(mica__reader *reader, mica__line *line);

#endif
