/* parser.c: statements, and what all of the parser stands on. */
#include "text/template/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/work.h"

/* ---- tokens and nodes ---- */

void mica__jinja_nodes_add(mica__jinja_nodes *list, mica__jinja_node *node)
{
    if (list->last == NULL)
        list->first = node;
    else
        list->last->next = node;
    list->last = node;
    list->count++;
}

mica__jinja_node *mica__jinja_node_new(mica__jinja_parser *p, mica__jinja_node_kind kind, size_t at)
{
    mica__jinja_node *node = mica__jinja_calloc(&p->of->arena, 1, sizeof *node);
    if (node == NULL) {
        p->status = mica__jinja_arena_failure(&p->of->arena);
        return NULL;
    }
    node->kind = (uint8_t)kind;
    node->at = (uint32_t)at;
    return node;
}

void *mica__jinja_refuse(mica__jinja_parser *p, mica_status code, size_t at, const char *format, ...)
{
    char text[300];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    p->status = mica__jinja_syntax(p->of->source, p->of->length, at, code, "%s", text);
    return NULL;
}

void *mica__jinja_expected(mica__jinja_parser *p, const char *what)
{
    const mica__jinja_token *t = &p->token;
    if (t->kind == MICA__JINJA_TOKEN_NAME || t->kind == MICA__JINJA_TOKEN_INTEGER ||
        t->kind == MICA__JINJA_TOKEN_FLOAT)
        return mica__jinja_refuse(p, MICA_ERR_INVALID_ARGUMENT, t->at, "expected %s, found \"%.*s\"", what,
                                  t->length > 60 ? 60 : (int)t->length, t->text);
    return mica__jinja_refuse(p, MICA_ERR_INVALID_ARGUMENT, t->at, "expected %s, found %s", what,
                              mica__jinja_token_name(t->kind));
}

static bool lex(mica__jinja_parser *p, mica__jinja_token *out)
{
    const size_t from = p->lexer.at;
    if (!mica__jinja_lex(&p->lexer, out)) {
        p->status = p->lexer.status;
        return false;
    }
    p->status = mica__spend(16 + (p->lexer.at - from));
    return p->status == MICA_OK;
}

bool mica__jinja_advance(mica__jinja_parser *p)
{
    if (p->has_ahead) {
        p->token = p->ahead;
        p->has_ahead = false;
        return true;
    }
    return lex(p, &p->token);
}

bool mica__jinja_look(mica__jinja_parser *p)
{
    if (!p->has_ahead && !lex(p, &p->ahead))
        return false;
    p->has_ahead = true;
    return true;
}

bool mica__jinja_at_name(const mica__jinja_parser *p, const char *name)
{
    return p->token.kind == MICA__JINJA_TOKEN_NAME && p->token.length == strlen(name) &&
           memcmp(p->token.text, name, p->token.length) == 0;
}

bool mica__jinja_skip_name(mica__jinja_parser *p, const char *name)
{
    return mica__jinja_at_name(p, name) && mica__jinja_advance(p);
}

bool mica__jinja_skip(mica__jinja_parser *p, mica__jinja_token_kind kind)
{
    return p->token.kind == kind && mica__jinja_advance(p);
}

bool mica__jinja_expect(mica__jinja_parser *p, mica__jinja_token_kind kind)
{
    if (p->token.kind == kind)
        return mica__jinja_advance(p);
    char what[48];
    const char *name = mica__jinja_token_name(kind);
    snprintf(what, sizeof what,
             kind <= MICA__JINJA_TOKEN_DATA || kind == MICA__JINJA_TOKEN_NAME ? "%s" : "\"%s\"", name);
    return mica__jinja_expected(p, what) != NULL;
}

bool mica__jinja_deeper(mica__jinja_parser *p)
{
    if (p->depth <
        MICA__JINJA_PARSE_DEPTH * 3) { /* an expression in brackets counts three times, a block twice */
        p->depth++;
        return true;
    }
    return mica__jinja_refuse(p, MICA_ERR_BUDGET, p->token.at,
                              "too many expressions or blocks inside each other") != NULL;
}

/* ---- names ---- */

