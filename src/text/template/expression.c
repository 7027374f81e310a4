/* expression.c: expressions: operators by precedence, what follows a value, literals. */
#include <string.h>

#include "text/template/builtin.h"
#include "text/template/parser.h"

/* Precedence of operators between two values, loosest first; all group from the left. */
enum {
    LEVEL_NONE = 0,
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_ADD,
    LEVEL_CONCAT,
    LEVEL_MUL,
    LEVEL_POW
};

static const struct {
    uint8_t level, op;
} operators[MICA__JINJA_TOKEN_COUNT] = {
    [MICA__JINJA_TOKEN_ADD] = {LEVEL_ADD, MICA__JINJA_OP_ADD},
    [MICA__JINJA_TOKEN_SUB] = {LEVEL_ADD, MICA__JINJA_OP_SUB},
    [MICA__JINJA_TOKEN_MUL] = {LEVEL_MUL, MICA__JINJA_OP_MUL},
    [MICA__JINJA_TOKEN_DIV] = {LEVEL_MUL, MICA__JINJA_OP_DIV},
    [MICA__JINJA_TOKEN_FLOOR] = {LEVEL_MUL, MICA__JINJA_OP_FLOOR},
    [MICA__JINJA_TOKEN_MOD] = {LEVEL_MUL, MICA__JINJA_OP_MOD},
    [MICA__JINJA_TOKEN_POW] = {LEVEL_POW, MICA__JINJA_OP_POW},
    [MICA__JINJA_TOKEN_TILDE] = {LEVEL_CONCAT, MICA__JINJA_OP_NONE},
    [MICA__JINJA_TOKEN_EQ] = {LEVEL_COMPARE, MICA__JINJA_OP_EQ},
    [MICA__JINJA_TOKEN_NE] = {LEVEL_COMPARE, MICA__JINJA_OP_NE},
    [MICA__JINJA_TOKEN_LT] = {LEVEL_COMPARE, MICA__JINJA_OP_LT},
    [MICA__JINJA_TOKEN_LE] = {LEVEL_COMPARE, MICA__JINJA_OP_LE},
    [MICA__JINJA_TOKEN_GT] = {LEVEL_COMPARE, MICA__JINJA_OP_GT},
    [MICA__JINJA_TOKEN_GE] = {LEVEL_COMPARE, MICA__JINJA_OP_GE},
};

static mica__jinja_node *parse_binary(mica__jinja_parser *p, int least);
static mica__jinja_node *parse_primary(mica__jinja_parser *p);
static mica__jinja_node *parse_postfix(mica__jinja_parser *p, mica__jinja_node *node);

static mica__jinja_node *pair(mica__jinja_parser *p, mica__jinja_node_kind kind, size_t at,
                              mica__jinja_node *left, mica__jinja_node *right)
{
    mica__jinja_node *node = left == NULL ? NULL : mica__jinja_node_new(p, kind, at);
    if (node != NULL) {
        node->pair.left = left;
        node->pair.right = right;
    }
    return node;
}

/* The operator to be read: its level, and for comparisons which one. False in *fine after an error. */
static int operator_level(mica__jinja_parser *p, uint8_t *op, bool *fine)
{
    *fine = true;
    *op = operators[p->token.kind].op;
    if (p->token.kind != MICA__JINJA_TOKEN_NAME)
        return operators[p->token.kind].level;
    if (mica__jinja_at_name(p, "or"))
        return LEVEL_OR;
    if (mica__jinja_at_name(p, "and"))
        return LEVEL_AND;
    *op = MICA__JINJA_OP_IN;
    if (mica__jinja_at_name(p, "in"))
        return LEVEL_COMPARE;
    if (!mica__jinja_at_name(p, "not"))
        return LEVEL_NONE;
    *fine = mica__jinja_look(p);
    *op = MICA__JINJA_OP_NOT_IN;
    const bool is_in = *fine && p->ahead.kind == MICA__JINJA_TOKEN_NAME && p->ahead.length == 2 &&
                       memcmp(p->ahead.text, "in", 2) == 0;
    return is_in ? LEVEL_COMPARE : LEVEL_NONE;
}

