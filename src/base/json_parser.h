/* json_parser.h: the state of a parse, shared by the files that read JSON and nobody else. */
#ifndef MICA_BASE_JSON_PARSER_H
#define MICA_BASE_JSON_PARSER_H

#include "base/json.h"

typedef struct mica__json_parser {
    mica__json *json;
    char *at, *end;     /* `end` points to the NULs after our copy of the text */
    uint32_t capacity;  /* of json->nodes */
    uint32_t container; /* the innermost open container, valid while depth > 0 */
    uint32_t depth;
    mica__json_limits limits; /* defaults filled in */
    uint32_t *table;          /* [table_capacity] scratch of the duplicate check: node indexes, 0 = free */
    size_t table_capacity;
    uint64_t seed;
} mica__json_parser;

/* MICA_ERR_MALFORMED_FILE with the offset of `at`. */
mica_status mica__json_malformed(const mica__json_parser *parser, const char *at, const char *what);

/* parser->at is behind the opening quote; it ends behind the closing one. The text is decoded in place. */
mica_status mica__json_parse_string(mica__json_parser *parser, const char **out_text, size_t *out_length);

/* parser->at is on the first character of a number; fills type, exact and value of the node. */
mica_status mica__json_parse_number(mica__json_parser *parser, mica__json_node *out_node);

/* Refuses an object, whose members are all there, if two have the same key. */
mica_status mica__json_check_keys(mica__json_parser *parser, const mica__json_node *object);

#endif