static bool grow_symbols(mica__jinja_parser *p)
{
    mica__jinja_symbols *s = &p->of->symbols;
    const uint32_t capacity = s->capacity == 0 ? 64 : s->capacity * 2;
    mica__jinja_symbol *names = mica__jinja_calloc(&p->of->arena, capacity, sizeof *names);
    uint32_t *slots =
        names == NULL ? NULL : mica__jinja_calloc(&p->of->arena, (size_t)capacity * 2, sizeof *slots);
    if (slots == NULL) {
        p->status = mica__jinja_arena_failure(&p->of->arena);
        return false;
    }
    if (s->count != 0)
        memcpy(names, s->names, s->count * sizeof *names);
    s->names = names;
    s->slots = slots;
    s->capacity = capacity;
    s->slot_count = capacity * 2;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t slot =
            (uint32_t)mica__hash_bytes(names[i].text, names[i].length, s->seed) & (s->slot_count - 1);
        while (slots[slot] != 0)
            slot = (slot + 1) & (s->slot_count - 1);
        slots[slot] = i + 1;
    }
    return true;
}

bool mica__jinja_intern(mica__jinja_parser *p, const char *text, size_t length, uint32_t *out_symbol)
{
    mica__jinja_symbols *s = &p->of->symbols;
    if (s->count == s->capacity && !grow_symbols(p))
        return false;
    uint32_t slot = (uint32_t)mica__hash_bytes(text, length, s->seed) & (s->slot_count - 1);
    for (; s->slots[slot] != 0; slot = (slot + 1) & (s->slot_count - 1)) {
        const mica__jinja_symbol *name = &s->names[s->slots[slot] - 1];
        if (name->length == length && memcmp(name->text, text, length) == 0) {
            *out_symbol = s->slots[slot] - 1;
            return true;
        }
    }
    s->names[s->count] = (mica__jinja_symbol){text, length};
    *out_symbol = s->count;
    s->slots[slot] = ++s->count;
    return true;
}

/* ---- bodies and targets ---- */

static mica__jinja_node *parse_statement(mica__jinja_parser *p);

static bool at_any(const mica__jinja_parser *p, const char *const *names)
{
    for (; *names != NULL; names++)
        if (mica__jinja_at_name(p, *names))
            return true;
    return false;
}

/* One print tag or piece of text. */
static mica__jinja_node *parse_output(mica__jinja_parser *p)
{
    const bool data = p->token.kind == MICA__JINJA_TOKEN_DATA;
    mica__jinja_node *node =
        mica__jinja_node_new(p, data ? MICA__JINJA_NODE_DATA : MICA__JINJA_NODE_PRINT, p->token.at);
    if (node == NULL)
        return NULL;
    node->value = mica__jinja_text(p->token.text, p->token.length);
    if (!mica__jinja_advance(p))
        return NULL;
    if (data)
        return node;
    node->pair.left = mica__jinja_parse_tuple(p, true, false, NULL);
    return node->pair.left != NULL && mica__jinja_expect(p, MICA__JINJA_TOKEN_PRINT_END) ? node : NULL;
}

static void refuse_unknown(mica__jinja_parser *p)
{
    const mica__jinja_node *node = p->unknown;
    mica__jinja_refuse(p, MICA_ERR_UNSUPPORTED, node->at, "the %s \"%.*s\" is not known",
                       node->kind == MICA__JINJA_NODE_FILTER ? "filter" : "test",
                       node->value.length > 60 ? 60 : (int)node->value.length, node->value.text);
}

/* Statements up to a tag with one of these names, which is then the token to be read; `begin` is where the block
 * began that they end. NULL names: up to the end of the template. */
static bool parse_statements(mica__jinja_parser *p, const char *const *names, size_t begin,
                             mica__jinja_node **out)
{
    mica__jinja_nodes list = {0};
    *out = NULL;
    for (;;) {
        mica__jinja_node *node;
        if (p->token.kind == MICA__JINJA_TOKEN_END) {
            if (names != NULL)
                mica__jinja_refuse(p, MICA_ERR_INVALID_ARGUMENT, begin,
                                   "this block has no end; {%% %s %%} is missing", names[0]);
            break;
        }
        if (p->token.kind == MICA__JINJA_TOKEN_BLOCK_BEGIN) {
            if (!mica__jinja_advance(p))
                break;
            if (names != NULL && at_any(p, names)) {
                *out = list.first;
                return true;
            }
            node = parse_statement(p);
            if (node == NULL || !mica__jinja_expect(p, MICA__JINJA_TOKEN_BLOCK_END))
                break;
        } else {
            node = parse_output(p);
            if (node == NULL)
                break;
        }
        if (p->unknown != NULL) {
            refuse_unknown(p);
            break;
        }
        mica__jinja_nodes_add(&list, node);
    }
    *out = list.first;
    return p->status == MICA_OK && names == NULL;
}

