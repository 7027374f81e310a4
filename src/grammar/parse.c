/* parse.c: reads GBNF, the notation that llama.cpp made known.
 *
 *   root  ::= "yes" | "no" [.!]? | list{1,3}     # a comment
 *   list  ::= "(" [^)\n]+ ")" .
 *
 * A rule ends with its line, but for lines inside ( ) and after ::= and |. Recursion follows the depth of ( ), which
 * is limited. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/work.h"
#include "grammar/grammar.h"

#define MOST_DEPTH 200u
#define MOST_REPEATS 1000000000u
#define MOST_STACKED 8u /* repetitions of repetitions, as in x?+*; they nest as groups do */

typedef struct alternative {
    uint32_t rule, start;
} alternative;

typedef struct parser {
    mica_grammar *grammar;
    const char *text;
    size_t at, length;
    mica__grammar_element *pending; /* sequences that are not ended yet, the innermost last */
    alternative *alternatives;      /* in the order of their ends */
    mica__grammar_range *ranges;    /* of the class being read */
    uint32_t pending_count, pending_capacity, alternative_count, alternative_capacity, range_count,
        range_capacity;
    uint32_t *names; /* table of named rules, index + 1 */
    uint32_t name_slots, depth;
    size_t counted; /* up to where `line` and `line_start` are right */
    uint32_t line;
    size_t line_start;
} parser;

static mica_status parse_alternatives(parser *p, uint32_t rule);

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the rules of the grammar");
}

/* Line and column of the place where the parser stands. Places only grow. */
static void locate(parser *p, uint32_t *out_line, uint32_t *out_column)
{
    for (; p->counted < p->at; p->counted++) {
        if (p->text[p->counted] == '\n') {
            p->line++;
            p->line_start = p->counted + 1;
        }
    }
    *out_line = p->line;
    *out_column = (uint32_t)(p->at - p->line_start) + 1;
}

/* "line 3, column 7: expected X, found Y". */
static mica_status wrong(parser *p, const char *expected)
{
    char found[16] = "the end";
    uint32_t line, column;
    locate(p, &line, &column);
    if (p->at < p->length) {
        const size_t size = mica__utf8_length(p->text + p->at, p->length - p->at);
        const unsigned char byte = (unsigned char)p->text[p->at];
        if (byte == '\n')
            (void)snprintf(found, sizeof found, "a new line");
        else if (size == 0 || byte < 0x20)
            (void)snprintf(found, sizeof found, "byte 0x%02x", byte);
        else
            (void)snprintf(found, sizeof found, "'%.*s'", (int)size, p->text + p->at);
    }
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "line %u, column %u: expected %s, found %s", line, column,
                      expected, found);
}

static int peek(const parser *p)
{
    return p->at < p->length ? (unsigned char)p->text[p->at] : -1;
}

static bool take(parser *p, const char *word)
{
    const size_t size = strlen(word);
    if (p->length - p->at < size || memcmp(p->text + p->at, word, size) != 0)
        return false;
    p->at += size;
    return true;
}

/* Blanks and comments, and line ends where these do not end a rule. */
static void skip(parser *p, bool lines)
{
    for (; p->at < p->length; p->at++) {
        const char c = p->text[p->at];
        if (c == '#')
            while (p->at + 1 < p->length && p->text[p->at + 1] != '\n')
                p->at++;
        else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r')))
            return;
    }
}

/* ---- names ---------------------------------------------------------------------------------------------- */

static bool is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static uint64_t hash_rule(const void *context, uint32_t index)
{
    const mica_grammar *grammar = context;
    const mica__grammar_rule *rule = &grammar->rules[index];
    if (rule->name == MICA__GRAMMAR_NONE)
        return mica__hash_bytes(&index, sizeof index,
                                grammar->seed); /* never looked for, so it may stand anywhere */
    return mica__hash_bytes(grammar->names + rule->name, rule->name_length, grammar->seed);
}