/* left < a == b ...: each neighbour with the next. */
static mica__jinja_node *parse_compare(mica__jinja_parser *p, mica__jinja_node *left)
{
    mica__jinja_nodes operands = {0};
    const size_t at = p->token.at;
    uint8_t op;
    bool fine;
    while (operator_level(p, &op, &fine) == LEVEL_COMPARE && fine) {
        const size_t operand_at = p->token.at;
        if (!mica__jinja_advance(p) || (op == MICA__JINJA_OP_NOT_IN && !mica__jinja_advance(p)))
            return NULL;
        mica__jinja_node *operand =
            pair(p, MICA__JINJA_NODE_OPERAND, operand_at, parse_binary(p, LEVEL_ADD), NULL);
        if (operand == NULL)
            return NULL;
        operand->op = op;
        mica__jinja_nodes_add(&operands, operand);
    }
    return fine ? pair(p, MICA__JINJA_NODE_COMPARE, at, left, operands.first) : NULL;
}

static mica__jinja_node *parse_concat(mica__jinja_parser *p, mica__jinja_node *left)
{
    mica__jinja_nodes items = {0};
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_CONCAT, p->token.at);
    mica__jinja_nodes_add(&items, left);
    while (node != NULL && p->token.kind == MICA__JINJA_TOKEN_TILDE) {
        mica__jinja_node *item = mica__jinja_advance(p) ? parse_binary(p, LEVEL_MUL) : NULL;
        if (item == NULL)
            return NULL;
        mica__jinja_nodes_add(&items, item);
    }
    if (node != NULL)
        node->items = items.first;
    return node;
}

/* Filters and tests after a value, and calls of what they give. */
static mica__jinja_node *parse_test(mica__jinja_parser *p, mica__jinja_node *of);
static mica__jinja_node *parse_call(mica__jinja_parser *p, mica__jinja_node *of);

