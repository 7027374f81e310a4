/* node.h: a parsed template: tokens, nodes, and the parser's doors.
 *
 * The tree lives in the arena of its template and never changes after parsing: any number of threads may run it. */
#ifndef MICA_TEXT_TEMPLATE_NODE_H
#define MICA_TEXT_TEMPLATE_NODE_H

#include "base/status.h"
#include "text/template/arena.h"
#include "text/template/value.h"

#define MICA__JINJA_PARSE_DEPTH 100 /* brackets and blocks inside each other */

typedef enum mica__jinja_token_kind {
    MICA__JINJA_TOKEN_END = 0,
    MICA__JINJA_TOKEN_DATA,
    MICA__JINJA_TOKEN_PRINT_BEGIN,
    MICA__JINJA_TOKEN_PRINT_END,
    MICA__JINJA_TOKEN_BLOCK_BEGIN,
    MICA__JINJA_TOKEN_BLOCK_END,
    MICA__JINJA_TOKEN_NAME,
    MICA__JINJA_TOKEN_STRING,
    MICA__JINJA_TOKEN_INTEGER,
    MICA__JINJA_TOKEN_FLOAT,
    MICA__JINJA_TOKEN_ADD,
    MICA__JINJA_TOKEN_SUB,
    MICA__JINJA_TOKEN_MUL,
    MICA__JINJA_TOKEN_DIV,
    MICA__JINJA_TOKEN_FLOOR,
    MICA__JINJA_TOKEN_MOD,
    MICA__JINJA_TOKEN_POW,
    MICA__JINJA_TOKEN_TILDE,
    MICA__JINJA_TOKEN_EQ,
    MICA__JINJA_TOKEN_NE,
    MICA__JINJA_TOKEN_LT,
    MICA__JINJA_TOKEN_LE,
    MICA__JINJA_TOKEN_GT,
    MICA__JINJA_TOKEN_GE,
    MICA__JINJA_TOKEN_ASSIGN,
    MICA__JINJA_TOKEN_DOT,
    MICA__JINJA_TOKEN_COLON,
    MICA__JINJA_TOKEN_PIPE,
    MICA__JINJA_TOKEN_COMMA,
    MICA__JINJA_TOKEN_SEMICOLON,
    MICA__JINJA_TOKEN_LPAREN,
    MICA__JINJA_TOKEN_RPAREN,
    MICA__JINJA_TOKEN_LBRACKET,
    MICA__JINJA_TOKEN_RBRACKET,
    MICA__JINJA_TOKEN_LBRACE,
    MICA__JINJA_TOKEN_RBRACE,
    MICA__JINJA_TOKEN_COUNT
} mica__jinja_token_kind;

typedef struct mica__jinja_token {
    mica__jinja_token_kind kind;
    uint32_t at;      /* offset in the text */
    const char *text; /* as written; of data, after stripping */
    size_t length;
    mica__jinja_value value; /* of a string or number */
} mica__jinja_token;

typedef struct mica__jinja_lexer {
    mica__jinja_arena *arena;
    const char *source; /* line ends are \n */
    size_t length, at;
    uint8_t inside;    /* 0: plain text, else the kind of token that began the tag */
    bool raw;          /* inside {% raw %} */
    uint32_t brackets; /* open in this tag */
    char closing[MICA__JINJA_PARSE_DEPTH + 2];
    mica_status status;
} mica__jinja_lexer;

/* The next token; false with status and sentence set when there is none to be had. */
bool mica__jinja_lex(mica__jinja_lexer *lexer, mica__jinja_token *out_token);
/* How a kind of token is called in a sentence. */
const char *mica__jinja_token_name(mica__jinja_token_kind kind);
/* Line and column, from 1, of an offset; columns count characters. */
void mica__jinja_place(const char *source, size_t length, size_t at, uint32_t *out_line,
                       uint32_t *out_column);
/* INVALID_ARGUMENT (or another code) with line and column. */
mica_status mica__jinja_syntax(const char *source, size_t length, size_t at, mica_status code,
                               const char *format, ...) MICA__PRINTF(5, 6);

typedef enum mica__jinja_operator {
    MICA__JINJA_OP_NONE = 0,
    MICA__JINJA_OP_ADD,
    MICA__JINJA_OP_SUB,
    MICA__JINJA_OP_MUL,
    MICA__JINJA_OP_DIV,
    MICA__JINJA_OP_FLOOR,
    MICA__JINJA_OP_MOD,
    MICA__JINJA_OP_POW,
    MICA__JINJA_OP_EQ,
    MICA__JINJA_OP_NE,
    MICA__JINJA_OP_LT,
    MICA__JINJA_OP_LE,
    MICA__JINJA_OP_GT,
    MICA__JINJA_OP_GE,
    MICA__JINJA_OP_IN,
    MICA__JINJA_OP_NOT_IN
} mica__jinja_operator;

/* How an argument is given. */
enum {
    MICA__JINJA_ARGUMENT_PLACE = 0,
    MICA__JINJA_ARGUMENT_NAMED,
    MICA__JINJA_ARGUMENT_LIST,
    MICA__JINJA_ARGUMENT_DICT
};

