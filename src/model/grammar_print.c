/* grammar_print.c: a grammar as GBNF again. Groups are written in place; alternatives that could never end are gone. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/work.h"
#include "model/grammar.h"

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

static void put_rule(printer *p, uint32_t rule);

/* A group of one character, which needs no brackets. */
static bool is_one_class(const mica_grammar *grammar, const mica__grammar_rule *rule)
{
    const mica__grammar_element *e = &grammar->elements[grammar->alternatives[rule->first]];
    return rule->count == 1 && e[0].kind == MICA__GRAMMAR_CLASS && e[1].kind == MICA__GRAMMAR_END;
}

/* Recurses as deep as groups were written inside each other. */
static void put_reference(printer *p, uint32_t rule)
{
    const mica__grammar_rule *it = &p->grammar->rules[rule];
    if (it->name != MICA__GRAMMAR_NONE) {
        put(p, p->grammar->names + it->name, it->name_length);
        return;
    }
    if (is_one_class(p->grammar, it)) {
        put_rule(p, rule);
        return;
    }
    put_word(p, "(");
    put_rule(p, rule);
    put_word(p, ")");
}

static void put_alternative(printer *p, const mica__grammar_element *e)
{
    const mica_grammar *grammar = p->grammar;
    if (e->kind == MICA__GRAMMAR_END)
        put_word(p, "\"\""); /* a line end could not follow ::= or | */
    for (bool first = true; e->kind != MICA__GRAMMAR_END; first = false) {
        if (!first)
            put_word(p, " ");
        if (is_letter(grammar, e)) {
            put_word(p, "\"");
            for (; e->kind == MICA__GRAMMAR_CLASS && is_letter(grammar, e); e++)
                put_code(p, grammar->ranges[grammar->classes[e->value].first].low, IN_LITERAL);
            put_word(p, "\"");
            continue;
        }
        if (e->kind == MICA__GRAMMAR_CLASS)
            put_class(p, &grammar->classes[e->value]);
        else if (e->kind == MICA__GRAMMAR_REPEAT && e->max == 0)
            put_word(p, "\"\""); /* of a rule that may be gone */
        else
            put_reference(p, e->value);
        if (e->kind == MICA__GRAMMAR_REPEAT && e->max != 0)
            put_bounds(p, e);
        e++;
    }
}

static void put_rule(printer *p, uint32_t rule)
{
    const mica__grammar_rule *it = &p->grammar->rules[rule];
    for (uint32_t a = 0; a < it->count; a++) {
        if (a != 0)
            put_word(p, " | ");
        put_alternative(p, &p->grammar->elements[p->grammar->alternatives[it->first + a]]);
    }
}

mica_status mica_grammar_print(const mica_grammar *grammar, char **out_text, uint64_t *out_length)
{
    printer p = {.grammar = grammar};
    if (out_text == NULL || out_length == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          out_text == NULL ? "out_text" : "out_length");
    *out_text = NULL;
    *out_length = 0;
    if (grammar == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "grammar is NULL");
    for (uint32_t r = 0; r < grammar->rule_count; r++) {
        const mica__grammar_rule *it = &grammar->rules[r];
        if (it->name == MICA__GRAMMAR_NONE || it->count == 0)
            continue;
        put(&p, grammar->names + it->name, it->name_length);
        put_word(&p, " ::= ");
        put_rule(&p, r);
        put_word(&p, "\n");
    }
    if (p.failed) {
        mica__free(p.text);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for its text");
    }
    *out_text = p.text;
    *out_length = p.length;
    return MICA_OK;
}
