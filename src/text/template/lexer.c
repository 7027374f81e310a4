/* lexer.c: the text of a template as tokens, with the white space rules that chat templates are written for:
 * trim_blocks (a newline after a block tag goes) and lstrip_blocks (blanks before one at the start of a line go). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/template/chars.h"
#include "text/template/node.h"
#include "text/template/number.h"

static const char *const token_names[MICA__JINJA_TOKEN_COUNT] = {
    [MICA__JINJA_TOKEN_END] = "the end of the template",
    [MICA__JINJA_TOKEN_DATA] = "text",
    [MICA__JINJA_TOKEN_PRINT_BEGIN] = "{{",
    [MICA__JINJA_TOKEN_PRINT_END] = "}}",
    [MICA__JINJA_TOKEN_BLOCK_BEGIN] = "{%",
    [MICA__JINJA_TOKEN_BLOCK_END] = "%}",
    [MICA__JINJA_TOKEN_NAME] = "a name",
    [MICA__JINJA_TOKEN_STRING] = "a string",
    [MICA__JINJA_TOKEN_INTEGER] = "an integer",
    [MICA__JINJA_TOKEN_FLOAT] = "a number",
    [MICA__JINJA_TOKEN_ADD] = "+",
    [MICA__JINJA_TOKEN_SUB] = "-",
    [MICA__JINJA_TOKEN_MUL] = "*",
    [MICA__JINJA_TOKEN_DIV] = "/",
    [MICA__JINJA_TOKEN_FLOOR] = "//",
    [MICA__JINJA_TOKEN_MOD] = "%",
    [MICA__JINJA_TOKEN_POW] = "**",
    [MICA__JINJA_TOKEN_TILDE] = "~",
    [MICA__JINJA_TOKEN_EQ] = "==",
    [MICA__JINJA_TOKEN_NE] = "!=",
    [MICA__JINJA_TOKEN_LT] = "<",
    [MICA__JINJA_TOKEN_LE] = "<=",
    [MICA__JINJA_TOKEN_GT] = ">",
    [MICA__JINJA_TOKEN_GE] = ">=",
    [MICA__JINJA_TOKEN_ASSIGN] = "=",
    [MICA__JINJA_TOKEN_DOT] = ".",
    [MICA__JINJA_TOKEN_COLON] = ":",
    [MICA__JINJA_TOKEN_PIPE] = "|",
    [MICA__JINJA_TOKEN_COMMA] = ",",
    [MICA__JINJA_TOKEN_SEMICOLON] = ";",
    [MICA__JINJA_TOKEN_LPAREN] = "(",
    [MICA__JINJA_TOKEN_RPAREN] = ")",
    [MICA__JINJA_TOKEN_LBRACKET] = "[",
    [MICA__JINJA_TOKEN_RBRACKET] = "]",
    [MICA__JINJA_TOKEN_LBRACE] = "{",
    [MICA__JINJA_TOKEN_RBRACE] = "}",
};

const char *mica__jinja_token_name(mica__jinja_token_kind kind)
{
    return token_names[kind];
}

void mica__jinja_place(const char *source, size_t length, size_t at, uint32_t *out_line, uint32_t *out_column)
{
    uint32_t line = 1;
    size_t start = 0;
    if (at > length)
        at = length;
    for (size_t i = 0; i < at; i++)
        if (source[i] == '\n') {
            line++;
            start = i + 1;
        }
    *out_line = line;
    *out_column = (uint32_t)mica__jinja_char_count(source + start, at - start) + 1;
}

mica_status mica__jinja_syntax(const char *source, size_t length, size_t at, mica_status code,
                               const char *format, ...)
{
    char text[400];
    uint32_t line, column;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    mica__jinja_place(source, length, at, &line, &column);
    return mica__fail(code, "line %u, column %u: %s", line, column, text);
}

static bool fail(mica__jinja_lexer *l, size_t at, const char *what)
{
    l->status = mica__jinja_syntax(l->source, l->length, at, MICA_ERR_INVALID_ARGUMENT, "%s", what);
    return false;
}

static bool is_at(const mica__jinja_lexer *l, size_t at, const char *word)
{
    const size_t length = strlen(word);
    return l->length - at >= length && memcmp(l->source + at, word, length) == 0;
}

/* The first place from `at` where a tag of any kind begins; the length of the text if there is none. */
static size_t find_tag(const mica__jinja_lexer *l, size_t at)
{
    while (at < l->length) {
        const char *brace = memchr(l->source + at, '{', l->length - at);
        if (brace == NULL)
            break;
        at = (size_t)(brace - l->source);
        if (at + 1 < l->length && strchr("{%#", l->source[at + 1]) != NULL && l->source[at + 1] != '\0')
            return at;
        at++;
    }
    return l->length;
}