static mica_status new_rule(parser *p, const char *name, uint32_t length, uint32_t *out_rule)
{
    mica_grammar *grammar = p->grammar;
    mica__grammar_rule *rule, *rules;
    char *names =
        mica__grown(grammar->names, &grammar->name_capacity, (uint64_t)grammar->name_bytes + length + 1, 1);
    if (names != NULL)
        grammar->names = names;
    rules = mica__grown(grammar->rules, &grammar->rule_capacity, grammar->rule_count + 1, sizeof *rules);
    if (rules != NULL)
        grammar->rules = rules;
    if (names == NULL || rules == NULL)
        return no_memory();
    rule = &rules[grammar->rule_count];
    memset(rule, 0, sizeof *rule);
    locate(p, &rule->line, &rule->column);
    rule->name = MICA__GRAMMAR_NONE;
    if (name != NULL) {
        rule->name = grammar->name_bytes;
        rule->name_length = length;
        memcpy(names + grammar->name_bytes, name, length);
        grammar->name_bytes += length;
    }
    *out_rule = grammar->rule_count++;
    return MICA_OK;
}

/* The rule of that name, made if nothing mentioned it before (then *out_rule is a rule not yet defined). */
static mica_status find_rule(parser *p, const char *name, uint32_t length, uint32_t *out_rule)
{
    mica_grammar *grammar = p->grammar;
    uint32_t slot;
    MICA__TRY(mica__spend(8 + length));
    if (!mica__table_grow(&p->names, &p->name_slots, grammar->rule_count, hash_rule, grammar))
        return no_memory();
    slot = (uint32_t)mica__hash_bytes(name, length, grammar->seed) & (p->name_slots - 1);
    for (; p->names[slot] != 0; slot = (slot + 1) & (p->name_slots - 1)) {
        const mica__grammar_rule *rule = &grammar->rules[p->names[slot] - 1];
        if (rule->name != MICA__GRAMMAR_NONE && rule->name_length == length &&
            memcmp(grammar->names + rule->name, name, length) == 0) {
            *out_rule = p->names[slot] - 1;
            return MICA_OK;
        }
    }
    mica_status status = new_rule(p, name, length, out_rule);
    if (status == MICA_OK)
        p->names[slot] = *out_rule + 1;
    return status;
}

static mica_status read_name(parser *p, uint32_t *out_rule)
{
    const size_t start = p->at;
    size_t end = start;
    mica_status status;
    while (end < p->length && is_name((unsigned char)p->text[end]))
        end++;
    if (end == start)
        return wrong(p, "the name of a rule");
    status = find_rule(p, p->text + start, (uint32_t)(end - start), out_rule);
    p->at = end;
    return status;
}

/* ---- characters ----------------------------------------------------------------------------------------- */

static mica_status read_hex(parser *p, int digits, uint32_t *out_code)
{
    uint32_t code = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        const int c = peek(p), low = c | 0x20;
        if (c >= '0' && c <= '9')
            code = code << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            code = code << 4 | (uint32_t)(low - 'a' + 10);
        else
            return wrong(p, "a hexadecimal digit");
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return wrong(p, "a code point that is no surrogate and at most 10FFFF before this");
    *out_code = code;
    return MICA_OK;
}

/* One character of a literal or a class, escaped or not. */
static mica_status read_character(parser *p, uint32_t *out_code)
{
    static const char plain[] = "\\\"[]-^nrt/", meant[] = "\\\"[]-^\n\r\t/";
    const char *found;
    size_t size = mica__utf8_length(p->text + p->at, p->length - p->at);
    uint32_t code;
    if (size == 0)
        return wrong(p, "a character in UTF-8");
    code = (unsigned char)p->text[p->at];
    if (size > 1) {
        code &= 0x7fu >> size;
        for (size_t i = 1; i < size; i++)
            code = code << 6 | ((unsigned char)p->text[p->at + i] & 0x3f);
    }
    p->at += size;
    *out_code = code;
    if (code != '\\')
        return MICA_OK;
    if (take(p, "x"))
        return read_hex(p, 2, out_code);
    if (take(p, "u"))
        return read_hex(p, 4, out_code);
    if (take(p, "U"))
        return read_hex(p, 8, out_code);
    found = peek(p) <= 0 ? NULL : strchr(plain, peek(p));
    if (found == NULL)
        return wrong(p, "one of n r t x u U \\ \" [ ] - ^ / after \\");
    p->at++;
    *out_code = (unsigned char)meant[found - plain];
    return MICA_OK;
}