/* The end of an opening tag and the statements after it. With `drop` the closing name is read too. */
static bool parse_body(mica__jinja_parser *p, const char *const *names, size_t begin, bool drop,
                       mica__jinja_node **out)
{
    *out = NULL;
    if (p->token.kind == MICA__JINJA_TOKEN_COLON && !mica__jinja_advance(p))
        return false;
    if (!mica__jinja_expect(p, MICA__JINJA_TOKEN_BLOCK_END) || !parse_statements(p, names, begin, out))
        return false;
    return !drop || mica__jinja_advance(p);
}

/* One target: a name, name.field where fields are allowed, or targets in brackets. */
static mica__jinja_node *parse_targets(mica__jinja_parser *p, bool fields, const char *end_name);

static mica__jinja_node *parse_target(mica__jinja_parser *p, bool fields, const char *end_name)
{
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None", NULL};
    if (p->token.kind == MICA__JINJA_TOKEN_LPAREN) {
        if (!mica__jinja_deeper(p) || !mica__jinja_advance(p))
            return NULL;
        mica__jinja_node *inner = parse_targets(p, fields, end_name);
        p->depth--;
        return inner != NULL && mica__jinja_expect(p, MICA__JINJA_TOKEN_RPAREN) ? inner : NULL;
    }
    if (p->token.kind != MICA__JINJA_TOKEN_NAME)
        return mica__jinja_expected(p, "a name to assign to");
    if (at_any(p, reserved))
        return mica__jinja_refuse(p, MICA_ERR_INVALID_ARGUMENT, p->token.at, "\"%.*s\" cannot be assigned to",
                                  (int)p->token.length, p->token.text);
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_NAME, p->token.at);
    if (node == NULL || !mica__jinja_intern(p, p->token.text, p->token.length, &node->symbol) ||
        !mica__jinja_advance(p))
        return NULL;
    if (!fields || p->token.kind != MICA__JINJA_TOKEN_DOT)
        return node;
    if (!mica__jinja_advance(p))
        return NULL;
    node->kind = MICA__JINJA_NODE_FIELD;
    node->value = mica__jinja_text(p->token.text, p->token.length);
    return mica__jinja_expect(p, MICA__JINJA_TOKEN_NAME) ? node : NULL;
}

static mica__jinja_node *parse_targets(mica__jinja_parser *p, bool fields, const char *end_name)
{
    mica__jinja_nodes list = {0};
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_TUPLE, p->token.at);
    bool comma = false;
    if (node == NULL)
        return NULL;
    do {
        if (comma &&
            (p->token.kind == MICA__JINJA_TOKEN_RPAREN || p->token.kind == MICA__JINJA_TOKEN_ASSIGN ||
             (end_name != NULL && mica__jinja_at_name(p, end_name))))
            break;
        mica__jinja_node *target = parse_target(p, fields, end_name);
        if (target == NULL)
            return NULL;
        mica__jinja_nodes_add(&list, target);
        if (p->token.kind == MICA__JINJA_TOKEN_COMMA)
            comma = true;
        else
            break;
    } while (mica__jinja_advance(p));
    if (p->status != MICA_OK)
        return NULL;
    node->items = list.first;
    node->count = list.count;
    return comma ? node : list.first;
}

/* ---- statements: each begins after its name ---- */