static mica__jinja_node *parse_filter_chain(mica__jinja_parser *p, mica__jinja_node *node)
{
    while (node != NULL) {
        if (p->token.kind == MICA__JINJA_TOKEN_PIPE)
            node = mica__jinja_parse_filters(p, node, false);
        else if (mica__jinja_at_name(p, "is"))
            node = parse_test(p, node);
        else if (p->token.kind == MICA__JINJA_TOKEN_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

static mica__jinja_node *parse_unary(mica__jinja_parser *p, bool filters)
{
    const mica__jinja_token_kind sign = p->token.kind;
    const size_t at = p->token.at;
    mica__jinja_node *node;
    if (!mica__jinja_deeper(p))
        return NULL;
    if (sign == MICA__JINJA_TOKEN_SUB || sign == MICA__JINJA_TOKEN_ADD)
        node = !mica__jinja_advance(p) ? NULL
                                       : pair(p,
                                              sign == MICA__JINJA_TOKEN_SUB ? MICA__JINJA_NODE_NEGATIVE
                                                                            : MICA__JINJA_NODE_POSITIVE,
                                              at, parse_unary(p, false), NULL);
    else
        node = parse_primary(p);
    node = parse_postfix(p, node);
    if (filters)
        node = parse_filter_chain(p, node);
    p->depth--;
    return node;
}

static mica__jinja_node *parse_not(mica__jinja_parser *p)
{
    const size_t at = p->token.at;
    if (!mica__jinja_deeper(p))
        return NULL;
    mica__jinja_node *node =
        mica__jinja_advance(p) ? pair(p, MICA__JINJA_NODE_NOT, at, parse_binary(p, LEVEL_NOT), NULL) : NULL;
    p->depth--;
    return node;
}

/* Operators of level `least` and tighter ones. */
static mica__jinja_node *parse_binary(mica__jinja_parser *p, int least)
{
    mica__jinja_node *left =
        least <= LEVEL_NOT && mica__jinja_at_name(p, "not") ? parse_not(p) : parse_unary(p, true);
    uint8_t op;
    bool fine;
    while (left != NULL) {
        const int level = operator_level(p, &op, &fine);
        const size_t at = p->token.at;
        if (!fine)
            return NULL;
        if (level == LEVEL_NONE || level < least)
            break;
        if (level == LEVEL_COMPARE) {
            left = parse_compare(p, left);
        } else if (level == LEVEL_CONCAT) {
            left = parse_concat(p, left);
        } else {
            mica__jinja_node *right = mica__jinja_advance(p) ? parse_binary(p, level + 1) : NULL;
            if (right == NULL)
                return NULL;
            left = pair(p,
                        level == LEVEL_OR    ? MICA__JINJA_NODE_OR
                        : level == LEVEL_AND ? MICA__JINJA_NODE_AND
                                             : MICA__JINJA_NODE_BINARY,
                        at, left, right);
            if (left != NULL)
                left->op = op;
        }
    }
    return left;
}

mica__jinja_node *mica__jinja_parse_expression(mica__jinja_parser *p, bool conditional)
{
    const mica__jinja_node *unknown = p->unknown;
    if (!mica__jinja_deeper(p))
        return NULL;
    mica__jinja_node *node = parse_binary(p, LEVEL_OR);
    while (node != NULL && conditional && mica__jinja_at_name(p, "if")) {
        mica__jinja_node *choice = mica__jinja_node_new(p, MICA__JINJA_NODE_CONDITIONAL, p->token.at);
        if (choice == NULL || !mica__jinja_advance(p))
            return NULL;
        choice->branch.body = node;
        choice->branch.test = parse_binary(p, LEVEL_OR);
        if (choice->branch.test == NULL)
            return NULL;
        if (mica__jinja_at_name(p, "else")) {
            choice->branch.otherwise = mica__jinja_advance(p) ? mica__jinja_parse_expression(p, true) : NULL;
            if (choice->branch.otherwise == NULL)
                return NULL;
        }
        node = choice;
        p->unknown = unknown; /* it may never be reached */
    }
    p->depth--;
    return node;
}

static bool is_tuple_end(const mica__jinja_parser *p, const char *end_name)
{
    return p->token.kind == MICA__JINJA_TOKEN_PRINT_END || p->token.kind == MICA__JINJA_TOKEN_BLOCK_END ||
           p->token.kind == MICA__JINJA_TOKEN_RPAREN ||
           (end_name != NULL && mica__jinja_at_name(p, end_name));
}

mica__jinja_node *mica__jinja_parse_tuple(mica__jinja_parser *p, bool conditional, bool brackets,
                                          const char *end_name)
{
    mica__jinja_nodes items = {0};
    const size_t at = p->token.at;
    bool comma = false;
    while (!is_tuple_end(p, end_name)) {
        mica__jinja_node *item = mica__jinja_parse_expression(p, conditional);
        if (item == NULL)
            return NULL;
        mica__jinja_nodes_add(&items, item);
        if (p->token.kind != MICA__JINJA_TOKEN_COMMA)
            break;
        comma = true;
        if (!mica__jinja_advance(p))
            return NULL;
    }
    if (!comma && items.count == 1)
        return items.first;
    if (items.count == 0 && !brackets)
        return mica__jinja_expected(p, "an expression");
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_TUPLE, at);
    if (node != NULL) {
        node->items = items.first;
        node->count = items.count;
    }
    return node;
}

/* [a, b] and {k: v, ...}, the token to be read being the bracket. */
static mica__jinja_node *parse_display(mica__jinja_parser *p, bool dict)
{
    const mica__jinja_token_kind end = dict ? MICA__JINJA_TOKEN_RBRACE : MICA__JINJA_TOKEN_RBRACKET;
    mica__jinja_nodes items = {0};
    mica__jinja_node *node =
        mica__jinja_node_new(p, dict ? MICA__JINJA_NODE_DICT : MICA__JINJA_NODE_LIST, p->token.at);
    if (node == NULL || !mica__jinja_advance(p))
        return NULL;
    while (p->token.kind != end) {
        if (items.count != 0 && !mica__jinja_expect(p, MICA__JINJA_TOKEN_COMMA))
            return NULL;
        if (p->token.kind == end)
            break;
        for (int part = 0; part < (dict ? 2 : 1); part++) {
            if (part == 1 && !mica__jinja_expect(p, MICA__JINJA_TOKEN_COLON))
                return NULL;
            mica__jinja_node *item = mica__jinja_parse_expression(p, true);
            if (item == NULL)
                return NULL;
            mica__jinja_nodes_add(&items, item);
        }
    }
    node->items = items.first;
    node->count = dict ? items.count / 2 : items.count;
    return mica__jinja_advance(p) ? node : NULL;
}

static mica__jinja_node *parse_constant(mica__jinja_parser *p, mica__jinja_value value)
{
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_CONST, p->token.at);
    if (node == NULL || !mica__jinja_advance(p))
        return NULL;
    node->value = value;
    return node;
}

static mica__jinja_node *parse_name(mica__jinja_parser *p)
{
    if (mica__jinja_at_name(p, "true") || mica__jinja_at_name(p, "True"))
        return parse_constant(p, mica__jinja_bool(true));
    if (mica__jinja_at_name(p, "false") || mica__jinja_at_name(p, "False"))
        return parse_constant(p, mica__jinja_bool(false));
    if (mica__jinja_at_name(p, "none") || mica__jinja_at_name(p, "None"))
        return parse_constant(p, mica__jinja_none());
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_NAME, p->token.at);
    if (node == NULL || !mica__jinja_intern(p, p->token.text, p->token.length, &node->symbol) ||
        !mica__jinja_advance(p))
        return NULL;
    if (node->symbol >= MICA__JINJA_SYMBOL_CALLER && node->symbol <= MICA__JINJA_SYMBOL_KWARGS)
        p->uses |= (uint8_t)(1u << (node->symbol - MICA__JINJA_SYMBOL_CALLER));
    return node;
}