/* ---- elements ------------------------------------------------------------------------------------------- */

static mica_status add_element(parser *p, mica__grammar_kind kind, uint32_t value)
{
    mica__grammar_element *pending =
        mica__grown(p->pending, &p->pending_capacity, p->pending_count + 1, sizeof *pending);
    if (pending == NULL)
        return no_memory();
    p->pending = pending;
    MICA__TRY(mica__spend(4));
    memset(&pending[p->pending_count], 0, sizeof *pending);
    pending[p->pending_count].kind = kind;
    pending[p->pending_count++].value = value;
    return MICA_OK;
}

/* Makes the class of p->ranges an element. */
static mica_status add_class(parser *p, bool negated)
{
    uint32_t index;
    const mica_status status = mica__grammar_class_of(p->grammar, p->ranges, p->range_count, negated, &index);
    return status != MICA_OK ? status : add_element(p, MICA__GRAMMAR_CLASS, index);
}

static mica_status add_range(parser *p, uint32_t low, uint32_t high)
{
    mica__grammar_range *ranges =
        mica__grown(p->ranges, &p->range_capacity, p->range_count + 1, sizeof *ranges);
    if (ranges == NULL)
        return no_memory();
    p->ranges = ranges;
    MICA__TRY(mica__spend(2));
    ranges[p->range_count].low = low;
    ranges[p->range_count++].high = high;
    return MICA_OK;
}

