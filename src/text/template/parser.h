/* parser.h: what the two halves of the parser share. Each parse function gives a node, or NULL with the
 * parser's status and a sentence set. */
#ifndef MICA_TEXT_TEMPLATE_PARSER_H
#define MICA_TEXT_TEMPLATE_PARSER_H

#include "text/template/node.h"

typedef struct mica__jinja_parser {
    struct mica_template *of;
    mica__jinja_lexer lexer;
    mica__jinja_token token, ahead; /* the one to be read, and the one after it if it was looked at */
    bool has_ahead;
    uint32_t depth;
    uint32_t loops;                  /* around the statement, inside of its macro */
    uint32_t soft;                   /* inside of an {% if %}: what is not known may never be reached */
    const mica__jinja_node *unknown; /* a filter or test that is not known and may be reached */
    uint8_t uses;                    /* MICA__JINJA_USES_* of the macro that is being read */
    mica_status status;
} mica__jinja_parser;

typedef struct mica__jinja_nodes {
    mica__jinja_node *first, *last;
    uint32_t count;
} mica__jinja_nodes;

void mica__jinja_nodes_add(mica__jinja_nodes *list, mica__jinja_node *node);
mica__jinja_node *mica__jinja_node_new(mica__jinja_parser *p, mica__jinja_node_kind kind, size_t at);
/* NULL, with the sentence about the place `at`. */
void *mica__jinja_refuse(mica__jinja_parser *p, mica_status code, size_t at, const char *format, ...)
    MICA__PRINTF(4, 5);
/* "expected X, found Y" about the token to be read. */
void *mica__jinja_expected(mica__jinja_parser *p, const char *what);
bool mica__jinja_advance(mica__jinja_parser *p);
bool mica__jinja_look(mica__jinja_parser *p); /* fills ahead */
/* The token to be read is this name. */
bool mica__jinja_at_name(const mica__jinja_parser *p, const char *name);
/* The same, and reads it. */
bool mica__jinja_skip_name(mica__jinja_parser *p, const char *name);
bool mica__jinja_skip(mica__jinja_parser *p, mica__jinja_token_kind kind);
/* Reads a token of this kind, which must be there. */
bool mica__jinja_expect(mica__jinja_parser *p, mica__jinja_token_kind kind);
/* One level deeper; undone by --p->depth. */
bool mica__jinja_deeper(mica__jinja_parser *p);
bool mica__jinja_intern(mica__jinja_parser *p, const char *text, size_t length, uint32_t *out_symbol);

/* Expressions (expression.c). */
mica__jinja_node *mica__jinja_parse_expression(mica__jinja_parser *p, bool conditional);
/* a, b: a tuple where there is a comma. */
mica__jinja_node *mica__jinja_parse_tuple(mica__jinja_parser *p, bool conditional, bool brackets,
                                          const char *end_name);
/* |name(...)|name(...): filters around `of`; `inline_first`: the first one has no bar. */
mica__jinja_node *mica__jinja_parse_filters(mica__jinja_parser *p, mica__jinja_node *of, bool inline_first);

#endif