/* A sign right after the beginning of a tag: '-', '+' or 0. */
static char sign_at(const mica__jinja_lexer *l, size_t at)
{
    const char c = at < l->length ? l->source[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
}

/* Where the text [from, to) before a tag ends when the tag's white space rule has been applied. */
static size_t strip_before(const mica__jinja_lexer *l, size_t from, size_t to, char sign, bool prints)
{
    if (sign == '-')
        return mica__jinja_trim_end(l->source, from, to);
    if (sign == '+' || prints)
        return to;
    size_t start = to;
    while (start > from && l->source[start - 1] != '\n')
        start--;
    const bool line_start = start > from || from == 0 || l->source[from - 1] == '\n';
    return line_start && mica__jinja_skip_space(l->source, to, start) == to ? start : to;
}

/* The end of a tag at `at`: its bytes with the sign before and the white space that goes with it; 0: none there. */
static size_t tag_end(const mica__jinja_lexer *l, size_t at, const char *end, bool block)
{
    const char sign = sign_at(l, at);
    const size_t start = at;
    if (sign == '+' && !block)
        return 0;
    if (sign != '\0')
        at++;
    if (!is_at(l, at, end))
        return 0;
    at += strlen(end);
    if (sign == '-')
        at = mica__jinja_skip_space(l->source, l->length, at);
    else if (sign == '\0' && block && at < l->length && l->source[at] == '\n')
        at++;
    return at - start;
}

static bool skip_comment(mica__jinja_lexer *l, size_t begin)
{
    size_t at = begin + 2 + (sign_at(l, begin + 2) != '\0');
    for (; at < l->length; at++) {
        const size_t bytes = tag_end(l, at, "#}", true);
        if (bytes != 0) {
            l->at = at + bytes;
            return true;
        }
    }
    return fail(l, begin, "this comment has no end; \"#}\" is missing");
}

/* {% word %} at `begin`, with any signs; gives where it ends, 0 if it is something else. */
static size_t word_tag(const mica__jinja_lexer *l, size_t begin, const char *word, bool trims)
{
    size_t at = begin + 2 + (sign_at(l, begin + 2) != '\0');
    at = mica__jinja_skip_space(l->source, l->length, at);
    if (!is_at(l, at, word))
        return 0;
    at = mica__jinja_skip_space(l->source, l->length, at + strlen(word));
    if (!trims && is_at(l, at, "%}"))
        return at + 2;
    if (!trims && sign_at(l, at) == '+')
        return 0;
    const size_t bytes = tag_end(l, at, "%}", true);
    return bytes == 0 ? 0 : at + bytes;
}

static void set_data(const mica__jinja_lexer *l, size_t from, size_t to, mica__jinja_token *out)
{
    *out = (mica__jinja_token){
        .kind = MICA__JINJA_TOKEN_DATA, .at = (uint32_t)from, .text = l->source + from, .length = to - from};
}

static bool lex_raw(mica__jinja_lexer *l, mica__jinja_token *out)
{
    const size_t from = l->at;
    for (size_t at = from; at < l->length; at++) {
        const size_t end = is_at(l, at, "{%") ? word_tag(l, at, "endraw", true) : 0;
        if (end == 0)
            continue;
        set_data(l, from, strip_before(l, from, at, sign_at(l, at + 2), false), out);
        l->at = end;
        l->raw = false;
        return true;
    }
    return fail(l, from, "this raw block has no end; {% endraw %} is missing");
}

/* Plain text up to the next tag, or the beginning of a tag when there is none. */
static bool lex_text(mica__jinja_lexer *l, mica__jinja_token *out)
{
    while (l->at < l->length) {
        if (l->raw)
            return lex_raw(l, out);
        const size_t from = l->at, tag = find_tag(l, from);
        if (tag == l->length) {
            set_data(l, from, tag, out);
            l->at = tag;
            return true;
        }
        const char mark = l->source[tag + 1], sign = sign_at(l, tag + 2);
        const size_t end = strip_before(l, from, tag, sign, mark == '{');
        const size_t raw = mark == '%' ? word_tag(l, tag, "raw", false) : 0;
        set_data(l, from, end, out);
        if (raw != 0) {
            l->raw = true;
            l->at = raw;
        } else if (mark == '#') {
            if (!skip_comment(l, tag))
                return false;
        } else if (end > from) {
            /* The tag itself is the next token. Its text was stripped already, so nothing is left to strip then. */
            l->at = tag;
        } else {
            l->inside = mark == '{' ? MICA__JINJA_TOKEN_PRINT_BEGIN : MICA__JINJA_TOKEN_BLOCK_BEGIN;
            *out = (mica__jinja_token){
                .kind = l->inside, .at = (uint32_t)tag, .text = l->source + tag, .length = 2};
            l->at = tag + 2 + (sign != '\0');
            l->brackets = 0;
            return true;
        }
        if (end > from)
            return true;
    }
    *out = (mica__jinja_token){.kind = MICA__JINJA_TOKEN_END, .at = (uint32_t)l->length};
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The number after \x, \u or \U; false when it is not so many digits or no character. */
static bool read_code(const char *text, size_t left, size_t digits, uint32_t *out_code)
{
    uint32_t code = 0;
    if (left < digits)
        return false;
    for (size_t i = 0; i < digits; i++) {
        if (hex_digit(text[i]) < 0)
            return false;
        code = code << 4 | (uint32_t)hex_digit(text[i]);
    }
    *out_code = code;
    return code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

/* One escape, `*at` on what follows the backslash. */
static bool unescape(mica__jinja_lexer *l, const char *text, size_t length, size_t *at, char **out)
{
    static const char names[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = text[*at];
    const char *name = c == '\0' ? NULL : strchr(names, c);
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    ++*at;
    if (name != NULL) {
        *(*out)++ = values[name - names];
    } else if (digits != 0) {
        if (!read_code(text + *at, length - *at, digits, &code))
            return fail(l, (size_t)(text - l->source) + *at - 2, "this escape names no character");
        *at += digits;
        *out += mica__utf8_put(code, *out);
    } else if (c >= '0' && c <= '7') {
        --*at;
        for (int i = 0; i < 3 && *at < length && text[*at] >= '0' && text[*at] <= '7'; i++)
            code = code * 8 + (uint32_t)(text[(*at)++] - '0');
        *out += mica__utf8_put(code, *out);
    } else if (c == 'N') {
        return fail(l, (size_t)(text - l->source) + *at - 2, "escapes by name (\\N) are not known");
    } else if (c != '\n') { /* an unknown escape stays as it is */
        *(*out)++ = '\\';
        *(*out)++ = c;
    }
    return true;
}

static bool lex_string(mica__jinja_lexer *l, mica__jinja_token *out)
{
    const char quote = l->source[l->at];
    const char *text = l->source + l->at + 1;
    size_t length = 0, left = l->length - l->at - 1;
    while (length < left && text[length] != quote)
        length += text[length] == '\\' ? 2 : 1;
    if (length >= left)
        return fail(l, l->at, "this string has no end");
    out->kind = MICA__JINJA_TOKEN_STRING;
    out->value = mica__jinja_text(text, length);
    l->at += length + 2;
    if (length == 0 || memchr(text, '\\', length) == NULL)
        return true;
    char *decoded = mica__jinja_alloc(l->arena, length), *end = decoded;
    if (decoded == NULL) {
        l->status = mica__jinja_arena_failure(l->arena);
        return false;
    }
    for (size_t at = 0; at < length;) {
        if (text[at] != '\\') {
            *end++ = text[at++];
            continue;
        }
        at++;
        if (!unescape(l, text, length, &at, &end))
            return false;
    }
    out->value = mica__jinja_text(decoded, (size_t)(end - decoded));
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t digits_end(const mica__jinja_lexer *l, size_t at)
{
    while (at < l->length && (is_digit(l->source[at]) ||
                              (l->source[at] == '_' && at + 1 < l->length && is_digit(l->source[at + 1]))))
        at++;
    return at;
}

/* The end of a fraction or an exponent after the digits that end at `at`; `at` itself for an integer. */
static size_t float_end(const mica__jinja_lexer *l, size_t at)
{
    size_t end = at;
    if (at + 1 < l->length && l->source[at] == '.' && is_digit(l->source[at + 1]))
        end = digits_end(l, at + 1);
    if (end < l->length && (l->source[end] | 32) == 'e') {
        const size_t power = end + 1 + (sign_at(l, end + 1) != '\0');
        if (power < l->length && is_digit(l->source[power]))
            return digits_end(l, power);
    }
    return end;
}

/* Where the letters and digits of 0x1f and its like end; `at` when it is none of these. */
static size_t based_end(const mica__jinja_lexer *l, size_t at)
{
    const char letter = at + 1 < l->length ? (char)(l->source[at + 1] | 32) : '\0';
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    size_t end = at + 2;
    if (l->source[at] != '0' || base == 0)
        return at;
    for (; end < l->length; end++) {
        const size_t digit = end + (l->source[end] == '_');
        const int value = digit < l->length ? hex_digit(l->source[digit]) : -1;
        if (value < 0 || value >= base)
            break;
        end = digit;
    }
    return end == at + 2 ? at : end;
}

static bool lex_number(mica__jinja_lexer *l, mica__jinja_token *out)
{
    const size_t from = l->at;
    const bool after_dot = from > 0 && l->source[from - 1] == '.';
    size_t whole = digits_end(l, from), end = after_dot ? whole : float_end(l, whole);
    if (end > whole) {
        double real = 0;
        (void)mica__jinja_parse_real(l->source + from, end - from, &real);
        out->kind = MICA__JINJA_TOKEN_FLOAT;
        out->value = mica__jinja_float(real);
    } else {
        int64_t integer = 0;
        const size_t based = based_end(l, from);
        end = based != from ? based : whole;
        if (based == from && l->source[from] == '0') /* 012 is 0 and then 12, as in the language */
            for (end = from + 1; end < whole && (l->source[end] == '0' || l->source[end] == '_');)
                end++;
        if (!mica__jinja_parse_int(l->source + from, end - from, based != from ? 0 : 10, &integer))
            return fail(l, from, "this integer does not fit in 64 bits");
        out->kind = MICA__JINJA_TOKEN_INTEGER;
        out->value = mica__jinja_int(integer);
    }
    l->at = end;
    return true;
}

static size_t name_end(const mica__jinja_lexer *l, size_t at)
{
    while (at < l->length) {
        size_t bytes;
        const uint32_t code = mica__jinja_char(l->source + at, l->length - at, &bytes);
        if (code < 0x80 ? !(is_digit((char)code) || code == '_' || (code | 32) - 'a' < 26u)
                        : !mica__jinja_is_word(code))
            break;
        at += bytes;
    }
    return at;
}

static bool lex_operator(mica__jinja_lexer *l, mica__jinja_token *out)
{
    /* Longer ones first, so that the first that fits is the right one. */
    static const mica__jinja_token_kind order[] = {MICA__JINJA_TOKEN_FLOOR, MICA__JINJA_TOKEN_POW,
                                                   MICA__JINJA_TOKEN_EQ,    MICA__JINJA_TOKEN_NE,
                                                   MICA__JINJA_TOKEN_LE,    MICA__JINJA_TOKEN_GE};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (is_at(l, l->at, token_names[order[i]])) {
            out->kind = order[i];
            l->at += 2;
            return true;
        }
    for (mica__jinja_token_kind kind = MICA__JINJA_TOKEN_ADD; kind < MICA__JINJA_TOKEN_COUNT; kind++)
        if (token_names[kind][1] == '\0' && token_names[kind][0] == l->source[l->at]) {
            out->kind = kind;
            l->at++;
            return true;
        }
    l->status = mica__jinja_syntax(
        l->source, l->length, l->at, MICA_ERR_INVALID_ARGUMENT, "the character \"%.*s\" does not belong here",
        (int)mica__utf8_length(l->source + l->at, l->length - l->at), l->source + l->at);
    return false;
}

/* Keeps count of open brackets: the end of a tag is one only outside of all of them. */
static bool balance(mica__jinja_lexer *l, const mica__jinja_token *token)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char c = l->source[token->at];
    if (token->kind < MICA__JINJA_TOKEN_LPAREN)
        return true;
    if (strchr(opening, c) != NULL) {
        if (l->brackets == sizeof l->closing) {
            l->status =
                mica__jinja_syntax(l->source, l->length, token->at, MICA_ERR_BUDGET,
                                   "more than %d brackets inside each other", MICA__JINJA_PARSE_DEPTH);
            return false;
        }
        l->closing[l->brackets++] = closing[strchr(opening, c) - opening];
        return true;
    }
    if (l->brackets == 0 || l->closing[l->brackets - 1] != c) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "unexpected '%c'%s%.1s%s", c,
                 l->brackets == 0 ? "" : ", expected '", l->brackets == 0 ? "" : &l->closing[l->brackets - 1],
                 l->brackets == 0 ? "" : "'");
        return fail(l, token->at, sentence);
    }
    l->brackets--;
    return true;
}

/* One token inside of a tag. */
static bool lex_inside(mica__jinja_lexer *l, mica__jinja_token *out)
{
    const bool block = l->inside == MICA__JINJA_TOKEN_BLOCK_BEGIN;
    for (;;) {
        const size_t bytes = l->brackets != 0 ? 0 : tag_end(l, l->at, block ? "%}" : "}}", block);
        *out = (mica__jinja_token){.at = (uint32_t)l->at, .text = l->source + l->at, .length = bytes};
        if (bytes != 0) {
            out->kind = block ? MICA__JINJA_TOKEN_BLOCK_END : MICA__JINJA_TOKEN_PRINT_END;
            l->at += bytes;
            l->inside = 0;
            return true;
        }
        const size_t next = mica__jinja_skip_space(l->source, l->length, l->at);
        if (next == l->at)
            break;
        l->at = next;
    }
    if (l->at >= l->length) {
        out->kind = MICA__JINJA_TOKEN_END;
        return true;
    }
    const char c = l->source[l->at];
    const size_t name = name_end(l, l->at);
    bool fine = true;
    if (is_digit(c)) {
        fine = lex_number(l, out);
    } else if (name > l->at) {
        out->kind = MICA__JINJA_TOKEN_NAME;
        l->at = name;
    } else if (c == '"' || c == '\'') {
        fine = lex_string(l, out);
    } else {
        fine = lex_operator(l, out) && balance(l, out);
    }
    out->length = l->at - out->at;
    return fine;
}

bool mica__jinja_lex(mica__jinja_lexer *lexer, mica__jinja_token *out_token)
{
    return lexer->inside != 0 ? lex_inside(lexer, out_token) : lex_text(lexer, out_token);
}