/* Strings that follow each other are one. */
static mica__jinja_node *parse_string(mica__jinja_parser *p)
{
    mica__jinja_node *node = parse_constant(p, p->token.value);
    while (node != NULL && p->token.kind == MICA__JINJA_TOKEN_STRING) {
        const mica__jinja_value *more = &p->token.value;
        const char *text =
            mica__jinja_append(&p->of->arena, node->value.text, node->value.length, more->text, more->length);
        if (text == NULL) {
            p->status = mica__jinja_arena_failure(&p->of->arena);
            return NULL;
        }
        node->value = mica__jinja_text(text, node->value.length + more->length);
        if (!mica__jinja_advance(p))
            return NULL;
    }
    return node;
}

static mica__jinja_node *parse_primary(mica__jinja_parser *p)
{
    switch ((int)p->token.kind) {
    case MICA__JINJA_TOKEN_NAME: return parse_name(p);
    case MICA__JINJA_TOKEN_STRING: return parse_string(p);
    case MICA__JINJA_TOKEN_INTEGER:
    case MICA__JINJA_TOKEN_FLOAT: return parse_constant(p, p->token.value);
    case MICA__JINJA_TOKEN_LBRACKET: return parse_display(p, false);
    case MICA__JINJA_TOKEN_LBRACE: return parse_display(p, true);
    case MICA__JINJA_TOKEN_LPAREN: break;
    default: return mica__jinja_expected(p, "an expression");
    }
    mica__jinja_node *node = mica__jinja_advance(p) ? mica__jinja_parse_tuple(p, true, true, NULL) : NULL;
    return node != NULL && mica__jinja_expect(p, MICA__JINJA_TOKEN_RPAREN) ? node : NULL;
}

static mica__jinja_node *parse_dot(mica__jinja_parser *p, mica__jinja_node *of)
{
    const size_t at = p->token.at;
    if (!mica__jinja_advance(p))
        return NULL;
    if (p->token.kind == MICA__JINJA_TOKEN_INTEGER)
        return pair(p, MICA__JINJA_NODE_ITEM, at, of, parse_constant(p, p->token.value));
    if (p->token.kind != MICA__JINJA_TOKEN_NAME)
        return mica__jinja_expected(p, "a name or a number");
    mica__jinja_node *node = pair(p, MICA__JINJA_NODE_ATTRIBUTE, at, of, NULL);
    if (node == NULL)
        return NULL;
    node->value = mica__jinja_text(p->token.text, p->token.length);
    return mica__jinja_advance(p) ? node : NULL;
}

/* One bound of a slice; *out stays NULL where it is left out. */
static bool parse_bound(mica__jinja_parser *p, mica__jinja_node **out)
{
    const mica__jinja_token_kind kind = p->token.kind;
    if (kind == MICA__JINJA_TOKEN_COLON || kind == MICA__JINJA_TOKEN_RBRACKET ||
        kind == MICA__JINJA_TOKEN_COMMA)
        return true;
    *out = mica__jinja_parse_expression(p, true);
    return *out != NULL;
}