typedef enum mica__jinja_node_kind {
    /* expressions */
    MICA__JINJA_NODE_CONST = 0,   /* value */
    MICA__JINJA_NODE_NAME,        /* symbol */
    MICA__JINJA_NODE_TUPLE,       /* items */
    MICA__JINJA_NODE_LIST,        /* items */
    MICA__JINJA_NODE_DICT,        /* items: key, value, key, value */
    MICA__JINJA_NODE_ATTRIBUTE,   /* pair.left . value */
    MICA__JINJA_NODE_ITEM,        /* pair.left [ pair.right ] */
    MICA__JINJA_NODE_SLICE,       /* slice: of [ start : stop : step ], each may be NULL */
    MICA__JINJA_NODE_CALL,        /* call */
    MICA__JINJA_NODE_FILTER,      /* call, with a builtin; value: its name */
    MICA__JINJA_NODE_TEST,        /* the same */
    MICA__JINJA_NODE_NOT,         /* pair.left */
    MICA__JINJA_NODE_NEGATIVE,    /* pair.left */
    MICA__JINJA_NODE_POSITIVE,    /* pair.left */
    MICA__JINJA_NODE_BINARY,      /* pair, op */
    MICA__JINJA_NODE_AND,         /* pair */
    MICA__JINJA_NODE_OR,          /* pair */
    MICA__JINJA_NODE_COMPARE,     /* pair.left, then pair.right: a list of OPERAND */
    MICA__JINJA_NODE_CONCAT,      /* items */
    MICA__JINJA_NODE_CONDITIONAL, /* branch: body if test else otherwise; otherwise may be NULL */
    MICA__JINJA_NODE_INPUT,       /* the text that a filter block works on */
    MICA__JINJA_NODE_EXPRESSIONS, /* how many kinds of expression there are */
    /* parts */
    MICA__JINJA_NODE_OPERAND = MICA__JINJA_NODE_EXPRESSIONS, /* op, pair.left */
    MICA__JINJA_NODE_ARGUMENT,  /* op: how it is given; value: its name; pair.left */
    MICA__JINJA_NODE_PARAMETER, /* symbol, value: its name; pair.left: what holds without it */
    MICA__JINJA_NODE_FIELD,     /* a target: symbol . value */
    /* statements */
    MICA__JINJA_NODE_DATA,         /* value */
    MICA__JINJA_NODE_PRINT,        /* pair.left */
    MICA__JINJA_NODE_FOR,          /* loop */
    MICA__JINJA_NODE_IF,           /* branch; otherwise is a list of statements: for elif, of one IF */
    MICA__JINJA_NODE_SET,          /* pair.left = pair.right */
    MICA__JINJA_NODE_SET_BLOCK,    /* block */
    MICA__JINJA_NODE_FILTER_BLOCK, /* block */
    MICA__JINJA_NODE_WITH,         /* block: target is a list of SET */
    MICA__JINJA_NODE_MACRO,        /* macro; symbol, value: its name */
    MICA__JINJA_NODE_CALL_BLOCK,   /* macro */
    MICA__JINJA_NODE_SCOPE,        /* block: a body with names of its own */
    MICA__JINJA_NODE_BREAK,
    MICA__JINJA_NODE_CONTINUE,
    MICA__JINJA_NODE_KINDS
} mica__jinja_node_kind;

/* Names that a macro's body uses, so that they are given to it. */
enum { MICA__JINJA_USES_CALLER = 1, MICA__JINJA_USES_VARARGS = 2, MICA__JINJA_USES_KWARGS = 4 };

typedef struct mica__jinja_node {
    uint8_t kind, op; /* mica__jinja_node_kind, mica__jinja_operator */
    uint8_t uses;     /* of a macro: MICA__JINJA_USES_* */
    uint32_t at;      /* offset in the text */
    uint32_t symbol, count;
    struct mica__jinja_node *next; /* in the list that it is in */
    mica__jinja_value value;
    union {
        struct {
            struct mica__jinja_node *left, *right;
        } pair;
        struct {
            struct mica__jinja_node *of, *start, *stop, *step;
        } slice;
        struct mica__jinja_node *items;
        struct {
            struct mica__jinja_node *of, *arguments;
            const struct mica__jinja_builtin *builtin; /* NULL: not known, an error where it is reached */
        } call;
        struct {
            struct mica__jinja_node *test, *body, *otherwise;
        } branch;
        struct {
            struct mica__jinja_node *target, *of, *test, *body, *otherwise;
        } loop;
        struct {
            struct mica__jinja_node *target, *filter, *body;
        } block;
        struct {
            struct mica__jinja_node *parameters, *body, *call;
        } macro;
    };
} mica__jinja_node;

/* A name of the template; its number stands for it in nodes and scopes. */
typedef struct mica__jinja_symbol {
    const char *text;
    size_t length;
} mica__jinja_symbol;

typedef struct mica__jinja_symbols {
    mica__jinja_symbol *names; /* [count] */
    uint32_t count, capacity;
    uint32_t *slots; /* open addressing, number + 1 */
    uint32_t slot_count;
    uint64_t seed;
} mica__jinja_symbols;

/* Numbers of the names that the language itself uses; parsing begins with them, in this order. */
enum {
    MICA__JINJA_SYMBOL_LOOP = 0,
    MICA__JINJA_SYMBOL_CALLER,
    MICA__JINJA_SYMBOL_VARARGS,
    MICA__JINJA_SYMBOL_KWARGS
};

struct mica_template {
    mica__jinja_arena arena;
    const char *source; /* [length], with line ends of one kind and without the last one */
    size_t length;
    mica__jinja_symbols symbols;
    mica__jinja_node *body;
    uint64_t most_steps, most_bytes;
    int64_t now;
};

/* Fills symbols and body from source. */
mica_status mica__jinja_parse(struct mica_template *of);

#endif