static mica__jinja_node *parse_for(mica__jinja_parser *p, size_t at)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_FOR, at);
    if (node == NULL)
        return NULL;
    node->loop.target = parse_targets(p, false, "in");
    if (node->loop.target == NULL)
        return NULL;
    if (!mica__jinja_skip_name(p, "in"))
        return p->status != MICA_OK ? NULL : mica__jinja_expected(p, "\"in\"");
    node->loop.of = mica__jinja_parse_tuple(p, false, false, "recursive");
    if (node->loop.of == NULL)
        return NULL;
    if (mica__jinja_at_name(p, "if")) {
        node->loop.test = mica__jinja_advance(p) ? mica__jinja_parse_expression(p, true) : NULL;
        if (node->loop.test == NULL)
            return NULL;
    }
    if (mica__jinja_at_name(p, "recursive"))
        return mica__jinja_refuse(p, MICA_ERR_UNSUPPORTED, p->token.at, "recursive loops are not known");
    p->loops++;
    bool fine = parse_body(p, ends, at, false, &node->loop.body);
    p->loops--;
    if (fine && mica__jinja_at_name(p, "else"))
        fine = mica__jinja_advance(p) &&
               parse_body(p, (const char *const[]){"endfor", NULL}, at, false, &node->loop.otherwise);
    return fine && mica__jinja_advance(p) ? node : NULL;
}

static mica__jinja_node *parse_branches(mica__jinja_parser *p, size_t at)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    mica__jinja_node *first = NULL, *last = NULL;
    for (;;) {
        mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_IF, at);
        if (node == NULL)
            return NULL;
        if (last == NULL)
            first = node;
        else
            last->branch.otherwise = node;
        last = node;
        node->branch.test = mica__jinja_parse_tuple(p, false, false, NULL);
        if (node->branch.test == NULL || !parse_body(p, ends, at, false, &node->branch.body))
            return NULL;
        if (!mica__jinja_at_name(p, "elif"))
            break;
        if (!mica__jinja_advance(p))
            return NULL;
    }
    if (mica__jinja_at_name(p, "else")) {
        const bool fine = mica__jinja_advance(p) && parse_body(p, (const char *const[]){"endif", NULL}, at,
                                                               false, &last->branch.otherwise);
        if (!fine)
            return NULL;
    }
    return mica__jinja_advance(p) ? first : NULL;
}

static mica__jinja_node *parse_if(mica__jinja_parser *p, size_t at)
{
    p->soft++;
    mica__jinja_node *node = parse_branches(p, at);
    p->soft--;
    return node;
}

static mica__jinja_node *parse_set(mica__jinja_parser *p, size_t at)
{
    static const char *const ends[] = {"endset", NULL};
    mica__jinja_node *target = parse_targets(p, true, NULL);
    if (target == NULL)
        return NULL;
    const bool plain = p->token.kind == MICA__JINJA_TOKEN_ASSIGN;
    mica__jinja_node *node =
        mica__jinja_node_new(p, plain ? MICA__JINJA_NODE_SET : MICA__JINJA_NODE_SET_BLOCK, at);
    if (node == NULL)
        return NULL;
    if (plain) {
        node->pair.left = target;
        node->pair.right = mica__jinja_advance(p) ? mica__jinja_parse_tuple(p, true, false, NULL) : NULL;
        return node->pair.right == NULL ? NULL : node;
    }
    node->block.target = target;
    if (p->token.kind == MICA__JINJA_TOKEN_PIPE) {
        node->block.filter =
            mica__jinja_parse_filters(p, mica__jinja_node_new(p, MICA__JINJA_NODE_INPUT, at), false);
        if (node->block.filter == NULL)
            return NULL;
    }
    return parse_body(p, ends, at, true, &node->block.body) ? node : NULL;
}

static mica__jinja_node *parse_filter_block(mica__jinja_parser *p, size_t at)
{
    static const char *const ends[] = {"endfilter", NULL};
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_FILTER_BLOCK, at);
    if (node == NULL)
        return NULL;
    node->block.filter =
        mica__jinja_parse_filters(p, mica__jinja_node_new(p, MICA__JINJA_NODE_INPUT, at), true);
    if (node->block.filter == NULL)
        return NULL;
    return parse_body(p, ends, at, true, &node->block.body) ? node : NULL;
}