static mica__jinja_node *parse_subscript(mica__jinja_parser *p, mica__jinja_node *of)
{
    const size_t at = p->token.at;
    mica__jinja_node *start = NULL, *node;
    if (!mica__jinja_advance(p) || !parse_bound(p, &start))
        return NULL;
    if (p->token.kind != MICA__JINJA_TOKEN_COLON) {
        if (start == NULL)
            return mica__jinja_expected(p, "an expression");
        node = pair(p, MICA__JINJA_NODE_ITEM, at, of, start);
        return node != NULL && mica__jinja_expect(p, MICA__JINJA_TOKEN_RBRACKET) ? node : NULL;
    }
    node = mica__jinja_node_new(p, MICA__JINJA_NODE_SLICE, at);
    if (node == NULL)
        return NULL;
    node->slice.of = of;
    node->slice.start = start;
    if (!mica__jinja_advance(p) || !parse_bound(p, &node->slice.stop))
        return NULL;
    if (p->token.kind == MICA__JINJA_TOKEN_COLON &&
        (!mica__jinja_advance(p) || !parse_bound(p, &node->slice.step)))
        return NULL;
    return mica__jinja_expect(p, MICA__JINJA_TOKEN_RBRACKET) ? node : NULL;
}

static mica__jinja_node *parse_postfix(mica__jinja_parser *p, mica__jinja_node *node)
{
    while (node != NULL) {
        if (p->token.kind == MICA__JINJA_TOKEN_DOT)
            node = parse_dot(p, node);
        else if (p->token.kind == MICA__JINJA_TOKEN_LBRACKET)
            node = parse_subscript(p, node);
        else if (p->token.kind == MICA__JINJA_TOKEN_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

/* One argument: a, name=a, *a or **a. `worst` is the latest form so far: forms come in this order. */
static mica__jinja_node *parse_argument(mica__jinja_parser *p, uint8_t *worst)
{
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_ARGUMENT, p->token.at);
    if (node == NULL || !mica__jinja_look(p))
        return NULL;
    if (p->token.kind == MICA__JINJA_TOKEN_MUL || p->token.kind == MICA__JINJA_TOKEN_POW) {
        node->op =
            p->token.kind == MICA__JINJA_TOKEN_MUL ? MICA__JINJA_ARGUMENT_LIST : MICA__JINJA_ARGUMENT_DICT;
        if (!mica__jinja_advance(p))
            return NULL;
    } else if (p->token.kind == MICA__JINJA_TOKEN_NAME && p->ahead.kind == MICA__JINJA_TOKEN_ASSIGN) {
        node->op = MICA__JINJA_ARGUMENT_NAMED;
        node->value = mica__jinja_text(p->token.text, p->token.length);
        if (!mica__jinja_advance(p))
            return NULL;
        if (!mica__jinja_expect(p, MICA__JINJA_TOKEN_ASSIGN))
            return NULL;
    }
    const bool misplaced = node->op == MICA__JINJA_ARGUMENT_PLACE   ? *worst > MICA__JINJA_ARGUMENT_PLACE
                           : node->op == MICA__JINJA_ARGUMENT_NAMED ? *worst == MICA__JINJA_ARGUMENT_DICT
                                                                    : *worst >= node->op;
    if (misplaced)
        return mica__jinja_refuse(p, MICA_ERR_INVALID_ARGUMENT, node->at,
                                  "this argument stands after one that must come later");
    if (node->op > *worst)
        *worst = node->op;
    node->pair.left = mica__jinja_parse_expression(p, true);
    return node->pair.left == NULL ? NULL : node;
}

static bool parse_arguments(mica__jinja_parser *p, mica__jinja_node *call)
{
    mica__jinja_nodes arguments = {0};
    uint8_t worst = MICA__JINJA_ARGUMENT_PLACE;
    if (!mica__jinja_expect(p, MICA__JINJA_TOKEN_LPAREN))
        return false;
    while (p->token.kind != MICA__JINJA_TOKEN_RPAREN) {
        if (arguments.count != 0 && !mica__jinja_expect(p, MICA__JINJA_TOKEN_COMMA))
            return false;
        if (p->token.kind == MICA__JINJA_TOKEN_RPAREN)
            break;
        mica__jinja_node *argument = parse_argument(p, &worst);
        if (argument == NULL)
            return false;
        mica__jinja_nodes_add(&arguments, argument);
    }
    call->call.arguments = arguments.first;
    call->count = arguments.count;
    return mica__jinja_advance(p);
}

static mica__jinja_node *parse_call(mica__jinja_parser *p, mica__jinja_node *of)
{
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_CALL, of->at);
    if (node == NULL)
        return NULL;
    node->call.of = of;
    return parse_arguments(p, node) ? node : NULL;
}

/* The name of a filter or test as a node of its kind, with its row. */
static mica__jinja_node *parse_builtin(mica__jinja_parser *p, mica__jinja_node_kind kind,
                                       mica__jinja_node *of)
{
    if (p->token.kind != MICA__JINJA_TOKEN_NAME)
        return mica__jinja_expected(p, kind == MICA__JINJA_NODE_FILTER ? "the name of a filter"
                                                                       : "the name of a test");
    mica__jinja_node *node = mica__jinja_node_new(p, kind, p->token.at);
    if (node == NULL)
        return NULL;
    node->value = mica__jinja_text(p->token.text, p->token.length);
    node->call.of = of;
    node->call.builtin = kind == MICA__JINJA_NODE_FILTER
                             ? mica__jinja_find_filter(p->token.text, p->token.length)
                             : mica__jinja_find_test(p->token.text, p->token.length);
    if (!mica__jinja_advance(p))
        return NULL;
    while (p->token.kind == MICA__JINJA_TOKEN_DOT) { /* names with dots are of extensions: none is known */
        if (!mica__jinja_advance(p))
            return NULL;
        node->value.length = (size_t)(p->token.text + p->token.length - node->value.text);
        node->call.builtin = NULL;
        if (!mica__jinja_expect(p, MICA__JINJA_TOKEN_NAME))
            return NULL;
    }
    if (node->call.builtin == NULL && p->soft == 0 && p->unknown == NULL)
        p->unknown = node;
    return node;
}

mica__jinja_node *mica__jinja_parse_filters(mica__jinja_parser *p, mica__jinja_node *of, bool inline_first)
{
    while (of != NULL && (inline_first || p->token.kind == MICA__JINJA_TOKEN_PIPE)) {
        if (!inline_first && !mica__jinja_advance(p))
            return NULL;
        inline_first = false;
        of = parse_builtin(p, MICA__JINJA_NODE_FILTER, of);
        if (of != NULL && p->token.kind == MICA__JINJA_TOKEN_LPAREN && !parse_arguments(p, of))
            return NULL;
    }
    return of;
}

/* x is test 3: one argument may stand without brackets. */
static bool parse_bare_argument(mica__jinja_parser *p, mica__jinja_node *test)
{
    const mica__jinja_token_kind kind = p->token.kind;
    const bool begins = kind == MICA__JINJA_TOKEN_NAME || kind == MICA__JINJA_TOKEN_STRING ||
                        kind == MICA__JINJA_TOKEN_INTEGER || kind == MICA__JINJA_TOKEN_FLOAT ||
                        kind == MICA__JINJA_TOKEN_LBRACKET || kind == MICA__JINJA_TOKEN_LBRACE;
    if (!begins || mica__jinja_at_name(p, "else") || mica__jinja_at_name(p, "or") ||
        mica__jinja_at_name(p, "and"))
        return true;
    if (mica__jinja_at_name(p, "is"))
        return mica__jinja_refuse(p, MICA_ERR_INVALID_ARGUMENT, p->token.at,
                                  "tests cannot be chained with \"is\"") != NULL;
    mica__jinja_node *argument = mica__jinja_node_new(p, MICA__JINJA_NODE_ARGUMENT, p->token.at);
    if (argument == NULL)
        return false;
    argument->pair.left = parse_postfix(p, parse_primary(p));
    test->call.arguments = argument;
    test->count = 1;
    return argument->pair.left != NULL;
}

static mica__jinja_node *parse_test(mica__jinja_parser *p, mica__jinja_node *of)
{
    const size_t at = p->token.at;
    if (!mica__jinja_advance(p))
        return NULL;
    const bool negated = mica__jinja_at_name(p, "not");
    if (negated && !mica__jinja_advance(p))
        return NULL;
    mica__jinja_node *node = parse_builtin(p, MICA__JINJA_NODE_TEST, of);
    if (node == NULL)
        return NULL;
    const bool fine =
        p->token.kind == MICA__JINJA_TOKEN_LPAREN ? parse_arguments(p, node) : parse_bare_argument(p, node);
    if (!fine)
        return NULL;
    return negated ? pair(p, MICA__JINJA_NODE_NOT, at, node, NULL) : node;
}
