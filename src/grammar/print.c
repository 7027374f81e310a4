/* print.c: a grammar as GBNF again. Groups are written in place; alternatives that could never end are gone. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/work.h"
#include "grammar/grammar.h"

#define IN_LITERAL "\\\""
#define IN_CLASS "\\[]"

typedef struct printer {
    const mica_grammar *grammar;
    char *text;
    uint32_t length, capacity;
    bool failed;
} printer;

static void put(printer *p, const char *text, size_t length)
{
    char *larger;
    if (p->failed)
        return;
    larger = mica__grown(p->text, &p->capacity, (uint64_t)p->length + length + 1, 1);
    if (larger == NULL) {
        p->failed = true;
        return;
    }
    p->text = larger;
    memcpy(larger + p->length, text, length);
    p->length += (uint32_t)length;
    larger[p->length] = '\0';
}

static void put_word(printer *p, const char *word)
{
    put(p, word, strlen(word));
}

/* A character inside quotes (`special` is what must be escaped there) or brackets. */
static void put_code(printer *p, uint32_t code, const char *special)
{
    char text[16];
    if (code < 0x20 || code == 0x7f || code == '-' || code == '^')
        (void)snprintf(text, sizeof text, "\\x%02X", code);
    else if (code < 0x7f && strchr(special, (int)code) != NULL)
        (void)snprintf(text, sizeof text, "\\%c", (int)code);
    else
        text[mica__utf8_put(code, text)] = '\0';
    put_word(p, text);
}

static bool is_letter(const mica_grammar *grammar, const mica__grammar_element *element)
{
    const mica__grammar_class *it;
    if (element->kind != MICA__GRAMMAR_CLASS)
        return false;
    it = &grammar->classes[element->value];
    return it->count == 1 && grammar->ranges[it->first].low == grammar->ranges[it->first].high;
}

static void put_range(printer *p, uint32_t low, uint32_t high)
{
    put_code(p, low, IN_CLASS);
    if (high == low)
        return;
    put_word(p, "-");
    put_code(p, high, IN_CLASS);
}

/* A class that reaches the last character is written as what it leaves out, where the surrogates need no word. */
static void put_class(printer *p, const mica__grammar_class *it)
{
    const mica__grammar_range *ranges = p->grammar->ranges + it->first;
    const bool negated = it->count > 1 && ranges[it->count - 1].high == 0x10ffff;
    uint32_t gap = 0;
    if (negated && it->count == 2 && ranges[0].low == 0 && ranges[0].high == 0xd7ff &&
        ranges[1].low == 0xe000) {
        put_word(p, ".");
        return;
    }
    put_word(p, negated ? "[^" : "[");
    for (uint32_t i = 0; i < it->count; i++) {
        const uint32_t end = ranges[i].low == 0xe000 ? 0xd800 : ranges[i].low; /* of the gap */
        if (!negated)
            put_range(p, ranges[i].low, ranges[i].high);
        else if (gap < end)
            put_range(p, gap, end - 1);
        gap = ranges[i].high == 0xd7ff ? 0xe000 : ranges[i].high + 1;
    }
    put_word(p, "]");
}

static void put_bounds(printer *p, const mica__grammar_element *element)
{
    char text[32];
    if (element->min == 0 && element->max == 1)
        (void)snprintf(text, sizeof text, "?");
    else if (element->min < 2 && element->max == MICA__GRAMMAR_MANY)
        (void)snprintf(text, sizeof text, element->min == 0 ? "*" : "+");
    else if (element->max == MICA__GRAMMAR_MANY)
        (void)snprintf(text, sizeof text, "{%u,}", element->min);
    else
        (void)snprintf(text, sizeof text, "{%u,%u}", element->min, element->max);
    put_word(p, text);
}

/* A group of one character, which needs no brackets. */
static bool is_one_class(const mica_grammar *grammar, const mica__grammar_rule *rule)
{
    const mica__grammar_element *e = &grammar->elements[grammar->alternatives[rule->first]];
    return rule->count == 1 && e[0].kind == MICA__GRAMMAR_CLASS && e[1].kind == MICA__GRAMMAR_END;
}

/* ---- rules ---------------------------------------------------------------------------------------------- */

/* A rule that is being written: its name's line, or a group in place. */
typedef struct level {
    const mica__grammar_rule *rule;
    uint32_t alternative;            /* the next one */
    const mica__grammar_element *at; /* in the one before it; NULL: between two */
    bool first, bracket;
} level;

typedef struct levels {
    level *list;
    uint32_t count, capacity;
} levels;