static mica__jinja_node *parse_with(mica__jinja_parser *p, size_t at)
{
    static const char *const ends[] = {"endwith", NULL};
    mica__jinja_nodes list = {0};
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_WITH, at);
    while (node != NULL && p->token.kind != MICA__JINJA_TOKEN_BLOCK_END) {
        if (list.count != 0 && !mica__jinja_expect(p, MICA__JINJA_TOKEN_COMMA))
            return NULL;
        mica__jinja_node *set = mica__jinja_node_new(p, MICA__JINJA_NODE_SET, p->token.at);
        if (set == NULL)
            return NULL;
        set->pair.left = parse_target(p, false, NULL);
        if (set->pair.left == NULL || !mica__jinja_expect(p, MICA__JINJA_TOKEN_ASSIGN))
            return NULL;
        set->pair.right = mica__jinja_parse_expression(p, true);
        if (set->pair.right == NULL)
            return NULL;
        mica__jinja_nodes_add(&list, set);
    }
    if (node == NULL)
        return NULL;
    node->block.target = list.first;
    return parse_body(p, ends, at, true, &node->block.body) ? node : NULL;
}

/* (a, b=1) */
static bool parse_parameters(mica__jinja_parser *p, mica__jinja_node *macro)
{
    mica__jinja_nodes list = {0};
    bool defaults = false;
    if (!mica__jinja_expect(p, MICA__JINJA_TOKEN_LPAREN))
        return false;
    while (p->token.kind != MICA__JINJA_TOKEN_RPAREN) {
        if (list.count != 0 && !mica__jinja_expect(p, MICA__JINJA_TOKEN_COMMA))
            return false;
        mica__jinja_node *parameter = parse_target(p, false, NULL);
        if (parameter == NULL)
            return false;
        parameter->kind = MICA__JINJA_NODE_PARAMETER;
        parameter->value = mica__jinja_text(p->of->symbols.names[parameter->symbol].text,
                                            p->of->symbols.names[parameter->symbol].length);
        if (mica__jinja_skip(p, MICA__JINJA_TOKEN_ASSIGN)) {
            defaults = true;
            parameter->pair.left = mica__jinja_parse_expression(p, true);
            if (parameter->pair.left == NULL)
                return false;
        } else if (p->status != MICA_OK) {
            return false;
        } else if (defaults) {
            return mica__jinja_refuse(p, MICA_ERR_INVALID_ARGUMENT, parameter->at,
                                      "a parameter without a default follows one that has one") != NULL;
        }
        mica__jinja_nodes_add(&list, parameter);
    }
    macro->macro.parameters = list.first;
    macro->count = list.count;
    return mica__jinja_advance(p);
}

/* The body of a macro or call block: loops around it end here, and the names it uses are its own. */
static bool parse_macro_body(mica__jinja_parser *p, mica__jinja_node *node, const char *const *ends)
{
    const uint32_t loops = p->loops;
    const uint8_t uses = p->uses;
    p->loops = 0;
    p->uses = 0;
    const bool fine = parse_body(p, ends, node->at, true, &node->macro.body);
    node->uses = p->uses;
    p->loops = loops;
    p->uses = uses | node->uses;
    return fine;
}

static mica__jinja_node *parse_macro(mica__jinja_parser *p, size_t at)
{
    static const char *const ends[] = {"endmacro", NULL};
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_MACRO, at);
    if (node == NULL)
        return NULL;
    node->value = mica__jinja_text(p->token.text, p->token.length);
    if (p->token.kind != MICA__JINJA_TOKEN_NAME)
        return mica__jinja_expected(p, "the name of the macro");
    if (!mica__jinja_intern(p, p->token.text, p->token.length, &node->symbol) || !mica__jinja_advance(p) ||
        !parse_parameters(p, node))
        return NULL;
    return parse_macro_body(p, node, ends) ? node : NULL;
}

static mica__jinja_node *parse_call_block(mica__jinja_parser *p, size_t at)
{
    static const char *const ends[] = {"endcall", NULL};
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_CALL_BLOCK, at);
    if (node == NULL)
        return NULL;
    node->value = mica__jinja_text("caller", 6);
    if (p->token.kind == MICA__JINJA_TOKEN_LPAREN && !parse_parameters(p, node))
        return NULL;
    node->macro.call = mica__jinja_parse_expression(p, true);
    if (node->macro.call == NULL)
        return NULL;
    if (node->macro.call->kind != MICA__JINJA_NODE_CALL)
        return mica__jinja_refuse(p, MICA_ERR_INVALID_ARGUMENT, at,
                                  "{%% call %%} needs a call, as in name(...)");
    return parse_macro_body(p, node, ends) ? node : NULL;
}