static mica_status read_literal(parser *p)
{
    while (!take(p, "\"")) {
        uint32_t code;
        mica_status status;
        if (peek(p) < 0)
            return wrong(p, "\" after the literal");
        status = read_character(p, &code);
        p->range_count = 0;
        if (status == MICA_OK)
            status = add_range(p, code, code);
        if (status == MICA_OK)
            status = add_class(p, false);
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

static mica_status read_class(parser *p)
{
    const bool negated = take(p, "^");
    p->range_count = 0;
    while (!take(p, "]")) {
        uint32_t low, high;
        mica_status status;
        if (peek(p) < 0)
            return wrong(p, "] after the class");
        status = read_character(p, &low);
        if (status != MICA_OK)
            return status;
        high = low;
        if (p->length - p->at >= 2 && p->text[p->at] == '-' && p->text[p->at + 1] != ']') {
            p->at++;
            status = read_character(p, &high);
            if (status != MICA_OK)
                return status;
            if (high < low)
                return wrong(p, "a range that ends no lower than it begins before this");
        }
        status = add_range(p, low, high);
        if (status != MICA_OK)
            return status;
    }
    return add_class(p, negated);
}

static mica_status read_group(parser *p)
{
    uint32_t rule;
    MICA__TRY(new_rule(p, NULL, 0, &rule));
    p->grammar->rules[rule].defined = true;
    if (++p->depth > MOST_DEPTH)
        return mica__fail(MICA_ERR_BUDGET, "line %u, column %u: more than %u groups inside each other",
                          p->grammar->rules[rule].line, p->grammar->rules[rule].column, MOST_DEPTH);
    MICA__TRY(parse_alternatives(p, rule));
    p->depth--;
    if (!take(p, ")"))
        return wrong(p, ") after the group");
    return add_element(p, MICA__GRAMMAR_RULE, rule);
}

/* Moves the elements from `mark` on into the grammar as an alternative of `rule`. */
static mica_status end_alternative(parser *p, uint32_t rule, uint32_t mark)
{
    mica_grammar *grammar = p->grammar;
    const uint32_t count = p->pending_count - mark;
    alternative *list =
        mica__grown(p->alternatives, &p->alternative_capacity, p->alternative_count + 1, sizeof *list);
    mica__grammar_element *elements;
    if (list != NULL)
        p->alternatives = list;
    elements = mica__grown(grammar->elements, &grammar->element_capacity,
                           (uint64_t)grammar->element_count + count + 1, sizeof *elements);
    if (elements != NULL)
        grammar->elements = elements;
    if (list == NULL || elements == NULL)
        return no_memory();
    MICA__TRY(mica__spend(8 + count));
    if ((uint64_t)grammar->element_count + count + 1 > MICA__GRAMMAR_ELEMENTS)
        return mica__fail(MICA_ERR_BUDGET, "the grammar has more than %u elements", MICA__GRAMMAR_ELEMENTS);
    list[p->alternative_count].rule = rule;
    list[p->alternative_count++].start = grammar->element_count;
    if (count != 0)
        memcpy(elements + grammar->element_count, p->pending + mark, count * sizeof *elements);
    memset(&elements[grammar->element_count + count], 0, sizeof *elements);
    grammar->element_count += count + 1;
    p->pending_count = mark;
    return MICA_OK;
}

static mica_status read_number(parser *p, uint32_t *out_number)
{
    uint64_t number = 0;
    if (peek(p) < '0' || peek(p) > '9')
        return wrong(p, "a number");
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        number = number * 10 + (uint64_t)(peek(p) - '0');
        if (number > MOST_REPEATS)
            return wrong(p, "a number of at most 1,000,000,000");
    }
    *out_number = (uint32_t)number;
    return MICA_OK;
}

/* {m}, {m,} or {m,n}, after the brace. */
static mica_status read_bounds(parser *p, uint32_t *out_min, uint32_t *out_max)
{
    mica_status status;
    skip(p, true);
    status = read_number(p, out_min);
    if (status != MICA_OK)
        return status;
    *out_max = *out_min;
    skip(p, true);
    if (take(p, ",")) {
        skip(p, true);
        *out_max = MICA__GRAMMAR_MANY;
        if (peek(p) != '}')
            status = read_number(p, out_max);
        if (status != MICA_OK)
            return status;
        skip(p, true);
    }
    if (*out_max < *out_min)
        return wrong(p, "an upper bound that is not below the lower one before this");
    return take(p, "}") ? MICA_OK : wrong(p, "} after the repetition");
}

/* Turns the elements from `mark` on into one that repeats them. */
static mica_status repeat(parser *p, uint32_t mark, uint32_t min, uint32_t max)
{
    uint32_t rule = 0;
    mica_status status = MICA_OK;
    if (p->pending_count - mark == 1 && p->pending[mark].kind == MICA__GRAMMAR_RULE) {
        rule = p->pending[mark].value;
        p->pending_count = mark;
    } else {
        status = new_rule(p, NULL, 0, &rule);
        if (status == MICA_OK)
            status = end_alternative(p, rule, mark);
        if (status == MICA_OK)
            p->grammar->rules[rule].defined = true;
    }
    if (status == MICA_OK)
        status = add_element(p, MICA__GRAMMAR_REPEAT, rule);
    if (status != MICA_OK)
        return status;
    p->pending[mark].min = min;
    p->pending[mark].max = max;
    return MICA_OK;
}

/* Repetitions after the elements from `mark` on; several may follow each other. */
static mica_status read_repeats(parser *p, uint32_t mark)
{
    for (uint32_t stacked = 0;; stacked++) {
        uint32_t min = 0, max = MICA__GRAMMAR_MANY;
        mica_status status = MICA_OK;
        if (take(p, "?"))
            max = 1;
        else if (take(p, "+"))
            min = 1;
        else if (take(p, "{"))
            status = read_bounds(p, &min, &max);
        else if (!take(p, "*"))
            return MICA_OK;
        if (stacked == MOST_STACKED)
            return wrong(p, "fewer repetitions of one thing before this");
        if (status == MICA_OK)
            status = repeat(p, mark, min, max);
        if (status != MICA_OK)
            return status;
        skip(p, p->depth > 0);
    }
}

/* Elements up to what ends a sequence: |, ), the end of a line outside groups, the end. */
static mica_status parse_sequence(parser *p, uint32_t rule)
{
    const uint32_t first = p->pending_count;
    for (;;) {
        const uint32_t mark = p->pending_count;
        mica_status status;
        if (take(p, "\"")) {
            status = read_literal(p);
        } else if (take(p, "[")) {
            status = read_class(p);
        } else if (take(p, ".")) {
            p->range_count = 0;
            status = add_class(p, true);
        } else if (take(p, "(")) {
            status = read_group(p);
        } else if (is_name(peek(p))) {
            uint32_t other = 0;
            status = read_name(p, &other);
            if (status == MICA_OK)
                status = add_element(p, MICA__GRAMMAR_RULE, other);
        } else {
            return end_alternative(p, rule, first);
        }
        skip(p, p->depth > 0);
        if (status == MICA_OK)
            status = read_repeats(p, mark);
        if (status != MICA_OK)
            return status;
    }
}

static mica_status parse_alternatives(parser *p, uint32_t rule)
{
    do {
        skip(p, true);
        MICA__TRY(parse_sequence(p, rule));
        skip(p, p->depth > 0);
    } while (take(p, "|"));
    return MICA_OK;
}

static mica_status parse_rule(parser *p)
{
    uint32_t rule, line, column;
    MICA__TRY(read_name(p, &rule));
    if (p->grammar->rules[rule].defined) {
        locate(p, &line, &column);
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "line %u, column %u: the rule '%s' is defined twice",
                          line, column, mica__grammar_rule_name(p->grammar, rule).text);
    }
    p->grammar->rules[rule].defined = true;
    skip(p, false);
    if (!take(p, "::="))
        return wrong(p, "::= after the name of a rule");
    MICA__TRY(parse_alternatives(p, rule));
    if (peek(p) >= 0 && !take(p, "\r\n") && !take(p, "\n") && !take(p, "\r"))
        return wrong(p, "a literal, a class, a rule, a group, a repetition, | or the end of the line");
    return MICA_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

/* The alternatives of each rule side by side, in the order of the text. */
static mica_status gather(parser *p)
{
    mica_grammar *grammar = p->grammar;
    uint32_t total = 0;
    grammar->alternatives = mica__alloc(sizeof *grammar->alternatives * ((size_t)p->alternative_count + 1));
    if (grammar->alternatives == NULL)
        return no_memory();
    for (uint32_t i = 0; i < p->alternative_count; i++)
        grammar->rules[p->alternatives[i].rule].count++;
    for (uint32_t i = 0; i < grammar->rule_count; i++) {
        grammar->rules[i].first = total;
        total += grammar->rules[i].count;
        grammar->rules[i].count = 0;
    }
    for (uint32_t i = 0; i < p->alternative_count; i++) {
        mica__grammar_rule *rule = &grammar->rules[p->alternatives[i].rule];
        grammar->alternatives[rule->first + rule->count++] = p->alternatives[i].start;
    }
    grammar->alternative_count = total;
    return MICA_OK;
}

static mica_status parse_text(parser *p, const char *root)
{
    mica_grammar *grammar = p->grammar;
    mica_status status = MICA_OK;
    size_t spent = 0;
    for (skip(p, true); p->at < p->length && status == MICA_OK; skip(p, true)) {
        status = mica__spend(8 + (p->at - spent) / 8);
        spent = p->at;
        if (status == MICA_OK)
            status = parse_rule(p);
    }
    if (status == MICA_OK)
        status = mica__spend((p->at - spent) / 8);
    if (status != MICA_OK)
        return status;
    for (uint32_t i = 0; i < grammar->rule_count; i++)
        if (!grammar->rules[i].defined)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "line %u, column %u: the rule '%s' is not defined",
                              grammar->rules[i].line, grammar->rules[i].column,
                              mica__grammar_rule_name(grammar, i).text);
    MICA__TRY(find_rule(p, root, (uint32_t)strlen(root), &grammar->root));
    if (!grammar->rules[grammar->root].defined)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "the rule '%.60s' that the grammar should start with is not defined", root);
    MICA__TRY(mica__spend(((uint64_t)p->alternative_count * 2 + grammar->rule_count) * 2));
    return gather(p);
}

mica_status mica__grammar_parse(mica_grammar *grammar, const char *text, size_t length, const char *root)
{
    parser p = {.grammar = grammar, .text = text, .length = length, .line = 1};
    mica_status status = parse_text(&p, root);
    mica__free(p.pending);
    mica__free(p.alternatives);
    mica__free(p.ranges);
    mica__free(p.names);
    return status;
}