static bool push(levels *stack, const mica__grammar_rule *rule, bool bracket)
{
    level *list = mica__grown(stack->list, &stack->capacity, stack->count + 1, sizeof *list);
    if (list == NULL)
        return false;
    stack->list = list;
    list[stack->count++] = (level){.rule = rule, .bracket = bracket};
    return true;
}

static void put_letters(printer *p, level *top)
{
    const mica_grammar *grammar = p->grammar;
    put_word(p, "\"");
    for (; is_letter(grammar, top->at); top->at++)
        put_code(p, grammar->ranges[grammar->classes[top->at->value].first].low, IN_LITERAL);
    put_word(p, "\"");
}

/* Ends an element that is written, with its bounds. */
static void end_element(printer *p, level *top)
{
    if (top->at->kind == MICA__GRAMMAR_REPEAT && top->at->max != 0)
        put_bounds(p, top->at);
    top->at++;
}

/* Writes the next element of the innermost rule, or goes into it. */
static void put_element(printer *p, levels *stack)
{
    level *top = &stack->list[stack->count - 1];
    const mica__grammar_element *e = top->at;
    const mica__grammar_rule *rule = e->kind >= MICA__GRAMMAR_RULE ? &p->grammar->rules[e->value] : NULL;
    if (!top->first)
        put_word(p, " ");
    top->first = false;
    if (is_letter(p->grammar, e)) {
        put_letters(p, top);
        return;
    }
    if (e->kind == MICA__GRAMMAR_REPEAT && e->max == 0) {
        put_word(p, "\"\""); /* of a rule that may be gone */
    } else if (rule == NULL) {
        put_class(p, &p->grammar->classes[e->value]);
    } else if (rule->name == MICA__GRAMMAR_NONE) {
        const bool bracket = !is_one_class(p->grammar, rule);
        if (bracket)
            put_word(p, "(");
        p->failed |= !push(stack, rule, bracket);
        return;
    } else {
        put(p, p->grammar->names + rule->name, rule->name_length);
    }
    end_element(p, top);
}

/* The right side of a rule. Groups may nest as deep as they like: nothing recurses. */
static mica_status put_rule(printer *p, levels *stack, const mica__grammar_rule *rule)
{
    const mica_grammar *grammar = p->grammar;
    uint32_t spent = p->length;
    stack->count = 0;
    p->failed |= !push(stack, rule, false);
    while (!p->failed && stack->count > 0) {
        level *top = &stack->list[stack->count - 1];
        MICA__TRY(mica__spend(8 + (p->length - spent)));
        spent = p->length;
        if (top->at != NULL && top->at->kind != MICA__GRAMMAR_END) {
            put_element(p, stack);
        } else if (top->alternative < top->rule->count) {
            if (top->alternative != 0)
                put_word(p, " | ");
            top->at = &grammar->elements[grammar->alternatives[top->rule->first + top->alternative++]];
            top->first = true;
            if (top->at->kind == MICA__GRAMMAR_END)
                put_word(p, "\"\""); /* a line end could not follow ::= or | */
        } else {
            if (top->bracket)
                put_word(p, ")");
            if (--stack->count > 0)
                end_element(p, &stack->list[stack->count - 1]);
        }
    }
    return MICA_OK;
}

static mica_status print(const mica_grammar *grammar, printer *p, levels *stack)
{
    for (uint32_t r = 0; r < grammar->rule_count; r++) {
        const mica__grammar_rule *it = &grammar->rules[r];
        if (it->name == MICA__GRAMMAR_NONE || it->count == 0)
            continue;
        put(p, grammar->names + it->name, it->name_length);
        put_word(p, " ::= ");
        MICA__TRY(put_rule(p, stack, it));
        put_word(p, "\n");
    }
    return p->failed ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the text of the grammar") : MICA_OK;
}

mica_status mica_grammar_print(const mica_grammar *grammar, char **out_text, uint64_t *out_length)
{
    printer p = {.grammar = grammar};
    levels stack = {0};
    mica__call call;
    mica_status status = MICA_OK;
    mica__call_begin(&call, "grammar_print");
    if (out_text == NULL || out_length == NULL || grammar == NULL)
        status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                            grammar == NULL    ? "grammar"
                            : out_text == NULL ? "out_text"
                                               : "out_length");
    if (out_text != NULL)
        *out_text = NULL;
    if (out_length != NULL)
        *out_length = 0;
    if (status == MICA_OK) {
        mica__spend_allow((uint64_t)grammar->element_count * 4 + grammar->range_count * 4 +
                          grammar->name_bytes);
        status = print(grammar, &p, &stack);
        mica__free(stack.list);
    }
    if (status != MICA_OK) {
        mica__free(p.text);
        return mica__call_end(&call, status);
    }
    *out_text = p.text;
    *out_length = p.length;
    return mica__call_end(&call, MICA_OK);
}