static mica__jinja_node *parse_generation(mica__jinja_parser *p, size_t at)
{
    static const char *const ends[] = {"endgeneration", NULL};
    const uint32_t loops = p->loops;
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_SCOPE, at);
    if (node == NULL)
        return NULL;
    p->loops = 0;
    const bool fine = parse_body(p, ends, at, true, &node->block.body);
    p->loops = loops;
    return fine ? node : NULL;
}

static mica__jinja_node *parse_print(mica__jinja_parser *p, size_t at)
{
    mica__jinja_node *node = mica__jinja_node_new(p, MICA__JINJA_NODE_PRINT, at);
    if (node == NULL)
        return NULL;
    node->pair.left = mica__jinja_parse_expression(p, true);
    return node->pair.left == NULL ? NULL : node;
}

static mica__jinja_node *parse_jump(mica__jinja_parser *p, size_t at, mica__jinja_node_kind kind,
                                    const char *name)
{
    if (p->loops == 0)
        return mica__jinja_refuse(p, MICA_ERR_INVALID_ARGUMENT, at, "\"%s\" stands outside of a loop", name);
    return mica__jinja_node_new(p, kind, at);
}

static mica__jinja_node *parse_break(mica__jinja_parser *p, size_t at)
{
    return parse_jump(p, at, MICA__JINJA_NODE_BREAK, "break");
}

static mica__jinja_node *parse_continue(mica__jinja_parser *p, size_t at)
{
    return parse_jump(p, at, MICA__JINJA_NODE_CONTINUE, "continue");
}

static mica__jinja_node *parse_statement(mica__jinja_parser *p)
{
    static const struct {
        const char *name;
        mica__jinja_node *(*parse)(mica__jinja_parser *p, size_t at);
    } statements[] = {
        {"for", parse_for},           {"if", parse_if},
        {"set", parse_set},           {"macro", parse_macro},
        {"call", parse_call_block},   {"filter", parse_filter_block},
        {"with", parse_with},         {"generation", parse_generation},
        {"print", parse_print},       {"break", parse_break},
        {"continue", parse_continue},
    };
    const size_t at = p->token.at;
    if (p->token.kind != MICA__JINJA_TOKEN_NAME)
        return mica__jinja_expected(p, "the name of a tag");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!mica__jinja_at_name(p, statements[i].name))
            continue;
        if (!mica__jinja_deeper(p) || !mica__jinja_advance(p))
            return NULL;
        p->depth++; /* it takes twice the stack of another node */
        mica__jinja_node *node = statements[i].parse(p, at);
        p->depth -= 2;
        return node;
    }
    if (p->token.length > 3 && memcmp(p->token.text, "end", 3) == 0)
        return mica__jinja_refuse(p, MICA_ERR_INVALID_ARGUMENT, at,
                                  "\"%.*s\" ends no block that is open here",
                                  p->token.length > 60 ? 60 : (int)p->token.length, p->token.text);
    if (mica__jinja_at_name(p, "else") || mica__jinja_at_name(p, "elif"))
        return mica__jinja_refuse(p, MICA_ERR_INVALID_ARGUMENT, at,
                                  "\"%.*s\" belongs to no block that is open here", (int)p->token.length,
                                  p->token.text);
    return mica__jinja_refuse(p, MICA_ERR_UNSUPPORTED, at, "the tag \"%.*s\" is not known",
                              p->token.length > 60 ? 60 : (int)p->token.length, p->token.text);
}

mica_status mica__jinja_parse(struct mica_template *of)
{
    static const char *const known[] = {"loop", "caller", "varargs", "kwargs"}; /* as MICA__JINJA_SYMBOL_* */
    mica__jinja_parser p = {.of = of,
                            .lexer = {.arena = &of->arena, .source = of->source, .length = of->length}};
    uint32_t symbol;
    of->symbols.seed = mica__hash_seed();
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!mica__jinja_intern(&p, known[i], strlen(known[i]), &symbol))
            return p.status;
    if (mica__jinja_advance(&p))
        (void)parse_statements(&p, NULL, 0, &of->body);
    return p.status;
}
